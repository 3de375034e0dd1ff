# SPDX-License-Identifier: Apache-2.0
"""The machine code of CUDA kernels that are to run at the memory's bandwidth, which can be inspected without a GPU."""

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import HAS_CUDA_KERNELS

from torch_ndd import _native

pytestmark = pytest.mark.skipif(not HAS_CUDA_KERNELS, reason="the library was built without nvcc")


@pytest.fixture(scope="module")
def cuobjdump() -> str:
    spec = importlib.util.find_spec("nvidia")
    found = [path for root in (spec.submodule_search_locations or [] if spec else []) for path in Path(root).glob("cu*/bin/cuobjdump")]
    if not found:
        pytest.skip("pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")
    return str(found[0])


def dump(cuobjdump: str, *options: str) -> str:
    environment = {**os.environ, "PATH": f"{Path(cuobjdump).parent}:{os.environ['PATH']}"}  # where nvdisasm lies
    return subprocess.run([cuobjdump, *options, str(_native.PATH)], env=environment, capture_output=True, text=True, check=True).stdout


def code_of(cuobjdump: str, kernel: str) -> list[str]:
    """The code of every kernel whose mangled name contains the text, for one architecture each."""
    names = {name for name in re.findall(r"Function (\w+):", dump(cuobjdump, "--dump-resource-usage")) if kernel in name}
    assert names, f"no kernel {kernel} in the library"
    listing = dump(cuobjdump, "--dump-sass", "-fun", ",".join(sorted(names)))
    return [part for part in listing.split("Function :")[1:] if any(part.strip().startswith(name) for name in names)]


# uint8 to uint8, float32 to any, float16 to float16 and uint8 read 16 bytes at once; what is wider on the other side, 8 or 4.
@pytest.mark.parametrize("kernel", ["pointwise_detail7run_gpu", "11convert_gpu"])
def test_pointwise_kernels_access_16_bytes(cuobjdump: str, kernel: str) -> None:
    for code in code_of(cuobjdump, kernel):
        loads, stores = re.findall(r"\bLDG\.E\.128", code), re.findall(r"\bSTG?\.E\.128", code)
        assert len(loads) >= 6
        assert len(stores) >= 9  # every one of the nine common pairs
        assert "LDL" not in code  # registers spilled to memory
        assert "STL" not in code


# Types known at run time: 4 neighbours of each type a thread, which are 16 bytes of float32; of 64-bit types two accesses.
@pytest.mark.parametrize("kernel", ["normalize", "color_matrix_detail7run_gpu", "look_up_gpu", "random_detail7run_gpu"])
def test_tiled_kernels_access_16_bytes(cuobjdump: str, kernel: str) -> None:
    codes = [code for code in code_of(cuobjdump, kernel) if kernel != "normalize" or "5apply" in code.split()[0]]
    assert codes
    for code in codes:
        assert len(re.findall(r"\bSTG?\.E\.128", code)) >= 3


@pytest.mark.parametrize("kernel", ["fold_rows", "arithmetic_gpu7run_gpu"])
def test_kernels_that_read_more_than_they_write_read_16_bytes(cuobjdump: str, kernel: str) -> None:
    for code in code_of(cuobjdump, kernel):
        assert len(re.findall(r"\bLDG\.E\.128", code)) >= 3
        if kernel == "fold_rows":
            assert "LDL" not in code
            assert "STL" not in code
