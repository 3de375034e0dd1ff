# SPDX-License-Identifier: Apache-2.0
"""What type checkers know of operators: pyright reads this file in `make lint`, and the test runs it."""

from typing import Any

import numpy as np
import torch
from typing_extensions import assert_type

import torch_ndd as ndd


def test_types_of_results() -> None:
    images = ndd.batch(np.zeros((2, 4, 5, 3), np.uint8), layout="HWC")
    outputs: list[tuple[Any, type]] = [
        (assert_type(ndd.resize(images, size=[2, 2]), ndd.Batch), ndd.Batch),
        (assert_type(ndd.resize(torch.zeros(4, 5, 3), size=[2, 2]), ndd.Tensor), ndd.Tensor),
        (assert_type(ndd.flip(np.zeros((4, 5, 3), np.uint8)), ndd.Tensor), ndd.Tensor),
        (assert_type(ndd.reductions.mean([1, 2]), ndd.Tensor), ndd.Tensor),
        (assert_type(ndd.random.uniform(images), ndd.Batch), ndd.Batch),
        (assert_type(ndd.nonsilent_region(ndd.batch([[0.0, 1.0]]))[0], ndd.Batch), ndd.Batch),
        (assert_type(images + 1, ndd.Batch), ndd.Batch),
        (assert_type(1 + ndd.tensor(1), ndd.Tensor), ndd.Tensor),
    ]
    assert all(isinstance(value, kind) for value, kind in outputs)
