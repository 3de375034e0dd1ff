# SPDX-License-Identifier: Apache-2.0
"""Reading alone: batches of 64 samples from files and containers that the system has in memory, and decoding JPEGs alone. NemoAsr decodes as well.

For each kind of data the competitors take turns, as in the main job. A DataLoader has a data set written with what its users have: ``open``,
``numpy.load``, pycocotools, soundfile, pyarrow, lmdb, torchcodec, astropy. Everybody gets the index files, and the best of its numbers of workers
counts.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from . import _rounds
from ._containers import Containers, write_containers
from ._loaders import BATCH, DALI, LIMIT, SUBJECT, Job, decode_only
from ._other_containers import OTHERS, write_other
from ._other_readers import NEEDS, other_competitors
from ._process import Handler, is_installed, limit_threads, running
from ._report import color

Batches = Iterator[Any]

KINDS = ("File", "Webdataset", "TFRecord", "Numpy", "COCO", "NemoAsr", "Parquet", *OTHERS, "decode")
_NEEDS = {"NemoAsr": "soundfile", "Parquet": "pyarrow", **NEEDS}
# An epoch is so many passes over the data: its end plays no part.
_PASSES = 50
_DISCARD = 12


def run_imperative(kind: str, data: Containers, module: str) -> Batches:
    """The same program for torch_ndd and for DALI's dynamic mode.

    By CPU time DALI's Webdataset is near ours, in turns on busy cores: it takes 0.94 to 0.98 times as much as the first pass of readers.Webdataset,
    which compares the header of each file with the index, 0.11 of its time, as DALI does not do, and 1.07 to 1.10 times as much as later passes. Of
    our time, the system's copy of the bytes is 0.52, finding their pages 0.09, and Python with NumPy and torch 0.22. DALI copies from archives that
    it has mapped, without calls of the system; a program that has mapped a file crashes when the file becomes shorter.
    """
    ndd = importlib.import_module(module)
    ndd.set_num_threads(data.threads)
    if kind == "decode":
        files = [jpegs for jpegs, _ in ndd.readers.File(files=data.jpegs).next_epoch(batch_size=BATCH)][:-1]
        ahead = deque(ndd.decoders.image(jpegs) for jpegs in files[:2])  # no thread waits for the other at the end of a batch
        for jpegs in cycle(files):
            ahead.append(ndd.decoders.image(jpegs))
            yield ahead.popleft().evaluate()
    reader = _reader(kind, data, ndd, module)
    while True:
        yield from reader.next_epoch(batch_size=BATCH)


def _reader(kind: str, data: Containers, ndd: ModuleType, module: str) -> Any:
    readers = ndd.readers
    if kind == "File":
        return readers.File(files=data.jpegs * _PASSES, labels=data.labels * _PASSES)
    if kind == "Webdataset":
        return readers.Webdataset(paths=data.tars * _PASSES, index_paths=data.tar_indices * _PASSES, ext=["jpg", "cls"])
    if kind == "Numpy":
        return readers.Numpy(files=data.arrays * _PASSES)
    if kind == "NemoAsr":
        return readers.NemoAsr(manifest_filepaths=[data.manifest] * _PASSES)
    if kind == "Parquet":
        return readers.Parquet(path=[data.parquet] * _PASSES)
    if kind == "COCO":
        return readers.COCO(file_root=data.root, annotations_file=data.annotations)
    tf = importlib.import_module("nvidia.dali.tfrecord" if module == DALI else "torch_ndd.tfrecord")
    features = {"image": tf.FixedLenFeature([], tf.string, ""), "label": tf.FixedLenFeature([1], tf.int64, -1)}
    return readers.TFRecord(path=data.tfrecords * _PASSES, index_path=data.tfrecord_indices * _PASSES, features=features)


def web_loader(kind: str, data: Containers, workers: int) -> Batches:
    """The webdataset library with its loader."""
    wds = importlib.import_module("webdataset")
    shards = wds.WebDataset(data.tars * _PASSES, shardshuffle=False).to_tuple("jpg", "cls").batched(BATCH)
    while True:
        yield from wds.WebLoader(shards, batch_size=None, num_workers=workers)


def data_loader(kind: str, data: Containers, workers: int) -> Batches:
    """torch's DataLoader over a data set of this kind; samples of unequal size stay a list."""
    torch.set_num_threads(data.threads)
    if kind == "Parquet":
        while True:
            yield from torch.utils.data.DataLoader(_RowGroups(data.parquet), batch_size=None, num_workers=workers)
    loader = torch.utils.data.DataLoader(
        _DataSet(kind, data), batch_size=BATCH, num_workers=workers, drop_last=True, collate_fn=None if kind == "Numpy" else _keep_list
    )
    while True:
        yield from loader


def _keep_list(samples: list[Any]) -> list[Any]:
    return list(zip(*samples, strict=True))


class _DataSet(torch.utils.data.Dataset[Any]):
    def __init__(self, kind: str, data: Containers) -> None:
        self.kind, self.data = kind, data
        if kind == "COCO":
            self.coco = importlib.import_module("pycocotools.coco").COCO(data.annotations)
        self.records: list[tuple[str, int, int]] = []
        for path, index in zip(data.tfrecords, data.tfrecord_indices, strict=True):
            lines = [line.split() for line in Path(index).read_text().splitlines()]
            self.records += [(path, int(begin), int(size)) for begin, size in lines]

    def __len__(self) -> int:
        return len(self.data.sounds if self.kind == "NemoAsr" else self.data.jpegs) * _PASSES

    def __getitem__(self, number: int) -> Any:
        if self.kind == "NemoAsr":
            sound, rate = importlib.import_module("soundfile").read(self.data.sounds[number % len(self.data.sounds)], dtype="float32")
            return torch.from_numpy(sound), rate, "the sound with a number"
        k = number % len(self.data.jpegs)
        if self.kind == "Numpy":
            return np.load(self.data.arrays[k])
        if self.kind == "TFRecord":
            path, begin, size = self.records[k]
            with open(path, "rb") as file:
                file.seek(begin)
                return _image_and_label(file.read(size))
        image = torch.from_numpy(np.fromfile(self.data.jpegs[k], np.uint8))
        if self.kind == "File":
            return image, k
        annotations = self.coco.loadAnns(self.coco.getAnnIds(k))
        return (
            image,
            torch.tensor([annotation["bbox"] for annotation in annotations]),
            torch.tensor([annotation["category_id"] for annotation in annotations]),
        )


class _RowGroups(torch.utils.data.IterableDataset[Any]):
    """Batches of a Parquet file as pyarrow cuts them out of its row groups, of which each worker has its share.

    Each image is copied: pyarrow's own are views, which cannot be written to and keep the other images of their batch in memory.

    The bar of 1.5 is out of reach by CPU time: pyarrow reads and decodes the row groups for both, which is 1.75 of the 2.64 ms that a batch of
    readers.Parquet takes; the copy of its images takes 0.29, finding the values in a row group and dropping an old one 0.17, and the loop with what
    it hands to threads 0.12 to 0.19. Without workers this one takes 1.00 to 1.04 times the CPU time, in turns with it on busy cores: it copies as
    much, in one thread, but reads 64 rows at a time, for which pyarrow takes 2.0 to 2.2 ms. With many programs on two cores it took 0.89 in one
    run.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def __iter__(self) -> Iterator[Any]:
        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for _ in range(_PASSES):
            # Opened for each pass, as different files would be: of row groups that are repeated in one call pyarrow reads the bytes only once.
            file = importlib.import_module("pyarrow.parquet").ParquetFile(self.path)
            for rows in file.iter_batches(BATCH, row_groups=list(range(file.num_row_groups))[first::step]):
                images = rows.column("image").field("bytes")
                yield (
                    [torch.frombuffer(bytearray(image.as_buffer()), dtype=torch.uint8) for image in images],
                    torch.from_numpy(rows.column("label").to_numpy().copy()),
                )


def _image_and_label(record: bytes) -> tuple[torch.Tensor, int]:
    """What users without TensorFlow write: a walk through the Example."""
    found: dict[bytes, bytes] = {}
    for entry in _fields(next(iter(_fields(record[12:-4])))):
        key, value = _fields(entry)
        found[key] = next(iter(_fields(next(iter(_fields(value))))))
    label, shift = 0, 0
    for byte in found[b"label"]:
        label, shift = label | (byte & 127) << shift, shift + 7
    return torch.frombuffer(bytearray(found[b"image"]), dtype=torch.uint8), label


def _fields(message: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(message):
        at, length, shift = at + 1, 0, 0
        while True:
            byte = message[at]
            at, length, shift = at + 1, length | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        yield message[at : at + length]
        at += length


def _limit(kind: str, data: Containers) -> Batches:
    return decode_only(Job(data.jpegs, data.threads))


def _competitors(kind: str, threads: int) -> dict[str, tuple[str, Callable[..., Batches], dict[str, Any]]]:
    """By name: the module that it needs, the stream, its arguments."""
    if kind in OTHERS:
        return other_competitors(kind, threads)
    found: dict[str, tuple[str, Callable[..., Batches], dict[str, Any]]] = {
        SUBJECT: ("torch_ndd", run_imperative, {"module": "torch_ndd"}),
    }
    if kind != "Parquet":
        found["DALI dynamic"] = "nvidia.dali", run_imperative, {"module": DALI}
    for workers in (0, threads):
        if kind == "Webdataset":
            found[f"webdataset, {workers} workers"] = "webdataset", web_loader, {"workers": workers}
        elif kind != "decode":
            found[f"DataLoader, {workers} workers"] = "pycocotools" if kind == "COCO" else "torch", data_loader, {"workers": workers}
    if kind == "decode":
        found[LIMIT] = "torchvision", _limit, {}
    return found


def handler(stream: Callable[..., Batches], kind: str, data: Containers, arguments: dict[str, Any]) -> Handler:
    """Runs in the competitor's process: answers a number of steps with a round."""
    return _rounds.start(stream(kind, data, **arguments), _DISCARD)


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the tables, return the figures."""
    limit_threads(options.threads)
    results: dict[str, Any] = {}
    failed: dict[str, str] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="torch_ndd_bench_")))
        data = write_containers(folder, options.images, options.threads)
        what = f"{options.images} JPEGs and arrays of 150 kB, batch {BATCH}, {options.rounds} rounds of {options.steps} batches"
        console.print(what, highlight=False)
        for kind in KINDS:
            if options.only is not None and not options.only.search(kind):
                continue
            if kind in _NEEDS and not is_installed(_NEEDS[kind]):
                continue
            if kind in OTHERS:
                data.other = write_other(kind, folder / kind, data.jpegs)
            chosen = {name: competitor for name, competitor in _competitors(kind, options.threads).items() if is_installed(competitor[0])}
            processes = {name: (handler, (stream, kind, data, arguments)) for name, (_, stream, arguments) in chosen.items()}
            with running(processes) as (peers, errors):
                rounds = _rounds.alternate(peers, options.steps, options.rounds, errors, settle=True)
            failed |= {f"{name}, {kind}": text for name, text in errors.items()}
            results[kind] = _rounds.figures(rounds, "samples")
            _print(console, kind, results[kind])
    for name, text in failed.items():
        console.print(f"[red]{name} failed:[/]", text.strip(), highlight=False, markup=False)
    return {"images": options.images, "batch": BATCH, "results": results, "failed": failed}


def _print(console: Console, kind: str, figures: dict[str, dict[str, float]]) -> None:
    table = Table(title="decoders.image" if kind == "decode" else f"readers.{kind}")
    table.add_column("competitor")
    for heading in ("samples/s", "torch_ndd is x times", "batch p50 ms", "p99 ms", "samples per CPU second"):
        table.add_column(heading, justify="right")
    for name, row in figures.items():
        bar = 0.95 if name == LIMIT else (1.8 if kind == "decode" else 1.0) if name.startswith("DALI") else 1.5
        times = color(row["torch_ndd_ratio"], bar) if "torch_ndd_ratio" in row and name != SUBJECT else ""
        numbers = (f"{row['samples_per_second']:.0f}", times, f"{row['batch_ms_p50']:.2f}", f"{row['batch_ms_p99']:.2f}")
        table.add_row(name, *numbers, f"{row['samples_per_cpu_second']:.0f}")
    console.print(table)
