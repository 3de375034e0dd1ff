# SPDX-License-Identifier: Apache-2.0
"""The augmentations that policies choose from: each works on a batch with one parameter per sample."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch

from .._core.values.batch import Batch, as_batch, new_batch
from ..ops import reductions
from ..ops.color.adjust import brightness, posterize, saturation
from ..ops.color.histogram import autocontrast, equalize
from ..ops.color.levels import invert, solarize
from ..ops.filters.convolution import sharpness
from ..ops.generic.convert import cast
from ..ops.math import functions as math

Matrix: TypeAlias = Sequence[Sequence[float]] | np.ndarray


@dataclass(frozen=True)
class Augmentation:
    """An augmentation of a policy: it changes the values of images, moves their pixels, or does nothing.

    The parameter at a position p, from 0 for the smallest magnitude to 1 for the largest, is ``range[0] + p * (range[1] - range[0])``; if ``signed``,
    the parameter mirrored at ``range[0]`` is equally likely.

    Attributes:
        name: for users; some policies find augmentations by name.
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
            raise ValueError(f"Augmentation {self.name!r}: give values or matrix, not both")
        if len(self.range) != 2:
            raise ValueError(f"Augmentation {self.name!r}: range takes two numbers, got {self.range!r}")

    def parameter(self, position: float, other_side: bool = False) -> float:
        """Return the parameter at a position from 0 to 1, mirrored at ``range[0]`` if requested and ``signed``."""
        low, high = self.range
        way = position * (high - low)
        return low - way if self.signed and other_side else low + way

    def at(self, position: float, side: float) -> float:
        """Return the parameter at a position, with a number from 0 to 1 that decides on the side."""
        return self.parameter(position, side < 0.5)


# --- Augmentations that move pixels ----------------------------------------------------------------------------------------------------------------


def shear_x_matrix(amount: float, height: float, width: float) -> Matrix:
    del height, width
    return [[1, -amount, 0], [0, 1, 0]]


def shear_y_matrix(amount: float, height: float, width: float) -> Matrix:
    del height, width
    return [[1, 0, 0], [-amount, 1, 0]]


def _translate_x(amount: float, height: float, width: float) -> Matrix:
    del height
    return [[1, 0, int(amount * width)], [0, 1, 0]]


def _translate_y(amount: float, height: float, width: float) -> Matrix:
    del width
    return [[1, 0, 0], [0, 1, int(amount * height)]]


def _translate_x_pixels(amount: float, height: float, width: float) -> Matrix:
    del height, width
    return [[1, 0, int(amount)], [0, 1, 0]]


def _translate_y_pixels(amount: float, height: float, width: float) -> Matrix:
    del height, width
    return [[1, 0, 0], [0, 1, int(amount)]]


def rotation_matrix(amount: float, height: float, width: float) -> Matrix:
    cos, sin = np.cos(np.deg2rad(amount)), np.sin(np.deg2rad(amount))
    x, y = width / 2, height / 2
    return [[cos, sin, x - cos * x - sin * y], [-sin, cos, y + sin * x - cos * y]]


# --- Augmentations that change values --------------------------------------------------------------------------------------------------------------


def _full(images: Batch) -> float:
    """Return the value of white."""
    return 1.0 if images.dtype.is_floating_point else 255.0


def _numbers(values: np.ndarray, images: Batch) -> Batch:
    """Return one number or array per image, on the images' device."""
    return new_batch(torch.from_numpy(np.ascontiguousarray(values))).to_device(images.device)


def _array(parameters: Batch) -> np.ndarray:
    return parameters.torch().numpy()


def _limited(computed: Batch, like: Batch) -> Batch:
    """Convert to the dtype of the images: integers are rounded, floating-point numbers clamped to 0 to 1."""
    made = math.clamp(computed, 0.0, 1.0) if like.dtype.is_floating_point else computed
    return made if made.dtype == like.dtype else cast(made, dtype=like.dtype)


def _brightened(images: Batch, factors: Batch) -> Batch:
    return _limited(brightness(images, brightness=factors), images)


def colored(images: Batch, factors: Batch) -> Batch:
    """Scale the saturation; images without three channels do not change."""
    return images if images.shared_extent(-1) not in (3, None) else _limited(saturation(images, saturation=factors), images)


def _contrasted(images: Batch, factors: Batch) -> Batch:
    grey = reductions.mean(images, axes=[-3, -2], keep_dims=True)
    if images.shared_extent(-1) == 3:
        grey = reductions.sum(grey * torch.tensor([0.299, 0.587, 0.114], device=images.buffer.device), axes=-1, keep_dims=True)
    else:
        grey = reductions.mean(grey, axes=-1, keep_dims=True)
    factors = factors.to_device(images.device)
    return _limited(images * factors + grey * (1.0 - factors), images)


def _sharpened(images: Batch, factors: Batch) -> Batch:
    return sharpness(images, sharpness=factors)


def _posterized(images: Batch, bits: Batch) -> Batch:
    return posterize(images, bits=as_batch(np.clip(np.rint(_array(bits)), 1, 8).astype(np.int32)))


def _solarized(images: Batch, thresholds: Batch) -> Batch:
    return inverted_from(images, _array(thresholds))


def inverted_from(images: Batch, limits: np.ndarray) -> Batch:
    """Invert the values of every image from a limit on, relative to white; above 1 nothing is inverted."""
    made = limits if images.dtype.is_floating_point else np.ceil(limits * 255.0 - 1e-3)
    return solarize(images, threshold=as_batch(made.astype(np.float32)))


def lightened(images: Batch, shifts: Batch) -> Batch:
    dark = images < (0.5 if images.dtype.is_floating_point else 128)
    return _limited(images + dark * (shifts.to_device(images.device) * _full(images)), images)


def inverted(images: Batch, unused: Batch) -> Batch:
    """Return inverted images; there is no magnitude."""
    del unused
    return invert(images)


def stretched(images: Batch, unused: Batch) -> Batch:
    """Return images with stretched contrast; there is no magnitude."""
    del unused
    return autocontrast(images)


def _equalized(images: Batch, unused: Batch) -> Batch:
    del unused
    if images.dtype.is_floating_point:
        return cast(equalize(cast(images * 255.0, dtype=torch.uint8)) * (1 / 255), dtype=images.dtype)
    return equalize(images)


# --- The sets --------------------------------------------------------------------------------------------------------------------------------------

_IDENTITY = Augmentation("identity")
_AUTO_CONTRAST = Augmentation("auto_contrast", values=stretched)
_EQUALIZE = Augmentation("equalize", values=_equalized)
_INVERT = Augmentation("invert", values=inverted)
_SOLARIZE = Augmentation("solarize", (1.0, 0.0), values=_solarized)
_POSTERIZE = Augmentation("posterize", (8, 4), values=_posterized)


def _factors(largest: float) -> tuple[Augmentation, ...]:
    functions = {"brightness": _brightened, "color": colored, "contrast": _contrasted, "sharpness": _sharpened}
    return tuple(Augmentation(name, (1.0, 1.0 + largest), True, values=function) for name, function in functions.items())


# AutoAugment's authors moved images of 331 pixels by up to 150.
_MOVES = (
    Augmentation("shear_x", (0.0, 0.3), True, matrix=shear_x_matrix),
    Augmentation("shear_y", (0.0, 0.3), True, matrix=shear_y_matrix),
    Augmentation("translate_x", (0.0, 150 / 331), True, matrix=_translate_x),
    Augmentation("translate_y", (0.0, 150 / 331), True, matrix=_translate_y),
    Augmentation("rotate", (0.0, 30.0), True, matrix=rotation_matrix),
)
_WIDE_MOVES = (
    Augmentation("shear_x", (0.0, 0.99), True, matrix=shear_x_matrix),
    Augmentation("shear_y", (0.0, 0.99), True, matrix=shear_y_matrix),
    Augmentation("translate_x", (0.0, 32.0), True, matrix=_translate_x_pixels),
    Augmentation("translate_y", (0.0, 32.0), True, matrix=_translate_y_pixels),
    Augmentation("rotate", (0.0, 135.0), True, matrix=rotation_matrix),
)

RAND_AUGMENT = (_IDENTITY, *_MOVES, *_factors(0.9), _POSTERIZE, _SOLARIZE, _AUTO_CONTRAST, _EQUALIZE)
TRIVIAL_AUGMENT_WIDE = (_IDENTITY, *_WIDE_MOVES, *_factors(0.99), replace(_POSTERIZE, range=(8, 2)), _SOLARIZE, _AUTO_CONTRAST, _EQUALIZE)
# The augmentations of the published policies. Those for ImageNet in the authors' code have magnitudes that grow where the others' shrink.
FOUND = (*RAND_AUGMENT, _INVERT)
FOUND_IMAGE_NET = (
    *(one for one in _MOVES if one.name != "translate_y"),
    Augmentation("translate_y", (0.0, 250 / 224), True, matrix=_translate_y),
    Augmentation("color", (0.1, 1.9), values=colored),
    Augmentation("posterize", (0, 4), values=_posterized),
    Augmentation("solarize", (0.0, 256 / 255), values=_solarized),
    Augmentation("solarize_add", (0.0, 110 / 255), values=lightened),
    _AUTO_CONTRAST,
    _EQUALIZE,
    _INVERT,
)


def chosen(op: str, given: Sequence[Any], known: Sequence[Augmentation]) -> tuple[Augmentation, ...]:
    """Return the augmentations of a user's list, in which names stand for known ones."""
    by_name = {one.name: one for one in known}
    made = []
    for one in given:
        if isinstance(one, str) and one not in by_name:
            raise ValueError(f"{op}: unknown augmentation {one!r}, the known ones are {', '.join(by_name)}; others are given as an Augmentation")
        if not isinstance(one, str | Augmentation):
            raise TypeError(f"{op}: augmentations are given as names or as Augmentation, got {one!r}")
        made.append(by_name[one] if isinstance(one, str) else one)
    return tuple(made)
