# SPDX-License-Identifier: Apache-2.0
"""``DataLoader``: batches for training, prepared ahead of the model."""

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import nullcontext
from functools import cached_property, partial
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ._core.context import streams
from ._core.context.context import EvalContext, EvalMode
from ._core.context.device import DeviceLike
from ._core.context.pools import available_cpus, get_num_threads
from ._core.context.rng import RNG, get_default_rng, has_chosen_seed, using_rng
from ._core.context.states import anything, check_state, equal, keys, whole
from ._core.native import MAX_SAMPLES
from ._core.process.fork_locks import new_lock, new_reentrant_lock
from ._core.process.workers import Workers, is_here
from ._core.suggestions import accepts
from ._core.values.html import image, table
from ._core.work.diagnosis import Span, Stats, Stopwatch
from ._core.work.sources import name_in_batch
from ._hand_over import HandOver
from ._show import _timeline
from ._structures import add_paths, add_plan, as_torch, count_bytes, map_leaves, move_leaf, pin, sources_of
from .batches import Batches
from .batches._source import BatchSource, Plan, Planned
from .distributed import has_process_group, warn_of_equal_ranks
from .readers import Reader
from .readers._failed import FailedBatch
from .readers._sample_source import Collated
from .readers._sources.choice import OfTorch, missing_attribute, reader_of
from .readers._sources.streams import Stream
from .readers._summary import brief
from .readers.dataset._items import Items, count_of
from .readers.dataset._worker_processes import Context

__all__ = ["DataLoader", "Diagnosis"]

STATE_VERSION = 1
_NO_BATCHES = (GeneratorType, CoroutineType)  # what fn may return by mistake
_STATE = keys(version=equal(STATE_VERSION), reader=anything, seed=whole(-(2**63), 2**64 - 1))

# Generous: two batches of 256 images of 224x224 pixels in float32 are 0.3 GB.
MAX_PREFETCHED_BYTES = 4 << 30
MAX_PREFETCHED = 1 << 16  # each takes some memory, even past the end of the epoch

# Words of the generator reserved for a batch: 150,000 calls of random operators.
_WORDS_OF_A_BATCH = 1 << 20


class _Prepared(NamedTuple):
    """A batch whose operators were submitted, or its error."""

    after: dict[str, Any]  # the reader's state after it; empty if that is unknown, because of an error that is not the batch's
    result: Any
    error: BaseException | None
    bytes: int
    seconds: float  # of its preparation


class Diagnosis(str):
    """The result of :meth:`DataLoader.diagnose`: one line of text, and its figures. A notebook shows it with the timeline."""

    stats: Stats
    """The figures."""
    _watch: Stopwatch

    @cached_property
    def spans(self) -> list[Span]:
        """The latest pieces of work, read on first use: 30,000 of them take some 40 ms."""
        return self._watch.spans()

    def _repr_html_(self) -> str:
        stats = self.stats
        seconds = [(name, getattr(stats, name)) for name in ("wait", "model", "read", "call", "decode", "augment")]
        rows = [(name, f"{value:.2f} s") for name, value in [*seconds, *list(stats.operators.items())[:5]]]
        try:
            below = image(_timeline.picture(self.spans, "")) if self.spans else ""
        except ImportError:
            below = ""
        return table(self, rows, below)


def _choose_seed(reader: Reader | Stream | BatchSource) -> int:
    """Return the seed of a loader that was created without one."""
    # Ranks must have the same state, and agree without a message: a constructor that waits for other processes would hang if one of them builds none.
    # A stream numbers its batches without regard to other ranks, which would then draw the same numbers for other samples.
    has_ranks = reader.num_shards > 1 or (has_process_group() and not isinstance(reader, Stream))
    if has_ranks and not has_chosen_seed():
        return 0
    # 63 bits fit the state.
    return get_default_rng()() & (2**63 - 1)


class DataLoader:
    """Run ``fn`` on the batches of a reader some batches ahead, and yield its results as torch tensors.

    It replaces ``torch.utils.data.DataLoader`` without worker processes: a thread calls ``fn``, whose operators only queue work for native threads
    (or CUDA streams), which run it while the model runs. The program's thread itself reads items of a data set that take less than handing them over,
    and those of ``num_workers=0``. Each loop over the loader is one epoch with each sample once. A loop begins with its first batch: an
    unused iterator changes nothing. It may be left at any time; the next one begins the next epoch. Loops at the same time need a loader each;
    threads may share one loop. What changes in a data set between epochs, also its length, is seen by the next one.

    Random operators in ``fn`` draw numbers that depend only on ``seed`` and the position of the batch in the run, not on other draws or on how far
    ahead ``fn`` runs. Those that a data set draws depend on ``seed``, the epoch and the place of the item, see :class:`readers.Dataset`.

    Args:
        reader: One of

            - a reader of :mod:`torch_ndd.readers`;
            - several in step, which must have the same number of samples: ``{"image": r1, "label": r2}``, or a tuple or list of readers. A reader
              with one output stands for that output, others for their tuple or dict;
            - any ``torch.utils.data.Dataset``, or another object with ``__getitem__`` and ``__len__``: see :class:`readers.Dataset`. Files that it
              marks with a ``pathlib`` path or :class:`readers.EncodedFile` reach ``fn`` as encoded files;
            - an ``IterableDataset`` or another iterable, which is iterated over once per epoch, on one thread;
            - an :class:`ExternalSource`, whose end is that of the epoch.
        fn: Called with the outputs, in their order, or with the dict where they are named; the outputs of a data set are the parts of its items. It
            returns Batches, torch tensors and other values, in tuples, lists, dicts and dataclasses. Without ``fn`` the outputs are yielded, those of
            a data set in the containers of torch's ``default_collate``.
        batch_size: Samples per batch; the last one of an epoch may be smaller. By default the reader's ``max_batch_size``.
        batches: In place of ``batch_size``: batches by the costs of samples, see :mod:`torch_ndd.batches`. ``shard_id`` and ``num_shards`` may then
            be given here or to the reader. The last argument of ``fn``, or the key ``"plan"`` of its dict, is the plan of the batch.
        prefetch: Number of batches to prepare ahead. 0 prepares each batch when it is requested.
        device: Device of the tensors. By default they stay where ``fn`` made them.
        drop_last: Drop a last batch that is smaller.
        seed: Seed of the random operators in ``fn``, and of what a data set draws; by default drawn from the calling thread's generator
            (``random.set_seed``). Ranks of distributed training, which must agree, take 0 unless ``random.set_seed`` was called.
        prefetch_bytes: Prepare no further batch while the waiting ones have this size in total.
        shuffle: Deliver the samples of a data set in random order. Under ``torch.distributed`` without ``num_shards``, a warning: all ranks read all.
        sampler, collate_fn, num_workers, multiprocessing_context: Of data sets, see :class:`readers.Dataset`.
        pin_memory: Put tensors in host memory into pinned memory, and call the ``pin_memory`` method of other objects, where there is a GPU.
        persistent_workers: Of data sets with ``multiprocessing_context``: keep the processes for the next epoch, with their copies of the data set.
            By default each epoch has new ones, as in torch.
        return_paths: Also yield where the samples come from, a list of N texts, as the last part of a tuple or as ``"paths"`` of a dict. If ``fn``
            leaves samples out, such as damaged images, and returns a Batch of the others, the list has the paths of the others.
        **options: Options of all readers for a data set (``shard_id``, ``num_shards``, ``on_error``, ...), see :class:`readers.LoaderOptions`.

    Yields:
        The results of ``fn``. Batches of equal shapes are tensors (N, ...); ragged ones are lists of N tensors.

    Raises:
        ValueError: sizes that are not positive whole numbers; ``batch_size`` or ``drop_last`` together with ``batches``.
        TypeError: another kind of source; an argument of ``torch.utils.data.DataLoader`` that means nothing here, with what takes its place; when its
            batch is due, an ``fn`` that returns None.
        RuntimeError: a folder or a list of files that does not exist; a loop goes on after another one over the same loader has begun.
        Exception: any error of reading, of ``fn`` or of the operators that it called, when its batch is due. The loop can go on: ``next`` returns the
            batch after it, where a state taken then continues too. Errors that belong to no batch end the loop, such as a source without a readable
            sample.

    >>> import pathlib, tempfile
    >>> import torch_ndd as ndd
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for i in range(5):
    ...     _ = (folder / f"{i}.bin").write_bytes(bytes([i, i]))
    >>> reader = ndd.readers.File(files=sorted(folder.iterdir()))
    >>> loader = DataLoader(reader, lambda values, labels: (values * 10, labels), batch_size=2)
    >>> [values[:, 0].tolist() for values, labels in loader]
    [[0, 10], [20, 30], [40]]
    >>> squares = torch.utils.data.TensorDataset(torch.arange(5), torch.arange(5) ** 2)
    >>> [(x.tolist(), y.tolist()) for x, y in DataLoader(squares, batch_size=3)]
    [([0, 1, 2], [0, 1, 4]), ([3, 4], [9, 16])]
    """

    def __init__(
        self,
        reader: Any,
        fn: Callable[..., Any] | None = None,
        *,
        batch_size: int | None = None,
        batches: Batches | None = None,
        prefetch: int = 2,
        device: DeviceLike | None = None,
        drop_last: bool = False,
        seed: int | None = None,
        prefetch_bytes: int = MAX_PREFETCHED_BYTES,
        shuffle: bool | None = None,
        sampler: Any = None,
        num_workers: int | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        multiprocessing_context: Context | None = None,
        pin_memory: bool = False,
        persistent_workers: bool | None = None,
        return_paths: bool = False,
        **options: Any,
    ) -> None:
        if fn is not None and not callable(fn):
            raise TypeError(f"DataLoader: fn must be callable, got {fn!r}; pass batch_size as a keyword")
        prefetch = whole(0, MAX_PREFETCHED)(prefetch, "DataLoader: prefetch")
        prefetch_bytes = whole(1)(prefetch_bytes, "DataLoader: prefetch_bytes")
        batch_size = None if batch_size is None else whole(1, MAX_SAMPLES)(batch_size, "DataLoader: batch_size")
        seed = None if seed is None else whole(-(2**63), 2**64 - 1)(seed, "DataLoader: seed")
        torch_arguments = OfTorch(shuffle, sampler, num_workers, collate_fn, multiprocessing_context, seed, persistent_workers)
        # With batches by cost the loader divides units among ranks.
        shard = {name: options.pop(name) for name in ("shard_id", "num_shards") if name in options} if batches is not None else {}
        self.reader: Reader | Stream | BatchSource
        self.reader, self._before = reader_of(reader, torch_arguments, options)
        repeats = (shuffle and sampler is None) or (isinstance(self.reader, Reader) and self.reader.repeats_on_ranks)
        # Whether to warn, once. Processes may join each other between this and the first loop.
        self._warns = bool(repeats) and not {"shard_id", "num_shards"} & {*options, *shard} and not warn_of_equal_ranks()
        if batches is not None:
            for name, other in (("batch_size", batch_size is not None), ("drop_last", drop_last)):
                if other:
                    raise ValueError(
                        f"DataLoader: {name} and batches exclude each other: batches decide the size of a batch, and what ends an epoch (end=)"
                    )
            self.reader = BatchSource(self.reader, batches, **shard)
        self.batches = batches
        self.dataset = reader
        """The source as passed to the constructor."""
        self.fn, self.prefetch, self.device, self.drop_last = fn, prefetch, device, drop_last
        self.pin_memory, self.return_paths = pin_memory, return_paths
        self.batch_size = self.reader.max_batch_size if batch_size is None else batch_size
        if self.batch_size is None and batches is None:
            raise ValueError("DataLoader: batch_size must be given, here or as the reader's max_batch_size")
        self.prefetch_bytes = prefetch_bytes
        self._seed = _choose_seed(self.reader) if seed is None else seed
        self._position: dict[str, Any] | None = None  # after the last yielded batch; None: where the reader is
        self._delivered = False  # whether a batch was yielded since the position was restored or the loop began
        self._loop: weakref.ref[_Loop] | None = None  # the latest
        self._watch = Stopwatch()
        # fn runs on a thread of its own: with cold caches its calls take 2 ms for 64 images, 6 % of a 30 ms step of the model.
        self._executor: Workers | None = None
        # Held by a thread while it prepares a batch. Reentrant, because such a lock knows whether this thread holds it.
        self._preparing = new_reentrant_lock()
        self._balance = HandOver()

    def __iter__(self) -> Iterator[Any]:
        self._warns = self._warns and not warn_of_equal_ranks()
        return _Loop(self)

    if not TYPE_CHECKING:  # which would find no misspelled attribute

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name)

    def _begin(self, loop: "_Loop") -> Iterator[Any]:
        """End the running loop, and return the batches of the reader for another one."""
        # One loop at a time, as the reader has one position: a later loop ends the earlier one, which then raises.
        before = None if self._loop is None else self._loop()
        self._end_loop()
        if before is not None:
            before._replaced = True
        if self._position is not None and not self._delivered:  # the reader is ahead by the batches that were never yielded
            self.reader.move_to(self._state_of_reader(self._position))
        self.reader.draw_seed = self._seed
        batches = self.reader.begin_pass(self.batch_size)
        self._position, self._delivered = self.reader.state_dict(), False
        self._loop = weakref.ref(loop)
        self._watch.begin_loop()
        return batches

    def _state_of_reader(self, state: dict[str, Any]) -> Any:
        return self.reader.parse_state(state)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loop": None, "_executor": None, "_preparing": None, "_balance": HandOver()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _preparing=new_reentrant_lock())

    def _end_loop(self, wait: bool = True) -> None:
        """End the latest loop; on return nothing is being read or prepared for it, unless ``wait`` is False."""
        if self._preparing._is_owned():
            raise RuntimeError("DataLoader: fn cannot move the loader that calls it; it would wait for its own batch")
        loop = None if self._loop is None else self._loop()
        self._loop = None  # _prepare_for prepares nothing for a loop that is not the latest
        if loop is not None:
            loop._discard()
        with self._preparing if wait else nullcontext():
            self._watch.end_loop()

    def _thread(self) -> Workers:
        if not is_here(self._executor):
            self._executor = Workers(1, "torch_ndd.DataLoader", self)
        return self._executor

    def _prepare_for(self, loop: "weakref.ref[_Loop]", prepare: Callable[[], "_Prepared | None"]) -> "_Prepared | None":
        """Return the result of ``prepare`` for a loop, on the thread of the loader; None if the loop is over."""
        with self._preparing:
            return prepare() if self._loop is loop and loop() is not None else None

    def _prepare_here(self, prepare: Callable[[], "_Prepared | None"]) -> "_Prepared | None":
        """Return the result of ``prepare`` on the program's thread."""
        with self._preparing, self._watch.waiting():
            return prepare()

    def _prepare(self, batches: Iterator[Any], mode: EvalMode, caller: EvalContext, context: EvalContext | None) -> _Prepared | None:
        """Return the next batch, None at the end. Runs on a thread of the loader or, for quick items, of the program.

        In the caller's mode, and in a context with its device and thread pool, which is the same for all batches without a GPU.
        """
        reader, watch, outputs, begin = self.reader, self._watch, None, time.perf_counter()
        after: dict[str, Any] = {}
        try:
            if context is None:
                # One stream for all batches: torch's allocator keeps the memory of each stream apart.
                stream = None if caller.device_id is None else streams.thread_stream(caller.device_id)
                context = EvalContext(thread_pool=caller.own_pool, device_id=caller.device_id, cuda_stream=stream)
            epoch, place = reader.locate_next_batch()
            # The reader runs code of the user too: data sets, and the functions of a mix.
            with watch.owning(), mode, context, using_rng(of_batch=partial(self._generator, epoch, place)):
                with watch.reading():
                    outputs = next(batches, None)
                if outputs is None:
                    return None
                if isinstance(outputs, FailedBatch):
                    error, outputs, after = outputs.error, None, reader.state_dict()
                    raise error
                plan = None
                if isinstance(outputs, Planned):
                    outputs, plan = outputs
                samples = outputs.samples if isinstance(outputs, Collated) else count_of(outputs)
                if self.drop_last and reader.is_incomplete(samples, self.batch_size or 1):
                    return self._prepare(batches, mode, caller, context)  # which ends the reader's epoch
                # The state after this batch, taken on the thread that reads: the reader itself is ahead of the program.
                after = reader.state_dict()
                watch.note_samples(epoch, samples, sources_of(outputs))
                # Without functions the user gets the containers of torch's default_collate.
                plain = self._before is None and self.fn is None
                result = outputs.value if isinstance(outputs, Collated) or (isinstance(outputs, Items) and plain) else outputs
                if plain and plan is None and not self.return_paths and self.device is None:  # there is no time to note
                    self._check_result(result)
                else:
                    with watch.calling():
                        result = self._complete(result, outputs, plan)
            return _Prepared(after, result, None, count_bytes(result), time.perf_counter() - begin)
        except StopIteration as error:  # would silently end the user's loop
            failed = RuntimeError("DataLoader: fn raised StopIteration")
            failed.__cause__ = error
            return _Prepared(after, None, failed, 0, 0.0)
        except Exception as error:
            name_in_batch(error, () if outputs is None else sources_of(outputs))
            return _Prepared(after, None, error, 0, 0.0)

    def _complete(self, result: Any, outputs: Any, plan: Plan | None) -> Any:
        """Return the batch as the program gets it, from the outputs of the reader."""
        if self._before is not None:
            result = self._call("collate_fn", self._before, result, None)
        if plan is not None:
            result = add_plan(result, outputs, plan)
        if self.fn is not None:
            result = self._call("fn", self.fn, result, plan)
        self._check_result(result)
        if self.return_paths:
            result = add_paths(result, outputs)
        return result if self.device is None else map_leaves(partial(move_leaf, device=self.device), result)

    def _check_result(self, result: Any) -> None:
        if result is None or isinstance(result, _NO_BATCHES):
            what = "collate_fn" if self.fn is None else f"fn ({getattr(self.fn, '__qualname__', self.fn)})"
            raise TypeError(f"DataLoader: {what} must return the batch, got {result!r}; is a return statement missing?")

    def _call(self, role: str, function: Callable[..., Any], outputs: Any, plan: Plan | None) -> Any:
        """Call a function of the user; one that takes other arguments is told what it gets."""
        arguments = outputs if isinstance(outputs, tuple) else (outputs,)
        try:
            return function(*arguments)
        except TypeError as error:
            # An error of the function itself is left alone.
            if accepts(function, arguments):
                raise
            if isinstance(outputs, Mapping):
                what = f"one argument, a dict with the keys {', '.join(map(repr, outputs))}"
            else:
                count = len(arguments) - (plan is not None)
                what = f"{count} output{'' if count == 1 else 's'} of {brief(self.dataset)}{'' if plan is None else ', and the plan of the batch'}"
            raise TypeError(f"DataLoader: {role} is called with {what}, but {error}") from None

    def _generator(self, epoch: int, place: int) -> RNG:
        """Return the random generator of a batch: a separate part of one sequence for each."""
        generator = RNG(self._seed)
        # Batches are far apart in the sequence, so that their draws never overlap.
        generator.advance(((epoch << 48) + place) * _WORDS_OF_A_BATCH)
        return generator

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return self.reader.count_batches(self.batch_size, self.drop_last)

    @property
    def stats(self) -> Stats:
        """Where the time went since the loader was created."""
        return self._watch.stats()

    def diagnose(self, path: str | os.PathLike[str] | None = None) -> Diagnosis:
        """Find the bottleneck of the training and suggest a change, in one line.

        Args:
            path: Also write a timeline of the program, the loader and the threads: a trace for https://ui.perfetto.dev or
                chrome://tracing if the path ends in ``.json``, else a picture. The trace has some 1,000 batches, the picture 2 seconds.
        """
        try:
            # Number of samples, as batches of one.
            epoch = self.reader.count_batches(1)
        except TypeError:  # a source without a length
            epoch = None
        stats = self.stats._replace(repeats=self._watch.repeats())
        text = Diagnosis(stats.diagnosis(get_num_threads(), self.reader.describe_bottleneck(), epoch, available_cpus()))
        if isinstance(self.reader, BatchSource) and stats.batches:
            text = Diagnosis(f"{text} In the batches {self.reader.figures()}.")
        text.stats, text._watch = stats, self._watch
        if path is not None:
            _timeline.write(text.spans, os.fspath(path), text)
        return text

    def __repr__(self) -> str:
        name = "" if self.fn is None else f", {getattr(self.fn, '__name__', type(self.fn).__name__)}"
        size = f"batch_size={self.batch_size}" if self.batches is None else f"batches={self.batches!r}"
        return f"DataLoader({brief(self.dataset)}{name}, {size}, prefetch={self.prefetch})"

    def _repr_html_(self) -> str:
        try:
            batches: int | str = len(self)
        except TypeError:  # a source without a length
            batches = "unknown"
        rows = [("data", brief(self.dataset)), ("batches", batches), ("batch size", self.batch_size or self.batches), ("prefetch", self.prefetch)]
        return table("DataLoader", [*rows, ("diagnosis", self.diagnose())])

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last yielded batch, at any time; batches prepared ahead do not count.

        It fits other batch sizes and other numbers of ranks, like a reader's state.
        """
        position = self.reader.state_dict() if self._position is None else self._position
        return {"version": STATE_VERSION, "reader": position, "seed": self._seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state, at any time: the next batch is the one after it, and the next loop yields the rest of the epoch.

        A running loop ends. Raise ValueError for other dicts, with the key; the loader does not move.
        """
        checked_state = check_state("DataLoader", _STATE, state)
        # Checked before anything moves: an invalid state leaves the loader as it was.
        restored = self._state_of_reader(checked_state["reader"])
        self._end_loop()
        self.reader.move_to(restored)
        self._position, self._delivered, self._seed = None, False, checked_state["seed"]

    @property
    def sampler(self) -> "_Epochs":
        """Target of ``loader.sampler.set_epoch(epoch)``, which training loops for torch's ``DataLoader`` and Lightning call."""
        return _Epochs(self)

    def set_epoch(self, epoch: int) -> None:
        """Make an epoch the next one; see :meth:`readers.Reader.set_epoch`."""
        # The loop goes on if nothing changes.
        if epoch != self.state_dict()["reader"]["epoch"]:
            self._end_loop()
            self._position, self._delivered = None, False
            self.reader.set_epoch(epoch)


class _Epochs(torch.utils.data.SequentialSampler):
    """Pass the epoch on to a loader. Sequential, because Lightning rebuilds loaders with other samplers when it overfits batches."""

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(range(0))
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        """Make an epoch the next one."""
        self._loader.set_epoch(epoch)


class _Loop(Iterator[Any]):
    """One loop over a loader. It begins with its first batch, so that an unused loop moves nothing and ends no other.

    Not a generator, because a KeyboardInterrupt in the finalizer of an abandoned generator would be lost.
    """

    def __init__(self, loader: DataLoader) -> None:
        self._loader: DataLoader | None = loader  # None when the loop is over
        self._caller = EvalMode.current(), EvalContext.current()
        self._prepare: Callable[[], _Prepared | None] | None = None  # until it has begun
        self._waiting: deque[Future[_Prepared | None] | _Prepared | None] = deque()  # None: the end
        self._process = 0  # the process that began it
        self._turn = new_lock()  # threads may share a loop
        self._replaced = False  # by a later loop
        self._took = 0.0  # seconds of the preparation of the latest batch
        self._after: dict[str, Any] = {}  # the reader's state after the batch that is due, if known: what fails then is this batch

    def __next__(self) -> Any:
        with self._turn:
            loader = self._loader
            if loader is None:
                raise StopIteration
            if self._prepare is not None and self._process != os.getpid():
                raise RuntimeError("DataLoader: this loop belongs to the process that began it; start another here with iter(loader)")
            self._after = {}
            try:
                return self._following(loader, self._begin(loader))
            except BaseException as error:
                if self._after and isinstance(error, Exception):  # of one batch: the loop can go on after it
                    loader._position = self._after
                else:
                    self._close(wait=isinstance(error, Exception))  # Ctrl-C does not wait for a data set that hangs
                raise

    def _begin(self, loader: DataLoader) -> Callable[[], _Prepared | None]:
        """Begin the loop unless it has begun, and return the function that prepares its next batch."""
        if self._prepare is None:
            mode, caller = self._caller
            context = EvalContext(thread_pool=caller.own_pool) if caller.device_id is None else None
            self._prepare, self._process = partial(loader._prepare, loader._begin(self), mode, caller, context), os.getpid()
        return self._prepare

    def _stop(self, loader: DataLoader) -> StopIteration | RuntimeError:
        """Return the exception that ends this loop."""
        if self._replaced:
            return RuntimeError(
                "DataLoader: another loop over it began before this one had ended; loops at the same time need a loader and a reader each"
            )
        if self._is_latest(loader):
            loader._position = None  # the reader is at the start of the next epoch
        return StopIteration()

    def _is_latest(self, loader: DataLoader) -> bool:
        return loader._loop is not None and loader._loop() is self

    def _following(self, loader: DataLoader, prepare: Callable[[], _Prepared | None]) -> Any:
        watch, waiting = loader._watch, self._waiting
        if not self._is_latest(loader):
            raise self._stop(loader)
        if (model := watch.note_request()) is not None:
            loader._balance.note_batch(model, self._took)
        if loader.prefetch and not waiting:
            self._submit(loader, prepare)
        try:
            prepared = self._wait_for(waiting.popleft(), watch) if waiting else loader._prepare_here(prepare)
        except CancelledError:  # another thread began a loop
            prepared = None
        if prepared is None:
            raise self._stop(loader)
        self._after, result, error, size, self._took = prepared
        if error is not None:
            raise error
        # Submit the next batches before waiting for this one. Their size is known once fn has run.
        while len(waiting) < loader.prefetch and (not waiting or size * len(waiting) < loader.prefetch_bytes) and self._submit(loader, prepare):
            pass
        with watch.waiting():
            result = map_leaves(as_torch, result)
            if loader.pin_memory and torch.cuda.is_available():
                result = map_leaves(pin, result)
        loader._position, loader._delivered = self._after, True
        watch.note_batch(size)
        return result

    @staticmethod
    def _wait_for(entry: "Future[_Prepared | None] | _Prepared | None", watch: Stopwatch) -> _Prepared | None:
        if not isinstance(entry, Future):
            return entry
        with watch.waiting():
            return entry.result()

    def _submit(self, loader: DataLoader, prepare: Callable[[], _Prepared | None]) -> bool:
        """Have a batch prepared, or prepare it. Return False if there is none to wait for: the thread must first end what it has begun."""
        waiting = self._waiting
        if not loader._balance.suggests_here(loader.fn, loader.reader):
            # One thread, so that batches are prepared in the order of these calls.
            waiting.append(loader._thread().submit(loader._prepare_for, weakref.ref(self), prepare))
            return True
        if waiting and isinstance(latest := waiting[-1], Future) and not latest.done():
            return False
        prepared = loader._prepare_here(prepare)
        waiting.append(prepared)
        return prepared is not None

    def close(self) -> None:
        """End the loop; on return nothing is being prepared for it."""
        self._close(wait=True)

    def _close(self, wait: bool) -> None:
        loader, self._loader = self._loader, None
        # A later loop may have replaced this one: leave its preparations alone.
        if loader is not None and self._is_latest(loader):
            loader._end_loop(wait)

    def _discard(self) -> None:
        for entry in self._waiting:
            if isinstance(entry, Future):
                entry.cancel()
        self._waiting.clear()
