# SPDX-License-Identifier: Apache-2.0
"""Python functions as operators: order, errors, random numbers, shapes, forks, compiled graphs."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from _forks import run_in_child

import torch_ndd as ndd
from torch_ndd._core.work import host_functions


def plus_one(x: np.ndarray) -> np.ndarray:
    return x + np.float32(1)


def columns(n: int = 4) -> ndd.Batch:
    return ndd.batch(np.arange(n, dtype=np.float32).reshape(n, 1))


def make_ragged() -> ndd.Batch:
    return ndd.batch([np.full((2, 3, 3), 7, np.uint8), np.full((1, 2, 3), 9, np.uint8)], layout="HWC")


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = ndd.get_num_threads()
    ndd.set_num_threads(number)
    try:
        yield
    finally:
        ndd.set_num_threads(before)


def test_call_returns_before_the_function_ran_and_kernels_wait_for_it() -> None:
    go = threading.Event()

    def waits(x: np.ndarray) -> np.ndarray:
        assert go.wait(60)
        return x + np.float32(1)

    output = ndd.python_function(waits, columns() * 2, shape="same") * 10
    go.set()
    assert output.torch().flatten().tolist() == [10, 30, 50, 70]


def test_functions_wait_for_kernels_and_for_each_other() -> None:
    value = columns()
    for _ in range(20):
        value = ndd.python_function(plus_one, value * 1.0, shape="same")
    assert value.torch().flatten().tolist() == [20, 21, 22, 23]


def test_samples_run_side_by_side() -> None:
    together = threading.Barrier(2, timeout=60)

    def meets(x: np.ndarray) -> np.ndarray:
        together.wait()
        return x

    with threads(2):
        assert ndd.python_function(meets, columns(2), shape="same").torch().flatten().tolist() == [0, 1]


@pytest.mark.parametrize("shape", ["same", None])
def test_ragged_batches_keep_their_shapes(shape: str | None) -> None:
    output = ndd.python_function(lambda image, by: image + by, make_ragged(), by=ndd.batch(np.array([1, 2], np.uint8)), shape=shape, layout="HWC")
    assert output.layout == "HWC"
    assert output.shape == [(2, 3, 3), (1, 2, 3)]
    assert [np.unique(sample).tolist() for sample in output] == [[8], [11]]


def test_unknown_shapes_may_change_the_number_of_dimensions() -> None:
    output = ndd.python_function(lambda image: image.sum(dtype=np.int64), make_ragged())
    assert output.torch().tolist() == [126, 54]
    assert ndd.python_function(lambda image: image[:1, :1, 0], make_ragged()).shape == [(1, 1), (1, 1)]


def test_shapes_per_sample() -> None:
    output = ndd.python_function(lambda n: np.arange(int(n), dtype=np.int32), ndd.batch([2, 3]), shape=torch.tensor([[2], [3]]), dtype=ndd.int32)
    assert [np.asarray(sample).tolist() for sample in output] == [[0, 1], [0, 1, 2]]


def test_several_outputs_and_a_tensor_instead_of_a_batch() -> None:
    def both(x: np.ndarray) -> tuple[np.ndarray, float]:
        return x * 2, float(x.sum())

    twice, total = ndd.python_function(both, ndd.tensor([1.0, 2.0]), num_outputs=2, shape=["same", ()], dtype=[None, ndd.float64])
    assert isinstance(twice, ndd.Tensor)
    assert twice.torch().tolist() == [2, 4]
    assert total.item() == 3.0
    assert total.dtype == ndd.float64


@pytest.mark.parametrize("shape", ["same", None])
def test_all_samples_at_once(shape: str | None) -> None:
    output = ndd.python_function(lambda x: x - x.mean(), columns(), batched=True, shape=shape)
    assert output.torch().flatten().tolist() == [-1.5, -0.5, 0.5, 1.5]
    lists = ndd.python_function(lambda xs: [x[::-1] for x in xs], make_ragged(), batched=True, shape=shape)
    assert lists.shape == [(2, 3, 3), (1, 2, 3)]


def test_torch_functions_and_other_arguments() -> None:
    output = ndd.python_function(lambda x, power: x**power, columns(), form="torch", shape="same", power=3)
    assert output.torch().flatten().tolist() == [0, 1, 8, 27]
    halves = columns().torch().to(torch.bfloat16)
    assert ndd.python_function(lambda x: x + 1, ndd.as_batch(halves), form="torch", shape="same").dtype == ndd.bfloat16


def test_no_inputs() -> None:
    assert ndd.python_function(lambda: np.int64(3), batch_size=2, shape=(), dtype=ndd.int64).torch().tolist() == [3, 3]
    assert ndd.python_function(lambda: np.int64(3), batch_size=2).torch().tolist() == [3, 3]
    assert ndd.python_function(plus_one, columns(0), shape="same").batch_size == 0
    assert ndd.python_function(plus_one, columns(0)).batch_size == 0


def test_inputs_are_read_only() -> None:
    def writes(x: np.ndarray) -> np.ndarray:
        x += 1
        return x

    value = columns() * 1.0
    with pytest.raises(ValueError, match=r"python_function: sample 0: ValueError: .*read-only"):
        ndd.python_function(writes, value, shape="same").evaluate()
    assert value.torch().flatten().tolist() == [0, 1, 2, 3]


class TestErrors:
    """Whatever goes wrong is raised where the result is used, and belongs to that result only."""

    def test_names_the_sample_the_file_and_both_lines(self, tmp_path: os.PathLike[str]) -> None:
        paths = [os.path.join(tmp_path, f"{i}.npy") for i in range(3)]
        for i, path in enumerate(paths):
            np.save(path, np.full(2, i, np.float32))

        def refuses(x: np.ndarray) -> np.ndarray:
            if x[0] == 1:
                raise IndexError("not this one")
            return x

        (values,) = next(iter(ndd.readers.Numpy(files=paths).next_epoch(batch_size=3)))
        output = ndd.python_function(refuses, values, shape="same")
        with pytest.raises(IndexError) as caught:
            (output + 1).evaluate()
        text = str(caught.value)
        assert text.startswith(f"python_function: sample 1 ({paths[1]}): IndexError: not this one (test_python_function.py:")
        assert "called at" in text
        causes = []
        error: BaseException | None = caught.value
        while error is not None:
            causes.append(repr(error))
            error = error.__cause__
        assert causes[-1] == "IndexError('not this one')"
        with pytest.raises(IndexError, match="not this one"):
            ndd.python_function(refuses, values)
        assert ndd.python_function(plus_one, values, shape="same").torch()[2].tolist() == [3, 3]

    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda x: x[:0], r"output 0 of <lambda> has the shape \(0,\), expected \(1,\)"),
            (lambda x: x.astype(np.float64), "has type f64, expected f32"),
            (lambda x: None, "returned None, expected 1 output"),
            (lambda x: (x, x), "returned 2 outputs, expected 1"),
            (lambda x, y: x, "missing 1 required positional argument"),
            (lambda x: exec("raise SystemExit(3)"), "SystemExit: 3"),
        ],
    )
    def test_wrong_functions(self, function: Callable[..., Any], message: str) -> None:
        with pytest.raises((RuntimeError, ValueError, TypeError), match=message):
            ndd.python_function(function, columns(), shape="same").evaluate()

    def test_failed_inputs_keep_their_error(self) -> None:
        def fails(x: np.ndarray) -> np.ndarray:
            raise ValueError("the first")

        called = []
        first = ndd.python_function(fails, columns(), shape="same")
        second = ndd.python_function(lambda x: called.append(1) or x, first * 2, shape="same")
        with pytest.raises(ValueError, match="the first"):
            second.evaluate()
        assert not called

    def test_wrong_arguments(self) -> None:
        with pytest.raises(TypeError, match="must be a function"):
            ndd.python_function(3, columns())
        with pytest.raises(TypeError, match="'batch_size' is needed"):
            ndd.python_function(plus_one)
        with pytest.raises(ValueError, match="form must be one of"):
            ndd.python_function(plus_one, columns(), form="list")
        with pytest.raises(ValueError, match="shape must have one entry for each of the 2 outputs"):
            ndd.python_function(plus_one, columns(), num_outputs=2, shape=(1,))
        for shape in (3, 2.5, True, "other", (3, "a"), [(3,)], {3: 1}, lambda x: (3,)):
            with pytest.raises(ValueError, match=r"python_function: shape must be \"same\", a sequence of integers such as \(3,\)"):
                ndd.python_operator(shape=shape)(plus_one)
        with pytest.raises(ValueError, match="Inconsistent batch size"):
            ndd.python_function(plus_one, columns(2), columns(3))
        with pytest.raises(ValueError, match=r"expected \(4, dimensions\)"):
            ndd.python_function(plus_one, columns(), shape=torch.tensor([[1]]))


def test_random_numbers_do_not_depend_on_threads() -> None:
    @ndd.python_operator(shape="same", rng=True)
    def noisy(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return x + rng.normal(size=x.shape).astype(np.float32)

    drawn = []
    for number in (1, 4):
        with threads(number):
            drawn.append(noisy(columns(50), rng=ndd.random.RNG(seed=5)).torch())
    assert torch.equal(*drawn)
    assert len(drawn[0].unique()) == 50
    ndd.random.set_seed(1)
    first = noisy(columns())
    assert not torch.equal(first.torch(), noisy(columns()).torch())
    ndd.random.set_seed(1)
    assert torch.equal(first.torch(), noisy(columns()).torch())


@pytest.mark.parametrize("mode", list(ndd.EvalMode))
def test_results_are_equal_in_each_mode(mode: ndd.EvalMode) -> None:
    with mode:
        output = ndd.python_function(plus_one, columns() + 1, shape="same") + 1
    assert output.torch().flatten().tolist() == [3, 4, 5, 6]


def test_nested_functions_do_not_wait_for_their_own_threads() -> None:
    def outer(x: np.ndarray) -> np.ndarray:
        return ndd.python_function(plus_one, ndd.tensor(x), shape="same").torch().numpy()

    assert ndd.python_function(outer, columns(50), shape="same").torch().flatten().tolist() == list(range(1, 51))


def test_numba_functions_run() -> None:
    numba = pytest.importorskip("numba")

    @numba.njit(nogil=True)
    def mirror_reference(image):  # numba reads no annotations
        return image[:, ::-1].copy()

    images = make_ragged()
    output = ndd.python_function(mirror_reference, images, shape="same")
    assert all(np.array_equal(np.asarray(a), np.asarray(b)[:, ::-1]) for a, b in zip(output, images, strict=True))


def test_compiled_graph() -> None:
    twice = ndd.python_operator(shape="same")(lambda x, by: x * by)

    @torch.compile(fullgraph=True)
    def step(x: ndd.Batch, by: ndd.Batch) -> ndd.Batch:
        return twice(x + 1, by=by) + 1

    by = ndd.batch(np.array([1, 2, 3, 4], np.float32))
    assert step(columns(), by).torch().flatten().tolist() == [2, 5, 10, 17]


def test_loop_ahead() -> None:
    @ndd.python_operator(shape="same", rng=True)
    def noisy(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return x + rng.normal(size=x.shape).astype(np.float32)

    def epoch(capture: bool) -> list[list[float]]:
        ndd.random.set_seed(3)
        reader = ndd.readers.Dataset([np.full(1, i, np.float32) for i in range(12)])
        return [noisy(x * 2).torch().flatten().tolist() for x, *_ in reader.next_epoch(batch_size=3, capture=capture)]

    assert epoch(True) == epoch(False)


def test_fork_waits_for_functions() -> None:
    go = threading.Event()

    def waits(x: np.ndarray) -> np.ndarray:
        go.wait(60)
        return x

    output = ndd.python_function(waits, columns(), shape="same") + 1
    threading.Timer(0.2, go.set).start()
    assert run_in_child(lambda: output.torch().flatten().tolist() == [1, 2, 3, 4]) == 0
    assert output.torch().flatten().tolist() == [1, 2, 3, 4]


def test_threads_may_change_the_number_of_threads_while_others_call_functions() -> None:
    over = threading.Event()

    def change() -> None:
        for k in range(100_000):
            if over.is_set():
                break
            ndd.set_num_threads(1 + k % 4)

    other = threading.Thread(target=change)
    other.start()
    try:
        for _ in range(300):
            assert ndd.python_function(lambda x: x + 1, columns(), shape="same").torch().flatten().tolist() == [1, 2, 3, 4]
    finally:
        over.set()
        other.join()
        ndd.set_num_threads(None)
    assert not host_functions._tasks


def test_an_interrupted_call_does_not_delay_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(host_functions, "_pool", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ndd.python_function(lambda x: x, columns(), shape="same")
    assert not host_functions._tasks


def test_forks_wait_once_for_a_function_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    go = threading.Event()
    wait_for = threading.Condition.wait_for

    def note(condition: Any, predicate: Any, timeout: float | None = None) -> Any:
        waits.append(0 if predicate() else 1)
        return wait_for(condition, predicate, 0.01)

    monkeypatch.setattr(host_functions._changed, "wait_for", partial(note, host_functions._changed), raising=False)
    output = ndd.python_function(lambda x: go.wait(60) and x, columns(1), shape="same")
    for _ in range(2):
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
    go.set()
    output.evaluate()
    assert waits == [1, 0]


def test_function_that_forks_fails_in_the_child_only() -> None:
    found = []

    def forks(x: np.ndarray) -> np.ndarray:
        child = os.fork()
        if not child:
            try:
                output.evaluate()
            except RuntimeError as error:
                os._exit(0 if "forked while a Python function was running" in str(error) else 1)
            os._exit(2)
        found.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return x

    go = threading.Event()
    ndd.python_function(lambda x: go.wait(60) and x, columns(1), shape="same")
    output = ndd.python_function(forks, columns(1), shape="same")
    go.set()
    assert output.torch().flatten().tolist() == [0]
    assert found == [0]


def test_python_operator_without_parentheses() -> None:
    @ndd.python_operator
    def double(x: Any) -> Any:
        return x * 2

    assert double(ndd.batch([[1, 2], [3, 4]])).torch().tolist() == [[2, 4], [6, 8]]
