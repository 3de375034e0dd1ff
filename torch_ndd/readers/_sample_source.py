# SPDX-License-Identifier: Apache-2.0
"""What a reader reads: the methods that its subclasses define. Loaders and pipelines call them too; README.md lists all internal names."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset

from .._core.values.batch import Batch
from ._key_table import KeyTable
from ._keys import Keys
from ._order import Order


class SampleSource(IterableDataset):
    """Samples that are known by their numbers, and read in batches."""

    _op: str
    """The name of the reader, for messages."""
    _brief = ""
    """The source in a few words."""
    _can_change = False
    """Whether the source may change between epochs: samples are then counted again, and nothing is read before the epoch begins."""

    draw_seed: int | None = None
    """The seed of the random numbers that data sets draw, from a loader; by default that of the order.

    :meta private:
    """

    def _inner_readers(self) -> Sequence["SampleSource"]:
        """Return the readers that deliver the samples of this one."""
        return ()

    def draws(self) -> bool:
        """Return whether a data set reads the samples, which may draw random numbers.

        :meta private:
        """
        return any(reader.draws() for reader in self._inner_readers())

    def reads_here(self) -> bool:
        """Return whether the program's thread must read: a data set draws from generators that all threads share.

        :meta private:
        """
        return any(reader.reads_here() for reader in self._inner_readers())

    def is_quick(self) -> bool:
        """Return whether the thread that wants a batch reads it, because its samples are quicker than handing them from thread to thread.

        :meta private:
        """
        return False

    def scan(self) -> int:
        """Find the samples and return their number. Raise RuntimeError on failure; the next step then scans again.

        :meta private:
        """
        raise NotImplementedError

    def _source(self, sample: int) -> str:
        """Return the path or name of a sample, for messages."""
        raise NotImplementedError

    def start(self, samples: np.ndarray) -> Any:
        """Start reading the samples without waiting, and return a request for :meth:`finish`.

        :meta private:
        """
        raise NotImplementedError

    def start_seeded(self, samples: np.ndarray, seeds: np.ndarray) -> Any:
        """Start reading the samples like :meth:`start`. What a data set draws for a sample follows from its seed, int64 (N,).

        :meta private:
        """
        return self.start(samples)

    def start_heads(self, samples: np.ndarray, size: int) -> Any:
        """Start reading the samples like :meth:`start`, but of files possibly no more than the first ``size`` bytes.

        :meta private:
        """
        return self.start(samples)

    def finish(self, request: Any, samples: np.ndarray) -> tuple[Batch, ...] | dict[str, Batch]:
        """Wait for a request of :meth:`start` and return its batches. Raise UnreadableSamples for samples that cannot be read.

        :meta private:
        """
        raise NotImplementedError

    def read_samples(self, samples: np.ndarray) -> tuple[Batch, ...] | dict[str, Batch]:
        """Read samples and wait for them; on the calling thread where one thread reads a batch. Raise UnreadableSamples like :meth:`finish`.

        :meta private:
        """
        return self.finish(self.start(samples), samples)

    def read_matching(self, column: str, keys: Keys, table: KeyTable) -> dict[str, Batch] | None:
        """Return the outputs of the samples whose ``column`` has these keys, without it; None where :meth:`read_samples` is as fast.

        ``table`` finds the samples. None also if a key differs, has no sample, or if a sample cannot be read.

        :meta private:
        """
        return None

    def expect_random_order(self) -> None:
        """Prepare for another reader that will take samples in random order.

        :meta private:
        """

    def list_labels(self) -> np.ndarray | None:
        """Return the label of each sample, (N,), if they are known without reading the samples.

        :meta private:
        """
        return None

    def list_costs(self, column: str) -> np.ndarray:
        """Return a number for each sample, (N,) or (N, k), without reading the samples. NaN stands for a missing one.

        Raise ValueError unless the source has such numbers under this name.

        :meta private:
        """
        raise ValueError(
            f"{self._op}: it has no column {column!r} of numbers to plan batches with; compute them with batches.measure, or pass an array"
        )

    def describe_bottleneck(self) -> tuple[str, str]:
        """Return what a loader waits for, and advice on how to speed it up.

        :meta private:
        """
        fewer = "from fewer and larger files (readers.Webdataset, readers.TFRecord), or from a faster disk"
        return "files", f"read further ahead (prefetch_queue_depth), {fewer}"

    def _begin_source(self) -> None:
        """Prepare a source that can change for an epoch."""

    def _customize_order(self, order: Order) -> Order:
        """Return the order to use; subclasses may replace it."""
        return order

    def _replacement_groups(self, samples: np.ndarray) -> np.ndarray:
        """Return a number for each sample; a bad one is replaced by one with the same number if possible."""
        return np.zeros(len(samples), np.int64)

    def _first(self, outputs: Any) -> Any:
        """Return the first sample of the outputs."""
        return {name: batch.nth(0) for name, batch in outputs.items()} if isinstance(outputs, dict) else tuple(batch.nth(0) for batch in outputs)


class Collated:
    """The result of a ``collate_fn``, with the number of its samples, which a loader cannot count."""

    def __init__(self, value: Any, samples: int, sources: Sequence[str]) -> None:
        self.value, self.samples, self.sources = value, samples, sources


def unwrap(outputs: Any) -> Any:
    """Return the outputs of a reader as a program gets them."""
    return outputs.value if isinstance(outputs, Collated) else outputs
