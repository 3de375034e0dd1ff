# SPDX-License-Identifier: Apache-2.0
"""The main job at each load of the JPEG engine: images a second, which decoders had them, and CPU time; beside DALI's pipeline.

``hw_decoder_load`` is the share of a batch that the engine gets. Without it, torch_ndd divides the images between the engine and the CPU threads as
they become free.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from .. import _report, _rounds
from .._loaders import SUBJECT, Batches, Job, _load_module, pipeline
from .._process import Handler, PeerError, is_installed, limit_threads, running
from ..main_job import DISCARD, make_delivery, prepare

DEFAULT = "default"  # the library's own division
LOADS = {SUBJECT: (DEFAULT, 0.0, 0.11, 0.22, 0.33, 0.44, 0.55, 0.66, 1.0), "DALI pipeline": (DEFAULT, 0.12, 0.22, 0.33, 0.65)}
_MODULES = {SUBJECT: "torch_ndd", "DALI pipeline": "nvidia.dali"}


def stream_batches(job: Job, load: float | None) -> Batches:
    """Yield the batches of the fused loop with a load of the engine.

    That of the main job has literals only, which DALI's capture mode needs.
    """
    ndd = _load_module("torch_ndd", job.threads)
    arguments = {"device": "gpu" if job.device == "cuda" else "cpu"} | ({} if load is None else {"hw_decoder_load": load})
    reader = ndd.readers.File(**job.epoch, random_shuffle=True)
    while True:
        for jpegs, classes in reader.next_epoch(batch_size=64):
            images = ndd.decoders.image_random_crop(jpegs, **arguments)
            images = ndd.resize(images, size=[224, 224])
            mirror = ndd.random.coin_flip(batch_size=64, probability=0.5)
            images = ndd.crop_mirror_normalize(images, mirror=mirror, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
            yield images.torch(), classes.torch()


_STREAMS: dict[str, Callable[[Job, float | None], Batches]] = {
    SUBJECT: stream_batches,
    "DALI pipeline": lambda job, load: pipeline(job, fused=True, load=load),
}


def handler(name: str, job: Job) -> Handler:
    """Run in the competitor's process: answer a load and a number of steps with a round and the images of each engine."""
    return partial(_measure, name, job)


def _measure(name: str, job: Job, request: tuple[float | str, int]) -> tuple[_rounds.Round, dict[str, int]]:
    load, steps = request
    with closing(_STREAMS[name](job, None if load == DEFAULT else float(load))) as batches:  # type: ignore[type-var]
        before = _count_engines(name)
        measured = _rounds.measure(batches, DISCARD, steps, make_delivery(job.device))
        after = _count_engines(name)
    return measured, {engine: count - before[engine] for engine, count in after.items() if count != before[engine]}


def _count_engines(name: str) -> dict[str, int]:
    """Return the images that each engine has decoded; DALI does not say it."""
    if name != SUBJECT:
        return {}
    import torch_ndd as ndd

    return ndd.decoders.engine_counts()


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    names = [name for name in LOADS if is_installed(_MODULES[name]) and (options.only is None or options.only.search(name))]
    missing = [module for name, module in _MODULES.items() if not is_installed(module)]
    limit_threads(options.threads)
    results: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        job, size = prepare(options, stack)
        peers, failed = stack.enter_context(running({name: (handler, (name, job)) for name in names}))
        requests = [(peer, load) for peer in peers for load in LOADS[peer.name]]
        rounds: dict[str, list[_rounds.Round]] = {}
        engines: dict[str, dict[str, int]] = {}
        for turn in range(options.rounds):
            for peer, load in requests[:: 1 if turn % 2 == 0 else -1]:  # forward and backward: a drift falls on all
                row = f"{peer.name}, load {load}"
                try:
                    measured, counts = peer.ask((load, options.steps))
                except PeerError as error:
                    failed[row] = str(error)
                    continue
                rounds.setdefault(row, []).append(measured)
                engines[row] = {engine: counts.get(engine, 0) + engines.get(row, {}).get(engine, 0) for engine in counts}
    for row, figures in _rounds.figures(rounds, "images").items():
        results[row] = {**figures, "engines": engines[row]}
    _print(console, results, failed)
    return {"files": len(job.files), "average_kb": size, "results": results, "failed": failed, "missing": missing}


def _print(console: Console, results: dict[str, dict[str, Any]], failed: dict[str, str]) -> None:
    table = Table(title="main job by the load of the JPEG engine")
    for heading in ("library and load", "images/s", "p50 ms", "p99 ms", "images per CPU second", "decoded by"):
        table.add_column(heading, justify="left" if heading in ("library and load", "decoded by") else "right")
    for name, row in results.items():
        table.add_row(name, *_report.format_load(row))
    console.print(table)
    for name, text in failed.items():
        console.print(f"[red]{name} failed:[/]", text.strip(), highlight=False, markup=False)
