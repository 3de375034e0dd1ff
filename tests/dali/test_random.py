# SPDX-License-Identifier: Apache-2.0
"""Random numbers against DALI's: generators word by word, operators in everything but the numbers themselves, which follow DALI's distributions.
See known_differences.md for what the cases avoid."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _dali import assert_alike, assert_equal, assert_same, dali, farthest, ndd, with_dtype
from _raises import Raises, raising

MODULES = (ndd, dali)
Program = Callable[[Any], Any]


def assert_same_text(program: Program, raises: Raises | None = None) -> None:
    assert_equal(lambda module: str(program(module)), raises)


LAST_BLOCK = "Philox_00000000000004D2_0000000000000007:FFFFFFFFFFFFFFFF_2"
LAST_OF_ALL = "Philox_00000000000004D2_FFFFFFFFFFFFFFFF:FFFFFFFFFFFFFFFF_2"


@pytest.mark.parametrize("seed", [0, 1, 1234, -1, 2**32, 2**63 + 5, 2**64 - 1, 2**64 + 3])
def test_words_and_states(seed: int) -> None:
    ours, theirs = (module.random.RNG(seed=seed) for module in MODULES)
    for skipped in (0, 1, 10, 2**33 + 2, 2**63 + 3):
        ours.advance(skipped)
        theirs.advance(skipped)
        assert str(ours.state) == str(theirs.state)
        assert repr(ours) == repr(theirs)
        assert [ours() for _ in range(9)] == [theirs() for _ in range(9)]
        assert str(ours.get_state()) == str(theirs.get_state())


@pytest.mark.parametrize("state", [LAST_BLOCK, LAST_OF_ALL, LAST_BLOCK.replace("FF", "ff"), LAST_BLOCK.replace("FF", "00")])
def test_states_of_one_library_in_the_other(state: str) -> None:
    for ours, theirs in (
        (ndd.random.RNG(state=state), dali.random.RNG(state=state)),
        (ndd.random.RNG(state=str(dali.random.RNG(state=state).state)), dali.random.RNG(state=str(ndd.random.RNG(state=state).state))),
    ):
        for step in range(3):
            assert [ours() for _ in range(3)] == [theirs() for _ in range(3)]
            ours.advance(step)
            theirs.advance(step)
            first = str(ours.state)
            assert first == str(theirs.state)
            assert ours.clone()() == theirs.clone()()
            assert str(ours.state) == str(theirs.state) == first
            ours.state, theirs.state = ndd.random.RNG(state=str(theirs.state)).state, dali.random.RNG(state=str(ours.state)).state
            ours.set_state(str(theirs.state))
            theirs.set_state(str(ours.state))


def test_assigning_a_seed_rewinds() -> None:
    def program(module: Any) -> Any:
        rng = module.random.RNG(seed=7)
        first = rng()
        rng.seed = 8
        other = str(rng.state)
        rng.seed = 7
        return first, other, rng()

    assert_same_text(program)


@pytest.mark.parametrize(
    "program",
    [
        raising(TypeError, lambda m: m.random.RNG(seed="a")),
        raising(TypeError, lambda m: m.random.RNG(seed=1.5)),
        raising(ValueError, lambda m: m.random.RNG(seed=1, state=LAST_BLOCK)),
        raising(ValueError, lambda m: m.random.RNG(state="x")),
        raising(ValueError, lambda m: m.random.RNG(state=LAST_BLOCK + "x")),
        raising(ValueError, lambda m: m.random.RNG(state=" " + LAST_BLOCK)),
        raising(ValueError, lambda m: m.random.RNG(state=LAST_BLOCK.lower())),
        raising(ValueError, lambda m: m.random.RNG(state=LAST_BLOCK[:-1] + "4")),
        raising(TypeError, lambda m: m.random.RNG(state=5)),
        raising(TypeError, lambda m: m.random.RNG(1).set_state(5)),
        raising(TypeError, lambda m: m.random.RNG(1).set_state(None)),
        raising(ValueError, lambda m: m.random.RNG(1).advance(-1)),
        raising(TypeError, lambda m: m.random.RNG(1).advance(1.5)),
        raising(TypeError, lambda m: m.random.RNG(1).advance("1")),
        raising(AttributeError, lambda m: m.random.RNG(1).seed),
        lambda m: m.random.RNG(1) == m.random.RNG(1),
        raising(TypeError, lambda m: m.random.set_seed("a")),
        raising(TypeError, lambda m: m.random.set_seed(1.5)),
    ],
)
def test_wrong_use_of_a_generator(program: Program, raises: Raises | None) -> None:
    assert_same_text(program, raises=raises)


@pytest.mark.parametrize("state", [LAST_BLOCK, "Philox_00000000000004D2_0000000000000000:0000000000000000_3"])
@pytest.mark.parametrize("args", [{}, {"batch_size": 3}, {"shape": [1000], "batch_size": 2}], ids=str)
def test_position_after_a_call(state: str, args: dict[str, Any]) -> None:
    def program(module: Any) -> Any:
        rng = module.random.RNG(state=state)
        positions = []
        for function in (module.random.uniform, module.random.coin_flip):
            result = function(rng=rng, **args)
            positions.append(str(rng.state))
            result.evaluate()
            positions.append(str(rng.state))
        rng.advance(-7 % 2**16)
        return positions, str(rng.state), rng()

    assert_same_text(program)


def test_set_seed_and_the_default_generator() -> None:
    def program(module: Any) -> Any:
        module.random.set_seed(1234)
        default = module.random.get_default_rng()
        states = [str(default.state), default()]
        results = [module.random.uniform(shape=[4]) for _ in range(2)]
        states.append(str(default.state))
        module.random.set_seed(1234)
        default()
        again = [module.random.uniform(shape=[4]) for _ in range(2)]
        same = [np.array_equal(np.asarray(result), np.asarray(other)) for result, other in zip(results, again, strict=True)]
        return states, same, default is module.random.get_default_rng()

    assert_same_text(program)


CALLS: list[Program] = [
    lambda r, m: r(),
    lambda r, m: r(batch_size=3),
    raising(ValueError, lambda r, m: r(batch_size=-1)),
    raising(TypeError, lambda r, m: r(batch_size="2")),
    lambda r, m: r(device="cpu"),
    raising(ValueError, lambda r, m: r(device="nowhere")),
    lambda r, m: r(rng=None),
    raising(ValueError, lambda r, m: r(rng=object())),
    raising(TypeError, lambda r, m: r(seed=5)),
    raising(TypeError, lambda r, m: r(nonsense=5)),
    lambda r, m: r(dtype=None),
    raising(ValueError, lambda r, m: r(dtype="float128")),
    lambda r, m: r(shape=None),
    lambda r, m: r(shape=4),
    lambda r, m: r(shape=(2, 3)),
    lambda r, m: r(shape=[2, 3], batch_size=2),
    lambda r, m: r(shape=[]),
    lambda r, m: r(shape=[0, 2]),
    raising(RuntimeError, lambda r, m: r(shape=[-1])),
    lambda r, m: r(shape=[2.0, 3.0]),
    raising(ValueError, lambda r, m: r(shape="a")),
    lambda r, m: r(shape=np.int32([2, 3])),
    lambda r, m: r(shape=m.tensor(4)),
    lambda r, m: r(shape=m.tensor([2, 3])),
    lambda r, m: r(shape=m.tensor([2, 3]), batch_size=2),
    lambda r, m: r(shape=m.tensor([2.0, 3.0])),
    lambda r, m: r(shape=m.tensor(np.int64([2, 3]))),
    lambda r, m: r(shape=m.batch([2, 4])),
    lambda r, m: r(shape=m.batch([[2, 3], [4, 5]])),
    lambda r, m: r(shape=m.batch([[2, 3], [4, 5]]), batch_size=2),
    lambda r, m: r(shape=m.batch(np.uint8([[2, 3], [1, 2]]))),
    raising(RuntimeError, lambda r, m: r(shape=m.batch([[2], [4, 5]]))),
    raising(RuntimeError, lambda r, m: r(shape=m.batch([[2], [-4]]))),
    lambda r, m: r(m.tensor(np.zeros((2, 3)), layout="HW")),
    lambda r, m: r(m.batch([np.zeros((2, 3)), np.zeros((4, 3))], layout="HW")),
    lambda r, m: r(m.batch([np.zeros((2, 3))] * 2)),
    lambda r, m: r(np.zeros((2, 3))),
    lambda r, m: r([1, 2, 3]),
    lambda r, m: r(3),
    lambda r, m: r(None),
    lambda r, m: r(m.tensor(np.uint8([1, 2, 3]))),
    lambda r, m: r(m.tensor([1, 2]), batch_size=2),
    raising(RuntimeError, lambda r, m: r(m.tensor([1, 2]), shape=[2])),
    raising(TypeError, lambda r, m: r([1], [2])),
    raising(TypeError, lambda r, m: r(shape_like=m.tensor([1, 2]))),
]


@pytest.mark.parametrize("name", ["uniform", "coin_flip", "normal", "beta"])
@pytest.mark.parametrize("call", CALLS)
def test_shapes_types_and_errors(name: str, call: Callable[[Any, Any], Any], raises: Raises | None) -> None:
    assert_alike(lambda m: call(getattr(m.random, name), m), raises=raises)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"])
def test_types_of_uniform(dtype: str) -> None:
    assert_alike(lambda m: m.random.uniform(range=[0, 5], shape=[3], **with_dtype(m, {"dtype": dtype})))
    assert_same(lambda m: m.random.uniform(values=[5], shape=[3], **with_dtype(m, {"dtype": dtype})))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"])
def test_types_of_normal(dtype: str) -> None:
    assert_alike(lambda m: m.random.normal(shape=[3], **with_dtype(m, {"dtype": dtype})))
    for mean in (5.5, 4.5, 300, -5, -4.5):
        assert_same(lambda m, mean=mean: m.random.normal(mean=mean, stddev=0, shape=[3], **with_dtype(m, {"dtype": dtype})))


@pytest.mark.parametrize("dtype", ["float32", "float64", raising(RuntimeError, "int32"), raising(RuntimeError, "uint8")])
def test_types_of_beta(dtype: str, raises: Raises | None) -> None:
    assert_alike(lambda m: m.random.beta(shape=[3], **with_dtype(m, {"dtype": dtype})), raises=raises)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32"])
def test_types_of_coin_flip(dtype: str) -> None:
    assert_same(lambda m: m.random.coin_flip(probability=1, shape=[3], **with_dtype(m, {"dtype": dtype})))


@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.random.uniform(range=[2, 3]),
        lambda m: m.random.uniform(range=(2, 3)),
        lambda m: m.random.uniform(range=None),
        lambda m: m.random.uniform(range=np.float32([2, 3])),
        lambda m: m.random.uniform(range=m.tensor([2.0, 3.0])),
        lambda m: m.random.uniform(range=m.tensor([2, 3])),
        lambda m: m.random.uniform(range=m.batch([[2.0, 3.0], [5.0, 6.0]])),
        lambda m: m.random.uniform(range=m.batch([[2.0, 3.0], [5.0, 6.0]]), batch_size=2),
        raising(RuntimeError, lambda m: m.random.uniform(range=m.batch([1.0, 2.0]))),
        raising(RuntimeError, lambda m: m.random.uniform(range=m.batch([[1.0], [1.0, 2.0]]))),
        raising(RuntimeError, lambda m: m.random.uniform(range=3)),
        raising(RuntimeError, lambda m: m.random.uniform(range=[3])),
        raising(RuntimeError, lambda m: m.random.uniform(range=[1, 2, 3])),
        raising(RuntimeError, lambda m: m.random.uniform(range=[3, 0])),
        raising(RuntimeError, lambda m: m.random.uniform(range=[3, 3])),
        raising(ValueError, lambda m: m.random.uniform(range="a")),
        raising(RuntimeError, lambda m: m.random.uniform(range=[float("nan"), 1])),
        lambda m: m.random.uniform(values=[1, 2]),
        lambda m: m.random.uniform(values=np.float32([1, 2])),
        lambda m: m.random.uniform(values=m.tensor([1.0, 2.0])),
        lambda m: m.random.uniform(values=m.batch([[1, 2], [3, 4]])),
        raising(TypeError, lambda m: m.random.uniform(values=object())),
    ],
)
def test_range_and_values(program: Program, raises: Raises | None) -> None:
    assert_alike(program, raises=raises)


@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.random.uniform(values=5),
        lambda m: m.random.uniform(values=(5,), batch_size=2),
        lambda m: m.random.uniform(values=[7.0], range=[0, 1]),
        lambda m: m.random.uniform(values=m.tensor([5.0])),
        lambda m: m.random.uniform(values=m.batch([3.0, 4.0])),
        lambda m: m.random.uniform(values=m.batch([[3.0], [4.0]]), shape=m.batch([[2], [3]])),
        lambda m: m.random.coin_flip(probability=1),
        lambda m: m.random.coin_flip(probability=True),
        lambda m: m.random.coin_flip(probability=np.float32(1)),
        lambda m: m.random.coin_flip(probability=np.float64(0)),
        lambda m: m.random.coin_flip(probability=m.tensor(1.0)),
        lambda m: m.random.coin_flip(probability=m.tensor(1.0), batch_size=2),
        lambda m: m.random.coin_flip(probability=m.batch([1.0, 0.0])),
        lambda m: m.random.coin_flip(probability=m.batch([1.0, 0.0]), batch_size=2),
        lambda m: m.random.coin_flip(probability=m.batch([1, 0])),
        lambda m: m.random.coin_flip(probability=m.batch([1.0, 0.0]), shape=m.batch([[2], [3]])),
        lambda m: m.random.coin_flip(probability=m.tensor(np.float64(1))),
        raising(ValueError, lambda m: m.random.coin_flip(probability="a")),
        raising(TypeError, lambda m: m.random.coin_flip(probability=object())),
    ],
)
def test_numbers_that_leave_no_choice(program: Program, raises: Raises | None) -> None:
    assert_same(program, raises=raises)


@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.random.normal(stddev=float("nan"), shape=[3]),
        lambda m: m.random.normal(mean=float("inf"), shape=[3]),
        lambda m: m.random.normal(mean=m.batch([1.0, 2.0]), stddev=m.batch([0.0, 0.0]), shape=[3]),
        lambda m: m.random.normal(mean=m.batch([1, 2]), stddev=0, batch_size=2),
        lambda m: m.random.normal(mean=m.tensor(3.0), stddev=m.tensor(0), shape=m.batch([[2], [3]])),
        raising(RuntimeError, lambda m: m.random.beta(alpha=0)),
        raising(RuntimeError, lambda m: m.random.beta(alpha=-1)),
        raising(RuntimeError, lambda m: m.random.beta(alpha=float("nan"))),
        raising(RuntimeError, lambda m: m.random.beta(alpha=float("inf"))),
        raising(RuntimeError, lambda m: m.random.beta(beta=0)),
        lambda m: m.random.choice(1),
        lambda m: m.random.choice(1, shape=[4], batch_size=2),
        raising(RuntimeError, lambda m: m.random.choice(0)),
        raising(RuntimeError, lambda m: m.random.choice(-3)),
        raising(RuntimeError, lambda m: m.random.choice(5.5)),
        raising(RuntimeError, lambda m: m.random.choice(True)),
        raising(RuntimeError, lambda m: m.random.choice([])),
        lambda m: m.random.choice([7]),
        lambda m: m.random.choice([7], shape=[2, 2]),
        lambda m: m.random.choice([7], shape=[0]),
        lambda m: m.random.choice(np.array([5], np.int16), shape=[3]),
        lambda m: m.random.choice(np.float16([5]), shape=[3]),
        lambda m: m.random.choice(np.array([True]), shape=[3]),
        lambda m: m.random.choice(np.full((3, 2, 2), 4), shape=[3]),
        lambda m: m.random.choice(np.full((3, 2, 2), 4)),
        lambda m: m.random.choice(m.tensor(np.full((3, 2, 2), 4.0), layout="FHW"), shape=[3]),
        lambda m: m.random.choice(m.tensor(np.full((3, 2, 2), 4.0), layout="FHW")),
        lambda m: m.random.choice(m.tensor(np.full(3, 4.0), layout="X"), shape=[2, 2]),
        lambda m: m.random.choice(m.tensor(np.full(3, 4.0), layout="X"), shape=[2]),
        lambda m: m.random.choice([1, 2, 3], p=[0, 1, 0], shape=[3]),
        raising(RuntimeError, lambda m: m.random.choice([1, 2, 3], p=[0, 2, 0], shape=[3])),
        raising(RuntimeError, lambda m: m.random.choice([1, 2, 3], p=[0.5, 0.5], shape=[3])),
        raising(RuntimeError, lambda m: m.random.choice([1, 2, 3], p=[-1, 2, 0], shape=[3])),
        raising(RuntimeError, lambda m: m.random.choice([1, 2, 3], p=[0, 0, 0], shape=[3])),
        raising(RuntimeError, lambda m: m.random.choice([1, 2, 3], p=[0.333, 0.333, 0.333], shape=[3])),
        lambda m: m.random.choice([3, 3, 3], p=[0.33333, 0.33333, 0.33333], shape=[3]),
        raising(RuntimeError, lambda m: m.random.choice([1, 2, 3], p=[float("nan"), 1, 0], shape=[3])),
        raising(RuntimeError, lambda m: m.random.choice([1, 2, 3], p=0.5)),
        lambda m: m.random.choice([3, 3], np.zeros((2, 2))),
        raising(RuntimeError, lambda m: m.random.choice([3, 3], np.zeros((2, 2)), shape=[3])),
        lambda m: m.random.choice(3, p=[0, 0, 1], shape=[3]),
        raising(RuntimeError, lambda m: m.random.choice(3, p=[0, 1], shape=[3])),
        raising(RuntimeError, lambda m: m.random.choice(3, shape=[-1])),
        lambda m: m.random.choice(m.batch([[2, 2], [7, 7, 7]]), shape=[3]),
        lambda m: m.random.choice(m.batch([[1, 2], [5, 6, 7]]), p=m.batch([[0.0, 1.0], [0.0, 0.0, 1.0]]), shape=[3]),
        lambda m: m.random.choice(m.batch([[1, 2], [5, 6]]), p=m.batch([[0.0, 1.0], [1.0, 0.0]]), shape=[3]),
        lambda m: m.random.choice(m.batch([1, 1]), shape=m.batch([[3], [4]])),
        lambda m: m.random.choice(m.batch([np.zeros((3, 2)), np.zeros((2, 4))]), shape=[3]),
        lambda m: m.random.choice(m.batch([np.zeros((3, 2)), np.zeros((2, 4))])),
        raising(TypeError, lambda m: m.random.choice([1, 2, 3], dtype=m.float32)),
        raising(TypeError, lambda m: m.random.choice()),
        raising(TypeError, lambda m: m.random.choice(None)),
        raising(TypeError, lambda m: m.random.choice(a=[1, 2])),
    ],
)
def test_normal_beta_and_choice_without_a_choice(program: Program, raises: Raises | None) -> None:
    assert_same(program, raises=raises)


@pytest.mark.parametrize(
    "program",
    [
        lambda m: m.random.choice(5),
        lambda m: m.random.choice(5, batch_size=3),
        lambda m: m.random.choice(np.uint8(5), shape=[3]),
        lambda m: m.random.choice(np.int64(5), shape=[3]),
        lambda m: m.random.choice([1.5, 2.5], shape=[3]),
        lambda m: m.random.choice(m.batch([2, 5]), shape=m.batch([[3], [4]])),
        lambda m: m.random.normal(m.batch([np.zeros((2, 3)), np.zeros((4, 3))])),
        lambda m: m.random.beta(alpha=m.batch([1.0, 2.0]), shape=m.batch([[2], [3]])),
    ],
)
def test_shapes_and_types_of_choices(program: Program) -> None:
    assert_alike(program)


def test_position_after_every_operator() -> None:
    def program(module: Any) -> Any:
        rng, image, positions = module.random.RNG(seed=4), module.tensor(np.zeros((4, 5, 3), np.uint8), layout="HWC"), []
        for function, inputs, args in (
            (module.random.normal, (), {"shape": [100]}),
            (module.random.beta, (), {"batch_size": 3}),
            (module.random.choice, (5,), {}),
            (module.noise.gaussian, (image,), {}),
            (module.noise.salt_and_pepper, (image,), {"batch_size": 2}),
            (module.noise.shot, (image,), {}),
            (module.batch_permutation, (), {"batch_size": 4}),
            (module.random_crop_generator, ([480, 640],), {}),
            (module.roi_random_crop, (), {"crop_shape": [3], "roi_start": [1], "roi_shape": [1]}),
        ):
            function(*inputs, rng=rng, **args)
            positions.append(str(rng.state))
        return positions

    assert_same_text(program)


COUNT = 50_000


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("uniform", {}),
        ("uniform", {"range": [-1, 7]}),
        ("uniform", {"range": [-1, 7], "dtype": "float64"}),
        ("uniform", {"range": [20, 200], "dtype": "uint8"}),
        ("uniform", {"range": [0, 3], "dtype": "int32"}),
        ("uniform", {"range": [-3, 2], "dtype": "int16"}),
        ("uniform", {"values": [1, 2.5, 7]}),
        ("uniform", {"values": [1, 2.5, 7], "dtype": "int32"}),
        ("uniform", {"values": [1, 1, 4]}),
        ("coin_flip", {}),
        ("coin_flip", {"probability": 0.2}),
        ("coin_flip", {"probability": 0.01, "dtype": "bool"}),
        ("normal", {}),
        ("normal", {"mean": 5, "stddev": 0.5}),
        ("normal", {"mean": 5, "stddev": -0.5, "dtype": "float64"}),
        ("normal", {"mean": 0.3, "stddev": 2.5, "dtype": "int32"}),
        ("normal", {"mean": 128, "stddev": 100, "dtype": "uint8"}),
        ("beta", {}),
        ("beta", {"alpha": 2, "beta": 3}),
        ("beta", {"alpha": 0.4, "beta": 0.4}),
        ("beta", {"alpha": 0.3, "beta": 7, "dtype": "float64"}),
        ("beta", {"alpha": 300, "beta": 0.9}),
    ],
    ids=str,
)
def test_distributions_equal_dali(name: str, args: dict[str, Any]) -> None:
    ours, theirs = (
        np.asarray(getattr(m.random, name)(shape=[COUNT], rng=m.random.RNG(seed=3), **with_dtype(m, args))).astype(np.float64) for m in MODULES
    )
    span = theirs.max() - theirs.min()
    assert ours.mean() == pytest.approx(theirs.mean(), abs=0.012 * span)
    assert ours.std() == pytest.approx(theirs.std(), abs=0.012 * span)
    if name in ("uniform", "coin_flip"):
        assert (ours.min(), ours.max()) == pytest.approx((theirs.min(), theirs.max()), abs=0.001 * span)
    assert farthest(ours, theirs) < 1.95 * (2 / COUNT) ** 0.5  # exceeded once in a thousand seeds


@pytest.mark.parametrize("p", [None, [0.1, 0.2, 0.3, 0.0, 0.4]])
def test_distributions_of_choices(p: list[float] | None) -> None:
    args = {} if p is None else {"p": p}
    ours, theirs = (np.asarray(m.random.choice([5, 1, 2, 9, 7], shape=[COUNT], rng=m.random.RNG(seed=3), **args)) for m in MODULES)
    assert set(ours.tolist()) == set(theirs.tolist())
    assert farthest(ours, theirs) < 1.95 * (2 / COUNT) ** 0.5


def test_distribution_of_each_sample() -> None:
    """By its own range and probability."""
    for name, args in (("uniform", {"range": [[0.0, 1.0], [5.0, 9.0]]}), ("coin_flip", {"probability": [0.1, 0.7]})):
        ours, theirs = (
            getattr(m.random, name)(shape=[COUNT], rng=m.random.RNG(seed=3), **{key: m.batch(value) for key, value in args.items()}) for m in MODULES
        )
        for sample, other in zip(ours.tensors, theirs.tensors, strict=True):
            assert farthest(np.asarray(sample), np.asarray(other)) < 1.95 * (2 / COUNT) ** 0.5
