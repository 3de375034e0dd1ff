# SPDX-License-Identifier: Apache-2.0
"""Sizes of images by the rules of vision-language models, from heights and widths alone."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Literal, get_args

import numpy as np
import torch

from ..._core import native
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch, as_batch, new_batch
from ..._core.values.dispatch import run
from ..._core.values.operand import unwrap
from ..._core.values.tensor import Tensor, new_tensor
from .._arguments import as_samples, as_sides, require_positive

SideRounding = Literal["down", "half_up"]
MAX_TILES = 4096  # of a canvas: all grids are tried for each image

_budget = native.kernel("size_budget", writes=(-1,))
_patches = native.kernel("size_patches", writes=(-1,))
_fit = native.kernel("size_fit", writes=(-1,))
_canvas = native.kernel("size_canvas", writes=(-1,))


def budget(
    extents: Any,
    /,
    *,
    multiple_of: int,
    min_pixels: int = 0,
    max_pixels: int | None = None,
    frames: Any = None,
    temporal: int = 2,
    fill: bool = False,
    max_aspect: float = 200,
) -> Any:
    """Round both sides to multiples such that the area stays within a budget, as Qwen2-VL and its successors do.

    Sides are rounded to the nearest multiple. If the area is then too large, both are divided by ``sqrt(area / max_pixels)`` and rounded down; if it
    is too small, they are multiplied likewise and rounded up.

    Args:
        extents: images, the result of :func:`peek_image_shape`, or integers (N, 2) with heights and widths.
        multiple_of: divisor of both sides in pixels: the patch size times the merge size.
        min_pixels, max_pixels: bounds of the area; with ``frames``, of the area times the number of frames.
        frames: number of frames of each video, one for all or one per sample, rounded to a multiple of ``temporal``. Videos with a side below
            ``multiple_of`` are enlarged first.
        temporal: frames that share a token.
        fill: take the largest multiples within ``max_pixels`` instead, as Gemma 4 does: small images are enlarged.
        max_aspect: largest ratio of the sides.

    Returns:
        int64 (N, 2) as a Batch, heights and widths, for ``resize(size=)``; (2,) as a Tensor for one image.

    Raises:
        ValueError: a side many times the other, with the sample; a bound or a multiple below 1; ``fill`` without ``max_pixels``.

    >>> budget([[480, 640]], multiple_of=28, min_pixels=3136, max_pixels=100_000).torch().tolist()
    [[252, 364]]
    """
    op = "sizes.budget"
    require_positive(op, multiple_of=multiple_of, temporal=temporal)
    if not isinstance(min_pixels, Integral) or min_pixels < 0:
        raise ValueError(f"{op}: min_pixels must be a non-negative integer, got {min_pixels!r}")
    if not isinstance(max_aspect, Real) or not max_aspect >= 1:
        raise ValueError(f"{op}: max_aspect must be a number of at least 1, got {max_aspect!r}")
    if max_pixels is not None:
        require_positive(op, max_pixels=max_pixels)
        if max_pixels < min_pixels:
            raise ValueError(f"{op}: max_pixels={max_pixels} is less than min_pixels={min_pixels}")
    elif fill:
        raise ValueError(f"{op}: fill=True needs max_pixels")
    table, single = extents_table(op, extents)
    counts = None if frames is None else _integers(op, "frames", frames, len(table))
    out = torch.empty_like(table)
    # -1 means no limit in the kernels.
    most = -1 if max_pixels is None else int(max_pixels)
    run(_budget, (table, counts, int(multiple_of), int(min_pixels), most, int(temporal), bool(fill), float(max_aspect), out), [], out)
    return _result(out, single)


def patches(extents: Any, /, *, patch_size: int | Sequence[int], max_patches: int, max_ratio: float | None = None) -> Any:
    """Scale images to as many whole patches as fit in a sequence, as SigLIP 2 and NaFlex do.

    The scale is found by bisection; both sides are rounded up to whole patches.

    Args:
        extents: images, the result of :func:`peek_image_shape`, or integers (N, 2) with heights and widths.
        patch_size: side of a patch in pixels, or height and width.
        max_patches: largest number of patches of an image.
        max_ratio: largest scale; by default small images are enlarged up to the sequence length.

    Returns:
        int64 (N, 2) as a Batch, heights and widths, for ``resize(size=)``; (2,) as a Tensor for one image.

    Raises:
        ValueError: a number below 1, or an image that fits at no scale.

    >>> patches([[480, 640]], patch_size=16, max_patches=256).torch().tolist()
    [[224, 288]]
    """
    op = "sizes.patches"
    height, width = as_sides(op, "patch_size", patch_size)
    require_positive(op, max_patches=max_patches)
    if max_ratio is not None and not (isinstance(max_ratio, Real) and max_ratio > 0):
        raise ValueError(f"{op}: max_ratio must be a positive number, got {max_ratio!r}")
    table, single = extents_table(op, extents)
    out = torch.empty_like(table)
    run(_patches, (table, height, width, int(max_patches), -1.0 if max_ratio is None else float(max_ratio), out), [], out)
    return _result(out, single)


def fit(
    extents: Any,
    /,
    *,
    shortest: int | None = None,
    longest: int | None = None,
    box: Sequence[int] | None = None,
    enlarge: bool = True,
    rounding: SideRounding = "down",
    multiple_of: int = 1,
) -> Any:
    """Scale images to a shorter side, a longer side or into a box, keeping the aspect ratio.

    Args:
        extents: images, the result of :func:`peek_image_shape`, or integers (N, 2) with heights and widths.
        shortest: the shorter side in pixels. With ``longest`` it is reduced where the longer side would exceed that (DETR).
        longest: the longer side in pixels.
        box: height and width that must contain the image, instead of ``shortest`` and ``longest``.
        enlarge: whether smaller images are scaled too.
        rounding: how the sides that follow from the scale are rounded.
        multiple_of: finally, both sides are rounded up to a multiple.

    Returns:
        int64 (N, 2) as a Batch, heights and widths, for ``resize(size=)``; (2,) as a Tensor for one image.

    Raises:
        ValueError: a number below 1, neither of ``shortest``, ``longest`` and ``box``, or ``box`` with one of the others.

    >>> fit([[480, 640]], shortest=800, longest=1000).torch().tolist()
    [[750, 1000]]
    """
    op = "sizes.fit"
    if (box is None) == (shortest is None and longest is None):
        raise ValueError(f"{op}: give shortest, longest or both, or box")
    check_choice(op, "rounding", rounding, get_args(SideRounding), ValueError)
    height, width = (-1, -1) if box is None else as_sides(op, "box", box)
    require_positive(op, multiple_of=multiple_of, **{name: n for name, n in (("shortest", shortest), ("longest", longest)) if n is not None})
    table, single = extents_table(op, extents)
    out = torch.empty_like(table)
    limits = (-1 if shortest is None else int(shortest), -1 if longest is None else int(longest))
    run(_fit, (table, *limits, height, width, bool(enlarge), rounding == "half_up", int(multiple_of), out), [], out)
    return _result(out, single)


def canvas(
    extents: Any,
    /,
    *,
    tile: int | Sequence[int],
    canvases: Sequence[Sequence[int]] | None = None,
    min_tiles: int = 1,
    max_tiles: int | None = None,
) -> tuple[Any, Any]:
    """Choose the canvas of tiles on which a model sees an image.

    With ``canvases`` (LLaVA-NeXT): the canvas on which the image, scaled to fit, keeps most of its pixels; of equal ones that with the least waste,
    then the first. With ``max_tiles`` (InternVL): the grid whose aspect ratio is nearest to the image's; of equal ones the larger, unless it has more
    than twice the pixels of the image.

    Args:
        extents: images, the result of :func:`peek_image_shape`, or integers (N, 2) with heights and widths.
        tile: side of a tile in pixels, or height and width.
        canvases: heights and widths in pixels, multiples of the tile.
        min_tiles, max_tiles: smallest and largest number of tiles, instead of ``canvases``.

    Returns:
        Rows and columns of tiles, and the size of the picture on the canvas: each int64 (N, 2) as a Batch, or (2,) as a Tensor for one image. With
        ``max_tiles`` the picture fills the canvas.

    Raises:
        ValueError: no canvases, one that is not a multiple of the tile, numbers below 1, both or neither of ``canvases`` and ``max_tiles``.

    >>> grid, inner = canvas([[480, 640]], tile=336, canvases=[[336, 672], [672, 336], [672, 672]])
    >>> grid.torch().tolist(), inner.torch().tolist()
    ([[2, 2]], [[504, 672]])
    """
    op = "sizes.canvas"
    height, width = as_sides(op, "tile", tile)
    if (canvases is None) == (max_tiles is None):
        raise ValueError(f"{op}: give either canvases or max_tiles")
    choices = None
    if canvases is not None:
        choices = torch.tensor([as_sides(op, "canvases", sides) for sides in canvases], dtype=torch.int64, device="cpu")
        if not len(choices):
            raise ValueError(f"{op}: canvases is empty")
        for sides in choices.tolist():
            if sides[0] % height or sides[1] % width:
                raise ValueError(f"{op}: the canvas {sides[0]} x {sides[1]} does not consist of tiles of {height} x {width}")
    else:
        assert max_tiles is not None
        require_positive(op, min_tiles=min_tiles, max_tiles=max_tiles)
        if not min_tiles <= max_tiles <= MAX_TILES:
            raise ValueError(f"{op}: min_tiles={min_tiles} and max_tiles={max_tiles} must be a range of at most {MAX_TILES} tiles")
    table, single = extents_table(op, extents)
    # Rows and columns of tiles, then the size of the picture on the canvas.
    out = torch.empty((len(table), 4), dtype=torch.int64, device="cpu")
    run(_canvas, (table, choices, height, width, int(min_tiles), int(max_tiles or 0), out), [], out)
    return _result(out[:, :2].contiguous(), single), _result(out[:, 2:].contiguous(), single)


def extents_table(op: str, extents: Any) -> tuple[torch.Tensor, bool]:
    """Return heights and widths as int64 (N, 2) in host memory, and whether they are those of one sample."""
    # Either numbers, or images whose sizes are meant: integers of one dimension are numbers.
    samples, single = as_samples(extents, lambda value: as_batch(np.asarray(value) if isinstance(value, list | tuple) else value))
    if samples.ndim == 1 and not samples.dtype.is_floating_point:
        numbers = samples.torch().cpu()
        if numbers.shape[1] not in (2, 3):
            raise ValueError(f"{op}: extents must be heights and widths (N, 2), or shapes (N, 3), got {tuple(numbers.shape)}")
        return numbers[:, :2].to(torch.int64).contiguous(), single
    height, width = image_axes(op, samples)
    return samples.sample_shapes()[:, [height, width]].contiguous(), single


def image_axes(op: str, samples: Batch) -> tuple[int, int]:
    """Return the axes of height and width; of samples without a layout, those of ``HW``, ``HWC`` or ``FHWC``."""
    layout = samples.layout or {2: "HW", 3: "HWC", 4: "FHWC"}.get(samples.ndim, "")
    if "H" not in layout or "W" not in layout:
        raise ValueError(f'{op}: needs images with the axes H and W, got the layout "{layout}" and shape {samples.shape!r:.200}')
    return layout.index("H"), layout.index("W")


def _result(sizes: torch.Tensor, single: bool) -> Any:
    return new_tensor(sizes[0]) if single else new_batch(sizes, None)


def _integers(op: str, name: str, value: Any, count: int) -> torch.Tensor:
    """Return an argument as int64 (1) or (count)."""
    value = unwrap(value)
    try:
        numbers = value.torch() if isinstance(value, Tensor | Batch) else torch.as_tensor(value, device="cpu")
    except (TypeError, ValueError):  # of a text, or of lists of several lengths
        numbers = torch.empty(0, dtype=torch.float32, device="cpu")
    numbers = numbers.cpu().reshape(-1)
    if numbers.is_floating_point() or len(numbers) not in (1, count):
        raise ValueError(f"{op}: {name} must be an integer, or one for each of the {count} samples, got {value!r:.200}")
    return numbers.to(torch.int64).contiguous()
