# SPDX-License-Identifier: Apache-2.0
import io

import numpy as np
import pytest
import torch
from _cases import Case, Each, Inputs, Samples

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


def resampled(file: np.ndarray, sample_rate: float, quality: float = 50, **options: object) -> tuple[np.ndarray, np.float32]:
    samples, rate = reference(file, **options)
    return interpolated(samples.astype(np.float64), sample_rate / float(rate), quality).astype(np.float32), np.float32(sample_rate)


def interpolated(samples: np.ndarray, ratio: float, quality: float) -> np.ndarray:
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
        reference=resampled,
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
    expected, _ = resampled(file, rate, quality)
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


def decoded(file: bytes | np.ndarray, **options: object) -> np.ndarray:
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
    whole, cut = decoded(content), decoded(content[first:])
    a_frame = 1152 if rate > 24000 else 576
    assert len(whole) == 88_200
    assert len(cut) % a_frame == 0
    assert 0 <= len(cut) - 88_200 - 1105 < 2 * a_frame  # 1105: the delay of encoder and decoder, which the length tells
    np.testing.assert_array_equal(cut[1105 : 1105 + 80_000], whole[:80_000])
    later = decoded(content[len(content) // 3 :])  # it begins within a frame
    assert len(later) % a_frame == 0
    np.testing.assert_allclose(later[-20_000:], cut[-20_000:], atol=1e-6)
    tagged = b"ID3\x04\0\0\0\0\0\x0a" + bytes(10) + content[first:] + b"TAG" + bytes(125)
    np.testing.assert_array_equal(decoded(tagged), cut)
    interrupted = content[first:] + bytes(300) + content[first:]
    assert len(decoded(interrupted)) >= len(cut)
    with pytest.raises(RuntimeError, match="not a sound of a supported format"):
        decoded(content[first : first + 3])


def test_lengths_that_wav_au_and_caf_files_lack() -> None:
    samples = sound(3000)
    expected = decoded(encode(samples))
    wav, au, caf = (encode(samples, container).tobytes() for container in ("WAV", "AU", "CAF"))
    at = wav.index(b"data") + 4
    for size in (bytes(4), b"\xff" * 4):
        np.testing.assert_array_equal(decoded(wav[:4] + size + wav[8:at] + size + wav[at + 4 :]), expected)
        np.testing.assert_array_equal(decoded(au[:8] + size + au[12:]), expected)
    at = caf.index(b"data") + 4
    np.testing.assert_array_equal(decoded(caf[:at] + b"\xff" * 8 + caf[at + 8 :]), expected)
    empty = encode(np.zeros((0, 2))).tobytes()
    assert decoded(empty).shape == (0, 2)
    assert decoded(empty + b"LIST\4\0\0\0abcd").shape == (0, 2)


@pytest.mark.parametrize("dtype", [ndd.float32, ndd.int16], ids=str)
def test_frames_of_a_flac_without_a_length_are_counted(dtype: torch.dtype) -> None:
    content = bytearray(encode(sound(70_000), "FLAC"))
    expected = decoded(content, dtype=dtype)
    content[21] &= 0xF0
    content[22:26] = bytes(4)
    np.testing.assert_array_equal(decoded(content, dtype=dtype), expected)


def test_max_sample_bytes_bounds_a_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    file = encode(sound(1000))
    assert decoded(file, max_sample_bytes=8000).shape == (1000, 2)
    text = r"sample 0: a sound of 1000 frames of 2 channels at 16000 Hz has 8000 bytes, more than max_sample_bytes=7999, .*TORCH_NDD_MAX_SAMPLE_BYTES"
    with pytest.raises(RuntimeError, match=text):
        decoded(file, max_sample_bytes=7999)
    assert decoded(file, max_sample_bytes=4000, dtype=ndd.int16).shape == (1000, 2)
    with pytest.raises(RuntimeError, match="has 16000 bytes, more than max_sample_bytes=8000"):
        decoded(file, max_sample_bytes=8000, sample_rate=32000.0)
    with pytest.raises(RuntimeError, match="more than max_sample_bytes=4294967296"):
        decoded(encode(sound(9000)), sample_rate=2e9)
    monkeypatch.setenv("TORCH_NDD_MAX_SAMPLE_BYTES", "7999")
    with pytest.raises(RuntimeError, match=text):
        decoded(file)
    with pytest.raises(ValueError, match=r"decoders\.audio: max_sample_bytes must be positive, got 0"):
        decoded(file, max_sample_bytes=0)


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
        whole = decoded(file)
        for start in (0.5, 1.5, 2.0):
            part = decoded(file, start=start, duration=0.25)
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
