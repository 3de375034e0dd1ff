# SPDX-License-Identifier: Apache-2.0
"""The interpolation types of operators that resample."""

import functools
from typing import Any

import torch


def filters_of(op: str, interp_type: Any, min_filter: Any, mag_filter: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the kernels for reduction and enlargement, as int32 rows."""
    reduce = ("interp_type", interp_type) if min_filter is None else ("min_filter", min_filter)
    enlarge = ("interp_type", interp_type) if mag_filter is None else ("mag_filter", mag_filter)
    return _filter_rows(op, *reduce), _filter_rows(op, *enlarge)


def _filter_rows(op: str, argument: str, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        return (_filter_constant if torch.compiler.is_compiling() else _cached_filter)(op, argument, int(value))
    if not torch.compiler.is_compiling():
        known = value.to(torch.float64)
        # Written so that NaN is wrong as well.
        wrong = value[~((known >= 0) & (known <= 5))]
        if len(wrong):
            raise _unknown_filter(op, argument, wrong.flatten()[0].item())
    return value


def _filter_constant(op: str, argument: str, number: int) -> torch.Tensor:
    if not 0 <= number <= 5:
        raise _unknown_filter(op, argument, number)
    return torch.tensor([number], dtype=torch.int32)


_cached_filter = functools.cache(_filter_constant)


def _unknown_filter(op: str, argument: str, value: object) -> RuntimeError:
    return RuntimeError(f"{op}: {argument} is not one of the interpolation types 0 to 5: {value}")
