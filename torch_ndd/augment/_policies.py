# SPDX-License-Identifier: Apache-2.0
"""AutoAugment, RandAugment and TrivialAugment, drawn per sample of a batch."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from .. import types
from .._core.operators.operator import T
from .._core.suggestions import check_choice
from .._core.values.batch import Batch
from ._apply import Step, apply_steps
from ._augmentations import CUSTOM_POLICY, RAND_AUGMENT, TRIVIAL_AUGMENT_WIDE, Augmentation, in_space, resolve_augmentations
from ._inputs import as_boxes, as_images, as_masks, as_results, draw_numbers, exclude_from_compilation, to_sample_values
from ._spaces import POLICIES, PolicyName
from ._steps import draw_steps, draw_sub_policies, make_candidates


@exclude_from_compilation
def trivial_augment(
    images: T,
    /,
    *,
    augmentations: Sequence[str | Augmentation] = TRIVIAL_AUGMENT_WIDE,
    boxes: Any = None,
    fill_value: float | Sequence[float] | None = None,
    interp_type: types.DALIInterpType = types.INTERP_LINEAR,
    masks: Any = None,
    mask_fill_value: float = 0.0,
    num_magnitude_bins: int = 31,
    return_params: bool = False,
    rng: Any = None,
) -> Any:
    """Apply one augmentation of a random magnitude, both drawn per sample: TrivialAugment (Mueller and Hutter, arXiv:2103.10158).

    Use this function in new programs; ``torchvision.v2.TrivialAugmentWide`` and ``dali.auto_aug.trivial_augment`` are compatible spellings.

    The augmentations and their largest magnitudes are those of the paper's wide space: shear 0.99, translation by 32 pixels, rotation by 135 degrees,
    factors 0.01 to 1.99 of brightness, color, contrast and sharpness, 2 bits, a threshold of 0. At the same magnitude they equal torchvision's up to
    one level of 255, ``color`` up to two, with these differences: images are interpolated linearly unless ``interp_type`` is given, the area outside
    is gray and is blended with the image's border, and ``equalize`` is :func:`torch_ndd.equalize`.

    Args:
        images: a Batch of images ``HWC`` or videos ``FHWC`` of any sizes, or one of them; uint8, or floating-point numbers from 0 to 1. All frames of
            a video get the same augmentation. Color augmentations do nothing unless there are three channels.
        boxes: (M, 4) per image, floating-point: left, top, right, bottom in pixels. A box becomes the smallest one around its moved corners, clipped
            to the image. Boxes outside the image are kept, with an area of 0.
        masks: (H, W), (H, W, C) or, for objects, (M, H, W) per image, with frames for a video, any type; they are sampled by nearest neighbor.
        augmentations: the choices: :class:`Augmentation` objects, or names from ``TRIVIAL_AUGMENT_WIDE``.
        num_magnitude_bins: number of evenly spaced magnitudes.
        fill_value: value outside the image, one number or one per channel; by default 128, or 0.5 for floating-point images.
        mask_fill_value: value outside the masks.
        interp_type: interpolation of moved images: ``INTERP_LINEAR``, ``INTERP_NN`` or ``INTERP_CUBIC``.
        return_params: also return the steps: a list of names and parameters per sample.
        rng: random generator, by default :func:`torch_ndd.random.get_default_rng`. It advances by seven words per call; the choice for a sample
            depends on it and on the sample's position only.

    Returns:
        The images; with boxes, masks or parameters a tuple of these, in this order.

    Raises:
        ValueError: another layout or type, boxes or masks that do not fit the images, an unknown augmentation or none, less than two magnitudes.
        TypeError: ``images`` that are neither a Batch nor an image.

    >>> images = batch(torch.zeros(2, 4, 6, 3, dtype=torch.uint8), layout="HWC")
    >>> images, boxes, done = ndd.augment.trivial_augment(images, boxes=[[[0, 0, 2, 2]], [[1.0, 1, 3, 3], [2, 0, 6, 4]]], return_params=True)
    >>> images.shape, boxes.shape, len(done)
    ([(4, 6, 3), (4, 6, 3)], [(1, 4), (2, 4)], 2)
    """
    op = "trivial_augment"
    choices = require_nonempty(op, resolve_augmentations(op, augmentations, TRIVIAL_AUGMENT_WIDE))
    _check_bins(op, num_magnitude_bins)
    inputs = _as_inputs(op, images, boxes, masks)

    def make_step(which: float, magnitude: float, side: float) -> Step:
        augmentation = choices[int(which * len(choices))]
        return augmentation, augmentation.parameter(int(magnitude * num_magnitude_bins) / (num_magnitude_bins - 1), side < 0.5)

    # Three numbers per sample: the augmentation, its magnitude, its side.
    steps = [[make_step(*row)] for row in draw_numbers(op, rng, inputs[0].batch_size, 3).tolist()]
    return _apply(op, inputs, steps, fill_value, mask_fill_value, interp_type, return_params)


@exclude_from_compilation
def rand_augment(
    images: T,
    /,
    *,
    augmentations: Sequence[str | Augmentation] = RAND_AUGMENT,
    boxes: Any = None,
    fill_value: float | Sequence[float] | None = None,
    interp_type: types.DALIInterpType = types.INTERP_LINEAR,
    m: Any = 9,
    magnitude_std: Any = 0.0,
    masks: Any = None,
    mask_fill_value: float = 0.0,
    n: int = 2,
    num_magnitude_bins: int = 31,
    probability: Any = 1.0,
    return_params: bool = False,
    rng: Any = None,
    weights: Sequence[float] | None = None,
) -> Any:
    """Apply ``n`` augmentations in sequence, each drawn per sample, all of magnitude ``m``: RandAugment (Cubuk et al., arXiv:1909.13719).

    Use this function in new programs; ``torchvision.v2.RandAugment``, ``dali.auto_aug.rand_augment`` and ``from_timm`` are compatible spellings.

    At the largest magnitude: shear 0.3, translation by 150/331 of the image, rotation by 30 degrees, factors 0.1 to 1.9 of brightness, color,
    contrast and sharpness, 4 bits, a threshold of 0. Directions are random. See :func:`trivial_augment` for details. :func:`timm_arguments` converts
    timm's strings ("rand-m9-mstd0.5-inc1"), whose magnitudes differ, to arguments.

    Args:
        images, boxes, masks, fill_value, mask_fill_value, interp_type, return_params, rng: see :func:`trivial_augment`.
        n: number of augmentations per sample.
        m: their magnitude, from 0 to ``num_magnitude_bins - 1``. This, ``magnitude_std`` and ``probability`` may be a Batch or a sequence with one
            number per sample.
        magnitude_std: standard deviation of the magnitude, which is drawn for each augmentation from a normal distribution about ``m``, limited to
            its range. Infinity draws it uniformly from 0 to ``m``.
        probability: probability of applying each augmentation, independently.
        weights: probabilities of the augmentations, in any unit; with them none occurs twice in a sample.
        num_magnitude_bins: number of evenly spaced magnitudes.
        augmentations: the choices: :class:`Augmentation` objects, or names from ``RAND_AUGMENT``.

    Returns:
        See :func:`trivial_augment`.

    Raises:
        ValueError: see :func:`trivial_augment`; a negative ``n``, a magnitude outside the bins, a probability outside 0 to 1, a
            negative deviation or weight, fewer weights than augmentations or fewer augmentations than ``n``.
        TypeError: see :func:`trivial_augment`.

    >>> image = torch.arange(12, dtype=torch.uint8).view(2, 2, 3)
    >>> ndd.augment.rand_augment(image, n=1, m=15, augmentations=["solarize"], return_params=True)[1]
    [('solarize', 0.5)]
    """
    op = "rand_augment"
    choices = require_nonempty(op, resolve_augmentations(op, augmentations, RAND_AUGMENT))
    _check_bins(op, num_magnitude_bins)
    if n < 0:
        raise ValueError(f"{op}: n must not be negative, got {n}")
    shares = None if weights is None else _as_weights(op, weights, len(choices), n)
    inputs = _as_inputs(op, images, boxes, masks)
    size = inputs[0].batch_size
    per_sample = (("m", m), ("magnitude_std", magnitude_std), ("probability", probability))
    rows = list(zip(*(to_sample_values(op, name, value, size) for name, value in per_sample), strict=True))
    # Samples mostly share their numbers.
    candidates = {}
    for row in dict.fromkeys(rows):
        magnitude, std, chance = row
        _check_magnitude(op, magnitude, std, chance, num_magnitude_bins)
        candidates[row] = make_candidates(choices, magnitude, num_magnitude_bins - 1, chance, std)
    steps = draw_steps(op, [candidates[row] for row in rows], n, shares, rng)
    return _apply(op, inputs, steps, fill_value, mask_fill_value, interp_type, return_params)


def _check_bins(op: str, num_magnitude_bins: int) -> None:
    if num_magnitude_bins < 2:
        raise ValueError(f"{op}: num_magnitude_bins must be 2 or more, got {num_magnitude_bins}")


def _check_magnitude(op: str, m: float, std: float, probability: float, bins: int) -> None:
    if not 0 <= m < bins:
        raise ValueError(f"{op}: m must be from 0 to num_magnitude_bins - 1 = {bins - 1}, got {m:g}")
    if not 0 <= probability <= 1:
        raise ValueError(f"{op}: probability must be from 0 to 1, got {probability:g}")
    if not std >= 0:
        raise ValueError(f"{op}: magnitude_std must not be negative, got {std:g}")


def _as_weights(op: str, weights: Sequence[float], count: int, n: int) -> np.ndarray:
    array = np.asarray(weights, np.float64)
    if array.shape != (count,) or not (array >= 0).all() or not np.isfinite(array).all():
        raise ValueError(f"{op}: weights must be a number of 0 or more for each of the {count} augmentations, got {list(weights)}")
    if (array > 0).sum() < n:
        raise ValueError(f"{op}: {n} different augmentations are to be chosen, but only {(array > 0).sum()} have a weight")
    return array


@exclude_from_compilation
def auto_augment(
    images: T,
    /,
    *,
    boxes: Any = None,
    fill_value: float | Sequence[float] | None = None,
    interp_type: types.DALIInterpType = types.INTERP_LINEAR,
    masks: Any = None,
    mask_fill_value: float = 0.0,
    num_magnitude_bins: int | None = None,
    policy: PolicyName | Sequence[Sequence[tuple[str | Augmentation, float, int | None]]] = "image_net",
    return_params: bool = False,
    rng: Any = None,
) -> Any:
    """Apply a sub-policy drawn per sample, each of whose augmentations has a probability: AutoAugment (Cubuk et al., arXiv:1805.09501).

    Use this function in new programs; ``torchvision.v2.AutoAugment``, ``dali.auto_aug.auto_augment`` and ``from_timm`` are compatible spellings.

    Args:
        images, boxes, masks, fill_value, mask_fill_value, interp_type, return_params, rng: see :func:`trivial_augment`.
        policy: "image_net", published in the authors' code and used by DALI; "reduced_image_net", "cifar10" or "svhn" from the paper's appendix, with
            torchvision's magnitudes ("reduced_image_net" is its ``AutoAugmentPolicy.IMAGENET``); or a list of sequences of (augmentation,
            probability, magnitude), where an augmentation is an :class:`Augmentation`, a name from ``RAND_AUGMENT``, or "invert".
        num_magnitude_bins: number of magnitudes of a custom policy: from 0 to ``num_magnitude_bins - 1``, by default 10.

    Returns:
        See :func:`trivial_augment`.

    Raises:
        ValueError: see :func:`trivial_augment`; an unknown policy, a magnitude outside the bins, a probability outside 0 to 1.
        TypeError: see :func:`trivial_augment`.

    >>> image = torch.zeros(4, 6, 3, dtype=torch.uint8)
    >>> ndd.augment.auto_augment(image, policy=[[("invert", 1.0, None), ("rotate", 0.0, 5)]]).torch()[0, 0]
    tensor([255, 255, 255], dtype=torch.uint8)
    """
    op = "auto_augment"
    sub_policies, bins = _parse_policy(op, policy, num_magnitude_bins)
    inputs = _as_inputs(op, images, boxes, masks)
    candidates = [[make_candidates((augmentation,), m, bins - 1, chance)[0] for augmentation, chance, m in steps] for steps in sub_policies]
    steps = draw_sub_policies(op, candidates, inputs[0].batch_size, rng)
    return _apply(op, inputs, steps, fill_value, mask_fill_value, interp_type, return_params)


def _parse_policy(op: str, policy: Any, num_magnitude_bins: int | None) -> tuple[list[list[tuple[Augmentation, float, int]]], int]:
    """Return the sub-policies of a policy and its number of magnitudes."""
    known, bins = CUSTOM_POLICY, 10 if num_magnitude_bins is None else num_magnitude_bins
    if isinstance(policy, str):
        check_choice(op, "policy", policy, POLICIES, ValueError)
        if num_magnitude_bins is not None:
            raise ValueError(f"{op}: num_magnitude_bins is only for custom policies; {policy!r} has its own number")
        policy, space, bins = POLICIES[cast(PolicyName, policy)]
        known = in_space(space)
    _check_bins(op, bins)
    sub_policies = []
    for sub_policy in require_nonempty(op, policy):
        steps = []
        for step in sub_policy:
            if len(step) != 3:
                raise ValueError(f"{op}: a step of a policy must be (augmentation, probability, magnitude), got {step!r}")
            (augmentation,), probability, magnitude = resolve_augmentations(op, step[:1], known), float(step[1]), step[2] or 0
            if not 0 <= probability <= 1:
                raise ValueError(f"{op}: the probability of {augmentation.name!r} must be from 0 to 1, got {probability}")
            if not 0 <= magnitude < bins:
                raise ValueError(
                    f"{op}: the magnitude of {augmentation.name!r} must be from 0 to num_magnitude_bins - 1 = {bins - 1}, got {magnitude}"
                )
            steps.append((augmentation, probability, magnitude))
        sub_policies.append(steps)
    return sub_policies, bins


def require_nonempty(op: str, choices: Any) -> Any:
    """Return a list. Raise ValueError if it is empty."""
    if not len(choices):
        raise ValueError(f"{op}: there is nothing to choose from: the list is empty")
    return choices


def _as_inputs(op: str, images: Any, boxes: Any, masks: Any) -> tuple[Batch, Batch | None, Batch | None, bool]:
    batch, is_batch = as_images(op, images)
    return batch, as_boxes(op, boxes, batch, is_batch), as_masks(op, masks, batch, is_batch), is_batch


def _apply(
    op: str,
    inputs: tuple[Batch, Batch | None, Batch | None, bool],
    steps: list[list[Step]],
    fill_value: float | Sequence[float] | None,
    mask_fill_value: float,
    interp_type: types.DALIInterpType,
    return_params: bool,
) -> Any:
    images, boxes, masks, is_batch = inputs
    if fill_value is None:
        fill_value = 0.5 if images.dtype.is_floating_point else 128.0
    outputs = apply_steps(op, images, steps, boxes, masks, fill_value, mask_fill_value, interp_type)
    names = [[(augmentation.name, parameter) for augmentation, parameter in row] for row in steps]
    return as_results(is_batch, [*outputs, names if return_params else None])
