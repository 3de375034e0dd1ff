# SPDX-License-Identifier: Apache-2.0
"""Feature extractors of sounds: Whisper and SeamlessM4T."""

from typing import Any, ClassVar

import numpy as np
import torch

from .._core.native.default_device import ignore_default_device
from .._core.values.batch import Batch
from .._core.values.tensor import new_tensor
from ..math import max as maximum
from ..ops._arguments import as_samples
from ..ops.audio._kaldi_bands import BINS, kaldi_bands
from ..ops.audio.spectra import mel_filter_bank, spectrogram, to_decibels
from ..ops.generic.convert import cast
from ..ops.geometry.slice import pad, slice
from ..ops.shape.reshape import reshape
from ..reductions import max as largest
from . import _images
from ._settings import Settings


class Sound:
    """A translated feature extractor: call it with a batch of waveforms, float32 with one channel."""

    takes: ClassVar[frozenset[str]] = frozenset()
    steps: list[str]
    # Both are up to 4e-5 away from the results of float64: Whisper for weak frequencies, SeamlessM4T for bands that hardly deviate.
    tolerance = 1e-4

    def __init__(self, processor: Any) -> None:
        self.settings = Settings(processor)
        self.rate = int(self.settings.get("sampling_rate", 16_000))

    @ignore_default_device
    def __call__(self, sounds: Any) -> dict[str, Any]:
        """Return ``input_features`` and ``attention_mask``."""
        waveforms, _ = as_samples(sounds)
        if waveforms.ndim == 2 and waveforms.shared_extent(1) == 1:
            waveforms = waveforms.slice[:, 0]
        if waveforms.ndim != 1 or not waveforms.dtype.is_floating_point:
            raise ValueError(f"from_processor: needs waveforms of floats with one channel, got {waveforms.dtype} of shape {waveforms.shape!r:.200}")
        return self.process(waveforms if waveforms.dtype is torch.float32 else cast(waveforms, dtype=torch.float32))

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
            raise settings.make_error("dither", processor.dither, "it adds noise")
        if self.length % self.hop:
            raise settings.make_error("chunk_length", settings.get("chunk_length", 30), f"its samples must be a multiple of {self.hop}")
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
        # Whisper drops the last frame.
        spectra = spectrogram(padded, power=2, **frames).slice[:, :-1]  # type: ignore[arg-type]
        bands = mel_filter_bank(spectra, nfilter=self.bins, sample_rate=self.rate, freq_high=8000.0)
        levels = pad(to_decibels(bands, multiplier=1.0, reference=1.0, cutoff_db=-10.0), axes=[1], shape=[self.length // self.hop], fill_value=-10)
        values = (maximum(levels, largest(levels) - 8.0) + 4.0) / 4.0
        mask = np.arange(0, self.length, self.hop) < lengths.numpy()[:, None]
        return {"input_features": values.stack(), "attention_mask": new_tensor(torch.from_numpy(mask.astype(np.int32)))}


class SeamlessM4T(Sound):
    """SeamlessM4T: Kaldi's filter banks, normalized per band, two frames joined. On the CPU, where sounds are decoded."""

    FRAME, STEP, MULTIPLE = 400, 160, 2

    def __init__(self, processor: Any) -> None:
        super().__init__(processor)
        self.stride = int(self.settings.get("stride", 2))
        self.filters = torch.from_numpy(np.ascontiguousarray(processor.mel_filters, np.float64))
        self.window = torch.from_numpy(np.ascontiguousarray(processor.window, np.float64))
        if self.filters.shape[0] != BINS or len(self.window) != self.FRAME:
            raise self.settings.make_error(
                "mel_filters", tuple(self.filters.shape), f"they must have {BINS} frequencies, the window {self.FRAME} values"
            )
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
        rows = -(-int(frames.max()) // self.MULTIPLE) * self.MULTIPLE
        features = kaldi_bands(waveforms.cpu(), self.window, self.filters, self.STEP, rows)
        joined = rows // self.stride
        shape = [joined, self.filters.shape[1] * self.stride]
        values = reshape(features.slice[: joined * self.stride] if rows % self.stride else features, shape=shape)  # type: ignore[arg-type]
        mask = (np.arange(rows) < frames.numpy()[:, None])[:, : joined * self.stride][:, 1 :: self.stride]
        device = waveforms.buffer.device
        return {"input_features": values.to_device(device).stack(), "attention_mask": new_tensor(torch.from_numpy(mask.astype(np.int32)))}
