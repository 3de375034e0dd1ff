# SPDX-License-Identifier: Apache-2.0
"""The position of a crop window: its start and extents from sizes, relative positions and the policy for windows that leave the image."""

import functools
from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple, get_args

import torch

from ..._core.native.tracing import is_compiling
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch
from .._borders import BORDERS, Border, fold_border
from .._columns import (
    Column,
    at_sample,
    choose,
    extents_of,
    first_failure,
    float32,
    format_value,
    holds,
    in_sample,
    larger,
    nearest,
    nearest_even,
    real,
    rows,
    smaller,
    whole,
)
from ._axis_numbers import AxisNumbers
from ._windows import CropWindow as CropWindow
from ._windows import find_windows

Policy = Literal["error", "pad", "constant", "fill", "trim_to_shape"]
BorderPolicy = Literal["error", "trim_to_shape", Border]
Rounding = Literal["round", "truncate", "half_to_even"]
_ROUNDINGS = get_args(Rounding)
CROP_LAYOUTS = ("HWC", "CHW", "DHWC", "CDHW", "FHWC", "FCHW", "CFHW", "FDHWC", "FCDHW", "CFDHW")


class Outside(NamedTuple):
    """What happens to windows that leave a sample."""

    policy: str  # "error", "trim_to_shape", or "pad" for windows that may leave it
    border: int  # what then lies outside: a number of BORDERS; INSIDE with the other policies


INSIDE = -1
"""In place of the number of a border: windows lie inside of their samples."""


def check_policy(op: str, policy: str, choices: Collection[str] = get_args(Policy)) -> Outside:
    """Return what a policy means. Raise RuntimeError if it is not one of ``choices``.

    >>> check_policy("slice", "edge", get_args(BorderPolicy))
    Outside(policy='pad', border=1)
    """
    folded = str(fold_border(policy))
    check_choice(op, "out_of_bounds_policy", folded if isinstance(policy, str) else policy, choices)
    return Outside("pad", BORDERS[folded]) if folded in BORDERS else Outside(folded, INSIDE)


class CropArguments(NamedTuple):
    """The common arguments of crop and crop_mirror_normalize: each a number, a sequence or a tensor (rows, columns)."""

    crop: Any
    crop_d: Any
    crop_h: Any
    crop_w: Any
    crop_pos_x: Any
    crop_pos_y: Any
    crop_pos_z: Any
    rounding: str
    out_of_bounds_policy: str


def crop_window(op: str, input: Batch, arguments: CropArguments) -> CropWindow:
    """Return the window of every sample. Raise RuntimeError if it leaves a sample and the policy does not allow that.

    >>> from torch_ndd._core.values.batch import as_batch
    >>> images = as_batch(torch.zeros(1, 480, 640, 3), layout="HWC")
    >>> window = crop_window("crop", images, CropArguments((100, 200), None, None, None, 0.5, 1.0, 0.5, "round", "error"))
    >>> window.start, window.extent
    ((380, 220, 0), (100, 200, 3))
    """
    layout = input.layout or ""
    # Lists cannot be keys of the cache.
    if isinstance(arguments.crop, list):
        if any(isinstance(size, tuple) for size in arguments.crop):
            raise RuntimeError(
                f"{op}: argument 'crop' takes height and width, or depth, height and width; got {arguments.crop}; sizes for each sample are a Batch: "
                "wrap them in ndd.batch(...)"
            )
        arguments = arguments._replace(crop=tuple(arguments.crop))
    extents = extents_of(input)
    if is_compiling():
        return window_in(op, layout, extents, arguments)
    if input.ragged_shapes is None and torch.Tensor not in map(type, arguments):
        return _plain_window(op, layout, extents, arguments)
    return _find_window(input, layout, extents, arguments) or window_in(op, layout, extents, arguments)


def _find_window(input: Batch, layout: str, extents: tuple[Column, ...], arguments: CropArguments) -> CropWindow | None:
    """Return the window that native code computes; None if an argument is wrong."""
    axes = pack_windows(layout, arguments)
    if axes is None:
        return None
    return find_windows("crop", input, extents, axes, arguments.out_of_bounds_policy, arguments.rounding)


def pack_windows(layout: str, arguments: CropArguments) -> list[tuple[int, AxisNumbers, AxisNumbers]] | None:
    """Return the axes of a window with its position and its size; None for wrong arguments."""
    sizes: dict[str, AxisNumbers] = {}
    if arguments.crop is not None:
        values = arguments.crop if isinstance(arguments.crop, torch.Tensor) else None
        count = (values.numel() // max(1, len(values))) if values is not None else len(arguments.crop) if isinstance(arguments.crop, tuple) else 0
        separate_sizes = (arguments.crop_d, arguments.crop_h, arguments.crop_w)
        # Wrong combinations are left to window_in(), which says what is wrong.
        if count not in (2, 3) or any(size is not None for size in separate_sizes):
            return None
        sizes = {axis: _numbers_of("crop", arguments.crop if values is None else values, k) for k, axis in enumerate("zyx"[-count:])}
    elif (arguments.crop_h is None) == (arguments.crop_w is None) and not (arguments.crop_d is not None and arguments.crop_h is None):
        separate = {"z": arguments.crop_d, "y": arguments.crop_h, "x": arguments.crop_w}
        sizes = {axis: _numbers_of(f"crop_{'dhw'['zyx'.index(axis)]}", value) for axis, value in separate.items() if value is not None}
    else:
        return None
    axes = []
    for dimension, letter in enumerate(layout):
        # Frames take the place of the depth where there is none.
        axis = {"W": "x", "H": "y", "D": "z", "F": "" if "D" in layout else "z"}.get(letter)
        if axis:
            axes.append((dimension, _numbers_of(f"crop_pos_{axis}", getattr(arguments, f"crop_pos_{axis}")), sizes.get(axis, _WHOLE)))
    return axes if arguments.rounding in _ROUNDINGS else None


_WHOLE = AxisNumbers(0.0)


def _numbers_of(name: str, value: Any, column: int = 0) -> AxisNumbers:
    if isinstance(value, torch.Tensor):
        return AxisNumbers(values=value, column=column, name=name)
    return AxisNumbers(float32(value[column] if isinstance(value, tuple) else value))


def window_in(op: str, layout: str, extents: tuple[Column, ...], arguments: CropArguments) -> CropWindow:
    policy, rounding = arguments.out_of_bounds_policy, arguments.rounding
    check_choice(op, "rounding", rounding, _ROUNDINGS)
    sizes = _sizes(op, arguments)
    start: list[Column] = []
    extent: list[Column] = []
    for letter, length in zip(layout, extents, strict=True):
        # The third number of a window is the depth, or the frames if there is no depth.
        axis = {"W": "x", "H": "y", "D": "z", "F": "" if "D" in layout else "z"}.get(letter, "")
        if not axis:
            begin, size = 0, length
        else:
            requested = sizes.get(axis)
            # A size of less than 1 means the whole axis: truncated it is 0 or less.
            size = length if requested is None else choose(requested >= 1, whole(requested), length)
            name = f"crop_pos_{axis}"
            position = _one_column(op, name, getattr(arguments, name))
            inside = (position >= 0) & (position <= 1)
            if not holds(inside):
                raise RuntimeError(f"{op}: {in_sample(inside)}{name} must lie between 0 and 1, got {format_value(getattr(arguments, name))}")
            room = position * real(length - size)
            begin = nearest(room) if rounding == "round" else whole(room) if rounding == "truncate" else nearest_even(room)
        if axis and policy == "trim_to_shape":
            begin, size = trim(begin, size, length)
        elif axis and policy == "error":
            name = f"crop_{'whd'['xyz'.index(axis)]}"
            check_inside(op, letter, begin, size, length, f" (arguments crop, {name} and crop_pos_{axis})")
        start.append(begin)
        extent.append(size)
    return CropWindow(tuple(start), tuple(extent), rows(start))


_plain_window = functools.lru_cache(maxsize=1024)(window_in)  # a dense batch has the same window in every call


def trim(begin: Column, size: Column, length: Column) -> tuple[Column, Column]:
    """Return start and extent of the part of a window that lies inside."""
    last = smaller(begin + size, length)
    begin = smaller(larger(begin, 0), length)
    return begin, larger(last - begin, 0)


def _sizes(op: str, arguments: CropArguments) -> dict[str, Column]:
    """Return the given sizes by axis; a size of less than 1 means the whole axis."""
    separate = {"z": arguments.crop_d, "y": arguments.crop_h, "x": arguments.crop_w}
    names = [f"crop_{'dhw'['zyx'.index(axis)]}" for axis, value in separate.items() if value is not None]
    if arguments.crop is not None:
        if names:
            raise RuntimeError(f"{op}: crop cannot be combined with {names[0]}")
        columns = _columns(op, "crop", arguments.crop)
        if len(columns) not in (2, 3):
            raise RuntimeError(f"{op}: argument 'crop' takes height and width, or depth, height and width; got {format_value(arguments.crop)}")
        return dict(zip("zyx"[-len(columns) :], columns, strict=True))
    if (arguments.crop_h is None) != (arguments.crop_w is None) or (arguments.crop_d is not None and arguments.crop_h is None):
        raise RuntimeError(f"{op}: {names[0]} alone: crop_h and crop_w must be given together, crop_d only with them")
    return {axis: _one_column(op, f"crop_{'dhw'['zyx'.index(axis)]}", value) for axis, value in separate.items() if value is not None}


def _columns(op: str, name: str, value: Any) -> list[Column]:
    """Convert numbers, or tensors (rows,), to double, rounded to float32: 0.3 of 5 pixels is then more than a half, as in DALI."""
    if isinstance(value, torch.Tensor):
        columns: list[Column] = list((value.flatten(1) if value.dim() > 1 else value[:, None]).to(torch.float32).to(torch.float64).unbind(1))
    else:
        columns = [float32(v) for v in (value if isinstance(value, Sequence) else (value,))]
    for finite in ((c == c) & (abs(c) < 2.0**31) for c in columns):
        if not holds(finite):
            raise RuntimeError(f"{op}: {in_sample(finite)}{name} must be finite and less than 2**31, got {format_value(value)}")
    return columns


def _one_column(op: str, name: str, value: Any) -> Column:
    columns = _columns(op, name, value)
    if len(columns) != 1:
        raise RuntimeError(f"{op}: argument {name!r} takes one number per sample, got {format_value(value)}")
    return columns[0]


def check_inside(op: str, axis: str, begin: Column, size: Column, length: Column, arguments: str = "") -> None:
    """Raise RuntimeError for a window that leaves a sample along an axis, naming the arguments that give it."""
    inside = (begin >= 0) & (begin + size <= length)
    if holds(inside):
        return
    sample = first_failure(inside)
    begin, size, length = (at_sample(v, sample) for v in (begin, size, length))
    raise RuntimeError(
        f"{op}: sample {sample}: the window [{begin}, {begin + size}) exceeds axis {axis} of extent {length}{arguments}; "
        'out_of_bounds_policy="pad" or "trim_to_shape" allows it'
    )
