# SPDX-License-Identifier: Apache-2.0
"""Feature extractors of sounds: Whisper and SeamlessM4T."""

from typing import Any

import numpy as np
import torch

from .._core.values.batch import Batch, as_batch
from .._core.values.tensor import Tensor, new_tensor
from ..math import max as maximum
from ..ops.audio.spectra import mel_filter_bank, spectrogram, to_decibels
from ..ops.generic.python_function import python_function
from ..ops.geometry.slice import pad, slice
from ..ops.shape.reshape import reshape
from ..reductions import max as largest
from . import _images
from ._settings import Settings


class Sound:
    """A translated feature extractor: call it with a batch of waveforms, float32 with one channel."""

    steps: list[str]
    # Logarithms of weak frequencies: both are up to 4e-5 away from the results of float64.
    tolerance = 1e-4

    def __init__(self, processor: Any) -> None:
        self.settings = Settings(processor)
        self.rate = int(self.settings.get("sampling_rate", 16_000))

    def __call__(self, sounds: Any) -> dict[str, Any]:
        """Return ``input_features`` and ``attention_mask``."""
        waveforms = sounds if isinstance(sounds, Batch | Tensor) else as_batch(sounds)
        if isinstance(waveforms, Tensor):
            waveforms = Batch.broadcast(waveforms, 1)
        if waveforms.ndim == 2 and waveforms.shared_extent(1) == 1:
            waveforms = waveforms.slice[:, 0]
        if waveforms.ndim != 1 or not waveforms.dtype.is_floating_point:
            raise ValueError(f"from_processor: needs waveforms of floats with one channel, got {waveforms.dtype} of shape {waveforms.shape!r:.200}")
        return self.process(waveforms)

    def process(self, waveforms: Batch) -> dict[str, Any]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{self.settings.name}: {'; '.join(self.steps)}"


class Whisper(Sound):
    """Whisper: the log mel spectrogram of 30 seconds."""

    def __init__(self, processor: Any) -> None:
        super().__init__(processor)
        settings = self.settings
        self.window, self.hop = int(settings.get("n_fft", 400)), int(settings.get("hop_length", 160))
        self.bins, self.length = int(settings.get("feature_size", 80)), int(settings.get("n_samples", 480_000))
        if settings.get("dither", 0.0):
            raise settings.unsupported("dither", processor.dither, "it adds noise")
        if self.length % self.hop:
            raise settings.unsupported("chunk_length", settings.get("chunk_length", 30), f"its samples must be a multiple of {self.hop}")
        self.steps = [
            f"pad or cut to {self.length / self.rate:g} s",
            f"power spectrogram: Hann window of {self.window}, step {self.hop}",
            f"{self.bins} mel bands of Slaney up to 8 kHz",
            "log10, at most 8 below the largest, (x + 4) / 4",
        ]

    def process(self, waveforms: Batch) -> dict[str, Any]:
        lengths = waveforms.sample_shapes()[:, 0].clamp(max=self.length)
        # Frames that see padding only are -10 after the logarithm: they are filled in there, not computed.
        computed = ((lengths + 2 * self.window) // self.hop * self.hop).clamp(max=self.length)
        padded = slice(waveforms, start=0, shape=_images.as_sizes(computed[:, None]), axes=[0], out_of_bounds_policy="pad")  # type: ignore[arg-type]
        window = torch.hann_window(self.window).tolist()
        frames = {"nfft": self.window, "window_length": self.window, "window_step": self.hop, "window_fn": window}
        spectra = spectrogram(padded, power=2, **frames).slice[:, :-1]  # type: ignore[arg-type]
        bands = mel_filter_bank(spectra, nfilter=self.bins, sample_rate=self.rate, freq_high=8000.0)
        levels = pad(to_decibels(bands, multiplier=1.0, reference=1.0, cutoff_db=-10.0), axes=[1], shape=[self.length // self.hop], fill_value=-10)
        values = (maximum(levels, largest(levels) - 8.0) + 4.0) / 4.0
        mask = np.arange(0, self.length, self.hop) < lengths.numpy()[:, None]
        return {"input_features": values.stack(), "attention_mask": new_tensor(torch.from_numpy(mask.astype(np.int32)))}


class SeamlessM4T(Sound):
    """SeamlessM4T: Kaldi's filter banks, normalized per band, two frames joined."""

    FRAME, STEP, FFT, FLOOR = 400, 160, 512, 1.192092955078125e-07

    def __init__(self, processor: Any) -> None:
        super().__init__(processor)
        self.stride = int(self.settings.get("stride", 2))
        self.filters = torch.from_numpy(np.ascontiguousarray(processor.mel_filters, np.float64))
        self.window = torch.from_numpy(np.asarray(processor.window, np.float64))
        self.steps = [
            f"frames of {self.FRAME} without their mean, preemphasis 0.97, Povey window, step {self.STEP}",
            f"{self.filters.shape[1]} mel bands of Kaldi, natural logarithm",
            "normalize each band",
            f"join {self.stride} frames",
        ]

    def process(self, waveforms: Batch) -> dict[str, Any]:
        lengths = waveforms.sample_shapes()[:, 0]
        frames = (lengths - self.FRAME) // self.STEP + 1
        if bool((frames < 2).any()):
            sample = int((frames < 2).to(torch.int8).argmax())
            raise ValueError(
                f"from_processor: sample {sample} has {int(lengths[sample])} values, fewer than the {self.FRAME + self.STEP} of two frames"
            )
        shapes = torch.stack([frames, torch.full_like(frames, self.filters.shape[1])], 1)
        features = python_function(self.extract, waveforms, shape=shapes, dtype=torch.float32, form="torch")
        longest = -(-int(frames.max()) // self.stride) * self.stride
        padded = pad(features, axes=[0], shape=[longest])
        joined = reshape(padded, shape=[longest // self.stride, self.filters.shape[1] * self.stride])  # type: ignore[arg-type]
        mask = np.arange(1, longest, self.stride) < frames.numpy()[:, None]
        return {"input_features": joined.stack(), "attention_mask": new_tensor(torch.from_numpy(mask.astype(np.int32)))}

    def extract(self, waveform: torch.Tensor) -> torch.Tensor:
        """Return the features of one sound, (frames, bands).

        In float64 up to the logarithm, as transformers: the error of float32, 1e-7 of the largest frequency, is 5e-4 of the normalized logarithms of
        weak ones. Frames and spectra are matrices, for which torch releases the GIL.
        """
        frames = (waveform.to(torch.float64) * 32768.0).unfold(0, self.FRAME, self.STEP)
        frames = frames - frames.mean(1, keepdim=True)
        emphasized = torch.empty_like(frames)
        torch.mul(frames[:, :1], 0.03 * self.window[0], out=emphasized[:, :1])
        torch.sub(frames[:, 1:], frames[:, :-1], alpha=0.97, out=emphasized[:, 1:]).mul_(self.window[1:])
        spectra = torch.view_as_real(torch.fft.rfft(emphasized, self.FFT).to(torch.complex64))
        powers = spectra.to(torch.float64).square().sum(-1)
        levels = (powers @ self.filters).clamp(min=self.FLOOR).log().to(torch.float32)
        return (levels - levels.mean(0)) / (levels.var(0, correction=1) + 1e-7).sqrt()
