# SPDX-License-Identifier: Apache-2.0
"""Caches without what a program left there: in training the model runs between two batches, and has them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np

_CPUS = Path("/sys/devices/system/cpu")
# Where the system does not tell: more than the caches of most servers have for a core.
_UNKNOWN = 16 << 20
# Caches keep some lines that have been used often, so more is swept than they hold.
_TIMES = 4


def bytes_of_caches(cpu: int, cpus: Path = _CPUS) -> int:
    """This core's part of the data caches that it has alone or with others."""
    total = 0
    for cache in sorted((cpus / f"cpu{cpu}" / "cache").glob("index*")):
        try:
            size, kind = (cache / "size").read_text().strip(), (cache / "type").read_text().strip()
            sharing = len(_numbers((cache / "shared_cpu_list").read_text()))
        except (OSError, ValueError):
            continue
        if kind != "Instruction":
            total += int(size.rstrip("KM")) * {"K": 1 << 10, "M": 1 << 20}.get(size[-1], 1) // max(1, sharing)
    return total or _UNKNOWN


def _numbers(text: str) -> set[int]:
    """The CPUs of a list of the system.

    >>> sorted(_numbers("0-2,8"))
    [0, 1, 2, 8]
    """
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


class Caches:
    """Threads on every core that read and write more memory than the caches hold.

    >>> caches = Caches()
    >>> caches.sweep()
    """

    def __init__(self) -> None:
        self._threads = [ThreadPoolExecutor(1, initializer=os.sched_setaffinity, initargs=(0, {cpu})) for cpu in sorted(os.sched_getaffinity(0))]
        self._buffers = [np.zeros(_TIMES * bytes_of_caches(cpu) // 8, np.uint64) for cpu in sorted(os.sched_getaffinity(0))]
        self.sweep()  # the first one gets the memory

    def sweep(self) -> None:
        """Return when the caches of all cores hold other data."""
        wait([thread.submit(np.add, buffer, 1, buffer) for thread, buffer in zip(self._threads, self._buffers, strict=True)])
