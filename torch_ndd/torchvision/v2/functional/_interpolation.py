# SPDX-License-Identifier: Apache-2.0
"""Names of interpolations."""

from typing import Any

from torchvision.transforms import InterpolationMode as InterpolationMode

from .... import types

_PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}

FILTERS = {
    InterpolationMode.NEAREST: types.INTERP_NN,
    InterpolationMode.NEAREST_EXACT: types.INTERP_NN,
    InterpolationMode.BILINEAR: types.INTERP_LINEAR,
    InterpolationMode.BICUBIC: types.INTERP_CUBIC,
    InterpolationMode.LANCZOS: types.INTERP_LANCZOS3,
}


def interpolation_mode(op: str, given: Any) -> InterpolationMode:
    """Return the mode for a mode, its name or Pillow's number. Raise ValueError for anything else.

    >>> interpolation_mode("", "bicubic"), interpolation_mode("", 2)
    (<InterpolationMode.BICUBIC: 'bicubic'>, <InterpolationMode.BILINEAR: 'bilinear'>)
    """
    if isinstance(given, InterpolationMode):
        return given
    if isinstance(given, int) and not isinstance(given, bool) and int(given) in _PILLOW:
        return InterpolationMode(_PILLOW[int(given)])
    if isinstance(given, str):
        try:
            return InterpolationMode(given)
        except ValueError:
            pass
    known = ", ".join(repr(one.value) for one in InterpolationMode)
    raise ValueError(f"{op}: interpolation must be one of {known}, an InterpolationMode or Pillow's number for one, got {given!r}")


def warp_filter(op: str, given: Any) -> Any:
    """Return the filter of a warp. Raise ValueError unless it is nearest or bilinear."""
    mode = interpolation_mode(op, given)
    if mode not in (InterpolationMode.NEAREST, InterpolationMode.BILINEAR):
        raise ValueError(f"{op}: interpolation mode '{mode.value}' is unsupported, only 'nearest' and 'bilinear'")
    return FILTERS[mode]
