# SPDX-License-Identifier: Apache-2.0
"""The steps of CONTRIBUTING.md for adding an operator, taken in a copy of the checkout."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _cases import Case
from _forks import Forks
from conftest import CI, HAS_CUDA_KERNELS, ROOT

from torch_ndd._core import native

pytestmark = pytest.mark.slow

BUILD = ROOT / "build" / "dev"

# The files of an operator ``amplify`` in a family ``newcomer``, by the places that CONTRIBUTING.md names.
PLACES = {
    "torch_ndd/ops/<family>.py": '''
import torch

from .._core.operators.operator import DeviceLike, PerSample, T, operator
from ._formulas import Number, per_sample, saturate
from ._layouts import IMAGE_LAYOUTS
from ._outputs import like


def _amplify_formula(input: torch.Tensor, factor: Number, *, dtype: torch.dtype) -> torch.Tensor:
    return saturate(input.float() * per_sample(factor, input.dim(), device=input.device), dtype)


@operator(layouts=IMAGE_LAYOUTS, formula=_amplify_formula)
def amplify(input: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None, factor: PerSample[float] = 1.0) -> T:
    """Multiply images by a factor: ``out = factor * in``.

    >>> amplify(torch.tensor([[[10], [200]]], dtype=torch.uint8), factor=1.5).torch().flatten()
    tensor([ 15, 255], dtype=torch.uint8)
    """
    return like(input)
''',
    "csrc/ops/<family>/<op>.cu": """
#include "ndd/elementwise/pointwise.h"
#include "ndd/kernel.h"

namespace ndd::amplify_kernels {
namespace {

struct Amplified {
  float factor;
  NDD_HD float operator()(float v) const { return factor * v; }
};

void amplify(const Tensor& input, const MaybeTensor& input_shapes, const Tensor& factor, const Tensor& output, const MaybeTensor& output_shapes) {
  const Args<float> factors(factor);
  pointwise("amplify", Samples(input, input_shapes), Samples(output, output_shapes), {&factors},
            [=](int64_t i, int64_t f) { return Amplified{factors.of_frame(i, f)}; });
}

}  // namespace
}  // namespace ndd::amplify_kernels
NDD_KERNELS(amplify, ndd::amplify_kernels::amplify)
""",
    "tests/ops/test_<family>.py": """
import numpy as np
from _cases import Case, Each, images


def amplified(image: np.ndarray, factor: float) -> np.ndarray:
    return np.floor(image * np.float32(factor) + 0.5).clip(0, 255).astype(np.uint8)


CASES = [
    Case("amplify", "uint8", images("HWC"), {"factor": 1.3}, "HWC", amplified),
    Case("amplify", "each", images("FHWC"), {"factor": Each([0.5, 1.0, 2.0])}, "FHWC", amplified),
]
""",
}
FILES = {place.replace("<family>", "newcomer").replace("<op>", "amplify"): text for place, text in PLACES.items()}
FUNCTION, KERNEL, CASES = FILES
PYTEST = """
import importlib.machinery, os, sys
os.chdir(sys.argv[1])
sys.path.insert(0, sys.argv[1])
sys.meta_path.insert(0, importlib.machinery.PathFinder)  # an editable install has a finder that comes before the path
import pytest
sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[2:]]))
"""


@pytest.fixture
def pytests() -> Iterator[Forks]:
    """Processes that have not imported torch_ndd, because they take it from the copy."""
    with Forks("pytest", "torch._dynamo") as result:
        yield result


def add(copy: Path, place: str) -> Path:
    path = copy / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FILES[place])
    return path


def build(source: Path, library: Path) -> None:
    """Compile with the commands of another kernel, and link with the objects of the checkout: to compile them again takes many minutes."""
    ninja = shutil.which("ninja", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert ninja, "ninja is missing, with which the library was built"
    *units, link = subprocess.run([ninja, "-t", "commands", "torch_ndd"], cwd=BUILD, capture_output=True, text=True, check=True).stdout.splitlines()
    objects = []
    # As C++ and, where there is nvcc, for CUDA: alone, or with its family.
    for unit in (unit for unit in units if re.search(r"/csrc/ops/color/posterize\.cu\b|/torch_ndd_cuda\.dir/Unity/unity_color_cu\.cu\b", unit)):
        compiling = shlex.split(unit)
        result = source.with_suffix(f".{len(objects)}.o")
        for option, path in (("-c", source), ("-o", result), ("-MF", result.with_suffix(".d"))):
            compiling[compiling.index(option) + 1] = str(path)
        subprocess.run(compiling, cwd=source.parent, check=True)
        objects.append(str(result))
    assert len(objects) == 1 + HAS_CUDA_KERNELS
    linking = shlex.split(link)[2:-2]  # between ": &&" and "&& :"
    output = linking.index("-o") + 1
    linking[output : output + 1] = str(library), *objects
    subprocess.run(linking, cwd=BUILD, check=True)


def test_the_places_are_those_of_the_guide() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert re.findall(r"^\d\. \*\*`(.+?)`\*\*", text, re.MULTILINE) == list(PLACES)
    assert "`torch_ndd/__init__.py`" in text


@pytest.mark.skipif(not (BUILD / "build.ninja").exists() and not CI, reason="links with the objects in build/dev, which `make test` leaves there")
def test_an_operator_is_added(tmp_path: Path, pytests: Forks) -> None:
    for folder in ("torch_ndd", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.so*", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    library = tmp_path / "torch_ndd" / "_C.so"

    def run_tests(*arguments: str, library: Path = library) -> str:
        process = pytests.run(PYTEST, tmp_path, *arguments, "-k", "amplify", variables={"TORCH_NDD_LIBRARY": str(library)})
        process.wait(300)
        return process.output + process.errors

    with pytest.raises(LookupError, match=r"no operator amplify.*torch_ndd/__init__\.py"):
        _ = Case("amplify", "without a function").definition

    add(tmp_path, FUNCTION)
    with (tmp_path / "torch_ndd" / "__init__.py").open("a") as file:
        file.write("from .ops.newcomer import amplify as amplify\n")
    assert "ndd::amplify needs a kernel" in run_tests("tests/test_operators.py", library=native.PATH)

    build(add(tmp_path, KERNEL), library)
    assert "amplify has no case in tests/ops" in run_tests("tests/test_operators.py")

    add(tmp_path, CASES)
    project = [f"tests/project/test_{name}.py" for name in ("docstrings", "package")]
    output = run_tests("tests/test_operators.py", *project, "tests/ops/test_frame_counts.py", CASES)
    passed = re.search(r"= (\d+) passed(?!.* error)", output)  # failures come before, errors behind
    assert passed, output
    assert int(passed[1]) > 30, output
