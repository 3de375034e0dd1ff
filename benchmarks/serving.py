# SPDX-License-Identifier: Apache-2.0
"""One encoded photograph at a time through ImageNet's validation transform, as a web handler does: the latency beside torchvision's.

Each round sends all photographs, of two sizes in random order, one after the other. torchvision runs ``transforms.v2`` on Pillow's image, as its
documentation shows, and on the tensor of its own decoder, which is faster.
"""

from __future__ import annotations

import argparse
import functools
import io
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from . import _rounds
from ._loaders import SUBJECT
from ._photos import write_jpegs
from ._process import Handler, limit_threads, running
from ._report import color, percentile, ratio

BAR = 1.0
_MEAN, _STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
Handle = Callable[[bytes], torch.Tensor]


def use_torch_ndd() -> Handle:
    """Return the transform of torch_ndd."""
    import torch_ndd as ndd

    mean, std = [255 * m for m in _MEAN], [255 * s for s in _STD]

    def handle(file: bytes) -> torch.Tensor:
        image = ndd.resize(ndd.decoders.image(file), resize_shorter=256)
        return ndd.crop_mirror_normalize(image, crop=[224, 224], mean=mean, std=std).torch()

    return handle


def use_torchvision(on_tensors: bool) -> Handle:
    """Return torchvision's transform, of a Pillow image or of a tensor."""
    from PIL import Image
    from torchvision.io import ImageReadMode, decode_image
    from torchvision.transforms import v2

    floats = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(_MEAN, _STD)]
    transform = v2.Compose([v2.Resize(256, antialias=True), v2.CenterCrop(224), v2.ToImage(), *floats])
    if not on_tensors:
        return lambda file: transform(Image.open(io.BytesIO(file)).convert("RGB"))
    warnings.simplefilter("ignore", DeprecationWarning)  # of torchvision.io
    return lambda file: transform(decode_image(torch.frombuffer(bytearray(file), dtype=torch.uint8), mode=ImageReadMode.RGB))


SIDES: dict[str, Callable[[], Handle]] = {
    SUBJECT: use_torch_ndd,
    "torchvision, Pillow": functools.partial(use_torchvision, False),
    "torchvision, tensors": functools.partial(use_torchvision, True),
}


def handler(side: str, folder: str, threads: int) -> Handler:
    """Runs in the competitor's process: answers each request with the seconds of every photograph."""
    torch.set_num_threads(threads)
    handle = SIDES[side]()
    files = [path.read_bytes() for path in sorted(Path(folder).glob("*.jpg"))]
    if tuple(handle(files[0]).shape) != (3, 224, 224):
        raise ValueError(f"delivered {tuple(handle(files[0]).shape)}")

    @torch.inference_mode()
    def measure(_: Any) -> list[float]:
        seconds = []
        for file in files:
            begin = time.perf_counter()
            handle(file)
            seconds.append(time.perf_counter() - begin)
        return seconds

    measure(None)
    return measure


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    limit_threads(options.threads)
    with tempfile.TemporaryDirectory(prefix="torch_ndd_bench_") as folder, ExitStack() as stack:
        write_jpegs(Path(folder), options.images)
        chosen = [side for side in SIDES if options.only is None or options.only.search(side)]
        peers, failed = stack.enter_context(running({side: (handler, (side, folder, options.threads)) for side in chosen}))
        rounds = _rounds.alternate(peers, 1, options.rounds, failed, settle=True)
    results: dict[str, dict[str, float]] = {}
    table = Table(title=f"one photograph of 500x375 at a time, {options.threads} threads")
    table.add_column("by")
    for heading in ("p50, ms", "p99, ms", "torch_ndd is faster, times"):
        table.add_column(heading, justify="right")
    for side, taken in rounds.items():
        seconds = [second for measured in taken for second in measured]
        results[side] = {"ms_p50": percentile(seconds, 50) * 1e3, "ms_p99": percentile(seconds, 99) * 1e3}
        if side != SUBJECT and SUBJECT in rounds:
            results[side]["torch_ndd_ratio"] = ratio([percentile(m, 50) for m in taken], [percentile(m, 50) for m in rounds[SUBJECT]])
        shown = results[side].get("torch_ndd_ratio")
        table.add_row(side, f"{results[side]['ms_p50']:.2f}", f"{results[side]['ms_p99']:.2f}", "" if shown is None else color(shown, BAR))
    console.print(table)
    for name, text in failed.items():
        console.print(f"[red]{name} failed:[/]", text.strip(), highlight=False, markup=False)
    return {"results": results, "failed": failed}
