# SPDX-License-Identifier: Apache-2.0
"""``io.file.read``: files whose paths are data."""

from collections.abc import Sequence

import torch

from .._core import native
from .._core.native.tracing import is_compiling
from .._core.operators.operator import DeviceLike, Hint, T, launch, operator
from .._core.values.batch import Batch, empty_packed
from .._core.values.dispatch import submit
from ._body import fill
from ._limits import UrlLimits, using
from ._urls import Range, fetch, is_url, reason_of

__all__ = ["read"]

_file_sizes = native.kernel("file_sizes", writes=(-1,))


@operator(name="io.file.read", reads_values=True)
def read(
    filepaths: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    dont_use_mmap: Hint[bool] = False,
    url_max_bytes: int | None = None,
    url_max_seconds: float | None = None,
    url_stall_seconds: float | None = None,
    use_o_direct: Hint[bool] = False,
) -> T:
    """Read whole files: their contents, uint8 (length,).

    The sizes are determined at the call; the files are read on demand by the compute threads. URLs (``s3://``, ``https://`` and others, with ``pip
    install torch_ndd[remote]``) are fetched at the call, all of a batch concurrently; not in a compiled graph.

    Args:
        filepaths: the bytes of paths or URLs, uint8 or int8 (length,).
        dont_use_mmap, use_o_direct: ignored.
        url_max_bytes: largest size of one URL in bytes; by default 4 GiB.
        url_max_seconds: time limit for one URL in seconds, over all attempts; by default 600.
        url_stall_seconds: give up on a URL when fewer than 4096 bytes arrive in this time; by default 30 seconds.

    Raises:
        RuntimeError: a file that cannot be read or exceeds a limit; the message names it.
        ValueError: a limit that is not positive.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a"
    >>> _ = path.write_bytes(b"abc")
    >>> bytes(read(torch.tensor(list(bytes(path)), dtype=torch.uint8)).torch().tolist())
    b'abc'
    """
    op, paths = "io.file.read", filepaths
    assert isinstance(paths, Batch)
    if paths.buffer.device.type != "cpu":
        raise RuntimeError(f"{op}: paths must be in host memory; call .cpu() on them")
    if paths.dtype not in (torch.uint8, torch.int8) or paths.ndim != 1:
        raise RuntimeError(f"{op}: Unexpected input data type: paths are uint8 with one dimension, got {paths.dtype} with {paths.ndim}")
    # In a graph the paths are unknown, and URLs are not supported.
    names = () if is_compiling() else tuple(bytes(path.buffer.numpy()).decode(errors="replace") for path in paths)
    limits = UrlLimits.from_arguments(op, url_max_bytes, url_stall_seconds, url_max_seconds)
    if any(map(is_url, names)):
        with using(limits):
            out = _download(op, names)
        out.sources = names
        return launch((), also=(out,))
    # Sizes are read now, because the output is allocated by them; the contents are read by the compute threads.
    sizes = torch.empty((paths.batch_size, 1), dtype=torch.int64)
    if is_compiling():
        _file_sizes(paths.buffer, paths.ragged_shapes, op, sizes)
    else:
        submit(_file_sizes, (paths.buffer, paths.ragged_shapes, op, sizes), [], True)
    out = empty_packed(sizes, torch.uint8, paths.buffer.device)
    if names:
        out.sources = names
    return launch(out, [op])


def _download(op: str, paths: Sequence[str]) -> Batch:
    contents = []
    for k, content in enumerate(fetch([Range(path, 0, -1) for path in paths])):
        if isinstance(content, Exception):
            raise RuntimeError(f'{op}: sample {k}: "{paths[k]}" cannot be read: {reason_of(content).removeprefix(paths[k] + ": ")}')
        contents.append(content)
    out = empty_packed(torch.tensor([[len(content)] for content in contents], dtype=torch.int64), torch.uint8, torch.device("cpu"))
    fill(out.buffer.view(-1).numpy().data, contents)
    return out
