# SPDX-License-Identifier: Apache-2.0
"""The ImageNet reference training with torch's DataLoader and torchvision, and with ndd.DataLoader.

    python examples/replace_dataloader.py                    # crops of two photos
    python examples/replace_dataloader.py --folder flowers   # your own images, one subfolder per class

Transforms, model and training loop are those of a torchvision program and do not change. Two lines do: the data set is an ``ndd.ImageFolder``, and
the loader that of ``torch_ndd.torchvision``, which runs the same transforms over whole batches. Both validation loaders deliver the same pixels,
within a level of 255.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from photos import write_photos
from torch import nn
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import torch_ndd as ndd
from torch_ndd.torchvision import DataLoader as NddLoader

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
Batches = Any  # a loader of torch or of torch_ndd


def transforms(size: int) -> tuple[Any, Any]:
    """Return the transforms of training and validation."""
    floats = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    training = v2.Compose([v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip(), *floats])
    return training, v2.Compose([v2.Resize(size * 256 // 224), v2.CenterCrop(size), *floats])


def with_torchvision(folder: Path, batch_size: int, size: int) -> tuple[Batches, Batches]:
    training, validation = transforms(size)
    options: dict[str, Any] = {"batch_size": batch_size, "num_workers": os.cpu_count() or 1}
    train = torch.utils.data.DataLoader(ImageFolder(str(folder), training), shuffle=True, drop_last=True, **options)
    return train, torch.utils.data.DataLoader(ImageFolder(str(folder), validation), **options)


def with_ndd(folder: Path, batch_size: int, size: int) -> tuple[Batches, Batches]:
    training, validation = transforms(size)
    options: dict[str, Any] = {"batch_size": batch_size, "num_workers": os.cpu_count() or 1}
    train = NddLoader(ndd.ImageFolder(folder, training), shuffle=True, drop_last=True, **options)
    return train, NddLoader(ndd.ImageFolder(folder, validation), **options)


def train(batches: Batches, steps: int) -> tuple[nn.Module, float]:
    """Run some epochs; return the model and images per second."""
    torch.manual_seed(0)
    classes = len(batches.dataset.classes)
    model = nn.Sequential(nn.Conv2d(3, 16, 8, stride=8), nn.ReLU(), nn.Conv2d(16, 32, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step, images, begin = 0, 0, time.perf_counter()
    while step < steps:
        for x, y in batches:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step, images = step + 1, images + len(x)
            if step == steps:
                break
    return model, images / (time.perf_counter() - begin)


@torch.no_grad()
def validate(model: nn.Module, batches: Batches) -> float:
    """Return the accuracy in percent."""
    results = [(model(x).argmax(1) == y) for x, y in batches]
    return 100 * torch.cat(results).double().mean().item()


def largest_difference(first: Batches, second: Batches) -> float:
    """Return how far the pixels of two validation loaders are apart, in levels of 255."""
    scale = 255 * torch.tensor(STD)[:, None, None]
    most = 0.0
    for (x, y), (a, b) in zip(first, second, strict=True):
        assert torch.equal(y, b)
        most = max(most, float(((x - a).abs() * scale).max()))
    return most


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--size", type=int, default=128, help="side of the images in pixels")
    options = parser.parse_args(arguments)

    figures: dict[str, float] = {}
    validations = []
    with tempfile.TemporaryDirectory() as folder:
        if options.folder is None:
            write_photos(Path(folder), max(256, options.batch_size))
        folder = options.folder or Path(folder)
        for make in (with_torchvision, with_ndd):
            training, validation = make(folder, options.batch_size, options.size)
            if not len(training):
                parser.error(f"{folder} has fewer images than a batch of {options.batch_size}; give a smaller --batch-size")
            model, figures[make.__name__] = train(training, options.steps)
            accuracy = validate(model, validation)
            print(f"{make.__name__}: {figures[make.__name__]:.0f} images per second, training included; accuracy {accuracy:.0f} %")
            validations.append(validation)
        figures["difference"] = largest_difference(*validations)
    print(f"{figures['with_ndd'] / figures['with_torchvision']:.1f} times as fast")
    print(f"largest difference of the validation pixels: {figures['difference']:.2f} levels of 255")
    return figures


if __name__ == "__main__":
    main()
