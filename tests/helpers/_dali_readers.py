# SPDX-License-Identifier: Apache-2.0
"""The same reader under DALI and torch_ndd, over several epochs."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from _dali import assert_raises, dali, ndd
from _raises import Raises

# Order, shards, padding, with and without batches.
ORDERS: list[tuple[int | None, dict[str, Any]]] = [
    (None, {}),
    (4, {}),
    (4, {"pad_last_batch": True}),
    (3, {"num_shards": 3, "shard_id": 1}),
    (3, {"num_shards": 3, "shard_id": 2, "pad_last_batch": True}),
    (None, {"num_shards": 2, "stick_to_shard": True}),
    (2, {"num_shards": 2, "stick_to_shard": True, "pad_last_batch": True}),
]


def epochs(module: ModuleType, name: str, batch_size: int | None, options: Mapping[str, Any], count: int = 3) -> list[Any]:
    """Return all samples of some epochs, "end" after each, and the metadata. ``dtype`` is a name."""
    options = {key: getattr(module, value) if key == "dtype" else value for key, value in options.items()}
    reader = getattr(module.readers, name)(**options)
    result: list[Any] = []
    for _ in range(count):
        for step in reader.next_epoch(batch_size=batch_size):
            result.append([_samples(value) for value in (step.values() if isinstance(step, dict) else step)])
        result.append("end")
    return [*result, dict(reader.get_metadata())]


def _samples(value: Any) -> list[Any]:
    tensors = value.tensors if hasattr(value, "batch_size") else [value]
    return [(array.shape, str(array.dtype), tensor.layout, array) for tensor, array in ((t, np.asarray(t)) for t in tensors)]


def assert_same_epochs(name: str, batch_size: int | None, options: Mapping[str, Any], tolerance: float = 0.0, count: int = 3) -> None:
    """Check that shapes, types, layouts, order, metadata and values are equal; ``tolerance`` is absolute."""
    theirs, ours = (epochs(module, name, batch_size, options, count) for module in (dali, ndd))
    assert len(ours) == len(theirs)
    assert ours[-1] == theirs[-1]
    for our, other in zip(ours[:-1], theirs[:-1], strict=True):
        assert isinstance(our, str) == isinstance(other, str)
        if isinstance(our, str):
            continue
        assert [[sample[:3] for sample in output] for output in our] == [[sample[:3] for sample in output] for output in other]
        for sample, expected in ((s, t) for a, b in zip(our, other, strict=True) for s, t in zip(a, b, strict=True)):
            np.testing.assert_allclose(sample[3].astype(np.float64), expected[3].astype(np.float64), rtol=0, atol=tolerance)


def assert_reader_raises(name: str, options: Mapping[str, Any], raises: Raises | None) -> None:
    """Check that both raise ``raises`` when the reader is constructed or read."""
    assert_raises(lambda module: epochs(module, name, None, options, 1), raises, lambda program, module: program(module))
