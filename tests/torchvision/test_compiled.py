# SPDX-License-Identifier: Apache-2.0
"""Functionals and transforms in ``torch.compile(fullgraph=True)``: the same results as without."""

from typing import Any

import pytest
import torch
from _torchvision import pixels

import torch_ndd as ndd
from torch_ndd.torchvision import v2


def _prepare(images: Any) -> Any:
    moved = v2.functional.horizontal_flip(v2.functional.adjust_brightness(images, 1.2))
    return v2.Compose([v2.Resize((10, 12)), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)])(moved)


@pytest.mark.parametrize("kind", ["tensor", "batch", "ragged"])
def test_compiled_chain_equals_eager(kind: str) -> None:
    samples = [pixels(20, 24, seed=1), pixels(20, 24 if kind != "ragged" else 15, seed=2)]
    value: Any = torch.stack(samples) if kind == "tensor" else ndd.batch(samples, layout="CHW")
    torch.compiler.reset()
    result, expected = torch.compile(_prepare, fullgraph=True, backend="eager")(value), _prepare(value)
    if kind != "tensor":
        result, expected = result.torch(), expected.torch()
    assert torch.allclose(result, expected, atol=0.05)


CORNERS = [[0, 0], [10, 0], [10, 10], [0, 10]]
FUNCTIONALS: dict[str, Any] = {
    "rotate": lambda x: v2.functional.rotate(x, 30.0, interpolation="bilinear", fill=[1, 2, 3]),
    "rotate, quarter": lambda x: v2.functional.rotate(x, 90),
    "rotate, expand": lambda x: v2.functional.rotate(x, 30.0, expand=True),
    "affine": lambda x: v2.functional.affine(x, 10.0, [1, 2], 1.1, [3.0, 4.0]),
    "perspective": lambda x: v2.functional.perspective(x, CORNERS, [[1, 0], [9, 1], [10, 9], [0, 10]]),
    "pad, reflect": lambda x: v2.functional.pad(x, [1, 2], padding_mode="reflect"),
    "five_crop": lambda x: v2.functional.five_crop(x, [5, 5])[4],
    "permute_channels": lambda x: v2.functional.permute_channels(x, [2, 0, 1]),
    "gaussian_blur": lambda x: v2.functional.gaussian_blur(x, [5, 3], [1.0, 0.8]),
    "erase": lambda x: v2.functional.erase(x, 1, 2, 3, 4, torch.tensor([1.0, 2.0, 3.0])[:, None, None]),
}


@pytest.mark.slow
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("name", FUNCTIONALS)
def test_compiled_functional_equals_eager(name: str, ragged: bool) -> None:
    batch = ndd.batch([pixels(20, 24, seed=1), pixels(20, 24 if not ragged else 15, seed=2)], layout="CHW")
    torch.compiler.reset()
    result, expected = torch.compile(FUNCTIONALS[name], fullgraph=True, backend="eager")(batch), FUNCTIONALS[name](batch)
    assert result.shape == expected.shape
    for item, other in zip(result, expected, strict=True):
        assert (item.torch().int() - other.torch().int()).abs().max() <= 1
