# SPDX-License-Identifier: Apache-2.0
"""JPEG 2000 on a GPU: which files nvJPEG2000 gets, what the kernel makes of its samples, and what becomes of the files that it refuses."""

import gc
import io
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import openjpeg
import pytest
import torch
from _fake_codecs import EMULATED, Codec, Request, count_engines, gradient
from _mutations import mutate
from openjpeg.utils import encode_array
from PIL import Image

import torch_ndd as ndd
from torch_ndd.decoders import _gpu_jpeg2000, _jpeg2000
from torch_ndd.decoders._gpu_jpeg2000 import check_codestream, is_plain

PHOTO = gradient(48, 80)


def encode(pixels: np.ndarray, **options: Any) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG2000", **options)
    return np.frombuffer(file.getvalue(), np.uint8)


def encode_bits(pixels: np.ndarray, bits: int) -> np.ndarray:
    interpretation = 1 if pixels.ndim == 3 else 2
    return np.frombuffer(encode_array(pixels, bits_stored=bits, photometric_interpretation=interpretation, use_mct=False), np.uint8)


def header_of(file: np.ndarray) -> Any:
    return _jpeg2000.read_checked_header(file, 1 << 28)


# --- selection, on any machine ---


@pytest.mark.parametrize(
    "options", [{}, {"tile_size": (32, 32)}, {"num_resolutions": 3}, {"irreversible": True}, {"quality_layers": [20, 5]}], ids=str
)
def test_plain_images_are_for_the_gpu(options: dict[str, Any]) -> None:
    assert is_plain(header_of(encode(PHOTO, **options)))
    assert is_plain(header_of(encode(PHOTO[..., 0], **options)))
    assert is_plain(header_of(encode(np.concatenate([PHOTO, PHOTO[..., :1]], -1), **options)))


@pytest.mark.parametrize(("bits", "expected"), [(5, False), (8, True), (12, True), (16, True)])
def test_8_to_16_bits_are_for_the_gpu(bits: int, expected: bool) -> None:
    pixels = (PHOTO[..., 0].astype(np.uint16) * 257 >> 16 - bits).astype(np.uint8 if bits <= 8 else np.uint16)
    assert is_plain(header_of(encode_bits(pixels, bits))) is expected


def _codestream(file: np.ndarray) -> bytearray:
    return bytearray(header_of(file).codestream)


def _find(codestream: bytearray, marker: int) -> int:
    return codestream.index(marker.to_bytes(2, "big"))


def test_offsets_subsampling_and_signs_are_for_the_cpu() -> None:
    plain = _codestream(encode(PHOTO))
    for at, value in ((42, 0x87), (43, 2), (19, 8)):  # the sign of the first component, its distance, the offset of the image
        changed = plain.copy()
        changed[at] = value
        try:
            header = header_of(np.frombuffer(bytes(changed), np.uint8))
        except RuntimeError:
            continue
        assert not is_plain(header), at


def _insert(codestream: bytearray, *segments: str) -> bytearray:
    """Put segments, as digits without their lengths, behind the quantization of the main header."""
    data = b"".join(bytes.fromhex(text[:4]) + (len(text) // 2).to_bytes(2, "big") + bytes.fromhex(text[4:]) for text in segments)
    end = _find(codestream, 0xFF5C) + 2
    end += int.from_bytes(codestream[end : end + 2], "big")
    return codestream[:end] + data + codestream[end:]


def _insert_in_tile(codestream: bytearray, segment: str) -> bytearray:
    at = _find(codestream, 0xFF90)
    data = bytes.fromhex(segment)
    return (
        codestream[: at + 6]
        + (len(codestream) - 2 - at + len(data)).to_bytes(4, "big")
        + codestream[at + 10 : at + 12]
        + data
        + codestream[at + 12 :]
    )


def _insert_part(codestream: bytearray, header: str) -> bytearray:
    return codestream[:-2] + bytes.fromhex("ff90000a" + header + "ff93") + codestream[-2:]


# Of the photo: three components of five levels, for which 16 steps of quantization are needed.
STEPS = "40" + "48" * 16
LEGAL = {
    "coding style of a component": ["ff5301000504040001"],
    "precincts of a component": ["ff5302010504040001888888888888"],
    "quantization of components": ["ff5d01" + STEPS, "ff5d02" + STEPS],
    "derived quantization": ["ff5d01214850"],
    "more levels and their quantization": ["ff5301000604040001", "ff5d0140" + "48" * 19],
    "comments": ["ff640001" + "20" * 9] * 2,
}


@pytest.mark.parametrize("name", LEGAL)
def test_segments_for_components_are_for_the_gpu(name: str) -> None:
    codestream = _codestream(encode(PHOTO))
    check_codestream(memoryview(_insert(codestream, *LEGAL[name])), 1)


def test_lengths_of_packets_and_parts_in_order_are_for_the_gpu() -> None:
    codestream = _codestream(encode(PHOTO))
    check_codestream(memoryview(_insert_in_tile(codestream, "ff5800040080")), 1)
    check_codestream(memoryview(_insert_part(codestream, "00000000000e0100")), 1)


CONTRADICTIONS = {
    "a style of component 3 of 3": lambda c: _insert(c, "ff5303000504040001"),
    "two styles of a component": lambda c: _insert(c, *["ff5301000504040001"] * 2),
    "a component of 33 levels": lambda c: _insert(c, "ff5301002104040001", "ff5d0140" + "48" * 97),
    "a component with more levels than steps": lambda c: _insert(c, "ff5301000604040001"),
    "a component with large code blocks": lambda c: _insert(c, "ff5301000508040001"),
    "a component with fewer precincts than levels": lambda c: _insert(c, "ff53010105040400018888"),
    "precincts without width": lambda c: _insert(c, "ff5301010504040001888880888888"),
    "a cut style of a component": lambda c: _insert(c, "ff53010005"),
    "quantization of component 9": lambda c: _insert(c, "ff5d09" + STEPS),
    "quantization of too few bands": lambda c: _insert(c, "ff5d0140" + "48" * 15),
    "quantization of an unknown kind": lambda c: _insert(c, "ff5d0143" + "48" * 16),
    "no quantization of a component": lambda c: _insert(c, "ff5d01"),
    "two quantizations of a component": lambda c: _insert(c, "ff5d01" + STEPS, "ff5d01" + STEPS),
    "changes of the progression": lambda c: _insert(c, "ff5f00000001060301"),
    "a region of interest": lambda c: _insert(c, "ff5e010005"),
    "headers of packets": lambda c: _insert(c, "ff600000"),
    "65535 layers": lambda c: c[: _find(c, 0xFF52) + 6] + b"\xff\xff" + c[_find(c, 0xFF52) + 8 :],
    "precincts of two pixels": lambda c: _insert(c, "ff5300010504040001111111111111", "ff5301010504040001111111111111"),
    "a coding style of a tile": lambda c: _insert_in_tile(c, "ff52000c00000001010504040001"),
    "a style of a component of a tile": lambda c: _insert_in_tile(c, "ff53000900000504040001"),
    "quantization of a tile": lambda c: _insert_in_tile(c, f"ff5c0013{STEPS}"),
    "headers of packets of a tile": lambda c: _insert_in_tile(c, "ff61000300"),
    "an endless segment of a tile": lambda c: _insert_in_tile(c, "ff64ffff"),
    "a tile without data": lambda c: _insert_part(c, "00000000000e0100").replace(b"\x01\0\xff\x93", b"\x01\0\xff\x64"),
    "a part that comes twice": lambda c: _insert_part(c, "00000000000e0000"),
    "a part that is left out": lambda c: _insert_part(c, "00000000000e0200"),
    "part 1 of 1": lambda c: _insert_part(c, "00000000000e0101"),
    "two sizes": lambda c: c[: _find(c, 0xFF52)] + c[2 : _find(c, 0xFF52)] + c[_find(c, 0xFF52) :],
    "two coding styles": lambda c: c[: _find(c, 0xFF52)] + c[_find(c, 0xFF52) : _find(c, 0xFF5C)] + c[_find(c, 0xFF52) :],
    "no coding style": lambda c: c[: _find(c, 0xFF52)] + c[_find(c, 0xFF5C) :],
    "no quantization": lambda c: c[: _find(c, 0xFF5C)] + c[_find(c, 0xFF90) :],
    "an unknown segment": lambda c: c[: _find(c, 0xFF52)] + b"\xff\x50\0\x02" + c[_find(c, 0xFF52) :],
    "a segment of one byte": lambda c: c[: _find(c, 0xFF52)] + b"\xff\x64\0\x01" + c[_find(c, 0xFF52) :],
    "an endless segment": lambda c: c[: _find(c, 0xFF52)] + b"\xff\x64\xff\xff" + c[_find(c, 0xFF52) :],
    "33 levels": lambda c: c[: _find(c, 0xFF52) + 9] + b"\x21" + c[_find(c, 0xFF52) + 10 :],
    "large code blocks": lambda c: c[: _find(c, 0xFF52) + 10] + b"\x08\x08" + c[_find(c, 0xFF52) + 12 :],
    "no layers": lambda c: c[: _find(c, 0xFF52) + 6] + b"\0\0" + c[_find(c, 0xFF52) + 8 :],
    "a tile that is not there": lambda c: c[: _find(c, 0xFF90) + 4] + b"\0\x07" + c[_find(c, 0xFF90) + 6 :],
    "a tile-part beyond the file": lambda c: c[: _find(c, 0xFF90) + 6] + b"\x7f\0\0\0" + c[_find(c, 0xFF90) + 10 :],
    "a tile-part of 3 bytes": lambda c: c[: _find(c, 0xFF90) + 6] + b"\0\0\0\x03" + c[_find(c, 0xFF90) + 10 :],
    "no tiles": lambda c: c[: _find(c, 0xFF90)],
    "the end of the main header": lambda c: c[: _find(c, 0xFF5C) + 3],
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictory_codestreams_are_not_for_the_gpu(name: str) -> None:
    codestream = _codestream(encode(PHOTO))
    check_codestream(memoryview(codestream), 1)
    with pytest.raises(ValueError, match=r"^(its|it|the segment|the coding style|part|a part) .*(header|legal|segment|bytes|tile|component|others)"):
        check_codestream(memoryview(bytes(CONTRADICTIONS[name](codestream))), 1)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_codestreams_are_checked_without_other_errors(seed: int) -> None:
    """Whatever the bytes are, the check ends with a ValueError or finds the sizes of the header."""
    draw = random.Random(seed)
    file = encode(PHOTO, tile_size=(32, 32))
    outcomes = {True: 0, False: 0, None: 0}
    for turn in range(150):
        damaged = np.frombuffer(mutate(bytes(file[:400]), turn % 5, draw) + bytes(file[400:]), np.uint8)
        try:
            outcomes[is_plain(header_of(damaged))] += 1
        except RuntimeError:
            outcomes[None] += 1
    assert outcomes[False] + outcomes[None] > 0


def test_files_that_look_like_device_images_are_damaged() -> None:
    for tail in (b"", b"\0" * 8, b"\1" * 8, b"\0" * 800):
        with pytest.raises(RuntimeError, match=r"damaged|supported format"):
            ndd.decoders.image(ndd.as_tensor(np.frombuffer(b"\x89NDDGPU\n" + tail, np.uint8))).evaluate()


@pytest.mark.skipif(EMULATED, reason="runs without the emulator")
def test_device_images_are_not_decoded_on_the_cpu() -> None:
    image = _gpu_jpeg2000.DeviceImage(torch.zeros(2, 3, 3, dtype=torch.uint8), (2, 3, 3), 8)
    file = image.file.copy()
    with pytest.raises(RuntimeError, match=r"decoded for a GPU|damaged"):
        ndd.decoders.image(ndd.as_tensor(file)).evaluate()
    del image
    with pytest.raises(RuntimeError, match="damaged"):
        ndd.decoders.image(ndd.as_tensor(file)).evaluate()


# --- decoding, emulated ---


@pytest.fixture
def codec(monkeypatch: pytest.MonkeyPatch) -> Iterator[Codec]:
    if not EMULATED:
        pytest.skip("runs emulated")
    monkeypatch.setattr(_gpu_jpeg2000, "is_usable", lambda device: device is not None)
    fake = Codec("nvjpeg2k")
    yield fake
    fake.stop()


def decode(request: Request) -> bool:
    samples = openjpeg.decode(request.content, 0)
    assert request.precision == int(header_of(np.frombuffer(request.content, np.uint8)).components[0].depth.bits)
    request.fill(samples.reshape(request.height, request.width, request.channels))
    return True


def files() -> dict[str, np.ndarray]:
    wide = np.random.default_rng(4).integers(0, 65536, (40, 48), np.uint16)
    alpha = np.concatenate([PHOTO, PHOTO[..., 1:2]], -1)
    return {
        "rgb": encode(PHOTO),
        "tiles": encode(PHOTO, tile_size=(32, 32)),
        "gray": encode(PHOTO[..., 2]),
        "alpha": encode(alpha),
        "16 bits": encode_bits(wide, 16),
        "12 bits": encode_bits(wide >> 4, 12),
        "rgb of 16 bits": encode_bits(np.stack([wide, wide[::-1], wide[:, ::-1]], -1), 16),
    }


@pytest.mark.parametrize("name", ["rgb", "tiles", "gray", "alpha", "16 bits", "12 bits", "rgb of 16 bits"])
@pytest.mark.parametrize("window", [None, [17, 21]], ids=["whole", "window"])
def test_the_pixels_are_those_of_the_cpu(codec: Codec, name: str, window: list[int] | None) -> None:
    file = ndd.as_tensor(files()[name])

    def image(**options: Any) -> Any:
        if window is None:
            return ndd.decoders.image(file, **options)
        return ndd.decoders.image_crop(file, crop=window, crop_pos_x=0.3, crop_pos_y=0.8, **options)

    for output_type in (ndd.types.RGB, ndd.types.BGR, ndd.types.GRAY, ndd.types.YCbCr, ndd.types.ANY_DATA):
        for dtype in (torch.uint8, torch.uint16, torch.int16, torch.float32):
            expected = image(output_type=output_type, dtype=dtype).evaluate()
            codec.answer(decode)
            result, counts = count_engines(lambda kind=output_type, dtype=dtype: image(output_type=kind, dtype=dtype, device="cpu"))
            assert counts == {"jpeg2000": 1}
            np.testing.assert_array_equal(np.asarray(result.torch()), np.asarray(expected.torch()))
            codec.stop()


@pytest.mark.parametrize("stage", ["canDecode", "decode"])
def test_refused_images_are_decoded_by_the_cpu(codec: Codec, stage: str) -> None:
    encoded = [encode(PHOTO), encode(PHOTO[:30]), encode(PHOTO[::-1].copy())]

    def wants(request: Request) -> bool:
        return request.height != 30

    codec.answer(decode, wants) if stage == "canDecode" else codec.answer(lambda request: wants(request) and decode(request))
    result, counts = count_engines(lambda: ndd.decoders.image(ndd.as_batch(encoded), device="cpu"))
    assert counts == {"jpeg2000": 2, "refused": 1, "cpu": 1}
    for value, pixels in zip(result, (PHOTO, PHOTO[:30], PHOTO[::-1]), strict=True):
        np.testing.assert_array_equal(np.asarray(value), pixels)


def test_damaged_images_fail_alone(codec: Codec) -> None:
    codec.answer(decode)
    damaged = encode(PHOTO)[:200]
    encoded = ndd.as_batch([encode(PHOTO), damaged])
    with pytest.raises(RuntimeError, match="sample 1"):
        ndd.decoders.image(encoded, device="cpu").evaluate()
    kept = ndd.decoders.image(encoded, device="cpu", on_error="skip")
    assert kept.batch_size == 1
    np.testing.assert_array_equal(np.asarray(kept.tensors[0]), PHOTO)


def test_max_pixels_comes_first(codec: Codec) -> None:
    codec.answer(decode)
    with pytest.raises(RuntimeError, match="max_pixels"):
        ndd.decoders.image(ndd.as_tensor(encode(PHOTO)), device="cpu", max_pixels=100)
    assert not codec.accepted


def test_device_memory_lives_as_long_as_the_call(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    codec.answer(decode)
    alive = 0

    class Counted(_gpu_jpeg2000.DeviceImage):
        def __init__(self, *arguments: Any) -> None:
            nonlocal alive
            alive += 1
            super().__init__(*arguments)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1
            super().__del__()

    monkeypatch.setattr(_gpu_jpeg2000, "DeviceImage", Counted)
    result = ndd.decoders.image(ndd.as_batch([encode(PHOTO)] * 20), device="cpu")
    gc.collect()
    np.testing.assert_array_equal(np.asarray(result.torch())[7], PHOTO)
    del result
    gc.collect()
    assert alive == 0
