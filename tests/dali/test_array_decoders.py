# SPDX-License-Identifier: Apache-2.0
"""decoders.numpy against DALI's. Its Fits reader and its decoder of arrays in Fortran order do not run without a GPU driver."""

import io
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from _dali import assert_same, dali, evaluate

import torch_ndd as ndd

DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")


def npy(array: np.ndarray) -> np.ndarray:
    file = io.BytesIO()
    np.save(file, array)
    return np.frombuffer(file.getvalue(), np.uint8)


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(0).uniform(0, 99, shape).astype(dtype)


def fresh(program: Callable[[ModuleType], Any]) -> Callable[[ModuleType], Any]:
    """DALI keeps an operator of a context at the first dtype that it saw."""

    def call(module: ModuleType) -> Any:
        with module.EvalContext():
            return program(module).evaluate()

    return call


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_and_shapes(dtype: str) -> None:
    for shape in ((), (0,), (5,), (2, 3), (3, 0, 2), (2, 3, 4, 5)):
        file = npy(numbers(shape, dtype))
        assert_same(fresh(lambda module, file=file: module.decoders.numpy(module.as_tensor(file))))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"])
def test_dtype_converts_the_numbers(dtype: str) -> None:
    for values in ([300.0, -5.0, 2.5, 3.5, 254.6], [1, 2, 3], [True, False]):
        file = npy(np.array(values))
        assert_same(fresh(lambda module, file=file: module.decoders.numpy(module.as_tensor(file), dtype=getattr(module, dtype))))


def test_batches_and_errors() -> None:
    a, b = numbers((3, 4), "float32"), numbers((2, 4), "float32")
    good = npy(a)
    for files, raises in (([good, npy(b)], None), ([good, npy(a.astype(np.int32))], RuntimeError), ([good, npy(a[0])], RuntimeError)):
        assert_same(fresh(lambda module, files=files: module.decoders.numpy(module.batch([module.as_tensor(file) for file in files]))), raises=raises)
    others = (np.zeros(3, np.complex64), np.array(["a"]))
    for file in (good[:-4], np.zeros(100, np.uint8), np.zeros(0, np.uint8), *map(npy, others)):
        assert_same(fresh(lambda module, file=file: module.decoders.numpy(module.as_tensor(file))), raises=RuntimeError)


def test_bytes_behind_an_array_are_an_error_in_dali_alone() -> None:
    """As for ``numpy.load`` and the readers of both."""
    array = numbers((3, 4), "float32")
    with_more = np.append(npy(array), npy(array)[:4])
    np.testing.assert_array_equal(np.asarray(ndd.decoders.numpy(with_more)), array)
    with pytest.raises(RuntimeError):
        evaluate(lambda module: module.decoders.numpy(module.as_tensor(with_more)), dali)
