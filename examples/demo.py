# SPDX-License-Identifier: Apache-2.0
"""Augment photographs with their boxes, train on them, and compare loaders: what `make demo` runs, in less than 90 seconds on two cores.

    python examples/demo.py

The photographs are those of scikit-image and scikit-learn, cut into many. Written to the current folder: `demo.png`, a batch before and after its
augmentation with the boxes, above the images per second of each loader that is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from digits import small_cnn
from PIL import Image, ImageDraw
from torch import nn
from tqdm import tqdm

import torch_ndd as ndd

SIDE = 64  # of the training images, in pixels
MEAN, STD = [127.5, 127.5, 127.5], [63.75, 63.75, 63.75]
HELD_OUT = 5  # every fifth image
# Things in the photographs: left, top, right, bottom.
BOXES = {
    "astronaut": [[155, 15, 303, 190], [278, 343, 512, 512]],
    "coffee": [[172, 22, 405, 205], [325, 250, 405, 330]],
    "cat": [[135, 80, 210, 150], [295, 105, 345, 165]],
    "rocket": [[305, 125, 340, 400]],
    "china": [[65, 30, 365, 360]],
    "flower": [[172, 85, 447, 362]],
}


def photographs() -> dict[str, np.ndarray]:
    """Return the photographs, uint8 HWC, without a network."""
    from skimage import data
    from sklearn.datasets import load_sample_images

    china, flower = load_sample_images().images
    found = {"astronaut": data.astronaut(), "coffee": data.coffee(), "cat": data.chelsea(), "rocket": data.rocket()}
    return {**found, "china": china, "flower": flower}


def write_windows(folder: Path, count: int) -> None:
    """Write random windows of the photographs as JPEGs, about 30 kB each, one subfolder per photograph."""
    draw = random.Random(0)
    originals = {name: Image.fromarray(pixels) for name, pixels in photographs().items()}
    for name in originals:
        (folder / name).mkdir(parents=True)
    for k in tqdm(range(count), desc="cutting photographs", unit="img"):
        name = list(originals)[k % len(originals)]
        image = originals[name]
        side = draw.randint(90, 200)
        left, top = draw.randint(0, image.width - side), draw.randint(0, image.height - side)
        window = image.crop((left, top, left + side, top + side)).resize((320, 320), Image.Resampling.BICUBIC)
        window.save(folder / name / f"{k:05d}.jpg", quality=90)


def before_and_after() -> tuple[Image.Image, Image.Image]:
    """Return a batch with its boxes, and the same after random rotation, mirroring and colors; the boxes follow."""
    names = list(BOXES)
    found = photographs()
    images = ndd.as_batch([ndd.tensor(np.ascontiguousarray(found[name]), layout="HWC") for name in names])
    boxes = ndd.as_batch([torch.tensor(BOXES[name], dtype=torch.float32) for name in names])
    n, size = len(names), [160, 220]

    shrunk = ndd.resize(images, size=size)
    small = ndd.bbox_transform(boxes, MT=ndd.transforms.of(ndd.resize, images, size=size), output_shape=size)
    before = ndd.show(shrunk, labels=names, boxes=small, columns=n)

    angle = ndd.random.uniform(range=[-20, 20], batch_size=n)
    mirror = ndd.random.coin_flip(batch_size=n)
    turned = ndd.flip(ndd.rotate(shrunk, angle=angle, keep_size=True, fill_value=0), horizontal=mirror)
    moved = ndd.bbox_transform(small, MT=ndd.transforms.of(ndd.rotate, shrunk, angle=angle, keep_size=True), output_shape=size)
    scale = ndd.as_batch([torch.tensor([size[1], size[0]] * 2, dtype=torch.float32)] * n)
    moved = ndd.bb_flip(moved / scale, horizontal=mirror, ltrb=True) * scale
    colored = ndd.color_twist(
        turned,
        brightness=ndd.random.uniform(range=[0.7, 1.3], batch_size=n),
        saturation=ndd.random.uniform(range=[0.5, 1.5], batch_size=n),
        hue=ndd.random.uniform(range=[-30, 30], batch_size=n),
    )
    return before, ndd.show(colored, labels=names, boxes=moved, columns=n)


def augment(jpegs: ndd.Batch, labels: ndd.Batch) -> tuple[ndd.Batch, ndd.Batch]:
    """Prepare a batch for training."""
    images = ndd.resize(ndd.decoders.image_random_crop(jpegs, random_area=[0.4, 1.0]), size=[SIDE, SIDE])
    mirror = ndd.random.coin_flip(batch_size=images.batch_size)
    return ndd.crop_mirror_normalize(images, mirror=mirror, mean=MEAN, std=STD), labels


def train(files: list[str], labels: list[int], epochs: int) -> float:
    """Train a small network; return the accuracy on the images that are held out, in percent."""
    torch.manual_seed(0)
    kept = [k for k in range(len(files)) if k % HELD_OUT]
    reader = ndd.readers.File(files=[files[k] for k in kept], labels=[labels[k] for k in kept], random_shuffle=True, seed=0)
    loader = ndd.DataLoader(reader, augment, batch_size=64, seed=0)
    model = small_cnn(len(BOXES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with tqdm(total=epochs * len(kept), desc="training", unit="img") as progress:
        for _ in range(epochs):
            for images, targets in loader:
                loss = nn.functional.cross_entropy(model(images), targets.flatten().long())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                progress.update(len(images))
                progress.set_postfix(loss=f"{loss.item():.3f}")
    print(loader.diagnose())

    def prepare(jpegs: ndd.Batch, labels: ndd.Batch) -> tuple[ndd.Batch, ndd.Batch]:
        return ndd.crop_mirror_normalize(ndd.resize(ndd.decoders.image(jpegs), size=[SIDE, SIDE]), mean=MEAN, std=STD), labels

    held = ndd.readers.File(files=files[::HELD_OUT], labels=labels[::HELD_OUT])
    model.eval()
    with torch.no_grad():
        right = [model(images).argmax(1) == targets.flatten() for images, targets in ndd.DataLoader(held, prepare, batch_size=64)]
    return 100 * torch.cat(right).float().mean().item()


class Windows(torch.utils.data.Dataset):
    """The images for torch's DataLoader: decoded by Pillow, transformed by torchvision if it is installed."""

    def __init__(self, files: list[str], labels: list[int]) -> None:
        self.files, self.labels = files, labels
        self.transform: Callable[[Image.Image], torch.Tensor] = _plain
        if importlib.util.find_spec("torchvision"):
            from torchvision.transforms import v2

            steps = [v2.RandomResizedCrop(SIDE, scale=(0.4, 1.0)), v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
            self.transform = v2.Compose([*steps, v2.Normalize([0.5] * 3, [0.25] * 3)])

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, k: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.files[k]) as image:
            return self.transform(image.convert("RGB")), self.labels[k]


def _plain(image: Image.Image) -> torch.Tensor:
    side = random.randint(200, min(image.size))
    left, top = random.randint(0, image.width - side), random.randint(0, image.height - side)
    pixels = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side)))
    values = torch.from_numpy(pixels.copy()).permute(2, 0, 1).float()
    return (values.flip(2) if random.random() < 0.5 else values).sub_(127.5).div_(63.75)


def loaders(files: list[str], labels: list[int]) -> Iterator[tuple[str, Iterable[Any]]]:
    """Yield the loaders that are installed, each for one epoch."""
    threads = ndd.get_num_threads()
    yield "torch_ndd", ndd.DataLoader(ndd.readers.File(files=files, labels=labels, random_shuffle=True), augment, batch_size=64)
    by = "torchvision" if importlib.util.find_spec("torchvision") else "Pillow"
    yield f"DataLoader, {by}", torch.utils.data.DataLoader(Windows(files, labels), 64, shuffle=True, num_workers=threads)
    if importlib.util.find_spec("nvidia.dali"):
        yield "DALI dynamic", _dali(files, labels)


def _dali(files: list[str], labels: list[int]) -> Iterator[Any]:
    import nvidia.dali.experimental.dynamic as dali

    for jpegs, targets in dali.readers.File(files=files, labels=labels, random_shuffle=True).next_epoch(batch_size=64):
        images = dali.resize(dali.decoders.image_random_crop(jpegs, random_area=[0.4, 1.0]), size=[SIDE, SIDE])
        mirror = dali.random.coin_flip(batch_size=64)
        images = dali.crop_mirror_normalize(images, mirror=mirror, mean=MEAN, std=STD)
        yield torch.from_dlpack(dali.as_tensor(images)), targets


def compare(files: list[str], labels: list[int]) -> list[tuple[str, float]]:
    """Return the images per second of each loader: the median of three epochs, in turns."""
    rates: dict[str, list[float]] = {}
    for _ in range(3):
        for name, batches in loaders(files, labels):
            begin, count = time.perf_counter(), 0
            for batch in batches:
                count += len(batch[0])
            rates.setdefault(name, []).append(count / (time.perf_counter() - begin))
    return [(name, sorted(found)[1]) for name, found in rates.items()]


def chart(rates: list[tuple[str, float]], width: int) -> Image.Image:
    """Return a bar chart; it is printed too."""
    largest = max(rate for _, rate in rates)
    canvas = Image.new("RGB", (width, 30 * len(rates) + 40), "white")
    pen = ImageDraw.Draw(canvas)
    pen.text((8, 8), "images per second: read, decode, crop, resize, mirror, normalize", fill="black")
    for k, (name, rate) in enumerate(rates):
        print(f"{name:>24} {'█' * round(40 * rate / largest):40} {rate:6.0f} images/s")
        y, right = 32 + 30 * k, 200 + (width - 300) * rate / largest
        pen.text((8, y + 5), name, fill="black")
        pen.rectangle((200, y, right, y + 20), fill="#0072b2" if name == "torch_ndd" else "#b0b0b0")
        pen.text((right + 8, y + 5), f"{rate:.0f}", fill="black")
    return canvas


def main(arguments: list[str] | None = None) -> float:
    """Run everything; return the accuracy in percent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1200)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("demo.png"))
    options = parser.parse_args(arguments)
    ndd.random.set_seed(0)
    before, after = before_and_after()
    with tempfile.TemporaryDirectory() as name:
        write_windows(Path(name), options.images)
        files = sorted(str(path) for path in Path(name).glob("*/*.jpg"))
        labels = [sorted(BOXES).index(Path(path).parent.name) for path in files]
        accuracy = train(files, labels, options.epochs)
        print(f"accuracy on the {len(files[::HELD_OUT])} images held out: {accuracy:.1f} %")
        bars = chart(compare(files, labels), before.width)
    canvas = Image.new("RGB", (before.width, before.height + after.height + bars.height), "white")
    for top, part in ((0, before), (before.height, after), (before.height + after.height, bars)):
        canvas.paste(part, (0, top))
    canvas.save(options.out)
    print(f"a batch before and after its augmentation, and the chart, are in {options.out}")
    return accuracy


if __name__ == "__main__":
    main()
