# SPDX-License-Identifier: Apache-2.0
"""timm's augmentations, their sets and policies, and the texts that name their variants, like ``rand-m9-mstd0.5-inc1``."""

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .._core.values.batch import Batch, as_batch
from ..ops.color.adjust import posterize
from ..ops.color.histogram import equalize
from ..ops.color.jitter import color_jitter
from ..ops.filters.convolution import gaussian_blur, sharpness
from ..ops.generic.convert import cast
from ._augmentations import Augmentation, Matrix, inverted, inverted_from, lightened, rotation_matrix, shear_x_matrix, shear_y_matrix, stretched
from ._steps import Operation
from ._tables import POLICIES

LARGEST = 10  # magnitude at which an augmentation has its largest parameter

# --- The parameter of an augmentation, for a position from 0 to 1 and a sign -----------------------------------------------------------------------

Level = Callable[[float, float], float]


def _none(position: float, sign: float) -> float:
    del position, sign
    return 0.0


def _signed(largest: float) -> Level:
    return lambda position, sign: sign * position * largest


def _least_to_most(least: float, most: float) -> Level:
    return lambda position, sign: max(least, min(most, least + (most - least) * position))


_LEVELS: dict[str, Level] = {
    **dict.fromkeys(("AutoContrast", "Equalize", "Invert"), _none),
    "Rotate": _signed(30.0),
    "Posterize": lambda position, sign: int(position * 4),
    "PosterizeIncreasing": lambda position, sign: 4 - int(position * 4),
    "PosterizeOriginal": lambda position, sign: 4 + int(position * 4),
    "Solarize": lambda position, sign: min(256, int(position * 256)) / 255.0,
    "SolarizeIncreasing": lambda position, sign: (256 - min(256, int(position * 256))) / 255.0,
    "SolarizeAdd": lambda position, sign: min(128, int(position * 110)) / 255.0,
    **dict.fromkeys(("Color", "Contrast", "Brightness", "Sharpness"), lambda position, sign: position * 1.8 + 0.1),
    **dict.fromkeys(
        ("ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing"),
        lambda position, sign: max(0.1, 1.0 + sign * position * 0.9),
    ),
    **dict.fromkeys(("ShearX", "ShearY"), _signed(0.3)),
    "Desaturate": lambda position, sign: 1.0 - _least_to_most(0.5, 1.0)(position, sign),
    "GaussianBlur": _least_to_most(0.1, 2.0),
    "GaussianBlurRand": _least_to_most(0.0, 1.0),
}

# --- What the augmentations do ---------------------------------------------------------------------------------------------------------------------


def _jittered(name: str) -> Callable[[Batch, Batch], Batch]:
    def values(images: Batch, factors: Batch) -> Batch:
        given: dict[str, Any] = {name: factors}
        return color_jitter(images, **given) if images.shared_extent(-1) in (1, 3, None) else images

    return values


def _sharpened(images: Batch, factors: Batch) -> Batch:
    return sharpness(images, sharpness=factors)


def _equalized(images: Batch, unused: Batch) -> Batch:
    del unused
    if images.dtype.is_floating_point:
        return cast(equalize(cast(images * 255.0, dtype=torch.uint8), rule="pillow") * (1 / 255), dtype=images.dtype)
    return equalize(images, rule="pillow")


def _posterized(images: Batch, bits: Batch) -> Batch:
    return posterize(images, bits=as_batch(np.rint(bits.torch().numpy()).astype(np.int32)))


def _solarized(images: Batch, thresholds: Batch) -> Batch:
    return inverted_from(images, thresholds.torch().numpy())


def _blurred(images: Batch, sigmas: Batch) -> Batch:
    return gaussian_blur(images, sigma=sigmas)


_VALUES: dict[str, Callable[[Batch, Batch], Batch]] = {
    "auto_contrast": stretched,
    "equalize": _equalized,
    "invert": inverted,
    "posterize": _posterized,
    "solarize": _solarized,
    "solarize_add": lightened,
    "color": _jittered("saturation"),
    "contrast": _jittered("contrast"),
    "brightness": _jittered("brightness"),
    "sharpness": _sharpened,
    "desaturate": _jittered("saturation"),
    "gaussian_blur": _blurred,
}
_MATRICES: dict[str, Callable[[float, float, float], Matrix]] = {
    "Rotate": rotation_matrix,
    "ShearX": shear_x_matrix,
    "ShearY": shear_y_matrix,
    "TranslateX": lambda amount, height, width: [[1, 0, -amount], [0, 1, 0]],
    "TranslateY": lambda amount, height, width: [[1, 0, 0], [0, 1, -amount]],
    "TranslateXRel": lambda amount, height, width: [[1, 0, -amount * width], [0, 1, 0]],
    "TranslateYRel": lambda amount, height, width: [[1, 0, 0], [0, 1, -amount * height]],
}


@dataclass(frozen=True)
class _Leveled(Augmentation):
    """An augmentation whose parameter is a function of position and sign."""

    level: Level = _none

    def parameter(self, position: float, other_side: bool = False) -> float:
        return self.level(position, -1.0 if other_side else 1.0)


class _RandomRadius(_Leveled):
    def at(self, position: float, side: float) -> float:
        return 0.1 + (2.0 * self.parameter(position) - 0.1) * side


@functools.cache
def named(name: str, translate_const: float = 250.0, translate_pct: float = 0.45) -> Augmentation:
    """Return timm's augmentation of a name such as "PosterizeIncreasing", always the same object.

    Args:
        name: a name of timm's.
        translate_const, translate_pct: largest translation, in pixels and relative to the image.
    """
    moved = _signed(translate_pct if name.endswith("Rel") else translate_const)
    level = moved if name.startswith("Translate") else _LEVELS[name]
    short = "_".join(re.findall(r"[A-Z][a-z]*", re.sub(r"(Increasing|Original|Rel|Rand)$", "", name))).lower()
    kind = _RandomRadius if name == "GaussianBlurRand" else _Leveled
    signed = level(1.0, 1.0) != level(1.0, -1.0)
    matrix = _MATRICES.get(name)
    return kind(short, (level(0.0, 1.0), level(1.0, 1.0)), signed, None if matrix else _VALUES[short], matrix, level)


# --- The sets --------------------------------------------------------------------------------------------------------------------------------------

DECREASING = (
    *("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color", "Contrast", "Brightness", "Sharpness"),
    *("ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
)
_HAVE_INCREASING = ("Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness")
INCREASING = tuple(name + "Increasing" if name in _HAVE_INCREASING else name for name in DECREASING)
AUG_MIX_NAMES = (
    *("AutoContrast", "ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing", "Equalize", "Rotate"),
    *("PosterizeIncreasing", "SolarizeIncreasing", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
)
_THREE = ("SolarizeIncreasing", "Desaturate", "GaussianBlur")
_WEIGHTS_OF_THREE = {
    **dict.fromkeys(_THREE, 6.0),
    "Rotate": 3.0,
    **dict.fromkeys(("ShearX", "ShearY"), 2.0),
    **dict.fromkeys(("PosterizeIncreasing", "AutoContrast", "ColorIncreasing", "SharpnessIncreasing", "ContrastIncreasing"), 1.0),
    **dict.fromkeys(("BrightnessIncreasing", "Equalize", "Invert"), 1.0),
}
_WEIGHTS = {
    "Rotate": 3.0,
    **dict.fromkeys(("ShearX", "ShearY"), 2.0),
    **dict.fromkeys(("TranslateXRel", "TranslateYRel"), 1.0),
    **dict.fromkeys(("ColorIncreasing", "SharpnessIncreasing", "AutoContrast"), 0.25),
    **dict.fromkeys(("SolarizeIncreasing", "SolarizeAdd", "ContrastIncreasing", "BrightnessIncreasing"), 0.05),
    **dict.fromkeys(("Equalize", "PosterizeIncreasing", "Invert"), 0.05),
}
SETS: dict[str, Sequence[str] | Mapping[str, float]] = {"weights": _WEIGHTS, "3aw": _WEIGHTS_OF_THREE, "3a": _THREE}

TIMM = tuple(map(named, DECREASING))
TIMM_INCREASING = tuple(map(named, INCREASING))
_AUG_MIX = tuple(map(named, AUG_MIX_NAMES))

# The policies by name: that of :func:`auto_augment` they are, and which of the augmentations have another name than the usual one.
_TABLES = {
    "v0": ("image_net", {}),
    "v0r": ("image_net", {"posterize": "PosterizeIncreasing"}),
    "original": ("reduced_image_net", {"posterize": "PosterizeOriginal"}),
    "originalr": ("reduced_image_net", {"posterize": "PosterizeIncreasing"}),
}
_THREE_EACH = (("Solarize", 5), ("Desaturate", 10), ("GaussianBlurRand", 10))
TABLES = (*_TABLES, "3a")


def table(name: str, translate_const: float, translate_pct: float, std: float) -> list[list[Operation]]:
    """Return the sequences of a policy."""

    def operation(one: str, probability: float, magnitude: float) -> Operation:
        return Operation(named(one, translate_const, translate_pct), magnitude, LARGEST, probability, std, LARGEST)

    if name == "3a":
        return [[operation(one, 1.0, magnitude)] for one, magnitude in _THREE_EACH]
    policy, others = _TABLES[name]
    usual = {named(one).name: one for one in DECREASING} | others
    return [[operation(usual[one], probability, magnitude) for one, probability, magnitude in pair] for pair in POLICIES[policy][0]]


# --- The texts -------------------------------------------------------------------------------------------------------------------------------------

_KEYS = {"rand": ("m", "n", "p", "mstd", "mmax", "inc", "t"), "augmix": ("m", "w", "d", "a", "b", "mstd")}


class UnknownText(ValueError):
    """A text without a meaning; the message goes behind the operator's name."""


def parsed(text: str) -> tuple[str, dict[str, float], str]:
    """Return the policy, its numbers by key, and the name of its set."""
    kind, *sections = text.split("-")
    if kind not in _KEYS and kind not in TABLES:
        raise UnknownText(f"unknown policy {kind!r}; the known ones are {', '.join((*_KEYS, *TABLES))}")
    known, numbers, chosen = _KEYS.get(kind, ("mstd",)), {}, ""
    for section in sections:
        found = re.fullmatch(r"([a-z]+)(\d+(?:\.\d*)?)", section)
        if "t" in known and section.startswith("t"):
            chosen = chosen or section[1:]
        elif found is None or found[1] not in known:
            raise UnknownText(f"{section!r} is not a number behind one of {', '.join(known)}")
        else:
            numbers.setdefault(found[1], float(found[2]))
    return kind, numbers, chosen


def timm_arguments(config: str) -> dict[str, Any]:
    """Return the arguments of :func:`rand_augment` or :func:`aug_mix` that a string of timm's ``--aa`` stands for.

    ``"rand-m9-mstd0.5-inc1"`` is for :func:`rand_augment`: ``m`` is the magnitude, 10 by default, ``n`` the number of augmentations, 2 by default,
    ``p`` their probability, 0.5 by default, ``mstd`` the deviation of the magnitude (above 100 it is uniform), ``inc1`` selects augmentations that
    become stronger with the magnitude, and ``tweights``, ``t3a`` and ``t3aw`` sets of timm. ``"augmix-m5-w4-d2"`` is for :func:`aug_mix`: severity,
    width and depth; ``a`` is alpha, and ``b`` changes only how often timm rounds. The augmentations are those of ``from_timm``, whose docstring says
    what differs from Pillow's.

    Args:
        config: parts separated by dashes. Add ``interp_type=ndd.types.INTERP_CUBIC`` to the call for timm's bicubic interpolation.

    Raises:
        ValueError: another name, an unknown part, or ``mmax``, for which there is nothing here.

    >>> arguments = ndd.augment.timm_arguments("rand-m9-n3-mstd0.5-inc1")
    >>> arguments["m"], arguments["n"], arguments["magnitude_std"], arguments["probability"]
    (9, 3, 0.5, 0.5)
    >>> ndd.augment.rand_augment(torch.zeros(8, 8, 3), **arguments).shape
    (8, 8, 3)
    """
    try:
        kind, given, chosen = parsed(config)
    except UnknownText as error:
        raise ValueError(f"timm_arguments: {error}, in {config!r}") from None
    if kind not in _KEYS:
        raise ValueError(f"timm_arguments: a policy begins with rand or augmix, got {config!r}; from_timm takes the others")
    if "mmax" in given:
        raise ValueError(f"timm_arguments: 'mmax' of {config!r} has no meaning here; from_timm takes it")
    deviation = deviation_of(kind, given)
    if kind == "augmix":
        return {
            "severity": _checked(config, given.get("m", 3)),
            "magnitude_std": deviation,
            "width": int(given.get("w", 3)),
            "depth": int(given["d"]) if given.get("d") else None,
            "alpha": given.get("a", 1.0),
            "augmentations": _AUG_MIX,
            "num_magnitude_bins": LARGEST + 1,
        }
    made: dict[str, Any] = {
        "m": _checked(config, given.get("m", LARGEST)),
        "n": int(given.get("n", 2)),
        "magnitude_std": deviation,
        "probability": given.get("p", 0.5),
        "num_magnitude_bins": LARGEST + 1,
        "augmentations": TIMM_INCREASING if given.get("inc") else TIMM,
    }
    if chosen:
        if chosen not in SETS:
            raise ValueError(f"timm_arguments: t{chosen} of {config!r} is none of tweights, t3a, t3aw")
        names = SETS[chosen]
        made["augmentations"] = tuple(map(named, names))
        if isinstance(names, Mapping):
            made["weights"] = tuple(names.values())
    return made


def deviation_of(kind: str, given: Mapping[str, float]) -> float:
    """Return the deviation of the magnitude; infinity is a uniform magnitude."""
    deviation = given.get("mstd", math.inf if kind == "augmix" else 0.0)
    return math.inf if deviation > 100 else deviation


def _checked(config: str, magnitude: float) -> float:
    if not 0 <= magnitude <= LARGEST:
        raise ValueError(f"timm_arguments: the magnitude of {config!r} must be from 0 to {LARGEST}, got {magnitude:g}")
    return int(magnitude) if magnitude == int(magnitude) else magnitude
