# SPDX-License-Identifier: Apache-2.0
"""The text of tensors and tensor lists, and the adapters through which it is made."""

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

_INDENT = " " * 4
_ENDS = 2  # samples, shapes and array elements shown at either end of a long list
_MANY_ELEMENTS = 1000
_MANY_SHAPES = 16
_LONG_SHAPES = 100  # extents of more shapes than fit into a line
_LINE = 75


class PipelineTensorAdapter:
    """Access of :func:`format_tensor` to a :class:`TensorCPU` or a :class:`TensorGPU`. Other objects can have adapters with the same methods."""

    def get_type_name(self, obj: Any) -> str:
        """Return the name of the class."""
        return type(obj).__name__

    def get_device(self, obj: Any) -> str:
        """Return ``"CPU"`` or ``"GPU"``."""
        return type(obj).__name__[-3:]

    def get_dtype(self, obj: Any) -> Any:
        """Return the element type."""
        return obj.dtype

    def get_shape(self, obj: Any) -> Any:
        """Return the extents."""
        return obj.shape()

    def get_layout(self, obj: Any) -> str | None:
        """Return the layout, empty if there is none."""
        return obj.layout()

    def to_cpu(self, obj: Any) -> Any:
        """Return the object in host memory."""
        return obj.as_cpu()

    def to_numpy(self, obj: Any) -> Any:
        """Return the values as an array."""
        return np.array(self.to_cpu(obj))


class PipelineBatchAdapter(PipelineTensorAdapter):
    """Access of :func:`format_batch` to a :class:`TensorListCPU` or a :class:`TensorListGPU`."""

    def get_length(self, obj: Any) -> int:
        """Return the number of samples."""
        return len(obj)

    def get_sample(self, obj: Any, index: int) -> Any:
        """Return one sample."""
        return obj[index]

    def to_numpy(self, obj: Any, edgeitems: int | None = None) -> Any:
        """Return the samples as a list of arrays: of many, if ``edgeitems`` is given, only so many from either end."""
        samples = self.to_cpu(obj)
        return [np.array(samples[i]) for i in _shown(range(len(samples)), edgeitems)]


def _shown(items: Sequence[Any], ends: int | None) -> list[Any]:
    """Return the items, or only those at the ends if more than one would be left out."""
    if ends is None or len(items) <= 2 * ends + 1:
        return list(items)
    return [*items[:ends], *items[len(items) - ends :]]


def _joined(texts: list[str], separator: str, gap: bool) -> str:
    """Join texts, with dots in their middle if some are left out."""
    half = len(texts) // 2
    return separator.join([*texts[:half], "...", *texts[half:]] if gap else texts)


def _described(name: str, parts: list[str], indent: str) -> str:
    return f"{name}(\n{indent}" + f",\n{indent}".join(parts) + ")"


def format_tensor(obj: Any, show_data: bool = True, adapter: Any = None) -> str:
    """Return the text of a tensor: its values unless ``show_data`` is False, element type, layout, device and shape.

    Args:
        obj: The tensor.
        show_data: Whether the values are part of the text.
        adapter: An object with the methods of :class:`PipelineTensorAdapter`.

    >>> import numpy as np
    >>> from torch_ndd.dali.tensors import TensorCPU, format_tensor
    >>> print(format_tensor(TensorCPU(np.zeros(3, np.uint8), "A")))
    TensorCPU(
        [0 0 0],
        dtype=DALIDataType.UINT8,
        layout="A",
        device="cpu",
        shape=(3,))
    """
    adapter = PipelineTensorAdapter() if adapter is None else adapter
    values = [np.array2string(adapter.to_numpy(obj), prefix=_INDENT, edgeitems=_ENDS)] if show_data else []
    return _described(adapter.get_type_name(obj), [*values, *_kind(obj, adapter), f"shape={tuple(adapter.get_shape(obj))}"], _INDENT)


def _kind(obj: Any, adapter: Any) -> list[str]:
    layout = adapter.get_layout(obj)
    dtype = adapter.get_dtype(obj)
    if isinstance(dtype, enum.Enum):
        dtype = f"{type(dtype).__name__}.{dtype.name}"
    return [f"dtype={dtype}", *([f'layout="{layout}"'] if layout else []), f'device="{adapter.get_device(obj).lower()}"']


def format_batch(obj: Any, show_data: bool = True, indent: str = "", adapter: Any = None) -> str:
    """Return the text of a tensor list: its values unless ``show_data`` is False, element type, layout, device, number of samples and shapes.

    Args:
        obj: The tensor list.
        show_data: Whether the values are part of the text. Of many samples it has the first and the last two.
        indent: What the lines after the first begin with.
        adapter: An object with the methods of :class:`PipelineBatchAdapter`.

    >>> import numpy as np
    >>> from torch_ndd.dali.tensors import TensorListCPU, format_batch
    >>> print(format_batch(TensorListCPU(np.zeros((2, 3), np.uint8)), show_data=False))
    TensorListCPU(
        dtype=DALIDataType.UINT8,
        device="cpu",
        num_samples=2,
        shape=[(3,), (3,)])
    """
    adapter = PipelineBatchAdapter() if adapter is None else adapter
    indent += _INDENT
    values = [_samples_text(obj, adapter, indent)] if show_data else []
    parts = [*values, *_kind(obj, adapter), f"num_samples={adapter.get_length(obj)}", _shapes_text(adapter.get_shape(obj), indent)]
    return _described(adapter.get_type_name(obj), parts, indent)


def _samples_text(obj: Any, adapter: Any, indent: str) -> str:
    obj = adapter.to_cpu(obj)
    shapes = adapter.get_shape(obj)
    if not len(shapes):
        return "[]"
    elements = sum(max(int(np.prod(shape, dtype=np.int64)), 1) for shape in shapes)  # a sample without elements takes a line too
    gap = len(shapes) > 2 * _ENDS + 1 and elements > _MANY_ELEMENTS
    arrays = adapter.to_numpy(obj, edgeitems=_ENDS if gap else None)
    dimensions = arrays[0].ndim
    separator = ",\n" + "\n" * (dimensions - 1) + indent if dimensions else ", "
    return f"[{_joined([np.array2string(array, prefix=indent, edgeitems=_ENDS) for array in arrays], separator, gap)}]"


def _shapes_text(shapes: Any, indent: str) -> str:
    count = len(shapes)
    gap = count > _MANY_SHAPES or (count > 2 * _ENDS + 1 and count * len(shapes[0]) > _LONG_SHAPES)
    texts = [str(shape) for shape in _shown(shapes, _ENDS if gap else None)]
    begin, text = "shape=[", _joined(texts, ", ", gap)
    if len(text) > _LINE:
        text = _joined(texts, ", \n" + indent + " " * len(begin), gap)
    return f"{begin}{text}]"
