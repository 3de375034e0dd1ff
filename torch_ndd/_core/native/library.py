# SPDX-License-Identifier: Apache-2.0
"""Loading the native library, with the prototypes and enumerations that it records about itself."""

import ctypes
import os
from pathlib import Path
from typing import Any

import torch

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
        if records.setdefault(name, record) != record:  # each library that includes a header records its contents
            raise ImportError(f"torch_ndd: {name} is recorded twice in {PATH}: {records[name]} and {record}")
    return records


_FUNCTIONS = _read_records("functions")
_ENUMERATIONS = _read_records("enumerations")


def c_function(name: str) -> Any:
    """Return a C function of the library, with the prototype that was recorded where the function is defined.

    A prototype typed by hand could disagree with the function, and a wrong type corrupts memory silently.

    Raises:
        ImportError: The library has no such function: it was built from other sources.
    """
    if name not in _FUNCTIONS:
        raise ImportError(f"torch_ndd: {PATH} has no function {name}; it was built from other sources: build it again")
    gil, letters = _FUNCTIONS[name].split(" ")
    function = getattr(_LIBRARIES[gil], name)
    function.restype, *function.argtypes = (_C_TYPES[letter] for letter in letters)
    return function


def address(function: Any) -> int:
    """Return the address of a C function."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def numbers(enumeration: str) -> dict[str, int]:
    """Return the numbers of a C++ enumeration (``NDD_ENUM``) by the names of its enumerators.

    >>> numbers("Border")["clamp"]
    1

    Raises:
        ImportError: The library has no such enumeration: it was built from other sources.
    """
    if enumeration not in _ENUMERATIONS:
        raise ImportError(f"torch_ndd: {PATH} has no enumeration {enumeration}; it was built from other sources: build it again")
    by_name: dict[str, int] = {}
    following = 0  # as in C++, an enumerator without a number follows the one before
    for enumerator in filter(str.strip, _ENUMERATIONS[enumeration].split(",")):
        name, _, number = enumerator.partition("=")
        by_name[name.strip()] = following = int(number, 0) if number else following
        following += 1
    return by_name


if _missing := c_function("ndd_missing_instructions")():
    raise ImportError(
        f"torch_ndd: {PATH} was compiled for a CPU with {_missing.decode()}, which this CPU lacks; compile it again with: "
        "pip install . (for every CPU), or in a development build: cmake build/dev && ninja -C build/dev"
    )

DTYPES: dict[int, torch.dtype] = {number: getattr(torch, "bool" if name == "boolean" else name) for name, number in numbers("DType").items()}
"""The element types that kernels know, by the numbers of :class:`torch.dtype` in C++."""
DTYPE_NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
