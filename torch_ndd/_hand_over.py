# SPDX-License-Identifier: Apache-2.0
"""Which thread prepares the batches of a loader: its own or, for quick items, the program's."""

from collections import deque
from typing import Any

import torch

from .readers import Reader

# Seconds that a batch takes more if it goes from the loader's thread to the program's, because each waits for the GIL.
_HAND_OVER = 200e-6
_JUDGED = 3  # batches: the program may be held up in one of them


class HandOver:
    """Compares what another thread hides with what handing batches over takes.

    A thread hides the preparation of a batch behind what the program does meanwhile, so it hides the shorter of both. Python code of two threads
    takes turns anyway: batches of 64 texts take 380 us with a thread, 130 without.
    """

    def __init__(self) -> None:
        self._hidden: deque[float] = deque(maxlen=_JUDGED)

    def note_batch(self, model: float, preparation: float) -> None:
        """Note the seconds between two batches, and those in which one of them was prepared."""
        self._hidden.append(min(model, preparation))

    def suggests_here(self, fn: Any, reader: Any) -> bool:
        """Return whether the program's thread should prepare the next batch.

        Always where a data set draws from generators that all threads share. Else only for a data set whose items are read by one thread, without a
        function whose results may depend on the thread, and while torch's modes are those of a new thread, so the batches are the same in any case.
        """
        if reader.reads_here():
            return True
        if fn is not None or len(self._hidden) < _JUDGED or min(self._hidden) > _HAND_OVER:
            return False
        has_modes = not torch.is_grad_enabled() or torch._C._is_any_autocast_enabled() or torch._C._len_torch_function_stack() > 0
        return not has_modes and isinstance(reader, Reader) and reader.is_quick()
