# SPDX-License-Identifier: Apache-2.0
"""The race between variants of kernels where there is no GPU: what is compiled, compared and measured."""

import ctypes
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.cuda import variants
from benchmarks.cuda.variants import BatchTiles, Contest, Launch, Variant


class HostDevice:
    """Takes the place of the GPU: kernels are functions of a launch's two tensors, and a launch takes a second more than the one before."""

    name = "cpu"

    def __init__(self, kernels: dict[str, Callable[[torch.Tensor, torch.Tensor], None]]) -> None:
        self.kernels, self.log, self.clock = kernels, [], 0.0

    def load(self, cubin: Path, kernel: str) -> Any:
        assert cubin.name == f"{kernel}.cubin"
        return kernel

    def launch(self, kernel: Any, launch: Launch) -> None:
        self.log.append(kernel)
        self.kernels[kernel](*launch.parameters)

    def seconds(self, work: Callable[[], None]) -> float:
        begin = len(self.log)
        work()
        self.clock += 1.0
        return self.clock * (len(self.log) - begin)


def add_one(source: torch.Tensor, out: torch.Tensor) -> None:
    torch.add(source, 1, out=out)


def leave_the_last(source: torch.Tensor, out: torch.Tensor) -> None:
    torch.add(source[:-1], 1, out=out[:-1])


@pytest.fixture
def contest(tmp_path: Path) -> Contest:
    entrants = [Variant("shipped", "a.cu"), Variant("other", "a.cu"), Variant("wrong", "a.cu")]
    manifest = {"sum": {variant.name: {"cubin": f"{variant.name}.cubin", "kernel": variant.name} for variant in entrants}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    return Contest(
        "sum",
        "",
        "",
        {},
        entrants,
        lambda k, device: torch.full((100,), float(k), device=device),
        lambda source: source + 1,
        lambda source, out, variant: Launch((1, 1, 1), 1, [source, out]),
    )


def test_variants_take_turns_over_rotated_input(tmp_path: Path, contest: Contest) -> None:
    device = HostDevice({"shipped": add_one, "other": add_one, "wrong": leave_the_last})
    results = variants.race(tmp_path, device, contest, rotated_bytes=1000, rounds=3)
    # Three inputs of 400 bytes are more than 1000; each variant runs on all of them for the comparison, then in turns.
    order = ["shipped", "other", "wrong"]
    expected = [name for name in [*order, *order, *reversed(order), *order] for _ in range(3)]
    assert device.log == expected
    # The nine turns took 1 to 9 seconds for each launch: the first variant had the 1st, the 6th and the 7th.
    assert [results[name].seconds for name in order] == [6.0, 5.0, 4.0]


def test_output_that_was_not_written_differs(tmp_path: Path, contest: Contest) -> None:
    device = HostDevice({"shipped": add_one, "other": add_one, "wrong": leave_the_last})
    results = variants.race(tmp_path, device, contest, rotated_bytes=1000, rounds=1)
    assert [result.equal for result in results.values()] == [True, True, False]


def test_constants_are_replaced_where_they_are_defined() -> None:
    for contest in variants.CONTESTS:
        for variant in contest.variants:
            text = (variants.CSRC / variant.file).read_text()
            changed = variants.replace_constants(text, variant)
            assert (changed == text) == (not variant.constants)
    with pytest.raises(ValueError, match="kMissing is defined 0 times"):
        variants.replace_constants("int kElements = 16;", Variant("x", "a.cu", {"kMissing": "1"}))


@pytest.mark.parametrize(("elements", "tile", "runs"), [(1, 4096, 16), (691_200, 4096, 16), (691_200, 2048, 3), (4096 * 7 + 1, 4096, 5)])
def test_tiles_divide_as_the_kernel_does(elements: int, tile: int, runs: int) -> None:
    tiles = BatchTiles.of(elements, tile, runs)
    assert tiles.total == tiles.value * runs
    for n in range(tiles.total):
        assert ((n * tiles.magic >> 32) + n) >> tiles.shift == n // tiles.value


def test_table_that_exceeds_the_parameters_is_rejected() -> None:
    rows = [variants.Blend() for _ in range(variants.TABLE_BYTES // ctypes.sizeof(variants.Blend) + 1)]
    with pytest.raises(ValueError, match="do not fit"):
        variants.pack_table(rows)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="compiles kernels")
def test_build_writes_a_kernel_for_each_variant_and_checks_structures(tmp_path: Path) -> None:
    nvcc, include = str(shutil.which("nvcc")), [Path(torch.__file__).parent / "include"]
    contest = variants.CONTESTS[1]
    small = replace(contest, variants=contest.variants[:1])
    variants.build(tmp_path, nvcc, include, [small])
    entry = json.loads((tmp_path / "manifest.json").read_text())[contest.name][contest.variants[0].name]
    assert (tmp_path / entry["cubin"]).stat().st_size > 1000
    assert "linear_kernel" in entry["kernel"]

    class Shorter(ctypes.Structure):
        _fields_ = (("in_", ctypes.c_int64),)

    with pytest.raises(subprocess.CalledProcessError):
        variants.build(tmp_path, nvcc, include, [replace(small, structures={"ndd::Axis": Shorter})])
