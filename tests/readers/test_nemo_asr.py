# SPDX-License-Identifier: Apache-2.0
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import torch_ndd as ndd
from torch_ndd.testing import assert_resumable

RATE = 8000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ramp = np.arange(RATE, dtype=np.int16)
    soundfile.write(tmp_path / "ramp.wav", ramp, RATE)
    soundfile.write(tmp_path / "two.wav", np.stack([ramp, ramp + 100], 1), RATE)
    return tmp_path


def manifest(folder: Path, *entries: Any) -> Path:
    path = folder / "manifest.json"
    path.write_text("\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in entries))
    return path


def sounds(path: Path, **options: Any) -> list[np.ndarray]:
    return [np.asarray(sound) for sound, *_ in ndd.readers.NemoAsr(manifest_filepaths=path, **options).next_epoch()]


def test_parts_of_a_file(folder: Path) -> None:
    # DALI reads `offset`, but delivers the beginning of the file.
    part = {"audio_filepath": "ramp.wav", "offset": 0.25, "duration": 0.5}
    late = {"audio_filepath": "ramp.wav", "offset": 0.75, "duration": 0.5}
    beyond = {"audio_filepath": "ramp.wav", "offset": 5}
    first, second, third = sounds(manifest(folder, part, late, beyond), dtype=ndd.int16)
    assert first.tolist() == list(range(2000, 6000))
    assert second.tolist() == list(range(6000, 8000))
    assert third.tolist() == []


@pytest.mark.parametrize("rate", [None, 4000.0])
@pytest.mark.parametrize("path", [str, Path.as_uri], ids=["path", "url"])
def test_parts_are_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch, rate: float | None, path: Callable[[Path], str]) -> None:
    soundfile.write(folder / "long.wav", np.arange(60000, dtype=np.int16), RATE)
    kinds = [
        ("ramp.wav", {}),
        ("ramp.wav", {"duration": 0.9999}),
        ("ramp.wav", {"duration": 0.1}),
        ("long.wav", {"duration": 0.01}),
        ("ramp.wav", {"offset": 0.5}),
    ]
    entries = [{"audio_filepath": path(folder / name), **part} for name, part in kinds]
    expected = [sounds(manifest(folder, entry), dtype=ndd.int16, sample_rate=rate) for entry in entries]  # one in a batch
    if not rate:
        assert [len(item) for (item,) in expected] == [8000, 7999, 800, 80, 4000]
    alone, sought = [], []
    read, sound = ndd.readers.NemoAsr._read, ndd.readers.NemoAsr._sound
    reader = ndd.readers.NemoAsr(5, manifest_filepaths=manifest(folder, *entries), dtype=ndd.int16, sample_rate=rate)
    # The readers above may still be reading ahead.
    monkeypatch.setattr(ndd.readers.NemoAsr, "_read", lambda self, sample: (self is reader and alone.append(sample), read(self, sample))[1])
    monkeypatch.setattr(ndd.readers.NemoAsr, "_sound", lambda self, *part: (self is reader and sought.append(part[1:]), sound(self, *part))[1])
    everything, cut = np.arange(reader.scan()), [1] if rate else []
    # Whether seeking to a part pays off follows from the file's size, or from its header once it was read.
    for known in ([4] if path is Path.as_uri else [3, 4], [*cut, 2, 3, 4]):
        alone.clear(), sought.clear()
        batch, *_ = reader.finish(reader.start(everything), everything)
        for got, (value,) in zip(batch, expected, strict=True):
            assert np.array_equal(np.asarray(got), value)
        assert sorted(alone) == known
        assert len(sought) == (len([*cut, 2, 3, 4]) if rate else len(known))


def test_types_and_channels(folder: Path) -> None:
    path = manifest(folder, {"audio_filepath": "two.wav"})
    ramp = np.arange(RATE)
    assert np.array_equal(sounds(path, dtype=ndd.int16)[0], ramp + 50)
    assert np.array_equal(sounds(path, dtype=ndd.int16, downmix=False)[0], np.stack([ramp, ramp + 100], 1))
    assert np.allclose(sounds(path)[0], (ramp + 50) / 32768, atol=1e-7)
    assert sounds(path, sample_rate=4000.0)[0].shape == (4000,)


def test_entries_over_several_lines(folder: Path) -> None:
    path = manifest(folder, '{\n "audio_filepath": "ramp.wav",\n "text": "a"\n}\n{"audio_filepath": "ramp.wav",\n "text": "b"}')
    texts = [bytes(np.asarray(text)) for _, _, text in ndd.readers.NemoAsr(manifest_filepaths=path).next_epoch()]
    assert texts == [b"a", b"b"]


NO_ENTRIES = ["garbage", '{"audio_filepath": ', "[1]", "{}", '{"audio_filepath": 5}', '{"audio_filepath": "ramp.wav", "text": 5}']
NO_NUMBERS = [f'"{name}": {value}' for name in ("duration", "offset") for value in ('"x"', "1e999", "true", "[]", "9" * 400)]


@pytest.mark.parametrize(
    "entry", [*NO_ENTRIES, *(f'{{"audio_filepath": "ramp.wav", "{n}": {v}}}' for n in ("duration", "offset") for v in NO_NUMBERS)]
)
def test_parts_that_are_not_entries(folder: Path, entry: str) -> None:
    good = {"audio_filepath": "ramp.wav"}
    with pytest.warns(UserWarning, match=r"readers\.NemoAsr: 1 parts of .*manifest\.json were skipped, the first on line 2:"):
        assert len(sounds(manifest(folder, good, entry, good))) == 2


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "text"])
def test_damaged_sounds(folder: Path, damage: str) -> None:
    content = (folder / "ramp.wav").read_bytes()
    if damage != "missing":
        (folder / "bad.wav").write_bytes({"empty": b"", "cut": content[:30], "text": b"no sound"}[damage])
    path = manifest(folder, {"audio_filepath": "ramp.wav"}, {"audio_filepath": str(folder / "bad.wav")})
    with pytest.raises(RuntimeError, match=r"readers\.NemoAsr: sample 0 \(.*bad\.wav\): "):
        sounds(path)
    reader = ndd.readers.NemoAsr(2, manifest_filepaths=path, on_error="skip")
    assert [sound.shape for sound, *_ in reader] == [[(RATE,)]]
    assert len(reader.errors) == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [({"dtype": ndd.float64}, "Unsupported output type: float64"), ({"quality": 101.0}, "quality"), ({"num_shards": 5}, "number of input samples")],
)
def test_bad_arguments_are_rejected(folder: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        sounds(manifest(folder, {"audio_filepath": "ramp.wav"}), **options)


def test_other_manifests(folder: Path) -> None:
    (folder / "binary.json").write_bytes(b"\xff\xfe\x00")
    for name, text in (("binary.json", "is not valid UTF-8 text"), ("none.json", "cannot be read"), (".", "cannot be read")):
        with pytest.raises(RuntimeError, match=text):
            sounds(folder / name)


@pytest.mark.parametrize("options", [{}, {"random_shuffle": True, "seed": 3}], ids=str)
def test_resumes_anywhere(folder: Path, options: dict[str, Any]) -> None:
    path = manifest(folder, *({"audio_filepath": "ramp.wav", "offset": 0.01 * i, "duration": 0.001 * (i % 3), "text": str(i)} for i in range(11)))
    make = lambda rank, world, size: ndd.readers.NemoAsr(size, manifest_filepaths=path, shard_id=rank, num_shards=world, **options)  # noqa: E731
    assert assert_resumable(make).cuts > 50


def test_parts_of_an_mp3_cut_from_a_stream(folder: Path) -> None:
    file = io.BytesIO()
    noise = np.random.default_rng(0).normal(size=160_000).astype(np.float32) * 0.1
    soundfile.write(file, np.concatenate([np.zeros(80_000, np.float32), noise]), 16000, "MPEG_LAYER_III", format="MP3", bitrate_mode="VARIABLE")
    content = file.getvalue()
    (folder / "cut.mp3").write_bytes(content[len(content) // 100 :])
    whole = np.asarray(ndd.decoders.audio(folder / "cut.mp3", downmix=True)[0])
    entries = [{"audio_filepath": "cut.mp3", "text": "", "offset": offset, "duration": 1.5} for offset in (0.5, 10.0)]
    for found, offset in zip(sounds(manifest(folder, *entries)), (8000, 160_000), strict=True):
        np.testing.assert_array_equal(found, whole[offset : offset + 24_000])


def test_max_sample_bytes_bounds_entries(folder: Path) -> None:
    soundfile.write(folder / "y.wav", np.zeros(1000), 8000)
    for entry in ({"audio_filepath": "y.wav", "text": ""}, {"audio_filepath": "y.wav", "text": "", "offset": 0.025}):
        frames = 1000 if "offset" not in entry else 800
        assert sounds(manifest(folder, entry), max_sample_bytes=4 * frames)[0].shape == (frames,)
        with pytest.raises(RuntimeError, match=f"{4 * frames} bytes, more than max_sample_bytes={4 * frames - 1}"):
            sounds(manifest(folder, entry), max_sample_bytes=4 * frames - 1)


# --- archives ---


def write_tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def ramp(begin: int, frames: int = 800) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.arange(begin, begin + frames, dtype=np.int16), RATE, format="FLAC")
    return file.getvalue()


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    """Two archives of three sounds each; sound k begins with k thousand."""
    for shard in range(2):
        write_tar(tmp_path / f"audio_{shard}.tar", {f"some/folder/s{k}.x.flac": ramp(1000 * k) for k in range(3 * shard, 3 * shard + 3)})
    return tmp_path


def make_entry(k: int, **more: Any) -> dict[str, Any]:
    return {"audio_filepath": f"/elsewhere/s{k}.x.wav", "duration": 0.1, "text": str(k), **more}


def read_tarred(folder: Path, *entries: Any, tar_paths: Any = "audio_{0..1}.tar", batch_size: int = 8, **options: Any) -> list[tuple[int, int, str]]:
    """Return the first value, the length and the text of each sample."""
    patterns = tar_paths if isinstance(tar_paths, list) else [tar_paths]
    path = manifest(folder, *entries)
    reader = ndd.readers.NemoAsr(batch_size, manifest_filepaths=path, tar_paths=[f"{folder}/{each}" for each in patterns], dtype=ndd.int16, **options)
    return [
        (int(np.asarray(sound)[0]), sound.shape[0], bytes(np.asarray(text)).decode())
        for batch in reader
        for sound, text in zip(batch[0], batch[2], strict=True)
    ]


@pytest.mark.parametrize("pattern", ["audio_{0..1}.tar", "audio__OP_0..1_CL_.tar", "audio_(0..1).tar", "audio_[0..1].tar", "audio_<0..1>.tar"])
def test_archives_by_every_form_of_a_range(tars: Path, pattern: str) -> None:
    assert read_tarred(tars, *map(make_entry, (5, 0, 3)), tar_paths=pattern) == [(5000, 800, "5"), (0, 800, "0"), (3000, 800, "3")]


def test_entries_of_one_file_share_its_bytes(tars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [make_entry(4, offset=0.01 * k, duration=0.01, shard_id=1) for k in range(5)] + [make_entry(0, shard_id=0)]
    read = ndd.readers.NemoAsr._contents
    sizes: list[int] = []
    monkeypatch.setattr(ndd.readers.NemoAsr, "_contents", lambda self, samples: (sizes.append(len(samples)), read(self, samples))[1])
    assert read_tarred(tars, *entries) == [*((4000 + 80 * k, 80, "4") for k in range(5)), (0, 800, "0")]
    assert set(sizes) == {2}


@pytest.mark.slow
def test_a_million_entries_of_one_file(tars: Path) -> None:
    line = '{"audio_filepath": "s1.x.flac", "offset": 0.05, "duration": 0.01, "shard_id": %d}\n'
    path = tars / "many.json"
    path.write_text((line % 0) * 500_000 + (line % 1) * 500_000)
    reader = ndd.readers.NemoAsr(4, manifest_filepaths=path, tar_paths=f"{tars}/audio_{{0..1}}.tar", dtype=ndd.int16, on_error="skip")
    assert reader.scan() == 1_000_000
    sound, *_ = next(iter(reader))
    assert sound.torch()[:, 0].tolist() == [1400] * 4


def test_names_in_archives_that_do_not_fit(tars: Path) -> None:
    entries = [make_entry(0), make_entry(99), make_entry(4), make_entry(3, shard_id=0), make_entry(3, shard_id=1)]
    with pytest.raises(RuntimeError, match=r"readers\.NemoAsr: sample 1 \([^:]*s99\.x\.\w+\): tar_paths has no file 's99\.x'"):
        read_tarred(tars, *entries)
    assert read_tarred(tars, *entries, on_error="skip", batch_size=3) == [(0, 800, "0"), (4000, 800, "4"), (3000, 800, "3")]
    write_tar(tars / "audio_1.tar", {"a/s4.x.flac": ramp(0), "b/s4.x.flac": ramp(1), "s0.x.flac": ramp(2)})
    for entry in (make_entry(4), make_entry(0)):
        with pytest.raises(RuntimeError, match=r"tar_paths has several files 's[04]\.x'"):
            read_tarred(tars, entry)


def test_sounds_after_a_damaged_header_are_bad_samples(tars: Path) -> None:
    path = tars / "audio_1.tar"
    content = bytearray(path.read_bytes())
    with tarfile.open(path) as archive:
        second = archive.getmembers()[1].offset
    content[second + 148] ^= 1
    path.write_bytes(content)
    with pytest.raises(RuntimeError, match=r"audio_1\.tar\" is damaged: the checksum of a tar header is wrong"):
        read_tarred(tars, make_entry(0))
    entries = [make_entry(k, **more) for k in range(6) for more in ({}, {"shard_id": k // 3})]
    reader = ndd.readers.NemoAsr(manifest_filepaths=manifest(tars, *entries), tar_paths=f"{tars}/audio_{{0..1}}.tar", on_error="skip")
    assert read_tarred(tars, *entries, on_error="skip") == [(1000 * k, 800, str(k)) for k in range(4) for _ in range(2)]
    list(reader.next_epoch(batch_size=8))
    assert {error.reason.partition("; ")[2] for error in reader.errors} == {
        f"{path} is damaged at byte {second}: the checksum of a tar header is wrong"
    }


def test_manifests_of_other_shards_are_rejected(tars: Path) -> None:
    for entries in ([make_entry(0, shard_id=0)], [make_entry(0, shard_id=k) for k in range(3)]):
        with pytest.raises(ValueError, match=r"the manifest is for . shards, from 0 to ., but tar_paths are 2 shards, from 0 to 1"):
            read_tarred(tars, *entries)
    paths = [tars / f"m{k}.json" for k in range(3)]
    for path in paths:
        path.write_text(json.dumps(make_entry(0)))
    with pytest.raises(ValueError, match=r"readers\.NemoAsr: tar_paths is an empty list"):
        ndd.readers.NemoAsr(manifest_filepaths=paths[0], tar_paths=[]).scan()
    with pytest.raises(ValueError, match="there are 3 manifests for 2 tar_paths"):
        ndd.readers.NemoAsr(manifest_filepaths=paths, tar_paths=f"{tars}/audio_{{0..1}}.tar").scan()


def test_a_manifest_for_each_archive(tars: Path) -> None:
    for k in range(2):
        (tars / f"m_{k}.json").write_text("\n".join(json.dumps(make_entry(3 * k + i)) for i in (2, 0)))
    reader = ndd.readers.NemoAsr(4, manifest_filepaths=f"{tars}/m__OP_0..1_CL_.json", tar_paths=f"{tars}/audio__OP_0..1_CL_.tar", dtype=ndd.int16)
    assert [sound.torch()[:, 0].tolist() for sound, *_ in reader] == [[2000, 0, 5000, 3000]]


def test_archives_resume_on_any_number_of_ranks(tars: Path) -> None:
    path = manifest(tars, *map(make_entry, (0, 3, 1, 5, 2)))

    def make(shard_id: int, num_shards: int, batch_size: int) -> ndd.readers.NemoAsr:
        options = {"shard_id": shard_id, "num_shards": num_shards, "random_shuffle": True, "seed": 3}
        return ndd.readers.NemoAsr(batch_size, manifest_filepaths=path, tar_paths=f"{tars}/audio_{{0..1}}.tar", read_idxs=True, **options)

    assert_resumable(make)


def test_archives_that_cannot_be_read(tars: Path) -> None:
    content = (tars / "audio_1.tar").read_bytes()
    for bad in (b"x" * 2000, content[:1100]):
        (tars / "audio_1.tar").write_bytes(bad)
        with pytest.raises(RuntimeError, match=r'readers\.NemoAsr: tar_paths ".*audio_1\.tar"'):
            read_tarred(tars, make_entry(0))
    (tars / "audio_1.tar").write_bytes(content)
    with pytest.raises(RuntimeError, match=r'readers\.NemoAsr: tar_paths ".*audio_2\.tar"'):
        read_tarred(tars, make_entry(0), tar_paths="audio_{0..2}.tar")


def test_hostile_offsets(tars: Path) -> None:
    entries = [
        make_entry(1, offset=-5.0),
        make_entry(1, offset=9e11, duration=9e11),
        make_entry(1, offset=0.05, duration=9e11),
        make_entry(1, duration=-1),
    ]
    path = manifest(tars, *entries)
    reader = ndd.readers.NemoAsr(4, manifest_filepaths=path, tar_paths=f"{tars}/audio_{{0..1}}.tar", dtype=ndd.int16)
    ((sound, *_),) = list(reader)
    assert [each.shape for each in sound] == [(800,), (0,), (400,), (800,)]


# --- costs ---


def test_costs_in_seconds(folder: Path) -> None:
    entries = [{"audio_filepath": "ramp.wav", "duration": 0.5}, {"audio_filepath": "ramp.wav", "offset": 0.25}, {"audio_filepath": "none.wav"}]
    reader = ndd.readers.NemoAsr(manifest_filepaths=manifest(folder, *entries))
    np.testing.assert_array_equal(reader.list_costs("seconds"), [0.5, np.nan, np.nan])
    with pytest.raises(ValueError, match="'pixels'"):
        reader.list_costs("pixels")


def test_costs_of_files_in_archives(tars: Path) -> None:
    path = manifest(tars, make_entry(1), make_entry(77, duration=0.3))
    reader = ndd.readers.NemoAsr(manifest_filepaths=path, tar_paths=f"{tars}/audio_{{0..1}}.tar")
    np.testing.assert_array_equal(reader.list_costs("seconds"), [0.1, 0.3])
