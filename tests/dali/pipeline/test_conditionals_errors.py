# SPDX-License-Identifier: Apache-2.0
"""Definitions that conditions make wrong, and functions that are not converted: under DALI and under torch_ndd.dali."""

import functools
import inspect
import traceback
import unittest
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _conditions import BATCH, run_definition
from _pipelines import both, ours_raises
from _pipelines import ours as dali_of_ours
from _raises import Raises, raising

from torch_ndd.dali._conditionals import convert, do_not_convert


def in_one_branch(dali: Any, i: Any, even: Any, x: Any) -> Any:
    if even:
        only = x
    return only


def in_the_other(dali: Any, i: Any, even: Any, x: Any) -> Any:
    if even:
        pass
    else:
        only = x
    return only + 1


def structures(dali: Any, i: Any, even: Any, x: Any) -> Any:
    if even:
        out = x, i
    else:
        out = x
    return out


def lengths(dali: Any, i: Any, even: Any, x: Any) -> Any:
    if even:
        out = [x, i]
    else:
        out = [x]
    return out[0]


def keys(dali: Any, i: Any, even: Any, x: Any) -> Any:
    if even:
        out = {"a": x}
    else:
        out = {"b": x}
    return out["a"]


def one_returns(dali: Any, i: Any, even: Any, x: Any) -> Any:
    def part() -> Any:  # noqa: RET503
        if even:
            return x

    return part()


def while_node(dali: Any, i: Any, even: Any, x: Any) -> Any:
    while even:
        x = x + 1
    return x


def conditional_expression(dali: Any, i: Any, even: Any, x: Any) -> Any:
    return x if even else i


def assert_even(dali: Any, i: Any, even: Any, x: Any) -> Any:
    assert even
    return x


def comprehension(dali: Any, i: Any, even: Any, x: Any) -> Any:
    return [value for value in (x,) if even][0]  # noqa: RUF015


def not_scalar(dali: Any, i: Any, even: Any, x: Any) -> Any:
    if x:
        x = x + 1
    return x


def one_element(dali: Any, i: Any, even: Any, x: Any) -> Any:
    condition = dali.fn.stack(i)
    if condition:
        x = x + 1
    return x


def not_bool(dali: Any, i: Any, even: Any, x: Any) -> Any:
    return i and even


def not_bool_right(dali: Any, i: Any, even: Any, x: Any) -> Any:
    return even or i


def not_of_array(dali: Any, i: Any, even: Any, x: Any) -> Any:
    return not x


def types_differ(dali: Any, i: Any, even: Any, x: Any) -> Any:
    if even:
        x = dali.fn.cast(x, dtype=dali.types.FLOAT)
    return x


def dimensions_differ(dali: Any, i: Any, even: Any, x: Any) -> Any:
    if even:
        x = dali.fn.reshape(x, shape=[6])
    return x


def layouts_differ(dali: Any, i: Any, even: Any, x: Any) -> Any:
    if even:
        x = dali.fn.reshape(x, layout="HW")
    else:
        x = dali.fn.reshape(x, layout="WH")
    return x


def raises(dali: Any, i: Any, even: Any, x: Any) -> Any:
    if even:
        raise LookupError("the definition's own error")
    return x


def wrong_argument(dali: Any, i: Any, even: Any, x: Any) -> Any:
    if even:
        x = dali.fn.reshape(x, wrong=3)
    return x


WRONG: dict[type[Exception], list[Callable[..., Any]]] = {
    RuntimeError: [
        in_one_branch,
        in_the_other,
        one_returns,
        not_scalar,
        one_element,
        not_bool,
        not_bool_right,
        not_of_array,
        types_differ,
        dimensions_differ,
        layouts_differ,
    ],
    ValueError: [structures, lengths, keys],
    TypeError: [while_node, conditional_expression, assert_even, comprehension],
}


@pytest.mark.parametrize(
    ("program", "error"),
    [pytest.param(program, error, id=program.__name__) for error, programs in WRONG.items() for program in programs],
)
def test_invalid_branches_raise_like_dali(program: Callable[..., Any], error: type[Exception]) -> None:
    both(lambda dali: run_definition(dali, program), raises=error)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        raising(TypeError, "a", "b"),
        raising(TypeError, "a", 1),
        raising(ValueError, None, 1),
        raising(TypeError, None, "a"),
        raising(TypeError, ["a"], [1]),
        raising(TypeError, ["a"], [1, 2]),
        raising(ValueError, [1], [1, 2]),
        raising(ValueError, {"a": 1}, {"b": 1}),
        raising(TypeError, ..., None),
    ],
    ids=repr,
)
def test_values_that_cannot_be_merged(first: Any, second: Any, raises: Raises | None) -> None:
    def program(dali: Any, i: Any, even: Any, x: Any) -> Any:
        if even:
            out = first
        else:
            out = second
        return x + out

    both(lambda dali: run_definition(dali, program), raises=raises)


def test_own_errors_keep_type_and_lines() -> None:
    error = ours_raises(lambda dali: run_definition(dali, raises), LookupError, "own error")
    lines = [(frame.name, frame.line) for frame in traceback.extract_tb(error.__traceback__)]
    assert lines[-1] == ("raises", """raise LookupError("the definition's own error")""")
    assert not any("/_conditionals/" in frame.filename for frame in traceback.extract_tb(error.__traceback__)[1:])
    assert isinstance(ours_raises(lambda dali: run_definition(dali, wrong_argument), KeyError, "wrong"), TypeError)


def test_messages_name_variable_and_branch() -> None:
    ours_raises(lambda dali: run_definition(dali, in_one_branch), RuntimeError, "variable 'only'.*other branch .`else`")
    ours_raises(lambda dali: run_definition(dali, in_the_other), RuntimeError, "variable 'only'.*first branch .`if`")
    error = ours_raises(lambda dali: run_definition(dali, not_scalar), RuntimeError, r"one number per sample.*2 dimensions.*\(2, 3\)")
    assert "if x:" in str(error)
    ours_raises(lambda dali: run_definition(dali, structures), ValueError, "Divergent data: the variable 'out'")


def test_appending_in_a_branch() -> None:
    def program(dali: Any, i: Any, even: Any, x: Any) -> Any:
        values = [x]
        if even:
            values.append(x + 1)
        return values[0]

    ours_raises(lambda dali: run_definition(dali, program), RuntimeError, "list.append in a branch")

    def update(dali: Any, i: Any, even: Any, x: Any) -> Any:
        values = {"a": {"b": x}}
        if even:
            values["a"].update(b=x + 1)
        return values["a"]["b"]

    ours_raises(lambda dali: run_definition(dali, update), RuntimeError, "dict.update in a branch")


def test_attribute_of_one_branch() -> None:
    def program(dali: Any, i: Any, even: Any, x: Any) -> Any:
        holder = type("Holder", (), {})()
        if even:
            holder.new = x
        return holder.new

    both(lambda dali: run_definition(dali, program), raises=RuntimeError)


def test_error_of_a_branch_is_caught() -> None:
    def program(dali: Any, i: Any, even: Any, x: Any) -> Any:
        out = x
        try:
            if even and i > 2:
                out = x + 1
                raise KeyError("k")
        except KeyError as error:
            out = x + len(error.args)
        return out, x * 1

    out, again = run_definition(dali_of_ours, program, runs=1)[0]
    assert [len(out), len(again)] == [BATCH, BATCH]


# --- What is converted ---------------------------------------------------------------------------------------------------------------------------


def condition_in_helper(value: Any, even: Any) -> Any:
    return value + 1 if not isinstance(value, str) and not even else value


@do_not_convert
def list_marked(values: Any) -> Any:
    return [value for value in values if value is not None and not isinstance(value, str)]


def test_do_not_convert_under_both() -> None:
    def program(dali: Any) -> Any:
        @dali.pipeline.do_not_convert
        def natural(node: Any) -> Any:
            if node:
                return 1
            return 2

        def pipeline(dali: Any, i: Any, even: Any, x: Any) -> Any:
            return natural(i)

        return run_definition(dali, pipeline)

    both(program, raises=TypeError)

    def definition(dali: Any) -> Any:
        @dali.pipeline_def(batch_size=1)
        def pipeline() -> Any:
            return 1

        return dali.pipeline.do_not_convert(pipeline)

    both(definition, raises=ValueError)


def test_marked_functions_are_plain_functions() -> None:
    assert convert(list_marked) is list_marked
    assert list_marked(["a", 1, None]) == [1]
    assert list_marked.__name__ == "list_marked"
    assert inspect.getsource(list_marked).startswith("@do_not_convert")

    @do_not_convert
    def numbers() -> Any:
        yield 1

    assert inspect.isgeneratorfunction(numbers)
    bound = do_not_convert({}.get)
    assert bound("k", 3) == 3
    assert convert(bound) is bound


def test_no_source() -> None:
    space: dict[str, Any] = {}
    exec("def unseen(value, even):\n    return value + (1 if even is not None and True else 2)", space)

    def program(dali: Any, i: Any, even: Any, x: Any) -> Any:
        return space["unseen"](x, even)

    with unittest.TestCase().assertLogs("torch_ndd.dali", "WARNING") as logs:
        run_definition(dali_of_ours, program)
    assert "unseen runs unchanged" in logs.output[0]
    assert "do_not_convert" in logs.output[0]


def test_library_functions_stay() -> None:
    for value in (np.linspace, inspect.getsource, functools.wraps, dali_of_ours.fn.resize, dali_of_ours.data_node.DataNode.gpu, len, dict, [].append):
        assert convert(value) is value


def with_defaults(a: Any, b: Any = (1, 2), *rest: Any, c: Any = None, **more: Any) -> Any:
    """Return the arguments."""
    c = c or {}
    return a, b, rest, c, more


def test_converted_functions_look_like_the_given_ones() -> None:
    result = convert(with_defaults)
    assert result is not with_defaults
    assert result(1) == (1, (1, 2), (), {}, {})
    assert result(1, 2, 3, c=4, d=5) == (1, 2, (3,), 4, {"d": 5})
    assert inspect.signature(result) == inspect.signature(with_defaults)
    assert inspect.getsource(result) == inspect.getsource(with_defaults)
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__", "__defaults__", "__kwdefaults__", "__globals__"):
        assert getattr(result, name) == getattr(with_defaults, name)
    assert convert(result) is result
    assert convert(with_defaults).__code__ is result.__code__
    with pytest.raises(TypeError, match=r"with_defaults\(\) missing 1 required positional argument"):
        result()


class Base:
    __secret = 3

    def value(self) -> Any:
        return "base"


class Derived(Base):
    __secret = 4

    def value(self) -> Any:
        text = super().value()
        if text == "base" and not self.__secret > 4:
            self.__secret += 1
        return text, self.__secret, __class__.__name__


def test_private_names_and_super() -> None:
    assert convert(Derived().value)() == ("base", 5, "Derived")


def test_lambdas_of_one_line() -> None:
    value, two = (lambda v: v and 1), (lambda v: v and 2)
    same = [(lambda v, k=k: v and k) for k in range(3)]
    # fmt: off
    three, four = (lambda v: v or (lambda: "inner")()), (lambda v: v or (lambda: "other")())
    # fmt: on
    assert [convert(f)(True) for f in (value, two, *same[1:])] == [1, 2, 1, 2]
    assert [convert(f)(0) for f in (three, four)] == ["inner", "other"]
    assert convert(value) is not value


def test_generators_and_coroutines_stay() -> None:
    def generate(n: int) -> Any:
        for k in range(n):
            if k and k != 2:
                yield k

    def program(dali: Any, i: Any, even: Any, x: Any) -> Any:
        for k in generate(5):
            if even:
                x = x + k
        return x

    result = run_definition(dali_of_ours, program)[0][0]
    assert result.at(0).tolist() == [[8] * 3] * 2
    assert result.at(1).tolist() == [[1] * 3] * 2


def test_long_elif_chains_of_python_values_are_converted() -> None:
    text = "".join(f"    {'el' if k else ''}if name == {k}:\n        return {k} * 2\n" for k in range(120))
    space: dict[str, Any] = {"__name__": "generated"}
    import linecache

    source = f"def choose(name):\n{text}    return None\n"
    linecache.cache["<generated>"] = len(source), None, source.splitlines(True), "<generated>"
    exec(compile(source, "<generated>", "exec"), space)
    result = convert(space["choose"])
    assert result is not space["choose"]
    assert [result(k) for k in (0, 7, 119, 200)] == [0, 14, 238, None]


def test_closures_share_their_variables() -> None:
    count = 0

    def up() -> int:
        nonlocal count
        count += 1
        return count if count != 2 and count else -1

    result = convert(up)
    assert [result(), up(), result()] == [1, -1, 3]
    assert count == 3
