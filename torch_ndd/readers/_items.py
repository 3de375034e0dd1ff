# SPDX-License-Identifier: Apache-2.0
"""The values that a ``torch.utils.data.Dataset`` returns, as batches."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch

from .._core.batch import Batch, new_batch
from ..io._urls import read_all
from ._threads import packed

_IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".pbm", ".pnm", ".tif", ".tiff", ".webp", ".jp2")


class File:
    """The contents of a file, still encoded."""

    def __init__(self, content: bytes, path: str | None) -> None:
        self.content, self.path = content, path


class Pixels:
    """The pixels of a PIL image, (H, W, C)."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


def prepared(value: Any) -> Any:
    """Return what :func:`together` needs of an item; runs where the item was made.

    Files named by a path are read, and PIL images become pixels.
    """
    if isinstance(value, Mapping):
        return {key: prepared(one) for key, one in value.items()}
    if isinstance(value, tuple):
        parts = [prepared(one) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return _list(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return File(bytes(value), None)
    if isinstance(value, os.PathLike) or (isinstance(value, str) and value.lower().endswith(_IMAGES)):
        return File(read_all(path := os.fsdecode(value)), path)
    if (pil := sys.modules.get("PIL.Image")) is not None and isinstance(value, pil.Image):
        return Pixels(_pixels(value))
    return value


def _list(value: list[Any]) -> Any:
    if not value:
        return value
    if all(isinstance(one, Number) for one in value):
        return np.asarray(value)
    if any(one is None or isinstance(one, Mapping | str | Number) for one in value):
        return value  # annotations and texts, which are no tensors
    return tuple(prepared(one) for one in value)


def _pixels(image: Any) -> np.ndarray:
    array = np.array(image if image.mode not in ("P", "1", "YCbCr", "HSV", "LAB") else image.convert("RGB" if image.mode != "1" else "L"))
    return array if array.ndim == 3 else array[:, :, None]


def together(items: Sequence[Any], where: str = "") -> Any:
    """Return the items of a batch as one structure of Batches; values that are no tensors as lists."""
    first = items[0]
    if isinstance(first, Mapping | tuple) and not first and not where:
        raise ValueError(f"an item must have at least one part, got {first!r}")
    if isinstance(first, Mapping):
        for item in items:
            if not isinstance(item, Mapping) or item.keys() != first.keys():
                raise ValueError(f"{where or 'the items'} of one batch must have the same keys, {list(first)}, got {item!r:.200}")
        return {key: together([item[key] for item in items], f"{where}[{key!r}]") for key in first}
    if isinstance(first, tuple):
        for item in items:
            if not isinstance(item, tuple) or len(item) != len(first):
                what = f"one with {len(item)}" if isinstance(item, tuple) else f"one {type(item).__name__}"
                raise ValueError(f"{where or 'the items'} of one batch must have the same number of parts, got one with {len(first)} and {what}")
        parts = [together(column, f"{where}[{k}]") for k, column in enumerate(zip(*items, strict=True))]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    return _column(items, where)


def _column(given: Sequence[Any], where: str) -> Any:
    values: Sequence[Any] = given
    first = values[0]
    kinds = {_kind(value) for value in values}
    if kinds == {"array", "object"} and all(isinstance(value, np.ndarray) or value == [] for value in values):  # lists of numbers, some empty
        some = next(value for value in values if isinstance(value, np.ndarray))
        kinds, values = {"array"}, _arrays(values, some.dtype)
    if kinds == {"number", "array"}:
        kinds, values = {"array"}, _arrays(values)
    if len(kinds) > 1:
        found = " and ".join(sorted({type(value).__name__ for value in values}))
        raise TypeError(f"{where or 'the items'} of one batch must have one type, got {found}")
    kind = kinds.pop()
    if kind == "file":
        made = packed([np.frombuffer(value.content, np.uint8) for value in values])
        if all(value.path is not None for value in values):
            made._sources = tuple(value.path for value in values)
        return made
    if kind == "pixels":
        return packed([value.array for value in values], "HWC")
    if kind == "array":
        for value in values:
            if isinstance(value, torch.Tensor) and (value.requires_grad or value.layout != torch.strided or value.is_nested):
                wrong = "requires grad; return it detached" if value.requires_grad else f"has the memory layout {value.layout}; return it dense"
                raise TypeError(f"{where or 'the items'}: a tensor {wrong}, or give a collate_fn")
        return _with_type(packed(values, _LAYOUTS.get(type(first).__name__) if isinstance(first, torch.Tensor) else None), values)
    if kind == "number":
        numbers = np.asarray(values)
        if numbers.dtype == object:
            raise OverflowError(f"{where or 'the items'}: a number is out of range for int64, got {values!r:.200}")
        return new_batch(torch.from_numpy(numbers))
    return list(values)


def _arrays(values: Sequence[Any], dtype: Any = None) -> list[Any]:
    """Return values as arrays; ``dtype`` is that of empty lists."""
    return [value if isinstance(value, np.ndarray) else np.asarray(value, dtype) for value in values]


def _kind(value: Any) -> str:
    if isinstance(value, File):
        return "file"
    if isinstance(value, Pixels):
        return "pixels"
    if isinstance(value, np.ndarray | torch.Tensor):
        return "array"
    return "number" if isinstance(value, bool | int | float | complex | np.generic) else "object"


_LAYOUTS = {"Image": "CHW", "Video": "FCHW"}  # of torchvision's tv_tensors


def _with_type(batch: Batch, values: Sequence[Any]) -> Any:
    """Return the batch as the class of tv_tensors that its samples have."""
    theirs = sys.modules.get("torchvision.tv_tensors")
    first = values[0]
    if theirs is None or not isinstance(first, theirs.TVTensor):
        return batch
    from .._core import tv_tensors  # needs torchvision, which the samples come from

    if isinstance(first, theirs.BoundingBoxes):
        sizes = [tuple(value.canvas_size) for value in values]
        return tv_tensors.BoundingBoxes(batch, format=first.format, canvas_size=sizes)
    if isinstance(first, theirs.Mask):
        return tv_tensors.Mask(batch)
    if isinstance(first, getattr(theirs, "KeyPoints", ())):
        return tv_tensors.KeyPoints(batch, canvas_size=[tuple(value.canvas_size) for value in values])
    return batch


def leaves(value: Any) -> list[Any]:
    """Return the Batches and lists of a structure of :func:`together`."""
    if isinstance(value, Mapping):
        return [leaf for one in value.values() for leaf in leaves(one)]
    if isinstance(value, tuple):
        return [leaf for one in value for leaf in leaves(one)]
    return [value]


def first_sample(value: Any) -> Any:
    """Return the first sample of a structure of Batches."""
    return mapped(lambda leaf: leaf._nth(0) if isinstance(leaf, Batch) else leaf[0], value)


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to the leaves of such a structure."""
    if isinstance(value, Mapping):
        return {key: mapped(function, one) for key, one in value.items()}
    if isinstance(value, tuple):
        parts = [mapped(function, one) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return function(value)
