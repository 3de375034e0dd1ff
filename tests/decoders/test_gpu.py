# SPDX-License-Identifier: Apache-2.0
"""Images decoded on a GPU: which decoder gets which image, which stream waits for which, and with ``--device=cuda`` the pixels."""

import ctypes
import gc
import io
import os
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from _fake_cuda import FakeCuda, FakeTensor
from PIL import Image

import torch_ndd as ndd
from torch_ndd._core import native
from torch_ndd._core.work.cuda_work import decode_work, on_decode_stream, record_event
from torch_ndd._core.work.pending import Pending
from torch_ndd.decoders._decode import GpuMemory, Target

# The code for a GPU runs on the CPU: tests/emulated_cuda/decoders.py.
EMULATED = "NDD_EMULATED_DECODERS" in os.environ
GPU = -99999 if EMULATED else 0  # its number


def _emulator() -> ctypes.CDLL:
    """Return the library built over the emulated streams, whose own functions are not recorded."""
    return ctypes.CDLL(str(native.PATH))


def encode(pixels: np.ndarray, codec: str = "JPEG", **options: Any) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, codec, **options)
    return np.frombuffer(file.getvalue(), np.uint8)


def gradient(height: int, width: int) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    return np.stack([255 * y / height, 255 * x / width, 255 * (y + x) / (height + width)], -1).astype(np.uint8)


# --- streams ---


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    fake.install(monkeypatch)
    monkeypatch.setattr("torch_ndd._core.work.cuda_work._decode_streams", {})
    return fake


class Host(Pending):
    """The CPU's part of the work, which records when it was waited for."""

    def __init__(self, log: list[Any], error: Exception | None = None) -> None:
        self.log, self.error = log, error

    def __del__(self) -> None:
        pass

    def has_ended(self) -> bool:
        return False

    def wait(self) -> None:
        self.log.append(("host",))
        if self.error is not None:
            raise self.error


def decode_on_stream(cuda: FakeCuda, error: Exception | None = None) -> tuple[Any, Any]:
    with on_decode_stream(torch.device("cuda", 0)):
        stream = torch.cuda.current_stream(0)
        event = record_event(stream)
        return stream, decode_work([FakeTensor(cuda, "pixels")], event, Host(cuda.log, error))


def test_who_uses_decoded_pixels_waits_for_the_threads_and_then_its_stream_for_theirs(cuda: FakeCuda) -> None:
    stream, pending = decode_on_stream(cuda)
    assert stream != cuda.current_stream(0)
    assert cuda.log == []  # the call does not wait
    pending.wait()
    mine = cuda.current_stream(0).cuda_stream
    assert cuda.log == [("host",), ("wait_event", mine, stream.cuda_stream), ("record", "pixels", mine)]
    assert not pending.done()  # another stream has to wait as well


def test_one_stream_a_device_decodes(cuda: FakeCuda) -> None:
    found = []
    for index in (0, 1, 0):
        with on_decode_stream(torch.device("cuda", index)):
            found.append(torch.cuda.current_stream(index))
    assert found[0] == found[2] != found[1]
    assert [value.device_index for value in found] == [0, 1, 0]


def test_damaged_pixels_are_reported_before_any_stream_waits(cuda: FakeCuda) -> None:
    _, pending = decode_on_stream(cuda, RuntimeError("damaged"))
    with pytest.raises(RuntimeError, match="damaged"):
        pending.wait()
    assert cuda.log == [("host",)]


def test_sync_full_waits_for_the_decoding(cuda: FakeCuda) -> None:
    with ndd.EvalMode.sync_full, on_decode_stream(torch.device("cuda", 0)):
        stream = torch.cuda.current_stream(0)
    assert cuda.log == [("synchronize", stream.cuda_stream)]


class Event:
    """Stands for one that is destroyed with its object."""


@pytest.mark.slow
@pytest.mark.parametrize("dropped", [False, True])
def test_the_event_stays_until_the_threads_have_recorded_it(dropped: bool) -> None:
    """It is an attribute of the values, which the work of the threads keeps when nothing else does."""
    event = Event()
    known = weakref.ref(event)
    batch = ndd.batch([np.ones((300, 300, 3), np.uint8)] * 8, layout="HWC")
    with ndd.EvalMode.deferred:
        result = ndd.brightness(batch, brightness=2.0)
        result.buffer.recorded = event
        used = ndd.flip(result, horizontal=1)
    del event, result
    gc.collect()
    assert known() is not None
    if not dropped:
        used.evaluate()
    del used
    gc.collect()
    assert known() is None


def test_a_cuda_graph_cannot_decode(cuda: FakeCuda) -> None:
    cuda.capturing = True
    with pytest.raises(RuntimeError, match="cannot be decoded within a CUDA graph"), on_decode_stream(torch.device("cuda", 0)):
        pass


# --- arguments ---


def test_arguments_for_a_gpu_do_not_matter_on_the_cpu() -> None:
    file = ndd.as_tensor(encode(gradient(30, 40)))
    plain = np.asarray(ndd.decoders.image(file))
    options: list[dict[str, Any]] = [{"hw_decoder_load": 7.0}, {"hybrid_huffman_threshold": 1}, {"jpeg_fancy_upsampling": True}]
    for option in options:
        np.testing.assert_array_equal(np.asarray(ndd.decoders.image(file, **option)), plain)


@pytest.mark.skipif(EMULATED, reason="the emulated decoders have options of their own")
def test_memory_hints_become_options_of_the_decoders() -> None:
    """nvJPEG's decoders preallocate by them: the CUDA decoder by its paddings, the engine by the size of the largest image."""
    target = Target(torch.device("cuda", 0), 0.65, 1000, False, GpuMemory(16 << 20, 8 << 20, 480, 640))
    options = dict(option.split("=") for option in target.options.split())
    assert options[":hybrid_huffman_threshold"] == "1000"
    assert options["nvjpeg_cuda_decoder:device_memory_padding"] == str(16 << 20)
    assert options["nvjpeg_cuda_decoder:host_memory_padding"] == str(8 << 20)
    assert (options["nvjpeg_hw_decoder:preallocate_height_hint"], options["nvjpeg_hw_decoder:preallocate_width_hint"]) == ("480", "640")


@pytest.mark.parametrize("value", [-1, 1 << 40])
@pytest.mark.parametrize("name", GpuMemory._fields)
def test_memory_hints_are_checked(name: str, value: int) -> None:
    memory = GpuMemory(1, 1, 1, 1)._replace(**{name: value})
    with pytest.raises(ValueError, match=rf"decoders.image: {name} must be from 0 to 4294967296, got {value}"):
        memory.check("decoders.image")


# --- with --device=cuda ---


@pytest.fixture
def decoding_device(device: str) -> str:
    """The GPU, or the CPU emulating it."""
    if device == "cpu" and not EMULATED:
        pytest.skip("runs with --device=cuda or emulated")
    return device


@pytest.fixture
def gpu(device: str) -> str:
    if device == "cpu":
        pytest.skip("runs with --device=cuda")
    return device


def count_decodes(work: Any) -> dict[str, int]:
    before = ndd.decoders.engine_counts(GPU)
    work().evaluate()
    return {name: count - before[name] for name, count in ndd.decoders.engine_counts(GPU).items()}


FILES = [encode(gradient(300 + 7 * k, 400 - 5 * k), quality=90) for k in range(12)]


@pytest.mark.parametrize("load", [0.0, 0.5, 1.0, 0.65])
@pytest.mark.parametrize("output_type", [ndd.types.RGB, ndd.types.BGR, ndd.types.GRAY, ndd.types.YCbCr, ndd.types.ANY_DATA], ids=str)
def test_the_pixels_are_those_of_the_cpu(decoding_device: str, output_type: Any, load: float) -> None:
    files = ndd.as_batch(FILES)
    expected = ndd.decoders.image(files, output_type=output_type)
    result = ndd.decoders.image(files, output_type=output_type, device=decoding_device, hw_decoder_load=load, jpeg_fancy_upsampling=True)
    for ours, theirs in zip(result.cpu(), expected, strict=True):
        difference = np.abs(np.asarray(ours).astype(int) - np.asarray(theirs).astype(int))
        # Smooth images: the inverse DCT of nvJPEG rounds differently, by a level or two.
        assert difference.max() <= 4
        assert difference.mean() < 0.6


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint16, torch.float16, torch.int8], ids=str)
@pytest.mark.parametrize("orientation", [1, 3, 6, 8, 5])
def test_turned_images_of_other_types(decoding_device: str, dtype: torch.dtype, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = ndd.as_tensor(encode(gradient(120, 200), quality=95, exif=exif))
    window: dict[str, Any] = {"crop": [50, 31], "crop_pos_x": 0.2, "crop_pos_y": 0.9, "dtype": dtype}
    expected = np.asarray(ndd.decoders.image_crop(file, **window).torch().float())
    result = np.asarray(
        ndd.decoders.image_crop(file, device=decoding_device, jpeg_fancy_upsampling=True, hw_decoder_load=0.0, **window).cpu().torch().float()
    )
    levels = 1 if dtype.is_floating_point else torch.iinfo(dtype).max
    np.testing.assert_allclose(result / levels, expected / levels, atol=4 / 255 if dtype != torch.int8 else 4 / 127)


def test_who_decodes_what(decoding_device: str) -> None:
    photo = gradient(64, 64)
    for_cuda = [*FILES, encode(photo, progressive=True)]
    others = [encode(photo, "PNG"), encode(photo, "TIFF"), encode(photo, "WEBP", lossless=True)]
    counts = count_decodes(lambda: ndd.decoders.image(ndd.as_batch([*for_cuda, *others]), device=decoding_device, hw_decoder_load=0.0))
    # The TIFF: by nvTIFF where it is installed.
    assert counts["tiff"] + counts["cpu"] == len(others)
    assert (counts["hardware"], counts["cuda"], counts["lossless_jpeg"]) == (0, len(for_cuda), 0)
    result = ndd.decoders.image(ndd.as_batch(others), device=decoding_device)
    for value in result.cpu():
        np.testing.assert_array_equal(np.asarray(value), photo)


def test_the_hardware_takes_its_part(decoding_device: str) -> None:
    counts = count_decodes(lambda: ndd.decoders.image(ndd.as_batch(FILES), device=decoding_device, hw_decoder_load=0.5))
    assert counts["hardware"] + counts["cuda"] + counts["cpu"] == len(FILES)
    print(f"an hw_decoder_load of 0.5 of {len(FILES)} images: {counts}")
    assert counts["hardware"] in (0, len(FILES) // 2)  # none where the GPU has no JPEG engines


def test_the_default_leaves_images_to_both(decoding_device: str) -> None:
    files = ndd.as_batch(FILES * 8)
    counts = count_decodes(lambda: ndd.decoders.image(files, device=decoding_device))
    assert counts["hardware"] + counts["cuda"] + counts["cpu"] == files.batch_size
    assert counts["cuda"] + counts["cpu"] > 0
    if EMULATED:
        assert counts["hardware"] % 7 == 0  # whole groups of an H100


def test_files_that_the_engine_cannot_decode_go_to_the_threads(decoding_device: str) -> None:
    progressive = [encode(gradient(60, 70 + k), progressive=True) for k in range(40)]
    files = ndd.as_batch([*FILES, *progressive])
    for _ in range(3):
        counts = count_decodes(lambda: ndd.decoders.image(files, device=decoding_device))
        assert counts["cuda"] + counts["cpu"] >= len(progressive)
        assert sum(counts.values()) - counts["refused"] == files.batch_size


def test_files_may_be_dropped_while_the_engine_reads_them(decoding_device: str) -> None:
    expected = [np.asarray(image) for image in ndd.decoders.image(ndd.as_batch(FILES))]
    batches = [ndd.decoders.image(ndd.as_batch([file.copy() for file in FILES]), device=decoding_device, hw_decoder_load=1.0) for _ in range(6)]
    gc.collect()
    for batch in batches:
        for image, reference in zip(batch.cpu(), expected, strict=True):
            np.testing.assert_allclose(np.asarray(image).astype(int), reference, atol=4)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("load", "images"), [(1.0, 1), (1.0, 12)])
def test_hardware_waits_for_queued_work_on_its_memory(load: float, images: int, turned: bool) -> None:
    """The engine ignores its stream; a kernel that was queued before the call still reads the memory that the call gets, or writes to it."""
    if not EMULATED:
        pytest.skip("runs emulated")
    exif = Image.Exif()
    exif[0x0112] = 6 if turned else 1
    files = ndd.as_batch([encode(gradient(1000, 1200), exif=exif)] * images)

    def decode() -> Any:
        return ndd.decoders.image(files, device="cpu", hw_decoder_load=load, jpeg_fancy_upsampling=True).evaluate()

    expected = decode().buffer.clone()
    native.release_idle_memory()
    before = native.empty(expected.shape, torch.uint8, torch.device("cpu")).fill_(7)
    place, read, written = before.data_ptr(), torch.zeros_like(before), torch.full_like(before, 9)
    _emulator().ndd_lazy_copy_later(*map(ctypes.c_void_p, (read.data_ptr(), place)), ctypes.c_size_t(read.numel()), 100)
    _emulator().ndd_lazy_copy_later(*map(ctypes.c_void_p, (place, written.data_ptr())), ctypes.c_size_t(read.numel()), 100)
    del before
    batch = decode()
    assert batch.buffer.data_ptr() == place  # or the test shows nothing
    assert (read == 7).all()
    np.testing.assert_array_equal(batch.buffer.numpy(), expected.numpy())


@pytest.mark.parametrize("load", [0.0, 1.0])
def test_damaged_files_raise_or_become_black(decoding_device: str, load: float) -> None:
    damaged = FILES[1].copy()
    damaged[len(damaged) // 3 :] = 0
    files = ndd.as_batch([FILES[0], damaged, encode(gradient(9, 9), "PNG")[:60], FILES[2]])
    with pytest.raises(RuntimeError, match="sample 2"):
        ndd.decoders.image(files, device=decoding_device, hw_decoder_load=load).evaluate()
    replaced = ndd.decoders.image(files, device=decoding_device, hw_decoder_load=load, on_error="replace")
    assert 2 in [error.index for error in replaced.errors]
    assert not np.asarray(replaced.tensors[2].cpu()).any()
    kept = ndd.decoders.image(files, device=decoding_device, hw_decoder_load=load, on_error="skip")
    assert kept.batch_size == 4 - len(kept.errors)
    np.testing.assert_allclose(np.asarray(kept.tensors[0].cpu()), np.asarray(replaced.tensors[0].cpu()), atol=4)


def test_the_host_does_not_wait_for_the_gpu(gpu: str) -> None:
    files = ndd.as_batch(FILES)
    ndd.decoders.image(files, device=gpu).evaluate()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(2_000_000_000)  # about a second on another stream
        result = ndd.decoders.image(files, device=gpu)
        result.evaluate()  # the CPU's part
        assert not torch.cuda.current_stream().query()
    assert np.asarray(result.tensors[3].cpu()).any()


def test_results_that_nobody_wants(gpu: str) -> None:
    """The threads still record their events."""
    for _ in range(100):
        ndd.decoders.image(ndd.as_batch(FILES), device=gpu)
    assert np.asarray(ndd.decoders.image(ndd.as_batch(FILES), device=gpu).tensors[3].cpu()).any()
    torch.cuda.synchronize()


def test_files_stay_in_host_memory(gpu: str) -> None:
    with pytest.raises(RuntimeError, match="must be in host memory"):
        ndd.decoders.image(ndd.as_tensor(FILES[0]).gpu(), device=gpu)
    with pytest.raises(ValueError, match="hw_decoder_load must be from 0 to 1, got 2"):
        ndd.decoders.image(ndd.as_tensor(FILES[0]), device=gpu, hw_decoder_load=2.0)


def test_ragged_batches_leave_the_memory_flat(gpu: str) -> None:
    generator = np.random.default_rng(3)
    for k in range(200):
        result = ndd.decoders.image(ndd.as_batch([FILES[i] for i in generator.permutation(12)[: generator.integers(1, 12)]]), device=gpu)
        ndd.resize(result, size=[64, 64]).evaluate()
        if k == 50:
            torch.cuda.synchronize()
            before = torch.cuda.memory_reserved()
    torch.cuda.synchronize()
    assert torch.cuda.memory_reserved() <= before + (64 << 20)
