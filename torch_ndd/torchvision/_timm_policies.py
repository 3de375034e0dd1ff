# SPDX-License-Identifier: Apache-2.0
"""timm's automatic augmentations: their operators, levels, policies and texts like ``rand-m9-mstd0.5-inc1``."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from .. import types
from .._core.batch import Batch, as_batch
from ..augment._applied import Step, applied
from ..augment._augmentations import Augmentation, _lightened, _rotate, _shear_x, _shear_y, _solarized
from ..ops import math as elementwise
from ..ops.filters import gaussian_blur
from ..ops.generic import cast
from ..ops.shape import transpose
from ._draws import Draws
from ._sample import flatten, is_explicit_image, unflatten

LARGEST = 10.0  # level at which an operator has its largest parameter
GRAY = (128, 128, 128)


@dataclass(frozen=True)
class Hints:
    """What a policy's operators share.

    Attributes:
        translate_const: largest translation in pixels.
        translate_pct: largest translation relative to the image.
        img_mean: color outside the image.
        magnitude_std: standard deviation of levels; infinite: uniform from 0.
        magnitude_max: upper limit of levels; None: 10.
        nearest: interpolate by nearest neighbor, not bilinearly.
    """

    translate_const: float = 250.0
    translate_pct: float = 0.45
    img_mean: tuple[float, ...] = GRAY
    magnitude_std: float = 0.0
    magnitude_max: float | None = None
    nearest: bool = False


@dataclass(frozen=True)
class Operator:
    """An operator of a policy with its probability and level."""

    name: str
    prob: float = 0.5
    magnitude: float = LARGEST
    hints: Hints = Hints()

    def parameter(self, noise: float, portion: float, other_side: bool) -> float:
        """Return the parameter for a normal number, one from 0 to 1, and a side."""
        level, std = float(self.magnitude), self.hints.magnitude_std
        if std == math.inf:
            level *= portion
        elif std > 0:
            level += noise * std
        level = max(0.0, min(level, self.hints.magnitude_max or LARGEST))
        return _LEVELS[self.name](level / LARGEST, -1.0 if other_side else 1.0, self.hints)


Level = Callable[[float, float, Hints], float]


def _none(level: float, sign: float, hints: Hints) -> float:
    del level, sign, hints
    return 0.0


def _signed(largest: float) -> Level:
    return lambda level, sign, hints: sign * level * largest


def _increasing(level: float, sign: float, hints: Hints) -> float:
    del hints
    return max(0.1, 1.0 + sign * level * 0.9)


def _least_to_most(least: float, most: float) -> Level:
    return lambda level, sign, hints: max(least, min(most, least + (most - least) * level))


_LEVELS: dict[str, Level] = {
    **dict.fromkeys(("AutoContrast", "Equalize", "Invert"), _none),
    "Rotate": _signed(30.0),
    "Posterize": lambda level, sign, hints: int(level * 4),
    "PosterizeIncreasing": lambda level, sign, hints: 4 - int(level * 4),
    "PosterizeOriginal": lambda level, sign, hints: 4 + int(level * 4),
    "Solarize": lambda level, sign, hints: min(256, int(level * 256)) / 255.0,
    "SolarizeIncreasing": lambda level, sign, hints: (256 - min(256, int(level * 256))) / 255.0,
    "SolarizeAdd": lambda level, sign, hints: min(128, int(level * 110)) / 255.0,
    **dict.fromkeys(("Color", "Contrast", "Brightness", "Sharpness"), lambda level, sign, hints: level * 1.8 + 0.1),
    **dict.fromkeys(("ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing"), _increasing),
    **dict.fromkeys(("ShearX", "ShearY"), _signed(0.3)),
    **dict.fromkeys(("TranslateX", "TranslateY"), lambda level, sign, hints: sign * level * hints.translate_const),
    **dict.fromkeys(("TranslateXRel", "TranslateYRel"), lambda level, sign, hints: sign * level * hints.translate_pct),
    "Desaturate": lambda level, sign, hints: 1.0 - _least_to_most(0.5, 1.0)(level, sign, hints),
    "GaussianBlur": _least_to_most(0.1, 2.0),
    "GaussianBlurRand": _least_to_most(0.0, 1.0),
}


# --- what the operators do ---


def _by(name: str) -> Callable[[Batch, Batch], Batch]:
    """Return a functional of v2 as a function of images and one parameter per image."""

    def function(images: Batch, parameters: Batch) -> Batch:
        from .v2 import functional

        return getattr(functional, name)(images, parameters)

    return function


def _alone(name: str) -> Callable[[Batch, Batch], Batch]:
    def function(images: Batch, parameters: Batch) -> Batch:
        del parameters
        from .v2 import functional

        return getattr(functional, name)(images)

    return function


def _posterized(images: Batch, bits: Batch) -> Batch:
    from .v2 import functional

    return functional.posterize(images, as_batch(np.rint(bits.torch().numpy()).astype(np.int32)))


def _blurred(images: Batch, sigma: Batch) -> Batch:
    return gaussian_blur(images, sigma=sigma)


_COLORS = {"Color": "adjust_saturation", "Contrast": "adjust_contrast", "Brightness": "adjust_brightness", "Sharpness": "adjust_sharpness"}
_VALUES: dict[str, Callable[[Batch, Batch], Batch]] = {
    "AutoContrast": _alone("autocontrast"),
    "Equalize": _alone("equalize"),
    "Invert": _alone("invert"),
    **dict.fromkeys(("Posterize", "PosterizeIncreasing", "PosterizeOriginal"), _posterized),
    **dict.fromkeys(("Solarize", "SolarizeIncreasing"), _solarized),  # with thresholds up to 256
    "SolarizeAdd": _lightened,
    **{name + ending: _by(function) for name, function in _COLORS.items() for ending in ("", "Increasing")},
    "Desaturate": _by("adjust_saturation"),
    **dict.fromkeys(("GaussianBlur", "GaussianBlurRand"), _blurred),
}
_MATRICES: dict[str, Any] = {
    "Rotate": _rotate,
    "ShearX": _shear_x,
    "ShearY": _shear_y,
    "TranslateX": lambda amount, height, width: [[1, 0, -amount], [0, 1, 0]],
    "TranslateY": lambda amount, height, width: [[1, 0, 0], [0, 1, -amount]],
    "TranslateXRel": lambda amount, height, width: [[1, 0, -amount * width], [0, 1, 0]],
    "TranslateYRel": lambda amount, height, width: [[1, 0, 0], [0, 1, -amount * height]],
}


def _augmentations() -> dict[str, Augmentation]:
    made: dict[str, Augmentation] = {name: Augmentation(name, matrix=matrix) for name, matrix in _MATRICES.items()}
    by_function: dict[Any, Augmentation] = {}
    for name, function in _VALUES.items():  # one call for all names of the same function
        made[name] = by_function.setdefault(function, Augmentation(name, values=function))
    return made


_AUGMENTATIONS = _augmentations()


# --- the policies ---


class _OnImage:
    """Works on the images of a sample, HWC or CHW uint8; boxes and masks stay as they are."""

    hints: Hints

    def __call__(self, sample: Any) -> Any:
        leaves, spec = flatten(sample)
        return unflatten([self._one(leaf) if isinstance(leaf, Batch) and is_explicit_image(leaf) else leaf for leaf in leaves], spec)

    def _one(self, images: Batch) -> Batch:
        if images.dtype != torch.uint8:
            kind = types.dtype_name(images.dtype)
            raise ValueError(f"{type(self).__name__}: images must be uint8, got {kind}; it comes before the conversion to floats")
        if images.layout == "CHW":
            return transpose(self._images(transpose(images, perm=[1, 2, 0])), perm=[2, 0, 1])
        return self._images(images)

    def _images(self, images: Batch) -> Batch:
        raise NotImplementedError

    def _done(self, images: Batch, steps: Sequence[Sequence[Step]]) -> Batch:
        interpolation = types.INTERP_NN if self.hints.nearest else types.INTERP_LINEAR
        mean = [float(one) for one in self.hints.img_mean]
        made, _, _ = applied(type(self).__name__, images, steps, None, None, mean, 0.0, interpolation)
        return made

    def _steps(self, draws: Draws, chosen: Sequence[Sequence[Operator]]) -> list[list[Step]]:
        """Return what the chosen operators do to each sample."""
        count = max(map(len, chosen), default=0)
        if not count:
            return [[] for _ in chosen]
        acts, portion, side, radius = (draws.unit(count).numpy() for _ in range(4))
        noise = draws.normal(count).numpy()
        made: list[list[Step]] = []
        for i, row in enumerate(chosen):
            steps = []
            for k, one in enumerate(row):
                if one.prob < 1.0 and acts[i, k] > one.prob:
                    continue
                parameter = one.parameter(noise[i, k], portion[i, k], side[i, k] > 0.5)
                if one.name == "GaussianBlurRand":
                    parameter = 0.1 + (2.0 * parameter - 0.1) * radius[i, k]
                steps.append((_AUGMENTATIONS[one.name], parameter))
            made.append(steps)
        return made


class RandAugment(_OnImage):
    """timm's RandAugment: some of the operators one after the other, each with its probability."""

    def __init__(self, ops: Sequence[Operator], num_layers: int = 2, choice_weights: Sequence[float] | None = None) -> None:
        self.ops, self.num_layers, self.choice_weights = list(ops), num_layers, choice_weights
        self.hints = self.ops[0].hints

    def _images(self, images: Batch) -> Batch:
        draws = Draws(images.batch_size)
        drawn = draws.unit(len(self.ops) if self.choice_weights is not None else self.num_layers).numpy()
        if self.choice_weights is None:
            which = (drawn * len(self.ops)).astype(np.int64)
        else:  # without replacement: the first of exponential arrivals
            which = np.argsort(-np.log1p(-drawn) / np.maximum(np.asarray(self.choice_weights, np.float64), 1e-300), 1)[:, : self.num_layers]
        return self._done(images, self._steps(draws, [[self.ops[k] for k in row] for row in which]))

    def __repr__(self) -> str:
        return f"RandAugment(n={self.num_layers}, ops={[one.name for one in self.ops]})"


class AutoAugment(_OnImage):
    """timm's AutoAugment: one of the policy's sequences for every sample."""

    def __init__(self, policy: Sequence[Sequence[Operator]]) -> None:
        self.policy = [list(row) for row in policy]
        self.hints = self.policy[0][0].hints

    def _images(self, images: Batch) -> Batch:
        draws = Draws(images.batch_size)
        which = draws.integers(0, len(self.policy)).tolist()
        return self._done(images, self._steps(draws, [self.policy[k] for k in which]))


class AugMixAugment(_OnImage):
    """timm's AugMix: chains of operators, mixed with each other and with the image."""

    def __init__(self, ops: Sequence[Operator], alpha: float = 1.0, width: int = 3, depth: int = -1, blended: bool = False) -> None:
        self.ops, self.alpha, self.width, self.depth, self.blended = list(ops), alpha, width, depth, blended
        self.hints = self.ops[0].hints

    def _images(self, images: Batch) -> Batch:
        draws = Draws(images.batch_size)
        weights = draws.dirichlet(self.alpha, self.width).to(torch.float32)
        share = draws.dirichlet(self.alpha, 2)[:, 0].to(torch.float32)
        if self.blended:
            return self._blended(images, draws, weights, share)
        mixed: Any = None
        for k in range(self.width):
            part = self._chain(images, draws) * _column(weights[:, k])
            mixed = part if mixed is None else mixed + part
        mixed = _truncated(mixed)
        return _truncated(images * _column(1.0 - share) + mixed * _column(share))

    def _chain(self, images: Batch, draws: Draws) -> Batch:
        depths = [self.depth] * draws.count if self.depth > 0 else draws.integers(1, 4).tolist()
        which = (draws.unit(max(depths)).numpy() * len(self.ops)).astype(np.int64)
        chosen = [[self.ops[k] for k in row[:depth]] for row, depth in zip(which, depths, strict=True)]
        return self._done(images, self._steps(draws, chosen))

    def _blended(self, images: Batch, draws: Draws, weights: torch.Tensor, share: torch.Tensor) -> Batch:
        left = torch.ones(draws.count)
        alphas = []
        for k in reversed(range(self.width)):
            alphas.append(weights[:, k] * share / left.clamp(min=1e-9))
            left = left * (1.0 - alphas[-1])
        made: Batch = images
        for alpha in reversed(alphas):
            made = _truncated(made * _column(1.0 - alpha) + self._chain(images, draws) * _column(alpha))
        return made


def _column(values: torch.Tensor) -> Batch:
    return as_batch(values.contiguous())


def _truncated(values: Batch) -> Batch:
    # Weights that add up to 1 only nearly must not make 254 of 255.
    return cast(elementwise.floor(values + 1e-3), dtype=torch.uint8)


# --- the tables ---

_DECREASING = (
    *("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color", "Contrast", "Brightness", "Sharpness"),
    *("ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
)
_HAVE_INCREASING = ("Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness")
_INCREASING = tuple(name + "Increasing" if name in _HAVE_INCREASING else name for name in _DECREASING)
_AUGMIX = (
    *("AutoContrast", "ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing", "Equalize", "Rotate"),
    *("PosterizeIncreasing", "SolarizeIncreasing", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
)
_3A = ("SolarizeIncreasing", "Desaturate", "GaussianBlur")
_WEIGHTS_3A = {
    **dict.fromkeys(_3A, 6.0),
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
_SETS: dict[str, Sequence[str] | Mapping[str, float]] = {"weights": _WEIGHTS, "3aw": _WEIGHTS_3A, "3a": _3A}
# A pair of steps: name, probability in tenths, level.
_V0 = """
Equalize 8 1, ShearY 8 4; Color 4 9, Equalize 6 3; Color 4 1, Rotate 6 8; Solarize 8 3, Equalize 4 7; Solarize 4 2, Solarize 6 2;
Color 2 0, Equalize 8 8; Equalize 4 8, SolarizeAdd 8 3; ShearX 2 9, Rotate 6 8; Color 6 1, Equalize 10 2; Invert 4 9, Rotate 6 0;
Equalize 10 9, ShearY 6 3; Color 4 7, Equalize 6 0; Posterize 4 6, AutoContrast 4 7; Solarize 6 8, Color 6 9; Solarize 2 4, Rotate 8 9;
Rotate 10 7, TranslateYRel 8 9; ShearX 0 0, Solarize 8 4; ShearY 8 0, Color 6 4; Color 10 0, Rotate 6 2; Equalize 8 4, Equalize 0 8;
Equalize 10 4, AutoContrast 6 2; ShearY 4 7, SolarizeAdd 6 7; Posterize 8 2, Solarize 6 10; Solarize 6 8, Equalize 6 1; Color 8 6, Rotate 4 5
"""
_ORIGINAL = """
PosterizeOriginal 4 8, Rotate 6 9; Solarize 6 5, AutoContrast 6 5; Equalize 8 8, Equalize 6 3; PosterizeOriginal 6 7, PosterizeOriginal 6 6;
Equalize 4 7, Solarize 2 4; Equalize 4 4, Rotate 8 8; Solarize 6 3, Equalize 6 7; PosterizeOriginal 8 5, Equalize 10 2; Rotate 2 3, Solarize 6 8;
Equalize 6 8, PosterizeOriginal 4 6; Rotate 8 8, Color 4 0; Rotate 4 9, Equalize 6 2; Equalize 0 7, Equalize 8 8; Invert 6 4, Equalize 10 8;
Color 6 4, Contrast 10 8; Rotate 8 8, Color 10 2; Color 8 8, Solarize 8 7; Sharpness 4 7, Invert 6 8; ShearX 6 5, Equalize 10 9;
Color 4 0, Equalize 6 3; Equalize 4 7, Solarize 2 4; Solarize 6 5, AutoContrast 6 5; Invert 6 4, Equalize 10 8; Color 6 4, Contrast 10 8;
Equalize 8 8, Equalize 6 3
"""
_POLICIES = {
    "v0": _V0,
    "v0r": _V0.replace("Posterize ", "PosterizeIncreasing "),
    "original": _ORIGINAL,
    "originalr": _ORIGINAL.replace("PosterizeOriginal", "PosterizeIncreasing"),
    "3a": "Solarize 10 5; Desaturate 10 10; GaussianBlurRand 10 10",
}


def _policy(text: str, hints: Hints) -> list[list[Operator]]:
    rows = []
    for row in text.split(";"):
        steps = [step.split() for step in row.split(",")]
        rows.append([Operator(name, int(tenths) / 10, float(level), hints) for name, tenths, level in steps])
    return rows


def parsed(config: str, hints: Hints) -> _OnImage:
    """Return what a text like ``rand-m9-mstd0.5-inc1``, ``augmix-m5-w4``, ``original-mstd0.5`` or ``3a`` describes.

    Raises:
        ValueError: an unknown policy or section.
    """
    kind, *sections = config.split("-")
    values: dict[str, str] = {}
    known = {"rand": ("m", "n", "p", "mstd", "mmax", "inc", "t"), "augmix": ("m", "w", "d", "a", "b", "mstd")}.get(kind, ("mstd",))
    if kind not in ("rand", "augmix") and kind not in _POLICIES:
        raise ValueError(f"from_timm: unknown policy {kind!r} in auto_augment={config!r}; the known ones are rand, augmix, {', '.join(_POLICIES)}")
    for section in sections:
        found = ("t", section[1:]) if section.startswith("t") and kind == "rand" else tuple(re.split(r"(\d.*)", section)[:2])
        if len(found) < 2 and section:
            raise ValueError(f"from_timm: section {section!r} of auto_augment={config!r} has no number")
        if len(found) == 2:
            if found[0] not in known:
                raise ValueError(f"from_timm: unknown section {section!r} of auto_augment={config!r}; {kind} has {', '.join(known)}")
            values.setdefault(*found)
    std = float(values["mstd"]) if "mstd" in values else 0.0
    if kind == "rand":
        hints = replace(hints, magnitude_std=math.inf if std > 100 else std, magnitude_max=int(values["mmax"]) if "mmax" in values else None)
        return _rand(values, hints)
    if kind == "augmix":
        hints = replace(hints, magnitude_std=std if "mstd" in values else math.inf)
        ops = [Operator(name, 1.0, int(values.get("m", "3")), hints) for name in _AUGMIX]
        blended = bool(int(values.get("b", "0")))
        return AugMixAugment(ops, float(values.get("a", "1")), int(values.get("w", "3")), int(values.get("d", "-1")), blended)
    return AutoAugment(_policy(_POLICIES[kind], replace(hints, magnitude_std=std)))


def _rand(values: Mapping[str, str], hints: Hints) -> RandAugment:
    increasing = bool(int(values.get("inc", "0")))
    names: Sequence[str] | Mapping[str, float] = _SETS.get(values.get("t", ""), _INCREASING if increasing else _DECREASING)
    weights = None
    if isinstance(names, Mapping):
        total = sum(names.values())
        weights = [one / total for one in names.values()]
    ops = [Operator(name, float(values.get("p", "0.5")), int(values.get("m", "10")), hints) for name in names]
    return RandAugment(ops, int(values.get("n", "2")), weights)
