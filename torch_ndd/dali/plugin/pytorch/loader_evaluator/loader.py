# SPDX-License-Identifier: Apache-2.0
"""``LoaderEvaluator``."""

import itertools
import json
import time
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args

from ....._core.process.files import write_whole
from ....._core.suggestions import check_choice

__all__ = ["LoaderEvaluator"]

Mode = Literal["log", "replay"]


class LoaderEvaluator:
    """Measure the time for each batch of a loader, or replay batches from memory.

    The difference between a training with ``mode="log"`` and one with ``mode="replay"`` is the cost of loading.

    Args:
        dataloader: A loader, for example a ``torch.utils.data.DataLoader`` or a DALI iterator.
        mode: ``"log"`` iterates over the loader and measures; ``"replay"`` stores the first batches in memory, in the constructor, and repeats them
            until there are as many as the loader has.
        num_cached_batches: Number of batches to store.
        metrics_file: Default file of :meth:`save_metrics`; each loop writes it at its end.

    Raises:
        ValueError: another mode, or a number that is not positive.
        RuntimeError: nothing to replay, because the loader is empty.

    >>> evaluator = LoaderEvaluator([[1], [2], [3]], mode="replay", num_cached_batches=2)
    >>> list(evaluator)
    [[1], [2], [1]]
    >>> evaluator.get_metrics()["total_batches"]
    3
    """

    def __init__(self, dataloader: Iterable[Any], mode: Mode = "log", num_cached_batches: int = 20, metrics_file: str | None = None) -> None:
        check_choice("LoaderEvaluator", "mode", mode, get_args(Mode), ValueError)
        if num_cached_batches < 1:
            raise ValueError(f"LoaderEvaluator: num_cached_batches must be positive, got {num_cached_batches}")
        self.dataloader, self.mode = dataloader, mode
        self.num_cached_batches, self.metrics_file = num_cached_batches, metrics_file
        self.cached_batches: list[Any] = []
        self.cache_ready = False
        self.batch_times: list[float] = []
        self._begun = self._ended = 0.0
        if mode == "replay":
            self.cached_batches = list(itertools.islice(dataloader, num_cached_batches))
            if not self.cached_batches:
                raise RuntimeError("LoaderEvaluator: the loader has no batch to replay")
            self.cache_ready = True

    def __len__(self) -> int:
        """Number of batches of the loader."""
        return len(self.dataloader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches, and measure the time for each."""
        # In replay mode the cached batches repeat for as long as the loader would last.
        batches = iter(self.dataloader) if self.mode == "log" else itertools.islice(itertools.cycle(self.cached_batches), len(self))
        self.batch_times = []
        self._begun = self._ended = time.perf_counter()
        try:
            while True:
                begin = time.perf_counter()
                try:
                    batch = next(batches)
                except StopIteration:
                    break
                self._ended = time.perf_counter()
                self.batch_times.append(self._ended - begin)
                yield batch
        finally:
            # Also if the loop is left early: the metrics then cover what was measured.
            self._ended = time.perf_counter()
            if self.metrics_file is not None:
                self.save_metrics()

    def get_metrics(self) -> dict[str, Any]:
        """Return the times of the latest loop in seconds; an empty dict before the first one."""
        times = self.batch_times
        if not times:
            return {}
        return {
            "mode": self.mode,
            "total_batches": len(times),
            "total_time": self._ended - self._begun,
            "avg_batch_time": sum(times) / len(times),
            "min_batch_time": min(times),
            "max_batch_time": max(times),
            "batch_times": list(times),
            "cached_batches": len(self.cached_batches),
            "cache_ready": self.cache_ready,
        }

    def save_metrics(self, filename: str | None = None) -> None:
        """Write the metrics to a file as JSON: ``filename``, or the constructor's ``metrics_file``. Without either, print a message."""
        target = self.metrics_file if filename is None else filename
        if target is None:
            print("No filename provided for saving metrics")
            return
        write_whole(target, json.dumps(self.get_metrics(), indent=2))

    def print_summary(self) -> None:
        """Print the loader and the metrics."""
        print("Loader Evaluator Summary:")
        print(f"  Mode: {self.mode}")
        dataset = getattr(self.dataloader, "dataset", None)
        if hasattr(dataset, "__len__"):
            print(f"  Dataset size: {len(dataset)}")  # type: ignore[arg-type]
        if hasattr(self.dataloader, "__len__"):
            print(f"  Number of batches: {len(self)}")
        print(f"  Cache size: {len(self.cached_batches)}/{self.num_cached_batches}")
        print(f"  Cache ready: {self.cache_ready}")
        metrics = self.get_metrics()
        if metrics:
            print(f"  Total batches processed: {metrics['total_batches']}")
            print(f"  Total time: {metrics['total_time']:.2f}s")
            for key in ("avg", "min", "max"):
                name = {"avg": "Average", "min": "Min", "max": "Max"}[key]
                print(f"  {name} batch time: {metrics[f'{key}_batch_time']:.4f}s")
