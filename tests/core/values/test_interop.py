# SPDX-License-Identifier: Apache-2.0
"""Data exchange with other libraries, with shared memory where both sides allow it."""

import ctypes
from collections import UserList, deque
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import torch_ndd as ndd

DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "bool"]


def queue_work() -> ndd.Tensor:
    """A result that may still be computed."""
    return ndd.brightness(ndd.tensor(np.full((200, 300, 3), 50, np.uint8), layout="HWC"), brightness=2.0)


# --- DLPack ---


class Producer:
    """Speaks DLPack and nothing else, in any dialect."""

    def __init__(self, values: Any, keywords: tuple[str, ...] = ("stream", "max_version", "dl_device", "copy"), device: Any = None) -> None:
        self.values, self.keywords, self.device = values, keywords, device
        self.calls: list[dict[str, Any]] = []

    def __dlpack__(self, **options: Any) -> Any:
        self.calls.append(options)
        if unknown := set(options) - set(self.keywords):
            raise TypeError(f"unexpected keyword arguments {unknown}")
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.device or self.values.__dlpack_device__()


@pytest.mark.parametrize("keywords", [("stream", "max_version", "dl_device", "copy"), ("stream",), ()], ids=len)
def test_from_dlpack_of_any_version(keywords: tuple[str, ...]) -> None:
    values = torch.arange(4.0)
    for make in (ndd.as_tensor, ndd.as_batch):
        producer = Producer(values, keywords)
        shared = make(producer)
        assert shared.torch().data_ptr() == values.data_ptr()
        assert shared.caller_owned
        assert len(producer.calls) == (1 if "max_version" in keywords else 2)
    copied = ndd.tensor(Producer(values, keywords))
    values[0] = 9
    assert (shared.torch()[0], copied.torch()[0]) == (9, 0)


def test_from_dlpack_that_is_read_only() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    tensor = ndd.as_tensor(Producer(array))
    assert (tensor.torch().data_ptr() != array.ctypes.data, tensor.torch().tolist()) == (True, [0, 1, 2])


@pytest.mark.parametrize("error", [BufferError, TypeError])
def test_from_dlpack_that_does_not_work(error: type[Exception]) -> None:
    class Refusing(Producer):
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            return self.values

        def __dlpack__(self, **options: Any) -> Any:
            raise error("refused")

    array = np.arange(3.0)
    assert ndd.as_tensor(Refusing(array)).torch().data_ptr() == array.ctypes.data
    array.flags.writeable = False
    assert ndd.as_tensor(Refusing(array)).torch().tolist() == [0, 1, 2]

    class Broken(Producer):
        def __dlpack__(self, **options: Any) -> Any:
            raise error("broken")

    with pytest.raises(error, match="broken"):
        ndd.as_tensor(Broken(torch.zeros(1)))


@pytest.mark.parametrize("data", [[1, 2], [1.5], [[1], [2]], [np.ones((2, 3), np.uint8)] * 4], ids=["integers", "floats", "lists", "frames"])
@pytest.mark.parametrize("kind", [deque, UserList])
def test_from_other_sequences(kind: Any, data: list[Any]) -> None:
    values, expected = ndd.as_tensor(kind(data)), ndd.as_tensor(data)
    assert (values.shape, values.dtype, values.torch().tolist()) == (expected.shape, expected.dtype, expected.torch().tolist())
    with pytest.raises(TypeError, match="Unexpected element type set"):
        ndd.as_tensor(set(range(3)))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "1", "I;16", "F"])
def test_from_images_of_pillow(mode: str) -> None:
    """Pillow's images have ``__array_interface__`` only."""
    levels = np.arange(60).reshape(4, 5, 3)
    image = Image.fromarray(levels[..., 0].astype(np.uint16)) if mode == "I;16" else Image.fromarray(levels.astype(np.uint8)).convert(mode)
    expected = np.asarray(image)
    tensor = ndd.as_tensor(image)
    assert (tensor.shape, np.asarray(tensor).dtype) == (expected.shape, expected.dtype)
    assert np.array_equal(np.asarray(tensor), expected)
    batch = ndd.as_batch([image, image.resize((2, 3))])
    assert [sample.shape for sample in batch.tensors] == [expected.shape, (3, 2, *expected.shape[2:])]
    if mode == "RGB":
        assert ndd.resize(image, size=[2, 2]).shape == (2, 2, 3)


def test_from_other_devices() -> None:
    values = torch.arange(3.0)
    with pytest.raises(ValueError, match="Unsupported device type 10"):
        ndd.as_tensor(Producer(values, device=(10, 0)))

    class Pinned(Producer):
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            return self.values.numpy()

    assert ndd.as_tensor(Pinned(values, device=(3, 0))).torch().data_ptr() == values.data_ptr()


def test_strided_dlpack_is_copied() -> None:
    values = torch.arange(6).reshape(2, 3).T
    assert ndd.as_tensor(Producer(values)).torch().tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_dlpack_both_ways(dtype: str) -> None:
    tensor = ndd.tensor(torch.arange(6).reshape(2, 3).to(getattr(torch, dtype)))
    assert tensor.__dlpack_device__() == (1, 0)
    consumer = torch.from_dlpack(tensor)
    assert (consumer.data_ptr(), consumer.dtype) == (tensor.torch().data_ptr(), tensor.dtype)
    if dtype != "bfloat16":
        array = np.from_dlpack(tensor)
        assert (array.ctypes.data, array.dtype) == (tensor.torch().data_ptr(), np.dtype(dtype))
        assert np.from_dlpack(tensor, copy=True).ctypes.data != array.ctypes.data
    again = ndd.as_tensor(Producer(consumer))
    assert (again.torch().data_ptr(), again.dtype) == (tensor.torch().data_ptr(), tensor.dtype)


_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, (ctypes.py_object,)


def test_to_dlpack_keywords() -> None:
    tensor = ndd.tensor([1, 2, 3])
    assert _name_of(tensor.__dlpack__()) == b"dltensor"
    assert _name_of(tensor.__dlpack__(max_version=(1, 0))) == b"dltensor_versioned"
    assert torch.from_dlpack(tensor.__dlpack__(copy=True)).data_ptr() != tensor.torch().data_ptr()
    assert torch.from_dlpack(tensor.__dlpack__(dl_device=(1, 0), copy=False)).data_ptr() == tensor.torch().data_ptr()


def test_dlpack_of_queued_work() -> None:
    with ndd.EvalMode.deferred:
        assert torch.from_dlpack(queue_work()).unique().tolist() == [100]
        assert np.unique(np.asarray(queue_work())).tolist() == [100]


# --- NumPy, torch ---


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_shares_memory(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    tensor = ndd.as_tensor(array)
    assert np.asarray(tensor).ctypes.data == tensor.torch().data_ptr() == array.ctypes.data
    assert np.asarray(tensor).flags.writeable
    assert np.array(tensor).ctypes.data != array.ctypes.data
    assert np.asarray(tensor, copy=False).ctypes.data == array.ctypes.data
    assert np.asarray(tensor, np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.stack([tensor, tensor]), np.stack([array, array]))
    other = np.array([1, 2], array.dtype.newbyteorder(">"))
    assert ndd.as_tensor(other).torch().tolist() == other.tolist()


def test_ufuncs_take_tensors_and_not_batches() -> None:
    tensor = ndd.tensor([1.0, 4.0])
    assert np.sqrt(tensor).tolist() == [1, 2]
    assert isinstance(np.array([1.0, 2.0]) + tensor, np.ndarray)
    output = np.array([1.0, 2.0], np.float32) + ndd.batch([[1.0, 2.0], [3.0, 4.0]])
    assert isinstance(output, ndd.Batch)
    assert output.torch().tolist() == [[2, 4], [4, 6]]
    with pytest.raises(TypeError, match="does not support ufuncs"):
        np.sqrt(ndd.batch([1.0]))


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_torch_shares_memory(dtype: str) -> None:
    values = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    tensor = ndd.as_tensor(values)
    assert tensor.torch() is values
    assert torch.as_tensor(tensor).data_ptr() == values.data_ptr()
    if dtype != "bfloat16":
        assert torch.tensor(tensor).data_ptr() != values.data_ptr()
    value = ndd.as_tensor(torch.nn.Parameter(values.float()).detach())
    assert value.dtype == ndd.float32


def test_torch_specialities() -> None:
    conjugate = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert conjugate.is_neg()
    assert ndd.as_tensor(conjugate).torch().tolist() == [-2, 4]
    expanded = torch.tensor([[1.0], [2.0]]).expand(2, 3)
    assert ndd.as_tensor(expanded).torch().tolist() == expanded.tolist()
    assert (torch.tensor([1.0, 2.0]) + ndd.tensor([1.0, 1.0])).torch().tolist() == [2, 3]


# --- JAX, Numba ---


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "uint16", "uint32", "float16", "float32", "bool", "bfloat16"])
def test_jax_shares_memory(dtype: str) -> None:
    jax = pytest.importorskip("jax", exc_type=ImportError)
    array = jax.numpy.arange(6).reshape(2, 3).astype(dtype)
    tensor = ndd.as_tensor(array)
    assert (tensor.dtype, tensor.shape, tensor.torch().tolist()) == (getattr(ndd, dtype), (2, 3), array.tolist())
    if dtype != "bool":  # JAX copies bools if its DLPack does not support them
        assert tensor.torch().data_ptr() == array.unsafe_buffer_pointer()
    batch = ndd.as_batch([array, array[:1]])
    assert batch.shape == [(2, 3), (1, 3)]
    back = jax.dlpack.from_dlpack(ndd.tensor(tensor))
    assert (back.dtype, back.tolist()) == (array.dtype, array.tolist())
    with ndd.EvalMode.deferred:
        assert int(jax.numpy.asarray(queue_work()).max()) == 100
    assert float(jax.jit(lambda x: x.sum())(np.asarray(ndd.tensor([1.0, 2.0])))) == 3.0


def test_numba_compiles_loops_over_values() -> None:
    numba = pytest.importorskip("numba")

    @numba.njit
    def halve(image: np.ndarray) -> np.ndarray:
        out = np.empty_like(image)
        for k in range(image.size):
            out.flat[k] = image.flat[k] // 2
        return out

    tensor = ndd.as_tensor(halve(np.asarray(queue_work())), layout="HWC")
    assert (tensor.dtype, tensor.layout, tensor.torch().unique().tolist()) == (ndd.uint8, "HWC", [50])

    @numba.njit
    def clear(image: np.ndarray) -> None:
        image[:] = 0

    value = ndd.tensor([1, 2])
    clear(np.asarray(value))
    assert value.torch().tolist() == [0, 0]


def test_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    tensor = ndd.as_tensor(array)
    assert (tensor.dtype, tensor.torch().tolist()) == (ndd.bfloat16, [1.5, -2.0])
    assert tensor.torch().data_ptr() == array.ctypes.data
    assert ndd.dtype(ml_dtypes.bfloat16) == ndd.dtype(array.dtype) == ndd.bfloat16
    assert ndd.tensor([1, 2], dtype=ml_dtypes.bfloat16).dtype == ndd.bfloat16


# --- CUDA ---


def test_a_tensor_in_host_memory_has_no_cuda_array_interface() -> None:
    with ndd.EvalMode.deferred:
        output = queue_work()
        assert not hasattr(output, "__cuda_array_interface__")
        assert output.pending is not None, "asking evaluates nothing"


def test_cuda_array_interface_in_place_of_a_broken_dlpack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which path is taken, without a GPU: torch.as_tensor replaces the import of the interface."""

    class Array:
        __cuda_array_interface__ = MappingProxyType({"shape": (2,), "typestr": "<f4", "data": (0, False), "version": 3})

    class Broken(Array):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, **options: Any) -> Any:
            raise TypeError("broken")

    taken: list[tuple[Any, str]] = []

    def as_tensor(data: Any, device: str) -> torch.Tensor:
        taken.append((data, device))
        return torch.tensor([1.0, 2.0])

    stream = SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch, "as_tensor", as_tensor)
    for data in (Array(), Broken()):
        assert ndd.as_tensor(data).torch().tolist() == [1, 2]
        assert taken.pop() == (data, "cuda")
        assert ndd.as_batch(data).batch_size == 2
        taken.pop()


def test_dlpack_of_a_gpu_is_given_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    for handle, stream in ((0, 1), (77, 77)):  # in DLPack the legacy default stream is 1
        producer = Producer(torch.zeros(2), (), device=(2, 0))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device, handle=handle: SimpleNamespace(cuda_stream=handle))
        ndd.as_tensor(producer)
        assert producer.calls == [{"max_version": (1, 0), "stream": stream}, {"stream": stream}, {}]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CuPy works on a GPU")
def test_cupy_shares_memory() -> None:
    cupy = pytest.importorskip("cupy")
    array = cupy.arange(6, dtype=cupy.float32).reshape(2, 3)
    tensor = ndd.as_tensor(array)
    assert tensor.torch().data_ptr() == array.data.ptr
    assert cupy.asarray(tensor).data.ptr == array.data.ptr
    assert cupy.from_dlpack(tensor).data.ptr == array.data.ptr


# --- DALI ---


def test_values_of_dali() -> None:
    dali = pytest.importorskip("nvidia.dali.experimental.dynamic")
    theirs = dali.tensor(np.arange(6).reshape(2, 3))
    assert ndd.as_tensor(theirs).torch().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert [sample.torch().tolist() for sample in ndd.as_batch(list(dali.batch([[1, 2], [3]])))] == [[1, 2], [3]]
    assert np.asarray(dali.as_tensor(ndd.tensor([[1, 2], [3, 4]])).evaluate()).tolist() == [[1, 2], [3, 4]]
