# SPDX-License-Identifier: Apache-2.0
"""Windows that leave an array whose border consists of its own elements: slice and crop."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case, Each, arrays, images

import torch_ndd as ndd

NAMES = {
    "clamp": ("clamp", "edge"),
    "reflect_1001": ("reflect_1001", "reflect1001", "1001", "reflect"),
    "reflect_101": ("reflect_101", "reflect101", "101"),
    "wrap": ("wrap",),
}


def places(border: str, start: int, extent: int, length: int) -> np.ndarray:
    """Return the elements of an axis that stand at the positions of a window."""
    at = np.arange(start, start + extent)
    if border == "clamp" or length == 1:
        return np.clip(at, 0, length - 1)
    if border == "wrap":
        return at % length
    twice = 1 if border == "reflect_1001" else 0  # times that the last element is repeated
    period = 2 * length - 2 + 2 * twice
    return np.where(at % period < length, at % period, period - twice - at % period)


def cut(array: np.ndarray, border: str, windows: dict[int, tuple[int, int]]) -> np.ndarray:
    """Return windows along axes, each given by its start and its extent."""
    for axis, (start, extent) in windows.items():
        array = array.take(places(border, start, extent, array.shape[axis]), axis)
    return array


def center(image: np.ndarray, border: str, axes: tuple[int, int], size: tuple[int, int]) -> np.ndarray:
    starts = [(image.shape[axis] - extent) / 2 for axis, extent in zip(axes, size, strict=True)]
    rounded = [int(np.copysign(np.floor(abs(start) + 0.5), start)) for start in starts]
    return cut(image, border, {axis: (start, extent) for axis, start, extent in zip(axes, rounded, size, strict=True)})


CASES = [
    *(
        Case(
            "slice",
            border,
            images("HWC"),
            {"start": Each([[-3, -9], [2, -40], [-5, 3]]), "end": Each([[30, 29], [23, 70], [9, 60]]), "axis_names": "HW"}
            | {"out_of_bounds_policy": border},
            layout="HWC",
            reference=lambda image, start, end, border=border, **_: cut(image, border, {a: (start[a], end[a] - start[a]) for a in (0, 1)}),
        )
        for border in NAMES
    ),
    Case(
        "slice",
        "reflected, to float32",
        images("FCHW", "int16"),
        {"start": [-7], "shape": [60], "axis_names": "W", "out_of_bounds_policy": "101", "dtype": ndd.float32},
        layout="FCHW",
        reference=lambda image, **_: cut(image, "reflect_101", {3: (-7, 60)}).astype(np.float32),
    ),
    Case(
        "slice",
        "several periods",
        arrays((3, 2, 4), "float64"),
        {"start": [-11, -30, 9], "shape": [25, 41, 13], "axes": [0, 1, 2], "out_of_bounds_policy": "reflect"},
        reference=lambda array, **_: cut(array, "reflect_1001", {0: (-11, 25), 1: (-30, 41), 2: (9, 13)}),
    ),
    Case(
        "crop",
        "repeated edges",
        images("CHW"),
        {"crop": [40, 50], "out_of_bounds_policy": "edge"},
        layout="CHW",
        reference=lambda image, **_: center(image, "clamp", (1, 2), (40, 50)),
    ),
    Case(
        "crop",
        "reflected, sizes per sample",
        images("DHWC", "float32"),
        {"crop_h": Each([30.0, 5.0, 41.0]), "crop_w": Each([9.0, 70.0, 33.0]), "crop_pos_x": 0.0, "crop_pos_y": 1.0}
        | {"out_of_bounds_policy": "reflect_101"},
        layout="DHWC",
        reference=lambda image, crop_h, crop_w, **_: cut(image, "reflect_101", {1: (image.shape[1] - int(crop_h), int(crop_h)), 2: (0, int(crop_w))}),
    ),
]


@pytest.mark.parametrize("border", NAMES)
@pytest.mark.parametrize("seed", range(6))
def test_random_windows_equal_numpy(border: str, seed: int, device: str) -> None:
    random = np.random.default_rng(seed)
    for round_ in range(25):
        ndim = int(random.integers(1, 5)) if round_ % 5 else int(random.integers(5, 9))
        most, farthest = (9, 40) if ndim < 4 else (3, 7)
        dtype = str(random.choice(["uint8", "int16", "float16", "float32", "float64", "bool", "int64"]))
        values = [random.integers(0, 100, random.integers(1, most, ndim)).astype(dtype) for _ in range(3)]
        starts = random.integers(-farthest, farthest, (3, ndim))
        extents = random.integers(0, farthest if ndim < 4 else 5, (3, ndim))
        options: dict[str, Any] = {"axes": list(range(ndim)), "out_of_bounds_policy": str(random.choice(NAMES[border]))}
        batch = ndd.batch(values, device=device)
        found = ndd.slice(batch, start=ndd.batch(list(starts.astype(np.int32))), shape=ndd.batch(list(extents.astype(np.int32))), **options).cpu()
        for ours, array, start, extent in zip(found, values, starts, extents, strict=True):
            expected = cut(array, border, dict(enumerate(zip(start.tolist(), extent.tolist(), strict=True))))
            np.testing.assert_array_equal(np.asarray(ours), expected, strict=True)


@pytest.mark.parametrize("border", NAMES)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("channels", [1, 3, 4, 5])
def test_borders_of_images_equal_numpy(border: str, dtype: str, channels: int, device: str) -> None:
    """Widths of a vector and of a part of it; sides of no, one and many pixels."""
    random = np.random.default_rng(channels)
    for width in (1, 2, 15, 16, 17, 100, 700):
        values = [random.integers(0, 256, (int(random.integers(1, 40)), width, channels)).astype(dtype) for _ in range(2)]
        left, right = (int(random.choice([0, 1, 2, 3, 4, 5, 8, 9, 16, 40, 300])) for _ in range(2))
        batch = ndd.batch(values, layout="HWC", device=device)
        options: dict[str, Any] = {"axis_names": "HW", "out_of_bounds_policy": border}
        found = ndd.slice(batch, start=[-left // 4, -left], shape=[40 + right // 4, width + left + right], **options).cpu()
        for ours, image in zip(found, values, strict=True):
            expected = cut(image, border, {0: (-left // 4, 40 + right // 4), 1: (-left, width + left + right)})
            np.testing.assert_array_equal(np.asarray(ours), expected, strict=True)


@pytest.mark.parametrize("border", NAMES)
def test_windows_may_lie_far_outside(border: str, device: str) -> None:
    values = np.arange(5, dtype=np.uint8)
    options: dict[str, Any] = {"axes": [0], "normalized_anchor": False, "normalized_shape": False, "out_of_bounds_policy": border}
    for start in (-(2**50), -(2**31), -7, 23, 2**31, 2**45, 2**50):
        found = ndd.slice(ndd.tensor(values, device=device), [float(start)], [7.0], **options).cpu()
        np.testing.assert_array_equal(np.asarray(found), cut(values, border, {0: (start, 7)}))
    rows = torch.tensor([[-(1 << 63)], [(1 << 63) - 1]])
    for start in rows:  # as only torch.ops can give them
        output = torch.full((1, 4), 99, dtype=torch.uint8)
        number = list(NAMES).index(border) + 1
        torch.ops.ndd.slice(torch.from_numpy(values)[None], None, start[None], torch.zeros(1), number, "", output, None)
        assert output.max() < 5


def test_windows_larger_than_the_memory_are_refused() -> None:
    options: dict[str, Any] = {"axes": [0], "normalized_anchor": False, "normalized_shape": False, "out_of_bounds_policy": "edge"}
    with pytest.raises(MemoryError, match="slice: no memory for"):
        ndd.slice(np.arange(5, dtype=np.uint8), [0.0], [2.0**50], **options)


def test_names_are_taken_in_any_case() -> None:
    values = np.arange(5)
    for border, names in NAMES.items():
        for name in names:
            found = ndd.slice(values, start=[-6], shape=[20], axes=[0], out_of_bounds_policy=name.upper())
            assert found.torch().tolist() == cut(values, border, {0: (-6, 20)}).tolist()
    assert ndd.slice(values, start=[-1], shape=[3], axes=[0], out_of_bounds_policy="Fill", fill_values=[7]).torch().tolist() == [7, 0, 1]


@pytest.mark.parametrize("policy", ["replicate", "ERROR", "Trim_To_Shape", "transparent", "", " edge"])
def test_other_names_are_refused(policy: str) -> None:
    with pytest.raises(RuntimeError, match="slice: out_of_bounds_policy must be one of error, trim_to_shape, reflect_101"):
        ndd.slice(np.arange(5), start=[-1], shape=[3], axes=[0], out_of_bounds_policy=policy)


@pytest.mark.parametrize("policy", ["edge", "reflect_101", "1001", "wrap"])
def test_crop_mirror_normalize_has_constant_borders_only(policy: str) -> None:
    image = ndd.tensor(np.zeros((2, 3, 1), np.uint8), layout="HWC")
    with pytest.raises(RuntimeError, match="crop_mirror_normalize: out_of_bounds_policy must be one of error, pad, constant, fill, trim_to_shape"):
        ndd.crop_mirror_normalize(image, crop=[4, 4], out_of_bounds_policy=policy)
    assert ndd.crop_mirror_normalize(image, crop=[4, 4], out_of_bounds_policy="fill", fill_values=[7]).torch().max() == 7


@pytest.mark.parametrize("border", NAMES)
def test_arrays_without_elements_have_no_border(border: str, device: str) -> None:
    batch = ndd.batch([np.ones((2, 3), np.uint8), np.ones((2, 0), np.uint8)], layout="HW", device=device)
    options: dict[str, Any] = {"axis_names": "W", "out_of_bounds_policy": border}
    with pytest.raises(RuntimeError, match="slice: sample 1: axis W has no elements of which the border could consist"):
        ndd.slice(batch, start=[-1], shape=[5], **options).evaluate()
    assert ndd.slice(batch, start=[-1], shape=[0], **options).shape == [(2, 0), (2, 0)]
    assert ndd.slice(ndd.tensor(np.ones((0, 3), np.uint8), device=device), start=[-1], shape=[5], axes=[1], out_of_bounds_policy=border).shape == (
        0,
        5,
    )


def test_fill_values_do_not_matter_for_other_borders() -> None:
    image = ndd.tensor(np.arange(12, dtype=np.uint8).reshape(2, 3, 2), layout="HWC")
    found = ndd.slice(image, start=[-1], shape=[5], axis_names="W", fill_values=[1, 2, 3], out_of_bounds_policy="wrap")
    assert found.torch()[0, :, 0].tolist() == [4, 0, 2, 4, 0]


def test_kernel_refuses_unknown_borders() -> None:
    values, output = torch.zeros(1, 3), torch.zeros(1, 3)
    for number in (-2, 5, 1 << 40):
        with pytest.raises((RuntimeError, ValueError), match="slice: unknown border"):
            torch.ops.ndd.slice(values, None, torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1), number, "", output, None)


def test_windows_of_later_calls_are_computed_again() -> None:
    random = np.random.default_rng(0)
    for _ in range(8):
        values = [random.integers(0, 99, (*random.integers(2, 7, 2), 3)).astype(np.uint8) for _ in range(3)]
        starts = random.integers(-5, 3, (3, 2)).astype(np.int32)
        batch = ndd.batch(values, layout="HWC")
        options: dict[str, Any] = {"axis_names": "HW", "out_of_bounds_policy": "reflect"}
        found = ndd.slice(batch, start=ndd.batch(list(starts)), shape=[9, 8], **options)
        for ours, image, (top, left) in zip(found, values, starts.tolist(), strict=True):
            np.testing.assert_array_equal(np.asarray(ours), cut(image, "reflect_1001", {0: (top, 9), 1: (left, 8)}))


@pytest.mark.parametrize("options", [{}, {"capture": True}, {"compile": True}], ids=str)
def test_borders_in_loops_over_readers(options: dict[str, Any], tmp_path: Path) -> None:
    values = [np.arange(12 + 3 * k, dtype=np.int16).reshape(-1, 3) for k in range(6)]
    for k, array in enumerate(values):
        np.save(tmp_path / f"{k}.npy", array)
    reader = ndd.readers.Numpy(file_root=str(tmp_path), file_filter="*.npy")
    found: list[np.ndarray] = []
    for (batch,) in reader.next_epoch(batch_size=2, **options):
        found += [np.asarray(x) for x in ndd.slice(batch, start=[-5], rel_end=[2.0], axes=[0], out_of_bounds_policy="wrap")]
    for ours, array in zip(found, values, strict=True):
        np.testing.assert_array_equal(ours, cut(array, "wrap", {0: (-5, 2 * len(array) + 5)}))


def test_pixels_of_a_crop_know_where_they_come_from() -> None:
    image = ndd.tensor(np.zeros((4, 6, 1), np.uint8), layout="HWC")
    matrix = ndd.transforms.of(ndd.crop, image, crop=[8, 10], out_of_bounds_policy="wrap")
    assert matrix.torch().tolist() == [[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]]
