# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: C408 (tables of arguments)
"""``from_timm``, timm's objects in ``from_torchvision``, and ``Mixup``, against timm."""

import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from photos import write_photos
from PIL import Image

timm_data = pytest.importorskip("timm.data")

from timm.data import auto_augment as theirs  # noqa: E402
from timm.data.transforms_factory import create_transform  # noqa: E402
from torchvision.datasets import ImageFolder as TheirFolder  # noqa: E402

import torch_ndd as ndd  # noqa: E402
from torch_ndd.augment._augmentations import find_timm_augmentation  # noqa: E402
from torch_ndd.augment._steps import Candidate  # noqa: E402
from torch_ndd.torchvision import Mixup, from_timm, from_torchvision  # noqa: E402
from torch_ndd.torchvision.timm import _policies  # noqa: E402

STD = torch.tensor([0.229, 0.224, 0.225])[:, None, None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    write_photos(root, 10)
    return root


def of_both(folder: Path, **options: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the images of timm's transform, and those of ours from the arguments and from timm's object."""
    transform = create_transform(**options)
    dataset = TheirFolder(str(folder), transform)
    expected = torch.stack([dataset[k % 10][0] for k in range(10 if not options.get("is_training") else 80)])
    results = []
    for fn in (from_timm(**options), from_torchvision(transform)):
        loader = ndd.DataLoader(ndd.ImageFolder(folder), fn, batch_size=5, seed=1)
        results.append(torch.cat([images for _ in range(len(expected) // 10) for images, _ in loader]))
    return expected, results


@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(input_size=(3, 96, 96), crop_pct=1.0),
        dict(input_size=(3, 96, 80)),
        dict(input_size=96, crop_mode="squash"),
        dict(input_size=96, crop_mode="border"),
        dict(input_size=96, crop_border_pixels=5, mean=(0.5, 0.5, 0.5), std=(0.5, 0.4, 0.3)),
        dict(input_size=96, use_prefetcher=True),
        dict(input_size=96, normalize=False),
        dict(input_size=96, is_training=True, no_aug=True),
        dict(input_size=96, is_training=True, hflip=0.0, scale=(1.0, 1.0), ratio=(1e-9, 1e9), color_jitter=None),
    ],
)
def test_evaluation_equals_timm(options: dict[str, Any], folder: Path) -> None:
    if options.get("scale"):  # whole images: no window of the whole area fits another ratio
        options = {**options, "ratio": (3.0, 3.1)}
    expected, result = of_both(folder, **options)
    for images in result:
        assert (images.shape, images.dtype) == (expected.shape, expected.dtype)
        scale = 1.0 if images.dtype == torch.uint8 else 255 * torch.tensor(options.get("std", STD.flatten().tolist()))[:, None, None]
        difference = (images.double() - expected.double()).abs() * scale
        # The border of an image is filtered with another window where resize extends it.
        assert difference.mean() < 0.3
        assert (difference > 1.01).double().mean() < 0.002


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        dict(auto_augment="rand-m9-mstd0.5-inc1"),
        dict(auto_augment="rand-m9-n3-mstd0.5", interpolation="random", re_prob=0.5, re_mode="pixel", re_count=2),
        dict(auto_augment="rand-tweights-mmax20-m15-p0.7-mstd101", re_prob=0.9, re_mode="rand"),
        dict(auto_augment="rand-t3aw-n1-m9", re_prob=0.9),
        dict(auto_augment="augmix-m5-w4-d2"),
        dict(auto_augment="augmix-b1-mstd1"),
        dict(auto_augment="original-mstd0.5"),
        dict(auto_augment="originalr"),
        dict(auto_augment="v0r", vflip=0.5, hflip=0.0),
        dict(auto_augment="3a", color_jitter=0.3),
        dict(color_jitter=(0.1, 0.2, 0.3, 0.1), color_jitter_prob=0.5, grayscale_prob=0.3, gaussian_blur_prob=0.5),
        dict(scale=(0.5, 0.6), ratio=(0.9, 1.1), color_jitter=None),
    ],
)
def test_training_has_the_statistics_of_timm(options: dict[str, Any], folder: Path) -> None:
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    expected, result = of_both(folder, input_size=48, is_training=True, **options)
    for images in result:
        assert (images.shape, images.dtype) == (expected.shape, expected.dtype)
        assert abs(images.mean() - expected.mean()) < 0.3
        assert abs(images.std() - expected.std()) < 0.3
        assert not torch.equal(images[:10], images[10:20])
        # As different from image to image as timm's.
        assert 0.6 < images.std(0).mean() / expected.std(0).mean() < 1.6


def photo() -> Image.Image:
    from sklearn.datasets import load_sample_image

    return Image.fromarray(load_sample_image("china.jpg")).resize((60, 44)).convert("RGB")


# Largest mean difference from Pillow in levels; moved pixels away from the border.
MEANS = {
    "Rotate": 1.5,
    "ShearX": 1.5,
    "ShearY": 1.5,
    "TranslateX": 2.5,
    "TranslateY": 2.5,
    "TranslateXRel": 2.5,
    "TranslateYRel": 2.5,
    "GaussianBlur": 2.0,
}
LEVELS = (0.0, 1.0, 3.7, 5.0, 9.0, 10.0)


@pytest.mark.parametrize("name", [name for name in theirs.NAME_TO_OP if name != "GaussianBlurRand"])
@pytest.mark.parametrize("level", LEVELS)
def test_operator_equals_pillow(name: str, level: float) -> None:
    """Each operator at each level, to both sides, with bilinear interpolation."""
    image = photo()
    if name.startswith("Posterize") and not find_timm_augmentation(name).parameter(level / 10):
        pytest.skip("Pillow refuses 0 bits; ours are black, like those of older Pillows")
    hparams = dict(translate_const=21, img_mean=(124, 116, 104), interpolation=Image.Resampling.BILINEAR)
    for side in (False, True):
        value = theirs.AugmentOp(name, prob=1.0, magnitude=level, hparams=hparams)
        state = [0.9 if side else 0.1]
        original, theirs.random.random = theirs.random.random, lambda state=state: state[0]
        try:
            expected = np.asarray(value(image)).astype(np.float64)
        finally:
            theirs.random.random = original
        operation = Candidate(find_timm_augmentation(name, translate_const=21), level, 10)
        policy = _policies.AutoAugment([[operation]], fill=(124, 116, 104))
        batch = ndd.batch(torch.from_numpy(np.array(image))[None], layout="HWC")
        result = policy._apply(batch, [[operation.step(0.9 if not side else 0.1)]]).torch()[0].numpy().astype(np.float64)
        difference = np.abs(result - expected)
        if name in MEANS:
            assert difference.mean() < MEANS[name], difference.mean()
            assert np.median(difference) <= 1
        else:
            # Pillow's grey has 8 bits; equalize, invert, posterize, solarize are exact.
            assert difference.max() <= (0 if name in ("Invert", "Equalize", "Posterize", "Solarize", "SolarizeAdd") else 2), difference.max()


@pytest.mark.parametrize("name", sorted(theirs.LEVEL_TO_ARG))
def test_levels_equal_timm(name: str) -> None:
    """The parameters that follow from a level are timm's."""
    hparams = dict(translate_const=100, translate_pct=0.3)
    for level in (0.0, 0.7, 2.0, 4.99, 9.0, 10.0):
        original, theirs.random.random = theirs.random.random, lambda: 0.1
        try:
            function = theirs.LEVEL_TO_ARG[name]
            expected = function(level, hparams)[0] if function is not None else 0.0
        finally:
            theirs.random.random = original
        if name == "Desaturate":
            expected = min(1.0, max(0.0, 1.0 - expected))
        found = find_timm_augmentation(name, translate_const=100, translate_pct=0.3).parameter(level / 10)
        scale = 255 if name.startswith("Solarize") else 1
        assert found * scale == pytest.approx(expected)


@pytest.mark.parametrize(
    "config",
    [
        "rand-m9-mstd0.5-inc1",
        "rand",
        "rand-m7-n3-p0.3-mmax17",
        "rand-mstd101-t3a",
        "rand-tweights-m5",
        "rand-t3aw",
        "augmix",
        "augmix-m5-w4-d2-a0.5-b1-mstd0.3",
        "original-mstd0.5",
        "originalr",
        "v0",
        "v0r",
        "3a",
    ],
)
def test_policy_strings_equal_timm(config: str) -> None:
    ours = from_timm(32, is_training=True, auto_augment=config, color_jitter=None)
    timms = from_torchvision(create_transform(32, is_training=True, auto_augment=config, color_jitter=None))
    kinds = (_policies.RandAugment, _policies.AutoAugment, _policies.AugMixAugment)
    item, other = (next(step for step in value.transforms if isinstance(step, kinds)) for value in (ours, timms))
    assert type(item) is type(other)
    for key, value in vars(item).items():
        found = getattr(other, key)
        if key == "choice_weights" and value is not None:
            assert found == pytest.approx(value)
        elif key == "policy":
            assert found_in(found) == found_in(value)
        else:
            assert found == value, key


def found_in(policy: Any) -> Any:
    """Return the sequences without steps that never act, and without magnitudes that have no meaning."""
    return [
        [replace(value, magnitude=value.magnitude if value.augmentation.range != (0.0, 0.0) else 0.0) for value in row if value.probability > 0]
        for row in policy
    ]


@pytest.mark.parametrize("config", ["rond-m9", "rand-m9-x3", "rand-m", "augmix-n3", "v0-inc1", "unknown"])
def test_from_timm_rejects_invalid_policy_strings(config: str) -> None:
    with pytest.raises(ValueError, match=r"from_timm: .*auto_augment"):
        from_timm(is_training=True, auto_augment=config)


def test_rand_augment_draws_by_weight() -> None:
    ops = [Candidate(find_timm_augmentation(name), 10.0, 10) for name in ("Invert", "Equalize", "AutoContrast")]
    seen: Counter[str] = Counter()
    policy = _policies.RandAugment(ops, 1, [0.6, 0.3, 0.1])
    policy._apply = lambda images, steps: seen.update(step[0].name for row in steps for step in row) or images
    images = ndd.batch(torch.zeros(3000, 2, 2, 3, dtype=torch.uint8), layout="HWC")
    policy(images)
    assert [abs(seen[name] / 3000 - p) < 0.05 for name, p in (("invert", 0.6), ("equalize", 0.3), ("auto_contrast", 0.1))] == [True] * 3
    without = _policies.RandAugment(ops, 3, [0.6, 0.3, 0.1])
    rows: list[Any] = []
    without._apply = lambda images, steps: rows.extend(steps) or images
    without(images.select(slice(0, 50)))
    assert all(len({step[0].name for step in row}) == 3 for row in rows)


@pytest.mark.parametrize("mode", ["const", "rand", "pixel"])
def test_random_erasing_has_the_boxes_of_timm(mode: str) -> None:
    """Boxes have timm's sizes, and values of their kind."""
    from torch_ndd.torchvision.timm._transforms import RandomErasing

    random.seed(1), torch.manual_seed(1)
    ndd.random.set_seed(1)
    images = ndd.batch(torch.full((400, 3, 24, 30), 9.0), layout="CHW")
    result = RandomErasing(0.5, mode=mode, max_count=2)(images).torch()
    reference = torch.full((400, 3, 24, 30), 9.0)
    timm_data.random_erasing.RandomErasing(0.5, mode=mode, max_count=2, device="cpu")(reference)
    erased = [(value != 9.0).any(1).double().mean((1, 2)) for value in (result, reference)]
    assert abs((erased[0] > 0).double().mean() - (erased[1] > 0).double().mean()) < 0.12
    assert abs(erased[0].mean() - erased[1].mean()) < 0.03
    values = result[result != 9.0]
    if mode == "const":
        assert (values == 0).all()
    else:
        assert abs(values.mean()) < 0.2
        assert abs(values.std() - 1) < 0.2
    inside = (result != 9.0).any(1)
    colors = [len(result[k][:, inside[k]].unique(dim=1)[0]) for k in range(400) if inside[k].sum() > 20]
    assert min(colors) > 20 if mode == "pixel" else max(colors) <= 2
    first = RandomErasing(1.0, num_splits=2)(images).torch()
    assert (first[:200] == 9.0).all()


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("mode", ["const", "pixel"])
def test_random_erasing_modifies_owned_images_in_place(mode: str, layout: str) -> None:
    """What overwrites its images draws and makes the same; the images of others do not change."""
    from torch_ndd.torchvision.timm._transforms import RandomErasing

    images = ndd.cast(ndd.batch(torch.full((60, *((3, 24, 30) if layout == "CHW" else (24, 30, 3))), 9), layout=layout), dtype=torch.float32)
    results = []
    for overwrites in (False, True):
        ndd.random.set_seed(5)
        results.append(RandomErasing(0.6, mode=mode, max_count=2, in_place=overwrites)(images).torch().clone())
        assert (results[0] != 9.0).any()
        assert (images.torch() == 9.0).all() or overwrites
    assert torch.equal(*results)
    value = torch.full((4, 3, 24, 30), 9.0)
    RandomErasing(1.0, mode=mode, in_place=True)(ndd.as_batch(value, layout="CHW")).torch()
    assert (value == 9.0).all()


MIXUPS: list[dict[str, Any]] = [
    dict(mixup_alpha=0.8),
    dict(mixup_alpha=0.0, cutmix_alpha=1.0),
    dict(mixup_alpha=0.4, cutmix_alpha=1.0, switch_prob=0.3),
    dict(mixup_alpha=0.4, cutmix_alpha=1.0, mode="elem", prob=0.7),
    dict(mixup_alpha=0.4, cutmix_alpha=1.0, mode="pair"),
    dict(cutmix_minmax=(0.2, 0.8), mode="elem", mixup_alpha=0.0),
    dict(mixup_alpha=1.0, label_smoothing=0.0),
]


@pytest.mark.parametrize("options", MIXUPS)
def test_mixup_has_the_weights_of_timm(options: dict[str, Any]) -> None:
    """Pixels and labels have the same weights, and these have timm's mean and spread."""
    size, classes = 8, 8
    images = torch.eye(classes)[:, :, None, None].expand(size, classes, 20, 20).contiguous()  # channel k is image k
    labels = torch.arange(size)
    shares: dict[str, list[float]] = {"ours": [], "theirs": []}
    np.random.seed(1)  # timm's generator
    ndd.random.set_seed(1)
    # The batches share a weight: the means of 60 differ by more than 0.12 by chance in one of 25 runs, of 240 in one of 30,000.
    for kind in shares:
        for _ in range(240):
            if kind == "ours":
                mixed, targets = (value.torch() for value in Mixup(num_classes=classes, **options)(ndd.batch(images, layout="CHW"), labels))
            else:
                mixed, targets = timm_data.Mixup(num_classes=classes, **options)(images.clone(), labels)
            smoothing = options.get("label_smoothing", 0.1)
            weights = mixed.mean((2, 3))
            torch.testing.assert_close(weights * (1 - smoothing) + smoothing / classes, targets.float(), atol=2e-3, rtol=0)
            own, partner = weights[labels, labels], weights[labels, size - 1 - labels]
            torch.testing.assert_close(own + partner, torch.ones(size), atol=2e-3, rtol=0)
            shares[kind] += own.tolist()
    ours, reference = (np.array(share) for share in shares.values())
    assert abs(ours.mean() - reference.mean()) < 0.12
    assert abs(ours.std() - reference.std()) < 0.12


def test_mixup_runs_in_the_loader(folder: Path) -> None:
    for mixup in (dict(num_classes=2), Mixup(num_classes=2), timm_data.Mixup(num_classes=2)):
        fn = from_timm(32, is_training=True, mixup=mixup)
        for images, targets in ndd.DataLoader(ndd.ImageFolder(folder), fn, batch_size=5):  # an odd number
            assert images.shape == (5, 3, 32, 32)
            assert targets.shape == (5, 2)
            torch.testing.assert_close(targets.sum(1), torch.ones(5))


def test_mixup_rejects_invalid_arguments() -> None:
    images = ndd.batch(torch.zeros(2, 3, 4, 4), layout="CHW")
    with pytest.raises(ValueError, match="mode must be"):
        Mixup(mode="half")
    with pytest.raises(ValueError, match="must be positive"):
        Mixup(0.0)
    with pytest.raises(ValueError, match="cutmix_minmax must be two"):
        Mixup(cutmix_minmax=[0.1])
    for classes in (1, 0, -3, 2.5, "10", True):
        with pytest.raises(ValueError, match="Mixup: num_classes must be an integer from 2 on"):
            from_timm(32, is_training=True, mixup=dict(num_classes=classes))
    with pytest.raises(ValueError, match="for 2 images"):
        Mixup()(images, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="of equal shapes"):
        Mixup()(ndd.batch([torch.zeros(3, 4, 4), torch.zeros(3, 4, 5)], layout="CHW"), torch.zeros(2))
    with pytest.raises(TypeError, match="must be a Batch"):
        Mixup()(torch.zeros(2, 3, 4, 4), torch.zeros(2))


def test_from_timm_rejects_invalid_arguments() -> None:
    for options, error, words in (
        (dict(nonsense=1), TypeError, "unexpected keyword argument 'nonsense'"),
        (dict(is_train=True), TypeError, "unexpected keyword argument 'is_train'; did you mean 'is_training'?"),
        (dict(input_size=print), TypeError, "input_size must not be builtin_function_or_method; for a transform that exists, use from_torchvision"),
        (dict(input_size=None), TypeError, "input_size must not be NoneType; it is a number of pixels"),
        (dict(separate=True), TypeError, "separate=True is not supported"),
        (dict(interpolation="cubic"), ValueError, "interpolation must be"),
        (dict(is_training=True, train_crop_mode="abc"), ValueError, "train_crop_mode"),
        (dict(crop_mode="abc"), ValueError, "crop_mode"),
        (dict(is_training=True, re_prob=0.1, re_mode="abc"), ValueError, "re_mode"),
        (dict(is_training=True, color_jitter=(1, 2)), ValueError, "color_jitter"),
    ):
        with pytest.raises(error, match=words):
            from_timm(**options)
    with pytest.raises(ValueError, match="must be uint8"):
        _policies.make_policy("v0", 250.0, 0.45)(ndd.batch(torch.zeros(1, 2, 2, 3), layout="HWC"))


def test_from_timm_repeats_with_a_seed(folder: Path) -> None:
    fn = from_timm(
        32,
        is_training=True,
        auto_augment="rand-m9-mstd0.5-inc1",
        re_prob=0.5,
        re_mode="pixel",
        mixup=dict(num_classes=2, mode="elem", cutmix_alpha=1.0),
    )
    runs = [[sample for batch in ndd.DataLoader(ndd.ImageFolder(folder), fn, batch_size=4, seed=3, prefetch=k) for sample in batch] for k in (0, 2)]
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
    assert math.isfinite(float(runs[0][0].sum()))
