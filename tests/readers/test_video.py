# SPDX-License-Identifier: Apache-2.0
"""readers.Video, readers.VideoResize and experimental.readers.Video."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _videos import HEIGHT, RATE, WIDTH, encode, frames_of, identity, write
from torch.utils.data import DataLoader

import torch_ndd as ndd
from torch_ndd import types
from torch_ndd.testing import assert_resumable


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write(tmp_path_factory.mktemp("videos"))


def epoch(reader: Any) -> list[str]:
    return [" ".join(identity(np.asarray(sample[0]))) for sample in reader.next_epoch()]


new = ndd.experimental.readers.Video


def test_sequences_follow_each_other(videos: list[Path]) -> None:
    expected = [" ".join(f"a{i + k}" for k in range(6)) for i in (0, 6, 12)] + ["b0 b1 b2 b3 b4 b5"]
    expected += [" ".join(f"c{i + k}" for k in range(6)) for i in (0, 6, 12, 18)]
    for kind in (ndd.readers.Video, new):
        reader = kind(filenames=videos, sequence_length=6)
        for _ in range(2):
            assert epoch(reader) == expected
        (frames,) = next(iter(reader.next_epoch(batch_size=3)))
        assert (frames.layout, frames.dtype, frames.torch().shape) == ("FHWC", ndd.uint8, (3, 6, HEIGHT, WIDTH, 3))
        assert bytes(ndd.get_property(frames.select(1), key="source_info").torch()).decode().startswith(f"{videos[0]}, from frame ")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"sequence_length": 3, "step": 2}, ["b0 b1 b2", "b2 b3 b4", "b4 b5 b6"]),
        ({"sequence_length": 2, "stride": 3}, ["b0 b3"]),
        ({"sequence_length": 2, "stride": 3, "step": 1}, ["b0 b3", "b1 b4", "b2 b5", "b3 b6"]),
        ({"sequence_length": 7, "step": 0}, ["b0 b1 b2 b3 b4 b5 b6"]),
    ],
    ids=str,
)
def test_step_and_stride(videos: list[Path], options: dict[str, int], expected: list[str]) -> None:
    for kind in (ndd.readers.Video, new):
        assert epoch(kind(filenames=videos[1], **options)) == expected


@pytest.mark.parametrize(
    ("mode", "last"),
    [
        ("constant", "b5 b6 - - -"),
        ("edge", "b5 b6 b6 b6 b6"),
        ("symmetric", "b5 b6 b6 b5 b4"),
        ("reflect_101", "b5 b6 b5 b4 b3"),
    ],
)
def test_padding_repeats_or_clears_frames(videos: list[Path], mode: str, last: str) -> None:
    assert epoch(new(filenames=videos[1], sequence_length=5, pad_mode=mode)) == ["b0 b1 b2 b3 b4", last]
    assert epoch(new(filenames=videos[1], sequence_length=5)) == ["b0 b1 b2 b3 b4"]


def test_pad_sequences(videos: list[Path]) -> None:
    reader = ndd.readers.Video(filenames=videos[1], sequence_length=5, pad_sequences=True, enable_frame_num="sequence", enable_timestamps=True)
    (_, first, seconds), (frames, last, late) = reader.next_epoch()
    assert identity(np.asarray(frames)) == ["b5", "b6", "-", "-", "-"]
    assert (first.torch().tolist(), last.torch().tolist()) == ([0, 1, 2, 3, 4], [5, 6, -1, -1, -1])
    assert np.allclose(seconds.torch(), [0, 0.1, 0.2, 0.3, 0.4])
    assert np.allclose(late.torch(), [0.5, 0.6, -1, -1, -1])
    assert (last.dtype, late.dtype) == (ndd.int32, ndd.float64)


def test_labels_of_sequences(videos: list[Path], tmp_path: Path) -> None:
    def labels(reader: Any) -> list[int]:
        return [label.torch().tolist()[0] for _, label in reader.next_epoch()]

    for kind in (ndd.readers.Video, new):
        assert labels(kind(filenames=videos, labels=[5, 6, 7], sequence_length=7)) == [5, 5, 6, 7, 7, 7]
        assert labels(kind(file_root=videos[0].parent.parent, sequence_length=7)) == [0, 0, 0, 1, 1, 1]
        assert len(next(iter(kind(filenames=videos, sequence_length=7).next_epoch()))) == 1
        (tmp_path / "list.txt").write_text(f"{videos[2]} 3\n\n{videos[1]} 4\n")
        assert labels(kind(file_list=tmp_path / "list.txt", sequence_length=7)) == [3, 3, 3, 4]
    assert labels(ndd.readers.Video(filenames=videos, labels=[], sequence_length=7)) == [0, 0, 1, 2, 2, 2]
    for kind in (ndd.readers.Video, ndd.experimental.readers.Video):
        (_, found), *_ = kind(filenames=videos, labels=[5, 6, 7], sequence_length=7, scalar_labels=True).next_epoch(6)
        assert (found.dtype, found.torch().tolist()) == (ndd.int64, [5, 5, 6, 7, 7, 7])


def test_frame_numbers(videos: list[Path]) -> None:
    for name in ("scalar", True):
        reader = new(filenames=videos[0], sequence_length=6, enable_frame_num=name)
        assert [number.torch().tolist() for _, number in reader.next_epoch()] == [[0], [6], [12]]
    reader = new(filenames=videos[0], sequence_length=4, stride=2, enable_frame_num="sequence", labels=[9])
    assert [number.torch().tolist() for _, _, number in reader.next_epoch()] == [[0, 2, 4, 6], [8, 10, 12, 14]]


@pytest.mark.parametrize(
    ("line", "options", "first", "last"),
    [
        ("0.35 1.25", {}, 3, 12),
        ("0.35 1.25", {"file_list_rounding": "start_up_end_down"}, 4, 11),
        ("0.35 1.25", {"file_list_rounding": "all_up"}, 4, 12),
        ("0.35 1.25", {"file_list_rounding": "all_down"}, 3, 11),
        ("0.3 1.2", {"file_list_rounding": "all_up"}, 3, 11),
        ("0.3 1.2", {"file_list_rounding": "all_down"}, 3, 11),
        ("-1 1.0", {}, 0, 9),
        ("1.0", {}, 10, 19),
        ("0 100", {}, 0, 19),
        ("4 11", {"file_list_format": "frames"}, 4, 10),
        ("-5 -1", {"file_list_format": "frames"}, 15, 18),
        ("0 30", {"file_list_format": "frames"}, 0, 19),
        ("5", {"file_list_format": "frames"}, 5, 19),
    ],
)
def test_parts_of_videos(videos: list[Path], tmp_path: Path, line: str, options: dict[str, str], first: int, last: int) -> None:
    (tmp_path / "list.txt").write_text(f"{videos[0]} 3 {line}\n")
    assert epoch(new(file_list=tmp_path / "list.txt", sequence_length=1, **options)) == [f"a{i}" for i in range(first, last + 1)]


def test_parts_of_videos_in_the_older_reader(videos: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text(f"{videos[0]} 3 0.35 1.25\n")
    assert epoch(ndd.readers.Video(file_list=path, sequence_length=8)) == ["a4 a5 a6 a7 a8 a9 a10 a11"]
    assert epoch(ndd.readers.Video(file_list=path, sequence_length=10, file_list_include_preceding_frame=True))[0].split()[0] == "a3"
    path.write_text(f"{videos[0]} 3 4 -10\n")
    assert epoch(ndd.readers.Video(file_list=path, sequence_length=3, file_list_frame_num=True)) == ["a4 a5 a6", "a7 a8 a9"]


def test_uniform_samples(videos: list[Path]) -> None:
    assert epoch(new(filenames=videos, sequence_length=4, uniform_sample=True)) == ["a0 a6 a13 a19", "b0 b2 b4 b6", "c0 c8 c16 c24"]
    assert epoch(new(filenames=videos[1], sequence_length=10, uniform_sample=True)) == ["b0 b1 b1 b2 b3 b3 b4 b5 b5 b6"]


def test_dtypes_and_color_types(videos: list[Path]) -> None:
    def frames(**options: Any) -> ndd.Batch:
        return next(iter(ndd.readers.Video(filenames=videos, sequence_length=5, **options).next_epoch(batch_size=2)))[0]

    plain = frames().torch()
    assert np.array_equal(frames(dtype=ndd.float32).torch(), plain.float())
    assert np.allclose(frames(normalized=True).torch(), plain / 255)
    converted = ndd.color_space_conversion(frames(), image_type=types.RGB, output_type=types.YCbCr)
    assert np.array_equal(frames(image_type=types.YCbCr).torch(), converted.torch())
    sequences = next(iter(new(filenames=videos, sequence_length=5, image_type=types.YCbCr).next_epoch(batch_size=2)))[0]
    assert np.array_equal(sequences.torch(), converted.torch())


def test_video_resize(videos: list[Path]) -> None:
    plain = next(iter(ndd.readers.Video(filenames=videos, sequence_length=5).next_epoch(batch_size=2)))[0]
    for options in ({"size": [16, 20]}, {"resize_shorter": 40, "interp_type": types.INTERP_CUBIC}, {"resize_x": 20, "antialias": False}):
        reader = ndd.readers.VideoResize(filenames=videos, sequence_length=5, **options)
        result = next(iter(reader.next_epoch(batch_size=2)))[0]
        assert result.layout == "FHWC"
        assert np.array_equal(result.torch(), ndd.resize(plain, **options).torch())
    reader = ndd.readers.VideoResize(filenames=videos, sequence_length=5, size=[16, 20], dtype=ndd.float32, normalized=True)
    result = next(iter(reader.next_epoch(batch_size=2)))[0]
    assert np.allclose(result.torch(), ndd.resize(plain, size=[16, 20], dtype=ndd.float32).torch() / 255)


def test_videos_of_different_size(tmp_path: Path, videos: list[Path]) -> None:
    (tmp_path / "wide.mp4").write_bytes(encode(np.repeat(frames_of(6), 2, 2)).tobytes())
    (batch,) = next(iter(ndd.readers.Video(filenames=[videos[1], tmp_path / "wide.mp4"], sequence_length=6).next_epoch(batch_size=2)))
    assert batch.shape == [(6, HEIGHT, WIDTH, 3), (6, HEIGHT, 2 * WIDTH, 3)]


def maker(videos: list[Path], kind: Callable[..., Any], **options: Any) -> Callable[[int, int, int], Any]:
    return lambda rank, world, batch_size: kind(
        batch_size, filenames=videos, labels=[0, 1, 2], sequence_length=3, enable_frame_num=True, shard_id=rank, num_shards=world, **options
    )


@pytest.mark.figures
@pytest.mark.parametrize("options", [{}, {"random_shuffle": True, "seed": 3}], ids=str)
def test_resumes_anywhere(videos: list[Path], options: dict[str, Any]) -> None:
    resumed = assert_resumable(maker(videos, new, **options), cuts=(0, 1, 3), worlds=((1, 1), (1, 2), (2, 3)), batch_sizes=(1, 3))
    print(f"{resumed.cuts} cuts, {resumed.samples} samples compared, states of at most {resumed.state_bytes} bytes")


def test_bad_files(videos: list[Path], tmp_path: Path) -> None:
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    with pytest.raises(RuntimeError, match=r'readers\.Video: ".*bad\.mp4" cannot be opened'):
        epoch(ndd.readers.Video(filenames=[tmp_path / "bad.mp4"], sequence_length=3))
    reader = new(filenames=[tmp_path / "bad.mp4", videos[1]], sequence_length=7, on_error="skip")
    assert epoch(reader) == ["b0 b1 b2 b3 b4 b5 b6"]
    assert reader.errors[0].source.endswith("bad.mp4")


@pytest.mark.parametrize(("context", "workers"), [("fork", 2), pytest.param("spawn", 1, marks=pytest.mark.slow)])
def test_pickles_and_workers(videos: list[Path], context: str, workers: int) -> None:
    reader = pickle.loads(pickle.dumps(new(filenames=videos, sequence_length=6)))
    assert len(epoch(reader)) == 8
    reader = new(2, filenames=videos, sequence_length=6, enable_frame_num=True, labels=[0, 1, 2])
    loader = DataLoader(reader, batch_size=None, num_workers=workers, multiprocessing_context=context)
    found = []
    for _, labels, starts in loader:
        found += zip(labels.torch().flatten().tolist(), starts.torch().flatten().tolist(), strict=True)
    assert sorted(found) == [(0, 0), (0, 6), (0, 12), (1, 0), (2, 0), (2, 6), (2, 12), (2, 18)]


def test_bad_arguments_are_rejected(videos: list[Path]) -> None:
    for kind in (ndd.readers.Video, new):
        for options, reason in (
            ({}, "one of file_list, file_root and filenames"),
            ({"filenames": videos, "file_root": "x"}, "one of file_list, file_root and filenames"),
            ({"filenames": videos, "labels": [1]}, "3 filenames and 1 labels"),
            ({"filenames": videos, "enable_frame_num": "all"}, "enable_frame_num must be one of .*, got 'all'"),
            ({"filenames": videos, "image_type": types.GRAY}, "Invalid image type"),
            ({"filenames": videos, "stride": -1}, "must be positive"),
            ({"filenames": videos, "stride": 0}, "must be positive, got 3 and 0"),
        ):
            with pytest.raises(RuntimeError, match=rf"readers\.Video: .*{reason}"):
                kind(sequence_length=3, **options)
    with pytest.raises(RuntimeError, match="channels must be 3"):
        ndd.readers.Video(filenames=videos, sequence_length=3, channels=1)
    with pytest.raises(RuntimeError, match="dtype must be uint8 or float32"):
        ndd.readers.Video(filenames=videos, sequence_length=3, normalized=True, dtype=ndd.uint8)
    for options in ({"file_list_format": "hours"}, {"file_list_rounding": "up"}, {"pad_mode": "wrap"}, {"fill_value": 300}):
        with pytest.raises(RuntimeError, match=r"experimental\.readers\.Video: "):
            new(filenames=videos, sequence_length=3, **options)
    with pytest.raises(RuntimeError, match=r"stride=2 needs 1999 frames, the longest video \".*\.mp4\" has \d+$"):
        epoch(new(filenames=videos, sequence_length=1000, stride=2))
    path = videos[0].with_name("wrong.txt")
    path.write_text("video.mp4 cat\n")
    with pytest.raises(RuntimeError, match="line 1: expected path, label"):
        epoch(new(file_list=path, sequence_length=3))


def test_transport_streams_and_avi_files(tmp_path: Path) -> None:
    """Times do not find their frames; sequences are read in any order."""
    for name, container, codec in (("a.ts", "mpegts", "h264"), ("a.avi", "avi", "mpeg4")):
        path = tmp_path / name
        path.write_bytes(encode(frames_of(25), container, codec=codec, extra_options={"bf": "2", "g": "10"}).tobytes())
        for kind in (ndd.readers.Video, new):
            expected = {" ".join(f"a{i + k}" for k in range(5)) for i in range(0, 25, 5)}
            assert set(epoch(kind(filenames=path, sequence_length=5, random_shuffle=True, seed=1))) == expected
        times = next(new(filenames=path, sequence_length=25, enable_timestamps=True).next_epoch())[1].torch()
        assert np.allclose(np.diff(times), 1 / RATE)
        (tmp_path / "list.txt").write_text(f"{path} 3 {times[2]:.3f} {times[8]:.3f}")
        assert epoch(new(file_list=tmp_path / "list.txt", sequence_length=6)) == ["a2 a3 a4 a5 a6 a7"]


def test_max_sample_bytes_bounds_a_sequence(videos: list[Path]) -> None:
    size = 6 * HEIGHT * WIDTH * 3
    for kind in (ndd.readers.Video, new):
        assert len(epoch(kind(filenames=videos, sequence_length=6, max_sample_bytes=size))) == 8
        with pytest.raises(RuntimeError, match=f"6 frames of {HEIGHT}x{WIDTH} have {size} bytes, more than max_sample_bytes={size - 1}"):
            epoch(kind(filenames=videos, sequence_length=6, max_sample_bytes=size - 1))
    with pytest.raises(RuntimeError, match=f"have {4 * size} bytes, more than max_sample_bytes={size}"):
        epoch(ndd.readers.Video(filenames=videos, sequence_length=6, dtype=ndd.float32, max_sample_bytes=size))


@pytest.mark.parametrize(
    ("box", "at", "values", "reason"),
    [
        ("stsz", 8, [10**9], "Invalid data found"),  # sizes of frames: more than the table has
        ("stsz", 4, [1, 10**9], "cannot be opened"),  # of equal size
        ("stts", 8, [10**9], None),  # durations
        ("stts", 8, [12, -1024], None),  # times run backwards
        ("stts", 8, [12, 0], "the times of its frames do not increase"),
        ("ctts", 8, [12, -(10**9)], "it has no frames that can be decoded"),
    ],
    ids=str,
)
def test_promised_frames_and_times_are_not_trusted(tmp_path: Path, box: str, at: int, values: list[int], reason: str | None) -> None:
    content = bytearray(encode(frames_of(12)))
    begin = content.index(box.encode()) + 4 + at
    for k, value in enumerate(values):
        content[begin + 4 * k : begin + 4 * k + 4] = (value & 0xFFFFFFFF).to_bytes(4, "big")
    path = tmp_path / "x.mp4"
    path.write_bytes(content)
    for kind in (ndd.readers.Video, new):
        if reason is None:
            assert epoch(kind(filenames=path, sequence_length=12)) == [" ".join(f"a{k}" for k in range(12))]
        else:
            with pytest.raises(RuntimeError, match=rf"readers\.Video: .*x\.mp4.*{reason}"):
                epoch(kind(filenames=path, sequence_length=12))


def test_overlapping_sequences_come_from_the_cache(videos: list[Path]) -> None:
    plain, cached = (
        ndd.readers.Video(4, filenames=videos, sequence_length=3, step=1, random_shuffle=True, seed=5, cache_bytes=size) for size in (None, 1 << 20)
    )
    for _ in range(2):
        for (expected,), (found,) in zip(plain, cached, strict=True):
            assert np.array_equal(np.asarray(expected.torch()), np.asarray(found.torch()))
    with pytest.raises(ValueError, match=r"readers\.Video: cache_bytes must not be negative, got -1"):
        ndd.readers.Video(filenames=videos, sequence_length=3, cache_bytes=-1)
