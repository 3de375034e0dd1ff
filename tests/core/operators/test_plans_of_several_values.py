# SPDX-License-Identifier: Apache-2.0
"""Repeated calls of operators with several inputs or results, that mix samples, or without inputs, equal calls without plans."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from _plans import clear_plans

import torch_ndd as ndd
from torch_ndd._core.operators import plans
from torch_ndd._core.operators.arguments import round_half_away, round_numbers
from torch_ndd._core.operators.plans import freeze

Call = Callable[[ndd.Batch, np.random.Generator], Any]


def _permutation(x: ndd.Batch, rng: np.random.Generator, dtype: Any = np.int32) -> ndd.Batch:
    return ndd.batch(rng.integers(0, x.batch_size, x.batch_size).astype(dtype))


def _maps(rng: np.random.Generator, layout: str | None = None) -> ndd.Tensor:
    return ndd.as_tensor(rng.uniform(-1, 17, (5, 7)).astype(np.float32), layout=layout)


def _spectrograms(x: ndd.Batch) -> ndd.Batch:
    values = ndd.reductions.mean(x, axes=[2])
    values.relabel("ft")
    return values


LEVELS = list(range(256))
_CORNERS = [[0.0, 0.0], [0.5, 0.5]]

CALLS: dict[str, Call] = {
    "cat of one batch twice": lambda x, rng: ndd.cat(x, x, axis=1),
    "cat": lambda x, rng: ndd.cat(x, ndd.flip(x), ndd.brightness(x, brightness=0.5)),
    "cat, by name": lambda x, rng: ndd.cat(ndd.flip(x, vertical=1), x, axis_name="W"),
    "stack": lambda x, rng: ndd.stack(x, ndd.flip(x), axis=1),
    "stack of six": lambda x, rng: ndd.stack(x, ndd.flip(x), x, ndd.flip(x, vertical=1), x, x),
    "permute_batch": lambda x, rng: ndd.permute_batch(x, indices=_permutation(x, rng)),
    "permute_batch, fractions": lambda x, rng: ndd.permute_batch(x, indices=_permutation(x, rng, np.float32)),
    "permute_batch of work": lambda x, rng: ndd.permute_batch(ndd.flip(x), indices=_permutation(x, rng)),
    "permute_batch, one sample": lambda x, rng: ndd.permute_batch(x, indices=1),
    "lookup_table": lambda x, rng: ndd.lookup_table(x, keys=LEVELS, values=[255.0 - level for level in LEVELS], dtype=ndd.uint8),
    "lookup_table, one of two": lambda x, rng: ndd.lookup_table(x, keys=LEVELS, values=[float(level * rng.integers(1, 3)) for level in LEVELS]),
    "remap": lambda x, rng: ndd.experimental.remap(x, _maps(rng), _maps(rng)),
    "remap, a map for each sample": lambda x, rng: ndd.experimental.remap(
        x, ndd.batch(rng.uniform(-1, 17, (x.batch_size, 4, 3)).astype(np.float32)), ndd.as_tensor(np.ones((4, 3), np.float32))
    ),
    "multi_paste, regions": lambda x, rng: ndd.multi_paste(
        x, ndd.flip(x), output_size=[20, 70], shapes_rel=ndd.tensor([[0.5, 0.5]] * 2), out_anchors_rel=ndd.tensor(_CORNERS)
    ),
    "multi_paste, numbers that change": lambda x, rng: ndd.multi_paste(
        x, output_size=[70, 70], in_ids=[0, 1], out_anchors_rel=ndd.tensor((rng.integers(0, 2, (2, 2)) / 8).astype(np.float32))
    ),
    "multi_paste, samples": lambda x, rng: ndd.multi_paste(
        ndd.flip(x), output_size=[70, 70], in_ids=ndd.batch(rng.integers(0, 2, (x.batch_size, 1)))
    ),
    "patchify": lambda x, rng: ndd.patchify(x, patch_size=4),
    "patchify, padded": lambda x, rng: ndd.patchify(x, patch_size=[5, 6], merge_size=2, pad=True, order="HWC"),
    "salt_and_pepper": lambda x, rng: ndd.noise.salt_and_pepper(x, prob=0.4, salt_val=200.0),
    "salt_and_pepper, numbers": lambda x, rng: ndd.noise.salt_and_pepper(x, prob=ndd.batch(rng.uniform(0, 1, x.batch_size)), per_channel=True),
    "time_mask": lambda x, rng: ndd.time_mask(_spectrograms(x), time_mask_param=7.0, mask_value=3.0),
    "time_mask, means": lambda x, rng: ndd.time_mask(ndd.cast(_spectrograms(x), dtype=ndd.float32), time_mask_param=7.0, mask_value="mean"),
    "frequency_mask": lambda x, rng: ndd.frequency_mask(
        _spectrograms(x), freq_mask_param=ndd.batch(rng.uniform(1, 8, x.batch_size)), num_masks=2, p=0.7
    ),
    "time_mask, numbers": lambda x, rng: ndd.time_mask(
        _spectrograms(x), time_mask_param=7.0, mask_value=ndd.batch(rng.uniform(1, 8, x.batch_size).astype(np.float32))
    ),
    "normalize by the batch": lambda x, rng: ndd.normalize(x, batch=True),
    "coin_flip": lambda x, rng: ndd.random.coin_flip(batch_size=x.batch_size, probability=0.5, shape=[9]),
    "coin_flip, probabilities": lambda x, rng: ndd.random.coin_flip(batch_size=x.batch_size, probability=ndd.batch(rng.uniform(0, 1, x.batch_size))),
    "uniform": lambda x, rng: ndd.random.uniform(batch_size=x.batch_size, range=[1.0, 3.0]),
    "normal": lambda x, rng: ndd.random.normal(batch_size=x.batch_size, shape=[3, 2], stddev=2.0),
    "batch_permutation": lambda x, rng: ndd.batch_permutation(batch_size=x.batch_size),
    "rotation": lambda x, rng: ndd.transforms.rotation(batch_size=x.batch_size, angle=30.0),
    "slice, fractions": lambda x, rng: ndd.slice(
        x,
        start=ndd.batch(rng.uniform(-2.5, 3, (x.batch_size, 2)).astype(np.float32)),
        shape=ndd.batch(rng.uniform(0, 9, (x.batch_size, 2))),
        out_of_bounds_policy="pad",
    ),
    "slice, fractions and zeros": lambda x, rng: ndd.slice(  # two float32 numbers, read as an int64, would be a valid start
        x, start=ndd.batch((rng.integers(0, 9, (x.batch_size, 2)) * [1, 0]).astype(np.float32)), shape=[3, 4], out_of_bounds_policy="pad"
    ),
    "mirrors that are fractions": lambda x, rng: ndd.resize_crop_mirror(
        x, size=[9, 8], crop=[4, 5], mirror=ndd.batch((rng.integers(0, 4, x.batch_size) - 0.4).astype(np.float32))
    ),
}
# Constants that change with each call.
NEVER_REPEATED = {"lookup_table, one of two", "multi_paste, numbers that change", "time_mask, numbers"}
# The others follow the shapes of several inputs, or of the whole batch, if these differ.
REPEATED_IF_RAGGED = {
    *("coin_flip", "coin_flip, probabilities", "uniform", "normal", "batch_permutation", "rotation"),
    *(
        "lookup_table",
        "permute_batch",
        "permute_batch, fractions",
        "permute_batch of work",
        "patchify, padded",
        "slice, fractions",
    ),
    *("slice, fractions and zeros", "mirrors that are fractions"),
}


def _images(rng: np.random.Generator, samples: int, ragged: bool) -> ndd.Batch:
    extents = 4 * rng.integers(2, 5, (samples, 2)) if ragged else np.array([[12, 16]] * samples)
    return ndd.batch([rng.integers(0, 256, (*extent, 3), dtype=np.uint8) for extent in extents.tolist()], layout="HWC")


def _values(result: Any) -> list[tuple[Any, ...]]:
    """Return everything that a program sees of a result."""
    batches = result if isinstance(result, tuple) else (result,)
    seen: list[tuple[Any, ...]] = []
    for batch in batches:
        arrays = [np.asarray(sample).tobytes() for sample in batch.evaluate()]
        seen.append((batch.layout, batch.dtype, batch.shape, batch.ragged_shapes is None, arrays, list(batch.sources)))
    return seen


@contextmanager
def _without_plans() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "run_plan", lambda *arguments: None)
        patch.setattr(plans, "_start_records", lambda *arguments: None)
        yield


def _count_performed(patch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of operators that this thread calls without a plan; loaders of other tests may still run theirs."""
    performed: list[str] = []
    perform, this_thread = plans.perform, threading.get_ident()

    def observe(op: Any, *arguments: Any) -> Any:
        if threading.get_ident() == this_thread:
            performed.append(op.name)
        return perform(op, *arguments)

    patch.setattr(plans, "perform", observe)
    clear_plans()
    return performed


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("name", CALLS)
def test_repeated_calls_equal_calls_without_plans(name: str, ragged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [3, 3, 3, 3, 3, 3, 5, 2, 7, 3, 2, 5, 5, 5]

    def run(k: int) -> Any:
        rng = np.random.default_rng(k)
        ndd.random.set_seed(k)
        images = _images(rng, sizes[k], ragged)
        images.sources = tuple(f"{k}-{i}" for i in range(sizes[k]))
        return CALLS[name](images, rng)

    performed = _count_performed(monkeypatch)
    counts, found = [], []
    for k in range(len(sizes)):
        performed.clear()
        found.append(_values(run(k)))
        counts.append([*performed])
    with _without_plans():
        assert found == [_values(run(k)) for k in range(len(sizes))]
    if name not in NEVER_REPEATED and (not ragged or name in REPEATED_IF_RAGGED):
        assert counts[4] == counts[5] == []


@pytest.mark.parametrize("mirror", [1, [1, 0, 1]], ids=["constant", "list"])
def test_calls_that_cannot_be_repeated_leave_others_their_plans(mirror: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    performed = _count_performed(monkeypatch)

    def resize(seed: int, size: Any) -> Any:
        images = _images(np.random.default_rng(seed), 3, ragged=True)
        return _values(ndd.resize_crop_mirror(images, size=size, crop=[4, 4], mirror=mirror))

    for k in range(4):
        resize(k, [[9, 8], [5, 6], [7, 7]])
    for k in range(3):
        resize(k, [9, 8])
    performed.clear()
    found = resize(4, [9, 8])
    assert performed == []
    with _without_plans():
        assert found == resize(4, [9, 8])


def test_plan_keeps_no_memory_of_the_program() -> None:
    images = _images(np.random.default_rng(0), 3, False)

    def paste(regions: Any) -> torch.Tensor:
        return ndd.multi_paste(images, output_size=[12, 16], in_ids=[0], shapes_rel=regions).torch()

    expected = paste(ndd.tensor([[0.25, 0.5]]))
    regions = ndd.tensor([[0.25, 0.5]])
    for _ in range(3):
        paste(regions)
    regions.torch().fill_(1.0)
    assert torch.equal(paste(ndd.tensor([[0.25, 0.5]])), expected)
    assert not torch.equal(paste(regions), expected)


def test_results_beside_the_output_are_new_in_each_call() -> None:
    images = _images(np.random.default_rng(0), 3, False)
    for _ in range(5):
        _, grid = ndd.patchify(images, patch_size=4)
        assert grid.torch().tolist() == [[1, 3, 4]] * 3
        grid.torch().zero_()


def test_plan_follows_indices_that_the_program_overwrites() -> None:
    images = ndd.batch(np.arange(400_000, dtype=np.uint8).reshape(4, 100_000))
    memory = torch.zeros(4, dtype=torch.int32)
    for k in range(8):
        memory.fill_(k % 4)
        output = ndd.permute_batch(images, indices=ndd.as_batch(memory))
        memory.fill_(3 - k % 4)
        assert torch.equal(output.torch(), images.torch()[[k % 4] * 4])


def test_repeated_call_explains_wrong_indices() -> None:
    images = _images(np.random.default_rng(0), 3, False)
    for index in (0, 1, 2, 0, 1):
        ndd.permute_batch(images, indices=ndd.batch([index] * 3)).evaluate()
    with pytest.raises(RuntimeError, match="indices must be from 0 to 2"):
        ndd.permute_batch(images, indices=ndd.batch([0, 3, 1]))


def test_repeated_call_explains_sides_that_are_no_blocks() -> None:
    for rows in (8, 12, 16, 8):
        ndd.patchify(ndd.batch([np.zeros((rows, 8, 1), np.uint8), np.zeros((4, 8, 1), np.uint8)], layout="HWC"), patch_size=4)
    with pytest.raises(RuntimeError, match="sample 1: the height of 7 pixels is not a multiple"):
        ndd.patchify(ndd.batch([np.zeros((8, 8, 1), np.uint8), np.zeros((7, 8, 1), np.uint8)], layout="HWC"), patch_size=4)


def test_plan_of_a_number_of_samples_checks_it() -> None:
    for samples in (3, 3, 3, 3, 4, 5):
        assert ndd.random.coin_flip(batch_size=samples).batch_size == samples
    assert ndd.random.coin_flip(batch_size=0).batch_size == 0
    for wrong, error in ((-1, ValueError), (2**40, ValueError), (True, TypeError), (3.0, TypeError)):
        with pytest.raises(error, match="batch_size"):
            ndd.random.coin_flip(batch_size=wrong)  # type: ignore[arg-type]
    chances = ndd.batch([0.5, 0.5])
    for _ in range(5):
        ndd.random.coin_flip(batch_size=2, probability=chances)
    with pytest.raises(ValueError, match="batch_size=3"):
        ndd.random.coin_flip(batch_size=3, probability=chances)
    for samples in (1, 1, 1, 1, 2):
        ndd.random.coin_flip(batch_size=samples, shape=[2**20])
    with pytest.raises(MemoryError):
        ndd.random.coin_flip(batch_size=4_000_000, shape=[2**20])


def test_long_lists_are_told_apart() -> None:
    keys = []
    for last in (1, 1.0, True, 0, 0.0, -0.0, False, 2**70):
        for kind in (list, tuple):
            key: list[Any] = []
            freeze(key, kind([7] * 100 + [last]))
            keys.append(tuple(key))
    assert len(set(keys)) == len(keys)
    for wrong in ("7", np.float32(7), np.float64(7), None):
        with pytest.raises(plans.UnknownValue):
            freeze([], [7] * 100 + [wrong])
    with pytest.raises(plans.UnknownValue):
        freeze([], [7] * 257)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_fractions_are_rounded_like_in_a_graph(dtype: torch.dtype) -> None:
    values = torch.tensor([0.5, -0.5, 1.5, 2.4999, -2.5, 0.0, -0.0, 3e9, -3e9, float("inf"), -float("inf"), 0.49999997]).to(dtype)
    expected = round_half_away(values.to(torch.float64).clamp(-(2.0**31), 2.0**31 - 1))
    assert torch.equal(round_numbers(values), expected)
    assert torch.equal(round_numbers(values.reshape(2, 6).T), expected.reshape(2, 6).T)
    assert not bool(torch.isin(round_numbers(torch.tensor([float("nan")], dtype=dtype)), torch.arange(-(2**31), 2**31 - 1, 2**20)).any())


def test_fractions_that_are_still_computed() -> None:
    images = _images(np.random.default_rng(0), 4, False)
    mirrored = ndd.batch(torch.ones(4, 2_000_000))
    for _ in range(4):
        flags = ndd.reductions.max(mirrored * 1.0)  # still computed by other threads
        assert torch.equal(ndd.flip(images, horizontal=flags).torch(), images.torch().flip(2))
