# SPDX-License-Identifier: Apache-2.0
"""``ExternalSource``: Tensors and Batches from the user's own data."""

import inspect
import operator
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Literal, NamedTuple, get_args

from ..._core.context.context import EvalContext
from ..._core.context.device import DeviceLike
from ..._core.native import check_samples
from ..._core.operators.capture import LoopRecorder
from ..._core.process.fork_locks import new_reentrant_lock
from ..._core.values.batch import Batch, as_batch, repeat_sample
from ..._core.values.operand import loop as running
from ..._core.values.operand import unwrap
from ..._core.values.tensor import Tensor, as_tensor
from .._summary import brief

Cycle = Literal["no", "quiet", "raise"]
_CYCLES = {None: "no", False: "no", "no": "no", True: "quiet", "quiet": "quiet", "raise": "raise"}
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class _Outcome(NamedTuple):
    """The value that a source returned, or the error that it raised."""

    item: Any
    error: Exception | None
    traceback: TracebackType | None = None  # that of the source, without its caller


class ExternalSource:
    """Call or iterate over ``source``: each call of this object takes its next item.

    An item that is a Batch, or a tensor list of a pipeline, is kept; any other is converted by :func:`as_tensor`. A call with ``batch_size=N``
    returns Batches: a Tensor is repeated N times, and a Batch must have N samples. With ``per_sample`` it takes N items, one per sample, and the last
    batch may be smaller. At the end a call raises StopIteration. Errors of the source are passed on.

    Args:
        source: A callable without parameters, an iterable, an iterator, or a generator function without parameters. With ``per_sample`` a callable
            may have one parameter, the index of the sample, from 0.
        num_outputs: Number of outputs of a call. If greater than one, an item is a tuple or list of that length, and the call returns a tuple.
        cycle: What follows the end of an iterable or a generator function. ``None``, False, ``"no"``: StopIteration from then on. True, ``"quiet"``:
            it starts again. ``"raise"``: StopIteration once, then it starts again.
        device: Where to put the outputs; resolved at each call.
        layout: Layout of the samples; one, or a sequence with one per output.
        dtype: Dtype to convert to; one, or a sequence with one per output.
        per_sample: An item is one sample of a batch (not in DALI).

    Raises:
        ValueError: a callable with parameters or with ``cycle``, an unknown ``cycle``, a number of layouts or dtypes other than ``num_outputs``; at a
            call, an item without ``num_outputs`` parts, or a Batch of another size.
        TypeError: a source that can be neither called nor iterated over, a generator with ``cycle``; at a call, an item with both Tensors and
            Batches.

    >>> source = ExternalSource([[1, 2], [3, 4]], cycle="quiet", dtype=torch.float32)
    >>> [source().torch().tolist() for _ in range(3)]
    [[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]
    >>> ExternalSource(range(10), per_sample=True)(batch_size=4).torch().tolist()
    [0, 1, 2, 3]
    """

    def __init__(
        self,
        source: Callable[..., Any] | Iterable[Any],
        num_outputs: int = 1,
        *,
        cycle: bool | Cycle | None = None,
        device: DeviceLike = "cpu",
        layout: str | Sequence[str | None] | None = None,
        dtype: Any = None,
        per_sample: bool = False,
    ) -> None:
        if source is None:
            raise AssertionError("ExternalSource: source must not be None")
        if isinstance(num_outputs, bool) or not hasattr(num_outputs, "__index__"):
            raise TypeError(f"ExternalSource: num_outputs must be an int, got {num_outputs!r}")
        if num_outputs <= 0:
            raise ValueError(f"ExternalSource: num_outputs must be positive, got {num_outputs}")
        # Functions show their name, other sources a summary.
        self._count, self._brief = operator.index(num_outputs), getattr(source, "__qualname__", "") or brief(source)
        self._per_sample = bool(per_sample)
        self._layouts = self._for_each("layout", layout)
        self._dtypes = self._for_each("dtype", dtype)
        self._device = device
        self._numbered = False
        self._begin: Callable[[], Iterator[Any]]
        self._cycle = self._checked_cycle(cycle)
        if inspect.isgeneratorfunction(source):
            self._check_parameters(source, 0)
            self._begin = source
        elif hasattr(source, "__iter__") and not isinstance(source, type):
            # A generator cannot start again, but a generator function can.
            if inspect.isgenerator(source) and self._cycle != "no":
                raise TypeError("ExternalSource: Cannot cycle through a generator; pass the generator function instead of what it returned")
            self._begin = lambda: iter(source)  # type: ignore[arg-type]
        elif callable(source):
            if cycle is not None:
                raise ValueError("ExternalSource: cycle is for iterables and generator functions; source is a plain callable")
            self._numbered = self._check_parameters(source, int(self._per_sample)) == 1
            self._begin = lambda: self._iterate_calls(source)
        elif hasattr(source, "__getitem__"):
            self._begin = lambda: iter(source)  # the old protocol of sequences
        else:
            raise TypeError(
                f"ExternalSource: source must be callable, iterable or a generator function without parameters, not {type(source).__name__}"
            )
        self._items: Iterator[Any] | None = None
        self._loop: weakref.ref[_Loop] | None = None  # the running loop
        self._taken: list[_Outcome] = []  # what it has taken early
        self._returned: deque[_Outcome] = deque()  # taken early by a loop and not used
        self._noted: list[_Outcome] | None = None  # records outcomes while a batch is taken early
        self._lock = new_reentrant_lock()

    def __call__(self, *, batch_size: int | None = None) -> Any:
        """Return the next item: a Tensor or a Batch, or a tuple of ``num_outputs`` of them. Raise StopIteration at the end.

        In the body of a loop with ``next_epoch(capture=True)`` or :meth:`captured` over batches, the items are Batches of the size of the loop's
        current step, and the end of the source is an error.

        Args:
            batch_size: Return Batches of this size.

        Raises:
            RuntimeError: in such a loop, at the end of the source or for a ``batch_size`` other than the loop's; or while a loop over this source is
                running.
            ValueError: a Batch of another size.
        """
        if self._has_loop():
            raise RuntimeError("ExternalSource: it was already used through the .captured() method, whose loop is not over")
        loop = running.recorder
        if loop is None or loop.batch_size is None:
            return self._next(batch_size)
        if batch_size is not None and operator.index(batch_size) != loop.batch_size:
            raise RuntimeError(f"ExternalSource: batch_size={batch_size} in a captured loop whose batch has {loop.batch_size} samples; leave it out")
        try:
            return self._next(loop.batch_size)
        except StopIteration:
            # A StopIteration would silently end the generator that contains the loop.
            raise RuntimeError("ExternalSource: the source ended before the captured loop that it is called in; cycle=True starts it again") from None

    def __repr__(self) -> str:
        outputs = f", num_outputs={self._count}" if self._count > 1 else ""
        return f"ExternalSource({self._brief}{outputs})"

    def captured(self, batch_size: int, ctx: EvalContext | None = None) -> Iterator[Any]:
        """Iterate to the end of the source once, in batches, and run ahead.

        The operators that the loop's body calls on a batch are already issued for the next one, so that they run while the body does something else
        (like ``next_epoch(capture=True)`` of readers).

        To do this, the next item is taken before the body has received the current one. All other values are those of plain calls,
        whatever the body does; operators on values of other sources called in the body run in their turn. Such sources return Batches of the loop's
        size.

        With ``cycle="raise"`` each such loop starts from the beginning; with ``cycle="no"`` later loops are empty. The loop may be left early: the
        item that was taken early is the next one.

        Args:
            batch_size: Samples per batch, as in a call.
            ctx: The context in which the source runs.

        Raises:
            RuntimeError: at the first step, inside another such loop over this source.
        """
        return _Loop(self, batch_size, ctx)

    def _has_loop(self) -> bool:
        """Return whether a loop over this is running; items that a dropped loop took early become the next ones."""
        if self._loop is None:
            return False
        if self._loop() is not None:
            return True
        self._end_loop()
        return False

    def _end_loop(self) -> None:
        self._loop = None
        taken, self._taken = self._taken, []
        self._give_back(taken)

    def _taken_early(self, batch_size: int, ctx: EvalContext | None) -> Any:
        """Take the next batch early; None if that fails: the same items are then taken in their turn, which raises the error there."""
        # One list under two names: outcomes are recorded in it, and given back from it if the batch is not delivered.
        self._noted = self._taken = []
        try:
            # A copy, because the source may reuse its buffer for the next item before this one is delivered.
            with ctx or nullcontext():
                return _copy_outputs(self._next(batch_size))
        except Exception:
            taken, self._taken = self._taken, []
            self._give_back(taken)
            return None
        finally:
            self._noted = None

    def _give_back(self, items: "list[_Outcome]") -> None:
        with self._lock:
            # extendleft() inserts one by one at the left, so it reverses what it is given.
            self._returned.extendleft(reversed(items))

    def _next(self, batch_size: int | None) -> Any:
        with self._lock:
            if batch_size is None or not self._per_sample:
                outputs = self._outputs(self._item(), batch_size)
            else:
                outputs = self._batch_of_samples(operator.index(batch_size))
        return outputs if self._count > 1 else outputs[0]

    def _item(self) -> Any:
        return self._outcome(self.next_item)

    def _outcome(self, ask: Callable[[], Any]) -> Any:
        """Return or raise the next outcome: one that was taken early and given back, else the result of ``ask``."""
        if self._returned:
            outcome = self._returned.popleft()
        else:
            try:
                # Errors are kept as well: taken early, they must be raised in the batch to which they belong.
                outcome = _Outcome(ask(), None)
            except Exception as error:
                outcome = _Outcome(None, error, error.__traceback__)
        if self._noted is not None:
            self._noted.append(outcome)
        if outcome.error is not None:
            # The original traceback, or each delivery would append frames to the stored exception.
            raise outcome.error.with_traceback(outcome.traceback)
        return outcome.item

    def next_item(self) -> Any:
        if self._items is None:
            self._items = self._begin()
        try:
            return next(self._items)
        except StopIteration:
            if self._cycle == "no":
                raise
            # Also with cycle="raise": the call after the end begins again.
            self._items = None
            if self._cycle == "raise":
                raise
        self._items = self._begin()
        return next(self._items)

    def _batch_of_samples(self, size: int) -> tuple[Batch, ...]:
        if size <= 0:
            raise ValueError(f"ExternalSource: batch_size must be positive, got {size}")
        check_samples("ExternalSource", size)
        rows: list[Sequence[Any]] = []
        while len(rows) < size:
            try:
                # A source starts again only between batches, so that every pass ends with its remainder.
                rows.append(self._parts(self._outcome(partial(next, self._items)) if rows and self._items is not None else self._item()))
            # A remainder is delivered as a smaller batch; the end is raised by the next call.
            except StopIteration:
                if not rows:
                    raise
                break
        columns = zip(*rows, strict=True)
        return tuple(as_batch(list(c), t, self._device, s) for c, t, s in zip(columns, self._dtypes, self._layouts, strict=True))

    def _parts(self, item: Any) -> Sequence[Any]:
        if self._count == 1:
            return (item,)
        if not isinstance(item, Sequence) or isinstance(item, str | bytes) or len(item) != self._count:
            what = f"{len(item)}" if isinstance(item, tuple | list) else f"one {type(item).__name__}"
            raise ValueError(f"ExternalSource: Expected {self._count} outputs from the source, as a tuple or list, got {what}")
        return item

    def _outputs(self, item: Any, batch_size: int | None) -> tuple[Any, ...]:
        outputs = tuple(self._output(part, dtype, layout) for part, dtype, layout in zip(self._parts(item), self._dtypes, self._layouts, strict=True))
        if batch_size is not None:
            return tuple(_with_batch_size(part, operator.index(batch_size)) for part in outputs)
        if len({isinstance(part, Batch) for part in outputs}) > 1:
            raise TypeError("ExternalSource: Outputs must be uniformly Tensors or uniformly Batches unless batch_size is given")
        return outputs

    def _output(self, item: Any, dtype: Any, layout: str | None) -> Tensor | Batch:
        item = unwrap(item)
        return (as_batch if isinstance(item, Batch) else as_tensor)(item, dtype, self._device, layout)

    def _iterate_calls(self, source: Callable[..., Any]) -> Iterator[Any]:
        return _CallableSource(source, self._numbered)

    def _for_each(self, argument: str, value: Any) -> tuple[Any, ...]:
        if isinstance(value, Sequence) and not isinstance(value, str):
            if len(value) != self._count:
                raise ValueError(f"ExternalSource: {argument}: Expected a sequence of size {self._count}, got {len(value)}")
            return tuple(value)
        return (value,) * self._count

    @staticmethod
    def _checked_cycle(cycle: Any) -> str:
        if cycle is None or (isinstance(cycle, bool | str) and cycle in _CYCLES):
            return _CYCLES[cycle]
        raise ValueError(f"ExternalSource: cycle must be one of {', '.join(get_args(Cycle))}, got {cycle!r}; False is 'no', True is 'quiet'")

    @staticmethod
    def _check_parameters(source: Callable[..., Any], most: int) -> int:
        """Return the number of positional parameters of a source."""
        try:
            parameters = inspect.signature(source).parameters.values()
        except (TypeError, ValueError):  # written in C
            return 0
        if any(p.kind in _VARIADIC for p in parameters if p.default is p.empty):
            raise TypeError("ExternalSource: source must have no parameters, not *args, **kwargs or keyword-only ones")
        positional = [p for p in parameters if p.kind not in _VARIADIC]
        # Parameters with defaults do no harm in a generator function, which is called without arguments.
        if len(positional) > most and not (inspect.isgeneratorfunction(source) and all(p.default is not p.empty for p in positional)):
            most_text = "at most one parameter, the number of the sample" if most else "no parameters"
            raise ValueError(f"ExternalSource: source must be a callable with {most_text}, got {inspect.signature(source)}")
        return len(positional)


class _Loop:
    """The batches of a source, one taken ahead. Not a generator: a KeyboardInterrupt in the ``finally`` of a dropped generator is lost."""

    def __init__(self, source: ExternalSource, batch_size: int, ctx: EvalContext | None) -> None:
        self._steps = _Steps(source, batch_size, ctx, weakref.ref(self))

    def __iter__(self) -> "_Loop":
        return self

    def __next__(self) -> Any:
        take = self._steps.take
        del self  # this frame stays in the traceback of a stored error, and the loop must end when the program drops it
        return take()

    def close(self) -> None:
        """End the loop; items taken early become the next ones."""
        self._steps.end()


class _Steps:
    """The state and steps of a :class:`_Loop`."""

    def __init__(self, source: ExternalSource, batch_size: int, ctx: EvalContext | None, loop: "weakref.ref[_Loop]") -> None:
        self._source, self._batch_size, self._ctx, self._loop = source, batch_size, ctx, loop
        self._recorder: LoopRecorder | None = None  # until it has started
        self._early: Any = None
        self._over = False

    def take(self) -> Any:
        """Return the next batch."""
        if self._over:
            raise StopIteration
        try:
            return self._step()
        # Any error ends the loop, Ctrl-C too, so that the source can be used again.
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """End the loop; items taken early become the next ones."""
        self._over, self._early = True, None
        # Another loop may have begun meanwhile; its recorder stays.
        if self._recorder is not None and running.recorder is self._recorder:
            running.recorder = None
        if self._source._loop is self._loop:
            self._source._end_loop()

    def _step(self) -> Any:
        source = self._source
        if self._recorder is None:
            if source._has_loop():
                raise RuntimeError("ExternalSource: it was already used in another .captured() loop, which is not over")
            source._loop = self._loop
            self._recorder = LoopRecorder(self._loop)
        else:
            running.recorder = None
        recorder = self._recorder
        # First step, or taking early failed: take in turn, which raises the error in this iteration.
        if self._early is None:
            recorder.discard()
            with self._ctx or nullcontext():
                outputs = source._next(self._batch_size)
        else:
            # Delivered now, so the outcomes need not be given back any more.
            outputs, self._early, source._taken = self._early, None, []
        outputs = _copy_outputs(outputs)  # the source may reuse its buffer for the next item
        recorder.begin(outputs)
        if recorder.has_calls:
            self._early = source._taken_early(self._batch_size, self._ctx)
        if self._early is not None:
            recorder.call_ahead(self._early)
        running.recorder = recorder
        return outputs


def _copy_outputs(outputs: Any) -> Any:
    """Copy outputs whose memory belongs to the source."""
    if isinstance(outputs, tuple):
        return tuple(_copy_outputs(output) for output in outputs)
    return outputs.copy_values() if outputs.caller_owned else outputs


class _CallableSource(Iterator[Any]):
    """A callable as an iterator that continues after errors and after StopIteration, unlike a generator."""

    def __init__(self, source: Callable[..., Any], numbered: bool) -> None:
        self._source, self._numbered, self._number = source, numbered, 0

    def __next__(self) -> Any:
        item = self._source(self._number) if self._numbered else self._source()
        self._number += 1
        return item


def _with_batch_size(output: Tensor | Batch, size: int) -> Batch:
    if isinstance(output, Tensor):
        if size < 0:
            raise ValueError(f"ExternalSource: batch_size must not be negative, got {size}")
        check_samples("ExternalSource", size)
        return repeat_sample(output, size)
    if output.batch_size != size:
        raise ValueError(f"ExternalSource: Expected batch size {size}, got {output.batch_size}")
    return output
