# SPDX-License-Identifier: Apache-2.0
"""What JPEG decoders do wrong that only a GPU shows: memory overwritten too early, and windows.

NVIDIA's hardware engine ignores the CUDA stream that it is given and writes immediately, so the memory of a queued kernel that was freed in the order
of the stream is overwritten before the kernel has read it (pytorch/vision#9606). A round fills a block, keeps the stream busy, queues a copy of the
block, frees it and decodes an image of the same size, which gets the block. Each library runs in a process of its own: a crash is a result too.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from .._loaders import Job
from .._process import Handler, PeerError, limit_threads, running
from ..main_job import prepare

_FILL = 77
_BUSY_CYCLES = 10_000_000  # 5 ms: an image is decoded in one
_WINDOWS, _LARGEST_DIFFERENCE = 64, 3  # images, and levels by which decoders may differ

Decode = Callable[[bytes], torch.Tensor]
Enter = Callable[[], AbstractContextManager[Any]]


def _torchvision() -> tuple[Decode, Enter]:
    io = importlib.import_module("torchvision.io")

    def decode(data: bytes) -> torch.Tensor:
        return io.decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=io.ImageReadMode.RGB, device="cuda")

    return decode, nullcontext


def _torch_ndd() -> tuple[Decode, Enter]:
    import torch_ndd as ndd
    from torch_ndd._core.work.cuda_work import on_decode_stream

    def decode(data: bytes) -> torch.Tensor:
        return ndd.decoders.image([data], device="gpu", hw_decoder_load=1.0).torch()[0]

    return decode, partial(on_decode_stream, torch.device("cuda", torch.cuda.current_device()))


LIBRARIES: dict[str, Callable[[], tuple[Decode, Enter]]] = {"torch_ndd": _torch_ndd, "torchvision": _torchvision}


def count_overwritten(decode: Decode, enter: Enter, data: bytes, rounds: int) -> int:
    """Return in how many rounds a queued copy of freed memory read what was decoded later; ``enter`` makes the decoder's stream current."""
    like = decode(data)
    kept = torch.empty_like(like)
    overwritten = 0
    for _ in range(rounds):
        with enter():
            block = torch.full_like(like, _FILL)
            torch.cuda._sleep(_BUSY_CYCLES)
            kept.copy_(block)
            del block
        decoded = decode(data)
        torch.cuda.synchronize()
        overwritten += int((kept != _FILL).any())
        if not torch.equal(decoded, like):
            raise ValueError("an image decoded while the stream was busy has other pixels")
    return overwritten


def _count_in_process(name: str, job: Job) -> Handler:
    """Run in a library's process: answer a number of rounds with those that were overwritten."""
    decode, enter = LIBRARIES[name]()
    return partial(count_overwritten, decode, enter, Path(job.files[0]).read_bytes())


def find_wrong_windows(files: list[str], load: float, device: str) -> list[str]:
    """Return the files of which a decoded window is not that of the CPU: pixels differ by more than 3 levels on average."""
    import torch_ndd as ndd

    encoded = [Path(path).read_bytes() for path in files]
    window: dict[str, Any] = {"start": [17, 33], "shape": [96, 128], "axes": [0, 1]}
    found = ndd.decoders.image_slice(encoded, device=device, hw_decoder_load=load, jpeg_fancy_upsampling=True, **window)
    expected = ndd.decoders.image_slice(encoded, **window)
    found_images, expected_images = found.cpu().torch().float(), expected.torch().float()
    differences = (found_images - expected_images).abs().mean(dim=(1, 2, 3))
    return [path for path, difference in zip(files, differences.tolist(), strict=True) if difference > _LARGEST_DIFFERENCE]


def _find_in_process(job: Job) -> Handler:
    """Run in a process: answer a load of the engine with the number of wrong windows."""
    device = "gpu" if job.device == "cuda" else "cpu"
    return lambda load: len(find_wrong_windows(job.files[:_WINDOWS], load, device))


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Count, print, return the figures."""
    limit_threads(options.threads)
    results: dict[str, dict[str, int]] = {}
    with ExitStack() as stack:
        job, _ = prepare(options, stack)
        # Of each row: what its process runs, the request, and how many there are.
        rows: dict[str, tuple[tuple[Callable[..., Handler], tuple[Any, ...]], Any, int]] = {
            f"{name}, overwritten": ((_count_in_process, (name, job)), options.rounds, options.rounds) for name in LIBRARIES
        }
        rows |= {f"torch_ndd, wrong windows, load {load}": ((_find_in_process, (job,)), load, _WINDOWS) for load in (0.0, 1.0)}
        peers, failed = stack.enter_context(running({name: process for name, (process, _, _) in rows.items()}))
        for peer in peers:
            _, request, count = rows[peer.name]
            try:
                results[peer.name] = {"wrong": peer.ask(request), "of": count}
            except PeerError as error:
                failed[peer.name] = str(error)
    for name, figures in results.items():
        text = f"{figures['wrong']} of {figures['of']}"
        console.print(f"{name}: {text}", style="red" if figures["wrong"] else None, highlight=False)
        if figures["wrong"] and name.startswith("torch_ndd"):
            failed[name] = text
    for name, text in failed.items():
        console.print(f"{name} failed:", text.strip(), style="red", highlight=False, markup=False)
    return {"results": results, "failed": failed}
