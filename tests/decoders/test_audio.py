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
from _read_bytes import count_read_bytes

import torch_ndd as ndd

soundfile = pytest.importorskip("soundfile")

RATE = 16000
FORMATS = {
    "wav, 8 bits": ("WAV", "PCM_U8"),
    "wav, 16 bits": ("WAV", "PCM_16"),
    "wav, 24 bits": ("WAV", "PCM_24"),
    "wav, 32 bits": ("WAV", "PCM_32"),
    "wav, float": ("WAV", "FLOAT"),
    "wav, double": ("WAV", "DOUBLE"),
    "wav, mu-law": ("WAV", "ULAW"),
    "flac, 16 bits": ("FLAC", "PCM_16"),
    "flac, 24 bits": ("FLAC", "PCM_24"),
    "aiff": ("AIFF", "PCM_16"),
    "vorbis": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}
LOSSY = {"vorbis", "opus", "mp3"}


def sound(frames: int = 2000, channels: int = 2, seed: int = 0) -> np.ndarray:
    t = np.arange(frames)[:, None] / RATE
    rng = np.random.default_rng(seed)
    waves = sum(np.sin(2 * np.pi * rng.uniform(100, 3000) * t + k) for k in range(channels * 3))
    return (0.25 * waves * np.ones(channels) * np.linspace(0.5, 1, channels)).clip(-1, 1)


def encode(samples: np.ndarray, container: str = "WAV", subtype: str = "PCM_16", rate: int = RATE) -> np.ndarray:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=container, subtype=subtype)
    return np.frombuffer(file.getvalue(), np.uint8)


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
        reference=lambda file, start, duration, on_error: (slice_of(reference(file)[0], RATE, start, duration), np.float32(RATE)),
        out_layout=None,
    ),
]


def decode(file: np.ndarray, **options: object) -> np.ndarray:
    return np.asarray(ndd.decoders.audio(ndd.tensor(file), **options)[0])


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


def decode_sound(file: bytes | np.ndarray, **options: object) -> np.ndarray:
    return np.asarray(ndd.decoders.audio(np.frombuffer(bytes(file), np.uint8), **options)[0])


def mp3(samples: np.ndarray, rate: int, mode: str) -> tuple[bytes, int]:
    """Return a file and the bytes of its first frame, which holds the length."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="MP3", subtype="MPEG_LAYER_III", bitrate_mode=mode, compression_level=0.5)
    content = file.getvalue()
    if rate > 24000:
        bits, rates = 144_000, (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
    else:
        bits, rates = 72_000, (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
    return content, bits * rates[content[2] >> 4] // rate + (content[2] >> 1 & 1)


@pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE"])
@pytest.mark.parametrize(("rate", "channels"), [(44100, 2), (32000, 1), (22050, 2), (8000, 1)])
def test_frames_of_an_mp3_cut_from_a_stream_are_counted(mode: str, rate: int, channels: int) -> None:
    samples = np.concatenate([np.zeros((30_000, channels)), sound(58_200, channels)])
    content, first = mp3(samples, rate, mode)
    whole, cut = decode_sound(content), decode_sound(content[first:])
    a_frame = 1152 if rate > 24000 else 576
    assert len(whole) == 88_200
    assert len(cut) % a_frame == 0
    assert 0 <= len(cut) - 88_200 - 1105 < 2 * a_frame  # 1105: the delay of encoder and decoder, which follows from the length
    np.testing.assert_array_equal(cut[1105 : 1105 + 80_000], whole[:80_000])
    later = decode_sound(content[len(content) // 3 :])  # it begins within a frame
    assert len(later) % a_frame == 0
    np.testing.assert_allclose(later[-20_000:], cut[-20_000:], atol=1e-6)
    tagged = b"ID3\x04\0\0\0\0\0\x0a" + bytes(10) + content[first:] + b"TAG" + bytes(125)
    np.testing.assert_array_equal(decode_sound(tagged), cut)
    interrupted = content[first:] + bytes(300) + content[first:]
    assert len(decode_sound(interrupted)) >= len(cut)
    with pytest.raises(RuntimeError, match="not a sound of a supported format"):
        decode_sound(content[first : first + 3])


def test_lengths_that_wav_au_and_caf_files_lack() -> None:
    samples = sound(3000)
    expected = decode_sound(encode(samples))
    wav, au, caf = (encode(samples, container).tobytes() for container in ("WAV", "AU", "CAF"))
    at = wav.index(b"data") + 4
    for size in (bytes(4), b"\xff" * 4):
        np.testing.assert_array_equal(decode_sound(wav[:4] + size + wav[8:at] + size + wav[at + 4 :]), expected)
        np.testing.assert_array_equal(decode_sound(au[:8] + size + au[12:]), expected)
    at = caf.index(b"data") + 4
    np.testing.assert_array_equal(decode_sound(caf[:at] + b"\xff" * 8 + caf[at + 8 :]), expected)
    empty = encode(np.zeros((0, 2))).tobytes()
    assert decode_sound(empty).shape == (0, 2)
    assert decode_sound(empty + b"LIST\4\0\0\0abcd").shape == (0, 2)


@pytest.mark.parametrize("dtype", [ndd.float32, ndd.int16], ids=str)
def test_frames_of_a_flac_without_a_length_are_counted(dtype: torch.dtype) -> None:
    content = bytearray(encode(sound(70_000), "FLAC"))
    expected = decode_sound(content, dtype=dtype)
    content[21] &= 0xF0
    content[22:26] = bytes(4)
    np.testing.assert_array_equal(decode_sound(content, dtype=dtype), expected)


def test_max_sample_bytes_bounds_a_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    file = encode(sound(1000))
    assert decode_sound(file, max_sample_bytes=8000).shape == (1000, 2)
    text = r"sample 0: a sound of 1000 frames of 2 channels at 16000 Hz has 8000 bytes, more than max_sample_bytes=7999, .*TORCH_NDD_MAX_SAMPLE_BYTES"
    with pytest.raises(RuntimeError, match=text):
        decode_sound(file, max_sample_bytes=7999)
    assert decode_sound(file, max_sample_bytes=4000, dtype=ndd.int16).shape == (1000, 2)
    with pytest.raises(RuntimeError, match="has 16000 bytes, more than max_sample_bytes=8000"):
        decode_sound(file, max_sample_bytes=8000, sample_rate=32000.0)
    with pytest.raises(RuntimeError, match="more than max_sample_bytes=4294967296"):
        decode_sound(encode(sound(9000)), sample_rate=2e9)
    monkeypatch.setenv("TORCH_NDD_MAX_SAMPLE_BYTES", "7999")
    with pytest.raises(RuntimeError, match=text):
        decode_sound(file)
    with pytest.raises(ValueError, match=r"decoders\.audio: max_sample_bytes must be positive, got 0"):
        decode_sound(file, max_sample_bytes=0)


# --- parts of sounds ---

PARTS = ((0.0, 0.25), (0.25, 0.5), (1.2345, 0.1), (0.3, None), (2.9, 5.0), (0.0, 0.0), (1.0, 0.00005))
"""Seconds: start and duration, in a sound of three."""


def slice_of(whole: np.ndarray, rate: float, start: float, duration: float | None) -> np.ndarray:
    begin = int(start * rate)
    return whole[begin:] if duration is None else whole[begin : begin + int(duration * rate)]


@pytest.mark.parametrize("name", [*FORMATS, "wav, ADPCM", "wav, GSM", "au", "caf"])
@pytest.mark.parametrize("dtype", [ndd.float32, ndd.int16], ids=str)
def test_parts_equal_slices_of_the_whole(name: str, dtype: torch.dtype) -> None:
    others = {"wav, ADPCM": ("WAV", "IMA_ADPCM"), "wav, GSM": ("WAV", "GSM610"), "au": ("AU", "PCM_16"), "caf": ("CAF", "PCM_24")}
    container, subtype = FORMATS.get(name) or others[name]
    file = encode(sound(3 * RATE, channels=1 if subtype == "GSM610" else 2), container, subtype)
    whole = decode(file, dtype=dtype)
    for start, duration in PARTS:
        part = decode(file, dtype=dtype, start=start, **({} if duration is None else {"duration": duration}))
        expected = slice_of(whole, RATE, start, duration)
        assert part.shape == expected.shape
        tolerance = 0 if name not in LOSSY else 1e-5 if dtype == ndd.float32 else 1
        assert not part.size or np.abs(part.astype(np.float64) - expected).max() <= tolerance


@pytest.mark.parametrize("rate", [8000.0, 11025.0, 44100.0, 12345.678])
@pytest.mark.parametrize("downmix", [False, True])
def test_resampled_parts_see_their_neighbors(rate: float, downmix: bool) -> None:
    file = encode(sound(3 * RATE))
    whole = decode(file, sample_rate=rate, downmix=downmix)
    for start, duration in PARTS:
        options = {} if duration is None else {"duration": duration}
        part = decode(file, sample_rate=rate, downmix=downmix, start=start, **options)
        expected = slice_of(whole, rate, start, duration)
        assert part.shape == expected.shape
        assert not part.size or np.abs(part - expected).max() < 1e-6


def test_parts_of_an_mp3_without_a_length() -> None:
    content, first = mp3(sound(3 * RATE), RATE, "VARIABLE")
    for file in (content[first:], content[len(content) // 5 :], content[first:] + bytes(300) + content[first:]):
        whole = decode_sound(file)
        for start in (0.5, 1.5, 2.0):
            part = decode_sound(file, start=start, duration=0.25)
            np.testing.assert_allclose(part, slice_of(whole, RATE, start, 0.25), atol=1e-6)


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


def test_flac_is_sought_in_long_and_silent_sounds() -> None:
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
    np.testing.assert_array_equal(np.asarray(part), slice_of(decode(np.fromfile(path, np.uint8)), RATE, start, 1.0))


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
        content, first = mp3(sound(20 * RATE, channels), RATE, "CONSTANT")
        size = 16320 - 10  # sound begins in the last bytes of a block, so that what was read at the call does not hide what follows
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
            np.testing.assert_array_equal(part, slice_of(whole, RATE, start, 0.2))


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
    # The number of samples, 36 bits of STREAMINFO: 0 is an unknown one, so that all frames are decoded to count them.
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
