# SPDX-License-Identifier: Apache-2.0
"""Native plans: kernel calls that ``ndd::again`` (csrc/ndd/stream/repeat.cpp) runs on other tensors."""

import ctypes
from collections.abc import Sequence
from itertools import chain
from typing import Any

from .library import address, c_function, numbers

_begin_plan = c_function("ndd_plan")
_end_plan = c_function("ndd_plan_made")
_own = c_function("ndd_own")
_RELEASE = address(c_function("ndd_plan_release"))

OUTPUT = numbers("plan.Place")["output_place"]
"""The place of the output in :func:`build`."""


def build(kernel: Any, arguments: Sequence[Any], places: Sequence[tuple[int, int]], any_size: Sequence[bool], previous: int | None) -> int | None:
    """Return the handle of a plan; None for a kernel that takes a list of tensors.

    Args:
        kernel: Is not run.
        arguments: Its arguments in one call. The plan keeps those that have no place.
        places: Arguments that differ from call to call: the index of the argument, and that of the tensor in later calls, or ``OUTPUT``.
        any_size: For each tensor of later calls, whether it may have any size.
        previous: The handle of a plan for other shapes, which native code tries as well.
    """
    # Between the two functions the library captures the arguments of this thread's next kernel call instead of running it: torch's dispatcher
    # converts them exactly as it does for a real call.
    try:
        _begin_plan((ctypes.c_int64 * (2 * len(places)))(*chain(*places)), len(places), (ctypes.c_int64 * len(any_size))(*any_size), len(any_size))
        kernel(*arguments)
    finally:
        handle = _end_plan(previous)
    return handle


def own(handle: int) -> Any:
    """Return an object that releases a plan when it is destroyed."""
    return _own(handle, _RELEASE, False)
