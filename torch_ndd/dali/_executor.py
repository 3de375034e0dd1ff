# SPDX-License-Identifier: Apache-2.0
"""Running a built pipeline: iterations are issued ahead of the user, and delivered in order with their errors."""

import contextlib
import copy
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .._core.context import streams
from .._core.context.context import EvalContext
from .._core.context.states import check_state, keys, whole
from .._core.process import workers
from .._core.process.workers import Workers
from .._core.values.batch import Batch
from .._core.work.call_sites import fixed
from ._errors import origin, wrapped
from ._graph import Graph, Node, Operation, Step

_ENTERED = contextlib.nullcontext()  # on a thread that has entered the pipeline's context


def _enter(context: EvalContext) -> None:
    """Enter the context for the whole life of a thread: doing so in each iteration takes 35 us when the caches are cold."""
    with contextlib.suppress(Exception):  # the first iteration tries again, and delivers the error
        context.__enter__()


_COUNTERS = keys(number=whole(), iteration=whole(), epoch=whole(), operations=lambda value, name: value)


@dataclass(slots=True)
class _Planned:
    """An operation with the slots of its inputs and outputs in the list of an iteration's values."""

    operation: Operation
    inputs: list[int]
    arguments: list[tuple[str, int]]
    outputs: list[int]


@dataclass(slots=True)
class _Issued:
    """An iteration that was issued, or the error that ended issuing."""

    step: Step
    outputs: "Future[list[Batch]] | None" = None
    error: BaseException | None = None
    states: dict[str, Any] = field(default_factory=dict)


class Executor:
    """Issues and delivers the iterations of a pipeline.

    Inputs are asked for in the user's thread. A thread of the executor calls the operators, which queue their work for native threads or CUDA
    streams.
    """

    def __init__(self, pipeline: Graph, operations: list[Operation], outputs: Sequence[Node]) -> None:
        self._size = pipeline.max_batch_size
        self._depth = pipeline._depth
        self._checkpointing = pipeline.enable_checkpointing
        slots: dict[tuple[int, int], int] = {}
        for operation in operations:
            for k in range(len(operation.outputs)):
                slots[operation.serial, k] = len(slots)
        self._count = len(slots)

        def slot(node: Node) -> int:
            assert node.source is not None
            return slots[node.source.serial, node.index]

        plans = [
            _Planned(
                operation,
                [slot(one) for one in operation.inputs],
                [(name, slot(one)) for name, one in operation.arguments.items()],
                [slots[operation.serial, k] for k in range(len(operation.outputs))],
            )
            for operation in operations
        ]
        # What was fed is taken after the sources were asked, which may end the epoch.
        self.sources = sorted((one for one in plans if one.operation.pulls), key=lambda one: one.operation.fed)
        # Readers first, so that they read while the others wait for something, such as a Python function for its inputs.
        self._plan = sorted((one for one in plans if not one.operation.pulls), key=lambda one: bool(one.inputs or one.arguments))
        self._outputs = [slot(one) for one in outputs]
        self._by_site = {id(operation.site): operation for operation in operations}
        self._stateful = [one.operation for one in plans]
        self._context = EvalContext(num_threads=pipeline.num_threads, device_id=pipeline._gpu())
        self._workers: Workers | None = None
        self._process = 0  # whose thread it is
        self._queue: deque[_Issued] = deque()
        self._number = self._iteration = self._epoch = 0
        self._begun = False  # the queue was filled
        self._owed = 0  # iterations that were scheduled and not issued, because an input was not fed
        self._ended = False  # a source has no more data, or failed and the error waits to be delivered
        self._failure: BaseException | None = None  # of every later run
        self._stopped: BaseException | None = None  # delivered; stays until the sources are asked again
        self._states: dict[str, Any] = {}
        self._delivered = (0, 0, 0)  # number, iteration, epoch after the latest delivery

    # Issuing.

    def schedule(self, iter_setup: Callable[[], None] | None = None) -> None:
        """Issue an iteration; at the beginning of an epoch as many as the prefetch queue holds. ``iter_setup`` is called before each one.

        Raise IndexError if an input was not fed and nothing issued is left.
        """
        self._check_usable()
        if self._ended:
            return
        self._stopped = None
        self._owed += 1 if self._begun else self._depth
        self._begun = True
        try:
            while self._owed and not self._ended:
                self._issue_next(iter_setup)
                self._owed -= 1
        except IndexError:  # nothing of this iteration was taken: the user may feed and run again
            if not self._queue:
                self._owed = max(1, self._owed) - 1
                raise

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise _copied(self._failure)
        if self._workers is not None and self._process != os.getpid():  # the thread is in the parent: waiting for it would never end
            raise RuntimeError("Pipeline: it ran in the parent of this process; make a pipeline here, after the fork")

    def _issue_next(self, iter_setup: Callable[[], None] | None) -> None:
        step = Step(self._number, self._iteration, self._epoch, self._size)
        try:
            if iter_setup is not None:
                iter_setup()
            for one in self.sources:
                one.operation.check(step, wait=not self._queue)
        except StopIteration:
            self._ended = True
            return
        except IndexError:
            raise
        except Exception as error:
            self._stop_with(step, error)
            return
        values: list[Any] = [None] * self._count
        issued = _Issued(step)
        try:
            self._pull(step, values, issued)
        except StopIteration:
            self._ended = True
            return
        except Exception as error:
            self._stop_with(step, error)
            return
        self._number += 1
        self._iteration += 1
        if self._workers is None:
            self._workers, self._process = Workers(1, "torch_ndd.dali pipeline", self, partial(_enter, self._context)), os.getpid()
        issued.outputs = self._workers.submit(self._issue, step, values, issued.states)
        self._queue.append(issued)

    def _stop_with(self, step: Step, error: Exception) -> None:
        """Issue nothing more until the error was delivered; then the sources are asked again."""
        self._ended = True
        self._queue.append(_Issued(step, error=error))

    def _pull(self, step: Step, values: list[Any], issued: _Issued) -> None:
        """Ask all sources for an iteration. If one has no more data, ask the others too, so that sources of equal length restart together."""
        first: Operation | None = None
        ended = False
        for one in self.sources:
            if ended and one.operation.fed:
                break
            try:
                batches = one.operation.pull(step)
            except StopIteration:
                ended = True
            if ended:
                continue
            for slot, batch in zip(one.outputs, batches, strict=True):
                if first is None:
                    first, step.batch_size = one.operation, batch.batch_size
                elif batch.batch_size != step.batch_size:
                    raise RuntimeError(
                        f"Batch size clash: the input {first.name!r} has {step.batch_size} samples in this iteration, and {one.operation.name!r} has "
                        f"{batch.batch_size}"
                    )
                values[slot] = batch
            if self._checkpointing:
                self._keep_state(one.operation, issued.states)
        if ended:
            raise StopIteration

    def _issue(self, step: Step, values: list[Any], states: dict[str, Any]) -> list[Batch]:
        """Call the operators of an iteration and return the outputs. Runs on the executor's thread."""
        with _ENTERED if streams.entered_context() is self._context else self._context:
            try:
                for one in self._plan:
                    if workers.ending:
                        raise RuntimeError("Pipeline: the program ends")
                    operation = one.operation
                    inputs = [values[slot] for slot in one.inputs]
                    fixed.site = operation.site
                    try:
                        made = operation.run(step, inputs, {name: values[slot] for name, slot in one.arguments})
                        for slot, batch in zip(one.outputs, made, strict=True):
                            values[slot] = batch
                    except (Exception, SystemExit) as error:  # a Python function that calls sys.exit() does not end the program
                        raise self._blamed(operation, inputs, error) from error
                    if self._checkpointing:
                        self._keep_state(operation, states)
            finally:
                fixed.site = None
        return [values[slot] for slot in self._outputs]

    def _keep_state(self, operation: Operation, states: dict[str, Any]) -> None:
        state = operation.state_dict()
        if state is not None:
            states[operation.name] = state

    def _blamed(self, operation: Operation, inputs: list[Batch], error: BaseException) -> Exception:
        """Return an error with the operator that caused it: the one that was called, or one whose results it waited for."""
        if isinstance(error, Exception):
            for batch in inputs:
                if batch.pending is not None and getattr(batch.pending, "_status", None):
                    return self._of_pending(batch.pending, error)
        return wrapped(operation, error)

    def _of_pending(self, pending: Any, error: Exception) -> Exception:
        site, cause = origin(pending)
        operation = self._by_site.get(id(site))
        return error if operation is None else wrapped(operation, cause)

    # Delivering.

    def deliver(self) -> list[Batch]:
        """Return the outputs of the oldest iteration, filled. Raise its error, or StopIteration if none is scheduled."""
        self._check_usable()
        if not self._queue:
            raise StopIteration if self._stopped is None else _copied(self._stopped)
        issued = self._queue.popleft()
        try:
            if issued.error is not None:
                self._ended, self._stopped = False, _copied(issued.error)
                raise issued.error
            assert issued.outputs is not None
            outputs = issued.outputs.result()
            for batch in outputs:
                self._wait(batch)
            step = issued.step
            self._delivered = (step.number + 1, step.iteration + 1, step.epoch)
            self._states.update(issued.states)
            return outputs
        except KeyboardInterrupt:
            future = issued.outputs
            if future is not None and not (future.done() and future.exception()):  # it came while this thread waited: the next run delivers them
                self._queue.appendleft(issued)
            raise
        finally:
            # The error has this frame in its traceback, with those of its callers: a cycle would keep the user's pipeline and its processes.
            del issued

    def _wait(self, batch: Batch) -> None:
        pending = batch.pending
        try:
            batch.wait()
        except Exception as error:
            if pending is None or not hasattr(pending, "failed_call"):
                raise
            raise self._of_pending(pending, error) from error

    def fail(self, error: Exception) -> Exception:
        """Make every later run raise an error, release what the operations hold, and return the error."""
        self._failure = _copied(error)
        self._queue.clear()
        for operation in self._stateful:
            operation.close()
        return error

    def empty(self) -> bool:
        """Return whether nothing is scheduled."""
        return not self._queue

    def reset(self) -> None:
        """Begin a new epoch if the data has ended and everything was delivered; otherwise do nothing."""
        if not self._ended or self._queue or self._failure is not None:
            return
        self._ended, self._begun, self._owed, self._iteration = False, False, 0, 0
        self._epoch += 1
        for operation in self._stateful:
            operation.reset()
        self._delivered = (self._number, 0, self._epoch)
        if self._checkpointing:
            self.keep_states()

    # State.

    def keep_states(self) -> None:
        """Take the states of all operations as those that the user has seen."""
        for operation in self._stateful:
            self._keep_state(operation, self._states)

    def state_dict(self) -> dict[str, Any]:
        """Return the counters and the states of the operations after the latest delivery."""
        number, iteration, epoch = self._delivered
        return {"number": number, "iteration": iteration, "epoch": epoch, "operations": dict(self._states)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state before the first iteration. Raise RuntimeError for a state of another graph."""
        given = check_state("Pipeline", _COUNTERS, state)
        found = {operation.name: operation for operation in self._stateful}
        for name, one in given["operations"].items():
            if name not in found:
                raise RuntimeError(f"Pipeline: the checkpoint is of another graph: there is no operator {name!r}")
            found[name].load_state_dict(one)
        self._number, self._iteration, self._epoch = given["number"], given["iteration"], given["epoch"]
        self._delivered = (self._number, self._iteration, self._epoch)
        self.keep_states()


def _copied(error: BaseException) -> BaseException:
    """Return an error without its traceback, whose frames would hold the pipeline, and the pipeline the error."""
    try:
        made = copy.copy(error)
    except Exception:
        return error
    return made if type(made) is type(error) else error
