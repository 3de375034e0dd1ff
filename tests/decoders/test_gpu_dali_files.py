# SPDX-License-Identifier: Apache-2.0
"""DALI's cases of decoders on a GPU, on its files: the pixels are the CPU's, with ``--device=cuda`` or emulated."""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _lossless_jpeg
import numpy as np
import openjpeg
import pytest
import torch
from _fake_codecs import EMULATED, Codec, Request, count_engines
from PIL import Image

import torch_ndd as ndd
from torch_ndd.decoders import _gpu_jpeg2000

ROOT = Path(os.environ.get("DALI_EXTRA_PATH", "/nowhere")) / "db" / "single"
FILES_OF_A_FORMAT = 6
FORMATS = ("jpeg", "jpeg2k", "tiff", "png", "bmp", "pnm", "webp")
OUTPUT_TYPES = (ndd.types.RGB, ndd.types.BGR, ndd.types.YCbCr, ndd.types.GRAY, ndd.types.ANY_DATA)

pytestmark = pytest.mark.skipif(not ROOT.is_dir(), reason="needs DALI_extra: set DALI_EXTRA_PATH")


def read_files(folder: str, count: int = FILES_OF_A_FORMAT) -> list[np.ndarray]:
    paths = sorted(path for path in (ROOT / folder).rglob("*") if path.suffix not in (".txt", "") and path.stat().st_size)
    return [np.fromfile(path, np.uint8) for path in paths[:: max(1, len(paths) // count)][:count]]


def _decode_tiff(request: Request) -> bool:
    request.fill(np.asarray(Image.open(io.BytesIO(request.content))).reshape(request.height, request.width, request.channels))
    return True


def _decode_jpeg2000(request: Request) -> bool:
    request.fill(openjpeg.decode(request.content, 0).reshape(request.height, request.width, request.channels))
    return True


def _decode_lossless_jpeg(request: Request) -> bool:
    request.fill(_lossless_jpeg.decode(request.content)[..., None])
    return True


class Codecs:
    """Decodes the same files by the CPU and by a GPU, or what stands for it."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._fakes: list[tuple[Codec, Any]] = []
        if EMULATED:
            answers = {"nvtiff": _decode_tiff, "nvjpeg2k": _decode_jpeg2000, "nvjpeg": _decode_lossless_jpeg}
            self._fakes = [(Codec(extension), answer) for extension, answer in answers.items()]

    def decode(self, files: list[np.ndarray], **options: Any) -> tuple[Any, dict[str, int]]:
        for fake, answer in self._fakes:
            fake.answer(answer)
        try:
            return count_engines(lambda: ndd.decoders.image(ndd.as_batch(files), device=self._device, jpeg_fancy_upsampling=True, **options))
        finally:
            for fake, _ in self._fakes:
                fake.stop()

    def reference(self, files: list[np.ndarray], **options: Any) -> Any:
        return ndd.decoders.image(ndd.as_batch(files), **options).evaluate()


@pytest.fixture
def codecs(device: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Codecs]:
    if device == "cpu" and not EMULATED:
        pytest.skip("runs with --device=cuda or emulated")
    if EMULATED:
        monkeypatch.setattr(_gpu_jpeg2000, "is_usable", lambda device: device is not None)
    return Codecs(device)


def tolerance(name: str, output_type: Any) -> int:
    """Return the levels that nvJPEG rounds differently, and a level for gray, which codecs round before we do."""
    if name in ("jpeg", "mixed"):
        return 6 if output_type == ndd.types.YCbCr else 4
    return 1 if output_type == ndd.types.GRAY else 0


@pytest.mark.parametrize("output_type", OUTPUT_TYPES, ids=str)
@pytest.mark.parametrize("name", [*FORMATS, "mixed"])
def test_the_pixels_are_those_of_the_cpu(codecs: Codecs, name: str, output_type: Any) -> None:
    files = [file for folder in FORMATS for file in read_files(folder, 2)] if name == "mixed" else read_files(name)
    expected = codecs.reference(files, output_type=output_type)
    result, counts = codecs.decode(files, output_type=output_type)
    assert sum(counts.values()) - counts.get("refused", 0) == len(files)
    for ours, theirs in zip(result.cpu(), expected, strict=True):
        assert ours.shape == theirs.shape
        difference = np.abs(np.asarray(ours).astype(int) - np.asarray(theirs).astype(int))
        assert difference.max() <= tolerance(name, output_type)


LOSSLESS = [("cat-1245673_640_grayscale_16bit", 16), ("cat-3449999_640_grayscale_16bit", 16), ("cat-3449999_640_grayscale_12bit", 12)]


@pytest.mark.parametrize(("name", "bits"), LOSSLESS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.float32], ids=str)
def test_lossless_jpegs(codecs: Codecs, name: str, bits: int, dtype: torch.dtype) -> None:
    file = np.fromfile(ROOT / "jpeg_lossless" / "0" / f"{name}.jpg", np.uint8)
    stored = _lossless_jpeg.decode(file.tobytes())
    result, counts = codecs.decode([file], output_type=ndd.types.ANY_DATA, dtype=dtype)
    assert counts == {"lossless_jpeg": 1}
    found = np.asarray(result.tensors[0].cpu().torch().double())[..., 0]
    if dtype == torch.uint16 and bits == 16:
        np.testing.assert_array_equal(found, stored)
    largest = 1.0 if dtype.is_floating_point else torch.iinfo(dtype).max
    np.testing.assert_allclose(found, stored / ((1 << bits) - 1) * largest, rtol=0, atol=0.51 if largest > 1 else 1e-5)


def test_endless_scans_are_refused(codecs: Codecs) -> None:
    """DALI refuses them on both devices; so does the CPU here, to which such a file goes."""
    progressive = io.BytesIO()
    Image.fromarray(np.random.default_rng(2).integers(0, 256, (64, 64, 3), np.uint8)).save(progressive, "JPEG", progressive=True)
    content = progressive.getvalue()
    last = content[content.rindex(b"\xff\xda") : -2]
    file = np.frombuffer(content[:-2] + last * 600 + b"\xff\xd9", np.uint8)
    with pytest.raises(RuntimeError, match="scans"):
        codecs.decode([file])
