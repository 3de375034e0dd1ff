# SPDX-License-Identifier: Apache-2.0
"""Checkpoints compared with DALI's: the same steps, each with the same result or the same type of error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _dali import dali
from _raises import Raises, catch_error, raising

import torch_ndd as ndd


class Op:
    def __init__(self, value: str = "a") -> None:
        self.value = value

    def get_state(self, cuda_stream: Any = None) -> str:
        return self.value

    def set_state(self, value: str) -> None:
        self.value = value


class Other(Op):
    pass


class Log(list[Any]):
    """The results of steps, in their place the types of their errors, which a test compares with the expected ones."""

    def step(self, action: Callable[[], Any]) -> None:
        try:
            self.append(action())
        except Exception as error:
            self.append(type(error))

    def errors(self) -> list[type[Exception]]:
        return [result for result in self if isinstance(result, type)]


def lifetime(new: Callable[[], Any], log: Log) -> None:
    c, a, b = new(), Op("1"), Op("2")
    log.step(lambda: (len(c), c.names, "x" in c, c.is_complete, c.is_loaded))
    for action in (c.serialize, c.restore, c.collect, lambda: c.is_complete, lambda: c.register(a), c.clear):
        log.step(action)
    for op, name in ((a, None), (a, None), (b, "b"), (b, None), (a, "q"), (Op(), ""), (Op(), "__op_7"), (Other(), "b"), (Op("3"), None)):
        log.step(lambda op=op, name=name: c.register(op, name))
    log.step(lambda: (len(c), c.names, "b" in c, "__op_2" in c, c.get_state("b")))
    log.step(lambda: c.get_state("zz"))
    log.step(c.restore)
    log.step(c.collect)
    log.step(lambda: (c.get_state("b"), json.loads(c.serialize())))
    new_b = Op("9")
    for op, name in ((Op(), None), (Op(), "new"), (new_b, "b")):
        log.step(lambda op=op, name=name: c.register(op, name))
    for name, value, kind in (("nope", "1", None), ("b", "77", None), ("b", "1", 3), ("b", "5", Other), ("b", "6", "Op")):
        log.step(lambda name=name, value=value, kind=kind: c.set_state(name, value, op_type=kind))
        log.step(c.restore)
        log.step(lambda: new_b.value)


def resuming(new: Callable[[], Any], log: Log) -> None:
    first = new()
    for op, name in ((Op("1"), None), (Op("2"), "b"), (Op("3"), None)):
        first.register(op, name)
    first.collect()
    c, ops = new(), [Op(), Op(), Op()]
    log.step(lambda: c.deserialize(first.serialize()))
    log.step(lambda: (c.is_loaded, c.is_complete, len(c), c.names))
    for op, name in ((ops[0], None), (ops[1], "b"), (ops[2], "unknown"), (ops[2], None), (Op(), None)):
        log.step(lambda op=op, name=name: c.register(op, name))
        log.step(lambda: [value.value for value in ops])
    for action in (lambda: c.get_state("b"), c.restore, c.collect, lambda: (c.is_loaded, c.is_complete)):
        log.step(action)
    partial = new()
    partial.deserialize(first.serialize())
    for action in (partial.collect, partial.restore, lambda: partial.register(Op()), partial.restore):
        log.step(action)
    wrong = new()
    wrong.deserialize(first.serialize())
    log.step(lambda: wrong.register(Other()))
    early, op = new(), Op()
    early.set_state("q", "5")
    for action in (lambda: (len(early), "q" in early), lambda: early.get_state("q"), lambda: early.register(op, "q"), lambda: op.value):
        log.step(action)
    log.step(lambda: json.loads(early.serialize()))
    lacking = new()
    lacking.register(Op(), "a")
    lacking.register(Op(), "b")
    lacking.set_state("a", "3")
    log.step(lacking.restore)


def files(new: Callable[[], Any], log: Log) -> None:
    c = new()
    c.register(Op("z"))
    c.collect()
    for pattern in ("ck_{seq}.json", "ck_{seq}.json", "sub/x[1]_{seq:04d}.json"):
        log.step(lambda pattern=pattern: c.save(pattern))
    for pattern in ("ck_{seq}.json", "zz_{seq}", "ck", "{seq}{seq}", "sub/x[1]_{seq:04d}.json"):
        log.step(lambda pattern=pattern: new().load(pattern))
    resumed = new()
    log.step(lambda: (resumed.load("ck_{seq}.json"), resumed.save("ck_{seq}.json")))
    log.step(lambda: new().save("q_{seq}"))
    Path("ck_17.json").write_text("x")
    Path("ck_abc.json").write_text("x")
    fresh = new()
    fresh.register(Op("z"))
    fresh.collect()
    log.step(lambda: fresh.save("ck_{seq}.json"))
    log.step(lambda: sorted(str(path) for path in Path().rglob("*")))


ERRORS: dict[Callable[[Callable[[], Any], Log], None], list[type[Exception]]] = {
    lifetime: [RuntimeError] * 3 + [ValueError] * 2 + [TypeError, KeyError, RuntimeError, RuntimeError, KeyError, TypeError, TypeError],
    resuming: [KeyError, KeyError, RuntimeError, RuntimeError, RuntimeError, TypeError, KeyError, RuntimeError],
    files: [FileNotFoundError, ValueError, ValueError, RuntimeError],
}


@pytest.mark.parametrize("program", ERRORS)
def test_the_same_steps(program: Callable[[Callable[[], Any], Log], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = []
    for m in (ndd, dali):
        folder = tmp_path / m.__name__
        folder.mkdir()
        monkeypatch.chdir(folder)
        logs.append(Log())
        program(m.checkpoint.Checkpoint, logs[-1])
        assert logs[-1].errors() == ERRORS[program]
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    "text",
    [
        raising(ValueError, "[]"),
        raising(ValueError, "{}"),
        raising(ValueError, '{"states": {}}'),
        raising(ValueError, '{"version": 1, "states": {}}'),
        raising(ValueError, '{"version": 2, "states": []}'),
        raising(ValueError, '{"version": 2, "states": {"a": "x"}}'),
        raising(ValueError, '{"version": 2, "states": {"a": {}}}'),
        raising(ValueError, '{"version": 2, "states": {"a": {"state": "1", "type": 3}}}'),
        '{"version": 2, "states": {"a": {"state": "1"}}}',
        '{"version": 2, "states": {"a": {"state": "1", "type": null}}}',
        '{"version": 2, "states": {}}',
        raising(json.JSONDecodeError, "no JSON"),
    ],
)
def test_wrong_texts_are_rejected(text: str, raises: Raises | None) -> None:
    states = []
    for m in (ndd, dali):
        checkpoint = m.checkpoint.Checkpoint()
        if raises is None:
            checkpoint.deserialize(text)
        else:
            catch_error(lambda c=checkpoint: c.deserialize(text), raises)
        states.append((checkpoint.is_loaded, checkpoint.is_complete, checkpoint.names))
    assert states[0] == states[1]


def test_the_context_s_own() -> None:
    for m in (ndd, dali):
        assert m.checkpoint.current() is m.EvalContext.current().checkpoint is m.EvalContext.current().checkpoint
