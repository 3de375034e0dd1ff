# SPDX-License-Identifier: Apache-2.0
"""Videos as a GPU decodes them: planes with numbers, which our kernel converts to RGB. Without a GPU, the CPU decodes the planes."""

import functools
import platform
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _fake_torchcodec import HEIGHT, WIDTH, FakeTorchcodec, FakeVideo, contents_of, read_levels, write
from _videos import encode, frames_of

import torch_ndd as ndd
from torch_ndd._core.process.workers import Workers
from torch_ndd.decoders import _clips, _frame_sources
from torch_ndd.decoders._clips import Clip, ClipDecoder, Frames
from torch_ndd.decoders._video import Video

FILL = torch.zeros(1, dtype=torch.uint8)
LEVELS = 0 if platform.machine() == "x86_64" else 3  # libswscale has other arithmetic on other processors

COUNT = 25
VIDEOS = {
    "mp4": {"container": "mp4", "codec": "h264", "g": "5"},
    "B-frames": {"container": "mp4", "codec": "h264", "g": "12", "bf": "3"},
    "open groups": {"container": "mp4", "codec": "h264", "g": "6", "bf": "2", "x264-params": "open-gop=1"},
    "one group": {"container": "mkv", "codec": "h264", "g": "250", "bf": "2"},
    "AV1": {"container": "mp4", "codec": "libsvtav1", "g": "2"},
    "VP9": {"container": "webm", "codec": "libvpx-vp9", "g": "7"},
    "10 bits": {"container": "mp4", "codec": "h264", "pixel_format": "yuv420p10le"},
    "AVI": {"container": "avi", "codec": "mpeg4", "g": "5"},
    "AVI with B-frames": {"container": "avi", "codec": "mpeg4", "g": "10", "bf": "2"},
    "transport stream": {"container": "mpegts", "codec": "h264", "g": "10", "bf": "2"},
    "transport stream of MPEG-2": {"container": "mpegts", "codec": "mpeg2video", "g": "10", "bf": "2"},
}


@functools.cache
def file_of(name: str) -> torch.Tensor:
    options: dict[str, str] = dict(VIDEOS[name])
    container, codec, pixel_format = options.pop("container"), options.pop("codec"), options.pop("pixel_format", None)
    frames = frames_of(COUNT).repeat(2, 1).repeat(2, 2)  # AV1 begins at 64 pixels
    ramp = np.arange(frames.shape[2], dtype=np.uint8)[:, None]
    frames = np.clip(frames + ramp, 0, 255).astype(np.uint8)
    return torch.from_numpy(encode(frames, container, codec=codec, pixel_format=pixel_format, extra_options=options))


@pytest.fixture
def planes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make videos of the CPU be decoded as those of a GPU are."""
    monkeypatch.setattr(_frame_sources, "decodes_on_device", lambda device: True)
    monkeypatch.setattr(_frame_sources, "_refusals", {})
    monkeypatch.setattr(_frame_sources, "_warned", set())


@pytest.mark.parametrize("name", VIDEOS)
def test_frames_numbers_and_times_equal_those_of_the_cpu(planes: None, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    file, rng = file_of(name), np.random.default_rng(0)
    ours = Video(file)
    monkeypatch.setattr(_frame_sources, "decodes_on_device", lambda device: False)
    reference = Video(file)
    assert isinstance(ours._decoder, _frame_sources.DeviceFrames)
    assert (ours.count, ours.rate, ours.height, ours.width) == (reference.count, reference.rate, reference.height, reference.width)
    assert ours.find_keys().tolist() == reference.find_keys().tolist()
    for _ in range(8):
        numbers = rng.integers(0, COUNT, rng.integers(1, 6))
        (found, seconds), (expected, times) = ours.frames(numbers, FILL), reference.frames(numbers, FILL)
        assert seconds.tolist() == times.tolist()
        assert (found.int() - expected.int()).abs().max() <= LEVELS


def test_rotated_videos_are_upright(planes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    content = file_of("mp4").numpy().tobytes()
    unit = (1 << 16).to_bytes(4, "big") + bytes(12) + (1 << 16).to_bytes(4, "big") + bytes(12) + (1 << 30).to_bytes(4, "big")
    at = content.index(unit, content.index(b"tkhd"))  # the identity matrix of the track
    plus, minus = (1 << 16).to_bytes(4, "big"), (-1 << 16 & 0xFFFFFFFF).to_bytes(4, "big")
    for a, b, c, d in ((bytes(4), plus, minus, bytes(4)), (minus, bytes(4), bytes(4), minus), (bytes(4), minus, plus, bytes(4))):
        turned = content[:at] + a + b + bytes(4) + c + d + content[at + 20 :]
        file = torch.frombuffer(bytearray(turned), dtype=torch.uint8)
        found, _ = Video(file).frames(np.array([3]), FILL)
        with monkeypatch.context() as patch:
            patch.setattr(_frame_sources, "decodes_on_device", lambda device: False)
            expected, _ = Video(file).frames(np.array([3]), FILL)
        assert (found.int() - expected.int()).abs().max() <= LEVELS


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("name", ["mp4", "one group", "AV1", "transport stream"])
def test_damaged_files_are_errors_or_frames_of_the_right_size(planes: None, name: str, part: float) -> None:
    content = file_of(name).numpy().copy()
    middle = int(part * len(content))
    cut, zeroed = content[:middle], content.copy()
    zeroed[middle : middle + 400] = 0
    for damaged in (cut, zeroed):
        try:
            found = ndd.decoders.video(damaged).shape[1:]
        except RuntimeError as error:
            found = str(error)[:26]
        assert found in ((64, 96, 3), "decoders.video: sample 0: ")


# --- with frames whose numbers are known ---


@pytest.fixture
def fake(planes: None, monkeypatch: pytest.MonkeyPatch) -> FakeTorchcodec:
    return FakeTorchcodec().install(monkeypatch)


def decode(numbers: list[int], video: int = 0) -> list[int]:
    return read_levels(Video(torch.frombuffer(bytearray(contents_of(video)), dtype=torch.uint8)).frames(np.array(numbers), FILL)[0])


@pytest.fixture
def pool() -> Iterator[Workers]:
    with Workers(3, "test") as workers:
        yield workers


@pytest.mark.parametrize("pixel_format", ["nv12", "p010le"])
def test_frames_have_exact_numbers(fake: FakeTorchcodec, pixel_format: str) -> None:
    fake.videos[0].pixel_format = pixel_format
    assert decode([24, 3, 3, 0, 17]) == [24, 3, 3, 0, 17]


def test_each_group_is_decoded_once_up_to_the_last_frame_wanted(fake: FakeTorchcodec) -> None:
    assert decode([20, 3, 4, 1]) == [20, 3, 4, 1]
    # Frames come two packets late; frame 20 is reached from its key frame 16.
    assert fake.packets == [*range(7), *range(16, 23)]
    assert fake.seeks == [1.6]


def test_an_earlier_frame_is_reached_by_a_seek(fake: FakeTorchcodec) -> None:
    video = Video(torch.frombuffer(bytearray(contents_of(0)), dtype=torch.uint8))
    for numbers, packets in (([12], [*range(8, 15)]), ([13], [15]), ([9], [*range(8, 12)]), ([24], [24])):
        fake.packets.clear()
        assert read_levels(video.frames(np.array(numbers), FILL)[0]) == numbers
        assert fake.packets == packets
    assert fake.seeks == [0.8, 0.8, 2.4]


def test_the_decoder_is_made_for_the_first_frame(fake: FakeTorchcodec) -> None:
    video = Video(torch.frombuffer(bytearray(contents_of(0)), dtype=torch.uint8))
    assert (video.count, video.find_keys().tolist(), fake.most_open) == (25, [0, 8, 16, 24], 0)
    video.frames(np.array([2]), FILL)
    assert fake.most_open == 1


def test_a_frame_that_the_decoder_leaves_out_is_an_error(fake: FakeTorchcodec) -> None:
    fake.videos[0].lost = (5, 24)
    with pytest.raises(RuntimeError, match="frame 5 cannot be decoded: frame 6 follows the one before it"):
        decode([4, 5, 6])
    assert decode([4, 6]) == [4, 6]


def test_promised_frames_that_are_not_there_are_an_error(fake: FakeTorchcodec) -> None:
    fake.videos[0].present = 12
    assert decode([11]) == [11]
    for numbers in ([11, 12], [24]):
        with pytest.raises(RuntimeError, match="the video is damaged: it ends after 12 of 25 frames"):
            decode(numbers)


def test_frames_of_another_size_are_an_error(fake: FakeTorchcodec) -> None:
    fake.videos[0].large = (7,)
    with pytest.raises(RuntimeError, match=f"a frame has {HEIGHT + 2}x{WIDTH} pixels, and the first ones have {HEIGHT}x{WIDTH}"):
        decode([6, 7])


@pytest.mark.parametrize("name", ["gray", "rgb24", "gbrp"])
def test_other_pixel_formats_are_an_error(fake: FakeTorchcodec, name: str) -> None:
    fake.videos[0].pixel_format = name
    with pytest.raises(RuntimeError, match=f"pixel format {name} are not supported"):
        decode([0])


def test_errors_half_way_leave_the_other_clips_alone(fake: FakeTorchcodec, tmp_path: Path, pool: Workers) -> None:
    fake.videos = {0: FakeVideo(damaged=(11,)), 1: FakeVideo()}
    bad, good = write(tmp_path, 2)
    decoder = ClipDecoder(1 << 30)
    for _ in range(2):
        clips = [
            Clip(path, lambda facts, numbers=numbers: np.array(numbers))
            for path, numbers in ((bad, [2, 3]), (bad, [9, 10]), (bad, [18]), (good, [9]))
        ]
        first, second, third, fourth = decoder.finish(decoder.start(clips, pool), pool)
        assert str(second) == "decode, /src/x.cpp:7, Failed to send packet to decoder (status -542398533)"
        for frames, numbers in ((first, [2, 3]), (third, [18]), (fourth, [9])):
            assert isinstance(frames, Frames)
            assert read_levels(torch.stack([pixels for pixels in frames.pixels if pixels is not None])) == numbers


def test_open_decoders_are_bounded(fake: FakeTorchcodec, tmp_path: Path, pool: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_clips, "MAX_OPEN_ON_GPU", 4)
    fake.videos = {number: FakeVideo() for number in range(20)}
    paths = write(tmp_path, 20)
    decoder = ClipDecoder(1 << 30)
    for _ in range(2):
        clips = [Clip(path, lambda facts: np.array([5])) for path in paths]
        assert all(isinstance(frames, Frames) for frames in decoder.finish(decoder.start(clips, pool), pool))
        assert fake.open <= 4
    assert fake.most_open <= 4 + pool.max_workers


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        ({"fallback": "Falling back due to: NVcuvid unavailable"}, "NVIDIA's driver has no libnvcuvid.so.1 here: start containers with"),
        ({"fallback": "Falling back due to: Video not supported"}, "NVDEC of this GPU does not decode h264 in yuv420p, or not of this size"),
        ({"error": "f, /src/x.cpp:1, Unsupported device: cuda"}, "torchcodec cannot decode on cpu: Unsupported device: cuda"),
        ({"has_packets": False}, "this torchcodec cannot return frames as NVDEC writes them: pip install -U torchcodec"),
    ],
    ids=str,
)
def test_what_the_gpu_does_not_decode_is_decoded_on_the_cpu_with_one_warning(
    planes: None, monkeypatch: pytest.MonkeyPatch, problem: dict[str, Any], why: str
) -> None:
    fake = FakeTorchcodec(**problem).install(monkeypatch)
    with pytest.warns(RuntimeWarning, match=f'videos with device="gpu" are decoded on the CPU and copied to the GPU: {why}') as found:
        assert decode([24, 3]) == [24, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode([8]) == [8]
    assert (len(found), fake.packets) == (1, [])
    assert fake.probes == (0 if "has_packets" in problem else 1)


def test_each_reason_is_told_once(planes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTorchcodec({0: FakeVideo(), 1: FakeVideo(codec="theora")}, fallback="Video not supported").install(monkeypatch)
    with pytest.warns(RuntimeWarning) as found:
        assert [decode([1], video) for video in (0, 1, 0, 1)] == [[1]] * 4
    assert [str(warning.message).partition("decode ")[2].partition(" ")[0] for warning in found] == ["h264", "theora"]
    assert fake.probes == 2


def test_a_file_that_cannot_be_probed_says_nothing_about_others(planes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTorchcodec({0: FakeVideo(has_length=False), 1: FakeVideo()}).install(monkeypatch)
    with pytest.warns(RuntimeWarning, match="torchcodec cannot open some: the header has no length"):
        assert decode([1], 0) == [1]
    assert fake.packets == []
    assert decode([1], 1) == [1]
    assert fake.packets != []


# --- readers ---


@pytest.mark.parametrize("kind", [ndd.readers.Video, ndd.experimental.readers.Video])
def test_readers_deliver_what_the_device_decodes(fake: FakeTorchcodec, tmp_path: Path, kind: Any) -> None:
    fake.videos = {0: FakeVideo(), 1: FakeVideo(count=9)}
    reader = kind(4, filenames=write(tmp_path, 2), sequence_length=3, step=2, enable_frame_num="sequence", cache_bytes=1 << 20)
    for _ in range(2):
        found = {}
        for frames, numbers in reader.next_epoch(1):
            for sample, of_sample in zip(frames, numbers, strict=True):
                assert read_levels(sample) == np.asarray(of_sample).tolist()
                found[tuple(np.asarray(of_sample).tolist())] = True
        assert len(found) == 12
    assert fake.packets


def test_readers_report_files_and_frames_that_the_device_cannot_decode(fake: FakeTorchcodec, tmp_path: Path) -> None:
    fake.videos = {0: FakeVideo(), 1: FakeVideo(damaged=(7,)), 2: FakeVideo(present=5)}
    paths = write(tmp_path, 3)
    with pytest.raises(RuntimeError, match=r"readers\.Video: .*1\.mp4, from frame 5\): Failed to send packet to decoder"):
        for _ in ndd.readers.Video(filenames=paths, sequence_length=5).next_epoch():
            pass
    reader = ndd.readers.Video(filenames=paths, sequence_length=5, on_error="skip")
    list(reader)
    reasons = [error.reason for error in reader.errors]
    assert len(reasons) == 1 + 4
    assert sum("it ends after 5 of 25 frames" in reason for reason in reasons) == 4


def test_damage_before_a_key_frame_does_not_concern_the_frames_after_it(fake: FakeTorchcodec, tmp_path: Path) -> None:
    fake.videos = {0: FakeVideo(damaged=(7,))}  # its key frames are 0, 8, 16 and 24
    (path,) = write(tmp_path, 1)
    video = Video(path, max_bytes=1 << 30, device=torch.device("cpu"))
    found = [read_levels(frame[None]) for numbers in ([3, 4], [10, 11]) for _, frames, _ in video.decode(np.array(numbers)) for frame in frames]
    assert found == [[3], [4], [10], [11]]
    assert fake.seeks == [0.8]


def test_readers_reject_devices_that_do_not_exist() -> None:
    for kind, name in ((ndd.readers.Video, "readers.Video"), (ndd.experimental.readers.Video, "experimental.readers.Video")):
        with pytest.raises(ValueError, match=rf"^{name}: Invalid device"):
            kind(filenames=["a.mp4"], sequence_length=2, device="tpu")
        if not torch.cuda.is_available():
            with pytest.raises(RuntimeError, match=rf"^{name}: "):
                kind(filenames=["a.mp4"], sequence_length=2, device="gpu")


# --- with --device=cuda ---


@pytest.mark.parametrize("name", VIDEOS)
def test_frames_of_the_gpu_are_within_one_level_of_the_cpu(device: str, name: str) -> None:
    if device == "cpu":
        pytest.skip("runs with --device=cuda")
    file = np.ascontiguousarray(file_of(name).numpy())
    numbers = [20, 3, 3, 0, 24, 11]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of codecs that this GPU does not have
        found = ndd.decoders.video(file, device=device, frames=numbers)
        pad = ndd.decoders.video(file, device=device, start_frame=23, sequence_length=4, fill_value=[1, 2, 3])
    assert found.device.device_type == "gpu"
    difference = np.asarray(found.cpu()).astype(int) - np.asarray(ndd.decoders.video(file, frames=numbers))
    assert np.abs(difference).max() <= (3 if "mpeg4" in str(VIDEOS[name]) else 1)
    assert np.asarray(pad.cpu())[3, 0, 0].tolist() == [1, 2, 3]


@pytest.mark.figures
def test_readers_on_the_gpu_equal_those_on_the_cpu(device: str, tmp_path: Path) -> None:
    if device == "cpu":
        pytest.skip("runs with --device=cuda")
    paths = []
    for name in ("mp4", "B-frames", "one group", "10 bits"):
        paths.append(tmp_path / f"{name}.{VIDEOS[name]['container']}")
        paths[-1].write_bytes(file_of(name).numpy().tobytes())
    options: dict[str, Any] = {"filenames": paths, "sequence_length": 3, "random_shuffle": True, "enable_frame_num": "sequence"}
    expected = list(ndd.readers.Video(**options).next_epoch(4))
    for (frames, numbers), (wanted, known) in zip(ndd.readers.Video(device=device, **options).next_epoch(4), expected, strict=True):
        assert frames.device.device_type == numbers.device.device_type == "gpu"
        assert np.array_equal(np.asarray(numbers.cpu().torch()), np.asarray(known.torch()))
        assert (frames.cpu().torch().int() - wanted.torch().int()).abs().max() <= 1
    large = tmp_path / "large.mp4"
    pixels = np.random.default_rng(0).integers(0, 256, (120, 9, 16, 3), dtype=np.uint8).repeat(80, 1).repeat(80, 2)
    large.write_bytes(encode(pixels, codec="h264", extra_options={"g": "30"}).tobytes())
    for place in ("cpu", device):
        reader = ndd.readers.Video(device=place, filenames=[large] * 8, sequence_length=12)
        begin, count = time.perf_counter(), 0
        for (frames,) in reader.next_epoch(8):
            count += 12 * frames.batch_size
        frames.cpu()
        print(f"{place}: {count / (time.perf_counter() - begin):.0f} frames of 1280x720 per second", end="; ")
