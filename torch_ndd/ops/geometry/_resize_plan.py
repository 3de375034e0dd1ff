# SPDX-License-Identifier: Apache-2.0
"""Output sizes and source regions of all resizing operators.

All arithmetic is on *columns*: one entry per spatial axis, either a Python number that holds for every sample, or an array with one float64 per
sample, from NumPy or, in a compiled graph, torch. The same lines serve a dense batch (plain Python), a ragged one (NumPy takes a third of torch's
time for so few numbers) and the tracing of a graph, with equal results.
"""

import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch

from ..._core.native.tracing import is_compiling
from ..._core.suggestions import check_choice
from .._columns import in_sample
from ._resize_sizes import PackedSizes, find_sizes, pack_sizes

Column = float | np.ndarray | torch.Tensor
_ARRAYS = (np.ndarray, torch.Tensor)

_PLAIN = frozenset((type(None), bool, int, float, str, tuple))  # arguments that are not tensors

Mode = Literal["default", "stretch", "not_larger", "not_smaller"]
MODES = get_args(Mode)
SizeRounding = Literal["round", "truncate", "ceil"]
SIZE_ROUNDINGS = get_args(SizeRounding)


@dataclass(frozen=True)
class ResizePlan:
    """The target of a resize: an extent per spatial axis, and the source region (start and end, in elements; mirrored where end < start)."""

    extents: Sequence[int | torch.Tensor]  # int64 (N,)
    start: Sequence[Column]
    end: Sequence[Column]
    whole: bool  # the region is known to be the whole sample and need not be passed on
    arguments: tuple[Any, ...] = ()  # what it follows from
    packed: PackedSizes | None = None  # the same in native form, if native code has computed it

    def pack(self) -> PackedSizes | None:
        """Return the arguments in native form; None if native code does not take them."""
        return self.packed or pack_sizes(len(self.extents), *self.arguments)

    def is_kept(self, axis: int, extent: int | torch.Tensor) -> bool:
        """Return whether an axis is known not to change."""
        for a, b in ((self.extents[axis], extent), (self.start[axis], 0), (self.end[axis], extent)):
            if not isinstance(a, _ARRAYS) and not isinstance(b, _ARRAYS):
                if a != b:
                    return False
            elif is_compiling() or not bool(np.all(np.asarray(a) == np.asarray(b))):
                return False
        return True

    def roi(self, rows: int, axes: Sequence[int] | None = None) -> torch.Tensor | None:
        """Return the region in the kernel's form, (rows, 2 * axes): starts, then ends; optionally of some axes only."""
        if self.whole:
            return None
        chosen = range(len(self.start)) if axes is None else axes
        ends = [*(self.start[axis] for axis in chosen), *(self.end[axis] for axis in chosen)]
        if any(isinstance(e, torch.Tensor) for e in ends):
            return torch.stack([e.expand(rows) if isinstance(e, torch.Tensor) else torch.full((rows,), float(e)) for e in ends], 1).to(torch.float32)
        if not any(isinstance(e, np.ndarray) for e in ends):
            return torch.tensor([ends], dtype=torch.float32)
        table = np.empty((rows, len(ends)), np.float32)
        with np.errstate(over="ignore"):  # an end beyond float32 is infinite, as in torch; the kernel limits it
            for column, e in enumerate(ends):
                table[:, column] = e
        return torch.from_numpy(table)


def spatial_axes(layout: str) -> tuple[int, int]:
    """Return the position of the first spatial letter of a layout and the number of spatial axes: "FDHWC" -> (1, 3).

    >>> spatial_axes("HWC"), spatial_axes("FCHW")
    ((0, 2), (2, 2))
    """
    count = sum(letter in "DHW" for letter in layout)
    return layout.index("DHW"[3 - count]), count


def plan_resize(
    op: str,
    extents: Sequence[int | np.ndarray | torch.Tensor],
    *,
    size: object = None,
    resize_x: object = None,
    resize_y: object = None,
    resize_z: object = None,
    resize_shorter: object = None,
    resize_longer: object = None,
    mode: str | None = None,
    max_size: object = None,
    roi_start: object = None,
    roi_end: object = None,
    roi_relative: bool = False,
    subpixel_scale: bool = True,
    sizes: object = None,
    scales: object = None,
    alignment: object = 0.5,
    size_rounding: str = "round",
) -> ResizePlan:
    """Plan the resizing of samples whose spatial extents (depth first) are `extents`.

    Values are numbers, sequences with one number per axis, or tensors (rows, axes), or (rows) for one number for all axes. ``alignment`` is the point
    of the region that stays in place when the size is rounded: 0 its start, 1 its end.

    >>> plan_resize("resize", [480, 640], resize_shorter=256).extents
    [256, 341]
    """
    if mode is not None and not isinstance(mode, str):
        raise TypeError(f"{op}: mode must be a str, got {mode!r}")
    limits = max_size if isinstance(max_size, list | tuple) else (max_size,)
    if not all(limit is None or isinstance(limit, int | float) for limit in limits):
        raise TypeError(f"{op}: max_size must be a number or a sequence of numbers, got {max_size!r}")
    check_choice(op, "size_rounding", size_rounding, SIZE_ROUNDINGS)
    separate = (size, resize_x, resize_y, resize_z, resize_shorter, resize_longer)
    arguments = (*separate, max_size, roi_start, roi_end, sizes, scales, alignment, size_rounding)
    arguments = tuple([tuple(v) if isinstance(v, list) else v for v in arguments])
    if is_compiling():
        plan = _plan(op, tuple(extents), arguments, mode, roi_relative, subpixel_scale)
        return ResizePlan([e.to(torch.int64) if isinstance(e, torch.Tensor) else int(e) for e in plan[0]], *plan[1:])
    # Types in one go: each isinstance() of a generator takes 0.3 us, and there are two dozen.
    plain = _PLAIN.issuperset(map(type, arguments)) or not any(isinstance(v, torch.Tensor) for v in arguments)
    arrays = tuple([e.numpy() if isinstance(e, torch.Tensor) else e for e in extents])
    if plain and np.ndarray not in map(type, arrays):
        return _plain_plan(op, arrays, arguments, mode, roi_relative, subpixel_scale)  # type: ignore[arg-type]
    source = arguments, mode, roi_relative, subpixel_scale
    fixed = _given_extents(op, len(arrays), arguments, mode) if plain else None
    if fixed is not None and all(map(_never_zero, arrays)):
        return ResizePlan(list(fixed), [0.0] * len(arrays), [_real(e) for e in arrays], True, source)
    if not any(isinstance(e, torch.Tensor) for e in arrays):
        found = find_sizes(arrays, arguments, mode, roi_relative, subpixel_scale)
        if found is not None:
            return ResizePlan(*found[:3], False, source, found[3])
    with np.errstate(over="ignore"):  # a size beyond float32 is infinite, as in plain Python
        plan = _plan(op, arrays, arguments, mode, roi_relative, subpixel_scale)
    _check_extents(op, plan[0])
    return ResizePlan([torch.from_numpy(e.astype(np.int64)) if isinstance(e, np.ndarray) else int(e) for e in plan[0]], *plan[1:], source)


@functools.lru_cache(maxsize=1024)  # as below: 60 us for a ragged batch whose caches are cold become 20
def _given_extents(op: str, axes: int, arguments: tuple[object, ...], mode: str | None) -> tuple[int, ...] | None:
    """Return the extents of the output if they are given for all samples, whatever theirs are; None if they follow from the samples'."""
    size, x, y, z, shorter, longer, max_size, roi_start, roi_end, sizes, scales, _, _ = arguments
    if not all(argument is None for argument in (max_size, roi_start, roi_end, sizes, scales, shorter, longer)):
        return None
    wanted, mode = _wanted_size(op, axes, (z, y, x), size, None, None, mode)
    fits = mode in ("default", "stretch") and all(_is_whole(w) and w < 2**31 for w in wanted)
    return tuple(int(w) for w in wanted) if fits else None


def _check_extents(op: str, extents: Sequence[Column]) -> None:
    for extent in extents:
        if not np.all(np.abs(extent) < 2.0**31):  # type: ignore[arg-type]
            raise ValueError(f"{op}: the output would have the extents {extents}: size, resize_x and the like are too large")


def _plan(
    op: str,
    extents: tuple[int | np.ndarray | torch.Tensor, ...],
    arguments: tuple[object, ...],
    mode: str | None,
    roi_relative: bool,
    subpixel_scale: bool,
) -> tuple[Sequence[Column], Sequence[Column], Sequence[Column], bool]:
    """Return the fields of a plan."""
    size, x, y, z, shorter, longer, max_size, roi_start, roi_end, sizes, scales, alignment, size_rounding = arguments
    axes = len(extents)
    if sizes is not None or scales is not None:
        wanted, mode = _wanted_sizes(op, axes, sizes, scales, mode)
    else:
        wanted, mode = _wanted_size(op, axes, (z, y, x), size, shorter, longer, mode)
    limit = None
    if max_size is not None:
        most = max_size[0] if isinstance(max_size, Sequence) and len(max_size) == 1 else max_size
        limit = [_choose(m > 0, m, math.inf) for m in columns(op, "max_size", most, axes)]
    # One of them alone would leave the other end of the region undefined.
    if (roi_start is None) != (roi_end is None):
        raise RuntimeError(f"{op}: roi_start and roi_end must be given together")
    full = [_real(e) for e in extents]
    # The usual case: given whole sizes need no scale.
    if roi_start is None and limit is None and scales is None and mode in ("default", "stretch") and all(_is_whole(w) for w in wanted):
        return [_unless_empty(e, w) for e, w in zip(full, wanted, strict=True)], [0.0] * axes, full, True
    start, end = [0.0] * axes, full
    if roi_start is not None:
        start, end = columns(op, "roi_start", roi_start, axes), columns(op, "roi_end", roi_end, axes)
        if roi_relative:
            start, end = ([v * e for v, e in zip(values, full, strict=True)] for values in (start, end))
        start, end = _at_least_a_millipixel(start, end)
    taken = [_choose(e == 0, 0.0, abs(b - a)) for e, a, b in zip(full, start, end, strict=True)]
    if scales is not None:
        wanted = [single(e * w) for e, w in zip(full, wanted, strict=True)]  # also with a region, in contrast to DALI's documentation
    # In real numbers first: the scale comes from the exact size, and only the extents are rounded.
    real = _filled_in(wanted, taken, mode, limit)
    rounded = [_unless_empty(e, _at_least_one(_round_extents(abs(r), size_rounding))) for e, r in zip(full, real, strict=True)]
    whole = roi_start is None and all(_is_whole(r) for r in real)
    if not whole:
        # A negative size mirrors: the region is read from its end.
        start, end = swap([r < 0 for r in real], start, end)
        if subpixel_scale:
            # Rounding the size would change the scale a little; the region grows or shrinks about this point instead.
            kept = columns(op, "alignment", _broadcast(alignment, axes), axes)
            start, end = _rescale(start, end, [n / _choose(r == 0, 1.0, abs(r)) for n, r in zip(rounded, real, strict=True)], kept)
    return rounded, start, end, whole


def swap(which: Sequence[Any], start: Sequence[Column], end: Sequence[Column]) -> tuple[Sequence[Column], Sequence[Column]]:
    """Return starts and ends of regions, swapped along the axes where the condition holds, which mirrors them."""
    return (
        [_choose(m, b, a) for m, a, b in zip(which, start, end, strict=True)],
        [_choose(m, a, b) for m, a, b in zip(which, start, end, strict=True)],
    )


@functools.lru_cache(maxsize=1024)  # a dense batch has the same plan in every call: 12 us become 2
def _plain_plan(
    op: str, extents: tuple[int, ...], arguments: tuple[object, ...], mode: str | None, roi_relative: bool, subpixel_scale: bool
) -> ResizePlan:
    plan = _plan(op, extents, arguments, mode, roi_relative, subpixel_scale)
    _check_extents(op, plan[0])
    return ResizePlan([int(e) for e in plan[0]], *plan[1:], (arguments, mode, roi_relative, subpixel_scale))


def columns(op: str, argument: str, value: object, axes: int) -> list[Column]:
    """Return one column per axis from a number, a sequence of numbers, or a tensor (rows, axes)."""
    if isinstance(value, torch.Tensor):
        compiling = is_compiling()
        # DALI's arguments are float32; computed in double, 0.1 would not be DALI's 0.1.
        rows = value.to(torch.float32).to(torch.float64)
        rows = rows[:, None].expand(-1, axes) if rows.ndim == 1 else rows.flatten(1)
        parts: list[Column] = list(rows.unbind(1)) if compiling else list(rows.numpy().T)
        finite = compiling or bool(np.isfinite(rows.numpy()).all())
    else:
        try:
            parts = [single(float(v)) for v in value] if isinstance(value, Sequence) and not isinstance(value, str) else [single(float(value))] * axes  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise TypeError(
                f"{op}: {argument} must be a number or a sequence of {axes} numbers, not {value!r}; values for each sample are a Batch: "
                "wrap them in ndd.batch(...)"
            ) from None
        finite = all(-math.inf < p < math.inf for p in parts)  # isfinite() does not take the symbols of graphs with dynamic=True
    if len(parts) != axes:
        raise RuntimeError(f"{op}: {argument} has {len(parts)} elements, but it takes {axes}; values for each sample are a Batch: ndd.batch(...)")
    if not finite:
        where = in_sample(torch.isfinite(value).reshape(len(value), -1).all(1)) if isinstance(value, torch.Tensor) else ""
        raise ValueError(f"{op}: {where}{argument} must be finite")
    return parts


def _wanted_size(
    op: str, axes: int, separate: tuple[object, ...], size: object, shorter: object, longer: object, mode: str | None
) -> tuple[Sequence[Column], str]:
    """Return the given form of the size as columns (0 is missing, negative mirrors), and the mode it implies."""
    ways = {
        "size": size is not None,
        "resize_x, resize_y, resize_z": any(s is not None for s in separate),
        "resize_shorter": shorter is not None,
        "resize_longer": longer is not None,
    }
    forms = [way for way, present in ways.items() if present]
    if len(forms) != 1:
        raise RuntimeError(f"{op}: give exactly one of size; resize_x, resize_y, resize_z; resize_shorter; resize_longer (got {forms or 'none'})")
    if mode is not None:
        check_choice(op, "mode", mode, MODES)
    if shorter is not None or longer is not None:
        if mode is not None:
            raise RuntimeError(f"{op}: mode cannot be combined with {forms[0]}")
        value = shorter if shorter is not None else longer
        return columns(op, forms[0], value, 1) * axes, "not_smaller" if shorter is not None else "not_larger"
    if size is not None:
        return columns(op, "size", size, axes), mode or "default"
    # The innermost axes, outermost first: images have no resize_z.
    names = ("resize_z", "resize_y", "resize_x")[3 - axes :]
    given_axes = [0.0 if v is None else columns(op, n, v, 1)[0] for n, v in zip(names, separate[3 - axes :], strict=True)]
    return given_axes, mode or "default"


def _wanted_sizes(op: str, axes: int, sizes: object, scales: object, mode: str | None) -> tuple[Sequence[Column], str]:
    """Return sizes or scales of any axes in the same form. Scales are returned unchanged."""
    if mode is not None:
        check_choice(op, "mode", mode, MODES)
    if scales is None:
        return columns(op, "sizes", _broadcast(sizes, axes), axes), mode or "default"
    if mode in ("not_larger", "not_smaller"):
        raise RuntimeError(f"{op}: mode={mode!r} cannot be combined with scales")
    return columns(op, "scales", _broadcast(scales, axes), axes), mode or "default"


def _broadcast(value: Any, axes: int) -> Any:
    """Expand a sequence of one number to all axes."""
    if isinstance(value, torch.Tensor) and value.ndim > 1 and value[0:1].numel() == 1:
        return value.flatten()
    return value[0] if isinstance(value, list | tuple) and len(value) == 1 and axes != 1 else value


def _filled_in(wanted: Sequence[Column], extent: Sequence[Column], mode: str, limit: Sequence[Column] | None) -> Sequence[Column]:
    """Return the real-valued size of each axis, negative where mirrored, with missing ones filled in according to `mode`."""
    # An empty extent has no scale, so it counts as missing; numbers avoid a comparison per sample.
    is_given = [w != 0 if _is_number(w) and _never_zero(e) else (w != 0) & (e != 0) for w, e in zip(wanted, extent, strict=True)]
    scale = [_ratio(abs(w), e) for w, e in zip(wanted, extent, strict=True)]
    if mode in ("default", "stretch"):
        other: Column = 1.0
        if mode == "default":  # missing axes take the geometric mean of the other scales
            count: Column = 0.0
            for g, s in zip(is_given, scale, strict=True):
                other, count = other * _choose(g, s, 1.0), count + _choose(g, 1.0, 0.0)
            other = single(other ** (1.0 / _choose(count == 0, 1.0, count)))
        out = [_choose(g, abs(w), single(e * other)) for g, w, e in zip(is_given, wanted, extent, strict=True)]
        if limit is not None:
            out = [_choose(o > most, most, o) for o, most in zip(out, limit, strict=True)]
    else:
        # The neutral element of the minimum or the maximum: it stays if no size is given.
        unset = math.inf if mode == "not_larger" else 0.0
        factor: Column = unset
        for g, s in zip(is_given, scale, strict=True):
            factor = _choose(g & (s < factor if mode == "not_larger" else s > factor), s, factor)
        factor = _choose(factor == unset, 1.0, factor)
        if limit is not None:
            for e, most in zip(extent, limit, strict=True):
                bound = _ratio(most, e)
                factor = _choose((bound < factor) & (e != 0), bound, factor)
        out = [_choose(g & (s == factor), abs(w), single(e * factor)) for g, s, w, e in zip(is_given, scale, wanted, extent, strict=True)]
    nothing = functools.reduce(operator.and_, [w == 0 for w in wanted])  # then neither mode nor limit apply
    return [_choose(nothing, e, _choose(w < 0, -o, o)) for w, o, e in zip(wanted, out, extent, strict=True)]


def _at_least_a_millipixel(start: Sequence[Column], end: Sequence[Column]) -> tuple[Sequence[Column], Sequence[Column]]:
    """Widen empty regions, whose scale would be 0 / 0."""
    tiny = [abs(b - a) < 1e-3 for a, b in zip(start, end, strict=True)]
    middle = [(a + b) / 2 for a, b in zip(start, end, strict=True)]
    return (
        [_choose(t, m - 5e-4, a) for t, m, a in zip(tiny, middle, start, strict=True)],
        [_choose(t, m + 5e-4, b) for t, m, b in zip(tiny, middle, end, strict=True)],
    )


def _rescale(
    start: Sequence[Column], end: Sequence[Column], by: Sequence[Column], alignment: Sequence[Column]
) -> tuple[Sequence[Column], Sequence[Column]]:
    """Scale regions about one of their points, so rounding the output's size does not change the scale."""
    middle = [(1 - k) * a + k * b for a, b, k in zip(start, end, alignment, strict=True)]
    return (
        [m + (a - m) * k for m, a, k in zip(middle, start, by, strict=True)],
        [m + (b - m) * k for m, b, k in zip(middle, end, by, strict=True)],
    )


def _choose(condition: "bool | np.ndarray | torch.Tensor", a: Column, b: Column) -> Column:
    if isinstance(condition, torch.Tensor):
        return torch.where(condition, a, b).to(torch.float64)  # type: ignore[call-overload]
    if isinstance(condition, np.ndarray):
        return np.where(condition, a, b)
    return a if condition else b


def _real(extent: "int | np.ndarray | torch.Tensor") -> Column:
    if isinstance(extent, torch.Tensor):
        return extent.to(torch.float64)
    return extent.astype(np.float64) if isinstance(extent, np.ndarray) else float(extent)


def _never_zero(x: Column) -> bool:
    """Return whether no extent is 0. A compiled graph assumes it, because only then is the size of its outputs known."""
    return bool(x.all()) if isinstance(x, np.ndarray) else isinstance(x, torch.Tensor) or x != 0


def _unless_empty(extent: Column, size: Column) -> Column:
    """Return the size, or 0 for an empty extent. A number stays a number, which a Batch and a graph know."""
    return size if _is_number(size) and _never_zero(extent) else _choose(extent == 0, 0.0, size)


def _is_number(x: Column) -> bool:
    return not isinstance(x, _ARRAYS)


def single(x: Column) -> Column:
    """Round to float32, in which DALI computes sizes: 31.5 and 31.499998 round to different integers."""
    if isinstance(x, torch.Tensor):
        return x.to(torch.float32).to(torch.float64)
    if isinstance(x, np.ndarray):
        return x.astype(np.float32).astype(np.float64)
    high = x * 536870913.0  # 2^29 + 1 keeps 24 of a double's 53 bits
    return high - (high - x) if abs(x) < 1e300 else x


def _ratio(a: Column, b: Column) -> Column:
    return single(a / _choose(b == 0, 1.0, b))


def _round_extents(x: Column, how: object) -> Column:
    """Round a positive number half up, down ("truncate") or up ("ceil")."""
    if how == "ceil":
        return -_round_extents(-x, "truncate")
    x = x if how == "truncate" else x + 0.5
    if isinstance(x, torch.Tensor):
        return x.floor()
    return np.floor(x) if isinstance(x, np.ndarray) else float(math.floor(x))


def _at_least_one(x: Column) -> Column:
    return _choose(x < 1, 1.0, x)


def _is_whole(x: Column) -> bool:
    return _is_number(x) and x > 0 and x == math.floor(x)  # type: ignore[arg-type, return-value]


# --- Kernels ---


def filters_of(op: str, interp_type: Any, min_filter: Any, mag_filter: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the kernels for reduction and enlargement, as int32 rows."""
    reduce = ("interp_type", interp_type) if min_filter is None else ("min_filter", min_filter)
    enlarge = ("interp_type", interp_type) if mag_filter is None else ("mag_filter", mag_filter)
    return _filter_rows(op, *reduce), _filter_rows(op, *enlarge)


def _filter_rows(op: str, argument: str, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        if isinstance(value, str):
            raise _unknown_filter(op, argument, value)
        return (_filter_constant if is_compiling() else _cached_filter)(op, argument, int(value))
    if not is_compiling():
        known = value.to(torch.float64)
        # Written so that NaN is wrong as well.
        wrong = value[~((known >= 0) & (known <= 5))]
        if len(wrong):
            raise _unknown_filter(op, argument, wrong.flatten()[0].item())
    return value


def _filter_constant(op: str, argument: str, number: int) -> torch.Tensor:
    if not 0 <= number <= 5:
        raise _unknown_filter(op, argument, number)
    return torch.tensor([number], dtype=torch.int32)


_cached_filter = functools.cache(_filter_constant)


def _unknown_filter(op: str, argument: str, value: object) -> RuntimeError:
    return RuntimeError(f"{op}: {argument} is not one of the interpolation types 0 to 5 (ndd.types.INTERP_LINEAR, INTERP_CUBIC, ...): {value}")
