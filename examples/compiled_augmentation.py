# SPDX-License-Identifier: Apache-2.0
"""Compile an augmentation with torch.compile: its pixel operators become one kernel.

    python examples/compiled_augmentation.py

The compiled function has the same results and random numbers. It takes and returns Batches, dense or of images of different sizes.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from photos import write_photos

import torch_ndd as ndd

SIZE = 224
Augmentation = Callable[[ndd.Batch], ndd.Batch]


def augment(images: ndd.Batch) -> ndd.Batch:
    n = images.batch_size
    images = ndd.brightness(ndd.cast(images, dtype=ndd.float32), brightness=ndd.random.uniform(range=[0.8, 1.2], batch_size=n))
    images = ndd.contrast(images, contrast=ndd.random.uniform(range=[0.8, 1.2], batch_size=n))
    images = ndd.flip(images, horizontal=ndd.random.coin_flip(batch_size=n))
    return ndd.crop_mirror_normalize(images, mean=[123.7, 116.3, 103.5], std=[58.4, 57.1, 57.4])


def speed(function: Augmentation, batches: list[ndd.Batch]) -> float:
    """Return images per second."""
    for images in batches[:2]:  # compiles it
        function(images).torch()
    begin = time.perf_counter()
    for images in batches:
        function(images).torch()
    return sum(images.batch_size for images in batches) / (time.perf_counter() - begin)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="batches")
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args(arguments)

    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder), 64)
        reader = ndd.readers.File(file_root=folder, random_shuffle=True)
        batches: list[ndd.Batch] = []
        while len(batches) < options.steps:
            for jpegs, _ in reader.next_epoch(batch_size=options.batch_size):
                batches.append(ndd.resize(ndd.decoders.image(jpegs), size=[SIZE, SIZE]).evaluate())

    compiled = torch.compile(augment, fullgraph=True)
    ndd.random.set_seed(1)
    plain = augment(batches[0]).torch()
    ndd.random.set_seed(1)
    torch.testing.assert_close(compiled(batches[0]).torch(), plain, rtol=1e-4, atol=2e-2)
    plain_speed, compiled_speed = speed(augment, batches), speed(compiled, batches)
    print(f"{plain_speed:.0f} images per second, compiled {compiled_speed:.0f}: {compiled_speed / plain_speed:.1f} times as fast")


if __name__ == "__main__":
    main()
