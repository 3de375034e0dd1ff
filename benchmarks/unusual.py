# SPDX-License-Identifier: Apache-2.0
"""Operators with unusual arguments and inputs, against DALI; their results are compared before they are measured.

A fill for each channel, planes, four channels, other types, odd, tiny and large sizes, ragged batches, videos, values for each sample or frame:
what is easily left to a slow path. DALI counts in the faster of its two modes, as in `ops`.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from . import ops
from ._process import Handler, Peer, PeerError, limit_threads, running
from ._report import color
from .cases.unusual import CASES

_MODULES = {
    ops.SUBJECT: ("torch_ndd", "torch_ndd.types"),
    "DALI": ("nvidia.dali.experimental.dynamic", "nvidia.dali.types"),
}


def handler(competitor: str, threads: int, milliseconds: float) -> Handler:
    """Runs in the competitor's process: answers a name with the seconds a call, by way, and ``("result", name)`` with the samples of the result."""
    seconds = ops.handler(competitor, threads, milliseconds, CASES)

    def answer(request: str | tuple[str, str]) -> Any:
        if isinstance(request, str):
            return seconds(request)
        result = ops.imperative(*_MODULES[competitor], CASES[request[1]], threads)().evaluate()
        return [np.asarray(sample) for sample in result]

    return answer


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table with the slowest first, return the figures."""
    limit_threads(options.threads)
    chosen = [name for name in CASES if options.only is None or options.only.search(name)]
    console.print(f"{len(chosen)} cases, {options.rounds} rounds; milliseconds for the whole batch", highlight=False)
    processes = {name: (handler, (name, options.threads, options.milliseconds)) for name in _MODULES}
    with running(processes) as (peers, failed):
        figures = {}
        if len(peers) == len(_MODULES):
            for name in track(chosen, description="unusual arguments", transient=True, console=console):
                figures[name] = _row(name, peers, options.rounds)
                if not console.is_terminal and len(figures) % 20 == 0:
                    console.print(f"{len(figures)} of {len(chosen)}", highlight=False)
    missing = sorted(name for name, row in figures.items() if "DALI" in row["failed"])
    rows = dict(sorted(((name, row) for name, row in figures.items() if name not in missing), key=lambda item: _times(item[1])))
    _print(console, rows)
    for name, row in figures.items():
        if ops.SUBJECT in row["failed"]:
            failed[f"{ops.SUBJECT} {name}"] = row["failed"][ops.SUBJECT]
        elif row["difference"]:
            failed[f"{ops.SUBJECT} {name}"] = f"not DALI's result: {row['difference']}"
    for name, text in failed.items():
        console.print(f"{name} failed:", text.strip().splitlines()[-1], style="red", highlight=False, markup=False)
    for name in missing:
        console.print(f"DALI has no {name}:", figures[name]["failed"]["DALI"].strip().splitlines()[-1][:150], highlight=False, markup=False)
    return {"results": rows, "failed": failed, "not_in_dali": missing}


def _times(row: dict[str, Any]) -> float:
    return row["torch_ndd_ratio"].get("DALI", 0.0)


def _row(name: str, peers: list[Peer], rounds: int) -> dict[str, Any]:
    results, failed = {}, {}
    for peer in peers:
        try:
            results[peer.name] = peer.ask(("result", name))
        except PeerError as error:
            failed[peer.name] = str(error)
    if failed:
        return {"ms": {}, "way": {}, "torch_ndd_ratio": {}, "failed": failed, "difference": "", "missed": []}
    row = ops.measure(name, peers, rounds)
    row["difference"] = difference(results[ops.SUBJECT], results["DALI"], CASES[name].tolerance, CASES[name].outliers)
    row["missed"] = [f"{times:.2f} times as fast as {peer}" for peer, times in row["torch_ndd_ratio"].items() if times < 1]
    return row


def difference(ours: list[np.ndarray], theirs: list[np.ndarray], tolerance: float, outliers: float) -> str:
    """What is more than may be, or nothing."""
    if len(ours) != len(theirs):
        return f"{len(ours)} samples, not {len(theirs)}"
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"sample {i} is {a.dtype} {a.shape}, not {b.dtype} {b.shape}"
        if math.isinf(tolerance):
            continue
        with np.errstate(invalid="ignore"):  # infinite in both
            away = np.abs(a.astype(np.float64) - b.astype(np.float64))
        wrong = ~((away <= tolerance) | (a == b) | (np.isnan(away) & (a != a) & (b != b)))
        if wrong.mean() > outliers:
            return f"{wrong.mean():.2%} of sample {i} differ by up to {away.max():.4g}"
    return ""


def _print(console: Console, rows: dict[str, dict[str, Any]]) -> None:
    table = Table(title="unusual arguments: milliseconds, and how many times faster torch_ndd is")
    for title in ("operator", "x DALI", "torch_ndd ms", "DALI ms"):
        table.add_column(title, justify="left" if title == "operator" else "right")
    for name, row in rows.items():
        times = _times(row)
        table.add_row(name, color(times) if times else "failed", *(f"{row['ms'][peer]:.3f}" if peer in row["ms"] else "" for peer in _MODULES))
    console.print(table)
    below = sum(_times(row) < 1 for row in rows.values())
    mean = math.exp(sum(math.log(_times(row)) for row in rows.values() if _times(row)) / max(1, len(rows)))
    console.print(f"{len(rows)} rows, {below} below 1, geometric mean {mean:.2f}", highlight=False)
