# SPDX-License-Identifier: Apache-2.0
"""RGB from planes of YUV: the pixels of torchcodec's CPU path, and the formula."""

import functools
import platform
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from _videos import encode

from torch_ndd.decoders._frame_sources import convert_to_rgb

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="libswscale has other arithmetic on this processor")
_LUMA = {"smpte170m": (0.299, 0.114), "bt709": (0.2126, 0.0722), "bt2020nc": (0.2627, 0.0593), "smpte240m": (0.212, 0.087)}


def raw(planes: Any, pixel_format: str, bits: int = 8, space: str = "bt709", full: bool = False, rotation: float = 0.0) -> Any:
    """Return a frame like torchcodec's RawFrame."""
    tensors = tuple(torch.from_numpy(plane) if isinstance(plane, np.ndarray) else plane for plane in planes)
    return SimpleNamespace(
        planes=tensors, pixel_format=pixel_format, bit_depth=bits, color_space=space, color_range="pc" if full else "tv", rotation=rotation
    )


def random_planes(height: int, width: int, bits: int = 8, halves: tuple[int, int] = (2, 2), seed: int = 0) -> list[np.ndarray]:
    rng, kind = np.random.default_rng(seed), np.uint8 if bits == 8 else np.uint16
    rows, columns = -(-height // halves[0]), -(-width // halves[1])
    return [rng.integers(0, 1 << bits, size).astype(kind) for size in ((height, width), (rows, columns), (rows, columns))]


def alternate(planes: list[np.ndarray], shift: int = 0, pad: int = 0, device: str = "cpu") -> list[torch.Tensor]:
    """Return planes as NVDEC writes them: blue and red samples alternate in rows of a common length, at the top of their bits."""
    luma, blue, red = planes
    height, width = luma.shape
    memory = torch.zeros((height + len(blue), 2 * blue.shape[1] + pad), dtype=torch.from_numpy(luma).dtype)
    memory.numpy()[:height, :width] = luma << shift
    chroma = memory[height:, : 2 * blue.shape[1]].unflatten(1, (-1, 2))
    chroma[..., 0].numpy()[:] = blue << shift
    chroma[..., 1].numpy()[:] = red << shift
    memory = memory.to(device)
    chroma = memory[height:, : 2 * blue.shape[1]].unflatten(1, (-1, 2))
    return [memory[:height, :width], chroma[..., 0], chroma[..., 1]]


def formula(planes: list[np.ndarray], bits: int, space: str, full: bool) -> np.ndarray:
    """Return exact pixels; chroma is repeated."""
    height, width = planes[0].shape
    luma, blue, red = (plane.astype(np.float64) for plane in planes)
    blue, red = (plane.repeat(-(-height // len(plane)), 0).repeat(-(-width // plane.shape[1]), 1)[:height, :width] for plane in (blue, red))
    scale = 2.0 ** (bits - 8)
    if full:
        most = 2.0**bits - 1
        luma, blue, red = luma / most, (blue - 128 * scale) / most, (red - 128 * scale) / most
    else:
        luma, blue, red = (luma - 16 * scale) / (219 * scale), (blue - 128 * scale) / (224 * scale), (red - 128 * scale) / (224 * scale)
    of_red, of_blue = _LUMA[space]
    r, b = luma + 2 * (1 - of_red) * red, luma + 2 * (1 - of_blue) * blue
    g = (luma - of_red * r - of_blue * b) / (1 - of_red - of_blue)
    return np.clip(255 * np.stack([r, g, b], -1), 0, 255)


@functools.cache
def picture(height: int, width: int) -> np.ndarray:
    coarse = np.random.default_rng(3).random((3, 3, -(-height // 8), -(-width // 8)))
    smooth = torch.nn.functional.interpolate(torch.from_numpy(coarse), (height, width), mode="bilinear")
    return (255 * smooth).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()


def decode(height: int, width: int, container: str, **options: Any) -> tuple[Any, np.ndarray]:
    """Return the planes of a frame of a real video, and torchcodec's pixels."""
    decoders = pytest.importorskip("torchcodec.decoders")
    file = torch.from_numpy(encode(picture(height, width), container, **options))
    demuxer = decoders.Demuxer(file)
    decoder = demuxer.streams[0].make_decoder("cpu")
    frames = [frame for packet in demuxer for frame in decoder.decode(packet)]
    return [*frames, *decoder.drain()][1], decoders.VideoDecoder(file, dimension_order="NHWC")[1].numpy()


def assert_within(found: torch.Tensor, expected: np.ndarray, levels: float) -> None:
    assert found.shape == expected.shape
    assert np.abs(found.numpy().astype(np.float64) - expected).max() <= levels


@on_x86
@pytest.mark.parametrize("size", [(64, 96), (62, 90), (16, 34)], ids=str)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("space", ["bt470bg", "bt709", "bt2020nc", "smpte240m", "fcc"])
@pytest.mark.parametrize("pixel_format", ["yuv420p", "yuv422p", "yuv444p", "yuv420p10le", "yuv422p10le", "yuv444p10le"])
def test_pixels_equal_those_of_torchcodec(pixel_format: str, space: str, full: bool, size: tuple[int, int]) -> None:
    options = {"colorspace": space, "color_range": "pc" if full else "tv"}
    frame, expected = decode(*size, "mp4", codec="h264", pixel_format=pixel_format, extra_options=options)
    assert (frame.color_space, frame.color_range) == (space, options["color_range"])
    assert_within(convert_to_rgb(frame), expected, 0)


@on_x86
@pytest.mark.parametrize("size", [(61, 90), (62, 91), (61, 91)], ids=str)
@pytest.mark.parametrize("pixel_format", ["yuv420p", "yuv420p10le", "yuv444p"])
def test_pixels_of_odd_sizes_equal_those_of_torchcodec(pixel_format: str, size: tuple[int, int]) -> None:
    frame, expected = decode(*size, "webm", codec="libvpx-vp9", pixel_format=pixel_format)
    found = convert_to_rgb(frame)
    assert_within(found, expected, 2)
    # A few weights of the filter are rounded the other way.
    assert (found.numpy() == expected).mean() > 0.999


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("space", _LUMA)
@pytest.mark.parametrize(
    ("bits", "halves", "levels"),
    [
        (8, (2, 2), (3.0, 3.0)),
        (8, (1, 2), (3.0, 3.0)),
        (8, (1, 1), (0.6, 0.6)),
        (10, (1, 2), (5.0, 4.0)),
        (10, (1, 1), (0.6, 1.5)),
        (12, (1, 1), (0.6, 1.5)),
    ],
    ids=str,
)
def test_pixels_are_near_the_formula(bits: int, halves: tuple[int, int], levels: tuple[float, float], space: str, full: bool) -> None:
    """White is 255 * 4 of 1023 for libswscale in 10 bits and full range, not 1023."""
    planes = random_planes(64, 80, bits, halves)
    found = convert_to_rgb(raw(planes, "yuv420p" if bits == 8 else f"yuv420p{bits}le", bits, space, full))
    assert_within(found, formula(planes, bits, space, full), levels[full])


def test_chroma_of_deep_samples_is_interpolated_between_rows() -> None:
    luma = np.full((16, 4), 512, np.uint16)
    blue = np.repeat(np.arange(200, 840, 80, dtype=np.uint16)[:, None], 2, 1)
    red = np.full((8, 2), 512, np.uint16)
    found = convert_to_rgb(raw([luma, blue, red], "yuv420p10le", 10, full=True)).numpy()[..., 2]
    steps = np.diff(found[3:-3, 0].astype(int))
    assert (steps > 0).all()
    assert steps.max() - steps.min() <= 8  # a ramp: repeated rows have steps of 0 and 37


@pytest.mark.parametrize("pad", [0, 7, 32])
@pytest.mark.parametrize("size", [(32, 64), (31, 64), (32, 62), (33, 61)], ids=str)
@pytest.mark.parametrize(("bits", "name"), [(8, "nv12"), (10, "p010le"), (12, "p012le"), (16, "p016le")])
def test_formats_of_the_gpu_equal_planar_ones(bits: int, name: str, size: tuple[int, int], pad: int) -> None:
    planes = random_planes(*size, bits)
    expected = convert_to_rgb(raw(planes, f"yuv420p{bits}le" if bits > 8 else "yuv420p", bits)).numpy()
    found = convert_to_rgb(raw(alternate(planes, 0 if bits == 8 else 16 - bits, pad), name, bits))
    assert_within(found, expected, 0)


@pytest.mark.parametrize("name", ["yuv444p", "yuv444p16le"])
@pytest.mark.parametrize("begin", [0, 1])
def test_planes_may_begin_anywhere(name: str, begin: int) -> None:
    bits = 8 if name == "yuv444p" else 16
    planes = random_planes(24, 48, bits, (1, 1))
    wide = [np.pad(plane, ((0, 0), (begin, 16 - begin)))[:, begin : begin + 48] for plane in planes]
    assert_within(convert_to_rgb(raw(wide, name, bits)), convert_to_rgb(raw(planes, name, bits)).numpy(), 0)


@pytest.mark.parametrize(("degrees", "turns"), [(90.0, 1), (-90.0, 3), (180.0, 2), (89.0, 1), (0.0, 0), (270.0, 3)])
def test_frames_are_turned_upright(degrees: float, turns: int) -> None:
    planes = random_planes(8, 16)
    found = convert_to_rgb(raw(planes, "yuv420p", rotation=degrees))
    assert found.is_contiguous()
    assert_within(found, np.rot90(convert_to_rgb(raw(planes, "yuv420p")).numpy(), turns), 0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda y, u, v: (y, u[:-1], v[:-1]), "chroma of 7x8 does not belong to luma of 16x16"),
        (lambda y, u, v: (y, u, v[:, :-1]), "those of chroma one size"),
        (lambda y, u, v: (y, u, v.astype(np.uint16)), "must have one type"),
        (lambda y, u, v: (y, np.repeat(u, 3, 1)[:, ::3], v), "samples must lie side by side"),
        (lambda y, u, v: (np.repeat(y, 2, 1)[:, ::2], u, v), "samples must lie side by side"),
        (lambda y, u, v: (y.astype(np.float32), u, v), "samples must be uint8 or uint16"),
        (lambda y, u, v: (y[:0], u[:0], v[:0]), "frames of 0x16 are not supported"),
    ],
)
def test_planes_that_do_not_fit_are_rejected(change: Any, reason: str) -> None:
    with pytest.raises(RuntimeError, match=reason):
        convert_to_rgb(raw(change(*random_planes(16, 16)), "yuv420p"))


@pytest.mark.parametrize("name", ["gray", "rgb24", "gbrp", "pal8", "xyz12le"])
def test_formats_without_yuv_are_rejected(name: str) -> None:
    with pytest.raises(RuntimeError, match=f"pixel format {name} are not supported"):
        convert_to_rgb(raw(random_planes(16, 16), name))


@pytest.mark.parametrize("size", [(720, 1280), (719, 1278), (61, 91)], ids=str)
@pytest.mark.parametrize(("bits", "name"), [(8, "nv12"), (10, "p010le"), (16, "p016le")])
def test_kernel_of_the_gpu_equals_that_of_the_cpu(device: str, bits: int, name: str, size: tuple[int, int]) -> None:
    if device == "cpu":
        pytest.skip("runs with --device=cuda")
    planes = random_planes(*size, bits)
    found = convert_to_rgb(raw(alternate(planes, 0 if bits == 8 else 16 - bits, 8, "cuda"), name, bits))
    assert_within(found.cpu(), convert_to_rgb(raw(alternate(planes, 0 if bits == 8 else 16 - bits, 8), name, bits)).numpy(), 0)
