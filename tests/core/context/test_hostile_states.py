# SPDX-License-Identifier: Apache-2.0
"""Handwritten or damaged states: either a ValueError that names the key and changes nothing, or a state that works immediately."""

import copy
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd.checkpoint import Checkpoint

HOSTILE: list[Any] = [
    None, True, False, 0, -1, 1.5, 2.0, math.nan, math.inf, 10**9, 2**31, 2**63, 2**64, 10**30, -(10**30), "", "0", "x" * 10_000, b"0", [], [[]],
    {}, {3: 1}, {"a": 1}, [None], [True], [1.5], [[1, 2], [3, 4]], [[10**9, 5]], [[5, 10**9]], [[10**30, 0]], [[2, [1]]], [[0, 0]], [[1, -1]],
    [[True, 1]], [[1, math.nan]], [["1", 1]], [[1]], [[1, 2, 3]], [[3, [1, 2, None]]], [[1, 1]] * 5000, [0, 1, 2], [0, 0, 0], [-1, 1, 1], [3, 2,
    1], object(), lambda: None, np.int64(3), np.float64(1.0), np.array([1, 2]), {1, 2}, range(3), 3 + 0j,
]  # fmt: skip


_VALUES = torch.arange(10.0)
_SAVED = {"values": _VALUES, "shapes": torch.tensor([[4], [6]]), "layout": "W", "sources": (), "fixed": None}


@pytest.mark.parametrize(
    "changed",
    [
        {"shapes": torch.tensor([[-5], [15]])},
        {"shapes": torch.tensor([[-(2**40)], [2**40 + 10]])},
        {"shapes": torch.tensor([[2**32, 2**32], [1, 10]]), "layout": "HW"},  # 0 and 10 in 64 bits
        {"shapes": torch.tensor([[4], [600]])},
        {"shapes": torch.tensor([[4.0], [6.0]])},
        {"shapes": torch.tensor([4, 6])},
        {"shapes": "x"},
        {"shapes": torch.tensor([[4], [6]]), "values": _VALUES.view(2, 5)},
        {"values": None},
        {"values": torch.tensor(3.0), "shapes": None, "layout": None},
        {"values": _VALUES.to(torch.complex64)},
        {"values": _VALUES.to_sparse(), "shapes": None},
        {"values": torch.empty(10, device="meta")},
        {"layout": 3},
        {"layout": "HW"},
        {"sources": None},
        {"sources": (1, 2)},
        {"sources": ("a",) * 50},
        {"fixed": 3},
        {"fixed": (1, 2, 3)},
    ],
    ids=str,
)
def test_saved_batches(changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as saved:
        saved.setattr(ndd.Batch, "__getstate__", lambda self: {**_SAVED, **changed})
        torch.save(ndd.batch([1]), tmp_path / "batch.pt")
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        torch.load(tmp_path / "batch.pt")


def test_saved_tensors() -> None:
    good = {"values": _VALUES, "layout": None, "sources": ()}
    for changed in ({"values": None}, {"values": _VALUES.to_sparse()}, {"layout": "HW"}, {"sources": None}, {"sources": (1,)}):
        with pytest.raises((ValueError, TypeError)):
            ndd.Tensor.__new__(ndd.Tensor).__setstate__({**good, **changed})
    with pytest.raises(ValueError, match="not a valid saved Tensor"):
        ndd.Tensor.__new__(ndd.Tensor).__setstate__({})


def test_a_saved_batch() -> None:
    output = ndd.Batch.__new__(ndd.Batch)
    output.__setstate__({**_SAVED, "sources": ("a", "b")})
    assert [sample.shape for sample in output.tensors] == [(4,), (6,)]
    assert output.torch(pad=True).tolist() == [[0, 1, 2, 3, 0, 0], [4, 5, 6, 7, 8, 9]]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, element in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(element, (*path, key))


def replace_at(state: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    output = copy.copy(state)
    output[path[0]] = replace_at(output[path[0]], path[1:], value)
    return output


def mutations(state: Any, count: int, seed: int) -> Iterator[Any]:
    """Every hostile value at every place, every key missing and one extra; then several of these at random."""
    everywhere = list(places(state))
    for path in everywhere:
        yield from (replace_at(state, path, value) for value in HOSTILE)
    for key in state:
        yield {other: value for other, value in state.items() if other != key}
    yield {**state, "more": 1}
    yield {**state, 3: 1}
    draw = random.Random(seed)
    for _ in range(count):
        output = state
        for path in draw.sample(everywhere, draw.randrange(1, 4)):
            try:
                output = replace_at(output, path, draw.choice([*HOSTILE, draw.randrange(-3, 20), draw.randrange(2**65)]))
            except (TypeError, KeyError, IndexError):  # another change removed its place
                continue
        yield output


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    outputs = [tmp_path / f"{k:02d}.bin" for k in range(11)]
    for k, path in enumerate(outputs):
        path.write_bytes(bytes([k]))
    return outputs


def values(batches: Any) -> list[int]:
    labels = (batch[1] for batch in batches)
    return [int(value) for label in labels for value in (label if isinstance(label, torch.Tensor) else label.torch()).flatten()]


def reader_of(files: list[Path], **options: Any) -> ndd.readers.File:
    return ndd.readers.File(3, files=files, labels=range(len(files)), random_shuffle=True, seed=5, **options)


def refusal(load: Callable[[Any], Any], state: Any) -> str:
    """Return the message for a rejected state."""
    try:
        load(state)
    except ValueError as error:
        return str(error)
    return ""


def attack(load: Callable[[Any], Any], state: Callable[[], Any], use: Callable[[], Any], good: Any, count: int) -> tuple[int, int]:
    """Numbers of accepted and rejected states."""
    taken = refused = 0
    load(good)
    for hostile in mutations(good, count, 1):
        before = json.dumps(state())
        if message := refusal(load, hostile):
            refused += 1
            assert len(message) < 1000
            assert json.dumps(state()) == before, message
            continue
        taken += 1
        json.dumps(state())
        use()
        load(good)
    return taken, refused


@pytest.mark.figures
@pytest.mark.parametrize(
    "options", [{}, {"num_shards": 2, "shard_id": 1}, {"pad_last_batch": True, "num_shards": 3, "stick_to_shard": True}], ids=str
)
def test_readers_reject_damaged_states(files: list[Path], options: dict[str, Any]) -> None:
    reader = reader_of(files, **options)
    next(iter(reader))
    good = reader.state_dict()
    fresh = reader_of(files, **options)
    fresh.get_metadata()

    def use() -> None:
        assert len(values(fresh)) <= 12

    taken, refused = attack(fresh.load_state_dict, fresh.state_dict, use, good, 500)
    print(f"{taken + refused} states of a reader: {taken} taken, {refused} refused")
    assert refused > 10 * taken
    merged = ndd.readers.merge_states([{**good, "shard": k, "taken": [[2, 3]]} for k in range(2)])
    taken, refused = attack(fresh.load_state_dict, fresh.state_dict, use, json.loads(json.dumps(merged)), 300)
    assert refused > 5 * taken


@pytest.mark.figures
def test_loaders_reject_damaged_states(files: list[Path]) -> None:
    loader = ndd.DataLoader(reader_of(files), batch_size=3, seed=1)
    steps = iter(loader)
    next(steps)
    good = loader.state_dict()
    steps.close()
    loader.load_state_dict(good)

    def use() -> None:
        next(iter(loader), None)

    taken, refused = attack(loader.load_state_dict, loader.state_dict, use, good, 500)
    print(f"{taken + refused} states of a loader: {taken} taken, {refused} refused")
    assert refused > 10 * taken


@pytest.mark.figures
def test_generators_reject_damaged_states() -> None:
    rng = ndd.random.RNG(seed=3)
    taken, refused = attack(rng.load_state_dict, rng.state_dict, rng, rng.state_dict(), 200)
    print(f"{taken + refused} states of a generator: {taken} taken, {refused} refused")
    assert refused > 100
    for text in ("", "Philox_", "Philox_" + "0" * 10**6, str(rng.state)[:-1] + "7", "\0", str(rng.state) + "\n"):
        with pytest.raises(ValueError, match="state"):
            rng.set_state(text)


def test_states_that_are_named(files: list[Path]) -> None:
    """Return the text of a message."""
    reader = reader_of(files)
    next(iter(reader))
    good = reader.state_dict()
    for change, text in (
        ({"taken": [[10**9, 5]]}, r"'taken'\[0\]\[0\] must be from 1 to 1048576, got 1000000000"),
        ({"taken": [[1000, 5]]}, "'taken' exceeds 'size': 1000 shards, 5 samples in one, 11 in total"),
        ({"epoch": 10**30}, "'epoch' must be from 0 to"),
        ({"epoch": True}, "'epoch' must be an integer, got True"),
        ({"shard": 1.5}, "'shard' must be an integer, got 1.5"),
        ({"shard": math.nan}, "'shard' must be an integer, got nan"),
        ({"shard": 1}, "'shard' must be less than the 1 shards"),
        ({"seeds": [1]}, "'seeds' must have 2 values, got 1"),
        ({"seeds": [1, True]}, r"'seeds'\[1\] must be an integer, got True"),
        ({"size": 10}, "the state's 'size' is 10 samples, but the data set has 11"),
        ({"worker": [2, 2, 1]}, "'worker' is 2, but there are only 2"),
        ({"more": 1}, "unknown key 'more'"),
        ({"version": 2.0}, "'version' must be an integer"),
    ):
        with pytest.raises(ValueError, match=rf"^readers\.File: .*{text}"):
            reader.load_state_dict({**good, **change})
    for key in good.keys() - {"shuffled"}:  # which earlier versions lack
        with pytest.raises(ValueError, match=f"the key '{key}' is missing"):
            reader.load_state_dict({other: value for other, value in good.items() if other != key})
    loader = ndd.DataLoader(reader_of(files), batch_size=3, seed=1)
    for seed in (True, 1.5, 10**30, None):
        with pytest.raises(ValueError, match="DataLoader: not a valid saved state: 'seed' must be"):
            loader.load_state_dict({**loader.state_dict(), "seed": seed})
    for epoch in (True, -1, 1.5, 10**30):
        with pytest.raises(ValueError, match="epoch"):
            loader.set_epoch(epoch)
    with pytest.raises(ValueError, match=r"merge_states: .*'epoch'"):
        ndd.readers.merge_states([{**good, "epoch": "0"}])


def test_a_loader_continues_after_an_invalid_state(files: list[Path]) -> None:
    loader = ndd.DataLoader(reader_of(files), batch_size=3, seed=1)
    expected = values(loader)
    loader = ndd.DataLoader(reader_of(files), batch_size=3, seed=1)
    found = []
    for batch in loader:
        found += values([batch])
        with pytest.raises(ValueError, match="DataLoader"):
            loader.load_state_dict({**loader.state_dict(), "reader": {"version": 2}, "seed": "x"})
        with pytest.raises(ValueError, match=r"readers\.File"):
            loader.load_state_dict({**loader.state_dict(), "reader": {"version": 2}})
    assert found == expected


@pytest.mark.figures
def test_checkpoints_reject_damaged_states(files: list[Path], tmp_path: Path) -> None:
    reader, rng, checkpoint = reader_of(files, enable_checkpointing=True), ndd.random.RNG(seed=3), Checkpoint()
    checkpoint.register(reader, "reader")
    checkpoint.register(rng, "rng")
    next(reader.next_epoch())
    checkpoint.collect()
    good = json.loads(checkpoint.serialize())
    later, taken, refused = Checkpoint(), 0, 0
    later.deserialize(checkpoint.serialize())
    for hostile in mutations(good, 200, 1):
        try:
            text = json.dumps(hostile)
        except (TypeError, ValueError):
            continue
        before = later.serialize()
        if message := refusal(later.deserialize, text):
            refused += 1
            assert message.startswith("Checkpoint: not a valid saved state")
            assert later.serialize() == before
            continue
        taken += 1
        begun, generator = reader_of(files), ndd.random.RNG(seed=1)
        for op, name in ((begun, "reader"), (generator, "rng")):
            try:
                later.register(op, name)
            except (ValueError, TypeError, KeyError):  # the states of the operators are checked when the operators get them
                assert name not in later
        next(begun.next_epoch(3))
        later = Checkpoint()
        later.deserialize(checkpoint.serialize())
    print(f"{taken + refused} checkpoints: {taken} taken, {refused} refused")
    assert refused > 3 * taken
    path = tmp_path / "0.json"
    for content in (b"", b"\xff\xfe", b"[" * 100_000, b"1e999", b'{"version": 2}', b'{"version": 2, "states": NaN}', b"9" * 10_000):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"Checkpoint|codec"):
            later.load(str(tmp_path / "{seq}.json"))
        assert later.serialize() == checkpoint.serialize()


def test_restoring_is_all_or_nothing(files: list[Path]) -> None:
    reader, rng = reader_of(files, enable_checkpointing=True), ndd.random.RNG(seed=3)
    later, before = Checkpoint(), rng.state
    later.register(rng, "a")
    later.register(reader, "b")
    later.set_state("a", str(ndd.random.RNG(seed=9).state))
    later.set_state("b", "e30=")
    with pytest.raises(ValueError, match=r"readers\.File: not a valid saved state: the key 'version' is missing"):
        later.restore()
    assert rng.state == before


def test_a_failed_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint()
    checkpoint.register(ndd.random.RNG(seed=1))
    checkpoint.collect()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    for name in ("fsync", "link"):
        with monkeypatch.context() as patch:
            patch.setattr(f"os.{name}", full)
            with pytest.raises(OSError, match="No space"):
                checkpoint.save(str(tmp_path / "{seq}.json"))
        assert list(tmp_path.iterdir()) == []
    assert checkpoint.save(str(tmp_path / "{seq}.json")) == str(tmp_path / "0.json")
