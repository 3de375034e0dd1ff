# SPDX-License-Identifier: Apache-2.0
"""Sounds, encoded by libsndfile, for the tests of the decoder."""

import io
from typing import Any

import numpy as np
import pytest

import torch_ndd as ndd

soundfile = pytest.importorskip("soundfile")

RATE = 16000
FORMATS = {
    "wav, 8 bits": ("WAV", "PCM_U8"),
    "wav, 16 bits": ("WAV", "PCM_16"),
    "wav, 24 bits": ("WAV", "PCM_24"),
    "wav, 32 bits": ("WAV", "PCM_32"),
    "wav, float": ("WAV", "FLOAT"),
    "wav, double": ("WAV", "DOUBLE"),
    "wav, mu-law": ("WAV", "ULAW"),
    "flac, 16 bits": ("FLAC", "PCM_16"),
    "flac, 24 bits": ("FLAC", "PCM_24"),
    "aiff": ("AIFF", "PCM_16"),
    "vorbis": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}
LOSSY = {"vorbis", "opus", "mp3"}


def sound(frames: int = 2000, channels: int = 2, seed: int = 0) -> np.ndarray:
    t = np.arange(frames)[:, None] / RATE
    rng = np.random.default_rng(seed)
    waves = sum(np.sin(2 * np.pi * rng.uniform(100, 3000) * t + k) for k in range(channels * 3))
    return (0.25 * waves * np.ones(channels) * np.linspace(0.5, 1, channels)).clip(-1, 1)


def encode(samples: np.ndarray, container: str = "WAV", subtype: str = "PCM_16", rate: int = RATE) -> np.ndarray:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=container, subtype=subtype)
    return np.frombuffer(file.getvalue(), np.uint8)


def decode(file: bytes | bytearray | np.ndarray, **options: Any) -> np.ndarray:
    return np.asarray(ndd.decoders.audio(np.frombuffer(file, np.uint8), **options)[0])


def encode_mp3(samples: np.ndarray, rate: int, mode: str) -> tuple[bytes, int]:
    """Return a file and the bytes of its first frame, which holds the length."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="MP3", subtype="MPEG_LAYER_III", bitrate_mode=mode, compression_level=0.5)
    content = file.getvalue()
    if rate > 24000:
        bits, rates = 144_000, (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
    else:
        bits, rates = 72_000, (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
    return content, bits * rates[content[2] >> 4] // rate + (content[2] >> 1 & 1)


def slice_seconds(whole: np.ndarray, rate: float, start: float, duration: float | None) -> np.ndarray:
    begin = int(start * rate)
    return whole[begin:] if duration is None else whole[begin : begin + int(duration * rate)]
