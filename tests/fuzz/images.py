# SPDX-License-Identifier: Apache-2.0
"""Decode damaged images in processes that may die: ``python images.py [--mutated N] [--headers N] [--seed N] [--formats ...] [--out FOLDER]``.

Each file is decoded by the public functions and into memory in front of a guard page, while glibc checks the heap. The exit status is 1 if a process
ended.
"""

import argparse
import contextlib
import ctypes
import ctypes.util
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from headers import CONTRADICTORY
from sources import FORMATS, files_of

sys.path.append(str(Path(__file__).parents[1] / "helpers"))  # for the mutated files of the tests

PATIENCE = 60.0  # seconds per file, after which its process is killed
STARTING = 600.0  # for importing torch and the first files, under the heap checks
SLOW = 2.0  # seconds for all functions, and for each pixel of the image
SLOW_PIXEL = 4e-7
GUARDED = 64 << 20  # bytes of the largest image that is decoded in front of the guard page
KINDS = ("mutated", "headers")


def damage(name: str, kind: str, index: int, seed: int, files: list[bytes]) -> bytes:
    """File ``index`` of a run, the same in every process."""
    from _mutations import mutate

    draw = random.Random(f"{seed} {name} {kind} {index}")
    file = files[index % len(files)]
    return mutate(file, index // len(files) % 6, draw) if kind == "mutated" else CONTRADICTORY[name](file, draw)


class Guard:
    """Return memory that ends at a page without access."""

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, GUARDED + mmap.PAGESIZE)
        self.bytes = np.frombuffer(self.map, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        protect = libc.mprotect(ctypes.c_void_p(self.bytes.ctypes.data + GUARDED), ctypes.c_size_t(mmap.PAGESIZE), 0)
        assert protect == 0, os.strerror(ctypes.get_errno())

    def array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray | None:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.bytes[GUARDED - size : GUARDED].view(dtype).reshape(shape) if size <= GUARDED else None


def decode(file: bytes, index: int, guard: Guard) -> int:
    """Return how many pixels it has, 0 if it cannot be decoded, trying all functions."""
    import torch

    import torch_ndd as ndd
    from torch_ndd import types
    from torch_ndd._core.operators.operator import OPERATORS
    from torch_ndd.decoders._decode import Options, image_shapes

    contents = ndd.tensor(np.frombuffer(file, np.uint8))
    with contextlib.suppress(RuntimeError):
        ndd.peek_image_shape(contents)
    output, dtype = (("ANY_DATA", "uint8"), ("RGB", "uint8"), ("GRAY", "uint16"), ("ANY_DATA", "uint16"))[index % 4]
    options = {"output_type": getattr(types, output), "dtype": getattr(ndd, dtype)}
    try:
        if index % 3 == 0:
            np.asarray(ndd.decoders.image_crop(contents, crop=[0.0, 9.0], crop_pos_x=1.0, **options))
        files, shapes, _ = image_shapes(ndd.as_batch([contents]), Options("decoders.image", output, True), 1 << 28)
        pixels = int(shapes[0, 0] * shapes[0, 1])
        out = guard.array((1, *shapes[0].tolist()), dtype)
        if out is None:
            np.asarray(ndd.decoders.image(contents, **options))
            return pixels
        kernel = OPERATORS["decoders.image"].kernel
        arguments = (None, "decoders.image", output, True, False, 0, None, "", 0.65, 0)
        kernel(files.buffer.reshape(1, -1), None, *arguments, torch.from_numpy(out), None)
        if index % 2 == 0:  # scaled decoding
            least = [-(-extent * (1, 2, 4)[index // 2 % 3] // 8) for extent in shapes[0].tolist()[:2]]
            np.asarray(ndd.decoders.image(contents, at_least=least, **options))
            np.asarray(ndd.decoders.image_random_crop(contents, at_least=max(1, min(least) // 2), random_area=[0.3, 1.0], **options))
        if index % 5 == 0:
            assert np.array_equal(np.asarray(ndd.decoders.image(contents, **options)), out[0])
    except (RuntimeError, MemoryError):
        return 0
    return pixels


def child(name: str, kind: str, begin: int, end: int, seed: int, progress: str) -> None:
    """Decode files; the progress file holds the next number, the decoded ones, the slow ones and the longest time in microseconds."""
    files, guard, done, slowest = files_of(name), Guard(), 0, 0.0
    slow: list[int] = []
    read = [decode(file, 0, guard) for file in files]  # loads the codecs and sizes the buffers
    assert any(read), "not even the undamaged files can be decoded"
    with open(progress, "r+b", buffering=0) as out:
        for i in range(begin, end):
            data = damage(name, kind, i, seed, files)
            start = time.perf_counter()
            pixels = decode(data, i, guard)
            took = time.perf_counter() - start
            done += pixels > 0
            slowest = max(slowest, took)
            if took > SLOW + pixels * SLOW_PIXEL:
                slow.append(i)
            out.seek(0)
            out.write(struct.pack("<4q", i + 1, done, len(slow), int(slowest * 1e6)))
    print(json.dumps(slow), flush=True)


def is_slow(path: Path) -> bool:
    """Return whether a stored file takes long without the heap checks, which fill gigabytes for a large image."""
    decode = "images.decode({}, 0, images.Guard())"
    program = f"""
import sys, time, images
{decode.format("images.files_of('bmp')[0]")}
start = time.perf_counter()
pixels = {decode.format("open(sys.argv[1], 'rb').read()")}
print(time.perf_counter() - start - pixels * images.SLOW_PIXEL)
"""
    taken = subprocess.run(
        [sys.executable, "-c", program, str(path.resolve())], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    return float(taken.stdout) > SLOW


def checked_heap() -> dict[str, str]:
    library = "libc_malloc_debug.so.0"
    with contextlib.suppress(OSError):
        ctypes.CDLL(library)
        return {"LD_PRELOAD": library, "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"}
    print(f"{library} is missing: the heap is not checked")
    return {}


def run(name: str, kind: str, count: int, seed: int, out: Path) -> dict[str, Any]:
    """Run all files of a format; if a process ends, another one continues after the file that ended it."""
    progress, begin = out / f"progress-{name}-{kind}", 0
    total: dict[str, Any] = {"files": count, "decoded": 0, "slowest": 0.0, "deaths": [], "slow": []}
    while begin < count:
        progress.write_bytes(struct.pack("<4q", begin, 0, 0, 0))
        command = [sys.executable, __file__, "--child", name, kind, str(begin), str(count), str(seed), str(progress)]
        process = subprocess.Popen(command, env={**os.environ, **checked_heap()}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        last, since = begin, time.monotonic()
        while True:
            try:
                text, errors = process.communicate(timeout=1)
                break
            except subprocess.TimeoutExpired:
                at = struct.unpack("<4q", progress.read_bytes())[0]
                if at != last:
                    last, since = at, time.monotonic()
                elif time.monotonic() - since > (STARTING if at == begin else PATIENCE):
                    process.kill()
        at, decoded, _, slowest = struct.unpack("<4q", progress.read_bytes())
        total["decoded"] += decoded
        total["slowest"] = max(total["slowest"], slowest / 1e6)
        if process.returncode == 0:
            total["slow"] += json.loads(text.splitlines()[-1])
            return total
        ended = "hang" if process.returncode == -signal.SIGKILL else str(process.returncode)
        total["deaths"].append((at, ended, errors[-200:]))
        begin = at + 1
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutated", type=int, default=8000)
    parser.add_argument("--headers", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), choices=FORMATS)
    parser.add_argument("--out", type=Path, default=Path("fuzz"))
    value = parser.parse_args()
    value.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    print(f"{'format':10} {'kind':8} {'files':>7} {'decoded':>8} {'refused':>8} {'slowest':>8} {'deaths':>6}   seed {value.seed}", flush=True)
    for name in value.formats:
        files = files_of(name)
        for kind in KINDS:
            count = getattr(value, kind)
            found = run(name, kind, count, value.seed, value.out)
            refused = count - found["decoded"] - len(found["deaths"])
            print(f"{name:10} {kind:8} {count:7} {found['decoded']:8} {refused:8} {found['slowest']:7.2f}s {len(found['deaths']):6}", flush=True)
            for index, why, errors in [*found["deaths"], *((index, "slow", "") for index in found["slow"])]:
                path = value.out / f"{name}-{kind}-{value.seed}-{index}"
                path.write_bytes(damage(name, kind, index, value.seed, files))
                if why == "slow" and not is_slow(path):
                    path.unlink()
                    continue
                print(f"    {path}: {why} {errors.strip()!r}", flush=True)
                failed += 1
    return int(failed > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        name, kind, begin, end, seed, progress = sys.argv[2:]
        child(name, kind, int(begin), int(end), int(seed), progress)
    else:
        sys.exit(main())
