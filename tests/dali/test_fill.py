# SPDX-License-Identifier: Apache-2.0
"""Constants and one-hot codes against DALI's: everything is equal."""

from typing import Any

import numpy as np
import pytest
from _dali import assert_same, evaluate
from _raises import Raises, raising

import torch_ndd as ndd

IMAGE = np.arange(12, dtype=np.uint8).reshape(2, 3, 2)


def hwc(m: Any) -> Any:
    return m.tensor(IMAGE, layout="HWC")


def make_ragged(m: Any) -> Any:
    return m.batch([np.zeros(2), np.zeros(3)], layout="X")


def classes(m: Any) -> Any:
    return m.tensor([0, 2, 1])


def make_named(m: Any) -> Any:
    return m.tensor([1, 0], layout="W")


PROGRAMS = {
    "zeros": lambda m: m.zeros(shape=[2, 3]),
    "scalar shape": lambda m: m.zeros(shape=3),
    "a number": lambda m: m.zeros(),
    "no extents": lambda m: m.zeros(shape=[]),
    "layout": lambda m: m.zeros(shape=[1, 2], layout="HW"),
    "wrong layout": raising(RuntimeError, lambda m: m.zeros(shape=[1, 2], layout="H")),
    "float16": lambda m: m.zeros(shape=[1], dtype=m.float16),
    "bool": lambda m: m.ones(shape=[1], dtype=m.bool),
    "batch size": lambda m: m.zeros(shape=[1], batch_size=2),
    "array of whole floats": lambda m: m.zeros(shape=np.array([2.0, 3.0])),
    "batch of fractions": lambda m: m.ones(shape=m.batch([[1.5], [2.4]])),
    "full, array of whole floats": lambda m: m.full(3.5, shape=np.array([2.0])),
    "shapes": lambda m: m.ones(shape=m.batch([[1], [2]])),
    "negative": raising(RuntimeError, lambda m: m.zeros(shape=[-1])),
    "full": lambda m: m.full(3.5),
    "full, shape": lambda m: m.full(3.5, shape=[2]),
    "full, array": lambda m: m.full([1, 2], shape=[3, 2]),
    "full, wrong shape": raising(RuntimeError, lambda m: m.full([1, 2], shape=[3, 3])),
    "full, layout": lambda m: m.full(1, shape=[2], layout="X"),
    "full, batch": lambda m: m.full(m.batch([1, 2]), shape=[2]),
    "full, shapes": lambda m: m.full(5, shape=m.batch([[1], [2]])),
    "full, column": lambda m: m.full([[1], [2]], shape=[2, 3]),
    "full, int8": lambda m: m.full(np.int8(3), shape=[2]),
    "full, nothing": lambda m: m.full(3, shape=[0, 2]),
    "full, negative": raising(RuntimeError, lambda m: m.full(3, shape=[-1, 2])),
    "full, bool": lambda m: m.full(True, shape=[2]),
    "zeros_like": lambda m: m.zeros_like(hwc(m)),
    "ones_like": lambda m: m.ones_like(hwc(m), dtype=m.float32),
    "ones_like of a number": lambda m: m.ones_like(m.tensor(2.5)),
    "ones_like of a batch": lambda m: m.ones_like(make_ragged(m)),
    "full_like": lambda m: m.full_like(hwc(m), 7),
    "full_like, array": lambda m: m.full_like(hwc(m), [7, 8]),
    "full_like, wrong shape": raising(RuntimeError, lambda m: m.full_like(hwc(m), [7, 8, 9])),
    "full_like, fraction": lambda m: m.full_like(hwc(m), 2.5),
    "full_like, batch": lambda m: m.full_like(make_ragged(m), m.batch([1, 2])),
    "one_hot, no classes": lambda m: m.one_hot(classes(m)),
    "one_hot": lambda m: m.one_hot(classes(m), num_classes=3),
    "one_hot, axis 0": lambda m: m.one_hot(classes(m), num_classes=3, axis=0),
    "one_hot, axis 1": lambda m: m.one_hot(classes(m), num_classes=3, axis=1),
    "one_hot, axis 2": raising(RuntimeError, lambda m: m.one_hot(classes(m), num_classes=3, axis=2)),
    "one_hot, axis -2": raising(RuntimeError, lambda m: m.one_hot(classes(m), num_classes=3, axis=-2)),
    "one_hot, uint8": lambda m: m.one_hot(classes(m), num_classes=3, dtype=m.uint8),
    "one_hot, values": lambda m: m.one_hot(classes(m), num_classes=3, on_value=5, off_value=-1),
    "one_hot, no class": lambda m: m.one_hot(m.tensor([0, 5, -1]), num_classes=3),
    "one_hot, scalar": lambda m: m.one_hot(m.tensor(1), num_classes=3),
    "one_hot, scalar, name": lambda m: m.one_hot(m.tensor(1), num_classes=3, axis_name="C"),
    "one_hot, name": lambda m: m.one_hot(make_named(m), num_classes=2, axis_name="C"),
    "one_hot, name, axis 0": lambda m: m.one_hot(make_named(m), num_classes=2, axis_name="C", axis=0),
    "one_hot, name without a layout": raising(RuntimeError, lambda m: m.one_hot(classes(m), num_classes=2, axis_name="C")),
    "one_hot, long name": raising(RuntimeError, lambda m: m.one_hot(make_named(m), num_classes=2, axis_name="CD")),
    "one_hot, layout": lambda m: m.one_hot(make_named(m), num_classes=2),
    "one_hot, fractions": lambda m: m.one_hot(m.tensor([1.5, 0.4, -0.4]), num_classes=2),
    "one_hot, bytes": lambda m: m.one_hot(m.tensor(np.array([1, 255], np.uint8)), num_classes=2),
    "one_hot, negative": raising(RuntimeError, lambda m: m.one_hot(classes(m), num_classes=-1)),
    "one_hot, one number": lambda m: m.one_hot(m.tensor([[1]]), num_classes=3),
    "one_hot, one number, axis": lambda m: m.one_hot(m.tensor([[1]]), num_classes=3, axis=0),
    "one_hot, batch": lambda m: m.one_hot(m.batch([1, 2]), num_classes=3),
    "one_hot, planes": lambda m: m.one_hot(m.tensor([[0, 2, 1], [1, 1, 5]]), num_classes=3, axis=1),
    "one_hot, ragged": lambda m: m.one_hot(m.batch([[0, 1], [2], [1, 1, 1]]), num_classes=3),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_results_and_errors_equal_dali(program: Any, raises: Raises | None) -> None:
    assert_same(program, raises=raises)


def test_deliberate_differences() -> None:
    assert ndd.full([1, 2]).torch().tolist() == [1, 2]
    with pytest.raises(RuntimeError):
        evaluate(lambda m: m.full([[1, 2], [3, 4]], shape=[2]), ndd)
    assert ndd.one_hot(ndd.tensor([True, False]), num_classes=2).torch().tolist() == [[0, 1], [1, 0]]
    assert ndd.one_hot(classes(ndd), num_classes=3, on_value=2.5, off_value=-1, dtype=ndd.uint8).torch().tolist()[0] == [3, 0, 0]
    assert ndd.one_hot(classes(ndd), num_classes=3, dtype=ndd.float16).dtype is ndd.float16
