# SPDX-License-Identifier: Apache-2.0
"""readers.NemoAsr against DALI's."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from _dali_readers import ORDERS, assert_reader_raises, assert_same_epochs

RATE = 16000


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    time = np.arange(RATE // 2) / RATE
    mono, other = 0.5 * np.sin(2 * np.pi * 440 * time), 0.25 * np.cos(2 * np.pi * 200 * time)
    for name, subtype in (("mono", "PCM_16"), ("float", "FLOAT"), ("deep", "PCM_24"), ("bytes", "PCM_U8")):
        soundfile.write(tmp_path / f"{name}.wav", mono, RATE, subtype)
    soundfile.write(tmp_path / "stereo.wav", np.stack([mono, other], 1), RATE)
    soundfile.write(tmp_path / "mono.flac", mono, RATE)
    soundfile.write(tmp_path / "mono.ogg", mono, RATE)
    return tmp_path


def manifest(folder: Path, *entries: Any, name: str = "manifest.json") -> str:
    lines = [entry if isinstance(entry, str) else json.dumps({**entry, "audio_filepath": str(folder / entry["audio_filepath"])}) for entry in entries]
    (folder / name).write_text("\n".join(lines))
    return str(folder / name)


def entry(name: str, duration: float | None = 0.5, text: str = "hi there") -> dict[str, Any]:
    return {"audio_filepath": name, "text": text} | ({} if duration is None else {"duration": duration})


@pytest.mark.parametrize(
    ("entries", "options", "tolerance"),
    [
        ([entry("mono.wav"), entry("stereo.wav"), entry("deep.wav"), entry("bytes.wav"), entry("mono.flac")], {}, 1e-6),
        ([entry("float.wav"), entry("mono.ogg")], {}, 1e-6),
        ([entry("stereo.wav"), entry("mono.wav")], {"downmix": False}, 0),
        ([entry("mono.wav"), entry("mono.flac")], {"dtype": "int16"}, 0),
        ([entry("mono.wav")], {"dtype": "int32"}, 0),
        ([entry("stereo.wav")], {"dtype": "int16"}, 1),
        ([entry("mono.wav")], {"read_sample_rate": False, "read_text": False}, 0),
        ([entry("mono.wav"), entry("mono.wav", 0.1), entry("mono.wav")], {"min_duration": 0.2, "read_idxs": True}, 0),
        ([entry("mono.wav"), entry("mono.wav", 0.1), entry("mono.wav", 3)], {"max_duration": 0.5, "read_idxs": True}, 0),
        ([entry("mono.wav", None)], {"max_duration": 0.2}, 0),
        ([entry("mono.wav", d) for d in (0.1, 0.10003, 0.10007, 0.49999, 0.6, 0.00001, 0, -1)], {}, 0),
        # DALI interpolates the sinc from a table.
        ([entry("mono.wav"), entry("mono.wav", 0.1)], {"sample_rate": 8000.0}, 2e-5),
        ([entry("mono.wav")], {"sample_rate": 11025.0, "quality": 0.0}, 5e-4),
        ([entry("stereo.wav")], {"sample_rate": 22050.0, "downmix": False}, 5e-5),
        ([entry("mono.wav")], {"sample_rate": 8000.0, "dtype": "int16"}, 1),
        ([entry("mono.wav")], {"sample_rate": 16000.0}, 0),
        ([entry("mono.wav")], {"sample_rate": 0.0}, 0),
        ([entry("mono.wav", text='höé中 "a\\b"\n')], {}, 0),
        ([entry("mono.wav", text="")], {}, 0),
        ([{**entry("mono.wav"), "more": {"a": [1, {"b": 2}]}}], {}, 0),
        (["", entry("mono.wav"), "", ""], {}, 0),
        ([entry("mono.wav", text=" Hi, There! ")], {"normalize_text": True}, 0),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_entries_of_manifests(sounds: Path, entries: list[Any], options: dict[str, Any], tolerance: float) -> None:
    assert_same_epochs("NemoAsr", None, {"manifest_filepaths": manifest(sounds, *entries), **options}, tolerance, count=1)


@pytest.mark.parametrize(("batch_size", "options"), ORDERS, ids=str)
def test_order_shards_and_padding(sounds: Path, batch_size: int | None, options: dict[str, Any]) -> None:
    parts = [[entry("mono.wav", 0.001 * i, str(i)) for i in numbers] for numbers in (range(1, 5), range(5, 12))]
    paths = [manifest(sounds, *part, name=f"{k}.json") for k, part in enumerate(parts)]
    assert_same_epochs("NemoAsr", batch_size, {"manifest_filepaths": paths, "read_idxs": True, **options})


@pytest.mark.parametrize(
    ("entries", "options"),
    [
        ([], {}),
        ([entry("none.wav")], {}),
        ([entry("mono.wav", 0.1)], {"min_duration": 0.2}),
        ([entry("mono.wav", None)], {"min_duration": 0.2}),
        ([entry("mono.wav")], {"sample_rate": 8000.0, "quality": -1.0}),
        ([entry("mono.wav")], {"sample_rate": 8000.0, "quality": 101.0}),
        ([entry("mono.wav")], {"num_shards": 3}),
    ],
)
def test_bad_manifests_are_rejected(sounds: Path, entries: list[Any], options: dict[str, Any]) -> None:
    assert_reader_raises("NemoAsr", {"manifest_filepaths": manifest(sounds, *entries), **options}, RuntimeError)


def test_manifests_that_are_missing() -> None:
    assert_reader_raises("NemoAsr", {"manifest_filepaths": "/nowhere.json"}, RuntimeError)
    assert_reader_raises("NemoAsr", {}, TypeError)
