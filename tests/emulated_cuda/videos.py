# SPDX-License-Identifier: Apache-2.0
"""Videos decoded with ``device="gpu"``, on a device whose streams are late (see late.py), by a fake of torchcodec that returns NVDEC's planes there.

A frame that is read before it has been converted, or whose memory returns to torch's allocator too early, has another number.
"""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _fake_torchcodec import HEIGHT, WIDTH, FakeTorchcodec, FakeVideo, contents_of, read_levels, write

import torch_ndd as ndd
from torch_ndd._core.work.cuda_work import on_decode_stream
from torch_ndd.decoders import _clips


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTorchcodec:
    # The device takes contiguous tensors only, which planes with chroma of full size are.
    return FakeTorchcodec({number: FakeVideo(count=25 - number, pixel_format="yuv444p") for number in range(6)}).install(monkeypatch)


def read_numbers(frames: Any) -> list[int]:
    return read_levels(np.asarray(frames.cpu()))


@pytest.mark.parametrize("pixel_format", ["yuv444p", "yuv444p16le"])
def test_decoder_returns_frames_on_the_gpu(fake: FakeTorchcodec, pixel_format: str) -> None:
    fake.videos[0].pixel_format = pixel_format
    files = [np.frombuffer(contents_of(number), np.uint8) for number in (0, 1, 0)]
    frames = ndd.decoders.video(ndd.batch(files), device="gpu", frames=ndd.batch([[20, 3, 3], [0, 23, 9], [24, 1, 2]]))
    assert (str(frames.device), frames.layout, frames.dtype) == ("gpu:0", "FHWC", ndd.uint8)
    flipped = ndd.flip(frames, horizontal=1)
    assert [read_numbers(sample) for sample in flipped] == [[20, 3, 3], [0, 23, 9], [24, 1, 2]]
    assert len(fake.packets) > 0


def test_missing_frames_are_filled(fake: FakeTorchcodec) -> None:
    file = np.frombuffer(contents_of(5), np.uint8)
    frames = np.asarray(ndd.decoders.video(file, device="gpu", start_frame=18, sequence_length=4, fill_value=[7, 8, 9]).cpu())
    assert read_levels(frames[:2]) == [18, 19]
    assert (frames[2:] == [7, 8, 9]).all()


@pytest.mark.parametrize("options", [{"size": [16, 24]}, {"resize_shorter": 20, "image_type": ndd.types.YCbCr}], ids=str)
def test_frames_are_resized_and_converted_on_the_gpu(fake: FakeTorchcodec, tmp_path: Path, options: dict[str, Any]) -> None:
    paths = write(tmp_path, 2)
    on_cpu, on_gpu = (ndd.readers.VideoResize(3, device=device, filenames=paths, sequence_length=4, **options) for device in ("cpu", "gpu"))
    for (expected,), (frames,) in zip(on_cpu.next_epoch(), on_gpu.next_epoch(), strict=True):
        assert str(frames.device) == "gpu:0"
        np.testing.assert_array_equal(np.asarray(frames.cpu().torch()), np.asarray(expected.torch()))
    assert len(fake.packets) > 0


def test_readers_fill_missing_frames(fake: FakeTorchcodec, tmp_path: Path) -> None:
    options: dict[str, Any] = {"sequence_length": 7, "pad_mode": "constant", "fill_value": [7, 8, 9]}
    frames = [np.asarray(sample.cpu()) for (sample,) in ndd.experimental.readers.Video(device="gpu", filenames=write(tmp_path), **options)]
    assert [read_levels(sample) for sample in frames[:3]] == [[*range(begin, begin + 7)] for begin in (0, 7, 14)]
    assert read_levels(frames[3][:4]) == [21, 22, 23, 24]
    assert (frames[3][4:] == [7, 8, 9]).all()


def test_videos_that_end_early_have_the_frames_that_are_there(fake: FakeTorchcodec) -> None:
    fake.videos[0].present = 9
    file = np.frombuffer(contents_of(0), np.uint8)
    with pytest.raises(RuntimeError, match=r"decoders\.video: sample 0: the video is damaged: it ends after 9 of 25 frames"):
        ndd.decoders.video(file, device="gpu")


@pytest.mark.parametrize("cache_bytes", [None, 20 * HEIGHT * WIDTH * 3])
@pytest.mark.parametrize("kind", [ndd.readers.Video, ndd.experimental.readers.Video])
def test_readers_deliver_their_frames(fake: FakeTorchcodec, tmp_path: Path, kind: Any, cache_bytes: int | None) -> None:
    options: dict[str, Any] = {"sequence_length": 4, "step": 2, "random_shuffle": True, "enable_frame_num": "sequence", "enable_timestamps": True}
    reader = kind(5, device="gpu", filenames=write(tmp_path, 6), labels=range(6), cache_bytes=cache_bytes, **options)
    for _ in range(4):
        for frames, labels, numbers, seconds in reader.next_epoch():
            assert {str(batch.device) for batch in (frames, labels, numbers, seconds)} == {"gpu:0"}
            turned = ndd.flip(frames, vertical=1)
            expected = np.asarray(numbers.cpu().torch())
            assert [read_numbers(sample) for sample in turned] == expected.tolist()
            np.testing.assert_allclose(np.asarray(seconds.cpu().torch()), expected / 10)
    assert reader._clips._cached_bytes <= (cache_bytes or 0)


def test_frames_that_come_late_are_waited_for(fake: FakeTorchcodec, tmp_path: Path) -> None:
    fake.late = 32 << 20
    reader = ndd.readers.Video(4, device="gpu", filenames=write(tmp_path, 2), sequence_length=2, step=6, enable_frame_num="sequence")
    for frames, numbers in reader.next_epoch():
        assert [read_numbers(sample) for sample in frames] == np.asarray(numbers.cpu().torch()).tolist()
    file = np.frombuffer(contents_of(1), np.uint8)
    assert read_numbers(ndd.decoders.video(file, device="gpu", frames=[9, 2])) == [9, 2]


def test_errors_leave_no_work_on_memory_that_is_free(fake: FakeTorchcodec) -> None:
    fake.late, fake.videos[0].damaged = 32 << 20, (6,)
    bad, good = (np.frombuffer(contents_of(number), np.uint8) for number in (0, 1))
    for _ in range(4):
        with pytest.raises(RuntimeError, match="Failed to send packet"):
            ndd.decoders.video(bad, device="gpu", frames=[0, 2, 5])
        other = ndd.decoders.video(good, device="gpu", frames=[20, 21, 22])
        torch.cuda.synchronize()
        assert read_numbers(other) == [20, 21, 22]


def test_memory_that_queued_work_still_writes_is_waited_for(fake: FakeTorchcodec) -> None:
    file, device = np.frombuffer(contents_of(0), np.uint8), torch.device("cuda", 0)
    with on_decode_stream(device):
        memory = torch.empty(3 * HEIGHT * WIDTH * 3, dtype=torch.uint8, device=device)
        large = torch.empty(2, 64 << 20, dtype=torch.uint8, device=device)
        large[0].copy_(large[1])
        memory.copy_(large[0, : len(memory)])
    address = memory.data_ptr()
    del memory
    frames = ndd.decoders.video(file, device="gpu", frames=[5, 6, 7])
    assert frames.buffer.data_ptr() == address  # or the test shows nothing
    torch.cuda.synchronize()
    assert read_numbers(frames) == [5, 6, 7]


def test_dropped_batches_leave_nothing_behind(fake: FakeTorchcodec, tmp_path: Path) -> None:
    reader = ndd.readers.Video(4, device="gpu", filenames=write(tmp_path, 6), sequence_length=6, random_shuffle=True)
    before = 0
    for epoch in range(6):
        for (frames,) in reader.next_epoch():
            ndd.flip(frames, horizontal=1)
        torch.cuda.synchronize()
        if epoch == 1:
            before = torch.cuda.memory_reserved()
    del frames
    gc.collect()
    assert torch.cuda.memory_reserved() <= before + (8 << 20)
    assert fake.open <= _clips.MAX_OPEN_ON_GPU


@pytest.mark.parametrize(("fallback", "why"), [("NVcuvid unavailable", "no libnvcuvid"), ("Video not supported", "does not decode h264 in yuv420p")])
def test_refused_videos_are_decoded_on_the_cpu_and_copied(fake: FakeTorchcodec, tmp_path: Path, fallback: str, why: str) -> None:
    fake.fallback = fallback
    reader = ndd.readers.Video(3, device="gpu", filenames=write(tmp_path, 3), sequence_length=5, enable_frame_num="sequence")
    with pytest.warns(RuntimeWarning, match=why) as found:
        batches = list(reader.next_epoch())
    for frames, numbers in batches:
        assert str(frames.device) == "gpu:0"
        assert [read_numbers(sample) for sample in frames] == np.asarray(numbers.cpu().torch()).tolist()
    assert (len(found), fake.packets) == (1, [])


def test_installed_torchcodec_that_finds_no_decoder_falls_back(tmp_path: Path) -> None:
    videos = pytest.importorskip("_videos")
    file = videos.encode(videos.frames_of(5))
    with pytest.warns(RuntimeWarning, match="decoded on the CPU and copied to the GPU: "):
        frames = ndd.decoders.video(file, device="gpu")
    assert videos.identity(np.asarray(frames.cpu())) == [f"a{number}" for number in range(5)]


def test_pipelines_decode_on_the_gpu(fake: FakeTorchcodec, tmp_path: Path) -> None:
    import torch_ndd.dali as dali

    paths = write(tmp_path, 2)

    @dali.pipeline_def(batch_size=3, num_threads=2, device_id=0)
    def pipeline() -> Any:
        return dali.fn.readers.video(device="gpu", filenames=paths, sequence_length=4, name="reader")

    built = pipeline()
    built.build()
    (frames,) = built.run()
    assert len(fake.packets) > 0
    assert read_levels(np.asarray(frames.as_cpu().as_array())[1]) == [4, 5, 6, 7]


def test_pipelines_decode_videos_that_are_fed(fake: FakeTorchcodec) -> None:
    import torch_ndd.dali as dali

    @dali.pipeline_def(batch_size=2, num_threads=2, device_id=0)
    def pipeline() -> Any:
        sequences = dali.fn.experimental.inputs.video(name="video", sequence_length=3, device="mixed")
        files = dali.fn.external_source([[np.frombuffer(contents_of(k), np.uint8) for k in (0, 1)]] * 2, batch=True)
        return sequences, dali.fn.decoders.video(files, device="mixed", start_frame=4, sequence_length=2)

    built = pipeline()
    built.build()
    built.feed_input("video", np.frombuffer(contents_of(0), np.uint8)[None])
    for begin in (0, 6):
        sequences, frames = built.run()
        assert [read_levels(sample) for sample in sequences.as_cpu().as_array()] == [[*range(at, at + 3)] for at in (begin, begin + 3)]
        assert [read_levels(sample) for sample in frames.as_cpu().as_array()] == [[4, 5]] * 2
