# SPDX-License-Identifier: Apache-2.0
"""Videos of plain frames whose colors encode the video and the frame."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

HEIGHT, WIDTH, RATE = 32, 48, 10


def encoders() -> object:
    """Return torchcodec's encoders; skip the tests if torchcodec or FFmpeg is missing, except in CI, which installs them."""
    try:
        import torchcodec.encoders as found
    except (ImportError, RuntimeError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"torchcodec cannot be used: {error}".splitlines()[0])
    return found


def frames_of(count: int, video: int = 0) -> np.ndarray:
    frames = np.zeros((count, HEIGHT, WIDTH, 3), np.uint8)
    for i in range(count):
        frames[i] = [60 * video + 30, min(10 * i, 250), 128]
    return frames


def encode(frames: np.ndarray, container: str = "mp4", rate: float = RATE, **options: object) -> np.ndarray:
    tensor = torch.from_numpy(frames).permute(0, 3, 1, 2).contiguous()
    return encoders().VideoEncoder(tensor, frame_rate=rate).to_tensor(container, **options).numpy()


def identity(frames: np.ndarray) -> list[str]:
    """Decode video and frame of each: ``a3``; ``-`` for black."""
    results = []
    for frame in frames.astype(np.float64):
        video, number = (frame[..., 0].mean() - 30) / 60, frame[..., 1].mean() / 10
        results.append("-" if frame.max() < 4 else f"{'abcdef'[round(video)]}{round(number)}")
    return results


def write(folder: Path, container: str = "mp4", counts: tuple[int, ...] = (20, 7, 25)) -> list[Path]:
    """x/a, x/b and y/c."""
    paths = []
    for k, count in enumerate(counts):
        path = folder / ("x" if k < 2 else "y") / f"{'abcdef'[k]}.{container}"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(encode(frames_of(count, k), container).tobytes())
        paths.append(path)
    return paths
