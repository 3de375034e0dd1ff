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
@pytest.mark.parametrize("kernel", ["pointwise_detail7run_gpu", "convert_gpu"])
def test_pointwise_kernels_access_16_bytes(cuobjdump: str, kernel: str) -> None:
    for code in code_of(cuobjdump, kernel):
        loads, stores = re.findall(r"\bLDG\.E\.128", code), re.findall(r"\bSTG?\.E\.128", code)
        assert len(loads) >= 6
        assert len(stores) >= 9  # every one of the nine common pairs
        assert "LDL" not in code  # registers spilled to memory
        assert "STL" not in code


# One of each is for 1, 3 and 4 channels and nearest and linear: every one stores 16 bytes at once, and two pixels of four channels are two loads.
@pytest.mark.parametrize(("types", "load", "mix"), [("hh", "LDG.E.CONSTANT", "IDP.2A"), ("ff", "LDG.E.128.CONSTANT", "FFMA")])
def test_warp_kernels_store_16_bytes(cuobjdump: str, types: str, load: str, mix: str) -> None:
    for code in code_of(cuobjdump, f"warp11tile_kernelI{types}NS_9AffineMapILi2E"):
        assert len(re.findall(r"\bSTG\.E\.128", code)) >= 6
        assert len(re.findall(rf"\b{re.escape(load)}\b", code)) >= 20
        assert mix in code
        assert "LDL" not in code  # registers spilled to memory
        assert "STL" not in code
