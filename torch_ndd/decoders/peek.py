# SPDX-License-Identifier: Apache-2.0
"""Sizes of encoded images."""

import numpy as np
import torch

from .. import types
from .._core.native.tracing import is_compiling
from .._core.operators.operator import DeviceLike, T, launch
from .._core.values.batch import Batch, new_batch
from . import _by_python
from ._decode import Options, output_type_name, read_headers
from ._exported import load_codecs
from ._files import check_encoded, decoder, sample_name
from ._scale import BY_PYTHON

_DTYPES = (torch.int32, torch.uint32, torch.int64, torch.uint64, torch.float32, torch.float64)
_ANY_SIZE = 2**62  # no limit: nothing is allocated


@decoder(kernel=None)
def peek_image_shape(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    adjust_orientation: bool = True,
    dtype: torch.dtype = torch.int64,
    image_type: types.DALIImageType = types.RGB,
) -> T:
    """Return the shapes of :func:`decoders.image`'s results from the headers: height, width and channels, (3,).

    Args:
        input: contents of the files, uint8 (length,). A path, a URL or ``bytes`` makes a Tensor, a list of them a Batch. The beginning of a file is
            enough: 33 bytes of a PNG (more if it has EXIF data, which come after these and are not seen), 30 of a WebP (all of it if it has EXIF
            data), a BMP up to the end of its palette, a PNM up to its pixels. The size of a JPEG and of a JPEG 2000 comes after their metadata, so
            that a kilobyte is enough for most, but not with a large color profile or preview; the error then names the number of bytes needed. A
            TIFF can have its size anywhere.
        adjust_orientation: return the shape as displayed, after the EXIF orientation, rather than as stored.
        dtype: dtype of the result, with 32 or 64 bits.
        image_type: ``types.RGB`` and so on; ``ANY_DATA`` returns the number of channels of the file.

    Raises:
        RuntimeError: a file that is not an image or whose header is damaged, or too few bytes; another dtype or image type.

    >>> import io
    >>> import numpy as np
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("L", (4, 2)).save(file, "PNG")
    >>> peek_image_shape(np.frombuffer(file.getvalue(), np.uint8)).torch().tolist()
    [2, 4, 3]
    """
    op, files = "peek_image_shape", input
    assert isinstance(files, Batch)
    if files.buffer.device.type != "cpu":
        raise RuntimeError(f"{op}: it reads headers on the CPU; call .cpu() on the input")
    if dtype not in _DTYPES:
        names = ", ".join(str(allowed).removeprefix("torch.") for allowed in _DTYPES)
        raise RuntimeError(f"{op}: dtype must be one of {names}, got {dtype}")
    check_encoded(op, files, "encoded images")
    files = load_codecs(files, "images")
    shapes, kinds = torch.empty((files.batch_size, 3), dtype=torch.int64), torch.empty(files.batch_size, dtype=torch.int64)
    options = Options(op, output_type_name(op, image_type), bool(adjust_orientation))
    # Pixels may be missing: programs pass the beginning of a file.
    read_headers(files, options, _ANY_SIZE, None, shapes, kinds, complete=False)
    if not is_compiling():
        for i in np.flatnonzero(kinds.numpy() == BY_PYTHON).tolist():
            try:
                height, width, channels = _by_python.shape_of(np.asarray(files.select(i)), adjust_orientation)
            except RuntimeError as error:
                raise RuntimeError(f"{op}: {sample_name(files, i)}: {error}") from None
            channels = {"GRAY": 1, "ANY_DATA": channels}.get(options.output_type, 3)
            shapes[i] = torch.tensor([height, width, channels])
    return launch((), also=(new_batch(shapes.to(dtype)),))
