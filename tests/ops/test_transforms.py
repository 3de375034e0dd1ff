# SPDX-License-Identifier: Apache-2.0
import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case, Each, Inputs

import torch_ndd as ndd
from torch_ndd import transforms


def square(matrix: Any) -> np.ndarray:
    """Append the row of zeros and a one that turns composition into a product of matrices."""
    rows = np.asarray(matrix, np.float64)
    return np.vstack([rows, [0] * len(rows) + [1]])


def after(output: np.ndarray, value: np.ndarray | None, reverse_order: bool = False) -> np.ndarray:
    whole = square(output) if value is None else square(value) @ square(output) if reverse_order else square(output) @ square(value)
    return whole[:-1].astype(np.float32)


def about(linear: np.ndarray, center: Any) -> np.ndarray:
    point = np.broadcast_to(np.zeros(1) if center is None else np.asarray(center, np.float64), len(linear))
    return np.hstack([linear, (point - linear @ point)[:, None]])


def translate_reference(value: np.ndarray | None = None, offset: Any = None, reverse_order: bool = False) -> np.ndarray:
    return after(np.hstack([np.eye(len(offset)), np.reshape(offset, (-1, 1))]), value, reverse_order)


def scale_reference(value: np.ndarray | None = None, scale: Any = None, center: Any = None, ndim: int = 1, reverse_order: bool = False) -> np.ndarray:
    factors = np.atleast_1d(scale)
    factors = np.broadcast_to(factors, len(value) if value is not None else max(ndim, len(factors)))
    return after(about(np.diag(factors), center), value, reverse_order)


def rotate_reference(
    value: np.ndarray | None = None, angle: float = 0, axis: Any = None, center: Any = None, reverse_order: bool = False
) -> np.ndarray:
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    linear = np.array([[cos, -sin], [sin, cos]])
    if axis is not None:
        x, y, z = np.asarray(axis) / np.linalg.norm(axis)
        linear = np.eye(3) * cos + sin * np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) + (1 - cos) * np.outer((x, y, z), (x, y, z))
    return after(about(linear, center), value, reverse_order)


def shear_reference(value: np.ndarray | None = None, shear: Any = None, angles: Any = None, center: Any = None) -> np.ndarray:
    values = np.ravel(shear if angles is None else np.tan(np.radians(angles)))
    linear = np.eye({2: 2, 6: 3}[len(values)])
    linear[~np.eye(len(linear), dtype=bool)] = values
    return after(about(linear, center), value)


def crop_reference(
    value: np.ndarray | None = None,
    from_start: Any = 0.0,
    from_end: Any = 1.0,
    to_start: Any = 0.0,
    to_end: Any = 1.0,
    absolute: bool = False,
    reverse_order: bool = False,
) -> np.ndarray:
    a, b, c, d = np.broadcast_arrays(*map(np.atleast_1d, (from_start, from_end, to_start, to_end)))
    if absolute:
        a, b, c, d = np.minimum(a, b), np.maximum(a, b), np.minimum(c, d), np.maximum(c, d)
    factor = (d - c) / (b - a)
    return after(np.hstack([np.diag(factor), (c - a * factor)[:, None]]), value, reverse_order)


def combine_reference(*inputs: np.ndarray, reverse_order: bool = False) -> np.ndarray:
    whole = np.eye(len(inputs[0]) + 1)
    for value in inputs:
        whole = whole @ square(value) if reverse_order else square(value) @ whole
    return whole[:-1].astype(np.float32)


def matrices(dims: int, inputs: int = 1) -> Inputs:
    """Random maps."""

    def make(ragged: bool) -> tuple[list[np.ndarray], ...]:
        del ragged
        generator = np.random.default_rng(5)
        return tuple([generator.uniform(-2, 2, (dims, dims + 1)).astype(np.float32) for _ in range(3)] for _ in range(inputs))

    return make


def for_frames(ragged: bool) -> tuple[list[np.ndarray], ...]:
    """Maps for two frames or more, and one for all."""
    generator = np.random.default_rng(6)
    frames = [generator.uniform(-2, 2, (2 + k * ragged, 2, 3)).astype(np.float32) for k in range(3)]
    return frames, matrices(2)(ragged)[0]


def combined_frames(frames: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.stack([combine_reference(frame, other) for frame in frames])


EXTENTS = "the extents of ragged maps, which a graph does not know, say how many dimensions they have"
POINTS = Each([[1.0, 2.0], [-3.0, 0.5], [7.0, 0.0]])
TOLERANCE = 2e-5
PLAIN: dict[str, Any] = {"tolerance": TOLERANCE, "ragged": False, "out_layout": "**"}
CASES = [
    Case("transforms.translation", "each", args={"offset": POINTS}, reference=translate_reference, **PLAIN),
    Case("transforms.translation", "three", args={"offset": [1.0, -2.0, 3.0]}, reference=translate_reference, **PLAIN),
    Case(
        "transforms.scale", "each", args={"scale": POINTS, "center": Each([[1.0, 2.0], [5.0, 0.0], [-1.0, 3.0]])}, reference=scale_reference, **PLAIN
    ),
    Case("transforms.scale", "dimensions", args={"scale": 2.0, "ndim": 3, "center": [1.0, 2.0, 3.0]}, reference=scale_reference, **PLAIN),
    Case("transforms.rotation", "each", args={"angle": Each([10.0, -60.0, 90.0]), "center": POINTS}, reference=rotate_reference, **PLAIN),
    Case(
        "transforms.rotation", "axis", args={"angle": 40.0, "axis": Each([[0.0, 0, 1], [1, 2, 0.5], [0, -1, 0]])}, reference=rotate_reference, **PLAIN
    ),
    Case("transforms.shear", "each", args={"shear": POINTS, "center": POINTS}, reference=shear_reference, **PLAIN),
    Case("transforms.shear", "angles", args={"angles": Each([[10.0, 20.0], [-50.0, 0.0], [70.0, 5.0]])}, reference=shear_reference, **PLAIN),
    Case("transforms.shear", "three", args={"shear": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "center": [1.0, 2.0, 3.0]}, reference=shear_reference, **PLAIN),
    Case(
        "transforms.crop",
        "each",
        args={"from_start": POINTS, "from_end": Each([[9.0, 3.0], [4.0, -4.0], [0.0, 1.0]])},
        reference=crop_reference,
        **PLAIN,
    ),
    Case("transforms.crop", "to", args={"to_start": POINTS, "to_end": Each([3.0, -4.0, 9.0]), "absolute": True}, reference=crop_reference, **PLAIN),
    Case("transforms.combine", "two", matrices(2, 2), {}, reference=combine_reference, **PLAIN),
    Case("transforms.combine", "frames", for_frames, {}, "F**", combined_frames, TOLERANCE, uncompiled=EXTENTS),
    Case("transforms.combine", "three reversed", matrices(3, 3), {"reverse_order": True}, reference=combine_reference, **PLAIN),
]


@pytest.mark.parametrize("reverse", [False, True])
def test_after_another_map(reverse: bool) -> None:
    values = matrices(2)(False)[0][0]
    for function, reference, args in (
        (transforms.translation, translate_reference, {"offset": [1.0, 2.0]}),
        (transforms.scale, scale_reference, {"scale": [3.0]}),
        (transforms.rotation, rotate_reference, {"angle": 33.0, "center": [4.0]}),
        (transforms.crop, crop_reference, {"from_end": [2.0, 4.0]}),
    ):
        result = np.asarray(function(values, reverse_order=reverse, **args))
        np.testing.assert_allclose(result, reference(values, reverse_order=reverse, **args), atol=TOLERANCE)


def test_arguments_per_frame() -> None:
    offsets, angles = np.float32([[1, 2], [3, 4], [5, 6]]), [0.0, 30.0, 90.0]
    turned = transforms.rotation(angle=ndd.per_frame(angles), center=[1.0, 2.0])
    assert (turned.shape, turned.layout) == ((3, 2, 3), "F**")
    moved = np.asarray(transforms.translation(turned, offset=ndd.per_frame(offsets)))
    for k, matrix in enumerate(moved):
        expected = translate_reference(rotate_reference(None, angles[k], center=[1.0, 2.0]), offsets[k])
        np.testing.assert_allclose(matrix, expected, atol=TOLERANCE)
    both = np.asarray(transforms.combine(turned, transforms.scale(scale=[2.0, 3.0])))
    np.testing.assert_allclose(both[1], scale_reference(rotate_reference(None, 30.0, center=[1.0, 2.0]), [2.0, 3.0]), atol=TOLERANCE)
    video = np.random.default_rng(0).integers(0, 256, (3, 9, 11, 1)).astype(np.uint8)
    warped = np.asarray(ndd.warp_affine(ndd.tensor(video, layout="FHWC"), turned))
    assert np.array_equal(warped[1], np.asarray(ndd.warp_affine(ndd.tensor(video[1]), matrix=np.asarray(turned)[1])))


def test_a_matrix_of_shears() -> None:
    flat = transforms.shear(shear=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert torch.equal(flat.torch(), transforms.shear(shear=np.arange(1.0, 7.0).reshape(3, 2)).torch())


def test_numbers_of_dimensions() -> None:
    for dims in range(1, 7):
        assert transforms.translation(offset=[1.0] * dims).shape == (dims, dims + 1)
    assert transforms.scale(scale=2.0).shape == (1, 2)
    assert transforms.crop().shape == (1, 2)


IDENTITY = np.eye(2, 3, dtype=np.float32)


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("dimensions", lambda: transforms.translation(offset=[1.0] * 7)),
        ("2 dimensions.*one of 3", lambda: transforms.translation(IDENTITY, offset=[1.0, 2.0, 3.0])),
        (r"D by D \+ 1", lambda: transforms.translation(np.eye(3, dtype=np.float32), offset=[1.0, 2.0])),
        ("starts with F", lambda: transforms.translation(np.stack([IDENTITY] * 2), offset=[1.0, 2.0])),
        ("center", lambda: transforms.scale(scale=[1.0, 2.0], center=[1.0, 2.0, 3.0])),
        ("axis", lambda: transforms.rotation(angle=3.0, axis=[1.0, 2.0])),
        ("axis.*zero", lambda: transforms.rotation(angle=3.0, axis=[0.0, 0.0, 0.0])),
        ("one of shear and angles", lambda: transforms.shear()),
        ("one of shear and angles", lambda: transforms.shear(shear=[1.0, 2.0], angles=[1.0, 2.0])),
        ("2 or 6", lambda: transforms.shear(shear=[1.0, 2.0, 3.0])),
        ("1 or 3", lambda: transforms.crop(from_start=[1.0, 2.0], to_end=[1.0, 2.0, 3.0])),
        ("one shape", lambda: transforms.combine(IDENTITY, np.eye(3, 4, dtype=np.float32))),
        ("frames", lambda: transforms.combine(ndd.per_frame(np.stack([IDENTITY] * 2)), ndd.per_frame(np.stack([IDENTITY] * 3)))),
        ("frames", lambda: transforms.crop(from_end=ndd.per_frame([[1.0, 2.0]] * 2), to_end=ndd.per_frame([[1.0, 2.0]] * 3))),
    ],
)
def test_wrong_arguments(words: str, call: Any) -> None:
    with pytest.raises(RuntimeError) as raised:
        call().evaluate()
    assert re.search(words, str(raised.value))
