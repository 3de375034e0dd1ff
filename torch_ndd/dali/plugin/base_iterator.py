# SPDX-License-Identifier: Apache-2.0
"""``LastBatchPolicy``, and the base of the iterators: epochs over the endless output of pipelines."""

import logging
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import Any, NoReturn

from ..._core.context.states import check_state
from .. import types
from ._epochs import Epochs, LastBatchPolicy, make_epochs

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
        reader_name = reader_name or None  # programs from before this parameter pass auto_reset=False in its position
        self._auto_reset = self._parse_reset(auto_reset)
        self._check_counts(size, reader_name, last_batch_padded)
        for pipe in self._pipes:
            pipe.build()
            with _use(pipe):  # from now on the pipeline belongs to the iterator
                pass
        self.batch_size: int = self._require_same("batch_size", [pipe.max_batch_size for pipe in self._pipes], AssertionError)
        self._checkpointing: bool = self._require_same("enable_checkpointing", [pipe.enable_checkpointing for pipe in self._pipes], ValueError)
        metas = None if reader_name is None else [pipe.reader_meta(reader_name) for pipe in self._pipes]
        self._epochs: Epochs = make_epochs(self._op, len(self._pipes), self.batch_size, size, metas, last_batch_padded, last_batch_policy)
        # DALI's names: subclasses in real programs compute their length from these attributes.
        self._num_gpus, self._last_batch_policy, self._reader_name = len(self._pipes), last_batch_policy, reader_name
        self._last_batch_padded = last_batch_padded if metas is None else bool(metas[0]["pad_last_batch"])
        if metas is not None:
            self._size_no_pad, self._shards_num = metas[0]["epoch_size"], metas[0]["number_of_shards"]
        self._scheduled = False  # the first batches
        self._ended = False  # the epoch
        self._first_batch: Any = None  # DALI's name: subclasses in real programs read it
        self._restore()
        self._initial = self._states() if self._checkpointing and prepare_first_batch else None
        if prepare_first_batch:
            self._prepare()

    def _parse_reset(self, value: Any) -> bool:
        try:
            return _RESETS[value]
        except (KeyError, TypeError):
            raise ValueError(f'{self._op}: auto_reset must be True, False, None, "yes" or "no", got {value!r}') from None

    def _check_counts(self, size: int, reader_name: str | None, last_batch_padded: bool) -> None:
        if size == 0:
            raise AssertionError(f"{self._op}: size must be positive, or -1 for as many samples as there are, got 0")
        if reader_name is not None and size > 0:
            raise AssertionError(f"{self._op}: give reader_name or size, not both: the reader determines the size")
        if reader_name is not None and last_batch_padded:
            raise AssertionError(f"{self._op}: give reader_name or last_batch_padded, not both: the reader determines the padding")
        if reader_name is None and size < 0 and len(self._pipes) > 1:
            raise AssertionError(f"{self._op}: several pipelines need reader_name or size, so their epochs end together")
        if size > 0:
            warnings.warn(f"{self._op}: prefer reader_name to size, so shards and padding are counted", Warning, stacklevel=4)

    def _require_same(self, what: str, values: list[Any], error: type[Exception]) -> Any:
        if any(value != values[0] for value in values):
            raise error(f"{self._op}: all pipelines must have the same {what}, got {values}")
        return values[0]

    def _prepare(self) -> None:
        try:
            self._first_batch = self._produce()
        except StopIteration:
            if not any(pipe.is_restored_from_checkpoint for pipe in self._pipes):
                raise RuntimeError(f"{self._op}: the epoch has no batches; with LastBatchPolicy.DROP it needs at least a full one") from None

    # To be implemented by subclasses.

    def _convert(self, outputs: Sequence[Any], kept: int) -> Any:
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
        # The batch that the constructor prepared comes first.
        return self._produce() if first is None else first

    def next(self) -> Any:
        """Return the next batch of each pipeline. Raise StopIteration at the end of the epoch."""
        return next(self)

    def _produce(self) -> Any:
        if self._ended:
            raise StopIteration
        if self._epochs.is_over():
            self._end()
        try:
            outputs = self._outputs()
        except StopIteration:  # the data ended: the epoch is over for all pipelines
            self._end()
        except Exception:
            self._epochs.step()  # the failed batch counts: the readers have passed it
            raise
        return [self._convert(outputs_of_pipe, kept) for outputs_of_pipe, kept in zip(outputs, self._epochs.step(), strict=False)]

    def _outputs(self) -> list[Any]:
        """Return the next outputs of each pipeline, and issue another iteration. Raise StopIteration if the data ended."""
        if not self._scheduled:
            self._schedule()
        outputs: list[Any] = []
        failed: Exception | None = None
        for pipe in self._pipes:
            try:
                with _use(pipe):
                    outputs.append(pipe.share_outputs())
            except StopIteration:
                raise
            except Exception as error:  # the other pipelines must take this iteration too, to stay in step
                failed = failed or error
        for pipe in self._pipes:
            with _use(pipe):
                pipe.release_outputs()
                pipe.schedule_run()
        if failed is not None:
            try:
                raise failed
            finally:
                del failed  # its traceback refers to this frame: the cycle would keep the pipelines alive
        if self._epochs.counts:
            sizes = [len(output) for outputs_of_pipe in outputs for output in outputs_of_pipe]
            # Counting samples needs full batches: a shorter one would end the epoch in the wrong place.
            if any(size != self.batch_size for size in sizes):
                wanted = f"with reader_name or size each batch must have {self.batch_size} samples"
                raise AssertionError(f"{self._op}: {wanted}, got {sizes}; give neither to let them vary")
        return outputs

    def _is_over(self) -> bool:
        """Return whether all batches of the epoch were taken."""
        exhausted = self._scheduled and all(pipe.empty() for pipe in self._pipes)
        # The first batch, if it was prepared, is still to be taken.
        return self._ended or (self._first_batch is None and (exhausted or self._epochs.is_over()))

    def _schedule(self) -> None:
        self._scheduled = True
        for pipe in self._pipes:
            if pipe.empty():
                with _use(pipe):
                    pipe.schedule_run()

    def _end(self) -> NoReturn:
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
        if not self._scheduled:  # restored at the end of an epoch: sources must be pulled ahead, and may end, as in the saved iterator
            self._schedule()
        self._ended, self._initial = False, None
        # With DROP, the incomplete last batch of each pipeline is taken and thrown away.
        for _ in range(self._epochs.restart()):
            with suppress(StopIteration):  # the data ended at the end of the epoch, so no partial batch is left
                self._outputs()
        for pipe in self._pipes:
            pipe.reset()
        self._schedule()

    def __len__(self) -> int:
        """Number of batches in the epoch. If it ends when the data ends: 0, or a ValueError for batches of one sample, as in DALI."""
        return self._epochs.steps(self._op)

    @property
    def size(self) -> int:
        """Number of samples in the epoch; -1 if it ends when the data ends."""
        return self._epochs.size

    @property
    def _size(self) -> int:
        # Training programs compute the number of batches from it, as the one in DALI's documentation.
        return self.size

    # Checkpoints.

    def checkpoints(self) -> list[bytes]:
        """Return the state of each pipeline after the last batch that was taken, with this iterator's place in the epoch.

        Pass each to its pipeline's ``checkpoint=`` and create the iterator as before: it continues there. Raise ValueError without
        ``enable_checkpointing``.
        """
        if not self._checkpointing:
            raise ValueError(f"{self._op}.checkpoints: checkpointing is not enabled; give the pipelines enable_checkpointing=True")
        # Before the first next(), the state is that from before the prepared batch.
        return self._initial if self._initial is not None else self._states()

    def _states(self) -> list[bytes]:
        place = self._epochs.state_dict()
        return [pipe._save_checkpoint(iterator=place) for pipe in self._pipes]

    def _restore(self) -> None:
        states = [getattr(pipe, "_iterator_state", None) for pipe in self._pipes]
        stored = [state for state in states if state is not None]
        if not stored:
            return
        if any(state != stored[0] for state in states):
            raise RuntimeError(f"{self._op}: the checkpoint cannot be restored: the pipelines need checkpoints of the same call of checkpoints()")
        try:
            self._epochs.load_state_dict(check_state(self._op, self._epochs.state, stored[0]))
        except ValueError as error:
            raise RuntimeError(f"{self._op}: the checkpoint cannot be restored: {error}") from None


def _use(pipe: Any) -> Any:
    use_as = getattr(pipe, "_use_as", None)
    return nullcontext() if use_as is None else use_as(types.PipelineAPIType.ITERATOR)
