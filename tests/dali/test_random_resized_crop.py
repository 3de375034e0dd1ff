# SPDX-License-Identifier: Apache-2.0
"""random_resized_crop against DALI's: results are random, so types, shapes, errors and the distribution of the windows are compared."""

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from _dali import assert_raises
from _raises import Raises, raising

dali = pytest.importorskip("nvidia.dali.experimental.dynamic")
dali_types = pytest.importorskip("nvidia.dali.types")

import torch_ndd as ndd  # noqa: E402
from torch_ndd import types as ndd_types  # noqa: E402

EXTENT = {"F": 2, "C": 3, "D": 5, "H": 37, "W": 53}
COUNT = 4000


def crop(module: ModuleType, image: np.ndarray, layout: str | None = "HWC", **options: Any) -> Any:
    if "dtype" in options:
        options["dtype"] = getattr(torch if module is ndd else dali, str(options["dtype"]))
    return module.random_resized_crop(module.as_tensor(image, layout=layout), **options)


@pytest.mark.parametrize("layout", ["HWC", "CHW", "FHWC", "FCHW", "CFHW", None])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "float32"])
@pytest.mark.parametrize(
    "options", [{"size": 20}, {"size": [20]}, {"size": (20, 31), "dtype": "float32"}, {"size": (0, 5)}, {"size": (8, 9), "batch_size": 3}]
)
def test_shapes_types_and_layouts(layout: str | None, dtype: str, options: dict[str, Any]) -> None:
    image = np.ones([EXTENT[axis] for axis in layout or "HWC"], dtype)
    ours, theirs = crop(ndd, image, layout, **options), crop(dali, image, layout, **options)
    assert type(ours).__name__ == type(theirs).__name__
    assert ours.shape == theirs.shape
    assert ours.layout == theirs.layout
    for a, b in zip(ours.tensors, theirs.tensors, strict=True) if "batch_size" in options else [(ours, theirs)]:
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=1e-6)
        assert np.asarray(a).dtype == np.asarray(b).dtype


@pytest.mark.parametrize("interp_type", range(6))
@pytest.mark.parametrize("antialias", [True, False])
def test_interpolation_kernels_of_resize(interp_type: int, antialias: bool) -> None:
    image = np.random.default_rng(0).integers(0, 256, (37, 53, 3), dtype=np.uint8)
    options = {"size": (20, 60), "random_area": 1.0, "random_aspect_ratio": 53 / 37, "antialias": antialias}  # the only window is the whole image
    for argument in ("interp_type", "min_filter", "mag_filter"):
        results = [
            np.asarray(crop(module, image, **options, **{argument: types.DALIInterpType(interp_type)})).astype(int)
            for module, types in ((ndd, ndd_types), (dali, dali_types))
        ]
        assert np.abs(results[0] - results[1]).max() <= 1


@pytest.mark.parametrize(
    "options",
    [
        raising(TypeError, {}),
        raising(RuntimeError, {"size": (4, 4, 4)}),
        raising(RuntimeError, {"size": (-4, 4)}),
        raising(ValueError, {"size": "large"}),
        raising(RuntimeError, {"size": 4, "random_area": (0.5, 0.1)}),
        raising(RuntimeError, {"size": 4, "random_area": (0.1, 0.2, 0.3)}),
        raising(ValueError, {"size": 4, "random_area": "large"}),
        raising(RuntimeError, {"size": 4, "random_aspect_ratio": (2, 1)}),
        raising(RuntimeError, {"size": 4, "random_aspect_ratio": (1, 2, 3)}),
        raising(ValueError, {"size": 4, "rng": 3}),
        raising(TypeError, {"size": 4, "seed": 3}),
    ],
)
def test_wrong_arguments_are_rejected(options: dict[str, Any], raises: Raises | None) -> None:
    assert_raises(lambda module: crop(module, np.zeros((40, 50, 3), np.uint8), **options), raises)


def test_volumes_are_rejected() -> None:
    for module in (ndd, dali):
        with pytest.raises(ValueError, match="layout"):
            crop(module, np.zeros((2, 4, 5, 3), np.uint8), "DHWC", size=4)


@pytest.mark.parametrize("layout", ["HW", None])
def test_masks_are_rejected_by_dali_only(layout: str | None) -> None:
    with pytest.raises(ValueError, match="layout"):
        crop(dali, np.zeros((4, 5), np.uint8), layout, size=4)
    assert crop(ndd, np.zeros((4, 5), np.uint8), layout, size=4).shape == (4, 4)


def corners(module: ModuleType, height: int, width: int, options: dict[str, Any]) -> np.ndarray:
    """Return first and last row and column of many windows: pixels of an image that holds its own coordinates."""
    image = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), -1).astype(np.float32)
    crops = crop(module, image, size=(2, 2), interp_type=0, batch_size=COUNT, rng=module.random.RNG(seed=5), **options)
    found = np.stack([np.asarray(sample) for sample in crops.tensors])
    return np.concatenate([found[:, 0, 0], found[:, 1, 1]], 1)


@pytest.mark.parametrize(("height", "width"), [(40, 60), (12, 90), (90, 12), (3, 5)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"random_area": (0.2, 0.25), "num_attempts": 1},
        {"random_area": 0.5, "random_aspect_ratio": (0.3, 0.6)},
        {"random_aspect_ratio": 1.0},
        {"random_area": (0.5, 1.5)},
    ],
)
def test_windows_have_the_same_distribution(height: int, width: int, options: dict[str, Any]) -> None:
    """Kolmogorov-Smirnov test on every edge, and on the size; the seeds are fixed."""
    ours, theirs = corners(ndd, height, width, options), corners(dali, height, width, options)
    limit = math.sqrt(-math.log(1e-5 / 2) / COUNT)
    for values in (lambda c: c[:, 0], lambda c: c[:, 1], lambda c: c[:, 2] - c[:, 0], lambda c: c[:, 3] - c[:, 1]):
        a, b = np.sort(values(ours)), np.sort(values(theirs))
        everywhere = np.concatenate([a, b])
        assert np.abs(np.searchsorted(a, everywhere, "right") - np.searchsorted(b, everywhere, "right")).max() / COUNT < limit
