# SPDX-License-Identifier: Apache-2.0
"""Text of tensors and tensor lists, and the adapters through which the formatting functions read them."""

from typing import Any

import numpy as np

from ..._core.values.printing import abbreviate, batch_text, tensor_text


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

    def to_numpy(self, obj: Any, edgeitems: int | None = None) -> Any:
        """Return the samples as a list of arrays: with ``edgeitems``, only that many from either end of a long list."""
        samples = self.to_cpu(obj)
        return [np.array(samples[i]) for i in abbreviate(range(len(samples)), edgeitems)]


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
    return tensor_text(obj, PipelineTensorAdapter() if adapter is None else adapter, show_data)


def format_batch(obj: Any, show_data: bool = True, indent: str = "", adapter: Any = None) -> str:
    """Return the text of a tensor list: its values unless ``show_data`` is False, element type, layout, device, number of samples and shapes.

    Args:
        obj: The tensor list.
        show_data: Whether the values are part of the text. Of many samples only the first and the last two are included.
        indent: Indentation of the lines after the first.
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
    return batch_text(obj, PipelineBatchAdapter() if adapter is None else adapter, show_data, indent)
