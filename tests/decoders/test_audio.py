# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case, Each, Inputs, Samples
from _sounds import FORMATS, LOSSY, RATE, decode, encode, encode_mp3, slice_seconds, sound

import torch_ndd as ndd

soundfile = pytest.importorskip("soundfile")


def reference(file: np.ndarray, dtype: str = "float32", **options: object) -> tuple[np.ndarray, np.float32]:
    samples, rate = soundfile.read(io.BytesIO(file.tobytes()), dtype=dtype, always_2d=True)
    if options.get("downmix"):
        samples = samples.mean(1, dtype=np.float32)
    return samples, np.float32(rate)


def resample(file: np.ndarray, sample_rate: float, quality: float = 50, **options: object) -> tuple[np.ndarray, np.float32]:
    samples, rate = reference(file, **options)
    return interpolate(samples.astype(np.float64), sample_rate / float(rate), quality).astype(np.float32), np.float32(sample_rate)


def interpolate(samples: np.ndarray, ratio: float, quality: float) -> np.ndarray:
    """The reference: each output from all samples, in double precision."""
    lobes = {0: 3, 50: 16, 100: 64}[quality]
    at = np.arange(int(np.ceil(len(samples) * ratio)))[:, None] / ratio - np.arange(len(samples))
    weights = np.where(np.abs(at) < lobes, np.sinc(at) * (1 + np.cos(np.pi * at / lobes)) / 2, 0)
    return weights @ samples


def files(container: str, subtype: str) -> Inputs:
    def make(ragged: bool) -> tuple[Samples, ...]:
        results = [encode(sound(700 + 50 * i * ragged, 2, i), container, subtype) for i in range(3)]
        return ([np.pad(file, (0, 0 if ragged else max(map(len, results)) - len(file))) for file in results],)

    return make


CASES = [
    Case("decoders.audio", "wav", files("WAV", "PCM_16"), reference=reference, out_layout=None),
    Case("decoders.audio", "flac", files("WAV", "PCM_24"), {"downmix": True}, reference=reference, tolerance=1e-7, out_layout=None),
    Case(
        "decoders.audio",
        "rate",
        files("WAV", "FLOAT"),
        {"sample_rate": Each([8000.0, 11025.0, 44100.0])},
        reference=resample,
        tolerance=1e-6,
        out_layout=None,
    ),
    Case(
        "decoders.audio",
        "part",
        files("FLAC", "PCM_16"),
        {"start": Each([0.0, 0.0078125, 0.03125]), "duration": Each([0.015625, 0.0078125, 9.0]), "on_error": "raise"},
        reference=lambda file, start, duration, on_error: (slice_seconds(reference(file)[0], RATE, start, duration), np.float32(RATE)),
        out_layout=None,
    ),
]


@pytest.mark.parametrize("name", FORMATS)
def test_formats_equal_soundfile(name: str) -> None:
    for channels in (1, 2):
        file = encode(sound(channels=channels), *FORMATS[name])
        samples, rate = ndd.decoders.audio(ndd.tensor(file))
        expected, _ = reference(file)
        assert (samples.dtype, samples.layout, rate.dtype, rate.shape, rate.item()) == (ndd.float32, None, ndd.float32, (), RATE)
        assert samples.shape == expected.shape
        # Decoders of lossy codecs may sum in another order when run in parallel, although the library is the same.
        assert np.abs(np.asarray(samples) - expected).max() <= (1e-6 if name in LOSSY else 0)


def flac(samples: np.ndarray, subtype: str = "PCM_16", level: float = 0.5) -> np.ndarray:
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format="FLAC", subtype=subtype, compression_level=level)
    return np.frombuffer(file.getvalue(), np.uint8)


@pytest.mark.parametrize("subtype", ["PCM_S8", "PCM_16", "PCM_24"])
@pytest.mark.parametrize("channels", [1, 2, 3, 8])
def test_flac_of_every_kind(subtype: str, channels: int) -> None:
    rng = np.random.default_rng(channels)
    for frames, level in ((1, 0.0), (15, 1.0), (4096, 0.5), (9000, 0.9), (12345, 0.0), (5000, 1.0)):
        waves = sound(frames, channels)
        kinds = {  # encoders differ in how they handle each of them
            "predicted": waves + rng.standard_normal((frames, channels)) * 1e-3,
            "noise": rng.uniform(-1, 1, (frames, channels)),
            "loud": np.sign(rng.standard_normal((frames, channels))),
            "constant": np.full((frames, channels), 0.25),
            "few bits": np.round(waves * 100) / 128,
            "now and then": waves * (np.arange(frames)[:, None] % 1000 < 20),
            "the same": waves[:, :1] * np.ones(channels),
            "opposite": waves[:, :1] * (1 - 2 * (np.arange(channels) % 2)),
        }
        for kind, samples in kinds.items():
            file = flac(samples.clip(-1, 1), subtype, level)
            for dtype in ("float32", "int16", "int32"):
                assert np.array_equal(decode(file, dtype=getattr(ndd, dtype)), reference(file, dtype)[0]), (kind, frames, dtype)


def test_flac_behind_other_metadata() -> None:
    file, samples = flac(sound(5000)), reference(flac(sound(5000)))[0]
    padding = np.array([1, 0, 0, 5, *range(5)], np.uint8)  # of type 1, in front of the others
    assert np.array_equal(decode(np.concatenate([file[:42], padding, file[42:]])), samples)
    assert np.array_equal(decode(np.concatenate([file, np.arange(50, dtype=np.uint8)])), samples)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("dtype", "full"), [("int16", 2**15 - 1), ("int32", 2**31 - 1)])
def test_integer_files_keep_their_values(name: str, dtype: str, full: int) -> None:
    file = encode(sound(), *FORMATS[name])
    result = decode(file, dtype=getattr(ndd, dtype))
    assert result.dtype == dtype
    if name in LOSSY or name in ("wav, float", "wav, double"):
        expected = np.round(reference(file)[0].astype(np.float64) * full).clip(-full - 1, full)
        assert np.abs(result.astype(np.float64) - expected).max() <= 1 + full * 1e-6
    else:
        assert np.array_equal(result, reference(file, dtype=dtype)[0])


def test_floats_beyond_one_saturate() -> None:
    file = encode(np.array([[1.5], [-3.0], [0.25], [1.0]]), "WAV", "FLOAT")
    assert decode(file, dtype=ndd.int16).ravel().tolist() == [32767, -32768, 8192, 32767]
    assert decode(file).ravel().tolist() == [1.5, -3.0, 0.25, 1.0]


def test_downmix_averages_channels() -> None:
    samples = sound(channels=5)
    file = encode(samples, "WAV", "FLOAT")
    mixed = decode(file, downmix=True)
    assert mixed.shape == (2000,)
    assert np.abs(mixed - samples.mean(1)).max() < 1e-6
    assert np.abs(decode(file, downmix=True, dtype=ndd.int16) - np.round(mixed.astype(np.float64) * 32767)).max() <= 1
    mono = encode(sound(channels=1))
    assert np.array_equal(decode(mono, downmix=True), decode(mono)[:, 0])


@pytest.mark.parametrize("quality", [0, 50, 100])
@pytest.mark.parametrize("rate", [8000.0, 16001.0, 22050.0, 44100.0, 15999.5, 12345.678])
def test_resampling_interpolates_with_a_windowed_sinc(rate: float, quality: float) -> None:
    file = encode(sound(500), "WAV", "FLOAT")
    samples, new_rate = ndd.decoders.audio(ndd.tensor(file), sample_rate=rate, quality=quality)
    expected, _ = resample(file, rate, quality)
    assert samples.shape == expected.shape == (int(np.ceil(500 * rate / RATE)), 2)
    assert np.abs(np.asarray(samples) - expected).max() < 2e-6
    assert new_rate.item() == np.float32(rate)


def test_resampling_keeps_a_tone() -> None:
    t = np.arange(4000) / RATE
    tone = np.sin(2 * np.pi * 440 * t)[:, None]
    result = decode(encode(tone, "WAV", "FLOAT"), sample_rate=44100.0, downmix=True)
    expected = np.sin(2 * np.pi * 440 * np.arange(len(result)) / 44100)
    assert np.abs(result - expected)[200:-200].max() < 2e-3  # of a Hann window with 16 lobes


def test_rates_of_a_batch() -> None:
    batch = ndd.batch([encode(sound(300 + i, 1, i), "FLAC", rate=8000 * (i + 1)) for i in range(4)])
    samples, rates = ndd.decoders.audio(batch)
    assert (samples.shape, rates.torch().tolist()) == ([(300 + i, 1) for i in range(4)], [8000.0, 16000.0, 24000.0, 32000.0])
    samples, rates = ndd.decoders.audio(batch, sample_rate=ndd.batch([0.0, 8000.0, -1.0, 48000.0]), downmix=True)
    assert (samples.shape, rates.torch().tolist()) == ([(300,), (151,), (302,), (455,)], [8000.0, 8000.0, 24000.0, 48000.0])


def test_short_and_empty_sounds() -> None:
    assert decode(encode(sound(0))).shape == (0, 2)
    assert decode(encode(sound(0)), sample_rate=8000.0).shape == (0, 2)
    assert decode(encode(sound(1)), sample_rate=1.0).shape == (1, 2)
    assert decode(encode(sound(3)), sample_rate=1e6).shape == (188, 2)


def test_bad_files() -> None:
    good = encode(sound(4000), "FLAC")
    for bad, reason in (
        (good[:0], "empty"),
        (good[:20], "not a sound"),
        (np.zeros(100, np.uint8), "not a sound"),
        (good[: len(good) // 2], "damaged"),
    ):
        with pytest.raises(RuntimeError) as caught:
            np.asarray(ndd.decoders.audio(ndd.batch([good, bad]))[0].tensors[1])
        text = str(caught.value)
        assert "decoders.audio: sample 1: " in text
        assert reason in text


def test_wrong_arguments() -> None:
    file = encode(sound(10))
    for options, reason in (
        ({"dtype": ndd.uint8}, "Unsupported output type: uint8"),
        ({"quality": 101.0}, "quality"),
        ({"quality": -1.0}, "quality"),
        ({"sample_rate": float("inf")}, "sample_rate must be finite"),
        ({"sample_rate": float("nan")}, "sample_rate must be finite"),
    ):
        with pytest.raises(RuntimeError, match=rf"decoders\.audio: .*{reason}"):
            ndd.decoders.audio(file, **options)
    with pytest.raises(RuntimeError, match=r"decoders\.audio: encoded sounds must be uint8"):
        ndd.decoders.audio(torch.zeros(3))


def test_same_with_any_number_of_threads() -> None:
    batch = ndd.batch([encode(sound(3000 + i, 2, i), "FLAC") for i in range(12)])
    results = []
    before = ndd.get_num_threads()
    try:
        for threads in (1, 4):
            ndd.set_num_threads(threads)
            results.append([np.asarray(sample) for sample in ndd.decoders.audio(batch, sample_rate=11025.0)[0].tensors])
    finally:
        ndd.set_num_threads(before)
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


# --- files whose header has no length ---


@pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE"])
@pytest.mark.parametrize(("rate", "channels"), [(44100, 2), (32000, 1), (22050, 2), (8000, 1)])
def test_frames_of_an_mp3_cut_from_a_stream_are_counted(mode: str, rate: int, channels: int) -> None:
    samples = np.concatenate([np.zeros((30_000, channels)), sound(58_200, channels)])
    content, first = encode_mp3(samples, rate, mode)
    whole, cut = decode(content), decode(content[first:])
    a_frame = 1152 if rate > 24000 else 576
    assert len(whole) == 88_200
    assert len(cut) % a_frame == 0
    assert 0 <= len(cut) - 88_200 - 1105 < 2 * a_frame  # 1105: the delay of encoder and decoder, which follows from the length
    np.testing.assert_array_equal(cut[1105 : 1105 + 80_000], whole[:80_000])
    later = decode(content[len(content) // 3 :])  # it begins within a frame
    assert len(later) % a_frame == 0
    np.testing.assert_allclose(later[-20_000:], cut[-20_000:], atol=1e-6)
    tagged = b"ID3\x04\0\0\0\0\0\x0a" + bytes(10) + content[first:] + b"TAG" + bytes(125)
    np.testing.assert_array_equal(decode(tagged), cut)
    with pytest.raises(RuntimeError, match="not a sound of a supported format"):
        decode(content[first : first + 3])


@pytest.mark.parametrize(
    "data",
    [b"APETAGEX" + bytes(24), b"LYRICSBEGIN" + b"la " * 90 + b"LYRICS200" + b"TAG" + bytes(125), bytes(32), bytes(5000), b"\xff\xfb" * 3000],
    ids=["APE tag", "lyrics", "few zeros", "many zeros", "sync bytes"],
)
def test_data_behind_or_between_the_frames_of_an_mp3_take_no_sound(data: bytes) -> None:
    content, first = encode_mp3(sound(40_000), 44100, "CONSTANT")
    stream = content[first:]
    expected = decode(stream)
    np.testing.assert_array_equal(decode(stream + data), expected)
    joined = decode(stream + data + stream)
    assert len(joined) == 2 * len(expected)
    np.testing.assert_array_equal(joined, decode(stream + stream))
    part = decode(stream + data + stream, start=1.2, duration=0.3)
    np.testing.assert_allclose(part, joined[52_920 : 52_920 + 13_230], atol=1e-6)


def test_lengths_that_wav_au_and_caf_files_lack() -> None:
    samples = sound(3000)
    expected = decode(encode(samples))
    wav, au, caf = (encode(samples, container).tobytes() for container in ("WAV", "AU", "CAF"))
    at = wav.index(b"data") + 4
    for size in (bytes(4), b"\xff" * 4):
        np.testing.assert_array_equal(decode(wav[:4] + size + wav[8:at] + size + wav[at + 4 :]), expected)
        np.testing.assert_array_equal(decode(au[:8] + size + au[12:]), expected)
    at = caf.index(b"data") + 4
    np.testing.assert_array_equal(decode(caf[:at] + b"\xff" * 8 + caf[at + 8 :]), expected)
    empty = encode(np.zeros((0, 2))).tobytes()
    assert decode(empty).shape == (0, 2)
    assert decode(empty + b"LIST\4\0\0\0abcd").shape == (0, 2)


@pytest.mark.parametrize("dtype", [ndd.float32, ndd.int16], ids=str)
def test_frames_of_a_flac_without_a_length_are_counted(dtype: torch.dtype) -> None:
    content = bytearray(encode(sound(70_000), "FLAC"))
    expected = decode(content, dtype=dtype)
    content[21] &= 0xF0
    content[22:26] = bytes(4)
    np.testing.assert_array_equal(decode(content, dtype=dtype), expected)


def test_max_sample_bytes_bounds_a_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    file = encode(sound(1000))
    assert decode(file, max_sample_bytes=8000).shape == (1000, 2)
    text = r"sample 0: a sound of 1000 frames of 2 channels at 16000 Hz has 8000 bytes, more than max_sample_bytes=7999, .*TORCH_NDD_MAX_SAMPLE_BYTES"
    with pytest.raises(RuntimeError, match=text):
        decode(file, max_sample_bytes=7999)
    assert decode(file, max_sample_bytes=4000, dtype=ndd.int16).shape == (1000, 2)
    with pytest.raises(RuntimeError, match="has 16000 bytes, more than max_sample_bytes=8000"):
        decode(file, max_sample_bytes=8000, sample_rate=32000.0)
    with pytest.raises(RuntimeError, match="more than max_sample_bytes=4294967296"):
        decode(encode(sound(9000)), sample_rate=2e9)
    monkeypatch.setenv("TORCH_NDD_MAX_SAMPLE_BYTES", "7999")
    with pytest.raises(RuntimeError, match=text):
        decode(file)
    with pytest.raises(ValueError, match=r"decoders\.audio: max_sample_bytes must be positive, got 0"):
        decode(file, max_sample_bytes=0)


@pytest.mark.parametrize("subtype", ["PCM_S8", "PCM_16", "PCM_24"])
def test_damaged_flac_is_refused_or_equals_soundfile(subtype: str) -> None:
    good, rng, decoded_files = flac(sound(9000), subtype, 1.0), np.random.default_rng(1), 0
    for _ in range(150):
        bad = good.copy()
        at = rng.integers(0, len(bad) if rng.random() < 0.7 else 60, rng.integers(1, 4))
        bad[at] ^= (1 << rng.integers(0, 8, len(at))).astype(np.uint8)
        bad = bad[: rng.integers(40, len(bad))] if rng.random() < 0.2 else bad
        try:
            samples = decode(bad, dtype=ndd.int32)
        except RuntimeError:
            continue
        try:
            expected, _ = reference(bad, dtype="int32")
        except soundfile.LibsndfileError:  # damaged metadata between the header and the sound, which are not needed
            expected, _ = reference(good, dtype="int32")
        np.testing.assert_array_equal(samples, expected[: len(samples)])
        decoded_files += 1
    assert decoded_files > 0


# --- hostile headers ---


def with_number(file: np.ndarray, at: int, number: int, count: int) -> bytes:
    content = bytearray(file.tobytes())
    content[at : at + count] = number.to_bytes(count, "little")
    return bytes(content)


# The fields of a WAV file's format: channels at byte 22, rate at 24, bytes per frame at 32, bits at 34; the length of the data at 40.
HOSTILE = {
    "65535 channels": (22, 65535, 2),
    "no channels": (22, 0, 2),
    "no rate": (24, 0, 4),
    "rate of 4 GHz": (24, 2**32 - 1, 4),
    "no bytes per frame": (32, 0, 2),
    "65535 bits": (34, 65535, 2),
    "data of 4 GB": (40, 2**32 - 2, 4),
    "format of 4 GB": (16, 2**32 - 1, 4),
}


@pytest.mark.parametrize("field", HOSTILE)
@pytest.mark.parametrize("options", [{}, {"start": 0.01, "duration": 1e300}, {"start": 1e300}, {"sample_rate": 8000.0, "duration": 0.01}], ids=str)
def test_hostile_wav_headers_are_named_or_bounded(tmp_path: Path, field: str, options: dict[str, Any]) -> None:
    content = with_number(encode(sound(1000)), *HOSTILE[field])
    path = tmp_path / "hostile.wav"
    path.write_bytes(content)
    for source, name in ((content, ""), (path, r" \(.*hostile\.wav\)")):
        try:
            samples, rate = ndd.decoders.audio(source, max_sample_bytes=1 << 20, **options)
            samples.wait()
        except RuntimeError as error:
            reason = str(error)
        else:
            reason = None
            assert samples.torch().numel() <= len(content)
            assert 0 < rate.item() < 2**31
        assert reason is None or re.search(rf"decoders\.audio: sample 0{name}: ", reason)


def with_seek_table(file: np.ndarray, points: list[tuple[int, int, int]]) -> bytes:
    """A FLAC file with these seek points, of a sample, the offset of its frame, and the samples in it."""
    content = file.tobytes()
    table = b"".join(sample.to_bytes(8, "big") + offset.to_bytes(8, "big") + count.to_bytes(2, "big") for sample, offset, count in points)
    # Behind STREAMINFO, which is the first block: 4 bytes of signature, 4 of header, 34 of content.
    return content[:42] + bytes([3]) + len(table).to_bytes(3, "big") + table + content[42:]


@pytest.mark.parametrize(
    "points",
    [
        [(0, 2**63, 4096), (4096, 2**64 - 1, 65535)],
        [(20_000, 0, 4096), (10_000, 10, 4096), (5, 5, 5)],
        [(k * 4096, 0, 4096) for k in range(1000)],
        [(2**64 - 1, 0, 0)] * 50_000,
    ],
    ids=["beyond the end", "backwards", "one place for all", "placeholders"],
)
@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24"])
def test_flac_seek_tables_that_lie_change_nothing(tmp_path: Path, points: list[tuple[int, int, int]], subtype: str) -> None:
    file = encode(sound(3 * RATE), "FLAC", subtype)
    assert file[4] == 0  # STREAMINFO is not the last block
    path = tmp_path / "sound.flac"
    path.write_bytes(with_seek_table(file, points))
    whole = decode(file, dtype=ndd.int32)
    for start in (0.0, 0.7, 2.5):
        for source in (path, path.read_bytes()):
            part = np.asarray(ndd.decoders.audio(source, start=start, duration=0.2, dtype=ndd.int32)[0])
            np.testing.assert_array_equal(part, slice_seconds(whole, RATE, start, 0.2))


@pytest.mark.parametrize("name", ["vorbis", "opus"])
def test_ogg_positions_that_lie_are_bounded(tmp_path: Path, name: str) -> None:
    """Pages have wrong positions, in the 8 bytes after the flags, and checksums that no longer fit."""
    good = encode(sound(2 * RATE), *FORMATS[name]).tobytes()
    path = tmp_path / name
    pages = [at for at in range(len(good) - 4) if good[at : at + 4] == b"OggS"]
    for position in (0, 2**63 - 1, 2**64 - 1, 1):
        for page in pages[2:]:
            content = bytearray(good)
            content[page + 6 : page + 14] = position.to_bytes(8, "little")
            path.write_bytes(content)
            outcomes = []
            for source in (path, bytes(content)):
                try:
                    outcomes.append(np.asarray(ndd.decoders.audio(source, start=1.0, duration=0.5, max_sample_bytes=1 << 24)[0]).shape)
                except RuntimeError as error:
                    outcomes.append(str(error).replace(f" ({path})", ""))
            assert outcomes[0] == outcomes[1]


def test_a_file_that_is_truncated_while_its_frames_are_counted(tmp_path: Path) -> None:
    """It is damaged, not a shorter sound."""
    path = tmp_path / "sound.flac"
    file = bytearray(encode(np.random.default_rng(0).uniform(-1, 1, (1_500_000, 1)), "FLAC"))
    # The number of samples, 36 bits of STREAMINFO: 0 means unknown, so all frames are decoded to count them.
    file[21] &= 0xF0
    file[22:26] = bytes(4)
    path.write_bytes(file)

    def truncate_when_open(is_decoded: threading.Event) -> None:
        descriptors = Path("/proc/self/fd")
        while not is_decoded.is_set():
            for entry in descriptors.iterdir():
                with contextlib.suppress(OSError):
                    if entry.readlink() == path:
                        time.sleep(0.002)  # its size has been read, mostly
                        os.truncate(path, len(file) // 2)
                        return

    message = ""
    for _ in range(50):  # on a busy machine the file may be truncated before its size was read, or after its frames
        path.write_bytes(file)
        is_decoded = threading.Event()
        thread = threading.Thread(target=truncate_when_open, args=[is_decoded])
        thread.start()
        try:
            ndd.decoders.audio(path)[0].evaluate()
        except RuntimeError as error:
            message = str(error)
        is_decoded.set()
        thread.join()
        if message:
            break
    assert "cannot be read: the file became shorter while it was read" in message
