# SPDX-License-Identifier: Apache-2.0
"""Decompressing bytes to arrays."""

import functools
import importlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch

from .._core.context.pools import get_num_threads
from .._core.operators.arguments import NO_VALUE, VaryingShape
from .._core.operators.operator import DeviceLike, ShapeArg, T, launch
from .._core.process.workers import Workers
from .._core.values.batch import Batch, empty_packed
from .._core.values.tensor import check_layout
from ._decode import sample_name
from ._files import decoder

# Decompresses into a known number of bytes or raises ValueError.
_Inflate = Callable[[memoryview, int], bytes]

# Handing a chunk to another thread takes 20 us, in which LZ4 decompresses 40 kB.
_WORTH_THREADS = 1 << 18


class _Chunk(NamedTuple):
    """A compressed chunk of a sample and its position in the output."""

    sample: int
    number: int
    begin: int
    length: int
    target: int


Algorithm = Literal["LZ4", "Deflate", "Zlib", "Gzip"]  # in any case


@decoder(name="decoders.inflate", kernel=None)
def inflate(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    algorithm: Algorithm = "LZ4",
    check_output_size: bool = False,
    chunk_offsets: VaryingShape[Sequence[int]] | None = None,
    chunk_sizes: VaryingShape[Sequence[int]] | None = None,
    dtype: torch.dtype = torch.uint8,
    layout: str = "",
    sequence_axis_name: str = "F",
    shape: ShapeArg[Sequence[int]] | None = None,
) -> T:
    """Decompress bytes: one compressed chunk to an array of ``shape``, or several chunks to one array with a new first axis.

    It runs at the call, on the CPU; data on a GPU is copied to the host and back.

    Args:
        input: compressed bytes, uint8 (length,).
        algorithm: "LZ4" (blocks without a frame), "Deflate", "Zlib" or "Gzip".
        check_output_size: ignored; the size is always checked.
        chunk_offsets: offsets of a sample's chunks in bytes. Without ``chunk_sizes`` each ends where the next one begins, the last one with the
            sample.
        chunk_sizes: sizes of the chunks in bytes. Without ``chunk_offsets`` they are contiguous.
        dtype: dtype of the decompressed elements.
        layout: layout of a decompressed chunk.
        sequence_axis_name: letter to prepend to the layout for the axis of chunks.
        shape: shape of a decompressed chunk; required.

    Raises:
        RuntimeError: no shape, chunks outside the sample, data that is damaged or does not have the expected size.
        ValueError: an unknown algorithm, a layout that does not fit.

    LZ4 needs the package lz4: ``pip install torch_ndd[lz4]``.

    >>> import zlib
    >>> import numpy as np
    >>> frames = [zlib.compress(bytes([i, i, i, i])) for i in range(3)]
    >>> sizes = [len(frame) for frame in frames]
    >>> made = inflate(np.frombuffer(b"".join(frames), np.uint8), algorithm="Zlib", chunk_sizes=sizes, shape=[2, 2], layout="HW")
    >>> made.layout, made.torch()[2].tolist()
    ('FHW', [[2, 2], [2, 2]])
    """
    op, files = "decoders.inflate", input
    assert isinstance(files, Batch)
    if torch.compiler.is_compiling():
        raise TypeError(f"{op} cannot be part of a compiled graph: it runs in Python")
    inflate_chunk = _inflater(op, algorithm)
    if files.dtype != torch.uint8 or files.ndim != 1:
        raise RuntimeError(f"{op}: compressed data must be uint8 with one dimension, got {files.dtype} with {files.ndim}")
    if shape is None:
        raise RuntimeError(f"{op}: the argument 'shape' of a decompressed chunk is needed")
    target = files.buffer.device
    files = files.cpu() if target.type != "cpu" else files
    count = files.batch_size
    extents = [_of_sample(shape, i) or [] for i in range(count)]
    if any(extent < 0 for row in extents for extent in row):
        raise RuntimeError(f"{op}: shape must not be negative, got {extents}")
    parts = [_parts(op, files, i, _of_sample(chunk_offsets, i), _of_sample(chunk_sizes, i)) for i in range(count)]
    chunked = chunk_offsets is not None or chunk_sizes is not None
    shapes = [[len(part), *row] if chunked else row for part, row in zip(parts, extents, strict=True)]
    ndim = len(shapes[0]) if shapes else 1
    letters = (sequence_axis_name if chunked and layout else "") + layout
    out = empty_packed(
        torch.tensor(shapes, dtype=torch.int64).reshape(count, ndim), dtype, torch.device("cpu"), check_layout(op, letters or None, ndim)
    )
    out.sources = files.sources
    sizes = [int(np.prod(row, dtype=np.int64)) * dtype.itemsize for row in extents]
    chunks, at = [], 0
    for i, part in enumerate(parts):
        for number, (begin, length) in enumerate(part):
            chunks.append(_Chunk(i, number, begin, length, at))
            at += sizes[i]
    raw = out.buffer.reshape(-1).view(torch.uint8).numpy()
    views = [memoryview(np.asarray(one)) for one in files]  # type: ignore[arg-type]

    def fill(chunk: _Chunk) -> None:
        size = sizes[chunk.sample]
        try:
            data = inflate_chunk(views[chunk.sample][chunk.begin : chunk.begin + chunk.length], size)
        except Exception as error:  # each library has its own exceptions
            reason = f"the data are damaged ({error})"
        else:
            reason = "" if len(data) == size else f"it has {len(data)} bytes, but shape and dtype say {size}"
            if not reason:
                raw[chunk.target : chunk.target + size] = np.frombuffer(data, np.uint8)
        if reason:
            number = f", chunk {chunk.number}" if chunked else ""
            raise RuntimeError(f"{op}: {sample_name(files, chunk.sample)}{number}: {reason}")

    threads = get_num_threads()
    if len(chunks) > 1 and threads > 1 and at > _WORTH_THREADS:
        with Workers(threads, "decoders.inflate") as pool:
            list(pool.map(fill, chunks))
    else:
        for chunk in chunks:
            fill(chunk)
    return launch((), also=(out.to_device(target),))


def _of_sample(value: Any, i: int) -> list[int] | None:
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        value = [v for v in value[i if len(value) > 1 else 0].reshape(-1).tolist() if v != NO_VALUE]
    return [int(v) for v in (value if isinstance(value, Sequence) else [value])]


def _parts(op: str, files: Batch, i: int, offsets: list[int] | None, sizes: list[int] | None) -> list[tuple[int, int]]:
    """Return the offsets and sizes of a sample's chunks."""
    total = files.shape[i][0]
    if offsets is None and sizes is None:
        return [(0, total)]
    if sizes is not None:
        begins = np.cumsum([0, *sizes[:-1]]).tolist()[: len(sizes)] if offsets is None else offsets
        lengths = sizes
    else:
        begins = offsets or []
        lengths = [end - begin for begin, end in zip(begins, [*begins[1:], total], strict=True)] if begins else []
    if len(begins) != len(lengths):
        raise RuntimeError(f"{op}: {sample_name(files, i)}: {len(begins)} chunk_offsets but {len(lengths)} chunk_sizes")
    for number, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
        if begin < 0 or length < 0 or begin + length > total:
            where = f"[{begin}, {begin + length})"
            raise RuntimeError(f"{op}: {sample_name(files, i)}: chunk {number} is bytes {where} of a sample of {total} (chunk_offsets, chunk_sizes)")
    return list(zip(begins, lengths, strict=True))


def _inflater(op: str, algorithm: Any) -> _Inflate:
    name = str(algorithm).lower()
    if name == "lz4":
        try:
            block = importlib.import_module("lz4.block")
        except ImportError:
            raise RuntimeError(f"{op}: the package lz4 is not installed: pip install torch_ndd[lz4]") from None
        return lambda data, size: block.decompress(data, uncompressed_size=size)
    if name in _WINDOW_BITS:
        return functools.partial(_zlib, _WINDOW_BITS[name])
    raise ValueError(f"{op}: algorithm must be one of {', '.join(get_args(Algorithm))}, got {algorithm!r}")


_WINDOW_BITS = {"deflate": -15, "zlib": 15, "gzip": 31}


def inflated(content: bytes, most: int) -> bytes:
    """Decompress a gzip file of one or several members to at most one byte more than ``most``. Raise ValueError if it is damaged."""
    made: list[bytes] = []
    size = 0
    while content and size <= most:
        decoder = zlib.decompressobj(_WINDOW_BITS["gzip"])
        made.append(decoder.decompress(content, most + 1 - size))
        size += len(made[-1])
        if not decoder.eof and size <= most:
            raise ValueError("they end too early")
        content = decoder.unused_data.lstrip(b"\0")  # files may be padded with zeros
    return b"".join(made)


def _zlib(window_bits: int, data: memoryview, size: int) -> bytes:
    decoder = zlib.decompressobj(window_bits)
    made = decoder.decompress(data, size + 1)  # at most that much, whatever the data promises
    if not decoder.eof and len(made) <= size:
        raise ValueError("they end too early")
    return made
