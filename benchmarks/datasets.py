# SPDX-License-Identifier: Apache-2.0
"""Python data sets, whose items are quick, beside torch's DataLoader: what a loader takes for an item besides the item's own code.

Each loader is alone in this process. One without worker processes computes on the program's thread, so its time adds to the model's; the other
loaders work behind the program, and their time counts only where the model is quicker.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ._loaders import SUBJECT
from ._process import limit_threads

BATCH = 32
ITEMS = 64 * BATCH


class Items(Dataset[Any]):
    """Items computed by a function of their number."""

    def __init__(self, compute: Callable[[int], Any]) -> None:
        self.compute = compute

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> Any:
        return self.compute(index)


def _pictures() -> Dataset[Any]:
    image, v2 = importlib.import_module("PIL.Image"), importlib.import_module("torchvision.transforms.v2")
    convert = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    pictures = [image.fromarray(np.random.default_rng(k).integers(0, 255, (32, 32, 3), dtype=np.uint8)) for k in range(50)]
    return Items(lambda k: (convert(pictures[k % 50]), k % 10))


def _make_augmented_pictures() -> Dataset[Any]:
    image, v1 = importlib.import_module("PIL.Image"), importlib.import_module("torchvision.transforms")
    jitter, half = v1.ColorJitter(0.2, 0.2, 0.2), [0.5] * 3
    augment = v1.Compose(
        [v1.RandomCrop(96, padding=8), v1.RandomHorizontalFlip(), jitter, v1.ToTensor(), v1.Normalize(half, half), v1.RandomErasing()]
    )
    pictures = [image.fromarray(np.random.default_rng(k).integers(0, 255, (96, 96, 3), dtype=np.uint8)) for k in range(20)]
    return Items(lambda k: (augment(pictures[k % 20]), k % 10))


def _tokens() -> Dataset[Any]:
    text = np.arange(1_000_000, dtype=np.uint16)
    return Items(lambda k: tuple(torch.from_numpy(text[k + shift : k + shift + 1024].astype(np.int64)) for shift in (0, 1)))


def _features() -> Dataset[Any]:
    features = np.zeros((ITEMS, 1000), np.float32)
    return Items(lambda k: {"x": features[k], "y": k, "name": f"item {k}"})


def _hugging_face() -> Dataset[Any]:
    datasets = importlib.import_module("datasets")
    rows = {"input_ids": np.zeros((ITEMS, 256), np.int64).tolist(), "labels": list(range(ITEMS))}
    return datasets.Dataset.from_dict(rows).with_format("torch")


def _make_slow_pictures() -> Dataset[Any]:
    picture = torch.zeros(3, 224, 224)

    def compute(k: int) -> Any:
        sum(range(50_000))  # 1 ms that holds the GIL
        return picture + k, k % 10

    return Items(compute)


def _table() -> Dataset[Any]:
    return TensorDataset(torch.rand(ITEMS, 3, 32, 32), torch.arange(ITEMS))


CASES: dict[str, Callable[[], Dataset[Any]]] = {
    "pictures of 32 x 32 by torchvision": _pictures,
    "pictures of 96 x 96, augmented by torchvision": _make_augmented_pictures,
    "pictures of 224 x 224 as floats, after 1 ms of Python": _make_slow_pictures,
    "windows of 1024 tokens": _tokens,
    "dicts of an array, a number and a text": _features,
    "rows of a TensorDataset": _table,
    "numbers": lambda: Items(int),
    "texts": lambda: Items(lambda k: f"line {k}"),
    "tokens of Hugging Face datasets": _hugging_face,
}


def _measure(loader: Any) -> float:
    """Return the seconds of an epoch."""
    begin = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - begin


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    ndd = importlib.import_module("torch_ndd")
    limit_threads(options.threads)
    ndd.set_num_threads(options.threads)
    workers, processes = f"DataLoader, {options.threads} workers", f"{SUBJECT}, {options.threads} processes"
    results: dict[str, dict[str, float]] = {}
    failed: dict[str, str] = {}
    for name, create in CASES.items():
        if options.only is not None and not options.only.search(name):
            continue
        try:
            data = create()
        except ImportError as error:
            failed[name] = str(error)
            continue
        loaders = {
            SUBJECT: ndd.DataLoader(data, batch_size=BATCH),
            processes: ndd.DataLoader(data, batch_size=BATCH, num_workers=options.threads, persistent_workers=True, multiprocessing_context="fork"),
            "DataLoader": DataLoader(data, BATCH),
            # The processes remain: starting them takes as long as 1,000 items.
            workers: DataLoader(data, BATCH, num_workers=options.threads, persistent_workers=True, multiprocessing_context="fork"),
        }
        seconds: dict[str, list[float]] = {key: [] for key in loaders}
        for turn in range(options.rounds + 1):
            for key, loader in loaders.items():
                taken = _measure(loader)
                if turn:  # the first epoch starts threads and processes
                    seconds[key].append(taken)
        results[name] = {key: statistics.median(taken) / ITEMS * 1e6 for key, taken in seconds.items()}
    table = Table(title=f"microseconds an item, batches of {BATCH}, median of {options.rounds} epochs of {ITEMS} items")
    table.add_column("items")
    for key in (SUBJECT, processes, "DataLoader", workers):
        table.add_column(key, justify="right")
    for name, row in results.items():
        table.add_row(name, *(f"{value:.1f}" for value in row.values()))
    console.print(table)
    for name, reason in failed.items():
        console.print(f"{name}: {reason}", style="red")
    return {"batch": BATCH, "results": results, "failed": failed}
