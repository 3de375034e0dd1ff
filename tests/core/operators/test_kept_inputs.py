# SPDX-License-Identifier: Apache-2.0
"""Inputs that are given as numbers, lists or small arrays are kept for later calls, which have the results of calls that convert them again."""

import random
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from _plans import clear_plans

import torch_ndd as ndd
from torch_ndd._core.operators import kept, plans
from torch_ndd._core.values.batch import Batch

HEIGHT, WIDTH = 5, 6
# Some compare equal to others, some cannot be kept, some do not fit the type of the images.
NUMBERS = [0, 1, 7, 200, 300, -1, True, False, 0.0, -0.0, 1.0, 2.5, 254.5, 255.5, float("nan"), float("inf"), np.float32(3.5), np.int64(9), 2**31]
FORMS: list[Any] = [lambda values: values, tuple, np.array, lambda values: np.array(values, np.float64)[::1], torch.tensor, ndd.as_tensor]


def _draw_images(chance: random.Random) -> Batch:
    samples, dtype = chance.choice([3, 3, 3, 2, 5]), chance.choice([np.uint8, np.uint8, np.float32, np.int16])
    generator = np.random.default_rng(chance.randrange(1000))
    sizes = [(HEIGHT, WIDTH)] * samples if chance.random() < 0.7 else generator.integers(3, 8, (samples, 2)).tolist()
    return ndd.batch([generator.integers(0, 200, (*size, 3)).astype(dtype) for size in sizes], layout="HWC")


def _draw_weights(chance: random.Random) -> Any:
    rows, columns = chance.choice([(1, 2), (3, 3), (3, 3), (2, 3)])
    weights: list[Any] = [[chance.choice([0, 1, 2, -1]) for _ in range(columns)] for _ in range(rows)]
    if chance.random() < 0.5:
        weights[0][0] = 0.5
    return chance.choice(FORMS)(weights)


def _call(chance: random.Random) -> Any:
    """Call an operator with numbers that are drawn."""
    kind, number = chance.randrange(8), chance.choice(NUMBERS)
    if kind == 0:
        return ndd.filter(_draw_images(chance), _draw_weights(chance))
    if kind == 1:
        return ndd.filter(_draw_images(chance), _draw_weights(chance), number, border="constant", anchor=chance.choice([-1, 0]))
    if kind == 2:
        return ndd.full_like(_draw_images(chance), number)
    if kind == 3:
        return ndd.full_like(_draw_images(chance), chance.choice(FORMS)([chance.choice([1, 2]), chance.choice([3, 4]), 5]))
    if kind == 4:
        return ndd.full(chance.choice([number, [1, 2], [[1.5], [2.5]], [[1], [2, 3]]]), shape=[2, 2], batch_size=chance.choice([3, 4]))
    if kind == 5:
        probabilities = chance.choice([None, [0.5, 0.25, 0.25], [0.25, 0.5, 0.25], (0.0, 0.0, 1.0)])
        elements = chance.choice(FORMS)(chance.choice([[1, 2, 3], [4, 5, 6], [1.5, 2.5, 3.5]]))
        return ndd.random.choice(elements, p=probabilities, shape=[4], batch_size=chance.choice([3, 4]))
    if kind == 6:
        return ndd.random.choice(chance.choice([3, 5, 0, -1, 2.5]), shape=[4], batch_size=chance.choice([1, 3, 9]))
    images = _draw_images(chance)
    return chance.choice([ndd.zeros_like, ndd.ones_like])(images, dtype=chance.choice([None, ndd.float32]))


def _run(seed: int, calls: int) -> list[Any]:
    """Return what the calls of a random program result in: types, layouts and bytes, or their errors."""
    chance = random.Random(seed)
    ndd.random.set_seed(seed)
    found: list[Any] = []
    for _ in range(calls):
        try:
            result = _call(chance).evaluate()
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            found.append((type(error), str(error)))
        else:
            found.append((result.dtype, result.layout, result.shape, [np.asarray(sample).tobytes() for sample in result]))
    return found


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize("seed", range(12))
def test_random_programs_equal_those_that_keep_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clear_plans()
    found = _run(seed, 200)
    monkeypatch.setattr(plans, "keep_input", lambda *arguments: None)
    monkeypatch.setattr(plans, "run_plan", lambda *arguments: None)
    monkeypatch.setattr(plans, "_start_records", lambda *arguments: None)
    assert found == _run(seed, 200)


def _images(samples: int = 3) -> Batch:
    return ndd.batch(np.arange(samples * HEIGHT * WIDTH * 3, dtype=np.uint8).reshape(samples, HEIGHT, WIDTH, 3), layout="HWC")


WEIGHTS = np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]], np.float32)
REPEATED: dict[str, Any] = {
    "filter": lambda images, k: ndd.filter(images, WEIGHTS * k, k, border="constant"),
    "filter, a list": lambda images, k: ndd.filter(images, [[1, k], [0, 1]]),
    "full": lambda images, k: ndd.full(k, shape=[4], batch_size=3),
    "full_like": lambda images, k: ndd.full_like(images, k),
    "full_like, fractions for integers": lambda images, k: ndd.full_like(images, float(k)),
    "random.choice": lambda images, k: ndd.random.choice([k, k + 1], shape=[4], batch_size=3),
    "random.choice, with probabilities": lambda images, k: ndd.random.choice([k, k + 1], p=[0.25, 0.75], shape=[4], batch_size=3),
    "zeros_like": lambda images, k: ndd.zeros_like(images),
    "zeros": lambda images, k: ndd.zeros(shape=[4], batch_size=3),
}


@pytest.mark.parametrize("name", REPEATED)
def test_call_with_other_numbers_is_repeated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clear_plans()
    performed: list[str] = []
    perform = plans.perform
    monkeypatch.setattr(plans, "perform", lambda op, *arguments: (performed.append(op.name), perform(op, *arguments))[1])
    ndd.random.set_seed(1)
    found = [REPEATED[name](_images(), k).torch().tolist() for k in range(1, 10)]
    assert len(performed) <= 3
    monkeypatch.setattr(plans, "keep_input", lambda *arguments: None)
    monkeypatch.setattr(plans, "run_plan", lambda *arguments: None)
    ndd.random.set_seed(1)
    assert found == [REPEATED[name](_images(), k).torch().tolist() for k in range(1, 10)]


def test_overwritten_array_is_read_again() -> None:
    weights, tensor, values = np.zeros((1, 1), np.float32), torch.zeros(1, 1), [[0.0]]
    images = _images()
    for k in [1, 1, 1, 1, 1, 2, 1, 3]:
        weights[0, 0] = tensor[0, 0] = values[0][0] = k
        expected = images.torch().int() * k
        for form in (weights, tensor, values):
            assert torch.equal(ndd.filter(images, form).torch(), expected.clamp(max=255).to(torch.uint8))


def test_writing_to_a_result_does_not_change_later_ones() -> None:
    for _ in range(6):
        for result in (ndd.full_like(_images(1), 7), ndd.full(7, batch_size=2), ndd.random.choice([7], batch_size=2), ndd.zeros(batch_size=2) + 7):
            assert result.torch().eq(7).all()
            result.torch().zero_()


def test_numbers_that_change_in_each_call_do_not_fill_the_memory() -> None:
    for k in range(2 * kept._MAX_KEPT):
        ndd.full_like(_images(1), k / 7)
        assert len(kept._kept) <= kept._MAX_KEPT
    large = np.zeros(kept._MAX_BYTES, np.float32)
    kept._kept.clear()
    for _ in range(4):
        ndd.full(large, batch_size=2)
        ndd.full(np.zeros(200, np.float32), batch_size=1000)
    assert not kept._kept


def test_numbers_are_kept_once_for_other_numbers_of_samples() -> None:
    kept._kept.clear()
    for samples in (3, 4, 2, 1, 4, 9, 5, 3):
        images = _images(samples)
        assert torch.equal(ndd.filter(images, [[2]]).torch(), (images.torch().int() * 2).clamp(max=255).to(torch.uint8))
    assert {batch.buffer.untyped_storage().data_ptr() for key, batch in kept._kept.items() if key[0] in (5, 9)} == {
        batch.buffer.untyped_storage().data_ptr() for key, batch in kept._kept.items() if key[0] is None
    }


@pytest.mark.parametrize("is_captured", [False, True])
def test_a_captured_graph_keeps_what_it_reads(is_captured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(kept, "_kept", {(3, gpu, None, (int, 7)): ndd.batch([7, 7, 7])})
    monkeypatch.setattr(kept, "_of_graphs", {})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: is_captured)
    found = kept.keep_input(7, 3, gpu, None)
    assert found is not None
    buffer = weakref.ref(found.buffer)
    del found
    for number in range(kept._MAX_KEPT + 1):  # drops what was kept before
        kept.keep_input(number + 0.5, 3, torch.device("cpu"), None)
    assert (buffer() is not None) == is_captured
