# SPDX-License-Identifier: Apache-2.0
"""Train with Lightning.

    python examples/train_lightning.py /tmp/digits

Interrupt it at any time and run it again: it resumes with the batch after its last checkpoint.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import torch
from digits import small_cnn, write_digits
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

import torch_ndd as ndd
from torch_ndd.lightning import DataModule


def augment(jpegs: ndd.Batch, labels: ndd.Batch) -> tuple[ndd.Batch, ndd.Batch]:
    images = ndd.decoders.image(jpegs)
    images = ndd.random_resized_crop(images, size=[32, 32], random_area=[0.8, 1.0])
    return ndd.crop_mirror_normalize(images, mean=[127.5], std=[63.75]), labels


def prepare(jpegs: ndd.Batch, labels: ndd.Batch) -> tuple[ndd.Batch, ndd.Batch]:
    return ndd.crop_mirror_normalize(ndd.decoders.image(jpegs), mean=[127.5], std=[63.75]), labels


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = small_cnn(10)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.net(images), labels.flatten().long())

    def validation_step(self, batch: Any, index: int) -> None:
        images, labels = batch
        right = self.net(images).argmax(1) == labels.flatten()
        self.log("accuracy", right.float().mean(), batch_size=len(labels), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def main(arguments: list[str] | None = None) -> lightning.Trainer:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the digits and the checkpoint are, or will be")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=-1, help="stop after this many")
    options = parser.parse_args(arguments)

    write_digits(options.folder)
    files = sorted(options.folder.glob("*/*.jpg"))
    labels = [int(file.parent.name) for file in files]
    held_out = slice(0, None, 5)
    training = [i for i in range(len(files)) if i % 5]
    train = partial(ndd.readers.File, files=[files[i] for i in training], labels=[labels[i] for i in training], random_shuffle=True)
    val = partial(ndd.readers.File, files=files[held_out], labels=labels[held_out])
    data = DataModule(train, val, train_fn=augment, val_fn=prepare, batch_size=64, seed=1)

    lightning.seed_everything(1, verbose=False)
    saving = ModelCheckpoint(options.folder, filename="last", every_n_train_steps=10, enable_version_counter=False)
    trainer = lightning.Trainer(max_epochs=options.epochs, max_steps=options.steps, callbacks=[saving], logger=False, accelerator="cpu")
    checkpoint = options.folder / "last.ckpt"
    trainer.fit(Classifier(), datamodule=data, ckpt_path=checkpoint if checkpoint.exists() else None)
    return trainer


if __name__ == "__main__":
    trainer = main()
    accuracy = trainer.callback_metrics.get("accuracy", float("nan"))  # measured after each epoch
    print(f"accuracy after {trainer.global_step} steps: {accuracy:.3f}")
