# SPDX-License-Identifier: Apache-2.0
"""The part of the data that a process reads in distributed training, and its state in distributed checkpoints."""

import json
import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import torch

from ._core.context.states import parse_state
from .readers import merge_states

if TYPE_CHECKING:  # torch may be built without distributed training
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["Shard", "Stateful", "shard"]


class Shard(TypedDict):
    """Two of the arguments of every reader."""

    shard_id: int
    num_shards: int


def has_process_group() -> bool:
    """Return whether this process has joined the others of a distributed training."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def warn_of_equal_ranks() -> bool:
    """Warn, in a training of several processes, that each of them reads all samples. Return whether it did."""
    if not has_process_group() or torch.distributed.get_world_size() == 1:
        return False
    warnings.warn(
        f"DataLoader: without num_shards each of the {torch.distributed.get_world_size()} processes of torch.distributed trains on all samples; "
        "divide them with **ndd.distributed.shard(), whose arguments a reader takes itself, or give num_shards=1 if all should read the same",
        UserWarning,
        stacklevel=3,
    )
    return True


def shard(mesh: "DeviceMesh | None" = None) -> Shard:
    """Return the shard of this process: ``readers.File(..., **ndd.distributed.shard())``.

    Without ``mesh``, rank and world size are those of ``torch.distributed`` if it is initialized, else of the environment variables ``RANK`` and
    ``WORLD_SIZE`` set by ``torchrun`` and similar launchers, else shard 0 of 1.

    Together the shards have each sample once per epoch. They may differ by one sample, and so may their numbers of batches: train inside
    ``model.join()`` (``DistributedDataParallel``), or give the reader ``pad_shards=True``, which makes all shards equally long. All processes have
    the same state, so saving one is enough; any number of processes may load it.

    Args:
        mesh: The dimensions of a ``DeviceMesh`` over which the data is divided: ``mesh["dp"]``, or ``mesh["dp_replicate", "dp_shard"]``, whose places
            are numbered row by row. Processes that differ only in other dimensions (tensor, context and pipeline parallelism) read the same shard.

    Raises:
        TypeError: ``mesh`` is not a ``DeviceMesh``.
        ValueError: one of the two variables is missing, or they are not a rank and a world size; this process is not part of ``mesh``.

    >>> shard()
    {'shard_id': 0, 'num_shards': 1}
    """
    if mesh is not None:
        return _shard_of_mesh(mesh)
    if has_process_group():
        return Shard(shard_id=torch.distributed.get_rank(), num_shards=torch.distributed.get_world_size())
    rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None and world is None:
        return Shard(shard_id=0, num_shards=1)
    if not (rank and world and rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
        raise ValueError(f"distributed.shard: the environment variables RANK and WORLD_SIZE are {rank!r} and {world!r}; set both, or none of them")
    return Shard(shard_id=int(rank), num_shards=int(world))


def _shard_of_mesh(mesh: "DeviceMesh") -> Shard:
    if not hasattr(mesh, "get_coordinate"):
        raise TypeError(f"distributed.shard: mesh must be a DeviceMesh, such as mesh['dp'], got {type(mesh).__name__}")
    place = mesh.get_coordinate()
    if place is None:
        raise ValueError(f"distributed.shard: this process (rank {torch.distributed.get_rank()}) is not part of the mesh {mesh}")
    shard_id = 0
    for dimension, position in enumerate(place):
        shard_id = shard_id * mesh.size(dimension) + position
    return Shard(shard_id=shard_id, num_shards=mesh.size())


class Stateful:
    """A loader or a reader in a checkpoint of ``torch.distributed.checkpoint``, which any number of ranks may load.

    ``dcp.save({"model": ..., "loader": Stateful(loader)}, checkpoint_id=path)``, and ``dcp.load`` with such a dict. A loader itself would be stored
    entry by entry: ``dcp.load`` then fails if the state has other entries than the new loader's, and of ranks with different states
    (``on_error="skip"``, streaming data sets) the checkpoint keeps a mixture. Here the states of all ranks are merged and stored as one text.

    Args:
        loader: a ``ndd.DataLoader`` or a reader. Ranks that read the same shard (``mesh``) have equal states.
        group: the process group that saves or loads the checkpoint; by default all processes.

    >>> import torch_ndd as ndd
    >>> loader = ndd.DataLoader(torch.utils.data.TensorDataset(torch.arange(6)), batch_size=2)
    >>> batch = next(iter(loader))
    >>> Stateful(loader).state_dict().keys()
    dict_keys(['state'])
    """

    def __init__(self, loader: Any, group: "ProcessGroup | None" = None) -> None:
        if not hasattr(loader, "state_dict") or not hasattr(loader, "load_state_dict"):
            raise TypeError(f"distributed.Stateful: loader must have state_dict and load_state_dict, got {type(loader).__name__}")
        self.loader, self.group = loader, group

    def state_dict(self) -> dict[str, Any]:
        """Return the merged state of all ranks, which all of them must ask for at the same step.

        Raises:
            ValueError: the states of the ranks do not belong together.
        """
        states: list[Any] = [self.loader.state_dict()]
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            own, states = states[0], [None] * torch.distributed.get_world_size(self.group)
            torch.distributed.all_gather_object(states, own, self.group)
        positions = [state.get("reader", state) for state in states]  # loaders may have drawn different seeds
        different = [state for k, state in enumerate(states) if positions[k] not in positions[:k]]
        return {"state": json.dumps(different[0] if len(different) == 1 else merge_states(different))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the loader. Raise ValueError for anything else than a result of :meth:`state_dict`."""
        text = state.get("state")
        if not isinstance(text, str):
            raise ValueError(f"distributed.Stateful: not a valid saved state: 'state' must be a string, got {type(text).__name__}")
        self.loader.load_state_dict(parse_state("distributed.Stateful", text))
