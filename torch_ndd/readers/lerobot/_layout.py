# SPDX-License-Identifier: Apache-2.0
"""The files of a LeRobot data set: features, episodes, tasks and statistics, in the layouts v3.0 and v2.1."""

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._core.process.files import open_regular
from ..._core.process.limits import check_sample
from ...io._urls import is_url, leaves_folder, list_names, read_all, reason_of
from ..parquet._columns import promised_bytes
from ..parquet._files import open_file

MAX_TEXT_BYTES = 256 << 20  # of info.json, stats.json and lists of episodes
MAX_RATE = 10_000  # frames per second
MAX_FRAMES = 1 << 40
_FIELD = re.compile(r"\{(\w+)(?::0(\d)d)?\}")
_CHUNK, _FILE = re.compile(rb"chunk-\d+\Z"), re.compile(rb"file-\d+\.parquet\Z")
# Columns that LeRobot adds to each frame. It lists them among the features; other programs may list their own features only.
OWN_COLUMNS = {"timestamp": "float32", "frame_index": "int64", "episode_index": "int64", "index": "int64", "task_index": "int64"}
_FLOATS, _WHOLE = re.compile(r"float(16|32|64)\Z"), re.compile(r"u?int(8|16|32|64)\Z")


@dataclass(frozen=True)
class Feature:
    """A feature of each frame."""

    kind: str
    """``"video"``, ``"image"``, ``"float32"``, ``"int64"`` or ``"bool"``, and ``"string"`` for all others."""
    shape: tuple[int, ...]
    """The shape of a sample: () for a feature of one number."""

    @property
    def image_size(self) -> tuple[int, int, int] | None:
        """Height, width and channels of a camera, whose shape may begin with the channels; None for other shapes."""
        if len(self.shape) != 3 or 0 in self.shape:
            return None
        if self.shape[2] in (1, 3):
            return self.shape[0], self.shape[1], self.shape[2]
        return (self.shape[1], self.shape[2], self.shape[0]) if self.shape[0] in (1, 3) else None


@dataclass(frozen=True)
class Files:
    """The file of each episode."""

    paths: list[str]
    number: np.ndarray
    """int64, index of ``paths``."""


@dataclass(frozen=True)
class Episodes:
    """The episodes, one row each."""

    number: np.ndarray
    begin: np.ndarray
    """Index of the first frame in the data set."""
    length: np.ndarray
    data: Files
    videos: dict[str, Files]
    video_begins: dict[str, np.ndarray]
    """The time in seconds at which the episode begins in its video, by camera."""


class Layout:
    """The description of a data set in its folder ``meta``.

    Args:
        op: Name of the reader, for messages.
        root: The folder or URL.
        max_bytes: The largest part of a Parquet file to decode.
    """

    def __init__(self, op: str, root: str, max_bytes: int) -> None:
        self.op, self.root, self._max_bytes = op, root.rstrip("/") or "/", max_bytes
        self._info = self._json("meta/info.json")
        version = self._info.get("codebase_version")
        if not isinstance(version, str) or not re.match(r"v?(3\.\d|2\.[01])", version):
            raise self.error("meta/info.json", f"codebase_version {version!r} is not supported; v3.0 and v2.1 are")
        self._is_v3 = version.lstrip("v").startswith("3")
        rate = self._info.get("fps")
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= MAX_RATE:
            raise self.error("meta/info.json", f"fps must be a positive number of at most {MAX_RATE}, got {rate!r}")
        self.rate = float(rate)
        self.features = self._features()

    def error(self, file: str, reason: str) -> RuntimeError:
        """Return the error of a file of the data set."""
        return RuntimeError(f'{self.op}: "{file if file.startswith(self.root) else self._path(file)}": {reason}')

    def _path(self, file: str) -> str:
        return f"{self.root}/{file}"

    def _text(self, file: str) -> str:
        path = self._path(file)
        try:
            if is_url(path):
                content = read_all(path)
            else:
                with open_regular(path) as opened:
                    # One byte more than allowed shows that the file is too long.
                    content = opened.read(MAX_TEXT_BYTES + 1)
        except OSError as error:
            raise self.error(file, f"cannot be read: {reason_of(error)}") from None
        if len(content) > MAX_TEXT_BYTES:
            raise self.error(file, f"has more than {MAX_TEXT_BYTES} bytes")
        return content.decode(errors="replace")

    def _parse(self, file: str, text: str, line: int | None = None) -> dict[str, Any]:
        place = "" if line is None else f"line {line}: "
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.error(file, f"{place}not valid JSON: {error}") from None
        if not isinstance(value, dict):
            raise self.error(file, f"{place}a JSON object is expected")
        return value

    def _json(self, file: str) -> dict[str, Any]:
        return self._parse(file, self._text(file))

    def _json_lines(self, file: str) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(self._text(file).split("\n"), 1):
            if line.strip():
                yield self._parse(file, line, number)

    def _features(self) -> dict[str, Feature]:
        described = self._info.get("features")
        if not isinstance(described, dict) or not described:
            raise self.error("meta/info.json", "features must be an object that is not empty")
        features = {}
        for name, entry in described.items():
            dtype, shape = (entry.get("dtype"), entry.get("shape")) if isinstance(entry, dict) else (None, None)
            # Not isinstance: JSON's true is an int in Python.
            if not isinstance(dtype, str) or not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 1 << 31 for n in shape):
                raise self.error("meta/info.json", f"feature {name!r} needs a dtype and a shape, got {entry!r:.200}")
            # A feature of one number is delivered as a scalar.
            features[name] = Feature(_kind_of(dtype), () if shape == [1] else tuple(shape))
        return features

    def add_own_columns(self) -> None:
        """Add LeRobot's own columns to the features where the description leaves them out and the files have them."""
        missing = [name for name in OWN_COLUMNS if name not in self.features]
        if not missing:
            return
        path = self.read_episodes([]).data.paths[0]
        names = self._names_of_columns(path)
        self.features.update({name: Feature(OWN_COLUMNS[name], ()) for name in missing if name in names})

    def _names_of_columns(self, path: str) -> list[str]:
        try:
            names: list[str] = open_file(self.op, path).schema_arrow.names
        except Exception as error:  # pyarrow has several types
            raise self.error(path, f"cannot be read: {reason_of(error)}") from None
        return names

    def _expand(self, key: str, **values: Any) -> str:
        """Return a path by the template ``data_path`` or ``video_path``, which is not trusted: only plain fields, and only files below the root."""
        template = self._info.get(key)
        if not isinstance(template, str):
            raise self.error("meta/info.json", f"{key} must be text, got {template!r}")

        def value(match: re.Match[str]) -> str:
            name, width = match[1], match[2]
            if name not in values or (width is not None and not isinstance(values[name], int)):
                raise self.error("meta/info.json", f"{key} has an unknown field: {match[0]!r}")
            # Python's format() would also look up attributes, so only plain fields are replaced.
            return f"{values[name]:0{width}d}" if width else str(values[name])

        path = _FIELD.sub(value, template)
        # The result must stay below the root: an absolute path, "..", or a URL could name any file.
        if "{" in path or leaves_folder(path, self.root):
            raise self.error("meta/info.json", f"{key} leads to {path!r}, which is not a file below the data set")
        return self._path(path)

    def read_columns(self, path: str, columns: Sequence[str]) -> Iterator[Any]:
        """Read columns of a Parquet file, one table for each row group. Raise RuntimeError with the path."""
        try:
            with open_file(self.op, path) as file:
                missing = [name for name in columns if name not in file.schema_arrow.names]
                if missing:
                    raise RuntimeError(f"it has no column {missing[0]!r}")
                for k in range(file.metadata.num_row_groups):
                    size, longest = promised_bytes(file.metadata.row_group(k), columns)
                    check_sample(f"row group {k} has", max(size, longest), self._max_bytes)
                    yield file.read_row_group(k, columns=list(columns), use_threads=False)
        except Exception as error:  # pyarrow has several types
            raise self.error(path, f"cannot be read: {reason_of(error)}") from None

    def read_episodes(self, cameras: Sequence[str]) -> Episodes:
        """Return all episodes, in the order of their numbers."""
        return self._episodes_of_tables(cameras) if self._is_v3 else self._episodes_of_lines(cameras)

    def _episodes_of_tables(self, cameras: Sequence[str]) -> Episodes:
        places = {camera: [f"videos/{camera}/{name}" for name in ("chunk_index", "file_index", "from_timestamp")] for camera in cameras}
        numbers = ["episode_index", "dataset_from_index", "dataset_to_index", "data/chunk_index", "data/file_index"]
        columns = self._numbers(self._list_tables("meta/episodes"), [*numbers, *(name for names in places.values() for name in names)])
        order = np.argsort(columns["episode_index"], kind="stable")
        columns = {name: values[order] for name, values in columns.items()}
        number, begin, end, *data = (columns[name] for name in numbers)
        videos = {camera: self._files("video_path", columns[names[0]], columns[names[1]], video_key=camera) for camera, names in places.items()}
        begins = {camera: columns[names[2]].astype(np.float64) for camera, names in places.items()}
        return self._check_episodes(Episodes(number, begin, end - begin, self._files("data_path", *data), videos, begins))

    def _list_tables(self, folder: str) -> list[str]:
        path = self._path(folder)
        try:
            chunks = [f"{path}/{chunk.decode()}" for chunk in list_names(os.fsencode(path), _CHUNK, True)]
            found = [f"{chunk}/{name.decode()}" for chunk in chunks for name in list_names(os.fsencode(chunk), _FILE, False)]
        except OSError as error:
            raise self.error(folder, f"cannot be listed: {reason_of(error)}") from None
        if not found:
            raise self.error(folder, "has no file chunk-000/file-000.parquet")
        return found

    def _numbers(self, paths: Sequence[str], columns: Sequence[str]) -> dict[str, np.ndarray]:
        """Return columns of whole numbers, and of times, from several files."""
        # An empty array in front, so that columns of a data set without rows have a type.
        parts: dict[str, list[np.ndarray]] = {name: [np.zeros(0, np.int64)] if not name.endswith("timestamp") else [] for name in columns}
        for path in paths:
            for table in self.read_columns(path, columns):
                for name in columns:
                    values = table.column(name).to_numpy()
                    if values.dtype.kind not in ("f" if name.endswith("timestamp") else "iu"):
                        raise self.error(path, f"column {name!r} has missing values, or the type {table.column(name).type}")
                    parts[name].append(values if values.dtype.kind == "f" else values.astype(np.int64))
        return {name: np.concatenate(arrays) if arrays else np.zeros(0) for name, arrays in parts.items()}

    def _files(self, key: str, chunk: np.ndarray, file: np.ndarray, **values: str) -> Files:
        if len(chunk) and (min(chunk.min(), file.min()) < 0 or max(chunk.max(), file.max()) >= 1 << 31):
            raise self.error("meta/episodes", f"a chunk or file of {key} has a number outside 0 to {(1 << 31) - 1}")
        # One path for each pair of numbers, however many episodes share a file.
        places, number = np.unique(np.stack([chunk, file], 1), axis=0, return_inverse=True)
        return Files([self._expand(key, chunk_index=c, file_index=f, **values) for c, f in places.tolist()], number.reshape(-1))

    def _episodes_of_lines(self, cameras: Sequence[str]) -> Episodes:
        file, rows = "meta/episodes.jsonl", []
        for entry in self._json_lines(file):
            row = entry.get("episode_index"), entry.get("length")
            if not all(type(value) is int and 0 <= value < 1 << 48 for value in row):
                raise self.error(file, f"an episode needs episode_index and length, whole numbers, got {row}")
            rows.append(row)
        number, length = np.array(sorted(rows), np.int64).reshape(-1, 2).T
        if not np.array_equal(number, np.arange(len(number))):
            raise self.error(file, f"the {len(number)} episodes are not numbered from 0 to {len(number) - 1}")
        size = self._info.get("chunks_size", 1000)
        if type(size) is not int or size < 1:
            raise self.error("meta/info.json", f"chunks_size must be a positive number, got {size!r}")

        def files(key: str, **values: str) -> Files:
            return Files([self._expand(key, episode_chunk=k // size, episode_index=k, **values) for k in range(len(number))], number)

        videos = {camera: files("video_path", video_key=camera) for camera in cameras}
        begins = dict.fromkeys(cameras, np.zeros(len(number)))
        return self._check_episodes(Episodes(number, np.cumsum(length) - length, length, files("data_path"), videos, begins))

    def _check_episodes(self, episodes: Episodes) -> Episodes:
        if not len(episodes.number):
            raise self.error("meta/episodes", "there are no episodes")
        total = episodes.length.sum(dtype=np.float64)
        if total > MAX_FRAMES:
            raise self.error("meta/episodes", f"the episodes promise {total:g} frames")
        bad = np.flatnonzero(
            (episodes.begin < 0) | (episodes.begin > MAX_FRAMES) | (episodes.length < 0) | (np.diff(episodes.number, prepend=-1) < 1)
        )
        if len(bad):
            number, begin, length = (values[bad[0]] for values in (episodes.number, episodes.begin, episodes.length))
            raise self.error("meta/episodes", f"episode {number} has {length} frames from {begin}, or its number comes twice")
        for camera, begins in episodes.video_begins.items():
            if not np.isfinite(begins).all():
                raise self.error("meta/episodes", f"from_timestamp of {camera!r} is not a number in episode {np.argmin(np.isfinite(begins))}")
        return episodes

    def read_tasks(self) -> dict[int, bytes]:
        """Return the text of each task, UTF-8."""
        if not self._is_v3:
            entries = [(entry.get("task_index"), entry.get("task")) for entry in self._json_lines("meta/tasks.jsonl")]
        else:
            path, entries = self._path("meta/tasks.parquet"), []
            text = next(
                (name for name in self._names_of_columns(path) if name != "task_index"), "task"
            )  # the index of a pandas table, whatever its name
            for table in self.read_columns(path, ["task_index", text]):
                entries += zip(table.column("task_index").to_pylist(), table.column(text).to_pylist(), strict=True)
        tasks = {number: task.encode() for number, task in entries if type(number) is int and isinstance(task, str)}
        if len(tasks) < len(entries):
            raise self.error("meta/tasks", "a task needs a text and a task_index of its own")
        return tasks

    def read_stats(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the statistics of each feature that has some: float32 in its shape; (channels,) in levels of 0 to 255 for a camera."""
        if self._is_v3:
            merged: Mapping[str, Any] = self._json("meta/stats.json")
        else:
            merged = _merge_stats([entry.get("stats") for entry in self._json_lines("meta/episodes_stats.jsonl")])
        stats: dict[str, dict[str, np.ndarray]] = {}
        for name, feature in self.features.items():
            found = merged.get(name)
            for key, value in found.items() if isinstance(found, dict) else ():
                if key == "count" or feature.kind == "string":
                    continue
                is_camera = feature.kind in ("video", "image")
                try:
                    channels = feature.image_size[2] if feature.image_size else 3
                    array = np.asarray(value, np.float32).reshape((channels,) if is_camera else feature.shape)
                except (TypeError, ValueError, OverflowError):
                    raise self.error("meta/stats.json", f"{key} of {name!r} does not have the shape {list(feature.shape)}") from None
                # Statistics of cameras are for pixels from 0 to 1; delivered pixels are from 0 to 255.
                stats.setdefault(name, {})[key] = array * np.float32(255) if is_camera else array
        return stats


def _kind_of(dtype: str) -> str:
    if dtype in ("video", "image", "bool"):
        return dtype
    return "float32" if _FLOATS.match(dtype) else "int64" if _WHOLE.match(dtype) else "string"


def _merge_stats(episodes: Sequence[Any]) -> dict[str, dict[str, np.ndarray]]:
    """Return mean, std, min and max of all episodes from those of each. Entries that are not statistics are left out."""
    parts: dict[str, list[dict[str, np.ndarray]]] = {}
    for stats in episodes:
        for name, found in stats.items() if isinstance(stats, dict) else ():
            try:
                arrays = {key: np.asarray(found[key], np.float64) for key in ("mean", "std", "min", "max", "count")}
            except (KeyError, TypeError, ValueError, OverflowError):
                continue
            if math.isfinite(arrays["count"].sum()) and arrays["count"].sum() > 0:
                parts.setdefault(name, []).append(arrays)
    merged = {}
    for name, rows in parts.items():
        shapes = {row[key].shape for row in rows for key in ("mean", "std", "min", "max")}
        if len(shapes) > 1:
            continue
        weight = np.array([row["count"].sum() for row in rows]).reshape(-1, *[1] * len(shapes.pop()))
        columns = {key: np.stack([row[key] for row in rows]) for key in ("mean", "std", "min", "max")}
        mean = (columns["mean"] * weight).sum(0) / weight.sum()
        # Law of total variance: within the episodes, plus between their means.
        variance = ((columns["std"] ** 2 + (columns["mean"] - mean) ** 2) * weight).sum(0) / weight.sum()
        merged[name] = {"mean": mean, "std": np.sqrt(variance), "min": columns["min"].min(0), "max": columns["max"].max(0)}
    return merged
