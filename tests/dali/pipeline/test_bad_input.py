# SPDX-License-Identifier: Apache-2.0
"""Bad data: the type of the error, and what the runs after it give. Bad definitions are in the tests of what they define."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _pipelines import Program, both, define, show, sub
from _raises import Raises, raising

import torch_ndd.dali as ours

ONES = np.ones((2, 1), np.float32)
INTS = np.ones((2, 1), np.int32)


def run_on(pipe: Any, runs: int, error: type[Exception] = StopIteration) -> list[Any]:
    """Return the first number of each run; the name of its error if it is ``error`` or the end of the epoch."""
    results: list[Any] = []
    for _ in range(runs):
        try:
            results.append(float(pipe.run()[0].as_array().ravel()[0]))
        except (error, StopIteration) as raised:
            results.append(type(raised).__name__)
    return results


def program(graph: Callable[[Any], Any], error: type[Exception], runs: int = 4, **arguments: Any) -> Program:
    return lambda dali: run_on(define(dali, lambda: graph(dali.fn), 2, **arguments), runs, error)


def batches(fn: Any, *elements: Any, **arguments: Any) -> Any:
    return fn.external_source(source=[np.asarray(value) for value in elements], **arguments)


def failing(_: Any) -> Any:
    raise LookupError("of the function")


GRAPHS: dict[str, Callable[[Any], Any]] = {
    "an input that is not fed": lambda fn: fn.external_source(name="x"),
    "a slice outside of the samples of one iteration": lambda fn: fn.slice(
        batches(fn, np.ones((2, 5)), np.ones((2, 2)), np.ones((2, 5)), np.ones((2, 5))), 0, 4, axes=[0]
    ),
    "division by zero": lambda fn: batches(fn, INTS, INTS) // batches(fn, INTS * 0, INTS),
    "a batch that is too large": lambda fn: batches(fn, np.ones((3, 1)), ONES),
    "a number": lambda fn: fn.external_source(lambda: 5),
    "None": lambda fn: fn.external_source(lambda: None),
    "text": lambda fn: fn.external_source(lambda: "abc"),
    "lists of lists": lambda fn: fn.external_source(lambda: [[1, 2], [3]]),
    "another type than before": lambda fn: batches(fn, INTS, ONES),
    "other dimensions than before": lambda fn: batches(fn, ONES, ONES[..., None]),
    "other dimensions than declared": lambda fn: batches(fn, ONES, ndim=3),
    "a layout of another length": lambda fn: batches(fn, ONES, layout="HWC"),
    "too few outputs of a source": lambda fn: tuple(fn.external_source(lambda: [ONES], num_outputs=2)),
    "an index outside": lambda fn: batches(fn, ONES)[5],
    "too many indices": lambda fn: batches(fn, ONES)[0, 0, 0],
    "too many slices that take everything": lambda fn: batches(fn, ONES)[:, :],
    "a slice with a step of zero": lambda fn: batches(fn, ONES)[::0],
    "files that are not images": lambda fn: fn.decoders.image(batches(fn, *[np.zeros((2, 9), np.uint8)] * 2)),
    "a Python function that raises": lambda fn: fn.python_function(batches(fn, ONES, ONES), function=failing),
    "a Python function of a number": lambda fn: fn.python_function(batches(fn, ONES, ONES), function=lambda _: 1),
    "too few outputs of a Python function": lambda fn: tuple(fn.python_function(batches(fn, ONES), function=lambda a: (a,), num_outputs=2)),
}


def end_program(_: Any) -> Any:
    sys.exit(3)


GRAPHS["a Python function that ends the program"] = lambda fn: fn.python_function(batches(fn, ONES, ONES), function=end_program)


ERRORS = {"an input that is not fed": IndexError, "division by zero": ValueError, "too few outputs of a source": IndexError}


@pytest.mark.parametrize("name", GRAPHS)
def test_invalid_data_raises_like_dali(name: str) -> None:
    error = ERRORS.get(name, RuntimeError)
    assert error.__name__ in both(program(GRAPHS[name], error))


@pytest.mark.parametrize(
    "sizes",
    [*(raising(TypeError, sizes) for sizes in ({"batch_size": 2.5}, {"batch_size": "2"}, {"num_threads": 1.5})), {"batch_size": np.int64(2)}],
    ids=show,
)
def test_sizes_are_integers(sizes: dict[str, Any], raises: Raises | None) -> None:
    both(lambda dali: run_on(define(dali, lambda: batches(dali.fn, ONES), **{"batch_size": 2, **sizes}), 1), raises=raises)


@pytest.mark.parametrize(
    "device_id", [raising(TypeError, "0"), raising(TypeError, 1.5), raising(RuntimeError, -1), raising(RuntimeError, -123)], ids=show
)
def test_device_id_is_the_number_of_a_gpu(device_id: Any, raises: Raises | None) -> None:
    both(lambda dali: define(dali, lambda: batches(dali.fn, ONES), device_id=device_id).build(), raises=raises)


@pytest.mark.parametrize("arguments", [{"shard_id": 3, "num_shards": 2}, {"shard_id": -1, "num_shards": 2}, {"num_shards": 0}], ids=show)
def test_invalid_shards_raise_when_the_reader_is_built(arguments: dict[str, Any]) -> None:
    error = both(lambda dali: define(dali, lambda: dali.fn.readers.file(files=[__file__], **arguments)[1]).build(), raises=RuntimeError)
    assert "fn.readers.file (operator" in str(error)
    assert "test_bad_input.py" in str(error)


@pytest.mark.parametrize(
    "graph", [lambda fn: batches(fn, ONES, ONES), lambda fn: fn.slice(batches(fn, np.ones((2, 2)), np.ones((2, 5))), 0, 4, axes=[0])], ids=show
)
def test_reset_after_the_end(graph: Callable[[Any], Any]) -> None:
    def run_again(dali: Any) -> Any:
        pipe = define(dali, lambda: dali.fn.external_source(lambda i: ONES * i if i < 2 else failing_end()), 2)
        first = run_on(pipe, 4)
        pipe.reset()
        return [*first, *run_on(pipe, 4)]

    def failing_end() -> Any:
        raise StopIteration

    both(run_again)
    both(program(graph, RuntimeError))


def test_an_input_can_be_fed_after_the_error() -> None:
    def feed_and_run(dali: Any) -> Any:
        pipe = define(dali, lambda: dali.fn.external_source(name="x"), 2, prefetch_queue_depth=1)
        results = run_on(pipe, 2, IndexError)
        pipe.feed_input("x", ONES)
        return [*results, *run_on(pipe, 2, IndexError)]

    both(feed_and_run)


@pytest.mark.parametrize("condition", [np.ones((2, 2), np.bool_), np.ones((2, 1), np.float32)], ids=["bool", "float"])
def test_a_condition_that_is_no_scalar(condition: np.ndarray) -> None:
    def conditional(dali: Any) -> Any:
        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None, enable_conditionals=True)
        def graph() -> Any:
            node = dali.fn.external_source(source=[condition] * 3)
            if node:
                result = node * 1
            else:
                result = node * 2
            return result

        return run_on(graph(), 2, RuntimeError)

    both(conditional)


def test_sources_of_different_batch_sizes() -> None:
    """The next iteration has batches of one size again."""
    pipe = define(ours, lambda: (batches(ours.fn, ONES, ONES * 2), batches(ours.fn, ONES[:1], ONES)), 2)
    assert run_on(pipe, 3, RuntimeError) == ["RuntimeError", 2.0, "StopIteration"]


# Iterators.


def take_batches(pipe: Any, steps: int, **arguments: Any) -> list[Any]:
    iterator = sub(ours, "plugin.pytorch").DALIGenericIterator([pipe], ["a"], **arguments)
    found: list[Any] = []
    for _ in range(steps):
        try:
            found.append(next(iterator)[0]["a"].flatten().tolist())
        except (Exception, StopIteration) as error:
            found.append(type(error).__name__)
    return found


def test_an_iterator_goes_on_after_the_error_of_a_source() -> None:
    calls: list[int] = []

    def source() -> np.ndarray:
        calls.append(1)
        if len(calls) == 4:
            raise LookupError("mine")
        if len(calls) > 6:
            raise StopIteration
        return np.full((2, 1), len(calls))

    pipe = define(ours, lambda: ours.fn.external_source(source), 2)
    assert take_batches(pipe, 8) == [[1, 1], [2, 2], [3, 3], "LookupError", [5, 5], [6, 6], "StopIteration", "StopIteration"]


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_an_iterator_goes_on_after_the_error_of_an_operator(depth: int, tmp_path: Path) -> None:
    """However many fail, and a batch that fails counts: the next epoch begins at its first sample."""
    files = [tmp_path / str(k) for k in range(10)]
    for k, file in enumerate(files):
        file.write_bytes(bytes([k]))

    def function(sample: np.ndarray) -> np.ndarray:
        if sample[0] in (3, 5, 8):
            raise ValueError("bad")
        return sample

    def graph() -> Any:
        return ours.fn.python_function(ours.fn.readers.file(files=[str(item) for item in files], name="reader")[0], function=function)

    epoch = [[0, 1], "RuntimeError", "RuntimeError", [6, 7], "RuntimeError", "StopIteration"]
    assert take_batches(define(ours, graph, 2, prefetch_queue_depth=depth), 18, reader_name="reader", auto_reset=True) == epoch * 3
