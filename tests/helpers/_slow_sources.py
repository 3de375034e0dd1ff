# SPDX-License-Identifier: Apache-2.0
"""A data set that is slow by a clock of the test: what a diagnosis says about it does not depend on how busy the machine is."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from torch_ndd.readers import _waits
from torch_ndd.readers.dataset import _activity

PATIENCE = 60  # seconds, for threads of a busy machine; a test that waits so long fails


class Clock:
    """Stands for the module ``time``: a second passes with each item of a :class:`Slow`."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def perf_counter(self) -> float:
        return self.seconds

    def thread_time(self) -> float:
        return 0.0


class Slow(torch.utils.data.Dataset[Any]):
    """Samples whose items take a second each, of the waits for source number ``source`` if there are several: they begin after the first wait."""

    def __init__(self, items: list[Any], monkeypatch: pytest.MonkeyPatch, source: int | None = None) -> None:
        self._items, self._clock, self._awaited = items, Clock(), threading.Event()
        if source is None:
            self._awaited.set()
        measure = _waits.Waits.measure

        @contextmanager
        def note_wait(waits: _waits.Waits, number: int) -> Iterator[None]:
            with measure(waits, number):
                if number == source:
                    self._awaited.set()
                yield

        for module in (_waits, _activity):
            monkeypatch.setattr(module, "time", self._clock)
        monkeypatch.setattr(_waits.Waits, "measure", note_wait)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, k: int) -> Any:
        assert self._awaited.wait(PATIENCE)
        self._clock.seconds += 1
        return self._items[k]
