# SPDX-License-Identifier: Apache-2.0
"""Constructors, conversions, indexing and selection of values against DALI's. What differs on purpose stands in known_differences.md."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

dali = pytest.importorskip("nvidia.dali.experimental.dynamic")

import torch_ndd as ndd  # noqa: E402
from torch_ndd import types  # noqa: E402

RAGGED = [np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(12, dtype=np.int32).reshape(4, 3)]
CUBE = np.arange(24, dtype=np.int32).reshape(2, 3, 4)


def described(value: Any) -> Any:
    """What both libraries say about a value, in plain Python."""
    if isinstance(value, list | tuple):
        return [described(one) for one in value]
    if hasattr(value, "batch_size"):
        return [value.batch_size, value.layout, value.ndim, str(value.device), [described(one) for one in value]]
    if hasattr(value, "evaluate"):
        array = np.asarray(value.evaluate())
        name = str(value.dtype) if not isinstance(value.dtype, torch.dtype) else types.dtype_name(value.dtype)
        return [name, tuple(value.shape), value.layout, array.tolist()]
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), value.tolist()]
    return value.tolist() if isinstance(value, np.ndarray) else value


def outcome(module: ModuleType, program: Callable[[ModuleType], Any]) -> Any:
    try:
        return described(program(module))
    except Exception as error:
        return type(error)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    # numbers
    "int": lambda m: m.tensor(5),
    "ints": lambda m: m.tensor([1, 2]),
    "range": lambda m: m.tensor(range(3)),
    "uint32": lambda m: [m.tensor(2**31), m.tensor([2**32 - 1, 0])],
    "beyond uint32": lambda m: m.tensor(2**32),
    "beyond int32": lambda m: m.tensor(-(2**31) - 1),
    "beyond both": lambda m: m.tensor([-1, 2**31]),
    "int64": lambda m: m.tensor(2**40, dtype=m.int64),
    "float64": lambda m: m.tensor([0.1], dtype=m.float64),
    "beyond uint8": lambda m: m.tensor(300, dtype=m.uint8),
    "truncated": lambda m: m.tensor([2.7, -1.5], dtype=m.int32),
    "floats": lambda m: [m.tensor(5.0), m.tensor([]), m.tensor([1, 2.5])],
    "bools": lambda m: [m.tensor(True), m.tensor([True, False])],
    "numpy scalars": lambda m: [m.tensor([np.float64(1)]), m.tensor(np.float64(3.5)), m.tensor([np.uint8(1)])],
    "list of arrays": lambda m: m.tensor([np.array([1, 2]), np.array([3, 4])]),
    "list of tensors": lambda m: m.tensor([m.tensor([1, 2]), m.tensor([3, 4])]),
    "ragged list": lambda m: m.tensor([[1], [1, 2]]),
    "object": lambda m: m.tensor(object()),
    "nothing": lambda m: m.tensor(None),
    "saturated": lambda m: m.tensor(np.array([300.0, -5.0, 2.5, 3.5, 254.6]), dtype=m.uint8),
    "rounded": lambda m: m.tensor(np.array([0.5, 2.5, -0.5, 1.4999999]), dtype=m.int32),
    "narrowed": lambda m: m.tensor(np.array([-1, 256]), dtype=m.uint8),
    "to bool": lambda m: m.tensor(np.array([0.4, 1.0, -3.0]), dtype=m.bool),
    "to float16": lambda m: m.tensor(np.array([70000.0, 1.0]), dtype=m.float16),
    "short names": lambda m: [m.tensor([1, 2], dtype=name) for name in ("u8", "f16", "f64", "bool", "i64")],
    "long name": lambda m: m.tensor([1], dtype="float32"),
    "Python types": lambda m: [m.tensor([1, 0], dtype=bool), m.tensor([1, 0], dtype=float)],
    "int as a type": lambda m: m.tensor([1], dtype=int),
    **{
        f"array of {name}": lambda m, name=name: m.tensor(np.arange(3).astype(name))
        for name in ("int8", "uint16", "uint32", "uint64", "int64", "float16", "float64", "bool")
    },
    # metadata
    "layout": lambda m: m.tensor(CUBE, layout="HWC"),
    "wrong layout": lambda m: m.tensor(CUBE, layout="HW").evaluate(),
    "sizes": lambda m: [getattr(m.tensor(CUBE), name) for name in ("shape", "ndim", "size", "itemsize", "nbytes")],
    "item": lambda m: [m.tensor([[5]]).item(), m.tensor(2.5).item(), m.tensor(True).item()],
    "item of two": lambda m: m.tensor([1, 2]).item(),
    "hash": lambda m: hash(m.tensor(1)),
    "to torch": lambda m: [m.tensor(CUBE).torch(), m.tensor([1.5]).torch(copy=True)],
    "to numpy": lambda m: [np.asarray(m.tensor(CUBE)), np.array(m.tensor(CUBE), dtype=np.float32)],
    "no copy": lambda m: np.array(m.tensor(CUBE), dtype=np.float32, copy=False),
    "dlpack": lambda m: torch.from_dlpack(m.tensor(CUBE)),
    "dlpack device": lambda m: [int(part) for part in m.tensor(CUBE).__dlpack_device__()],
    "as itself": lambda m: m.as_tensor(m.tensor(CUBE, layout="HWC"), layout="XYZ"),
    "on the CPU": lambda m: (lambda t: t.cpu() is t)(m.tensor(CUBE)),
    "unknown device": lambda m: m.tensor(CUBE, device="tpu"),
    # indexing
    **{
        f"index {key}": lambda m, key=key: m.tensor(CUBE, layout="DHW")[key]
        for key in (
            (0, 0, 0),
            (0, slice(None), slice(None)),
            slice(1, None),
            slice(None, None, -1),
            (Ellipsis, slice(-1, 1, -1)),
            (Ellipsis, -1),
            (0, Ellipsis, 0),
            (slice(None), slice(1, 99), slice(None, None, 2)),
            (slice(2, 1), Ellipsis),
            (0, 0, 0, 0),
            (Ellipsis, 0, Ellipsis),
        )
    },
    "index tensor": lambda m: m.tensor(CUBE)[m.tensor(1), m.tensor(0) :, 2],
    "everything": lambda m: [(lambda t: t[key] is t)(m.tensor(CUBE)) for key in ((), Ellipsis, slice(None), (slice(None), slice(0, None)))],
    # batches
    "batch of numbers": lambda m: [m.batch([1, 2.5]), m.batch([2.5, 1]), m.batch([True, False])],
    "batch of arrays": lambda m: [m.batch(RAGGED, layout="HW"), m.batch(CUBE, layout="HW"), m.as_batch(CUBE)],
    "batch of mixed types": lambda m: m.batch([np.array([7], np.uint8), np.array([300.0, -5.0], np.float32)]),
    "batch of a generator": lambda m: m.batch(k for k in range(3)),
    "batch of a tensor": lambda m: m.batch(m.tensor(CUBE)),
    "batch of nothing": lambda m: m.batch([]),
    "empty batch": lambda m: (lambda b: [b.batch_size, list(b.shape), b.ndim])(m.batch([], dtype=m.float32)),
    "batch of None": lambda m: m.batch([1, None]),
    "batch of a scalar": lambda m: m.batch(np.float32(1)),
    "batch of an int": lambda m: m.batch(5),
    "batch layout": lambda m: m.batch(CUBE, layout="NHW"),
    "batch dtype": lambda m: m.batch([1, 2], dtype=m.float32),
    "broadcast": lambda m: [m.Batch.broadcast([1, 2], 3), m.Batch.broadcast(m.tensor(CUBE, layout="HWC"), 2), m.Batch.broadcast(np.float64(1), 2)],
    "broadcast a batch": lambda m: m.Batch.broadcast(m.batch([1]), 2),
    "shapes": lambda m: [tuple(shape) for shape in m.batch(RAGGED).shape],
    "samples": lambda m: (lambda b: [len(b.tensors), b.tensors[1], b.tensors[-1], b.tensors[0] is b.tensors[0], *b])(m.batch(RAGGED, layout="HW")),
    "sample too far": lambda m: m.batch(RAGGED).tensors[2],
    "select": lambda m: (lambda b: [b.select(1), b.select(...) is b])(m.batch(RAGGED)),
    **{
        f"slice {key}": lambda m, key=key: m.batch(RAGGED, layout="HW").slice[key]
        for key in (0, -1, slice(1, None), slice(None, None, -1), (Ellipsis, 0), (slice(None), slice(1, -1)), (1, 2), (slice(2, 99), slice(None)))
    },
    "slice each": lambda m: [m.batch(RAGGED).slice[m.batch([1, 3])], m.batch(RAGGED).slice[m.batch([0, 2]) :, 1]],
    "slice everything": lambda m: [(lambda b: b.slice[key] is b)(m.batch(RAGGED)) for key in ((), slice(None))],
    "slice with another batch": lambda m: m.batch(RAGGED).slice[m.batch([1])].evaluate(),
    "stack": lambda m: [m.as_tensor(m.batch(CUBE, layout="HW")), m.as_tensor(m.batch([1, 2])), m.as_tensor(m.batch(CUBE))],
    "stack ragged": lambda m: m.as_tensor(m.batch(RAGGED)).evaluate(),
    "stack padded": lambda m: m.as_tensor(m.batch(RAGGED), pad=True),
    "stack as another type": lambda m: m.as_tensor(m.batch(CUBE), dtype=m.float32),
    "batch to torch": lambda m: [m.batch(CUBE).torch(), m.batch(RAGGED).torch(pad=True), m.batch(CUBE).torch(copy=True)],
    "ragged to torch": lambda m: m.batch(RAGGED).torch(),
    "ragged to torch without a copy": lambda m: m.batch(RAGGED).torch(copy=False, pad=True),
    "length of a batch": lambda m: len(m.batch(RAGGED)),
    "item of a batch": lambda m: m.batch(RAGGED)[0],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_dali(name: str) -> None:
    assert outcome(ndd, PROGRAMS[name]) == outcome(dali, PROGRAMS[name])


@pytest.mark.parametrize("make", ["tensor", "batch"])
def test_sharing_is_the_same(make: str) -> None:
    def shares(module: ModuleType, constructor: str) -> bool:
        array = np.zeros((2, 3), np.float32)
        value = getattr(module, constructor)(array)
        array[:] = 5
        return bool((np.asarray(value.torch()) == 5).all())

    for constructor in (make, f"as_{make}"):
        assert shares(ndd, constructor) == shares(dali, constructor) == (constructor != make)
