# SPDX-License-Identifier: Apache-2.0
"""Readers and data sets inside another reader, which takes their samples by number."""

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from ..._core.context.rng import RNG, using_rng
from ..._core.values.batch import Batch, as_batch
from ..._core.work.bad_samples import UnreadableSamples
from ...io._limits import UrlLimits, using
from .._base import Reader
from .._key_table import KeyTable
from .._keys import Keys
from .._read_ahead import start
from .._sample_source import unwrap
from .._shared_steps import SharedSteps
from .._summary import brief
from ..dataset import Dataset
from ..dataset._items import count_of, fields_of, is_dataclass, parts_of
from .choice import OfTorch, reader_of

Fn = Callable[..., Any]

_NO_LIMITS = nullcontext()


class Source:
    """A source of :class:`readers.Mix` whose outputs ``fn`` makes equal to those of the others.

    Args:
        reader: a reader of :mod:`torch_ndd.readers`, or a map-style data set.
        fn: called with the outputs for the samples of this source in a batch, or with the dict where they are named. It returns a Batch, or a tensor
            or array with one row per sample, or several in a tuple or a dict.

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
        raise TypeError(f"{op}: {what} needs random access: {type(source).__name__} can only be read from its beginning")
    if isinstance(reader, SharedSteps):
        raise TypeError(f"{op}: {what} is a {reader._op}, which determines the order of its samples itself; give its sources")
    for attribute, (option, default) in _OF_OUTER.items():
        # Options of order and shards would be ignored in here, so reject them.
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
        # Only where there are limits: entering them takes 2 us, for each source of a batch.
        self._limits = None if self.reader._url_limits == UrlLimits() else self.reader._url_limits
        if isinstance(self.reader, Dataset):  # whose length is known without reading anything
            self.scan()

    def scan(self) -> int:
        """Return the number of samples. Raise RuntimeError for none."""
        with self._apply_limits():
            size = self.reader._size = self.reader.scan()
        if not size:
            raise RuntimeError(f"{self._op}: {self.what} has no samples")
        return size

    def _apply_limits(self) -> AbstractContextManager[None]:
        return _NO_LIMITS if self._limits is None else using(self._limits)

    def path(self, sample: int) -> str:
        """Return where a sample is."""
        return self.reader._source(sample)

    @property
    def has_functions(self) -> bool:
        """Whether functions change what is read."""
        return bool(self._functions)

    @property
    def has_limits(self) -> bool:
        """Whether reads from URLs have limits."""
        return self._limits is not None

    def narrow(self, column: str) -> "InnerSource":
        """Return a source that reads only this column, if samples can be read in part; else this one."""
        # Functions may need all outputs, so a source with functions cannot be read in part.
        reader = self.reader if self._functions else self.reader.narrow(column)
        if reader is self.reader:
            return self
        narrow = copy.copy(self)
        narrow.reader = reader
        return narrow

    def start(self, samples: np.ndarray, seeds: np.ndarray | None = None) -> Any:
        """Start to read samples; ``seeds`` as for :meth:`Reader.start_seeded`."""
        with self._apply_limits():
            return start(self.reader, samples, seeds)

    def finish(self, request: Any, samples: np.ndarray) -> Any:
        """Return the outputs: a tuple or a dict of Batches and other columns. Raise UnreadableSamples for bad samples."""
        with self._apply_limits():
            outputs = self.reader.finish(request, samples)
        return self.apply_functions(outputs, len(samples))

    def finish_alone(self, request: Any, samples: np.ndarray) -> Any:
        """Return the outputs as a loader of this source alone gets them: without functions, in the containers of the items of a data set."""
        if self._functions:
            return self.finish(request, samples)
        with self._apply_limits():
            return self.reader.finish(request, samples)

    def read(self, samples: np.ndarray, seeds: np.ndarray | None = None) -> Any:
        """Read samples and return what :meth:`finish` returns."""
        with self._apply_limits():
            if seeds is None or not self.reader.draws():
                outputs = self.reader.read_samples(samples)
            else:
                outputs = self.reader.finish(self.reader.start_seeded(samples, seeds), samples)
        return self.apply_functions(outputs, len(samples))

    def read_matching(self, column: str, keys: Keys, table: KeyTable) -> dict[str, Batch] | None:
        """Return what :meth:`Reader.read_matching` does; None with functions."""
        if self._functions:
            return None
        with self._apply_limits():
            return self.reader.read_matching(column, keys, table)

    def apply_functions(self, outputs: Any, samples: int) -> Any:
        """Return what the functions make of the outputs of so many samples."""
        outputs = unwrap(outputs)
        for function in self._functions:
            outputs = function(*outputs) if isinstance(outputs, tuple) else function(outputs)
        if isinstance(outputs, Mapping):
            found: Any = {name: _as_column(column) for name, column in outputs.items()}
        else:
            found = tuple([_as_column(column) for column in (outputs if isinstance(outputs, tuple) else (outputs,))])
        # A function that changes the number of samples would assign later ones to wrong rows.
        for key in found if isinstance(found, dict) else range(len(found)):
            column = found[key]
            try:
                count = column.batch_size if isinstance(column, Batch) else count_of(column)
            except TypeError:  # of len(): of a function without a return statement, for example
                kind = type(column).__name__
                raise TypeError(f"{self._op}: {self.what}: output {key!r} must have a value for each sample, got {kind}") from None
            if count != samples:
                raise ValueError(f"{self._op}: {self.what}: output {key!r} has {count} samples for {samples}")
        return found

    def probe(self, attempts: int = 1) -> Any:
        """Return the outputs for the first sample that can be read, of so many; None if there is none.

        Random numbers that are drawn for it are not those of a batch.
        """
        for k in range(min(attempts, self.reader._size or 1)):
            try:
                # A generator of its own: the probe must not change the random numbers of the program.
                with using_rng(of_batch=partial(RNG, 0)):
                    return self.read(np.full(1, k, np.int64))
            except UnreadableSamples:
                continue
        return None


def _as_column(column: Any) -> Any:
    return as_batch(column) if isinstance(column, torch.Tensor | np.ndarray) else column


class _Kind(NamedTuple):
    """What outputs of two sources must have in common."""

    dtype: torch.dtype
    dimensions: int
    layout: str | None

    def __str__(self) -> str:
        layout = f" ({self.layout})" if self.layout else ""
        return f"{str(self.dtype).removeprefix('torch.')} with {self.dimensions} dimensions{layout}"


class OutputCheck:
    """Checks that all sources have the same outputs as the first one."""

    def __init__(self, op: str, what: str, outputs: Any) -> None:
        self._op, self._what, self._kinds = op, what, _kinds_of(outputs)
        self._plain = isinstance(outputs, tuple) and all(type(column) is Batch for column in outputs)

    def check(self, what: str, outputs: Any) -> None:
        """Raise ValueError for other names, dtypes, dimensions or layouts."""
        if self._plain and isinstance(outputs, tuple) and len(outputs) == len(self._kinds):  # nearly always, and for each source of a batch
            for column, kind in zip(outputs, self._kinds.values(), strict=True):
                if type(column) is not Batch or column.buffer.dtype is not kind[0] or column.ndim != kind[1] or column.layout != kind[2]:
                    break
            else:
                return
        found = _kinds_of(outputs)
        for name in [*self._kinds, *found]:
            if (other := found.get(name)) != (first := self._kinds.get(name)):
                have = [f"{where} has {kind or 'none'}" for where, kind in ((what, other), (self._what, first))]
                raise ValueError(f"{self._op}: {name} differs: {' and '.join(have)}; make them equal with ndd.Source(reader, fn)")


def _kinds_of(outputs: Any) -> dict[str, Any]:
    """Return the type of each output and of its parts, by name."""
    found: dict[str, Any] = {}
    for key, column in outputs.items() if isinstance(outputs, dict) else enumerate(outputs):
        _note_kinds(f"output {key!r}", column, found)
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
