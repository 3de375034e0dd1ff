# SPDX-License-Identifier: Apache-2.0
"""Inputs and arguments with values per frame: how many there may be, and which of them expand an image to frames."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from _dali import assert_same
from _raises import Raises

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (8, 9, 3)).astype(np.uint8)
VIDEO = RNG.integers(0, 256, (3, 8, 9, 3)).astype(np.uint8)
VOLUME = RNG.integers(0, 256, (4, 8, 9, 3)).astype(np.uint8)
AFFINE = np.array([[[1, 0.1, 2], [0, 1, 1]], [[1, 0.5, 0], [0, 1.2, 0]], [[0.9, 0, 1], [0.1, 1, 0]]], np.float32)
PROJECTIVE = np.array([np.eye(3), [[1, 0.1, 1], [0, 1, 0], [0.001, 0, 1]], [[0.9, 0, 1], [0.1, 1, 0], [0, 0, 1]]], np.float32)
SPATIAL = np.array([np.eye(3, 4), 1.1 * np.eye(3, 4)], np.float32)
WEIGHTS = RNG.uniform(0, 0.3, (3, 3, 3)).astype(np.float32)

Values = Callable[[Any], Any]  # takes a module: dali or ndd


def image(m: Any) -> Any:
    return m.tensor(IMAGE, layout="HWC")


def images(m: Any) -> Any:
    return m.batch([IMAGE, IMAGE[:, :7].copy()], layout="HWC")


def video(m: Any) -> Any:
    return m.tensor(VIDEO, layout="FHWC")


def even(m: Any) -> Any:
    return m.batch([VIDEO, VIDEO[::-1].copy()], layout="FHWC")


def make_ragged(m: Any) -> Any:
    return m.batch([VIDEO, VIDEO[:2]], layout="FHWC")


INPUTS = [image, images, video, even, make_ragged]


def take(values: np.ndarray, counts: int | list[int], marked: bool = True) -> Values:
    """Return the first values, repeated if there are not enough, or a batch of them."""
    taken = [np.ascontiguousarray(np.concatenate([values, values])[:count]) for count in ([counts] if isinstance(counts, int) else counts)]

    def make_value(m: Any) -> Any:
        value = m.tensor(taken[0]) if isinstance(counts, int) else m.batch(taken)
        return m.per_frame(value) if marked else value

    return make_value


COUNTS: list[Any] = [2, 3, 4, [3, 3], [3, 2], [2, 3], [3, 1], [1, 2], [1, 1], [4, 2], [3, 4]]


def find_conflict(*counts: int | list[int]) -> type[Exception] | None:
    """Return the error for values of different numbers of frames for one sample. Values for one frame are for all."""
    of_samples = zip(*(count if isinstance(count, list) else [count] * 2 for count in counts), strict=True)
    return RuntimeError if any(len({*sample} - {1}) > 1 for sample in of_samples) else None


def assert_near(program: Any, tolerance: float, raises: Raises | None = None) -> None:
    assert_same(program, 1e-5, tolerance, raises)


@pytest.mark.parametrize(("counts", "marked"), [*((c, True) for c in [*COUNTS, 1]), *((c, False) for c in COUNTS)], ids=str)
@pytest.mark.parametrize("source", [image, images])
def test_matrices_and_filters_make_frames_of_an_image(source: Values, marked: bool, counts: Any) -> None:
    affine, projective, weights = (take(values, counts, marked) for values in (AFFINE, PROJECTIVE, WEIGHTS))
    options = {"inverse_map": False, "size": [5, 6]}
    for program in (
        lambda m: m.warp_affine(source(m), affine(m)),
        lambda m: m.warp_affine(source(m), affine(m), fill_value=42, **options),
        lambda m: m.experimental.warp_perspective(source(m), projective(m)),
        lambda m: m.experimental.warp_perspective(source(m), projective(m), fill_value=[1, 2, 3], **options),
        lambda m: m.filter(source(m), weights(m)),
        lambda m: m.filter(source(m), weights(m), mode="valid"),
    ):
        assert_near(program, 1, raises=None if marked else RuntimeError)


def test_layouts_of_such_frames() -> None:
    planes, plane = np.ascontiguousarray(IMAGE.transpose(2, 0, 1)), np.ascontiguousarray(IMAGE[..., 0])
    assert_near(lambda m: m.warp_affine(m.tensor(VOLUME, layout="DHWC"), m.per_frame(SPATIAL)), 1)
    assert_near(lambda m: m.warp_affine(m.tensor(IMAGE), m.per_frame(AFFINE)), 1)
    assert_near(lambda m: m.warp_affine(image(m), m.per_frame(AFFINE), batch_size=2), 1)
    assert_near(lambda m: m.experimental.warp_perspective(m.tensor(plane, layout="HW"), m.per_frame(PROJECTIVE)), 1)
    for layout, data in (("HW", plane), ("CHW", planes), (None, plane)):
        assert_near(lambda m, layout=layout, data=data: m.filter(m.tensor(data, layout=layout), m.per_frame(WEIGHTS)), 1)


def test_frames_of_filters_borders_and_anchors() -> None:
    fills, anchors = np.array([0, 100, 255], np.uint8), np.array([[0, 0], [1, 1], [2, 0]], np.int32)
    for counts in (1, 2, 3, [3, 2]):
        weights, fill, anchor = (take(value, counts) for value in (WEIGHTS, fills, anchors))
        assert_near(lambda m, weights=weights, fill=fill: m.filter(image(m), weights(m), fill(m), border="constant"), 1)
        raises = None if counts == 3 else RuntimeError
        assert_near(lambda m, fill=fill: m.filter(image(m), m.per_frame(WEIGHTS), fill(m), border="constant"), 1, raises=raises)
        assert_near(lambda m, weights=weights, anchor=anchor: m.filter(image(m), weights(m), anchor=anchor(m)), 1)
        assert_near(lambda m, anchor=anchor: m.filter(image(m), m.per_frame(WEIGHTS), anchor=anchor(m)), 1, raises=find_conflict(counts, 3))
    assert_near(lambda m: m.filter(image(m), m.per_frame(WEIGHTS), np.uint8(7), border="constant"), 1)


def error_of(source: Values, counts: int | list[int]) -> type[Exception] | None:
    """Return the error for values of so many frames: a sample takes one for each of its frames, or one for all."""
    frames = [3, 2] if source is make_ragged else [3, 3]
    pairs = zip(counts if isinstance(counts, list) else [counts] * 2, frames, strict=True)
    return None if all(count in (1, frame_count) for count, frame_count in pairs) else RuntimeError


SCALARS = [
    ("brightness", "brightness"),
    ("brightness", "brightness_shift"),
    ("contrast", "contrast_center"),
    ("brightness_contrast", "contrast"),
    ("color_twist", "hue"),
    ("hsv", "value"),
    ("hue", "hue"),
    ("saturation", "saturation"),
    ("gaussian_blur", "sigma"),
    ("laplacian", "scale"),
]


@pytest.mark.parametrize("counts", [*COUNTS, 1], ids=str)
@pytest.mark.parametrize(("operator", "name"), SCALARS)
@pytest.mark.parametrize("source", [video, even, make_ragged])
def test_values_for_frames(source: Values, operator: str, name: str, counts: Any) -> None:
    values = take(np.array([1.5, 0.75, 1.25], np.float32), counts)
    assert_near(lambda m: getattr(m, operator)(source(m), **{name: values(m)}), 1, raises=error_of(source, counts))


@pytest.mark.parametrize("counts", [*COUNTS, 1], ids=str)
@pytest.mark.parametrize("source", [video, even, make_ragged])
def test_values_of_several_numbers_for_frames(source: Values, counts: Any) -> None:
    sigma, window, size = (
        take(np.array(value), counts) for value in (np.float32([[1, 2], [0.5, 1], [2, 2]]), np.int32([3, 5, 7]), np.int32([[3, 5]] * 3))
    )
    angle, affine, projective = take(np.float32([10, 20, 30]), counts), take(AFFINE, counts), take(PROJECTIVE, counts)
    for program in (
        lambda m: m.gaussian_blur(source(m), sigma=sigma(m)),
        lambda m: m.gaussian_blur(source(m), window_size=window(m)),
        lambda m: m.laplacian(source(m), window_size=size(m), smoothing_size=window(m)),
        lambda m: m.filter(source(m), WEIGHTS[0], anchor=take(np.int32([[0, 0], [1, 1], [2, 0]]), counts)(m)),
        lambda m: m.rotate(source(m), angle=angle(m), keep_size=True),
        lambda m: m.warp_affine(source(m), matrix=affine(m)),
        lambda m: m.experimental.warp_perspective(source(m), matrix=projective(m)),
    ):
        assert_near(program, 1, raises=error_of(source, counts))


@pytest.mark.parametrize("source", INPUTS)
def test_unmarked_stacks(source: Values) -> None:
    for counts in (3, [3, 3], [3, 2]):
        affine, projective, sigma = (take(value, counts, False) for value in (AFFINE, PROJECTIVE, np.ones((3, 2), np.float32)))
        assert_near(lambda m, affine=affine: m.warp_affine(source(m), affine(m)), 1, raises=RuntimeError)
        assert_near(lambda m, affine=affine: m.warp_affine(source(m), matrix=affine(m)), 1, raises=RuntimeError)
        assert_near(lambda m, projective=projective: m.experimental.warp_perspective(source(m), projective(m)), 1, raises=RuntimeError)
        assert_near(lambda m, projective=projective: m.experimental.warp_perspective(source(m), matrix=projective(m)), 1, raises=RuntimeError)
        assert_near(lambda m, sigma=sigma: m.gaussian_blur(source(m), sigma=sigma(m)), 1, raises=RuntimeError)


ANGLES, POINTS, MAPS = RNG.uniform(-90, 90, 3).astype(np.float32), RNG.uniform(-1, 1, (3, 2)).astype(np.float32), AFFINE
# The arguments of each transform, which two are mixed below; an operator with one argument has it alone.
TRANSFORMS = [
    ("translation", ["offset"]),
    ("scale", ["scale", "center"]),
    ("rotation", ["angle", "center"]),
    ("shear", ["shear", "center"]),
    ("shear", ["angles", "center"]),
    ("crop", ["from_start", "to_end"]),
]


def of(name: str) -> np.ndarray:
    return ANGLES if name == "angle" else POINTS


@pytest.mark.parametrize("counts", [2, 3, [3, 3], [3, 2], [2, 2], [3, 1]], ids=str)
@pytest.mark.parametrize(("name", "names"), TRANSFORMS)
def test_transforms_of_frames(name: str, names: list[str], counts: Any) -> None:
    """Alone, with a value for all frames, with each number of frames, and after one or several maps."""

    def transform(m: Any, second: Values | None, *maps: Any) -> Any:
        values = {names[0]: take(of(names[0]), counts)(m)}
        if second is not None and len(names) > 1:
            values[names[1]] = second(m)
        return getattr(m.transforms, name)(*maps, **values)

    others: list[tuple[Values | None, Any]] = [(None, 1), (lambda m: m.tensor(POINTS[0]), 1), (lambda m: [1.0, 2.0], 1)]
    if counts != [3, 1]:  # values for one frame apply to all here, see known_differences.md
        others += [(take(POINTS, others_counts), others_counts) for others_counts in ([3, 2], 3, [3, 3], [2, 3])]
    for other, other_counts in others:
        mixed = (counts, other_counts if len(names) > 1 else 1)
        assert_near(lambda m, other=other: transform(m, other), 1e-5, raises=find_conflict(*mixed))
        assert_near(lambda m, other=other: transform(m, other, m.tensor(MAPS[0])), 1e-5, raises=find_conflict(*mixed))
        for maps in (3, [3, 2], [3, 3]):
            raises = find_conflict(*mixed, maps)
            assert_near(lambda m, other=other, maps=maps: transform(m, other, take(MAPS, maps)(m)), 1e-5, raises=raises)
    assert_near(lambda m: getattr(m.transforms, name)(take(MAPS, [3, 2])(m), **{names[0]: of(names[0])[0].tolist()}), 1e-5)


def test_maps_of_frames_are_combined() -> None:
    for first in (2, 3, [3, 2], [3, 3]):
        for second in (2, 3, [3, 2], [3, 3], [2, 3]):
            raises = find_conflict(first, second)
            assert_near(lambda m, a=first, b=second: m.transforms.combine(take(MAPS, a)(m), take(MAPS, b)(m)), 1e-5, raises=raises)
        assert_near(lambda m, a=first: m.transforms.combine(take(MAPS, a)(m), m.tensor(MAPS[0])), 1e-5)
        assert_near(lambda m, a=first: m.transforms.combine(m.tensor(MAPS[0]), take(MAPS, a)(m), reverse_order=True), 1e-5)
    assert_near(lambda m: m.transforms.combine(MAPS, MAPS), 1e-5, raises=RuntimeError)


@pytest.mark.parametrize("counts", [2, 3, [3, 3], [3, 2], [2, 3]], ids=str)
def test_points_and_matrices_of_frames(counts: Any) -> None:
    points = RNG.uniform(0, 1, (3, 4, 2)).astype(np.float32)
    matrices = np.ascontiguousarray(AFFINE[:, :, :2])
    for source, frames in (
        (take(points, 3), 3),
        (take(points, [3, 2]), [3, 2]),
        (take(points, 2, False), 1),
        (lambda m: m.batch([points[0], points[1, :2]]), 1),
    ):
        raises = find_conflict(frames, counts)
        assert_near(lambda m, source=source: m.coord_transform(source(m), MT=take(AFFINE, counts)(m)), 1e-5, raises=raises)
        assert_near(
            lambda m, source=source: m.coord_transform(source(m), M=take(matrices, counts)(m), T=take(POINTS, [3, 1])(m)),
            1e-5,
            raises=find_conflict(frames, counts, [3, 1]),
        )
        assert_near(lambda m, source=source: m.coord_transform(source(m), T=take(POINTS, counts)(m)), 1e-5, raises=raises)
    assert_near(lambda m: m.coord_transform(points[0], MT=take(AFFINE, counts, False)(m)), 1e-5, raises=RuntimeError)
