# SPDX-License-Identifier: Apache-2.0
"""Ragged batches by the thousand: device memory is torch's, all of it, and stays flat."""

from __future__ import annotations

import argparse
import random
import statistics
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

import torch_ndd as ndd

IMAGES, LARGEST = 8, 400
# Of the driver's count, which has steps of 2 MB and other processes in it.
BAR_MB = 8.0
_SAMPLES_OF_MEMORY = 50


def ragged_batch(generator: random.Random) -> Any:
    """Images of any size, made on the host."""
    return ndd.batch([np.full((generator.randint(16, LARGEST), generator.randint(16, LARGEST), 3), k, np.uint8) for k in range(IMAGES)], layout="HWC")


def step(batch: Any, generator: random.Random) -> torch.Tensor:
    """A batch through operators whose results are ragged, and at last dense."""
    images = ndd.rotate(batch.gpu(), angle=generator.uniform(-30, 30), fill_value=0.0)
    images = ndd.gaussian_blur(ndd.color_twist(images, hue=generator.uniform(-20, 20)), sigma=1.0)
    images = ndd.flip(ndd.resize(images, resize_shorter=generator.uniform(100.0, 300.0)), horizontal=1)
    return ndd.crop_mirror_normalize(ndd.resize(images, size=[224, 224]), mean=[0.0, 0.0, 0.0], std=[255.0, 255.0, 255.0]).torch()


def measure(batches: int, seed: int = 1) -> dict[str, float]:
    """MB: what torch has reserved and given out, and what the device has in use beyond that, at the start and at the end; and their growth."""
    generator = random.Random(seed)
    rows = []
    every = max(1, batches // _SAMPLES_OF_MEMORY)
    for k in track(range(batches), description="batches", transient=True):
        step(ragged_batch(generator), generator)
        if k % every == every - 1:
            torch.cuda.synchronize()
            free, total = torch.cuda.mem_get_info()
            reserved = torch.cuda.memory_reserved()
            rows.append((torch.cuda.memory_allocated() / 1e6, reserved / 1e6, (total - free - reserved) / 1e6))
    later = rows[len(rows) // 2 :]  # kernels are loaded and the cache of blocks fills at first
    allocated, reserved, others = ([row[k] for row in later] for k in range(3))
    return {
        "allocated": allocated[-1],
        "reserved": reserved[-1],
        "beyond torch": others[-1],
        "growth of allocated": max(allocated) - min(allocated),
        "growth of reserved, a batch": statistics.linear_regression(range(len(reserved)), reserved).slope / every,
        "growth beyond torch": others[-1] - others[0],
    }


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print, return the figures."""
    figures = measure(options.batches)
    failed = {}
    if figures["growth beyond torch"] > BAR_MB:
        failed["torch_ndd memory"] = f"{figures['growth beyond torch']:.1f} MB that torch knows nothing of"
    if figures["growth of reserved, a batch"] * options.batches > figures["reserved"] / 10:
        failed["torch_ndd reserved memory"] = f"it grows by {figures['growth of reserved, a batch'] * 1e3:.2f} kB a batch"
    console.print(f"{options.batches:,} ragged batches, MB: " + ", ".join(f"{name} {value:.3f}" for name, value in figures.items()), highlight=False)
    console.print(torch.cuda.memory_summary(abbreviated=True), highlight=False)
    for text in failed.values():
        console.print(text, style="red")
    return {"results": figures, "summary": torch.cuda.memory_summary(), "failed": failed}
