# SPDX-License-Identifier: Apache-2.0
"""The main job: JPEG files -> random area crop -> 224x224 -> random flip -> normalized float32 NCHW, batches of 64.

Every competitor delivers an endless stream of ``(images, labels)``, torch tensors. In a round, the first batches are
thrown away (they were partly computed while other competitors had their turn) and the time of each following one is
taken.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from . import _loaders, _rounds
from ._loaders import BATCH, LIMIT, SUBJECT, Competitor, Job
from ._photos import write_jpegs
from ._process import Handler, is_installed, limit_threads, running
from ._report import color
from .cuda import _loaders as _cuda_loaders

# The longest queue of finished batches is the DataLoader's: 2 workers with 2 batches each.
DISCARD = 6
# Batches that a training has on its GPU at most: the one that it works on and the next.
IN_FLIGHT = 2


def handler(competitor: Competitor, job: Job) -> Handler:
    """Runs in the competitor's process: answers a number of steps with a round."""
    batches = competitor.stream(job, **competitor.arguments)
    images, _ = next(batches)
    if competitor.stream not in (_loaders.decode_only, _cuda_loaders.decode_only):
        _check(images, next(batches)[0])
    deliver = make_delivery(job.device)

    return functools.partial(_rounds.measure, batches, DISCARD, deliver=deliver)


def make_delivery(device: str) -> Callable[[], None]:
    """Return a function that waits after each batch as a training does: on a GPU until the batch before the last one is there."""
    if device == "cpu":
        return lambda: None
    events: deque[torch.cuda.Event] = deque()

    def deliver() -> None:
        events.append(torch.cuda.Event())
        events[-1].record()
        if len(events) >= IN_FLIGHT:
            events.popleft().synchronize()

    return deliver


def _check(images: torch.Tensor, following: torch.Tensor) -> None:
    """Competitors that deliver something else are left out."""
    if tuple(images.shape) != (BATCH, 3, 224, 224) or images.dtype != torch.float32 or not images.is_contiguous():
        raise ValueError(f"delivered {tuple(images.shape)} {images.dtype} with strides {images.stride()}")
    if not 0.5 < float(images.std()) < 2 or torch.equal(images, following):
        raise ValueError(f"delivered images that are not normalized or not random: standard deviation {float(images.std()):.2f}")


def prepare(options: argparse.Namespace, stack: ExitStack) -> tuple[Job, float]:
    """Return the job and the average size of its files in kB; files that are written for it exist until ``stack`` is closed."""
    if options.path is None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="torch_ndd_bench_")))
        paths = write_jpegs(folder, options.images)
    else:
        paths = sorted(path for path in Path(options.path).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if len(paths) < BATCH:
        raise SystemExit(f"the main job needs at least {BATCH} JPEGs; there are {len(paths)} in {options.path}")
    size = sum(path.stat().st_size for path in paths) / len(paths) / 1000
    return Job([str(path) for path in paths], options.threads, options.device), size


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    chosen = {
        name: competitor
        for name, competitor in (_cuda_loaders if options.device == "cuda" else _loaders).competitors(options.threads).items()
        if is_installed(competitor.module) and (options.only is None or options.only.search(name))
    }
    missing = sorted({competitor.module for competitor in _cuda_loaders.competitors(options.threads).values() if not is_installed(competitor.module)})
    if options.device == "cuda" and missing:
        console.print("not installed, so not compared with:", ", ".join(missing), style="red")
    limit_threads(options.threads)
    with ExitStack() as stack:
        job, size = prepare(options, stack)
        what = f"{len(job.files)} JPEGs of {size:.1f} kB on average, batch {BATCH}"
        console.print(f"{what}, {options.rounds} rounds of {options.steps} batches", highlight=False)
        processes = {name: (handler, (competitor, job)) for name, competitor in chosen.items()}
        peers, failed = stack.enter_context(running(processes))
        rounds = _rounds.alternate(peers, options.steps, options.rounds, failed, settle=True)
    figures = _rounds.figures(rounds, "images")
    _print(console, figures, failed)
    return {"files": len(job.files), "average_kb": size, "batch": BATCH, "results": figures, "failed": failed, "missing": missing}


def _print(console: Console, figures: dict[str, dict[str, float]], failed: dict[str, str]) -> None:
    table = Table(title="main job: JPEG files to normalized training batches")
    table.add_column("competitor")
    for heading in ("images/s", "torch_ndd is x times", "batch p50 ms", "p99 ms", "images per CPU second"):
        table.add_column(heading, justify="right")
    for name, row in figures.items():
        times = color(row["torch_ndd_ratio"], 0.85 if name == LIMIT else 1.0) if "torch_ndd_ratio" in row and name != SUBJECT else ""
        table.add_row(
            name,
            f"{row['images_per_second']:.0f}",
            times,
            f"{row['batch_ms_p50']:.1f}",
            f"{row['batch_ms_p99']:.1f}",
            f"{row['images_per_cpu_second']:.0f}",
        )
    console.print(table)
    for family in ("DALI", "DataLoader"):
        best = max(
            (name for name in figures if name.startswith(family)),
            key=lambda name: figures[name]["images_per_second"],
            default=None,
        )
        if best is not None and SUBJECT in figures:
            console.print(f"against the best of {family} ({best}): {figures[best]['torch_ndd_ratio']:.2f} times")
    for name, text in failed.items():
        console.print(f"[red]{name} failed:[/]", text.strip(), highlight=False, markup=False)
