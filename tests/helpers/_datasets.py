# SPDX-License-Identifier: Apache-2.0
"""Data sets for workers that are spawned, which must be able to import them."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import torch


class Squares(torch.utils.data.Dataset[Any]):
    """Numbers and their squares."""

    def __init__(self, size: int, seconds: float = 0, marker: str = "") -> None:
        self.size, self.seconds, self.marker = size, seconds, marker

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, k: int) -> Any:
        if self.marker:
            with open(self.marker, "a") as file:
                file.write("x")
        time.sleep(self.seconds)
        return k, k**2


class Fragile(torch.utils.data.Dataset[Any]):
    """Fails at 5, and ends its process at ``kill``."""

    def __init__(self, size: int, kill: int = -1) -> None:
        self.size, self.kill = size, kill

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, k: int) -> int:
        if k == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if k == 5:
            raise ValueError("five is bad")
        return k


class Stream(torch.utils.data.IterableDataset[Any]):
    """Numbers and arrays in turn."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[Any]:
        return iter([(k, torch.full((2,), k)) for k in range(self.size)])
