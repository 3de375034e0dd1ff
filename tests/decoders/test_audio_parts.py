# SPDX-License-Identifier: Apache-2.0
"""Parts of sounds: equal to slices of the whole, and of files only their bytes are read."""

import io
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from _read_bytes import count_read_bytes
from _sounds import FORMATS, LOSSY, RATE, decode, encode, encode_mp3, slice_seconds, sound

import torch_ndd as ndd

soundfile = pytest.importorskip("soundfile")

PARTS = ((0.0, 0.25), (0.25, 0.5), (1.2345, 0.1), (0.3, None), (2.9, 5.0), (0.0, 0.0), (1.0, 0.00005))
"""Seconds: start and duration, in a sound of three."""

STORED = ("PCM_16", "PCM_24", "PCM_32", "FLOAT")
"""Types whose samples are converted here rather than by libsndfile."""


@pytest.mark.parametrize("name", [*FORMATS, "wav, ADPCM", "wav, GSM", "au", "caf"])
@pytest.mark.parametrize("dtype", [ndd.float32, ndd.int16], ids=str)
def test_parts_equal_slices_of_the_whole(name: str, dtype: torch.dtype) -> None:
    others = {"wav, ADPCM": ("WAV", "IMA_ADPCM"), "wav, GSM": ("WAV", "GSM610"), "au": ("AU", "PCM_16"), "caf": ("CAF", "PCM_24")}
    container, subtype = FORMATS.get(name) or others[name]
    file = encode(sound(3 * RATE, channels=1 if subtype == "GSM610" else 2), container, subtype)
    whole = decode(file, dtype=dtype)
    for start, duration in PARTS:
        part = decode(file, dtype=dtype, start=start, **({} if duration is None else {"duration": duration}))
        expected = slice_seconds(whole, RATE, start, duration)
        assert part.shape == expected.shape
        tolerance = 0 if name not in LOSSY else 1e-5 if dtype == ndd.float32 else 1
        assert not part.size or np.abs(part.astype(np.float64) - expected).max() <= tolerance


@pytest.mark.parametrize(
    ("container", "subtype", "endian"),
    [("WAV", subtype, endian) for subtype in STORED for endian in ("LITTLE", "BIG")]
    + [("AIFF", subtype, "FILE") for subtype in STORED]
    + [("AIFF", subtype, "LITTLE") for subtype in STORED if subtype != "FLOAT"]
    + [(container, subtype, "FILE") for container in ("WAVEX", "RF64") for subtype in STORED],
)
@pytest.mark.parametrize("as_path", [False, True], ids=["contents", "path"])
def test_stored_samples_equal_soundfile(container: str, subtype: str, endian: str, as_path: bool, tmp_path: Path) -> None:
    file = io.BytesIO()
    # More samples than are converted together, and a number of channels that does not divide these.
    soundfile.write(file, sound(9000, channels=3), RATE, subtype, endian, container)
    content = file.getvalue()
    if container != "RF64":  # whose lengths lie in a chunk that must be the first
        order: Literal["little", "big"] = "little" if content[:4] == b"RIFF" else "big"
        extra = b"junk" + (7).to_bytes(4, order) + bytes(8)
        size = int.from_bytes(content[4:8], order) + len(extra)
        content = content[:4] + size.to_bytes(4, order) + content[8:12] + extra + content[12:]
    path = tmp_path / "sound"
    path.write_bytes(content)
    source = str(path) if as_path else np.frombuffer(content, np.uint8)
    for dtype in (ndd.float32, ndd.int16, ndd.int32):
        if subtype == "FLOAT" and dtype != ndd.float32:
            continue  # rounded and saturated, unlike libsndfile
        for begin, count in ((0, 9000), (1, 1), (4321, 4000), (8999, 1), (9000, 0)):
            expected, _ = soundfile.read(io.BytesIO(content), count, begin, dtype=str(dtype).removeprefix("torch."))
            seconds = {"start": (begin + 0.25) / RATE, "duration": (count + 0.25) / RATE}  # so that no rounding counts
            part = np.asarray(ndd.decoders.audio(source, dtype=dtype, **seconds)[0])
            np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize("rate", [8000.0, 11025.0, 44100.0, 12345.678])
@pytest.mark.parametrize("downmix", [False, True])
def test_resampled_parts_see_their_neighbors(rate: float, downmix: bool) -> None:
    file = encode(sound(3 * RATE))
    whole = decode(file, sample_rate=rate, downmix=downmix)
    for start, duration in PARTS:
        options = {} if duration is None else {"duration": duration}
        part = decode(file, sample_rate=rate, downmix=downmix, start=start, **options)
        expected = slice_seconds(whole, rate, start, duration)
        assert part.shape == expected.shape
        assert not part.size or np.abs(part - expected).max() < 1e-6


def test_parts_of_an_mp3_without_a_length() -> None:
    content, first = encode_mp3(sound(3 * RATE), RATE, "VARIABLE")
    for file in (content[first:], content[len(content) // 5 :], content[first:] + bytes(300) + content[first:]):
        whole = decode(file)
        for start in (0.5, 1.5, 2.0):
            part = decode(file, start=start, duration=0.25)
            np.testing.assert_allclose(part, slice_seconds(whole, RATE, start, 0.25), atol=1e-6)


@pytest.mark.parametrize("frames", [700, 5_000, 48_000, 100_001])
@pytest.mark.parametrize("silence", [False, True], ids=["loud", "ending in silence"])
def test_parts_on_the_last_page_of_vorbis_are_exact(frames: int, silence: bool, tmp_path: Path) -> None:
    """libsndfile misses frames there, because that page ends within a block."""
    samples = sound(frames)
    samples[:, 0] = 0.3 * np.sin(np.arange(frames) * 0.17)
    if silence:
        samples[frames // 3 :] = 0  # so little that a page holds seconds of it
    file = encode(samples, "OGG", "VORBIS")
    (tmp_path / "sound.ogg").write_bytes(file.tobytes())
    whole = decode(file)
    for begin in {frames // 8, frames // 3 - 50, frames // 2, *range(max(frames - 6000, 1), frames, 487), frames - 1}:
        start = (begin + 0.5) / RATE
        np.testing.assert_array_equal(decode(file, start=start), whole[begin:])
        np.testing.assert_array_equal(np.asarray(ndd.decoders.audio(tmp_path / "sound.ogg", start=start, duration=0.01)[0]), whole[begin:][:160])


def test_parts_of_vorbis_with_bytes_behind_its_end(tmp_path: Path) -> None:
    file = encode(sound(3 * RATE), "OGG", "VORBIS")
    whole = decode(file)
    for tail in (bytes(100), b"OggS" * 300, b"OggS" + bytes(70_000)):
        longer = np.frombuffer(file.tobytes() + tail, np.uint8)
        np.testing.assert_array_equal(decode(longer, start=2.0, duration=0.1), whole[2 * RATE :][:1600])


def test_parts_of_a_batch_have_values_per_sample() -> None:
    samples = sound(2 * RATE, 1)
    files = [encode(samples, "FLAC"), encode(samples), encode(samples, rate=2 * RATE)]
    parts, _ = ndd.decoders.audio(ndd.batch(files), start=[0.0, 0.5, 0.25], duration=ndd.batch([1.0, 0.5, 1e9]), dtype=ndd.int16)
    assert parts.shape == [(16000, 1), (8000, 1), (24000, 1)]
    for part, file, expected in zip(parts, files, (slice(16000), slice(8000, 16000), slice(8000, None)), strict=True):
        np.testing.assert_array_equal(np.asarray(part), decode(file, dtype=ndd.int16)[expected])


def test_starts_of_a_long_sound_are_exact() -> None:
    file = encode(np.arange(3_000_000) % 30_000 / 32768, rate=1000)
    start = 2345.678  # in single precision the next frame is as near
    assert decode(file, start=start, duration=0.002, dtype=ndd.int16).ravel().tolist() == [(int(start * 1000) + k) % 30_000 for k in range(2)]


def test_start_behind_the_end() -> None:
    file = encode(sound(RATE))
    assert decode(file, start=1.0).shape == decode(file, start=1e300, duration=1.0).shape == decode(file, start=float("inf")).shape == (0, 2)
    assert decode(file, start=2.0, sample_rate=8000.0).shape == (0, 2)
    assert decode(encode(sound(0)), start=0.0, on_error="raise").shape == (0, 2)
    with pytest.raises(RuntimeError, match=r"decoders\.audio: sample 1: start=1.500000 s lies behind the end of the sound, which has 1.000000 s"):
        ndd.decoders.audio([file.tobytes(), file.tobytes()], start=[0.5, 1.5], on_error="raise")


@pytest.mark.parametrize("name", ["start", "duration"])
@pytest.mark.parametrize("value", [-0.5, float("nan"), -float("inf")])
def test_negative_seconds_are_rejected(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"decoders\.audio: sample 0: {name} must be a number of seconds that is not negative"):
        ndd.decoders.audio(encode(sound(10)), **{name: value})
    with pytest.raises(ValueError, match=r'on_error must be "empty" or "raise"'):
        ndd.decoders.audio(encode(sound(10)), on_error="skip")


def test_max_sample_bytes_bounds_a_part_by_its_own_size() -> None:
    file = encode(sound(RATE))
    assert decode(file, start=0.5, duration=0.01, max_sample_bytes=1280).shape == (160, 2)
    with pytest.raises(RuntimeError, match="has 1280 bytes, more than max_sample_bytes=1279"):
        decode(file, start=0.5, duration=0.01, max_sample_bytes=1279)


@pytest.mark.parametrize("name", FORMATS)
def test_parts_of_damaged_files_end_with_an_error_or_frames(name: str) -> None:
    good = encode(sound(RATE), *FORMATS[name])
    rng = np.random.default_rng(0)
    for _ in range(30):
        bad = good.copy()
        bad[rng.integers(0, len(bad), 20)] = rng.integers(0, 256, 20)
        cut, start = bad[: rng.integers(len(bad) // 2, len(bad))], rng.uniform(0, 1)
        try:
            part = decode(cut, start=start, duration=0.2)
        except RuntimeError:
            with pytest.raises(RuntimeError, match=r"decoders\.audio: sample 0: "):
                decode(cut, start=start, duration=0.2)
        else:
            assert len(part) <= 0.2 * 2**31


def test_flac_seeks_in_long_and_silent_sounds() -> None:
    rng = np.random.default_rng(0)
    loud = rng.uniform(-1, 1, (40_000, 2)) * (np.arange(40_000)[:, None] < 20_000)
    file = encode(np.concatenate([loud, np.zeros((900_000, 2)), loud]), "FLAC")
    whole = decode(file, dtype=ndd.int16)
    for begin in (0, 1, 4095, 4096, 19_999, 500_000, 939_999, 960_000, 979_999):
        np.testing.assert_array_equal(decode(file, dtype=ndd.int16, start=begin / RATE, duration=0.01), whole[int(begin / RATE * RATE) :][:160])


# --- files of which only a part is read ---


@pytest.fixture(scope="module")
def long_sounds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three minutes of noise, which no codec makes small."""
    folder, samples = tmp_path_factory.mktemp("long"), np.random.default_rng(0).uniform(-0.5, 0.5, (180 * RATE, 1))
    kinds = {"wav": ("WAV", "PCM_16"), "flac": ("FLAC", "PCM_24"), "aiff": ("AIFF", "PCM_16"), "au": ("AU", "PCM_16"), "vorbis": ("OGG", "VORBIS")}
    for name, (container, subtype) in kinds.items():
        # libsndfile's encoder of Vorbis overflows its stack with long arrays.
        with soundfile.SoundFile(folder / name, "w", RATE, 1, format=container, subtype=subtype) as file:
            for begin in range(0, len(samples), RATE):
                file.write(samples[begin : begin + RATE])
    return {name: folder / name for name in kinds}


@pytest.mark.parametrize("name", ["wav", "flac", "aiff", "au", "vorbis"])
@pytest.mark.parametrize("start", [0.0, 61.3, 179.0])
def test_only_the_bytes_of_a_part_are_read(long_sounds: dict[str, Path], name: str, start: float) -> None:
    path = long_sounds[name]
    size, before = path.stat().st_size, count_read_bytes()
    part, rate = ndd.decoders.audio(path, start=start, duration=1.0)
    part.wait()
    # Headers, what a search looks at, and blocks that are read ahead.
    assert count_read_bytes() - before < size / 180 + (600_000 if name == "vorbis" else 450_000) < size
    assert rate.item() == RATE
    np.testing.assert_array_equal(np.asarray(part), slice_seconds(decode(np.fromfile(path, np.uint8)), RATE, start, 1.0))


def test_paths_and_contents_are_decoded_equally(tmp_path: Path) -> None:
    paths = []
    for name, (container, subtype) in FORMATS.items():
        paths.append(tmp_path / name.replace(" ", "").replace(",", "-"))
        encode(sound(2 * RATE), container, subtype).tofile(paths[-1])
    cases: list[dict[str, Any]] = [{}, {"start": 1.2, "duration": 0.3}, {"start": 0.5, "sample_rate": 8000.0, "downmix": True}, {"start": 9.0}]
    for options in cases:
        of_paths, rates = ndd.decoders.audio(paths, **options)
        of_contents, others = ndd.decoders.audio([path.read_bytes() for path in paths], **options)
        assert of_paths.shape == of_contents.shape
        assert rates.torch().tolist() == others.torch().tolist()
        for part, expected in zip(of_paths, of_contents, strict=True):
            np.testing.assert_array_equal(np.asarray(part), np.asarray(expected))


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_decoded_as_their_contents_are(tmp_path: Path, name: str) -> None:
    good, rng, path = encode(sound(RATE), *FORMATS[name]), np.random.default_rng(2), tmp_path / "sound"

    def outcome(source: bytes | Path, start: float) -> list[float] | str:
        try:
            return np.asarray(ndd.decoders.audio(source, start=start, duration=0.2)[0]).ravel().tolist()
        except RuntimeError as error:
            return str(error).replace(f" ({path})", "")

    for _ in range(30):
        bad, start = good.copy(), float(rng.uniform(0, 1))
        at = rng.integers(0, 200 if rng.random() < 0.5 else len(bad), 5)
        bad[at] = rng.integers(0, 256, 5)
        content = bad[: rng.integers(0, len(bad))].tobytes() if rng.random() < 0.3 else bad.tobytes()
        path.write_bytes(content)
        assert outcome(path, start) == outcome(content, start)


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "sound.wav"
    encode(sound(RATE)).tofile(path)
    for bad, reason in ((tmp_path / "none.wav", "No such file"), (tmp_path, "Is a directory"), (f"{path}\0b", "zero byte")):
        with pytest.raises(RuntimeError, match=rf"decoders\.audio: sample 1 \(.*\): cannot be read: .*{reason}"):
            ndd.decoders.audio([path, bad], start=0.5)
    path.write_bytes(b"")
    with pytest.raises(RuntimeError, match=r"sample 0 \(.*sound\.wav\): the file is empty"):
        ndd.decoders.audio(path)


def test_a_file_that_is_truncated_after_the_call(tmp_path: Path) -> None:
    path = tmp_path / "sound.wav"
    encode(sound(RATE)).tofile(path)
    with ndd.EvalMode.deferred:
        part, _ = ndd.decoders.audio(path, start=0.25, duration=0.5)
        encode(sound(RATE // 2)).tofile(path)
        with pytest.raises(RuntimeError, match=r"sample 0 \(.*sound\.wav\): cannot be read: the file became shorter while it was read"):
            part.wait()


def test_a_file_that_gets_more_channels_after_the_call(tmp_path: Path) -> None:
    """A stream without a length is opened again for a part, when the memory of the result has been allocated."""

    def encode_stream(channels: int) -> bytes:
        content, first = encode_mp3(sound(20 * RATE, channels), RATE, "CONSTANT")
        size = 16320 - 10  # sound begins in the last bytes of a block, so what was read at the call does not hide what follows
        return b"ID3\x04\0\0" + bytes([0, 0, size >> 7, size & 127]) + bytes(size) + content[first:]

    path = tmp_path / "sound.mp3"
    path.write_bytes(encode_stream(1))
    with ndd.EvalMode.deferred:
        part, _ = ndd.decoders.audio(path, start=10, duration=5)
        path.write_bytes(encode_stream(2))
        with pytest.raises(RuntimeError, match=r"sample 0 \(.*sound\.mp3\): the file changed while it was read"):
            part.wait()


def test_bytes_that_look_like_a_path_are_contents(tmp_path: Path) -> None:
    path = tmp_path / "sound.wav"
    encode(sound(RATE)).tofile(path)
    with pytest.raises(RuntimeError, match="not a sound of a supported format"):
        ndd.decoders.audio(bytes(path), start=0.5)
    with pytest.raises(RuntimeError, match="not a sound of a supported format"):
        ndd.decoders.audio([bytes(path)] * 2)


def test_more_sounds_than_are_kept_open(tmp_path: Path) -> None:
    paths = [tmp_path / f"{k}.wav" for k in range(150)]
    for k, path in enumerate(paths):
        encode(np.full((100 + k, 1), k / 256), "WAV").tofile(path)
    with ndd.EvalMode.deferred:
        pending = [ndd.decoders.audio(paths, start=0.001, dtype=ndd.int16)[0] for _ in range(2)]
    for sounds in pending:
        assert [np.unique(np.asarray(each)).tolist() for each in sounds] == [[k * 128] for k in range(150)]
        assert [len(np.asarray(each)) for each in sounds] == [84 + k for k in range(150)]


def test_contents_that_change_after_the_call() -> None:
    """What was opened at the call does not outlive the memory that it was opened in."""
    file = encode(sound(RATE))
    with ndd.EvalMode.deferred:
        for _ in range(3):
            buffer = torch.from_numpy(file.copy())
            part, _ = ndd.decoders.audio(buffer, start=0.5)
            buffer.zero_()
            del buffer
            np.testing.assert_array_equal(np.asarray(part), decode(file)[RATE // 2 :])
