# SPDX-License-Identifier: Apache-2.0
"""The tensors of pipelines, under the name that some programs import them by."""

from .tensors import TensorCPU as TensorCPU
from .tensors import TensorGPU as TensorGPU
from .tensors import TensorListCPU as TensorListCPU
from .tensors import TensorListGPU as TensorListGPU
