# SPDX-License-Identifier: Apache-2.0
"""Windows of robot data in LeRobot's format: ``readers.LeRobot`` against DataLoaders of LeRobotDataset and of a data set that reads with torchcodec.

The package lerobot demands an older torch, but its data sets work with this one: ``pip install --no-deps --target DIR lerobot==0.4.4`` and what it
imports, and ``PYTHONPATH=DIR``. The other data set keeps the numbers in memory and the videos open, and leaves frames uint8.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from . import _rounds
from ._loaders import BATCH, SUBJECT
from ._process import Handler, is_installed, limit_threads, running
from ._report import color

_RATE, _EPISODES, _LENGTH = 30, 20, 30  # frames per second, episodes in a file, frames of an episode
_HEIGHT, _WIDTH = 480, 640
_DISCARD = 6  # batches, more than are prefetched


@dataclass(frozen=True)
class Kind:
    """A data set and the windows read from it."""

    codec: str
    group: int  # frames from key frame to key frame
    cameras: int
    window: int
    bar: float

    @property
    def steps(self) -> list[float]:
        """The window in seconds."""
        return [(k - self.window + 1) / _RATE for k in range(self.window)]

    @property
    def names(self) -> list[str]:
        """The cameras."""
        return [f"observation.images.{k}" for k in range(self.cameras)]


KINDS = {
    "AV1, a key frame in 2, 2 cameras, windows of 3": Kind("libsvtav1", 2, 2, 3, 1.3),
    "H.264, a key frame in 30, 1 camera": Kind("libx264", 30, 1, 1, 2.0),
}


def write_data(root: Path, kind: Kind) -> None:
    """Write a data set of v3.0 with one file of all episodes."""
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    count = _EPISODES * _LENGTH
    shapes = {"action": [7], **{name: [1] for name in ("timestamp", "frame_index", "episode_index", "index", "task_index")}}
    features: dict[str, Any] = {name: {"dtype": "float32" if name in ("action", "timestamp") else "int64", "shape": shapes[name]} for name in shapes}
    features |= {name: {"dtype": "video", "shape": [_HEIGHT, _WIDTH, 3]} for name in kind.names}
    paths = {"data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"}
    paths["video_path"] = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
    for folder in ("meta/episodes/chunk-000", "data/chunk-000", *(f"videos/{name}/chunk-000" for name in kind.names)):
        (root / folder).mkdir(parents=True)
    features["action"]["names"] = None
    totals = {"total_episodes": _EPISODES, "total_frames": count, "total_tasks": 1, "chunks_size": 1000, "robot_type": None, "splits": {}}
    (root / "meta/info.json").write_text(json.dumps({"codebase_version": "v3.0", "fps": _RATE, "features": features, **paths, **totals}))
    (root / "meta/stats.json").write_text("{}")
    begins = np.arange(0, count, _LENGTH)
    episodes = {"episode_index": np.arange(_EPISODES), "dataset_from_index": begins, "dataset_to_index": begins + _LENGTH}
    episodes |= {"length": np.full(_EPISODES, _LENGTH), "tasks": [["move"]] * _EPISODES}
    places = {"chunk_index": np.zeros(_EPISODES, np.int64), "file_index": np.zeros(_EPISODES, np.int64)}
    episodes |= {f"data/{name}": values for name, values in places.items()}
    for name in kind.names:
        episodes |= {f"videos/{name}/{key}": values for key, values in {**places, "from_timestamp": begins / _RATE}.items()}
    index = np.arange(count)
    columns = {"timestamp": (index % _LENGTH / _RATE).astype(np.float32), "frame_index": index % _LENGTH, "episode_index": index // _LENGTH}
    columns |= {"index": index, "task_index": 0 * index, "action": arrow.array(list(np.random.default_rng(0).random((count, 7), np.float32)))}
    tasks = importlib.import_module("pandas").DataFrame({"task_index": [0]}, index=["move"])
    parquet.write_table(arrow.Table.from_pandas(tasks), root / "meta/tasks.parquet")
    parquet.write_table(arrow.table(episodes), root / "meta/episodes/chunk-000/file-000.parquet")
    parquet.write_table(arrow.table(columns), root / "data/chunk-000/file-000.parquet")
    for number, name in enumerate(kind.names):
        frames = _draw_frames(count, number)
        encoder = importlib.import_module("torchcodec.encoders").VideoEncoder(frames, frame_rate=_RATE)
        path = root / f"videos/{name}/chunk-000/file-000.mp4"
        encoder.to_file(path, codec=kind.codec, crf=30, pixel_format="yuv420p", extra_options={"g": str(kind.group)})


def _draw_frames(count: int, seed: int) -> torch.Tensor:
    """Return a noisy scene that moves, (count, 3, height, width)."""
    draw = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, 3, 12, 16, generator=draw)
    scene = torch.nn.functional.interpolate(coarse, (_HEIGHT, _WIDTH), mode="bicubic").clamp(0, 1)[0] * 220
    frames = torch.empty(count, 3, _HEIGHT, _WIDTH, dtype=torch.uint8)
    for k in range(count):
        frames[k] = scene.roll(3 * k, 2) + 30 * torch.rand(1, _HEIGHT, _WIDTH, generator=draw)
    return frames


def read_natively(root: Path, kind: Kind, threads: int) -> Iterator[Any]:
    """Read with readers.LeRobot."""
    ndd = importlib.import_module("torch_ndd")
    ndd.set_num_threads(threads)
    windows = dict.fromkeys(kind.names, kind.steps) if kind.window > 1 else {}
    reader = ndd.readers.LeRobot(path=root, delta_timestamps={"action": kind.steps, **windows}, random_shuffle=True)
    while True:
        yield from reader.next_epoch(BATCH)


class _DataSet(torch.utils.data.Dataset[Any]):
    """What a user writes with pyarrow and torchcodec."""

    def __init__(self, root: Path, kind: Kind) -> None:
        table = importlib.import_module("pyarrow.parquet").read_table(root / "data/chunk-000/file-000.parquet")
        self._columns = {name: torch.from_numpy(np.array(table.column(name).to_pylist())) for name in table.column_names}
        self._root, self._kind = root, kind
        self._open: dict[str, Any] = {}

    def __len__(self) -> int:
        return _EPISODES * _LENGTH

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        begin = index // _LENGTH * _LENGTH
        rows = [min(max(index + k - self._kind.window + 1, begin), begin + _LENGTH - 1) for k in range(self._kind.window)]
        sample = {name: values[index] for name, values in self._columns.items()}
        sample["action"] = self._columns["action"][rows]
        for name in self._kind.names:
            if name not in self._open:
                path = self._root / f"videos/{name}/chunk-000/file-000.mp4"
                self._open[name] = importlib.import_module("torchcodec.decoders").VideoDecoder(path, num_ffmpeg_threads=1)
            sample[name] = self._open[name].get_frames_at(rows).data
        return sample


def read_with_torchcodec(root: Path, kind: Kind, threads: int) -> Iterator[Any]:
    """Read with a DataLoader."""
    loader = torch.utils.data.DataLoader(
        _DataSet(root, kind), BATCH, shuffle=True, num_workers=threads, drop_last=True, persistent_workers=True, multiprocessing_context="spawn"
    )
    while True:
        yield from loader


def read_with_lerobot(root: Path, kind: Kind, threads: int) -> Iterator[Any]:
    """Read with LeRobotDataset and a DataLoader."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    module = importlib.import_module("lerobot.datasets.lerobot_dataset")
    windows = dict.fromkeys(kind.names, kind.steps) if kind.window > 1 else {}
    data = module.LeRobotDataset("local/benchmark", root=root, delta_timestamps={"action": kind.steps, **windows}, video_backend="torchcodec")
    loader = torch.utils.data.DataLoader(
        data, BATCH, shuffle=True, num_workers=threads, drop_last=True, persistent_workers=True, multiprocessing_context="spawn"
    )
    while True:
        yield from loader


def handler(stream: Callable[..., Iterator[Any]], root: Path, kind: Kind, threads: int) -> Handler:
    """Run in the competitor's process: answer a number of steps with a round."""
    return _rounds.start(stream(root, kind, threads), _DISCARD)


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the tables, return the figures."""
    limit_threads(options.threads)
    results: dict[str, Any] = {}
    failed: dict[str, str] = {}
    if not is_installed("torchcodec") or not is_installed("pyarrow"):
        raise ModuleNotFoundError("torchcodec and pyarrow")
    streams = {SUBJECT: read_natively, "torchcodec, DataLoader": read_with_torchcodec}
    if is_installed("lerobot"):
        streams["LeRobotDataset, DataLoader"] = read_with_lerobot
    for number, (title, kind) in enumerate(KINDS.items()):
        if options.only is not None and not options.only.search(title):
            continue
        with ExitStack() as stack:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"torch_ndd_robots_{number}_")))
            write_data(root, kind)
            processes = {name: (handler, (stream, root, kind, options.threads)) for name, stream in streams.items()}
            with running(processes) as (peers, errors):
                rounds = _rounds.alternate(peers, options.steps, options.rounds, errors, settle=True)
        failed |= {f"{name}, {title}": text for name, text in errors.items()}
        results[title] = _rounds.figures(rounds, "samples")
        table = Table("competitor", "samples/s", "torch_ndd is x times", "samples per CPU second", title=title)
        for name, row in results[title].items():
            times = color(row["torch_ndd_ratio"], kind.bar) if "torch_ndd_ratio" in row and name != SUBJECT else ""
            table.add_row(name, f"{row['samples_per_second']:.1f}", times, f"{row['samples_per_cpu_second']:.1f}")
        console.print(table)
    for name, text in failed.items():
        console.print(f"[red]{name} failed:[/]", text.strip(), highlight=False, markup=False)
    return {"batch": BATCH, "results": results, "failed": failed}
