# SPDX-License-Identifier: Apache-2.0
"""The functionals of ``torch_ndd.torchvision.v2`` on a Batch, against torchvision's on the same images in one tensor."""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torchvision.transforms import v2 as theirs

import torch_ndd as ndd
from torch_ndd.torchvision import v2 as ours

from ._report import color, ratio

_BATCH, _SIZE = 16, (256, 320)
_START, _END = [[0, 0], [319, 0], [319, 255], [0, 255]], [[20, 10], [300, 5], [310, 240], [8, 250]]
_FIELD = torch.randn(1, *_SIZE, 2, generator=torch.Generator().manual_seed(0)) * 0.05

# A name, and a call of functionals on images; what torchvision returns as a view is copied, because the batch has to be read from memory anyway.
CASES: dict[str, Callable[[Any, Any], Any]] = {
    "resize to 224, bilinear": lambda f, x: f.resize(x, [224, 224]),
    "resize to 224, bicubic": lambda f, x: f.resize(x, [224, 224], interpolation="bicubic"),
    "resize to 224, nearest": lambda f, x: f.resize(x, [224, 224], interpolation="nearest"),
    "resized_crop to 224": lambda f, x: f.resized_crop(x, 20, 30, 200, 220, [224, 224]),
    "center_crop": lambda f, x: f.center_crop(x, [224, 224]),
    "pad": lambda f, x: f.pad(x, 16),
    "pad, reflect": lambda f, x: f.pad(x, 16, padding_mode="reflect"),
    "horizontal_flip": lambda f, x: f.horizontal_flip(x),
    "rotate, nearest": lambda f, x: f.rotate(x, 20.0),
    "rotate, bilinear": lambda f, x: f.rotate(x, 20.0, interpolation="bilinear", fill=0),
    "affine, bilinear": lambda f, x: f.affine(x, 10.0, [3, 4], 1.1, [2.0, 3.0], interpolation="bilinear"),
    "perspective": lambda f, x: f.perspective(x, _START, _END),
    "elastic": lambda f, x: f.elastic(x, _FIELD),
    "adjust_brightness": lambda f, x: f.adjust_brightness(x, 1.2),
    "adjust_contrast": lambda f, x: f.adjust_contrast(x, 1.2),
    "adjust_saturation": lambda f, x: f.adjust_saturation(x, 1.2),
    "adjust_hue": lambda f, x: f.adjust_hue(x, 0.1),
    "adjust_sharpness": lambda f, x: f.adjust_sharpness(x, 1.5),
    "adjust_gamma": lambda f, x: f.adjust_gamma(x, 0.8),
    "rgb_to_grayscale": lambda f, x: f.rgb_to_grayscale(x, 3),
    "posterize": lambda f, x: f.posterize(x, 4),
    "solarize": lambda f, x: f.solarize(x, 0.5 if x.dtype.is_floating_point else 128),
    "invert": lambda f, x: f.invert(x),
    "autocontrast": lambda f, x: f.autocontrast(x),
    "equalize": lambda f, x: f.equalize(x),
    "permute_channels": lambda f, x: f.permute_channels(x, [2, 0, 1]),
    "gaussian_blur, 5": lambda f, x: f.gaussian_blur(x, 5, 1.0),
    "gaussian_blur, 23": lambda f, x: f.gaussian_blur(x, 23, 3.0),
    "gaussian_noise": lambda f, x: f.gaussian_noise(x),
    "to_dtype float32": lambda f, x: f.to_dtype(x, torch.float32, scale=True),
    "normalize": lambda f, x: f.normalize(x, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    "erase": lambda f, x: f.erase(x, 30, 40, 50, 60, torch.zeros(3, 1, 1)),
    "jpeg": lambda f, x: f.jpeg(x, 50),
}
_FLOATS_ONLY, _BYTES_ONLY = ("normalize",), ("jpeg", "to_dtype float32")


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    torch.set_num_threads(options.threads)
    ndd.set_num_threads(options.threads)
    table = Table(title=f"{_BATCH} images of {_SIZE[0]}x{_SIZE[1]}x3 (CHW), milliseconds")
    for heading in ("functional", "torch_ndd", "torchvision", "torch_ndd is x times as fast"):
        table.add_column(heading, justify="left" if heading == "functional" else "right")
    results: dict[str, Any] = {}
    failed: dict[str, str] = {}
    pixels = torch.randint(0, 256, (_BATCH, 3, *_SIZE), generator=torch.Generator().manual_seed(0))
    for dtype in (torch.uint8, torch.float32):
        values = pixels.to(torch.uint8) if dtype is torch.uint8 else pixels.float() / 255
        batch = ndd.as_batch(values.clone(), layout="CHW")
        for case, call in CASES.items():
            name = f"{case}, {str(dtype)[6:]}"
            if case in (_FLOATS_ONLY if dtype is torch.uint8 else _BYTES_ONLY) or (options.only is not None and not options.only.search(name)):
                continue
            contestants = [
                functools.partial(lambda call, x: call(ours.functional, x).torch(), call, batch),
                functools.partial(lambda call, x: call(theirs.functional, x).contiguous(), call, values),
            ]
            try:
                for contestant in contestants:
                    contestant()
            except Exception as error:  # the table goes on without it
                failed[f"torch_ndd or torchvision: {name}"] = repr(error)
                continue
            rounds = [[_seconds(contestant, options.milliseconds / 1e3) for contestant in contestants] for _ in range(options.rounds)]
            mine, other = ([times[k] for times in rounds] for k in (0, 1))
            row = {"torch_ndd_ms": statistics.median(mine) * 1e3, "torchvision_ms": statistics.median(other) * 1e3, "ratio": ratio(other, mine)}
            results[name] = row
            table.add_row(name, f"{row['torch_ndd_ms']:.2f}", f"{row['torchvision_ms']:.2f}", color(row["ratio"], 1.0))
    console.print(table)
    return {"results": results, "failed": failed}


def _seconds(function: Callable[[], Any], least: float) -> float:
    """Of one call: the quickest of as many as fit in ``least`` seconds, two at least."""
    taken: list[float] = []
    while len(taken) < 2 or sum(taken) < least:
        begin = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begin)
    return min(taken)
