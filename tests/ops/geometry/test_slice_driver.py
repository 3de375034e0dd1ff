# SPDX-License-Identifier: Apache-2.0
"""The slice driver (csrc/ndd/slice): random windows, mirrors, axis orders and types of every form that its kernels distinguish."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd

# Rows below 16 pixels, of one tile, of several tiles; pixels with and without the size of an element type.
WIDTHS = (1, 13, 60, 700, 1500)
CHANNELS = (1, 2, 3, 4, 5, 8, 11)
TYPES = ("uint8", "uint8", "float16", "float32", "int16", "float64")


class Pictures:
    """A batch of three images, of one size or several, as NumPy arrays and as a Batch."""

    def __init__(self, seed: int, device: str, layouts: Sequence[str] = ("HWC", "CHW", "HW", "FHWC")) -> None:
        self.random = np.random.default_rng(seed)
        channels, dtype = int(self.random.choice(CHANNELS)), str(self.random.choice(TYPES))
        self.layout = str(self.random.choice(layouts))
        shape = self.shape(channels)
        shapes = [shape] * 3 if self.random.integers(2) else [shape, self.shape(channels), self.shape(channels)]
        self.arrays = [self.random.integers(0, 200, shape).astype(dtype) for shape in shapes]
        self.batch = ndd.batch(self.arrays, layout=self.layout, device=device)

    def shape(self, channels: int) -> tuple[int, ...]:
        extents = {"F": 2, "H": int(self.random.integers(1, 9)), "W": int(self.random.choice(WIDTHS) + self.random.integers(8)), "C": channels}
        return tuple(extents[letter] for letter in self.layout)

    def window(self) -> tuple[list[list[int]], list[list[int]]]:
        """Return start and end of windows along height and width, partly outside the images."""
        begins, ends = [], []
        for array in self.arrays:
            extents = np.array([array.shape[self.layout.index(letter)] for letter in "HW"])
            begin = self.random.integers(-extents // 2 - 1, extents)
            begins.append(begin.tolist())
            ends.append((begin + self.random.integers(1, extents + 3)).tolist())
        return begins, ends


def cut(image: np.ndarray, layout: str, begin: list[int], end: list[int], fill: np.ndarray) -> np.ndarray:
    for letter, first, last in zip("HW", begin, end, strict=True):
        axis = layout.index(letter)
        places = np.arange(first, last)
        inside = (places >= 0) & (places < image.shape[axis])
        filler = fill.reshape([-1 if letter == "C" else 1 for letter in layout]) if "C" in layout else fill[:1].reshape([1] * len(layout))
        taken = image.take(np.clip(places, 0, image.shape[axis] - 1), axis)
        image = np.where(inside.reshape([-1 if d == axis else 1 for d in range(image.ndim)]), taken, filler).astype(image.dtype)
    return image


def round_reference(image: np.ndarray, dtype: str) -> np.ndarray:
    """Round like a cast to integers: halves away from zero, saturated."""
    if np.issubdtype(dtype, np.floating):
        return image.astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(np.copysign(np.floor(np.abs(image) + 0.5), image), limits.min, limits.max).astype(dtype)


def assert_equal(found: Any, expected: list[np.ndarray]) -> None:
    for ours, theirs in zip(found.cpu(), expected, strict=True):
        torch.testing.assert_close(ours.torch(), torch.from_numpy(theirs.copy()), rtol=0, atol=0)


SEEDS = pytest.mark.parametrize("seed", range(20))


@pytest.mark.parametrize("vertical", [0, 1])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float32, torch.float64])
def test_rows_of_every_width_are_mirrored(dtype: torch.dtype, vertical: int, device: str) -> None:
    for width in (*range(1, 34), *range(63, 66), *range(127, 130), 191, 192, 255, 256, 300, 319, 320, 384, 513):
        planes = torch.arange(2 * 3 * width).reshape(2, 1, 3, width).to(dtype)
        output = ndd.flip(ndd.as_batch(planes, layout="CHW", device=device), horizontal=1, vertical=vertical).torch().cpu()
        assert torch.equal(output, planes.flip((2, 3) if vertical else (3,))), width


@SEEDS
def test_flips_equal_numpy(seed: int, device: str) -> None:
    pictures = Pictures(seed, device, ("HWC", "CHW", "FHWC"))
    across = pictures.random.integers(0, 2, 3).tolist()
    down = pictures.random.integers(0, 2, 3).tolist()
    found = ndd.flip(pictures.batch, horizontal=ndd.batch(across), vertical=ndd.batch(down))
    expected = []
    for array, h, v in zip(pictures.arrays, across, down, strict=True):
        axes = tuple(pictures.layout.index(letter) for letter, flips in (("W", h), ("H", v)) if flips)
        expected.append(np.flip(array, axes) if axes else array)
    assert_equal(found, expected)


@SEEDS
def test_windows_equal_numpy(seed: int, device: str) -> None:
    pictures = Pictures(1000 + seed, device)
    channels = pictures.arrays[0].shape[pictures.layout.index("C")] if "C" in pictures.layout else 1
    fill = pictures.random.integers(0, 100, channels if pictures.random.integers(2) else 1)
    begins, ends = pictures.window()
    window: dict[str, Any] = {"start": ndd.batch(begins), "end": ndd.batch(ends), "axis_names": "HW"}
    found = ndd.slice(pictures.batch, **window, out_of_bounds_policy="pad", fill_values=fill.tolist())
    fills = np.broadcast_to(fill, channels)
    assert_equal(found, [cut(array, pictures.layout, begin, end, fills) for array, begin, end in zip(pictures.arrays, begins, ends, strict=True)])


# Fills whose period fits in the row that they are copied from, and longer ones.
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "int64"])
@pytest.mark.parametrize(
    ("layout", "shape"),
    [
        ("HWC", (5, 9, 3)),
        ("HWC", (2, 3, 1100)),
        ("CHW", (3, 7, 11)),
        ("FCHW", (2, 4, 5, 6)),
        ("FHWC", (2, 5, 90, 4)),
        ("HCW", (4, 3, 5)),
        ("HCW", (3, 5, 900)),
    ],
    ids=str,
)
def test_fills_along_every_axis(layout: str, shape: tuple[int, ...], dtype: str, device: str) -> None:
    image = np.random.default_rng(3).integers(0, 99, shape).astype(dtype)
    picture, c = ndd.tensor(image, layout=layout, device=device), layout.index("C")
    for mask in range(1, 1 << len(shape)):
        axes = [d for d in range(len(shape)) if mask >> d & 1]
        before = [2 + d if d in axes else 0 for d in range(len(shape))]
        extents = [extent + 2 * more + 1 if more else extent for extent, more in zip(shape, before, strict=True)]
        fill = (np.arange(extents[c]) % 100 + 1).astype(dtype)
        window: dict[str, Any] = {"start": [-before[d] for d in axes], "shape": [extents[d] for d in axes], "axes": axes}
        found = ndd.slice(picture, **window, out_of_bounds_policy="pad", fill_values=fill.tolist())
        expected = np.broadcast_to(fill.reshape([-1 if d == c else 1 for d in range(len(shape))]), extents).copy()
        expected[tuple(slice(first, first + extent) for first, extent in zip(before, shape, strict=True))] = image
        torch.testing.assert_close(found.cpu().torch(), torch.from_numpy(expected), rtol=0, atol=0)


@SEEDS
def test_normalised_windows(seed: int, device: str) -> None:
    pictures = Pictures(2000 + seed, device, ("HWC", "CHW"))
    channels = pictures.arrays[0].shape[pictures.layout.index("C")]
    mean, std = pictures.random.integers(0, 99, channels).astype("float32"), pictures.random.choice([0.5, 2.0, 4.0], channels).astype("float32")
    mirror = pictures.random.integers(0, 2, 3).tolist()
    order = str(pictures.random.choice(["HWC", "CHW"]))
    dtype = str(pictures.random.choice(["float32", "float16", "uint8", "int32"]))
    pads = bool(pictures.random.integers(2))
    corner = int(pictures.random.integers(2))
    crop = (int(pictures.random.integers(1, 12)), int(pictures.random.choice(WIDTHS)) + 1)
    window: dict[str, Any] = {"crop": crop, "crop_pos_x": corner, "crop_pos_y": corner, "out_of_bounds_policy": "pad", "fill_values": 7.0}
    values: dict[str, Any] = {"mean": mean.tolist(), "std": std.tolist(), "dtype": getattr(ndd, dtype)}
    found = ndd.crop_mirror_normalize(pictures.batch, **window, **values, mirror=ndd.batch(mirror), output_layout=order, pad_output=pads)
    assert found.layout == order
    expected = []
    for array, flipped in zip(pictures.arrays, mirror, strict=True):
        image = array.transpose([pictures.layout.index(letter) for letter in "HWC"]).astype("float32")
        begin = [corner * (extent - size) for extent, size in zip(image.shape, crop, strict=False)]
        inside = cut(np.ones_like(image), "HWC", begin, [b + s for b, s in zip(begin, crop, strict=True)], np.zeros(channels)) > 0
        image = (cut(image, "HWC", begin, [b + s for b, s in zip(begin, crop, strict=True)], np.zeros(channels)) - mean) / std
        image = np.where(inside, image, 7.0)
        if pads:
            more = (1 << (channels - 1).bit_length()) - channels
            image = np.concatenate([image, np.full((*crop, more), 7.0, "float32")], 2)
        if flipped:
            image = image[:, ::-1]
        image = round_reference(image, dtype)
        expected.append(image.transpose(["HWC".index(letter) for letter in order]))
    assert_equal(found, expected)


@SEEDS
def test_orders_of_axes(seed: int, device: str) -> None:
    pictures = Pictures(3000 + seed, device)
    order = pictures.random.permutation(len(pictures.layout)).tolist()
    assert_equal(ndd.transpose(pictures.batch, perm=order), [array.transpose(order) for array in pictures.arrays])


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "int64"])
@pytest.mark.parametrize("order", [(1, 0, 2), (2, 0, 1), (0, 2, 1), (2, 1, 0), (1, 2, 0)], ids=str)
def test_planes_turned_over(order: tuple[int, ...], dtype: str, device: str) -> None:
    random = np.random.default_rng(1)
    arrays = [random.integers(0, 99, shape).astype(dtype) for shape in [(45, 70, 9), (8, 33, 12), (64, 7, 32)]]
    assert_equal(ndd.transpose(ndd.batch(arrays, device=device), perm=order), [array.transpose(order) for array in arrays])


@SEEDS
def test_repeated_samples_are_joined(seed: int, device: str) -> None:
    pictures = Pictures(4000 + seed, device)
    axis = int(pictures.random.integers(len(pictures.layout)))
    found = ndd.cat(pictures.batch, pictures.batch, pictures.batch, axis=axis)
    assert_equal(found, [np.concatenate([array] * 3, axis) for array in pictures.arrays])


@SEEDS
def test_steps_equal_numpy(seed: int, device: str) -> None:
    pictures = Pictures(5000 + seed, device)
    step = int(pictures.random.integers(2, 5))
    axis = int(pictures.random.integers(len(pictures.layout)))
    expected = [array[(slice(None),) * axis + (slice(0, None, step),)] for array in pictures.arrays]
    assert_equal(pictures.batch.slice[(slice(None),) * axis + (slice(0, None, step),)], expected)
    assert_equal(pictures.batch.select([2, 0]), [pictures.arrays[2], pictures.arrays[0]])


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("width", [501, 512])
def test_large_samples(width: int, dtype: str, layout: str, device: str) -> None:
    """Rows that go past the caches begin and end within lines of them; shorter ones are moved without a call for each."""
    shape = {"H": 400 if dtype == "float32" else 700, "W": width, "C": 3}
    image = np.random.default_rng(width).integers(0, 200, [shape[letter] for letter in layout]).astype(dtype)
    images = ndd.batch([image, image[::-1].copy()], layout=layout, device=device)
    axes = [layout.index(letter) for letter in "HW"]
    for begin, extent in (([-1, -1], [shape["H"] + 2, width + 2]), ([3, 5], [shape["H"] - 7, width - 14]), ([-9, 7], [shape["H"], width])):
        fill = np.array([7, 8, 9], dtype)
        output = ndd.slice(images, start=begin, shape=extent, axes=axes, out_of_bounds_policy="pad", fill_values=fill.tolist()).cpu()
        wanted = cut(image, layout, begin, [a + b for a, b in zip(begin, extent, strict=True)], fill)
        assert np.array_equal(np.asarray(output.tensors[0]), wanted)
    for axis, options in zip(axes, ({"horizontal": 0, "vertical": 1}, {"horizontal": 1}), strict=True):
        assert np.array_equal(np.asarray(ndd.flip(images, **options).cpu().tensors[1]), np.flip(image[::-1], axis))
    output = ndd.erase(images, anchor=[3, 5], shape=[50, 61], axes=axes, fill_value=[1.0, 2.0, 3.0]).cpu()
    wanted = image.copy()
    window = tuple(slice(None) if letter == "C" else slice(3, 53) if letter == "H" else slice(5, 66) for letter in layout)
    wanted[window] = np.array([1, 2, 3], dtype).reshape([-1 if letter == "C" else 1 for letter in layout])
    assert np.array_equal(np.asarray(output.tensors[0]), wanted)
