# SPDX-License-Identifier: Apache-2.0
"""csrc/stress, a program that works the scheduler of the CPU stream hard: build it and run it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build(folder: Path, flags: str = "") -> Path:
    """Build the program in a folder: 15 CPU seconds, almost none with ccache."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    cmake, ninja = shutil.which("cmake", path=tools), shutil.which("ninja", path=tools)
    if cmake is None or ninja is None:
        raise RuntimeError("csrc/stress is built with cmake and ninja, of which one is missing: pip install cmake ninja")
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    make = [cmake, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", f"-DCMAKE_CXX_FLAGS={flags}", *launcher]
    for command in ([*make, "-S", str(ROOT / "csrc/stress"), "-B", str(folder)], [ninja, "-C", str(folder)]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return folder / "stress"


def figures(program: Path, mode: str, **options: float | str) -> dict[str, float]:
    """Run it and return the figures that it prints."""
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    done = subprocess.run([program, mode, *arguments], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"stress {mode} {' '.join(arguments)}: status {done.returncode}\n{done.stderr}")
    return {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}
