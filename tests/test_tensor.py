# SPDX-License-Identifier: Apache-2.0
import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import torch_ndd as ndd
from torch_ndd import types

NUMPY_TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "bool"]


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (5, ndd.int32),
        ([1, 2], ndd.int32),
        (range(3), ndd.int32),
        ((1, 2), ndd.int32),
        (2**31, ndd.uint32),
        (2**32 - 1, ndd.uint32),
        (5.0, ndd.float32),
        ([], ndd.float32),
        (True, ndd.bool),
        ([True, False], ndd.bool),
        ([np.float64(1)], ndd.float32),
        (np.float64(3.5), ndd.float64),
        ([np.array([1, 2]), np.array([3, 4])], ndd.int32),
        ([np.uint8(1)], ndd.uint8),
        (np.arange(3, dtype=">i4"), ndd.int32),
    ],
)
def test_type_of_python_data(data: Any, dtype: torch.dtype) -> None:
    for make in (ndd.tensor, ndd.as_tensor, ndd.Tensor):
        made = make(data)
        assert made.dtype == dtype
        np.testing.assert_array_equal(np.asarray(made), np.asarray(data).astype(np.asarray(made).dtype))


def test_list_of_tensors() -> None:
    assert ndd.tensor([ndd.tensor([1, 2]), ndd.tensor([3, 4])]).torch().tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_arrays_keep_their_type(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    made = ndd.tensor(array, layout="HW")
    assert (made.shape, made.ndim, made.size, made.itemsize, made.nbytes, made.layout) == ((2, 3), 2, 6, array.itemsize, array.nbytes, "HW")
    assert made.dtype == getattr(torch, dtype)
    assert np.asarray(made).dtype == array.dtype
    np.testing.assert_array_equal(np.asarray(made), array)


@pytest.mark.parametrize(
    ("data", "options", "error"),
    [
        (None, {}, ValueError),
        (2**32, {}, OverflowError),
        (-(2**31) - 1, {}, OverflowError),
        ([-1, 2**31], {}, OverflowError),
        (300, {"dtype": ndd.uint8}, OverflowError),
        ([[1, 2], [3]], {}, ValueError),
        ("text", {}, (TypeError, RuntimeError)),
        (b"bytes", {}, (TypeError, RuntimeError)),
        (np.array([1j]), {}, (TypeError, RuntimeError)),
        (1j, {}, TypeError),
        (object(), {}, TypeError),
        ({"a": 1}, {}, TypeError),
        ({1, 2}, {}, TypeError),
        ([1, 2], {"layout": "HW"}, ValueError),
        ([1, 2], {"layout": 5}, ValueError),
        ([1, 2], {"dtype": "float32"}, ValueError),
        ([1, 2], {"dtype": int}, TypeError),
        ([1, 2], {"device": "tpu"}, ValueError),
        ([1, 2], {"device": 3}, TypeError),
        (torch.zeros(2, requires_grad=True), {}, RuntimeError),
        (torch.zeros(2, dtype=torch.complex64), {}, TypeError),
    ],
)
def test_what_is_no_tensor(data: Any, options: dict[str, Any], error: Any) -> None:
    for make in (ndd.tensor, ndd.as_tensor, ndd.Tensor):
        with pytest.raises(error):
            make(data, **options)


def test_dtype_of_python_data_truncates_and_of_arrays_casts() -> None:
    assert ndd.tensor(2**40, dtype=ndd.int64).item() == 2**40
    assert ndd.tensor([2.7, -1.5], dtype=ndd.int32).torch().tolist() == [2, -1]
    array = np.array([300.0, -5.0, 2.5, 3.5, 254.6, 0.49999997])
    for dtype in (ndd.uint8, "u8", np.uint8, np.dtype("uint8"), types.UINT8):
        assert ndd.tensor(array, dtype=dtype).torch().tolist() == [255, 0, 3, 4, 255, 0]
    assert ndd.tensor(np.array([-1, 256]), dtype="u8").torch().tolist() == [0, 255]
    assert ndd.tensor(np.array([0.4, 1.0, -3.0]), dtype=ndd.bool).torch().tolist() == [False, True, True]
    assert ndd.tensor(np.array([-0.5, 0.5, 1e9, -1e9]), dtype="i16").torch().tolist() == [-1, 1, 32767, -32768]
    assert ndd.tensor(np.array([2**64 - 1, 5], np.uint64), dtype="i64").torch().tolist() == [2**63 - 1, 5]
    assert ndd.tensor(np.array([1e30, -3.0, 1e19, 2.5, np.nan]), dtype="u64").torch().tolist() == [2**64 - 1, 0, 10**19, 3, 0]
    assert ndd.tensor(np.array([-1, 7], np.int8), dtype="u64").torch().tolist() == [0, 7]
    assert ndd.tensor(np.array([1e30, -1e30, 2.0**63]), dtype="i64").torch().tolist() == [2**63 - 1, -(2**63), 2**63 - 1]


def test_tensor_copies_and_as_tensor_shares() -> None:
    array = np.zeros(3, np.float32)
    values = torch.zeros(3)
    for source in (array, values):
        copied, shared = ndd.tensor(source), ndd.as_tensor(source)
        source[0] = 7
        assert (copied.torch()[0], shared.torch()[0]) == (0, 7)
        source[0] = 0
    assert ndd.Tensor(array, copy=True).torch().data_ptr() != array.ctypes.data
    one = ndd.tensor([1, 2])
    assert ndd.as_tensor(one).torch().data_ptr() == one.torch().data_ptr()
    assert ndd.tensor(one).torch().data_ptr() != one.torch().data_ptr()


def test_strided_and_read_only_arrays() -> None:
    array = np.arange(12).reshape(3, 4)
    for view in (array[:, ::2], array.T, array[::-1]):
        np.testing.assert_array_equal(np.asarray(ndd.as_tensor(view)), view)
    array.flags.writeable = False
    np.testing.assert_array_equal(np.asarray(ndd.as_tensor(array)), array)
    assert ndd.as_tensor(torch.arange(6).reshape(2, 3).T).torch().tolist() == [[0, 3], [1, 4], [2, 5]]


class WithDlpack:
    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.values.__dlpack_device__()


def test_dlpack_both_ways() -> None:
    values = torch.arange(4.0)
    shared = ndd.as_tensor(WithDlpack(values))
    values[0] = 9
    assert shared.torch()[0] == 9
    assert tuple(shared.__dlpack_device__()) == (1, 0)
    for again in (torch.from_dlpack(shared), torch.from_numpy(np.from_dlpack(shared))):
        assert again.data_ptr() == values.data_ptr()


def test_array_protocol() -> None:
    one = ndd.tensor([[1, 2], [3, 4]])
    view = np.asarray(one)
    view[0, 0] = 9
    assert one.torch()[0, 0] == 9
    assert np.array(one).ctypes.data != view.ctypes.data
    assert np.asarray(one, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy"):
        np.array(one, dtype=np.float64, copy=False)
    assert not hasattr(one, "__cuda_array_interface__")
    assert torch.as_tensor(one).data_ptr() == one.torch().data_ptr()
    assert one.torch(copy=True).data_ptr() != one.torch().data_ptr()


def test_item() -> None:
    assert ndd.tensor([[5]]).item() == 5
    assert isinstance(ndd.tensor(2.5).item(), float)
    assert ndd.tensor(True).item() is True
    with pytest.raises(ValueError, match="Tensor has 2 elements"):
        ndd.tensor([1, 2]).item()


def test_devices() -> None:
    one = ndd.tensor([1, 2], device="cpu")
    assert one.cpu() is one
    assert one.to_device(ndd.Device("cpu")) is one
    assert one.to_device("cpu", force_copy=True).torch().data_ptr() != one.torch().data_ptr()
    assert str(one.device) == "cpu"
    if not torch.cuda.is_available():
        for move in (one.gpu, lambda: one.to_device("gpu"), lambda: ndd.tensor([1], device="gpu"), lambda: ndd.as_tensor([1], device="cuda:0")):
            with pytest.raises(RuntimeError):
                move()


def test_device_names() -> None:
    assert ndd.Device("cpu") == ndd.Device("cpu")
    assert ndd.Device("cuda:0") == ndd.Device("gpu", 0)
    assert len({ndd.Device("gpu:0"), ndd.Device("gpu", 0), ndd.Device("cpu")}) == 2
    for wrong in (("tpu",), ("cpu", 1), ("gpu:0", 0), ("gpu:-1",), ("gpu:x",)):
        with pytest.raises(ValueError, match=r"device|invalid literal"):
            ndd.Device(*wrong)


# --- indexing ---

KEYS: list[Any] = [
    0,
    -1,
    slice(1, 3),
    slice(None, None, -1),
    slice(-1, 1, -1),
    slice(5, 2),
    slice(None, None, 2),
    (0, 1),
    (Ellipsis, 0),
    (0, Ellipsis, slice(1, None)),
    (slice(None), -2),
    (np.int64(1), slice(None)),
    (slice(-100, 100), slice(3, None, -2)),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_indexing_equals_numpy(key: Any) -> None:
    array = np.arange(60).reshape(4, 5, 3)
    letters = np.array(list("HWC"))
    part = ndd.tensor(array, layout="HWC")[key]
    np.testing.assert_array_equal(np.asarray(part), array[key])
    keys = key if isinstance(key, tuple) else (key,)
    dropped = {k if Ellipsis not in keys[:k] else k - len(keys) for k, one in enumerate(keys) if isinstance(one, int | np.integer)}
    assert part.layout == "".join(letter for k, letter in enumerate(letters) if k not in dropped and k - 3 not in dropped)


def test_indexing_specials() -> None:
    one = ndd.tensor(np.arange(12).reshape(3, 4), layout="HW")
    for everything in ((), Ellipsis, slice(None), (slice(0, None), slice(None, None, 1)), (Ellipsis, slice(None))):
        assert one[everything] is one
    assert one[ndd.tensor(1), ndd.tensor(2)].item() == 6
    assert one[1, 2].layout is None
    assert one[::-1][:-1].torch().tolist() == np.arange(12).reshape(3, 4)[::-1][:-1].tolist()
    assert (len(one), [row.layout for row in one]) == (3, ["W"] * 3)


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (3, IndexError),
        ((0, -5), IndexError),
        ((0, 0, 0), ValueError),
        ((Ellipsis, Ellipsis), ValueError),
        (slice(None, None, 0), ValueError),
        ([0], TypeError),
        (np.array([True, False, True]), TypeError),
        (None, TypeError),
        (1.0, TypeError),
        ("H", TypeError),
    ],
    ids=str,
)
def test_wrong_keys(key: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        ndd.tensor(np.arange(12).reshape(3, 4))[key]


# --- elsewhere ---


def test_hash_and_len() -> None:
    with pytest.raises(TypeError):
        hash(ndd.tensor(1))
    with pytest.raises(TypeError):
        len(ndd.tensor(1))


def test_repr() -> None:
    text = repr(ndd.tensor([[0.0, 0.0], [0.0, 0.0]], layout="HW"))
    assert "".join(text.split()) == 'Tensor([[0.0.][0.0.]],dtype=f32,layout="HW",device="cpu",shape=(2,2))'
    assert "layout" not in repr(ndd.tensor(1))
    assert "..." in repr(ndd.tensor(np.zeros(5000)))


def test_pytree_and_compile() -> None:
    one = ndd.tensor(np.arange(6.0).reshape(2, 3), layout="HW")
    leaves, spec = pytree.tree_flatten({"image": one})
    assert [leaf.shape for leaf in leaves] == [(2, 3)]
    again = pytree.tree_unflatten([leaf * 2 for leaf in leaves], spec)["image"]
    assert (again.layout, again.torch().sum()) == ("HW", 30)
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def double(value: ndd.Tensor) -> ndd.Tensor:
        return ndd.as_tensor(value.torch() * 2, layout=value.layout)

    result = double(one)
    assert (result.layout, result.torch().sum()) == ("HW", 30)


def test_copies_and_pickles() -> None:
    one = ndd.brightness(ndd.tensor(np.ones((200, 200, 3), np.uint8), layout="HWC"), brightness=3.0)
    file = io.BytesIO()
    torch.save({"values": one.torch()}, file)
    for other in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert (other.shape, other.layout, int(other.torch().max())) == ((200, 200, 3), "HWC", 3)


def test_of_a_batch() -> None:
    dense, ragged = ndd.batch([[1, 2], [3, 4]], layout="W"), ndd.batch([[1, 2], [3]])
    stacked = ndd.as_tensor(dense)
    assert (stacked.shape, stacked.layout) == ((2, 2), "NW")
    assert stacked.torch().data_ptr() == dense.torch().data_ptr()
    assert ndd.tensor(dense).torch().data_ptr() != dense.torch().data_ptr()
    assert ndd.as_tensor(ndd.batch([1, 2, 3])).layout == "N"
    assert ndd.as_tensor(ndd.batch([[1, 2]])).layout is None
    assert ndd.as_tensor(dense, layout="HW").layout == "HW"
    assert ndd.as_tensor(dense, dtype="f32").dtype == ndd.float32
    assert ndd.as_tensor(ragged, pad=True).torch().tolist() == [[1, 2], [3, 0]]
    with pytest.raises(ValueError, match="non-uniform shape"):
        ndd.as_tensor(ragged)


def test_of_pending_work_stays_pending() -> None:
    with ndd.EvalMode.deferred:
        batch = ndd.brightness(ndd.batch(np.ones((2, 50, 50, 3), np.uint8), layout="HWC"), brightness=2.0)
        stacked = ndd.as_tensor(batch)
    assert (stacked._pending is not None, stacked.layout, int(stacked.torch().max())) == (True, "NHWC", 2)
