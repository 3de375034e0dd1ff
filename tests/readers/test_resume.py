# SPDX-License-Identifier: Apache-2.0
"""States of readers: exact wherever an epoch is cut, for any number of shards and any batch size."""

import json
import time
from collections.abc import Callable
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest

import torch_ndd as ndd
from torch_ndd.testing import assert_resumable

Make = Callable[[int, int, int], ndd.readers.File]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for i in range(13):
        (tmp_path / f"{i:02}.bin").write_bytes(bytes([i]) * (i % 3 + 1))
    return sorted(tmp_path.iterdir())


def maker(files: list[Path], **options: Any) -> Make:
    return lambda rank, world, batch_size: ndd.readers.File(batch_size, files=files, shard_id=rank, num_shards=world, **options)


def numbers(batches: Any) -> list[list[int]]:
    return [label.torch().flatten().tolist() for _, label in batches]


ORDERS: list[dict[str, Any]] = [
    {},
    {"random_shuffle": True, "seed": 7},
    {"random_shuffle": True, "stick_to_shard": True},
    {"shuffle_after_epoch": True, "prefetch_queue_depth": 3},
]


@pytest.mark.figures
@pytest.mark.parametrize("options", ORDERS, ids=str)
def test_every_cut_of_an_epoch(files: list[Path], options: dict[str, Any]) -> None:
    worlds = [(1, 1), (1, 2), (2, 2), (2, 3), (3, 1), (3, 5), (5, 2)]
    resumed = assert_resumable(maker(files, **options), worlds=worlds)
    print(f"{resumed.cuts} cuts, {resumed.samples} samples compared, states of at most {resumed.state_bytes} bytes")
    assert resumed.cuts > 100
    assert resumed.state_bytes < 4096


def test_a_state_goes_through_many_worlds(files: list[Path]) -> None:
    # Each world takes one batch of one; 1, 2, 3, 2, 1 and 4 ranks share the rest of the epoch.
    make, delivered, state = maker(files, random_shuffle=True), [], None
    for world in (1, 2, 3, 2, 1, 4):
        loaders = [make(rank, world, 1) for rank in range(world)]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
            delivered += [label for batch in numbers(islice(iter(loader), 1)) for label in batch]
        state = loaders[0].state_dict()
    assert sorted(delivered) == list(range(13))
    assert state is not None
    assert [shards for shards, _ in state["taken"]] == [1, 2, 3, 2, 1, 4]


@pytest.mark.parametrize("padding", ["pad_last_batch", "pad_shards"])
def test_padding_repeats_only_the_last_sample(files: list[Path], padding: Any) -> None:
    for before, after in ((1, 2), (2, 3), (3, 1), (3, 5)):
        for batch_size in (1, 3, 8):
            make = maker(files, **{padding: True})
            longest = (13 + before - 1) // before
            for cut in range((longest + batch_size - 1) // batch_size + 1):
                loaders = [make(rank, before, batch_size) for rank in range(before)]
                first = [numbers(islice(iter(loader), cut)) for loader in loaders]
                rest = []
                for rank in range(after):
                    loader = make(rank, after, batch_size)
                    loader.load_state_dict(loaders[-1].state_dict())
                    rest.append(numbers(loader))
                assert {label for rank in (*first, *rest) for batch in rank for label in batch} == set(range(13))
                if padding == "pad_last_batch":
                    assert all(len(batch) == batch_size for rank in (*first, *rest) for batch in rank)
                for ranks in (first, rest):  # in step
                    assert len({tuple(map(len, rank)) for rank in ranks}) == 1
                if padding == "pad_shards":
                    left = 13 - len({label for rank in first for batch in rank for label in batch})
                    assert sum(len(batch) for rank in rest for batch in rank) == -(-left // after) * after


def test_states_at_any_moment(files: list[Path]) -> None:
    reader = maker(files)(0, 1, 4)
    fresh = reader.state_dict()
    reader.load_state_dict(fresh)
    epoch = numbers(reader)
    ended = reader.state_dict()
    assert (ended["epoch"], ended["taken"]) == (1, [[1, 0]])
    loop = iter(reader)
    assert reader.state_dict()["taken"] == [[1, 0]]  # the loop has not started
    for _ in range(4):
        next(loop)
    last = reader.state_dict()
    reader.load_state_dict(last)
    assert numbers(reader) == []  # all of that epoch was delivered,
    assert numbers(reader) == epoch  # and this is the next one
    reader.load_state_dict(fresh)
    assert numbers(reader) == epoch
    reader.load_state_dict(ended)
    assert reader.state_dict() == ended


def test_leaving_a_loop_ends_its_epoch(files: list[Path]) -> None:
    reader = maker(files, random_shuffle=True)(0, 1, 4)
    for _ in reader:
        break
    left = reader.state_dict()
    assert left["epoch"] == 0
    second = numbers(reader)
    assert sorted(chain(*second)) == list(range(13))
    reference = maker(files, random_shuffle=True)(0, 1, 4)
    first = numbers(reference)
    assert numbers(reference) == second
    reader.load_state_dict(left)
    assert numbers(reader) == first[1:]


def test_set_epoch_chooses_the_order(files: list[Path]) -> None:
    reader = maker(files, random_shuffle=True)(0, 1, 4)
    epochs = [numbers(reader) for _ in range(3)]
    reader.set_epoch(1)
    assert numbers(reader) == epochs[1]
    next(iter(reader))
    state = reader.state_dict()
    reader.load_state_dict(state)
    reader.set_epoch(2)  # no change
    assert numbers(reader) == epochs[2][1:]


def test_both_protocols_share_the_position(files: list[Path]) -> None:
    reader = maker(files)(0, 1, 5)
    for _ in range(2):
        next(reader.next_epoch())
    reader.load_state_dict(reader.state_dict())
    assert numbers(reader) == [[10, 11, 12]]
    assert numbers(reader.next_epoch()) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 0, 1]]
    assert numbers(reader)[0] == [0, 1, 2, 3, 4]  # PyTorch's loops start at the beginning of a pass


@pytest.mark.figures
def test_states_are_small_and_quick(files: list[Path]) -> None:
    reader = maker(files)(0, 1, 5)
    next(iter(reader))
    times = []
    for _ in range(200):
        begin = time.perf_counter()
        state = reader.state_dict()
        times.append(time.perf_counter() - begin)
    print(f"state_dict: {sorted(times)[100] * 1e6:.1f} us, {len(json.dumps(state))} bytes")
    merged = ndd.readers.merge_states([{**state, "taken": [[500, 123456]], "shard": shard, "size": 10**8} for shard in range(500)])
    assert len(json.dumps(merged)) < 4096 + 500 * 8  # only this one grows, with the number of ranks


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_bad_samples(files: list[Path], on_error: Any) -> None:
    values = [*files]
    for i in (0, 4, 5, 12):
        values[i] = files[i].with_suffix(".lost")
    make = maker(values, on_error=on_error, random_shuffle=True)
    merge = ndd.readers.merge_states if on_error == "skip" else None
    if on_error == "skip":
        assert_resumable(make, merge=merge, worlds=[(1, 1), (1, 2), (2, 3), (3, 2), (3, 1)])
        assert sorted(chain(*numbers(make(0, 1, 4)))) == [1, 2, 3, 6, 7, 8, 9, 10, 11]
        assert {len(batch) for batch in numbers(make(0, 1, 3))} == {3}  # full
    else:
        assert_resumable(make, worlds=[(1, 1), (2, 2), (3, 3)])
        assert [len(batch) for batch in numbers(make(0, 1, 3))] == [3, 3, 3, 3, 1]
    reader = make(0, 1, 4)
    assert reader.errors == ()
    numbers(reader)
    assert {(error.sample, error.source, error.reason) for error in reader.errors} == {
        (i, str(values[i]), "No such file or directory") for i in (0, 4, 5, 12)
    }
    assert reader.state_dict()["errors"] == len(reader.errors) == 4
    full = [label for batch in numbers(make(0, 1, 4).next_epoch()) for label in batch]
    assert len(full) == 16
    assert not {0, 4, 5, 12} & set(full)


def test_the_state_of_one_skipping_rank_is_not_enough(files: list[Path]) -> None:
    values = [files[0].with_suffix(".lost"), *files[1:]]
    make = maker(values, on_error="skip")
    loaders = [make(rank, 2, 2) for rank in range(2)]
    for loader in loaders:
        next(iter(loader))
    for world, rank in ((3, 0), (2, 1)):
        with pytest.raises(ValueError, match=r"readers\.File: the state is for shard 0.*skipped 1 bad"):
            make(rank, world, 2).load_state_dict(loaders[0].state_dict())
    make(0, 2, 2).load_state_dict(loaders[0].state_dict())
    with pytest.raises(ValueError, match="each of 2 shards"):
        ndd.readers.merge_states([loaders[0].state_dict()])
    with pytest.raises(ValueError, match="not of one run"):
        ndd.readers.merge_states([loaders[0].state_dict(), {**loaders[1].state_dict(), "seeds": [1, 1]}])


def test_nothing_can_be_read(files: list[Path]) -> None:
    for on_error in ("skip", "replace"):
        reader = ndd.readers.File(2, files=["a", "b", "c"], on_error=on_error)
        with pytest.raises(RuntimeError, match="none of the 3 samples can be read"):
            next(reader.next_epoch())
    with pytest.raises(RuntimeError, match=r"readers\.File: none of the 3 samples can be read; the last one: .*No such file"):
        list(ndd.DataLoader(ndd.readers.File(2, files=["a", "b", "c"], on_error="skip")))
    with pytest.raises(ValueError, match="on_error must be"):
        ndd.readers.File(2, files=["a"], on_error="ignore")


def test_states_that_are_none(files: list[Path]) -> None:
    reader = maker(files)(0, 1, 2)
    next(iter(reader))
    good = reader.state_dict()
    wrong: list[Any] = [
        {**good, "version": 1},
        {**good, "taken": []},
        {**good, "taken": [[0, 1]]},
        {**good, "taken": [[1, -1]]},
        {**good, "taken": [[2, [1]]]},
        {**good, "epoch": "x"},
        {key: value for key, value in good.items() if key != "seeds"},
        {**good, "worker": [0, 2, 2]},
        None,
    ]
    for state in wrong:
        with pytest.raises(ValueError, match=r"readers\.File: "):
            maker(files)(0, 1, 2).load_state_dict(state)
    other = maker(files[:5])(0, 1, 2)
    other.load_state_dict(good)
    with pytest.raises(RuntimeError, match="for 13 samples, but the data set has 5"):
        next(iter(other))


@pytest.mark.parametrize("first", [{}, {"random_shuffle": True}, {"shuffle_after_epoch": True}], ids=str)
@pytest.mark.parametrize("other", [{}, {"random_shuffle": True}, {"shuffle_after_epoch": True}], ids=str)
def test_a_state_of_another_order(files: list[Path], first: dict[str, Any], other: dict[str, Any]) -> None:
    reader, later = maker(files, **first)(0, 1, 4), maker(files, **other)(0, 1, 4)
    next(iter(reader))
    state = reader.state_dict()
    if first == other:
        later.load_state_dict(state)
        assert later.state_dict() == state
        return
    before = later.state_dict()
    with pytest.raises(
        ValueError, match=r"readers\.File: the state is from a reader that (does not shuffle|has \w+=True), but this one .*repeated or left out"
    ):
        later.load_state_dict(state)
    assert later.state_dict() == before
    del state["shuffled"]  # of an earlier version
    later.load_state_dict(state)


def test_iterators_that_nobody_uses_move_nothing(files: list[Path]) -> None:
    make = maker(files, random_shuffle=True)
    expected = numbers(make(0, 1, 4))
    for cut in range(4):
        reader = make(0, 1, 4)
        loop = iter(reader)
        begun = numbers(islice(loop, cut))
        state = reader.state_dict()
        iter(reader)
        assert reader.state_dict() == state
        assert begun + numbers(loop) == expected
        resumed = make(0, 1, 4)
        resumed.load_state_dict(state)
        iter(resumed)
        iter(resumed)
        assert numbers(resumed) == expected[cut:]
        assert numbers(resumed) == numbers(reader)


def test_a_failed_first_batch_leaves_the_rest_of_the_epoch(files: list[Path]) -> None:
    reader = maker(files)(0, 1, 4)
    numbers(islice(iter(reader), 1))
    state, lost = reader.state_dict(), files[5].with_suffix(".lost")
    resumed = maker(files)(0, 1, 4)
    resumed.load_state_dict(state)
    files[5].rename(lost)
    with pytest.raises(RuntimeError, match=files[5].name):
        next(iter(resumed))
    lost.rename(files[5])
    assert numbers(resumed) == [[8, 9, 10, 11], [12]]


@pytest.mark.parametrize("options", ORDERS, ids=str)
def test_list_order_is_that_of_one_rank(files: list[Path], options: dict[str, Any]) -> None:
    reader = maker(files, pad_shards=True, **options)(2, 3, 4)
    for epoch in range(2):
        single = maker(files, **options)(0, 1, 13)
        single.set_epoch(epoch)
        (expected,) = numbers(single)
        found = [reader.list_order(epoch, begin, 5).tolist() for begin in (0, 5, 10, 15)]
        assert (list(map(len, found)), list(chain(*found))) == ([5, 5, 3, 0], expected)
    assert reader.count_epoch_samples(0) == 13
