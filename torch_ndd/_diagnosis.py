# SPDX-License-Identifier: Apache-2.0
"""Where the time of a loader goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from . import _native


class Stats(NamedTuple):
    """Seconds since a loader was made, and what it has delivered."""

    batches: int
    samples: int
    bytes: int
    """Of what ``fn`` returned."""
    read: float
    """The loader was in the reader: files were not there yet."""
    call: float
    """It was in ``fn``: queueing work, and waiting where ``fn`` looks at values."""
    wait: float
    """The caller waited for its batch."""
    model: float
    """The caller had its batch."""
    decode: float
    """All threads together were decoding, for this loader or anybody else in the process."""
    augment: float
    """All threads together were at other operators."""

    @property
    def waited(self) -> float:
        """What part of the time the caller waited for its batches, from 0 to 1."""
        return self.wait / (self.wait + self.model) if self.wait else 0.0

    def diagnosis(self, threads: int) -> str:
        """What limits the training, and what to change, in a line."""
        if not self.batches:
            return "Nothing was loaded yet."
        total = self.wait + self.model
        waited = f"the model waits {self.waited:.0%} of the time for its batches"
        if self.waited < 0.05:
            return f"The model is the limit: {waited}; faster loading would gain nothing."
        busy = (self.decode + self.augment) / (threads * total)
        if busy > 0.7:
            decoding = self.decode / (self.decode + self.augment)
            if decoding > 0.5:
                return (
                    f"Decoding is the limit: {waited}, {threads} threads are busy for {busy:.0%}, {decoding:.0%} of it decoding; decode only what is "
                    "used (decoders.image_random_crop), give it more threads (set_num_threads), or store smaller images."
                )
            return (
                f"Augmentation is the limit: {waited}, {threads} threads are busy for {busy:.0%}, {1 - decoding:.0%} of it augmenting; crop or "
                "shrink the images first, compile fn (torch.compile), or give it more threads (set_num_threads)."
            )
        if self.read > max(self.call, 0.5 * total):
            return (
                f"Reading is the limit: {waited}, {self.read / total:.0%} of the time the loader waits for files; read further ahead "
                "(prefetch_queue_depth), from fewer and larger files (readers.Webdataset, readers.TFRecord), or from a faster disk."
            )
        if self.call > 0.5 * total:
            return (
                f"Python is the limit: {waited}, {self.call / self.batches * 1e3:.1f} ms a batch in fn while the threads are busy for {busy:.0%} "
                "only; let fn queue operators without looking at values (.torch(), .item(), NumPy), or take larger batches."
            )
        return f"Latency is the limit: {waited}, yet {threads} threads are busy for {busy:.0%} only; prepare more batches ahead (prefetch)."


class Stopwatch:
    """Measures what :class:`Stats` tells."""

    def __init__(self) -> None:
        self.samples = self._batches = self._bytes = 0
        self._read = self._call = self._wait = self._model = 0.0
        self._since: float | None = None  # the caller has had its batch
        self._worked_before = worked()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """The reader is asked for a batch."""
        begin = time.perf_counter()
        yield
        self._read += time.perf_counter() - begin

    @contextmanager
    def calling(self) -> Iterator[None]:
        """``fn`` runs."""
        begin = time.perf_counter()
        yield
        self._call += time.perf_counter() - begin

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A result is waited for."""
        begin = time.perf_counter()
        yield
        self._wait += time.perf_counter() - begin

    def asked(self) -> None:
        """The caller wants a batch."""
        if self._since is not None:
            self._model += time.perf_counter() - self._since
            self._since = None

    def yielded(self, size: int) -> None:
        """The caller gets one."""
        self._batches += 1
        self._bytes += size
        self._since = time.perf_counter()

    def left(self) -> None:
        """The loop is over; what the caller does then is not about this loader."""
        self._since = None

    def stats(self) -> Stats:
        """All figures, to this moment."""
        decode, augment = ((now - before) * 1e-9 for now, before in zip(worked(), self._worked_before, strict=True))
        return Stats(self._batches, self.samples, self._bytes, self._read, self._call, self._wait, self._model, decode, augment)


def worked() -> tuple[int, int]:
    """Nanoseconds that all threads together have been decoding, and at other operators."""
    times = [line.rsplit(" ", 1) for line in _native.worked().decode().splitlines()]
    decode = sum(int(nanoseconds) for op, nanoseconds in times if op.startswith("decoders."))
    return decode, sum(int(nanoseconds) for _, nanoseconds in times) - decode
