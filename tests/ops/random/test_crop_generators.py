# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
from _cases import Case, Each, Samples, images
from scipy import stats

import torch_ndd as ndd
from torch_ndd import EvalMode, jitter, random_crop_generator, roi_random_crop, types
from torch_ndd.random import RNG


def shapes(ragged: bool) -> tuple[Samples, ...]:
    return ([np.int64([480, 640, 3][: 2 if ragged and k == 1 else 3]) for k in range(3)],)


CASES = [
    Case("random_crop_generator", "default", shapes, {}),
    Case("random_crop_generator", "small", shapes, {"random_area": [0.01, 0.02], "random_aspect_ratio": 1.0, "num_attempts": 3}),
    Case(
        "roi_random_crop",
        "end",
        args={
            "crop_shape": Each([[10, 90], [30, 40], [50, 60]]),
            "roi_start": Each([[5, 3], [0, 0], [9, 9]]),
            "roi_end": Each([[9, 50], [3, 3], [9, 99]]),
        },
        ragged=False,
    ),
    Case(
        "roi_random_crop",
        "shape",
        args={
            "crop_shape": 10,
            "roi_start": [20, 20],
            "roi_shape": Each([[3, 1], [40, 40], [8, 30]]),
            "in_shape": Each([[70, 80], [60, 60], [90, 80]]),
        },
        ragged=False,
    ),
    Case("roi_random_crop", "input", images("HWC"), {"crop_shape": [3, 4], "roi_start": [2, 2], "roi_shape": [8, 1]}, "HWC", out_layout=None),
    Case("jitter", "nearest", images(), {"nDegree": 4, "fill_value": Each([1.0, 2.0, 3.0]), "mask": Each([1, 0, 1])}, "HWC"),
    Case("jitter", "linear", images("HWC", "float32"), {"interp_type": types.INTERP_LINEAR}, "HWC", tolerance=1e-4),
]


def array(value: Any) -> np.ndarray:
    return np.asarray(value.torch() if isinstance(value, ndd.Batch) else value)


def test_windows_are_those_of_random_resized_crop() -> None:
    """Area and aspect ratio are uniform, the latter on a logarithmic scale."""
    anchor, shape = (array(x).astype(np.float64) for x in random_crop_generator([1000, 1500, 3], batch_size=5000, rng=RNG(1)))
    assert (anchor >= 0).all()
    assert (anchor + shape <= [1000, 1500]).all()
    area, aspect = shape.prod(1) / 1.5e6, shape[:, 1] / shape[:, 0]
    assert area.min() > 0.079
    assert area.max() <= 1
    small = area < 0.4  # these always fit
    assert stats.kstest(area[small], stats.uniform(0.08, 0.32).cdf).pvalue > 1e-4
    assert stats.kstest(np.log(aspect[small]), stats.uniform(np.log(3 / 4), np.log(16 / 9)).cdf).pvalue > 1e-4
    place = anchor / np.maximum([1000, 1500] - shape, 1)
    for d in range(2):
        assert stats.kstest(place[:, d], stats.uniform.cdf).pvalue > 1e-4


@pytest.mark.parametrize("dtype", ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"])
def test_types_of_shapes(dtype: str) -> None:
    anchor, shape = random_crop_generator(ndd.tensor([48, 64, 3], dtype=dtype), random_area=0.25, random_aspect_ratio=4 / 3, rng=RNG(1))
    assert (anchor.dtype, shape.dtype, anchor.shape, anchor.layout) == (ndd.int32, ndd.int32, (2,), None)
    assert array(shape).tolist() == [24, 32]


def test_windows_of_odd_images() -> None:
    for value, expected in (([0, 640, 3], [0, 0]), ([-5, 640], [0, 0]), ([1, 1], [1, 1])):
        anchor, shape = random_crop_generator(value)
        assert array(anchor).tolist() == [0, 0]
        assert array(shape).tolist() == expected
    anchor, shape = random_crop_generator([10, 1000], random_area=1.0, random_aspect_ratio=1.0, num_attempts=1)
    assert array(shape).tolist() == [10, 10]


def test_a_window_depends_on_its_number_only() -> None:
    rng, other = RNG(5), RNG(5)
    anchor, _ = random_crop_generator([480, 640], batch_size=4, rng=rng)
    single, _ = random_crop_generator([480, 640], rng=RNG(5))
    other.advance(7)
    assert str(rng.state) == str(other.state)
    np.testing.assert_array_equal(array(anchor)[0], array(single))
    assert len({tuple(row) for row in array(anchor).tolist()}) == 4


@pytest.mark.parametrize(
    ("shape", "args", "kind"),
    [
        ([480], {}, RuntimeError),
        ([1, 2, 3, 4], {}, RuntimeError),
        ([[1, 2, 3]], {}, RuntimeError),
        (np.float32([480, 640]), {}, RuntimeError),
        ([480, 640], {"random_area": [2, 1]}, RuntimeError),
        ([480, 640], {"random_area": [-1, 1]}, ValueError),
        ([480, 640], {"random_aspect_ratio": [0, 1]}, ValueError),
        ([480, 640], {"num_attempts": 0}, ValueError),
    ],
)
def test_wrong_windows(shape: Any, args: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind, match="random_crop_generator"):
        random_crop_generator(shape, **args)


def starts(count: int = 4000, **args: Any) -> np.ndarray:
    return array(roi_random_crop(batch_size=count, rng=RNG(1), **args))


@pytest.mark.parametrize(
    ("args", "first", "last"),
    [
        ({"crop_shape": [10, 10], "roi_start": [5, 6], "roi_end": [8, 8]}, (-2, -2), (5, 6)),
        ({"crop_shape": [10, 10], "roi_start": [5, 6], "roi_shape": [3, 30]}, (-2, 6), (5, 26)),
        ({"crop_shape": [10, 10], "roi_start": [5, 6], "roi_shape": [3, 3], "in_shape": [20, 14]}, (0, 0), (5, 4)),
        ({"crop_shape": [10, 10], "roi_start": [5, 5], "roi_shape": [10, 10]}, (5, 5), (5, 5)),
        ({"crop_shape": 10, "roi_start": [5, 6], "roi_shape": 3}, (-2, -1), (5, 6)),
        ({"crop_shape": [10], "roi_start": 5, "roi_shape": 3}, (-2,), (5,)),
        ({"crop_shape": [10, 8, 6], "roi_start": [0, 0, 0], "roi_shape": [3, 3, 3], "in_shape": [10, 9, 60]}, (0, 0, 0), (0, 0, 0)),
    ],
)
def test_all_starts_are_equally_likely(args: dict[str, Any], first: tuple[int, ...], last: tuple[int, ...]) -> None:
    output = starts(**args)
    assert output.dtype == np.int64
    for d, (low, high) in enumerate(zip(first, last, strict=True)):
        assert (output[:, d].min(), output[:, d].max()) == (low, high)
        if high > low:
            assert stats.chisquare(np.bincount(output[:, d] - low)).pvalue > 1e-4


def test_the_input_gives_its_shape() -> None:
    image = np.zeros((20, 14, 3), np.uint8)
    args = {"crop_shape": [10, 10], "roi_start": [5, 6], "roi_shape": [3, 3]}
    np.testing.assert_array_equal(array(roi_random_crop(image, rng=RNG(4), **args)), array(roi_random_crop(in_shape=[20, 14], rng=RNG(4), **args)))
    ragged = ndd.batch([np.zeros((20, 14)), np.zeros((10, 30))])
    assert array(roi_random_crop(ragged, rng=RNG(4), **args))[1, 0] == 0


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({}, "either roi_end or roi_shape"),
        ({"roi_end": [8, 8], "roi_shape": [3, 3]}, "either roi_end or roi_shape"),
        ({"roi_shape": [3, 3], "in_shape": [20, 20, 3]}, "dimensions"),
        ({"roi_shape": [3, 3], "in_shape": [8, 20]}, "larger than the input"),
        ({"roi_shape": [30, 3], "in_shape": [20, 20]}, "exceeds the input"),
        ({"roi_shape": [3, 3], "roi_start": [-5, 5], "in_shape": [20, 20]}, "exceeds the input"),
        ({"roi_shape": [3, 3], "crop_shape": [10, -5]}, "crop_shape must not be negative, got -5 in dimension 1 of sample 0"),
        ({"roi_shape": [3, 3], "crop_shape": -1, "in_shape": [20, 20]}, "crop_shape must not be negative, got -1"),
    ],
)
def test_wrong_regions(args: dict[str, Any], text: str) -> None:
    with EvalMode.sync_cpu, pytest.raises(RuntimeError, match=text):
        roi_random_crop(**{"crop_shape": [10, 10], "roi_start": [5, 5], **args})
    with pytest.raises(RuntimeError, match="in_shape"):
        roi_random_crop(np.zeros((20, 20)), crop_shape=10, roi_start=5, roi_shape=1, in_shape=20)
    with pytest.raises(TypeError, match="crop_shape"):
        roi_random_crop(roi_start=[5, 5], roi_shape=[1, 1])


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"roi_start": [5, 2**63 - 1]}, "roi_start is too large: 9223372036854775807 in dimension 1 of sample 0"),
        ({"roi_shape": [2**62, 3]}, "roi_shape is too large"),
        ({"roi_shape": None, "roi_end": [-(2**63), 8]}, "roi_end is too large: -9223372036854775808"),
        ({"crop_shape": [10, -(2**63)]}, "crop_shape is too large"),
        ({"in_shape": [20, 2**63 - 1]}, "in_shape is too large"),
        ({"roi_shape": [2**33, 3]}, "too many places for the window in dimension 0"),
    ],
)
def test_regions_whose_sums_would_overflow_are_rejected(args: dict[str, Any], text: str) -> None:
    """Only arrays can hold such numbers."""
    numbers = {"crop_shape": [10, 10], "roi_start": [5, 5], "roi_shape": [3, 3], **args}
    with EvalMode.sync_cpu, pytest.raises(RuntimeError, match=text):
        roi_random_crop(**{name: np.int64(value) for name, value in numbers.items() if value is not None})


def test_windows_start_among_up_to_2_to_the_32_places() -> None:
    drawn = starts(100, crop_shape=1, roi_start=np.int64([2**40]), roi_end=np.int64([2**40 + 2**32]))
    assert (drawn >= 2**40).all()
    assert (drawn < 2**40 + 2**32).all()
    assert np.ptp(drawn) > 2**31


@pytest.mark.parametrize("degree", [1, 2, 3, 8])
def test_jitter_moves_pixels_by_half_the_degree(degree: int) -> None:
    rows, columns = np.mgrid[0:200, 0:210]
    image = np.stack([rows, columns], -1).astype(np.int32)
    output = array(jitter(ndd.tensor(image, layout="HWC"), nDegree=degree, fill_value=-1, rng=RNG(1)))
    inside = output[..., 0] >= 0
    assert inside[8:-8, 8:-8].all()
    moved = (output - image)[inside]
    assert np.abs(moved).max() <= (degree + 1) // 2
    for d in range(2):
        values, counts = np.unique(moved[:, d], return_counts=True)
        share = np.array([min(v + 0.5, degree / 2) - max(v - 0.5, -degree / 2) for v in values]) / degree
        np.testing.assert_allclose(counts / len(moved), share, atol=0.015)
    assert abs(np.corrcoef(moved[:, 0], moved[:, 1])[0, 1]) < 0.02


def test_jitter_samples_linearly() -> None:
    ramp = np.tile(np.arange(200, dtype=np.float32)[None, :, None], (150, 1, 1))
    output = array(jitter(ndd.tensor(ramp, layout="HWC"), nDegree=2, interp_type=types.INTERP_LINEAR, rng=RNG(1)))[2:-2, 2:-2, 0]
    moved = (output - ramp[2:-2, 2:-2, 0]).reshape(-1).astype(np.float64)
    assert stats.kstest(moved, stats.uniform(-1, 2).cdf).pvalue > 1e-4


def test_jitter_of_masked_and_empty_images_and_wrong_arguments() -> None:
    image = np.random.default_rng(1).integers(0, 256, (9, 8, 3)).astype(np.uint8)
    np.testing.assert_array_equal(array(jitter(image, mask=0)), image)
    assert jitter(np.zeros((0, 4, 3), np.uint8)).evaluate().shape == (0, 4, 3)
    assert jitter(image[:1, :1], nDegree=50).evaluate().layout == "HWC"
    for args in ({"nDegree": 0}, {"nDegree": -2}, {"interp_type": types.INTERP_CUBIC}):
        with pytest.raises(RuntimeError, match="jitter"):
            jitter(image, **args)
