# SPDX-License-Identifier: Apache-2.0
"""flip against DALI's, exactly."""

import itertools

import numpy as np
import pytest
from _dali import dali

import torch_ndd as ndd

EXTENTS = {"F": 2, "D": 4, "H": 7, "W": 21}


@pytest.mark.parametrize("layout", ["FDHWC", "FHWC", "DHWC", "HWC", "FCDHW", "FCHW", "CDHW", "CHW", None])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
def test_every_combination_of_axes(layout: str | None, dtype: str) -> None:
    for channels, axes in itertools.product((1, 2, 3, 5), itertools.product((0, 1), repeat=3)):
        shape = tuple((EXTENTS | {"C": channels})[letter] for letter in layout or "FHWC")
        values = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
        wanted = dict(zip(("horizontal", "vertical", "depthwise"), axes, strict=True))
        ours, theirs = (module.flip(module.tensor(values, layout=layout), **wanted).evaluate() for module in (ndd, dali))
        assert ours.layout == theirs.layout
        assert np.array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize("value", [1, 2, -1, 0, True])
def test_any_number_but_0_flips(value: int) -> None:
    image = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    ours, theirs = (
        np.asarray(module.flip(module.tensor(image, layout="HWC"), horizontal=value, vertical=value).evaluate()) for module in (ndd, dali)
    )
    assert np.array_equal(ours, theirs)


def test_ragged_and_per_sample() -> None:
    images = [np.random.default_rng(i).integers(0, 256, (5 + i, 20 - i, 3)).astype(np.uint8) for i in range(4)]
    ours, theirs = (
        module.flip(module.batch(images, layout="HWC"), horizontal=module.batch([1, 0, 1, 0]), vertical=module.batch([1, 1, 0, 0])).evaluate()
        for module in (ndd, dali)
    )
    assert all(np.array_equal(np.asarray(sample), np.asarray(other)) for sample, other in zip(ours.tensors, theirs.tensors, strict=True))
