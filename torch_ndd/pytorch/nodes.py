# SPDX-License-Identifier: Apache-2.0
"""Nodes for ``torchdata.nodes``: a reader, a function on one of its outputs, and conversion to torch tensors, all with state."""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torchdata.nodes import BaseNode

from .._core.context.cuda import Stream
from .._core.context.states import anything, check_state, keys, or_none, whole
from .._core.values.batch import Batch
from .._core.values.tensor import Tensor
from ..readers import Reader as AnyReader
from ..readers._failed import FailedBatch

__all__ = ["DictMapper", "Reader", "ToTorch"]

_STATE = keys(reader=anything, left=or_none(whole()))
_STATE_BEHIND = keys(source=anything)


class _Node(BaseNode[Any]):
    """Base class that uses in ``next``, on any thread, the CUDA device that was current at ``reset``."""

    _cuda: int | None = None

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        self._cuda = torch.cuda.current_device() if torch.cuda.is_available() else None

    def _on_device(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._cuda is None else torch.cuda.device(self._cuda)


class Reader(_Node):
    """Yield the epochs of a reader as dicts of Batches, or of Tensors if ``batch_size`` is None, like ``next_epoch(batch_size)``.

    Each ``reset`` begins the next epoch, unless no batch was delivered since the last one. The state is small, JSON-serializable and valid at any
    time; ``reset(state)`` resumes there, with the rest of that epoch, in a node of the same reader, also with another batch size.

    Args:
        reader_type: A class of :mod:`torch_ndd.readers`.
        batch_size: Samples per batch; also the reader's ``max_batch_size`` unless that is given.
        output_names: Names of the outputs; by default ``("data", "label")`` for two outputs, and the reader's own for readers that yield dicts.
        **kwargs: Arguments of ``reader_type``.

    Raises:
        ValueError: at the first step, if there are no names for the outputs, or a wrong number of names.
        RuntimeError: ``next`` before ``reset``.

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for k in range(4):
    ...     _ = (folder / f"{k}.jpg").write_bytes(bytes([k]))
    >>> def node():
    ...     return ToTorch(Reader(ndd.readers.File, batch_size=2, files=sorted(folder.iterdir())))
    >>> first = node()
    >>> [values.tolist() for values in next(first)]
    [[[0], [1]], [[0], [1]]]
    >>> second = node()
    >>> second.reset(first.state_dict())
    >>> [labels.tolist() for data, labels in second]
    [[[2], [3]]]
    """

    def __init__(self, reader_type: type[AnyReader], *, batch_size: int | None, output_names: Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__()
        if "max_batch_size" in inspect.signature(reader_type).parameters:
            kwargs.setdefault("max_batch_size", batch_size)
        self._reader = reader_type(**kwargs)
        self._batch_size = batch_size
        self._names = None if output_names is None else tuple(output_names)
        self._epoch: Iterator[Any] | None = None
        self._left: int | None = None  # samples of this epoch, all ranks together; None for all of them
        self._restored = False  # no batch was delivered since a state was restored

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begin the next epoch, or resume from a state."""
        super().reset(initial_state)
        if initial_state is not None:
            state = check_state("pytorch.nodes.Reader", _STATE, initial_state)
            self._reader.load_state_dict(state["reader"])
            self._left, self._restored = state["left"], True
        elif not self._restored:
            self._left = None
        count, shards = self._batch_size or 1, self._reader.num_shards
        steps = None if self._left is None else math.ceil(self._left / (count * shards))
        self._epoch = self._reader.iter_epoch(self._batch_size, None, steps)

    def next(self) -> dict[str, Any]:
        """Return the next batch. Raise StopIteration at the end of the epoch."""
        if self._epoch is None:
            raise RuntimeError("pytorch.nodes.Reader: next() was called before reset()")
        step = self._batch_size or 1
        with self._on_device():
            if self._left is None:
                self._left = self._reader.count_steps(self._batch_size) * step * self._reader.num_shards
            try:
                outputs = next(self._epoch)
            except StopIteration:
                self._restored = False
                raise
        self._restored = False
        self._left = max(0, self._left - step * self._reader.num_shards)
        if isinstance(outputs, FailedBatch):
            raise outputs.error
        return self._name_outputs(outputs)

    def _name_outputs(self, outputs: Any) -> dict[str, Any]:
        name = type(self._reader).__name__
        if isinstance(outputs, dict):
            names, outputs = tuple(outputs) if self._names is None else self._names, tuple(outputs.values())
        elif self._names is not None:
            names = self._names
        elif len(outputs) == 2:
            names = ("data", "label")
        else:
            raise ValueError(f"pytorch.nodes.Reader: Cannot infer output names for reader {name} with {len(outputs)} outputs; give output_names")
        if len(names) != len(outputs):
            found = f"{len(names)} names, and reader {name} has {len(outputs)}"
            raise ValueError(f"pytorch.nodes.Reader: Number of output names does not match number of outputs: {found}")
        return dict(zip(names, outputs, strict=True))

    def get_state(self) -> dict[str, Any]:
        """Return the position; batches read ahead do not count."""
        return {"reader": self._reader.state_dict(), "left": self._left}

    def get_metadata(self) -> dict[str, int]:
        """Return the metadata of the reader."""
        return self._reader.get_metadata()


class _Following(_Node):
    def __init__(self, source: BaseNode[Any]) -> None:
        super().__init__()
        self._source = source

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Reset the source, to its state if one is given."""
        super().reset(initial_state)
        self._source.reset(None if initial_state is None else check_state("pytorch.nodes", _STATE_BEHIND, initial_state)["source"])

    def get_state(self) -> dict[str, Any]:
        """Return the state of the source."""
        return {"source": self._source.state_dict()}


class DictMapper(_Following):
    """Replace one entry of a node's dicts by a function of it.

    Args:
        source: A node that yields dicts, such as :class:`Reader`.
        map_fn: The function.
        key: Key of the entry.

    Raises:
        KeyError: at a step, if there is no such entry.
    """

    def __init__(self, source: BaseNode[dict[str, Any]], map_fn: Callable[[Any], Any], key: str = "data") -> None:
        super().__init__(source)
        self._function, self._key = map_fn, key

    def next(self) -> dict[str, Any]:
        """Return the next dict; the source's dict is not modified."""
        values = dict(next(self._source))
        with self._on_device():
            values[self._key] = self._function(values[self._key])
        return values


class ToTorch(_Following):
    """Convert a node's dicts to tuples of torch tensors, in their order.

    If one of the entries is on a GPU, those in host memory are copied there.

    Args:
        source: A node that yields dicts of Batches and Tensors.
        output_stream: The CUDA stream that waits for the tensors; by default the current one at construction.

    Raises:
        ValueError: at a step, for samples of different shapes, and for entries on different GPUs.
    """

    def __init__(self, source: BaseNode[dict[str, Any]], output_stream: Any = None) -> None:
        super().__init__(source)
        if output_stream is None:
            self._stream = torch.cuda.current_stream() if torch.cuda.is_available() else None
        else:
            self._stream = (output_stream if isinstance(output_stream, Stream) else Stream(stream=output_stream)).torch

    def next(self) -> tuple[torch.Tensor, ...]:
        """Return the next tensors."""
        values = list(next(self._source).values())
        with self._on_device(), nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            on_gpu = {device for value in values if (device := _device(value)).type != "cpu"}
            if len(on_gpu) > 1:
                raise ValueError(f"pytorch.nodes.ToTorch: the entries are on different GPUs: {', '.join(sorted(map(str, on_gpu)))}")
            target = on_gpu.pop() if on_gpu else torch.device("cpu")
            return tuple(_to_torch(value, target) for value in values)


def _device(value: Any) -> torch.device:
    return value.buffer.device if isinstance(value, Batch | Tensor) else torch.as_tensor(value).device


def _to_torch(value: Any, target: torch.device) -> torch.Tensor:
    if isinstance(value, Batch | Tensor):
        return (value.to_device(target) if value.buffer.device != target else value).torch()
    return torch.as_tensor(value).to(target)
