# SPDX-License-Identifier: Apache-2.0
"""Audio: 64 signals of 4 seconds at 16 kHz, and spectra of as many. NumPy's column is librosa, SciPy or soxr; torchvision's is torch."""

import importlib
from typing import Any

import numpy as np
import torch

from ._case import Case


def _scipy(module: str) -> Any:
    return importlib.import_module(f"scipy.{module}")


def _powers(x: torch.Tensor, nfft: int, step: int) -> torch.Tensor:
    return torch.stft(x, nfft, step, window=torch.hann_window(nfft, device=x.device), return_complex=True).abs().square_()


def _filters(nfilter: int) -> torch.Tensor:
    if nfilter not in _FILTERS:
        librosa = importlib.import_module("librosa")
        _FILTERS[nfilter] = torch.from_numpy(librosa.filters.mel(sr=16000, n_fft=512, n_mels=nfilter))
    return _FILTERS[nfilter]


_FILTERS: dict[int, torch.Tensor] = {}


def _resample(x: np.ndarray, before: int, after: int) -> np.ndarray:
    return importlib.import_module("soxr").resample(x, before, after, quality="HQ")


def _mask(x: torch.Tensor, widest: int, axis: int) -> torch.Tensor:
    """As torchaudio.transforms with iid_masks."""
    extent = x.shape[axis]
    width = torch.rand(len(x), 1, 1, device=x.device) * widest
    begin = torch.rand(len(x), 1, 1, device=x.device) * (extent - width)
    place = torch.arange(extent, device=x.device)
    place = place.view(1, -1, 1) if axis == 1 else place
    return x.masked_fill((place >= begin.long()) & (place < begin.long() + width.long()), 0.0)


CASES = (
    Case(
        "spectrogram, windows of 512",
        ndd=lambda ndd, types, x: ndd.spectrogram(x, window_length=512, window_step=256),
        tv=lambda v2, x: _powers(x, 512, 256),
        data="speech",
    ),
    Case(
        "spectrogram, windows of 400 every 160, time first",
        ndd=lambda ndd, types, x: ndd.spectrogram(x, window_length=400, window_step=160, layout="tf"),
        tv=lambda v2, x: _powers(x, 400, 160),
        data="speech",
    ),
    Case(
        "spectrogram, windows of 2048",
        ndd=lambda ndd, types, x: ndd.spectrogram(x, window_length=2048, window_step=512),
        tv=lambda v2, x: _powers(x, 2048, 512),
        data="speech",
    ),
    Case(  # torchaudio's MelScale is this product
        "mel_filter_bank, 80",
        ndd=lambda ndd, types, x: ndd.mel_filter_bank(x, nfilter=80, sample_rate=16000.0),
        tv=lambda v2, x: _filters(80).to(x.device) @ x,
        data="spectra",
    ),
    Case(
        "mel_filter_bank, 128",
        ndd=lambda ndd, types, x: ndd.mel_filter_bank(x, nfilter=128, sample_rate=16000.0),
        tv=lambda v2, x: _filters(128).to(x.device) @ x,
        data="spectra",
    ),
    Case(
        "to_decibels",
        ndd=lambda ndd, types, x: ndd.to_decibels(x, cutoff_db=-80.0),
        tv=lambda v2, x: torch.clamp(10 * torch.log10(x / x.amax((1, 2), keepdim=True)), min=-80),
        data="spectra",
    ),
    Case(
        "mfcc",
        ndd=lambda ndd, types, x: ndd.mfcc(x, n_mfcc=20),
        np=lambda x: _scipy("fft").dct(x, axis=0, norm="ortho")[:20],
        data="bands",
    ),
    Case(
        "preemphasis_filter",
        ndd=lambda ndd, types, x: ndd.preemphasis_filter(x),
        np=lambda x: _scipy("signal").lfilter(np.array([1, -0.97], np.float32), np.ones(1, np.float32), x),
        tv=lambda v2, x: torch.cat([x[:, :1] * 0.03, x[:, 1:] - 0.97 * x[:, :-1]], 1),
        data="speech",
    ),
    Case("nonsilent_region", ndd=lambda ndd, types, x: ndd.nonsilent_region(x)[1], data="speech"),
    Case(
        "audio_resample, 44.1 to 16 kHz",
        ndd=lambda ndd, types, x: ndd.audio_resample(x, in_rate=44100.0, out_rate=16000.0),
        np=lambda x: _resample(x, 44100, 16000),
        data="speech",
    ),
    Case(
        "audio_resample, 16 to 44.1 kHz",
        ndd=lambda ndd, types, x: ndd.audio_resample(x, in_rate=16000.0, out_rate=44100.0),
        np=lambda x: _resample(x, 16000, 44100),
        data="speech",
    ),
    Case(
        "power_spectrum of whole signals",
        ndd=lambda ndd, types, x: ndd.power_spectrum(x),
        np=lambda x: np.square(np.abs(_scipy("fft").rfft(x))),
        tv=lambda v2, x: torch.fft.rfft(x).abs().square_(),
        data="speech",
    ),
    Case(
        "power_spectrum of a prime length",
        ndd=lambda ndd, types, x: ndd.power_spectrum(x, nfft=63997),
        np=lambda x: np.square(np.abs(_scipy("fft").rfft(x, 63997))),
        tv=lambda v2, x: torch.fft.rfft(x, 63997).abs().square_(),
        data="speech",
    ),
    Case(
        "augment.spec_augment",
        ndd=lambda ndd, types, x: ndd.augment.spec_augment(x),
        data="features",
    ),
    Case(
        "time_mask",
        ndd=lambda ndd, types, x: ndd.time_mask(x, time_mask_param=100),
        tv=lambda v2, x: _mask(x, 100, 2),
        data="spectra",
    ),
    Case(
        "frequency_mask",
        ndd=lambda ndd, types, x: ndd.frequency_mask(x, freq_mask_param=27),
        tv=lambda v2, x: _mask(x, 27, 1),
        data="spectra",
    ),
)
