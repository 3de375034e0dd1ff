# SPDX-License-Identifier: Apache-2.0
"""Rows of the table "What differs by default" in docs/migrate/torchvision.md: the operator with the argument that it names equals torchvision."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torchvision.transforms import v2 as reference

import torch_ndd as ndd
from torch_ndd import augment
from torch_ndd.types import INTERP_NN


def pictures(count: int) -> torch.Tensor:
    """Return images CHW without the values 0 and 128."""
    return torch.randint(1, 128, (count, 3, 33, 33), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("policy", [augment.rand_augment, augment.trivial_augment])
def test_policies_fill_outside_the_image(policy: Callable[..., Any]) -> None:
    images = pictures(16)
    batch = ndd.as_batch(images.permute(0, 2, 3, 1).contiguous(), layout="HWC")
    arguments: dict[str, Any] = {"augmentations": ["rotate"], "interp_type": INTERP_NN, "return_params": True}
    if policy is augment.rand_augment:
        arguments |= {"n": 1, "m": 30}
    for fill, filled in ((None, 128), (0, 0)):
        result, drawn = policy(batch, **arguments, rng=ndd.random.RNG(1), fill_value=fill)
        angles = [row[0][1] for row in drawn]
        assert max(map(abs, angles)) > 20
        assert (result.torch() == filled).any()
        for value, image, angle in zip(result.torch().permute(0, 3, 1, 2), images, angles, strict=True):
            expected = reference.functional.rotate(image, -angle, fill=[filled])
            rotated = reference.functional.rotate(image, angle, fill=[filled])
            # Rotations differ where a pixel lies halfway between two others.
            assert min(float((value != other).double().mean()) for other in (expected, rotated)) < 0.03


def mixed_with_the_previous(policy: Callable[..., Any], images: torch.Tensor, labels: torch.Tensor) -> Any:
    options = {"num_classes": 5, "per_batch": True, "partner": "previous", "return_params": True, "rng": ndd.random.RNG(3)}
    return policy(ndd.as_batch(images, layout="CHW"), labels.tolist(), **options)


def test_mixup_partner_is_the_previous_sample() -> None:
    images, labels = pictures(5).float() / 255, torch.arange(5)
    mixed, soft, _, lam = mixed_with_the_previous(augment.mixup, images, labels)
    params = {"lam": float(lam[0]), "labels": labels, "batch_size": 5}
    theirs = reference.MixUp(num_classes=5)
    torch.testing.assert_close(mixed.torch(), theirs.transform(images, params), atol=1e-6, rtol=0)
    torch.testing.assert_close(soft.torch(), theirs.transform(labels, params), atol=1e-6, rtol=0)


def test_cutmix_partner_is_the_previous_sample() -> None:
    images, labels = pictures(5).float() / 255, torch.arange(5)
    cut, soft, _, kept, boxes = mixed_with_the_previous(augment.cutmix, images, labels)
    changed = (cut.torch() != images).any(0).any(0)
    rows, columns = changed.any(1).nonzero().flatten(), changed.any(0).nonzero().flatten()
    box = (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)
    params = {"box": box, "lam_adjusted": float(kept[0]), "labels": labels, "batch_size": 5}
    theirs = reference.CutMix(num_classes=5)
    assert torch.equal(cut.torch(), theirs.transform(images, params))
    torch.testing.assert_close(soft.torch(), theirs.transform(labels, params), atol=1e-6, rtol=0)
    assert float(kept[0]) == pytest.approx(1 - (box[2] - box[0]) * (box[3] - box[1]) / 33**2, abs=1e-6)
    assert len(boxes) == 5
