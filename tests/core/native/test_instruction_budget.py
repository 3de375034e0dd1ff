# SPDX-License-Identifier: Apache-2.0
"""What the main loops of CUDA kernels may take: instructions for each byte that they move, and the width of their accesses.

At the bandwidth of its memory an H100 has some 9 instructions for each byte that is read or written (computed), and covers the latency only with wide
accesses. ``instruction_budget.csv`` has a row for each kernel of the drivers below; a failure prints the row to add or to change.
"""

import csv
import re
from functools import cache
from pathlib import Path

import _machine_code
import pytest
from _machine_code import Cost
from conftest import HAS_CUDA_KERNELS

from torch_ndd._core import native

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_CUDA_KERNELS, reason="the library was built without nvcc"),
    pytest.mark.skipif(_machine_code.find_cuobjdump() is None, reason="pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm"),
]

# Of their kernels the loop over a tile is measured, for each byte of the results: it takes far more than the loops that read and write global memory.
TILES = ("5bytes11windows_gpu", "9byte_blur8blur_gpu")
# Drivers of which every kernel has a row.
DRIVERS = (
    *("16pointwise_detail", "6pixels7map_gpu", "12noise_detail", "13random_detail", "14arithmetic_gpu", "byte_extremes_gpu", "byte_stretch_gpu"),
    *("9slice_gpu", "9run_bytes", "9fold_rows", "11byte_kernel", "blend_batch_kernels", *TILES),
)
MAX_RATIO = 2.0  # of its row: compilers differ by a few instructions


def read_budget() -> dict[str, Cost]:
    """Return the rows by the regular expression that their kernels' mangled names match."""
    with (Path(__file__).parent / "instruction_budget.csv").open() as file:
        return {row["kernel"]: Cost(float(row["instructions per byte"]), int(row["bytes per access"])) for row in csv.DictReader(file)}


BUDGET = read_budget()


@cache
def measure_kernels() -> dict[str, Cost | None]:
    """Return the costs of all kernels that a row or a driver names: one call of cuobjdump, which takes seconds."""
    library = str(native.PATH)
    names = [name for name in _machine_code.kernel_names(library) if any(re.search(pattern, name) for pattern in (*BUDGET, *DRIVERS))]
    codes = _machine_code.codes_by_name(library, names)
    return {
        name: (_machine_code.tile_cost_of if any(tile in name for tile in TILES) else _machine_code.cost_of)(code) for name, code in codes.items()
    }


@pytest.mark.parametrize("kernel", BUDGET)
def test_kernel_stays_within_its_instruction_budget(kernel: str) -> None:
    budget = BUDGET[kernel]
    found = {name: cost for name, cost in measure_kernels().items() if re.search(kernel, name)}
    assert found, f"{kernel} matches no kernel of the library"
    for name, cost in found.items():
        assert cost is not None, f"{name} has no loop with accesses to global memory"
        row = f"{kernel},{cost.instructions_per_byte:.1f},{cost.bytes_per_access}"
        assert cost.instructions_per_byte < MAX_RATIO * budget.instructions_per_byte, f"{name}: more instructions than its row; now {row}"
        assert cost.bytes_per_access >= budget.bytes_per_access, f"{name}: narrower accesses than its row; now {row}"


def test_every_kernel_of_the_drivers_has_a_budget() -> None:
    kernels = {name: cost for name, cost in measure_kernels().items() if any(driver in name for driver in DRIVERS)}
    assert kernels
    missing = [f"{name},{cost.instructions_per_byte:.1f},{cost.bytes_per_access}" for name, cost in kernels.items() if cost and not _find_row(name)]
    assert not missing, "add to instruction_budget.csv:\n" + "\n".join(missing)


def _find_row(name: str) -> str | None:
    return next((kernel for kernel in BUDGET if re.search(kernel, name)), None)


@pytest.mark.parametrize(
    ("change", "message"),
    [(Cost(2.0, 16), None), (Cost(3.9, 16), None), (Cost(4.0, 16), "more instructions"), (Cost(2.0, 8), "narrower accesses"), (None, "no loop")],
)
def test_budget_rejects_twice_the_instructions_and_narrower_accesses(
    monkeypatch: pytest.MonkeyPatch, change: Cost | None, message: str | None
) -> None:
    monkeypatch.setitem(BUDGET, "some_kernel", Cost(2.0, 16))
    monkeypatch.setitem(globals(), "measure_kernels", lambda: {"_Z11some_kernel": change})
    if message is None:
        test_kernel_stays_within_its_instruction_budget("some_kernel")
    else:
        with pytest.raises(AssertionError, match=message):
            test_kernel_stays_within_its_instruction_budget("some_kernel")
