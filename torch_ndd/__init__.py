# SPDX-License-Identifier: Apache-2.0
"""torch_ndd: data loading and augmentation, imperative, on PyTorch tensors."""

from . import types as types
from ._batch import Batch as Batch
from ._batch import as_batch as as_batch
from ._batch import batch as batch
from ._stream import EvalContext as EvalContext
from ._stream import EvalMode as EvalMode
from ._stream import get_num_threads as get_num_threads
from ._stream import set_num_threads as set_num_threads
from ._tensor import Device as Device
from ._tensor import Tensor as Tensor
from ._tensor import as_tensor as as_tensor
from ._tensor import tensor as tensor
from .ops.color import brightness as brightness
