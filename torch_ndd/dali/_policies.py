# SPDX-License-Identifier: Apache-2.0
"""Options of pipelines: enumerations without an effect here, and declarations about outputs."""

import enum
from collections.abc import Callable
from typing import Any

from . import types


class StreamPolicy(enum.Enum):
    """DALI's assignment of CUDA streams to operators; no effect here."""

    UNSPECIFIED = 0
    SINGLE = 1
    PER_BACKEND = 2
    PER_OPERATOR = 3


class OperatorConcurrency(enum.Enum):
    """The operators that DALI runs at the same time; no effect here."""

    UNSPECIFIED = 0
    NONE = 1
    BACKEND = 2
    FULL = 3


def checked_list(argument: str, value: Any, check: Callable[[str, Any], Any]) -> Any:
    """Return a declaration about all outputs, or a list with one for each output; None declares nothing."""
    if isinstance(value, list | tuple):
        return [None if declaration is None else check(argument, declaration) for declaration in value]
    return None if value is None else check(argument, value)


def dtype_of(argument: str, value: Any) -> types.DALIDataType:
    """Return an element type. Raise TypeError for other values, ValueError for ``NO_TYPE``."""
    if not isinstance(value, types.DALIDataType):
        raise TypeError(f"Pipeline: {argument} must be a member of DALIDataType, got {value!r}")
    if value is types.NO_TYPE:
        raise ValueError(f"Pipeline: {argument} must not be NO_TYPE; None declares nothing")
    return value


def ndim_of(argument: str, value: Any) -> int:
    """Return a number of dimensions. Raise TypeError unless it is an int, ValueError if it is negative."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"Pipeline: {argument} must be an int, got {value!r}")
    if value < 0:
        raise ValueError(f"Pipeline: {argument} must not be negative, got {value}")
    return value


def layout_of(argument: str, value: Any) -> str:
    """Return a layout. Raise TypeError unless it is a string."""
    if not isinstance(value, str):
        raise TypeError(f"Pipeline: {argument} must be a string, got {value!r}")
    return value
