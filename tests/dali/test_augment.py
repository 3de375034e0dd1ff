# SPDX-License-Identifier: Apache-2.0
"""The policy tables of nvidia.dali.auto_aug, which DALI's dynamic mode lacks."""

import numpy as np
import pytest

auto_augment = pytest.importorskip("nvidia.dali.auto_aug.auto_augment")

from torch_ndd.augment._augmentations import in_space  # noqa: E402
from torch_ndd.augment._spaces import POLICIES  # noqa: E402


def test_image_net_policy_equals_dali() -> None:
    theirs = auto_augment.get_image_net_policy(use_shape=True)
    pairs, space, bins = POLICIES["image_net"]
    assert bins == theirs.num_magnitude_bins
    assert [[(name, p, m) for name, p, m in pair] for pair in pairs] == [
        [(item.name, p, m or 0) for item, p, m in pair] for pair in theirs.sub_policies
    ]
    ours = {item.name: item for item in in_space(space)}
    compared = set()
    for value in {item.name: item for pair in theirs.sub_policies for item, _, _ in pair}.values():
        if value.mag_range is not None:
            scale = 255 if value.name in ("solarize", "solarize_add") else 1
            if value.name != "translate_y":  # relative to the image's height in DALI, to 224 here
                np.testing.assert_allclose(np.array(ours[value.name].range) * scale, value.mag_range)
                compared.add(value.name)
            assert ours[value.name].signed == value.randomly_negate
    assert compared == {"color", "posterize", "rotate", "shear_x", "shear_y", "solarize", "solarize_add"}


@pytest.mark.parametrize(("ours", "theirs"), [("reduced_image_net", "reduced_image_net"), ("cifar10", "reduced_cifar10"), ("svhn", "svhn")])
def test_other_policies_equal_dali(ours: str, theirs: str) -> None:
    policy = getattr(auto_augment, f"get_{theirs}_policy")
    policy = policy(use_shape=True) if theirs != "reduced_image_net" else policy()
    assert [list(pair) for pair in POLICIES[ours][0]] == [[(value.name, p, m or 0) for value, p, m in pair] for pair in policy.sub_policies]
