# SPDX-License-Identifier: Apache-2.0
"""Whether a graph is being traced."""

import torch
from torch._guards import detect_fake_mode


def is_compiling() -> bool:
    """Return whether this thread traces a graph.

    ``torch.compiler.is_compiling()`` is of the process: since torch 2.14 it is also true on a loader's thread while the program compiles its step.
    """
    if torch.compiler.is_dynamo_compiling():
        return True
    # torch.export without Dynamo, and what compilers call: there fake tensors stand for the inputs.
    return torch.compiler._is_compiling_flag and detect_fake_mode() is not None
