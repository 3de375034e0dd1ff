# SPDX-License-Identifier: Apache-2.0
"""Registration of Tensor and Batch with PyTorch: pytrees, loading and collation."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.data._utils.collate import default_collate_fn_map

from .batch import Batch, as_batch, new_batch
from .tensor import Tensor, new_tensor


def _flatten_batch(value: Batch) -> tuple[list[Any], Any]:
    return [value.wait(), value.ragged_shapes], (value.layout, value.shared_extents)


def _unflatten_batch(children: Iterable[Any], context: Any) -> Batch:
    (values, shapes), (layout, shared_extents) = children, context
    return new_batch(values, shapes, layout, shared_extents=shared_extents)


def _load_batch(context: Any) -> Any:
    """Convert a pytree context back from JSON."""
    layout, shared_extents = context
    return layout, None if shared_extents is None else tuple(shared_extents)


def _register(kind: type, flatten: Callable[[Any], Any], unflatten: Callable[..., Any], load: Callable[[Any], Any] = lambda context: context) -> None:
    pytree.register_pytree_node(
        kind,
        flatten,
        unflatten,
        serialized_type_name=f"torch_ndd.{kind.__name__}",
        to_dumpable_context=lambda context: context,
        from_dumpable_context=load,
    )


def _collate(samples: Sequence[Any], *, collate_fn_map: Any = None) -> Batch:
    """Collate a reader's samples in a DataLoader into a Batch, dense or ragged."""
    return as_batch(list(samples))


_register(Batch, _flatten_batch, _unflatten_batch, _load_batch)
_register(Tensor, lambda value: ([value.wait()], value.layout), lambda children, layout: new_tensor(next(iter(children)), layout))
torch.serialization.add_safe_globals([Tensor, Batch])  # for torch.load(weights_only=True)
default_collate_fn_map[Tensor] = _collate
