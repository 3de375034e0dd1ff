# SPDX-License-Identifier: Apache-2.0
"""The progress of a long run, on the standard error."""

import sys
import time
from typing import Any

_SECONDS = 10.0


class Progress:
    """A bar of tqdm on a terminal, lines otherwise; a context manager."""

    def __init__(self, total: int, shown: bool) -> None:
        self._total, self._done, self._shown = total, 0, shown
        self._begin = self._last = time.monotonic()
        self._at_begin: int | None = None
        self._bar: Any = None
        if shown and sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, unit="image", smoothing=0.05)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def add(self, images: int) -> None:
        """Note that more images are done."""
        self._done += images
        if self._at_begin is None:  # those of an earlier run have no rate
            self._at_begin = self._done
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(images)
        elif self._shown and (now - self._last > _SECONDS or self._done == self._total):
            self._last = now
            rate = (self._done - self._at_begin) / max(now - self._begin, 1e-9)
            print(f"pack: {self._done} of {self._total} images, {rate:.0f} a second", file=sys.stderr, flush=True)
