# SPDX-License-Identifier: Apache-2.0
"""Whether a graph is being traced."""

from torch import compiler
from torch._guards import detect_fake_mode
from torch.compiler import is_dynamo_compiling


def is_compiling() -> bool:
    """Return whether this thread traces a graph.

    ``torch.compiler.is_compiling()`` is of the process: since torch 2.14 it is also true on a loader's thread while the program compiles its step.
    """
    if is_dynamo_compiling():
        return True
    # torch.export without Dynamo, and what compilers call: there fake tensors stand for the inputs.
    return compiler._is_compiling_flag and detect_fake_mode() is not None
