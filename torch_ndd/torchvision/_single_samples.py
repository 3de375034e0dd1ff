# SPDX-License-Identifier: Apache-2.0
"""Between batches and single samples: functions of one sample called for every sample of a batch, and Tensors transformed as batches of size 1."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import PIL.Image
import torch
from torch.utils._pytree import tree_map
from torchvision import tv_tensors as single

from .._core.values.batch import Batch, as_batch
from .._core.values.tensor import Tensor as NddTensor
from . import tv_tensors
from ._sample import flatten, kind_of, unflatten


def sample_at(leaf: Any, i: int) -> Any:
    """Return sample ``i`` of a leaf as torchvision's object: images ``(..., C, H, W)``, boxes with their format, other values as a tensor."""
    if not isinstance(leaf, Batch):
        return leaf
    batch: Any = leaf
    values, kind = batch.select(i).torch(), kind_of(leaf)
    if kind is single.BoundingBoxes:
        return single.BoundingBoxes(values, format=batch.format, canvas_size=batch.canvas_size[i], clamping_mode=batch.clamping_mode)  # type: ignore[call-overload]
    if kind is single.KeyPoints:
        return single.KeyPoints(values, canvas_size=batch.canvas_size[i])  # type: ignore[call-overload]
    if kind is torch.Tensor:
        return values
    if kind is not single.Mask and (leaf.layout or "").endswith("HWC"):  # torchvision has the channels first
        values = values.movedim(-1, -3)
    return kind(values)


def join_samples(name: str, samples: Sequence[Any], leaf: Any) -> Any:
    """Return the results for all samples as a Batch, in the layout of the input leaf; results that are not tensors as a list.

    Raises:
        RuntimeError: results of different types.
    """
    first = samples[0]
    if not isinstance(first, torch.Tensor):
        # Results that are not tensors, such as labels, stay as they were if nothing has changed them.
        return leaf if all(sample is leaf for sample in samples) else list(samples)
    kinds = {(type(sample), sample.dtype, sample.dim()) if isinstance(sample, torch.Tensor) else (type(sample), None, 0) for sample in samples}
    if len(kinds) > 1:
        raise RuntimeError(f"{name}: the results for different samples are of different types: {', '.join(map(str, kinds))}")
    if not isinstance(leaf, Batch) and all(sample is leaf for sample in samples):
        return leaf  # common to all samples before, and unchanged
    layout = None
    values = [sample.as_subclass(torch.Tensor) for sample in samples]
    # Images of torchvision have the channels first; the input's order is restored.
    if isinstance(first, single.Image | single.Video):
        layout = ("F" if first.dim() == 4 else "") + "CHW"
        if isinstance(leaf, Batch) and (leaf.layout or "").endswith("HWC"):
            values, layout = [image.movedim(-3, -1).contiguous() for image in values], layout[:-3] + "HWC"
    elif isinstance(leaf, Batch) and leaf.layout is not None and len(leaf.layout) == first.dim():
        layout = leaf.layout
    output = as_batch(values, layout=layout)
    if isinstance(first, single.BoundingBoxes):
        sizes = [sample.canvas_size for sample in samples]
        return tv_tensors.BoundingBoxes(output, format=first.format, canvas_size=sizes, clamping_mode=first.clamping_mode)
    if isinstance(first, single.KeyPoints):
        return tv_tensors.KeyPoints(output, canvas_size=[sample.canvas_size for sample in samples])
    if isinstance(first, single.Mask):
        return tv_tensors.Mask(output)
    if tv_tensors.is_typed(leaf) and isinstance(first, single.Image | single.Video):
        return leaf.over(output)
    return output


def call_per_sample(
    name: str,
    function: Callable[..., Any],
    inputs: Sequence[Any],
    batch_size: int,
    each: Callable[[Callable[[int], Any], range], Iterable[Any]] = map,
) -> Any:
    """Call a function for every sample and return a Batch for each leaf of its results."""
    has_several = len(inputs) > 1
    sample = tuple(inputs) if has_several else inputs[0]
    leaves, spec = flatten(sample)

    def call(i: int) -> Any:
        item = unflatten([sample_at(leaf, i) for leaf in leaves], spec)
        return flatten(function(*item) if has_several else function(item))

    # `each` is `map`, or a map on several threads.
    results = list(each(call, range(batch_size)))
    if not results:
        return sample
    first_leaves, first_spec = results[0]
    for _, other in results[1:]:
        if other != first_spec:
            raise RuntimeError(f"{name}: the results for different samples have different structures: {first_spec} and {other}")
    # Results take layouts and kinds from the inputs at the same positions, if there are as many.
    like = leaves if len(leaves) == len(first_leaves) else [None] * len(first_leaves)
    columns = zip(*(result_leaves for result_leaves, _ in results), strict=True)
    return unflatten([join_samples(name, column, leaf) for column, leaf in zip(columns, like, strict=True)], first_spec)


def has_tensor(sample: Any) -> bool:
    """Return whether a sample contains a Tensor of torch_ndd."""
    if isinstance(sample, Batch | torch.Tensor):
        return False
    if isinstance(sample, list | tuple):
        return any(map(has_tensor, sample))
    if isinstance(sample, Mapping):
        return any(map(has_tensor, sample.values()))
    return isinstance(sample, NddTensor)


def call_on_tensors(name: str, function: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """Call a function of batches on a sample with Tensors, and return Tensors; torchvision's boxes, masks and points beside them keep their types.

    Raises:
        TypeError: an image or an encoded file as a Tensor beside a Batch.
    """
    leaves, spec = flatten(inputs)
    # A Batch next to the Tensor decides: the sample is a batch, and only images must not be single.
    beside = next((leaf for leaf in leaves if isinstance(leaf, Batch)), None)
    if beside is not None:
        for leaf in leaves:
            if isinstance(leaf, NddTensor) and (leaf.layout or "").endswith(tv_tensors.IMAGE_ENDINGS):
                raise TypeError(
                    f"{name}: a Tensor is one sample and cannot be combined with a Batch of {beside.batch_size} samples; batch all of them"
                )
        return function(*inputs)
    originals: dict[int, Any] = {}  # by the identity of the batch made of each
    batches = []
    for leaf in leaves:
        if isinstance(leaf, NddTensor):
            batches.append(as_batch([leaf], layout=leaf.layout))
        elif isinstance(leaf, single.TVTensor):
            # torchvision's objects become batches of one as well, so all parts of the sample match.
            batches.append(join_samples(name, [leaf], None))
        else:
            batches.append(leaf)
            continue
        originals[id(batches[-1])] = leaf

    def take_first(value: Any) -> Any:
        if isinstance(value, Batch):
            original = originals.get(id(value))
            # A leaf that came back unchanged is returned itself, with its identity and type.
            return original if original is not None else sample_at(value, 0) if tv_tensors.is_typed(value) else value.select(0)
        return value[0] if _is_pil_list(value) else value

    return tree_map(take_first, function(*unflatten(batches, spec)), is_leaf=lambda value: isinstance(value, Batch) or _is_pil_list(value))


def _is_pil_list(value: Any) -> bool:
    """Return whether a value is the result of ``ToPILImage`` for a batch of size 1."""
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], PIL.Image.Image)
