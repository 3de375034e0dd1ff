# SPDX-License-Identifier: Apache-2.0
"""The augmentations of timm's RandAugment and AugMix, and the strings that name their variants."""

import math
import re
from typing import Any

import numpy as np

from .._core.batch import Batch, as_batch
from ..ops.color import posterize
from ..ops.filters import gaussian_blur
from ._augmentations import FOUND, FOUND_IMAGE_NET, Augmentation, colored, inverted_from

# Positions 0 to 1 are timm's levels 0 to 10. Numbers that timm truncates are truncated here, too.


def _down(values: np.ndarray) -> np.ndarray:
    return np.floor(values + 1e-5)


def _posterized(images: Batch, bits: Batch) -> Batch:
    return posterize(images, bits=as_batch(_down(bits.torch().numpy()).astype(np.int32)))


def _posterized_up(images: Batch, bits: Batch) -> Batch:
    return posterize(images, bits=as_batch(np.ceil(bits.torch().numpy() - 1e-5).astype(np.int32)))


def _solarized(images: Batch, levels: Batch) -> Batch:
    return inverted_from(images, _down(levels.torch().numpy()) / 255.0)


def _solarized_up(images: Batch, levels: Batch) -> Batch:
    return inverted_from(images, np.ceil(levels.torch().numpy() - 1e-5) / 255.0)


def _bleached(images: Batch, parts: Batch) -> Batch:
    return colored(images, as_batch(1.0 - parts.torch().numpy()))


def _blurred(images: Batch, sigmas: Batch) -> Batch:
    return gaussian_blur(images, sigma=sigmas)


_KNOWN = {one.name: one for one in (*FOUND, *FOUND_IMAGE_NET)}
_MOVED = {one.name: one for one in FOUND}


def _factor(name: str, low: float, high: float, signed: bool = False) -> Augmentation:
    return Augmentation(name, (low, high), signed, values=_MOVED[name].values)


def _translation(name: str) -> Augmentation:
    return Augmentation(name, (0.0, 0.45), True, matrix=_MOVED[name].matrix)


_SAME = tuple(_KNOWN[name] for name in ("auto_contrast", "equalize", "invert", "rotate"))
_MOVES = (_MOVED["shear_x"], _MOVED["shear_y"], _translation("translate_x"), _translation("translate_y"))
_COLORS = ("color", "contrast", "brightness", "sharpness")
_SOLARIZE_ADD = _KNOWN["solarize_add"]
_INCREASING = (
    Augmentation("posterize", (4, 0), values=_posterized_up),
    Augmentation("solarize", (256, 0), values=_solarized_up),
)

TIMM = (
    *_SAME,
    Augmentation("posterize", (0, 4), values=_posterized),
    Augmentation("solarize", (0, 256), values=_solarized),
    _SOLARIZE_ADD,
    *(_factor(name, 0.1, 1.9) for name in _COLORS),
    *_MOVES,
)
TIMM_INCREASING = (*_SAME, *_INCREASING, _SOLARIZE_ADD, *(_factor(name, 1.0, 1.9, True) for name in _COLORS), *_MOVES)
_THREE = (
    _INCREASING[1],
    Augmentation("desaturate", (0.5, 1.0), values=_bleached),
    Augmentation("gaussian_blur", (0.1, 2.0), values=_blurred),
)
_AUG_MIX = tuple(one for one in TIMM_INCREASING if one.name not in ("invert", "solarize_add"))

_WEIGHTS = {
    "rotate": 3.0,
    "shear_x": 2.0,
    "shear_y": 2.0,
    "translate_x": 1.0,
    "translate_y": 1.0,
    "color": 0.25,
    "sharpness": 0.25,
    "auto_contrast": 0.25,
    "solarize": 0.05,
    "solarize_add": 0.05,
    "contrast": 0.05,
    "brightness": 0.05,
    "equalize": 0.05,
    "posterize": 0.05,
    "invert": 0.05,
}
_WEIGHTS_OF_THREE = {
    "solarize": 6.0,
    "desaturate": 6.0,
    "gaussian_blur": 6.0,
    "rotate": 3.0,
    "shear_x": 2.0,
    "shear_y": 2.0,
    **dict.fromkeys(("posterize", "auto_contrast", "color", "sharpness", "contrast", "brightness", "equalize", "invert"), 1.0),
}
_LARGEST = 10


def timm_arguments(config: str) -> dict[str, Any]:
    """Return the arguments of :func:`rand_augment` or :func:`aug_mix` that a string of timm's ``--aa`` stands for.

    ``"rand-m9-mstd0.5-inc1"`` is for :func:`rand_augment`: ``m`` is the magnitude, 10 by default, ``n`` the number of augmentations, 2 by default,
    ``p`` their probability, 0.5 by default, ``mstd`` the deviation of the magnitude (above 100 it is uniform), ``inc1`` selects augmentations that
    become stronger with the magnitude, and ``tweights``, ``t3a`` and ``t3aw`` sets of timm. ``"augmix-m5-w4-d2"`` is for :func:`aug_mix`: severity,
    width and depth; ``a`` is alpha. At the same magnitudes the augmentations are those of :func:`trivial_augment`, not Pillow's to the last level.

    Args:
        config: parts separated by dashes. Add ``interp_type=ndd.types.INTERP_CUBIC`` to the call for timm's bicubic interpolation.

    Raises:
        ValueError: another name, an unknown part, or ``mmax`` and ``b``, for which there is nothing here.

    >>> arguments = ndd.augment.timm_arguments("rand-m9-n3-mstd0.5-inc1")
    >>> arguments["m"], arguments["n"], arguments["magnitude_std"], arguments["probability"]
    (9, 3, 0.5, 0.5)
    >>> ndd.augment.rand_augment(torch.zeros(8, 8, 3), **arguments).shape
    (8, 8, 3)
    """
    name, *parts = config.split("-")
    if name not in ("rand", "augmix"):
        raise ValueError(f"timm_arguments: a policy begins with rand or augmix, got {config!r}")
    given: dict[str, Any] = {}
    for part in parts:
        found = re.fullmatch(r"(mstd|mmax|inc|m|n|p|w|d|a|b)(\d+(?:\.\d*)?)", part)
        if part.startswith("t") and name == "rand":
            given["t"] = part[1:]
        elif found:
            given[found[1]] = float(found[2])
        else:
            raise ValueError(f"timm_arguments: {part!r} of {config!r} is not a number behind one of m, mstd, n, p, inc, or of m, mstd, w, d, a")
    allowed = {"m", "mstd", "n", "p", "inc", "t"} if name == "rand" else {"m", "mstd", "w", "d", "a"}
    for key in given.keys() - allowed:
        raise ValueError(f"timm_arguments: {key!r} of {config!r} has no meaning here")
    deviation = float(given.get("mstd", 0 if name == "rand" else math.inf))
    deviation = math.inf if deviation > 100 else deviation
    if name == "augmix":
        return {
            "severity": _checked(config, given.get("m", 3)),
            "magnitude_std": deviation,
            "width": int(given.get("w", 3)),
            "depth": int(given["d"]) if given.get("d") else None,
            "alpha": given.get("a", 1.0),
            "augmentations": _AUG_MIX,
            "num_magnitude_bins": _LARGEST + 1,
        }
    made: dict[str, Any] = {
        "m": _checked(config, given.get("m", _LARGEST)),
        "n": int(given.get("n", 2)),
        "magnitude_std": deviation,
        "probability": given.get("p", 0.5),
        "num_magnitude_bins": _LARGEST + 1,
        "augmentations": TIMM_INCREASING if given.get("inc") else TIMM,
    }
    weights = {"weights": _WEIGHTS, "3aw": _WEIGHTS_OF_THREE}.get(given.get("t", ""))
    if weights is not None:
        by_name = {one.name: one for one in (*TIMM_INCREASING, *_THREE)}
        made |= {"augmentations": tuple(by_name[one] for one in weights), "weights": tuple(weights.values())}
    elif given.get("t") == "3a":
        made["augmentations"] = _THREE
    elif given.get("t"):
        raise ValueError(f"timm_arguments: t{given['t']} of {config!r} is none of tweights, t3a, t3aw")
    return made


def _checked(config: str, magnitude: float) -> float:
    if not 0 <= magnitude <= _LARGEST:
        raise ValueError(f"timm_arguments: the magnitude of {config!r} must be from 0 to {_LARGEST}, got {magnitude:g}")
    return int(magnitude) if magnitude == int(magnitude) else magnitude
