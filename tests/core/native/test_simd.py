# SPDX-License-Identifier: Apache-2.0
"""The instruction sets of the vector loops."""

import ctypes
import os
import platform
import subprocess
from pathlib import Path

import pytest
from _forks import IMPORT_AGAIN, Forks
from conftest import ROOT

CSRC = ROOT / "csrc"
X86 = platform.machine() in ("x86_64", "AMD64")


def compile_function(folder: Path, *defines: str) -> Path:
    """Return a library of ``ndd/build_info.cpp``."""
    library = folder / "info.so"
    (folder / "jpeg.cpp").write_text('namespace ndd { const char* libjpeg_version() { return ""; } }')
    sources = [CSRC / "ndd/build_info.cpp", CSRC / "ndd/python_interface.cpp", folder / "jpeg.cpp"]
    options = ["-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{CSRC}", "-o", library, *(f"-D{define}" for define in defines)]
    subprocess.run([os.environ.get("CXX", "g++"), *options, *sources], check=True)
    return library


@pytest.mark.skipif(not X86, reason="there is one instruction set")
@pytest.mark.parametrize(("isa", "name"), [("base", None), ("avx2", "AVX2"), ("avx512", "AVX-512")])
def test_loops_of_another_machine(forks: Forks, tmp_path: Path, isa: str, name: str | None) -> None:
    library = compile_function(tmp_path, f"NDD_ONLY_ISA={isa}", "__builtin_cpu_supports(name)=0")  # as on a CPU with the baseline only
    function = ctypes.CDLL(str(library)).ndd_missing_instructions
    function.restype = ctypes.c_char_p
    assert function() == (name.encode() if name else None)
    if name:
        run = forks.run(IMPORT_AGAIN, variables={"TORCH_NDD_LIBRARY": str(library)})
        assert run.wait() == 1
        assert f"ImportError: torch_ndd: {library} was compiled for a CPU with {name}, which this CPU lacks; compile it again with" in run.errors
