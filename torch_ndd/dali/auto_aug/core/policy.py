# SPDX-License-Identifier: Apache-2.0
"""Policies of AutoAugment."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._augmentation import Augmentation

__all__ = ["Policy"]

SubPolicy = list[tuple[Augmentation, float, int | None]]


class Policy:
    """A list of sub-policies, one of which is drawn for each sample: steps of an augmentation, its probability and its magnitude.

    Attributes:
        name: For messages.
        num_magnitude_bins: Number of magnitudes.
        sub_policies: Lists of ``(augmentation, probability, magnitude bin or None)``. If two different augmentations have the same name, all names
            get a numeric prefix.

    Raises:
        Exception: sub-policies of another form, a probability or magnitude out of range, or no magnitude where one is needed.

    >>> from torch_ndd.dali.auto_aug import augmentations as a
    >>> policy = Policy("mine", 11, [[(a.equalize, 0.5, None), (a.rotate, 1, 8)], [(a.invert, 0.2, None)]])
    >>> list(policy.augmentations)
    ['equalize', 'invert', 'rotate']
    """

    def __init__(self, name: str, num_magnitude_bins: int, sub_policies: Sequence[Sequence[tuple[Augmentation, float, int | None]]]) -> None:
        self.name = name
        self.num_magnitude_bins = num_magnitude_bins
        if not isinstance(num_magnitude_bins, int) or num_magnitude_bins < 1:
            raise Exception(f"The `num_magnitude_bins` must be a positive integer, got {num_magnitude_bins}")
        if not isinstance(sub_policies, list | tuple):
            raise Exception(f"The `sub_policies` must be a list or tuple of sub policies, got {type(sub_policies).__name__}")
        for sub_policy in sub_policies:
            if not isinstance(sub_policy, list | tuple):
                raise Exception(f"Each sub policy must be a list or tuple of steps, got {type(sub_policy).__name__}")
            for step in sub_policy:
                self._check(step)
        renamed = self._make_names_unique([augmentation for sub_policy in sub_policies for augmentation, _, _ in sub_policy])
        self.sub_policies: list[SubPolicy] = [[(renamed[id(step[0])], *step[1:]) for step in sub_policy] for sub_policy in sub_policies]

    def _check(self, step: Any) -> None:
        if not isinstance(step, list | tuple) or len(step) != 3:
            raise Exception(f"A step of a sub policy must be specified as a triple: (augmentation, probability, magnitude). Got {step}")
        augmentation, probability, magnitude = step
        if not isinstance(augmentation, Augmentation):
            raise Exception(f"The augmentation of a step must be an instance of Augmentation. Got `{augmentation}`")
        if not isinstance(probability, int | float | np.number) or not 0 <= probability <= 1:
            raise Exception(f"Probability of `{augmentation.name}` must be a number from `[0, 1]` range. Got `{probability}`")
        if probability == 0:
            warnings.warn(f"The augmentation `{augmentation.name}` has probability 0 in one of the sub-policies", stacklevel=4)
        if magnitude is None:
            if augmentation.mag_range is not None:
                raise Exception(f"The augmentation `{augmentation.name}` has magnitudes: the magnitude bin is required")
            return
        if augmentation.mag_range is None:
            warnings.warn(f"The augmentation does not accept magnitudes, but `{augmentation.name}` got {magnitude}; pass None", stacklevel=4)
        if not isinstance(magnitude, int) or not 0 <= magnitude < self.num_magnitude_bins:
            raise Exception(
                f"Magnitude of `{augmentation.name}` must be an integer from `[0, {self.num_magnitude_bins - 1}]` range. Got `{magnitude}`"
            )

    @staticmethod
    def _make_names_unique(augmentations: list[Augmentation]) -> dict[int, Augmentation]:
        """Return the augmentations by their identities, renamed if two have the same name."""
        # One augmentation may occur in several sub-policies and stays one.
        by_id = {id(augmentation): augmentation for augmentation in augmentations}
        if len({augmentation.name for augmentation in by_id.values()}) == len(by_id):
            return by_id
        # Zero-padded, so the alphabetical order of the names is that of their occurrence.
        digits = len(str(len(by_id) - 1))
        return {key: augmentation.augmentation(name=f"{k:0{digits}}__{augmentation.name}") for k, (key, augmentation) in enumerate(by_id.items())}

    @property
    def augmentations(self) -> dict[str, Augmentation]:
        """The augmentations by name, in alphabetical order."""
        by_name = {augmentation.name: augmentation for sub_policy in self.sub_policies for augmentation, _, _ in sub_policy}
        return dict(sorted(by_name.items()))

    def __repr__(self) -> str:
        steps = [
            [(augmentation.name, probability, magnitude) for augmentation, probability, magnitude in sub_policy] for sub_policy in self.sub_policies
        ]
        return f"Policy(name={self.name!r}, num_magnitude_bins={self.num_magnitude_bins}, sub_policies={steps}, augmentations={self.augmentations})"
