# SPDX-License-Identifier: Apache-2.0
"""crop and crop_mirror_normalize against DALI's: moved pixels are equal, normalized ones to the last bits."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from _dali import assert_same
from _raises import Raises, raising

LAYOUTS = ("HWC", "CHW", "DHWC", "CDHW", "FHWC", "FCHW", "CFHW")
EXTENTS = {"F": 2, "C": 3, "D": 4, "H": 13, "W": 21}


def array(layout: str, dtype: str = "uint8", **extents: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    shape = tuple((EXTENTS | extents)[letter] for letter in layout)
    return generator.uniform(-300, 300, shape).astype(dtype) if dtype.startswith("float") else generator.integers(0, 256, shape).astype(dtype)


def assert_near(operator: str, data: Any, layout: str, tolerance: float = 0, raises: Raises | None = None, **arguments: Any) -> None:
    """Compare an operator on a tensor, or on a batch if ``data`` is a list. A callable argument is called with the module."""

    def program(module: ModuleType) -> Any:
        values = module.batch(data, layout=layout) if isinstance(data, list) else module.tensor(data, layout=layout)
        return getattr(module, operator)(values, **{name: value(module) if callable(value) else value for name, value in arguments.items()})

    assert_same(program, absolute=tolerance, raises=raises)


def with_depth(size: list[float], layout: str) -> list[float]:
    """DALI keeps the depth of an earlier call when a volume's window has two numbers."""
    return [EXTENTS["D"], *size] if "D" in layout and len(size) == 2 else size


def dtype(name: str) -> Callable[[ModuleType], Any]:
    return lambda module: getattr(module, name)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("source", ["uint8", "int16", "float32", "float64"])
def test_positions_and_rounding_of_crop(layout: str, source: str) -> None:
    data = array(layout, source)
    for size in ([5, 7], [0, 9], [2, 5, 20], [4.5, 7.9], [0.4, 7], [0.9, 1], [2, 13, 21]):
        for position in (0.0, 0.3, 0.5, 0.9, 1.0):
            for rounding in ("round", "truncate"):
                where = {"crop_pos_x": position, "crop_pos_y": 1 - position, "crop_pos_z": position}
                assert_near("crop", data, layout, crop=with_depth(size, layout), rounding=rounding, **where)
    assert_near("crop", data, layout, crop_h=5, crop_w=3)
    assert_near("crop", data, layout, crop_d=1, crop_h=5, crop_w=3)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_out_of_bounds(layout: str) -> None:
    data = array(layout)
    for policy, raises in (("error", RuntimeError), ("pad", None), ("constant", None), ("trim_to_shape", None)):
        for size in ([20, 30], [20, 5], [3, 40]):
            for fill in ([0.0], [7.0], [1.0, 2.0, 3.0]):
                options = {"crop_pos_x": 0.2, "out_of_bounds_policy": policy, "fill_values": fill}
                assert_near("crop", data, layout, raises=raises, crop=with_depth(size, layout), **options)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("border", ["edge", "clamp", "reflect", "1001", "reflect_1001", "reflect101", "reflect_101", "101", "wrap", "fill"])
def test_borders_of_crops(layout: str, border: str) -> None:
    data = array(layout)
    for size in ([20, 30], [3, 40], [61, 5], [90, 101]):
        options = {"crop_pos_x": 0.2, "crop_pos_y": 0.9, "out_of_bounds_policy": border, "fill_values": [7.0]}
        assert_near("crop", data, layout, crop=with_depth(size, layout), **options)
    assert_near("crop", [array("HWC"), array("HWC", W=40)], "HWC", crop=[20, 30], out_of_bounds_policy=border, dtype=dtype("float32"))


@pytest.mark.parametrize("policy", ["fill", "Pad", "edge", "clamp", "reflect", "reflect_101", "101", "wrap"])
def test_borders_of_crop_mirror_normalize(policy: str) -> None:
    raises = None if policy.lower() in ("fill", "pad") else RuntimeError
    assert_near("crop_mirror_normalize", array("HWC"), "HWC", 1e-5, raises, crop=[20, 30], out_of_bounds_policy=policy, fill_values=[7.0])


@pytest.mark.parametrize("target", ["uint8", "float16", "float32"])
def test_crop_dtype(target: str) -> None:
    for source in ("uint8", "int16", "int32"):
        assert_near("crop", array("HWC", source), "HWC", crop=[5, 7], dtype=dtype(target))


ARGUMENTS = {
    "sizes apart": {"crop_w": 3},
    "both ways": {"crop": [2, 2], "crop_h": 2, "crop_w": 2},
    "one number": {"crop": [2]},
    "four numbers": {"crop": [2, 2, 2, 2]},
    "position": {"crop": [2, 2], "crop_pos_x": 1.1},
    "rounding": {"crop": [2, 2], "rounding": "up"},
    "policy": {"crop": [2, 2], "out_of_bounds_policy": "ignore"},
    "depth alone": {"crop_d": 2},
    "fill values": {"crop": [30, 30], "out_of_bounds_policy": "pad", "fill_values": [1.0, 2.0]},
}


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
@pytest.mark.parametrize("operator", ["crop", "crop_mirror_normalize"])
def test_wrong_arguments_are_rejected(operator: str, arguments: dict[str, Any]) -> None:
    assert_near(operator, array("HWC"), "HWC", **arguments, raises=RuntimeError)
    assert_near(operator, array("HWC"), "WHC", raises=ValueError)


@pytest.mark.parametrize(
    "arguments",
    [
        raising(RuntimeError, {"mean": [1.0, 2.0]}),
        raising(RuntimeError, {"std": [2.0] * 4}),
        raising(RuntimeError, {"output_layout": "FCHW"}),
        raising(RuntimeError, {"output_layout": "HW"}),
        {"mirror": 2},
    ],
)
def test_errors_of_normalize(arguments: dict[str, Any], raises: Raises | None) -> None:
    assert_near("crop_mirror_normalize", array("HWC"), "HWC", **arguments, raises=raises)


OUTPUTS = [
    (layout, out)
    for layout in LAYOUTS
    for out in ("", layout, layout[::-1], *sorted({"C" + layout.replace("C", ""), layout.replace("C", "") + "C"} - {layout}))
]
WINDOWS = {
    "whole": {"mean": [10.0, 20.0, 30.0], "std": [2.0, 3.0, 4.0]},
    "window": {"crop": [9, 19], "crop_pos_x": 0.2, "mean": [10.0, 20.0, 30.0], "std": [2.0], "scale": 0.7, "shift": 3.0},
    "padded": {
        "crop": [16, 80],
        "crop_pos_x": 0.2,
        "mean": [10.0],
        "std": [2.0, 3.0, 5.0],
        "out_of_bounds_policy": "pad",
        "fill_values": [4.0, 5.0, 6.0],
    },
    "trimmed": {"crop": [16, 80], "crop_pos_y": 0.2, "out_of_bounds_policy": "trim_to_shape"},
    "padded channels": {"mean": [10.0], "pad_output": True},
    "unchanged": {},
}


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "out"), OUTPUTS)
@pytest.mark.parametrize("window", WINDOWS)
def test_crop_mirror_normalize_of_every_type(layout: str, out: str, window: str) -> None:
    for source in ("uint8", "int16", "float32"):
        data = array(layout, source, W=70)
        for target, tolerance in (("float32", 2e-5), ("float16", 0.2), ("uint8", 1), ("int8", 1)):
            for mirror in (0, 1):
                assert_near(
                    "crop_mirror_normalize", data, layout, tolerance, dtype=dtype(target), output_layout=out, mirror=mirror, **WINDOWS[window]
                )


@pytest.mark.parametrize("out", ["CHW", "HWC"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
def test_padded_channels(out: str, channels: int) -> None:
    data = array("HWC", C=channels)
    assert_near("crop_mirror_normalize", data, "HWC", 1e-5, output_layout=out, pad_output=True, std=[3.0])
    window = {"crop": [20, 30], "out_of_bounds_policy": "pad"}
    assert_near("crop_mirror_normalize", data, "HWC", output_layout=out, pad_output=True, fill_values=[3.0], **window)
    if channels < 5:  # of more channels DALI pads with what is in memory
        for values in ([3.0 + k for k in range(channels)], [1.0, 2.0, 3.0, 4.0][: 1 << (channels - 1).bit_length()]):
            assert_near("crop_mirror_normalize", data, "HWC", output_layout=out, pad_output=True, mean=[1.0] * channels, fill_values=values, **window)


def test_constant_is_another_name_of_pad() -> None:
    options = {"crop": [20, 30], "out_of_bounds_policy": "constant", "fill_values": [4.0]}
    assert_near("crop_mirror_normalize", array("HWC"), "HWC", 1e-5, std=[3.0], **options)


def test_ragged_and_per_sample() -> None:
    images = [array("HWC", H=10 + i, W=20 + 2 * i) for i in range(4)]

    def each(*values: Any) -> Callable[[ModuleType], Any]:
        return lambda module: module.batch([np.float32(value) for value in values])

    def flags(*values: int) -> Callable[[ModuleType], Any]:
        return lambda module: module.batch(list(values))

    assert_near("crop", images, "HWC", crop=[6, 7], crop_pos_x=each(0, 0.3, 0.7, 1), crop_pos_y=each(1, 0.9, 0.25, 0))
    assert_near("crop", images, "HWC", crop=each([3, 4], [4, 5], [5, 6], [6, 7]))
    assert_near("crop", images, "HWC", crop_h=3, crop_w=each(3, 4, 5, 6.5))
    assert_near("crop", images, "HWC", crop=[12, 3], raises=RuntimeError)
    assert_near("crop", images, "HWC", crop=[12, 30], out_of_bounds_policy="trim_to_shape")
    assert_near("crop", images, "HWC", crop=[12, 30], out_of_bounds_policy="pad", fill_values=[1.0])
    assert_near(
        "crop_mirror_normalize",
        images,
        "HWC",
        2e-5,
        crop=[5, 5],
        mirror=flags(1, 0, 1, 0),
        mean=each([1, 2, 3], [1, 2, 4], [1, 2, 5], [0, 0, 0]),
        std=each([1], [2], [3], [4]),
    )
    assert_near("crop_mirror_normalize", images, "HWC", mirror=flags(0, 1, 0, 1), pad_output=True)
