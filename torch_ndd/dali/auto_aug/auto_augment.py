# SPDX-License-Identifier: Apache-2.0
"""AutoAugment (Cubuk et al., arXiv:1805.09501) in pipelines."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from ..._core.suggestions import check_choice
from ...augment._spaces import DALI_AUTO_AUGMENT, POLICIES, PolicyName
from .. import types
from . import _operations
from . import augmentations as a
from ._suites import check_arguments, derive_seed, make_suite, taken_arguments
from .core import Policy, select, signed_bin
from .core._augmentation import Augmentation
from .core._random import random_index, random_part

__all__ = [
    "Policy",
    "apply_auto_augment",
    "auto_augment",
    "auto_augment_image_net",
    "get_image_net_policy",
    "get_reduced_cifar10_policy",
    "get_reduced_image_net_policy",
    "get_svhn_policy",
    "signed_bin",
]


def auto_augment(
    data: Any,
    policy_name: Literal["image_net", "reduced_image_net", "svhn", "reduced_cifar10"] = "image_net",
    shape: Any = None,
    fill_value: Any = 128,
    interp_type: Any = None,
    max_translate_abs: Any = None,
    max_translate_rel: Any = None,
    seed: int | None = None,
) -> Any:
    """Apply a sub-policy drawn per sample, like :func:`torch_ndd.augment.auto_augment` does outside of pipelines.

    Args:
        data: Node of uint8 images ``HWC`` or videos ``FHWC``.
        policy_name: ``"image_net"``, ``"reduced_image_net"``, ``"svhn"`` or ``"reduced_cifar10"``.
        shape: Extents of the images; translations are then relative to them.
        fill_value: Value outside the images: a number, or one per channel; None for the border pixels.
        interp_type: Interpolation of moved images, by default linear.
        max_translate_abs: Largest translation in pixels without ``shape``, by default 250; one number or two (height, width).
        max_translate_rel: Largest translation as a fraction of the extent with ``shape``, by default 1.
        seed: Of the random choices, by default that of the pipeline.

    Returns:
        Node of images of the same shapes.

    Raises:
        Exception: an unknown policy, or arguments of translations for ``"reduced_image_net"``, which has none.
    """
    check_choice("auto_augment", "policy_name", policy_name, _POLICIES, Exception)
    # Without translations in the policy, their arguments would be ignored silently.
    if policy_name == "reduced_image_net":
        if max_translate_abs is not None or max_translate_rel is not None or shape is not None:
            raise Exception(
                "The policy `reduced_image_net` has no translations: it takes no `shape` and no `max_translate_abs` or `max_translate_rel`"
            )
        policy = get_reduced_image_net_policy()
    else:
        policy = _POLICIES[policy_name](use_shape=shape is not None, max_translate_abs=max_translate_abs, max_translate_rel=max_translate_rel)
    return apply_auto_augment(policy, data, seed=seed, **taken_arguments(list(policy.augmentations.values()), shape, fill_value, interp_type))


def auto_augment_image_net(
    data: Any,
    shape: Any = None,
    fill_value: Any = 128,
    interp_type: Any = None,
    max_translate_abs: Any = None,
    max_translate_rel: Any = None,
    seed: int | None = None,
) -> Any:
    """Call :func:`auto_augment` with the policy ``"image_net"``."""
    return auto_augment(data, "image_net", shape, fill_value, interp_type, max_translate_abs, max_translate_rel, seed)


def apply_auto_augment(policy: Policy, data: Any, seed: int | None = None, **kwargs: Any) -> Any:
    """Apply a sub-policy of a policy, drawn per sample.

    Args:
        policy: Sub-policies with augmentations, probabilities and magnitudes.
        data, seed: See :func:`auto_augment`.
        kwargs: Other arguments of the augmentations; each is called with those that are its parameters.

    Raises:
        Exception: an empty policy, an argument that is not a parameter of any augmentation, or a missing required one.
    """
    if len(policy.sub_policies) == 0:
        raise Exception(f"Cannot run empty policy. Got {policy} in `apply_auto_augment` call.")
    augmentations = list(policy.augmentations.values())
    check_arguments(augmentations, kwargs, "apply_auto_augment")
    longest = max(map(len, policy.sub_policies))
    if longest == 0:
        return data
    if _operations.is_known(augmentations, kwargs):
        places = {id(augmentation): k for k, augmentation in enumerate(augmentations)}
        table = [
            [(places[id(augmentation)], probability, magnitude) for augmentation, probability, magnitude in steps] for steps in policy.sub_policies
        ]
        choices = _operations.Choices.of(augmentations, policy.num_magnitude_bins)
        return _operations.policy("auto_augment", data, choices, {"sub_policies": table}, seed, kwargs)
    return _as_conditions(policy, data, longest, seed, kwargs)


def _as_conditions(policy: Policy, data: Any, longest: int, seed: int | None, kwargs: dict[str, Any]) -> Any:
    """Apply a policy stage by stage, with a branch for each augmentation."""
    places, stages = _sub_policy_to_augmentation_matrix_map(policy)
    probabilities, magnitudes = np.zeros(places.shape, np.float32), np.zeros(places.shape, np.int32)
    for k, steps in enumerate(policy.sub_policies):
        for stage, (_, probability, magnitude) in enumerate(steps):
            probabilities[k, stage], magnitudes[k, stage] = probability, magnitude or 0
    # All numbers are drawn before the first condition: operators in branches would draw for some samples only.
    index = random_index(len(policy.sub_policies), seed)
    coins = random_part(derive_seed(seed, 1), [longest])
    signs = random_index(2, derive_seed(seed, 2), [longest])
    of_sub_policy = [types.Constant(table)[index] for table in (places, probabilities, magnitudes)]
    for stage in range(longest):
        place, probability, magnitude = (table[stage] for table in of_sub_policy)
        sign = signed_bin(magnitude, signs[stage])
        if coins[stage] < probability:
            data = select(stages[stage], place, data, magnitude_bin=sign, num_magnitude_bins=policy.num_magnitude_bins, **kwargs)
    return data


def _sub_policy_to_augmentation_matrix_map(policy: Policy) -> tuple[np.ndarray, list[list[Augmentation]]]:
    """Return int32 (sub-policies, stages), indices into the augmentations of each stage, and these; short sub-policies end with ``identity``."""
    # Each stage has its own list, so its tree of conditions has only the augmentations that occur there.
    longest = max(map(len, policy.sub_policies))
    matrix = np.zeros((len(policy.sub_policies), longest), np.int32)
    stages: list[list[Augmentation]] = []
    for stage in range(longest):
        used = [steps[stage][0] if stage < len(steps) else a.identity for steps in policy.sub_policies]
        distinct = list({id(augmentation): augmentation for augmentation in used}.values())
        places = {id(augmentation): k for k, augmentation in enumerate(distinct)}
        matrix[:, stage] = [places[id(augmentation)] for augmentation in used]
        stages.append(distinct)
    return matrix, stages


# --- The published policies ------------------------------------------------------------------------------------------------------------------------


def _make_policy(name: str, policy: PolicyName, *translations: Any) -> Policy:
    # DALI uses the ranges of the ImageNet policy for all four, with 11 magnitudes.
    by_name = {augmentation.name: augmentation for augmentation in make_suite(DALI_AUTO_AUGMENT, *translations)}
    sub_policies = [
        [(by_name[step], probability, None if by_name[step].mag_range is None else magnitude) for step, probability, magnitude in pair]
        for pair in POLICIES[policy][0]
    ]
    return Policy(name, num_magnitude_bins=11, sub_policies=sub_policies)


def get_image_net_policy(use_shape: bool = False, max_translate_abs: Any = None, max_translate_rel: Any = None) -> Policy:
    """Return the policy of the authors' code for ImageNet; with ``use_shape`` translations are relative to ``shape``.

    >>> len(get_image_net_policy().sub_policies)
    25
    """
    return _make_policy("ImageNetPolicy", "image_net", use_shape, max_translate_abs, max_translate_rel)


def get_reduced_image_net_policy() -> Policy:
    """Return the policy found on reduced ImageNet, which has no translations."""
    return _make_policy("ReducedImageNetPolicy", "reduced_image_net")


def get_svhn_policy(use_shape: bool = False, max_translate_abs: Any = None, max_translate_rel: Any = None) -> Policy:
    """Return the policy found on SVHN; with ``use_shape`` translations are relative to ``shape``."""
    return _make_policy("SvhnPolicy", "svhn", use_shape, max_translate_abs, max_translate_rel)


def get_reduced_cifar10_policy(use_shape: bool = False, max_translate_abs: Any = None, max_translate_rel: Any = None) -> Policy:
    """Return the policy found on reduced CIFAR-10; with ``use_shape`` translations are relative to ``shape``."""
    return _make_policy("ReducedCifar10Policy", "cifar10", use_shape, max_translate_abs, max_translate_rel)


_POLICIES: dict[str, Callable[..., Policy]] = {
    "image_net": get_image_net_policy,
    "reduced_image_net": get_reduced_image_net_policy,
    "svhn": get_svhn_policy,
    "reduced_cifar10": get_reduced_cifar10_policy,
}
