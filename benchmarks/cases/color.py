# SPDX-License-Identifier: Apache-2.0
"""Operators of single pixels and their values."""

from typing import Any

import numpy as np

from ._case import Case

# OpenCV has no color_twist, but the affine map of colors that it comes down to; any 3x4 matrix is the same work.
_TWIST = np.array([[1.1, 0.1, -0.05, -12.8], [-0.05, 1.15, 0.1, -12.8], [0.1, -0.05, 1.1, -12.8]], np.float32)


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


def _tv_color_jitter(v2: Any, images: Any) -> Any:
    f = v2.functional
    images = f.adjust_contrast(f.adjust_brightness(images, 1.1), 0.9)
    return f.adjust_hue(f.adjust_saturation(images, 1.2), 0.1)


CASES = (
    Case(
        "brightness",
        ndd=lambda ndd, types, x: ndd.brightness(x, brightness=1.3),
        cv2=lambda cv2, x: cv2.convertScaleAbs(x, alpha=1.3),
        tv=lambda v2, x: v2.functional.adjust_brightness(x, 1.3),
    ),
    Case(
        "color_jitter",
        ndd=lambda ndd, types, x: ndd.color_jitter(x, brightness=1.1, contrast=0.9, saturation=1.2, hue=0.1),
        tv=_tv_color_jitter,
    ),
    Case(
        "color_jitter, contrast",
        ndd=lambda ndd, types, x: ndd.color_jitter(x, contrast=1.3),
        tv=lambda v2, x: v2.functional.adjust_contrast(x, 1.3),
    ),
    Case(
        "color_jitter, hue",
        ndd=lambda ndd, types, x: ndd.color_jitter(x, hue=0.1),
        tv=lambda v2, x: v2.functional.adjust_hue(x, 0.1),
    ),
    Case(
        "grayscale",
        ndd=lambda ndd, types, x: ndd.grayscale(x),
        cv2=lambda cv2, x: cv2.cvtColor(x, cv2.COLOR_RGB2GRAY),
        tv=lambda v2, x: v2.functional.rgb_to_grayscale(x),
    ),
    Case(
        "invert",
        ndd=lambda ndd, types, x: ndd.invert(x),
        cv2=lambda cv2, x: cv2.bitwise_not(x),
        tv=lambda v2, x: v2.functional.invert(x),
    ),
    Case(
        "solarize",
        ndd=lambda ndd, types, x: ndd.solarize(x, threshold=100.0),
        tv=lambda v2, x: v2.functional.solarize(x, 100.0),
    ),
    Case(
        "gamma",
        ndd=lambda ndd, types, x: ndd.gamma(x, gamma=1.7),
        tv=lambda v2, x: v2.functional.adjust_gamma(x, 1.7),
    ),
    Case(
        "autocontrast",
        ndd=lambda ndd, types, x: ndd.autocontrast(x),
        tv=lambda v2, x: v2.functional.autocontrast(x),
    ),
    Case(
        "permute_channels",
        ndd=lambda ndd, types, x: ndd.permute_channels(x, permutation=[2, 0, 1]),
        tv=lambda v2, x: v2.functional.permute_channels(x, [2, 0, 1]),
    ),
    Case(
        "posterize",
        ndd=lambda ndd, types, x: ndd.posterize(x, bits=3),
        tv=lambda v2, x: v2.functional.posterize(x, 3),
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
        "equalize, Pillow's rule",
        ndd=lambda ndd, types, x: ndd.equalize(x, rule="pillow"),
        tv=lambda v2, x: v2.functional.equalize(x),
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
    Case(  # torchvision's takes three times as long as OpenCV's, and warns that it will go
        "jpeg_compression_distortion",
        ndd=lambda ndd, types, x: ndd.jpeg_compression_distortion(x, quality=50),
        cv2=lambda cv2, x: cv2.imdecode(cv2.imencode(".jpg", x, [cv2.IMWRITE_JPEG_QUALITY, 50])[1], cv2.IMREAD_COLOR),
    ),
    Case(
        "cast to float32",
        ndd=lambda ndd, types, x: ndd.cast(x, dtype=ndd.float32),
        np=lambda x: x.astype(np.float32),
        tv=lambda v2, x: x.float(),
    ),
)
