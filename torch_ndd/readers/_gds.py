# SPDX-License-Identifier: Apache-2.0
"""Read files into the memory of a GPU by GPUDirect Storage: cuFile, loaded at run time, through its C interface (cufile.h of CUDA 12 and 13).

Only where the kernel module nvidia-fs is loaded: without it cuFile copies through host memory of its own, which the readers do faster themselves.
"""

import ctypes
import functools
import os
import warnings
from pathlib import Path
from types import TracebackType

import torch

from .._core.context.cuda import new_torch_stream
from .._core.process.files import check_status
from ..decoders import _gpu_engines, _library

FILE, FOLDERS, PACKAGE = "libcufile.so.0", ("cu*/lib", "cufile/lib"), "nvidia-cufile"
KERNEL_MODULE = Path("/proc/driver/nvidia-fs")
FUNCTIONS = ("cuFileDriverOpen", "cuFileHandleRegister", "cuFileHandleDeregister", "cuFileRead")

_SUCCESS = 0
_LINUX_DESCRIPTOR = 1  # CU_FILE_HANDLE_TYPE_OPAQUE_FD


class NotDirectError(RuntimeError):
    """A file that cuFile cannot read, because of its file system."""


class _Error(ctypes.Structure):
    _fields_ = (("status", ctypes.c_int), ("cuda_status", ctypes.c_int))


class _Handle(ctypes.Union):
    _fields_ = (("descriptor", ctypes.c_int), ("pointer", ctypes.c_void_p))


class _Description(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("handle", _Handle), ("operations", ctypes.c_void_p))


def open_library() -> ctypes.CDLL:
    """Load cuFile and start it. Raise MissingLibraryError, or WrongLibraryError if it cannot be used."""
    library = _gpu_engines.load_library(_library.folder().parent, FILE, FOLDERS, PACKAGE)
    for name in FUNCTIONS:
        if not hasattr(library, name):
            raise _gpu_engines.WrongLibraryError(f"{FILE} has no function {name}: it is not cuFile")
    library.cuFileDriverOpen.argtypes, library.cuFileDriverOpen.restype = [], _Error
    pointers = [ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(_Description)]
    library.cuFileHandleRegister.argtypes, library.cuFileHandleRegister.restype = pointers, _Error
    library.cuFileHandleDeregister.argtypes, library.cuFileHandleDeregister.restype = [ctypes.c_void_p], None
    read = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_longlong, ctypes.c_longlong]
    library.cuFileRead.argtypes, library.cuFileRead.restype = read, ctypes.c_ssize_t
    status = library.cuFileDriverOpen().status
    if status != _SUCCESS:
        raise _gpu_engines.WrongLibraryError(f"{FILE} does not start: status {status}")
    return library


@functools.cache
def find_library() -> ctypes.CDLL | None:
    """Return cuFile, or None: silently without the kernel module, otherwise after one warning."""
    if not KERNEL_MODULE.exists():
        return None
    try:
        return open_library()
    except RuntimeError as error:
        warn_of_ordinary_reads(str(error))
        return None


@functools.cache
def warn_of_ordinary_reads(reason: str) -> None:
    """Report, once for each reason, that files are read to host memory first."""
    warnings.warn(f'readers.Numpy: device="gpu" reads files to host memory first: {reason}', RuntimeWarning, stacklevel=2)


@functools.cache
def _allocation_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of a GPU on which buffers are allocated: always the same, because torch keeps the free memory of each stream apart."""
    return new_torch_stream(device)


def new_buffer(size: int, device: torch.device) -> torch.Tensor:
    """Return bytes of a GPU that no kernel uses any longer.

    cuFile writes as soon as it is called, not when a stream gets there, but torch's allocator reuses memory in the order of a stream.
    """
    stream = _allocation_stream(device)
    with torch.cuda.stream(stream):
        buffer = torch.empty(size, dtype=torch.uint8, device=device)
    stream.synchronize()
    return buffer


class DirectFile:
    """An open file that cuFile reads. Raise OSError if it cannot be opened, NotDirectError if its file system does not support direct reads."""

    def __init__(self, library: ctypes.CDLL, path: str | bytes) -> None:
        self._library, self._registered = library, ctypes.c_void_p()
        try:
            # O_NONBLOCK: a pipe that has taken the place of the file must not make the open wait.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            if os.path.exists(path) and os.access(path, os.R_OK):
                raise NotDirectError(f"{os.fsdecode(path)} cannot be opened for direct reads: {error.strerror}") from None
            raise
        try:
            status = os.fstat(self._descriptor)
            check_status(status, path)
            self._size = status.st_size
            description = _Description(_LINUX_DESCRIPTOR, _Handle(descriptor=self._descriptor), None)
            result = library.cuFileHandleRegister(ctypes.byref(self._registered), ctypes.byref(description)).status
            if result != _SUCCESS:
                raise NotDirectError(f"cuFile does not read {os.fsdecode(path)}: status {result}")
        except BaseException:
            os.close(self._descriptor)
            raise

    def read(self, address: int, size: int, offset: int) -> None:
        """Read ``size`` bytes from ``offset`` on to an address of the GPU. Raise OSError unless the file has them all."""
        if offset + size > self._size:
            raise OSError(f"the file has {self._size} bytes, its array ends at byte {offset + size}")
        done = 0
        while done < size:
            count = self._library.cuFileRead(self._registered, address, size - done, offset + done, done)
            if not 0 < count <= size - done:
                raise OSError(f"bytes {offset + done} to {offset + size} cannot be read: cuFile returned {count}")
            done += count

    def __enter__(self) -> "DirectFile":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._library.cuFileHandleDeregister(self._registered)
        os.close(self._descriptor)


def describe() -> str:
    """Return whether GPUDirect Storage is used, or why not."""
    if not KERNEL_MODULE.exists():
        return "not used: the kernel module nvidia-fs is not loaded"
    try:
        open_library()
    except RuntimeError as error:
        return f"not used: {error}"
    return "used by readers.Numpy"
