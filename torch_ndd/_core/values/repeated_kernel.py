# SPDX-License-Identifier: Apache-2.0
"""Kernels that functions launch themselves, without an operator's body: from the second launch on a GPU on, one native call does it.

The kernels that mix the images of a batch take the host 30 us by a plan, and 65 to 93 by :func:`dispatch.run`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd import profiler

from .. import native
from ..native.tracing import is_compiling
from ..work.pending import Pending
from ..work.sources import UNKNOWN
from .dispatch import output, run
from .native_plan import FITS, NOT_ONE_CALL, OUTPUT, RELEASE, ROWS, WHOLE, keep_call, launch_in_one_call
from .operand import Operand

_MAX_PLANS = 256  # more keys come from shapes that change with each call


class _Plan(NamedTuple):
    handle: int  # of native code
    owner: Any  # releases the handle


class RepeatedKernel:
    """A kernel whose tensors all have a row for each sample, and whose output comes last and has the shape of its first argument.

    Args:
        kernel: It must get everything that changes from call to call as a tensor; whatever else it gets has plans of its own.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._plans: dict[Any, _Plan] = {}

    def run(self, arguments: Sequence[Any], sources: Sequence[tuple[Operand, int]], dtype: torch.dtype) -> tuple[torch.Tensor, Pending | None]:
        """Run the kernel and return its output, of type ``dtype``, and the work that fills it.

        Args:
            arguments: Of the kernel, without the output. Those that are tensors of the host are not written to before the work has ended.
            sources: The values behind the other tensors, each with the sample that is read, as :func:`dispatch.run` takes them.
            dtype: Type of the output.
        """
        first = arguments[0]
        repeats = first.is_cuda and not is_compiling() and not profiler._is_profiler_enabled  # a plan hides the names of kernels
        key, plan = None, None
        if repeats:
            key = (first.device, dtype, *[(a.dtype, a.shape[1:]) if isinstance(a, torch.Tensor) else (type(a), a) for a in arguments])
            plan = self._plans.get(key)
        if plan is not None:
            tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
            launched = launch_in_one_call(plan.handle, first.device.index, [operand for operand, _ in sources], tensors, UNKNOWN)
            if launched is not NOT_ONE_CALL and launched[0] is not None:
                return launched
        out = output(native.empty, first.shape, dtype, first.device)
        pending = run(self._kernel, (*arguments, out), sources, out)
        if repeats and plan is None and out.numel():
            self._learn(key, arguments, out)
        return out, pending

    def _learn(self, key: Any, arguments: Sequence[Any], out: torch.Tensor) -> None:
        tensors = [place for place, argument in enumerate(arguments) if isinstance(argument, torch.Tensor)]
        places = [(len(arguments), WHOLE, OUTPUT), *[(place, WHOLE, k) for k, place in enumerate(tensors)]]
        handle = keep_call(self._kernel, (*arguments, out), places, [FITS["any_rows"]] * len(tensors), -1, ROWS["by_tensors"], None)
        if handle is None:
            return
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        self._plans[key] = _Plan(handle, native.own(handle, RELEASE, False))
