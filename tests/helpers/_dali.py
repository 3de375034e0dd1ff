# SPDX-License-Identifier: Apache-2.0
"""The same program under DALI and torch_ndd. A test module that imports this is skipped where DALI is missing."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from _raises import Raises, catch_error, type_of
from PIL import Image

dali = pytest.importorskip("nvidia.dali.experimental.dynamic")

import torch_ndd as ndd  # noqa: E402

Program = Callable[[Any], Any]  # takes a module: dali or ndd


def _make_damaged() -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(3).integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(file, "PNG")
    data = np.frombuffer(bytearray(file.getvalue()), np.uint8)
    begin = file.getvalue().index(b"IDAT") + 4
    data[begin : begin + 64] = 0
    return data


DAMAGED = _make_damaged()
"""An image with a valid header and undecodable data, which fails only when the work runs."""


@dataclass
class Result:
    """The result of a program."""

    samples: list[np.ndarray]
    is_batch: bool
    layout: str | None

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [sample.shape for sample in self.samples]

    @property
    def dtypes(self) -> list[np.dtype]:
        return [sample.dtype for sample in self.samples]


def evaluate(program: Program, module: ModuleType) -> Result:
    """Return the result of a program."""
    value = program(module)
    is_batch = hasattr(value, "batch_size")
    return Result([np.asarray(sample) for sample in (value.tensors if is_batch else [value])], is_batch, value.layout)


def evaluate_both(program: Program) -> tuple[Result, Result]:
    """Return torch_ndd's result and DALI's."""
    return evaluate(program, ndd), evaluate(program, dali)


def assert_raises(program: Program, raises: Raises | None, evaluate: Callable[[Program, ModuleType], Any] = evaluate) -> None:
    """Check that both raise an error of exactly the type, at the call or when the result is read. A pattern is for torch_ndd's message."""
    assert raises is not None
    catch_error(lambda: evaluate(program, ndd), raises)
    catch_error(lambda: evaluate(program, dali), type_of(raises))


def assert_equal(program: Program, raises: Raises | None = None) -> None:
    """Check that a program that returns plain values returns equal ones, or that both raise ``raises``."""
    if raises is not None:
        assert_raises(program, raises, lambda program, module: program(module))
    else:
        ours = program(ndd)
        assert ours == program(dali)


def assert_alike(program: Program, raises: Raises | None = None) -> tuple[Result, Result] | None:
    """Check that everything but the values is equal, and return both results; or check that both raise ``raises``, and return None."""
    if raises is not None:
        return assert_raises(program, raises)
    ours, theirs = evaluate_both(program)
    assert (ours.shapes, ours.dtypes, ours.is_batch, ours.layout) == (theirs.shapes, theirs.dtypes, theirs.is_batch, theirs.layout)
    return ours, theirs


def assert_same(program: Program, tolerance: float = 0.0, absolute: float = 0.0, raises: Raises | None = None) -> None:
    """Check that everything is equal, or that both raise ``raises``. ``tolerance`` is relative."""
    if (results := assert_alike(program, raises)) is not None:
        for ours, theirs in zip(results[0].samples, results[1].samples, strict=True):
            np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=tolerance, atol=absolute)


def with_dtype(module: ModuleType, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with ``dtype``, a name, replaced by the module's type."""
    return {key: getattr(torch if module is ndd else dali, value) if key == "dtype" else value for key, value in args.items()}


def farthest(value: np.ndarray, other: np.ndarray) -> float:
    """Return the largest distance between the two distribution functions: the Kolmogorov-Smirnov statistic."""
    points = np.union1d(value, other)
    below = [np.searchsorted(np.sort(values), points, side="right") / len(values) for values in (value, other)]
    return float(np.abs(below[0] - below[1]).max())
