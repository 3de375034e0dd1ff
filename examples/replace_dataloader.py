# SPDX-License-Identifier: Apache-2.0
"""The same training with torch's DataLoader and torchvision, and with ndd.DataLoader.

    python examples/replace_dataloader.py                    # crops of two photos
    python examples/replace_dataloader.py --folder flowers   # your own images, one subfolder per class

The lines of `with_torchvision` become those of `with_ndd`; the training loop does not change.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import torch
from photos import write_photos
from torch import nn

import torch_ndd as ndd

SIZE = 128
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def with_torchvision(folder: Path, batch_size: int) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    transform = v2.Compose(
        [
            v2.PILToTensor(),
            v2.RandomResizedCrop(SIZE, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
        ]
    )
    dataset = ImageFolder(str(folder), transform)
    return torch.utils.data.DataLoader(dataset, batch_size, shuffle=True, num_workers=os.cpu_count() or 1, drop_last=True)


def with_ndd(folder: Path, batch_size: int) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    def transform(jpegs: ndd.Batch, labels: ndd.Batch) -> tuple[ndd.Batch, ndd.Batch]:
        images = ndd.decoders.image_random_crop(jpegs)  # decodes only the crop
        images = ndd.resize(images, size=[SIZE, SIZE])
        mirror = ndd.random.coin_flip(batch_size=images.batch_size)
        mean, std = [255 * value for value in MEAN], [255 * value for value in STD]
        return ndd.crop_mirror_normalize(images, mirror=mirror, mean=mean, std=std), labels

    reader = ndd.readers.File(file_root=folder, random_shuffle=True)
    return ndd.DataLoader(reader, transform, batch_size=batch_size, drop_last=True)


def train(batches: Iterable[tuple[torch.Tensor, torch.Tensor]], steps: int) -> float:
    """Run some epochs; return images per second."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 8, stride=8), nn.ReLU(), nn.Conv2d(16, 32, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(100))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step, images, begin = 0, 0, time.perf_counter()
    while step < steps:
        for x, y in batches:
            loss = nn.functional.cross_entropy(model(x), y.flatten().long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step, images = step + 1, images + len(x)
            if step == steps:
                break
    return images / (time.perf_counter() - begin)


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=40)
    options = parser.parse_args(arguments)

    with tempfile.TemporaryDirectory() as made:
        if options.folder is None:
            write_photos(Path(made), max(256, options.batch_size))
        folder = options.folder or Path(made)
        speeds = {loader.__name__: train(loader(folder, options.batch_size), options.steps) for loader in (with_torchvision, with_ndd)}
    for name, speed in speeds.items():
        print(f"{name}: {speed:.0f} images per second, training included")
    print(f"{speeds['with_ndd'] / speeds['with_torchvision']:.1f} times as fast")
    return speeds


if __name__ == "__main__":
    main()
