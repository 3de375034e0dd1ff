# SPDX-License-Identifier: Apache-2.0
"""NumPy's numbers as constants: alone, in lists and as arrays they mean what Python's mean, in every argument of every operator."""

from typing import Any

import numpy as np
import pytest
import torch
from _all_cases import CASES
from _cases import Case, Each

import torch_ndd as ndd
from torch_ndd._core.operators.arguments import Role

Row = tuple[Case, str]


def is_number(value: Any) -> bool:
    return type(value) in (int, float)


def find_rows() -> dict[str, list[Row]]:
    """Return a case for each constant of each operator that is a number or a list of numbers."""
    rows: dict[str, dict[tuple[str, type], Row]] = {}
    for case in CASES:
        if case.call is not None or any(isinstance(value, Each) for value in case.args.values()):
            continue
        for name, value in case.args.items():
            numbers = value if isinstance(value, list | tuple) else [value]
            if case.definition.arguments[name].role in (Role.plain, Role.body) and numbers and all(map(is_number, numbers)):
                rows.setdefault(case.operator, {}).setdefault((name, type(value)), (case, name))
    return {operator: list(chosen.values()) for operator, chosen in rows.items()}


ROWS = find_rows()


def in_numpy(value: Any) -> list[Any]:
    """Return the forms of a constant."""
    if isinstance(value, list | tuple):
        return [np.array(value), [np.array(number)[()] for number in value], tuple(np.array(number)[()] for number in value)]
    return [np.array(value), np.array(value)[()]]


def run(case: Case, **changes: Any) -> list[torch.Tensor]:
    return [sample.torch() for result in case.run(**changes) for sample in result.tensors]


@pytest.mark.parametrize("operator", ROWS)
def test_constants_of_numpy_equal_those_of_python(operator: str) -> None:
    for case, name in ROWS[operator]:
        expected = run(case)
        changed = Case(case.operator, case.id, case.inputs, {key: value for key, value in case.args.items() if key != name}, case.layout)
        for value in in_numpy(case.args[name]):
            results = run(changed, **{name: value})
            assert len(results) == len(expected), f"{name}={value!r}"
            for result, other in zip(results, expected, strict=True):
                torch.testing.assert_close(result, other, rtol=0, atol=0, equal_nan=True, msg=f"{name}={value!r}")


def test_whole_floats_are_integers() -> None:
    signal = torch.rand(400)
    length = 2 ** np.ceil(np.log2(400))
    assert ndd.power_spectrum(signal, nfft=length).shape == (257,)
    assert ndd.mel_filter_bank(torch.rand(257, 3), nfilter=np.float32(20)).shape == (20, 3)


def test_arrays_of_one_number_are_numbers() -> None:
    assert ndd.power_spectrum(torch.rand(400), nfft=np.array([512])).shape == (257,)
    assert ndd.mel_filter_bank(torch.rand(257, 3), nfilter=np.array([20])).shape == (20, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ndd.power_spectrum(torch.rand(400), nfft=512.5), "nfft must be an int, got 512.5"),
        (lambda: ndd.reductions.mean(torch.rand(2, 3), axes=np.array([0.5])), "axes must be ints"),
        (lambda: ndd.reductions.mean(torch.rand(2, 3), axes=np.array([True])), "axes must be ints"),
        (lambda: ndd.reductions.mean(torch.rand(2, 3), axes=np.array(["1"])), "axes must be ints"),
        (lambda: ndd.cat(torch.rand(2, 3), torch.rand(2, 3), axis=np.array([0, 1])), "'axis' must be int, got array"),
        (lambda: ndd.cat(torch.rand(2, 3), torch.rand(2, 3), axis=np.float32(0.5)), "'axis' must be int"),
    ],
)
def test_other_values_of_numpy_are_refused(call: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()
