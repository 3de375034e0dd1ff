# SPDX-License-Identifier: Apache-2.0
"""Statistics of a loader's time."""

import ctypes
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple

import torch

from . import native

_MOST_SPANS = 4096  # of a loader's own stages: 1,000 batches


class Span(NamedTuple):
    """A piece of work: its name, who did it, and when, in nanoseconds of ``time.perf_counter_ns``."""

    name: str
    thread: str
    begin: int
    end: int


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
    images: int = 0
    """Images that decoders were asked for, by this loader or any other work of the process."""
    cached: int = 0
    """Those of them that were copied from a cache (:func:`decoders.cache`)."""
    image_bytes: int = 0
    """Bytes that all these images would take, whole and in uint8."""
    operators: Mapping[str, float] = MappingProxyType({})
    """Time of all threads together in each operator, the longest first."""

    @property
    def waited(self) -> float:
        """Fraction of the time that the caller waited for its batches, from 0 to 1."""
        return self.wait / (self.wait + self.model) if self.wait else 0.0

    def diagnosis(self, threads: int, reading: tuple[str, str] = ("files", "read further ahead"), epoch: int | None = None) -> str:
        """Return what limits the training, and what to change, in one line.

        ``reading`` is what is read, and how to do it faster; ``epoch`` is the number of samples in an epoch, if it is known.
        """
        if not self.batches:
            return "Nothing was loaded yet."
        total = self.wait + self.model
        waited = f"the model waits {self.waited:.0%} of the time for its batches"
        if self.waited < 0.05:
            return f"The model is the limit: {waited}; faster loading would gain nothing."
        busy = (self.decode + self.augment) / (threads * total)
        if busy > 0.7:
            decoding, most = self.decode / (self.decode + self.augment), self._most()
            if decoding > 0.5:
                return (
                    f"Decoding is the limit: {waited}, {threads} threads are busy for {busy:.0%}, {decoding:.0%} of it decoding{most}; decode only "
                    f"what is used (decoders.image_random_crop), {self._keeping(epoch)}give it more threads (set_num_threads), or store smaller "
                    "images."
                )
            return (
                f"Augmentation is the limit: {waited}, {threads} threads are busy for {busy:.0%}, {1 - decoding:.0%} of it augmenting{most}; crop or "
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

    def _most(self) -> str:
        """Return the operators that take most of the threads' time, in parentheses."""
        total = sum(self.operators.values())
        parts = [f"{name} {seconds / total:.0%}" for name, seconds in list(self.operators.items())[:3] if seconds > 0.1 * total]
        return f" ({', '.join(parts)})" if parts else ""

    def _keeping(self, epoch: int | None) -> str:
        """Return the advice to keep decoded images, with their size, unless most of them come from a cache."""
        if not self.images or self.cached > self.images / 2:
            return ""
        page = 4096  # of memory or of a disk: half of one is lost for each image, and the header of a file
        each = self.image_bytes / self.images + page
        if epoch is None or not self.samples:
            return f"keep decoded images for the next epochs (decoders.cache, {_readable(each)} an image), "
        count = round(self.images / self.samples * epoch)
        return f"keep decoded images for the next epochs (decoders.cache, {_readable(each * count)} for the {count} images of an epoch), "


def _readable(size: float) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{max(size, 1000) / 1e3:.3g} kB"


class Stopwatch:
    """Measures what :class:`Stats` reports."""

    def __init__(self) -> None:
        self.samples = self._batches = self._bytes = 0
        self._read = self._call = self._wait = self._model = 0.0
        self._since: int | None = None  # the caller has had its batch since then
        self._worked_before, self._images_before = worked(), images_asked()
        self._spans: deque[Span] = deque(maxlen=_MOST_SPANS)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Time a read."""
        begin = time.perf_counter_ns()
        with torch.profiler.record_function("torch_ndd: read"):
            yield
        self._read += self._note("read", "loader", begin)

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Time a call of ``fn``."""
        begin = time.perf_counter_ns()
        with torch.profiler.record_function("torch_ndd: fn"):
            yield
        self._call += self._note("fn", "loader", begin)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time a wait for a result."""
        begin = time.perf_counter_ns()
        with torch.profiler.record_function("torch_ndd: wait for a batch"):
            yield
        self._wait += self._note("wait", "program", begin)

    def asked(self) -> None:
        """Note that the caller requests a batch."""
        if self._since is not None:
            self._model += self._note("model", "program", self._since)
            self._since = None

    def yielded(self, size: int) -> None:
        """Note that the caller gets a batch."""
        self._batches += 1
        self._bytes += size
        self._since = time.perf_counter_ns()

    def _note(self, name: str, thread: str, begin: int) -> float:
        """Remember a span that ends now, and return its seconds."""
        end = time.perf_counter_ns()
        self._spans.append(Span(name, thread, begin, end))
        return (end - begin) * 1e-9

    def spans(self) -> list[Span]:
        """Return what happened last: stages of the loader, and the work of the threads meanwhile."""
        own = list(self._spans)
        if not own:
            return []
        first = min(span.begin for span in own)
        lines = (line.rsplit(" ", 3) for line in native.spans().decode().splitlines())
        of_threads = [Span(op, f"thread {thread}", int(begin), int(end)) for op, thread, begin, end in lines]
        return own + [span for span in of_threads if span.end > first]

    def left(self) -> None:
        """Note that the loop is over; the caller's time afterwards does not count."""
        self._since = None

    def stats(self) -> Stats:
        """Return all figures up to now."""
        taken = {op: (now - self._worked_before.get(op, 0)) * 1e-9 for op, now in worked().items()}
        operators = dict(sorted(((op, seconds) for op, seconds in taken.items() if seconds > 0), key=lambda pair: -pair[1]))
        decode = sum(seconds for op, seconds in operators.items() if op.startswith("decoders."))
        augment = sum(operators.values()) - decode
        images, size, cached = (now - before for now, before in zip(images_asked(), self._images_before, strict=True))
        times = (self._read, self._call, self._wait, self._model, decode, augment)
        return Stats(self._batches, self.samples, self._bytes, *times, images, cached, size, operators)


def images_asked() -> tuple[int, int, int]:
    """Return the images that decoders were asked for, their values (height * width * channels, whole), and how many came from a cache."""
    counts = (ctypes.c_int64 * 3)()
    native.cache_totals(counts)
    return counts[0], counts[1], counts[2]


def worked() -> dict[str, int]:
    """Return the nanoseconds of all threads together in each operator."""
    times = [line.rsplit(" ", 1) for line in native.worked().decode().splitlines()]
    return {op: int(nanoseconds) for op, nanoseconds in times}
