# SPDX-License-Identifier: Apache-2.0
"""The numbers of all frames of a LeRobot data set, in memory."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..._core import native
from ..._core.work.bad_samples import UnreadableSamples
from ...io._urls import reason_of
from ..parquet._columns import is_list, number_type, to_batch
from ..parquet._files import import_arrow
from ._layout import Episodes, Feature, Layout

_DTYPES = {"float32": np.float32, "int64": np.int64, "bool": np.bool_}


class Columns(NamedTuple):
    """All frames of the episodes, one episode after the other."""

    values: dict[str, np.ndarray]
    """By feature, (frames, *shape)."""
    paths: list[str]
    """The files from which they come."""
    rows: np.ndarray
    """int64, (frames,): the row of each frame, counted from the beginning of the first file."""
    total: int
    """The rows of all files."""


def load_columns(layout: Layout, episodes: Episodes, features: Mapping[str, Feature]) -> Columns:
    """Return the values of features."""
    begins = np.cumsum(episodes.length) - episodes.length
    columns: dict[str, np.ndarray] = {}
    paths: list[str] = []
    file_rows, rows_before = np.zeros(0, np.int64), 0
    # Summed as float64, because a claimed length may overflow int64.
    total = int(episodes.length.sum(dtype=np.float64))
    native.check_memory(total * (8 + sum(_item_bytes(feature) for feature in features.values())), f"{layout.op}: the numbers of {total} frames")
    by_file = np.argsort(episodes.data.number, kind="stable")
    # Episodes of one file are read together, so that each file is opened once.
    for chosen in np.split(by_file, np.flatnonzero(np.diff(episodes.data.number[by_file])) + 1):
        path = episodes.data.paths[episodes.data.number[chosen[0]]]
        loaded, own_rows, count = _load_file(layout, path, features, episodes.number[chosen])
        described = [values[chosen].tolist() for values in (episodes.number, episodes.begin, episodes.length)]
        rows = np.concatenate([_find_rows(layout, path, loaded, *episode) for episode in zip(*described, strict=True)])
        places = np.concatenate([first + np.arange(length) for first, length in zip(begins[chosen].tolist(), described[2], strict=True)])
        for name, values in loaded.items():
            if name not in columns:  # not before a file is known to have its frames: their number is only a claim
                columns[name] = np.zeros((total, *values.shape[1:]), values.dtype)
            columns[name][places] = values[rows]
        if not paths:
            file_rows = np.zeros(total, np.int64)
        file_rows[places] = rows_before + own_rows[rows]
        rows_before += count
        paths.append(path)
    return Columns(columns, paths, file_rows, rows_before)


def _item_bytes(feature: Feature) -> int:
    return int(np.prod(feature.shape, dtype=np.float64)) * np.dtype(_DTYPES[feature.kind]).itemsize


def _load_file(layout: Layout, path: str, features: Mapping[str, Feature], episodes: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray, int]:
    """Return the values of the frames of some episodes, their rows in the file, and how many rows that has."""
    parts: dict[str, list[np.ndarray]] = {name: [np.zeros((0, *feature.shape), _DTYPES[feature.kind])] for name, feature in features.items()}
    rows, count = [np.zeros(0, np.int64)], 0
    for table in layout.read_columns(path, list(features)):
        # Rows of other episodes are dropped row group by row group, before they take memory.
        own = np.isin(_convert(layout, path, "episode_index", features["episode_index"], table), episodes)
        if own.any():
            for name, feature in features.items():
                parts[name].append(_convert(layout, path, name, feature, table)[own])
            rows.append(count + np.flatnonzero(own))
        count += len(table)
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}, np.concatenate(rows), count


def _convert(layout: Layout, path: str, name: str, feature: Feature, table: Any) -> np.ndarray:
    arrow = import_arrow(layout.op)
    column = table.column(name).combine_chunks()
    if isinstance(column, arrow.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else arrow.array([], column.type)
    if isinstance(column, arrow.ExtensionArray):
        column = column.storage
    if not len(column):
        return np.zeros((0, *feature.shape), _DTYPES[feature.kind])
    kind = column.type
    while is_list(kind, arrow.types):
        kind = kind.value_type
    if number_type(kind, arrow.types) is None:
        raise layout.error(path, f"feature {name!r} has the type {column.type} instead of numbers")
    try:
        values = to_batch(column, arrow)
    except UnreadableSamples as bad:
        row, reason = next(iter(bad.reasons.items()))
        raise layout.error(path, f"feature {name!r}, row {row}: {reason}") from None
    except (TypeError, ValueError, AssertionError) as error:
        raise layout.error(path, f"feature {name!r} cannot be read: {reason_of(error)}") from None
    if values.ragged_shapes is not None or values.buffer.numel() != len(column) * int(np.prod(feature.shape, dtype=np.int64)):
        raise layout.error(path, f"feature {name!r} does not have the shape {list(feature.shape)} of meta/info.json in each row")
    return values.buffer.numpy().reshape(len(column), *feature.shape).astype(_DTYPES[feature.kind], copy=False)


def _find_rows(layout: Layout, path: str, loaded: Mapping[str, np.ndarray], episode: int, begin: int, length: int) -> np.ndarray:
    """Return the rows of an episode. Raise RuntimeError if the file does not have all of its frames in order."""
    index = loaded["index"]
    first = int(np.searchsorted(index, begin))
    rows = slice(first, first + length)
    # Lengths and first frames are claims of the metadata.
    is_there = first + length <= len(index) and np.array_equal(index[rows], np.arange(begin, begin + length))
    if not is_there or (loaded["episode_index"][rows] != episode).any():
        raise layout.error(path, f"the {length} frames of episode {episode}, from index {begin}, are not there, one after the other")
    return np.arange(first, first + length)


def select_episodes(layout: Layout, episodes: Episodes, chosen: Sequence[int] | None) -> Episodes:
    """Return the chosen episodes, in the order of their numbers. Raise ValueError for one that does not exist."""
    if chosen is None:
        return episodes
    wanted = np.unique(np.asarray(list(chosen), np.int64))
    missing = np.setdiff1d(wanted, episodes.number)
    if len(missing) or not len(wanted):
        what = f"there is no episode {missing[0]} among the {len(episodes.number)}" if len(missing) else "the list is empty"
        raise ValueError(f"{layout.op}: episodes: {what}")
    # Numbers are ascending and unique, see Layout._checked.
    rows = np.searchsorted(episodes.number, wanted)

    def keep(files: Any) -> Any:
        return type(files)(files.paths, files.number[rows])

    return Episodes(
        episodes.number[rows],
        episodes.begin[rows],
        episodes.length[rows],
        keep(episodes.data),
        {camera: keep(files) for camera, files in episodes.videos.items()},
        {camera: begins[rows] for camera, begins in episodes.video_begins.items()},
    )
