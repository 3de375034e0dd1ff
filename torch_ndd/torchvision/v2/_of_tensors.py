# SPDX-License-Identifier: Apache-2.0
"""Single samples of torch_ndd: a Tensor is transformed as a batch of one."""

from collections.abc import Callable, Mapping
from typing import Any

import PIL.Image
import torch
from torch.utils._pytree import tree_map
from torchvision import tv_tensors as single

from ..._core.values.batch import Batch, as_batch
from ..._core.values.tensor import Tensor as NddTensor
from .. import tv_tensors
from .._sample import flatten, unflatten
from ._one_by_one import joined, one_sample


def holds_tensor(sample: Any) -> bool:
    """Return whether a Tensor of torch_ndd is anywhere in a sample."""
    if isinstance(sample, Batch | torch.Tensor):
        return False
    if isinstance(sample, list | tuple):
        return any(map(holds_tensor, sample))
    if isinstance(sample, Mapping):
        return any(map(holds_tensor, sample.values()))
    return isinstance(sample, NddTensor)


def on_tensors(name: str, function: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """Call a function of batches on a sample with Tensors, and return Tensors. Boxes, masks and points of torchvision beside them stay those.

    Raises:
        TypeError: an image or an encoded file as a Tensor beside a Batch.
    """
    leaves, spec = flatten(inputs)
    beside = next((leaf for leaf in leaves if isinstance(leaf, Batch)), None)
    if beside is not None:
        for leaf in leaves:
            if isinstance(leaf, NddTensor) and (leaf.layout or "").endswith(tv_tensors.IMAGE_ENDINGS):
                raise TypeError(f"{name}: a Tensor is one sample and cannot stand beside a Batch of {beside.batch_size}; make a Batch of all of them")
        return function(*inputs)
    before: dict[int, Any] = {}
    batches = []
    for leaf in leaves:
        if isinstance(leaf, NddTensor):
            batches.append(as_batch([leaf], layout=leaf.layout))
        elif isinstance(leaf, single.TVTensor):
            batches.append(joined(name, [leaf], None))
        else:
            batches.append(leaf)
            continue
        before[id(batches[-1])] = leaf

    def first(value: Any) -> Any:
        if isinstance(value, Batch):
            unchanged = before.get(id(value))
            return unchanged if unchanged is not None else one_sample(value, 0) if tv_tensors.is_typed(value) else value.select(0)
        return value[0] if _is_picture(value) else value

    return tree_map(first, function(*unflatten(batches, spec)), is_leaf=lambda value: isinstance(value, Batch) or _is_picture(value))


def _is_picture(value: Any) -> bool:
    """Return whether this is what ``ToPILImage`` makes of a batch of one."""
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], PIL.Image.Image)
