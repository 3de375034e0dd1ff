# SPDX-License-Identifier: Apache-2.0
"""Other shapes and orders of the same elements against DALI's: everything is equal."""

from typing import Any

import numpy as np
import pytest
from _dali import assert_same, evaluate
from _raises import Raises, raising

import torch_ndd as ndd

A = np.arange(12, dtype=np.uint8).reshape(3, 4)
IMAGE = np.arange(12, dtype=np.uint8).reshape(2, 3, 2)
FLOATS = np.arange(4, dtype=np.float32).reshape(2, 2)
FLAT = np.zeros((1, 3, 1, 2), np.uint8)
B = np.arange(6, dtype=np.uint8).reshape(2, 3)


def hw(m: Any) -> Any:
    return m.tensor(A, layout="HW")


def bare(m: Any) -> Any:
    return m.tensor(A)


def hwc(m: Any) -> Any:
    return m.tensor(IMAGE, layout="HWC")


def batch(m: Any) -> Any:
    return m.batch([np.arange(6, dtype=np.uint8).reshape(2, 3), np.arange(12, dtype=np.uint8).reshape(3, 4)], layout="HW")


def floats(m: Any) -> Any:
    return m.tensor(FLOATS, layout="HW")


def flat(m: Any) -> Any:
    return m.tensor(FLAT, layout="FHWC")


def array(m: Any, *shape: int, dtype: str = "float64") -> Any:
    return m.tensor(np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype))


TRANSPOSE = {
    "reverse": lambda m: m.transpose(hwc(m)),
    "perm": lambda m: m.transpose(hwc(m), perm=[2, 0, 1]),
    "no layout": lambda m: m.transpose(array(m, 2, 3, 4), perm=[2, 0, 1]),
    "layout kept": lambda m: m.transpose(hwc(m), perm=[2, 0, 1], transpose_layout=False),
    "perm and layout": lambda m: m.transpose(hwc(m), perm=[2, 0, 1], output_layout="ABC"),
    "layout": lambda m: m.transpose(hwc(m), output_layout="CHW"),
    "short layout": raising(RuntimeError, lambda m: m.transpose(hwc(m), perm=[2, 0, 1], output_layout="AB")),
    "empty layout": raising(RuntimeError, lambda m: m.transpose(hwc(m), perm=[2, 0, 1], output_layout="")),
    "layout with other letters": lambda m: m.transpose(hwc(m), output_layout="CHX"),
    "layout for none": lambda m: m.transpose(array(m, 2, 3, 4), output_layout="CHW"),
    "layout that contradicts": lambda m: m.transpose(hwc(m), perm=[0, 1, 2], output_layout="CHW"),
    "repeated": raising(RuntimeError, lambda m: m.transpose(hwc(m), perm=[0, 0, 1])),
    "short": raising(RuntimeError, lambda m: m.transpose(hwc(m), perm=[0, 1])),
    "negative": raising(RuntimeError, lambda m: m.transpose(hwc(m), perm=[-1, 0, 1])),
    "no such axis": raising(RuntimeError, lambda m: m.transpose(hwc(m), perm=[3, 0, 1])),
    "one axis": lambda m: m.transpose(m.tensor([1, 2]), perm=[0]),
    "no axis": lambda m: m.transpose(m.tensor(1)),
    "batch": lambda m: m.transpose(batch(m), perm=[1, 0]),
    "empty": lambda m: m.transpose(array(m, 2, 0, 4), perm=[2, 0, 1]),
    "bool": lambda m: m.transpose(m.tensor(np.eye(2, 3, dtype=bool)), perm=[1, 0]),
    "float16": lambda m: m.transpose(array(m, 2, 3, dtype="float16"), perm=[1, 0]),
    "seven axes": lambda m: m.transpose(array(m, 1, 2, 1, 2, 3, 2, 1), perm=[6, 5, 4, 3, 2, 1, 0]),
}
RESHAPE = {
    "nothing": raising(RuntimeError, lambda m: m.reshape(hw(m))),
    "shape": lambda m: m.reshape(hw(m), shape=[4, 3]),
    "wildcard": lambda m: m.reshape(hw(m), shape=[-1, 2]),
    "two wildcards": raising(RuntimeError, lambda m: m.reshape(hw(m), shape=[-1, -1])),
    "wrong volume": raising(RuntimeError, lambda m: m.reshape(hw(m), shape=[5, 2])),
    "wildcard that does not fit": raising(RuntimeError, lambda m: m.reshape(hw(m), shape=[-1, 5])),
    "flat": lambda m: m.reshape(hw(m), shape=[-1]),
    "nothing for the wildcard": raising(RuntimeError, lambda m: m.reshape(hw(m), shape=[0, -1])),
    "scalar": lambda m: m.reshape(hw(m), shape=12),
    "to a number": lambda m: m.reshape(m.tensor([5]), shape=[]),
    "no number": raising(RuntimeError, lambda m: m.reshape(hw(m), shape=[])),
    "layout": lambda m: m.reshape(hw(m), shape=[4, 3], layout="AB"),
    "long layout": raising(RuntimeError, lambda m: m.reshape(hw(m), shape=[4, 3], layout="ABC")),
    "layout alone": lambda m: m.reshape(hw(m), layout="AB"),
    "no layout": lambda m: m.reshape(hw(m), layout=""),
    "more axes": lambda m: m.reshape(hw(m), shape=[3, 2, 2]),
    "more axes, layout": lambda m: m.reshape(hw(m), shape=[3, 2, 2], layout="HWC"),
    "relative, wrong volume": raising(RuntimeError, lambda m: m.reshape(hw(m), rel_shape=[0.5, 2])),
    "relative": lambda m: m.reshape(hw(m), rel_shape=[1, 1]),
    "relative, wildcard": lambda m: m.reshape(hw(m), rel_shape=[-1, 0.5]),
    "relative, too long": raising(RuntimeError, lambda m: m.reshape(hw(m), rel_shape=[1, 1, 1])),
    "relative, flat": lambda m: m.reshape(hw(m), rel_shape=[4]),
    "relative, rounded": lambda m: m.reshape(hw(m), rel_shape=[0.333, 3]),
    "relative, 0": raising(RuntimeError, lambda m: m.reshape(hw(m), rel_shape=[0, -1])),
    "relative, two wildcards": raising(RuntimeError, lambda m: m.reshape(hw(m), rel_shape=[-1, -1])),
    "both": raising(RuntimeError, lambda m: m.reshape(hw(m), rel_shape=[1, 1], shape=[3, 4])),
    "sources": lambda m: m.reshape(hwc(m), src_dims=[1, 0, 2]),
    "sources, wrong volume": raising(RuntimeError, lambda m: m.reshape(hwc(m), src_dims=[0, 1])),
    "sources, relative": lambda m: m.reshape(hwc(m), src_dims=[0, 1], rel_shape=[1, 2]),
    "sources, wildcard": lambda m: m.reshape(hwc(m), src_dims=[0, 1], rel_shape=[1, -1]),
    "sources, other length": raising(RuntimeError, lambda m: m.reshape(hwc(m), src_dims=[0, 1], rel_shape=[1, 2, 1])),
    "sources, shape": lambda m: m.reshape(hwc(m), src_dims=[1, 0, 2], shape=[3, 2, 2]),
    "sources, no such axis": raising(RuntimeError, lambda m: m.reshape(hwc(m), src_dims=[3, 0, 1])),
    "sources, -2": raising(RuntimeError, lambda m: m.reshape(hwc(m), src_dims=[-2, 0, 1])),
    "sources, new axis": lambda m: m.reshape(hwc(m), src_dims=[0, 1, -1, 2], rel_shape=[1, 1, 2, 0.5]),
    "sources, repeated": lambda m: m.reshape(array(m, 2, 2), src_dims=[0, 0]),
    "position": lambda m: m.reshape(hw(m), [4, 3]),
    "position and shape": raising(RuntimeError, lambda m: m.reshape(hw(m), [4, 3], shape=[4, 3])),
    "position, floats": raising(RuntimeError, lambda m: m.reshape(hw(m), m.tensor([4.0, 3.0]))),
    "position, int64": lambda m: m.reshape(hw(m), np.array([4, -1])),
    "position, layout": lambda m: m.reshape(hw(m), [4, 3], layout="AB"),
    "batch": lambda m: m.reshape(batch(m), shape=[-1]),
    "batch, relative": lambda m: m.reshape(batch(m), rel_shape=[-1, 1]),
    "shapes": lambda m: m.reshape(batch(m), shape=m.batch([[3, 2], [2, 6]])),
    "shapes by position": lambda m: m.reshape(batch(m), m.batch([[3, 2], [2, 6]])),
    "relative shapes": lambda m: m.reshape(batch(m), rel_shape=m.batch([[1.0, 1.0], [-1, 0.5]])),
    "shapes of a tensor": lambda m: m.reshape(hw(m), shape=m.batch([[4, 3], [3, 4]])),
    "no elements, wildcard": lambda m: m.reshape(array(m, 0, 3), shape=[-1, 3]),
    "no elements, nothing for the wildcard": raising(RuntimeError, lambda m: m.reshape(array(m, 0, 3), shape=[-1, 0])),
    "negative": lambda m: m.reshape(hw(m), shape=[-2, 3]),
    "from a number": lambda m: m.reshape(m.tensor(5), shape=[1, 1]),
}
REINTERPRET = {
    "nothing": raising(RuntimeError, lambda m: m.reinterpret(floats(m))),
    "smaller": lambda m: m.reinterpret(floats(m), dtype=m.uint8),
    "smaller, shape": lambda m: m.reinterpret(floats(m), dtype=m.uint8, shape=[16]),
    "smaller, wildcard": lambda m: m.reinterpret(floats(m), dtype=m.uint8, shape=[-1]),
    "equal size": lambda m: m.reinterpret(floats(m), dtype=m.int32),
    "larger": lambda m: m.reinterpret(floats(m), dtype=m.float64),
    "bytes": lambda m: m.reinterpret(bare(m), dtype=m.int16),
    "not divisible": raising(RuntimeError, lambda m: m.reinterpret(bare(m), dtype=m.float64)),
    "not divisible, wildcard": raising(RuntimeError, lambda m: m.reinterpret(bare(m), dtype=m.float64, shape=[-1])),
    "relative": lambda m: m.reinterpret(floats(m), dtype=m.uint8, rel_shape=[1, 4]),
    "relative, wrong": raising(RuntimeError, lambda m: m.reinterpret(floats(m), dtype=m.uint8, rel_shape=[1, 1])),
    "sources": lambda m: m.reinterpret(hwc(m), dtype=m.int16, src_dims=[1, 0, 2]),
    "shape": lambda m: m.reinterpret(floats(m), shape=[4]),
    "layout": lambda m: m.reinterpret(floats(m), dtype=m.uint8, layout="AB"),
    "no layout": lambda m: m.reinterpret(floats(m), layout=""),
    "bool": lambda m: m.reinterpret(bare(m), dtype=m.bool),
    "odd": raising(RuntimeError, lambda m: m.reinterpret(array(m, 2, 3, dtype="uint8"), dtype=m.int16)),
    "odd, wildcard": lambda m: m.reinterpret(array(m, 2, 3, dtype="uint8"), dtype=m.int16, shape=[-1]),
    "position": lambda m: m.reinterpret(floats(m), [16], dtype=m.uint8),
    "wrong volume": raising(RuntimeError, lambda m: m.reinterpret(floats(m), dtype=m.uint8, shape=[4])),
    "nothing in it": lambda m: m.reinterpret(array(m, 2, 0, dtype="uint8"), dtype=m.int16),
    "batch": lambda m: m.reinterpret(m.batch([np.arange(n, dtype=np.int32) for n in (3, 1, 2)]), dtype=m.uint16),
}
SQUEEZE = {
    "nothing": raising(RuntimeError, lambda m: m.squeeze(flat(m))),
    "axis": lambda m: m.squeeze(flat(m), axes=[0]),
    "axes": lambda m: m.squeeze(flat(m), axes=[0, 2]),
    "not 1": raising(RuntimeError, lambda m: m.squeeze(flat(m), axes=[1])),
    "repeated": raising(RuntimeError, lambda m: m.squeeze(flat(m), axes=[0, 0])),
    "names": lambda m: m.squeeze(flat(m), axis_names="FW"),
    "names, not 1": raising(RuntimeError, lambda m: m.squeeze(flat(m), axis_names="H")),
    "both": raising(RuntimeError, lambda m: m.squeeze(flat(m), axes=[0], axis_names="F")),
    "without elements": lambda m: m.squeeze(array(m, 2, 1, 0), axes=[0]),
    "without elements, an axis of 1": lambda m: m.squeeze(array(m, 2, 1, 0), axes=[1]),
    "without elements, the empty axis": raising(RuntimeError, lambda m: m.squeeze(array(m, 2, 1, 0), axes=[2])),
    "without elements, none but the empty axis": raising(RuntimeError, lambda m: m.squeeze(array(m, 0, 1, 3), axes=[0])),
    "without elements, all but the empty axis": lambda m: m.squeeze(array(m, 0, 1, 3), axes=[1, 2]),
    "of batches without elements": lambda m: m.squeeze(m.batch([np.zeros((2, 0), np.uint8), np.zeros((1, 3), np.uint8)]), axes=[0]),
    "of batches of which some have none": raising(
        RuntimeError, lambda m: m.squeeze(m.batch([np.zeros((2, 0), np.uint8), np.zeros((2, 3), np.uint8)]), axes=[0])
    ),
    "names without a layout": raising(RuntimeError, lambda m: m.squeeze(array(m, 1, 2), axis_names="H")),
    "unknown name": raising(RuntimeError, lambda m: m.squeeze(flat(m), axis_names="D")),
    "no axes": lambda m: m.squeeze(flat(m), axes=[]),
    "no names": lambda m: m.squeeze(flat(m), axis_names=""),
    "to a number": lambda m: m.squeeze(array(m, 1, 1), axes=[0, 1]),
    "scalar": lambda m: m.squeeze(flat(m), axes=0),
    "batch": lambda m: m.squeeze(m.batch([np.zeros((1, 3)), np.zeros((1, 2))]), axes=[0]),
    "batch, not 1": raising(RuntimeError, lambda m: m.squeeze(m.batch([np.zeros((1, 3)), np.zeros((2, 3))]), axes=[0])),
    "nothing in it": lambda m: m.squeeze(array(m, 1, 0), axes=[0]),
}
EXPAND = {
    "front": lambda m: m.expand_dims(hw(m), axes=[0]),
    "scalar": lambda m: m.expand_dims(hw(m), axes=0),
    "two": lambda m: m.expand_dims(hw(m), axes=[0, 2]),
    "another order": lambda m: m.expand_dims(hw(m), axes=[2, 0]),
    "end": lambda m: m.expand_dims(hw(m), axes=[2]),
    "beyond": raising(RuntimeError, lambda m: m.expand_dims(hw(m), axes=[3])),
    "negative": raising(RuntimeError, lambda m: m.expand_dims(hw(m), axes=[-1])),
    "repeated": raising(RuntimeError, lambda m: m.expand_dims(hw(m), axes=[0, 0])),
    "name": lambda m: m.expand_dims(hw(m), axes=[0], new_axis_names="F"),
    "names": lambda m: m.expand_dims(hw(m), axes=[0, 3], new_axis_names="FC"),
    "names in another order": lambda m: m.expand_dims(hw(m), axes=[3, 0], new_axis_names="CF"),
    "too few names": raising(RuntimeError, lambda m: m.expand_dims(hw(m), axes=[0, 1], new_axis_names="F")),
    "names without a layout": raising(RuntimeError, lambda m: m.expand_dims(bare(m), axes=[0], new_axis_names="F")),
    "none": lambda m: m.expand_dims(hw(m), axes=[]),
    "a number": lambda m: m.expand_dims(m.tensor(1), axes=[0]),
    "a number, name": lambda m: m.expand_dims(m.tensor(1), axes=[0], new_axis_names="X"),
    "batch": lambda m: m.expand_dims(batch(m), axes=[1]),
    "neighbors": lambda m: m.expand_dims(hw(m), axes=[1, 2]),
    "far ones": lambda m: m.expand_dims(hw(m), axes=[1, 3, 4]),
}


def ab(m: Any) -> Any:
    return m.tensor(B, layout="AB")


def b(m: Any) -> Any:
    return m.tensor(B, layout="HW")


def plain(m: Any) -> Any:
    return m.tensor(B)


def make_ragged(m: Any) -> Any:
    return m.batch([B, B[:1].copy()])


WRONG_FOR_BOTH = ["axis -4", "axis 3", "dimensions", "empty name", "long name", "name without a layout", "ragged, shapes", "shapes", "types"]
WRONG_JOINS = {
    "cat": [*WRONG_FOR_BOTH, "axis 2", "name and axis", "numbers", "numbers, name", "other name"],
    "stack": [*WRONG_FOR_BOTH, "empty", "lengths", "ragged and tensor"],
}


def join(op: str, name: str, program: Any) -> Any:
    """Return a row of the test: a call of ``cat`` or ``stack``."""

    def call(m: Any) -> Any:
        return program(m, getattr(m, op))

    return raising(RuntimeError, call) if name in WRONG_JOINS[op] else call


JOIN = {
    f"{op} {name}": join(op, name, program)
    for op in ("cat", "stack")
    for name, program in {
        "one": lambda m, f: f(b(m)),
        "two": lambda m, f: f(b(m), b(m)),
        "axis 1": lambda m, f: f(b(m), b(m), axis=1),
        "axis 2": lambda m, f: f(b(m), b(m), axis=2),
        "axis 3": lambda m, f: f(b(m), b(m), axis=3),
        "axis -1": lambda m, f: f(b(m), b(m), axis=-1),
        "axis -2": lambda m, f: f(b(m), b(m), axis=-2),
        "axis -4": lambda m, f: f(b(m), b(m), axis=-4),
        "three": lambda m, f: f(b(m), plain(m), ab(m), axis=1),
        "name": lambda m, f: f(b(m), b(m), axis_name="W"),
        "other name": lambda m, f: f(b(m), b(m), axis_name="D"),
        "name and axis": lambda m, f: f(b(m), b(m), axis=1, axis_name="W"),
        "name without a layout": lambda m, f: f(plain(m), b(m), axis_name="W"),
        "name, first layout": lambda m, f: f(b(m), plain(m), axis_name="W"),
        "long name": lambda m, f: f(b(m), b(m), axis_name="HW"),
        "empty name": lambda m, f: f(b(m), b(m), axis_name=""),
        "no layout first": lambda m, f: f(plain(m), b(m)),
        "layout first": lambda m, f: f(b(m), plain(m)),
        "two layouts": lambda m, f: f(b(m), ab(m)),
        "types": lambda m, f: f(b(m), m.tensor(B.astype(np.int32))),
        "dimensions": lambda m, f: f(b(m), m.tensor(np.array([1, 2], np.uint8))),
        "shapes": lambda m, f: f(b(m), array(m, 2, 4, dtype="uint8")),
        "lengths": lambda m, f: f(b(m), array(m, 1, 3, dtype="uint8")),
        "numbers": lambda m, f: f(m.tensor(1), m.tensor(2)),
        "numbers, name": lambda m, f: f(m.tensor(1), m.tensor(2), axis_name="N"),
        "empty": lambda m, f: f(b(m), array(m, 0, 3, dtype="uint8")),
        "batch and tensor": lambda m, f: f(m.batch([B, B]), plain(m)),
        "ragged and tensor": lambda m, f: f(make_ragged(m), plain(m)),
        "ragged": lambda m, f: f(make_ragged(m), make_ragged(m), axis=1),
        "ragged, shapes": lambda m, f: f(m.batch([B, np.zeros((2, 2), np.uint8)]), plain(m)),
    }.items()
}
EMPTY = {
    "other extents": lambda m: m.cat(b(m), array(m, 0, 5, dtype="uint8")),
    "other extents, axis 1": lambda m: m.cat(b(m), array(m, 0, 5, dtype="uint8"), axis=1),
    "first": lambda m: m.cat(array(m, 0, 3, dtype="uint8"), b(m)),
    "all": lambda m: m.cat(array(m, 0, 3), array(m, 0, 3)),
    "copy": lambda m: m.copy(b(m)),
    "copy of a number": lambda m: m.copy(m.tensor(1)),
    "copy of a batch": lambda m: m.copy(make_ragged(m)),
    "layout": lambda m: m.get_property(b(m), key="layout"),
    "no layout": lambda m: m.get_property(plain(m), key="layout"),
    "no source": lambda m: m.get_property(b(m), key="source_info"),
    "unknown key": raising(RuntimeError, lambda m: m.get_property(b(m), key="xx")),
    "layout of a batch": lambda m: m.get_property(m.batch([[1], [2]], layout="X"), key="layout"),
    "no layout of a batch": lambda m: m.get_property(m.batch([1, 2]), key="layout"),
}
PROGRAMS = {
    f"{family}: {name}": program
    for family, programs in {
        "transpose": TRANSPOSE,
        "reshape": RESHAPE,
        "reinterpret": REINTERPRET,
        "squeeze": SQUEEZE,
        "expand_dims": EXPAND,
        "join": JOIN,
        "empty": EMPTY,
    }.items()
    for name, program in programs.items()
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_results_and_errors_equal_dali(program: Any, raises: Raises | None) -> None:
    assert_same(program, raises=raises)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
@pytest.mark.parametrize("perm", [[2, 0, 1], [1, 0, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]])
def test_transpose_of_every_type(dtype: str, perm: list[int]) -> None:
    for shape in ((5, 6, 3), (33, 70, 3), (40, 50, 17), (3, 33, 47), (2, 300, 5)):
        assert_same(lambda m, shape=shape: m.transpose(array(m, *shape, dtype=dtype), perm=perm))


def test_deliberate_differences() -> None:
    assert ndd.squeeze(flat(ndd), axes=[-2]).shape == (1, 3, 2)
    with pytest.raises(RuntimeError):
        evaluate(lambda m: m.squeeze(flat(m), axes=[4]), ndd)
    assert ndd.reshape(hwc(ndd), src_dims=[0, 1, -1, 2]).shape == (2, 3, 1, 2)
    with pytest.raises(RuntimeError, match="a number cannot be taken for items of another size"):
        ndd.reinterpret(ndd.tensor(1.0), dtype=ndd.uint8)
    assert ndd.reshape(array(ndd, 0, 3), shape=[3, 0]).shape == (3, 0)
    assert ndd.stack(b(ndd), b(ndd), axis=-3).shape == (2, 2, 3)
    assert ndd.cat(array(ndd, 0, 3), array(ndd, 0, 3), axis=1).shape == (0, 6)
    with pytest.raises(TypeError, match="'shape' takes integers"):
        ndd.reshape(hw(ndd), shape=[4.5, 3])
