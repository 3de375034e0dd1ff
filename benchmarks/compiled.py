# SPDX-License-Identifier: Apache-2.0
"""Chains of operators and operators alone, compiled by ``torch.compile`` and not: one kernel against one pass over memory for each operator.

The first compilation is that of a fresh process with an empty cache of Inductor's, and includes the check of the vector instructions.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import torch_ndd as ndd
from torch_ndd import types

from ._report import color, ratio

_MEAN, _STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
_BATCH = 16


Chain = Callable[[Any, Any, Any, Any], Any]  # (images, factors about 1, degrees, 0 or 1), one of each a sample


def _pointwise(x: Any, factor: Any, angle: Any, coin: Any) -> Any:
    x = ndd.brightness_contrast(ndd.contrast(ndd.brightness(x, brightness=1.2), contrast=0.8), contrast=1.1)
    return ndd.crop_mirror_normalize(x, mean=_MEAN, std=_STD, output_layout="HWC")


def _planes(x: Any, factor: Any, angle: Any, coin: Any) -> Any:
    return ndd.crop_mirror_normalize(ndd.flip(ndd.contrast(ndd.brightness(x, brightness=1.2), contrast=0.8)), mean=_MEAN, std=_STD)


def _samples(x: Any, factor: Any, angle: Any, coin: Any) -> Any:
    x = ndd.flip(ndd.contrast(ndd.brightness(x, brightness=factor), contrast=factor), horizontal=coin)
    return ndd.crop_mirror_normalize(x, mean=_MEAN, std=_STD)


def _colors(x: Any, factor: Any, angle: Any, coin: Any) -> Any:
    x = ndd.flip(ndd.color_twist(ndd.brightness(x, brightness=1.1), hue=angle, saturation=factor), horizontal=coin)
    return ndd.crop_mirror_normalize(x, mean=_MEAN, std=_STD)


def _bytes(x: Any, factor: Any, angle: Any, coin: Any) -> Any:
    x = ndd.brightness_contrast(ndd.brightness(x, brightness=factor), contrast=0.8)
    return ndd.flip(ndd.hsv(x, hue=angle), horizontal=coin)


def _two(x: Any, factor: Any, angle: Any, coin: Any) -> Any:
    return ndd.crop_mirror_normalize(ndd.brightness(x, brightness=factor), mirror=coin, mean=_MEAN, std=_STD)


def _three(x: Any, factor: Any, angle: Any, coin: Any) -> Any:
    return _two(ndd.contrast(x, contrast=0.8), factor, angle, coin)


def _five(x: Any, factor: Any, angle: Any, coin: Any) -> Any:
    return _samples(ndd.saturation(x, saturation=factor), factor, angle, coin)


def _six(x: Any, factor: Any, angle: Any, coin: Any) -> Any:
    return _colors(ndd.posterize(ndd.contrast(x, contrast=factor), bits=6), factor, angle, coin)


def _normalize(x: Any, coin: Any, layout: str) -> Any:
    return ndd.crop_mirror_normalize(x, mirror=coin, mean=_MEAN, std=_STD, output_layout=layout)


_PREFIX = "alone: "
_ALONE: dict[str, Chain] = {
    "brightness": lambda x, factor, angle, coin: ndd.brightness(x, brightness=factor),
    "brightness_contrast, constants": lambda x, factor, angle, coin: ndd.brightness_contrast(x, brightness=1.2, contrast=0.8),
    "color_twist": lambda x, factor, angle, coin: ndd.color_twist(x, hue=angle, saturation=factor, contrast=factor),
    "hue": lambda x, factor, angle, coin: ndd.hue(x, hue=angle),
    "hsv": lambda x, factor, angle, coin: ndd.hsv(x, hue=angle, saturation=factor, dtype=x.dtype),
    "saturation": lambda x, factor, angle, coin: ndd.saturation(x, saturation=factor),
    "color_space_conversion": lambda x, factor, angle, coin: ndd.color_space_conversion(x, image_type=types.RGB, output_type=types.YCbCr),
    "flip": lambda x, factor, angle, coin: ndd.flip(x, horizontal=coin),
    "crop_mirror_normalize to CHW": lambda x, factor, angle, coin: _normalize(x, coin, "CHW"),
    "crop_mirror_normalize to HWC": lambda x, factor, angle, coin: _normalize(x, coin, "HWC"),
    "normalize": lambda x, factor, angle, coin: ndd.normalize(x, axes=[0, 1]),
    "arithmetic": lambda x, factor, angle, coin: x * 0.5 + 3,
    "comparison": lambda x, factor, angle, coin: x < 100,
}
# Each on both types of input.
CHAINS: dict[str, Chain] = {
    "2: brightness, normalize to CHW": _two,
    "3: contrast, brightness, normalize to CHW": _three,
    "4, pointwise: brightness, contrast, brightness_contrast, normalize": _pointwise,
    "4, to planes: brightness, contrast, flip, normalize to CHW": _planes,
    "4, to planes, a value a sample: brightness, contrast, flip, normalize to CHW": _samples,
    "4: brightness, color_twist with a hue a sample, flip, normalize to CHW": _colors,
    "4: brightness, brightness_contrast, hsv, flip": _bytes,
    "5: saturation, brightness, contrast, flip, normalize to CHW": _five,
    "6: contrast, posterize, brightness, color_twist, flip, normalize to CHW": _six,
    **{f"{_PREFIX}{name}": chain for name, chain in _ALONE.items()},
}
_BAR, _BAR_RAGGED, _BAR_FIRST = 1.5, 1.0, 20.0


def _make_arguments(dtype: torch.dtype, ragged: bool) -> tuple[Any, ...]:
    """Return the images and the arguments of a chain. Ragged ones have as many pixels in the mean."""
    generator = torch.Generator().manual_seed(0)
    sides = [208 + 32 * k // (_BATCH - 1) if ragged else 224 for k in range(_BATCH)]
    images = [torch.randint(0, 256, (side, 448 - side, 3), generator=generator).to(dtype) for side in sides]
    batch = ndd.batch(images, layout="HWC") if ragged else ndd.as_batch(torch.stack(images), layout="HWC")
    random = torch.rand(3, _BATCH, generator=generator)
    return batch, ndd.as_batch(random[0] + 0.5), ndd.as_batch(random[1] * 60 - 30), ndd.as_batch((random[2] < 0.5).int())


def first_compilation(described: str, dtype: str, ragged: bool, threads: int) -> None:
    """Runs in a fresh process: prints the seconds of the first call of a compiled chain."""
    torch.set_num_threads(threads)
    ndd.set_num_threads(threads)
    arguments = _make_arguments(getattr(torch, dtype), ragged)
    begin = time.perf_counter()
    torch.compile(CHAINS[described], fullgraph=True)(*arguments).evaluate()
    print(time.perf_counter() - begin)


def _first_seconds(*arguments: Any) -> float:
    program = f"from benchmarks import compiled; compiled.first_compilation(*{arguments!r})"
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
        process = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise RuntimeError(process.stderr)
    return float(process.stdout)


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    torch.set_num_threads(options.threads)
    ndd.set_num_threads(options.threads)
    table = Table(title=f"{_BATCH} images of 224x224x3, ragged ones of 208x240 to 240x208, milliseconds")
    for heading in ("chain", "uncompiled", "compiled", "compiled is x times as fast", *(["first compilation, s"] if options.first else [])):
        table.add_column(heading, justify="left" if heading == "chain" else "right")
    results: dict[str, dict[str, float]] = {}
    failed: dict[str, str] = {}
    for (described, chain), dtype, ragged in itertools.product(CHAINS.items(), (torch.uint8, torch.float32), (False, True)):
        alone = described.startswith(_PREFIX)
        name = f"{str(dtype)[6:]}, {'ragged, ' if ragged else ''}{described}"
        if (alone and ragged) or (options.only is not None and not options.only.search(name)):
            continue
        arguments = _make_arguments(dtype, ragged)
        torch.compiler.reset()
        contestants = [functools.partial(function, *arguments) for function in (chain, torch.compile(chain, fullgraph=True))]
        for contestant in contestants:
            contestant().evaluate()
        rounds = [[_seconds(contestant, options.milliseconds / 1e3) for contestant in contestants] for _ in range(options.rounds)]
        plain, compiled = ([seconds[k] for seconds in rounds] for k in (0, 1))
        row = results[name] = {
            "uncompiled_ms": statistics.median(plain) * 1e3,
            "compiled_ms": statistics.median(compiled) * 1e3,
            "compiled_ratio": ratio(plain, compiled),
        }
        shown = [f"{row['uncompiled_ms']:.2f}", f"{row['compiled_ms']:.2f}"]
        shown.append(color(row["compiled_ratio"], _BAR_RAGGED if alone or ragged else _BAR))
        if options.first and not alone:
            try:
                row["first_s"] = _first_seconds(described, str(dtype)[6:], ragged, options.threads)
                shown.append(f"{row['first_s']:.1f}" if row["first_s"] < _BAR_FIRST else f"[red]{row['first_s']:.1f}")
            except RuntimeError as error:
                failed[name] = str(error)
        table.add_row(name, *shown)
    console.print(table)
    for name, text in failed.items():
        console.print(f"[red]{name} failed:[/]", text.strip(), highlight=False, markup=False)
    return {"results": results, "failed": failed}


def _seconds(function: Callable[[], Any], least: float) -> float:
    """Return the time of a call: the quickest of as many as fit in ``least`` seconds, at least three."""
    taken: list[float] = []
    while len(taken) < 3 or sum(taken) < least:
        begin = time.perf_counter()
        function().evaluate()
        taken.append(time.perf_counter() - begin)
    return min(taken)
