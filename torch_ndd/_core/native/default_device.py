# SPDX-License-Identifier: Apache-2.0
"""Independence of torch's default device: of ``torch.set_default_device("cuda")`` and ``with torch.device("cuda")``."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from torch._C import _len_torch_function_stack

from .memory import CPU
from .tracing import is_compiling

F = TypeVar("F", bound=Callable[..., Any])

# The number of modes that torch's functions run in, 0 without a default device. It takes 45 ns.
may_have_default_device = _len_torch_function_stack


def ignore_default_device(function: F) -> F:
    """Decorate a function to create its tensors on the CPU, where kernels of the CPU expect them, unless it names another device."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not may_have_default_device():
            return function(*args, **kwargs)
        with CPU:
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]
