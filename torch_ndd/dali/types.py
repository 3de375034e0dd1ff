# SPDX-License-Identifier: Apache-2.0
"""Constants, element types and enumerations of pipelines, and the arguments of sources."""

import enum
from typing import Any, NamedTuple

import numpy as np
import torch

from .. import tfrecord as tfrec
from .. import types as _types
from ..types import ANY_DATA as ANY_DATA
from ..types import BGR as BGR
from ..types import BOOL as BOOL
from ..types import DATA_TYPE as DATA_TYPE
from ..types import FEATURE as FEATURE
from ..types import FLOAT as FLOAT
from ..types import FLOAT16 as FLOAT16
from ..types import FLOAT64 as FLOAT64
from ..types import GRAY as GRAY
from ..types import IMAGE_TYPE as IMAGE_TYPE
from ..types import INT8 as INT8
from ..types import INT16 as INT16
from ..types import INT32 as INT32
from ..types import INT64 as INT64
from ..types import INTERP_CUBIC as INTERP_CUBIC
from ..types import INTERP_GAUSSIAN as INTERP_GAUSSIAN
from ..types import INTERP_LANCZOS3 as INTERP_LANCZOS3
from ..types import INTERP_LINEAR as INTERP_LINEAR
from ..types import INTERP_NN as INTERP_NN
from ..types import INTERP_TRIANGULAR as INTERP_TRIANGULAR
from ..types import INTERP_TYPE as INTERP_TYPE
from ..types import NCHW as NCHW
from ..types import NFCHW as NFCHW
from ..types import NFHWC as NFHWC
from ..types import NHWC as NHWC
from ..types import NO_TYPE as NO_TYPE
from ..types import PYTHON_OBJECT as PYTHON_OBJECT
from ..types import RGB as RGB
from ..types import STRING as STRING
from ..types import TENSOR_LAYOUT as TENSOR_LAYOUT
from ..types import UINT8 as UINT8
from ..types import UINT16 as UINT16
from ..types import UINT32 as UINT32
from ..types import UINT64 as UINT64
from ..types import DALIDataType as DALIDataType
from ..types import DALIImageType as DALIImageType
from ..types import DALIInterpType as DALIInterpType
from ..types import YCbCr as YCbCr
from ._graph.constants import ScalarConstant as ScalarConstant
from ._graph.constants import constant_tensor as constant_tensor
from ._graph.constants import is_number as _is_number
from ._graph.constants import to_dali_type as to_dali_type
from .data_node import constant_node as _constant_node

__all__ = ["tfrec"]  # and every name without an underscore

SAME = ""
CPU_ONLY_DEVICE_ID = -99999


class PipelineAPIType(enum.Enum):
    """The way in which a pipeline is run: ``run``, ``schedule_run`` and ``share_outputs``, or an iterator."""

    BASIC = 0
    ITERATOR = 1
    SCHEDULED = 2


class SampleInfo(NamedTuple):
    """The argument of a source of samples.

    Attributes:
        idx_in_epoch: Index of the sample in the epoch.
        idx_in_batch: Index of the sample in its batch.
        iteration: Index of the batch in the epoch.
        epoch_idx: Index of the epoch.
    """

    idx_in_epoch: int
    idx_in_batch: int
    iteration: int
    epoch_idx: int


class BatchInfo(NamedTuple):
    """The argument of a source of batches.

    Attributes:
        iteration: Index of the batch in the epoch.
        epoch_idx: Index of the epoch.
    """

    iteration: int
    epoch_idx: int


class CUDAStream:
    """A CUDA stream by its address."""

    def __init__(self, ptr: int = 0) -> None:
        self._ptr = int(ptr)

    @property
    def ptr(self) -> int:
        """Address of the ``cudaStream_t``."""
        return self._ptr


class TensorLayout(str):
    """The meaning of the dimensions, one letter each: ``HWC``."""


def to_numpy_type(dali_type: Any) -> Any:
    """Return the NumPy scalar type of an element type.

    Raises:
        KeyError: a type that NumPy does not have.
        TypeError: not a member of ``DALIDataType``.

    >>> to_numpy_type(UINT8)
    <class 'numpy.uint8'>
    """
    if not isinstance(dali_type, DALIDataType):
        raise TypeError(f"types.to_numpy_type takes a DALIDataType, got {dali_type!r}")
    try:
        dtype = _types.to_dtype(dali_type)
    except TypeError:
        raise KeyError(dali_type) from None
    return torch.empty(0, dtype=dtype).numpy().dtype.type


def Constant(value: Any, dtype: Any = None, shape: Any = None, layout: str | None = None, device: str | None = None, **kwargs: Any) -> Any:
    """Return a constant: a :class:`ScalarConstant` for a number without other arguments, a DataNode for anything else.

    Args:
        value: A number, a list of numbers, an array, a tensor or a member of an enumeration. Python's ints are int32, floats are float32, and so are
            arrays of float64; 64-bit integers become 32-bit ones unless ``dtype`` is given.
        dtype: Element type.
        shape: Extents; a number fills them.
        layout: Layout of a sample.
        device: ``"cpu"`` or ``"gpu"``.
        kwargs: Arguments of the operator ``fn.constant``: ``name``, ``preserve``.

    Raises:
        TypeError: anything else, or a list of lists.
        OverflowError: an array of integers that do not fit into 32 bits, and no ``dtype``.

    >>> Constant(5).uint8()
    5:DALIDataType.UINT8
    """
    if isinstance(value, ScalarConstant) and dtype is None:
        dtype = value.dtype
    number, number_type = value, dtype
    if isinstance(value, np.ndarray) and not value.ndim and value.dtype.kind in "biuf":
        number, number_type = value.item(), value.dtype if dtype is None else dtype
    if _is_number(number) and not isinstance(value, enum.Enum) and not shape and layout is None and device is None and not kwargs:
        return ScalarConstant(number, number_type)
    return ConstantNode(device, value, dtype, shape, layout, **kwargs)


def ConstantNode(device: str | None, value: Any, dtype: Any, shape: Any, layout: str | None, **kwargs: Any) -> Any:
    """Return a DataNode with the same value in every sample; see :func:`Constant`."""
    return _constant_node(value, dtype, shape, layout, device or "cpu", **kwargs)
