# SPDX-License-Identifier: Apache-2.0
"""``dump_image``."""

from pathlib import Path
from typing import Any, Literal

import torch

from ..._core.operators.operator import DeviceLike, T, operator
from ..._core.process.files import write_whole
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch, new_batch
from ..detection._boxes import on_host


@operator(kernel=None, reads_values=True)
def dump_image(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    input_layout: Literal["HWC"] = "HWC",
    suffix: str = "",
) -> T:
    """Write images to files in the working directory, for inspection, and return them.

    Sample i goes to ``<i>-<suffix>-0.ppm``; the next call with the same suffix overwrites it. The call waits for the images.

    Args:
        input: uint8 ``HWC`` with 1 or 3 channels.
        input_layout: "HWC".
        suffix: part of the file names.

    Returns:
        The input.

    Raises:
        RuntimeError: images of another type or shape, another layout, a file that cannot be written.

    >>> import os, tempfile
    >>> before = os.getcwd()
    >>> os.chdir(tempfile.mkdtemp())
    >>> dump_image(torch.zeros(4, 5, 3, dtype=torch.uint8), suffix="black").shape
    (4, 5, 3)
    >>> os.listdir()
    ['0-black-0.ppm']
    >>> os.chdir(before)
    """
    op = "dump_image"
    images: Batch = input  # type: ignore[assignment]
    for name, value in (("input_layout", input_layout), ("suffix", suffix)):
        if not isinstance(value, str):
            raise TypeError(f"{op}: {name} must be a str, got {value!r}")
    check_choice(op, "input_layout", input_layout, ("HWC",))
    if images.layout not in (None, "HWC"):
        raise RuntimeError(f"{op}: images must be HWC, got {images.layout!r}; transpose them")
    if images.dtype is not torch.uint8 or images.ndim != 3:
        raise RuntimeError(f"{op}: images must be uint8 with three dimensions, got {images.dtype} with {images.ndim}")
    for i, sample in enumerate(on_host(images)):
        height, width, channels = sample.shape
        if channels not in (1, 3):
            raise RuntimeError(f"{op}: images must have 1 or 3 channels, sample {i} has {channels}")
        _write(Path(f"{i}-{suffix}-0.ppm"), height, width, channels, sample.buffer)
    return new_batch(images.buffer, images.ragged_shapes, images.layout, shared_extents=images.shared_extents)  # type: ignore[return-value]


def _write(path: Path, height: int, width: int, channels: int, pixels: Any) -> None:
    """Encode as binary PPM, or PGM for one channel: https://netpbm.sourceforge.net/doc/ppm.html"""
    try:
        write_whole(path, b"P%d\n%d %d\n255\n" % (6 if channels == 3 else 5, width, height) + pixels.contiguous().numpy().tobytes())
    except OSError as error:
        raise RuntimeError(f"dump_image: cannot write {path.absolute()}: {error}") from None
