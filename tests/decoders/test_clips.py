# SPDX-License-Identifier: Apache-2.0
"""The clips of a batch, decoded together."""

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _videos import HEIGHT as HALF_HEIGHT
from _videos import WIDTH as HALF_WIDTH
from _videos import encode, frames_of

import torch_ndd as ndd
from torch_ndd._core.process.workers import Workers
from torch_ndd.decoders import _clips
from torch_ndd.decoders._clips import Clip, ClipDecoder, Frames, VideoFacts, join_frames
from torch_ndd.decoders._video import Video

COUNT, HEIGHT, WIDTH = 25, 2 * HALF_HEIGHT, 2 * HALF_WIDTH  # AV1 begins at 64 pixels
FRAME_BYTES = HEIGHT * WIDTH * 3
FILL = torch.full((1,), 7, dtype=torch.uint8)


@pytest.fixture
def pool() -> Iterator[Workers]:
    with Workers(3, "test") as workers:
        yield workers


def write(folder: Path, name: str, codec: str, **options: str) -> str:
    path = folder / name
    frames = frames_of(COUNT).repeat(2, 1).repeat(2, 2)
    path.write_bytes(encode(frames, {".ts": "mpegts"}.get(path.suffix, path.suffix[1:]), codec=codec, extra_options=options).tobytes())
    return str(path)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write(tmp_path, "a.mp4", "h264", g="5")


def take(path: str, numbers: Sequence[int]) -> Clip:
    return Clip(path, lambda facts: np.array(numbers, np.int64))


def decode(decoder: ClipDecoder, clips: Sequence[Clip], pool: Workers) -> list[Any]:
    return decoder.finish(decoder.start(clips, pool), pool)


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("every_second.mp4", "h264", {"g": "2"}),
        ("b_frames.mp4", "h264", {"g": "12", "bf": "3"}),
        ("one_group.mkv", "h264", {"g": "250", "bf": "2"}),
        ("av1.mp4", "libsvtav1", {"g": "2"}),
        ("open_groups.mp4", "h264", {"g": "6", "bf": "2", "x264-params": "open-gop=1"}),
        ("vp9.webm", "libvpx-vp9", {"g": "7"}),
    ],
)
def test_every_frame_equals_that_of_torchcodec(tmp_path: Path, pool: Workers, name: str, codec: str, options: dict[str, str]) -> None:
    path = write(tmp_path, name, codec, **options)
    reference = pytest.importorskip("torchcodec.decoders").VideoDecoder(path, dimension_order="NHWC")
    wanted = [reference.get_frame_at(k) for k in range(COUNT)]
    decoder, rng = ClipDecoder(1 << 30), np.random.default_rng(0)
    for _ in range(12):
        chosen = [rng.integers(0, COUNT, rng.integers(1, 5)).tolist() for _ in range(6)]
        chosen += [list(range(first, first + 3)) for first in rng.integers(0, COUNT - 3, 4).tolist()]
        for numbers, frames in zip(chosen, decode(decoder, [take(path, numbers) for numbers in chosen], pool), strict=True):
            assert frames.numbers.tolist() == numbers
            assert frames.seconds.tolist() == [wanted[k].pts_seconds for k in numbers]
            assert all(torch.equal(pixels, wanted[k].data) for k, pixels in zip(numbers, frames.pixels, strict=True))


def _rotate(content: bytearray) -> None:
    at = content.index(b"tkhd") + 44
    content[at : at + 36] = struct.pack(">9i", 0, 1 << 16, 0, -(1 << 16), 0, 0, HEIGHT << 16, 0, 1 << 30)


def _drop_durations(content: bytearray) -> None:
    for box, offset in ((b"mvhd", 20), (b"mdhd", 20), (b"tkhd", 24)):
        at = content.index(box) + offset
        content[at : at + 4] = bytes(4)


def _begin_later(content: bytearray) -> None:
    """Let the edit list leave out the first frames."""
    at, scale = content.index(b"elst") + 16, content.index(b"mdhd") + 16
    (begin,), (rate,) = struct.unpack(">i", content[at - 4 : at]), struct.unpack(">I", content[scale : scale + 4])
    content[at - 4 : at] = struct.pack(">i", begin + rate // 5)


@pytest.mark.parametrize("change", [_rotate, _drop_durations, _begin_later])
def test_unusual_headers_give_the_frames_of_torchcodec(change: Callable[[bytearray], None], path: str, tmp_path: Path) -> None:
    content = bytearray(Path(path).read_bytes())
    change(content)
    changed = tmp_path / "changed.mp4"
    changed.write_bytes(content)
    assert content != Path(path).read_bytes()
    reference = pytest.importorskip("torchcodec.decoders").VideoDecoder(changed, dimension_order="NHWC")
    count = len(reference)
    expected = reference.get_frames_in_range(0, count).data
    assert torch.equal(ndd.decoders.video([str(changed)]).tensors[0].torch(), expected)
    for numbers in ([count - 1], [count // 2, 1, count - 1, 0], list(range(0, count, 3))):
        assert torch.equal(ndd.decoders.video([str(changed)], frames=numbers).tensors[0].torch(), expected[numbers])


def count_decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    decoded: list[int] = []
    original = Video.decode

    def decode(self: Video, wanted: np.ndarray) -> Any:
        decoded.extend(wanted.tolist())
        return original(self, wanted)

    monkeypatch.setattr(Video, "decode", decode)
    return decoded


def test_shared_frames_are_decoded_once_in_increasing_order(monkeypatch: pytest.MonkeyPatch, path: str, pool: Workers) -> None:
    decoded, decoder = count_decoded(monkeypatch), ClipDecoder(1 << 30)
    clips = [take(path, numbers) for numbers in ([9, 8], [3, 3], [8, 20], [3, -1])]
    first = decode(decoder, clips, pool)
    assert decoded == [3, 8, 9, 20]
    assert first[0].pixels[1] is first[2].pixels[0]
    batch = join_frames([first[1], first[3]], FILL, "FHWC").torch()
    assert batch.shape == (2, 2, HEIGHT, WIDTH, 3)
    assert torch.equal(batch[1, 0], batch[0, 1])
    assert (batch[1, 1] == 7).all()
    decoded.clear()
    decode(decoder, clips, pool)  # the video is known now: its groups are divided among the threads
    assert sorted(decoded) == [3, 8, 9, 20]


@pytest.mark.parametrize("cache_bytes", [0, 3 * FRAME_BYTES, 1 << 30])
@pytest.mark.parametrize("choices", [([0, 1, 2], [2, 1, -1], [24, 24, 7]), ([0, 1], [1, -1, 9, 10], [3])], ids=["dense", "ragged"])
def test_frames_of_known_videos_are_joined_without_a_copy(path: str, pool: Workers, choices: tuple[list[int], ...], cache_bytes: int) -> None:
    decoder = ClipDecoder(1 << 30, cache_bytes)
    clips = [take(path, numbers) for numbers in choices]
    copied = decode(decoder, clips, pool)
    expected = join_frames(copied, FILL, "FHWC")
    decode(decoder, [take(path, [1, 4])], pool)  # so that the small cache has some of the frames
    for _ in range(2):
        together = decode(decoder, clips, pool)
        assert [frames.seconds.tolist() for frames in together] == [frames.seconds.tolist() for frames in copied]
        batch = join_frames(together, FILL, "FHWC")
        assert batch.buffer.data_ptr() == together[0].pixels.data_ptr()
        assert batch.shape == expected.shape
        assert torch.equal(batch.buffer.view(-1), expected.buffer.view(-1))
        assert torch.equal(join_frames(together[1:], FILL, "FHWC").buffer.view(-1), expected.buffer.view(-1)[together[0].pixels.numel() :])
        apart = join_frames([together[0], together[2]], FILL, "FHWC")
        assert torch.equal(apart.buffer.view(-1), join_frames([copied[0], copied[2]], FILL, "FHWC").buffer.view(-1))


def test_the_cache_keeps_the_latest_frames_within_its_bound(monkeypatch: pytest.MonkeyPatch, path: str, pool: Workers) -> None:
    decoded, decoder = count_decoded(monkeypatch), ClipDecoder(1 << 30, 3 * FRAME_BYTES + 5)
    first = decode(decoder, [take(path, [0, 1])], pool)[0]
    for numbers, missing in (([1, 2], [2]), ([0, 2], []), ([5, 6], [5, 6]), ([2, 5, 6], []), ([0], [0])):
        decoded.clear()
        frames = decode(decoder, [take(path, numbers)], pool)[0]
        assert (decoded, frames.numbers.tolist()) == (missing, numbers)
        assert len(decoder._cache) * FRAME_BYTES == decoder._cached_bytes <= 3 * FRAME_BYTES + 5
    assert torch.equal(frames.pixels[0], first.pixels[0])
    with pytest.raises(ValueError, match="x: cache_bytes must not be negative, got -1"):
        _clips.check_cache_bytes("x", -1)


def test_open_videos_are_bounded(monkeypatch: pytest.MonkeyPatch, path: str, pool: Workers, tmp_path: Path) -> None:
    monkeypatch.setattr(_clips, "MAX_OPEN", 2)
    monkeypatch.setattr(_clips, "MAX_KEYS", 20)
    paths = []
    for k in range(9):
        paths.append(str(tmp_path / f"{k}.mp4"))
        Path(paths[-1]).write_bytes(Path(path).read_bytes())
    decoder = ClipDecoder(1 << 30)
    for _ in range(2):
        assert all(isinstance(frames, Frames) for frames in decode(decoder, [take(name, [4]) for name in paths], pool))
        assert 0 < len(decoder._idle) <= 6
        assert decoder._keys == sum(len(facts.keys) for facts in decoder._facts.values()) <= 20


def test_errors_are_those_of_the_clips(path: str, pool: Workers, tmp_path: Path) -> None:
    def refuse(facts: VideoFacts) -> np.ndarray:
        raise RuntimeError(f"not among {facts.count} frames at {facts.rate:g}")

    missing = str(tmp_path / "missing.mp4")
    decoder = ClipDecoder(1 << 30)
    for _ in range(2):
        good, bad, none = decode(decoder, [take(path, [1]), Clip(path, refuse), take(missing, [0])], pool)
        assert isinstance(good, Frames)
        assert str(bad) == "not among 25 frames at 10"
        assert "No such file" in str(none)


def test_damaged_frames_are_errors_and_the_others_good(tmp_path: Path, pool: Workers) -> None:
    path = Path(write(tmp_path, "damaged.mp4", "mpeg4", g="5"))
    content = bytearray(path.read_bytes())
    begin = content.index(b"mdat")
    end = begin - 4 + int.from_bytes(content[begin - 4 : begin], "big")
    content[end - 200 : end] = bytes(200)  # the last frames
    path.write_bytes(content)
    decoder = ClipDecoder(1 << 30)
    for _ in range(2):
        *good, bad = decode(decoder, [take(str(path), [k]) for k in (0, 3, 24)], pool)
        assert [isinstance(result, Frames) for result in good] == [True, True]
        assert "Invalid data found when processing input" in str(bad)
    # Decoded together, the frames before the damaged one are as good as alone.
    alone = [isinstance(decode(decoder, [take(str(path), [k])], pool)[0], Frames) for k in range(COUNT)]
    assert 0 < sum(alone) < COUNT
    assert [isinstance(result, Frames) for result in decode(decoder, [take(str(path), [k]) for k in range(COUNT)], pool)] == alone


def test_frames_behind_the_actual_end_are_errors_and_the_others_good(tmp_path: Path, pool: Workers) -> None:
    path = Path(write(tmp_path, "cut.ts", "h264", g="5"))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 188 // 2 * 188])
    decoder = ClipDecoder(1 << 30)
    for _ in range(2):
        *good, bad = decode(decoder, [take(str(path), [k]) for k in (0, 3, 24)], pool)
        assert [isinstance(result, Frames) for result in good] == [True, True]
        assert re.search(r"the video is damaged: it ends after \d+ of \d+ frames", str(bad))
