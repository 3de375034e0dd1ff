# SPDX-License-Identifier: Apache-2.0
"""C functions and enumerations of the native library: Python reads their types and numbers from it."""

import ctypes
import os
import re
import subprocess
from pathlib import Path

import pytest
from _forks import IMPORT_AGAIN, Forks
from conftest import ROOT

import torch_ndd as ndd
from torch_ndd._core import native

CSRC = ROOT / "csrc"
# A library in which a function, an enumeration, or everything is missing, or a function is recorded with two types.
RECORDS = """
#include "ndd/python_interface.h"
NDD_EXPORT(keep, const char*, ndd_missing_instructions, ()) { return nullptr; }
"""
REPEATED = (
    RECORDS
    + """
static const ndd::detail::EnumerationRecord first("DType", "uint8"), second("DType", "int8");
"""
)
DTYPES_ONLY = (
    RECORDS
    + """
NDD_ENUM("DType", DType, int, uint8 = 0);
"""
)


@pytest.mark.parametrize(
    ("name", "result", "arguments"),
    [
        ("ndd_scan_size", ctypes.c_int64, [ctypes.c_void_p]),
        ("ndd_masked_crc32c", ctypes.c_uint32, [ctypes.c_char_p, ctypes.c_int64]),
        ("ndd_no_memory", ctypes.c_char_p, [ctypes.c_double, ctypes.c_char_p]),
        ("ndd_own", ctypes.py_object, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32]),
        ("ndd_discard_output_of", ctypes.c_bool, [ctypes.c_char_p, ctypes.c_char_p]),
        ("ndd_pin_sizes", None, [ctypes.c_uint64]),
    ],
)
def test_prototype_is_that_of_the_definition(name: str, result: object, arguments: list[object]) -> None:
    function = native.c_function(name)
    assert function.restype is result
    assert list(function.argtypes) == arguments


def test_wrong_arguments_are_refused_before_the_call() -> None:
    with pytest.raises(ctypes.ArgumentError):
        native.masked_crc32c("text", 4)
    with pytest.raises(TypeError):
        native.masked_crc32c(b"text")


def test_every_exported_function_is_recorded() -> None:
    """A function that is exported in another way would have no prototype, and ctypes would guess one."""
    sources = [path for path in CSRC.rglob("*") if path.suffix in (".h", ".cpp", ".cu", ".cuh") and "stress" not in path.parts]
    exported = {path.name for path in sources if re.search(r'extern "C"|visibility\("default"\)', path.read_text())}
    assert exported == {"python_interface.h"}
    heads = {path.name for path in sources if re.search(r"^NDD_EXTERN .*\{", path.read_text(), re.M)}
    assert heads == {"python_interface.cpp"}


def test_unknown_function_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="has no function ndd_nothing; it was built from other sources: build it again"):
        native.c_function("ndd_nothing")


def test_unknown_enumeration_is_an_import_error() -> None:
    with pytest.raises(ImportError, match="has no enumeration Nothing; it was built from other sources: build it again"):
        native.numbers("Nothing")


def test_numbers_of_enumerations() -> None:
    assert native.numbers("Border") == {"constant": 0, "clamp": 1, "reflect_1001": 2, "reflect_101": 3, "wrap": 4}
    assert native.numbers("coco.Flags") == {"read_polygons": 1, "read_masks": 2, "read_categories": 4, "read_crowds": 8}
    assert native.numbers("stream.Mode") == {"deferred": 1, "eager": 2, "sync": 3}


def test_public_enumerations_have_the_numbers_of_the_kernels() -> None:
    names = {"nearest": "NN", "linear": "LINEAR", "cubic": "CUBIC", "lanczos3": "LANCZOS3", "triangular": "TRIANGULAR", "gaussian": "GAUSSIAN"}
    filters = {f"INTERP_{names[name]}": number for name, number in native.numbers("types.InterpType").items()}
    assert filters == {member.name: member.value for member in ndd.types.DALIInterpType}
    modes = native.numbers("stream.Mode")
    assert modes["deferred"] == ndd.EvalMode.deferred
    assert modes["eager"] == ndd.EvalMode.eager
    assert modes["sync"] == ndd.EvalMode.sync_cpu


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "does not record its functions"),
        (RECORDS, "has no enumeration DType"),
        (REPEATED, "DType is recorded twice in .*: uint8 and int8"),
        (DTYPES_ONLY, "has no function ndd_kernels"),
    ],
    ids=["no records", "no enumeration", "recorded twice", "no function"],
)
def test_library_of_other_sources_is_an_import_error(forks: Forks, tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "records.cpp").write_text(source)
    library = tmp_path / "records.so"
    sources = [tmp_path / "records.cpp", *([CSRC / "ndd/python_interface.cpp"] if source else [])]
    options = ["-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{CSRC}", "-o", library]
    subprocess.run([os.environ.get("CXX", "g++"), *options, *sources], check=True)
    run = forks.run(IMPORT_AGAIN, variables={"TORCH_NDD_LIBRARY": str(library)})
    assert run.wait() == 1
    assert re.search(f"ImportError: torch_ndd: .*{message}", run.errors)
