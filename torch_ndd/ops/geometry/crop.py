# SPDX-License-Identifier: Apache-2.0
"""Windows of images: ``crop`` and ``crop_mirror_normalize``."""

from collections.abc import Sequence
from typing import Any, get_args

import torch

from ..._core.operators.definition import Packed
from ..._core.operators.operator import DeviceLike, Hint, PerSample, ShapeArg, T, launch, operator
from ..._core.values.batch import Batch, empty_batch
from .._borders import BORDERS
from .._channels import is_other
from .._columns import Column
from .._formulas import mirror_axis, normal, per_channel, saturate
from .._outputs import check_per_channel, columns_of, output_type, permute_layout
from ..color import _pixel_chain
from ._crop_window import CROP_LAYOUTS, BorderPolicy, CropArguments, Policy, Rounding, check_policy, crop_window


@operator(layouts=CROP_LAYOUTS)
def crop(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    crop: ShapeArg[Sequence[float]] | None = None,
    crop_d: ShapeArg[float] | None = None,
    crop_h: ShapeArg[float] | None = None,
    crop_pos_x: ShapeArg[float] = 0.5,
    crop_pos_y: ShapeArg[float] = 0.5,
    crop_pos_z: ShapeArg[float] = 0.5,
    crop_w: ShapeArg[float] | None = None,
    dtype: torch.dtype | None = None,
    fill_values: PerSample[Sequence[float]] = 0.0,
    image_type: Hint[Any] = None,
    out_of_bounds_policy: BorderPolicy = "error",
    output_dtype: Any = None,
    rounding: Rounding = "round",
) -> T:
    """Crop a window of a given size: ``out[y, x] = in[start_y + y, start_x + x]``, ``start = round(crop_pos * (extent - size))``.

    Args:
        input: images, sequences or volumes, channels first or last: ``HWC``, ``CHW``, ``DHWC``, ``CDHW``, with frames ``F`` before or after the
            channels.
        crop: height and width in pixels, or depth, height and width; fractions are truncated. Less than 1 means the whole axis.
        crop_h, crop_w, crop_d: the sizes separately. Without a depth, ``crop_d`` counts frames.
        crop_pos_x, crop_pos_y, crop_pos_z: relative position of the window, from 0 (left, top, front) to 1.
        rounding: rounding of the start: "round" (half away from zero), "truncate" or "half_to_even" (torchvision's).
        out_of_bounds_policy: what to do with a window that leaves the image: "error", "trim_to_shape", "pad", "constant" or "fill" with
            ``fill_values``, or a border of the image's own pixels, as for :func:`slice`.
        fill_values: one number, or one per channel.
        dtype: type of the result, by default the input's; integers are rounded half away from zero and saturated.
        output_dtype: old name of ``dtype``.
        image_type: ignored.

    Raises:
        RuntimeError: a window that leaves the image, a position outside [0, 1], inconsistent sizes, an unknown policy or rounding.
        ValueError: another layout.

    >>> crop(torch.arange(12).reshape(3, 4, 1), crop=[2, 2], crop_pos_x=0, crop_pos_y=1).torch().flatten().tolist()
    [4, 5, 8, 9]
    """
    images: Batch = input  # type: ignore[assignment]
    policy, border = check_policy("crop", out_of_bounds_policy, get_args(BorderPolicy))
    arguments = CropArguments(crop, crop_d, crop_h, crop_w, crop_pos_x, crop_pos_y, crop_pos_z, rounding, policy)
    window = crop_window("crop", images, arguments)
    layout = images.layout or ""
    if border == BORDERS["constant"]:
        check_per_channel("crop", "fill_values", fill_values, window.extent[layout.index("C")])
    wanted = output_type("crop", dtype, output_dtype) or images.dtype
    out = window.allocate(images, wanted, layout)
    return launch(out, (window.rows, fill_values, border, layout), derivation=window.derivation)


def _normalized_formula(
    input: _pixel_chain.Images,
    start: torch.Tensor,
    fill_values: torch.Tensor,
    pad: bool,
    mirror: torch.Tensor | int,
    mean: torch.Tensor | float,
    std: torch.Tensor | float,
    scale: float,
    shift: float,
    layout: str,
    output_layout: str,
    *,
    dtype: torch.dtype,
) -> torch.Tensor | None:
    """Compute whole images: a mirrored one is read backwards, and the normalization follows in the same loop."""
    few = isinstance(input, Packed) or (isinstance(input.shape[-1], int) and 1 < input.shape[-1] <= _MAX_LOOPS)
    if _pixel_chain.takes(input, layout) or (few and _pixel_chain.takes_flip(input, layout)):
        return _pixel_chain.normalize(input, mirror, mean, std, scale, shift, output_layout, dtype)
    if isinstance(input, Packed) or _pixel_chain.is_native(input):
        return None
    axes, channel = input.dim(), 1 + layout.index("C")
    wanted = mirror.reshape(-1, *(1,) * (axes - 1)) if isinstance(mirror, torch.Tensor) else mirror
    mean, std = (per_channel(values, axes, channel, input.device) for values in (mean, std))
    normalized = normal(mirror_axis(input, 1 + layout.index("W"), wanted), mean, std, scale, shift)
    return saturate(normalized.permute(0, *(1 + layout.index(letter) for letter in output_layout)), dtype).contiguous()


_MAX_LOOPS = 4  # channels


@operator(layouts=CROP_LAYOUTS, formula=_normalized_formula, ragged_formula=True)
def crop_mirror_normalize(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    crop: ShapeArg[Sequence[float]] | None = None,
    crop_d: ShapeArg[float] | None = None,
    crop_h: ShapeArg[float] | None = None,
    crop_pos_x: ShapeArg[float] = 0.5,
    crop_pos_y: ShapeArg[float] = 0.5,
    crop_pos_z: ShapeArg[float] = 0.5,
    crop_w: ShapeArg[float] | None = None,
    dtype: torch.dtype | None = None,
    fill_values: PerSample[Sequence[float]] = 0.0,
    image_type: Hint[Any] = None,
    mean: PerSample[Sequence[float]] = 0.0,
    mirror: PerSample[int] = 0,
    out_of_bounds_policy: Policy = "error",
    output_dtype: Any = None,
    output_layout: str | None = None,
    pad_output: bool = False,
    rounding: Rounding = "round",
    scale: float = 1.0,
    shift: float = 0.0,
    std: PerSample[Sequence[float]] = 1.0,
) -> T:
    """Crop a window, mirror it, normalize it and permute its axes: ``out = (in - mean) * scale / std + shift``.

    The window is that of :func:`crop`. Elements outside the image are ``fill_values``, not normalized.

    Args:
        input: images, sequences or volumes, channels first or last, as for :func:`crop`.
        crop, crop_h, crop_w, crop_d, crop_pos_x, crop_pos_y, crop_pos_z, rounding, fill_values: see :func:`crop`.
        out_of_bounds_policy: "error", "trim_to_shape", or "pad", "constant" or "fill" with ``fill_values``, as for :func:`crop`.
        mirror: mirror the window horizontally.
        mean, std: one number, or one per channel.
        scale, shift: scale and offset of the result, the same for all samples and channels.
        output_layout: order of the result's axes, a permutation of the input's; by default the channels come before depth, height and width: ``CHW``.
            An empty string keeps the input's order.
        pad_output: pad the number of channels to a power of two, with zeros, or under the policy "pad" with ``fill_values``, if there is one or as
            many as the padded channels.
        dtype: type of the result, by default float32; integers are rounded half away from zero and saturated.
        output_dtype: old name of ``dtype``.
        image_type: ignored.

    Raises:
        RuntimeError: the errors of :func:`crop`; an output_layout with other letters; a number of mean, std or fill_values other than that of the
            channels.
        ValueError: another layout.

    >>> crop_mirror_normalize(torch.tensor([[[10], [20], [30]]]), crop=[1, 2], crop_pos_x=0, mirror=1, mean=10, std=5).torch()
    tensor([[[2., 0.]]])
    """
    op = "crop_mirror_normalize"
    images: Batch = input  # type: ignore[assignment]
    policy = check_policy(op, out_of_bounds_policy).policy
    arguments = CropArguments(crop, crop_d, crop_h, crop_w, crop_pos_x, crop_pos_y, crop_pos_z, rounding, policy)
    window = crop_window(op, images, arguments)
    layout, pad = images.layout or "", policy == "pad"
    order = permute_layout(op, layout, output_layout)
    channels = window.extent[layout.index("C")]
    padded = _power_of_two(channels) if pad_output else channels
    for name, values in (("mean", mean), ("std", std)):
        check_per_channel(op, name, values, channels)
    fills = columns_of(fill_values)
    if pad and fills != 1 and not isinstance(channels, torch.Tensor) and is_other(fills, channels, padded):
        raise RuntimeError(f"{op}: argument 'fill_values' has {fills} values, but there are {padded} channels")
    if columns_of(mirror) != 1:
        raise RuntimeError(f"{op}: argument 'mirror' takes one number per sample, got {columns_of(mirror)}")
    wanted = output_type(op, dtype, output_dtype) or torch.float32
    extents = [padded if letter == "C" else window.extent[layout.index(letter)] for letter in order]
    out = empty_batch(images.batch_size, extents, wanted, images.buffer.device, order)
    kernel_arguments = (window.rows, fill_values, pad, mirror, mean, std, float(scale), float(shift), layout, order)
    whole = all(size is None for size in (crop, crop_d, crop_h, crop_w)) or window.is_whole(images)
    # The shapes of windows that differ have the axes of the input.
    derivation = None if any(isinstance(extent, torch.Tensor) for extent in window.extent) else window.derivation
    return launch(out, kernel_arguments, fusable=whole and not pad_output, derivation=derivation)


def _power_of_two(channels: Column) -> Column:
    if isinstance(channels, torch.Tensor):
        return (2.0 ** torch.log2(channels.to(torch.float64)).ceil()).to(torch.int64)
    return 1 << max(0, channels - 1).bit_length()
