# SPDX-License-Identifier: Apache-2.0
"""JPEGs of a camera, 4000x3000 pixels, to batches of 224x224: decoding whole, and at the scale that the resize needs."""

from __future__ import annotations

import argparse
import functools
import importlib
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from . import _rounds
from ._loaders import DALI
from ._photos import photographs
from ._process import Handler, is_installed, limit_threads, running
from ._report import color, ratio

BATCH = 8  # as pixels, 288 MB
DISCARD = 2
SCALED, WHOLE = "torch_ndd, at_least", "torch_ndd, whole"
TENSORS, PILLOW = "DataLoader decode_image", "DataLoader PIL"
_BARS = {WHOLE: 2.2, "DALI": 3.0, TENSORS: 3.0, PILLOW: 3.0}


def write_photographs(folder: Path, count: int) -> list[str]:
    """Write JPEGs of 4000x3000 pixels, 4:2:0, quality 90: photographs enlarged to twice their size, side by side, about 4 MB each."""
    from PIL import Image

    originals = [image.resize((1000, 750), Image.Resampling.BICUBIC) for image in photographs()]
    paths = []
    for k in range(count):
        picture = Image.new("RGB", (4000, 3000))
        for place in range(16):
            picture.paste(originals[(3 * k + place) % len(originals)], (place % 4 * 1000, place // 4 * 750))
        path = folder / f"{k}.jpg"
        picture.save(path, quality=90)
        paths.append(str(path))
    return paths


def imperative(files: list[str], threads: int, module: str, **options: Any) -> Iterator[Any]:
    """Yield batches of torch_ndd or of DALI's dynamic mode."""
    ndd = importlib.import_module(module)
    ndd.set_num_threads(threads)
    reader = ndd.readers.File(files=files * 1000, random_shuffle=False)
    while True:
        for jpegs, _ in reader.next_epoch(batch_size=8):
            images = ndd.resize(ndd.decoders.image(jpegs, **options), size=[224, 224])
            yield ndd.crop_mirror_normalize(images, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375]).torch()


class _Files(torch.utils.data.Dataset[torch.Tensor]):
    """Files by torchvision's decoder, or as ``ImageFolder`` opens them: by Pillow, which resizes as well."""

    def __init__(self, files: list[str], pillow: bool) -> None:
        from torchvision.transforms import v2

        self.files, self.pillow = files, pillow
        floats = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
        self.transform = v2.Compose([v2.Resize((224, 224), antialias=True), *([v2.ToImage()] if pillow else []), *floats])

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        from torchvision import io
        from torchvision.datasets.folder import default_loader

        file = self.files[index]
        return self.transform(default_loader(file) if self.pillow else io.decode_image(io.read_file(file)))


def data_loader(files: list[str], threads: int, pillow: bool) -> Iterator[Any]:
    """Yield batches of torch's loader with torchvision's decoder or Pillow's."""
    torch.set_num_threads(threads)
    yield from torch.utils.data.DataLoader(_Files(files * 1000, pillow), BATCH, num_workers=threads)


def handler(name: str, files: list[str], threads: int) -> Handler:
    """Runs in the competitor's process: answers a number of steps with a round."""
    batches = {
        SCALED: lambda: imperative(files, threads, "torch_ndd", at_least=224),
        WHOLE: lambda: imperative(files, threads, "torch_ndd"),
        "DALI": lambda: imperative(files, threads, DALI),
        TENSORS: lambda: data_loader(files, threads, False),
        PILLOW: lambda: data_loader(files, threads, True),
    }[name]()
    images = next(batches)
    if tuple(images.shape) != (BATCH, 3, 224, 224):
        raise ValueError(f"delivered {tuple(images.shape)}")
    return functools.partial(_rounds.measure, batches, DISCARD)


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    limit_threads(options.threads)
    names = [SCALED, WHOLE, *(["DALI"] if is_installed("nvidia.dali") else []), *([TENSORS, PILLOW] if is_installed("torchvision") else [])]
    with tempfile.TemporaryDirectory(prefix="torch_ndd_bench_") as folder, ExitStack() as stack:
        files = write_photographs(Path(folder), options.images)
        size = statistics.mean(Path(path).stat().st_size for path in files) / 1e6
        peers, failed = stack.enter_context(running({name: (handler, (name, files, options.threads)) for name in names}))
        rounds = _rounds.alternate(peers, options.steps, options.rounds, failed, settle=True)
    speeds = {name: [BATCH * len(part.seconds) / sum(part.seconds) for part in taken] for name, taken in rounds.items()}
    work = {name: 1e3 * sum(part.cpu for part in taken) / sum(BATCH * len(part.seconds) for part in taken) for name, taken in rounds.items()}
    results: dict[str, dict[str, float]] = {}
    table = Table(title=f"4000x3000 JPEGs of {size:.1f} MB to 224x224, {options.threads} threads")
    table.add_column("who")
    for heading in ("images/s", "CPU ms an image", "torch_ndd, at_least: times"):
        table.add_column(heading, justify="right")
    for name, rates in speeds.items():
        results[name] = {"images_per_second": statistics.median(rates), "cpu_ms": work[name]}
        if SCALED in speeds:
            results[name]["ratio"] = ratio(speeds[SCALED], rates)
        shown = color(results[name]["ratio"], _BARS[name]) if name in _BARS and SCALED in speeds else ""
        table.add_row(name, f"{results[name]['images_per_second']:.1f}", f"{work[name]:.1f}", shown)
    console.print(table)
    for name, text in failed.items():
        console.print(f"[red]{name} failed:[/]", text.strip(), highlight=False, markup=False)
    return {"batch": BATCH, "results": results, "failed": failed}
