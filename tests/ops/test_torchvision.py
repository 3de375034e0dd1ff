# SPDX-License-Identifier: Apache-2.0
"""Operators that equal torchvision's: torchvision is their reference."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case, Each, images
from PIL import Image

import torch_ndd as ndd
from torch_ndd import types

F = pytest.importorskip("torchvision.transforms.v2.functional")

STEPS = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)


def planar(image: np.ndarray, change: Callable[[torch.Tensor], torch.Tensor], last: bool) -> np.ndarray:
    """Apply a function of torchvision to an image whose channels are last, or not."""
    channels_first = np.moveaxis(image, -1, -3) if last else image
    output = change(torch.from_numpy(np.ascontiguousarray(channels_first))).numpy()
    return np.moveaxis(output, -3, -1) if last else output


def per_frame(change: Callable[..., torch.Tensor], frames: torch.Tensor, factor: Any, dims: int) -> torch.Tensor:
    """Apply a function with one factor, or with one for each frame of a video."""
    if np.ndim(factor) == 0 or frames.dim() == dims:
        return change(frames, float(np.ravel(factor)[0]))
    return torch.stack([change(frame, float(value)) for frame, value in zip(frames, factor, strict=True)])


def jitter_reference(last: bool = True) -> Callable[..., np.ndarray]:
    def reference(image: np.ndarray, order: Sequence[int] = (0, 1, 2, 3), **factors: Any) -> np.ndarray:
        names = ("brightness", "contrast", "saturation", "hue")

        def change(output: torch.Tensor) -> torch.Tensor:
            for step in order:
                if step >= 0 and names[step] in factors:
                    output = per_frame(STEPS[step], output, factors[names[step]], 3)
            return output

        return planar(image, change, last)

    return reference


def gray_reference(last: bool = True) -> Callable[..., np.ndarray]:
    def reference(image: np.ndarray, channels: int = 1) -> np.ndarray:
        return planar(image, lambda x: F.rgb_to_grayscale(x, channels), last)

    return reference


def simple(function: Callable[..., torch.Tensor], last: bool = True) -> Callable[..., np.ndarray]:
    """A function whose only argument has a name of its own."""

    def reference(image: np.ndarray, **arguments: Any) -> np.ndarray:
        return planar(image, lambda x: function(x, *(float(argument) for argument in arguments.values())), last)

    return reference


def of_gray(function: Callable[..., torch.Tensor]) -> Callable[..., np.ndarray]:
    """For layouts without channels."""

    def reference(image: np.ndarray, **arguments: Any) -> np.ndarray:
        output = function(torch.from_numpy(image)[..., None, :, :], *(float(argument) for argument in arguments.values()))
        return output[..., 0, :, :].numpy()

    return reference


def gamma_of(image: np.ndarray, gamma: float, gain: float = 1.0) -> np.ndarray:
    return F.adjust_gamma(torch.from_numpy(image), float(gamma), float(gain)).numpy()


def equalize_reference(last: bool = True) -> Callable[..., np.ndarray]:
    def reference(image: np.ndarray, rule: str) -> np.ndarray:
        assert rule == "pillow"
        return planar(image, F.equalize, last)

    return reference


def permute_reference(last: bool = True) -> Callable[..., np.ndarray]:
    def reference(image: np.ndarray, permutation: Sequence[int]) -> np.ndarray:
        return planar(image, lambda x: F.permute_channels(x, [int(p) for p in permutation]), last)

    return reference


MODES = {
    types.INTERP_NN: F.InterpolationMode.NEAREST,
    types.INTERP_LINEAR: F.InterpolationMode.BILINEAR,
    types.INTERP_CUBIC: F.InterpolationMode.BICUBIC,
    types.INTERP_LANCZOS3: F.InterpolationMode.LANCZOS,
}


def resize_reference(last: bool = True) -> Callable[..., np.ndarray]:
    def reference(
        image: np.ndarray,
        size: Sequence[int],
        rule: str,
        interp_type: Any = types.INTERP_LINEAR,
        antialias: bool = True,
        roi_start: Sequence[float] | None = None,
        roi_end: Sequence[float] | None = None,
    ) -> np.ndarray:
        assert rule == "torch"

        def change(x: torch.Tensor) -> torch.Tensor:
            if roi_start is not None and roi_end is not None:
                x = x[..., int(roi_start[0]) : int(roi_end[0]), int(roi_start[1]) : int(roi_end[1])].contiguous()
            return F.resize(x, [int(n) for n in size], MODES[interp_type], antialias=antialias)

        return planar(image, change, last)

    return reference


PILLOW = {
    types.INTERP_LINEAR: Image.Resampling.BILINEAR,
    types.INTERP_CUBIC: Image.Resampling.BICUBIC,
    types.INTERP_LANCZOS3: Image.Resampling.LANCZOS,
}


def resized_by_pillow(last: bool = True) -> Callable[..., np.ndarray]:
    def reference(
        image: np.ndarray,
        size: Sequence[int],
        rule: str,
        interp_type: Any = types.INTERP_LINEAR,
        antialias: bool = True,
        roi_start: Sequence[float] = (0, 0),
        roi_end: Sequence[float] | None = None,
    ) -> np.ndarray:
        """Resize planes along the width, then along the height, or the other way round, as versions of Pillow differ."""
        planes = np.moveaxis(image, -1, -3) if last else image
        (top, left), (bottom, right) = (tuple(map(int, value)) for value in (roi_start, planes.shape[-2:] if roi_end is None else roi_end))
        (height, width), kind = (int(n) for n in size), PILLOW[interp_type]
        loss = bottom - top - height
        between = (right - left, height) if rule == "pillow" and loss > 0 and loss > 2 * (right - left - width) else (width, bottom - top)
        outputs = []
        for plane in planes.reshape(-1, *planes.shape[-2:]):
            window = Image.fromarray(np.ascontiguousarray(plane[top:bottom, left:right]))
            outputs.append(np.asarray(window.resize(between, kind).resize((width, height), kind)))
        stacked = np.stack(outputs).reshape(*planes.shape[:-2], height, width)
        return np.moveaxis(stacked, -3, -1) if last else stacked

    return reference


def window_reference(reference: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Return the reference of resize_crop_mirror for that of resize."""

    def make_output(image: np.ndarray, crop: Sequence[int], mirror: int = 0, rounding: str = "half_to_even", **options: Any) -> np.ndarray:
        whole = reference(image, **options)
        (height, width), rows, columns = crop, *whole.shape[:2]
        top, left = (round((extent - size) / 2) for extent, size in ((rows, height), (columns, width)))
        window = whole[np.arange(top, top + height).clip(0, rows - 1)][:, np.arange(left, left + width).clip(0, columns - 1)]
        return window[:: -1 if mirror & 2 else 1, :: -1 if mirror & 1 else 1]

    return make_output


def blur_reference(image: np.ndarray, window_size: int, sigma: float, exact: bool) -> np.ndarray:
    assert exact
    return planar(image, lambda x: F.gaussian_blur(x, [window_size] * 2, [sigma] * 2), True)


def has_lanczos() -> bool:
    """Return whether torch has the filter: 2.11 does not."""
    try:
        torch.nn.functional.interpolate(torch.zeros(1, 1, 4, 4), (2, 2), mode="lanczos", antialias=True)
    except (NotImplementedError, ValueError):
        return False
    return True


ALL = {"brightness": 1.2, "contrast": 0.7, "saturation": 1.6, "hue": 0.1}
EACH = {
    "brightness": Each([0.5, 1.0, 1.7]),
    "contrast": Each([1.3, 0.2, 1.0]),
    "saturation": Each([0.0, 1.0, 2.5]),
    "hue": Each([0.3, -0.5, 0.0]),
    "order": Each([[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, -1, 3]]),
}
# The factors of a batch are float32 here; of those torchvision takes 1 - factor in double, too.
CASES = [
    Case("color_jitter", "uint8", images("HWC"), ALL, "HWC", jitter_reference(), 1),
    Case("color_jitter", "each", images("HWC"), EACH, "HWC", jitter_reference(), 1),
    Case("color_jitter", "CHW", images("CHW"), EACH, "CHW", jitter_reference(False), 1),
    Case("color_jitter", "several tiles", images("HWC", H=61, W=83), {**ALL, "order": [2, 3, 1, 0]}, "HWC", jitter_reference(), 1),
    Case("color_jitter", "brightness", images("HWC", H=61, W=83), {"brightness": 1.3}, "HWC", jitter_reference()),
    Case("color_jitter", "contrast", images("HWC", H=61, W=83), {"contrast": Each([1.3, 0.5, 0.0])}, "HWC", jitter_reference(), 1),
    Case("color_jitter", "saturation", images("HWC", H=61, W=83), {"saturation": Each([1.5, 0.5, 0.0])}, "HWC", jitter_reference()),
    Case("color_jitter", "hue", images("HWC", H=61, W=83), {"hue": Each([0.25, -0.5, 0.4375])}, "HWC", jitter_reference(), 1),
    Case("color_jitter", "float32", images("HWC", "float32", high=1), ALL, "HWC", jitter_reference(), 2e-6),
    Case("color_jitter", "float16", images("CHW", "float16", high=1), ALL, "CHW", jitter_reference(False), 4e-3),
    Case("color_jitter", "int16", images("HWC", "int16", high=32767), ALL, "HWC", jitter_reference(), 4),
    Case("color_jitter", "gray", images("HWC", C=1), EACH, "HWC", jitter_reference(), 1),
    Case(
        "color_jitter",
        "frames",
        images("FCHW"),
        {**ALL, "order": Each([[1, 0, 2, 3], [3, 1, 2, 0], [1, 2, 0, 3]])},
        "FCHW",
        jitter_reference(False),
        1,
    ),
    Case("grayscale", "uint8", images("HWC", H=61, W=83), {}, "HWC", gray_reference()),
    Case("grayscale", "three channels", images("CHW"), {"channels": 3}, "CHW", gray_reference(False)),
    Case("grayscale", "gray", images("HWC", C=1), {"channels": 3}, "HWC", gray_reference()),
    Case("grayscale", "float32", images("FHWC", "float32", high=1), {}, "FHWC", gray_reference(), 1e-6),
    Case("invert", "uint8", images("HWC"), {}, "HWC", simple(F.invert)),
    Case("invert", "int16", images("CHW", "int16", low=-32768, high=32767), {}, "CHW", simple(F.invert, False)),
    Case("invert", "float32", images("FHWC", "float32", high=1), {}, "FHWC", simple(F.invert), 1e-7),
    Case("solarize", "uint8", images("HWC"), {"threshold": 100.5}, "HWC", simple(F.solarize)),
    Case("solarize", "each", images("HWC", H=61, W=83), {"threshold": Each([0.0, 128.0, 255.0])}, "HWC", simple(F.solarize)),
    Case("solarize", "int8", images("CHW", "int8", low=-128, high=127), {"threshold": -7.0}, "CHW", simple(F.solarize, False)),
    Case("solarize", "float32", images("HWC", "float32", high=1), {"threshold": 0.4}, "HWC", simple(F.solarize), 1e-7),
    Case("gamma", "uint8", images("HWC"), {"gamma": Each([0.5, 1.0, 2.2])}, "HWC", gamma_of, 1),
    Case("gamma", "gain", images("CHW"), {"gamma": 0.7, "gain": Each([0.5, 1.0, 1.2])}, "CHW", gamma_of, 1),
    Case("gamma", "float32", images("HWC", "float32", high=1), {"gamma": 1.7, "gain": 1.1}, "HWC", gamma_of, 1e-6),
    Case("autocontrast", "uint8", images("HWC", low=20, high=190), {}, "HWC", simple(F.autocontrast)),
    Case("autocontrast", "planes", images("FCHW", low=20, high=190), {}, "FCHW", simple(F.autocontrast, False)),
    Case("autocontrast", "several rows", images("HWC", "int16", low=20, high=9000, H=61, W=83), {}, "HWC", simple(F.autocontrast)),
    Case("autocontrast", "float32", images("HWC", "float32", low=0.2, high=0.7, H=61, W=83), {}, "HWC", simple(F.autocontrast), 1e-6),
    Case("autocontrast", "one plane", images("HW", low=20, high=190), {}, "HW", of_gray(F.autocontrast)),
    Case("equalize", "Pillow's rule", images("HWC", H=61, W=83, low=40, high=130), {"rule": "pillow"}, "HWC", equalize_reference()),
    Case("equalize", "Pillow's rule, planes", images("FCHW", low=40), {"rule": "pillow"}, "FCHW", equalize_reference(False)),
    Case("equalize", "Pillow's rule, many levels", images("CHW", H=61, W=83), {"rule": "pillow"}, "CHW", equalize_reference(False)),
    Case("sharpness", "uint8", images("HWC"), {"sharpness": Each([0.0, 0.5, 2.5])}, "HWC", simple(F.adjust_sharpness)),
    Case("sharpness", "planes", images("FCHW"), {"sharpness": 1.7}, "FCHW", simple(F.adjust_sharpness, False)),
    Case("sharpness", "int16", images("CHW", "int16", high=32767), {"sharpness": 0.3}, "CHW", simple(F.adjust_sharpness, False), 1),
    Case("sharpness", "int8", images("CHW", "int8", low=-128, high=128), {"sharpness": 0.4}, "CHW", simple(F.adjust_sharpness, False), 1),
    Case("sharpness", "float32", images("HWC", "float32", high=1), {"sharpness": 3.0}, "HWC", simple(F.adjust_sharpness), 1e-6),
    Case("sharpness", "two rows", images("HWC", H=2), {"sharpness": 2.0}, "HWC", simple(F.adjust_sharpness)),
    *(
        Case(
            "resize",
            f"torch's rule, {name}, {dtype}, {'smooth' if smooth else 'sharp'}",
            images("HWC", dtype, high=256 if dtype == "uint8" else 1, H=61, W=83),
            {"size": Each([[30, 101], [90, 40], [61, 17]]), "interp_type": kind, "antialias": smooth, "rule": "torch"},
            "HWC",
            resize_reference(),
            0 if dtype == "uint8" else 1e-5,
        )
        for dtype in ("uint8", "float32")
        for name, kind in (("linear", types.INTERP_LINEAR), ("cubic", types.INTERP_CUBIC), ("nearest", types.INTERP_NN))
        for smooth in (True, False)
    ),
    *(
        Case(
            "resize",
            "torch's rule, Lanczos",
            images("CHW", H=61, W=83),
            {"size": [23, 40], "interp_type": types.INTERP_LANCZOS3, "rule": "torch"},
            "CHW",
            resize_reference(False),
        )
        for _ in range(has_lanczos())
    ),
    *(
        Case(
            "resize",
            f"torch's rule, {channels} channels, region",
            images("FHWC", C=channels, H=61, W=83),
            {"size": [23, 40], "rule": "torch", "roi_start": Each([[0, 0], [5, 7], [11, 50]]), "roi_end": Each([[61, 83], [25, 67], [50, 61]])},
            "FHWC",
            resize_reference(),
        )
        for channels in (1, 2, 3, 4)
    ),
    *(
        Case(
            "resize",
            f"{rule}, {name}, {dtype}",
            images("HWC", dtype, high=256 if dtype == "uint8" else 1, H=61, W=83),
            {"size": Each([[30, 101], [90, 40], [20, 80]]), "interp_type": kind, "antialias": kind != types.INTERP_CUBIC, "rule": rule},
            "HWC",
            resized_by_pillow(),
            0 if dtype == "uint8" else 1e-5,
        )
        for rule in ("pillow", "pillow_12")
        for dtype in ("uint8", "float32")
        for name, kind in (("linear", types.INTERP_LINEAR), ("cubic", types.INTERP_CUBIC), ("Lanczos", types.INTERP_LANCZOS3))
    ),
    Case("resize", "Pillow's rule, planes", images("CHW", H=61, W=83), {"size": [23, 40], "rule": "pillow"}, "CHW", resized_by_pillow(False)),
    *(
        Case(
            "resize",
            f"Pillow's rule, {channels} channels, region",
            images("FHWC", C=channels, H=61, W=83),
            {"size": [23, 40], "rule": "pillow", "roi_start": Each([[0, 0], [5, 7], [11, 50]]), "roi_end": Each([[61, 83], [25, 67], [50, 61]])},
            "FHWC",
            resized_by_pillow(),
        )
        for channels in (1, 2, 3, 4)
    ),
    *(
        Case(
            "resize_crop_mirror",
            f"{rule}, {case}",
            images(H=61, W=83),
            {**options, "rounding": "half_to_even", "rule": rule},
            "HWC",
            window_reference(reference),
        )
        for rule, reference in (("torch", resize_reference()), ("pillow", resized_by_pillow()), ("pillow_12", resized_by_pillow()))
        for case, options in (
            ("each", {"size": Each([[30, 101], [90, 40], [20, 80]]), "crop": Each([[17, 40], [33, 20], [20, 80]]), "mirror": Each([0, 1, 3])}),
            ("larger than the image", {"size": [30, 31], "crop": [40, 31]}),
            ("region", {"size": [23, 40], "crop": [12, 11], "roi_start": [5, 7], "roi_end": [50, 61], "interp_type": types.INTERP_CUBIC}),
        )
    ),
    Case(
        "random_resized_crop",
        "torch's rule",
        images("HWC"),
        {"size": [20, 31], "rule": "torch"},
        "HWC",
    ),
    Case("gaussian_blur", "exact", images("HWC", H=61, W=83), {"window_size": 5, "sigma": 1.1, "exact": True}, "HWC", blur_reference, 1),
    Case("noise.gaussian", "truncated", images("HWC"), {"stddev": 9.0, "truncate": True}, "HWC"),
    Case(
        "permute_channels", "uint8", images("HWC", H=61, W=83), {"permutation": Each([[0, 1, 2], [2, 0, 1], [1, 1, 0]])}, "HWC", permute_reference()
    ),
    Case("permute_channels", "planes", images("FCHW", "float32"), {"permutation": [2, 1, 0]}, "FCHW", permute_reference(False)),
    Case("permute_channels", "five channels", images("HWC", "int16", C=5), {"permutation": [4, 0, 3, 1, 2]}, "HWC", permute_reference()),
]


def photograph(seed: int = 0, size: int = 200) -> np.ndarray:
    """Smooth colors with edges, gray parts and both limits."""
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[0:size, 0:size] / size
    waves = [np.sin(generator.uniform(2, 20) * x + generator.uniform(2, 20) * y + generator.uniform(0, 6)) for _ in range(3)]
    image = 128 + 150 * np.stack(waves, -1) + generator.normal(0, 4, (size, size, 3))
    image[:20] = image[:20, :, :1]
    return image.clip(0, 255).astype(np.uint8)


def levels_apart(ours: Any, theirs: torch.Tensor) -> np.ndarray:
    return np.abs(np.asarray(ours.evaluate()).astype(int) - theirs.permute(1, 2, 0).numpy().astype(int))


@pytest.mark.parametrize(("name", "factor"), [(n, f) for n in ("brightness", "contrast", "saturation") for f in (0.0, 0.4, 0.9, 1.0, 1.1, 1.3, 2.7)])
def test_factors_are_those_of_torchvision_on_photographs(name: str, factor: float) -> None:
    image = photograph()
    theirs = getattr(F, f"adjust_{name}")(torch.from_numpy(image).permute(2, 0, 1), factor)
    apart = levels_apart(ndd.color_jitter(ndd.tensor(image, layout="HWC"), **{name: factor}), theirs)
    assert apart.max() <= (name == "contrast")
    assert apart.mean() < 1e-3


@pytest.mark.parametrize("hue", [-0.5, -0.31, -0.02, 0.07, 0.2, 0.5])
def test_hue_is_that_of_torchvision_on_photographs(hue: float) -> None:
    image = photograph(1)
    apart = levels_apart(ndd.color_jitter(ndd.tensor(image, layout="HWC"), hue=hue), F.adjust_hue(torch.from_numpy(image).permute(2, 0, 1), hue))
    assert apart.max() <= 1
    assert apart.mean() < 1e-3


def test_steps_of_frames() -> None:
    video = np.random.default_rng(0).integers(0, 256, (3, 12, 15, 3)).astype(np.uint8)
    factors = [0.5, 1.0, 1.4]
    for name in ("brightness", "contrast", "saturation"):
        ours = np.asarray(ndd.color_jitter(ndd.tensor(video, layout="FHWC"), **{name: ndd.tensor(factors, layout="F")}).evaluate())
        for frame, factor, sample in zip(video, factors, ours, strict=True):
            assert np.array_equal(sample, np.asarray(ndd.color_jitter(ndd.tensor(frame, layout="HWC"), **{name: np.float32(factor)}).evaluate()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"brightness": -0.1}, "brightness must not be negative"),
        ({"hue": 0.6}, "hue must be from -0.5 to 0.5"),
        ({"contrast": float("nan")}, "contrast must not be negative"),
        ({"contrast": 2.0, "order": [1, 1]}, "at most once"),
        ({"contrast": 2.0, "order": [4]}, "at most once"),
    ],
)
def test_color_jitter_checks(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ndd.color_jitter(np.zeros((4, 5, 3), np.uint8), **arguments).evaluate()


def test_other_errors() -> None:
    image = np.zeros((4, 5, 3), np.uint8)
    with pytest.raises(RuntimeError, match="1 or 3 channels, got 2"):
        ndd.color_jitter(image[..., :2], hue=0.1)
    with pytest.raises(ValueError, match="channels must be 1 or 3, got 2"):
        ndd.grayscale(image, channels=2)
    with pytest.raises(ValueError, match="gamma must not be negative"):
        ndd.gamma(image, gamma=-1.0).evaluate()
    with pytest.raises(ValueError, match="sharpness must not be negative"):
        ndd.sharpness(image, sharpness=-1.0).evaluate()
    with pytest.raises(ValueError, match="rule must be one of opencv, pillow"):
        ndd.equalize(image, rule="numpy")
    for permutation, message in (([0, 1], "3 channels, but permutation has 2"), ([0, 1, 3], "from 0 to 2, got 3")):
        for layout in ("HWC", "CHW"):
            tensor = ndd.tensor(image if layout == "HWC" else image.transpose(2, 0, 1).copy(), layout=layout)
            with pytest.raises(ValueError, match=message):
                ndd.permute_channels(tensor, permutation=permutation).evaluate()
    for operator in (ndd.invert, ndd.solarize, ndd.gamma):
        with pytest.raises(RuntimeError, match="8 or 16 bits or floating-point"):
            operator(image.astype(np.int32), **{"solarize": {"threshold": 1}, "gamma": {"gamma": 1}}.get(operator.__name__, {}))


def test_a_flat_channel_is_not_stretched() -> None:
    image = np.full((5, 6, 3), 77, np.uint8)
    image[0, 0, 1] = 99
    output = np.asarray(ndd.autocontrast(image).evaluate())
    assert (output[..., ::2] == 77).all()
    assert output[..., 1].max() == 255


def test_torch_rule_mirrors_and_checks_the_region() -> None:
    image = np.random.default_rng(0).integers(0, 256, (40, 50, 3)).astype(np.uint8)
    output = np.asarray(ndd.resize(image, size=[20, -30], rule="torch").evaluate())
    np.testing.assert_array_equal(output, np.asarray(ndd.resize(image[:, ::-1].copy(), size=[20, 30], rule="torch").evaluate()))
    with pytest.raises(RuntimeError, match="source region must be whole pixels of the image"):
        ndd.resize(image, size=[20, 30], roi_start=[-3, 0], roi_end=[20, 20], rule="torch").evaluate()
    with pytest.raises(RuntimeError, match="do not support Gaussian"):
        ndd.resize(image, size=[20, 30], interp_type=types.INTERP_GAUSSIAN, rule="torch").evaluate()
    mirrored = ndd.resize_crop_mirror(image, size=[20, -30], crop=[9, 10], crop_pos_x=0.2, rule="torch")
    np.testing.assert_array_equal(np.asarray(mirrored.evaluate()), np.asarray(ndd.crop(output, crop=[9, 10], crop_pos_x=0.2).evaluate()))
    for function in (ndd.resize, ndd.random_resized_crop):
        with pytest.raises(ValueError, match="rule must be one of dali, torch, pillow"):
            function(image, size=[20, 30], rule="opencv")


FILLS = (0, 100.0, [10.0, 20.0, 200.0])


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_warps_fade_as_those_of_torchvision(fill: Any, dtype: str) -> None:
    image = photograph(2)[:120]
    if dtype == "float32":
        image, fill = (image / 255).astype(np.float32), np.divide(fill, 255).tolist()
    height, width = image.shape[:2]
    ours, near = ndd.tensor(image, layout="HWC"), 1 if dtype == "uint8" else 1e-4
    linear = F.InterpolationMode.BILINEAR
    coefficients = [1.02, 0.05, -3.0, -0.04, 0.98, 2.0, 0.0003, -0.0002]
    moves = torch.from_numpy(np.random.default_rng(0).normal(0, 0.05, (1, height, width, 2)).astype(np.float32))
    x, y = moves[0, ..., 0] * (width / 2), moves[0, ..., 1] * (height / 2)
    shift = [1, 0, 12.37, 0, 1, -5.61]
    pairs = (
        (ndd.rotate(ours, angle=17.3, keep_size=True, fill_value=fill, fade=True), lambda z: F.rotate(z, 17.3, linear, fill=fill)),
        (
            ndd.warp_affine(ours, matrix=shift, inverse_map=False, fill_value=fill, fade=True),
            lambda z: F.affine(z, 0, [12.37, -5.61], 1, [0, 0], linear, fill=fill),
        ),
        (
            ndd.experimental.warp_perspective(ours, matrix=[*coefficients, 1.0], fill_value=fill, fade=True),
            lambda z: F.perspective(z, None, None, linear, fill=fill, coefficients=coefficients),
        ),
        (ndd.experimental.remap(ours, x, y, relative=True, fill_value=fill, fade=True), lambda z: F.elastic(z, moves, linear, fill=fill)),
    )
    for output, theirs in pairs:
        apart = np.abs(np.asarray(output.evaluate()).astype(np.float64) - planar(image, theirs, True))
        assert apart.max() <= near
        assert apart.mean() < near / 500
    sharp = np.asarray(ndd.experimental.warp_perspective(ours, matrix=[*coefficients, 1.0], fill_value=fill).evaluate())
    assert fill == 0 or np.abs(sharp.astype(np.float64) - np.asarray(pairs[2][0].evaluate())).max() > 5 * near


@pytest.mark.parametrize(("size", "sigma"), [(3, 0.8), (5, 1.1), (23, 2.0), (23, 0.1)])
def test_exact_blur_is_that_of_torchvision(size: int, sigma: float) -> None:
    image = photograph(3)
    theirs = F.gaussian_blur(torch.from_numpy(image).permute(2, 0, 1), [size, size], [sigma, sigma])
    apart = levels_apart(ndd.gaussian_blur(ndd.tensor(image, layout="HWC"), window_size=size, sigma=sigma, exact=True), theirs)
    assert apart.max() <= 1
    assert apart.mean() < 1e-3


def test_truncated_noise() -> None:
    for mean, expected in ((3.7, 103), (-3.7, 97), (0.9, 100), (-0.9, 100), (1e9, 255)):
        assert np.asarray(ndd.noise.gaussian(np.uint8([100]), mean=mean, stddev=0.0, truncate=True).evaluate()).tolist() == [expected]
    floats = [np.asarray(ndd.noise.gaussian(np.zeros(9, np.float32), truncate=t, rng=ndd.random.RNG(1)).evaluate()) for t in (False, True)]
    np.testing.assert_array_equal(*floats)
    image = np.full(5000, 100, np.uint8)
    added = [np.asarray(ndd.noise.gaussian(image, stddev=9.0, truncate=t, rng=ndd.random.RNG(2)).evaluate()).astype(int) - 100 for t in (False, True)]
    assert (np.abs(added[1]) <= np.abs(added[0])).all()
    assert ((added[0] - added[1]) * np.sign(added[0]) <= 1).all()
    assert (added[1] != added[0]).mean() > 0.3
