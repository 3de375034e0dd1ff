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
PATH = Path(os.environ.get("TORCH_NDD_LIBRARY") or Path(__file__).parents[2] / "_C.so").absolute()
if not PATH.exists():
    raise ImportError(f"torch_ndd: the native library {PATH} is missing; install the package with: pip install .")
torch.ops.load_library(str(PATH))

# A short function keeps the GIL, because releasing it costs more than the function; one that may wait releases it.
_LIBRARIES = {"keep": ctypes.PyDLL(str(PATH)), "release": ctypes.CDLL(str(PATH))}
_C_TYPES = {
    "v": None, "?": ctypes.c_bool, "i": ctypes.c_int32, "I": ctypes.c_uint32, "q": ctypes.c_int64, "Q": ctypes.c_uint64, "d": ctypes.c_double,
    "z": ctypes.c_char_p, "P": ctypes.c_void_p, "O": ctypes.py_object,
}  # fmt: skip


def _read_records(kind: str) -> dict[str, str]:
    """Return the records of csrc/ndd/python_interface.h by name."""
    read = getattr(_LIBRARIES["keep"], f"ndd_recorded_{kind}", None)
    if read is None:
        raise ImportError(f"torch_ndd: {PATH} does not record its functions; it was built from other sources: build it again")
    read.restype, read.argtypes = ctypes.c_char_p, ()
    records: dict[str, str] = {}
    for line in read().decode().splitlines():
        name, record = line.split(" ", 1)
        if records.setdefault(name, record) != record:  # headers are recorded by each library that includes them
            raise ImportError(f"torch_ndd: {name} is recorded twice in {PATH}: {records[name]} and {record}")
    return records


_FUNCTIONS = _read_records("functions")
_ENUMERATIONS = _read_records("enumerations")


def c_function(name: str) -> Any:
    """Return a C function of the library. Its prototype is the one that was recorded where the function is defined.

    Raises:
        ImportError: The library has no such function: it was built from other sources.
    """
    if name not in _FUNCTIONS:
        raise ImportError(f"torch_ndd: {PATH} has no function {name}; it was built from other sources: build it again")
    gil, letters = _FUNCTIONS[name].split(" ")
    function = getattr(_LIBRARIES[gil], name)
    function.restype, *function.argtypes = (_C_TYPES[letter] for letter in letters)
    return function


def numbers(enumeration: str) -> dict[str, int]:
    """Return the numbers of a C++ enumeration (``NDD_ENUM``) by the names of its enumerators.

    >>> numbers("filter.Border")["clamp"]
    2

    Raises:
        ImportError: The library has no such enumeration: it was built from other sources.
    """
    if enumeration not in _ENUMERATIONS:
        raise ImportError(f"torch_ndd: {PATH} has no enumeration {enumeration}; it was built from other sources: build it again")
    found: dict[str, int] = {}
    following = 0
    for enumerator in filter(str.strip, _ENUMERATIONS[enumeration].split(",")):
        name, _, number = enumerator.partition("=")
        found[name.strip()] = following = int(number, 0) if number else following
        following += 1
    return found


if _missing := c_function("ndd_missing_instructions")():
    raise ImportError(
        f"torch_ndd: {PATH} was compiled for a CPU with {_missing.decode()}, which this one lacks; compile it again with: "
        "pip install . (for every CPU), or in a development build: cmake build/dev && ninja -C build/dev"
    )

DTYPES: dict[int, torch.dtype] = {number: getattr(torch, "bool" if name == "boolean" else name) for name, number in numbers("DType").items()}
"""The element types that kernels know, by the numbers of :class:`torch.dtype` in C++."""

begin = c_function("ndd_begin")
depend = c_function("ndd_depend")
end = c_function("ndd_end")
external = c_function("ndd_external")
external_done = c_function("ndd_external_done")
done = c_function("ndd_done")
fused = c_function("ndd_fused")
identity = c_function("ndd_id")
error = c_function("ndd_error")
error_origin = c_function("ndd_error_origin")
release = c_function("ndd_release")
_plan = c_function("ndd_plan")
_plan_made = c_function("ndd_plan_made")
_plan_release = c_function("ndd_plan_release")
own = c_function("ndd_own")
c_function("ndd_capsules")(ctypes.pythonapi.PyCapsule_New, ctypes.pythonapi.PyCapsule_GetPointer)
_packed = c_function("ndd_packed_elements")
philox = c_function("ndd_philox")
open_files_make = c_function("ndd_open_files_make")
open_files_release = c_function("ndd_open_files_release")
ranges_parts = c_function("ndd_ranges_parts")
ranges_start = c_function("ndd_ranges_start")
image_records_start = c_function("ndd_image_records_start")
examples_start = c_function("ndd_examples_start")
npy_headers_make = c_function("ndd_npy_headers_make")
npy_headers_release = c_function("ndd_npy_headers_release")
npy_start = c_function("ndd_npy_start")
npy_shapes = c_function("ndd_npy_shapes")
record_bytes = c_function("ndd_record_bytes")
scan = c_function("ndd_scan")
scan_size = c_function("ndd_scan_size")
scan_error = c_function("ndd_scan_error")
scan_reason = c_function("ndd_scan_reason")
scan_damaged = c_function("ndd_scan_damaged")
scan_ranges = c_function("ndd_scan_ranges")
scan_names = c_function("ndd_scan_names")
scan_release = c_function("ndd_scan_release")
read_wait = c_function("ndd_read_wait")
read_failure = c_function("ndd_read_failure")
read_release = c_function("ndd_read_release")
masked_crc32c = c_function("ndd_masked_crc32c")
encode_jpeg = c_function("ndd_encode_jpeg")
coco_parse = c_function("ndd_coco_parse")
coco_error_kind = c_function("ndd_coco_error_kind")
coco_error = c_function("ndd_coco_error")
coco_column = c_function("ndd_coco_column")
gather = c_function("ndd_gather")
cache_make = c_function("ndd_cache_make")
cache_release = c_function("ndd_cache_release")
cache_number = c_function("ndd_cache_number")
cache_counts = c_function("ndd_cache_counts")
cache_clear = c_function("ndd_cache_clear")
cache_trouble = c_function("ndd_cache_trouble")
cache_text = c_function("ndd_cache_text")
cache_totals = c_function("ndd_cache_totals")
coco_release = c_function("ndd_coco_release")
shuffle = c_function("ndd_shuffle")
wait = c_function("ndd_wait")
build_info = c_function("ndd_build_info")
pool_make = c_function("ndd_pool_make")
pool_release = c_function("ndd_pool_release")
pool_enter = c_function("ndd_pool_enter")
pool_set_default = c_function("ndd_pool_set_default")
pool_most_running = c_function("ndd_pool_most_running")
set_owner = c_function("ndd_set_owner")
worked = c_function("ndd_worked")
spans = c_function("ndd_spans")
_pin_sizes = c_function("ndd_pin_sizes")
release_idle_memory = c_function("ndd_release_idle_memory")
stop = c_function("ndd_stop")
_no_memory = c_function("ndd_no_memory")
_most_host_memory = c_function("ndd_most_host_memory")
_file_kind = c_function("ndd_file_kind")
# The number of threads, and the number wanted, when the system first refused one; 0 if it has not.
refused_threads = ctypes.c_uint64.from_address(c_function("ndd_refused_threads")())


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


OF_CALL, OF_FILES, OF_READ, OF_HEADERS, OF_POOL, OF_CACHE, OF_PLAN, OF_DESCRIPTOR = map(
    _address,
    (release, open_files_release, read_release, npy_headers_release, pool_release, cache_release, _plan_release, c_function("ndd_close_file")),
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


PLAN_OUTPUT = numbers("plan.Place")["output_place"]
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
        _plan((ctypes.c_int64 * len(places))(*places), len(places) // 2, (ctypes.c_int64 * len(any_size))(*any_size), len(any_size))
        kernel(*arguments)
    finally:
        handle = _plan_made(other)
    return handle


def _recorded() -> dict[tuple[str, str], str]:
    lines = c_function("ndd_kernels")().decode().splitlines()
    return {(op, backend): types for op, backend, types in (line.split(" ") for line in lines)}


KERNELS = _recorded()  # (operator, "CPU" or "CUDA") -> C++ parameter types, as schema types
_library = torch.library.Library("ndd", "FRAGMENT")
_defined: dict[str, str] = {}  # schemas of operators, by name


def find_kernels() -> list[str]:
    """Add the kernels of libraries that were loaded since. Return those that were refused, because there are others of their names."""
    KERNELS.update(_recorded())
    return c_function("ndd_refused_kernels")().decode().splitlines()


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


_PACKED = numbers("samples.Packed")
_EQUAL, _TOO_MANY = _PACKED["equal"], _PACKED["too_many"]
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
