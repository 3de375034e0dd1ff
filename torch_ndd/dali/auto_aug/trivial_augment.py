# SPDX-License-Identifier: Apache-2.0
"""TrivialAugment (Mueller and Hutter, arXiv:2103.10158) in pipelines."""

from collections.abc import Sequence
from typing import Any

from ...augment._spaces import DALI_TRIVIAL_AUGMENT_WIDE
from . import _operations
from ._suites import check_arguments, check_bins, check_list, derive_seed, exclude, make_suite, taken_arguments
from .core import select, signed_bin
from .core._augmentation import Augmentation
from .core._random import random_index

__all__ = ["apply_trivial_augment", "get_trivial_augment_wide_suite", "signed_bin", "trivial_augment_wide"]


def trivial_augment_wide(
    data: Any,
    num_magnitude_bins: int = 31,
    shape: Any = None,
    fill_value: Any = 128,
    interp_type: Any = None,
    max_translate_abs: Any = None,
    max_translate_rel: Any = None,
    seed: int | None = None,
    excluded: Sequence[str] | None = None,
) -> Any:
    """Apply a random augmentation of a random magnitude, like :func:`torch_ndd.augment.trivial_augment` does outside of pipelines.

    At the largest magnitude: shear 0.99, translation by 32 pixels or the whole extent, rotation by 135 degrees, factors 1 +- 0.99 of brightness,
    contrast, color and sharpness, 2 bits, a threshold of 0.

    Args:
        data, num_magnitude_bins, shape, fill_value, interp_type, max_translate_abs, max_translate_rel, seed, excluded: See
            :func:`torch_ndd.dali.auto_aug.rand_augment.rand_augment`.

    Returns:
        Node of images of the same shapes.

    Raises:
        Exception: the number of magnitudes is not positive, an unknown name, or a limit of translations that does not fit ``shape``.
    """
    augmentations = exclude(get_trivial_augment_wide_suite(shape is not None, max_translate_abs, max_translate_rel), excluded)
    arguments = taken_arguments(augmentations, shape, fill_value, interp_type)
    return apply_trivial_augment(augmentations, data, num_magnitude_bins=num_magnitude_bins, seed=seed, **arguments)


def apply_trivial_augment(
    augmentations: Sequence[Augmentation], data: Any, num_magnitude_bins: int = 31, seed: int | None = None, **kwargs: Any
) -> Any:
    """Apply one augmentation of a list with a random magnitude, both drawn per sample.

    Args:
        augmentations: The choices, see the decorator ``augmentation``.
        data, num_magnitude_bins, seed: See :func:`trivial_augment_wide`.
        kwargs: Other arguments of the augmentations; each is called with those that are its parameters.

    Raises:
        Exception: See :func:`trivial_augment_wide`; an argument that is not a parameter of any augmentation, or a missing required one.
    """
    check_bins(num_magnitude_bins)
    check_list(augmentations)
    check_arguments(augmentations, kwargs, "apply_trivial_augment")
    if _operations.is_known(augmentations, kwargs):
        choices = _operations.Choices.of(augmentations, num_magnitude_bins)
        return _operations.policy("trivial_augment", data, choices, {"bins": num_magnitude_bins}, seed, kwargs)
    # A custom augmentation is among them: conditions choose its branch. All numbers are drawn before.
    index = random_index(len(augmentations), seed)
    magnitude = random_index(num_magnitude_bins, derive_seed(seed, 1))
    if any(augmentation.randomly_negate for augmentation in augmentations):
        magnitude = signed_bin(magnitude, seed=derive_seed(seed, 2))
    return select(augmentations, index, data, magnitude_bin=magnitude, num_magnitude_bins=num_magnitude_bins, **kwargs)


def get_trivial_augment_wide_suite(use_shape: bool = False, max_translate_abs: Any = None, max_translate_rel: Any = None) -> list[Augmentation]:
    """Return the augmentations of :func:`trivial_augment_wide`; with ``use_shape`` translations are relative to ``shape``.

    >>> len(get_trivial_augment_wide_suite())
    14
    """
    return make_suite(DALI_TRIVIAL_AUGMENT_WIDE, use_shape, max_translate_abs, max_translate_rel)
