# SPDX-License-Identifier: Apache-2.0
"""Chains of operators on the GPU, compiled by ``torch.compile`` and not, beside torchvision v2 and kornia where they have such a chain."""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import torch_ndd as ndd

from .._process import is_installed
from .._report import color, ratio
from ..compiled import CHAINS
from . import _timing

BATCH = 256  # of 224x224: 38 MB of bytes, 154 MB of floats
_BAR, _BAR_ALONE = 1.5, 1.0
_MEAN, _STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]

Chain = Callable[[Any, torch.Tensor], Any]  # the library and (N, C, H, W), channels last in memory


def _tv_pointwise(v2: Any, x: torch.Tensor) -> torch.Tensor:
    f = v2.functional
    x = f.adjust_contrast(f.adjust_contrast(f.adjust_brightness(x, 1.2), 0.8), 1.1)
    return f.normalize(x.float(), _MEAN, _STD, inplace=True)


def _tv_planes(v2: Any, x: torch.Tensor) -> torch.Tensor:
    f = v2.functional
    x = f.horizontal_flip(f.adjust_contrast(f.adjust_brightness(x, 1.2), 0.8)).contiguous()
    return f.normalize(x.float(), _MEAN, _STD, inplace=True)


def _kornia_pointwise(k: Any, x: torch.Tensor) -> torch.Tensor:
    e = k.enhance
    x = e.adjust_contrast(e.adjust_contrast(e.adjust_brightness_accumulative(x, 1.2), 0.8), 1.1)
    return e.normalize(x, torch.tensor(_MEAN, device=x.device) / 255, torch.tensor(_STD, device=x.device) / 255)


def _kornia_planes(k: Any, x: torch.Tensor) -> torch.Tensor:
    x = k.geometry.hflip(k.enhance.adjust_contrast(k.enhance.adjust_brightness_accumulative(x, 1.2), 0.8))
    return k.enhance.normalize(x, torch.tensor(_MEAN, device=x.device) / 255, torch.tensor(_STD, device=x.device) / 255)


def _kornia_colours(k: Any, x: torch.Tensor) -> torch.Tensor:
    x = k.enhance.adjust_saturation(k.enhance.adjust_hue(k.enhance.adjust_brightness_accumulative(x, 1.1), 0.35), 1.2)
    return k.enhance.normalize(k.geometry.hflip(x), torch.tensor(_MEAN, device=x.device) / 255, torch.tensor(_STD, device=x.device) / 255)


def _tv_colours(v2: Any, x: torch.Tensor) -> torch.Tensor:
    f = v2.functional
    x = f.horizontal_flip(f.adjust_saturation(f.adjust_hue(f.adjust_brightness(x, 1.1), 0.06), 1.2)).contiguous()
    return f.normalize(x.float(), _MEAN, _STD, inplace=True)


# By a chain's name, or the words that it begins with: the rivals' chain of as many operators. They take one value for all samples.
_RIVALS: dict[str, tuple[Chain, Chain]] = {
    "pointwise": (_tv_pointwise, _kornia_pointwise),
    "to planes": (_tv_planes, _kornia_planes),
    "brightness, color_twist": (_tv_colours, _kornia_colours),
    "alone: brightness": (lambda v2, x: v2.functional.adjust_brightness(x, 1.2), lambda k, x: k.enhance.adjust_brightness_accumulative(x, 1.2)),
    "alone: hue": (lambda v2, x: v2.functional.adjust_hue(x, 0.06), lambda k, x: k.enhance.adjust_hue(x, 0.35)),
    "alone: saturation": (lambda v2, x: v2.functional.adjust_saturation(x, 1.2), lambda k, x: k.enhance.adjust_saturation(x, 1.2)),
    "alone: flip": (lambda v2, x: v2.functional.horizontal_flip(x).contiguous(), lambda k, x: k.geometry.hflip(x)),
}


def rivals(described: str, pixels: torch.Tensor) -> dict[str, _timing.Call]:
    """The chain in the other libraries, on the same pixels: torchvision on their type, kornia on floats from 0 to 1."""
    alone = described.startswith("alone")
    found = next((chains for name, chains in _RIVALS.items() if (described == name if alone else described.startswith(name))), None)
    if found is None:
        return {}
    calls: dict[str, _timing.Call] = {}
    images = pixels.permute(0, 3, 1, 2)
    if is_installed("torchvision"):
        calls["torchvision"] = functools.partial(found[0], importlib.import_module("torchvision.transforms.v2"), images)
    if is_installed("kornia"):
        calls["kornia"] = functools.partial(found[1], importlib.import_module("kornia"), images.float().div(255).contiguous())
    return calls


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    torch.set_num_threads(options.threads)
    missing = [name for name in ("torchvision", "kornia") if not is_installed(name)]
    if missing:
        console.print("not installed, so not compared with:", ", ".join(missing), style="red")
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (BATCH, 224, 224, 3), generator=generator)
    random = torch.rand(3, BATCH, generator=generator)
    arguments = (ndd.as_batch(random[0] + 0.5), ndd.as_batch(random[1] * 60 - 30), ndd.as_batch((random[2] < 0.5).int()))
    results: dict[str, Any] = {}
    failed: dict[str, str] = {}
    left_out: list[str] = []
    deadline = time.monotonic() + options.seconds
    with torch.cuda.stream(torch.cuda.Stream()):
        ndd.set_current_stream(ndd.stream(stream=torch.cuda.current_stream()))
        for (described, chain), dtype in track([*itertools.product(CHAINS.items(), (torch.uint8, torch.float32))], transient=True):
            name = f"{str(dtype)[6:]}, {described}"
            if options.only is not None and not options.only.search(name):
                continue
            if time.monotonic() > deadline:
                left_out.append(name)
                continue
            try:
                results[name] = _figures(described, chain, pixels.to("cuda", dtype), arguments, options)
            except Exception as error:
                failed[f"torch_ndd {name}"] = f"{type(error).__name__}: {error}"
        torch.cuda.synchronize()
        ndd.set_current_stream(None)
    _print(console, results, failed)
    return {"results": results, "failed": failed, "missing": missing, "left_out": left_out}


def _figures(described: str, chain: Any, values: torch.Tensor, arguments: tuple[Any, ...], options: argparse.Namespace) -> dict[str, Any]:
    batch = ndd.as_batch(values, layout="HWC")
    torch.compiler.reset()
    calls: dict[str, _timing.Call] = {
        "uncompiled": functools.partial(chain, batch, *arguments),
        "compiled": functools.partial(torch.compile(chain, fullgraph=True), batch, *arguments),
        **rivals(described, values),
    }
    differs = _largest_difference(calls["uncompiled"]().torch(), calls["compiled"]().torch())
    rounds = [{name: _timing.device_seconds(call, options.milliseconds / 1e3) for name, call in calls.items()} for _ in range(options.rounds)]
    taken = {name: [figures[name] for figures in rounds] for name in calls}
    return {
        "ms": {name: statistics.median(seconds) * 1e3 for name, seconds in taken.items()},
        "compiled_ratio": {name: ratio(seconds, taken["compiled"]) for name, seconds in taken.items() if name != "compiled"},
        "kernels": {name: _timing.launches(calls[name]).kernels for name in ("uncompiled", "compiled")},
        "largest_difference": differs,
        "bar": _BAR_ALONE if described.startswith("alone") else _BAR,
    }


def _largest_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).abs().max())


def _print(console: Console, results: dict[str, Any], failed: dict[str, str]) -> None:
    columns = ("uncompiled", "compiled", "torchvision", "kornia")
    table = Table(title=f"{BATCH} images of 224x224x3 on the GPU: milliseconds, and how many times faster the compiled chain is")
    for heading in ("chain", *columns, "x uncompiled", "x torchvision", "x kornia", "launches", "difference"):
        table.add_column(heading, justify="left" if heading == "chain" else "right")
    for name, row in sorted(results.items(), key=lambda item: item[1]["compiled_ratio"]["uncompiled"] >= item[1]["bar"]):
        times = row["compiled_ratio"]
        table.add_row(
            name,
            *(f"{row['ms'][column]:.3f}" if column in row["ms"] else "" for column in columns),
            color(times["uncompiled"], row["bar"]),
            *(color(times[rival]) if rival in times else "" for rival in columns[2:]),
            " to ".join(f"{sum(row['kernels'][column].values()):.0f}" for column in columns[:2]),
            f"{row['largest_difference']:.3g}",
        )
    console.print(table)
    for name, text in failed.items():
        console.print(f"{name} failed:", text, style="red", highlight=False, markup=False)
