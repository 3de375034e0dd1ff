# SPDX-License-Identifier: Apache-2.0
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case, Each, Inputs, Samples
from PIL import Image, ImageOps

import torch_ndd as ndd
from torch_ndd import types

HEIGHT, WIDTH = 75, 101  # neither a multiple of a JPEG block


@pytest.fixture(scope="module")
def photo() -> np.ndarray:
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    waves = [np.sin(x / 7 + k) * np.cos(y / (5 + k)) for k in range(3)]
    return (127.5 + 127.5 * np.stack(waves, -1)).astype(np.uint8)


def encode(samples: np.ndarray, codec: str, mode: str | None = None, **options: object) -> np.ndarray:
    file = io.BytesIO()
    image = Image.fromarray(samples)
    (image.convert(mode) if mode else image).save(file, codec, **options)
    return np.frombuffer(file.getvalue(), np.uint8)


def pillow(file: np.ndarray) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(file.tobytes())).convert("RGB"))


def files_of(codec: str) -> Inputs:
    """Three files, of equal length if the codec does not compress and the shapes are equal."""

    def make(ragged: bool) -> tuple[Samples, ...]:
        rng = np.random.default_rng(3)
        return ([encode(rng.integers(0, 256, (20 + 2 * i * ragged, 30 + i * ragged, 3), dtype=np.uint8), codec) for i in range(3)],)

    return make


def crop_window(image: np.ndarray, height: int, width: int, crop_pos_x: float = 0.5, crop_pos_y: float = 0.5) -> np.ndarray:
    height, width = height or image.shape[0], width or image.shape[1]
    top, left = np.floor(np.array([crop_pos_y, crop_pos_x]) * (image.shape[0] - height, image.shape[1] - width) + 0.5).astype(int)
    return image[top : top + height, left : left + width]


def relative(image: np.ndarray, begin: Any, end: Any) -> np.ndarray:
    (left, top), (right, bottom) = (np.floor(np.multiply(at, image.shape[1::-1]) + 0.5).astype(int) for at in (begin, end))
    return image[top:bottom, left:right]


def gray_shape(file: np.ndarray, **options: object) -> np.ndarray:
    del options
    return np.array([*pillow(file).shape[:2], 1], np.int32)


def paths(ragged: bool) -> tuple[Samples, ...]:
    found = sorted(Path(__file__).parent.glob("test_*.py"), key=lambda path: (len(path.name), path.name))
    chosen = (found[0], found[-1], found[len(found) // 2]) if ragged else (found[0],) * 3
    return ([np.frombuffer(bytes(path), np.uint8) for path in chosen],)


CASES = [
    Case("decoders.image", "pnm", files_of("PPM"), reference=pillow, out_layout="HWC"),
    Case(
        "decoders.image",
        "float",
        files_of("BMP"),
        {"dtype": "f32"},
        reference=lambda f, dtype: pillow(f) / np.float32(255),
        tolerance=1e-6,
        out_layout="HWC",
    ),
    Case("decoders.image", "at least", files_of("PPM"), {"at_least": Each([[1, 2], [9, 0], [400, 3]])}, out_layout="HWC"),
    Case("decoders.image_random_crop", "at least", files_of("PPM"), {"at_least": Each([[1, 2], [9, 0], [400, 3]])}, out_layout="HWC"),
    Case("decoders.image_random_crop", "pnm", files_of("PPM"), out_layout="HWC"),
    Case(
        "decoders.image_crop",
        "pnm",
        files_of("PPM"),
        {"crop": Each([[15, 20], [9, 30], [20, 7]]), "crop_pos_x": Each([0.0, 0.5, 1.0]), "crop_pos_y": Each([0.5, 1.0, 0.0])},
        reference=lambda f, crop, **at: crop_window(pillow(f), *crop, **at),
        out_layout="HWC",
    ),
    Case(
        "decoders.image_crop",
        "single sizes",
        files_of("BMP"),
        {"crop_h": Each([9, 8, 20]), "crop_w": Each([0, 30, 1]), "crop_d": Each([1, 2, 3]), "crop_pos_z": Each([0.0, 0.5, 1.0])},
        reference=lambda f, crop_h, crop_w, **unused: crop_window(pillow(f), crop_h, crop_w),
        out_layout="HWC",
    ),
    Case(
        "decoders.image_slice",
        "bmp",
        files_of("BMP"),
        {"start": Each([[3, 0], [0, 5], [7, 1]]), "shape": Each([[20, 9], [5, 5], [1, 2]])},
        reference=lambda f, start, shape: pillow(f)[start[1] : start[1] + shape[1], start[0] : start[0] + shape[0]],
        out_layout="HWC",
    ),
    Case(
        "decoders.image_slice",
        "one axis",
        files_of("PPM"),
        {"end": Each([[4], [20], [9]]), "axes": Each([[0], [0], [1]])},
        reference=lambda f, end, axes: pillow(f)[: end[0]] if axes == [0] else pillow(f)[:, : end[0]],
        out_layout="HWC",
        uncompiled="axes must be numbers in a graph",
    ),
    Case(
        "decoders.image_slice",
        "relative",
        files_of("PPM"),
        {"rel_start": Each([[0.0, 0.5], [0.25, 0.0], [0.5, 0.5]]), "rel_shape": Each([[0.5, 0.5], [0.5, 1.0], [0.25, 0.25]])},
        reference=lambda f, rel_start, rel_shape: relative(pillow(f), rel_start, np.add(rel_start, rel_shape)),
        out_layout="HWC",
    ),
    Case(
        "decoders.image_slice",
        "relative end",
        files_of("BMP"),
        {"rel_end": Each([[1.0, 0.5], [0.25, 0.75], [0.5, 0.5]])},
        reference=lambda f, rel_end: relative(pillow(f), [0, 0], rel_end),
        out_layout="HWC",
    ),
    Case("peek_image_shape", "pnm", files_of("PPM"), reference=lambda f: np.array(pillow(f).shape), out_layout=None),
    Case("peek_image_shape", "gray", files_of("BMP"), {"image_type": types.GRAY, "dtype": "i32"}, reference=gray_shape, out_layout=None),
    Case("io.file.read", "this folder", paths, reference=lambda path: np.fromfile(bytes(path), np.uint8), out_layout=None),
]


def decode(file: np.ndarray, **options: object) -> np.ndarray:
    return np.asarray(ndd.decoders.image(ndd.as_tensor(file), **options))


LOSSLESS = {
    "png": ("PNG", {}),
    "bmp": ("BMP", {}),
    "tiff": ("TIFF", {}),
    "tiff, lzw": ("TIFF", {"compression": "tiff_lzw"}),
    "pnm": ("PPM", {}),
    "webp": ("WEBP", {"lossless": True}),
    "jpeg 2000": ("JPEG2000", {"irreversible": False}),
}


@pytest.mark.parametrize(("codec", "options"), LOSSLESS.values(), ids=LOSSLESS)
def test_lossless_codecs_return_what_was_encoded(photo: np.ndarray, codec: str, options: dict[str, object]) -> None:
    assert np.array_equal(decode(encode(photo, codec, **options)), photo)


@pytest.mark.parametrize("subsampling", [0, 1, 2], ids=["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("progressive", [False, True])
def test_jpeg_equals_libjpeg(photo: np.ndarray, subsampling: int, progressive: bool) -> None:
    file = encode(photo, "JPEG", quality=90, subsampling=subsampling, progressive=progressive)
    assert np.array_equal(decode(file), pillow(file))


def test_layout_and_type(photo: np.ndarray) -> None:
    image = ndd.decoders.image(ndd.as_tensor(encode(photo, "JPEG")))
    assert (image.layout, image.dtype, tuple(image.shape)) == ("HWC", ndd.uint8, photo.shape)


def test_batch_of_all_codecs(photo: np.ndarray) -> None:
    files = [encode(photo[: 20 + 5 * i], codec, **options) for i, (codec, options) in enumerate(LOSSLESS.values())]
    images = ndd.decoders.image(ndd.batch(files))
    assert images.layout == "HWC"
    for i, image in enumerate(images.tensors):
        assert np.array_equal(np.asarray(image), photo[: 20 + 5 * i])


def test_batch_of_equal_sizes_is_dense(photo: np.ndarray) -> None:
    files = [encode(photo, "PNG"), encode(photo[::-1], "PNG")]
    assert torch.equal(ndd.decoders.image(ndd.batch(files)).torch(), torch.from_numpy(np.stack([photo, photo[::-1]])))


def test_output_types(photo: np.ndarray) -> None:
    file = encode(photo, "PNG")
    r, g, b = np.moveaxis(photo.astype(np.float64), -1, 0)
    assert np.array_equal(decode(file, output_type=types.BGR), photo[..., ::-1])
    gray = decode(file, output_type=types.GRAY)
    assert gray.shape == (HEIGHT, WIDTH, 1)
    assert np.abs(gray[..., 0] - (0.299 * r + 0.587 * g + 0.114 * b)).max() < 1.1  # libpng has its own weights
    luma = decode(file, output_type=types.YCbCr)[..., 0]
    assert np.array_equal(luma, np.floor(16.5 + (65.481 * r + 128.553 * g + 24.966 * b) / 255))
    assert np.array_equal(decode(file, output_type=types.ANY_DATA), photo)


def test_any_data_keeps_the_channels_of_the_file(photo: np.ndarray) -> None:
    alpha = np.dstack([photo, photo[..., 0]])
    for codec in ("PNG", "TIFF"):
        assert np.array_equal(decode(encode(alpha, codec), output_type=types.ANY_DATA), alpha)
        assert np.array_equal(decode(encode(alpha, codec)), photo)
    gray = photo[..., 0]
    for codec in ("PNG", "TIFF", "PPM", "BMP"):
        assert np.array_equal(decode(encode(gray, codec), output_type=types.ANY_DATA), gray[..., None])
        assert np.array_equal(decode(encode(gray, codec)), np.dstack([gray] * 3))
    assert decode(encode(gray, "JPEG"), output_type=types.ANY_DATA).shape == (HEIGHT, WIDTH, 1)
    gray_alpha = encode(np.dstack([gray, 255 - gray]), "PNG")
    assert np.array_equal(decode(gray_alpha, output_type=types.ANY_DATA), np.dstack([gray, 255 - gray]))


def test_palette_and_cmyk(photo: np.ndarray) -> None:
    for mode in ("P", "1"):
        file = encode(photo, "PNG", mode=mode)
        assert np.array_equal(decode(file), pillow(file))
    cmyk = encode(photo, "JPEG", mode="CMYK", quality=95)
    assert np.abs(decode(cmyk).astype(int) - photo).mean() < 5


@pytest.mark.parametrize("codec", ["PNG", "TIFF", "JPEG2000"])
def test_16_bits(photo: np.ndarray, codec: str) -> None:
    deep = photo[..., 0].astype(np.uint16) * 256 + photo[..., 1]
    file = encode(deep, codec)
    assert np.array_equal(decode(file, dtype=ndd.uint16, output_type=types.GRAY)[..., 0], deep)
    assert np.array_equal(decode(file, output_type=types.GRAY)[..., 0], np.floor(deep / 257 + 0.5))
    assert np.allclose(decode(file, dtype=ndd.float32, output_type=types.GRAY)[..., 0], deep / 65535, atol=1e-7)


def test_types_scale_the_whole_range() -> None:
    ramp = np.arange(256, dtype=np.uint8)[None, :, None].repeat(3, 2)
    file = encode(ramp, "PNG")
    assert np.array_equal(decode(file, dtype=ndd.uint16), ramp.astype(np.uint16) * 257)
    assert np.array_equal(decode(file, dtype=ndd.int16), np.floor(ramp / 255 * 32767 + 0.5))
    assert np.array_equal(decode(file, dtype=ndd.int8), np.floor(ramp / 255 * 127 + 0.5))
    assert np.allclose(decode(file, dtype=ndd.float32), ramp / 255, atol=1e-7)
    assert np.allclose(decode(file, dtype=ndd.float16), ramp / 255, atol=1e-3)
    assert np.allclose(decode(file, dtype=ndd.float64), ramp / 255, atol=1e-7)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("codec", ["PNG", "TIFF", "WEBP"])
def test_exif_orientation(photo: np.ndarray, codec: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    options: dict[str, object] = {"exif": exif, "lossless": True}
    if codec == "TIFF":
        options = {"tiffinfo": {0x0112: orientation}}
    file = encode(photo, codec, **options)
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(file.tobytes()))))
    assert np.array_equal(decode(file), upright)
    assert np.array_equal(decode(file, dtype=ndd.float32), upright.astype(np.float32) * np.float32(1 / 255))
    assert np.array_equal(decode(file, adjust_orientation=False), photo)


def test_fast_idct_is_close(photo: np.ndarray) -> None:
    file = encode(photo, "JPEG", quality=90)
    difference = np.abs(decode(file, use_fast_idct=True).astype(int) - decode(file))
    assert 0 < difference.max() < 30


def test_hints_change_nothing(photo: np.ndarray) -> None:
    file = encode(photo, "JPEG")
    hints = {"hw_decoder_load": 0.1, "preallocate_width_hint": 9, "cache_size": 5, "affine": False, "jpeg_fancy_upsampling": True}
    assert np.array_equal(decode(file, **hints), decode(file))


def windows_of(files: list[np.ndarray], seed: int, **options: object) -> list[np.ndarray]:
    batch = ndd.decoders.image_random_crop(ndd.batch(files), rng=ndd.random.RNG(seed), **options)
    return [np.asarray(image) for image in batch.tensors]


def find(window: np.ndarray, image: np.ndarray) -> bool:
    views = np.lib.stride_tricks.sliding_window_view(image, window.shape)[:, :, 0]
    candidates = np.argwhere((views[:, :, 0, 0] == window[0, 0]).all(-1))
    return any(np.array_equal(image[y : y + window.shape[0], x : x + window.shape[1]], window) for y, x in candidates)


@pytest.mark.parametrize("codec", ["JPEG", "PNG", "WEBP", "JPEG2000"])
def test_random_crop_is_a_part_of_the_image(photo: np.ndarray, codec: str) -> None:
    file = encode(photo, codec)
    whole = decode(file)
    crops = windows_of([file] * 8, 3)
    assert len({crop.shape for crop in crops}) > 3
    assert all(find(crop, whole) for crop in crops)


def test_random_crop_follows_the_orientation(photo: np.ndarray) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    file = encode(photo, "JPEG", exif=exif, quality=95)
    whole = decode(file)
    assert whole.shape == (WIDTH, HEIGHT, 3)
    assert all(find(crop, whole) for crop in windows_of([file] * 8, 4))


def test_random_crop_repeats_with_its_seed(photo: np.ndarray) -> None:
    files = [encode(photo, "JPEG")] * 4
    first, again, other = windows_of(files, 1), windows_of(files, 1), windows_of(files, 2)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(a.shape != b.shape for a, b in zip(first, other, strict=True))


def test_random_crop_keeps_area_and_aspect(photo: np.ndarray) -> None:
    crops = windows_of([encode(photo, "JPEG")] * 64, 5, random_area=[0.2, 0.4], random_aspect_ratio=[0.9, 1.1])
    for height, width, _ in (crop.shape for crop in crops):
        assert 0.18 < height * width / (HEIGHT * WIDTH) < 0.42
        assert 0.85 < width / height < 1.15


def test_jpeg_regions_equal_the_crop_of_the_whole() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (97, 131, 3), dtype=np.uint8)
    for subsampling in (0, 1, 2):
        file = encode(noise, "JPEG", subsampling=subsampling, quality=75)
        whole = decode(file)
        assert all(find(crop, whole) for crop in windows_of([file] * 32, subsampling))


def test_same_with_any_number_of_threads(photo: np.ndarray) -> None:
    files = [encode(photo[i:], "JPEG") for i in range(16)]
    results = []
    before = ndd.get_num_threads()
    try:
        for threads in (1, 4, 2):
            ndd.set_num_threads(threads)
            results.append([np.asarray(image) for image in ndd.decoders.image(ndd.batch(files)).tensors])
    finally:
        ndd.set_num_threads(before)
    for result in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], result, strict=True))


def test_input_is_unchanged(photo: np.ndarray) -> None:
    files = torch.from_numpy(encode(photo, "JPEG").copy())
    before = files.clone()
    np.asarray(ndd.decoders.image(files))
    assert torch.equal(files, before)


def test_names_under_experimental() -> None:
    assert ndd.experimental.decoders.image is ndd.decoders.image
    assert ndd.experimental.decoders.image_random_crop is ndd.decoders.image_random_crop
    assert ndd.experimental.decoders.image_crop is ndd.decoders.image_crop
    assert ndd.experimental.decoders.image_slice is ndd.decoders.image_slice
    assert ndd.experimental.peek_image_shape is ndd.peek_image_shape


def test_tensors_remember_their_file(tmp_path: Path, photo: np.ndarray) -> None:
    (tmp_path / "good.png").write_bytes(encode(photo, "PNG").tobytes())
    (tmp_path / "bad.png").write_bytes(b"text")
    reader = ndd.readers.File(files=["good.png", "bad.png"], file_root=tmp_path)
    good, bad = (file for file, _ in reader.next_epoch())
    assert ndd.decoders.image(good).shape == photo.shape
    with pytest.raises(RuntimeError, match=r"decoders\.image: sample 0 \(.*bad\.png\)"):
        ndd.decoders.image(bad)


def test_wrong_input_and_options(photo: np.ndarray) -> None:
    file = encode(photo, "PNG")
    for wrong in (file.astype(np.int16), file.reshape(1, -1)):
        with pytest.raises(RuntimeError, match=r"decoders\.image: .*uint8"):
            decode(wrong)
    with pytest.raises(RuntimeError, match="dtype"):
        decode(file, dtype=ndd.bool)
    with pytest.raises(RuntimeError, match="output_type"):
        decode(file, output_type=7)
    with pytest.raises(RuntimeError, match=r"decoders\.image_random_crop: random_area"):
        windows_of([file], 1, random_area=[2.0, 1.0])
