# SPDX-License-Identifier: Apache-2.0
"""Decoding each kind of file to where training needs it, on the CPU or with ``--device cuda`` on the GPU: images, videos, compressed bytes, arrays.

The competitors run the same program and take turns. The files are in memory, except for arrays, which a reader takes from the disk. On a GPU the
report says which engine decoded: what no engine takes is decoded by the CPU and uploaded, by both libraries.
"""

from __future__ import annotations

import argparse
import importlib
import io
import tempfile
from collections import deque
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from . import _rounds
from ._loaders import BATCH, DALI, SUBJECT
from ._photos import write_jpegs
from ._process import Handler, is_installed, limit_threads, running
from ._report import color

Batches = Iterator[Any]

# What Pillow calls the image formats, with its options.
_IMAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "JPEG": ("JPEG", {"quality": 90}),
    "JPEG, progressive": ("JPEG", {"quality": 90, "progressive": True}),
    "PNG": ("PNG", {}),
    "TIFF": ("TIFF", {}),
    "TIFF, LZW": ("TIFF", {"compression": "tiff_lzw"}),
    "JPEG 2000": ("JPEG2000", {"quality_mode": "rates", "quality_layers": [12]}),
    "BMP": ("BMP", {}),
    "WebP": ("WEBP", {"quality": 90}),
}
_VIDEO, _LZ4, _ARRAYS = "video, H.264", "inflate, LZ4", "arrays"
KINDS = (*_IMAGES, _VIDEO, _LZ4, _ARRAYS)
_NEEDS = {_VIDEO: "torchcodec", _LZ4: "lz4"}
_DALI_NEEDS_A_GPU = (_VIDEO, _LZ4)
_FRAMES, _VIDEO_SIZE = 32, 240  # of a clip
_DISCARD = 3


def _write(folder: Path, kind: str, images: list[Path]) -> list[str]:
    """Write one file for each image, or for each batch of them a video, and return their paths."""
    image_module = importlib.import_module("PIL.Image")
    folder.mkdir()
    paths = []
    if kind == _VIDEO:
        encoders = importlib.import_module("torchcodec.encoders")
        for start in range(0, len(images), _FRAMES):
            pixels = [np.asarray(image_module.open(image).resize((_VIDEO_SIZE, _VIDEO_SIZE))) for image in images[start : start + _FRAMES]]
            frames = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)
            paths.append(str(folder / f"{start:05}.mp4"))
            encoders.VideoEncoder(frames.contiguous(), frame_rate=30).to_file(paths[-1])
        return paths
    for k, path in enumerate(images):
        image = image_module.open(path)
        paths.append(str(folder / f"{k:05}"))
        if kind == _ARRAYS:
            paths[-1] += ".npy"
            np.save(paths[-1], np.asarray(image))
        elif kind == _LZ4:
            block = importlib.import_module("lz4.block")
            Path(paths[-1]).write_bytes(block.compress(np.asarray(image.resize((500, 375))).tobytes(), store_size=False))
        else:
            name, options = _IMAGES[kind]
            content = io.BytesIO()
            image.save(content, name, **options)
            Path(paths[-1]).write_bytes(content.getvalue())
    return paths


def _decode(ndd: ModuleType, kind: str, files: Any, device: str) -> Any:
    if kind == _LZ4:
        return ndd.decoders.inflate(files.gpu() if device == "gpu" else files, shape=[375, 500, 3])
    if kind == _VIDEO:
        return ndd.decoders.video(files, device=device)
    return ndd.decoders.image(files, device=device)


def _batches(kind: str, paths: list[str], module: str, device: str, threads: int) -> Batches:
    """Yield decoded batches: the same program for torch_ndd and for DALI's dynamic mode."""
    ndd = importlib.import_module(module)
    ndd.set_num_threads(threads)
    if kind == _ARRAYS:
        while True:
            for (arrays,) in ndd.readers.Numpy(files=paths * 20, device=device).next_epoch(batch_size=BATCH):
                yield arrays.evaluate()
    size = 4 if kind == _VIDEO else BATCH
    files = [batch for batch, *_ in ndd.readers.File(files=paths).next_epoch(batch_size=size)]
    ahead = deque(_decode(ndd, kind, batch, device) for batch in files[:2])  # no thread waits for the other at the end of a batch
    for batch in cycle(files):
        ahead.append(_decode(ndd, kind, batch, device))
        yield ahead.popleft().evaluate()


def _engines(module: str) -> dict[str, int]:
    return importlib.import_module("torch_ndd").decoders.engine_counts() if module == SUBJECT else {}


def handler(kind: str, paths: list[str], module: str, device: str, threads: int) -> Handler:
    """Run in the competitor's process: answer a number of steps with a round, and zero steps with the images that each engine decoded."""
    answer = _rounds.start(_batches(kind, paths, module, device, threads), _DISCARD)
    return lambda steps: answer(steps) if steps else _engines(module)


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    limit_threads(options.threads)
    device = "gpu" if options.device == "cuda" else "cpu"
    results: dict[str, Any] = {}
    failed: dict[str, str] = {}
    table = Table(title=f"{options.images} photographs, batches of {BATCH} (videos: 4), {options.rounds} rounds of {options.steps}, {options.device}")
    table.add_column("files")
    for heading in ("torch_ndd/s", "DALI dynamic/s", "torch_ndd is x times", "CPU ms a file", "engines"):
        table.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory(prefix="torch_ndd_bench_") as name:
        folder = Path(name)
        (folder / "photographs").mkdir()
        images = write_jpegs(folder / "photographs", options.images)
        for kind in KINDS:
            if (options.only is not None and not options.only.search(kind)) or not is_installed(_NEEDS.get(kind, "torch")):
                continue
            paths = _write(folder / kind.replace(" ", "_"), kind, images)
            modules = {SUBJECT: SUBJECT}
            if is_installed("nvidia.dali") and not (device == "cpu" and kind in _DALI_NEEDS_A_GPU):
                modules["DALI dynamic"] = DALI
            processes = {key: (handler, (kind, paths, module, device, options.threads)) for key, module in modules.items()}
            engines: dict[str, int] = {}
            with running(processes) as (peers, errors):
                rounds = _rounds.alternate(peers, options.steps, options.rounds, errors, settle=True)
                if device == "gpu" and SUBJECT in rounds:
                    engines = next(peer for peer in peers if peer.name == SUBJECT).ask(0)
            failed |= {f"{key}, {kind}": text for key, text in errors.items()}
            results[kind] = {**_rounds.figures(rounds, "files"), "engines": {key: count for key, count in engines.items() if count}}
            _add_row(table, kind, results[kind])
    console.print(table)
    for key, text in failed.items():
        console.print(f"[red]{key} failed:[/]", text.strip(), highlight=False, markup=False)
    return {"images": options.images, "batch": BATCH, "results": results, "failed": failed}


def _add_row(table: Table, kind: str, figures: dict[str, Any]) -> None:
    ours, rival = figures.get(SUBJECT, {}), figures.get("DALI dynamic", {})
    rates = [f"{row['files_per_second']:,.0f}" if row else "" for row in (ours, rival)]
    times = color(rival["torch_ndd_ratio"], 1.0) if "torch_ndd_ratio" in rival else ""
    cpu = f"{1e3 / ours['files_per_cpu_second']:.2f}" if ours else ""
    table.add_row(kind, *rates, times, cpu, ", ".join(f"{name} {count}" for name, count in figures["engines"].items()))
