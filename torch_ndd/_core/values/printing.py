# SPDX-License-Identifier: Apache-2.0
"""The text of tensors and batches, and of the tensors and tensor lists of pipelines."""

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ... import types

INDENT = " " * 4
ENDS = 2  # samples, shapes and array elements shown at either end of a long list
_MANY_ELEMENTS = 1000
_MANY_SHAPES = 16
_LONG_SHAPES = 100  # extents in more shapes than fit in a line
_LINE = 75


class TensorAdapter:
    """Access to a Tensor."""

    def get_type_name(self, obj: Any) -> str:
        return "Tensor"

    def get_device(self, obj: Any) -> str:
        return str(obj.device)

    def get_dtype(self, obj: Any) -> str:
        return types.dtype_name(obj.dtype)

    def get_shape(self, obj: Any) -> Any:
        return obj.shape

    def get_layout(self, obj: Any) -> str | None:
        return obj.layout

    def to_cpu(self, obj: Any) -> Any:
        return obj.cpu()

    def to_numpy(self, obj: Any) -> np.ndarray:
        return printable(obj)


class BatchAdapter(TensorAdapter):
    """Access to a Batch."""

    def get_type_name(self, obj: Any) -> str:
        return "Batch"

    def get_length(self, obj: Any) -> int:
        return obj.batch_size

    def to_numpy(self, obj: Any, edgeitems: int | None = None) -> Any:
        return [printable(obj.nth(i)) for i in abbreviate(range(obj.batch_size), edgeitems)]


def printable(value: Any) -> np.ndarray:
    """Return the contents of a Tensor in NumPy's format; NumPy lacks bfloat16."""
    on_cpu = value.cpu()
    return on_cpu.wait().float().numpy() if on_cpu.dtype == torch.bfloat16 else np.asarray(on_cpu)


def format_tensor(value: Any) -> str:
    """Return the text of a Tensor."""
    return tensor_text(value, TensorAdapter())


def format_batch(value: Any) -> str:
    """Return the text of a Batch. More than 1,000 elements are shortened: to the first and the last two samples, and the same of their elements."""
    return batch_text(value, BatchAdapter())


def tensor_text(obj: Any, adapter: Any, show_data: bool = True) -> str:
    """Return the text of a tensor: its values unless ``show_data`` is False, element type, layout, device and shape."""
    values = [np.array2string(adapter.to_numpy(obj), prefix=INDENT, edgeitems=ENDS)] if show_data else []
    return _format(adapter.get_type_name(obj), [*values, *_kind(obj, adapter), f"shape={tuple(adapter.get_shape(obj))}"], INDENT)


def batch_text(obj: Any, adapter: Any, show_data: bool = True, indent: str = "") -> str:
    """Return the text of a batch: its values unless ``show_data`` is False, element type, layout, device, number of samples and shapes."""
    indent += INDENT
    values = [_samples_text(obj, adapter, indent)] if show_data else []
    parts = [*values, *_kind(obj, adapter), f"num_samples={adapter.get_length(obj)}", _shapes_text(adapter.get_shape(obj), indent)]
    return _format(adapter.get_type_name(obj), parts, indent)


def shapes_text(shapes: Sequence[Any]) -> str:
    """Return shapes as a list in one line; of many the first and the last two."""
    gap = len(shapes) > _MANY_SHAPES
    return f"[{_join([str(shape) for shape in abbreviate(shapes, ENDS if gap else None)], ', ', gap)}]"


def abbreviate(items: Sequence[Any], ends: int | None) -> list[Any]:
    """Return the items, or only those at the ends if more than one would be left out."""
    if ends is None or len(items) <= 2 * ends + 1:
        return list(items)
    return [*items[:ends], *items[len(items) - ends :]]


def _join(texts: list[str], separator: str, gap: bool) -> str:
    """Join texts, with dots in their middle if some are left out."""
    half = len(texts) // 2
    return separator.join([*texts[:half], "...", *texts[half:]] if gap else texts)


def _format(name: str, parts: list[str], indent: str) -> str:
    return f"{name}(\n{indent}" + f",\n{indent}".join(parts) + ")"


def _kind(obj: Any, adapter: Any) -> list[str]:
    layout = adapter.get_layout(obj)
    dtype = adapter.get_dtype(obj)
    if isinstance(dtype, enum.Enum):
        dtype = f"{type(dtype).__name__}.{dtype.name}"
    return [f"dtype={dtype}", *([f'layout="{layout}"'] if layout else []), f'device="{adapter.get_device(obj).lower()}"']


def _samples_text(obj: Any, adapter: Any, indent: str) -> str:
    obj = adapter.to_cpu(obj)
    shapes = adapter.get_shape(obj)
    if not len(shapes):
        return "[]"
    elements = sum(max(int(np.prod(shape, dtype=np.int64)), 1) for shape in shapes)  # a sample without elements takes a line too
    gap = len(shapes) > 2 * ENDS + 1 and elements > _MANY_ELEMENTS
    arrays = adapter.to_numpy(obj, edgeitems=ENDS if gap else None)
    dimensions = arrays[0].ndim
    separator = ",\n" + "\n" * (dimensions - 1) + indent if dimensions else ", "
    return f"[{_join([np.array2string(array, prefix=indent, edgeitems=ENDS) for array in arrays], separator, gap)}]"


def _shapes_text(shapes: Any, indent: str) -> str:
    count = len(shapes)
    gap = count > _MANY_SHAPES or (count > 2 * ENDS + 1 and count * len(shapes[0]) > _LONG_SHAPES)
    texts = [str(shape) for shape in abbreviate(shapes, ENDS if gap else None)]
    begin, text = "shape=[", _join(texts, ", ", gap)
    if len(text) > _LINE:
        text = _join(texts, ", \n" + indent + " " * len(begin), gap)
    return f"{begin}{text}]"
