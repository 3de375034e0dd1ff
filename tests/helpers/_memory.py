# SPDX-License-Identifier: Apache-2.0
"""The memory of this process."""

import os
from pathlib import Path


def resident_bytes() -> int:
    """Return how many bytes of this process are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def resident_kilobytes() -> int:
    """Return the same in units of 1024 bytes."""
    return resident_bytes() // 1024
