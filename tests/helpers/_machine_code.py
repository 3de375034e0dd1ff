# SPDX-License-Identifier: Apache-2.0
"""The machine code (SASS) of the CUDA kernels in a library, read with cuobjdump; no GPU is needed.

``python tests/helpers/_machine_code.py LIBRARY REGEX`` prints the costs of all kernels whose mangled names match.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# Bytes of an access by the suffix of its instruction; 4 without one.
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


def find_cuobjdump() -> str | None:
    """Return the path of cuobjdump from the package nvidia-cuda-cuobjdump, or None."""
    spec = importlib.util.find_spec("nvidia")
    found = [path for root in (spec.submodule_search_locations or [] if spec else []) for path in Path(root).glob("cu*/bin/cuobjdump")]
    return str(found[0]) if found else None


@cache
def _dump(library: str, *options: str) -> str:
    cuobjdump = find_cuobjdump()
    assert cuobjdump is not None
    environment = {**os.environ, "PATH": f"{Path(cuobjdump).parent}:{os.environ['PATH']}"}  # where nvdisasm lies
    return subprocess.run([cuobjdump, *options, library], env=environment, capture_output=True, text=True, check=True).stdout


def kernel_names(library: str) -> list[str]:
    """Return the mangled names of all kernels."""
    return sorted(set(re.findall(r"Function (\w+):", _dump(library, "--dump-resource-usage"))))


def codes_by_name(library: str, names: Iterable[str]) -> dict[str, str]:
    """Return the SASS of kernels, for one architecture each."""
    listing = _dump(library, "--dump-sass", "-fun", ",".join(sorted(names)))
    return {part.split(maxsplit=1)[0]: part for part in listing.split("Function :")[1:]}


def code_of(library: str, *texts: str) -> list[str]:
    """Return the SASS of every kernel whose mangled name contains all texts."""
    names = [name for name in kernel_names(library) if all(text in name for text in texts)]
    assert names, f"no kernel {' '.join(texts)} in the library"
    return list(codes_by_name(library, names).values())


def loops(code: str) -> list[list[str]]:
    """Return the instructions of every innermost loop: from the target of a branch back to that branch."""
    found = _located_loops(code)
    return [[text for _, text in loop] for loop in found if not any(_is_inside(other, loop) for other in found)]


# Instructions with their addresses.
_Located = list[tuple[int, str]]


def _located_lines(code: str) -> _Located:
    return [(int(at, 16), text.strip()) for at, text in re.findall(r"/\*([0-9a-f]{4,5})\*/\s+(.*?);", code)]


def _located_loops(code: str) -> list[_Located]:
    lines = _located_lines(code)
    back = [(to, at) for at, text in lines if (to := _target(text)) is not None and to < at]
    return [[(at, text) for at, text in lines if begin <= at <= end] for begin, end in back]


def _is_inside(inner: _Located, outer: _Located) -> bool:
    return inner is not outer and outer[0][0] <= inner[0][0] and inner[-1][0] <= outer[-1][0]


def _target(text: str) -> int | None:
    found = re.search(r"\bBRA\b.*?0x([0-9a-f]+)", text)
    return int(found.group(1), 16) if found else None


def _blocks(loop: _Located) -> list[list[str]]:
    """Split a loop at branches and at their targets."""
    begins = {_target(text) for _, text in loop}
    blocks: list[list[str]] = [[]]
    for at, text in loop:
        if at in begins:
            blocks.append([])
        blocks[-1].append(text)
        if re.search(r"\b(BRA|BRX)\b", text):
            blocks.append([])
    return [block for block in blocks if block]


def _widths(instructions: Iterable[str], operation: str, global_memory: str = r"\.E") -> list[int]:
    """Return the bytes of every access by `operation`, such as LDG, for a thread; accesses to global memory have the suffix `global_memory`."""
    suffixes = [match.group(1).split(".") for text in instructions if (match := re.search(rf"\b{operation}{global_memory}([.\w]*)", text))]
    return [next((_WIDTHS[suffix] for suffix in parts if suffix in _WIDTHS), 4) for parts in suffixes]


@dataclass(frozen=True)
class Cost:
    """What a kernel's main loop takes for the bytes that it moves."""

    instructions_per_byte: float  # loaded from and stored to global memory
    bytes_per_access: int  # of a thread: its widest load, or store where nothing is loaded


def cost_of(code: str) -> Cost | None:
    """Return the cost of the main loop: of the smallest loops with the widest accesses to global memory and the widest loads, the dearest.

    Code is counted, not what runs: a loop inside counts once, and so do all branches of a switch over types. Blocks with narrower loads are left out
    where others load more: they are for input that is not aligned, and for the ends of a run.
    """
    found = [(loop, [text for _, text in loop]) for loop in _located_loops(code)]
    widest = max((width for _, texts in found for width in _widths(texts, "LDG") + _widths(texts, "STG?")), default=0)
    moving = [(loop, texts) for loop, texts in found if widest in _widths(texts, "LDG") + _widths(texts, "STG?")]
    costs = []
    for loop, texts in moving:
        if any(_is_inside(other, loop) for other, _ in moving):
            continue
        loads = _widths(texts, "LDG")
        blocks = [block for block in _blocks(loop) if all(width == max(loads) for width in _widths(block, "LDG"))]
        taken = [text for block in blocks for text in block]
        moved = sum(_widths(taken, "LDG") + _widths(taken, "STG?"))
        if moved:
            costs.append(Cost(len(taken) / moved, max(loads or [widest])))
    return max(costs, key=lambda cost: (cost.bytes_per_access, cost.instructions_per_byte), default=None)


def tile_cost_of(code: str) -> Cost | None:
    """Return the cost of a filter of tiles in shared memory: instructions for each byte of its results, of its dearest loop without global memory."""
    costs = []
    for loop in loops(code):
        stored = sum(_widths(loop, "STS", ""))
        if stored and not _widths(loop, "LDG") + _widths(loop, "STG?"):
            costs.append(len(loop) / stored)
    loads = _widths((text for _, text in _located_lines(code)), "LDG")
    return Cost(max(costs), max(loads)) if costs and loads else None


if __name__ == "__main__":
    library, pattern = sys.argv[1:]
    matching = [name for name in kernel_names(library) if re.search(pattern, name)]
    for name, code in codes_by_name(library, matching).items():
        print(name, cost_of(code), tile_cost_of(code))
