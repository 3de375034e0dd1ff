# SPDX-License-Identifier: Apache-2.0
"""Whether a graph is being traced."""

import torch
from torch import compiler
from torch._C import _get_dispatch_mode, _len_torch_dispatch_stack, _TorchDispatchModeKey  # type: ignore[attr-defined]
from torch._guards import detect_fake_mode
from torch.compiler import is_dynamo_compiling

is_jit_tracing = torch._C._is_tracing  # type: ignore[attr-defined]  # whether torch.jit.trace records the calls of this thread

# Of FakeTensorMode, make_fx and functionalization.
_TRACERS = (_TorchDispatchModeKey.FAKE, _TorchDispatchModeKey.PROXY, _TorchDispatchModeKey.FUNCTIONAL)


def is_compiling() -> bool:
    """Return whether this thread traces a graph, or computes shapes with fake tensors.

    ``torch.compiler.is_compiling()`` is of the process: since torch 2.14 it is also true on a loader's thread while the program compiles its step.
    """
    if is_dynamo_compiling():
        return True
    # It takes 45 ns, and there is seldom a mode.
    if _len_torch_dispatch_stack() and any(_get_dispatch_mode(key) is not None for key in _TRACERS):
        return True
    # torch.export without Dynamo, and what compilers call: there fake tensors stand for the inputs.
    return compiler._is_compiling_flag and detect_fake_mode() is not None


def refuses_real_tensors() -> bool:
    """Return whether the mode of fake tensors in which this thread traces takes no others, as outside of ``torch.compile`` and ``torch.export``."""
    if is_dynamo_compiling():
        return False
    mode = _get_dispatch_mode(_TorchDispatchModeKey.FAKE)
    return mode is not None and not mode.allow_non_fake_inputs
