# SPDX-License-Identifier: Apache-2.0
"""Waves and spectrograms."""

from __future__ import annotations

import torch

_WIDTH, _WAVE_HEIGHT, _SPECTRUM_HEIGHT = 320, 64, 128  # pixels
_INK = (0, 114, 178)
_TEXT = 12
# A dark to bright scale that stays ordered in grey.
_HEAT = torch.tensor([[0, 0, 4], [81, 18, 124], [183, 55, 121], [252, 137, 97], [252, 253, 191]], dtype=torch.float32, device="cpu")


def heat_map(values: torch.Tensor) -> torch.Tensor:
    """Return a matrix in colors, the first row at the bottom: uint8 HWC."""
    if values.ndim != 2 or values.numel() == 0:
        raise ValueError(f"show: a spectrogram has two axes, got the shape {tuple(values.shape)}")
    # The logarithm of silence is minus infinity, which must not spoil the scale.
    finite = torch.nan_to_num(values.flip(0), nan=0.0, posinf=0.0, neginf=float(values[values.isfinite()].min()) if values.isfinite().any() else 0.0)
    least, spread = float(finite.min()), float(finite.max() - finite.min())
    place = (finite - least) / (spread or 1.0) * (len(_HEAT) - 1)
    low = place.floor().long().clamp(max=len(_HEAT) - 2)
    part = (place - low)[..., None]
    return (_HEAT[low] * (1 - part) + _HEAT[low + 1] * part).round().to(torch.uint8)


def picture(sound: torch.Tensor, sample_rate: float | None) -> torch.Tensor:
    """Return the wave of a sound, (samples,) or (samples, channels), above its spectrogram: uint8 HWC."""
    whole = sound.float() / 32768 if sound.dtype == torch.int16 else sound.float()
    mono = torch.nan_to_num(whole.mean(1) if whole.ndim == 2 else whole)
    parts = [_wave(mono), _spectrum(mono)]
    if sample_rate is not None:
        parts.append(_caption(f"{len(mono) / sample_rate:.2f} s, {sample_rate:g} Hz"))
    return torch.cat(parts, dim=0)


def _wave(mono: torch.Tensor) -> torch.Tensor:
    """Return the range of values of each column."""
    out = torch.full((_WAVE_HEIGHT, _WIDTH, 3), 255, dtype=torch.uint8)
    largest = float(mono.abs().max()) or 1.0
    # Each column shows the samples between two edges, at least one.
    edges = torch.linspace(0, len(mono), _WIDTH + 1).long()
    middle, scale = (_WAVE_HEIGHT - 1) / 2, (_WAVE_HEIGHT - 3) / 2 / largest
    for x in range(_WIDTH):
        column = mono[edges[x] : max(int(edges[x + 1]), int(edges[x]) + 1)]
        if len(column):
            top, bottom = middle - float(column.max()) * scale, middle - float(column.min()) * scale
            out[int(top) : int(bottom) + 1, x] = torch.tensor(_INK, dtype=torch.uint8)
    return out


def _spectrum(mono: torch.Tensor) -> torch.Tensor:
    window = min(512, max(16, len(mono) // 8))
    step = max(1, len(mono) // _WIDTH)
    power = torch.stft(mono, window, step, window=torch.hann_window(window), return_complex=True).abs().square()
    # 80 dB are shown.
    decibels = 10 * (power / power.max().clamp(min=1e-30)).clamp(min=1e-8).log10()
    colors = heat_map(decibels).permute(2, 0, 1)[None].float()
    scaled = torch.nn.functional.interpolate(colors, size=(_SPECTRUM_HEIGHT, _WIDTH), mode="nearest")
    return scaled[0].permute(1, 2, 0).to(torch.uint8)


def _caption(text: str) -> torch.Tensor:
    from PIL import Image, ImageDraw

    strip = Image.new("RGB", (_WIDTH, _TEXT), "white")
    ImageDraw.Draw(strip).text((0, 0), text, fill="black")
    return torch.frombuffer(bytearray(strip.tobytes()), dtype=torch.uint8).view(_TEXT, _WIDTH, 3)
