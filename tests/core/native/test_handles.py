# SPDX-License-Identifier: Apache-2.0
"""Functions of torch.ops that take handles as integers: whatever the number, they raise an error or do what they are for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd._core import native
from torch_ndd._core.values import native_plan
from torch_ndd.readers._ranges.ranges import RangeRequest, Ranges
from torch_ndd.readers.mxnet import _ImageRecordRequest

EAGER = native.numbers("stream.Mode")["eager"]
VALUES = torch.arange(12.0).reshape(3, 2, 2, 1)
READS = ("range_bytes", "record_output", "npy_bytes")


class CopyPlan:
    """The plan of a kernel that copies a batch of three samples."""

    def __init__(self) -> None:
        arguments = (VALUES, None, torch.empty_like(VALUES), None)
        places = [(0, native_plan.WHOLE, 0), (2, native_plan.WHOLE, native.numbers("plan.Place")["output_place"])]
        fits, rows = [native.numbers("plan.Fit")["equal_shape"]], native.numbers("plan.Rows")["by_tensors"]
        plan = native_plan.keep_call(torch.ops.ndd.copy.default, arguments, places, fits, -1, rows, None)
        assert plan is not None
        self.handle, self._owner = plan.handle, plan.owner

    def release(self) -> None:
        self._owner = None
        native.c_function("ndd_plan_release")(self.handle)


@pytest.fixture
def plan() -> Any:
    copy = CopyPlan()
    yield copy
    copy.release()


def wrong_handles(handle: int) -> list[int]:
    """Return other numbers than handles: small and large ones, addresses of other memory, and those around a handle."""
    return [0, 1, -1, 16, 4096, 1 << 40, (1 << 63) - 1, -(1 << 63), VALUES.data_ptr(), handle + 1, handle + 8, handle - 16]


def read(tmp_path: Path) -> RangeRequest:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    name = str(path).encode()
    return RangeRequest(Ranges(b"", name, np.array([0, len(name)])), np.array([0]))


def test_repeated_calls_reject_wrong_plans(plan: CopyPlan) -> None:
    for handle in wrong_handles(plan.handle):
        with pytest.raises(RuntimeError, match="ndd::again: plan must be a handle that is in use"):
            torch.ops.ndd.again(handle, [VALUES], [], EAGER, 0)
        with pytest.raises(RuntimeError, match="ndd::again: plan must be a handle that is in use"):
            torch.ops.ndd.again_with(handle, VALUES, None, EAGER, 0, 0, 0)
    output, pending = torch.ops.ndd.again_with(plan.handle, VALUES, None, EAGER, 0, 0, 0)
    assert output.equal(VALUES)
    assert not pending


def test_released_plans_are_rejected() -> None:
    copy = CopyPlan()
    copy.release()
    with pytest.raises(RuntimeError, match="plan must be a handle that is in use"):
        torch.ops.ndd.again_with(copy.handle, VALUES, None, EAGER, 0, 0, 0)
    copy.release()  # a second time ends nothing


def test_repeated_calls_reject_wrong_reads(plan: CopyPlan) -> None:
    for handle in [*wrong_handles(plan.handle)[1:], plan.handle]:
        with pytest.raises(RuntimeError, match="ndd::again: reads must be a handle that is in use"):
            torch.ops.ndd.again(plan.handle, [VALUES], [handle, 0], EAGER, 0)
        with pytest.raises(RuntimeError, match="ndd::again: reads must be a handle that is in use"):
            torch.ops.ndd.again_with(plan.handle, VALUES, None, EAGER, handle, 0, 0)
    with pytest.raises(RuntimeError, match="pairs of a handle and a sample, got 1 numbers"):
        torch.ops.ndd.again(plan.handle, [VALUES], [0], EAGER, 0)
    for mode in (-1, 0, 4, 1 << 40):
        with pytest.raises(RuntimeError, match=f"there is no mode {mode}"):
            torch.ops.ndd.again_with(plan.handle, VALUES, None, mode, 0, 0, 0)
        with pytest.raises(RuntimeError, match=f"there is no mode {mode}"):
            torch.ops.ndd.again(plan.handle, [VALUES], [], mode, 0)


def test_repeated_calls_reject_samples_that_do_not_exist(plan: CopyPlan) -> None:
    with ndd.EvalMode.deferred:
        source = ndd.flip(ndd.batch(VALUES, layout="HWC"), horizontal=1)
        pending = source.pending
        assert pending is not None
        for sample in (-4, -(1 << 63)):
            with pytest.raises(RuntimeError, match=f"reads has no sample {sample}"):
                torch.ops.ndd.again_with(plan.handle, source.buffer, None, EAGER, pending.handle, sample, 0)
        # One behind the last sample stands for all of them.
        output, handle = torch.ops.ndd.again_with(plan.handle, source.buffer, None, EAGER, pending.handle, 1 << 62, 0)
        owner = native.own(handle, native.OF_CALL, 0)
        assert native.wait(handle) == 0
        assert output.equal(VALUES.flip(2))
        del owner


@pytest.mark.parametrize("function", READS)
def test_reads_reject_wrong_handles(function: str, plan: CopyPlan, tmp_path: Path) -> None:
    arguments = {"range_bytes": (None,), "record_output": (0,), "npy_bytes": ()}[function]
    request = read(tmp_path)
    for handle in [*wrong_handles(request._handle), plan.handle]:
        with pytest.raises(RuntimeError, match=f"ndd::{function}: handle must be a handle that is in use"):
            getattr(torch.ops.ndd, function)(handle, *arguments)
    request.wait()
    if function == "range_bytes":
        assert bytes(torch.ops.ndd.range_bytes(request._handle, None)[:7].numpy()) == b"content"
        with pytest.raises(RuntimeError, match="can be taken once"):
            torch.ops.ndd.range_bytes(request._handle, None)
    else:
        with pytest.raises(RuntimeError, match=f"ndd::{function}: handle belongs to another kind of request"):
            getattr(torch.ops.ndd, function)(request._handle, *arguments)


def test_records_have_the_outputs_of_their_request(tmp_path: Path) -> None:
    # One record of MXNet: a header, a label, two numbers, an image.
    content = np.uint32(0).tobytes() + np.float32(7).tobytes() + bytes(16) + b"image"
    path = tmp_path / "records"
    path.write_bytes(np.array([0xCED7230A, len(content)], np.uint32).tobytes() + content + bytes(-len(content) % 4))
    name = str(path).encode()
    size = path.stat().st_size
    request = _ImageRecordRequest(Ranges(b"", name, np.array([0, len(name)]), *(np.array([value]) for value in (0, 0, size))), np.array([0]))
    request.wait()
    for output in (-1, 2, 1 << 40, -(1 << 63)):
        with pytest.raises(RuntimeError, match=f"ndd::record_output: there is no output {output}"):
            torch.ops.ndd.record_output(request._handle, output)
    assert bytes(torch.ops.ndd.record_output(request._handle, 0).numpy()) == b"image"
    with pytest.raises(RuntimeError, match="can be taken once"):
        torch.ops.ndd.record_output(request._handle, 0)
    with pytest.raises(RuntimeError, match="ndd::range_bytes: handle belongs to another kind of request"):
        torch.ops.ndd.range_bytes(request._handle, None)
