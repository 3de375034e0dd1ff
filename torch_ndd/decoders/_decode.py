# SPDX-License-Identifier: Apache-2.0
"""The part that the image decoders share: from files to a batch of pixels whose size is known at the call."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .. import _native
from .._batch import Batch, empty_packed, new_batch
from .._operator import Launch, queue
from . import _jpeg2000, _library

KERNEL = "Tensor? windows, str op, str sources, str output_type, bool adjust_orientation, bool fast_idct"
_read_shapes = _native.define(
    "image_shapes",
    [
        ("Tensor", "input"),
        ("Tensor?", "input_shapes"),
        ("str", "op"),
        ("str", "sources"),
        ("str", "output_type"),
        ("bool", "adjust_orientation"),
        ("Tensor(a!)", "out"),
    ],
)

OUTPUT_TYPES = ("RGB", "BGR", "GRAY", "YCbCr", "ANY_DATA")  # in the order of types.RGB and so on, which are 0 to 4
DTYPES = (
    torch.uint8,
    torch.int8,
    torch.uint16,
    torch.int16,
    torch.uint32,
    torch.int32,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)


def decode(
    op: str,
    files: Any,
    output_type: int,
    dtype: torch.dtype,
    adjust_orientation: bool,
    use_fast_idct: bool,
    windows_of: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Any:
    """Size the output from the headers and return what launches the decoding.

    ``windows_of`` gets heights, widths and channels (N, 3) of the images and returns y, x, height, width (N, 4) of the parts to decode.
    """
    if files._values.device.type != "cpu":
        raise RuntimeError(f"{op}: there is no GPU decoder yet; decode on the CPU and call .gpu() on the result")
    if dtype not in DTYPES:
        names = ", ".join(str(one).removeprefix("torch.") for one in DTYPES)
        raise RuntimeError(f"{op}: dtype must be one of {names}, got {dtype}")
    if output_type not in tuple(range(len(OUTPUT_TYPES))):
        raise RuntimeError(f"{op}: output_type must be one of types.{', types.'.join(OUTPUT_TYPES)}, got {output_type!r}")
    if files.dtype != torch.uint8 or files.ndim != 1:
        raise RuntimeError(f"{op}: encoded images must be uint8 with one dimension, got {files.dtype} with {files.ndim}")
    _library.load()
    options = (_lines(files), OUTPUT_TYPES[int(output_type)], bool(adjust_orientation))
    files, shapes = _image_shapes(op, files, options)
    windows = None
    if windows_of is not None:
        windows = windows_of(shapes)
        shapes = torch.cat([windows[:, 2:], shapes[:, 2:]], 1)
    out = empty_packed(shapes, dtype, files._values.device, "HWC")
    out._sources = files._sources
    return Launch(out, [windows, op, *options, bool(use_fast_idct)], inputs=(files,))


def _lines(files: Batch) -> str:
    """The names of the files, one a line; the kernels name them in errors."""
    return "\n".join(one.replace("\n", " ") for one in files._sources)


def _image_shapes(op: str, files: Batch, options: tuple[str, str, bool]) -> tuple[Batch, torch.Tensor]:
    """The files, of which the JPEG 2000 ones have been decoded to the raw format, and heights, widths, channels (N, 3)."""
    table = torch.empty((files.batch_size, 4), dtype=torch.int64)
    _read_headers(op, files, options, table)
    if torch.compiler.is_compiling():
        return files, table[:, :3].contiguous()
    jpeg2000 = table[:, 3].numpy()
    if jpeg2000.any():
        encoded = [np.asarray(one) for one in files]
        for i in np.flatnonzero(jpeg2000).tolist():
            try:
                encoded[i] = _jpeg2000.decode_to_raw(encoded[i])
            except RuntimeError as error:
                name = f"sample {i} ({files._sources[i]})" if files._sources else f"sample {i}"
                raise RuntimeError(f"{op}: {name}: {error}") from None
        lengths = torch.tensor([[len(one)] for one in encoded], dtype=torch.int64)
        sources = files._sources
        files = new_batch(torch.from_numpy(np.concatenate(encoded)), lengths)
        files._sources = sources
        _read_headers(op, files, options, table)
    return files, table[:, :3].contiguous()


def _read_headers(op: str, files: Batch, options: tuple[str, str, bool], table: torch.Tensor) -> None:
    arguments = (files._values, files._shapes, op, *options, table)
    if torch.compiler.is_compiling():
        _read_shapes(*arguments)
    else:
        queue(_read_shapes, arguments, [], True)
