# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from _cases import Case, Each, Samples, arrays, images

import torch_ndd as ndd


def with_value(shape: tuple[int, ...], dtype: str, value_dtype: str = ""):
    """An array and its fill value, one number per column."""

    def make(ragged: bool) -> tuple[Samples, ...]:
        (output,) = images("HWC", dtype)(ragged)
        return output, [np.arange(10 * k, 10 * k + 3).reshape(shape).astype(value_dtype or dtype) for k in range(len(output))]

    return make


def hot(classes: np.ndarray, axis: int = -1, num_classes: int = 4, on_value: float = 1, off_value: float = 0, dtype: str = "float32", **_: object):
    result = np.full((*classes.shape, num_classes), off_value, np.float64)
    for c in range(num_classes):
        result[classes == c, c] = on_value
    return np.ascontiguousarray(np.moveaxis(result, -1, axis)).astype(dtype)


CASES = [
    *(
        Case(name, "shapes", args={"shape": Each([[2, 3], [4, 1], [5, 5]])}, ragged=False, out_layout=None, reference=function)
        for name, function in (("zeros", lambda shape: np.zeros(shape, np.int32)), ("ones", lambda shape: np.ones(shape, np.int32)))
    ),
    Case(
        "zeros",
        "layout",
        args={"shape": [20, 30, 3], "layout": "HWC", "dtype": ndd.uint8},
        ragged=False,
        out_layout="HWC",
        reference=lambda **_: np.zeros((20, 30, 3), np.uint8),
    ),
    Case("ones", "float16", args={"shape": 7, "dtype": ndd.float16}, ragged=False, out_layout=None, reference=lambda **_: np.ones(7, np.float16)),
    Case("ones", "a number", ragged=False, out_layout=None, reference=lambda: np.ones((), np.int32)),
    Case(
        "full",
        "row",
        arrays((3,), "float32", axes=()),
        {"shape": [5, 3], "layout": "HC"},
        out_layout="HC",
        reference=lambda value, **_: np.tile(value, (5, 1)),
    ),
    Case(
        "full",
        "column, shapes",
        arrays((2, 1), "uint8", axes=()),
        {"shape": Each([[2, 3], [2, 1], [2, 40]])},
        reference=lambda value, shape: np.broadcast_to(value, shape),
    ),
    Case("full", "as it is", images("HWC"), layout="HWC", out_layout=None, reference=lambda value: value),
    Case("zeros_like", "images", images("HWC"), layout="HWC", reference=np.zeros_like),
    Case("ones_like", "to float64", images("CHW"), {"dtype": ndd.float64}, layout="CHW", reference=lambda x, **_: np.ones_like(x, np.float64)),
    Case("full_like", "channels", with_value((3,), "uint8"), layout="HWC", reference=lambda x, value: np.broadcast_to(value, x.shape)),
    Case(
        "full_like",
        "converted",
        with_value((3,), "float64", "int32"),
        layout="HWC",
        reference=lambda x, value: np.broadcast_to(value, x.shape).astype(np.float64),
    ),
    Case("one_hot", "end", arrays((5, 6), "int32", high=6), {"num_classes": 4}, reference=hot),
    Case("one_hot", "middle", arrays((5, 6), "float32", high=6), {"num_classes": 4, "axis": 1}, reference=lambda x, **k: hot(x.astype(int), **k)),
    Case(
        "one_hot",
        "named",
        images("HW", "uint8", high=6),
        {"num_classes": 4, "axis": 0, "axis_name": "C", "on_value": 7.0, "off_value": 2.0, "dtype": ndd.int16},
        layout="HW",
        out_layout="CHW",
        reference=lambda x, **k: hot(x, **{**k, "dtype": "int16"}),
    ),
]


def test_full_like_converts_exactly() -> None:
    large = 2**53 - 1
    assert ndd.full_like(np.zeros(2, np.int64), np.float64(large)).torch().tolist() == [large, large]
    assert ndd.full_like(np.zeros(2, np.uint8), 300.5).torch().tolist() == [255, 255]


def test_one_hot_of_strange_numbers() -> None:
    classes = ndd.tensor(np.array([np.nan, np.inf, -np.inf, -0.5, 1.9, 1e30], np.float32))
    assert ndd.one_hot(classes, num_classes=2).torch().tolist() == [[0, 0], [0, 0], [0, 0], [1, 0], [0, 1], [0, 0]]
    assert ndd.one_hot(ndd.tensor(np.array([2**63], np.uint64)), num_classes=2).torch().tolist() == [0, 0]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "uint32", "float64"])
def test_every_type(dtype: str) -> None:
    assert ndd.ones(shape=[3, 1000], dtype=getattr(ndd, dtype)).torch().sum() == 3000
    assert not ndd.zeros(shape=[3, 1000], dtype=getattr(ndd, dtype)).torch().any()


def test_full_without_samples() -> None:
    assert ndd.full(ndd.as_batch(np.zeros((0, 2), np.float32)), shape=[3]).evaluate().batch_size == 0


def test_bad_arguments_are_rejected() -> None:
    with pytest.raises(RuntimeError, match="zeros: shape must not be negative"):
        ndd.zeros(shape=[2, -1])
    with pytest.raises(RuntimeError, match="full: sample 0: a value of shape \\(2,\\) can't be broadcast to \\(3,\\)"):
        ndd.full([1, 2], shape=[3])
    with pytest.raises(RuntimeError, match="full_like: sample 1: "):
        ndd.full_like(ndd.batch([[1, 2], [1, 2, 3]]), [1, 2])
    with pytest.raises(RuntimeError, match="one_hot: axis=3"):
        ndd.one_hot([1, 2], axis=3)
