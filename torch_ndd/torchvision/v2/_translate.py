# SPDX-License-Identifier: Apache-2.0
"""``from_torchvision``: the function of a loader from a transform of torchvision."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import PIL.Image
import torch
from torch import nn
from torchvision import tv_tensors as single

from ..._core.context.device import DeviceLike
from ..._core.values.batch import Batch, as_batch
from ...ops.shape.reshape import transpose
from .._parameters import parameters_of
from .._sample import check_type, flatten, is_explicit_image, is_pure_tensor, unflatten
from . import _classes as v2
from ._of_tensors import holds_tensor, on_tensors
from ._per_sample import PerSample
from ._plan import CropDecoder, decoded, for_pillow, is_encoded, planned
from ._timm_objects import of_timm

_UNKNOWN = ("raise", "per_sample")


def from_torchvision(transform: Any, unknown: str = "raise", *, device: DeviceLike | None = None, adjust_orientation: bool = False) -> "Translated":
    """Return what does to batches what a transform of torchvision does to a sample: the function of a :class:`torch_ndd.DataLoader`.

    It is called with what the loader gives it: encoded files, which it decodes, or images, and labels, boxes, masks and the like, in tuples and dicts
    as torchvision's v2 takes them. A Tensor, one file or image, is transformed like a batch of one. Every sample draws its own random
    numbers, from torch_ndd's generators.

    Equal or within a level of 255 of torchvision on tensors (uint8), as far as :mod:`torch_ndd.torchvision.v2` is. torchvision on PIL images differs
    from that by itself: bilinear warps at edges, grey and hue by some levels. Files and HWC images are resized as PIL images are, to the same
    pixels, until a step makes tensors of them; Pillow 13 begins with the height, which changes some levels, where
    ``2 * (width - new_width) < height - new_height``: images that keep their aspect ratio are then more than twice as high as wide. A
    ``RandomResizedCrop`` at the beginning decodes only its window. ``RandomHorizontalFlip``, ``ToTensor`` or
    ``ToDtype(torch.float32, scale=True)``, and ``Normalize`` make one pass.

    Args:
        transform: a transform of ``torchvision.transforms.v2`` or ``torchvision.transforms``, also ``Compose`` and other containers;
            ``nn.Sequential`` or a list of transforms; ``weights.transforms()``; transforms of ``timm.data``; those of
            :mod:`torch_ndd.torchvision.v2`.
        unknown: what to do with the transforms and functions of others: "raise" TypeError, or "per_sample": call them for every sample, with a
            ``tv_tensors.Image`` (C, H, W), in Python, on threads (:func:`torch_ndd.set_num_threads`); the other parts of a sample stay, unless the
            function takes as many arguments as there are parts.
        device: where to decode, see :func:`torch_ndd.decoders.image`.
        adjust_orientation: apply the EXIF orientation of encoded files, which torchvision's data sets do not.

    Raises:
        TypeError: something that is not a transform of torchvision, or a ``Lambda``; the message names its class and its place. The function that is
            returned raises TypeError for samples without an image, such as ``bytes``.
        ValueError: another ``unknown``.

    >>> from torchvision.transforms import v2 as theirs
    >>> transform = from_torchvision(theirs.Compose([theirs.CenterCrop(2), theirs.ToImage(), theirs.ToDtype(torch.float32, scale=True)]))
    >>> images = batch(torch.full((2, 4, 6, 3), 255, dtype=torch.uint8), layout="HWC")
    >>> transform(images).shape[0], transform(images).torch().max()
    ((3, 2, 2), tensor(1.))
    """
    if unknown not in _UNKNOWN:
        raise ValueError(f'from_torchvision: unknown must be "raise" or "per_sample", got {unknown!r}')
    return Translated(_Translator(unknown).steps(transform, "transform"), device, adjust_orientation)


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


class _Translator:
    """Makes steps of transforms."""

    def __init__(self, unknown: str) -> None:
        self.unknown = unknown

    def steps(self, transform: Any, place: str) -> list[Any]:
        """Return the steps of a transform that stands at a place."""
        if isinstance(transform, list | tuple):
            return self._all(transform, place)
        module, name = type(transform).__module__, type(transform).__name__
        if isinstance(transform, nn.Sequential):
            return self._all(list(transform), place)
        if isinstance(transform, nn.Identity) and type(transform) is nn.Identity:
            return []
        if isinstance(transform, Translated):
            return list(transform.transforms)
        if module.startswith("torch_ndd.") or isinstance(transform, v2.Transform):
            return [transform]
        if module.startswith("torchvision.transforms._presets"):
            return self._preset(transform, name, place)
        if module.startswith("torchvision.transforms"):
            return self._of_torchvision(transform, name, place)
        if module.startswith("timm.data"):
            made = of_timm(transform)
            if made is not None:
                return self._all(made, place) if isinstance(made, list) else [made]
        return [self._other(transform, place)]

    def _all(self, transforms: Sequence[Any], place: str) -> list[Any]:
        return [step for k, one in enumerate(transforms) for step in self.steps(one, f"{place}[{k}]")]

    def _of_torchvision(self, transform: Any, name: str, place: str) -> list[Any]:
        if name == "Compose":
            return self._all(transform.transforms, place)
        if name in ("RandomApply", "RandomChoice", "RandomOrder"):
            parts = [self._one(one, f"{place}[{k}]") for k, one in enumerate(transform.transforms)]
            given = {"p": transform.p} if name != "RandomOrder" else {}
            return [getattr(v2, name)(parts, **given)]
        if name == "ToTensor":  # PIL's uint8 becomes floats from 0 to 1
            return [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
        if name == "Lambda":
            return [self._other(transform, place)]
        like = getattr(v2, name, None)
        if like is None:
            return [self._other(transform, place)]
        return [like(**parameters_of(transform, like))]

    def _one(self, transform: Any, place: str) -> Any:
        steps = self.steps(transform, place)
        return steps[0] if len(steps) == 1 else v2.Compose(steps) if steps else v2.Identity()

    def _preset(self, preset: Any, name: str, place: str) -> list[Any]:
        floats: list[Any] = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
        if name == "ObjectDetection":
            return floats
        if name == "OpticalFlow":
            return [*floats, v2.Normalize([0.5] * 3, [0.5] * 3)]
        made: list[Any] = []
        if name not in ("ImageClassification", "SemanticSegmentation", "VideoClassification"):
            return [self._other(preset, place)]
        if preset.resize_size is not None:
            antialias = False if name == "VideoClassification" else preset.antialias
            made.append(v2.Resize(preset.resize_size, interpolation=preset.interpolation, antialias=antialias))
        if name != "SemanticSegmentation":
            made.append(v2.CenterCrop(preset.crop_size))
        made += [*floats, v2.Normalize(preset.mean, preset.std)]
        return [*made, FramesInside()] if name == "VideoClassification" else made

    def _other(self, transform: Any, place: str) -> Any:
        if not callable(transform):
            raise TypeError(f"from_torchvision: {place} is not a transform but a {type(transform).__name__}")
        if self.unknown == "per_sample":
            return PerSample(transform)
        if hasattr(transform, "lambd"):
            raise TypeError(
                f"from_torchvision: {place} is a Lambda, whose function cannot be translated; write it in fn with torch_ndd's operators, "
                'or give unknown="per_sample" to call it for every sample'
            )
        name = getattr(transform, "__name__", None) or type(transform).__name__
        wrapped = getattr(transform, "transforms", None)
        inner = f"give its attribute transforms, a {type(wrapped).__name__}," if wrapped is not None else "write it in fn with torch_ndd's operators,"
        raise TypeError(
            f"from_torchvision: {place} ({name} of {getattr(transform, '__module__', type(transform).__module__)}) is not a transform of "
            f'torchvision; {inner} or give unknown="per_sample" to call it for every sample'
        )


class FramesInside:
    """Makes CFHW of FCHW videos, the order of torchvision's video models."""

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        made = [transpose(leaf, perm=[1, 0, 2, 3]) if isinstance(leaf, Batch) and leaf.layout == "FCHW" else leaf for leaf in leaves]
        return unflatten(made, spec)
