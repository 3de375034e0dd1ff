# SPDX-License-Identifier: Apache-2.0
"""What every benchmark prints around its figures: the environment, the table's helpers, the JSON file."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console

_PACKAGES = (
    "torch_ndd",
    "torch",
    "torchvision",
    "nvidia-dali-cuda130",
    "nvidia-dali-cuda120",
    "nvidia-nvimgcodec-cu13",
    "nvidia-nvimgcodec-cu12",
    "opencv-python-headless",
    "opencv-python",
    "cvcuda-cu13",
    "kornia",
    "triton",
    "pillow",
    "numpy",
)


_GPU_QUERY = (
    "name",
    "driver_version",
    "clocks.sm",
    "clocks.max.sm",
    "clocks.mem",
    "clocks.max.mem",
    "power.limit",
    "memory.total",
    "temperature.gpu",
)


def environment(threads: int, device: str = "cpu") -> dict[str, Any]:
    """When, where and with which versions the figures were measured; with ``device="cuda"`` also on which GPU and with which kernels."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": threads,
        # More than a few tenths at the start means that something else is running.
        "load_at_start": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "system": platform.platform(),
        "versions": versions,
        **({"gpu": gpu()} if device == "cuda" else {}),
    }


def gpu() -> dict[str, Any]:
    """The GPU as its driver sees it, what torch was built for, and the library's CUDA kernels."""
    import torch

    from torch_ndd._core import native

    command = ["nvidia-smi", f"--query-gpu={','.join(_GPU_QUERY)}", "--format=csv,noheader", "-i", "0"]
    try:
        values = [value.strip() for value in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(",")]
        facts: dict[str, Any] = dict(zip(_GPU_QUERY, values, strict=True))
    except (OSError, subprocess.CalledProcessError, IndexError, ValueError):
        facts = {"name": torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"}
    facts["CUDA of torch"] = torch.version.cuda
    facts["kernels"] = sorted(name for name, backend in native.KERNELS if backend == "CUDA")
    return facts


def print_environment(console: Console, facts: dict[str, Any]) -> None:
    """The header of a report."""
    console.print(f"[bold]benchmarks[/] {facts['date']}  commit {facts['commit']}", highlight=False)
    console.print(
        f"{facts['cpu']}, {facts['cores']} cores, load {facts['load_at_start']}; threads fixed at {facts['threads']}; "
        f"Python {facts['python']}, {facts['system']}",
        highlight=False,
    )
    console.print(", ".join(f"{name} {version}" for name, version in facts["versions"].items()), highlight=False)
    if "gpu" in facts:
        console.print(", ".join(f"{name} {value}" for name, value in facts["gpu"].items() if name != "kernels"), highlight=False)


def write_json(path: Path, report: dict[str, Any]) -> None:
    """Store a report."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """The median of the ratios of the same round: what slows down a whole round drops out."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed.

    >>> percentile([5.0, 1.0, 2.0, 4.0, 3.0], 50), percentile([1.0, 2.0], 99)
    (3.0, 2.0)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def format_load(row: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a load of the JPEG engine: images a second, p50, p99, images per CPU second, the share of each decoder."""
    engines = {engine: count for engine, count in row["engines"].items() if engine != "refused"}  # those were decoded, and counted, by another one
    decoded = max(sum(engines.values()), 1)
    numbers = (f"{row['images_per_second']:.0f}", f"{row['batch_ms_p50']:.2f}", f"{row['batch_ms_p99']:.2f}", f"{row['images_per_cpu_second']:.0f}")
    return *numbers, ", ".join(f"{engine} {count / decoded:.2f}" for engine, count in engines.items())


def color(value: float, bar: float = 1.0) -> str:
    """A ratio for the table: green when it reaches the bar."""
    return f"[{'green' if value >= bar else 'red'}]{value:.2f}[/]"


def commit() -> str:
    """The commit of the checkout that this package is imported from, with a + when files were changed."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(Path(__file__).parent), *words], capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
