# SPDX-License-Identifier: Apache-2.0
"""Samples drawn with replacement, by weight."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import Unpack, override

from .._core import native
from .._core.context.device import DeviceLike
from .._core.context.states import whole
from ._base import Reader
from ._columns import read_column, read_values
from ._options import StepOptions
from ._ranges.ranges import address_of
from ._shared_steps import MAX_EPOCH, SharedSteps, StepOrder
from ._sources.inner import InnerSource
from ._state import State
from ._summary import brief

_BLOCK = 32  # weights
_SUMMED = 1 << 20  # weights that are summed up at a time: whole copies of 10^8 take gigabytes
_MASK = 2**64 - 1


class Weighted(SharedSteps):
    """Draw samples of a data set with replacement, each with a probability in proportion to its weight.

    Draw n of epoch e depends on the seed, e and n only: a number of a counter-based generator is looked up in the cumulative weights, without the
    draws before it. So an epoch resumes at any step on any number of ranks, whose steps share consecutive draws like those of :class:`Mix`. The
    cumulative weights take 8 bytes for each sample of the data set. The outputs are those of the source.

    Args:
        source: a reader, built without shards, or a map-style data set.
        max_batch_size: default batch size of :meth:`next_epoch`.
        device: ``"cpu"``.
        weights: a number for each sample, 0 or more, in any scale.
        balanced: in place of weights: the name of a column of labels. Each class is drawn equally often. Of a tuple of outputs, ``"label"`` is the
            last one. The labels are read at the first step: without the samples where the reader knows them (:class:`File`, columns of
            :class:`Parquet`, ``targets`` of torchvision's data sets), else from all samples.
        samples_per_epoch: draws of an epoch; by default the number of samples.
        seed: seed of the draws.
        shard_id, num_shards: of this process, ``**ndd.distributed.shard()``.
        pad_shards: repeat a sample at the end of an epoch where a rank would have one less than others, so that all take the same number of steps.
        on_error: ``"raise"`` RuntimeError for a sample that cannot be read; ``"skip"``: leave it out, so that this batch is smaller; ``"replace"``:
            repeat another sample of the batch. Nothing else moves, on no rank. A batch of bad samples only becomes the next good draw.
        prefetch_queue_depth: number of batches to read ahead.
        enable_checkpointing: allow ``get_state``. ``state_dict`` does not need it.

    Raises:
        TypeError: a source that is not a reader or a map-style data set, or that can only be read from its beginning.
        ValueError: a weight that is negative or not finite, or only zeros; neither ``weights`` nor ``balanced``, or both; a source with shards or an
            order of its own, or that has begun. At the first step: another number of weights than samples, or no such column.
        RuntimeError: for a source without samples, at the first step unless it is a data set; at any step, for a sample that cannot be read.

    >>> reader = Weighted([10, 11, 12, 13], weights=[0, 1, 0, 3], samples_per_epoch=8)
    >>> sorted({number for (values,) in reader.next_epoch(4) for number in values.torch().tolist()})
    [11, 13]
    """

    def __init__(
        self,
        source: Any,
        max_batch_size: int | None = None,
        device: DeviceLike = "cpu",
        *,
        weights: Any = None,
        balanced: str | None = None,
        samples_per_epoch: int | None = None,
        **loader: Unpack[StepOptions],
    ) -> None:
        super().__init__(max_batch_size, device, loader)
        if (weights is None) == (balanced is None):
            raise ValueError(f"{self._op}: give either weights or balanced, the name of a column of labels")
        if samples_per_epoch is not None and not 1 <= samples_per_epoch <= MAX_EPOCH:
            raise ValueError(f"{self._op}: samples_per_epoch must be a positive number, got {samples_per_epoch}")
        self._brief, self._balanced, self._per_epoch = brief(source), balanced, samples_per_epoch
        self._totals = None if weights is None else self._accumulate(weights)
        self._inner = InnerSource(self._op, "source", "the source", source)
        self._inner.reader.expect_random_order()
        self._needs, self._can_change = self._inner.reader._needs, self._inner.reader._can_change

    def _accumulate(self, weights: Any) -> np.ndarray:
        """Return the cumulative weights. Raise ValueError with the first sample whose weight is invalid."""
        values = np.asarray(weights)
        if values.ndim != 1 or values.dtype.kind not in "biuf":
            raise ValueError(f"{self._op}: weights must be one number for each sample, got an array of {values.dtype} of shape {values.shape}")
        totals, problem = np.empty(len(values), np.float64), "" if len(values) else "they are empty"
        for begin in range(0, len(values), _SUMMED):
            part = values[begin : begin + _SUMMED].astype(np.float64)
            wrong = np.flatnonzero(~(part >= 0) | np.isinf(part))  # NaN is not at least 0
            if len(wrong):
                problem = f"sample {begin + wrong[0]} has {values[begin + wrong[0]]}"
                break
            part[0] += totals[begin - 1] if begin else 0
            with np.errstate(over="ignore"):
                np.cumsum(part, out=totals[begin : begin + len(part)])
        if not problem and not np.isfinite(totals[-1]):
            problem = "their sum is infinite"
        if problem:
            raise ValueError(f"{self._op}: weights must be 0 or more, and finite; {problem}")
        if not totals[-1] > 0:
            raise ValueError(f"{self._op}: weights must not all be 0")
        return totals

    @override
    def scan(self) -> int:
        size = self._inner.scan()
        if self._totals is None:
            labels = self._read_labels(size)
            _, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
            # Each class has weight 1 in total. reshape, because NumPy 2.0 returns `inverse` in the shape of its input.
            self._totals = np.cumsum(1 / counts[inverse.reshape(-1)])
        if len(self._totals) != size:
            raise ValueError(f"{self._op}: there are {len(self._totals)} weights, but the source has {size} samples")
        return size

    def _read_labels(self, size: int) -> np.ndarray:
        assert self._balanced is not None
        known = self._inner.reader.list_labels() if self._balanced == "label" else None
        if known is not None:
            return known
        return np.concatenate([read_values(column) for column in read_column(self._op, self._inner, self._balanced, size)])

    @override
    def _begin_source(self) -> None:
        self._inner.reader._begin_source()
        if self._size is not None and self._can_change and (size := self._inner.scan()) != self._size:
            raise ValueError(f"{self._op}: the source has {size} samples now, but had {self._size}; create another reader for it")

    @override
    def build_steps(self) -> "_WeightedOrder":
        assert self._totals is not None
        return _WeightedOrder(
            self._per_epoch or len(self._totals),
            self.shard_id,
            self.num_shards,
            pad_shards=self._pad_shards,
            seed=self._state.seeds[0],
            totals=self._totals,
            # Every 32nd cumulative weight: the coarse table of the search in `compute`.
            blocks=self._totals[_BLOCK - 1 :: _BLOCK].copy(),
            running=self._state.era or _Running(0, 0),
        )

    def _source(self, sample: int) -> str:
        return self._inner.path(sample)

    @override
    def _inner_readers(self) -> Sequence[Reader]:
        return (self._inner.reader,)

    @override
    def start(self, samples: np.ndarray) -> Any:
        return self._inner.start(samples)

    @override
    def start_seeded(self, samples: np.ndarray, seeds: np.ndarray) -> Any:
        return self._inner.start(samples, seeds)

    @override
    def finish(self, request: Any, samples: np.ndarray) -> Any:
        return self._inner.finish_alone(request, samples)

    @override
    def describe_bottleneck(self) -> tuple[str, str]:
        return self._inner.reader.describe_bottleneck()

    @override
    def state_dict(self) -> dict[str, Any]:
        """Return the position of the consumer as a small dict, at any time, equal on all ranks. It fits any number of ranks and any batch size."""
        with self._lock:
            return {**self.encode_position(), "size": self._size}

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a position at any time. The next loop yields the rest of the epoch, which keeps its length.

        Raises:
            ValueError: not a result of :meth:`state_dict`, with the key; or of a source of another size. The reader does not move.
            RuntimeError: the source cannot be read, or has no samples.
        """
        self.move_to(self.parse_state(state))

    @override
    def parse_state(self, state: Any) -> State:
        content, found = self.decode_position({"size": whole(1)}, state)
        self.prepare_order()
        if content["size"] != self._size:
            raise ValueError(f"{self._op}: the source has {self._size} samples, but {content['size']} in the state")
        # At the beginning of an epoch its length is that of this reader, in the middle that of the saved one.
        return found._replace(era=_Running(content["epoch"], content["length"]) if content["at"] else None)


class _Running(NamedTuple):
    """The epoch in which a state was saved, and its number of draws."""

    epoch: int
    length: int


@dataclass(frozen=True)
class _WeightedOrder(StepOrder):
    """Draws as positions."""

    totals: np.ndarray = field(default_factory=lambda: np.ones(1), compare=False)
    """The cumulative weights."""
    blocks: np.ndarray = field(default_factory=lambda: np.ones(0), compare=False)
    """The last one of every whole block."""
    running: _Running = _Running(0, 0)  # noqa: RUF009 (immutable)

    @override
    def count(self, epoch: int) -> int:
        return self.running.length if self.running.length and epoch == self.running.epoch else self.size

    @override
    def compute(self, epoch: int, begin: int, end: int) -> np.ndarray:
        # One counter yields four numbers, and a window begins at a multiple of them.
        generator = np.random.Philox(counter=begin // 4, key=np.array([self.seed & _MASK, epoch & _MASK], np.uint64))
        numbers = (generator.random_raw(end - begin) >> np.uint64(11)) * 2.0**-53
        # The product may be rounded up to the total, behind the last sample that has a weight.
        places = np.minimum(numbers * self.totals[-1], np.nextafter(self.totals[-1], 0))
        # Neighbors are found in the same part of the table of blocks, which fits into a cache, and then in one block: with 10^8 weights that takes
        # 0.3 us for each, and 5 us by searching all of them.
        order = np.argsort(places)
        found, sorted_samples = places[order], np.empty(len(places), np.int64)
        tables = address_of(self.totals), len(self.totals), address_of(self.blocks), _BLOCK
        native.find_weights(*tables, address_of(found), len(found), address_of(sorted_samples))
        samples = np.empty(len(places), np.int64)
        samples[order] = sorted_samples
        return samples
