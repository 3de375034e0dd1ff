# SPDX-License-Identifier: Apache-2.0
"""Conditions that are nodes: the same definitions under DALI and under torch_ndd.dali."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _conditions import BATCH, run_definition, same_as_dali, same_as_python
from _pipelines import both
from _pipelines import ours as ours_module


def plain_if(dali: Any, i: Any, even: Any, x: Any) -> Any:
    out = x
    if even:
        out = x + 1000
    if i:
        other = x * 2
    else:
        other = x - 7
    return out, other


def chains(dali: Any, i: Any, even: Any, x: Any) -> Any:
    if i < 2:
        out = x
    elif i == 3:
        out = x + 100
    elif even:
        out = x + 200
    else:
        out = x + 300
    if i == 100:
        kept = x
    elif i == 200:
        kept = x + 1
    else:
        kept = x + 2
    return out, kept


def nest_branches(dali: Any, i: Any, even: Any, x: Any) -> Any:
    shift = x * -5
    if even:
        if i > 3:
            out = x + 10
        else:
            out = shift
            if i == 0:
                out = out + 1
    else:
        out = x + 3000
        if i > 4:
            pass
        else:
            out = out - shift
    return out


def python_values(dali: Any, i: Any, even: Any, x: Any) -> Any:
    names = ["a", "b"]
    out = x
    if names and "a" in names and not False:
        out = out + len(names)
    if None or []:
        out = out * 0
    picked = [name for name in names if name != "a"] or None
    first = (names[0] == "a" and "first") or "other"
    if first == "first":
        for k in range(3):
            if even:
                out = out + k
    count = 0
    while count < 3:
        count += 1
        if i == count:
            out = out + 100 * count
    return out, x + (1 if picked == ["b"] else 2)


def nests(dali: Any, i: Any, even: Any, x: Any) -> Any:
    if even:
        pair = x, i
        names = {"a": x, "b": [i, i + 1]}
    else:
        pair = x + 1, i * 3
        names = {"a": x * 2, "b": [i * 4, i * 5]}
    deep = {"k": (x, [i])}
    if i > 2:
        deep = {"k": (x - 1, [i - 1])}
    a, b = pair
    return a, b, names["a"], *names["b"], deep["k"][0], deep["k"][1][0]


def attributes(dali: Any, i: Any, even: Any, x: Any) -> Any:
    class Holder:
        def __init__(self) -> None:
            self.a = x
            self.inner = None

    value, two = Holder(), Holder()
    value.inner = two
    items = {"k": x, 3: i}
    values = [x, i]
    if even:
        value.a = x + 1
        value.inner.a = x + 2
        items["k"] = x + 3
        values[0] = x + 4
        value.new = i + 5
    else:
        value.new = i + 6
        items[3] = i + 7
        values[1] = i + 8
    return value.a, two.a, items["k"], items[3], *values, value.new


def constants(dali: Any, i: Any, even: Any, x: Any) -> Any:
    number, array, flag, real = 1, np.zeros(2, np.float32), False, 0.5
    if even:
        number, array, flag, real = 2, np.ones(2, np.float32), True, 1.5
    return number, array, flag, real, x + number


def inside_operators(dali: Any, i: Any, even: Any, x: Any) -> Any:
    fn = dali.fn
    amount = fn.cast(i, dtype=dali.types.FLOAT)
    image = fn.reshape(fn.cast(x, dtype=dali.types.UINT8), shape=[2, 3, 1], layout="HWC")
    if even:
        out = fn.brightness(image, brightness=amount)
    else:
        out = fn.flip(image, horizontal=fn.cast(even, dtype=dali.types.INT32))
    return out, fn.stack(i, i)


def whole_batch(dali: Any, i: Any, even: Any, x: Any) -> Any:
    fn = dali.fn
    numbers = fn.external_source(source=lambda info: np.array(info.idx_in_batch * 11, np.int32), batch=False)
    if even:
        result = fn.external_source(source=lambda info: np.array(info.idx_in_batch * 7, np.int32), batch=False)
        out = result + i
        constant = fn.constant(idata=[3, 4], shape=[2])
    else:
        out = numbers
        constant = dali.types.Constant(np.array([5, 6], np.int32))
    return out, constant


def empty_branches(dali: Any, i: Any, even: Any, x: Any) -> Any:
    fn = dali.fn
    out, other = x, fn.cast(x, dtype=dali.types.FLOAT)
    if i > 100:
        out = fn.reductions.sum(x + 1)
        if even:
            out = out * 2
        out = fn.reshape(out, shape=[1, 1])
        other = fn.cast(x, dtype=dali.types.FLOAT16)
    return out, other


def helpers(dali: Any, i: Any, even: Any, x: Any) -> Any:
    from functools import partial

    def add(value: Any, amount: int = 5, *, double: bool = False) -> Any:
        if even:
            value = value + amount
        return value * 2 if double else value

    class Tool:
        scale = 3

        def __init__(self, bias: int) -> None:
            self._bias = bias

        def apply(self, value: Any) -> Any:
            if i > 3:
                return value * self.scale
            return value + self._bias

        def __call__(self, value: Any) -> Any:
            return self.apply(value) if value is not None else None

        @staticmethod
        def choose(value: Any) -> Any:
            if even:
                return value
            return value + 1

        @classmethod
        def of(cls, value: Any) -> Any:
            if even:
                return value * cls.scale
            return value

    twice = partial(add, amount=7)
    tool = Tool(50)
    parts = [add(x, k) for k in range(3)]
    logical = (lambda a, b: a and not b)(even, i > 4)
    return add(x), add(x, 9, double=True), twice(x), tool.apply(x), tool(x), Tool.choose(x), Tool.of(x), parts[2], logical


def change_captured(dali: Any, i: Any, even: Any, x: Any) -> Any:
    total = x

    def step(amount: Any) -> None:
        nonlocal total
        if even:
            total = total + amount

    for k in range(3):
        step(k)
    seen = []
    for value in (x, i):
        if even:
            other = value + 1
        else:
            other = value
        seen.append(other)
    if even:
        (lambda: step(100))()
    return total, *seen


def updates(dali: Any, i: Any, even: Any, x: Any) -> Any:
    out = x
    out += 1
    holder = {"k": x}
    if even:
        out += x
        out *= 2
        holder["k"] += 5
    else:
        out -= 3
    return out, holder["k"]


def unused_later(dali: Any, i: Any, even: Any, x: Any) -> Any:
    if even:
        text, only, mixed = "a", x + 1, x
        out = only
    else:
        text, mixed = "b", "c"  # noqa: F841
        out = x
    return out


def branch_on_ragged(dali: Any, i: Any, even: Any, x: Any) -> Any:
    """Samples of several shapes, equal ones in one branch only, and none in the other."""
    if even:
        rows = dali.fn.slice(x, start=[0], shape=[1], axes=[0])
    else:
        rows = dali.fn.slice(x, start=[0], end=i % 3, axes=[1], out_of_bounds_policy="pad")
    if i > 3:
        rows = dali.fn.pad(rows, axes=[1], shape=[5])
    if i < 0:
        rows = rows[:1]
    return rows, dali.fn.shapes(rows)


def none_values(dali: Any, i: Any, even: Any, x: Any) -> Any:
    if even:
        out, extra = x, None
    else:
        out, extra = x + 1, None
    return out if extra is None else extra


# What DALI cannot do, or does for all samples: the reference is Python, sample by sample.


def lists(dali: Any, i: Any, even: Any, x: Any) -> Any:
    def collect(v: Any) -> Any:
        found = []
        for k in range(3):
            found.append(v + k)
        return found

    results = [x]
    if even:
        results += [x + 1]
        parts = collect(x)
    else:
        results = [*results, x - 1]
        parts = collect(x * 2)
        parts.reverse()
    return *results, *parts


def unusual(dali: Any, i: Any, even: Any, x: Any) -> Any:
    import functools

    text = "1 if x else 2"
    picked = list(map(lambda value: value and even, [even, i > 3]))  # noqa: C417
    total = functools.reduce(lambda a, b: a + b, [x, x, x])
    if even:
        total = total + len(f"{text!r:>20}")
        total = total * 2
    both_ways = (lambda v: v and even)(i > 2), (lambda v: v or even)(i > 2)
    return *picked, total, *both_ways


def test_permutation_inside_a_branch() -> None:
    def program(dali: Any, i: Any, even: Any, x: Any) -> Any:
        if i < 5:
            i = dali.fn.batch_permutation()
            if i > 100:
                i = dali.fn.batch_permutation()
        return i

    for item in run_definition(ours_module, program, runs=5, batch_size=BATCH):
        results = [int(value) for value in item[0].as_array()]
        assert sorted(results[:5]) == [0, 1, 2, 3, 4]
        assert results[5:] == [5, 6, 7, 8]


def test_scalar_constants_in_branches() -> None:
    def program(dali: Any, i: Any, even: Any, x: Any) -> Any:
        if even:
            out = dali.types.Constant(3).uint8()
        else:
            out = dali.types.Constant(4).uint8()
        return out

    result = run_definition(ours_module, program)[0][0]
    assert result.dtype is ours_module.types.UINT8
    assert result.as_array().tolist() == [4 if k % 2 else 3 for k in range(BATCH)]


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_sources_of_a_definition(method: str) -> None:
    @ours_module.pipeline_def(batch_size=3, num_threads=1, enable_conditionals=True, py_start_method=method)
    def pipeline() -> Any:
        size = 2

        def source(info: Any) -> Any:
            return np.full(size, info.idx_in_epoch if info.idx_in_epoch and not info.idx_in_epoch <= 1 else -1)

        return ours_module.fn.external_source(source=source, batch=False, parallel=True)

    assert pipeline().run()[0].as_array().tolist() == [[-1, -1], [-1, -1], [2, 2]]


def counters(dali: Any, i: Any, even: Any, x: Any) -> Any:
    """Functions that branches call count in Python's numbers, which are not data."""

    class Counter:
        number, name = 0, ""

        def add(self, value: Any) -> Any:
            self.number += 1
            self.name = f"call {self.number}"
            counts["calls"] += 1
            self.last = self.number
            return value + self.number

        def add_for_some(self, value: Any) -> Any:
            self.number += 1
            if i > 2:
                return self.add(value)
            return value

    counter, counts = Counter(), {"calls": 0}
    if even:
        out = counter.add(x)
    else:
        out = counter.add(counter.add(x))
    if even and counter.add(i) > 2:
        out = counter.add_for_some(out)
    result = out, counter.add(i), counter.add_for_some(i)
    assert (counter.number, counter.name, counter.last, counts) == (9, "call 9", 9, {"calls": 7})
    return result


PROGRAMS = [
    *(plain_if, chains, nest_branches, python_values, nests, attributes, constants, inside_operators, whole_batch, empty_branches, helpers, updates),
    *(unused_later, none_values, branch_on_ragged, counters),
]


@pytest.mark.parametrize("program", [change_captured, lists, unusual, chains, nest_branches, python_values], ids=lambda value: value.__name__)
def test_same_as_python(program: Callable[..., Any]) -> None:
    same_as_python(program)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda value: value.__name__)
def test_same_as_dali(program: Callable[..., Any]) -> None:
    same_as_dali(program)


def split_and_merge(dali: Any, i: Any, even: Any, x: Any) -> Any:
    fn = dali.fn
    first, second = fn._conditional.split(x, predicate=even)
    few, none = fn._conditional.split(first, predicate=fn._conditional.split(i < 100, predicate=even)[0])
    return first, second, few, none, fn._conditional.merge(fn.cast(first * 2, dtype=dali.types.INT32), second + 5, predicate=even)


@pytest.mark.parametrize("conditionals", [False, True])
def test_explicit_splits_and_merges_give_what_dali_gives(conditionals: bool) -> None:
    both(lambda dali: run_definition(dali, split_and_merge, enable_conditionals=conditionals))


def test_explicit_merges_refuse_batches_of_other_sizes() -> None:
    def program(dali: Any, i: Any, even: Any, x: Any) -> Any:
        first, second = dali.fn._conditional.split(x, predicate=even)
        return dali.fn._conditional.merge(second, first, predicate=even)

    with pytest.raises(RuntimeError, match="the branches gave 4 and 5 samples, but received 5 and 4"):
        run_definition(ours_module, program)
