# SPDX-License-Identifier: Apache-2.0
"""A chain of augmentations as a CUDA graph: what a replay takes, on the device and of the host, beside the calls themselves.

And what follows a decoder in a training job (a resized window, mirrored and normalized to planes of float16) as two operators, as one, compiled, and
as a CUDA graph.
"""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Callable
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


_CONSTANTS: dict[str, Any] = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375], "dtype": torch.float16}


def make_window(count: int) -> dict[str, Any]:
    """Windows and mirrors that differ between the samples."""
    positions = ndd.as_batch(torch.linspace(0.0, 1.0, count))
    return {
        "resize_shorter": 256,
        "crop": [224, 224],
        **{f"crop_pos_{axis}": positions for axis in "xy"},
        "mirror": ndd.as_batch(torch.arange(count, dtype=torch.int32) % 2),
    }


def normalize_after(images: Any, window: dict[str, Any]) -> Any:
    """The job as two operators."""
    return ndd.crop_mirror_normalize(ndd.resize_crop_mirror(images, **window), **_CONSTANTS)


def normalize_within(images: Any, window: dict[str, Any]) -> Any:
    """The job as one operator: a single launch."""
    return ndd.resize_crop_mirror(images, **window, **_CONSTANTS)


def capture_chain(images: torch.Tensor, chain: Callable[[Any], Any] = chain) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """A chain on these images as a graph and the memory of its result: put other images into ``images`` and replay."""
    batch = ndd.as_batch(images, layout="HWC")
    chain(batch).torch()  # what is created at a first call is created before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = chain(batch).torch()
    return graph, result


def make_job_calls(images: torch.Tensor) -> dict[str, _timing.Call]:
    """The ways of the job, all with the same result."""
    batch, window = ndd.as_batch(images, layout="HWC"), make_window(len(images))
    within = functools.partial(normalize_within, window=window)
    return {
        "two operators": functools.partial(normalize_after, batch, window),
        "one operator": functools.partial(within, batch),
        "compiled": functools.partial(torch.compile(within, fullgraph=True), batch),
    }


def _measure_sizes(measure: Callable[[int, int, int], dict[str, Any]], label: str, rounds: int, failed: dict[str, str]) -> dict[str, Any]:
    """Return the figures of each size; errors are added to ``failed``."""
    results: dict[str, Any] = {}
    for count, side in SIZES:
        name = f"{count} images of {side}x{side}"
        try:
            results[name] = measure(count, side, rounds)
        except Exception as error:
            failed[f"{label} {name}"] = f"{type(error).__name__}: {error}"
    return results


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    failed: dict[str, str] = {}
    results = _measure_sizes(_figures, "torch_ndd", options.rounds, failed)
    jobs = _measure_sizes(_job_figures, "torch_ndd job,", options.rounds, failed)
    _print_jobs(console, jobs, failed)
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
    return {"results": results, "jobs": jobs, "failed": failed}


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


def _job_figures(count: int, side: int, rounds: int) -> dict[str, Any]:
    images = torch.randint(0, 256, (count, side, side, 3), dtype=torch.uint8, device="cuda")
    calls = make_job_calls(images)
    expected = calls["two operators"]().torch()
    equal = {name: torch.equal(call().torch(), expected) for name, call in calls.items()}
    window = make_window(count)
    graph, result = capture_chain(images, lambda batch: normalize_within(batch, window))
    graph.replay()
    equal["graph"] = torch.equal(result, expected)
    figures: dict[str, Any] = {"equal": equal}
    with torch.cuda.stream(torch.cuda.Stream()):
        ndd.set_current_stream(ndd.stream(stream=torch.cuda.current_stream()))
        for name, call in {**make_job_calls(images), "graph": graph.replay}.items():
            figures[name] = {
                "seconds": statistics.median(_timing.device_seconds(call) for _ in range(rounds)),
                "host_seconds": statistics.median(_timing.host_seconds(call, 20) for _ in range(rounds)),
                "launches": _timing.launches(call).count,
            }
        ndd.set_current_stream(None)
    return figures


def _print_jobs(console: Console, results: dict[str, Any], failed: dict[str, str]) -> None:
    table = Table(title="resize, crop, mirror, normalize to CHW float16")
    for heading in ("batch", "as", "ms", "host us", "launches", "x two operators", "equal"):
        table.add_column(heading, justify="left" if heading in ("batch", "as") else "right")
    for name, row in results.items():
        for way, equal in row["equal"].items():
            figures = row[way]
            table.add_row(
                name,
                way,
                f"{figures['seconds'] * 1e3:.3f}",
                f"{figures['host_seconds'] * 1e6:.1f}",
                f"{figures['launches']:.0f}",
                color(row["two operators"]["seconds"] / figures["seconds"]),
                "yes" if equal else "[red]no[/]",
            )
            if not equal:
                failed[f"torch_ndd job, {name}, {way}"] = "the result is not that of the two operators"
    console.print(table)
