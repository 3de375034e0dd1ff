# SPDX-License-Identifier: Apache-2.0
"""The items of a ``torch.utils.data.Dataset`` as batches: what torch's ``default_collate`` makes of them, with Batches in place of tensors."""

import copy
import dataclasses
import operator
import os
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence, Set
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data._utils.collate import default_collate_fn_map

from ..._core.native import CPU, POOLED_BYTES, empty
from ..._core.values.batch import Batch, new_batch
from ..._core.values.foreign import layout_of, stack_tensors
from ..._core.values.tensor import Tensor
from ..._core.work.sources import UNKNOWN
from ...io._urls import read_all
from .._threads import pack_samples


class EncodedFile:
    """Marks an encoded file in an item of a data set: a loader reads it where the item is made, and ``fn`` gets a Batch of encoded files.

    A ``pathlib.Path`` in an item is such a mark too. A ``str`` or ``bytes`` is not: it stays as it is, like in torch.

    Args:
        source: the path or the URL of the file, or its contents.

    Raises:
        TypeError: another source.

    >>> from torch_ndd.readers import EncodedFile
    >>> loader = ndd.DataLoader([(EncodedFile(b"abc"), "a text"), (EncodedFile(b"de"), "another")], batch_size=2)
    >>> next(iter(loader))
    [[tensor([97, 98, 99], dtype=torch.uint8), tensor([100, 101], dtype=torch.uint8)], ('a text', 'another')]
    """

    def __init__(self, source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> None:
        if not isinstance(source, str | os.PathLike | bytes | bytearray | memoryview):
            raise TypeError(f"EncodedFile: source must be a path, a URL or the contents of a file, got {type(source).__name__}")
        self.source = source

    def __repr__(self) -> str:
        source = self.source
        what = repr(os.fsdecode(source)) if isinstance(source, str | os.PathLike) else f"{memoryview(source).nbytes} bytes"
        return f"EncodedFile({what})"


class File:
    """The contents of a file, still encoded."""

    def __init__(self, content: bytes, path: str | None) -> None:
        self.content, self.path = content, path


class Pixels:
    """The pixels of a PIL image, (H, W, C)."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


class Failed(NamedTuple):
    """The error in place of an item that could not be read."""

    error: Exception


class Items(tuple[Any, ...]):
    """The outputs for items that are neither named tuples nor mappings: the arguments of a loader's function."""

    value: Any
    """The items in the containers of torch's ``default_collate``, for loaders without a function."""
    samples: int
    sources: Sequence[str]
    """Those of the first Batch, if there is one."""


# Types of most parts of items, which need no preparation.
_PLAIN = (str, bytes, bool, int, float, complex, np.generic, np.ndarray, torch.Tensor, type(None))


@lru_cache(256)
def _is_plain(kind: type) -> bool:
    """Return whether values of a type need no preparation. Cached: a look-up takes 50 ns, that of ten types 500."""
    return issubclass(kind, _PLAIN)


class Unprepared(Exception):
    """Items have parts that :func:`prepare_item` must replace."""


def needs_preparation(item: Any) -> bool:
    """Return whether an item has parts that :func:`prepare_item` may replace."""
    kind = type(item)
    parts = item.values() if kind is dict else item if kind is tuple or kind is list else None
    return not (_is_plain(kind) if parts is None else all(map(_is_plain, map(type, parts))))


def prepare_item(value: Any) -> Any:
    """Prepare an item for :func:`collate`, on the thread or in the process that loaded it.

    Marked files are read, and PIL images become pixels.
    """
    if not needs_preparation(value):
        return value
    if _is_marked(value):
        return _read(value.source if isinstance(value, EncodedFile) else value)
    if _is_picture(value):
        return Pixels(_pixels(value))
    if isinstance(value, Mapping):
        named = {key: prepare_item(entry) for key, entry in value.items()}
        # Unchanged containers are returned themselves, so that types that cannot be copied survive.
        return value if all(entry is value[key] for key, entry in named.items()) else with_entries(value, named)
    if isinstance(value, Sequence):
        parts = [prepare_item(part) for part in value]
        return value if all(map(operator.is_, parts, value)) else with_parts(value, parts)
    if is_dataclass(value):
        return with_fields(value, {name: prepare_item(part) for name, part in fields_of(value).items()})
    return value


def _is_marked(value: Any) -> bool:
    return isinstance(value, EncodedFile | os.PathLike)


def _is_picture(value: Any) -> bool:
    # An item can only be an image of PIL if PIL was imported; importing it here would cost time.
    pil = sys.modules.get("PIL.Image")
    return pil is not None and isinstance(value, pil.Image)


def _read(source: Any) -> File:
    if isinstance(source, bytes | bytearray | memoryview):
        return File(bytes(source), None)
    path = os.fsdecode(source)
    return File(read_all(path), path)


def _pixels(image: Any) -> np.ndarray:
    # Palettes, bilevel images and other color spaces are converted, all others keep their channels.
    array = np.array(image if image.mode not in ("P", "1", "YCbCr", "HSV", "LAB") else image.convert("RGB" if image.mode != "1" else "L"))
    return array if array.ndim == 3 else array[:, :, None]


def is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def fields_of(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def with_fields(value: Any, fields: Mapping[str, Any]) -> Any:
    """Return a copy of a dataclass with other values, also of fields that its constructor does not take."""
    clone = copy.copy(value)
    for name, entry in fields.items():
        # Also for frozen dataclasses.
        object.__setattr__(clone, name, entry)
    return clone


def with_entries(value: Mapping[Any, Any], entries: dict[Any, Any]) -> Any:
    """Return a mapping of the same type with other values; a dict if the type cannot be built from them, like torch."""
    try:
        # Mutable mappings are copied, so that attributes such as a default factory survive, as in torch.
        if not isinstance(value, MutableMapping):
            return type(value)(entries)  # type: ignore[call-arg]
        clone = copy.copy(value)
        clone.update(entries)
        return clone
    except TypeError:
        return entries


def with_parts(value: Sequence[Any], parts: list[Any]) -> Any:
    """Return a sequence of the same type with other values; a list if the type cannot be built from them, like torch."""
    try:
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*parts)
        if not isinstance(value, MutableSequence):
            return type(value)(parts)  # type: ignore[call-arg]
        clone = copy.copy(value)
        for k, part in enumerate(parts):
            clone[k] = part
        return clone
    except TypeError:
        return parts


def collate_outputs(items: Sequence[Any], sources: Sequence[str] = (), kinds: Set[type] | None = None) -> Any:
    """Return the items of a batch as a reader's outputs: a mapping, a named tuple, or :class:`Items`. Raise Unprepared."""
    first = items[0]
    if isinstance(first, Mapping | tuple) and not first:
        raise ValueError(f"an item must have at least one part, got {first!r}")
    return _wrap_outputs(collate(items, "", kinds), first, len(items), sources)


def _wrap_outputs(value: Any, first: Any, count: int, sources: Sequence[str]) -> Any:
    batches = [*leaves(value)]
    # Batches of encoded files already have their paths; the others get the sources of the items.
    for batch in batches:
        if batch.sources is UNKNOWN:
            batch.sources = sources
    if isinstance(value, Mapping) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return value
    has_parts = isinstance(first, Sequence) and not isinstance(first, str | bytes)
    outputs = Items(value if has_parts else (value,))
    outputs.value, outputs.samples, outputs.sources = value, count, batches[0].sources if batches else sources
    return outputs


class Rows(list[torch.Tensor]):
    """The items of a batch of a ``TensorDataset``, already together: rows of each of its tensors."""

    def outputs(self, sources: Sequence[str]) -> Any:
        """Return what :func:`collate_outputs` makes of the items."""
        return _wrap_outputs([new_batch(rows) for rows in self], (), len(self[0]), sources)


def resolve_subsets(dataset: Any, samples: list[int]) -> tuple[Any, list[int]]:
    """Return the data set behind nested ``Subset``, and the indices that samples have in it."""
    # Only this exact type: a subclass may override __getitem__.
    while type(dataset) is torch.utils.data.Subset:
        indices = dataset.indices
        samples, dataset = [indices[sample] for sample in samples], dataset.dataset
    return dataset, samples


# Types whose __getitem__ runs no code of the user.
_WITHOUT_CODE = (list, tuple, range, np.ndarray, torch.utils.data.TensorDataset)


def may_draw(dataset: Any) -> bool:
    """Return whether the items of a data set may draw random numbers while they are read."""
    return type(resolve_subsets(dataset, [])[0]) not in _WITHOUT_CODE


def find_table(dataset: Any) -> torch.utils.data.TensorDataset | None:
    """Return the ``TensorDataset`` that a data set is, or of which it is a part by ``Subset``. A subclass may read its items in another way."""
    dataset, _ = resolve_subsets(dataset, [])
    return dataset if type(dataset) is torch.utils.data.TensorDataset else None


def find_rows(dataset: Any, samples: np.ndarray) -> tuple[Sequence[torch.Tensor], np.ndarray] | None:
    """Return the tensors of a data set with a table, and the rows of samples in them.

    None if a tensor is of a kind that is read item by item, or an index is outside.
    """
    index = samples
    if type(dataset) is torch.utils.data.Subset:
        dataset, numbers = resolve_subsets(dataset, samples.tolist())
        index = np.array(numbers)
    tensors = dataset.tensors
    if not len(index) or not tensors or not have_plain_rows(tensors):
        return None
    # As unsigned numbers negative ones are the largest.
    if index.dtype != np.int64 or index.ndim != 1 or index.view(np.uint64).max() >= min([tensor.shape[0] for tensor in tensors]):
        return None
    return tensors, index


def have_plain_rows(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether rows of all tensors may be copied as memory; those of others are read item by item."""
    if not all(type(tensor) is torch.Tensor and tensor.is_cpu and not tensor.requires_grad for tensor in tensors):
        return False
    return all(tensor.layout == torch.strided and not tensor.is_nested for tensor in tensors)


def take_rows(dataset: Any, samples: np.ndarray) -> Rows | None:
    """Return the items of a data set with a table, one gather for each tensor: 256 items of two take 20 us instead of 1,500.

    None where :func:`find_rows` returns it.
    """
    if (found := find_rows(dataset, samples)) is None:
        return None
    tensors, index = found
    return Rows([gather_rows(tensor, index) for tensor in tensors])


def gather_rows(tensor: torch.Tensor, index: np.ndarray, out: torch.Tensor | None = None) -> torch.Tensor:
    """Copy rows of a tensor to ``out`` or to a new tensor, and return it."""
    # NumPy copies on this thread; torch would wait for others, which decode. It has no bfloat16, and copies the whole array if it is not contiguous.
    array = tensor.numpy() if tensor.is_contiguous() and tensor.dtype in OF_NUMPY else None
    if out is None:
        if array is not None and len(index) * array.strides[0] < POOLED_BYTES:  # in new memory of NumPy: 2 us instead of 5
            return torch.from_numpy(array.take(index, 0, None, "clip"))
        out = empty((len(index), *tensor.shape[1:]), tensor.dtype, CPU)
    if array is None:
        return torch.index_select(tensor, 0, torch.from_numpy(index), out=out)
    array.take(index, 0, out.numpy(), "clip")
    return out


def _part(where: str) -> str:
    return f"DataLoader: {f'part {where} of the items' if where else 'the items'}"


def collate(items: Sequence[Any], where: str = "", kinds: Set[type] | None = None) -> Any:
    """Collate the items of a batch into one structure of Batches; values that are not tensors stay as they are, in a list or a tuple.

    Raise Unprepared for parts that must be prepared first: columns show it, while a look at the parts of each item would take 0.1 us.

    Args:
        items: of a batch.
        where: which part of the items of the loader they are, for messages.
        kinds: their types, if known: one look at 256 takes 5 us.
    """
    first, kinds = items[0], set(map(type, items)) if kinds is None else kinds
    is_of_one_type = len(kinds) == 1
    if not is_of_one_type and type(None) in kinds and any(map(_is_container, kinds)):  # None may stand for a text or an object
        raise _mixed_types(where, kinds)
    # Of these NumPy makes the types that torch does: 64 numbers in 2 us, torch.tensor takes 15. Others are out of range, as below.
    if is_of_one_type and type(first) in _NUMBERS and (array := np.array(items)).dtype.kind == _NUMBERS[type(first)]:
        return new_batch(torch.from_numpy(array))
    # First, because a type registered with default_collate may be a mapping or sequence as well.
    if isinstance(first, str | bytes) or _is_leaf(first):
        return _column(items, where, kinds)
    if isinstance(first, Mapping):
        # Keys in the same order, nearly always: 256 items in 25 us, by the questions below in 100.
        for item in () if is_of_one_type and set(map(tuple, items)) == {tuple(first)} else items:
            if not isinstance(item, Mapping) or item.keys() != first.keys():
                raise ValueError(f"{_part(where)} of one batch must have the same keys, {list(first)}, got {item!r:.200}")
        return with_entries(first, {key: collate([item[key] for item in items], f"{where}[{key!r}]") for key in first})
    if isinstance(first, Sequence):
        for item in () if is_of_one_type and set(map(len, items)) == {len(first)} else items:
            if not isinstance(item, Sequence) or isinstance(item, str | bytes) or len(item) != len(first):
                what = f"one with {len(item)}" if isinstance(item, Sequence) else f"one {type(item).__name__}"
                raise ValueError(
                    f"{_part(where)} of one batch must have the same number of parts, got one with {len(first)} and {what}; "
                    "an array or a tensor may have any shape, and a collate_fn may do anything"
                )
        parts = [collate(column, f"{where}[{k}]") for k, column in enumerate(zip(*items, strict=True))]
        # torch returns lists for tuples without names, and so do we.
        return parts if isinstance(first, tuple) and not hasattr(first, "_fields") else with_parts(first, parts)
    if is_dataclass(first):
        for item in items:
            if type(item) is not type(first):
                raise TypeError(f"{_part(where)} of one batch must have one type, got {type(first).__name__} and {type(item).__name__}")
        rows = [fields_of(item) for item in items]
        return with_fields(first, {name: collate([row[name] for row in rows], f"{where}.{name}") for name in rows[0]})
    return _column(items, where, kinds)


def _mixed_types(where: str, kinds: Set[type]) -> TypeError:
    found = " and ".join(sorted({kind.__name__ for kind in kinds}))
    # Data sets for torch return None for bad samples, which a collate_fn removes.
    remedy = '; to leave a sample out, raise an exception for it in the data set and pass on_error="skip"' if type(None) in kinds else ""
    return TypeError(f"{_part(where)} of one batch must have one type, got {found}{remedy}")


def _is_leaf(value: Any) -> bool:
    """Return whether torch's ``default_collate`` has a function for this value: it comes before mappings and sequences."""
    return any(isinstance(value, kind) for kind in default_collate_fn_map)


def _column(values: Any, where: str, types: Set[type]) -> Any:
    first, is_of_one_type = values[0], len(types) == 1
    if isinstance(first, str | bytes) and is_of_one_type:
        return values
    # What an array is depends on its dtype, anything else on its type alone.
    kinds = {_kind(first)} if not isinstance(first, np.ndarray) and is_of_one_type else {_kind(value) for value in values}
    if "object" in kinds and any(not _is_plain(type(value)) and (_is_marked(value) or _is_picture(value)) for value in values):
        raise Unprepared
    if isinstance(first, str | bytes):
        return values
    # Numbers next to arrays count as arrays without dimensions.
    if kinds == {"number", "array"}:
        kinds, values = {"array"}, [value if isinstance(value, np.ndarray | torch.Tensor) else np.asarray(value) for value in values]
        types = set(map(type, values))
    if len(kinds) > 1:
        raise _mixed_types(where, types)
    kind = kinds.pop()
    if kind == "file":
        files = pack_samples([np.frombuffer(value.content, np.uint8) for value in values])
        if all(value.path is not None for value in values):
            files.sources = tuple(value.path for value in values)
        return files
    if kind == "pixels":
        return pack_samples([value.array for value in values], "HWC")
    if kind == "array":
        return _batch_of_arrays(values, where, types)
    if kind == "number":
        return new_batch(_numbers(values, where))
    if kind == "time":
        return values
    if isinstance(first, np.ndarray) and default_collate_fn_map.get(np.ndarray) is _COLLATE_ARRAYS:
        raise _no_tensor_type(first.dtype, where)
    for known, function in default_collate_fn_map.items():  # types that the user has registered, and Tensors
        if isinstance(first, known):
            return function(values, collate_fn_map=default_collate_fn_map)
    return values


def _batch_of_arrays(values: Sequence[Any], where: str, types: Set[type]) -> Any:
    typed, first, are_tensors = values, values[0], types == {torch.Tensor}
    if are_tensors or (_is_tv_tensor(first) and len(types) == 1):
        stacked = stack_tensors(values)
        if stacked is not None:
            return _with_type(new_batch(stacked, None, layout_of(first)), typed)
    if not are_tensors:
        # Each property and method of a subclass, such as a tv_tensor, takes a microsecond. Nested tensors have no other form.
        with torch._C.DisableTorchFunctionSubclass():
            values = [value.as_subclass(torch.Tensor) if isinstance(value, torch.Tensor) and not value.is_nested else value for value in values]
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.requires_grad or value.layout != torch.strided or value.is_nested:
                stored = "is nested" if value.is_nested else f"has the memory layout {value.layout}"
                wrong = "requires grad; return it detached" if value.requires_grad else f"{stored}; return it dense"
                raise TypeError(f"{_part(where)}: a tensor {wrong}, or give a collate_fn")
        elif value.dtype.type in _LONG:
            raise _no_tensor_type(value.dtype, where)
    if not are_tensors:
        # Arrays of files may have the byte order of another machine.
        values = [value if isinstance(value, torch.Tensor) or value.dtype.isnative else value.astype(value.dtype.newbyteorder()) for value in values]
    if len({value.dtype for value in values}) > 1:  # torch.stack promotes
        tensors = [torch.from_numpy(np.require(value, requirements=["C", "W"])) if isinstance(value, np.ndarray) else value for value in values]
        common = reduce(torch.promote_types, [tensor.dtype for tensor in tensors])
        values = [tensor.to(common) for tensor in tensors]
    layout = layout_of(first) if isinstance(first, torch.Tensor) else None
    return _with_type(pack_samples(values, layout, _part(where)), typed)


def _numbers(values: Sequence[Any], where: str) -> torch.Tensor:
    """Convert numbers to a tensor of the dtype that torch chooses."""
    types = set(map(type, values))
    for value in values if types - {bool, int, float} else ():
        if isinstance(value, np.generic) and value.dtype.type in _LONG:
            raise _no_tensor_type(value.dtype, where)
    try:
        if len(types) > 1:
            values = [value.item() if getattr(value, "dtype", None) in _ALONE else value for value in values]
        elif isinstance(values[0], np.generic):
            return torch.from_numpy(np.array(values))
        first = values[0]
        if isinstance(first, np.generic):
            return torch.as_tensor(values)
        # default_collate makes float64 of Python floats; torch.tensor would use the default dtype.
        return torch.tensor(values, dtype=torch.float64 if isinstance(first, float) else torch.complex128 if isinstance(first, complex) else None)
    except (OverflowError, RuntimeError, ValueError):
        raise OverflowError(f"{_part(where)}: a number is out of range for int64, got {values!r:.200}") from None


def _kind(value: Any) -> str:
    if isinstance(value, File):
        return "file"
    if isinstance(value, Pixels):
        return "pixels"
    if isinstance(value, torch.Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind in "biufc"):
        return "array"
    if isinstance(value, np.datetime64 | np.timedelta64):
        return "time"
    return "number" if isinstance(value, bool | int | float | complex | np.bool_ | np.number) else "object"


_NUMBERS = {bool: "b", int: "i", float: "f"}  # and the kinds of NumPy's types for them
OF_NUMPY = frozenset(torch.from_numpy(np.empty(0, kind)).dtype for kind in "?bBhHiIlLefd")
_LONG = (np.longdouble, np.clongdouble)  # numbers of NumPy that torch does not have
_ALONE = (np.uint64, np.bool_)  # which torch converts only alone
_COLLATE_ARRAYS = default_collate_fn_map[np.ndarray]  # torch's function, which a user may replace


def _no_tensor_type(dtype: np.dtype[Any], where: str) -> TypeError:
    return TypeError(f"{_part(where)}: no tensor has the type {dtype}; convert it in the data set (astype, tolist), or give a collate_fn")


def _is_tv_tensor(value: Any) -> bool:
    tv_types = sys.modules.get("torchvision.tv_tensors")
    return tv_types is not None and isinstance(value, tv_types.TVTensor)


def _with_type(batch: Batch, values: Sequence[Any]) -> Any:
    """Return the batch as the class of tv_tensors that its samples have."""
    first = values[0]
    if not _is_tv_tensor(first):
        return batch
    tv_types = sys.modules["torchvision.tv_tensors"]
    from ..._core.values import tv_tensors  # needs torchvision, which the samples come from

    if isinstance(first, tv_types.BoundingBoxes):
        sizes = [tuple(value.canvas_size) for value in values]
        return tv_tensors.BoundingBoxes(batch, format=first.format, canvas_size=sizes)
    if isinstance(first, tv_types.Mask):
        return tv_tensors.Mask(batch)
    if isinstance(first, getattr(tv_types, "KeyPoints", ())):
        return tv_tensors.KeyPoints(batch, canvas_size=[tuple(value.canvas_size) for value in values])
    return batch


def leaves(value: Any) -> Iterator[Batch]:
    """Yield the Batches of a structure of :func:`collate`."""
    if isinstance(value, Batch):
        yield value
    else:
        for part in parts_of(value):
            yield from leaves(part)


def count_of(outputs: Any) -> int:
    """Return the number of samples of a reader's outputs."""
    if isinstance(outputs, Items):
        return outputs.samples
    first = next(leaves(outputs), None)
    return _texts(outputs) if first is None else first.batch_size


def _texts(value: Any) -> int:
    """Return the number of samples of a structure without a Batch."""
    parts = parts_of(value)
    return _texts(parts[0]) if parts else len(value)


def parts_of(value: Any) -> list[Any]:
    """Return the parts of a structure; a list or tuple with one plain value per sample has none."""
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple):
        # A list of plain values is one column; a list with a Batch or a container in it is a structure.
        return list(value) if any(map(_is_container, set(map(type, value)))) else []
    return list(fields_of(value).values()) if is_dataclass(value) else []


@lru_cache(256)
def _is_container(kind: type) -> bool:
    return issubclass(kind, (Batch, Tensor, Mapping, list, tuple)) or dataclasses.is_dataclass(kind)


def first_sample(value: Any) -> Any:
    """Return the first sample of a structure of Batches."""
    if isinstance(value, Batch):
        return value.nth(0)
    return map_parts(first_sample, value) if parts_of(value) else value[0]


def map_parts(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to the parts of a structure."""
    if isinstance(value, Mapping):
        return with_entries(value, {key: function(part) for key, part in value.items()})
    if isinstance(value, Items):
        return tuple(function(part) for part in value)
    if isinstance(value, Sequence):
        return with_parts(value, [function(part) for part in value])
    return with_fields(value, {name: function(part) for name, part in fields_of(value).items()})
