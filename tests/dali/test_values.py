# SPDX-License-Identifier: Apache-2.0
"""Constructors, conversions, indexing and selection compared with DALI's. Deliberate differences are in known_differences.md."""

import enum
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from _dali import assert_equal
from _raises import Raises, raising

dali = pytest.importorskip("nvidia.dali.experimental.dynamic")

from nvidia.dali import types as dali_types  # noqa: E402

import torch_ndd as ndd  # noqa: E402
from torch_ndd import types  # noqa: E402

RAGGED = [np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(12, dtype=np.int32).reshape(4, 3)]
CUBE = np.arange(24, dtype=np.int32).reshape(2, 3, 4)


def describe(value: Any) -> Any:
    """Return what both libraries report about a value, in plain Python."""
    if isinstance(value, list | tuple):
        return [describe(element) for element in value]
    if hasattr(value, "batch_size"):
        return [value.batch_size, value.layout, value.ndim, str(value.device), [describe(element) for element in value]]
    if hasattr(value, "evaluate"):
        array = np.asarray(value.evaluate())
        return [name_of(value.dtype), tuple(value.shape), value.layout, array.tolist()]
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), value.tolist()]
    return value.tolist() if isinstance(value, np.ndarray) else value


def of_types(module: ModuleType) -> Any:
    return types if module is ndd else dali_types


def name_of(dtype: Any) -> str:
    return types.dtype_name(dtype) if isinstance(dtype, torch.dtype) else str(dtype)


ENUMERATED = [name for name in dir(types) if isinstance(getattr(types, name), enum.IntEnum)]


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    # numbers
    "int": lambda m: m.tensor(5),
    "ints": lambda m: m.tensor([1, 2]),
    "range": lambda m: [m.tensor(range(3)), m.tensor(range(0)), m.tensor((1, 2))],
    "mixed numbers": lambda m: [m.tensor([True, 2]), m.tensor([True, 2.5]), m.tensor([2**40, 1.5]), m.tensor([[], []])],
    "uint64": lambda m: m.tensor([2**63, 1], dtype=m.uint64),
    "beyond uint64": raising(OverflowError, lambda m: m.tensor(2**64, dtype=m.uint64)),
    "negative as uint8": raising(OverflowError, lambda m: m.tensor([-1], dtype=m.uint8)),
    "fraction below 0 as uint8": lambda m: m.tensor([-0.5], dtype=m.uint8),
    "float beyond uint8": raising(OverflowError, lambda m: m.tensor([300.0], dtype=m.uint8)),
    "infinity as int32": raising(OverflowError, lambda m: m.tensor([float("inf")], dtype=m.int32)),
    "nan as int32": raising(ValueError, lambda m: m.tensor([float("nan")], dtype=m.int32)),
    "numbers as bool": lambda m: m.tensor([2, 0, 0.3], dtype=m.bool),
    "bools as numbers": lambda m: [m.tensor(True, dtype=m.int8), m.tensor([True], dtype=m.float16)],
    "rounded to float32": lambda m: m.tensor(2**24 + 1, dtype=m.float32),
    "numpy scalar to uint8": lambda m: m.tensor(np.float64(3.7), dtype=m.uint8),
    "enumeration as int32": lambda m: m.tensor(of_types(m).GRAY, dtype=m.int32),
    "list of uint64 scalars": raising(OverflowError, lambda m: m.tensor([np.uint64(2**63)])),
    "list of int64 scalars": raising(OverflowError, lambda m: m.tensor([np.int64(2**40)])),
    "list of torch tensors": lambda m: [m.tensor([torch.tensor(1.0), torch.tensor(2.0)]), m.tensor([torch.zeros(2), torch.ones(2)])],
    "masked array": lambda m: m.tensor(np.ma.array([1, 2], mask=[0, 1])),
    "buffers": lambda m: [m.tensor(memoryview(b"abc")), m.tensor(bytearray(b"abc"))],
    "torch scalar": lambda m: [m.tensor(torch.tensor(3)), m.as_tensor(torch.tensor(2.5, dtype=torch.float16))],
    "str": raising(RuntimeError, lambda m: m.tensor("abc")),
    "bytes": raising(RuntimeError, lambda m: m.as_tensor(b"abc")),
    "list of str": raising(RuntimeError, lambda m: m.tensor(["a"])),
    "array of str": raising(RuntimeError, lambda m: m.Tensor(np.array(["a"]))),
    "array of objects": raising(RuntimeError, lambda m: m.tensor(np.array([object()]))),
    "complex array": raising(RuntimeError, lambda m: m.tensor(np.array([1j]))),
    "complex torch tensor": raising(RuntimeError, lambda m: m.tensor(torch.zeros(2, dtype=torch.complex64))),
    "torch tensor that requires grad": raising(RuntimeError, lambda m: m.tensor(torch.zeros(2, requires_grad=True))),
    "dict": raising(TypeError, lambda m: m.tensor({})),
    "set": raising(TypeError, lambda m: m.tensor({1})),
    "generator": raising(TypeError, lambda m: m.tensor(k for k in range(3))),
    "list of None": raising(TypeError, lambda m: m.tensor([None])),
    "Tensor of a batch": raising(TypeError, lambda m: m.Tensor(m.batch([1, 2]))),
    "uint32": lambda m: [m.tensor(2**31), m.tensor([2**32 - 1, 0])],
    "beyond uint32": raising(OverflowError, lambda m: m.tensor(2**32)),
    "beyond int32": raising(OverflowError, lambda m: m.tensor(-(2**31) - 1)),
    "beyond both": raising(OverflowError, lambda m: m.tensor([-1, 2**31])),
    "int64": lambda m: m.tensor(2**40, dtype=m.int64),
    "float64": lambda m: m.tensor([0.1], dtype=m.float64),
    "beyond uint8": raising(OverflowError, lambda m: m.tensor(300, dtype=m.uint8)),
    "truncated": lambda m: m.tensor([2.7, -1.5], dtype=m.int32),
    "floats": lambda m: [m.tensor(5.0), m.tensor([]), m.tensor([1, 2.5])],
    "bools": lambda m: [m.tensor(True), m.tensor([True, False])],
    "numpy scalars": lambda m: [m.tensor([np.float64(1)]), m.tensor(np.float64(3.5)), m.tensor([np.uint8(1)])],
    "list of arrays": lambda m: m.tensor([np.array([1, 2]), np.array([3, 4])]),
    "list of tensors": lambda m: m.tensor([m.tensor([1, 2]), m.tensor([3, 4])]),
    "ragged list": raising(ValueError, lambda m: m.tensor([[1], [1, 2]])),
    "object": raising(TypeError, lambda m: m.tensor(object())),
    "nothing": raising(ValueError, lambda m: m.tensor(None)),
    "saturated": lambda m: m.tensor(np.array([300.0, -5.0, 2.5, 3.5, 254.6]), dtype=m.uint8),
    "rounded": lambda m: m.tensor(np.array([0.5, 2.5, -0.5, 1.4999999]), dtype=m.int32),
    "narrowed": lambda m: m.tensor(np.array([-1, 256]), dtype=m.uint8),
    "to bool": lambda m: m.tensor(np.array([0.4, 1.0, -3.0]), dtype=m.bool),
    "to float16": lambda m: m.tensor(np.array([70000.0, 1.0]), dtype=m.float16),
    "short names": lambda m: [m.tensor([1, 2], dtype=name) for name in ("u8", "f16", "f64", "bool", "i64")],
    "Python types": lambda m: [m.tensor([1, 0], dtype=bool), m.tensor([1, 0], dtype=float)],
    "int as a type": raising(TypeError, lambda m: m.tensor([1], dtype=int)),
    "dtype": lambda m: [
        name_of(m.dtype(x)) for x in ("f32", "bool", "bfloat16", np.float32, np.dtype("u2"), torch.int8, float, bool, of_types(m).FLOAT)
    ],
    "dtype ''": raising(ValueError, lambda m: m.dtype("")),
    **{f"dtype {x!r}": raising(TypeError, lambda m, x=x: m.dtype(x)) for x in (int, None, 5, [], torch.complex64, np.complex64, np.str_)},
    "dtype of an enumeration's member": raising(TypeError, lambda m: m.dtype(of_types(m).INTERP_NN)),
    "type_id": lambda m: [
        None if (found := m.type_id(x)) is None else int(found)
        for x in (m.float32, m.bool, m.uint64, m.float16, m.bfloat16, m.DataType, m.ImageType, m.InterpType, of_types(m).INT8, of_types(m).STRING)
    ],
    "types of the numbers of enumerations": lambda m: [
        m.dtype(m.type_id(x)) == m.dtype(x) for x in (m.DataType, m.ImageType, m.InterpType, m.float32, m.bool)
    ],
    "what says where": lambda m: hasattr(m, "DeviceLike"),
    **{f"type_id {x!r}": raising(ValueError, lambda m, x=x: m.type_id(x)) for x in (None, 5, [])},
    "numbers of types": lambda m: {key: int(getattr(of_types(m), key)) for key in ENUMERATED},
    "layouts of types": lambda m: [getattr(of_types(m), key) for key in ("NHWC", "NCHW", "NFHWC", "NFCHW")],
    **{
        f"array of {name}": lambda m, name=name: m.tensor(np.arange(3).astype(name))
        for name in ("int8", "uint16", "uint32", "uint64", "int64", "float16", "float64", "bool")
    },
    # metadata
    "layout": lambda m: m.tensor(CUBE, layout="HWC"),
    "wrong layout": raising(ValueError, lambda m: m.tensor(CUBE, layout="HW").evaluate()),
    "sizes": lambda m: [getattr(m.tensor(CUBE), name) for name in ("shape", "ndim", "size", "itemsize", "nbytes")],
    "item": lambda m: [m.tensor([[5]]).item(), m.tensor(2.5).item(), m.tensor(True).item()],
    "item of none": raising(ValueError, lambda m: m.tensor([]).item()),
    "repr": lambda m: [repr(x) for x in (m.tensor([[0.0, 0.0]], layout="HW"), m.tensor(5), m.tensor([]), m.tensor(np.arange(2000)), m.tensor(CUBE))],
    "repr of batches": lambda m: [
        repr(x) for x in (m.batch([1, 2, 3]), m.batch([], dtype=m.float32), m.batch([[1, 2], [3]], layout="W"), m.batch([np.arange(2000)] * 2))
    ],
    "ten dimensions": lambda m: m.tensor(np.arange(2**10).reshape((2,) * 10), layout="ABCDEFGHIJ"),
    "item of two": raising(ValueError, lambda m: m.tensor([1, 2]).item()),
    "hash": raising(TypeError, lambda m: hash(m.tensor(1))),
    "to torch": lambda m: [m.tensor(CUBE).torch(), m.tensor([1.5]).torch(copy=True)],
    "to numpy": lambda m: [np.asarray(m.tensor(CUBE)), np.array(m.tensor(CUBE), dtype=np.float32)],
    "no copy": raising(ValueError, lambda m: np.array(m.tensor(CUBE), dtype=np.float32, copy=False)),
    "dlpack": lambda m: torch.from_dlpack(m.tensor(CUBE)),
    "dlpack device": lambda m: [int(part) for part in m.tensor(CUBE).__dlpack_device__()],
    "as itself": lambda m: m.as_tensor(m.tensor(CUBE, layout="HWC"), layout="XYZ"),
    "on the CPU": lambda m: (lambda t: t.cpu() is t)(m.tensor(CUBE)),
    "unknown device": raising(ValueError, lambda m: m.tensor(CUBE, device="tpu")),
    # batches
    "batch of numbers": lambda m: [m.batch([1, 2.5]), m.batch([2.5, 1]), m.batch([True, False])],
    "batch of arrays": lambda m: [m.batch(RAGGED, layout="HW"), m.batch(CUBE, layout="HW"), m.as_batch(CUBE)],
    "batch of mixed types": lambda m: m.batch([np.array([7], np.uint8), np.array([300.0, -5.0], np.float32)]),
    "batch of a generator": lambda m: m.batch(k for k in range(3)),
    "batch of a tensor": lambda m: m.batch(m.tensor(CUBE)),
    "batch of iterables": lambda m: [m.batch({3, 4}), m.batch({1: "a"}), m.batch(((1, 2), (3,))), m.batch(range(2)), m.batch(memoryview(b"ab"))],
    "batch of torch tensors": lambda m: [m.batch(torch.zeros(2, 3)), m.batch([torch.zeros(2), torch.zeros(1, dtype=torch.int32)])],
    "batch of an empty array": lambda m: m.batch(np.zeros((0, 3))),
    "batch of samples": lambda m: [m.batch(m.batch([1, 2]).tensors), m.as_batch(m.batch(RAGGED, layout="HW").tensors.tolist())],
    "batch of numpy scalars": lambda m: [m.batch([np.float64(1), np.float64(2)]), m.batch([np.float16(1), 2.7])],
    "first number decides": lambda m: [m.batch([True, 2]), m.batch([[1], [2.9]])],
    "number beyond the first's type": raising(OverflowError, lambda m: m.batch([np.uint8(1), 300])),
    "number beyond int32": raising(OverflowError, lambda m: m.batch([1, 2**31])),
    "number beyond uint32 in a batch": raising(OverflowError, lambda m: m.batch([2**32])),
    "batch of a ragged sample": raising(ValueError, lambda m: m.batch([[[1, 2], [3]]])),
    "batch of text": raising(RuntimeError, lambda m: m.batch("ab")),
    "batch of texts": raising(RuntimeError, lambda m: m.as_batch(["a", "b"])),
    "batch of batches": raising(TypeError, lambda m: m.batch([m.batch([1])])),
    "layouts of samples": lambda m: [
        m.batch([m.tensor(CUBE, layout="FHW"), m.tensor(CUBE, layout="DHW")]),
        m.batch([m.tensor(CUBE, layout="FHW"), m.tensor(CUBE)]),
        m.batch(CUBE, layout=""),
    ],
    "batch numbers with a type": lambda m: m.batch([1.7, -2.5], dtype=m.int8),
    "batch number beyond its type": raising(OverflowError, lambda m: m.batch([1.7, 300], dtype=m.uint8)),
    "as_batch of a batch": lambda m: (lambda b: [m.as_batch(b) is b, m.as_batch(b, layout="HW") is b, m.as_batch(b, dtype=m.int32) is b])(
        m.batch(CUBE, layout="HW")
    ),
    "as_batch of a batch with another layout": lambda m: (lambda b: [m.as_batch(b, layout="XY"), m.as_batch(b, layout=""), b])(
        m.batch(CUBE, layout="HW")
    ),
    "as_batch of a batch with another type": lambda m: m.as_batch(m.batch([[1.5], [300.0]]), dtype=m.uint8),
    "broadcast zero times": lambda m: m.Batch.broadcast(1, 0).batch_size,
    "broadcast to a type": lambda m: [m.Batch.broadcast([1.5], 2, dtype=m.int32), m.Batch.broadcast(2**31, 2), m.Batch.broadcast(1, np.int64(2))],
    "broadcast a negative number of times": raising(ValueError, lambda m: m.Batch.broadcast(1, -1)),
    "broadcast None": raising(TypeError, lambda m: m.Batch.broadcast(None, 2)),
    "broadcast text": raising(RuntimeError, lambda m: m.Batch.broadcast("a", 2)),
    "broadcast beyond uint32": raising(OverflowError, lambda m: m.Batch.broadcast(2**40, 2)),
    "broadcast None times": raising(TypeError, lambda m: m.Batch.broadcast(1, None)),
    "batch of nothing": raising(ValueError, lambda m: m.batch([])),
    "empty batch": lambda m: (lambda b: [b.batch_size, list(b.shape), b.ndim])(m.batch([], dtype=m.float32)),
    "batch of None": raising(TypeError, lambda m: m.batch([1, None])),
    "batch of a scalar": raising(ValueError, lambda m: m.batch(np.float32(1))),
    "batch of an int": raising(TypeError, lambda m: m.batch(5)),
    "batch layout": raising(ValueError, lambda m: m.batch(CUBE, layout="NHW")),
    "batch dtype": lambda m: m.batch([1, 2], dtype=m.float32),
    "broadcast": lambda m: [m.Batch.broadcast([1, 2], 3), m.Batch.broadcast(m.tensor(CUBE, layout="HWC"), 2), m.Batch.broadcast(np.float64(1), 2)],
    "broadcast a batch": raising(ValueError, lambda m: m.Batch.broadcast(m.batch([1]), 2)),
    "shapes": lambda m: [tuple(shape) for shape in m.batch(RAGGED).shape],
    "samples": lambda m: (lambda b: [len(b.tensors), b.tensors[1], b.tensors[-1], b.tensors[0] is b.tensors[0], *b])(m.batch(RAGGED, layout="HW")),
    "sample too far": raising(IndexError, lambda m: m.batch(RAGGED).tensors[2]),
    "select": lambda m: (lambda b: [b.select(1), b.select(...) is b])(m.batch(RAGGED)),
    "stack": lambda m: [m.as_tensor(m.batch(CUBE, layout="HW")), m.as_tensor(m.batch([1, 2])), m.as_tensor(m.batch(CUBE))],
    "stack ragged": raising(ValueError, lambda m: m.as_tensor(m.batch(RAGGED)).evaluate()),
    "stack padded": lambda m: m.as_tensor(m.batch(RAGGED), pad=True),
    "stack ragged, unused": lambda m: isinstance(m.as_tensor(m.batch(RAGGED)), m.Tensor),
    "stack ragged, its device": lambda m: str(m.as_tensor(m.batch(RAGGED)).device),
    "stack ragged, its shape": raising(ValueError, lambda m: m.as_tensor(m.batch(RAGGED)).shape),
    "stack ragged, added to": raising(ValueError, lambda m: (m.as_tensor(m.batch(RAGGED)) + 1).evaluate()),
    "stack padded with a layout": lambda m: m.tensor(m.batch([[1], [2, 3]], layout="W"), pad=True),
    "stack with its own layout": lambda m: m.as_tensor(m.batch(CUBE, layout="HW"), layout="NHW"),
    "stack with a wrong layout": raising(ValueError, lambda m: m.as_tensor(m.batch(CUBE, layout="HW"), layout="HW").evaluate()),
    "stack and round": lambda m: m.as_tensor(m.batch([[1.5], [300.0]]), dtype=m.uint8),
    "stack as another type": lambda m: m.as_tensor(m.batch(CUBE), dtype=m.float32),
    "batch to torch": lambda m: [m.batch(CUBE).torch(), m.batch(RAGGED).torch(pad=True), m.batch(CUBE).torch(copy=True)],
    "ragged to torch": raising(ValueError, lambda m: m.batch(RAGGED).torch()),
    "ragged to torch without a copy": raising(ValueError, lambda m: m.batch(RAGGED).torch(copy=False, pad=True)),
    "length of a batch": raising(TypeError, lambda m: len(m.batch(RAGGED))),
    "item of a batch": raising(TypeError, lambda m: m.batch(RAGGED)[0]),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_same_as_dali(program: Callable[[Any], Any], raises: Raises | None) -> None:
    assert_equal(lambda m: describe(program(m)), raises=raises)


@pytest.mark.parametrize("make", ["tensor", "batch"])
def test_sharing_is_the_same(make: str) -> None:
    def shares(module: ModuleType, constructor: str) -> bool:
        array = np.zeros((2, 3), np.float32)
        value = getattr(module, constructor)(array)
        array[:] = 5
        return bool((np.asarray(value.torch()) == 5).all())

    for constructor in (make, f"as_{make}"):
        assert shares(ndd, constructor) == shares(dali, constructor) == (constructor != make)


def test_types_are_complete() -> None:
    theirs = {
        name
        for name in dir(dali_types)
        if isinstance(getattr(dali_types, name), dali_types.DALIDataType | dali_types.DALIImageType | dali_types.DALIInterpType)
    }
    assert theirs <= set(ENUMERATED)


@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_ragged_stack_fails_alike(mode: str) -> None:
    def cause(module: Any) -> str:
        with getattr(module.EvalMode, mode):
            stacked = module.as_tensor(module.batch([[1], [2, 3]]))
        with pytest.raises(ValueError, match=r"evaluation|execution" if module is dali else r"non-uniform.*\ncalled at ") as caught:
            stacked.evaluate()
        assert type(caught.value.__cause__) is ValueError
        return str(caught.value.__cause__)[:33]

    assert cause(ndd) == cause(dali)


@pytest.mark.parametrize("mode", ["sync_cpu", "sync_full"])
def test_ragged_stack_fails_at_the_call_in_synchronous_modes(mode: str) -> None:
    for module in (ndd, dali):
        ragged = module.batch([[1], [2, 3]])
        with getattr(module.EvalMode, mode), pytest.raises(ValueError, match="non-uniform shape"):
            module.as_tensor(ragged)


LAZY: dict[str, Callable[[Any], Any]] = {
    "flip": lambda m: m.flip(m.batch(CUBE[..., None].astype(np.uint8), layout="HWC")),
    "cast": lambda m: m.cast(m.batch(RAGGED, layout="HW"), dtype=m.float32),
    "arithmetic": lambda m: m.batch(RAGGED, layout="HW") + 1.5,
    "slice of a batch": lambda m: m.flip(m.batch(CUBE[..., None].astype(np.uint8), layout="HWC")).slice[..., 0],
    "index of a tensor": lambda m: m.flip(m.tensor(CUBE, layout="HWC"))[..., 0],
    "sample": lambda m: m.flip(m.batch(CUBE[..., None].astype(np.uint8), layout="HWC")).tensors[1],
}


@pytest.mark.parametrize("name", LAZY)
def test_metadata_without_evaluation(name: str) -> None:
    def members(module: Any) -> list[Any]:
        with module.EvalMode.deferred:
            result = LAZY[name](module)
            before = [name_of(result.dtype), result.ndim, result.layout, str(result.device)]
            result.evaluate()
            assert before == [name_of(result.dtype), result.ndim, result.layout, str(result.device)]
            return before

    assert members(ndd) == members(dali)


SHORTENED = {
    "12 matrices": lambda m: m.batch(np.arange(1200).reshape(12, 10, 10)),
    "1000 elements": lambda m: m.batch(np.arange(1000).reshape(10, 10, 10)),
    "many numbers": lambda m: m.batch(np.arange(1001)),
    "some numbers": lambda m: m.batch(np.arange(40)),
    "many short vectors": lambda m: m.batch(np.arange(34).reshape(17, 2)),
    "many vectors": lambda m: m.batch(np.arange(1500).reshape(50, 30), layout="X"),
    "few long vectors": lambda m: m.batch(np.arange(3600).reshape(3, 1200)),
    "five samples": lambda m: m.batch([np.arange((k + 1) * 100).reshape(k + 1, 10, 10) for k in range(5)]),
    "shapes over several lines": lambda m: m.batch([np.zeros((1, 1, 1, 1, 1, k)) for k in range(12)]),
    "shapes": lambda m: m.batch([np.arange(k % 3 + 1) for k in range(17)]),
    "samples without elements": lambda m: m.batch([np.zeros((0, 3), np.float32)] * 1200),
    "no samples": lambda m: m.batch(np.zeros((0, 3), np.float32)),
    "half": lambda m: m.batch(np.linspace(0, 1, 1200).reshape(12, 100).astype(np.float16)),
    "a tensor": lambda m: m.tensor(np.arange(1200).reshape(30, 40), layout="HW"),
}


@pytest.mark.parametrize("make_value", SHORTENED.values(), ids=SHORTENED.keys())
def test_repr_is_shortened_above_1000_elements(make_value: Any) -> None:
    assert repr(make_value(ndd)) == repr(make_value(dali))
