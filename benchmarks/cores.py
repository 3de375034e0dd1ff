# SPDX-License-Identifier: Apache-2.0
"""How busy the threads are: measured on the cores that there are, computed for machines with more.

Measured here: what a hold of the scheduler's lock takes when all threads want it, and waking a thread (csrc/stress); how long
the chunks of the main job take, and Python's part of a batch. Computed from these, by a discrete-event model
(_cores_model.py): how busy 16, 64 and 192 threads would be. The model is compared with what is measured here first. What it
does not know: memory bandwidth, clocks that fall when all cores work, and how much slower a lock is that is handed on
between more cores, or sockets: its cost is therefore multiplied.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from . import _stress
from ._cores_model import Costs, Load, busy
from ._photos import write_jpegs

BATCH = 256
IN_FLIGHT = 3  # DataLoader(prefetch=2): two batches behind the one that is waited for
THREADS = (16, 64, 192)
FACTORS = (1, 2, 4, 8)
GOAL = 0.9
# Lengths in microseconds of three operations, short enough for the lock to count.
SHORT = ("2,1,0.5", "10,2,0.5", "100,20,5")
STEPS = ("decoders.image_random_crop", "resize", "crop_mirror_normalize")


def main_job(images: int, passes: int) -> tuple[list[list[float]], float, float]:
    """The seconds that each operation takes for a sample, and those that Python takes to read and to issue a batch.

    On one thread, the same samples and crops in each pass: the shortest of a sample's times leaves out what else the machine did.
    """
    import torch_ndd as ndd
    from torch_ndd._core import native

    images -= images % BATCH
    reads: list[float] = []
    issues: list[float] = []
    taken: list[list[list[float]]] = []
    ndd.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="torch_ndd_bench_") as folder:
        files = [str(path) for path in write_jpegs(Path(folder), images)]
        for _ in range(passes):
            ndd.random.set_seed(0)
            before = time.perf_counter_ns()
            begun = time.thread_time()
            for jpegs, _ in ndd.readers.File(files=files, labels=[0] * images).next_epoch(batch_size=BATCH):
                jpegs.evaluate()
                read = time.thread_time()
                scaled_images = ndd.resize(ndd.decoders.image_random_crop(jpegs), size=[224, 224])
                mirror = ndd.random.coin_flip(batch_size=BATCH, probability=0.5)
                output = ndd.crop_mirror_normalize(scaled_images, mirror=mirror, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
                issued = time.thread_time()
                output.torch()
                reads.append(read - begun)
                issues.append(issued - read)
                begun = time.thread_time()
            spans: dict[str, list[float]] = {}
            for line in native.spans().decode().splitlines():
                op, _, begin, end = line.rsplit(" ", 3)
                if int(begin) > before:
                    spans.setdefault(op, []).append((int(end) - int(begin)) * 1e-9)
            taken.append([spans[step] for step in STEPS])
    lengths = [[min(times) for times in zip(*(lengths_of_pass[k] for lengths_of_pass in taken), strict=True)] for k in range(len(STEPS))]
    if any(len(row) != images for row in lengths):
        raise RuntimeError(f"main job: {[len(row) for row in lengths]} chunks of {images} samples; the model wants one for each")
    return lengths, statistics.median(reads), statistics.median(issues)


def lock_costs(stress: Path, threads: int, rounds: int, seconds: float) -> tuple[dict[str, float], Costs]:
    """What csrc/stress measures, medians of rounds; and the costs of the model."""
    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        for count in sorted({1, threads}):
            for links in (1, 3):
                name = f"chunks_per_second, {count} threads, {links} linked"
                taken.setdefault(name, []).append(_stress.figures(stress, "speed", threads=count, links=links, seconds=seconds)["chunks_per_second"])
        for name, value in _stress.figures(stress, "wake", seconds=seconds).items():
            taken.setdefault(name, []).append(value)
    figures = {name: statistics.median(values) for name, values in taken.items()}
    # All threads want the lock all the time, so a visit takes as long as it holds the lock, with the empty work and the clocks.
    visit = 3 / figures[f"chunks_per_second, {threads} threads, 3 linked"]
    return figures, Costs(visit, figures["queue_microseconds"] * 1e-6, figures["wake_microseconds"] * 1e-6)


def compare(stress: Path, threads: int, costs: Costs, seconds: float, rounds: int) -> tuple[Costs, dict[str, dict[str, float]]]:
    """Short chunks, measured and computed. Where something else has the cores as well, the share of the CPU time that the threads had tells more.

    A visit costs more between pieces of work than in a row: the most that the shortest chunks lose by it is the cost in the model from here on.
    """
    rows: dict[str, dict[str, float]] = {}
    for count in sorted({1, threads}, reverse=True):
        for lengths in SHORT:
            taken = [_stress.figures(stress, "speed", threads=count, links=3, seconds=seconds, microseconds=lengths) for _ in range(rounds)]
            figures = {name: statistics.median(figures_of_round[name] for figures_of_round in taken) for name in ("busy", "busy_of_cpu_time")}
            work = [float(length) * 1e-6 for length in lengths.split(",")]
            if not rows:
                costs = replace(costs, visit=max(costs.visit, sum(work) * (1 / figures["busy_of_cpu_time"] - 1)))
            rows[f"{count} x {lengths} us"] = {**figures, "computed": busy(count, Load([[length] for length in work], BATCH, 17), costs)}
    return costs, rows


def scale_costs(costs: Costs, factor: float, issue: float = 0.0, read: float = 0.0) -> Costs:
    """The costs where the lock and waking take longer."""
    return Costs(costs.visit * factor, costs.queue * factor, costs.wake * factor, issue, read)


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, compute, print the tables, return the figures."""
    with tempfile.TemporaryDirectory(prefix="torch_ndd_stress_") as folder:
        stress = _stress.build(Path(folder))
        figures, costs = lock_costs(stress, options.threads, options.rounds, options.seconds_each)
        costs, compared = compare(stress, options.threads, costs, options.seconds_each, options.rounds)
    lengths, read, issue = main_job(options.images, options.rounds)
    table = Table(title="measured here")
    table.add_column("what")
    table.add_column("figure", justify="right")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.1f}")
    for step, taken in zip(STEPS, lengths, strict=True):
        table.add_row(f"{step}, ms a sample: median, 10 % to 90 %", " ".join(f"{1e3 * seconds:.3f}" for seconds in _spread(taken)))
    table.add_row(f"Python, ms a batch of {BATCH}: reading files, calls", f"{1e3 * read:.2f} {1e3 * issue:.2f}")
    table.add_row("a visit of the lock, us (3 operations of a sample)", f"{1e6 * costs.visit:.2f}")
    console.print(table)

    table = Table(title="busy threads, short chunks: is the model right?")
    table.add_column("threads x lengths")
    for heading in ("measured: of the time", "measured: of the threads' CPU time", "computed"):
        table.add_column(heading, justify="right")
    for name, row in compared.items():
        table.add_row(name, *(f"{100 * row[key]:.1f} %" for key in ("busy", "busy_of_cpu_time", "computed")))
    console.print(table)

    load = Load(lengths, BATCH, IN_FLIGHT)
    longer = Load([[1e-3 + 3e-5 * k for k in range(101)], [2e-4], [5e-5]], BATCH, IN_FLIGHT)
    computed: dict[str, dict[str, float]] = {}
    table = Table(title=f"busy threads in the main job, batches of {BATCH}, {IN_FLIGHT} in flight: COMPUTED, not measured")
    table.add_column("what")
    for threads in THREADS:
        table.add_column(f"{threads} threads", justify="right")
    rows = [(f"lock and waking cost {factor} times as much as here", scale_costs(costs, factor), True) for factor in FACTORS]
    rows.append(("the same as here, each operation a visit of its own", scale_costs(costs, 1), False))
    rows.append(("twice, and the calls of a batch on one thread of Python", scale_costs(costs, 2, issue), True))
    rows.append(("twice, the calls and the reading of files on one thread", scale_costs(costs, 2, issue, read), True))
    rows.append(("twice, decoding of 1 to 4 ms, resizing 0.2 and normalizing 0.05", scale_costs(costs, 2), True))
    for name, costs_there, linked in rows:
        work = longer if "1 to 4 ms" in name else load
        computed[name] = {str(threads): busy(threads, work, costs_there, linked) for threads in THREADS}
        shown = [f"[{'green' if share >= GOAL else 'red'}]{100 * share:.1f} %[/]" for share in computed[name].values()]
        table.add_row(name, *shown)
    console.print(table)
    return {
        "batch": BATCH,
        "in_flight": IN_FLIGHT,
        "measured": {**figures, "read_ms": 1e3 * read, "issue_ms": 1e3 * issue, "visit_us": 1e6 * costs.visit},
        "chunk_ms": {step: [1e3 * seconds for seconds in _spread(taken)] for step, taken in zip(STEPS, lengths, strict=True)},
        "compared": compared,
        "computed": computed,
        "results": {},
        "failed": {},
    }


def _spread(values: list[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    return statistics.median(ordered), ordered[len(ordered) // 10], ordered[len(ordered) * 9 // 10]
