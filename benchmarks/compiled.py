# SPDX-License-Identifier: Apache-2.0
"""Chains of operators and operators alone, compiled by ``torch.compile`` and not: one kernel against one pass over memory for each operator."""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import torch_ndd as ndd
from torch_ndd import types

from ._report import colour, ratio

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


def _colours(x: Any, factor: Any, angle: Any, coin: Any) -> Any:
    x = ndd.flip(ndd.color_twist(ndd.brightness(x, brightness=1.1), hue=angle, saturation=factor), horizontal=coin)
    return ndd.crop_mirror_normalize(x, mean=_MEAN, std=_STD)


def _bytes(x: Any, factor: Any, angle: Any, coin: Any) -> Any:
    x = ndd.brightness_contrast(ndd.brightness(x, brightness=factor), contrast=0.8)
    return ndd.flip(ndd.hsv(x, hue=angle), horizontal=coin)


def _normalized(x: Any, coin: Any, layout: str) -> Any:
    return ndd.crop_mirror_normalize(x, mirror=coin, mean=_MEAN, std=_STD, output_layout=layout)


_ALONE: dict[str, Chain] = {
    "brightness": lambda x, factor, angle, coin: ndd.brightness(x, brightness=factor),
    "brightness_contrast, constants": lambda x, factor, angle, coin: ndd.brightness_contrast(x, brightness=1.2, contrast=0.8),
    "color_twist": lambda x, factor, angle, coin: ndd.color_twist(x, hue=angle, saturation=factor, contrast=factor),
    "hue": lambda x, factor, angle, coin: ndd.hue(x, hue=angle),
    "hsv": lambda x, factor, angle, coin: ndd.hsv(x, hue=angle, saturation=factor, dtype=x.dtype),
    "saturation": lambda x, factor, angle, coin: ndd.saturation(x, saturation=factor),
    "color_space_conversion": lambda x, factor, angle, coin: ndd.color_space_conversion(x, image_type=types.RGB, output_type=types.YCbCr),
    "flip": lambda x, factor, angle, coin: ndd.flip(x, horizontal=coin),
    "crop_mirror_normalize to CHW": lambda x, factor, angle, coin: _normalized(x, coin, "CHW"),
    "crop_mirror_normalize to HWC": lambda x, factor, angle, coin: _normalized(x, coin, "HWC"),
    "normalize": lambda x, factor, angle, coin: ndd.normalize(x, axes=[0, 1]),
    "arithmetic": lambda x, factor, angle, coin: x * 0.5 + 3,
    "comparison": lambda x, factor, angle, coin: x < 100,
}
# Each on both types of input.
CHAINS: dict[str, Chain] = {
    "pointwise: brightness, contrast, brightness_contrast, normalise": _pointwise,
    "to planes: brightness, contrast, flip, normalise to CHW": _planes,
    "to planes, a value a sample": _samples,
    "brightness, color_twist with a hue a sample, flip, normalise to CHW": _colours,
    "brightness, brightness_contrast, hsv, flip": _bytes,
    **{f"alone: {name}": chain for name, chain in _ALONE.items()},
}
_BAR, _BAR_ALONE = 1.5, 1.0


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    torch.set_num_threads(options.threads)
    ndd.set_num_threads(options.threads)
    table = Table(title=f"{_BATCH} images of 224x224x3, milliseconds")
    for heading in ("chain", "uncompiled", "compiled", "compiled is x times as fast"):
        table.add_column(heading, justify="left" if heading == "chain" else "right")
    results = {}
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (_BATCH, 224, 224, 3), generator=generator)
    random = torch.rand(3, _BATCH, generator=generator)
    given = (ndd.as_batch(random[0] + 0.5), ndd.as_batch(random[1] * 60 - 30), ndd.as_batch((random[2] < 0.5).int()))
    for (described, chain), dtype in itertools.product(CHAINS.items(), (torch.uint8, torch.float32)):
        name = f"{str(dtype)[6:]}, {described}"
        if options.only is not None and not options.only.search(name):
            continue
        batch = ndd.as_batch(pixels.to(dtype), layout="HWC")
        torch.compiler.reset()
        contestants = [functools.partial(one, batch, *given) for one in (chain, torch.compile(chain, fullgraph=True))]
        for contestant in contestants:
            contestant().torch()
        rounds = [[_seconds(contestant, options.milliseconds / 1e3) for contestant in contestants] for _ in range(options.rounds)]
        plain, compiled = ([one[k] for one in rounds] for k in (0, 1))
        results[name] = {
            "uncompiled_ms": statistics.median(plain) * 1e3,
            "compiled_ms": statistics.median(compiled) * 1e3,
            "compiled_ratio": ratio(plain, compiled),
        }
        row = results[name]
        bar = _BAR_ALONE if described.startswith("alone") else _BAR
        table.add_row(name, f"{row['uncompiled_ms']:.2f}", f"{row['compiled_ms']:.2f}", colour(row["compiled_ratio"], bar))
    console.print(table)
    return {"results": results, "failed": {}}


def _seconds(function: Callable[[], Any], least: float) -> float:
    """Of one call: the quickest of as many as fit in ``least`` seconds, three at least."""
    taken: list[float] = []
    while len(taken) < 3 or sum(taken) < least:
        begin = time.perf_counter()
        function().torch()
        taken.append(time.perf_counter() - begin)
    return min(taken)
