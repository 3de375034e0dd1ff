# SPDX-License-Identifier: Apache-2.0
"""What random transforms draw has torchvision's distributions: for the samples of a batch, and for single samples."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _torchvision import boxes_of, image_batch, join, pixels
from scipy import stats
from torchvision import tv_tensors as single
from torchvision.transforms import v2 as reference
from torchvision.transforms.autoaugment import AutoAugmentPolicy

import torch_ndd as ndd
from torch_ndd.augment._spaces import FACTORS
from torch_ndd.torchvision import v2

COUNT, SIZE = 500, (40, 56)


def _numbers(params: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Return every number that was drawn, by its place."""
    rows = []
    for param in params:
        flat: dict[str, float] = {}
        for key, value in param.items():
            parts = torch.as_tensor(np.asarray(value, np.float64)).reshape(-1) if not isinstance(value, torch.Tensor) else value.double().reshape(-1)
            flat |= {f"{key}[{k}]": float(part) for k, part in enumerate(parts)}
        rows.append(flat)
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


def _split(params: dict[str, Any], count: int) -> list[dict[str, Any]]:
    def part(value: Any, k: int) -> Any:
        if isinstance(value, ndd.Batch):
            return value.select(k).torch()
        if isinstance(value, torch.Tensor) and value.dim() and len(value) == count:
            return value[k]
        return [part(element, k) for element in value] if isinstance(value, list | tuple) else value

    return [{key: part(value, k) for key, value in params.items()} for k in range(count)]


def _alike(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> None:
    assert set(ours) == set(theirs)
    for key, values in theirs.items():
        if np.ptp(values) == 0:
            assert np.allclose(ours[key], values[0]), key
        else:
            found = stats.ks_2samp(ours[key], values)
            assert found.pvalue > 1e-6, f"{key}: {found}"
            if key.startswith("coefficients"):  # without limits
                continue
            low, high = values.min(), values.max()
            assert ours[key].min() >= low - 0.1 * (high - low) - 1, key
            assert ours[key].max() <= high + 0.1 * (high - low) + 1, key


TRANSFORMS: list[Callable[[Any], Any]] = [
    lambda m: m.RandomResizedCrop(20),
    lambda m: m.RandomResizedCrop(20, scale=(0.9, 1.0), ratio=(2.0, 3.0)),
    lambda m: m.RandomCrop((30, 20)),
    lambda m: m.RandomCrop(60, padding=2, pad_if_needed=True),
    lambda m: m.RandomZoomOut(p=1.0),
    lambda m: m.ScaleJitter((50, 30)),
    lambda m: m.RandomShortestSize([20, 30, 45], max_size=50),
    lambda m: m.RandomResize(20, 30),
    lambda m: m.RandomRotation(30),
    lambda m: m.RandomAffine(30, (0.1, 0.3), (0.5, 2.0), (1, 2, 3, 9)),
    lambda m: m.RandomAffine((5, 9), shear=10),
    lambda m: m.RandomPerspective(p=1.0),
    lambda m: m.ColorJitter(0.4, (0.2, 0.9), 1.4, 0.3),
    lambda m: m.GaussianBlur(3, (0.5, 2.5)),
    lambda m: m.JPEG((10, 90)),
    lambda m: m.RandomChannelPermutation(),
    lambda m: m.RandomErasing(p=1.0),
    lambda m: m.RandomErasing(p=1.0, scale=(0.3, 0.9), ratio=(1.0, 1.2)),
]


@pytest.mark.parametrize("make", TRANSFORMS)
def test_batch_draws_have_the_distribution_of_torchvision(make: Callable[[Any], Any]) -> None:
    ndd.random.set_seed(1234)
    torch.manual_seed(1234)
    sample = single.Image(pixels(*SIZE))
    batch = image_batch([pixels(*SIZE)] * COUNT)
    ours, theirs = make(v2), make(reference)
    drawn = _split(ours.make_params([batch]), COUNT)
    expected = [theirs.make_params([sample]) for _ in range(COUNT)]
    for row in expected:  # nothing found: torchvision has no value, a batch an empty window
        if "v" in row and row["v"] is None:
            row.update(i=0, j=0, h=0, w=0)
        row.pop("v", None)
    for row in drawn:
        row.pop("v", None)
        if "h" in row and not int(row["h"]):
            row.update(i=0, j=0)
    _alike(_numbers(drawn), _numbers(expected))


@pytest.mark.parametrize("make", TRANSFORMS[:1] + TRANSFORMS[2:3] + TRANSFORMS[9:10] + TRANSFORMS[12:13])
def test_single_sample_draws_have_the_distribution_of_torchvision(make: Callable[[Any], Any]) -> None:
    ndd.random.set_seed(99)
    torch.manual_seed(99)
    sample = single.Image(pixels(*SIZE))
    ours, theirs = make(v2), make(reference)
    drawn = [ours.make_params([sample]) for _ in range(COUNT)]
    expected = [theirs.make_params([sample]) for _ in range(COUNT)]
    assert {key: type(value) for key, value in drawn[0].items()} == {key: type(value) for key, value in expected[0].items()}
    _alike(_numbers(drawn), _numbers(expected))


def test_photometric_distort_has_the_distribution_of_torchvision() -> None:
    ndd.random.set_seed(5)
    params = v2.RandomPhotometricDistort(p=0.3).make_params([image_batch([pixels(8, 8)] * 2000)])
    for key, low, high, nothing in (("brightness_factor", 0.875, 1.125, 1), ("contrast_factor", 0.5, 1.5, 1), ("hue_factor", -0.05, 0.05, 0)):
        acted = params[key] != nothing
        assert abs(acted.double().mean() - 0.3) < 0.05
        assert stats.kstest(params[key][acted].numpy(), stats.uniform(low, high - low).cdf).pvalue > 1e-6
    assert abs(params["contrast_before"].double().mean() - 0.5) < 0.05
    moved = (params["channel_permutation"].torch() != torch.arange(3)).any(1).double().mean()
    assert abs(moved - 0.3 * 5 / 6) < 0.05


def test_elastic_displacements_have_the_distribution_of_torchvision() -> None:
    ndd.random.set_seed(5)
    torch.manual_seed(5)
    values = {"alpha": [40.0, 80.0], "sigma": [3.0, 5.0]}
    ours = v2.ElasticTransform(**values).make_params([image_batch([pixels(*SIZE)] * 20)])["displacement"].torch()
    theirs = torch.cat([reference.ElasticTransform(**values).make_params([single.Image(pixels(*SIZE))])["displacement"] for _ in range(20)])
    assert ours.shape == theirs.shape
    for axis in range(2):
        assert abs(ours[..., axis].std() / theirs[..., axis].std() - 1) < 0.15
        rough = [(value[:, 1:, :, axis] - value[:, :-1, :, axis]).std() for value in (ours, theirs)]
        assert abs(rough[0] / rough[1] - 1) < 0.15


@pytest.mark.parametrize("name", ["MixUp", "CutMix"])
@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.5])
def test_mixing_weights_have_the_distribution_of_torchvision(name: str, alpha: float) -> None:
    ndd.random.set_seed(6)
    torch.manual_seed(6)
    ours, theirs = (getattr(m, name)(alpha=alpha, num_classes=3) for m in (v2, reference))
    images = torch.zeros(2, 3, 30, 50)
    rows = [[value.make_params([images]) for _ in range(600)] for value in (ours, theirs)]
    for key in rows[0][0]:
        columns = [np.array([np.asarray(row[key], np.float64).reshape(-1) for row in drawn]) for drawn in rows]
        for k in range(columns[0].shape[1]):
            assert stats.ks_2samp(columns[0][:, k], columns[1][:, k]).pvalue > 1e-6


def test_iou_crops_have_the_distribution_of_torchvision() -> None:
    ndd.random.set_seed(7)
    torch.manual_seed(7)
    boxes, image = boxes_of(*SIZE, count=3, seed=2), single.Image(pixels(*SIZE))
    count = 300
    batch, many = image_batch([pixels(*SIZE)] * count), join([boxes] * count)
    params = v2.RandomIoUCrop().make_params([batch, many])
    ours = np.stack([params[key].numpy() for key in ("top", "left", "height", "width")], 1)
    expected = [reference.RandomIoUCrop().make_params([image, boxes]) for _ in range(count)]
    whole = {"top": 0, "left": 0, "height": SIZE[0], "width": SIZE[1]}
    theirs = np.array([[(row or whole)[key] for key in whole] for row in expected])
    for k in range(4):
        assert stats.ks_2samp(ours[:, k], theirs[:, k]).pvalue > 1e-6
    result, moved = v2.RandomIoUCrop(sampler_options=[0.5])(batch, many)
    assert result.shape == [(h, w, 3) for h, w in moved.canvas_size]
    kept, _ = v2.functional.sanitize_bounding_boxes(moved)
    assert all(shape[0] >= 1 for shape in kept.shape)


POLICIES: list[Callable[[Any], Any]] = [
    lambda m: m.RandAugment(num_ops=1, magnitude=9),
    lambda m: m.TrivialAugmentWide(),
    lambda m: m.AutoAugment(),
    lambda m: m.AutoAugment(m.AutoAugmentPolicy.SVHN),
    lambda m: m.AutoAugment(m.AutoAugmentPolicy.CIFAR10),
    lambda m: m.AugMix(),
]


@pytest.mark.parametrize("make", POLICIES)
@pytest.mark.filterwarnings("ignore:The image")
def test_policies_have_the_statistics_of_torchvision(make: Callable[[Any], Any]) -> None:
    ndd.random.set_seed(17)
    torch.manual_seed(17)
    sample, count = pixels(16, 20), 400
    result = make(v2)(image_batch([sample] * count)).torch().movedim(-1, -3).double()
    theirs = make(reference)
    expected = torch.stack([theirs(sample) for _ in range(count)]).double()
    for measure in (lambda x: x.mean((1, 2, 3)), lambda x: x.std((1, 2, 3)), lambda x: (x - sample).abs().mean((1, 2, 3)), lambda x: x[:, 0, 3, 4]):
        columns = [measure(value).numpy().round(6) for value in (result, expected)]
        assert stats.ks_2samp(*columns).pvalue > 1e-6
    same = [float((value == sample).all((1, 2, 3)).double().mean()) for value in (result, expected)]
    assert abs(same[0] - same[1]) < 0.15


def test_rand_augment_outputs_are_possible_in_torchvision() -> None:
    ndd.random.set_seed(3)
    sample = pixels(24, 30)
    possible = [sample]
    size = sample.shape[-2:]
    for sign in (1, -1):
        m = sign * 9 / 30
        possible += [reference.functional.adjust_brightness(sample, 1 + 0.9 * m), reference.functional.adjust_contrast(sample, 1 + 0.9 * m)]
        possible += [reference.functional.adjust_saturation(sample, 1 + 0.9 * m), reference.functional.adjust_sharpness(sample, 1 + 0.9 * m)]
        possible += [reference.functional.rotate(sample, 30 * m)]
        for x, y in ((1, 0), (0, 1)):
            shear = [float(np.degrees(np.arctan(0.3 * m))) * value for value in (x, y)]
            possible.append(reference.functional.affine(sample, 0.0, [0, 0], 1.0, shear, center=[0, 0]))
            move = [int(150 / 331 * size[1] * m) * x, int(150 / 331 * size[0] * m) * y]
            possible.append(reference.functional.affine(sample, 0.0, move, 1.0, [0.0, 0.0]))
    possible += [reference.functional.posterize(sample, 7), reference.functional.solarize(sample, 255 * (1 - 9 / 30))]
    possible += [reference.functional.autocontrast(sample), reference.functional.equalize(sample)]
    result = v2.RandAugment(num_ops=1)(image_batch([sample] * 200))
    table = torch.stack(possible).float()
    for item in result.evaluate():
        picture = item.torch().movedim(-1, -3).float()
        assert ((table - picture).abs() > 1).double().mean((1, 2, 3)).min() < 0.01


@pytest.mark.parametrize("policy", list(AutoAugmentPolicy))
def test_autoaugment_steps_act_with_their_probability(policy: AutoAugmentPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    ndd.random.set_seed(17)
    torch.manual_seed(17)
    count = 3000
    image, ours, theirs = pixels(*SIZE), v2.AutoAugment(policy), reference.AutoAugment(policy)
    results: list[tuple[tuple[str, float], ...]] = []
    expected: list[tuple[tuple[str, float], ...]] = []

    def record(self: Any, batch: Any, *turns: Any) -> Any:
        del self
        rows = zip(*turns, strict=True)
        results.extend(tuple(in_terms_of_torchvision(*step) for step in row if step[0] != "identity") for row in rows)
        return batch

    def in_terms_of_torchvision(name: str, parameter: float) -> tuple[str, float]:
        magnitude = parameter - 1.0 if name in FACTORS else parameter
        return "".join(map(str.capitalize, name.split("_"))), round(float(magnitude), 3)

    def record_theirs(image: Any, name: str, magnitude: float, **arguments: Any) -> Any:
        del arguments
        expected[-1] += ((name, round(float(magnitude), 3)),)
        return image

    monkeypatch.setattr(type(ours), "_apply", record)
    monkeypatch.setattr(theirs, "_apply_image_or_video_transform", record_theirs)
    ours(image_batch([image] * count))
    for _ in range(count):
        expected.append(())
        theirs(image)
    common = [value for value in sorted({*results, *expected}) if results.count(value) + expected.count(value) >= 10]
    table = [[value.count(steps) for steps in common] for value in (results, expected)]
    assert min(map(sum, table)) > 0.9 * count
    assert stats.chi2_contingency(table).pvalue > 1e-6
