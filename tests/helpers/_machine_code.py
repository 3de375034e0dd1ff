# SPDX-License-Identifier: Apache-2.0
"""The machine code (SASS) of the CUDA kernels in a library, read with cuobjdump; no GPU is needed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# Bytes of an access by the suffixes of its instruction; 4 without one.
_WIDTHS = {".U8": 1, ".S8": 1, ".U16": 2, ".S16": 2, ".64": 8, ".128": 16}


def find_cuobjdump() -> str | None:
    """Return the path of cuobjdump from the package nvidia-cuda-cuobjdump, or None."""
    spec = importlib.util.find_spec("nvidia")
    found = [path for root in (spec.submodule_search_locations or [] if spec else []) for path in Path(root).glob("cu*/bin/cuobjdump")]
    return str(found[0]) if found else None


@cache
def dump(library: str, *options: str) -> str:
    """Return what cuobjdump prints."""
    cuobjdump = find_cuobjdump()
    assert cuobjdump is not None
    environment = {**os.environ, "PATH": f"{Path(cuobjdump).parent}:{os.environ['PATH']}"}  # where nvdisasm lies
    return subprocess.run([cuobjdump, *options, library], env=environment, capture_output=True, text=True, check=True).stdout


def kernel_names(library: str, *texts: str) -> list[str]:
    """Return the mangled names of the kernels that contain all texts."""
    names = set(re.findall(r"Function (\w+):", dump(library, "--dump-resource-usage")))
    return sorted(name for name in names if all(text in name for text in texts))


def code_of(library: str, *texts: str) -> list[str]:
    """Return the SASS of every kernel whose mangled name contains all texts, for one architecture each."""
    names = kernel_names(library, *texts)
    assert names, f"no kernel {' '.join(texts)} in the library"
    listing = dump(library, "--dump-sass", "-fun", ",".join(names))
    return [part for part in listing.split("Function :")[1:] if any(part.strip().startswith(name) for name in names)]


def loops(code: str) -> list[list[str]]:
    """Return the instructions of every innermost loop: from the target of a branch back to that branch."""
    return [[text for _, text in loop] for loop in _located_loops(code)]


def _located_loops(code: str) -> list[list[tuple[int, str]]]:
    lines = [(int(at, 16), text.strip()) for at, text in re.findall(r"/\*([0-9a-f]{4,5})\*/\s+(.*?);", code)]
    back = [(to, at) for at, text in lines if (to := _target(text)) is not None and to < at]
    innermost = [(begin, end) for begin, end in back if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in back)]
    return [[(at, text) for at, text in lines if begin <= at <= end] for begin, end in innermost]


def _target(text: str) -> int | None:
    found = re.search(r"\bBRA\b.*?0x([0-9a-f]+)", text)
    return int(found.group(1), 16) if found else None


def _blocks(loop: list[tuple[int, str]]) -> list[list[str]]:
    """Split a loop at branches and at their targets."""
    begins = {to for _, text in loop if (to := _target(text)) is not None}
    blocks: list[list[str]] = [[]]
    for at, text in loop:
        if at in begins:
            blocks.append([])
        blocks[-1].append(text)
        if "BRA" in text or "BSYNC" in text:
            blocks.append([])
    return [block for block in blocks if block]


def _accesses(instructions: list[str], operation: str) -> list[int]:
    """Return the bytes of every access by `operation`, such as LDG, per thread."""
    found = [re.search(rf"(?<![\w.]){operation}\.E(\.[\w.]+)?", text) for text in instructions]
    suffixes = [match.group(1) or "" for match in found if match]
    return [next((width for suffix, width in _WIDTHS.items() if re.search(rf"{re.escape(suffix)}(?!\w)", text)), 4) for text in suffixes]


@dataclass(frozen=True)
class Cost:
    """What a loop takes for the bytes that it loads and stores in global memory."""

    instructions_per_byte: float
    bytes_per_load: int
    loads: int


def loop_costs(code: str) -> list[Cost]:
    """Return the costs of the loops that load from global memory.

    Blocks with loads narrower than the widest one are left out: they are for input that is not aligned.
    """
    costs = []
    for loop in _located_loops(code):
        loads = _accesses([text for _, text in loop], "LDG")
        if not loads:
            continue
        widest = max(loads)
        taken = [text for block in _blocks(loop) if all(width == widest for width in _accesses(block, "LDG")) for text in block]
        moved = _accesses(taken, "LDG") + _accesses(taken, "STG") + _accesses(taken, "ST")
        if widest in moved:
            costs.append(Cost(len(taken) / sum(moved), widest, _accesses(taken, "LDG").count(widest)))
    return costs
