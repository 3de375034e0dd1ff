# SPDX-License-Identifier: Apache-2.0
"""Uploads of what the CPU still computes, and whole loops that wait for nothing, on a device whose streams are late (late.py)."""

import gc
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from _late_values import SAMPLES, compute_expected, compute_pending, decode_images, encode_files, get_work, read_damaged_files, upload_array

import torch_ndd as ndd
from torch_ndd._core import native
from torch_ndd._core.work import cuda_work, upload
from torch_ndd._core.work.pending import Pending


@pytest.mark.parametrize("size", [8, 256])
def test_upload_of_pending_values_returns_immediately(busy: Any, size: int) -> None:
    expected = compute_expected(size)
    for _ in range(3):  # from pinned memory in the end
        busy(True)
        value = compute_pending(size)
        copy = value.gpu()
        used = ndd.flip(copy, horizontal=1)
        assert not get_work(copy).has_ended()
        assert not get_work(used).has_ended()
        del value, copy
        busy(False)
        assert torch.equal(used.torch().cpu().flip(2), expected)


def test_launches_do_not_wait_behind_an_upload_that_they_do_not_read(busy: Any) -> None:
    busy(True)
    copy = compute_pending(8).gpu()
    issued = ndd.flip(upload_array(), horizontal=1)
    assert type(issued.pending) is cuda_work.StreamWork
    assert not get_work(copy).has_ended()


@pytest.mark.parametrize("size", [8, 256])
def test_values_may_be_changed_after_their_upload(size: int) -> None:
    """The program gets the memory that the queued upload reads: it waits for the upload then."""
    expected = compute_expected(size)
    for _ in range(4):
        value = compute_pending(size)
        copy = value.gpu()
        np.asarray(value.torch())[:] = 7
        assert torch.equal(copy.torch().cpu(), expected)


def test_error_of_pending_values_is_that_of_their_upload() -> None:
    images = ndd.decoders.image(read_damaged_files(), device="cpu")  # the line of the damage
    copy = images.gpu()
    with pytest.raises(RuntimeError, match=r"(?s)sample 2.*# the line of the damage"):
        copy.torch()
    assert torch.equal(compute_pending(8).gpu().torch().cpu(), compute_expected(8))  # what follows on the stream is not affected


@pytest.mark.parametrize("mode", [ndd.EvalMode.sync_cpu, ndd.EvalMode.sync_full])
def test_upload_waits_in_synchronous_modes(mode: Any) -> None:
    value = compute_pending(8)
    with mode:
        assert type(value.gpu().pending) is cuda_work.StreamWork


def test_upload_waits_for_python_functions() -> None:
    """Such a function may wait for a launch, which could be queued behind the upload."""
    flags = ndd.python_function(lambda sample: sample + 1, ndd.batch([np.int32(k) for k in range(SAMPLES)]))
    copy = flags.gpu()
    assert type(copy.pending) is cuda_work.StreamWork
    assert copy.torch().cpu().tolist() == [1, 2, 3]


def test_dropped_uploads_leave_nothing_behind() -> None:
    last = compute_pending(256).gpu()
    last.torch().cpu()
    before = torch.cuda.memory_allocated()
    for _ in range(30):
        last = compute_pending(256).gpu()
    last.torch().cpu()
    gc.collect()
    compute_pending(8).gpu().torch()
    assert torch.cuda.memory_allocated() <= before + 8 * last.buffer.nbytes
    for _ in range(60):
        compute_pending(256).gpu().torch().cpu()
    assert len(upload._reads) <= 20


def test_host_waits_for_nothing_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, CPU operators, an upload and GPU operators: nothing waits until the result is read."""
    waits: list[str] = []

    def count(self: Any, *, original: Any = Pending._end) -> None:
        if not native.done(self._handle):
            waits.append("host")
        original(self)

    monkeypatch.setattr(Pending, "_end", count)
    synchronize = torch.cuda.Event.synchronize
    monkeypatch.setattr(torch.cuda.Event, "synchronize", lambda event: (waits.append("event"), synchronize(event))[1])
    results = []
    for _ in range(20):
        images = ndd.decoders.image(encode_files()[0], device="cpu")
        labels = ndd.cast(ndd.reductions.sum(images), dtype=ndd.int64).gpu()
        images = ndd.resize(images, size=[256, 256]).gpu()
        results.append((ndd.crop_mirror_normalize(images, mean=[1.0] * 3, std=[2.0] * 3, output_layout="CHW"), labels))
    assert waits == []
    first = results[0][0].torch().cpu()
    assert all(torch.equal(images.torch().cpu(), first) for images, _ in results)


def test_loader_has_its_batches_in_flight(gate: Any) -> None:
    """The thread of the loader prepares all of them without waiting for one to be decoded."""
    prepared: list[Any] = []

    def prepare(files: Any) -> Any:
        value = ndd.crop_mirror_normalize(ndd.resize(decode_images(), size=[8, 8]), mean=[1.0] * 3, std=[2.0] * 3, output_layout="CHW")
        prepared.append(value.pending)
        return value

    loader = ndd.DataLoader([(np.zeros(1, np.uint8),)] * 24, batch_size=3, fn=prepare, prefetch=3)
    taken: list[Any] = []
    reader = threading.Thread(target=lambda: taken.extend(loader))  # waits for the first batch
    reader.start()
    end = time.monotonic() + 20
    while len(prepared) < 3 and time.monotonic() < end:
        time.sleep(0.001)
    # Later ones, after the gate is opened, may be decoded before they are resized.
    in_flight = [isinstance(work, cuda_work.QueuedWork) and not work.host.has_ended() for work in prepared]
    gate(False)
    reader.join()
    assert len(in_flight) >= 3
    assert all(in_flight)
    assert len(taken) == 8
