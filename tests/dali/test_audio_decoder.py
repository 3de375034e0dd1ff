# SPDX-License-Identifier: Apache-2.0
"""decoders.audio compared with DALI's, on every format and on DALI's own audio files."""

import io
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from _dali import dali, ndd

soundfile = pytest.importorskip("soundfile")

EXTRA = Path(os.environ.get("DALI_EXTRA_PATH", "/work/shared/dali_extra")) / "db/audio"
FILES = sorted(path for path in EXTRA.rglob("*") if path.suffix in (".wav", ".flac", ".ogg"))
FORMATS = [
    ("WAV", "PCM_U8"),
    ("WAV", "PCM_16"),
    ("WAV", "PCM_24"),
    ("WAV", "PCM_32"),
    ("WAV", "ULAW"),
    ("FLAC", "PCM_16"),
    ("FLAC", "PCM_24"),
    ("AIFF", "PCM_16"),
    ("OGG", "VORBIS"),
]


def encode(container: str, subtype: str, channels: int = 2, frames: int = 3000) -> np.ndarray:
    file = io.BytesIO()
    samples = np.random.default_rng(0).uniform(-0.3, 0.3, (frames, channels))
    soundfile.write(file, samples, 16000, format=container, subtype=subtype)
    return np.frombuffer(file.getvalue(), np.uint8)


def run(module: ModuleType, file: np.ndarray, dtype: str, **options: object) -> tuple[np.ndarray, float]:
    samples, rate = module.decoders.audio(module.as_tensor(file), dtype=getattr(module, dtype), **options)
    assert (samples.layout, rate.layout, np.asarray(rate).dtype) == (None, None, np.float32)
    return np.asarray(samples), rate.item()


def assert_close(file: np.ndarray, dtype: str, tolerance: float, **options: object) -> None:
    """``tolerance`` is relative to the range of the type."""
    ours, rate = run(ndd, file, dtype, **options)
    theirs, their_rate = run(dali, file, dtype, **options)
    assert (ours.shape, ours.dtype, rate) == (theirs.shape, theirs.dtype, their_rate)
    full = 1.0 if dtype == "float32" else float(np.iinfo(dtype).max)
    if ours.size:
        assert np.abs(ours / full - theirs / full).max() <= tolerance


@pytest.mark.parametrize("dtype", ["float32", "int16", "int32"])
@pytest.mark.parametrize(("container", "subtype"), FORMATS)
def test_every_format_decodes_alike(container: str, subtype: str, dtype: str) -> None:
    for channels in (1, 2):
        file = encode(container, subtype, channels)
        # DALI's build of Vorbis sums in another order, and truncates where we round.
        assert_close(file, dtype, 0 if subtype != "VORBIS" else 1e-6 if dtype != "int16" else 2 / 32767)
        assert_close(file, dtype, 1e-6 if dtype != "int16" else 1 / 32767, downmix=True)


@pytest.mark.parametrize("quality", [0.0, 50.0, 100.0])
@pytest.mark.parametrize("rate", [8000.0, 22050.0, 44100.0, 15999.5, 16000.0])
def test_resampled_sounds_are_close(rate: float, quality: float) -> None:
    # DALI interpolates linearly in a table of 32 weights per lobe, each off by up to 9e-4.
    for dtype in ("float32", "int16", "int32"):
        assert_close(encode("FLAC", "PCM_16"), dtype, 3e-3, sample_rate=rate, quality=quality)
        assert_close(encode("FLAC", "PCM_16"), dtype, 3e-3, sample_rate=rate, quality=quality, downmix=True)
    for frames in (0, 1, 2, 3, 5):
        assert_close(encode("WAV", "PCM_16", frames=frames), "float32", 3e-3, sample_rate=rate, quality=quality)


@pytest.mark.skipif(not FILES, reason="DALI_EXTRA_PATH holds no sounds")
def test_dali_extra() -> None:
    for path in FILES:
        file = np.fromfile(path, np.uint8)
        assert_close(file, "float32", 1e-6)
        assert_close(file, "float32", 1e-6, downmix=True)
        if path.suffix != ".ogg":  # DALI wraps numbers beyond the range of int16 around
            assert_close(file, "int16", 1 / 32767, downmix=True)


def test_both_reject_bad_files_and_options() -> None:
    good = encode("WAV", "PCM_16")
    for file, options in (
        (np.zeros(100, np.uint8), {}),
        (np.zeros(0, np.uint8), {}),
        (good, {"dtype": "uint8"}),
        (good, {"dtype": "float64"}),
        (good, {"quality": 101.0, "sample_rate": 8000.0}),
        (good, {"quality": -1.0, "sample_rate": 8000.0}),
    ):
        for module in (dali, ndd):
            with pytest.raises(RuntimeError):
                run(module, file, **{"dtype": "float32", **options})
