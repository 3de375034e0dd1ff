# SPDX-License-Identifier: Apache-2.0
"""Every operator on 16 VGA photographs, against DALI, OpenCV, NumPy and torchvision v2 where they have it.

All read the same pixels in the same order in memory (uint8, HWC), and each makes new, contiguous output. Of the ways in
which a competitor can be run the faster one counts: DALI queued or in the calling thread; OpenCV with its own threads
or one image to each thread of a pool; NumPy in one thread or a pool; torchvision on the whole batch or one image to each thread of a pool.

With ``--cold`` torch_ndd and DALI alone make single calls, and before each of them other data is in the caches of all cores, as after the step of a
model. In the rows of calls alone it is one call, without its result.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import math
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from . import _rounds
from ._cold import Caches
from ._process import Handler, Peer, is_installed, limit_threads, running
from ._report import color, ratio
from .cases import CASES, DATA, Case

SUBJECT = "torch_ndd"
# So many calls are issued before their results are waited for, when the call alone is timed.
CALLS = 100

# With cold caches: what each row should reach against DALI, decoding apart, and the geometric mean of all; calls of a measurement.
COLD_BAR, COLD_MEAN = 1.3, 5.5
COLD_CALLS = 5

# Runs a case once and returns the seconds that a call took.
Way = Callable[[], float]


# --- The competitors: each lists the ways in which it can run a case ----------------------------------------


def torch_ndd(case: Case, threads: int, calls: int = CALLS) -> dict[str, Way]:
    """The plain imperative call; the clock stops when the result is there."""
    return {"plain": _imperative("torch_ndd", "torch_ndd.types", case, threads, calls)}


def dali(case: Case, threads: int, calls: int = CALLS) -> dict[str, Way]:
    """The same program under DALI's dynamic mode."""
    queued = _imperative("nvidia.dali.experimental.dynamic", "nvidia.dali.types", case, threads, calls)
    mode = importlib.import_module("nvidia.dali.experimental.dynamic").EvalMode

    def in_calling_thread() -> float:
        with mode.sync_cpu:
            return queued()

    return {"queued": queued} if case.call_only else {"queued": queued, "in the calling thread": in_calling_thread}


def opencv(case: Case, threads: int) -> dict[str, Way]:
    """OpenCV's function, image by image."""
    cv2, function = importlib.import_module("cv2"), case.cv2
    if function is None:
        return {}
    samples = list(DATA[case.data]())
    pool = ThreadPoolExecutor(threads)

    def own_threads() -> float:
        cv2.setNumThreads(threads)
        return _seconds(lambda: [function(cv2, sample) for sample in samples])

    def use_pool() -> float:
        cv2.setNumThreads(1)
        return _seconds(lambda: list(pool.map(lambda sample: function(cv2, sample), samples)))

    return {"own threads": own_threads, "pool": use_pool}


def numpy(case: Case, threads: int) -> dict[str, Way]:
    """NumPy's function, image by image."""
    function = case.np
    if function is None:
        return {}
    samples = list(DATA[case.data]())
    pool = ThreadPoolExecutor(threads)
    return {
        "one thread": lambda: _seconds(lambda: [function(sample) for sample in samples]),
        "pool": lambda: _seconds(lambda: list(pool.map(function, samples))),
    }


def torchvision(case: Case, threads: int) -> dict[str, Way]:
    """torchvision's function on (N, C, H, W), channels last in memory."""
    torch, v2, function = (
        importlib.import_module("torch"),
        importlib.import_module("torchvision.transforms.v2"),
        case.tv,
    )
    if function is None:
        return {}
    samples = torch.from_numpy(DATA[case.data]())
    batch = samples.permute(0, 3, 1, 2) if samples.ndim == 4 else samples
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def whole() -> float:
        torch.set_num_threads(threads)
        return _seconds(lambda: function(v2, batch))

    def use_pool() -> float:
        torch.set_num_threads(1)
        return _seconds(lambda: list(pool.map(lambda sample: function(v2, sample), batch.split(1))))

    return {"batch": whole, "pool": use_pool}


# By name: the ways to run a case, and the module that has to be installed.
COMPETITORS: dict[str, tuple[Callable[[Case, int], dict[str, Way]], str]] = {
    SUBJECT: (torch_ndd, "torch"),
    "DALI": (dali, "nvidia.dali"),
    "OpenCV": (opencv, "cv2"),
    "NumPy": (numpy, "numpy"),
    "torchvision": (torchvision, "torchvision"),
}


def imperative(module: str, types: str, case: Case, threads: int) -> Callable[[], Any]:
    """The case as a function without arguments, in torch_ndd or in DALI."""
    ndd, constants = importlib.import_module(module), importlib.import_module(types)
    ndd.set_num_threads(threads)
    samples = DATA[case.data]()
    batch = ndd.batch(list(samples), layout=case.layout or ("HWC" if samples.ndim == 4 else None)).evaluate()
    return lambda: case.ndd(ndd, constants, batch)


def _imperative(module: str, types: str, case: Case, threads: int, calls: int) -> Way:
    call = imperative(module, types, case, threads)

    def evaluate() -> float:
        return _seconds(lambda: call().evaluate())

    def call_only() -> float:
        results = []
        seconds = _seconds(lambda: results.extend(call() for _ in range(calls)))
        for result in results:
            result.evaluate()
        return seconds / calls

    return call_only if case.call_only else evaluate


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    result = function()
    seconds = time.perf_counter() - start
    del result  # freeing its memory later is not measured, for any library
    return seconds


COLD_COMPETITORS = {SUBJECT: torch_ndd, "DALI": dali}

# --- Measuring ------------------------------------------------------------------------------------------


def cold_handler(competitor: str, threads: int) -> Handler:
    """Like `handler`, with other data in the caches before each call."""
    caches = Caches()
    prepared: dict[str, dict[str, Way]] = {}

    def seconds(name: str) -> dict[str, float]:
        if name not in prepared:
            prepared.clear()
            prepared[name] = COLD_COMPETITORS[competitor](CASES[name], threads, 1)  # the second of many calls finds what the first one has read
            for way in prepared[name].values():
                way()
        gc.collect()
        taken: dict[str, list[float]] = {key: [] for key in prepared[name]}
        for _ in range(COLD_CALLS):
            for key, way in prepared[name].items():
                caches.sweep()
                taken[key].append(way())
        return {key: statistics.median(times) for key, times in taken.items()}

    importlib.import_module(COMPETITORS[competitor][1])
    gc.collect()
    gc.freeze()
    return seconds


def handler(competitor: str, threads: int, milliseconds: float, cases: Mapping[str, Case] = CASES) -> Handler:
    """Answer, in the competitor's process, the name of a case with the seconds per call, by way."""
    ways, module = COMPETITORS[competitor]
    importlib.import_module(module)
    gc.collect()
    gc.freeze()  # what is imported need not be looked through again before each measurement, which takes longer than a short one
    prepared: dict[str, dict[str, tuple[Way, int]]] = {}

    def seconds(name: str) -> dict[str, float]:
        if name not in prepared:
            prepared.clear()  # one case at a time, for the memory
            functions = ways(cases[name], threads)
            prepared[name] = {key: (way, _repeats(way, milliseconds)) for key, way in functions.items()}
        gc.collect()
        return {key: statistics.median(way() for _ in range(repeats)) for key, (way, repeats) in prepared[name].items()}

    return seconds


def _repeats(way: Way, milliseconds: float) -> int:
    """How often to run it to fill the time; the first run warms up."""
    way()
    return max(1, min(2000, round(milliseconds / 1e3 / min(_seconds(way), _seconds(way)))))


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    limit_threads(options.threads)
    cold = options.cold
    processes: dict[str, tuple[Callable[..., Handler], tuple[Any, ...]]] = {
        name: (cold_handler, (name, options.threads)) if cold else (handler, (name, options.threads, options.milliseconds))
        for name, (_, module) in COMPETITORS.items()
        if is_installed(module)
        and (name == SUBJECT or (name in COLD_COMPETITORS if cold else options.against is None or options.against.search(name)))
    }
    chosen = [name for name in CASES if options.only is None or options.only.search(name)]
    console.print(f"16 photographs of 640x480, {options.rounds} rounds; milliseconds for the whole batch", highlight=False)
    with running(processes) as (peers, failed):
        progress = track(chosen, description="operators", transient=True)
        figures = {name: measure(name, peers, options.rounds) for name in progress}
    if cold:
        _print_cold(console, figures)
    else:
        _print(console, figures, [peer.name for peer in peers])
    for name, row in figures.items():
        if SUBJECT in row["failed"]:
            failed[f"{SUBJECT} {name}"] = row["failed"][SUBJECT]
    for name, text in failed.items():
        console.print(f"{name} failed:", text.strip().splitlines()[-1], style="red", highlight=False, markup=False)
    return {**({"suite": "cold"} if cold else {}), "results": figures, "failed": failed}


def measure(name: str, peers: list[Peer], rounds: int) -> dict[str, Any]:
    """The seconds of each competitor's best way, and the ratios to torch_ndd."""
    failed: dict[str, str] = {}
    taken = _rounds.alternate(peers, name, rounds, failed)
    row: dict[str, Any] = {"ms": {}, "way": {}, "torch_ndd_ratio": {}, "failed": failed}
    seconds = {}
    for peer, answers in taken.items():
        if not answers[0]:
            continue
        way = min(answers[0], key=lambda key: statistics.median(answer[key] for answer in answers))
        seconds[peer] = [answer[way] for answer in answers]
        row["way"][peer], row["ms"][peer] = way, statistics.median(seconds[peer]) * 1e3
    if SUBJECT in seconds:
        row["torch_ndd_ratio"] = {peer: ratio(theirs, seconds[SUBJECT]) for peer, theirs in seconds.items() if peer != SUBJECT}
    return row


def _print(console: Console, figures: dict[str, dict[str, Any]], peers: list[str]) -> None:
    table = Table(title="operators: milliseconds, and how many times faster torch_ndd is")
    table.add_column("operator")
    for peer in peers:
        table.add_column(f"{peer} ms", justify="right")
    rivals = [peer for peer in peers if peer != SUBJECT]
    for peer in [*rivals, "the best"]:
        table.add_column(f"x {peer}", justify="right")
    for name, row in figures.items():
        times = row["torch_ndd_ratio"]
        table.add_row(
            name,
            *(f"{row['ms'][peer]:.3f}" if peer in row["ms"] else "failed" if peer in row["failed"] else "" for peer in peers),
            *(color(times[peer]) if peer in times else "" for peer in rivals),
            color(min(times.values())) if times else "",
        )
    console.print(table)


def _print_cold(console: Console, figures: dict[str, dict[str, Any]]) -> None:
    rows = sorted(((row["torch_ndd_ratio"]["DALI"], name) for name, row in figures.items() if "DALI" in row["torch_ndd_ratio"]))
    table = Table(title="operators with cold caches: milliseconds of a single call, and how many times faster torch_ndd is than DALI")
    for heading in ("operator", "torch_ndd ms", "DALI ms", "x DALI"):
        table.add_column(heading, justify="left" if heading == "operator" else "right")
    for times, name in rows:
        milliseconds = figures[name]["ms"]
        table.add_row(name, f"{milliseconds[SUBJECT]:.3f}", f"{milliseconds['DALI']:.3f}", color(times, COLD_BAR))
    console.print(table)
    if not rows:
        console.print("no row of both torch_ndd and DALI", style="red")
        return
    below = [f"{name} ({times:.2f})" for times, name in rows if times < COLD_BAR and not name.startswith("decoders.")]
    console.print(f"rows under {COLD_BAR}, decoding apart: {', '.join(below) or 'none'}", highlight=False)
    mean = math.exp(statistics.fmean(math.log(times) for times, _ in rows))
    console.print(f"geometric mean of {len(rows)} rows: {color(mean, COLD_MEAN)} (bar {COLD_MEAN})", highlight=False)
