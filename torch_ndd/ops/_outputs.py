# SPDX-License-Identifier: Apache-2.0
"""Unfilled outputs, and the arguments that determine them."""

from collections.abc import Sequence
from typing import Any

import torch

from .. import types
from .._core.native import empty
from .._core.values.batch import Batch, empty_batch, new_batch
from ._channels import is_other
from ._columns import extent_of


def like(input: Any, dtype: torch.dtype | None = None) -> Any:
    """Return an unfilled batch with the shapes and layout of another one."""
    values = input.buffer
    return new_batch(
        empty(values.shape, dtype or values.dtype, values.device), input.ragged_shapes, input.layout, shared_extents=input.shared_extents
    )


def resized(
    input: Batch,
    axes: Sequence[int],
    extents: Sequence["int | torch.Tensor"],
    dtype: torch.dtype | None = None,
    frames: "int | torch.Tensor | None" = None,
) -> Batch:
    """Return an unfilled batch like another one but with other extents of some axes, numbers or int64 (N,) with one per sample.

    ``frames`` is added in front of samples that had none.
    """
    changes = {axis % input.ndim: extent for axis, extent in zip(axes, extents, strict=True)}
    shape = [changes[axis] if axis in changes else extent_of(input, axis) for axis in range(input.ndim)]
    layout = input.layout
    if frames is not None:
        shape, layout = [frames, *shape], layout and "F" + layout
    return empty_batch(input.batch_size, shape, dtype or input.dtype, input.buffer.device, layout)


def frames_of(input: Batch, other: Batch | None) -> "int | torch.Tensor | None":
    """Return the number of frames of the output if ``other`` is marked per frame and the input has no frames. None if nothing changes."""
    if other is None or (input.layout or "").startswith("F") or not (other.layout or "").startswith("F"):
        return None
    return other.frame_counts()


def result_type(op: str, input_type: torch.dtype, dtype: torch.dtype | None) -> torch.dtype:
    """Return ``dtype``, by default that of the input. Raise RuntimeError unless it is that or float32."""
    if dtype is None or dtype == input_type or dtype == torch.float32:
        return dtype or input_type
    raise RuntimeError(f"{op}: dtype must be the input's ({types.dtype_name(input_type)}) or float32, got {types.dtype_name(dtype)}")


def output_type(op: str, dtype: torch.dtype | None, output_dtype: Any) -> torch.dtype | None:
    """Return ``dtype``, or ``output_dtype``, its old name."""
    if output_dtype is None:
        return dtype
    if dtype is not None:
        raise TypeError(f"{op}: output_dtype is an old name of dtype; give only one of them")
    try:
        return types.to_dtype(output_dtype)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{op}: output_dtype: {error}") from None


def permute_layout(op: str, layout: str, wanted: str | None) -> str:
    """Return a layout with the axes of another one: with the channels before depth, height and width if None is wanted, unchanged if ``""`` is."""
    if wanted is None:
        rest = layout.replace("C", "")
        return rest[: rest.startswith("F")] + "C" + rest[rest.startswith("F") :]
    if not isinstance(wanted, str):
        raise TypeError(f"{op}: output_layout must be a str, got {wanted!r}")
    if sorted(wanted or layout) != sorted(layout):
        raise RuntimeError(f'{op}: output_layout="{wanted}" is not a permutation of the input layout "{layout}"')
    return wanted or layout


def columns_of(values: Any) -> int:
    """Return the number of values per sample of an argument that is a tensor (rows, columns...)."""
    return values.numel() // max(1, values.shape[0])


def check_per_channel(op: str, name: str, values: Any, channels: Any) -> None:
    """Raise RuntimeError unless an argument has one value, or one per channel if the number of channels is known."""
    count = columns_of(values)
    # A single value holds for all channels.
    if not isinstance(channels, torch.Tensor) and count != 1 and is_other(channels, count):
        raise RuntimeError(f"{op}: argument {name!r} has {count} values, but there are {channels} channels")
