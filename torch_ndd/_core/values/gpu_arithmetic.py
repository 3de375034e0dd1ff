# SPDX-License-Identifier: Apache-2.0
"""Plans of arithmetic on a GPU: from the third equal operation on dense operands on, one native call launches the kernel on the context's stream."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd import profiler

from .. import native
from ..work.cuda_work import StreamWork
from .native_plan import FITS, NOT_ONE_CALL, OUTPUT, RELEASE, ROWS, WHOLE, keep_call, launch_in_one_call

KERNEL = native.kernel("arithmetic")
_MAX_PLANS = 1024  # more keys come from shapes that change with each call


class _Plan(NamedTuple):
    handle: int  # of native code
    owner: Any  # releases the handle


# None: the operation has been computed once. Numbers are operands too, so that a plan serves all numbers of a type.
_plans: dict[Any, _Plan | None] = {}


def kernel_tensors(values: Sequence[Any]) -> list[torch.Tensor | None]:
    """Return values and shapes of three operands, as the kernel takes them."""
    tensors: list[torch.Tensor | None] = []
    for value in values:
        # The kernel takes batches only: a Tensor is one of a single sample, which is broadcast.
        if value._is_batch:
            tensors += value.buffer, value.ragged_shapes
        else:
            tensors += value.buffer[None] if value._row is None else value._row, None
    return tensors + [None] * (6 - len(tensors))


def _find_key(operation: str, values: Sequence[Any], device: torch.device) -> tuple[Any, ...]:
    """Return what a plan depends on: everything but the number of samples."""
    key = [operation, device.index]
    for value in values:
        buffer = value.buffer
        key += (True, buffer.dtype, buffer.shape[1:]) if value._is_batch else (False, buffer.dtype, buffer.shape)
    return tuple(key)


def launch_again(operation: str, values: Sequence[Any], device: torch.device, sources: Sequence[str]) -> tuple[torch.Tensor, StreamWork] | None:
    """Return the result and its work; None if the operation has no plan, or its operands are not simply there."""
    plan = _plans.get(_find_key(operation, values, device))
    if plan is None or profiler._is_profiler_enabled:  # a profile shows the names of kernels, which a plan hides
        return None
    launched = launch_in_one_call(plan.handle, device.index, values, kernel_tensors(values)[: 2 * len(values) : 2], sources)
    return None if launched is NOT_ONE_CALL or launched[0] is None else launched


def learn(operation: str, values: Sequence[Any], device: torch.device, arguments: Sequence[Any]) -> None:
    """Note an operation that was launched, and build a plan if it is the second one. ``arguments``: those of the kernel."""
    key, output = _find_key(operation, values, device), arguments[-2]
    if key not in _plans:
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        _plans[key] = None
    elif _plans[key] is None and output.numel():
        places = [(len(arguments) - 2, WHOLE, OUTPUT), *[(2 * k, WHOLE, k) for k in range(len(values))]]
        fits = [FITS["any_rows" if value._is_batch else "equal_shape"] for value in values]
        handle = keep_call(KERNEL, arguments, places, fits, -1, ROWS["by_tensors"], None)
        if handle is not None:
            _plans[key] = _Plan(handle, native.own(handle, RELEASE, False))
