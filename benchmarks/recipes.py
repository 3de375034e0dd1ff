# SPDX-License-Identifier: Apache-2.0
"""Whole recipes of torchvision and timm: the same transform in torch's ``DataLoader`` and in ``ndd.DataLoader``.

torch_ndd gets the data set's transform through ``from_torchvision`` or timm's arguments through ``from_timm``; the rival runs as its documentation
shows, with two workers. The figure of a recipe is the median of the ratios of its rounds; the bar is 3.
"""

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
from ._loaders import BATCH
from ._photos import write_jpegs
from ._process import Handler, is_installed, limit_threads, running
from ._report import color, ratio

WORKERS = 2
BAR = 3.0
DISCARD = 6
_MEAN, _STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
# Without mstd: at magnitude 10, which it can reach, timm asks Pillow to posterize to 0 bits, an error since Pillow 13.
_TIMM: dict[str, Any] = {"is_training": True, "auto_augment": "rand-m9-inc1", "interpolation": "bicubic", "re_prob": 0.25, "re_mode": "pixel"}
_MIXUP: dict[str, Any] = {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "num_classes": 2}
RECIPES = ("ImageNet training", "ImageNet validation", "RandAugment", "TrivialAugment", "SSD", "timm rand-m9, mixup, erasing")


def transform(recipe: str) -> Any:
    """Return the transform of a recipe for one image; timm's is made of arguments."""
    from torchvision.transforms import v2

    floats = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(_MEAN, _STD)]
    crop = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    known = {
        "ImageNet training": [*crop, *floats],
        "ImageNet validation": [v2.Resize(256, antialias=True), v2.CenterCrop(224), *floats],
        "RandAugment": [*crop, v2.RandAugment(), *floats, v2.RandomErasing(0.1)],
        "TrivialAugment": [*crop, v2.TrivialAugmentWide(), *floats, v2.RandomErasing(0.1)],
        "SSD": [v2.RandomPhotometricDistort(), v2.RandomZoomOut(fill=117), v2.RandomHorizontalFlip(), v2.Resize((300, 300), antialias=True), *floats],
    }
    return v2.Compose(known[recipe])


def ours(recipe: str, folder: str, threads: int) -> Iterator[Any]:
    """Yield batches of torch_ndd without an end."""
    import torch_ndd as ndd
    from torch_ndd.torchvision import from_timm, from_torchvision

    torch.set_num_threads(threads)
    ndd.set_num_threads(threads)
    fn = from_timm(**_TIMM, mixup=_MIXUP) if recipe.startswith("timm") else from_torchvision(transform(recipe))
    loader = ndd.DataLoader(ndd.ImageFolder(folder), fn, batch_size=BATCH, shuffle=True, drop_last=True)
    while True:
        yield from loader


def _posterize_to_black(worker: int = 0) -> None:
    """Let Pillow posterize to 0 bits, which timm does at the largest magnitude and Pillow 13 rejects: the result is black, as before."""
    from PIL import Image, ImageOps

    original = ImageOps.posterize

    def posterize(image: Image.Image, bits: int) -> Image.Image:
        return original(image, bits) if bits else image.point([0] * 256 * len(image.getbands()))

    ImageOps.posterize = posterize


def theirs(recipe: str, folder: str, threads: int) -> Iterator[Any]:
    """Yield batches of torch's loader without an end."""
    from torchvision.datasets import ImageFolder

    torch.set_num_threads(threads)
    mixup: Any = lambda images, labels: (images, labels)  # noqa: E731
    if recipe.startswith("timm"):
        timm: Any = importlib.import_module("timm.data")

        pipeline, mixup = timm.create_transform(**_TIMM), timm.Mixup(**_MIXUP)
    else:
        pipeline = transform(recipe)
    dataset = ImageFolder(folder, pipeline)
    loader: Any = torch.utils.data.DataLoader(
        dataset, BATCH, shuffle=True, drop_last=True, num_workers=WORKERS, persistent_workers=True, worker_init_fn=_posterize_to_black
    )
    while True:
        for images, labels in loader:
            yield mixup(images, labels)


def handler(side: str, recipe: str, folder: str, threads: int) -> Handler:
    """Runs in the competitor's process: answers a number of steps with a round."""
    batches = (ours if side == "torch_ndd" else theirs)(recipe, folder, threads)
    images = next(batches)[0]
    edge = 300 if recipe == "SSD" else 224
    if tuple(images.shape) != (BATCH, 3, edge, edge) or images.dtype != torch.float32:
        raise ValueError(f"delivered {tuple(images.shape)} {images.dtype}")
    return functools.partial(_rounds.measure, batches, DISCARD)


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    limit_threads(options.threads)
    results: dict[str, dict[str, float]] = {}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="torch_ndd_bench_") as folder:
        (Path(folder) / "all").mkdir()
        (Path(folder) / "none").mkdir()
        paths = write_jpegs(Path(folder) / "all", options.images)
        paths[0].rename(Path(folder) / "none" / paths[0].name)
        for recipe in RECIPES:
            rival = "timm" if recipe.startswith("timm") else "torchvision"
            if not is_installed(rival) or (options.only is not None and not options.only.search(recipe)):
                continue
            with ExitStack() as stack:
                sides = {f"{side}: {recipe}": (handler, (side, recipe, folder, options.threads)) for side in ("torch_ndd", rival)}
                peers, lost = stack.enter_context(running(sides))
                rounds = _rounds.alternate(peers, options.steps, options.rounds, lost, settle=True)
            failed |= lost
            if len(rounds) == 2:
                fast, slow = ([measurement.rate for measurement in taken] for taken in rounds.values())
                rates = {"torch_ndd_images_per_second": statistics.median(fast), "rival_images_per_second": statistics.median(slow)}
                results[recipe] = {**rates, "ratio": ratio(fast, slow)}
    table = Table(title=f"recipes, {WORKERS} workers in DataLoader, {options.threads} threads in torch_ndd")
    table.add_column("recipe")
    for heading in ("torch_ndd images/s", "DataLoader images/s", "times"):
        table.add_column(heading, justify="right")
    for recipe, row in results.items():
        rates = (f"{row[key]:.0f}" for key in ("torch_ndd_images_per_second", "rival_images_per_second"))
        table.add_row(recipe, *rates, color(row["ratio"], BAR))
    console.print(table)
    for name, text in failed.items():
        console.print(f"[red]{name} failed:[/]", text.strip(), highlight=False, markup=False)
    return {"batch": BATCH, "results": results, "failed": failed}
