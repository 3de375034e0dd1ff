# SPDX-License-Identifier: Apache-2.0
"""The axes of a sample that an operator's arguments refer to."""

from typing import Any

import torch

from .._core.native.tracing import is_compiling
from .._core.operators.arguments import NO_VALUE
from .._core.values.batch import Batch

# Layouts assumed for arrays without one when axes are given as letters.
_USUAL = {1: "W", 2: "HW", 3: "HWC", 4: "DHWC"}


def usual_layout(input: Batch) -> str:
    """Return the layout, or the usual one for this number of dimensions."""
    return input.layout or _USUAL.get(input.ndim, "")


def named_axes(op: str, names: str, layout: str) -> tuple[int, ...]:
    """Return the positions of letters in a layout. Raise RuntimeError for a letter that is not there."""
    for letter in names:
        if letter not in layout:
            raise RuntimeError(f"{op}: axis_names: Axis '{letter}' is not present in the input layout \"{layout}\"")
    return tuple(layout.index(letter) for letter in names)


def numbered_axes(op: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """Return axes counted from the front. Raise RuntimeError for invalid or repeated axes."""
    positions = []
    for axis in axes if isinstance(axes, list | tuple) else (axes,):
        if not isinstance(axis, int) or isinstance(axis, bool):
            raise TypeError(f"{op}: axes must be ints, got {axes!r}")
        if not -ndim <= axis < ndim:
            raise RuntimeError(f"{op}: axes: Axis {axis} out of range. Expected range is [{-ndim}, {ndim - 1}] for a {ndim}D input")
        if axis % ndim in positions:
            raise RuntimeError(f"{op}: axes: Axis index {axis % ndim} occurs more than once in {axes!r}")
        positions.append(axis % ndim)
    return tuple(positions)


def axes_of_samples(op: str, axes: Any, axis_names: Any, layout: str, ndim: int) -> list[tuple[int, ...]] | None:
    """Return the axes given by ``axes`` or ``axis_names``, one tuple for all samples or one per sample; None if neither is given."""
    if axis_names is not None and not isinstance(axis_names, str):
        raise TypeError(f"{op}: axis_names must be letters of the layout, got {axis_names!r}")
    if axes is not None and axis_names is not None:
        raise RuntimeError(f"{op}: axes and axis_names are mutually exclusive")
    if axis_names is not None:
        return [named_axes(op, axis_names, layout)] if axis_names != "" else None
    if axes is None:
        return None
    if isinstance(axes, torch.Tensor):
        if is_compiling():
            raise TypeError(f"{op}: axes must be numbers under torch.compile, not a Tensor or a Batch")
        table = axes.reshape(len(axes), axes.numel() // max(1, len(axes))).tolist()
        axes_per_sample = [numbered_axes(op, [axis for axis in row if axis != NO_VALUE], ndim) for row in table]
        # Usually all samples name the same axes, and one row of arguments serves the kernel.
        return axes_per_sample[:1] if all(row == axes_per_sample[0] for row in axes_per_sample) else axes_per_sample
    axes_per_sample = [numbered_axes(op, axes, ndim)]
    # An empty list means that the argument was left out.
    return axes_per_sample if axes_per_sample[0] else None
