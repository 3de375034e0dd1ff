# SPDX-License-Identifier: Apache-2.0
"""Parts of sounds that lie in archives or at URLs: equal to those of files, and only their bytes are read."""

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _read_bytes import count_read_bytes
from readers._web import Handler

import torch_ndd as ndd

soundfile = pytest.importorskip("soundfile")

RATE, SECONDS = 16000, 120
KINDS = {"wav": ("WAV", "PCM_16"), "flac": ("FLAC", "PCM_16"), "aiff": ("AIFF", "PCM_16"), "ogg": ("OGG", "VORBIS"), "opus": ("OGG", "OPUS")}
PARTS = ((0.0, 1.0), (30.5, 1.0), (61.0, 2.5), (118.5, 1.0), (119.9, 5.0))


@pytest.fixture(scope="module")
def long_sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two minutes of noise in each format, which no codec makes small, and an archive of them."""
    folder, samples = tmp_path_factory.mktemp("long"), np.random.default_rng(0).uniform(-0.5, 0.5, RATE * SECONDS)
    for name, (container, subtype) in KINDS.items():
        # libsndfile's encoder of Vorbis overflows its stack with long arrays.
        with soundfile.SoundFile(folder / f"a.{name}", "w", RATE, 1, format=container, subtype=subtype) as file:
            for begin in range(0, len(samples), RATE):
                file.write(samples[begin : begin + RATE])
    with tarfile.open(folder / "all_0.tar", "w") as archive:
        for name in KINDS:
            archive.add(folder / f"a.{name}", f"{name}.{name}")
    return folder


def write_manifest(path: Path, entries: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps({"text": "", **entry}) for entry in entries))
    return path


def sounds(manifest: Path, **options: Any) -> list[np.ndarray]:
    reader = ndd.readers.NemoAsr(4, manifest_filepaths=manifest, read_text=False, read_sample_rate=False, **options)
    return [np.asarray(sound) for (batch,) in reader for sound in batch]


def sent_bytes(folder: Path) -> int:
    """Return how many bytes the server was asked for."""
    total = 0
    for request in Handler.gets():
        path, _, wanted = request.partition(" ")
        first, last = re.fullmatch(r"bytes=(\d+)-(\d+)", wanted).groups() if wanted else (0, (folder / path.lstrip("/")).stat().st_size - 1)  # type: ignore[union-attr]
        total += int(last) - int(first) + 1
    return total


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("rate", [None, 8000.0])
def test_parts_in_archives_read_only_their_bytes(tmp_path: Path, long_sounds: Path, name: str, rate: float | None) -> None:
    parts = [{"offset": start, "duration": duration} for start, duration in PARTS]
    of_files = write_manifest(tmp_path / "files.json", [{"audio_filepath": str(long_sounds / f"a.{name}"), **part} for part in parts])
    of_members = write_manifest(tmp_path / "members.json", [{"audio_filepath": f"{name}.{name}", **part} for part in parts])
    expected = sounds(of_files, sample_rate=rate)
    before = count_read_bytes()
    found = sounds(of_members, sample_rate=rate, tar_paths=long_sounds / "all_0.tar")
    # Headers, what a search looks at, and the parts themselves, which may be read ahead once more; WAV has 3.8 MB.
    assert count_read_bytes() - before < len(PARTS) * 1_500_000
    for sound, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(sound, other)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("rate", [None, 8000.0])
def test_parts_at_urls_fetch_only_their_bytes(tmp_path: Path, long_sounds: Path, server: str, name: str, rate: float | None) -> None:
    Handler.root = long_sounds
    for start, duration in PARTS[1:]:
        part = {"offset": start, "duration": duration}
        expected = sounds(write_manifest(tmp_path / "files.json", [{"audio_filepath": str(long_sounds / f"a.{name}"), **part}]), sample_rate=rate)
        manifest = write_manifest(tmp_path / "urls.json", [{"audio_filepath": f"{server}/a.{name}", **part}])
        Handler.requests.clear()
        found = sounds(manifest, sample_rate=rate)
        np.testing.assert_array_equal(found[0], expected[0])
        # WAV has 3.8 MB; the part may be read ahead once more.
        assert sent_bytes(long_sounds) < 1_200_000
        assert len(Handler.gets()) <= 24


@pytest.mark.parametrize("name", KINDS)
def test_the_decoder_fetches_parts_of_urls(long_sounds: Path, server: str, name: str) -> None:
    Handler.root = long_sounds
    path, options = long_sounds / f"a.{name}", {"start": [30.5, 61.0], "duration": [1.0, 2.5], "downmix": True}
    expected, rates = ndd.decoders.audio([path, path], **options)
    Handler.requests.clear()
    found, others = ndd.decoders.audio([f"{server}/a.{name}"] * 2, **options)
    assert sent_bytes(long_sounds) < 2 * min(path.stat().st_size, 1_000_000)
    assert rates.torch().tolist() == others.torch().tolist()
    for sound, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(sound), np.asarray(other))
    whole = ndd.decoders.audio(f"{server}/a.{name}", dtype=ndd.int16)[0]
    np.testing.assert_array_equal(np.asarray(whole), np.asarray(ndd.decoders.audio(path, dtype=ndd.int16)[0]))


def test_parts_in_archives_at_urls(tmp_path: Path, long_sounds: Path, server: str) -> None:
    Handler.root = long_sounds
    entries = [{"audio_filepath": f"{name}.{name}", "offset": 61.0, "duration": 1.0} for name in KINDS]
    manifest = write_manifest(tmp_path / "members.json", entries)
    expected = sounds(manifest, tar_paths=long_sounds / "all_0.tar")
    found = sounds(manifest, tar_paths=f"{server}/all_0.tar")
    for sound, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(sound, other)
    # One request without a range, for the names in the archive.
    assert [request for request in Handler.gets() if request.endswith(".tar")] == ["/all_0.tar"]


@pytest.mark.parametrize("name", ["wav", "ogg"])
def test_a_server_without_ranges_sends_the_file_once(long_sounds: Path, server: str, name: str) -> None:
    Handler.root, Handler.knows_ranges = long_sounds, False
    found, expected = (ndd.decoders.audio(source, start=61.0, duration=1.0)[0] for source in (f"{server}/a.{name}", long_sounds / f"a.{name}"))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    assert len(Handler.gets()) == 1


def test_damaged_sounds_at_urls_end_with_the_error_of_a_file(tmp_path: Path, server: str) -> None:
    """Whatever a file says, the requests are few, and the outcome is that of the whole contents."""
    Handler.root = tmp_path
    rng = np.random.default_rng(0)
    for name, (container, subtype) in {**KINDS, "mp3": ("MP3", "MPEG_LAYER_III")}.items():
        soundfile.write(file := io.BytesIO(), rng.uniform(-0.5, 0.5, RATE * 20), RATE, format=container, subtype=subtype)
        good = np.frombuffer(file.getvalue(), np.uint8)
        for k in range(12):
            bad, start = good.copy(), float(rng.uniform(0.1, 19))
            at = rng.integers(0, 200 if k % 2 else len(bad), 5)
            bad[at] = rng.integers(0, 256, 5)
            content = bad[: rng.integers(0, len(bad))].tobytes() if k % 3 == 0 else bad.tobytes()
            path = tmp_path / f"{k}.{name}"
            path.write_bytes(content)
            Handler.requests.clear()
            outcomes = []
            for source in (f"{server}/{path.name}", content):
                try:
                    outcomes.append(np.asarray(ndd.decoders.audio(source, start=start, duration=0.2)[0]).tolist())
                except RuntimeError as error:
                    outcomes.append(str(error).replace(f" ({server}/{path.name})", ""))
            assert outcomes[0] == outcomes[1]
            assert len(Handler.gets()) <= 40


def test_urls_that_cannot_be_read(tmp_path: Path, server: str) -> None:
    Handler.root = tmp_path
    (tmp_path / "empty.wav").write_bytes(b"")
    with pytest.raises(RuntimeError, match=r"decoders\.audio: sample 1 \(.*none\.wav\): cannot be read: no such file"):
        ndd.decoders.audio([f"{server}/empty.wav", f"{server}/none.wav"], start=0.5)
    with pytest.raises(RuntimeError, match=r"decoders\.audio: sample 0 \(.*empty\.wav\): the file is empty"):
        ndd.decoders.audio(f"{server}/empty.wav", start=0.5)


def test_members_beyond_the_end_of_an_archive_are_named(tmp_path: Path, long_sounds: Path) -> None:
    tar = tmp_path / "all_0.tar"
    tar.write_bytes((long_sounds / "all_0.tar").read_bytes())
    manifest = write_manifest(tmp_path / "members.json", [{"audio_filepath": "opus.opus", "offset": 61.0, "duration": 1.0}] * 2)
    reader = ndd.readers.NemoAsr(1, manifest_filepaths=manifest, tar_paths=tar)
    reader.scan()
    tar.write_bytes(tar.read_bytes()[: tar.stat().st_size // 2])
    with pytest.raises(RuntimeError, match=r"readers\.NemoAsr: sample 0 \(.*all_0\.tar.*\): cannot be read: the file has \d+ bytes, this part ends"):
        next(reader.next_epoch())
