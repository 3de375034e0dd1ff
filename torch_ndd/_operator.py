# SPDX-License-Identifier: Apache-2.0
"""``@operator``: from a handwritten function to an operator on tensors and batches.

The function's signature is the schema of ``torch.ops.ndd.<name>``, its body allocates the output. The decorator adds everything else: it decides
between Tensor and Batch, packs per-sample arguments, checks layouts, moves inputs, queues the kernel on the CPU stream and keeps what is pending.
"""

import difflib
import enum
import functools
import inspect
import numbers
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, overload

import numpy as np
import torch

from . import _native, types
from ._batch import Batch, new_batch
from ._rng import RNG, get_default_rng
from ._stream import EvalMode, Pending, current_mode, finish_call
from ._tensor import SAME_SAMPLE, DeviceLike, Operand, Tensor, as_tensor, new_tensor, torch_device

T = TypeVar("T", Tensor, Batch)
F = TypeVar("F", bound=Callable[..., Any])
X = TypeVar("X")


class Role(enum.Enum):
    """What the decorator does with a parameter."""

    per_sample = enum.auto()
    shape = enum.auto()
    hint = enum.auto()
    random = enum.auto()
    plain = enum.auto()  # int, float, bool, str: goes to the kernel as it is
    body = enum.auto()  # anything else: for the body only


# A value for all samples, a Tensor for all or a Batch with one for each. The body and the kernel see a CPU tensor with one row or N.
PerSample = Annotated[X | Any, Role.per_sample]
# The same where the size of the output depends on it: the body gets Python numbers as they are and tensors (rows, columns) with their values.
ShapeArg = Annotated[X | Any, Role.shape]
# Accepted for DALI's sake, without effect.
Hint = Annotated[X, Role.hint]
# A generator; the body and the kernel see an int64 tensor with the seven words that a call draws.
Random = Annotated[RNG | None, Role.random]

WORDS_PER_CALL = 7


@dataclass
class Launch:
    """What a body returns when the kernel's arguments are not its own: the outputs, the kernel's arguments, results that need no kernel, inputs
    that take the place of the call's, and whether the operator's formula holds for these arguments."""

    out: Batch | tuple[Batch, ...]
    args: Sequence[Any] = ()
    also: tuple[Batch, ...] = ()
    inputs: tuple[Batch, ...] = ()
    fusable: bool = True


@dataclass(frozen=True)
class Argument:
    """A keyword parameter."""

    name: str
    role: Role
    schema: str | None  # type in the kernel's schema, if it is part of it
    element: type  # bool, int or float
    vector: bool  # several numbers make one value


@dataclass
class Operator:
    """A decorated function and what was derived from it."""

    name: str
    body: Callable[..., Any]
    layouts: tuple[str, ...] | None
    formula: Callable[..., torch.Tensor | None] | None
    inputs: int
    required: int
    arguments: dict[str, Argument]
    kernel: Any  # torch.ops.ndd.<name>.default
    defaults: dict[str, Any] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    packed: tuple[Argument, ...] = ()  # those that Python prepares
    reads_values: bool = False


OPERATORS: dict[str, Operator] = {}  # by public name; the tests go through it

_TAIL = ("batch_size", "device")  # parameters that every operator has
_SCHEMA = {int: "int", float: "float", bool: "bool", str: "str"}


def _argument(parameter: inspect.Parameter, hint: Any) -> Argument:
    optional = type(None) in typing.get_args(hint)
    role, inner = Role.plain, hint
    for part in (hint, *typing.get_args(hint)):
        if isinstance(found := (getattr(part, "__metadata__", None) or (None,))[0], Role):
            role, inner = found, typing.get_args(part)[0]
    members = [m for m in typing.get_args(inner) or (inner,) if m is not Any and m is not type(None)]
    kinds = [typing.get_origin(m) or m for m in members]
    vector = any(kind is Sequence for kind in kinds)
    flat = {k for m in members for k in ((typing.get_args(m) or (m,)) if typing.get_origin(m) is Sequence else (m,))}
    element = bool if bool in flat else float if float in flat else int
    if role is Role.per_sample:
        return Argument(parameter.name, role, "Tensor?" if parameter.default is None else "Tensor", element, vector)
    if role is Role.random:
        return Argument(parameter.name, role, "Tensor", int, False)
    if role is not Role.plain:
        return Argument(parameter.name, role, None, element, vector)
    kind = members[0] if len(members) == 1 and not vector else None
    schema = None
    if isinstance(kind, type) and parameter.default is not None and not optional:
        schema = "int" if issubclass(kind, enum.IntEnum) else _SCHEMA.get(kind)
    return Argument(parameter.name, Role.plain if schema else Role.body, schema, element, vector)


@overload
def operator(function: F) -> F: ...
@overload
def operator(
    *,
    name: str | None = None,
    layouts: tuple[str, ...] | None = None,
    kernel: str | None = None,
    outputs: int = 1,
    formula: Callable[..., torch.Tensor | None] | None = None,
    reads_values: bool = False,
) -> Callable[[F], F]: ...
def operator(
    function: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    layouts: tuple[str, ...] | None = None,
    kernel: str | None = None,
    outputs: int = 1,
    formula: Callable[..., torch.Tensor | None] | None = None,
    reads_values: bool = False,
) -> Any:
    """Make an operator of a function ``f(input, /, *, batch_size=None, device=None, <arguments>)`` whose body allocates the output.

    Args:
        name: Public name where it is not the function's: ``reductions.mean``.
        layouts: Layouts that the first input may have; one without a layout gets the first of them with its number of dimensions.
        kernel: Schema of the kernel's arguments, where they are not the function's; the body then returns a :class:`Launch`.
        outputs: How many buffers the kernel fills.
        formula: The same in torch operations, for ``torch.compile`` on dense input: ``formula(input, *kernel arguments, dtype)``;
            None where it has none for these types.
        reads_values: The body reads the inputs' values, so the call waits for them.
    """
    if function is None:
        return lambda f: _make(f, name or f.__name__, layouts, kernel, outputs, formula, reads_values)
    return _make(function, function.__name__, layouts, kernel, outputs, formula, reads_values)


def _make(
    function: Callable[..., Any],
    name: str,
    layouts: tuple[str, ...] | None,
    kernel: str | None,
    outputs: int,
    formula: Callable[..., torch.Tensor | None] | None,
    reads_values: bool,
) -> Callable[..., Any]:
    parameters = inspect.signature(function).parameters.values()
    hints = typing.get_type_hints(function, include_extras=True)
    inputs = [p for p in parameters if p.kind is p.POSITIONAL_ONLY]
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in _TAIL]
    arguments = {p.name: _argument(p, hints[p.name]) for p in keywords}

    schema = [(t, p.name + suffix) for p in inputs for t, suffix in (("Tensor?" if p.default is None else "Tensor", ""), ("Tensor?", "_shapes"))]
    if kernel is None:
        schema += [(a.schema, a.name) for a in arguments.values() if a.schema]
    else:
        schema += [(t, n) for t, n in (part.split() for part in kernel.split(",") if part.strip())]
    for k in range(outputs):
        suffix = "" if outputs == 1 else str(k)
        schema += [(f"Tensor({chr(97 + k)}!)", "out" + suffix), ("Tensor?", f"out{suffix}_shapes")]
    made = Operator(
        name,
        function,
        layouts,
        formula,
        len(inputs),
        sum(p.default is p.empty for p in inputs),
        arguments,
        _native.define(name.replace(".", "_"), schema),
        {p.name: p.default for p in keywords if p.default is not p.empty},
        frozenset(p.name for p in keywords if p.default is p.empty),
        tuple(a for a in arguments.values() if a.role in (Role.per_sample, Role.shape, Role.random) or a.name == "dtype"),
        reads_values=reads_values,
    )
    made.defaults.update(dict.fromkeys(made.missing))
    automatic = None if kernel is not None else tuple(a.name for a in arguments.values() if a.schema)
    OPERATORS[name] = made

    @functools.wraps(function)
    def call(*inputs: Any, **given: Any) -> Any:
        return _call(made, automatic, inputs, given)

    call.__module__ = _public_module(name)
    call.__name__ = call.__qualname__ = name.rpartition(".")[2]
    return call


def _public_module(name: str) -> str:
    return ".".join(("torch_ndd", *name.split(".")[:-1]))


class _Call:
    """One call while it is being made."""

    __slots__ = ("batch_size", "compiling", "external", "is_batch", "name", "reads")

    def __init__(self, name: str) -> None:
        self.name = name
        self.batch_size = 1
        self.is_batch = False
        self.external = False
        self.compiling = torch.compiler.is_compiling()
        self.reads: list[tuple[Pending, int]] = []

    def join(self, value: Batch) -> None:
        """Take part in the call with a Batch."""
        size = value.batch_size
        if self.is_batch and size != self.batch_size:
            raise ValueError(f"{self.name}: Inconsistent batch size: {self.batch_size} != {size}")
        self.is_batch, self.batch_size = True, size

    def read(self, value: Operand) -> None:
        """Depend on a value that may be pending."""
        pending = value._pending
        if pending is not None:
            if pending.done():
                value._pending = None
            else:
                self.reads.append((pending, value._sample if isinstance(value, Tensor) else SAME_SAMPLE))


def _call(op: Operator, automatic: tuple[str, ...] | None, inputs: tuple[Any, ...], given: dict[str, Any]) -> Any:
    if not op.required <= len(inputs) <= op.inputs:
        expected = str(op.inputs) if op.required == op.inputs else f"{op.required} to {op.inputs}"
        raise TypeError(f"{op.name}() takes {expected} positional inputs, got {len(inputs)}")
    batch_size, device = given.pop("batch_size", None), given.pop("device", None)
    arguments = op.defaults
    if given:
        unknown = [key for key in given if key not in arguments]
        if unknown:
            raise TypeError(f"{op.name}() got an unexpected argument {unknown[0]!r}{_similar(unknown[0], [*arguments, *_TAIL])}")
        arguments = {**arguments, **{key: value for key, value in given.items() if value is not None}}
    for key in op.missing:
        if arguments[key] is None:
            raise TypeError(f"{op.name}() needs the argument {key!r}")

    state = _Call(op.name)
    values = [one if isinstance(one, Operand) else _as_input(op.name, k, one, k < op.required) for k, one in enumerate(inputs)]
    for value in (*values, *given.values()):
        if isinstance(value, Batch):
            state.join(value)
    if batch_size is not None:
        _set_batch_size(state, batch_size)
    target = _target_device(op.name, values, device)
    if op.reads_values:
        for value in values:
            if value is not None:
                value._ready()
    batches = [None if value is None else _as_batch(state, value, target) for value in values]
    if op.layouts is not None and batches and batches[0] is not None:
        batches[0] = _with_layout(op, batches[0])
    for key, value in given.items():
        if op.arguments[key].role is Role.plain and value is not None:
            arguments[key] = _plain(state, op.arguments[key], value)
    if op.packed:
        arguments = dict(arguments)
        has_frames = len(batches) > 0 and batches[0] is not None and (batches[0]._layout or "").startswith("F")
        for argument in op.packed:
            if arguments[argument.name] is not None or argument.role is Role.random:
                arguments[argument.name] = _prepare(state, argument, arguments[argument.name], has_frames)
    if not op.inputs or not op.required:
        arguments = {**arguments, "batch_size": state.batch_size, "device": target}

    launch = op.body(*batches, **arguments)
    if isinstance(launch, Batch):
        assert automatic is not None
        launch = Launch(launch, [arguments[key] for key in automatic])
    batches = launch.inputs or batches
    outs = launch.out if isinstance(launch.out, tuple) else (launch.out,)
    computed = None
    if state.compiling and op.formula is not None and launch.fusable and all(b is None or b._shapes is None for b in (*batches, *outs)):
        computed = op.formula(*(b and b._values for b in batches), *launch.args, dtype=outs[0].dtype)
    if computed is not None:
        outs = (new_batch(computed, None, outs[0].layout),)
        pending = None
    else:
        padding = [None] * (op.inputs - len(batches))
        tensors = [x for b in (*batches, *padding) for x in ((None, None) if b is None else (b._values, b._shapes))]
        filled = [x for out in outs for x in (out._values, out._shapes)]
        pending = _run(op, state, target, (*tensors, *launch.args, *filled))
    for out in outs:
        out._pending = pending
    results = [out if state.is_batch else _single(out) for out in (*outs, *launch.also)]
    return results[0] if len(results) == 1 else tuple(results)


def _run(op: Operator, state: _Call, target: torch.device, arguments: Sequence[Any]) -> Pending | None:
    """The kernel: queued on the CPU stream, launched on CUDA's current stream, or a node of the graph that is being traced."""
    if state.compiling:
        op.kernel(*arguments)
        return None
    if target.type != "cpu":
        op.kernel(*arguments)
        if current_mode() == EvalMode.sync_full:
            torch.cuda.synchronize(target)
        return None
    return queue(op.kernel, arguments, state.reads, state.external)


def queue(kernel: Callable[..., Any], arguments: Sequence[Any], reads: Sequence[tuple[Pending, int]], external: bool) -> Pending | None:
    """Run a CPU kernel as the evaluation mode says: its pending work, or None when it is done.

    ``external``: memory of the user is read, who may overwrite it after the call.
    """
    mode = EvalMode.sync_cpu if external else current_mode()
    native = 3 if mode >= EvalMode.sync_cpu else mode
    if reads:
        _native.begin(native, reads[0][0].handle, reads[0][1])
        for pending, sample in reads[1:]:
            _native.depend(pending.handle, sample)
    else:
        _native.begin(native, None, 0)
    try:
        kernel(*arguments)
    except BaseException:
        _native.release(_native.end() & ~1)
        raise
    return finish_call(mode, [pending for pending, _ in reads])


def _single(out: Batch) -> Tensor:
    values = out._values[0] if out._shapes is None else out._values.view(out._shapes[0].tolist())
    made = new_tensor(values, out._layout, out._pending)
    if out._sources:
        made._sources = out._sources
    return made


def _similar(name: str, names: Sequence[str]) -> str:
    close = [one for one in (name.rstrip("_"),) if one in names] or difflib.get_close_matches(name, names, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _as_input(op: str, position: int, value: Any, required: bool) -> Tensor | None:
    if value is None:
        if required:
            raise TypeError(f"{op}: input {position} must be a Tensor, a Batch or an array, got None")
        return None
    try:
        return as_tensor(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{op}: input {position}: {error}") from None


def _set_batch_size(state: _Call, batch_size: Any) -> None:
    if isinstance(batch_size, bool) or not isinstance(batch_size, numbers.Integral):
        raise TypeError(f"{state.name}: batch_size must be an int, got {batch_size!r}")
    if batch_size < 0:
        raise ValueError(f"{state.name}: batch_size must not be negative, got {batch_size}")
    if state.is_batch and state.batch_size != batch_size:
        raise ValueError(f"{state.name}: batch_size={batch_size}, but a Batch of {state.batch_size} samples was given: Inconsistent batch size")
    state.is_batch, state.batch_size = True, int(batch_size)


def _target_device(op: str, values: Sequence[Operand | None], device: DeviceLike | None) -> torch.device:
    if device is not None:
        try:
            target = torch_device(device)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{op}: {error}") from None
        if target.type == "cuda" and not torch.cuda.is_available():
            raise RuntimeError(f'{op}: device="{device}", but this machine has no usable GPU')
        return target
    for value in values:
        if value is not None and value._values.device.type != "cpu":
            return value._values.device
    return torch.device("cpu")


def _as_batch(state: _Call, value: Operand, target: torch.device) -> Batch:
    """An input as the body sees it: a Batch with the call's number of samples, on the call's device."""
    state.external = state.external or value._external
    if value._values.device != target:
        value = value.to_device(target)  # type: ignore[attr-defined]
    state.read(value)
    if isinstance(value, Batch):
        return value
    values = value._values
    if state.is_batch:
        value._ready()
        made = new_batch(values.expand(state.batch_size, *values.shape).contiguous(), None, value._layout)
    else:
        made = new_batch(values[None], None, value._layout)
    made._sources = tuple(value._sources) * state.batch_size
    return made


def _with_layout(op: Operator, value: Batch) -> Batch:
    assert op.layouts is not None
    if value._layout is not None:
        if value._layout not in op.layouts:
            raise ValueError(f'{op.name}: The layout "{value._layout}" does not match any of the allowed layouts: {", ".join(op.layouts)}')
        return value
    layout = next((one for one in op.layouts if len(one) == value.ndim), None)
    if layout is None:
        raise ValueError(f"{op.name}: The number of dimensions {value.ndim} does not match any of the allowed layouts: {', '.join(op.layouts)}")
    return new_batch(value._values, value._shapes, layout, value._pending, value._external)


_DTYPE = {bool: torch.bool, int: torch.int32, float: torch.float32}
_constants: dict[tuple[Any, ...], torch.Tensor] = {}


_PLAIN: dict[str | None, tuple[type, ...]] = {
    "bool": (bool, int, np.bool_),
    "int": (int, np.integer),
    "float": (float, int, np.number),
    "str": (str,),
}


def _plain(state: _Call, argument: Argument, value: Any) -> Any:
    """A value for the kernel as it is."""
    if not isinstance(value, _PLAIN[argument.schema]):
        if argument.schema != "int" or not isinstance(value, float) or not value.is_integer():
            raise TypeError(f"{state.name}: argument {argument.name!r} must be {argument.schema}, got {value!r}")
        return int(value)
    return value.item() if isinstance(value, np.generic) else bool(value) if argument.schema == "bool" else value


def _prepare(state: _Call, argument: Argument, value: Any, has_frames: bool) -> Any:
    if argument.name == "dtype":
        try:
            return None if value is None else types.to_dtype(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{state.name}: dtype: {error}") from None
    if argument.role is Role.random:
        return _draw(state, value)
    if value is None:
        return None
    if isinstance(value, Operand):
        return _from_operand(state, argument, value, has_frames)
    if isinstance(value, torch.Tensor | np.ndarray) and value.ndim:
        return _rows(state, argument, torch.as_tensor(value).detach().cpu().clone()[None], has_frames)
    value = value.item() if isinstance(value, torch.Tensor | np.ndarray | np.generic) else value
    if argument.role is Role.shape:
        return _numbers(state, argument, value)
    return _constant(state, argument, value)


def _constant(state: _Call, argument: Argument, value: Any) -> torch.Tensor:
    """A Python number or list of numbers as a tensor with one row. Tensors of earlier calls are used again: they are never written."""
    number = isinstance(value, int | float)
    key = (argument.element, value if number else _key(value))
    made = None if state.compiling else _constants.get(key)
    if made is None:
        plain = _numbers(state, argument, value)
        made = torch.tensor([plain] if number else plain, dtype=_DTYPE[argument.element])
        made = made.reshape(1) if number else made[None]
        if not state.compiling and key[1] is not None:
            if len(_constants) > 1000:
                _constants.clear()
            _constants[key] = made
    return made if number else _rows(state, argument, made, False)


def _key(value: Any) -> tuple[Any, ...] | None:
    """A list of numbers as a key; None when it is something else."""
    return tuple(value) if isinstance(value, list | tuple) and all(type(x) in (int, float, bool) for x in value) else None


def _numbers(state: _Call, argument: Argument, value: Any) -> Any:
    """Python numbers, checked."""
    if isinstance(value, int | float | np.number | np.bool_):
        if argument.element is int and not float(value).is_integer():
            raise TypeError(f"{state.name}: argument {argument.name!r} takes integers, got {value!r}")
        return value
    if isinstance(value, list | tuple | range):
        return [_numbers(state, argument, x) for x in value]
    raise _wrong_type(state, argument, value)


def _wrong_type(state: _Call, argument: Argument, value: Any) -> Exception:
    wanted = f"{argument.element.__name__} or a sequence of them" if argument.vector else argument.element.__name__
    kind = ValueError if isinstance(value, str) else TypeError
    return kind(f"{state.name}: argument {argument.name!r} must be {wanted}, a Tensor or a Batch, got {value!r}")


def _from_operand(state: _Call, argument: Argument, value: Operand, has_frames: bool) -> torch.Tensor:
    if value._values.device.type != "cpu":
        value = value.cpu()  # type: ignore[attr-defined]
    if argument.role is Role.shape or (isinstance(value, Batch) and value._shapes is not None) or value._external:
        value._ready()
    state.read(value)
    if not isinstance(value, Batch):
        values = value._values[None]
    elif value._shapes is None:
        values = value._values
    else:
        values = _even_rows(state, argument, value)
    if value._external:
        values = values.clone()
    per_frame = has_frames and (value._layout or "").startswith("F")
    if per_frame and argument.vector and values.dim() == 2:
        values = values[..., None]  # (rows, frames, 1): one number for all elements, told from one number per element
    return _rows(state, argument, values.contiguous(), per_frame)


def _even_rows(state: _Call, argument: Argument, value: Batch) -> torch.Tensor:
    """Per-frame arguments of sequences with different lengths: the rows are filled up with their last value, which no frame reads."""
    rows = [one._values for one in value]
    longest = max(len(row) for row in rows)
    if any(row.shape[1:] != rows[0].shape[1:] or not len(row) for row in rows):
        raise ValueError(f"{state.name}: argument {argument.name!r} has samples of different shape: {value.shape}")
    return torch.stack([torch.cat([row, row[-1:].expand(longest - len(row), *row.shape[1:])]) for row in rows])


def _rows(state: _Call, argument: Argument, values: torch.Tensor, per_frame: bool) -> torch.Tensor:
    if not argument.vector and not per_frame and values[0:1].numel() != min(1, len(values)):
        raise ValueError(f"{state.name}: argument {argument.name!r} takes one number per sample, got an array of shape {tuple(values.shape[1:])}")
    if values.dtype not in types.NUMERIC:
        raise TypeError(f"{state.name}: argument {argument.name!r} cannot be of type {values.dtype}")
    return values


def _draw(state: _Call, rng: Any) -> torch.Tensor:
    if state.compiling:  # a Python generator would be drawn from once, while tracing
        if rng is not None:
            raise TypeError(f"{state.name}: rng= cannot be used under torch.compile; the graph draws from torch's generator")
        return torch.randint(0, 2**32, (WORDS_PER_CALL,), dtype=torch.int64)
    if rng is None:
        rng = get_default_rng()
    elif not isinstance(rng, RNG):
        raise ValueError(f"{state.name}: rng must be an instance of random.RNG, but got {type(rng).__name__}")
    return rng.draw(WORDS_PER_CALL)
