# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that makes operators run their CUDA kernels on an emulator: ``python -m pytest -p emulated_plugin tests/test_operators.py``.

It needs a library built from rewrite.py's output. Tensors stay on the CPU. Every kernel runs several times, with blocks and threads in different
orders and different garbage in its output; a difference means a race, uninitialized memory that is read, or output that is not written.
"""

import contextlib
import ctypes
import functools
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from torch_ndd._core import native
from torch_ndd._core.operators import plans
from torch_ndd._core.values import dispatch
from torch_ndd._core.work.pending import Pending

ORDERS = [("forward", 0, 0xCD), ("reverse", 1, 0x00), ("random", 2, 0xFF)]  # name, number in emulated_cuda.cpp, fill byte of the outputs
MAX_BYTES = 2 << 20  # of inputs and outputs; larger calls run on the CPU, because the checks take a microsecond per byte
# Arguments that the operators create on the device.
ON_DEVICE = {
    *(("blend_batch", name) for name in ("images", "others")),
    *(("box_encoder", "anchors"), ("filter", "fill_value"), ("paste_boxes", "images")),
    *((name, "value") for name in ("zeros", "ones", "zeros_like", "ones_like")),
    *(("yuv_to_rgb", name) for name in ("luma", "blue", "red")),  # planes of a decoder, whose rows may be apart
}
CSRC = Path(__file__).parents[2] / "csrc"
_REGISTERED = re.compile(r"^NDD_(?:HOST_)?KERNELS?\((\w+), (?:(?:CPU|CUDA), )?(?:\w+::)*(\w+)(?:<.*>)?\)", re.MULTILINE)


def _parameters() -> dict[str, list[str]]:
    """Return the names of the parameters of each kernel from its source: a schema has only their types."""
    found: dict[str, list[str]] = {}
    for path in sorted(CSRC.rglob("*.c*")):
        text = path.read_text() if path.is_file() else ""
        for op, function in _REGISTERED.findall(text):
            definition = re.search(rf"^void {function}\(([^;{{]*?)\) {{", text, re.MULTILINE)
            if definition is None:
                raise ValueError(f"{path}: the definition of {function} was not found")
            # A parameter that is not used has a type only.
            found[op] = [words[-1] if len(words := value.split()) > 1 else "" for value in definition[1].replace("const ", "").split(",")]
    return found


PARAMETERS = _parameters()

_library = ctypes.PyDLL(str(native.PATH))
_library.ndd_emulator_begin.argtypes = [ctypes.c_int]
_library.ndd_emulator_end.restype = ctypes.c_char_p
_library.ndd_emulator_add_memory.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int]
_library.ndd_emulator_remove_memory.argtypes = [ctypes.c_void_p]
_library.ndd_emulator_launches.restype = ctypes.c_char_p

_device_lock = threading.RLock()  # the emulator has one device, whose memory and order are global; a loader calls operators in a thread
_queue_cpu = dispatch.submit
_cuda = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
_emulates = True
operators_run: dict[str, int] = {}


@contextlib.contextmanager
def on_cpu() -> Iterator[None]:
    """Make operators run their CPU kernels within this block."""
    global _emulates
    _emulates = False
    yield
    _emulates = True


def count_launches() -> int:
    """Return how many kernels have been launched so far, without those that copy tables; each call runs them once for each of ``ORDERS``."""
    lines = _library.ndd_emulator_launches().decode().splitlines()
    return sum(int(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("ndd/upload.cu"))


def _device_tensors(kernel: Any, arguments: Sequence[Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return which inputs and outputs of a kernel would be on the GPU: those with a table of shapes, and what it fills. The rest is on the host."""
    op = kernel._schema.name.partition("::")[2]
    names = PARAMETERS[op]
    inputs, outputs = [], []
    for name, parameter, value in zip(names, kernel._schema.arguments, arguments, strict=True):
        variadic = isinstance(value, (list, tuple)) and name == "inputs"  # "shapes" are their tables
        filled = parameter.alias_info is not None and parameter.alias_info.is_write
        if filled or variadic or f"{name}_shapes" in names or (op, name) in ON_DEVICE:
            tensors = [value for value in (value if variadic else [value]) if value is not None]
            (outputs if filled else inputs).extend(tensors)
    return inputs, outputs


def _span(values: torch.Tensor) -> int:
    """Return the number of elements from the first to the last one, with those between the rows of a view."""
    return 1 + sum((extent - 1) * stride for extent, stride in zip(values.shape, values.stride(), strict=True))


@contextlib.contextmanager
def known_memory(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> Iterator[None]:
    """Register the device's memory with the emulator, each byte once."""
    spans = sorted((item.data_ptr(), item.data_ptr() + _span(item) * item.itemsize, 1) for item in inputs if item.numel())
    merged: list[tuple[int, int, int]] = []
    for begin, end, written in spans:
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), written)
        else:
            merged.append((begin, end, written))
    merged += [(output.data_ptr(), output.data_ptr() + output.numel() * output.itemsize, 0) for output in outputs if output.numel()]
    for begin, end, written in merged:
        _library.ndd_emulator_add_memory(begin, end - begin, written)
    try:
        yield
    finally:
        for begin, _, _ in merged:
            _library.ndd_emulator_remove_memory(begin)


def run_emulated(kernel: Any, arguments: Sequence[Any], inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
    """Run the CUDA kernel of an operator on CPU tensors, in every order."""
    name = kernel._schema.name.partition("::")[2]
    operators_run[name] = operators_run.get(name, 0) + 1
    first: list[torch.Tensor] = []
    for order, number, garbage in ORDERS:
        for out in outputs:
            out.flatten().view(torch.uint8).fill_(garbage) if out.is_contiguous() else None
        with _device_lock, known_memory(inputs, outputs):
            _library.ndd_emulator_begin(number)
            try:
                _queue_cpu(functools.partial(kernel.redispatch, _cuda), arguments, [], False)
            finally:
                complaint = _library.ndd_emulator_end()
        if complaint:
            raise AssertionError(f"{name}: {complaint.decode()}")
        results = [out.flatten().view(torch.uint8).clone() for out in outputs]
        for k, (value, other) in enumerate(zip(first, results, strict=False)):
            if not torch.equal(value, other):
                wrong = (value != other).nonzero().flatten()
                raise AssertionError(
                    f"{name}: output {k} differs in {len(wrong)} of {len(value)} bytes, the first is byte {int(wrong[0])}, when blocks and "
                    f"threads run in {order} order on other garbage: a race, or memory that nothing was written to"
                )
        first = first or results


def _queue_emulated(
    kernel: Callable[..., Any], arguments: Sequence[Any], reads: Sequence[tuple[Pending, int]], external: bool, sources: Sequence[str] = ()
) -> Pending | None:
    name = getattr(getattr(kernel, "_schema", None), "name", "").partition("::")[2]
    if not _emulates or (name, "CUDA") not in native.KERNELS:
        return _queue_cpu(kernel, arguments, reads, external, sources)
    inputs, outputs = _device_tensors(kernel, arguments)
    if sum(value.numel() * value.itemsize for value in (*inputs, *outputs)) > MAX_BYTES:
        return _queue_cpu(kernel, arguments, reads, external, sources)
    for pending, _ in reads:
        pending.wait()
    run_emulated(kernel, arguments, inputs, outputs)
    return None


for _module in [module for name, module in sys.modules.items() if name.startswith("torch_ndd")]:
    if getattr(_module, "submit", None) is _queue_cpu:
        vars(_module)["submit"] = _queue_emulated
plans.run_plan = lambda *_: None  # native code repeats calls of the CPU's kernels, past the function above


@pytest.hookimpl
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Append what has run to the file of the environment variable, for a report of all processes."""
    del session
    if path := os.environ.get("NDD_EMULATED_LOG"):
        lines = [f"operator {name} {count}" for name, count in operators_run.items()]
        lines += [f"launch {line}" for line in _library.ndd_emulator_launches().decode().splitlines()]
        with Path(path).open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))
