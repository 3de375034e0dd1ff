# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _cases import Case, Each, arrays, images

import torch_ndd as ndd


def half_up(x: float) -> int:
    return int(np.copysign(np.floor(abs(x) + 0.5), x))


def cut(image: np.ndarray, limits: dict[int, tuple[int, int]], fill: object = None, trim: bool = False, channel: int = -1) -> np.ndarray:
    """The reference: the window [begin, end) along each axis of ``limits``, filled outside, or trimmed."""
    for axis, (begin, end) in limits.items():
        places = np.arange(begin, end)
        inside = (places >= 0) & (places < image.shape[axis])
        if trim:
            places, inside = places[inside], inside[inside]
        taken = image.take(np.clip(places, 0, image.shape[axis] - 1), axis)
        filler = np.zeros(1) if fill is None else np.asarray(fill, float)
        filler = filler.reshape([-1 if d == channel else 1 for d in range(image.ndim)]) if filler.size > 1 else filler
        image = np.where(inside.reshape([-1 if d == axis else 1 for d in range(image.ndim)]), taken, filler).astype(image.dtype)
    return image


def relative(image: np.ndarray, starts: dict[int, float], ends: dict[int, float]) -> np.ndarray:
    n = image.shape
    return cut(image, {axis: (half_up(np.float32(a) * n[axis]), half_up(np.float32(ends[axis]) * n[axis])) for axis, a in starts.items()})


FILLED = {"out_of_bounds_policy": "pad", "fill_values": Each([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])}
CASES = [
    Case(
        "slice",
        "start and shape",
        images("HWC"),
        {"start": Each([[3, 1], [0, 0], [5, 7]]), "shape": [4, 9], "axes": [1, 0]},
        layout="HWC",
        reference=lambda image, start, **_: cut(image, {1: (start[0], start[0] + 4), 0: (start[1], start[1] + 9)}),
    ),
    Case(
        "slice",
        "shapes",
        images("CHW", "float32"),
        {"shape": Each([[3, 1], [10, 17], [5, 7]]), "axis_names": "WH"},
        layout="CHW",
        reference=lambda image, shape, **_: image[:, : shape[1], : shape[0]],
    ),
    Case(
        "slice",
        "ends, padded",
        images("HWC"),
        {"start": [-2, 3], "end": Each([[20, 30], [3, 4], [40, 25]]), "axis_names": "HW", **FILLED},
        layout="HWC",
        reference=lambda image, end, fill_values, **_: cut(image, {0: (-2, end[0]), 1: (3, end[1])}, fill_values, channel=2),
    ),
    Case(
        "slice",
        "trimmed, to float16",
        images("FHWC", "int16", low=-300, high=300),
        {"start": [-2, 3], "end": [60, 9], "axis_names": "HW", "out_of_bounds_policy": "trim_to_shape", "dtype": ndd.float16},
        layout="FHWC",
        reference=lambda image, **_: cut(image, {1: (-2, 60), 2: (3, 9)}, trim=True).astype(np.float16),
    ),
    Case(
        "slice",
        "relative",
        images("HWC", "int32"),
        {"rel_start": Each([[0.1, 0.2], [0.5, 0.0], [0.33, 0.9]]), "rel_end": Each([[0.5, 0.2], [0.75, 1.0], [0.8, 0.95]]), "axes": [0, 1]},
        layout="HWC",
        reference=lambda image, rel_start, rel_end, **_: relative(image, dict(enumerate(rel_start)), dict(enumerate(rel_end))),
    ),
    Case(
        "slice",
        "relative shape",
        images("HWC"),
        {"rel_start": 0.25, "rel_shape": Each([[0.5], [0.1], [0.7]]), "axes": [0]},
        layout="HWC",
        reference=lambda image, rel_shape, **_: relative(image, {0: 0.25}, {0: 0.25 + np.float32(rel_shape[0])}),
    ),
    Case(
        "slice",
        "axes of samples",
        arrays((7, 8), "uint16"),
        {"start": 1, "shape": [3], "axes": Each([[0], [1], [-1]])},
        reference=lambda image, axes, **_: cut(image, {axes[0] % 2: (1, 4)}),
        uncompiled="axes decide about shapes, so they must be known when a graph is traced",
    ),
    *(
        Case(
            "slice",
            f"{layout} to {dtype}",
            images(layout, source),
            {"start": [2, 3], "end": [8, 9], "axis_names": "HW", "dtype": getattr(ndd, dtype)},
            layout=layout,
            reference=lambda image, layout=layout, to=dtype, **_: cut(image, {layout.index("H"): (2, 8), layout.index("W"): (3, 9)}).astype(to),
        )
        for layout, source, dtype in (("HWC", "uint8", "float32"), ("DHWC", "uint8", "int32"), ("FCDHW", "uint8", "float64"), ("CHW", "bool", "bool"))
    ),
    Case("pad", "batch", images("HWC"), {"fill_value": Each([1.0, 2.0, 3.0])}, layout="HWC", ragged=False, reference=lambda image, **_: image),
    Case(
        "pad",
        "shape and align",
        images("HWC", "float32"),
        {"shape": Each([[30, 1], [18, 40], [20, 20]]), "align": Each([[8, 8], [4, 1], [1, 16]]), "axes": [1, 0], "fill_value": Each([1.0, 2.0, 3.0])},
        layout="HWC",
        reference=lambda image, shape, align, fill_value, **_: cut(
            image, {axis: (0, -(-max(image.shape[axis], n) // k) * k) for axis, n, k in zip((1, 0), shape, align, strict=True)}, fill_value
        ),
    ),
    Case(
        "pad",
        "axes of samples",
        arrays((7, 8), "int64"),
        {"shape": [12], "axes": Each([[0], [1], [-1]])},
        reference=lambda image, axes, **_: cut(image, {axes[0] % 2: (0, max(12, image.shape[axes[0]]))}),
        uncompiled="axes decide about shapes, so they must be known when a graph is traced",
    ),
    *(
        Case(
            "pad",
            dtype,
            arrays((7, 3), dtype, high=2),
            {"shape": 20, "axes": [0], "fill_value": 1.0},
            reference=lambda image, **_: cut(image, {0: (0, 20)}, 1),
        )
        for dtype in ("bool", "int8", "float16", "float64")
    ),
]


def test_pad_takes_the_largest_extents() -> None:
    batch = ndd.batch([np.ones((2, 5), np.uint8), np.ones((4, 3), np.uint8)], layout="HW")
    padded = ndd.pad(batch, fill_value=7)
    assert padded.ragged_shapes is None
    assert padded.torch()[0].tolist() == [[1] * 5, [1] * 5, [7] * 5, [7] * 5]
    assert ndd.pad(batch, axis_names="W").shape == [(2, 5), (4, 5)]
    assert ndd.pad(batch, axes=[0], align=3).shape == [(6, 5), (6, 3)]
    assert ndd.pad(batch, axes=ndd.batch([[0], [1]])).shape == [(4, 5), (4, 5)]


IMAGE = np.arange(6 * 7 * 3, dtype=np.uint8).reshape(6, 7, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give start, end or shape by name, or anchor and shape by position"),
        ({"start": [5, 0], "shape": [4, 1]}, r"sample 0: the window \[5, 9\) exceeds axis W of extent 7"),
        ({"start": [2, 0], "end": [1, 1]}, "along axis 1 the window ends at 1, before its start at 2"),
        ({"start": [0, 0], "shape": [-1, 1]}, "argument 'shape' must not be negative"),
        ({"rel_start": [float("nan"), 0]}, "argument 'rel_start' must be finite"),
        ({"rel_start": [float("inf"), 0]}, "argument 'rel_start' must be finite"),
        ({"start": [1, 1, 1]}, "argument 'start' must have 2 values"),
        ({"start": 1, "rel_start": 0.5}, "start and rel_start are mutually exclusive"),
        ({"end": 1, "shape": 2}, "end and shape are mutually exclusive"),
        ({"start": 1, "axes": [3]}, "Axis 3 out of range"),
        ({"start": 1, "axis_names": "D"}, "Axis 'D' is not present"),
        (
            {"start": 1, "out_of_bounds_policy": "ignore"},
            "out_of_bounds_policy must be one of error, trim_to_shape, reflect_101, .*edge, pad, fill, got 'ignore'",
        ),
        ({"start": 1, "out_of_bounds_policy": "pad", "fill_values": [1, 2]}, "'fill_values' has 2 values, but there are 3 channels"),
    ],
)
def test_errors_at_the_call(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(RuntimeError, match=f"^slice: .*{message}"):
        ndd.slice(ndd.tensor(IMAGE, layout="HWC"), **arguments)


def test_error_names_the_sample() -> None:
    images = ndd.batch([IMAGE, IMAGE[:, :4], IMAGE], layout="HWC")
    with pytest.raises(RuntimeError, match=r"^slice: sample 1: the window \[0, 5\) exceeds axis W of extent 4"):
        ndd.slice(images, shape=[5, 2])
    assert ndd.slice(images, shape=[5, 2], out_of_bounds_policy="trim_to_shape").shape == [(2, 5, 3), (2, 4, 3), (2, 5, 3)]


def test_arguments_by_position() -> None:
    image = ndd.tensor(IMAGE, layout="HWC")
    expected = IMAGE[2:4, 1:5]
    for anchor, shape in (([1, 2], [4, 2]), (np.array([1, 2]), torch.tensor([4, 2])), (ndd.tensor([1, 2]), ndd.tensor([4, 2]))):
        assert np.array_equal(np.asarray(ndd.slice(image, anchor, shape)), expected)
    floats = ndd.slice(image, [1 / 7, 2 / 6], ndd.tensor([4 / 7, 2 / 6]))
    assert np.array_equal(np.asarray(floats), expected)
    batch = ndd.slice(image, ndd.batch([[1, 2], [0, 0]]), [4, 2])
    assert batch.shape == [(2, 4, 3), (2, 4, 3)]
    with pytest.raises(TypeError, match="unexpected argument 'anchor'"):
        ndd.slice(image, anchor=[1, 2])
    with pytest.raises(TypeError, match="takes 1 to 3 positional inputs, got 4"):
        ndd.slice(image, [1, 2], [1, 1], [1, 1])
    with pytest.raises(RuntimeError, match="anchor and shape must be given together"):
        ndd.slice(image, [1, 2])


def test_the_window_waits_for_its_anchor_only() -> None:
    with ndd.EvalMode.deferred:
        image = ndd.brightness(ndd.tensor(IMAGE, layout="HWC"), brightness=1.0)
        anchor = ndd.cast(ndd.tensor([1, 2], dtype=ndd.int64), dtype=ndd.int32)
        part = ndd.slice(image, anchor, [4, 2])
        assert image.pending is not None
        assert not image.pending.done()
    assert np.array_equal(np.asarray(part), IMAGE[2:4, 1:5])


@pytest.mark.parametrize("layout", ["CHW", "HWC", "FCHW"])
@pytest.mark.parametrize("shape", [(9, 4), (9, 9), (4, 9), (2, 9), (9, 2)])
def test_fill_values_of_channels_around_rows(layout: str, shape: tuple[int, int]) -> None:
    """Rows, columns or both lie outside of images of 4 x 4."""
    axes = [layout.index(name) for name in "HWC"]
    image = np.random.default_rng(0).integers(10, 99, [{"F": 2, "C": 3}.get(name, 4) for name in layout]).astype(np.uint8)
    output = ndd.slice(
        ndd.tensor(image, layout=layout), rel_start=[0.0, 0.0], shape=shape, axis_names="HW", out_of_bounds_policy="pad", fill_values=[1, 2, 3]
    )
    extents = list(image.shape)
    extents[axes[0]], extents[axes[1]] = shape
    expected = np.empty(extents, np.uint8)
    np.moveaxis(expected, axes[2], -1)[...] = [1, 2, 3]
    inside = [slice(None)] * image.ndim
    inside[axes[0]], inside[axes[1]] = (slice(0, min(4, n)) for n in shape)
    expected[tuple(inside)] = image[tuple(inside)]
    assert np.array_equal(np.asarray(output), expected)
