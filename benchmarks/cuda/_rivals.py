# SPDX-License-Identifier: Apache-2.0
"""What kornia and CV-CUDA call for the cases that they have: kornia on float32 (N, C, H, W) from 0 to 1, CV-CUDA on uint8 NHWC."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

_AFFINE = np.array([[0.9, 0.2, 10.0], [-0.2, 0.9, 80.0]], np.float32)
_HOMOGRAPHY = np.array([[0.9, 0.2, 10.0], [-0.2, 0.9, 80.0], [0.0001, 0.0002, 1.0]], np.float32)
_MEAN, _STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def _repeat_matrix(x: torch.Tensor, matrix: np.ndarray) -> torch.Tensor:
    """A matrix for each sample that takes a place of the input to one of the output."""
    square = np.vstack([matrix, [0, 0, 1]]) if len(matrix) == 2 else matrix
    inverse = torch.from_numpy(np.linalg.inv(square).astype(np.float32))[: len(matrix)]
    return inverse.to(x.device).expand(len(x), *inverse.shape)


def _kornia_crop_mirror_normalize(k: Any, x: torch.Tensor) -> torch.Tensor:
    x = x[..., 128:352, 208:432]
    mirror = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
    return k.enhance.normalize(torch.where(mirror, k.geometry.hflip(x), x), torch.tensor(_MEAN, device=x.device), torch.tensor(_STD, device=x.device))


# By the case's name: kornia and the batch.
KORNIA: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "brightness": lambda k, x: k.enhance.adjust_brightness_accumulative(x, 1.3),
    "contrast": lambda k, x: k.enhance.adjust_contrast(x, 1.3),
    "hue": lambda k, x: k.enhance.adjust_hue(x, math.radians(20)),
    "saturation": lambda k, x: k.enhance.adjust_saturation(x, 1.2),
    "color_space_conversion, RGB to BGR": lambda k, x: k.color.rgb_to_bgr(x),
    "color_space_conversion, RGB to GRAY": lambda k, x: k.color.rgb_to_grayscale(x),
    "color_space_conversion, RGB to YCbCr": lambda k, x: k.color.rgb_to_ycbcr(x),
    "color_space_conversion, YCbCr to RGB": lambda k, x: k.color.ycbcr_to_rgb(x),
    "equalize": lambda k, x: k.enhance.equalize(x),
    "clahe": lambda k, x: k.enhance.equalize_clahe(x, 2.0, (8, 8)),
    "flip, horizontal": lambda k, x: k.geometry.hflip(x),
    "flip, vertical": lambda k, x: k.geometry.vflip(x),
    "resize 224, linear, antialias": lambda k, x: k.geometry.resize(x, (224, 224), "bilinear", antialias=True),
    "resize 224, linear": lambda k, x: k.geometry.resize(x, (224, 224), "bilinear"),
    "resize 224, cubic": lambda k, x: k.geometry.resize(x, (224, 224), "bicubic"),
    "resize 224, nearest": lambda k, x: k.geometry.resize(x, (224, 224), "nearest"),
    "resize 960x720, linear": lambda k, x: k.geometry.resize(x, (720, 960), "bilinear"),
    "resize 960x720, cubic": lambda k, x: k.geometry.resize(x, (720, 960), "bicubic"),
    "crop_mirror_normalize 224": _kornia_crop_mirror_normalize,
    "rotate 15 degrees": lambda k, x: k.geometry.rotate(x, torch.tensor([15.0], device=x.device)),
    "warp_affine": lambda k, x: k.geometry.warp_affine(x, _repeat_matrix(x, _AFFINE), (480, 640)),
    "warp_affine, nearest": lambda k, x: k.geometry.warp_affine(x, _repeat_matrix(x, _AFFINE), (480, 640), mode="nearest"),
    "experimental.warp_perspective": lambda k, x: k.geometry.warp_perspective(x, _repeat_matrix(x, _HOMOGRAPHY), (480, 640)),
    "gaussian_blur, sigma 1.5": lambda k, x: k.filters.gaussian_blur2d(x, (11, 11), (1.5, 1.5)),
    "laplacian": lambda k, x: k.filters.laplacian(x, 3),
    "median_blur 3x3": lambda k, x: k.filters.median_blur(x, (3, 3)),
    "median_blur 5x5": lambda k, x: k.filters.median_blur(x, (5, 5)),
    "dilate 3x3": lambda k, x: k.morphology.dilation(x, torch.ones(3, 3, device=x.device)),
    "erode 7x7": lambda k, x: k.morphology.erosion(x, torch.ones(7, 7, device=x.device)),
}


def _cv_resize(cv: Any, x: Any, height: int, width: int, interpolation: Any) -> Any:
    return cv.resize(x, (x.shape[0], height, width, x.shape[3]), interpolation)


def _cv_crop_normalize(cv: Any, x: Any) -> Any:
    """Its fused operator takes images one by one; three calls on the whole batch are quicker to prepare."""
    rows = cv.convertto(cv.center_crop(x, (224, 224)), np.float32)
    base = [255 * value for value in _MEAN]
    scale = [255 * value for value in _STD]
    normalized = cv.normalize(cv.flip(rows, 1), base, scale, int(cv.NormalizeFlags.SCALE_IS_STDDEV))
    return cv.reformat(normalized, cv.TensorLayout("NCHW"))


def _cv_rotate(cv: Any, x: Any) -> Any:
    cos, sin = math.cos(math.radians(15)), math.sin(math.radians(15))
    shift = ((1 - cos) * 319.5 - sin * 239.5, sin * 319.5 + (1 - cos) * 239.5)
    return cv.rotate(x, 15.0, shift, cv.Interp.LINEAR)


# By the case's name: CV-CUDA and the batch as its tensor. The stream is set around the call.
CVCUDA: dict[str, Callable[[Any, Any], Any]] = {
    "brightness": lambda cv, x: cv.brightness_contrast(x, 1.3, 1.0, 0.0, 128.0, clamp=True),
    "contrast": lambda cv, x: cv.brightness_contrast(x, 1.0, 1.3, 0.0, 128.0, clamp=True),
    "brightness_contrast": lambda cv, x: cv.brightness_contrast(x, 1.1, 1.3, 0.0, 128.0, clamp=True),
    "color_space_conversion, RGB to BGR": lambda cv, x: cv.cvtcolor(x, cv.ColorConversion.RGB2BGR),
    "color_space_conversion, RGB to GRAY": lambda cv, x: cv.cvtcolor(x, cv.ColorConversion.RGB2GRAY),
    "cast to float32": lambda cv, x: cv.convertto(x, np.float32),
    "equalize": lambda cv, x: cv.histogrameq(x, np.uint8),
    "flip, horizontal": lambda cv, x: cv.flip(x, 1),
    "flip, vertical": lambda cv, x: cv.flip(x, 0),
    "crop 224": lambda cv, x: cv.center_crop(x, (224, 224)),
    "slice": lambda cv, x: cv.customcrop(x, cv.RectI(64, 120, 512, 240)),
    "pad to 512x704": lambda cv, x: cv.copymakeborder(x, cv.Border.CONSTANT, [7.0, 7.0, 7.0], top=0, bottom=32, left=0, right=64),
    "crop_mirror_normalize 224": _cv_crop_normalize,
    "transpose to CHW": lambda cv, x: cv.reformat(x, cv.TensorLayout("NCHW")),
    "resize 224, linear, antialias": lambda cv, x: cv.hq_resize(x, (224, 224), antialias=True, interpolation=cv.Interp.LINEAR),
    "resize 224, cubic, antialias": lambda cv, x: cv.hq_resize(x, (224, 224), antialias=True, interpolation=cv.Interp.CUBIC),
    "resize 224, linear": lambda cv, x: _cv_resize(cv, x, 224, 224, cv.Interp.LINEAR),
    "resize 224, cubic": lambda cv, x: _cv_resize(cv, x, 224, 224, cv.Interp.CUBIC),
    "resize 224, nearest": lambda cv, x: _cv_resize(cv, x, 224, 224, cv.Interp.NEAREST),
    "resize 960x720, linear": lambda cv, x: _cv_resize(cv, x, 720, 960, cv.Interp.LINEAR),
    "resize 960x720, cubic": lambda cv, x: _cv_resize(cv, x, 720, 960, cv.Interp.CUBIC),
    "rotate 15 degrees": _cv_rotate,
    "warp_affine": lambda cv, x: cv.warp_affine(x, _AFFINE, cv.Interp.LINEAR | cv.Interp.WARP_INVERSE_MAP),
    "warp_affine, nearest": lambda cv, x: cv.warp_affine(x, _AFFINE, cv.Interp.NEAREST | cv.Interp.WARP_INVERSE_MAP),
    "experimental.warp_perspective": lambda cv, x: cv.warp_perspective(
        x, _HOMOGRAPHY, cv.Interp.LINEAR | cv.Interp.WARP_INVERSE_MAP, border_mode=cv.Border.CONSTANT, border_value=np.zeros(3, np.float32)
    ),
    "gaussian_blur, sigma 1.5": lambda cv, x: cv.gaussian(x, (11, 11), (1.5, 1.5), cv.Border.REFLECT101),
    "laplacian": lambda cv, x: cv.laplacian(x, 3, 1.0, cv.Border.REFLECT101),
    "median_blur 3x3": lambda cv, x: cv.median_blur(x, (3, 3)),
    "median_blur 5x5": lambda cv, x: cv.median_blur(x, (5, 5)),
    "dilate 3x3": lambda cv, x: cv.morphology(x, cv.MorphologyType.DILATE, (3, 3), (-1, -1)),
    "erode 7x7": lambda cv, x: cv.morphology(x, cv.MorphologyType.ERODE, (7, 7), (-1, -1)),
    "noise.gaussian": lambda cv, x: cv.gaussiannoise(x, 0.0, 10 / 255, True, seed=7),
}
