# SPDX-License-Identifier: Apache-2.0
"""Operations that run the operators and readers of :mod:`torch_ndd`, and nodes of arithmetic, indexing, shapes, constants and copies."""

import enum
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._core import arithmetic as core_arithmetic
from .._core.batch import Batch, new_batch
from .._core.call import Prepared
from .._core.definition import Operator
from .._core.device import gpu_count
from .._core.elementwise import label
from .._core.operand import Operand
from .._core.rng import RNG, WORDS_PER_CALL
from .._core.states import checked, keys, whole
from .._core.tensor import new_tensor
from ..types import to_dtype, type_id
from . import types
from ._graph import Operation, Step, create
from .data_node import DataNode, NewAxis

if TYPE_CHECKING:
    from .pipeline import Pipeline

_warned_of_no_gpu = False
_STATE = keys(seed=whole(-(2**63), 2**64 - 1))


def target_device(operation: Operation, pipeline: "Pipeline") -> str | None:
    """Return the device that an operation's results are made on: None to decide by its inputs, which is the CPU on a machine without a GPU."""
    global _warned_of_no_gpu
    if operation.device == "cpu":
        return "cpu" if gpu_count() else None
    if not gpu_count():
        if not _warned_of_no_gpu:
            _warned_of_no_gpu = True
            warnings.warn("torch_ndd.dali: there is no GPU: operators for it run on the CPU", RuntimeWarning, stacklevel=2)
        return None
    return "gpu" if pipeline.device_id is None else f"gpu:{pipeline.device_id}"


def on_device(batches: Sequence[Batch], target: str | None) -> tuple[Batch, ...]:
    """Return batches on a device; None leaves them where they are."""
    return tuple(batches) if target is None else tuple(one.to_device(target) for one in batches)


# A draw takes 25 us when the caches are cold. The words of so many iterations are drawn at a time.
_DRAWN_AT_ONCE = 64


class RandomState(Operation):
    """An operation whose random numbers follow from its seed and the number of the iteration."""

    _generator: RNG | None = None
    _drawn: tuple[int, Sequence[torch.Tensor]] = (-1, ())  # the words of some iterations in a row, and the number of that row

    def _numbers(self, step: Step) -> RNG:
        """Return the generator at the position of an iteration."""
        if self._generator is None:
            assert self.seed is not None
            self._generator = RNG(self.seed)
        self._generator._position = step.number * WORDS_PER_CALL
        return self._generator

    def _words(self, step: Step) -> torch.Tensor:
        """Return what an operator draws from :meth:`_numbers`."""
        block, place = divmod(step.number, _DRAWN_AT_ONCE)
        if self._drawn[0] != block:
            generator = self._numbers(step)
            generator._position = block * _DRAWN_AT_ONCE * WORDS_PER_CALL
            words = generator.draw(_DRAWN_AT_ONCE * WORDS_PER_CALL)
            self._drawn = block, words.view(_DRAWN_AT_ONCE, WORDS_PER_CALL).unbind()
        return self._drawn[1][place]

    def state_dict(self) -> dict[str, Any] | None:
        """Return the seed."""
        return {"seed": self.seed} if self.random else None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the seed."""
        self.seed = checked(self.title, _STATE, state)["seed"]
        self._generator, self._drawn = None, (-1, ())


class OperatorOperation(RandomState):
    """An operator of :mod:`torch_ndd`. ``call`` is its definition, or a function with the same parameters."""

    call: Any
    missing: Sequence[str] = ()  # required arguments that were not given
    sized: bool = False  # its input only tells the batch size: that of a branch

    def prepare(self, pipeline: "Pipeline") -> None:
        """Bind everything that is the same in every iteration."""
        if self.missing:
            raise RuntimeError(f"{self.title}: the argument {self.missing[0]!r} is required")
        self._prepared = Prepared(self.call, self.constants) if isinstance(self.call, Operator) else None
        self._device = target_device(self, pipeline)
        self._given = dict(self.constants) if self._device is None else {**self.constants, "device": self._device}
        self._generator, self._drawn = None, (-1, ())
        self._sizeless = not self.inputs and not self.arguments  # the batch size is that of the iteration

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Call the operator."""
        size = step.batch_size if self._sizeless else None
        if self.sized:
            size, inputs = inputs[0].batch_size, []
        if self._prepared is not None:
            words = self._words(step) if self.random else None
            result = self._prepared(inputs, arguments, words=words, batch_size=size, device=self._device)
        else:
            given = {**self._given, **arguments}
            if size is not None:
                given["batch_size"] = size
            if self.random:
                given["rng"] = self._numbers(step)
            result = self.call(*inputs, **given)
        return result if type(result) is tuple else (result,)


class ReaderOperation(Operation):
    """A reader of :mod:`torch_ndd`, which gives full batches without end."""

    random = True  # readers shuffle
    call: Any  # its class
    reader: Any = None

    def prepare(self, pipeline: "Pipeline") -> None:
        """Create the reader and find its samples, so that their errors are those of building."""
        self._size = pipeline.max_batch_size
        self._target = target_device(self, pipeline)
        constants = dict(self.constants)
        lazy = constants.get("lazy_init")
        constants["seed"] = self.seed
        self.reader = self.call(max_batch_size=self._size, **constants)
        if not lazy:
            with self.reader._lock:
                self.reader._prepared()

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Read a batch."""
        if step.batch_size != self._size:
            raise RuntimeError(f"Batch size clash: the inputs of this iteration have {step.batch_size} samples, but readers give {self._size}")
        for key, one in arguments.items():
            if one.batch_size != self._size:
                raise RuntimeError(f"Batch size clash: the argument {key!r} has {one.batch_size} samples, but readers give {self._size}")
        outputs = self.reader(batch_size=self._size, **arguments)
        return on_device(tuple(outputs.values()) if isinstance(outputs, dict) else outputs, self._target)

    def state_dict(self) -> dict[str, Any] | None:
        """Return the reader's position and seed."""
        return {"seed": self.seed, "reader": self.reader.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the reader's position."""
        if not isinstance(state, dict) or set(state) != {"seed", "reader"}:
            raise ValueError(f"{self.title}: not a state of a reader: {state!r:.100}")
        self.seed = whole(-(2**63), 2**64 - 1)(state["seed"], f"{self.title}: seed")
        self.reader.load_state_dict(state["reader"])


class ConstantOperation(Operation):
    """The same value in every sample."""

    value: torch.Tensor
    layout: str | None = None

    def prepare(self, pipeline: "Pipeline") -> None:
        """Place the value."""
        self._target = target_device(self, pipeline)

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Repeat the value: in new memory, because the user may write to outputs."""
        values = self.value.expand(step.batch_size, *self.value.shape).clone(memory_format=torch.contiguous_format)
        return on_device((new_batch(values, None, self.layout),), self._target)


class ArithmeticOperation(Operation):
    """An operation on elements. ``operands`` has None in the places of nodes."""

    operation: str
    operands: tuple[Any, ...]

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Compute the operation."""
        nodes = iter(inputs)
        result = core_arithmetic.arithmetic(self.operation, *(next(nodes) if one is None else one for one in self.operands))
        if result is NotImplemented:
            raise TypeError(f"{self.title}: unsupported operands")
        return (result,)


def _filled(part: Any, indices: Iterator[Batch]) -> Any:
    """Return a part of an index with the values of the nodes in it."""
    if isinstance(part, slice):
        return slice(_filled(part.start, indices), _filled(part.stop, indices), _filled(part.step, indices))
    return _scalar(next(indices)) if isinstance(part, DataNode) else part


class SubscriptOperation(Operation):
    """Indexing of samples. ``key`` has DataNodes, which stand for the inputs after the first one."""

    key: tuple[Any, ...]
    new_axes: tuple[int, ...] = ()  # positions in the result
    new_letters: str | None = None

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Take a part of every sample."""
        indices = iter(inputs[1:])
        keys_ = tuple(_filled(part, indices) for part in self.key)
        try:
            taken = inputs[0].slice[keys_] if keys_ else inputs[0]
        except (IndexError, TypeError) as error:  # one kind for all faults of data
            raise RuntimeError(str(error)) from error
        if self.new_axes:
            from .. import expand_dims

            letters: Any = self.new_letters if taken.layout is not None or not taken.ndim else None
            taken = expand_dims(taken, axes=list(self.new_axes), new_axis_names=letters)
        return (taken,)


def _scalar(batch: Batch) -> Batch:
    """Return indices with one value in each sample as numbers."""
    if batch.ndim and batch._shapes is None and batch._values[0].numel() == 1:
        return new_batch(batch._ready().reshape(-1))
    return batch


class ShapesOperation(Operation):
    """The shapes of samples."""

    dtype: torch.dtype

    def prepare(self, pipeline: "Pipeline") -> None:
        """Place the result."""
        self._target = target_device(self, pipeline)

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Return the shapes, which are known before the values."""
        extents = inputs[0]._extents().contiguous().clone()
        return on_device((new_batch(extents.to(self.dtype)),), self._target)


class MoveOperation(Operation):
    """A copy to another device; nothing where there is no GPU."""

    def prepare(self, pipeline: "Pipeline") -> None:
        """Find the device."""
        self._target = target_device(self, pipeline)

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Copy the batch."""
        return on_device(inputs, self._target)


def moved(node: DataNode, device: str) -> DataNode:
    """Return a node's values on another device."""
    return create(MoveOperation, "Copy", [node], schema=f"move.{device}", title=f"DataNode.{device}", device=device)[0]


def shapes(node: DataNode, dtype: Any = None, device: str = "cpu", title: str = "DataNode.shape", kind: str = "_Shape", **options: Any) -> DataNode:
    """Return a node of the shapes of another node's samples."""
    made = to_dtype(types.INT64 if dtype is None else dtype)
    if made not in (torch.int32, torch.int64, torch.uint32, torch.uint64, torch.float32, torch.float64):
        raise ValueError(f"{title}: dtype must be a type of 4 or 8 bytes, got {dtype!r}")
    constants = {} if dtype is None else {"dtype": dtype}
    return create(ShapesOperation, kind, [node], None, constants, schema="shapes", title=title, device=device, dtype=made, **options)[0]


def constant_node(
    value: Any, dtype: Any = None, shape: Any = None, layout: str | None = None, device: str = "cpu", title: str = "types.Constant", **options: Any
) -> DataNode:
    """Return a node with the same value in every sample."""
    made = types.constant_tensor(value, dtype, shape)
    if layout and len(layout) != made.dim():
        raise RuntimeError(f"{title}: the layout {layout!r} does not have one letter for each of the {made.dim()} dimensions")
    options.pop("bytes_per_sample_hint", None)
    constants: dict[str, Any] = {"value": made, "layout": layout or None}
    unknown = [key for key in options if key not in ("name", "preserve")]
    if unknown:
        raise TypeError(f"{title}: got an unexpected argument {unknown[0]!r}")
    node = create(
        ConstantOperation,
        "Constant",
        (),
        None,
        constants,
        schema="constant",
        title=title,
        device=device,
        value=made,
        layout=layout or None,
        **options,
    )[0]
    node.dtype, node.ndim, node.layout = types.to_dali_type(made.dtype), made.dim(), layout or ""
    if isinstance(value, types.DALIDataType | types.DALIImageType | types.DALIInterpType):
        node.dtype = type_id(type(value))
    return node


def as_node(value: Any, what: str = "an input") -> DataNode:
    """Return a node, or a constant node of anything that ``types.Constant`` takes. Raise TypeError for other objects."""
    if isinstance(value, DataNode):
        return value
    try:
        return constant_node(value)
    except (TypeError, ValueError) as error:
        reason = "it contains a DataNode; pass the nodes themselves, (*nodes,)" if _has_node(value) else str(error)
        raise TypeError(f"{what} must be a DataNode, a number, a list of numbers or an array, got {type(value).__name__}: {reason}") from None


def _has_node(value: Any) -> bool:
    return isinstance(value, DataNode) or (isinstance(value, list | tuple) and any(map(_has_node, value)))


def arithmetic_node(operation: str, operands: Sequence[Any], title: str | None = None) -> DataNode:
    """Return a node of an operation on elements."""
    title = title or label(operation)
    given = [one if isinstance(one, DataNode) else _operand(title, one) for one in operands]
    nodes = [one for one in given if isinstance(one, DataNode)]
    if not nodes:
        raise TypeError(f"{title}: one operand must be a DataNode")
    device = "gpu" if any(node.device == "gpu" for node in nodes) else "cpu"
    template = tuple(None if isinstance(one, DataNode) else one for one in given)
    constants = {"operands": tuple(None if isinstance(one, DataNode) else one for one in operands)}
    schema = f"arithmetic.{operation}"
    made = create(
        *(ArithmeticOperation, "_ArithmeticGenericOp", nodes, None, constants),
        schema=schema,
        title=title,
        device=device,
        operation=operation,
        operands=template,
    )
    return made[0]


def _operand(title: str, value: Any) -> Operand:
    """Return a constant operand."""
    if value is None or isinstance(value, str | bytes | dict | enum.Enum):
        raise TypeError(f"{title}: an operand must be a DataNode, a number or an array, got {type(value).__name__}")
    if isinstance(value, types.ScalarConstant) and types.constant_tensor(value).item() != value.value and not value.is_float:
        raise OverflowError(f"{title}: {value.value} is out of range for {value.dtype}")
    try:
        return new_tensor(types.constant_tensor(value))
    except TypeError as error:
        raise TypeError(f"{title}: {error}") from None


def subscript(node: DataNode, key: Any) -> DataNode:
    """Return a node of a part of every sample."""
    parts = key if isinstance(key, tuple) else (key,)
    plain: list[Any] = []
    axes: list[int] = []
    letters: list[str | None] = []
    position = 0
    for part in parts:
        if part is Ellipsis:
            raise NotImplementedError("DataNode: Ellipsis cannot be used as an index; write the slices")
        if part is None or isinstance(part, NewAxis):
            axes.append(position)
            letters.append(None if part is None else part.name)
            position += 1
            continue
        if isinstance(part, slice):
            for bound in (part.start, part.stop, part.step):
                _check_index(bound, True)
            position += 1
        else:
            _check_index(part, False)
        plain.append(part)
    named = [one for one in letters if one is not None]
    if named and len(named) != len(letters):
        raise ValueError("DataNode: newaxis needs a name for all new axes or for none")
    nodes = [bound for part in plain for bound in ((part.start, part.stop, part.step) if isinstance(part, slice) else (part,))]
    nodes = [bound for bound in nodes if isinstance(bound, DataNode)]
    return create(
        *(SubscriptOperation, "_TensorSubscript", [node, *nodes], None, {"key": tuple(parts)}),
        schema="tensor_subscript",
        title="DataNode[...]",
        device=node.device,
        key=tuple(plain),
        new_axes=tuple(axes),
        new_letters="".join(named) or None,
    )[0]


def _check_index(bound: Any, may_miss: bool) -> None:
    if (bound is None and may_miss) or isinstance(bound, DataNode | int | np.integer):
        return
    raise TypeError(f"DataNode: an index must be an int, a slice or a DataNode, got {type(bound).__name__}")
