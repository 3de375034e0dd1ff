# SPDX-License-Identifier: Apache-2.0
"""mixup and cutmix against their formulas."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import torch_ndd as ndd
from torch_ndd import augment

each = pytest.mark.parametrize("function", [augment.mixup, augment.cutmix])


def images(count: int, dtype: torch.dtype = torch.uint8, shape: tuple[int, ...] = (9, 12, 3), layout: str = "HWC") -> ndd.Batch:
    result = torch.randint(0, 256, (count, *shape), generator=torch.Generator().manual_seed(0))
    return ndd.batch((result / 255).to(dtype) if dtype.is_floating_point else result.to(dtype), layout=layout)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize(("shape", "layout"), [((9, 12, 3), "HWC"), ((3, 9, 12), "CHW"), ((2, 4, 5, 3), "FHWC")])
def test_mixup_blends_images_and_labels(dtype: torch.dtype, shape: tuple[int, ...], layout: str, device: str) -> None:
    batch = images(7, dtype, shape, layout)
    mixed, labels, order, lam = augment.mixup(batch.to_device(device), [3, 1, 4, 1, 5, 2, 0], num_classes=6, return_params=True)
    assert (mixed.dtype, mixed.layout, labels.dtype, lam.dtype) == (dtype, layout, torch.float32, torch.float32)
    assert str(mixed.device).partition(":")[0] == device
    assert sorted(order.tolist()) == list(range(7))
    assert ((lam >= 0) & (lam <= 1)).all()
    weight = lam.double().view(-1, *[1] * len(shape))
    x = batch.torch().double()
    expected = weight * x + (1 - weight) * x[order]
    tolerance = 1e-3 if dtype is torch.float16 else 1e-6 if dtype.is_floating_point else 0.51
    torch.testing.assert_close(mixed.cpu().torch().double(), expected, rtol=0, atol=tolerance)
    hot = torch.eye(6)[torch.tensor([3, 1, 4, 1, 5, 2, 0])]
    torch.testing.assert_close(labels.torch(), lam[:, None] * hot + (1 - lam[:, None]) * hot[order])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float32])
@pytest.mark.parametrize("shape", [(9, 12, 3), (600, 1000, 3)], ids=["small", "larger than caches"])
def test_mixup_rounds_like_arithmetic(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    batch = images(8, dtype, shape)
    mixed, order, lam = augment.mixup(batch, dtype=ndd.float32, return_params=True)
    x, weight = batch.torch().float(), lam.view(-1, 1, 1, 1)
    assert mixed.dtype is torch.float32
    assert torch.equal(mixed.torch(), x * weight + x[order] * (1 - weight))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.int16])
@pytest.mark.parametrize("shape", [(9, 12, 3), (600, 1000, 3)], ids=["small", "larger than caches"])
def test_mixup_converts_the_sum_once(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    batch = images(10, torch.uint8, shape)
    floats = augment.mixup(batch, dtype=ndd.float32, rng=ndd.random.RNG(3))
    assert torch.equal(augment.mixup(batch, dtype=dtype, rng=ndd.random.RNG(3)).torch(), ndd.cast(floats, dtype=dtype).torch())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float16, torch.float32])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_cutmix_replaces_a_box(dtype: torch.dtype, layout: str, device: str) -> None:
    batch = images(40, dtype, (9, 12, 3) if layout == "HWC" else (3, 9, 12), layout)
    classes = torch.arange(40) % 5
    mixed, labels, order, kept, boxes = augment.cutmix(batch.to_device(device), classes, num_classes=5, return_params=True, rng=ndd.random.RNG(0))
    assert (mixed.dtype, mixed.layout, labels.dtype) == (dtype, layout, torch.float32)
    assert sorted(order.tolist()) == list(range(40))
    areas = []
    for i, (left, top, right, bottom) in enumerate(boxes.tolist()):
        assert 0 <= left <= right <= 12
        assert 0 <= top <= bottom <= 9
        expected = batch.select(i).torch().clone()
        window = (slice(top, bottom), slice(left, right)) if layout == "HWC" else (slice(None), slice(top, bottom), slice(left, right))
        expected[window] = batch.select(int(order[i])).torch()[window]
        assert torch.equal(mixed.cpu().select(i).torch(), expected)
        areas.append((right - left) * (bottom - top))
    assert len(set(areas)) > 10
    exact = 1 - torch.tensor(areas, dtype=torch.float64) / 108
    torch.testing.assert_close(kept.double(), exact, rtol=0, atol=1e-7)
    hot = torch.eye(5)[classes]
    torch.testing.assert_close(labels.torch(), kept[:, None] * hot + (1 - kept[:, None]) * hot[order])


def test_box_size_follows_from_lambda() -> None:
    """Boxes that are not clipped have ``sqrt(1 - lam)`` of both sides; ``lam`` is what mixup draws from the same generator."""
    batch = ndd.batch(torch.zeros(200, 100, 300, 1, dtype=torch.uint8), layout="HWC")
    *_, boxes = augment.cutmix(batch, return_params=True, rng=ndd.random.RNG(2))
    *_, lam = augment.mixup(batch, return_params=True, rng=ndd.random.RNG(2))
    left, top, right, bottom = boxes.T
    inside = (left > 0) & (top > 0) & (right < 300) & (bottom < 100)
    assert inside.sum() > 20
    side = (1 - lam.double()).sqrt()[inside]
    assert ((right - left)[inside] - side * 300).abs().max() <= 2
    assert ((bottom - top)[inside] - side * 100).abs().max() <= 2


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_lambda_has_a_beta_distribution(alpha: float) -> None:
    batch = ndd.batch(torch.zeros(2000, 1, 1, 1, dtype=torch.uint8), layout="HWC")
    lam = augment.mixup(batch, alpha=alpha, return_params=True, rng=ndd.random.RNG(1))[2]
    assert stats.kstest(lam.numpy(), stats.beta(alpha, alpha).cdf).pvalue > 1e-4


@each
def test_soft_labels_are_mixed(function: Callable[..., Any]) -> None:
    soft = torch.rand(5, 4, dtype=torch.float64)
    soft /= soft.sum(1, keepdim=True)
    for value in (soft, soft.numpy(), ndd.batch(soft), ndd.as_tensor(soft)):
        _, labels, order, lam, *_ = function(images(5), value, return_params=True, rng=ndd.random.RNG(1))
        torch.testing.assert_close(labels.torch(), (lam[:, None] * soft + (1 - lam[:, None]) * soft[order]).float(), rtol=0, atol=1e-6)
    for classes in ([3, 0, 1, 1, 2], np.array([3, 0, 1, 1, 2]), ndd.batch([3, 0, 1, 1, 2]), torch.tensor([[3], [0], [1], [1], [2]])):
        labels = function(images(5), classes, num_classes=4, rng=ndd.random.RNG(1))[1]
        torch.testing.assert_close(
            labels.torch(), lam[:, None] * torch.eye(4)[[3, 0, 1, 1, 2]] + (1 - lam[:, None]) * torch.eye(4)[[3, 0, 1, 1, 2]][order]
        )


@each
def test_mixing_repeats_with_a_seed(function: Callable[..., Any], threads: int) -> None:
    batch = images(6, torch.float32)
    rng = ndd.random.RNG(4)
    first, second = function(batch, rng=rng).torch(), function(batch, rng=rng).torch()
    assert not torch.equal(first, second)
    assert torch.equal(function(batch, rng=ndd.random.RNG(4)).torch(), first)
    ndd.random.set_seed(4)
    assert torch.equal(function(batch).torch(), first)
    other = ndd.random.RNG(4)
    other.advance(2 * {augment.mixup: 14, augment.cutmix: 21}[function])
    assert rng.state == other.state


@each
def test_batches_of_one_and_no_image_are_accepted(function: Callable[..., Any]) -> None:
    batch = images(1)
    result, labels = function(batch, [1], num_classes=2)
    assert torch.equal(result.torch(), batch.torch())
    assert labels.torch().tolist() == [[0, 1]]
    none = ndd.batch(torch.zeros(0, 4, 5, 3, dtype=torch.uint8), layout="HWC")
    result, labels = function(none, torch.zeros(0, 2))
    assert (result.batch_size, labels.batch_size) == (0, 0)
    empty = ndd.batch(torch.zeros(2, 0, 5, 3, dtype=torch.uint8), layout="HWC")
    assert function(empty).shape == [(0, 5, 3)] * 2


@each
def test_inputs_are_unchanged_and_may_be_pending(function: Callable[..., Any]) -> None:
    batch = images(6)
    before = batch.torch().clone()
    expected = function(batch, rng=ndd.random.RNG(1)).torch()
    with ndd.EvalMode.deferred:
        result = function(ndd.cast(batch, dtype=batch.dtype), rng=ndd.random.RNG(1))
    assert torch.equal(result.torch(), expected)
    assert torch.equal(batch.torch(), before)


@each
@pytest.mark.parametrize(
    ("error", "text", "options"),
    [
        (TypeError, "Batch", {"images": torch.zeros(2, 4, 5, 3)}),
        (ValueError, r"equal shapes.*\(4, 5, 3\).*resize", {"images": ndd.batch([torch.zeros(4, 5, 3), torch.zeros(5, 5, 3)])}),
        (ValueError, "num_classes", {"labels": [0, 1]}),
        (ValueError, "from 0 to num_classes - 1 = 1, got 0 to 2", {"labels": [0, 2], "num_classes": 2}),
        (ValueError, "labels", {"labels": [0, 1, 1], "num_classes": 2}),
        (ValueError, "integers", {"labels": [0.0, 1.0], "num_classes": 2}),
        (ValueError, "labels", {"labels": torch.zeros(2, 3, 4)}),
        (ValueError, "alpha", {"alpha": 0.0}),
        (ValueError, "alpha", {"alpha": float("nan")}),
        (ValueError, "random.RNG", {"rng": 1}),
    ],
)
def test_mixing_rejects_invalid_arguments(function: Callable[..., Any], error: type[Exception], text: str, options: dict[str, Any]) -> None:
    arguments = {"images": images(2), "labels": None, **options}
    with pytest.raises(error, match=f"(?s){function.__name__}: .*{text}"):
        function(arguments.pop("images"), arguments.pop("labels"), **arguments)


def test_cutmix_rejects_layouts_without_height_and_width() -> None:
    with pytest.raises(ValueError, match='cutmix: The layout "FHWC"'):
        augment.cutmix(images(2, shape=(2, 4, 5, 3), layout="FHWC"))
