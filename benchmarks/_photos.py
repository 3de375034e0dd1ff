# SPDX-License-Identifier: Apache-2.0
"""Real photographs for the benchmarks, taken from PyPI packages, so nothing has to be downloaded."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

# Color photographs of scikit-image's wheel; scikit-learn adds "china" and "flower".
_SKIMAGE = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "motorcycle_right.png", "rocket.jpg")


def photographs() -> list[Image]:
    """The original photographs (RGB, 450x300 to 741x500)."""
    import skimage
    from PIL import Image
    from sklearn.datasets import load_sample_images

    folder = Path(skimage.__file__).parent / "data"
    originals = [Image.open(folder / name).convert("RGB") for name in _SKIMAGE]
    return originals + [Image.fromarray(np.asarray(image)) for image in load_sample_images().images]


def write_jpegs(folder: Path, count: int, seed: int = 0) -> list[Path]:
    """Write `count` JPEGs of ImageNet's kind: 500x375 or 375x500, 4:2:0, quality 85 to 95, about 50 kB on average.

    Each is another random window of a photograph, sometimes mirrored, in another brightness.
    """
    from PIL import Image, ImageEnhance

    draw = random.Random(seed)
    originals = photographs()
    paths = []
    for i in range(count):
        image = originals[i % len(originals)]
        width, height = (375, 500) if draw.random() < 0.2 else (500, 375)
        window = _window(draw, image.size, width / height)
        image = image.resize((width, height), Image.Resampling.BICUBIC, box=window)
        if draw.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        image = ImageEnhance.Brightness(image).enhance(draw.uniform(0.8, 1.2))
        path = folder / f"{i:05d}.jpg"
        image.save(path, quality=draw.randint(85, 95))
        paths.append(path)
    return paths


def _window(draw: random.Random, size: tuple[int, int], aspect: float) -> tuple[float, float, float, float]:
    """A random box (left, top, right, bottom) with the given width / height that covers at least 80 % of one side."""
    scale = draw.uniform(0.8, 1.0)
    width = min(size[0], size[1] * aspect) * scale
    height = width / aspect
    left, top = draw.uniform(0, size[0] - width), draw.uniform(0, size[1] - height)
    return left, top, left + width, top + height


def jpeg_files(count: int = 16) -> np.ndarray:
    """The same as bytes in memory, uint8, shape (count, length); zeros follow the shorter files, which no decoder reads."""
    with tempfile.TemporaryDirectory() as folder:
        files = [np.fromfile(path, np.uint8) for path in write_jpegs(Path(folder), count)]
    padded = np.zeros((count, max(map(len, files))), np.uint8)
    for row, file in zip(padded, files, strict=True):
        row[: len(file)] = file
    return padded


def vga_images(count: int = 16) -> np.ndarray:
    """`count` photographs of 640x480, uint8, shape (count, 480, 640, 3)."""
    from PIL import Image, ImageOps

    originals = photographs()
    fitted = [ImageOps.fit(image, (640, 480), Image.Resampling.BICUBIC) for image in originals]
    return np.stack([np.asarray(fitted[i % len(fitted)]) for i in range(count)])
