# SPDX-License-Identifier: Apache-2.0
"""Ways through a definition with conditionals: returns, loops, exceptions, short circuits."""

from collections.abc import Callable
from typing import Any

import pytest
from _conditions import same_as_dali, same_as_python


def early_returns(dali: Any, i: Any, even: Any, x: Any) -> Any:
    def one(v: Any) -> Any:
        if i < 3:
            return v + 10
        if even:
            v = v + 20
        return v

    def three(v: Any, much: bool) -> Any:
        if much:
            return v
        if even:
            return v + 1
        return v + 2

    return one(x), three(x, True), three(x, False)


def logic(dali: Any, i: Any, even: Any, x: Any) -> Any:
    a = even and i < 4
    b = even or i == 3
    c = not even
    d = not i
    e = not even and not (i > 5 or i == 1)
    f = (i > 1 and i < 6) or (even and i != 0)
    g = even and True
    h = False or even
    if i > 1 and not even:
        out = x
    else:
        out = x + 1
    return a, b, c, d, e, f, g, h, out, 1 < i < 4, 0 <= i <= 3 < 10


def tries(dali: Any, i: Any, even: Any, x: Any) -> Any:
    out = x
    try:
        if even:
            out = out + 1
    except KeyError:
        out = x + 7
    finally:
        if i > 3:
            out = out * 2
    try:
        if even:
            out = out + 5
    except ValueError:
        out = None
    return out


def skips(dali: Any, i: Any, even: Any, x: Any) -> Any:
    out = x
    for k in range(4):
        if i == k:
            continue
        out = out + 10**k
        if even:
            out = out + 5
            continue
        out = out * 2
    return out


def walrus_and_match(dali: Any, i: Any, even: Any, x: Any) -> Any:
    mode = "double"
    if (wide := i > 4) and even:
        out = x
    else:
        out = x + 1
    match mode:
        case "double":
            if even:
                out = out * 2
        case other:
            out = other
    if wide:
        out = out + 3
    return out


def returns_from_some(dali: Any, i: Any, even: Any, x: Any) -> Any:
    def one(v: Any) -> Any:
        if i > 2:
            if even:
                return v + 1
            v = v + 2
        else:
            v = v + 3
        v = v * 2
        if i == 7:
            return v
        return v * 3

    def search(v: Any) -> Any:
        for k in range(4):
            if i == k:
                return v + k
            if even:
                v = v + 10
        try:
            if i == 5:
                return v + 500
        finally:
            v = v * 2
        return v

    class Counter:
        def __init__(self) -> None:
            self.value = x * 0

        def count(self) -> Any:
            if even:
                self.value = self.value + 1
                return self.value
            self.value = self.value + 10
            if i == 3:
                return x
            self.value = self.value + 100
            return self.value

    counter = Counter()
    counted = counter.count(), counter.count(), counter.value
    return one(x), search(x), *counted


def leaves_loops(dali: Any, i: Any, even: Any, x: Any) -> Any:
    out = x
    for k in range(5):
        if i == k:
            break
        out = out + 1
        if even:
            if i > 6:
                break
            continue
        out = out + 100
    other, n = x, 0
    while n < 3:
        n += 1
        for k in range(n):
            if i == k + 5:
                break
            other = other + k
        else:
            other = other + 1000
        if i == n:
            break
    return out, other


def all_leave(dali: Any, i: Any, even: Any, x: Any) -> Any:
    def find(v: Any) -> Any:
        for _ in range(100):
            v = v + 1
            if i < 4:
                return v
            if even:
                break
            return v * 10
        return v * 100

    return find(x)


def caught(dali: Any, i: Any, even: Any, x: Any) -> Any:
    out = x
    try:
        if even is not None:
            if even or i > 3:
                out = out + 1
            {}["missing"]
    except KeyError:
        out = out + 7
    return out


ONLY_OURS = [returns_from_some, leaves_loops, all_leave, caught, walrus_and_match]


@pytest.mark.parametrize("program", [*ONLY_OURS, early_returns, logic, skips], ids=lambda value: value.__name__)
def test_same_as_python(program: Callable[..., Any]) -> None:
    same_as_python(program)


@pytest.mark.parametrize("program", [early_returns, logic, tries, skips], ids=lambda value: value.__name__)
def test_same_as_dali(program: Callable[..., Any]) -> None:
    same_as_dali(program)
