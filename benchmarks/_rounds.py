# SPDX-License-Identifier: Apache-2.0
"""Streams of batches that are measured in turn: a round of one competitor, whose turn it is, and the figures of all rounds."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.progress import track

from ._loaders import BATCH, SUBJECT
from ._process import Handler, Peer, PeerError, cpu_seconds
from ._report import percentile, ratio

# A round of a fast reader would be 30 ms, of which the system may give another process 10 at a time.
_LEAST_SECONDS = 0.25


@dataclass
class Round:
    """One turn of one competitor: the seconds of each batch, and of the CPU for all."""

    seconds: list[float]
    cpu: float

    @property
    def rate(self) -> float:
        """Samples per second."""
        return BATCH * len(self.seconds) / sum(self.seconds)


def measure(batches: Iterator[Any], discard: int, steps: int, deliver: Callable[[], None] = lambda: None) -> Round:
    """Time `steps` batches, or more that take a quarter of a second, after those that may have been prepared before."""
    for _ in range(discard):
        next(batches)
        deliver()
    cpu, seconds = cpu_seconds(), []
    begin = last = time.perf_counter()
    while len(seconds) < steps or last - begin < _LEAST_SECONDS:
        next(batches)
        deliver()
        now = time.perf_counter()
        seconds.append(now - last)
        last = now
    return Round(seconds, cpu_seconds() - cpu)


def start(batches: Iterator[Any], discard: int) -> Handler:
    """Run one batch, so a competitor is ready, and return the function that runs a round of a number of steps."""
    run_round = functools.partial(measure, batches, discard)
    run_round(1)
    return run_round


def alternate(peers: list[Peer], request: Any, rounds: int, failed: dict[str, str], settle: bool = False) -> dict[str, list[Any]]:
    """The answers of all peers that have answered in each round; each round begins with another peer.

    Who fails is not asked again; `failed` gets the text. With `settle` a peer has computed what it fetches ahead before the next one is asked.
    """
    answers: dict[str, list[Any]] = {peer.name: [] for peer in peers}
    if settle:
        for peer in peers:
            peer.settle()
    for turn in track(range(rounds), description="rounds", transient=True, disable=not settle):
        shift = turn % max(len(peers), 1)
        for peer in peers[shift:] + peers[:shift]:
            if peer.name in failed:
                continue
            try:
                answers[peer.name].append(peer.ask(request))
            except PeerError as error:
                failed[peer.name] = str(error)
                continue
            if settle:
                peer.settle()
    return {name: taken for name, taken in answers.items() if name not in failed}


def figures(rounds: dict[str, list[Round]], unit: str) -> dict[str, dict[str, float]]:
    """The figures of each competitor, with `unit` (images, samples) in their names."""
    subject = rounds.get(SUBJECT)
    found = {}
    for name, taken in rounds.items():
        seconds = [second for measurement in taken for second in measurement.seconds]
        found[name] = {
            f"{unit}_per_second": statistics.median(measurement.rate for measurement in taken),
            "batch_ms_p50": percentile(seconds, 50) * 1e3,
            "batch_ms_p99": percentile(seconds, 99) * 1e3,
            f"{unit}_per_cpu_second": BATCH * len(seconds) / max(sum(measurement.cpu for measurement in taken), 1e-9),
        }
        if subject is not None:
            found[name]["torch_ndd_ratio"] = ratio([measurement.rate for measurement in subject], [measurement.rate for measurement in taken])
    return found
