# SPDX-License-Identifier: Apache-2.0
"""Decoding .npy files."""

import torch

from .._core import native
from .._core.native.tracing import is_compiling
from .._core.operators.operator import DeviceLike, T, launch
from .._core.values.batch import Batch, empty_packed
from .._core.values.dispatch import submit
from ._files import check_encoded, decoder

_shapes = native.kernel("npy_shapes", writes=(-1,))
_MAX_DIMENSIONS = 32


@decoder(name="decoders.numpy")
def numpy(
    data: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    dtype: torch.dtype | None = None,
) -> T:
    """Decode arrays: bytes of .npy files to the arrays that ``numpy.save`` wrote.

    Types and shapes come from the headers at the call; the elements are copied on demand. The result is in C order and native byte order.
    As with ``numpy.load``, anything after the first array is ignored.

    Args:
        data: contents of the files, uint8 (length,); all with the same number of dimensions and, without ``dtype``, of the same type. A path, a URL
            or ``bytes`` makes a Tensor, a list of them a Batch.
        dtype: dtype of the result, by default the file's; converted like :func:`cast`.

    Raises:
        RuntimeError: a file that is not an .npy file, is damaged, or holds structures, text, objects or complex numbers; the message names the sample
            and the file. Files of different types or numbers of dimensions.

    >>> import io
    >>> import numpy as np
    >>> file = io.BytesIO()
    >>> np.save(file, np.array([[1.5, 2.5], [-3.0, 300.0]]))
    >>> numpy(np.frombuffer(file.getvalue(), np.uint8), dtype=torch.uint8).torch().tolist()
    [[2, 3], [0, 255]]
    """
    op, files = "decoders.numpy", data
    assert isinstance(files, Batch)
    if is_compiling():
        raise TypeError(f"{op} cannot be part of a compiled graph: the type and the number of dimensions of its result depend on the data")
    if files.buffer.device.type != "cpu":
        raise RuntimeError(f"{op}: arrays are decoded on the CPU; call .cpu() on the input")
    check_encoded(op, files, "encoded arrays")
    # Type, number of dimensions and extents.
    table = torch.empty((files.batch_size, 2 + _MAX_DIMENSIONS), dtype=torch.int64)
    submit(_shapes, (files.buffer, files.ragged_shapes, op, table), [], True, files.sources)
    kinds, dimensions = (sorted(set(column)) for column in table[:, :2].T.tolist())
    if len(dimensions) > 1:
        raise RuntimeError(f"{op}: All samples must have the same number of dimensions, got {dimensions}")
    if dtype is None and len(kinds) > 1:
        names = [str(native.DTYPES[kind]).removeprefix("torch.") for kind in kinds]
        raise RuntimeError(f"{op}: All samples must have the same data type, got {', '.join(names)}; dtype= converts them")
    ndim = dimensions[0] if dimensions else 0
    out = empty_packed(table[:, 2 : 2 + ndim].contiguous(), dtype or native.DTYPES[kinds[0] if kinds else 0], files.buffer.device)
    out.sources = files.sources
    return launch(out, [op])
