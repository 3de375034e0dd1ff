# SPDX-License-Identifier: Apache-2.0
"""The random generator: Philox4x32-10, counter-based, so that a position is one number and any draw can be computed independently."""

import ctypes
import itertools
import os
import re
import secrets
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, final

import numpy as np
import torch
from torch.utils.data import get_worker_info

from .. import native
from ..native.tracing import refuses_real_tensors
from ..process.fork_locks import new_lock
from ..process.weak import WeakValues
from .states import check_state, equal, format_value, keys, text

WORDS_PER_CALL = 7  # words that a random operator draws from its generator

_MASK = 2**64 - 1
_PERIOD = 4 * 2**128  # words
_DICT = keys(version=equal(1), state=text)
_STATE = re.compile(r"Philox_([0-9A-Fa-f]{16})_([0-9A-Fa-f]{16}):([0-9A-Fa-f]{16})_([0-3])")


def _text(key: int, position: int) -> str:
    block, phase = divmod(position, 4)
    return f"Philox_{key:016X}_{block >> 64:016X}:{block & _MASK:016X}_{phase}"


class RNGState:
    """A position of an :class:`RNG`; ``str`` is its serialized form, and equal states have equal text."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"the state of an RNG must be a string, got {type(text).__name__}")
        found = _STATE.fullmatch(text)
        if found is None:
            raise ValueError(f"{format_value(text)} is not a valid state of an RNG; it has the form Philox_<16 hex>_<16 hex>:<16 hex>_<0 to 3>")
        self._key, sequence, counter, phase = (int(group, 16) for group in found.groups())
        # The sequence is the upper half of the 128-bit counter, as in NVIDIA's format of the state.
        self._position = 4 * (sequence << 64 | counter) + phase  # in words
        self._text = _text(self._key, self._position)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"RNGState({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return str(other) == self._text if isinstance(other, RNGState | str) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)


# A compiled graph draws with an operator that claims to mutate a tensor, so that the compiler keeps the order of the draws. The value of the tensor
# identifies the generator, because a compiler may copy the tensor.
_generators: "WeakValues[RNG]" = WeakValues()
_numbers = itertools.count(1)
_library = torch.library.Library("ndd", "FRAGMENT")
_library.define("draw(Tensor(a!) generator, int count) -> Tensor")
_DEFAULT = torch.tensor(0, device="cpu")


@torch.library.impl("ndd::draw", "CompositeExplicitAutograd", lib=_library)
def _(generator: torch.Tensor, count: int) -> torch.Tensor:
    # 0 is the generator of the thread that runs the graph, which differs from the one that traced it.
    number = int(generator)
    rng = get_default_rng() if number == 0 else _generators.get(number)
    if rng is None:
        raise RuntimeError("the generator that a compiled graph draws from was freed")
    return rng.draw(count)


@torch.library.register_fake("ndd::draw", lib=_library)
def _(generator: torch.Tensor, count: int) -> torch.Tensor:
    return torch.empty(count, dtype=torch.int64, device="cpu")


def compiled_draw(rng: "RNG | None", count: int) -> torch.Tensor:
    """Draw the next words of a generator, or of the generator of the thread that runs the graph."""
    token = _DEFAULT if rng is None else rng._token
    if refuses_real_tensors():
        token = torch.full((), 0 if rng is None else rng._number, device="cpu")
    return torch.ops.ndd.draw.default(token, count)


@final
class RNG:
    """A random generator: calling it returns the next uint32. Equal seeds give equal sequences, on every machine.

    >>> rng = RNG(seed=1234)
    >>> rng(), rng()
    (546353992, 3665621163)
    >>> str(rng.state)
    'Philox_00000000000004D2_0000000000000000:0000000000000000_2'
    """

    def __init__(self, seed: int | None = None, state: Any = None) -> None:
        if seed is not None and state is not None:
            raise ValueError("RNG: give a seed or a state, not both")
        self._lock = new_lock()
        self._number = next(_numbers)
        # Represents this generator in a compiled graph. A loader makes a generator for each batch; torch.tensor would take 12 us.
        self._token = torch.from_numpy(np.array(self._number))
        _generators[self._number] = self
        if state is not None:
            self.set_state(state)
        else:
            self._reseed(secrets.randbits(64) if seed is None else seed)

    def _reseed(self, seed: int) -> None:
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise TypeError(f"the seed of an RNG must be an int, got {seed!r}")
        with self._lock:
            self._key, self._position = int(seed) & _MASK, 0

    @property
    def seed(self) -> int:
        """The seed; assigning an int reseeds and rewinds, and it cannot be read."""
        raise AttributeError("seed is write-only")

    @seed.setter
    def seed(self, value: int) -> None:
        self._reseed(value)

    def __call__(self) -> int:
        word = ctypes.c_int64()
        self._fill(ctypes.addressof(word), 1)
        return word.value

    def draw(self, count: int) -> torch.Tensor:
        """Return the next ``count`` words as an int64 tensor, consecutive even if several threads draw."""
        words = torch.empty(count, dtype=torch.int64, device="cpu")
        self._fill(words.data_ptr(), count)
        return words

    def _fill(self, address: int, count: int) -> None:
        with self._lock:
            # Only the position is reserved under the lock.
            key, (block, phase) = self._key, divmod(self._position, 4)
            self._position = (self._position + count) % _PERIOD
        # Outside the lock: a counter-based generator computes any position independently.
        native.philox(key, block >> 64, block & _MASK, phase, count, address)

    def at(self, position: int) -> "RNG":
        """Return a generator of the same sequence at another position."""
        # A seed of 0 saves the system's random bits.
        rng = RNG(0)
        rng._key, rng._position = self._key, position % _PERIOD
        return rng

    def skip_if_at(self, key: int, position: int, count: int) -> bool:
        """Skip ``count`` words if the generator is at this position, and return whether it was.

        :meta private:
        """
        with self._lock:
            found = (self._key, self._position) == (key, position % _PERIOD)
            if found:
                self._position = (self._position + count) % _PERIOD
        return found

    def moved_on(self, key: int, position: int, count: int) -> bool:
        """Call :meth:`skip_if_at`. Deprecated.

        :meta private:
        """
        warnings.warn("RNG.moved_on is deprecated; compare RNG.state_dict() and call RNG.advance()", DeprecationWarning, stacklevel=2)
        return self.skip_if_at(key, position, count)

    def advance(self, n: int) -> None:
        """Skip ``n`` words. Raise ValueError if negative, TypeError unless an int."""
        if isinstance(n, bool) or not hasattr(n, "__index__"):
            raise TypeError(f"RNG.advance takes an int, got {n!r}")
        if n < 0:
            raise ValueError(f"RNG.advance cannot go back: {n}")
        with self._lock:
            self._position = (self._position + int(n)) % _PERIOD

    def clone(self) -> "RNG":
        """Return another generator at the same position."""
        return RNG(state=self.state)

    def get_state(self, *, cuda_stream: Any = None) -> RNGState:
        """Return the position."""
        with self._lock:
            return RNGState(_text(self._key, self._position))

    def set_state(self, value: Any) -> None:
        """Restore a position: an :class:`RNGState` or its text. Raise ValueError for other text, TypeError for anything else."""
        state = self._check_state(value)
        with self._lock:
            self._key, self._position = state._key, state._position

    @staticmethod
    def _check_state(value: Any) -> RNGState:
        return value if isinstance(value, RNGState) else RNGState(value)

    def state_dict(self) -> dict[str, Any]:
        """Return the position as a JSON-serializable dict, the form of PyTorch's loaders and checkpoints."""
        return {"version": 1, "state": str(self.state)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a position. Raise ValueError for anything but a result of :meth:`state_dict`.

        >>> generator = RNG(seed=3)
        >>> saved, first = generator.state_dict(), generator()
        >>> generator.load_state_dict(saved)
        >>> generator() == first
        True
        """
        self.set_state(check_state("RNG", _DICT, state)["state"])

    @property
    def state(self) -> RNGState:
        """The position; assigning it moves the generator."""
        return self.get_state()

    @state.setter
    def state(self, value: Any) -> None:
        self.set_state(value)

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled copy continues at the same position, with a lock and a token of its own.
        return RNG, (None, str(self.state))

    def __repr__(self) -> str:
        return f"RNG(state={str(self.state)!r})"


class _Default(threading.local):
    rng: RNG | None = None  # created by the first draw
    of_batch: Callable[[], RNG] | None = None  # creates that of the batch which a loader prepares, or of the sample which a data set reads
    seeded = False  # by set_seed()
    process = 0


_default = _Default()
_process = 0  # counts the forks that lead to this process


def _count_fork() -> None:
    global _process
    _process += 1


os.register_at_fork(after_in_child=_count_fork)


def get_default_rng() -> RNG:
    """Return the generator of the calling thread, seeded randomly unless :func:`set_seed` was called.

    Workers of a ``DataLoader`` draw other numbers than their parent and each other: they derive their seed from torch's worker seed, which follows
    from ``torch.manual_seed`` and changes with the epoch, and from the parent's if :func:`set_seed` was called.

    >>> get_default_rng() is get_default_rng()
    True
    """
    rng = _default.rng
    # The generator of a forked child would repeat the numbers of its parent.
    if rng is None or _default.process != _process:
        create = _default.of_batch if rng is None and _default.process == _process else None
        rng = _default.rng = _fresh(rng) if create is None else create()
        _default.process = _process
    return rng


class using_rng:
    """``with using_rng(rng):`` makes ``rng`` the calling thread's generator within the block.

    In its place ``of_batch`` creates that of a loader's batch, with the first draw: it takes 3 us, and most batches draw nothing.
    """

    __slots__ = ("_before", "_of_batch", "_rng")

    def __init__(self, rng: RNG | None = None, of_batch: Callable[[], RNG] | None = None) -> None:
        self._rng, self._of_batch = rng, of_batch

    def __enter__(self) -> None:
        self._before = _default.rng, _default.process, _default.of_batch
        _default.rng, _default.process, _default.of_batch = self._rng, _process, self._of_batch

    def __exit__(self, *_: object) -> None:
        _default.rng, _default.process, _default.of_batch = self._before


def follow_samples(samples: Iterable[Any], seeds: Iterable[int]) -> Iterator[Any]:
    """Yield the samples; call it within ``using_rng()``. Until the next sample, this thread draws from the sample's seed. It takes 0.1 us each."""
    seed = 0
    _default.of_batch = lambda: RNG(seed)
    for sample, seed in zip(samples, seeds, strict=True):  # noqa: B007 (the function above takes it)
        _default.rng = None
        yield sample


@contextmanager
def at_batch(rng: RNG) -> Iterator[RNG]:
    """Yield a generator with the seed of ``rng``: within a loader at the place of the batch, so that it needs no state; else ``rng`` itself."""
    if _default.of_batch is None:
        yield rng
        return
    loader = get_default_rng()
    begin = loader._position
    here = rng.at(begin)
    try:
        yield here
    finally:
        # A second call for the same batch draws other numbers.
        loader.advance((here._position - begin) % _PERIOD)


def _fresh(inherited: RNG | None) -> RNG:
    # Only the main thread of a worker runs the data set; other threads are the program's.
    worker = get_worker_info() if threading.current_thread() is threading.main_thread() else None
    if worker is not None:
        # The seed of set_seed() in the parent still has an effect: each worker mixes it with its own.
        return RNG(worker.seed ^ (inherited._key if inherited is not None and _default.seeded else 0))
    # In a forked process that is not a worker, a chosen seed is kept: the program asked for these numbers.
    return inherited if inherited is not None and _default.seeded else RNG()


def has_chosen_seed() -> bool:
    """Return whether :func:`set_seed` was called in the calling thread."""
    return _default.seeded


def set_seed(seed: int) -> None:
    """Reseed the generator of the calling thread.

    >>> set_seed(1234)
    >>> get_default_rng()()
    546353992
    """
    get_default_rng().seed = seed
    _default.seeded = True
