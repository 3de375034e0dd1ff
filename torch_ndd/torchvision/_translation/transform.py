# SPDX-License-Identifier: Apache-2.0
"""A translated transform: the function of a loader that runs the steps."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import PIL.Image
import torch
from torchvision import tv_tensors as single

from ..._core.context.device import DeviceLike
from ..._core.values.batch import Batch, as_batch
from .._sample import check_type, flatten, is_explicit_image, is_pure_tensor, unflatten
from .._single_samples import holds_tensor, on_tensors
from .fusion import for_pillow, planned
from .steps import CropDecoder, decoded, is_encoded


class Translated:
    """A translated transform."""

    def __init__(self, steps: Sequence[Any], device: DeviceLike | None, adjust_orientation: bool) -> None:
        self.transforms = list(steps)
        """The transforms of :mod:`torch_ndd.torchvision.v2` one by one."""
        self._planned, self._for_pillow = planned(self.transforms), planned(for_pillow(self.transforms))
        self._device, self._orientation = device, adjust_orientation

    def __call__(self, *inputs: Any) -> Any:
        """Transform a sample of batches, or one with a Tensor: one input, or several as a tuple."""
        return on_tensors("from_torchvision", self._of_batches, inputs) if holds_tensor(inputs) else self._of_batches(*inputs)

    def _of_batches(self, *inputs: Any) -> Any:
        leaves, spec = flatten(inputs[0] if len(inputs) == 1 else inputs)
        if not any(map(_may_be_image, leaves)):
            kinds = ", ".join(sorted({type(leaf).__name__ for leaf in leaves})) or "nothing"
            raise TypeError(
                f"from_torchvision: there is no image in the sample, but {kinds}; encoded files are given as a Batch or a Tensor: "
                "ndd.as_tensor(np.frombuffer(file, np.uint8))"
            )
        batches = [leaf for leaf in leaves if isinstance(leaf, Batch)]
        steps = self._planned if batches else self.transforms
        if any(is_encoded(leaf) or (leaf.layout or "").endswith("HWC") for leaf in batches):
            steps = self._for_pillow
        encoded = [k for k, leaf in enumerate(leaves) if is_encoded(leaf)]
        if encoded:
            decode: Callable[..., Batch] = decoded
            if len(encoded) == 1 and steps and _crops_first(steps[0]) and not any(_has_place(leaf) for leaf in leaves):
                decode, steps = CropDecoder(steps[0]), steps[1:]
            for k in encoded:
                leaves[k] = decode(leaves[k], self._device, self._orientation)
        elif (first := _unmarked(leaves)) is not None:
            leaves[first] = as_batch(leaves[first], layout="CHW")
        sample = unflatten(leaves, spec)
        for step in steps:
            sample = step(sample)
        return sample

    def __repr__(self) -> str:
        return "Translated(\n" + "".join(f"    {step!r}\n" for step in self._planned) + ")"


def _may_be_image(leaf: Any) -> bool:
    if isinstance(leaf, Batch | PIL.Image.Image | single.TVTensor):
        return True
    return isinstance(leaf, torch.Tensor | np.ndarray) and leaf.ndim > 1


def _crops_first(step: Any) -> bool:
    return type(step).__name__ in ("RandomResizedCrop", "RandomResizedCropAndInterpolation")


def _has_place(leaf: Any) -> bool:
    """Return whether a leaf moves with the image: another image, boxes, masks or points."""
    return not is_pure_tensor(leaf) and check_type(leaf, (single.TVTensor,))


def _unmarked(leaves: Sequence[Any]) -> int | None:
    """Return the first leaf that torchvision would take for the image although nothing says so."""
    if any(is_explicit_image(leaf) for leaf in leaves):
        return None
    return next((k for k, leaf in enumerate(leaves) if isinstance(leaf, Batch) and leaf.layout is None and leaf.ndim == 3 and _plain(leaf)), None)


def _plain(leaf: Batch) -> bool:
    return check_type(leaf, (is_pure_tensor,))
