# SPDX-License-Identifier: Apache-2.0
"""``coord_flip`` and ``coord_transform``, against NumPy."""

from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case, Each, arrays

import torch_ndd as ndd
from torch_ndd import coord_flip, coord_transform, per_frame


def flip_reference(points: np.ndarray, layout: str = "", **args: Any) -> np.ndarray:
    output = points.copy()
    for k, axis in enumerate(layout or "xyz"[: points.shape[1]]):
        if args.get(f"flip_{axis}", axis == "x"):
            output[:, k] = 2 * np.float32(args.get(f"center_{axis}", 0.5)) - points[:, k]
    return output


def transform_reference(points: np.ndarray, M: Any = None, T: Any = 0.0, MT: Any = None, dtype: Any = None) -> np.ndarray:
    columns = points.shape[-1]
    if MT is not None:
        both = np.asarray(MT, np.float64).reshape(-1, columns + 1)
        matrix, shift = both[:, :-1], both[:, -1]
    else:
        matrix = np.eye(columns) * M if np.ndim(M) == 0 and M is not None else np.eye(columns) if M is None else np.reshape(M, (-1, columns))
        shift = np.asarray(T, np.float64)
    output = points.astype(np.float64) @ matrix.T + shift
    if dtype in (torch.int32, torch.uint8):
        output = np.clip(
            np.copysign(np.floor(np.abs(output) + 0.5), output), 0 if dtype is torch.uint8 else -(2**31), 255 if dtype is torch.uint8 else 2**31
        )
    return output.astype(str(dtype or torch.float32).removeprefix("torch."))


points = arrays((9, 2), "float32", axes=(0,), low=-5, high=5)
in_space = arrays((4, 3, 3), "float32", axes=(0, 1), low=-5, high=5)

CASES = [
    Case(
        "coord_flip",
        "plane",
        points,
        {
            "flip_x": Each([0, 1, 1]),
            "flip_y": Each([1, 0, 1]),
            "flip_z": Each([1, 0, 1]),
            "center_x": Each([0.5, 1.5, -3.0]),
            "center_y": Each([0.25, 2.0, 0.0]),
            "center_z": Each([0.25, 2.0, 0.0]),
        },
        reference=flip_reference,
        tolerance=1e-6,
    ),
    Case(
        "coord_flip",
        "space, another order",
        arrays((5, 3), "float32", axes=(0,)),
        {"layout": "zxy", "flip_z": 1, "center_z": 7.0},
        reference=flip_reference,
        tolerance=1e-6,
        uncompiled="",
    ),
    Case(
        "coord_transform",
        "both parts",
        points,
        {"M": Each([[0.0, 1.0, 1.0, 0.0], [2.0, 0.5, 0.25, 3.0], [1.0, 0.0, 0.0, 1.0]]), "T": Each([[0.0, 0.0], [5.0, -7.0], [1.0, 1.0]])},
        reference=transform_reference,
        tolerance=1e-5,
    ),
    Case(
        "coord_transform",
        "one matrix, another dimension",
        in_space,
        {"MT": Each(np.random.default_rng(1).normal(size=(3, 2, 4)).astype(np.float32))},
        reference=transform_reference,
        tolerance=1e-5,
    ),
    Case("coord_transform", "numbers", points, {"M": 2.0, "T": -1.5}, reference=transform_reference, tolerance=1e-6),
    Case("coord_transform", "nothing", points, {}, reference=transform_reference),
    Case(
        "coord_transform",
        "integers",
        arrays((5, 2), "int32", axes=(0,), low=0, high=60),
        {"M": [1.5, 0.0, 0.0, 2.0], "dtype": torch.uint8},
        reference=transform_reference,
    ),
    Case(
        "coord_transform",
        "doubles",
        arrays((5, 2), "float64", axes=(0,)),
        {"T": 1e-9, "dtype": torch.float64},
        reference=transform_reference,
        tolerance=1e-12,
    ),
]


def array(value: Any) -> np.ndarray:
    return np.asarray(value)


def test_matrices_for_each_frame() -> None:
    generator = np.random.default_rng(3)
    frames = generator.normal(size=(4, 5, 2)).astype(np.float32)
    matrices, shifts = generator.normal(size=(4, 3, 2)).astype(np.float32), generator.normal(size=(4, 3)).astype(np.float32)
    expected = np.einsum("frc,fpc->fpr", matrices, frames) + shifts[:, None]
    video = ndd.tensor(frames, layout="FNX")
    output = coord_transform(video, M=per_frame(matrices), T=per_frame(shifts))
    assert output.layout == "FNX"
    np.testing.assert_allclose(array(output), expected, atol=1e-5)
    both = np.concatenate([matrices, shifts[..., None]], 2)
    np.testing.assert_allclose(array(coord_transform(video, MT=per_frame(both))), expected, atol=1e-5)
    scaled = coord_transform(video, M=per_frame([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_allclose(array(scaled), frames * np.arange(1, 5)[:, None, None], atol=1e-5)
    for count, still in zip(range(4), frames, strict=True):  # points without frames, seen by all matrices
        output = coord_transform(still, MT=per_frame(both))
        np.testing.assert_allclose(array(output)[count], expected[count], atol=1e-5)
    ragged = ndd.batch([frames, frames[:2]], layout="FNX")
    assert coord_transform(ragged, MT=per_frame(ndd.batch([both, both[:2]]))).evaluate().shape == [(4, 5, 3), (2, 5, 3)]
    assert coord_transform(ndd.batch([frames[0], frames[1, :3]]), MT=per_frame(ndd.batch([both, both[:2]]))).evaluate().shape == [
        (4, 5, 3),
        (2, 3, 3),
    ]
    with pytest.raises(RuntimeError, match="frames"):
        coord_transform(video, MT=per_frame(both[:3]))
    for contradictory in (both[:2], both, ndd.batch([both, both])):
        with pytest.raises(RuntimeError, match=r"'MT' is for . frames, but sample . of input 0 has . frames"):
            coord_transform(ragged, MT=per_frame(contradictory))
    with pytest.raises(RuntimeError, match="the matrices are for 4 frames, the input has 1"):
        coord_transform(ndd.tensor(frames[:1], layout="FNX"), MT=per_frame(both))
    with pytest.raises(RuntimeError, match="marked with per_frame"):
        coord_transform(frames[0], MT=both)


def test_large_integers_keep_their_last_digit() -> None:
    values = np.array([[2**30 + 1, 2**52 + 1]])
    assert array(coord_transform(values, T=[1.0, 1.0], dtype=torch.int64)).tolist() == [[2**30 + 2, 2**52 + 2]]


def test_no_points() -> None:
    assert coord_transform(np.zeros((0, 2), np.float32), MT=[1, 0, 0, 0, 1, 0, 1, 1, 1]).evaluate().shape == (0, 3)
    assert coord_flip(np.zeros((0, 3), np.float32)).evaluate().shape == (0, 3)
    assert coord_transform(np.zeros((3, 0), np.float32)).evaluate().shape == (3, 0)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda p: coord_flip(p.astype(np.float64)), "float32"),
        (lambda p: coord_flip(p[0]), "table"),
        (lambda p: coord_flip(np.zeros((2, 4), np.float32)), "columns"),
        (lambda p: coord_flip(p, layout="xx"), "layout"),
        (lambda p: coord_flip(p, layout="xyz"), "layout"),
        (lambda p: coord_transform(p[0]), "two dimensions"),
        (lambda p: coord_transform(p, M=1.0, MT=[1.0, 0, 0, 0, 1, 0]), "MT"),
        (lambda p: coord_transform(p, MT=[1.0, 0, 0, 0, 1]), "MT must be a matrix"),
        (lambda p: coord_transform(p, M=[1.0, 0, 0]), "M must be a matrix"),
        (lambda p: coord_transform(p, T=[1.0, 0, 0]), "T must be"),
    ],
)
def test_coordinates_reject_wrong_arguments(call: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        call(np.zeros((3, 2), np.float32))
