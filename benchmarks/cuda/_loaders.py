# SPDX-License-Identifier: Apache-2.0
"""Who does the main job on a GPU: the programs of the CPU with images decoded and augmented there; the labels stay on the host."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Iterator
from itertools import cycle
from typing import Any

from .._loaders import BATCH, DALI, LIMIT, SUBJECT, Batches, Competitor, Job, _chunks, _load_module, data_loader, pipeline

# The numbers and devices of the imperative loops are literals because DALI's capture mode only follows literals.


def run_imperative(job: Job, module: str, capture: bool = False) -> Batches:
    """The plain loop, the same program for torch_ndd and for DALI's dynamic mode."""
    ndd = _load_module(module, job.threads)
    reader = ndd.readers.File(**job.epoch, random_shuffle=True)
    while True:
        for jpegs, classes in reader.next_epoch(batch_size=64, capture=capture):
            images = ndd.decoders.image(jpegs, device="gpu")
            images = ndd.random_resized_crop(images, size=[224, 224])
            mirror = ndd.random.coin_flip(batch_size=64, probability=0.5)
            images = ndd.crop_mirror_normalize(images, mirror=mirror, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
            yield images.torch(), classes.torch()


def run_imperative_fused(job: Job, module: str, capture: bool = False) -> Batches:
    """The same with the decoder that decodes only the random crop."""
    ndd = _load_module(module, job.threads)
    reader = ndd.readers.File(**job.epoch, random_shuffle=True)
    while True:
        for jpegs, classes in reader.next_epoch(batch_size=64, capture=capture):
            images = ndd.decoders.image_random_crop(jpegs, device="gpu")
            images = ndd.resize(images, size=[224, 224])
            mirror = ndd.random.coin_flip(batch_size=64, probability=0.5)
            images = ndd.crop_mirror_normalize(images, mirror=mirror, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
            yield images.torch(), classes.torch()


def decoded_on_cpu(job: Job, module: str) -> Batches:
    """Only the decoder is on the CPU; its crops go to the GPU."""
    ndd = _load_module(module, job.threads)
    reader = ndd.readers.File(**job.epoch, random_shuffle=True)
    while True:
        for jpegs, classes in reader.next_epoch(batch_size=64):
            images = ndd.decoders.image_random_crop(jpegs)
            images = ndd.resize(images.gpu(), size=[224, 224])
            mirror = ndd.random.coin_flip(batch_size=64, probability=0.5)
            images = ndd.crop_mirror_normalize(images, mirror=mirror, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
            yield images.torch(), classes.torch()


def run_ahead(job: Job, decoder: str = "gpu") -> Batches:
    """The fused program as the function of the loader, which runs it ahead."""
    ndd = _load_module("torch_ndd", job.threads)

    def augment(jpegs: Any, classes: Any) -> tuple[Any, Any]:
        images = ndd.decoders.image_random_crop(jpegs, device=decoder)
        images = ndd.resize(images if decoder == "gpu" else images.gpu(), size=[224, 224])
        mirror = ndd.random.coin_flip(batch_size=images.batch_size, probability=0.5)
        return ndd.crop_mirror_normalize(images, mirror=mirror, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375]), classes

    loader = ndd.DataLoader(ndd.readers.File(**job.epoch, random_shuffle=True), augment, batch_size=BATCH, drop_last=True)
    while True:
        yield from loader


def uploaded_data_loader(job: Job, decoder: str, workers: int) -> Batches:
    """torch's DataLoader on the CPU; the batches go to the GPU."""
    for images, classes in data_loader(job, decoder, workers):
        yield images.pin_memory().to("cuda", non_blocking=True), classes


def decode_only(job: Job) -> Iterator[tuple[Any, Any]]:
    """nvJPEG decodes whole images, through torchvision; nothing else happens."""
    io = importlib.import_module("torchvision.io")
    _load_module("torch_ndd", job.threads)
    ahead: deque[Any] = deque(maxlen=2)
    for chunk in cycle(_chunks([io.read_file(file) for file in job.files])):
        ahead.append(io.decode_jpeg(chunk, mode=io.ImageReadMode.RGB, device="cuda"))
        yield ahead[-1], None


def competitors(threads: int) -> dict[str, Competitor]:
    """By name, torch_ndd first."""
    return {
        SUBJECT: Competitor(run_imperative_fused, {"module": "torch_ndd"}),
        "torch_ndd, DataLoader": Competitor(run_ahead, {}, "torch_ndd"),
        "torch_ndd, DataLoader, decoded on the CPU": Competitor(run_ahead, {"decoder": "cpu"}, "torch_ndd"),
        "torch_ndd, capture": Competitor(run_imperative_fused, {"module": "torch_ndd", "capture": True}),
        "torch_ndd, decode whole": Competitor(run_imperative, {"module": "torch_ndd"}),
        "torch_ndd, decoded on the CPU": Competitor(decoded_on_cpu, {"module": "torch_ndd"}),
        "DALI dynamic": Competitor(run_imperative, {"module": DALI}, "nvidia.dali"),
        "DALI dynamic, fused crop": Competitor(run_imperative_fused, {"module": DALI}, "nvidia.dali"),
        "DALI dynamic, capture": Competitor(run_imperative, {"module": DALI, "capture": True}, "nvidia.dali"),
        "DALI dynamic, fused crop, capture": Competitor(run_imperative_fused, {"module": DALI, "capture": True}, "nvidia.dali"),
        "torch_ndd.dali pipeline": Competitor(pipeline, {"fused": False, "package": "torch_ndd.dali"}, "torch_ndd"),
        "torch_ndd.dali pipeline, fused crop": Competitor(pipeline, {"fused": True, "package": "torch_ndd.dali"}, "torch_ndd"),
        "DALI pipeline": Competitor(pipeline, {"fused": False}, "nvidia.dali"),
        "DALI pipeline, fused crop": Competitor(pipeline, {"fused": True}, "nvidia.dali"),
        f"DataLoader decode_image, {threads} workers, uploaded": Competitor(
            uploaded_data_loader, {"decoder": "decode_image", "workers": threads}, "torchvision"
        ),
        LIMIT: Competitor(decode_only, {}, "torchvision"),
    }
