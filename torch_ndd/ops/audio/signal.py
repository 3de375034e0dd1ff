# SPDX-License-Identifier: Apache-2.0
"""Signals: resampling, silence detection, and spectra along an axis."""

import math
from typing import Any

import numpy as np
import torch

from ..._core.native.tracing import is_compiling
from ..._core.operators.operator import DeviceLike, Hint, ShapeArg, T, launch, operator
from ..._core.values.batch import Batch, empty_batch
from .._arguments import FLOATS, INTEGERS
from .._columns import extents_of, holds
from .._outputs import resized
from .spectra import check_float32


@operator()
def power_spectrum(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axis: int = -1,
    nfft: int | None = None,
    power: int = 2,
) -> T:
    """Compute power spectra along an axis: ``out[f] = |sum over k of in[k] * exp(-2 pi i f k / nfft)| ** power`` for f = 0 to nfft // 2.

    Args:
        input: signals, float32, of any shape.
        axis: axis of the signals.
        nfft: length of the transform: longer signals are truncated, shorter ones padded with zeros. By default, or if not positive, the length of the
            signal.
        power: 1 for magnitudes, 2 for power.

    Raises:
        RuntimeError: another type, an axis out of range, signals without elements, or another power.

    >>> power_spectrum(torch.tensor([2.0, 0.0, 0.0, 0.0])).torch()
    tensor([4., 4., 4.])
    """
    check_float32("power_spectrum", input)  # type: ignore[arg-type]
    ndim = input.ndim  # type: ignore[union-attr]
    if not -ndim <= axis < ndim:
        raise RuntimeError(f"power_spectrum: there is no axis {axis}: the input has {ndim} dimensions")
    if power not in (1, 2):
        raise RuntimeError(f"power_spectrum: power must be 1 or 2, got {power}")
    if nfft is not None and (not isinstance(nfft, int) or isinstance(nfft, bool)):
        raise TypeError(f"power_spectrum: nfft must be an int, got {nfft!r}")
    axis %= ndim
    length = max(0, nfft or 0)
    extent = extents_of(input)[axis]  # type: ignore[arg-type]
    # Empty batches and graphs have nothing to check; the kernel checks what a graph does not know.
    if not is_compiling() and input.batch_size and not holds(extent > 0):  # type: ignore[union-attr]
        raise RuntimeError(f"power_spectrum: the input has no elements along axis {axis}")
    bins = length // 2 + 1 if length else extent // 2 + 1
    return launch(resized(input, [axis], [bins]), [axis, length, power])  # type: ignore[arg-type]


@operator()
def nonsilent_region(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    cutoff_db: float = -60.0,
    reference_power: float = 0.0,
    reset_interval: Hint[int] = 8192,
    window_length: int = 2048,
) -> tuple[T, T]:
    """Return the start and length of a signal without leading and trailing silence: two int32 scalars.

    A window of ``window_length`` elements is silent if its mean square is less than ``10 ** (cutoff_db / 10)`` of the reference. The region extends
    from the start of the first window that is not silent to the end of the last one; both numbers are 0 if all windows are silent.

    Args:
        input: one-dimensional signals of any type.
        cutoff_db: threshold in decibels relative to the reference.
        reference_power: mean square of 0 dB; by default, or if 0, that of the loudest window. A signal of zeros is as loud as itself.
        reset_interval: ignored; window sums are computed without subtraction and are exact everywhere.
        window_length: elements per window; at most the length of the signal.

    Raises:
        RuntimeError: a signal with several dimensions, or an invalid argument.

    >>> begin, length = nonsilent_region(torch.tensor([0.0, 0.0, 1.0, 0.5, 0.0, 0.0]), window_length=1)
    >>> begin.item(), length.item()
    (2, 2)
    """
    signal: Batch = input  # type: ignore[assignment]
    if signal.ndim != 1:
        raise RuntimeError(f"nonsilent_region: the input must be signals of one dimension, got {signal.ndim}")
    if window_length < 1:
        raise RuntimeError(f"nonsilent_region: window_length must be positive, got {window_length}")
    if not reference_power >= 0:
        raise RuntimeError(f"nonsilent_region: reference_power must not be negative, got {reference_power}")
    out = tuple(empty_batch(signal.batch_size, [], torch.int32, signal.buffer.device) for _ in range(2))
    return launch(out, [float(cutoff_db), float(reference_power), window_length])


_RESAMPLED = (*INTEGERS[:6], *FLOATS)  # of up to 32 bits


@operator()
def audio_resample(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    antialias: bool = False,
    dtype: torch.dtype | None = None,
    in_rate: ShapeArg[float] | None = None,
    out_length: ShapeArg[int] | None = None,
    out_rate: ShapeArg[float] | None = None,
    quality: float = 50.0,
    scale: ShapeArg[float] | None = None,
) -> T:
    """Change the sampling rate of signals with a windowed sinc.

    ``out[o] = sum over i of in[i] * w(i - o * in_rate / out_rate)`` with ``w(x) = sinc(x) * (1 + cos(pi x / lobes)) / 2`` for ``|x| < lobes``.
    The output has ``ceil(length * out_rate / in_rate)`` elements; beyond its ends the signal is zero. The ratio of the rates is given by ``in_rate``
    and ``out_rate``, by ``scale``, or by ``out_length``.

    Args:
        input: signals of shape (n,) or (n, channels); floating-point numbers, or integers of up to 32 bits.
        antialias: remove frequencies that the lower rate cannot represent; ``w(x)`` becomes ``w(x / r) / r`` for ``r = in_rate / out_rate > 1``.
            Without it they alias to lower frequencies, as in DALI, which has no such argument.
        dtype: type of the result, by default the input's. For another type the range is converted first: the limits of an integer type represent -1
            and 1 (0 and 1 for unsigned types).
        in_rate: sampling rate of the input.
        out_length: number of elements of the result; ``out_rate / in_rate`` is then the ratio of the lengths.
        out_rate: sampling rate of the result, in the unit of ``in_rate``.
        quality: 0 to 100; 0 means 3 lobes, 50 16 and 100 64.
        scale: ``out_rate / in_rate``.

    Raises:
        RuntimeError: another type or more dimensions, no rate or more than one, rates that are not positive, a quality outside 0 to 100.

    >>> audio_resample(torch.ones(441), in_rate=44100.0, out_rate=16000.0).shape
    (160,)
    """
    signal: Batch = input  # type: ignore[assignment]
    if signal.ndim not in (1, 2):
        raise RuntimeError(f"audio_resample: the input must be (n,) or (n, channels), got {signal.ndim} dimensions")
    for name, kind in (("the input", signal.dtype), ("dtype", dtype or signal.dtype)):
        if kind not in _RESAMPLED:
            raise RuntimeError(f"audio_resample: {name} must be a floating-point type or an integer one of up to 32 bits, got {kind}")
    if not 0 <= quality <= 100:
        raise RuntimeError(f"audio_resample: quality must be 0 to 100, got {quality}")
    if (in_rate is None) != (out_rate is None):
        raise RuntimeError("audio_resample: in_rate and out_rate must be given together")
    if sum(argument is not None for argument in (scale, out_length, in_rate)) != 1:
        raise RuntimeError("audio_resample: give either in_rate and out_rate, or scale, or out_length")
    lengths = signal.buffer.shape[1] if signal.ragged_shapes is None else signal.ragged_shapes[:, 0]
    ratio = None
    if out_length is None:
        rates = (1.0, scale) if in_rate is None else (in_rate, out_rate)
        before, after = (_round_rate(rate) for rate in rates)
        _check_rates("scale" if in_rate is None else "in_rate and out_rate", before, after)
        outputs = _ceil(lengths, after, before)
        # Only the ratio reaches the kernel: lengths are known here already.
        ratio = _row(before, after)
    else:
        outputs = out_length.reshape(-1).to(torch.int64) if isinstance(out_length, torch.Tensor) else out_length
        if not is_compiling():
            _check_lengths(lengths, outputs)
    out = resized(signal, [0], [outputs], dtype)
    return launch(out, [ratio, float(quality), antialias])


def _round_rate(rate: Any) -> Any:
    """Return a rate rounded to float32, from which DALI computes the rest in float64."""
    return rate.reshape(-1).to(torch.float32).to(torch.float64) if isinstance(rate, torch.Tensor) else float(np.float32(rate))


def _check_rates(names: str, before: Any, after: Any) -> None:
    if is_compiling():
        return  # checked by the kernel
    values = [np.asarray(rate) for rate in (before, after)]
    if not (np.isfinite(values[0]).all() and np.isfinite(values[1]).all() and (values[0] > 0).all() and (values[1] >= 0).all()):
        raise RuntimeError(f"audio_resample: {names} must be positive, got {after if names == 'scale' else (before, after)}")


def _check_lengths(lengths: Any, outputs: Any) -> None:
    wanted, there = np.asarray(outputs), np.asarray(lengths)
    if (wanted < 0).any():
        raise RuntimeError(f"audio_resample: out_length must not be negative, got {outputs}")
    if ((there == 0) & (wanted > 0)).any():
        raise RuntimeError(f"audio_resample: an empty signal cannot be resampled to out_length={outputs}")


def _ceil(lengths: Any, after: Any, before: Any) -> Any:
    if any(isinstance(value, torch.Tensor) for value in (lengths, after, before)):
        # In double, also if the rates are Python numbers: with those torch converts integers to float32.
        return torch.ceil(torch.as_tensor(lengths, dtype=torch.float64) * after / before).to(torch.int64)
    return math.ceil(lengths * after / before)


def _row(before: Any, after: Any) -> torch.Tensor:
    """Return the ratio for the kernel; infinite if there are no outputs."""
    ratios: torch.Tensor = torch.as_tensor(before, dtype=torch.float64) / torch.as_tensor(after, dtype=torch.float64)
    return ratios.reshape(-1)
