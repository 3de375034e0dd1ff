# SPDX-License-Identifier: Apache-2.0
"""Statistics of a loader's time."""

import ctypes
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from .. import native
from ..process.fork_locks import new_lock

_MAX_SPANS = 4096  # of a loader's own stages: 1,000 batches
_MAX_SOURCES = 64  # batches whose files are compared


class Span(NamedTuple):
    """A piece of work: its name, its thread, begin and end in nanoseconds of ``time.perf_counter_ns``."""

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
    """Time of all threads together in decoding for this loader."""
    augment: float
    """Time of all threads together in its other operators."""
    images: int = 0
    """Images that this loader asked decoders for."""
    cached: int = 0
    """Those of them that were copied from a cache (:func:`decoders.cache`)."""
    image_bytes: int = 0
    """Bytes that all these images would take, whole and in uint8."""
    others: float = 0.0
    """Time of all threads together in other work of the process while this loader was in use."""
    decoded_again: int = 0
    """Images that a call of ``fn`` asked for although it had asked for the same files before."""
    scaled: int = 0
    """Images that decoders were asked for with ``at_least``."""
    repeats: float = 1.0
    """Samples of an epoch that come from the same file, on average of the latest batches; only of :attr:`Diagnosis.stats`."""
    operators: Mapping[str, float] = MappingProxyType({})
    """Time of all threads together in each operator, the longest first."""

    @property
    def waited(self) -> float:
        """Fraction of the time that the caller waited for its batches, from 0 to 1."""
        return self.wait / (self.wait + self.model) if self.wait else 0.0

    def diagnosis(
        self, threads: int, reading: tuple[str, str] = ("files", "read further ahead"), epoch: int | None = None, cpus: int | None = None
    ) -> str:
        """Return the bottleneck of the training, and what to change, in one line.

        ``reading`` is what is read, and how to do it faster; ``epoch`` is the number of samples in an epoch, if it is known; ``cpus`` is the number
        of CPUs that this process may use.
        """
        if not self.batches:
            return "Nothing was loaded yet."
        total = self.wait + self.model
        waited = f"the model waits {self.waited:.0%} of the time for its batches"
        # The order of the checks matters: each excludes a cause that would also explain the figures of the next ones.
        if self.waited < 0.05:
            return f"The model is the limit: {waited}; faster loading would gain nothing."
        # Fractions of the threads' time that this loader's work, and other work, took.
        # At most 1: work on threads of other libraries counts too.
        busy, elsewhere = (min(1.0, spent / (threads * total)) for spent in (self.decode + self.augment, self.others))
        if busy > 0.7:
            decoding, most = self.decode / (self.decode + self.augment), self._most()
            more = "give it more threads (set_num_threads)" if cpus is None or threads < cpus else "give it more CPUs"
            if decoding > 0.5:
                advice = [*self._decoding_less(), *self._keeping(epoch), more, *self._storing()]
                return (
                    f"Decoding is the limit: {waited}, {threads} threads are busy for {busy:.0%}, {decoding:.0%} of it decoding{most}; "
                    f"{_alternatives(advice)}."
                )
            return (
                f"Augmentation is the limit: {waited}, {threads} threads are busy for {busy:.0%}, {1 - decoding:.0%} of it augmenting{most}; "
                f"{_alternatives(['crop or shrink the images first', 'compile fn (torch.compile)', more])}."
            )
        if busy + elsewhere > 0.7 and elsewhere > busy:
            return (
                f"Other work is the limit: {waited}, {threads} threads are busy for {elsewhere:.0%} with other work of this process, such as other "
                f"loaders, and for {busy:.0%} with this loader's; look at that first."
            )
        # Reading and fn overlap with the model; only where one of them takes most of the time does it explain the waiting.
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

    def _decoding_less(self) -> list[str]:
        """Return what makes decoding itself shorter."""
        advice = []
        if self.decoded_again > self.images / 4:
            # How often each file was decoded, on average.
            times = self.images / (self.images - self.decoded_again)
            advice.append(f"decode each file once instead of {times:.3g} times and take all crops from its pixels")
        each, delivered = self.image_bytes / max(1, self.images), self.bytes / max(1, self.samples)
        if self.images and not self.cached and self.scaled < self.images / 2 and each > _MUCH_LARGER * max(delivered, _SMALL):
            sizes = f"an image has {_readable(each)}, the result of fn {_readable(delivered)}"
            advice.append(f"decode large JPEGs at a smaller scale (at_least=; {sizes})")
        if not any(op.startswith(_WINDOWED) or op == "decoders.video" for op in self.operators) and not self.decoded_again:
            advice.append("decode only what is used (decoders.image_random_crop)")
        return advice

    def _storing(self) -> list[str]:
        return ["store smaller images"] if self.images or not self.operators else []

    def _keeping(self, epoch: int | None) -> list[str]:
        """Return the advice to keep decoded images, with their size, unless most of them come from a cache."""
        if not self.images or self.cached > self.images / 2:
            return []
        page = 4096  # of memory or of a disk: half of one is lost for each image, and the header of a file
        each = self.image_bytes / self.images + page
        why = "for the next epochs" if self.repeats < 1.5 else f"because each file is decoded {self.repeats:.3g} times in an epoch"
        if epoch is None or not self.samples:
            return [f"keep decoded images {why} (decoders.cache, {_readable(each)} an image)"]
        # Images of an epoch, from those of the samples so far; each file counts once.
        count = round((self.images - self.decoded_again) / self.samples * epoch / self.repeats)
        return [f"keep decoded images {why} (decoders.cache, {_readable(each * count)} for the {count} images of an epoch)"]


_WINDOWED = ("decoders.image_random_crop", "decoders.image_crop", "decoders.image_slice")
_MUCH_LARGER = 4  # at half of each extent an image has a quarter of its pixels
_SMALL = 4096


def _alternatives(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + (", or " if len(parts) > 2 else " or " if len(parts) == 2 else "") + parts[-1]


def _readable(size: float) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{max(size, 1000) / 1e3:.3g} kB"


class _Thread(threading.local):
    watch: "Stopwatch | None" = None  # of the loader that this thread works for


_thread = _Thread()
_lock = new_lock()
_owners: "list[weakref.ref[Stopwatch]]" = []  # the loader's stopwatch that has each number, from 1 on
_by_python: dict[tuple[int, str], int] = {}  # nanoseconds of work on threads of other libraries, by owner and operator


def _number_of(watch: "Stopwatch") -> int:
    """Return the number of a loader, possibly reused from a freed one. No finalizer returns it: a KeyboardInterrupt would be lost there."""
    with _lock:
        owner = weakref.ref(watch)
        for k, other in enumerate(_owners):
            if other() is None:
                _owners[k] = owner
                return k + 1
        _owners.append(owner)
        return len(_owners)


def is_loading() -> bool:
    """Return whether this thread reads or prepares a batch for a loader."""
    return _thread.watch is not None


def note_decoding(files: torch.Tensor, images: int, scaled: bool) -> None:
    """Note that encoded images are to be decoded, for the loader whose ``fn`` this thread runs."""
    watch = _thread.watch
    if watch is not None:
        watch.note_decoding(files.data_ptr(), images, scaled)


class Work:
    """Work of an operator that threads of other libraries do, for the loader whose ``fn`` the creating thread runs."""

    def __init__(self, op: str, threads: int = 1) -> None:
        watch = _thread.watch
        self._key, self._threads = (0 if watch is None else watch.number, op), threads

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the time of a part, on any thread."""
        begin = time.perf_counter_ns()
        try:
            yield
        finally:
            took = (time.perf_counter_ns() - begin) * self._threads
            with _lock:
                _by_python[self._key] = _by_python.get(self._key, 0) + took


class _Owning:
    """A context in which the calls of a thread belong to a loader."""

    __slots__ = ("_before", "_owner", "_watch")

    def __init__(self, watch: "Stopwatch") -> None:
        self._watch = watch

    def __enter__(self) -> None:
        self._before, _thread.watch = _thread.watch, self._watch
        self._owner = native.set_owner(self._watch.number)

    def __exit__(self, *_: object) -> None:
        native.set_owner(self._owner)
        _thread.watch = self._before


class _Stage:
    """A context that times a stage of a loader, and shows it in torch's profiler. A generator in its place took twice as long."""

    __slots__ = ("_begin", "_name", "_record", "_watch")

    def __init__(self, watch: "Stopwatch", name: str) -> None:
        self._watch, self._name = watch, name
        # Without a profiler, recording would take 10 us.
        self._record = torch.profiler.record_function(_STAGES[name][1]) if torch.autograd.profiler._is_profiler_enabled else None

    def __enter__(self) -> None:
        self._begin = time.perf_counter_ns()
        if self._record is not None:
            self._record.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self._record is not None:
            self._record.__exit__(*error)
        self._watch._note(self._name, self._begin)


# Stages by name: whose they are, and what torch's profiler shows.
_STAGES = {
    "read": ("loader", "torch_ndd: read"),
    "fn": ("loader", "torch_ndd: fn"),
    "wait": ("program", "torch_ndd: wait for a batch"),
    "model": ("program", ""),
}


class Stopwatch:
    """Measures what :class:`Stats` reports."""

    def __init__(self) -> None:
        self.samples = self._batches = self._bytes = 0
        self._seconds = dict.fromkeys(_STAGES, 0.0)
        self._others = 0.0
        self._since: int | None = None  # the caller has had its batch since then
        self._begin()

    def _begin(self) -> None:
        self.number = _number_of(self)
        self._worked_before, self._images_before = measure_operators(self.number), count_images(self.number)
        self._others_before: float | None = None  # what others had worked when the loop began
        self._spans: deque[tuple[str, int, int]] = deque(maxlen=_MAX_SPANS)  # name of the stage, begin, end
        self.sources: deque[tuple[int, Sequence[str]]] = deque(maxlen=_MAX_SOURCES)
        self._decoding: set[int] = set()  # addresses of what this call of fn has had decoded
        self._decoded_again = self._scaled = 0

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("samples", "_batches", "_bytes", "_seconds", "_others")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _since=None)
        self._begin()

    def owning(self) -> _Owning:
        """Let the calls of this thread belong to this loader."""
        return _Owning(self)

    def note_decoding(self, address: int, images: int, scaled: bool) -> None:
        """Note that images are to be decoded, which lie at this address."""
        # Addresses identify batches, because the files of a call of fn stay in memory until it ends.
        if address in self._decoding:
            self._decoded_again += images
        self._decoding.add(address)
        if scaled:
            self._scaled += images

    def note_samples(self, epoch: int, samples: int, sources: Sequence[str]) -> None:
        """Note the number of samples of a batch, and where they come from."""
        self.samples += samples
        self.sources.append((epoch, sources))

    def begin_loop(self) -> None:
        """Note that a loop begins: what others work from now on, they do while the loader is in use."""
        self._others_before = _of_others(self.number)

    def reading(self) -> _Stage:
        """Time a read."""
        return _Stage(self, "read")

    def calling(self) -> _Stage:
        """Time a call of ``fn``."""
        self._decoding.clear()
        return _Stage(self, "fn")

    def waiting(self) -> _Stage:
        """Time a wait for a result."""
        return _Stage(self, "wait")

    def note_request(self) -> float | None:
        """Note that the caller requests a batch. Return the seconds that it had the one before, if there was one."""
        since, self._since = self._since, None
        return None if since is None else self._note("model", since)

    def note_batch(self, size: int) -> None:
        """Note that the caller gets a batch."""
        self._batches += 1
        self._bytes += size
        self._since = time.perf_counter_ns()

    def _note(self, name: str, begin: int) -> float:
        """Record a stage that ends now, and return its seconds."""
        end = time.perf_counter_ns()
        seconds = (end - begin) * 1e-9
        self._spans.append((name, begin, end))
        self._seconds[name] += seconds
        return seconds

    def spans(self) -> list[Span]:
        """Return what happened last: stages of the loader, and the work of the threads meanwhile."""
        own = [Span(name, _STAGES[name][0], begin, end) for name, begin, end in list(self._spans)]
        if not own:
            return []
        first = min(span.begin for span in own)
        # Names of operators may have blanks, the three numbers after them do not.
        lines = (line.rsplit(" ", 3) for line in native.spans().decode().splitlines())
        of_threads = [Span(op, f"thread {thread}", int(begin), int(end)) for op, thread, begin, end in lines]
        return own + [span for span in of_threads if span.end > first]

    def end_loop(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        """Note that the loop is over; the caller's time afterwards does not count.

        ``is_finalizing`` is bound as a default: an unfinished generator calls this when the interpreter has already cleared the globals of modules.
        """
        self._since = None
        if self._others_before is not None and not is_finalizing():
            self._others += _of_others(self.number) - self._others_before
            self._others_before = None

    def stats(self) -> Stats:
        """Return all figures up to now."""
        taken = {op: (now - self._worked_before.get(op, 0)) * 1e-9 for op, now in measure_operators(self.number).items()}
        operators = dict(sorted(((op, seconds) for op, seconds in taken.items() if seconds > 0), key=lambda pair: -pair[1]))
        decode = sum(seconds for op, seconds in operators.items() if op.startswith("decoders."))
        augment = sum(operators.values()) - decode
        images, size, cached = (now - before for now, before in zip(count_images(self.number), self._images_before, strict=True))
        others = self._others + (0.0 if self._others_before is None else _of_others(self.number) - self._others_before)
        seconds = self._seconds
        times = (seconds["read"], seconds["fn"], seconds["wait"], seconds["model"], decode, augment)
        requests = (images, cached, size, others, self._decoded_again, self._scaled)
        return Stats(self._batches, self.samples, self._bytes, *times, *requests, operators=operators)

    def repeats(self) -> float:
        """Return how many samples of an epoch come from one file."""
        names = [(epoch, name) for epoch, sources in list(self.sources) for name in sources]
        return len(names) / len(set(names)) if names else 1.0


def count_images(owner: int) -> tuple[int, int, int]:
    """Return the images that decoders were asked for, their values (height * width * channels, whole), and how many came from a cache."""
    counts = (ctypes.c_int64 * 3)()
    native.cache_totals(owner, counts)
    return counts[0], counts[1], counts[2]


def measure_operators(owner: int) -> dict[str, int]:
    """Return the nanoseconds of all threads together in each operator of an owner."""
    return {op: nanoseconds for (whose, op), nanoseconds in _all_work().items() if whose == owner}


def _of_others(owner: int) -> float:
    """Return the seconds of all threads together for others."""
    return sum(nanoseconds for (whose, _), nanoseconds in _all_work().items() if whose != owner) * 1e-9


def _all_work() -> dict[tuple[int, str], int]:
    with _lock:
        found = dict(_by_python)
    for line in native.worked().decode().splitlines():
        op, whose, nanoseconds = line.rsplit(" ", 2)
        key = int(whose), op
        found[key] = found.get(key, 0) + int(nanoseconds)
    return found


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_in_child)
