# SPDX-License-Identifier: Apache-2.0
"""Audio operators against DALI's. Errors are relative to the largest element: 1e-6 where only the order of float additions differs."""

from typing import Any

import numpy as np
import pytest
from _dali import assert_alike, with_dtype
from _raises import Raises, raising

EXACT = 2e-6
# DALI computes the mel filters in float32: a bin close to a corner of a filter differs.
MEL = 4e-5
# DALI reads its sinc from a table with 64 entries per lobe, 3e-4, and computes positions in float32, off by up to 1 / 500 of an element.
SINC, SINC_BETWEEN = 5e-4, 1e-2


def noise(*shape: int, low: float = -1, high: float = 1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def assert_near(program: Any, tolerance: float, raises: Raises | None = None) -> None:
    if (results := assert_alike(program, raises)) is not None:
        for ours, theirs in zip(results[0].samples, results[1].samples, strict=True):
            value, other = ours.astype(np.float64), theirs.astype(np.float64)
            finite = np.isfinite(other)
            np.testing.assert_array_equal(value[~finite], other[~finite])
            scale = np.abs(other[finite]).max(initial=1e-30)
            assert np.abs(value[finite] - other[finite]).max(initial=0) <= tolerance * scale + (1 if ours.dtype.kind in "iu" else 0)


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"nfft": 1024},
        raising(RuntimeError, {"nfft": 64}),
        {"window_length": 100, "window_step": 33},
        {"window_length": 101, "window_step": 33, "reflect_padding": False},
        {"window_length": 400, "nfft": 512, "window_step": 160, "power": 1},
        {"window_length": 77, "nfft": 77, "window_step": 30},
        {"window_length": 3000},
        {"window_length": 3000, "reflect_padding": False},
        {"center_windows": False},
        {"center_windows": False, "window_length": 2000},
        raising(RuntimeError, {"center_windows": False, "window_length": 4000}),
        {"layout": "tf"},
        raising(RuntimeError, {"layout": "xx"}),
        raising(RuntimeError, {"layout": "TF"}),
        {"window_fn": [1.0] * 512},
        {"window_fn": [0.1 * k for k in range(64)], "window_length": 64},
        raising(RuntimeError, {"window_fn": [1.0] * 5}),
        raising(RuntimeError, {"window_length": 0}),
        raising(RuntimeError, {"window_step": 0}),
        raising(RuntimeError, {"power": 3}),
        raising(RuntimeError, {"nfft": 0}),
    ],
)
def test_arguments_of_spectrogram(args: dict[str, Any], raises: Raises | None) -> None:
    assert_near(lambda m: m.spectrogram(m.tensor(noise(2000)), **args), EXACT, raises=raises)


@pytest.mark.parametrize(
    "shape", [(2000,), (2000, 1), (1, 2000), (1, 1, 2000), raising(RuntimeError, (2, 1000)), raising(RuntimeError, (0,)), (1,), (2,)]
)
def test_spectrogram_of_shapes(shape: tuple[int, ...], raises: Raises | None) -> None:
    assert_near(lambda m: m.spectrogram(m.tensor(noise(*shape))), EXACT, raises=raises)


def test_spectrogram_of_a_ragged_batch() -> None:
    signals = [noise(n, seed=n) for n in (500, 2000, 1234)]
    for layout in ("ft", "tf"):
        assert_near(lambda m, layout=layout: m.spectrogram(m.batch(signals), window_length=64, window_step=20, layout=layout), EXACT)
    assert_near(lambda m: m.spectrogram(m.batch([signal.astype(np.int16) for signal in signals])), EXACT, raises=RuntimeError)


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"mel_formula": "htk"},
        {"normalize": False},
        {"nfilter": 40, "sample_rate": 16000.0, "freq_low": 20.0, "freq_high": 7600.0},
        {"nfilter": 80, "mel_formula": "htk", "normalize": False, "sample_rate": 8000.0},
        {"nfilter": 1},
        {"freq_high": -1.0},
        {"nfilter": 10, "sample_rate": 16000.0, "freq_high": 8500.0},
        raising(RuntimeError, {"nfilter": 0}),
        raising(RuntimeError, {"sample_rate": 0.0}),
        raising(RuntimeError, {"freq_low": 5000.0, "freq_high": 4000.0}),
        raising(RuntimeError, {"freq_low": -5.0}),
        raising(RuntimeError, {"freq_high": 50000.0}),
        raising(RuntimeError, {"mel_formula": "x"}),
    ],
)
def test_mel_filter_bank(args: dict[str, Any], raises: Raises | None) -> None:
    spectra = noise(257, 70, low=0) ** 2
    assert_near(lambda m: m.mel_filter_bank(m.tensor(spectra), **args), MEL, raises=raises)
    assert_near(lambda m: m.mel_filter_bank(m.tensor(np.ascontiguousarray(spectra.T), layout="tf"), **args), MEL, raises=raises)


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((257,), None),
        ((257,), "f"),
        ((257, 8), "ft"),
        raising(RuntimeError, (257, 8), "xx"),
        ((2, 257, 8), None),
        ((2, 8, 257), "ctf"),
        ((8, 257, 2), "tfc"),
        ((1, 2, 257, 3), None),
    ],
)
def test_mel_filter_bank_of_shapes(shape: tuple[int, ...], layout: str | None, raises: Raises | None) -> None:
    assert_near(lambda m: m.mel_filter_bank(m.tensor(noise(*shape, low=0), layout=layout), nfilter=60), MEL, raises=raises)


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("lifter", [0.0, 22.0, -2.0])
def test_mfcc_of_every_dct_type(kind: int, normalize: bool, lifter: float) -> None:
    raises = RuntimeError if kind not in (1, 2, 3, 4) or (kind == 1 and normalize) else None
    assert_near(lambda m: m.mfcc(m.tensor(noise(40, 9)), dct_type=kind, normalize=normalize, lifter=lifter), 4e-6, raises=raises)


@pytest.mark.parametrize(
    "args",
    [{"n_mfcc": 100}, {"n_mfcc": 1}, raising(RuntimeError, {"n_mfcc": 0}), {"axis": 1}, {"axis": 2, "n_mfcc": 5}, raising(RuntimeError, {"axis": 3})],
)
def test_mfcc_axis_and_number(args: dict[str, Any], raises: Raises | None) -> None:
    assert_near(lambda m: m.mfcc(m.tensor(noise(3, 30, 8), layout="cft"), **args), 4e-6, raises=raises)


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"multiplier": 20.0, "reference": 5.0, "cutoff_db": -3.0},
        {"multiplier": -10.0},
        {"reference": 1.0},
        {"reference": -1.0},
        {"cutoff_db": -20.0},
        {"cutoff_db": 20.0},
        {"cutoff_db": -1000.0, "reference": 1.0},
        {"cutoff_db": -99.0, "multiplier": 2.0},
        {"multiplier": 0.0},
    ],
)
def test_to_decibels(args: dict[str, Any]) -> None:
    for values in (noise(60, 70, low=0), np.zeros(3, np.float32), -noise(5, low=0), np.array([1, np.nan, 4, np.inf, 0, -1], np.float32), noise(0, 3)):
        assert_near(lambda m, values=values: m.to_decibels(m.tensor(values), **args), EXACT)


@pytest.mark.parametrize("border", ["zero", "clamp", "reflect", raising(RuntimeError, "wrap")])
@pytest.mark.parametrize(
    ("source", "target"), [("float32", None), ("float32", "int16"), ("int16", None), ("int16", "int16"), ("uint8", "uint8"), ("int32", "float64")]
)
def test_preemphasis_filter(border: str, source: str, target: str | None, raises: Raises | None) -> None:
    values = (noise(5000) * 100 + (100 if source == "uint8" else 0)).astype(source)
    args = {"border": border, **({} if target is None else {"dtype": target})}
    assert_near(lambda m: m.preemphasis_filter(m.tensor(values), preemph_coeff=0.9, **with_dtype(m, args)), EXACT, raises=raises)
    coefficients = [np.float32(c) for c in (0.0, 0.97, -1.5)]
    rows = [values[:n].reshape(2, -1) for n in (10, 400, 3000)]
    assert_near(lambda m: m.preemphasis_filter(m.batch(rows), preemph_coeff=m.batch(coefficients), **with_dtype(m, args)), EXACT, raises=raises)


@pytest.mark.parametrize("dtype", ["float32", "int16", "int8", "uint8"])
@pytest.mark.parametrize(
    "args",
    [
        {},
        {"window_length": 1},
        {"cutoff_db": -10.0},
        {"cutoff_db": 10.0},
        {"reference_power": 100.0},
        raising(RuntimeError, {"reference_power": -1.0}),
        {"window_length": 128, "cutoff_db": -30.0},
    ],
)
def test_nonsilent_region(dtype: str, args: dict[str, Any], raises: Raises | None) -> None:
    """Every window is summed separately, because DALI's running sum in float32 drifts."""
    loud = noise(2000) * 100
    signals = [np.concatenate([np.zeros(a), loud[:n], np.zeros(b)]).astype(dtype) for a, n, b in ((3000, 2000, 5000), (10, 50, 3), (500, 1999, 0))]
    reset = args.get("window_length", 2048)
    for k in (0, 1):
        assert_near(lambda m, k=k: m.nonsilent_region(m.batch(signals), reset_interval=reset, **args)[k], 0.0, raises=raises)


@pytest.mark.parametrize(
    ("args", "tolerance"),
    [
        ({"scale": 2.0}, SINC),
        ({"scale": 0.5}, EXACT),
        ({"scale": 2.0, "quality": 0.0}, 5e-3),
        ({"scale": 2.0, "quality": 100.0}, SINC),
        ({"scale": 1.2345}, SINC_BETWEEN),
        ({"in_rate": 44100.0, "out_rate": 16000.0}, SINC_BETWEEN),
        ({"in_rate": 3.0, "out_rate": 0.7}, SINC_BETWEEN),
        ({"out_length": 777}, SINC_BETWEEN),
        ({"out_length": 0}, 0.0),
        ({"scale": 0.0}, 0.0),
        ({"scale": 0.0001}, EXACT),
        raising(RuntimeError, {"scale": -1.0}, 0.0),
        raising(RuntimeError, {"scale": float("nan")}, 0.0),
        raising(RuntimeError, {"scale": 2.0, "quality": 101.0}, 0.0),
        raising(RuntimeError, {"in_rate": 44100.0}, 0.0),
        raising(RuntimeError, {"in_rate": 0.0, "out_rate": 1.0}, 0.0),
        raising(RuntimeError, {}, 0.0),
        raising(RuntimeError, {"scale": 1.0, "out_length": 3}, 0.0),
    ],
)
def test_audio_resample(args: dict[str, Any], tolerance: float, raises: Raises | None) -> None:
    for signal in (noise(3001), noise(700, 2)):
        assert_near(lambda m, signal=signal: m.audio_resample(m.tensor(signal), **args), tolerance, raises=raises)


RATES = [(22050, 48000), (44100, 16000), (8000, 11025), (11025, 48000), (44100, 48000), (3, 7)]


def test_audio_resample_lengths() -> None:
    """In double, from rates in float32: alone, in a dense and in a ragged batch."""
    lengths = [1, 2, 7, 10, 20, 100, 441, 1000, 44100, *np.random.default_rng(0).integers(1, 100000, 12).tolist()]
    programs: list[Any] = [{"in_rate": float(a), "out_rate": float(b)} for a, b in RATES]
    programs += [{"scale": scale} for scale in (1.2, 0.5, 0.1, 1.1, 48000 / 22050, 1 / 3, 1.0000001, 2.7)]
    for args in programs:
        assert_alike(lambda m, args=args: m.audio_resample(m.batch([np.zeros(n, np.float32) for n in lengths]), quality=0, **args))
        for n in (10, 441, 44100):
            assert_alike(lambda m, n=n, args=args: m.audio_resample(np.zeros(n, np.float32), quality=0, **args))
            assert_alike(lambda m, n=n, args=args: m.audio_resample(m.batch([np.zeros(n, np.float32)] * 2), quality=0, **args))
    long = [np.zeros(n, np.int8) for n in (3000001, 2999999, 16777217)]
    assert_alike(lambda m: m.audio_resample(m.batch(long), in_rate=22050.0, out_rate=4800.0, quality=0))


def test_audio_resample_of_each_sample() -> None:
    signals = [noise(n, seed=n) for n in (300, 441, 1000)]
    rates = [np.float32(rate) for rate in (8000, 16000, 48000)]
    assert_near(lambda m: m.audio_resample(m.batch(signals), in_rate=m.batch(rates), out_rate=16000.0), SINC_BETWEEN)
    assert_near(lambda m: m.audio_resample(m.batch(signals), scale=m.batch([np.float32(s) for s in (0.5, 1.0, 2.0)])), SINC)
    assert_near(lambda m: m.audio_resample(m.batch(signals), out_length=m.batch([np.int64(s) for s in (600, 0, 2000)])), SINC)


@pytest.mark.parametrize("source", ["float32", "uint8", "int8", "uint16", "int16", "uint32", "int32"])
@pytest.mark.parametrize("target", [None, "float32", "uint8", "int16", "uint16", "int32"])
def test_audio_resample_types(source: str, target: str | None) -> None:
    limits = np.iinfo(source) if source != "float32" else None
    values = noise(200) * 0.5 if limits is None else np.random.default_rng(0).integers(limits.min // 2, limits.max // 2, 200).astype(source)
    args = {} if target is None else {"dtype": target}
    assert_near(lambda m: m.audio_resample(m.tensor(values), scale=2.0, **with_dtype(m, args)), SINC)


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"axis": 0},
        {"axis": 1},
        raising(RuntimeError, {"axis": 3}),
        {"axis": 1, "nfft": 16},
        {"axis": 1, "nfft": 64},
        {"axis": 1, "nfft": 33},
        {"nfft": -1},
        {"power": 1},
        raising(RuntimeError, {"power": 3}),
    ],
)
def test_power_spectrum(args: dict[str, Any], raises: Raises | None) -> None:
    assert_near(lambda m: m.power_spectrum(m.tensor(noise(6, 32, 4), layout="abc"), **args), EXACT, raises=raises)


@pytest.mark.parametrize("length", [3, 4, 999, 1000, 2003, 44100])
def test_power_spectrum_of_one_signal(length: int) -> None:
    assert_near(lambda m: m.power_spectrum(m.tensor(noise(length))), EXACT)
