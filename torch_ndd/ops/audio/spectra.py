# SPDX-License-Identifier: Apache-2.0
"""Audio features: spectra, mel bands, decibels, cepstral coefficients."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch

from ..._core import native
from ..._core.native.tracing import is_compiling
from ..._core.operators.operator import AsGiven, DeviceLike, PerSample, T, launch, operator
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch, empty_batch
from .._columns import extents_of, smaller
from .._outputs import like, resized

SpectrogramLayout = Literal["ft", "tf"]
MelFormula = Literal["slaney", "htk"]


def check_float32(op: str, input: Batch) -> None:
    """Raise RuntimeError for types other than float32, like DALI."""
    if input.dtype is not torch.float32:
        raise RuntimeError(f"{op}: the input must be of float32, got {input.dtype}; convert it with ndd.cast")


def _length(op: str, input: Batch) -> Any:
    """Return the lengths of the signals: a number, or a tensor with one per signal."""
    if input.ragged_shapes is None:
        shape = input.buffer.shape[1:]
        length = input.buffer[0].numel() if len(input.buffer) else shape.numel()
        if not is_compiling() and (not shape or max(shape) != length):
            raise RuntimeError(f"{op}: the input must be a signal of one channel, (n,), (n, 1) or (1, n), got shape {tuple(shape)}")
        return length
    lengths = input.ragged_shapes.prod(1)
    if not is_compiling() and input.ndim > 1 and not bool((input.ragged_shapes.amax(1) == lengths).all()):
        raise RuntimeError(f"{op}: the input must be signals of one channel, (n,), (n, 1) or (1, n), got shapes {input.shape}")
    return lengths


def _smallest(value: Any) -> int:
    return int(value.min()) if isinstance(value, torch.Tensor) and len(value) else 0 if isinstance(value, torch.Tensor) else value


@operator()
def spectrogram(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    center_windows: bool = True,
    layout: SpectrogramLayout = "ft",
    nfft: int | None = None,
    power: int = 2,
    reflect_padding: bool = True,
    window_fn: AsGiven[float | Sequence[float] | None] = None,
    window_length: int = 512,
    window_step: int = 256,
) -> T:
    """Compute power spectra of windows of a signal (short-time Fourier transform).

    ``out[f, t] = |sum over k of window_fn[k] * x[t * window_step - window_length // 2 + k] * exp(-2 pi i f k / nfft)| ** power`` for
    f = 0 to nfft // 2 and t = 0 to length // window_step. The frequency of row f is ``f * sample_rate / nfft``.

    Args:
        input: signals of one channel: float32 of shape (n,), (n, 1) or (1, n).
        center_windows: center window t at ``t * window_step`` and extend the signal beyond its ends; otherwise window t starts there, and only
            windows inside the signal are computed: ``(n - window_length) // window_step + 1``.
        layout: layout of the result: ``"ft"``, (nfft // 2 + 1, windows), or ``"tf"``.
        nfft: length of the transform, at least ``window_length``, which is the default; windows are padded with zeros. Products of 2, 3, 5 and 7 are
            fast.
        power: 1 for magnitudes, 2 for power.
        reflect_padding: extend the signal by reflection, without repeating the outermost element; otherwise by zeros.
        window_fn: factors of a window, ``window_length`` numbers; by default a Hann window, ``0.5 - 0.5 cos(2 pi (k + 0.5) / length)``.
        window_length: length of a window in elements.
        window_step: distance between windows in elements.

    Raises:
        RuntimeError: another type, several channels, a signal that is empty or shorter than a window that is not centered, or an invalid argument.

    >>> tone = torch.sin(torch.arange(1000) * (2 * torch.pi * 8 / 64))
    >>> powers = spectrogram(tone, window_length=64, window_step=50)
    >>> powers.shape, powers.layout, powers.torch()[:, 10].argmax()
    ((33, 21), 'ft', tensor(8))
    """
    check_float32("spectrogram", input)  # type: ignore[arg-type]
    length = window_length if nfft is None else nfft
    if not isinstance(length, int) or isinstance(length, bool):
        raise TypeError(f"spectrogram: nfft must be an int, got {nfft!r}")
    for name, value in (("window_length", window_length), ("window_step", window_step)):
        if value < 1:
            raise RuntimeError(f"spectrogram: {name} must be positive, got {value}")
    if length < window_length:
        raise RuntimeError(f"spectrogram: nfft must not be less than window_length={window_length}, got {nfft}")
    if power not in (1, 2):
        raise RuntimeError(f"spectrogram: power must be 1 or 2, got {power}")
    check_choice("spectrogram", "layout", layout, get_args(SpectrogramLayout))
    window = None if window_fn is None else _window(window_fn, window_length)
    samples = _length("spectrogram", input)  # type: ignore[arg-type]
    least = 1 if center_windows else window_length
    if not is_compiling() and input.batch_size and _smallest(samples) < least:  # type: ignore[union-attr]
        raise RuntimeError(f"spectrogram: a signal has {_smallest(samples)} elements, but it must have at least {least}; pad it")
    windows = samples // window_step + 1 if center_windows else (samples - window_length) // window_step + 1
    bins = length // 2 + 1
    shape = [bins, windows] if layout == "ft" else [windows, bins]
    values = input.buffer  # type: ignore[union-attr]
    out = empty_batch(input.batch_size, shape, torch.float32, values.device, layout)  # type: ignore[union-attr]
    arguments = [window, length, window_length, window_step, power, center_windows, reflect_padding, layout == "tf"]
    return launch(out, arguments)


def _window(factors: Any, length: int) -> torch.Tensor:
    try:
        window = torch.as_tensor(factors, dtype=torch.float32).cpu().reshape(-1).contiguous()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"spectrogram: window_fn must be numbers, got {type(factors).__name__}") from error
    if window.numel() != length:
        raise RuntimeError(f"spectrogram: window_fn must have window_length={length} values, got {window.numel()}")
    return window


def _frequency_axis(input: Batch) -> int:
    layout = input.layout
    if input.ndim == 0:
        raise RuntimeError("mel_filter_bank: the input must have a frequency axis, got a scalar")
    if layout is None:
        # Without a layout the last axis is time.
        return max(0, input.ndim - 2)
    if "f" not in layout:
        raise RuntimeError(f'mel_filter_bank: the layout must have an axis "f", got {layout!r}')
    return layout.index("f")


@operator()
def mel_filter_bank(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    freq_high: float = 0.0,
    freq_low: float = 0.0,
    mel_formula: MelFormula = "slaney",
    nfilter: int = 128,
    normalize: bool = True,
    sample_rate: float = 44100.0,
) -> T:
    """Sum spectra into mel bands: triangular filters over neighboring frequencies, with corners equally spaced on the mel scale.

    ``out[m] = sum over f of weight[m, f] * in[f]`` along the axis ``f``. Filter m rises from corner m to corner m + 1 and falls to 0 at corner m + 2;
    the corners lie from ``freq_low`` to ``freq_high``, and frequency f is ``f * sample_rate / 2 / (frequencies - 1)``.

    Args:
        input: spectra, float32; the frequency axis is ``f`` in the layout; without a layout, the second to last axis, or the only one.
        freq_high: upper end of the last filter in Hz; by default, or if not positive, ``sample_rate / 2``. May be up to
            ``sample_rate``; filters above half of it are cut or empty.
        freq_low: lower end of the first filter in Hz.
        mel_formula: ``"slaney"``, linear up to 1000 Hz and logarithmic above, as in librosa; or ``"htk"``, ``2595 log10(1 + f / 700)``.
        nfilter: number of filters.
        normalize: normalize the area of each filter to 1, in Hz; otherwise its peak.
        sample_rate: sampling rate of the original signal, in Hz.

    Raises:
        RuntimeError: another type, a layout without ``f``, or frequencies outside 0 to ``sample_rate``.

    >>> mel_filter_bank(torch.ones(257, 100), nfilter=40, sample_rate=16000.0).shape
    (40, 100)
    """
    check_float32("mel_filter_bank", input)  # type: ignore[arg-type]
    axis = _frequency_axis(input)  # type: ignore[arg-type]
    if nfilter < 1:
        raise RuntimeError(f"mel_filter_bank: nfilter must be positive, got {nfilter}")
    if not sample_rate > 0:
        raise RuntimeError(f"mel_filter_bank: sample_rate must be positive, got {sample_rate}")
    # 0 means up to half of the sampling rate.
    high = sample_rate / 2 if freq_high <= 0 else freq_high
    # DALI documents half of the sampling rate as the limit, but accepts all of it, which sounds of several rates need.
    if not 0 <= freq_low < high <= sample_rate:
        raise RuntimeError(
            f"mel_filter_bank: freq_low and freq_high must satisfy 0 <= freq_low < freq_high <= sample_rate = {sample_rate}, "
            f"got {freq_low} and {high}"
        )
    check_choice("mel_filter_bank", "mel_formula", mel_formula, get_args(MelFormula))
    out = resized(input, [axis], [nfilter])  # type: ignore[arg-type]
    arguments = [axis, float(sample_rate), float(freq_low), float(high), nfilter, mel_formula == "htk", normalize]
    return launch(out, arguments)


@operator()
def mfcc(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    axis: int = 0,
    dct_type: int = 2,
    lifter: float = 0.0,
    n_mfcc: int = 20,
    normalize: bool = False,
) -> T:
    """Compute cepstral coefficients: the first numbers of the discrete cosine transform of mel bands, usually in decibels.

    With n bands, coefficient k of each type is

    1. ``x[0] / 2 + (-1)**k * x[n - 1] / 2 + sum over 0 < i < n - 1 of x[i] cos(pi k i / (n - 1))``
    2. ``sum of x[i] cos(pi k (i + 1/2) / n)``
    3. ``x[0] / 2 + sum over i > 0 of x[i] cos(pi (k + 1/2) i / n)``
    4. ``sum of x[i] cos(pi (k + 1/2) (i + 1/2) / n)``

    multiplied by ``1 + lifter / 2 * sin(pi (k + 1) / lifter)`` if ``lifter`` is not 0.

    Args:
        input: mel bands, float32.
        axis: axis to transform.
        dct_type: 1, 2, 3 or 4.
        lifter: amplification of higher coefficients; 22 is usual.
        n_mfcc: number of coefficients, at most the number of bands.
        normalize: scale the transform to be orthogonal; not for type 1.

    Raises:
        RuntimeError: another type, an axis out of range, or an invalid argument; type 1 with one band.

    >>> mfcc(torch.ones(40, 100), n_mfcc=13).torch()[0, :3]
    tensor([40., 40., 40.])
    """
    check_float32("mfcc", input)  # type: ignore[arg-type]
    ndim = input.ndim  # type: ignore[union-attr]
    if not -ndim <= axis < ndim:
        raise RuntimeError(f"mfcc: there is no axis {axis}: the input has {ndim} dimensions")
    if dct_type not in (1, 2, 3, 4):
        raise RuntimeError(f"mfcc: dct_type must be 1, 2, 3 or 4, got {dct_type}")
    if dct_type == 1 and normalize:
        raise RuntimeError("mfcc: normalize=True is not possible for dct_type=1")
    if n_mfcc < 1:
        raise RuntimeError(f"mfcc: n_mfcc must be positive, got {n_mfcc}")
    axis %= ndim
    # At most as many coefficients as bands.
    out = resized(input, [axis], [smaller(extents_of(input)[axis], n_mfcc)])  # type: ignore[arg-type]
    return launch(out, [axis, dct_type, float(lifter), n_mfcc, normalize])


@operator()
def to_decibels(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    cutoff_db: float = -200.0,
    multiplier: float = 10.0,
    reference: float = 0.0,
) -> T:
    """Convert magnitudes to decibels: ``out = multiplier * log10(max(in / reference, 10 ** (cutoff_db / multiplier)))``.

    Args:
        input: non-negative magnitudes of any shape.
        cutoff_db: smallest value of the result; NaN and negative numbers also become this value. Ratios are at least the smallest positive
            float32; silence is finite with any cutoff, -448.5 with a multiplier of 10.
        multiplier: 10 for power, 20 for amplitudes.
        reference: magnitude of 0 dB; by default, or if 0, the largest element of each sample. A sample without positive elements has reference 1.

    >>> to_decibels(torch.tensor([100.0, 10.0, 1.0, 0.0]), cutoff_db=-60.0).torch()
    tensor([  0., -10., -20., -60.])
    """
    return like(input, torch.float32)


Border = Literal["zero", "clamp", "reflect"]
BORDERS = native.numbers("preemphasis_filter.Border")


@operator()
def preemphasis_filter(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    border: Border = "clamp",
    dtype: torch.dtype | None = None,
    preemph_coeff: PerSample[float] = 0.97,
) -> T:
    """Amplify high frequencies: ``out[t] = in[t] - preemph_coeff * in[t - 1]``.

    Args:
        input: signals of any type and shape; each sample is one signal, in element order.
        border: value before the first element: ``"zero"``, ``"clamp"`` (the first element) or ``"reflect"`` (the second one).
        dtype: type of the result, by default float32; integers are rounded and saturated.
        preemph_coeff: the coefficient.

    Raises:
        RuntimeError: an unknown border.

    >>> preemphasis_filter(torch.tensor([1.0, 2.0, 4.0]), preemph_coeff=0.5).torch()
    tensor([0.5000, 1.5000, 3.0000])
    """
    check_choice("preemphasis_filter", "border", border, BORDERS)
    return launch(like(input, dtype or torch.float32), [preemph_coeff, BORDERS[border]])
