# SPDX-License-Identifier: Apache-2.0
"""Devices, streams and numbers of threads compared with DALI. On a machine with a GPU only the CPU part is compared."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _dali import DAMAGED, assert_equal
from _raises import Raises, raising

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, whose number the results depend on")


@pytest.mark.parametrize("name", ["cpu", "cpu:0", "cpu:", "cpu:x", "gpu:x", "gpu:", "gpu:0:1", "GPU", "CPU", "mixed", "tpu", ""])
@pytest.mark.parametrize("index", [(), (None,), (0,), (-1,)])
def test_names_of_devices(name: str, index: tuple[Any, ...]) -> None:
    raises = None if name == "cpu" and index in ((), (None,)) else ValueError
    for make in ("Device", "device"):
        assert_equal(lambda m, make=make: repr(getattr(m, make)(name, *index)), raises)


@no_gpu
@pytest.mark.parametrize("name", ["gpu", "gpu:0", "cuda:0", "gpu:-1", "cuda"])
@pytest.mark.parametrize("index", [(), (None,), (0,), (-1,), (5,)])
def test_gpus_that_are_not_there(name: str, index: tuple[Any, ...]) -> None:
    raises = RuntimeError if ":" not in name and index in ((), (None,)) else ValueError
    for make in ("Device", "device"):
        assert_equal(lambda m, make=make: repr(getattr(m, make)(name, *index)), raises)


CPU_PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "str": lambda m: str(m.Device.CPU),
    "repr": lambda m: repr(m.Device.CPU),
    "attributes": lambda m: (m.Device.CPU.device_type, m.Device.CPU.device_id),
    "equal": lambda m: (m.Device("cpu") == m.Device.CPU, m.Device("cpu") != m.Device.CPU, hash(m.Device("cpu")) == hash(m.Device.CPU)),
    "None": lambda m: m.device(None),
    "None with an id": lambda m: m.device(None, 0),
    "itself": lambda m: m.device(m.Device.CPU) is m.Device.CPU,
    "itself with an id": raising(ValueError, lambda m: m.device(m.Device.CPU, 0)),
    "torch": lambda m: repr(m.device(torch.device("cpu"))),
    "torch with an id": raising(ValueError, lambda m: m.device(torch.device("cpu"), 0)),
    "torch meta": raising(ValueError, lambda m: m.device(torch.device("meta"))),
    "a number": raising(TypeError, lambda m: m.device(3)),
    "an object": raising(TypeError, lambda m: m.device(object())),
    "default id": lambda m: m.Device.default_device_id("cpu"),
    "default id of cuda": raising(ValueError, lambda m: m.Device.default_device_id("cuda")),
    "default id of x": raising(ValueError, lambda m: m.Device.default_device_id("x")),
    **{f"DLPack {kind}": lambda m, kind=kind: m.Device.type_from_dlpack(kind) for kind in (1, 2)},
    **{f"DLPack {kind}": raising(ValueError, lambda m, kind=kind: m.Device.type_from_dlpack(kind)) for kind in (0, 3, 13)},
    "DLPack None": raising(TypeError, lambda m: m.Device.type_from_dlpack(None)),
    "from torch": lambda m: repr(m.Device.from_dlpack(torch.zeros(2))),
    "from NumPy": lambda m: repr(m.Device.from_dlpack(np.zeros(2))),
    "from a tensor": lambda m: repr(m.Device.from_dlpack(m.tensor([1]))),
    "from a number": raising(AttributeError, lambda m: m.Device.from_dlpack(3)),
    "no stream": lambda m: m.stream(stream=None),
    "Stream of None": raising(ValueError, lambda m: m.Stream(stream=None)),
}


@pytest.mark.parametrize("program", CPU_PROGRAMS.values(), ids=CPU_PROGRAMS)
def test_the_cpu(program: Callable[[Any], Any], raises: Raises | None) -> None:
    assert_equal(program, raises=raises)


def test_the_stack() -> None:
    def program(m: Any) -> Any:
        with m.Device.CPU:
            inside = str(m.Device.current())
            with m.device("cpu"):
                pass
            return inside, str(m.Device.current())

    assert_equal(program)


@no_gpu
def test_no_streams_without_a_gpu() -> None:
    assert_equal(lambda m: (m.get_default_stream(), m.get_default_stream(0), m.set_current_stream(None)))
    assert_equal(lambda m: m.Device.current() == m.Device.CPU)


def after_an_error(m: Any) -> Any:
    with m.EvalMode.deferred:
        failing = m.decoders.image(m.batch([DAMAGED]))
    with pytest.raises(RuntimeError):
        failing.evaluate()
    return m.EvalContext.current().evaluate_all()  # the program has already seen the error


CONTEXT_PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "the same default": lambda m: (m.EvalContext.current() is m.EvalContext.default(), m.EvalContext.default() is m.EvalContext.default()),
    "positional": raising(TypeError, lambda m: m.EvalContext(2)),
    "threads and pool": raising(ValueError, lambda m: m.EvalContext(num_threads=2, thread_pool=m.ThreadPool(2, device_id=None))),
    "negative": raising(ValueError, lambda m: m.EvalContext(num_threads=-1)),
    "no number": raising(TypeError, lambda m: m.EvalContext(num_threads="x")),
    "float": raising(TypeError, lambda m: m.EvalContext(num_threads=1.5)),
    "negative device": raising(ValueError, lambda m: m.EvalContext(device_id=-1)),
    "device 99": raising(ValueError, lambda m: m.EvalContext(device_id=99)),
    "pool": lambda m: (m.ThreadPool(3, device_id=None).num_threads, m.ThreadPool(3, device_id=None).device_id),
    "pool of none": lambda m: m.ThreadPool(0, device_id=None).num_threads,
    "negative pool": raising(ValueError, lambda m: m.ThreadPool(-1, device_id=None)),
    "pool of text": raising(TypeError, lambda m: m.ThreadPool("x", device_id=None)),
    "pool of 1.5": raising(TypeError, lambda m: m.ThreadPool(1.5, device_id=None)),
    "caches": lambda m: (m.EvalContext.default().cache_results(1, 2), m.EvalContext.default().cached_results(1)),
    "evaluate_all": lambda m: m.EvalContext.default().evaluate_all(),
    "evaluate_all after an error": after_an_error,
    "the pool's default number": lambda m: m.ThreadPool(device_id=None).num_threads == m.get_num_threads(),
}


def on_the_cpu(program: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(m: Any) -> Any:
        with m.Device.CPU:
            return program(m)

    return run


def following(m: Any) -> Any:
    """Earlier contexts and a changed number of threads."""
    plain, own = m.EvalContext(), m.EvalContext(num_threads=3)
    pool = m.ThreadPool(2)
    shared = m.EvalContext(thread_pool=pool)
    try:
        m.set_num_threads(4)
        return plain.num_threads, own.num_threads, shared.num_threads, shared.thread_pool is pool, m.EvalContext().num_threads
    finally:
        m.set_num_threads(None)


def nest_contexts(m: Any) -> Any:
    outer, inner = m.EvalContext(num_threads=2), m.EvalContext()
    seen = []
    with outer, inner, outer:
        seen.append(m.EvalContext.current() is outer)
        with m.EvalContext.default():
            seen.append(m.EvalContext.current() is m.EvalContext.default())
    return [*seen, m.EvalContext.current() is m.EvalContext.default()]


CONTEXT_PROGRAMS |= {
    "of threads": on_the_cpu(lambda m: (m.EvalContext(num_threads=3).num_threads, m.EvalContext(num_threads=3).device_id)),
    "of a pool": on_the_cpu(lambda m: m.EvalContext(thread_pool=m.ThreadPool(3)).num_threads),
    "the default pool is shared": on_the_cpu(lambda m: m.EvalContext().thread_pool is m.EvalContext.default().thread_pool),
    "a stream of none": on_the_cpu(lambda m: m.EvalContext().cuda_stream),
    "one checkpoint": on_the_cpu(lambda m: (lambda c: c.checkpoint is c.checkpoint)(m.EvalContext())),
    "numbers that change": on_the_cpu(following),
    "nested": on_the_cpu(nest_contexts),
}


@pytest.mark.parametrize("program", CONTEXT_PROGRAMS.values(), ids=CONTEXT_PROGRAMS)
def test_contexts_and_pools(program: Callable[[Any], Any], raises: Raises | None) -> None:
    assert_equal(program, raises)


@pytest.mark.parametrize(
    "number",
    [
        1,
        2,
        3,
        raising(ValueError, 0),
        raising(ValueError, -1),
        raising(TypeError, "2"),
        raising(TypeError, 2.0),
        None,
        raising(ValueError, 10**6),
        raising(TypeError, [2]),
    ],
)
def test_numbers_of_threads(number: Any, raises: Raises | None) -> None:
    def program(m: Any) -> Any:
        try:
            return m.set_num_threads(number), m.get_num_threads(), m.EvalContext.default().num_threads
        finally:
            m.set_num_threads(None)

    assert_equal(program, raises=raises)
    assert_equal(lambda m: m.get_num_threads())
