# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
from _cases import Case, Each, arrays, images

import torch_ndd as ndd

CASES = [
    Case(
        "sequence_rearrange",
        "order",
        images("FHWC"),
        {"new_order": [2, 0, 0, 1]},
        layout="FHWC",
        reference=lambda video, new_order: video[new_order],
    ),
    Case(
        "sequence_rearrange",
        "orders",
        images("FHWC", "float32"),
        {"new_order": Each([[2, 0], [1, 1], [0, 2]])},
        layout="FHWC",
        reference=lambda video, new_order: video[new_order],
    ),
    Case(
        "sequence_rearrange",
        "rows",
        arrays((5, 7), "int64", axes=(0,)),
        {"new_order": Each([[2], [4], [0]])},
        reference=lambda video, new_order: video[new_order],
    ),
    Case(
        "element_extract",
        "frames",
        images("FHWC"),
        {"element_map": [2, 0, 2]},
        layout="FHWC",
        out_layout="HWC",
        reference=lambda video, element_map: tuple(video[k] for k in element_map),
    ),
    Case(
        "element_extract",
        "one row",
        arrays((4, 5), "float16", axes=(1,)),
        {"element_map": 3},
        reference=lambda video, **_: video[3],
    ),
]
VIDEO = np.arange(3 * 2 * 2, dtype=np.uint8).reshape(3, 2, 2)


def test_orders_of_different_length() -> None:
    batch = ndd.batch([VIDEO, VIDEO[:2].copy()], layout="FHW")
    out = ndd.sequence_rearrange(batch, new_order=ndd.batch([np.array([2, 1, 0, 0]), np.array([1])]))
    assert out.shape == [(4, 2, 2), (1, 2, 2)]
    assert np.array_equal(np.asarray(out.tensors[0]), VIDEO[[2, 1, 0, 0]])
    assert np.array_equal(np.asarray(out.tensors[1]), VIDEO[[1]])


@pytest.mark.parametrize("order", [[3], [-1], [0, 1, 9]])
def test_no_such_frame(order: list[int]) -> None:
    with pytest.raises(RuntimeError, match="sequence_rearrange: argument 'new_order': sample 0 has 3 frames"):
        ndd.sequence_rearrange(ndd.tensor(VIDEO), new_order=order)
    with pytest.raises(RuntimeError, match="element_extract: argument 'element_map': sample 1 has 2 frames"):
        ndd.element_extract(ndd.batch([VIDEO, VIDEO[:2].copy()]), element_map=[1, 2])


def test_extracted_frames_are_pending_together() -> None:
    with ndd.EvalMode.deferred:
        first, last = ndd.element_extract(ndd.batch([VIDEO, VIDEO + 1], layout="FHW"), element_map=[0, 2])
        assert first.pending is last.pending is not None
        sums = last + 1
    assert np.array_equal(np.asarray(sums.torch()), np.stack([VIDEO[2] + 1, VIDEO[2] + 2]))
    assert first.layout == "HW"
