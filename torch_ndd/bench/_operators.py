# SPDX-License-Identifier: Apache-2.0
"""What `python -m torch_ndd.bench ops` measures: one entry an operator.

A new operator is a new `Case`: ``ndd`` gets the imperative module (torch_ndd or DALI's), its enum constants and a
batch; ``cv2`` gets OpenCV and one HWC image; ``tv`` gets `torchvision.transforms.v2` and (N, C, H, W). A competitor
without such an operator is left out. Numbers are written as literals, because DALI runs those faster than computed
values.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from ._photos import vga_images

# The input of a case, by name: an array with one sample a row.
DATA: dict[str, Callable[[], np.ndarray]] = {
    "vga": vga_images,
    "vga_gray": lambda: np.ascontiguousarray(vga_images()[..., :1]),
    "labels": lambda: np.arange(16 * 64, dtype=np.int32).reshape(16, 64),
    "64 rows": lambda: np.zeros((64, 1), np.float32),
    "tiny": lambda: np.arange(64, dtype=np.float32).reshape(16, 4),
}


@dataclass(frozen=True)
class Case:
    """One operator and how each competitor runs it."""

    name: str
    ndd: Callable[[ModuleType, ModuleType, Any], Any]
    cv2: Callable[[Any, np.ndarray], Any] | None = None
    tv: Callable[[Any, Any], Any] | None = None
    data: str = "vga"
    call_only: bool = False  # time the call without waiting for the result


_GENERATOR = np.random.default_rng(1)

# OpenCV has no color_twist, but the affine map of colours that it comes down to; any 3x4 matrix is the same work.
_TWIST = np.array([[1.1, 0.1, -0.05, -12.8], [-0.05, 1.15, 0.1, -12.8], [0.1, -0.05, 1.1, -12.8]], np.float32)


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


_SHARPEN = np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]], np.float32)
_EMBOSS = np.array([[-0.4, -0.2, 0.1], [-0.3, 1.0, 0.3], [-0.1, 0.2, 0.5]], np.float32)


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


def _tv_color_twist(v2: Any, images: Any) -> Any:
    f = v2.functional
    images = f.adjust_contrast(f.adjust_brightness(images, 1.1), 1.2)
    return f.adjust_hue(f.adjust_saturation(images, 0.9), 20 / 360)


_LEVELS = list(range(256))
_INVERSE = list(range(255, -1, -1))


def _cv2_normalize(cv2: Any, image: np.ndarray) -> Any:
    mean, deviation = cv2.meanStdDev(image.reshape(-1))
    scale = 1 / deviation[0, 0]
    return cv2.addWeighted(image, scale, image, 0.0, -mean[0, 0] * scale, dtype=cv2.CV_32F)


def _cv2_clahe(cv2: Any, image: np.ndarray) -> Any:
    lab = cv2.cvtColor(image, cv2.COLOR_RGB2LAB)
    lightness = cv2.createCLAHE(clipLimit=2.0, tileGridSize=(8, 8)).apply(cv2.extractChannel(lab, 0))
    cv2.insertChannel(lightness, lab, 0)
    return cv2.cvtColor(lab, cv2.COLOR_LAB2RGB)


def _cv2_rotate(cv2: Any, image: np.ndarray) -> Any:
    height, width = image.shape[:2]
    return cv2.warpAffine(image, cv2.getRotationMatrix2D((width / 2, height / 2), 15, 1.0), (width, height), flags=cv2.INTER_LINEAR)


def _resize(v2: Any, images: Any, size: tuple[int, int], mode: str, antialias: bool = True) -> Any:
    return v2.functional.resize(images, list(size), interpolation=v2.InterpolationMode[mode], antialias=antialias)


CASES: dict[str, Case] = {
    case.name: case
    for case in (
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
            cv2=lambda cv2, x: x[128:352, 208:432].copy(),
            tv=lambda v2, x: v2.functional.center_crop(x, [224, 224]).clone(),
        ),
        Case(
            "slice",
            ndd=lambda ndd, types, x: ndd.slice(x, rel_start=[0.25, 0.1], rel_shape=[0.5, 0.8], axis_names="HW"),
            cv2=lambda cv2, x: x[120:360, 64:576].copy(),
            tv=lambda v2, x: v2.functional.crop(x, 120, 64, 240, 512).clone(),
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
            "transpose to CHW",
            ndd=lambda ndd, types, x: ndd.transpose(x, perm=[2, 0, 1]),
            cv2=lambda cv2, x: cv2.split(x),
            tv=lambda v2, x: x.permute(0, 2, 3, 1).contiguous(),  # the other way round: its images are planes
        ),
        Case(
            "transpose, height and width",
            ndd=lambda ndd, types, x: ndd.transpose(x, perm=[1, 0, 2]),
            cv2=lambda cv2, x: cv2.transpose(x),
            tv=lambda v2, x: x.transpose(2, 3).contiguous(),
        ),
        Case(
            "cat, 2 along the width",
            ndd=lambda ndd, types, x: ndd.cat(x, x, axis=1),
            cv2=lambda cv2, x: cv2.hconcat([x, x]),
            tv=lambda v2, x: torch.cat([x, x], 3),
        ),
        Case(
            "stack, 2",
            ndd=lambda ndd, types, x: ndd.stack(x, x),
            cv2=lambda cv2, x: np.stack([x, x]),
            tv=lambda v2, x: torch.stack([x, x], 1),
        ),
        Case(
            "copy",
            ndd=lambda ndd, types, x: ndd.copy(x),
            cv2=lambda cv2, x: x.copy(),
            tv=lambda v2, x: x.clone(),
        ),
        Case("reshape", ndd=lambda ndd, types, x: ndd.reshape(x, shape=[640, 480, 3])),
        Case("reinterpret", ndd=lambda ndd, types, x: ndd.reinterpret(x, dtype=ndd.int16, shape=[-1])),
        Case("expand_dims", ndd=lambda ndd, types, x: ndd.expand_dims(x, axes=[0])),
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
        Case("one_hot, 1000 classes", ndd=lambda ndd, types, x: ndd.one_hot(x, num_classes=1000), data="labels"),
        Case(
            "full 480x640x3",
            ndd=lambda ndd, types, x: ndd.full_like(x, 7),
            cv2=lambda cv2, x: np.full_like(x, 7),
            tv=lambda v2, x: torch.full_like(x, 7),
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
            "brightness",
            ndd=lambda ndd, types, x: ndd.brightness(x, brightness=1.3),
            cv2=lambda cv2, x: cv2.convertScaleAbs(x, alpha=1.3),
            tv=lambda v2, x: v2.functional.adjust_brightness(x, 1.3),
        ),
        Case(
            "contrast",
            ndd=lambda ndd, types, x: ndd.contrast(x, contrast=1.3),
            cv2=lambda cv2, x: cv2.convertScaleAbs(x, alpha=1.3, beta=-38.4),
            tv=lambda v2, x: v2.functional.adjust_contrast(x, 1.3),
        ),
        Case(
            "brightness_contrast",
            ndd=lambda ndd, types, x: ndd.brightness_contrast(x, brightness=1.1, contrast=1.3),
            cv2=lambda cv2, x: cv2.convertScaleAbs(x, alpha=1.43, beta=-42.2),
            tv=lambda v2, x: v2.functional.adjust_brightness(v2.functional.adjust_contrast(x, 1.3), 1.1),
        ),
        Case(
            "hsv",
            ndd=lambda ndd, types, x: ndd.hsv(x, hue=20.0, saturation=1.2, value=0.9),
            cv2=lambda cv2, x: cv2.transform(x, _TWIST),
            tv=lambda v2, x: v2.functional.adjust_brightness(v2.functional.adjust_saturation(v2.functional.adjust_hue(x, 20 / 360), 1.2), 0.9),
        ),
        Case(
            "hue",
            ndd=lambda ndd, types, x: ndd.hue(x, hue=20.0),
            cv2=lambda cv2, x: cv2.transform(x, _TWIST),
            tv=lambda v2, x: v2.functional.adjust_hue(x, 20 / 360),
        ),
        Case(
            "saturation",
            ndd=lambda ndd, types, x: ndd.saturation(x, saturation=1.2),
            cv2=lambda cv2, x: cv2.transform(x, _TWIST),
            tv=lambda v2, x: v2.functional.adjust_saturation(x, 1.2),
        ),
        Case(
            "color_space_conversion, RGB to BGR",
            ndd=lambda ndd, types, x: ndd.color_space_conversion(x, image_type=types.RGB, output_type=types.BGR),
            cv2=lambda cv2, x: cv2.cvtColor(x, cv2.COLOR_RGB2BGR),
            tv=lambda v2, x: x.flip(1),
        ),
        Case(
            "color_space_conversion, RGB to GRAY",
            ndd=lambda ndd, types, x: ndd.color_space_conversion(x, image_type=types.RGB, output_type=types.GRAY),
            cv2=lambda cv2, x: cv2.cvtColor(x, cv2.COLOR_RGB2GRAY),
            tv=lambda v2, x: v2.functional.rgb_to_grayscale(x),
        ),
        Case(
            "color_space_conversion, RGB to YCbCr",
            ndd=lambda ndd, types, x: ndd.color_space_conversion(x, image_type=types.RGB, output_type=types.YCbCr),
            cv2=lambda cv2, x: cv2.cvtColor(x, cv2.COLOR_RGB2YCrCb),
        ),
        Case(
            "color_space_conversion, YCbCr to RGB",
            ndd=lambda ndd, types, x: ndd.color_space_conversion(x, image_type=types.YCbCr, output_type=types.RGB),
            cv2=lambda cv2, x: cv2.cvtColor(x, cv2.COLOR_YCrCb2RGB),
        ),
        Case(
            "color_twist",
            ndd=lambda ndd, types, x: ndd.color_twist(x, brightness=1.1, contrast=1.2, saturation=0.9, hue=20.0),
            cv2=lambda cv2, x: cv2.transform(x, _TWIST),
            tv=_tv_color_twist,
        ),
        Case(
            "lookup_table, uint8 to uint8",
            ndd=lambda ndd, types, x: ndd.lookup_table(x, keys=_LEVELS, values=_INVERSE, dtype=ndd.uint8),
            cv2=lambda cv2, x: cv2.LUT(x, np.array(_INVERSE, np.uint8)),
            tv=lambda v2, x: v2.functional.invert(x),
        ),
        Case(
            "lookup_table, uint8 to float32",
            ndd=lambda ndd, types, x: ndd.lookup_table(x, keys=_LEVELS, values=_INVERSE),
            cv2=lambda cv2, x: cv2.LUT(x, np.array(_INVERSE, np.float32)),
        ),
        Case(
            "normalize by the image",
            ndd=lambda ndd, types, x: ndd.normalize(x),
            cv2=_cv2_normalize,
        ),
        Case(
            "normalize by the channels",
            ndd=lambda ndd, types, x: ndd.normalize(x, axes=[0, 1]),
        ),
        Case(  # OpenCV's function takes one channel
            "equalize",
            ndd=lambda ndd, types, x: ndd.equalize(x),
            cv2=lambda cv2, x: cv2.merge([cv2.equalizeHist(channel) for channel in cv2.split(x)]),
            tv=lambda v2, x: v2.functional.equalize(x),
        ),
        Case(
            "equalize, one channel",
            ndd=lambda ndd, types, x: ndd.equalize(x),
            cv2=lambda cv2, x: cv2.equalizeHist(x),
            tv=lambda v2, x: v2.functional.equalize(x),
            data="vga_gray",
        ),
        Case(
            "clahe",
            ndd=lambda ndd, types, x: ndd.clahe(x, tiles_x=8, tiles_y=8, clip_limit=2.0),
            cv2=_cv2_clahe,
        ),
        Case(
            "clahe, one channel",
            ndd=lambda ndd, types, x: ndd.clahe(x, tiles_x=8, tiles_y=8, clip_limit=2.0),
            cv2=lambda cv2, x: cv2.createCLAHE(clipLimit=2.0, tileGridSize=(8, 8)).apply(x),
            data="vga_gray",
        ),
        Case(
            "debayer, bilinear",
            ndd=lambda ndd, types, x: ndd.debayer(x, blue_position=[0, 0]),
            cv2=lambda cv2, x: cv2.cvtColor(x, cv2.COLOR_BayerBG2RGB),
            data="vga_gray",
        ),
        Case(
            "debayer, gradients",
            ndd=lambda ndd, types, x: ndd.debayer(x, blue_position=[0, 0], algorithm="vng_ocv"),
            cv2=lambda cv2, x: cv2.cvtColor(x, cv2.COLOR_BayerBG2RGB_VNG),
            data="vga_gray",
        ),
        Case(
            "cast to float32",
            ndd=lambda ndd, types, x: ndd.cast(x, dtype=ndd.float32),
            cv2=lambda cv2, x: x.astype(np.float32),
            tv=lambda v2, x: x.float(),
        ),
        Case(
            "gaussian_blur, sigma 1.5",
            ndd=lambda ndd, types, x: ndd.gaussian_blur(x, sigma=1.5),
            cv2=lambda cv2, x: cv2.GaussianBlur(x, (11, 11), 1.5),  # the window that DALI takes for this sigma
            tv=lambda v2, x: v2.functional.gaussian_blur(x, [11, 11], [1.5, 1.5]),
        ),
        Case(
            "laplacian",
            ndd=lambda ndd, types, x: ndd.laplacian(x),
            cv2=lambda cv2, x: cv2.Laplacian(x, -1, ksize=3),
        ),
        Case(
            "filter 3x3, sharpening",
            ndd=lambda ndd, types, x: ndd.filter(x, _SHARPEN),
            cv2=lambda cv2, x: cv2.filter2D(x, -1, _SHARPEN),
        ),
        Case(
            "filter 3x3, fractions",
            ndd=lambda ndd, types, x: ndd.filter(x, _EMBOSS),
            cv2=lambda cv2, x: cv2.filter2D(x, -1, _EMBOSS),
        ),
        # DALI has these three on the GPU alone.
        Case(
            "median_blur 3x3",
            ndd=lambda ndd, types, x: ndd.experimental.median_blur(x),
            cv2=lambda cv2, x: cv2.medianBlur(x, 3),
        ),
        Case(
            "median_blur 5x5",
            ndd=lambda ndd, types, x: ndd.experimental.median_blur(x, window_size=[5, 5]),
            cv2=lambda cv2, x: cv2.medianBlur(x, 5),
        ),
        Case(
            "dilate 3x3",
            ndd=lambda ndd, types, x: ndd.experimental.dilate(x),
            cv2=lambda cv2, x: cv2.dilate(x, np.ones((3, 3), np.uint8)),
        ),
        Case(
            "erode 7x7",
            ndd=lambda ndd, types, x: ndd.experimental.erode(x, mask_size=[7, 7]),
            cv2=lambda cv2, x: cv2.erode(x, np.ones((7, 7), np.uint8)),
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
        Case(
            "reductions.mean of height and width",
            ndd=lambda ndd, types, x: ndd.reductions.mean(x, axes=[0, 1]),
            cv2=lambda cv2, x: np.float32(cv2.mean(x)[:3]),
            tv=lambda v2, x: x.mean((2, 3), dtype=torch.float32),
        ),
        Case(
            "reductions.mean of channels",
            ndd=lambda ndd, types, x: ndd.reductions.mean(x, axes=[2]),
            tv=lambda v2, x: x.mean(1, dtype=torch.float32),
        ),
        Case(
            "reductions.mean of width",
            ndd=lambda ndd, types, x: ndd.reductions.mean(x, axes=[1]),
            cv2=lambda cv2, x: cv2.reduce(x, 1, cv2.REDUCE_AVG, dtype=cv2.CV_32F),
            tv=lambda v2, x: x.mean(3, dtype=torch.float32),
        ),
        Case(
            "reductions.sum",
            ndd=lambda ndd, types, x: ndd.reductions.sum(x),
            cv2=lambda cv2, x: cv2.sumElems(x),
            tv=lambda v2, x: x.sum((1, 2, 3)),
        ),
        Case(
            "reductions.max of height and width",
            ndd=lambda ndd, types, x: ndd.reductions.max(x, axes=[0, 1]),
            tv=lambda v2, x: x.amax((2, 3)),
        ),
        Case(
            "reductions.mean_square",
            ndd=lambda ndd, types, x: ndd.reductions.mean_square(x),
            cv2=lambda cv2, x: cv2.norm(x, cv2.NORM_L2SQR),
            tv=lambda v2, x: x.float().square_().mean((1, 2, 3)),
        ),
        Case(  # OpenCV's and torch's functions find the mean as well
            "reductions.std_dev of height and width",
            ndd=lambda ndd, types, x: ndd.reductions.std_dev(x, ndd.reductions.mean(x, axes=[0, 1]), axes=[0, 1]),
            cv2=lambda cv2, x: cv2.meanStdDev(x)[1],
            tv=lambda v2, x: x.float().std((2, 3)),
        ),
        Case(
            "arithmetic, x * 0.5",
            ndd=lambda ndd, types, x: x * 0.5,
            cv2=lambda cv2, x: cv2.multiply(x, (0.5, 0.5, 0.5, 0.5), dtype=cv2.CV_32F),
            tv=lambda v2, x: x * 0.5,
        ),
        Case(  # two operators against one fused call of OpenCV
            "arithmetic, x * 0.5 + 3",
            ndd=lambda ndd, types, x: x * 0.5 + 3,
            cv2=lambda cv2, x: cv2.addWeighted(x, 0.5, x, 0.0, 3.0, dtype=cv2.CV_32F),
            tv=lambda v2, x: x * 0.5 + 3,
        ),
        Case(
            "random.uniform 480x640",
            ndd=lambda ndd, types, x: ndd.random.uniform(range=[0.0, 1.0], shape=[480, 640], batch_size=16),
            cv2=lambda cv2, x: cv2.randu(np.empty((480, 640), np.float32), 0.0, 1.0),
            tv=lambda v2, x: x.new_empty((len(x), 480, 640), dtype=torch.float32).uniform_(),
        ),
        Case(
            "random.coin_flip 480x640",
            ndd=lambda ndd, types, x: ndd.random.coin_flip(probability=0.5, shape=[480, 640], batch_size=16),
            tv=lambda v2, x: x.new_empty((len(x), 480, 640), dtype=torch.int32).bernoulli_(0.5),
        ),
        Case(
            "random.normal 64x4096",
            ndd=lambda ndd, types, x: ndd.random.normal(shape=[4096], batch_size=64),
            cv2=lambda cv2, x: _GENERATOR.standard_normal((4096,), dtype=np.float32),  # numpy, which is faster than OpenCV
            tv=lambda v2, x: torch.randn(64, 4096),
            data="64 rows",
        ),
        Case(
            "random.beta 64x4096",
            ndd=lambda ndd, types, x: ndd.random.beta(alpha=0.4, beta=0.4, shape=[4096], batch_size=64),
            cv2=lambda cv2, x: _GENERATOR.beta(0.4, 0.4, 4096),  # numpy
            data="64 rows",
        ),
        Case(
            "random.choice 64x4096, with probabilities",
            ndd=lambda ndd, types, x: ndd.random.choice([1, 2, 3, 4], p=[0.1, 0.2, 0.3, 0.4], shape=[4096], batch_size=64),
            cv2=lambda cv2, x: _GENERATOR.choice(4, 4096, p=[0.1, 0.2, 0.3, 0.4]),  # numpy
            data="64 rows",
        ),
        Case(
            "noise.gaussian",
            ndd=lambda ndd, types, x: ndd.noise.gaussian(x, stddev=10.0),
            cv2=lambda cv2, x: cv2.add(x, cv2.randn(np.empty(x.shape, np.int16), (0, 0, 0), (10, 10, 10)), dtype=cv2.CV_8U),
            tv=lambda v2, x: v2.functional.gaussian_noise(x.float() / 255, 0.0, 10 / 255),
        ),
        Case("noise.shot", ndd=lambda ndd, types, x: ndd.noise.shot(x, factor=20.0), tv=lambda v2, x: torch.poisson(x.float() / 20) * 20),
        Case("noise.salt_and_pepper", ndd=lambda ndd, types, x: ndd.noise.salt_and_pepper(x, prob=0.05)),
        Case(
            "batch_permutation, permute_batch",
            ndd=lambda ndd, types, x: ndd.permute_batch(x, indices=ndd.batch_permutation(batch_size=16)),
            tv=lambda v2, x: x[torch.randperm(len(x))],
        ),
        Case(
            "random_crop_generator",
            ndd=lambda ndd, types, x: ndd.random_crop_generator([480, 640, 3], batch_size=16)[1],
            tv=lambda v2, x: [v2.RandomResizedCrop(224).make_params([image]) for image in x],
        ),
        Case(
            "math.exp",
            ndd=lambda ndd, types, x: ndd.math.exp(x),
            cv2=lambda cv2, x: cv2.exp(x.astype(np.float32)),
            tv=lambda v2, x: x.exp(),
        ),
        Case(
            "math.clamp to 20...200",
            ndd=lambda ndd, types, x: ndd.math.clamp(x, 20, 200),
            tv=lambda v2, x: x.clamp(20, 200).int(),
        ),
        Case(
            "comparison, x < 100",
            ndd=lambda ndd, types, x: x < 100,
            cv2=lambda cv2, x: cv2.compare(x, (100.0, 100.0, 100.0, 0.0), cv2.CMP_LT),
            tv=lambda v2, x: x < 100,
        ),
        # What a call costs when there is next to nothing to compute.
        Case("tiny: batch + 1", ndd=lambda ndd, types, x: x + 1, data="tiny"),
        Case("tiny: ten operations in a chain", ndd=lambda ndd, types, x: ((((x + 1) * 2 - 3) / 4 + x) * 0.5 - x) * 3.0 + 2 - x, data="tiny"),
        Case("tiny: batch + 1, the call alone", ndd=lambda ndd, types, x: x + 1, data="tiny", call_only=True),
        Case(
            "tiny: cast, the call alone",
            ndd=lambda ndd, types, x: ndd.cast(x, dtype=ndd.int32),
            data="tiny",
            call_only=True,
        ),
    )
}
