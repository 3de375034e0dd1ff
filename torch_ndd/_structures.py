# SPDX-License-Identifier: Apache-2.0
"""What a loader yields: structures of tuples, lists, dicts and dataclasses, whose leaves are batches, tensors and other values."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ._core.context.device import DeviceLike, torch_device
from ._core.values.batch import Batch
from ._core.values.samples import Samples
from ._core.values.tensor import Tensor, new_tensor
from ._core.work.sources import UNKNOWN
from ._core.work.upload import copy_to_device
from .batches._source import Plan
from .readers._sample_source import Collated
from .readers.dataset._items import Items, fields_of, is_dataclass, leaves, with_entries, with_fields, with_parts


def add_plan(result: Any, outputs: Any, plan: Plan) -> Any:
    """Return what a function of the user gets: the outputs of a reader, and the plan of the batch."""
    if isinstance(result, Mapping):
        if "plan" in result:
            raise ValueError("DataLoader: with batches the key 'plan' is that of the plan, but the reader has an output of this name; rename it")
        return {**result, "plan": plan}
    if _is_list_of_parts(result, outputs):
        return [*result, plan]
    return (*result, plan) if isinstance(result, tuple) else (result, plan)


def _is_list_of_parts(result: Any, outputs: Any) -> bool:
    """Return whether a list holds the parts of a data set's items, as torch's ``default_collate`` returns them."""
    # outputs.value is the list itself only if fn has not replaced it.
    return isinstance(outputs, Items) and result is outputs.value and type(result) is list and outputs[0] is not result


def sources_of(outputs: Any) -> Sequence[str]:
    """Return the sources of a reader's outputs, one per sample."""
    if isinstance(outputs, (Collated, Items)) and outputs.sources is not UNKNOWN:
        return outputs.sources
    return next((leaf.sources for leaf in leaves(outputs) if leaf.sources is not UNKNOWN), UNKNOWN)


def add_paths(result: Any, outputs: Any) -> Any:
    """Return a result with the paths of its samples, as the last part of a tuple or as ``"paths"`` of a dict."""
    sources = sources_of(outputs)
    left = sources_of(result)
    # fn may leave samples out, such as images that cannot be decoded; their paths would shift those of the others.
    paths = list(left if left is not UNKNOWN and len(left) < len(sources) else sources)
    if isinstance(result, Mapping):
        return {**result, "paths": paths}
    if _is_list_of_parts(result, outputs):
        return [*result, paths]
    return (*result, paths) if type(result) is tuple else (result, paths)


_PLAIN = frozenset((str, bytes, int, float, bool, type(None)))  # a column of these has no leaves


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply ``function`` to all leaves of a structure of tuples, lists, ``batch.tensors``, dicts and dataclasses."""
    kind = type(value)
    if kind is Batch or kind is torch.Tensor:  # most leaves; each of the questions below takes 0.4 us
        return function(value)
    if kind is tuple or kind is list:
        if _PLAIN.issuperset(map(type, value)):
            return value
        parts = [map_leaves(function, part) for part in value]
        return value if all(map(operator.is_, parts, value)) else kind(parts)
    if isinstance(value, Samples):
        return [map_leaves(function, part) for part in value]
    if isinstance(value, str | bytes | bytearray | memoryview | range):
        return value
    # Containers without changed parts are returned themselves: some types, such as PackedSequence, cannot be built from any parts.
    if isinstance(value, Mapping):
        named = {key: map_leaves(function, part) for key, part in value.items()}
        return value if all(map(operator.is_, named.values(), value.values())) else with_entries(value, named)
    if isinstance(value, Sequence):
        parts = [map_leaves(function, part) for part in value]
        return value if all(map(operator.is_, parts, value)) else with_parts(value, parts)
    if is_dataclass(value):
        before = fields_of(value)
        fields = {name: map_leaves(function, part) for name, part in before.items()}
        return value if all(map(operator.is_, fields.values(), before.values())) else with_fields(value, fields)
    return function(value)


def as_torch(value: Any) -> Any:
    """Return a Tensor or a Batch as torch tensors, a ragged Batch as a list of them; anything else unchanged."""
    if isinstance(value, Batch):
        return value.torch() if value.ragged_shapes is None else [sample.torch() for sample in value.tensors]
    return value.torch() if isinstance(value, Tensor) else value


def pin(value: Any) -> Any:
    """Return a tensor of host memory in pinned memory, and what a ``pin_memory`` method of another object returns; anything else unchanged."""
    if isinstance(value, torch.Tensor):
        return value.pin_memory() if value.device.type == "cpu" else value
    method = getattr(value, "pin_memory", None)  # which torch's DataLoader calls too
    return method() if callable(method) else value


def move_leaf(value: Any, device: DeviceLike) -> Any:
    """Return a leaf on a device, if it has values."""
    if isinstance(value, Batch | Tensor):
        return value.to_device(device)
    if not isinstance(value, torch.Tensor) or value.device == (target := torch_device(device)):
        return value
    if type(value) is not torch.Tensor or value.layout != torch.strided or value.is_nested:
        return value.to(target, non_blocking=True)
    values, pending = copy_to_device(value, None, False, target)
    return new_tensor(values, None, pending)


def count_bytes(value: Any) -> int:
    """Return the bytes of all values of a structure."""
    sizes: list[int] = []

    def note(leaf: Any) -> Any:
        sizes.append(_bytes_of(leaf))
        return leaf

    map_leaves(note, value)
    return sum(sizes)


def _bytes_of(value: Any) -> int:
    """Return the bytes of the values of a leaf."""
    values = value.buffer if isinstance(value, Batch | Tensor) else value
    if not isinstance(values, torch.Tensor):
        return 0
    # Sparse tensors refuse nbytes; numel counts what a dense one would have.
    return values.nbytes if values.layout == torch.strided else values.numel() * values.element_size()
