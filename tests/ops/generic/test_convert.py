# SPDX-License-Identifier: Apache-2.0
import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch
from _cases import Case, Each, Inputs, arrays, images

import torch_ndd as ndd
from torch_ndd import types

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = sorted(types.NUMERIC - {*FLOATS, torch.bool}, key=str)
DTYPES = [torch.bool, *INTEGERS, *FLOATS]


def convert_reference(value: float | int, dtype: torch.dtype) -> float | int:
    """Convert one number exactly."""
    if dtype is torch.bool:
        return not (abs(value) < 0.5)
    if dtype in FLOATS:
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None).to(dtype).double().item()
    limits = torch.iinfo(dtype)
    if math.isinf(value):
        return limits.max if value > 0 else limits.min
    whole = math.floor(abs(Fraction(value)) + Fraction(1, 2)) * (1 if value >= 0 else -1)
    return min(max(whole, limits.min), limits.max)


def interesting(dtype: torch.dtype) -> torch.Tensor:
    """Limits of every type, halves, and their neighbors."""
    if dtype is torch.bool:
        return torch.tensor([False, True])
    if dtype in FLOATS:
        ends = [float(limit) for other in INTEGERS for limit in (torch.iinfo(other).min, torch.iinfo(other).max)]
        numbers = [*(k / 4 for k in range(-2100, 2100)), *ends, *(e + 0.5 for e in ends), *(e * 1.01 for e in ends)]
        numbers += [math.inf, -math.inf, 0.49999997, 8388609.0]
        return torch.tensor(numbers, dtype=torch.float64).to(dtype)
    own = torch.iinfo(dtype)
    ends = [limit + k for other in INTEGERS for limit in (torch.iinfo(other).min, torch.iinfo(other).max) for k in (-1, 0, 1)]
    numbers = [n for n in (*ends, *range(-130, 260), 2**53 + 1, 2**24 + 1) if own.min <= n <= own.max]
    return torch.from_numpy(np.array(numbers, str(dtype).removeprefix("torch.")))


def plain(image: np.ndarray, dtype: str) -> np.ndarray:
    out = {"u8": np.uint8, "f32": np.float32, "i16": np.int16, "f16": np.float16, "bool": np.bool_}[dtype]
    if np.dtype(out).kind == "i" or out is np.uint8:
        limits = np.iinfo(out)
        wide = image.astype(np.float64)
        return np.clip(np.copysign(np.floor(np.abs(wide) + 0.5), wide), limits.min, limits.max).astype(out)
    return image.astype(np.float32 if dtype == "f16" else out).astype(out)  # to half a float64 goes through float32, as in torch


def both(low: float = -50) -> Inputs:
    """Floats, and an array of another shape that gives the type."""

    def make(ragged: bool) -> tuple[list[np.ndarray], ...]:
        return images("HWC", "float32", low=low, high=300)(ragged)[0], images("HW", "int16")(ragged)[0]

    return make


def looked_up(image: np.ndarray, keys: list[int] | int, values: list[float] | float, default_value: float = 0.0, dtype: str = "f32") -> np.ndarray:
    table = dict(zip(np.atleast_1d(keys).tolist(), np.atleast_1d(values).tolist(), strict=True))
    numbers = np.array([table.get(key, default_value) for key in image.reshape(-1).tolist()], np.float32)
    return plain(numbers.reshape(image.shape), dtype)


def normalize_reference(
    image: np.ndarray,
    axes: int | list[int] | None = None,
    axis_names: str | None = None,
    mean: np.ndarray | float | None = None,
    stddev: np.ndarray | float | None = None,
    ddof: int = 0,
    epsilon: float = 0.0,
    scale: float = 1.0,
    shift: float = 0.0,
    dtype: str = "f32",
) -> np.ndarray:
    """The reference in double. ``axis_names`` are of HWC."""
    reduced = tuple(np.atleast_1d(axes)) if axes is not None else tuple("HWC".index(letter) for letter in axis_names or "HWC"[: image.ndim])
    if axes is None and axis_names is None and np.ndim(mean):
        reduced = tuple(d for d in range(image.ndim) if np.shape(mean)[d] == 1)
    wide = image.astype(np.float64)
    middle = wide.mean(reduced, keepdims=True) if mean is None else np.float64(mean)
    if stddev is None:
        degrees = np.prod([image.shape[d] for d in reduced]) - ddof
        variance = ((wide - middle) ** 2).sum(reduced, keepdims=True) * (1 / degrees if degrees > 0 else 0)
    else:
        variance = np.float64(stddev) ** 2
    return plain(((wide - middle) / np.sqrt(variance + epsilon) * scale + shift).astype(np.float32), dtype)


def means(*shape: int, count: int = 3) -> list[np.ndarray]:
    return [np.random.default_rng(i).uniform(50, 150, shape).astype(np.float32) for i in range(count)]


LEVELS = list(range(0, 256, 3))
SOME = range(0, 65536, 257)

CASES = [
    Case("cast_like", "float32 to int16", both(), {}, "HWC", lambda image, like: plain(image, "i16")),
    Case("normalize", "uint8", images("HWC"), {}, "HWC", normalize_reference, 1e-5),
    Case("normalize", "channels", images("HWC"), {"axes": [0, 1], "scale": 50.0, "shift": 128.0}, "HWC", normalize_reference, 1e-4),
    Case("normalize", "names", images("HWC", "float32"), {"axis_names": "HW", "ddof": 1, "epsilon": 3.0}, "HWC", normalize_reference, 1e-5),
    Case("normalize", "no freedom", images("HWC"), {"axes": [2], "ddof": 3, "epsilon": 400.0}, "HWC", normalize_reference, 1e-5),
    Case("normalize", "rows", images("HWC", "int16", low=-3000, high=3000), {"axes": [1]}, "HWC", normalize_reference, 1e-5),
    Case("normalize", "every pixel", images("HWC", "float64"), {"axes": 2}, "HWC", normalize_reference, 1e-4),
    Case("normalize", "rows and channels", images("HWC", "int32"), {"axes": [0, 2]}, "HWC", normalize_reference, 1e-5),
    Case("normalize", "to uint8", images("HW", "uint16"), {"scale": 40.0, "shift": 100.0, "dtype": "u8"}, "HW", normalize_reference, 1),
    Case("normalize", "numbers", images("HWC"), {"mean": 120.0, "stddev": 60.0, "epsilon": 0.5}, "HWC", normalize_reference, 1e-5),
    Case("normalize", "a number", images("HWC"), {"mean": Each([1.0, 120.0, 300.0]), "axes": [0, 1]}, "HWC", normalize_reference, 1e-5),
    Case("normalize", "means", images("HWC"), {"mean": Each(means(1, 1, 3)), "stddev": Each(means(1, 1, 3))}, "HWC", normalize_reference, 1e-5),
    Case("normalize", "a mean", images("HWC", "float32"), {"mean": means(1, 1, 3)[0]}, "HWC", normalize_reference, 1e-4),
    Case("normalize", "deviations", images("HWC"), {"stddev": Each(means(1, 1, 3)), "axes": [0, 1]}, "HWC", normalize_reference, 1e-5),
    Case("normalize", "several tiles", images("HWC", H=61, W=83), {"axes": [0, 1], "ddof": 1}, "HWC", normalize_reference, 1e-5),
    Case("normalize", "planes", images("CHW", "float32", H=61, W=83), {"axes": [1, 2]}, "CHW", normalize_reference, 1e-5),
    Case("normalize", "nothing", arrays((5, 7, 0)), {"axes": [2]}, "HWC", lambda sample, **_: sample.astype(np.float32)),
    Case("normalize", "frames", images("FHWC", "float16"), {"axes": [1, 2]}, "FHWC", normalize_reference, 1e-4),
    Case("lookup_table", "several tiles", images("HWC", H=61, W=83), {"keys": LEVELS, "values": LEVELS, "dtype": "u8"}, "HWC", looked_up),
    Case("lookup_table", "uint8", images("HWC"), {"keys": LEVELS, "values": [k / 2 for k in LEVELS], "default_value": -1}, "HWC", looked_up),
    Case("lookup_table", "uint8 to uint8", images("FHWC"), {"keys": [3, 200], "values": [1.5, 300], "dtype": "u8"}, "FHWC", looked_up),
    Case("lookup_table", "to int16", images("DHWC"), {"keys": [0, 255, 7], "values": [-1.5, 4e4, 1], "dtype": "i16"}, "DHWC", looked_up),
    Case("lookup_table", "int32", images("HW", "int32", low=-5, high=20), {"keys": [0, 19, 5], "values": [3, 4, 5]}, "HW", looked_up),
    Case("lookup_table", "uint16", images("HW", "uint16", high=65536), {"keys": SOME, "values": SOME, "default_value": -1}, "HW", looked_up),
    Case("lookup_table", "one key", images("HW", "int64", high=3), {"keys": 1, "values": 0.5, "default_value": 7, "dtype": "f16"}, "HW", looked_up),
    Case("cast", "uint8 to float32", images("HWC"), {"dtype": "f32"}, "HWC", plain),
    Case("cast", "float32 to uint8", images("HWC", "float32", low=-50, high=300), {"dtype": "u8"}, "HWC", plain),
    Case("cast", "int64 to int16", images("DHWC", "int64", low=-50000, high=50000), {"dtype": "i16"}, "DHWC", plain),
    Case("cast", "float64 to float16", images("FHWC", "float64"), {"dtype": "f16"}, "FHWC", plain),
    Case("cast", "uint16 to bool", images("HW", "uint16", high=3), {"dtype": "bool"}, "HW", plain),
    Case("cast", "uint8 to float16, several tiles", images("HWC", H=61, W=83), {"dtype": "f16"}, "HWC", plain),
    Case("cast", "int32 to uint8, several tiles", images("HWC", "int32", low=-50, high=300, H=61, W=83), {"dtype": "u8"}, "HWC", plain),
    Case("cast", "the same", images("HWC"), {"dtype": "u8"}, "HWC", plain),
]


@pytest.mark.parametrize("source", DTYPES, ids=types.dtype_name)
@pytest.mark.parametrize("target", DTYPES, ids=types.dtype_name)
def test_every_pair_is_exact(source: torch.dtype, target: torch.dtype) -> None:
    values = interesting(source)
    result = ndd.cast(values, dtype=target).torch()
    assert result.dtype is target
    wide = values.double() if source in FLOATS else values
    numbers = result.double().tolist() if target in FLOATS else result.tolist()
    for value, ours in zip(wide.tolist(), numbers, strict=True):
        if target in FLOATS:
            assert ours == values.new_tensor(value).to(target).item() or ours == convert_reference(value, target), value
        else:
            assert ours == convert_reference(value, target), value


@pytest.mark.parametrize("count", [0, 1, 63, 1025, 5000])
def test_any_length(count: int) -> None:
    values = torch.arange(count, dtype=torch.int32) - 7
    for target in (torch.uint8, torch.float32, torch.int64, torch.uint16):
        expected = values.long().clamp(torch.iinfo(target).min, torch.iinfo(target).max).to(target) if target is not torch.float32 else values.float()
        assert torch.equal(ndd.cast(values, dtype=target).torch(), expected)


def test_a_result_larger_than_the_caches() -> None:
    values = torch.randint(0, 256, (3, 3, 700_001), dtype=torch.uint8)
    assert torch.equal(ndd.cast(ndd.as_batch(values), dtype="f32").torch(), values.float())


def test_dtype_is_needed() -> None:
    with pytest.raises(TypeError, match=r"cast.*dtype"):
        ndd.cast(torch.zeros(3))


@pytest.mark.parametrize("dtype", INTEGERS, ids=types.dtype_name)
@pytest.mark.parametrize("target", [torch.uint8, torch.int16, torch.float32, torch.float64], ids=types.dtype_name)
def test_keys_of_every_type(dtype: torch.dtype, target: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    numbers = [n for n in (limits.min, -1, 0, 1, 77, 127, 255, 256, 65535, 65536, 2**32 + 1, limits.max) if limits.min <= n <= limits.max]
    keys = [1, 77, 65535, 0]
    result = ndd.lookup_table(np.array(numbers, str(dtype).removeprefix("torch.")), keys=keys, values=[2, 3, 4, 5], default_value=9, dtype=target)
    assert result.torch().tolist() == [{1: 2, 77: 3, 65535: 4, 0: 5}.get(n, 9) for n in numbers]


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 129, 1000, 1024, 1100, 5001])
def test_bytes_of_any_number(count: int) -> None:
    values = np.random.default_rng(0).integers(0, 256, count).astype(np.uint8)
    table = np.random.default_rng(1).permutation(256)
    for dtype in (np.uint8, np.int16, np.float32, np.float64):
        result = np.asarray(ndd.lookup_table(values, keys=range(256), values=table, dtype=dtype).evaluate())
        np.testing.assert_array_equal(result, table[values].astype(dtype))


def test_the_largest_table() -> None:
    """Tracing 65,536 keys takes torch.compile 17 seconds; the generic tests use 256."""
    values = np.random.default_rng(2).permutation(65536)
    data = np.arange(65536, dtype=np.uint16)
    result = ndd.lookup_table(data, keys=range(65536), values=values)
    np.testing.assert_array_equal(np.asarray(result.evaluate()), values.astype(np.float32))


def test_lookup_table_without_keys_and_with_repeated_ones() -> None:
    assert ndd.lookup_table(np.arange(3), default_value=2.5).torch().tolist() == [2.5] * 3
    assert ndd.lookup_table(np.arange(3), keys=[1, 1], values=[5, 6]).torch().tolist() == [0, 6, 0]
    assert ndd.lookup_table(np.array([False, True]), keys=[1], values=[6]).torch().tolist() == [0, 6]


def test_wrong_tables() -> None:
    for args in ({"keys": [1]}, {"keys": [1, 2], "values": [3]}, {"keys": [-1], "values": [3]}, {"keys": [65536], "values": [3]}):
        with pytest.raises(RuntimeError, match=r"lookup_table.*keys"):
            ndd.lookup_table(np.arange(3), **args)
    with pytest.raises(RuntimeError, match=r"lookup_table.*float32"):
        ndd.lookup_table(np.zeros(3, np.float32), keys=1, values=2)
    with pytest.raises(TypeError, match=r"lookup_table.*keys"):
        ndd.lookup_table(np.arange(3), keys=[1.5], values=[2])


def test_output_dtype_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match=r"lookup_table.*dtype"):
        assert ndd.lookup_table(np.arange(3), keys=1, values=2, output_dtype="u8").dtype is torch.uint8


def test_cast_like_broadcasts() -> None:
    output = ndd.cast_like(ndd.tensor([1.5, -2]), ndd.batch([[1], [2, 3]], dtype="u8"))
    assert [value.tolist() for value in (t.torch() for t in output.tensors)] == [[2, 0], [2, 0]]
    assert isinstance(ndd.cast_like(ndd.tensor([1.5]), ndd.tensor([2])), ndd.Tensor)
    with pytest.raises(ValueError, match=r"cast_like.*batch"):
        ndd.cast_like(ndd.batch([[1], [2]]), ndd.batch([[1], [2], [3]]))


def normalize_batch(samples: list[np.ndarray], axes: tuple[int, ...], ddof: int = 0) -> list[np.ndarray]:
    wide = [sample.astype(np.float64) for sample in samples]
    count = sum(np.prod([sample.shape[d] for d in axes]) for sample in wide)
    mean = sum(sample.sum(axes, keepdims=True) for sample in wide) / count
    variance = sum(((sample - mean) ** 2).sum(axes, keepdims=True) for sample in wide) / (count - ddof)
    return [(sample - mean) / np.sqrt(variance) for sample in wide]


@pytest.mark.parametrize("dtype", ["uint8", "float32", "int32"])
@pytest.mark.parametrize(("axes", "ddof"), [([0, 1, 2], 0), ([0, 1], 0), ([0], 1), ([0, 1, 2], 1)])
def test_normalize_by_the_batch(dtype: str, axes: list[int], ddof: int) -> None:
    samples = [np.random.default_rng(i).uniform(10 * i, 200, (20 + i, 31, 3)).astype(dtype) for i in range(5)]
    expected = normalize_batch(samples, tuple(axes), ddof)
    for threads in (1, 4):
        ndd.set_num_threads(threads)
        output = ndd.normalize(ndd.batch(samples, layout="HWC"), axes=axes, batch=True, ddof=ddof)
        for sample, other in zip(output.tensors, expected, strict=True):
            np.testing.assert_allclose(np.asarray(sample), other, atol=1e-5)


def test_normalize_by_the_batch_of_pending_samples() -> None:
    samples = [np.full((4, 4 + i), i, np.uint8) for i in range(3)]
    with ndd.EvalMode.deferred:
        output = ndd.normalize(ndd.cast(ndd.batch(samples), dtype="f32"), batch=True)
    for sample, other in zip(output.tensors, normalize_batch(samples, (0, 1)), strict=True):
        np.testing.assert_allclose(np.asarray(sample), other, atol=1e-6)


@pytest.mark.parametrize("batch", [[1.0, 2.0], ndd.tensor([[[1.0]], [[2.0]]])], ids=["list", "tensor"])
def test_normalize_without_samples(batch: list[float] | ndd.Tensor) -> None:
    images = ndd.as_batch(np.zeros((0, 2, 5, 3), np.uint8), layout="HWC")
    for options in ({"mean": batch}, {"stddev": batch}, {"mean": batch, "axes": [1, 2]}):
        assert ndd.normalize(images, **options).evaluate().batch_size == 0


def test_normalize_with_parameters_of_every_size() -> None:
    samples = [np.random.default_rng(i).uniform(0, 255, (5 + i, 7, 3)).astype(np.float32) for i in range(3)]
    mean = [sample.mean((1, 2), keepdims=True) for sample in samples]  # (5 + i, 1, 1)
    output = ndd.normalize(ndd.batch(samples), mean=ndd.batch(mean))
    for part, sample, center in zip(output.tensors, samples, mean, strict=True):
        np.testing.assert_allclose(np.asarray(part), normalize_reference(sample, mean=center), atol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64", "int64"])
def test_constant_data(dtype: str) -> None:
    """Small differences of large numbers: the squares must not cancel."""
    image = np.full((33, 41, 3), 77.3).astype(dtype)
    assert (np.asarray(ndd.normalize(image, shift=3.0).evaluate()) == 3).all()
    assert (np.asarray(ndd.normalize(image, axes=[0, 1]).evaluate()) == 0).all()
    assert (np.asarray(ndd.normalize(image, mean=1.0, stddev=0.0).evaluate()) == 0).all()
    assert (np.asarray(ndd.normalize(image + np.arange(3).astype(dtype), axes=2, ddof=3).evaluate()) == 0).all()
    image = np.full((33, 41), 1e6 if dtype != "uint8" else 200).astype(dtype)
    image[::2] += 1
    assert np.abs(np.asarray(ndd.normalize(image).evaluate())).max() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("shape", [(), (0, 3), (3, 0), (1, 1), (0,)])
def test_normalize_small_samples(shape: tuple[int, ...]) -> None:
    result = ndd.normalize(np.ones(shape, np.float32), **({"axes": 0} if shape else {})).evaluate()
    assert result.shape == shape
    assert not np.asarray(result).any()


def test_wrong_parameters_of_normalize() -> None:
    image = np.zeros((4, 5, 3), np.uint8)
    wrong = [
        {"axes": [3]},
        {"axes": []},
        {"axes": [0, 0]},
        {"axes": [0], "axis_names": "W"},
        {"axis_names": "D"},
        {"mean": np.zeros((1, 5, 3)), "axes": [0, 1]},
        {"mean": [1.0, 2.0]},
        {"mean": np.zeros((4, 1, 1)), "stddev": np.zeros((1, 1, 3))},
        {"mean": np.zeros((1, 1, 3)), "batch": True},
    ]
    for args in wrong:
        with pytest.raises(RuntimeError, match="normalize"):
            ndd.normalize(ndd.tensor(image, layout="HWC"), **args)
    for layout, shape in (("HWC", "(1, 1, 3)"), ("CHW", "(4, 1, 1)")):
        with pytest.raises(RuntimeError, match=re.escape(f"have the shape {shape}")):
            ndd.normalize(ndd.tensor(image, layout=layout), mean=[1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match=r"normalize.*extents"):
        ndd.normalize(ndd.batch([image, image[1:]]), axes=[1], batch=True)
    with pytest.raises(ValueError, match=r"normalize.*batch"):
        ndd.normalize(ndd.batch([image, image]), mean=ndd.batch([1.0, 2.0, 3.0]))
