# SPDX-License-Identifier: Apache-2.0
import math
from typing import Any

import numpy as np
import pytest
import torch
from _cases import Case, Each, arrays
from _mutations import resident_kilobytes

import torch_ndd as ndd


def spectrum(values: np.ndarray, axis: int = -1, nfft: int | None = None, power: int = 2) -> np.ndarray:
    return (np.abs(np.fft.rfft(values.astype(np.float64), nfft, axis=axis)) ** power).astype(np.float32)


def region(signal: np.ndarray, cutoff_db: float = -60.0, reference_power: float = 0.0, window_length: int = 2048) -> tuple[Any, Any]:
    """The reference: every window separately."""
    window = min(window_length, len(signal))
    powers = np.lib.stride_tricks.sliding_window_view(signal.astype(np.float64) ** 2, window).mean(1)
    loud = np.flatnonzero(powers >= (reference_power or powers.max()) * 10 ** (cutoff_db / 10))
    return (np.int32(0), np.int32(0)) if not len(loud) else (np.int32(loud[0]), np.int32(loud[-1] + window - loud[0]))


def resample_reference(
    signal: np.ndarray,
    scale: float | None = None,
    in_rate: float = 1.0,
    out_rate: float | None = None,
    out_length: int | None = None,
    quality: float = 50.0,
    antialias: bool = False,
    dtype: torch.dtype | None = None,
) -> np.ndarray:
    """The docstring's sum in float64."""
    length, info = len(signal), np.iinfo(signal.dtype) if signal.dtype.kind in "iu" else None
    values, made_dtype = signal.astype(np.float64), np.dtype(str(dtype).removeprefix("torch.")) if dtype else signal.dtype
    if info is not None and made_dtype != signal.dtype:
        values = values / info.max if info.min else 2 * values / info.max - 1
    if out_length is None:
        before, after = (float(np.float32(rate)) for rate in (in_rate, scale if out_rate is None else out_rate))
        out_length, ratio = math.ceil(length * after / before), before / after
    else:
        ratio = length / max(1, out_length)
    lobes = round(0.007 * quality * quality - 0.09 * quality + 3)
    stretch = max(1.0, ratio) if antialias else 1.0
    x = (np.arange(length)[None] - np.arange(out_length)[:, None] * ratio) / stretch
    weights, inside = np.zeros_like(x), np.abs(x) < lobes
    near = x[inside]
    weights[inside] = np.sinc(near) * 0.5 * (1 + np.cos(np.pi * near / lobes)) / stretch
    output = weights @ values
    if made_dtype.kind in "iu":
        limits = np.iinfo(made_dtype)
        output = np.clip(np.copysign(np.floor(np.abs(output) + 0.5), output), limits.min, limits.max)
    return output.astype(made_dtype)


def with_silence(length: int = 400, dtype: str = "float32") -> Any:
    """Noise between two silences."""

    def make(ragged: bool) -> tuple[list[np.ndarray], ...]:
        generator = np.random.default_rng(3)
        samples = []
        for i in range(3):
            values = generator.uniform(-100, 100, length + 17 * i * ragged)
            values[: 60 + 31 * i] *= 1e-4
            values[-50 - i :] = 0
            samples.append(values.astype(dtype))
        return (samples,)

    return make


def signals(length: int = 200, dtype: str = "float32", low: float = -1, high: float = 1) -> Any:
    return arrays((length,), dtype, axes=[0], low=low, high=high)


CASES = [
    Case("power_spectrum", "last axis", arrays((4, 60), "float32", axes=[0], high=1), {}, reference=spectrum, tolerance=1e-3),
    Case(
        "power_spectrum",
        "different lengths",
        arrays((3, 30, 2), "float32", axes=[1], high=1),
        {"axis": 1, "power": 1},
        reference=spectrum,
        tolerance=1e-5,
    ),
    Case("power_spectrum", "nfft", arrays((20, 30), "float32", axes=[0, 1], high=1), {"axis": -2, "nfft": 32}, reference=spectrum, tolerance=1e-4),
    *[
        Case(
            "power_spectrum", f"transforms of {length}", arrays((length,), "float32", axes=[], low=-1, high=1), {}, reference=spectrum, tolerance=1e-3
        )
        for length in (121, 338)  # radices 11 and 13
    ],
    Case("nonsilent_region", "short windows", with_silence(), {"window_length": 10, "cutoff_db": -30.0}, reference=region),
    Case("nonsilent_region", "long windows", with_silence(), {"window_length": 64}, reference=region),
    Case(
        "nonsilent_region",
        "reference",
        with_silence(dtype="int16"),
        {"window_length": 33, "reference_power": 3000.0, "cutoff_db": -3.0},
        reference=region,
    ),
    Case("nonsilent_region", "longer than the signal", with_silence(), {}, reference=region),
    Case(
        "audio_resample",
        "rates",
        signals(),
        {"in_rate": 44100.0, "out_rate": Each([16000.0, 48000.0, 22050.0])},
        reference=resample_reference,
        tolerance=1e-5,
    ),
    Case(
        "audio_resample",
        "rates of the input",
        signals(),
        {"in_rate": Each([3.0, 2.0, 1.0]), "out_rate": 2.0},
        reference=resample_reference,
        tolerance=1e-5,
    ),
    Case(
        "audio_resample",
        "scale, two channels",
        arrays((150, 2), "float32", axes=[0], low=-1, high=1),
        {"scale": Each([0.7, 1.2345, 2.0]), "quality": 80.0},
        reference=resample_reference,
        tolerance=1e-5,
    ),
    Case("audio_resample", "many periods", signals(2500), {"in_rate": 16000.0, "out_rate": 44100.0}, reference=resample_reference, tolerance=1e-5),
    Case("audio_resample", "many periods of int16", signals(2000, "int16", -20000, 20000), {"scale": 2.0}, reference=resample_reference, tolerance=1),
    Case(
        "audio_resample",
        "many periods of three channels",
        arrays((1500, 3), "float32", axes=[0], low=-1, high=1),
        {"scale": Each([0.5, 1.5, 2.0])},
        reference=resample_reference,
        tolerance=1e-5,
    ),
    Case("audio_resample", "length", signals(), {"out_length": Each([77, 331, 400]), "quality": 0.0}, reference=resample_reference, tolerance=1e-5),
    Case("audio_resample", "antialias", signals(), {"scale": 0.3, "antialias": True}, reference=resample_reference, tolerance=1e-5),
    Case("audio_resample", "int16", signals(200, "int16", -20000, 20000), {"scale": 1.5}, reference=resample_reference, tolerance=1),
    Case(
        "audio_resample",
        "uint8 to float32",
        signals(200, "uint8", 0, 256),
        {"scale": 0.75, "dtype": torch.float32},
        reference=resample_reference,
        tolerance=1e-5,
    ),
]


@pytest.mark.parametrize("length", [1, 2, 16, 33, 64, 91, 97, 143, 286, 509, 512, 1009, 1331])
@pytest.mark.parametrize("count", [2, 5, 17, 40])
def test_power_spectra_of_many_short_signals(length: int, count: int) -> None:
    """Signals that are samples, rows of a sample or side by side in one are transformed in groups, whose sizes do not divide their number."""
    signals = np.random.default_rng(length).uniform(-1, 1, (count, length)).astype(np.float32)
    expected = np.abs(np.fft.rfft(signals.astype(np.float64))) ** 2
    samples = ndd.power_spectrum(ndd.as_batch(signals)).torch().numpy()
    rows = ndd.power_spectrum(ndd.tensor(signals), axis=1).torch().numpy()
    columns = ndd.power_spectrum(ndd.tensor(signals.T.copy()), axis=0).torch().numpy().T
    for output in (samples, rows, columns):
        np.testing.assert_allclose(output, expected, rtol=0, atol=2e-6 * expected.max())


def test_power_spectra_of_pending_signals() -> None:
    signals = torch.rand(50, 200)
    expected = ndd.power_spectrum(ndd.as_batch(ndd.preemphasis_filter(ndd.as_batch(signals)).torch())).torch()
    with ndd.EvalMode.deferred:
        spectra = ndd.power_spectrum(ndd.preemphasis_filter(ndd.as_batch(signals)))
        last, total = spectra.select(49), ndd.reductions.sum(spectra, axes=[0])
        assert torch.equal(last.torch(), expected[49])
        torch.testing.assert_close(total.torch().reshape(-1), expected.sum(1))
        assert torch.equal(spectra.torch(), expected)


@pytest.mark.parametrize("length", [1, 2, 3, 50, 97, 1000, 1021, 4096, 10007, 2 * 2187, 30_000, 2 * 16_807, 64_000, 131_072, 100_003])
def test_power_spectrum_of_one_long_signal(length: int) -> None:
    signal = np.random.default_rng(length).uniform(-1, 1, length).astype(np.float32)
    expected = spectrum(signal)
    np.testing.assert_allclose(ndd.power_spectrum(ndd.tensor(signal)).torch().numpy(), expected, rtol=0, atol=2e-6 * expected.max())


def test_silence_behind_a_noise_is_silent() -> None:
    """Signals for which a running sum would fail."""
    signal = torch.cat([torch.full((3000,), 1e4), torch.full((5000,), 1e-3)])
    begin, length = ndd.nonsilent_region(signal, window_length=100, cutoff_db=-100.0)
    assert (begin.item(), length.item()) == (0, 3099)


def test_nan_is_silent_where_it_is() -> None:
    signal = torch.zeros(1000)
    signal[100] = math.nan
    signal[500:600] = 1
    begin, length = ndd.nonsilent_region(signal, window_length=10)
    assert (begin.item(), length.item()) == (491, 118)
    assert [number.item() for number in ndd.nonsilent_region(torch.full((5000,), math.nan))] == [0, 0]


def test_region_of_nothing() -> None:
    assert [number.item() for number in ndd.nonsilent_region(torch.zeros(0))] == [0, 0]
    assert [number.item() for number in ndd.nonsilent_region(torch.zeros(100))] == [0, 100]  # as loud as its loudest window, as in DALI
    assert [number.item() for number in ndd.nonsilent_region(torch.ones(3000), cutoff_db=10.0)] == [0, 0]


@pytest.mark.parametrize("window", [1, 2, 7, 8, 9, 15, 16, 17, 64, 100, 333, 999, 1000])
def test_windows_of_any_length(window: int) -> None:
    generator = np.random.default_rng(window)
    for cutoff in (-1.0, -6.0, -20.0):
        signal = (generator.uniform(-1, 1, 1000) * np.sin(np.linspace(0, 9, 1000)) ** 4).astype(np.float32)
        begin, length = ndd.nonsilent_region(ndd.tensor(signal), window_length=window, cutoff_db=cutoff)
        assert (begin.item(), length.item()) == region(signal, cutoff, 0.0, window)


def test_antialiasing_equals_soxr() -> None:
    """A chirp from 44100 to 16000 Hz. The filters differ near 8 kHz, so only frequencies clearly below are compared; those above must vanish."""
    time = np.arange(44100) / 44100
    kept = np.sin(2 * np.pi * 3000 * time**2).astype(np.float32)  # up to 6 kHz
    removed = np.sin(2 * np.pi * 15000 * time).astype(np.float32)
    output = ndd.audio_resample(ndd.tensor(kept + removed), in_rate=44100.0, out_rate=16000.0, antialias=True, quality=80.0).torch().numpy()
    expected = pytest.importorskip("soxr").resample(kept, 44100, 16000, quality="VHQ")
    assert output.shape == expected.shape
    assert np.abs(output - expected)[200:-200].max() < 2e-3
    folded = ndd.audio_resample(ndd.tensor(kept + removed), in_rate=44100.0, out_rate=16000.0).torch().numpy()
    assert np.abs(folded - expected)[200:-200].max() > 0.5


def test_upsampling_equals_soxr() -> None:
    time = np.arange(16000) / 16000
    signal = np.sin(2 * np.pi * 2000 * time**2).astype(np.float32)  # up to 4 kHz
    output = ndd.audio_resample(ndd.tensor(signal), in_rate=16000.0, out_rate=44100.0).torch().numpy()
    expected = pytest.importorskip("soxr").resample(signal, 16000, 44100, quality="VHQ")
    assert np.abs(output - expected)[200:-200].max() < 1e-3


def test_ratio_that_is_not_a_fraction() -> None:
    signal = np.random.default_rng(0).uniform(-1, 1, 5000).astype(np.float32)
    output = ndd.audio_resample(ndd.tensor(signal), scale=math.pi / 3).torch().numpy()
    np.testing.assert_allclose(output, resample_reference(signal, math.pi / 3), rtol=0, atol=5e-6)


@pytest.mark.parametrize("ratio", [33.37, 100.0, 100.37, 1500.19])
def test_large_ratios_are_filtered(ratio: float) -> None:
    signal = np.random.default_rng(0).uniform(-1, 1, 9000).astype(np.float32)
    output = ndd.audio_resample(ndd.tensor(signal), scale=1 / ratio, antialias=True).torch().numpy()
    np.testing.assert_allclose(output, resample_reference(signal, float(np.float32(1 / ratio)), antialias=True), rtol=0, atol=2e-6)


def test_filters_of_large_ratios_take_bounded_memory() -> None:
    signal = ndd.tensor(np.ones(20000, np.float32))
    before = resident_kilobytes()
    for k in range(8):
        ndd.audio_resample(signal, scale=1 / (8000.19 + k), quality=100.0, antialias=True).evaluate()
    assert resident_kilobytes() - before < 200_000


@pytest.mark.parametrize("rates", [{"in_rate": 1e9, "out_rate": 1.0}, {"scale": 1e-9}, {"in_rate": 8193.0, "out_rate": 1.0, "quality": 100.0}])
def test_ratio_too_large_for_antialias(rates: dict[str, float]) -> None:
    message = r"audio_resample: sample 0: antialias is for in_rate / out_rate up to (32768|8192) with this quality, got .*scale.*out_length"
    with pytest.raises(RuntimeError, match=message):
        ndd.audio_resample(torch.ones(1000), antialias=True, **rates).evaluate()
    assert ndd.audio_resample(torch.ones(1000), **rates).shape == (1,)


def test_lengths_of_results() -> None:
    def length(n: int, **args: Any) -> int:
        return ndd.audio_resample(torch.zeros(n), **args).shape[0]

    assert length(2001, in_rate=3.0, out_rate=1.0) == 667
    assert length(100, scale=0.0) == 0
    assert length(100, out_length=0) == 0
    assert length(0, scale=2.0) == 0
    assert length(2000, scale=0.0001) == 1


@pytest.mark.parametrize(
    ("word", "call"),
    [
        ("axis", lambda: ndd.power_spectrum(torch.zeros(3, 4), axis=2)),
        ("power", lambda: ndd.power_spectrum(torch.zeros(3, 4), power=3)),
        ("elements", lambda: ndd.power_spectrum(torch.zeros(3, 0))),
        ("float32", lambda: ndd.power_spectrum(torch.zeros(3, dtype=torch.float64))),
        ("one dimension", lambda: ndd.nonsilent_region(torch.zeros(3, 4))),
        ("window_length", lambda: ndd.nonsilent_region(torch.zeros(30), window_length=0)),
        ("reference_power", lambda: ndd.nonsilent_region(torch.zeros(30), reference_power=-1.0)),
        ("channels", lambda: ndd.audio_resample(torch.zeros(3, 4, 5), scale=2.0)),
        ("integer", lambda: ndd.audio_resample(torch.zeros(30, dtype=torch.int64), scale=2.0)),
        ("dtype", lambda: ndd.audio_resample(torch.zeros(30), scale=2.0, dtype=torch.int64)),
        ("quality", lambda: ndd.audio_resample(torch.zeros(30), scale=2.0, quality=101.0)),
        ("together", lambda: ndd.audio_resample(torch.zeros(30), in_rate=2.0)),
        ("either", lambda: ndd.audio_resample(torch.zeros(30))),
        ("either", lambda: ndd.audio_resample(torch.zeros(30), scale=1.0, out_length=3)),
        ("scale", lambda: ndd.audio_resample(torch.zeros(30), scale=-1.0)),
        ("scale", lambda: ndd.audio_resample(torch.zeros(30), scale=math.nan)),
        ("in_rate", lambda: ndd.audio_resample(torch.zeros(30), in_rate=0.0, out_rate=1.0)),
        ("out_length", lambda: ndd.audio_resample(torch.zeros(30), out_length=-1)),
        ("out_length", lambda: ndd.audio_resample(torch.zeros(0), out_length=4)),
    ],
)
def test_bad_arguments_are_rejected(word: str, call: Any) -> None:
    with pytest.raises(RuntimeError, match=word):
        call()
