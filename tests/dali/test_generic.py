# SPDX-License-Identifier: Apache-2.0
"""cast, cast_like, lookup_table and normalize compared with DALI's. NaN as an integer is undefined there; here it is the smallest one."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from _dali import assert_same, dali

import torch_ndd as ndd

DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


def numbers(dtype: str) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            return np.array([*np.arange(-1050, 1050) / 4, 1e4, -1e4, 4e4, 7e4, -7e4, 3e9, -3e9, 5e9, 1e12], np.float64).astype(kind)
    if kind.kind == "b":
        return np.array([False, True])
    limits = np.iinfo(kind)
    ends = [0, 1, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]
    return np.array([n for end in ends for n in (end, -end, -end - 1) if limits.min <= n <= limits.max], kind)


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_every_pair(source: str, target: str) -> None:
    value = numbers(source)
    ours, theirs = (np.asarray(module.cast(module.tensor(value), dtype=getattr(module, target)).evaluate()) for module in (ndd, dali))
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("layout", ["HWC", "FHWC", "CDHW", "W"])
def test_shape_and_layout_are_kept(layout: str) -> None:
    array = np.random.default_rng(0).uniform(-300, 300, tuple(range(2, 2 + len(layout)))).astype(np.float32)
    ours, theirs = (module.cast(module.tensor(array, layout=layout), dtype=module.uint8).evaluate() for module in (ndd, dali))
    assert ours.layout == theirs.layout == layout
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize("target", DTYPES)
def test_cast_like(target: str) -> None:
    values = [np.random.default_rng(i).uniform(-300, 300, (2, 3 + i)).astype(np.float32) for i in range(3)]
    pattern = [np.zeros((1 + i,), target) for i in range(3)]
    ours, theirs = (module.cast_like(module.batch(values, layout="HW"), module.batch(pattern)).evaluate() for module in (ndd, dali))
    assert ours.layout == theirs.layout
    for sample, other in zip(ours.tensors, theirs.tensors, strict=True):
        assert np.asarray(sample).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(np.asarray(sample), np.asarray(other))


TABLES = [
    {"keys": [1, 5, 200], "values": [0.5, -7.6, 1e5]},
    {"keys": [1, 5, 200], "values": [0.5, -7.6, 1e5], "default_value": 300.7},
    {"keys": [65535, 0, 0], "values": [3, 4, 5], "default_value": -1},
    {"keys": 7, "values": 2.5},
    {"keys": list(range(256)), "values": [k * 0.37 for k in range(255, -1, -1)]},
    {},
]


@pytest.mark.parametrize("options", TABLES)
@pytest.mark.parametrize("target", [None, *DTYPES])
def test_lookup_table_types(target: str | None, options: dict[str, object]) -> None:
    values = [np.random.default_rng(i).integers(0, 256, (20, 30 + i, 3)).astype(np.uint8) for i in range(3)]

    def run(module: ModuleType) -> list[np.ndarray]:
        more = {} if target is None else {"dtype": getattr(module, target)}
        result = module.lookup_table(module.batch(values, layout="HWC"), **options, **more).evaluate()
        assert result.layout == "HWC"
        return [np.asarray(sample) for sample in result.tensors]

    for output, other in zip(run(ndd), run(dali), strict=True):
        assert output.dtype == other.dtype
        np.testing.assert_array_equal(output, other)


@pytest.mark.parametrize("source", ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("options", TABLES)
def test_lookup_table_keys(source: str, options: dict[str, object]) -> None:
    value = numbers(source)
    ours, theirs = (np.asarray(module.lookup_table(module.tensor(value), **options).evaluate()) for module in (ndd, dali))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("options", [{"keys": [1]}, {"keys": [-1], "values": [2]}, {"keys": [65536], "values": [2]}])
def test_wrong_tables(options: dict[str, object]) -> None:
    for module in (ndd, dali):
        with pytest.raises(RuntimeError):
            module.lookup_table(module.tensor(np.arange(3, dtype=np.uint8)), **options).evaluate()
    for module in (ndd, dali):
        with pytest.raises(RuntimeError):
            module.lookup_table(module.tensor(np.zeros(3, np.float32)), keys=[1], values=[1]).evaluate()


ONE, CHANNELS = (1, 1, 1), (1, 1, 3)


def parameter(shape: tuple[int, ...], seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).uniform(20, 150, shape).astype(np.float32)


NORMALIZATIONS = [
    {},
    {"axes": [0, 1]},
    {"axes": [2, 0]},
    {"axes": 1},
    {"axis_names": "HW"},
    {"axis_names": "C", "epsilon": 2.0},
    {"ddof": 1},
    {"axes": [2], "ddof": 3},
    {"axes": [2], "ddof": 1, "scale": 30.0, "shift": 100.0},
    {"epsilon": 10.0},
    {"axes": [2], "ddof": 3, "epsilon": 400.0},  # no degree of freedom is left
    {"axes": [0, 1], "ddof": 5000, "epsilon": 4.0, "mean": parameter(CHANNELS), "shift": 7.0},
    {"mean": parameter(ONE)},
    {"mean": parameter(CHANNELS)},
    {"mean": parameter(CHANNELS), "axes": [0, 1], "ddof": 1},
    {"stddev": parameter(CHANNELS)},
    {"stddev": -parameter(CHANNELS)},
    {"stddev": parameter(CHANNELS), "epsilon": 1000.0},
    {"mean": parameter(CHANNELS), "stddev": parameter(CHANNELS, 4)},
    {"mean": parameter(ONE), "stddev": 0 * parameter(ONE)},
    {"batch": True},
    {"batch": True, "axes": [0, 1], "ddof": 1},
    {"batch": True, "axes": [0, 1], "ddof": 10_000, "epsilon": 9.0},
    {"batch": True, "axis_names": "HWC", "epsilon": 3.0, "scale": 9.0, "shift": -1.0},
]


@pytest.mark.parametrize("source", ["uint8", "int8", "int16", "uint16", "int32", "float32"])
@pytest.mark.parametrize("options", NORMALIZATIONS)
def test_normalize_of_every_type(source: str, options: dict[str, object]) -> None:
    """Within 2e-6 of the scale: DALI sums in float32."""
    samples = [np.random.default_rng(i).uniform(-100 if source == "int8" else 0, 120, (20 + i, 30 - i, 3)).astype(source) for i in range(3)]
    ours, theirs = (module.normalize(module.batch(samples, layout="HWC"), **options).evaluate() for module in (ndd, dali))
    assert ours.layout == theirs.layout == "HWC"
    for sample, other in zip(ours.tensors, theirs.tensors, strict=True):
        assert np.asarray(sample).dtype == np.asarray(other).dtype == np.float32
        np.testing.assert_allclose(np.asarray(sample), np.asarray(other), rtol=2e-5, atol=2e-6 * max(1.0, options.get("scale", 1.0)))


@pytest.mark.parametrize("target", ["uint8", "int8", "int16", "uint16", "int32"])
def test_normalize_to_integers(target: str) -> None:
    """One level where the exact value is a half."""
    samples = [np.random.default_rng(i).integers(0, 256, (20 + i, 30, 3)).astype(np.uint8) for i in range(3)]
    ours, theirs = (
        module.normalize(module.batch(samples), scale=60.0, shift=120.0, dtype=getattr(module, target)).evaluate() for module in (ndd, dali)
    )
    for sample, other in zip(ours.tensors, theirs.tensors, strict=True):
        difference = np.abs(np.asarray(sample).astype(int) - np.asarray(other).astype(int))
        assert difference.max() <= 1
        assert difference.mean() < 1e-3


@pytest.mark.parametrize("layout", [None, "HW", "FHWC", "DHWC", "CFDHW"])
def test_normalize_layouts(layout: str | None) -> None:
    values = np.random.default_rng(0).uniform(0, 9, (3, 4, 5, 6, 2)[: len(layout or "HWC")]).astype(np.float32)
    ours, theirs = (module.normalize(module.tensor(values, layout=layout), axes=[1]).evaluate() for module in (ndd, dali))
    assert ours.layout == theirs.layout
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), atol=2e-6)


def test_normalize_parameters_per_sample() -> None:
    samples = [np.random.default_rng(i).uniform(0, 255, (20 + i, 30, 3)).astype(np.float32) for i in range(3)]
    mean = [parameter((20 + i, 1, 1), i) for i in range(3)]
    for args in ({"mean": mean}, {"mean": mean, "stddev": [1 + m for m in mean]}, {"stddev": [m[:1] for m in mean]}):
        ours, theirs = (
            module.normalize(module.batch(samples), **{key: module.batch(value) for key, value in args.items()}).evaluate() for module in (ndd, dali)
        )
        for sample, other in zip(ours.tensors, theirs.tensors, strict=True):
            np.testing.assert_allclose(np.asarray(sample), np.asarray(other), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"axes": [3]},
        {"axes": []},
        {"axis_names": "D"},
        {"axes": [0], "axis_names": "H"},
        {"mean": parameter((1, 5, 3)), "axes": [0, 1]},
        {"mean": parameter((4, 1, 1)), "stddev": parameter(CHANNELS)},
        {"mean": parameter(CHANNELS), "batch": True},
    ],
)
def test_wrong_parameters_of_normalize(options: dict[str, object]) -> None:
    for module in (ndd, dali):
        with pytest.raises(RuntimeError):
            module.normalize(module.tensor(np.zeros((4, 5, 3), np.uint8), layout="HWC"), **options).evaluate()


FRACTIONS = {
    "reshape": lambda m: m.reshape(m.tensor([[1, 2], [3, 4], [5, 6]]), shape=np.array([1.6, 3])),
    "reshape, batch": lambda m: m.reshape(m.batch([[1, 2, 3, 4], [5, 6, 7, 8]]), shape=m.batch([[1.6, 2.4], [0.5, 3.5]])),
    "pad, shape": lambda m: m.pad(m.tensor([1, 2]), shape=np.array([4.5])),
    "pad, align": lambda m: m.pad(m.tensor([1, 2]), align=m.tensor([2.5])),
    "slice": lambda m: m.slice(m.tensor([1, 2, 3, 4, 5, 6]), start=np.array([1.4]), shape=np.array([1.4]), axes=[0]),
    "slice, batch": lambda m: m.slice(m.batch([[1, 2, 3, 4, 5, 6]] * 2), start=m.batch([[1.4], [1.5]]), shape=m.batch([[1.4], [2.5]]), axes=[0]),
    "uniform": lambda m: m.random.uniform(shape=m.tensor([2.5]), values=[1.0]),
    "bbox_rotate": lambda m: m.bbox_rotate(np.array([[0.1, 0.2, 0.3, 0.4]], np.float32), angle=30, input_shape=np.array([30.5, 40.4])),
    "permute_batch": lambda m: m.permute_batch(m.batch([1, 2, 3]), indices=m.batch([0.6, 1.5, 1.4])),
    "sequence_rearrange": lambda m: m.sequence_rearrange(m.tensor([[1], [2], [3]], layout="FW"), new_order=m.batch([[0.6, 1.4], [1.5, -0.4]])),
}


@pytest.mark.parametrize("program", FRACTIONS.values(), ids=FRACTIONS)
def test_fractions_in_arrays_and_batches_are_rounded_to_integers(program: Callable[[ModuleType], Any]) -> None:
    for _ in range(5):  # repeated calls run a plan
        assert_same(program, absolute=1e-5)
