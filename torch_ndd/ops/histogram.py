# SPDX-License-Identifier: Apache-2.0
"""Equalisation of histograms."""

import torch

from .._batch import Batch
from .._operator import DeviceLike, Hint, Launch, T, operator
from ._channels import channels_of, is_other
from ._outputs import like


@operator(layouts=("HW", "HWC", "CHW", "FHW", "FHWC", "FCHW"), kernel="int leading, bool interleaved")
def equalize(input: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None) -> T:
    """Equalise the histogram of every channel of an image, each frame by itself.

    A level becomes the number of pixels up to it, less those of the darkest level that occurs, scaled to 0 to 255. A channel with one level stays
    as it is.

    Args:
        input: uint8, ``HW``, ``HWC``, ``CHW``, ``FHW``, ``FHWC`` or ``FCHW`` with any number of channels.

    Raises:
        RuntimeError: input of another type than uint8.

    >>> equalize(torch.tensor([[7, 9], [7, 200]], dtype=torch.uint8)).torch()
    tensor([[  0, 128],
            [  0, 255]], dtype=torch.uint8)
    """
    images: Batch = input  # type: ignore[assignment]
    if images.dtype is not torch.uint8:
        raise RuntimeError(f"equalize: the input must be uint8, got {images.dtype}")
    layout = images._layout or ""
    return Launch(like(images), [layout.index("H"), layout.endswith("C")])  # type: ignore[return-value]


_MOST_TILES = 1 << 20  # each has a table of 256 bytes


@operator(layouts=("HWC",), kernel="float clip_limit, bool luma_only, int tiles_x, int tiles_y")
def clahe(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    bins: Hint[int] = 256,
    clip_limit: float,
    luma_only: bool = True,
    tiles_x: int,
    tiles_y: int,
) -> T:
    """Contrast-limited adaptive histogram equalisation.

    The image is divided into tiles and the histogram of each is equalised, after counts above a limit have been spread over all levels. A pixel gets
    what the four tiles with the nearest centres make of it, interpolated linearly.

    Args:
        input: uint8 ``HWC`` with 1 or 3 channels; three are R, G and B.
        bins: accepted for DALI's sake; the histogram always has 256.
        clip_limit: largest count of a level, in units of the mean count; 0 and below do not limit.
        luma_only: equalise the lightness of RGB images in the L*a*b* colour space, instead of R, G and B each by itself.
        tiles_x: number of tiles from left to right. Images whose size is no multiple of the tiles are continued by reflection.
        tiles_y: number of tiles from top to bottom.

    Raises:
        ValueError: input of another type than uint8, another number of channels, less than one tile, or a limit that is no number.

    >>> image = torch.tensor([[10, 10, 30, 30], [10, 20, 30, 40]], dtype=torch.uint8)[..., None]
    >>> clahe(image, tiles_x=1, tiles_y=1, clip_limit=0).torch()[..., 0]
    tensor([[ 96,  96, 223, 223],
            [ 96, 128, 223, 255]], dtype=torch.uint8)
    """
    images: Batch = input  # type: ignore[assignment]
    if images.dtype is not torch.uint8:
        raise ValueError(f"clahe: the input must be uint8, got {images.dtype}")
    for found in channels_of(images):
        if is_other(found, 1, 3):
            raise ValueError(f"clahe: the image must have 1 or 3 channels, got {found}")
    for name, tiles in (("tiles_x", tiles_x), ("tiles_y", tiles_y)):
        if not 1 <= tiles <= _MOST_TILES:
            raise ValueError(f"clahe: {name} must be 1 to {_MOST_TILES}, got {tiles}")
    if tiles_x * tiles_y > _MOST_TILES:
        raise ValueError(f"clahe: tiles_x * tiles_y must be at most {_MOST_TILES}, got {tiles_x * tiles_y}")
    if clip_limit != clip_limit:
        raise ValueError(f"clahe: clip_limit must be a number, got {clip_limit}")
    return Launch(like(images), [clip_limit, luma_only, tiles_x, tiles_y])  # type: ignore[return-value]
