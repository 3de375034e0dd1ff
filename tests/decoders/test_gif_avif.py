# SPDX-License-Identifier: Apache-2.0
"""GIF and AVIF images, which torchcodec decodes."""

import importlib
import io
import re
import struct
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

import torch_ndd as ndd
from torch_ndd import types

pytest.importorskip("torchcodec.decoders")

HEIGHT, WIDTH = 30, 44
_Y, _X = np.mgrid[:HEIGHT, :WIDTH]
COLORS = np.stack([5 * _Y, 4 * _X, 255 - 3 * _Y - 2 * _X, 40 + 4 * _X], -1).astype(np.uint8)


def encode(codec: str, mode: str = "RGB", **options: Any) -> bytes:
    image = Image.fromarray(COLORS if mode == "RGBA" else COLORS[..., :3]).convert(mode)
    image.save(file := io.BytesIO(), codec, **options)
    return file.getvalue()


def turned_exif(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def encode_frames(codec: str, count: int = 3) -> bytes:
    frames = [Image.fromarray(np.roll(COLORS[..., :3], 7 * k, 0)) for k in range(count)]
    frames[0].save(file := io.BytesIO(), codec, save_all=True, append_images=frames[1:])
    return file.getvalue()


FILES = {
    "GIF": encode("GIF"),
    "interlaced GIF": encode("GIF", interlace=1),
    "gray GIF": encode("GIF", "L"),
    "animated GIF": encode_frames("GIF"),
    "AVIF": encode("AVIF"),
    "gray AVIF": encode("AVIF", "L"),
    "AVIF of full chroma": encode("AVIF", subsampling="4:4:4", quality=95),
    **{f"AVIF with orientation {n}": encode("AVIF", exif=turned_exif(n)) for n in range(1, 9)},
}


def decode(file: bytes, **options: Any) -> np.ndarray:
    return np.asarray(ndd.decoders.image(file, **options))


def decode_by_pillow(file: bytes, upright: bool = True) -> np.ndarray:
    image = Image.open(io.BytesIO(file))
    return np.asarray((ImageOps.exif_transpose(image) if upright else image).convert("RGB"))


@pytest.mark.parametrize("name", FILES)
def test_pixels_equal_those_of_pillow(name: str) -> None:
    file = FILES[name]
    for adjust in (True, False):
        expected = decode_by_pillow(file, adjust)
        image = decode(file, adjust_orientation=adjust)
        assert image.shape == expected.shape
        assert np.abs(image.astype(int) - expected).max() <= 1
        assert ndd.peek_image_shape(file, adjust_orientation=adjust).torch().tolist() == list(expected.shape)


def encode_transparent_gif() -> bytes:
    Image.fromarray(COLORS[..., :3]).quantize(16).save(file := io.BytesIO(), "GIF", transparency=3)
    return file.getvalue()


@pytest.mark.parametrize("file", [encode("AVIF", "RGBA"), encode_transparent_gif()], ids=["AVIF", "GIF"])
def test_all_data_include_the_transparency(file: bytes) -> None:
    image = decode(file, output_type=types.ANY_DATA)
    expected = np.asarray(Image.open(io.BytesIO(file)).convert("RGBA"))
    assert image.shape == expected.shape
    assert ndd.peek_image_shape(file, image_type=types.ANY_DATA).torch().tolist() == list(expected.shape)
    assert np.abs(image[..., 3].astype(int) - expected[..., 3]).max() <= 1
    assert np.array_equal(image[..., :3][expected[..., 3] > 0], expected[..., :3][expected[..., 3] > 0])


@pytest.mark.parametrize("transparent", [0, 1, 2])
@pytest.mark.parametrize("background", [0, 1])
def test_transparent_pixels_of_a_gif_have_the_colors_of_the_palette(transparent: int, background: int) -> None:
    image = Image.fromarray(np.uint8([[0, 0, 1], [1, 2, 2]]))
    image.putpalette([255, 255, 255, 200, 10, 20, 5, 250, 6])
    image.save(file := io.BytesIO(), "GIF", transparency=transparent, background=background)
    expected = np.asarray(Image.open(file).convert("RGBA"))
    assert np.array_equal(decode(file.getvalue(), output_type=types.ANY_DATA), expected)
    assert np.array_equal(decode(file.getvalue()), expected[..., :3])
    Image.fromarray(expected).save(png := io.BytesIO(), "PNG")
    for output_type in (types.RGB, types.BGR, types.GRAY, types.YCbCr):
        image, same = (decode(data.getvalue(), output_type=output_type).astype(int) for data in (file, png))
        assert np.abs(image - same).max() <= 1  # the codec of PNG rounds differently


def test_what_the_first_frame_of_a_gif_does_not_cover_is_transparent() -> None:
    file = FILES["GIF"][:6] + struct.pack("<HH", WIDTH + 2, HEIGHT + 3) + FILES["GIF"][10:]
    image = decode(file, output_type=types.ANY_DATA)
    assert np.array_equal(image[:HEIGHT, :WIDTH, :3], decode(FILES["GIF"]))
    assert np.array_equal(image[..., 3] > 0, np.pad(np.ones((HEIGHT, WIDTH), bool), ((0, 3), (0, 2))))
    assert np.array_equal(image[..., :3], decode(file))


def test_batch_of_all_formats_has_types_and_windows() -> None:
    files = [FILES["GIF"], encode("JPEG", quality=100), FILES["AVIF"], encode("PNG")]
    images = ndd.decoders.image(files, output_type=types.GRAY, dtype=ndd.float32)
    assert images.shape == [(HEIGHT, WIDTH, 1)] * 4
    windows = ndd.decoders.image_crop(files, crop=[10, 12], crop_pos_x=0.0, crop_pos_y=1.0)
    for k, file in enumerate(files):
        assert np.abs(np.asarray(windows.select(k)).astype(int) - decode(file)[-10:, :12]).max() <= 1


def test_only_the_first_frame_of_a_gif_is_decoded() -> None:
    still, animated = encode_frames("GIF", 1), encode_frames("GIF", 40)
    assert np.array_equal(decode(animated), decode(still))


def reason(file: bytes) -> str:
    with pytest.raises(RuntimeError, match=r"decoders\.image: ") as caught:
        decode(file)
    return str(caught.value)


BAD = {
    "GIF without a frame": (FILES["GIF"][:13] + b";", "exceeds|no frame|does not begin a block|ends"),
    "GIF that ends in its frame": (FILES["GIF"][:-40], "the file is damaged: it ends in the middle"),
    "GIF whose frame exceeds the screen": (FILES["GIF"][:6] + struct.pack("<HH", 3, 3) + FILES["GIF"][10:], "first frame exceeds the screen of 3x3"),
    "GIF of no size": (FILES["GIF"][:6] + bytes(4) + FILES["GIF"][10:], "the screen has 0x0 pixels"),
    "AVIF without pixels": (FILES["AVIF"][: len(FILES["AVIF"]) // 2], "the file is damaged"),
    "AVIF header only": (FILES["AVIF"][:60], "the file is damaged: box 'meta' exceeds the data"),
    "animated AVIF": (encode_frames("AVIF"), "it is an animation"),
}


@pytest.mark.parametrize("name", BAD)
def test_damaged_file_is_an_error_of_its_sample(name: str) -> None:
    file, pattern = BAD[name]
    assert re.search(pattern, reason(file))
    kept = ndd.decoders.image([FILES["GIF"], file, FILES["AVIF"]], on_error="replace")
    assert kept.batch_size == 3
    assert ndd.decoders.image([FILES["GIF"], file, FILES["AVIF"]], on_error="skip").batch_size == 2


def test_size_is_limited_before_decoding() -> None:
    huge = FILES["GIF"][:6] + struct.pack("<HH", 60000, 60000) + FILES["GIF"][10:]
    with pytest.raises(RuntimeError, match=r"60000x60000 = 3600000000 pixels, more than max_pixels=1000000"):
        decode(huge, max_pixels=1_000_000)


def test_beginning_of_a_file_tells_its_size() -> None:
    file = FILES["AVIF"]
    assert ndd.peek_image_shape(file[: file.index(b"mdat")]).torch().tolist() == [HEIGHT, WIDTH, 3]
    with pytest.raises(RuntimeError, match="the first 40 bytes of this AVIF do not tell its size"):
        ndd.peek_image_shape(file[:40])


def test_missing_torchcodec_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def fail(name: str, package: str | None = None) -> Any:
        if name == "torchcodec.decoders":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", fail)
    assert "GIF images need the package torchcodec: pip install torch_ndd[video]" in reason(FILES["GIF"])
