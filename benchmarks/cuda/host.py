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
from unittest import mock

import numpy as np
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
COUNTERS = ("copies", "pageable", "events", "waits", "launches")  # as in no_device.cpp
COUNTS = ("allocations", *COUNTERS)
REPEATED_GOAL, CHANGED_GOAL = 15, 25  # us
SAMPLES, CHANGED = 16, range(10, 24)  # samples of a repeated call, and of changed ones, each of which has another number
HEIGHT, WIDTH = 240, 320  # smaller images: values do not matter, and there are many batches
VARIED_CALLS = 120  # with other numbers for each sample, and on images of other sizes
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
    _print_varied(report["varied"], console)
    for rate, row in report["loop"].items():
        text = f"loop of the main job, decoder of {rate} images/s: {row['rate']:.0f} ({row['rate'] / int(rate):.2f})"
        text += f", Python {row['python_us']:.0f} us and {row['waits']:.2f} waits a batch"
        console.print(f"{text}, from batch to batch p50 {row['p50_ms']:.2f} ms, p99 {row['p99_ms']:.2f} ms", highlight=False)
    return report


def _print_rows(rows: dict[str, dict[str, Any]], console: Console) -> None:
    title = f"calls on {SAMPLES} samples, and with other arguments (another number of samples): us of CPU time, and {', '.join(COUNTS)}"
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


def _print_varied(rows: dict[str, dict[str, Any]], console: Console) -> None:
    title = f"calls with other numbers for each of {SAMPLES} samples each time: us of CPU time, and {', '.join(COUNTS)}"
    table = Table("operator", "us", "counts", "other sizes, us", "counts", title=title)
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["dense"]["us"]):
        table.add_row(name, *_cells(row["dense"]), *_cells(row["ragged"]))
    console.print(table)
    for kind in ("dense", "ragged"):
        if rows:
            median = statistics.median(row[kind]["us"] for row in rows.values())
            console.print(f"{kind}, with numbers for each sample: median {median:.0f} us (goal {CHANGED_GOAL}); {len(rows)} calls", highlight=False)


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


# What programs pass for each sample, drawn from 0 to 1: `a` and `b` are batches (N,), `pair` one (N, 2), `matrix` one (N, 2, 3).
VARIED: dict[str, Callable[..., Any]] = {
    "brightness": lambda ndd, x, a, **_: ndd.brightness(x, brightness=a),
    "color_twist": lambda ndd, x, a, b, **_: ndd.color_twist(x, hue=a, saturation=b),
    "crop": lambda ndd, x, a, b, **_: ndd.crop(x, crop=[100, 100], crop_pos_x=a, crop_pos_y=b),
    "crop_mirror_normalize": lambda ndd, x, a, b, mirror, **_: ndd.crop_mirror_normalize(
        x, crop=[100, 100], crop_pos_x=a, crop_pos_y=b, mirror=mirror, mean=[1.0, 2.0, 3.0], std=[1.0, 2.0, 3.0]
    ),
    "erase": lambda ndd, x, pair, **_: ndd.erase(x, anchor=pair, shape=[0.2, 0.2], axis_names="HW", normalized=True),
    "flip": lambda ndd, x, mirror, **_: ndd.flip(x, horizontal=mirror),
    "paste": lambda ndd, x, a, b, **_: ndd.paste(x, ratio=1.5, fill_value=[0], paste_x=a, paste_y=b),
    "resize, regions": lambda ndd, x, pair, **_: ndd.resize(x, size=[100, 100], roi_start=pair, roi_end=[1.0, 1.0], roi_relative=True),
    "resize, sizes": lambda ndd, x, sides, **_: ndd.resize(x, resize_shorter=sides),
    "resize, torch's rule": lambda ndd, x, sides, **_: ndd.resize(x, resize_x=sides, resize_y=100, rule="torch"),
    "resize_crop_mirror": lambda ndd, x, mirror, **_: ndd.resize_crop_mirror(x, resize_shorter=110, crop=[100, 100], mirror=mirror),
    "rotate": lambda ndd, x, a, **_: ndd.rotate(x, angle=a, keep_size=True, fill_value=0.0),
    "rotate, growing": lambda ndd, x, a, **_: ndd.rotate(x, angle=a, fill_value=0.0),
    "slice": lambda ndd, x, pair, **_: ndd.slice(x, rel_start=pair, rel_shape=[0.2, 0.2], axis_names="HW"),
    "warp_affine": lambda ndd, x, matrix, **_: ndd.warp_affine(x, matrix=matrix, fill_value=0.0),
}


def _time_calls(calls: list[Callable[[], Any]]) -> float:
    """Return the median CPU time of the process, in seconds: other programs on the machine do not count."""
    taken = []
    for call in calls:
        begin = time.process_time()
        result = call()
        taken.append(time.process_time() - begin)
        del result
    return statistics.median(taken)


@functools.cache
def _time_nothing() -> float:
    """Return what the clock takes, and a call of a function that does nothing: 1 us."""
    return _time_calls([functools.partial(lambda *_: None, None, None, None)] * 2000)


def _measure(calls: list[Callable[[], Any]], counters: Counters) -> dict[str, float]:
    """Time each call, and count their CUDA calls."""
    nothing = _time_nothing()
    counters.take()
    seconds = _time_calls(calls) - nothing
    counts = counters.take()
    return {"us": seconds * 1e6, **{name: count / len(calls) for name, count in counts.items()}}


@functools.cache
def _samples(data: str) -> list[Any]:
    from ._cases import samples_of

    return samples_of(data, max(64, *CHANGED))


# What is read back from the device is zeros (no_device.cpp): cases whose operators check such values.
ON_ZEROS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "segmentation.select_masks, 64x30 polygons": lambda ndd, types, x: ndd.segmentation.select_masks(
        _zeros((x.batch_size, 1), np.int32), x, _zeros((x.batch_size, 600, 2), np.float32)
    )[1]
}


@functools.cache
def _zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> Any:
    return importlib.import_module("torch_ndd").batch(np.zeros(shape, dtype)).evaluate()


def _make_other_inputs(call: Callable[..., Any], samples: int) -> None:
    """Let a case make, and keep, its other inputs for a number of samples, without calling the operator: the program has all inputs of a call."""
    batch = mock.MagicMock(batch_size=samples, **{"__lt__.return_value": None})  # a mock takes all operators but comparisons
    call(mock.MagicMock(__name__="torch_ndd"), mock.MagicMock(), batch)


def _measure_case(case: Any, ndd: Any, types: Any, counters: Counters, rounds: int) -> dict[str, Any]:
    samples = [sample[:HEIGHT, :WIDTH] if sample.ndim == 3 else sample for sample in _samples(case.data)[: max(CHANGED)]]

    def batch(count: int) -> Any:
        return ndd.batch(samples[:count], layout="HWC" if samples[0].ndim == 3 else None, device="gpu").evaluate()

    row: dict[str, Any] = {}
    operator: Any = ON_ZEROS.get(case.name, case.ndd)
    inputs = batch(SAMPLES)
    for _ in range(6):  # a plan is made at the fourth
        operator(ndd, types, inputs)
    row["repeated"] = _measure([functools.partial(operator, ndd, types, inputs)] * (50 * rounds), counters)
    sizes = list(CHANGED)
    random.Random(1).shuffle(sizes)
    batches = [batch(count) for count in sizes if count != SAMPLES]
    for changed in batches:
        _make_other_inputs(operator, changed.batch_size)
    calls = [functools.partial(operator, ndd, types, changed) for changed in batches]
    calls[0]()
    row["changed"] = _measure(calls[1:], counters)
    return row


def _measure_varied(name: str, ragged: bool, ndd: Any, counters: Counters) -> dict[str, float]:
    """Time calls with other numbers for each sample each time, on images of one size or of other sizes each time."""
    generator = np.random.default_rng(1)
    images = []
    for _ in range(8 if ragged else 1):
        extents = generator.integers(120, [HEIGHT, WIDTH], (SAMPLES, 2)).tolist() if ragged else [(HEIGHT, WIDTH)] * SAMPLES
        samples = [sample[:height, :width] for sample, (height, width) in zip(_samples("vga"), extents, strict=False)]
        images.append(ndd.batch(samples, layout="HWC", device="gpu").evaluate())
    calls = []
    for k in range(VARIED_CALLS):
        numbers = {"a": generator.uniform(0, 1, SAMPLES), "b": generator.uniform(0, 1, SAMPLES), "pair": generator.uniform(0, 0.8, (SAMPLES, 2))}
        numbers["matrix"] = generator.uniform(-0.1, 0.1, (SAMPLES, 2, 3)) + np.eye(2, 3)
        arguments = {key: ndd.batch(value.astype(np.float32)).evaluate() for key, value in numbers.items()}
        arguments["mirror"] = ndd.batch(generator.integers(0, 2, SAMPLES, dtype=np.int32)).evaluate()
        arguments["sides"] = ndd.batch(generator.integers(60, 120, SAMPLES).astype(np.float32)).evaluate()
        calls.append(functools.partial(VARIED[name], ndd, images[k % len(images)], **arguments))
    for call in calls[:20]:
        call()
    return _measure(calls[20:], counters)


def _decode(rate: float, batches: list[Any], steps: int, ahead: int = 2) -> Iterator[tuple[Any, float]]:
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
    ends, waited = [time.perf_counter()], 0.0
    for images, seconds in _decode(rate, batches, steps):
        waited += seconds
        work(images)
        ends.append(time.perf_counter())
    elapsed = ends[-1] - ends[0]
    p50, p99 = np.percentile(np.diff(ends), [50, 99]) * 1e3
    figures = {"rate": 64 * steps / elapsed, "python_us": (elapsed - waited) / steps * 1e6, "waits": counters.take()["waits"] / steps}
    return {**figures, "p50_ms": float(p50), "p99_ms": float(p99)}


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
    varied = {
        name: {kind: _measure_varied(name, kind == "ragged", ndd, counters) for kind in ("dense", "ragged")}
        for name in VARIED
        if not only or re.search(only, name)
    }
    loop = {rate: _measure_loop(rate, ndd, counters) for rate in RATES}
    print(json.dumps({"results": rows, "varied": varied, "failed": failed, "loop": loop}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
