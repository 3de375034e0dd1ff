# SPDX-License-Identifier: Apache-2.0
"""The result of ``from_torchvision`` and ``from_timm``: a transform over whole batches."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import PIL.Image
import torch
from torchvision import tv_tensors as single

from ..._core.context.device import DeviceLike
from ..._core.native.default_device import ignore_default_device
from ..._core.values.batch import Batch, as_batch
from .._sample import check_type, flatten, is_explicit_image, is_pure_tensor, unflatten
from .._single_samples import call_on_tensors, has_tensor
from .fusion import fuse_steps, use_pillow_rules
from .steps import CropDecoder, FlipNormalize, ResizeNormalize, ResizeWindows, decode_files, is_encoded

_RANDOM_CROPS = ("RandomResizedCrop", "RandomResizedCropAndInterpolation")


class BatchTransform:
    """A sequence of steps over whole batches, the function of a loader.

    The steps exist three times: as they were translated, fused, and fused with Pillow's rule for resizing. The sample decides which of them run.
    """

    def __init__(self, steps: Sequence[Any], device: DeviceLike | None, adjust_orientation: bool) -> None:
        self.transforms = list(steps)
        """The transforms of :mod:`torch_ndd.torchvision.v2`, in order."""
        self._fused, self._fused_for_pillow = fuse_steps(self.transforms), fuse_steps(use_pillow_rules(self.transforms))
        self._device, self._orientation = device, adjust_orientation

    @ignore_default_device
    def __call__(self, *inputs: Any) -> Any:
        """Transform a sample of batches, or a sample with a Tensor, given as one argument or several."""
        return call_on_tensors("from_torchvision", self._run, inputs) if has_tensor(inputs) else self._run(*inputs)

    def _run(self, *inputs: Any) -> Any:
        leaves, spec = flatten(inputs[0] if len(inputs) == 1 else inputs)
        if not any(map(_may_be_image, leaves)):
            kinds = ", ".join(sorted({type(leaf).__name__ for leaf in leaves})) or "nothing"
            raise TypeError(
                f"from_torchvision: the sample has no image, only {kinds}; pass encoded files as a Batch or a Tensor: "
                "ndd.as_tensor(np.frombuffer(file, np.uint8))"
            )
        # Single samples run the plain steps, as torchvision would.
        batches = [leaf for leaf in leaves if isinstance(leaf, Batch)]
        steps = self._fused if batches else self.transforms
        if any(is_encoded(leaf) or (leaf.layout or "").endswith("HWC") for leaf in batches):
            steps = self._fused_for_pillow
        encoded = [k for k, leaf in enumerate(leaves) if is_encoded(leaf)]
        if encoded:
            decode: Callable[..., Batch] = decode_files
            # Only the window is decoded if nothing else has to move with it.
            if len(encoded) == 1 and steps and type(steps[0]).__name__ in _RANDOM_CROPS and not any(_is_moving(leaf) for leaf in leaves):
                fuses = len(steps) > 1 and isinstance(steps[1], FlipNormalize) and hasattr(steps[0], "normalize_windows")
                decode = CropDecoder(steps[0], resizes=not fuses)
                steps = [ResizeNormalize(ResizeWindows(steps[0], encoded[0]), steps[1]), *steps[2:]] if fuses else steps[1:]
            for k in encoded:
                leaves[k] = decode(leaves[k], self._device, self._orientation)
        # A tensor without a type counts as the image if nothing else is one.
        elif (first := _find_unmarked_image(leaves)) is not None:
            leaves[first] = as_batch(leaves[first], layout="CHW")
        sample = unflatten(leaves, spec)
        for step in steps:
            sample = step(sample)
        return sample

    def __repr__(self) -> str:
        return "BatchTransform(\n" + "".join(f"    {step!r}\n" for step in self._fused) + ")"


def _may_be_image(leaf: Any) -> bool:
    if isinstance(leaf, Batch | PIL.Image.Image | single.TVTensor):
        return True
    return isinstance(leaf, torch.Tensor | np.ndarray) and leaf.ndim > 1


def _is_moving(leaf: Any) -> bool:
    """Return whether a crop applies to a leaf: another image, boxes, masks or points."""
    return not is_pure_tensor(leaf) and check_type(leaf, (single.TVTensor,))


def _find_unmarked_image(leaves: Sequence[Any]) -> int | None:
    """Return the index of the leaf that torchvision would take for the image although it has no layout: the first Batch of three axes."""
    if any(map(is_explicit_image, leaves)):
        return None
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, Batch) and leaf.layout is None and leaf.ndim == 3 and check_type(leaf, (is_pure_tensor,)):
            return k
    return None
