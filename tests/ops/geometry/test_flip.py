# SPDX-License-Identifier: Apache-2.0
import itertools

import numpy as np
import pytest
from _cases import Case, Each, images

import torch_ndd as ndd


def flip_reference(layout: str):
    def reference(image: np.ndarray, *, horizontal: int = 1, vertical: int = 0, depthwise: int = 0) -> np.ndarray:
        wanted = {"W": horizontal, "H": vertical, "D": depthwise}
        return np.flip(image, [axis for axis, letter in enumerate(layout) if wanted.get(letter)])

    return reference


LAYOUTS = ("HWC", "CHW", "DHWC", "CDHW", "FHWC", "FCHW", "FDHWC", "FCDHW")
CASES = [
    *(
        Case(
            "flip",
            f"{layout} {axes}",
            images(layout),
            dict(zip(("horizontal", "vertical", "depthwise"), axes, strict=True)),
            layout=layout,
            reference=flip_reference(layout),
        )
        for layout in LAYOUTS
        for axes in ((1, 0, 0), (0, 1, 0), (1, 1, 1))
    ),
    Case("flip", "default", images("HWC", "float32"), layout="HWC", reference=flip_reference("HWC")),
    Case(
        "flip",
        "per sample",
        images("HWC"),
        {"horizontal": Each([1, 0, 1]), "vertical": Each([0, 1, 1])},
        layout="HWC",
        reference=flip_reference("HWC"),
    ),
    Case(
        "flip", "depth per sample", images("CDHW"), {"horizontal": 0, "depthwise": Each([1, 0, 1])}, layout="CDHW", reference=flip_reference("CDHW")
    ),
]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "uint16", "float16", "float32", "int64"])
@pytest.mark.parametrize(("width", "channels"), [*itertools.product((1, 2, 5, 6, 21, 22, 43, 64, 129), (1, 2, 3, 4, 5, 17))])
def test_every_width_and_pixel(dtype: str, width: int, channels: int) -> None:
    image = np.random.default_rng(0).integers(0, 200, (2, width, channels)).astype(dtype)
    assert np.array_equal(np.asarray(ndd.flip(ndd.tensor(image, layout="HWC"))), image[:, ::-1])


@pytest.mark.parametrize("width", [640, 701, 3000])
def test_large_images(width: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (480, width, 3)).astype(np.uint8)
    for horizontal, vertical in itertools.product((0, 1), repeat=2):
        out = ndd.flip(ndd.tensor(image, layout="HWC"), horizontal=horizontal, vertical=vertical)
        assert np.array_equal(np.asarray(out), image[:: -1 if vertical else 1, :: -1 if horizontal else 1])


def test_per_frame() -> None:
    video = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3)).astype(np.uint8)
    for layout, axes in (("FHWC", (0, 1, 2, 3)), ("FCHW", (0, 3, 1, 2))):
        values = video.transpose(axes)
        each = ndd.tensor(np.int32([1, 0, 1]), layout="F")
        out = np.asarray(ndd.flip(ndd.tensor(values, layout=layout), horizontal=each))
        assert np.array_equal(out[1], values[1])
        assert np.array_equal(out[::2], np.flip(values[::2], layout.index("W")))
    with pytest.raises(RuntimeError, match="flip: argument 'horizontal' is for 2 frames, but input 0 has 3 frames"):
        ndd.flip(ndd.tensor(video, layout="FHWC"), horizontal=ndd.tensor(np.int32([1, 0]), layout="F"))


def test_empty_image() -> None:
    assert ndd.flip(ndd.tensor(np.zeros((0, 5, 3), np.uint8), layout="HWC")).evaluate().shape == (0, 5, 3)


def test_wrong_layout() -> None:
    with pytest.raises(ValueError, match=r'flip: The layout "WHC" does not match'):
        ndd.flip(ndd.tensor(np.zeros((2, 2, 2), np.uint8), layout="WHC"))
