# SPDX-License-Identifier: Apache-2.0
"""Synthetic audio to learn from: five kinds of sounds, in noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np

RATE = 16000
KINDS = ("rising", "falling", "steady", "warbling", "clicking")


def make_sound(kind: str, generator: np.random.Generator) -> np.ndarray:
    """Return a sound of half a second to a second, in quieter noise, with silence before and after it."""
    time = np.arange(int(RATE * generator.uniform(0.5, 1.0))) / RATE
    low, high = generator.uniform(200, 800), generator.uniform(1500, 5000)
    progress = time / time[-1]
    hertz = {
        "rising": low + (high - low) * progress,
        "falling": high - (high - low) * progress,
        "steady": np.full_like(time, high),
        "warbling": high + 300 * np.sin(2 * np.pi * generator.uniform(5, 9) * time),
        "clicking": np.full_like(time, high),
    }[kind]
    sound = np.sin(2 * np.pi * np.cumsum(hertz) / RATE)
    if kind == "clicking":
        sound *= np.sin(np.pi * generator.uniform(8, 14) * time) ** 40
    silences = [np.zeros(int(RATE * generator.uniform(0.0, 0.3))) for _ in range(2)]
    sound = np.concatenate([silences[0], sound, silences[1]])
    return generator.uniform(0.05, 0.5) * (sound + generator.uniform(0.01, 0.2) * generator.standard_normal(len(sound)))


def write_sounds(folder: Path, count: int) -> None:
    """Write ``count`` sounds of each kind as FLAC files to ``folder/<kind>``."""
    import soundfile

    generator = np.random.default_rng(0)
    for kind in KINDS:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            soundfile.write(folder / kind / f"{number:03d}.flac", np.clip(make_sound(kind, generator), -1, 1), RATE)
