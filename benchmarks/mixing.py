# SPDX-License-Identifier: Apache-2.0
"""Five data sets of numbers as one, in batches of 64: the cost of mixing itself, because reading numbers takes no time.

The competitors take turns, as in the main job. Grain mixes data sets of its own; torch has no mixing, and draws from a concatenation by weight.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from . import _rounds
from ._loaders import BATCH, SUBJECT
from ._process import Handler, is_installed, limit_threads, running

Batches = Iterator[Any]

WEIGHTS = (8.0, 5.0, 3.0, 2.0, 1.0)
SIZE = 1_000_000  # numbers of each source
_DISCARD = 12


class Numbers(torch.utils.data.Dataset[int]):
    """The numbers from ``first`` on."""

    def __init__(self, first: int) -> None:
        self.first = first

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, k: int) -> int:
        if not 0 <= k < SIZE:
            raise IndexError(k)
        return self.first + k


def mix(sources: int) -> Batches:
    """Yield from a ``readers.Mix``."""
    ndd = importlib.import_module("torch_ndd")
    named = {str(k): Numbers(k * SIZE) for k in range(sources)}
    reader = ndd.readers.Mix(named, weights={str(k): WEIGHTS[k] for k in range(sources)}, random_shuffle=True)
    loader = ndd.DataLoader(reader, lambda values, source: (values, source), batch_size=BATCH)
    while True:
        yield from loader


def one_data_set() -> Batches:
    """Yield from ``ndd.DataLoader`` over one of the data sets: what mixing is compared with."""
    ndd = importlib.import_module("torch_ndd")
    loader = ndd.DataLoader(Numbers(0), lambda values: values, batch_size=BATCH, shuffle=True)
    while True:
        yield from loader


def grain() -> Batches:
    """Yield from Grain's ``MapDataset.mix``, read without processes, as all the others are.

    Without threads, as Grain's documentation recommends for data in memory: half of the CPU time that its 16 threads take. They fill a buffer of 500
    batches, too, from which a whole round would be delivered that was computed before.
    """
    library = importlib.import_module("grain")
    sources = [library.MapDataset.source(Numbers(k * SIZE)).shuffle(seed=1).repeat() for k in range(len(WEIGHTS))]
    mixed = library.MapDataset.mix(sources, WEIGHTS).batch(BATCH)
    while True:
        yield from mixed.to_iter_dataset(library.ReadOptions(num_threads=0, prefetch_buffer_size=0))


def weighted_sampler() -> Batches:
    """Yield from torch's ``DataLoader``, which draws from a concatenation by weight."""
    data = torch.utils.data.ConcatDataset([Numbers(k * SIZE) for k in range(len(WEIGHTS))])
    weights = torch.tensor(WEIGHTS, dtype=torch.float64).repeat_interleave(SIZE)
    sampler = torch.utils.data.WeightedRandomSampler(weights.tolist(), SIZE)
    while True:
        yield from torch.utils.data.DataLoader(data, batch_size=BATCH, sampler=sampler)


# By name: the module that it needs, the stream, its arguments.
COMPETITORS: dict[str, tuple[str, Callable[..., Batches], dict[str, Any]]] = {
    SUBJECT: ("torch_ndd", mix, {"sources": len(WEIGHTS)}),
    "torch_ndd, a mix of one source": ("torch_ndd", mix, {"sources": 1}),
    "torch_ndd, a data set": ("torch_ndd", one_data_set, {}),
    "Grain mix": ("grain", grain, {}),
    "DataLoader, WeightedRandomSampler": ("torch", weighted_sampler, {}),
}


def handler(stream: Callable[..., Batches], arguments: dict[str, Any]) -> Handler:
    """Run in the competitor's process: answer a number of steps with a round."""
    return _rounds.start(stream(**arguments), _DISCARD)


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    limit_threads(options.threads)
    chosen = {name: competitor for name, competitor in COMPETITORS.items() if is_installed(competitor[0])}
    chosen = {name: competitor for name, competitor in chosen.items() if options.only is None or name == SUBJECT or options.only.search(name)}
    processes = {name: (handler, (stream, arguments)) for name, (_, stream, arguments) in chosen.items()}
    with running(processes) as (peers, failed):
        rounds = _rounds.alternate(peers, options.steps, options.rounds, failed, settle=True)
    figures = _rounds.figures(rounds, "samples")
    table = Table(title=f"numbers of {len(WEIGHTS)} sources, batches of {BATCH}, {options.rounds} rounds of {options.steps}")
    table.add_column("competitor")
    for heading in ("samples/s", "torch_ndd is x times", "CPU us a sample"):
        table.add_column(heading, justify="right")
    for name, row in figures.items():
        times = f"{row['torch_ndd_ratio']:.2f}" if "torch_ndd_ratio" in row and name != SUBJECT else ""
        table.add_row(name, f"{row['samples_per_second']:.0f}", times, f"{1e6 / row['samples_per_cpu_second']:.1f}")
    console.print(table)
    for name, text in failed.items():
        console.print(f"[red]{name} failed:[/]", text.strip(), highlight=False, markup=False)
    return {"batch": BATCH, "results": figures, "failed": failed}
