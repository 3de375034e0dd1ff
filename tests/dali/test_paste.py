# SPDX-License-Identifier: Apache-2.0
"""erase, grid_mask, paste and multi_paste against DALI's: elements are moved or replaced, so everything is equal."""

from typing import Any

import numpy as np
import pytest
from _dali import assert_alike, assert_same, evaluate
from _raises import Raises, raising

import torch_ndd as ndd

IMAGE = np.arange(1, 13, dtype=np.uint8).reshape(2, 3, 2)
RGB = np.arange(1, 13, dtype=np.uint8).reshape(2, 2, 3)
ONES = np.ones((5, 6), np.uint8)


def one(m: Any) -> Any:
    return m.tensor(ONES, layout="HW")


def bare(m: Any) -> Any:
    return m.tensor(ONES)


def hwc(m: Any) -> Any:
    return m.tensor(IMAGE, layout="HWC")


def two(m: Any) -> Any:
    return m.batch([np.ones((3, 3), np.uint8), np.ones((2, 2), np.uint8)], layout="HW")


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


ERASE = {
    "nothing": lambda m: m.erase(one(m)),
    "anchor alone": raising(RuntimeError, lambda m: m.erase(one(m), anchor=[0, 0])),
    "shape alone": lambda m: m.erase(one(m), shape=[2, 2]),
    "box": lambda m: m.erase(one(m), anchor=[1, 2], shape=[2, 3]),
    "axes": lambda m: m.erase(one(m), anchor=[1, 2], shape=[2, 3], axes=[0, 1]),
    "axes in another order": lambda m: m.erase(one(m), anchor=[1, 2], shape=[2, 3], axes=[1, 0]),
    "names": lambda m: m.erase(one(m), anchor=[1, 2], shape=[2, 3], axis_names="WH"),
    "one axis": lambda m: m.erase(one(m), anchor=[1], shape=[2], axes=[0]),
    "one name": lambda m: m.erase(one(m), anchor=[1], shape=[2], axis_names="W"),
    "two boxes": lambda m: m.erase(one(m), anchor=[0, 0, 3, 3], shape=[1, 1, 2, 2]),
    "overlapping": lambda m: m.erase(one(m), anchor=[0, 0, 1, 1], shape=[2, 2, 2, 2]),
    "two anchors, one shape": raising(RuntimeError, lambda m: m.erase(one(m), anchor=[0, 0, 3, 3], shape=[2, 2])),
    "one and a half": raising(RuntimeError, lambda m: m.erase(one(m), anchor=[0, 0, 3], shape=[1, 1, 1])),
    "value": lambda m: m.erase(one(m), anchor=[0, 0], shape=[2, 2], fill_value=[9]),
    "values": lambda m: m.erase(hwc(m), anchor=[0, 0], shape=[1, 2], fill_value=[100, 200]),
    "too many values": raising(RuntimeError, lambda m: m.erase(hwc(m), anchor=[0, 0], shape=[1, 2], fill_value=[100, 200, 201])),
    "values without channels": raising(RuntimeError, lambda m: m.erase(one(m), anchor=[0, 0], shape=[1, 2], fill_value=[100, 200])),
    "values of planes": lambda m: m.erase(m.tensor(np.ones((2, 2, 2), np.uint8), layout="CHW"), anchor=[0, 0], shape=[1, 1], fill_value=[7, 8]),
    "channels": lambda m: m.erase(m.tensor(np.ones((2, 2, 3), np.uint8), layout="HWC"), anchor=[1], shape=[1], axis_names="C", fill_value=[7, 8, 9]),
    "negative": lambda m: m.erase(one(m), anchor=[-1, -1], shape=[3, 3], fill_value=7),
    "beyond": lambda m: m.erase(one(m), anchor=[4, 5], shape=[3, 3], fill_value=7),
    "far away": lambda m: m.erase(one(m), anchor=[40, 50], shape=[3, 3], fill_value=7),
    "normalized": lambda m: m.erase(one(m), anchor=[0.2, 0.5], shape=[0.4, 0.5], normalized=True),
    "normalized anchor": lambda m: m.erase(one(m), anchor=[0.2, 0.5], shape=[2, 3], normalized_anchor=True),
    "normalized shape": lambda m: m.erase(one(m), anchor=[1, 3], shape=[0.4, 0.5], normalized_shape=True),
    "normalized both": lambda m: m.erase(one(m), anchor=[0.2, 0.5], shape=[0.4, 0.5], normalized_anchor=True, normalized_shape=True),
    "normalized twice": raising(
        RuntimeError, lambda m: m.erase(one(m), anchor=[0.2, 0.5], shape=[0.4, 0.5], normalized=True, normalized_anchor=True)
    ),
    "centered": lambda m: m.erase(one(m), anchor=[2, 2], shape=[3, 3], centered_anchor=True),
    "centered, even": lambda m: m.erase(one(m), anchor=[2, 2], shape=[2, 2], centered_anchor=True),
    "centered, fractions": lambda m: m.erase(one(m), anchor=[2.5, 2.5], shape=[1.5, 2], centered_anchor=True),
    "centered, normalized": lambda m: m.erase(one(m), anchor=[0.5, 0.5], shape=[0.5, 0.5], centered_anchor=True, normalized=True),
    "fractions": lambda m: m.erase(one(m), anchor=[1.5, 1.4], shape=[1.5, 2.6]),
    "less than a pixel": lambda m: m.erase(one(m), anchor=[0.5, 0.4], shape=[0.5, 0.2]),
    "negative shape": lambda m: m.erase(one(m), anchor=[2, 2], shape=[-1, 2]),
    "no layout": lambda m: m.erase(bare(m), anchor=[1, 2], shape=[2, 3], axes=[0, 1]),
    "nan": lambda m: m.erase(one(m), anchor=[float("nan"), 0], shape=[1, 1]),
    "batch": lambda m: m.erase(two(m), anchor=m.batch([[0.0, 0.0], [1.0, 1.0]]), shape=[1, 1], fill_value=m.batch([[4.0], [5.0]])),
    "boxes of samples": lambda m: m.erase(
        two(m), anchor=m.batch([f32(0, 0), f32(1, 1, 0, 0)]), shape=m.batch([f32(1, 1), f32(1, 1, 1, 1)]), fill_value=3
    ),
    "boxes of samples that differ": raising(RuntimeError, lambda m: m.erase(two(m), anchor=m.batch([f32(0, 0), f32(1, 1, 0, 0)]), shape=[1, 1])),
    "scalar": lambda m: m.erase(one(m), anchor=1, shape=2, axes=[0]),
    "float16": lambda m: m.erase(m.tensor(np.ones((2, 2), np.float16), layout="HW"), anchor=[0, 0], shape=[1, 1]),
    "depth": lambda m: m.erase(m.tensor(np.ones((2, 2, 2, 1), np.uint8), layout="DHWC"), anchor=[0, 0, 0], shape=[1, 1, 1], axis_names="DHW"),
    "no rows": lambda m: m.erase(m.tensor(np.ones((0, 2), np.uint8), layout="HW"), anchor=[0, 0], shape=[1, 1]),
}


@pytest.mark.parametrize("program", ERASE.values(), ids=ERASE)
def test_arguments_of_erase(program: Any, raises: Raises | None) -> None:
    assert_same(program, raises=raises)


@pytest.mark.parametrize("seed", range(20))
def test_erase_anywhere(seed: int) -> None:
    generator = np.random.default_rng(seed)
    image = generator.integers(0, 255, (37, 41, 3)).astype(np.uint8)
    anchor, shape = (generator.uniform(-0.2, 1.2, 6).round(3).tolist() for _ in range(2))
    assert_same(lambda m: m.erase(m.tensor(image, layout="HWC"), anchor=anchor, shape=shape, normalized=True, fill_value=[1, 2, 3]))
    sizes = [40 * v for v in shape]
    assert_same(lambda m: m.erase(m.tensor(image, layout="HWC"), anchor=anchor, shape=sizes, normalized_anchor=True, centered_anchor=True))


def test_erase_differences() -> None:
    for axes in ([0, 0], [3]):
        with pytest.raises(RuntimeError):
            evaluate(lambda m, axes=axes: m.erase(one(m), anchor=[1] * len(axes), shape=[1] * len(axes), axes=axes), ndd)
    assert ndd.erase(bare(ndd), anchor=[1, 2], shape=[2, 3]).torch().sum() == 24  # DALI crashes
    assert ndd.erase(one(ndd), anchor=[0, 0], shape=[2, 2], fill_value=300).torch().max() == 255
    assert ndd.erase(ndd.tensor(np.ones((2, 3, 3, 1)), layout="FHWC"), anchor=[0, 0], shape=[2, 2]).torch().sum() == 10


GRID = {
    "usual": {},
    "tile": {"tile": 4},
    "shift_x": {"tile": 4, "shift_x": 1.0},
    "half a pixel": {"tile": 4, "shift_x": 0.5},
    "shift_y": {"tile": 4, "shift_y": -1.0},
    "ratio": {"tile": 4, "ratio": 0.3},
    "angle": {"tile": 4, "angle": 0.3},
    "everything": {"tile": 7, "angle": -1.1, "shift_x": 3.3, "shift_y": -20.7, "ratio": 0.61},
    "none": {"tile": 4, "ratio": 0.0},
    "all": {"tile": 4, "ratio": 1.0},
    "more than all": {"tile": 4, "ratio": 1.5},
    "negative": {"tile": 4, "ratio": -1.0},
    "nan": {"tile": 4, "ratio": float("nan")},
    "tile 0": raising(RuntimeError, {"tile": 0}),
    "tile -1": raising(RuntimeError, {"tile": -1}),
}


@pytest.mark.parametrize("args", GRID.values(), ids=GRID)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
def test_grid_mask(args: dict[str, Any], dtype: str, raises: Raises | None) -> None:
    image = np.random.default_rng(0).integers(1, 99, (61, 83, 3)).astype(dtype)
    results = assert_alike(lambda m: m.grid_mask(m.tensor(image, layout="HWC"), **args), raises)
    if results is not None:
        differing = (results[0].samples[0] != results[1].samples[0]).any(-1).mean()
        assert differing <= 0.005  # pixels on an edge of a square, where the last bit decides


def test_grid_mask_of_a_batch() -> None:
    assert_same(lambda m: m.grid_mask(m.batch([np.ones((2, 2, 1), np.uint8), np.ones((3, 2, 1), np.uint8)]), tile=m.batch([2, 3])))


def test_grid_mask_of_planes_and_frames() -> None:
    image = np.ones((9, 9, 1), np.uint8)
    expected = ndd.grid_mask(ndd.tensor(image, layout="HWC"), tile=4).torch()[..., 0]
    assert ndd.grid_mask(ndd.tensor(image[None, ..., 0], layout="CHW"), tile=4).torch()[0].equal(expected)
    assert ndd.grid_mask(ndd.tensor(image[None], layout="FHWC"), tile=4).torch()[0, ..., 0].equal(expected)


def rgb(m: Any) -> Any:
    return m.tensor(RGB, layout="HWC")


PASTE = {
    "same size": lambda m: m.paste(rgb(m), ratio=1, fill_value=0),
    "larger": lambda m: m.paste(rgb(m), ratio=1.5, fill_value=7),
    "three values": lambda m: m.paste(rgb(m), ratio=1.5, fill_value=[7, 8, 9]),
    "two values": raising(RuntimeError, lambda m: m.paste(rgb(m), ratio=1.5, fill_value=[7, 8])),
    "one value": lambda m: m.paste(rgb(m), ratio=1.5, fill_value=[7]),
    "smaller": raising(RuntimeError, lambda m: m.paste(rgb(m), ratio=0.5, fill_value=0)),
    "corner": lambda m: m.paste(rgb(m), ratio=2, fill_value=0, paste_x=0, paste_y=1),
    "position above 1": raising(RuntimeError, lambda m: m.paste(rgb(m), ratio=2, fill_value=0, paste_x=1.5)),
    "position below 0": raising(RuntimeError, lambda m: m.paste(rgb(m), ratio=2, fill_value=0, paste_x=-0.1)),
    "least size": lambda m: m.paste(rgb(m), ratio=1, fill_value=0, min_canvas_size=4),
    "least size, fraction": lambda m: m.paste(rgb(m), ratio=1, fill_value=0, min_canvas_size=3.7),
    "least size below 0": raising(RuntimeError, lambda m: m.paste(rgb(m), ratio=1, fill_value=0, min_canvas_size=-1)),
    "two channels": lambda m: m.paste(hwc(m), ratio=1.5, fill_value=[1, 2], n_channels=2),
    "two channels, n_channels 3": raising(RuntimeError, lambda m: m.paste(hwc(m), ratio=1.5, fill_value=[1, 2])),
    "four channels": lambda m: m.paste(m.tensor(np.ones((1, 1, 4), np.uint8)), ratio=2, fill_value=[1, 2, 3, 4], n_channels=4),
    "planes": raising(ValueError, lambda m: m.paste(m.tensor(np.ones((3, 5, 7), np.uint8), layout="CHW"), ratio=1.3, fill_value=0)),
    "nan": raising(RuntimeError, lambda m: m.paste(rgb(m), ratio=float("nan"), fill_value=0)),
    "no value": raising(TypeError, lambda m: m.paste(rgb(m), ratio=1.5)),
    "no ratio": raising(TypeError, lambda m: m.paste(rgb(m), fill_value=1)),
    "batch": lambda m: m.paste(
        m.batch([np.ones((1, 1, 3), np.uint8), np.ones((2, 1, 3), np.uint8)]), ratio=m.batch([1.0, 2.0]), fill_value=0, paste_x=m.batch([0.0, 1.0])
    ),
}


@pytest.mark.parametrize("program", PASTE.values(), ids=PASTE)
def test_arguments_of_paste(program: Any, raises: Raises | None) -> None:
    assert_same(program, raises=raises)


@pytest.mark.parametrize("ratio", [1.1, 1.25, 1.37, 1.5, 1.9, 2.3, 3.0])
def test_paste_positions(ratio: float) -> None:
    image = np.arange(1, 5 * 7 * 3 + 1, dtype=np.uint8).reshape(5, 7, 3)
    for x, y in ((0.0, 1.0), (0.3, 0.7), (0.5, 0.5), (0.7, 0.1), (1.0, 0.2)):
        assert_same(lambda m, x=x, y=y: m.paste(m.tensor(image), ratio=ratio, fill_value=0, paste_x=x, paste_y=y, min_canvas_size=8.0))


def test_paste_differences() -> None:
    assert ndd.paste(ndd.tensor(np.ones((1, 1, 3), np.float32)), ratio=2, fill_value=3.5).torch().max() == 3.5
    assert ndd.paste(rgb(ndd), ratio=2, fill_value=300).torch().max() == 255


A = np.arange(1, 4 * 5 * 3 + 1, dtype=np.uint8).reshape(4, 5, 3)
B = (100 + np.arange(2 * 2 * 3, dtype=np.uint8)).reshape(2, 2, 3)


def a(m: Any) -> Any:
    return m.tensor(A, layout="HWC")


def b(m: Any) -> Any:
    return m.tensor(B, layout="HWC")


def ab(m: Any) -> Any:
    return m.batch([A, B], layout="HWC")


def int32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


MULTI = {
    "one": lambda m: m.multi_paste(a(m), output_size=[5, 6]),
    "no size": lambda m: m.multi_paste(a(m)),
    "two": lambda m: m.multi_paste(a(m), b(m), output_size=[5, 6]),
    "covered": lambda m: m.multi_paste(b(m), a(m), output_size=[5, 6]),
    "anchors": lambda m: m.multi_paste(a(m), b(m), output_size=[5, 6], out_anchors=m.tensor([[0, 1], [3, 4]])),
    "same shapes": lambda m: m.multi_paste(a(m), a(m)),
    "different shapes": raising(RuntimeError, lambda m: m.multi_paste(a(m), b(m))),
    "shapes": lambda m: m.multi_paste(a(m), b(m), output_size=[5, 6], out_anchors=m.tensor([[0, 1], [3, 4]]), shapes=m.tensor([[2, 2], [1, 2]])),
    "regions": lambda m: m.multi_paste(
        a(m),
        b(m),
        output_size=[5, 6],
        in_anchors=m.tensor([[1, 1], [0, 1]]),
        out_anchors=m.tensor([[0, 1], [3, 4]]),
        shapes=m.tensor([[2, 2], [2, 1]]),
    ),
    "to the corner": lambda m: m.multi_paste(
        a(m), b(m), output_size=[5, 6], in_anchors=m.tensor([[1, 1], [0, 1]]), out_anchors=m.tensor([[0, 0], [3, 4]])
    ),
    "relative": lambda m: m.multi_paste(
        a(m),
        b(m),
        output_size=[5, 6],
        in_anchors_rel=m.tensor([[0.25, 0.2], [0, 0.5]]),
        out_anchors_rel=m.tensor([[0, 0.2], [0.6, 0.7]]),
        shapes_rel=m.tensor([[0.5, 0.4], [1, 0.5]]),
    ),
    "ids": lambda m: m.multi_paste(ab(m), in_ids=[0, 1], output_size=[5, 6], out_anchors=m.tensor([[0, 0], [3, 3]])),
    "ids that do not fit": raising(
        RuntimeError, lambda m: m.multi_paste(ab(m), in_ids=m.batch([[0, 1], [1, 0]]), output_size=[5, 6], out_anchors=m.tensor([[0, 0], [3, 3]]))
    ),
    "ids of samples": lambda m: m.multi_paste(ab(m), in_ids=m.batch([int32(0, 1), int32(1)]), output_size=[5, 6]),
    "ids and anchors of samples": lambda m: m.multi_paste(
        ab(m), output_size=[6, 7], in_ids=m.batch([[0, 1], [1, 1]]), out_anchors=m.batch([[[0, 1], [4, 5]], [[2, 2], [0, 0]]])
    ),
    "different numbers of ids": lambda m: m.multi_paste(
        ab(m), output_size=[6, 7], in_ids=m.batch([int32(0, 1), int32(1)]), out_anchors=m.batch([np.int32([[0, 1], [4, 5]]), np.int32([[2, 2]])])
    ),
    "one id": lambda m: m.multi_paste(ab(m), in_ids=[1], output_size=[5, 6]),
    "no such id": raising(RuntimeError, lambda m: m.multi_paste(ab(m), in_ids=[2], output_size=[5, 6])),
    "negative id": raising(RuntimeError, lambda m: m.multi_paste(ab(m), in_ids=[-1], output_size=[5, 6])),
    "ids and two inputs": raising(RuntimeError, lambda m: m.multi_paste(a(m), b(m), in_ids=[0], output_size=[5, 6])),
    "ids without a size": lambda m: m.multi_paste(
        m.batch([A, A], layout="HWC"), in_ids=[1], out_anchors=m.tensor([[1, 1]]), shapes=m.tensor([[1, 1]])
    ),
    "batch": lambda m: m.multi_paste(ab(m), output_size=[5, 6]),
    "batch and tensor": lambda m: m.multi_paste(ab(m), a(m), output_size=[5, 6]),
    "too small": raising(RuntimeError, lambda m: m.multi_paste(a(m), output_size=[3, 3])),
    "beyond": raising(RuntimeError, lambda m: m.multi_paste(a(m), output_size=[5, 6], out_anchors=m.tensor([[2, 2]]))),
    "negative": raising(RuntimeError, lambda m: m.multi_paste(a(m), output_size=[5, 6], out_anchors=m.tensor([[-1, 0]]))),
    "beyond the input": raising(
        RuntimeError, lambda m: m.multi_paste(a(m), output_size=[5, 6], in_anchors=m.tensor([[2, 2]]), shapes=m.tensor([[4, 4]]))
    ),
    "before the input": raising(
        RuntimeError, lambda m: m.multi_paste(a(m), output_size=[5, 6], in_anchors=m.tensor([[-1, 0]]), shapes=m.tensor([[1, 1]]))
    ),
    "dtype": lambda m: m.multi_paste(a(m), output_size=[5, 6], dtype=m.float32),
    "saturated": lambda m: m.multi_paste(m.tensor(A.astype(np.int32) * 30, layout="HWC"), output_size=[5, 6], dtype=m.uint8),
    "two types": raising(RuntimeError, lambda m: m.multi_paste(a(m), m.tensor(B.astype(np.float32), layout="HWC"), output_size=[5, 6])),
    "channels": raising(RuntimeError, lambda m: m.multi_paste(a(m), m.tensor(np.ones((2, 2, 2), np.uint8), layout="HWC"), output_size=[5, 6])),
    "one anchor for two": raising(RuntimeError, lambda m: m.multi_paste(b(m), b(m), output_size=[5, 6], out_anchors=m.tensor([[1, 1]]))),
    "out_anchors twice": raising(
        RuntimeError, lambda m: m.multi_paste(a(m), output_size=[5, 6], out_anchors=m.tensor([[1, 1]]), out_anchors_rel=m.tensor([[0.1, 0.1]]))
    ),
    "in_anchors twice": raising(
        RuntimeError, lambda m: m.multi_paste(a(m), output_size=[5, 6], in_anchors=m.tensor([[1, 1]]), in_anchors_rel=m.tensor([[0.1, 0.1]]))
    ),
    "shapes twice": raising(
        RuntimeError, lambda m: m.multi_paste(a(m), output_size=[5, 6], shapes=m.tensor([[1, 1]]), shapes_rel=m.tensor([[0.1, 0.1]]))
    ),
    "one extent": raising(RuntimeError, lambda m: m.multi_paste(a(m), output_size=[5])),
    "three extents": lambda m: m.multi_paste(a(m), output_size=[5, 6, 3]),
    "sizes": lambda m: m.multi_paste(m.batch([B, B], layout="HWC"), output_size=m.batch([[2, 2], [3, 4]])),
    "negative size": raising(RuntimeError, lambda m: m.multi_paste(a(m), output_size=[-1, 5])),
    "no layout": lambda m: m.multi_paste(m.tensor(A), output_size=[5, 6]),
    "planes": raising(ValueError, lambda m: m.multi_paste(m.tensor(np.ones((3, 4, 5), np.uint8), layout="CHW"), output_size=[5, 6])),
    "empty region": lambda m: m.multi_paste(a(m), output_size=[5, 6], shapes=m.tensor([[0, 2]])),
    "negative shape": raising(RuntimeError, lambda m: m.multi_paste(a(m), output_size=[5, 6], shapes=m.tensor([[-1, 2]]))),
    "anchors of samples": lambda m: m.multi_paste(m.batch([A, A], layout="HWC"), output_size=[6, 7], out_anchors=m.batch([[[0, 1]], [[2, 2]]])),
    "float32": lambda m: m.multi_paste(m.tensor(A.astype(np.float32), layout="HWC"), output_size=[5, 6]),
    "more anchors than ids": raising(
        RuntimeError, lambda m: m.multi_paste(ab(m), in_ids=[1, 0], out_anchors=m.tensor([[1, 1], [0, 0], [2, 2]]), output_size=[5, 5])
    ),
    "factor above 1": raising(RuntimeError, lambda m: m.multi_paste(a(m), output_size=[5, 6], shapes_rel=m.tensor([[1.04, 1.0]]))),
}


@pytest.mark.parametrize("program", MULTI.values(), ids=MULTI)
def test_multi_paste(program: Any, raises: Raises | None) -> None:
    assert_same(program, raises=raises)


@pytest.mark.parametrize("at", [0.3, 0.34, 0.36, 0.05, 0.99])
@pytest.mark.parametrize("size", [0.1, 0.12, 0.15, 0.5, 0.01])
def test_relative_regions(at: float, size: float) -> None:
    image = np.arange(1, 101, dtype=np.uint8).reshape(10, 10, 1)
    where = {"in_anchors_rel": [[at, at]], "shapes_rel": [[size, size]], "out_anchors_rel": [[at / 2, at / 2]]}

    def program(m: Any) -> Any:
        return m.multi_paste(m.tensor(image, layout="HWC"), output_size=[20, 20], **{name: m.tensor(value) for name, value in where.items()})

    assert_same(program, raises=RuntimeError if at == 0.99 and size >= 0.12 else None)  # ends outside of the image, in rounded pixels


def test_sequences_are_pasted_by_frame() -> None:
    """DALI 2.4.0 fails for these."""
    video = ndd.tensor(np.stack([A, A + 50]), layout="FHWC")
    out = ndd.multi_paste(video, output_size=[6, 7], out_anchors=ndd.per_frame([[[0, 0]], [[2, 2]]]))
    assert (out.layout, out.shape) == ("FHWC", (2, 6, 7, 3))
    assert np.array_equal(np.asarray(out)[0, :4, :5], A)
    assert np.array_equal(np.asarray(out)[1, 2:, 2:], A + 50)
    assert ndd.multi_paste(ab(ndd)).shape == [(4, 5, 3), (2, 2, 3)]
    both = ndd.multi_paste(video, b(ndd), output_size=[5, 6], out_anchors=[[0, 0], [3, 3]])
    assert np.array_equal(np.asarray(both)[:, 3:, 3:5], np.stack([B, B]))
