# SPDX-License-Identifier: Apache-2.0
"""The SASS of CUDA kernels that should run at memory bandwidth, inspected without a GPU."""

import re

import _machine_code
import pytest
from _machine_code import loops
from conftest import HAS_CUDA_KERNELS

from torch_ndd._core import native

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_CUDA_KERNELS, reason="the library was built without nvcc"),
    pytest.mark.skipif(_machine_code.find_cuobjdump() is None, reason="pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"),
]


LIBRARY = str(native.PATH)


def code_of(*texts: str) -> list[str]:
    return _machine_code.code_of(LIBRARY, *texts)


def test_machine_code_is_compressed() -> None:
    """Uncompressed it takes 14 MB of the library, compressed less than 3."""
    data = native.PATH.read_bytes()
    headers = [found.start() for found in re.finditer(rb"\x7fELF\x02", data)]
    machine_of_cuda = 190
    assert not [at for at in headers if int.from_bytes(data[at + 18 : at + 20], "little") == machine_of_cuda]
    assert len(data) < 25 << 20


# uint8 to uint8, float32 to any, float16 to float16 and uint8 load 16 bytes at a time; if the other side is wider, 8 or 4.
@pytest.mark.parametrize("kernel", ["pointwise_detail7run_gpu", "cast_kernels"])
def test_pointwise_kernels_access_16_bytes(kernel: str) -> None:
    for code in code_of(kernel):
        loads, stores = re.findall(r"\bLDG\.E\.128", code), re.findall(r"\bSTG?\.E\.128", code)
        assert len(loads) >= 6
        assert len(stores) >= 9  # every one of the nine common pairs
        assert "LDL" not in code  # registers spilled to memory
        assert "STL" not in code


def test_slices_are_read_in_16_bytes() -> None:
    copies = code_of("slice_gpu", "copy_gpu")
    assert len(copies) == 1
    for code in copies:
        assert re.search(r"\bLDG\.E\.128", code)
        *_, stored = re.finditer(r"\bSTG?\.E\.128", code)
        # Values found once per 4096 bytes may be on the stack, but nothing in the loop over them.
        assert "LDL" not in code[code.index("LDG.E.128") : stored.end()]
    rows = code_of("slice_gpu", "rows_gpu")
    assert len(rows) == 13  # four sizes of items, nine pairs of types
    for code in rows:
        assert len(re.findall(r"\bLDG\.E\.128", code)) >= 4  # several rows in flight together
        assert re.search(r"\bSTS\.128", code)
        assert "LDL" not in code


def test_transposed_planes_are_read_in_16_bytes() -> None:
    for code in code_of("slice_gpu", "planes_gpu"):
        assert len(re.findall(r"\bLDG\.E\.128", code)) >= 7  # a tile at a time
        assert "LDL" not in code


def test_layers_are_read_and_written_in_16_bytes() -> None:
    for code in code_of("run_bytes"):
        assert len(re.findall(r"\bLDG\.E\.128", code)) >= 4  # two vectors, each from two aligned ones
        assert len(re.findall(r"\bSTG\.E\.128", code)) >= 2


def test_reductions_keep_four_loads_in_flight() -> None:
    for code in code_of("fold_rows"):
        assert any(sum("LDG.E.128" in line for line in loop) >= 4 for loop in loops(code))


# In tiles in shared memory: windows slide in registers, and spill to local memory if an index is not a compile-time constant or registers run out.
# Bytes are loaded as words, 16 loads together.
@pytest.mark.parametrize("kernel", ["separable_kernel", "window_kernel"])
def test_filters_keep_their_windows_in_registers(kernel: str) -> None:
    for code in code_of(kernel):
        assert "LDL" not in code
        assert "STL" not in code
        assert len(re.findall(r"\bLDG\.E\.(?:U16\.|64\.)?CONSTANT", code)) >= 16


def test_blurs_are_unrolled() -> None:
    for code in code_of("4BlurI"):
        assert len(re.findall(r"\bFFMA\b", code)) >= 512  # 16 taps of 16 outputs, along width and height


# Sixteen multiply-adds per tap share one load of the weights; columns are mixed in loads of four rows.
@pytest.mark.parametrize(("elements", "load"), [("h", "LDG.E.CONSTANT"), ("f", "LDG.E.CONSTANT"), ("NS_4HalfE", "LDG.E.U16.CONSTANT")])
def test_tiles_of_resize_mix_in_registers(elements: str, load: str) -> None:
    for code in code_of(f"tile_kernelI{elements}Lb"):
        mixing = [loop for loop in loops(code) if sum("FFMA" in line for line in loop) >= 8]
        rows = [loop for loop in mixing if any(load in line for line in loop)]
        columns = [loop for loop in mixing if sum("LDS.128" in line for line in loop) >= 4]
        assert rows
        assert len(columns) >= 2  # one element of a pixel, and three
        for loop in mixing:
            assert not any(re.search(r"\b(LDL|STL|MUFU|CALL|LD|ST)\b", line) for line in loop)
        best = min(len(loop) / sum("FFMA" in line for line in loop) for loop in rows)
        assert best <= (4.2 if elements == "h" else 6.5)  # instructions a multiply-add


def test_bytes_of_torchs_rule_are_mixed_in_pairs() -> None:
    kernels = code_of("11byte_kernelILi3E")
    assert len(kernels) == 2  # weights in one part, and Pillow's in two
    for code in kernels:
        mixes = [loop for loop in loops(code) if any("IDP.2A" in text for text in loop)]
        # Columns of four rows of three colors, and rows of three colors.
        assert {sum("IDP.2A" in text for text in loop) for loop in mixes} in ({24, 6}, {48, 12})
        assert all(len(loop) <= 2.5 * sum("IDP.2A" in text for text in loop) for loop in mixes)
        assert "LDL" not in code


@pytest.mark.parametrize(("unit", "store"), [("h", r"STG?\.E "), ("j", r"STG?\.E\.128"), ("m", r"STG?\.E\.128")])
def test_nearest_neighbors_are_stored_as_vectors(unit: str, store: str) -> None:
    for code in code_of(f"nearest_kernelI{unit}E"):
        assert re.search(store, code)
        assert not re.search(r"\b(LDL|STL)\b", code)


def test_linear_reductions_keep_their_columns_in_registers() -> None:
    for elements in ("h", "f", "NS_4HalfE"):
        for code in code_of(f"linear_kernelI{elements}Li3"):
            assert any(sum(".CONSTANT" in line for line in loop) == 24 for loop in loops(code))  # two rows at a time, of four pixels each
            assert not re.search(r"\b(LDL|STL)\b", code)


# Variants for 1, 3 and 4 channels and nearest and linear: each stores 16 bytes at a time, and two pixels of four channels are two loads.
@pytest.mark.parametrize(("types", "load", "mix"), [("hh", "LDG.E.CONSTANT", "IDP.2A"), ("ff", "LDG.E.128.CONSTANT", "FFMA")])
def test_warp_kernels_store_16_bytes(types: str, load: str, mix: str) -> None:
    for code in code_of(f"warp11tile_kernelI{types}NS_9AffineMapILi2E"):
        assert len(re.findall(r"\bSTG\.E\.128", code)) >= 6
        assert len(re.findall(rf"\b{re.escape(load)}\b", code)) >= 20
        assert mix in code
        # Registers spilled to memory: one number once for each tile of float32, which is put away and fetched outside of the loops.
        assert len(re.findall(r"\b(?:LDL|STL)\b", code)) <= (4 if types == "ff" else 0)
        assert not any(re.search(r"\b(LDL|STL)\b", line) for loop in loops(code) for line in loop)


# Types known at run time: each thread has 4 neighbors of each type, 16 bytes of float32; 64-bit types take two accesses.
@pytest.mark.parametrize("kernel", ["normalize", "color_matrix_detail7run_gpu", "look_up_gpu", "random_detail7run_gpu"])
def test_tiled_kernels_access_16_bytes(kernel: str) -> None:
    codes = [code for code in code_of(kernel) if kernel != "normalize" or "5apply" in code.split()[0]]
    assert codes
    for code in codes:
        assert len(re.findall(r"\bSTG?\.E\.128", code)) >= 3


@pytest.mark.parametrize("kernel", ["fold_rows", "arithmetic_gpu7run_gpu"])
def test_kernels_that_read_more_than_they_write_read_16_bytes(kernel: str) -> None:
    for code in code_of(kernel):
        assert len(re.findall(r"\bLDG\.E\.128", code)) >= 3
        if kernel == "fold_rows":  # numbers of a row may be on the stack, but nothing in the loops over its elements
            reading = [loop for loop in loops(code) if any("LDG.E.128" in line for line in loop)]
            assert reading
            assert not any(re.search(r"\b(LDL|STL)\b", line) for loop in reading for line in loop)
