# SPDX-License-Identifier: Apache-2.0
"""What `python -m torch_ndd.bench ops` measures: one entry an operator.

A new operator is a new `Case`: ``ndd`` gets the imperative module (torch_ndd or DALI's), its enum constants and a
batch; ``cv2`` gets OpenCV and one HWC image; ``tv`` gets `torchvision.transforms.v2` and (N, C, H, W). A competitor
without such an operator is left out. Numbers are written as literals, because DALI runs those faster than computed
values.
"""

from __future__ import annotations

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


# OpenCV has no color_twist, but the affine map of colours that it comes down to; any 3x4 matrix is the same work.
_TWIST = np.array([[1.1, 0.1, -0.05, -12.8], [-0.05, 1.15, 0.1, -12.8], [0.1, -0.05, 1.1, -12.8]], np.float32)


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
            "color_twist",
            ndd=lambda ndd, types, x: ndd.color_twist(x, brightness=1.1, contrast=1.2, saturation=0.9, hue=20.0),
            cv2=lambda cv2, x: cv2.transform(x, _TWIST),
            tv=_tv_color_twist,
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
            "rotate 15 degrees",
            ndd=lambda ndd, types, x: ndd.rotate(x, angle=15.0, keep_size=True, fill_value=0.0),
            cv2=_cv2_rotate,
            tv=lambda v2, x: v2.functional.rotate(x, 15.0, interpolation=v2.InterpolationMode.BILINEAR),
        ),
        Case(
            "reductions.mean of height and width",
            ndd=lambda ndd, types, x: ndd.reductions.mean(x, axes=[0, 1]),
            cv2=lambda cv2, x: np.float32(cv2.mean(x)[:3]),
            tv=lambda v2, x: x.mean((2, 3), dtype=torch.float32),
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
        # What a call costs when there is next to nothing to compute.
        Case("tiny: batch + 1", ndd=lambda ndd, types, x: x + 1, data="tiny"),
        Case("tiny: batch + 1, the call alone", ndd=lambda ndd, types, x: x + 1, data="tiny", call_only=True),
        Case(
            "tiny: cast, the call alone",
            ndd=lambda ndd, types, x: ndd.cast(x, dtype=ndd.int32),
            data="tiny",
            call_only=True,
        ),
    )
}
