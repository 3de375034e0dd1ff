# SPDX-License-Identifier: Apache-2.0
"""Train without labels on several crops of each photograph, as DINO does: a student sees all crops, its teacher the large ones.

    python examples/train_dino.py
    python examples/train_dino.py --steps 40

`ndd.random_windows` draws the windows from the headers of the files, and `ndd.multi_crop` decodes each file once and cuts all of them out. Flips,
colors and blur follow for each crop.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import tempfile
import time
from pathlib import Path

import torch
from photos import write_photos
from torch import nn
from torch.nn import functional as F

import torch_ndd as ndd

LARGE, SMALL, COUNTS = 64, 32, (2, 4)  # DINO's are 224, 96 and (2, 8)
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


def prepare(files: ndd.Batch, labels: ndd.Batch) -> tuple[ndd.Batch, ...]:
    """Return the crops of all images: two large ones, then the small ones, each float32 (N, 3, side, side)."""
    windows = ndd.random_windows(files, scale=[(0.4, 1.0), (0.05, 0.4)], counts=COUNTS)
    sizes = [LARGE] * COUNTS[0] + [SMALL] * COUNTS[1]
    crops = ndd.multi_crop(files, windows=windows, sizes=sizes, interp_type=ndd.types.INTERP_CUBIC)
    return tuple(augment(crop) for crop in crops)


def augment(images: ndd.Batch) -> ndd.Batch:
    """Change colors, blur and flip each image at random, and normalize."""
    count = images.batch_size
    images = ndd.color_twist(
        images,
        brightness=ndd.random.uniform(range=[0.6, 1.4], batch_size=count),
        contrast=ndd.random.uniform(range=[0.6, 1.4], batch_size=count),
        hue=ndd.random.uniform(range=[-18, 18], batch_size=count),
    )
    images = ndd.gaussian_blur(images, sigma=ndd.random.uniform(range=[0.1, 2.0], batch_size=count))
    return ndd.crop_mirror_normalize(images, mean=MEAN, std=STD, mirror=ndd.random.coin_flip(batch_size=count))


class Model(nn.Module):
    """A small convolutional network with a head of normalized prototypes: images of any size to (N, outputs)."""

    def __init__(self, width: int = 16, outputs: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise((3, width, 2 * width, 4 * width)):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.GELU()]
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(4 * width, outputs, bias=False))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(F.normalize(self.body(images), dim=1))


def compute_loss(student: list[torch.Tensor], teacher: list[torch.Tensor], center: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of each crop of the student with the large crops of the teacher, but for pairs of the same crop."""
    targets = [((output - center) / 0.04).softmax(1).detach() for output in teacher]
    terms = [
        -(target * (output / 0.1).log_softmax(1)).sum(1).mean()
        for (i, target), (j, output) in itertools.product(enumerate(targets), enumerate(student))
        if i != j
    ]
    return torch.stack(terms).mean()


def main(arguments: list[str] | None = None) -> list[float]:
    """Train and return the loss of each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=80)
    options = parser.parse_args(arguments)
    if not 1 <= options.batch_size <= options.images:
        parser.error(f"--batch-size must be from 1 to the {options.images} images: batches that are not full are left out")
    torch.manual_seed(0)
    ndd.random.set_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder), options.images)
        reader = ndd.readers.File(file_root=folder, random_shuffle=True, seed=0)
        loader = ndd.DataLoader(reader, prepare, batch_size=options.batch_size, drop_last=True, seed=0)
        student = Model()
        teacher = copy.deepcopy(student).requires_grad_(False)
        optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
        center, losses, begin = torch.zeros(64), [], time.perf_counter()
        for step, crops in zip(range(options.steps), itertools.chain.from_iterable(itertools.repeat(loader)), strict=False):
            seen = [teacher(crop) for crop in crops[: COUNTS[0]]]
            loss = compute_loss([student(crop) for crop in crops], seen, center)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            center = 0.9 * center + 0.1 * torch.cat(seen).mean(0)
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.lerp_(fast.detach(), 0.02)
            losses.append(loss.item())
            if step % 20 == 0:
                print(f"step {step}: loss {losses[-1]:.3f}, crops {[tuple(crop.shape) for crop in crops[:3]]} ...")
        seconds = time.perf_counter() - begin
    print(
        f"{len(losses) * options.batch_size / seconds:.0f} images and {len(losses) * options.batch_size * sum(COUNTS) / seconds:.0f} crops per second"
    )
    return losses


if __name__ == "__main__":
    main()
