# SPDX-License-Identifier: Apache-2.0
"""The tensors of pipelines under another name that programs import, the GPUs, and the memory that is cached for later results.

The growth factors and the shrink threshold of DALI's buffers are checked and stored, and have no effect: there are no such buffers.
"""

import torch

from .._core import native
from .._core.context.device import Device, cuda_problem, gpu_count
from .tensors import TensorCPU, TensorGPU, TensorListCPU, TensorListGPU

# fmt: off
__all__ = [
    "GetCUDACurrentDevice", "GetCUDADeviceCount", "GetDeviceBufferGrowthFactor", "GetHostBufferGrowthFactor",
    "GetHostBufferShrinkThreshold", "PreallocateDeviceMemory", "PreallocatePinnedMemory", "ReleaseUnusedMemory", "RestrictPinnedMemUsage",
    "SetBufferGrowthFactor", "SetCUDACurrentDevice", "SetDeviceBufferGrowthFactor", "SetHostBufferGrowthFactor",
    "SetHostBufferShrinkThreshold", "TensorCPU", "TensorGPU", "TensorListCPU", "TensorListGPU",
]
# fmt: on


def _cuda_version() -> int:
    major, _, minor = (torch.version.cuda or "0").partition(".")
    return 1000 * int(major) + 10 * int(minor or 0)


__cuda_version__ = _cuda_version()  # of torch: 13000 is 13.0, 0 none


def GetCUDADeviceCount() -> int:
    """Return how many GPUs this process can use."""
    return gpu_count()


def GetCUDACurrentDevice() -> int:
    """Return the number of CUDA's current device. Raise RuntimeError without a GPU."""
    if (problem := cuda_problem()) is not None:
        raise RuntimeError(f"GetCUDACurrentDevice: no GPU can be used: {problem}")
    return torch.cuda.current_device()


def SetCUDACurrentDevice(device_id: int) -> None:
    """Make a GPU CUDA's current device in this thread, as ``torch.cuda.set_device`` does. Raise RuntimeError if there is none of this number."""
    try:
        torch.cuda.set_device(Device("gpu", device_id).device_id)
    except ValueError as error:
        raise RuntimeError(f"SetCUDACurrentDevice: {error}") from None


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
