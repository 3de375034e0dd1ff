# SPDX-License-Identifier: Apache-2.0
"""What the policies share: suites of augmentations, checks of arguments, and seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...augment._spaces import FACTORS, Space
from . import augmentations as a
from .core._args import filter_arguments, forbid_unused_kwargs, missing
from .core._augmentation import Augmentation


def make_suite(space: Space, use_shape: bool = False, max_translate_abs: Any = None, max_translate_rel: Any = None) -> list[Augmentation]:
    """Return the augmentations of a search space.

    Args:
        space: one of DALI's in ``augment/_spaces.py``, which has two translations along each axis.
        use_shape: translate by a fraction of the extents in the argument ``shape`` instead of pixels.
        max_translate_abs, max_translate_rel: largest translation in pixels or as a fraction, by default that of the space; a number or a pair: along
            the height, along the width.
    """
    limits = _translation_limits(use_shape, max_translate_abs, max_translate_rel)
    suite = []
    for name, range in space.items():
        # The space has one entry for each augmentation of the module, by the same name.
        augmentation = getattr(a, name)
        if name in limits:
            last = limits[name]
            # The default limit is that of the space.
            suite.append(augmentation.augmentation(mag_range=(0, range.last if last is None and range is not None else last)))
        elif range is None:
            suite.append(augmentation)
        elif name in FACTORS and range.origin == 0:  # the magnitude is the factor, not a change of it
            mag_to_param = a.sharpness_kernel_shifted if name == "sharpness" else None
            suite.append(augmentation.augmentation(mag_range=(range.first, range.last), randomly_negate=False, mag_to_param=mag_to_param))
        elif not name.startswith("translate"):  # of the two kinds of translations, only those in limits are used
            suite.append(augmentation.augmentation(mag_range=(range.first, range.last)))
    return suite


def _translation_limits(use_shape: bool, max_translate_abs: Any, max_translate_rel: Any) -> dict[str, Any]:
    """Return the largest translations by the names of the augmentations to use; None for the default."""
    kind, unused = ("rel", "abs") if use_shape else ("abs", "rel")
    limits = {"abs": max_translate_abs, "rel": max_translate_rel}
    if limits[unused] is not None:
        raise Exception(
            f"The argument `max_translate_{unused}` cannot be used {'with' if use_shape else 'without'} image shapes. "
            f"You may use `max_translate_{kind}` instead."
        )
    limit = limits[kind]
    pair = tuple(limit) if isinstance(limit, list | tuple) else (limit, limit)
    if len(pair) != 2:
        raise Exception(f"The argument `max_translate_{kind}` must be one number, or two for the height and the width. Got {limit!r}")
    suffix = "" if use_shape else "_no_shape"
    # Pairs are (height, width), as for shapes: x is the second.
    return {f"translate_x{suffix}": pair[1], f"translate_y{suffix}": pair[0]}


def taken_arguments(augmentations: Sequence[Augmentation], shape: Any, fill_value: Any, interp_type: Any) -> dict[str, Any]:
    """Return the arguments that are parameters of at least one augmentation."""
    arguments = {"fill_value": fill_value, "interp_type": interp_type} | ({} if shape is None else {"shape": shape})
    names = {name for augmentation in augmentations for name in filter_arguments(augmentation.op, arguments)}
    return {name: value for name, value in arguments.items() if name in names}


def exclude(augmentations: Sequence[Augmentation], excluded: Sequence[str] | None) -> list[Augmentation]:
    """Return the augmentations without those whose names are excluded."""
    names = [augmentation.name for augmentation in augmentations]
    for name in excluded or ():
        if name not in names:
            raise Exception(f"The `{name}` from `excluded` does not correspond to any of the augmentations: {', '.join(names)}")
    return [augmentation for augmentation in augmentations if augmentation.name not in (excluded or ())]


def check_arguments(augmentations: Sequence[Augmentation], arguments: Mapping[str, Any], call: str) -> None:
    """Raise Exception for an argument that is not a parameter of any augmentation, or for a missing required one."""
    forbid_unused_kwargs(augmentations, arguments, call)
    for augmentation in augmentations:
        for name in missing(augmentation.op, arguments):
            raise Exception(f"The augmentation `{augmentation.name}` requires `{name}` argument: provide it as `{name}` argument to `{call}` call")


def check_bins(num_magnitude_bins: Any) -> None:
    """Raise Exception unless the number of magnitudes is a positive integer."""
    if not isinstance(num_magnitude_bins, int) or num_magnitude_bins < 1:
        raise Exception(f"The `num_magnitude_bins` must be a positive integer, got {num_magnitude_bins}")


def check_list(augmentations: Any) -> None:
    """Raise Exception for an empty list."""
    if len(augmentations) == 0:
        raise Exception("The `augmentations` list cannot be empty, unless n is 0. Got empty list")


def derive_seed(seed: int | None, k: int) -> int | None:
    """Return the seed of operator ``k`` of a policy: with equal seeds, operators would draw equal numbers."""
    return None if seed is None else seed + k
