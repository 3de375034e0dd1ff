# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from _dali import assert_same, dali

import torch_ndd as ndd


def three() -> Iterator[np.ndarray]:
    for i in range(3):
        yield np.full((2, i + 1), i, np.int16)


@pytest.mark.parametrize("cycle", [None, False, "no", True, "quiet", "raise", "again", 3])
@pytest.mark.parametrize(
    "source",
    [lambda m: [1, 2], lambda m: three, lambda m: three(), lambda m: iter([1, 2]), lambda m: (), lambda m: lambda: 4, lambda m: [m.batch([1, 2])]],
)
def test_the_end(source: Callable[[Any], Any], cycle: Any) -> None:
    def run(module: Any) -> list[Any]:
        try:
            made = module.ExternalSource(source(module), cycle=cycle)
        except Exception as error:
            return [type(error)]
        values: list[Any] = []
        for _ in range(8):
            try:
                one = made()
                values.append([np.asarray(x).tolist() for x in (one.tensors if hasattr(one, "batch_size") else [one])])
            except Exception as error:
                values.append(type(error))
        return values

    assert run(ndd) == run(dali)


@pytest.mark.parametrize("item", [5, 2.5, [1, 2], (), np.zeros((2, 3)), [[1], [2, 3]], None, {1: 2}])
@pytest.mark.parametrize("options", [{}, {"layout": "HW"}, {"dtype": "float32"}, {"layout": ["HW"]}, {"layout": ["H", "W"]}])
@pytest.mark.parametrize("batch_size", [None, 0, 3])
def test_items(item: Any, options: dict[str, Any], batch_size: int | None) -> None:
    def program(module: Any) -> Any:
        given = {key: getattr(module, value) if key == "dtype" else value for key, value in options.items()}
        return module.ExternalSource([item], **given)(batch_size=batch_size)

    assert_same(program)


@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("item", [(1, 2), [1.5, [2, 3]], (1, 2, 3), np.zeros((2, 3)), 4, {0: 1, 1: 2}])
@pytest.mark.parametrize("batch_size", [None, 3])
def test_two_outputs(item: Any, batch_size: int | None, k: int) -> None:
    assert_same(lambda m: m.ExternalSource([item], 2, layout=[None, ""])(batch_size=batch_size)[k])


@pytest.mark.parametrize("batch_size", [None, 2, 3])
def test_batches(batch_size: int | None) -> None:
    assert_same(lambda m: m.ExternalSource([m.batch(np.zeros((2, 3, 4)))], layout="HW", dtype=m.uint8)(batch_size=batch_size))


@pytest.mark.filterwarnings("ignore:capture=True was specified")  # DALI captures nothing here
@pytest.mark.parametrize("cycle", [None, "raise"])
def test_captured(cycle: Any) -> None:
    def run(module: Any) -> list[Any]:
        source = module.ExternalSource([module.batch([1, 2]), module.batch([3, 4])], cycle=cycle)
        return [[[np.asarray(x).tolist() for x in one.tensors] for one in source.captured(2)] for _ in range(3)]

    assert run(ndd) == run(dali)


def in_a_loop(m: Any, source: Any, batch_size: int | None = None) -> Any:
    """Return the last item of another source in a captured loop over batches of two."""
    made = None
    for one in m.ExternalSource([m.batch([np.int32([k]), np.int32([k + 1])]) for k in range(3)]).captured(batch_size=2):
        made = source(batch_size=batch_size)
        m.cast(made, dtype=m.float32).evaluate()
        m.cast(one, dtype=m.float32).evaluate()
    return made


@pytest.mark.parametrize("batch_size", [None, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_further_sources_in_a_captured_loop(count: int, batch_size: int | None) -> None:
    """Its batches have the loop's size; it must not end before the loop."""
    items = [np.int32([k, 5]) for k in range(count)]
    assert_same(lambda m: in_a_loop(m, m.ExternalSource(items), batch_size))
    assert_same(lambda m: in_a_loop(m, m.ExternalSource(items, cycle="quiet"), batch_size))
    for size in (2, 3):
        assert_same(lambda m, size=size: in_a_loop(m, m.ExternalSource([m.batch([np.int32([k])] * size) for k in range(count)]), batch_size))


def test_batch_size_of_a_batch() -> None:
    assert_same(lambda m: m.flip(m.batch([np.ones((2, 3, 1), np.uint8)] * 4, layout="HWC"), batch_size=4))
    with pytest.raises(ValueError, match="flip: batch_size=8, but a Batch of 4 samples"):
        ndd.flip(ndd.batch([np.ones((2, 3, 1), np.uint8)] * 4, layout="HWC"), batch_size=8)
