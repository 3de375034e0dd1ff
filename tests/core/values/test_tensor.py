# SPDX-License-Identifier: Apache-2.0
import copy
import io
import itertools
import pickle
import traceback
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import torch_ndd as ndd
from torch_ndd import types
from torch_ndd._core.values.indexing import resolve_slice

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
        (range(0), ndd.float32),
        ([[], []], ndd.float32),
        ([True, 2], ndd.int32),
        ([True, 2.5], ndd.float32),
        ([2**40, 1.5], ndd.float32),
        ([np.float16(2)], ndd.float16),
        (np.bool_(True), ndd.bool),
        (types.INTERP_LINEAR, ndd.int32),
        ([types.RGB, types.GRAY], ndd.int32),
        (bytearray(b"abc"), ndd.uint8),
        (memoryview(b"abc"), ndd.uint8),
        (np.ma.array([1, 2], mask=[0, 1]), ndd.int64),
    ],
)
def test_type_of_python_data(data: Any, dtype: torch.dtype) -> None:
    for make in (ndd.tensor, ndd.as_tensor, ndd.Tensor):
        output = make(data)
        assert output.dtype == dtype
        np.testing.assert_array_equal(np.asarray(output), np.asarray(data).astype(np.asarray(output).dtype))


def test_tensor_of_a_list_of_tensors() -> None:
    for make in (ndd.tensor, torch.tensor, np.array):
        tensor = ndd.tensor([make([1, 2]), make([3, 4])])
        assert (tensor.torch().tolist(), tensor.dtype) == ([[1, 2], [3, 4]], ndd.int32)
    assert ndd.tensor([[ndd.tensor(1.5), ndd.tensor(2)]]).torch().tolist() == [[1.5, 2.0]]


@pytest.mark.parametrize("ndim", range(11))
def test_tensor_of_ten_dimensions(ndim: int) -> None:
    array = np.arange(2**ndim, dtype=np.int16).reshape((2,) * ndim)
    tensor = ndd.tensor(array, layout="ABCDEFGHIJ"[:ndim])
    assert (tensor.shape, tensor.ndim, tensor.size, tensor.nbytes, tensor.itemsize) == (array.shape, ndim, array.size, array.nbytes, 2)
    assert tensor.layout == ("ABCDEFGHIJ"[:ndim] or None)
    key = tuple(slice(None, None, -1) if axis % 2 else slice(None) for axis in range(ndim))
    np.testing.assert_array_equal(np.asarray(tensor[key]), array[key])
    batch = ndd.batch([array, array[:1] if ndim else array])
    assert (batch.ndim, batch.shape[1]) == (ndim, (array[:1] if ndim else array).shape)
    np.testing.assert_array_equal(np.asarray(batch.slice[key].tensors[0]), array[key])


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_arrays_keep_their_type(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    tensor = ndd.tensor(array, layout="HW")
    assert (tensor.shape, tensor.ndim, tensor.size, tensor.itemsize, tensor.nbytes, tensor.layout) == (
        (2, 3),
        2,
        6,
        array.itemsize,
        array.nbytes,
        "HW",
    )
    assert tensor.dtype == getattr(torch, dtype)
    assert np.asarray(tensor).dtype == array.dtype
    np.testing.assert_array_equal(np.asarray(tensor), array)


@pytest.mark.parametrize(
    ("data", "options", "error"),
    [
        (None, {}, ValueError),
        (2**32, {}, OverflowError),
        (-(2**31) - 1, {}, OverflowError),
        ([-1, 2**31], {}, OverflowError),
        (300, {"dtype": ndd.uint8}, OverflowError),
        ([[1, 2], [3]], {}, ValueError),
        ([-1, 2**63], {}, OverflowError),
        ([2**64], {}, OverflowError),
        (2**64, {"dtype": ndd.uint64}, OverflowError),
        ([300.0], {"dtype": ndd.uint8}, OverflowError),
        ([float("inf")], {"dtype": ndd.int32}, OverflowError),
        ([float("nan")], {"dtype": ndd.int32}, ValueError),
        ("text", {}, RuntimeError),
        (b"bytes", {}, RuntimeError),
        (["text"], {}, RuntimeError),
        (np.array(["text"]), {}, RuntimeError),
        (np.array([object()]), {}, RuntimeError),
        (np.array([1j]), {}, RuntimeError),
        (np.array(["2020-01-01"], "M8[D]"), {}, RuntimeError),
        (np.zeros(2, [("a", "i4")]), {}, RuntimeError),
        (1j, {}, TypeError),
        ([1j], {}, TypeError),
        ([None], {}, TypeError),
        ((k for k in range(3)), {}, TypeError),
        (object(), {}, TypeError),
        ({"a": 1}, {}, TypeError),
        ({1, 2}, {}, TypeError),
        ([1, 2], {"layout": "HW"}, ValueError),
        ([1, 2], {"layout": 5}, ValueError),
        ([1, 2], {"dtype": "float128"}, ValueError),
        ([1, 2], {"dtype": int}, TypeError),
        ([1, 2], {"device": "tpu"}, ValueError),
        ([1, 2], {"device": 3}, TypeError),
        (torch.zeros(2, requires_grad=True), {}, RuntimeError),
        (torch.zeros(2, dtype=torch.complex64), {}, RuntimeError),
        (torch.zeros(2).to_sparse(), {}, TypeError),
        (torch.zeros(2, device="meta"), {}, TypeError),
        (ndd.batch([1]).tensors[0], {"layout": "H"}, ValueError),
    ],
)
def test_tensor_rejects_other_objects(data: Any, options: dict[str, Any], error: Any) -> None:
    for make in (ndd.tensor, ndd.as_tensor, ndd.Tensor):
        with pytest.raises(error):
            make(data, **options)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors_hold_several_samples() -> None:
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)
        for make in (ndd.as_tensor, ndd.as_batch):
            with pytest.raises(TypeError, match=r"a nested tensor holds several samples"):
                make(nested)
        assert ndd.as_batch(nested.unbind()).shape == [(2,), (3,)]


def test_dtype_of_python_data_truncates_and_of_arrays_casts() -> None:
    assert ndd.tensor(2**40, dtype=ndd.int64).item() == 2**40
    assert ndd.tensor([2.7, -1.5], dtype=ndd.int32).torch().tolist() == [2, -1]
    assert ndd.tensor(-0.5, dtype=ndd.uint8).item() == 0
    assert ndd.tensor(2**64 - 1, dtype=ndd.uint64).item() == ndd.tensor([2**64 - 1, 0], dtype=ndd.uint64)[0].item() == 2**64 - 1
    assert ndd.tensor(np.zeros(2, np.longlong)).dtype == ndd.int64
    assert ndd.tensor([2, 0, 0.3], dtype=bool).torch().tolist() == [True, False, True]
    assert ndd.tensor([0.1, 2], dtype=ndd.bfloat16).torch().tolist() == torch.tensor([0.1, 2], dtype=torch.bfloat16).tolist()
    assert ndd.tensor(1e40).item() == float("inf")
    assert ndd.tensor(np.float64(3.7), dtype="u8").item() == 4
    assert ndd.tensor(2, dtype=ndd.InterpType).item() == types.INTERP_CUBIC
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
    tensor = ndd.tensor([1, 2], layout="W")
    assert ndd.as_tensor(tensor) is not tensor
    for other in (ndd.as_tensor(tensor), ndd.tensor(tensor), ndd.Tensor(tensor, copy=True)):
        assert (other.torch().tolist(), other.layout, other.dtype) == ([1, 2], "W", ndd.int32)
    assert ndd.as_tensor(tensor, layout="H").layout == "H"
    assert ndd.as_tensor(tensor, layout="").layout is None
    assert tensor.layout == "W"
    assert ndd.as_tensor(tensor).torch().data_ptr() == tensor.torch().data_ptr()
    assert ndd.tensor(tensor).torch().data_ptr() != tensor.torch().data_ptr()


def test_strided_and_read_only_arrays_are_copied() -> None:
    array = np.arange(12).reshape(3, 4)
    for view in (array[:, ::2], array.T, array[::-1]):
        np.testing.assert_array_equal(np.asarray(ndd.as_tensor(view)), view)
    array.flags.writeable = False
    np.testing.assert_array_equal(np.asarray(ndd.as_tensor(array)), array)
    assert ndd.as_tensor(torch.arange(6).reshape(2, 3).T).torch().tolist() == [[0, 3], [1, 4], [2, 5]]


def test_tensor_has_the_array_protocol() -> None:
    tensor = ndd.tensor([[1, 2], [3, 4]])
    view = np.asarray(tensor)
    view[0, 0] = 9
    assert tensor.torch()[0, 0] == 9
    assert np.array(tensor).ctypes.data != view.ctypes.data
    assert np.asarray(tensor, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy"):
        np.array(tensor, dtype=np.float64, copy=False)
    assert not hasattr(tensor, "__cuda_array_interface__")
    assert torch.as_tensor(tensor).data_ptr() == tensor.torch().data_ptr()
    assert tensor.torch(copy=True).data_ptr() != tensor.torch().data_ptr()
    with pytest.raises(TypeError, match="bfloat16"):
        np.asarray(ndd.tensor([1.0], dtype=ndd.bfloat16))


def test_item_needs_one_element() -> None:
    assert ndd.tensor([[5]]).item() == 5
    assert isinstance(ndd.tensor(2.5).item(), float)
    assert ndd.tensor(True).item() is True
    with pytest.raises(ValueError, match="Tensor has 2 elements"):
        ndd.tensor([1, 2]).item()


def test_tensor_moves_between_devices() -> None:
    tensor = ndd.tensor([1, 2], device="cpu")
    assert tensor.cpu() is tensor
    assert tensor.to_device(ndd.Device("cpu")) is tensor
    assert tensor.to_device("cpu", force_copy=True).torch().data_ptr() != tensor.torch().data_ptr()
    assert str(tensor.device) == "cpu"
    if not torch.cuda.is_available():
        for move in (tensor.gpu, lambda: tensor.to_device("gpu"), lambda: ndd.tensor([1], device="gpu"), lambda: ndd.as_tensor([1], device="cuda:0")):
            with pytest.raises((RuntimeError, ValueError), match="no GPU can be used"):
                move()


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


@pytest.mark.parametrize("size", range(4))
def test_slices_select_the_indices_that_python_selects(size: int) -> None:
    bounds, steps = (None, *range(-5, 6)), (None, 1, 2, 3, -1, -2, -3)
    for key in itertools.starmap(slice, itertools.product(bounds, bounds, steps)):
        assert resolve_slice(key, size) == range(*key.indices(size)), key


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_indexing_equals_numpy(key: Any) -> None:
    array = np.arange(60).reshape(4, 5, 3)
    letters = np.array(list("HWC"))
    part = ndd.tensor(array, layout="HWC")[key]
    np.testing.assert_array_equal(np.asarray(part), array[key])
    keys = key if isinstance(key, tuple) else (key,)
    dropped = {k if Ellipsis not in keys[:k] else k - len(keys) for k, key in enumerate(keys) if isinstance(key, int | np.integer)}
    assert part.layout == "".join(letter for k, letter in enumerate(letters) if k not in dropped and k - 3 not in dropped)


def test_indexing_with_ellipsis_and_tensors() -> None:
    tensor = ndd.tensor(np.arange(12).reshape(3, 4), layout="HW")
    for everything in (
        (),
        Ellipsis,
        slice(None),
        (slice(0, None), slice(None, None, 1)),
        (Ellipsis, slice(None)),
        (Ellipsis, Ellipsis),
        (slice(None),) * 4,
    ):
        assert tensor[everything] is tensor
    assert tensor[ndd.tensor(1), ndd.tensor(2)].item() == 6
    assert tensor[1, 2].layout is None
    assert tensor[::-1][:-1].torch().tolist() == np.arange(12).reshape(3, 4)[::-1][:-1].tolist()
    assert (len(tensor), [row.layout for row in tensor]) == (3, ["W"] * 3)


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (3, IndexError),
        ((0, -5), IndexError),
        ((0, 0, 0), ValueError),
        ((Ellipsis, 0, Ellipsis), ValueError),
        (slice(None, None, 0), ValueError),
        (slice(None, None, np.int64(0)), ValueError),
        (ndd.tensor(3), IndexError),
        (ndd.tensor([0]), TypeError),
        (ndd.tensor(1.0), TypeError),
        (slice(1.0, None), TypeError),
        ([0], TypeError),
        (np.array([True, False, True]), TypeError),
        (None, TypeError),
        (1.0, TypeError),
        ("H", TypeError),
    ],
    ids=str,
)
def test_indexing_rejects_wrong_keys(key: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        ndd.tensor(np.arange(12).reshape(3, 4))[key]


def test_contiguous_parts_share_memory() -> None:
    array = np.arange(24).reshape(2, 3, 4)
    tensor, external = ndd.tensor(array), ndd.as_tensor(array)
    for key, offset in ((1, 12), ((0, slice(1, 3)), 4), ((1, 2, 3), 23)):
        assert tensor[key].torch().data_ptr() == tensor.torch().data_ptr() + 8 * offset
    kept = [external[1], external[:, 1:], external[::-1]]
    array[:] = 0  # the caller may overwrite the memory once the call has returned
    assert [part.torch().flatten()[0].item() for part in kept] == [12, 4, 12]


def test_indexing_with_a_batch() -> None:
    tensor = ndd.tensor(np.arange(12).reshape(3, 4), layout="HW")
    rows = tensor[ndd.batch([2, -3])]
    assert (rows.torch().tolist(), rows.layout) == ([[8, 9, 10, 11], [0, 1, 2, 3]], "W")
    ends = tensor[ndd.batch([2, 0]) :, 1]
    assert ([part.torch().tolist() for part in ends], ends.layout) == ([[9], [1, 5, 9]], "H")
    with pytest.raises(IndexError, match="sample 1"):
        tensor[ndd.batch([0, 3])]
    with pytest.raises(ValueError, match="Inconsistent batch size"):
        tensor[ndd.batch([0]), ndd.batch([0, 1])]


@pytest.mark.parametrize("mode", ndd.EvalMode)
def test_indexing_waits_for_nothing(mode: ndd.EvalMode) -> None:
    array = np.random.default_rng(0).integers(0, 200, (300, 300, 3), np.uint8)
    source = ndd.tensor(array, layout="HWC")
    with mode:
        brighter = ndd.brightness(source, brightness_shift=0.1)
        parts = [brighter[key] for key in (5, (slice(2, 9), slice(None, None, -3)), (Ellipsis, 1), (7, 8, 2))]
        chained = brighter[::-1][:-1][::2, ::-1]
        if mode == ndd.EvalMode.deferred:
            assert all(part.pending is not None for part in (*parts, chained))
        expected = np.asarray(brighter)
        for part, key in zip(parts, (5, (slice(2, 9), slice(None, None, -3)), (Ellipsis, 1), (7, 8, 2)), strict=True):
            np.testing.assert_array_equal(np.asarray(part), expected[key])
        np.testing.assert_array_equal(np.asarray(chained), expected[::-1][:-1][::2, ::-1])
        assert chained.layout == "HWC"


# --- other devices ---


def test_conversion_to_a_number() -> None:
    assert (int(ndd.tensor([[7]])), float(ndd.tensor(2.5)), [10, 20, 30][ndd.tensor(2)], int(ndd.tensor(2.9))) == (7, 2.5, 30, 2)
    assert (bool(ndd.tensor(0)), bool(ndd.tensor([2.5])), bool(ndd.tensor([[False]]))) == (False, True, False)
    for convert in (int, float):
        with pytest.raises(TypeError, match="elements to a number"):
            convert(ndd.tensor([1, 2]))
    for wrong in ([], [1, 2]):
        with pytest.raises(ValueError, match="ambiguous"):
            bool(ndd.tensor(wrong))
    for wrong in (1.0, [1]):
        with pytest.raises(TypeError, match="index"):
            [1, 2][ndd.tensor(wrong)]


def test_iteration_and_membership() -> None:
    tensor = ndd.tensor([[1, 2], [3, 4]], layout="HW")
    assert ([row.torch().tolist() for row in tensor], len(tensor)) == ([[1, 2], [3, 4]], 2)
    assert (2 in tensor, 5 in tensor, ndd.tensor(3) in tensor) == (True, False, True)
    assert 1.5 in ndd.tensor([1.5], dtype=ndd.bfloat16)
    for wrong in (len, iter, hash):
        with pytest.raises(TypeError):
            list(wrong(ndd.tensor(1)))


def test_tensor_repr() -> None:
    text = repr(ndd.tensor([[0.0, 0.0], [0.0, 0.0]], layout="HW"))
    assert text == 'Tensor(\n    [[0. 0.]\n     [0. 0.]],\n    dtype=f32,\n    layout="HW",\n    device="cpu",\n    shape=(2, 2))'
    assert str(ndd.tensor(1)) == 'Tensor(\n    1,\n    dtype=i32,\n    device="cpu",\n    shape=())'
    assert "..." in repr(ndd.tensor(np.zeros(5000)))
    assert "[1.5]" in repr(ndd.tensor([1.5], dtype=ndd.bfloat16))


@pytest.mark.parametrize("member", ["shape", "ndim", "dtype", "layout", "device", "size", "itemsize", "nbytes"])
def test_metadata_evaluates_nothing(member: str) -> None:
    known = {
        "shape": (60, 50),
        "ndim": 2,
        "dtype": ndd.float32,
        "layout": "WC",
        "device": ndd.Device("cpu"),
        "size": 3000,
        "itemsize": 4,
        "nbytes": 12000,
    }
    with ndd.EvalMode.deferred:
        output = ndd.brightness(ndd.tensor(np.zeros((2, 60, 50), np.uint8), layout="HWC"), dtype=ndd.float32)[0]
        assert getattr(output, member) == known[member]
        assert output.pending is not None
        assert not output.pending.done()


def test_pytree_and_compile() -> None:
    tensor = ndd.tensor(np.arange(6.0).reshape(2, 3), layout="HW")
    leaves, spec = pytree.tree_flatten({"image": tensor})
    assert [leaf.shape for leaf in leaves] == [(2, 3)]
    again = pytree.tree_unflatten([leaf * 2 for leaf in leaves], spec)["image"]
    assert (again.layout, again.torch().sum()) == ("HW", 30)
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def double(value: ndd.Tensor) -> ndd.Tensor:
        return ndd.as_tensor(value.torch() * 2, layout=value.layout)

    result = double(tensor)
    assert (result.layout, result.torch().sum()) == ("HW", 30)


def save_and_load(value: Any) -> Any:
    file = io.BytesIO()
    torch.save({"value": value}, file)
    file.seek(0)
    return torch.load(file, weights_only=True)["value"]


def test_copies_and_pickles() -> None:
    output = ndd.brightness(ndd.tensor(np.ones((200, 200, 3), np.uint8), layout="HWC"), brightness=3.0)
    for other in (copy.copy(output), copy.deepcopy(output), pickle.loads(pickle.dumps(output)), save_and_load(output)):
        assert (other.shape, other.layout, int(other.torch().max())) == ((200, 200, 3), "HWC", 3)
    output.torch()[:] = 5
    assert copy.copy(output).torch().data_ptr() == output.torch().data_ptr() != copy.deepcopy(output).torch().data_ptr()
    part = ndd.batch(np.zeros((50, 1000))).tensors[3]
    assert len(pickle.dumps(part)) < 10_000, "a sample is saved without its batch"
    assert save_and_load(ndd.tensor([1.5], dtype=ndd.bfloat16)).dtype == ndd.bfloat16


def test_tensor_of_a_batch() -> None:
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
    assert ndd.as_tensor(ragged, dtype="u8", pad=True).dtype == ndd.uint8
    empty = ndd.as_tensor(ndd.batch([], dtype=ndd.float32))
    assert (empty.shape, empty.dtype) == ((0,), ndd.float32)
    with pytest.raises(TypeError, match="Unexpected element type Batch"):
        ndd.Tensor(dense)


def test_tensor_of_a_ragged_batch_fails_when_used() -> None:
    ragged = ndd.batch([[1, 2], [3]], layout="W")
    for mode in (ndd.EvalMode.eager, ndd.EvalMode.deferred):
        with mode:
            stacked = ndd.as_tensor(ragged)  # the line of the error
        assert (stacked.dtype, stacked.ndim, stacked.layout, stacked.device) == (ndd.int32, 2, "NW", ndd.Device("cpu"))
        uses: list[Any] = [stacked.evaluate, stacked.torch, lambda s=stacked: s.shape, lambda s=stacked: s + 1, lambda s=stacked: np.asarray(s)]
        for use in (*uses, lambda s=stacked: ndd.flip(s), lambda s=stacked: s[0], lambda s=stacked: repr(s), lambda s=stacked: ndd.as_tensor(s)):
            with pytest.raises(ValueError, match=r"non-uniform shape.*\ncalled at .*test_tensor\.py:\d+: stacked = ndd\.as_tensor") as caught:
                use()
            cause = caught.value.__cause__
            assert isinstance(cause, ValueError)
            assert "non-uniform shape [(2,), (1,)]" in str(cause)
            lines = [entry.line for entry in traceback.extract_tb(cause.__traceback__)]
            assert lines[-1] == "stacked = ndd.as_tensor(ragged)  # the line of the error"
    for mode in (ndd.EvalMode.sync_cpu, ndd.EvalMode.sync_full):
        with mode, pytest.raises(ValueError, match="non-uniform shape"):
            ndd.as_tensor(ragged)


def test_tensor_of_pending_work_stays_pending() -> None:
    with ndd.EvalMode.deferred:
        batch = ndd.brightness(ndd.batch(np.ones((2, 50, 50, 3), np.uint8), layout="HWC"), brightness=2.0)
        stacked = ndd.as_tensor(batch)
    assert (stacked.pending is not None, stacked.layout, int(stacked.torch().max())) == (True, "NHWC", 2)


@pytest.mark.parametrize("mode", ndd.EvalMode)
def test_conversion_stays_pending(mode: ndd.EvalMode) -> None:
    source = ndd.tensor(np.full((300, 300, 3), 100, np.uint8), layout="HWC")
    with mode:
        brighter = ndd.brightness(source, brightness=2.0)
        outputs = [
            ndd.as_tensor(brighter, dtype="f32"),
            ndd.tensor(brighter),
            ndd.Tensor(brighter, copy=True),
            brighter.to_device("cpu", force_copy=True),
        ]
        outputs.append(ndd.as_batch(brighter).tensors[7])
        if mode == ndd.EvalMode.deferred:
            assert all(sample.pending is not None for sample in outputs)
        assert [sample.dtype for sample in outputs] == [ndd.float32] + 4 * [ndd.uint8]
        assert all(int(sample.torch().min()) == int(sample.torch().max()) == 200 for sample in outputs)
