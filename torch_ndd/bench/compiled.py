# SPDX-License-Identifier: Apache-2.0
"""Chains of operators, compiled by ``torch.compile`` and not: one kernel against one pass over memory for each operator."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import torch_ndd as ndd

from ._report import colour, ratio

_MEAN, _STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
_BATCH = 16


def _pointwise(x: Any) -> Any:
    x = ndd.brightness_contrast(ndd.contrast(ndd.brightness(x, brightness=1.2), contrast=0.8), contrast=1.1)
    return ndd.crop_mirror_normalize(x, mean=_MEAN, std=_STD, output_layout="HWC")


def _planes(x: Any) -> Any:
    return ndd.crop_mirror_normalize(ndd.flip(ndd.contrast(ndd.brightness(x, brightness=1.2), contrast=0.8)), mean=_MEAN, std=_STD)


CHAINS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "float32, pointwise: brightness, contrast, brightness_contrast, normalise": ("float32", _pointwise),
    "float32, to planes: brightness, contrast, flip, normalise to CHW": ("float32", _planes),
    "uint8, to planes": ("uint8", _planes),
}


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    torch.set_num_threads(options.threads)
    ndd.set_num_threads(options.threads)
    table = Table(title=f"{_BATCH} images of 224x224x3, milliseconds")
    for heading in ("chain", "uncompiled", "compiled", "compiled is x times as fast"):
        table.add_column(heading, justify="left" if heading == "chain" else "right")
    results = {}
    for name, (dtype, chain) in CHAINS.items():
        if options.only is not None and not options.only.search(name):
            continue
        pixels = torch.randint(0, 256, (_BATCH, 224, 224, 3)).to(getattr(torch, dtype))
        batch = ndd.as_batch(pixels, layout="HWC")
        contestants = (chain, torch.compile(chain, fullgraph=True))
        for contestant in contestants:
            contestant(batch).torch()
        rounds = [[_seconds(contestant, batch, options.milliseconds / 1e3) for contestant in contestants] for _ in range(options.rounds)]
        plain, compiled = ([one[k] for one in rounds] for k in (0, 1))
        results[name] = {
            "uncompiled_ms": statistics.median(plain) * 1e3,
            "compiled_ms": statistics.median(compiled) * 1e3,
            "compiled_ratio": ratio(plain, compiled),
        }
        row = results[name]
        table.add_row(name, f"{row['uncompiled_ms']:.2f}", f"{row['compiled_ms']:.2f}", colour(row["compiled_ratio"], 1.5))
    console.print(table)
    return {"results": results, "failed": {}}


def _seconds(function: Callable[[Any], Any], batch: Any, least: float) -> float:
    """Of one call: the quickest of as many as fit in ``least`` seconds, three at least."""
    taken: list[float] = []
    while len(taken) < 3 or sum(taken) < least:
        begin = time.perf_counter()
        function(batch).torch()
        taken.append(time.perf_counter() - begin)
    return min(taken)
