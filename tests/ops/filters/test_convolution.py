# SPDX-License-Identifier: Apache-2.0
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _cases import Case, Each, Inputs, Samples, images

import torch_ndd as ndd


def blur_reference(data: np.ndarray, axes: list[int], sigma: list[float], window: list[int]) -> np.ndarray:
    result = data.astype(np.float64)
    for axis, s, w in zip(axes, sigma, window, strict=True):
        radius = (w - 1) // 2 if w else math.ceil(3 * s)
        s = s or (radius - 1) * 0.3 + 0.8
        taps = np.exp(-0.5 * (np.arange(-radius, radius + 1) / s) ** 2)
        padding = [(radius, radius) if a == axis else (0, 0) for a in range(data.ndim)]
        padded = np.pad(result, padding, mode="reflect" if data.shape[axis] > 1 else "edge")
        windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * radius + 1, axis=axis)
        result = windows @ (taps / taps.sum())
    return result


def smooth_reference(image: np.ndarray, sigma: float | list[float] = 0.0, window_size: int | list[int] = 0, dtype: str | None = None) -> np.ndarray:
    axes = range(image.ndim - 1)
    sigmas, windows = (list(v) if isinstance(v, list) else [v for _ in axes] for v in (sigma, window_size))
    result = blur_reference(image, list(axes), sigmas, windows)
    if dtype or image.dtype.kind == "f":
        return result.astype(np.float32 if dtype else image.dtype)
    return np.copysign(np.floor(np.abs(result) + 0.5), result).astype(image.dtype)


def derive_reference(data: np.ndarray, axes: int, windows: list[int], smoothing: list[int] | None, scale: list[float]) -> np.ndarray:
    """The reference: the Laplacian of the first axes, one derivative after the other."""
    result = np.zeros(data.shape)
    for of in range(axes):
        part = data.astype(np.float64)
        for axis in range(axes):
            size = windows[of] if axis == of or smoothing is None else smoothing[axis]
            taps = np.ones(1)
            for k in range(size // 2):
                taps = np.convolve(taps, [1, -2, 1] if axis == of and k == 0 else [1, 2, 1])
            padding = [(size // 2, size // 2) if a == axis else (0, 0) for a in range(data.ndim)]
            padded = np.pad(part, padding, mode="reflect" if data.shape[axis] > 1 else "edge")
            part = np.lib.stride_tricks.sliding_window_view(padded, size, axis=axis) @ taps
        result += scale[of] * part
    return result


def store(result: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Convert like a kernel's store: rounded half away from zero and saturated."""
    if dtype.kind == "f":
        return result.astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(np.copysign(np.floor(np.abs(result) + 0.5), result), limits.min, limits.max).astype(dtype)


def edges(
    image: np.ndarray,
    window_size: Any = 3,
    smoothing_size: Any = None,
    scale: Any = None,
    normalized_kernel: bool = False,
    dtype: str | None = None,
) -> np.ndarray:
    axes = image.ndim - 1
    windows, smoothing = per_axis(window_size, axes), None if smoothing_size is None else per_axis(smoothing_size, axes)
    factors = per_axis(1.0 if scale is None else scale, axes)
    if normalized_kernel:
        factors = [2.0 ** (axes + 2 - sum(windows[of] if a == of or not smoothing else smoothing[a] for a in range(axes))) for of in range(axes)]
    return store(derive_reference(image, axes, windows, smoothing, factors), np.dtype(np.float32) if dtype else image.dtype)


def per_axis(value: Any, axes: int) -> list[Any]:
    return list(value) if isinstance(value, list) else [value] * axes


_MODES = {"reflect_101": "reflect", "reflect_1001": "symmetric", "clamp": "edge", "wrap": "wrap", "constant": "constant"}


def correlate_reference(
    data: np.ndarray,
    weights: np.ndarray,
    fill: Any = 0,
    anchor: Any = -1,
    border: str = "reflect_101",
    mode: str = "same",
    dtype: str | None = None,
    axes: int | None = None,
) -> np.ndarray:
    """The reference: correlation of the first ``axes`` axes, as many as the filter has."""
    axes = weights.ndim if axes is None else axes
    size = weights.shape
    at = [n // 2 if a < 0 else a for n, a in zip(size, per_axis(anchor, axes), strict=True)]
    padded = data.astype(np.float64)
    for axis in range(axes):
        widths = [(at[axis], size[axis] - 1 - at[axis]) if a == axis else (0, 0) for a in range(data.ndim)]
        if mode == "same":
            kind = "edge" if data.shape[axis] == 1 and border != "constant" else _MODES[border]
            padded = np.pad(padded, widths, mode=kind, **({"constant_values": float(fill)} if border == "constant" else {}))
    windows = np.lib.stride_tricks.sliding_window_view(padded, size, axis=tuple(range(axes)))
    result = np.tensordot(windows, weights.astype(np.float64), axes=axes)
    return store(result, np.dtype(np.float32) if dtype else data.dtype)


def with_weights(inputs: Inputs, shapes: list[tuple[int, ...]], *fills: float, whole: bool = False) -> Inputs:
    """Inputs of filter: images, a filter for each, and optionally a fill value for each."""

    def make(ragged: bool) -> tuple[Samples, ...]:
        (samples,) = inputs(ragged)
        generator = np.random.default_rng(3)
        weights = [generator.integers(-4, 5, shape) if whole else generator.uniform(-0.3, 0.4, shape) for shape in shapes]
        rest = ([np.asarray(fill, np.float32) for fill in fills],) if fills else ()
        return (samples, [weight.astype(np.float32) for weight in weights], *rest)

    return make


def frames_of(inputs: Inputs) -> Inputs:
    """Images, and filters for the number of frames that each gets: two, or three, one and two."""

    def make(ragged: bool) -> tuple[Samples, ...]:
        (samples,) = inputs(ragged)
        weights = np.random.default_rng(3).uniform(-0.3, 0.4, (3, 2, 3)).astype(np.float32)
        return samples, [weights[:count] for count in ([3, 1, 2] if ragged else [2, 2, 2])]

    return make


def each_frame(image: np.ndarray, weights: np.ndarray, **args: Any) -> np.ndarray:
    return np.stack([correlate_reference(image, weight, **args) for weight in weights])


_WINDOWS = [(3, 3), (2, 5), (1, 4)]

CASES = [
    Case("laplacian", "uint8", images("HWC"), {}, "HWC", edges),
    Case("laplacian", "float", images("HWC", "float32"), {"window_size": 5, "scale": Each([0.5, 1.0, 0.03])}, "HWC", edges, 2e-2),
    Case(
        "laplacian",
        "each",
        images("HWC", "int16"),
        {"window_size": Each([3, 5, 7]), "smoothing_size": Each([1, 3, 9]), "scale": 0.01},
        "HWC",
        edges,
        1,
    ),
    Case("laplacian", "normalized", images("DHWC"), {"window_size": [3, 5, 7], "normalized_kernel": True, "dtype": "f32"}, "DHWC", edges, 1e-3),
    Case("laplacian", "frames", images("FHWC"), {"window_size": 9, "normalized_kernel": True}, "FHWC"),
    Case("filter", "one channel", with_weights(images("HW", "float32"), [(3, 3)] * 3), {}, "HW", correlate_reference, 1e-3),
    Case("filter", "uint8", with_weights(images("HWC"), _WINDOWS), {"anchor": Each([[0, 2], [1, 4], [0, -1]])}, "HWC", correlate_reference, 1),
    Case("filter", "whole", with_weights(images("HWC"), _WINDOWS, whole=True), {"border": "wrap"}, "HWC", correlate_reference),
    Case(
        "filter",
        "constant",
        with_weights(images("HWC", "int16", low=-300), _WINDOWS, 100.0, -50.0, 0.5),
        {"border": "constant", "dtype": "f32"},
        "HWC",
        correlate_reference,
        1e-2,
    ),
    Case("filter", "valid", with_weights(images("HWC"), _WINDOWS), {"mode": "valid"}, "HWC", correlate_reference, 1),
    Case(
        "filter",
        "volume",
        with_weights(images("DHWC", "uint16"), [(3, 3, 3), (2, 1, 5), (1, 3, 1)]),
        {"border": "clamp"},
        "DHWC",
        correlate_reference,
        1,
    ),
    *(
        Case(
            "filter",
            f"frames of {layout} {mode}",
            frames_of(images(layout)),
            {"mode": mode, "anchor": Each([[0, 2], [1, 2], [0, -1]]) if mode == "same" else -1},
            layout,
            each_frame if layout == "HWC" else None,
            1,
            "F" + layout,
            call=lambda image, weights, **args: ndd.filter(image, ndd.per_frame(weights), **args),
        )
        for layout, mode in (("HWC", "same"), ("HWC", "valid"), ("CHW", "same"))
    ),
    # Several tiles of the CUDA kernels.
    Case(
        "filter",
        "tiles",
        with_weights(images("HWC", H=69, W=131), [(5, 7), (3, 3), (19, 2)]),
        {"border": "reflect_1001"},
        "HWC",
        correlate_reference,
        1,
    ),
    Case(
        "filter",
        "tiles of floats",
        with_weights(images("HW", "float32", H=35, W=201), [(1, 3), (18, 5), (3, 1)]),
        {"mode": "valid"},
        "HW",
        correlate_reference,
        1e-2,
    ),
    Case("filter", "no tile", with_weights(images("HW", H=9, W=12), [(1, 2101), (3, 3), (1, 1)]), {"border": "clamp"}, "HW", correlate_reference, 1),
    Case("laplacian", "tiles", images("HWC", H=69, W=131), {"window_size": Each([3, 5, 9]), "normalized_kernel": True}, "HWC", edges, 1),
    Case("gaussian_blur", "uint8", images("HWC"), {"sigma": 1.5}, "HWC", smooth_reference, 1),
    Case("gaussian_blur", "float32", images("HWC", "float32"), {"window_size": 5}, "HWC", smooth_reference, 1e-3),
    Case(
        "gaussian_blur", "each", images("HWC", "int16"), {"sigma": Each([0.5, 1.0, 3.0]), "window_size": Each([0, 3, 7])}, "HWC", smooth_reference, 1
    ),
    Case("gaussian_blur", "axes", images("DHWC"), {"sigma": Each([[1.0, 2.0, 0.5]] * 3), "dtype": "f32"}, "DHWC", smooth_reference, 1e-3),
    Case("gaussian_blur", "frames", images("FHWC"), {"sigma": 2.0}, "FHWC", tolerance=1),
    # Several tiles of the CUDA kernels (192 elements by 32 rows), unaligned rows, windows of several sizes, and one that no tile holds.
    Case("gaussian_blur", "tiles", images("HWC", H=69, W=131), {"sigma": Each([0.8, 4.0, 12.0])}, "HWC", smooth_reference, 1),
    Case("gaussian_blur", "tiles of floats", images("HWC", "float32", H=40, W=67, C=4), {"sigma": 2.0}, "HWC", smooth_reference, 1e-3),
    Case(
        "gaussian_blur",
        "tiles of one channel",
        images("HWC", "float16", H=37, W=201, C=1),
        {"sigma": Each([3.0, 20.0, 1.0])},
        "HWC",
        smooth_reference,
        0.3,
    ),
    Case("gaussian_blur", "deep", images("DHWC", D=45, H=5, W=9), {"sigma": Each([1.0, 2.0, 6.0])}, "DHWC", smooth_reference, 1),
    Case("gaussian_blur", "deep floats", images("DHWC", "float32", D=45, H=5, W=9), {"sigma": 2.0}, "DHWC", smooth_reference, 1e-3),
    Case("gaussian_blur", "many steps", images("HWC", H=8000, W=3, C=1), {"sigma": 2.0}, "HWC", smooth_reference, 1),
    Case("gaussian_blur", "no tile", images("HWC", "float32", H=9, W=11), {"window_size": Each([3, 401, 5])}, "HWC", smooth_reference, 1e-3),
]


def check(data: np.ndarray, layout: str, axes: list[int], sigma: list[float], window: list[int]) -> None:
    tensor = ndd.tensor(data, layout=layout)
    result = np.asarray(ndd.gaussian_blur(tensor, sigma=sigma, window_size=window).evaluate())
    expected = blur_reference(data, axes, sigma, window)
    assert result.dtype == data.dtype
    if data.dtype.kind == "f":
        assert np.abs(result - expected).max() <= 1e-3
    else:
        assert np.abs(result - np.copysign(np.floor(np.abs(expected) + 0.5), expected)).max() <= 1


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32"])
@pytest.mark.parametrize(
    ("layout", "axes"), [("HWC", [0, 1]), ("CHW", [1, 2]), ("HW", [0, 1]), ("FHWC", [1, 2]), ("DHWC", [0, 1, 2]), ("FCDHW", [2, 3, 4]), ("CW", [1])]
)
def test_layouts_equal_the_reference(layout: str, axes: list[int], dtype: str) -> None:
    sizes = {"F": 2, "C": 3, "D": 5, "H": 17, "W": 40}
    data = np.random.default_rng(0).integers(0, 256, tuple(sizes[letter] for letter in layout)).astype(dtype)
    for sigma, window in (([1.5] * 3, [0] * 3), ([0.0] * 3, [3, 7, 5]), ([0.3, 2.0, 5.0], [0, 9, 0]), ([1.0] * 3, [1, 3, 1])):
        check(data, layout, axes, sigma[: len(axes)], window[: len(axes)])


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("sigma", [4.0, 10.6, 11.0, 25.0])  # windows below and above the limit of the fixed-point path
def test_windows_larger_than_the_image(sigma: float, dtype: str) -> None:
    for shape in ((9, 70, 1), (1, 30, 3), (3, 1, 4), (1, 1, 2)):
        check(np.random.default_rng(0).integers(0, 256, shape).astype(dtype), "HWC", [0, 1], [sigma, sigma], [0, 0])


@pytest.mark.parametrize("sigma", [0.4, 1.5, 4.7, 10.6, 12.0])
def test_a_constant_stays_constant(sigma: float) -> None:
    for level in (0, 1, 100, 127, 254, 255):
        data = np.full((6, 7, 8, 1), level, np.uint8)
        result = ndd.gaussian_blur(ndd.tensor(data, layout="DHWC"), sigma=sigma)
        assert np.array_equal(np.asarray(result.evaluate()), data)


@pytest.mark.parametrize("sigma", [[1.0, 2.0, 3.0], [[1.0, 0.5], [2.0, 1.0], [0.4, 3.0]]])
@pytest.mark.parametrize("count", [2, 3])  # of frames; two are also two axes
def test_sigma_per_frame(sigma: list[float] | list[list[float]], count: int) -> None:
    video = np.random.default_rng(0).integers(0, 256, (count, 12, 15, 3)).astype(np.uint8)
    tensor = ndd.tensor(sigma[:count], layout="F" if np.ndim(sigma) == 1 else "FX")
    result = np.asarray(ndd.gaussian_blur(ndd.tensor(video, layout="FHWC"), sigma=tensor).evaluate())
    for k in range(count):
        same = np.asarray(ndd.gaussian_blur(ndd.tensor(video[k], layout="HWC"), sigma=sigma[k]).evaluate())
        assert np.array_equal(result[k], same)


@pytest.mark.parametrize(
    ("word", "options"),
    [
        ("sigma", {}),
        ("sigma", {"sigma": -1.0}),
        ("sigma", {"sigma": [1.0, 2.0, 3.0]}),
        ("window_size", {"window_size": 4}),
        ("window_size", {"window_size": -3}),
        ("dtype", {"sigma": 1.0, "dtype": "i8"}),
    ],
)
def test_wrong_arguments(word: str, options: dict[str, object]) -> None:
    with pytest.raises(RuntimeError) as error:
        ndd.gaussian_blur(ndd.tensor(np.zeros((5, 8, 3), np.uint8), layout="HWC"), **options).evaluate()
    message = str(error.value)
    assert "gaussian_blur" in message
    assert word in message


@pytest.mark.parametrize("layout", ["HCW", "HFWC", "FC", None])
def test_wrong_layouts(layout: str | None) -> None:
    data = np.zeros((5,) * len(layout or "1234"), np.uint8)
    with pytest.raises(RuntimeError, match="gaussian_blur"):
        ndd.gaussian_blur(ndd.tensor(data, layout=layout), sigma=1.0)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("border", list(_MODES))
def test_filter_borders_and_types(dtype: str, border: str) -> None:
    generator = np.random.default_rng(0)
    weights = generator.uniform(-0.2, 0.3, (4, 7)).astype(np.float32)
    for shape in ((9, 11, 2), (2, 3, 1), (1, 1, 3)):  # the windows are larger than the last two
        data = generator.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
        result = np.asarray(ndd.filter(ndd.tensor(data, layout="HWC"), weights, 7, border=border, dtype="f32").evaluate())
        np.testing.assert_allclose(result, correlate_reference(data, weights, 7, border=border, dtype="f32"), atol=1e-3)


@pytest.mark.parametrize(
    ("layout", "spatial"), [("HW", 2), ("CHW", 2), ("FHWC", 2), ("FCHW", 2), ("FHW", 2), ("DHWC", 3), ("CDHW", 3), ("FDHWC", 3), (None, 2), (None, 3)]
)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("mode", ["same", "valid"])
def test_filter_layouts(layout: str | None, spatial: int, dtype: str, whole: bool, mode: str) -> None:
    generator = np.random.default_rng(0)
    shape = tuple({"F": 2, "C": 3, "D": 5, "H": 8, "W": 9}[letter] for letter in layout or "DHW"[-spatial:])
    data = generator.integers(0, 256, shape).astype(dtype)
    weights = (generator.integers(-2, 3, (3, 2, 4)[-spatial:]) if whole else generator.uniform(-0.2, 0.3, (3, 2, 4)[-spatial:])).astype(np.float32)
    result = np.asarray(ndd.filter(ndd.tensor(data, layout=layout), weights, mode=mode).evaluate())
    first = len(layout) - len(layout.lstrip("FC")) if layout else 0
    planes = data.reshape(-1, *shape[first:])
    expected = np.stack([correlate_reference(plane, weights, mode=mode) for plane in planes])
    assert result.shape == (*shape[:first], *expected.shape[1:])
    assert np.abs(result.astype(np.float64) - expected.reshape(result.shape)).max() <= (1e-2 if dtype == "float32" else 1)


def test_filter_takes_a_value_for_each_frame() -> None:
    generator = np.random.default_rng(0)
    video = generator.integers(0, 256, (3, 6, 7, 2)).astype(np.uint8)
    weights = generator.uniform(-0.2, 0.3, (3, 2, 3)).astype(np.float32)
    anchors, fills = [[0, 0], [1, 2], [-1, 1]], [0, 100, 255]
    result = ndd.filter(
        ndd.tensor(video, layout="FHWC"), ndd.per_frame(weights), ndd.per_frame(fills), anchor=ndd.per_frame(anchors), border="constant"
    )
    for k in range(3):
        expected = correlate_reference(video[k], weights[k], fills[k], anchors[k], "constant")
        assert np.abs(np.asarray(result.evaluate())[k].astype(int) - expected).max() <= 1


def test_weights_of_zero_are_skipped() -> None:
    data = np.array([[1.0, np.inf, 3.0]], np.float32)
    assert np.asarray(ndd.filter(data, [[1.0, 0.0, 0.0]], border="clamp").evaluate()).tolist() == [[1.0, 1.0, np.inf]]
    assert not np.asarray(ndd.filter(data, np.zeros((3, 3))).evaluate()).any()
    assert np.isnan(np.asarray(ndd.filter(np.ones((1, 2), np.float32), [[np.nan]]).evaluate())).all()


@pytest.mark.parametrize("shape", [(0, 3, 1), (3, 0, 1), (3, 3, 0)])
def test_filters_of_empty_images(shape: tuple[int, ...]) -> None:
    image = ndd.tensor(np.zeros(shape, np.uint8), layout="HWC")
    assert ndd.filter(image, np.ones((3, 3))).evaluate().shape == shape
    assert ndd.laplacian(image).evaluate().shape == shape
    assert ndd.laplacian(image, window_size=9).evaluate().shape == shape


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("size", [3, 7, 31])  # one sum over the window, and axis by axis
def test_laplacian_layouts(dtype: str, size: int) -> None:
    for layout, axes in (("HWC", 2), ("CHW", 2), ("HW", 2), ("FCHW", 2), ("DHWC", 3), ("CW", 1)):
        shape = tuple({"F": 2, "C": 3, "D": 4, "H": 9, "W": 12}[letter] for letter in layout)
        data = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
        options: dict[str, Any] = {"window_size": size, "normalized_kernel": True}
        result = np.asarray(ndd.laplacian(ndd.tensor(data, layout=layout), **options).evaluate())
        first = len(layout) - len(layout.lstrip("FC"))
        planes = data.reshape(-1, *shape[first:])
        expected = np.stack([edges(plane[..., None] if plane.ndim == axes else plane, **options) for plane in planes]).reshape(shape)
        assert np.abs(result.astype(np.float64) - expected).max() <= (1 if dtype == "uint8" else 1e-2)


def test_laplacian_takes_a_value_for_each_frame() -> None:
    video = np.random.default_rng(0).integers(0, 256, (3, 6, 7, 2)).astype(np.uint8)
    result = np.asarray(ndd.laplacian(ndd.tensor(video, layout="FHWC"), window_size=ndd.per_frame([3, 5, 7]), scale=0.01).evaluate())
    for k, size in enumerate((3, 5, 7)):
        assert np.array_equal(result[k], np.asarray(ndd.laplacian(ndd.tensor(video[k], layout="HWC"), window_size=size, scale=0.01).evaluate()))


@pytest.mark.parametrize(
    ("word", "call"),
    [
        ("window_size", lambda x: ndd.laplacian(x, window_size=1)),
        ("window_size", lambda x: ndd.laplacian(x, window_size=4)),
        ("window_size", lambda x: ndd.laplacian(x, window_size=33)),
        ("window_size", lambda x: ndd.laplacian(x, window_size=[3, 3, 3])),
        ("smoothing_size", lambda x: ndd.laplacian(x, smoothing_size=2)),
        ("smoothing_size", lambda x: ndd.laplacian(x, smoothing_size=0)),
        ("scale", lambda x: ndd.laplacian(x, scale=[1.0] * 3)),
        ("scale", lambda x: ndd.laplacian(x, scale=1.0, normalized_kernel=True)),
        ("dtype", lambda x: ndd.laplacian(x, dtype="i8")),
        ("dtype", lambda x: ndd.filter(x, np.ones((3, 3)), dtype="f64")),
        ("anchor", lambda x: ndd.filter(x, np.ones((3, 3)), anchor=3)),
        ("anchor", lambda x: ndd.filter(x, np.ones((3, 3)), anchor=[-2, 0])),
        ("anchor", lambda x: ndd.filter(x, np.ones((3, 3)), anchor=[0, 0, 0])),
        ("border", lambda x: ndd.filter(x, np.ones((3, 3)), border="nowhere")),
        ("mode", lambda x: ndd.filter(x, np.ones((3, 3)), mode="full")),
        ("larger", lambda x: ndd.filter(x, np.ones((6, 3)), mode="valid")),
        ("weights", lambda x: ndd.filter(x, np.ones((0, 3)))),
        ("spatial", lambda x: ndd.filter(x, np.ones((3, 3, 3)))),
        ("spatial", lambda x: ndd.filter(x, np.ones(3))),
        ("fill_value", lambda x: ndd.filter(x, np.ones((3, 3)), [1, 2], border="constant")),
    ],
)
def test_wrong_arguments_of_filters(word: str, call: Callable[[ndd.Tensor], ndd.Tensor]) -> None:
    with pytest.raises(RuntimeError) as error:
        call(ndd.tensor(np.zeros((5, 8, 3), np.uint8), layout="HWC")).evaluate()
    assert word in str(error.value)


def test_too_few_filters_for_the_frames() -> None:
    video = ndd.tensor(np.zeros((3, 5, 8, 3), np.uint8), layout="FHWC")
    with pytest.raises(RuntimeError, match="3 frames"):
        ndd.filter(video, ndd.per_frame(np.ones((2, 3, 3))))
    with pytest.raises(RuntimeError, match="3 frames"):
        ndd.filter(video, np.ones((3, 3)), ndd.per_frame([1, 2]))
