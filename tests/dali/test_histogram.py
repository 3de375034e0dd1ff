# SPDX-License-Identifier: Apache-2.0
"""equalize and clahe against DALI's, which on the CPU are OpenCV's."""

import numpy as np
import pytest
from _dali import dali

import torch_ndd as ndd


def photo(*shape: int, seed: int = 0) -> np.ndarray:
    """Noise on a gradient: neighboring pixels are alike, most levels occur."""
    generator = np.random.default_rng(seed)
    noise = generator.normal(0, 20, shape) + np.linspace(30, 190, shape[-2])[:, None] + generator.uniform(-20, 20, shape[-1])
    return np.clip(noise, 0, 255).astype(np.uint8)


@pytest.mark.parametrize("layout", ["HW", "HWC", "CHW", "FHW", "FHWC", "FCHW", None])
@pytest.mark.parametrize("channels", [1, 2, 3, 17])
def test_equalize_of_every_layout(layout: str | None, channels: int) -> None:
    samples = [photo(*({"F": 2, "H": 30 + i, "W": 41 - i, "C": channels}[letter] for letter in layout or "HWC"), seed=i) for i in range(3)]
    ours, theirs = (module.equalize(module.batch(samples, layout=layout)).evaluate() for module in (ndd, dali))
    for sample, other in zip(ours.tensors, theirs.tensors, strict=True):
        np.testing.assert_array_equal(np.asarray(sample), np.asarray(other))
    assert layout is None or ours.layout == theirs.layout


def test_equalize_few_levels() -> None:
    for image in ([[7, 7]], [[7, 9]], [[7, 9, 9, 200]], [[0, 255]], [[255, 254]]):
        array = np.array(image, np.uint8)
        np.testing.assert_array_equal(*(np.asarray(module.equalize(module.tensor(array)).evaluate()) for module in (ndd, dali)))


@pytest.mark.parametrize("tiles", [(8, 8), (3, 5), (1, 1), (7, 90), (70, 2)])
@pytest.mark.parametrize("clip_limit", [-1.0, 0.0, 0.001, 2.0, 7.5, 1e4])
@pytest.mark.parametrize("size", [(64, 80), (61, 83), (64, 83), (5, 7)])
def test_clahe_of_one_channel(size: tuple[int, int], clip_limit: float, tiles: tuple[int, int]) -> None:
    samples = [photo(1, *size, seed=i)[0, ..., None] for i in range(2)]
    args = {"tiles_y": tiles[0], "tiles_x": tiles[1], "clip_limit": clip_limit}
    ours, theirs = (module.clahe(module.batch(samples, layout="HWC"), **args).evaluate() for module in (ndd, dali))
    assert ours.layout == theirs.layout
    for sample, other in zip(ours.tensors, theirs.tensors, strict=True):
        np.testing.assert_array_equal(np.asarray(sample), np.asarray(other))


@pytest.mark.parametrize("luma_only", [True, False])
@pytest.mark.parametrize("clip_limit", [0.0, 2.0, 7.5])
def test_clahe_of_colors(clip_limit: float, luma_only: bool) -> None:
    """Channels are equal; L*a*b*, converted back in OpenCV's integers, differs by 0.1 level on average, by up to 2, and by up to 4 where the
    result is outside RGB and is clamped."""
    samples = [np.ascontiguousarray(np.moveaxis(photo(3, 64 + i, 83, seed=i), 0, -1)) for i in range(3)]
    samples.append(np.random.default_rng(0).integers(0, 256, (60, 70, 3)).astype(np.uint8))
    args = {"tiles_y": 4, "tiles_x": 5, "clip_limit": clip_limit, "luma_only": luma_only, "bins": 256}
    ours, theirs = (module.clahe(module.batch(samples, layout="HWC"), **args).evaluate() for module in (ndd, dali))
    for sample, other in zip(ours.tensors, theirs.tensors, strict=True):
        difference = np.abs(np.asarray(sample).astype(int) - np.asarray(other))
        assert difference.max() <= (4 if luma_only else 0)
        assert (difference > 2).mean() <= (1e-3 if luma_only else 0)
        assert difference.mean() <= (0.1 if luma_only else 0)


def test_wrong_inputs() -> None:
    image = np.zeros((16, 16, 3), np.uint8)
    args = {"tiles_x": 2, "tiles_y": 2, "clip_limit": 1.0}
    for module in (ndd, dali):
        with pytest.raises(RuntimeError):
            module.equalize(module.tensor(image.astype(np.float32))).evaluate()
        with pytest.raises(ValueError, match=r"."):
            module.clahe(module.tensor(image.astype(np.float32)), **args).evaluate()
        with pytest.raises(ValueError, match=r"."):
            module.clahe(module.tensor(image[..., :2].copy()), **args).evaluate()
        with pytest.raises(ValueError, match=r"."):
            module.clahe(module.tensor(image, layout="CHW"), **args).evaluate()
        with pytest.raises(TypeError):
            module.clahe(module.tensor(image)).evaluate()
