# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: registration, order, files. tests/dali/test_checkpoint.py compares them with DALI."""

import json
from pathlib import Path
from typing import Any

import pytest

import torch_ndd as ndd
from torch_ndd import EvalContext
from torch_ndd.checkpoint import Checkpoint


class Counter:
    def __init__(self, value: int = 0) -> None:
        self.value = value

    def get_state(self, cuda_stream: Any = None) -> str:
        return str(self.value)

    def set_state(self, state: Any) -> None:
        self.value = int(str(state))


class Other(Counter):
    pass


def collect_states(**ops: Any) -> Checkpoint:
    checkpoint = Checkpoint()
    for name, op in ops.items():
        checkpoint.register(op, name)
    checkpoint.collect()
    return checkpoint


def test_a_checkpoint_belongs_to_a_context() -> None:
    assert EvalContext.current().checkpoint is EvalContext.current().checkpoint is ndd.checkpoint.current()
    with EvalContext() as context:
        assert ndd.checkpoint.current() is context.checkpoint
        assert context.checkpoint is not EvalContext.default().checkpoint


def test_readers_and_generators_resume_from_a_checkpoint(tmp_path: Path) -> None:
    for k in range(10):
        (tmp_path / f"{k}.bin").write_bytes(bytes([k]))

    def begin() -> tuple[Any, Any]:
        return ndd.readers.File(files=sorted(map(str, tmp_path.glob("*.bin"))), random_shuffle=True, seed=3), ndd.random.RNG(seed=4)

    def step(epoch: Any, rng: Any) -> tuple[int, int]:
        return int(next(epoch)[0].tensors[0].torch()[0]), rng()

    reader, rng = begin()
    checkpoint = Checkpoint()
    assert [checkpoint.register(reader), checkpoint.register(rng, "random")] == ["__op_0", "random"]
    epoch = reader.next_epoch(batch_size=1)
    for _ in range(4):
        step(epoch, rng)
    checkpoint.collect()
    checkpoint.save(str(tmp_path / "states" / "{seq:03d}.json"))
    expected = [step(epoch, rng) for _ in range(6)]

    reader, rng = begin()
    later = Checkpoint()
    later.load(str(tmp_path / "states" / "{seq:03d}.json"))
    later.register(reader)
    later.register(rng, "random")
    epoch = reader.next_epoch(batch_size=1)
    assert [step(epoch, rng) for _ in range(6)] == expected


def test_a_failed_registration_leaves_nothing() -> None:
    later = Checkpoint()
    later.deserialize(collect_states(a=Counter(5)).serialize())
    with pytest.raises(TypeError, match="Type mismatch: the state of 'a' belongs to an operator of type 'Counter', not 'Other'"):
        later.register(Other(), "a")
    assert later.names == ()
    fresh = Counter()
    later.register(fresh, "a")
    assert fresh.value == 5


def test_files_are_never_overwritten(tmp_path: Path) -> None:
    output = collect_states(a=Counter(1))
    pattern = str(tmp_path / "new [folder]" / "x_{seq:02d}.json")
    assert [Path(output.save(pattern)).name for _ in range(2)] == ["x_00.json", "x_01.json"]
    (tmp_path / "new [folder]" / "x_02.json").write_text("kept")
    assert Path(output.save(pattern)).name == "x_03.json"
    (tmp_path / "new [folder]" / "x_41.json").write_text(output.serialize())
    (tmp_path / "new [folder]" / "x_abc.json").write_text("no number")
    fresh = Checkpoint()
    assert Path(fresh.load(pattern)).name == "x_41.json"
    assert Path(fresh.save(pattern)).name == "x_42.json"
    assert sorted(path.name for path in (tmp_path / "new [folder]").iterdir() if path.suffix == ".tmp") == []


@pytest.mark.parametrize("pattern", ["noseq", "{seq}{seq}", "{seq}_{other}", "{}", "{0}"])
def test_patterns_need_a_number(pattern: str, tmp_path: Path) -> None:
    output = collect_states(a=Counter())
    output.save(str(tmp_path / "{seq}"))
    for call in (output.save, output.load):
        with pytest.raises(ValueError, match="seq"):
            call(str(tmp_path / pattern))
    with pytest.raises(FileNotFoundError):
        output.load(str(tmp_path / "nowhere" / "{seq}"))


def test_the_text() -> None:
    assert json.loads(collect_states(a=Counter(3), b=Other(4)).serialize()) == {
        "version": 2,
        "states": {"a": {"state": "3", "type": "Counter"}, "b": {"state": "4", "type": "Other"}},
    }
