# SPDX-License-Identifier: Apache-2.0
"""``TensorCPU``, ``TensorGPU``, ``TensorListCPU`` and ``TensorListGPU``: outputs of pipelines, over :class:`torch_ndd.Tensor` and ``Batch``."""

from ._formatting import PipelineBatchAdapter, PipelineTensorAdapter, format_batch, format_tensor
from ._lists import TensorListCPU, TensorListGPU
from ._lists import as_tensor_list as as_tensor_list
from ._single import TensorCPU, TensorGPU

__all__ = [
    "PipelineBatchAdapter",
    "PipelineTensorAdapter",
    "TensorCPU",
    "TensorGPU",
    "TensorListCPU",
    "TensorListGPU",
    "format_batch",
    "format_tensor",
]
