# SPDX-License-Identifier: Apache-2.0
"""Bad input from the file to the operator: which error names what, that the reader and the stream continue, and that memory does not grow.

``decoders/test_bad_images.py`` covers every kind of damaged file, ``test_operators.py`` the mistakes that every operator must reject,
``readers/test_file.py`` those of the reader, and ``core/work/test_stream.py`` how an error is reported.
"""

import io
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _memory import resident_kilobytes
from PIL import Image

import torch_ndd as ndd
from torch_ndd import EvalMode

MODES = [EvalMode.deferred, EvalMode.eager, EvalMode.sync_cpu, EvalMode.sync_full]
each_mode = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


def png(height: int = 24, width: int = 32) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.arange(height * width * 3, dtype=np.uint8).reshape(height, width, 3)).save(file, "PNG")
    return file.getvalue()


GOOD = png()
PIXELS = np.arange(24 * 32 * 3, dtype=np.uint8).reshape(24, 32, 3)
_jpeg = io.BytesIO()
Image.fromarray(PIXELS).save(_jpeg, "JPEG")
BAD_FILES = {
    "truncated": GOOD[:-60],
    "corrupt": bytearray(_jpeg.getvalue()[:200]) + b"\x00\xff\x13\x00" * 40,
    "empty": b"",
    "text": b"a text, whatever its name says\n",
    "missing": None,
    "folder": None,
}


def reader_of(folder: Path, kind: str) -> ndd.readers.File:
    """Two good files with a bad one between them."""
    for name in ("0.jpg", "2.jpg"):
        (folder / name).write_bytes(GOOD)
    content = BAD_FILES[kind]
    if kind == "folder":
        (folder / "bad.jpg").mkdir()
    elif content is not None:
        (folder / "bad.jpg").write_bytes(content)
    return ndd.readers.File(files=["0.jpg", "bad.jpg", "2.jpg"], file_root=folder)


def chain(files: Any) -> Any:
    return ndd.brightness(ndd.decoders.image(files), brightness=1.0)


def texts(error: BaseException | None) -> str:
    text = ""
    while error is not None:
        text, error = f"{text}{type(error).__name__}: {error}\n", error.__cause__
    return text


def assert_good(batch: Any) -> None:
    for sample in batch:
        assert np.array_equal(np.asarray(sample), PIXELS)


def decode_an_epoch(reader: ndd.readers.File) -> None:
    for files, _ in reader.next_epoch(batch_size=3):
        assert_good(chain(files))


@each_mode
@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_is_named_and_the_epoch_continues(tmp_path: Path, kind: str, mode: EvalMode, capfd: pytest.CaptureFixture[str]) -> None:
    reader = reader_of(tmp_path, kind)
    by = "readers.File" if kind in ("missing", "folder") else "decoders.image"
    with mode:
        for _ in range(2):  # the same error again
            with pytest.raises(RuntimeError) as caught:
                decode_an_epoch(reader)
            assert re.search(rf"RuntimeError: {by}: sample 1 \(.*bad\.jpg\): ", texts(caught.value)), texts(caught.value)
        assert_good(chain(ndd.batch([np.frombuffer(GOOD, np.uint8)] * 2)))
        if kind == "folder":
            (tmp_path / "bad.jpg").rmdir()
        # Another file takes the name: the reader may be reading the old one ahead, and would see it cut.
        (tmp_path / "new").write_bytes(GOOD)
        (tmp_path / "new").replace(tmp_path / "bad.jpg")
        for _ in range(2):  # what was read ahead
            next(reader.next_epoch(batch_size=3))
        decode_an_epoch(reader)
    assert capfd.readouterr().err == ""


def test_a_good_sample_next_to_a_bad_one(tmp_path: Path) -> None:
    """The other samples of the epoch are read one by one; only the damaged one fails."""
    decoded = 0
    for file, _ in reader_of(tmp_path, "truncated").next_epoch():
        with suppress(RuntimeError):
            assert_good([chain(file)])
            decoded += 1
    assert decoded == 2


@pytest.mark.parametrize("with_file", [False, True], ids=["empty", "without images"])
def test_a_folder_without_images(tmp_path: Path, with_file: bool, capfd: pytest.CaptureFixture[str]) -> None:
    if with_file:
        (tmp_path / "readme.txt").write_text("no image")
    reader = ndd.readers.File(file_root=tmp_path)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"readers\.File: .*"):
            next(reader.next_epoch(batch_size=2))
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "0.png").write_bytes(GOOD)
    ((files, _),) = reader.next_epoch(batch_size=1)
    assert_good(chain(files))
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    reader = reader_of(tmp_path, "text")
    (tmp_path / "bad.jpg").chmod(0)
    with pytest.raises(RuntimeError, match=r"readers\.File: sample 1 \(.*bad\.jpg\): .*[Pp]ermission"):
        next(reader.next_epoch(batch_size=3))


def images(count: int = 2) -> ndd.Batch:
    return ndd.batch(np.stack([PIXELS] * count), layout="HWC")


def videos() -> ndd.Batch:
    return ndd.batch(np.zeros((2, 4, 6, 8, 3), np.uint8), layout="FHWC")


def per_frame(*values: float) -> Any:
    return ndd.per_frame(list(values))


def turn() -> Any:
    volumes = ndd.batch(np.zeros((1, 4, 3, 6, 8, 1), np.uint8), layout="FDHWC")
    return ndd.rotate(volumes, angle=1.0, axis=ndd.per_frame([[0.0, 0.0, 1.0]] * 2), keep_size=True)


CUT = {"crop": [25, 8]}
# The call, the type of the exception, and what its text names.
CALLS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "crop outside": (lambda: ndd.crop(images(), **CUT), RuntimeError, r"crop: sample 0: the window .* axis H of extent 24 .*crop_h"),
    "normalized crop outside": (
        lambda: ndd.crop_mirror_normalize(images(), crop=[8, 33]),
        RuntimeError,
        r"sample 0: .* axis W of extent 32 .*crop_w",
    ),
    "crop position": (lambda: ndd.crop(images(), crop=[8, 8], crop_pos_x=1.5), RuntimeError, "crop: crop_pos_x .* 1.5"),
    "crop not a number": (lambda: ndd.crop(images(), crop=[float("nan"), 8]), RuntimeError, "crop: crop must be finite"),
    "crop nested": (
        lambda: ndd.crop(images(), crop=[[1, 2], [3, 4], [5, 6]]),
        RuntimeError,
        "crop: argument 'crop' takes height and width.*ndd.batch",
    ),
    "crop_h list": (lambda: ndd.crop(images(), crop_h=[1, 2, 3], crop_w=3), TypeError, "crop: argument 'crop_h' takes one number.*ndd.batch"),
    "crop policy": (
        lambda: ndd.crop(images(), **CUT, out_of_bounds_policy="x"),
        RuntimeError,
        "crop: out_of_bounds_policy must be one of error",
    ),
    "no fill values": (lambda: ndd.crop(images(), crop=[9, 9], fill_values=[]), RuntimeError, "crop: argument 'fill_values' has no values"),
    "no frames": (lambda: ndd.brightness(videos(), brightness=np.zeros(0)), ValueError, "brightness: argument 'brightness' takes one"),
    "no filters": (lambda: ndd.resize(videos(), size=9, interp_type=np.zeros(0)), ValueError, "resize: argument 'interp_type' takes one"),
    "frames": (
        lambda: ndd.brightness(videos(), brightness=per_frame(1, 1)),
        RuntimeError,
        "brightness: argument 'brightness' is for 2 frames, .* has 4 frames",
    ),
    "frames of two arguments": (
        lambda: ndd.color_twist(videos(), hue=per_frame(1, 1, 1, 1), contrast=per_frame(1, 1)),
        RuntimeError,
        "color_twist: argument 'contrast' is for 2 frames, .* has 4 frames",
    ),
    "frames of the axis": (
        turn,
        RuntimeError,
        "rotate: argument 'axis' is for 2 frames, .* has 4 frames",
    ),
    "size": (lambda: ndd.resize(images(), size=[float("inf"), 3]), ValueError, "resize: size must be finite"),
    "size beyond all bounds": (lambda: ndd.resize(images(), size=[1e30, 3]), ValueError, "resize: the output would have .* too large"),
    "mode": (lambda: ndd.resize(images(), size=3, mode=[]), TypeError, "resize: mode must be a str"),
    "max_size": (lambda: ndd.resize(images(), size=3, max_size={}), TypeError, "resize: max_size must be"),
    "huge angle": (lambda: ndd.rotate(images(), angle=ndd.batch(np.array([1, 1e300]))), RuntimeError, "rotate: sample 1: angle must be finite"),
    "huge canvas": (lambda: ndd.rotate(images(), angle=1, size=[1e30, 1e30]), RuntimeError, r"rotate: size must be positive and less than"),
    "canvas without memory": (lambda: ndd.rotate(images(), angle=1, size=[1e9, 1e9]), MemoryError, "rotate: no memory"),
    "attempts": (lambda: ndd.random_resized_crop(images(), size=9, num_attempts=2**63), ValueError, "argument .num_attempts. is out of range"),
    "integer beyond 64 bits": (lambda: ndd.spectrogram(PIXELS, window_step=10**30), ValueError, "spectrogram: argument .window_step. is out"),
    "huge size": (lambda: ndd.random_resized_crop(images(), size=2**70), ValueError, "random_resized_crop: size must be less"),
    "angle": (lambda: ndd.rotate(images(), angle=float("nan")), RuntimeError, "rotate: angle must be finite"),
    "no pixels": (lambda: ndd.rotate(np.zeros((0, 4, 3)), angle=9.0, size=[2, 2]), RuntimeError, "rotate: the input has no pixels, sample 0"),
    "no pixels to resize": (lambda: ndd.random_resized_crop(np.zeros((0, 4, 3)), size=9), RuntimeError, "random_resized_crop: .* without pixels"),
    "area": (lambda: ndd.random_resized_crop(images(), size=9, random_area=[0.9, 0.1]), RuntimeError, "random_resized_crop: random_area"),
    "sigma": (lambda: ndd.gaussian_blur(images(), sigma=ndd.batch([1.0, -1.0])), RuntimeError, "gaussian_blur: sample 1: sigma must not be negative"),
    "huge sigma": (lambda: ndd.gaussian_blur(images(), sigma=1e30), RuntimeError, "gaussian_blur: sample 0: sigma or window_size is too large"),
    "window": (lambda: ndd.gaussian_blur(images(), window_size=2**31), ValueError, "gaussian_blur: argument 'window_size' is out of range"),
    "mirror": (lambda: ndd.flip(images(), horizontal=1e300), ValueError, "flip: argument 'horizontal' is out of range"),
    "channels": (lambda: ndd.color_twist(np.zeros((4, 4, 2))), RuntimeError, "color_twist: the image must have 3 channels, got 2"),
    "dtype": (lambda: ndd.resize(images(), size=3, dtype=ndd.int16), RuntimeError, "resize: dtype must be"),
    "no dtype": (lambda: ndd.cast(images(), dtype="nope"), ValueError, "cast: dtype: unknown element type 'nope'"),
    "layout": (lambda: ndd.flip(ndd.batch(np.zeros((2, 4, 4, 3)), layout="WHC")), ValueError, 'flip: The layout "WHC"'),
    "dimensions": (lambda: ndd.brightness(3.0), ValueError, "brightness: The number of dimensions 0"),
    "object array": (lambda: ndd.brightness(images(), brightness=np.array([1, None])), TypeError, "brightness: argument 'brightness'"),
    "batch of an argument": (
        lambda: ndd.brightness(images(), brightness=ndd.batch([1.0] * 3)),
        ValueError,
        r"brightness: Inconsistent batch size: 2 != 3 \(argument 'brightness'\)",
    ),
    "batch_size": (
        lambda: ndd.brightness(images(), batch_size=3),
        ValueError,
        "brightness: Inconsistent batch size: batch_size=3, but another argument is a Batch of 2",
    ),
    "argument name": (lambda: ndd.brightness(images(), brightnes=2), TypeError, "brightness.*'brightnes'; did you mean 'brightness'"),
    "sparse": (lambda: ndd.cast(torch.zeros(3, 3).to_sparse(), dtype="u8"), TypeError, "cast: input 0: .*sparse"),
    "gradient": (lambda: ndd.cast(torch.zeros(3, requires_grad=True), dtype="u8"), RuntimeError, "cast: input 0: .*grad"),
    "memory": (
        lambda: ndd.resize(images(), size=[2e6, 2e6]),
        MemoryError,
        r"resize: no memory for 24\.0 TB: an output of shape \(2, 2000000, 2000000, 3\)",
    ),
    "memory beyond 64 bits": (lambda: ndd.crop(images(), crop=[1e9, 1e9], out_of_bounds_policy="pad"), MemoryError, "crop: no memory"),
    "ragged memory beyond 64 bits": (
        lambda: ndd.crop(
            ndd.batch([PIXELS, PIXELS[:, :9, :2]], layout="HWC"), crop=[2**30, 2**30 + 2**29], out_of_bounds_policy="pad", dtype=ndd.float64
        ),
        MemoryError,
        "crop: no memory",
    ),
    "batches beyond memory": (
        lambda: ndd.brightness(np.zeros((300, 300, 3), np.uint8), batch_size=2**22),
        MemoryError,
        r"brightness: no memory for 1\.1 TB: an output of shape \(4194304, 300, 300, 3\); there are \d+\.\d .B for this process",
    ),
    "batches beyond 32 bits": (lambda: ndd.brightness(PIXELS, batch_size=2**40), ValueError, "brightness: batch_size must be at most 4194304, got"),
}


def use(result: Any) -> None:
    result.evaluate()


@each_mode
@pytest.mark.parametrize(("call", "kind", "text"), CALLS.values(), ids=CALLS)
def test_bad_arguments(call: Callable[[], Any], kind: type[Exception], text: str, mode: EvalMode, capfd: pytest.CaptureFixture[str]) -> None:
    with mode:
        with pytest.raises(kind) as caught:
            use(call())
        assert type(caught.value) is kind
        assert re.search(text, texts(caught.value)), texts(caught.value)
        assert_good(ndd.brightness(images(), brightness=1.0))
    assert capfd.readouterr().err == ""


TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32", "float64", "bool"]
OPERATORS: dict[str, Callable[[Any], Any]] = {
    "brightness": ndd.brightness,
    "color_twist": ndd.color_twist,
    "crop": lambda x: ndd.crop(x, crop=[3, 3]),
    "crop_mirror_normalize": lambda x: ndd.crop_mirror_normalize(x, crop=[3, 3], dtype=ndd.float16),
    "flip": ndd.flip,
    "gaussian_blur": lambda x: ndd.gaussian_blur(x, sigma=1.0),
    "random_resized_crop": lambda x: ndd.random_resized_crop(x, size=4, rng=ndd.random.RNG(1)),
    "resize": lambda x: ndd.resize(x, size=[3, 4]),
    "rotate": lambda x: ndd.rotate(x, angle=30.0),
    "cast": lambda x: ndd.cast(x, dtype=ndd.uint8),
    "mean": ndd.reductions.mean,
}
each_operator = pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)


@each_operator
def test_every_type_of_elements(operator: Callable[[Any], Any]) -> None:
    """All element types are accepted; the result does not depend on the type."""
    pixels = torch.arange(6 * 8 * 3).reshape(6, 8, 3) % 2
    expected = operator(ndd.as_tensor(pixels.to(torch.float32), layout="HWC"))
    for name in TYPES:
        result = operator(ndd.as_tensor(pixels.to(getattr(torch, name)), layout="HWC"))
        assert result.shape == expected.shape
        assert repr(result)
        if name in ("float16", "bfloat16", "float64") and operator is not ndd.color_twist:
            np.testing.assert_allclose(result.torch().double(), expected.torch().double(), atol=0.01)


@each_operator
def test_memory_layouts_do_not_matter(operator: Callable[[Any], Any]) -> None:
    plain = np.ascontiguousarray(PIXELS[::2, ::-3])
    expected = operator(ndd.as_tensor(plain, layout="HWC")).torch()
    read_only = plain.copy()
    read_only.flags.writeable = False
    odd = np.frombuffer(b"\0" + plain.tobytes(), np.uint8)[1:].reshape(plain.shape)
    for value in (PIXELS[::2, ::-3], read_only, np.asfortranarray(plain), odd, torch.from_numpy(plain.transpose(2, 0, 1).copy()).permute(1, 2, 0)):
        assert torch.equal(operator(ndd.as_tensor(value, layout="HWC")).torch(), expected)


@each_operator
def test_batches_without_samples(operator: Callable[[Any], Any]) -> None:
    for empty in (ndd.as_batch(np.zeros((0, 6, 8, 3), np.float32), layout="HWC"), ndd.batch([], dtype=ndd.float32, layout="HWC")):
        assert operator(empty).batch_size == 0
    assert operator(ndd.as_batch(np.zeros((0, 6, 8, 3), np.float32), layout="HWC")).shape == []


@each_operator
@pytest.mark.parametrize("shape", [(0, 8, 3), (6, 0, 3), (6, 8, 0), (0, 0, 0)], ids=str)
def test_images_without_pixels(operator: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    """Either an error that says so or a result, never a crash."""
    for value in (np.zeros(shape, np.uint8), np.zeros(shape, np.float32)):
        try:
            operator(ndd.as_tensor(value, layout="HWC")).evaluate()
        except RuntimeError as error:
            assert re.search("pixels|channels|window|values", texts(error))  # noqa: PT017


def bad_calls(kind: str, folder: Path) -> Callable[[], Any]:
    if kind in CALLS:
        return lambda: use(CALLS[kind][0]())
    if kind == "folder without images":
        return lambda: next(ndd.readers.File(file_root=folder).next_epoch(batch_size=3))
    reader = reader_of(folder, kind)

    def read() -> None:
        for files, _ in reader.next_epoch(batch_size=3):
            use(chain(files))

    return read


FLAT = [*BAD_FILES, "folder without images", "crop outside", "dtype", "layout", "batch_size", "argument name", "sigma", "frames", "memory"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("kind", FLAT)
def test_memory_is_flat_over_2000_errors(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    call = bad_calls(kind, tmp_path)

    def repeat(times: int) -> None:
        for _ in range(times):
            with pytest.raises((RuntimeError, ValueError, TypeError, MemoryError)):
                call()

    repeat(200)
    before = resident_kilobytes()
    repeat(2000)
    assert resident_kilobytes() - before < 3_000
    assert capfd.readouterr().err == ""
