# SPDX-License-Identifier: Apache-2.0
"""The SASS of CUDA kernels that should run at memory bandwidth, inspected without a GPU."""

import importlib.util
import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import HAS_CUDA_KERNELS

from torch_ndd._core import native

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HAS_CUDA_KERNELS, reason="the library was built without nvcc")]


@pytest.fixture(scope="module")
def cuobjdump() -> str:
    spec = importlib.util.find_spec("nvidia")
    found = [path for root in (spec.submodule_search_locations or [] if spec else []) for path in Path(root).glob("cu*/bin/cuobjdump")]
    if not found:
        pytest.skip("pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")
    return str(found[0])


def dump(cuobjdump: str, *options: str) -> str:
    environment = {**os.environ, "PATH": f"{Path(cuobjdump).parent}:{os.environ['PATH']}"}  # where nvdisasm lies
    return subprocess.run([cuobjdump, *options, str(native.PATH)], env=environment, capture_output=True, text=True, check=True).stdout


def code_of(cuobjdump: str, *texts: str) -> list[str]:
    """Return the SASS of every kernel whose mangled name contains all texts, for one architecture each."""
    names = {name for name in re.findall(r"Function (\w+):", dump(cuobjdump, "--dump-resource-usage")) if all(text in name for text in texts)}
    assert names, f"no kernel {' '.join(texts)} in the library"
    listing = dump(cuobjdump, "--dump-sass", "-fun", ",".join(sorted(names)))
    return [part for part in listing.split("Function :")[1:] if any(part.strip().startswith(name) for name in names)]


# uint8 to uint8, float32 to any, float16 to float16 and uint8 load 16 bytes at a time; if the other side is wider, 8 or 4.
@pytest.mark.parametrize("kernel", ["pointwise_detail7run_gpu", "11convert_gpu"])
def test_pointwise_kernels_access_16_bytes(cuobjdump: str, kernel: str) -> None:
    for code in code_of(cuobjdump, kernel):
        loads, stores = re.findall(r"\bLDG\.E\.128", code), re.findall(r"\bSTG?\.E\.128", code)
        assert len(loads) >= 6
        assert len(stores) >= 9  # every one of the nine common pairs
        assert "LDL" not in code  # registers spilled to memory
        assert "STL" not in code


def test_slices_are_read_in_16_bytes(cuobjdump: str) -> None:
    copies = code_of(cuobjdump, "slice_gpu", "copy_gpu")
    assert len(copies) == 1
    for code in copies:
        assert re.search(r"\bLDG\.E\.128", code)
        *_, stored = re.finditer(r"\bSTG?\.E\.128", code)
        # Values found once per 4096 bytes may be on the stack, but nothing in the loop over them.
        assert "LDL" not in code[code.index("LDG.E.128") : stored.end()]
    rows = code_of(cuobjdump, "slice_gpu", "rows_gpu")
    assert len(rows) == 13  # four sizes of items, nine pairs of types
    for code in rows:
        assert len(re.findall(r"\bLDG\.E\.128", code)) >= 4  # several rows in flight together
        assert re.search(r"\bSTS\.128", code)
        assert "LDL" not in code


def test_transposed_planes_are_read_in_16_bytes(cuobjdump: str) -> None:
    for code in code_of(cuobjdump, "slice_gpu", "planes_gpu"):
        assert len(re.findall(r"\bLDG\.E\.128", code)) >= 7  # a tile at a time
        assert "LDL" not in code


def test_layers_are_read_and_written_in_16_bytes(cuobjdump: str) -> None:
    for code in code_of(cuobjdump, "run_bytes"):
        assert len(re.findall(r"\bLDG\.E\.128", code)) >= 4  # two vectors, each from two aligned ones
        assert len(re.findall(r"\bSTG\.E\.128", code)) >= 2


def test_reductions_keep_four_loads_in_flight(cuobjdump: str) -> None:
    for code in code_of(cuobjdump, "fold_rows"):
        assert any(sum("LDG.E.128" in line for line in loop) >= 4 for loop in loops(code))


# In tiles in shared memory: windows slide in registers, and spill to local memory if an index is not a compile-time constant or registers run out.
# Bytes are loaded as words, 16 loads together.
@pytest.mark.parametrize("kernel", ["separable_kernel", "window_kernel"])
def test_filters_keep_their_windows_in_registers(cuobjdump: str, kernel: str) -> None:
    for code in code_of(cuobjdump, kernel):
        assert "LDL" not in code
        assert "STL" not in code
        assert len(re.findall(r"\bLDG\.E\.(?:U16\.|64\.)?CONSTANT", code)) >= 16


def test_blurs_are_unrolled(cuobjdump: str) -> None:
    for code in code_of(cuobjdump, "4BlurI"):
        assert len(re.findall(r"\bFFMA\b", code)) >= 512  # 16 taps of 16 outputs, along width and height


def loops(code: str) -> list[list[str]]:
    """Return the instructions of every innermost loop: from the target of a branch back to that branch."""
    lines = [(int(at, 16), text.strip()) for at, text in re.findall(r"/\*([0-9a-f]{4,5})\*/\s+(.*?);", code)]
    back = [(int(to.group(1), 16), at) for at, text in lines if (to := re.search(r"\bBRA.*?0x([0-9a-f]+)", text)) and int(to.group(1), 16) < at]
    innermost = [(begin, end) for begin, end in back if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in back)]
    return [[text for at, text in lines if begin <= at <= end] for begin, end in innermost]


# Sixteen multiply-adds per tap share one load of the weights; columns are mixed in loads of four rows.
@pytest.mark.parametrize(("elements", "load"), [("h", "LDG.E.CONSTANT"), ("f", "LDG.E.CONSTANT"), ("NS_4HalfE", "LDG.E.U16.CONSTANT")])
def test_tiles_of_resize_mix_in_registers(cuobjdump: str, elements: str, load: str) -> None:
    for code in code_of(cuobjdump, f"tile_kernelI{elements}Lb"):
        mixing = [loop for loop in loops(code) if sum("FFMA" in line for line in loop) >= 8]
        rows = [loop for loop in mixing if any(load in line for line in loop)]
        columns = [loop for loop in mixing if sum("LDS.128" in line for line in loop) >= 4]
        assert rows
        assert len(columns) >= 2  # one element of a pixel, and three
        for loop in mixing:
            assert not any(re.search(r"\b(LDL|STL|MUFU|CALL|LD|ST)\b", line) for line in loop)
        best = min(len(loop) / sum("FFMA" in line for line in loop) for loop in rows)
        assert best <= (4.2 if elements == "h" else 6.5)  # instructions a multiply-add


@pytest.mark.parametrize(("unit", "store"), [("h", r"STG?\.E "), ("j", r"STG?\.E\.128"), ("m", r"STG?\.E\.128")])
def test_nearest_neighbours_are_stored_by_vectors(cuobjdump: str, unit: str, store: str) -> None:
    for code in code_of(cuobjdump, f"nearest_kernelI{unit}E"):
        assert re.search(store, code)
        assert not re.search(r"\b(LDL|STL)\b", code)


def test_linear_reductions_keep_their_columns_in_registers(cuobjdump: str) -> None:
    for elements in ("h", "f", "NS_4HalfE"):
        for code in code_of(cuobjdump, f"linear_kernelI{elements}Li3"):
            assert any(sum(".CONSTANT" in line for line in loop) == 24 for loop in loops(code))  # two rows at a time, of four pixels each
            assert not re.search(r"\b(LDL|STL)\b", code)


# Variants for 1, 3 and 4 channels and nearest and linear: each stores 16 bytes at a time, and two pixels of four channels are two loads.
@pytest.mark.parametrize(("types", "load", "mix"), [("hh", "LDG.E.CONSTANT", "IDP.2A"), ("ff", "LDG.E.128.CONSTANT", "FFMA")])
def test_warp_kernels_store_16_bytes(cuobjdump: str, types: str, load: str, mix: str) -> None:
    for code in code_of(cuobjdump, f"warp11tile_kernelI{types}NS_9AffineMapILi2E"):
        assert len(re.findall(r"\bSTG\.E\.128", code)) >= 6
        assert len(re.findall(rf"\b{re.escape(load)}\b", code)) >= 20
        assert mix in code
        # Registers spilled to memory: one number once for each tile of float32, which is put away and fetched outside of the loops.
        assert len(re.findall(r"\b(?:LDL|STL)\b", code)) <= (4 if types == "ff" else 0)
        assert not any(re.search(r"\b(LDL|STL)\b", line) for loop in loops(code) for line in loop)


# Types known at run time: each thread has 4 neighbors of each type, 16 bytes of float32; 64-bit types take two accesses.
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
        if kernel == "fold_rows":  # numbers of a row may be on the stack, but nothing in the loops over its elements
            reading = [loop for loop in loops(code) if any("LDG.E.128" in line for line in loop)]
            assert reading
            assert not any(re.search(r"\b(LDL|STL)\b", line) for loop in reading for line in loop)
