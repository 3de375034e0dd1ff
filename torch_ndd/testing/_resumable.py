# SPDX-License-Identifier: Apache-2.0
"""Whether an interrupted epoch resumes exactly where it was."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from .._core.values.batch import Batch
from .._core.values.tensor import Tensor

_ARRAY = re.compile(rb"(bool|u?int\d+|float\d+|complex\d+)(\([\d, ]*\))")
_SHOWN = 6  # values of a sample, and samples of a batch, in a message


class Resumable(Protocol):
    """An iterable with a state: a reader, a ``ndd.DataLoader``, a ``StatefulDataLoader``."""

    def __iter__(self) -> Iterator[Any]: ...
    def state_dict(self) -> dict[str, Any]:
        """Return the state, JSON-serializable."""
        ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Restore a state; the next loop yields the rest of its epoch."""
        ...


class Resumed(NamedTuple):
    """The result of :func:`assert_resumable`."""

    cuts: int
    samples: int
    state_bytes: int
    """Size of the largest state as JSON."""


def assert_resumable(
    make_loader: Callable[[int, int, int], Resumable],
    cuts: Iterable[int] | None = None,
    worlds: Sequence[tuple[int, int]] = ((1, 1), (1, 2), (2, 3), (3, 1)),
    batch_sizes: Sequence[int] = (1, 3, 8),
    merge: Callable[[list[dict[str, Any]]], dict[str, Any]] | None = None,
) -> Resumed:
    """Check that an interrupted epoch resumes exactly where it was.

    For each batch size, pair of worlds and cut: one loader per rank of the first world takes ``cut`` batches, in step. The state of one of them,
    through JSON, is loaded by new loaders, one per rank of the second world. Together these must yield the missing samples of the epoch, each once.
    In a world of the same size each rank must yield what it would have without the interruption, bit for bit and in the same batches, and the same
    second epoch.

    Args:
        make_loader: creates a loader from rank, number of ranks and batch size.
        cuts: numbers of batches; by default all from 0 to the whole epoch.
        worlds: pairs of numbers of ranks, before and after the interruption.
        batch_sizes: given to ``make_loader``; if the worlds differ, the loaders after the interruption get another one.
        merge: merges the states of all ranks, like ``readers.merge_states``; by default the state of one rank is used.

    Returns:
        How much was compared.

    Raises:
        AssertionError: with the batch size, the worlds and the cut, and which samples are missing or repeated.

    >>> import torch_ndd as ndd, tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for i in range(5):
    ...     _ = (folder / f"{i}.bin").write_bytes(bytes([i]))
    >>> def make_loader(rank, world, batch_size):
    ...     files = sorted(folder.iterdir())
    ...     return ndd.readers.File(batch_size, files=files, random_shuffle=True, shard_id=rank, num_shards=world)
    >>> assert_resumable(make_loader, worlds=[(1, 1), (2, 3)], batch_sizes=[2]).cuts
    7
    """
    compared, samples, largest = 0, 0, 0
    fixed_cuts = None if cuts is None else list(cuts)
    for batch_size in batch_sizes:
        for before, after in worlds:
            epochs = [_epochs(make_loader(rank, before, batch_size), 2) for rank in range(before)]
            steps = [len(first) for first, _ in epochs]
            everything = Counter(sample for first, _ in epochs for batch in first for sample in batch)
            for cut in range(max(steps) + 1) if fixed_cuts is None else fixed_cuts:
                case = f"batch size {batch_size}, {before} to {after} ranks, cut after {cut} batches"
                loaders = [make_loader(rank, before, batch_size) for rank in range(before)]
                delivered = [
                    [_samples(batch_delivered) for batch_delivered in islice(iter(loader), min(cut, steps[rank]))]
                    for rank, loader in enumerate(loaders)
                ]
                states = [loader.state_dict() for loader in loaders]
                text = json.dumps(merge(states) if merge else states[int(np.argmax(steps))])
                largest = max(largest, len(text))
                # A world of another size takes other batches too; the sequence of one rank is compared only within the same world.
                size = batch_size if before == after else batch_size % 4 + 1
                rests = []
                for rank in range(after):
                    loader = make_loader(rank, after, size)
                    if rank % 2:  # a loader that was in use must forget its position
                        next(iter(loader), None)
                    loader.load_state_dict(json.loads(text))
                    rest, second = _epochs(loader, 2)
                    rests.append(rest)
                    if before == after:
                        expected = epochs[rank][0][cut:]
                        assert rest == expected, f"{case}: rank {rank} does not deliver the rest of its epoch: {_difference(rest, expected)}"
                        assert second == epochs[rank][1], f"{case}: rank {rank} delivers another second epoch: {_difference(second, epochs[rank][1])}"
                union = Counter(sample for batches in (*delivered, *rests) for batch in batches for sample in batch)
                missing, twice = everything - union, union - everything
                assert not missing | twice, (
                    f"{case}: {missing.total()} samples are missing and {twice.total()} there twice: {_describe(missing)} and {_describe(twice)}"
                )
                compared += 1
                samples += union.total()
    return Resumed(compared, samples, largest)


def _difference(found: list[list[bytes]], expected: list[list[bytes]]) -> str:
    """Return the first batch that differs."""
    for k, (ours, theirs) in enumerate(zip_longest(found, expected)):
        if ours != theirs:
            return f"batch {k} is {_describe(ours)} instead of {_describe(theirs)}"
    return "none differs"


def _describe(samples: Iterable[bytes] | None) -> str:
    """Return the values of some samples as a text."""
    if samples is None:
        return "missing"
    texts = [_text(sample) for sample in samples]
    return f"[{', '.join(texts[:_SHOWN])}{', ...' * (len(texts) > _SHOWN)}]"


def _text(sample: bytes) -> str:
    """Return the values of a sample, which begins like ``float32(2, 3)``, as a text."""
    found = _ARRAY.match(sample)
    if found is None:
        return sample[:40].decode(errors="replace")
    extents, values = [int(extent) for extent in re.findall(rb"\d+", found[2])], sample[found.end() :]
    count, dtype = math.prod(extents), np.dtype(found[1].decode())
    shown = np.frombuffer(values, dtype, min(count, _SHOWN)).tolist()
    text = f"{str(shown)[:-1]}, ...]" if count > _SHOWN else str(shown if extents else shown[0])
    rest = values[count * dtype.itemsize + 1 :]
    return f"({text}, {_text(rest)})" if rest else text


def _epochs(loader: Resumable, count: int) -> list[list[list[bytes]]]:
    return [[_samples(batch) for batch in loader] for _ in range(count)]


def _samples(batch: Any) -> list[bytes]:
    """Return the samples of a batch as bytes that are equal for equal samples."""
    parts = list(batch.values()) if isinstance(batch, Mapping) else batch if isinstance(batch, tuple | list) else [batch]
    columns = [_column(part) for part in parts]
    assert len({len(column) for column in columns}) == 1, f"the parts of a batch have {[len(column) for column in columns]} samples"
    return [b"|".join(row) for row in zip(*columns, strict=True)]


def _column(part: Any) -> list[bytes]:
    if isinstance(part, Batch):
        return [_bytes(np.asarray(item)) for item in part]
    if isinstance(part, Tensor):
        return [_bytes(np.asarray(part))]
    if isinstance(part, torch.Tensor):
        part = part.numpy()
    return [_bytes(item) if isinstance(item, np.ndarray | np.generic) else repr(item).encode() for item in part]


def _bytes(array: "np.ndarray | np.generic") -> bytes:
    return f"{array.dtype}{array.shape}".encode() + array.tobytes()
