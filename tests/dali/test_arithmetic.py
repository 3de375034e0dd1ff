# SPDX-License-Identifier: Apache-2.0
"""+ - * /, reductions.mean and random numbers against DALI's. See known_differences.md for what the cases avoid."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

dali = pytest.importorskip("nvidia.dali.experimental.dynamic")

import torch_ndd as ndd  # noqa: E402

DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"]
OPERATIONS = [operator.add, operator.sub, operator.mul, operator.truediv]
each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda f: f.__name__)


def numbers(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).integers(1, 100, shape)).astype(dtype)


def samples(value: Any) -> list[np.ndarray]:
    return [np.asarray(one) for one in value.tensors] if hasattr(value, "batch_size") else [np.asarray(value)]


def outcome(program: Callable[[Any], Any], module: Any) -> Any:
    """The samples and layout of the result, or the type of the error."""
    try:
        result = program(module)
        return samples(result), result.layout
    except Exception as error:
        return type(error)


def assert_same(program: Callable[[Any], Any], tolerance: float = 0.0) -> None:
    ours, theirs = outcome(program, ndd), outcome(program, dali)
    if isinstance(theirs, type) or isinstance(ours, type):
        assert ours == theirs
        return
    assert ours[1] == theirs[1]
    for one, other in zip(ours[0], theirs[0], strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=tolerance)


@each_operation
@pytest.mark.parametrize("left", DTYPES)
def test_types(operation: Callable[[Any, Any], Any], left: str) -> None:
    a = numbers(left, (2, 3), 0)
    for right in DTYPES:
        b = numbers(right, (2, 3), 1)
        assert_same(lambda m, b=b: operation(m.tensor(a), m.tensor(b)))
    for scalar in (7, 2.5, True, 2**31, [1, 2, 3]):
        assert_same(lambda m, scalar=scalar: operation(m.tensor(a), scalar))
        assert_same(lambda m, scalar=scalar: operation(scalar, m.tensor(a)))


@each_operation
@pytest.mark.parametrize(("left", "right"), [((5, 3), (3,)), ((5, 1, 3), (4, 1)), ((3,), (2, 3)), ((2,), (3,)), ((), (2, 2)), ((0, 3), (1, 3))])
def test_shapes(operation: Callable[[Any, Any], Any], left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = numbers("uint8", left, 0), numbers("float32", right, 1)
    assert_same(lambda m: operation(m.tensor(a), m.tensor(b)))
    assert_same(lambda m: operation(m.batch([a, a]), m.tensor(b)))
    assert_same(lambda m: operation(m.batch([a, a]), m.batch([b, b])))
    assert_same(lambda m: operation(m.batch([a, a, a]), m.batch([b, b])))


def test_ragged_batches() -> None:
    arrays = [numbers("int16", shape, i) for i, shape in enumerate([(2, 3), (4, 3), (1, 3)])]
    for other in (2, [1, 2, 3], [[1], [2]]):
        assert_same(lambda m, other=other: m.batch(arrays) * other)
    assert_same(lambda m: m.batch(arrays) + m.batch(arrays))


@pytest.mark.parametrize(("left", "right"), [("HW", "HW"), ("HW", "W"), ("W", "HW"), ("HW", None), (None, "HW"), ("HW", "WC"), ("HW", "H")])
def test_layouts(left: str | None, right: str | None) -> None:
    def ones(module: Any, layout: str | None) -> Any:
        return module.tensor(np.ones((2, 2)[2 - len(layout or "HW") :], np.float32), layout=layout)

    assert_same(lambda m: ones(m, left) + ones(m, right))


MEANS = [
    {},
    {"axes": [0, 1]},
    {"axes": -1},
    {"axes": [0, 2]},
    {"axes": []},
    {"axis_names": "HW"},
    {"axis_names": "C", "keep_dims": True},
    {"axis_names": ""},
    {"keep_dims": True},
    {"axes": [3]},
    {"axes": [-4]},
    {"axes": [0, 0]},
    {"axis_names": "X"},
    {"axes": [0], "axis_names": "H"},
]


@pytest.mark.parametrize("args", MEANS, ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "int64", "float32"])
def test_mean(args: dict[str, Any], dtype: str) -> None:
    arrays = [numbers(dtype, shape, i) for i, shape in enumerate([(4, 5, 3), (7, 2, 3)])]
    assert_same(lambda m: m.reductions.mean(m.batch(arrays, layout="HWC"), **args), 1e-6)
    assert_same(lambda m: m.reductions.mean(m.tensor(arrays[0], layout="HWC"), **args), 1e-6)


@pytest.mark.parametrize(("dtype", "name"), [("uint8", "uint8"), ("int32", "int32"), ("int64", "int64"), ("uint16", "float32")])
def test_mean_dtype(dtype: str, name: str) -> None:
    values = np.asarray([[1, 2], [5, 4]]).astype(dtype)
    assert_same(lambda m: m.reductions.mean(m.tensor(values), axes=0, dtype=getattr(torch if m is ndd else dali, name)))


def test_states_of_the_generator() -> None:
    ours, theirs = ndd.random.RNG(seed=1234), dali.random.RNG(seed=1234)
    for _ in range(3):
        assert [ours() for _ in range(5)] == [theirs() for _ in range(5)]
        assert str(ours.state) == str(theirs.state)
        ours.advance(10)
        theirs.advance(10)
    assert str(ndd.random.RNG(state=str(theirs.state)).state) == str(theirs.state)
    for module, rng in ((ndd, ours), (dali, theirs)):
        module.random.uniform(shape=[5], batch_size=3, rng=rng).evaluate()
        module.random.coin_flip(rng=rng).evaluate()
    assert str(ours.state) == str(theirs.state)


RANDOM: list[tuple[str, dict[str, Any]]] = [
    ("uniform", {}),
    ("uniform", {"batch_size": 3}),
    ("uniform", {"shape": 5}),
    ("uniform", {"shape": [2, 3], "batch_size": 2}),
    ("uniform", {"shape": [[2, 3], [4, 5]]}),
    ("uniform", {"shape": []}),
    ("uniform", {"shape": [0, 2]}),
    ("uniform", {"shape": [-1]}),
    ("uniform", {"range": [3, 0]}),
    ("uniform", {"range": [3, 3]}),
    ("uniform", {"range": [3]}),
    ("uniform", {"range": [1, 2, 3]}),
    ("uniform", {"dtype": "float64", "shape": [3]}),
    ("uniform", {"dtype": "int16", "shape": [3]}),
    ("uniform", {"values": [1, 2], "shape": [3]}),
    ("uniform", {"values": [], "shape": [3]}),
    ("uniform", {"rng": 5}),
    ("uniform", {"seed": 5}),
    ("coin_flip", {"shape": [5]}),
    ("coin_flip", {"dtype": "uint8"}),
    ("coin_flip", {"dtype": "bool", "batch_size": 2}),
]


@pytest.mark.parametrize(("name", "args"), RANDOM, ids=str)
def test_random_shapes_types_and_errors(name: str, args: dict[str, Any]) -> None:
    def program(module: Any) -> Any:
        given = dict(args)
        if "dtype" in given:
            given["dtype"] = getattr(torch if module is ndd else dali, given["dtype"])
        if np.ndim(given.get("shape")) == 2:
            given["shape"] = module.batch(given["shape"])
        return getattr(module.random, name)(**given)

    ours, theirs = outcome(program, ndd), outcome(program, dali)
    if isinstance(theirs, type) or isinstance(ours, type):
        assert ours == theirs
    else:
        assert [(a.shape, a.dtype) for a in ours[0]] == [(a.shape, a.dtype) for a in theirs[0]]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("uniform", {"range": [20, 200], "dtype": "uint8"}),
        ("uniform", {"range": [0, 3], "dtype": "int32"}),
        ("uniform", {"range": [-1, 7]}),
        ("uniform", {"values": [1, 2.5, 7]}),
        ("uniform", {"values": [1, 2.5, 7], "dtype": "int32"}),
        ("coin_flip", {"probability": 0.2}),
    ],
    ids=str,
)
def test_random_distributions(name: str, args: dict[str, Any]) -> None:
    def quantiles(module: Any) -> np.ndarray:
        given = {k: getattr(torch if module is ndd else dali, v) if k == "dtype" else v for k, v in args.items()}
        made = np.asarray(getattr(module.random, name)(shape=[100_000], rng=module.random.RNG(seed=3), **given)).astype(np.float64)
        return np.asarray([made.mean(), made.std(), made.min(), made.max()])

    ours, theirs = quantiles(ndd), quantiles(dali)
    np.testing.assert_allclose(ours, theirs, atol=0.015 * (theirs[3] - theirs[2]))


def test_random_like_an_input() -> None:
    arrays = [np.zeros((4, 5, 3), np.uint8), np.zeros((2, 5, 3), np.uint8)]
    for name in ("uniform", "coin_flip"):
        ours, theirs = (outcome(lambda m, name=name: getattr(m.random, name)(m.batch(arrays, layout="HWC")), module) for module in (ndd, dali))
        assert ours[1] == theirs[1]
        assert [(a.shape, a.dtype) for a in ours[0]] == [(a.shape, a.dtype) for a in theirs[0]]
