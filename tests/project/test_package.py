# SPDX-License-Identifier: Apache-2.0
"""The installed package: its native library, the effects of importing it, and the documentation of its public API."""

import importlib.metadata
import inspect
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from _forks import IMPORT_AGAIN, Forks

import torch_ndd as ndd
from torch_ndd._core import native
from torch_ndd._core.operators.operator import OPERATORS


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


# A new interpreter that imports torch and torch_ndd, and what it finds then.
IMPORT = """
import json, os, sys, torch
def threads(): return len(os.listdir("/proc/self/task"))
before = threads()
import torch_ndd as ndd
found = {"threads": threads() - before, "libraries": open("/proc/self/maps").read(), "modules": sorted(sys.modules)}
"""
COMPILE = """
image = torch.arange(12, dtype=torch.uint8).reshape(1, 2, 2, 3)
def brighter(x): return ndd.brightness(ndd.flip(ndd.as_batch(x, layout="HWC")), brightness=2.0).torch()
brighter_image = torch.compile(brighter, fullgraph=True, backend="aot_eager")(image)
found |= {"compiler": "torch._dynamo" in sys.modules, "compiles": torch.equal(brighter_image, image.flip(2) * 2)}
try:
    torch.compile(lambda x: ndd.augment.rand_augment(ndd.as_batch(x, layout="HWC")).torch(), fullgraph=True, backend="aot_eager")(image)
except torch._dynamo.exc.Unsupported as error:
    found["error"] = str(error)
"""
PRINT = "print(json.dumps(found))"


@pytest.fixture(scope="module")
def fresh_import() -> dict[str, Any]:
    return json.loads(output(sys.executable, "-c", IMPORT + PRINT))


def test_only_the_stable_abi_of_torch_is_used() -> None:
    wanted = [line.split()[-1] for line in output("nm", "-D", "--undefined-only", str(native.PATH)).splitlines()]
    of_torch = [name for name in wanted if any(part in name for part in ("c10", "torch", "caffe", "2at"))]
    assert of_torch
    assert not [name for name in of_torch if not name.startswith(("aoti_torch_", "torch_"))]
    assert not [name for name in wanted if name.startswith(("Py", "_Py"))]


def test_visible_symbols_have_our_names() -> None:
    """C functions, and the toolkit that extensions are linked to."""
    defined = [line.split()[-1] for line in output("nm", "-D", "--defined-only", str(native.PATH)).splitlines()]
    ours = [name for name in defined if "ndd" in name]
    assert ours
    assert all(name.startswith("ndd_") or "3ndd" in name for name in ours)


def test_libraries_that_are_needed() -> None:
    needed = [line for line in output("readelf", "-d", str(native.PATH)).splitlines() if "NEEDED" in line]
    assert any("[libtorch.so]" in line for line in needed)
    assert not any("nvimgcodec" in line or "python" in line or "cudart" in line for line in needed)


def test_version_is_that_of_the_metadata() -> None:
    assert ndd.__version__ == importlib.metadata.version("torch_ndd")


def test_a_kernel_has_the_same_parameters_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(native.KERNELS, ("brightness", "CUDA"), "Tensor,int")
    with pytest.raises(ImportError, match=r"ndd::brightness needs .*, found \(Tensor,Tensor\?,.*\) and \(Tensor,int\)"):
        native.parameters("brightness")
    with pytest.raises(ImportError, match=r"ndd::brightnes needs .*, found none; rebuild the library"):
        native.kernel("brightnes")
    with pytest.raises(ImportError, match="the kernel of ndd::flip should fill parameter -3, which must be a Tensor, but is of type str"):
        native.kernel("flip", writes=(-3,))


def test_a_body_needs_launch_where_the_kernel_takes_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPERATORS["brightness"], "automatic", None)
    with pytest.raises(TypeError, match="brightness: the kernel has other parameters than the function; return launch"):
        ndd.brightness(torch.zeros(2, 3, 1))


def test_missing_library_is_an_import_error(forks: Forks, tmp_path: Path) -> None:
    missing = tmp_path / "_C.so"
    run = forks.run(IMPORT_AGAIN, variables={"TORCH_NDD_LIBRARY": str(missing)})
    assert run.wait() == 1
    assert f"{missing} is missing" in run.errors
    assert "pip install" in run.errors


def test_import_starts_no_threads_and_loads_no_codecs(fresh_import: dict[str, Any]) -> None:
    assert fresh_import["threads"] == 0
    assert native.PATH.name in fresh_import["libraries"]
    assert "libnvimgcodec.so" not in fresh_import["libraries"]
    assert "nvidia.dali" not in fresh_import["modules"]


def test_import_does_not_import_the_compiler(fresh_import: dict[str, Any]) -> None:
    assert "torch" in fresh_import["modules"]
    assert "torch._dynamo" not in fresh_import["modules"]
    assert "sympy" not in fresh_import["modules"]


@pytest.mark.slow
def test_the_compiler_may_be_imported_last() -> None:
    found = json.loads(output(sys.executable, "-c", IMPORT + COMPILE + PRINT))
    assert "torch._dynamo" not in found["modules"]
    assert found["compiler"]
    assert found["compiles"]
    assert "it reads the random numbers" in found["error"]


def test_a_wheel_has_the_library_alone(tmp_path: Path) -> None:
    """What a wheel takes of Python files; nothing is compiled for it."""
    code = f"from scikit_build_core.build import build_wheel; build_wheel({str(tmp_path)!r}, {{'wheel.cmake': 'false'}})"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=True, capture_output=True, timeout=120)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    assert "torch_ndd/__init__.py" in names
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"torch_ndd"}
    assert not [name for name in names if "bench" in name]
    assert any(name.endswith("/THIRD_PARTY_NOTICES.txt") for name in names)


def test_import_leaves_benchmarks_and_tests_alone(fresh_import: dict[str, Any]) -> None:
    loaded = {name.partition(".")[0] for name in fresh_import["modules"]}
    assert "torch_ndd" in loaded
    assert not loaded & {"benchmarks", "tests", "pytest", "rich", "psutil"}


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


def test_misspelled_names_have_a_suggestion() -> None:
    with pytest.raises(AttributeError, match="'gausian_blur'; did you mean 'gaussian_blur'"):
        _ = ndd.gausian_blur
    with pytest.raises(AttributeError, match=r"has no attribute 'qqqq'$"):
        _ = ndd.qqqq
