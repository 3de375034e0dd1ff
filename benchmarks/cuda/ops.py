# SPDX-License-Identifier: Apache-2.0
"""Every operator on the GPU: its part of the copy bandwidth, its launches, what a call costs the host, and DALI, CV-CUDA, torchvision and kornia.

A rival's time is the shorter of the time between CUDA events and the sum of its kernels; torch_ndd's is that between the events.

The column "predicted" is the wave model: bytes / copy bandwidth + waves x `WAVE_SECONDS`. A wave is as many blocks as the GPU holds at a time, by
their threads, registers and shared memory; a kernel takes blocks / (resident blocks) of them, rounded up. In each one the blocks read what they have
to do before any of their data is on its way, which costs a fixed time besides the bandwidth. The model knows no arithmetic but that of cases which
count it: their instructions / `INSTRUCTIONS_PER_SECOND` takes the place of the bytes where it is longer. Another kernel that takes much longer is
bound by instructions or by latency within its blocks; a shorter one has its data in the cache.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from .._process import Handler, Peer, PeerError, is_installed, limit_threads
from .._report import color
from . import _timing
from ._cases import BANDWIDTH, GPU_CASES, HOST_SAMPLES, RIVALS, GpuCase, samples_of
from ._rivals import CVCUDA, KORNIA

SUBJECT = "torch_ndd"
BANDWIDTH_BAR, RIVALS_BAR, HOST_BAR = 0.8, 1.0, 25e-6
# Rivals whose kernels the bars speak of.
KERNELS_OF = ("DALI", "CV-CUDA")
# 1.1 to 2.2 us on an H100: comparison took 109 waves of 2.95 us, brightness 27 of 3.96, of which the bytes explain the rest.
WAVE_SECONDS = 1.65e-6
# Of all threads of an H100: 132 multiprocessors start four warps of 32 threads each cycle of 1.755 GHz, of which the tiles of resize reach 0.62 (110
# instructions for an element took 0.116 ms where 0.072 would be possible).
INSTRUCTIONS_PER_SECOND = 132 * 4 * 32 * 1.755e9 * 0.62
LOST = "CUDA is lost"
TABLES = ("boxes", "polygons")

# From a case, its samples and the device to the call; what the call returns is the work's result.
Make = Callable[[GpuCase, list[Any], str], _timing.Call | None]


# --- The competitors ------------------------------------------------------------------------------------


def torch_ndd(case: GpuCase, samples: list[Any], device: str) -> _timing.Call:
    """The plain call, without waiting for the result."""
    return _imperative("torch_ndd", "torch_ndd.types", case, samples, device)


def dali(case: GpuCase, samples: list[Any], device: str) -> _timing.Call:
    """The same program under DALI's dynamic mode, launched by the calling thread."""
    return _imperative("nvidia.dali.experimental.dynamic", "nvidia.dali.types", case, samples, device)


def _imperative(module: str, types: str, case: GpuCase, samples: list[Any], device: str) -> _timing.Call:
    ndd, constants = importlib.import_module(module), importlib.import_module(types)
    batch = ndd.batch(samples, layout="HWC" if samples[0].ndim == 3 else None, device=device).evaluate()
    return lambda: case.ndd(ndd, constants, batch)


def torchvision(case: GpuCase, samples: list[Any], device: str) -> _timing.Call | None:
    """On (N, C, H, W), channels last in memory."""
    v2, function = importlib.import_module("torchvision.transforms.v2"), case.tv
    if function is None or case.data == "ragged":
        return None
    batch = _stack(samples, device)
    images = batch.permute(0, 3, 1, 2) if batch.ndim == 4 else batch
    return lambda: function(v2, images)


def kornia(case: GpuCase, samples: list[Any], device: str) -> _timing.Call | None:
    """On float32 (N, C, H, W) from 0 to 1."""
    library, function = importlib.import_module("kornia"), KORNIA.get(case.name)
    if function is None:
        return None
    images = _stack(samples, device).permute(0, 3, 1, 2).contiguous().float().div_(255)
    return lambda: function(library, images)


def cvcuda(case: GpuCase, samples: list[Any], device: str) -> _timing.Call | None:
    """On uint8 NHWC, on torch's current stream."""
    library, function = importlib.import_module("cvcuda"), CVCUDA.get(case.name)
    if function is None:
        return None
    images = _stack(samples, device)
    tensor, stream = library.as_tensor(images, "NHWC"), library.as_stream(torch.cuda.current_stream())

    def call() -> Any:
        with stream:
            return function(library, tensor)

    call.images = images  # type: ignore[attr-defined]  # the tensor has only borrowed it
    return call


def _stack(samples: list[Any], device: str) -> torch.Tensor:
    return torch.stack([torch.from_numpy(sample) for sample in samples]).to("cuda" if device == "gpu" else device)


# By name: what makes the call, and the module that has to be installed.
COMPETITORS: dict[str, tuple[Make, str]] = {
    SUBJECT: (torch_ndd, "torch_ndd"),
    "DALI": (dali, "nvidia.dali"),
    "CV-CUDA": (cvcuda, "cvcuda"),
    "torchvision": (torchvision, "torchvision"),
    "kornia": (kornia, "kornia"),
}


# --- Measuring ------------------------------------------------------------------------------------------


def handler(competitor: str, threads: int, device: str = "gpu") -> Handler:
    """Runs in the competitor's process: answers (name of a case, rounds) with its figures; None where it has no such operator."""
    torch.set_num_threads(threads)
    make, module = COMPETITORS[competitor]
    importlib.import_module(module)
    prepared: dict[tuple[str, int], list[Any]] = {}

    def samples(data: str, count: int) -> list[Any]:
        if (data, count) not in prepared:
            prepared[data, count] = samples_of(data, count)
        return prepared[data, count]

    def measure(request: tuple[str, int]) -> dict[str, Any] | None:
        case, rounds = GPU_CASES[request[0]], request[1]
        try:
            with _on_torchs_stream(competitor):
                call = make(case, samples(case.data, case.samples), device)
                if call is None:
                    return None
                result = call()
                taken = [_timing.device_seconds(call) for _ in range(rounds)]
                work = _timing.launches(call)
                inputs = sum(sample.nbytes for sample in samples(case.data, case.samples))
                outputs, elements = _bytes_of(result), _elements_of(result)
                del call, result
            few = min(case.samples, HOST_SAMPLES) if case.data not in TABLES else case.samples  # which have a second input of as many
            small = make(case, samples(case.data, few), device)
            assert small is not None
            host = statistics.median(_timing.host_seconds(small) for _ in range(rounds))
        except Exception as error:
            _check_cuda(error)
            raise
        return {
            "seconds": statistics.median(taken),
            "kernel_seconds": work.seconds,
            "launches": work.count,
            "waves": work.waves,
            "kernels": work.kernels,
            "copies": work.copies,
            "host_seconds": host,
            "traffic": case.traffic(inputs, outputs),
            "instructions": case.instructions * elements,
        }

    return measure


@contextlib.contextmanager
def _on_torchs_stream(competitor: str) -> Iterator[None]:
    """The imperative libraries have streams of their own; the events have to be on the one that works."""
    module = {SUBJECT: "torch_ndd", "DALI": "nvidia.dali.experimental.dynamic"}.get(competitor)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.cuda.stream(torch.cuda.Stream()))
        if module is not None:
            ndd = importlib.import_module(module)
            ndd.set_current_stream(ndd.stream(stream=torch.cuda.current_stream()))
            stack.callback(ndd.set_current_stream, None)
            if competitor == "DALI":
                stack.enter_context(ndd.EvalMode.sync_cpu)
        yield
        torch.cuda.synchronize()


def _bytes_of(result: Any) -> int:
    if isinstance(result, tuple | list):
        return sum(map(_bytes_of, result))
    values = getattr(result, "buffer", result)
    return values.numel() * values.element_size() if isinstance(values, torch.Tensor) else 0


def _elements_of(result: Any) -> int:
    if isinstance(result, tuple | list):
        return sum(map(_elements_of, result))
    values = getattr(result, "buffer", result)
    return values.numel() if isinstance(values, torch.Tensor) else 0


def _check_cuda(error: Exception) -> None:
    """After a fault on the device nothing works any more in this process."""
    try:
        torch.cuda.synchronize()
    except Exception:
        raise RuntimeError(f"{LOST}: {error}") from error


class Competitor:
    """A process that is restarted when its GPU has faulted or it has ended."""

    def __init__(self, name: str, threads: int) -> None:
        self.name, self._threads = name, threads
        self._peer: Peer | None = None

    def ask(self, request: tuple[str, int]) -> dict[str, Any] | None:
        """The figures of a case, or a `PeerError`."""
        try:
            if self._peer is None:
                self._peer = Peer(self.name, handler, self.name, self._threads)
                self._peer.answer()
            return self._peer.ask(request)
        except PeerError as error:
            if LOST in str(error) or "ended" in str(error) or "no answer" in str(error):
                self.close()
            raise

    def close(self) -> None:
        """End the process."""
        if self._peer is not None:
            self._peer.stop()
            self._peer.close()
            self._peer = None


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the tables, return the figures."""
    limit_threads(options.threads)
    deadline = time.monotonic() + options.seconds
    bandwidth = _timing.copy_bandwidth()
    uploads = {
        f"{size >> 10} KB, {'busy' if busy else 'idle'} stream": _timing.upload_seconds(size, busy) * 1e6
        for size in (2**10, 2**14, 2**16, 2**17, 2**20)
        for busy in (False, True)
    }
    console.print(f"copy bandwidth {bandwidth / 1e12:.2f} TB/s (1 GiB, bytes read and written)", highlight=False)
    console.print("uploads that are not pinned, host us: " + ", ".join(f"{name}: {us:.1f}" for name, us in uploads.items()), highlight=False)
    wanted = [name for name in COMPETITORS if name == SUBJECT or options.against is None or options.against.search(name)]
    missing = [name for name in wanted if not is_installed(COMPETITORS[name][1])]
    if missing:
        console.print("not installed, so not compared with:", ", ".join(missing), style="red")
    competitors = [Competitor(name, options.threads) for name in wanted if name not in missing]
    chosen = [name for name in GPU_CASES if options.only is None or options.only.search(name)]
    rows: dict[str, dict[str, Any]] = {}
    try:
        for name in track(chosen, description="operators", transient=True):
            if time.monotonic() > deadline:
                break
            rows[name] = _row(name, competitors, options.rounds, bandwidth)
    finally:
        for competitor in competitors:
            competitor.close()
    print_rows(console, rows, [competitor.name for competitor in competitors])
    failed = {f"{SUBJECT} {name}": row["failed"][SUBJECT] for name, row in rows.items() if SUBJECT in row["failed"]}
    report = {"copy_bandwidth": bandwidth, "uploads_us": uploads, "missing": missing, "left_out": chosen[len(rows) :]}
    if report["left_out"]:
        console.print(f"no time was left for {', '.join(report['left_out'])}", style="red", highlight=False)
    return {**report, "results": rows, "failed": failed}


def _row(name: str, competitors: list[Competitor], rounds: int, bandwidth: float) -> dict[str, Any]:
    figures: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    for competitor in competitors:
        try:
            answer = competitor.ask((name, rounds))
        except PeerError as error:
            failed[competitor.name] = str(error)
            continue
        if answer is not None:
            figures[competitor.name] = answer
    return judge(GPU_CASES[name], figures, failed, bandwidth)


def judge(case: GpuCase, figures: dict[str, dict[str, Any]], failed: dict[str, str], bandwidth: float) -> dict[str, Any]:
    """The figures of a case with what they say: the part of the bandwidth, how many times faster torch_ndd is, and the bars that are missed."""
    row: dict[str, Any] = {"bar": case.bar, "samples": case.samples, "figures": figures, "failed": failed, "torch_ndd_ratio": {}, "missed": []}
    ours = figures.get(SUBJECT)
    if ours is None:
        row["missed"].append("it failed")
        return row
    row["predicted_seconds"] = max(ours["traffic"] / bandwidth, ours["instructions"] / INSTRUCTIONS_PER_SECOND) + ours["waves"] * WAVE_SECONDS
    row["bandwidth_part"] = ours["traffic"] / ours["seconds"] / bandwidth if ours["seconds"] else 0.0
    for rival, theirs in figures.items():
        if rival != SUBJECT and theirs["seconds"] and ours["seconds"]:
            best = min(theirs["seconds"], theirs["kernel_seconds"] or theirs["seconds"])
            row["torch_ndd_ratio"][rival] = best / ours["seconds"]
    if case.bar == BANDWIDTH and row["bandwidth_part"] < BANDWIDTH_BAR:
        row["missed"].append(f"{row['bandwidth_part']:.2f} of the copy bandwidth, not {BANDWIDTH_BAR}")
    if case.bar == RIVALS:
        slower = {rival: times for rival, times in row["torch_ndd_ratio"].items() if rival in KERNELS_OF and times < RIVALS_BAR}
        row["missed"] += [f"{times:.2f} times {rival}, not {RIVALS_BAR}" for rival, times in slower.items()]
    if ours["host_seconds"] >= HOST_BAR:
        row["missed"].append(f"a call costs the host {ours['host_seconds'] * 1e6:.1f} us, not {HOST_BAR * 1e6:.0f}")
    return row


def print_rows(console: Console, rows: dict[str, dict[str, Any]], competitors: list[str]) -> None:
    """The tables, what missed a bar first."""
    rivals = [name for name in competitors if name != SUBJECT]
    table = Table(title="operators on the GPU")
    for heading in ("operator", "ms", "predicted", "of copy bandwidth", "launches", "host us", *(f"x {rival}" for rival in rivals), "missed"):
        table.add_column(heading, justify="left" if heading in ("operator", "missed") else "right")
    for name, row in sorted(rows.items(), key=lambda item: not item[1]["missed"]):
        ours = row["figures"].get(SUBJECT)
        times = row["torch_ndd_ratio"]
        rivals_cells = (color(times[rival]) if rival in times else "failed" if rival in row["failed"] else "" for rival in rivals)
        if ours is None:
            table.add_row(name, "failed", "", "", "", "", *rivals_cells, "it failed")
            continue
        copies = sum(ours["copies"].values())
        table.add_row(
            name,
            f"{ours['seconds'] * 1e3:.3f}",
            f"{row['predicted_seconds'] * 1e3:.3f}",
            color(row["bandwidth_part"], BANDWIDTH_BAR) if row["bar"] == BANDWIDTH else f"{row['bandwidth_part']:.2f}",
            f"{ours['launches']:.0f}" + (f" + {copies:.0f} copies" if copies else ""),
            f"{ours['host_seconds'] * 1e6:.1f}",
            *rivals_cells,
            "; ".join(row["missed"]),
        )
    console.print(table)
    for name, row in rows.items():
        for competitor, text in row["failed"].items():
            if competitor == SUBJECT:
                console.print(f"{name} failed:", text.strip().splitlines()[-1], style="red", highlight=False, markup=False)
