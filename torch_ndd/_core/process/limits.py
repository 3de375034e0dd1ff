# SPDX-License-Identifier: Apache-2.0
"""Limits on the memory that a file may request. An argument sets one for a call, an environment variable for the process."""

import operator
import os
from typing import Any

from .. import native

MAX_SAMPLE_BYTES = 1 << 32
"""By default: 50 s of full HD video, six hours of stereo sound."""


def max_sample_bytes(op: str, value: Any = None) -> int:
    """Return the limit for an argument ``max_sample_bytes``. Raise TypeError or ValueError naming the operator for an invalid one."""
    return limit(op, "max_sample_bytes", value, MAX_SAMPLE_BYTES)


def limit(op: str, name: str, value: Any, default: int) -> int:
    """Return the limit for an argument; if it is None, that of the environment variable ``TORCH_NDD_`` and its name, or the default.

    >>> limit("decoders.video", "max_sample_bytes", None, 7), limit("decoders.video", "max_sample_bytes", 5, 7)
    (7, 5)
    """
    source = f"{op}: {name}"
    if value is None:
        variable = f"TORCH_NDD_{name.upper()}"
        text = os.environ.get(variable)
        if not text:
            return default
        # int() would also accept underscores and a sign.
        if not text.strip().isdecimal():
            raise ValueError(f"the environment variable {variable} must be an integer, got {text!r}")
        source, value = f"the environment variable {variable}", int(text)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{source} must be an int, got {value!r}")
    if operator.index(value) < 1:
        raise ValueError(f"{source} must be positive, got {value}")
    return operator.index(value)


def check_sample(what: str, size: int, max_bytes: int) -> None:
    """Raise RuntimeError for a sample of more bytes than ``max_sample_bytes``, and MemoryError for more than the available memory."""
    if size > max_bytes:
        raise RuntimeError(
            f"{what} {size} bytes, more than max_sample_bytes={max_bytes}, the guard against small files that promise a lot of data; "
            "pass a larger max_sample_bytes, or set TORCH_NDD_MAX_SAMPLE_BYTES"
        )
    native.check_memory(size, what)
