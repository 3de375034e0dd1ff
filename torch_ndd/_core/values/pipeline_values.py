# SPDX-License-Identifier: Apache-2.0
"""The tensors and tensor lists of pipelines, which are accepted wherever a Tensor or a Batch is, and keep their layouts.

Those of ``torch_ndd.dali`` hold a Tensor or a Batch. NVIDIA's own share their memory through DLPack or an array interface; they are recognized by the
names of their classes, so that their package need not be installed.
"""

from collections.abc import Callable
from typing import Any

import torch

from .operand import Operand

_NVIDIA = "nvidia.dali."  # tensors or backend_impl, whichever was imported first
LISTS = ("TensorListCPU", "TensorListGPU")
_NAMES = ("TensorCPU", "TensorGPU", *LISTS)


class PipelineValue:
    """A tensor or a tensor list of a pipeline."""

    def _operand(self) -> Operand:
        """Return the Tensor or the Batch that this holds."""
        raise NotImplementedError


_importer: Callable[[Any], Operand] | None = None


def import_with(importer: Callable[[Any], Operand]) -> None:
    """Set the function that makes a Tensor or a Batch of an object of NVIDIA's package. Those classes are defined above this module."""
    global _importer
    _importer = importer


def unwrap(value: Any) -> Any:
    """Return the Tensor or the Batch of a pipeline's tensor or tensor list, and anything else unchanged.

    Raises:
        RuntimeError: elements that are not numbers.
    """
    if torch.compiler.is_compiling():
        return value
    if isinstance(value, PipelineValue):
        return value._operand()
    kind = type(value)
    if kind.__name__ in _NAMES and kind.__module__.startswith(_NVIDIA):
        assert _importer is not None
        return _importer(value)
    return value
