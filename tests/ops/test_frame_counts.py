# SPDX-License-Identifier: Apache-2.0
"""Values per frame: their number is checked for all operators, also with ragged arguments or videos."""

from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd._core.operators.arguments import Role
from torch_ndd._core.operators.operator import OPERATORS

RNG = np.random.default_rng(0)
PER_FRAME = [
    (op.name, argument.name)
    for op in OPERATORS.values()
    if op.inputs and op.required and not op.options.per_frame and any(layout.startswith("F") for layout in op.options.layouts or ("F",))
    for argument in op.arguments.values()
    if argument.role in (Role.per_sample, Role.shape) and not argument.varying
]


def call_operator(name: str) -> Any:
    found: Any = ndd
    for part in name.split("."):
        found = getattr(found, part)
    return found


def video(frames: int) -> np.ndarray:
    return RNG.integers(0, 256, (frames, 6, 8, 3)).astype(np.uint8)


VIDEOS = {
    "one video": (ndd.tensor(video(3), layout="FHWC"), [3, 3]),
    "even": (ndd.batch([video(3), video(3)], layout="FHWC"), [3, 3]),
    "ragged": (ndd.batch([video(3), video(2)], layout="FHWC"), [3, 2]),
}


@pytest.mark.parametrize(("name", "argument"), PER_FRAME)
def test_another_number_of_values_than_frames(name: str, argument: str) -> None:
    """Arguments are checked first, so the other arguments do not matter."""
    op = OPERATORS[name]
    others = {key: 1.0 for key in op.missing if key != argument}
    for videos, frames in VIDEOS.values():
        inputs = [videos] * op.required
        for counts in ([4, 4], [2, 2], [4, 2], [2, 3]):
            if counts != frames:
                values = ndd.per_frame(ndd.batch([np.ones(count, np.float32) for count in counts]))
                with pytest.raises(RuntimeError, match=rf"{name}: argument '{argument}' is for . frames, but sample . of input 0 has . frames"):
                    call_operator(name)(*inputs, **others, **{argument: values})
        with pytest.raises(RuntimeError, match=rf"{name}: argument '{argument}' is for 4 frames"):
            call_operator(name)(*inputs, **others, **{argument: ndd.per_frame(np.ones(4, np.float32))})


def test_there_is_something_to_test() -> None:
    assert {("brightness", "brightness"), ("hsv", "hue"), ("gaussian_blur", "sigma"), ("laplacian", "scale"), ("rotate", "angle")} <= {*PER_FRAME}
    assert {("warp_affine", "matrix"), ("flip", "horizontal"), ("experimental.dilate", "mask_size"), ("filter", "anchor")} <= {*PER_FRAME}


def test_the_right_number_and_one_for_all() -> None:
    for videos, frames in VIDEOS.values():
        values = [np.linspace(1, 2, count, dtype=np.float32) for count in frames]
        output = ndd.brightness(videos, brightness=ndd.per_frame(ndd.batch(values)))
        single = ndd.brightness(videos, brightness=ndd.per_frame(ndd.batch([[1.5], [1.5]])))
        for k, factors in enumerate(values):
            own = videos if isinstance(videos, ndd.Tensor) else videos.tensors[k]
            expected = np.stack([np.asarray(ndd.brightness(frame, brightness=float(f))) for frame, f in zip(own.torch(), factors, strict=True)])
            assert np.array_equal(np.asarray(output.tensors[k]), expected)
            assert np.array_equal(np.asarray(single.tensors[k]), np.asarray(ndd.brightness(own, brightness=1.5)))


def test_without_the_mark_a_vector_is_one_value() -> None:
    videos = VIDEOS["one video"][0]
    for values in (np.ones(3, np.float32), torch.ones(3), ndd.tensor(np.ones(3, np.float32))):
        with pytest.raises((RuntimeError, ValueError), match="one number per sample"):
            ndd.brightness(videos, brightness=values)
    for values in (np.ones((3, 2), np.float32), ndd.batch([np.ones((3, 2), np.float32)])):
        with pytest.raises(RuntimeError, match="marked with per_frame"):
            ndd.gaussian_blur(videos, sigma=values)
    with pytest.raises(RuntimeError, match="brightness: argument 'brightness' is per-frame, but input 0 has no frame axis"):
        ndd.brightness(np.zeros((4, 4, 3), np.uint8), brightness=ndd.per_frame([1.0, 2.0]))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_graph_checks_it_when_it_runs() -> None:
    def program(videos: ndd.Batch, values: ndd.Batch) -> ndd.Batch:
        return ndd.brightness(videos, brightness=ndd.per_frame(values))

    compiled = torch.compile(program, fullgraph=True)
    videos = ndd.batch([video(3), video(1)], layout="FHWC")
    factors = ndd.batch([[2.0], [3.0]])
    assert np.array_equal(np.asarray(compiled(videos, factors).tensors[1]), np.asarray(program(videos, factors).tensors[1]))
    with pytest.raises(RuntimeError, match="argument 'brightness' and input 0 have different numbers of frames"):
        compiled(videos, ndd.batch([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]))
