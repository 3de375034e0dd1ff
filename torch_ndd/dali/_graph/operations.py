# SPDX-License-Identifier: Apache-2.0
"""Operations that run the operators and readers of :mod:`torch_ndd`, arithmetic, indexing, shapes, constants and copies."""

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..._core.context.device import gpu_count
from ..._core.context.rng import RNG, WORDS_PER_CALL
from ..._core.context.states import check_state, keys, whole
from ..._core.operators.definition import Operator
from ..._core.operators.plans import BoundOperator
from ..._core.values import arithmetic as core_arithmetic
from ..._core.values.batch import Batch, new_batch
from ..._core.values.indexing import plain_keys
from ...ops.shape.reshape import expand_dims
from ...readers.video._base import VideoReader
from .errors import wrap_error
from .graph import Graph, Node, Operation, Step

_warned_of_no_gpu = False
_STATE = keys(seed=whole(-(2**63), 2**64 - 1))


def target_device(operation: Operation, graph: Graph) -> str | None:
    """Return the device of an operation's results: None to decide by its inputs, which are on the CPU of a machine without a GPU."""
    global _warned_of_no_gpu
    if operation.device == "cpu":
        # On a machine without a GPU everything is on the CPU already; None avoids the check of each batch.
        return "cpu" if gpu_count() else None
    if not gpu_count():
        if not _warned_of_no_gpu:
            _warned_of_no_gpu = True
            warnings.warn("torch_ndd.dali: there is no GPU: operators for it run on the CPU", RuntimeWarning, stacklevel=2)
        return None
    device_id = graph.settings.device_id
    return "gpu" if device_id is None else f"gpu:{device_id}"


def on_device(batches: Sequence[Batch], target: str | None) -> tuple[Batch, ...]:
    """Copy batches to a device; None leaves them where they are."""
    return tuple(batches) if target is None else tuple(batch.to_device(target) for batch in batches)


# A draw takes 25 us when the caches are cold: the words of this many iterations are drawn together.
_DRAWN_ITERATIONS = 64


class RandomState(Operation):
    """An operation whose random numbers follow from its seed and the number of the iteration."""

    _generator: RNG | None = None
    _drawn: tuple[int, Sequence[torch.Tensor]] = (-1, ())  # number of a block of iterations, and the words of each

    def _numbers(self, step: Step) -> RNG:
        """Return the generator at the position of an iteration."""
        if self._generator is None:
            assert self.seed is not None
            self._generator = RNG(self.seed)
        # A call may draw WORDS_PER_CALL words, so iterations do not overlap.
        self._generator._position = step.number * WORDS_PER_CALL
        return self._generator

    def _words(self, step: Step) -> torch.Tensor:
        """Return the words that an operator would draw from :meth:`_numbers`."""
        # A function of the iteration's number alone: the numbers do not depend on the prefetch depth or on a checkpoint.
        block, place = divmod(step.number, _DRAWN_ITERATIONS)
        if self._drawn[0] != block:
            generator = self._numbers(step)
            generator._position = block * _DRAWN_ITERATIONS * WORDS_PER_CALL
            words = generator.draw(_DRAWN_ITERATIONS * WORDS_PER_CALL)
            self._drawn = block, words.view(_DRAWN_ITERATIONS, WORDS_PER_CALL).unbind()
        return self._drawn[1][place]

    def state_dict(self) -> dict[str, Any] | None:
        """Return the seed."""
        return {"seed": self.seed} if self.random else None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the seed."""
        self.seed = check_state(self.title, _STATE, state)["seed"]
        self._generator, self._drawn = None, (-1, ())


class OperatorOperation(RandomState):
    """An operator of :mod:`torch_ndd`. ``call`` is its definition, or a function with the same parameters."""

    call: Any
    missing: Sequence[str] = ()  # required arguments that were not given
    sized: bool = False  # the input only determines the batch size: it is the condition of a branch

    def prepare(self, graph: Graph) -> None:
        """Bind everything that is the same in every iteration."""
        if self.missing:
            raise RuntimeError(f"{self.title}: the argument {self.missing[0]!r} is required")
        self._prepared = BoundOperator(self.call, self.constants) if isinstance(self.call, Operator) else None
        self._device = target_device(self, graph)
        self._keywords = dict(self.constants) if self._device is None else {**self.constants, "device": self._device}
        self._generator, self._drawn = None, (-1, ())
        self._sizeless = not self.inputs and not self.arguments  # the batch size is that of the iteration

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Call the operator."""
        size = step.batch_size if self._sizeless else None
        if self.sized:
            size, inputs = inputs[0].batch_size, []
        # `Prepared` has bound the constants: only nodes are converted in each iteration.
        if self._prepared is not None:
            words = self._words(step) if self.random else None
            result = self._prepared(inputs, arguments, words=words, batch_size=size, device=self._device)
        else:
            keywords = {**self._keywords, **arguments}
            if size is not None:
                keywords["batch_size"] = size
            if self.random:
                keywords["rng"] = self._numbers(step)
            result = self.call(*inputs, **keywords)
        return result if type(result) is tuple else (result,)


class ReaderOperation(Operation):
    """A reader of :mod:`torch_ndd`, which returns full batches without end: iterators count the samples of an epoch."""

    random = True  # readers shuffle
    call: Any  # its class
    reader: Any = None
    _read: int | None = None  # number of the iteration it was called in last

    def prepare(self, graph: Graph) -> None:
        """Create the reader and find its samples, so building reports missing files. A wrong shard is a RuntimeError, as in DALI."""
        self._size = graph.settings.max_batch_size
        self._target = target_device(self, graph)
        try:
            self._open()
        except Exception as error:
            raise self._to_build_error(error) from error

    def _to_build_error(self, error: Exception) -> Exception:
        wrapped = wrap_error(self, error)
        return RuntimeError(str(wrapped)) if type(wrapped) is ValueError else wrapped

    def _open(self) -> None:
        constants = dict(self.constants)
        lazy = constants.get("lazy_init")
        constants["seed"] = self.seed
        if self._target is not None and issubclass(self.call, VideoReader):  # the others return host memory, which is copied
            constants["device"] = self._target
        self.reader = self.call(max_batch_size=self._size, **constants)
        # Listing the files now reports missing ones when the pipeline is built.
        if not lazy:
            self.reader.prepare_order()

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Read a batch."""
        # Readers always return full batches, which other inputs must match.
        if step.batch_size != self._size:
            raise RuntimeError(f"Batch size clash: the inputs of this iteration have {step.batch_size} samples, but readers give {self._size}")
        for key, batch in arguments.items():
            if batch.batch_size != self._size:
                raise RuntimeError(f"Batch size clash: the argument {key!r} has {batch.batch_size} samples, but readers give {self._size}")
        self._read = step.number
        outputs = self.reader(batch_size=self._size, **arguments)
        if isinstance(outputs, Batch):
            outputs = (outputs,)
        return on_device(tuple(outputs.values()) if isinstance(outputs, dict) else outputs, self._target)

    def pass_over(self, step: Step) -> None:
        """Read the batch of the iteration unless that was done, and drop it."""
        if self._read != step.number:
            self._read = step.number
            with contextlib.suppress(Exception):  # the iteration has an error already
                self.reader(batch_size=self._size)

    def state_dict(self) -> dict[str, Any] | None:
        """Return the reader's position and seed."""
        return {"seed": self.seed, "reader": self.reader.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the reader's position."""
        if not isinstance(state, dict) or set(state) != {"seed", "reader"}:
            raise ValueError(f"{self.title}: not a state of a reader: {state!r:.100}")
        self.seed = whole(-(2**63), 2**64 - 1)(state["seed"], f"{self.title}: seed")
        self.reader.load_state_dict(state["reader"])


class PlacedOperation(Operation):
    """An operation that moves its results to its device."""

    def prepare(self, graph: Graph) -> None:
        """Find the device."""
        self._target = target_device(self, graph)


class ConstantOperation(PlacedOperation):
    """The same value in every sample."""

    value: torch.Tensor
    layout: str | None = None

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Repeat the value: in new memory, because the user may write to outputs."""
        values = self.value.expand(step.batch_size, *self.value.shape).clone(memory_format=torch.contiguous_format)
        return on_device((new_batch(values, None, self.layout),), self._target)


class ArithmeticOperation(Operation):
    """An operation on elements. ``operands`` has None in the places of nodes."""

    operation: str
    operands: tuple[Any, ...]

    def prepare(self, graph: Graph) -> None:
        """Move the constants to the device."""
        target = target_device(self, graph)
        self._placed = tuple(operand if operand is None or target is None else operand.to_device(target) for operand in self.operands)

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Compute the operation."""
        nodes = iter(inputs)
        result = core_arithmetic.arithmetic(self.operation, *(next(nodes) if operand is None else operand for operand in self._placed))
        if result is NotImplemented:
            raise TypeError(f"{self.title}: unsupported operands")
        return (result,)


def _fill_nodes(part: Any, indices: Iterator[Batch]) -> Any:
    """Return a part of an index with values in place of its nodes."""
    if isinstance(part, slice):
        return slice(_fill_nodes(part.start, indices), _fill_nodes(part.stop, indices), _fill_nodes(part.step, indices))
    return _scalar(next(indices)) if isinstance(part, Node) else part


class SubscriptOperation(Operation):
    """Indexing of samples. ``key`` has DataNodes, which stand for the inputs after the first one."""

    key: tuple[Any, ...]
    new_axes: tuple[int, ...] = ()  # positions in the result
    new_letters: str | None = None

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Take a part of every sample."""
        indices = iter(inputs[1:])
        key = tuple(_fill_nodes(part, indices) for part in self.key)
        try:
            if len(key) > inputs[0].ndim:  # a Batch takes any number of `:`
                plain_keys(key, inputs[0].ndim, "sample", IndexError)
            taken = inputs[0].slice[key] if key else inputs[0]
        except (IndexError, TypeError, ValueError) as error:  # errors of data are RuntimeErrors, as in DALI
            raise RuntimeError(str(error)) from error
        if self.new_axes:
            letters: Any = self.new_letters if taken.layout is not None or not taken.ndim else None
            taken = expand_dims(taken, axes=list(self.new_axes), new_axis_names=letters)
        return (taken,)


def _scalar(batch: Batch) -> Batch:
    """Return indices without dimensions: a sample with one value counts as a number."""
    if batch.ndim and batch.ragged_shapes is None and batch.buffer[0].numel() == 1:
        return new_batch(batch.wait().reshape(-1))
    return batch


class ShapesOperation(PlacedOperation):
    """The shapes of samples."""

    dtype: torch.dtype

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Return the shapes, which are known before the values: nothing is waited for."""
        extents = inputs[0].sample_shapes().contiguous().clone()
        result = new_batch(extents.to(self.dtype))
        result.sources = inputs[0].sources
        return on_device((result,), self._target)


class MoveOperation(PlacedOperation):
    """A copy to another device; the identity where there is no GPU."""

    def issue(self, step: Step, inputs: list[Batch], arguments: dict[str, Batch]) -> tuple[Batch, ...]:
        """Copy the batch."""
        return on_device(inputs, self._target)
