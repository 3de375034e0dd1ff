# SPDX-License-Identifier: Apache-2.0
"""What all readers share: epochs, order, shards, padding, reading ahead, bad samples, and state."""

import base64
import inspect
import json
import operator
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from .. import _native
from .._batch import Batch
from .._context import EvalContext
from .._device import DeviceLike, torch_device
from .._states import parsed, whole
from .._tensor import Tensor
from ..io._limits import UrlLimits, using
from ._captured import captured_epoch
from ._checked import checked_init
from ._options import LoaderOptions as LoaderOptions
from ._options import with_options
from ._order import Blocks, Order, Position, shard_of_pass
from ._state import ReaderState, State, decoded, encoded

Outputs = tuple[Any, ...] | dict[str, Any]


class ReadError(NamedTuple):
    """A sample that could not be read."""

    sample: int
    """Its number in the data set."""
    source: str
    """Where it was to come from: a path, or a place in a file."""
    reason: str


class BadSamples(Exception):
    """Some samples of a batch cannot be read: their places in it, and why."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(reasons)
        self.reasons = dict(reasons)


_MOST_AHEAD = 1000  # batches
_MOST_PASSES = 10_000  # that a batch may take its samples from: half a second of looking for them
# A damaged disk may yield millions; the latest are kept.
_ERRORS_KEPT = 10_000


class Ahead(NamedTuple):
    """A batch that is being read."""

    key: tuple[Blocks | None, Position, int]  # walk, position and number of samples
    after: Position
    samples: np.ndarray
    request: Any


class Reader(IterableDataset):
    """A data set as a sequence of epochs. A new reader says what samples there are and how some of them are read.

    It has two protocols. DALI's: :meth:`next_epoch` yields full batches, and an epoch goes on where the last one ended, also inside of the data.
    PyTorch's: ``iter(reader)`` yields each sample of the shard exactly once, so that the last batch may be smaller; leaving such a loop ends that
    epoch, and ``load_state_dict`` makes the next loop deliver the rest of the interrupted one. Workers of a ``torch.utils.data.DataLoader`` take
    turns with the batches.
    """

    _option_names: ClassVar[frozenset[str]] = frozenset(LoaderOptions.__annotations__)

    def __init__(self, max_batch_size: int | None, device: DeviceLike, options: LoaderOptions) -> None:
        self._op = f"readers.{type(self).__name__}"
        unknown = sorted(set(options) - self._option_names)
        if unknown:
            raise TypeError(f"{self._op}: got an unexpected keyword argument {unknown[0]!r}")
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
        self._on_error: str = options.get("on_error", "raise")
        if self._on_error not in ("raise", "skip", "replace"):
            raise ValueError(f'{self._op}: on_error must be "raise", "skip" or "replace", got {self._on_error!r}')
        self._url_limits = UrlLimits.checked(self._op, options.get("url_max_bytes"), options.get("url_stall_seconds"), options.get("url_max_seconds"))
        seed = self._whole(options, "seed", -1)
        self._state = State(seeds=(0 if seed == -1 else seed, self._whole(options, "shuffle_after_epoch_seed", 0)))
        self._errors: deque[ReadError] = deque(maxlen=_ERRORS_KEPT)
        self._started = False
        self._order: Order | None = None
        self._size: int | None = None  # of the data set, once it was looked through
        self._resumed = False  # the next loop of PyTorch's protocol delivers the rest of an epoch
        self._ahead: deque[Ahead] = deque()
        self._lock = threading.RLock()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own, option_names = with_options(cls.__init__)
        if option_names is not None:
            cls._option_names = option_names
        cls.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        if "__init__" in cls.__dict__:
            cls.__init__ = checked_init(cls.__init__, own)

    # What a reader adds.

    def _scan(self) -> int:
        """Find the samples and return how many there are. RuntimeError when that fails; it is asked again then."""
        raise NotImplementedError

    def _source(self, sample: int) -> str:
        """Where a sample comes from, for messages."""
        raise NotImplementedError

    def _start(self, samples: np.ndarray) -> Any:
        """Start to read some samples, without waiting."""
        raise NotImplementedError

    def _finish(self, request: Any, samples: np.ndarray) -> tuple[Batch, ...] | dict[str, Batch]:
        """Wait for what :meth:`_start` started. BadSamples tells what cannot be read."""
        raise NotImplementedError

    # Epochs.

    def next_epoch(
        self, batch_size: int | None = None, ctx: EvalContext | None = None, capture: bool = False, compile: bool = False
    ) -> Iterator[Any]:
        """Iterate over one epoch: tuples of Batches, or of Tensors when neither this call nor the constructor gives a batch size.

        Readers with named outputs yield dicts of them. All batches are full: the last one goes on with the next samples, which the next epoch then
        starts behind, or repeats the last sample with ``pad_last_batch``. Leaving the loop early is fine; the next epoch is a whole one from there.

        Args:
            batch_size: Samples in a batch; by default ``max_batch_size``.
            ctx: The context in which reading runs.
            capture: Make the operator calls of a step for the next batch already, so that they run while the loop's body does something else.
                Values, order and random numbers are the same, also when the body does not make the same calls in each step.
            compile: The same under its documented name.

        Raises:
            ValueError: more samples than ``max_batch_size``.
            RuntimeError: at the first step, when there is nothing to read; at any step, when a sample cannot be read.
        """
        if batch_size is None:
            batch_size = self._max_batch_size
        elif self._max_batch_size is not None and self._batch_size(batch_size) > self._max_batch_size:
            raise ValueError(f"{self._op}: batch_size {batch_size} is larger than the `max_batch_size` {self._max_batch_size}")
        return captured_epoch(self, batch_size, ctx) if capture or compile else self._epoch(batch_size, ctx)

    def _epoch(self, batch_size: int | None, ctx: EvalContext | None, steps: int | None = None) -> Iterator[Any]:
        """The batches of an epoch; ``steps`` of them, when it was interrupted."""
        for _ in range(self._steps(batch_size) if steps is None else steps):
            yield self._step(batch_size, ctx)
        with self._lock:
            self._state = self._state._replace(epochs=self._state.epochs + 1)

    def _steps(self, batch_size: int | None) -> int:
        with self._lock:
            return self._prepared().steps(self._state.epochs, self._batch_size(batch_size))

    def __call__(self, *, batch_size: int | None = None) -> Any:
        return self._step(self._max_batch_size if batch_size is None else batch_size, None)

    def _batch_size(self, batch_size: int | None) -> int:
        if batch_size is None:
            return 1
        if isinstance(batch_size, bool) or not hasattr(batch_size, "__index__") or batch_size <= 0:
            raise RuntimeError(f"{self._op}: batch_size must be a positive int, got {batch_size!r}")
        _native.check_samples(self._op, size := operator.index(batch_size))
        return size

    def _prepared(self) -> Order:
        if self._order is not None:
            return self._order
        if self._shuffle_after_epoch and self._random_shuffle:
            raise RuntimeError(f"{self._op}: shuffle_after_epoch and random_shuffle exclude each other")
        if self._shuffle_after_epoch and self._stick_to_shard:
            raise RuntimeError(f"{self._op}: shuffle_after_epoch and stick_to_shard exclude each other")
        if not 1 <= self._depth <= _MOST_AHEAD:
            raise RuntimeError(f"{self._op}: prefetch_queue_depth must be from 1 to {_MOST_AHEAD}, got {self._depth}")
        with using(self._url_limits):
            size = self._size = self._scan()
        if size < self._num_shards:
            raise RuntimeError(
                f"{self._op}: The number of input samples: {size}, needs to be at least equal to the requested number of shards: {self._num_shards}"
            )
        if self._state.size not in (None, size):
            raise RuntimeError(f"{self._op}: the state is of a data set of {self._state.size} samples, and here are {size}")
        self._state = self._state._replace(size=size)
        self._order = Order(
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
        return self._order

    def _step(self, batch_size: int | None, ctx: EvalContext | None, walk: Blocks | None = None) -> Any:
        """One batch or sample of the endless sequence or, with ``walk``, of this pass: None where it ends."""
        count = self._batch_size(batch_size)
        with self._lock, ctx or nullcontext(), using(self._url_limits):
            order = self._prepared()
            if not walk and count > _MOST_PASSES * max(1, order.size // order.num_shards):
                raise ValueError(
                    f"{self._op}: batch_size {count} is more than {_MOST_PASSES} passes over the {order.size // order.num_shards} samples"
                )
            self._started = True
            ahead, position = self._ahead, self._state.position
            if walk and not len(order.rest(position, 1, walk)):
                return None
            if ahead and ahead[0].key != (walk, position, count):
                ahead.clear()
            try:
                while len(ahead) <= self._depth:
                    if ahead:
                        position = ahead[-1].after
                        if walk and not len(order.rest(position, 1, walk)):
                            position = Position(position.passes + 1)
                    samples, after = _taken(order, position, count, walk)
                    if not len(samples):  # a worker without a block
                        break
                    ahead.append(Ahead((walk, position, count), after, samples, self._start(samples)))
                outputs, after, drawn = self._finished(ahead, walk)
            except BaseException:
                ahead.clear()  # asking again reads again
                raise
            self._state = self._state.moved(after, drawn)
        if outputs is None or batch_size is not None:
            return outputs
        return {name: one._sample(0) for name, one in outputs.items()} if isinstance(outputs, dict) else tuple(one._sample(0) for one in outputs)

    def _finished(self, ahead: deque[Ahead], walk: Blocks | None) -> tuple[Outputs | None, Position, int]:
        """The oldest batch, the position after it, and how many samples were drawn in place of bad ones."""
        assert self._order is not None
        _, after, samples, request = ahead[0]
        count, drawn, failed = len(samples), 0, 0
        following = after  # where to look for what replaces a batch that is all bad
        while len(samples):
            try:
                outputs = self._finish(request, samples)
                ahead.popleft()
                return outputs, after, drawn
            except BadSamples as bad:
                reasons = bad.reasons
            first = min(reasons)
            if self._on_error == "raise":
                raise RuntimeError(f"{self._op}: sample {first} ({self._source(int(samples[first]))}): {reasons[first]}")
            found = {int(samples[k]): reason for k, reason in reasons.items()}
            self._errors.extend(ReadError(sample, self._source(sample), reason) for sample, reason in found.items())
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
                while len(ahead) > 1:  # what was read ahead has been taken
                    ahead.pop()
            request = self._start(samples)
        ahead.clear()
        return None, after, drawn

    @property
    def errors(self) -> tuple[ReadError, ...]:
        """Samples that could not be read since the reader was made, the latest 10,000; :meth:`state_dict` has the number of all."""
        with self._lock:
            return tuple(self._errors)

    def get_metadata(self, batch_size: int | None = None) -> dict[str, int]:
        """Numbers of samples and shards: ``epoch_size``, ``epoch_size_padded`` (of all shards), ``number_of_shards``, ``shard_id``,
        ``pad_last_batch`` and ``stick_to_shard``.
        """
        with self._lock:
            order = self._prepared()
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
            raise RuntimeError(f"{self._op}: it was initialized with checkpointing disabled; pass enable_checkpointing=True")
        self._checkpointing = True

    def get_state(self, *, cuda_stream: Any = None) -> ReaderState:
        """The position of the consumer: what was read ahead does not count. RuntimeError before the first step and without checkpointing."""
        if not self._checkpointing:
            raise RuntimeError(f"{self._op}: it was initialized with checkpointing disabled; pass enable_checkpointing=True")
        if not self._started:
            raise RuntimeError(f"{self._op}: the state cannot be taken before its first iteration")
        return ReaderState(base64.b64encode(json.dumps(self.state_dict()).encode()).decode())

    def set_state(self, state: ReaderState | str | bytes) -> None:
        """Go to a position, before the first step.

        Raises:
            TypeError: no ReaderState, str or bytes.
            ValueError: text that is no base64, or no state.
            RuntimeError: after the first step.
        """
        restored = self._check_state(state)
        self._go_to(restored)
        self._checkpointing = True

    def _check_state(self, state: ReaderState | str | bytes) -> State:
        """What :meth:`set_state` sets; its errors."""
        if isinstance(state, bytes):
            state = state.decode("ascii", "replace")
        if not isinstance(state, ReaderState | str):
            raise TypeError(f"{self._op}: a state is a ReaderState, str or bytes, not {type(state).__name__}")
        if self._started:
            raise RuntimeError(f"{self._op}: the state cannot be set after iteration has begun")
        content = base64.b64decode(str(state).encode("ascii", "replace"), validate=True)
        return self._checked_state(parsed(self._op, content))

    def state_dict(self) -> dict[str, Any]:
        """The position of the consumer, at any moment, as a small dict of numbers. What was read ahead does not count.

        It is the state of all ranks: they have taken equally many steps. It fits any number of shards and any batch size.
        """
        with self._lock:
            return encoded(self._state, self._num_shards, self._shard(self._state.position.passes))

    def _shard(self, passes: int) -> int:
        return shard_of_pass(passes, self._shard_id, self._num_shards, self._stick_to_shard or self._shuffle_after_epoch)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position, at any moment. The next loop over the reader delivers the rest of the epoch, divided among the shards of now.

        Raises:
            ValueError: what :meth:`state_dict` did not return, with the key; the reader stays where it is. Or a state of one rank of several that
                have skipped different numbers of bad samples: :func:`readers.merge_states` makes one of them all.
        """
        self._go_to(self._checked_state(state))

    def _checked_state(self, state: Any) -> State:
        """A state that :meth:`_go_to` takes."""
        worker = get_worker_info()
        return decoded(self._op, state, self._size, self._num_shards, self._shard, None if worker is None else (worker.id, worker.num_workers))

    def _go_to(self, state: State) -> None:
        with self._lock:
            self._ahead.clear()
            self._order = None
            self._state, self._resumed = state, True

    # The protocol of PyTorch.

    def __iter__(self) -> Iterator[Any]:
        return self._pass(self._max_batch_size)

    def _pass(self, batch_size: int | None) -> Iterator[Any]:
        """The rest of an epoch that was restored, or the next one."""
        worker = get_worker_info()
        blocks = Blocks(worker.id, worker.num_workers, self._batch_size(batch_size)) if worker else Blocks()
        with self._lock:
            self._prepared()
            state = self._state
            if state.blocks not in (None, blocks) and state.position.offset:
                raise RuntimeError(f"{self._op}: the state is of {state.blocks}; it does not fit {blocks}")
            if not self._resumed and state.position.offset:  # the last loop was left, or next_epoch has begun this pass
                state = state.moved(Position(state.position.passes + 1), 0)
            self._state, self._resumed = state._replace(blocks=blocks if worker else None), False
        return self._batches(batch_size, blocks)

    def _batches(self, batch_size: int | None, blocks: Blocks) -> Iterator[Any]:
        while True:
            outputs = self._step(batch_size, None, blocks)
            if outputs is None:
                break
            yield outputs
        with self._lock:
            self._state = self._state.moved(Position(self._state.position.passes + 1), 0)._replace(epochs=self._state.epochs + 1)

    def set_epoch(self, epoch: int) -> None:
        """Make an epoch the next one, as a ``DistributedSampler`` has it; nothing changes when the reader is in that epoch already. ValueError for
        no whole number.

        A ``torch.utils.data.DataLoader`` whose workers are not persistent copies the reader anew in each epoch, and needs this for another order.
        """
        epoch = whole()(epoch, f"{self._op}: epoch")
        with self._lock:
            if epoch != self._state.position.passes:
                self._state, self._resumed = self._state.moved(Position(epoch)), False

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self._length(self._max_batch_size)

    def _length(self, batch_size: int | None, drop_last: bool = False) -> int:
        with self._lock:
            order = self._prepared()
            passes = self._state.position.passes + (self._state.position.offset > 0)
            return order.steps(passes, self._batch_size(batch_size), drop_last)

    def _length_left(self, batch_size: int | None, drop_last: bool = False) -> int:
        with self._lock:
            return self._prepared().steps_left(self._state.position, self._batch_size(batch_size), drop_last)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {**self.__dict__, "_ahead": deque(), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<{self._op}>"

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


def _taken(order: Order, position: Position, count: int, walk: Blocks | None) -> tuple[np.ndarray, Position]:
    if walk is None:
        return order.take(position, count)
    return order.rest(position, count, walk), Position(position.passes, position.offset + count)
