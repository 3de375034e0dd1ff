# SPDX-License-Identifier: Apache-2.0
"""The costs of samples: numbers that are known, or that headers or samples are read for when their window is planned."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch

from .._core.values.batch import Batch
from ..decoders.audio import lengths
from ..decoders.peek import peek_image_shape
from ..readers import Mix
from ..readers._sample_source import unwrap
from ..readers._sources.listed import Listed
from ..readers.dataset._items import leaves

_CHECKED = 1 << 20  # costs that are checked together
_READ = 256  # samples that are read together for their costs
# The size of a JPEG comes after its metadata. Files are read up to here, and further where that was too little: files of 50 kB take half of the time.
_HEAD, _MAX_HEAD = 1 << 12, 1 << 18
_READ_HEADS = 1024


class FromHeaders:
    """The result of :func:`from_headers`."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        if not callable(function):
            raise TypeError(f"batches.from_headers: function must be callable, got {function!r}")
        self.function = function

    def __repr__(self) -> str:
        return f"from_headers({getattr(self.function, '__qualname__', self.function)})"


def from_headers(function: Callable[[torch.Tensor], Any]) -> FromHeaders:
    """Return a cost of batches: a function of the sizes of encoded images, which are read from their headers.

    The images are the first output of the reader that holds encoded files.

    Args:
        function: called with heights and widths, int64 (N, 2), as displayed; returns a number for each, such as the method ``tokens`` of a translated
            processor (:func:`torch_ndd.transformers.from_processor`).

    Raises:
        TypeError: ``function`` cannot be called.

    >>> batches = ndd.batches.Packed(budget=16384, cost=from_headers(lambda sizes: (sizes // 14).prod(1)))
    """
    return FromHeaders(function)


def check_costs(op: str, costs: Any, kinds: int | None, name: Callable[[int], str] = "sample {}".format) -> np.ndarray:
    """Return costs as an array (N, ``kinds``), with any number of kinds if that is None. Raise ValueError for negative and missing ones."""
    if costs is None or isinstance(costs, str) or callable(costs):
        raise ValueError(f"{op}: costs must be an array of numbers, got {costs!r}")
    array: np.ndarray = np.asarray(costs)
    if array.dtype == object and any(cost is None for cost in array.flat):
        # Named below, like NaN.
        array = np.array([math.nan if cost is None else cost for cost in array.flat]).reshape(array.shape)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{op}: costs must be numbers, got {array.dtype}")
    if array.ndim not in (1, 2):
        raise ValueError(f"{op}: costs must have the shape (N,) or (N, k), got {array.shape}")
    table = array[:, None] if array.ndim == 1 else array
    if kinds is not None and table.shape[1] != kinds:
        raise ValueError(f"{op}: each sample has {table.shape[1]} costs, but {kinds} {'is' if kinds == 1 else 'are'} needed")
    for begin in range(0, len(table), _CHECKED):
        part = table[begin : begin + _CHECKED]
        wrong = ~((part >= 0) & (part < np.inf)).all(1)  # NaN is not at least 0
        if wrong.any():
            row = int(np.argmax(wrong))
            value = ", ".join(f"{cost:.12g}" for cost in part[row].tolist())
            problem = "it is missing" if np.isnan(part[row].astype(float)).any() else "it must be finite and not negative"
            raise ValueError(f"{op}: the cost of {name(begin + row)} is {value}: {problem}")
    return table


class KnownCosts:
    """Costs of all samples."""

    def __init__(self, table: np.ndarray) -> None:
        self._table = table
        self.integral = table.dtype.kind in "biu"

    def of(self, samples: np.ndarray) -> np.ndarray:
        """Return the costs of some samples, float64 (n, k)."""
        return self._table[samples].astype(np.float64)


class ReadCosts:
    """Costs for which samples are read. Each is computed once, and kept for the next epochs in 8 bytes."""

    def __init__(
        self,
        op: str,
        listed: Listed,
        function: Callable[[Any], Any],
        kinds: int | None,
        size: int,
        of_headers: bool = True,
        of_images: bool = True,
    ) -> None:
        self._op, self._listed, self._function, self._of_headers = op, listed, function, of_headers
        self._size, self._kinds, self.integral = size, kinds, True
        self._table: np.ndarray | None = None
        self._head: int | None = _HEAD if of_images else None

    def of(self, samples: np.ndarray) -> np.ndarray:
        """Return the costs of some samples, float64 (n, k). A sample that cannot be read costs nothing: it will be left out."""
        # NaN marks a sample whose costs were not computed yet.
        unknown = np.unique(samples if self._table is None else samples[np.isnan(self._table[samples, 0])])
        size = _READ if self._head is None else _READ_HEADS
        for begin in range(0, len(unknown), size):
            part = unknown[begin : begin + size]
            rows, costs = self._read(part)
            if self._table is None:
                self._kinds = costs.shape[1]
                self._table = np.full((self._size, self._kinds), np.nan)
            # 0 for samples that cannot be read; overwritten for the others.
            self._table[part] = 0
            self._table[part[rows]] = costs
        return np.zeros((0, self._kinds or 1)) if self._table is None else self._table[samples]

    def _read(self, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of those samples that have costs, and these."""
        if self._head is not None:
            outputs, rows = self._listed.read(samples, self._head)
            if outputs is None or _are_jpegs(outputs):
                # The header may be longer than the part that was read.
                with suppress(RuntimeError):
                    return self._compute(samples, outputs, rows)
            # More bytes for all later samples; finally whole files.
            self._head = 4 * self._head if self._head < _MAX_HEAD else None
        outputs, rows = self._listed.read(samples)
        try:
            return self._compute(samples, outputs, rows)
        except RuntimeError:
            if not self._of_headers or (len(samples) == 1 and self._listed.raises):
                raise
            if len(samples) == 1:
                return np.zeros(0, np.int64), np.zeros((0, self._kinds or 1))
            single = [self._read(samples[k : k + 1])[1] for k in range(len(samples))]  # to find the bad ones
            return np.flatnonzero([len(costs) for costs in single]), np.concatenate(single)

    def _compute(self, samples: np.ndarray, outputs: Any, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not len(rows):
            return rows, np.zeros((0, self._kinds or 1))
        values = self._function(outputs)
        array = values.numpy(force=True) if isinstance(values, torch.Tensor) else np.asarray(values.torch() if isinstance(values, Batch) else values)
        if array.ndim == 0 or len(array) != len(rows):
            raise ValueError(f"{self._op}: the cost function must return a number for each of {len(rows)} samples, got the shape {array.shape}")
        table = check_costs(self._op, array, self._kinds, lambda row: self._listed.name(int(samples[rows[row]])))
        self.integral = self.integral and table.dtype.kind in "biu"
        return rows, table.astype(np.float64)


Costs = KnownCosts | ReadCosts


def resolve_costs(op: str, cost: Any, listed: Listed, kinds: int | None, size: int) -> Costs:
    """Return the costs of the samples of a reader. Raise ValueError for costs of another number of samples."""
    reader = listed.reader
    # A mix numbers the samples of all its sources, which may be more than an epoch has.
    samples = sum(reader.source_sizes().values()) if isinstance(reader, Mix) else size
    if isinstance(cost, str):
        column = _column(cost, listed)
        if column is None:
            of_images = cost == "pixels"
            return ReadCosts(op, listed, _count_pixels if of_images else _measure_seconds, kinds, samples, of_images=of_images)
        return _check_known(op, column, listed, kinds, samples)
    if isinstance(cost, FromHeaders):
        return ReadCosts(op, listed, partial(_of_sizes, cost.function), kinds, samples)
    if callable(cost):
        if getattr(cost, "takes_sizes", False):
            raise TypeError(f"{op}: the cost {cost.__name__} is a function of the sizes of images; pass cost=from_headers({cost.__name__})")
        return ReadCosts(op, listed, partial(_of_outputs, op, cost), kinds, samples, of_headers=False, of_images=False)
    if isinstance(cost, Mapping):
        cost = np.concatenate(list(_of_sources(op, cost, reader)))
    return _check_known(op, cost, listed, kinds, samples)


def _column(name: str, listed: Listed) -> np.ndarray | None:
    """Return a column of the reader; None if headers have these numbers."""
    if name == "pixels":
        return None
    try:
        return listed.reader.list_costs(name)
    except ValueError:
        if name != "seconds":
            raise
        return None


def _check_known(op: str, values: Any, listed: Listed, kinds: int | None, samples: int) -> KnownCosts:
    table = check_costs(op, values, kinds, lambda sample: listed.name(sample) if sample < samples else f"sample {sample}")
    if len(table) != samples:
        raise ValueError(f"{op}: there are costs of {len(table)} samples, but the reader has {samples}")
    return KnownCosts(table)


def _of_sources(op: str, costs: Mapping[str, Any], reader: Any) -> Iterator[np.ndarray]:
    if not isinstance(reader, Mix):
        raise ValueError(f"{op}: a dict of costs belongs to a readers.Mix, whose sources it names; pass one array")
    sizes = reader.source_sizes()
    if sizes.keys() != costs.keys():
        raise ValueError(f"{op}: costs are for the sources {', '.join(map(repr, costs))}, but the mix has {', '.join(map(repr, sizes))}")
    for name, size in sizes.items():
        values = np.asarray(costs[name])
        if len(values) != size:
            raise ValueError(f"{op}: there are costs of {len(values)} samples for the source {name!r}, which has {size}")
        yield values


def _of_outputs(op: str, function: Callable[..., Any], outputs: Any) -> Any:
    value = unwrap(outputs)
    values = value if isinstance(value, tuple) else (value,)
    try:
        inspect.signature(function).bind(*values)
    except TypeError as error:
        name = getattr(function, "__qualname__", repr(function))
        what = "the output" if len(values) == 1 else f"the {len(values)} outputs"
        raise TypeError(f"{op}: the cost function {name} must take {what} of the reader as arguments: {error}") from None
    except ValueError:  # some functions written in C have no signature
        pass
    return function(*values)


def _files(outputs: Any) -> Batch:
    """Return the first output that holds encoded files."""
    for leaf in leaves(outputs):
        if isinstance(leaf, Batch) and leaf.buffer.dtype == torch.uint8 and leaf.ndim == 1:
            return leaf
    raise TypeError("DataLoader: batches with costs from headers need a reader of encoded files: none of its outputs holds any")


def _are_jpegs(outputs: Any) -> bool:
    """Return whether files may be cut off: the orientation of other formats may be at their end."""
    files = _files(outputs)
    content = files.buffer.numpy()
    if files.ragged_shapes is None:
        begins = content[:, :2]
    else:
        lengths = files.ragged_shapes.numpy()[:, 0]
        if lengths.min() < 2:
            return False
        ends = np.cumsum(lengths)
        begins = content[(ends - lengths)[:, None] + np.arange(2)]
    return bool((begins == (0xFF, 0xD8)).all()) if begins.shape[1] == 2 else False


def _sizes(outputs: Any) -> torch.Tensor:
    return peek_image_shape(_files(outputs)).torch()[:, :2]


def _of_sizes(function: Callable[[torch.Tensor], Any], outputs: Any) -> Any:
    return function(_sizes(outputs))


def _count_pixels(outputs: Any) -> torch.Tensor:
    return _sizes(outputs).prod(1)


def _measure_seconds(outputs: Any) -> np.ndarray:
    frames, rates = lengths(_files(outputs), 1 << 62)
    return frames / rates
