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
from PIL import Image

dali = pytest.importorskip("nvidia.dali.experimental.dynamic")

import torch_ndd as ndd  # noqa: E402

Program = Callable[[Any], Any]  # takes a module: dali or ndd


def _damaged() -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(3).integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(file, "PNG")
    data = np.frombuffer(bytearray(file.getvalue()), np.uint8)
    begin = file.getvalue().index(b"IDAT") + 4
    data[begin : begin + 64] = 0
    return data


DAMAGED = _damaged()
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


def outcome(program: Program, module: ModuleType) -> Result | type[Exception]:
    """Return the result, or the type of the error, raised at the call or when the result is read."""
    try:
        made = program(module)
        is_batch = hasattr(made, "batch_size")
        return Result([np.asarray(one) for one in (made.tensors if is_batch else [made])], is_batch, made.layout)
    except Exception as error:
        return type(error)


def outcomes(program: Program) -> tuple[Result, Result] | None:
    """Return torch_ndd's result and DALI's; None if both failed with the same type of error."""
    ours, theirs = outcome(program, ndd), outcome(program, dali)
    if isinstance(ours, type) or isinstance(theirs, type):
        assert ours == theirs
        return None
    return ours, theirs


def assert_alike(program: Program) -> tuple[Result, Result] | None:
    """Check that everything but the values is equal, and return :func:`outcomes`."""
    if (results := outcomes(program)) is not None:
        ours, theirs = results
        assert (ours.shapes, ours.dtypes, ours.is_batch, ours.layout) == (theirs.shapes, theirs.dtypes, theirs.is_batch, theirs.layout)
    return results


def assert_same(program: Program, tolerance: float = 0.0) -> None:
    """Check that everything is equal; ``tolerance`` is relative."""
    if (results := assert_alike(program)) is not None:
        for one, other in zip(results[0].samples, results[1].samples, strict=True):
            np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=tolerance)


def with_dtype(module: ModuleType, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with ``dtype``, a name, replaced by the module's type."""
    return {key: getattr(torch if module is ndd else dali, value) if key == "dtype" else value for key, value in args.items()}
