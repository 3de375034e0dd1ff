# SPDX-License-Identifier: Apache-2.0
"""The race of kernel variants (benchmarks/cuda/variants.py) on the emulator: what it packs as parameters, and whether all variants are equal.

What can be wrong before the first minute on a GPU is found here. `make emulated-cuda` runs this.
"""

import ctypes
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import emulated_plugin
import pytest
import torch
from rewrite import rewrite

from benchmarks.cuda import variants
from benchmarks.cuda.variants import Contest, Launch, Result, Variant
from torch_ndd._core import native

# The kernel of each contest, as C++ names it.
KERNELS = {
    "mixup, uint8 to float32": "ndd::blend_batch_kernels::blend_gpu<uint8_t, float>",
    "resize, linear": "ndd::resample_gpu::linear_kernel<uint8_t, 3, ndd::resample_gpu::TiledSample>",
}
# Kernels of operators are those of the library already. Tables have the size that they have on a GPU.
PROLOGUE = """#include "cuda_runtime.h"
#undef NDD_TABLE_BYTES
#define NDD_TABLE_BYTES 4096
#include "ndd/kernel.h"
#undef NDD_KERNEL
#define NDD_KERNEL(...)
"""
LAUNCH = """
template <class... A, size_t... k>
void call(void (*kernel)(A...), void** values, std::index_sequence<k...>) {{
  kernel(*static_cast<std::remove_const_t<std::remove_reference_t<A>>*>(values[k])...);
}}
template <class... A>
void call(void (*kernel)(A...), void** values) {{
  call(kernel, values, std::index_sequence_for<A...>());
}}
extern "C" __attribute__((visibility("default"))) void ndd_launch_variant(unsigned x, unsigned y, unsigned z, unsigned block, void** values) {{
  ::ndd_emulator::Launch("variant", dim3(x, y, z), dim3(block)).run([&] {{ call({kernel}, values); }});
}}
"""


class EmulatedDevice:
    """Takes the place of the GPU. A launch takes as long as it has blocks."""

    name = "cpu"

    def __init__(self) -> None:
        self.memory: list[torch.Tensor] = []
        self.blocks = 0

    def load(self, cubin: Path, kernel: str) -> Any:
        assert kernel == cubin.stem
        return ctypes.CDLL(str(cubin)).ndd_launch_variant

    def launch(self, kernel: Any, launch: Launch) -> None:
        self.blocks += launch.grid[0] * launch.grid[1] * launch.grid[2]
        addresses = (ctypes.c_void_p * len(launch.parameters))(*(ctypes.addressof(value) for value in launch.parameters))
        *inputs, out = self.memory
        with emulated_plugin.known_memory(inputs, [out]):
            emulated_plugin._library.ndd_emulator_begin(2)  # blocks and threads in random order
            try:
                kernel(*launch.grid, launch.block, addresses)
            finally:
                complaint = emulated_plugin._library.ndd_emulator_end()
        assert not complaint, complaint.decode()

    def seconds(self, work: Callable[[], None]) -> float:
        before = self.blocks
        work()
        return float(self.blocks - before)


def build(folder: Path, contest: Contest) -> None:
    """Compile the variants for the emulator, as variants.build() does for a GPU."""
    csrc = native.PATH.parents[1] / "csrc"
    manifest: dict[str, dict[str, str]] = {}
    for k, variant in enumerate(contest.variants):
        scratch = folder / f"source_{k}"
        source = variants.write_source(scratch, contest, variant)
        changed = scratch / variant.file
        changed.write_text(rewrite(changed.read_text(), variant.file))
        explicit = source.read_text().replace("__global__ ", "")
        emulated = scratch / "variant.cpp"
        emulated.write_text(f"{PROLOGUE}{explicit}{LAUNCH.format(kernel=KERNELS[contest.name])}")
        torch_include = Path(torch.__file__).parent / "include"
        options = ["-O1", "-std=c++17", "-fPIC", "-shared", "-w", "-ffp-contract=off", "-fno-math-errno", "-fsanitize=thread", "-fvisibility=hidden"]
        options += ["-DTORCH_TARGET_VERSION=0x020b000000000000", f"-I{scratch}", f"-I{csrc}", f"-isystem{torch_include}"]
        # Linked without -fsanitize, whose functions are the emulator's.
        compiled = scratch / "variant.o"
        subprocess.run(["g++", *(option for option in options if option != "-shared"), "-c", str(emulated), "-o", str(compiled)], check=True)
        subprocess.run(["g++", "-shared", str(compiled), str(native.PATH), "-o", str(folder / f"{k}.so")], check=True)
        manifest[variant.name] = {"cubin": f"{k}.so", "kernel": str(k)}
    (folder / "manifest.json").write_text(json.dumps({contest.name: manifest}))


def race(folder: Path, contest: Contest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Result]:
    """Build and race a contest on small images."""
    monkeypatch.setattr(variants, "_SIDE", 80)  # whole words, and tiles that the images do not fill
    monkeypatch.setattr(variants, "_RESIZED", 36)
    monkeypatch.setattr(variants, "_multiprocessors", lambda: 2)
    build(folder, contest)
    device = EmulatedDevice()

    def prepare(images: torch.Tensor, out: torch.Tensor, variant: Variant) -> Launch:
        device.memory = [images, out]
        return contest.prepare(images, out, variant)

    # The operator runs its CUDA kernel as well: that of the CPU may round the last bit of a resize differently.
    return variants.race(folder, device, replace(contest, prepare=prepare), rotated_bytes=1, rounds=1)


@pytest.mark.parametrize("contest", variants.CONTESTS, ids=lambda contest: contest.name)
def test_all_variants_equal_the_operator(contest: Contest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = race(tmp_path, contest, monkeypatch)
    assert len(results) == len(contest.variants)
    assert [name for name, result in results.items() if not result.equal] == []
    assert all(result.seconds > 0 for result in results.values())


def test_a_variant_that_leaves_elements_out_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contest = variants.CONTESTS[0]

    def prepare(images: torch.Tensor, out: torch.Tensor, variant: Variant) -> Launch:
        launch = contest.prepare(images, out, variant)
        return Launch(launch.grid, launch.block, [*launch.parameters[:-1], ctypes.c_int64(launch.parameters[-1].value - 16)])

    (result,) = race(tmp_path, replace(contest, variants=contest.variants[:1], prepare=prepare), monkeypatch).values()
    assert not result.equal
