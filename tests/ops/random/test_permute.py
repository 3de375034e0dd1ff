# SPDX-License-Identifier: Apache-2.0
import itertools
from typing import Any

import numpy as np
import pytest
from _cases import Case, Each, Samples

import torch_ndd as ndd
from torch_ndd import EvalMode
from torch_ndd.random import RNG


def alike(ragged: bool) -> tuple[Samples, ...]:
    """Equal samples, because one alone is sample 0 too."""
    del ragged
    return ([np.arange(12, dtype=np.int16).reshape(2, 3, 2)] * 3,)


CASES = [
    Case("batch_permutation", "default", ragged=False),
    Case("batch_permutation", "repetitions", args={"allow_repetitions": True}, ragged=False),
    Case("permute_batch", "one", alike, {"indices": 0}, "HWC", lambda x, indices: x),
    Case("permute_batch", "each", alike, {"indices": Each([0, 0, 0])}, "HWC", lambda x, indices: x),
]


def numbers(size: int, seed: int, **args: Any) -> list[int]:
    return ndd.batch_permutation(batch_size=size, rng=RNG(seed), **args).torch().tolist()


def test_all_permutations_are_equally_likely() -> None:
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for seed in range(4800):
        counts[tuple(numbers(4, seed))] += 1
    assert sum((c - 200) ** 2 / 200 for c in counts.values()) < 60  # chi-squared, 23 degrees: 1 in 30000


def test_no_fixed_points() -> None:
    counts = {p: 0 for p in itertools.permutations(range(4)) if all(k != i for i, k in enumerate(p))}
    for seed in range(1800):
        counts[tuple(numbers(4, seed, no_fixed_points=True))] += 1
    assert sum((c - 200) ** 2 / 200 for c in counts.values()) < 34  # 8 degrees
    assert numbers(2, 1, no_fixed_points=True) == [1, 0]
    assert numbers(1, 1, no_fixed_points=True) == numbers(1, 1, no_fixed_points=True, allow_repetitions=True) == [0]


def test_repetitions_of_indices() -> None:
    outputs = np.array([numbers(6, seed, allow_repetitions=True) for seed in range(1000)])
    assert any(len(set(row)) < 6 for row in outputs.tolist())
    for k in range(6):
        assert np.abs(np.bincount(outputs[:, k], minlength=6) - 1000 / 6).max() < 60
    outputs = np.array([numbers(6, seed, allow_repetitions=True, no_fixed_points=True) for seed in range(1000)])
    assert (outputs != np.arange(6)).all()
    assert np.abs(np.bincount(outputs[:, 0], minlength=6)[1:] - 200).max() < 65


def test_permutation_needs_a_batch_size() -> None:
    with pytest.raises(ValueError, match="batch_size"):
        ndd.batch_permutation()
    assert ndd.batch_permutation(batch_size=0).shape == []
    large = ndd.batch_permutation(batch_size=100_000)
    assert large.dtype == ndd.int32
    assert sorted(large.torch().tolist()) == list(range(100_000))


DENSE = [[1, 2], [3, 4], [5, 6]]
RAGGED = [[1, 2], [3], [4, 5, 6]]


@pytest.mark.parametrize("samples", [DENSE, RAGGED])
@pytest.mark.parametrize("order", [[2, 1, 0], [2, 2, 2], [0, 1, 2], [1, 0, 1]])
@pytest.mark.parametrize(
    "kind", [list, tuple, np.array, ndd.tensor, ndd.batch, lambda n: ndd.batch([[k] for k in n]), lambda n: ndd.batch(np.float32(n))]
)
def test_samples_in_another_order(samples: list[list[int]], order: list[int], kind: Any) -> None:
    for mode in (EvalMode.deferred, EvalMode.eager, EvalMode.sync_cpu):
        with mode:
            batch = ndd.cast(ndd.batch(samples, layout="X"), dtype=ndd.int16)  # pending in the first mode
            output = ndd.permute_batch(batch, indices=kind(order))
            assert (output.shape, output.dtype, output.layout) == ([(len(samples[k]),) for k in order], ndd.int16, "X")
            assert [np.asarray(sample).tolist() for sample in output] == [samples[k] for k in order]


def test_one_index_for_all() -> None:
    for index in (2, ndd.tensor(2), [2, 2, 2]):
        assert [np.asarray(sample).tolist() for sample in ndd.permute_batch(ndd.batch(RAGGED), indices=index)] == [[4, 5, 6]] * 3
    assert np.asarray(ndd.permute_batch(ndd.tensor([1, 2]), indices=0)).tolist() == [1, 2]


def test_many_samples_on_several_threads() -> None:
    images = np.random.default_rng(1).integers(0, 256, (64, 50, 40, 3)).astype(np.uint8)
    batch = ndd.batch(images)
    for _ in range(20):
        order = ndd.batch_permutation(batch_size=64)
        output = ndd.permute_batch(ndd.noise.gaussian(batch, stddev=0), indices=order)
        np.testing.assert_array_equal(np.asarray(output.torch()), images[np.asarray(order.torch())])


@pytest.mark.parametrize("indices", [[2, 1], [2], [2, 1, 0, 1], [3, 1, 0], [-1, 1, 0], 3, -1, [], [[0, 1], [1, 1], [2, 2]]])
@pytest.mark.parametrize("samples", [DENSE, RAGGED])
def test_wrong_indices(samples: list[list[int]], indices: Any) -> None:
    with pytest.raises(RuntimeError, match="indices"):
        ndd.permute_batch(ndd.batch(samples), indices=indices).evaluate()


def test_wrong_types_of_indices() -> None:
    with pytest.raises(TypeError, match="indices"):
        ndd.permute_batch(ndd.batch(DENSE), indices=[1.5, 1, 0])
    with pytest.raises(TypeError, match="indices"):
        ndd.permute_batch(ndd.batch(DENSE))
    with pytest.raises(ValueError, match="indices"):
        ndd.permute_batch(ndd.batch(DENSE), indices=ndd.batch([0, 1]))
