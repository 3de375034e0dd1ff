# SPDX-License-Identifier: Apache-2.0
"""One column of all samples of a reader, such as labels or keys."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .._core.values.batch import Batch
from .._core.work.bad_samples import UnreadableSamples
from ._sources.inner import InnerSource

_SAMPLES_AT_ONCE = 16384


def read_column(op: str, source: InnerSource, name: str, size: int) -> Iterator[Any]:
    """Yield a column of all samples, some thousands at a time. Raise ValueError if there is none of this name, RuntimeError for a bad sample."""
    narrow, ahead = source.narrow(name), None
    at_once = _SAMPLES_AT_ONCE if narrow is not source else 256  # whole samples, perhaps images
    # One more round, without samples, to finish the last request: the next piece is read while this one is processed.
    for begin in [*range(0, size, at_once), size]:
        samples = np.arange(begin, min(begin + at_once, size))
        following = (narrow.start(samples), samples) if len(samples) else None
        if ahead is not None:
            try:
                outputs = narrow.finish(*ahead)
            except UnreadableSamples as bad:
                first = min(bad.reasons)
                sample = int(ahead[1][first])
                raise RuntimeError(f"{op}: {source.what}: {name} of sample {sample} ({source.path(sample)}): {bad.reasons[first]}") from None
            yield find_column(op, source.what, outputs, name)
        ahead = following


def find_column(op: str, what: str, outputs: Any, name: str) -> Any:
    """Return an output by name; ``"label"`` is the last one of a tuple."""
    if isinstance(outputs, Mapping):
        if name in outputs:
            return outputs[name]
        raise ValueError(f"{op}: {what} has no output {name!r}, but {', '.join(map(str, outputs))}")
    if name == "label" and len(outputs) > 1:
        return outputs[-1]
    raise ValueError(f"{op}: {what} has {len(outputs)} outputs without names; name them with ndd.Source(reader, fn) that returns a dict")


def read_values(column: Any) -> np.ndarray:
    """Return a column as an array of numbers, or of bytes where it holds strings."""
    if isinstance(column, Batch):
        values = column.export_buffer().numpy()
        # One number per sample, whether its shape is () or (1,).
        if column.ragged_shapes is None and values.size == len(values):
            return values.reshape(-1)
        return np.array([np.asarray(sample).tobytes() for sample in column.tensors])
    return np.array([value.encode() if isinstance(value, str) else value for value in column])
