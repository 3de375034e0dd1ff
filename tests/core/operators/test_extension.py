# SPDX-License-Identifier: Apache-2.0
"""Operators outside of the repository: the example, and what can go wrong. In processes of their own, because a kernel stays registered."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from _forks import Forked, Forks

from torch_ndd import extension

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
KERNEL = (ROOT / "examples/extension/ndd_threshold/threshold.cu").read_text()


Run = Callable[..., Forked]
IN_FOLDER = "import os, sys, warnings\nos.chdir(sys.argv[1])\nsys.path.insert(0, sys.argv[1])\nwarnings.simplefilter('error')\n"


@pytest.fixture(scope="module")
def run(forks: Forks) -> Run:
    """Runs a program in a folder to its end."""

    def is_done(folder: Path, program: str, **variables: str) -> Forked:
        process = forks.run(IN_FOLDER + program, folder, variables={"XDG_CACHE_HOME": str(folder / "cache"), **variables})
        process.wait(500)
        return process

    return is_done


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Path:
    """A copy of the example, compiled."""
    folder = tmp_path_factory.mktemp("extension") / "example"
    shutil.copytree(ROOT / "examples/extension", folder)
    program = (
        "from ndd_threshold import threshold; import torch; print(threshold(torch.arange(3.0).reshape(1, 1, 3), at=1.5).torch().flatten().tolist())"
    )
    done = run(folder, program)
    assert done.output == "[0.0, 0.0, 2.0]\n", done.errors
    return folder


def test_the_example_passes_its_own_tests(example: Path, run: Run) -> None:
    done = run(example, "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '--rootdir', '.', 'test_threshold.py']))")
    assert done.returncode == 0, done.output[-3000:]
    assert "3 passed" in done.output


def test_nothing_is_compiled_twice(example: Path, run: Run) -> None:
    before = {path: path.stat().st_mtime_ns for path in (example / "cache").rglob("*.so")}
    assert len(before) == 1
    done = run(example, "import ndd_threshold", CXX="false")  # a compiler that fails
    assert "extension.load: " in done.errors  # another compiler is another key
    assert run(example, "import ndd_threshold").returncode == 0
    assert {path: path.stat().st_mtime_ns for path in (example / "cache").rglob("*.so")} == before


def test_its_wheel_has_the_kernel(example: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(example)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert "ndd_threshold/threshold.cu" in subprocess.run([sys.executable, "-m", "zipfile", "-l", wheel], capture_output=True, text=True).stdout


def test_names_that_exist(example: Path, tmp_path: Path, run: Run) -> None:
    (tmp_path / "taken.cu").write_text(KERNEL.replace("NDD_KERNELS(threshold, threshold)", "NDD_KERNELS(brightness, threshold)"))
    program = "from torch_ndd import extension; extension.load('taken', ['taken.cu'])"
    done = run(tmp_path, program)
    assert "is already registered; choose another name" in done.errors
    program = (
        "from torch_ndd.extension import operator, T\n@operator(kernel=None)\ndef resize(input: T, /, *, batch_size=None, device=None) -> T: ..."
    )
    assert "operator: resize is already registered by torch_ndd.ops.geometry.resize" in run(tmp_path, program).errors


def test_extensions_can_be_reloaded(example: Path, run: Run) -> None:
    program = "import importlib, ndd_threshold; importlib.reload(ndd_threshold); importlib.reload(ndd_threshold)"
    done = run(example, program)
    assert done.returncode == 0, done.errors


def test_extension_reports_compiler_errors(tmp_path: Path, run: Run) -> None:
    (tmp_path / "bad.cu").write_text("int f() { return undeclared; }")
    done = run(tmp_path, "from torch_ndd import extension; extension.load('bad', ['bad.cu'])")
    assert "undeclared" in done.errors
    assert not list(tmp_path.rglob("*.so"))
    with pytest.raises(FileNotFoundError, match="does not exist"):
        extension.load("none", [tmp_path / "none.cu"])


def test_installed_headers_compile_alone(tmp_path: Path, run: Run) -> None:
    headers = sorted(path.relative_to(extension.include_folder()) for path in (extension.include_folder() / "ndd").rglob("*.h"))
    assert Path("ndd/kernel.h") in headers
    copied = tmp_path / "include"
    shutil.copytree(extension.include_folder() / "ndd", copied / "ndd", ignore=shutil.ignore_patterns("*.cpp", "*.cu"))
    (tmp_path / "kernel.cu").write_text(KERNEL)
    program = f"""
import pathlib
from torch_ndd import extension
extension.include_folder = lambda: pathlib.Path({str(copied)!r})
extension.load("alone", ["kernel.cu"])
"""
    done = run(tmp_path, program)
    assert done.returncode == 0, done.errors
