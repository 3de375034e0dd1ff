"""Pack images of different sizes into sequences of at most so many patches, with the same work for every rank."""

import sys
from itertools import pairwise

import torch

import torch_ndd as ndd

PATCH = 16


def choose_size(extents):
    return ndd.sizes.budget(extents, multiple_of=PATCH, max_pixels=128 * 128)


def count_patches(extents):
    """The cost of each image, by the rule that resizes it: only the headers of the files are read for it."""
    return (choose_size(extents).torch() // PATCH).prod(1)


def prepare(files, labels, plan):
    images = ndd.decoders.image(files)
    images = ndd.resize(images, size=choose_size(images), rule="torch", interp_type=ndd.types.INTERP_CUBIC)
    images = ndd.crop_mirror_normalize(images, mean=127.5, std=63.75)
    patches, _ = ndd.patchify(images, patch_size=PATCH)
    return patches.packed(), plan


def attend(patches, cu_seqlens, max_seqlen):
    """What flash_attn_varlen_func computes from the same arguments, image by image."""
    parts = [patches[begin:end] for begin, end in pairwise(cu_seqlens)]
    return torch.cat([torch.nn.functional.scaled_dot_product_attention(part[None], part[None], part[None])[0] for part in parts])


reader = ndd.readers.File(file_root=sys.argv[1], random_shuffle=True, seed=1)
batches = ndd.batches.Packed(budget=160, cost=ndd.batches.from_headers(count_patches))
loader = ndd.DataLoader(reader, prepare, batches=batches, **ndd.distributed.shard())
for patches, plan in loader:
    found = attend(patches.values, patches.cu_seqlens, patches.max_seqlen)
    weight = 0 if plan.repeated else 1  # a rank without samples of its own repeats some of another
    loss = weight * found.square().mean(1).sum() / plan.step_cost  # the sum over the ranks is the mean over all patches of the step
    assert len(patches.values) == plan.cost <= plan.budget
    print(plan.step, len(plan.places), "images,", plan.cost, "patches", "with a loss" if loss > 0 else "")
print(loader.diagnose().split(". ")[-1])
