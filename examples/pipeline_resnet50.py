# SPDX-License-Identifier: Apache-2.0
"""Train on batches of a DALI pipeline, without DALI: the ResNet-50 program of DALI's documentation, with two imports changed.

    python examples/pipeline_resnet50.py                    # handwritten digits, about a minute on two cores
    python examples/pipeline_resnet50.py ~/imagenet         # your own images: train/<class>/*.jpg and val/<class>/*.jpg
    python examples/pipeline_resnet50.py --package nvidia.dali   # the same program on DALI, if it is installed

Without a folder, scikit-learn's 1797 handwritten digits are written as JPEGs, every fifth one to val/, and a small network learns them instead of a
ResNet-50. The pipelines are those of the documentation: a reader, the decoder that decodes only the random crop, resizing, a coin that flips,
normalization; for validation the whole image, resized and cropped in the center.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from digits import small_cnn, write_digits
from torch import nn

HELD_OUT = 5  # every fifth digit is for validation


def create_pipeline(package: str, **arguments: Any) -> Any:
    """Return the pipeline of one of the two folders, from ``torch_ndd.dali`` or ``nvidia.dali``."""
    fn = importlib.import_module(f"{package}.fn")
    types = importlib.import_module(f"{package}.types")
    pipeline_def = importlib.import_module(package).pipeline_def

    @pipeline_def(exec_dynamic=True)
    def create_dali_pipeline(
        data_dir: str, crop: int, size: int, shard_id: int, num_shards: int, is_training: bool, area: float, flip: float, decoder_device: str
    ) -> Any:
        images, labels = fn.readers.file(
            file_root=data_dir,
            shard_id=shard_id,
            num_shards=num_shards,
            random_shuffle=is_training,
            pad_last_batch=True,
            name="Reader",
        )
        if is_training:
            images = fn.decoders.image_random_crop(
                images,
                device=decoder_device,
                output_type=types.RGB,
                random_aspect_ratio=[0.8, 1.25],
                random_area=[area, 1.0],
                num_attempts=100,
            )
            images = fn.resize(images, resize_x=crop, resize_y=crop, interp_type=types.INTERP_TRIANGULAR)
            mirror = fn.random.coin_flip(probability=flip)
        else:
            images = fn.decoders.image(images, device=decoder_device, output_type=types.RGB)
            images = fn.resize(images, size=size, mode="not_smaller", interp_type=types.INTERP_TRIANGULAR)
            mirror = False
        images = fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="CHW",
            crop=(crop, crop),
            mean=[0.485 * 255, 0.456 * 255, 0.406 * 255],
            std=[0.229 * 255, 0.224 * 255, 0.225 * 255],
            mirror=mirror,
        )
        return images, labels

    return create_dali_pipeline(**arguments)


def loaders(options: argparse.Namespace, folder: Path, crop: int, size: int, area: float, flip: float) -> tuple[Any, Any]:
    """Return the iterators over the training and the validation images."""
    base_iterator = importlib.import_module(f"{options.package}.plugin.base_iterator")
    pytorch = importlib.import_module(f"{options.package}.plugin.pytorch")
    found = []
    for name, is_training in (("train", True), ("val", False)):
        pipe = create_pipeline(
            options.package,
            batch_size=options.batch_size,
            num_threads=options.threads,
            device_id=0 if torch.cuda.is_available() else None,
            seed=12,
            data_dir=str(folder / name),
            crop=crop,
            size=size,
            shard_id=0,
            num_shards=1,
            is_training=is_training,
            area=area,
            flip=flip,
            decoder_device="mixed" if torch.cuda.is_available() else "cpu",
        )
        pipe.build()
        policy = base_iterator.LastBatchPolicy.PARTIAL
        found.append(pytorch.DALIClassificationIterator(pipe, reader_name="Reader", last_batch_policy=policy, auto_reset=True))
    return found[0], found[1]


def main(arguments: list[str] | None = None) -> float:
    """Train and return the accuracy on the validation images, in percent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="with train/<class> and val/<class>; without it, handwritten digits")
    parser.add_argument("--package", default="torch_ndd.dali", help="torch_ndd.dali or nvidia.dali")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--steps", type=int, help="stop an epoch after this many batches")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    if options.folder is not None:
        from torchvision.models import resnet50

        classes = sum(entry.is_dir() for entry in (options.folder / "train").iterdir())
        return train(options, resnet50(num_classes=classes), *loaders(options, options.folder, 224, 256, area=0.1, flip=0.5))
    with tempfile.TemporaryDirectory() as folder:
        split_digits(Path(folder))
        # A mirrored digit is not a digit, and a part of one may be another: no flip, and crops of nearly the whole image.
        return train(options, small_cnn(10), *loaders(options, Path(folder), 32, 32, area=0.8, flip=0.0))


def split_digits(folder: Path) -> None:
    """Write the digits to ``folder/train/<digit>`` and ``folder/val/<digit>``."""
    write_digits(folder / "train")
    for number, path in enumerate(sorted((folder / "train").rglob("*.jpg"))):
        if number % HELD_OUT == 0:
            target = folder / "val" / path.parent.name
            target.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target / path.name)


def train(options: argparse.Namespace, model: nn.Module, train_loader: Any, val_loader: Any) -> float:
    """Run the training and the validation of each epoch as the documentation does."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=len(train_loader) * options.epochs)
    accuracy = 0.0
    for epoch in range(options.epochs):
        model.train()
        for i, data in enumerate(train_loader):
            if options.steps is not None and i >= options.steps:
                continue  # the iterator begins a new epoch only at the end of the last one
            images = data[0]["data"].to(device)
            target = data[0]["label"].squeeze(-1).long().to(device)
            loss = nn.functional.cross_entropy(model(images), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        accuracy = validate(model, val_loader, device)
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}, accuracy on the validation images {accuracy:.1f} %")
    return accuracy


@torch.no_grad()
def validate(model: nn.Module, loader: Any, device: torch.device) -> float:
    """Return the accuracy in percent. Each image counts once: the iterator cuts the last batch."""
    model.eval()
    correct = seen = 0
    for data in loader:
        target = data[0]["label"].squeeze(-1).long().to(device)
        correct += int((model(data[0]["data"].to(device)).argmax(1) == target).sum())
        seen += len(target)
    return 100 * correct / seen


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="torch_ndd.dali: there is no GPU")
    main()
