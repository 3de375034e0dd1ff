# SPDX-License-Identifier: Apache-2.0
"""Decoders take files as paths, URLs and bytes."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import torch_ndd as ndd

NOISE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)


def png(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def wav() -> bytes:
    soundfile = pytest.importorskip("soundfile")
    file = io.BytesIO()
    soundfile.write(file, NOISE[:, :, 0].reshape(-1) / 256, 16000, format="WAV")
    return file.getvalue()


OPERATORS: dict[str, tuple[Callable[..., Any], Callable[[], bytes]]] = {
    "image": (ndd.decoders.image, lambda: png(NOISE)),
    "image_crop": (lambda files: ndd.decoders.image_crop(files, crop=[8, 9]), lambda: png(NOISE)),
    "image_slice": (lambda files: ndd.decoders.image_slice(files, [0.0, 0.25], [0.5, 0.5]), lambda: png(NOISE)),
    "image_random_crop": (lambda files: ndd.decoders.image_random_crop(files, rng=ndd.random.RNG(seed=1)), lambda: png(NOISE)),
    "peek_image_shape": (ndd.peek_image_shape, lambda: png(NOISE)),
    "numpy": (ndd.decoders.numpy, lambda: npy(NOISE)),
    "audio": (lambda files: ndd.decoders.audio(files)[0], wav),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_a_file_may_be_a_path_or_bytes(name: str, tmp_path: Path) -> None:
    function, make = OPERATORS[name]
    content, path = make(), tmp_path / "file"
    path.write_bytes(content)
    expected = np.asarray(function(np.frombuffer(content, np.uint8)))
    for value in (content, bytearray(content), memoryview(content), path, str(path)):
        result = function(value)
        assert isinstance(result, ndd.Tensor)
        assert np.array_equal(np.asarray(result), expected)


def test_lists_of_files_make_a_batch(tmp_path: Path) -> None:
    contents = [png(NOISE), png(NOISE[:7])]
    paths = [tmp_path / name for name in ("a.png", "b with blanks and é.png")]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    arrays = [np.frombuffer(content, np.uint8) for content in contents]
    for value in (paths, tuple(map(str, paths)), contents, arrays, [torch.from_numpy(array.copy()) for array in arrays], [paths[0], contents[1]]):
        result = ndd.decoders.image(value)
        assert isinstance(result, ndd.Batch)
        assert [np.asarray(item).tolist() for item in result] == [NOISE.tolist(), NOISE[:7].tolist()]
    assert np.array_equal(np.asarray(ndd.decoders.image([paths[0], str(paths[0])]).torch()), [NOISE, NOISE])  # paths of one length


def test_errors_name_the_file(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    good.write_bytes(png(NOISE))
    bad.write_bytes(b"no image")
    with pytest.raises(RuntimeError, match=r"sample 1 .*bad\.png"):
        ndd.decoders.image([good, bad])
    with pytest.raises(RuntimeError, match=r"missing\.png.*No such file"):
        ndd.decoders.image(tmp_path / "missing.png")
    with pytest.raises(RuntimeError, match="sample 1: the file is empty"):
        ndd.decoders.image([png(NOISE), b""])


@pytest.mark.parametrize("inputs", [[1, 2], [], [["a.png"]]])
def test_other_lists_are_refused(inputs: Any) -> None:
    with pytest.raises((RuntimeError, TypeError), match=r"decoders\.image: "):
        ndd.decoders.image(inputs)


def test_mistakes_name_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    with (tmp_path / "a.png").open("rb") as file, pytest.raises(TypeError, match=r"of an open file, pass the contents: file\.read\(\)"):
        ndd.decoders.image([file])
    with pytest.raises(RuntimeError, match=r"decoders\.image: there are no encoded images: the input is empty"):
        ndd.decoders.image([])
    with pytest.raises(RuntimeError, match="these values are decoded already"):
        ndd.decoders.image(ndd.batch([np.zeros((4, 4, 3), np.uint8)]))
    with pytest.raises(ValueError, match=r"encoded files must be decoded first, for instance by ndd\.decoders\.image"):
        ndd.resize(ndd.batch([np.zeros(9, np.uint8)]), size=[4, 4])
    with pytest.raises(ValueError, match=r"must be int.*got 'bilinear'; filters are numbers: ndd\.types\.INTERP_LINEAR"):
        ndd.resize(ndd.batch([np.zeros((4, 4, 3), np.uint8)]), size=[4, 4], interp_type="bilinear")
    image, windows = np.zeros((4, 4, 3), np.uint8), [[0, 0, 2, 2]]
    with pytest.raises(ValueError, match="multi_crop: sizes must be a list with the size of each window, got 8"):
        ndd.multi_crop(image, windows=windows, sizes=8)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"multi_crop: interp_type is not one of .*INTERP_LINEAR.*: cubic"):
        ndd.multi_crop(image, windows=windows, sizes=[8], interp_type="cubic")  # type: ignore[arg-type]


def test_other_operators_take_no_paths() -> None:
    with pytest.raises(RuntimeError, match="str is not supported"):
        ndd.flip("a.png")
