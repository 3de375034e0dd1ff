# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case, Each, arrays

import torch_ndd as ndd

SPECTRA = arrays((30, 50), "float32", axes=[0, 1], low=1, high=2)

CASES = [
    Case("time_mask", "widths", SPECTRA, {"time_mask_param": Each([40, 20, 50]), "num_masks": 2}),
    Case("time_mask", "mean, time first", SPECTRA, {"time_mask_param": 25, "mask_value": "mean", "p": Each([1.0, 0.9, 0.8])}, layout="tf"),
    Case("frequency_mask", "widths", SPECTRA, {"freq_mask_param": Each([28, 20, 10]), "num_masks": 3, "mask_value": -1.0}),
    Case("frequency_mask", "uint8, channels", arrays((20, 9, 2), axes=[0]), {"freq_mask_param": 20, "p": Each([1.0, 0.9, 0.8])}, layout="ftc"),
]


def draw_samples(count: int, operator: Any = ndd.time_mask, extent: int = 60, **args: Any) -> np.ndarray:
    """Return which elements of the axis are masked, for many samples."""
    name = "time_mask_param" if operator is ndd.time_mask else "freq_mask_param"
    shape = (count, 2, extent) if operator is ndd.time_mask else (count, extent, 2)
    output = operator(ndd.batch(np.ones(shape, np.float32)), **{name: 20, **args}, rng=ndd.random.RNG(seed=5)).torch().numpy()
    rows = np.moveaxis(output, 2 if operator is ndd.time_mask else 1, 1)
    assert (rows[..., 0] == rows[..., 1]).all()
    return rows[..., 0] == 0


@pytest.mark.parametrize("operator", [ndd.time_mask, ndd.frequency_mask])
def test_one_mask_is_one_stretch_of_a_uniform_width_and_place(operator: Any) -> None:
    masked = draw_samples(4000, operator)
    edges = np.abs(np.diff(np.pad(masked, ((0, 0), (1, 1))).astype(int), axis=1)).sum(1)
    assert set(edges) == {0, 2}  # nothing, or one span
    widths = masked.sum(1)
    counts = np.bincount(widths, minlength=20)
    assert len(counts) == 20
    assert np.abs(counts - 200).max() < 5 * np.sqrt(200)  # five standard deviations
    begins = masked[widths == 10].argmax(1)
    assert (begins.min(), begins.max()) == (0, 50) or len(set(begins)) > 40
    assert abs(begins.mean() - 24.6) < 4


def test_mask_wider_than_the_axis_is_limited() -> None:
    masked = draw_samples(1000, extent=6, time_mask_param=1000)
    assert set(masked.sum(1)) == set(range(6))


def test_probability_and_number_of_masks() -> None:
    assert not draw_samples(100, p=0.0).any()
    assert not draw_samples(100, num_masks=0).any()
    assert abs((draw_samples(4000, p=0.5).any(1)).mean() - 0.475) < 0.05
    assert draw_samples(2000, num_masks=5).mean() > 2 * draw_samples(2000).mean()


def test_mean_is_that_of_the_sample() -> None:
    values = np.random.default_rng(0).uniform(0, 1, (5, 8, 40)).astype(np.float32)
    output = ndd.time_mask(ndd.batch(values), time_mask_param=40, num_masks=3, mask_value="mean", rng=ndd.random.RNG(seed=1)).torch().numpy()
    changed = output != values
    assert changed.any()
    for i in range(5):
        np.testing.assert_allclose(output[i][changed[i]], values[i].mean(dtype=np.float64), rtol=1e-6)


def test_a_sample_does_not_depend_on_the_batch() -> None:
    values = torch.ones(6, 10, 30)
    single, three = (ndd.frequency_mask(ndd.batch(values[:n]), freq_mask_param=8, rng=ndd.random.RNG(seed=3)).torch() for n in (1, 6))
    assert torch.equal(single[0], three[0])


@pytest.mark.parametrize(
    ("error", "word", "call"),
    [
        (TypeError, "time_mask_param", lambda: ndd.time_mask(torch.zeros(3, 4), **{})),
        (ValueError, "negative", lambda: ndd.time_mask(torch.zeros(3, 4), time_mask_param=-1).torch()),
        (ValueError, "p must", lambda: ndd.frequency_mask(torch.zeros(3, 4), freq_mask_param=1, p=1.5).torch()),
        (ValueError, "num_masks", lambda: ndd.time_mask(torch.zeros(3, 4), time_mask_param=1, num_masks=65)),
        (ValueError, "mask_value", lambda: ndd.time_mask(torch.zeros(3, 4), time_mask_param=1, mask_value="median")),
        (RuntimeError, '"t"', lambda: ndd.time_mask(ndd.tensor(torch.zeros(3, 4), layout="HW"), time_mask_param=1)),
        (RuntimeError, '"f"', lambda: ndd.frequency_mask(ndd.tensor(torch.zeros(3, 4), layout="HW"), freq_mask_param=1)),
    ],
)
def test_bad_arguments_are_rejected(error: type[Exception], word: str, call: Any) -> None:
    with pytest.raises(error, match=word):
        call()
