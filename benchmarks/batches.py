# SPDX-License-Identifier: Apache-2.0
"""Batches by cost: how full they are, how equal the ranks of a step, and how fast they are planned; beside the samplers of torch, Lhotse and Grain.

Only numbers are planned, no data is read. Rates are samples per CPU second of one thread, the best of three.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import torch_ndd as ndd
from torch_ndd.batches import Balanced, Bucketed, Packed

from ._costs import BUDGETS, sample_costs
from ._photos import write_jpegs
from ._process import limit_threads

RANKS = 8
_ROUNDS = 3
_SLOW = 8  # of so many samples one is given to competitors that take seconds

Units = list[np.ndarray]


def _best(plan: Callable[[], Any], samples: int) -> tuple[Any, float]:
    """Return what is planned, and samples per CPU second."""
    seconds, result = float("inf"), None
    for _ in range(_ROUNDS):
        begin = time.process_time()
        result = plan()
        seconds = min(seconds, time.process_time() - begin)
    return result, samples / max(seconds, 1e-9)


def figures(units: Units, costs: np.ndarray, budget: int, padded: bool, ranks: int = RANKS) -> dict[str, float]:
    """Return the figures of units of any planner, which the ranks take in turn."""
    sums = np.array([costs[unit].sum() for unit in units], float)
    squares = np.array([(costs[unit].astype(float) ** 2).sum() for unit in units])
    used = np.array([costs[unit].max() * len(unit) for unit in units], float) if padded else np.full(len(units), float(budget))
    whole = len(units) // ranks * ranks
    loads, attention = sums[:whole].reshape(-1, ranks), squares[:whole].reshape(-1, ranks)
    return {
        "waste": 1 - sums.sum() / used.sum(),
        "load": float((loads.max(1) / loads.mean(1)).mean()),
        "attention": float(attention.max(1).sum() / attention.mean(1).sum()),
    }


def _plan(batches: Any, costs: np.ndarray) -> Units:
    return list(batches.preview(costs))


def _torch_sampler(costs: np.ndarray, budget: int) -> Units:
    """As many samples as fill the budget on average, in random order, padded."""
    order = torch.utils.data.RandomSampler(range(len(costs)), generator=torch.Generator().manual_seed(0))
    count = max(1, int(budget // costs.mean()))
    return [np.array(batch) for batch in torch.utils.data.BatchSampler(order, count, drop_last=False)]


def _lhotse(costs: np.ndarray, budget: int) -> Callable[[], Units]:
    audio, cut, lhotse = (importlib.import_module(name) for name in ("lhotse.audio", "lhotse.cut", "lhotse"))
    sampling = importlib.import_module("lhotse.dataset.sampling")

    def make_cut(k: int, seconds: float) -> Any:
        recording = audio.Recording(str(k), [], 16000, int(16000 * seconds), seconds, channel_ids=[0])
        return cut.MonoCut(id=str(k), start=0, duration=seconds, channel=0, recording=recording)

    cuts = lhotse.CutSet.from_cuts(make_cut(k, cost / 100) for k, cost in enumerate(costs.tolist()))
    arguments = {"max_duration": budget / 100, "num_buckets": 30, "buffer_size": 10_000, "shuffle": True, "rank": 0, "world_size": 1}

    def plan() -> Units:
        return [np.array([int(entry.id) for entry in batch]) for batch in sampling.DynamicBucketingSampler(cuts, **arguments)]

    return plan


def _grain(kind: str, costs: np.ndarray, budget: int) -> Units:
    grain, experimental = importlib.import_module("grain"), importlib.import_module("grain.experimental")
    source = grain.MapDataset.source(costs.tolist()).map_with_index(lambda k, cost: {"k": np.full(cost, k)}).to_iter_dataset()
    found = []
    for packed in getattr(experimental, kind)(source, length_struct={"k": budget}, num_packing_bins=32):
        values, segments = (packed["k"], packed["k_segment_ids"]) if isinstance(packed, dict) else (packed[0]["k"], packed[1]["k"])
        found.append(np.unique(values[segments > 0]))
    return found


def _competitors(kind: str, budget: int) -> Iterator[tuple[str, Callable[[np.ndarray], Callable[[], Units]], bool, int]]:
    """Yield the name of each, what prepares its function for some costs, whether its batches are padded, and what part of the samples it gets."""
    for name, batches, padded in (
        ("Packed, first fit", Packed(budget), False),
        ("Packed, first fit, shuffled", Packed(budget, order="shuffled"), False),
        ("Packed, best fit", Packed(budget, fit="best"), False),
        ("Bucketed", Bucketed(budget), True),
    ):
        yield f"torch_ndd {name}", partial(partial, _plan, batches), padded, 1
    yield "torch BatchSampler", lambda costs: partial(_torch_sampler, costs, budget), True, 1
    if kind == "speech" and importlib.util.find_spec("lhotse") is not None:
        yield "Lhotse DynamicBucketingSampler", partial(_lhotse, budget=budget), True, 1
    if kind == "text" and importlib.util.find_spec("grain") is not None:
        for packer in ("FirstFitPackIterDataset", "BestFitPackIterDataset"):
            yield f"Grain {packer}", lambda costs, packer=packer: partial(_grain, packer, costs, budget), False, _SLOW


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the tables, return the figures."""
    limit_threads(options.threads)
    results: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for kind, budget in BUDGETS.items():
        table = Table(title=f"{kind}: {options.samples} samples, budget {budget}, {RANKS} ranks")
        for heading in ("planner", "waste %", "load", "attention", "samples per CPU second"):
            table.add_column(heading, justify="left" if heading == "planner" else "right")
        for name, prepare, padded, part in _competitors(kind, budget):
            if options.only is not None and not options.only.search(name):
                continue
            costs = sample_costs(kind, options.samples // part)
            try:
                units, rate = _best(prepare(costs), len(costs))
                found = {**figures(units, costs, budget, padded), "samples_per_second": rate}
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"
                continue
            results[f"{kind}: {name}"] = found
            table.add_row(name, f"{100 * found['waste']:.2f}", f"{found['load']:.4f}", f"{found['attention']:.3f}", f"{rate:,.0f}")
        steps = Balanced(RANKS * 32).preview(sample_costs(kind, options.samples), ranks=RANKS).figures
        table.add_row("torch_ndd Balanced, 32 a rank", "", f"{steps.load:.4f}", f"{steps.attention:.3f}", "")
        results[f"{kind}: torch_ndd Balanced"] = {"load": steps.load, "attention": steps.attention}
        console.print(table)
    headers = results["headers"] = _read_headers(options.images)
    rates = f"{headers['per_second']:,.0f} headers per CPU second, {headers['per_second_of_wall']:,.0f} per second"
    console.print(f'"pixels" of JPEG files, with the reads: {rates}')
    for name, error in failed.items():
        console.print(f"{name}: {error}", style="red")
    return {"results": results, "failed": failed}


def _read_headers(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="torch_ndd_bench_") as folder:
        paths: Iterable[Path] = write_jpegs(Path(folder), count)
        reader = ndd.readers.File(files=[str(path) for path in paths] * 16)

        def compute() -> None:
            path = Path(folder, "costs.npy")
            path.unlink(missing_ok=True)
            begin = time.perf_counter()
            ndd.batches.measure(reader, "pixels", path)
            walls.append(time.perf_counter() - begin)

        walls: list[float] = []
        rate = _best(compute, count * 16)[1]
        return {"per_second": rate, "per_second_of_wall": count * 16 / min(walls)}
