# SPDX-License-Identifier: Apache-2.0
"""Decompression on a GPU by nvCOMP, loaded at run time, through its C interface (nvcomp/lz4.h, deflate.h, gzip.h and zstd.h of release 5).

The library is trusted as little as a codec: it is told the size of every output, chunks that it does not fill exactly count as failed, and the caller
gives those to the CPU's library, which finds what is wrong with them.
"""

import ctypes
import functools
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from . import _gpu_engines, _library

FILE, FOLDERS, PACKAGE = "libnvcomp.so.5", ("libnvcomp/lib64", "nvcomp"), "nvidia-libnvcomp-cu13"
VERSIONS = ((5, 0), (6, 0))  # the interface changes with the major version

# Algorithms of decoders.inflate. Not Zlib, whose checksum nvCOMP does not verify.
ALGORITHMS = {"lz4": "LZ4", "deflate": "Deflate", "gzip": "Gzip", "zstd": "Zstd"}

# nvCOMP's limits, of a compressed and of a decompressed chunk.
_MAX_CHUNK_BYTES = {"zstd": (1 << 31) - 1}
_MAX_OTHER_CHUNK_BYTES = (1 << 32) - 1
# Of a chunk in the library's input. nvCOMP's own functions tell what it needs: 4 for Deflate, otherwise 1, and 1 for all outputs.
_ALIGNMENT = 8
# The fifth byte of a Zstandard frame describes it (RFC 8878, 3.1.1.1.1).
_ZSTD_DESCRIPTOR, _ZSTD_HAS_CHECKSUM = 4, 4
_SUCCESS = 0
_CUDA_BACKEND = 2  # not the decompression engine, which needs memory that the driver has registered


class _Options(ctypes.Structure):
    """The options of decompression: the first member is the backend, and zero means the default for the others."""

    _fields_ = (("backend", ctypes.c_int), ("others", ctypes.c_char * 60))


class _Properties(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("cuda_version", ctypes.c_uint32))


class Chunk(NamedTuple):
    """A compressed chunk in GPU memory, and the size of what it decompresses to."""

    data: torch.Tensor  # uint8, dense
    size: int


def version_of(library: ctypes.CDLL) -> tuple[int, ...]:
    """Return the major and minor version of nvCOMP. Raise WrongLibraryError if the library does not tell."""
    properties = _Properties()
    try:
        status = library.nvcompGetProperties(ctypes.byref(properties))
    except AttributeError:
        raise _gpu_engines.WrongLibraryError(f"{FILE} has no function nvcompGetProperties: it is not nvCOMP") from None
    if status != _SUCCESS:
        raise _gpu_engines.WrongLibraryError(f"{FILE} does not tell its version")
    return properties.version // 1000, properties.version % 1000 // 100


def open_library() -> ctypes.CDLL:
    """Load nvCOMP. Raise MissingLibraryError, or WrongLibraryError for another version or missing functions."""
    library = _gpu_engines.load_library(_library.folder().parent, FILE, FOLDERS, PACKAGE)
    _gpu_engines.check_version(FILE, version_of(library), VERSIONS, PACKAGE)
    for algorithm in ALGORITHMS.values():
        for function in ("DecompressGetTempSizeAsync", "DecompressAsync"):
            if not hasattr(library, f"nvcompBatched{algorithm}{function}"):
                raise _gpu_engines.WrongLibraryError(f"{FILE} has no function nvcompBatched{algorithm}{function}")
    return library


@functools.cache
def find_library() -> ctypes.CDLL | None:
    """Return nvCOMP, or None after one warning."""
    try:
        return open_library()
    except RuntimeError as error:
        warnings.warn(f"decoders.inflate: the CPU decompresses data of a GPU: {error}", RuntimeWarning, stacklevel=2)
        return None


def decompress(library: ctypes.CDLL, algorithm: str, chunks: Sequence[Chunk], out: torch.Tensor, stream: int) -> list[int]:
    """Decompress chunks one after another into the bytes of ``out``, which have their total size, and wait for the result.

    Return the numbers of the chunks that failed: those that are empty, too large or have a checksum that nvCOMP does not verify, and those that it
    did not decompress to exactly their size.

    Raises:
        ValueError: memory that the library must not be given: it takes addresses only.
    """
    _check_memory(chunks, out)
    most = _MAX_CHUNK_BYTES.get(algorithm, _MAX_OTHER_CHUNK_BYTES)
    tried = [i for i, chunk in enumerate(chunks) if 0 < len(chunk.data) <= most and 0 < chunk.size <= most]
    if algorithm == "zstd":
        tried = _without_checksums(chunks, tried)
    # Nothing to decompress to: the CPU checks these data.
    failed = sorted(set(range(len(chunks))).difference(tried))
    if not tried:
        return failed
    targets = out.data_ptr() + np.cumsum([0, *(chunk.size for chunk in chunks)])[:-1]
    sizes = np.array([chunks[i].size for i in tried], np.uint64)
    packed, offsets = _align([chunks[i].data for i in tried])
    lengths = np.array([len(chunks[i].data) for i in tried], np.uint64)
    table = torch.from_numpy(np.stack([packed.data_ptr() + offsets, lengths, sizes, targets[tried].astype(np.uint64)]).view(np.int64)).to(out.device)
    # Neither a status nor a size that a library could leave as it was means success.
    statuses, found = torch.full((len(tried),), -1, dtype=torch.int32, device=out.device), torch.full_like(table[0], -1)
    name = f"nvcompBatched{ALGORITHMS[algorithm]}"
    options, temporary_bytes = _Options(_CUDA_BACKEND, b""), ctypes.c_size_t()
    count, largest, total = len(tried), int(sizes.max()), int(sizes.sum())
    status = _function(library, f"{name}DecompressGetTempSizeAsync", "nnorn")(count, largest, options, ctypes.byref(temporary_bytes), total)
    if status != _SUCCESS:
        _warn_of_status(status)
        return list(range(len(chunks)))
    temporary = torch.empty(temporary_bytes.value, dtype=torch.uint8, device=out.device)
    status = _function(library, f"{name}DecompressAsync", "ppppnpnpopp")(
        table[0].data_ptr(),
        table[1].data_ptr(),
        table[2].data_ptr(),
        found.data_ptr(),
        count,
        temporary.data_ptr(),
        temporary_bytes.value,
        table[3].data_ptr(),
        options,
        statuses.data_ptr(),
        stream,
    )
    if status != _SUCCESS:
        _warn_of_status(status)
        return list(range(len(chunks)))
    good = (statuses == _SUCCESS).cpu().numpy() & (found.cpu().numpy().view(np.uint64) == sizes)  # waits for the stream
    return sorted([*failed, *(i for i, fine in zip(tried, good.tolist(), strict=True) if not fine)])


def _without_checksums(chunks: Sequence[Chunk], numbers: Sequence[int]) -> list[int]:
    """Return the numbers of those Zstandard frames that have no checksum, which nvCOMP does not promise to verify."""
    numbers = [i for i in numbers if len(chunks[i].data) > _ZSTD_DESCRIPTOR]
    if not numbers:
        return []
    descriptors = torch.stack([chunks[i].data[_ZSTD_DESCRIPTOR] for i in numbers]).cpu().tolist()  # waits for the stream
    return [i for i, descriptor in zip(numbers, descriptors, strict=True) if not descriptor & _ZSTD_HAS_CHECKSUM]


def _check_memory(chunks: Sequence[Chunk], out: torch.Tensor) -> None:
    """Raise ValueError unless chunks and output are bytes without gaps on one device, and the output has the size of all results."""
    for tensor in (out, *(chunk.data for chunk in chunks)):
        if tensor.dtype is not torch.uint8 or tensor.ndim != 1 or not tensor.is_contiguous() or tensor.device != out.device:
            raise ValueError(f"nvCOMP needs dense bytes on {out.device}, got {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}")
    total = sum(chunk.size for chunk in chunks)
    if total != len(out) or any(chunk.size < 0 for chunk in chunks):
        raise ValueError(f"the chunks decompress to {total} bytes, the output has {len(out)}")


@functools.cache
def _warn_of_status(status: int) -> None:
    """Report, once, that nvCOMP rejects whole calls."""
    warnings.warn(f"decoders.inflate: the CPU decompresses data of a GPU: nvCOMP fails with status {status}", RuntimeWarning, stacklevel=2)


def _align(parts: Sequence[torch.Tensor]) -> tuple[torch.Tensor, np.ndarray]:
    """Return the parts joined, each at a multiple of the alignment, and their offsets."""
    padding = torch.zeros(_ALIGNMENT, dtype=torch.uint8, device=parts[0].device)
    pieces, offsets, at = [], [], 0
    for part in parts:
        offsets.append(at)
        gap = -len(part) % _ALIGNMENT
        pieces += [part, padding[:gap]]
        at += len(part) + gap
    return torch.cat(pieces), np.array(offsets, np.uint64)


def _function(library: ctypes.CDLL, name: str, parameters: str) -> Any:
    """Return a function of the library: its parameters are sizes (n), pointers (p), options (o) and references to a size (r)."""
    types: dict[str, Any] = {"n": ctypes.c_size_t, "p": ctypes.c_void_p, "o": _Options, "r": ctypes.POINTER(ctypes.c_size_t)}
    function = getattr(library, name)
    function.argtypes, function.restype = [types[letter] for letter in parameters], ctypes.c_int
    return function
