# SPDX-License-Identifier: Apache-2.0
"""Images and sounds as transformers, timm and torchvision prepare them: both libraries in turn in one process, beside promised ratios."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import torch_ndd as ndd

from ._report import color
from .cases.tokens import Pair, all_pairs


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table with what misses its bar first, return the figures."""
    torch.set_num_threads(options.threads)
    ndd.set_num_threads(options.threads)
    results: dict[str, dict[str, float]] = {}
    failed: dict[str, str] = {}
    for make in all_pairs():
        try:
            pairs = make()
        except Exception as error:  # the table goes on without it
            failed[f"torch_ndd or its rival: {getattr(make, '__name__', 'a row')}"] = repr(error)
            continue
        for pair in pairs:
            if options.only is None or options.only.search(pair.name):
                results[pair.name] = _measure(pair, options.rounds)
    table = Table(title=f"items a second; {options.threads} threads; the best of {options.rounds} rounds in turn; the bar is that of CPU time")
    for heading in ("", "wall", "of the rival", "CPU", "of the rival", "x wall", "x CPU", "bar"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, row in sorted(results.items(), key=lambda item: item[1]["cpu_ratio"] / item[1]["bar"]):
        rates = [f"{row[key]:,.0f}" for key in ("wall", "rival_wall", "cpu", "rival_cpu")]
        table.add_row(name, *rates, f"{row['wall_ratio']:.2f}", color(row["cpu_ratio"], row["bar"]), f"{row['bar']:g}")
    console.print(table)
    return {"results": results, "failed": failed}


def _measure(pair: Pair, rounds: int) -> dict[str, float]:
    pair.ours()
    pair.theirs()
    times = [(_seconds(pair.ours), _seconds(pair.theirs)) for _ in range(rounds)]
    (wall, cpu), (rival_wall, rival_cpu) = ([min(turn[who][clock] for turn in times) for clock in (0, 1)] for who in (0, 1))
    rates = {"wall": pair.items / wall, "rival_wall": pair.items / rival_wall, "cpu": pair.items / cpu, "rival_cpu": pair.items / rival_cpu}
    return {**rates, "wall_ratio": rival_wall / wall, "cpu_ratio": rival_cpu / cpu, "bar": pair.bar}


def _seconds(function: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds that a call takes, of the wall and of the CPU."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, max(time.process_time() - cpu, 1e-6)
