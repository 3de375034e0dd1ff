# SPDX-License-Identifier: Apache-2.0
"""Nodes: arithmetic, comparisons, indexing, shapes, properties, and what nodes refuse."""

from collections.abc import Collection, Container, Iterable, Sequence, Sized

import numpy as np
import pytest
import torch
from _pipelines import both, ours_raises
from _raises import Raises, raising

import torch_ndd.dali as ours

U8 = np.array([[0, 1, 250], [7, 128, 255]], np.uint8)
F32 = np.array([[0.5, -1.5, 2.0], [3.25, -7.0, 9.5]], np.float32)
I16 = np.array([[-3, 2, 7], [300, -5, 1]], np.int16)


def run(dali, define, batch_size=2, **more):
    """Return the outputs of one iteration of ``define(dali)``."""
    pipe = dali.pipeline_def(define)(dali, batch_size=batch_size, num_threads=1, device_id=None, **more)
    return pipe.run()


@pytest.mark.parametrize("right", [3, 2.5, True], ids=str)
@pytest.mark.parametrize(
    "operation",
    ["+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">="],
)
@pytest.mark.parametrize("left", [U8, F32, I16], ids=["u8", "f32", "i16"])
def test_arithmetic_with_numbers(left, operation, right):
    """Types and values of a node with a number, in both orders."""

    def program(dali):
        def define(dali):
            return eval(f"(node {operation} right, right {operation} (node + 20))", {"node": dali.types.Constant(left), "right": right})

        return run(dali, define)

    both(program, 2e-3 if operation == "**" else 1e-6)


@pytest.mark.parametrize("operation", ["&", "|", "^", "<<", ">>"])
def test_bitwise_operations_equal_dali(operation):
    """Bitwise operations."""

    def program(dali):
        def define(dali):
            names = {"node": dali.types.Constant(U8), "other": dali.types.Constant(I16)}
            return eval(f"(node {operation} 3, 3 {operation} node, node {operation} other, node {operation} 2.5)", names)

        return run(dali, define)

    both(program, raises=RuntimeError)
    both(lambda dali: run(dali, lambda dali: eval("(~node, -node, +node, abs(node))", {"node": dali.types.Constant(I16)})))


def test_scalar_constants():
    """Typed scalars keep the type: u8 + u8 wraps."""

    def program(dali):
        def define(dali):
            node, constant = dali.types.Constant(U8), dali.types.Constant
            return node + constant(250).uint8(), node + 250, constant(3).int64() * node, node - constant(0.5), node / constant(2).float64()

        return run(dali, define)

    both(program)


def test_arrays_as_operands():
    """Lists and arrays are constants, on either side."""

    def program(dali):
        def define(dali):
            node = dali.types.Constant(F32)
            return node + np.array([1, 2, 3], np.float32), node * [1, 2, 3], [1.5, 2.5, 3.5] - node, node + np.float32(2)

        return run(dali, define)

    both(program)


def test_arrays_on_the_left_of_an_operator_defer_to_the_node():
    """An array on the left defers to the node; so do torch's tensors."""
    node_sums = run(ours, lambda dali: (np.array([1, 2, 3], np.float32) + dali.types.Constant(F32), dali.types.Constant(F32) + torch.ones(3)))
    np.testing.assert_array_equal(node_sums[0].as_array()[0], F32 + np.array([1, 2, 3]))
    np.testing.assert_array_equal(node_sums[1].as_array()[0], F32 + 1)


@pytest.mark.parametrize(
    "key",
    ["0", "-1", "1, 2", "0:1", ":, 1:", ":, ::2", "1, 0:2", "::1", ":, ::-1", raising(RuntimeError, "5"), raising(RuntimeError, "0, 0, 0"), "0:0"],
)
def test_indexing_equals_dali(key, raises):
    """Integers and slices; out of range and too many are errors of running."""

    def program(dali):
        return run(dali, lambda dali: eval(f"node[{key}]", {"node": dali.types.Constant(F32, layout="HW")}))

    both(program, raises=raises)


def test_indexing_with_nodes():
    """A node as an index or a bound has one value for each sample."""

    def program(dali):
        def define(dali):
            node, index = dali.types.Constant(F32), dali.fn.external_source(lambda i: [np.array(0), np.array(1)])
            return node[index], node[index:], node[index, index : index + 2]

        return run(dali, define)

    both(program)


@pytest.mark.parametrize("key", ["new", "new, 0", "0, new('F')", "new('A'), :, new('B')", ":, new, :"])
def test_newaxis_inserts_an_axis(key):
    """newaxis inserts an axis, named or not."""

    def program(dali):
        return run(dali, lambda dali: eval(f"node[{key}]", {"node": dali.types.Constant(F32, layout="HW"), "new": dali.newaxis}))

    both(program)


def test_wrong_indices():
    """Wrong kinds of index are errors of the definition."""
    for key, error in ((1.5, TypeError), ("a", TypeError), (..., NotImplementedError)):
        both(lambda dali, key=key: run(dali, lambda dali: dali.types.Constant(F32)[key]), raises=error)
    both(lambda dali: run(dali, lambda dali: dali.types.Constant(F32)[dali.newaxis("A"), dali.newaxis]), raises=ValueError)


def test_shape_property_and_source_info():
    """shape() has int64 or the wanted type, properties are text."""

    def program(dali):
        def define(dali):
            node = dali.types.Constant(F32, layout="HW")
            return node.shape(), node.shape(dtype=dali.types.INT32), node.property("layout"), node.shape()[0] * 2

        return run(dali, define)

    both(program)
    both(lambda dali: run(dali, lambda dali: dali.types.Constant(F32).property("nothing")), raises=RuntimeError)


@pytest.mark.parametrize(
    "use",
    [
        *("bool(node)", "len(node)", "list(node)", "float(node)", "int(node)", "hash(node)", "1 in node", "node and node", "not node", "{node: 1}"),
        *("[*node]", "range(node)", "1 < node < 3"),
    ],
)
def test_nodes_have_no_values(use):
    """Code that needs a value raises a TypeError; the one for a truth value names enable_conditionals."""
    error = both(lambda dali: run(dali, lambda dali: eval(use, {"node": dali.fn.random.uniform()})), raises=TypeError)
    assert isinstance(error, TypeError)
    if "bool" in use or "not" in use or "and" in use:
        assert "enable_conditionals" in str(error)


def test_nodes_are_not_collections():
    """Programs decide by these classes and by the length whether an operator gave one node or several."""

    def program(dali):
        with dali.Pipeline(2, 1, None):
            node = dali.fn.random.uniform()
        return [isinstance(node, kind) for kind in (Iterable, Container, Sized, Collection, Sequence)], hasattr(node, "__len__")

    both(program)


def test_node_attributes_equal_dali():
    """Names, device, index and what is known of the samples."""

    def program(dali):
        with dali.Pipeline(2, 1, None):
            uniform = dali.fn.random.uniform(name="draw")
            pair = dali.fn.nonsilent_region(dali.types.Constant(np.zeros(5, np.float32)))
            sets = dali.fn.resize([dali.fn.zeros(shape=[2, 2, 1]), dali.fn.zeros(shape=[2, 2, 1])], size=[1, 1])
            nodes = [uniform, *pair, *sets, uniform + 1, uniform[0:1], uniform.shape(), dali.math.sqrt(uniform)]
        return [[node.name, node.device, node.index] for node in nodes], type(pair) is list, uniform.cpu() is uniform

    both(program)


def test_names_on_other_devices():
    """Nodes on another device have the name of their origin."""

    def program(dali):
        with dali.Pipeline(2, 1, 0):
            drawn = dali.fn.random.uniform(name="draw")
            begin, length = dali.fn.nonsilent_region(dali.types.Constant(np.zeros(5, np.float32)))
            nodes = [drawn.gpu(), length.gpu(), length.gpu().gpu(), drawn.gpu().cpu(), begin]
        return [[node.name, node.device] for node in nodes]

    got = both(program)
    assert got[0] == ["draw", "gpu"]


MATH = [
    *("sqrt", "rsqrt", "cbrt", "exp", "log", "log2", "log10", "abs", "fabs", "floor", "ceil", "sin", "cos", "tan", "asin", "acos", "atan", "sinh"),
    *("cosh", "tanh", "asinh", "acosh", "atanh"),
]


@pytest.mark.parametrize("name", MATH)
def test_math_functions_equal_dali(name):
    """Functions of one operand, on floats and integers."""
    values = np.array([0.25, 0.5, 1.0], np.float32)

    def program(dali):
        return run(
            dali,
            lambda dali: (
                getattr(dali.math, name)(dali.types.Constant(values)),
                getattr(dali.math, name)(dali.types.Constant(np.array([1], np.int32))),
            ),
        )

    both(program, 1e-5)


def test_math_of_several():
    """Functions of two and three operands."""

    def program(dali):
        def define(dali):
            a, m = dali.types.Constant(F32), dali.math
            return m.min(a, 1), m.max(a, dali.types.Constant(I16)), m.clamp(a, -1, 2.5), m.pow(a, 2), m.fpow(a, 2), m.atan2(a, 2), m.atan2(1, a)

        return run(dali, define)

    both(program, 1e-5)
    for call in ("sqrt(4)", "min(1, 2)"):
        both(lambda dali, call=call: run(dali, lambda dali: eval(f"math.{call}", {"math": dali.math})), raises=ValueError)


@pytest.mark.parametrize(
    "call",
    [
        *("sqrt([4.0])", "sqrt(np.array([4.0, 9]))", "min([4], [5])", "max(np.float32([[1], [5]]), np.arange(3))", "clamp(np.array([4.0]), 1, 2)"),
        *("min(np.array([4.0]), types.Constant(5))", "min(types.Constant([1, 2]), np.array([2, 1]))", "max(torch.tensor([4.0]), 5)"),
        *(raising(ValueError, "sqrt(np.array(4.0))"), raising(ValueError, "sqrt(np.float32(4))")),
    ],
)
def test_math_of_arrays(call: str, raises: Raises | None) -> None:
    names = {"np": np, "torch": torch}
    both(lambda dali: run(dali, lambda dali: eval(f"math.{call}", {**names, "math": dali.math, "types": dali.types})), raises=raises)


def test_two_constants_cannot_be_added():
    """A ScalarConstant needs a node beside it."""
    for text in ("types.Constant(1) + types.Constant(2)", "int(types.Constant(2.5))", "float(types.Constant(2))", "types.Constant(1) + 1"):
        both(lambda dali, text=text: eval(text, {"types": dali.types}), raises=TypeError)


def test_the_message_of_a_wrong_operand():
    """Strings and None are not operands."""
    ours_raises(lambda dali: run(dali, lambda dali: dali.fn.random.uniform() + "a"), TypeError, "arithmetic")
    ours_raises(lambda dali: run(dali, lambda dali: dali.fn.random.uniform() * None), TypeError, "arithmetic")


def test_a_refused_graph_stays_refused() -> None:
    pipe = ours.Pipeline(batch_size=1, num_threads=1)
    with pipe:
        pipe.set_outputs(ours.types.Constant([1]).gpu(), ours.fn.constant(idata=[1], name="same"), ours.fn.constant(idata=[2], name="same"))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="two operators with the name 'same'"):
            pipe.run()
