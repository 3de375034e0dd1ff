# SPDX-License-Identifier: Apache-2.0
"""Arguments of operators: their description by a signature, and the conversion of values to the form that bodies and kernels take."""

import enum
import inspect
import itertools
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import numpy as np
import torch

from ... import types
from .. import native
from ..context.rng import RNG, WORDS_PER_CALL, compiled_draw, get_default_rng
from ..native import CPU
from ..native.tracing import is_compiling, is_jit_tracing
from ..native.transforms import check_values
from ..values.batch import Batch, new_batch
from ..values.operand import Operand
from ..work.pending import Pending

X = TypeVar("X")
# The element type of arguments that the kernel gets in double precision: ``PerSample[Double]``.
Double = np.float64


class Role(enum.Enum):
    """How the decorator treats a parameter."""

    per_sample = enum.auto()
    shape = enum.auto()
    hint = enum.auto()
    random = enum.auto()
    dtype = enum.auto()
    shared = enum.auto()
    kept = enum.auto()
    plain = enum.auto()  # int, float, bool, str: passed to the kernel unchanged
    body = enum.auto()  # anything else: for the body only


# A value or a Tensor for all samples, or a Batch with one value per sample. The body and the kernel get a CPU tensor with one row or N.
PerSample = Annotated[X | Any, Role.per_sample]
# The same if the size of the output depends on it: the body gets Python numbers unchanged and tensors (rows, columns) with their values.
ShapeArg = Annotated[X | Any, Role.shape]
# The same if the number of values may differ from sample to sample: the rows of a Batch are padded to the longest with NO_VALUE, or with NaN for
# floats.
Varying = Annotated[X | Any, Role.per_sample, "varying"]
VaryingShape = Annotated[X | Any, Role.shape, "varying"]
NO_VALUE = -(2**31)
# A value of which the body takes arrays as they are. Other arguments for the body alone get Python's numbers in their place.
AsGiven = Annotated[X | Any, Role.body]
# Without effect on the result. Most are accepted for compatibility with DALI and ignored.
Hint = Annotated[X, Role.hint]
# An input for which a Tensor given along with a Batch is shared by all samples, with a stride of 0, instead of being copied for each.
Shared = Annotated[X, Role.shared]
# An input that programs give as a number or a small array: it is kept on its device for later calls (kept.py). The body must not return its memory.
Kept = Annotated[X, Role.kept]
# The same, kept in the type of the first input if that holds all of its numbers.
KeptLike = Annotated[X, Role.kept, "like the first input"]
# A generator; the body and the kernel get an int64 tensor with the seven words that a call draws.
Random = Annotated[RNG | None, Role.random]


@dataclass(frozen=True)
class Argument:
    """A keyword parameter."""

    name: str
    role: Role
    schema: str | None  # type in the kernel's schema, if it is part of it
    element: type  # bool, int, float or Double
    vector: bool  # several numbers form one value
    varying: bool = False  # the number of values differs between samples
    matrix: bool = False  # rows of numbers
    positional: bool = False  # the body checks the types of arguments by position
    as_given: bool = False  # the body takes arrays
    integer: bool = False  # nothing but an int, for the body


_SCHEMA = {int: "int", float: "float", bool: "bool", str: "str"}


def describe_argument(parameter: inspect.Parameter, hint: Any) -> Argument:
    """Describe an annotated keyword parameter."""
    if typing.get_origin(hint) is typing.Literal:
        hint = str  # one of a few strings, which the body checks
    optional = type(None) in typing.get_args(hint)
    role, inner, varying = Role.plain, hint, False
    for part in (hint, *typing.get_args(hint)):
        metadata: tuple[Any, ...] = getattr(part, "__metadata__", None) or (None,)
        if isinstance(metadata[0], Role):
            role, inner, varying = metadata[0], typing.get_args(part)[0], len(metadata) > 1
    members = [m for m in typing.get_args(inner) or (inner,) if m is not Any and m is not type(None)]
    kinds = [typing.get_origin(m) or m for m in members]
    vector = any(kind is Sequence for kind in kinds)
    flat = {k for m in members for k in ((typing.get_args(m) or (m,)) if typing.get_origin(m) is Sequence else (m,))}
    rows = {k for m in members for k in typing.get_args(m) if typing.get_origin(k) is Sequence}
    flat |= {k for row in rows for k in typing.get_args(row)}
    if role is Role.plain and torch.dtype in flat:
        role = Role.dtype
    element = next((number for number in (bool, Double, float) if number in flat), int)
    if role is Role.per_sample:
        return Argument(parameter.name, role, "Tensor?" if parameter.default is None else "Tensor", element, vector, varying, bool(rows))
    if role is Role.random:
        return Argument(parameter.name, role, "Tensor", int, False)
    if role is Role.body:
        return Argument(parameter.name, role, None, element, vector, as_given=True)
    if role is not Role.plain:
        return Argument(parameter.name, role, None, element, vector, varying, bool(rows), parameter.kind is parameter.POSITIONAL_ONLY)
    kind = members[0] if len(members) == 1 and not vector else None
    schema = None
    if isinstance(kind, type) and parameter.default is not None and not optional:
        schema = "int" if issubclass(kind, enum.IntEnum) else _SCHEMA.get(kind)
    return Argument(parameter.name, Role.plain if schema else Role.body, schema, element, vector, integer=kinds == [int])


class Call:
    """The state of a call in preparation."""

    __slots__ = (
        *("batch_size", "caller_owned", "compiling", "constants", "fixed", "frames", "frames_of", "is_batch", "name", "numbers", "of_planes"),
        *("per_frame", "reads", "records", "words"),
    )

    def __init__(self, name: str, compiling: bool | None = None) -> None:
        self.name = name
        self.batch_size = 1
        self.is_batch = False
        self.caller_owned = False
        self.of_planes = False  # the input of an operator of images was planes: results of one channel become planes
        self.per_frame = False  # only marked arguments have values per frame; further dimensions of a vector are flattened
        # The number of frames of the marked arguments: a number, int64 (N,) with one per sample, or None; and the argument it comes from.
        self.frames: Any = None
        self.frames_of = ""
        self.fixed = False  # an input of a single frame is not applied to several frames either
        self.constants: dict[str, Any] | None = None  # prepared arguments, defaults included
        self.words: torch.Tensor | None = None  # drawn for a random operator
        self.records: list[Any] | None = None  # receives the record of the launch
        self.compiling = is_compiling() if compiling is None else compiling
        self.reads: list[tuple[Pending, int]] = []
        self.numbers: list[tuple[torch.Tensor, Any]] = []  # under torch.compile: constants, and the numbers that they represent

    def join(self, value: Batch, name: int | str) -> None:
        """Add a Batch to the call: the input with this index or the argument with this name."""
        size = value.batch_size
        if self.is_batch and size != self.batch_size:
            what = f"argument {name!r}): pass one value per sample, or a single one for all" if isinstance(name, str) else f"input {name})"
            raise ValueError(f"{self.name}: Inconsistent batch size: {self.batch_size} != {size} ({what}")
        self.is_batch, self.batch_size = True, size

    def agree(self, what: str, count: Any) -> None:
        """Add an input or an argument with this many frames: as many as the others, or a single frame for all."""
        frames, grows = self.frames, not self.fixed
        if frames is None:
            self.frames, self.frames_of = count, what
            return
        if not isinstance(frames, torch.Tensor) and not isinstance(count, torch.Tensor):
            if count not in (1, frames) and not (grows and frames == 1):
                raise self._contradiction(what, count, 0)
            self.frames = count if grows and frames == 1 else frames
            return
        fits = (count == 1) | (count == frames) | ((frames == 1) if grows else False)
        if self.compiling:
            torch.ops.aten._assert_async.msg(fits.all(), f"{self.name}: {what} and {self.frames_of} have different numbers of frames")
        elif not bool(fits.all()):
            raise self._contradiction(what, count, int((~fits).to(torch.int8).argmax()))
        if grows:
            self.frames = torch.where(torch.as_tensor(frames == 1), count, frames)

    def _contradiction(self, what: str, count: Any, sample: int) -> RuntimeError:
        found, expected = (int(value[sample]) if isinstance(value, torch.Tensor) else value for value in (count, self.frames))
        where = f"sample {sample} of " if self.is_batch else ""
        return RuntimeError(
            f"{self.name}: {what} is for {found} frames, but {where}{self.frames_of} has {expected} frames; pass as many values, or one for all"
        )

    def read(self, value: Operand) -> None:
        """Depend on a value that may be pending."""
        pending = value._pending_work()
        if pending is not None:
            self.reads.append((pending, value._sample))


_DTYPE = {bool: torch.bool, int: torch.int32, float: torch.float32, Double: torch.float64}
_LIMIT = {bool: 2**31, int: 2**31, float: 2**1000, Double: 2**1000}
_constants: dict[tuple[Any, ...], torch.Tensor] = {}


_PLAIN: dict[str | None, tuple[type, ...]] = {
    "bool": (bool, int, np.bool_),
    "int": (int, np.integer),
    "float": (float, int, np.number),
    "str": (str,),
}


def check_plain(call: Call, argument: Argument, value: Any) -> Any:
    """Return a value for the kernel: a Python number, a string."""
    if isinstance(value, np.ndarray) and value.size == 1:
        value = as_python(value.reshape(()))
    if not isinstance(value, _PLAIN[argument.schema]):
        if argument.schema != "int" or not isinstance(value, float | np.floating) or not value.is_integer():
            raise TypeError(f"{call.name}: argument {argument.name!r} must be {argument.schema}, got {value!r}")
        value = int(value)
    if isinstance(value, enum.IntEnum):
        value = value.value  # torch 2.11 cannot compare one in a graph
    if argument.schema == "int" and not -(2**63) <= value < 2**63:
        raise ValueError(f"{call.name}: argument {argument.name!r} is out of range: {value!r}")
    return value.item() if isinstance(value, np.generic) else bool(value) if argument.schema == "bool" else value


def as_python(value: Any) -> Any:
    """Return NumPy's numbers, alone, in arrays and in lists, as Python's; any other value as it is."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist() if value.dtype.kind in "biuf" else value
    # Nearly all lists are of Python's numbers.
    if type(value) in (list, tuple) and not _PYTHON.issuperset(map(type, value)):
        return type(value)(map(as_python, value))
    return value


_PYTHON = frozenset((int, float, bool, str, type(None)))
_UNCHANGED = _PYTHON - {float}  # a float may stand for an integer


def _python_numbers(argument: Argument, value: Any) -> Any:
    """Return a value for the body, with Python's numbers in place of NumPy's."""
    value = as_python(value)
    if not argument.integer:
        return value
    if isinstance(value, list) and len(value) == 1:  # an array of one element
        value = value[0]
    # 2 ** math.ceil(math.log2(400.0)) is an int, 2 ** np.ceil(...) is not.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def prepare_argument(call: Call, argument: Argument, value: Any, has_frames: bool = False) -> Any:
    """Return a value in the form that the body and the kernel take: a tensor of rows, numbers, a dtype, or drawn words."""
    if argument.role is Role.dtype:
        try:
            return None if value is None else types.to_dtype(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{call.name}: {argument.name}: {error}") from None
    if argument.role is Role.body:
        return value if argument.as_given or type(value) in _UNCHANGED else _python_numbers(argument, value)
    if argument.role is Role.hint:
        return value
    if argument.role is Role.random:
        return _draw(call, value)
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        value = _check_tensor(call, argument, value)
    if call.is_batch and not isinstance(value, int | float | Batch | str) and (rows := one_per_sample(call, argument, value)) is not None:
        return _from_operand(call, argument, rows, has_frames)
    if isinstance(value, Operand):
        return _from_operand(call, argument, value, has_frames)
    if isinstance(value, torch.Tensor | np.ndarray) and value.ndim:
        if isinstance(value, np.ndarray) and value.dtype.kind not in "biuf":
            raise _wrong_type(call, argument, value)
        return _rows(call, argument, _copy_values(value)[None], False)
    value = value.item() if isinstance(value, torch.Tensor | np.ndarray | np.generic) else value
    if argument.role is Role.shape:
        numbers = _numbers(call, argument, value)
        return numbers if argument.vector or not isinstance(numbers, list) else _single_number(call, argument, numbers)
    return _constant(call, argument, value)


def one_per_sample(call: Call, argument: Argument, value: Any) -> Batch | None:
    """Return a list, an array or a Tensor with one value per sample as a Batch; None if it may be a value for all samples.

    One value per sample means N numbers if the argument is a number, and N rows of at least two numbers if it is a vector.
    """
    # The batch size is compared last: in a graph it is a symbol, and each comparison becomes a condition of the graph.
    if argument.varying or argument.matrix:
        return None
    if isinstance(value, torch.Tensor):
        value = _check_tensor(call, argument, value)
    size = call.batch_size
    if isinstance(value, list | tuple):
        if len(value) < 2 or (argument.vector and not all(isinstance(row, list | tuple) and len(row) == len(value[0]) > 1 for row in value)):
            return None
        if len(value) != size:
            return None
        if _are_plain(argument, value):
            return new_batch(torch.tensor(value, dtype=_DTYPE[argument.element], device="cpu"))
        numbers = [list(row) if isinstance(row, tuple) else row for row in _numbers(call, argument, value)]
        try:
            return new_batch(torch.tensor(numbers, dtype=_DTYPE[argument.element], device="cpu"))
        except (TypeError, ValueError):  # rows of different lengths
            return None
    if isinstance(value, Operand):
        values = value.buffer
        if not _has_rows(argument, values.shape, size) or (value._layout or "").startswith("F"):
            return None
        return new_batch(values, None, None, value.pending, value.caller_owned)
    if isinstance(value, np.ndarray) and value.dtype.kind not in "biuf":
        return None
    if isinstance(value, torch.Tensor | np.ndarray) and _has_rows(argument, value.shape, size):
        return new_batch(_copy_values(value))
    return None


def _copy_values(values: torch.Tensor | np.ndarray) -> torch.Tensor:
    """Return a copy in host memory."""
    if isinstance(values, torch.Tensor):
        return values.detach().cpu().clone()
    # torch takes neither negative strides nor the byte order of another machine.
    return torch.from_numpy(np.array(values, values.dtype.newbyteorder("="), order="C"))


def _check_tensor(call: Call, argument: Argument, value: torch.Tensor) -> torch.Tensor:
    try:
        return check_values(value)
    except (RuntimeError, TypeError) as error:
        raise type(error)(f"{call.name}: {argument.name}: {error}") from None


def _are_plain(argument: Argument, values: Sequence[Any]) -> bool:
    """Return whether :func:`_numbers` would return equal numbers: they are of one built-in type that fits the argument."""
    if argument.vector:
        if any(len(row) != len(values[0]) for row in values):
            return False
        values = list(itertools.chain.from_iterable(values))
    kinds = set(map(type, values))
    if kinds == {float}:
        return argument.element is float or argument.element is Double
    limit = _LIMIT[argument.element]
    return kinds == {int} and -limit < min(values) and max(values) < limit


def _has_rows(argument: Argument, shape: Sequence[int], size: int) -> bool:
    return len(shape) == 1 + argument.vector and (not argument.vector or shape[1] > 1) and shape[0] > 1 and shape[0] == size


def _constant(call: Call, argument: Argument, value: Any) -> torch.Tensor:
    """Return a Python number or list of numbers as a tensor with one row. Tensors of earlier calls are reused: nothing writes to them."""
    number = isinstance(value, int | float)
    # 0.0 and -0.0 are equal, their repr() differs. With dynamic=True the defaults of a graph are symbols, which have none.
    key = (argument.element, None if call.compiling else value or repr(value) if number else _key(value))
    tensor = None if call.compiling else _constants.get(key)
    if tensor is None:
        numbers = _numbers(call, argument, value)
        try:
            tensor = torch.tensor([numbers] if number else numbers, dtype=_DTYPE[argument.element], device="cpu")
        except (TypeError, ValueError) as error:  # lists of different lengths
            raise type(error)(
                f"{call.name}: argument {argument.name!r} must be a number, or numbers in rows of equal length, got {value!r}"
            ) from None
        tensor = tensor.reshape(1) if number else tensor[None]
        if not call.compiling and key[1] is not None:
            if len(_constants) > 1000:
                _constants.clear()
            _constants[key] = tensor
        if call.compiling and number:
            call.numbers.append((tensor, value))
    return tensor if number else _rows(call, argument, tensor, False)


def _key(value: Any) -> tuple[Any, ...] | None:
    """Return a list of numbers as a key; None for anything else."""
    return tuple([x or repr(x) for x in value]) if isinstance(value, list | tuple) and all(type(x) in (int, float, bool) for x in value) else None


def _numbers(call: Call, argument: Argument, value: Any) -> Any:
    """Return checked Python numbers; a list stays a list, lists in it become tuples."""
    if isinstance(value, int | float | np.number | np.bool_) and not isinstance(value, np.complexfloating):
        number: Any = value.item() if isinstance(value, np.generic) else value
        if argument.element is int and not isinstance(value, int):
            if not float(value).is_integer():
                raise TypeError(f"{call.name}: argument {argument.name!r} takes integers, got {value!r}")
            number = int(value)
        if isinstance(number, int) and abs(number) >= _LIMIT[argument.element]:
            raise ValueError(f"{call.name}: argument {argument.name!r} is out of range: {value!r}")
        return number
    if isinstance(value, list | tuple | range):
        numbers = [_numbers(call, argument, x) for x in value]
        return [tuple(x) if isinstance(x, list) else x for x in numbers]
    raise _wrong_type(call, argument, value)


def _single_number(call: Call, argument: Argument, numbers: list[Any]) -> Any:
    if len(numbers) != 1 or isinstance(numbers[0], tuple):
        raise TypeError(f"{call.name}: argument {argument.name!r} takes one number per sample, got {numbers}{_per_sample_hint(call)}")
    return numbers[0]


def _per_sample_hint(call: Call) -> str:
    return f"; to pass a value for each of the {call.batch_size} samples, wrap them in ndd.batch(...)" if call.is_batch else ""


def _wrong_type(call: Call, argument: Argument, value: Any) -> Exception:
    name = "float" if argument.element is Double else argument.element.__name__
    wanted = f"{name} or a sequence of them" if argument.vector else name
    kind = ValueError if isinstance(value, str) else TypeError
    hint = "; filters are numbers: ndd.types.INTERP_LINEAR and its neighbors" if argument.name == "interp_type" else ""
    return kind(f"{call.name}: argument {argument.name!r} must be {wanted}, a Tensor or a Batch, got {value!r}{hint}")


def _from_operand(call: Call, argument: Argument, value: Operand, has_frames: bool) -> torch.Tensor:
    if value.buffer.device != CPU:
        value = value.cpu()  # type: ignore[attr-defined]
    is_read = argument.role is Role.shape or (isinstance(value, Batch) and value.ragged_shapes is not None) or value.caller_owned
    if is_read or takes_rounded(argument, value.buffer.dtype):
        value.wait()
    value = value.settle()
    call.read(value)
    if not isinstance(value, Batch):
        values = value.buffer[None]
    elif value.ragged_shapes is None:
        values = value.buffer
    else:
        values = _even_rows(call, argument, value, has_frames)
    if value.caller_owned:
        values = values.clone()
    marked = (value._layout or "").startswith("F")
    per_frame = has_frames and marked
    if not argument.vector and not has_frames and marked:
        raise RuntimeError(f"{call.name}: argument {argument.name!r} is per-frame, but input 0 has no frame axis")
    if per_frame:
        call.agree(f"argument {argument.name!r}", value.frame_counts() if isinstance(value, Batch) else values.shape[1])
    if per_frame and argument.vector and values.dim() == 2:
        values = values[..., None]  # (rows, frames, 1): one number for all elements, as opposed to one per element
    return _rows(call, argument, values.contiguous(), per_frame)


def _even_rows(call: Call, argument: Argument, value: Batch, has_frames: bool) -> torch.Tensor:
    """Return the rows of a ragged argument as a tensor, padded to the longest row: the last value of each is repeated."""
    rows = [sample.buffer for sample in value]
    if not rows:
        return value.buffer.reshape(0, 1)
    if argument.varying and not (has_frames and (value._layout or "").startswith("F")):
        return _pad_rows(argument, rows)
    longest = max(len(row) for row in rows)
    per_frame = has_frames and (value._layout or "").startswith("F")
    if not per_frame or any(row.shape[1:] != rows[0].shape[1:] or not len(row) for row in rows):
        raise RuntimeError(f"{call.name}: argument {argument.name!r} has samples of different shape: {value.shape}")
    if longest > 1 and call.frames is not None:
        # A single value is for all frames of its sample, which can have more of them than any row has values.
        longest = max(longest, int(torch.as_tensor(call.frames).max()))
    return torch.stack([torch.cat([row, row[-1:].expand(longest - len(row), *row.shape[1:])]) for row in rows])


def _pad_rows(argument: Argument, rows: list[torch.Tensor]) -> torch.Tensor:
    dtype, nothing = (torch.float32, float("nan")) if argument.element is float else (torch.int32, NO_VALUE)
    filled = torch.full((len(rows), max(row.numel() for row in rows)), nothing, dtype=dtype)
    for k, row in enumerate(rows):
        filled[k, : row.numel()] = (round_numbers(row) if dtype is torch.int32 and row.is_floating_point() else row).flatten()
    return filled


def _rows(call: Call, argument: Argument, values: torch.Tensor, per_frame: bool) -> torch.Tensor:
    if not argument.vector and values[0:1].numel() != min(1, len(values)) and not (per_frame and values.numel()):
        shape = tuple(values.shape[1:])
        raise ValueError(
            f"{call.name}: argument {argument.name!r} takes one number per sample, got an array of shape {shape}{_per_sample_hint(call)}"
        )
    stacked = len(values) > 0 and values.dim() > (3 if argument.matrix else 2)
    if stacked and not argument.matrix:
        stacked = values[0].numel() not in values.shape[1:]  # a single row or column counts as one-dimensional
    if stacked and argument.vector and not argument.varying and not per_frame:
        raise RuntimeError(
            f"{call.name}: argument {argument.name!r} takes {'a matrix' if argument.matrix else 'numbers in one dimension'} per sample, got an "
            f"array of shape {tuple(values.shape[1:])}; values for the frames of a sequence are marked with per_frame{_per_sample_hint(call)}"
        )
    if call.per_frame and argument.vector and not per_frame and values.dim() > 2:
        values = values.flatten(1)
    if argument.role is Role.per_sample and not values.numel() and len(values):
        raise RuntimeError(f"{call.name}: argument {argument.name!r} has no values")
    if values.dtype not in types.NUMERIC:
        raise TypeError(f"{call.name}: argument {argument.name!r} cannot be of type {values.dtype}")
    return round_numbers(values) if takes_rounded(argument, values.dtype) else values


def takes_rounded(argument: Argument, dtype: torch.dtype) -> bool:
    """Return whether bodies get :func:`round_numbers` of an argument that is given as numbers of this type."""
    return argument.element is int and not argument.positional and dtype.is_floating_point


_round_natively = native.c_function("ndd_round_numbers")


def round_numbers(values: torch.Tensor) -> torch.Tensor:
    """Return fractions as integers of 32 bits, as ``cast`` does, in int64. One rule for all operators."""
    dtype = _FRACTIONS.get(values.dtype)
    if dtype is not None and values.is_cpu and values.is_contiguous() and not is_compiling():
        # With operators of torch 16 numbers take 17 us instead of 2.
        rounded = torch.empty(values.shape, dtype=torch.int64)
        _round_natively(values.data_ptr(), dtype, values.numel(), rounded.data_ptr())
        return rounded
    return round_half_away(values.to(torch.float64).clamp(-(2.0**31), 2.0**31 - 1))


_FRACTIONS = {dtype: native.DTYPE_NUMBERS[dtype] for dtype in (torch.float32, torch.float64)}


def round_half_away(values: torch.Tensor) -> torch.Tensor:
    """Return the nearest integers, int64; halves are rounded away from zero, where torch.round chooses even ones."""
    return (torch.sign(values) * (values.abs() + 0.5).floor()).to(torch.int64)


def _draw(call: Call, rng: Any) -> torch.Tensor:
    if not call.compiling:
        return draw_words(call.name, rng)
    _check_generator(call.name, rng)  # a Python generator would be drawn from once, while tracing
    return compiled_draw(rng, WORDS_PER_CALL)


def draw_words(op: str, rng: Any) -> torch.Tensor:
    """Return the words of an eager call, from the argument ``rng`` of an operator."""
    if is_jit_tracing():
        raise RuntimeError(f"{op}: torch.jit.trace would store the random numbers of this call in the program; use torch.export")
    _check_generator(op, rng)
    return (get_default_rng() if rng is None else rng).draw(WORDS_PER_CALL)


def _check_generator(op: str, rng: Any) -> None:
    if rng is not None and not isinstance(rng, RNG):
        raise ValueError(f"{op}: rng must be an instance of random.RNG, but got {type(rng).__name__}")
