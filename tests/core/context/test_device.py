# SPDX-License-Identifier: Apache-2.0
"""Devices, CUDA streams, and which stream waits for which."""

import copy
import ctypes
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from _fake_cuda import FakeCuda, FakeTensor
from conftest import HAS_CUDA_KERNELS

import torch_ndd as ndd
from torch_ndd import Device, EvalMode, Stream
from torch_ndd._core import native
from torch_ndd._core.context import context as contexts
from torch_ndd._core.context import streams
from torch_ndd._core.native import memory
from torch_ndd._core.values import arithmetic as arithmetics
from torch_ndd._core.values import batch as batches
from torch_ndd._core.values import ragged as raggeds
from torch_ndd._core.values import tensor as tensors
from torch_ndd._core.values.batch import repeat_sample
from torch_ndd._core.values.dispatch import output
from torch_ndd._core.work.cuda_work import on_stream, stream_work

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    fake = FakeCuda()
    fake.install(monkeypatch)
    before = contexts.thread_state.__dict__.copy(), streams.local.__dict__.copy()
    contexts.thread_state.__dict__.update(defaults={})
    streams.local.__dict__.update(streams={}, own={}, changes={})
    yield fake
    for module, values in zip((contexts.thread_state, streams.local), before, strict=True):
        module.__dict__.update(values)
    streams._default_streams.clear()


# --- devices ---


def test_the_cpu() -> None:
    for device in (Device("cpu"), Device("cpu", None), Device.CPU, ndd.device("cpu"), ndd.device(torch.device("cpu")), ndd.device(Device.CPU)):
        assert (device.device_type, device.device_id, str(device), repr(device)) == ("cpu", None, "cpu", "Device(device_type='cpu')")
        assert device == Device.CPU
        assert hash(device) == hash(Device.CPU)
    assert Device.default_device_id("cpu") is None
    assert pickle.loads(pickle.dumps(Device.CPU)) == copy.deepcopy(Device.CPU) == Device.CPU


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tpu",), 'Invalid device type "tpu"'),
        (("GPU",), "Invalid device type"),
        (("mixed",), "Invalid device type"),
        (("",), "Invalid device type"),
        (("cpu", 0), "Invalid device id 0 for the CPU. Must be `None`"),
        (("cpu:0",), "Invalid device id"),
        (("gpu:0", 0), 'Invalid device name "gpu:0"'),
        (("gpu:x",), '"x" is not a device id'),
        (("gpu:",), '"" is not a device id'),
        (("cpu:",), "is not a device id"),
        (("cpu:0:1",), "Invalid device name"),
        (("gpu:-1",), "Invalid device id -1"),
        (("gpu", -1), "Invalid device id -1"),
        (("gpu", 99), "Invalid device id 99"),
        (("cuda:99",), "Invalid device id 99"),
    ],
)
def test_wrong_devices(arguments: tuple[Any, ...], message: str) -> None:
    for make in (Device, ndd.device):
        with pytest.raises(ValueError, match=message):
            make(*arguments)


def test_wrong_types() -> None:
    for wrong in (3, 1.5, [], object()):
        with pytest.raises(TypeError, match="Cannot convert"):
            ndd.device(wrong)
        with pytest.raises(TypeError):
            Device(wrong)
    with pytest.raises(TypeError):
        Device("gpu", 1.5)


def test_device_of_anything() -> None:
    assert ndd.device(None) is None
    assert ndd.device(None, 0) is None
    for device in (Device.CPU, torch.device("cpu")):
        with pytest.raises(ValueError, match="Cannot specify id"):
            ndd.device(device, 0)
    with pytest.raises(ValueError, match="Invalid device type"):
        ndd.device(torch.device("meta"))


def test_comparison_with_foreign_objects_is_false() -> None:
    for other in ("cpu", 0, None, torch.device("cpu")):
        assert Device.CPU != other  # noqa: SIM300
        assert not Device.CPU == other  # noqa: SIM201, SIM300


def test_dlpack_devices() -> None:
    assert (Device.type_from_dlpack(1), Device.type_from_dlpack(2)) == ("cpu", "gpu")
    for wrong in (0, 3, 13, -1):
        with pytest.raises(ValueError, match="Unsupported"):
            Device.type_from_dlpack(wrong)
    assert Device.from_dlpack(torch.zeros(2)) == Device.from_dlpack(np.zeros(2)) == Device.CPU
    assert Device.from_dlpack(ndd.tensor([1])) == Device.CPU
    with pytest.raises(AttributeError):
        Device.from_dlpack(3)


@no_gpu
def test_without_a_gpu_the_reason_is_given() -> None:
    assert Device.current() is Device.CPU
    with pytest.raises(RuntimeError, match="no GPU can be used: "):
        Device("gpu")
    with pytest.raises(RuntimeError, match="no GPU can be used: "):
        Device.default_device_id("gpu")
    with pytest.raises(ValueError, match="Invalid device id 0: no GPU can be used: "):
        Device("gpu:0")
    for call in (lambda: ndd.tensor([1], device="gpu"), lambda: ndd.tensor([1]).gpu(), lambda: ndd.brightness(ndd.tensor([[[1]]]), device="gpu")):
        with pytest.raises(RuntimeError, match="no GPU can be used: "):
            call()


def test_entering_a_device() -> None:
    with Device.CPU as entered:
        assert entered is Device.CPU
        assert Device.current() is Device.CPU
        seen: list[Device] = []
        thread = threading.Thread(target=lambda: seen.append(Device.current()))
        thread.start()
        thread.join()
        assert len(seen) == 1
    assert _device_stack() == []
    with pytest.raises(KeyError), Device.CPU:
        raise KeyError
    assert _device_stack() == []


def _device_stack() -> list[Any]:
    return ndd._core.context.device._local.stack


def test_entering_a_gpu(cuda: FakeCuda) -> None:
    assert repr(Device.current()) == "Device(device_type='gpu', device_id=0)"
    with Device("gpu:1") as entered:
        assert str(entered) == "gpu:1"
        assert cuda.current_device() == 1
        assert Device("gpu") == Device.current() == ndd.device(torch.device("cuda")) == Device("cuda:1") == ndd.device("gpu", 1)
        assert Device.default_device_id("gpu") == 1
        with Device.CPU:
            assert Device.current() is Device.CPU
            assert cuda.current_device() == 1
            assert ndd.EvalContext().device_id is None
        seen: list[str] = []
        thread = threading.Thread(target=lambda: seen.append(str(Device.current())))
        thread.start()
        thread.join()
        assert seen == ["gpu:0"]
    assert (cuda.current_device(), str(Device.current())) == (0, "gpu:0")
    assert Device(str(entered)) == entered
    assert len({Device("gpu:0"), Device("gpu", 0), Device("gpu:1"), Device.CPU}) == 3
    for wrong in (-1, 2):
        with pytest.raises(ValueError, match=f"Invalid device id {wrong}: this process sees 2 GPUs"):
            Device("gpu", wrong)
    with pytest.raises(ValueError, match="Invalid device name"):
        Device("cuda:1", 1)


def test_a_forked_process_says_why_it_has_no_gpu(cuda: FakeCuda) -> None:
    cuda.forked = True
    assert Device.current() is Device.CPU
    assert ndd.EvalContext.current().device_id is None
    assert ndd.get_current_stream() is None
    for call in (lambda: Device("gpu"), ndd.stream, lambda: ndd.tensor([1], device="gpu")):
        with pytest.raises(RuntimeError, match=r"forked from one that had already used CUDA.*spawn"):
            call()
    with pytest.raises(ValueError, match="forked"):
        Device("gpu:0")
    assert ndd.brightness(ndd.tensor(np.ones((2, 2, 3), np.uint8)), brightness=2.0).torch().sum() == 24


# --- streams ---


@no_gpu
def test_streams_without_a_gpu() -> None:
    assert ndd.stream(stream=None) is None
    assert ndd.get_default_stream() is ndd.get_default_stream(0) is ndd.get_current_stream() is None
    ndd.set_default_stream(None)
    ndd.set_default_stream(None, 0)
    ndd.set_current_stream(None)
    for call in (ndd.stream, lambda: ndd.stream(stream=1), lambda: ndd.set_default_stream(1), lambda: ndd.set_current_stream(1), Stream):
        with pytest.raises(RuntimeError, match="no GPU can be used: "):
            call()
    with pytest.raises(ValueError, match="must not be None"):
        Stream(stream=None)
    with pytest.raises(TypeError, match="is not a CUDA stream"):
        ndd.stream(stream="x")


def test_kinds_of_streams(cuda: FakeCuda) -> None:
    stream = ndd.stream()
    assert stream is not None
    assert stream.device_id == 0
    assert stream.handle
    assert stream.__cuda_stream__() == (0, stream.handle)
    assert ndd.stream(stream=stream) is stream
    assert Stream(stream=stream) == stream
    assert ndd.stream() != stream
    assert ndd.stream(device_id=1).device_id == 1

    theirs = torch.cuda.Stream(1)
    wrapped = ndd.stream(stream=theirs)
    assert wrapped == theirs
    assert theirs == wrapped.torch
    assert (wrapped.handle, wrapped.device_id) == (theirs.cuda_stream, 1)

    class Protocol:
        device_id = 1

        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 0x77

    protocol = Protocol()
    wrapped = ndd.stream(stream=protocol)
    assert (wrapped.handle, wrapped.device_id, wrapped._owner) == (0x77, 1, protocol)
    assert wrapped == protocol
    stream.synchronize()
    assert cuda.log == [("synchronize", stream.handle)]
    assert repr(wrapped) == "Stream(handle=0x77, device_id=1)"


def test_new_stream_raises_if_the_library_has_none(cuda: FakeCuda) -> None:
    cuda.problem = b"out of memory"
    with pytest.raises(RuntimeError, match="no CUDA stream on GPU 1 can be used: out of memory"):
        ndd.stream(device_id=1)
    cuda.problem = None
    stream = ndd.stream(device_id=1)
    assert stream is not None
    assert stream.handle == cuda.next_handle  # the library's own, no further one of torch's pool


@no_gpu
def test_library_says_why_it_has_no_stream() -> None:
    handle = ctypes.c_void_p(1)
    problem = native.c_function("ndd_cuda_stream")(0, ctypes.byref(handle))
    assert handle.value is None
    assert bool(problem) == HAS_CUDA_KERNELS  # what CUDA says without a driver; a build without CUDA has no streams


def test_legacy_default_streams(cuda: FakeCuda) -> None:
    first = ndd.stream(stream=1)
    assert first is not None
    assert first == 1
    assert first.torch is cuda.defaults[0]
    with Device("gpu:1"):
        second = ndd.stream(stream=1)
        assert second is not None
        assert second.torch is cuda.defaults[1]
    assert first != second
    assert first == ndd.stream(stream=1, device_id=0)
    assert hash(first) == hash(1)
    assert first != "stream"


def test_wrong_streams(cuda: FakeCuda) -> None:
    stream = ndd.stream(device_id=1)
    for wrong in (stream, torch.cuda.Stream(1)):
        with pytest.raises(ValueError, match="is on GPU 1, but device_id=0"):
            ndd.stream(stream=wrong, device_id=0)
    for other in (1.5, "1", object()):
        with pytest.raises(TypeError, match="is not a CUDA stream"):
            ndd.stream(stream=other)
    with pytest.raises(ValueError, match="Invalid device id 7"):
        ndd.stream(device_id=7)
    with pytest.raises(ValueError, match="must not be None"):
        Stream(stream=None)
    with pytest.raises(ValueError, match="is on GPU 1"):
        ndd.set_current_stream(stream)
    with pytest.raises(ValueError, match="is on GPU 1"):
        ndd.set_default_stream(stream, 0)


def test_current_and_default_streams_by_thread_and_device(cuda: FakeCuda) -> None:
    own = ndd.get_current_stream()
    assert own is not None
    assert ndd.get_current_stream() is own
    assert ndd.get_default_stream() is None
    context = ndd.EvalContext()
    frozen = context.cuda_stream
    everywhere, here = ndd.stream(), ndd.stream()
    ndd.set_default_stream(everywhere)
    assert ndd.get_default_stream() is ndd.get_default_stream(0) is ndd.get_current_stream() is everywhere
    assert ndd.get_default_stream(1) is None
    ndd.set_current_stream(here)
    assert ndd.EvalContext.default().cuda_stream is ndd.get_current_stream() is here
    assert ndd.EvalContext().cuda_stream is here
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append(ndd.get_current_stream()))
    thread.start()
    thread.join()
    assert seen == [everywhere]
    ndd.set_current_stream(None)
    assert ndd.get_current_stream() is everywhere
    ndd.set_default_stream(None)
    other = ndd.get_current_stream()
    assert other not in (own, everywhere, here)
    assert ndd.get_current_stream() is other
    assert context.cuda_stream is frozen
    with Device("gpu:1"):
        assert ndd.get_current_stream().device_id == 1
    ndd.set_default_stream(ndd.stream(device_id=1))
    assert ndd.get_current_stream() is other
    ndd.set_default_stream(None, 1)


def test_streams_of_contexts(cuda: FakeCuda) -> None:
    stream = ndd.stream(device_id=1)
    context = ndd.EvalContext(cuda_stream=stream)
    assert (context.device_id, context.cuda_stream) == (1, stream)
    with context:
        assert str(Device.current()) == "gpu:1"
        assert streams.launch_stream(1) is stream
        assert streams.launch_stream(0) != stream
    assert cuda.current_device() == 0
    assert ndd.EvalContext(device_id=1).cuda_stream.device_id == 1
    with pytest.raises(ValueError, match="is on GPU 1, but device_id=0"):
        ndd.EvalContext(cuda_stream=stream, device_id=0)
    with pytest.raises(ValueError, match="Device ID clash"):
        ndd.EvalContext(thread_pool=ndd.ThreadPool(2, device_id=0), device_id=1)
    assert ndd.EvalContext(thread_pool=ndd.ThreadPool(2), device_id=0).num_threads == 2
    assert ndd.ThreadPool(2, device_id=None).device_id is None
    assert ndd.EvalContext.default() is ndd.EvalContext.current()
    with Device("gpu:1"):
        assert ndd.EvalContext.default().device_id == 1
        assert ndd.EvalContext.default().thread_pool.device_id == 1
    assert ndd.EvalContext.default().device_id == 0


# --- which stream waits for which ---

GPU = torch.device("cuda", 0)


class OnGpu(torch.Tensor):
    """Host memory that claims to be on a GPU."""

    device = property(lambda self: GPU)

    @staticmethod
    def of(batch: ndd.Batch) -> ndd.Batch:
        """Return the batch over such memory, which has no other owner."""
        output = batch.evaluate()._over(batch.buffer.as_subclass(OnGpu))
        assert isinstance(output, ndd.Batch)
        return output


def test_a_result_is_waited_for_by_the_stream_that_uses_it(cuda: FakeCuda) -> None:
    ours, mine = ndd.get_current_stream(), torch.cuda.Stream(0)
    assert ours is not None
    source, output = FakeTensor(cuda, "given"), FakeTensor(cuda, "made")
    with on_stream(GPU, [(source, None)]):
        assert torch.cuda.current_stream(GPU).cuda_stream == ours.handle
        result = stream_work([output])
        result.wait()
    assert cuda.log == [("wait_stream", ours.handle, 0), ("record", "given", ours.handle)]
    cuda.log.clear()
    for _ in range(2):
        result.wait()
    assert cuda.log == [("wait_event", 0, ours.handle), ("record", "made", 0)]
    cuda.log.clear()
    with cuda.stream(mine):
        result.wait()
    assert cuda.log == [("wait_event", mine.cuda_stream, ours.handle), ("record", "made", mine.cuda_stream)]
    assert result.stays
    assert not result.done()


def test_a_chain_on_one_stream_waits_for_nothing(cuda: FakeCuda) -> None:
    output = FakeTensor(cuda, "made")
    with on_stream(GPU):
        first = stream_work([output])
    with on_stream(GPU, [(output, first)]):
        first.wait()
    assert cuda.log == []


def test_another_context_waits_for_the_first(cuda: FakeCuda) -> None:
    output = FakeTensor(cuda, "made")
    with on_stream(GPU):
        first = stream_work([output])
    with ndd.EvalContext() as context, on_stream(GPU, [(output, first)]):
        assert context.cuda_stream is not None
        first.wait()
        assert cuda.log == [("wait_event", context.cuda_stream.handle, first._stream.cuda_stream), ("record", "made", context.cuda_stream.handle)]


def test_memory_of_the_user_may_be_overwritten_after_the_call(cuda: FakeCuda) -> None:
    ours = ndd.get_current_stream()
    assert ours is not None
    with on_stream(GPU, [(FakeTensor(cuda, "given"), None)], caller_owned=True):
        pass
    assert cuda.log[-1] == ("wait_stream", 0, ours.handle)


def test_outputs_belong_to_the_stream_that_fills_them(cuda: FakeCuda) -> None:
    """Memory that torch's stream has freed may still be in use there."""
    ours = ndd.get_current_stream()
    assert ours is not None

    def allocate(shape: list[int], dtype: torch.dtype, device: torch.device, *more: Any) -> tuple[Any, ...]:
        return torch.cuda.current_stream(device).cuda_stream, shape, dtype, more

    assert output(allocate, [2, 3], torch.uint8, GPU, "HW") == (ours.handle, [2, 3], torch.uint8, ("HW",))
    assert torch.cuda.current_stream(GPU) == cuda.defaults[0]
    mine = torch.cuda.Stream(0)
    with cuda.stream(mine):
        cuda.capturing = True
        assert output(allocate, [2], torch.uint8, GPU)[0] == mine.cuda_stream
        cuda.capturing = False
    assert output(native.empty, [2], torch.uint8, torch.device("cpu")).shape == (2,)


def test_slices_and_arithmetic_allocate_on_the_stream_that_fills_them(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, found = ndd.get_current_stream(), []
    assert ours is not None
    empty = native.empty

    def noting(shape: Any, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        found.append((device.type, torch.cuda.current_stream(GPU).cuda_stream))
        return empty(shape, dtype, torch.device("cpu"))

    for module in (memory, native, batches, raggeds):
        monkeypatch.setattr(module, "empty", noting)
    for module in (arithmetics, batches, raggeds, tensors):
        monkeypatch.setattr(module, "run", lambda *arguments: None)
    images, ragged = (OnGpu.of(ndd.batch([np.ones((4, 2 + k * rest), np.uint8) for k in range(3)])) for rest in (0, 1))
    for value in (
        images + images, ragged + ragged, -ragged, images.slice[:, ::2], ragged.slice[1], images.select([2, 0]), ragged.select([2, 0]),
        ragged.stack(pad=True), images.tensors[0][:, ::2], repeat_sample(images.tensors[0], 2),
    ):  # fmt: skip
        assert value.buffer is not None
    assert len(found) == 10
    assert set(found) == {("cuda", ours.handle)}


def test_torchs_own_stream_as_the_context_s(cuda: FakeCuda) -> None:
    ndd.set_current_stream(torch.cuda.current_stream())
    with on_stream(GPU, [(FakeTensor(cuda, "given"), None)], caller_owned=True):
        result = stream_work([FakeTensor(cuda, "made")])
    result.wait()
    assert cuda.log == []


def test_a_graph_captures_work_on_its_own_stream(cuda: FakeCuda) -> None:
    """During a capture of torch's stream, work goes to that stream, waits for no earlier work, and nothing waits for it afterwards."""
    source, output = FakeTensor(cuda, "given"), FakeTensor(cuda, "made")
    with on_stream(GPU):
        before = stream_work([source])
    mine = torch.cuda.Stream(0)
    with cuda.stream(mine):
        cuda.capturing = True
        with on_stream(GPU, [(source, before), (source, None)], caller_owned=True):
            assert torch.cuda.current_stream(GPU) == mine
            before.wait()
            captured = stream_work([output])
        captured.wait()
        cuda.capturing = False
    captured.wait()
    assert cuda.log == []
    ours = before._stream.cuda_stream
    with on_stream(GPU, [(output, captured)]):
        pass
    assert cuda.log == [("wait_stream", ours, 0), ("record", "made", ours)]  # of the stream that replayed the graph
    cuda.log.clear()
    before.wait()
    assert cuda.log == [("wait_event", 0, before._stream.cuda_stream), ("record", "given", 0)]


def test_sync_full_synchronizes_the_stream(cuda: FakeCuda) -> None:
    ours = ndd.get_current_stream()
    assert ours is not None
    for mode in EvalMode:
        with mode, on_stream(GPU):
            pass
    assert cuda.log == [("synchronize", ours.handle)]


# --- a real GPU ---


@pytest.fixture
def gpu(device: str) -> Device:
    if device == "cpu":
        pytest.skip("runs with --device=cuda")
    return Device("gpu")


def test_values_cross_streams_intact(gpu: Device) -> None:
    """Long work on each side of a hand-over: without waiting, garbage would be read."""
    images = torch.full((16, 1000, 1000, 3), 1, dtype=torch.uint8, device="cuda")
    for _ in range(10):
        images.copy_(torch.ones_like(images))
        value = ndd.as_batch(images, layout="HWC")
        for _ in range(20):
            value = ndd.brightness(value, brightness_shift=1 / 255)
        images.zero_()
        with ndd.EvalContext():
            value = ndd.brightness(value, brightness_shift=1 / 255)
        assert int(value.torch().min()) == int(value.torch().max()) == 22
        assert int(value.cpu().torch().min()) == 22
    assert value.device == gpu


def test_memory_is_not_used_again_too_early(gpu: Device) -> None:
    del gpu
    totals = []
    for k in range(50):
        value = ndd.brightness(ndd.as_batch(torch.full((8, 500, 500, 3), k, dtype=torch.uint8, device="cuda"), layout="HWC"))
        for _ in range(5):
            value = ndd.brightness(value)
        totals.append(value.torch().sum())
    assert [int(total) for total in totals] == [k * 8 * 500 * 500 * 3 for k in range(50)]


def test_copies_do_not_block_the_host_for_pinned_memory(gpu: Device) -> None:
    batch = ndd.as_batch(torch.ones(16, 1000, 1000, 3, dtype=torch.uint8).pin_memory(), layout="HWC")
    moved = batch.to_device(gpu)
    assert moved.pending is not None
    assert int(moved.torch().min()) == 1
