# SPDX-License-Identifier: Apache-2.0
"""Costs of samples as data sets have them: heavy tails of text, images in native resolution, a mix of both, and speech."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

BUDGETS = {"vlm": 8192, "text": 16384, "images": 16384, "speech": 24000}


def _text(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.lognormal(np.log(600), 1.1, count).clip(1, BUDGETS["text"])


def _vlm(rng: np.random.Generator, count: int) -> np.ndarray:
    """Tokens of a text with up to four images, of 32 x 32 pixels each."""
    text = rng.lognormal(np.log(280), 0.9, count)
    tokens = (rng.lognormal(np.log(0.6e6), 0.7, (count, 4)) / 1024).clip(4, 1280)
    images = np.where(np.arange(4) < rng.integers(0, 5, count)[:, None], tokens, 0).sum(1)
    return (text + images).clip(1, BUDGETS["vlm"])


def _images(rng: np.random.Generator, count: int) -> np.ndarray:
    """Tokens of 28 x 28 pixels."""
    return (rng.lognormal(np.log(0.6e6), 0.7, count) / 784).clip(4, 4096)


def _speech(rng: np.random.Generator, count: int) -> np.ndarray:
    """Hundredths of a second; most parts of read books end near a limit."""
    near = rng.normal(13.8, 1.2, count)
    rest = rng.gamma(2.5, 3, count)
    return 100 * np.where(rng.random(count) < 0.6, near, rest).clip(0.8, 35)


_KINDS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {"vlm": _vlm, "text": _text, "images": _images, "speech": _speech}


def sample_costs(kind: str, count: int = 65536, seed: int = 0) -> np.ndarray:
    """Return the costs of samples of a kind of data, int64 (count,)."""
    return _KINDS[kind](np.random.default_rng(seed), count).astype(np.int64).clip(1)
