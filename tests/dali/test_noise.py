# SPDX-License-Identifier: Apache-2.0
"""Noise compared with DALI's: equal where nothing is random, otherwise of the same distribution. known_differences.md lists what the cases avoid."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _dali import assert_alike, assert_same, dali, farthest, ndd
from _raises import Raises, raising

Program = Callable[[Any], Any]
DTYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32"]


def full(m: Any, value: float, dtype: str = "uint8", shape: tuple[int, ...] = (2, 3), layout: str | None = None) -> Any:
    return m.tensor(np.full(shape, value).astype(dtype), layout=layout)


def make_ragged(m: Any, dtype: str = "uint8") -> Any:
    return m.batch([np.full((2, 3), 100).astype(dtype), np.full((4, 1), 7).astype(dtype)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mean", [0.0, 0.5, 3.5, 13.49, -5.4, 200.0, -200.0])
def test_mean_without_noise(dtype: str, mean: float) -> None:
    assert_same(lambda m: m.noise.gaussian(full(m, 100, dtype), mean=mean, stddev=0))
    assert_same(lambda m: m.noise.gaussian(make_ragged(m, dtype), mean=mean, stddev=0))


@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.noise.gaussian(m.batch([[1, 2], [3]]), mean=m.batch([10.0, 20.0]), stddev=m.batch([0.0, 0.0])),
        lambda m: m.noise.gaussian(full(m, 3, shape=(2, 3, 3), layout="HWC"), stddev=0),
        lambda m: m.noise.gaussian(np.uint8(3), stddev=0),
        lambda m: m.noise.gaussian([1, 2, 3], stddev=0),
        lambda m: m.noise.gaussian(np.zeros((0, 3), np.uint8)),
        lambda m: m.noise.gaussian(full(m, 2**24 + 1, "int32"), stddev=0),
        lambda m: m.noise.gaussian(full(m, 100), stddev=float("nan")),
        lambda m: m.noise.gaussian(full(m, 100, "float32"), mean=float("nan"), stddev=0),
        lambda m: m.noise.gaussian(full(m, 100), batch_size=3, stddev=0),
        lambda m: m.noise.gaussian(m.per_frame(m.tensor(np.zeros((2, 2), np.uint8))), mean=1, stddev=0),
        raising(TypeError, lambda m: m.noise.gaussian()),
        raising(TypeError, lambda m: m.noise.gaussian(full(m, 100), seed=3)),
        raising(ValueError, lambda m: m.noise.gaussian(full(m, 100), mean="a")),
        lambda m: m.noise.shot(full(m, -100, "int16")),
        lambda m: m.noise.shot(full(m, -100.5, "float32")),
        lambda m: m.noise.shot(full(m, 0, "float32")),
        lambda m: m.noise.shot(full(m, float("nan"), "float32")),
        lambda m: m.noise.shot(full(m, 100), factor=1e9),
        raising(TypeError, lambda m: m.noise.shot()),
        lambda m: m.noise.salt_and_pepper(full(m, 100), prob=0),
        lambda m: m.noise.salt_and_pepper(full(m, 100), prob=1, salt_vs_pepper=1),
        lambda m: m.noise.salt_and_pepper(full(m, 100), prob=1, salt_vs_pepper=0),
        lambda m: m.noise.salt_and_pepper(full(m, 100), prob=1, salt_vs_pepper=1, salt_val=30),
        lambda m: m.noise.salt_and_pepper(full(m, 100, "float32"), prob=1, salt_vs_pepper=0, pepper_val=2.5),
        lambda m: m.noise.salt_and_pepper(m.batch([[1, 2], [3]]), prob=m.batch([0.0, 1.0]), salt_val=m.batch([10.0, 20.0]), salt_vs_pepper=1),
        lambda m: m.noise.salt_and_pepper(m.batch([[1, 2], [3]]), prob=1, pepper_val=m.batch([10.0, 20.0]), salt_vs_pepper=m.batch([0.0, 0.0])),
        raising(RuntimeError, lambda m: m.noise.salt_and_pepper(full(m, 100), prob=1.5)),
        raising(RuntimeError, lambda m: m.noise.salt_and_pepper(full(m, 100), prob=-0.5)),
        raising(RuntimeError, lambda m: m.noise.salt_and_pepper(full(m, 100), prob=float("nan"))),
        raising(RuntimeError, lambda m: m.noise.salt_and_pepper(full(m, 100), salt_vs_pepper=1.5)),
        raising(TypeError, lambda m: m.noise.salt_and_pepper(full(m, 100), per_channel=m.tensor(True))),
        lambda m: m.noise.salt_and_pepper(np.zeros((0, 3), np.uint8)),
        raising(TypeError, lambda m: m.noise.salt_and_pepper()),
    ],
)
def test_nothing_left_to_chance(program: Program, raises: Raises | None) -> None:
    assert_same(program, raises=raises)


@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_values(dtype: str) -> None:
    for salt in (0, 1):
        assert_same(lambda m, salt=salt: m.noise.salt_and_pepper(full(m, 100, dtype), prob=1, salt_vs_pepper=salt))


@pytest.mark.parametrize("name", ["gaussian", "salt_and_pepper", "shot"])
@pytest.mark.parametrize(
    "program",
    [
        lambda f, m: f(full(m, 100)),
        lambda f, m: f(full(m, 100, shape=(2, 4, 3), layout="HWC")),
        lambda f, m: f(full(m, 100, shape=(3, 2, 4), layout="CHW")),
        lambda f, m: f(make_ragged(m)),
        lambda f, m: f(make_ragged(m, "float32"), batch_size=2),
        lambda f, m: f(full(m, 100), batch_size=3),
        raising(ValueError, lambda f, m: f(full(m, 100), rng=object())),
        raising(TypeError, lambda f, m: f(full(m, 100), nonsense=1)),
        raising(ValueError, lambda f, m: f(full(m, 100), device="nowhere")),
        raising(TypeError, lambda f, m: f(None)),
    ],
)
def test_shapes_types_and_errors(name: str, program: Callable[[Any, Any], Any], raises: Raises | None) -> None:
    assert_alike(lambda m: program(getattr(m.noise, name), m), raises=raises)


COUNT = 60_000


@pytest.mark.parametrize(
    ("name", "value", "dtype", "args"),
    [
        ("gaussian", 100, "uint8", {"mean": 0.3, "stddev": 0.4}),
        ("gaussian", 100, "uint8", {"mean": -90, "stddev": 40}),
        ("gaussian", 100, "int32", {"stddev": 1000}),
        ("gaussian", 0.5, "float32", {"mean": 2, "stddev": -3}),
        ("shot", 100, "uint8", {"factor": 20}),
        ("shot", 10, "uint8", {"factor": 2.5}),
        ("shot", 100, "float32", {"factor": 20}),
        ("shot", 3, "float32", {"factor": 20}),
        ("shot", 40, "float32", {"factor": 1}),
        ("shot", 1000, "float32", {"factor": 1}),
        ("shot", 1e9, "float32", {"factor": 1}),
        ("shot", 0.5, "float32", {"factor": 0.001}),
        ("salt_and_pepper", 100, "uint8", {}),
        ("salt_and_pepper", 100, "uint8", {"prob": 0.4, "salt_vs_pepper": 0.2}),
        ("salt_and_pepper", 100, "float32", {"prob": 0.4, "salt_val": 30.5, "pepper_val": 2.5}),
        ("salt_and_pepper", 100, "int8", {"prob": 0.7, "per_channel": True}),
    ],
)
def test_distributions_equal_dali(name: str, value: float, dtype: str, args: dict[str, Any]) -> None:
    ours, theirs = (
        np.asarray(getattr(m.noise, name)(full(m, value, dtype, (COUNT, 1)), rng=m.random.RNG(seed=3), **args)).reshape(-1).astype(np.float64)
        for m in (ndd, dali)
    )
    assert farthest(ours, theirs) < 1.95 * (2 / COUNT) ** 0.5  # exceeded once in a thousand seeds


@pytest.mark.parametrize(
    ("layout", "shape"),
    [("HWC", (60, 50, 3)), ("CHW", (3, 60, 50)), (None, (60, 50, 3)), (None, (60, 3)), ("DHWC", (3, 60, 50, 2)), ("CW", (4, 50))],
)
@pytest.mark.parametrize("per_channel", [False, True])
def test_which_elements_go_together(layout: str | None, shape: tuple[int, ...], per_channel: bool) -> None:
    def together(m: Any) -> list[bool]:
        result = np.asarray(m.noise.salt_and_pepper(full(m, 100, "uint8", shape, layout), prob=0.5, per_channel=per_channel))
        return [bool((result == np.take(result, [0], axis)).all()) for axis in range(result.ndim)]

    assert together(ndd) == together(dali)
