# SPDX-License-Identifier: Apache-2.0
"""Construction, slicing and broadcasting of Hypothesis-generated data, compared with NumPy."""

from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from conftest import CI, WHOLE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import torch_ndd as ndd

settings.register_profile(
    "torch_ndd",
    max_examples=1000 if WHOLE else 300 if CI else 100,
    deadline=None,
    database=None,
    derandomize=CI,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("torch_ndd")

DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "bool"]
EXTENTS = arrays.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=5)
RANGES = {"int32": (-(2**31), 2**31 - 1), "uint32": (2**31, 2**32 - 1)}


@st.composite
def any_arrays(draw: Any, dtypes: Any = DTYPES, shapes: Any = EXTENTS) -> np.ndarray:
    """An array of any type, with any strides, sometimes read-only or big-endian."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    array = draw(arrays.arrays(dtype, draw(shapes) if isinstance(shapes, st.SearchStrategy) else shapes))
    if draw(st.booleans()):
        array = array.astype(dtype.newbyteorder(">"))
    if draw(st.booleans()):
        array = np.asarray(array, order="F")
    if array.ndim and draw(st.booleans()):
        array = array[:: draw(st.sampled_from([-1, 2]))]
    if draw(st.booleans()):
        array.flags.writeable = False
    return array


@st.composite
def numbers_in_lists(draw: Any) -> Any:
    """Nested lists, not ragged, of Python numbers of one kind."""
    kind = draw(st.sampled_from(["int32", "uint32", "float", "bool"]))
    element = {
        "int32": st.integers(*RANGES["int32"]),
        "uint32": st.integers(*RANGES["uint32"]),
        "float": st.floats(width=32),
        "bool": st.booleans(),
    }[kind]
    return draw(arrays.arrays(object, draw(EXTENTS), elements=element)).tolist(), kind


def equal(output: Any, expected: np.ndarray) -> None:
    found = np.asarray(output)
    assert found.shape == output.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@given(any_arrays())
def test_arrays_keep_values_and_type(array: np.ndarray) -> None:
    for make in (ndd.tensor, ndd.as_tensor):
        output = make(array)
        equal(output, array)
        assert np.asarray(output).dtype == array.dtype.newbyteorder("=")
    if array.ndim:
        batch = ndd.as_batch(array)
        assert (batch.shape, batch.ndim) == ([array.shape[1:]] * len(array), array.ndim - 1)
        for part, sample in zip(batch, array, strict=True):
            equal(part, sample)


@given(numbers_in_lists())
def test_lists_have_the_narrowest_type(case: tuple[Any, str]) -> None:
    data, kind = case
    tensor = ndd.tensor(data)
    expected = np.asarray(data, np.float32 if kind == "float" else None)
    equal(tensor, expected)
    wanted = {"int32": ndd.int32, "uint32": ndd.uint32, "float": ndd.float32, "bool": ndd.bool}[kind]
    assert tensor.dtype == (wanted if expected.size else ndd.float32)


@given(st.integers(-(2**66), 2**66), st.sampled_from([name for name in DTYPES if "int" in name]))
def test_integers_fit_or_overflow(number: int, dtype: str) -> None:
    limits = np.iinfo(dtype)
    if limits.min <= number <= limits.max:
        assert ndd.tensor(number, dtype=getattr(ndd, dtype)).item() == number
    else:
        with pytest.raises(OverflowError):
            ndd.tensor(number, dtype=getattr(ndd, dtype))
    if -(2**31) <= number < 2**32:
        assert ndd.tensor([number]).item() == number
    else:
        with pytest.raises(OverflowError):
            ndd.tensor([number])


@given(any_arrays([name for name in DTYPES if "int" in name]), st.sampled_from(DTYPES))
def test_integers_are_converted_exactly_or_to_the_nearest(array: np.ndarray, dtype: str) -> None:
    tensor = np.asarray(ndd.as_tensor(array, dtype=getattr(ndd, dtype)))
    assert tensor.dtype == np.dtype(dtype)
    if tensor.dtype.kind in "iu":
        limits = np.iinfo(dtype)
        expected = np.array([min(max(int(x), limits.min), limits.max) for x in array.flat], dtype).reshape(array.shape)
    else:
        with np.errstate(over="ignore"):
            expected = array.astype(dtype)
    np.testing.assert_array_equal(tensor, expected)


@given(st.data())
def test_batches_of_samples_of_any_shape(data: st.DataObject) -> None:
    ndim, dtype = data.draw(st.integers(0, 4)), data.draw(st.sampled_from(DTYPES))
    shapes = arrays.array_shapes(min_dims=ndim, max_dims=ndim, min_side=0, max_side=4) if ndim else st.just(())
    samples = data.draw(st.lists(any_arrays([dtype], shapes), min_size=1, max_size=6))
    batch = ndd.batch(samples)
    assert (batch.batch_size, batch.ndim, batch.shape) == (len(samples), ndim, [sample.shape for sample in samples])
    for part, sample in zip(batch, samples, strict=True):
        equal(part, sample)
    keys = data.draw(st.lists(st.integers(-len(samples), len(samples) - 1), max_size=8))
    chosen = batch.select(keys)
    assert (chosen.batch_size, chosen.ndim, chosen.dtype) == (len(keys), ndim, batch.dtype)
    for part, k in zip(chosen, keys, strict=True):
        equal(part, samples[k])
    values, lengths, mask = batch.padded(1)
    assert lengths.torch().tolist() == [list(sample.shape) for sample in samples]
    assert int(np.asarray(mask).sum()) == sum(sample.size for sample in samples)
    for i, image in enumerate(samples):
        window = (i, *(slice(n) for n in image.shape))
        np.testing.assert_array_equal(np.asarray(values)[window], image)
        assert np.asarray(mask)[window].all()
    assert np.asarray(values)[~np.asarray(mask)].all()


@given(st.data())
def test_indexing_equals_numpy(data: st.DataObject) -> None:
    array = np.arange(np.prod(shape := data.draw(EXTENTS), dtype=int), dtype=np.int32).reshape(shape)
    letters = "ABCDE"[: array.ndim]
    tensor, expected, layout = ndd.tensor(array, layout=letters), array, letters
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(arrays.basic_indices(expected.shape, allow_newaxis=False))
        keys = key if isinstance(key, tuple) else (key,)
        before = next((k for k, key in enumerate(keys) if key is Ellipsis), len(keys))
        behind = expected.ndim - len(keys) + before + 1
        dropped = {k if k < before else behind + k - before - 1 for k, key in enumerate(keys) if isinstance(key, int)}
        layout = "".join(letter for k, letter in enumerate(layout) if k not in dropped)
        tensor, expected = tensor[key], expected[key]
        equal(tensor, np.asarray(expected))
        assert tensor.layout == (layout or None)


_BOUNDS = st.none() | st.integers(-7, 7)


@st.composite
def sample_keys(draw: Any, size: int) -> tuple[Any, list[Any]]:
    """A slice with bounds for all samples or per sample: for ``batch.slice``, and one for each sample."""

    def bound(numbers: Any) -> tuple[Any, list[Any]]:
        if draw(st.booleans()):
            each = draw(st.lists(numbers.filter(lambda n: n is not None), min_size=size, max_size=size))
            return ndd.batch(each), each
        bound = draw(numbers)
        return bound, [bound] * size

    parts = [bound(_BOUNDS), bound(_BOUNDS), bound(st.sampled_from([None, 1, 2, 3, -1, -2, -3]))]
    return slice(*(ours for ours, _ in parts)), [slice(*each) for each in zip(*(each for _, each in parts), strict=True)]


@given(st.data())
def test_slicing_every_sample(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 3))
    shapes = data.draw(st.lists(arrays.array_shapes(min_dims=ndim, max_dims=ndim, min_side=0, max_side=5), min_size=1, max_size=5))
    samples = [np.arange(np.prod(shape), dtype=np.int16).reshape(shape) for shape in shapes]
    keys = [data.draw(sample_keys(len(samples))) for _ in range(data.draw(st.integers(1, ndim)))]
    output = ndd.batch(samples, layout="ABC"[:ndim]).slice[tuple(ours for ours, _ in keys)]
    assert output.layout == "ABC"[:ndim]
    for i, (part, sample) in enumerate(zip(output, samples, strict=True)):
        equal(part, sample[tuple(each[i] for _, each in keys)])


@given(arrays.mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=4, max_dims=4), st.sampled_from("+*"))
def test_broadcasting_tensors(shapes: Any, operation: str) -> None:
    left, right = (np.arange(1, 1 + np.prod(shape, dtype=int), dtype=np.int32).reshape(shape) for shape in shapes.input_shapes)
    a, b = ndd.tensor(left), ndd.tensor(right)
    equal(a + b if operation == "+" else a * b, np.asarray(left + right if operation == "+" else left * right))


@given(st.data())
def test_broadcasting_batches(data: st.DataObject) -> None:
    shapes = data.draw(
        st.lists(arrays.mutually_broadcastable_shapes(num_shapes=2, min_dims=2, max_dims=2, min_side=0, max_side=4), min_size=1, max_size=4)
    )
    pairs = [[np.arange(1, 1 + np.prod(shape), dtype=np.int32).reshape(shape) for shape in case.input_shapes] for case in shapes]
    left, right = ndd.batch([a for a, _ in pairs]), ndd.batch([b for _, b in pairs])
    for output, (a, b) in zip(left * right, pairs, strict=True):
        equal(output, a * b)
    for output, (a, _) in zip(left + 3, pairs, strict=True):
        equal(output, a + 3)


@given(EXTENTS, EXTENTS)
def test_shapes_that_numpy_cannot_broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    try:
        shape = np.broadcast_shapes(left, right)
    except ValueError:
        with pytest.raises(RuntimeError, match="broadcast"):
            _ = ndd.tensor(np.zeros(left)) + ndd.tensor(np.zeros(right))
    else:
        assert (ndd.tensor(np.zeros(left)) + ndd.tensor(np.zeros(right))).shape == shape
