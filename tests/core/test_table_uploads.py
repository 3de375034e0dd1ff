# SPDX-License-Identifier: Apache-2.0
"""Tables of launchers on their way to a GPU, over emulated streams that are late (tests/emulated_cuda/decoders.py)."""

import ctypes
import os

import numpy as np
import pytest
from _threads import run_in_threads

from torch_ndd._core import native

pytestmark = pytest.mark.skipif("NDD_EMULATED_DECODERS" not in os.environ, reason="runs emulated")

ROUND = 1 << 20  # bytes of pinned memory of a stream


def upload(library: ctypes.CDLL, target: np.ndarray, source: np.ndarray) -> None:
    library.ndd_lazy_upload(*(ctypes.c_void_p(array.ctypes.data) for array in (target, source)), ctypes.c_size_t(source.nbytes))


@pytest.mark.parametrize("size", [1, 100, 4096, 100_000, 128 << 10, (128 << 10) + 1, 3 << 20])
def test_a_table_is_copied_although_its_source_changes(size: int) -> None:
    """Four rounds of the pinned memory: the device is late, and nothing may be overwritten before it has been copied."""
    library = ctypes.CDLL(str(native.PATH))
    count = min(4 * ROUND // size + 2, 1500)
    source, targets = np.empty(size, np.uint8), np.zeros((count, size), np.uint8)
    for k in range(count):
        source[:] = k % 251
        upload(library, targets[k], source)
        source[:] = 255
    library.ndd_lazy_finish()
    for k in range(count):
        assert (targets[k] == k % 251).all()


def test_threads_share_the_memory_of_a_stream() -> None:
    library = ctypes.CDLL(str(native.PATH))
    targets = np.zeros((4, 300, 5000), np.uint8)

    def work(thread: int) -> None:
        source = np.empty(5000, np.uint8)
        for k in range(300):
            source[:] = (thread * 300 + k) % 251
            upload(library, targets[thread, k], source)
            source[:] = 255

    run_in_threads(work, 4)
    library.ndd_lazy_finish()
    numbers = np.arange(1200).reshape(4, 300, 1) % 251
    assert (targets == numbers).all()
