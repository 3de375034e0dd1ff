# SPDX-License-Identifier: Apache-2.0
"""``dump_image``: the contents of the files."""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _cases import Case, images
from PIL import Image

import torch_ndd as ndd
from torch_ndd import dump_image


def dump(*inputs: Any, **args: Any) -> Any:
    """Call the operator in a temporary folder."""
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return dump_image(*inputs, **args)
        finally:
            os.chdir(before)


CASES = [
    Case("dump_image", "colors", images("HWC"), {"suffix": "x"}, layout="HWC", reference=lambda image, suffix: image, uncompiled="files", call=dump),
]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_files_have_the_pixels(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    values = [generator.integers(0, 256, (5, 4 + i, 3)).astype(np.uint8) for i in range(3)]
    output = dump_image(ndd.batch(values), suffix="photo")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-photo-0.ppm", "1-photo-0.ppm", "2-photo-0.ppm"]
    for i, (sample, image) in enumerate(zip(output, values, strict=True)):
        np.testing.assert_array_equal(np.asarray(sample), image)
        np.testing.assert_array_equal(np.asarray(Image.open(f"{i}-photo-0.ppm")), image)
    dump_image(values[0][..., :1].copy())
    np.testing.assert_array_equal(np.asarray(Image.open("0--0.ppm")), values[0][..., 0])


@pytest.mark.parametrize(
    ("image", "args", "text"),
    [
        (np.zeros((3, 4, 3), np.float32), {}, "uint8"),
        (np.zeros((3, 4), np.uint8), {}, "three dimensions"),
        (np.zeros((3, 4, 4), np.uint8), {}, "channels"),
        (np.zeros((3, 4, 3), np.uint8), {"input_layout": "CHW"}, "HWC"),
        (np.zeros((3, 4, 3), np.uint8), {"suffix": "no/such/folder"}, "cannot write"),
    ],
)
def test_wrong_images(image: np.ndarray, args: dict[str, Any], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        dump_image(image, **args)
