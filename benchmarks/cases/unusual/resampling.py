# SPDX-License-Identifier: Apache-2.0
"""Resampling: resize and its like, rotations and other warps."""

import numpy as np

from ._inputs import arguments, each, frames, on

_ALL = ("uint8", "1 channel", "4 channels", "int16", "float32", "1281x853", "ragged", "videos")
_SOME = ("4 channels", "float32", "7x5 pixels")
_MAPS = (((1.1, 0.1, -10.0), (-0.1, 0.9, 5.0)), ((0.8, 0.0, 3.0), (0.2, 1.2, -7.0))) * 4

CASES = (
    *on("resize", lambda ndd, types, x: ndd.resize(x, size=[101, 153]), *_ALL),
    *on("resize, no antialias", lambda ndd, types, x: ndd.resize(x, size=[101, 153], antialias=False), *_SOME, "ragged"),
    *on("resize, nearest", lambda ndd, types, x: ndd.resize(x, size=[101, 153], interp_type=types.INTERP_NN), *_SOME, "int16", outliers=0.03),
    *on("resize, enlarged", lambda ndd, types, x: ndd.resize(x, size=[333, 401]), *_SOME),
    *on("resize, cubic", lambda ndd, types, x: ndd.resize(x, size=[101, 153], interp_type=types.INTERP_CUBIC), *_SOME, tolerance=2.0),
    *on("resize, planes", lambda ndd, types, x: ndd.resize(x, size=[101, 153]), "CHW", "uint16"),
    *on("resize, lanczos", lambda ndd, types, x: ndd.resize(x, size=[333, 401], interp_type=types.INTERP_LANCZOS3), *_SOME, tolerance=2.0),
    *on("resize, gaussian", lambda ndd, types, x: ndd.resize(x, size=[101, 153], interp_type=types.INTERP_GAUSSIAN), *_SOME),
    *arguments(
        "resize",
        {
            "to float32": lambda ndd, types, x: ndd.resize(x, size=[101, 153], dtype=ndd.float32),
            "shorter side": lambda ndd, types, x: ndd.resize(x, resize_shorter=100.0),
            "at most": lambda ndd, types, x: ndd.resize(x, size=[200, 200], mode="not_larger"),
            "one side": lambda ndd, types, x: ndd.resize(x, resize_x=111.0),
            "of the height alone": lambda ndd, types, x: ndd.resize(x, resize_y=99.0, mode="stretch"),
            "a relative region": lambda ndd, types, x: ndd.resize(x, size=[101, 153], roi_start=[0.1, 0.2], roi_end=[0.7, 0.9], roi_relative=True),
            "a region, mirrored": lambda ndd, types, x: ndd.resize(x, size=[101, 153], roi_start=[200.0, 300.0], roi_end=[20.0, 10.0]),
            "a size a sample": lambda ndd, types, x: ndd.resize(x, size=each(ndd, *[(100 + 9 * i, 200 - 13 * i) for i in range(8)])),
            "to a third, nearest up": lambda ndd, types, x: ndd.resize(
                x, size=[71, 107], mag_filter=types.INTERP_NN, min_filter=types.INTERP_TRIANGULAR
            ),
            "to 3x5": lambda ndd, types, x: ndd.resize(x, size=[3, 5]),
        },
    ),
    *arguments(
        "resize", {"a size a frame": lambda ndd, types, x: ndd.resize(x, size=[50, 70], roi_start=[3.0, 5.0], roi_end=[90.0, 100.0])}, "videos"
    ),
    *arguments("resize", {"three axes": lambda ndd, types, x: ndd.resize(x, size=[17, 40, 20])}, "volumes"),
    *arguments(
        "resize",
        {"three axes, cubic": lambda ndd, types, x: ndd.resize(x, size=[17, 40, 20], interp_type=types.INTERP_CUBIC)},
        "volumes",
        tolerance=2.0,
    ),
    *on(
        "resize_crop_mirror",
        lambda ndd, types, x: ndd.resize_crop_mirror(x, resize_shorter=128.0, crop=[101, 103], mirror=1),
        "4 channels",
        "float32",
        "ragged",
    ),
    *arguments(
        "random_resized_crop",
        {
            "no antialias": lambda ndd, types, x: ndd.random_resized_crop(x, size=[101, 103], antialias=False),
            "cubic": lambda ndd, types, x: ndd.random_resized_crop(x, size=[101, 103], interp_type=types.INTERP_CUBIC),
            "a small area": lambda ndd, types, x: ndd.random_resized_crop(x, size=[101, 103], random_area=[0.01, 0.05]),
            "to float32": lambda ndd, types, x: ndd.random_resized_crop(x, size=[101, 103], dtype=ndd.float32),
        },
        tolerance=float("inf"),
    ),
    *on(
        "random_resized_crop",
        lambda ndd, types, x: ndd.random_resized_crop(x, size=[101, 103]),
        "CHW",
        "float32",
        "ragged",
        "videos",
        tolerance=float("inf"),
    ),
    *arguments(
        "tensor_resize",
        {
            "scales": lambda ndd, types, x: ndd.tensor_resize(x, scales=[0.7, 0.6], axes=[0, 1]),
            "the width": lambda ndd, types, x: ndd.tensor_resize(x, sizes=[111], axes=[1]),
            "the channels": lambda ndd, types, x: ndd.tensor_resize(x, sizes=[7], axes=[2]),
        },
    ),
    *on("rotate, kept size", lambda ndd, types, x: ndd.rotate(x, angle=17.0, keep_size=True, fill_value=9.0), *_ALL, tolerance=2.0, outliers=0.01),
    *on("rotate, canvas", lambda ndd, types, x: ndd.rotate(x, angle=33.0), "uint8", "4 channels", "float32", "ragged", tolerance=2.0, outliers=0.01),
    *on("rotate, nearest", lambda ndd, types, x: ndd.rotate(x, angle=17.0, keep_size=True, interp_type=types.INTERP_NN), *_SOME, outliers=0.03),
    *arguments(
        "rotate",
        {
            "an angle a sample, border": lambda ndd, types, x: ndd.rotate(
                x, angle=each(ndd, 1.0, 20.0, -7.0, 90.0, 45.0, 180.0, 3.0, 5.0), keep_size=True
            ),
            "to float32": lambda ndd, types, x: ndd.rotate(x, angle=17.0, keep_size=True, fill_value=0.0, dtype=ndd.float32),
            "90 degrees": lambda ndd, types, x: ndd.rotate(x, angle=90.0),
        },
        tolerance=2.0,
        outliers=0.02,
    ),
    *arguments(
        "rotate",
        {"an angle a frame": lambda ndd, types, x: ndd.rotate(x, angle=frames(ndd, 1.0, 20.0, -7.0, 30.0, 45.0), keep_size=True)},
        "videos",
        outliers=0.03,
    ),
    *arguments(
        "rotate", {"about an axis": lambda ndd, types, x: ndd.rotate(x, angle=17.0, axis=[0.0, 1.0, 1.0], keep_size=True)}, "volumes", outliers=0.05
    ),
    *on(
        "warp_affine",
        lambda ndd, types, x: ndd.warp_affine(x, matrix=[1.083, 0.117, -10.3, -0.119, 0.937, 5.1], fill_value=9.0),
        *_ALL,
        tolerance=2.0,
        outliers=0.01,
    ),
    *on(
        "warp_affine, border",
        lambda ndd, types, x: ndd.warp_affine(x, matrix=[1.083, 0.117, -10.3, -0.119, 0.937, 5.1]),
        *("1 channel", "int16", "float32"),
        tolerance=2.0,
        outliers=0.01,
    ),
    *on(
        "warp_affine, nearest",
        lambda ndd, types, x: ndd.warp_affine(x, matrix=[1.083, 0.117, -10.3, -0.119, 0.937, 5.1], fill_value=9.0, interp_type=types.INTERP_NN),
        *_SOME,
        outliers=0.03,
    ),
    *arguments(
        "warp_affine",
        {
            "a matrix a sample": lambda ndd, types, x: ndd.warp_affine(x, each(ndd, *_MAPS), fill_value=0.0),
            "to float32": lambda ndd, types, x: ndd.warp_affine(
                x, matrix=[1.083, 0.117, -10.3, -0.119, 0.937, 5.1], fill_value=0.0, dtype=ndd.float32
            ),
            "enlarged": lambda ndd, types, x: ndd.warp_affine(x, matrix=[0.5, 0.0, 0.0, 0.0, 0.5, 0.0], size=[426.0, 642.0], fill_value=0.0),
            "mostly fill": lambda ndd, types, x: ndd.warp_affine(x, matrix=[3.0, 0.2, -300.0, -0.2, 3.0, -300.0], fill_value=7.0),
            "not inverse": lambda ndd, types, x: ndd.warp_affine(
                x, matrix=[1.083, 0.117, -10.3, -0.119, 0.937, 5.1], inverse_map=False, fill_value=0.0
            ),
        },
        tolerance=2.0,
        outliers=0.01,
    ),
    *on(
        "experimental.warp_perspective",
        lambda ndd, types, x: ndd.experimental.warp_perspective(
            x, matrix=[0.9, 0.2, 10.0, -0.2, 0.9, 80.0, 0.0001, 0.0002, 1.0], fill_value=[123.0, 117.0, 104.0]
        ),
        *("uint8", "float32", "1281x853"),
        tolerance=2.0,
        outliers=0.02,
    ),
    *on(
        "experimental.warp_perspective, replicate",
        lambda ndd, types, x: ndd.experimental.warp_perspective(
            x, matrix=[0.9, 0.2, 10.0, -0.2, 0.9, 80.0, 0.0001, 0.0002, 1.0], border_mode="replicate"
        ),
        *("uint8", "1 channel", "uint16", "float32"),
        tolerance=2.0,
        outliers=0.02,
    ),
    *arguments(
        "experimental.warp_perspective",
        {
            "reflect": lambda ndd, types, x: ndd.experimental.warp_perspective(
                x, matrix=[0.9, 0.2, 10.0, -0.2, 0.9, 80.0, 0.0001, 0.0002, 1.0], border_mode="reflect_101"
            ),
            "wrap, nearest": lambda ndd, types, x: ndd.experimental.warp_perspective(
                x, matrix=[0.9, 0.2, 10.0, -0.2, 0.9, 80.0, 0.0001, 0.0002, 1.0], border_mode="wrap", interp_type=types.INTERP_NN
            ),
        },
        tolerance=2.0,
        outliers=0.02,
    ),
    *on("water", lambda ndd, types, x: ndd.water(x), "1 channel", "4 channels", "float32", "7x5 pixels", "1281x853", outliers=0.02),
    *arguments(
        "water",
        {
            "linear": lambda ndd, types, x: ndd.water(x, interp_type=types.INTERP_LINEAR),
            "a mask a sample": lambda ndd, types, x: ndd.water(x, mask=each(ndd, 0, 1, 0, 1, 1, 0, 0, 1, dtype=np.int32)),
        },
        outliers=0.02,
    ),
    *on("sphere", lambda ndd, types, x: ndd.sphere(x), "1 channel", "float32", "7x5 pixels", "1281x853", outliers=0.02),
    *arguments("sphere", {"linear": lambda ndd, types, x: ndd.sphere(x, interp_type=types.INTERP_LINEAR)}, outliers=0.02),
)
