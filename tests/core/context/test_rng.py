# SPDX-License-Identifier: Apache-2.0
"""The generator itself; tests/ops/random/test_distributions.py tests the operators that draw from it."""

import copy
import itertools
import json
import multiprocessing
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from _threads import run_in_threads
from torch.utils.data import DataLoader, Dataset

from torch_ndd import random
from torch_ndd.random import RNG

FIRST = [546353992, 3665621163, 1140953199, 3419031310, 2666454581, 482218876, 4196888723, 343858512]  # of seed 1234


def test_words_of_the_specification() -> None:
    rng = RNG(1234)
    assert [rng() for _ in range(8)] == FIRST
    assert str(rng.state) == "Philox_00000000000004D2_0000000000000000:0000000000000002_0"
    assert RNG(0)() == 1713891541
    assert RNG(1234).draw(8).tolist() == FIRST


def test_clone_copy_pickle_and_state_continue_at_the_same_place() -> None:
    rng = RNG(1234)
    rng()
    others = [rng.clone(), copy.copy(rng), copy.deepcopy(rng), pickle.loads(pickle.dumps(rng)), RNG(state=rng.state), RNG(state=str(rng.state))]
    others.append(RNG(7))
    others[-1].set_state(pickle.loads(pickle.dumps(rng.get_state())))
    for other in others:
        assert other is not rng
        assert [other() for _ in range(7)] == FIRST[1:]
    assert rng() == FIRST[1]


def test_states_are_equal_by_their_text() -> None:
    assert RNG(3).state == RNG(3).state == str(RNG(3).state)
    assert RNG(3).state != RNG(4).state
    assert len({RNG(3).state, RNG(3).state, RNG(4).state}) == 2
    assert RNG(3) != RNG(3)


@pytest.mark.parametrize("steps", [[1], [3, 4], [0, 5], [2**33 + 1, 2**40], [1] * 50])
def test_advance_is_drawing(steps: list[int]) -> None:
    rng, other = RNG(5), RNG(5)
    for step in steps:
        rng.advance(step)
    other.advance(sum(steps))
    assert str(rng.state) == str(other.state)
    if sum(steps) < 100:
        drawn = RNG(5)
        for _ in range(sum(steps)):
            drawn()
        assert str(rng.state) == str(drawn.state)


def test_a_failed_advance_moves_nothing() -> None:
    rng = RNG(5)
    rng.advance(3)
    for wrong, kind in ((-1, ValueError), (1.5, TypeError), ("1", TypeError), (None, TypeError)):
        with pytest.raises(kind):
            rng.advance(wrong)
    other = RNG(5)
    other.draw(3)
    assert rng() == other()


def test_the_seed_can_be_written_only() -> None:
    rng = RNG(1)
    rng.seed = 1234
    assert rng() == FIRST[0]
    with pytest.raises(AttributeError, match="write-only"):
        _ = rng.seed
    with pytest.raises(TypeError):
        rng.seed = 1.5
    assert rng() == FIRST[1]
    assert str(RNG(-1).state) == str(RNG(2**64 - 1).state)
    assert str(RNG().state) != str(RNG().state)


def test_each_thread_has_a_default_generator() -> None:
    random.set_seed(1234)
    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(random.get_default_rng).result()
        assert elsewhere is not random.get_default_rng()
        assert elsewhere is pool.submit(random.get_default_rng).result()
        assert pool.submit(lambda: random.set_seed(1234)).result() is None
        assert elsewhere() == FIRST[0]
    assert random.get_default_rng()() == FIRST[0]


def test_threads_share_a_generator_without_losing_words() -> None:
    rng = RNG(9)
    drawn = run_in_threads(lambda _: [tuple(rng.draw(7).tolist()) for _ in range(500)], 8)
    expected = RNG(9).draw(7 * 4000).reshape(-1, 7).tolist()
    assert sorted(itertools.chain(*drawn)) == sorted(map(tuple, expected))


class Draws(Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return random.get_default_rng()()


@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_of_a_data_loader_draw_different_numbers(seeded: bool) -> None:
    """With equal torch seeds they repeat, and every epoch has its own."""
    random.get_default_rng()

    def epochs(seed: int) -> list[list[int]]:
        torch.manual_seed(seed)
        random.set_seed(1234) if seeded else None
        loader = DataLoader(Draws(), batch_size=None, num_workers=2, multiprocessing_context="fork")
        return [[int(x) for x in loader] for _ in range(2)]

    first = epochs(1)
    assert len({x for epoch in first for x in epoch}) == 16
    if seeded:
        assert epochs(1) == first
    assert epochs(2) != first


def _draw(queue: "multiprocessing.Queue[int]") -> None:
    queue.put(random.get_default_rng()())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_a_generator_of_its_own() -> None:
    """Unless it was seeded: then it continues like its parent."""
    context = multiprocessing.get_context("fork")
    queue = context.Queue()

    def draw_in_child() -> int:
        child = context.Process(target=_draw, args=(queue,))
        child.start()
        value = queue.get(timeout=60)
        child.join()
        return value

    script = threading.Thread  # a new thread has an unseeded generator
    seen: list[int] = []

    def draw_unseeded() -> None:
        random.get_default_rng()
        seen.extend((draw_in_child(), draw_in_child()))

    thread = script(target=draw_unseeded)
    thread.start()
    thread.join()
    assert len(set(seen)) == 2
    random.set_seed(1234)
    assert draw_in_child() == draw_in_child() == FIRST[0]


def test_state_dict() -> None:
    rng = RNG(seed=11)
    rng.advance(5)
    state = json.loads(json.dumps(rng.state_dict()))
    expected = [rng() for _ in range(3)]
    other = RNG(seed=0)
    other.load_state_dict(state)
    assert [other() for _ in range(3)] == expected
    for wrong in ({}, None, {"version": 2, "state": state["state"]}, {"version": 1}, {"version": 1, "state": "x"}):
        with pytest.raises(ValueError, match="state"):
            other.load_state_dict(wrong)
