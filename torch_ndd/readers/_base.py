# SPDX-License-Identifier: Apache-2.0
"""The base class of all readers: epochs, order, shards, padding, read-ahead, bad samples and state."""

import base64
import inspect
import json
import operator
import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from .._core import native
from .._core.context.context import EvalContext
from .._core.context.device import DeviceLike, torch_device
from .._core.context.states import parsed, whole
from .._core.process.fork_locks import new_reentrant_lock
from .._core.process.limits import max_sample_bytes
from .._core.suggestions import check_choice, similar
from .._core.values.batch import Batch
from .._core.values.html import table
from .._core.values.tensor import Tensor
from .._core.work.bad_samples import ON_ERROR, BadSample, OnError, UnreadableSamples
from ..io._limits import UrlLimits, using
from ._captured import captured_epoch
from ._checked import checked_init
from ._options import LoaderOptions as LoaderOptions
from ._options import with_options
from ._order import Blocks, Order, Position, shard_of_pass
from ._state import ReaderState, State, decoded, encoded

Outputs = tuple[Any, ...] | dict[str, Any]


_NO_CONTEXT = nullcontext()
_MOST_AHEAD = 1000  # batches
_MOST_PASSES = 10_000  # that a batch may take its samples from: searching that many takes half a second
# A damaged disk may yield millions; only the latest are kept.
_ERRORS_KEPT = 10_000


class Ahead(NamedTuple):
    """A batch that is being read ahead."""

    key: tuple[Blocks | None, Position, int, int]  # walk, position, number of samples, and the process whose threads read them
    after: Position
    samples: np.ndarray
    request: Any


class Reader(IterableDataset):
    """A data set as a sequence of epochs. Subclasses define which samples there are and how to read them.

    A reader has two protocols. In DALI's, :meth:`next_epoch` yields full batches, and an epoch continues where the last one ended, even in the middle
    of the data. In PyTorch's, ``iter(reader)`` yields each sample of the shard exactly once, so that the last batch may be smaller; leaving such a
    loop ends its epoch, and after ``load_state_dict`` the next loop yields the rest of the interrupted epoch. Workers of a
    ``torch.utils.data.DataLoader`` take turns with the batches.
    """

    _option_names: ClassVar[frozenset[str]] = frozenset(LoaderOptions.__annotations__)
    _brief = ""
    """What there is to read, in a few words."""
    _can_change = False
    """Whether the source may have changed when an epoch begins: then the samples are counted again, and nothing of it is read before."""
    _needs: Mapping[str, str | bytes | None] = {}  # the folder or the list without which there is nothing to read, by argument

    def __init__(self, max_batch_size: int | None, device: DeviceLike, options: LoaderOptions) -> None:
        self._op = f"readers.{type(self).__name__}"
        unknown = sorted(set(options) - self._option_names)
        if unknown:
            known = (*self._option_names, *type(self).__signature__.parameters)  # type: ignore[attr-defined]
            raise TypeError(f"{self._op}: got an unexpected keyword argument {unknown[0]!r}{similar(unknown[0], known)}")
        try:
            on_cpu = not str(device).startswith(("gpu", "cuda")) and torch_device(device).type == "cpu"
        except (TypeError, ValueError) as error:
            raise type(error)(f"{self._op}: {error}") from None
        if not on_cpu:
            raise ValueError(f"{self._op}: Invalid device {device!r}: it reads on the CPU")
        self._max_batch_size = max_batch_size
        self._num_shards = self._whole(options, "num_shards", 1)
        self._shard_id = self._whole(options, "shard_id", 0)
        if self._num_shards < 1:
            raise ValueError(f"{self._op}: num_shards must be positive, got {self._num_shards}")
        if not 0 <= self._shard_id < self._num_shards:
            raise ValueError(f"{self._op}: shard_id must be from 0 to {self._num_shards - 1}, got {self._shard_id}")
        self._stick_to_shard = bool(options.get("stick_to_shard"))
        self._pad_last_batch = bool(options.get("pad_last_batch"))
        self._pad_shards = bool(options.get("pad_shards"))
        self._random_shuffle = bool(options.get("random_shuffle"))
        self._shuffle_after_epoch = bool(options.get("shuffle_after_epoch"))
        self._depth = self._whole(options, "prefetch_queue_depth", 1)
        self._checkpointing = bool(options.get("enable_checkpointing"))
        self._captured = False  # by next_epoch(capture=True)
        self._on_error: OnError = options.get("on_error", "raise")
        check_choice(self._op, "on_error", self._on_error, ON_ERROR, ValueError)
        self._url_limits = UrlLimits.checked(self._op, options.get("url_max_bytes"), options.get("url_stall_seconds"), options.get("url_max_seconds"))
        self._max_sample_bytes = max_sample_bytes(self._op, options.get("max_sample_bytes"))
        seed = self._whole(options, "seed", -1)
        self._state = State(seeds=(0 if seed == -1 else seed, self._whole(options, "shuffle_after_epoch_seed", 0)))
        self._errors: deque[BadSample] = deque(maxlen=_ERRORS_KEPT)
        self._started = False
        self._order: Order | None = None
        self._size: int | None = None  # of the data set, once scanned
        self._resumed = False  # the next loop of PyTorch's protocol yields the rest of an epoch, of which no batch was delivered yet
        self._ahead: deque[Ahead] = deque()
        self._loop: object = None  # the latest of PyTorch's protocol
        self._lock = new_reentrant_lock()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own, option_names = with_options(cls.__init__)
        if option_names is not None:
            cls._option_names = option_names
        cls.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        if "__init__" in cls.__dict__:
            cls.__init__ = checked_init(cls.__init__, own)

    # To be implemented by subclasses.

    def _scan(self) -> int:
        """Find the samples and return how many there are. Raise RuntimeError on failure; the next step then scans again."""
        raise NotImplementedError

    def _source(self, sample: int) -> str:
        """Return where a sample comes from, for messages."""
        raise NotImplementedError

    def _start(self, samples: np.ndarray) -> Any:
        """Start reading some samples, without waiting."""
        raise NotImplementedError

    def _finish(self, request: Any, samples: np.ndarray) -> tuple[Batch, ...] | dict[str, Batch]:
        """Wait for a request of :meth:`_start` and return its batches. Raise UnreadableSamples for samples that cannot be read."""
        raise NotImplementedError

    def _begin_source(self) -> None:
        """Begin an epoch of a source that can change."""

    # Epochs.

    def next_epoch(
        self, batch_size: int | None = None, ctx: EvalContext | None = None, capture: bool = False, compile: bool = False
    ) -> Iterator[Any]:
        """Iterate over one epoch: tuples of Batches, or of Tensors if neither this call nor the constructor gives a batch size.

        Readers with named outputs yield dicts of them. All batches are full: the last one is filled with the samples that follow, and the next epoch
        starts after those; with ``pad_last_batch`` it repeats the last sample instead. The loop may be left early; the next epoch then starts there
        and is complete.

        Args:
            batch_size: Samples per batch; by default ``max_batch_size``.
            ctx: The context in which reading runs.
            capture: Issue the operator calls of a step ahead for the next batch, so that they run while the loop's body does something else. Values,
                order and random numbers do not change, even if the body does not make the same calls in each step.
            compile: The documented name of ``capture``.

        Raises:
            ValueError: ``batch_size`` is larger than ``max_batch_size``.
            RuntimeError: at the first step, if there is nothing to read; at any step, if a sample cannot be read.
        """
        if batch_size is None:
            batch_size = self._max_batch_size
        elif self._max_batch_size is not None and self._batch_size(batch_size) > self._max_batch_size:
            raise ValueError(f"{self._op}: batch_size {batch_size} is larger than the `max_batch_size` {self._max_batch_size}")
        if not (capture or compile):
            return self._epoch(batch_size, ctx)
        self._captured = True
        return captured_epoch(self, batch_size, ctx)

    def _epoch(self, batch_size: int | None, ctx: EvalContext | None, steps: int | None = None) -> Iterator[Any]:
        """Yield the batches of an epoch, or ``steps`` batches if it was interrupted."""
        self._begin_epoch()
        steps = self._steps(batch_size) if steps is None else steps
        for step in range(steps):
            yield self._step(batch_size, ctx, left=steps - step - 1)
        with self._lock:
            self._state = self._state._replace(epochs=self._state.epochs + 1)

    def _begin_epoch(self) -> None:
        """Look at a source that can change. If its size did, an epoch of DALI's protocol begins with a new pass."""
        if not self._can_change:
            return
        with self._lock:
            self._ahead.clear()
            self._begin_source()
            if _is_begun(self._state) and (self._resumed or self._scan() == self._state.size):
                return
            passes = self._state.position.passes + _is_begun(self._state)
            self._order, self._state = None, self._state._replace(position=Position(passes), history=(), skipped=0, size=None)

    def _steps(self, batch_size: int | None) -> int:
        with self._lock:
            return self._order_of_now().steps(self._state.epochs, self._batch_size(batch_size))

    def _order_of_now(self) -> Order:
        """Return the order with the present number of samples, for lengths."""
        order = self._known_order()
        if not self._can_change or (size := self._scan()) == order.size:
            return order
        return replace(order, size=size, _passes={}, _spans={})

    def __call__(self, *, batch_size: int | None = None) -> Any:
        return self._step(self._max_batch_size if batch_size is None else batch_size, None)

    def _batch_size(self, batch_size: int | None) -> int:
        if batch_size is None:
            return 1
        if isinstance(batch_size, bool) or not hasattr(batch_size, "__index__") or batch_size <= 0:
            raise RuntimeError(f"{self._op}: batch_size must be a positive int, got {batch_size!r}")
        native.check_samples(self._op, size := operator.index(batch_size))
        return size

    def _prepared(self) -> Order:
        if self._order is not None:
            return self._order
        for other, given in (("random_shuffle", self._random_shuffle), ("stick_to_shard", self._stick_to_shard)):
            if self._shuffle_after_epoch and given:
                raise RuntimeError(f"{self._op}: shuffle_after_epoch and {other} exclude each other")
        if not 1 <= self._depth <= _MOST_AHEAD:
            raise RuntimeError(f"{self._op}: prefetch_queue_depth must be from 1 to {_MOST_AHEAD}, got {self._depth}")
        with using(self._url_limits):
            size = self._size = self._scan()
        if not size:
            raise RuntimeError(f"{self._op}: nothing to read in {self._brief or 'its source'}: the number of input samples: 0")
        if size < self._num_shards:
            raise RuntimeError(
                f"{self._op}: The number of input samples: {size}, needs to be at least equal to the requested number of shards: {self._num_shards}"
            )
        if self._state.size not in (None, size) and (not self._can_change or _is_begun(self._state)):
            raise RuntimeError(f"{self._op}: the state is of a data set of {self._state.size} samples, and here are {size}")
        self._state = self._state._replace(size=size)
        order = Order(
            size,
            self._shard_id,
            self._num_shards,
            self._stick_to_shard,
            self._pad_last_batch,
            self._pad_shards,
            self._random_shuffle,
            self._state.seeds[0],
            self._shuffle_after_epoch,
            self._state.seeds[1],
            self._state.position.passes,
            self._state.history,
        )
        self._order = self._ordered(order)
        return self._order

    def _known_order(self) -> Order:
        """Return the order of the samples; unless they must be scanned first, without waiting for what another thread reads, which may hang."""
        order = self._order
        if order is not None:
            return order
        with self._lock:
            return self._prepared()

    def _ordered(self, order: Order) -> Order:
        """Return the order of the samples; by default the given one."""
        return order

    def _step(self, batch_size: int | None, ctx: EvalContext | None, walk: Blocks | None = None, left: int = 0) -> Any:
        """Return one batch or sample of the endless sequence or, with ``walk``, of this pass: None at its end.

        ``left`` is the number of batches that follow in this epoch: of a source that can change, no others are read ahead.
        """
        count = self._batch_size(batch_size)
        with self._lock, ctx or _NO_CONTEXT, using(self._url_limits):
            order = self._prepared()
            if not walk and count > _MOST_PASSES * max(1, order.size // order.num_shards):
                raise ValueError(
                    f"{self._op}: batch_size {count} is more than {_MOST_PASSES} passes over the {order.size // order.num_shards} samples"
                )
            self._started = True
            ahead, position = self._ahead, self._state.position
            if walk and not len(order.rest(position, 1, walk)):
                return None
            process = os.getpid()
            if ahead and ahead[0].key != (walk, position, count, process):
                ahead.clear()
            try:
                while len(ahead) <= self._depth:
                    if ahead:
                        position = ahead[-1].after
                        ended = walk and not len(order.rest(position, 1, walk))
                        if self._can_change and (ended if walk else len(ahead) > left):
                            break
                        if ended:
                            position = Position(position.passes + 1)
                    samples, after = _taken(order, position, count, walk)
                    if not len(samples):  # a worker that has no block
                        break
                    ahead.append(Ahead((walk, position, count, process), after, samples, self._start(samples)))
                outputs, after, drawn = self._finished(ahead, walk)
            except BaseException:
                ahead.clear()  # the next call reads again
                raise
            self._state = self._state.moved(after, drawn)
            if walk and outputs is not None:
                self._resumed = False
        if outputs is None or batch_size is not None:
            return outputs
        return self._first(outputs)

    def _first(self, outputs: Any) -> Any:
        """Return the first sample of the outputs."""
        return {name: one.nth(0) for name, one in outputs.items()} if isinstance(outputs, dict) else tuple(one.nth(0) for one in outputs)

    def _finished(self, ahead: deque[Ahead], walk: Blocks | None) -> tuple[Outputs | None, Position, int]:
        """Return the oldest batch, the position after it, and how many samples replaced bad ones."""
        assert self._order is not None
        _, after, samples, request = ahead[0]
        count, drawn, failed = len(samples), 0, 0
        following = after  # where to look for replacements if the whole batch is bad
        while len(samples):
            try:
                outputs = self._finish(request, samples)
                ahead.popleft()
                return outputs, after, drawn
            except UnreadableSamples as bad:
                reasons, causes = bad.reasons, bad.causes
            first = min(reasons)
            if self._on_error == "raise":
                raise RuntimeError(f"{self._op}: sample {first} ({self._source(int(samples[first]))}): {reasons[first]}") from causes.get(first)
            found = {int(samples[k]): reason for k, reason in reasons.items()}
            self._errors.extend(BadSample(sample, self._source(sample), reason) for sample, reason in found.items())
            self._state = self._state._replace(errors=self._state.errors + len(found))
            failed += len(found)
            if failed > self._order.size + count:
                raise RuntimeError(f"{self._op}: none of the {self._order.size} samples can be read; the last one: {self._errors[-1].reason}")
            good = samples[~np.isin(samples, list(found))]
            if self._on_error == "replace":
                if len(good):
                    samples = samples.copy()
                    samples[sorted(reasons)] = np.resize(good, len(reasons))
                else:
                    samples, following = self._order.take(following, len(samples))
            else:
                more, after = _taken(self._order, after, len(samples) - len(good), walk)
                drawn += len(samples) - len(good)
                samples = np.concatenate([good, more])
                while len(ahead) > 1:  # replacements were taken from what was read ahead
                    ahead.pop()
            request = self._start(samples)
        ahead.clear()
        return None, after, drawn

    @property
    def errors(self) -> tuple[BadSample, ...]:
        """The latest 10,000 samples that could not be read since construction; :meth:`state_dict` holds the total count."""
        with self._lock:
            return tuple(self._errors)

    def get_metadata(self, batch_size: int | None = None) -> dict[str, int]:
        """Return the numbers of samples and shards.

        The keys are ``epoch_size``, ``epoch_size_padded`` (over all shards), ``number_of_shards``, ``shard_id``, ``pad_last_batch`` and
        ``stick_to_shard``.
        """
        order = self._order_of_now()
        return {
            "epoch_size": order.size,
            "epoch_size_padded": order.padded_shard * order.num_shards if order.pad_last_batch or order.pad_shards else order.size,
            "number_of_shards": order.num_shards,
            "shard_id": order.shard_id,
            "pad_last_batch": int(order.pad_last_batch),
            "stick_to_shard": int(order.stick_to_shard or order.shuffle_after_epoch),
        }

    # State.

    def _enable_checkpointing(self) -> None:
        if self._started and not self._checkpointing:
            kind = NotImplementedError if self._captured else RuntimeError
            raise kind(f"{self._op}: it was initialized with checkpointing disabled; pass enable_checkpointing=True")
        self._checkpointing = True

    def get_state(self, *, cuda_stream: Any = None) -> ReaderState:
        """Return the position of the consumer, without what was read ahead. Raise RuntimeError before the first step and without checkpointing."""
        if not self._checkpointing:
            raise RuntimeError(f"{self._op}: it was initialized with checkpointing disabled; pass enable_checkpointing=True")
        if not self._started:
            raise RuntimeError(f"{self._op}: the state cannot be taken before its first iteration")
        return ReaderState(base64.b64encode(json.dumps(self.state_dict()).encode()).decode())

    def set_state(self, state: ReaderState | str | bytes) -> None:
        """Restore a position before the first step.

        Raises:
            TypeError: not a ReaderState, str or bytes.
            ValueError: text that is not base64, or not a state.
            RuntimeError: after the first step.
        """
        restored = self._check_state(state)
        self._go_to(restored)
        self._checkpointing = True

    def _check_state(self, state: ReaderState | str | bytes) -> State:
        """Return what :meth:`set_state` would set, with its errors."""
        if isinstance(state, bytes):
            state = state.decode("ascii", "replace")
        if not isinstance(state, ReaderState | str):
            raise TypeError(f"{self._op}: a state is a ReaderState, str or bytes, not {type(state).__name__}")
        if self._started:
            raise RuntimeError(f"{self._op}: the state cannot be set after iteration has begun")
        content = base64.b64decode(str(state).encode("ascii", "replace"), validate=True)
        return self._checked_state(parsed(self._op, content))

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the consumer as a small dict of numbers, at any time. Batches read ahead do not count.

        All ranks have the same state, because they take the same number of steps. It fits any number of shards and any batch size.
        """
        with self._lock:
            return encoded(self._state, self._num_shards, self._shard(self._state.position.passes), self._shuffled)

    def _shard(self, passes: int) -> int:
        return shard_of_pass(passes, self._shard_id, self._num_shards, self._stick_to_shard or self._shuffle_after_epoch)

    @property
    def _shuffled(self) -> str:
        """The argument that shuffles the samples, or ``"no"``."""
        return "random_shuffle" if self._random_shuffle else "shuffle_after_epoch" if self._shuffle_after_epoch else "no"

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a position at any time. The next loop over the reader yields the rest of the epoch, divided among the current shards.

        Raises:
            ValueError: not a result of :meth:`state_dict`; the message names the key, and the reader does not move. Or the state of a reader that is
                shuffled another way. Or that of one of several ranks that skipped different numbers of bad samples: merge their states with
                :func:`readers.merge_states`.
        """
        self._go_to(self._checked_state(state))

    def _checked_state(self, state: Any) -> State:
        """Return a state that :meth:`_go_to` accepts."""
        worker = get_worker_info()
        block = None if worker is None else (worker.id, worker.num_workers)
        found = decoded(self._op, state, None if self._can_change else self._size, self._num_shards, self._shard, block, self._shuffled)
        if self._can_change and _is_begun(found):  # the size matters in the middle of an epoch
            return decoded(self._op, state, self._size, self._num_shards, self._shard, block, self._shuffled)
        return found

    def _go_to(self, state: State) -> None:
        with self._lock:
            self._ahead.clear()
            self._order = None
            self._state, self._resumed = state, True

    # PyTorch's protocol.

    def __iter__(self) -> Iterator[Any]:
        yield from self._pass(self._max_batch_size)  # a generator: nothing moves before its first batch

    def _pass(self, batch_size: int | None) -> Iterator[Any]:
        """Begin the next epoch, or the rest of a restored one, and return its batches."""
        worker = get_worker_info()
        blocks = Blocks(worker.id, worker.num_workers, self._batch_size(batch_size)) if worker else Blocks()
        with self._lock:
            state = self._state
            if state.blocks not in (None, blocks) and state.position.offset:
                raise RuntimeError(f"{self._op}: the state is of {state.blocks}; it does not fit {blocks}")
            if not self._resumed and state.position.offset:  # the last loop was left early, or next_epoch is inside this pass
                state = state.moved(Position(state.position.passes + 1), 0)
            self._state = state._replace(blocks=blocks if worker else None)
            self._begin_epoch()
            self._prepared()
            self._loop = loop = object()
        return self._batches(batch_size, blocks, loop)

    def _batches(self, batch_size: int | None, blocks: Blocks, loop: object) -> Iterator[Any]:
        errors = self._state.errors
        while True:
            if self._loop is not loop:
                raise RuntimeError(f"{self._op}: another loop over it began before this one had ended; loops at the same time need a reader each")
            outputs = self._step(batch_size, None, blocks)
            if outputs is None:
                break
            yield outputs
        if self._size and self._state.errors - errors >= self._size:
            raise RuntimeError(f"{self._op}: none of the {self._size} samples can be read; the last one: {self._errors[-1].reason}")
        with self._lock:
            self._state = self._state.moved(Position(self._state.position.passes + 1), 0)._replace(epochs=self._state.epochs + 1)
            self._resumed = False

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next epoch, like ``DistributedSampler.set_epoch``; no effect if the reader is already in it.

        Raise ValueError for anything but a whole number.

        A ``torch.utils.data.DataLoader`` without persistent workers copies the reader in each epoch, and needs this call for a new order.
        """
        epoch = whole()(epoch, f"{self._op}: epoch")
        with self._lock:
            if epoch != self._state.position.passes:
                self._state, self._resumed = self._state.moved(Position(epoch)), False

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return self._length(self._max_batch_size)

    def _length(self, batch_size: int | None, drop_last: bool = False) -> int:
        order, position = self._order_of_now(), self._state.position
        return order.steps(position.passes + (position.offset > 0), self._batch_size(batch_size), drop_last)

    def _place(self) -> tuple[int, int]:
        """Return the epoch, and a number that only the next batch of this shard has in it."""
        state = self.state_dict()
        *earlier, (shards, taken) = state["taken"]
        before = sum(n * (count if isinstance(count, int) else max(count)) for n, count in earlier)
        return state["epoch"], before + taken * shards + state["shard"]

    def _advice(self) -> tuple[str, str]:
        """Return what a loader waits for, and how to make it faster."""
        fewer = "from fewer and larger files (readers.Webdataset, readers.TFRecord), or from a faster disk"
        return "files", f"read further ahead (prefetch_queue_depth), {fewer}"

    def _length_left(self, batch_size: int | None, drop_last: bool = False) -> int:
        return self._known_order().steps_left(self._state.position, self._batch_size(batch_size), drop_last)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {**self.__dict__, "_ahead": deque(), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = new_reentrant_lock()

    def __repr__(self) -> str:
        size = "" if self._size is None else f", {self._size} samples"  # not scanned for this
        shard = f", shard {self._shard_id} of {self._num_shards}" if self._num_shards > 1 else ""
        source = f" {self._brief}" if self._brief else ""
        return f"<{self._op}{source}{size}{shard}>"

    def _repr_html_(self) -> str:
        rows: list[tuple[str, Any]] = [("samples", "not scanned yet" if self._size is None else self._size)]
        rows += [("shard", f"{self._shard_id} of {self._num_shards}"), ("shuffled", self._random_shuffle or self._shuffle_after_epoch)]
        rows += [("batch size", self._max_batch_size)] if self._max_batch_size else []
        return table(self._op, rows)

    def _whole(self, options: LoaderOptions, argument: str, default: int) -> int:
        value: Any = options.get(argument)
        if value is None:
            return default
        if isinstance(value, Tensor):
            value = value.item()
        try:
            return operator.index(value)
        except TypeError:
            raise TypeError(f"{self._op}: {argument} must be an int, got {value!r}") from None


def _is_begun(state: State) -> bool:
    """Return whether samples of this pass were delivered."""
    return state.position.offset > 0 or any(count if isinstance(count, int) else any(count) for _, count in state.history)


def _taken(order: Order, position: Position, count: int, walk: Blocks | None) -> tuple[np.ndarray, Position]:
    if walk is None:
        return order.take(position, count)
    return order.rest(position, count, walk), Position(position.passes, position.offset + count)
