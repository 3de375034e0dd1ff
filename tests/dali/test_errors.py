# SPDX-License-Identifier: Apache-2.0
"""Errors of queued work compared with DALI: type, time, cause and line."""

import pickle
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _dali import DAMAGED, dali

import torch_ndd as ndd

QUEUED = {"deferred": "An error happened during deferred evaluation", "eager": "An error happened during asynchronous execution"}


def images(m: Any) -> Any:
    return m.batch([np.ones((size, 6, 3), np.uint8) for size in (4, 2, 5)], layout="HWC")


def failing(m: Any) -> Any:
    """Work that fails in the second sample, once it runs: a file that cannot be decoded."""
    files = [np.frombuffer(b"P5 2 2 255\n1234", np.uint8), np.frombuffer(b"no image at all, only text", np.uint8)]
    return m.decoders.image(m.batch(files), device="cpu")


def inner(m: Any, program: Callable[[Any], Any]) -> Any:
    return program(m)


def outer(m: Any, program: Callable[[Any], Any]) -> Any:
    return inner(m, program)


def error_of(function: Callable[[], Any]) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@pytest.mark.parametrize("mode", ["sync_cpu", "sync_full"])
@pytest.mark.parametrize("m", [ndd, dali], ids=["torch_ndd", "dali"])
def test_sync_modes_raise_at_the_call(mode: str, m: Any) -> None:
    with getattr(m.EvalMode, mode):
        error = error_of(lambda: failing(m))
    assert isinstance(error, RuntimeError)
    assert "An error happened" not in str(error)
    assert "called at" not in str(error)


@pytest.mark.parametrize("mode", ["deferred", "eager", "sync_cpu"])
@pytest.mark.parametrize("m", [ndd, dali], ids=["torch_ndd", "dali"])
def test_memory_of_the_user_raises_at_the_call(mode: str, m: Any) -> None:
    def call() -> Any:
        return m.crop(m.as_tensor(np.ones((4, 6, 3), np.uint8), layout="HWC"), crop=(9, 9))

    with getattr(m.EvalMode, mode):
        error = error_of(call)
    assert isinstance(error, RuntimeError)
    assert error.__cause__ is None


@pytest.mark.parametrize("mode", QUEUED)
@pytest.mark.parametrize("m", [ndd, dali], ids=["torch_ndd", "dali"])
def test_the_wrapper(mode: str, m: Any) -> None:
    """DALI's crop fails when it runs, ours at the call, so ours uses an image with damaged data."""

    def fail() -> Any:
        if m is dali:
            return m.crop(images(m), crop=(9, 9))
        return m.decoders.image(m.batch([DAMAGED, DAMAGED]))

    with getattr(m.EvalMode, mode):
        result = inner(m, lambda _: fail())
    with m.EvalMode.sync_cpu:
        direct = error_of(fail)
    for use in (result.evaluate, lambda: np.asarray(result.tensors[1]), lambda: repr(result), result.evaluate):
        error = error_of(use)
        assert type(error) is type(direct) is RuntimeError
        cause = root(error)
        # DALI's text says that something happened, ours what, and where the call is.
        assert str(error) == QUEUED[mode] if m is dali else str(error).startswith(f"{cause}\ncalled at {__file__}:")
        assert type(cause) is RuntimeError
        assert str(cause) == str(direct)
        names = [frame.name for frame in traceback.extract_tb(cause.__traceback__)]
        assert names[-3:] == ["inner", "<lambda>", "fail"]
        copied = pickle.loads(pickle.dumps(error))
        assert (type(copied), copied.args) == (type(error), error.args)


# Mistakes known at the call: the same type of error in every mode, whenever DALI raises it.
MISTAKES: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "an unknown argument": (lambda m: m.flip(images(m), nonsense=1), TypeError),
    "too many inputs": (lambda m: m.flip(images(m), images(m), images(m)), TypeError),
    "None as input": (lambda m: m.flip(None), TypeError),
    "batches of different size": (lambda m: m.flip(images(m), horizontal=m.batch([1, 0])), ValueError),
    "an unknown device": (lambda m: m.flip(images(m), device="nowhere"), ValueError),
    "a wrong layout": (lambda m: m.flip(m.batch([np.ones((2, 2, 3), np.uint8)], layout="ABC")), ValueError),
    "too large a crop": (lambda m: m.crop(images(m), crop=(9, 9)), RuntimeError),
    "no image": (failing, RuntimeError),
}


@pytest.mark.parametrize("mode", ["deferred", "eager", "sync_cpu", "sync_full"])
@pytest.mark.parametrize(("program", "kind"), MISTAKES.values(), ids=MISTAKES)
def test_the_type_of_the_error(mode: str, program: Callable[[Any], Any], kind: type[Exception]) -> None:
    for m in (ndd, dali):
        with getattr(m.EvalMode, mode):
            assert type(root(error_of(lambda m=m: outer(m, program).evaluate()))) is kind
