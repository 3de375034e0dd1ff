# SPDX-License-Identifier: Apache-2.0
"""Conversion between color spaces."""

import functools

import torch

from ... import types
from ..._core.native.tracing import is_compiling
from ..._core.operators.operator import DeviceLike, T, launch, operator
from ..._core.values.batch import Batch
from .._channels import check_channels
from .._formulas import on_cpu, saturate, value_range
from .._outputs import resized

_LAYOUTS = ("HWC", "FHWC", "DHWC", "FDHWC")
_CHANNELS = {types.RGB: 3, types.BGR: 3, types.YCbCr: 3, types.GRAY: 1}

Affine = list[list[float]]  # three rows of three factors and a constant

# ITU-R BT.601: luma of R, G and B, and the ranges 16 to 235 and 16 to 240 of luma and chroma among 256 levels.
_LUMA = (0.299, 0.587, 0.114)
_HEADROOM, _LUMA_RANGE, _CHROMA_RANGE, _NO_CHROMA = 16 / 255, 219 / 255, 224 / 255, 128 / 255


def _to_rgb(source: int) -> Affine:
    if source == types.GRAY:
        return [[1.0, 0.0, 0.0, 0.0]] * 3
    if source == types.BGR:
        return [[0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]
    if source == types.RGB:
        return [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]
    luma, chroma = 1 / _LUMA_RANGE, 2 / _CHROMA_RANGE
    red, blue = chroma * (1 - _LUMA[0]), chroma * (1 - _LUMA[2])
    rows = [[luma, 0.0, red], [luma, -blue * _LUMA[2] / _LUMA[1], -red * _LUMA[0] / _LUMA[1]], [luma, blue, 0.0]]
    return [[*row, -_HEADROOM * row[0] - _NO_CHROMA * (row[1] + row[2])] for row in rows]


def _from_rgb(target: int) -> Affine:
    if target == types.GRAY:
        return [[*_LUMA, 0.0]] * 3
    if target != types.YCbCr:
        return _to_rgb(target)
    rows = [[*(_LUMA_RANGE * k for k in _LUMA), _HEADROOM]]
    for c in (2, 0):
        scale = _CHROMA_RANGE / (2 * (1 - _LUMA[c]))
        rows.append([*(scale * ((k == c) - _LUMA[k]) for k in range(3)), _NO_CHROMA])
    return rows


def _compose(second: Affine, first: Affine) -> Affine:
    return [[sum(row[k] * first[k][c] for k in range(3)) + (c == 3) * row[3] for c in range(4)] for row in second]


def _matrix(source: int, target: int, full: float) -> torch.Tensor:
    rows = _compose(_from_rgb(target), _to_rgb(source))
    return torch.tensor([[*row[:3], row[3] * full] for row in rows], dtype=torch.float32)


_cached_matrix = functools.cache(_matrix)


def _formula(input: torch.Tensor, matrix: torch.Tensor, channels: int, out_channels: int, *, dtype: torch.dtype) -> torch.Tensor | None:
    if on_cpu(input):
        return None  # as in color_twist
    matrix = matrix.to(input.device)[:out_channels]
    mixed = matrix[:, 3]
    for k in range(channels - 1, -1, -1):
        mixed = matrix[:, k] * input[..., k : k + 1].float() + mixed
    return saturate(mixed, dtype)


def _channels_of_space(name: str, value: int) -> int:
    if value not in _CHANNELS:
        raise RuntimeError(f"color_space_conversion: {name} must be RGB, BGR, GRAY or YCbCr of torch_ndd.types, got {value!r}")
    return _CHANNELS[types.DALIImageType(value)]


@operator(layouts=_LAYOUTS, formula=_formula)
def color_space_conversion(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    image_type: types.DALIImageType,
    output_type: types.DALIImageType,
) -> T:
    """Convert between RGB, BGR, gray and YCbCr.

    YCbCr is that of ITU-R BT.601: among 256 levels luma takes 16 to 235, chroma 16 to 240 about 128. Gray is the luma of R, G and B over the full
    range, ``0.299 R + 0.587 G + 0.114 B``.

    Args:
        input: ``HWC``, ``FHWC``, ``DHWC`` or ``FDHWC``, any numeric type; levels of types other than uint8 are those of uint8 scaled to their range,
            which is 1 for floating-point types.
        image_type: color space of the input: ``types.RGB``, ``BGR``, ``GRAY`` or ``YCbCr``.
        output_type: color space of the result, which has one channel for ``GRAY``, else three, and the input's type.

    Raises:
        RuntimeError: another image type, or the wrong number of channels for it.

    >>> rgb = torch.tensor([[[255, 0, 0]]], dtype=torch.uint8)
    >>> color_space_conversion(rgb, image_type=ndd.types.RGB, output_type=ndd.types.YCbCr).torch().flatten()
    tensor([ 81,  90, 240], dtype=torch.uint8)
    """
    images: Batch = input  # type: ignore[assignment]
    channels, out_channels = _channels_of_space("image_type", image_type), _channels_of_space("output_type", output_type)
    check_channels("color_space_conversion", images, channels)
    out = resized(images, [images.ndim - 1], [out_channels])
    matrix = (_matrix if is_compiling() else _cached_matrix)(int(image_type), int(output_type), value_range(images.dtype))
    exact = images.dtype.is_floating_point or images.dtype.itemsize < 4  # the formula computes in float32
    return launch(out, [matrix, channels, out_channels], fusable=exact)
