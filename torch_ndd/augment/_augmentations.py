# SPDX-License-Identifier: Apache-2.0
"""The augmentations that policies choose from: each works on a batch with one parameter per sample.

Their ranges are in ``_spaces.py``. Where timm, like torchvision, computes differently, both functions are here.
"""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeAlias

import numpy as np
import torch

from .._core.suggestions import similar
from .._core.values.batch import Batch, as_batch
from ..ops import reductions
from ..ops.color._byte_steps import KINDS
from ..ops.color.adjust import brightness, posterize, saturation
from ..ops.color.histogram import Rule as HistogramRule
from ..ops.color.histogram import autocontrast, equalize
from ..ops.color.jitter import color_jitter
from ..ops.color.levels import invert, solarize
from ..ops.filters.convolution import gaussian_blur, sharpness
from ..ops.generic.convert import cast
from ..ops.math import functions as math
from . import _spaces
from ._spaces import Range, Space

Matrix: TypeAlias = Sequence[Sequence[float]] | np.ndarray


@dataclass(frozen=True, eq=False)
class Augmentation:
    """An augmentation of a policy: it changes the values of images, moves their pixels, or does nothing.

    The parameter at a position p, from 0 for the smallest magnitude to 1 for the largest, is ``range[0] + p * (range[1] - range[0])``; if ``signed``,
    the parameter mirrored at ``range[0]`` is equally likely.

    Attributes:
        name: for messages and ``return_params``.
        range: the parameters at the smallest and at the largest magnitude.
        signed: whether the opposite direction is equally likely.
        values: ``values(images, parameters)`` returns the images. They are a Batch ``HWC`` or ``FHWC``, the parameters a Batch of float32 scalars on
            the CPU. Shapes and dtype must not change.
        matrix: ``matrix(parameter, height, width)`` maps a point (x, y) of an image to its new position, as two rows of three numbers; (0, 0) is the
            upper left corner of the first pixel. Boxes and masks move with the image.

    >>> blur = Augmentation("blur", (0.3, 3.0), values=lambda images, parameters: ndd.gaussian_blur(images, sigma=parameters))
    >>> flip = Augmentation("flip", matrix=lambda parameter, height, width: [[-1, 0, width], [0, 1, 0]])
    >>> images = batch(torch.tensor([[[[1], [2], [3]]]], dtype=torch.uint8), layout="HWC")
    >>> ndd.augment.rand_augment(images, n=1, augmentations=[flip]).torch().flatten()
    tensor([3, 2, 1], dtype=torch.uint8)
    """

    name: str
    range: tuple[float, float] = (0.0, 0.0)
    signed: bool = False
    values: Callable[[Batch, Batch], Batch] | None = None
    matrix: Callable[[float, float, float], Matrix] | None = None

    def __post_init__(self) -> None:
        if self.values is not None and self.matrix is not None:
            raise ValueError(f"Augmentation {self.name!r}: pass values or matrix, not both")
        if len(self.range) != 2:
            raise ValueError(f"Augmentation {self.name!r}: range must be two numbers, got {self.range!r}")

    def parameter(self, position: float, other_side: bool = False) -> float:
        """Return the parameter at a position from 0 to 1, mirrored at ``range[0]`` if ``other_side`` and ``signed``."""
        low, high = self.range
        distance = position * (high - low)
        return low - distance if self.signed and other_side else low + distance

    def at(self, position: float, side: float) -> float:
        """Return the parameter at a position; the side depends on a random number from 0 to 1."""
        return self.parameter(position, side < 0.5)


# --- What augmentations do: one function or matrix for each name of the table in ``_spaces.py`` -----------------------------------------------------


def _shear_matrix(amount: float, height: float, width: float, *, axis: int) -> Matrix:
    del height, width
    return [[1, -amount, 0], [0, 1, 0]] if axis == 0 else [[1, 0, 0], [-amount, 1, 0]]


def _translation_matrix(amount: float, height: float, width: float, *, axis: int, relative: bool = False, timm: bool = False) -> Matrix:
    distance = amount * (width, height)[axis] if relative else amount
    # The published policies move by whole pixels; timm interpolates, and moves in the other direction.
    offset = -distance if timm else int(distance)
    return [[1, 0, offset], [0, 1, 0]] if axis == 0 else [[1, 0, 0], [0, 1, offset]]


def rotation_matrix(degrees: float, height: float, width: float) -> Matrix:
    """Return the matrix that turns an image about its center, counter-clockwise."""
    radians = np.deg2rad(degrees)
    cos, sin = float(np.cos(radians)), float(np.sin(radians))  # arithmetic of NumPy's scalars takes three times as long
    x, y = width / 2, height / 2
    return [[cos, sin, x - cos * x - sin * y], [-sin, cos, y + sin * x - cos * y]]


_TRANSLATIONS: dict[str, dict[str, Any]] = {
    f"translate_{'xy'[axis]}{' relative' if relative else ''}": {"axis": axis, "relative": relative} for axis in (0, 1) for relative in (False, True)
}
MATRICES: dict[str, Callable[[float, float, float], Matrix]] = {
    "shear_x": functools.partial(_shear_matrix, axis=0),
    "shear_y": functools.partial(_shear_matrix, axis=1),
    **{name: functools.partial(_translation_matrix, **options) for name, options in _TRANSLATIONS.items()},
    "rotate": rotation_matrix,
}
TIMM_MATRICES = MATRICES | {name: functools.partial(_translation_matrix, timm=True, **options) for name, options in _TRANSLATIONS.items()}


def _convert_back(values: Batch, images: Batch) -> Batch:
    """Convert to the dtype of the images: integers are rounded, floating-point numbers clamped to 0 to 1."""
    limited = math.clamp(values, 0.0, 1.0) if images.dtype.is_floating_point else values
    return limited if limited.dtype == images.dtype else cast(limited, dtype=images.dtype)


# A step for the kernel ``byte_steps``: a kind and its numbers; None if the operators have to be called.
ByteStep: TypeAlias = tuple[int, Sequence[float]] | None


@dataclass(frozen=True, eq=False)
class EncodedValues:
    """The function of an augmentation that the kernel ``byte_steps`` computes as well, for uint8 images.

    Attributes:
        function: ``function(images, parameters)``, as :attr:`Augmentation.values`.
        encode: ``encode(parameter, channels)`` returns the step with the same result. The parameter is float32, as in the Batch of the function.
    """

    function: Callable[[Batch, Batch], Batch]
    encode: Callable[[Any, int], ByteStep]

    def __call__(self, images: Batch, parameters: Batch) -> Batch:
        return self.function(images, parameters)


def _encode(kind: str) -> Callable[[Any, int], ByteStep]:
    """Return the encoding of an augmentation without a parameter."""
    return lambda _, channels: (KINDS[kind], ())


def _encode_factor(kind: str, channels: Sequence[int] | None = None, least: float = -inf) -> Callable[[Any, int], ByteStep]:
    """Return the encoding of a factor from ``least`` on; images with other numbers of channels stay as they are."""

    def encode(factor: Any, count: int) -> ByteStep:
        if channels is not None and count not in channels:
            return KINDS["none"], ()
        return (KINDS[kind], (factor,)) if least <= factor < 1e30 else None

    return encode


def _scale_brightness(images: Batch, factors: Batch) -> Batch:
    return _convert_back(brightness(images, brightness=factors), images)


def _scale_saturation(images: Batch, factors: Batch) -> Batch:
    # Images without three channels have no saturation.
    return images if images.shared_extent(-1) not in (3, None) else _convert_back(saturation(images, saturation=factors), images)


def _scale_contrast(images: Batch, factors: Batch) -> Batch:
    """Scale the difference from the mean gray of each image."""
    # The mean of each channel is weighted afterwards, which reads the pixels once.
    gray = reductions.mean(images, axes=[-3, -2], keep_dims=True)
    if images.shared_extent(-1) == 3:
        gray = reductions.sum(gray * torch.tensor([0.299, 0.587, 0.114], device=images.buffer.device), axes=-1, keep_dims=True)
    else:
        gray = reductions.mean(gray, axes=-1, keep_dims=True)
    factors = factors.to_device(images.device)
    return _convert_back(images * factors + gray * (1.0 - factors), images)


def _sharpen(images: Batch, factors: Batch) -> Batch:
    return sharpness(images, sharpness=factors)


def _posterize(images: Batch, bits: Batch, least: int = 1) -> Batch:
    return posterize(images, bits=as_batch(np.clip(np.rint(bits.torch().numpy()), least, 8).astype(np.int32)))


def _encode_bits(least: int) -> Callable[[Any, int], ByteStep]:
    # Without NumPy, whose functions take microseconds for one number.
    return lambda bits, _: (KINDS["posterize"], (min(max(round(float(bits)), least), 8),))


def _solarize(images: Batch, thresholds: Batch) -> Batch:
    """Invert the values of every image from a threshold on, relative to white; a threshold above 1 inverts nothing."""
    limits = thresholds.torch().numpy()
    if not images.dtype.is_floating_point:
        limits = _find_levels(limits)
    return solarize(images, threshold=as_batch(limits.astype(np.float32)))


def _find_levels(limits: Any) -> Any:
    # Thresholds are float32: without the margin, 128 / 255 would become level 129.
    return np.ceil(limits * np.float32(255.0) - np.float32(1e-3))


def _brighten_dark(images: Batch, shifts: Batch) -> Batch:
    white = 1.0 if images.dtype.is_floating_point else 255.0
    dark = images < (0.5 if images.dtype.is_floating_point else 128)
    return _convert_back(images + dark * (shifts.to_device(images.device) * white), images)


def _invert(images: Batch, _: Batch) -> Batch:
    return invert(images)


def _stretch_contrast(images: Batch, _: Batch) -> Batch:
    return autocontrast(images)


def _equalize(images: Batch, _: Batch, rule: HistogramRule = "opencv") -> Batch:
    # The rules count 256 levels.
    if images.dtype.is_floating_point:
        return cast(equalize(cast(images * 255.0, dtype=torch.uint8), rule=rule) * (1 / 255), dtype=images.dtype)
    return equalize(images, rule=rule)


def _jitter(name: str) -> Callable[[Batch, Batch], Batch]:
    """Return the function of an augmentation by torchvision's arithmetic, which truncates."""

    def apply(images: Batch, factors: Batch) -> Batch:
        options: dict[str, Any] = {name: factors}
        # Other numbers of channels have neither brightness nor contrast in torchvision.
        return color_jitter(images, **options) if images.shared_extent(-1) in (1, 3, None) else images

    return apply


VALUES: dict[str, Callable[[Batch, Batch], Batch]] = {
    "brightness": EncodedValues(_scale_brightness, _encode_factor("scale_brightness")),
    "color": EncodedValues(_scale_saturation, _encode_factor("scale_saturation", channels=(3,))),
    "contrast": EncodedValues(_scale_contrast, _encode_factor("scale_contrast")),
    "sharpness": EncodedValues(_sharpen, _encode_factor("sharpness", least=0.0)),
    "posterize": EncodedValues(_posterize, _encode_bits(1)),
    "solarize": EncodedValues(_solarize, lambda limit, _: (KINDS["solarize"], (_find_levels(limit),))),
    "solarize_add": EncodedValues(_brighten_dark, lambda shift, _: (KINDS["brighten_dark"], (shift * np.float32(255.0),))),
    "invert": EncodedValues(_invert, _encode("invert")),
    "auto_contrast": EncodedValues(_stretch_contrast, _encode("autocontrast")),
    "equalize": EncodedValues(_equalize, _encode("equalize_opencv")),
}
TIMM_VALUES = VALUES | {
    **{name: EncodedValues(_jitter(name), _encode_factor(name, (1, 3), 0.0)) for name in ("brightness", "contrast")},
    **dict.fromkeys(("color", "desaturate"), EncodedValues(_jitter("saturation"), _encode_factor("saturation", (1, 3), 0.0))),
    "posterize": EncodedValues(functools.partial(_posterize, least=0), _encode_bits(0)),
    "equalize": EncodedValues(functools.partial(_equalize, rule="pillow"), _encode("equalize")),
    "gaussian_blur": lambda images, sigmas: gaussian_blur(images, sigma=sigmas),
}

# --- The augmentations of the search spaces ---------------------------------------------------------------------------------------------------------


@functools.cache
def find_augmentation(name: str, range: Range | None = None) -> Augmentation:
    """Return the augmentation of a name with the range of a search space, always the same object."""
    if range is None:
        return Augmentation(name, values=VALUES.get(name))
    limits = (range.parameter(0.0), range.parameter(1.0))
    return Augmentation(name, limits, range.signed, VALUES.get(name), MATRICES.get(f"{name} relative" if range.relative else name))


def in_space(space: Space) -> tuple[Augmentation, ...]:
    """Return the augmentations of a search space, in its order."""
    return tuple(find_augmentation(name, range) for name, range in space.items())


RAND_AUGMENT = in_space(_spaces.RAND_AUGMENT)
TRIVIAL_AUGMENT_WIDE = in_space(_spaces.TRIVIAL_AUGMENT_WIDE)
AUG_MIX = in_space(_spaces.AUG_MIX)
CUSTOM_POLICY = (*RAND_AUGMENT, find_augmentation("invert"))


_NO_RANGE = Range(0, 0)


@dataclass(frozen=True, eq=False)
class _TimmAugmentation(Augmentation):
    """An augmentation of timm, whose parameters :class:`Range` rounds and limits; the range may be extended."""

    magnitudes: Range = _NO_RANGE

    def parameter(self, position: float, other_side: bool = False) -> float:
        return self.magnitudes.parameter(position, other_side)


class _RandomBlur(_TimmAugmentation):
    """timm's GaussianBlurRand: the magnitude limits a random sigma."""

    def at(self, position: float, side: float) -> float:
        # timm draws sigma uniformly from 0.1 to twice the parameter; `side` is that random number.
        return 0.1 + (2.0 * self.parameter(position) - 0.1) * side


@functools.cache
def find_timm_augmentation(timm_name: str, translate_const: float = 250.0, translate_pct: float = 0.45) -> Augmentation:
    """Return timm's augmentation of a name such as "PosterizeIncreasing", always the same object.

    Args:
        timm_name: timm's name.
        translate_const, translate_pct: largest translation, in pixels and relative to the image.
    """
    # "PosterizeIncreasing" is "posterize", "GaussianBlurRand" is "gaussian_blur".
    name = "_".join(re.findall(r"[A-Z][a-z]*", re.sub(r"(Increasing|Original|Rel|Rand)$", "", timm_name))).lower()
    range = _spaces.TIMM[timm_name]
    if range is None:
        return _TimmAugmentation(name, values=TIMM_VALUES[name])
    if timm_name.startswith("Translate"):
        range = replace(range, last=translate_pct if range.relative else translate_const)
    limits = (range.parameter(0.0), range.parameter(1.0))
    kind = _RandomBlur if timm_name == "GaussianBlurRand" else _TimmAugmentation
    matrix = TIMM_MATRICES.get(f"{name} relative" if range.relative else name)
    return kind(name, limits, range.signed, TIMM_VALUES.get(name), matrix, range)


def resolve_augmentations(op: str, augmentations: Sequence[Any], known: Sequence[Augmentation]) -> tuple[Augmentation, ...]:
    """Return the augmentations of a user's list, in which names stand for known ones."""
    by_name = {augmentation.name: augmentation for augmentation in known}
    resolved = []
    for augmentation in augmentations:
        if isinstance(augmentation, str):
            if augmentation not in by_name:
                hint = similar(augmentation, by_name) or "; others must be an Augmentation"
                raise ValueError(f"{op}: unknown augmentation {augmentation!r}; the names are {', '.join(by_name)}{hint}")
            augmentation = by_name[augmentation]
        elif not isinstance(augmentation, Augmentation):
            raise TypeError(f"{op}: augmentations must be names or of type Augmentation, got {augmentation!r}")
        resolved.append(augmentation)
    return tuple(resolved)
