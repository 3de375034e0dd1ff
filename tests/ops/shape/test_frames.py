# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

import torch_ndd as ndd


def test_marks_the_outermost_dimension() -> None:
    assert ndd.per_frame([1.0, 2.0]).layout == "F"
    assert ndd.per_frame(np.zeros((3, 2))).layout == "F*"
    assert ndd.per_frame(ndd.batch([[1, 2], [3]])).layout == "F"
    assert ndd.per_frame(ndd.tensor([[1, 2]], layout="FX")).layout == "FX"
    assert ndd.per_frame(ndd.tensor([[1, 2]], layout="HW"), replace=True).layout == "FW"
    assert ndd.per_frame([1.0, 2.0], batch_size=3).shape == [(2,)] * 3


def test_bad_arguments_are_rejected() -> None:
    with pytest.raises(RuntimeError, match="per_frame"):
        ndd.per_frame(5)
    with pytest.raises(RuntimeError, match="HW"):
        ndd.per_frame(ndd.tensor([[1, 2]], layout="HW"))


def test_one_value_a_frame() -> None:
    video = ndd.as_tensor(np.full((3, 2, 2, 3), 10, np.uint8), layout="FHWC")
    out = ndd.brightness(video, brightness=ndd.per_frame([1.0, 2.0, 3.0])).torch()
    assert out[:, 0, 0, 0].tolist() == [10, 20, 30]
    with pytest.raises(RuntimeError, match="3 frames"):
        ndd.brightness(video, brightness=ndd.per_frame([1.0, 2.0])).evaluate()
