# SPDX-License-Identifier: Apache-2.0
"""Decode and augment on many machines with Ray Data, and train on the result.

    python examples/ray_preprocess.py /tmp/digits            # a local Ray with two CPUs
    RAY_ADDRESS=... python examples/ray_preprocess.py ...    # a cluster; the folder must be visible to all machines

Use this if the CPUs next to the GPUs are too few, or to preprocess once and store: on one machine `ndd.DataLoader` does the same with less copying.
"""

import argparse
import os
from pathlib import Path

import ray
import torch
from digits import small_cnn, write_digits
from torch import nn

import torch_ndd as ndd
from torch_ndd.ray import map_batches


def augment(jpegs: ndd.Batch) -> dict[str, ndd.Batch]:
    """Decode in Ray's workers: file contents in, columns out."""
    images = ndd.decoders.image(jpegs)
    images = ndd.random_resized_crop(images, size=[32, 32], random_area=[0.8, 1.0])
    return {"image": ndd.crop_mirror_normalize(images, mean=[127.5], std=[63.75])}


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the digits are, or will be")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="stop after this many")
    options = parser.parse_args(arguments)

    write_digits(options.folder)
    if "RAY_ADDRESS" in os.environ:
        ray.init()
    else:
        ray.init(num_cpus=2, include_dashboard=False)
    files = ray.data.read_binary_files(str(options.folder), file_extensions=["jpg"], include_paths=True)
    model = small_cnn(10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step, loss = 0, torch.zeros(())
    for epoch in range(options.epochs):
        batches = map_batches(files.random_shuffle(seed=epoch), augment, batch_size=256, seed=epoch)
        for batch in batches.iter_batches(batch_size=64):
            images = torch.tensor(batch["image"])
            labels = torch.tensor([int(Path(path).parent.name) for path in batch["path"]])
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == options.steps:
                break
        print(f"epoch {epoch}, step {step}: loss {loss.item():.3f}")
    ray.shutdown()
    return loss.item()


if __name__ == "__main__":
    main()
