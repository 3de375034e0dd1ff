# SPDX-License-Identifier: Apache-2.0
"""The native library: its C functions, and the objects that release what they return.

``library.py`` loads it, ``kernels.py`` makes torch operators of its kernels, ``memory.py`` allocates buffers.
"""

import ctypes
from typing import Any

from .kernels import KERNELS as KERNELS
from .kernels import find_kernels as find_kernels
from .kernels import kernel as kernel
from .kernels import parameters as parameters
from .library import DTYPE_NUMBERS as DTYPE_NUMBERS
from .library import DTYPES as DTYPES
from .library import PATH as PATH
from .library import address
from .library import c_function as c_function
from .library import numbers as numbers
from .memory import CPU as CPU
from .memory import MAX_SAMPLES as MAX_SAMPLES
from .memory import POOLED_BYTES as POOLED_BYTES
from .memory import allocate_samples as allocate_samples
from .memory import check_memory as check_memory
from .memory import check_samples as check_samples
from .memory import empty as empty
from .memory import no_memory as no_memory
from .memory import pin_no_size as pin_no_size
from .memory import pin_size as pin_size
from .memory import pinned_sizes as pinned_sizes
from .memory import size_class as size_class
from .memory import volume as volume

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
own = c_function("ndd_own")
c_function("ndd_capsules")(ctypes.pythonapi.PyCapsule_New, ctypes.pythonapi.PyCapsule_GetPointer)
philox = c_function("ndd_philox")
open_files_make = c_function("ndd_open_files_make")
open_files_release = c_function("ndd_open_files_release")
ranges_parts = c_function("ndd_ranges_parts")
ranges_start = c_function("ndd_ranges_start")
image_records_start = c_function("ndd_image_records_start")
datums_start = c_function("ndd_datums_start")
tensors_start = c_function("ndd_tensors_start")
examples_start = c_function("ndd_examples_start")
npy_headers_make = c_function("ndd_npy_headers_make")
npy_headers_release = c_function("ndd_npy_headers_release")
npy_start = c_function("ndd_npy_start")
npy_shapes = c_function("ndd_npy_shapes")
npy_positions = c_function("ndd_npy_positions")
record_bytes = c_function("ndd_record_bytes")
scan = c_function("ndd_scan")
scan_size = c_function("ndd_scan_size")
scan_error = c_function("ndd_scan_error")
scan_reason = c_function("ndd_scan_reason")
scan_damaged = c_function("ndd_scan_damaged")
scan_ranges = c_function("ndd_scan_ranges")
scan_names = c_function("ndd_scan_names")
scan_release = c_function("ndd_scan_release")
find_other_headers = c_function("ndd_find_other_headers")
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
find_texts = c_function("ndd_find_texts")
hash_keys = c_function("ndd_hash_keys")
find_keys = c_function("ndd_find_keys")
find_groups = c_function("ndd_find_groups")
compare_rows = c_function("ndd_compare_rows")
match_rows = c_function("ndd_match_rows")
copy_rows = c_function("ndd_copy_rows")
find_weights = c_function("ndd_find_weights")
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
plan_window = c_function("ndd_plan_window")
balance = c_function("ndd_balance")
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
release_idle_memory = c_function("ndd_release_idle_memory")
stop = c_function("ndd_stop")
_file_kind = c_function("ndd_file_kind")
# The number of threads that ran, and the number wanted, when the system first refused to start one; 0 if it has not.
refused_threads = ctypes.c_uint64.from_address(c_function("ndd_refused_threads")())

OF_CALL, OF_FILES, OF_READ, OF_HEADERS, OF_POOL, OF_CACHE, OF_DESCRIPTOR = map(
    address, (release, open_files_release, read_release, npy_headers_release, pool_release, cache_release, c_function("ndd_close_file"))
)
"""Releases the handles of :func:`owned`."""


def own_handle(handle: int, release: int, only_here: bool = False) -> Any:
    """Return an object that releases a handle when it is destroyed, in C code: a ``__del__`` in Python would swallow a KeyboardInterrupt.

    Args:
        handle: The native library's handle.
        release: Its kind.
        only_here: Do not release it in a process forked from this one.
    """
    return own(handle, release, only_here)


def file_kind(begin: bytes) -> str:
    """Return the kind of a file with this beginning, such as ``a WAV file``; empty if it is not known."""
    return _file_kind(begin, len(begin)).decode()
