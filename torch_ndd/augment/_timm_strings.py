# SPDX-License-Identifier: Apache-2.0
"""timm's strings for policies, such as ``rand-m9-mstd0.5-inc1``."""

import math
import re
from collections.abc import Mapping
from typing import Any

from .._core.suggestions import similar
from . import _spaces
from ._augmentations import find_timm_augmentation

MAX_MAGNITUDE = 10  # magnitude at which an augmentation has its largest parameter

TIMM = tuple(map(find_timm_augmentation, _spaces.TIMM_DECREASING))
TIMM_INCREASING = tuple(map(find_timm_augmentation, _spaces.TIMM_INCREASING))
_AUG_MIX = tuple(map(find_timm_augmentation, _spaces.TIMM_AUG_MIX))

_KEYS = {"rand": ("m", "n", "p", "mstd", "mmax", "inc", "t"), "augmix": ("m", "w", "d", "a", "b", "mstd")}
_POLICIES = (*_spaces.TIMM_POLICIES, "3a")


class PolicyStringError(ValueError):
    """A string that is not a policy; the caller puts the operator's name in front of the message."""


def parse_policy(text: str) -> tuple[str, dict[str, float], str]:
    """Return the kind of policy, its numbers by key, and the name of its set."""
    kind, *sections = text.split("-")
    if kind not in _KEYS and kind not in _POLICIES:
        known = (*_KEYS, *_POLICIES)
        raise PolicyStringError(f"unknown policy {kind!r}; must be one of {', '.join(known)}{similar(kind, known)}")
    keys, numbers, set_name = _KEYS.get(kind, ("mstd",)), {}, ""
    for section in sections:
        match = re.fullmatch(r"([a-z]+)(\d+(?:\.\d*)?)", section)
        # "t" is tested first: the names of sets may end in digits. As in timm, the first section of a key counts.
        if "t" in keys and section.startswith("t"):
            set_name = set_name or section[1:]
        elif match is None or match[1] not in keys:
            raise PolicyStringError(f"{section!r} is not one of the keys {', '.join(keys)} followed by a number")
        else:
            numbers.setdefault(match[1], float(match[2]))
    return kind, numbers, set_name


def timm_arguments(config: str) -> dict[str, Any]:
    """Return the arguments of :func:`rand_augment` or :func:`aug_mix` for a string of timm's ``--aa``.

    ``"rand-m9-mstd0.5-inc1"`` is for :func:`rand_augment`: ``m`` is the magnitude, 10 by default, ``n`` the number of augmentations, 2 by default,
    ``p`` their probability, 0.5 by default, ``mstd`` the deviation of the magnitude (above 100 it is uniform), ``inc1`` selects augmentations that
    become stronger with the magnitude, and ``tweights``, ``t3a`` and ``t3aw`` sets of timm. ``"augmix-m5-w4-d2"`` is for :func:`aug_mix`: severity,
    width and depth; ``a`` is alpha, and ``b`` changes only how often timm rounds. The augmentations are those of ``from_timm``, whose docstring lists
    the differences from Pillow's.

    Args:
        config: parts separated by dashes. Add ``interp_type=ndd.types.INTERP_CUBIC`` to the call for timm's bicubic interpolation.

    Raises:
        ValueError: another name, an unknown part, or ``mmax``, which has no equivalent here.

    >>> arguments = ndd.augment.timm_arguments("rand-m9-n3-mstd0.5-inc1")
    >>> arguments["m"], arguments["n"], arguments["magnitude_std"], arguments["probability"]
    (9, 3, 0.5, 0.5)
    >>> ndd.augment.rand_augment(torch.zeros(8, 8, 3), **arguments).shape
    (8, 8, 3)
    """
    try:
        kind, numbers, set_name = parse_policy(config)
    except PolicyStringError as error:
        raise ValueError(f"timm_arguments: {error}, in {config!r}") from None
    if kind not in _KEYS:
        raise ValueError(f"timm_arguments: a policy must begin with rand or augmix, got {config!r}; from_timm takes the others")
    if "mmax" in numbers:
        raise ValueError(f"timm_arguments: 'mmax' is not supported, got {config!r}; from_timm takes it")
    deviation = magnitude_deviation(kind, numbers)
    if kind == "augmix":
        return {
            "severity": _check_magnitude(config, numbers.get("m", 3)),
            "magnitude_std": deviation,
            "width": int(numbers.get("w", 3)),
            "depth": int(numbers["d"]) if numbers.get("d") else None,
            "alpha": numbers.get("a", 1.0),
            "augmentations": _AUG_MIX,
            "num_magnitude_bins": MAX_MAGNITUDE + 1,
        }
    arguments: dict[str, Any] = {
        "m": _check_magnitude(config, numbers.get("m", MAX_MAGNITUDE)),
        "n": int(numbers.get("n", 2)),
        "magnitude_std": deviation,
        "probability": numbers.get("p", 0.5),
        "num_magnitude_bins": MAX_MAGNITUDE + 1,
        "augmentations": TIMM_INCREASING if numbers.get("inc") else TIMM,
    }
    if set_name:
        if set_name not in _spaces.TIMM_SETS:
            raise ValueError(f"timm_arguments: t{set_name} of {config!r} must be one of tweights, t3a, t3aw")
        names = _spaces.TIMM_SETS[set_name]
        arguments["augmentations"] = tuple(map(find_timm_augmentation, names))
        if isinstance(names, Mapping):
            arguments["weights"] = tuple(names.values())
    return arguments


def magnitude_deviation(kind: str, numbers: Mapping[str, float]) -> float:
    """Return the standard deviation of the magnitude; infinity is a uniform magnitude."""
    deviation = numbers.get("mstd", math.inf if kind == "augmix" else 0.0)
    # timm takes a deviation above 100 for a uniform magnitude.
    return math.inf if deviation > 100 else deviation


def _check_magnitude(config: str, magnitude: float) -> float:
    if not 0 <= magnitude <= MAX_MAGNITUDE:
        raise ValueError(f"timm_arguments: the magnitude of {config!r} must be from 0 to {MAX_MAGNITUDE}, got {magnitude:g}")
    return int(magnitude) if magnitude == int(magnitude) else magnitude
