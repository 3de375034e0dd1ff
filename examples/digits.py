# SPDX-License-Identifier: Apache-2.0
"""Shared by the examples: scikit-learn's 1797 handwritten digits as JPEG files, and a small network."""

from pathlib import Path

from torch import nn


def write_digits(folder: Path) -> None:
    """Write the digits as 32x32 JPEGs to ``folder/0`` ... ``folder/9``, unless they exist."""
    from PIL import Image
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    for number, (pixels, digit) in enumerate(zip(images, digits, strict=True)):
        path = folder / str(digit) / f"{number:04d}.jpg"
        if not path.exists():
            path.parent.mkdir(exist_ok=True, parents=True)
            image = Image.fromarray((pixels.reshape(8, 8) * 255 / 16).astype("uint8"))  # the values are 0 to 16
            image.resize((32, 32), Image.Resampling.BICUBIC).save(path, quality=95)


def small_cnn(classes: int) -> nn.Module:
    """Four convolutions, for images of any size."""

    def block(inputs: int, outputs: int) -> list[nn.Module]:
        return [
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]

    layers = [*block(3, 16), *block(16, 32), *block(32, 64), *block(64, 128)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes))
