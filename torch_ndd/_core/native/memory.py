# SPDX-License-Identifier: Apache-2.0
"""Memory of buffers: allocation in eager mode and in compiled graphs, the pool, pinned memory, and limits."""

from collections.abc import Sequence

import numpy as np
import torch

from .library import c_function, numbers
from .tracing import is_compiling

CPU = torch.device("cpu")  # compared with it, a device takes a quarter of the time that reading its type takes

_count_elements = c_function("ndd_packed_elements")
_pin_sizes = c_function("ndd_pin_sizes")
_no_memory = c_function("ndd_no_memory")
_max_host_memory = c_function("ndd_most_host_memory")
_pooled = torch.ops.ndd.pooled_memory.default

_PACKED = numbers("samples.Packed")
_EQUAL, _TOO_MANY = _PACKED["equal"], _PACKED["too_many"]
_MAX_BYTES = 1 << 62
_MAX_EXACT = 1 << 53  # below it a double holds every integer

# Each sample takes some 100 bytes and 100 ns in lists of several threads, so this many take seconds for any operation.
MAX_SAMPLES = 1 << 22

POOLED_BYTES = 2 << 20  # a page; csrc/ndd/stream/host_memory.cpp has the measurements
pinned_sizes: set[int] = set()  # size_class of the buffers that torch's pinned memory holds instead of the pool: see upload.py


def check_samples(op: str, batch_size: int) -> None:
    """Raise ValueError for more samples than a batch may have."""
    if batch_size > MAX_SAMPLES:
        raise ValueError(f"{op}: batch_size must be at most {MAX_SAMPLES}, got {batch_size}")


def no_memory(size: int, shape: Sequence[int]) -> MemoryError:
    """Return the error for an output of ``size`` bytes for which there is no memory."""
    return MemoryError(_no_memory(size, f": an output of shape {tuple(shape)}".encode()).decode())


def check_memory(size: int, use: str) -> None:
    """Raise MemoryError for more bytes than this process can have at most."""
    if size > _max_host_memory():
        raise MemoryError(_no_memory(size, f": {use}".encode()).decode())


def volume(shapes: torch.Tensor, item_bytes: int) -> int:
    """Return the number of elements of samples with these shapes. Raise MemoryError if the bytes cannot be counted in 64 bits."""
    rows = shapes.numpy()
    count = float(rows.prod(1, dtype=np.float64).sum())  # int64 would overflow silently
    if count < _MAX_EXACT:
        return int(count)
    if count * item_bytes > _MAX_BYTES:
        raise MemoryError(f"no memory for {len(rows)} samples of shapes up to {tuple(shapes.amax(0).tolist())}")
    return int(rows.prod(1).sum())


def size_class(size: int) -> int:
    """Return the exponent of the power of two to which torch rounds up ``size`` bytes of pinned memory."""
    return (size - 1).bit_length()


def pin_size(size: int, pinned: bool = True) -> None:
    """Use pinned memory, or the pool's, for buffers of about ``size`` bytes from now on."""
    (pinned_sizes.add if pinned else pinned_sizes.discard)(size_class(size))
    _pin_sizes(sum(1 << exponent for exponent in tuple(pinned_sizes)))  # a copy: other threads may change the set


def pin_no_size() -> None:
    """Stop using pinned memory."""
    pinned_sizes.clear()
    _pin_sizes(0)


def empty(shape: tuple[int, ...] | list[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Allocate uninitialized memory; large host buffers come from a pool, or are pinned."""
    if device == CPU and is_compiling():
        return torch.ops.ndd.empty_pooled(shape, dtype)
    return _allocate(shape, dtype, device)


def _allocate(shape: tuple[int, ...] | list[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device == CPU:
        size = dtype.itemsize
        for extent in shape:
            size *= extent
        if size >= POOLED_BYTES:
            if pinned_sizes and (pinned := _allocate_pinned(shape, dtype, size)) is not None:
                return pinned
            try:
                return _pooled(shape, dtype)
            except (RuntimeError, OverflowError, TypeError):  # the latter two if an extent does not fit in 64 bits
                raise no_memory(size, shape) from None
        if size < 0:  # the computation of an extent has overflowed
            raise MemoryError(f"there is no memory for an output of shape {tuple(shape)}")
    return torch.empty(shape, dtype=dtype, device=device)


def _allocate_pinned(shape: tuple[int, ...] | list[int], dtype: torch.dtype, size: int) -> torch.Tensor | None:
    """Return pinned memory if buffers of this size go to a GPU; None if there is none left."""
    if size_class(size) not in pinned_sizes:
        return None
    # Torch's own allocator keeps pinned memory, since pinning takes longer than the copy that it speeds up.
    try:
        return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=True)
    except RuntimeError:
        pin_size(size, False)  # the next copy to a GPU tries again, and counts
        return None


def allocate_samples(shapes: torch.Tensor, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the buffer of a batch with these shapes, int64 (N, ndim), and the shapes; dense and None if they are equal."""
    if is_compiling():
        return torch.ops.ndd.empty_packed(shapes, dtype, device), shapes
    # The kernel that counts the elements takes rows one after the other.
    if not shapes.is_contiguous():
        shapes = shapes.contiguous()
    count, ndim = shapes.shape
    elements = _count_elements(shapes.data_ptr(), count, ndim)
    # Equal shapes make a dense batch, also where the program could not know it before.
    if elements == _EQUAL:
        return empty([count, *shapes.numpy()[0].tolist()], dtype, device), None
    return empty([volume(shapes, dtype.itemsize) if elements == _TOO_MANY else elements], dtype, device), shapes


# --- In compiled graphs, whose operators need an implementation and one for fake tensors. ---

_library = torch.library.Library("ndd", "FRAGMENT")


@torch.library.register_fake("ndd::pooled_memory", lib=_library)
def _(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="cpu")


# The packed buffer of a ragged batch: its size is known at run time only.
_library.define("empty_packed(Tensor shapes, ScalarType dtype, Device device) -> Tensor")


@torch.library.impl("ndd::empty_packed", "CompositeExplicitAutograd", lib=_library)
def _(shapes: torch.Tensor, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return empty([volume(shapes, dtype.itemsize)], dtype, device)


@torch.library.register_fake("ndd::empty_packed", lib=_library)
def _(shapes: torch.Tensor, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    size = torch.library.get_ctx().new_dynamic_size()
    return torch.empty(size, dtype=dtype, device=device)


# A dense batch with one extent, passed as -1, that all samples share but that is known at run time only: the number of channels.
_library.define("empty_equal(SymInt[] shape, Tensor extents, ScalarType dtype, Device device) -> Tensor")


@torch.library.impl("ndd::empty_equal", "CompositeExplicitAutograd", lib=_library)
def _(shape: list[int], extents: torch.Tensor, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    # A batch without samples has no extents at all.
    distinct = set(extents.tolist()) or {0}
    if len(distinct) > 1:
        raise RuntimeError(f"a compiled graph takes samples with equal numbers of channels, got {sorted(distinct)}")
    (extent,) = distinct
    return empty([extent if n < 0 else n for n in shape], dtype, device)


@torch.library.register_fake("ndd::empty_equal", lib=_library)
def _(shape: list[int], extents: torch.Tensor, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    extent = torch.library.get_ctx().new_dynamic_size()
    return torch.empty([extent if isinstance(n, int) and n < 0 else n for n in shape], dtype=dtype, device=device)


# A buffer on the CPU from the pool, as in eager mode: above 32 MB malloc gets fresh pages from the system each time, which takes 17 ms for 64
# float32 images of 224x224 where brightness takes 2.
_library.define("empty_pooled(SymInt[] shape, ScalarType dtype) -> Tensor")


@torch.library.impl("ndd::empty_pooled", "CompositeExplicitAutograd", lib=_library)
def _(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    return _allocate(shape, dtype, CPU)  # not empty(): a compiler may run it, to fold constants


@torch.library.register_fake("ndd::empty_pooled", lib=_library)
def _(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="cpu")
