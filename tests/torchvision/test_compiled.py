# SPDX-License-Identifier: Apache-2.0
"""Functionals and transforms in ``torch.compile(fullgraph=True)``: the same results as without."""

from typing import Any

import pytest
import torch
from _torchvision import pixels

import torch_ndd as ndd
from torch_ndd.torchvision import v2


def _prepared(images: Any) -> Any:
    moved = v2.functional.horizontal_flip(v2.functional.adjust_brightness(images, 1.2))
    return v2.Compose([v2.Resize((10, 12)), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)])(moved)


@pytest.mark.parametrize("kind", ["tensor", "batch", "ragged"])
def test_a_chain(kind: str) -> None:
    samples = [pixels(20, 24, seed=1), pixels(20, 24 if kind != "ragged" else 15, seed=2)]
    given: Any = torch.stack(samples) if kind == "tensor" else ndd.batch(samples, layout="CHW")
    torch.compiler.reset()
    made, expected = torch.compile(_prepared, fullgraph=True, backend="eager")(given), _prepared(given)
    if kind != "tensor":
        made, expected = made.torch(), expected.torch()
    assert torch.allclose(made, expected, atol=0.05)
