# SPDX-License-Identifier: Apache-2.0
"""Any map-style ``torch.utils.data.Dataset`` as a reader."""

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from typing_extensions import Unpack, override

from ..._core.context.device import DeviceLike
from ..._core.context.rng import follow_samples, using_rng
from ..._core.process.weak import WeakCall
from ..._core.process.workers import Workers, is_here
from ..._core.work.diagnosis import is_loading
from ..._core.work.sources import Sources
from .._may_be_empty import MayBeEmpty
from .._options import LoaderOptions
from .._order import Order
from .._sample_source import Collated
from .._seeds import compute_seeds
from .._threads import READING_THREADS, ThreadedReader
from ._activity import Activity
from ._generators import follow_with_shared, keep_shared_generators
from ._items import Failed, Rows, find_table, first_sample, may_draw, needs_preparation, prepare_item, resolve_subsets, take_rows
from ._requests import ItemRequest, Pace, PaceOfProcesses, check_items, choose_size, collate_items, read_each
from ._worker_processes import Context, Processes, check_context


class _Request(NamedTuple):
    """A batch that is being read."""

    wait: Callable[[], list[Any]]  # for the items; without threads it reads them
    seeds: np.ndarray | None  # of what each item draws


class Dataset(MayBeEmpty, ThreadedReader):
    """Read a map-style data set: any object with ``__getitem__`` and ``__len__``.

    Its items become what torch's ``default_collate`` makes of them, with Batches in place of tensors: tensors and arrays a Batch, which may be
    ragged; numbers a Batch (N,); texts and bytes a list; of tuples, lists, named tuples and mappings each part. What torch refuses: PIL images become
    a Batch ``HWC``; files marked by a ``pathlib`` path or :class:`EncodedFile` the encoded files, a Batch uint8 (length,), which
    :func:`torch_ndd.decoders.image` decodes; of dataclasses each field; other objects a list. An item without parts is the only output.

    ``__getitem__`` is called on threads, by default a few more than cores, at the same time for several items. It works in parallel as far as it
    releases the GIL (decoding, NumPy, torch, files). One that does not is called in processes: ``multiprocessing_context="fork"`` or ``"spawn"``.
    A data set with ``__getitems__`` (those of Hugging Face) is called with lists of indices instead, those of a batch or a part for each thread; in
    processes it is not.
    The random numbers that an item draws depend only on the seed (the loader's, if there is one), the epoch and the position of the item. They are
    the same with any number of processes and after a resume, and differ where an index is repeated. In processes and with ``num_workers=0`` this
    holds for ``random``, NumPy and torch (CPU); in threads, which share these generators, only for :mod:`torch_ndd.random` and for operators. All
    items of one call of ``__getitems__`` share the numbers of the first.

    The data set may change between epochs, also in size: nothing of an epoch is read before it begins. Without items a loop over the reader yields
    nothing, as in torch.

    Args:
        dataset: the data set.
        max_batch_size: default batch size of :meth:`next_epoch`.
        device: ``"cpu"``.
        collate_fn: called with the list of a batch's items; its result is the output, in place of Batches.
        multiprocessing_context: ``"fork"``, ``"spawn"``, ``"forkserver"`` or a context of ``multiprocessing``: call ``__getitem__`` in processes.
        persistent_workers: keep the processes, and their copies of the data set, for the next epoch. By default each epoch has new ones, which see
            what has changed in the data set.
        num_workers: number of threads or processes. 0 calls it on the thread that reads, one item after the other: in a loader the program's own, if
            the items may draw random numbers.
        sampler: an iterable of indices with ``__len__``, like those of ``torch.utils.data``. It is iterated over once per epoch, after
            ``set_epoch(epoch)`` if it has that; a ``generator`` of its own is seeded with the reader's seed and the epoch, so that an epoch resumes.
        **loader: Sharding, shuffling, padding, read-ahead and bad samples, see :class:`LoaderOptions`.

    Raises:
        TypeError: a data set without ``__getitem__`` or ``__len__``, or that cannot be sent to processes; indices that are not integers.
        ValueError: a negative ``num_workers``, another start method, ``sampler`` with ``random_shuffle``.
        RuntimeError: at any step, for an item that cannot be read; the message names it, and its cause is the data set's exception. Also from
            :meth:`next_epoch` if the data set is empty, because it returns full batches only.

    >>> reader = Dataset([(torch.arange(k), k % 2) for k in range(3)], 2)
    >>> for values, labels in reader:
    ...     print(values.shape, labels.torch())
    [(0,), (1,)] tensor([0, 1])
    [(2,)] tensor([0])
    """

    def __init__(
        self,
        dataset: Any,
        max_batch_size: int | None = None,
        device: DeviceLike = "cpu",
        *,
        collate_fn: Any = None,
        multiprocessing_context: Context | None = None,
        num_workers: int | None = None,
        persistent_workers: bool | None = False,
        sampler: Any = None,
        **loader: Unpack[LoaderOptions],
    ) -> None:
        super().__init__(max_batch_size, device, loader)
        if not hasattr(dataset, "__getitem__") or (sampler is None and not hasattr(dataset, "__len__")):
            raise TypeError(f"{self._op}: dataset must have __getitem__ and __len__, got {type(dataset).__name__}")
        if num_workers is not None and num_workers < 0:
            raise ValueError(f"{self._op}: num_workers must not be negative, got {num_workers}")
        check_context(self._op, multiprocessing_context)
        if sampler is not None:
            self._check_sampler(sampler)
        self._dataset, self._collate, self._sampler = dataset, collate_fn, sampler
        self._context: Context | None = multiprocessing_context
        self._workers, self._keeps_processes = num_workers, bool(persistent_workers)
        self._processes: Processes | None = None
        self._lender: Dataset | None = None  # whose threads are used
        self.reads_together = multiprocessing_context is None and _has_getitems(dataset)
        self._begun = False  # an epoch
        self._activity, self._pace = Activity(), Pace() if multiprocessing_context is None else PaceOfProcesses()

    # `len(dataset)` is asked for in every epoch, because a data set or sampler may have grown.
    _can_change = True

    def _begin_source(self) -> None:
        processes, begun, self._begun = self._processes, self._begun, True
        if begun and processes is not None and not self._keeps_processes:
            self._processes = None
            processes._group.end_in_background()

    def _check_sampler(self, sampler: Any) -> None:
        if self._random_shuffle or self._shuffle_after_epoch:
            raise ValueError(f"{self._op}: sampler and random_shuffle exclude each other: both define the order of the samples")
        if isinstance(sampler, torch.utils.data.DistributedSampler):
            raise TypeError(f"{self._op}: sampler: in place of a DistributedSampler give num_shards and shard_id: **ndd.distributed.shard()")
        if not hasattr(sampler, "__iter__") or not hasattr(sampler, "__len__"):
            raise TypeError(f"{self._op}: sampler must be an iterable of indices with __len__, got {type(sampler).__name__}")

    @override
    def scan(self) -> int:
        return len(self._dataset if self._sampler is None else self._sampler)

    @override
    def list_costs(self, column: str) -> np.ndarray:
        if column not in (getattr(self._dataset, "column_names", None) or ()):  # of a Hugging Face data set
            return super().list_costs(column)
        values = np.asarray(self._dataset[column])
        if values.dtype.kind not in "biuf":
            raise ValueError(f"{self._op}: column {column!r} holds {values.dtype}, not numbers")
        return values

    @override
    def list_labels(self) -> np.ndarray | None:
        targets = getattr(self._dataset, "targets", None)  # of torchvision's data sets
        found = None if targets is None else np.asarray(targets)
        return found if found is not None and found.ndim == 1 and len(found) == len(self._dataset) else None

    def _customize_order(self, order: Order) -> Order:
        if self._sampler is None:
            return order
        return SampledOrder(**{field.name: getattr(order, field.name) for field in fields(order)}, indices=self._indices)

    def _indices(self, epoch: int) -> np.ndarray:
        """Return the indices that the sampler yields in an epoch."""
        sampler: Any = self._sampler
        size = self._size  # counted from len(sampler), and positions rely on it
        assert size is not None
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        generator = getattr(sampler, "generator", None)
        seeded = hasattr(sampler, "generator")
        if seeded:
            # The sampler's generator is replaced for this epoch, so that its indices are a function of seed and epoch, and a state can return to it.
            first = self._state.seeds[0] if generator is None else generator.initial_seed()
            sampler.generator = torch.Generator().manual_seed((first + 1_000_003 * epoch) % 2**63)
        try:
            # One index more than there should be shows that there are others, of which an endless sampler has enough to fill the memory.
            found = list(itertools.islice(sampler, size + 1))
        finally:
            if seeded:
                sampler.generator = generator
        if len(found) != size:
            count = f"more than {size}" if len(found) > size else len(found)
            raise RuntimeError(f"{self._op}: the sampler yields {count} indices, but its length is {size}")
        if not all(hasattr(index, "__index__") for index in found):
            wrong = next(index for index in found if not hasattr(index, "__index__"))
            raise TypeError(f"{self._op}: the sampler must yield integers, got {wrong!r}; in place of a batch sampler give batch_size")
        try:
            return np.asarray(found, np.int64)
        except OverflowError:
            raise IndexError(f"{self._op}: the sampler yields an index that does not fit into 64 bits") from None

    def _source(self, sample: int) -> str:
        files = getattr(self._dataset, "samples", None)  # of torchvision's DatasetFolder
        if isinstance(files, Sequence) and 0 <= sample < len(files) and isinstance(files[sample], tuple) and isinstance(files[sample][0], str):
            return files[sample][0]
        return f"{type(self._dataset).__name__}[{sample}]"

    @property
    def _delivers_items(self) -> bool:
        """Whether items are collated here, so that those of several data sets can be collated together."""
        return self._collate is None and type(self) is Dataset

    def _share_threads(self, other: "Dataset") -> None:
        """Use the threads of another data set, unless this one or the other has threads or processes of its own."""
        if other is not self and (self._context, self._workers, other._context, other._workers) == (None,) * 4:
            self._lender = other

    def _pool(self) -> Workers:
        if self._lender is not None:
            return self._lender._pool()
        if not is_here(self._executor):
            count = (READING_THREADS if self._context is None else os.cpu_count() or 1) if self._workers is None else max(1, self._workers)
            self._processes = None
            self._activity = Activity()  # a forked child has none of the threads that were active
            self._executor = Workers(count, self._op, self)
        if self._context is not None and self._processes is None:  # also where Ctrl-C has interrupted their start
            try:
                self._processes = Processes(self._context, self._executor.max_workers, self._dataset, self._collate is not None, self)
            except TypeError as error:
                raise TypeError(f"{self._op}: {error}") from error.__cause__
        return self._executor

    def _read(self, sample: int) -> Any:
        return prepare_item(self._dataset[sample])

    def _read_alone(self, samples: Iterable[int]) -> list[Any]:
        """Return what :meth:`_read_piece` does, from a call for each item."""
        read, samples = self._dataset.__getitem__, iter(samples)  # bound once: 64 quick items take 3 us, with operator.getitem 5
        if self._collate is not None:
            return read_each(read, samples)
        first = read_each(read, itertools.islice(samples, 1))
        # What an item is converted from, such as a picture of PIL, is not kept until all of them were read.
        read = self._read if self._prepares(first) else read
        return self._prepare(first) + read_each(read, samples)

    def _prepares(self, items: list[Any]) -> bool:
        """Return whether items must be prepared here; the first one shows it, and :func:`collate_items` prepares others that turn up."""
        return self._collate is None and bool(items) and needs_preparation(items[0])

    def _prepare(self, items: list[Any]) -> list[Any]:
        return read_each(prepare_item, items) if self._prepares(items) else items

    def _read_piece(self, samples: list[int], seeds: list[int] | None = None) -> list[Any]:
        """Return the items of some samples, with :class:`Failed` in place of those that cannot be read."""
        if self._processes is not None and not self.reads_together:
            # Each process has a thread that waits for it; the items are prepared there.
            return self._processes.items(samples, seeds)
        if seeds is None:
            return self._read_together(samples, samples) if self.reads_together else self._read_alone(samples)
        is_here = self._reads_inline()
        # Generators that all threads share are seeded only where none of them can draw meanwhile.
        with using_rng(), keep_shared_generators() if is_here else nullcontext():
            following = follow_with_shared(self._dataset, samples, seeds) if is_here else follow_samples(samples, seeds)
            return self._read_together(samples, following) if self.reads_together else self._read_alone(following)

    def _read_together(self, samples: list[int], following: Iterable[int]) -> list[Any]:
        """Return what :meth:`_read_piece` does, from one call for all items, or if that fails from a call for each of those that follow."""
        following = iter(following)
        first = next(following, None)  # whose seed is that of the call
        try:
            items = self._dataset.__getitems__(samples)
        except Exception:
            # Read one after the other, they show which sample is bad.
            return self._read_alone(itertools.chain(() if first is None else (first,), following))
        if len(items) != len(samples):
            error = RuntimeError(f"__getitems__ returned {len(items)} items for {len(samples)} indices")
            return [Failed(error)] * len(samples)
        return self._prepare(items)

    def find_pool(self) -> Workers | None:
        """Return the threads that should read; None for the one that wants the items.

        :meta private:
        """
        return None if self._reads_inline() else self._pool()

    @override
    def draws(self) -> bool:
        return may_draw(self._dataset)

    @override
    def reads_here(self) -> bool:
        return self._reads_inline() and self.draws()

    @override
    def is_quick(self) -> bool:
        return self._context is None and (self._pace.in_turn or self._has_table())

    def _has_table(self) -> bool:
        """Return whether the samples of a batch are rows of tensors, which one thread takes together."""
        return self._delivers_items and self._context is None and find_table(self._dataset) is not None

    def _read_rows(self, samples: np.ndarray) -> list[Any]:
        with self._activity:
            rows = take_rows(self._dataset, samples)
            return self._read_alone(samples.tolist()) if rows is None else rows

    @override
    def start(self, samples: np.ndarray) -> "_Request":
        # Without a place in an epoch, what an item draws follows from its number.
        return self._start(samples, compute_seeds(self._state.seeds[0], -1, samples) if self.draws() else None)

    @override
    def start_seeded(self, samples: np.ndarray, seeds: np.ndarray) -> "_Request":
        return self._start(samples, seeds if self.draws() else None)

    def _start(self, samples: np.ndarray, seeds: np.ndarray | None) -> "_Request":
        if self._has_table():
            return _Request(partial(WeakCall(self._read_rows), samples), seeds)
        pool, numbers = self.find_pool(), samples.tolist()
        pace = None if pool is None else self._pace
        size = choose_size(len(numbers), pool, pace, self.reads_together)
        # Requests must not hold the reader that holds them, or its threads and what the data set has open would outlive the loader.
        read = WeakCall(self._read_piece)
        cuts = [slice(begin, begin + size) for begin in range(0, len(numbers), size)]
        if seeds is None:
            reads = [partial(read, numbers[cut]) for cut in cuts]
        else:
            words = seeds.view(np.uint64).tolist()
            reads = [partial(read, numbers[cut], words[cut]) for cut in cuts]
        return _Request(ItemRequest(reads, len(numbers), pool, pace, self._activity, self.reads_together, is_loading()).items, seeds)

    @override
    def finish(self, request: "_Request", samples: np.ndarray) -> Any:
        found = (self._start(samples, request.seeds) if self._is_forked() else request).wait()
        if isinstance(found, Rows):
            return found.outputs(Sources(self._source, samples))
        sources = Sources(self._source, samples)
        if self._collate is not None:
            check_items(found)
            return Collated(self._collate(found), len(samples), sources)
        return collate_items(found, sources)

    def _reads_inline(self) -> bool:
        return self._workers == 0 and self._context is None

    def _is_forked(self) -> bool:
        """Whether requests belong to threads of the parent process, which this one does not have."""
        return not self._reads_inline() and not is_here((self._lender or self)._executor)

    def _first(self, outputs: Any) -> Any:
        return first_sample(outputs)

    @override
    def describe_bottleneck(self) -> tuple[str, str]:
        executor = self._executor if self._lender is None else self._lender._executor
        workers = executor.max_workers if executor is not None else 1
        cores = self._activity.cores()
        if self._processes is not None:
            advice = "give it more processes (num_workers), or let it return paths, whose files are read and decoded by native threads"
        elif self._workers == 0:
            advice = "give it threads (num_workers)"
        # About one busy core for several threads means that they wait for the GIL.
        elif workers > 1 and 0.4 < cores < 1.3:
            advice = f"its Python code holds the GIL: {workers} threads use {cores:.1f} cores; run it in processes (multiprocessing_context)"
        else:
            advice = "give it more threads (num_workers), or let it return paths, whose files are read and decoded by native threads"
        return type(self._dataset).__name__, advice

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_processes": None}


def _has_getitems(dataset: Any) -> bool:
    """Return whether a data set reads several items in one call, which torch's ``DataLoader`` uses too."""
    # A Subset has the method in any case: without that of its data set it reads item by item, which is done here on all threads.
    dataset, _ = resolve_subsets(dataset, [])
    return callable(getattr(dataset, "__getitems__", None))


@dataclass(frozen=True)
class SampledOrder(Order):
    """The order of a sampler, which is iterated over once per pass."""

    indices: Callable[[int], np.ndarray] = field(default=lambda epoch: np.zeros(0, np.int64), compare=False)

    @property
    def _has_table(self) -> bool:
        return True

    @override
    def _permute(self, passes: int) -> np.ndarray:
        return self.indices(passes)
