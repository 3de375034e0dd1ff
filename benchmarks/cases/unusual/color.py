# SPDX-License-Identifier: Apache-2.0
"""Colors, levels, noise and neighborhoods."""

import numpy as np

from ._inputs import arguments, each, frames, on

_ALL = ("1 channel", "4 channels", "int16", "float32", "7x5 pixels", "1281x853", "videos")
_RGB = ("7x5 pixels", "1281x853", "ragged", "videos")
_FILTER = np.array([[-0.4, -0.2, 0.1], [-0.3, 1.0, 0.3], [-0.1, 0.2, 0.5]], np.float32)
_WIDE = np.full((7, 5), 1 / 35, np.float32)
_LEVELS = list(range(256))
_INVERSE = list(range(255, -1, -1))

CASES = (
    *on("brightness", lambda ndd, types, x: ndd.brightness(x, brightness=1.3), *_ALL),
    *on("brightness_contrast", lambda ndd, types, x: ndd.brightness_contrast(x, brightness=1.1, contrast=1.3), "1 channel", "4 channels", "float32"),
    *on("contrast, to float32", lambda ndd, types, x: ndd.contrast(x, contrast=1.3, dtype=ndd.float32), "4 channels", "int16", "1281x853"),
    *on("hsv", lambda ndd, types, x: ndd.hsv(x, hue=20.0, saturation=1.2, value=0.9), *_RGB, tolerance=2.0),
    *on("saturation", lambda ndd, types, x: ndd.saturation(x, saturation=1.2), "ragged", "videos", tolerance=2.0),
    *on("color_twist", lambda ndd, types, x: ndd.color_twist(x, brightness=1.1, contrast=1.2, saturation=0.9, hue=20.0), *_RGB, tolerance=2.0),
    *arguments(
        "colors",
        {
            "brightness a sample": lambda ndd, types, x: ndd.brightness(x, brightness=each(ndd, 0.5, 1.5, 0.9, 1.1, 1.3, 0.7, 2.0, 1.0)),
            "contrast a sample": lambda ndd, types, x: ndd.contrast(
                x, contrast=each(ndd, 0.5, 1.5, 0.9, 1.1, 1.3, 0.7, 2.0, 1.0), contrast_center=100.0
            ),
            "hue a sample": lambda ndd, types, x: ndd.hue(x, hue=each(ndd, 5.0, 15.0, 90.0, 11.0, 130.0, 7.0, 200.0, 10.0)),
            "hsv to float32": lambda ndd, types, x: ndd.hsv(x, hue=20.0, saturation=1.2, value=0.9, dtype=ndd.float32),
            "twist to float32": lambda ndd, types, x: ndd.color_twist(x, brightness=1.1, contrast=1.2, saturation=0.9, hue=20.0, dtype=ndd.float32),
        },
        tolerance=2.0,
    ),
    *arguments(
        "colors",
        {
            "brightness a frame": lambda ndd, types, x: ndd.brightness(x, brightness=frames(ndd, 0.5, 1.5, 0.9, 1.1, 1.3)),
            "twist a frame": lambda ndd, types, x: ndd.color_twist(x, brightness=frames(ndd, 0.5, 1.5, 0.9, 1.1, 1.3), hue=20.0),
        },
        "videos",
        tolerance=2.0,
    ),
    *on(
        "color_space_conversion, RGB to YCbCr",
        lambda ndd, types, x: ndd.color_space_conversion(x, image_type=types.RGB, output_type=types.YCbCr),
        *_RGB,
        tolerance=2.0,
    ),
    *on(
        "color_space_conversion, RGB to GRAY",
        lambda ndd, types, x: ndd.color_space_conversion(x, image_type=types.RGB, output_type=types.GRAY),
        *_RGB,
    ),
    *arguments(
        "color_space_conversion",
        {"GRAY to RGB": lambda ndd, types, x: ndd.color_space_conversion(x, image_type=types.GRAY, output_type=types.RGB)},
        "1 channel",
    ),
    *on("equalize", lambda ndd, types, x: ndd.equalize(x), "1 channel", "4 channels", "7x5 pixels", "1281x853", "ragged", "videos"),
    *on(
        "clahe",
        lambda ndd, types, x: ndd.clahe(x, tiles_x=5, tiles_y=3, clip_limit=3.0),
        "uint8",
        "1 channel",
        "1281x853",
        tolerance=3.0,
        outliers=0.02,
    ),
    *on(
        "jpeg_compression_distortion",
        lambda ndd, types, x: ndd.jpeg_compression_distortion(x, quality=30),
        *("uint8", "7x5 pixels", "1281x853", "videos"),
        tolerance=3.0,
        outliers=0.02,
    ),
    *arguments(
        "jpeg_compression_distortion",
        {"a quality a sample": lambda ndd, types, x: ndd.jpeg_compression_distortion(x, quality=each(ndd, *range(10, 90, 10), dtype=np.int32))},
        tolerance=3.0,
        outliers=0.02,
    ),
    *on(
        "debayer, edges",
        lambda ndd, types, x: ndd.debayer(ndd.crop(x, crop=[212, 320]), blue_position=[0, 1], algorithm="edgeaware_ocv"),
        "1 channel",
    ),
    *on(
        "lookup_table, float32",
        lambda ndd, types, x: ndd.lookup_table(x, keys=_LEVELS, values=_INVERSE),
        "uint8",
        "7x5 pixels",
        "uint16",
        "int16",
        "videos",
    ),
    *arguments(
        "lookup_table",
        {"a few keys, int64": lambda ndd, types, x: ndd.lookup_table(x, keys=[1, 5, 9], values=[3, 4, 5], default_value=7.0, dtype=ndd.int64)},
    ),
    *on("gaussian_blur, window 7", lambda ndd, types, x: ndd.gaussian_blur(x, window_size=7), *_ALL, "CHW"),
    *arguments(
        "gaussian_blur",
        {
            "sigma 5": lambda ndd, types, x: ndd.gaussian_blur(x, sigma=5.0),
            "a sigma an axis": lambda ndd, types, x: ndd.gaussian_blur(x, sigma=[0.7, 3.0]),
            "a sigma a sample": lambda ndd, types, x: ndd.gaussian_blur(x, sigma=each(ndd, 0.5, 1.5, 0.9, 1.1, 1.3, 0.7, 2.0, 1.0)),
            "to float32": lambda ndd, types, x: ndd.gaussian_blur(x, sigma=1.5, dtype=ndd.float32),
        },
    ),
    *arguments(
        "gaussian_blur", {"a sigma a frame": lambda ndd, types, x: ndd.gaussian_blur(x, sigma=frames(ndd, 0.5, 1.5, 0.9, 1.1, 1.3))}, "videos"
    ),
    *arguments("gaussian_blur", {"three axes": lambda ndd, types, x: ndd.gaussian_blur(x, sigma=1.5)}, "volumes"),
    *on("laplacian", lambda ndd, types, x: ndd.laplacian(x), *_ALL, "CHW"),
    *arguments(
        "laplacian",
        {
            "window 7": lambda ndd, types, x: ndd.laplacian(x, window_size=7, normalized_kernel=True),
            "smoothing 1, to float32": lambda ndd, types, x: ndd.laplacian(x, window_size=5, smoothing_size=1, dtype=ndd.float32, scale=0.1),
            "a scale a sample": lambda ndd, types, x: ndd.laplacian(x, scale=each(ndd, 0.5, 1.5, 0.9, 1.1, 1.3, 0.7, 2.0, 1.0)),
        },
    ),
    *on("filter 3x3", lambda ndd, types, x: ndd.filter(x, _FILTER), *_ALL),
    *arguments(
        "filter",
        {
            "7x5": lambda ndd, types, x: ndd.filter(x, _WIDE),
            "to float32": lambda ndd, types, x: ndd.filter(x, _FILTER, dtype=ndd.float32),
            "constant border": lambda ndd, types, x: ndd.filter(x, _FILTER, border="constant"),
            "clamped border": lambda ndd, types, x: ndd.filter(x, _FILTER, border="clamp"),
            "wrapped border": lambda ndd, types, x: ndd.filter(x, _FILTER, border="wrap"),
            "valid": lambda ndd, types, x: ndd.filter(x, _FILTER, mode="valid"),
            "7x5, valid, to float32": lambda ndd, types, x: ndd.filter(x, _WIDE, mode="valid", dtype=ndd.float32),
        },
    ),
    *on("noise.gaussian", lambda ndd, types, x: ndd.noise.gaussian(x, stddev=20.0), "CHW", "int16", "float32", "7x5 pixels", tolerance=float("inf")),
    *on(
        "noise.shot",
        lambda ndd, types, x: ndd.noise.shot(x, factor=5.0),
        "CHW",
        "1 channel",
        "uint16",
        "float32",
        "7x5 pixels",
        "videos",
        tolerance=float("inf"),
    ),
    *on(
        "noise.salt_and_pepper",
        lambda ndd, types, x: ndd.noise.salt_and_pepper(x, prob=0.1),
        "CHW",
        "int16",
        "float32",
        "videos",
        tolerance=float("inf"),
    ),
    *arguments(
        "noise.salt_and_pepper", {"a channel": lambda ndd, types, x: ndd.noise.salt_and_pepper(x, prob=0.1, per_channel=True)}, tolerance=float("inf")
    ),
)
