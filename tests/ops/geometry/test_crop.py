# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest
import torch
from _cases import Case, Each, images

import torch_ndd as ndd

RGB = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}


def round_reference(values: np.ndarray, dtype: str) -> np.ndarray:
    """Round like ``cast``: half away from zero, saturated."""
    if not np.issubdtype(np.dtype(dtype), np.integer):
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    return np.clip(np.copysign(np.floor(np.abs(values) + 0.5), values), limits.min, limits.max).astype(dtype)


def window(
    image: np.ndarray,
    layout: str,
    size: tuple[int, ...],
    position: tuple[float, ...],
    fill: object = 0.0,
    rounding: str = "round",
    trim: bool = False,
) -> np.ndarray:
    """Crop ``size`` (depth or frames, height, width) at the relative ``position``, one axis after the other."""
    letters = ("D" if "D" in layout else "F", "H", "W")[-len(size) :]
    fills = np.broadcast_to(np.asarray(fill, np.float64), image.shape[layout.index("C")])
    filler = fills.reshape([-1 if letter == "C" else 1 for letter in layout])
    for letter, length, relative in zip(letters, size, position, strict=True):
        axis = layout.index(letter)
        room = float(np.float32(relative)) * (image.shape[axis] - length)
        start = int(room) if rounding == "truncate" else int(np.copysign(np.floor(abs(room) + 0.5), room))
        places = np.arange(start, start + length)
        inside = (places >= 0) & (places < image.shape[axis])
        if trim:
            places, inside = places[inside], inside[inside]
        taken = image.take(np.clip(places, 0, image.shape[axis] - 1), axis)
        image = np.where(inside.reshape([-1 if letter == axis else 1 for axis in layout]), taken, filler).astype(image.dtype)
    return image


def center(size: tuple[int, ...], layout: str, dtype: str | None = None):
    return lambda image, **_: round_reference(window(image, layout, size, (0.5,) * len(size)).astype(np.float64), dtype or image.dtype.name)


def normalize_reference(layout: str, out: str, dtype: str = "float32", pad: bool = False):
    def reference(
        image: np.ndarray, *, mirror: int = 0, mean: object = 0.0, std: object = 1.0, scale: float = 1.0, shift: float = 0.0, **_: object
    ) -> np.ndarray:
        image = np.moveaxis(image, layout.index("C"), -1).astype(np.float32)
        rest = layout.replace("C", "")
        image = np.flip(image, rest.index("W")) if mirror else image
        image = (image - np.asarray(mean, np.float32)) * (scale / np.asarray(std, np.float32)) + np.float32(shift)
        if pad:
            image = np.concatenate([image, np.zeros_like(image[..., :1])], -1)
        return round_reference(image.transpose([(rest + "C").index(letter) for letter in out]), dtype)

    return reference


def volume_window(
    image: np.ndarray,
    *,
    crop_d: float,
    crop_h: float,
    crop_w: float,
    crop_pos_x: float,
    crop_pos_y: float,
    crop_pos_z: float,
    fill_values: object,
    **_: object,
) -> np.ndarray:
    return window(image, "DHWC", (int(crop_d), int(crop_h), int(crop_w)), (crop_pos_z, crop_pos_y, crop_pos_x), fill_values)


EVERYTHING = {
    "crop_d": Each([2.0, 6.0, 3.0]),
    "crop_h": Each([12.0, 25.0, 8.0]),
    "crop_w": Each([30.0, 9.5, 8.0]),
    "crop_pos_x": Each([0.0, 0.3, 1.0]),
    "crop_pos_y": Each([0.1, 0.7, 0.5]),
    "crop_pos_z": Each([1.0, 0.4, 0.0]),
    "fill_values": Each([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]),
    "out_of_bounds_policy": "pad",
}
LAYOUTS = ("HWC", "CHW", "DHWC", "CDHW", "FHWC", "FCHW", "CFHW", "FDHWC", "FCDHW", "CFDHW")
CASES = [
    *(Case("crop", layout, images(layout), {"crop": [9, 11]}, layout=layout, reference=center((9, 11), layout)) for layout in LAYOUTS),
    Case("crop", "depth", images("DHWC"), {"crop": [2, 9, 11]}, layout="DHWC", reference=center((2, 9, 11), "DHWC")),
    Case("crop", "frames", images("FHWC"), {"crop_d": 2, "crop_h": 9, "crop_w": 11}, layout="FHWC", reference=center((2, 9, 11), "FHWC")),
    Case(
        "crop",
        "to uint8",
        images("HWC", "float32", low=-50, high=300),
        {"crop": [5, 6], "dtype": ndd.uint8},
        layout="HWC",
        reference=center((5, 6), "HWC", "uint8"),
    ),
    Case(
        "crop",
        "sizes and positions per sample",
        images("HWC"),
        {"crop": Each([[3.0, 4.0], [5.0, 2.0], [9.9, 8.0]]), "crop_pos_x": Each([0.0, 0.3, 1.0]), "crop_pos_y": 0.7},
        layout="HWC",
        reference=lambda image, *, crop, crop_pos_x, crop_pos_y: window(image, "HWC", tuple(int(c) for c in crop), (crop_pos_y, crop_pos_x)),
    ),
    Case(
        "crop",
        "padded",
        images("CHW"),
        {"crop": [20, 40], "crop_pos_x": 0.2, "out_of_bounds_policy": "pad", "fill_values": [1, 2, 3]},
        layout="CHW",
        reference=lambda image, **_: window(image, "CHW", (20, 40), (0.5, 0.2), [1, 2, 3]),
    ),
    Case(
        "crop",
        "trimmed, truncated",
        images("HWC", "int16"),
        {"crop": [14, 40], "out_of_bounds_policy": "trim_to_shape", "rounding": "truncate"},
        layout="HWC",
        reference=lambda image, **_: window(image, "HWC", (14, 40), (0.5, 0.5), rounding="truncate", trim=True),
    ),
    Case("crop", "everything per sample", images("DHWC"), EVERYTHING, layout="DHWC", reference=volume_window),
    Case(
        "crop_mirror_normalize",
        "everything per sample",
        images("DHWC"),
        {**EVERYTHING, "mirror": Each([1, 0, 1])},
        layout="DHWC",
        out_layout="CDHW",
        reference=lambda image, *, mirror, **args: np.moveaxis(volume_window(image, **args), -1, 0)[..., :: -1 if mirror else 1].astype(np.float32),
    ),
    Case(
        "crop_mirror_normalize",
        "sizes per sample",
        images("HWC"),
        {"crop": Each([[3.0, 4.0], [5.0, 2.0], [9.9, 8.0]]), **RGB},
        layout="HWC",
        out_layout="CHW",
        reference=lambda image, *, crop, mean, std: normalize_reference("HWC", "CHW")(
            window(image, "HWC", tuple(int(c) for c in crop), (0.5, 0.5)), mean=mean, std=std
        ),
        tolerance=1e-5,
    ),
    Case(
        "crop_mirror_normalize",
        "plain",
        images("HWC"),
        RGB,
        layout="HWC",
        out_layout="CHW",
        reference=normalize_reference("HWC", "CHW"),
        tolerance=1e-5,
    ),
    Case(
        "crop_mirror_normalize",
        "per sample",
        images("HWC", W=70),
        {
            "mirror": Each([1, 0, 1]),
            "mean": Each([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [0.0, 0.0, 0.0]]),
            "std": Each([2.0, 3.0, 1.0]),
            "scale": 2.0,
            "shift": 5.0,
        },
        layout="HWC",
        out_layout="CHW",
        reference=normalize_reference("HWC", "CHW"),
        tolerance=1e-4,
    ),
    *(
        Case(
            "crop_mirror_normalize",
            f"{layout} to {out}",
            images(layout),
            {**RGB, "mirror": 1, "output_layout": out},
            layout=layout,
            out_layout=out,
            reference=normalize_reference(layout, out),
            tolerance=1e-5,
        )
        for layout, out in (
            ("HWC", "HWC"),
            ("CHW", "CHW"),
            ("CHW", "HWC"),
            ("HWC", "WCH"),
            ("FHWC", "FCHW"),
            ("FHWC", "CFHW"),
            ("DHWC", "CDHW"),
            ("FDHWC", "FCDHW"),
        )
    ),
    *(
        Case(
            "crop_mirror_normalize",
            f"{source} to {dtype}",
            images("HWC", source),
            {**RGB, "scale": 60.0, "dtype": getattr(ndd, dtype)},
            layout="HWC",
            out_layout="CHW",
            reference=normalize_reference("HWC", "CHW", dtype),
            tolerance={"float16": 0.2, "float32": 1e-3}.get(dtype, 1),
        )
        for source, dtype in (("uint8", "float16"), ("uint8", "int8"), ("int16", "float32"), ("float32", "uint8"), ("float16", "float16"))
    ),
    Case(
        "crop_mirror_normalize",
        "padded channels",
        images("HWC"),
        {**RGB, "pad_output": True, "output_layout": "HWC"},
        layout="HWC",
        out_layout="HWC",
        reference=normalize_reference("HWC", "HWC", pad=True),
        tolerance=1e-5,
    ),
    Case(
        "crop_mirror_normalize",
        "padded planes",
        images("HWC"),
        {**RGB, "pad_output": True},
        layout="HWC",
        out_layout="CHW",
        reference=normalize_reference("HWC", "CHW", pad=True),
        tolerance=1e-5,
    ),
    Case(
        "crop_mirror_normalize",
        "padded window",
        images("HWC"),
        {"crop": [20, 60], "mirror": Each([1, 0, 1]), "out_of_bounds_policy": "pad", "fill_values": [7, 8, 9], "mean": 0.0},
        layout="HWC",
        out_layout="CHW",
        reference=lambda image, *, mirror, **_: (
            window(image, "HWC", (20, 60), (0.5, 0.5), [7, 8, 9])[:, :: -1 if mirror else 1].transpose(2, 0, 1).astype(np.float32)
        ),
    ),
]


IMAGE = np.arange(6 * 7 * 3, dtype=np.uint8).reshape(6, 7, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"crop": [7, 3]}, r"sample 0: the window \[-1, 6\) exceeds axis H of extent 6.*crop_h.*crop_pos_y"),
        ({"crop": [2, 3], "crop_pos_x": 1.5}, "crop_pos_x must lie between 0 and 1, got 1.5"),
        ({"crop": [2, 3], "crop_pos_x": float("nan")}, "crop_pos_x must be finite"),
        ({"crop": [2]}, "'crop' takes height and width"),
        ({"crop": 5}, "'crop' takes height and width"),
        ({"crop": [2, 3], "crop_w": 2}, "crop cannot be combined with crop_w"),
        ({"crop_w": 2}, "crop_w alone"),
        ({"crop_d": 2}, "crop_d alone"),
        ({"crop": [2, 3], "out_of_bounds_policy": "ignore"}, "out_of_bounds_policy must be one of error, .*pad, .*got 'ignore'"),
        ({"crop": [2, 3], "rounding": "up"}, "rounding must be one of round, truncate, half_to_even, got 'up'"),
        ({"crop": [9, 9], "out_of_bounds_policy": "pad", "fill_values": [1, 2]}, "'fill_values' has 2 values, but there are 3 channels"),
    ],
)
@pytest.mark.parametrize("operator", ["crop", "crop_mirror_normalize"])
def test_errors_at_the_call(operator: str, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(RuntimeError, match=f"^{operator}: .*{message}"):
        getattr(ndd, operator)(ndd.tensor(IMAGE, layout="HWC"), **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mean": [1.0, 2.0]}, "'mean' has 2 values"),
        ({"std": [1.0] * 4}, "'std' has 4 values"),
        ({"output_layout": "FCHW"}, 'output_layout="FCHW" is not a permutation of the input layout "HWC"'),
        ({"pad_output": True, "out_of_bounds_policy": "pad", "fill_values": [1, 2]}, "'fill_values' has 2 values, but there are 4 channels"),
    ],
)
def test_errors_of_normalize(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(RuntimeError, match=f"^crop_mirror_normalize: .*{message}"):
        ndd.crop_mirror_normalize(ndd.tensor(IMAGE, layout="HWC"), **arguments)


def test_error_names_the_sample() -> None:
    images = ndd.batch([IMAGE, IMAGE[:, :4], IMAGE], layout="HWC")
    with pytest.raises(RuntimeError, match=r"^crop: sample 1: the window \[0, 5\) exceeds axis W of extent 4"):
        ndd.crop(images, crop=[2, 5], crop_pos_x=0.0)


def test_channels_of_each_sample_are_checked() -> None:
    images = ndd.batch([IMAGE, IMAGE[..., :2]], layout="HWC")
    with pytest.raises(RuntimeError) as error:
        ndd.crop_mirror_normalize(images, mean=[1.0, 2.0, 3.0]).evaluate()
    assert "'mean' has 3 values, but sample 1 has 2 channels" in str(error.value)
    padded = ndd.crop_mirror_normalize(images, pad_output=True)
    assert padded.shape == [(4, 6, 7), (2, 6, 7)]


def test_wrong_layout() -> None:
    with pytest.raises(ValueError, match=r'crop: The layout "WHC" does not match'):
        ndd.crop(ndd.tensor(IMAGE, layout="WHC"))


def test_old_name_of_dtype() -> None:
    assert ndd.crop(IMAGE, output_dtype=ndd.float32).dtype is ndd.float32
    assert ndd.crop_mirror_normalize(IMAGE, output_dtype=ndd.float16).dtype is ndd.float16
    with pytest.raises(TypeError, match="output_dtype is an old name of dtype"):
        ndd.crop(IMAGE, output_dtype=ndd.float32, dtype=ndd.uint8)


def test_plain_crop_of_a_dense_batch_is_dense() -> None:
    images = ndd.batch(np.stack([IMAGE] * 4), layout="HWC")
    cropped = ndd.crop(images, crop=[3, 4])
    assert cropped.ragged_shapes is None
    assert cropped.torch().shape == (4, 3, 4, 3)


def test_sizes_that_are_not_positive_take_the_whole_axis() -> None:
    assert ndd.crop(IMAGE, crop=[0, 3]).shape == (6, 3, 3)
    assert ndd.crop(IMAGE, crop_h=3, crop_w=-1).shape == (3, 7, 3)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "uint32", "int64", "uint64", "float64"])
def test_all_types_are_copied_exactly(dtype: str) -> None:
    values = np.random.default_rng(0).integers(0, 2**31, (5, 6, 2)).astype(dtype)
    assert np.array_equal(np.asarray(ndd.crop(ndd.tensor(values, layout="HWC"), crop=[3, 2], crop_pos_x=1.0, crop_pos_y=0.0)), values[:3, 4:])


@pytest.mark.parametrize("width", [*range(1, 40), 224])
@pytest.mark.parametrize("mirror", [0, 1])
def test_every_width(width: int, mirror: int) -> None:
    image = np.random.default_rng(width).integers(0, 256, (3, width, 3)).astype(np.uint8)
    out = np.asarray(ndd.crop_mirror_normalize(ndd.tensor(image, layout="HWC"), crop=[2, width], mirror=mirror, **RGB))
    expected = normalize_reference("HWC", "CHW")(image[1:], mirror=mirror, **RGB)
    assert np.abs(out - expected).max() <= 1e-6


def test_normalising_whole_images_compiles_to_torch() -> None:
    images = torch.randint(0, 256, (2, 8, 9, 3), dtype=torch.uint8)

    @torch.compile(fullgraph=True, backend="eager")
    def compile_function(values: torch.Tensor, crop: int) -> torch.Tensor:
        batch = ndd.as_batch(values, layout="HWC")
        return ndd.crop_mirror_normalize(batch, crop=[crop, crop + 1], mirror=1, **RGB).torch()

    for crop in (8, 5):
        expected = ndd.crop_mirror_normalize(ndd.as_batch(images, layout="HWC"), crop=[crop, crop + 1], mirror=1, **RGB).torch()
        assert torch.allclose(compile_function(images, crop), expected, atol=1e-5)
