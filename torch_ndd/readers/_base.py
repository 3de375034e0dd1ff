# SPDX-License-Identifier: Apache-2.0
"""The base class of all readers: options, epochs, order, bad samples, states, and the protocols of DALI and PyTorch."""

import base64
import inspect
import json
import operator
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from torch.utils.data import get_worker_info

from .._core import native
from .._core.context.context import EvalContext
from .._core.context.device import DeviceLike, torch_device
from .._core.context.states import parse_state, whole
from .._core.native.default_device import ignore_default_device
from .._core.process.fork_locks import new_reentrant_lock
from .._core.process.limits import max_sample_bytes
from .._core.suggestions import check_choice, similar
from .._core.values.html import table
from .._core.values.tensor import Tensor
from .._core.work.bad_samples import ON_ERROR, BadSample, LeftOut, OnError, UnreadableSamples
from ..io._limits import UrlLimits, using
from ._captured import captured_epoch
from ._failed import BatchIterator, FailedBatch
from ._options import LoaderOptions, check_init_arguments, with_options
from ._order import Blocks, Order, Position, shard_of_pass
from ._read_ahead import ReadAhead, replace_bad, take
from ._sample_source import Collated, SampleSource
from ._seeds import compute_seed
from ._state import ReaderState, State, decode_state, encode_state

_NO_CONTEXT = nullcontext()
MAX_AHEAD = 1000  # batches
MAX_PASSES = 10_000  # that one batch may span: searching them takes half a second
MAX_ERRORS = 10_000  # the latest are kept: a damaged disk may yield millions of bad samples


class Reader(SampleSource):
    """A data set as a sequence of epochs. Subclasses define which samples there are and how to read them.

    A reader has two protocols. In DALI's, :meth:`next_epoch` yields full batches, and an epoch continues where the last one ended, even in the middle
    of the data. In PyTorch's, ``iter(reader)`` yields each sample of the shard exactly once, so that the last batch may be smaller; leaving such a
    loop ends its epoch, and after ``load_state_dict`` the next loop yields the rest of the interrupted epoch. Workers of a
    ``torch.utils.data.DataLoader`` take turns with the batches.
    """

    _option_names: ClassVar[frozenset[str]] = frozenset(LoaderOptions.__annotations__)  # of __init__; __init_subclass__ finds them
    _is_for_training: ClassVar[bool] = False  # whatever its order
    _combines_shuffles: ClassVar[bool] = False  # takes random_shuffle and shuffle_after_epoch together, like DALI's
    _needs: Mapping[str, str | bytes | None] = {}  # paths that must exist, by argument

    def __init__(self, max_batch_size: int | None, device: DeviceLike, options: Mapping[str, Any]) -> None:
        self._op = f"readers.{type(self).__name__}"
        unknown = sorted(set(options) - self._option_names)
        if unknown:
            known = (*self._option_names, *type(self).__signature__.parameters)  # type: ignore[attr-defined]
            raise TypeError(f"{self._op}: got an unexpected keyword argument {unknown[0]!r}{similar(unknown[0], known)}")
        # A GPU is named as the problem where there is none, too.
        if str(device).startswith(("gpu", "cuda")) or torch_device(device, self._op).type != "cpu":
            raise ValueError(f"{self._op}: Invalid device {device!r}: the reader supports only the CPU")
        self.max_batch_size = max_batch_size
        self.num_shards = self._read_int(options, "num_shards", 1)
        self.shard_id = self._read_int(options, "shard_id", 0)
        if self.num_shards < 1:
            raise ValueError(f"{self._op}: num_shards must be positive, got {self.num_shards}")
        if not 0 <= self.shard_id < self.num_shards:
            raise ValueError(f"{self._op}: shard_id must be from 0 to {self.num_shards - 1}, got {self.shard_id}")
        self._stick_to_shard = bool(options.get("stick_to_shard"))
        self._pad_last_batch = bool(options.get("pad_last_batch"))
        self._pad_shards = bool(options.get("pad_shards"))
        self._random_shuffle = bool(options.get("random_shuffle"))
        self._shuffle_after_epoch = bool(options.get("shuffle_after_epoch"))
        combines = self._combines_shuffles and self._random_shuffle and self._shuffle_after_epoch and not self._stick_to_shard
        if combines:
            self._shuffle_after_epoch = False  # random_shuffle already gives all samples a new order in each epoch, here by both seeds
        self.repeats_on_ranks = options.get("num_shards") is None and (self._random_shuffle or self._shuffle_after_epoch or self._is_for_training)
        self._depth = self._read_int(options, "prefetch_queue_depth", 1)
        self._checkpointing = bool(options.get("enable_checkpointing"))
        self._captured = False  # by next_epoch(capture=True)
        self._on_error: OnError = options.get("on_error", "raise")
        check_choice(self._op, "on_error", self._on_error, ON_ERROR, ValueError)
        self._url_limits = UrlLimits.from_arguments(
            self._op, options.get("url_max_bytes"), options.get("url_stall_seconds"), options.get("url_max_seconds")
        )
        self._max_sample_bytes = max_sample_bytes(self._op, options.get("max_sample_bytes"))
        seed = self._read_int(options, "seed", -1)
        seed = 0 if seed == -1 else seed
        seed_after_epoch = self._read_int(options, "shuffle_after_epoch_seed", 0)
        if combines and seed_after_epoch:
            seed = compute_seed(seed, seed_after_epoch)
        self._state = State(seeds=(seed, seed_after_epoch))
        self._errors: deque[BadSample] = deque(maxlen=MAX_ERRORS)
        self._started = False
        self._order: Order | None = None
        # Cached for list_order, which plans by cost call for every window; building the order of all shards repeats a shuffle.
        self._whole: tuple[Order, Order] | None = None  # an order, and that of all its shards
        self._size: int | None = None  # of the data set, once scanned
        self._resumed = False  # a state was restored: the next loop of PyTorch's protocol yields the rest of its epoch
        self._ahead = ReadAhead()
        self._loop: object = None  # identity of the latest loop of PyTorch's protocol
        self._lock = new_reentrant_lock()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own, option_names = with_options(cls.__init__)
        if option_names is not None:
            cls._option_names = option_names
        # For help(), editors and the checks of arguments: options are parameters, although __init__ takes them as **loader.
        cls.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        if "__init__" in cls.__dict__:
            cls.__init__ = check_init_arguments(cls.__init__, own)

    def narrow(self, column: str) -> "Reader":
        """Return a reader of the same samples with this output only, if they can be read in part; else this one.

        :meta private:
        """
        return self

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
                order and random numbers do not change, even if the body does not make the same calls in each step. A loop with results on a GPU is
                executed plainly, because its calls return before their work has ended anyway.
            compile: The documented name of ``capture``.

        Raises:
            ValueError: ``batch_size`` is larger than ``max_batch_size``.
            RuntimeError: at the first step, if there is nothing to read; at any step, if a sample cannot be read. The step after that error delivers
                the next batch.
        """
        if batch_size is None:
            batch_size = self.max_batch_size
        elif self.max_batch_size is not None and self._batch_size(batch_size) > self.max_batch_size:
            raise ValueError(f"{self._op}: batch_size {batch_size} is larger than the `max_batch_size` {self.max_batch_size}")
        if not (capture or compile):
            return BatchIterator(self.iter_epoch(batch_size, ctx))
        self._captured = True
        return BatchIterator(captured_epoch(self, batch_size, ctx))

    def iter_epoch(self, batch_size: int | None, ctx: EvalContext | None, steps: int | None = None) -> Iterator[Any]:
        """Yield the batches of an epoch, or its last ``steps`` batches after an interruption; a FailedBatch in place of one that could not be read.

        :meta private:
        """
        self._begin_epoch()
        steps = self.count_steps(batch_size) if steps is None else steps
        for step in range(steps):
            yield self._step(batch_size, ctx, left=steps - step - 1)
        with self._lock:
            self._state = self._state._replace(epochs=self._state.epochs + 1)

    def _begin_epoch(self) -> None:
        """Check a source that can change: if its size did, an epoch of DALI's protocol begins with a new pass."""
        if not self._can_change:
            return
        with self._lock:
            # Requests of the old source are useless even if its size stays the same.
            self._ahead.clear()
            self._begin_source()
            # A pass in progress goes on if a state was restored or the size is unchanged; else its positions mean other samples now.
            if _is_begun(self._state) and (self._resumed or self.scan() == self._state.size):
                return
            passes = self._state.position.passes + _is_begun(self._state)
            self._order, self._state = None, self._state._replace(position=Position(passes), history=(), skipped=0, size=None)

    def count_steps(self, batch_size: int | None) -> int:
        """Return the number of batches in an epoch of DALI's protocol.

        :meta private:
        """
        with self._lock:
            return self._current_order().steps(self._state.epochs, self._batch_size(batch_size))

    def _current_order(self) -> Order:
        """Return the order for the current number of samples, for lengths."""
        order = self.prepare_order()
        if not self._can_change or (size := self.scan()) == order.size:
            return order
        # The caches belong to the old size; replace() would share them.
        return replace(order, size=size, _passes={}, _spans={})

    def __call__(self, *, batch_size: int | None = None) -> Any:
        """Return the next batch, or the next sample without a batch size. A reader with one output returns it without a tuple or dict around it."""
        outputs = self._step(self.max_batch_size if batch_size is None else batch_size, None)
        if isinstance(outputs, FailedBatch):
            raise outputs.error
        if not isinstance(outputs, (tuple, dict)) or len(outputs) != 1:
            return outputs
        return outputs[0] if isinstance(outputs, tuple) else next(iter(outputs.values()))

    def _batch_size(self, batch_size: int | None) -> int:
        if batch_size is None:
            return 1
        if isinstance(batch_size, bool) or not hasattr(batch_size, "__index__") or batch_size <= 0:
            raise RuntimeError(f"{self._op}: batch_size must be a positive int, got {batch_size!r}")
        native.check_samples(self._op, size := operator.index(batch_size))
        return size

    def _build_order(self) -> Order:
        if self._order is not None:
            return self._order
        for other, enabled in (("stick_to_shard", self._stick_to_shard), ("random_shuffle", self._random_shuffle)):
            if self._shuffle_after_epoch and enabled:
                raise RuntimeError(f"{self._op}: shuffle_after_epoch and {other} exclude each other")
        if not 1 <= self._depth <= MAX_AHEAD:
            raise RuntimeError(f"{self._op}: prefetch_queue_depth must be from 1 to {MAX_AHEAD}, got {self._depth}")
        # Scanning may download an index, so the limits for URLs apply to it too.
        with using(self._url_limits):
            size = self._size = self.scan()
        if not size:
            raise RuntimeError(f"{self._op}: no samples found in {self._brief or 'the source'}: the number of input samples: 0")
        self._order = self._create_order(size)
        return self._order

    def _create_order(self, size: int) -> Order:
        """Return the order of a data set of this many samples, from the current state."""
        if size < self.num_shards:
            raise RuntimeError(
                f"{self._op}: The number of input samples: {size}, needs to be at least equal to the requested number of shards: {self.num_shards}"
            )
        # A source that can change may have another size in the next pass, but not in the middle of one.
        if self._state.size not in (None, size) and (not self._can_change or _is_begun(self._state)):
            raise RuntimeError(f"{self._op}: the state is for {self._state.size} samples, but the data set has {size}")
        self._state = self._state._replace(size=size)
        order = Order(
            size,
            self.shard_id,
            self.num_shards,
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
        return self._customize_order(order)

    def prepare_order(self) -> Order:
        """Return the order of the samples; scan them first if needed.

        :meta private:
        """
        order = self._order
        if order is not None:  # without the lock: another thread may hold it in a read that hangs, and len(reader) must not wait for that
            return order
        with self._lock:
            return self._build_order()

    def list_order(self, epoch: int, begin: int, count: int) -> np.ndarray:
        """Return the sample numbers ``begin`` to ``begin + count`` of an epoch, int64, in the order of a single rank; fewer at the epoch's end.

        It does not depend on the shard or the position of this reader. :meth:`start` and :meth:`finish` read the samples.

        :meta private:
        """
        with self._lock:
            order = self._current_order()
            if self._whole is None or self._whole[0] is not order:
                self._whole = order, order.of_all_shards()
            return self._whole[1].rest(Position(epoch, begin), count)

    def count_epoch_samples(self, epoch: int) -> int:
        """Return the number of samples of an epoch on all ranks together.

        :meta private:
        """
        return self._current_order().size

    def order_state(self) -> dict[str, Any]:
        """Return what :meth:`list_order` depends on, equal on all ranks: a state for :meth:`parse_state`.

        :meta private:
        """
        with self._lock:
            return encode_state(self._state._replace(position=Position(self._state.position.passes), history=(), errors=0), 1, 0, self._shuffled)

    @ignore_default_device
    def _step(self, batch_size: int | None, ctx: EvalContext | None, walk: Blocks | None = None, left: int = 0) -> Any:
        """Return the next batch or sample of the endless sequence or, with ``walk``, of this pass; None at its end.

        A FailedBatch stands for one that could not be read: the reader has moved past it. After any other error it has not moved.
        ``left`` is the number of batches that follow in this epoch. A source that can change is not read beyond them.
        """
        count = self._batch_size(batch_size)
        with self._lock, ctx or _NO_CONTEXT, using(self._url_limits):
            order = self._build_order()
            if not walk and count > MAX_PASSES * max(1, order.size // order.num_shards):
                raise ValueError(f"{self._op}: batch_size {count} is more than {MAX_PASSES} passes over the {order.size // order.num_shards} samples")
            self._started = True
            position = self._state.position
            # In PyTorch's protocol a pass ends for this worker; DALI's protocol goes on into the next pass.
            if walk and not order.has_rest(position, walk):
                return None
            outputs, after, drawn = self._ahead.read_next(self, order, position, count, walk, left)
            # Only now: a state must not count a batch that was merely read ahead.
            self._state = self._state.moved_to(after, drawn)
            if walk and outputs is not None:
                # Where only failed batches were tried, the next loop yields the rest of this epoch.
                self._resumed = isinstance(outputs, FailedBatch) and (self._resumed or not position.offset)
        # A loader walks, and counts the samples of what a collate_fn has made.
        if outputs is None or isinstance(outputs, FailedBatch) or (walk and batch_size is not None):
            return outputs
        if isinstance(outputs, Collated):
            return outputs.value
        return self._first(outputs) if batch_size is None else outputs

    def _note_bad(self, samples: np.ndarray, bad: UnreadableSamples) -> dict[int, str]:
        """Record samples that could not be read, and return the reasons by their numbers. Raise RuntimeError with ``on_error="raise"``."""
        found = {int(samples[k]): reason for k, reason in bad.reasons.items()}
        if isinstance(bad, LeftOut):
            return found
        if self._on_error == "raise":
            first = min(bad.reasons)
            # `first` counts within the batch; the path identifies the sample in the data set.
            source = self._source(int(samples[first]))
            raise RuntimeError(f"{self._op}: sample {first} ({source}): {bad.reasons[first]}") from bad.causes.get(first)
        self.note_errors(BadSample(sample, self._source(sample), reason) for sample, reason in found.items())
        return found

    def _substitute(
        self, policy: str, samples: np.ndarray, bad: list[int], good: np.ndarray, after: Position, following: Position, walk: Blocks | None
    ) -> tuple[np.ndarray, Position, Position, int]:
        """Return the samples to read in place of a batch that has bad ones.

        Args:
            policy: ``"skip"`` or ``"replace"``.
            samples: the batch.
            bad: positions of bad samples in it.
            good: its other samples.
            after: the position after the batch.
            following: where to look for samples if the whole batch is bad.

        Returns:
            The samples, both positions, and how many samples were taken from those after the batch.
        """
        if policy == "skip":
            more, after = take(self._order, after, len(samples) - len(good), walk)  # type: ignore[arg-type]
            return np.concatenate([good, more]), after, following, len(samples) - len(good)
        if not len(good):
            # The whole batch is bad. `after` stays, because all ranks must count the same positions; only the search moves on.
            samples, following = self._order.take(following, len(samples))  # type: ignore[union-attr]
            return samples, after, following, 0
        return replace_bad(samples, bad, good, self._replacement_groups), after, following, 0

    def note_errors(self, errors: Iterable[BadSample]) -> None:
        """Add to :attr:`errors`.

        :meta private:
        """
        found = list(errors)
        self._errors.extend(found)
        self._state = self._state._replace(errors=self._state.errors + len(found))

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
        order = self._current_order()
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
        """Return the consumer's position, without batches read ahead. Raise RuntimeError before the first step and without checkpointing."""
        if not self._checkpointing:
            raise RuntimeError(f"{self._op}: it was initialized with checkpointing disabled; pass enable_checkpointing=True")
        if not self._started:
            raise RuntimeError(f"{self._op}: the state is not available before its first iteration")
        return ReaderState(base64.b64encode(json.dumps(self.state_dict()).encode()).decode())

    def set_state(self, state: ReaderState | str | bytes) -> None:
        """Restore a position before the first step.

        Raises:
            TypeError: not a ReaderState, str or bytes.
            ValueError: text that is not base64, or not a state.
            RuntimeError: after the first step.
        """
        restored = self._check_state(state)
        self.move_to(restored)
        self._checkpointing = True

    def _check_state(self, state: ReaderState | str | bytes) -> State:
        """Decode and check a state for :meth:`set_state`."""
        if isinstance(state, bytes):
            state = state.decode("ascii", "replace")
        if not isinstance(state, ReaderState | str):
            raise TypeError(f"{self._op}: state must be a ReaderState, str or bytes, got {type(state).__name__}")
        if self._started:
            raise RuntimeError(f"{self._op}: the state cannot be set after iteration has begun")
        content = base64.b64decode(str(state).encode("ascii", "replace"), validate=True)
        return self.parse_state(parse_state(self._op, content))

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the consumer as a small dict of numbers, at any time. Batches read ahead do not count.

        All ranks have the same state, because they take the same number of steps. It fits any number of shards and any batch size.
        """
        # The shard of this pass: unless the reader sticks to its own, shards rotate from pass to pass.
        with self._lock:
            return encode_state(self._state, self.num_shards, self._shard(self._state.position.passes), self._shuffled)

    def _shard(self, passes: int) -> int:
        return shard_of_pass(passes, self.shard_id, self.num_shards, self._stick_to_shard or self._shuffle_after_epoch)

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
        self.move_to(self.parse_state(state))

    def parse_state(self, state: Any) -> State:
        """Check a result of :meth:`state_dict` and convert it for :meth:`move_to`.

        :meta private:
        """
        worker = get_worker_info()
        block = None if worker is None else (worker.id, worker.num_workers)
        found = decode_state(self._op, state, None if self._can_change else self._size, self.num_shards, self._shard, block, self._shuffled)
        # A changed size is an error only if the state lies in the middle of a pass; at its beginning a new pass may have any size.
        if self._can_change and _is_begun(found):  # the size matters in the middle of an epoch
            return decode_state(self._op, state, self._size, self.num_shards, self._shard, block, self._shuffled)
        return found

    def move_to(self, state: State) -> None:
        """Move to a position; requests read ahead are discarded.

        :meta private:
        """
        with self._lock:
            self._ahead.clear()
            # The order depends on the state's history, so the next step builds it from the new state.
            self._order = None
            self._state, self._resumed = state, True

    # PyTorch's protocol.

    def __iter__(self) -> Iterator[Any]:
        return BatchIterator(self._iter_pass())

    def _iter_pass(self) -> Iterator[Any]:
        yield from self.begin_pass(self.max_batch_size)  # a generator: nothing moves before its first batch

    def begin_pass(self, batch_size: int | None) -> Iterator[Any]:
        """Begin the next epoch, or the rest of a restored epoch, and return its batches, with a FailedBatch for each that cannot be read.

        :meta private:
        """
        worker = get_worker_info()
        blocks = Blocks(worker.id, worker.num_workers, self._batch_size(batch_size)) if worker else Blocks()
        with self._lock:
            state = self._state
            if state.blocks not in (None, blocks) and state.position.offset:
                raise RuntimeError(f"{self._op}: the state is for {state.blocks}, but this worker reads {blocks}")
            if not self._resumed and state.position.offset:  # the last loop was left early, or next_epoch is inside this pass
                state = state.moved_to(Position(state.position.passes + 1), 0)
            # Only positions of DataLoader workers are bound to their blocks of samples.
            self._state = state._replace(blocks=blocks if worker else None)
            self._begin_epoch()
            self._build_order()
            self._loop = loop = object()
        return self._batches(batch_size, blocks, loop)

    def _batches(self, batch_size: int | None, blocks: Blocks, loop: object) -> Iterator[Any]:
        errors, is_empty = self._state.errors, True
        while True:
            # Two loops over one reader would each get a part of the batches without noticing.
            if self._loop is not loop:
                raise RuntimeError(f"{self._op}: another loop over it began before this one had ended; loops at the same time need a reader each")
            outputs = self._step(batch_size, None, blocks)
            if outputs is None:
                break
            is_empty = False
            yield outputs
        # on_error="skip" may leave nothing at all; an empty epoch would hide that. Readers that repeat samples may note more errors than samples.
        if is_empty and self._size and self._state.errors - errors >= self._size:
            raise RuntimeError(f"{self._op}: none of the {self._size} samples can be read; the last one: {self._errors[-1].reason}")
        with self._lock:
            self._state = self._state.moved_to(Position(self._state.position.passes + 1), 0)._replace(epochs=self._state.epochs + 1)
            self._resumed = False

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next epoch, like ``DistributedSampler.set_epoch``; no effect if the reader is already in it.

        Raise ValueError for anything but a whole number.

        A ``torch.utils.data.DataLoader`` without persistent workers copies the reader in each epoch, and needs this call for a new order.
        """
        epoch = whole()(epoch, f"{self._op}: epoch")
        with self._lock:
            if epoch != self._state.position.passes:
                self._state, self._resumed = self._state.moved_to(Position(epoch)), False

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return self.count_batches(self.max_batch_size)

    def count_batches(self, batch_size: int | None, drop_last: bool = False) -> int:
        """Return the number of batches in an epoch of PyTorch's protocol.

        :meta private:
        """
        order, position = self._current_order(), self._state.position
        return order.steps(position.passes + (position.offset > 0), self._batch_size(batch_size), drop_last)

    def locate_next_batch(self) -> tuple[int, int]:
        """Return the epoch, and a number in it that no other batch of any shard has: random generators are seeded with it.

        :meta private:
        """
        with self._lock:
            state = self._state
        passes, taken = state.position
        # Count the largest share of any shard in earlier divisions, and let shards take turns: numbers may have gaps but no duplicates.
        before = sum([n * (count if isinstance(count, int) else max(count)) for n, count in state.history])
        return passes, before + taken * self.num_shards + self._shard(passes)

    def has_begun(self, state: dict[str, Any]) -> bool:
        """Return whether a result of :meth:`state_dict` counts any sample of its epoch.

        :meta private:
        """
        return any(taken for _, taken in state["taken"])

    def is_incomplete(self, samples: int, batch_size: int) -> bool:
        """Return whether a batch of this many samples is what remained at the end of an epoch.

        :meta private:
        """
        return samples < batch_size

    def count_batches_left(self, batch_size: int | None, drop_last: bool = False) -> int:
        """Return the number of batches in the rest of this epoch.

        :meta private:
        """
        return self.prepare_order().steps_left(self._state.position, self._batch_size(batch_size), drop_last)

    def __getstate__(self) -> dict[str, Any]:
        # Requests belong to threads of this process, and locks cannot be pickled.
        with self._lock:
            return {**self.__dict__, "_ahead": ReadAhead(), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = new_reentrant_lock()

    def __repr__(self) -> str:
        size = "" if self._size is None else f", {self._size} samples"  # not scanned for this
        shard = f", shard {self.shard_id} of {self.num_shards}" if self.num_shards > 1 else ""
        source = f" {self._brief}" if self._brief else ""
        return f"<{self._op}{source}{size}{shard}>"

    def _repr_html_(self) -> str:
        rows: list[tuple[str, Any]] = [("samples", "not scanned yet" if self._size is None else self._size)]
        rows += [("shard", f"{self.shard_id} of {self.num_shards}"), ("shuffled", self._random_shuffle or self._shuffle_after_epoch)]
        rows += [("batch size", self.max_batch_size)] if self.max_batch_size else []
        return table(self._op, rows)

    def _read_int(self, options: Mapping[str, Any], argument: str, default: int) -> int:
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
    """Return whether any sample of this pass was delivered."""
    # Positions count from zero in every division of a pass, so the earlier divisions count too.
    return state.position.offset > 0 or any(count if isinstance(count, int) else any(count) for _, count in state.history)
