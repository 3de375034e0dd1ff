# SPDX-License-Identifier: Apache-2.0
import math
from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case, Each, images

import torch_ndd as ndd
from torch_ndd.ops.geometry._random_crop import Range, random_crop_windows

CASES = [
    Case("random_resized_crop", "uint8", images("HWC", "uint8"), {"size": [8, 9]}, "HWC", tolerance=1),
    Case("random_resized_crop", "planes", images("CHW", "float32"), {"size": 7, "random_area": [0.2, 0.3], "interp_type": 2}, "CHW", tolerance=1e-4),
    Case(
        "random_resized_crop",
        "sequence",
        images("FCHW", "uint8"),
        {"size": [9, 7], "random_aspect_ratio": 1.0, "dtype": "f32"},
        "FCHW",
        tolerance=1e-4,
    ),
    Case(
        "random_resized_crop",
        "kernels",
        images("HWC", "uint8"),
        {"size": [9, 30], "interp_type": Each([0, 1, 2]), "antialias": False},
        "HWC",
        tolerance=1,
    ),
    Case(
        "random_resized_crop",
        "both kernels",
        images(),
        {"size": [9, 30], "min_filter": Each([0, 1, 2]), "mag_filter": Each([2, 2, 1])},
        "HWC",
        tolerance=1,
    ),
    Case(
        "random_resized_crop",
        "normalized",
        images("HWC", "uint8"),
        {"size": [9, 7], "mirror": Each([1, 0, 1]), "mean": Each([[5.0], [100.0], [7.0]]), "std": Each([[2.0], [50.0], [3.0]]), "dtype": "f16"},
        "HWC",
        out_layout="CHW",
        tolerance=0.51,
    ),
]
COUNT = 20_000
WORDS = torch.tensor([1, 2, 3, 4, 5, 6, 7])


def windows(height: int, width: int, count: int = COUNT, area: Range = (0.08, 1.0), ratio: Range = (3 / 4, 4 / 3), attempts: int = 10) -> np.ndarray:
    shapes = torch.tensor([[height, width]]).expand(count, 2)
    return random_crop_windows(shapes, WORDS, area, ratio, attempts).numpy()


def assert_uniform(values: np.ndarray) -> None:
    """Kolmogorov-Smirnov test of uniformity on [0, 1]; wrong once in 100 000 times, but the words are fixed."""
    ranks = np.arange(1, len(values) + 1) / len(values)
    assert np.abs(np.sort(values) - ranks).max() < math.sqrt(-math.log(1e-5 / 2) / 2 / len(values)) + 1 / len(values)


def test_windows_are_inside_the_image() -> None:
    for height, width in ((480, 640), (7, 300), (1, 1), (3, 5)):
        y, x, h, w = windows(height, width, 2000).T
        assert min(y.min(), x.min()) >= 0
        assert min(h.min(), w.min()) >= 1
        assert ((y + h <= height) & (x + w <= width)).all()


def test_area_and_ratio_are_uniform() -> None:
    _, _, h, w = windows(1000, 1000, area=(0.1, 0.4)).T  # every attempt fits
    assert_uniform((h * w / 1e6 - 0.1) / 0.3)
    assert_uniform(np.log(w / h / 0.75) / np.log(16 / 9))


def test_places_are_uniform() -> None:
    y, x, h, w = windows(300, 500, area=0.1, ratio=1.0).T
    assert (h == w).all()
    jitter = np.random.default_rng(0).random((2, COUNT))
    assert_uniform((y + jitter[0]) / (301 - h))
    assert_uniform((x + jitter[1]) / (501 - w))


def test_largest_window_when_no_attempt_fits() -> None:
    y, x, h, w = windows(100, 1000, area=0.9).T
    assert ((h == 100) & (w == 133) & (y == 0)).all()
    assert_uniform((x + np.random.default_rng(0).random(COUNT)) / 868)
    assert windows(1000, 100, 2, area=0.9)[:, 2:].tolist() == [[133, 100]] * 2
    assert windows(100, 1000, 2, area=(1e-9, 0.02), ratio=1.37, attempts=1)[:, 2:].max() == 52


def test_no_pixels() -> None:
    assert windows(0, 5, 2).tolist() == [[0, 0, 0, 0]] * 2


def test_a_window_depends_on_the_words_and_its_position_only() -> None:
    many = windows(480, 640, 50)
    assert np.array_equal(many[:7], windows(480, 640, 7))
    assert len(np.unique(many, axis=0)) == 50
    mixed = random_crop_windows(torch.tensor([[5, 6, 3], [480, 640, 3]]), WORDS, (0.08, 1), (3 / 4, 4 / 3), 10)
    assert np.array_equal(mixed[1].numpy(), many[1])


@pytest.mark.parametrize("layout", ["HWC", "CHW", "FHWC", "FCHW", "CFHW"])
def test_is_the_resized_window(layout: str) -> None:
    extents = {"F": 2, "C": 3, "H": 40, "W": 50}
    generator = np.random.default_rng(0)
    samples = [generator.integers(0, 256, [extents[a] + i * (a in "HW") for a in layout], dtype=np.uint8) for i in range(3)]
    source = ndd.batch(samples, layout=layout)
    rng = ndd.random.RNG(seed=3)
    places = [layout.index(a) for a in "HW"]
    words = torch.tensor([rng() for _ in range(7)])
    found = random_crop_windows(torch.tensor([[s.shape[k] for k in places] for s in samples]), words, (0.08, 1), (3 / 4, 4 / 3), 10).float()
    out = ndd.random_resized_crop(source, size=(9, 11), rng=ndd.random.RNG(seed=3))
    expected = ndd.resize(source, size=(9, 11), roi_start=ndd.as_batch(found[:, :2].contiguous()), roi_end=ndd.as_batch(found[:, :2] + found[:, 2:]))
    assert torch.equal(out.torch(), expected.torch())
    assert out.layout == layout


def test_does_not_depend_on_the_batch_size() -> None:
    image = ndd.tensor(np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8), layout="HWC")
    output = ndd.random_resized_crop(image, size=8, rng=ndd.random.RNG(seed=1))
    three = ndd.random_resized_crop(image, size=8, rng=ndd.random.RNG(seed=1), batch_size=3).torch()
    five = ndd.random_resized_crop(image, size=8, rng=ndd.random.RNG(seed=1), batch_size=5).torch()
    assert torch.equal(output.torch(), three[0])
    assert torch.equal(three, five[:3])
    assert not torch.equal(three[0], three[1])


def test_compiled_draws_advance() -> None:
    source = ndd.batch(torch.rand(2, 40, 50, 3), layout="HWC")
    crop = torch.compile(lambda batch: ndd.random_resized_crop(batch, size=8), fullgraph=True, backend="aot_eager")
    first, second = crop(source).torch(), crop(source).torch()
    assert first.shape == (2, 8, 8, 3)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({}, TypeError, "size"),
        ({"size": (4, 4, 4)}, RuntimeError, "size"),
        ({"size": (-4, 4)}, RuntimeError, "size"),
        ({"size": 4.5}, TypeError, "size"),
        ({"size": "large"}, ValueError, "size"),
        ({"size": ndd.as_tensor([4, 4])}, TypeError, "size"),
        ({"size": 4, "random_area": (0.5, 0.1)}, RuntimeError, "random_area"),
        ({"size": 4, "random_area": (0.1, 0.2, 0.3)}, RuntimeError, "random_area"),
        ({"size": 4, "random_area": (-0.1, 0.2)}, ValueError, "random_area"),
        ({"size": 4, "random_area": 0}, ValueError, "random_area"),
        ({"size": 4, "random_area": "large"}, ValueError, "random_area"),
        ({"size": 4, "random_aspect_ratio": (2, 1)}, RuntimeError, "random_aspect_ratio"),
        ({"size": 4, "random_aspect_ratio": (0, 1)}, ValueError, "random_aspect_ratio"),
        ({"size": 4, "random_aspect_ratio": (1, float("inf"))}, ValueError, "random_aspect_ratio"),
        ({"size": 4, "num_attempts": 0}, ValueError, "num_attempts"),
        ({"size": 4, "interp_type": 6}, RuntimeError, "interp_type"),
        ({"size": 4, "dtype": torch.int32}, RuntimeError, "dtype"),
        ({"size": 4, "mirror": [0, 1]}, ValueError, "mirror"),
        ({"size": 4, "mean": [1.0, 2.0]}, RuntimeError, "mean"),
        ({"size": 4, "std": [1.0, 2.0]}, RuntimeError, "std"),
        ({"size": 4, "output_layout": "HWD"}, RuntimeError, "output_layout"),
        ({"size": 4, "output_layout": 1}, TypeError, "output_layout"),
        ({"size": 4, "rng": 3}, ValueError, "rng"),
        ({"size": 4, "seed": 3}, TypeError, "seed"),
    ],
)
def test_bad_arguments(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"random_resized_crop.*{text}"):
        ndd.random_resized_crop(ndd.as_tensor(np.zeros((4, 5, 3), np.uint8), layout="HWC"), **options)


def test_no_window_without_pixels() -> None:
    with pytest.raises(RuntimeError, match="without pixels"):
        ndd.random_resized_crop(ndd.as_tensor(np.zeros((0, 5, 3), np.uint8)), size=4)
