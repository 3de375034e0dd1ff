# SPDX-License-Identifier: Apache-2.0
"""Brightness, contrast, hue and saturation."""

import math

import torch

from ... import types
from ..._core.operators.definition import Packed
from ..._core.operators.operator import DeviceLike, Hint, PerSample, T, operator
from ..._core.values.batch import Batch
from .._channels import check_channels
from .._formulas import Number, on_cpu, per_sample, saturate, value_range
from .._layouts import IMAGE_LAYOUTS
from .._outputs import like
from . import _pixel_chain


def _brightness_formula(input: _pixel_chain.Images, brightness: Number, brightness_shift: Number, *, dtype: torch.dtype) -> torch.Tensor | None:
    return _pixel_chain.linear(input, lambda scale, shift: (scale, shift * value_range(dtype)), brightness, brightness_shift, dtype=dtype)


@operator(layouts=IMAGE_LAYOUTS, formula=_brightness_formula, ragged_formula=True)
def brightness(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    brightness: PerSample[float] = 1.0,
    brightness_shift: PerSample[float] = 0.0,
    dtype: torch.dtype | None = None,
) -> T:
    """Scale and shift the brightness: ``out = brightness * in + brightness_shift * range``.

    ``range`` is 1 for floating-point results and the largest value of the type for integers: 255 for uint8.

    Args:
        input: images ``HWC``, sequences ``FHWC`` or volumes ``DHWC``, any numeric type.
        brightness: factor, one per sample or per frame.
        brightness_shift: offset, relative to the output's range.
        dtype: type of the result, by default the input's; integers are rounded half away from zero and saturated.

    >>> brightness(torch.tensor([[[10], [200]]], dtype=torch.uint8), brightness=1.5).torch().flatten()
    tensor([ 15, 255], dtype=torch.uint8)
    """
    return like(input, dtype)


def _brightness_contrast_formula(
    input: _pixel_chain.Images,
    brightness: Number,
    brightness_shift: Number,
    contrast: Number,
    contrast_center: Number | None,
    *,
    dtype: torch.dtype,
) -> torch.Tensor | None:
    # The middle of the range, as in DALI: 128 for uint8.
    if contrast_center is None:
        contrast_center = 0.5 if value_range(input.dtype) == 1 else (value_range(input.dtype) + 1) / 2

    def line(b: Number, s: Number, c: Number, center: Number) -> tuple[Number, Number]:
        return b * c, s * value_range(dtype) + b * (center - c * center)

    return _pixel_chain.linear(input, line, brightness, brightness_shift, contrast, contrast_center, dtype=dtype)


def _contrast_formula(input: _pixel_chain.Images, contrast: Number, contrast_center: Number | None, *, dtype: torch.dtype) -> torch.Tensor | None:
    return _brightness_contrast_formula(input, 1.0, 0.0, contrast, contrast_center, dtype=dtype)


@operator(layouts=IMAGE_LAYOUTS, formula=_contrast_formula, ragged_formula=True)
def contrast(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    contrast: PerSample[float] = 1.0,
    contrast_center: PerSample[float] | None = None,
    dtype: torch.dtype | None = None,
) -> T:
    """Scale the contrast about a center: ``out = contrast_center + contrast * (in - contrast_center)``.

    Args:
        input: images ``HWC``, sequences ``FHWC`` or volumes ``DHWC``, any numeric type.
        contrast: factor, one per sample or per frame; 0 returns the center everywhere, negative factors invert.
        contrast_center: the intensity that does not change, in units of the input; by default the middle of its range: 0.5 for floating-point types,
            128 for uint8.
        dtype: type of the result, by default the input's; integers are rounded half away from zero and saturated.

    >>> contrast(torch.tensor([[[100], [130]]], dtype=torch.uint8), contrast=2).torch().flatten()
    tensor([ 72, 132], dtype=torch.uint8)
    """
    return like(input, dtype)


@operator(layouts=IMAGE_LAYOUTS, formula=_brightness_contrast_formula, ragged_formula=True)
def brightness_contrast(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    brightness: PerSample[float] = 1.0,
    brightness_shift: PerSample[float] = 0.0,
    contrast: PerSample[float] = 1.0,
    contrast_center: PerSample[float] | None = None,
    dtype: torch.dtype | None = None,
) -> T:
    """Change contrast, then brightness: ``out = brightness_shift * range + brightness * (contrast_center + contrast * (in - contrast_center))``.

    ``range`` is 1 for floating-point results and the largest value of the type for integers.

    Args:
        input: images ``HWC``, sequences ``FHWC`` or volumes ``DHWC``, any numeric type.
        brightness: factor; like all arguments one per sample or per frame.
        brightness_shift: offset, relative to the output's range.
        contrast: factor about the center.
        contrast_center: the intensity that contrast does not change, in units of the input; by default the middle of its range: 0.5 for
            floating-point types, 128 for uint8.
        dtype: type of the result, by default the input's; integers are rounded half away from zero and saturated.

    >>> brightness_contrast(torch.tensor([[[100], [130]]], dtype=torch.uint8), brightness=0.5, contrast=2).torch().flatten()
    tensor([36, 66], dtype=torch.uint8)
    """
    return like(input, dtype)


# RGB to YIQ as defined by NTSC, with three decimals, and its exact inverse. With these, unlike with more decimals, results equal DALI's.
_YIQ_OF_RGB = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]], dtype=torch.float64, device="cpu")
_RGB_OF_YIQ = _YIQ_OF_RGB.inverse()
# The color matrix of a hue is the sum of these, times 1, cosine and sine: it keeps Y, keeps I and Q, and rotates I and Q by a right angle.
_PLANES = [torch.zeros(3, 3, dtype=torch.float64, device="cpu") for _ in range(3)]
_PLANES[0][0, 0] = _PLANES[1][1, 1] = _PLANES[1][2, 2] = _PLANES[2][1, 2] = 1.0
_PLANES[2][2, 1] = -1.0
_COLUMNS = [(_RGB_OF_YIQ @ plane @ _YIQ_OF_RGB).T.tolist() for plane in _PLANES]


def _color_twist_formula(
    input: _pixel_chain.Images, brightness: Number, contrast: Number, hue: Number, saturation: Number, *, dtype: torch.dtype
) -> torch.Tensor | None:
    middle = 0.5 if input.dtype.is_floating_point else 128.0
    if isinstance(input, Packed) or on_cpu(input):  # Inductor's vectors of interleaved channels use 3 of 16 lanes: 1.1 ms where the kernel takes 0.45
        return _pixel_chain.twist(input, brightness, contrast, hue, saturation, middle, dtype=dtype)
    scale, contrast, turn, saturation = (per_sample(x, input.dim(), torch.float64, input.device) for x in (brightness, contrast, hue, saturation))
    radians = turn * (math.pi / 180)
    if isinstance(radians, torch.Tensor):
        cos, sin = torch.cos(radians), torch.sin(radians)
    else:
        cos, sin = math.cos(radians), math.sin(radians)
    factor = scale * contrast
    parts = (factor, factor * saturation * cos, factor * saturation * sin)
    offset = scale * (1 - contrast) * middle
    mixed: Number = offset.float() if isinstance(offset, torch.Tensor) else offset
    # From the last channel to the first, so the sums are rounded like those of the kernel.
    for channel, plane in reversed(list(enumerate(input.float().split(1, -1)))):
        column = torch.zeros(3, dtype=torch.float64, device=input.device)
        for part, columns in zip(parts, _COLUMNS, strict=True):
            column = column + part * torch.tensor(columns[channel], dtype=torch.float64, device=input.device)
        mixed = column.float() * plane + mixed
    assert isinstance(mixed, torch.Tensor)
    return saturate(mixed, dtype)


@operator(layouts=IMAGE_LAYOUTS, formula=_color_twist_formula, ragged_formula=True)
def color_twist(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    brightness: PerSample[float] = 1.0,
    contrast: PerSample[float] = 1.0,
    dtype: torch.dtype | None = None,
    hue: PerSample[float] = 0.0,
    image_type: Hint[types.DALIImageType | None] = None,
    saturation: PerSample[float] = 1.0,
) -> T:
    """Change hue, saturation, contrast and brightness of RGB images, in this order, by one color matrix.

    ``out = brightness * (middle + contrast * (M in - middle))``, where M rotates the I-Q plane of the YIQ color space by ``hue`` and scales it by
    ``saturation``, and ``middle`` is 0.5 for floating-point input, else 128.

    Args:
        input: ``HWC``, ``FHWC`` or ``DHWC`` with three channels, any numeric type.
        brightness: factor; like all arguments one per sample or per frame.
        contrast: factor about the middle gray.
        hue: angle in degrees.
        saturation: factor; 0 makes the image gray.
        dtype: type of the result, by default the input's; integers are rounded half away from zero and saturated.
        image_type: deprecated, ignored.

    Raises:
        RuntimeError: a number of channels other than 3.

    >>> color_twist(torch.tensor([[[200, 100, 0]]], dtype=torch.uint8), saturation=0.5).torch().flatten()
    tensor([159, 109,  59], dtype=torch.uint8)
    """
    return _launch_color_matrix("color_twist", input, dtype)


def _launch_color_matrix(op: str, input: T, dtype: torch.dtype | None) -> T:
    images: Batch = input  # type: ignore[assignment]
    check_channels(op, images, 3)
    return like(images, dtype)


def _hsv_formula(input: _pixel_chain.Images, hue: Number, saturation: Number, value: Number, *, dtype: torch.dtype) -> torch.Tensor | None:
    return _color_twist_formula(input, value, 1.0, hue, saturation, dtype=dtype)


@operator(layouts=IMAGE_LAYOUTS, formula=_hsv_formula, ragged_formula=True)
def hsv(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    dtype: torch.dtype | None = torch.uint8,
    hue: PerSample[float] = 0.0,
    saturation: PerSample[float] = 1.0,
    value: PerSample[float] = 1.0,
) -> T:
    """Change hue, saturation and value of RGB images by one color matrix, like ``color_twist``.

    There is no conversion to HSV: hue rotates and saturation scales the I-Q plane of the YIQ color space, and value scales everything.

    Args:
        input: ``HWC``, ``FHWC`` or ``DHWC`` with three channels, any numeric type.
        dtype: type of the result; uint8 by default, whatever the input's type. Integers are rounded half away from zero and saturated.
        hue: angle in degrees; like all arguments one per sample or per frame.
        saturation: factor; 0 makes the image gray.
        value: factor.

    Raises:
        RuntimeError: a number of channels other than 3.

    >>> hsv(torch.tensor([[[200, 100, 0]]], dtype=torch.uint8), hue=120, value=0.5).torch().flatten()
    tensor([10, 91, 26], dtype=torch.uint8)
    """
    return _launch_color_matrix("hsv", input, dtype)


def _hue_formula(input: _pixel_chain.Images, hue: Number, *, dtype: torch.dtype) -> torch.Tensor | None:
    return _color_twist_formula(input, 1.0, 1.0, hue, 1.0, dtype=dtype)


@operator(layouts=IMAGE_LAYOUTS, formula=_hue_formula, ragged_formula=True)
def hue(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    dtype: torch.dtype | None = None,
    hue: PerSample[float] = 0.0,
    image_type: Hint[types.DALIImageType | None] = None,
) -> T:
    """Rotate the hue of RGB images: a rotation of the I-Q plane of the YIQ color space.

    Args:
        input: ``HWC``, ``FHWC`` or ``DHWC`` with three channels, any numeric type.
        dtype: type of the result, by default the input's; integers are rounded half away from zero and saturated.
        hue: angle in degrees, one per sample or per frame.
        image_type: deprecated, ignored.

    Raises:
        RuntimeError: a number of channels other than 3.

    >>> hue(torch.tensor([[[200, 100, 0]]], dtype=torch.uint8), hue=120).torch().flatten()
    tensor([ 20, 182,  52], dtype=torch.uint8)
    """
    return _launch_color_matrix("hue", input, dtype)


def _saturation_formula(input: _pixel_chain.Images, saturation: Number, *, dtype: torch.dtype) -> torch.Tensor | None:
    return _color_twist_formula(input, 1.0, 1.0, 0.0, saturation, dtype=dtype)


@operator(layouts=IMAGE_LAYOUTS, formula=_saturation_formula, ragged_formula=True)
def saturation(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    dtype: torch.dtype | None = None,
    image_type: Hint[types.DALIImageType | None] = None,
    saturation: PerSample[float] = 1.0,
) -> T:
    """Scale the saturation of RGB images: I and Q in the YIQ color space.

    Args:
        input: ``HWC``, ``FHWC`` or ``DHWC`` with three channels, any numeric type.
        dtype: type of the result, by default the input's; integers are rounded half away from zero and saturated.
        image_type: deprecated, ignored.
        saturation: factor, one per sample or per frame; 0 makes the image gray.

    Raises:
        RuntimeError: a number of channels other than 3.

    >>> saturation(torch.tensor([[[200, 100, 0]]], dtype=torch.uint8), saturation=0.5).torch().flatten()
    tensor([159, 109,  59], dtype=torch.uint8)
    """
    return _launch_color_matrix("saturation", input, dtype)


_POSTERIZED = (torch.uint8, torch.int8, torch.uint16, torch.int16, torch.float16, torch.bfloat16, torch.float32, torch.float64)


@_pixel_chain.by_level
def _posterize_formula(input: torch.Tensor, bits: Number, *, dtype: torch.dtype) -> torch.Tensor:
    bits = per_sample(bits, input.dim(), torch.float32, input.device)
    if input.dtype.is_floating_point:
        count = 2.0**bits
        return (torch.minimum((input.float() * count).floor().clamp(min=0), torch.as_tensor(count - 1.0)) / count).to(dtype)
    step = 2.0 ** torch.clamp(math.log2(value_range(input.dtype) + 1) - torch.as_tensor(bits), min=0)
    return (torch.floor(input.float() / step) * step).to(dtype)


@operator(formula=_posterize_formula, ragged_formula=True)
def posterize(input: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None, bits: PerSample[int]) -> T:
    """Reduce the number of levels: integers keep their ``bits`` highest bits, ``out = floor(in / step) * step`` with ``step = 2^(width - bits)``.

    The width is that of the type without its sign: 8 for uint8, 7 for int8. Floating-point values from 0 to 1 get ``2^bits`` levels: ``out =
    min(floor(in * 2^bits), 2^bits - 1) / 2^bits``. The results equal those of torchvision's ``posterize``.

    Args:
        input: any layout; uint8, int8, uint16, int16 or floating-point.
        bits: bits to keep, one value per sample or per frame; with at least as many as the type has, integers do not change.

    Raises:
        ValueError: ``bits`` outside 0 to 32.
        RuntimeError: another element type.

    >>> posterize(torch.tensor([[[10], [100], [255]]], dtype=torch.uint8), bits=2).torch().flatten()
    tensor([  0,  64, 192], dtype=torch.uint8)
    """
    if input.dtype not in _POSTERIZED:
        raise RuntimeError(f"posterize: the input must be of 8 or 16 bits or floating-point, got {input.dtype}")
    return like(input)
