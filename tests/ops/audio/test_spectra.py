# SPDX-License-Identifier: Apache-2.0
import math
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.signal
import torch
from _cases import Case, Each, arrays

import torch_ndd as ndd


def signals(length: int = 300, dtype: str = "float32", low: float = -1, high: float = 1) -> Any:
    return arrays((length,), dtype, axes=[0], low=low, high=high)


def short_time_spectra(
    signal: np.ndarray,
    nfft: int | None = None,
    window_length: int = 512,
    window_step: int = 256,
    power: int = 2,
    center_windows: bool = True,
    reflect_padding: bool = True,
    window_fn: list[float] | None = None,
    layout: str = "ft",
) -> np.ndarray:
    """The reference, in NumPy with float64."""
    signal = signal.reshape(-1).astype(np.float64)
    if center_windows:
        half = window_length // 2
        mode: Any = "reflect" if reflect_padding else "constant"
        signal = np.pad(signal, (half, window_length), mode=mode)
        windows = (len(signal) - window_length - half) // window_step + 1
    else:
        windows = (len(signal) - window_length) // window_step + 1
    factors = np.asarray(window_fn if window_fn else 0.5 - 0.5 * np.cos(2 * np.pi * (np.arange(window_length) + 0.5) / window_length))
    framed = np.stack([signal[t * window_step :][:window_length] * factors for t in range(windows)])
    spectra = (np.abs(np.fft.rfft(framed, nfft or window_length)) ** power).astype(np.float32)
    return spectra.T if layout == "ft" else spectra


def mel_bands(
    spectrum: np.ndarray,
    axis: int = 0,
    nfilter: int = 128,
    sample_rate: float = 44100.0,
    freq_low: float = 0.0,
    freq_high: float = 0.0,
    mel_formula: str = "slaney",
    normalize: bool = True,
) -> np.ndarray:
    """Return the filters at all frequencies, from the published scales."""

    def slaney(hertz: Any) -> Any:
        return np.where(hertz < 1000, 3 * hertz / 200, 15 + 27 * np.log(np.maximum(hertz, 1) / 1000) / np.log(6.4))

    def htk(hertz: Any) -> Any:
        return 2595 * np.log10(1 + hertz / 700)

    scale = htk if mel_formula == "htk" else slaney
    grid = np.linspace(0, sample_rate / 2, 400001)  # to invert the scale
    low, high = scale(np.float64(freq_low)), scale(np.float64(freq_high or sample_rate / 2))
    corners = np.interp(np.linspace(low, high, nfilter + 2), scale(grid), grid)[:, None]
    hertz = np.linspace(0, sample_rate / 2, spectrum.shape[axis])
    rising, falling = (hertz - corners[:-2]) / np.diff(corners, axis=0)[:-1], (corners[2:] - hertz) / np.diff(corners, axis=0)[1:]
    filters = np.maximum(0, np.minimum(rising, falling)) * (2 / (corners[2:] - corners[:-2]) if normalize else 1)
    return np.moveaxis(np.tensordot(filters, spectrum.astype(np.float64), (1, axis)), 0, axis).astype(np.float32)


def cepstrum(bands: np.ndarray, axis: int = 0, dct_type: int = 2, n_mfcc: int = 20, normalize: bool = False, lifter: float = 0.0) -> np.ndarray:
    """The reference, SciPy, whose transforms are twice the textbook's unless they are orthogonal."""
    output = np.asarray(scipy.fft.dct(bands.astype(np.float64), type=dct_type, axis=axis, norm="ortho" if normalize else None))
    output = output if normalize else output / 2
    output = np.moveaxis(output, axis, 0)[:n_mfcc]
    k = np.arange(len(output)).reshape(-1, *(1,) * (output.ndim - 1))
    lift = 1 + lifter / 2 * np.sin(np.pi * (k + 1) / lifter) if lifter else 1.0
    return np.moveaxis(output * lift, 0, axis).astype(np.float32)


def decibels(values: np.ndarray, multiplier: float = 10.0, reference: float = 0.0, cutoff_db: float = -200.0) -> np.ndarray:
    ratio = values.astype(np.float64) / (reference or values.max())
    return (multiplier * np.log10(np.maximum(10 ** (cutoff_db / multiplier), ratio))).astype(np.float32)


def emphasize_reference(values: np.ndarray, preemph_coeff: float = 0.97, border: str = "clamp", dtype: torch.dtype = torch.float32) -> np.ndarray:
    flat = values.astype(np.float64).reshape(-1)
    before = {"zero": 0.0, "clamp": flat[0], "reflect": flat[1]}[border]
    output, _ = scipy.signal.lfilter([1, -preemph_coeff], [1], flat, zi=[-preemph_coeff * before])
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        output = np.clip(np.copysign(np.floor(np.abs(output) + 0.5), output), limits.min, limits.max)
    return output.reshape(values.shape).astype(str(dtype).removeprefix("torch."))


CASES = [
    Case("spectrogram", "defaults", signals(1500), {}, reference=short_time_spectra, tolerance=1e-3, out_layout="ft"),
    Case(
        "spectrogram",
        "time first, magnitudes",
        signals(),
        {"window_length": 60, "window_step": 25, "layout": "tf", "power": 1, "nfft": 64},
        reference=short_time_spectra,
        tolerance=2e-5,
        out_layout="tf",
    ),
    Case(
        "spectrogram",
        "own window, zeros",
        signals(),
        {"window_length": 35, "window_step": 10, "window_fn": [0.5, *[1.0] * 33, 0.5], "reflect_padding": False},
        reference=short_time_spectra,
        tolerance=2e-4,
        out_layout="ft",
    ),
    Case(
        "spectrogram",
        "not centered",
        arrays((1, 300), "float32", axes=[1], low=-1, high=1),
        {"window_length": 64, "window_step": 16, "center_windows": False},
        reference=short_time_spectra,
        tolerance=2e-4,
        out_layout="ft",
    ),
    Case("mel_filter_bank", "slaney", arrays((257, 21), "float32", axes=[1], high=1), {"nfilter": 40}, reference=mel_bands, tolerance=1e-6),
    Case(
        "mel_filter_bank",
        "htk, time first",
        arrays((21, 129), "float32", axes=[0], high=1),
        {"mel_formula": "htk", "normalize": False, "nfilter": 40, "sample_rate": 16000.0, "freq_low": 100.0, "freq_high": 7000.0},
        layout="tf",
        reference=lambda x, **args: mel_bands(x, 1, **args),
        tolerance=1e-5,
    ),
    Case(
        "mel_filter_bank",
        "channels, different frequencies",
        arrays((2, 65, 5), "float32", axes=[1], high=1),
        {"nfilter": 10},
        reference=lambda x, **args: mel_bands(x, 1, **args),
        tolerance=1e-6,
    ),
    Case("mfcc", "defaults", arrays((40, 21), "float32", axes=[1], low=-1, high=1), {}, reference=cepstrum, tolerance=1e-5),
    *[
        Case(
            "mfcc",
            f"type {kind}",
            arrays((21, 30), "float32", axes=[0, 1], low=-1, high=1),
            {"dct_type": kind, "axis": 1, "n_mfcc": 31, "lifter": 22.0, "normalize": kind == 3},
            reference=cepstrum,
            tolerance=1e-4,
        )
        for kind in (1, 2, 3, 4)
    ],
    Case("to_decibels", "defaults", arrays((20, 30), "float32", high=100), {}, reference=decibels, tolerance=1e-5),
    Case(
        "to_decibels",
        "amplitudes",
        arrays((2500,), "float64", axes=[0], high=2),
        {"multiplier": 20.0, "reference": 1.5, "cutoff_db": -20.0},
        reference=decibels,
        tolerance=1e-5,
    ),
    Case("preemphasis_filter", "coefficients", signals(), {"preemph_coeff": Each([0.9, 0.0, -0.5])}, reference=emphasize_reference, tolerance=1e-6),
    Case(
        "preemphasis_filter",
        "int16",
        signals(3000, "int16", -30000, 30000),
        {"border": "reflect", "dtype": torch.int16, "preemph_coeff": 1.25},
        reference=emphasize_reference,
    ),
    Case("preemphasis_filter", "rows", arrays((4, 6), "float16", high=1), {"border": "zero"}, reference=emphasize_reference, tolerance=1e-6),
]


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 16, 49, 60, 77, 97, 121, 210, 441, 509, 512, 1022, 2048, 4099])
@pytest.mark.parametrize("layout", ["ft", "tf"])
def test_any_length_of_the_transform(length: int, layout: str) -> None:
    signal = np.random.default_rng(length).uniform(-1, 1, 2 * length + 40).astype(np.float32)
    args: dict[str, Any] = {"window_length": length, "window_step": max(1, length // 3), "layout": layout}
    output = ndd.spectrogram(ndd.tensor(signal), **args).torch().numpy()
    expected = short_time_spectra(signal, **args)
    np.testing.assert_allclose(output, expected, rtol=0, atol=2e-6 * expected.max())


def test_window_that_is_longer_than_the_signal_is_mirrored_repeatedly() -> None:
    signal = np.random.default_rng(0).uniform(-1, 1, 7).astype(np.float32)
    output = ndd.spectrogram(ndd.tensor(signal), window_length=64, window_step=3).torch().numpy()
    np.testing.assert_allclose(output, short_time_spectra(signal, window_length=64, window_step=3), rtol=0, atol=1e-4)


def test_pending_signal_is_transformed() -> None:
    signal = torch.linspace(-1, 1, 1000)
    with ndd.EvalMode.deferred:
        output = ndd.to_decibels(ndd.mel_filter_bank(ndd.spectrogram(ndd.copy(ndd.tensor(signal)))))
    assert torch.equal(output.torch(), ndd.to_decibels(ndd.mel_filter_bank(ndd.spectrogram(signal))).torch())


def test_equals_torch_stft() -> None:
    signal = torch.from_numpy(np.random.default_rng(1).uniform(-1, 1, (2, 4000)).astype(np.float32))
    window = torch.hann_window(400)
    expected = torch.stft(signal, 512, 160, 400, window, return_complex=True, pad_mode="reflect").abs() ** 2
    output = ndd.spectrogram(ndd.batch(signal), nfft=512, window_step=160, window_length=400, window_fn=window.tolist()).torch()
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("htk", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_equals_librosa(htk: bool, normalize: bool) -> None:
    librosa = pytest.importorskip("librosa")
    filters = librosa.filters.mel(sr=16000, n_fft=512, n_mels=40, fmin=50, fmax=7000, htk=htk, norm="slaney" if normalize else None)
    formula = "htk" if htk else "slaney"
    output = ndd.mel_filter_bank(
        torch.eye(257), nfilter=40, sample_rate=16000.0, freq_low=50.0, freq_high=7000.0, mel_formula=formula, normalize=normalize
    )
    np.testing.assert_allclose(output.torch().numpy(), filters, rtol=0, atol=1e-6 * filters.max())


def test_mel_filters_above_half_of_the_sampling_rate_are_empty() -> None:
    bands = ndd.mel_filter_bank(torch.ones(129, 3), nfilter=8, sample_rate=16000.0, freq_low=6000.0, freq_high=12000.0, normalize=False).torch()
    assert bands[0].min() > 0
    assert not bands[-3:].any()


def test_decibels_without_positive_elements() -> None:
    values = torch.tensor([1.0, math.nan, 100.0, 0.0, -1.0])
    assert ndd.to_decibels(values, cutoff_db=-80.0).torch().tolist() == [-20.0, -80.0, 0.0, -80.0, -80.0]
    assert ndd.to_decibels(torch.tensor([1.0, math.inf]), reference=1.0).torch().tolist() == [0.0, math.inf]
    for nothing in (torch.zeros(3), torch.full((3,), -2.0)):
        assert ndd.to_decibels(nothing, cutoff_db=-60.0).torch().tolist() == [-60.0] * 3
    assert ndd.to_decibels(torch.zeros(0, 4)).shape == (0, 4)


def test_decibels_of_silence_are_finite_with_any_cutoff() -> None:
    values = torch.tensor([0.0, 1e-30, 1.0])
    torch.testing.assert_close(ndd.to_decibels(values, cutoff_db=-1000.0).torch(), torch.tensor([-448.53473, -300.0, 0.0]))
    torch.testing.assert_close(ndd.to_decibels(values, cutoff_db=-99.0, multiplier=2.0).torch(), torch.tensor([-89.70694, -60.0, 0.0]))


@pytest.mark.parametrize(
    ("error", "word", "call"),
    [
        (RuntimeError, "float32", lambda: ndd.spectrogram(torch.zeros(100, dtype=torch.float64))),
        (RuntimeError, "channel", lambda: ndd.spectrogram(torch.zeros(100, 2))),
        (RuntimeError, "channel", lambda: ndd.spectrogram(ndd.batch([np.zeros((9, 2), np.float32), np.zeros((9, 1), np.float32)]))),
        (RuntimeError, "at least 1", lambda: ndd.spectrogram(torch.zeros(0))),
        (RuntimeError, "at least 512", lambda: ndd.spectrogram(torch.zeros(511), center_windows=False)),
        (RuntimeError, "nfft", lambda: ndd.spectrogram(torch.zeros(100), nfft=256)),
        (RuntimeError, "window_length", lambda: ndd.spectrogram(torch.zeros(100), window_length=0)),
        (RuntimeError, "window_step", lambda: ndd.spectrogram(torch.zeros(100), window_step=-1)),
        (RuntimeError, "power", lambda: ndd.spectrogram(torch.zeros(100), power=3)),
        (RuntimeError, "layout", lambda: ndd.spectrogram(torch.zeros(100), layout="TF")),
        (RuntimeError, "window_fn", lambda: ndd.spectrogram(torch.zeros(100), window_fn=[1.0])),
        (RuntimeError, "float32", lambda: ndd.mel_filter_bank(torch.zeros(9, 9, dtype=torch.int16))),
        (RuntimeError, '"f"', lambda: ndd.mel_filter_bank(ndd.tensor(torch.zeros(9, 9), layout="HW"))),
        (RuntimeError, "nfilter", lambda: ndd.mel_filter_bank(torch.zeros(9, 9), nfilter=0)),
        (RuntimeError, "sample_rate", lambda: ndd.mel_filter_bank(torch.zeros(9, 9), sample_rate=0.0)),
        (RuntimeError, "freq_high", lambda: ndd.mel_filter_bank(torch.zeros(9, 9), freq_high=45000.0)),
        (RuntimeError, "freq_high", lambda: ndd.mel_filter_bank(torch.zeros(9, 9), freq_high=math.nan)),
        (RuntimeError, "freq_low", lambda: ndd.mel_filter_bank(torch.zeros(9, 9), freq_low=-1.0)),
        (RuntimeError, "mel_formula", lambda: ndd.mel_filter_bank(torch.zeros(9, 9), mel_formula="bark")),
        (RuntimeError, "axis", lambda: ndd.mfcc(torch.zeros(9, 9), axis=2)),
        (RuntimeError, "dct_type", lambda: ndd.mfcc(torch.zeros(9, 9), dct_type=5)),
        (RuntimeError, "normalize", lambda: ndd.mfcc(torch.zeros(9, 9), dct_type=1, normalize=True)),
        (RuntimeError, "n_mfcc", lambda: ndd.mfcc(torch.zeros(9, 9), n_mfcc=0)),
        (RuntimeError, "dct_type", lambda: ndd.mfcc(torch.zeros(1, 9), dct_type=1).torch()),
        (RuntimeError, "border", lambda: ndd.preemphasis_filter(torch.zeros(9), border="wrap")),
    ],
)
def test_bad_arguments_are_rejected(error: type[Exception], word: str, call: Any) -> None:
    with pytest.raises(error, match=word):
        call()


def test_mfcc_with_a_nan_lifter() -> None:
    """Cosine tables are cached by their parameters, and NaN is equal to none of these."""
    bands = torch.ones(9, 4)
    assert ndd.mfcc(bands, lifter=0.0).torch().isfinite().all()
    assert ndd.mfcc(bands, lifter=math.nan).torch().isnan().all()
    assert ndd.mfcc(bands, lifter=0.0).torch().isfinite().all()


@pytest.mark.parametrize("border", ["zero", "clamp", "reflect"])
def test_preemphasis_of_one_element_and_of_none(border: str) -> None:
    output = ndd.preemphasis_filter(torch.tensor([2.0]), border=border, preemph_coeff=0.5).torch()
    assert output.tolist() == [2.0 if border == "zero" else 1.0]
    assert ndd.preemphasis_filter(torch.zeros(0), border=border).shape == (0,)
