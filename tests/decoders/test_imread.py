# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import torch_ndd as ndd
from torch_ndd import types


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    noise = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    for i, name in enumerate(("a.png", "b.jpg", "with blanks and é.png")):
        Image.fromarray(noise[: 20 - i]).save(tmp_path / name)
    (tmp_path / "empty").touch()
    return tmp_path


def path_bytes(path: Path) -> np.ndarray:
    return np.frombuffer(bytes(path), np.uint8)


def decode(path: Path, **options: object) -> np.ndarray:
    return np.asarray(ndd.decoders.image(np.fromfile(path, np.uint8), **options))


def test_imread_decodes_one_file(folder: Path) -> None:
    for path in folder.glob("*.*"):
        for value in (path, str(path), path_bytes(path), ndd.tensor(path_bytes(path)), bytes(path)):
            image = ndd.imread(value)
            assert isinstance(image, ndd.Tensor)
            assert image.layout == "HWC"
            assert np.array_equal(np.asarray(image), decode(path))


def test_imread_makes_a_batch_of_a_list(folder: Path) -> None:
    paths = sorted(folder.glob("*.*"))
    for value in (paths, tuple(map(str, paths)), [ndd.tensor(path_bytes(path)) for path in paths], ndd.batch([path_bytes(path) for path in paths])):
        images = ndd.imread(value)
        assert isinstance(images, ndd.Batch)
        for image, path in zip(images, paths, strict=True):
            assert np.array_equal(np.asarray(image), decode(path))
    assert [bytes(ndd.get_property(item, key="source_info").torch()) for item in ndd.imread(paths)] == [bytes(path) for path in paths]


def test_imread_hands_options_on(folder: Path) -> None:
    path = folder / "a.png"
    options = {"output_type": types.GRAY, "dtype": ndd.float32}
    assert np.array_equal(np.asarray(ndd.imread(path, device="cpu", use_fast_idct=True, **options)), decode(path, **options))
    assert ndd.imread(path, output_type=types.GRAY).shape == (20, 30, 1)


def test_imread_refuses(folder: Path) -> None:
    with pytest.raises(ValueError, match="empty"):
        ndd.imread([])
    with pytest.raises(ValueError, match="tpu"):
        ndd.imread(folder / "a.png", device="tpu")
    with pytest.raises(RuntimeError, match=r"sample 1: .*missing\.png.*No such file"):
        ndd.imread([folder / "a.png", folder / "missing.png"])
    with pytest.raises(RuntimeError, match=r"decoders\.image: sample 0 \(.*empty\)"):
        ndd.imread(folder / "empty")
    with pytest.raises(TypeError, match="batch_size"):
        ndd.imread(folder / "a.png", batch_size=2)


def test_imread_continues_without_bad_files(folder: Path) -> None:
    (folder / "text.png").write_text("no image")
    paths = [folder / "a.png", folder / "text.png", folder / "b.jpg"]
    images = ndd.imread(paths, on_error="skip")
    assert (images.batch_size, images.kept) == (2, [0, 2])
    assert [(error.index, error.source) for error in images.errors] == [(1, str(paths[1]))]


def test_read_gives_the_contents(folder: Path) -> None:
    paths = sorted(folder.iterdir())
    files = ndd.io.file.read(ndd.batch([path_bytes(path) for path in paths]), dont_use_mmap=True, use_o_direct=True)
    assert (files.dtype, files.layout) == (ndd.uint8, None)
    assert [bytes(np.asarray(file)) for file in files] == [path.read_bytes() for path in paths]
    assert bytes(np.asarray(ndd.io.file.read(path_bytes(paths[0])))) == paths[0].read_bytes()
    assert ndd.io.file.read(path_bytes(paths[0]), batch_size=3).batch_size == 3


def test_read_refuses(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for name, reason in (("missing", "No such file"), ("", "Is a directory"), ("pipe", "not a regular file"), ("a.png\0", "zero byte")):
        with pytest.raises(RuntimeError, match=rf"io\.file\.read: sample 0: .*{reason}"):
            ndd.io.file.read(np.frombuffer(os.fsencode(folder) + b"/" + name.encode(), np.uint8))
    for wrong in (np.zeros((2, 2), np.uint8), np.zeros(3, np.int32)):
        with pytest.raises(RuntimeError, match=r"io\.file\.read: Unexpected input data type"):
            ndd.io.file.read(wrong)


def test_a_file_that_changes_after_the_call(folder: Path) -> None:
    path = folder / "a.png"
    with ndd.EvalMode.deferred:
        file = ndd.io.file.read(ndd.tensor(path_bytes(path)))
        path.write_bytes(b"shorter")
        with pytest.raises(RuntimeError) as caught:
            np.asarray(file)
    assert "changed" in str(caught.value)
