# SPDX-License-Identifier: Apache-2.0
"""Contexts, pools of threads, and the number of threads."""

import gc
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _forks import Forks
from _queued import CAUSE, brighter, failing, held_until, is_done, ones
from _workers import ThreadsOfAWorker

import torch_ndd as ndd
from torch_ndd import EvalContext, EvalMode, ThreadPool
from torch_ndd._core.context import pools


def in_thread(work: Callable[[], Any]) -> Any:
    outputs: list[Any] = []

    def run() -> None:
        try:
            outputs.append(work())
        except BaseException as error:
            outputs.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return outputs[0]


# --- the current context ---


def test_default_contexts_belong_to_a_thread() -> None:
    assert EvalContext.current() is EvalContext.default() is EvalContext.default()
    assert isinstance(in_thread(EvalContext.default), EvalContext)
    assert in_thread(EvalContext.default) is not EvalContext.default()


def test_entering_nests_and_is_seen_by_one_thread() -> None:
    outer, inner = EvalContext(num_threads=2), EvalContext(num_threads=3)
    with outer as entered:
        assert entered is outer is EvalContext.current()
        with inner:
            assert EvalContext.current() is inner
            with outer:
                assert EvalContext.current() is outer
            assert EvalContext.current() is inner
        assert EvalContext.current() is outer
        assert in_thread(EvalContext.current) not in (outer, inner)
        assert EvalContext.default() not in (outer, inner)
    assert EvalContext.current() is EvalContext.default()


def test_a_context_is_left_when_its_block_raises() -> None:
    context = EvalContext(num_threads=2)
    with pytest.raises(KeyError), context:
        raise KeyError
    assert EvalContext.current() is EvalContext.default()
    with context:
        pass
    assert in_thread(context.__enter__) is context


def test_no_context_in_two_threads() -> None:
    context = EvalContext()
    with context, context:
        error = in_thread(context.__enter__)
        assert isinstance(error, RuntimeError)
        assert str(error) == "An EvalContext cannot be active in two threads simultaneously."
    error = in_thread(lambda: context.__exit__(None, None, None))
    assert isinstance(error, RuntimeError)


def test_context_reports_its_resources() -> None:
    context = EvalContext(num_threads=3)
    assert (context.num_threads, context.thread_pool.num_threads) == (3, 3)
    assert context.thread_pool is context.thread_pool
    if not torch.cuda.is_available():
        assert (context.device_id, context.cuda_stream, context.thread_pool.device_id) == (None, None, None)
        assert repr(context) == "EvalContext(num_threads=3, device_id=None, cuda_stream=None)"
    assert context.cached_results(object()) is None
    assert context.cache_results(object(), ()) is None
    assert EvalContext().thread_pool is EvalContext.current().thread_pool


def test_keyword_only() -> None:
    with pytest.raises(TypeError):
        EvalContext(2)


@pytest.mark.parametrize("make", [lambda n: EvalContext(num_threads=n), ThreadPool], ids=["EvalContext", "ThreadPool"])
def test_wrong_numbers_of_threads(make: Callable[[Any], Any]) -> None:
    for wrong, kind in ((-1, ValueError), (10**6, ValueError), ("2", TypeError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(kind, match="number of threads"):
            make(wrong)
    assert make(np.int32(2)).num_threads == 2


def test_wrong_arguments_of_contexts() -> None:
    with pytest.raises(ValueError, match="cannot be specified together"):
        EvalContext(num_threads=2, thread_pool=ThreadPool(2))
    with pytest.raises(TypeError, match="ThreadPool"):
        EvalContext(thread_pool=3)
    with pytest.raises(ValueError, match="Invalid device id -3"):
        EvalContext(device_id=-3)
    with pytest.raises(ValueError, match="Invalid device id 99"):
        ThreadPool(2, device_id=99)
    with pytest.raises(TypeError, match="is not a CUDA stream"):
        EvalContext(cuda_stream="x")


# --- numbers of threads ---


def test_contexts_follow_the_number_of_threads() -> None:
    plain, own = EvalContext(), EvalContext(num_threads=3)
    before = plain.thread_pool
    ndd.set_num_threads(5)
    assert (plain.num_threads, own.num_threads, EvalContext.default().num_threads, ThreadPool().num_threads) == (5, 3, 5, 5)
    assert plain.thread_pool is EvalContext.default().thread_pool is not before
    ndd.set_num_threads(None)
    assert plain.num_threads == before.num_threads == ndd.get_num_threads()


def most_running(pool: ThreadPool, work: Callable[[], Any]) -> int:
    with EvalContext(thread_pool=pool, device_id=pool.device_id):
        work()
    return pool._most_running


@pytest.mark.parametrize("threads", [1, 2, 3, 6])
def test_a_pool_limits_concurrent_tasks(threads: int) -> None:
    pool = ThreadPool(threads)
    value = ones(count=16)
    assert most_running(pool, lambda: brighter(value, 10).evaluate()) <= threads
    for _ in range(100):  # whether all run at the same time is up to chance
        if most_running(pool, lambda: brighter(value, 100).evaluate()) == threads:
            break
    assert pool._most_running == threads


def test_the_pool_is_that_of_the_call() -> None:
    value, late, other = ones(), ThreadPool(2), ThreadPool(3)
    with EvalMode.deferred, EvalContext(thread_pool=late):
        result = brighter(value, 5)
    with EvalContext(thread_pool=other):
        result.evaluate()
    assert (late._most_running > 0, other._most_running) == (True, 0)


def test_the_number_of_threads_is_that_of_the_call() -> None:
    value = ones()
    ndd.set_num_threads(1)
    pool = EvalContext.default().thread_pool
    with EvalMode.deferred:
        result = brighter(value, 5)
    ndd.set_num_threads(4)
    four = EvalContext.default().thread_pool
    result.evaluate()
    assert (pool._most_running, four._most_running) == (1, 0)
    brighter(value, 5).evaluate()
    assert four._most_running > 0


def test_a_pool_without_threads_works_where_results_are_needed() -> None:
    pool = ThreadPool(0)
    with EvalContext(thread_pool=pool):
        result = brighter(ones(), 3)
    time.sleep(0.05)
    assert not is_done(result)
    assert int(result.torch().max()) == 4
    assert pool._most_running == 1


def test_contexts_work_side_by_side() -> None:
    """Each pool makes progress although others are busy with as much work as they may do."""
    value = ones(250, 16)
    slow = [EvalContext(num_threads=1) for _ in range(4)]
    go_on = threading.Event()  # however slow this thread is, the backlog does not end before it says so
    backlog = []
    for context in slow:
        with context:
            backlog.append(brighter(held_until(go_on, brighter(value, 25)), 25))
    with EvalContext(num_threads=2) as context:
        assert int(brighter(value, 2).torch().max()) == 3
        assert not any(is_done(result) for result in backlog)
        go_on.set()
        assert context.thread_pool._most_running <= 2
    assert [int(result.torch().max()) for result in backlog] == [51] * 4
    assert [context.thread_pool._most_running for context in slow] == [1] * 4


def test_results_pass_between_contexts() -> None:
    """A chain through pools of every size, one of them without threads, evaluated outside."""
    contexts = [EvalContext(num_threads=n) for n in (1, 0, 3, 2)]
    for mode in EvalMode:
        value = ones(150, 6)
        with mode:
            for k in range(12):
                with contexts[k % 4]:
                    value = brighter(value)
        assert int(value.torch().min()) == int(value.torch().max()) == 13


def test_results_pass_between_threads() -> None:
    value = ones(150, 6)
    for k in range(6):

        def step(value: Any = value, k: int = k) -> Any:
            with EvalContext(num_threads=1 + k % 3), [*EvalMode][k % 4]:
                return brighter(value)

        value = in_thread(step)
    assert int(value.torch().max()) == 7


def test_pools_come_and_go() -> None:
    value, results, before = ones(100, 4), [], threading.active_count()
    for k in range(300):
        with EvalContext(num_threads=1 + k % 4):
            results.append(brighter(value, 2))
    gc.collect()
    assert all(int(result.torch().max()) == 3 for result in results)
    assert threading.active_count() < before + 10


# --- evaluate_all ---


@pytest.mark.parametrize("mode", [EvalMode.deferred, EvalMode.eager])
def test_evaluate_all_waits_for_the_calls_of_the_context(mode: EvalMode) -> None:
    with EvalContext(num_threads=2) as context, mode:
        results = [brighter(ones(), k) for k in (3, 1, 2)]
        context.evaluate_all()
        assert all(is_done(result) for result in results)


def test_evaluate_all_of_the_default_context() -> None:
    def run() -> tuple[bool, bool]:
        with EvalMode.deferred, EvalContext():
            elsewhere = brighter(ones())
            EvalContext.default().evaluate_all()
        with EvalMode.deferred:
            mine = brighter(ones())
            EvalContext.default().evaluate_all()
        return is_done(elsewhere), is_done(mine)

    assert in_thread(run) == (False, True)  # whose default context has no calls of other tests


def test_evaluate_all_raises_the_first_error() -> None:
    with EvalMode.deferred, EvalContext() as context:
        good, bad = brighter(ones()), failing(200)
        with pytest.raises(RuntimeError, match="called at") as error:
            context.evaluate_all()
        assert CAUSE in str(error.value)
        assert is_done(good)
        context.evaluate_all()  # the error is not raised again
        with pytest.raises(RuntimeError, match="called at"):
            bad.evaluate()  # except where the value is used
        other = failing(200)
        with pytest.raises(RuntimeError, match="called at"):
            other.evaluate()
        context.evaluate_all()  # nor an error that was raised elsewhere
        for read in (lambda value: brighter(value).evaluate(), torch.compile(brighter, backend="eager")):
            other = failing(200)
            with pytest.raises(RuntimeError, match="called at"):
                read(other)
            context.evaluate_all()  # by a call that reads the result, or by a compiled one
        del other
        lost = failing(200)
        del lost
        gc.collect()
        context.evaluate_all()  # results without a reference are not evaluated


def test_leaving_a_context_evaluates_no_ordinary_calls() -> None:
    with EvalContext(), EvalMode.deferred:
        result = brighter(ones())
        failing(200)
    assert not is_done(result)


def test_registered_invocations_run_on_exit() -> None:
    class Invocation:
        contexts: list[EvalContext]

        def __init__(self) -> None:
            self.contexts = []

        def run(self, context: EvalContext) -> None:
            self.contexts.append(context)

    kept, held, ran = Invocation(), Invocation(), []
    with EvalContext() as context:
        with context:
            context._add_invocation(kept, weak=False)
            context._add_invocation(held, weak=True)
            dropped = Invocation()
            dropped.contexts = ran
            context._add_invocation(dropped, weak=True)
            del dropped
            gc.collect()
        assert kept.contexts == []  # the outermost exit counts
    assert (kept.contexts, held.contexts, ran) == ([context], [context], [])
    with context:
        pass
    assert len(kept.contexts) == 1


# --- processes ---


def test_the_number_of_threads_comes_from_the_environment(forks: Forks) -> None:
    code = "from torch_ndd import *; f = get_num_threads; a = f(); set_num_threads(2); b = f(); set_num_threads(None); print(a, b, f())"
    done = forks.run(code, variables={"DALI_NUM_THREADS": "3"})
    assert (done.wait(), done.output) == (0, "3 2 3\n")


def test_an_empty_environment_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALI_NUM_THREADS", "")
    assert pools._default_threads() == len(os.sched_getaffinity(0))


def test_processes_share_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(12)))
    for text, threads in (("", 12), ("1", 12), ("2", 6), ("5", 2), ("100", 1), ("0", 12), ("two", 12)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", text)
        ndd.set_num_threads(None)
        assert ndd.get_num_threads() == EvalContext().num_threads == threads
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    ndd.set_num_threads(4)
    pools.settle()
    assert ndd.get_num_threads() == 4
    ndd.set_num_threads(None)
    monkeypatch.setattr(pools._Threads, "sharing", 1)  # restored after the next line changes it
    pools.share_cpus(4)
    assert ndd.get_num_threads() == 3
    monkeypatch.setenv("DALI_NUM_THREADS", "7")
    ndd.set_num_threads(None)
    assert ndd.get_num_threads() == 7


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_share_the_cpus(start: str) -> None:
    def read_values() -> list[list[int]]:
        loader = torch.utils.data.DataLoader(ThreadsOfAWorker(), None, num_workers=2, multiprocessing_context=start, timeout=100)
        return list(loader)

    each = max(1, len(os.sched_getaffinity(0)) // 2)
    assert read_values() == [[each, k + 1, each] for k in range(3)]
    if start == "fork":
        ndd.set_num_threads(2)
        assert read_values() == [[2, k + 1, 2] for k in range(3)]


@pytest.mark.parametrize("text", ["0", "-2", "many", "1.5", "1000000"])
def test_a_wrong_number_in_the_environment(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALI_NUM_THREADS", text)
    with pytest.raises(ValueError, match=f"DALI_NUM_THREADS='{text}'"):
        pools._default_threads()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_contexts_after_a_fork() -> None:
    context = EvalContext(num_threads=2)
    elsewhere = EvalContext(num_threads=2)
    ready, end = threading.Event(), threading.Event()

    def hold() -> None:
        with elsewhere:
            ready.set()
            end.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    ready.wait()
    with context:
        pending = brighter(ones(), 4)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.set_num_threads(1)
                values = [pending, brighter(ones(), 4)]
                with EvalContext(num_threads=3):
                    values.append(brighter(ones(), 4))
                ndd.set_num_threads(2)
                code = 0 if [int(value.torch().max()) for value in values] == [5, 5, 5] and EvalContext.current() is context else 2
            finally:
                os._exit(code)
    end.set()
    holder.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
