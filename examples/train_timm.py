# SPDX-License-Identifier: Apache-2.0
"""Train with timm's recipe: RandAugment, mixup and CutMix, random erasing, label smoothing, all on whole batches.

    python examples/train_timm.py                            # crops of two photos and a small network
    python examples/train_timm.py flowers --model resnet18   # your own images, one subfolder per class, and a model of timm

The arguments are those of ``timm.data.create_transform`` and ``timm.data.Mixup``. timm itself is only needed for ``--model``.
"""

import argparse
import importlib
import tempfile
import time
from pathlib import Path

import torch
from photos import write_photos
from torch import nn

import torch_ndd as ndd
from torch_ndd.torchvision import from_timm


def loaders(folder: Path, size: int, batch_size: int) -> tuple[ndd.DataLoader, ndd.DataLoader, int]:
    """Return the loaders of training and validation, and the number of classes."""
    dataset = ndd.ImageFolder(folder)
    classes = len(dataset.classes)
    training = from_timm(
        size,
        is_training=True,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="random",
        re_prob=0.25,
        re_mode="pixel",
        mixup={"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "switch_prob": 0.5, "label_smoothing": 0.1, "num_classes": classes},
    )
    train = ndd.DataLoader(dataset, training, batch_size=batch_size, shuffle=True, drop_last=True)
    return train, ndd.DataLoader(dataset, from_timm(size, crop_pct=0.95), batch_size=batch_size), classes


def small_network(classes: int) -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def soft_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of targets that are probabilities, as after mixup."""
    return -(targets * logits.log_softmax(1)).sum(1).mean()


def main(arguments: list[str] | None = None) -> float:
    """Train and return the accuracy on all images, in percent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--model", help="name of a model of timm, without its pretrained weights")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    ndd.random.set_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        if options.folder is None:
            write_photos(Path(folder))
        train, validation, classes = loaders(options.folder or Path(folder), options.size, options.batch_size)
        if not len(train):
            parser.error(f"{options.folder or folder} has fewer images than a batch of {options.batch_size}; give a smaller --batch-size")
        if options.model is None:
            model = small_network(classes)
        else:
            model = importlib.import_module("timm").create_model(options.model, num_classes=classes)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for epoch in range(options.epochs):
            begin, images, total = time.perf_counter(), 0, 0.0
            for x, targets in train:
                loss = soft_cross_entropy(model(x), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                images, total = images + len(x), total + loss.item() * len(x)
            print(f"epoch {epoch}: loss {total / images:.3f}, {images / (time.perf_counter() - begin):.0f} images per second, training included")
        model.eval()
        with torch.no_grad():
            right = torch.cat([model(x).argmax(1) == y for x, y in validation])
    accuracy = 100 * right.double().mean().item()
    print(f"accuracy: {accuracy:.1f} %")
    print(train.diagnose())
    return accuracy


if __name__ == "__main__":
    main()
