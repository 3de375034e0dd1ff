# SPDX-License-Identifier: Apache-2.0
"""Decoding audio files."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .._core import native
from .._core.native.tracing import is_compiling
from .._core.operators.operator import DeviceLike, Double, ShapeArg, T, launch
from .._core.process.limits import max_sample_bytes as checked_limit
from .._core.values.batch import Batch, as_batch, empty_packed, new_batch
from .._core.values.dispatch import submit
from .._core.values.tensor import Tensor, as_tensor
from ..io._urls import is_url, reason_of
from ._exported import load_codecs
from ._files import check_encoded, decoder, places, places_or_contents
from ._remote_sounds import Part, RemoteSound, fetch_parts
from ._sndfile import load

_shapes = native.kernel("audio_shapes", writes=(-3, -2, -1))
_DTYPES = (torch.float32, torch.int16, torch.int32)
_OPENED = native.numbers("decoders.OpenedSound")  # columns of the kernel's table of opened files


@decoder(name="decoders.audio", fills=(-2,), converts=places_or_contents)
def audio(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    downmix: bool = False,
    duration: ShapeArg[Double] | None = None,
    max_sample_bytes: int | None = None,
    dtype: torch.dtype = torch.float32,
    on_error: str = "empty",
    quality: float = 50.0,
    sample_rate: ShapeArg[float] = 0.0,
    start: ShapeArg[Double] = 0.0,
) -> tuple[T, T]:
    """Decode audio: bytes of WAV, FLAC, OGG (Vorbis, Opus), MP3 or AIFF files to samples (frames, channels), and their sampling rates.

    The sizes come from the headers at the call; the samples are decoded on demand, each file by one thread. The second result is the rate in Hz, a
    float32 scalar.

    The recordings of a chained OGG file, as ``cat a.ogg b.ogg`` makes it, are one sound; their channels and rates must be the same. A chain is known
    by the serial numbers of its streams, which must differ (RFC 3533): if the last recording has the number of the first, only the first is decoded.
    A WAV or AIFF file that was cut off, and an OGG file cut after its headers, gives the frames that it has, without an error; with FLAC and MP3 that
    is an error. AAC sounds (.m4a, and those of videos) are refused: convert them once, as with ``ffmpeg -i a.m4a a.flac``.

    Args:
        input: contents of the files, uint8 (length,). A path, a URL or ``bytes`` makes a Tensor, a list of them a Batch. Of a local path only what
            the part needs is read: the headers, what a search looks at, and the bytes of the part. An MP3 is read up to the end of the part, one
            without a length in its header to its end. So it is with a list of URLs, whose parts are fetched at the call in several requests each; a
            server without ranges sends the whole file, as it does for lists of URLs and paths or contents.
        downmix: average the channels; the result is (frames,).
        start, duration: the part to decode, in seconds; by default the whole sound. It equals the slice of the whole result from frame
            ``floor(start * rate)`` on, with ``floor(duration * rate)`` frames or as many as there are, at the rate of the result. WAV, FLAC, AIFF and
            OGG are sought; MP3 is decoded from one second before, Opus from an eighth, and MP3 without a length in its header from its beginning.
        on_error: what to do if ``start`` lies behind the end: "empty" returns no frames, "raise" raises RuntimeError.
        max_sample_bytes: the largest sound to decode, a guard against small files that claim a lot of data; by default the environment variable
            ``TORCH_NDD_MAX_SAMPLE_BYTES``, or 4 GiB.
        dtype: float32, from -1 to 1, or int16 or int32 over their full range. Integers from a file are kept or shifted; values that went through
            floats (lossy codecs, float files, downmix, resampling) are rounded and saturated.
        sample_rate: sampling rate of the result in Hz; by default, and for 0 or less, the file's own. ``ceil(frames * sample_rate / rate)`` frames
            are interpolated with a Hann-windowed sinc; there is no low-pass filter for a lower rate.
        quality: quality of resampling, from 0 to 100: the sinc has 3 lobes per side at 0, 16 at 50, 64 at 100.

    Raises:
        RuntimeError: a file that is not audio or is damaged, a sound larger than ``max_sample_bytes``; the message names the sample and the file.
            Another dtype; ``quality`` out of range.
        ValueError: ``start`` or ``duration`` that is negative or NaN, another ``on_error``, ``max_sample_bytes`` that is not positive.

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
    check_encoded(op, files, "encoded sounds")
    if on_error not in ("empty", "raise"):
        raise ValueError(f'{op}: on_error must be "empty" or "raise", got {on_error!r}')
    parts = _join_parts(files.batch_size, sample_rate, start, math.inf if duration is None else duration)
    load()
    max_bytes = checked_limit(op, max_sample_bytes)
    if files.holds_places and any(map(is_url, files.sources)):
        rows = parts.expand(files.batch_size, -1).tolist()
        files = _fetch(op, files, [Part(begin, length, rate, bool(downmix), dtype, float(quality), max_bytes) for rate, begin, length in rows])
    are_places = files.holds_places
    files = load_codecs(files, "sounds")
    # From the headers: frames and channels of each result, and what the kernel gets to know about its file.
    shapes, rates, opened = _tables(files.batch_size, bool(downmix))
    arguments = (files.buffer, files.ragged_shapes, op, are_places, parts, on_error == "raise", bool(downmix), dtype.itemsize, max_bytes, True)
    if is_compiling():
        _shapes(*arguments, shapes, rates, opened)
    else:
        submit(_shapes, (*arguments, shapes, rates, opened), [], True, files.sources)
    out = empty_packed(shapes, dtype, files.buffer.device)
    out.sources = files.sources
    return launch(out, [op, are_places, parts, bool(downmix), float(quality), opened], inputs=(files,), also=(new_batch(rates),))


def lengths(files: Batch, max_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return frames and sampling rates of audio files. Raise RuntimeError for other files, and for sounds of more than ``max_bytes`` bytes."""
    load()
    count = files.batch_size
    # Of whole files, with errors only for what the headers show.
    shapes, rates, opened = _tables(count, False)
    whole = _join_parts(count, 0, 0, math.inf)
    arguments = (files.wait(), files.ragged_shapes, "decoders.audio", files.holds_places, whole, False, False, 1, max_bytes, False)
    submit(_shapes, (*arguments, shapes, rates, opened), [], True, files.sources)
    return shapes[:, 0].numpy(), opened[:, _OPENED["rate"]].numpy().astype(np.float64)


def _fetch(op: str, files: Batch, parts: Sequence[Part]) -> Batch:
    """Return the contents of files at URLs, as far as their parts need them; the rest is zeros."""
    found = places(files)
    sounds = [RemoteSound(each) for each in found]
    for k, error in sorted(fetch_parts(sounds, parts).items()):
        reason = reason_of(error).removeprefix(found[k].path + ": ")
        raise RuntimeError(f"{op}: sample {k} ({found[k].path}): cannot be read: {reason}") from None
    contents = as_batch([sound.contents() for sound in sounds])
    contents.sources, contents.caller_owned = files.sources, False
    return contents


def fetch_sound(
    sound: RemoteSound,
    start: float = 0.0,
    duration: float = math.inf,
    sample_rate: float = 0.0,
    downmix: bool = False,
    dtype: torch.dtype = torch.float32,
    quality: float = 50.0,
    max_sample_bytes: int | None = None,
) -> Tensor:
    """Fetch what :func:`audio` needs of a sound, and return its bytes, which are zeros elsewhere. Raise OSError if it cannot be read."""
    load()
    part = Part(start, duration, sample_rate, downmix, dtype, quality, checked_limit("decoders.audio", max_sample_bytes))
    for error in fetch_parts([sound], [part]).values():
        raise OSError(0, reason_of(error)) from None
    return as_tensor(sound.contents())


def _join_parts(count: int, rate: Any, start: Any, duration: Any) -> torch.Tensor:
    """Return rate, start and duration as the kernels take them, float64 (N, 3), or (1, 3) if they are numbers for all files."""
    values = (rate, start, duration)
    if not any(isinstance(value, torch.Tensor) for value in values):
        return torch.from_numpy(np.array([values], np.float64))  # torch.tensor takes three times as long
    columns = [value if isinstance(value, torch.Tensor) else torch.tensor([float(value)], dtype=torch.float64) for value in values]
    return torch.stack([column.reshape(-1).to(torch.float64).expand(count) for column in columns], 1)


def _tables(count: int, downmix: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the tables that the kernel fills from the headers: shapes of the results, their rates, and the files as it has opened them."""
    shapes = torch.empty((count, 1 if downmix else 2), dtype=torch.int64)
    return shapes, torch.empty(count, dtype=torch.float32), torch.empty((count, _OPENED["columns"]), dtype=torch.int64)
