# SPDX-License-Identifier: Apache-2.0
"""Calls that no case lists: the cases of an operator, changed at random. The CPU kernel against the emulated CUDA kernel.

A case becomes another call by windows of its samples (empty ones too, the same for all samples or not), other types, arguments of the operator's
other cases, other numbers, and numbers for each sample. Both kernels have to return equal results, or an error of the same type: where several
samples are wrong, each kernel may name another one. ``NDD_RANDOM_CALLS`` is the
number of calls of each operator (by default 40), ``NDD_RANDOM_SEED`` the seed. `make emulated-cuda` runs this with emulated_plugin.
"""

import os
import random
import zlib
from dataclasses import replace
from typing import Any

import emulated_plugin
import numpy as np
import pytest
from _cases import Case, Each, Samples
from test_operators import CASES

from torch_ndd import EvalMode
from torch_ndd.testing._properties import values

CALLS, SEED = int(os.environ.get("NDD_RANDOM_CALLS", "40")), int(os.environ.get("NDD_RANDOM_SEED", "0"))
DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float16", "float32", "float64", "bool")
ROUNDINGS = {"float16": 4e-3, "float32": 3e-5, "float64": 3e-5}  # of the largest element: the kernels add in other orders
# They resample bytes with weights of 14 bits before they normalize: a level more or less.
NORMALIZED_LEVELS = ("random_resized_crop", "resize_crop_mirror")
BY_OPERATOR: dict[str, list[Case]] = {}
for _case in CASES:
    if _case.definition.kernel is not None:
        BY_OPERATOR.setdefault(_case.operator, []).append(_case)

Window = tuple[slice, ...]


def draw_window(draw: random.Random, shape: tuple[int, ...]) -> Window:
    """Return a part of a sample: some axes are cut, few to nothing."""
    window = []
    for extent in shape:
        begin, end = sorted(draw.choices(range(extent + 1), k=2)) if draw.random() < 0.4 else (0, extent)
        if begin == end and draw.random() < 0.7:
            begin, end = max(0, begin - 1), max(min(1, extent), end)
        window.append(slice(begin, end))
    return tuple(window)


def cut_samples(draw: random.Random, inputs: tuple[Samples, ...]) -> tuple[Samples, ...]:
    """Cut a window out of each sample, the same in all inputs of as many dimensions."""
    shared, windows = draw.random() < 0.5, dict[Any, Window]()
    result = []
    for samples in inputs:
        cut = []
        for i, sample in enumerate(samples):
            window = windows.setdefault((sample.ndim, 0 if shared else i), draw_window(draw, sample.shape))
            cut.append(np.ascontiguousarray(sample[window]) if sample.ndim else sample)
        result.append(cut)
    return tuple(result)


def change_number(draw: random.Random, number: Any) -> Any:
    """Return another number of the same type, often of the same magnitude."""
    if isinstance(number, bool):
        return not number
    if isinstance(number, int):
        return number + draw.choice((-3, -1, 0, 0, 1, 2, 5))
    return draw.choice((number, number * draw.uniform(0.5, 1.5), -number, 0.0, float(round(number)), number + draw.uniform(-1, 1)))


def change_argument(draw: random.Random, value: Any, count: int) -> Any:
    """Return another value of an argument, or one for each of ``count`` samples."""
    if isinstance(value, Each):
        return Each([change_argument(draw, single, count) for single in value.values])
    if isinstance(value, list) and all(isinstance(number, bool | int | float) for number in value):
        return [change_number(draw, number) for number in value]
    if not isinstance(value, bool | int | float):
        return value
    return Each([change_number(draw, value) for _ in range(count)]) if draw.random() < 0.2 else change_number(draw, value)


def change_case(draw: random.Random, cases: list[Case]) -> Case:
    """Return a call that is like those of ``cases``."""
    case = draw.choice(cases)
    inputs = case.inputs(case.ragged and draw.random() < 0.5)
    if inputs and draw.random() < 0.8:
        inputs = cut_samples(draw, inputs)
    if inputs and draw.random() < 0.3:
        dtype = draw.choice(DTYPES)
        with np.errstate(all="ignore"):
            inputs = ([sample.astype(dtype) for sample in inputs[0]], *inputs[1:])
    count = len(inputs[0]) if inputs else case.batch_size
    args = dict(case.args)
    if draw.random() < 0.3:
        others = draw.choice(cases).args
        args.update((name, others[name]) for name in others if draw.random() < 0.7)
    if args and draw.random() < 0.15:
        del args[draw.choice(sorted(args))]
    for name in args:
        if draw.random() < 0.3:
            args[name] = change_argument(draw, args[name], count)
    return replace(case, inputs=lambda _: inputs, args=args)


def find_outcome(case: Case) -> list[np.ndarray] | str:
    """Return the results of a call, or its error."""
    try:
        with EvalMode.sync_cpu:
            return values(case.run())
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as error:
        return f"{type(error).__name__}: {error}"


def describe_difference(theirs: np.ndarray, ours: np.ndarray, tolerance: float) -> str:
    """Return how two results differ; an empty string if they are equal up to rounding."""
    if (theirs.dtype, theirs.shape) != (ours.dtype, ours.shape):
        return f"{theirs.dtype} {theirs.shape} instead of {ours.dtype} {ours.shape}"
    found, expected = theirs.astype(np.float64), ours.astype(np.float64)
    scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=1.0))
    # A float32 holds the integers of 32 bits to 1e-7.
    allowed = max(tolerance, 1.0, 3e-7 * scale) if ours.dtype.kind in "iub" else max(tolerance, ROUNDINGS[ours.dtype.name] * scale)
    with np.errstate(invalid="ignore"):
        near = (found == expected) | (np.abs(found - expected) <= allowed) | (np.isnan(found) & np.isnan(expected))
    if near.all():
        return ""
    return f"{(~near).sum()} of {near.size} elements differ, the first {found[~near][0]} instead of {expected[~near][0]}"


def find_tolerance(case: Case) -> float:
    """Return how far the results of a call may be apart."""
    if case.operator not in NORMALIZED_LEVELS:
        return case.tolerance
    deviations = case.args.get("std", 1.0)
    numbers = np.abs(np.asarray(deviations.values if isinstance(deviations, Each) else deviations, np.float64))
    return max(case.tolerance, 1.0 / max(float(numbers.min()), 1e-3))


def describe_call(case: Case) -> str:
    """Return the inputs and arguments of a call."""
    inputs = [(samples[0].dtype.name, [sample.shape for sample in samples]) for samples in case.inputs(False)]
    return f"{case.operator} (of {case.id!r}), layout {case.layout}, inputs {inputs}, arguments {case.args}"


@pytest.mark.parametrize("operator", BY_OPERATOR)
def test_random_calls_on_both(operator: str) -> None:
    draw = random.Random(zlib.crc32(operator.encode()) + SEED)
    for _ in range(CALLS):
        case = change_case(draw, BY_OPERATOR[operator])
        with emulated_plugin.on_cpu():
            expected = find_outcome(case)
        found = find_outcome(case)
        if isinstance(found, str) or isinstance(expected, str):
            assert isinstance(found, str), f"{describe_call(case)}: no error, but {expected} on the CPU"
            assert isinstance(expected, str), f"{describe_call(case)}: {found}, but none on the CPU"
            assert found.partition(":")[0] == expected.partition(":")[0], f"{describe_call(case)}: {found}, but {expected} on the CPU"
            continue
        for theirs, ours in zip(found, expected, strict=True):
            difference = describe_difference(theirs, ours, find_tolerance(case))
            assert not difference, f"{describe_call(case)}: {difference}"
