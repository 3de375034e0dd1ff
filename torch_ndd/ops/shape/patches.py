# SPDX-License-Identifier: Apache-2.0
"""Images and videos as sequences of patches, and as tiles."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch

from ..._core.native.tracing import is_compiling
from ..._core.operators.operator import Derivation, DeviceLike, T, launch, operator
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch, as_batch, empty_batch, new_batch
from ..._core.values.collect import fence
from ..._core.values.operand import unwrap
from ..._core.values.tensor import Tensor, as_tensor
from ..._core.work.pending import ALL_SAMPLES
from ..._core.work.sources import select_sources
from .._arguments import as_samples, as_sides, require_positive
from .._columns import Column, extents_of, first_failure, holds, rows, sample_shape

TokenOrder = Literal["CTHW", "HWC"]
PositionOrder = Literal["yx", "xy"]
LAYOUTS = ("HWC", "FHWC", "CHW", "FCHW")
MAX_SIDE = 2**15  # of a patch: products of several stay within 64 bits


@operator(layouts=LAYOUTS, fills=(-2,))
def patchify(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    merge_size: int = 1,
    order: TokenOrder = "CTHW",
    pad: bool = False,
    patch_size: int | Sequence[int],
    temporal: int = 1,
) -> tuple[T, T]:
    """Cut images or videos into patches: one row, a token, for each patch of ``temporal`` frames.

    Tokens are ordered by blocks of ``merge_size x merge_size`` patches, row by row, and row by row within a block. An image fills all ``temporal``
    frames of a token; a video repeats its last frame. :meth:`Batch.packed` joins the tokens of a batch without a copy.

    Args:
        input: images ``HWC`` or ``CHW``, videos ``FHWC`` or ``FCHW``, of any type.
        merge_size: side of a block of patches that a model merges into one token.
        order: of the elements of a token: ``"CTHW"`` (channel, frame, y, x) or ``"HWC"`` (frame, y, x, channel).
        pad: extend the image with zeros below and on the right to whole blocks, instead of raising an error.
        patch_size: side of a patch in pixels, or height and width.
        temporal: frames of a token.

    Returns:
        Tokens (T, D) and the grid, int64 (3,) in host memory: groups of frames, rows and columns of patches.

    Raises:
        RuntimeError: without ``pad``, a side that is not a multiple of ``patch_size * merge_size``, with the sample.
        ValueError: a size below 1, or another ``order``.

    >>> tokens, grid = patchify(torch.arange(16).reshape(4, 4, 1), patch_size=2)
    >>> tokens.torch().tolist(), grid.torch().tolist()
    ([[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]], [1, 2, 2])
    """
    images = input
    assert isinstance(images, Batch)
    height, width = as_sides("patchify", "patch_size", patch_size, MAX_SIDE)
    require_positive("patchify", MAX_SIDE, merge_size=merge_size, temporal=temporal)
    check_choice("patchify", "order", order, get_args(TokenOrder), ValueError)
    patch = _Patch(height, width, merge_size, temporal, pad)
    tokens = empty_batch(images.batch_size, patch.shape_of(images), images.dtype, images.buffer.device)
    arguments = [images.layout or "", height, width, merge_size, temporal, order == "HWC"]
    derivation = Derivation(patch.derive, 0) if images.ragged_shapes is not None and not is_compiling() else None
    return launch(tokens, arguments, also=patch.make_grids(images), also_again=patch.make_grids, derivation=derivation)


class _Patch(NamedTuple):
    """The extents of a token, and how many of them a block has."""

    height: int
    width: int
    merge: int
    temporal: int
    pad: bool

    def grid_of(self, images: Batch) -> list[Column]:
        """Return groups of frames, rows and columns of patches. Raise RuntimeError for a side that is not whole blocks, without ``pad``."""
        extents = _extents_by_letter(images)
        tall, wide = self.height * self.merge, self.width * self.merge
        for side, multiple in (("H", tall), ("W", wide)):
            if not self.pad:
                _require_multiple("patchify", extents, side, multiple, f"patch_size * merge_size = {multiple}", "; pad=True extends it with zeros")
        groups = (extents.get("F", 1) + self.temporal - 1) // self.temporal
        return [groups, (extents["H"] + tall - 1) // tall * self.merge, (extents["W"] + wide - 1) // wide * self.merge]

    def shape_of(self, images: Batch) -> list[Column]:
        """Return the number of tokens and of their elements."""
        groups, grid_rows, grid_columns = self.grid_of(images)
        return [groups * grid_rows * grid_columns, _extents_by_letter(images)["C"] * (self.temporal * self.height * self.width)]

    def derive(self, images: Batch, values: Mapping[str, torch.Tensor]) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Return the shapes of the tokens in a repeated call."""
        return [], rows(self.shape_of(images)).expand(images.batch_size, 2).contiguous()

    def make_grids(self, images: Batch) -> tuple[Batch]:
        """Return the grid of each image."""
        return (new_batch(rows(self.grid_of(images)).expand(images.batch_size, 3).contiguous(), None),)


def _extents_by_letter(images: Batch) -> dict[str, Column]:
    return dict(zip(images.layout or "", extents_of(images), strict=True))


def _require_multiple(op: str, extents: dict[str, Column], side: str, multiple: int, name: str, remedy: str) -> None:
    fits = extents[side] % multiple == 0
    if not holds(fits):
        sample = first_failure(fits)
        (extent,) = sample_shape([extents[side]], sample)
        word = "height" if side == "H" else "width"
        raise RuntimeError(f"{op}: sample {sample}: the {word} of {extent} pixels is not a multiple of {name}{remedy}")


def patch_positions(grid: Any, /, *, merge_size: int = 1, order: PositionOrder = "yx") -> Any:
    """Return the row and the column of every patch, in the order of the tokens of :func:`patchify`.

    Args:
        grid: rows and columns of patches, (2,), or groups of frames, rows and columns, (3,): a Batch, a Tensor or integers (N, 2 or 3).
        merge_size: as for :func:`patchify`.
        order: ``"yx"`` for (row, column), ``"xy"`` for (column, row).

    Returns:
        int64 (T, 2), a ragged Batch for a Batch or an array of grids.

    Raises:
        ValueError: a grid that is not divisible by ``merge_size``, negative or not 2 or 3 integers; another ``order``.

    >>> patch_positions([[2, 2]]).tensors[0].torch().tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    op = "patch_positions"
    require_positive(op, MAX_SIDE, merge_size=merge_size)
    check_choice(op, "order", order, get_args(PositionOrder), ValueError)
    value = unwrap(grid)
    if not isinstance(value, Tensor | Batch):
        value = as_batch(torch.as_tensor(value))
    numbers = value.torch().cpu().reshape(-1, value.shape[0] if isinstance(value, Tensor) else value.torch().shape[-1])
    if numbers.is_floating_point() or numbers.shape[1] not in (2, 3) or bool((numbers < 0).any()):
        raise ValueError(f"{op}: a grid must be 2 or 3 non-negative integers, got {numbers.tolist()!r:.200}")
    if bool((numbers[:, -2:] % merge_size).any()):
        raise ValueError(f"{op}: rows and columns must be multiples of merge_size={merge_size}, got {numbers.tolist()!r:.200}")
    positions = []
    for *groups, height, width in numbers.tolist():
        y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        pair = torch.stack([y, x] if order == "yx" else [x, y], -1)
        blocks = pair.reshape(height // merge_size, merge_size, width // merge_size, merge_size, 2).transpose(1, 2).reshape(-1, 2)
        positions.append(blocks.repeat(groups[0] if groups else 1, 1))
    result = as_batch(positions) if positions else new_batch(torch.empty((0, 0, 2), dtype=torch.int64), None)
    return result.tensors[0] if isinstance(value, Tensor) else result


def tiles(images: Any, /, *, tile: int | Sequence[int]) -> tuple[Batch, torch.Tensor]:
    """Cut images into tiles, row by row, as a batch of tiles.

    Args:
        images: a Batch of images ``HWC`` or ``CHW``, or one image, of any type. Both sides must be multiples of the tile.
        tile: side of a tile in pixels, or height and width.

    Returns:
        The tiles of all images, one after the other, in the layout of the images; and their counts, int64 (N,).

    Raises:
        RuntimeError: a side that is not a multiple of the tile, with the sample.
        ValueError: a side below 1, or data without the axes H and W.

    >>> parts, counts = tiles(torch.arange(8).reshape(2, 4, 1), tile=2)
    >>> parts.shape, counts.tolist(), parts.tensors[1].torch().flatten().tolist()
    ([(2, 2, 1), (2, 2, 1)], [2], [2, 3, 6, 7])
    """
    height, width = as_sides("tiles", "tile", tile, MAX_SIDE)
    batch, _ = as_samples(images, as_tensor)
    layout = batch.layout or "HWC"
    if layout not in ("HWC", "CHW") or batch.ndim != 3:
        raise ValueError(f'tiles: needs images HWC or CHW, got the layout "{batch.layout or ""}" and shape {batch.shape!r:.200}')
    extents = dict(zip(layout, extents_of(batch), strict=True))
    for side, multiple in (("H", height), ("W", width)):
        _require_multiple("tiles", extents, side, multiple, f"the tile's {multiple}", "")
    tokens, grid = patchify(batch, patch_size=[height, width], order="HWC" if layout == "HWC" else "CTHW")  # type: ignore[arg-type]
    counts = grid.torch().prod(1)
    channels = tokens.sample_shapes()[:, 1] // (height * width)
    if len(channels) and bool((channels != channels[0]).any()):
        raise ValueError(f"tiles: all images need the same number of channels, got {channels.tolist()!r:.200}")
    extent = int(channels[0]) if len(channels) else batch.shared_extent(layout.index("C")) or 0
    shape = (height, width, extent) if layout == "HWC" else (extent, height, width)
    parts = tokens.packed().values
    # Tokens become tiles, whose numbers differ from those of the pending work.
    # The number of tiles is given because it does not follow from a buffer without elements.
    result = new_batch(parts.buffer.view(int(counts.sum()), *shape), None, batch.layout, fence(parts, ALL_SAMPLES))
    result.sources = select_sources(batch.sources, np.repeat(np.arange(len(counts)), counts))
    return result, counts
