# SPDX-License-Identifier: Apache-2.0
"""A list, an array or a tensor with a value for each sample is taken like a Batch, where it cannot be a value for all of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd

PIXELS = torch.arange(2 * 6 * 8 * 3, dtype=torch.int64).remainder(251).to(torch.uint8).reshape(2, 6, 8, 3)
KINDS: dict[str, Callable[[list[Any]], Any]] = {
    "list": lambda values: values,
    "tuple": tuple,
    "torch": torch.tensor,
    "numpy": np.array,
    "Tensor": lambda values: ndd.as_tensor(torch.tensor(values)),
}
NUMBERS: list[tuple[Callable[..., Any], str, list[Any]]] = [
    (ndd.rotate, "angle", [10.0, 20.0]),
    (ndd.rotate, "angle", [10, 20]),
    (ndd.flip, "horizontal", [1, 0]),
    (ndd.brightness, "brightness", [0.5, 2.0]),
    (ndd.resize, "resize_shorter", [3, 5]),
    (ndd.resize, "size", [[3, 4], [5, 6]]),
    (ndd.crop_mirror_normalize, "mean", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
]


def _images(ragged: bool, count: int = 2) -> ndd.Batch:
    return ndd.batch([PIXELS[k % 2][: 6 - k if ragged else 6] for k in range(count)], layout="HWC")


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("operator", "name", "values"), NUMBERS)
def test_values_are_those_of_a_batch(operator: Callable[..., Any], name: str, values: list[Any], kind: str, ragged: bool) -> None:
    images = _images(ragged)
    expected = operator(images, **{name: ndd.batch(values)})
    for _ in range(4):  # later calls are repeated without the body
        output = operator(images, **{name: KINDS[kind](values)})
        assert output.shape == expected.shape
        assert all(torch.equal(sample.torch(), other.torch()) for sample, other in zip(output, expected, strict=True))


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("kind", KINDS)
def test_values_for_other_samples_are_refused(kind: str, ragged: bool) -> None:
    angles = KINDS[kind]([10.0, 20.0])
    for _ in range(4):
        ndd.rotate(_images(ragged), angle=angles)
    with pytest.raises((TypeError, ValueError), match=r"rotate: argument 'angle' takes one number per sample.*3 samples.*ndd\.batch"):
        ndd.rotate(_images(ragged, 3), angle=angles)
    with pytest.raises((TypeError, ValueError), match="angle"):
        ndd.rotate(PIXELS[0], angle=angles)


def test_several_numbers_stay_those_of_all_samples() -> None:
    images = _images(False)
    assert ndd.resize(images, size=[3, 4]).shape == [(3, 4, 3)] * 2
    assert ndd.resize(images, size=torch.tensor([3, 4])).shape == [(3, 4, 3)] * 2
    matrix = [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    assert torch.equal(ndd.warp_affine(images, matrix=matrix).torch()[:, :, :-1], PIXELS[:, :, 1:])


def test_operators_without_inputs() -> None:
    assert ndd.random.normal(mean=[0.0, 100.0], stddev=[0.0, 0.0], batch_size=2).torch().tolist() == [0.0, 100.0]


def test_compiled_values() -> None:
    def turn(images: ndd.Batch) -> ndd.Batch:
        return ndd.rotate(images, angle=[10.0, 20.0], keep_size=True)

    output = torch.compile(turn, fullgraph=True, backend="aot_eager")(_images(False))
    assert torch.equal(output.torch(), turn(_images(False)).torch())
