# SPDX-License-Identifier: Apache-2.0
"""Slices of tensors and of the samples of batches compared with DALI's. Deliberate differences are in known_differences.md."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _dali import assert_same, dali, evaluate
from _raises import Raises, raising

import torch_ndd as ndd

CUBE = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
RAGGED = [np.arange(6, dtype=np.int32).reshape(2, 3), np.arange(12, dtype=np.int32).reshape(4, 3), np.arange(20, dtype=np.int32).reshape(5, 4)]
ALL = slice(None)

KEYS: list[Any] = [
    (0, 0, 0),
    (0, ALL, ALL),
    (-1, ALL, -2),
    slice(1, None),
    slice(None, -1),
    slice(None, None, -1),
    slice(None, None, 2),
    slice(None, None, -2),
    slice(-1, None, -1),
    slice(-1, 0, -1),
    slice(2, 1),
    slice(1, 2, -1),
    slice(-99, 99),
    slice(99, -99, -2),
    slice(5, 9),
    (Ellipsis, slice(-1, 1, -1)),
    (Ellipsis, -1),
    (0, Ellipsis, 0),
    (Ellipsis, 1, ALL),
    (ALL, slice(1, 99), slice(None, None, 2)),
    (slice(None, None, -1), slice(None, None, -1), slice(None, None, -1)),
    (slice(2, 1), Ellipsis),
    (ALL, 2, slice(3, 1, -1)),
    (np.array(1), ALL, ALL),
    (slice(np.int64(1), None), ALL, ALL),
    (torch.tensor(2), ALL, slice(0, 0)),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "int32", "float64"])
def test_every_kind_of_index(key: Any, dtype: str) -> None:
    assert_same(lambda m: m.tensor(CUBE.astype(dtype), layout="DHW")[key].evaluate())


CHAINS: list[list[Any]] = [
    [slice(None, None, -1), slice(None, -1)],
    [slice(None, None, -1), slice(None, None, 2)],
    [slice(None, None, -1), slice(None, None, -1)],
    [slice(1, None), slice(None, None, -1), slice(1, None)],
    [slice(None, None, 2), slice(None, None, -1)],
    [(Ellipsis, slice(None, None, -2)), (Ellipsis, slice(1, None))],
    [(slice(None, None, -1), slice(1, 3)), (slice(1, None), slice(None, None, -1))],
    [(0, ALL, ALL), (ALL, slice(None, None, -1)), (1, ALL)],
    [(ALL, -1, slice(None, None, -1)), (slice(0, 2), slice(4, 0, -3))],
]


@pytest.mark.parametrize("chain", CHAINS, ids=str)
@pytest.mark.parametrize("mode", ["deferred", "eager", "sync_cpu", "sync_full"])
def test_indices_of_indices(chain: list[Any], mode: str) -> None:
    def program(m: Any) -> Any:
        with getattr(m.EvalMode, mode):
            value = m.tensor(CUBE, layout="DHW")
            for key in chain:
                value = value[key]
            return value.evaluate()

    assert_same(program)


@pytest.mark.parametrize("chain", CHAINS[:4], ids=str)
def test_chains_of_batches(chain: list[Any]) -> None:
    def program(m: Any) -> Any:
        value = m.batch(RAGGED, layout="HW")
        for key in chain:
            value = value.slice[key]
        return value.evaluate()

    assert_same(program)


@pytest.mark.parametrize(
    "key",
    [
        0,
        -1,
        slice(1, None),
        slice(None, None, -1),
        slice(None, None, -2),
        slice(2, 99),
        slice(-99, 1),
        (Ellipsis, 0),
        (Ellipsis, slice(1, -1)),
        (ALL, slice(1, -1)),
        (ALL, slice(None, None, -1)),
        (slice(3, None, -1), slice(-1, -3, -1)),
        (1, 2),
        (1, slice(5, 9)),
        (slice(2, 99), ALL),
        (np.array(1), ALL),
    ],
    ids=str,
)
@pytest.mark.parametrize("samples", [RAGGED, list(CUBE)], ids=["ragged", "dense"])
def test_slice_of_samples(key: Any, samples: list[np.ndarray]) -> None:
    assert_same(lambda m: m.batch(samples, layout="HW").slice[key].evaluate())


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "Tensors": lambda m: m.tensor(CUBE)[m.tensor(1), m.tensor(0) :, 2],
    "Tensor as a step": lambda m: m.tensor(CUBE)[0 : 3 : m.tensor(2)],
    "Tensor of uint8": lambda m: m.tensor(CUBE)[m.tensor(1, dtype=m.uint8)],
    "True": lambda m: m.tensor(CUBE)[True],
    "Batch of indices": lambda m: m.batch(RAGGED, layout="HW").slice[m.batch([1, 3, -1])],
    "Batch of indices of a dense batch": lambda m: m.batch(CUBE, layout="HW").slice[ALL, m.batch([1, 4, -1])],
    "Batches of indices": lambda m: m.batch(RAGGED, layout="HW").slice[m.batch([1, 3, 0]), m.batch([0, 2, -1])],
    "Batch of starts": lambda m: m.batch(RAGGED, layout="HW").slice[m.batch([0, 2, -2]) :, 1],
    "Batch of stops": lambda m: m.batch(RAGGED, layout="HW").slice[: m.batch([1, -1, 99])],
    "Batches of bounds": lambda m: m.batch(RAGGED, layout="HW").slice[m.batch([1, 0, 3]) : m.batch([2, 0, 1]) : m.batch([1, 2, -1])],
    "Batch and Tensor": lambda m: m.batch(RAGGED, layout="HW").slice[m.batch([1, 3, 0]), m.tensor(1) :],
    "Batch of uint8": lambda m: m.batch(RAGGED).slice[m.batch([1, 3, 0], dtype=m.uint8)],
    "Batch that is computed": lambda m: m.batch(RAGGED).slice[m.batch([0, 1, 2]) + 1 :],
    "part of a result": lambda m: (m.tensor(CUBE) + 1)[::-1, 1:, 2],
    "parts of results": lambda m: (m.batch(RAGGED, layout="HW") * 2).slice[::-1, 1:],
    "result of a part": lambda m: m.tensor(CUBE, layout="DHW")[1:, ::-1] * 2,
    "part of external data": lambda m: m.as_tensor(CUBE, layout="DHW")[1:, ::-1],
    "parts of external data": lambda m: m.as_batch(CUBE, layout="HW").slice[1:, ::-1],
    "float batch": lambda m: m.batch([value.astype(np.float64) for value in RAGGED]).slice[1:],
    "sample, then part": lambda m: m.batch(RAGGED, layout="HW").tensors[1][::-1, 0],
    "part, then sample": lambda m: m.batch(RAGGED, layout="HW").slice[::-1, 0].tensors[1],
    "too many keys": raising(ValueError, lambda m: m.tensor(CUBE)[0, 0, 0, 0]),
    "two Ellipses": raising(ValueError, lambda m: m.tensor(CUBE)[..., 0, ...]),
    "too many keys for samples": raising(RuntimeError, lambda m: m.batch(RAGGED).slice[0, 0, 0].evaluate()),
    "another batch size": raising(ValueError, lambda m: m.batch(RAGGED).slice[m.batch([1])].evaluate()),
    "Batch of vectors": raising(RuntimeError, lambda m: m.batch(RAGGED).slice[m.batch([[1], [0], [0]])].evaluate()),
    "sample by a float": raising(TypeError, lambda m: m.batch(RAGGED).tensors[1.0]),
    "sample by a tuple": raising(TypeError, lambda m: m.batch(RAGGED).tensors[0, 1]),
    "sample too far": raising(IndexError, lambda m: m.batch(RAGGED).tensors[3]),
    "select too far": raising(IndexError, lambda m: m.batch(RAGGED).select(-4)),
    "select several too far": raising(IndexError, lambda m: m.batch(RAGGED).select([0, 5])),
    "select by a float": raising(TypeError, lambda m: m.batch(RAGGED).select(1.0)),
    "select None": raising(TypeError, lambda m: m.batch(RAGGED).select(None)),
    "list of samples": lambda m: m.tensor([len(m.batch(RAGGED).tensors[key]) for key in (slice(1, None), [0, 0, 1, 2], slice(None, None, -1))]),
    "chosen samples as a list": lambda m: m.as_batch(m.batch(RAGGED).tensors[[2, 0]].tolist()),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_same_as_dali(program: Callable[[Any], Any], raises: Raises | None) -> None:
    assert_same(program, raises=raises)


@pytest.mark.parametrize("key", [(), Ellipsis, ALL, (ALL, slice(0, None)), (Ellipsis, Ellipsis), (ALL,) * 4, slice(None, None, 1)], ids=str)
def test_everything_is_the_tensor_itself(key: Any) -> None:
    for module in (ndd, dali):
        value = module.tensor(CUBE)
        assert value[key] is value


@pytest.mark.parametrize("key", [3, -4, (0, 4), (Ellipsis, 5)], ids=str)
def test_an_index_outside_raises(key: Any) -> None:
    with pytest.raises(IndexError):
        evaluate(lambda m: m.tensor(CUBE)[key], ndd)
    with pytest.raises(IndexError):
        evaluate(lambda m: m.tensor(m.tensor(CUBE)[key].shape), dali)
    with pytest.raises(IndexError):
        evaluate(lambda m: m.batch(list(CUBE)).slice[5], ndd)


def test_selections_that_dali_gets_wrong_follow_its_documentation() -> None:
    batch = ndd.batch(RAGGED)
    assert [value.torch().tolist() for value in batch.select([2, 0])] == [RAGGED[2].tolist(), RAGGED[0].tolist()]
    theirs = dali.batch(RAGGED)
    assert [np.asarray(value).shape for value in theirs.select([2, 0])] == [value.shape for value in RAGGED], "DALI is fixed: compare with it"
