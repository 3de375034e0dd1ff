# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _cases import Case, Each, arrays, images
from scipy import special, stats

import torch_ndd as ndd
from torch_ndd import EvalMode
from torch_ndd._core import native
from torch_ndd.random import RNG, beta, choice, coin_flip, normal, uniform

CASES = [
    Case("random.uniform", "range", args={"range": Each([[0.0, 1.0], [5.0, 6.0], [-2.0, 0.0]]), "shape": [4, 5]}, ragged=False),
    Case("random.uniform", "shape", args={"shape": Each([[4, 5], [2, 3], [1, 7]]), "dtype": "f64"}, ragged=False),
    Case("random.uniform", "values", args={"values": [1.0, 5.0], "shape": 9}, ragged=False),
    Case("random.uniform", "like", images("HWC"), {"range": [0, 300], "dtype": "u8"}, "HWC", out_layout=None),
    Case("random.coin_flip", "probability", args={"probability": Each([0.1, 0.5, 0.9]), "shape": [7]}, ragged=False),
    Case("random.coin_flip", "shape", args={"shape": Each([[4, 5], [2, 3], [1, 7]]), "dtype": "bool"}, ragged=False),
    Case("random.coin_flip", "like", images("HWC"), {}, "HWC", out_layout=None),
    Case("random.normal", "each", args={"mean": Each([0.0, 5.0, -3.0]), "stddev": Each([1.0, 0.5, 20.0]), "shape": [4, 50]}, ragged=False),
    Case("random.normal", "shape", args={"shape": Each([[4, 5], [2, 3], [1, 7]]), "dtype": "f64"}, ragged=False),
    Case("random.normal", "like", images("HWC"), {"mean": 100, "stddev": 50, "dtype": "u8"}, "HWC", out_layout=None),
    Case("random.beta", "each", args={"alpha": Each([0.3, 1.0, 5.0]), "beta": Each([0.7, 2.0, 1e6]), "shape": [300]}, ragged=False),
    Case("random.beta", "shape", args={"shape": Each([[4, 5], [2, 3], [1, 7]]), "alpha": 0.5, "dtype": "f64"}, ragged=False),
    Case("random.beta", "like", images("HWC"), {"alpha": 3.0, "dtype": "f16"}, "HWC", out_layout=None),
    Case("random.choice", "rows", arrays((5, 2, 3), axes=(0,)), {"shape": [7]}, "HWC"),
    Case("random.choice", "one row", arrays((5, 2, 3), axes=(0, 1)), {}, "HWC", out_layout="WC"),
    Case("random.choice", "numbers", arrays((), "int32", axes=(), low=5, high=90), {"shape": Each([[4], [2], [9]])}, ragged=False),
    Case("random.choice", "like", lambda ragged: (*arrays((4,), "float32")(ragged), *images("HW")(ragged)), {}, out_layout=None),
    Case("random.choice", "p", arrays((3,), axes=()), {"p": Each([[0.2, 0.3, 0.5], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]), "shape": 40}, ragged=False),
]
both = pytest.mark.parametrize("function", [uniform, coin_flip, normal, beta])


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
        native.philox(a | b << 32, d | sample << 32, k | c << 32, 0, 4, words.ctypes.data + 32 * k)
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


def words(sample: int, count: int, rng: RNG) -> np.ndarray:
    """Return the first words of a sample of the next call."""
    a, b, c, d, *_ = rng.draw(7).tolist()
    out = np.empty(-(-count // 4) * 4, np.int64)
    for block in range(len(out) // 4):
        native.philox(a | b << 32, d | sample << 32, block | c << 32, 0, 4, out.ctypes.data + 32 * block)
    return out[:count]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_normal_is_the_quantile_of_its_words(dtype: str) -> None:
    count = 4000 if dtype == "f32" else 2000
    made = array(normal(shape=[count], batch_size=3, dtype=dtype, rng=RNG(9)).tensors[2]).astype(np.float64)
    given = words(2, 4000, RNG(9))
    signed = given.astype(np.uint32).view(np.int32).astype(np.float64)
    if dtype == "f64":
        signed = signed[::2] + ((given[1::2] >> 11) + 0.5) / 2**21 - 0.5
    quantile = special.ndtri((1 - np.abs(signed + 0.5) / 2**31) / 2) * -np.sign(signed + 0.5)
    np.testing.assert_allclose(made, quantile, rtol=1e-6 if dtype == "f32" else 1e-13)


def test_beta_and_choice_have_their_streams_at_every_position() -> None:
    for function in (lambda **k: beta(alpha=0.4, **k), lambda **k: choice([1, 2, 3, 4], p=[0.1, 0.2, 0.3, 0.4], **k)):
        long, short = (array(function(shape=[n], batch_size=2, rng=RNG(3)).tensors[1]) for n in (3001, 130))
        np.testing.assert_array_equal(long[:130], short)


def agrees(values: np.ndarray, distribution: stats.rv_continuous) -> bool:
    """Kolmogorov-Smirnov test; it rejects one correct result in 100000."""
    return stats.kstest(values.astype(np.float64), distribution.cdf).pvalue > 1e-5


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("mean", "stddev"), [(0.0, 1.0), (-3.0, 0.25), (1000.0, 30.0)])
def test_normal_is_normal(mean: float, stddev: float, dtype: str) -> None:
    values = array(normal(mean=mean, stddev=stddev, shape=[400_000], dtype=dtype, rng=RNG(1)))
    assert agrees(values, stats.norm(mean, stddev))
    beyond = np.abs((values.astype(np.float64) - mean) / stddev) > 3
    assert beyond.sum() == pytest.approx(400_000 * 2 * stats.norm.sf(3), rel=0.15)
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.01


def test_normal_integers_are_rounded_and_saturated() -> None:
    numbers, counts = np.unique(array(normal(mean=0.5, stddev=2.0, shape=[200_000], dtype="i32", rng=RNG(1))), return_counts=True)
    expected = 200_000 * np.diff(np.append(stats.norm.cdf(numbers - 0.5, 0.5, 2), 1))
    common = expected > 20
    assert stats.chisquare(counts[common], expected[common] * counts[common].sum() / expected[common].sum()).pvalue > 1e-5
    values = array(normal(mean=100, stddev=100, shape=[1000], dtype="u8", rng=RNG(1)))
    assert (values.min(), values.max()) == (0, 255)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("a", "b"), [(1, 1), (2, 3), (0.4, 0.4), (0.5, 50), (7, 0.8), (300, 200), (1e6, 2e6)])
def test_beta_has_its_distribution(a: float, b: float, dtype: str) -> None:
    values = array(beta(alpha=a, beta=b, shape=[200_000], dtype=dtype, rng=RNG(1)))
    assert 0 <= values.min() <= values.max() <= 1
    assert agrees(values, stats.beta(np.float32(a), np.float32(b)))
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.012


@pytest.mark.parametrize(("a", "b"), [(0.01, 0.02), (1e-6, 1e-6), (1e-6, 3e-6), (1e-30, 1e-30)])
def test_beta_of_tiny_shapes_is_nearly_a_coin(a: float, b: float) -> None:
    values = array(beta(alpha=a, beta=b, shape=[100_000], rng=RNG(1)))
    for x in (0.001, 0.5, 0.999):
        expected = stats.beta.cdf(x, a, b) if a > 1e-20 else 0.5
        assert (values <= x).mean() == pytest.approx(expected, abs=0.008)


def test_beta_of_a_small_and_a_large_shape() -> None:
    values = array(beta(alpha=5, beta=0.1, shape=[100_000], rng=RNG(1)))
    for x in (0.5, 0.9, 0.999):
        assert (values <= x).mean() == pytest.approx(stats.beta.cdf(x, 5, 0.1), abs=0.008)
    assert np.isfinite(array(beta(alpha=3e38, beta=3e38, shape=[1000], rng=RNG(1)))).all()


@pytest.mark.parametrize("p", [None, [0.1, 0.2, 0.3, 0.0, 0.4, 0.0]])
def test_choice_has_its_probabilities(p: list[float] | None) -> None:
    elements = [5, 6, 8, 1, 2, 0]
    numbers, counts = np.unique(array(choice(elements, p=p, shape=[100_000], rng=RNG(1))), return_counts=True)
    expected = dict(zip(elements, p or [1 / 6] * 6, strict=True))
    assert set(numbers.tolist()) == {key for key, value in expected.items() if value > 0}
    assert stats.chisquare(counts, [100_000 * expected[n] for n in numbers.tolist()]).pvalue > 1e-5


def test_choice_of_numbers_and_rows() -> None:
    numbers = np.unique(array(choice(np.uint16(5), shape=[1000], rng=RNG(1))))
    assert numbers.dtype == np.uint16
    assert numbers.tolist() == [0, 1, 2, 3, 4]
    rows = np.arange(24, dtype=np.int16).reshape(4, 3, 2)
    made = choice(ndd.tensor(rows, layout="FHW"), shape=[50], rng=RNG(1))
    assert (made.shape, made.dtype, made.layout) == ((50, 3, 2), ndd.int16, "FHW")
    chosen = array(made)[:, 0, 0] // 6
    np.testing.assert_array_equal(array(made), rows[chosen])
    assert set(chosen.tolist()) == {0, 1, 2, 3}
    one = choice(ndd.tensor(rows, layout="FHW"), rng=RNG(1))
    assert (one.shape, one.layout) == ((3, 2), "HW")
    wide = array(choice(np.arange(3_000_000).reshape(1000, 3000), shape=[20], rng=RNG(1)))
    assert (wide % 3000 == np.arange(3000)).all()


@pytest.mark.parametrize("dtype", ["bool", "u8", "i16", "f16", "bfloat16", "f32", "i64", "f64"])
def test_choice_keeps_the_type(dtype: str) -> None:
    elements = ndd.cast(ndd.tensor([1, 0, 1]), dtype=ndd.dtype(dtype))
    assert choice(elements, shape=[5]).dtype == elements.dtype


def test_choice_of_ragged_batches() -> None:
    batch = ndd.batch([[1, 2], [5, 6, 7]])
    made = choice(batch, p=ndd.batch([[0.0, 1.0], [0.0, 0.0, 1.0]]), shape=ndd.batch([[3], [4]]))
    assert [array(one).tolist() for one in made] == [[2] * 3, [7] * 4]
    assert choice(ndd.batch([np.zeros((3, 2)), np.zeros((2, 4))]), shape=[5]).shape == [(5, 2), (5, 4)]


def test_p_may_be_pending() -> None:
    with EvalMode.deferred:
        p = ndd.cast(ndd.batch([[0.0, 1.0], [1.0, 0.0]]), dtype=ndd.float32)
        made = choice([5, 6], p=p, shape=[2])
    assert [array(one).tolist() for one in made] == [[6, 6], [5, 5]]


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
        (normal, {"mean": [0.1, 0.2]}, ValueError),
        (beta, {"alpha": 0}, RuntimeError),
        (beta, {"beta": -1}, RuntimeError),
        (beta, {"alpha": float("nan")}, RuntimeError),
        (beta, {"beta": float("inf")}, RuntimeError),
        (beta, {"dtype": "i32"}, RuntimeError),
    ],
)
def test_wrong_arguments(function: Callable[..., Any], args: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        function(**args).evaluate()


def test_shape_and_shape_like_exclude_each_other() -> None:
    with pytest.raises(RuntimeError, match="shape"):
        uniform(np.zeros((2, 3)), shape=[3])


@pytest.mark.parametrize(
    ("elements", "args", "text"),
    [
        (0, {}, "must be positive"),
        (-3, {}, "must be positive"),
        ([], {}, "nothing"),
        (2.5, {}, "integer"),
        (True, {}, "integer"),
        ([1, 2, 3], {"p": [0.5, 0.5]}, "3 elements"),
        ([1, 2, 3], {"p": 1.0}, "3 elements"),
        ([1, 2], {"p": [-0.5, 1.5]}, "from 0 to 1"),
        ([1, 2], {"p": [float("nan"), 1.0]}, "from 0 to 1"),
        ([1, 2, 3], {"p": [0.33, 0.33, 0.33]}, "sum"),
        (3, {"shape": [-1]}, "negative"),
    ],
)
def test_wrong_choices(elements: Any, args: dict[str, Any], text: str) -> None:
    with EvalMode.sync_cpu, pytest.raises(RuntimeError, match=text):
        choice(elements, **args)
