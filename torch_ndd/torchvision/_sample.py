# SPDX-License-Identifier: Apache-2.0
"""Samples: trees whose leaves are images, boxes, masks, labels or other values, for a single sample or a batch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import PIL.Image
import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten
from torchvision import tv_tensors as single

from .._core.values.batch import Batch, as_batch
from .._core.values.tensor import Tensor as NddTensor
from . import tv_tensors

Check: TypeAlias = "type | Callable[[Any], bool]"


def is_pure_tensor(inpt: Any) -> bool:
    """Return whether a leaf is a torch tensor that is not a tv_tensor."""
    return isinstance(inpt, torch.Tensor) and not isinstance(inpt, single.TVTensor)


def flatten(sample: Any) -> tuple[list[Any], TreeSpec]:
    """Return the leaves of a sample and its structure. A Batch or a Tensor of torch_ndd is a leaf."""
    return tree_flatten(sample, is_leaf=lambda node: isinstance(node, Batch | NddTensor))


def unflatten(leaves: Sequence[Any], spec: TreeSpec) -> Any:
    """Return the sample with these leaves."""
    return tree_unflatten(list(leaves), spec)


def sample_of(inputs: Sequence[Any]) -> Any:
    """Return the sample of a call: its only argument, or the tuple of all arguments."""
    return inputs if len(inputs) > 1 else inputs[0]


def kind_of(inpt: Any) -> type:
    """Return the type that selects the kernel for a leaf: for a Batch, the type that its samples would have in torchvision."""
    if not isinstance(inpt, Batch):
        return type(inpt)
    # A typed Batch knows the class of its samples; other Batches are judged by their layout.
    known = getattr(inpt, "_single", None)
    if known is not None:
        return known
    layout = inpt.layout or ""
    if layout.endswith(tv_tensors.IMAGE_ENDINGS):
        return single.Video if len(layout) > 3 else single.Image
    return torch.Tensor


def check_type(obj: Any, types_or_checks: Sequence[Check]) -> bool:
    """Return whether an object, or each sample of a Batch, has one of these types or passes one of these checks."""
    if isinstance(obj, Batch):
        kind = kind_of(obj)
        for check in types_or_checks:
            if isinstance(check, type):
                if issubclass(kind, check) or isinstance(obj, check):
                    return True
            elif getattr(check, "__name__", "") == "is_pure_tensor":  # torchvision's function or ours: by identity only one would match
                if kind is torch.Tensor:
                    return True
            elif check(obj):
                return True
        return False
    return any(isinstance(obj, check) if isinstance(check, type) else check(obj) for check in types_or_checks)


def has_any(flat_inputs: Sequence[Any], *types_or_checks: Check) -> bool:
    """Return whether any leaf has one of these types."""
    return any(check_type(leaf, types_or_checks) for leaf in flat_inputs)


def has_all(flat_inputs: Sequence[Any], *types_or_checks: Check) -> bool:
    """Return whether each of these types has a leaf."""
    return all(any(check_type(leaf, (wanted,)) for leaf in flat_inputs) for wanted in types_or_checks)


def is_explicit_image(leaf: Any) -> bool:
    """Return whether a leaf is marked as an image or a video; plain tensors in the same sample are then other data."""
    return issubclass(kind_of(leaf), single.Image | single.Video | PIL.Image.Image)


def batch_size_of(name: str, leaves: Sequence[Any]) -> int | None:
    """Return the number of samples, None without a Batch.

    Raises:
        ValueError: Batches of different sizes.
        TypeError: a single image, box or the like beside a Batch.
    """
    size = None
    for leaf in leaves:
        if isinstance(leaf, Batch):
            if size is not None and leaf.batch_size != size:
                raise ValueError(f"{name}: all Batches of a sample must have the same size, got {size} and {leaf.batch_size}")
            size = leaf.batch_size
    if size is not None:
        for leaf in leaves:
            if isinstance(leaf, single.TVTensor | PIL.Image.Image):
                raise TypeError(
                    f"{name}: a {type(leaf).__name__} is one sample and cannot be combined with a Batch of {size} samples; batch all of them"
                )
    return size


def first_batch_size(leaves: Sequence[Any]) -> int | None:
    """Return the number of samples of the first Batch, None without one."""
    return next((leaf.batch_size for leaf in leaves if isinstance(leaf, Batch)), None)


def select_samples(leaf: Any, indices: Sequence[int]) -> Any:
    """Return some samples of a leaf; a value that is not a Batch is common to all samples."""
    return leaf.select(list(indices)) if isinstance(leaf, Batch) else leaf


def merge_batches(name: str, parts: Sequence[tuple[Sequence[int], Batch]], batch_size: int) -> Batch:
    """Return one Batch of parts, each with the indices of its samples.

    Raises:
        RuntimeError: parts with different dtypes, layouts or kinds.
    """
    first = parts[0][1]
    for _, part in parts[1:]:
        if (part.dtype, part.layout, part.ndim, kind_of(part)) != (first.dtype, first.layout, first.ndim, kind_of(first)):
            raise RuntimeError(
                f"{name}: the results for different samples cannot be joined: {first.dtype} with layout {first.layout!r} and "
                f"{part.dtype} with layout {part.layout!r}; all transforms must return the same type and layout"
            )
    # Samples are views: as_batch copies them once, to their places.
    samples: list[Any] = [None] * batch_size
    sizes: list[Any] = [None] * batch_size
    for indices, part in parts:
        canvas = getattr(part, "canvas_size", None)
        for k, i in enumerate(indices):
            samples[i] = part.nth(k)
            sizes[i] = canvas[k] if canvas is not None else None
    output = as_batch(samples, layout=first.layout)
    if tv_tensors.is_typed(first):
        changed = {"canvas_size": sizes} if hasattr(first, "canvas_size") else {}
        return first.over(output, **changed)
    return output


def get_bounding_boxes(flat_inputs: Sequence[Any]) -> Any:
    """Return the first bounding boxes. Raise ValueError if there are none."""
    for leaf in flat_inputs:
        if check_type(leaf, (single.BoundingBoxes,)):
            return leaf
    raise ValueError("No bounding boxes were found in the sample")


def get_keypoints(flat_inputs: Sequence[Any]) -> Any:
    """Return the first key points. Raise ValueError if there are none."""
    for leaf in flat_inputs:
        if check_type(leaf, (single.KeyPoints,)):
            return leaf
    raise ValueError("No keypoints were found in the sample")


def labels_of(sample: Any) -> Any:
    """Return the labels of a sample: its second part, or in a mapping there the value of a key that contains "label".

    Raises:
        ValueError: a sample without labels.
    """
    target = sample[1] if isinstance(sample, tuple | list) else sample
    if isinstance(target, torch.Tensor | Batch):
        return target
    if not isinstance(target, Mapping):
        raise ValueError(
            "When using the default labels_getter, the input passed to forward must be a dictionary or a two-tuple whose second item is a dictionary "
            f"or a tensor, but got {target} instead."
        )
    # torchvision's order: the key "labels" in any case, else the first key that contains "label".
    keys = [key for key in target if isinstance(key, str)]
    key = next((key for key in keys if key.lower() == "labels"), None) or next((key for key in keys if "label" in key.lower()), None)
    if key is None:
        raise ValueError("No labels were found in the sample; pass labels_getter, a function that returns them, or None for samples without labels")
    return target[key]
