# SPDX-License-Identifier: Apache-2.0
"""Training that may be killed at any time and resumes exactly where it was when it is started again.

    python examples/resume_training.py /tmp/digits      # kill it, with kill -9 if you like, and start it again

The checkpoint contains the states of model, optimizer and loader. The loader's is a small dict of numbers: the position in the data and in the random
numbers of the augmentation. Batches prepared ahead do not count. The model sees the same batches, bit for bit, as without the interruption.
"""

import argparse
import json
from pathlib import Path

import torch
from digits import small_cnn, write_digits
from torch import nn

import torch_ndd as ndd


def augment(jpegs: ndd.Batch, labels: ndd.Batch) -> tuple[ndd.Batch, ndd.Batch]:
    images = ndd.decoders.image(jpegs)
    images = ndd.random_resized_crop(images, size=[32, 32], random_area=[0.8, 1.0])
    return ndd.crop_mirror_normalize(images, mean=[127.5], std=[63.75]), labels


def main(arguments: list[str] | None = None) -> nn.Module:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the digits and the checkpoint are, or will be")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--save-every", type=int, default=10, help="steps")
    parser.add_argument("--log", type=Path, help="write the loss of each step to this file")
    options = parser.parse_args(arguments)

    write_digits(options.folder)
    reader = ndd.readers.File(file_root=options.folder, random_shuffle=True)
    loader = ndd.DataLoader(reader, augment, batch_size=options.batch_size, seed=1)
    torch.manual_seed(0)
    model = small_cnn(10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step = 0

    checkpoint = options.folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])  # the first loop yields the rest of its epoch
        step = saved["step"]
        print(f"going on after step {step}")

    steps = options.epochs * len(loader)
    while step < steps:
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels.flatten().long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if options.log:
                with options.log.open("a") as file:
                    print(json.dumps([step, loss.item()]), file=file)
            if step % options.save_every == 0:
                states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict(), "step": step}
                torch.save(states, checkpoint.with_suffix(".new"))
                checkpoint.with_suffix(".new").replace(checkpoint)  # atomic: the file is complete whenever the process is killed
        print(f"step {step}: loss {loss.item():.3f}")
    return model


if __name__ == "__main__":
    main()
