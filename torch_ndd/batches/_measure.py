# SPDX-License-Identifier: Apache-2.0
"""Costs of all samples, computed once and stored."""

import os
from typing import Any

import numpy as np
import torch

from .._core.process.files import whole_file
from ..distributed import has_process_group, shard
from ..readers import Reader
from ..readers._sources.choice import OfTorch, reader_of
from ..readers._sources.listed import Listed
from ._costs import check_costs, resolve_costs

_PART = 4096  # samples that are computed between two looks for Ctrl-C


def measure(reader: Any, cost: Any, path: str | os.PathLike[str]) -> np.ndarray:
    """Compute the costs of all samples once, and store them in an ``.npy`` file.

    Under ``torch.distributed`` the ranks share the work, and all get the result; one process of each machine writes the file. If the file exists, its
    costs are returned, and nothing is computed.

    Args:
        reader: a reader or a map-style data set.
        cost: what :class:`Packed` takes, such as ``"pixels"``, :func:`from_headers` or a function of the outputs.
        path: the file to write.

    Returns:
        The costs in the order of the data set, (N,) or (N, k): the ``cost`` of batches. Whole numbers are int64, others float64.

    Raises:
        TypeError: a source that can only be read from its beginning.
        ValueError: a cost that is negative or missing; a file with costs of another number of samples.
        RuntimeError: a sample that cannot be read.
        OSError: the file cannot be written.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/costs.npy"
    >>> ndd.batches.measure([[1, 2, 3], [4, 5, 6], [7, 8, 9]], lambda a, b, c: c, path)
    array([3, 6, 9])
    """
    op = "batches.measure"
    source = reader if isinstance(reader, Reader) else reader_of(reader, OfTorch(), {}).reader
    if not isinstance(source, Reader):
        raise TypeError(f"{op}: reader needs random access, but the source can only be read from its beginning")
    listed = Listed(source)
    size = listed.samples
    here = shard() if has_process_group() else {"shard_id": 0, "num_shards": 1}
    rank, ranks = here["shard_id"], here["num_shards"]
    # All ranks must see the file, or some would wait for others that return immediately.
    if all(_gather(os.path.exists(path))):
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        if len(found) != size:
            raise ValueError(
                f'{op}: "{os.fspath(path)}" has costs of {len(found)} samples, but the reader has {size}; delete it to compute them again'
            )
        check_costs(op, found, None)
        return found
    # Each rank computes a part of about equal size.
    begin, end = size * rank // ranks, size * (rank + 1) // ranks
    result: np.ndarray | Exception
    try:
        costs = resolve_costs(op, cost, listed, None, size)
        parts = [costs.of(np.arange(first, min(first + _PART, end))) for first in range(begin, end, _PART)]
        result = np.concatenate(parts).astype(np.int64 if costs.integral else np.float64) if parts else np.zeros((0, 0))
    except Exception as error:  # raised on all ranks, which would wait for this one
        result = error
    results = _gather(result)
    for result in results:
        if isinstance(result, Exception):
            raise result
    found = np.concatenate([part for part in results if len(part)])
    found = found[:, 0] if found.shape[1] == 1 else found
    # One process of each machine writes: LOCAL_RANK counts within a machine.
    if int(os.environ.get("LOCAL_RANK", rank)) == 0:
        with whole_file(path) as file:
            np.save(file, found, allow_pickle=False)
    # Wait until the file exists on all machines.
    if has_process_group():
        torch.distributed.barrier()
    return found


def _gather(value: Any) -> list[Any]:
    """Return the values of all ranks."""
    if not has_process_group():
        return [value]
    values: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(values, value)
    return values
