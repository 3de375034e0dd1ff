# SPDX-License-Identifier: Apache-2.0
"""Kernels that are launched without an operator's body: from the third equal launch on a GPU on, one native call does it on the context's stream.

The kernels that mix the images of a batch take the host 30 us by a plan, and 65 to 93 by :func:`dispatch.run`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.autograd import profiler

from .. import native
from ..native.tracing import is_compiling
from ..work.pending import Pending
from ..work.sources import UNKNOWN
from .dispatch import output, run
from .native_plan import FITS, NOT_ONE_CALL, OUTPUT, ROWS, WHOLE, NativePlan, keep_call, launch_in_one_call
from .operand import Operand

_MAX_PLANS = 1024  # more keys come from shapes that change with each call


class RepeatedKernel:
    """A kernel and the plans of its launches on GPUs, by keys of everything that the plans depend on."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self._plans: dict[Any, NativePlan | None] = {}  # None: launched once

    def launch_again(
        self, key: Any, device: int, operands: Sequence[Operand], tensors: Sequence[torch.Tensor | None], sources: Sequence[str] = UNKNOWN
    ) -> Any:
        """Launch the plan stored under a key. Return the output and its pending work, or None without a plan that one native call can launch."""
        plan = self._plans.get(key)
        if plan is None or profiler._is_profiler_enabled:  # a profile shows the names of kernels, which a plan hides
            return None
        launched = launch_in_one_call(plan.handle, device, operands, tensors, sources)
        return None if launched is NOT_ONE_CALL or launched[0] is None else launched

    def learn(self, key: Any, arguments: Sequence[Any], out: int, fits: Mapping[int, int]) -> None:
        """Note a launch, and build a plan if it is the second one.

        Args:
            key: What the plan depends on.
            arguments: Those of the kernel.
            out: The index of the output in them.
            fits: By the indices of the tensors that later launches get, which sizes these may have: one of ``FITS``.
        """
        if key not in self._plans:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            self._plans[key] = None
        elif self._plans[key] is None and arguments[out].numel():
            places = [(out, WHOLE, OUTPUT), *[(place, WHOLE, k) for k, place in enumerate(fits)]]
            self._plans[key] = keep_call(self.kernel, arguments, places, [*fits.values()], -1, ROWS["by_tensors"], None)

    def run(self, arguments: Sequence[Any], sources: Sequence[tuple[Operand, int]], dtype: torch.dtype) -> tuple[torch.Tensor, Pending | None]:
        """Run a kernel whose tensors all have a row for each sample, and whose output comes last and has the shape of the first argument.

        Return the output, of type ``dtype``, and the work that fills it.

        Args:
            arguments: Of the kernel, without the output. Tensors of the host are not written to before the work has ended. What is not a tensor has
                plans of its own.
            sources: The values behind the other tensors, each with the sample that is read, as :func:`dispatch.run` takes them.
            dtype: Type of the output.
        """
        first = arguments[0]
        repeats = first.is_cuda and not is_compiling()
        key = None
        if repeats:
            key = (first.device, dtype, *[(a.dtype, a.shape[1:]) if isinstance(a, torch.Tensor) else (type(a), a) for a in arguments])
            tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor)]
            launched = self.launch_again(key, first.device.index, [operand for operand, _ in sources], tensors)
            if launched is not None:
                return launched
        out = output(native.empty, first.shape, dtype, first.device)
        pending = run(self.kernel, (*arguments, out), sources, out)
        if repeats:
            places = [place for place, argument in enumerate(arguments) if isinstance(argument, torch.Tensor)]
            self.learn(key, (*arguments, out), len(arguments), dict.fromkeys(places, FITS["any_rows"]))
        return out, pending
