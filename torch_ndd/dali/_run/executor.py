# SPDX-License-Identifier: Apache-2.0
"""The executor: issues iterations ahead of the user, and delivers them in order with their errors."""

import contextlib
import copy
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..._core.context import streams
from ..._core.context.context import EvalContext
from ..._core.context.device import gpu_count
from ..._core.context.states import check_state, keys, whole
from ..._core.process import workers
from ..._core.process.workers import Workers, is_here
from ..._core.values.batch import Batch
from ..._core.work.call_sites import fixed
from .._graph.errors import find_origin, wrap_error
from .._graph.graph import Graph, Node, Operation, Step

_ENTERED = contextlib.nullcontext()  # in place of the context, on a thread that has entered it


def _enter(context: EvalContext) -> None:
    """Enter the context for the whole life of a thread: entering it in each iteration takes 35 us when the caches are cold."""
    with contextlib.suppress(Exception):  # the first iteration tries again, and delivers the error
        context.__enter__()


# States of operations are checked by the operations themselves.
_COUNTERS = keys(number=whole(), iteration=whole(), epoch=whole(), operations=lambda value, name: value)


@dataclass(slots=True)
class _Scheduled:
    """An operation with the slots of its inputs and outputs in the list of the values of an iteration."""

    operation: Operation
    inputs: list[int]
    arguments: list[tuple[str, int]]
    outputs: list[int]


@dataclass(slots=True)
class _Issued:
    """An iteration that was issued, or the error that ended issuing, with the work of readers that leave out a batch."""

    step: Step
    outputs: "Future[list[Batch]] | None" = None
    error: BaseException | None = None
    states: dict[str, Any] = field(default_factory=dict)


class Executor:
    """The running state of a built pipeline.

    Sources are pulled on the thread of the caller, so the user's code runs where it was written to run and StopIteration reaches the user. One
    thread of the executor calls the operators, which submit their work to native threads or CUDA streams.

    Args:
        graph: The complete graph, whose operations were prepared.
        depth: Number of iterations that are issued ahead.
    """

    def __init__(self, graph: Graph, depth: int) -> None:
        settings, operations = graph.settings, graph.operations
        self._size = settings.max_batch_size
        self._depth = depth
        self._checkpointing = settings.enable_checkpointing
        # The values of an iteration are a list: operations find their inputs by index, without looking up names.
        # One slot per output, numbered in the order of the graph.
        slots: dict[tuple[int, int], int] = {}
        for operation in operations:
            for k in range(len(operation.outputs)):
                slots[operation.serial, k] = len(slots)
        self._count = len(slots)

        def slot(node: Node) -> int:
            assert node.source is not None
            return slots[node.source.serial, node.index]

        scheduled = [
            _Scheduled(
                operation,
                [slot(item) for item in operation.inputs],
                [(name, slot(item)) for name, item in operation.arguments.items()],
                [slots[operation.serial, k] for k in range(len(operation.outputs))],
            )
            for operation in operations
        ]
        # Fed batches are taken last: a source may end the epoch, and then they stay in their queues for the next one.
        self._sources = sorted((item for item in scheduled if item.operation.pulls), key=lambda item: item.operation.fed)
        # Readers first, so they read while another operation waits, for example a Python function for its inputs.
        self._order = sorted((item for item in scheduled if not item.operation.pulls), key=lambda item: bool(item.inputs or item.arguments))
        self._outputs = [slot(item) for item in graph.outputs]
        # By identity of the list: pending work stores the site of the call that launched it.
        self._by_site = {id(operation.site): operation for operation in operations}
        self._stateful = [item.operation for item in scheduled]
        uses_gpu = gpu_count() and any(operation.device != "cpu" for operation in operations)
        self._context = EvalContext(num_threads=settings.num_threads, device_id=settings.device_id if uses_gpu else None)
        self._workers: Workers | None = None
        self._queue: deque[_Issued] = deque()
        self._number = self._iteration = self._epoch = 0
        self._begun = False  # the queue was filled
        self._owed = 0  # iterations that were scheduled but not issued, because an input was not fed
        self._ended = False  # nothing more is issued: a source has no more data, or its error must be delivered first
        self._failure: BaseException | None = None  # of every later run
        self._stopped: BaseException | None = None  # a delivered error, raised again until the next iteration is scheduled
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
        # The first call fills the queue; later ones replace the iteration that was delivered.
        self._owed += 1 if self._begun else self._depth
        self._begun = True
        try:
            while self._owed and not self._ended:
                self._issue_next(iter_setup)
                self._owed -= 1
        except IndexError:  # no input was taken: the user may feed and run again
            # With iterations left to deliver, a missing input is not an error yet: the next call issues what is owed.
            if not self._queue:
                # The failed iteration was counted by this call, which the user repeats after feeding.
                self._owed = max(1, self._owed) - 1
                raise

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise _copy_without_traceback(self._failure)
        if self._workers is not None and not is_here(self._workers):  # the thread exists in the parent only: a wait would never end
            raise RuntimeError("Pipeline: it was started in the parent of this process; create a pipeline here, after the fork")

    def _issue_next(self, iter_setup: Callable[[], None] | None) -> None:
        step = Step(self._number, self._iteration, self._epoch, self._size)
        try:
            if iter_setup is not None:
                iter_setup()
            for source in self._sources:
                # Waiting for a feed while results are undelivered would keep them from the user, who may feed only after them.
                source.operation.check(step, wait=not self._queue)
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
            self._count_iteration()
            # Readers leave out their batches of this iteration, in their turn.
            self._stop_with(step, error, issued.states, self._submit(self._pass_over, step, issued.states))
            return
        self._count_iteration()
        # From here on the user's thread is free; operators are called on the executor's thread.
        issued.outputs = self._submit(self._issue, step, values, issued.states)
        self._queue.append(issued)

    def _count_iteration(self) -> None:
        # When it is issued, not when it is delivered: an iteration that fails keeps its number, so later random numbers do not shift.
        self._number += 1
        self._iteration += 1

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        # The thread starts with the first iteration: a process that forks before it may still run the pipeline in the child.
        if self._workers is None:
            self._workers = Workers(1, "torch_ndd.dali pipeline", self, partial(_enter, self._context))
        return self._workers.submit(function, *arguments)

    def _stop_with(self, step: Step, error: Exception, states: dict[str, Any] | None = None, work: Future[Any] | None = None) -> None:
        """Put an error in the place of an iteration. Nothing is issued until it was delivered; then the sources are pulled again."""
        self._ended = True
        # Not in the frame of the caller, to which the traceback of the error refers.
        self._queue.append(_Issued(step, work, error, states or {}))

    def _pull(self, step: Step, values: list[Any], issued: _Issued) -> None:
        """Pull all sources of an iteration, also if one has no more data or fails: they stay in step, and restart together."""
        first: Operation | None = None
        ended, failure = False, None
        for source in self._sources:
            if ended and source.operation.fed:
                break
            try:
                batches = source.operation.pull(step)
            except StopIteration:
                ended = True
            except Exception as error:
                failure = failure or error
            if ended:
                continue
            if self._checkpointing:
                self._keep_state(source.operation, issued.states)
            if failure is not None:
                continue
            for slot, batch in zip(source.outputs, batches, strict=True):
                # The first source decides the batch size of the iteration.
                if first is None:
                    first, step.batch_size = source.operation, batch.batch_size
                elif batch.batch_size != step.batch_size:
                    failure = failure or RuntimeError(
                        f"Batch size clash: the input {first.name!r} has {step.batch_size} samples in this iteration, and "
                        f"{source.operation.name!r} has {batch.batch_size}"
                    )
                values[slot] = batch
        try:
            if failure is not None:
                raise failure
            if ended:
                raise StopIteration
        finally:  # the traceback of the error refers to this frame
            del failure

    # The loop of all operators: native threads may be idle until it submits their work.
    def _issue(self, step: Step, values: list[Any], states: dict[str, Any]) -> list[Batch]:
        """Call the operators of an iteration and return the outputs, which may be pending. Runs on the executor's thread."""
        with _ENTERED if streams.entered_context() is self._context else self._context:
            try:
                for item in self._order:
                    if workers.ending:
                        raise RuntimeError("Pipeline: the program is ending")
                    operation = item.operation
                    inputs = [values[slot] for slot in item.inputs]
                    fixed.site = operation.site  # errors of work that runs later refer to the definition
                    try:
                        outputs = operation.run(step, inputs, {name: values[slot] for name, slot in item.arguments})
                        for slot, batch in zip(item.outputs, outputs, strict=True):
                            values[slot] = batch
                    except (Exception, SystemExit) as error:  # a Python function that calls sys.exit() does not end the program
                        self._pass_over(step, states)
                        raise self._attribute_error(operation, inputs, error) from error
                    if self._checkpointing:
                        self._keep_state(operation, states)
            finally:
                fixed.site = None
        return [values[slot] for slot in self._outputs]

    def _pass_over(self, step: Step, states: dict[str, Any]) -> None:
        """Move the readers that an iteration did not call because of an error: the next one has the next batch of each."""
        for operation in self._stateful:
            operation.pass_over(step)
            if self._checkpointing:
                self._keep_state(operation, states)

    def _keep_state(self, operation: Operation, states: dict[str, Any]) -> None:
        state = operation.state_dict()
        if state is not None:
            states[operation.name] = state

    def _attribute_error(self, operation: Operation, inputs: list[Batch], error: BaseException) -> Exception:
        """Return an error that names the operator that caused it: the operator that was called, or one whose results it waited for."""
        if isinstance(error, Exception):
            # A failed input is the cause; the called operator only waited for it.
            for batch in inputs:
                if batch.pending is not None and getattr(batch.pending, "_status", None):
                    return self._attribute_pending_error(batch.pending, error)
        return wrap_error(operation, error)

    def _attribute_pending_error(self, pending: Any, error: Exception) -> Exception:
        site, cause = find_origin(pending)
        # The failed call has the list that was `fixed.site` when it was launched: its identity finds the operation.
        operation = self._by_site.get(id(site))
        return error if operation is None else wrap_error(operation, cause)

    # Delivering.

    def deliver(self) -> list[Batch]:
        """Return the outputs of the oldest iteration, filled. Raise its error, or StopIteration if none is scheduled."""
        self._check_usable()
        if not self._queue:
            raise StopIteration if self._stopped is None else _copy_without_traceback(self._stopped)
        issued = self._queue.popleft()
        try:
            if issued.error is not None:
                # The error is delivered, so the next schedule() may pull the sources again.
                self._ended, self._stopped = False, _copy_without_traceback(issued.error)
                if issued.outputs is not None:
                    issued.outputs.result()
                raise issued.error
            assert issued.outputs is not None
            outputs = issued.outputs.result()
            # Programs expect complete results, as from DALI, and errors of this iteration here.
            for batch in outputs:
                self._wait(batch)
            self._note_delivery(issued)
            return outputs
        except Exception:
            if issued.outputs is not None:  # the next run returns the next iteration, and so does that of a checkpoint
                self._note_delivery(issued)
            raise
        except KeyboardInterrupt:
            future = issued.outputs
            if future is not None and not (future.done() and future.exception()):  # Ctrl-C while waiting: the next run delivers the iteration
                self._queue.appendleft(issued)
            raise
        finally:
            # The traceback of the error refers to this frame: the cycle would keep the user's pipeline and its processes alive.
            del issued

    def _note_delivery(self, issued: _Issued) -> None:
        """Count an iteration as delivered: a checkpoint does so only from here on."""
        step = issued.step
        self._delivered = (step.number + 1, step.iteration + 1, step.epoch)
        # States from the time when this iteration was issued, not those of iterations ahead of it.
        self._states.update(issued.states)

    def _wait(self, batch: Batch) -> None:
        pending = batch.pending
        try:
            batch.wait()
        except Exception as error:
            if pending is None or not hasattr(pending, "failed_call"):
                raise
            raise self._attribute_pending_error(pending, error) from error

    def fail(self, error: Exception) -> Exception:
        """Make every later run raise an error, release what the operations hold, and return the error."""
        self._failure = _copy_without_traceback(error)
        self._queue.clear()
        for operation in self._stateful:
            operation.close()
        return error

    def empty(self) -> bool:
        """Return whether all scheduled iterations were delivered."""
        return not self._queue

    def reset(self) -> None:
        """Begin a new epoch if the data has ended and everything was delivered; otherwise do nothing."""
        # An epoch begins only after everything of the last one was delivered.
        if not self._ended or self._queue or self._failure is not None:
            return
        self._ended, self._begun, self._owed, self._iteration = False, False, 0, 0
        self._epoch += 1
        for operation in self._stateful:
            operation.reset()
        # A checkpoint belongs to what was delivered, not to what was issued ahead.
        self._delivered = (self._number, 0, self._epoch)
        if self._checkpointing:
            self.keep_states()

    # State.

    def keep_states(self) -> None:
        """Record the present states of all operations as those of the latest delivery."""
        for operation in self._stateful:
            self._keep_state(operation, self._states)

    def state_dict(self) -> dict[str, Any]:
        """Return the counters and the states of the operations after the latest delivery."""
        number, iteration, epoch = self._delivered
        return {"number": number, "iteration": iteration, "epoch": epoch, "operations": dict(self._states)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state before the first iteration. Raise RuntimeError for a state of another graph."""
        counters = check_state("Pipeline", _COUNTERS, state)
        operations = {operation.name: operation for operation in self._stateful}
        for name, operation_state in counters["operations"].items():
            if name not in operations:
                raise RuntimeError(f"Pipeline: the checkpoint is of another graph: it has an operator {name!r}, this pipeline does not")
            operations[name].load_state_dict(operation_state)
        self._number, self._iteration, self._epoch = counters["number"], counters["iteration"], counters["epoch"]
        self._delivered = (self._number, self._iteration, self._epoch)
        self.keep_states()


def _copy_without_traceback(error: BaseException) -> BaseException:
    """Return an error without its traceback, whose frames refer to the pipeline: stored in it, they would be a cycle."""
    # Errors whose constructor takes other arguments cannot be copied.
    try:
        copied = copy.copy(error)
    except Exception:
        return error
    return copied if type(copied) is type(error) else error
