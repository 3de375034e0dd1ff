# SPDX-License-Identifier: Apache-2.0
"""Train with several processes, each on its shard of the data.

    torchrun --nproc-per-node 2 examples/train_ddp.py /tmp/digits
    torchrun --nproc-per-node 3 examples/train_ddp.py /tmp/digits --epochs 4   # resumes where the other stopped, even in the middle of an epoch

Together the processes see each image exactly once per epoch. All loaders have the same state, so only rank 0 saves it.
"""

import argparse
from pathlib import Path

import torch
from digits import small_cnn, write_digits
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import torch_ndd as ndd


def augment(jpegs: ndd.Batch, numbers: ndd.Batch) -> tuple[ndd.Batch, ndd.Batch]:
    images = ndd.decoders.image(jpegs)
    images = ndd.random_resized_crop(images, size=[32, 32], random_area=[0.8, 1.0])
    return ndd.crop_mirror_normalize(images, mean=[127.5], std=[63.75]), numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the digits and the checkpoint are, or will be")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64, help="of each process")
    parser.add_argument("--save-every", type=int, default=10, help="steps")
    parser.add_argument("--steps", type=int, help="stop after this many, without saving")
    parser.add_argument("--seen", type=Path, help="write down in this folder which images each process sees, a line for each step")
    options = parser.parse_args()

    distributed.init_process_group("gloo")  # "nccl" with GPUs
    rank = distributed.get_rank()
    if rank == 0:
        write_digits(options.folder)
    distributed.barrier()
    files = sorted(options.folder.glob("*/*.jpg"))
    digits = torch.tensor([int(file.parent.name) for file in files])

    # The indices of the images serve as labels here, to record what was seen.
    reader = ndd.readers.File(files=files, labels=range(len(files)), random_shuffle=True, seed=1, **ndd.distributed.shard())
    loader = ndd.DataLoader(reader, augment, batch_size=options.batch_size, seed=1)
    torch.manual_seed(0)
    model = DistributedDataParallel(small_cnn(10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    first_epoch, step = 0, 0

    checkpoint = options.folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
        first_epoch, step = saved["epoch"], saved["step"]

    def save(epoch: int) -> None:
        if rank == 0:
            states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
            torch.save({**states, "epoch": epoch, "step": step}, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)  # atomic: the file is complete whenever the process is killed

    log = options.seen and options.seen / f"{step}-{rank}.txt"
    for epoch in range(first_epoch, options.epochs):
        seen = torch.zeros(())
        with model.join():  # one process may have one image, and so one batch, more than another
            for images, numbers in loader:
                numbers = numbers.flatten()
                loss = nn.functional.cross_entropy(model(images), digits[numbers])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen += len(numbers)
                step += 1
                if log:
                    with log.open("a") as file:
                        print(epoch, step, *numbers.tolist(), file=file)
                if step % options.save_every == 0:
                    save(epoch)
                if step == options.steps:
                    break
        distributed.all_reduce(seen)
        if rank == 0:
            print(f"epoch {epoch}: {seen:.0f} images, loss {loss.item():.3f}", flush=True)
        if step == options.steps:
            break
        save(epoch + 1)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
