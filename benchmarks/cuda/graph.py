# SPDX-License-Identifier: Apache-2.0
"""A chain of augmentations as a CUDA graph: what a replay takes, on the device and of the host, beside the calls themselves."""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import torch_ndd as ndd

from .._report import color
from . import _timing

SIZES = ((16, 256), (64, 256), (256, 512))  # images, and their height and width


def chain(images: Any) -> Any:
    """Resize, flip, color and normalization, with a value a sample where there is one."""
    count = images.batch_size
    images = ndd.resize(images, size=[224, 224])
    images = ndd.flip(images, horizontal=ndd.as_batch(torch.arange(count, dtype=torch.int32) % 2))
    images = ndd.color_twist(images, brightness=ndd.as_batch(torch.linspace(0.8, 1.2, count)), hue=20.0, saturation=1.2)
    return ndd.crop_mirror_normalize(images, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])


def capture_chain(images: torch.Tensor) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """The chain on these images as a graph and the memory of its result: put other images into ``images`` and replay."""
    batch = ndd.as_batch(images, layout="HWC")
    chain(batch).torch()  # what is made at a first call is made before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = chain(batch).torch()
    return graph, result


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    results: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for count, side in SIZES:
        name = f"{count} images of {side}x{side}"
        try:
            results[name] = _figures(count, side, options.rounds)
        except Exception as error:
            failed[f"torch_ndd {name}"] = f"{type(error).__name__}: {error}"
    table = Table(title="resize, flip, color_twist, crop_mirror_normalize: as calls and as a CUDA graph")
    for heading in ("batch", "calls ms", "graph ms", "x", "calls: host us", "replay: host us", "x", "equal"):
        table.add_column(heading, justify="left" if heading == "batch" else "right")
    for name, row in results.items():
        table.add_row(
            name,
            f"{row['calls']['seconds'] * 1e3:.3f}",
            f"{row['graph']['seconds'] * 1e3:.3f}",
            color(row["calls"]["seconds"] / row["graph"]["seconds"]),
            f"{row['calls']['host_seconds'] * 1e6:.1f}",
            f"{row['graph']['host_seconds'] * 1e6:.1f}",
            color(row["calls"]["host_seconds"] / row["graph"]["host_seconds"]),
            "yes" if row["equal"] else "[red]no[/]",
        )
        if not row["equal"]:
            failed[f"torch_ndd {name}"] = "the replay's result is not that of the calls"
    console.print(table)
    for name, text in failed.items():
        console.print(f"{name} failed:", text, style="red", highlight=False, markup=False)
    return {"results": results, "failed": failed}


def _figures(count: int, side: int, rounds: int) -> dict[str, Any]:
    images = torch.randint(0, 256, (count, side, side, 3), dtype=torch.uint8, device="cuda")
    graph, result = capture_chain(images)
    images.random_(0, 256)
    graph.replay()
    equal = torch.equal(result, chain(ndd.as_batch(images, layout="HWC")).torch())
    figures: dict[str, Any] = {"equal": equal}
    with torch.cuda.stream(torch.cuda.Stream()):
        ndd.set_current_stream(ndd.stream(stream=torch.cuda.current_stream()))
        batch = ndd.as_batch(images, layout="HWC")
        for name, call in {"calls": lambda: chain(batch), "graph": graph.replay}.items():
            figures[name] = {
                "seconds": statistics.median(_timing.device_seconds(call) for _ in range(rounds)),
                "host_seconds": statistics.median(_timing.host_seconds(call, 20) for _ in range(rounds)),
            }
        ndd.set_current_stream(None)
    return figures
