# SPDX-License-Identifier: Apache-2.0
"""Parts of long recordings, by the readers of speech."""

import io
import json
import re
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _read_bytes import count_read_bytes

import torch_ndd as ndd
from torch_ndd.testing import assert_resumable

soundfile = pytest.importorskip("soundfile")

RATE, SECONDS = 16000, 120


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Recordings of noise by their paths, with their samples as int16."""
    folder, samples = tmp_path_factory.mktemp("long"), np.random.default_rng(0).integers(-20_000, 20_000, RATE * SECONDS).astype(np.int16)
    for name in ("a.wav", "b.flac"):
        soundfile.write(folder / name, samples, RATE)
    return {str(folder / name): samples for name in ("a.wav", "b.flac")}


def nemo(folder: Path, parts: list[tuple[str, float, float]], **options: Any) -> Any:
    entries = [{"audio_filepath": path, "offset": start, "duration": duration, "text": ""} for path, start, duration in parts]
    (folder / "manifest.json").write_text("\n".join(map(json.dumps, entries)))
    return (batch for batch, *_ in ndd.readers.NemoAsr(4, manifest_filepaths=folder / "manifest.json", **options).next_epoch())


def lhotse(folder: Path, parts: list[tuple[str, float, float]], **options: Any) -> Any:
    lines = []
    for k, (path, start, duration) in enumerate(parts):
        source = {"type": "file", "channels": [0], "source": path}
        recording = {"id": "r", "sources": [source], "sampling_rate": RATE, "num_samples": RATE * SECONDS, "duration": SECONDS, "channel_ids": [0]}
        lines.append({"id": str(k), "start": start, "duration": duration, "channel": 0, "recording": recording, "type": "MonoCut"})
    (folder / "cuts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return (batch["audio"] for batch in ndd.readers.Lhotse(folder / "cuts.jsonl", 4, **options).next_epoch())


@pytest.mark.parametrize("read", [nemo, lhotse])
def test_parts_of_long_recordings_read_only_their_bytes(tmp_path: Path, recordings: dict[str, np.ndarray], read: Callable[..., Any]) -> None:
    parts = [(path, start, 1.0) for path in recordings for start in (0.0, 30.5, 61.0, 118.5)]
    before = count_read_bytes()
    found = [np.asarray(sound) for batch in read(tmp_path, parts, dtype=ndd.int16) for sound in batch]
    # The files have 3.8 MB each, whole.
    assert (count_read_bytes() - before) / len(parts) < 600_000
    for sound, (path, start, duration) in zip(found, parts, strict=True):
        np.testing.assert_array_equal(sound, recordings[path][int(start * RATE) : int((start + duration) * RATE)])


@pytest.mark.parametrize("read", [nemo, lhotse])
def test_resampled_parts_equal_the_part_alone(tmp_path: Path, recordings: dict[str, np.ndarray], read: Callable[..., Any]) -> None:
    parts = [(path, 30.5, 0.5) for path in recordings]
    file = tmp_path / "part.wav"
    soundfile.write(file, next(iter(recordings.values()))[int(30.5 * RATE) :][: RATE // 2], RATE)
    expected = np.asarray(ndd.decoders.audio(file, sample_rate=8000.0, downmix=True)[0])
    for batch in read(tmp_path, parts, sample_rate=8000.0):
        for sound in batch:
            np.testing.assert_allclose(np.asarray(sound), expected, atol=1e-6)


@pytest.mark.parametrize("read", [nemo, lhotse])
def test_recordings_that_end_early_are_named(tmp_path: Path, recordings: dict[str, np.ndarray], read: Callable[..., Any]) -> None:
    path = tmp_path / "cut.flac"
    content = next(Path(path) for path in recordings if path.endswith("flac")).read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(RuntimeError, match=r"^readers\.\w+: sample 1 \(.*cut\.flac\): (?!decoders).*damaged"):
        list(read(tmp_path, [(str(path), 1.0, 1.0), (str(path), 100.0, 1.0)]))


@pytest.mark.parametrize("offset", ["NaN", "-Infinity", "Infinity", "1e300", "-1e300", "1e11", "-0.5", "0.5"])
@pytest.mark.parametrize("duration", ["NaN", "Infinity", "1e300", "1e11", "-1", "0"])
def test_hostile_parts_in_a_manifest_of_nemo(tmp_path: Path, recordings: dict[str, np.ndarray], offset: str, duration: str) -> None:
    good = json.dumps({"audio_filepath": next(iter(recordings)), "offset": 1.0, "duration": 0.01, "text": ""})
    bad = f'{{"audio_filepath": {json.dumps(next(iter(recordings)))}, "offset": {offset}, "duration": {duration}, "text": ""}}'
    (tmp_path / "manifest.json").write_text(f"{good}\n{bad}\n{good}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # entries that are skipped
        reader = ndd.readers.NemoAsr(4, manifest_filepaths=tmp_path / "manifest.json", dtype=ndd.int16)
        lengths = [len(np.asarray(sound)) for batch, *_ in reader for sound in batch]
    first, *others, last = lengths
    assert first == last == RATE // 100
    assert len(others) <= 1
    assert sum(others) <= RATE * SECONDS


@pytest.mark.parametrize("field", ["start", "duration", "sampling_rate"])
@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e300", "-1", "0", "1e11", "true", "null"])
def test_hostile_numbers_in_cuts(tmp_path: Path, recordings: dict[str, np.ndarray], field: str, value: str) -> None:
    source = {"type": "file", "channels": [0], "source": next(iter(recordings))}
    recording = {"id": "r", "sources": [source], "sampling_rate": RATE, "num_samples": RATE * SECONDS, "duration": SECONDS, "channel_ids": [0]}
    cut = {"id": "bad", "start": 0.5, "duration": 0.25, "channel": 0, "recording": recording, "type": "MonoCut"}
    (recording if field == "sampling_rate" else cut)[field] = "?"
    (tmp_path / "cuts.jsonl").write_text(json.dumps(cut).replace('"?"', value))
    reason = None
    try:
        found = [np.asarray(sound) for batch in ndd.readers.Lhotse(tmp_path / "cuts.jsonl", 4, dtype=ndd.int16) for sound in batch["audio"]]
    except RuntimeError as error:
        reason, found = str(error), []
    assert sum(map(len, found)) <= RATE * SECONDS
    where = r"^readers\.Lhotse: (cut 'bad' in line 1 of .*cuts\.jsonl: |sample 0 \(.*a\.wav\): (its sampling rate|cut 'bad' begins at))"
    assert reason is None or re.search(where, reason)


WORLDS = ((8, 3), (3, 5), (8, 5))


@pytest.mark.slow
def test_parts_resume_from_eight_to_three_to_five_ranks(tmp_path: Path, recordings: dict[str, np.ndarray]) -> None:
    paths = list(recordings)
    parts = [(paths[k % 2], 0.1 * k, 0.002) for k in range(41)]
    list(nemo(tmp_path, parts)), list(lhotse(tmp_path, parts))  # write the manifests
    for make in (
        lambda rank, world, size: ndd.readers.NemoAsr(
            size, manifest_filepaths=tmp_path / "manifest.json", shard_id=rank, num_shards=world, random_shuffle=True, seed=5
        ),
        lambda rank, world, size: ndd.readers.Lhotse(tmp_path / "cuts.jsonl", size, shard_id=rank, num_shards=world, random_shuffle=True, seed=5),
    ):
        assert_resumable(make, worlds=WORLDS, batch_sizes=(1, 2))


@pytest.mark.slow
def test_archives_resume_from_eight_to_three_to_five_ranks(tmp_path: Path) -> None:
    entries = []
    for shard in range(2):
        with tarfile.open(tmp_path / f"audio_{shard}.tar", "w") as archive:
            for k in range(6):
                soundfile.write(file := io.BytesIO(), np.full(400, 100 * k + shard, np.int16), RATE, format="WAV")
                info = tarfile.TarInfo(f"s{shard}_{k}.wav")
                info.size = len(file.getvalue())
                archive.addfile(info, io.BytesIO(file.getvalue()))
                for offset in (0.0, 0.01):
                    entries.append({"audio_filepath": info.name, "shard_id": shard, "offset": offset, "duration": 0.005, "text": ""})
    (tmp_path / "manifest.json").write_text("\n".join(map(json.dumps, entries)))

    def make(rank: int, world: int, size: int) -> Any:
        options = {"shard_id": rank, "num_shards": world, "random_shuffle": True, "seed": 5, "read_idxs": True}
        return ndd.readers.NemoAsr(size, manifest_filepaths=tmp_path / "manifest.json", tar_paths=f"{tmp_path}/audio_{{0..1}}.tar", **options)

    assert_resumable(make, worlds=WORLDS, batch_sizes=(1, 2))
