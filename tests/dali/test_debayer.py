# SPDX-License-Identifier: Apache-2.0
"""debayer against DALI's, which on the CPU is OpenCV's."""

import numpy as np
import pytest
from _dali import dali

import torch_ndd as ndd


def mosaic(*shape: int, dtype: str = "uint8", seed: int = 0) -> np.ndarray:
    """Noise on waves: some directions are smoother than others."""
    y, x = np.indices(shape)[-2:]
    waves = 0.5 + 0.3 * np.sin(x / 5 + seed) * np.cos(y / 7) + np.random.default_rng(seed).normal(0, 0.05, shape)
    return (np.clip(waves, 0, 1) * np.iinfo(dtype).max).astype(dtype)


@pytest.mark.parametrize("position", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("layout", ["HW", "HWC", "FHW", "FHWC"])
@pytest.mark.parametrize(
    ("algorithm", "dtype"),
    [
        (None, "uint8"),
        ("bilinear_ocv", "uint16"),
        ("edgeaware_ocv", "uint8"),
        ("edgeaware_ocv", "uint16"),
        ("gray_ocv", "uint8"),
        ("gray_ocv", "uint16"),
        ("vng_ocv", "uint8"),
    ],
)
def test_every_pattern_and_algorithm(algorithm: str | None, dtype: str, layout: str, position: tuple[int, int]) -> None:
    """Equal; VNG up to one level in one of 500 values, where OpenCV's vector code rounds differently."""
    samples = [mosaic(*([2] * layout.startswith("F")), 30 + 2 * i, 44 - 4 * i, dtype=dtype, seed=i) for i in range(3)]
    samples = [sample[..., None] if layout.endswith("C") else sample for sample in samples]
    args = {} if algorithm is None else {"algorithm": algorithm}
    ours, theirs = (module.debayer(module.batch(samples, layout=layout), blue_position=list(position), **args).evaluate() for module in (ndd, dali))
    assert ours.layout == theirs.layout
    for item, other in zip(ours.tensors, theirs.tensors, strict=True):
        item, other = np.asarray(item), np.asarray(other)
        assert (item.shape, item.dtype) == (other.shape, other.dtype)
        difference = np.abs(item.astype(int) - other)
        assert difference.max() <= (algorithm == "vng_ocv")
        assert (difference > 0).mean() <= 0.002


@pytest.mark.parametrize("algorithm", ["bilinear_ocv", "edgeaware_ocv", "vng_ocv", "gray_ocv"])
@pytest.mark.parametrize("size", [(2, 2), (2, 8), (8, 2), (4, 4), (4, 20), (6, 6), (20, 6), (8, 8)])
def test_small_mosaics(size: tuple[int, int], algorithm: str) -> None:
    ours, theirs = (np.asarray(m.debayer(m.tensor(mosaic(*size)), blue_position=[0, 1], algorithm=algorithm).evaluate()) for m in (ndd, dali))
    np.testing.assert_allclose(ours, theirs, atol=1 if algorithm == "vng_ocv" else 0)


def test_positions_per_sample_and_per_frame() -> None:
    positions = np.array([[0, 1], [1, 0], [1, 1]], np.int32)
    images = [mosaic(20 + 2 * i, 24, seed=i) for i in range(3)]
    videos = [mosaic(3, 20 + 2 * i, 24, seed=i) for i in range(2)]
    for run in (
        lambda m: m.debayer(m.batch(images, layout="HW"), blue_position=m.batch(list(positions))),
        lambda m: m.debayer(m.batch(videos, layout="FHW"), blue_position=m.per_frame(positions)),
    ):
        for sample, other in zip(run(ndd).evaluate().tensors, run(dali).evaluate().tensors, strict=True):
            np.testing.assert_array_equal(np.asarray(sample), np.asarray(other))


@pytest.mark.parametrize("args", [{"blue_position": [2, 0]}, {"blue_position": [0]}, {"blue_position": [0, 0], "algorithm": "nonsense"}])
def test_wrong_arguments(args: dict[str, object]) -> None:
    for module in (ndd, dali):
        with pytest.raises(RuntimeError, match=r"."):
            module.debayer(module.tensor(mosaic(8, 8)), **args).evaluate()
    for module in (ndd, dali):
        with pytest.raises(RuntimeError, match=r"."):
            module.debayer(module.tensor(mosaic(7, 8)), blue_position=[0, 0]).evaluate()
