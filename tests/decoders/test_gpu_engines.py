# SPDX-License-Identifier: Apache-2.0
"""Which decoder of a GPU gets which file, what it is asked for, and what becomes of the images that it refuses."""

import io
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import _lossless_jpeg
import numpy as np
import pytest
import torch
from _fake_codecs import EMULATED, Codec, Request, count_engines, gradient
from PIL import Image

import torch_ndd as ndd
from torch_ndd._core import native
from torch_ndd.decoders import _library

_gpu_codec_of = native.c_function("ndd_gpu_codec_of")
_CODECS = native.numbers("decoders.GpuCodec")
NONE, JPEG, LOSSLESS, TIFF = (_CODECS[name] for name in ("none", "jpeg", "lossless_jpeg", "tiff"))
BY_HARDWARE, REJECTED = 100 + JPEG, -1


def gpu_codec_of(file: np.ndarray) -> int:
    _library.load()
    return _gpu_codec_of(file.tobytes(), len(file))


def encode(pixels: np.ndarray, codec: str = "JPEG", **options: Any) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, codec, **options)
    return np.frombuffer(file.getvalue(), np.uint8)


PHOTO = gradient(48, 80)


def lossless_jpeg(height: int, width: int, bits: int = 16, components: int = 1) -> np.ndarray:
    """Return the header of a lossless JPEG, and zeros in the place of its pixels."""
    frame = struct.pack(">BHHB", bits, height, width, components) + b"".join(bytes([c + 1, 0x11, 0]) for c in range(components))
    scan = bytes([components]) + b"".join(bytes([c + 1, 0]) for c in range(components)) + bytes([1, 0, 0])
    tables = b"\0" + bytes([0] * 4 + [16] + [0] * 11) + bytes(range(16))
    segments = [(0xC3, frame), (0xC4, tables), (0xDA, scan)]
    header = b"".join(bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content for marker, content in segments)
    return np.frombuffer(b"\xff\xd8" + header + bytes(height * width * components // 8 + 8) + b"\xff\xd9", np.uint8)


def tiff16(pixels: np.ndarray, **options: Any) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint16)).save(file, "TIFF", **options)
    return np.frombuffer(file.getvalue(), np.uint8)


# --- selection, on any machine ---


def test_only_baseline_jpegs_are_for_the_jpeg_engines() -> None:
    plain = encode(PHOTO)
    assert gpu_codec_of(plain) == BY_HARDWARE
    assert gpu_codec_of(encode(PHOTO[..., 0])) == BY_HARDWARE
    assert gpu_codec_of(encode(PHOTO, exif=Image.Exif(), comment=b"a" * 999, optimize=True)) == BY_HARDWARE
    assert gpu_codec_of(encode(PHOTO, progressive=True)) == JPEG
    assert gpu_codec_of(encode(PHOTO, "PNG")) == NONE
    assert all(gpu_codec_of(plain[:n]) == REJECTED for n in (0, 1, 2, 3, 4, 20))
    frame = bytes(plain).index(b"\xff\xc0")
    for kind in (0xC1, 0xC5, 0xC9, 0xCA, 0xCF, 0xD9, 0xDA):
        changed = plain.copy()
        changed[frame + 1] = kind
        assert gpu_codec_of(changed) in (NONE, REJECTED), hex(kind)


def test_jpegs_that_parsers_may_read_differently_are_for_the_cpu() -> None:
    plain = encode(PHOTO)
    frame, tables = bytes(plain).index(b"\xff\xc0"), bytes(plain).index(b"\xff\xc4")
    for at in (frame, tables):  # before and behind the frame header
        for extra in ([0], [0xFF, 0xD0], [0xFF, 0]):
            assert gpu_codec_of(np.concatenate([plain[:at], np.array(extra, np.uint8), plain[at:]])) == NONE, (at, extra)
        fill = np.full(3, 255, np.uint8)
        assert gpu_codec_of(np.concatenate([plain[:at], fill, plain[at:]])) == BY_HARDWARE
    segment = plain[frame : frame + 19]
    assert gpu_codec_of(np.concatenate([plain[:tables], segment, plain[tables:]])) == REJECTED  # two frame headers


def test_other_colors_of_jpegs_are_for_the_cpu() -> None:
    cmyk = io.BytesIO()
    Image.fromarray(PHOTO).convert("CMYK").save(cmyk, "JPEG")
    assert gpu_codec_of(np.frombuffer(cmyk.getvalue(), np.uint8)) == NONE


def scans_of(file: np.ndarray) -> list[int]:
    """Return the offsets of the scans of a progressive JPEG."""
    content, found, at = bytes(file), [], 2
    while (at := content.find(b"\xff\xda", at)) >= 0:
        found.append(at)
        at += 2
    return found


def test_progressive_jpegs_that_lack_scans_are_for_the_cpu() -> None:
    """Libjpeg smooths them, and nvJPEG does not."""
    file = encode(PHOTO, progressive=True)
    scans = scans_of(file)
    assert len(scans) > 4
    for kept in range(1, len(scans)):
        assert gpu_codec_of(np.concatenate([file[: scans[kept]], np.array([255, 0xD9], np.uint8)])) == NONE, kept
    assert gpu_codec_of(file) == JPEG


def test_jpegs_with_too_many_scans_are_for_the_cpu() -> None:
    file = encode(PHOTO, progressive=True)
    last = file[scans_of(file)[-1] : -2]
    for copies, expected in ((400, JPEG), (500, NONE)):  # the limit is 500 for such a small image
        assert gpu_codec_of(np.concatenate([file[:-2], *[last] * copies, file[-2:]])) == expected, copies
    plain = encode(PHOTO)
    scan = scans_of(plain)[0]
    of_one_component = np.frombuffer(b"\xff\xda\0\x08\x01\x01\0\0\x3f\0" + bytes(20), np.uint8)
    for copies, expected in ((400, BY_HARDWARE), (501, NONE)):
        assert gpu_codec_of(np.concatenate([plain[:scan], *[of_one_component] * copies, plain[scan:]])) == expected, copies


@pytest.mark.parametrize(
    ("bits", "components", "expected"), [(16, 1, LOSSLESS), (12, 1, LOSSLESS), (9, 1, LOSSLESS), (8, 1, NONE), (16, 3, NONE), (8, 3, NONE)]
)
def test_gray_lossless_jpegs_of_more_than_8_bits_are_for_the_gpu(bits: int, components: int, expected: int) -> None:
    assert gpu_codec_of(lossless_jpeg(40, 60, bits, components)) == expected


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"])
def test_plain_tiffs_are_for_the_gpu(compression: str) -> None:
    assert gpu_codec_of(encode(PHOTO, "TIFF", compression=compression)) == TIFF
    assert gpu_codec_of(encode(PHOTO[..., 0], "TIFF", compression=compression)) == TIFF
    assert gpu_codec_of(tiff16(PHOTO[..., 0] * 256.0, compression=compression)) == TIFF


def test_other_tiffs_are_for_the_cpu() -> None:
    alpha = np.concatenate([PHOTO, PHOTO[..., :1]], -1)
    assert gpu_codec_of(encode(alpha, "TIFF")) == NONE
    assert gpu_codec_of(encode(PHOTO, "TIFF", compression="jpeg")) == NONE
    assert gpu_codec_of(encode(PHOTO[..., 0] > 100, "TIFF")) == NONE  # one bit a sample
    assert gpu_codec_of(encode(PHOTO[..., 0].astype(np.float32), "TIFF")) == NONE
    palette = io.BytesIO()
    Image.fromarray(PHOTO).quantize(16).save(palette, "TIFF")
    assert gpu_codec_of(np.frombuffer(palette.getvalue(), np.uint8)) == NONE


# --- decoding, emulated: functions of the tests stand for the libraries (tests/emulated_cuda/fake_codec.cpp) ---


@pytest.fixture
def codec(request: pytest.FixtureRequest) -> Iterator[Codec]:
    if not EMULATED:
        pytest.skip("runs emulated")
    fake = Codec(request.param)
    yield fake
    fake.stop()


for_lossless = pytest.mark.parametrize("codec", ["nvjpeg"], indirect=True)
for_tiff = pytest.mark.parametrize("codec", ["nvtiff"], indirect=True)


def decode_on_cpu(work: Any) -> Any:
    """Decode what a fake codec could, before it has an answer."""
    result, counts = count_engines(work)
    assert set(counts) == {"cpu", "refused"}
    return result


def decode_tiff(request: Request) -> bool:
    pixels = np.asarray(Image.open(io.BytesIO(request.content)))
    request.fill(pixels.reshape(request.height, request.width, request.channels))
    return True


CONVERSIONS = [
    {"output_type": output_type, "dtype": dtype}
    for output_type in (ndd.types.RGB, ndd.types.BGR, ndd.types.GRAY, ndd.types.YCbCr, ndd.types.ANY_DATA)
    for dtype in (torch.uint8, torch.float32, torch.int16, torch.uint16)
]


@for_tiff
@pytest.mark.parametrize("conversion", CONVERSIONS, ids=str)
def test_tiffs_of_the_gpu_are_those_of_the_cpu(codec: Codec, conversion: dict[str, Any]) -> None:
    wide = np.random.default_rng(5).integers(0, 65536, (31, 45))
    files = [encode(PHOTO, "TIFF", compression="tiff_lzw"), encode(PHOTO[..., 1], "TIFF"), tiff16(wide)]
    expected = decode_on_cpu(lambda: ndd.decoders.image(ndd.as_batch(files), **conversion))
    codec.answer(decode_tiff)
    result, counts = count_engines(lambda: ndd.decoders.image(ndd.as_batch(files), device="cpu", hw_decoder_load=0.0, **conversion))
    assert counts == {"tiff": 3}
    # Libtiff's own conversion to gray rounds; all else is exact.
    tolerance = 1 if conversion["output_type"] == ndd.types.GRAY else 0
    level = 1 if conversion["dtype"].is_floating_point else torch.iinfo(conversion["dtype"]).max
    for ours, theirs in zip(result, expected, strict=True):
        np.testing.assert_allclose(
            np.asarray(ours.torch().double()) / level, np.asarray(theirs.torch().double()) / level, rtol=0, atol=tolerance / 255 + 1e-9
        )


@for_tiff
@pytest.mark.parametrize("orientation", range(1, 9))
def test_windows_of_turned_tiffs(codec: Codec, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    files = ndd.as_batch([encode(PHOTO, "TIFF", exif=exif), encode(gradient(64, 50), "TIFF", exif=exif)])
    for window in ({"crop": [20, 31], "crop_pos_x": 0.3, "crop_pos_y": 0.9}, {"crop": [41, 44], "dtype": torch.float32}):
        expected = decode_on_cpu(lambda window=window: ndd.decoders.image_crop(files, **window))
        codec.answer(decode_tiff)
        result, counts = count_engines(lambda window=window: ndd.decoders.image_crop(files, device="cpu", hw_decoder_load=0.0, **window))
        assert counts == {"tiff": 2}
        np.testing.assert_array_equal(np.asarray(result.torch()), np.asarray(expected.torch()))
        codec.stop()


@for_tiff
def test_nvtiff_sees_one_page(codec: Codec) -> None:
    """It would read all directories of the file, of which only the first one is checked."""
    codec.answer(decode_tiff)
    pages = io.BytesIO()
    Image.fromarray(PHOTO).save(pages, "TIFF", save_all=True, append_images=[Image.fromarray(PHOTO[::-1].copy())] * 3)
    result, counts = count_engines(
        lambda: ndd.decoders.image(ndd.as_tensor(np.frombuffer(pages.getvalue(), np.uint8)), device="cpu", hw_decoder_load=0.0)
    )
    assert counts == {"tiff": 1}
    np.testing.assert_array_equal(np.asarray(result), PHOTO)
    assert Image.open(pages).n_frames == 4
    assert Image.open(io.BytesIO(codec.accepted[0])).n_frames == 1


@for_tiff
@pytest.mark.parametrize("stage", ["canDecode", "decode"])
def test_refused_tiffs_are_decoded_by_the_cpu(codec: Codec, stage: str) -> None:
    small = encode(PHOTO[:20], "TIFF")

    def wants(request: Request) -> bool:
        return request.height != 20

    if stage == "canDecode":
        codec.answer(decode_tiff, wants)
    else:
        codec.answer(lambda request: wants(request) and decode_tiff(request))
    files = ndd.as_batch([encode(PHOTO, "TIFF"), small, encode(PHOTO, "PNG"), small])
    result, counts = count_engines(lambda: ndd.decoders.image(files, device="cpu", hw_decoder_load=0.0))
    assert counts == {"tiff": 1, "refused": 2, "cpu": 3}
    for value, expected in zip(result, (PHOTO, PHOTO[:20], PHOTO, PHOTO[:20]), strict=True):
        np.testing.assert_array_equal(np.asarray(value), expected)


@for_tiff
def test_damaged_tiffs_raise_the_error_of_the_cpu(codec: Codec) -> None:
    codec.answer(lambda request: False)
    damaged = encode(PHOTO, "TIFF", compression="tiff_lzw").copy()
    offset = int(np.asarray(Image.open(io.BytesIO(damaged.tobytes())).tag_v2[273])[0])
    damaged[offset : offset + 40] = 255
    files = ndd.as_batch([encode(PHOTO, "TIFF"), damaged])
    with pytest.raises(RuntimeError, match=r"sample 1.*damaged"):
        ndd.decoders.image(files, device="cpu", hw_decoder_load=0.0).evaluate()
    kept = ndd.decoders.image(files, device="cpu", hw_decoder_load=0.0, on_error="replace")
    assert [error.index for error in kept.errors] == [1]
    assert not np.asarray(kept.tensors[1]).any()


@for_lossless
@pytest.mark.parametrize("bits", [16, 12, 10])
@pytest.mark.parametrize("dtype", [torch.uint16, torch.float32, torch.uint8], ids=str)
def test_lossless_jpegs_fill_the_range_of_their_type(codec: Codec, bits: int, dtype: torch.dtype) -> None:
    stored = np.random.default_rng(bits).integers(0, 1 << bits, (40, 60), np.uint16)

    def decode(request: Request) -> bool:
        assert (request.channels, request.type >> 11) == (1, 2)
        request.fill(_lossless_jpeg.decode(request.content)[..., None])
        return True

    codec.answer(decode)
    file = ndd.as_tensor(_lossless_jpeg.encode(stored, bits))
    for output_type, channels in ((ndd.types.ANY_DATA, 1), (ndd.types.GRAY, 1), (ndd.types.RGB, 3)):
        result, counts = count_engines(lambda kind=output_type: ndd.decoders.image(file, device="cpu", output_type=kind, dtype=dtype))
        assert counts == {"lossless_jpeg": 1}
        largest = (1 << bits) - 1
        full = (stored[..., None].astype(np.int64) * 65535 + largest // 2) // largest
        scale = 1.0 if dtype.is_floating_point else torch.iinfo(dtype).max
        expected = np.broadcast_to(full / 65535 * scale, (40, 60, channels))
        found = np.asarray(result.torch().double())
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 if dtype.is_floating_point else 0.5 + 1e-9)
    result, _ = count_engines(lambda: ndd.decoders.image_crop(file, device="cpu", output_type=ndd.types.ANY_DATA, dtype=torch.uint16, crop=[10, 20]))
    np.testing.assert_array_equal(np.asarray(result.torch())[..., 0], full[15:25, 20:40, 0])


@for_lossless
def test_lossless_jpegs_that_nvjpeg_refuses_name_the_reason(codec: Codec) -> None:
    codec.answer(lambda request: False)
    with pytest.raises(RuntimeError, match="no CPU decoder for lossless JPEG with 16 bits a sample"):
        ndd.decoders.image(ndd.as_tensor(lossless_jpeg(40, 60)), device="cpu").evaluate()


@for_lossless
def test_the_decoder_of_lossless_jpegs_gets_no_others(codec: Codec) -> None:
    codec.answer(lambda request: pytest.fail("called"), lambda request: pytest.fail("called"))
    _, counts = count_engines(
        lambda: ndd.decoders.image(ndd.as_batch([encode(PHOTO), encode(PHOTO, progressive=True)]), device="cpu", hw_decoder_load=0.0)
    )
    assert counts == {"cuda": 2}


@pytest.mark.skipif(not EMULATED, reason="runs emulated")
@pytest.mark.parametrize("orientation", [1, 6, 3])
def test_windows_of_progressive_jpegs(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    files = ndd.as_batch([encode(PHOTO, progressive=True, exif=exif, quality=95)] * 3)
    whole = np.asarray(ndd.decoders.image(files).torch())
    result, counts = count_engines(
        lambda: ndd.decoders.image_crop(files, device="cpu", hw_decoder_load=0.0, crop=[20, 30], crop_pos_x=0, crop_pos_y=1)
    )
    assert counts == {"cuda": 3}
    np.testing.assert_allclose(np.asarray(result.torch()).astype(int), whole[:, -20:, :30], atol=3)


@pytest.mark.skipif(not EMULATED, reason="runs emulated")
def test_regions_can_be_turned_off() -> None:
    program = """if True:
        import decoders_plugin, io, numpy as np, torch_ndd as ndd
        from PIL import Image
        decoders_plugin.pytest_configure()
        exif = Image.Exif()
        exif[0x0112] = 6
        file = io.BytesIO()
        Image.fromarray(np.arange(7200, dtype=np.uint8).reshape(40, 60, 3)).save(file, "JPEG", exif=exif)
        file = ndd.as_tensor(np.frombuffer(file.getvalue(), np.uint8))
        for load in (0.0, 1.0):
            for options in ({}, {"output_type": ndd.types.YCbCr}, {"output_type": ndd.types.GRAY}):
                whole = np.asarray(ndd.decoders.image(file, **options))
                part = np.asarray(ndd.decoders.image_crop(file, crop=[20, 30], crop_pos_x=0, crop_pos_y=1, hw_decoder_load=load, **options))
                # A region that the codec decodes differs along its edges.
                assert np.array_equal(part, whole[-20:, :30])
    """
    environment = {**os.environ, "TORCH_NDD_GPU_REGIONS": "0"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
