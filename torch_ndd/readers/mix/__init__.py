# SPDX-License-Identifier: Apache-2.0
"""Several data sets as one, in given proportions."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from typing_extensions import Unpack, override

from ..._core.context.device import DeviceLike
from ..._core.context.states import MAX_COUNT, format_value, one_of, row, rows, text, whole, yes_or_no
from ..._core.suggestions import check_choice
from ..._core.values.batch import new_batch
from ..._core.work.bad_samples import LeftOut, UnreadableSamples
from ..._core.work.sources import Sources
from .._base import Reader
from .._merge import merge_outputs
from .._options import StepOptions
from .._order import Position
from .._shared_steps import MAX_EPOCH, SharedSteps
from .._sources.inner import InnerSource, OutputCheck
from .._state import State
from .._summary import brief
from .._waits import Waits, describe_slowest
from ..dataset import Dataset
from ..dataset._items import leaves
from ._fields import Fields
from ._joint import Joint, JointItems, JointRows, join_reads, join_sources
from ._order import Era, MixOrder, count_positions
from ._schedule import MAX_PERIOD, MAX_SOURCES
from ._weights import check_temperature, check_weights, whole_weights

SourceOrder = Literal["interleaved", "shuffled"]
EpochPolicy = Literal["first", "all", "once"]

_ORDERS: tuple[SourceOrder, ...] = get_args(SourceOrder)  # by whether sources are shuffled
_PROBED = 16  # samples of a source, to learn its outputs


class MixOptions(StepOptions, total=False):
    """Options of :class:`Mix`; see there."""

    random_shuffle: bool | None


class Mix(SharedSteps):
    """Read several data sets as one, in exact proportions.

    The outputs are those of the sources, which must be equal (names, dtypes, dimensions), and ``source``: the number of each sample's source in
    :attr:`names`, int64 (), as the last part of a tuple or as ``"source"`` of a dict. :class:`torch_ndd.Source` changes the outputs of a source.

    Sources are interleaved evenly: after any n samples a source with the share w has delivered n * w of them, at most two more or fewer. The order
    does not depend on the number of ranks or the batch size. A step of R ranks with batches of b takes R * b consecutive samples of it, the first b
    for rank 0, so that every rank has the mix; the rest of an epoch is divided among the ranks. A source begins its next pass when it has delivered
    all of its samples, in the same epoch or in a later one.

    A state fits any number of ranks and any batch size, and other weights and sources too: sources go on where they were, a new one begins with its
    first pass, and the running epoch keeps its length.

    Args:
        sources: readers, built without shards, or map-style data sets, by name.
        max_batch_size: default batch size of :meth:`next_epoch`.
        device: ``"cpu"``.
        weights: positive numbers by name, in any scale; decimals are taken as they are written. By default the numbers of samples.
        temperature: T, in place of weights: the numbers of samples to the power 1 / T.
        order: ``"interleaved"``, or ``"shuffled"``: the sources of every 4,096 consecutive samples are permuted.
        epoch: samples of an epoch. ``"first"``: as many as there are before a source would begin its second pass. ``"all"``: until every source was
            delivered once. ``"once"``: every source once; those that end drop out. Or a number.
        block: so many consecutive samples are of one source; with the batch size, so are whole batches.
        fields: names of the outputs to deliver, where sources have different ones, such as robots with other cameras. A source without one delivers
            zeros in the form of the first source that has it (of text and encoded data, empty values), and ``{name}_is_pad``, bool, is True for
            these samples. Sources need named outputs.
        random_shuffle: deliver the samples of each source in random order, another one in each pass.
        seed: seed of all orders.
        shard_id, num_shards: of this process, ``**ndd.distributed.shard()``.
        pad_shards: repeat a sample at the end of an epoch where a rank would have one less than others, so that all take the same number of steps.
        on_error: ``"raise"`` RuntimeError for a sample that cannot be read; ``"skip"``: leave it out, so that this batch is smaller; ``"replace"``:
            repeat another sample of the same source, or if there is none of the batch. Nothing else moves, on no rank. A batch of bad samples only
            becomes the next sample that can be read.
        prefetch_queue_depth: number of batches to read ahead.
        enable_checkpointing: allow ``get_state``. ``state_dict`` does not need it.

    Raises:
        TypeError: a source that is not a reader or a map-style data set, or that can only be read from its beginning.
        ValueError: no sources; weights that are not positive, missing or of unknown names; another ``order`` or ``epoch``; a source with shards, an
            order or an ``on_error`` of its own, or that has begun; ``fields`` that are empty or name one twice. At the first step, and later, for
            sources with different outputs, and a field that no source has or that has no zeros.
        RuntimeError: for a source without samples, at the first step unless it is a data set; at any step, for a sample that cannot be read, with its
            source.

    >>> mix = Mix({"a": [0, 1, 2, 3, 4, 5], "b": [10, 11]}, weights={"a": 3, "b": 1})
    >>> [(values.torch().tolist(), source.torch().tolist()) for values, source in mix.next_epoch(4)]
    [([0, 1, 10, 2], [0, 0, 1, 0]), ([3, 4, 11, 5], [0, 0, 1, 0])]
    >>> arms = {"left": [{"camera": 5, "depth": 6}], "right": [{"camera": 7}]}
    >>> (batch,) = Mix(arms, fields=["camera", "depth"]).next_epoch(2)
    >>> {name: column.torch().tolist() for name, column in batch.items()}
    {'camera': [5, 7], 'depth': [6, 0], 'depth_is_pad': [False, True], 'source': [0, 1]}
    """

    def __init__(
        self,
        sources: Any,
        max_batch_size: int | None = None,
        device: DeviceLike = "cpu",
        *,
        weights: Mapping[str, float] | None = None,
        temperature: float | None = None,
        order: SourceOrder = "interleaved",
        epoch: EpochPolicy | int = "first",
        block: int = 1,
        fields: Sequence[str] | None = None,
        **loader: Unpack[MixOptions],
    ) -> None:
        super().__init__(max_batch_size, device, loader)
        if not isinstance(sources, Mapping):
            raise TypeError(f"{self._op}: sources must be a dict of readers or data sets by name, got {brief(sources)}")
        if not 1 <= len(sources) <= MAX_SOURCES:
            raise ValueError(f"{self._op}: sources must have 1 to {MAX_SOURCES} entries, got {len(sources)}")
        for name in sources:
            if not isinstance(name, str):
                raise TypeError(f"{self._op}: the names of sources must be strings, got {name!r}")
        check_choice(self._op, "order", order, _ORDERS, ValueError)
        if isinstance(epoch, str):
            check_choice(self._op, "epoch", epoch, get_args(EpochPolicy), ValueError)
        elif not _is_count(epoch, MAX_EPOCH):
            raise ValueError(f"{self._op}: epoch must be {', '.join(map(repr, get_args(EpochPolicy)))} or a number of samples, got {epoch!r}")
        if not _is_count(block, MAX_EPOCH):
            raise ValueError(f"{self._op}: block must be a positive number of samples, got {block!r}")
        self._brief, self._names, self._policy = brief(sources), tuple(sources), epoch
        self._shuffles_sources, self._block = order == "shuffled", operator.index(block)
        self._temperature = check_temperature(self._op, temperature, weights)
        self._weights = None if weights is None else check_weights(self._op, weights, self._names)
        self._sources = [InnerSource(self._op, name, f"the source {name!r}", source) for name, source in sources.items()]
        for source in self._sources if self._random_shuffle else ():
            source.reader.expect_random_order()
        self._needs = {f"{source.name}: {what}": path for source in self._sources for what, path in source.reader._needs.items()}
        # Only to begin sources again per epoch: `_begin_source` rejects another size.
        self._can_change = any(source.reader._can_change for source in self._sources)
        data_sets = [source.reader for source in self._sources if isinstance(source.reader, Dataset)]
        for reader in data_sets[1:]:  # as many threads as for one data set
            reader._share_threads(data_sets[0])
        self._fields = None if fields is None else Fields(self._op, fields)
        self._joint: Joint | None = None
        self._reads: JointItems | JointRows | None = None  # together, of data sets whose outputs are not
        self._waits = Waits(self._names)
        self._sizes: list[int] | None = None
        self._begins = np.zeros(1, np.int64)
        self._check: OutputCheck | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sources, in the order of their numbers in ``source``."""
        return self._names

    @override
    def scan(self) -> int:
        if self._sizes is None:
            sizes = [source.scan() for source in self._sources]
            if sum(sizes) > MAX_EPOCH:
                raise RuntimeError(f"{self._op}: the sources have {sum(sizes)} samples; at most {MAX_EPOCH} can be mixed")
            self._sizes, self._begins = sizes, np.cumsum([0, *sizes], dtype=np.int64)
            self._joint = join_sources(self._sources) if self._fields is None else None
            self._reads = join_reads(self._sources) if self._joint is None else None
        return sum(self._sizes)

    @override
    def _begin_source(self) -> None:
        # Positions are computed from the sizes, so a source that has grown needs another mix.
        for k, source in enumerate(self._sources):
            source.reader._begin_source()
            if self._sizes is not None and source.reader._can_change and (size := source.scan()) != self._sizes[k]:
                raise ValueError(f"{self._op}: {source.what} has {size} samples now, but had {self._sizes[k]}; create another mix for it")

    @override
    def build_steps(self) -> MixOrder:
        assert self._sizes is not None
        weights = whole_weights(self._weights, self._temperature, self._sizes)
        size = count_positions(weights, self._sizes, self._block, self._policy)
        # Without a change of weights the era began with epoch 0, when nothing had been delivered.
        era = self._state.era or Era((0,) * len(weights), 0, 0, size)
        return self._build(size, _Settings(self._names, weights, tuple(self._sizes), self._block, self._shuffles_sources), era, self._state.seeds[0])

    def _build(self, size: int, settings: "_Settings", era: Era, seed: int) -> MixOrder:
        return MixOrder(
            size,
            self.shard_id,
            self.num_shards,
            pad_shards=self._pad_shards,
            random_shuffle=self._random_shuffle,
            seed=seed,
            names=settings.names,
            sizes=settings.sizes,
            weights=settings.weights,
            block=settings.block,
            once=self._policy == "once",
            shuffled=settings.shuffled,
            era=era,
            begins=np.cumsum([0, *settings.sizes], dtype=np.int64),
        )

    def _steps(self) -> MixOrder:
        order = self.prepare_order()
        assert isinstance(order, MixOrder)
        return order

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Change the weights, before the next loop. Sources go on where they are; after ``load_state_dict`` the running epoch keeps its length.

        Args:
            weights: positive numbers by name.

        Raises:
            TypeError, ValueError: as for the constructor's ``weights``.
        """
        checked = check_weights(self._op, weights, self._names)
        with self._lock:
            order, (epoch, at) = self._steps(), self._state.position
            # What each source has delivered under the old weights: the new schedule continues from there.
            base = tuple(order.count_samples(epoch, at).tolist())
            if at and not self._resumed:  # a loop was left early: its epoch is over
                epoch, at, base = epoch + 1, 0, (0,) * len(base) if order.once else base
            self._weights, self._temperature = checked, None
            self._ahead.clear()
            # Also ends a running loop: its next step would find another loop's identity.
            self._order, self._loop = None, None
            # In two steps: the length of an epoch with the new weights is known only from an order built with them.
            self._state = self._state._replace(era=None, position=Position(epoch, at))
            length = order.count(epoch) if at else self._steps().size
            # begin=-at: the schedule of the era begins at the current position, not at the begin of the epoch.
            self._order, self._state = None, self._state._replace(era=Era(base, epoch, -at, length))

    @override
    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next epoch; no effect if the mix is already in it.

        Raise ValueError for anything but a whole number, and after a change of weights, which leaves no way to know where an epoch begins.
        """
        epoch = whole()(epoch, f"{self._op}: epoch")
        with self._lock:
            if epoch == self._state.position.passes:
                return
            order, (running, at) = self._steps(), self._state.position
            # With `once` epochs are independent; otherwise positions are known as long as the weights have never changed.
            if order.once or _is_original(order):
                begin = whole(0, MAX_COUNT - MAX_EPOCH)(epoch * order.size, f"{self._op}: the position of epoch {epoch}")
                era = Era((0,) * len(self._names), epoch, 0 if order.once else begin, order.size)
            # After a change only the next epoch is known, and only once this one has been delivered completely.
            elif epoch == running + 1 and at == order.count(running):
                era = order.era
            else:
                raise ValueError(
                    f"{self._op}: set_epoch({epoch}) is unknown after a change of weights in epoch {order.era.epoch}; load a state instead"
                )
            self._order = None
            self._state, self._resumed = self._state.moved_to(Position(epoch), 0)._replace(era=era), False

    def source_sizes(self) -> dict[str, int]:
        """Return the number of samples of each source. Sample numbers count the samples of one source after the other.

        :meta private:
        """
        self.prepare_order()
        return dict(zip(self._names, np.diff(self._begins).tolist(), strict=True))

    @override
    def list_costs(self, column: str) -> np.ndarray:
        return np.concatenate([source.reader.list_costs(column) for source in self._sources])

    # Reading.

    def _sources_of(self, samples: np.ndarray) -> np.ndarray:
        return self._begins.searchsorted(samples, "right") - 1

    # A bad sample is replaced by one of the same source if possible, which keeps the proportions.
    _replacement_groups = _sources_of

    def _path(self, sample: int) -> str:
        source = int(self._begins.searchsorted(sample, "right")) - 1
        return self._sources[source].path(sample - int(self._begins[source]))

    @override
    def _source(self, sample: int) -> str:
        source = int(self._begins.searchsorted(sample, "right")) - 1
        return f"source {self._names[source]!r}, sample {sample - int(self._begins[source])}: {self._path(sample)}"

    @override
    def is_quick(self) -> bool:
        return isinstance(self._joint, JointItems | JointRows) and self._joint.is_quick()

    @override
    def _inner_readers(self) -> Sequence[Reader]:
        return [source.reader for source in self._sources]

    @override
    def start(self, samples: np.ndarray) -> "_Request":
        return self.start_seeded(samples, None)

    @override
    def start_seeded(self, samples: np.ndarray, seeds: np.ndarray | None) -> "_Request":
        which = self._sources_of(samples)
        if self._joint is not None:
            numbers = samples - self._begins[which]
            return _Request(which, numbers, [], self._joint.start(which, numbers, seeds))
        # Stable: the samples of a source are requested in the order in which they are delivered.
        order = np.argsort(which, kind="stable")
        joint = None if self._reads is None else self._reads.start(which, samples - self._begins[which], seeds)
        begin, sorted_samples, parts = 0, samples[order], []
        for source, count in enumerate(np.bincount(which).tolist()):
            if count:
                numbers = sorted_samples[begin : begin + count] - self._begins[source]
                part = None if seeds is None else seeds[order[begin : begin + count]]
                parts.append((source, numbers, self._sources[source].start(numbers, part) if self._reads is None else None))
                begin += count
        return _Request(which, order, parts, joint)

    @override
    def finish(self, request: "_Request", samples: np.ndarray) -> Any:
        if self._joint is None:
            merged = self._finish_parts(request, samples)
        else:
            if self._check is None:
                self._check = self._compare_sources({})
            merged = self._joint.finish(request.joint, request.which, request.order)
            self._check.check("a batch", merged)
            for leaf in leaves(merged):
                leaf.sources = leaf.sources or Sources(self._path, samples)
        source = new_batch(torch.from_numpy(request.which))
        source.sources = Sources(self._path, samples)
        return {**merged, "source": source} if isinstance(merged, Mapping) else (*merged, source)

    def _finish_parts(self, request: "_Request", samples: np.ndarray) -> Any:
        """Return the outputs of the sources of a batch as one."""
        outputs, begin = [], 0
        reasons: dict[int, str] = {}
        causes: dict[int, BaseException] = {}
        # LeftOut only if every failure is one: it is skipped whatever `on_error` says.
        kind: type[UnreadableSamples] = LeftOut
        which = request.which
        take = None if self._reads is None else self._reads.split(request.joint, which, samples - self._begins[which], request.order)
        for source, numbers, started in request.parts:
            inner, end = self._sources[source], begin + len(numbers)
            places = request.order[begin:end]
            try:
                with self._waits.measure(source):
                    if take is None:
                        outputs.append(inner.finish(started, numbers))
                    else:
                        outputs.append(inner.apply_functions(take(begin, end, Sources(inner.path, numbers)), len(numbers)))
            except UnreadableSamples as bad:
                kind = kind if isinstance(bad, LeftOut) else UnreadableSamples
                reasons |= {int(places[k]): reason for k, reason in bad.reasons.items()}
                causes |= {int(places[k]): cause for k, cause in bad.causes.items()}
            begin = end
        if reasons:
            raise kind(reasons, causes)
        by_source = {part[0]: output for part, output in zip(request.parts, outputs, strict=True)}
        if self._check is None:
            self._check = self._compare_sources(by_source)
        if self._fields is not None:
            by_source = {
                part[0]: self._fields.complete(self._sources[part[0]].what, output, len(part[1]))
                for part, output in zip(request.parts, outputs, strict=True)
            }
        for source, output in by_source.items():
            self._check.check(self._sources[source].what, output)
        if len(by_source) == 1:
            return outputs[0] if self._fields is None else next(iter(by_source.values()))
        places = np.empty(len(samples), np.int64)
        # The inverse of `order`: which of the merged samples comes at each position of the batch.
        places[request.order] = np.arange(len(samples))
        merged = merge_outputs(list(by_source.values()), places)
        for leaf in leaves(merged):
            leaf.sources = Sources(self._path, samples)
        return merged

    def _compare_sources(self, outputs: Mapping[int, Any]) -> OutputCheck:
        """Return the check of outputs. Raise ValueError unless all sources have the same; those without outputs here read a sample for it."""
        if self._fields is None:
            found = {k: outputs[k] if k in outputs else source.probe() for k, source in enumerate(self._sources)}
        else:
            found = self._probe_fields(self._fields)
        known = [(self._sources[k].what, output) for k, output in found.items() if output is not None]
        (what, first), *others = known
        if isinstance(first, Mapping) and "source" in first:
            raise ValueError(f"{self._op}: output 'source' has the name of the source's number; rename it with ndd.Source(reader, fn)")
        check = OutputCheck(self._op, what, first)
        for what, output in others:
            check.check(what, output)
        return check

    def _probe_fields(self, fields: Fields) -> dict[int, Any]:
        """Return the fields of a sample of each source. Not of the running batch: zeros must not depend on where a run begins."""
        found = {k: source.probe(_PROBED) for k, source in enumerate(self._sources)}
        if unknown := [self._sources[k].what for k, output in found.items() if output is None]:
            raise RuntimeError(f"{self._op}: fields: the outputs of {unknown[0]} are not known, because its first {_PROBED} samples cannot be read")
        fields.learn({self._sources[k].what: output for k, output in found.items()})
        return {k: fields.complete(self._sources[k].what, output, 1) for k, output in found.items()}

    @override
    def describe_bottleneck(self) -> tuple[str, str]:
        readers = [source.reader for source in self._sources]
        # Data sets share their threads, so that items of a fast one wait behind those of a slow one; but each knows how long it was read.
        reading = [reader._activity.seconds() for reader in readers if isinstance(reader, Dataset)]
        return describe_slowest(self._names, readers, reading if len(reading) == len(readers) else self._waits.seconds)

    # State.

    @override
    def state_dict(self) -> dict[str, Any]:
        """Return the position of the consumer as a small dict, at any time. Batches read ahead do not count.

        All ranks have the same state at every step. It fits any number of ranks, any batch size, and other weights and sources.
        """
        with self._lock:
            order, (epoch, at) = self._steps(), self._state.position
            first = epoch == order.era.epoch or not order.once
            return {
                **self.encode_position(),
                "base": dict(zip(self._names, order.era.base if first else (0,) * len(self._names), strict=True)),
                "since": order.since(epoch, at),
                "weights": [list(entry) for entry in zip(self._names, order.weights, order.sizes, strict=True)],
                "order": _ORDERS[order.shuffled],
                "block": order.block,
                "once": order.once,
                "random_shuffle": self._random_shuffle,
            }

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a position at any time. The next loop yields the rest of the epoch, divided among the current ranks.

        Raises:
            ValueError: not a result of :meth:`state_dict`, with the key; a source has another size than in the state; a mix with another
                ``random_shuffle``, or only one of the two with ``epoch="once"``. The mix does not move.
            RuntimeError: a source cannot be read, or has no samples.
        """
        self.move_to(self.parse_state(state))

    @override
    def parse_state(self, state: Any) -> State:
        content, found = self.decode_position(_STATE, state)
        for key, mine in (("random_shuffle", self._random_shuffle), ("once", self._policy == "once")):
            if content[key] != mine:
                raise ValueError(f"{self._op}: the state is from a mix with {key}={content[key]}, but this one has {mine}; samples would be repeated")
        names, weights, sizes = zip(*content["weights"], strict=True)
        # A state is untrusted input: names must be unique, and numbers small enough for the arithmetic below.
        if len(set(names)) < len(names) or content["base"].keys() != set(names):
            raise ValueError(f"{self._op}: not a valid saved state: 'base' and 'weights' must have the same names")
        if sum(weights) > MAX_PERIOD + MAX_SOURCES or sum(sizes) > MAX_EPOCH:
            raise ValueError(f"{self._op}: not a valid saved state: 'weights' has numbers that are too large")
        with self._lock:
            order = self._steps()
        now = dict(zip(self._names, order.sizes, strict=True))
        for name, size in zip(names, sizes, strict=True):
            if now.get(name, size) != size:
                raise ValueError(f"{self._op}: the source {name!r} has {now[name]} samples, but {size} in the state")
        base, (epoch, at) = tuple(content["base"][name] for name in names), found.position
        if order.once and (any(map(operator.gt, base, sizes)) or content["since"] > min(at, sum(sizes) - sum(base))):
            raise ValueError(f"{self._op}: not a valid saved state: 'base' and 'since' count more samples than there are")
        settings = _Settings(names, weights, sizes, content["block"], content["order"] == "shuffled")
        length = content["length"] if at else order.size
        era = Era(base, epoch, content["since"] - at, length)
        # Saved under other weights or sources: count what was delivered by the old schedule, and begin an era here.
        if settings != _Settings(tuple(order.names), tuple(order.weights), tuple(order.sizes), order.block, order.shuffled):
            before = self._build(order.size, settings, era, found.seeds[0])
            counts = dict(zip(names, before.count_samples(epoch, at).tolist(), strict=True))
            # New sources begin with 0; sources that are gone are ignored.
            base = tuple(counts.get(name, 0) for name in self._names)
            # With `once` the epoch ends when every source has delivered the rest of its pass.
            era = Era(base, epoch, -at, at + sum(order.sizes) - sum(base) if order.once else length)
        return found._replace(era=era)


class _Settings(NamedTuple):
    """What the sources of positions depend on, besides the era."""

    names: tuple[str, ...]
    weights: tuple[int, ...]
    sizes: tuple[int, ...]
    block: int
    shuffled: bool


class _Request(NamedTuple):
    """A batch that is being read: source by source, or with all sources together."""

    which: np.ndarray  # source of each sample
    order: np.ndarray  # the samples, source by source; or the numbers of the samples in their sources
    parts: list[tuple[int, np.ndarray, Any]]  # source, numbers there, and its request
    joint: Any  # the request of all sources


def _is_count(value: Any, most: int) -> bool:
    return not isinstance(value, bool) and hasattr(value, "__index__") and 1 <= operator.index(value) <= most


def _is_original(order: MixOrder) -> bool:
    """Return whether the weights have never changed, so that epoch e begins at position e * L."""
    era = order.era
    return not any(era.base) and era.begin == era.epoch * order.size and era.length == order.size


def _counts(value: Any, name: str) -> dict[str, int]:
    """Describe a dict of counts by name."""
    if not isinstance(value, dict) or len(value) > MAX_SOURCES:
        raise ValueError(f"{name} must be a dict of counts, got {format_value(value)}")
    return {text(key, name): whole()(count, f"{name}[{format_value(key)}]") for key, count in value.items()}


_STATE = {
    "base": _counts,
    "since": whole(),
    "weights": rows(row(text, whole(1, MAX_PERIOD), whole(1, MAX_EPOCH)), 1, MAX_SOURCES),
    "order": one_of(*_ORDERS),
    "block": whole(1, MAX_EPOCH),
    "once": yes_or_no,
    "random_shuffle": yes_or_no,
}
