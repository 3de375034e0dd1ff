# SPDX-License-Identifier: Apache-2.0
"""Readers of the containers of `_other_containers`: torch_ndd, DALI's dynamic mode or its pipeline, and a DataLoader over what their users have."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from ._containers import Containers
from ._loaders import BATCH, DALI, SUBJECT
from ._other_containers import FRAMES

Batches = Iterator[Any]

NEEDS = {"Caffe": "lmdb", "Caffe2": "lmdb", "Video": "torchcodec", "Fits": "astropy", "HuggingFace": "datasets"}
# Passes of an epoch where workers start with each: its end plays no part.
_PASSES = 50


def make_reader(kind: str, data: Containers, ndd: ModuleType) -> Any:
    """The same reader of torch_ndd and of DALI's dynamic mode."""
    readers, place = ndd.readers, data.other
    if kind == "Caffe":
        return readers.Caffe(path=place)
    if kind == "Caffe2":
        return readers.Caffe2(path=place)
    if kind == "MXNet":
        return readers.MXNet(path=[place[0]], index_path=[place[1]])  # DALI takes a single index
    if kind == "Video":
        return ndd.experimental.readers.Video(filenames=place, sequence_length=FRAMES)
    if kind == "Fits":
        return ndd.experimental.readers.Fits(files=place * _PASSES)
    return readers.HuggingFace(dataset=importlib.import_module("datasets").load_from_disk(place))


def run_pipeline(kind: str, data: Containers, package: str) -> Batches:
    """The same graph of DALI and of torch_ndd.dali."""
    dali, place = importlib.import_module(package), data.other
    fn = importlib.import_module(f"{package}.fn")

    @dali.pipeline_def(batch_size=BATCH, num_threads=data.threads, device_id=None, prefetch_queue_depth=2)
    def graph() -> Any:
        if kind == "Caffe":
            return tuple(fn.readers.caffe(path=place))
        if kind == "Caffe2":
            return tuple(fn.readers.caffe2(path=place))
        if kind == "MXNet":
            return tuple(fn.readers.mxnet(path=[place[0]], index_path=[place[1]]))
        if kind == "Video":
            return fn.experimental.readers.video(filenames=place, sequence_length=FRAMES)
        return fn.readers.sequence(file_root=place, sequence_length=FRAMES)

    pipe = graph()
    pipe.build()
    while True:
        yield pipe.run()


def load_others(kind: str, data: Containers, workers: int, joins: bool = False) -> Batches:
    """Yield batches of torch's DataLoader over a data set of this kind; samples stay a list, but for HuggingFace its own form.

    With ``joins`` they become one tensor, as torch_ndd's and DALI's do: the loader copies each a second time. Without, readers.Video is behind by
    CPU time: torchcodec takes no memory for its frames, and a batch is one buffer, which kernels take, so that they are copied to it, 12.6 MB here.
    Of 25.2 ms on one CPU, with clocks around each part, that takes 2.1, torchcodec 20.6 and the rest 2.5, while this one takes 18.8 to 19.8.
    """
    torch.set_num_threads(data.threads)
    dataset: Any
    if kind == "HuggingFace":
        # In the format of torch, images remain bytes.
        dataset = importlib.import_module("datasets").load_from_disk(data.other).with_format("torch")
        dataset = _Repeated(dataset)
    else:
        dataset = _Samples(kind, data)
    collate = None if joins else _keep
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, num_workers=workers, drop_last=True, collate_fn=collate)
    while True:
        yield from loader


def _keep(samples: list[Any]) -> list[Any]:
    return samples


class _Repeated(torch.utils.data.Dataset[Any]):
    """A data set of Hugging Face, several times, read by batches as torch's DataLoader reads one."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset) * _PASSES

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        return self.dataset.__getitems__([number % len(self.dataset) for number in numbers])


class _Samples(torch.utils.data.Dataset[Any]):
    """What users without DALI write: lmdb, ``struct``, Pillow, torchcodec, astropy."""

    def __init__(self, kind: str, data: Containers) -> None:
        self.kind, self.place, self.count = kind, data.other, len(data.jpegs)
        self.opened: dict[str, Any] = {}
        if kind == "MXNet":
            self.begins = [int(line.split()[1]) for line in Path(self.place[1]).read_text().splitlines()]
        if kind == "Sequence":
            folders = [sorted(folder.iterdir()) for folder in sorted(Path(self.place).iterdir())]
            self.sequences = [frames[k : k + FRAMES] for frames in folders for k in range(len(frames) - FRAMES + 1)]
            self.count = len(self.sequences)
        if kind == "Video":
            frames = [self._video(path).metadata.num_frames for path in self.place]
            self.parts = [(path, k) for path, number in zip(self.place, frames, strict=True) for k in range(0, number - FRAMES + 1, FRAMES)]
            self.count, self.opened = len(self.parts), {}

    def __len__(self) -> int:
        return self.count * _PASSES

    def __getitem__(self, number: int) -> Any:
        return _READ[self.kind](self, number % self.count)

    def _record(self, number: int) -> bytes:
        # Opened in the worker: a database must not cross a fork.
        if "lmdb" not in self.opened:
            database = importlib.import_module("lmdb").open(self.place, readonly=True, lock=False)
            self.opened["lmdb"] = database, database.begin()
        return self.opened["lmdb"][1].get(b"%08d" % number)

    def _video(self, path: str) -> Any:
        if path not in self.opened:
            self.opened[path] = importlib.import_module("torchcodec.decoders").VideoDecoder(path, dimension_order="NHWC", seek_mode="approximate")
        return self.opened[path]


def _read_caffe(data: _Samples, number: int) -> tuple[torch.Tensor, int]:
    found = dict(message_fields(data._record(number)))
    return _bytes(found[4]), found[5]


def _read_caffe2(data: _Samples, number: int) -> tuple[torch.Tensor, int]:
    image, label = (dict(message_fields(tensor)) for _, tensor in message_fields(data._record(number)))
    return _bytes(image[6]), _varint(label[4], 0)[0]


def _read_mxnet(data: _Samples, number: int) -> tuple[torch.Tensor, float]:
    if "file" not in data.opened:
        data.opened["file"] = open(data.place[0], "rb")  # noqa: SIM115 (of the worker, until it ends)
    file = data.opened["file"]
    file.seek(data.begins[number])
    _, length = struct.unpack("<II", file.read(8))
    _, label, _, _ = struct.unpack("<IfQQ", file.read(24))
    return _bytes(file.read(length - 24)), label


def _read_sequence(data: _Samples, number: int) -> torch.Tensor:
    image = importlib.import_module("PIL.Image")
    return torch.from_numpy(np.stack([np.asarray(image.open(path)) for path in data.sequences[number]]))


def _read_video(data: _Samples, number: int) -> torch.Tensor:
    path, first = data.parts[number]
    return data._video(path).get_frames_in_range(first, first + FRAMES).data


def _read_fits(data: _Samples, number: int) -> torch.Tensor:
    with importlib.import_module("astropy.io.fits").open(data.place[number]) as file:
        return torch.from_numpy(file[1].data.astype(np.float32))


_READ: dict[str, Callable[[_Samples, int], Any]] = {
    "Caffe": _read_caffe,
    "Caffe2": _read_caffe2,
    "MXNet": _read_mxnet,
    "Sequence": _read_sequence,
    "Video": _read_video,
    "Fits": _read_fits,
}


def _bytes(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def message_fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield numbers and values of the fields of a message of Protocol Buffers: numbers and bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value, at = _varint(message, at)
        if key & 7 == 2:
            yield key >> 3, message[at : at + value]
            at += value
        else:
            yield key >> 3, value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = message[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at


def other_competitors(kind: str, threads: int) -> dict[str, tuple[str, Callable[..., Batches], dict[str, Any]]]:
    """By name: the module that it needs, the stream, its arguments. DALI reads FITS on machines with a GPU only, and Sequence in pipelines."""
    found: dict[str, tuple[str, Callable[..., Batches], dict[str, Any]]] = {}
    if kind == "Sequence":
        found[SUBJECT] = SUBJECT, run_pipeline, {"package": "torch_ndd.dali"}
    else:
        found[SUBJECT] = SUBJECT, run_reader, {"module": SUBJECT}
    if kind in ("Caffe", "Caffe2", "MXNet", "Video"):
        found["DALI dynamic"] = "nvidia.dali", run_reader, {"module": DALI}
    if kind not in ("Fits", "HuggingFace"):
        found["DALI pipeline"] = "nvidia.dali", run_pipeline, {"package": "nvidia.dali"}
    for workers in (0, threads):
        found[f"DataLoader, {workers} workers"] = NEEDS.get(kind, "torch"), load_others, {"workers": workers}
        if kind in ("Sequence", "Video"):  # their samples have one shape
            found[f"DataLoader, {workers} workers, one tensor"] = NEEDS.get(kind, "torch"), load_others, {"workers": workers, "joins": True}
    return found


def run_reader(kind: str, data: Containers, module: str) -> Batches:
    """The same program for torch_ndd and for DALI's dynamic mode."""
    ndd = importlib.import_module(module)
    ndd.set_num_threads(data.threads)
    reader = make_reader(kind, data, ndd)
    while True:
        yield from reader.next_epoch(batch_size=BATCH)
