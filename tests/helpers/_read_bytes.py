# SPDX-License-Identifier: Apache-2.0
"""How much a program reads from files."""

from pathlib import Path

import pytest


def count_read_bytes() -> int:
    """Return the bytes that this process has read by system calls, on all threads."""
    counters = Path("/proc/self/io")
    if not counters.exists():
        pytest.skip("needs Linux's counters of a process")
    return int(counters.read_text().split()[1])
