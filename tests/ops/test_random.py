# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _cases import Case, Each, images

import torch_ndd as ndd
from torch_ndd import _native
from torch_ndd.random import RNG, coin_flip, uniform

CASES = [
    Case("random.uniform", "range", args={"range": Each([[0.0, 1.0], [5.0, 6.0], [-2.0, 0.0]]), "shape": [4, 5]}, ragged=False),
    Case("random.uniform", "shape", args={"shape": Each([[4, 5], [2, 3], [1, 7]]), "dtype": "f64"}, ragged=False),
    Case("random.uniform", "values", args={"values": [1.0, 5.0], "shape": 9}, ragged=False),
    Case("random.uniform", "like", images("HWC"), {"range": [0, 300], "dtype": "u8"}, "HWC", out_layout=None),
    Case("random.coin_flip", "probability", args={"probability": Each([0.1, 0.5, 0.9]), "shape": [7]}, ragged=False),
    Case("random.coin_flip", "shape", args={"shape": Each([[4, 5], [2, 3], [1, 7]]), "dtype": "bool"}, ragged=False),
    Case("random.coin_flip", "like", images("HWC"), {}, "HWC", out_layout=None),
]
both = pytest.mark.parametrize("function", [uniform, coin_flip])


def array(value: Any) -> np.ndarray:
    return np.asarray(value)


@both
def test_a_sample_depends_on_its_number_only(function: Callable[..., Any]) -> None:
    long = function(shape=[5000], batch_size=4, rng=RNG(3))
    short = function(shape=[7], batch_size=2, rng=RNG(3))
    for i in range(2):
        np.testing.assert_array_equal(array(long.tensors[i])[:7], array(short.tensors[i]))
    np.testing.assert_array_equal(array(function(shape=[7], rng=RNG(3))), array(short.tensors[0]))
    assert not np.array_equal(array(long.tensors[0]), array(long.tensors[1]))


@both
def test_a_call_draws_seven_words(function: Callable[..., Any]) -> None:
    rng, other = RNG(5), RNG(5)
    function(shape=[100], batch_size=3, rng=rng)
    other.advance(7)
    assert str(rng.state) == str(other.state)


def test_the_stream_of_a_sample() -> None:
    """Key: words 0 and 1; counter: block, words 2 and 3, sample. On every instruction set."""
    a, b, c, d, *_ = RNG(5).draw(7).tolist()
    sample, blocks = 2, 250
    words = np.empty(4 * blocks, np.int64)
    for k in range(blocks):
        _native.philox(a | b << 32, d | sample << 32, k | c << 32, 0, 4, words.ctypes.data + 32 * k)
    made = array(uniform(range=[0, 1], shape=[4 * blocks], batch_size=3, rng=RNG(5)).tensors[sample])
    np.testing.assert_array_equal(made, (words >> 8).astype(np.float32) * np.float32(2**-24))


def test_default_generator_is_reproducible() -> None:
    ndd.random.set_seed(17)
    first = array(uniform(shape=[9]))
    ndd.random.set_seed(17)
    np.testing.assert_array_equal(first, array(uniform(shape=[9])))
    assert not np.array_equal(first, array(uniform(shape=[9])))


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_uniform_is_uniform(dtype: str) -> None:
    values = array(uniform(range=[-3, 5], shape=[200_000], dtype=dtype, rng=RNG(1))).astype(np.float64)
    assert values.min() >= -3
    assert values.max() < 5 or dtype == "f16"  # which rounds 4.999 to 5
    counts = np.histogram(values, 16, (-3, 5))[0]
    assert ((counts - 12_500) ** 2 / 12_500).sum() < 45  # chi-squared, 15 degrees: 1 in 10000


def test_uniform_never_reaches_its_end() -> None:
    values = array(uniform(range=[1e8, 1e8 + 16], shape=[100_000], rng=RNG(1)))
    assert set(values.tolist()) == {1e8, 1e8 + 8}


def test_uniform_integers_are_rounded_and_saturated() -> None:
    numbers, counts = np.unique(array(uniform(range=[0, 3], shape=[60_000], dtype="i32", rng=RNG(1))), return_counts=True)
    assert numbers.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(counts / 10_000, [1, 2, 2, 1], atol=0.1)
    values = array(uniform(range=[-100, 400], shape=[1000], dtype="u8", rng=RNG(1)))
    assert values.min() == 0
    assert values.max() == 255


def test_uniform_chooses_values() -> None:
    numbers, counts = np.unique(array(uniform(values=[1, 2.5, 7], shape=[60_000], rng=RNG(1))), return_counts=True)
    assert numbers.tolist() == [1, 2.5, 7]
    np.testing.assert_allclose(counts / 20_000, [1, 1, 1], atol=0.05)
    batch = uniform(values=ndd.batch([[1.0, 2.0, 3.0], [4.0, 5.0]]), shape=[6000], rng=RNG(1))
    for sample, count in zip(batch.tensors, (2000, 3000), strict=True):
        np.testing.assert_allclose(np.unique(array(sample), return_counts=True)[1] / count, 1, atol=0.1)


@pytest.mark.parametrize("probability", [0.0, 0.2, 1.0])
def test_coin_flip_has_its_probability(probability: float) -> None:
    flips = array(coin_flip(probability=probability, shape=[100_000], rng=RNG(1)))
    assert flips.dtype == np.int32
    assert flips.mean() == pytest.approx(probability, abs=0.005 if 0 < probability < 1 else 0)


@pytest.mark.parametrize(
    ("function", "args", "kind"),
    [
        (uniform, {"range": [3, 0]}, RuntimeError),
        (uniform, {"range": [3, 3]}, RuntimeError),
        (uniform, {"range": [float("nan"), 1]}, RuntimeError),
        (uniform, {"range": [1, 2, 3]}, RuntimeError),
        (uniform, {"shape": [-1]}, RuntimeError),
        (uniform, {"shape": [[1, 2]]}, RuntimeError),
        (uniform, {"seed": 3}, TypeError),
        (uniform, {"rng": 5}, ValueError),
        (coin_flip, {"probability": 1.5}, RuntimeError),
        (coin_flip, {"probability": [0.1, 0.2]}, ValueError),
    ],
)
def test_wrong_arguments(function: Callable[..., Any], args: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        function(**args).evaluate()


def test_shape_and_shape_like_exclude_each_other() -> None:
    with pytest.raises(RuntimeError, match="shape"):
        uniform(np.zeros((2, 3)), shape=[3])
