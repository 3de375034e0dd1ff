# SPDX-License-Identifier: Apache-2.0
"""Train a small convolutional network on a folder of images, with one subfolder per class.

    python examples/train_images.py                     # handwritten digits, less than a minute on two cores
    python examples/train_images.py ~/flowers           # your own images

Without a folder, scikit-learn's 1797 handwritten digits are written as JPEGs and used. Every fifth image is held out to measure the accuracy. One
augmented batch is written as a picture, which shows what the network sees.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from digits import small_cnn, write_digits
from torch import nn
from tqdm import tqdm

import torch_ndd as ndd

HELD_OUT = 5  # every fifth image
MEAN, STD = [127.5, 127.5, 127.5], [63.75, 63.75, 63.75]  # of red, green and blue, in 0 to 255
SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff"}


def list_images(folder: Path) -> tuple[list[str], list[int], list[str]]:
    """Return the image files, their labels, and the names of the classes."""
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    files, labels = [], []
    for label, name in enumerate(classes):
        for path in sorted((folder / name).rglob("*")):
            if path.suffix.lower() in SUFFIXES:
                files.append(str(path))
                labels.append(label)
    if len(files) < HELD_OUT:
        raise SystemExit(f"{folder} needs a subfolder for each class, with at least {HELD_OUT} images in all; found {len(files)}")
    return files, labels, classes


def main(arguments: list[str] | None = None) -> float:
    """Train and return the accuracy on the held-out images, in percent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="one subfolder for each class; without it, handwritten digits")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, help="side of the training images in pixels (32 for the digits, else 128)")
    parser.add_argument("--steps", type=int, help="stop after this many batches")
    parser.add_argument("--threads", type=int, help="threads that decode and augment (default: all cores)")
    parser.add_argument("--out", type=Path, default=Path("augmented.png"), help="where to write the picture of one augmented batch")
    options = parser.parse_args(arguments)

    if options.threads is not None:
        ndd.set_num_threads(options.threads)
    torch.manual_seed(0)
    ndd.random.set_seed(0)

    if options.folder is not None:
        return train(options, options.folder, options.size or 128, area=0.25, flip=0.5)
    with tempfile.TemporaryDirectory() as folder:
        write_digits(Path(folder))
        # A mirrored digit is not a digit, and a part of one may be another: no flip, and crops of nearly the whole image.
        return train(options, Path(folder), options.size or 32, area=0.8, flip=0.0)


def train(options: argparse.Namespace, folder: Path, size: int, area: float, flip: float) -> float:
    """Run the training loop; `area` is the smallest part of an image in a crop, `flip` the probability of mirroring."""
    files, labels, classes = list_images(folder)
    train_files = [file for i, file in enumerate(files) if i % HELD_OUT != 0]
    train_labels = [label for i, label in enumerate(labels) if i % HELD_OUT != 0]
    print(f"{len(train_files)} images to train on, {len(files) - len(train_files)} held out, {len(classes)} classes")

    reader = ndd.readers.File(files=train_files, labels=train_labels, random_shuffle=True, seed=0)
    model = small_cnn(len(classes))
    steps = -(-len(train_files) // options.batch_size) * options.epochs
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps)

    def batches() -> Iterator[tuple[ndd.Batch, ndd.Batch]]:  # all epochs
        for _ in range(options.epochs):
            yield from reader.next_epoch(batch_size=options.batch_size)

    last = min(steps, options.steps or steps)
    with tqdm(total=last * options.batch_size, unit="img", unit_scale=True, desc="training") as progress:
        for step, (jpegs, targets) in zip(range(last), batches(), strict=False):
            images = ndd.decoders.image(jpegs)
            images = ndd.random_resized_crop(images, size=[size, size], random_area=[area, 1.0])
            mirror = ndd.random.coin_flip(batch_size=options.batch_size, probability=flip)
            images = ndd.crop_mirror_normalize(images, mirror=mirror, mean=MEAN, std=STD)

            x, y = images.torch(), targets.torch().flatten().long()
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()

            if step == 0:
                ndd.show(images, options.out, labels=[classes[label] for label in y])
            progress.update(options.batch_size)
            progress.set_postfix(loss=f"{loss.item():.3f}")

    rate = progress.n / progress.format_dict["elapsed"]
    correct = evaluate(model, files[::HELD_OUT], labels[::HELD_OUT], size, options.batch_size)
    accuracy = 100 * correct / len(files[::HELD_OUT])
    print(f"{rate:.0f} images per second, training included; one augmented batch is in {options.out}")
    print(f"accuracy on the held-out images: {accuracy:.1f} %")
    return accuracy


@torch.no_grad()
def evaluate(model: nn.Module, files: list[str], labels: list[int], size: int, batch_size: int) -> int:
    """Return how many of the images the model recognizes."""
    model.eval()
    reader = ndd.readers.File(files=files, labels=labels, pad_last_batch=True)
    predictions = []
    for jpegs, _ in reader.next_epoch(batch_size=batch_size):
        images = ndd.decoders.image(jpegs)
        images = ndd.resize(images, size=[size, size], mode="not_smaller")
        images = ndd.crop_mirror_normalize(images, crop=[size, size], mean=MEAN, std=STD)
        predictions.append(model(images.torch()).argmax(1))
    # The last batch is padded with repetitions of the last image; they do not count.
    return int((torch.cat(predictions)[: len(files)] == torch.tensor(labels)).sum())


if __name__ == "__main__":
    main()
