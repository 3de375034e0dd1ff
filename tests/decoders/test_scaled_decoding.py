# SPDX-License-Identifier: Apache-2.0
"""Decoding at a part of the size: which scale, and pixels close to those of the whole image reduced by averaging."""

import functools
import io
import struct
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image

import torch_ndd as ndd
from torch_ndd import types
from torch_ndd.decoders import _decode, _scale

HEIGHT, WIDTH = 301, 403  # neither a multiple of a block at any scale
SCALES = (1, 2, 4)
needs_libjpeg = pytest.mark.skipif(_scale.libjpeg_version() is None, reason="the library was built without libjpeg-turbo")


def photograph(height: int, width: int) -> np.ndarray:
    """Smooth, with edges and a little noise: what JPEG is for."""
    noise = np.random.default_rng(3)
    coarse = Image.fromarray(noise.integers(0, 256, (7, 9, 3), dtype=np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
    pixels = np.asarray(coarse).astype(float) + noise.normal(0, 2, (height, width, 3))
    pixels[height // 3 : height // 2, width // 4 : width // 2] *= 0.4
    return pixels.clip(0, 255).astype(np.uint8)


def encode(pixels: np.ndarray, codec: str = "JPEG", **options: object) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, codec, **({"quality": 92} if codec == "JPEG" else {}) | options)
    return np.frombuffer(file.getvalue(), np.uint8)


PHOTO = photograph(HEIGHT, WIDTH)
FILES = {
    "4:2:0": encode(PHOTO, subsampling=2),
    "4:2:2": encode(PHOTO, subsampling=1),
    "4:4:4": encode(PHOTO, subsampling=0),
    "progressive": encode(PHOTO, progressive=True),
    "restarts": encode(PHOTO, restart_marker_rows=1),
    "gray": encode(PHOTO[:, :, 1]),
    "rgb": encode(PHOTO, keep_rgb=True),
}


def extent(full: int, eighths: int) -> int:
    return -(-full * eighths // 8)


def average(image: np.ndarray, eighths: int) -> np.ndarray:
    """Blocks of 8 / eighths pixels, those at the border of what is there."""
    side = 8 // eighths
    starts = [np.arange(0, full, side) for full in image.shape[:2]]
    sums = np.add.reduceat(np.add.reduceat(image.astype(float), starts[0], 0), starts[1], 1)
    counts = [np.diff([*start, full]) for start, full in zip(starts, image.shape, strict=False)]
    return sums / (counts[0][:, None, None] * counts[1][:, None])


def values(tensor: ndd.Tensor) -> np.ndarray:
    return np.asarray(tensor)


def difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.abs(a.astype(float) - b.astype(float))


@needs_libjpeg
@pytest.mark.parametrize("output_type", ["RGB", "BGR", "GRAY", "YCbCr", "ANY_DATA"])
@pytest.mark.parametrize("name", FILES)
def test_pixels_are_close_to_averages(name: str, output_type: str) -> None:
    file, kind = FILES[name], {"output_type": getattr(types, output_type)}
    whole = values(ndd.decoders.image(file, **kind))
    for eighths in SCALES:
        result = values(ndd.decoders.image(file, at_least=[extent(HEIGHT, eighths), 0], **kind))
        expected = average(whole, eighths)
        assert result.shape == expected.shape
        inside = difference(result, expected)[: HEIGHT * eighths // 8, : WIDTH * eighths // 8]
        if name == "4:2:2" and eighths == 1 and output_type != "GRAY":
            assert inside.mean() < 7  # each column of the chroma counts for two: the columns of this photograph's colors are narrow
            continue
        assert inside.mean() < 1.2, inside.mean()
        assert np.percentile(inside, 99) < 12, np.percentile(inside, 99)
        # and far closer to them than to the image a pixel beside them
        assert inside[1:].mean() < difference(result, np.roll(expected, 1, 0))[1 : inside.shape[0], : inside.shape[1]].mean() / 2


@needs_libjpeg
def test_flat_colors_are_unchanged() -> None:
    for color in ((255, 0, 0), (12, 200, 90), (0, 0, 0)):
        file = encode(np.full((64, 48, 3), color, np.uint8))
        whole = values(ndd.decoders.image(file))
        assert difference(values(ndd.decoders.image(file, at_least=[8, 6])), whole[:8, :6]).max() <= 1


@needs_libjpeg
@pytest.mark.parametrize(
    ("wanted_size", "eighths"),
    [
        ([1, 1], 1),
        ([38, 51], 1),
        ([39, 51], 2),
        ([38, 52], 2),
        ([0, 101], 2),
        ([76, 0], 2),
        ([76, 102], 4),
        ([0, 0], 1),
        ([151, 202], 4),
        ([152, 10], 8),
        ([9000, 10], 8),
        (38, 1),
        (39, 2),
    ],
)
def test_the_smallest_scale_that_suffices(wanted_size: list[int] | int, eighths: int) -> None:
    result = ndd.decoders.image(FILES["4:2:0"], at_least=wanted_size)
    assert result.shape == (extent(HEIGHT, eighths), extent(WIDTH, eighths), 3)
    whole = ndd.decoders.image(FILES["4:2:0"])
    assert np.array_equal(values(result), values(whole)) == (eighths == 8)


@needs_libjpeg
def test_each_sample_has_its_own() -> None:
    files = ndd.batch([FILES["4:2:0"], FILES["gray"], encode(PHOTO, "PNG"), FILES["4:4:4"]])
    output = ndd.decoders.image(files, at_least=ndd.batch([np.array([38, 51]), np.array([76, 1]), np.array([1, 1]), np.array([400, 1])]))
    assert [result.shape[:2] for result in output] == [(38, 51), (76, 101), (HEIGHT, WIDTH), (HEIGHT, WIDTH)]
    for sample, (file, least) in enumerate(zip(files, ([38, 51], [76, 1], [1, 1], [400, 1]), strict=True)):
        assert np.array_equal(values(output.tensors[sample]), values(ndd.decoders.image(file, at_least=least)))


@needs_libjpeg
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_size_is_that_of_the_turned_image(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = encode(PHOTO, exif=exif)
    height, width = (WIDTH, HEIGHT) if orientation > 4 else (HEIGHT, WIDTH)
    result = values(ndd.decoders.image(file, at_least=[extent(height, 2), 0]))
    assert result.shape[:2] == (extent(height, 2), extent(width, 2))
    stored = values(ndd.decoders.image(file, at_least=[extent(HEIGHT, 2), 0], adjust_orientation=False))
    turns = {1: lambda x: x, 2: np.fliplr, 3: lambda x: np.rot90(x, 2), 4: np.flipud, 5: lambda x: x.transpose(1, 0, 2)}
    turns |= {6: lambda x: np.rot90(x, 3), 7: lambda x: np.rot90(x, 2).transpose(1, 0, 2), 8: lambda x: np.rot90(x, 1)}
    assert np.array_equal(result, turns[orientation](stored))


@needs_libjpeg
@pytest.mark.parametrize("adobe", [True, False])
def test_cmyk_jpegs_are_scaled(adobe: bool) -> None:
    file = io.BytesIO()
    Image.fromarray(PHOTO).convert("CMYK").save(file, "JPEG", quality=92)
    content = file.getvalue()
    if not adobe:
        at = content.index(b"\xff\xee")
        content = content[:at] + content[at + 2 + struct.unpack(">H", content[at + 2 : at + 4])[0] :]
    data = np.frombuffer(content, np.uint8)
    for output in ("RGB", "BGR", "GRAY"):
        kind = {"output_type": getattr(types, output)}
        result = values(ndd.decoders.image(data, at_least=[extent(HEIGHT, 4), 0], **kind))
        expected = average(values(ndd.decoders.image(data, **kind)), 4)
        assert difference(result, expected)[:150, :201].mean() < 1.5, output


def make_turned(orientation: int) -> np.ndarray:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(photograph(800, 1200), exif=exif)


def make_cmyk() -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(photograph(800, 1200)).convert("CMYK").save(file, "JPEG", quality=92)
    return np.frombuffer(file.getvalue(), np.uint8)


LARGE: dict[str, Callable[[], np.ndarray]] = {
    "4:2:0": lambda: make_turned(1),
    "progressive": lambda: encode(photograph(800, 1200), progressive=True),
    "gray": lambda: encode(photograph(800, 1200)[:, :, 1]),
    "CMYK": make_cmyk,
    **{f"orientation {k}": functools.partial(make_turned, k) for k in (3, 5, 6)},
}


@needs_libjpeg
@pytest.mark.parametrize("kind", LARGE)
def test_random_crops_are_those_of_the_image_at_their_scale(kind: str) -> None:
    file = LARGE[kind]()
    for seed in range(12):
        options = {"random_area": [0.1, 0.6], "num_attempts": 10}
        full = ndd.decoders.image_random_crop(file, rng=ndd.random.RNG(seed), **options)
        least = 100
        result = ndd.decoders.image_random_crop(file, rng=ndd.random.RNG(seed), at_least=least, **options)
        eighths = next((k for k in (1, 2, 4, 8) if min(round(side * k / 8) for side in full.shape[:2]) >= least), 8)
        for side, small in zip(full.shape[:2], result.shape[:2], strict=True):
            assert abs(small - side * eighths / 8) <= 0.5
        assert min(result.shape[:2]) >= least
        if eighths == 8:
            assert np.array_equal(values(result), values(full))
            continue
        scaled = values(ndd.decoders.image(file, at_least=[100 * eighths, 0]))
        height, width = result.shape[:2]
        found = np.lib.stride_tricks.sliding_window_view(scaled[:, :, 0], (height, width))
        same = np.argwhere((found[:, :, 0, 0] == values(result)[0, 0, 0]) & (found[:, :, -1, -1] == values(result)[-1, -1, 0]))
        assert any(np.array_equal(scaled[y : y + height, x : x + width], values(result)) for y, x in same)


def test_other_files_are_decoded_whole() -> None:
    for codec, options in (("PNG", {}), ("TIFF", {}), ("BMP", {}), ("WEBP", {"lossless": True}), ("JPEG2000", {})):
        file = encode(PHOTO, codec, **options)
        assert np.array_equal(values(ndd.decoders.image(file, at_least=1)), values(ndd.decoders.image(file))), codec


def test_without_libjpeg_everything_is(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = _decode.image_shapes

    def as_if_without(*arguments: object) -> tuple:
        files, found, kinds = shapes(*arguments)
        return files, found, torch.zeros_like(kinds)

    monkeypatch.setattr(_decode, "image_shapes", as_if_without)
    result = ndd.decoders.image(FILES["4:2:0"], at_least=1)
    assert np.array_equal(values(result), values(ndd.decoders.image(FILES["4:2:0"])))


@pytest.mark.parametrize("wanted_size", [[1, 2, 3], [], -1, [4, -2]])
def test_wrong_sizes_are_refused(wanted_size: object) -> None:
    with pytest.raises(ValueError, match=r"decoders.image: at_least (takes a height and a width|must not be negative)"):
        ndd.decoders.image(FILES["4:2:0"], at_least=wanted_size)


@needs_libjpeg
@pytest.mark.parametrize("name", ["4:2:0", "progressive", "gray"])
def test_damaged_files_are_errors_at_each_scale(name: str) -> None:
    content = FILES[name].tobytes()
    middle = len(content) // 2
    damaged = [content[: int(len(content) * part)] for part in (0.4, 0.7, 0.99)]
    damaged += [content[:middle] + junk + content[middle + len(junk) :] for junk in (b"\x12\x34\x56\x78", b"\xff\xd3", b"\x00\xff\x13\x00\xff\x42")]
    for file in damaged:
        data = np.frombuffer(file, np.uint8)
        verdicts = []
        for wanted_size in (9000, 1, 70):
            try:
                verdicts.append(values(ndd.decoders.image(data, at_least=wanted_size)).shape is not None)
            except RuntimeError:
                verdicts.append(False)
        assert len({*verdicts}) == 1, verdicts


@needs_libjpeg
def test_bad_samples_of_a_batch() -> None:
    good = FILES["4:2:0"]
    files = ndd.batch([good, good[: len(good) // 2], np.arange(99, dtype=np.uint8), good])
    output = ndd.decoders.image(files, at_least=38, on_error="replace")
    output.evaluate()
    assert [result.shape for result in output] == [(38, 51, 3)] * 4
    assert [error.index for error in output.errors] == [1, 2]
    assert not values(output.tensors[1]).any()
    assert np.array_equal(values(output.tensors[0]), values(output.tensors[3]))
    assert ndd.decoders.image(files, at_least=38, on_error="skip").batch_size == 2


@needs_libjpeg
def test_scans_without_end_are_refused() -> None:
    content = FILES["progressive"].tobytes()
    last = content.rindex(b"\xff\xda")
    file = np.frombuffer(content[:last] + content[last:-2] * 600 + content[-2:], np.uint8)
    with pytest.raises(RuntimeError, match="more than 500 scans"):
        ndd.decoders.image(file, at_least=1).evaluate()


@needs_libjpeg
def test_in_a_graph() -> None:
    files = ndd.batch([FILES["4:2:0"], FILES["gray"]])

    def step(files: ndd.Batch) -> torch.Tensor:
        return ndd.resize(ndd.decoders.image(files, at_least=[30, 30]), size=[30, 30]).torch()

    assert torch.equal(torch.compile(step, fullgraph=True)(files), step(files))
