# SPDX-License-Identifier: Apache-2.0
"""Which part of the data this process reads, when several train together."""

import os
from typing import TypedDict

import torch


class Shard(TypedDict):
    """Two of the arguments of every reader."""

    shard_id: int
    num_shards: int


def shard() -> Shard:
    """The part of the data that this process reads: ``readers.File(..., **ndd.distributed.shard())``.

    Rank and world size are those of ``torch.distributed`` where it is initialized, else of the environment variables ``RANK`` and ``WORLD_SIZE`` that
    ``torchrun`` and its kin set, else it is shard 0 of 1.

    The shards of an epoch have together each sample once. They may differ by one sample, and so may their numbers of batches: train inside of
    ``model.join()`` (``DistributedDataParallel``), or give the reader ``pad_shards=True``, with which all shards have equally many.
    The state of one process is that of all, so that saving it once is enough; it may be loaded by any number of processes.

    Raises:
        ValueError: one of the two variables is missing, or they are no rank and world size.

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
