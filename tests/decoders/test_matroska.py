# SPDX-License-Identifier: Apache-2.0
"""Matroska files that FFmpeg's own writer does not make: several frames in a block (lacing), and a header without the length."""

import io
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import torch_ndd as ndd

pytest.importorskip("torchcodec.decoders")

FRAMES = 20
_FLAGS = {"none": 0, "Xiph": 2, "fixed size": 4}
_NANOSECONDS = 1_000_000


def element(number: int, content: bytes | int | str) -> bytes:
    """Return an EBML element: its number, its length in 8 bytes, its content."""
    if isinstance(content, int):
        content = content.to_bytes(8, "big")
    elif isinstance(content, str):
        content = content.encode()
    return number.to_bytes((number.bit_length() + 7) // 8, "big") + struct.pack(">Q", len(content) | 1 << 56) + content


def lace(frames: Sequence[bytes], lacing: str) -> bytes:
    """Return the content of a block."""
    if lacing == "none":
        return frames[0]
    if lacing == "fixed size":
        longest = max(map(len, frames))
        return bytes([len(frames) - 1]) + b"".join(frame.ljust(longest, b"\0") for frame in frames)
    lengths = b"".join(b"\xff" * (len(frame) // 255) + bytes([len(frame) % 255]) for frame in frames[:-1])
    return bytes([len(frames) - 1]) + lengths + b"".join(frames)


def matroska(lacing: str, frames_per_block: int, has_rate: bool) -> bytes:
    """Return a file of gray frames, frame k of the level 10 k, ten per second."""
    frames = []
    for k in range(FRAMES):
        Image.new("RGB", (48, 32), (10 * k,) * 3).save(file := io.BytesIO(), "JPEG", quality=95)
        frames.append(file.getvalue())
    head = element(0x1A45DFA3, element(0x4282, "matroska") + element(0x4287, 4) + element(0x4285, 2))
    info = element(0x1549A966, element(0x2AD7B1, _NANOSECONDS))
    track = element(0xD7, 1) + element(0x73C5, 1) + element(0x83, 1) + element(0x9C, 1) + element(0x86, "V_MJPEG")
    track += element(0xE0, element(0xB0, 48) + element(0xBA, 32))
    if has_rate:
        track += element(0x23E383, 100 * _NANOSECONDS)
    blocks = element(0xE7, 0)
    for k in range(0, FRAMES, frames_per_block):
        header = b"\x81" + struct.pack(">h", 100 * k) + bytes([0x80 | _FLAGS[lacing]])
        blocks += element(0xA3, header + lace(frames[k : k + frames_per_block], lacing))
    return head + element(0x18538067, info + element(0x1654AE6B, element(0xAE, track)) + element(0x1F43B675, blocks))


def numbers(file: bytes, **options: object) -> list[int]:
    """Return which frames these are."""
    frames = np.asarray(ndd.decoders.video(file, **options))
    return np.round(frames.mean((1, 2, 3)) / 10).astype(int).tolist()


@pytest.mark.parametrize(("lacing", "frames_per_block"), [("none", 1), ("Xiph", 4), ("fixed size", 4), ("Xiph", FRAMES)])
@pytest.mark.parametrize("has_rate", [False, True])
@pytest.mark.parametrize("build_index", [False, True])
def test_frames_of_blocks_are_found_by_number(lacing: str, frames_per_block: int, has_rate: bool, build_index: bool) -> None:
    file = matroska(lacing, frames_per_block, has_rate)
    assert numbers(file, build_index=build_index) == list(range(FRAMES))
    assert numbers(file, frames=[19, 3, 10, 0, 5], build_index=build_index) == [19, 3, 10, 0, 5]
    assert numbers(file, start_frame=6, stride=5, sequence_length=3, build_index=build_index) == [6, 11, 16]


def test_reader_finds_frames_without_times(tmp_path: Path) -> None:
    (tmp_path / "a.mkv").write_bytes(matroska("Xiph", 4, False))
    reader = ndd.readers.Video(filenames=[str(tmp_path / "a.mkv")], sequence_length=4, step=5)
    sequences = [np.asarray(step[0] if isinstance(step, tuple) else step) for step in reader.next_epoch()]
    found = [np.round(frames.mean((1, 2, 3)) / 10).astype(int).tolist() for frames in sequences]
    assert found == [[k, k + 1, k + 2, k + 3] for k in (0, 5, 10, 15)]
