# SPDX-License-Identifier: Apache-2.0
"""mosaic: the positions of the four images, their boxes and masks."""

from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd import augment

SHAPES = [(40, 60, 3), (33, 20, 3), (64, 64, 3), (25, 80, 3), (50, 10, 3)]
dense_and_ragged = pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])


def plain_images(ragged: bool, dtype: torch.dtype = torch.uint8) -> ndd.Batch:
    """Image i has the value 10 (i + 1) everywhere."""
    shapes = SHAPES if ragged else SHAPES[:1] * 5
    results = [torch.full(shape, 10 * (i + 1)) for i, shape in enumerate(shapes)]
    return ndd.batch([result.to(dtype) if dtype is torch.uint8 else result.to(dtype) / 255 for result in results], layout="HWC")


def quadrants(size: tuple[int, int], center: np.ndarray) -> list[tuple[slice, slice]]:
    y, x = center
    rows, columns = (slice(0, y), slice(y, size[0])), (slice(0, x), slice(x, size[1]))
    return [(row, column) for row in rows for column in columns]


@dense_and_ragged
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_mosaic_places_four_images_around_a_center(ragged: bool, dtype: torch.dtype, device: str) -> None:
    batch = plain_images(ragged, dtype)
    result, sources, centers = augment.mosaic(batch.to_device(device), output_size=(48, 72), return_params=True, rng=ndd.random.RNG(1))
    assert (result.shape, result.dtype, result.layout) == ([(48, 72, 3)] * 5, dtype, "HWC")
    assert str(result.device).partition(":")[0] == device
    assert sources[:, 0].tolist() == list(range(5))
    assert all(sorted(column) == list(range(5)) for column in sources.T.tolist())
    assert len({tuple(center) for center in centers.tolist()}) > 3
    assert ((centers >= torch.tensor([12, 18])) & (centers <= torch.tensor([36, 54]))).all()
    for item, numbers, center in zip(result.cpu(), sources.tolist(), centers.numpy(), strict=True):
        for number, part in zip(numbers, quadrants((48, 72), center), strict=True):
            value = 10 * (number + 1) if dtype is torch.uint8 else np.float32(10 * (number + 1) / 255)
            np.testing.assert_allclose(np.asarray(item)[part], value, rtol=1e-6)


@dense_and_ragged
def test_images_keep_their_aspect_ratio_and_touch_the_center(ragged: bool) -> None:
    """Images whose values are the coordinates of their pixels show which part of them is where."""
    shapes = SHAPES if ragged else SHAPES[:1] * 5
    results = [np.stack([*np.mgrid[:h, :w], np.zeros((h, w))], -1).astype(np.float32) + 0.5 for h, w, _ in shapes]
    batch = ndd.batch(results, layout="HWC")
    mosaics, sources, centers = augment.mosaic(batch, output_size=(48, 72), return_params=True, rng=ndd.random.RNG(1))
    for mosaic, numbers, center in zip(mosaics, sources.tolist(), centers.numpy(), strict=True):
        for k, (number, part) in enumerate(zip(numbers, quadrants((48, 72), center), strict=True)):
            shown = np.asarray(mosaic)[part].astype(np.float64)
            height, width, _ = shapes[number]
            scale = max(shown.shape[0] / height, shown.shape[1] / width)
            y, x = (np.arange(n) + 0.5 for n in shown.shape[:2])
            y, x = y / scale, x / scale
            if k < 2:  # the lower border is at the center
                y += height - shown.shape[0] / scale
            if k % 2 == 0:
                x += width - shown.shape[1] / scale
            inner = (slice(4, -4), slice(4, -4))  # borders are repeated
            if min(shown[inner].shape):
                np.testing.assert_allclose(shown[..., 0][inner], np.broadcast_to(y[:, None], shown.shape[:2])[inner], atol=0.6 / scale + 0.1)
                np.testing.assert_allclose(shown[..., 1][inner], np.broadcast_to(x[None], shown.shape[:2])[inner], atol=0.6 / scale + 0.1)


@dense_and_ragged
def test_boxes_and_masks_move_with_the_images(ragged: bool, device: str) -> None:
    """A rectangle of a unique value in each image is found again at its box, in the mosaic and in the mask."""
    generator = np.random.default_rng(0)
    pictures, masks, boxes, labels = [], [], [], []
    for i, (height, width, _) in enumerate(SHAPES if ragged else SHAPES[:1] * 5):
        top, left = generator.integers(0, height // 2), generator.integers(0, width // 2)
        bottom, right = top + height // 3, left + max(3, width // 3)
        mask = np.zeros((height, width), np.int32)
        mask[top:bottom, left:right] = i + 1
        pictures.append((mask[..., None] * 50).astype(np.uint8))
        masks.append(mask)
        boxes.append(np.array([[left, top, right, bottom]], np.float32))
        labels.append(np.array([i + 1]))
    values = [ndd.batch(value).to_device(device) for value in (boxes, labels, masks)]
    result, new_boxes, new_labels, new_masks, sources, centers = augment.mosaic(
        ndd.batch(pictures, layout="HWC").to_device(device),
        boxes=values[0],
        labels=values[1],
        masks=values[2],
        output_size=(96, 96),
        min_visibility=0,
        return_params=True,
        rng=ndd.random.RNG(3),
    )
    assert new_masks.shape == [(96, 96)] * 5
    assert new_masks.dtype == torch.int32
    assert {str(value.device).partition(":")[0] for value in (result, new_boxes, new_labels, new_masks)} == {device}
    found = 0
    for i in range(5):
        mask, picture = (np.asarray(value.cpu().select(i)) for value in (new_masks, result))
        for k, part in enumerate(quadrants((96, 96), centers[i].numpy())):
            label = int(sources[i, k]) + 1
            inside = np.zeros((96, 96), bool)
            inside[part] = True
            assert set(np.unique(mask[part])) <= {0, label}
            assert ((mask[part] > 0) != (picture[part][..., 0] > 25 * label)).mean() < 0.08
            y, x = np.nonzero((mask == label) & inside)
            if len(x) < 20:
                continue
            box = np.array([x.min(), y.min(), x.max() + 1, y.max() + 1])
            candidates = np.asarray(new_boxes.cpu().select(i))[np.asarray(new_labels.cpu().select(i)) == label]
            assert np.abs(candidates - box).max(1).min() <= 1.01
            found += 1
    assert found >= 10


def test_hardly_visible_boxes_are_dropped() -> None:
    batch = plain_images(False)
    boxes = ndd.batch([[[0.0, 0, 60, 40], [0, 0, 6, 4], [54, 36, 60, 40], [5, 5, 5, 9]]] * 5)
    labels = ndd.batch([torch.arange(4)] * 5)
    kept: dict[float, list[int]] = {}
    for least in (0.0, 0.5, 1.0):
        _, some, theirs = augment.mosaic(
            batch, output_size=(64, 64), boxes=boxes, labels=labels, min_visibility=least, center_range=(0.3, 0.6), rng=ndd.random.RNG(0)
        )
        assert [len(their) for their in theirs] == [shape[0] for shape in some.shape]
        for value in some:
            left, top, right, bottom = value.torch().T
            assert ((right > left) & (bottom > top)).all()
            assert value.torch().min() >= 0
            assert value.torch().max() <= 64
        kept[least] = [len(their) for their in theirs]
        assert all(3 not in their.torch() for their in theirs)  # without an area
    assert sum(kept[0.0]) > sum(kept[0.5]) > sum(kept[1.0]) > 0


def test_mosaic_accepts_images_without_boxes() -> None:
    none = [np.zeros((0, 4), np.float32)] * 5
    _, boxes, labels = augment.mosaic(plain_images(True), output_size=[20, 20], boxes=none, labels=[np.zeros((0, 2), np.int16)] * 5)
    assert boxes.shape == [(0, 4)] * 5
    assert (labels.shape, labels.dtype) == ([(0, 2)] * 5, torch.int16)


def test_mosaic_accepts_one_image() -> None:
    result, boxes = augment.mosaic(plain_images(True).select([2]), output_size=[10, 12], boxes=[[[0.0, 0, 64, 64]]], center_range=(0.5, 0.5))
    assert (result.torch() == 30).all()
    assert boxes.torch().tolist() == [[[0, 0, 6, 5], [6, 0, 12, 5], [0, 5, 6, 10], [6, 5, 12, 10]]]


def test_mosaic_accepts_extreme_centers_and_sizes() -> None:
    for ends in ((0.0, 0.0), (1.0, 1.0)):
        assert augment.mosaic(plain_images(True), output_size=[2, 2], center_range=ends).shape == [(2, 2, 3)] * 5


def test_mosaic_repeats_with_a_seed(threads: int) -> None:
    batch = plain_images(True)
    rng, other = ndd.random.RNG(4), ndd.random.RNG(4)
    first, second = (augment.mosaic(batch, output_size=[30, 30], rng=rng).torch() for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(augment.mosaic(batch, output_size=[30, 30], rng=ndd.random.RNG(4)).torch(), first)
    other.advance(42)
    assert rng.state == other.state


@pytest.mark.parametrize(
    ("error", "text", "options"),
    [
        (TypeError, "Batch", {"images": torch.zeros(4, 5, 3)}),
        (ValueError, "layout", {"images": ndd.batch(torch.zeros(2, 3, 4, 5), layout="CHW")}),
        (ValueError, "must not be an empty batch", {"images": ndd.batch(torch.zeros(0, 4, 5, 3), layout="HWC")}),
        (ValueError, r"pixels.*\(0, 5, 3\)", {"images": ndd.batch(torch.zeros(2, 0, 5, 3), layout="HWC")}),
        (ValueError, "output_size", {"output_size": [1, 9]}),
        (ValueError, "output_size", {"output_size": [9]}),
        (ValueError, "center_range", {"center_range": (0.7, 0.3)}),
        (ValueError, "min_visibility", {"min_visibility": 2}),
        (ValueError, "labels need boxes", {"labels": [[1]] * 5}),
        (ValueError, "one for each box", {"boxes": [[[0, 0, 1, 1]]] * 5, "labels": [[1, 2]] * 5}),
        (ValueError, "masks", {"masks": ndd.batch(torch.zeros(5, 3, 3))}),
        (ValueError, "random.RNG", {"rng": 1}),
    ],
)
def test_mosaic_rejects_invalid_arguments(error: type[Exception], text: str, options: dict[str, Any]) -> None:
    arguments = {"images": plain_images(True), "output_size": [8, 8], **options}
    with pytest.raises(error, match=f"(?s)mosaic: .*{text}"):
        augment.mosaic(arguments.pop("images"), **arguments)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9])
def test_images_of_a_mosaic_are_distinct(count: int) -> None:
    batch = ndd.batch(torch.zeros(count, 8, 9, 3, dtype=torch.uint8), layout="HWC")
    seen = set()
    for seed in range(40):
        sources = augment.mosaic(batch, output_size=[8, 8], return_params=True, rng=ndd.random.RNG(seed))[1]
        assert all(len(set(row)) == min(4, count) for row in sources.tolist())
        assert torch.bincount(sources.flatten(), minlength=count).tolist() == [4] * count
        seen |= {tuple(row) for row in sources.tolist()}
    if count >= 4:
        assert len(seen) > 5 * count


def _objects() -> tuple[ndd.Batch, ndd.Batch, ndd.Batch]:
    """Return images with as many objects as their number: a mask and a box for each."""
    images = ndd.batch([torch.full((20 + 3 * k, 30 - k, 3), k, dtype=torch.uint8) for k in range(4)], layout="HWC")
    masks = [torch.zeros(k, 20 + 3 * k, 30 - k, dtype=torch.uint8) for k in range(4)]
    for k, planes in enumerate(masks):
        for number, plane in enumerate(planes):
            plane[4:16, 4 : 12 + 2 * number] = 10 * k + number
    boxes = [torch.tensor([[4.0, 4, 12 + 2 * number, 16] for number in range(k)]).reshape(k, 4) for k in range(4)]
    return images, ndd.batch(masks), ndd.batch(boxes)


def test_masks_of_objects_follow_their_boxes(device: str) -> None:
    images, masks, boxes = (item.to_device(device) for item in _objects())
    _, result, labels, planes, sources, _ = augment.mosaic(
        images, output_size=[48, 60], boxes=boxes, masks=masks, labels=[list(range(10 * k, 11 * k)) for k in range(4)], return_params=True
    )
    assert planes.layout == "CHW"
    for rows, numbers, shown, row in zip(result.cpu(), labels.cpu(), planes.cpu(), sources.tolist(), strict=True):
        assert len(rows) == len(numbers) == len(shown)
        assert {int(value) // 10 for value in np.asarray(numbers)} <= set(row)
        for box, number, mask in zip(np.asarray(rows), np.asarray(numbers), np.asarray(shown), strict=True):
            assert set(np.unique(mask)) <= {0, number}
            if number:
                y, x = np.nonzero(mask)
                np.testing.assert_allclose(box, (x.min(), y.min(), x.max() + 1, y.max() + 1), atol=1.01)


def test_masks_of_objects_without_boxes_are_all_kept() -> None:
    images, masks, _ = _objects()
    result = augment.mosaic(images, output_size=[48, 60], masks=masks)[1]
    assert result.shape == [(6, 48, 60)] * 4
    with pytest.raises(ValueError, match="one for each box"):
        augment.mosaic(images, output_size=[48, 60], masks=masks, boxes=[[[0, 0, 1, 1]]] * 4)


def test_other_augmentations_move_masks_of_objects() -> None:
    images, masks, _ = _objects()
    right = augment.Augmentation("right", matrix=lambda parameter, height, width: [[1, 0, 2], [0, 1, 0]])
    result = augment.rand_augment(images, n=1, augmentations=[right], masks=masks)[1]
    assert (result.shape, result.layout) == (masks.shape, "CHW")
    for item, old in zip(result, masks, strict=True):
        assert np.array_equal(np.asarray(item)[:, :, 2:], np.asarray(old)[:, :, :-2])
    deformed = augment.elastic(images, alpha=1e-6, masks=masks)[1]
    assert all(np.array_equal(np.asarray(value), np.asarray(old)) for value, old in zip(deformed, masks, strict=True))


def test_masks_of_a_mosaic_can_be_flipped() -> None:
    images, _, _ = _objects()
    masks = ndd.batch([torch.arange(shape[0] * shape[1]).reshape(shape[:2]) for shape in images.shape])
    result = augment.mosaic(images, output_size=[48, 60], masks=masks)[1]
    flipped = ndd.flip(result)
    assert flipped.layout == result.layout == "HW"
    assert torch.equal(flipped.torch(), result.torch().flip(2))
