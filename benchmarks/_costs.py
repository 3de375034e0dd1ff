# SPDX-License-Identifier: Apache-2.0
"""Costs of samples as data sets have them: heavy tails of text, images in native resolution, a mix of both, and speech."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Of images: tokens of 28 x 28 pixels, as many as Qwen2-VL's processor allows.
PIXELS_OF_TOKEN, TOKENS_OF_IMAGE = 784, (4, 1280)
SHARES_OF_COUNTS = (0.3, 0.25, 0.2, 0.15, 0.1)  # of samples with 0 to 4 images: 1.5 on average

BUDGETS = {"vlm": 8192, "text": 16384, "images": 16384, "speech": 24000}


def _text(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.lognormal(np.log(600), 1.1, count).clip(1, BUDGETS["text"])


def _image_tokens(rng: np.random.Generator, shape: int | tuple[int, int]) -> np.ndarray:
    return (rng.lognormal(np.log(0.6e6), 0.7, shape) / PIXELS_OF_TOKEN).clip(*TOKENS_OF_IMAGE)


def _vlm(rng: np.random.Generator, count: int) -> np.ndarray:
    """Tokens of a text with up to four images."""
    text = rng.lognormal(np.log(280), 0.9, count)
    most = len(SHARES_OF_COUNTS) - 1
    images = rng.choice(most + 1, count, p=SHARES_OF_COUNTS)
    tokens = np.where(np.arange(most) < images[:, None], _image_tokens(rng, (count, most)), 0).sum(1)
    return (text + tokens).clip(1, BUDGETS["vlm"])


def _images(rng: np.random.Generator, count: int) -> np.ndarray:
    return _image_tokens(rng, count)


def _speech(rng: np.random.Generator, count: int) -> np.ndarray:
    """Hundredths of a second; most parts of read books end near a limit."""
    near = rng.normal(13.8, 1.2, count)
    rest = rng.gamma(2.5, 3, count)
    return 100 * np.where(rng.random(count) < 0.6, near, rest).clip(0.8, 35)


_KINDS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {"vlm": _vlm, "text": _text, "images": _images, "speech": _speech}


def sample_costs(kind: str, count: int = 65536, seed: int = 0) -> np.ndarray:
    """Return the costs of samples of a kind of data, int64 (count,)."""
    return _KINDS[kind](np.random.default_rng(seed), count).astype(np.int64).clip(1)
