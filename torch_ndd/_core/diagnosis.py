# SPDX-License-Identifier: Apache-2.0
"""Statistics of a loader's time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from . import native


class Stats(NamedTuple):
    """Seconds since a loader was created, and what it has yielded."""

    batches: int
    samples: int
    bytes: int
    """Size of ``fn``'s results."""
    read: float
    """Time in the reader: files were not there yet."""
    call: float
    """Time in ``fn``: queueing work, and waiting where ``fn`` reads values."""
    wait: float
    """Time that the caller waited for its batch."""
    model: float
    """Time that the caller had its batch."""
    decode: float
    """Time of all threads together in decoding, for this loader or any other work of the process."""
    augment: float
    """Time of all threads together in other operators."""

    @property
    def waited(self) -> float:
        """Fraction of the time that the caller waited for its batches, from 0 to 1."""
        return self.wait / (self.wait + self.model) if self.wait else 0.0

    def diagnosis(self, threads: int, reading: tuple[str, str] = ("files", "read further ahead")) -> str:
        """Return what limits the training, and what to change, in one line. ``reading`` is what is read, and how to do it faster."""
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
            what, advice = reading
            return f"Reading is the limit: {waited}, {self.read / total:.0%} of the time the loader waits for {what}; {advice}."
        if self.call > 0.5 * total:
            return (
                f"Python is the limit: {waited}, {self.call / self.batches * 1e3:.1f} ms a batch in fn while the threads are busy for {busy:.0%} "
                "only; let fn queue operators without looking at values (.torch(), .item(), NumPy), or take larger batches."
            )
        return f"Latency is the limit: {waited}, yet {threads} threads are busy for {busy:.0%} only; prepare more batches ahead (prefetch)."


class Stopwatch:
    """Measures what :class:`Stats` reports."""

    def __init__(self) -> None:
        self.samples = self._batches = self._bytes = 0
        self._read = self._call = self._wait = self._model = 0.0
        self._since: float | None = None  # the caller has had its batch since then
        self._worked_before = worked()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Time a read."""
        begin = time.perf_counter()
        yield
        self._read += time.perf_counter() - begin

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Time a call of ``fn``."""
        begin = time.perf_counter()
        yield
        self._call += time.perf_counter() - begin

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time a wait for a result."""
        begin = time.perf_counter()
        yield
        self._wait += time.perf_counter() - begin

    def asked(self) -> None:
        """Note that the caller requests a batch."""
        if self._since is not None:
            self._model += time.perf_counter() - self._since
            self._since = None

    def yielded(self, size: int) -> None:
        """Note that the caller gets a batch."""
        self._batches += 1
        self._bytes += size
        self._since = time.perf_counter()

    def left(self) -> None:
        """Note that the loop is over; the caller's time afterwards does not count."""
        self._since = None

    def stats(self) -> Stats:
        """Return all figures up to now."""
        decode, augment = ((now - before) * 1e-9 for now, before in zip(worked(), self._worked_before, strict=True))
        return Stats(self._batches, self.samples, self._bytes, self._read, self._call, self._wait, self._model, decode, augment)


def worked() -> tuple[int, int]:
    """Return the nanoseconds of all threads together in decoding, and in other operators."""
    times = [line.rsplit(" ", 1) for line in native.worked().decode().splitlines()]
    decode = sum(int(nanoseconds) for op, nanoseconds in times if op.startswith("decoders."))
    return decode, sum(int(nanoseconds) for _, nanoseconds in times) - decode
