# SPDX-License-Identifier: Apache-2.0
"""Every codec with every output type and dtype, compared with Pillow, tifffile and OpenCV on the same file."""

import io
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

import torch_ndd as ndd
from torch_ndd import types

HEIGHT, WIDTH = 37, 53
DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32", "float64", "bfloat16")
TYPES = ("RGB", "BGR", "GRAY", "YCbCr", "ANY_DATA")

RNG = np.random.default_rng(5)
COLORS = RNG.integers(0, 256, (HEIGHT, WIDTH, 4), dtype=np.uint8)
DEEP = RNG.integers(0, 65536, (HEIGHT, WIDTH, 4), dtype=np.uint16)


def pillow(samples: np.ndarray, codec: str, **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(samples).save(file, codec, **options)
    return file.getvalue()


def tifffile(samples: np.ndarray, **options: object) -> bytes:
    file = io.BytesIO()
    pytest.importorskip("tifffile").imwrite(file, samples, **options)
    return file.getvalue()


def opencv(samples: np.ndarray, ending: str) -> bytes:
    cv2 = pytest.importorskip("cv2")
    order = {3: [2, 1, 0], 4: [2, 1, 0, 3]}.get(samples.shape[-1] if samples.ndim == 3 else 1)
    options = [cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000] if ending == ".jp2" else []
    return cv2.imencode(ending, samples if order is None else np.ascontiguousarray(samples[..., order]), options)[1].tobytes()


# How to make the file, and its samples. Lossless formats must be exact.
FILES: dict[str, tuple[Callable[[], bytes], np.ndarray]] = {
    "png, gray": (lambda: pillow(COLORS[..., 0], "PNG"), COLORS[..., :1]),
    "png, gray and alpha": (lambda: pillow(COLORS[..., :2], "PNG"), COLORS[..., :2]),
    "png, rgb": (lambda: pillow(COLORS[..., :3], "PNG"), COLORS[..., :3]),
    "png, rgba": (lambda: pillow(COLORS, "PNG"), COLORS),
    "png, gray, 16 bits": (lambda: opencv(DEEP[..., 0], ".png"), DEEP[..., :1]),
    "png, rgb, 16 bits": (lambda: opencv(DEEP[..., :3], ".png"), DEEP[..., :3]),
    "png, rgba, 16 bits": (lambda: opencv(DEEP, ".png"), DEEP),
    "tiff, gray": (lambda: tifffile(COLORS[..., 0]), COLORS[..., :1]),
    "tiff, rgb": (lambda: tifffile(COLORS[..., :3], photometric="rgb"), COLORS[..., :3]),
    "tiff, rgba": (lambda: tifffile(COLORS, photometric="rgb", extrasamples=["unassalpha"]), COLORS),
    "tiff, gray, 16 bits": (lambda: tifffile(DEEP[..., 0]), DEEP[..., :1]),
    "tiff, rgb, 16 bits": (lambda: tifffile(DEEP[..., :3], photometric="rgb"), DEEP[..., :3]),
    "bmp, gray": (lambda: pillow(COLORS[..., 0], "BMP"), COLORS[..., :1]),
    "bmp, rgb": (lambda: pillow(COLORS[..., :3], "BMP"), COLORS[..., :3]),
    "pnm, gray": (lambda: pillow(COLORS[..., 0], "PPM"), COLORS[..., :1]),
    "pnm, rgb": (lambda: pillow(COLORS[..., :3], "PPM"), COLORS[..., :3]),
    "webp, rgb": (lambda: pillow(COLORS[..., :3], "WEBP", lossless=True), COLORS[..., :3]),
    "webp, rgba": (lambda: pillow(COLORS, "WEBP", lossless=True, exact=True), COLORS),
    "jpeg 2000, gray": (lambda: pillow(COLORS[..., 0], "JPEG2000"), COLORS[..., :1]),
    "jpeg 2000, rgb": (lambda: pillow(COLORS[..., :3], "JPEG2000"), COLORS[..., :3]),
    "jpeg 2000, gray, 16 bits": (lambda: pillow(DEEP[..., 0], "JPEG2000"), DEEP[..., :1]),
    "jpeg 2000, rgb, 16 bits": (lambda: opencv(DEEP[..., :3], ".jp2"), DEEP[..., :3]),
}


def jpeg(samples: np.ndarray) -> tuple[bytes, np.ndarray, np.ndarray]:
    """Return the file, its samples and its luma."""
    file = pillow(samples, "JPEG", quality=95)
    read, luma = Image.open(io.BytesIO(file)), Image.open(io.BytesIO(file))
    luma.draft("L", luma.size)
    return file, np.asarray(read).reshape(HEIGHT, WIDTH, -1), np.asarray(luma)[..., None]


def compute_expected(samples: np.ndarray, output_type: str, dtype: str) -> np.ndarray:
    """Return the expected samples of a file, from 0 to 1."""
    values = samples / np.iinfo(samples.dtype).max
    if output_type == "ANY_DATA":
        return values
    color = values[..., :3] if values.shape[-1] > 2 else values[..., :1].repeat(3, -1)
    if output_type in ("RGB", "BGR"):
        return color if output_type == "RGB" else color[..., ::-1]
    red, green, blue = np.moveaxis(color, -1, 0)
    if output_type == "GRAY":
        return (0.299 * red + 0.587 * green + 0.114 * blue)[..., None]
    # ITU-R BT.601 in the studio range, whose zeros are 16 and 128 of 256 parts of the type's levels.
    part = (np.iinfo(dtype).max + 1) / 256 / np.iinfo(dtype).max if "int" in dtype else 1 / 256
    y = 16 * part + (65.481 * red + 128.553 * green + 24.966 * blue) / 255
    cb = 128 * part + (-37.797 * red - 74.203 * green + 112.0 * blue) / 255
    cr = 128 * part + (112.0 * red - 93.786 * green - 18.214 * blue) / 255
    return np.stack([y, cb, cr], -1)


def check(file: bytes, samples: np.ndarray, gray: np.ndarray | None = None) -> None:
    contents = ndd.tensor(np.frombuffer(file, np.uint8))
    deep = samples.dtype == np.uint16
    for output_type, dtype in itertools.product(TYPES, DTYPES):
        result = ndd.decoders.image(contents, output_type=getattr(types, output_type), dtype=getattr(ndd, dtype)).torch()
        wanted = gray / 255 if output_type == "GRAY" and gray is not None else compute_expected(samples, output_type, dtype)
        assert result.shape == wanted.shape
        values = result.double().numpy()
        if not result.dtype.is_floating_point:
            values = values / np.iinfo(dtype).max
            step = 1.0 / np.iinfo(dtype).max
        else:
            step = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(dtype, 2.0**-24)
        # Rounded to the nearest step of the type; colors are computed in float32.
        tolerance = 0.5 * step + 4e-7
        if output_type == "GRAY" and samples.shape[-1] > 2 and gray is None:
            tolerance += 4 / 65535 if deep else 1.1 / 255  # each codec has its own weights and rounding
        assert np.abs(values - wanted).max() <= tolerance, (output_type, dtype)


@pytest.mark.parametrize("name", FILES)
def test_lossless_files(name: str) -> None:
    make, samples = FILES[name]
    check(make(), samples)


@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_equals_reference_in_every_type(channels: int) -> None:
    check(*jpeg(COLORS[..., 0] if channels == 1 else COLORS[..., :3]))


@pytest.mark.parametrize("name", ["png, rgba", "png, gray, 16 bits", "tiff, rgb, 16 bits", "webp, rgba", "jpeg 2000, rgb, 16 bits"])
def test_windows_have_the_same_types(name: str) -> None:
    contents = ndd.tensor(np.frombuffer(FILES[name][0](), np.uint8))
    for output_type, dtype in itertools.product(TYPES, ("uint8", "uint16", "float32")):
        options = {"output_type": getattr(types, output_type), "dtype": getattr(ndd, dtype)}
        whole = ndd.decoders.image(contents, **options).torch()
        part = ndd.decoders.image_crop(contents, crop=[11, 13], crop_pos_x=0.0, crop_pos_y=1.0, **options).torch()
        assert np.array_equal(part.numpy(), whole[-11:, :13].numpy())
        shape = ndd.peek_image_shape(contents, image_type=options["output_type"])
        assert shape.torch().tolist() == list(whole.shape)
