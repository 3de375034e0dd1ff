# SPDX-License-Identifier: Apache-2.0
"""Several readers that deliver the same samples together."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from typing_extensions import override

from ..._core.work.bad_samples import UnreadableSamples
from ..._core.work.sources import Sources
from .._base import Reader
from .._may_be_empty import MayBeEmpty
from .._sample_source import Collated, unwrap
from .._shared_steps import SharedSteps
from .._summary import brief
from .._waits import Waits, describe_slowest
from ..dataset._items import Items, first_sample

# Attributes that must be equal, with the names of their options for messages.
_SAME = {
    "num_shards": "num_shards",
    "shard_id": "shard_id",
    "_stick_to_shard": "stick_to_shard",
    "_pad_last_batch": "pad_last_batch",
    "_pad_shards": "pad_shards",
    "_random_shuffle": "random_shuffle",
    "_shuffle_after_epoch": "shuffle_after_epoch",
    "_on_error": "on_error",
    "max_batch_size": "max_batch_size",
    "_depth": "prefetch_queue_depth",
}


class InStep(MayBeEmpty):
    """Read sample k of several readers at the same time: a dict or a tuple of their outputs.

    A reader with one output stands for that output, not a 1-tuple, others for their tuple or dict. The order, the shards and the state are those of
    the first; the others must have the same options and the same number of samples. A sample that one reader cannot read is a bad sample of all.

    Raises:
        TypeError: an element is not a reader.
        ValueError: no readers, different options, a reader that has begun.
        RuntimeError: at the first step, different numbers of samples.
    """

    def __init__(self, readers: Any) -> None:
        parts: dict[Any, Any] = dict(readers) if isinstance(readers, Mapping) else dict(enumerate(readers))
        if not parts:
            raise ValueError("readers in step: at least one reader is required")
        for name, reader in parts.items():
            if not isinstance(reader, Reader):
                raise TypeError(f"readers in step: {name!r} must be a reader or a map-style data set, got {type(reader).__name__}")
            if isinstance(reader, SharedSteps):
                raise TypeError(f"readers in step: {name!r} is a {reader._op}, which determines the order of its samples itself; use readers.Join")
        (first_name, first), *others = parts.items()
        for name, reader in others:
            for attribute, option in _SAME.items():
                if getattr(reader, attribute) != getattr(first, attribute):
                    found = f"{getattr(first, attribute)!r} and {getattr(reader, attribute)!r}"
                    raise ValueError(f"readers in step: {option} must be the same for all; {first_name!r} and {name!r} have {found}")
            if reader._state.seeds != first._state.seeds:
                raise ValueError(f"readers in step: seed must be the same for all; {first_name!r} and {name!r} have {first._state.seeds[0]} "
                                 f"and {reader._state.seeds[0]}")  # fmt: skip
        for name, reader in parts.items():
            if reader._started:
                raise ValueError(f"readers in step: the reader {name!r} has already begun; create another for the loader")
        super().__init__(first.max_batch_size, "cpu", {})
        self._op, self._brief = "readers in step", brief(readers)
        # This reader steps like the first one; the parts are only asked for samples by number.
        for attribute in (*_SAME, "repeats_on_ranks", "_url_limits", "_state"):
            setattr(self, attribute, getattr(first, attribute))
        self._parts, self._named = parts, isinstance(readers, Mapping)
        self._waits = Waits(list(parts))
        self._can_change = any(reader._can_change for reader in parts.values())

    def scan(self) -> int:
        sizes = {name: reader.scan() if reader._size is None or reader._can_change else reader._size for name, reader in self._parts.items()}
        for name, reader in self._parts.items():
            # The parts are never stepped, so their sizes are set here, for messages and checks.
            reader._size = sizes[name]
        if len(set(sizes.values())) > 1:
            raise RuntimeError(f"{self._op}: all must have the same number of samples, got {sizes}")
        return next(iter(sizes.values()))

    @override
    def _is_empty(self) -> bool:
        return all(isinstance(reader, MayBeEmpty) and reader._is_empty() for reader in self._parts.values())

    def list_costs(self, column: str) -> np.ndarray:
        for reader in self._parts.values():
            # The first part that has the column.
            with suppress(ValueError):
                return reader.list_costs(column)
        return super().list_costs(column)

    def _source(self, sample: int) -> str:
        return next(iter(self._parts.values()))._source(sample)

    def _begin_source(self) -> None:
        for reader in self._parts.values():
            reader._begin_source()

    @override
    def _inner_readers(self) -> Sequence[Reader]:
        return list(self._parts.values())

    @override
    def start(self, samples: np.ndarray) -> dict[Any, Any]:
        return {name: reader.start(samples) for name, reader in self._parts.items()}

    @override
    def start_seeded(self, samples: np.ndarray, seeds: np.ndarray) -> dict[Any, Any]:
        # The same for all: data sets that draw alike, such as an image and its mask, crop alike.
        return {name: reader.start_seeded(samples, seeds) for name, reader in self._parts.items()}

    def finish(self, request: dict[Any, Any], samples: np.ndarray) -> Any:
        results: dict[Any, Any] = {}
        reasons: dict[int, str] = {}
        causes: dict[int, BaseException] = {}
        for part, (name, reader) in enumerate(self._parts.items()):
            try:
                with self._waits.measure(part):
                    results[name] = _alone(reader.finish(request[name], samples))
            except UnreadableSamples as bad:
                for k, reason in bad.reasons.items():
                    # Finish all parts before raising, so that no request is left half-finished; the first reason per sample is reported.
                    reasons.setdefault(k, f"{name!r}: {reader._source(int(samples[k]))}: {reason}")
                causes |= {k: cause for k, cause in bad.causes.items() if k not in causes}
        if reasons:
            raise UnreadableSamples(reasons, causes)
        outputs = {name: unwrap(result) for name, result in results.items()}
        delivered = outputs if self._named else tuple(outputs.values())
        # Of what a collate_fn returns, samples cannot be counted.
        if any(isinstance(result, Collated) for result in results.values()):
            return Collated(delivered, len(samples), Sources(self._source, samples))
        return delivered

    def _first(self, outputs: Any) -> Any:
        return first_sample(outputs)

    def describe_bottleneck(self) -> tuple[str, str]:
        return describe_slowest(list(self._parts), list(self._parts.values()), self._waits.seconds)


def _alone(outputs: Any) -> Any:
    if isinstance(outputs, Sequence) and len(outputs) == 1:
        return outputs[0]
    return tuple(outputs) if isinstance(outputs, Items) else outputs
