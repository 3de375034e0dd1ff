# SPDX-License-Identifier: Apache-2.0
"""Evaluation modes and contexts compared with DALI: the same program, the same values, in every mode and from several threads."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _dali import DAMAGED, assert_equal, assert_same, dali, evaluate

import torch_ndd as ndd

MODES = ("deferred", "eager", "default", "sync_cpu", "sync_full")


def images(m: Any) -> Any:
    return m.batch([np.arange(h * 9 * 3, dtype=np.uint8).reshape(h, 9, 3) for h in (5, 8, 3)], layout="HWC")


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "a chain": lambda m: m.flip(m.crop(m.flip(images(m), horizontal=1), crop=(3, 4)), vertical=1),
    "two readers": lambda m: m.cast(m.crop(images(m), crop=(2, 2)), dtype=m.int32) + m.cast(m.crop(m.flip(images(m)), crop=(2, 2)), dtype=m.int32),
    "a batch as an argument": lambda m: m.flip(images(m), horizontal=m.batch([1, 0, 1])),
    "a sample": lambda m: m.flip(images(m).tensors[1]),
    "external": lambda m: m.flip(m.as_tensor(np.arange(24, dtype=np.uint8).reshape(2, 4, 3), layout="HWC")),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_the_same_values_in_every_mode(mode: str, program: Callable[[Any], Any]) -> None:
    def run(m: Any) -> Any:
        with getattr(m.EvalMode, mode):
            return program(m)

    assert_same(run)


def test_members_of_eval_mode() -> None:
    assert_equal(lambda m: [(value.name, value.value) for value in m.EvalMode])
    assert_equal(lambda m: (m.EvalMode.default is m.EvalMode.eager, m.EvalMode(2).name, m.EvalMode["deferred"].value, len(m.EvalMode)))


def test_nesting_and_threads() -> None:
    def program(m: Any) -> Any:
        seen = [m.EvalMode.current().name]
        with m.EvalMode.deferred:
            seen.append(m.EvalMode.current().name)
            with m.EvalMode.sync_full:
                seen.append(m.EvalMode.current().name)
                thread = threading.Thread(target=lambda: seen.append(m.EvalMode.current().name))
                thread.start()
                thread.join()
            seen.append(m.EvalMode.current().name)
        return [*seen, m.EvalMode.current().name]

    assert_equal(program)


@pytest.mark.parametrize("mode", MODES)
def test_memory_of_the_user_may_be_overwritten_after_the_call(mode: str) -> None:
    def program(m: Any) -> Any:
        array = np.ones((2, 3, 3), np.uint8)
        with getattr(m.EvalMode, mode):
            result = m.flip(m.as_tensor(array, layout="HWC"))
        array[:] = 9
        return result

    assert_same(program)


@pytest.mark.parametrize("mode", MODES)
def test_metadata_is_known_before_evaluation(mode: str) -> None:
    def program(m: Any) -> Any:
        with getattr(m.EvalMode, mode):
            result = m.crop(images(m), crop=(2, 3))
            return result.layout, result.ndim, str(result.device), result.batch_size, [tuple(shape) for shape in result.shape]

    assert_equal(program)


def test_contexts_nest_and_belong_to_a_thread() -> None:
    def program(m: Any) -> Any:
        outer = m.EvalContext.default()
        seen = [m.EvalContext.current() is outer]
        with outer, outer:
            seen.append(m.EvalContext.current() is outer)
        error: list[Any] = []

        def enter() -> None:
            try:
                with outer:
                    pass
            except RuntimeError as raised:
                error.append(str(raised))

        with outer:
            thread = threading.Thread(target=enter)
            thread.start()
            thread.join()
        return seen, error

    assert_equal(program)


def test_results_pass_between_threads() -> None:
    def program(m: Any) -> Any:
        value = [images(m)]

        def step(k: int) -> None:
            with [*m.EvalMode][k % 4]:
                value[0] = m.flip(value[0], horizontal=k % 3 > 0, vertical=k % 2)

        for k in range(7):
            thread = threading.Thread(target=step, args=(k,))
            thread.start()
            thread.join()
        return value[0]

    assert_same(program)


def test_evaluate_returns_the_value_itself() -> None:
    def program(m: Any) -> Any:
        result = m.flip(images(m))
        return result.evaluate() is result, result.tensors[0].evaluate().ndim

    assert_equal(program)


def fails_later(m: Any) -> Any:
    """DALI's crop fails when it runs, ours at the call, so ours uses an image with damaged data."""
    if m is dali:
        return m.crop(images(m), crop=(100, 100))
    return m.decoders.image(m.batch([DAMAGED, DAMAGED]))


def test_unused_failures_are_silent() -> None:
    def program(m: Any) -> Any:
        fails_later(m)
        with m.EvalContext.default():
            fails_later(m)
        return m.flip(images(m))

    assert_same(program)
    for m in (ndd, dali):
        with pytest.raises(RuntimeError):
            evaluate(fails_later, m)


WRONG = {
    "crop": lambda m, x: m.crop(x, crop=[50, 50]),
    "resize to three sizes": lambda m, x: m.resize(x, size=[2, 2, 2]),
    "resize twice": lambda m, x: m.resize(x, size=[2, 2], resize_x=3),
    "reshape": lambda m, x: m.reshape(x, shape=[5]),
    "reshape twice": lambda m, x: m.reshape(x, shape=[-1], rel_shape=[1]),
    "transpose": lambda m, x: m.transpose(x, perm=[0, 0, 1]),
    "transpose of two axes": lambda m, x: m.transpose(x, perm=[1, 0]),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_wrong_arguments_for_a_pending_input_raise_at_the_call(mode: str, wrong: Callable[[Any, Any], Any]) -> None:
    with dali.EvalMode[mode]:
        result = wrong(dali, dali.flip(images(dali)))
        with pytest.raises(RuntimeError):
            result.evaluate()
    with ndd.EvalMode[mode]:
        flipped = ndd.flip(images(ndd))
        with pytest.raises(RuntimeError):
            wrong(ndd, flipped)
