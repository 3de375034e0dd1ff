# SPDX-License-Identifier: Apache-2.0
"""What a build compiles."""

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from conftest import ROOT


def make(folder: Path, target: str) -> str:
    """Return the commands that make would run in a copy of the Makefile, where no virtual environment exists yet."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    command = ["make", "--dry-run", target, f"PYTHON={sys.executable}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout


def test_docs_are_built_with_the_library_that_is_there(tmp_path: Path) -> None:
    assert "--editable ." in make(tmp_path, "docs")
    (tmp_path / "torch_ndd").mkdir()
    (tmp_path / "torch_ndd" / "_C.so").touch()
    commands = make(tmp_path, "docs")
    assert "--editable ." not in commands
    assert '--only-deps ".[docs]"' in commands


def test_ci_compiles_the_cuda_kernels_of_a_family_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    assert "TORCH_NDD_UNITY=ON" in make(tmp_path, "test")
    monkeypatch.delenv("CI")
    assert "TORCH_NDD_UNITY" not in make(tmp_path, "test")


@pytest.mark.parametrize(
    ("nvcc", "gpu", "architectures", "wanted"),
    [("nvcc", False, "", "OFF"), ("nvcc", True, "", "ON"), ("nvcc", False, "75;90", "ON"), ("NVCC-NOTFOUND", True, "75;90", "OFF")],
)
def test_cuda_is_compiled_for_a_gpu_or_on_request(tmp_path: Path, nvcc: str, gpu: bool, architectures: str, wanted: str) -> None:
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if cmake is None or (not gpu and Path("/dev/nvidia0").exists()):
        pytest.skip("no cmake" if cmake is None else "this machine has a GPU")
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nexit {0 if gpu else 9}\n")
    program.chmod(0o755)
    script = tmp_path / "ask.cmake"
    script.write_text(f'include({ROOT}/csrc/cuda/wanted.cmake)\nmessage("${{CUDA_WANTED}}")\n')
    environment = {**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin", "TORCH_NDD_CUDA_ARCHS": architectures}
    run = subprocess.run([cmake, f"-DNVCC={nvcc}", "-P", str(script)], env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert run.stderr.strip() == wanted


TYPE = re.compile(r"(?:struct|class|union|enum(?: class)?) (?:alignas\(\w+\) )?(\w+)(?: final)?(?: : .*)? \{")


def find_types(folder: Path) -> dict[str, set[str]]:
    """Return the files of a folder that define each class or enumeration that other files see, by its qualified name."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(folder.rglob("*")):
        if path.suffix not in (".h", ".cuh", ".cpp", ".cu"):
            continue
        scopes: list[str] = []
        for line in path.read_text().splitlines():
            if opened := re.match(r"(?:inline )?namespace ?([\w:]*) \{", line):
                scopes.append(opened[1])
            elif line.startswith("}  // namespace"):
                scopes.pop()
            elif (defined := TYPE.match(line)) and "" not in scopes:  # of an anonymous namespace
                found["::".join([*scopes, defined[1]])].add(str(path.relative_to(folder)))
    return found


def test_no_two_types_have_the_same_name(tmp_path: Path) -> None:
    """Where compilers do not inline their members, the linker keeps one for both: a window of crop was destroyed as that of a blur."""
    types = find_types(ROOT / "csrc")
    assert "ndd::Tensor" in types
    assert {name: files for name, files in types.items() if len(files) > 1} == {}
    for name in ("a.h", "b.h"):
        (tmp_path / name).write_text("namespace ndd {\nstruct Window {\n};\nnamespace {\nstruct Run {\n};\n}  // namespace\n}  // namespace ndd\n")
    assert find_types(tmp_path) == {"ndd::Window": {"a.h", "b.h"}}
