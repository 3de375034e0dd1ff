# SPDX-License-Identifier: Apache-2.0
"""The part of the data that a process reads in distributed training."""

import os
from typing import TypedDict

import torch

__all__ = ["Shard", "shard"]


class Shard(TypedDict):
    """Two of the arguments of every reader."""

    shard_id: int
    num_shards: int


def shard() -> Shard:
    """Return the shard of this process: ``readers.File(..., **ndd.distributed.shard())``.

    Rank and world size are those of ``torch.distributed`` if it is initialized, else of the environment variables ``RANK`` and ``WORLD_SIZE`` set by
    ``torchrun`` and similar launchers, else shard 0 of 1.

    Together the shards have each sample once per epoch. They may differ by one sample, and so may their numbers of batches: train inside
    ``model.join()`` (``DistributedDataParallel``), or give the reader ``pad_shards=True``, which makes all shards equally long. All processes have
    the same state, so that saving one is enough; any number of processes may load it.

    Raises:
        ValueError: one of the two variables is missing, or they are not a rank and a world size.

    >>> shard()
    {'shard_id': 0, 'num_shards': 1}
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return Shard(shard_id=torch.distributed.get_rank(), num_shards=torch.distributed.get_world_size())
    rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None and world is None:
        return Shard(shard_id=0, num_shards=1)
    if not (rank and world and rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
        raise ValueError(f"distributed.shard: the environment variables RANK and WORLD_SIZE are {rank!r} and {world!r}; set both, or none of them")
    return Shard(shard_id=int(rank), num_shards=int(world))
