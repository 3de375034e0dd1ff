"""Augment inside a compiled function."""

import torch

import torch_ndd as ndd


@torch.compile(fullgraph=True)
def augment(images):
    images = ndd.flip(images, horizontal=ndd.random.coin_flip(batch_size=8))
    return ndd.crop_mirror_normalize(images, mean=127.5, std=63.75, output_layout="CHW").torch()


for _ in range(3):
    images = ndd.as_batch(torch.randint(0, 256, (8, 64, 64, 3), dtype=torch.uint8), layout="HWC")
    print(augment(images).shape)
