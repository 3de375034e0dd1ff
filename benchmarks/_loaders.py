# SPDX-License-Identifier: Apache-2.0
"""Who does the main job: endless streams of ``(images, labels)``, 64 normalized 224x224 images at a time."""

from __future__ import annotations

import importlib
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle
from types import ModuleType
from typing import Any

import torch

BATCH = 64
# An epoch has at least this many images, in repeated passes over the files: its start and end play no part.
EPOCH = 100_000
DALI = "nvidia.dali.experimental.dynamic"
SUBJECT = "torch_ndd"
LIMIT = "JPEG decoding only (limit)"

Batches = Iterator[tuple[Any, Any]]


@dataclass
class Job:
    """What all competitors get."""

    files: list[str]
    threads: int
    device: str = "cpu"

    @property
    def epoch(self) -> dict[str, list[Any]]:
        """The files and labels of an epoch, as the File readers take them."""
        files = self.files * -(-EPOCH // len(self.files))
        return {"files": files, "labels": [0] * len(files)}


# The numbers of the imperative loops are literals because DALI's capture mode only follows literals.


def run_imperative(job: Job, module: str, capture: bool = False) -> Batches:
    """The plain loop, the same program for torch_ndd and for DALI's dynamic mode."""
    ndd = _load_module(module, job.threads)
    reader = ndd.readers.File(**job.epoch, random_shuffle=True)
    while True:
        for jpegs, classes in reader.next_epoch(batch_size=64, capture=capture):
            images = ndd.decoders.image(jpegs)
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
            images = ndd.decoders.image_random_crop(jpegs)
            images = ndd.resize(images, size=[224, 224])
            mirror = ndd.random.coin_flip(batch_size=64, probability=0.5)
            images = ndd.crop_mirror_normalize(images, mirror=mirror, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
            yield images.torch(), classes.torch()


def run_cached(job: Job, folder: bool = False, share: float = 1.0) -> Batches:
    """The fused program from the second epoch on, with a cache that holds this share of the decoded images, in memory or in a folder."""
    ndd = _load_module("torch_ndd", job.threads)
    with tempfile.TemporaryDirectory(prefix="torch_ndd_cache_") as place:
        needed = 0
        for jpegs, _ in ndd.readers.File(files=job.files, labels=[0] * len(job.files)).next_epoch(batch_size=64):
            needed += sum(-(-int(shape.torch().prod()) // 4096) * 4096 + 4096 for shape in ndd.peek_image_shape(jpegs).tensors)
        cache = ndd.decoders.cache(int(needed * share), place if folder else None)
        for jpegs, _ in ndd.readers.File(files=job.files, labels=[0] * len(job.files)).next_epoch(batch_size=64):
            ndd.decoders.image_random_crop(jpegs, cache=cache).evaluate()
        yield from _cached_epochs(ndd, job, cache)


def _cached_epochs(ndd: ModuleType, job: Job, cache: Any) -> Batches:
    reader = ndd.readers.File(**job.epoch, random_shuffle=True)
    while True:
        for jpegs, classes in reader.next_epoch(batch_size=64):
            images = ndd.decoders.image_random_crop(jpegs, cache=cache)
            images = ndd.resize(images, size=[224, 224])
            mirror = ndd.random.coin_flip(batch_size=64, probability=0.5)
            images = ndd.crop_mirror_normalize(images, mirror=mirror, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
            yield images.torch(), classes.torch()


def run_ahead(job: Job, compiled: bool = False) -> Batches:
    """The fused program as the function of the loader, which runs it ahead; compiled from bytes to planes if wanted."""
    ndd = _load_module("torch_ndd", job.threads)

    def augment(jpegs: Any, classes: Any) -> tuple[Any, Any]:
        images = ndd.resize(ndd.decoders.image_random_crop(jpegs), size=[224, 224])
        mirror = ndd.random.coin_flip(batch_size=images.batch_size, probability=0.5)
        return ndd.crop_mirror_normalize(images, mirror=mirror, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375]), classes

    function = torch.compile(augment, fullgraph=True) if compiled else augment
    loader = ndd.DataLoader(ndd.readers.File(**job.epoch, random_shuffle=True), function, batch_size=BATCH, drop_last=True)
    while True:
        yield from loader


def pipeline(job: Job, fused: bool, package: str = "nvidia.dali", load: float | None = None) -> Batches:
    """A graph of DALI, delivered by its iterator for PyTorch; the same program for torch_ndd.dali. ``load`` is the JPEG engine's share."""
    device_id, decoder = (0, {"device": "mixed"}) if job.device == "cuda" else (None, {"device": "cpu"})
    options: dict[str, Any] = decoder if load is None else {**decoder, "hw_decoder_load": load}
    fn = importlib.import_module(f"{package}.fn")
    types = importlib.import_module(f"{package}.types")
    pipeline_def = importlib.import_module(package).pipeline_def
    generic_iterator = importlib.import_module(f"{package}.plugin.pytorch").DALIGenericIterator

    @pipeline_def(batch_size=BATCH, num_threads=job.threads, device_id=device_id)
    def graph() -> tuple[Any, Any]:
        jpegs, classes = fn.readers.file(**job.epoch, random_shuffle=True, name="reader")
        if fused:
            images = fn.resize(fn.decoders.image_random_crop(jpegs, **options), size=[224, 224])
        else:
            images = fn.random_resized_crop(fn.decoders.image(jpegs, **options), size=[224, 224])
        images = fn.crop_mirror_normalize(
            images,
            mirror=fn.random.coin_flip(probability=0.5),
            mean=[123.675, 116.28, 103.53],
            std=[58.395, 57.12, 57.375],
            dtype=types.FLOAT,
            output_layout="CHW",
        )
        return images, classes

    batches = generic_iterator([graph()], ["images", "labels"], reader_name="reader", auto_reset=True)
    while True:
        for (batch,) in batches:
            yield batch["images"], batch["labels"]


def data_loader(job: Job, decoder: str, workers: int) -> Batches:
    """torch's DataLoader with torchvision's transforms v2, sample by sample as its documentation does it."""
    torch.set_num_threads(job.threads)  # of the main process; a worker has one thread
    dataset = _ImageFiles(job.files, decoder)
    endless = torch.utils.data.RandomSampler(dataset, replacement=True, num_samples=10**9)
    yield from torch.utils.data.DataLoader(dataset, batch_size=BATCH, sampler=endless, num_workers=workers)


class _ImageFiles(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, files: list[str], decoder: str) -> None:
        from torchvision.transforms import v2

        self.files, self.decoder = files, decoder
        self.transform = v2.Compose(
            [
                v2.RandomResizedCrop(224, antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
            ]
        )

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.decoder == "PIL":
            from PIL import Image

            return self.transform(Image.open(self.files[index]).convert("RGB")), 0
        from torchvision.io import ImageReadMode, decode_image

        return self.transform(decode_image(self.files[index], mode=ImageReadMode.RGB)), 0


def decode_only(job: Job) -> Batches:
    """libjpeg-turbo decodes whole images from memory, on the same number of threads; nothing else happens.

    It is called through torchvision, whose `decode_jpeg` releases the GIL and costs nothing measurable: 2147 images/s,
    against 2043 of libjpeg-turbo called from C++ on the same machine.
    """
    import torchvision.io

    torch.set_num_threads(1)
    chunks = cycle(_chunks([torchvision.io.read_file(file) for file in job.files]))
    pool = ThreadPoolExecutor(job.threads)
    ahead = deque(pool.map(torchvision.io.decode_jpeg, next(chunks)) for _ in range(2))  # no thread waits for the other
    while True:
        ahead.append(pool.map(torchvision.io.decode_jpeg, next(chunks)))
        yield list(ahead.popleft()), None


def _chunks(items: list[Any]) -> list[list[Any]]:
    return [items[i : i + BATCH] for i in range(0, len(items) - BATCH + 1, BATCH)]


def _load_module(module: str, threads: int) -> ModuleType:
    torch.set_num_threads(threads)
    ndd = importlib.import_module(module)
    ndd.set_num_threads(threads)
    return ndd


@dataclass
class Competitor:
    """A stream of batches and the module that it needs."""

    stream: Callable[..., Batches]
    arguments: dict[str, Any] = field(default_factory=dict)
    module: str = "torch"


def competitors(threads: int) -> dict[str, Competitor]:
    """By name, torch_ndd first; the DataLoader runs without workers and with one for each thread."""
    loaders = {
        f"DataLoader {decoder}, {workers} workers": Competitor(data_loader, {"decoder": decoder, "workers": workers}, "torchvision")
        for decoder in ("PIL", "decode_image")
        for workers in (0, threads)
    }
    return {
        SUBJECT: Competitor(run_imperative_fused, {"module": "torch_ndd"}),
        "torch_ndd, DataLoader": Competitor(run_ahead, {}, "torch_ndd"),
        "torch_ndd, DataLoader, torch.compile": Competitor(run_ahead, {"compiled": True}, "torch_ndd"),
        "torch_ndd, capture": Competitor(run_imperative_fused, {"module": "torch_ndd", "capture": True}),
        "torch_ndd, all images cached": Competitor(run_cached, {}, "torch_ndd"),
        "torch_ndd, all cached in a folder": Competitor(run_cached, {"folder": True}, "torch_ndd"),
        "torch_ndd, half of the images cached": Competitor(run_cached, {"share": 0.5}, "torch_ndd"),
        "torch_ndd, decode whole": Competitor(run_imperative, {"module": "torch_ndd"}),
        "torch_ndd.dali pipeline": Competitor(pipeline, {"fused": False, "package": "torch_ndd.dali"}, "torch_ndd"),
        "torch_ndd.dali pipeline, fused crop": Competitor(pipeline, {"fused": True, "package": "torch_ndd.dali"}, "torch_ndd"),
        "DALI dynamic": Competitor(run_imperative, {"module": DALI}, "nvidia.dali"),
        "DALI dynamic, fused crop": Competitor(run_imperative_fused, {"module": DALI}, "nvidia.dali"),
        "DALI dynamic, capture": Competitor(run_imperative, {"module": DALI, "capture": True}, "nvidia.dali"),
        "DALI dynamic, fused crop, capture": Competitor(run_imperative_fused, {"module": DALI, "capture": True}, "nvidia.dali"),
        "DALI pipeline": Competitor(pipeline, {"fused": False}, "nvidia.dali"),
        "DALI pipeline, fused crop": Competitor(pipeline, {"fused": True}, "nvidia.dali"),
        **loaders,
        LIMIT: Competitor(decode_only, {}, "torchvision"),
    }
