# SPDX-License-Identifier: Apache-2.0
"""The loader beside a training: what the model waits for, what a state costs, and memory over many batches."""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision.io
from rich.console import Console
from rich.progress import track
from rich.table import Table

import torch_ndd as ndd

from ._photos import write_jpegs
from ._process import limit_threads

BATCH = 64


def augment(files: Any, labels: Any) -> tuple[Any, Any]:
    """The main job."""
    images = ndd.resize(ndd.decoders.image_random_crop(files), size=[224, 224])
    mirror = ndd.random.coin_flip(batch_size=images.batch_size, probability=0.5)
    return ndd.crop_mirror_normalize(images, mirror=mirror, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375]), labels


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    limit_threads(options.threads)
    ndd.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory(prefix="torch_ndd_bench_") as folder:
        paths = write_jpegs(Path(folder), options.images)
        figures = {**_waiting(paths, options.steps), **_states(paths), **_soak(paths, Path(folder), options.batches)}
    table = Table(title="the loader in a training")
    for heading in ("figure", "value", "bar"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for name, (value, unit, bar) in figures.items():
        table.add_row(name, f"{value:.3g} {unit}", bar)
    console.print(table)
    return {"results": {name: {"value": value, "unit": unit} for name, (value, unit, _) in figures.items()}, "failed": {}}


def _waiting(paths: list[Path], steps: int) -> dict[str, tuple[float, str, str]]:
    reader = ndd.readers.File(files=[str(path) for path in paths] * 100, random_shuffle=True)
    loader = ndd.DataLoader(reader, augment, batch_size=BATCH)
    loop = iter(loader)
    for _ in range(10):
        next(loop)
    begin = time.perf_counter()
    for _ in range(steps):
        next(loop)
    batch = (time.perf_counter() - begin) / steps
    waits = []
    for _ in range(steps):
        begin = time.perf_counter()
        next(loop)
        waits.append(time.perf_counter() - begin)
        time.sleep(batch)  # a model on an accelerator: it leaves the cores to the loader
    part = sum(waits) / (sum(waits) + steps * batch)
    return {
        "images a second, nothing else to do": (BATCH / batch, "images/s", ""),
        "the step waits, with a model step as long as a batch": (100 * part, "%", "under 5"),
    }


def _states(paths: list[Path]) -> dict[str, tuple[float, str, str]]:
    files = [str(path) for path in paths] * (-(-1_000_000 // len(paths)))
    loader = ndd.DataLoader(ndd.readers.File(files=files, random_shuffle=True), augment, batch_size=BATCH)
    loop = iter(loader)
    next(loop)
    times = []
    for _ in range(1000):
        begin = time.perf_counter()
        state = loader.state_dict()
        times.append(time.perf_counter() - begin)
    resumes = []
    for position in (0, 1, 500_000, 999_999):
        state["reader"]["taken"] = [[1, position]]
        begin = time.perf_counter()
        loader.load_state_dict(state)
        next(iter(loader))
        resumes.append(time.perf_counter() - begin)
    return {
        "state_dict()": (statistics.median(times) * 1e6, "us", "under 50"),
        "first batch after load_state_dict(), 1,000,000 samples": (max(resumes), "s", "under 1"),
    }


def _soak(paths: list[Path], folder: Path, batches: int) -> dict[str, tuple[float, str, str]]:
    """Batches of 8 images whose size changes, of which 1 % are corrupt: resident memory over time."""
    chooser, small = random.Random(1), []
    for path in paths[:200]:
        jpeg = ndd.as_tensor(np.fromfile(path, np.uint8))
        height, width = (chooser.randint(16, 400) for _ in range(2))
        image = ndd.resize(ndd.decoders.image(jpeg), size=[height, width]).torch()
        small.append(folder / f"small_{path.stem}.jpg")
        _write_jpeg(small[-1], image)
    for k in range(2):  # damaged in the header, and in the pixels
        damaged = bytearray(small[k].read_bytes())
        damaged[: 4 if k == 0 else 0] = b"none" if k == 0 else b""
        small.append(folder / f"damaged_{k}.jpg")
        small[-1].write_bytes(bytes(damaged if k == 0 else damaged[: len(damaged) // 2]))

    def fn(files: Any, labels: Any) -> tuple[Any, Any]:
        images = ndd.decoders.image(files, on_error="replace")
        return ndd.flip(images, horizontal=1), labels

    loader = ndd.DataLoader(ndd.readers.File(files=[str(path) for path in small] * 10, random_shuffle=True), fn, batch_size=8)
    sizes: list[int] = []
    loop = iter(loader)
    for step in track(range(batches), description="soak", transient=True):
        batch = next(loop, None)
        if batch is None:
            loop = iter(loader)
            batch = next(loop)
        if step % 100 == 99:
            sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    later = sizes[len(sizes) // 5 :]  # the caches fill at first
    slope = statistics.linear_regression(range(len(later)), later).slope * 10 / 1e6
    return {f"memory over {batches:,} batches, 1 % corrupt": (slope, "MB per 1,000 batches", "under 1")}


def _write_jpeg(path: Path, image: torch.Tensor) -> None:
    torchvision.io.write_jpeg(image.permute(2, 0, 1).contiguous(), str(path))
