# SPDX-License-Identifier: Apache-2.0
"""Sources of a loader: readers, data sets of torch, ``ExternalSource``, and the arguments of torch's ``DataLoader`` for each."""

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset

from ..._core.suggestions import similar
from ...io._urls import is_url
from .._base import Reader
from .._options import LoaderOptions
from ..dataset import Dataset
from ..dataset._worker_processes import Context
from .external_source import ExternalSource
from .in_step import InStep
from .selected import flat_dataset, is_native
from .streams import ExternalReader, IterableReader, Stream

Fn = Callable[..., Any]


class OfTorch(NamedTuple):
    """Arguments that torch's DataLoader has too."""

    shuffle: bool | None = None
    sampler: Any = None
    num_workers: int | None = None
    collate_fn: Any = None
    multiprocessing_context: Context | None = None
    seed: int | None = None
    persistent_workers: bool | None = None

    def of_data_sets(self) -> dict[str, Any]:
        """Return the arguments for data sets only."""
        return {name: value for name, value in self._asdict().items() if name not in ("seed", "persistent_workers")}


class Chosen(NamedTuple):
    """A reader or stream, and a function to apply to its outputs before the user's."""

    reader: "Reader | Stream"
    before: Fn | None


_ELSEWHERE = {
    "batch_sampler": "use batch_size and sampler",
    "generator": "use seed, for the order and the operators",
    "in_order": "batches always come in order",
    "pin_memory_device": "use device",
    "prefetch_factor": "use prefetch, the number of batches to prepare ahead",
    "timeout": "there is no time limit for items; readers of URLs have url_max_seconds",
    "worker_init_fn": "items are read by threads by default; set up what __getitem__ needs in the data set; its random numbers follow from seed",
}
_UNSET = (None, 0, "", False)  # defaults of torch's arguments


def _is_set(value: Any) -> bool:
    """Return whether an argument differs from its default, without comparing arrays."""
    return not (value is None or (isinstance(value, bool | int | float | str) and value in _UNSET))


_OF_READERS = {
    "shuffle": "the order belongs to the reader: readers.File(..., random_shuffle=True)",
    "sampler": "the order belongs to the reader: random_shuffle, shard_id and num_shards, or its list of files; readers.Weighted draws by weight",
    "num_workers": "native threads read and decode, without worker processes; leave it out, and set their number with ndd.set_num_threads(n)",
    "collate_fn": "the reader delivers batches, which fn gets; Batch.padded and .nested join samples of different shapes",
    "multiprocessing_context": "a reader needs no processes",
}
_OPTIONS = frozenset(LoaderOptions.__annotations__)
_OF_LOADER = ("batch_size", "prefetch", "device", "drop_last", "prefetch_bytes", "pin_memory", "return_paths")


def missing_attribute(loader: Any, name: str) -> Exception:
    """Return the error for an attribute that a loader does not have."""
    if name not in ("batch_sampler", "prefetch_factor"):
        return AttributeError(f"{type(loader).__name__!r} object has no attribute {name!r}", name=name, obj=loader)
    message = (
        f"DataLoader: {name} belongs to torch's loader, as which accelerate.skip_first_batches would read the data, without fn; resume with "
        "load_state_dict(saved) in its place, and a transformers.Trainer with ignore_data_skip=True"
    )
    # accelerate reads prefetch_factor with a default, which it would take in place of an AttributeError.
    return AttributeError(message) if name == "batch_sampler" else RuntimeError(message)


def reader_of(source: Any, arguments: OfTorch, options: Mapping[str, Any]) -> Chosen:
    """Choose a reader or stream for a source.

    Raise TypeError for an unsupported source, and for an argument without meaning there; the message names the replacement.
    """
    for name, value in options.items():
        if name in _ELSEWHERE:
            # in_order=True is what happens anyway; every other argument must be unset.
            if value is not True if name == "in_order" else _is_set(value):
                raise TypeError(f"DataLoader: {name}: {_ELSEWHERE[name]}")
        elif name not in _OPTIONS:
            known = (*OfTorch._fields, *_OPTIONS, *_OF_LOADER)
            raise TypeError(f"DataLoader: got an unexpected keyword argument {name!r}{similar(name, known)}")
    kept = {name: value for name, value in options.items() if name in _OPTIONS}
    if isinstance(source, Reader):
        return Chosen(_check_reader(source, arguments, kept), None)
    if isinstance(source, ExternalSource):
        _refuse("an ExternalSource", {**arguments.of_data_sets(), **kept}, "the source determines the items and their order")
        return Chosen(ExternalReader(source), None)
    if isinstance(source, Mapping) or _is_in_step(source):
        return _in_step(source, arguments, kept)
    source = flat_dataset(source)
    if is_native(source):
        return Chosen(*source.choose_reader(arguments, kept))
    return Chosen(_of_dataset(source, arguments, kept), None)


def _check_reader(reader: Reader, arguments: OfTorch, options: Mapping[str, Any]) -> Reader:
    shuffles = reader._random_shuffle or reader._shuffle_after_epoch
    for name, value in arguments.of_data_sets().items():
        # For `shuffle`, a value equal to the reader's own order does no harm.
        if not _is_set(value) if name != "shuffle" else value is None or bool(value) == shuffles:
            continue
        raise TypeError(f"DataLoader: {name}: {_OF_READERS[name]}")
    for argument, path in reader._needs.items():
        if path is not None and not is_url(path):
            # Checked here, in the constructor of the loader: otherwise the error would come from a background thread in the first batch.
            try:
                os.stat(path)
            except OSError as error:
                raise RuntimeError(f'{reader._op}: {argument} "{os.fsdecode(path)}" cannot be opened: {error.strerror}') from None
    # Any option is one too many: a reader was constructed with its own.
    for name in options:
        raise TypeError(f"DataLoader: {name} is an argument of the reader: {reader._op}(..., {name}={options[name]!r})")
    return reader


def _refuse(what: str, arguments: Mapping[str, Any], why: str) -> None:
    for name, value in arguments.items():
        if _is_set(value):
            raise TypeError(f"DataLoader: {name} does not apply to {what}: {why}")


def _is_in_step(source: Any) -> bool:
    """Return whether a sequence means readers in step. A list may be a data set itself, unless it holds readers."""
    if isinstance(source, list):
        return bool(source) and all(isinstance(part, Reader) or hasattr(part, "choose_reader") for part in source)
    return isinstance(source, tuple) and all(_is_source(part) for part in source)


def _is_source(source: Any) -> bool:
    return isinstance(source, Reader) or hasattr(source, "choose_reader") or (hasattr(source, "__getitem__") and hasattr(source, "__len__"))


def _in_step(source: Any, arguments: OfTorch, options: Mapping[str, Any]) -> Chosen:
    named = isinstance(source, Mapping)
    parts: dict[Any, Any] = {}
    before: dict[Any, Fn] = {}
    for name, part in source.items() if named else enumerate(source):
        parts[name], first = reader_of(part, arguments, options)
        if first is not None:
            before[name] = first
    reader = InStep(parts if named else tuple(parts.values()))
    # Each part may need a function of its own, such as decoding; `_Each` applies them to their parts.
    return Chosen(reader, _Each(before, named) if before else None)


class _Each:
    """Apply a function to the outputs of each of several readers."""

    def __init__(self, functions: dict[Any, Fn], named: bool) -> None:
        self._functions, self._named = functions, named

    def __call__(self, *outputs: Any) -> Any:
        parts = outputs[0] if self._named else dict(enumerate(outputs))
        results = {name: self._apply(name, part) for name, part in parts.items()}
        return results if self._named else tuple(results.values())

    def _apply(self, name: Any, outputs: Any) -> Any:
        function = self._functions.get(name)
        return outputs if function is None else function(*outputs) if isinstance(outputs, tuple) else function(outputs)


def _of_dataset(dataset: Any, arguments: OfTorch, options: Mapping[str, Any]) -> "Reader | Stream":
    # An object with both protocols is map-style: random access allows shuffling, shards and parallel reads.
    if isinstance(dataset, IterableDataset) or (hasattr(dataset, "__iter__") and not hasattr(dataset, "__getitem__")):
        return _iterable(dataset, arguments, options)
    if not hasattr(dataset, "__getitem__") or not (hasattr(dataset, "__len__") or arguments.sampler is not None) or isinstance(dataset, str | bytes):
        raise TypeError(
            "DataLoader: reader must be one of torch_ndd.readers, several of them in a dict or a tuple, an ExternalSource, or a "
            f"torch.utils.data.Dataset, got {type(dataset).__name__}"
        )
    return dataset_reader(dataset, arguments, options)


def dataset_reader(dataset: Any, arguments: OfTorch, options: Mapping[str, Any]) -> Dataset:
    """Return the reader of a map-style data set."""
    return Dataset(
        dataset,
        collate_fn=arguments.collate_fn,
        multiprocessing_context=arguments.multiprocessing_context,
        num_workers=arguments.num_workers,
        persistent_workers=arguments.persistent_workers,
        sampler=arguments.sampler,
        **with_order(arguments, options),
    )


def with_order(arguments: OfTorch, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a reader, with ``shuffle``."""
    if arguments.seed is not None:
        options = {"seed": arguments.seed, **options}
    if arguments.shuffle is None:
        return dict(options)
    # Both spellings may be given if they agree.
    if options.get("random_shuffle") not in (None, bool(arguments.shuffle)):
        raise ValueError("DataLoader: shuffle and random_shuffle contradict each other")
    # shuffle_after_epoch shuffles already, and the two exclude each other.
    return {**options, "random_shuffle": bool(arguments.shuffle) and not options.get("shuffle_after_epoch")}


def shard_of_stream(what: str, arguments: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[int, int]:
    """Return shard and number of shards of a source without random access. Raise TypeError for other options and for ``arguments`` that are set."""
    others = {name: value for name, value in options.items() if name not in ("shard_id", "num_shards")}
    _refuse(what, {**arguments, **others}, "the data set determines the items and their order")
    shards, shard = options.get("num_shards") or 1, options.get("shard_id") or 0
    if not 0 <= shard < shards:
        raise ValueError(f"DataLoader: shard_id must be from 0 to {shards - 1}, got {shard}")
    return shard, shards


def _iterable(dataset: Any, arguments: OfTorch, options: Mapping[str, Any]) -> IterableReader:
    of_order = {"shuffle": arguments.shuffle, "sampler": arguments.sampler}
    shard, shards = shard_of_stream("an iterable data set", of_order, options)
    return IterableReader(dataset, shard, shards, arguments.multiprocessing_context, bool(arguments.persistent_workers), arguments.collate_fn)
