# SPDX-License-Identifier: Apache-2.0
"""``from_timm``: the function of a loader for the arguments of ``timm.data.create_transform``."""

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import torch

from ..._core.context.device import DeviceLike
from ..._core.native.default_device import ignore_default_device
from ..._core.suggestions import check_choice, similar
from .. import v2
from .._translation.transform import BatchTransform
from . import _transforms as transforms
from ._mixup import Mixup
from ._policies import make_policy
from ._transforms import EraseMode

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_CROP_PCT = 0.875

CropMode = Literal["center", "squash", "border"]
TrainCropMode = Literal["rrc", "rkrc", "rkrr"]
Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "random"]

_MIXUP_ATTRIBUTES = (
    *("mixup_alpha", "cutmix_alpha", "cutmix_minmax", "mix_prob", "switch_prob"),
    *("mode", "correct_lam", "label_smoothing", "num_classes"),
)

Size = int | Sequence[int]


def from_timm(
    input_size: Size = 224,
    is_training: bool = False,
    no_aug: bool = False,
    train_crop_mode: TrainCropMode | None = None,
    scale: Sequence[float] | None = None,
    ratio: Sequence[float] | None = None,
    hflip: float = 0.5,
    vflip: float = 0.0,
    color_jitter: float | Sequence[float] | None = 0.4,
    color_jitter_prob: float | None = None,
    grayscale_prob: float = 0.0,
    gaussian_blur_prob: float = 0.0,
    auto_augment: str | None = None,
    interpolation: Interpolation = "bilinear",
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    re_prob: float = 0.0,
    re_mode: EraseMode = "const",
    re_count: int = 1,
    re_num_splits: int = 0,
    crop_pct: float | None = None,
    crop_mode: CropMode | None = None,
    crop_border_pixels: int | None = None,
    use_prefetcher: bool = False,
    normalize: bool = True,
    *,
    mixup: Any = None,
    device: DeviceLike | None = None,
    adjust_orientation: bool = False,
    **others: Any,
) -> Any:
    """Return the transform for whole batches that ``timm.data.create_transform`` with the same arguments is for images; timm is not needed.

    The result is the function of a :class:`torch_ndd.DataLoader`: it takes encoded files or images, and labels, which pass through. Images become
    float32 (3, H, W), normalized; with ``use_prefetcher`` or without ``normalize`` uint8, as timm's loader expects them.

    ``torch_ndd.torchvision.from_timm`` is the recommended name; ``v2.from_timm`` is the same function.

    The distributions of all draws and the search spaces of the policies are timm's. Images are uint8 tensors rather than PIL images: a policy
    interpolates bilinearly, where timm draws bilinear or bicubic, and Gaussian blur is exact, where Pillow applies three box filters.

    Args:
        input_size: side of the result, (height, width) or (channels, height, width).
        is_training: training or evaluation.
        no_aug: training without augmentation.
        train_crop_mode: "rrc" (default), "rkrc" or "rkrr".
        scale, ratio: of the random crop.
        hflip, vflip: probabilities.
        color_jitter, color_jitter_prob: strength and probability; without effect beside ``auto_augment``, except "3a".
        grayscale_prob, gaussian_blur_prob: probabilities.
        auto_augment: "rand-m9-mstd0.5-inc1", "augmix-m3-w3", "v0", "v0r", "original", "originalr" or "3a", with their sections.
        interpolation: "bilinear", "bicubic", "nearest", "lanczos", and "random" for training.
        mean, std: of the normalization.
        re_prob, re_mode, re_count, re_num_splits: random erasing.
        crop_pct, crop_mode, crop_border_pixels: of the evaluation: part of the image, and "center", "squash" or "border".
        use_prefetcher, normalize: see above.
        mixup: a :class:`Mixup`, a ``timm.data.Mixup``, or its arguments as a dict: mixes images and labels, so the function returns both, labels
            float32 (N, num_classes).
        device, adjust_orientation: see :func:`from_torchvision`.
        **others: other arguments of ``create_transform`` (``tf_preprocessing``, ``separate``, ``naflex``, ``patchify``), only with their defaults.

    Raises:
        ValueError: an unknown policy, section, mode or interpolation.
        TypeError: an argument that ``create_transform`` does not have, or that is not supported here; a transform as the size.

    >>> train = from_timm(32, is_training=True, auto_augment="rand-m9-mstd0.5-inc1", re_prob=0.25, re_mode="pixel")
    >>> images = batch(torch.zeros(2, 40, 60, 3, dtype=torch.uint8), layout="HWC")
    >>> train(images).shape
    [(3, 32, 32), (3, 32, 32)]
    """
    _check_unsupported(others)
    train_crop_mode, crop_mode = train_crop_mode or "rrc", crop_mode or "center"
    # All are checked, also those without effect beside the other arguments.
    check_choice("from_timm", "interpolation", interpolation, get_args(Interpolation), ValueError)
    check_choice("from_timm", "train_crop_mode", train_crop_mode, get_args(TrainCropMode), ValueError)
    check_choice("from_timm", "crop_mode", crop_mode, get_args(CropMode), ValueError)
    check_choice("from_timm", "re_mode", re_mode, get_args(EraseMode), ValueError)
    if not isinstance(input_size, int | Sequence):
        what = (
            "for a transform that exists, use from_torchvision" if callable(input_size) else "it is a number of pixels, or (channels, height, width)"
        )
        raise TypeError(f"from_timm: input_size must not be {type(input_size).__name__}; {what}")
    size = (int(input_size), int(input_size)) if isinstance(input_size, int) else (int(input_size[-2]), int(input_size[-1]))
    tensor_only = use_prefetcher or not normalize
    if is_training and not no_aug:
        steps = _geometry(size, train_crop_mode, scale, ratio, interpolation, hflip, vflip)
        steps += _colors(size, color_jitter, color_jitter_prob, grayscale_prob, gaussian_blur_prob, auto_augment, interpolation, mean)
        steps += _conversion(mean, std, tensor_only)
        if re_prob > 0 and not tensor_only:
            # The images are new results of the normalization: nothing else refers to them.
            steps.append(transforms.RandomErasing(re_prob, mode=re_mode, max_count=re_count, num_splits=0, in_place=True))
    else:
        fixed = "bilinear" if interpolation == "random" else interpolation
        steps = _resize_and_crop(size, fixed) if is_training else _evaluation(size, crop_pct, crop_mode, crop_border_pixels, fixed, mean)
        steps += _conversion(mean, std, tensor_only)
    transform = BatchTransform(steps, device, adjust_orientation)
    del re_num_splits  # an argument of timm's loader: create_transform erases in single images
    return transform if mixup is None else MixupTransform(transform, mixup)


def _check_unsupported(arguments: Mapping[str, Any]) -> None:
    defaults = {"tf_preprocessing": False, "separate": False, "naflex": False, "patchify": False, "force_color_jitter": False}
    ignored = ("patch_size", "max_seq_len", "patchify_channels_last", "patchify_flatten")
    for name, value in arguments.items():
        if name not in defaults and name not in ignored:
            known = [*inspect.signature(from_timm).parameters, *defaults]
            raise TypeError(f"from_timm: got an unexpected keyword argument {name!r}{similar(name, known)}")
        if name in defaults and value != defaults[name]:
            raise TypeError(f"from_timm: {name}={value!r} is not supported; write these steps in fn with torch_ndd's operators")


def _geometry(
    size: tuple[int, int],
    mode: TrainCropMode,
    scale: Sequence[float] | None,
    ratio: Sequence[float] | None,
    interpolation: str,
    hflip: float,
    vflip: float,
) -> list[Any]:
    steps: list[Any] = []
    if mode in ("rkrc", "rkrr"):
        resize = transforms.ResizeKeepRatio(
            size,
            interpolation=interpolation,
            random_scale_prob=0.5,
            random_scale_range=tuple(scale or (0.8, 1.0)),
            random_scale_area=True,
            random_aspect_prob=0.5,
            random_aspect_range=tuple(ratio or (0.9, 1 / 0.9)),
        )
        crop = transforms.CenterCropOrPad if mode == "rkrc" else transforms.RandomCropOrPad
        steps += [resize, crop(size, padding_mode="reflect")]
    else:
        steps.append(transforms.RandomResizedCropAndInterpolation(size, tuple(scale or (0.08, 1.0)), tuple(ratio or (3 / 4, 4 / 3)), interpolation))
    if hflip > 0:
        steps.append(v2.RandomHorizontalFlip(p=hflip))
    if vflip > 0:
        steps.append(v2.RandomVerticalFlip(p=vflip))
    return steps


def _colors(
    size: tuple[int, int],
    jitter: float | Sequence[float] | None,
    jitter_prob: float | None,
    grayscale_prob: float,
    blur_prob: float,
    auto_augment: str | None,
    interpolation: str,
    mean: Sequence[float],
) -> list[Any]:
    steps: list[Any] = []
    if auto_augment:
        pct = 0.3 if auto_augment.startswith("augmix") else 0.45
        # timm's values: the mean color, and translations relative to the smaller side.
        fill = [min(255, round(255 * value)) for value in mean]
        steps.append(make_policy(auto_augment, float(int(min(size) * 0.45)), pct, fill=fill, nearest=interpolation == "nearest"))
    # Policies change colors: timm leaves the jitter out beside all but "3a".
    if jitter is not None and (not auto_augment or "3a" in auto_augment):
        strengths = [float(jitter)] * 3 if isinstance(jitter, int | float) else [float(strength) for strength in jitter]
        if len(strengths) not in (3, 4):
            raise ValueError(f"from_timm: color_jitter must be one number, three or four, got {jitter!r}")
        color: Any = v2.ColorJitter(*strengths)
        steps.append(color if jitter_prob is None else v2.RandomApply([color], p=jitter_prob))
    if grayscale_prob:
        steps.append(v2.RandomGrayscale(p=grayscale_prob))
    if blur_prob:
        steps.append(v2.RandomApply([v2.GaussianBlur(kernel_size=23)], p=blur_prob))
    return steps


def _resize_and_crop(size: tuple[int, int], interpolation: str) -> list[Any]:
    target: Any = size[0] if size[0] == size[1] else list(size)
    return [v2.Resize(target, interpolation=interpolation), v2.CenterCrop(list(size))]


def _evaluation(
    size: tuple[int, int], crop_pct: float | None, mode: CropMode, border: int | None, interpolation: str, mean: Sequence[float]
) -> list[Any]:
    scaled = [math.floor(extent / (crop_pct or _CROP_PCT)) for extent in size]
    steps: list[Any] = [transforms.TrimBorder(border)] if border else []
    if mode == "squash":
        return [*steps, v2.Resize(scaled, interpolation=interpolation), v2.CenterCrop(list(size))]
    if mode == "border":
        fill = [round(255 * value) for value in mean]
        return [*steps, transforms.ResizeKeepRatio(scaled, 1.0, interpolation), transforms.CenterCropOrPad(size, fill)]
    # As in timm, which has a class of its own for targets that are not square.
    resize: Any = v2.Resize(scaled[0], interpolation=interpolation) if scaled[0] == scaled[1] else None
    return [*steps, resize or transforms.ResizeKeepRatio(scaled, 0.0, interpolation), v2.CenterCrop(list(size))]


def _conversion(mean: Sequence[float], std: Sequence[float], tensor_only: bool) -> list[Any]:
    if tensor_only:
        return [v2.ToImage()]
    return [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([float(value) for value in mean], [float(value) for value in std])]


class MixupTransform:
    """A transform followed by mixup of its images and their labels."""

    def __init__(self, transform: Any, mixup: Any) -> None:
        self.transform = transform
        if isinstance(mixup, Mapping):
            mixup = Mixup(**mixup)
        elif not isinstance(mixup, Mixup):
            # An object of timm's. Its attributes have the names and the order of the parameters, except for the probability.
            mixup = Mixup(*(getattr(mixup, name) for name in _MIXUP_ATTRIBUTES))
        self.mixup = mixup

    @ignore_default_device
    def __call__(self, images: Any, labels: Any) -> Any:
        """Transform images and mix them with their labels."""
        return self.mixup(self.transform(images), labels)
