# SPDX-License-Identifier: Apache-2.0
"""Image decoders that continue without bad files, and the limit against decompression bombs."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import torch_ndd as ndd
from torch_ndd import types


def encode(codec: str, height: int = 40, width: int = 60) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)).save(file, codec)
    return np.frombuffer(file.getvalue(), np.uint8)


JPEG, PNG, JPEG2000 = encode("JPEG"), encode("PNG", 20), encode("JPEG2000", 44, 30)
TEXT = np.frombuffer(b"not an image at all", np.uint8)
# Good, damaged pixels, no header, good, damaged JPEG 2000, good, nothing.
FILES = [JPEG, JPEG[: len(JPEG) // 2], TEXT, PNG, JPEG2000[: len(JPEG2000) // 2], JPEG2000, np.zeros(0, np.uint8)]
BAD, GOOD = [1, 2, 4, 6], [0, 3, 5]
MODES = ("deferred", "eager", "sync_cpu")


def decode(file: np.ndarray, **options: object) -> np.ndarray:
    return np.asarray(ndd.decoders.image(ndd.tensor(file), **options))


@pytest.mark.parametrize("mode", MODES)
def test_skip_leaves_bad_samples_out(mode: str) -> None:
    with ndd.EvalMode[mode]:
        images = ndd.decoders.image(ndd.batch(FILES), on_error="skip")
        labels = ndd.as_batch(torch.arange(len(FILES)))
        assert images.batch_size == len(GOOD)
        assert (images.kept, [error.index for error in images.errors]) == (GOOD, BAD)
        assert labels.select(images.kept).torch().tolist() == GOOD
    for image, i in zip(images, GOOD, strict=True):
        assert np.array_equal(np.asarray(image), decode(FILES[i]))


@pytest.mark.parametrize("mode", MODES)
def test_replace_keeps_the_batch_size(mode: str) -> None:
    with ndd.EvalMode[mode]:
        images = ndd.decoders.image(ndd.batch(FILES), on_error="replace")
        assert (images.kept, [error.index for error in images.errors]) == (GOOD, BAD)
    for i in GOOD:
        assert np.array_equal(np.asarray(images.select(i)), decode(FILES[i]))
    # The header of sample 1 is valid; the others get the median of 40 40 20 44 by 60 60 60 30.
    for i, shape in zip(BAD, ((40, 60, 3), (40, 60, 3), (40, 60, 3), (40, 60, 3)), strict=True):
        assert np.array_equal(np.asarray(images.select(i)), np.zeros(shape, np.uint8))


def test_errors_say_which_and_why(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.jpg" for i in range(len(FILES))]
    for path, file in zip(paths, FILES, strict=True):
        path.write_bytes(file.tobytes())
    reader = ndd.readers.File(files=[str(path) for path in paths])
    for files, labels in reader.next_epoch(batch_size=len(FILES)):
        images = ndd.decoders.image(files, on_error="skip")
        assert [error.source for error in images.errors] == [str(paths[i]) for i in BAD]
        assert [error.reason.partition(" (")[0] for error in images.errors] == [
            "the image data are damaged",
            "not an image of a supported format",
            "the image data are damaged",
            "the file is empty",
        ]
        assert labels.select(images.kept).torch().flatten().tolist() == GOOD
        assert [bytes(ndd.get_property(image, key="source_info").torch()).decode() for image in images] == [str(paths[i]) for i in GOOD]
    index, source, reason = images.errors[0]
    assert (index, source) == (1, str(paths[1]))
    assert "Premature end" in reason


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_damaged_pixels_name_their_file(mode: str, compiled: bool, tmp_path: Path) -> None:
    """Also if an operator after the decoder, or a compiled graph, raises the error."""

    def smaller(images: ndd.Batch) -> torch.Tensor:
        return ndd.resize(images, size=[8, 8]).torch()

    for i, file in enumerate((JPEG, JPEG[: len(JPEG) // 2])):
        (tmp_path / f"{i}.jpg").write_bytes(file.tobytes())
    ((files, _),) = ndd.readers.File(files=sorted(tmp_path.iterdir())).next_epoch(batch_size=2)
    with ndd.EvalMode[mode], pytest.raises(RuntimeError) as raised:
        (torch.compile(smaller, backend="eager") if compiled else smaller)(ndd.decoders.image(files))
    text = str(raised.value)
    assert text.startswith(f"decoders.image: sample 1 ({tmp_path / '1.jpg'}): the image data are damaged")


def test_nothing_bad() -> None:
    for policy in ("skip", "replace", "raise"):
        images = ndd.decoders.image(ndd.batch([JPEG, JPEG]), on_error=policy)
        assert (images.errors, images.kept, images.torch().shape) == ([], [0, 1], (2, 40, 60, 3))
    assert ndd.batch([[1], [2, 3]]).kept == [0, 1]
    assert ndd.tensor([1]).errors == []


def test_nothing_good() -> None:
    files = ndd.batch([TEXT, TEXT[:3]])
    assert ndd.decoders.image(files, on_error="skip").shape == []
    assert ndd.decoders.image(files, on_error="replace").torch().shape == (2, 1, 1, 3)
    assert ndd.decoders.image(files, on_error="replace", output_type=types.GRAY).torch().shape == (2, 1, 1, 1)
    assert ndd.decoders.image_crop(files, on_error="replace", crop=[32, 24]).torch().shape == (2, 32, 24, 3)
    assert ndd.decoders.image_slice(files, start=[3, 4], shape=[10, 20], on_error="replace").torch().shape == (2, 20, 10, 3)


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_windows_of_bad_samples_follow_on_error(policy: str) -> None:
    files = ndd.batch(FILES)
    crops = ndd.decoders.image_crop(files, crop=[16, 24], on_error=policy)
    parts = ndd.decoders.image_slice(files, [0.25, 0.25], [0.5, 0.5], on_error=policy)
    randoms = ndd.decoders.image_random_crop(files, on_error=policy, random_area=[0.9, 1.0])
    for images in (crops, parts, randoms):
        assert set(images.kept) >= set(GOOD)  # a window may end before the damage
        assert {2, 4, 6} <= {error.index for error in images.errors}
        assert images.batch_size == (len(images.kept) if policy == "skip" else len(FILES))
    assert set(crops.shape) == {(16, 24, 3)}
    whole = ndd.crop(ndd.tensor(decode(PNG), layout="HWC"), crop=[16, 24])
    assert np.array_equal(np.asarray(crops.select(crops.kept.index(3) if policy == "skip" else 3)), np.asarray(whole))


def test_a_window_outside_is_an_error_all_the_same() -> None:
    with pytest.raises(RuntimeError, match=r"sample 3: .*leaves the image of height 20"):
        ndd.decoders.image_crop(ndd.batch(FILES), crop=[30, 30], on_error="replace")


def test_a_single_sample() -> None:
    image = ndd.decoders.image(ndd.tensor(TEXT), on_error="replace")
    assert (image.shape, [error.index for error in image.errors]) == ((1, 1, 3), [0])
    assert ndd.decoders.image(ndd.tensor(JPEG), on_error="skip").shape == (40, 60, 3)
    with pytest.raises(RuntimeError, match=r"decoders\.image: a single sample cannot be skipped: not an image"):
        ndd.decoders.image(ndd.tensor(TEXT), on_error="skip")


def test_under_compile() -> None:
    torch.compiler.reset()
    files = [torch.from_numpy(file.copy()) for file in (JPEG, TEXT)]
    replaced = torch.compile(lambda file: ndd.decoders.image_crop(file, crop=[8, 8], on_error="replace").torch(), fullgraph=True)
    assert torch.equal(replaced(files[0]), ndd.decoders.image_crop(files[0], crop=[8, 8]).torch())
    with pytest.raises(Exception, match="skip"):
        torch.compile(lambda file: ndd.decoders.image(file, on_error="skip").torch(), fullgraph=True)(files[0])
    torch.compiler.reset()


@pytest.mark.parametrize("file", [JPEG, PNG, JPEG2000], ids=["jpeg", "png", "jpeg 2000"])
def test_images_above_max_pixels_are_rejected(file: np.ndarray) -> None:
    height, width, _ = ndd.peek_image_shape(file).torch().tolist()
    pixels = height * width
    assert decode(file, max_pixels=pixels).shape == (height, width, 3)
    bad = ndd.batch([PNG[:0], file])
    with pytest.raises(RuntimeError, match=rf"sample 0: the image has {height}x{width} = {pixels} pixels, more than max_pixels={pixels - 1}"):
        ndd.decoders.image(file, max_pixels=pixels - 1)
    with pytest.raises(RuntimeError, match="max_pixels=100"):
        ndd.decoders.image_crop(file, crop=[2, 2], max_pixels=100)
    images = ndd.decoders.image(bad, max_pixels=pixels - 1, on_error="skip")
    assert (images.batch_size, "max_pixels" in images.errors[1].reason) == (0, True)


def test_max_pixels_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NDD_MAX_PIXELS", "100")
    with pytest.raises(RuntimeError, match="more than max_pixels=100"):
        ndd.decoders.image_crop(PNG, crop=[2, 2])
    for file in (JPEG, JPEG2000):
        with pytest.raises(RuntimeError, match=r"more than max_pixels=100, .*; pass a larger max_pixels, or set TORCH_NDD_MAX_PIXELS"):
            ndd.decoders.image(file)
        assert decode(file, max_pixels=10**6).ndim == 3
    monkeypatch.setenv("TORCH_NDD_MAX_PIXELS", "many")
    with pytest.raises(ValueError, match="TORCH_NDD_MAX_PIXELS must be an integer, got 'many'"):
        ndd.decoders.image(JPEG)


def test_bombs_are_refused_by_default(tmp_path: Path) -> None:
    # 400 million pixels of PNG in 50 kB: libpng would write 1.2 GB.
    bomb = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(bomb, "PNG")
    file = np.frombuffer(bomb.getvalue(), np.uint8)
    assert len(file) < 100_000
    with pytest.raises(RuntimeError, match=r"20000x20000 = 400000000 pixels, more than max_pixels=268435456"):
        ndd.decoders.image(file)
    assert ndd.peek_image_shape(file).torch().tolist() == [20_000, 20_000, 3]


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match=r"decoders\.image: on_error must be one of raise, skip, replace, got \'ignore\'"):
        ndd.decoders.image(JPEG, on_error="ignore")
    for wrong in (0, -5):
        with pytest.raises(ValueError, match=r"decoders\.image: max_pixels must be positive"):
            ndd.decoders.image(JPEG, max_pixels=wrong)
