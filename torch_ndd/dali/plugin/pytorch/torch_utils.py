# SPDX-License-Identifier: Apache-2.0
"""Conversion of pipeline outputs to torch tensors."""

from typing import Any

import torch

from ... import types
from ...tensors import TensorCPU, TensorGPU, TensorListCPU, TensorListGPU

__all__ = ["TensorCPU", "TensorGPU", "TensorListCPU", "TensorListGPU", "feed_ndarray", "to_torch_tensor", "to_torch_type"]

to_torch_type: dict[types.DALIDataType, torch.dtype] = {
    types.DALIDataType.FLOAT: torch.float32,
    types.DALIDataType.FLOAT64: torch.float64,
    types.DALIDataType.FLOAT16: torch.float16,
    types.DALIDataType.UINT8: torch.uint8,
    types.DALIDataType.UINT16: torch.uint16,
    types.DALIDataType.UINT32: torch.uint32,
    types.DALIDataType.UINT64: torch.uint64,
    types.DALIDataType.INT8: torch.int8,
    types.DALIDataType.INT16: torch.int16,
    types.DALIDataType.INT32: torch.int32,
    types.DALIDataType.INT64: torch.int64,
    types.DALIDataType.BOOL: torch.bool,
}


def to_torch_tensor(dali_tensor: Any, copy: bool) -> torch.Tensor:
    """Return the values of a TensorCPU, a TensorGPU or a dense list of tensors, whose batch axis then comes first.

    Without ``copy`` the result shares the memory. Raise RuntimeError for a list of tensors of different shapes.
    """
    # as_tensor() raises for lists of different shapes.
    tensor = torch.from_dlpack(dali_tensor.as_tensor() if hasattr(dali_tensor, "as_tensor") else dali_tensor)
    return tensor.clone() if copy else tensor


def feed_ndarray(dali_tensor: Any, arr: torch.Tensor, cuda_stream: Any = None) -> torch.Tensor:
    """Copy the values of a tensor, or of a dense list of tensors, into an existing torch tensor and return it.

    Args:
        dali_tensor: A TensorCPU, TensorGPU, TensorListCPU or TensorListGPU.
        arr: A tensor of the same shape and type, on any device.
        cuda_stream: A ``torch.cuda.Stream`` on which to copy; by default the current one.

    Raises:
        AssertionError: the shapes or the types differ.
    """
    with torch.cuda.stream(cuda_stream if isinstance(cuda_stream, torch.cuda.Stream) else None):
        values = to_torch_tensor(dali_tensor, copy=False)  # ready for the stream that is current
        if values.dtype != arr.dtype:
            raise AssertionError(f"feed_ndarray: the destination must have the type {values.dtype}, got {arr.dtype}")
        if values.shape != arr.shape:
            raise AssertionError(f"feed_ndarray: the destination must have the shape {list(values.shape)}, got {list(arr.shape)}")
        return arr.copy_(values)
