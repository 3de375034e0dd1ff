# SPDX-License-Identifier: Apache-2.0
"""What calls cost the host, on a machine without a GPU: ``python -m benchmarks host``.

A CUDA runtime that does nothing (``no_device.cpp``) takes the place of NVIDIA's below torch and torch_ndd. Everything above it is real: Python,
torch's allocator, streams and events, the launchers. The driver is missing: on a GPU, a launch costs another 2 to 3 us, and a copy from pageable
memory 6 to 15.

It needs a build with CUDA kernels (nvcc), whose objects are linked again without the CUDA runtime.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import gc
import importlib
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
COUNTERS = ("copies", "pageable", "events", "waits", "launches")  # as in no_device.cpp
COUNTS = ("allocations", *COUNTERS)
REPEATED_GOAL, CHANGED_GOAL = 15, 25  # us
SAMPLES, CHANGED = 16, range(10, 24)  # samples of a repeated call, and of changed ones, each of which has another number
HEIGHT, WIDTH = 240, 320  # smaller images: values do not matter, and there are many batches
RATES = (10_000, 20_000, 30_000)  # images/s of the decoder in the loop


def build(folder: Path) -> dict[str, str]:
    """Link the library without a CUDA runtime, compile the one that does nothing, and return the environment that uses both."""
    dev, library = ROOT / "build" / "dev", ROOT / "torch_ndd" / "_C.so"
    commands = subprocess.run(["ninja", "-t", "commands", "-s", str(library)], cwd=dev, check=True, capture_output=True, text=True).stdout
    words = [word for word in shlex.split(commands.strip().splitlines()[-1]) if word not in (":", "&&")]
    if "-lcudart_static" not in words:
        raise RuntimeError("the benchmark of the host needs CUDA kernels: cmake -DTORCH_NDD_CUDA=ON build/dev && ninja -C build/dev")
    words.remove("-lcudart_static")
    words[words.index("-o") + 1] = str(folder / "_C.so")
    subprocess.run(words, cwd=dev, check=True)
    source, driver = Path(__file__).with_name("no_device.cpp"), folder / "libcuda.so.1"  # torch looks for the driver under this name
    subprocess.run(["nvcc", "-O2", "-cudart", "none", "-shared", "-Xcompiler", "-fPIC", str(source), "-o", str(driver)], check=True)
    paths = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {**os.environ, "LD_PRELOAD": str(driver), "LD_LIBRARY_PATH": ":".join(paths), "TORCH_NDD_LIBRARY": str(folder / "_C.so")}


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure in another process, print the tables, return the figures."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", f"{__package__}.host", options.only.pattern if options.only else "", str(options.rounds)]
        output = subprocess.run(command, env=build(Path(folder)), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    report = json.loads(output.splitlines()[-1])
    _print_rows(report["results"], console)
    for rate, row in report["loop"].items():
        text = f"loop of the main job, decoder of {rate} images/s: {row['rate']:.0f} ({row['rate'] / int(rate):.2f})"
        console.print(f"{text}, Python {row['python_us']:.0f} us and {row['waits']:.2f} waits a batch", highlight=False)
    return report


def _print_rows(rows: dict[str, dict[str, Any]], console: Console) -> None:
    title = f"calls on {SAMPLES} samples, and with other arguments (another number of samples): us of the host, and {', '.join(COUNTS)}"
    table = Table("operator", "us", "counts", "changed us", "counts", title=title)
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["repeated"]["us"]):
        cells = (cell for kind in ("repeated", "changed") for cell in _cells(row.get(kind)))
        table.add_row(name, *cells)
    console.print(table)
    for kind, goal in (("repeated", REPEATED_GOAL), ("changed", CHANGED_GOAL)):
        figures = [row[kind] for row in rows.values() if kind in row]
        if figures:
            sums = ", ".join(f"{statistics.mean(figure[count] for figure in figures):.2f} {count}" for count in COUNTS)
            median = statistics.median(figure["us"] for figure in figures)
            console.print(f"{kind}: median {median:.0f} us (goal {goal}); on average {sums} a call; {len(figures)} operators", highlight=False)


def _cells(figures: dict[str, float] | None) -> tuple[str, str]:
    if figures is None:
        return "", ""
    return f"{figures['us']:.0f}", " ".join(f"{figures[count]:.4g}" for count in COUNTS)


# --- In the process without a device ----------------------------------------------------------------------


class Counters:
    """What has been asked of CUDA since the last look."""

    def __init__(self) -> None:
        self._read = ctypes.CDLL(os.environ["LD_PRELOAD"]).ndd_read_counters
        self._last = [0] * len(COUNTS)

    def take(self) -> dict[str, int]:
        """Return the counts since the last call."""
        values = (ctypes.c_int64 * len(COUNTERS))()
        self._read(values)
        now = [importlib.import_module("torch").cuda.memory_stats().get("allocation.all.allocated", 0), *values]
        taken, self._last = [new - old for new, old in zip(now, self._last, strict=True)], now
        return dict(zip(COUNTS, taken, strict=True))


def _measure(calls: list[Callable[[], Any]], counters: Counters) -> dict[str, float]:
    """Time calls one by one, and count their CUDA calls. Return the median time, because other programs on the machine cause outliers."""
    taken = []
    counters.take()
    for call in calls:
        begin = time.perf_counter()
        result = call()
        taken.append(time.perf_counter() - begin)
        del result
    counts = counters.take()
    return {"us": statistics.median(taken) * 1e6, **{name: count / len(calls) for name, count in counts.items()}}


@functools.cache
def _samples(data: str) -> list[Any]:
    from ._cases import samples_of

    return samples_of(data, max(64, *CHANGED))


def _measure_case(case: Any, ndd: Any, types: Any, counters: Counters, rounds: int) -> dict[str, Any]:
    samples = [sample[:HEIGHT, :WIDTH] if sample.ndim == 3 else sample for sample in _samples(case.data)[: max(CHANGED)]]

    def batch(count: int) -> Any:
        return ndd.batch(samples[:count], layout="HWC" if samples[0].ndim == 3 else None, device="gpu").evaluate()

    row: dict[str, Any] = {}
    inputs = batch(SAMPLES)
    for _ in range(6):  # a plan is made at the fourth
        case.ndd(ndd, types, inputs)
    row["repeated"] = _measure([functools.partial(case.ndd, ndd, types, inputs)] * (50 * rounds), counters)
    sizes = list(CHANGED)
    random.Random(1).shuffle(sizes)
    batches = [batch(count) for count in sizes if count != SAMPLES]
    calls = [functools.partial(case.ndd, ndd, types, changed) for changed in batches]
    try:
        calls[0]()
    except (ValueError, RuntimeError, TypeError):
        return row  # its second input has as many samples as the first one
    row["changed"] = _measure(calls[1:], counters)
    return row


def _decoded(rate: float, batches: list[Any], steps: int, ahead: int = 2) -> Iterator[tuple[Any, float]]:
    """Yield batches at the times at which a decoder that is up to `ahead` batches ahead has them, and the seconds that the loop has waited."""
    seconds = batches[0].batch_size / rate
    ready = time.perf_counter()
    for k in range(steps):
        now = time.perf_counter()
        ready = max(ready, now - ahead * seconds) + seconds
        if ready > now:
            time.sleep(ready - now)
        yield batches[k % len(batches)], time.perf_counter() - now


def _measure_loop(rate: int, ndd: Any, counters: Counters, steps: int = 200) -> dict[str, float]:
    batches = [ndd.batch(_samples("vga")[:64], layout="HWC", device="gpu").evaluate() for _ in range(2)]
    mean, std = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]

    def work(images: Any) -> Any:
        images = ndd.random_resized_crop(images, size=[224, 224])
        mirror = ndd.random.coin_flip(batch_size=images.batch_size, probability=0.5)
        return ndd.crop_mirror_normalize(images, mirror=mirror, mean=mean, std=std, output_layout="CHW").torch()

    for _ in range(6):
        work(batches[0])
    counters.take()
    begin, waited = time.perf_counter(), 0.0
    for images, seconds in _decoded(rate, batches, steps):
        waited += seconds
        work(images)
    elapsed = time.perf_counter() - begin
    return {"rate": 64 * steps / elapsed, "python_us": (elapsed - waited) / steps * 1e6, "waits": counters.take()["waits"] / steps}


def main(only: str, rounds: int) -> None:
    """Measure all cases and print the figures as JSON."""
    import re

    ndd, types = importlib.import_module("torch_ndd"), importlib.import_module("torch_ndd.types")
    from ._cases import GPU_CASES

    counters, rows, failed = Counters(), {}, {}
    for name, case in GPU_CASES.items():
        if only and not re.search(only, name):
            continue
        try:
            rows[name] = _measure_case(case, ndd, types, counters, rounds)
        except Exception as error:
            failed[f"torch_ndd {name}"] = str(error)
        gc.collect()
        print(f"{name}: {rows.get(name) or failed[f'torch_ndd {name}']}", file=sys.stderr)
    loop = {rate: _measure_loop(rate, ndd, counters) for rate in RATES}
    print(json.dumps({"results": rows, "failed": failed, "loop": loop}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
