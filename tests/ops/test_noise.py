# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
from _cases import Case, Each, images
from scipy import stats

import torch_ndd as ndd
from torch_ndd import EvalMode, noise
from torch_ndd.random import RNG

CASES = [
    Case("noise.gaussian", "uint8", images("HWC"), {"mean": Each([0.0, 10.0, -20.0]), "stddev": Each([1.0, 20.0, 5.0])}, "HWC"),
    Case("noise.gaussian", "float32", images("FHWC", "float32"), {"stddev": 3.0}, "FHWC"),
    Case("noise.gaussian", "int32", images("HWC", "int32"), {"stddev": 3.0}, "HWC"),
    Case("noise.shot", "uint8", images("HWC"), {"factor": Each([20.0, 0.5, 0.0])}, "HWC"),
    Case("noise.shot", "float32", images("CHW", "float32"), {"factor": 1.5}, "CHW"),
    Case("noise.salt_and_pepper", "uint8", images("HWC"), {"prob": Each([0.05, 0.5, 1.0]), "salt_vs_pepper": Each([0.5, 0.1, 0.9])}, "HWC"),
    Case("noise.salt_and_pepper", "values", images("HWC"), {"salt_val": Each([9.0, 8.0, 7.0]), "pepper_val": Each([1.0, 2.0, 3.0])}, "HWC"),
    Case("noise.salt_and_pepper", "planes", images("FCHW", "float32"), {"prob": 0.3}, "FCHW"),
    Case("noise.salt_and_pepper", "per_channel", images("HWC", "int16"), {"prob": 0.3, "per_channel": True}, "HWC"),
]
DTYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"]


def array(value: Any) -> np.ndarray:
    return np.asarray(value)


def test_a_sample_depends_on_its_number_only() -> None:
    for function in (noise.gaussian, noise.shot, noise.salt_and_pepper):
        long = function(np.full((5000, 1), 90, np.float32), batch_size=4, rng=RNG(3))
        short = function(np.full((701, 1), 90, np.float32), batch_size=2, rng=RNG(3))
        np.testing.assert_array_equal(array(long.tensors[1])[:701], array(short.tensors[1]))
        assert not np.array_equal(array(long.tensors[0]), array(long.tensors[1]))
        rng, other = RNG(5), RNG(5)
        function(np.zeros((4, 4, 3)), rng=rng)
        other.advance(7)
        assert str(rng.state) == str(other.state)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gaussian_is_the_input_and_normal_noise(dtype: str) -> None:
    image = np.full(200_000, 100).astype(dtype)
    added = array(noise.gaussian(image, mean=2.0, stddev=4.0, rng=RNG(1))).astype(np.float64) - 100
    rounding = 1 / 12 if dtype[0] in "iu" else 0
    assert added.mean() == pytest.approx(2, abs=0.05)
    assert added.var() == pytest.approx(16 + rounding, rel=0.02)
    if dtype in ("float32", "float64"):
        assert stats.kstest(added, stats.norm(2, 4).cdf).pvalue > 1e-5
        drawn = array(ndd.random.normal(mean=2.0, stddev=4.0, shape=[200_000], rng=RNG(1)))
        np.testing.assert_allclose(added, drawn, atol=2e-5)


def test_gaussian_rounds_and_saturates_exactly() -> None:
    for value, mean, expected in (
        (np.uint8([250, 3, 100]), 13.5, [255, 17, 114]),
        (np.uint8([250, 3, 100]), -13.5, [237, 0, 87]),
        (np.int64([2**40 + 1, -5]), 0.0, [2**40 + 1, -5]),
        (np.int32([16777217, 3]), 0.5, [16777218, 4]),
        (np.float64([2**40 + 1, 3.5]), 1.0, [2**40 + 2, 4.5]),
        (np.array([True, False]), 0.0, [True, False]),
    ):
        assert array(noise.gaussian(value, mean=mean, stddev=0)).tolist() == expected
    assert array(noise.gaussian(np.uint8([100]), stddev=float("nan"))).tolist() == [0]
    assert noise.gaussian(np.zeros((0, 3), np.uint8)).evaluate().shape == (0, 3)


@pytest.mark.parametrize(
    ("value", "factor"), [(0.01, 20), (100, 20), (255, 20), (31.9, 1), (32, 1), (40, 1), (100, 1), (3000, 1), (5e5, 1), (0.5, 0.001), (7, 0)]
)
def test_shot_counts_events(value: float, factor: float) -> None:
    count = 400_000
    output = array(noise.shot(np.full(count, value, np.float32), factor=factor, rng=RNG(1))).astype(np.float64)
    if factor == 0:
        assert (output == np.float32(value)).all()
        return
    events = output / np.float32(factor)
    np.testing.assert_allclose(events, np.round(events), rtol=1e-6, atol=1e-6)
    expected = float(np.float32(value)) / float(np.float32(factor))
    numbers, counts = np.unique(np.round(events), return_counts=True)
    probability = count * stats.poisson.pmf(numbers, expected)
    common = probability > 10
    assert stats.chisquare(counts[common], probability[common] * counts[common].sum() / probability[common].sum()).pvalue > 1e-5
    assert numbers.max() < expected + 6.5 * expected**0.5 + 6
    assert output.mean() == pytest.approx(value, abs=6 * (factor * value / count) ** 0.5)


def test_shot_of_huge_numbers_negative_numbers_and_nan() -> None:
    for value in (1e9, 1e12, 1e30):
        output = array(noise.shot(np.full(1000, value, np.float64), factor=1, rng=RNG(1))).astype(np.float64)
        assert output.mean() == pytest.approx(value, rel=1e-6, abs=5 * (value / 1000) ** 0.5)
    assert array(noise.shot(np.float32([-100.5, np.nan, 0]), factor=20)).tolist() == [0, 0, 0]
    assert (array(noise.shot(np.full(100, np.inf, np.float32), factor=20)) == np.inf).all()
    np.testing.assert_array_equal(array(noise.shot(np.int64([2**53 + 1]), factor=0)), [2**53 + 1])
    mixed = np.tile(np.arange(256, dtype=np.uint8), 4000)
    output = array(noise.shot(mixed, factor=3.0, rng=RNG(1))).astype(np.float64).reshape(4000, 256)
    assert np.abs(output[:, :160].mean(0) - np.arange(160)).max() < 2.5


@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
def test_salt_and_pepper_have_the_extreme_values(dtype: str) -> None:
    image = np.ones((200, 50, 3)).astype(dtype)
    limits = (0, 1) if dtype == "bool" else (-1, 1) if dtype[0] == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    output = array(noise.salt_and_pepper(image, prob=1, rng=RNG(1)))
    assert output.dtype == image.dtype
    assert [int(x) for x in np.unique(output)] == list(limits)
    assert (output == output[..., :1]).all()


def test_salt_and_pepper_have_their_probabilities() -> None:
    image = np.full((500, 400, 3), 100, np.uint8)
    for per_channel in (False, True):
        output = array(noise.salt_and_pepper(image, prob=0.3, salt_vs_pepper=0.2, per_channel=per_channel, rng=RNG(1)))
        assert (output == 255).mean() == pytest.approx(0.06, abs=0.003)
        assert (output == 0).mean() == pytest.approx(0.24, abs=0.004)
        whole = (output == output[..., :1]).all(-1).mean()
        assert whole == 1 if not per_channel else whole < 0.6
    assert (array(noise.salt_and_pepper(image, prob=0)) == 100).all()
    assert set(np.unique(array(noise.salt_and_pepper(image, prob=1, salt_vs_pepper=1)))) == {255}
    assert set(np.unique(array(noise.salt_and_pepper(image, prob=1, salt_vs_pepper=0)))) == {0}


@pytest.mark.parametrize(
    ("layout", "shape"),
    [("HWC", (40, 30, 3)), ("CHW", (3, 40, 30)), ("FCHW", (2, 3, 40, 30)), ("DHWC", (2, 40, 30, 5)), (None, (40, 30, 4)), ("HW", (40, 30))],
)
def test_channels_of_a_pixel_go_together(layout: str | None, shape: tuple[int, ...]) -> None:
    image = np.arange(np.prod(shape), dtype=np.int32).reshape(shape) + 10
    output = array(noise.salt_and_pepper(ndd.tensor(image, layout=layout), prob=0.5, salt_val=1, pepper_val=2, rng=RNG(1)))
    axis = {"HW": None, None: -1}.get(layout, (layout or "").find("C"))
    hit = output != image
    assert hit.mean() == pytest.approx(0.5, abs=0.06)
    assert set(np.unique(output[hit])) == {1, 2}
    if axis is not None:
        assert (np.where(hit, output, 0) == np.take(np.where(hit, output, 0), [0], axis)).all()
        first = np.take(np.where(hit, output, 0), 0, axis).reshape(-1)
        planar = array(noise.salt_and_pepper(np.full((first.size, 1), 9, np.int32), prob=0.5, salt_val=1, pepper_val=2, rng=RNG(1))).reshape(-1)
        np.testing.assert_array_equal(first, np.where(planar == 9, 0, planar))  # pixel k uses word k in every layout


def test_salt_and_pepper_of_values_and_degenerate_images() -> None:
    output = array(noise.salt_and_pepper(np.zeros((100, 3), np.uint8), prob=1, salt_val=300, pepper_val=-20))
    assert set(np.unique(output)) == {0, 255}
    assert array(noise.salt_and_pepper(np.uint8(3), prob=1)) in (0, 255)
    for shape in ((0, 3), (3, 0), (2, 0, 3)):
        assert noise.salt_and_pepper(np.zeros(shape, np.uint8)).evaluate().shape == shape


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (noise.shot, {"factor": -1}),
        (noise.shot, {"factor": float("nan")}),
        (noise.shot, {"factor": float("inf")}),
        (noise.salt_and_pepper, {"prob": 1.5}),
        (noise.salt_and_pepper, {"prob": -0.5}),
        (noise.salt_and_pepper, {"prob": float("nan")}),
        (noise.salt_and_pepper, {"salt_vs_pepper": 1.5}),
    ],
)
def test_wrong_numbers(function: Any, args: dict[str, float]) -> None:
    with EvalMode.sync_cpu, pytest.raises(RuntimeError, match=f"{function.__name__}: {next(iter(args))} must be"):
        function(np.zeros((2, 3), np.uint8), **args)
