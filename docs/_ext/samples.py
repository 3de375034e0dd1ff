# SPDX-License-Identifier: Apache-2.0
"""The data of the examples: photographs, a video, a volume and sounds that scikit-image and scikit-learn bring along, or that are computed."""

from functools import cache
from typing import Any

import numpy as np
import torch
from sample_files import write_datasets

import torch_ndd as ndd

_SIDE = 192.0  # shorter side of the photographs, in pixels


@cache
def _pixels() -> dict[str, np.ndarray]:
    from skimage import data
    from sklearn.datasets import load_sample_images

    china, flower = load_sample_images().images
    return {"astronaut": data.astronaut(), "cat": data.chelsea(), "coffee": data.coffee(), "china": china, "flower": flower, "camera": data.camera()}


@cache
def _photos() -> dict[str, np.ndarray]:
    """Return the photographs at the size of the examples."""

    def resize(pixels: np.ndarray) -> np.ndarray:
        image = ndd.tensor(np.atleast_3d(pixels), layout="HWC")
        return np.asarray(ndd.resize(image, resize_shorter=_SIDE))

    return {name: resize(pixels) for name, pixels in _pixels().items()}


def names() -> dict[str, Any]:
    """Return the names that every example may use, with fresh random generators."""
    ndd.random.set_seed(7)
    torch.manual_seed(7)
    found = {name: ndd.tensor(pixels, layout="HWC") for name, pixels in _photos().items()}  # copies: an example may write to its own
    photos = ndd.as_batch([found[name] for name in ("cat", "coffee", "china", "flower")])
    return {
        "ndd": ndd,
        "np": np,
        "torch": torch,
        "photo": found["cat"],
        "photos": photos,
        **found,
        "video": _video(),
        "data": _data(),
        "volume": _volume(),
        "sound": _sound(),
        "boxes": [torch.tensor([[60.0, 60.0, 140.0, 110.0], [150.0, 70.0, 230.0, 120.0]])],
    }


@cache
def _video() -> ndd.Tensor:
    """Return 8 frames: a window that moves over a photograph."""
    china = _pixels()["china"]
    frames = np.stack([china[20 : 20 + 288, 40 * k : 40 * k + 288] for k in range(8)])
    return ndd.resize(ndd.tensor(frames, layout="FHWC"), size=[96, 96]).evaluate()


@cache
def _data() -> Any:
    return write_datasets(_video())


@cache
def _volume() -> ndd.Tensor:
    """Return a volume of blobs, DHWC, one channel of uint8."""
    from skimage.data import binary_blobs

    blobs = binary_blobs(96, n_dim=3, volume_fraction=0.3, blob_size_fraction=0.25, rng=3)
    return ndd.tensor((blobs[::12] * np.uint8(255))[..., None], layout="DHWC")


@cache
def _sound() -> ndd.Tensor:
    """Return two seconds of a melody with overtones at 16 kHz, with pauses."""
    rate, parts = 16000, []
    for note in (220.0, 277.2, 329.6, 440.0, 329.6):
        time = np.arange(int(rate * 0.32)) / rate
        tone = sum(np.sin(2 * np.pi * note * k * time) / k**1.5 for k in range(1, 8))
        parts += [tone * np.exp(-6 * time), np.zeros(int(rate * 0.08))]
    whole = np.concatenate(parts).astype(np.float32)
    return ndd.tensor(whole / np.abs(whole).max() * np.float32(0.8))
