# SPDX-License-Identifier: Apache-2.0
"""Common parts of the policies: translations, checks of arguments, and the random choices of a graph."""

from collections.abc import Mapping, Sequence
from typing import Any

from . import augmentations as a
from .core._args import accepted, forbid_unused_kwargs, missing
from .core._augmentation import Augmentation


def get_translations(
    use_shape: bool, default_abs: float, default_rel: float, max_translate_abs: Any = None, max_translate_rel: Any = None
) -> list[Augmentation]:
    """Return translations along x and y whose largest offset is in pixels or, with ``use_shape``, a part of the extent.

    A limit is a number or a pair: of the height, of the width.
    """
    given, refused = ("rel", "abs") if use_shape else ("abs", "rel")
    limits = {"abs": max_translate_abs, "rel": max_translate_rel}
    if limits[refused] is not None:
        raise Exception(
            f"The argument `max_translate_{refused}` cannot be used {'with' if use_shape else 'without'} image shapes. "
            f"You may use `max_translate_{given}` instead."
        )
    limit = limits[given]
    if limit is None:
        limit = default_rel if use_shape else default_abs
    pair = tuple(limit) if isinstance(limit, list | tuple) else (limit, limit)
    if len(pair) != 2:
        raise Exception(f"The argument `max_translate_{given}` must be a number or two, of the height and of the width. Got {limit!r}")
    along_x, along_y = (a.translate_x, a.translate_y) if use_shape else (a.translate_x_no_shape, a.translate_y_no_shape)
    return [along_x.augmentation(mag_range=(0, pair[1])), along_y.augmentation(mag_range=(0, pair[0]))]


def arguments_of(augmentations: Sequence[Augmentation], shape: Any, fill_value: Any, interp_type: Any) -> dict[str, Any]:
    """Return the arguments that some of the augmentations take."""
    given = {"fill_value": fill_value, "interp_type": interp_type} | ({} if shape is None else {"shape": shape})
    return {name: value for name, value in given.items() if any(name in accepted(one.op, given) for one in augmentations)}


def without(augmentations: Sequence[Augmentation], excluded: Sequence[str] | None) -> list[Augmentation]:
    """Return the augmentations that are not excluded by their names."""
    names = [one.name for one in augmentations]
    for name in excluded or ():
        if name not in names:
            raise Exception(f"The `{name}` from `excluded` does not correspond to any of the augmentations: {', '.join(names)}")
    return [one for one in augmentations if one.name not in (excluded or ())]


def check_arguments(augmentations: Sequence[Augmentation], given: Mapping[str, Any], call: str) -> None:
    """Raise Exception for arguments that no augmentation takes, or that one needs and that are not given."""
    forbid_unused_kwargs(augmentations, given, call)
    for one in augmentations:
        for name in missing(one.op, given):
            raise Exception(f"The augmentation `{one.name}` requires `{name}` argument: provide it as `{name}` argument to `{call}` call")


def check_bins(num_magnitude_bins: Any) -> None:
    """Raise Exception for a wrong number of magnitudes."""
    if not isinstance(num_magnitude_bins, int) or num_magnitude_bins < 1:
        raise Exception(f"The `num_magnitude_bins` must be a positive integer, got {num_magnitude_bins}")


def check_list(augmentations: Any) -> None:
    """Raise Exception for an empty list."""
    if len(augmentations) == 0:
        raise Exception("The `augmentations` list cannot be empty, unless n is 0. Got empty list")


def other_seed(seed: int | None, k: int) -> int | None:
    """Return the seed of another operator: operators with the same one would draw the same numbers."""
    return None if seed is None else seed + k
