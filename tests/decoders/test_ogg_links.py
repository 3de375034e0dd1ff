# SPDX-License-Identifier: Apache-2.0
"""Chained Ogg files: several recordings one after the other, of which libsndfile reads the first."""

import io
import struct
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch

import torch_ndd as ndd

soundfile = pytest.importorskip("soundfile")

RATE = 48000


def encode(subtype: str, seconds: float, tone: float, rate: int = RATE, channels: int = 1) -> bytes:
    time = np.arange(int(seconds * rate)) / rate
    sound = 0.5 * np.sin(2 * np.pi * tone * time).astype(np.float32)
    soundfile.write(file := io.BytesIO(), np.stack([sound] * channels, 1), rate, format="OGG", subtype=subtype)
    return file.getvalue()


def decode(file: Any, **options: Any) -> torch.Tensor:
    return ndd.decoders.audio(file, **options)[0].torch()


@pytest.fixture(params=["VORBIS", "OPUS"])
def links(request: pytest.FixtureRequest) -> list[bytes]:
    return [encode(request.param, seconds, tone) for seconds, tone in ((1, 440), (0.4, 880), (2, 220), (0.1, 660))]


def test_all_recordings_of_a_chain_are_decoded(links: list[bytes], tmp_path: Path) -> None:
    expected = torch.cat([decode(link) for link in links])
    (tmp_path / "chain.ogg").write_bytes(b"".join(links))
    for file in (b"".join(links), tmp_path / "chain.ogg"):
        samples, rate = ndd.decoders.audio(file)
        assert (samples.shape, rate.item()) == ((3.5 * RATE, 1), RATE)
        assert torch.equal(samples.torch(), expected)
    assert torch.equal(decode(b"".join(links), dtype=ndd.int16), torch.cat([decode(link, dtype=ndd.int16) for link in links]))
    assert decode(b"".join(links), sample_rate=16000).shape == (3.5 * 16000, 1)


@pytest.mark.parametrize("start", [0, 0.5, 0.9, 1.2, 1.4, 3.35])
@pytest.mark.parametrize("duration", [0.1, 0.7, 5])
def test_parts_of_a_chain_are_those_of_the_whole(links: list[bytes], tmp_path: Path, start: float, duration: float) -> None:
    chain, whole = b"".join(links), decode(b"".join(links))
    expected = whole[round(start * RATE) : round((start + duration) * RATE)]
    (tmp_path / "chain.ogg").write_bytes(chain)
    fsspec.filesystem("memory").pipe("/ogg_links/chain.ogg", chain)
    for source in (chain, tmp_path / "chain.ogg", "memory://ogg_links/chain.ogg"):
        part = decode(source, start=start, duration=duration)
        assert part.shape == expected.shape
        assert (part - expected).abs().max() < 1e-3  # Opus converges to the same samples


@pytest.mark.parametrize(
    ("other", "change"),
    [((RATE, 2), "the number of channels changes from 1 to 2 at number 5"), ((22050, 1), "the rate in Hz changes from 48000 to 22050 at number 5")],
)
def test_recordings_of_another_format_are_refused(links: list[bytes], other: tuple[int, int], change: str) -> None:
    with pytest.raises(RuntimeError, match=f"the Ogg file is a chain of 5 recordings, in which {change}"):
        decode(b"".join(links) + encode("VORBIS", 0.2, 440, *other))


def test_recording_that_stopped_in_the_headers_of_the_next_title_is_decoded(links: list[bytes]) -> None:
    first_page = 27 + links[1][26] + sum(links[1][27 : 27 + links[1][26]])
    assert torch.equal(decode(links[0] + links[1][:first_page]), decode(links[0]))
    two = links[0] + links[2]
    assert torch.equal(decode(two + links[1][:first_page]), decode(two))


def make_page(flags: int, position: int, content: bytes) -> bytes:
    """Return a page of a stream of its own with a correct checksum."""
    page = bytearray(b"OggS" + struct.pack("<BBqIIIB", 0, flags, position, 77, 0, 0, 1) + bytes([len(content)]) + content)
    checksum = 0
    for byte in page:
        checksum ^= byte << 24
        for _ in range(8):
            checksum = (checksum << 1 ^ (0x04C11DB7 if checksum >> 31 else 0)) & 0xFFFFFFFF
    page[22:26] = struct.pack("<I", checksum)
    return bytes(page)


def test_recording_that_cannot_be_read_is_named(links: list[bytes]) -> None:
    unknown = make_page(2, 0, b"something else") + make_page(4, 100, b"more of it")
    with pytest.raises(RuntimeError, match="a chain of 2 recordings, of which number 2 cannot be read: it is not a sound"):
        decode(links[0] + unknown)


def test_number_of_recordings_is_limited(links: list[bytes]) -> None:
    pages = make_page(2, 0, b"a") + make_page(4, 100, b"b")
    with pytest.raises(RuntimeError, match="a chain of more than 4096 recordings; split it"):
        decode(links[0] + 5000 * pages)


def test_readers_know_the_length_of_a_chain(links: list[bytes], tmp_path: Path) -> None:
    (tmp_path / "a.ogg").write_bytes(b"".join(links))
    (tmp_path / "manifest.json").write_text('{"audio_filepath": "a.ogg", "duration": 3.5, "text": "a"}\n')
    ((sound, *_),) = ndd.readers.NemoAsr(manifest_filepaths=str(tmp_path / "manifest.json")).next_epoch(1)
    assert sound.shape[0][0] == 3.5 * RATE
