# SPDX-License-Identifier: Apache-2.0
"""gaussian_blur against DALI's. uint8 is computed in fixed point: one level off where the exact value lies at a half."""

import numpy as np
import pytest

dali = pytest.importorskip("nvidia.dali.experimental.dynamic")

import torch_ndd as ndd  # noqa: E402


def data(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, shape).astype(dtype) if dtype == "uint8" else generator.uniform(-3000, 3000, shape).astype(dtype)


def assert_blurs_alike(values: np.ndarray, layout: str, dtype: str | None = None, **options: object) -> None:
    ours, theirs = (
        np.asarray(
            module.gaussian_blur(
                module.tensor(values, layout=layout), **({} if dtype is None else {"dtype": getattr(module, dtype)}), **options
            ).evaluate()
        )
        for module in (ndd, dali)
    )
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    difference = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    if np.issubdtype(ours.dtype, np.integer):
        assert difference.max(initial=0) <= 1
        assert (difference > 0).mean() < 0.1
    else:
        assert difference.max(initial=0) <= (2 if ours.dtype == np.float16 else 2e-3)


@pytest.mark.parametrize(
    ("source", "target"),
    [("uint8", None), ("uint8", "float32"), ("int16", None), ("uint16", None), ("int32", None), ("float32", None), ("float16", None)],
)
@pytest.mark.parametrize(
    "options", [{"sigma": 1.5}, {"sigma": 0.2}, {"sigma": 11.0}, {"window_size": 7}, {"window_size": 1}, {"sigma": 5.0, "window_size": 3}]
)
def test_dtypes(source: str, target: str | None, options: dict[str, object]) -> None:
    values = np.abs(data((23, 31, 3), source)) if source == "uint16" else data((23, 31, 3), source)
    assert_blurs_alike(values, "HWC", target, **options)


@pytest.mark.parametrize(
    ("layout", "axes"),
    [("HWC", 2), ("CHW", 2), ("HW", 2), ("FHWC", 2), ("FCHW", 2), ("CFHW", 2), ("DHWC", 3), ("CDHW", 3), ("FDHWC", 3), ("FCDHW", 3), ("CW", 1)],
)
def test_layouts_and_per_axis_sigma(layout: str, axes: int) -> None:
    shape = tuple({"F": 2, "C": 3, "D": 4, "H": 13, "W": 10}[letter] for letter in layout)
    for dtype in ("uint8", "float32"):
        assert_blurs_alike(data(shape, dtype), layout, sigma=[0.7, 2.0, 1.2][:axes])
        assert_blurs_alike(data(shape, dtype), layout, sigma=[0.0, 2.0, 1.2][:axes], window_size=[3, 5, 0][:axes])


@pytest.mark.parametrize("shape", [(1, 9, 3), (9, 1, 3), (1, 1, 1), (2, 2, 4)])
def test_window_larger_than_the_image(shape: tuple[int, ...]) -> None:
    for dtype in ("uint8", "float32"):
        assert_blurs_alike(data(shape, dtype), "HWC", window_size=51)


def test_per_sample_and_per_frame() -> None:
    images = [data((10 + 3 * i, 20 - i, 3), "uint8") for i in range(3)]
    for sigma in ([np.float32(s) for s in (0.5, 1.5, 3.0)], [np.float32(s) for s in ([0.5, 2], [1.5, 1], [3, 0.8])]):
        ours, theirs = (
            [np.asarray(t) for t in module.gaussian_blur(module.batch(images, layout="HWC"), sigma=module.batch(sigma)).evaluate().tensors]
            for module in (ndd, dali)
        )
        assert all(np.abs(a.astype(int) - b).max() <= 1 for a, b in zip(ours, theirs, strict=True))
    video = data((3, 12, 15, 3), "uint8")
    for frames in ([1.0, 2.0, 3.0], [[1.0, 0.5], [2.0, 1.0], [0.4, 3.0]]):
        ours, theirs = (
            np.asarray(module.gaussian_blur(module.tensor(video, layout="FHWC"), sigma=module.per_frame(frames)).evaluate()).astype(int)
            for module in (ndd, dali)
        )
        assert np.abs(ours - theirs).max() <= 1
