# SPDX-License-Identifier: Apache-2.0
"""``LastBatchPolicy``, and what the iterators of all frameworks have in common: epochs over the endless output of pipelines."""

import logging
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from ..._core.context.states import check_state
from .. import types
from .._checkpoint import save
from ._epochs import Epochs, LastBatchPolicy, epochs_of

__all__ = ["LastBatchPolicy"]

_log = logging.getLogger(__name__)
_RESETS = {"yes": True, "True": True, True: True, "no": False, "False": False, False: False, None: False}


class BaseIterator:
    """Iterate over the outputs of pipelines, epoch by epoch. A subclass converts the outputs."""

    def __init__(
        self,
        pipelines: Any,
        size: int = -1,
        reader_name: str | None = None,
        auto_reset: str | bool | None = False,
        fill_last_batch: bool | None = None,
        last_batch_padded: bool = False,
        last_batch_policy: LastBatchPolicy = LastBatchPolicy.FILL,
        prepare_first_batch: bool = True,
    ) -> None:
        self._op = type(self).__name__
        self._pipes: list[Any] = list(pipelines) if isinstance(pipelines, Sequence) else [pipelines]
        if not self._pipes or None in self._pipes:
            raise AssertionError(f"{self._op}: there must be at least one pipeline")
        if fill_last_batch is not None:
            warnings.warn(
                f"{self._op}: fill_last_batch is deprecated; use last_batch_policy=LastBatchPolicy.FILL for True, PARTIAL for False",
                DeprecationWarning,
                stacklevel=3,
            )
            last_batch_policy = LastBatchPolicy.FILL if fill_last_batch else LastBatchPolicy.PARTIAL
        if not isinstance(last_batch_policy, LastBatchPolicy):
            raise ValueError(f"{self._op}: last_batch_policy must be a member of LastBatchPolicy, got {last_batch_policy!r}")
        reader_name = reader_name or None  # programs of before there was this parameter give auto_reset=False in its place
        self._auto_reset = self._checked_reset(auto_reset)
        self._check_counts(size, reader_name, last_batch_padded)
        for pipe in self._pipes:
            pipe.build()
            with _used(pipe):  # by an iterator from now on
                pass
        self.batch_size: int = self._same("batch_size", [pipe.max_batch_size for pipe in self._pipes], AssertionError)
        self._checkpointing: bool = self._same("enable_checkpointing", [pipe.enable_checkpointing for pipe in self._pipes], ValueError)
        metas = None if reader_name is None else [pipe.reader_meta(reader_name) for pipe in self._pipes]
        self._epochs: Epochs = epochs_of(self._op, len(self._pipes), self.batch_size, size, metas, last_batch_padded, last_batch_policy)
        # Under DALI's names: subclasses in real programs compute their length from these.
        self._num_gpus, self._last_batch_policy, self._reader_name = len(self._pipes), last_batch_policy, reader_name
        self._last_batch_padded = last_batch_padded if metas is None else bool(metas[0]["pad_last_batch"])
        if metas is not None:
            self._size_no_pad, self._shards_num = metas[0]["epoch_size"], metas[0]["number_of_shards"]
        self._scheduled = False  # the first batches
        self._ended = False  # the epoch
        self._first_batch: Any = None  # under DALI's name: iterators of real programs take it
        self._restore()
        self._initial = self._states() if self._checkpointing and prepare_first_batch else None
        if prepare_first_batch:
            self._prepare()

    def _checked_reset(self, value: Any) -> bool:
        try:
            return _RESETS[value]
        except (KeyError, TypeError):
            raise ValueError(f'{self._op}: auto_reset must be True, False, None, "yes" or "no", got {value!r}') from None

    def _check_counts(self, size: int, reader_name: str | None, last_batch_padded: bool) -> None:
        if size == 0:
            raise AssertionError(f"{self._op}: size must be positive, or -1 for as many samples as there are, got 0")
        if reader_name is not None and size > 0:
            raise AssertionError(f"{self._op}: give reader_name or size, not both: the reader knows its size")
        if reader_name is not None and last_batch_padded:
            raise AssertionError(f"{self._op}: give reader_name or last_batch_padded, not both: the reader knows whether it pads")
        if reader_name is None and size < 0 and len(self._pipes) > 1:
            raise AssertionError(f"{self._op}: several pipelines need reader_name or size, so that their epochs end together")
        if size > 0:
            warnings.warn(f"{self._op}: prefer reader_name to size, so that shards and padding are counted", Warning, stacklevel=4)

    def _same(self, what: str, values: list[Any], error: type[Exception]) -> Any:
        if any(value != values[0] for value in values):
            raise error(f"{self._op}: all pipelines must have the same {what}, got {values}")
        return values[0]

    def _prepare(self) -> None:
        try:
            self._first_batch = self._produced()
        except StopIteration:
            if not any(pipe.is_restored_from_checkpoint for pipe in self._pipes):
                raise RuntimeError(f"{self._op}: there is not one batch; with LastBatchPolicy.DROP an epoch needs at least a full one") from None

    # To be implemented by subclasses.

    def _converted(self, outputs: Sequence[Any], kept: int) -> Any:
        """Return the first ``kept`` samples of the outputs of one pipeline."""
        raise NotImplementedError

    # Iteration.

    def __iter__(self) -> Any:
        if self._is_over():
            self.reset()
        return self

    def __next__(self) -> Any:
        """Return the next batch of each pipeline. Raise StopIteration at the end of the epoch."""
        first, self._first_batch, self._initial = self._first_batch, None, None
        return self._produced() if first is None else first

    def next(self) -> Any:
        """Return the next batch of each pipeline. Raise StopIteration at the end of the epoch."""
        return next(self)

    def _produced(self) -> Any:
        if self._ended:
            raise StopIteration
        if self._epochs.ended():
            self._end()
        try:
            outputs = self._outputs()
        except StopIteration:
            raise
        except Exception:
            self._epochs.step()  # the batch that failed counts: the readers have passed it
            raise
        return [self._converted(one, kept) for one, kept in zip(outputs, self._epochs.step(), strict=False)]

    def _outputs(self) -> list[Any]:
        """Return the next outputs of each pipeline, and issue another iteration."""
        if not self._scheduled:
            self._schedule()
        outputs: list[Any] = []
        failed: Exception | None = None
        for pipe in self._pipes:
            try:
                with _used(pipe):
                    outputs.append(pipe.share_outputs())
            except StopIteration:
                self._end()
            except Exception as error:  # the other pipelines go on to the next iteration too
                failed = failed or error
        for pipe in self._pipes:
            with _used(pipe):
                pipe.release_outputs()
                pipe.schedule_run()
        if failed is not None:
            try:
                raise failed
            finally:
                del failed  # its traceback has this frame: the cycle would keep the pipelines
        if self._epochs.counts:
            sizes = [len(one) for of_pipe in outputs for one in of_pipe]
            if any(size != self.batch_size for size in sizes):
                wanted = f"with reader_name or size each batch must have {self.batch_size} samples"
                raise AssertionError(f"{self._op}: {wanted}, got {sizes}; give neither to let them vary")
        return outputs

    def _is_over(self) -> bool:
        """Return whether all batches of the epoch were taken."""
        exhausted = self._scheduled and all(pipe.empty() for pipe in self._pipes)
        return self._ended or (self._first_batch is None and (exhausted or self._epochs.ended()))

    def _schedule(self) -> None:
        self._scheduled = True
        for pipe in self._pipes:
            if pipe.empty():
                with _used(pipe):
                    pipe.schedule_run()

    def _end(self) -> None:
        """End the epoch: raise StopIteration."""
        self._ended = True
        if self._auto_reset:
            self.reset()
        raise StopIteration

    def reset(self) -> None:
        """Begin the next epoch. In the middle of one it only logs a warning: the loop may continue."""
        if not self._is_over():
            _log.warning("%s.reset: the epoch has not ended; reset has no effect", self._op)
            return
        if not self._scheduled:  # restored at the end of an epoch: as at the iterator that was saved, sources are asked ahead and may end
            self._schedule()
        self._ended, self._initial = False, None
        skipped = self._epochs.restart()
        for pipe in self._pipes:
            pipe.reset()
        self._schedule()
        for _ in range(skipped):
            self._outputs()

    def __len__(self) -> int:
        """Number of batches in the epoch; 0 if only the data say when it ends."""
        return self._epochs.steps()

    @property
    def size(self) -> int:
        """Number of samples in the epoch; -1 if only the data say when it ends."""
        return self._epochs.size

    @property
    def _size(self) -> int:
        # Training programs compute the batches of an epoch from it, that of DALI's documentation too.
        return self.size

    # Checkpoints.

    def checkpoints(self) -> list[bytes]:
        """Return the state of each pipeline after the last batch that was taken, with this iterator's place in the epoch.

        Give each to its pipeline's ``checkpoint=`` and make the iterator as before: it goes on from there. Raise ValueError without
        ``enable_checkpointing``.
        """
        if not self._checkpointing:
            raise ValueError(f"{self._op}.checkpoints: checkpointing is not enabled; give the pipelines enable_checkpointing=True")
        return self._initial if self._initial is not None else self._states()

    def _states(self) -> list[bytes]:
        place = self._epochs.state_dict()
        return [save(pipe, iterator=place) for pipe in self._pipes]

    def _restore(self) -> None:
        states = [getattr(pipe, "_iterator_state", None) for pipe in self._pipes]
        given = [state for state in states if state is not None]
        if not given:
            return
        if any(state != given[0] for state in states):
            raise RuntimeError(f"{self._op}: the checkpoint cannot be restored: those of the pipelines must be of one call of checkpoints()")
        try:
            self._epochs.load_state_dict(check_state(self._op, self._epochs.state, given[0]))
        except ValueError as error:
            raise RuntimeError(f"{self._op}: the checkpoint cannot be restored: {error}") from None


def _used(pipe: Any) -> Any:
    used = getattr(pipe, "_used_as", None)
    return nullcontext() if used is None else used(types.PipelineAPIType.ITERATOR)
