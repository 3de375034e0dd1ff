# SPDX-License-Identifier: Apache-2.0
"""``transforms.of``: boxes and points follow the pixels. A white rectangle is painted, moved by the pixel operator, and found again."""

from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd.random import RNG
from torch_ndd.transforms import of

HEIGHT, WIDTH = 80, 120
BOX = (30, 20, 70, 50)  # left, top, right, bottom


def paint(height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    image = np.zeros((height, width, 1), np.float32)
    left, top, right, bottom = BOX
    image[top:bottom, left:right] = 1
    return image


def find_positions(image: Any) -> list[int]:
    """Return the box around everything at least half white."""
    pixels = np.asarray(image).squeeze() > 0.5
    rows, columns = np.nonzero(pixels)
    return [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


PROGRAMS = [
    (ndd.resize, {"size": [160, 60]}, 1.0),
    (ndd.resize, {"resize_shorter": 50, "interp_type": ndd.types.INTERP_NN}, 1.0),
    (ndd.resize, {"size": [40, 40], "mode": "not_smaller"}, 1.0),
    (ndd.resize, {"size": [80, 80], "roi_start": [10, 20], "roi_end": [70, 100]}, 1.0),
    (ndd.resize, {"size": [80, 80], "roi_start": [0.9, 0.1], "roi_end": [0.1, 0.9], "roi_relative": True}, 1.0),
    (ndd.tensor_resize, {"sizes": [40, 90], "axes": [0, 1]}, 1.0),
    (ndd.resize_crop_mirror, {"size": [160, 240], "crop": [140, 200], "mirror": 3}, 1.0),
    (ndd.crop, {"crop": [60, 100]}, 0.0),
    (ndd.crop, {"crop": [61, 101], "crop_pos_x": 0.3, "crop_pos_y": 0.9, "rounding": "truncate"}, 0.0),
    (ndd.crop, {"crop": [200, 200], "out_of_bounds_policy": "pad"}, 0.0),
    (ndd.crop, {"crop": [200, 100], "out_of_bounds_policy": "trim_to_shape"}, 0.0),
    (ndd.crop_mirror_normalize, {"crop": [60, 100], "mirror": 1}, 0.0),
    (ndd.crop_mirror_normalize, {"crop": [60, 100], "mirror": 0, "output_layout": "HWC"}, 0.0),
    (ndd.paste, {"ratio": 1.5, "fill_value": 0, "paste_x": 0.2, "n_channels": 1}, 0.0),
    (ndd.flip, {}, 0.0),
    (ndd.flip, {"horizontal": 0, "vertical": 1}, 0.0),
    (ndd.rotate, {"angle": 0, "fill_value": 0}, 0.0),
    (ndd.rotate, {"angle": 90, "fill_value": 0}, 0.0),
    (ndd.rotate, {"angle": 33, "fill_value": 0}, 1.5),
    (ndd.rotate, {"angle": -120, "fill_value": 0, "keep_size": True}, 1.5),
    (ndd.rotate, {"angle": 200, "fill_value": 0, "size": [100, 150]}, 1.5),
    (ndd.warp_affine, {"matrix": [0.5, 0.1, 10.0, -0.1, 0.8, 5.0], "fill_value": 0}, 1.5),
    (ndd.warp_affine, {"matrix": [1.2, 0.3, -20.0, 0.1, 0.9, 5.0], "fill_value": 0, "inverse_map": False, "size": [100, 150]}, 1.5),
]
IDS = [f"{operator.__name__}-{k}" for k, (operator, _, _) in enumerate(PROGRAMS)]


@pytest.mark.parametrize(("operator", "args", "tolerance"), PROGRAMS, ids=IDS)
def test_a_box_follows_its_pixels(operator: Any, args: dict[str, Any], tolerance: float) -> None:
    image = ndd.tensor(paint(), layout="HWC")
    output, matrix = operator(image, **args), of(operator, image, **args)
    assert matrix.shape == (2, 3)
    assert matrix.dtype is torch.float32
    sizes = dict(zip(output.layout, output.shape, strict=True))
    box = ndd.bbox_transform(np.float32([BOX]), MT=matrix, output_shape=[sizes["H"], sizes["W"]], remove_threshold=0)
    np.testing.assert_allclose(np.asarray(box)[0], find_positions(output), atol=tolerance + 1e-3)


@pytest.mark.parametrize(("operator", "args", "tolerance"), PROGRAMS, ids=IDS)
def test_batches_with_a_map_for_each_sample(operator: Any, args: dict[str, Any], tolerance: float) -> None:
    images = [paint(), paint(90, 130), paint(100, 101)]
    batch = ndd.batch(images, layout="HWC")
    matrices = of(operator, batch, **args)
    for image, matrix in zip(images, matrices, strict=True):
        np.testing.assert_array_equal(np.asarray(matrix), np.asarray(of(operator, ndd.tensor(image, layout="HWC"), **args)))


def test_arguments_may_differ_and_may_be_pending() -> None:
    image, angles = ndd.tensor(paint()), ndd.batch([10.0, 20.0, 30.0])
    expected = [np.asarray(of(ndd.rotate, image, angle=angle)) for angle in (20.0, 40.0, 60.0)]
    with ndd.EvalMode.deferred:
        np.testing.assert_allclose([np.asarray(value) for value in of(ndd.rotate, image, angle=angles * 2)], expected)
        mirrors = of(ndd.crop_mirror_normalize, image, mirror=ndd.cast(ndd.batch([0, 1]), dtype=ndd.int32))
    assert [float(np.asarray(mirror)[0, 0]) for mirror in mirrors] == [1.0, -1.0]


def test_random_windows_are_those_of_the_pixel_operator() -> None:
    images, rng = ndd.batch([paint()] * 8), RNG(seed=4)
    matrices = of(ndd.random_resized_crop, images, size=[200, 200], random_area=[0.5, 1.0], rng=rng.clone())
    output = ndd.random_resized_crop(images, size=[200, 200], random_area=[0.5, 1.0], rng=rng)
    boxes = ndd.bbox_transform(ndd.batch([np.float32([BOX])] * 8), MT=matrices, output_shape=[200, 200], remove_threshold=0)
    for box, image in zip(boxes, output, strict=True):
        np.testing.assert_allclose(np.asarray(box)[0], find_positions(image), atol=1.01)
    with pytest.raises(ValueError, match="rng"):
        of(ndd.random_resized_crop, images, size=[200, 200])


def test_mirrored_and_normalized_windows_are_those_of_the_pixel_operator() -> None:
    images, rng = ndd.batch([paint()] * 8), RNG(seed=4)
    options = {"size": [200, 160], "random_area": [0.5, 1.0], "mirror": ndd.batch([0, 1] * 4), "output_layout": "CHW"}
    matrices = of(ndd.random_resized_crop, images, rng=rng.clone(), **options)
    output = ndd.random_resized_crop(images, rng=rng, **options)
    boxes = ndd.bbox_transform(ndd.batch([np.float32([BOX])] * 8), MT=matrices, output_shape=[200, 160], remove_threshold=0)
    for box, image in zip(boxes, output, strict=True):
        np.testing.assert_allclose(np.asarray(box)[0], find_positions(ndd.as_tensor(np.asarray(image).transpose(1, 2, 0))), atol=1.01)


def test_windows_of_slice() -> None:
    image = ndd.tensor(paint(), layout="HWC")
    args = ([10, 5], [100, 70])
    box = ndd.bbox_transform(np.float32([BOX]), MT=of(ndd.slice, image, *args, axis_names="WH"), output_shape=[70, 100])
    assert np.asarray(box)[0].tolist() == find_positions(ndd.slice(image, *args, axis_names="WH"))
    relative = {"rel_start": [0.25, 0.25], "rel_shape": [0.5, 0.5], "axis_names": "HW"}
    box = ndd.bbox_transform(np.float32([BOX]), MT=of(ndd.slice, image, **relative), output_shape=[40, 60])
    assert np.asarray(box)[0].tolist() == find_positions(ndd.slice(image, **relative))


def test_keypoints_and_several_steps() -> None:
    """A marked pixel is where its center is predicted, after three operators in a row."""
    rng = np.random.default_rng(1)
    for x, y in rng.integers([20, 20], [100, 60], (10, 2)).tolist():
        image = np.zeros((HEIGHT, WIDTH, 1), np.float32)
        image[y, x] = 1
        steps = [(ndd.flip, {}), (ndd.rotate, {"angle": 270, "fill_value": 0}), (ndd.crop, {"crop": [110, 70]})]
        tensor, maps = ndd.tensor(image, layout="HWC"), []
        for operator, args in steps:
            maps.append(of(operator, tensor, **args))
            tensor = operator(tensor, **args)
        point = ndd.coord_transform(np.float32([[x + 0.5, y + 0.5]]), MT=ndd.transforms.combine(*maps))
        pixels = np.asarray(tensor)[..., 0]
        column, row = np.asarray(point)[0]
        assert pixels.max() == 1
        assert np.unravel_index(pixels.argmax(), pixels.shape) == (int(row), int(column))


def test_the_map_equals_the_operator() -> None:
    image = ndd.tensor(np.random.default_rng(2).integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8), layout="HWC")
    turned = ndd.rotate(image, angle=30, fill_value=0)
    again = ndd.warp_affine(image, matrix=of(ndd.rotate, image, angle=30), inverse_map=False, size=turned.shape[:2], fill_value=0)
    np.testing.assert_allclose(np.asarray(turned).astype(int), np.asarray(again).astype(int), atol=1)


def test_wrong_calls() -> None:
    image = paint()
    for operator in (ndd.brightness, print, "resize"):
        with pytest.raises(TypeError, match=r"transforms\.of"):
            of(operator, image)
    with pytest.raises(TypeError, match="angel"):
        of(ndd.rotate, image, angel=3)
    with pytest.raises(TypeError, match="angle"):
        of(ndd.rotate, image)
    with pytest.raises(RuntimeError, match="singular"):
        of(ndd.warp_affine, image, matrix=[1.0, 1.0, 0.0, 1.0, 1.0, 0.0])
    with pytest.raises(RuntimeError, match="exceeds axis"):
        of(ndd.crop, image, crop=[500, 500])
    with pytest.raises(RuntimeError, match="height and a width"):
        of(ndd.flip, ndd.tensor(np.zeros((2, 3, 4, 1)), layout="DHWC"))
    with pytest.raises(ValueError, match="batch size"):
        of(ndd.rotate, ndd.batch([image, image]), angle=ndd.batch([1.0, 2.0, 3.0]))
