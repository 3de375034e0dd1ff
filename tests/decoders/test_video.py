# SPDX-License-Identifier: Apache-2.0
import functools
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from _cases import Case, Each, Samples
from _forks import Forks
from _videos import HEIGHT, WIDTH, encode, frames_of, identity

import torch_ndd as ndd
from torch_ndd.decoders._frame_sources import HostFrames

COUNTS = (12, 5, 9)


@functools.cache
def videos(count: int, video: int = 0, container: str = "mp4") -> np.ndarray:
    return encode(frames_of(count, video), container)


def files(ragged: bool) -> tuple[Samples, ...]:
    return ([videos(COUNTS[k] if ragged else 12, k) for k in range(3)],)


def whole(file: np.ndarray) -> np.ndarray:
    decoders = pytest.importorskip("torchcodec.decoders")
    decoder = decoders.VideoDecoder(file.tobytes(), dimension_order="NHWC")
    return decoder[:].numpy()


def window(file: np.ndarray, start_frame: int, stride: int, sequence_length: int) -> np.ndarray:
    frames = whole(file)
    result = np.zeros((sequence_length, *frames.shape[1:]), np.uint8)
    for k in range(sequence_length):
        if start_frame + k * stride < len(frames):
            result[k] = frames[start_frame + k * stride]
    return result


CASES = [
    Case(
        "decoders.video",
        "sequence",
        files,
        {"start_frame": Each([0, 3, 2]), "stride": Each([1, 2, 3]), "sequence_length": Each([4, 4, 4])},
        reference=window,
        out_layout="FHWC",
        uncompiled="it runs in Python",
    ),
    Case(
        "decoders.video",
        "numbers",
        files,
        {"frames": Each([[0, 4, 2], [1, 1], [3]])},
        reference=lambda f, frames: whole(f)[frames],
        out_layout="FHWC",
        uncompiled="it runs in Python",
    ),
    Case(
        "decoders.video",
        "end",
        files,
        {"end_frame": Each([4, 5, 2])},
        reference=lambda f, end_frame: whole(f)[:end_frame],
        out_layout="FHWC",
        uncompiled="it runs in Python",
    ),
]


def decode(file: np.ndarray, **options: object) -> list[str]:
    return identity(np.asarray(ndd.decoders.video(file, **options)))


@pytest.mark.parametrize("container", ["mp4", "mkv", "webm", "avi"])
def test_all_frames(container: str) -> None:
    result = ndd.decoders.video(videos(12, 1, container))
    assert (result.dtype, result.layout, result.shape) == (ndd.uint8, "FHWC", (12, HEIGHT, WIDTH, 3))
    assert identity(np.asarray(result)) == [f"b{i}" for i in range(12)]
    assert np.abs(np.asarray(result).astype(int) - frames_of(12, 1)).max() <= 6  # lossy codecs


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"start_frame": 9}, "9 10 11"),
        ({"end_frame": 2}, "0 1"),
        ({"start_frame": 3, "end_frame": 9, "stride": 2}, "3 5 7"),
        ({"start_frame": 2, "sequence_length": 3, "stride": 4}, "2 6 10"),
        ({"sequence_length": 0}, ""),
        ({"frames": [3, 0, 11, 3]}, "3 0 11 3"),
        ({"start_frame": 10, "sequence_length": 5}, "10 11 - - -"),
        ({"start_frame": -1, "sequence_length": 3}, "- 0 1"),
        ({"start_frame": 10, "end_frame": 14}, "10 11 - -"),
        ({"start_frame": 10, "sequence_length": 5, "pad_mode": "none"}, "10 11"),
        ({"start_frame": 10, "sequence_length": 5, "pad_mode": "edge"}, "10 11 11 11 11"),
        ({"start_frame": 10, "sequence_length": 5, "pad_mode": "repeat"}, "10 11 11 11 11"),
        ({"start_frame": 10, "sequence_length": 5, "pad_mode": "reflect_1001"}, "10 11 11 10 9"),
        ({"start_frame": 10, "sequence_length": 5, "pad_mode": "symmetric"}, "10 11 11 10 9"),
        ({"start_frame": 10, "sequence_length": 5, "pad_mode": "reflect_101"}, "10 11 10 9 8"),
        ({"start_frame": 10, "sequence_length": 5, "pad_mode": "reflect"}, "10 11 10 9 8"),
        ({"start_frame": 8, "sequence_length": 4, "stride": 3, "pad_mode": "symmetric"}, "8 11 9 6"),
        ({"frames": [0, 12, 13], "pad_mode": "reflect"}, "0 10 9"),
        ({"frames": [-1, 40], "pad_mode": "edge"}, "0 11"),
        ({"start_frame": 5, "sequence_length": 2, "build_index": False}, "5 6"),
    ],
    ids=str,
)
def test_which_frames(options: dict[str, object], expected: str) -> None:
    wanted = [value if value == "-" else f"b{value}" for value in expected.split()]
    assert decode(videos(12, 1), **options) == wanted


def test_padding_of_a_single_frame() -> None:
    for mode in ("edge", "symmetric", "reflect"):
        assert decode(videos(1, 2), sequence_length=4, pad_mode=mode) == ["c0"] * 4


def test_fill_value() -> None:
    for fill, expected in ((7, [7, 7, 7]), ([9], [9, 9, 9]), ((1, 2, 3), [1, 2, 3])):
        result = np.asarray(ndd.decoders.video(videos(2), sequence_length=3, fill_value=fill))
        assert (result[2] == expected).all()
        assert identity(result[:2]) == ["a0", "a1"]


def test_a_batch_is_its_samples() -> None:
    batch = ndd.batch([videos(12), videos(5, 1), videos(9, 2)])
    output = ndd.decoders.video(batch, start_frame=ndd.batch([1, 2, 3]), pad_mode="none", sequence_length=ndd.batch([2, 5, 3]))
    assert [identity(np.asarray(result)) for result in output] == [["a1", "a2"], ["b2", "b3", "b4"], ["c3", "c4", "c5"]]


def test_bad_files_and_arguments() -> None:
    good = videos(12)
    for bad in (good[:0], good[: len(good) // 2], np.zeros(100, np.uint8)):
        with pytest.raises(RuntimeError, match=r"decoders\.video: sample 1: \w"):
            ndd.decoders.video(ndd.batch([good, bad]))
    for options, reason in (
        ({"start_frame": 12}, r"start_frame 12 is out of bounds, expected range \[0, 12\)"),
        ({"start_frame": 3, "end_frame": 3}, r"end_frame \(3\) must be greater"),
        ({"end_frame": 3, "sequence_length": 3}, "Cannot specify both"),
        ({"frames": [1], "stride": 2}, "Cannot specify both `frames` and stride"),
        ({"frames": [12], "pad_mode": "none"}, "frame 12 is not among the 12"),
        ({"stride": 0}, "stride must be at least 1"),
        ({"sequence_length": -1}, "sequence_length must be at least 0"),
        ({"pad_mode": "wrap"}, "pad_mode must be one of none, .*got 'wrap'"),
        ({"fill_value": [1, 2]}, "Fill value size"),
        ({"fill_value": 256}, r"range \[0, 255\]"),
    ):
        with pytest.raises(RuntimeError, match=rf"decoders\.video: .*{reason}"):
            ndd.decoders.video(good, **options)


def test_bare_streams_are_refused_with_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"decoders\.video: sample 0: it is a bare h264 stream, .*: ffmpeg -i FILE FILE\.mp4"):
        ndd.decoders.video(ndd.tensor(videos(5, 0, "h264"))).evaluate()


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    file = videos(2)
    monkeypatch.setitem(__import__("sys").modules, "torchcodec.decoders", None)
    with pytest.raises(RuntimeError, match=r"pip install torch_ndd\[video\]"):
        ndd.decoders.video(file)


# --- containers in which the times of frames do not find them ---

WITHOUT_TIMES = {
    "AVI with B-frames": ("avi", "mpeg4", 10),
    "AVI with H.264": ("avi", "h264", 10),
    "transport stream": ("mpegts", "h264", 10),
    "transport stream of MPEG-2": ("mpegts", "mpeg2video", 10),
    "program stream": ("mpeg", "mpeg2video", 25),
    "program stream of H.264": ("mpeg", "h264", 25),  # most frames have no time, so the index has the first key frame behind others
}


@functools.cache
def without_times(name: str) -> np.ndarray:
    container, codec, rate = WITHOUT_TIMES[name]
    return encode(frames_of(25), container, rate, codec=codec, extra_options={"bf": "2", "g": "10"})


@pytest.mark.parametrize("name", WITHOUT_TIMES)
def test_frames_are_counted_where_times_do_not_find_them(name: str) -> None:
    file = without_times(name)
    assert decode(file) == [f"a{k}" for k in range(25)]
    assert decode(file, frames=[20, 3, 20, 0, 24]) == ["a20", "a3", "a20", "a0", "a24"]
    assert decode(file, start_frame=19, stride=4, sequence_length=3) == ["a19", "a23", "-"]
    assert decode(file, build_index=False, start_frame=11, end_frame=13) == ["a11", "a12"]


@pytest.mark.parametrize("lists", [[[20, 3], [0, 24]], ((20, 3), (0, 24)), [[20, 3], [1]]])
def test_frames_are_a_list_for_each_video(lists: Sequence[Sequence[int]]) -> None:
    file = without_times(next(iter(WITHOUT_TIMES)))
    videos = ndd.decoders.video([file.tobytes()] * 2, frames=lists)
    for found, numbers in zip(videos.tensors, lists, strict=True):
        np.testing.assert_array_equal(found, ndd.decoders.video(file, frames=list(numbers)))
    for wrong in ([[1], [2], [3]], [[1]], [[1], 2]):
        with pytest.raises(ValueError, match=r"frames must be a list of numbers, or one for each of the 2 videos"):
            ndd.decoders.video([file.tobytes()] * 2, frames=wrong)


def test_a_key_frame_that_shares_its_time_with_the_next_frame_is_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    file = without_times("program stream")  # the first two frames have equal times, and an index sorted by time may have either in front
    monkeypatch.setattr(HostFrames, "find_keys", lambda self: np.array([1, 4, 7]))
    assert decode(file) == [f"a{k}" for k in range(25)]
    assert decode(file, frames=[24, 0], pad_mode="none") == ["a24", "a0"]


def test_cut_transport_streams_have_the_frames_that_are_there() -> None:
    file = without_times("transport stream")
    packets = len(file) // 188
    tail = decode(file[packets * 3 // 10 * 188 + 7 :])  # it begins within a packet
    assert len(tail) >= 5
    assert tail == [f"a{k}" for k in range(25 - len(tail), 25)]
    beginning = file[: packets // 2 * 188]
    head = decode(beginning)
    assert 8 <= len(head) < 25
    assert head[:-1] == [f"a{k}" for k in range(len(head) - 1)]  # those before the last one are missing where it is a reference
    assert len(decode(beginning, sequence_length=30)) == 30
    with pytest.raises(RuntimeError, match=rf"frame 24 is not among the {len(head)} of the video"):
        decode(beginning, frames=[24], pad_mode="none")


def test_frames_that_refer_to_a_group_that_was_cut_off_are_not_counted() -> None:
    noise = np.random.default_rng(1).integers(0, 60, (25, HEIGHT, WIDTH, 3), dtype=np.uint8)  # so that each group has a cluster of its own
    file = encode(frames_of(25) // 2 + noise, "matroska", 25, codec="mpeg2video", extra_options={"bf": "2", "g": "12", "flags": "-cgop"})
    complete = np.asarray(ndd.decoders.video(file))
    first, second, *_ = (found.start() for found in re.finditer(b"\x1f\x43\xb6\x75", file.tobytes()))  # clusters
    cut = file.copy()
    cut[first : first + 9] = np.frombuffer(b"\xec\x01" + (second - first - 9).to_bytes(7, "big"), np.uint8)  # Void in place of the first cluster
    frames = np.asarray(ndd.decoders.video(cut))
    promised = len(pytest.importorskip("torchcodec.decoders").VideoDecoder(cut.tobytes()))
    assert 10 < len(frames) < promised
    np.testing.assert_array_equal(frames, complete[-len(frames) :])
    for number in (0, 1, 5, len(frames) - 1):
        np.testing.assert_array_equal(np.asarray(ndd.decoders.video(cut, frames=[number]))[0], frames[number])


# --- bounds ---


def test_max_sample_bytes_bounds_a_video(monkeypatch: pytest.MonkeyPatch) -> None:
    file, frame = videos(12), HEIGHT * WIDTH * 3
    assert len(decode(file, max_sample_bytes=12 * frame)) == 12
    text = f"sample 0: 12 frames of {HEIGHT}x{WIDTH} have {12 * frame} bytes, more than max_sample_bytes={12 * frame - 1}"
    with pytest.raises(RuntimeError, match=text):
        decode(file, max_sample_bytes=12 * frame - 1)
    assert len(decode(file, max_sample_bytes=5 * frame, end_frame=5)) == 5
    with pytest.raises(RuntimeError, match=r"2000000000 frames of .* more than max_sample_bytes=4294967296"):
        decode(file, sequence_length=2_000_000_000)
    monkeypatch.setenv("TORCH_NDD_MAX_SAMPLE_BYTES", str(12 * frame - 1))
    with pytest.raises(RuntimeError, match=text):
        decode(file)
    assert len(decode(file, max_sample_bytes=12 * frame)) == 12
    monkeypatch.setenv("TORCH_NDD_MAX_SAMPLE_BYTES", "4 GB")
    with pytest.raises(ValueError, match="TORCH_NDD_MAX_SAMPLE_BYTES must be an integer, got '4 GB'"):
        decode(file)
    for wrong, kind in ((0, ValueError), (1.5, TypeError)):
        with pytest.raises(kind, match=r"decoders\.video: .*max_sample_bytes.* must be"):
            decode(file, max_sample_bytes=wrong)


def test_a_video_needs_little_more_memory_than_its_frames(forks: Forks, tmp_path: Path) -> None:
    pixels = np.zeros((40, 1600, 1600, 3), np.uint8)
    pixels[::2, ::100] = 200
    path = tmp_path / "large.mp4"
    path.write_bytes(encode(pixels, preset="ultrafast").tobytes())
    program = """
import resource, sys, numpy as np, torch_ndd as ndd
file = np.fromfile(sys.argv[1], np.uint8)
ndd.decoders.video(file, end_frame=1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
made = ndd.decoders.video(file)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / made.torch().numel())
"""
    child = forks.run(program, path)
    assert child.wait() == 0, child.errors
    assert float(child.output) < 1.6  # 2.0 with a copy of the result
