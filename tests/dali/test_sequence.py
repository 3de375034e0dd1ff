# SPDX-License-Identifier: Apache-2.0
"""Frames of sequences against DALI's: everything is equal."""

from typing import Any

import numpy as np
import pytest
from _dali import assert_same
from _raises import Raises, raising

FRAMES = np.arange(6, dtype=np.uint8).reshape(3, 2)


def fh(m: Any) -> Any:
    return m.tensor(FRAMES, layout="FH")


def bare(m: Any) -> Any:
    return m.tensor(FRAMES)


def batch(m: Any) -> Any:
    return m.batch([np.arange(4.0).reshape(2, 2), np.arange(6.0).reshape(3, 2)], layout="FH")


def video(m: Any) -> Any:
    return m.batch([np.arange(n * 60, dtype=np.int16).reshape(n, 4, 5, 3) for n in (4, 6)], layout="FHWC")


def int32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def parts(m: Any, x: Any, elements: Any, k: int) -> Any:
    result = m.element_extract(x, element_map=elements)
    return result[k] if isinstance(result, tuple) else result


PROGRAMS = {
    "order": lambda m: m.sequence_rearrange(fh(m), new_order=[2, 0, 1]),
    "repeated": lambda m: m.sequence_rearrange(fh(m), new_order=[2, 2]),
    "no such frame": raising(RuntimeError, lambda m: m.sequence_rearrange(fh(m), new_order=[3])),
    "negative": raising(RuntimeError, lambda m: m.sequence_rearrange(fh(m), new_order=[-1])),
    "no order": raising(RuntimeError, lambda m: m.sequence_rearrange(fh(m), new_order=[])),
    "no layout": lambda m: m.sequence_rearrange(bare(m), new_order=[1]),
    "no sequence": raising(RuntimeError, lambda m: m.sequence_rearrange(m.tensor(np.zeros((2, 2)), layout="HW"), new_order=[1])),
    "scalar": raising(RuntimeError, lambda m: m.sequence_rearrange(fh(m), new_order=m.tensor(1))),
    "orders": lambda m: m.sequence_rearrange(batch(m), new_order=m.batch([[0], [2]])),
    "orders of different length": lambda m: m.sequence_rearrange(batch(m), new_order=m.batch([int32(0), int32(2, 1)])),
    "orders of a tensor": lambda m: m.sequence_rearrange(fh(m), new_order=m.batch([int32(0), int32(2, 1)])),
    "two axes of orders": raising(RuntimeError, lambda m: m.sequence_rearrange(fh(m), new_order=m.tensor([[2, 0]]))),
    "one axis": raising(RuntimeError, lambda m: m.sequence_rearrange(m.tensor([1, 2, 3], layout="F"), new_order=[2])),
    "a number": raising(RuntimeError, lambda m: m.sequence_rearrange(m.tensor(1), new_order=[2])),
    "no frames": raising(RuntimeError, lambda m: m.sequence_rearrange(m.tensor(np.zeros((0, 2)), layout="FH"), new_order=[0])),
    "video": lambda m: m.sequence_rearrange(video(m), new_order=[3, 1, 1, 0]),
    "extract": lambda m: parts(m, fh(m), [1], 0),
    "extract the second": lambda m: parts(m, fh(m), [1, 0], 1),
    "extract twice": lambda m: parts(m, fh(m), [1, 1], 1),
    "extract, no such frame": raising(RuntimeError, lambda m: parts(m, fh(m), [3], 0)),
    "extract, negative": raising(RuntimeError, lambda m: parts(m, fh(m), [-1], 0)),
    "extract nothing": raising(RuntimeError, lambda m: parts(m, fh(m), [], 0)),
    "extract, no layout": lambda m: parts(m, bare(m), [1], 0),
    "extract, no sequence": raising(RuntimeError, lambda m: parts(m, m.tensor(np.zeros((2, 2)), layout="HW"), [1], 0)),
    "extract, scalar": lambda m: parts(m, fh(m), 1, 0),
    "extract, one axis": raising(RuntimeError, lambda m: parts(m, m.tensor([1, 2], layout="F"), [1], 0)),
    "extract, batch": lambda m: parts(m, batch(m), [0, 1], 1),
    "extract, batch, no such frame": raising(RuntimeError, lambda m: parts(m, batch(m), [0, 2], 1)),
    "extract, video": lambda m: parts(m, video(m), [3, 0, 2], 2),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_results_and_errors_equal_dali(program: Any, raises: Raises | None) -> None:
    assert_same(program, raises=raises)
