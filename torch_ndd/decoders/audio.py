# SPDX-License-Identifier: Apache-2.0
"""Decoding audio files."""

import math
from typing import Any

import numpy as np
import torch

from .._core import native
from .._core.operators.operator import DeviceLike, ShapeArg, T, launch
from .._core.process.limits import max_sample_bytes as checked_limit
from .._core.values.batch import Batch, empty_packed, new_batch
from .._core.values.dispatch import submit
from ._files import decoder
from ._sndfile import load

_shapes = native.kernel("audio_shapes", writes=(-1,))
_DTYPES = (torch.float32, torch.int16, torch.int32)


@decoder(name="decoders.audio", fills=(-2,))
def audio(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    downmix: bool = False,
    max_sample_bytes: int | None = None,
    dtype: torch.dtype = torch.float32,
    quality: float = 50.0,
    sample_rate: ShapeArg[float] = 0.0,
) -> tuple[T, T]:
    """Decode audio: bytes of WAV, FLAC, OGG (Vorbis, Opus), MP3 or AIFF files to samples (frames, channels), and their sampling rates.

    The sizes come from the headers at the call; the samples are decoded on demand, each file by one thread. The second result is the rate in Hz, a
    float32 scalar.

    Args:
        input: contents of the files, uint8 (length,). A path, a URL or ``bytes`` makes a Tensor, a list of them a Batch.
        downmix: average the channels; the result is (frames,).
        max_sample_bytes: the largest sound to decode, as a protection against small files that promise a lot; by default the environment variable
            ``TORCH_NDD_MAX_SAMPLE_BYTES``, or 4 GiB.
        dtype: float32, from -1 to 1, or int16 or int32 over their full range. Integers from a file are kept or shifted; values that went through
            floats (lossy codecs, float files, downmix, resampling) are rounded and saturated.
        sample_rate: sampling rate of the result in Hz; by default, and for 0 or less, the file's own. ``ceil(frames * sample_rate / rate)`` frames
            are interpolated with a Hann-windowed sinc; there is no low-pass filter for a lower rate.
        quality: quality of resampling, from 0 to 100: the sinc has 3 lobes per side at 0, 16 at 50, 64 at 100.

    Raises:
        RuntimeError: a file that is not audio or is damaged, a sound larger than ``max_sample_bytes``; the message names the sample and the file.
            Another dtype; ``quality`` out of range.
        ValueError: ``max_sample_bytes`` that is not positive.

    Needs the package soundfile, for its libsndfile: ``pip install torch_ndd[audio]``.

    >>> import io
    >>> import numpy as np
    >>> import soundfile
    >>> file = io.BytesIO()
    >>> soundfile.write(file, np.array([[0.0, 0.5], [-1.0, 1.0]]), 16000, format="FLAC")
    >>> samples, rate = audio(np.frombuffer(file.getvalue(), np.uint8), downmix=True)
    >>> samples.torch().tolist(), rate.item()
    ([0.25, -1.52587890625e-05], 16000.0)
    """
    op, files = "decoders.audio", input
    assert isinstance(files, Batch)
    if files.buffer.device.type != "cpu":
        raise RuntimeError(f"{op}: sounds are decoded on the CPU; call .cpu() on the input")
    if dtype not in _DTYPES:
        raise RuntimeError(f"{op}: Unsupported output type: {str(dtype).removeprefix('torch.')}; it must be float32, int16 or int32")
    if not 0 <= quality <= 100:
        raise RuntimeError(f"{op}: Resampling quality must be in [0..100] range, got {quality}")
    if files.dtype != torch.uint8 or files.ndim != 1:
        raise RuntimeError(f"{op}: encoded sounds must be uint8 with one dimension, got {files.dtype} with {files.ndim}")
    load()
    wanted = _wanted_rates(op, sample_rate, files.batch_size)
    table = torch.empty((files.batch_size, 3), dtype=torch.int64)
    arguments = (files.buffer, files.ragged_shapes, op, wanted, bool(downmix), dtype.itemsize, checked_limit(op, max_sample_bytes), table)
    if torch.compiler.is_compiling():
        _shapes(*arguments)
    else:
        submit(_shapes, arguments, [], True, files.sources)
    frames, channels, rates = table.unbind(1)
    rates = rates.to(torch.float64)
    resampled = (wanted > 0) & (wanted != rates)
    rates_out = torch.where(resampled, wanted, rates)
    frames = torch.where(resampled, (frames * rates_out / rates).ceil().to(torch.int64), frames)
    shapes = frames[:, None] if downmix else torch.stack([frames, channels], 1)
    out = empty_packed(shapes, dtype, files.buffer.device)
    out.sources = files.sources
    return launch(out, [op, rates_out, bool(downmix), float(quality)], also=(new_batch(rates_out.to(torch.float32)),))


def lengths(files: Batch, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return frames and sampling rates of audio files. Raise RuntimeError for other files, and for sounds of more than ``most`` bytes."""
    load()
    table, rates = torch.empty((files.batch_size, 3), dtype=torch.int64), torch.zeros(files.batch_size, dtype=torch.float64)
    submit(_shapes, (files.wait(), files.ragged_shapes, "decoders.audio", rates, False, 1, most, table), [], True, files.sources)
    return table[:, 0].numpy(), table[:, 2].numpy().astype(np.float64)


def _wanted_rates(op: str, given: Any, count: int) -> torch.Tensor:
    wanted = given.reshape(-1).to(torch.float64) if isinstance(given, torch.Tensor) else torch.tensor([float(given)], dtype=torch.float64)
    if not torch.compiler.is_compiling() and not all(math.isfinite(rate) and rate < 2**31 for rate in wanted.tolist()):
        raise RuntimeError(f"{op}: sample_rate must be finite and less than 2**31, got {wanted.tolist()}")
    return wanted.expand(count).contiguous()
