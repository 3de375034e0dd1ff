# SPDX-License-Identifier: Apache-2.0
"""RandAugment's variants of timm, AugMix, and mixing as timm and torchvision do it."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd import augment, types
from torch_ndd.augment._augmentations import AUG_MIX
from torch_ndd.augment._augmix import _draw_dirichlet
from torch_ndd.augment._timm_strings import TIMM, TIMM_INCREASING

PIXELS = torch.arange(48, dtype=torch.uint8).view(4, 4, 3) * 5


def batch_of(count: int) -> ndd.Batch:
    return ndd.as_batch(PIXELS.expand(count, 4, 4, 3), layout="HWC")


def run(count: int = 600, **arguments: Any) -> list[list[tuple[str, float]]]:
    return augment.rand_augment(batch_of(count), return_params=True, rng=ndd.random.RNG(5), **arguments)[1]


def test_augmentations_act_with_their_probability() -> None:
    counts = Counter(len(row) for row in run(2000, n=2, probability=0.3))
    assert sum(counts.values()) == 2000
    for k, share in enumerate((0.49, 0.42, 0.09)):
        assert abs(counts[k] / 2000 - share) < 0.05
    assert not any(run(50, probability=0.0))


def test_magnitudes_have_their_deviation() -> None:
    parameters = np.array([abs(row[0][1]) for row in run(2000, n=1, m=5, num_magnitude_bins=11, magnitude_std=0.5, augmentations=["rotate"])]) / 3
    assert abs(parameters.mean() - 5) < 0.05
    assert abs(parameters.std() - 0.5) < 0.05
    clipped = np.array([abs(row[0][1]) for row in run(500, n=1, m=10, num_magnitude_bins=11, magnitude_std=2.0, augmentations=["rotate"])]) / 3
    assert clipped.max() <= 10 + 1e-6
    assert 0.4 < (clipped > 9.999).mean() < 0.6
    uniform = np.array([abs(row[0][1]) for row in run(2000, n=1, m=8, num_magnitude_bins=11, magnitude_std=math.inf, augmentations=["rotate"])]) / 3
    np.testing.assert_allclose(np.quantile(uniform, [0.0, 0.25, 0.5, 0.75, 1.0]), [0, 2, 4, 6, 8], atol=0.4)


def test_weights_choose_without_repetition() -> None:
    names = ["rotate", "invert", "posterize"]
    weights = [6.0, 3.0, 1.0]
    choices = [augment.TRIVIAL_AUGMENT_WIDE[0], *(value for value in TIMM if value.name in names)]
    rows = run(2000, n=2, augmentations=choices, weights=[0.0, *(weights[names.index(choice.name)] for choice in choices[1:])])
    assert all(len({name for name, _ in row}) == 2 for row in rows)
    first = Counter(row[0][0] for row in rows)
    for name, weight in zip(names, weights, strict=True):
        assert abs(first[name] / 2000 - weight / 10) < 0.04
    assert "identity" not in first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"probability": 1.5}, "probability must be from 0 to 1"),
        ({"magnitude_std": -1.0}, "magnitude_std must not be negative"),
        ({"weights": [1.0]}, "for each of the 14 augmentations"),
        ({"weights": [1.0] + 13 * [0.0]}, "2 different augmentations are to be chosen, but only 1"),
    ],
)
def test_rand_augment_rejects_invalid_variants(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        augment.rand_augment(PIXELS, **arguments)


def test_cubic_interpolation_is_applied() -> None:
    y, x = np.mgrid[:40, :50]
    image = torch.from_numpy((127 + 100 * np.sin(x / 5) * np.cos(y / 4)).astype(np.uint8))[..., None].repeat(1, 1, 3)
    results = {
        kind: augment.rand_augment(image, n=1, m=20, augmentations=["rotate"], interp_type=kind, rng=ndd.random.RNG(3)).torch().int()
        for kind in (types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC)
    }
    assert (results[types.INTERP_CUBIC] - results[types.INTERP_LINEAR]).abs()[8:-8, 8:-8].float().mean() < 3
    assert not torch.equal(results[types.INTERP_CUBIC], results[types.INTERP_LINEAR])
    still = augment.rand_augment(image, n=1, m=0, augmentations=["rotate"], interp_type=types.INTERP_CUBIC)
    assert torch.equal(still.torch(), image)


NAMES = {
    "auto_contrast": "AutoContrast",
    "equalize": "Equalize",
    "invert": "Invert",
    "rotate": "Rotate",
    "posterize": "Posterize",
    "solarize": "Solarize",
    "solarize_add": "SolarizeAdd",
    "color": "Color",
    "contrast": "Contrast",
    "brightness": "Brightness",
    "sharpness": "Sharpness",
    "shear_x": "ShearX",
    "shear_y": "ShearY",
    "translate_x": "TranslateXRel",
    "translate_y": "TranslateYRel",
    "desaturate": "Desaturate",
    "gaussian_blur": "GaussianBlur",
}


def test_sets_equal_timm() -> None:
    theirs = pytest.importorskip("timm.data.auto_augment")
    for ours, increasing in ((TIMM, False), (TIMM_INCREASING, True)):
        named = {NAMES[our.name] for our in ours}
        assert named == {name.replace("Increasing", "") for name in theirs.rand_augment_choices("", increasing)}
    for text in ("rand-m9-tweights", "rand-t3aw", "rand-t3a"):
        arguments = augment.timm_arguments(text)
        result = theirs.rand_augment_transform(text, {})
        assert [NAMES[argument.name] for argument in arguments["augmentations"]] == [op.name.replace("Increasing", "") for op in result.ops]
        if result.choice_weights is not None:
            np.testing.assert_allclose(np.array(arguments["weights"]) / sum(arguments["weights"]), result.choice_weights)
    assert {NAMES[argument.name] for argument in augment.timm_arguments("augmix")["augmentations"]} == {
        name.replace("Increasing", "") for name in theirs._AUGMIX_TRANSFORMS
    }


@pytest.mark.parametrize("increasing", [False, True])
@pytest.mark.parametrize("level", [0, 3, 7.5, 9, 10])
def test_parameters_equal_timm(level: float, increasing: bool) -> None:
    theirs = pytest.importorskip("timm.data.auto_augment")
    hints = {"translate_pct": 0.45, "translate_const": 250}
    everything = {
        argument.name: argument for text in (f"rand-inc{int(increasing)}", "rand-t3a") for argument in augment.timm_arguments(text)["augmentations"]
    }
    for name, value in everything.items():
        full = NAMES[name] + ("Increasing" if increasing and f"{NAMES[name]}Increasing" in theirs.LEVEL_TO_ARG else "")
        function = theirs.LEVEL_TO_ARG[full]
        if function is None or (name == "solarize" and not increasing):  # the set "3a" has another one, whose test is the one above
            continue
        (wanted,) = function(level, hints)
        got = value.parameter(level / 10)
        if full.endswith("Increasing") and name in ("color", "contrast", "brightness", "sharpness"):
            got, wanted = abs(got - 1), abs(wanted - 1)
        elif name.startswith("solarize"):
            got *= 255
        elif name == "desaturate":
            got = 1 - got  # the factor of the colors
        assert abs(got) == pytest.approx(abs(wanted), abs=1e-6), name


def test_posterize_and_solarize_levels_equal_timm() -> None:
    image = torch.arange(256, dtype=torch.uint8).view(16, 16, 1)
    steps = {value.name: value for value in TIMM_INCREASING}

    def apply_step(name: str, m: float) -> torch.Tensor:
        return augment.rand_augment(image, n=1, m=m, num_magnitude_bins=11, augmentations=[steps[name]]).torch().flatten().int()

    levels = image.flatten().int()
    assert torch.equal(apply_step("posterize", 10), torch.zeros(256, dtype=torch.int32))
    assert torch.equal(apply_step("posterize", 6), levels & 0xC0)  # 4 - int(2.4) bits
    assert torch.equal(apply_step("solarize", 9), torch.where(levels >= 26, 255 - levels, levels))  # 256 - int(230.4)
    assert torch.equal(apply_step("solarize", 0), levels)


def test_timm_arguments_parses_strings() -> None:
    arguments = augment.timm_arguments("rand-m7-n3-mstd101-p0.8-inc1")
    assert (arguments["m"], arguments["n"], arguments["magnitude_std"], arguments["probability"]) == (7, 3, math.inf, 0.8)
    assert arguments["augmentations"] is TIMM_INCREASING
    mix = augment.timm_arguments("augmix-m5-w4-d2")
    assert (mix["severity"], mix["width"], mix["depth"], mix["magnitude_std"]) == (5, 4, 2, math.inf)
    assert augment.timm_arguments("augmix")["depth"] is None
    assert augment.aug_mix(PIXELS, **mix).shape == (4, 4, 3)
    for text, message in (
        ("original", "must begin with rand or augmix"),
        ("original-x", "is not one of the keys"),
        ("rand-x3", "is not one of the keys"),
        ("rand-mmax5", "is not supported"),
        ("rand-m12", "from 0 to 10, got 12"),
        ("rand-tother", "must be one of tweights"),
    ):
        with pytest.raises(ValueError, match=message):
            augment.timm_arguments(text)


def test_aug_mix_is_a_mixture() -> None:
    black = augment.Augmentation("black", values=lambda images, parameters: ndd.cast(images * 0, dtype=images.dtype))
    image = torch.full((2, 3, 3), 0.5)
    result = augment.aug_mix(ndd.as_batch(image.expand(1000, 2, 3, 3), layout="HWC"), augmentations=[black], rng=ndd.random.RNG(1)).torch()
    shares = result[:, 0, 0, 0].double() / 0.5
    assert torch.equal(result, result[:, :1, :1, :1].expand_as(result))
    np.testing.assert_allclose(np.quantile(shares, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.05)  # Beta(1, 1)
    identity = augment.aug_mix(PIXELS, augmentations=[augment.RAND_AUGMENT[0]], rng=ndd.random.RNG(1))
    assert torch.equal(identity.torch(), PIXELS)
    ragged = ndd.as_batch([PIXELS, PIXELS[:3]], layout="HWC")
    first, again = (augment.aug_mix(ragged, rng=ndd.random.RNG(4)) for _ in range(2))
    assert first.shape == ragged.shape
    assert first.dtype == torch.uint8
    for item, other in zip(first, again, strict=True):
        assert torch.equal(item.torch(), other.torch())
    assert {value.name for value in AUG_MIX} == {value.name for value in augment.RAND_AUGMENT} - {"identity"}


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_dirichlet_weights_have_their_moments(alpha: float) -> None:
    shares = _draw_dirichlet(alpha, 3, 4000, ndd.random.RNG(2))
    np.testing.assert_allclose(shares.sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(shares.mean(0), 1 / 3, atol=0.02)
    np.testing.assert_allclose(shares.var(0), (1 / 3) * (2 / 3) / (3 * alpha + 1), rtol=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 0.0}, "alpha must be positive"),
        ({"width": 0}, "width must be 1 or more"),
        ({"depth": 0}, "depth must be 1 or more"),
        ({"severity": 11}, "severity must be from 1"),
        ({"augmentations": []}, "nothing to choose from"),
    ],
)
def test_aug_mix_rejects_invalid_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        augment.aug_mix(PIXELS, **arguments)


@pytest.mark.parametrize(("partner", "others"), [("previous", [3, 0, 1, 2]), ("reversed", [3, 2, 1, 0])])
def test_per_batch_draws_once(partner: str, others: list[int]) -> None:
    images = ndd.as_batch(torch.eye(4).reshape(4, 1, 2, 2).expand(4, 3, 2, 2).contiguous(), layout="CHW")
    mixed, labels, order, lam = augment.mixup(images, [0, 1, 2, 3], num_classes=4, partner=partner, per_batch=True, return_params=True)
    assert order.tolist() == others
    assert len(set(lam.tolist())) == 1
    expected = lam[0] * torch.eye(4) + (1 - lam[0]) * torch.eye(4)[others]
    torch.testing.assert_close(labels.torch(), expected)
    torch.testing.assert_close(mixed.torch()[:, 0].reshape(4, 4), expected)
    large = ndd.as_batch(torch.arange(4.0).reshape(4, 1, 1, 1).expand(4, 16, 20, 1).contiguous(), layout="HWC")
    cut, soft, order, kept, boxes = augment.cutmix(large, [0, 1, 2, 3], num_classes=4, partner=partner, per_batch=True, return_params=True)
    assert order.tolist() == others
    assert len(set(kept.tolist())) == 1
    assert (boxes == boxes[:1]).all()
    np.testing.assert_allclose(soft.torch()[range(4), others].numpy(), (cut.torch() != large.torch()).float().mean((1, 2, 3)).numpy(), atol=1e-6)


def test_label_smoothing_spreads_labels() -> None:
    images = ndd.as_batch(torch.rand(3, 4, 4, 3), layout="HWC")
    for function in (augment.mixup, augment.cutmix, augment.mixup_or_cutmix):
        _, labels = function(images, [0, 1, 1], num_classes=4, label_smoothing=0.2, rng=ndd.random.RNG(1))
        torch.testing.assert_close(labels.torch().sum(1), torch.ones(3))
        assert labels.torch().min() >= 0.05 - 1e-6
        with pytest.raises(ValueError, match="label_smoothing must be from 0 to 1"):
            function(images, [0, 1, 1], num_classes=4, label_smoothing=1.5)
    with pytest.raises(ValueError, match="partner must be one of random, previous, reversed"):
        augment.mixup(images, partner="next")


def test_mixup_or_cutmix_draws_by_probability() -> None:
    images = ndd.as_batch(torch.arange(2.0).reshape(2, 1, 1, 1).expand(2, 8, 8, 1).contiguous(), layout="HWC")
    rng, counts = ndd.random.RNG(1), Counter()
    for _ in range(200):
        result = augment.mixup_or_cutmix(images, probability=0.5, switch_probability=0.4, cutmix_alpha=5.0, mixup_alpha=5.0, rng=rng).torch()
        counts["none" if torch.equal(result, images.torch()) else "cutmix" if set(result.unique().tolist()) <= {0.0, 1.0} else "mixup"] += 1
    assert abs(counts["none"] - 100) < 30
    assert abs(counts["cutmix"] - 40) < 25
    assert abs(counts["mixup"] - 60) < 25
    only = augment.mixup_or_cutmix(images, cutmix_alpha=0.0, mixup_alpha=5.0, rng=rng).torch()
    assert not set(only.unique().tolist()) <= {0.0, 1.0}
    with pytest.raises(ValueError, match="one of mixup_alpha and cutmix_alpha must be positive"):
        augment.mixup_or_cutmix(images, cutmix_alpha=0.0, mixup_alpha=0.0)
    with pytest.raises(ValueError, match="switch_probability must be from 0 to 1"):
        augment.mixup_or_cutmix(images, switch_probability=2.0)
