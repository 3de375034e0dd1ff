# SPDX-License-Identifier: Apache-2.0
"""The tensors of pipelines under another name that programs import, and the memory that is cached for later results.

The growth factors and the shrink threshold of DALI's buffers are checked and stored, and have no effect: there are no such buffers.
"""

import torch

from .._core import native
from .._core.context.device import gpu_count
from .tensors import TensorCPU, TensorGPU, TensorListCPU, TensorListGPU

# fmt: off
__all__ = [
    "GetDeviceBufferGrowthFactor", "GetHostBufferGrowthFactor", "GetHostBufferShrinkThreshold", "PreallocateDeviceMemory",
    "PreallocatePinnedMemory", "ReleaseUnusedMemory", "RestrictPinnedMemUsage", "SetBufferGrowthFactor", "SetDeviceBufferGrowthFactor",
    "SetHostBufferGrowthFactor", "SetHostBufferShrinkThreshold", "TensorCPU", "TensorGPU", "TensorListCPU", "TensorListGPU",
]
# fmt: on


def _cuda_version() -> int:
    major, _, minor = (torch.version.cuda or "0").partition(".")
    return 1000 * int(major) + 10 * int(minor or 0)


__cuda_version__ = _cuda_version()  # of torch: 13000 is 13.0, 0 none


def RestrictPinnedMemUsage() -> bool:
    """Return False: nothing restricts pinned memory."""
    return False


def ReleaseUnusedMemory() -> None:
    """Return cached memory to the system: on the CPU that of this library, on GPUs that of torch."""
    native.release_idle_memory()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def PreallocateDeviceMemory(bytes: int, device_id: int) -> None:
    """Let torch allocate and cache GPU memory for later results. Without GPUs this has no effect."""
    if gpu_count():
        torch.empty(bytes, dtype=torch.uint8, device=torch.device("cuda", device_id))


def PreallocatePinnedMemory(bytes: int) -> None:
    """Let torch allocate and cache pinned memory for later copies to GPUs. Without GPUs this has no effect."""
    if gpu_count():
        torch.empty(bytes, dtype=torch.uint8, pin_memory=True)


_stored = {"host growth factor": 1.1, "device growth factor": 1.1, "host shrink threshold": 0.5}


def SetHostBufferGrowthFactor(factor: float) -> None:
    """Store the factor. Raise ValueError unless it lies between 1 and 4."""
    _stored["host growth factor"] = _growth(factor)


def SetDeviceBufferGrowthFactor(factor: float) -> None:
    """Store the factor. Raise ValueError unless it lies between 1 and 4."""
    _stored["device growth factor"] = _growth(factor)


def SetBufferGrowthFactor(factor: float) -> None:
    """Store the factor for host and device. Raise ValueError unless it lies between 1 and 4."""
    _stored["host growth factor"] = _stored["device growth factor"] = _growth(factor)


def SetHostBufferShrinkThreshold(ratio: float) -> None:
    """Store the threshold. Raise ValueError unless it lies between 0 and 1."""
    if not 0 <= ratio <= 1:
        raise ValueError(f"SetHostBufferShrinkThreshold: the threshold must lie between 0 and 1, got {ratio}")
    _stored["host shrink threshold"] = float(ratio)


def GetHostBufferGrowthFactor() -> float:
    """Return the stored factor."""
    return _stored["host growth factor"]


def GetDeviceBufferGrowthFactor() -> float:
    """Return the stored factor."""
    return _stored["device growth factor"]


def GetHostBufferShrinkThreshold() -> float:
    """Return the stored threshold."""
    return _stored["host shrink threshold"]


def _growth(factor: float) -> float:
    if not 1 <= factor <= 4:
        raise ValueError(f"the growth factor must lie between 1 and 4, got {factor}")
    return float(factor)
