# SPDX-License-Identifier: Apache-2.0
"""The base classes of the transforms.

The classes inherit parameters, checks and representation from torchvision's, so ``isinstance`` and torchvision's ``Compose`` work. Draws and
computation are ours: for a Batch, one draw per sample. A ``transform`` that is inherited too calls :meth:`Transform._call_kernel`, which finds our
kernel by the name of torchvision's functional.
"""

from collections.abc import Callable, Sequence
from typing import Any

import PIL.Image
import torch
from torchvision import tv_tensors as single
from torchvision.transforms import v2 as reference

from ..._core.native.default_device import ignore_default_device
from ..._core.native.tracing import is_compiling
from ..._core.values.batch import Batch
from .._draws import Draws
from .._sample import (
    batch_size_of,
    check_type,
    first_batch_size,
    flatten,
    is_explicit_image,
    is_pure_tensor,
    kind_of,
    merge_batches,
    sample_of,
    select_samples,
    unflatten,
)
from .._single_samples import call_on_tensors, call_per_sample, has_tensor
from .functional._dispatch import kernel_for
from .functional._sizes import channels_of, size_columns


class Transform(reference.Transform):
    """Base class of transforms, also of custom ones.

    Override ``make_params(flat_inputs)``, which returns a dict, and ``transform(inpt, params)``, which is called for every leaf to transform.
    A custom class is called for each sample of a batch, with images as ``tv_tensors.Image`` ``(C, H, W)``.
    """

    _takes_batches = False
    _takes_tensors = True

    @ignore_default_device
    def __call__(self, *inputs: Any) -> Any:
        """Transform a sample or a batch, passed as one argument or several; a Tensor of torch_ndd is a batch of size 1."""
        if not has_tensor(inputs):
            return super().__call__(*inputs)
        if not self._takes_tensors:
            raise TypeError(f"{self._name}: images must be a Batch, got a Tensor, which is one sample; convert with as_batch(images, layout='CHW')")
        return call_on_tensors(self._name, super().__call__, inputs)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Methods that were written for torchvision do not expect batches.
        if not cls.__module__.startswith("torch_ndd.") and ("make_params" in cls.__dict__ or "transform" in cls.__dict__):
            cls._takes_batches = False

    def forward(self, *inputs: Any) -> Any:
        """Transform a sample or a batch, passed as one argument or several. Override :meth:`transform` instead."""
        sample = sample_of(inputs)
        leaves, spec = flatten(sample)
        size = batch_size_of(self._name, leaves)
        if size is not None and not self._takes_batches:
            # The methods of the subclass are called for one sample after the other.
            return call_per_sample(self._name, self, inputs, size)
        self.check_inputs(leaves)
        if size == 0:  # an empty batch has no sizes to draw from
            return sample
        outputs = self._transform_sample(leaves, size)
        return sample if outputs is None else unflatten(outputs, spec)

    def _transform_sample(self, leaves: list[Any], size: int | None) -> list[Any] | None:
        """Return the transformed leaves of a sample, or of a batch of ``size`` samples; None if nothing changes."""
        return self._transform_leaves(leaves)

    def _transform_leaves(self, leaves: list[Any]) -> list[Any]:
        needs = self._needs_transform_list(leaves)
        params = self.make_params([leaf for leaf, wanted in zip(leaves, needs, strict=True) if wanted])
        return [self.transform(leaf, params) if wanted else leaf for leaf, wanted in zip(leaves, needs, strict=True)]

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _needs_transform_list(self, flat_inputs: list[Any]) -> list[bool]:
        """Return which leaves to transform: of plain tensors the first, unless a leaf is marked as an image."""
        explicit = any(map(is_explicit_image, flat_inputs))  # torchvision's heuristic
        needs = []
        for leaf in flat_inputs:
            wanted = check_type(leaf, self._transformed_types)
            if wanted and (is_pure_tensor(leaf) or (isinstance(leaf, Batch) and kind_of(leaf) is torch.Tensor)):
                wanted, explicit = not explicit, True
            needs.append(wanted)
        return needs

    def _call_kernel(self, functional: Callable[..., Any], inpt: Any, *args: Any, **kwargs: Any) -> Any:
        return kernel_for(functional, inpt, passes=True)(inpt, *args, **kwargs)

    def _fill_for(self, inpt: Any) -> Any:
        """Return the fill value for a leaf, which ``fill`` may state by type."""
        fill = self.fill
        if isinstance(fill, dict):
            return fill.get(kind_of(inpt), fill.get("others"))
        return fill


class Batched(Transform):
    """A transform of whole batches: parameters are numbers, or tensors with one for each sample."""

    _takes_batches = True


class RandomTransform(Batched):
    """A transform that acts with the probability ``p``, independently for each sample."""

    p: float

    def _transform_sample(self, leaves: list[Any], size: int | None) -> list[Any] | None:
        acts = Draws(size).happens(self.p)
        if size is None:
            return self._transform_leaves(leaves) if bool(acts) else None
        # Without splitting the batch, where all samples act alike; a graph cannot look at the draws.
        if not is_compiling():
            if bool(acts.all()):
                return self._transform_leaves(leaves)
            if not bool(acts.any()):
                return None
        return self._transform_where(acts, leaves)

    def _transform_where(self, acts: torch.Tensor, leaves: list[Any]) -> list[Any]:
        """Transform the samples for which ``acts`` is true."""
        return transform_where(self._name, acts, leaves, self._transform_leaves)


def transform_where(name: str, acts: torch.Tensor, leaves: Sequence[Any], apply: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """Transform the samples for which ``acts`` is true; the others are copied with them to new batches."""
    chosen, others = acts.nonzero().flatten().tolist(), (~acts).nonzero().flatten().tolist()
    before = [select_samples(leaf, chosen) for leaf in leaves]
    after = apply(list(before))
    outputs = []
    for leaf, old, new in zip(leaves, before, after, strict=True):
        if new is old:  # not a leaf that this transform changes
            outputs.append(leaf)
        else:
            outputs.append(merge_batches(name, [(chosen, new), (others, select_samples(leaf, others))], len(acts)))
    return outputs


# --- sizes and draws, from which parameters are made ---

_IMAGES = (is_pure_tensor, single.Image, PIL.Image.Image, single.Video)
_SIZED = (*_IMAGES, single.Mask, single.BoundingBoxes, single.KeyPoints)


def draws_for(flat_inputs: Sequence[Any]) -> Draws:
    """Return the draws for these leaves: one, or one for each sample."""
    return Draws(first_batch_size(flat_inputs))


def query_size(flat_inputs: Sequence[Any]) -> Any:
    """Return height and width of the images, videos, masks, boxes and points of a sample; for a batch tensors (N,) if they differ.

    Raises:
        TypeError: a sample without any of these.
        ValueError: sizes that differ within a sample.
    """
    found = [size_columns(leaf) for leaf in flat_inputs if check_type(leaf, _SIZED)]
    if not found:
        raise TypeError("No image, video, mask, bounding box of keypoint was found in the sample")
    return _same(found, "HxW")


def query_chw(flat_inputs: Sequence[Any]) -> Any:
    """Return channels, height and width of the images and videos of a sample; for a batch tensors (N,) if they differ.

    Raises:
        TypeError: a sample without any of these.
        ValueError: sizes that differ within a sample.
    """
    found = [(channels_of(leaf), *size_columns(leaf)) for leaf in flat_inputs if check_type(leaf, _IMAGES)]
    if not found:
        raise TypeError("No image or video was found in the sample")
    return _same(found, "CxHxW")


def _same(found: list[tuple[Any, ...]], what: str) -> tuple[Any, ...]:
    first = found[0]
    for other in found[1:]:
        for a, b in zip(first, other, strict=True):
            equal = a == b
            if not (bool(equal.all()) if isinstance(equal, torch.Tensor) else equal):
                raise ValueError(f"Found multiple {what} dimensions in the sample: {first} and {other}")
    # Prefer a number that all samples share to a column of equal numbers: graphs and kernels handle it better.
    for k, column in enumerate(first):
        if isinstance(column, torch.Tensor):
            known = next((size[k] for size in found if not isinstance(size[k], torch.Tensor)), None)
            if known is not None:
                first = (*first[:k], known, *first[k + 1 :])
    return first
