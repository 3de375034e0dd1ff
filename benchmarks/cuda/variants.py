# SPDX-License-Identifier: Apache-2.0
"""Variants of kernels against the ones in the library: compiled without a GPU, raced on one.

    python -m benchmarks.cuda.variants build build/variants    # where nvcc is
    python -m benchmarks.cuda.variants race build/variants     # where the GPU is: nothing is compiled there

A variant is the shipped source with other constants, compiled to a cubin. In a race each kernel reads random input in rotation over more bytes than
the caches of a GPU hold, and writes outputs that were full of garbage before; these are compared bit by bit with the results of the operator. The
variants then take turns, forward and backward, and the medians are printed.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

import torch_ndd as ndd

CSRC = Path(__file__).parents[2] / "csrc"
ROTATED_BYTES = 64 << 20  # of inputs: the L2 cache of an H100 has 50 MB
ROUNDS = 5
TABLE_BYTES = 4096  # kTableBytes in ndd/cuda.h


# --- What is raced ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """Constants of a source that differ from the shipped ones: the text of their definitions, each of which occurs once."""

    name: str
    file: str
    constants: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Launch:
    """The grid, the block and the parameters of one launch."""

    grid: tuple[int, int, int]
    block: int
    parameters: Sequence[Any]  # ctypes values


@dataclass(frozen=True)
class Contest:
    """A kernel with its variants.

    Attributes:
        source: What is compiled, with the folder of the variant first among those of headers.
        kernel: Regular expression that the mangled name of the kernel matches.
        structures: The parameters as this file packs them; the compiler checks their sizes and offsets.
        inputs: Random input number ``k``.
        expected: The operator's result.
        prepare: The launch for an input, an output and the constants of a variant.
    """

    name: str
    source: str
    kernel: str
    structures: dict[str, type[ctypes.Structure]]
    variants: Sequence[Variant]
    inputs: Callable[[int, str], torch.Tensor]
    expected: Callable[[torch.Tensor], torch.Tensor]
    prepare: Callable[[torch.Tensor, torch.Tensor, Variant], Launch]


def pack_table(rows: Sequence[ctypes.Structure]) -> ctypes.Structure:
    """Return rows as ndd::TableRows takes them, among the parameters."""
    kind = type(rows[0])
    if ctypes.sizeof(kind) * len(rows) > TABLE_BYTES:
        raise ValueError(f"{len(rows)} rows of {kind.__name__} do not fit among the parameters of a kernel")

    class TableRows(ctypes.Structure):
        _fields_ = (("memory", ctypes.c_void_p), ("padding", ctypes.c_void_p), ("rows", ctypes.c_ubyte * TABLE_BYTES))

    table = TableRows()
    packed = (kind * len(rows))(*rows)
    ctypes.memmove(table.rows, packed, ctypes.sizeof(packed))
    return table


class Blend(ctypes.Structure):
    """ndd::blend_batch_kernels::Blend of ops/generic/blend_batch.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("first", "second", "out")),
        *((name, ctypes.c_float) for name in ("weight", "rest")),
    )


class BatchTiles(ctypes.Structure):
    """ndd::BatchTiles, with the numbers of ndd::Divisor."""

    _fields_ = tuple((name, ctypes.c_uint32) for name in ("value", "magic", "shift", "total"))

    @classmethod
    def of(cls, elements: int, tile: int, runs: int) -> BatchTiles:
        """Return the tiles of runs of as many elements each."""
        across = max(1, math.ceil(elements / tile))
        shift = (across - 1).bit_length()
        return cls(across, (((1 << shift) - across) << 32) // across + 1, shift, across * runs)


class Axis(ctypes.Structure):
    """ndd::Axis of a reduction with two taps."""

    _fields_ = (
        *(("in_", ctypes.c_int64), ("out", ctypes.c_int64), ("lo", ctypes.c_float), ("scale", ctypes.c_float), ("filter", ctypes.c_int32)),
        *((name, ctypes.c_float) for name in ("stretch", "shrink", "anchor")),
        *(("taps", ctypes.c_int32), ("rule", ctypes.c_int32), ("antialias", ctypes.c_bool)),
        *(("first", ctypes.c_int64), ("whole", ctypes.c_int64)),
    )

    @classmethod
    def linear(cls, extent: int, to: int) -> Axis:
        """Return what make_axis() does without antialias."""
        return cls(extent, to, 0.0, extent / to, int(ndd.types.INTERP_LINEAR), 1.0, 1.0, 0.0, 2, 0, False, 0, to)


class TiledSample(ctypes.Structure):
    """ndd::resample_gpu::TiledSample."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("in_", "out")),
        *((name, ctypes.c_int64) for name in ("planes", "in_pitch", "in_plane", "out_pitch", "out_plane")),
        *((name, ctypes.c_int32) for name in ("channels", "tile_width", "across", "tiles")),
        *((name, ctypes.c_int32) for name in ("column_starts", "column_weights", "columns", "result", "result_pitch")),
        *((name, Axis) for name in ("vertical", "horizontal")),
    )


_IMAGES, _SIDE, _RESIZED = 16, 480, 224  # a table of 16 samples fits among the parameters
_SHARES = (0.3, 0.7)


def _random_images(k: int, device: str) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(k)
    return torch.randint(0, 256, (_IMAGES, _SIDE, _SIDE, 3), dtype=torch.uint8, generator=generator, device=device)


def _blend_with_operators(images: torch.Tensor) -> torch.Tensor:
    weight, rest = (torch.tensor(share) for share in _SHARES)
    return images.float() * weight.to(images.device) + images.flip(0).float() * rest.to(images.device)


def _multiprocessors() -> int:
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


def _prepare_blend(images: torch.Tensor, out: torch.Tensor, variant: Variant) -> Launch:
    count = images[0].numel()
    rows = [Blend(images[i].data_ptr(), images[_IMAGES - 1 - i].data_ptr(), out[i].data_ptr(), *_SHARES) for i in range(_IMAGES)]
    elements, resident = int(variant.constants.get("int kBytes", 16)), int(variant.constants.get("kResident", 4))
    tiles = BatchTiles.of(count, 256 * elements, _IMAGES)
    grid = min(tiles.total, resident * _multiprocessors())
    return Launch((grid, 1, 1), 256, [pack_table(rows), tiles, ctypes.c_int64(count)])


def _prepare_linear(images: torch.Tensor, out: torch.Tensor, variant: Variant) -> Launch:
    height, width, channels = images.shape[1:]
    to_height, to_width = out.shape[1:3]
    rows = []
    for i in range(_IMAGES):
        row = TiledSample(images[i].data_ptr(), out[i].data_ptr(), 1, width * channels, height * width * channels)
        row.out_pitch, row.out_plane, row.channels = to_width * channels, to_height * to_width * channels, channels
        row.vertical, row.horizontal = Axis.linear(height, to_height), Axis.linear(width, to_width)
        rows.append(row)
    high = int(variant.constants.get("kLinearRows", 64))
    tiles = math.ceil(to_height / high) * math.ceil(to_width / 32)
    return Launch((tiles, _IMAGES, 1), 256, [pack_table(rows), ctypes.c_int64(_IMAGES), ctypes.c_int(0)])


def _resize_linearly(images: torch.Tensor) -> torch.Tensor:
    return ndd.resize(ndd.as_batch(images, layout="HWC"), size=[_RESIZED, _RESIZED], antialias=False).torch()


_BLEND, _LINEAR = "ops/generic/blend_batch.cu", "ndd/resample/linear.cuh"
CONTESTS = (
    Contest(
        "mixup, uint8 to float32",
        f'#include "{_BLEND}"\n',
        r"blend_gpuIhf",
        {"ndd::blend_batch_kernels::Blend": Blend, "ndd::BatchTiles": BatchTiles},
        (
            Variant("16 bytes a thread (shipped)", _BLEND),
            Variant("8 bytes a thread", _BLEND, {"int kBytes": "8"}),
            Variant("32 bytes a thread", _BLEND, {"int kBytes": "32"}),
            Variant("2 blocks a multiprocessor", _BLEND, {"kResident": "2"}),
        ),
        _random_images,
        _blend_with_operators,
        _prepare_blend,
    ),
    Contest(
        "resize, linear",
        f'#include "{_LINEAR}"\n'
        "template __global__ void ndd::resample_gpu::linear_kernel<uint8_t, 3, ndd::resample_gpu::TiledSample>(\n"
        "    const __grid_constant__ ndd::TableRows<ndd::resample_gpu::TiledSample>, int64_t, ndd::DType);\n",
        r"linear_kernelIhLi3",
        {"ndd::Axis": Axis, "ndd::resample_gpu::TiledSample": TiledSample},
        (
            Variant("64 rows a block (shipped)", _LINEAR),
            Variant("32 rows a block", _LINEAR, {"kLinearRows": "32"}),
            Variant("128 rows a block", _LINEAR, {"kLinearRows": "128"}),
        ),
        _random_images,
        _resize_linearly,
        _prepare_linear,
    ),
)


# --- Building --------------------------------------------------------------------------------------------


def replace_constants(text: str, variant: Variant) -> str:
    """Return a source with the constants of a variant."""
    for name, value in variant.constants.items():
        text, count = re.subn(rf"\b({re.escape(name)} = )\d+", rf"\g<1>{value}", text)
        if count != 1:
            raise ValueError(f"{variant.file}: {name} is defined {count} times, not once; change the variant {variant.name!r}")
    return text


def write_layout_checks(structures: dict[str, type[ctypes.Structure]]) -> str:
    """Return assertions that the compiler's structures are those of this file."""
    lines = []
    for name, structure in structures.items():
        lines.append(f"static_assert(sizeof({name}) == {ctypes.sizeof(structure)});")
        if structure is BatchTiles:  # one of its members is a structure
            continue
        for member, *_ in structure._fields_:
            lines.append(f"static_assert(offsetof({name}, {member.rstrip('_')}) == {getattr(structure, member).offset});")
    return "\n".join(lines) + "\n"


def write_source(folder: Path, contest: Contest, variant: Variant) -> Path:
    """Write the changed file of a variant, which comes before that of the library, and the source that includes it; return the latter."""
    changed = folder / variant.file
    changed.parent.mkdir(parents=True)
    changed.write_text(replace_constants((CSRC / variant.file).read_text(), variant))
    source = folder / "variant.cu"
    source.write_text(f"#include <cstddef>\n{contest.source}{write_layout_checks(contest.structures)}")
    return source


def build(folder: Path, nvcc: str, include: Sequence[Path], contests: Sequence[Contest] = CONTESTS) -> None:
    """Compile all variants, and write down the names of their kernels."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest: dict[str, dict[str, dict[str, str]]] = {}
    for number, contest in enumerate(contests):
        for k, variant in enumerate(contest.variants):
            cubin = folder / f"{number}_{k}.cubin"
            with tempfile.TemporaryDirectory() as scratch:
                source = write_source(Path(scratch), contest, variant)
                folders = [f"-I{path}" for path in (scratch, CSRC, *include)]
                options = ["-arch=sm_90", "-cubin", "-std=c++17", "-O3", "--extended-lambda", "--expt-relaxed-constexpr", "-DUSE_CUDA"]
                subprocess.run([nvcc, *options, *folders, "-o", str(cubin), str(source)], check=True)
            names = sorted(set(re.findall(rb"\.text\.(\w+)", cubin.read_bytes())))
            kernels = [name.decode() for name in names if re.search(contest.kernel, name.decode())]
            if len(kernels) != 1:
                raise ValueError(f"{cubin}: {len(kernels)} kernels match {contest.kernel}, not one")
            manifest.setdefault(contest.name, {})[variant.name] = {"cubin": cubin.name, "kernel": kernels[0]}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))


# --- Racing ----------------------------------------------------------------------------------------------


class Device(Protocol):
    """What a race needs of a GPU; the tests have one that computes on the CPU."""

    name: str  # of torch's device

    def load(self, cubin: Path, kernel: str) -> Any:
        """Return a kernel."""

    def launch(self, kernel: Any, launch: Launch) -> None:
        """Start a kernel on torch's current stream."""

    def seconds(self, work: Callable[[], None]) -> float:
        """Return how long the device takes for what is launched."""
        ...


class Gpu:
    """The current GPU, by the driver's interface."""

    name = "cuda"

    def __init__(self) -> None:
        torch.zeros(1, device="cuda")  # creates the context
        self._driver = ctypes.CDLL("libcuda.so.1")

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._driver, function)(*arguments)
        if status != 0:
            raise RuntimeError(f"{function}: CUDA error {status}")

    def load(self, cubin: Path, kernel: str) -> Any:
        """Return a kernel of a cubin."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), cubin.read_bytes())
        self._call("cuModuleGetFunction", ctypes.byref(function), module, kernel.encode())
        return function

    def launch(self, kernel: Any, launch: Launch) -> None:
        """Start a kernel on torch's current stream."""
        addresses = (ctypes.c_void_p * len(launch.parameters))(*(ctypes.addressof(value) for value in launch.parameters))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self._call("cuLaunchKernel", kernel, *launch.grid, launch.block, 1, 1, 0, stream, addresses, None)

    def seconds(self, work: Callable[[], None]) -> float:
        """Return the time between events around the work."""
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(2_000_000)  # a millisecond, in which the launches are issued
        first.record()
        work()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1e3


@dataclass
class Result:
    """How a variant did: seconds of a launch, and whether its output is the operator's."""

    seconds: float
    equal: bool


def take_turns(count: int, rounds: int = ROUNDS) -> Iterator[int]:
    """Yield the order in which variants run: forward and backward in turn, so a drift of the clock falls on all of them."""
    for round_ in range(rounds):
        yield from range(count) if round_ % 2 == 0 else reversed(range(count))


def race(folder: Path, device: Device, contest: Contest, rotated_bytes: int = ROTATED_BYTES, rounds: int = ROUNDS) -> dict[str, Result]:
    """Compare the outputs of all variants and measure them in turns."""
    manifest = json.loads((folder / "manifest.json").read_text())[contest.name]
    inputs = [contest.inputs(0, device.name)]
    while sum(value.nbytes for value in inputs) <= rotated_bytes:
        inputs.append(contest.inputs(len(inputs), device.name))
    expected = [contest.expected(value) for value in inputs]
    outputs = [torch.empty_like(value) for value in expected]
    kernels, launches, equal = [], [], []
    for variant in contest.variants:
        kernel = device.load(folder / manifest[variant.name]["cubin"], manifest[variant.name]["kernel"])
        kernels.append(kernel)
        launches.append([contest.prepare(value, out, variant) for value, out in zip(inputs, outputs, strict=True)])
        for out in outputs:
            out.view(torch.uint8).fill_(0xCD)
        for launch in launches[-1]:
            device.launch(kernel, launch)
        same = [torch.equal(out.view(torch.uint8), value.view(torch.uint8)) for out, value in zip(outputs, expected, strict=True)]
        equal.append(all(same))
    taken: list[list[float]] = [[] for _ in contest.variants]

    def run_all(kernel: Any, prepared: Sequence[Launch]) -> None:
        for launch in prepared:
            device.launch(kernel, launch)

    for k in take_turns(len(kernels), rounds):
        taken[k].append(device.seconds(lambda k=k: run_all(kernels[k], launches[k])) / len(inputs))  # type: ignore[misc]
    found = zip(contest.variants, taken, equal, strict=True)
    return {variant.name: Result(statistics.median(seconds), same) for variant, seconds, same in found}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status is 1 when an output differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda.variants", description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("command", choices=("build", "race"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the figures of a race")
    options = parser.parse_args(arguments)
    if options.command == "build":
        nvcc = shutil.which("nvcc")
        if nvcc is None:
            print("nvcc is not in PATH", file=sys.stderr)
            return 2
        build(options.folder, nvcc, [Path(torch.__file__).parent / "include"])
        return 0
    device, figures = Gpu(), {}
    for contest in CONTESTS:
        figures[contest.name] = race(options.folder, device, contest)
        for name, result in figures[contest.name].items():
            print(f"{contest.name}: {name}: {result.seconds * 1e6:.1f} us{'' if result.equal else ', THE OUTPUT DIFFERS'}")
    if options.json is not None:
        report = {name: {variant: vars(result) for variant, result in results.items()} for name, results in figures.items()}
        options.json.write_text(json.dumps({"device": torch.cuda.get_device_name(), "results": report}, indent=1))
    return int(not all(result.equal for results in figures.values() for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
