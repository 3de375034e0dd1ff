# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd

PLAIN = {"time_warp": 0, "freq_masks": (0, 0), "time_masks": (0, 0), "p": 1.0}


def batch_of(*lengths: int, features: int = 20, dtype: torch.dtype = torch.float32) -> tuple[list[torch.Tensor], Any]:
    generator = torch.Generator().manual_seed(0)
    samples = [torch.randn(length, features, generator=generator).to(dtype) for length in lengths]
    return samples, ndd.batch(samples)


def results(batch: Any, **options: Any) -> list[torch.Tensor]:
    return [sample.torch() for sample in ndd.augment.spec_augment(batch, rng=ndd.random.RNG(5), **options)]


def test_nothing_changes_without_masks_and_warp() -> None:
    samples, batch = batch_of(300, 7, 1)
    for before, after in zip(samples, results(batch, **PLAIN), strict=True):
        assert torch.equal(before, after)
    for before, after in zip(samples, results(batch, p=0.0), strict=True):
        assert torch.equal(before, after)


def test_masks_have_the_mean_and_are_limited_by_the_length() -> None:
    samples, batch = batch_of(400, 100, 30)
    options = {**PLAIN, "freq_masks": (2, 6), "time_masks": (10, 100), "max_time_fraction": 0.15}
    widest = 0
    for seed in range(20):
        output = ndd.augment.spec_augment(batch, rng=ndd.random.RNG(seed), **options)
        for before, after in zip(samples, (sample.torch() for sample in output), strict=True):
            changed = before != after
            np.testing.assert_allclose(after[changed], before.double().mean().float(), atol=1e-6)
            rows, columns = changed.all(1), changed.all(0)
            assert torch.equal(changed, rows[:, None] | columns[None])
            assert columns.sum() <= 10
            assert rows.sum() <= 0.15 * len(before)
            widest = max(widest, int(rows.sum()))
    assert widest > 20


def test_the_warp_resizes_both_sides_of_a_frame() -> None:
    ramps = ndd.batch([torch.arange(float(length))[:, None].repeat(1, 3) for length in (200, 161, 150)])
    warped = []
    for center in range(81, 120):
        for target in range(center - 80, center + 81):
            sides = [(torch.arange(200.0)[:center], target), (torch.arange(200.0)[center:], 200 - target)]
            resized = [torch.nn.functional.interpolate(side[None, None, :, None], (n, 1), mode="bicubic").flatten() for side, n in sides]
            warped.append(torch.cat(resized))
    expected = torch.stack(warped)
    for seed in range(10):
        first, second, third = (sample.torch() for sample in ndd.augment.spec_augment(ramps, **{**PLAIN, "time_warp": 80}, rng=ndd.random.RNG(seed)))
        assert torch.equal(second[:, 0], torch.arange(161.0))  # too short
        assert torch.equal(third[:, 0], torch.arange(150.0))
        assert (first[:, 0] - expected).abs().amax(1).min() < 1e-3


def test_a_padded_batch_equals_its_samples() -> None:
    samples, batch = batch_of(300, 250, 200)
    padded = torch.zeros(3, 300, 20)
    for row, sample in zip(padded, samples, strict=True):
        row[: len(sample)] = sample
        row[len(sample) :] = 7
    expected = results(batch, time_warp=40)
    for lengths in ([300, 250, 200], torch.tensor([300, 250, 200])):
        output = results(ndd.as_batch(padded), lengths=lengths, time_warp=40)
        for after, wanted in zip(output, expected, strict=True):
            assert torch.equal(after[: len(wanted)], wanted)
            assert (after[len(wanted) :] == 7).all()


def test_layouts_and_types() -> None:
    samples, batch = batch_of(200, 180)
    expected = results(batch, time_warp=40)
    turned = ndd.batch([sample.T.contiguous() for sample in samples], layout="ft")
    output = ndd.augment.spec_augment(turned, time_warp=40, rng=ndd.random.RNG(5))
    assert output.layout == "ft"
    for after, wanted in zip(output, expected, strict=True):
        assert torch.equal(after.torch().T, wanted)
    half = results(ndd.batch([sample.half() for sample in samples]), time_warp=40)
    assert half[0].dtype == torch.float16
    np.testing.assert_allclose(half[0], expected[0], atol=0.02)
    single = ndd.augment.spec_augment(samples[0], time_warp=40, rng=ndd.random.RNG(5))
    assert isinstance(single, ndd.Tensor)
    assert torch.equal(single.torch(), expected[0])


def test_the_probability_is_that_of_a_sample() -> None:
    batch = ndd.as_batch(torch.randn(400, 60, 8))
    options = {"time_warp": 5, "freq_masks": (1, 4), "time_masks": (2, 5), "p": 0.7}
    changed = [not torch.equal(a, b.torch()) for a, b in zip(batch.torch(), ndd.augment.spec_augment(batch, **options), strict=True)]
    assert 0.6 < np.mean(changed) < 0.8


def test_empty_samples() -> None:
    assert [tuple(sample.shape) for sample in results(ndd.batch([torch.zeros(0, 4), torch.zeros(3, 4), torch.zeros(2, 0)]))] == [
        (0, 4),
        (3, 4),
        (2, 0),
    ]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"time_warp": -1}, "time_warp must be"),
        ({"time_warp": 1.5}, "time_warp must be"),
        ({"freq_masks": (2, -1)}, "freq_masks must be"),
        ({"time_masks": 5}, "time_masks must be"),
        ({"time_masks": (1, float("inf"))}, "time_masks must be"),
        ({"time_masks": (65, 1)}, "time_masks must have a whole number of masks up to 64"),
        ({"freq_masks": (1.5, 1)}, "freq_masks must have a whole number of masks"),
        ({"p": 1.5}, "p must be from 0 to 1"),
        ({"p": "0.5"}, "p must be from 0 to 1, got '0.5'"),
        ({"max_time_fraction": float("nan")}, "max_time_fraction must be from 0 to 1"),
        ({"lengths": [1, 2, 3]}, "lengths has 3 numbers for 2 samples"),
        ({"lengths": [5, 11]}, "sample 1: lengths must be integers from 0 to its 10 frames, got 11"),
        ({"lengths": [5, -1]}, "sample 1: lengths must be"),
        ({"rng": 3}, "rng must be"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ndd.augment.spec_augment(ndd.as_batch(torch.zeros(2, 10, 4)), **options)


def test_wrong_features() -> None:
    for features in (torch.zeros(2, 3, 4, 5), torch.zeros(2, 3)):
        with pytest.raises(ValueError, match="features must have two axes"):
            ndd.augment.spec_augment(ndd.as_batch(features))
    with pytest.raises(ValueError, match="features must be floating-point"):
        ndd.augment.spec_augment(ndd.as_batch(torch.zeros(2, 3, 4, dtype=torch.int32)))
