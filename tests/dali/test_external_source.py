# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from _dali import assert_equal, assert_same, dali
from _raises import Raises, raising

import torch_ndd as ndd


def three() -> Iterator[np.ndarray]:
    for i in range(3):
        yield np.full((2, i + 1), i, np.int16)


def generator(_: Any) -> Any:
    return three()


def plain_callable(_: Any) -> Any:
    return lambda: 4


@pytest.mark.parametrize("cycle", [None, False, "no", True, "quiet", "raise", "again", 3])
@pytest.mark.parametrize(
    "source",
    [lambda m: [1, 2], lambda m: three, generator, lambda m: iter([1, 2]), lambda m: (), plain_callable, lambda m: [m.batch([1, 2])]],
)
def test_the_end(source: Callable[[Any], Any], cycle: Any) -> None:
    def program(module: Any) -> list[Any]:
        external = module.ExternalSource(source(module), cycle=cycle)
        values: list[Any] = []
        for _ in range(8):
            try:
                item = external()
                values.append([np.asarray(sample).tolist() for sample in (item.tensors if hasattr(item, "batch_size") else [item])])
            except StopIteration:
                values.append("end")
        return values

    raises = None
    if cycle in ("again", 3) or (source is plain_callable and cycle is not None):
        raises = ValueError
    elif source is generator and cycle in (True, "quiet", "raise"):
        raises = TypeError
    assert_equal(program, raises)


RAGGED = [[1], [2, 3]]


@pytest.mark.parametrize("item", [5, 2.5, [1, 2], (), np.zeros((2, 3)), RAGGED, None, {1: 2}])
@pytest.mark.parametrize("options", [{}, {"layout": "HW"}, {"dtype": "float32"}, {"layout": ["HW"]}, {"layout": ["H", "W"]}])
@pytest.mark.parametrize("batch_size", [None, 0, 3])
def test_items_of_every_kind(item: Any, options: dict[str, Any], batch_size: int | None) -> None:
    def program(module: Any) -> Any:
        arguments = {key: getattr(module, value) if key == "dtype" else value for key, value in options.items()}
        return module.ExternalSource([item], **arguments)(batch_size=batch_size)

    layout = options.get("layout")
    if isinstance(item, dict):
        raises = ValueError if layout == ["H", "W"] else TypeError
    elif item is None or item is RAGGED or layout == ["H", "W"]:
        raises = ValueError
    else:
        raises = ValueError if layout is not None and np.ndim(item) != 2 else None
    assert_same(program, raises=raises)


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize(
    "item",
    [
        (1, 2),
        [1.5, [2, 3]],
        raising(ValueError, (1, 2, 3)),
        raising(ValueError, np.zeros((2, 3))),
        raising(ValueError, 4),
        raising(ValueError, {0: 1, 1: 2}),
    ],
)
@pytest.mark.parametrize("batch_size", [None, 3])
def test_two_outputs(item: Any, batch_size: int | None, k: int, raises: Raises | None) -> None:
    assert_same(lambda m: m.ExternalSource([item], 2, layout=[None, ""])(batch_size=batch_size)[k], raises=raises)


@pytest.mark.parametrize("batch_size", [None, 2, raising(ValueError, 3)])
def test_batch_size_must_match_a_batch(batch_size: int | None, raises: Raises | None) -> None:
    assert_same(lambda m: m.ExternalSource([m.batch(np.zeros((2, 3, 4)))], layout="HW", dtype=m.uint8)(batch_size=batch_size), raises=raises)


@pytest.mark.filterwarnings("ignore:capture=True was specified")  # DALI captures nothing here
@pytest.mark.parametrize("cycle", [None, "raise"])
def test_captured_loops_yield_the_same_batches(cycle: Any) -> None:
    def run(module: Any) -> list[Any]:
        source = module.ExternalSource([module.batch([1, 2]), module.batch([3, 4])], cycle=cycle)
        return [[[np.asarray(x).tolist() for x in value.tensors] for value in source.captured(2)] for _ in range(3)]

    assert run(ndd) == run(dali)


def in_a_loop(m: Any, source: Any, batch_size: int | None = None) -> Any:
    """Return the last item of another source in a captured loop over batches of two."""
    result = None
    for value in m.ExternalSource([m.batch([np.int32([k]), np.int32([k + 1])]) for k in range(3)]).captured(batch_size=2):
        result = source(batch_size=batch_size)
        m.cast(result, dtype=m.float32).evaluate()
        m.cast(value, dtype=m.float32).evaluate()
    return result


@pytest.mark.parametrize("batch_size", [None, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_further_sources_in_a_captured_loop(count: int, batch_size: int | None) -> None:
    """Its batches have the loop's size; it must not end before the loop."""
    items = [np.int32([k, 5]) for k in range(count)]
    wrong_size = RuntimeError if batch_size == 3 else None
    too_short = RuntimeError if count < 3 else wrong_size
    assert_same(lambda m: in_a_loop(m, m.ExternalSource(items), batch_size), raises=too_short)
    assert_same(lambda m: in_a_loop(m, m.ExternalSource(items, cycle="quiet"), batch_size), raises=wrong_size)
    for size, raises in ((2, too_short), (3, wrong_size or ValueError)):
        assert_same(
            lambda m, size=size: in_a_loop(m, m.ExternalSource([m.batch([np.int32([k])] * size) for k in range(count)]), batch_size), raises=raises
        )


def test_batch_size_of_a_batch() -> None:
    assert_same(lambda m: m.flip(m.batch([np.ones((2, 3, 1), np.uint8)] * 4, layout="HWC"), batch_size=4))
    with pytest.raises(ValueError, match="flip: Inconsistent batch size: batch_size=8, but another argument is a Batch of 4 samples"):
        ndd.flip(ndd.batch([np.ones((2, 3, 1), np.uint8)] * 4, layout="HWC"), batch_size=8)
