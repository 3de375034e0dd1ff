# SPDX-License-Identifier: Apache-2.0
"""Run attacks in processes that may die: a process that ends, or is silent for a minute, is recorded, and the run continues after its file."""

import argparse
import json
import mmap
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # seconds without an answer
SLOW = 2.0
_PLACE = struct.Struct("qd")  # the number of the file that is being read, and its start time

Attack = Callable[[int], bytes]
"""Reads file ``number`` of a run, and returns a description. Any exception but RuntimeError, ValueError and MemoryError is a finding, like a
crash."""


def child(make: Callable[[str, str, int, Path], Attack], kind: str, way: str, seed: int, begin: int, end: int, place: str, memory: int) -> None:
    """Read files ``begin`` to ``end``, and record the position."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(place, "r+b") as file, tempfile.TemporaryDirectory() as folder:
        where = mmap.mmap(file.fileno(), 0)
        attack = make(kind, way, seed, Path(folder))
        if memory:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
            resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
        counts = {"read": 0, "refused": 0}
        slow: list[tuple[int, float]] = []
        base = 0
        for number in range(begin, end):
            _PLACE.pack_into(where, 0, number, time.time())
            start = time.perf_counter()
            try:
                attack(number)
                counts["read"] += 1
            except (RuntimeError, ValueError, MemoryError):
                counts["refused"] += 1
            took = time.perf_counter() - start
            if took > SLOW:
                slow.append((number, took))
            if number == begin + (end - begin) // 4:
                base = _resident()
        print(json.dumps({**counts, "slow": slow, "growth": _resident() - base}), flush=True)
        os._exit(0)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE >> 10


def _run(program: str, task: list[Any], checks: dict[str, str]) -> tuple[dict[str, Any] | None, int, str]:
    """Return a child's result, or None, the number of the file at which it ended, and its output."""
    with tempfile.NamedTemporaryFile() as place:
        place.write(bytes(_PLACE.size))
        place.flush()
        command = [sys.executable, "-W", "ignore", program, "--child", json.dumps([*task[:5], place.name, task[5]])]
        variables = {**os.environ, **checks, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables, text=True)
        hung = ""
        while True:
            try:
                output, errors = process.communicate(timeout=5)
                break
            except subprocess.TimeoutExpired:
                since = _PLACE.unpack(Path(place.name).read_bytes())[1]
                if since and time.time() - since > PATIENCE:
                    process.kill()
                    hung = "no answer"
        number, since = _PLACE.unpack(Path(place.name).read_bytes())
        if process.returncode == 0:
            return json.loads(output.splitlines()[-1]), number, ""
        if not since:
            raise RuntimeError(f"{task}: the process could not begin: {errors[-3000:]}")
        return None, number, hung or f"exit status {process.returncode}: {errors[-1500:]}"


def run(program: str, kind: str, way: str, seed: int, count: int, memory: int) -> dict[str, Any]:
    """Attack all files of a kind; return the outcomes."""
    total: dict[str, Any] = {"read": 0, "refused": 0, "deaths": [], "slow": [], "growth": 0}
    begin = 0
    while begin < count:
        found, number, why = _run(program, [kind, way, seed, begin, count, memory], {"MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"})
        if found is None:
            total["deaths"].append((number, why))
            begin = number + 1
            continue
        for key in ("read", "refused", "growth"):
            total[key] += found[key]
        for slow, took in found["slow"]:
            # The heap checks fill all allocations, also gigabytes that a library allocates but never touches.
            again, _, _ = _run(program, [kind, way, seed, slow, slow + 1, memory], {})
            total["slow"] += [(slow, took)] if again is None else again["slow"]
        break
    return total


def main(make: Callable[[str, str, int, Path], Attack], program: str, kinds: dict[str, tuple[str, ...]], counts: dict[str, int], memory: int) -> None:
    """Run the command line. ``kinds`` holds the kinds of damage, ``counts`` the number of files of each."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    for way, count in counts.items():
        parser.add_argument(f"--{way}", type=int, default=count, help=f"files in all (default {count})")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--formats", nargs="+", choices=list(kinds), default=list(kinds))
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"), help="where files are kept that ended a process or took too long")
    options = parser.parse_args()
    if options.child:
        child(make, *json.loads(options.child))
        return
    findings = 0
    print(f"{'kind':<12}{'way':<10}{'files':>8}{'read':>8}{'refused':>9}{'deaths':>8}{'> 2 s':>7}{'growth':>10}")
    for way in counts:
        attacked = [kind for kind in options.formats if way in kinds[kind]]
        for kind in attacked:
            count = -(-getattr(options, way) // max(1, len(attacked)))
            if not count:
                continue
            found = run(program, kind, way, options.seed, count, memory)
            line = f"{kind:<12}{way:<10}{count:>8}{found['read']:>8}{found['refused']:>9}{len(found['deaths']):>8}{len(found['slow']):>7}"
            print(f"{line}{found['growth']:>7} kB", flush=True)
            for number, *what in (*found["deaths"], *found["slow"]):
                findings += 1
                print(f"  {kind} {way} number {number}: {what}")
                options.out.mkdir(parents=True, exist_ok=True)
                (options.out / f"{kind}-{way}-{options.seed}-{number}").write_text(str(what))
    sys.exit(1 if findings else 0)
