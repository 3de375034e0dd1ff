# SPDX-License-Identifier: Apache-2.0
"""Operators that move pixels."""

import functools
import random
from typing import Any

import numpy as np
import torch

from ._case import Case

_AFFINE = np.array([[0.9, 0.2, 10.0], [-0.2, 0.9, 80.0]], np.float32)
_HOMOGRAPHY = np.array([[0.9, 0.2, 10.0], [-0.2, 0.9, 80.0], [0.0001, 0.0002, 1.0]], np.float32)


@functools.cache
def _maps() -> tuple[np.ndarray, np.ndarray]:
    """Where every pixel of a VGA image comes from."""
    x, y = np.meshgrid(np.arange(640.0, dtype=np.float32), np.arange(480.0, dtype=np.float32))
    return 0.9 * x + 0.2 * y + 10, -0.2 * x + 0.9 * y + 80


@functools.cache
def _waves() -> tuple[np.ndarray, np.ndarray]:
    x, y = np.meshgrid(np.arange(640.0, dtype=np.float32), np.arange(480.0, dtype=np.float32))
    return x + 10 * np.sin(0.049087 * y), y + 10 * np.cos(0.049087 * x)


def _random_window(height: int, width: int) -> tuple[int, int, int, int]:
    """top, left, height, width of a crop of 8 % to 100 % of the area; it always fits, so it takes no second draw."""
    area, aspect = random.uniform(0.08, 1.0), random.uniform(0.75, 4 / 3)
    h = min(height, round((area * height * width / aspect) ** 0.5))
    w = min(width, round((area * height * width * aspect) ** 0.5))
    return random.randint(0, height - h), random.randint(0, width - w), h, w


def _cv2_random_resized_crop(cv2: Any, image: np.ndarray) -> Any:
    top, left, height, width = _random_window(*image.shape[:2])
    return cv2.resize(image[top : top + height, left : left + width], (224, 224), interpolation=cv2.INTER_AREA)


def _cv2_crop_mirror_normalize(cv2: Any, image: np.ndarray) -> Any:
    window = image[128:352, 208:432]
    if random.random() < 0.5:
        window = cv2.flip(window, 1)
    parameters = cv2.dnn.Image2BlobParams((1 / 58.395, 1 / 57.12, 1 / 57.375, 1.0), (224, 224), (123.675, 116.28, 103.53, 0.0))
    return cv2.dnn.blobFromImageWithParams(window, parameters)


def _tv_crop_mirror_normalize(v2: Any, images: Any) -> Any:
    windows = images[..., 128:352, 208:432].contiguous()
    mirror = windows.new_empty(len(windows), 1, 1, 1).bernoulli_(0.5).bool()
    windows = windows.where(~mirror, windows.flip(-1))
    return v2.functional.normalize(windows.float(), [123.675, 116.28, 103.53], [58.395, 57.12, 57.375], inplace=True)


def _cv2_rotate(cv2: Any, image: np.ndarray) -> Any:
    height, width = image.shape[:2]
    return cv2.warpAffine(image, cv2.getRotationMatrix2D((width / 2, height / 2), 15, 1.0), (width, height), flags=cv2.INTER_LINEAR)


def _resize(v2: Any, images: Any, size: tuple[int, int], mode: str, antialias: bool = True) -> Any:
    return v2.functional.resize(images, list(size), interpolation=v2.InterpolationMode[mode], antialias=antialias)


CASES = (
    # OpenCV's INTER_AREA is its only resampling with antialiasing; it has no cubic one.
    Case(
        "resize 224, linear, antialias",
        ndd=lambda ndd, types, x: ndd.resize(x, size=[224, 224]),
        cv2=lambda cv2, x: cv2.resize(x, (224, 224), interpolation=cv2.INTER_AREA),
        tv=lambda v2, x: _resize(v2, x, (224, 224), "BILINEAR"),
    ),
    Case(
        "resize 224, linear",
        ndd=lambda ndd, types, x: ndd.resize(x, size=[224, 224], antialias=False),
        cv2=lambda cv2, x: cv2.resize(x, (224, 224), interpolation=cv2.INTER_LINEAR),
        tv=lambda v2, x: _resize(v2, x, (224, 224), "BILINEAR", antialias=False),
    ),
    Case(
        "resize 224, cubic, antialias",
        ndd=lambda ndd, types, x: ndd.resize(x, size=[224, 224], interp_type=types.INTERP_CUBIC),
        tv=lambda v2, x: _resize(v2, x, (224, 224), "BICUBIC"),
    ),
    Case(
        "resize 224, linear, antialias, torch's rule",
        ndd=lambda ndd, types, x: ndd.resize(x, size=[224, 224], rule="torch"),
        tv=lambda v2, x: _resize(v2, x, (224, 224), "BILINEAR"),
    ),
    Case(
        "resize 224, cubic, antialias, torch's rule",
        ndd=lambda ndd, types, x: ndd.resize(x, size=[224, 224], interp_type=types.INTERP_CUBIC, rule="torch"),
        tv=lambda v2, x: _resize(v2, x, (224, 224), "BICUBIC"),
    ),
    Case(
        "resize 224, cubic",
        ndd=lambda ndd, types, x: ndd.resize(x, size=[224, 224], interp_type=types.INTERP_CUBIC, antialias=False),
        cv2=lambda cv2, x: cv2.resize(x, (224, 224), interpolation=cv2.INTER_CUBIC),
        tv=lambda v2, x: _resize(v2, x, (224, 224), "BICUBIC", antialias=False),
    ),
    Case(
        "resize 224, nearest",
        ndd=lambda ndd, types, x: ndd.resize(x, size=[224, 224], interp_type=types.INTERP_NN),
        cv2=lambda cv2, x: cv2.resize(x, (224, 224), interpolation=cv2.INTER_NEAREST),
        tv=lambda v2, x: _resize(v2, x, (224, 224), "NEAREST"),
    ),
    Case(
        "resize 960x720, linear",
        ndd=lambda ndd, types, x: ndd.resize(x, size=[720, 960]),
        cv2=lambda cv2, x: cv2.resize(x, (960, 720), interpolation=cv2.INTER_LINEAR),
        tv=lambda v2, x: _resize(v2, x, (720, 960), "BILINEAR"),
    ),
    Case(
        "resize 960x720, cubic",
        ndd=lambda ndd, types, x: ndd.resize(x, size=[720, 960], interp_type=types.INTERP_CUBIC),
        cv2=lambda cv2, x: cv2.resize(x, (960, 720), interpolation=cv2.INTER_CUBIC),
        tv=lambda v2, x: _resize(v2, x, (720, 960), "BICUBIC"),
    ),
    # torchvision's crop and numpy's slice are views; a copy makes them the same work.
    Case(
        "crop 224",
        ndd=lambda ndd, types, x: ndd.crop(x, crop=[224, 224]),
        np=lambda x: x[128:352, 208:432].copy(),
        tv=lambda v2, x: v2.functional.center_crop(x, [224, 224]).clone(),
    ),
    Case(
        "slice",
        ndd=lambda ndd, types, x: ndd.slice(x, rel_start=[0.25, 0.1], rel_shape=[0.5, 0.8], axis_names="HW"),
        np=lambda x: x[120:360, 64:576].copy(),
        tv=lambda v2, x: v2.functional.crop(x, 120, 64, 240, 512).clone(),
    ),
    Case(
        "slice, reflected border",
        ndd=lambda ndd, types, x: ndd.slice(x, start=[-16, -16], shape=[512, 672], axis_names="HW", out_of_bounds_policy="reflect_101"),
        np=lambda x: np.pad(x, [(16, 16), (16, 16), (0, 0)], mode="reflect"),
        cv2=lambda cv2, x: cv2.copyMakeBorder(x, 16, 16, 16, 16, cv2.BORDER_REFLECT_101),
        tv=lambda v2, x: v2.functional.pad(x, [16, 16], padding_mode="reflect"),
    ),
    Case(
        "slice, repeated edges",
        ndd=lambda ndd, types, x: ndd.slice(x, start=[-16, -16], shape=[512, 672], axis_names="HW", out_of_bounds_policy="edge"),
        np=lambda x: np.pad(x, [(16, 16), (16, 16), (0, 0)], mode="edge"),
        cv2=lambda cv2, x: cv2.copyMakeBorder(x, 16, 16, 16, 16, cv2.BORDER_REPLICATE),
        tv=lambda v2, x: v2.functional.pad(x, [16, 16], padding_mode="edge"),
    ),
    Case(
        "pad to 512x704",
        ndd=lambda ndd, types, x: ndd.pad(x, shape=[512, 704], axis_names="HW", fill_value=7.0),
        cv2=lambda cv2, x: cv2.copyMakeBorder(x, 0, 32, 0, 64, cv2.BORDER_CONSTANT, value=(7, 7, 7)),
        tv=lambda v2, x: v2.functional.pad(x, [0, 0, 64, 32], fill=7),
    ),
    Case(
        "paste, ratio 1.2",
        ndd=lambda ndd, types, x: ndd.paste(x, ratio=1.2, fill_value=7),
        cv2=lambda cv2, x: cv2.copyMakeBorder(x, 48, 48, 64, 64, cv2.BORDER_CONSTANT, value=(7, 7, 7)),
        tv=lambda v2, x: v2.functional.pad(x, [64, 48, 64, 48], fill=7),
    ),
    Case(
        "erase 224x224",
        ndd=lambda ndd, types, x: ndd.erase(x, anchor=[100, 100], shape=[224, 224], axis_names="HW", fill_value=7.0),
        cv2=lambda cv2, x: cv2.rectangle(x.copy(), (100, 100), (323, 323), (7, 7, 7), -1),
        tv=lambda v2, x: v2.functional.erase(x, 100, 100, 224, 224, torch.tensor(7, dtype=torch.uint8)),
    ),
    Case("grid_mask, tile 100", ndd=lambda ndd, types, x: ndd.grid_mask(x, tile=100, ratio=0.5, angle=0.3)),
    Case(
        "multi_paste, mosaic of 4",
        ndd=lambda ndd, types, x: ndd.multi_paste(
            x,
            in_ids=[0, 1, 2, 3],
            output_size=[480, 640],
            shapes_rel=ndd.tensor([[0.5, 0.5]] * 4),
            out_anchors_rel=ndd.tensor([[0.0, 0.0], [0.0, 0.5], [0.5, 0.0], [0.5, 0.5]]),
        ),
    ),
    Case(
        "flip, horizontal",
        ndd=lambda ndd, types, x: ndd.flip(x, horizontal=1),
        cv2=lambda cv2, x: cv2.flip(x, 1),
        tv=lambda v2, x: v2.functional.horizontal_flip(x),
    ),
    Case(
        "flip, vertical",
        ndd=lambda ndd, types, x: ndd.flip(x, horizontal=0, vertical=1),
        cv2=lambda cv2, x: cv2.flip(x, 0),
        tv=lambda v2, x: v2.functional.vertical_flip(x),
    ),
    Case(
        "crop_mirror_normalize 224",
        ndd=lambda ndd, types, x: ndd.crop_mirror_normalize(
            x,
            crop=[224, 224],
            mirror=ndd.random.coin_flip(batch_size=16, probability=0.5),
            mean=[123.675, 116.28, 103.53],
            std=[58.395, 57.12, 57.375],
        ),
        cv2=_cv2_crop_mirror_normalize,
        tv=_tv_crop_mirror_normalize,
    ),
    Case(
        "random_resized_crop 224",
        ndd=lambda ndd, types, x: ndd.random_resized_crop(x, size=[224, 224]),
        cv2=_cv2_random_resized_crop,
        tv=lambda v2, x: [v2.RandomResizedCrop(224)(image) for image in x],
    ),
    Case(
        "rotate 15 degrees, fading",
        ndd=lambda ndd, types, x: ndd.rotate(x, angle=15.0, keep_size=True, fill_value=0.0, fade=True),
        tv=lambda v2, x: v2.functional.rotate(x, 15.0, interpolation=v2.InterpolationMode.BILINEAR, fill=0),
    ),
    Case(
        "rotate 15 degrees",
        ndd=lambda ndd, types, x: ndd.rotate(x, angle=15.0, keep_size=True, fill_value=0.0),
        cv2=_cv2_rotate,
        tv=lambda v2, x: v2.functional.rotate(x, 15.0, interpolation=v2.InterpolationMode.BILINEAR),
    ),
    Case(
        "warp_affine",
        ndd=lambda ndd, types, x: ndd.warp_affine(x, matrix=[0.9, 0.2, 10.0, -0.2, 0.9, 80.0], fill_value=0.0),
        cv2=lambda cv2, x: cv2.warpAffine(x, _AFFINE, (640, 480), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP),
        tv=lambda v2, x: v2.functional.affine(x, 12.5, [0, 0], 1.08, [0.0, 0.0], interpolation=v2.InterpolationMode.BILINEAR),
    ),
    Case(
        "warp_affine, nearest",
        ndd=lambda ndd, types, x: ndd.warp_affine(x, matrix=[0.9, 0.2, 10.0, -0.2, 0.9, 80.0], fill_value=0.0, interp_type=types.INTERP_NN),
        cv2=lambda cv2, x: cv2.warpAffine(x, _AFFINE, (640, 480), flags=cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP),
        tv=lambda v2, x: v2.functional.affine(x, 12.5, [0, 0], 1.08, [0.0, 0.0]),
    ),
    Case(
        "experimental.warp_perspective",
        ndd=lambda ndd, types, x: ndd.experimental.warp_perspective(x, matrix=[0.9, 0.2, 10.0, -0.2, 0.9, 80.0, 0.0001, 0.0002, 1.0]),
        cv2=lambda cv2, x: cv2.warpPerspective(x, _HOMOGRAPHY, (640, 480), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP),
    ),
    Case(  # DALI has it on the GPU alone
        "experimental.remap",
        ndd=lambda ndd, types, x: ndd.experimental.remap(x, *_maps()),
        cv2=lambda cv2, x: cv2.remap(x, *_maps(), cv2.INTER_LINEAR),
    ),
    Case(
        "water",
        ndd=lambda ndd, types, x: ndd.water(x),
        cv2=lambda cv2, x: cv2.remap(x, *_waves(), cv2.INTER_NEAREST),
    ),
    Case("sphere", ndd=lambda ndd, types, x: ndd.sphere(x)),
    Case(
        "resize_crop_mirror 224",
        ndd=lambda ndd, types, x: ndd.resize_crop_mirror(x, resize_shorter=256.0, crop=[224, 224], mirror=1),
        cv2=lambda cv2, x: cv2.flip(cv2.resize(x, (341, 256), interpolation=cv2.INTER_AREA)[16:240, 58:282], 1),
        tv=lambda v2, x: v2.functional.horizontal_flip(v2.functional.center_crop(_resize(v2, x, (256, 341), "BILINEAR"), [224, 224])),
    ),
    Case(
        "tensor_resize 224",
        ndd=lambda ndd, types, x: ndd.tensor_resize(x, sizes=[224, 224], axes=[0, 1]),
        cv2=lambda cv2, x: cv2.resize(x, (224, 224), interpolation=cv2.INTER_AREA),
        tv=lambda v2, x: _resize(v2, x, (224, 224), "BILINEAR"),
    ),
    Case(
        "transforms.rotation",
        ndd=lambda ndd, types, x: ndd.transforms.rotation(angle=33.0, center=[320.0, 240.0], batch_size=16),
    ),
)
