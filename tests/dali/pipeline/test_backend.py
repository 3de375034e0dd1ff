# SPDX-License-Identifier: Apache-2.0
"""Functions of ``backend`` for GPUs and memory: compared with DALI where that needs no GPU."""

from typing import Any

import pytest
import torch
from _pipelines import both, sub
from _raises import Raises, raising

import torch_ndd as ndd
from torch_ndd._core import native
from torch_ndd.dali import backend

GETTERS = ("GetHostBufferGrowthFactor", "GetDeviceBufferGrowthFactor", "GetHostBufferShrinkThreshold")


@pytest.mark.parametrize(
    ("setter", "value"),
    [
        ("SetHostBufferGrowthFactor", 2),
        ("SetDeviceBufferGrowthFactor", 1.0),
        ("SetBufferGrowthFactor", 4.0),
        ("SetHostBufferShrinkThreshold", 1.0),
        raising(ValueError, "SetBufferGrowthFactor", 0.9),
        raising(ValueError, "SetHostBufferGrowthFactor", 4.5),
        raising(ValueError, "SetHostBufferShrinkThreshold", -0.5),
        raising(TypeError, "SetHostBufferShrinkThreshold", "all"),
    ],
)
def test_buffer_factors_are_stored_and_checked(setter: str, value: Any, raises: Raises | None) -> None:
    def program(dali: Any) -> Any:
        module = sub(dali, "backend")
        before = [getattr(module, name)() for name in GETTERS]
        try:
            getattr(module, setter)(value)
            return [before, [getattr(module, name)() for name in GETTERS]]
        finally:
            module.SetHostBufferGrowthFactor(before[0])
            module.SetDeviceBufferGrowthFactor(before[1])
            module.SetHostBufferShrinkThreshold(before[2])

    both(program, raises=raises)


@pytest.mark.skipif(b"sanitizer address" in native.build_info(), reason="nothing is kept, so its use after it is freed is found")
def test_unused_memory_is_released() -> None:
    """The buffer of a large result is kept when the result is dropped, and released once."""
    backend.ReleaseUnusedMemory()
    large = ndd.zeros(shape=[8 << 20], dtype=ndd.uint8, batch_size=1)
    large.evaluate()
    kept = ndd.zeros(shape=[8 << 20], dtype=ndd.uint8, batch_size=1).evaluate()
    del large
    assert native.release_idle_memory() >= 8 << 20
    assert native.release_idle_memory() == 0
    assert int(ndd.reductions.sum(kept).cpu().torch()) == 0


def test_gpus_are_counted_and_chosen() -> None:
    """Without a GPU there is none to choose; that is an error, as in DALI."""
    count = backend.GetCUDADeviceCount()
    assert count == torch.cuda.device_count()
    if count:
        backend.SetCUDACurrentDevice(count - 1)
        assert backend.GetCUDACurrentDevice() == count - 1
        backend.SetCUDACurrentDevice(0)
        assert backend.GetCUDACurrentDevice() == 0
    else:
        both(lambda dali: sub(dali, "backend").GetCUDACurrentDevice(), raises=RuntimeError)
        both(lambda dali: sub(dali, "backend").SetCUDACurrentDevice(0), raises=RuntimeError)
    for number in (-1, count):
        with pytest.raises(RuntimeError, match=f"Invalid device id {number}"):
            backend.SetCUDACurrentDevice(number)


def test_memory_is_taken_ahead() -> None:
    backend.PreallocateDeviceMemory(1 << 20, 0)
    backend.PreallocatePinnedMemory(1 << 20)
