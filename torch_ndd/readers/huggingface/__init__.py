# SPDX-License-Identifier: Apache-2.0
"""Data sets of Hugging Face ``datasets``, whose images and sounds stay encoded."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import Unpack, override

from ..._core.context.device import DeviceLike
from ..._core.context.states import whole
from ..._core.values.batch import Batch
from .._options import LoaderOptions
from .._sources.choice import OfTorch, shard_of_stream, with_order
from .._threads import BatchThreadsReader
from ..parquet._columns import Column, known_columns, number_type, select_columns, table_to_batches, to_numpy
from ..parquet._files import import_arrow
from ._state import MAX_SLOTS
from ._stream import ShardStream


class HuggingFace(BatchThreadsReader):
    """Read a ``datasets.Dataset``: dicts of columns.

    Columns become what :class:`Parquet` makes of them: numbers scalars, lists of equal lengths arrays, text uint8 (length,). Images, sounds and
    videos are not decoded by ``datasets``: their columns are encoded files, uint8 (length,), for :mod:`torch_ndd.decoders`. ``select``, ``shuffle``
    and ``filter`` of the data set are respected; its format is not.

    Args:
        max_batch_size: Default batch size of :meth:`next_epoch`.
        device: ``"cpu"``.
        dataset: The data set.
        columns: Columns to deliver, in this order; by default all.
        loader: Options of all readers, see :class:`LoaderOptions`.

    Raises:
        TypeError: another object; for a streaming data set see :class:`HuggingFaceStream`.
        ValueError: the data set has a transform (``set_transform``), which would be ignored.
        RuntimeError: at the first step, for columns that do not exist or cannot become samples; at any step, for a row that cannot be read.

    >>> import datasets
    >>> dataset = datasets.Dataset.from_dict({"label": [3, 1, 2], "text": ["a", "bc", "def"]})
    >>> (batch,) = HuggingFace(dataset=dataset).next_epoch(3)
    >>> batch["label"].torch().tolist(), batch["text"].shape
    ([3, 1, 2], [(1,), (2,), (3,)])
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        device: DeviceLike = "cpu",
        *,
        dataset: Any,
        columns: str | Sequence[str] | None = None,
        **loader: Unpack[LoaderOptions],
    ) -> None:
        super().__init__(max_batch_size, device, loader)
        _check_dataset(self._op, dataset)
        if not hasattr(dataset, "__len__"):
            raise TypeError(f"{self._op}: dataset is a streaming data set; use readers.HuggingFaceStream(dataset)")
        self._columns = [columns] if isinstance(columns, str) else columns
        # `columns` of set_format() choose; all other properties of a format concern the conversion, which is done here.
        self._dataset = dataset.with_format("arrow", columns=dataset.format["columns"])
        self._brief = repr(dataset.builder_name) if dataset.builder_name else "the data set"
        self._selected: list[Column] = []

    @override
    def scan(self) -> int:
        arrow = import_arrow(self._op)
        if len(self._dataset) and not self._selected:
            self._selected = select_columns(self._op, self._dataset[:1].schema, self._columns, arrow)
        return len(self._dataset)

    @override
    def list_costs(self, column: str) -> np.ndarray:
        arrow = import_arrow(self._op)
        known = known_columns(self._dataset[:0].schema, arrow)
        numeric = [name for name, (_, kind) in known.items() if number_type(kind, arrow.types) is not None]
        if column not in numeric:
            raise ValueError(f"{self._op}: there is no column {column!r} of numbers; available: {', '.join(numeric) or 'none'}")
        source = known[column][0]
        return to_numpy(source.whole(self._dataset.select_columns(source.field)[:].column(0), arrow), arrow)

    @override
    def list_labels(self) -> np.ndarray | None:
        feature = (self._dataset.features or {}).get("label")
        return self.list_costs("label") if hasattr(feature, "num_classes") else None

    @override
    def narrow(self, column: str) -> "HuggingFace":
        reader = copy.copy(self)
        reader._columns, reader._selected = [column], []
        reader.scan()
        return reader

    def _source(self, sample: int) -> str:
        return f"row {sample} of {self._brief}"

    @override
    def _read_batch(self, samples: np.ndarray) -> dict[str, Batch]:
        return table_to_batches(self._dataset[samples.tolist()], self._selected, import_arrow(self._op))


class HuggingFaceStream:
    """A streaming ``datasets.IterableDataset`` for :class:`torch_ndd.DataLoader`: its shards are read in parallel, and divided among the ranks.

    Batches are dicts of columns, as those of :class:`HuggingFace`. A rank reads ``parallel`` shards (files) at a time and takes a sample of each in
    turn; when one ends, the next shard takes its place. Ranks may take different numbers of steps. A loop that is resumed skips what was read of the
    shards that had begun, and only of those.

    The states of the ranks differ. On the same number of ranks each loads its own; for another number, merge them with :func:`merge_states`, or save
    the loader as :class:`torch_ndd.distributed.Stateful`. Samples that were not delivered are then divided again, by whole shards, so there should be
    several for each rank.

    Args:
        dataset: The data set. Its ``shuffle(seed, buffer_size)`` shuffles the samples of each shard, with the epoch of the loader. ``map`` and
            ``filter`` run on the reading threads; call ``dataset.decode(False)`` before them, or ``datasets`` decodes images and sounds for them
            and encodes them again.
        columns: Columns to deliver; by default all.
        parallel: Number of shards that are read at a time, each on a thread, 1 to 256.

    ``shard_id``, ``num_shards``, ``shuffle=True`` (which also permutes the shards in each epoch) and ``seed`` are arguments of the loader.

    Raises:
        TypeError: another object.
        ValueError: the data set has a transform; ``parallel`` out of range. From the loader, ``num_shards`` larger than the number of shards.
        RuntimeError: at any step, for what cannot be read; the message names the shard.

    >>> import datasets, torch_ndd as ndd
    >>> stream = datasets.Dataset.from_dict({"x": list(range(6))}).to_iterable_dataset(num_shards=2)
    >>> [batch["x"].tolist() for batch in ndd.DataLoader(HuggingFaceStream(stream), batch_size=4)]
    [[0, 3, 1, 4], [2, 5]]
    """

    def __init__(self, dataset: Any, columns: str | Sequence[str] | None = None, parallel: int = 4) -> None:
        _check_dataset("readers.HuggingFaceStream", dataset)
        if hasattr(dataset, "__len__"):
            raise TypeError("readers.HuggingFaceStream: dataset has random access; use readers.HuggingFace(dataset=dataset)")
        self.dataset = dataset
        self.columns = [columns] if isinstance(columns, str) else columns
        self.parallel = whole(1, MAX_SLOTS)(parallel, "readers.HuggingFaceStream: parallel")

    def choose_reader(self, arguments: OfTorch, options: Mapping[str, Any]) -> tuple[ShardStream, None]:
        """Return the source of a loader.

        :meta private:
        """
        order = with_order(arguments, options)
        shuffle, seed = bool(order.pop("random_shuffle", False)), order.pop("seed", None) or 0
        of_items = {name: value for name, value in arguments.of_data_sets().items() if name != "shuffle"}
        shard_id, num_shards = shard_of_stream("a streaming data set", of_items, order)
        return ShardStream(self.dataset, self.columns, self.parallel, shard_id, num_shards, seed if shuffle else None), None

    def __repr__(self) -> str:
        return f"HuggingFaceStream({self.dataset.num_shards} shards, parallel={self.parallel})"


def _check_dataset(op: str, dataset: Any) -> None:
    if isinstance(dataset, Mapping):
        raise TypeError(f"{op}: dataset has several splits; choose one: dataset[{next(iter(dataset), 'train')!r}]")
    if not hasattr(dataset, "with_format") or not hasattr(dataset, "column_names"):
        raise TypeError(f"{op}: dataset must be a data set of Hugging Face datasets, got {type(dataset).__name__}")
    if getattr(dataset, "format", {}).get("type") == "custom":
        raise ValueError(
            f"{op}: the data set has a transform (set_transform), which is not called here; apply it in fn, or remove it with_format(None)"
        )
