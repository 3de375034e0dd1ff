# SPDX-License-Identifier: Apache-2.0
import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torch_ndd as ndd
from torch_ndd.testing import assert_resumable

soundfile = pytest.importorskip("soundfile")

RATE = 8000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ramp = np.arange(2 * RATE, dtype=np.int16)
    soundfile.write(tmp_path / "mono.wav", ramp, RATE)
    soundfile.write(tmp_path / "two.flac", np.stack([ramp, ramp + 100], 1), RATE)
    return tmp_path


def recording(source: str, kind: str = "file", channels: int = 1) -> dict[str, Any]:
    sources = [{"type": kind, "channels": list(range(channels)), "source": source}]
    return {"id": "r", "sources": sources, "sampling_rate": RATE, "num_samples": 2 * RATE, "duration": 2.0, "channel_ids": list(range(channels))}


def cut(name: str, start: float, duration: float, source: dict[str, Any], channel: int = 0, *supervisions: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": name,
        "start": start,
        "duration": duration,
        "channel": channel,
        "supervisions": list(supervisions),
        "recording": source,
        "type": "MonoCut",
    }


def write(folder: Path, *cuts: Any, name: str = "cuts.jsonl.gz") -> Path:
    text = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in cuts)
    (folder / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    return folder / name


def samples(path: Any, **options: Any) -> list[dict[str, Any]]:
    batches = ndd.readers.Lhotse(path, 4, dtype=ndd.int16, **options)
    return [{key: np.asarray(value.nth(k)) for key, value in batch.items()} for batch in batches for k in range(batch["id"].batch_size)]


@pytest.mark.parametrize("name", ["cuts.jsonl", "cuts.jsonl.gz"])
def test_cuts_of_files(folder: Path, name: str) -> None:
    supervision = {"id": "s", "start": 0.0, "duration": 0.25, "text": "höre", "speaker": "anna"}
    more = {"id": "t", "start": 0.25, "duration": 0.125, "text": None}
    mono, two = recording(str(folder / "mono.wav")), recording("two.flac", channels=2)
    path = write(folder, cut("a", 0.5, 0.5, mono, 0, supervision, more), cut("b", 1.0, 0.25, two, 1), cut("c", 1.75, 5.0, two), name=name)
    first, second, third = samples(path)
    assert first["audio"].tolist() == list(range(4000, 8000))
    assert second["audio"].tolist() == list(range(8100, 10_100))
    assert third["audio"].tolist() == list(range(14_000, 16_000))
    assert (bytes(first["text"]).decode(), bytes(first["speaker"]), bytes(first["id"])) == ("höre\n", b"anna\n", b"a")
    assert first["segments"].tolist() == [[0.0, 0.25], [0.25, 0.125]]
    assert (second["segments"].shape, bytes(second["text"]), second["rate"]) == ((0, 2), b"", RATE)
    np.testing.assert_array_equal(ndd.readers.Lhotse(path).list_costs("seconds"), [0.5, 0.25, 5.0])


def test_frames_are_rounded_to_the_nearest(folder: Path) -> None:
    mono = recording("mono.wav")
    starts = [0.00006, 0.00007, 0.29, 1.1, 0.0001875]
    path = write(folder, *(cut(str(k), start, 0.00101, mono) for k, start in enumerate(starts)))
    for each, start in zip(samples(path), starts, strict=True):
        begin = int(np.floor(start * RATE + 0.5))
        assert each["audio"].tolist() == list(range(begin, begin + 8))


def test_resampled_cuts(folder: Path) -> None:
    path = write(folder, cut("a", 0.5, 0.5, recording("mono.wav")), cut("b", 0.0, 2.0, recording("two.flac", channels=2), 1))
    first, second = samples(path, sample_rate=4000.0)
    assert (len(first["audio"]), len(second["audio"])) == (2000, 8000)
    np.testing.assert_allclose(second["audio"][500:-500], np.arange(8000)[500:-500] * 2 + 100, atol=20)


def write_shar(folder: Path, ids: list[str], name: str = "000000", stored: list[str] | None = None) -> None:
    entries = []
    with tarfile.open(folder / f"recording.{name}.tar", "w") as archive:
        for k, member in enumerate(stored or [f"{each}.flac" for each in ids]):
            file = io.BytesIO()
            soundfile.write(file, np.arange(1000 * k, 1000 * k + 800, dtype=np.int16), RATE, format="FLAC")
            described = member.rpartition(".")[0] + (".nometa" if member.endswith("nodata") else ".json")
            for path, content in ((member, b"" if member.endswith("nodata") else file.getvalue()), (described, b"{}")):
                info = tarfile.TarInfo(path)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    entries = [cut(each, 0.0, 0.1, recording("", "shar")) for each in ids]
    write(folder, *entries, name=f"cuts.{name}.jsonl.gz")


def test_shar_folders(tmp_path: Path) -> None:
    for k in range(2):
        write_shar(tmp_path, [f"talk.{k}/a-0", f"b.{k}"], f"00000{k}")
    for path in (tmp_path, f"{tmp_path}/cuts.{{000000..000001}}.jsonl.gz", sorted(tmp_path.glob("cuts.*"))):
        found = samples(path)
        assert [bytes(each["id"]).decode() for each in found] == ["talk.0/a-0", "b.0", "talk.1/a-0", "b.1"]
        assert [(each["audio"][0], len(each["audio"])) for each in found] == [(0, 800), (1000, 800)] * 2


def test_shar_whose_archive_does_not_fit(tmp_path: Path) -> None:
    write_shar(tmp_path, ["a", "b", "c", "d"], stored=["a.flac", "x.flac", "c.nodata"])
    assert [bytes(each["id"]) for each in samples(tmp_path, on_error="skip")] == [b"a"]
    reader = ndd.readers.Lhotse(tmp_path, 4, on_error="skip")
    next(iter(reader))
    reasons = {error.sample: error.reason for error in reader.errors}
    assert "'x' is in its place" in reasons[1]
    assert "there is none" in reasons[2]
    assert reasons[3].startswith("its recording is not in")
    with pytest.raises(RuntimeError, match=r"^readers\.Lhotse: sample 1 \(cut 'b'\): its recording is not in .*'x' is in its place"):
        samples(tmp_path)
    (tmp_path / "recording.000000.tar").unlink()
    with pytest.raises(RuntimeError, match=r'readers\.Lhotse: ".*recording\.000000\.tar": No such file'):
        samples(tmp_path)


MONO = recording("mono.wav")
REFUSED = [
    ({"id": "m", "type": "MixedCut", "tracks": []}, "cut 'm' in line 2 .*: MixedCut is not supported"),
    ({"id": "m", "type": "PaddingCut"}, "PaddingCut is not supported"),
    ({**cut("m", 0, 1, MONO), "type": "MultiCut"}, "MultiCut is not supported"),
    (
        {"id": "f", "start": 0, "duration": 1, "channel": 0, "features": {}, "type": "MonoCut"},
        "cut 'f' .*: a MonoCut without a recording, of features",
    ),
    (cut("e", 0, 1, recording("rm -rf /", "command")), "cut 'e' .*: a recording of type 'command' is not supported"),
    (cut("e", 0, 1, recording("AAAA", "memory")), "a recording of type 'memory' is not supported"),
    (cut("e", 0, 1, {**MONO, "transforms": [{"name": "Speed"}]}), "a recording with transforms"),
    (cut("e", 0, 1, MONO, 3), "its recording has no channel 3"),
    ("nonsense", r"line 2 of .* is not a cut in JSON"),
    ("[1]", r"line 2 of .* is not a cut in JSON"),
    ("[" * 100_000, r"line 2 of .* is not a cut in JSON"),
    *((cut("d", start, duration, MONO), "it is damaged") for start, duration in ((1e13, 1), (0, "1"), (None, 1), (True, 1))),
    (cut("d", -1, 1, MONO), "cut 'd' .*: it is damaged: start must be at least 0, but is -1"),
    (cut("d", 0, -1, MONO), "duration must be at least 0, but is -1"),
    (cut("d", 0, 1, {**MONO, "sampling_rate": 0}), "sampling_rate must be at least 1, but is 0"),
    (cut("d", 0, 1, {**MONO, "sources": 5}), "it is damaged"),
    (cut("d", 0, 1, MONO, 0, {"text": "x"}), "it is damaged"),
]


@pytest.mark.parametrize(("bad", "text"), REFUSED)
def test_cuts_that_are_refused(folder: Path, bad: Any, text: str) -> None:
    path = write(folder, cut("a", 0, 1, MONO), bad)
    with pytest.raises(RuntimeError, match=rf"readers\.Lhotse: .*{text}"):
        ndd.readers.Lhotse(path).scan()


@pytest.mark.parametrize(
    "content",
    [b"", b"\x1f\x8b\x08", gzip.compress(b'{"id": 1}' * 50, mtime=0)[:-20], b"\x1f\x8b" + bytes(50)],
    ids=["empty", "gzip header", "cut gzip", "gzip of zeros"],
)
def test_manifests_that_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cuts.jsonl.gz").write_bytes(content)
    with pytest.raises(RuntimeError, match=r"readers\.Lhotse: .*(no cuts found|damaged)"):
        ndd.readers.Lhotse(tmp_path / "cuts.jsonl.gz").scan()


@pytest.mark.parametrize("rate", [None, 4000.0])
def test_a_cut_behind_its_recording_is_a_bad_sample(folder: Path, rate: float | None) -> None:
    mono = recording("mono.wav")
    path = write(folder, cut("a", 0, 1, mono), cut("late", 2.5, 1, mono), cut("none", 2.0, 0, mono))
    found = samples(path, on_error="skip", sample_rate=rate)
    assert [(bytes(each["id"]), len(each["audio"])) for each in found] == [(b"a", int(rate or RATE)), (b"none", 0)]
    with pytest.raises(RuntimeError, match=r"sample 1 \(.*mono\.wav\): cut 'late' begins at 2\.5 s, where this recording has ended"):
        samples(path, sample_rate=rate)


def test_recordings_that_differ_from_their_manifest(folder: Path) -> None:
    other_rate, other_channels = {**MONO, "sampling_rate": 16_000}, recording("mono.wav", channels=2)
    path = write(folder, cut("a", 0, 1, other_rate), cut("b", 0, 1, other_channels, 1), cut("c", 0, 1, recording("none.wav")), cut("d", 0, 1, MONO))
    reader = ndd.readers.Lhotse(path, 4, on_error="skip")
    assert [batch["audio"].shape for batch in reader] == [[(RATE,)]]
    reasons = [error.reason for error in reader.errors]
    assert "its sampling rate is 8000 Hz, but 16000 in the manifest" in reasons[0]
    assert "it has 1 channels" in reasons[1]


def test_cuts_resume_on_any_number_of_ranks(folder: Path) -> None:
    path = write(folder, *(cut(str(k), 0.1 * k, 0.01, MONO) for k in range(11)))
    assert_resumable(lambda rank, world, size: ndd.readers.Lhotse(path, size, shard_id=rank, num_shards=world, random_shuffle=True))


def test_a_real_manifest_equals_lhotse(folder: Path) -> None:
    lhotse = pytest.importorskip("lhotse")
    noise = np.random.default_rng(0).integers(-20_000, 20_000, (3 * RATE, 2)).astype(np.int16)
    soundfile.write(folder / "noise.flac", noise, RATE)
    whole = lhotse.Recording.from_file(folder / "noise.flac")
    spoken = lhotse.SupervisionSegment("s", whole.id, 0.5, 1.0, 0, "some words", speaker="me")
    cuts = [
        lhotse.MonoCut(f"c{k}", start, duration, k % 2, recording=whole, supervisions=[spoken])
        for k, (start, duration) in enumerate([(0.0, 3.0), (0.1234, 0.5), (1.03, 0.7), (2.5, 0.5)])
    ]
    lhotse.CutSet.from_cuts(cuts).to_file(folder / "cuts.jsonl.gz")
    (folder / "shar").mkdir()
    lhotse.CutSet.from_cuts(cuts).to_shar(folder / "shar", {"recording": "flac"}, shard_size=2)
    for path in (folder / "cuts.jsonl.gz", folder / "shar"):
        found = samples(path)
        assert len(found) == 4
        for each, expected in zip(found, cuts, strict=True):
            np.testing.assert_array_equal(each["audio"] / 32768, expected.load_audio()[0])
            assert (bytes(each["text"]), bytes(each["id"]).decode()) == (b"some words", expected.id)
