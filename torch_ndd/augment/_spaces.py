# SPDX-License-Identifier: Apache-2.0
"""Search spaces: the augmentations that each library draws from, the range of each one's magnitude, and the policies that were published.

All of these numbers are here and nowhere else. :mod:`torch_ndd.augment` (``_augmentations.py``), ``dali.auto_aug``, ``torchvision.v2`` and timm's
policies combine them with operators of their own arithmetic:

| augmentation | operators of ``augment`` and DALI; of torchvision and timm | what a magnitude sets |
|---|---|---|
| shear_x, shear_y | warp_affine | shift per row, per column |
| translate_x, translate_y | warp_affine | pixels, or a fraction of the image where the range is ``relative`` |
| rotate | warp_affine | degrees, counter-clockwise |
| brightness, contrast, color | brightness, mean, saturation; color_jitter | factor; 1 is the image |
| sharpness | sharpness; DALI: filter | factor; 1 is the image |
| desaturate, gaussian_blur | color_jitter, gaussian_blur | factor of the colors, sigma in pixels |
| posterize | posterize; DALI: bitwise and | number of bits that remain |
| solarize | solarize | threshold relative to white, or in levels of 255 where the range has that unit |
| solarize_add | addition | what is added to dark pixels, in the same units |
| auto_contrast, equalize, invert, identity | autocontrast, equalize (OpenCV's rule; Pillow's), invert | nothing |
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

_INFINITY = float("inf")


@dataclass(frozen=True)
class Range:
    """The magnitudes of an augmentation and the parameters that follow: ``(origin + magnitude) / unit``, or ``(origin - magnitude) / unit``.

    Attributes:
        first, last: magnitude at position 0 and at position 1 of the range.
        signed: whether the opposite magnitude is equally likely.
        origin: parameter of magnitude 0.
        relative: the magnitude is a fraction of the image's width or height.
        truncated: magnitudes are truncated to integers.
        limits: smallest and largest parameter, before the division by ``unit``.
        unit: what a parameter of 1 is in magnitudes.
    """

    first: float
    last: float
    signed: bool = False
    origin: float = 0.0
    relative: bool = False
    truncated: bool = False
    limits: tuple[float, float] = (-_INFINITY, _INFINITY)
    unit: float = 1.0

    def parameter(self, position: float, other_side: bool = False, extent: float = 1.0) -> float:
        """Return the parameter at a position; of a ``relative`` range in pixels for the extent of an image.

        Positions above 1 extend the range as far as ``limits``.
        """
        scale = extent if self.relative else 1.0
        first, last = self.first * scale, self.last * scale
        magnitude = first + position * (last - first)
        if self.truncated:
            magnitude = int(magnitude)
        parameter = self.origin - magnitude if other_side and self.signed else self.origin + magnitude
        parameter = min(max(parameter, self.limits[0]), self.limits[1])
        # Not divided by 1: integers stay whole, which users see in return_params.
        return parameter if self.unit == 1 else parameter / self.unit


Space: TypeAlias = Mapping[str, Range | None]  # None: the augmentation has no magnitude

FACTORS = ("brightness", "color", "contrast", "sharpness")


def _symmetric(last: float, origin: float = 0.0, first: float = 0) -> Range:
    return Range(first, last, signed=True, origin=origin)


def _fraction(last: float) -> Range:
    return Range(0, last, signed=True, relative=True)


def _space(
    names: Iterable[str], *, shear: float, translate: Range, rotate: float, factor: Range, posterize: Range, solarize: Range
) -> dict[str, Range | None]:
    """Return a space of these augmentations; the order of the names decides what a random number chooses."""
    ranges = {
        **dict.fromkeys(("shear_x", "shear_y"), _symmetric(shear)),
        **dict.fromkeys(("translate_x", "translate_y"), translate),
        "rotate": _symmetric(rotate),
        **dict.fromkeys(FACTORS, factor),
        "posterize": posterize,
        "solarize": solarize,
    }
    return {name: ranges.get(name) for name in names}


# --- torchvision and torch_ndd.augment --------------------------------------------------------------------------------------------------------------

_MOVES = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")
_NAMES = ("identity", *_MOVES, *FACTORS, "posterize", "solarize", "auto_contrast", "equalize")
_THRESHOLD = Range(1.0, 0.0)

# AutoAugment's authors moved images of 331 pixels by up to 150.
RAND_AUGMENT = _space(
    _NAMES, shear=0.3, translate=_fraction(150 / 331), rotate=30.0, factor=_symmetric(0.9, 1.0), posterize=Range(8, 4), solarize=_THRESHOLD
)
AUTO_AUGMENT: Space = {name: range for name, range in RAND_AUGMENT.items() if name != "identity"} | {"invert": None}
TRIVIAL_AUGMENT_WIDE = _space(
    _NAMES, shear=0.99, translate=_symmetric(32.0), rotate=135.0, factor=_symmetric(0.99, 1.0), posterize=Range(8, 2), solarize=_THRESHOLD
)
AUG_MIX: Space = {name: range for name, range in RAND_AUGMENT.items() if name != "identity"} | dict.fromkeys(
    ("translate_x", "translate_y"), _fraction(1 / 3)
)
TORCHVISION_AUG_MIX: Space = {**AUG_MIX, "posterize": Range(4, 0)}

# --- The policy of AutoAugment's authors for ImageNet: magnitudes of posterize and solarize grow where those of the paper shrink --------------------

IMAGE_NET = {
    **_space(
        (*_MOVES, *FACTORS, "posterize", "solarize", "auto_contrast", "equalize", "invert"),
        shear=0.3,
        translate=_fraction(250 / 224),
        rotate=30.0,
        factor=Range(0.1, 1.9),
        posterize=Range(0, 4),
        solarize=Range(0, 256, unit=255),
    ),
    "solarize_add": Range(0, 110, unit=255),
}

# --- DALI: translations are in pixels ("_no_shape") unless the shapes of the images are given -------------------------------------------------------

_DALI_NAMES = (
    *("translate_x", "translate_x_no_shape", "translate_y", "translate_y_no_shape", "shear_x", "shear_y", "rotate"),
    *("brightness", "contrast", "color", "sharpness", "posterize", "solarize", "equalize", "auto_contrast", "identity"),
)


def _dali(pixels: float, fraction: float, shear: float, rotate: float, factor: Range, posterize: Range, solarize: Range) -> dict[str, Range | None]:
    space = _space(_DALI_NAMES, shear=shear, translate=_fraction(fraction), rotate=rotate, factor=factor, posterize=posterize, solarize=solarize)
    return space | dict.fromkeys(("translate_x_no_shape", "translate_y_no_shape"), _symmetric(pixels))


DALI_RAND_AUGMENT = _dali(100, 100 / 224, 0.3, 30, _symmetric(0.9, 1.0), Range(8, 4), Range(256, 0))
DALI_RAND_AUGMENT_NON_MONOTONIC = _dali(100, 100 / 224, 0.3, 30, Range(0.1, 1.9), Range(0, 4), Range(0, 256))
DALI_TRIVIAL_AUGMENT_WIDE = _dali(32, 1.0, 0.99, 135, _symmetric(0.99, 1.0, 0.01), Range(8, 2), Range(256, 0))
# The ranges of the functions in ``dali.auto_aug.augmentations`` themselves.
DALI_DEFAULTS = {**_dali(250, 1.0, 0.3, 30, _symmetric(0.9, 1.0), Range(0, 4), Range(256, 0)), "solarize_add": Range(0, 110), "invert": None}
DALI_AUTO_AUGMENT = {**DALI_DEFAULTS, **dict.fromkeys(FACTORS, Range(0.1, 1.9)), "solarize": Range(0, 256)}

# --- timm, by timm's names --------------------------------------------------------------------------------------------------------------------------

TIMM: Space = {
    **dict.fromkeys(("AutoContrast", "Equalize", "Invert")),
    "Rotate": _symmetric(30.0),
    **dict.fromkeys(("ShearX", "ShearY"), _symmetric(0.3)),
    **dict.fromkeys(("TranslateX", "TranslateY"), _symmetric(250.0)),
    **dict.fromkeys(("TranslateXRel", "TranslateYRel"), _fraction(0.45)),
    "Posterize": Range(0, 4, truncated=True),
    "PosterizeIncreasing": Range(0, -4, origin=4, truncated=True),
    "PosterizeOriginal": Range(0, 4, origin=4, truncated=True),
    "Solarize": Range(0, 256, truncated=True, limits=(0, 256), unit=255.0),
    "SolarizeIncreasing": Range(0, -256, origin=256, truncated=True, limits=(0, 256), unit=255.0),
    "SolarizeAdd": Range(0, 110, truncated=True, limits=(0, 128), unit=255.0),
    **dict.fromkeys(("Color", "Contrast", "Brightness", "Sharpness"), Range(0, 1.8, origin=0.1)),
    **dict.fromkeys(
        ("ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing"),
        Range(0, 0.9, signed=True, origin=1.0, limits=(0.1, _INFINITY)),
    ),
    "Desaturate": Range(-0.5, -1.0, origin=1.0, limits=(0.0, 0.5)),
    "GaussianBlur": Range(0.1, 2.0, limits=(0.1, 2.0)),
    "GaussianBlurRand": Range(0.0, 1.0, limits=(0.0, 1.0)),
}
TIMM_DECREASING = (
    *("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color", "Contrast", "Brightness", "Sharpness"),
    *("ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
)
TIMM_INCREASING = tuple(f"{name}Increasing" if f"{name}Increasing" in TIMM else name for name in TIMM_DECREASING)
TIMM_AUG_MIX = (
    *("AutoContrast", "ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing", "Equalize", "Rotate"),
    *("PosterizeIncreasing", "SolarizeIncreasing", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
)
_THREE_AUGMENT = ("SolarizeIncreasing", "Desaturate", "GaussianBlur")
# The sets of "rand-t...", with the weights of their augmentations if they differ.
TIMM_SETS: Mapping[str, Sequence[str] | Mapping[str, float]] = {
    "weights": {
        "Rotate": 3.0,
        **dict.fromkeys(("ShearX", "ShearY"), 2.0),
        **dict.fromkeys(("TranslateXRel", "TranslateYRel"), 1.0),
        **dict.fromkeys(("ColorIncreasing", "SharpnessIncreasing", "AutoContrast"), 0.25),
        **dict.fromkeys(("SolarizeIncreasing", "SolarizeAdd", "ContrastIncreasing", "BrightnessIncreasing"), 0.05),
        **dict.fromkeys(("Equalize", "PosterizeIncreasing", "Invert"), 0.05),
    },
    "3aw": {
        **dict.fromkeys(_THREE_AUGMENT, 6.0),
        "Rotate": 3.0,
        **dict.fromkeys(("ShearX", "ShearY"), 2.0),
        **dict.fromkeys(("PosterizeIncreasing", "AutoContrast", "ColorIncreasing", "SharpnessIncreasing", "ContrastIncreasing"), 1.0),
        **dict.fromkeys(("BrightnessIncreasing", "Equalize", "Invert"), 1.0),
    },
    "3a": _THREE_AUGMENT,
}
PolicyName = Literal["image_net", "reduced_image_net", "cifar10", "svhn"]
# timm's policies by name: the published policy, and the augmentations that are not those of TIMM_DECREASING.
TIMM_POLICIES: Mapping[str, tuple[PolicyName, Mapping[str, str]]] = {
    "v0": ("image_net", {}),
    "v0r": ("image_net", {"posterize": "PosterizeIncreasing"}),
    "original": ("reduced_image_net", {"posterize": "PosterizeOriginal"}),
    "originalr": ("reduced_image_net", {"posterize": "PosterizeIncreasing"}),
}
# "3a": one of these augmentations, with this magnitude.
TIMM_THREE_AUGMENT = (("Solarize", 5), ("Desaturate", 10), ("GaussianBlurRand", 10))

# --- The policies found by AutoAugment's authors (Cubuk et al., arXiv:1805.09501): pairs of "augmentation probability magnitude" --------------------
#
# The first is from their code for EfficientNet (github.com/tensorflow/tpu, policy v0), with magnitudes from 0 to 10. The others are tables 7, 8 and 9
# of the paper's appendix, found on reduced CIFAR-10, reduced SVHN and reduced ImageNet, with magnitudes from 0 to 9.

_IMAGE_NET_PAIRS = """
    equalize .8, shear_y .8 4; color .4 9, equalize .6; color .4 1, rotate .6 8; solarize .8 3, equalize .4; solarize .4 2, solarize .6 2;
    color .2 0, equalize .8; equalize .4, solarize_add .8 3; shear_x .2 9, rotate .6 8; color .6 1, equalize 1; invert .4, rotate .6 0;
    equalize 1, shear_y .6 3; color .4 7, equalize .6; posterize .4 6, auto_contrast .4; solarize .6 8, color .6 9;
    solarize .2 4, rotate .8 9; rotate 1 7, translate_y .8 9; solarize .8 4; shear_y .8 0, color .6 4; color 1 0, rotate .6 2;
    equalize .8; equalize 1, auto_contrast .6; shear_y .4 7, solarize_add .6 7; posterize .8 2, solarize .6 10;
    solarize .6 8, equalize .6; color .8 6, rotate .4 5
"""
_REDUCED_IMAGE_NET_PAIRS = """
    posterize .4 8, rotate .6 9; solarize .6 5, auto_contrast .6; equalize .8, equalize .6; posterize .6 7, posterize .6 6;
    equalize .4, solarize .2 4; equalize .4, rotate .8 8; solarize .6 3, equalize .6; posterize .8 5, equalize 1;
    rotate .2 3, solarize .6 8; equalize .6, posterize .4 6; rotate .8 8, color .4 0; rotate .4 9, equalize .6;
    equalize .8; invert .6, equalize 1; color .6 4, contrast 1 8; rotate .8 8, color 1 2; color .8 8, solarize .8 7;
    sharpness .4 7, invert .6; shear_x .6 5, equalize 1; color .4 0, equalize .6; equalize .4, solarize .2 4;
    solarize .6 5, auto_contrast .6; invert .6, equalize 1; color .6 4, contrast 1 8; equalize .8, equalize .6
"""
_CIFAR10_PAIRS = """
    invert .1, contrast .2 6; rotate .7 2, translate_x .3 9; sharpness .8 1, sharpness .9 3; shear_y .5 8, translate_y .7 9;
    auto_contrast .5, equalize .9; shear_y .2 7, posterize .3 7; color .4 3, brightness .6 7; sharpness .3 9, brightness .7 9;
    equalize .6, equalize .5; contrast .6 7, sharpness .6 5; color .7 7, translate_x .5 8; equalize .3, auto_contrast .4;
    translate_y .4 3, sharpness .2 6; brightness .9 6, color .2 8; solarize .5 2; equalize .2, auto_contrast .6;
    equalize .2, equalize .6; color .9 9, equalize .6; auto_contrast .8, solarize .2 8; brightness .1 3, color .7 0;
    solarize .4 5, auto_contrast .9; translate_y .9 9, translate_y .7 9; auto_contrast .9, solarize .8 3; equalize .8, invert .1;
    translate_y .7 9, auto_contrast .9
"""
_SVHN_PAIRS = """
    shear_x .9 4, invert .2; shear_y .9 8, invert .7; equalize .6, solarize .6 6; invert .9, equalize .6; equalize .6, rotate .9 3;
    shear_x .9 4, auto_contrast .8; shear_y .9 8, invert .4; shear_y .9 5, solarize .2 6; invert .9, auto_contrast .8;
    equalize .6, rotate .9 3; shear_x .9 4, solarize .3 3; shear_y .8 8, invert .7; equalize .9, translate_y .6 6;
    invert .9, equalize .6; contrast .3 3, rotate .8 4; invert .8; shear_y .7 6, solarize .4 8; invert .6, rotate .8 4;
    shear_y .3 7, translate_x .9 3; shear_x .1 6, invert .6; solarize .7 2, translate_y .6 7; shear_y .8 4, invert .8;
    shear_x .7 9, translate_y .8 3; shear_y .8 5, auto_contrast .7; shear_x .7 2, invert .1
"""

SubPolicy: TypeAlias = tuple[tuple[str, float, int], ...]


def _parse_pairs(text: str) -> tuple[SubPolicy, ...]:
    def parse_step(name: str, probability: str, magnitude: str = "0") -> tuple[str, float, int]:
        return name, float(probability), int(magnitude)

    return tuple(tuple(parse_step(*step.split()) for step in pair.split(",")) for pair in text.split(";"))


# The pairs, their search space, and the number of magnitudes.
POLICIES: Mapping[PolicyName, tuple[tuple[SubPolicy, ...], Space, int]] = {
    "image_net": (_parse_pairs(_IMAGE_NET_PAIRS), IMAGE_NET, 11),
    "reduced_image_net": (_parse_pairs(_REDUCED_IMAGE_NET_PAIRS), AUTO_AUGMENT, 10),
    "cifar10": (_parse_pairs(_CIFAR10_PAIRS), AUTO_AUGMENT, 10),
    "svhn": (_parse_pairs(_SVHN_PAIRS), AUTO_AUGMENT, 10),
}
