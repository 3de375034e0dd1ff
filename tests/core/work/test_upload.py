# SPDX-License-Identifier: Apache-2.0
"""Copies between the host and GPUs: the source memory, the stream, and the waits for them."""

import os
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _fake_copies import FakeCopies, GpuTensor
from _memory import resident_bytes

import torch_ndd as ndd
from torch_ndd import EvalMode, Uploads, types
from torch_ndd._core import native
from torch_ndd._core.context import context as contexts
from torch_ndd._core.context import streams
from torch_ndd._core.work import upload

SHAPE = (4, 512, 512, 3)
BYTES = 4 * 512 * 512 * 3


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCopies]:
    fake = FakeCopies()
    fake.install(monkeypatch)
    for module, name, value in (
        (upload, "_counts", [0] * 6),
        (upload, "_streams", {}),
        (upload, "_reads", deque()),
        (upload, "_queue_copy", None),  # running ahead needs a CUDA runtime: tests/emulated_cuda/uploads_ahead.py
    ):
        monkeypatch.setattr(module, name, value)
    before = contexts.thread_state.__dict__.copy(), streams.local.__dict__.copy()
    native.pinned_sizes.clear()
    contexts.thread_state.__dict__.update(defaults={})
    streams.local.__dict__.update(streams={}, own={}, changes={})
    yield fake
    native.pinned_sizes.clear()
    native.pin_no_size()
    for module, values in zip((contexts.thread_state, streams.local), before, strict=True):
        module.__dict__.update(values)
    streams._default_streams.clear()


def make_input(seed: int = 0, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 200, shape, np.uint8)


def compute(seed: int = 0) -> ndd.Batch:
    """A batch in our own memory: ``given(seed) + 1``."""
    return ndd.brightness(ndd.as_batch(make_input(seed), layout="HWC"), brightness_shift=1 / 255)


def content(value: ndd.Batch | ndd.Tensor | torch.Tensor) -> np.ndarray:
    values = value if isinstance(value, torch.Tensor) else value.torch()
    assert isinstance(values, GpuTensor)
    return values.as_subclass(torch.Tensor).numpy()


def host_waits(cuda: FakeCopies) -> list[Any]:
    return [entry for entry in cuda.log if isinstance(entry, str) or entry[0] == "synchronize"]


def test_our_buffers_are_pinned_from_the_second_one_of_a_size_on(cuda: FakeCopies) -> None:
    for k in range(4):
        moved = compute(k).gpu()
        assert len(cuda.queued) == 1  # no copy by the driver, and no wait
        assert host_waits(cuda) == []
        cuda.finish()
        np.testing.assert_array_equal(content(moved), make_input(k) + 1)
        assert ndd.uploads() == Uploads(direct=k, direct_bytes=k * BYTES, staged=1, staged_bytes=BYTES)
    ndd.brightness(ndd.as_batch(make_input(0, (8, 512, 512, 3)), layout="HWC"))
    assert native.pinned_sizes == {native.size_class(BYTES)}
    assert len(cuda.pinned) == 4


@pytest.mark.parametrize("dtype", sorted(types.NUMERIC, key=str), ids=str)
def test_memory_of_the_caller_may_be_overwritten_at_once(cuda: FakeCopies, dtype: torch.dtype) -> None:
    values = torch.from_numpy(make_input()).to(dtype)
    expected = values.clone()
    for k in range(2):
        values.copy_(expected)
        moved = ndd.as_batch(values).gpu()
        values.zero_()
        assert len(cuda.queued) == 1
        assert host_waits(cuda) == []
        cuda.finish()
        assert moved.dtype == dtype
        assert torch.equal(moved.torch().as_subclass(torch.Tensor), expected)
        assert ndd.uploads() == Uploads(staged=k + 1, staged_bytes=(k + 1) * expected.nbytes)
    assert not native.pinned_sizes  # the caller's memory does not affect ours


def test_pinned_memory_of_the_caller_is_waited_for(cuda: FakeCopies) -> None:
    values = torch.empty(SHAPE, dtype=torch.uint8, pin_memory=True).copy_(torch.from_numpy(make_input()))
    moved = ndd.as_batch(values).gpu()
    values.zero_()
    assert host_waits(cuda) == ["host waits for an upload"]
    np.testing.assert_array_equal(content(moved), make_input())
    assert ndd.uploads() == Uploads(direct=1, direct_bytes=BYTES)


def test_small_values_go_with_the_command_on_the_stream_of_the_context(cuda: FakeCopies) -> None:
    compute().gpu()
    cuda.finish()
    cuda.log.clear()
    before = ndd.uploads()
    for shape in ((), (3,), (64 << 10,)):
        moved = ndd.as_tensor(make_input(1, shape)).gpu()
        assert moved.pending._stream == ndd.get_current_stream().torch
        np.testing.assert_array_equal(content(moved), make_input(1, shape))
    assert ndd.uploads() == before
    assert ndd.as_tensor(make_input(1, ((64 << 10) + 1,))).gpu().pending._stream == upload._streams[0]


def test_who_uses_the_result_waits_for_the_stream_of_copies(cuda: FakeCopies) -> None:
    first, second = compute(0).gpu(), compute(1).gpu()
    side = upload._streams[0].cuda_stream
    assert [value.pending._stream.cuda_stream for value in (first, second)] == [side, side]
    assert cuda.log == []
    for _ in range(2):
        first.torch()
    assert cuda.log == [("wait_event", 0, side), ("record", 0)]
    cuda.log.clear()
    with ndd.EvalContext() as context, upload.on_stream(torch.device("cuda", 0), [(second.buffer, second.pending)]):
        assert context.cuda_stream is not None
        second.wait()
        assert cuda.log == [("wait_event", context.cuda_stream.handle, side), ("record", context.cuda_stream.handle)]
    cuda.log.clear()
    second.torch()  # that another stream has waited does not help this one
    assert cuda.log == [("wait_event", 0, side), ("record", 0)]


def test_each_gpu_has_a_stream_of_copies(cuda: FakeCopies) -> None:
    batch = compute()
    pendings = [batch.gpu(k).pending for k in (0, 1, 0)]
    assert [work._stream.device_index for work in pendings] == [0, 1, 0]
    assert pendings[0]._stream is pendings[2]._stream


def test_sync_full_waits_for_the_copy(cuda: FakeCopies) -> None:
    batch = compute()
    for mode in EvalMode:
        with mode:
            batch.gpu()
    assert host_waits(cuda) == [("synchronize", upload._streams[0].cuda_stream)]


def test_exposed_memory_may_be_written_to(cuda: FakeCopies) -> None:
    """Our memory with a view: if it was taken after the copy began it waits, otherwise the copy is staged."""
    compute().gpu()
    cuda.finish()
    batch = compute(1)
    moved = batch.gpu()
    assert host_waits(cuda) == []
    batch.tensors[2].torch()[:] = 0
    assert host_waits(cuda) == ["host waits for an event"]
    np.testing.assert_array_equal(content(moved), make_input(1) + 1)
    cuda.log.clear()

    batch = compute(2)
    view, moved = np.asarray(batch.tensors[0]), batch.gpu()
    sample = batch.tensors[0].gpu()
    small = batch.tensors[0][:4].gpu()
    view[:] = 0
    assert host_waits(cuda) == []
    cuda.finish()
    np.testing.assert_array_equal(content(moved), make_input(2) + 1)
    np.testing.assert_array_equal(content(sample), make_input(2)[0] + 1)
    np.testing.assert_array_equal(content(small), make_input(2)[0, :4] + 1)
    counts = ndd.uploads()
    assert (counts.direct, counts.staged, counts.pageable) == (1, 4, 0)


def test_small_parts_of_pinned_memory_are_waited_for_as_well(cuda: FakeCopies) -> None:
    compute().gpu()
    cuda.finish()
    batch = compute(1)
    part = batch.tensors[1][:4].gpu()
    assert len(cuda.queued) == 1
    batch.torch()[:] = 0
    np.testing.assert_array_equal(content(part), make_input(1)[1, :4] + 1)


def test_without_pinned_memory_the_driver_copies(cuda: FakeCopies) -> None:
    cuda.pinned_left = 2 * BYTES
    for k in range(4):
        np.testing.assert_array_equal(content(compute(k).gpu()), make_input(k) + 1 if not cuda.queued else cuda.finish() or make_input(k) + 1)
    assert ndd.uploads() == Uploads(1, BYTES, 1, BYTES, 2, 2 * BYTES)
    assert not native.pinned_sizes


def test_huge_buffers_are_not_pinned(cuda: FakeCopies, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "_MAX_PINNED", BYTES - 1)
    np.testing.assert_array_equal(content(compute().gpu()), make_input() + 1)
    assert ndd.uploads() == Uploads(pageable=1, pageable_bytes=BYTES)
    assert not cuda.pinned


def test_downloads_return_the_uploaded_values(cuda: FakeCopies) -> None:
    for k in range(3):
        back = ndd.as_batch(make_input(k), layout="HWC").gpu()
        cuda.finish()
        back = back.cpu()
        assert back.pending is None
        np.testing.assert_array_equal(np.asarray(back.torch()), make_input(k))
    assert ndd.as_tensor(make_input(0, (5,))).gpu().cpu().torch().tolist() == make_input(0, (5,)).tolist()
    assert native.pinned_sizes == {native.size_class(BYTES)}


def test_a_stream_that_is_captured_keeps_its_copies(cuda: FakeCopies) -> None:
    cuda.capturing = True
    compute().gpu()
    assert not upload._streams


def test_sources_are_not_kept(cuda: FakeCopies) -> None:
    sources = []
    for k in range(50):
        batch = compute(k)
        sources.append(weakref.ref(batch.buffer))
        batch.gpu()
        del batch
        if k % 5 == 4:
            cuda.finish()
        assert len(upload._reads) <= 5
    assert all(source() is None for source in sources)


def test_a_forked_child_uses_the_pool(cuda: FakeCopies) -> None:
    for k in range(2):
        batch = compute(k)
        batch.gpu()
    cuda.finish()
    pinned = len(cuda.pinned)
    child = os.fork()
    if not child:
        try:
            cuda.forked = True
            assert (np.asarray(batch.torch()) == make_input(1) + 1).all()
            assert (np.asarray(compute(3).torch()) == make_input(3) + 1).all()
            assert len(cuda.pinned) == pinned
            assert ndd.uploads().direct == 1
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert native.pinned_sizes


def test_the_loader_copies_ahead(cuda: FakeCopies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a batch is used, the next ones are being copied; torch tensors returned by the function take the same path."""
    monkeypatch.setattr(native.memory, "_pin_sizes", lambda sizes: None)  # the native readers would ask torch itself for pinned memory
    for k in range(12):
        np.save(tmp_path / f"{k:02}.npy", make_input(k, SHAPE[1:]))
    mine = torch.arange(100_000)

    def work(arrays: ndd.Batch) -> dict[str, Any]:
        # Not repeated calls, whose results the native library allocates.
        return {"images": ndd.brightness(ndd.reinterpret(arrays, layout="HWC"), brightness_shift=2 / 255), "mine": mine, "text": "x"}

    loader = ndd.DataLoader(ndd.readers.Numpy(file_root=tmp_path), work, batch_size=4, prefetch=1, device="gpu")
    loop: Any = iter(loader)
    for k, batch in enumerate(loop):
        for future in loop._waiting:
            future.result()
        assert len(cuda.queued) == (4, 2, 0)[k]
        cuda.finish()
        np.testing.assert_array_equal(content(batch["images"]), np.stack([make_input(4 * k + i, SHAPE[1:]) + 2 for i in range(4)]))
        np.testing.assert_array_equal(content(batch["mine"]), mine.numpy())
        assert batch["text"] == "x"
    assert not [entry for entry in host_waits(cuda) if "waits" in entry]
    counts = ndd.uploads()
    assert (counts.direct, counts.staged, counts.pageable) == (2, 4, 0)


def test_all_batches_of_a_loader_have_one_stream(cuda: FakeCopies, tmp_path: Path) -> None:
    """Torch's allocator keeps the memory of each stream apart."""
    for k in range(6):
        np.save(tmp_path / f"{k}.npy", make_input(k, (4, 4)))
    used = []

    def work(arrays: ndd.Batch) -> ndd.Batch:
        stream = ndd.EvalContext.current().cuda_stream
        assert stream is not None
        used.append(stream.handle)
        return arrays

    assert len(list(ndd.DataLoader(ndd.readers.Numpy(file_root=tmp_path), work, batch_size=1))) == 6
    assert len(used) == 6
    assert len(set(used)) == 1
    mine = ndd.get_current_stream()
    assert mine is not None
    assert used[0] != mine.handle


def test_the_numpy_reader_copies_ahead(cuda: FakeCopies, tmp_path: Path) -> None:
    for k in range(8):
        np.save(tmp_path / f"{k}.npy", make_input(k, SHAPE[1:]))
    reader = ndd.readers.Numpy(file_root=tmp_path, device="gpu")
    for k, (arrays,) in enumerate(reader.next_epoch(4)):
        assert len(cuda.queued) == 1
        assert host_waits(cuda) == []
        cuda.finish()
        np.testing.assert_array_equal(content(arrays), np.stack([make_input(4 * k + i, SHAPE[1:]) for i in range(4)]))


def test_readers_take_pinned_memory_from_torch(tmp_path: Path) -> None:
    """Once arrays of a size go to a GPU, the native reader reads into torch's pinned memory, if available: first as on this machine, then with an
    ``aten::empty`` that always provides it."""
    code = """
import sys, warnings, numpy as np, torch, torch_ndd as ndd
asked = set()

def empty(size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    asked.update(size if pin_memory else [])
    strides = np.cumprod([1, *[max(1, n) for n in size[:0:-1]]])[::-1].tolist() if size else []
    return torch.ops.aten.empty_strided.default(size, strides, dtype=dtype, layout=layout, device=device)

def read():
    for (arrays,) in ndd.readers.Numpy(file_root=sys.argv[1]).next_epoch(4):
        print(sorted(asked), arrays.torch().flatten(1).float().mean(1).tolist())
    asked.clear()

ndd._core.native.pin_size(3 << 20)
read()
library = torch.library.Library("aten", "IMPL")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    library.impl("empty.memory_format", empty, "CPU", allow_override=True)
ndd._core.native.pin_size(8 << 20)
ndd._core.native.pin_size(3 << 20, False)
read()
ndd._core.native.pin_size(3 << 20)
read()
ndd._core.native.pin_no_size()
read()
"""
    for k in range(4):
        np.save(tmp_path / f"{k}.npy", np.full((1024, 1000), k, np.uint8))
    process = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True, timeout=120)
    means = "[0.0, 1.0, 2.0, 3.0]"
    assert process.stdout.splitlines() == [f"[] {means}", f"[] {means}", f"[4096000] {means}", f"[] {means}"]


# --- a real GPU ---


@pytest.fixture
def gpu(device: str) -> ndd.Device:
    if device == "cpu":
        pytest.skip("runs with --device=cuda")
    return ndd.Device("gpu")


@pytest.mark.parametrize("dtype", sorted(types.NUMERIC, key=str), ids=str)
@pytest.mark.parametrize("size", [0, 1, 64 << 10, 65537, 3 << 20])
def test_values_arrive(gpu: ndd.Device, dtype: torch.dtype, size: int) -> None:
    values = torch.randint(0, 100, (size,)).to(dtype)
    expected = values.clone()
    for _ in range(3):
        values.copy_(expected)
        moved = ndd.as_tensor(values).to_device(gpu)
        values.zero_()
        assert torch.equal(moved.torch().cpu(), expected)
        assert torch.equal(moved.cpu().torch(), expected)


def test_ours_are_not_filled_again_too_early(gpu: ndd.Device) -> None:
    """Batches are made and copied, by us and by torch, much faster than the GPU uses them."""
    del gpu
    busy = torch.ones(4096, 4096, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        totals = []
        for k in range(64):
            busy = (busy @ busy).clamp_(0, 1)
            batch = compute(k)
            theirs = batch.torch().to("cuda", non_blocking=True)
            totals.append((compute(k).gpu().torch().sum(dtype=torch.int64), theirs.sum(dtype=torch.int64)))
        assert [(int(ours), int(theirs)) for ours, theirs in totals] == [(int((make_input(k) + 1).sum(dtype=np.int64)),) * 2 for k in range(64)]
    assert ndd.uploads().direct > 0


@pytest.mark.figures
def test_uploads_leave_memory_flat(gpu: ndd.Device) -> None:
    del gpu
    device, host = [], []
    for k in range(1000):
        samples = [np.full((512 + (k + i) % 7, 512, 3), k % 251, np.uint8) for i in range(4)]
        moved = ndd.brightness(ndd.brightness(ndd.batch(samples, layout="HWC")).gpu())
        assert int(moved.tensors[3].torch()[0, 0, 0]) == k % 251
        if k % 100 == 99:
            del moved
            torch.cuda.synchronize()
            device.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
            host.append((torch.cuda.host_memory_stats()["allocated_bytes.current"], resident_bytes()))
    print(f"allocated and reserved on the GPU: {device}; pinned and resident on the host: {host}")
    assert len({allocated for allocated, _ in device}) == 1
    assert device[-1][1] == device[4][1]
    assert host[-1][0] == host[4][0]
    assert host[-1][1] < host[4][1] + (16 << 20)


def test_two_contexts_use_one_copy(gpu: ndd.Device) -> None:
    del gpu
    for k in range(20):
        moved = compute(k).gpu()
        results = []
        for _ in range(2):
            with ndd.EvalContext():
                results.append(ndd.brightness(moved, brightness_shift=1 / 255))
        del moved
        for result in results:
            assert np.array_equal(result.torch().cpu().numpy(), make_input(k) + 2)
