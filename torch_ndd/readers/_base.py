# SPDX-License-Identifier: Apache-2.0
"""What all readers share: epochs, order, shards, padding, reading ahead, and state."""

import base64
import json
import operator
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from .._batch import Batch
from .._context import EvalContext
from .._device import DeviceLike, torch_device
from .._tensor import Tensor
from ._order import Order, Position

STATE_VERSION = 1


class ReaderState:
    """The position of a reader; ``str`` is its serial form, equal states have equal text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"ReaderState({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return str(other) == self._text if isinstance(other, ReaderState | str) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)


class Ahead(NamedTuple):
    """A batch that is being read."""

    position: Position
    skip: int
    after: Position
    samples: np.ndarray
    request: Any


class Reader(IterableDataset):
    """A data set as a sequence of epochs. A new reader says what samples there are and how some of them are read.

    It is an ``IterableDataset`` of one epoch at a time too, with ``state_dict``. Workers of a ``torch.utils.data.DataLoader`` take turns with the
    batches.
    """

    def __init__(
        self,
        max_batch_size: int | None,
        device: DeviceLike,
        *,
        shard_id: int | None = None,
        num_shards: int | None = None,
        stick_to_shard: bool | None = None,
        pad_last_batch: bool | None = None,
        random_shuffle: bool | None = None,
        initial_fill: int | None = None,
        seed: int | None = None,
        shuffle_after_epoch: bool | None = None,
        shuffle_after_epoch_seed: int | None = None,
        prefetch_queue_depth: int | None = None,
        enable_checkpointing: bool = False,
    ) -> None:
        self._op = f"readers.{type(self).__name__}"
        if str(device).startswith(("gpu", "cuda")) or torch_device(device).type != "cpu":
            raise ValueError(f"{self._op}: Invalid device {device!r}: it reads on the CPU")
        self._max_batch_size = max_batch_size
        self._num_shards = self._whole("num_shards", num_shards, 1)
        self._shard_id = self._whole("shard_id", shard_id, 0)
        if self._num_shards < 1:
            raise ValueError(f"{self._op}: num_shards must be positive, got {num_shards}")
        if not 0 <= self._shard_id < self._num_shards:
            raise ValueError(f"{self._op}: shard_id must be from 0 to {self._num_shards - 1}, got {shard_id}")
        self._stick_to_shard = bool(stick_to_shard)
        self._pad_last_batch = bool(pad_last_batch)
        self._random_shuffle = bool(random_shuffle)
        self._initial_fill = self._whole("initial_fill", initial_fill, 1024)
        self._shuffle_after_epoch = bool(shuffle_after_epoch)
        seed = self._whole("seed", seed, -1)
        self._seeds = (0 if seed == -1 else seed, self._whole("shuffle_after_epoch_seed", shuffle_after_epoch_seed, 0))
        self._depth = self._whole("prefetch_queue_depth", prefetch_queue_depth, 1)
        self._checkpointing = bool(enable_checkpointing)
        self._started = False
        self._order: Order | None = None
        self._position = Position()
        self._epochs = 0  # complete ones
        self._restored: str | None = None  # a state that was not looked at yet
        self._ahead: deque[Ahead] = deque()
        self._lock = threading.RLock()

    # What a reader adds.

    def _scan(self) -> int:
        """Find the samples and return how many there are. RuntimeError when that fails; it is asked again then."""
        raise NotImplementedError

    def _start(self, samples: np.ndarray) -> Any:
        """Start to read some samples, without waiting."""
        raise NotImplementedError

    def _finish(self, request: Any, samples: np.ndarray) -> tuple[Batch, ...]:
        """Wait for what :meth:`_start` started. RuntimeError names what cannot be read."""
        raise NotImplementedError

    # Epochs.

    def next_epoch(
        self, batch_size: int | None = None, ctx: EvalContext | None = None, capture: bool = False, compile: bool = False
    ) -> Iterator[tuple[Any, ...]]:
        """Iterate over one epoch: tuples of Batches, or of Tensors when neither this call nor the constructor gives a batch size.

        All batches are full: the last one goes on with the next samples, which the next epoch then starts behind, or repeats the last sample with
        ``pad_last_batch``. Leaving the loop early is fine; the next epoch is a whole one from there.

        Args:
            batch_size: Samples in a batch; by default ``max_batch_size``.
            ctx: The context in which reading runs.
            capture: Accepted for DALI's sake; values and order are the same.
            compile: The same under its documented name.

        Raises:
            ValueError: more samples than ``max_batch_size``.
            RuntimeError: at the first step, when there is nothing to read; at any step, when a sample cannot be read.
        """
        if batch_size is None:
            batch_size = self._max_batch_size
        elif self._max_batch_size is not None and batch_size > self._max_batch_size:
            raise ValueError(f"{self._op}: batch_size {batch_size} is larger than the `max_batch_size` {self._max_batch_size}")
        return self._epoch(batch_size, ctx)

    def _epoch(self, batch_size: int | None, ctx: EvalContext | None, worker: int = 0, workers: int = 1) -> Iterator[tuple[Any, ...]]:
        count = self._batch_size(batch_size)
        with self._lock:
            order, begin = self._prepared(), self._position
            steps = order.steps(self._epochs, count)
            self._position = order.skip(begin, count, worker)
        for _ in range(worker, steps, workers):
            yield self._step(batch_size, ctx, workers - 1)
        with self._lock:
            if workers > 1:
                self._position = order.skip(begin, count, steps)
            self._epochs += 1

    def __call__(self, *, batch_size: int | None = None) -> tuple[Any, ...]:
        return self._step(self._max_batch_size if batch_size is None else batch_size, None)

    def _batch_size(self, batch_size: int | None) -> int:
        if batch_size is None:
            return 1
        if isinstance(batch_size, bool) or not hasattr(batch_size, "__index__") or batch_size <= 0:
            raise RuntimeError(f"{self._op}: batch_size must be a positive int, got {batch_size!r}")
        return operator.index(batch_size)

    def _prepared(self) -> Order:
        if self._order is not None:
            return self._order
        if self._shuffle_after_epoch and self._random_shuffle:
            raise RuntimeError(f"{self._op}: shuffle_after_epoch and random_shuffle exclude each other")
        if self._shuffle_after_epoch and self._stick_to_shard:
            raise RuntimeError(f"{self._op}: shuffle_after_epoch and stick_to_shard exclude each other")
        if self._initial_fill < 1 or self._depth < 1:
            raise RuntimeError(f"{self._op}: initial_fill and prefetch_queue_depth must be positive, got {self._initial_fill} and {self._depth}")
        size = self._scan()
        if size < self._num_shards:
            raise RuntimeError(
                f"{self._op}: The number of input samples: {size}, needs to be at least equal to the requested number of shards: {self._num_shards}"
            )
        if self._restored is not None:
            self._restore(self._restored)
        self._order = Order(
            size,
            self._shard_id,
            self._num_shards,
            self._stick_to_shard,
            self._pad_last_batch,
            self._random_shuffle,
            self._initial_fill,
            self._seeds[0],
            self._shuffle_after_epoch,
            self._seeds[1],
        )
        return self._order

    def _step(self, batch_size: int | None, ctx: EvalContext | None, skip: int = 0) -> tuple[Any, ...]:
        """One batch or sample; ``skip`` batches are left to other workers after it."""
        count = self._batch_size(batch_size)
        with self._lock, ctx or nullcontext():
            order = self._prepared()
            self._started = True
            ahead = self._ahead
            if ahead and (ahead[0].position, ahead[0].skip, len(ahead[0].samples)) != (self._position, skip, count):
                ahead.clear()
            try:
                while len(ahead) <= self._depth:
                    position = ahead[-1].after if ahead else self._position
                    samples, after = order.take(position, count)
                    ahead.append(Ahead(position, skip, order.skip(after, count, skip), samples, self._start(samples)))
                outputs = self._finish(ahead[0].request, ahead[0].samples)
            except BaseException:
                ahead.clear()  # asking again reads again
                raise
            self._position = ahead.popleft().after
        return outputs if batch_size is not None else tuple(one._sample(0) for one in outputs)

    def get_metadata(self, batch_size: int | None = None) -> dict[str, int]:
        """Numbers of samples and shards: ``epoch_size``, ``epoch_size_padded`` (of all shards), ``number_of_shards``, ``shard_id``,
        ``pad_last_batch`` and ``stick_to_shard``.
        """
        with self._lock:
            order = self._prepared()
        return {
            "epoch_size": order.size,
            "epoch_size_padded": order.padded_shard * order.num_shards if order.pad_last_batch else order.size,
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
            ValueError: text that is no base64.
            RuntimeError: after the first step; at the first step, when the text is no state.
        """
        if isinstance(state, bytes):
            state = state.decode("ascii", "replace")
        if not isinstance(state, ReaderState | str):
            raise TypeError(f"{self._op}: a state is a ReaderState, str or bytes, not {type(state).__name__}")
        if self._started:
            raise RuntimeError(f"{self._op}: the state cannot be set after iteration has begun")
        restored = base64.b64decode(str(state).encode("ascii", "replace"), validate=True).decode(errors="replace")
        with self._lock:
            self._restored, self._order = restored, None
            self._checkpointing = True

    def _restore(self, text: str) -> None:
        try:
            self.load_state_dict(json.loads(text))
        except (ValueError, TypeError, KeyError) as error:
            raise RuntimeError(f"{self._op}: this is no state of a reader: {error}") from None

    def state_dict(self) -> dict[str, Any]:
        """The position of the consumer, at any moment, as numbers."""
        with self._lock:
            if self._restored is not None:
                self._restore(self._restored)
            return {
                "version": STATE_VERSION,
                "epochs": self._epochs,
                "passes": self._position.passes,
                "offset": self._position.offset,
                "seeds": list(self._seeds),
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position, at any moment. ValueError for what :meth:`state_dict` did not return."""
        if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
            raise ValueError(f"{self._op}: this is no state of version {STATE_VERSION}: {state!r}")
        epochs, passes, offset = (operator.index(state[key]) for key in ("epochs", "passes", "offset"))
        seed, other = (operator.index(one) for one in state["seeds"])
        with self._lock:
            self._ahead.clear()
            self._restored, self._order = None, None
            self._epochs, self._position, self._seeds = epochs, Position(passes, offset), (seed, other)

    # The protocol of PyTorch.

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        worker = get_worker_info()
        return self._epoch(self._max_batch_size, None, *((worker.id, worker.num_workers) if worker else ()))

    def __len__(self) -> int:
        with self._lock:
            return self._prepared().steps(self._epochs, self._batch_size(self._max_batch_size))

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {**self.__dict__, "_ahead": deque(), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<{self._op}>"

    def _whole(self, argument: str, value: Any, default: int) -> int:
        if value is None:
            return default
        if isinstance(value, Tensor):
            value = value.item()
        try:
            return operator.index(value)
        except TypeError:
            raise TypeError(f"{self._op}: {argument} must be an int, got {value!r}") from None
