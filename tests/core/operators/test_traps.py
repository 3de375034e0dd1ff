# SPDX-License-Identifier: Apache-2.0
"""Warnings about input that is most likely a mistake."""

import warnings
from typing import Any

import pytest
import torch

import torch_ndd as ndd
from torch_ndd._core.operators import planes


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planes, "_warned", set())


@pytest.mark.parametrize("planes_", [torch.zeros(3, 20, 30), torch.zeros(2, 3, 20, 30), [torch.zeros(3, 20, 30), torch.zeros(3, 9, 40)]])
def test_planes_taken_as_rows(planes_: Any) -> None:
    images = planes_ if isinstance(planes_, torch.Tensor) and planes_.dim() == 3 else ndd.as_batch(planes_)
    with pytest.warns(UserWarning, match=r"^flip: an input of shape \(3, 20, 30\) without a layout is taken as HWC.* layout=\"CHW\"") as found:
        ndd.flip(images)
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ndd.flip(images)  # once


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_a_layout_says_what_is_meant(layout: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ndd.flip(ndd.as_tensor(torch.zeros(3, 20, 30), layout=layout))
        ndd.flip(torch.zeros(3, 20, 3))
        ndd.flip(torch.zeros(20, 3, 30))
