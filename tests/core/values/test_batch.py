# SPDX-License-Identifier: Apache-2.0
import copy
import io
import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import torch_ndd as ndd

RAGGED = [np.arange(6).reshape(2, 3), np.arange(12).reshape(4, 3), np.arange(2).reshape(2, 1)]


def contents(batch: ndd.Batch) -> list[Any]:
    return [sample.torch().tolist() for sample in batch]


@pytest.mark.parametrize("make", [ndd.batch, ndd.as_batch, ndd.Batch])
def test_batch_constructors_agree(make: Any) -> None:
    dense, ragged = make(np.zeros((4, 2, 3), np.uint8), layout="HW"), make(RAGGED, layout="HW")
    assert (dense.batch_size, dense.shape, dense.ndim, dense.dtype, dense.layout) == (4, [(2, 3)] * 4, 2, ndd.uint8, "HW")
    assert (ragged.batch_size, ragged.shape, ragged.ndim, ragged.dtype) == (3, [(2, 3), (4, 3), (2, 1)], 2, ndd.int64)
    assert contents(ragged) == [sample.tolist() for sample in RAGGED]
    assert contents(make([1, 2.5])) == [1, 2]
    assert contents(make([2.5, 1])) == [2.5, 1.0]
    assert contents(make([np.array([7], np.uint8), np.array([300.0, -5.0, 2.5], np.float32)])) == [[7], [255, 0, 3]]
    assert contents(make(k for k in range(3))) == [0, 1, 2]
    assert contents(make(ndd.tensor([[1, 2], [3, 4]]))) == [[1, 2], [3, 4]]
    assert contents(make([ndd.tensor([1]), torch.tensor([2, 3])])) == [[1], [2, 3]]
    assert make([1, 2], dtype="f32").dtype == ndd.float32
    assert make(np.array([1.6, 300.0]), dtype="u8").torch().tolist() == [2, 255]
    assert contents(make({1: "a", 3: "b"})) == [1, 3]
    assert contents(make((np.ones(2), np.zeros(1)))) == [[1, 1], [0]]
    assert contents(make([torch.zeros(2), torch.ones(1, dtype=torch.int32)])) == [[0.0, 0.0], [1.0]]
    assert contents(make([True, 2])) == [True, True]
    assert contents(make(np.arange(6).reshape(3, 2).T)) == [[0, 2, 4], [1, 3, 5]]
    assert contents(make([np.arange(6)[::2], np.arange(2)])) == [[0, 2, 4], [0, 1]]
    assert contents(make([[1], [2.9]])) == [[1], [2]]
    assert make([np.float64(1), np.float64(2)]).dtype == ndd.float64
    assert make([1.7, -2.5], dtype=ndd.int8).torch().tolist() == [1, -2]
    assert make(make([1, 2, 3]).tensors).torch().tolist() == [1, 2, 3]
    assert make(np.zeros((0, 3))).shape == []
    empty = make([], dtype=ndd.float32)
    assert (empty.batch_size, empty.shape, empty.ndim, empty.dtype) == (0, [], 0, ndd.float32)


@pytest.mark.parametrize(
    ("data", "options", "error", "text"),
    [
        ([], {}, ValueError, "Element type"),
        (5, {}, TypeError, "int"),
        (None, {}, (TypeError, ValueError), "None|missing"),
        ("text", {}, RuntimeError, "str"),
        (["text"], {}, RuntimeError, "str"),
        ([1, 2**31], {}, OverflowError, "int32"),
        ([np.uint8(1), 300], {}, OverflowError, "uint8"),
        ([2**32], {}, OverflowError, "uint32"),
        ([[[1, 2], [3]]], {}, ValueError, "inhomogeneous"),
        ([1j], {}, TypeError, "complex"),
        (np.float32(3), {}, ValueError, "scalar"),
        (ndd.tensor(3), {}, ValueError, "scalar"),
        ([1, None], {}, TypeError, "sample 1"),
        ([1, object()], {}, TypeError, "sample 1|object"),
        ([ndd.batch([1])], {}, (TypeError, ValueError), "Batch"),
        ([[1], [[2]]], {}, RuntimeError, "samples must have as many"),
        (np.zeros((2, 3, 4)), {"layout": "NHW"}, ValueError, "layout"),
        ([[1]], {"layout": "HW"}, ValueError, "layout"),
        ([[1]], {"dtype": "float128"}, ValueError, "float128"),
        ([[1]], {"device": "tpu"}, ValueError, "tpu"),
    ],
)
def test_batch_rejects_other_objects(data: Any, options: dict[str, Any], error: Any, text: str) -> None:
    for make in (ndd.batch, ndd.as_batch, ndd.Batch):
        with pytest.raises(error, match=text):
            make(data, **options)


def test_memory_is_shared_by_as_batch_only() -> None:
    array = np.zeros((2, 3), np.float32)
    copied, shared = ndd.batch(array), ndd.as_batch(array)
    array[:] = 7
    assert (copied.torch().max(), shared.torch().min()) == (0, 7)
    assert ndd.as_batch(copied) is copied
    assert ndd.batch(copied).torch().data_ptr() != copied.torch().data_ptr()
    assert ndd.as_batch(copied, layout="W").layout == "W"
    assert copied.layout is None
    assert ndd.as_batch(copied, dtype="u8").dtype == ndd.uint8
    assert ndd.as_batch(ndd.tensor(array, layout="FW")).layout == "W"
    assert ndd.as_batch(copied, dtype=ndd.float32, layout="") is copied
    assert copied.to_device("cpu", force_copy=True).torch().data_ptr() != copied.torch().data_ptr()


def test_batch_layouts() -> None:
    image, other = ndd.tensor(np.zeros((2, 2)), layout="HW"), ndd.tensor(np.zeros((1, 2)))
    assert ndd.batch([image, other]).layout == ndd.batch([other, image]).layout == "HW"
    assert ndd.batch([image, ndd.as_tensor(other, layout="XY")]).layout == "HW"
    assert ndd.batch([image, other], layout="AB").layout == "AB"
    assert ndd.batch([image], layout="").layout is None
    assert ndd.batch([], dtype=ndd.uint8, layout="HWC").ndim == 3
    for wrong in ("H", "NHW"):
        with pytest.raises(ValueError, match="dimensions"):
            ndd.as_batch(ndd.batch([image]), layout=wrong)


def test_adjoining_samples_share_memory() -> None:
    values = torch.arange(24).reshape(4, 3, 2)
    for samples in (list(values), values.split([1, 3])):
        batch, pointer = ndd.as_batch(samples), values.data_ptr()
        assert batch.buffer.data_ptr() == pointer
        assert contents(batch) == [sample.tolist() for sample in samples]
        assert ndd.batch(samples).buffer.data_ptr() != pointer
    ragged = ndd.batch(RAGGED)
    for key in (slice(0, 2), slice(1, 3), slice(1, 2)):
        part = ndd.as_batch(ragged.tensors[key].tolist())
        assert part.buffer.data_ptr() == ragged.tensors[key][0].torch().data_ptr()
        assert contents(part) == [sample.tolist() for sample in RAGGED[key]]
    for samples in ([values[1], values[0]], [values[0], values[2]], [values[0], values[0]], [values[0].clone(), values[1]]):
        batch = ndd.as_batch(samples)
        assert contents(batch) == [sample.tolist() for sample in samples]
        samples[0][0, 0] = 100
        assert contents(batch)[0] != samples[0].tolist(), "a copy, as as_batch of separate arrays"
        samples[0][0, 0] = 0


def test_broadcast_repeats_a_sample() -> None:
    output = ndd.Batch.broadcast(ndd.tensor([[1, 2]], layout="HW"), 3)
    assert (output.torch().tolist(), output.layout) == ([[[1, 2]]] * 3, "HW")
    assert ndd.Batch.broadcast(np.float64(2), 2).dtype == ndd.float64
    assert ndd.Batch.broadcast(5, 0).batch_size == 0
    assert ndd.Batch.broadcast(5, 2, dtype="f32").torch().tolist() == [5.0, 5.0]
    with pytest.raises(ValueError, match="Cannot broadcast a Batch"):
        ndd.Batch.broadcast(output, 2)
    assert ndd.Batch.broadcast(torch.arange(3), 2, dtype="u8").torch().tolist() == [[0, 1, 2]] * 2
    assert ndd.Batch.broadcast(1, np.int64(2)).batch_size == 2
    for size in (None, 2.0, "2"):
        with pytest.raises(TypeError):
            ndd.Batch.broadcast(1, size)
    for sample, error in ((None, TypeError), ("a", RuntimeError), (2**40, OverflowError)):
        with pytest.raises(error):
            ndd.Batch.broadcast(sample, 2)
    with pytest.raises(ValueError, match="negative"):
        ndd.Batch.broadcast(1, -1)
    array = np.ones(3)
    repeated = ndd.Batch.broadcast(array, 2)
    array[:] = 0
    assert repeated.torch().tolist() == [[1, 1, 1]] * 2


@pytest.mark.parametrize("data", [RAGGED, list(np.arange(12).reshape(3, 2, 2))], ids=["ragged", "dense"])
def test_tensors_is_a_list_of_samples(data: list[np.ndarray]) -> None:
    batch = ndd.batch(data, layout="HW")
    samples = batch.tensors
    assert len(samples) == 3
    assert samples[-1] is samples[np.int64(2)]
    assert samples[1].layout == "HW"
    assert [sample.torch().tolist() for sample in samples[1:]] == [sample.tolist() for sample in data[1:]]
    assert [sample.torch().tolist() for sample in samples[[2, 0, 0]].tolist()] == [data[k].tolist() for k in (2, 0, 0)]
    assert contents(samples[[2, 0]].as_batch()) == [data[2].tolist(), data[0].tolist()]
    assert samples.as_batch() is batch
    assert samples.select(0) is batch.select(0)
    assert [sample.shape for sample in batch] == batch.shape
    for wrong in (3, -4):
        with pytest.raises(IndexError):
            samples[wrong]
        with pytest.raises(IndexError):
            batch.select(wrong)
    for wrong in ((0, 1), 1.0, "a", None):
        with pytest.raises(TypeError):
            samples[wrong]
    assert samples[1:][0] is samples[1] is samples[[1]][0] is batch.select(1) is list(batch)[1]
    assert samples[[2, 0]][::-1].as_batch().shape == [data[0].shape, data[2].shape]
    assert (samples[0] in samples, ndd.tensor(data[0]) in samples) == (True, False)
    assert samples[...] is samples.select(...) is batch
    assert samples[np.array([2, 0])][1] is samples[0]
    copied = samples.as_batch(copy=True)
    assert (contents(copied), copied.layout) == (contents(batch), "HW")
    assert copied.buffer.data_ptr() != batch.buffer.data_ptr()
    assert samples[1:].as_batch().buffer.data_ptr() == samples[1].torch().data_ptr()
    assert repr(samples[1:]) == "<2 of the 3 samples of a Batch>"
    with pytest.raises(TypeError):
        hash(samples)


@pytest.mark.parametrize("data", [RAGGED, list(np.arange(12).reshape(3, 2, 2))], ids=["ragged", "dense"])
def test_select_returns_samples_or_batches(data: list[np.ndarray]) -> None:
    batch = ndd.batch(data, layout="HW")
    for key in ([1, 0], [2, 2, 2], [-1], slice(0, 1), slice(None, None, -1), slice(5, 9), [], np.array([1, 2])):
        chosen = batch.select(key)
        expected = data[key] if isinstance(key, slice) else [data[k] for k in key]
        assert contents(chosen) == [sample.tolist() for sample in expected]
        assert (chosen.dtype, chosen.layout, chosen.ndim) == (ndd.int64, "HW", 2)
    assert batch.select(1).torch().tolist() == data[1].tolist()
    assert batch.select(...) is batch


@pytest.mark.parametrize("data", [RAGGED, list(np.arange(12).reshape(3, 2, 2))], ids=["ragged", "dense"])
@pytest.mark.parametrize("mode", ndd.EvalMode)
def test_select_and_slice_wait_for_nothing(data: list[np.ndarray], mode: ndd.EvalMode) -> None:
    source = ndd.batch([sample.astype(np.float32) for sample in data], layout="HW")
    with mode:
        doubled = source * 2
        chosen = [doubled.select(key) for key in (slice(1, 3), [2, 0], slice(None, None, -1))]
        sliced = [doubled.slice[key] for key in (0, (slice(None), slice(0, 1)), slice(None, None, -1))]
        stacked, again = ndd.as_tensor(doubled, pad=True), ndd.as_batch(doubled, dtype="i16")
        chained = chosen[1].slice[0] + 1
        if mode == ndd.EvalMode.deferred:
            assert all(value.pending is not None and not value.pending.done() for value in (*chosen, *sliced, stacked, again, chained))
        expected = [2 * sample for sample in data]
        for output, picked in zip(chosen, ([1, 2], [2, 0], [2, 1, 0]), strict=True):
            assert contents(output) == [expected[k].tolist() for k in picked]
        for output, key in zip(sliced, (0, (slice(None), slice(0, 1)), slice(None, None, -1)), strict=True):
            assert contents(output) == [sample[key].tolist() for sample in expected]
        assert contents(chained) == [(expected[k][0] + 1).tolist() for k in (2, 0)]
        assert (again.dtype, contents(again)) == (ndd.int16, [sample.tolist() for sample in expected])
        for i, sample in enumerate(expected):
            assert stacked[i, : sample.shape[0], : sample.shape[1]].torch().tolist() == sample.tolist()


def test_slice_indexes_every_sample() -> None:
    batch = ndd.batch(RAGGED, layout="HW")
    for key in (0, -1, slice(1, None), slice(None, None, -1), (Ellipsis, 0), (slice(None), slice(0, 1)), (slice(-9, 99), slice(5, 9)), (1, 0)):
        assert contents(batch.slice[key]) == [sample[key].tolist() for sample in RAGGED]
    assert (batch.slice[0].layout, batch.slice[:, 0].layout, batch.slice[0, 0].layout) == ("W", "H", None)
    for everything in ((), Ellipsis, slice(None), (slice(None), slice(0, None))):
        assert batch.slice[everything] is batch
    rows = ndd.batch([1, 3, 0])
    assert contents(batch.slice[rows]) == [sample[k].tolist() for sample, k in zip(RAGGED, (1, 3, 0), strict=True)]
    assert contents(batch.slice[rows:, ndd.tensor(0)]) == [sample[k:, 0].tolist() for sample, k in zip(RAGGED, (1, 3, 0), strict=True)]
    dense = ndd.batch(np.arange(24).reshape(2, 3, 4), layout="HW")
    assert dense.slice[1:, ::2].torch().tolist() == np.arange(24).reshape(2, 3, 4)[:, 1:, ::2].tolist()
    assert contents(dense.slice[ndd.batch([0, 2])]) == [[0, 1, 2, 3], [20, 21, 22, 23]]


def test_slice_rejects_wrong_keys() -> None:
    batch = ndd.batch(RAGGED)
    with pytest.raises((IndexError, RuntimeError), match=r"3.*sample.*0"):
        batch.slice[3]
    with pytest.raises(ValueError, match="Inconsistent batch size"):
        batch.slice[ndd.batch([1, 2])]
    with pytest.raises(IndexError, match="sample 1"):
        batch.slice[ndd.batch([0, -5, 0])]
    with pytest.raises(RuntimeError, match="scalar"):
        batch.slice[ndd.batch([[0], [0], [0]])]
    with pytest.raises(RuntimeError, match="Too many indices"):
        batch.slice[0, 0, 0]
    with pytest.raises(ValueError, match="Ellipsis"):
        batch.slice[..., 0, ...]
    for zero in (0, ndd.batch([1, 0, 1])):
        with pytest.raises(ValueError, match="step"):
            batch.slice[::zero]
    for wrong in (1.5, None, "H", [0], np.array([0]), ndd.batch([0.0, 1.0, 2.0]), ndd.tensor([0])):
        with pytest.raises(TypeError):
            batch.slice[wrong]


def test_slice_with_bounds_for_each_sample() -> None:
    batch = ndd.batch(RAGGED, layout="HW")
    for starts, stops, steps in (((0, 1, 5), (2, -1, 9), (1, 2, 1)), ((-1, 3, 0), (0, -9, -3), (-1, -2, -1)), ((-3, -9, 2), (99, 99, 0), (2, 3, -1))):
        output = batch.slice[ndd.batch(starts) : ndd.batch(stops) : ndd.batch(steps)]
        assert contents(output) == [sample[a:b:c].tolist() for sample, a, b, c in zip(RAGGED, starts, stops, steps, strict=True)]
    assert contents(batch.slice[: ndd.batch([1, 2, 0], dtype="u8"), 0]) == [
        sample[:k, 0].tolist() for sample, k in zip(RAGGED, (1, 2, 0), strict=True)
    ]
    assert contents(batch.slice[: 2**70, -(2**70) :]) == contents(batch)
    dense = ndd.batch(np.arange(12).reshape(3, 4))
    assert contents(dense.slice[ndd.batch([1, 2, 0]) :]) == [[1, 2, 3], [6, 7], [8, 9, 10, 11]]
    assert ndd.batch([], dtype=ndd.uint8, layout="HW").slice[0].ndim == 1


def test_torch_shares_or_copies() -> None:
    dense, ragged = ndd.batch([[1, 2], [3, 4]]), ndd.batch([[1, 2], [3]])
    assert dense.torch().data_ptr() == dense.torch(copy=False).data_ptr() != dense.torch(copy=True).data_ptr()
    assert ragged.torch(pad=True).tolist() == [[1, 2], [3, 0]]
    for copy_ in (None, True):
        with pytest.raises(ValueError, match="non-uniform shape"):
            ragged.torch(copy=copy_)
    with pytest.raises(ValueError, match="without a copy"):
        ragged.torch(copy=False, pad=True)
    assert ndd.batch([np.zeros((2, 0)), np.zeros((1, 3))]).torch(pad=True).shape == (2, 2, 3)


def test_padded_returns_values_lengths_and_mask() -> None:
    values, lengths, mask = ndd.batch([np.ones((2, 3)), np.ones((1, 5)), np.ones((0, 2))], layout="HW").padded(-1)
    assert (values.layout, values.shape, lengths.dtype, mask.dtype) == ("NHW", (3, 2, 5), ndd.int64, ndd.bool)
    assert lengths.torch().tolist() == [[2, 3], [1, 5], [0, 2]]
    assert values.torch()[mask.torch()].tolist() == [1] * 11
    assert values.torch()[~mask.torch()].tolist() == [-1] * 19
    assert mask.torch()[0].tolist() == [[True] * 3 + [False] * 2] * 2
    dense = ndd.batch(np.ones((2, 3)))
    assert dense.padded().values.torch().data_ptr() == dense.torch().data_ptr()
    assert dense.padded().mask.torch().tolist() == [[True] * 3] * 2
    assert math.isnan(ndd.batch([[1.0], []]).padded(float("nan")).values[1, 0].item())
    assert ndd.batch([np.array([1], np.uint8), np.zeros(0, np.uint8)]).padded(-100).values.torch().tolist() == [[1], [0]]
    empty = ndd.batch([], dtype=ndd.float32, layout="T").padded()
    assert (empty.values.shape, empty.lengths.shape, empty.mask.shape) == ((0, 0), (0, 1), (0, 0))
    for wrong in (0.1, "a", None, 2**24 + 1):
        with pytest.raises(ValueError, match="value"):
            dense.padded(wrong)
    many = ndd.batch([np.ones((1,) * 8), np.ones((2,) * 8)])
    assert many.torch(pad=True).sum() == 257
    with pytest.raises(ValueError, match=r"dimensions|asynchronous"):
        ndd.batch([np.ones((1,) * 9), np.ones((2,) * 9)]).torch(pad=True)
    assert ndd.batch([np.ones((2, 1, *(2,) * 8)), np.ones((2, 3, *(2,) * 8))]).torch(pad=True).sum() == 2048, "one of ten dimensions is padded"


def test_nested_tensors_of_a_batch() -> None:
    dense, rows, columns = ndd.batch(np.arange(12).reshape(2, 3, 2)), ndd.batch(RAGGED[:2]), ndd.batch([sample.T for sample in RAGGED[:2]])
    for batch, shared in ((dense, True), (rows, True), (columns, False), (ndd.batch([[1], [2, 3]]), True)):
        nested = batch.nested()
        assert nested.layout == torch.jagged
        assert [sample.tolist() for sample in nested.unbind()] == contents(batch)
        assert (nested.values().data_ptr() == batch.buffer.data_ptr()) is shared
    doubled = rows * 2
    assert [value.tolist() for value in (doubled.nested() + rows.nested()).unbind()] == [(3 * sample).tolist() for sample in RAGGED[:2]]
    wide = ndd.batch([np.ones((1, 2, 3)), np.ones((1, 4, 3))]).nested()
    assert [tuple(sample.shape) for sample in wide.unbind()] == [(1, 2, 3), (1, 4, 3)]
    strided = ndd.batch(RAGGED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that they are a prototype
        nested = strided.nested()
    assert (nested.layout, [sample.tolist() for sample in nested.unbind()]) == (torch.strided, contents(strided))
    with pytest.raises(ValueError, match="without dimensions"):
        ndd.batch([1, 2]).nested()


def test_batch_moves_between_devices() -> None:
    batch = ndd.batch(RAGGED)
    assert batch.cpu() is batch
    copied = batch.to_device("cpu", force_copy=True)
    assert contents(copied) == contents(batch)
    assert copied.buffer.data_ptr() != batch.buffer.data_ptr()
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError):
            batch.gpu()


def test_truth_of_a_batch_is_ambiguous() -> None:
    batch = ndd.as_batch([1, 2])
    for use in (lambda: bool(batch), lambda: batch == batch or 1, lambda: 0 < batch < 5, lambda: [batch].index(ndd.as_batch([1, 2]))):
        with pytest.raises(ValueError, match="each sample has its own"):
            use()


def test_missing_attributes_of_a_batch() -> None:
    batch = ndd.batch([[1], [2]])
    for wrong in (len, hash, lambda b: b[0]):
        with pytest.raises(TypeError):
            wrong(batch)
    for name in ("size", "nbytes", "itemsize", "item"):
        assert not hasattr(batch, name)


def test_arrays_of_a_batch() -> None:
    batch = ndd.batch([[1, 2], [3, 4]])
    assert np.asarray(batch).tolist() == torch.from_dlpack(batch).tolist() == np.from_dlpack(batch).tolist() == [[1, 2], [3, 4]]
    assert np.asarray(batch, np.float32).dtype == np.float32
    assert np.shares_memory(np.asarray(batch), np.asarray(batch))
    assert np.mean(batch) == 2.5
    for use in (np.asarray, torch.from_dlpack, np.from_dlpack):
        with pytest.raises(ValueError, match="non-uniform shape"):
            use(ndd.batch([[1], [2, 3]]))


def test_a_batch_cannot_be_converted_to_a_number() -> None:
    for number in (float, int):
        with pytest.raises(TypeError, match="cannot convert a Batch"):
            number(ndd.batch([1.5]))


def test_batch_repr() -> None:
    rest = 'dtype=i32,\n    layout="W",\n    device="cpu",\n    num_samples=2,\n    shape=[(2,), (1,)])'
    assert repr(ndd.batch([[1, 2], [3]], layout="W")) == "Batch(\n    [[1 2],\n    [3]],\n    " + rest
    assert repr(ndd.batch([1, 2])).startswith("Batch(\n    [1, 2],\n    dtype=i32,\n    device")
    assert repr(ndd.batch([], dtype=ndd.float32)).startswith("Batch(\n    [],\n    dtype=f32")
    many = repr(ndd.batch([[k] for k in range(1001)]))
    assert "[0],\n    [1],\n    ...,\n    [999],\n    [1000]]" in many
    assert "shape=[(1,), (1,), ..., (1,), (1,)])" in many


@pytest.mark.parametrize("member", ["batch_size", "shape", "ndim", "dtype", "layout", "device"])
def test_metadata_evaluates_nothing(member: str) -> None:
    known = {
        "batch_size": 3,
        "shape": [sample.shape for sample in RAGGED],
        "ndim": 2,
        "dtype": ndd.float32,
        "layout": "HW",
        "device": ndd.Device("cpu"),
    }
    with ndd.EvalMode.deferred:
        value = ndd.batch([sample.astype(np.float32) for sample in RAGGED], layout="HW") * 2
        assert getattr(value, member) == known[member]
        assert [sample.shape for sample in value] == known["shape"]
        assert value.pending is not None
        assert not value.pending.done()


@pytest.mark.parametrize("data", [RAGGED, list(np.arange(12).reshape(3, 2, 2))], ids=["ragged", "dense"])
def test_pytree_copies_and_pickles(data: list[np.ndarray]) -> None:
    batch = ndd.batch(data, layout="HW")
    leaves, spec = pytree.tree_flatten(batch)
    doubled = pytree.tree_unflatten([leaves[0] * 2, *leaves[1:]], spec)
    assert (contents(doubled), doubled.layout) == ([(2 * sample).tolist() for sample in data], "HW")
    batch.tensors[0].evaluate()
    file = io.BytesIO()
    torch.save([batch], file)
    file.seek(0)
    (loaded,) = torch.load(file, weights_only=True)
    for other in (copy.copy(batch), copy.deepcopy(batch), pickle.loads(pickle.dumps(batch)), loaded):
        assert (contents(other), other.layout) == (contents(batch), "HW")
    assert copy.copy(batch).buffer.data_ptr() == batch.buffer.data_ptr() != copy.deepcopy(batch).buffer.data_ptr()


@pytest.mark.slow
@pytest.mark.parametrize("data", [RAGGED, list(np.arange(12).reshape(3, 2, 2))], ids=["ragged", "dense"])
def test_compile_with_batches(data: list[np.ndarray]) -> None:
    torch._dynamo.reset()
    batch = ndd.batch([sample[..., None].astype(np.float32) for sample in data], layout="HWC")

    @torch.compile(fullgraph=True, backend="aot_eager")
    def work(images: ndd.Batch, factor: torch.Tensor) -> tuple[ndd.Batch, torch.Tensor]:
        brighter = ndd.brightness(images, brightness=2.0)
        return ndd.brightness(brighter, brightness=0.5), factor * 2

    @torch.compile(fullgraph=True, backend="aot_eager")
    def parts(images: ndd.Batch) -> tuple[ndd.Batch, ndd.Batch, ndd.Batch]:
        return images.slice[::-1, 0], images.slice[..., :2, 0], images.select([1, 0])

    for part, eager in zip(parts(batch), (batch.slice[::-1, 0], batch.slice[..., :2, 0], batch.select([1, 0])), strict=True):
        assert (contents(part), part.layout, part.shape) == (contents(eager), eager.layout, eager.shape)

    for factor in (1.0, 3.0):
        result, other = work(batch, torch.tensor(factor))
        assert isinstance(result, ndd.Batch)
        assert (contents(result), result.layout, result.shape, float(other)) == (contents(batch), "HWC", batch.shape, 2 * factor)


def test_batch_of_pending_samples() -> None:
    source = ndd.batch(np.ones((3, 200, 200, 3), np.uint8), layout="HWC")
    for mode in ndd.EvalMode:
        with mode:
            parts = [ndd.brightness(source.tensors[k], brightness=k + 1.0) for k in range(3)]
            batch = ndd.as_batch(parts)
            assert batch.layout == "HWC"
            assert batch.torch().amax((1, 2, 3)).tolist() == [1, 2, 3]


def test_indexing_a_batch_says_how_to_get_a_sample() -> None:
    with pytest.raises(TypeError, match=r"a Batch has no \[0\]: batch\.tensors\[0\] or batch\.select\(0\) is a sample"):
        ndd.batch([[1, 2], [3]])[0]
