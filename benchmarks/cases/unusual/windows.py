# SPDX-License-Identifier: Apache-2.0
"""Windows, canvases and order: crop, slice, pad, paste, erase, flip, transpose, cat and their like."""

import numpy as np

from ._inputs import arguments, each, on

_INT32 = np.int32
_ANCHORS = [float(v) for k in range(20) for v in (9 * k, 15 * (k * 7 % 20))]
_ALL = ("CHW", "4 channels", "uint16", "float32", "7x5 pixels", "1281x853", "ragged", "videos")

CASES = (
    *on("crop, relative position", lambda ndd, types, x: ndd.crop(x, crop=[5, 3], crop_pos_x=0.3, crop_pos_y=0.7), "7x5 pixels", "CHW", "videos"),
    *on(
        "crop, a fill a channel",
        lambda ndd, types, x: ndd.crop(x, crop=[533, 801], out_of_bounds_policy="pad", fill_values=[123.0, 117.0, 104.0]),
        *("uint8", "CHW", "uint16", "float16", "float32", "ragged", "videos"),
    ),
    *arguments(
        "crop",
        {
            "a fill a channel": lambda ndd, types, x: ndd.crop(
                x, crop=[533, 801], out_of_bounds_policy="pad", fill_values=[123.0, 117.0, 104.0, 7.0]
            ),
            "to float32": lambda ndd, types, x: ndd.crop(x, crop=[101, 203], dtype=ndd.float32),
        },
        "4 channels",
    ),
    *arguments(
        "crop",
        {
            "a window a sample": lambda ndd, types, x: ndd.crop(x, crop=[101, 203], crop_pos_x=each(ndd, 0.1, 0.9, 0.3, 0.2, 0.4, 0.5, 0.8, 0.7)),
            "to float32": lambda ndd, types, x: ndd.crop(x, crop=[101, 203], dtype=ndd.float32),
            "to float16": lambda ndd, types, x: ndd.crop(x, crop=[101, 203], dtype=ndd.float16),
            "trimmed": lambda ndd, types, x: ndd.crop(x, crop=[533, 203], out_of_bounds_policy="trim_to_shape"),
        },
    ),
    *arguments(
        "crop",
        {"a position a frame": lambda ndd, types, x: ndd.crop(x, crop=[53, 61], crop_pos_x=each(ndd, 0.1, 0.9, 0.3, 0.2))},
        "videos",
    ),
    *arguments("crop", {"in depth": lambda ndd, types, x: ndd.crop(x, crop_d=17, crop_h=31, crop_w=7)}, "volumes"),
    *arguments(
        "slice",
        {
            "a fill a channel": lambda ndd, types, x: ndd.slice(
                x, start=[-160, -240], shape=[533, 801], axis_names="HW", out_of_bounds_policy="pad", fill_values=[123.0, 117.0, 104.0]
            ),
            "start and end": lambda ndd, types, x: ndd.slice(x, start=[11, 13], end=[201, 301], axis_names="HW"),
            "relative end": lambda ndd, types, x: ndd.slice(x, rel_start=[0.1, 0.2], rel_end=[0.9, 0.7], axis_names="HW"),
            "of the width": lambda ndd, types, x: ndd.slice(x, rel_start=[0.1], rel_shape=[0.33], axis_names="W"),
            "of the channels": lambda ndd, types, x: ndd.slice(x, start=[1], end=[3], axis_names="C"),
            "anchor and shape, to float32": lambda ndd, types, x: ndd.slice(x, [0.1, 0.2], [0.5, 0.6], axis_names="WH", dtype=ndd.float32),
            "trimmed": lambda ndd, types, x: ndd.slice(x, start=[-10, 5], end=[150, 900], axis_names="HW", out_of_bounds_policy="trim_to_shape"),
        },
    ),
    *on(
        "slice, reflected border",
        lambda ndd, types, x: ndd.slice(x, start=[-9, -7], rel_end=[1.1, 1.1], axis_names="HW", out_of_bounds_policy="reflect_101"),
        *("uint8", "CHW", "4 channels", "uint16", "float32", "7x5 pixels", "1281x853", "ragged", "videos"),
    ),
    *on(
        "slice, repeated edges",
        lambda ndd, types, x: ndd.slice(x, start=[-9, -7], rel_end=[1.1, 1.1], axis_names="HW", out_of_bounds_policy="edge"),
        *("uint8", "CHW", "4 channels", "float32", "ragged"),
    ),
    *on(
        "crop, many periods",
        lambda ndd, types, x: ndd.crop(x, crop=[533, 801], out_of_bounds_policy="wrap"),
        *("uint8", "7x5 pixels", "ragged"),
    ),
    *arguments(
        "crop",
        {"repeated edges, to float32": lambda ndd, types, x: ndd.crop(x, crop=[533, 801], out_of_bounds_policy="edge", dtype=ndd.float32)},
    ),
    *on(
        "slice, one fill",
        lambda ndd, types, x: ndd.slice(x, start=[-60, -40], shape=[333, 401], axis_names="HW", out_of_bounds_policy="pad", fill_values=7.0),
        *("CHW", "float16", "videos"),
    ),
    *on("pad", lambda ndd, types, x: ndd.pad(x, axis_names="HW", align=[64, 64], fill_value=7.0), *_ALL),
    *arguments(
        "pad",
        {
            "to the largest": lambda ndd, types, x: ndd.pad(x, axis_names="HW"),
            "a shape a sample": lambda ndd, types, x: ndd.pad(
                x,
                axis_names="HW",
                shape=each(ndd, (400, 500), (300, 400), (500, 390), (401, 403), (500, 400), (390, 380), (411, 501), (333, 444), dtype=_INT32),
            ),
        },
        "ragged",
    ),
    *arguments("pad", {"of the channels": lambda ndd, types, x: ndd.pad(x, axis_names="C", shape=[4])}),
    *on(
        "paste, a fill a channel",
        lambda ndd, types, x: ndd.paste(x, ratio=1.7, fill_value=[123, 117, 104]),
        "uint8",
        "7x5 pixels",
        "ragged",
        "1281x853",
    ),
    *arguments(
        "paste",
        {"a place a sample": lambda ndd, types, x: ndd.paste(x, ratio=1.3, fill_value=9, paste_x=each(ndd, 0.1, 0.9, 0.3, 0.2, 0.4, 0.5, 0.8, 0.7))},
    ),
    *on(
        "erase, a fill a channel",
        lambda ndd, types, x: ndd.erase(x, anchor=[0.2, 0.3], shape=[0.5, 0.6], axis_names="HW", normalized=True, fill_value=[123.0, 117.0, 104.0]),
        *("uint8", "CHW", "uint16", "float32", "1281x853", "videos"),
    ),
    *arguments(
        "erase",
        {
            "20 regions": lambda ndd, types, x: ndd.erase(x, anchor=_ANCHORS, shape=[30, 20] * 20, axis_names="HW", fill_value=7.0),
            "columns": lambda ndd, types, x: ndd.erase(x, anchor=[10, 100, 200], shape=[5, 50, 3], axis_names="W"),
            "centered, a place a sample": lambda ndd, types, x: ndd.erase(
                x, anchor=each(ndd, *[(20 + 9 * i, 200 - 9 * i) for i in range(8)]), shape=[50, 70], axis_names="HW", centered_anchor=True
            ),
        },
    ),
    *on("flip, horizontal", lambda ndd, types, x: ndd.flip(x), "CHW", "4 channels", "float32", "1281x853", "ragged", "videos"),
    *on("flip, both", lambda ndd, types, x: ndd.flip(x, vertical=1), "CHW", "4 channels", "float32", "videos"),
    *arguments("flip", {"a choice a sample": lambda ndd, types, x: ndd.flip(x, horizontal=each(ndd, 0, 1, 0, 1, 1, 0, 0, 1, dtype=_INT32))}),
    *arguments("flip", {"depth": lambda ndd, types, x: ndd.flip(x, horizontal=0, depthwise=1)}, "volumes"),
    *on(
        "crop_mirror_normalize",
        lambda ndd, types, x: ndd.crop_mirror_normalize(x, crop=[101, 103], mean=[123.0, 117.0, 104.0], std=[58.0, 57.0, 56.0], mirror=1),
        *("CHW", "uint16", "float16", "float32", "1281x853", "ragged"),
        tolerance=0.02,
    ),
    *arguments(
        "crop_mirror_normalize",
        {
            "HWC, a fill a channel": lambda ndd, types, x: ndd.crop_mirror_normalize(
                x,
                crop=[533, 801],
                out_of_bounds_policy="pad",
                fill_values=[1.0, 2.0, 3.0],
                output_layout="HWC",
                mean=[123.0, 117.0, 104.0],
                std=[58.0, 57.0, 56.0],
            ),
            "CHW, a fill a channel": lambda ndd, types, x: ndd.crop_mirror_normalize(
                x, crop=[533, 801], out_of_bounds_policy="pad", fill_values=[1.0, 2.0, 3.0], mean=[123.0, 117.0, 104.0], std=[58.0, 57.0, 56.0]
            ),
            "HWC to float16": lambda ndd, types, x: ndd.crop_mirror_normalize(
                x, output_layout="HWC", dtype=ndd.float16, mean=[123.0, 117.0, 104.0], std=[58.0, 57.0, 56.0]
            ),
            "CHW to float16": lambda ndd, types, x: ndd.crop_mirror_normalize(
                x, dtype=ndd.float16, mean=[123.0, 117.0, 104.0], std=[58.0, 57.0, 56.0]
            ),
            "padded to 4 channels": lambda ndd, types, x: ndd.crop_mirror_normalize(
                x, pad_output=True, mean=[123.0, 117.0, 104.0], std=[58.0, 57.0, 56.0]
            ),
            "CHW to uint8": lambda ndd, types, x: ndd.crop_mirror_normalize(x, dtype=ndd.uint8),
            "CHW to int8": lambda ndd, types, x: ndd.crop_mirror_normalize(x, dtype=ndd.int8, mean=[128.0], std=[2.0]),
        },
        tolerance=0.01,
    ),
    *arguments(
        "crop_mirror_normalize",
        {"four means": lambda ndd, types, x: ndd.crop_mirror_normalize(x, mean=[123.0, 117.0, 104.0, 0.0], std=[58.0, 57.0, 56.0, 1.0])},
        "4 channels",
        tolerance=0.01,
    ),
    *arguments(
        "crop_mirror_normalize",
        {"one mean": lambda ndd, types, x: ndd.crop_mirror_normalize(x, mean=[123.0], std=[58.0])},
        "1 channel",
        tolerance=0.01,
    ),
    *on("transpose to CHW", lambda ndd, types, x: ndd.transpose(x, perm=[2, 0, 1]), *("CHW", "4 channels", "uint16", "float32", "ragged")),
    *on("transpose to HWC", lambda ndd, types, x: ndd.transpose(x, perm=[1, 2, 0]), "CHW"),
    *on("transpose to WHC", lambda ndd, types, x: ndd.transpose(x, perm=[1, 0, 2]), "4 channels", "float16", "float32"),
    *arguments("transpose", {"to CFHW": lambda ndd, types, x: ndd.transpose(x, perm=[3, 0, 1, 2])}, "videos"),
    *arguments(
        "cat",
        {
            "along the channels": lambda ndd, types, x: ndd.cat(x, x, axis=2),
            "along the height": lambda ndd, types, x: ndd.cat(x, x, x, axis=0),
        },
    ),
    *arguments("cat", {"along the channels": lambda ndd, types, x: ndd.cat(x, x, axis=0)}, "CHW"),
    *arguments(
        "stack", {"as channels": lambda ndd, types, x: ndd.stack(x, x, axis=3), "in the middle": lambda ndd, types, x: ndd.stack(x, x, x, axis=1)}
    ),
    *on(
        "multi_paste",
        lambda ndd, types, x: ndd.multi_paste(x, in_ids=[0, 1, 0], output_size=[400, 500], out_anchors=ndd.tensor([[0, 0], [150, 150], [20, 60]])),
        *("uint8", "1 channel", "4 channels", "float32"),
    ),
    *arguments("sequence_rearrange", {"backwards": lambda ndd, types, x: ndd.sequence_rearrange(x, new_order=[4, 3, 2, 1, 0, 0])}, "videos"),
    *on(
        "grid_mask",
        lambda ndd, types, x: ndd.grid_mask(x, tile=33, ratio=0.4, angle=0.2),
        *("uint8", "1 channel", "4 channels", "float32", "7x5 pixels"),
        outliers=0.02,
    ),
)
