# SPDX-License-Identifier: Apache-2.0
import functools
import operator
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd._core.operators.capture import LoopRecorder


def calls(source: Any, times: int = 6, **options: Any) -> list[Any]:
    """Return the results of this many calls, "end" for StopIteration."""
    result, values = ndd.ExternalSource(source, **options), []
    for _ in range(times):
        try:
            values.append(result().torch().tolist())
        except StopIteration:
            values.append("end")
    return values


def two() -> Iterator[int]:
    yield 1
    yield 2


class Both:
    def __iter__(self) -> Iterator[int]:
        return iter([1, 2])

    def __call__(self) -> int:
        return 5


class Indexed:
    def __getitem__(self, i: int) -> int:
        return [1, 2][i]


@pytest.mark.parametrize(
    ("source", "cycle", "expected"),
    [
        ([1, 2], None, [1, 2, "end", "end", "end", "end"]),
        ([1, 2], "no", [1, 2, "end", "end", "end", "end"]),
        ([1, 2], False, [1, 2, "end", "end", "end", "end"]),
        ([1, 2], "quiet", [1, 2, 1, 2, 1, 2]),
        ([1, 2], True, [1, 2, 1, 2, 1, 2]),
        ([1, 2], "raise", [1, 2, "end", 1, 2, "end"]),
        (two, None, [1, 2, "end", "end", "end", "end"]),
        (two, "quiet", [1, 2, 1, 2, 1, 2]),
        (two, "raise", [1, 2, "end", 1, 2, "end"]),
        (two(), None, [1, 2, "end", "end", "end", "end"]),
        (iter([1, 2]), "quiet", [1, 2, "end", "end", "end", "end"]),
        (iter([1, 2]), "raise", [1, 2, "end", "end", "end", "end"]),
        ([], "quiet", ["end"] * 6),
        ([], "raise", ["end"] * 6),
        (Both(), "raise", [1, 2, "end", 1, 2, "end"]),
        (Indexed(), "raise", [1, 2, "end", 1, 2, "end"]),
        (np.arange(2), None, [0, 1, "end", "end", "end", "end"]),
    ],
)
def test_the_end_of_a_source(source: Any, cycle: Any, expected: list[Any]) -> None:
    assert calls(source, cycle=cycle) == expected


def test_callables_return_batches() -> None:
    values = iter(range(10))
    assert calls(lambda: next(values), 3) == [0, 1, 2]
    assert calls(functools.partial(operator.pow, 2, 3), 2) == [8, 8]
    assert calls(int, 2) == [0, 0]
    assert ndd.ExternalSource(lambda: ())().shape == (0,)


def test_errors_of_the_source_go_through() -> None:
    def fails() -> None:
        raise KeyError("mine")

    source = ndd.ExternalSource(fails)
    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            source()

    def stops() -> None:
        raise StopIteration

    assert calls(stops, 3) == ["end"] * 3


def test_batches_are_taken_as_they_are() -> None:
    source = ndd.ExternalSource([ndd.batch([[1, 2], [3]]), ndd.batch([[4]])], layout="W", dtype=ndd.float32)
    result = source()
    assert (result.shape, result.layout, result.dtype) == ([(2,), (1,)], "W", torch.float32)
    with pytest.raises(ValueError, match="Expected batch size 2, got 1"):
        source(batch_size=2)


def test_tensors_are_repeated() -> None:
    result = ndd.ExternalSource([[1, 2]])(batch_size=3)
    assert isinstance(result, ndd.Batch)
    assert result.torch().tolist() == [[1, 2]] * 3


def test_several_outputs() -> None:
    item = (np.zeros((2, 3), np.uint8), [1.5])
    value, other = ndd.ExternalSource([item], 2, layout=["HW", None], dtype=[None, torch.float64])()
    assert (value.layout, value.dtype, other.layout, other.dtype) == ("HW", torch.uint8, None, torch.float64)
    assert [x.layout for x in ndd.ExternalSource([(np.zeros((2, 3)), np.zeros((1, 1)))], 2, layout="HW")()] == ["HW", "HW"]
    assert [x.batch_size for x in ndd.ExternalSource([(1, ndd.batch([1, 2]))], 2)(batch_size=2)] == [2, 2]


@pytest.mark.parametrize("item", [np.zeros((2, 3)), 3, {0: 1, 1: 2}, (1, 2, 3), "ab"])
def test_items_without_enough_parts(item: Any) -> None:
    with pytest.raises(ValueError, match="ExternalSource: Expected 2 outputs"):
        ndd.ExternalSource([item], 2)()


def with_one(x: int) -> int:
    return x


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ndd.ExternalSource(None), AssertionError, "source"),
        (lambda: ndd.ExternalSource(3), TypeError, "not int"),
        (lambda: ndd.ExternalSource(with_one), ValueError, "no parameters"),
        (lambda: ndd.ExternalSource(lambda x=1: x), ValueError, "no parameters"),
        (lambda: ndd.ExternalSource(lambda *x: x), TypeError, "no parameters"),
        (lambda: ndd.ExternalSource(lambda: 1, cycle="quiet"), ValueError, "cycle"),
        (lambda: ndd.ExternalSource(lambda: 1, cycle=False), ValueError, "cycle"),
        (lambda: ndd.ExternalSource(two(), cycle="raise"), TypeError, "generator"),
        (lambda: ndd.ExternalSource([1], cycle="again"), ValueError, "cycle"),
        (lambda: ndd.ExternalSource([1], cycle=3), ValueError, "cycle"),
        (lambda: ndd.ExternalSource([1], 0), ValueError, "num_outputs"),
        (lambda: ndd.ExternalSource([1], 1.5), TypeError, "num_outputs"),
        (lambda: ndd.ExternalSource([1], layout=["H", "W"]), ValueError, "Expected a sequence of size 1, got 2"),
        (lambda: ndd.ExternalSource([(1, 2)], 2, dtype=[ndd.uint8]), ValueError, "Expected a sequence of size 2, got 1"),
        (lambda: ndd.ExternalSource([(1, ndd.batch([1]))], 2)(), TypeError, "uniformly"),
        (lambda: ndd.ExternalSource([[1, 2]], layout="HW")(), ValueError, "dimensions"),
        (lambda: ndd.ExternalSource([[[1], [1, 2]]])(), ValueError, "inhomogeneous"),
        (lambda: ndd.ExternalSource([1], device="nowhere")(), ValueError, "Invalid device"),
        (lambda: ndd.ExternalSource([1])(batch_size=-1), ValueError, "batch_size"),
        (lambda: ndd.ExternalSource([1], per_sample=True)(batch_size=0), ValueError, "batch_size"),
    ],
)
def test_bad_arguments_are_rejected(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_the_device_is_looked_up_at_the_call() -> None:
    assert isinstance(ndd.ExternalSource([1], device="nowhere"), ndd.ExternalSource)


def batches(source: ndd.ExternalSource, size: int, times: int) -> list[Any]:
    values = []
    for _ in range(times):
        try:
            values.append(source(batch_size=size).torch().tolist())
        except StopIteration:
            values.append("end")
    return values


def test_samples_one_by_one() -> None:
    def samples() -> Iterator[int]:
        yield from range(5)

    of = functools.partial(ndd.ExternalSource, per_sample=True)
    assert batches(of(samples), 2, 5) == [[0, 1], [2, 3], [4], "end", "end"]
    assert batches(of(samples, cycle="quiet"), 2, 5) == [[0, 1], [2, 3], [4], [0, 1], [2, 3]]
    assert batches(of(samples, cycle="raise"), 2, 5) == [[0, 1], [2, 3], [4], "end", [0, 1]]
    assert batches(of(lambda number: number * number), 3, 2) == [[0, 1, 4], [9, 16, 25]]
    images, labels = of([(np.full((i + 1, 2), i, np.uint8), i) for i in range(3)], 2, layout=["HW", None])(batch_size=3)
    assert (images.shape, images.layout, labels.torch().tolist()) == ([(1, 2), (2, 2), (3, 2)], "HW", [0, 1, 2])
    assert of(range(3))().item() == 0


@pytest.mark.parametrize(("cycle", "expected"), [("no", [[1, 2], [], []]), ("raise", [[1, 2], [1, 2], [1, 2]])])
def test_captured_loops(cycle: str, expected: list[Any]) -> None:
    source = ndd.ExternalSource([1, 2], cycle=cycle)
    assert [[value.torch().tolist()[0] for value in source.captured(1)] for _ in range(3)] == expected


def test_captured_loops_exclude_other_uses() -> None:
    source = ndd.ExternalSource([1, 2, 3], cycle="quiet")
    loop = source.captured(2, ndd.EvalContext())
    assert next(loop).torch().tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="captured"):
        source()
    with pytest.raises(RuntimeError, match="captured"):
        next(source.captured(2))
    loop.close()
    assert source().item() == 2
    assert [n for n in dir(source) if not n.startswith("_")] == ["captured", "next_item"]  # pipelines read items one by one


def numbers_of(yielded: list[Any], buffer: bool = False) -> Callable[[], Iterator[Any]]:
    """A generator function that records how far it was consumed; with one ``buffer`` for all items."""

    def numbers() -> Iterator[Any]:
        array = np.zeros((2, 3), np.int32)
        for k in range(6):
            yielded.append(k)
            array = array if buffer else array.copy()
            array[:] = k
            yield ndd.as_batch(array)

    return numbers


@pytest.mark.parametrize("buffer", [False, True])
def test_captured_loops_run_ahead(buffer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    values: list[int] = []
    source = ndd.ExternalSource(numbers_of(values, buffer), cycle="raise")
    results: list[int] = []
    call_ahead = LoopRecorder.call_ahead
    monkeypatch.setattr(LoopRecorder, "call_ahead", lambda self, outputs: (results.append(int(outputs.torch()[0, 0])), call_ahead(self, outputs))[-1])

    def run(loop: Iterator[Any], steps: int = 100) -> list[Any]:
        out = []
        ndd.random.set_seed(3)
        for batch in loop:
            doubled = ndd.reductions.sum(batch, axes=[0]) + ndd.random.uniform(batch_size=2)
            out.append((batch.torch().tolist(), doubled.torch().tolist(), len(values)))
            if len(out) == steps:
                break
        return out

    def plain() -> Iterator[Any]:
        plain_source = ndd.ExternalSource(numbers_of([], buffer))
        for _ in range(6):
            yield plain_source(batch_size=2)

    expected = [output[:2] for output in run(plain())]
    looped = run(source.captured(2))
    assert [value[:2] for value in looped] == expected
    assert [value[2] for value in looped] == [1, 3, 4, 5, 6, 6]  # the first step is recorded, from then on the source is one item ahead
    assert results == [2, 3, 4, 5]
    assert [output[0] for output in run(source.captured(2), 3)] == [value[0] for value in expected[:3]]
    assert source().torch().tolist() == [[3] * 3] * 2  # the item taken early was given back
    assert [output[0] for output in run(source.captured(2))] == [value[0] for value in expected[4:]]


def test_captured_loops_raise_in_their_turn() -> None:
    def items() -> Iterator[Any]:
        yield from ([k, k] for k in range(3))
        raise KeyError("no more")

    loop = ndd.ExternalSource(items).captured(1)
    assert [(batch + 1).torch().tolist() for batch in islice(loop, 3)] == [[[1, 1]], [[2, 2]], [[3, 3]]]
    with pytest.raises(KeyError, match="no more"):
        next(loop)
    samples = ndd.ExternalSource(range(5), per_sample=True)
    assert [(value * 2).torch().tolist() for value in samples.captured(2)] == [[0, 2], [4, 6], [8]]
    samples = ndd.ExternalSource(range(5), per_sample=True, cycle="raise")
    loop = samples.captured(2)
    assert [(batch * 2).torch().tolist() for batch in islice(loop, 2)] == [[0, 2], [4, 6]]
    loop.close()
    assert batches(samples, 4, 3) == [[4], "end", [0, 1, 2, 3]]


def test_used_by_an_operator() -> None:
    source = ndd.ExternalSource(lambda: np.full((4, 4, 3), 7, np.uint8), layout="HWC")
    assert ndd.flip(source(batch_size=2)).layout == "HWC"


def run_in_loop(source: ndd.ExternalSource, yielded: int | None = None, steps: int = 3) -> list[Any]:
    """Return what another source returns in a loop over batches of two."""
    loop = ndd.ExternalSource([ndd.batch([[k], [k]]) for k in range(steps)])
    results = []
    for item in loop.captured(2):
        value = source(batch_size=yielded)
        results.append(value)
        ndd.cast(item, dtype=ndd.float32)
    return results


def test_in_a_captured_loop_a_further_source_gives_batches() -> None:
    for source in (None, 2):
        output = run_in_loop(ndd.ExternalSource([[1, 2], [3, 4], [5, 6]]), source)
        assert [result.torch().tolist() for result in output] == [[[1, 2], [1, 2]], [[3, 4], [3, 4]], [[5, 6], [5, 6]]]
    assert [value.batch_size for value in run_in_loop(ndd.ExternalSource([ndd.batch([[1], [2, 3]])] * 3))] == [2, 2, 2]
    assert [[x.batch_size for x in value] for value in run_in_loop(ndd.ExternalSource([(1, [2, 3])] * 3, 2))] == [[2, 2]] * 3
    with pytest.raises(ValueError, match="Expected batch size 2, got 3"):
        run_in_loop(ndd.ExternalSource([ndd.batch([1, 2, 3])] * 3))
    with pytest.raises(RuntimeError, match="batch_size=3 in a captured loop whose batch has 2 samples"):
        run_in_loop(ndd.ExternalSource([1] * 3), 3)
    behind = ndd.ExternalSource([1, 2, 3, 4])
    run_in_loop(behind)
    assert behind().torch().item() == 4


def test_the_last_batch_of_a_captured_loop() -> None:
    source = ndd.ExternalSource([10, 20])
    loop = ndd.ExternalSource(range(5), per_sample=True)
    assert [(value + source()).torch().tolist() for value in loop.captured(3)] == [[10, 11, 12], [23, 24]]


@pytest.mark.parametrize("cycle", ["no", "raise"])
@pytest.mark.parametrize("items", [0, 1, 2])
def test_a_source_that_ends_before_the_captured_loop(items: int, cycle: str) -> None:
    def steps() -> Iterator[Any]:
        yield from run_in_loop(ndd.ExternalSource([1] * items, cycle=cycle))

    with pytest.raises(RuntimeError, match="ended before the captured loop"):
        list(steps())
    with pytest.raises(StopIteration):
        ndd.ExternalSource([])()
    assert len(run_in_loop(ndd.ExternalSource([1, 2], cycle="quiet"))) == 3
