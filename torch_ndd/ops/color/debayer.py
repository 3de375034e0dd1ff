# SPDX-License-Identifier: Apache-2.0
"""Color images from Bayer mosaics."""

from collections.abc import Sequence
from typing import Any, Literal

import torch

from ..._core import native
from ..._core.operators.operator import DeviceLike, PerSample, T, launch, operator
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch, empty_batch
from .._channels import channels_of, is_other
from .._columns import extents_of, sample_shape

Algorithm = Literal["bilinear_ocv", "edgeaware_ocv", "vng_ocv", "gray_ocv"]
_ALGORITHMS = {f"{name.replace('_', '')}_ocv": number for name, number in native.numbers("debayer.Algorithm").items()}


@operator(layouts=("HW", "HWC", "FHW", "FHWC"))
def debayer(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    algorithm: Algorithm | None = None,
    blue_position: PerSample[Sequence[int]],
) -> T:
    """Interpolate the colors of a Bayer mosaic, in which every pixel has one of red, green and blue.

    Args:
        input: uint8 or uint16, ``HW`` or ``HWC`` with one channel, or sequences ``FHW`` and ``FHWC``, of even height and width.
        algorithm: ``"bilinear_ocv"`` (default), the mean of the neighbors; ``"edgeaware_ocv"``, in which green follows edges; ``"vng_ocv"``, means
            over the smooth ones of eight directions (variable number of gradients; uint8 only); ``"gray_ocv"``, the luma only.
        blue_position: row and column, 0 or 1, of the blue pixel in the 2x2 tile that starts in the second row and column of the image, OpenCV's
            naming of mosaics: ``(0, 0)`` is BG, ``(0, 1)`` GB, ``(1, 0)`` GR and ``(1, 1)`` RG. One per sample or per frame.

    Returns:
        ``HWC`` or ``FHWC`` with the channels R, G and B, or one gray channel, of the input's type. At the border, bilinear, edge-aware and gray
        results repeat their inner neighbors; they are 0 if the image has fewer than four rows or columns.

    Raises:
        RuntimeError: another type, several channels, an odd size, an unknown algorithm or position.

    >>> mosaic = torch.full((4, 4), 10, dtype=torch.uint8)
    >>> mosaic[::2, ::2] = 90  # red
    >>> debayer(mosaic, blue_position=(0, 0)).torch()[1, 1]
    tensor([90, 10, 10], dtype=torch.uint8)
    """
    images: Batch = input  # type: ignore[assignment]
    if algorithm is not None and not isinstance(algorithm, str):
        raise TypeError(f"debayer: algorithm must be a str, got {algorithm!r}")
    name = algorithm or "bilinear_ocv"
    if name == "default_npp":
        raise RuntimeError("debayer: algorithm 'default_npp' is NPP's own; use 'bilinear_ocv', on the GPU too")
    check_choice("debayer", "algorithm", name, _ALGORITHMS)
    if images.dtype not in (torch.uint8, torch.uint16):
        raise RuntimeError(f"debayer: the input must be uint8 or uint16, got {images.dtype}")
    if name == "vng_ocv" and images.dtype is not torch.uint8:
        raise RuntimeError(f"debayer: algorithm 'vng_ocv' takes uint8, got {images.dtype}")
    position: Any = blue_position
    if position.shape[-1] != 2:
        raise RuntimeError(f"debayer: blue_position must be two numbers, a row and a column, got {position.shape[-1]}")
    layout = images.layout or ""
    first = int(layout.startswith("F"))
    if layout.endswith("C") and any(is_other(found, 1) for found in channels_of(images)):
        raise RuntimeError(f"debayer: the input must have one channel, got {channels_of(images)}; the layout of sequences is FHW")
    extents = extents_of(images)[: first + 2]
    # The mosaic consists of squares of 2 x 2 pixels.
    if any(not isinstance(extent, torch.Tensor) and extent % 2 for extent in extents[first:]):
        raise RuntimeError(f"debayer: height and width must be even, got {sample_shape(extents[first:], 0)}")
    channels = 1 if name == "gray_ocv" else 3
    out = empty_batch(images.batch_size, [*extents, channels], images.dtype, images.buffer.device, "FHWC"[1 - first :])
    return launch(out, [position, _ALGORITHMS[name], first])
