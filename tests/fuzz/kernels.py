# SPDX-License-Identifier: Apache-2.0
"""Call every kernel through torch.ops with arguments that Python never passes: too few samples, other types, negative extents, unknown layouts.

The calls of the operators' cases and those of ``kernel_calls.py`` are recorded. Of each, one argument at a time is changed, then random pairs. A
kernel may raise or return; it must not read or write beside its tensors, which only a library with sanitizers shows (``make fuzz-kernels``), wait, or
end the process:

    python tests/fuzz/kernels.py --only resize --calls 3

A line for each call says how many of its changes the kernel has accepted, and so computed with.
"""

import argparse
import json
import math
import os
import random
import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "helpers")]

import torch  # noqa: E402
from _all_cases import CASES  # noqa: E402
from kernel_calls import make_calls  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from torch_ndd import EvalMode  # noqa: E402
from torch_ndd._core.native.kernels import KERNELS  # noqa: E402
from torch_ndd._core.operators import plans  # noqa: E402

Call = tuple[Callable[..., Any], list[Any]]
SECONDS, WAITING = 20, 200  # of CPU time and in all, for a call with a changed argument
INTEGERS = (-(1 << 63), -(1 << 31), -1, 0, 1, 2, 7, 1 << 31, 1 << 40, (1 << 62) + 1)
NUMBERS = (math.nan, math.inf, -math.inf, -1.0, 0.0, 1e30, 1e300)
# Their recorded call cannot be made again, because it takes bytes out of a request, or needs a GPU: tests/core/native/test_handles.py has them.
NOT_ATTACKED = {"again_on_stream", "npy_bytes", "range_bytes", "record_output", "upload"}
TEXTS = ("", "X", "C", "HW", "HWC", "CHW", "FHWC", "DHWC", "HHWC", "HWCX", "ABCDEFGHIJKLMNOP")


def describe(value: Any) -> Any:
    """Return what distinguishes a call from others of its kernel."""
    if isinstance(value, torch.Tensor):
        return value.dim(), value.dtype
    return [describe(item) for item in value] if isinstance(value, list | tuple) else type(value)


def clone(value: Any) -> Any:
    """Copy the tensors in an argument."""
    if isinstance(value, torch.Tensor):
        return value.clone() if value.is_contiguous() else value
    return [clone(item) for item in value] if isinstance(value, list | tuple) else value


class Recorder(TorchDispatchMode):
    """Records up to ``most`` calls of each kernel with different shapes or types."""

    def __init__(self, only: str, most: int) -> None:
        super().__init__()
        self.only, self.most = only, most
        self.calls: list[tuple[str, Call]] = []
        self.known: dict[str, set[str]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Make a call, and keep its arguments."""
        namespace, _, name = func._schema.name.partition("::")
        if namespace == "ndd" and self.only in name and name not in NOT_ATTACKED:
            kinds = self.known.setdefault(name, set())
            if len(kinds) < self.most and (kind := str([describe(value) for value in args])) not in kinds:
                kinds.add(kind)
                self.calls.append((name, (func, [clone(value) for value in args])))
        return func(*args, **(kwargs or {}))


def record(only: str, most: int) -> list[tuple[str, Call]]:
    """Return up to ``most`` calls of each kernel with different shapes or types."""
    plans.run_plan = lambda *_: None  # native code repeats kernels, past the recorder
    met: Counter[tuple[str, bool]] = Counter()
    with EvalMode.sync_cpu, Recorder(only, most) as recorder:
        for name, arguments in make_calls():
            if only in name:
                getattr(torch.ops.ndd, name).default(*arguments)
        for case in CASES:
            for ragged in (False, True):
                # More cases than calls, because many cases of an operator lead to the same call.
                if (ragged and not case.ragged) or met[case.operator, ragged] >= 3 * most:
                    continue
                met[case.operator, ragged] += 1
                case.run(ragged, "cpu")
    return recorder.calls


def change_tensor(value: torch.Tensor) -> Iterator[tuple[str, Any]]:
    """Yield other tensors in the place of one."""
    dims = value.dim()
    if dims > 0:
        yield "half of the rows", value[: value.shape[0] // 2].clone()
        yield "no rows", value[:0].clone()
        yield "twice the rows", torch.cat([value, value])
        yield "a shorter last axis", value[..., :-1].clone()
        yield "a shorter first axis of samples", value[:, :-1].clone() if dims > 1 else value[:-1].clone()
        yield "one axis", value.reshape(-1).clone()
        yield "rows of stride 0", value[:1].expand(value.shape[0], *value.shape[1:]) if value.shape[0] else value
        yield "an axis more", value[..., None].clone()
        yield "an empty axis more", value.new_zeros(*value.shape, 0)
        yield "every other element", torch.cat([value, value], -1)[..., ::2]
        if dims == 2 and value.dtype == torch.int64 and value.numel():
            # Shapes without elements, whose other extents are large.
            for extent in (1 << 30, 1 << 40):
                for place in {0, value.shape[1] - 1}:
                    large = torch.zeros_like(value)
                    large[:, place] = extent
                    yield f"{extent} at {place}, else 0", large
    yield "no axis", value.new_zeros(())
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.bool):
        if dtype != value.dtype:
            yield str(dtype), torch.nan_to_num(value).to(dtype) if value.is_floating_point() else value.to(dtype)
    if value.numel() > 256 or value.dtype in (torch.bool, torch.uint8):
        return
    for number in INTEGERS if not value.is_floating_point() else NUMBERS:
        limits = None if value.is_floating_point() else torch.iinfo(value.dtype)
        if limits is None or limits.min <= number <= limits.max:
            # By way of doubles, because torch refuses what a float cannot hold.
            kind = torch.float64 if value.is_floating_point() else value.dtype
            yield f"all {number}", torch.full(value.shape, number, dtype=kind).to(value.dtype)
            if value.numel() > 1:
                last = value.clone(memory_format=torch.contiguous_format)
                last.view(-1)[-1:] = torch.full((1,), number, dtype=kind).to(value.dtype)
                yield f"the last {number}", last


def change(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield other values in the place of an argument."""
    if isinstance(value, torch.Tensor):
        yield from change_tensor(value)
    elif isinstance(value, bool):
        yield str(not value), not value
    elif isinstance(value, int):
        yield from ((str(number), number) for number in INTEGERS)
    elif isinstance(value, float):
        yield from ((str(number), number) for number in NUMBERS)
    elif isinstance(value, str):
        yield from ((f'"{text}"', text) for text in TEXTS)
    elif isinstance(value, list | tuple) and value:
        yield "nothing", []
        yield "the first alone", list(value[:1])
        yield "one more", [*value, value[-1]]
        for text, first in change(value[0]):
            yield f"first: {text}", [first, *value[1:]]


def changes(arguments: Sequence[Any], optional: Sequence[bool], pairs: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield the arguments, lists of which one argument is another, and ``pairs`` lists of which two are."""
    yield "unchanged", list(arguments)
    single: list[tuple[int, str, Any]] = []
    for k, value in enumerate(arguments):
        others = list(change(value))
        if value is None:
            tables = (torch.zeros(0, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.int64))
            others = [(f"{list(table.shape)}", table) for table in tables]
        elif optional[k]:
            others.append(("None", None))
        single.extend((k, text, other) for text, other in others)
    for k, text, other in single:
        yield f"argument {k}: {text}", [*arguments[:k], other, *arguments[k + 1 :]]
    generator = random.Random(1)
    for _ in range(pairs if single else 0):
        # One of two arguments, as likely as any other, has so many changes that the others would be rare.
        changed, texts = list(arguments), []
        for k in generator.sample(sorted({k for k, _, _ in single}), min(2, len({k for k, _, _ in single}))):
            _, text, changed[k] = generator.choice([other for other in single if other[0] == k])
            texts.append(f"argument {k}: {text}")
        yield ", ".join(texts), changed


def run(call: Call, begin: int, pairs: int, pipe: int) -> None:
    """Make the calls from number ``begin`` on. Write the number of each before it begins, and a plus sign if it has returned."""
    kernel, arguments = call
    signal.alarm(WAITING)
    optional = ["Optional" in str(parameter.type) for parameter in kernel._schema.arguments]  # type: ignore[attr-defined]
    for number, (_, changed) in enumerate(changes(arguments, optional, pairs)):
        if number < begin:
            continue
        os.write(pipe, f"{number}\n".encode())
        signal.alarm(WAITING)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        # What is written to the outputs must not change the next call.
        own = [value.clone() if isinstance(value, torch.Tensor) and value.is_contiguous() else value for value in changed]
        with suppress(RuntimeError, ValueError, TypeError, IndexError, MemoryError):
            kernel(*own)
            os.write(pipe, b"+\n")
    os._exit(0)


def find_report(process: int, errors: str) -> str:
    """Return what the sanitizers say of a process, and where in the library. That of addresses writes to a file, the other one to stderr."""
    path = re.search(r"log_path=([^:]+)", os.environ.get("ASAN_OPTIONS", ""))
    if path and (report := Path(f"{path[1]}.{process}")).exists():
        errors += report.read_text(errors="replace")
    lines = errors.splitlines()
    first = next((k for k, line in enumerate(lines) if "ERROR:" in line or "runtime error:" in line), len(lines))
    places = [line.strip()[:200] for line in lines[first:] if re.search(r"#\d+ .*csrc/", line)][:2]
    return "".join(f"\n        {line}" for line in (*(line.strip()[:160] for line in lines[first : first + 1]), *places))


def attack(call: Call, pairs: int) -> tuple[list[str], str]:
    """Return which changed arguments ended the process, and how many the kernel has accepted."""
    kernel, arguments = call
    optional = ["Optional" in str(parameter.type) for parameter in kernel._schema.arguments]  # type: ignore[attr-defined]
    texts = [text for text, _ in changes(arguments, optional, pairs)]
    found: list[str] = []
    begin = accepted = 0
    while begin < len(texts):
        reading, writing = os.pipe()
        errors = tempfile.TemporaryFile()  # noqa: SIM115
        child = os.fork()
        if child == 0:
            os.dup2(errors.fileno(), 2)
            run(call, begin, pairs, writing)
        os.close(writing)
        with os.fdopen(reading) as stream:
            lines = stream.read().split()
        reached = [int(line) for line in lines if line != "+"]
        accepted += lines.count("+")
        if lines[:2] == ["0", "1"]:
            found.append("the kernel refuses the recorded call")
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            break
        last = reached[-1] if reached else begin
        errors.seek(0)
        found.append(f"{texts[last]}: exit code {code}{find_report(child, errors.read().decode(errors='replace'))}")
        begin = last + 1
    return found, f"{accepted} of {len(texts)} accepted"


def main() -> int:
    """Attack all kernels; return 1 if any has failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="kernels with this in their name")
    parser.add_argument("--calls", type=int, default=2, help="calls of each kernel")
    parser.add_argument("--pairs", type=int, default=300, help="pairs of changes for each call")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    # A forked child has none of OpenMP's threads, and would wait for them.
    torch.set_num_threads(1)
    failures: dict[str, list[str]] = {}
    calls = record(options.only, options.calls)
    for name in sorted({name for name, backend in KERNELS if backend == "CPU" and options.only in name} - {name for name, _ in calls}):
        failures[name] = ["no call was recorded"]
        print(name, *failures[name], sep=": ")
    for name, call in calls:
        print(name, end=": ", flush=True)
        found, accepted = attack(call, options.pairs)
        print(f"{accepted}, {len(found)} failures", *found, sep="\n    ", flush=True)
        failures.setdefault(name, []).extend(found)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "failures.json").write_text(json.dumps(failures, indent=1))
    return int(any(failures.values()))


if __name__ == "__main__":
    raise SystemExit(main())
