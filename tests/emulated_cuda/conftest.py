# SPDX-License-Identifier: Apache-2.0
"""What keeps work pending on a device whose streams are late (late.py)."""

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from _late_values import decode_images

import torch_ndd as ndd
from torch_ndd._core import native


@pytest.fixture
def gate() -> Iterator[Callable[[bool], None]]:
    """A function that keeps images from being decoded, or lets them be."""
    close = ctypes.CDLL(str(native.PATH)).ndd_late_close_gate
    close(1)
    yield close
    close(0)


@pytest.fixture
def busy() -> Iterator[Callable[[bool], None]]:
    """A function that keeps the only thread of the CPU stream at work, so what is submitted stays pending, or lets it go on."""
    before = ndd.get_num_threads()
    ndd.set_num_threads(1)
    close_gate = ctypes.CDLL(str(native.PATH)).ndd_late_close_gate
    held: list[Any] = []

    def keep(at_work: bool) -> None:
        close_gate(int(at_work))
        if at_work:
            held.append(decode_images())  # which the thread begins first

    yield keep
    close_gate(0)
    for value in held:
        value.evaluate()
    ndd.set_num_threads(before)
