# SPDX-License-Identifier: Apache-2.0
"""Histogram equalization, and stretching to the whole range."""

from typing import Literal, get_args

import torch

from ..._core.operators.operator import DeviceLike, Hint, T, launch, operator
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch
from .._channels import channels_of, is_other
from .._outputs import like

_LAYOUTS = ("HW", "HWC", "CHW", "FHW", "FHWC", "FCHW")


def _place(images: Batch) -> list[int | bool]:
    """Return the number of dimensions in front of the pixels, and whether channels are interleaved."""
    layout = images.layout or ""
    return [layout.index("H"), layout.endswith("C")]


@operator(layouts=_LAYOUTS)
def autocontrast(input: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None) -> T:
    """Stretch every channel of an image to the whole range of its type, frame by frame: ``out = range * (in - min) / (max - min)``.

    ``range`` is 1 for floating-point types and the largest value of the type for integers, which are truncated. A channel with a single
    value does not change. The results equal those of torchvision's ``autocontrast``.

    Args:
        input: ``HW``, ``HWC``, ``CHW``, ``FHW``, ``FHWC`` or ``FCHW`` with any number of channels, any numeric type.

    >>> autocontrast(torch.tensor([[0.25, 0.375], [0.5, 0.75]])).torch()
    tensor([[0.0000, 0.2500],
            [0.5000, 1.0000]])
    """
    images: Batch = input  # type: ignore[assignment]
    return launch(like(images), _place(images))


Rule = Literal["opencv", "pillow"]
_RULES = get_args(Rule)


@operator(layouts=_LAYOUTS)
def equalize(input: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None, rule: Rule = "opencv") -> T:
    """Equalize the histogram of every channel of an image, frame by frame.

    A level becomes the number of pixels up to it, minus those of the darkest level that occurs, scaled to 0 to 255. A channel with a single level
    does not change.

    Args:
        input: uint8, ``HW``, ``HWC``, ``CHW``, ``FHW``, ``FHWC`` or ``FCHW`` with any number of channels.
        rule: ``"opencv"``, as above; or ``"pillow"``, which is also torchvision's: a level becomes the rounded number of steps that the pixels below
            it fill, where a step is a 255th of all pixels but those of the brightest level that occurs, in whole pixels. If a step has none, the
            channel does not change.

    Raises:
        ValueError: another ``rule``.
        RuntimeError: input of another type than uint8.

    >>> equalize(torch.tensor([[7, 9], [7, 200]], dtype=torch.uint8)).torch()
    tensor([[  0, 128],
            [  0, 255]], dtype=torch.uint8)
    """
    images: Batch = input  # type: ignore[assignment]
    if images.dtype is not torch.uint8:
        raise RuntimeError(f"equalize: the input must be uint8, got {images.dtype}")
    check_choice("equalize", "rule", rule, _RULES, ValueError)
    return launch(like(images), [*_place(images), rule == "pillow"])


_MAX_TILES = 1 << 20  # each has a table of 256 bytes


@operator(layouts=("HWC",))
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
    """Equalize histograms adaptively with limited contrast (CLAHE).

    The image is divided into tiles. The histogram of each is equalized, after counts above a limit were redistributed over all levels. A pixel gets
    the bilinearly interpolated results of the four tiles with the nearest centers.

    Args:
        input: uint8 ``HWC`` with 1 or 3 channels; three are R, G and B.
        bins: ignored; the histogram always has 256 bins.
        clip_limit: largest count of a level, in units of the mean count; 0 and below mean no limit.
        luma_only: equalize the lightness of RGB images in the L*a*b* color space instead of R, G and B separately.
        tiles_x: number of tiles from left to right. Images whose size is not a multiple of the tiles are extended by reflection.
        tiles_y: number of tiles from top to bottom.

    Raises:
        ValueError: input of another type than uint8, another number of channels, less than one tile, or a NaN limit.

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
        if not 1 <= tiles <= _MAX_TILES:
            raise ValueError(f"clahe: {name} must be 1 to {_MAX_TILES}, got {tiles}")
    if tiles_x * tiles_y > _MAX_TILES:
        raise ValueError(f"clahe: tiles_x * tiles_y must be at most {_MAX_TILES}, got {tiles_x * tiles_y}")
    # NaN.
    if clip_limit != clip_limit:
        raise ValueError(f"clahe: clip_limit must be a number, got {clip_limit}")
    return launch(like(images), [clip_limit, luma_only, tiles_x, tiles_y])
