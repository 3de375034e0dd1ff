# SPDX-License-Identifier: Apache-2.0
"""How long work takes on the GPU and calls take on the host, which kernels run, and how fast the memory is."""

from __future__ import annotations

import json
import math
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._C._autograd import DeviceType

Call = Callable[[], Any]

_MAX_CALLS = 100  # CUDA queues 1024 launches; then the host waits
_LONGEST_HEAD_START = 0.05  # seconds


def host_seconds(call: Call, calls: int = 50) -> float:
    """Of one call, without its work: as few calls as the queue of launches takes, so none waits for the device."""
    call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    seconds = time.perf_counter() - begin
    torch.cuda.synchronize()
    return seconds / calls


def device_seconds(call: Call, least: float = 0.02) -> float:
    """Of one call's work on the current stream, from as many calls as take ``least`` seconds."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    issued = time.perf_counter() - begin
    torch.cuda.synchronize()
    calls = max(1, min(_MAX_CALLS, round(least / max(time.perf_counter() - begin, 1e-6))))
    head_start = min(_LONGEST_HEAD_START, 1.5 * calls * issued)
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(round(head_start * 2e9))  # cycles: no GPU has more than 2 GHz by much
    first.record()
    for _ in range(calls):
        call()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1e3 / calls


@dataclass
class Launches:
    """What one call has put on the device."""

    kernels: dict[str, float] = field(default_factory=dict)  # how many, by short name
    copies: dict[str, float] = field(default_factory=dict)  # the same of copies and fills
    seconds: float = 0.0  # of both
    waves: float = 0.0  # of all kernels: how often a GPU filled with blocks ends and begins again

    @property
    def count(self) -> float:
        """Kernels."""
        return sum(self.kernels.values())


def launches(call: Call, calls: int = 4) -> Launches:
    """What torch's profiler sees on the device; it sees other libraries' work as well."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    work = count_launches(profile.events() or (), calls)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:  # events have no grids, their export has
        profile.export_chrome_trace(file.name)
        trace = json.loads(Path(file.name).read_text())
    work.waves = count_waves(trace["traceEvents"], torch.cuda.get_device_properties(0).multi_processor_count) / calls
    return work


# Of a multiprocessor, from compute capability 8.0 on.
_THREADS, _BLOCKS, _REGISTERS, _SHARED_BYTES = 2048, 32, 65536, 228 << 10


def count_waves(events: Iterable[dict[str, Any]], multiprocessors: int) -> int:
    """Add up the waves of all kernels in a trace, from their grids and from how many of their blocks a multiprocessor holds at a time.

    >>> count_waves([{"cat": "kernel", "args": {"grid": [450, 128, 1], "block": [256, 1, 1], "registers per thread": 64, "shared memory": 0}}], 132)
    110
    """
    waves = 0
    for event in events:
        if event.get("cat") != "kernel":
            continue
        shape = event["args"]
        threads = math.prod(shape["block"])
        # Registers come in units of 256 for a warp; a block has 1 KB of shared memory of its own.
        registers = math.ceil(threads / 32) * max(math.ceil(shape.get("registers per thread", 32) * 32 / 256) * 256, 256)
        resident = min(_BLOCKS, _THREADS // threads, _REGISTERS // registers, _SHARED_BYTES // (shape.get("shared memory", 0) + 1024))
        waves += math.ceil(math.prod(shape["grid"]) / (multiprocessors * max(resident, 1)))
    return waves


def count_launches(events: Any, calls: int) -> Launches:
    """The profiler's events of ``calls`` calls as those of one."""
    kernels, copies, microseconds = Counter[str](), Counter[str](), 0.0
    for event in events:
        if event.device_type != DeviceType.CUDA:
            continue
        microseconds += event.time_range.elapsed_us()
        (copies if event.name.startswith(("Memcpy", "Memset")) else kernels)[short(event.name)] += 1
    return Launches({name: n / calls for name, n in kernels.items()}, {name: n / calls for name, n in copies.items()}, microseconds / 1e6 / calls)


def short(name: str) -> str:
    """A kernel's name without arguments, templates and namespaces.

    >>> short("void ndd::pointwise_detail::run_gpu<ndd::color::(anonymous namespace)::Scale>(ndd::Run const*, long)")
    'run_gpu'
    >>> short("Memcpy HtoD (Pageable -> Device)"), short("triton_poi_fused_mul_0")
    ('Memcpy HtoD (Pageable -> Device)', 'triton_poi_fused_mul_0')
    """
    if name.startswith(("Memcpy", "Memset")):
        return name
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    while (inner := re.sub(r"<[^<>]*>", "", name)) != name:
        name = inner
    return name.partition("(")[0].rpartition("::")[2].strip()[:60]


def copy_bandwidth(bytes: int = 2**30, rounds: int = 9) -> float:
    """Bytes read and written a second by a copy from the device to the device: what no operator can beat by much."""
    source = torch.empty(bytes, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    return 2 * bytes / statistics.median(device_seconds(lambda: target.copy_(source)) for _ in range(rounds))


def upload_seconds(bytes: int, busy: bool) -> float:
    """What a copy from memory that is not pinned costs the host, on an idle stream and on one that is busy for 5 ms."""
    source, target = torch.zeros(bytes, dtype=torch.uint8), torch.zeros(bytes, dtype=torch.uint8, device="cuda")
    taken = []
    for _ in range(20):
        torch.cuda.synchronize()
        if busy:
            torch.cuda._sleep(10_000_000)
        begin = time.perf_counter()
        target.copy_(source, non_blocking=True)
        taken.append(time.perf_counter() - begin)
    torch.cuda.synchronize()
    return statistics.median(taken)
