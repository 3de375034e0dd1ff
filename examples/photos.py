# SPDX-License-Identifier: Apache-2.0
"""Photos for the examples: crops of the two that come with scikit-learn, as JPEG files of different sizes."""

from pathlib import Path


def write_photos(folder: Path, count: int = 256) -> None:
    """Write ``count`` JPEGs to ``folder/china`` and ``folder/flower``, unless there are as many."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_sample_image

    photos = {name: Image.fromarray(load_sample_image(f"{name}.jpg")) for name in ("china", "flower")}
    random = np.random.default_rng(0)
    for number in range(count):
        name = ("china", "flower")[number % 2]
        width, height = random.integers(300, 640), random.integers(280, 427)
        left, top = random.integers(0, 640 - width + 1), random.integers(0, 427 - height + 1)
        path = folder / name / f"{number:04d}.jpg"
        if not path.exists():
            path.parent.mkdir(exist_ok=True, parents=True)
            photos[name].crop((int(left), int(top), int(left + width), int(top + height))).save(path, quality=90)
