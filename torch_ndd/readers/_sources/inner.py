# SPDX-License-Identifier: Apache-2.0
"""Readers and data sets inside another reader, which takes their samples by number."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ..._core.context.rng import RNG, using_rng
from ..._core.values.batch import Batch, as_batch
from ..._core.work.bad_samples import UnreadableSamples
from ...io._limits import using
from .._base import Reader
from .choice import OfTorch, reader_of
from .._summary import brief
from ..dataset import Collated
from ..dataset._items import count_of, fields_of, is_dataclass, parts_of

Fn = Callable[..., Any]


class Source:
    """A source of :class:`readers.Mix` whose outputs ``fn`` makes equal to those of the others.

    Args:
        reader: a reader of :mod:`torch_ndd.readers`, or a map-style data set.
        fn: called with the outputs for the samples of this source in a batch, or with the dict where they are named. It returns a Batch, a tensor or an
            array with one row per sample, or several in a tuple or a dict.

    Raises:
        TypeError: ``fn`` cannot be called.

    >>> numbers = ndd.Source([1, 2, 3], lambda values: ndd.cast(values, dtype=ndd.float64))
    >>> mix = ndd.readers.Mix({"a": numbers, "b": [0.5, 1.5, 2.5]})
    >>> [values.torch().tolist() for values, source in mix.next_epoch(6)]
    [[1.0, 0.5, 2.0, 1.5, 3.0, 2.5]]
    """

    def __init__(self, reader: Any, fn: Fn) -> None:
        if not callable(fn):
            raise TypeError(f"Source: fn must be callable, got {fn!r}")
        self.reader, self.fn = reader, fn

    @property
    def _brief(self) -> str:
        return brief(self.reader)


# Options of readers that belong to the one around them, which takes their samples by number.
_OF_OUTER = {
    "num_shards": ("num_shards", 1),
    "_random_shuffle": ("random_shuffle", False),
    "_shuffle_after_epoch": ("shuffle_after_epoch", False),
    "_pad_last_batch": ("pad_last_batch", False),
    "_pad_shards": ("pad_shards", False),
    "_stick_to_shard": ("stick_to_shard", False),
    "_on_error": ("on_error", "raise"),
}


def inner_reader(op: str, what: str, source: Any) -> tuple[Reader, list[Fn]]:
    """Return the reader of a source, and functions for its outputs. Raise TypeError or ValueError for one that cannot be read by sample number."""
    functions: list[Fn] = []
    if isinstance(source, Source):
        functions, source = [source.fn], source.reader
    if isinstance(source, Reader):
        reader: Any = source
    else:
        try:
            reader, before = reader_of(source, OfTorch(), {})
        except TypeError as error:
            raise TypeError(f"{op}: {what} must be a reader or a map-style data set, got {brief(source)}") from error
        functions = functions if before is None else [before, *functions]
    if not isinstance(reader, Reader):
        raise TypeError(f"{op}: {what} needs random access: {type(source).__name__} can only be read from its begin")
    for attribute, (option, default) in _OF_OUTER.items():
        if (value := getattr(reader, attribute)) != default:
            raise ValueError(f"{op}: {what} has {option}={value!r}, which belongs here: {op}(..., {option}={value!r})")
    if getattr(reader, "_sampler", None) is not None:
        raise ValueError(f"{op}: {what} has a sampler, but {op} determines which samples are read")
    if reader._started:
        raise ValueError(f"{op}: {what} has already begun; create another reader for {op}")
    return reader, functions


class InnerSource:
    """A source inside a reader: its samples by number, its functions applied."""

    def __init__(self, op: str, name: str, what: str, source: Any) -> None:
        self.name, self.what, self._op = name, what, op
        self.reader, self._functions = inner_reader(op, what, source)

    def scan(self) -> int:
        """Return the number of samples. Raise RuntimeError for none."""
        with using(self.reader._url_limits):
            size = self.reader._size = self.reader.scan()
        if not size:
            raise RuntimeError(f"{self._op}: {self.what} has no samples")
        return size

    def path(self, sample: int) -> str:
        """Return where a sample is."""
        return self.reader._source(sample)

    def start(self, samples: np.ndarray) -> Any:
        """Start to read samples."""
        with using(self.reader._url_limits):
            return self.reader.start(samples)

    def finish(self, request: Any, samples: np.ndarray) -> Any:
        """Return the outputs: a tuple or a dict of Batches and other columns. Raise UnreadableSamples for bad samples."""
        with using(self.reader._url_limits):
            outputs = self.reader.finish(request, samples)
        outputs = outputs.value if isinstance(outputs, Collated) else outputs
        for function in self._functions:
            outputs = function(*outputs) if isinstance(outputs, tuple) else function(outputs)
        if isinstance(outputs, Mapping):
            found: Any = {name: _as_column(column) for name, column in outputs.items()}
        else:
            found = tuple(map(_as_column, outputs if isinstance(outputs, tuple) else (outputs,)))
        for name, column in named(found):
            if (count := count_of(column)) != len(samples):
                raise ValueError(f"{self._op}: {self.what}: {name} has {count} samples for {len(samples)}")
        return found

    def probe(self) -> Any:
        """Return the outputs for the first sample; None if it cannot be read. Random numbers that are drawn for it are not those of a batch."""
        sample = np.zeros(1, np.int64)
        try:
            with using_rng(RNG(0)):
                return self.finish(self.start(sample), sample)
        except UnreadableSamples:
            return None


def _as_column(column: Any) -> Any:
    return as_batch(column) if isinstance(column, torch.Tensor | np.ndarray) else column


def named(outputs: Any) -> Iterator[tuple[str, Any]]:
    """Yield the outputs with their names."""
    if isinstance(outputs, Mapping):
        yield from ((f"output {name!r}", column) for name, column in outputs.items())
    else:
        yield from ((f"output {k}", column) for k, column in enumerate(outputs))


class _Kind(NamedTuple):
    """What outputs of two sources must have in common."""

    dtype: torch.dtype
    dimensions: int
    layout: str | None

    def __str__(self) -> str:
        layout = f" ({self.layout})" if self.layout else ""
        return f"{str(self.dtype).removeprefix('torch.')} with {self.dimensions} dimensions{layout}"


def kinds_of(outputs: Any) -> dict[str, Any]:
    """Return the type of each output and of its parts, by name."""
    found: dict[str, Any] = {}
    for name, column in named(outputs):
        _note_kinds(name, column, found)
    return found


def _note_kinds(name: str, value: Any, found: dict[str, Any]) -> None:
    if isinstance(value, Batch):
        found[name] = _Kind(value.buffer.dtype, value.ndim, value.layout)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            _note_kinds(f"{name}[{key!r}]", part, found)
    elif is_dataclass(value):
        for key, part in fields_of(value).items():
            _note_kinds(f"{name}.{key}", part, found)
    elif parts := parts_of(value):
        for k, part in enumerate(parts):
            _note_kinds(f"{name}[{k}]", part, found)
    else:
        found[name] = f"a list of {type(value[0]).__name__}"


def check_kinds(op: str, kinds: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Raise ValueError unless all sources have the same outputs."""
    (first_what, first), *others = kinds
    for what, found in others:
        for name in [*first, *found]:
            ours, theirs = found.get(name), first.get(name)
            if ours != theirs:
                have = [f"{where} has {kind or 'none'}" for where, kind in ((what, ours), (first_what, theirs))]
                raise ValueError(f"{op}: {name} differs: {' and '.join(have)}; make them equal with ndd.Source(reader, fn)")
