# SPDX-License-Identifier: Apache-2.0
"""Decompressing bytes to arrays."""

import ctypes
import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch

from .._core.context.pools import get_num_threads
from .._core.native.tracing import is_compiling
from .._core.operators.arguments import VaryingShape
from .._core.operators.operator import DeviceLike, ShapeArg, T, launch
from .._core.optional import import_optional
from .._core.process.workers import Workers
from .._core.values.batch import Batch, empty_packed
from .._core.values.tensor import check_layout
from . import _nvcomp
from ._files import check_encoded, decoder, sample_name, sample_numbers

# Decompresses into a known number of bytes or raises ValueError.
_Inflate = Callable[[memoryview, int], bytes]

# Handing a chunk to another thread takes 20 us, in which LZ4 decompresses 40 kB.
_MIN_BYTES_FOR_THREADS = 1 << 18


class _Chunk(NamedTuple):
    """A compressed chunk of a sample and its position in the output."""

    sample: int
    number: int
    begin: int
    length: int
    target: int


Algorithm = Literal["LZ4", "Deflate", "Zlib", "Gzip", "Zstd"]  # in any case


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

    It runs at the call. Data on a GPU is decompressed there by nvCOMP (``pip install torch_ndd[gpu]``), except for "Zlib" and
    "Zstd" with a checksum; without nvCOMP, after a warning, it is copied to the host and back. What nvCOMP rejects, the CPU decompresses or reports.

    Args:
        input: compressed bytes, uint8 (length,).
        algorithm: "LZ4" (blocks without a frame), "Deflate", "Zlib", "Gzip" or "Zstd" (frames).
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

    On the CPU, LZ4 needs the package lz4 (``pip install torch_ndd[lz4]``) and Zstd needs pyarrow (``pip install torch_ndd[parquet]``).

    >>> import zlib
    >>> import numpy as np
    >>> frames = [zlib.compress(bytes([i, i, i, i])) for i in range(3)]
    >>> sizes = [len(frame) for frame in frames]
    >>> decoded = inflate(np.frombuffer(b"".join(frames), np.uint8), algorithm="Zlib", chunk_sizes=sizes, shape=[2, 2], layout="HW")
    >>> decoded.layout, decoded.torch()[2].tolist()
    ('FHW', [[2, 2], [2, 2]])
    """
    op, files = "decoders.inflate", input
    assert isinstance(files, Batch)
    if is_compiling():
        raise TypeError(f"{op} cannot be part of a compiled graph: it runs in Python")
    _check_algorithm(op, algorithm)
    check_encoded(op, files, "compressed data")
    if shape is None:
        raise RuntimeError(f"{op}: the argument 'shape' of a decompressed chunk is needed")
    target = files.buffer.device
    nvcomp = _nvcomp_for(target, algorithm)
    if nvcomp is None:
        _find_inflate(op, algorithm)
        files = files.cpu() if target.type != "cpu" else files  # the libraries decompress host memory
    count = files.batch_size
    extents = [sample_numbers(shape, i) or [] for i in range(count)]
    if any(extent < 0 for row in extents for extent in row):
        raise RuntimeError(f"{op}: shape must not be negative, got {extents}")
    parts = [_chunk_ranges(op, files, i, sample_numbers(chunk_offsets, i), sample_numbers(chunk_sizes, i)) for i in range(count)]
    chunked = chunk_offsets is not None or chunk_sizes is not None
    shapes = [[len(part), *row] if chunked else row for part, row in zip(parts, extents, strict=True)]
    letters = (sequence_axis_name if chunked and layout else "") + layout
    ndim = len(shapes[0]) if shapes else max(1, len(letters))
    device = torch.device("cpu") if nvcomp is None else target
    out = empty_packed(torch.tensor(shapes, dtype=torch.int64).reshape(count, ndim), dtype, device, check_layout(op, letters or None, ndim))
    out.sources = files.sources
    sizes = [int(np.prod(row, dtype=np.int64)) * dtype.itemsize for row in extents]
    chunks: list[_Chunk] = []
    at = 0
    for i, part in enumerate(parts):
        for number, (begin, length) in enumerate(part):
            chunks.append(_Chunk(i, number, begin, length, at))
            at += sizes[i]
    raw = out.buffer.reshape(-1).view(torch.uint8)

    def inflate_on_cpu(chunk: _Chunk, compressed: memoryview) -> np.ndarray:
        size, inflate_chunk = sizes[chunk.sample], _find_inflate(op, algorithm)
        try:
            data = inflate_chunk(compressed, size)
        except Exception as error:  # each library has its own exceptions
            reason = f"the data are damaged ({error})"
        else:
            reason = "" if len(data) == size else f"it has {len(data)} bytes, but shape and dtype give {size}"
            if not reason:
                return np.frombuffer(data, np.uint8)
        number = f", chunk {chunk.number}" if chunked else ""
        raise RuntimeError(f"{op}: {sample_name(files, chunk.sample)}{number}: {reason}")

    if nvcomp is not None:
        tensors = [file.torch() for file in files]  # type: ignore[union-attr]
        parts_on_gpu = [_nvcomp.Chunk(tensors[chunk.sample][chunk.begin : chunk.begin + chunk.length], sizes[chunk.sample]) for chunk in chunks]
        for i in _nvcomp.decompress(nvcomp, str(algorithm).lower(), parts_on_gpu, raw, _current_stream(target)):
            data = inflate_on_cpu(chunks[i], parts_on_gpu[i].data.cpu().numpy().data)
            raw[chunks[i].target : chunks[i].target + len(data)] = torch.from_numpy(data.copy()).to(target)
        return launch((), also=(out,))
    views = [memoryview(np.asarray(file)) for file in files]  # type: ignore[arg-type]
    bytes_out = raw.numpy()

    def fill(chunk: _Chunk) -> None:
        data = inflate_on_cpu(chunk, views[chunk.sample][chunk.begin : chunk.begin + chunk.length])
        bytes_out[chunk.target : chunk.target + len(data)] = data

    threads = get_num_threads()
    if len(chunks) > 1 and threads > 1 and at > _MIN_BYTES_FOR_THREADS:
        with Workers(threads, "decoders.inflate") as pool:
            list(pool.map(fill, chunks))
    else:
        for chunk in chunks:
            fill(chunk)
    return launch((), also=(out.to_device(target),))


def _nvcomp_for(device: torch.device, algorithm: Any) -> ctypes.CDLL | None:
    """Return nvCOMP if it decompresses such data on this device."""
    return _nvcomp.find_library() if device.type == "cuda" and str(algorithm).lower() in _nvcomp.ALGORITHMS else None


def _current_stream(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


def _chunk_ranges(op: str, files: Batch, i: int, offsets: list[int] | None, sizes: list[int] | None) -> list[tuple[int, int]]:
    """Return the offsets and sizes of a sample's chunks."""
    total = files.shape[i][0]
    if offsets is None and sizes is None:
        return [(0, total)]
    if sizes is not None:
        # Without offsets the chunks follow one another.
        begins = np.cumsum([0, *sizes[:-1]]).tolist()[: len(sizes)] if offsets is None else offsets
        lengths = sizes
    else:
        begins = offsets or []
        # Without sizes each chunk reaches up to the next.
        lengths = [end - begin for begin, end in zip(begins, [*begins[1:], total], strict=True)] if begins else []
    if len(begins) != len(lengths):
        raise RuntimeError(f"{op}: {sample_name(files, i)}: {len(begins)} chunk_offsets but {len(lengths)} chunk_sizes")
    for number, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
        if begin < 0 or length < 0 or begin + length > total:
            where = f"[{begin}, {begin + length})"
            raise RuntimeError(f"{op}: {sample_name(files, i)}: chunk {number} is bytes {where} of a sample of {total} (chunk_offsets, chunk_sizes)")
    return list(zip(begins, lengths, strict=True))


def _check_algorithm(op: str, algorithm: Any) -> None:
    if str(algorithm).lower() not in ("lz4", "zstd", *_WINDOW_BITS):
        raise ValueError(f"{op}: algorithm must be one of {', '.join(get_args(Algorithm))}, got {algorithm!r}")


def _find_inflate(op: str, algorithm: Any) -> _Inflate:
    """Return the CPU's decompression. Raise RuntimeError if its package is not installed."""
    name = str(algorithm).lower()
    if name == "zstd":
        return _find_zstd(op)
    if name != "lz4":
        return functools.partial(_zlib, _WINDOW_BITS[name])
    block = import_optional("lz4.block", f"{op}: the package lz4 is not installed", "lz4")
    return lambda data, size: block.decompress(data, uncompressed_size=size)


def _find_zstd(op: str) -> _Inflate:
    # Not the package zstandard, which allocates whatever size a frame claims to have.
    codec = import_optional("pyarrow", f"{op}: the package pyarrow is not installed", "parquet").Codec("zstd")

    def inflate_frames(data: memoryview, size: int) -> bytes:
        try:
            return codec.decompress(data, size).to_pybytes()
        except OSError as error:
            raise ValueError(f"{error}; shape and dtype give {size} bytes") from None

    return inflate_frames


_WINDOW_BITS = {"deflate": -15, "zlib": 15, "gzip": 31}


def inflate_gzip(content: bytes, max_bytes: int) -> bytes:
    """Decompress a gzip file of one or several members to at most ``max_bytes`` + 1 bytes. Raise ValueError if it is damaged."""
    parts: list[bytes] = []
    size = 0
    while content and size <= max_bytes:
        decoder = zlib.decompressobj(_WINDOW_BITS["gzip"])
        parts.append(decoder.decompress(content, max_bytes + 1 - size))
        size += len(parts[-1])
        if not decoder.eof and size <= max_bytes:
            raise ValueError("they end too early")
        content = decoder.unused_data.lstrip(b"\0")  # files may be padded with zeros
    return b"".join(parts)


def _zlib(window_bits: int, data: memoryview, size: int) -> bytes:
    decoder = zlib.decompressobj(window_bits)
    inflated = decoder.decompress(data, size + 1)  # a bound on the output, whatever the data contain
    if not decoder.eof and len(inflated) <= size:
        raise ValueError("they end too early")
    return inflated
