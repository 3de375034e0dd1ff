# SPDX-License-Identifier: Apache-2.0
"""The installed package: its native library, what importing it does, and what its public API says about itself."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import torch_ndd as ndd
from torch_ndd import _native


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def python(code: str) -> str:
    return output(sys.executable, "-c", code)


def test_only_the_stable_abi_of_torch_is_used() -> None:
    wanted = [line.split()[-1] for line in output("nm", "-D", "--undefined-only", str(_native.PATH)).splitlines()]
    of_torch = [name for name in wanted if any(part in name for part in ("c10", "torch", "caffe", "2at"))]
    assert of_torch
    assert not [name for name in of_torch if not name.startswith(("aoti_torch_", "torch_"))]
    assert not [name for name in wanted if name.startswith(("Py", "_Py"))]


def test_only_c_functions_of_ours_are_visible() -> None:
    defined = [line.split()[-1] for line in output("nm", "-D", "--defined-only", str(_native.PATH)).splitlines()]
    ours = [name for name in defined if "ndd" in name]
    assert ours
    assert all(name.startswith("ndd_") for name in ours)


def test_libraries_that_are_needed() -> None:
    needed = [line for line in output("readelf", "-d", str(_native.PATH)).splitlines() if "NEEDED" in line]
    assert any("[libtorch.so]" in line for line in needed)
    assert not any("nvimgcodec" in line or "python" in line or "cudart" in line for line in needed)


def test_kernel_and_signature_must_agree() -> None:
    code = """
import torch_ndd._native as native
types = native.KERNELS["brightness", "CPU"]
try:
    native.define("brightness", [("Tensor", "input"), ("int", "factor"), ("Tensor(a!)", "out")])
except ImportError as error:
    print(error)
    print(types)
"""
    text, types = python(code).splitlines()
    assert "ndd::brightness" in text
    assert f"({types})" in text
    assert "(Tensor,int,Tensor)" in text


def test_missing_library_is_an_import_error(tmp_path: Path) -> None:
    missing = tmp_path / "_C.so"
    code = f"import os; os.environ['TORCH_NDD_LIBRARY'] = {str(missing)!r}\ntry: import torch_ndd\nexcept ImportError as error: print(error)"
    text = python(code)
    assert f"{missing} is missing" in text
    assert "pip install" in text


def test_import_starts_no_threads_and_loads_no_codecs() -> None:
    code = """
import os, torch
def threads(): return len(os.listdir("/proc/self/task"))
before = threads()
import torch_ndd
libraries = open("/proc/self/maps").read()
print(threads() - before, "libnvimgcodec.so" in libraries, "nvidia.dali" in __import__("sys").modules)
"""
    assert python(code) == "0 False False\n"


def test_types_are_marked() -> None:
    assert Path(ndd.__file__).with_name("py.typed").exists()


def public(module: object) -> list[tuple[str, object]]:
    return [(name, value) for name, value in vars(module).items() if name[0] != "_" and getattr(value, "__module__", "").startswith("torch_ndd")]


@pytest.mark.parametrize(("name", "value"), public(ndd), ids=lambda value: value if isinstance(value, str) else "")
def test_public_names_are_annotated_and_explained(name: str, value: object) -> None:
    assert inspect.getdoc(value), f"{name} has no docstring"
    if inspect.isfunction(value):
        signature = inspect.signature(value)
        assert signature.return_annotation is not signature.empty
        assert all(parameter.annotation is not parameter.empty for parameter in signature.parameters.values())
