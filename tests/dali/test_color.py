# SPDX-License-Identifier: Apache-2.0
"""Brightness, contrast, hue and saturation, color spaces against DALI's. DALI composes its matrix in float32, with noise of 1e-7 in
what should be 0: one level off where the exact value lies at a half, which with a factor of 2.5 is every eighth."""

from types import ModuleType

import numpy as np
import pytest

dali = pytest.importorskip("nvidia.dali.experimental.dynamic")
dali_types = pytest.importorskip("nvidia.dali.types")

import torch_ndd as ndd  # noqa: E402


def data(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    generator = np.random.default_rng(0)
    values = generator.integers(0, 256, shape)
    return values.astype(dtype) if dtype in ("uint8", "uint16", "int32", "int16") else (values / 100).astype(dtype)


def assert_alike(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    difference = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
    if np.issubdtype(ours.dtype, np.integer):
        assert difference.max(initial=0) <= 1
        assert (difference > 0).mean() < 0.15
    else:
        assert difference.max(initial=0) <= (0.02 if ours.dtype == np.float16 else 2e-3)


def compare(operator: str, values: np.ndarray, layout: str | None, dtype: str | None = None, **options: object) -> None:
    def run(module: ModuleType) -> np.ndarray:
        more = {} if dtype is None else {"dtype": getattr(module, dtype)}
        return np.asarray(getattr(module, operator)(module.tensor(values, layout=layout), **more, **options).evaluate())

    assert_alike(run(ndd), run(dali))


BRIGHTNESS = [{}, {"brightness": 1.7}, {"brightness": -0.3, "brightness_shift": 0.8}, {"brightness_shift": -0.25}, {"brightness_shift": 2.0}]
TWISTS = [
    {},
    {"brightness": 1.7},
    {"contrast": 0.0},
    {"contrast": 2.5},
    {"hue": 33.0},
    {"hue": -200.0, "saturation": 1.5},
    {"saturation": 0.0},
    {"brightness": 1.3, "contrast": 0.6, "hue": 120.0, "saturation": 2.5},
]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("uint8", None),
        ("uint8", "float32"),
        ("uint8", "int16"),
        ("int16", None),
        ("int32", None),
        ("float32", None),
        ("float32", "uint8"),
        ("float16", None),
    ],
)
@pytest.mark.parametrize("options", TWISTS)
def test_color_twist_dtypes(source: str, target: str | None, options: dict[str, float]) -> None:
    compare("color_twist", data((13, 17, 3), source), "HWC", target, **options)


@pytest.mark.parametrize(
    ("source", "target"),
    [("uint8", None), ("uint8", "float32"), ("uint8", "int16"), ("int16", None), ("int32", "float32"), ("float32", None), ("float32", "uint8")],
)
@pytest.mark.parametrize("options", BRIGHTNESS)
def test_brightness_dtypes(source: str, target: str | None, options: dict[str, float]) -> None:
    compare("brightness", data((13, 17, 3), source), "HWC", target, **options)


CONTRASTS = [{}, {"contrast": 1.7}, {"contrast": -0.3, "contrast_center": 40.0}, {"contrast": 0.0}, {"contrast_center": 3.0}]


@pytest.mark.parametrize(
    ("source", "target"),
    [("uint8", None), ("uint8", "float32"), ("uint8", "int16"), ("int16", None), ("int32", "float32"), ("float32", None), ("float32", "uint8")],
)
@pytest.mark.parametrize("options", CONTRASTS)
def test_contrast_dtypes(source: str, target: str | None, options: dict[str, float]) -> None:
    if source == "int32" and "contrast_center" not in options:
        pytest.skip("about 2**30, where float32 has steps of 64")
    compare("contrast", data((13, 17, 3), source), "HWC", target, **options)
    compare("brightness_contrast", data((13, 17, 3), source), "HWC", target, **options, brightness=0.8, brightness_shift=0.1)


@pytest.mark.parametrize(("source", "target"), [("uint8", None), ("uint8", "float32"), ("int16", "int16"), ("float32", None), ("float32", "float32")])
@pytest.mark.parametrize("options", [{}, {"hue": 33.0, "saturation": 1.5}, {"saturation": 0.0, "value": 0.7}, {"hue": -200.0, "value": 2.5}])
def test_hsv_dtypes(source: str, target: str | None, options: dict[str, float]) -> None:
    compare("hsv", data((13, 17, 3), source), "HWC", target, **options)


@pytest.mark.parametrize(("source", "target"), [("uint8", None), ("uint8", "float32"), ("int16", None), ("float32", "uint8"), ("float16", None)])
@pytest.mark.parametrize("value", [0.0, 1.7, -40.0])
@pytest.mark.parametrize("operator", ["hue", "saturation"])
def test_hue_and_saturation_dtypes(operator: str, source: str, target: str | None, value: float) -> None:
    if source == "float16" and operator == "saturation" and value == -40.0:
        value = -4.0  # float16 has steps of 0.06 at 100
    compare(operator, data((13, 17, 3), source), "HWC", target, **{operator: value})


SPACES = ["RGB", "BGR", "GRAY", "YCbCr"]


@pytest.mark.parametrize("layout", ["HWC", "FHWC", "DHWC", "FDHWC"])
@pytest.mark.parametrize("source", SPACES)
@pytest.mark.parametrize("target", SPACES)
def test_color_spaces(source: str, target: str, layout: str) -> None:
    """Equal except where the exact value is a half, within float32: 2 of 1000 gray pixels, fewer of the others."""
    if source == target:
        return
    channels = 1 if source == "GRAY" else 3
    samples = [data(tuple({"F": 2, "D": 2, "H": 33 + i, "W": 40 - i, "C": channels}[letter] for letter in layout), "uint8") for i in range(2)]
    results = []
    for module, types in ((ndd, ndd.types), (dali, dali_types)):
        args = {"image_type": getattr(types, source), "output_type": getattr(types, target)}
        results.append(module.color_space_conversion(module.batch(samples, layout=layout), **args).evaluate())
    ours, theirs = results
    assert ours.layout == theirs.layout == layout
    for sample, other in zip(ours.tensors, theirs.tensors, strict=True):
        assert sample.shape == other.shape
        difference = np.abs(np.asarray(sample).astype(int) - np.asarray(other))
        assert difference.max() <= 1
        assert (difference > 0).mean() < 0.005


def test_every_gray_level() -> None:
    levels = np.arange(256, dtype=np.uint8).reshape(1, 256, 1)
    for target in SPACES:
        if target != "GRAY":
            ours, theirs = (
                np.asarray(
                    module.color_space_conversion(module.tensor(levels, layout="HWC"), image_type=t.GRAY, output_type=getattr(t, target)).evaluate()
                )
                for module, t in ((ndd, ndd.types), (dali, dali_types))
            )
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("layout", ["HWC", "FHWC", "DHWC", None])
@pytest.mark.parametrize(
    ("operator", "options"),
    [
        ("brightness", {"brightness": 0.7, "brightness_shift": 0.1}),
        ("color_twist", TWISTS[-1]),
        ("contrast", {"contrast": 0.6}),
        ("brightness_contrast", {"contrast": 1.6, "brightness": 0.7}),
        ("hsv", {"hue": 40.0}),
        ("hue", {"hue": 40.0}),
        ("saturation", {"saturation": 2.0}),
    ],
)
def test_every_layout(layout: str | None, operator: str, options: dict[str, float]) -> None:
    shape = tuple({"F": 2, "D": 4, "H": 13, "W": 10, "C": 3}[letter] for letter in layout or "HWC")
    compare(operator, data(shape, "uint8"), layout, **options)


@pytest.mark.parametrize(
    ("operator", "names"),
    [
        ("brightness", ["brightness", "brightness_shift"]),
        ("color_twist", ["brightness", "contrast", "hue", "saturation"]),
        ("contrast", ["contrast"]),
        ("brightness_contrast", ["brightness", "brightness_shift", "contrast", "contrast_center"]),
        ("hsv", ["hue", "saturation", "value"]),
        ("hue", ["hue"]),
        ("saturation", ["saturation"]),
    ],
)
def test_per_sample_and_per_frame(operator: str, names: list[str]) -> None:
    images = [data((10 + 3 * i, 20 - i, 3), "uint8") for i in range(3)]
    videos = [data((3, 10 + 3 * i, 20 - i, 3), "uint8") for i in range(2)]
    for name in names:
        values = [np.float32(v) for v in (0.5, -0.2, 1.5)]
        ours, theirs = (
            [np.asarray(t) for t in getattr(module, operator)(module.batch(images, layout="HWC"), **{name: module.batch(values)}).evaluate().tensors]
            for module in (ndd, dali)
        )
        for our, other in zip(ours, theirs, strict=True):
            assert_alike(our, other)
        ours, theirs = (
            [
                np.asarray(t)
                for t in getattr(module, operator)(module.batch(videos, layout="FHWC"), **{name: module.per_frame([0.5, -0.2, 1.5])})
                .evaluate()
                .tensors
            ]
            for module in (ndd, dali)
        )
        for our, other in zip(ours, theirs, strict=True):
            assert_alike(our, other)


@pytest.mark.filterwarnings("ignore:.*image_type:DeprecationWarning")
def test_image_type_has_no_effect() -> None:
    image = data((13, 17, 3), "uint8")
    plain, bgr = (
        np.asarray(dali.color_twist(dali.tensor(image, layout="HWC"), hue=50.0, **more).evaluate()) for more in ({}, {"image_type": dali_types.BGR})
    )
    ours = np.asarray(ndd.color_twist(ndd.tensor(image, layout="HWC"), hue=50.0, image_type=ndd.types.BGR).evaluate())
    assert np.array_equal(plain, bgr)
    assert_alike(ours, plain)
