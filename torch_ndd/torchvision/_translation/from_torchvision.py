# SPDX-License-Identifier: Apache-2.0
"""``from_torchvision``: the function of a loader from a transform of torchvision."""

import inspect
from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import nn

from ..._core.context.device import DeviceLike
from ..._core.suggestions import check_choice
from .. import v2
from ..timm._convert import convert_timm
from . import Unknown
from .steps import ChannelsBeforeFrames, PerSample
from .transform import BatchTransform


def from_torchvision(
    transform: Any, unknown: Unknown = "raise", *, device: DeviceLike | None = None, adjust_orientation: bool = False
) -> BatchTransform:
    """Translate a transform of torchvision to one for whole batches, the function of a :class:`torch_ndd.DataLoader`.

    The result takes encoded files, which it decodes, or images, together with labels, boxes, masks and the like, in tuples and dicts as torchvision's
    v2 does. A Tensor, one file or image, is transformed like a batch of size 1. Every sample draws its own numbers, from torch_ndd's generators.

    Results equal those of torchvision on tensors, or differ by a level of 255, like those of :mod:`torch_ndd.torchvision.v2`. torchvision itself
    differs between tensors and PIL images: in bilinear warps at edges, in gray and hue by some levels. Files and HWC images are resized to the pixels
    of PIL images until a step converts them to tensors; Pillow 13 resizes the height first, which changes some levels, where
    ``2 * (width - new_width) < height - new_height``: that is for images more than twice as high as wide, if they keep their aspect ratio. Only the
    window of a ``RandomResizedCrop`` at the beginning is decoded. ``RandomHorizontalFlip``, ``ToTensor`` or ``ToDtype(torch.float32, scale=True)``,
    and ``Normalize`` run in one pass.

    ``torch_ndd.torchvision.from_torchvision`` is the recommended name; ``v2.from_torchvision`` is the same function.

    Args:
        transform: a transform of ``torchvision.transforms.v2`` or ``torchvision.transforms``, also ``Compose`` and other containers;
            ``nn.Sequential`` or a list of transforms; ``weights.transforms()``; transforms of ``timm.data``; those of
            :mod:`torch_ndd.torchvision.v2`.
        unknown: treatment of transforms that torchvision does not have, and of functions: "raise" TypeError, or "per_sample": call them with a
            ``tv_tensors.Image`` (C, H, W) per sample, in Python, on threads (:func:`torch_ndd.set_num_threads`); the other parts of a sample stay,
            unless the function has as many parameters as the sample has parts.
        device: where to decode, see :func:`torch_ndd.decoders.image`.
        adjust_orientation: apply the EXIF orientation of encoded files, which torchvision's data sets do not.

    Raises:
        TypeError: another object than a transform of torchvision, or a ``Lambda``; the message names its class and its place. At the call: a sample
            without an image, such as ``bytes``.
        ValueError: another ``unknown``.

    >>> from torchvision.transforms import v2 as theirs
    >>> transform = from_torchvision(theirs.Compose([theirs.CenterCrop(2), theirs.ToImage(), theirs.ToDtype(torch.float32, scale=True)]))
    >>> images = batch(torch.full((2, 4, 6, 3), 255, dtype=torch.uint8), layout="HWC")
    >>> transform(images).shape[0], transform(images).torch().max()
    ((3, 2, 2), tensor(1.))
    """
    check_choice("from_torchvision", "unknown", unknown, get_args(Unknown), ValueError)
    return BatchTransform(_Translator(unknown).steps(transform, "transform"), device, adjust_orientation)


class _Translator:
    """Translation of transforms to steps."""

    def __init__(self, unknown: Unknown) -> None:
        self.unknown = unknown

    def steps(self, transform: Any, place: str) -> list[Any]:
        """Return the steps of a transform; ``place`` locates it in error messages, such as "transform[1]"."""
        if isinstance(transform, list | tuple):
            return self._translate_all(transform, place)
        # By names of modules and classes: torchvision's old and new classes, and timm's, need not be imported for this.
        module, name = type(transform).__module__, type(transform).__name__
        if isinstance(transform, nn.Sequential):
            return self._translate_all(list(transform), place)
        if isinstance(transform, nn.Identity) and type(transform) is nn.Identity:
            return []
        if isinstance(transform, BatchTransform):
            return list(transform.transforms)
        # Transforms of this package work on batches already.
        if module.startswith("torch_ndd.") or isinstance(transform, v2.Transform):
            return [transform]
        if module.startswith("torchvision.transforms._presets"):
            return self._translate_preset(transform, name, place)
        if module.startswith("torchvision.transforms"):
            return self._translate_torchvision(transform, name, place)
        if module.startswith("timm.data"):
            # None for a class of timm that has no counterpart here.
            converted = convert_timm(transform)
            if converted is not None:
                return self._translate_all(converted, place) if isinstance(converted, list) else [converted]
        return [self._translate_unknown(transform, place)]

    def _translate_all(self, transforms: Sequence[Any], place: str) -> list[Any]:
        return [step for k, part in enumerate(transforms) for step in self.steps(part, f"{place}[{k}]")]

    def _translate_torchvision(self, transform: Any, name: str, place: str) -> list[Any]:
        if name == "Compose":
            return self._translate_all(transform.transforms, place)
        if name in ("RandomApply", "RandomChoice", "RandomOrder"):
            parts = [self._translate_part(part, f"{place}[{k}]") for k, part in enumerate(transform.transforms)]
            # RandomChoice and RandomApply have probabilities, RandomOrder has none.
            arguments = {"p": transform.p} if name != "RandomOrder" else {}
            return [getattr(v2, name)(parts, **arguments)]
        if name == "ToTensor":  # converts the uint8 of PIL images to floats from 0 to 1
            return [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
        if name == "Lambda":
            return [self._translate_unknown(transform, place)]
        like = getattr(v2, name, None)
        if like is None:
            return [self._translate_unknown(transform, place)]
        return [like(**read_parameters(transform, like))]

    def _translate_part(self, transform: Any, place: str) -> Any:
        steps = self.steps(transform, place)
        # A container holds one transform for each choice, so several steps become one.
        return steps[0] if len(steps) == 1 else v2.Compose(steps) if steps else v2.Identity()

    def _translate_preset(self, preset: Any, name: str, place: str) -> list[Any]:
        floats: list[Any] = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
        if name == "ObjectDetection":
            return floats
        if name == "OpticalFlow":
            return [*floats, v2.Normalize([0.5] * 3, [0.5] * 3)]
        steps: list[Any] = []
        if name not in ("ImageClassification", "SemanticSegmentation", "VideoClassification"):
            return [self._translate_unknown(preset, place)]
        if preset.resize_size is not None:
            # torchvision's preset of videos resizes without antialiasing.
            antialias = False if name == "VideoClassification" else preset.antialias
            steps.append(v2.Resize(preset.resize_size, interpolation=preset.interpolation, antialias=antialias))
        if name != "SemanticSegmentation":
            steps.append(v2.CenterCrop(preset.crop_size))
        steps += [*floats, v2.Normalize(preset.mean, preset.std)]
        return [*steps, ChannelsBeforeFrames()] if name == "VideoClassification" else steps

    def _translate_unknown(self, transform: Any, place: str) -> Any:
        if not callable(transform):
            raise TypeError(f"from_torchvision: {place} must be a transform, got a value of type {type(transform).__name__}")
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


# Attributes whose names differ from their parameters'.
_ATTRIBUTES = {
    ("RandomIoUCrop", "sampler_options"): ("options",),
    ("MixUp", "labels_getter"): ("_labels_getter",),
    ("CutMix", "labels_getter"): ("_labels_getter",),
}
# Values of the parameters that v2 has and the older classes of torchvision.transforms lack.
_ABSENT = {"antialias": True, "expand": False, "center": None, "max_size": None, "inplace": False, "num_output_channels": 1}
_MISSING = object()


def read_parameters(transform: Any, like: type) -> dict[str, Any]:
    """Return the arguments of the class ``like`` that make a transform of the same name.

    Raises:
        TypeError: an object without an attribute for a parameter.
    """
    name = type(transform).__name__
    arguments: dict[str, Any] = {}
    for parameter in inspect.signature(like).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value: Any = _MISSING
        for attribute in (*_ATTRIBUTES.get((name, parameter.name), ()), parameter.name):
            value = getattr(transform, attribute, _MISSING)
            if value is not _MISSING:
                break
        if value is _MISSING:
            if parameter.name not in _ABSENT:
                raise TypeError(f"from_torchvision: {name} has no attribute {parameter.name!r}; this version of torchvision is not supported")
            value = _ABSENT[parameter.name]
        arguments[parameter.name] = value
    # Instances store None for "random".
    if name == "RandomErasing" and arguments.get("value") is None:
        arguments["value"] = "random"
    if name == "RandomCrop" and ".v2" in type(transform).__module__ and arguments["padding"] is not None:  # it stores left, right, top, bottom
        left, right, top, bottom = arguments["padding"]
        arguments["padding"] = [left, top, right, bottom]
    if name == "Normalize":
        # Numbers of Python, whatever torchvision holds.
        arguments |= {key: [float(value) for value in arguments[key]] for key in ("mean", "std")}
    return arguments
