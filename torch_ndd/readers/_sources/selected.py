# SPDX-License-Identifier: Apache-2.0
"""Samples of one or several readers in any order: subsets and concatenations of natively read data sets."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset
from typing_extensions import override

from ..._core.work.bad_samples import UnreadableSamples
from ..._core.work.sources import Sources
from .._base import Reader
from .._merge import merge_outputs
from .._read_ahead import start
from .._summary import brief


def flat_dataset(source: Any, native: Any = None) -> Any:
    """Flatten nested ``Subset`` and ``ConcatDataset`` of native data sets into one native data set; return any other source unchanged.

    ``native`` converts a data set to a native one if possible.
    """
    kind = type(source)
    # Only these exact types: a subclass may override __getitem__.
    if kind is Subset:
        inner = flat_dataset(source.dataset, native)
        return inner.select_samples(_indices(source.indices, len(inner))) if hasattr(inner, "select_samples") else source
    if kind is ConcatDataset:
        parts = [flat_dataset(part, native) for part in source.datasets]
        # All or nothing: parts that cannot be read together stay a torch data set.
        joined = parts[0].join_with(parts[1:]) if all(hasattr(part, "join_with") for part in parts) else None
        return source if joined is None else joined
    return source if native is None else native(source)


def is_native(source: Any) -> bool:
    """Return whether a data set chooses a reader, which refuses to be empty: a part of a split of a few samples yields nothing, as in torch."""
    return hasattr(source, "choose_reader") and (not hasattr(source, "__len__") or len(source) > 0)


def _indices(indices: Any, size: int) -> np.ndarray:
    found = np.asarray(indices if isinstance(indices, np.ndarray | torch.Tensor) else list(indices), np.int64)
    outside = found[(found < -size) | (found >= size)]
    if len(outside):
        raise IndexError(f"DataLoader: the Subset has index {outside[0]}, but its data set has only {size} items")
    # Negative indices count from the end, as in a list.
    return found % size if size else found


class Selected(Reader):
    """Sample k is sample ``numbers[k]`` of reader ``which[k]``. All readers have the same outputs."""

    def __init__(self, parts: Sequence[Reader], which: np.ndarray, numbers: np.ndarray, options: Mapping[str, Any]) -> None:
        super().__init__(None, "cpu", options)
        self._op, self._brief = parts[0]._op, brief(tuple(parts))
        self._parts, self._which, self._numbers = parts, which, numbers

    def scan(self) -> int:
        for part in self._parts:
            part._size = part.scan()
        return len(self._numbers)

    def _source(self, sample: int) -> str:
        return self._parts[self._which[sample]]._source(int(self._numbers[sample]))

    def list_costs(self, column: str) -> np.ndarray:
        costs = [part.list_costs(column) for part in self._parts]
        begins = np.cumsum([0, *map(len, costs)])
        # Costs of all parts one after the other; `begins` is where those of each part start.
        return np.concatenate(costs)[begins[self._which] + self._numbers]

    @override
    def _inner_readers(self) -> Sequence[Reader]:
        return self._parts

    @override
    def start(self, samples: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray, Any]]:
        return self.start_seeded(samples, None)

    @override
    def start_seeded(self, samples: np.ndarray, seeds: np.ndarray | None) -> list[tuple[int, np.ndarray, np.ndarray, Any]]:
        which, numbers = self._which[samples], self._numbers[samples]
        started = []
        for part in np.unique(which).tolist():
            places = np.flatnonzero(which == part)
            request = start(self._parts[part], numbers[places], None if seeds is None else seeds[places])
            started.append((part, places, numbers[places], request))
        return started

    def finish(self, request: list[tuple[int, np.ndarray, np.ndarray, Any]], samples: np.ndarray) -> Any:
        found, reasons, causes = [], {}, {}
        for part, places, numbers, started in request:
            try:
                found.append((places, self._parts[part].finish(started, numbers)))
            except UnreadableSamples as bad:
                reasons |= {int(places[k]): reason for k, reason in bad.reasons.items()}
                causes |= {int(places[k]): cause for k, cause in bad.causes.items()}
        if reasons:
            raise UnreadableSamples(reasons, causes)
        if len(found) == 1:
            return found[0][1]
        # The parts deliver their samples grouped; argsort of the places restores the order of the batch.
        merged = merge_outputs([outputs for _, outputs in found], np.argsort(np.concatenate([places for places, _ in found])))
        for k, batch in enumerate(merged):
            if any(outputs[k].sources for _, outputs in found):
                batch.sources = Sources(self._source, samples)
        return merged

    def describe_bottleneck(self) -> tuple[str, str]:
        return self._parts[0].describe_bottleneck()
