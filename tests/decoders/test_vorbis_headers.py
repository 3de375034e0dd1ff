# SPDX-License-Identifier: Apache-2.0
"""Damaged Ogg Vorbis files, each of which leaks 5.7 kB in libsndfile: they are rejected before, and only those that libsndfile rejects too."""

import io
import random
from pathlib import Path

import numpy as np
import pytest

import torch_ndd as ndd

soundfile = pytest.importorskip("soundfile")


def encode(channels: int = 2, comment: str = "") -> bytes:
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", 16000, channels, format="OGG", subtype="VORBIS") as sound:
        if comment:
            sound.comment = comment
        sound.write(0.3 * np.sin(np.arange(3000)[:, None] / np.arange(5, 5 + channels)))
    return file.getvalue()


def damage(good: bytes, draw: random.Random, kind: int) -> bytes:
    data = bytearray(good)
    at = draw.randrange(min(len(data), 4500))  # the headers are about 4000 bytes
    if kind == 0:
        data[at] ^= 1 << draw.randrange(8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        del data[at : at + draw.randrange(1, 300)]
    elif kind == 3:
        data[at:at] = draw.randbytes(draw.randrange(1, 300))
    elif kind == 4:  # behind the headers, or a part twice
        data[at:at] = data[at : at + 300]
    else:
        data[draw.randrange(len(data))] ^= 255
    return bytes(data)


def reason(file: bytes) -> str:
    try:
        ndd.decoders.audio(ndd.tensor(np.frombuffer(file, np.uint8)))[0].torch()
    except RuntimeError as error:
        return str(error.__cause__ or error)
    return ""


@pytest.mark.parametrize("comment", ["", "x" * 70_000])  # which takes several pages
def test_only_files_the_library_rejects(comment: str) -> None:
    good, draw, refused = encode(comment=comment), random.Random(1), 0
    assert reason(good) == ""
    for k in range(600):
        file = damage(good, draw, k % 6)
        if "headers of the Ogg Vorbis file" in reason(file):
            refused += 1
            with pytest.raises(soundfile.LibsndfileError):
                soundfile.SoundFile(io.BytesIO(file))
    assert refused > 100


def test_several_streams_are_left_to_the_library() -> None:
    # The first pages of two streams one after the other.
    good, other = encode(1), encode(2)
    page = 27 + good[26] + sum(good[27 : 27 + good[26]])
    assert "headers of the Ogg" not in reason(good[:page] + other[:page] + good[page:])


@pytest.mark.parametrize(
    "file",
    [b"OggS", encode()[:58], encode()[:57], b"OggS" + bytes(22) + b"\x01\xff" + b"\x01vorbis", (encode()[:58] + b"OggS\0\0" * 20_000)[:100_000]],
    ids=len,
)
def test_short_and_hostile_files(file: bytes) -> None:
    assert "decoders.audio: sample 0: " in reason(file)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_rejected_files_leak_no_memory() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    good, draw = encode(), random.Random(2)
    files = [damage(good, draw, k % 4) for k in range(40)]

    def refuse(rounds: int) -> None:
        for _ in range(rounds):
            for file in files:
                reason(file)

    refuse(10)
    before = resident()
    refuse(100)  # 4000 files, which would leak 23 MB
    assert resident() - before < 4 << 20
