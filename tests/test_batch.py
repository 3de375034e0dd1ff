# SPDX-License-Identifier: Apache-2.0
import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import torch_ndd as ndd

RAGGED = [np.arange(6).reshape(2, 3), np.arange(12).reshape(4, 3), np.arange(2).reshape(2, 1)]


def contents(batch: ndd.Batch) -> list[Any]:
    return [one.torch().tolist() for one in batch]


@pytest.mark.parametrize("make", [ndd.batch, ndd.as_batch, ndd.Batch])
def test_constructors(make: Any) -> None:
    dense, ragged = make(np.zeros((4, 2, 3), np.uint8), layout="HW"), make(RAGGED, layout="HW")
    assert (dense.batch_size, dense.shape, dense.ndim, dense.dtype, dense.layout) == (4, [(2, 3)] * 4, 2, ndd.uint8, "HW")
    assert (ragged.batch_size, ragged.shape, ragged.ndim, ragged.dtype) == (3, [(2, 3), (4, 3), (2, 1)], 2, ndd.int64)
    assert contents(ragged) == [one.tolist() for one in RAGGED]
    assert contents(make([1, 2.5])) == [1, 2]
    assert contents(make([2.5, 1])) == [2.5, 1.0]
    assert contents(make([np.array([7], np.uint8), np.array([300.0, -5.0, 2.5], np.float32)])) == [[7], [255, 0, 3]]
    assert contents(make(k for k in range(3))) == [0, 1, 2]
    assert contents(make(ndd.tensor([[1, 2], [3, 4]]))) == [[1, 2], [3, 4]]
    assert contents(make([ndd.tensor([1]), torch.tensor([2, 3])])) == [[1], [2, 3]]
    assert make([1, 2], dtype="f32").dtype == ndd.float32
    assert make(np.array([1.6, 300.0]), dtype="u8").torch().tolist() == [2, 255]
    empty = make([], dtype=ndd.float32)
    assert (empty.batch_size, empty.shape, empty.ndim, empty.dtype) == (0, [], 0, ndd.float32)


@pytest.mark.parametrize(
    ("data", "options", "error", "text"),
    [
        ([], {}, ValueError, "Element type"),
        (5, {}, TypeError, "int"),
        (None, {}, (TypeError, ValueError), "None|given"),
        ("text", {}, TypeError, "text"),
        (np.float32(3), {}, ValueError, "scalar"),
        (ndd.tensor(3), {}, ValueError, "scalar"),
        ([1, None], {}, TypeError, "sample 1"),
        ([1, object()], {}, TypeError, "sample 1|object"),
        ([ndd.batch([1])], {}, (TypeError, ValueError), "Batch"),
        ([[1], [[2]]], {}, RuntimeError, "sample dim"),
        (np.zeros((2, 3, 4)), {"layout": "NHW"}, ValueError, "layout"),
        ([[1]], {"layout": "HW"}, ValueError, "layout"),
        ([[1]], {"dtype": "float32"}, ValueError, "float32"),
        ([[1]], {"device": "tpu"}, ValueError, "tpu"),
    ],
)
def test_what_is_no_batch(data: Any, options: dict[str, Any], error: Any, text: str) -> None:
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


def test_broadcast() -> None:
    made = ndd.Batch.broadcast(ndd.tensor([[1, 2]], layout="HW"), 3)
    assert (made.torch().tolist(), made.layout) == ([[[1, 2]]] * 3, "HW")
    assert ndd.Batch.broadcast(np.float64(2), 2).dtype == ndd.float64
    assert ndd.Batch.broadcast(5, 0).batch_size == 0
    assert ndd.Batch.broadcast(5, 2, dtype="f32").torch().tolist() == [5.0, 5.0]
    with pytest.raises(ValueError, match="Cannot broadcast a Batch"):
        ndd.Batch.broadcast(made, 2)
    with pytest.raises(TypeError):
        ndd.Batch.broadcast(1, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [RAGGED, list(np.arange(12).reshape(3, 2, 2))], ids=["ragged", "dense"])
def test_samples(data: list[np.ndarray]) -> None:
    batch = ndd.batch(data, layout="HW")
    samples = batch.tensors
    assert len(samples) == 3
    assert samples[-1] is samples[np.int64(2)]
    assert samples[1].layout == "HW"
    assert [one.torch().tolist() for one in samples[1:]] == [one.tolist() for one in data[1:]]
    assert [one.torch().tolist() for one in samples[[2, 0, 0]].tolist()] == [data[k].tolist() for k in (2, 0, 0)]
    assert contents(samples[[2, 0]].as_batch()) == [data[2].tolist(), data[0].tolist()]
    assert samples.as_batch() is batch
    assert samples.select(0) is batch.select(0)
    assert [one.shape for one in batch] == batch.shape
    for wrong in (3, -4):
        with pytest.raises(IndexError):
            samples[wrong]
        with pytest.raises(IndexError):
            batch.select(wrong)
    with pytest.raises(TypeError):
        samples[0, 1]


@pytest.mark.parametrize("data", [RAGGED, list(np.arange(12).reshape(3, 2, 2))], ids=["ragged", "dense"])
def test_select(data: list[np.ndarray]) -> None:
    batch = ndd.batch(data, layout="HW")
    for key in ([1, 0], [2, 2, 2], [-1], slice(0, 1), slice(None, None, -1), slice(5, 9), [], np.array([1, 2])):
        chosen = batch.select(key)
        expected = data[key] if isinstance(key, slice) else [data[k] for k in key]
        assert contents(chosen) == [one.tolist() for one in expected]
        assert (chosen.dtype, chosen.layout, chosen.ndim) == (ndd.int64, "HW", 2)
    assert batch.select(1).torch().tolist() == data[1].tolist()
    assert batch.select(...) is batch


def test_slice() -> None:
    batch = ndd.batch(RAGGED, layout="HW")
    for key in (0, -1, slice(1, None), slice(None, None, -1), (Ellipsis, 0), (slice(None), slice(0, 1)), (slice(-9, 99), slice(5, 9)), (1, 0)):
        assert contents(batch.slice[key]) == [one[key].tolist() for one in RAGGED]
    assert (batch.slice[0].layout, batch.slice[:, 0].layout, batch.slice[0, 0].layout) == ("W", "H", None)
    for everything in ((), Ellipsis, slice(None), (slice(None), slice(0, None))):
        assert batch.slice[everything] is batch
    rows = ndd.batch([1, 3, 0])
    assert contents(batch.slice[rows]) == [one[k].tolist() for one, k in zip(RAGGED, (1, 3, 0), strict=True)]
    assert contents(batch.slice[rows:, ndd.tensor(0)]) == [one[k:, 0].tolist() for one, k in zip(RAGGED, (1, 3, 0), strict=True)]
    dense = ndd.batch(np.arange(24).reshape(2, 3, 4), layout="HW")
    assert dense.slice[1:, ::2].torch().tolist() == np.arange(24).reshape(2, 3, 4)[:, 1:, ::2].tolist()
    assert contents(dense.slice[ndd.batch([0, 2])]) == [[0, 1, 2, 3], [20, 21, 22, 23]]


def test_wrong_slices() -> None:
    batch = ndd.batch(RAGGED)
    with pytest.raises((IndexError, RuntimeError), match=r"3.*sample.*0"):
        batch.slice[3]
    with pytest.raises((ValueError, RuntimeError)):
        batch.slice[0, 0, 0]
    with pytest.raises(ValueError, match="Inconsistent batch size"):
        batch.slice[ndd.batch([1, 2])]


def test_to_torch() -> None:
    dense, ragged = ndd.batch([[1, 2], [3, 4]]), ndd.batch([[1, 2], [3]])
    assert dense.torch().data_ptr() == dense.torch(copy=False).data_ptr() != dense.torch(copy=True).data_ptr()
    assert ragged.torch(pad=True).tolist() == [[1, 2], [3, 0]]
    for copy_ in (None, True):
        with pytest.raises(ValueError, match="non-uniform shape"):
            ragged.torch(copy=copy_)
    with pytest.raises(ValueError, match="without a copy"):
        ragged.torch(copy=False, pad=True)
    assert ndd.batch([np.zeros((2, 0)), np.zeros((1, 3))]).torch(pad=True).shape == (2, 2, 3)


def test_devices() -> None:
    batch = ndd.batch(RAGGED)
    assert batch.cpu() is batch
    copied = batch.to_device("cpu", force_copy=True)
    assert contents(copied) == contents(batch)
    assert copied._values.data_ptr() != batch._values.data_ptr()
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError):
            batch.gpu()


def test_what_a_batch_has_not() -> None:
    batch = ndd.batch([[1], [2]])
    for wrong in (len, hash, lambda b: b[0]):
        with pytest.raises(TypeError):
            wrong(batch)
    for name in ("size", "nbytes", "itemsize", "item", "__array__", "__dlpack__"):
        assert not hasattr(batch, name)


def test_repr() -> None:
    text = "".join(repr(ndd.batch([[1, 2], [3]], layout="W")).split())
    assert text == 'Batch([[12],[3]],dtype=i32,layout="W",device="cpu",num_samples=2,shape=[(2,),(1,)])'
    assert "..." in repr(ndd.batch([[1]] * 50))


@pytest.mark.parametrize("data", [RAGGED, list(np.arange(12).reshape(3, 2, 2))], ids=["ragged", "dense"])
def test_pytree_copies_and_pickles(data: list[np.ndarray]) -> None:
    batch = ndd.batch(data, layout="HW")
    leaves, spec = pytree.tree_flatten(batch)
    doubled = pytree.tree_unflatten([leaves[0] * 2, *leaves[1:]], spec)
    assert (contents(doubled), doubled.layout) == ([(2 * one).tolist() for one in data], "HW")
    batch.tensors[0].evaluate()
    for other in (copy.copy(batch), copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
        assert (contents(other), other.layout) == (contents(batch), "HW")


@pytest.mark.parametrize("data", [RAGGED, list(np.arange(12).reshape(3, 2, 2))], ids=["ragged", "dense"])
def test_compile_with_batches(data: list[np.ndarray]) -> None:
    torch._dynamo.reset()
    batch = ndd.batch([one[..., None].astype(np.float32) for one in data], layout="HWC")

    @torch.compile(fullgraph=True, backend="aot_eager")
    def work(images: ndd.Batch, factor: torch.Tensor) -> tuple[ndd.Batch, torch.Tensor]:
        brighter = ndd.brightness(images, brightness=2.0)
        return ndd.brightness(brighter, brightness=0.5), factor * 2

    for factor in (1.0, 3.0):
        result, other = work(batch, torch.tensor(factor))
        assert isinstance(result, ndd.Batch)
        assert (contents(result), result.layout, result.shape, float(other)) == (contents(batch), "HWC", batch.shape, 2 * factor)


def test_batch_of_pending_samples() -> None:
    source = ndd.batch(np.ones((3, 200, 200, 3), np.uint8), layout="HWC")
    for mode in ndd.EvalMode:
        with mode:
            parts = [ndd.brightness(source.tensors[k], brightness=k + 1.0) for k in range(3)]
            made = ndd.as_batch(parts)
            assert made.layout == "HWC"
            assert made.torch().amax((1, 2, 3)).tolist() == [1, 2, 3]
