# SPDX-License-Identifier: Apache-2.0
"""What a case of the benchmark is, and the data that cases are run on."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from .._photos import jpeg_files, vga_images

# The input of a case, by name: an array with one sample a row.
DATA: dict[str, Callable[[], np.ndarray]] = {
    "vga": vga_images,
    "vga_gray": lambda: np.ascontiguousarray(vga_images()[..., :1]),
    "jpegs": jpeg_files,
    "flac files": lambda: _flac_files(64),
    "features": lambda: _noise(16, 1500, 80, low=-1.0),
    "labels": lambda: np.arange(16 * 64, dtype=np.int32).reshape(16, 64),
    "64 rows": lambda: np.zeros((64, 1), np.float32),
    "tiny": lambda: np.arange(64, dtype=np.float32).reshape(16, 4),
    "speech": lambda: _noise(64, 64000, low=-1.0),
    "spectra": lambda: _noise(64, 257, 400),
    "bands": lambda: _noise(64, 80, 400),
}


def _flac_files(count: int) -> np.ndarray:
    """Four seconds at 16 kHz each, a voice of some harmonics in a little noise, with zeros behind the shorter files."""
    soundfile = importlib.import_module("soundfile")
    t, rng, files = np.arange(64_000) / 16_000, np.random.default_rng(2), []
    for _ in range(count):
        pitch = rng.uniform(90, 250)
        voice = sum(np.sin(2 * np.pi * k * pitch * t) / (k + 1) for k in range(1, 20)) * (1 + np.sin(2 * np.pi * 3 * t)) / 2
        file = io.BytesIO()
        soundfile.write(file, 0.3 * voice + rng.normal(0, 0.003, t.shape), 16_000, format="FLAC")
        files.append(np.frombuffer(file.getvalue(), np.uint8))
    longest = max(map(len, files))
    return np.stack([np.pad(file, (0, longest - len(file))) for file in files])


def _noise(*shape: int, low: float = 0.0) -> np.ndarray:
    return np.random.default_rng(2).uniform(low, 1.0, shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """One operator and how each competitor runs it.

    ``ndd`` gets the imperative module (torch_ndd or DALI's), its enum constants and a batch; ``cv2`` gets OpenCV and one HWC image; ``np`` one
    HWC image; ``tv`` gets `torchvision.transforms.v2` and (N, C, H, W). A competitor without such an operator is left out. All deliver as many
    elements of the same type. Numbers are written as literals, because DALI runs those faster than computed values.
    """

    name: str
    ndd: Callable[[ModuleType, ModuleType, Any], Any]
    cv2: Callable[[Any, np.ndarray], Any] | None = None
    tv: Callable[[Any, Any], Any] | None = None
    np: Callable[[np.ndarray], Any] | None = None
    data: str = "vga"
    call_only: bool = False  # time the call without waiting for the result
    layout: str | None = None  # of the samples; without one, images are HWC
    # Where results are compared: so far apart they may be (infinite where they are random), but for a share of the elements.
    tolerance: float = 1.0
    outliers: float = 0.0
