# SPDX-License-Identifier: Apache-2.0
"""RandAugment (Cubuk et al., arXiv:1909.13719) in pipelines."""

from collections.abc import Sequence
from typing import Any

from ...augment._spaces import DALI_RAND_AUGMENT, DALI_RAND_AUGMENT_NON_MONOTONIC
from . import _operations
from ._suites import check_arguments, check_bins, check_list, derive_seed, exclude, make_suite, taken_arguments
from .core import select, signed_bin
from .core._augmentation import Augmentation
from .core._random import random_index

__all__ = ["apply_rand_augment", "get_rand_augment_non_monotonic_suite", "get_rand_augment_suite", "rand_augment", "signed_bin"]


def rand_augment(
    data: Any,
    n: int,
    m: int,
    num_magnitude_bins: int = 31,
    shape: Any = None,
    fill_value: Any = 128,
    interp_type: Any = None,
    max_translate_abs: Any = None,
    max_translate_rel: Any = None,
    seed: int | None = None,
    monotonic_mag: bool = True,
    excluded: Sequence[str] | None = None,
) -> Any:
    """Apply ``n`` augmentations of magnitude ``m``, drawn per sample, like :func:`torch_ndd.augment.rand_augment` does outside of pipelines.

    At the largest magnitude: shear 0.3, translation by 100 pixels or 100/224 of the extent, rotation by 30 degrees, factors 1 +- 0.9 of brightness,
    contrast, color and sharpness, 4 bits, a threshold of 0. Directions are random.

    Args:
        data: Node of uint8 images ``HWC`` or videos ``FHWC``.
        n: Number of augmentations per sample.
        m: Magnitude, from 0 to ``num_magnitude_bins - 1``.
        num_magnitude_bins: Number of magnitudes.
        shape: Extents of the images; translations are then relative to them.
        fill_value: Value outside the images: a number, or one per channel; None for the border pixels.
        interp_type: Interpolation of moved images, by default linear.
        max_translate_abs: Largest translation in pixels without ``shape``, one number or two (height, width).
        max_translate_rel: Largest translation as a fraction of the extent with ``shape``.
        seed: Of the random choices, by default that of the pipeline.
        monotonic_mag: Use ranges in which a larger magnitude is a larger change; False for those of the paper, in which some shrink.
        excluded: Names of augmentations to leave out.

    Returns:
        Node of images of the same shapes.

    Raises:
        Exception: ``n``, ``m`` or the number of magnitudes is out of range, an unknown name, or a limit of translations that does not fit ``shape``.
    """
    suite = get_rand_augment_suite if monotonic_mag else get_rand_augment_non_monotonic_suite
    augmentations = exclude(suite(shape is not None, max_translate_abs, max_translate_rel), excluded)
    arguments = taken_arguments(augmentations, shape, fill_value, interp_type)
    return apply_rand_augment(augmentations, data, n, m, num_magnitude_bins=num_magnitude_bins, seed=seed, **arguments)


def apply_rand_augment(
    augmentations: Sequence[Augmentation], data: Any, n: int, m: int, num_magnitude_bins: int = 31, seed: int | None = None, **kwargs: Any
) -> Any:
    """Apply ``n`` augmentations of a list in sequence, each drawn per sample.

    Args:
        augmentations: The choices, see the decorator ``augmentation``.
        data, n, m, num_magnitude_bins, seed: See :func:`rand_augment`.
        kwargs: Other arguments of the augmentations; each is called with those that are its parameters.

    Raises:
        Exception: See :func:`rand_augment`; an argument that is not a parameter of any augmentation, or a missing required one.
    """
    if not isinstance(n, int) or n < 0:
        raise Exception(f"The number of operations to apply `n` must be a non-negative integer, got {n}")
    check_bins(num_magnitude_bins)
    if not isinstance(m, int) or not 0 <= m < num_magnitude_bins:
        raise Exception(f"The magnitude bin `m` must be an integer from `[0, {num_magnitude_bins - 1}]` range. Got {m}.")
    if n == 0:  # as in DALI, before the list is checked
        return data
    check_list(augmentations)
    check_arguments(augmentations, kwargs, "apply_rand_augment")
    if _operations.is_known(augmentations, kwargs):
        choices = _operations.Choices.of(augmentations, num_magnitude_bins)
        return _operations.policy("rand_augment", data, choices, {"n": n, "m": m}, seed, kwargs)
    # A custom augmentation is among them: conditions choose its branch. All numbers are drawn before.
    index = random_index(len(augmentations), seed, [n])
    magnitude = signed_bin(m, seed=derive_seed(seed, 1), shape=[n]) if any(augmentation.randomly_negate for augmentation in augmentations) else None
    for k in range(n):
        magnitude_bin = m if magnitude is None else magnitude[k]
        data = select(augmentations, index[k], data, magnitude_bin=magnitude_bin, num_magnitude_bins=num_magnitude_bins, **kwargs)
    return data


def get_rand_augment_suite(use_shape: bool = False, max_translate_abs: Any = None, max_translate_rel: Any = None) -> list[Augmentation]:
    """Return the augmentations of :func:`rand_augment`; with ``use_shape`` translations are relative to ``shape``.

    >>> [augmentation.name for augmentation in get_rand_augment_suite()][:4]
    ['translate_x', 'translate_y', 'shear_x', 'shear_y']
    """
    return make_suite(DALI_RAND_AUGMENT, use_shape, max_translate_abs, max_translate_rel)


def get_rand_augment_non_monotonic_suite(use_shape: bool = False, max_translate_abs: Any = None, max_translate_rel: Any = None) -> list[Augmentation]:
    """Return the augmentations of :func:`rand_augment` with the ranges of the paper, in which a larger magnitude is not always a larger change."""
    return make_suite(DALI_RAND_AUGMENT_NON_MONOTONIC, use_shape, max_translate_abs, max_translate_rel)
