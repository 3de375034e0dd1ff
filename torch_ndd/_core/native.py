# SPDX-License-Identifier: Apache-2.0
"""The native library: loading it, and the definition of its operators from the C++ signatures of their kernels."""

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

CPU = torch.device("cpu")  # compared with it, a device takes a quarter of the time that it takes to tell its type

# TORCH_NDD_LIBRARY names another build of the library: with a sanitizer, or emulating a GPU.
PATH = Path(os.environ.get("TORCH_NDD_LIBRARY") or Path(__file__).parents[1] / "_C.so").absolute()
if not PATH.exists():
    raise ImportError(f"torch_ndd: the native library {PATH} is missing; install the package with: pip install .")
torch.ops.load_library(str(PATH))

# Short functions keep the GIL (releasing it costs more than they do); functions that may wait release it.
_quick = ctypes.PyDLL(str(PATH))
_slow = ctypes.CDLL(str(PATH))

_POINTER, _INT64 = ctypes.c_void_p, ctypes.c_int64


def _function(library: Any, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function


if _missing := _function(_quick, "ndd_missing_instructions", ctypes.c_char_p)():
    raise ImportError(
        f"torch_ndd: {PATH} was compiled for a CPU with {_missing.decode()}, which this one lacks; compile it again with: "
        "pip install . (for every CPU), or in a development build: cmake build/dev && ninja -C build/dev"
    )

begin = _function(_quick, "ndd_begin", None, ctypes.c_int, _POINTER, _INT64)
depend = _function(_quick, "ndd_depend", None, _POINTER, _INT64)
end = _function(_quick, "ndd_end", ctypes.c_size_t)
external = _function(_quick, "ndd_external", None, ctypes.c_char_p, _INT64)
external_done = _function(_quick, "ndd_external_done", None, _POINTER, _INT64, _INT64, ctypes.c_int, ctypes.c_char_p, _INT64)
done = _function(_quick, "ndd_done", ctypes.c_int, _POINTER)
fused = _function(_quick, "ndd_fused", ctypes.c_uint32, _POINTER)
identity = _function(_quick, "ndd_id", ctypes.c_uint64, _POINTER)
error = _function(_quick, "ndd_error", ctypes.c_char_p, _POINTER)
error_origin = _function(_quick, "ndd_error_origin", ctypes.c_uint64, _POINTER)
release = _function(_quick, "ndd_release", None, _POINTER)
_plan = _function(_quick, "ndd_plan", None, _POINTER, _INT64, _POINTER, _INT64)
_plan_made = _function(_quick, "ndd_plan_made", _POINTER, _POINTER)
_plan_release = _function(_quick, "ndd_plan_release", None, _POINTER)
own = _function(_quick, "ndd_own", ctypes.py_object, _POINTER, _POINTER, ctypes.c_int)
_function(_quick, "ndd_capsules", None, _POINTER, _POINTER)(ctypes.pythonapi.PyCapsule_New, ctypes.pythonapi.PyCapsule_GetPointer)
_packed = _function(_quick, "ndd_packed_elements", _INT64, _POINTER, _INT64, _INT64)
philox = _function(_quick, "ndd_philox", None, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, _INT64, _INT64, _POINTER)
open_files_make = _function(_quick, "ndd_open_files_make", _POINTER)
open_files_release = _function(_quick, "ndd_open_files_release", None, _POINTER)
ranges_parts = _function(_quick, "ndd_ranges_parts", None, _POINTER, _POINTER, _POINTER)
_RANGES = (_POINTER, ctypes.c_char_p, ctypes.c_char_p, _POINTER, _POINTER, _POINTER, _POINTER, _INT64)
ranges_start = _function(_slow, "ndd_ranges_start", _POINTER, *_RANGES, _INT64)
image_records_start = _function(_slow, "ndd_image_records_start", _POINTER, *_RANGES)
examples_start = _function(
    _slow, "ndd_examples_start", _POINTER, *_RANGES, ctypes.c_char_p, _POINTER, ctypes.c_char_p, _POINTER, _POINTER, _POINTER, _POINTER, _INT64,
    ctypes.c_int,
)  # fmt: skip
npy_headers_make = _function(_quick, "ndd_npy_headers_make", _POINTER)
npy_headers_release = _function(_quick, "ndd_npy_headers_release", None, _POINTER)
_LIMIT = (_POINTER, _INT64, _INT64)
npy_start = _function(
    _slow, "ndd_npy_start", _POINTER, _POINTER, ctypes.c_char_p, ctypes.c_char_p, _POINTER, _POINTER, _INT64, *_LIMIT, *_LIMIT, _POINTER, _POINTER,
    _INT64, _INT64, ctypes.c_double,
)  # fmt: skip
npy_shapes = _function(_quick, "ndd_npy_shapes", _INT64, _POINTER, _POINTER, _POINTER)
record_bytes = _function(_quick, "ndd_record_bytes", None, _POINTER, _INT64, _POINTER)
scan = _function(_slow, "ndd_scan", _POINTER, ctypes.c_int, ctypes.c_char_p)
scan_size = _function(_quick, "ndd_scan_size", _INT64, _POINTER)
scan_error = _function(_quick, "ndd_scan_error", ctypes.c_char_p, _POINTER)
scan_reason = _function(_quick, "ndd_scan_reason", ctypes.c_char_p, _POINTER)
scan_damaged = _function(_quick, "ndd_scan_damaged", _INT64, _POINTER)
scan_ranges = _function(_quick, "ndd_scan_ranges", None, _POINTER, _POINTER, _POINTER)
scan_names = _function(_quick, "ndd_scan_names", None, _POINTER, _POINTER, _POINTER)
scan_release = _function(_quick, "ndd_scan_release", None, _POINTER)
read_wait = _function(_slow, "ndd_read_wait", _INT64, _POINTER)
read_failure = _function(_quick, "ndd_read_failure", ctypes.c_char_p, _POINTER, _INT64, _POINTER)
read_release = _function(_quick, "ndd_read_release", None, _POINTER)
masked_crc32c = _function(_slow, "ndd_masked_crc32c", ctypes.c_uint32, ctypes.c_char_p, _INT64)
encode_jpeg = _function(_slow, "ndd_encode_jpeg", _INT64, _POINTER, _INT64, _INT64, ctypes.c_int, ctypes.c_int, ctypes.c_int, _POINTER, _INT64)
coco_parse = _function(_slow, "ndd_coco_parse", _POINTER, ctypes.c_char_p, _INT64, _INT64)
coco_error_kind = _function(_quick, "ndd_coco_error_kind", _INT64, _POINTER)
coco_error = _function(_quick, "ndd_coco_error", ctypes.c_char_p, _POINTER)
coco_column = _function(_slow, "ndd_coco_column", _INT64, _POINTER, _INT64, _POINTER)
gather = _function(_slow, "ndd_gather", None, _POINTER, _INT64, _POINTER, _POINTER, _INT64, _POINTER)
cache_make = _function(_slow, "ndd_cache_make", _POINTER, _INT64, ctypes.c_char_p, ctypes.c_int, _INT64, _INT64, ctypes.c_char_p)
cache_release = _function(_quick, "ndd_cache_release", None, _POINTER)
cache_number = _function(_quick, "ndd_cache_number", _INT64, _POINTER)
cache_counts = _function(_slow, "ndd_cache_counts", None, _INT64, _POINTER)
cache_clear = _function(_slow, "ndd_cache_clear", None, _INT64)
cache_trouble = _function(_slow, "ndd_cache_trouble", ctypes.c_char_p, _INT64)
cache_text = _function(_slow, "ndd_cache_text", ctypes.c_char_p)
cache_totals = _function(_quick, "ndd_cache_totals", None, _POINTER)
coco_release = _function(_slow, "ndd_coco_release", None, _POINTER)
shuffle = _function(_slow, "ndd_shuffle", None, _POINTER, _INT64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)
wait = _function(_slow, "ndd_wait", ctypes.c_int, _POINTER)
build_info = _function(_quick, "ndd_build_info", ctypes.c_char_p)
pool_make = _function(_quick, "ndd_pool_make", _POINTER, ctypes.c_int)
pool_release = _function(_quick, "ndd_pool_release", None, _POINTER)
pool_enter = _function(_quick, "ndd_pool_enter", None, _POINTER)
pool_set_default = _function(_quick, "ndd_pool_set_default", None, _POINTER)
pool_most_running = _function(_quick, "ndd_pool_most_running", ctypes.c_int, _POINTER)
worked = _function(_quick, "ndd_worked", ctypes.c_char_p)
spans = _function(_quick, "ndd_spans", ctypes.c_char_p)
_pin_sizes = _function(_quick, "ndd_pin_sizes", None, ctypes.c_uint64)
release_idle_memory = _function(_slow, "ndd_release_idle_memory", ctypes.c_uint64)
stop = _function(_slow, "ndd_stop", None)
_no_memory = _function(_quick, "ndd_no_memory", ctypes.c_char_p, ctypes.c_double, ctypes.c_char_p)
_file_kind = _function(_quick, "ndd_file_kind", ctypes.c_char_p, ctypes.c_char_p, _INT64)
_most_host_memory = _function(_quick, "ndd_most_host_memory", ctypes.c_double)
# The number of threads, and the number wanted, when the system first refused one; 0 if it has not.
refused_threads = ctypes.c_uint64.from_address(_function(_quick, "ndd_refused_threads", _POINTER)())


def _address(function: Any) -> int:
    return ctypes.cast(function, _POINTER).value or 0


OF_CALL, OF_FILES, OF_READ, OF_HEADERS, OF_POOL, OF_CACHE, OF_PLAN, OF_DESCRIPTOR = map(
    _address, (release, open_files_release, read_release, npy_headers_release, pool_release, cache_release, _plan_release, _quick.ndd_close_file)
)
"""Releases the handles of :func:`owned`."""


def owned(handle: int, release: int, only_here: bool = False) -> Any:
    """Return an object that releases a handle when it is destroyed, in C code: a ``__del__`` in Python would swallow a KeyboardInterrupt.

    Args:
        handle: The native library's handle.
        release: Its kind.
        only_here: Do not release it in a process forked from this one.
    """
    return own(handle, release, only_here)


PLAN_OUTPUT = -2
"""The place of the output in :func:`planned`."""


def planned(kernel: Any, arguments: Sequence[Any], places: Sequence[int], any_size: Sequence[int], other: int | None) -> int | None:
    """Return the handle of a plan for ``ndd::again``, which repeats a call of a CPU kernel; None for a kernel that takes a list of tensors.

    Args:
        kernel: Is not run.
        arguments: Those of one call.
        places: Pairs of an argument and the number of the given tensor that it is, or ``PLAN_OUTPUT``.
        any_size: For each given tensor, whether it may have any size.
        other: The handle of a plan for other shapes, which is tried as well.
    """
    try:
        _plan((_INT64 * len(places))(*places), len(places) // 2, (_INT64 * len(any_size))(*any_size), len(any_size))
        kernel(*arguments)
    finally:
        handle = _plan_made(other)
    return handle


def _recorded() -> dict[tuple[str, str], str]:
    lines = _function(_quick, "ndd_kernels", ctypes.c_char_p)().decode().splitlines()
    return {(op, backend): types for op, backend, types in (line.split(" ") for line in lines)}


KERNELS = _recorded()  # (operator, "CPU" or "CUDA") -> C++ parameter types, as schema types
_library = torch.library.Library("ndd", "FRAGMENT")
_defined: dict[str, str] = {}  # schemas of operators, by name


def find_kernels() -> list[str]:
    """Add the kernels of libraries that were loaded since. Return those that were refused, because there are others of their names."""
    KERNELS.update(_recorded())
    return _function(_quick, "ndd_refused_kernels", ctypes.c_char_p)().decode().splitlines()


def kernel(name: str, writes: Sequence[int] = (-2,)) -> Any:
    """Return ``torch.ops.ndd.<name>``, with the parameters of the C++ function compiled as its kernel.

    Args:
        name: Name of the operator.
        writes: Parameters that the kernel fills; by default one output with its shapes, ``Tensor out, Tensor? out_shapes``.

    Raises:
        ImportError: The library has no such kernel, or its CPU and CUDA versions have different parameters.
    """
    types = parameters(name)
    for letter, position in enumerate(writes):
        if not types[position].startswith("Tensor"):
            raise ImportError(
                f"torch_ndd: parameter {position} of the kernel of ndd::{name} is no tensor that it could fill, but a {types[position]}"
            )
        types[position] = types[position].replace("Tensor", f"Tensor({chr(97 + letter)}!)")
    schema = f"{name}({', '.join(f'{kind} p{k}' for k, kind in enumerate(types))}) -> ()"
    if _defined.setdefault(name, schema) != schema:
        raise ImportError(f"torch_ndd: there is an operator ndd::{name} already, {_defined[name]}; name yours differently")
    if not hasattr(torch.ops.ndd, name):  # a notebook may run a cell again
        _library.define(schema)
        _library.impl(name, lambda *args: None, "Meta")  # kernels only fill what the caller has allocated
    return getattr(torch.ops.ndd, name).default


def parameters(name: str) -> list[str]:
    """Return the types of a kernel's parameters, as schema types."""
    compiled = {KERNELS[name, backend] for backend in ("CPU", "CUDA") if (name, backend) in KERNELS}
    if len(compiled) != 1:
        found = " and ".join(f"({types})" for types in sorted(compiled)) or "none"
        raise ImportError(f"torch_ndd: ndd::{name} needs a kernel with the same parameters on CPU and CUDA, found {found}; rebuild the library")
    (types,) = compiled
    return types.split(",")


@torch.library.register_fake("ndd::pooled_memory", lib=_library)
def _(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


# The buffer of a ragged batch in a compiled graph: its size is known at run time only.
_library.define("empty_packed(Tensor shapes, ScalarType dtype, Device device) -> Tensor")


@torch.library.impl("ndd::empty_packed", "CompositeExplicitAutograd", lib=_library)
def _(shapes: torch.Tensor, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return empty([volume(shapes, dtype.itemsize)], dtype, device)


@torch.library.register_fake("ndd::empty_packed", lib=_library)
def _(shapes: torch.Tensor, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    size = torch.library.get_ctx().new_dynamic_size()
    return torch.empty(size, dtype=dtype, device=device)


def unfilled(shapes: torch.Tensor, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the buffer of a batch with these shapes, int64 (N, ndim), and the shapes; dense and None if they are equal."""
    if torch.compiler.is_compiling():
        return torch.ops.ndd.empty_packed(shapes, dtype, device), shapes
    if not shapes.is_contiguous():
        shapes = shapes.contiguous()
    count, size = shapes.shape
    elements = _packed(shapes.data_ptr(), count, size)
    if elements == _EQUAL:
        return empty([count, *shapes[0].tolist()], dtype, device), None
    return empty([volume(shapes, dtype.itemsize) if elements == _TOO_MANY else elements], dtype, device), shapes


# A dense batch in a compiled graph with one extent, given as -1, that is equal for all samples but known at run time only: channels.
_library.define("empty_equal(SymInt[] shape, Tensor extents, ScalarType dtype, Device device) -> Tensor")


@torch.library.impl("ndd::empty_equal", "CompositeExplicitAutograd", lib=_library)
def _(shape: list[int], extents: torch.Tensor, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    found = set(extents.tolist()) or {0}
    if len(found) > 1:
        raise RuntimeError(f"a compiled graph takes samples with equal numbers of channels, got {sorted(found)}")
    (extent,) = found
    return empty([extent if n < 0 else n for n in shape], dtype, device)


@torch.library.register_fake("ndd::empty_equal", lib=_library)
def _(shape: list[int], extents: torch.Tensor, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    extent = torch.library.get_ctx().new_dynamic_size()
    return torch.empty([extent if isinstance(n, int) and n < 0 else n for n in shape], dtype=dtype, device=device)


# A buffer in a graph on the CPU, from the pool, as in eager mode: above 32 MB torch's own come from the system each time, and for 64 float32 images
# of 224x224 that takes 17 ms where brightness takes 2.
_library.define("empty_pooled(SymInt[] shape, ScalarType dtype) -> Tensor")


@torch.library.impl("ndd::empty_pooled", "CompositeExplicitAutograd", lib=_library)
def _(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    return empty(shape, dtype, CPU)


@torch.library.register_fake("ndd::empty_pooled", lib=_library)
def _(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


_EQUAL, _TOO_MANY = -1, -2  # of csrc/ndd/samples.cpp
_MOST_BYTES = 1 << 62
_EXACT = 1 << 53  # below it a double holds every whole number


def volume(shapes: torch.Tensor, item_bytes: int) -> int:
    """Return the number of elements of samples with these shapes. Raise MemoryError if the bytes cannot be counted in 64 bits."""
    rows = shapes.numpy()
    count = float(rows.prod(1, dtype=np.float64).sum())
    if count < _EXACT:
        return int(count)
    if count * item_bytes > _MOST_BYTES:
        raise MemoryError(f"no memory for {len(rows)} samples of shapes up to {tuple(shapes.amax(0).tolist())}")
    return int(rows.prod(1).sum())


# Each sample takes some 100 bytes and 100 ns in lists of several threads, so that this many take seconds for any operation.
MOST_SAMPLES = 1 << 22


def check_samples(op: str, batch_size: int) -> None:
    """Raise ValueError for more samples than a batch may have."""
    if batch_size > MOST_SAMPLES:
        raise ValueError(f"{op}: batch_size must be at most {MOST_SAMPLES}, got {batch_size}")


def no_memory(size: int, shape: Sequence[int]) -> MemoryError:
    """Return the error for an output of ``size`` bytes for which there is no memory."""
    return MemoryError(_no_memory(size, f": an output of shape {tuple(shape)}".encode()).decode())


def file_kind(begin: bytes) -> str:
    """Return what a file with this beginning is, such as ``a WAV file``; empty if it is not known."""
    return _file_kind(begin, len(begin)).decode()


def check_memory(size: int, use: str) -> None:
    """Raise MemoryError for more bytes than this process can have at most."""
    if size > _most_host_memory():
        raise MemoryError(_no_memory(size, f": {use}".encode()).decode())


_pooled = torch.ops.ndd.pooled_memory.default
POOLED_BYTES = 2 << 20  # a page; csrc/ndd/stream/host_memory.cpp has the measurements
pinned_sizes: set[int] = set()  # size_class of the buffers that are taken from torch's pinned memory instead: see upload.py


def size_class(size: int) -> int:
    """Return the exponent of the power of two to which torch rounds up ``size`` bytes of pinned memory."""
    return (size - 1).bit_length()


def pin_size(size: int, pinned: bool = True) -> None:
    """Use pinned memory, or the pool's, for our buffers of about ``size`` bytes from now on."""
    (pinned_sizes.add if pinned else pinned_sizes.discard)(size_class(size))
    _pin_sizes(sum(1 << one for one in tuple(pinned_sizes)))


def pin_no_size() -> None:
    """Stop using pinned memory."""
    pinned_sizes.clear()
    _pin_sizes(0)


def empty(shape: tuple[int, ...] | list[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Allocate uninitialized memory; large host buffers come from a pool, or are pinned."""
    if device == CPU:
        if torch.compiler.is_compiling():
            return torch.ops.ndd.empty_pooled(shape, dtype)
        size = dtype.itemsize
        for extent in shape:
            size *= extent
        if size >= POOLED_BYTES:
            if pinned_sizes and (pinned := _pinned(shape, dtype, size)) is not None:
                return pinned
            try:
                return _pooled(shape, dtype)
            except (RuntimeError, OverflowError, TypeError):  # the latter if an extent does not fit into 64 bits
                raise no_memory(size, shape) from None
        if size < 0:  # an extent was computed that does not fit into 64 bits
            raise MemoryError(f"there is no memory for an output of shape {tuple(shape)}")
    return torch.empty(shape, dtype=dtype, device=device)


def _pinned(shape: tuple[int, ...] | list[int], dtype: torch.dtype, size: int) -> torch.Tensor | None:
    """Return pinned memory, if buffers of this size go to a GPU and there is any."""
    if size_class(size) not in pinned_sizes:
        return None
    try:
        return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=True)
    except RuntimeError:
        pin_size(size, False)  # the next copy to a GPU tries again, and counts
        return None
