# SPDX-License-Identifier: Apache-2.0
"""Speech with transcripts, from NeMo manifests."""

import importlib
import io
import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from typing_extensions import Unpack, override

from .. import types
from .._core.context.device import DeviceLike
from .._core.process.files import check_regular, text_of
from .._core.process.limits import check_sample
from .._core.values.batch import Batch
from .._core.values.tensor import as_tensor
from ..decoders.audio import audio, lengths
from ..io._urls import is_url, open_file, read_all
from ._options import DecodingOptions
from ._ranges.ranges import Path, as_paths, pack_paths
from ._ranges.remote import ranges_of
from ._threads import Array, ThreadedReader, pack_samples

_DTYPES = {torch.float32: "float32", torch.int16: "int16", torch.int32: "int32"}

# Whether an entry is a short part of its file, which is cheaper to seek than to decode the whole file.
_UNKNOWN, _NO, _YES = 0, 1, 2
# Uncompressed float32 stereo at 48 kHz. A file with more bytes per requested second is sought, not read to its end.
_BYTES_PER_SECOND = 48000 * 2 * 4
_HEADER_BYTES = 64 << 10
MAX_FRAMES = 1 << 48  # a larger count means that the header does not know it


class NemoAsr(ThreadedReader):
    """Read the audio files named in NeMo manifests, decoded, with their transcripts.

    A manifest has one JSON object per entry: ``audio_filepath`` (a URL or a path, relative to the manifest or the current folder) and, all optional,
    ``text``, and ``duration`` and ``offset`` in seconds, which select the part of the file to read. Anything else is skipped with a warning.

    Outputs: the audio, (frames,), or (frames, channels) without ``downmix``; the sampling rate of the file in Hz, float32 scalar; the text, UTF-8 as
        uint8 (length,); with ``read_idxs`` the index of the entry among those of its manifest that were kept, int64 (1,).

    Args:
        max_batch_size: Default batch size of :meth:`next_epoch`.
        name: Ignored, like ``num_inputs`` and ``normalize_text``; accepted for compatibility with DALI.
        device: ``"cpu"``.
        downmix: Average the channels; True by default.
        dtype: float32, int16 or int32; see :func:`decoders.audio`.
        manifest_filepaths: The manifest (path or URL), or several.
        max_duration: Leave out longer entries, in seconds; 0 for no limit.
        min_duration: Leave out entries that are shorter or have no duration; 0 for no limit.
        quality: Quality of resampling, from 0 to 100.
        read_idxs: Deliver the indices of the entries.
        read_sample_rate: Deliver the sampling rates; True by default.
        read_text: Deliver the texts; True by default.
        sample_rate: Resample to this rate in Hz.
        max_sample_bytes: The largest sample to decode, as a protection against small files that promise a lot; by default the environment variable
            ``TORCH_NDD_MAX_SAMPLE_BYTES``, or 4 GiB.
        loader: Options of all readers, see :class:`LoaderOptions`.

    Raises:
        RuntimeError: at the first step, for manifests that cannot be read or are empty, another dtype, ``quality`` out of range, or without soundfile
            (``torch_ndd[audio]``); at any step, for audio that cannot be read.

    >>> reader = NemoAsr(manifest_filepaths=["train.json"], sample_rate=16000, max_duration=16.7)
    """

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: DeviceLike = "cpu",
        num_inputs: int | None = None,
        *,
        downmix: bool | None = None,
        dtype: Any = None,
        manifest_filepaths: Path | Sequence[Path],
        max_duration: float | None = None,
        min_duration: float | None = None,
        normalize_text: bool | None = None,
        quality: float | None = None,
        read_idxs: bool | None = None,
        read_sample_rate: bool | None = None,
        read_text: bool | None = None,
        sample_rate: float | None = None,
        **loader: Unpack[DecodingOptions],
    ) -> None:
        super().__init__(max_batch_size, device, loader)
        self._manifests = as_paths(manifest_filepaths)
        self._downmix = downmix is None or bool(downmix)
        self._dtype = torch.float32 if dtype is None else types.to_dtype(dtype)
        self._limits = float(min_duration or 0), float(max_duration or 0)
        self._quality = 50.0 if quality is None else float(quality)
        self._rate = float(sample_rate or 0)
        self._with_rate = read_sample_rate is None or bool(read_sample_rate)
        self._with_text = read_text is None or bool(read_text)
        self._with_number = bool(read_idxs)
        self._index: _Index | None = None

    @override
    def describe_bottleneck(self) -> tuple[str, str]:
        return "sounds to be decoded", "store them at the sample rate that is used (sample_rate), or read further ahead (prefetch_queue_depth)"

    @override
    def scan(self) -> int:
        if self._index is None:
            if self._dtype not in _DTYPES:
                name = str(self._dtype).removeprefix("torch.")
                raise RuntimeError(f"{self._op}: Unsupported output type: {name}; it must be float32, int16 or int32")
            if not 0 <= self._quality <= 100:
                raise RuntimeError(f"{self._op}: Resampling quality must be in [0..100] range, got {self._quality}")
            _soundfile()
            index = _Index()
            for manifest in self._manifests:
                with open_file(self._op, "manifest_filepaths", manifest) as file:
                    content = file.read()
                try:
                    text = text_of(content).decode()
                except UnicodeDecodeError as error:
                    raise RuntimeError(f'{self._op}: manifest_filepaths "{manifest}" is not valid UTF-8 text: {error}') from None
                index.add(self._op, manifest, text, self._limits)
            if not index.pack():
                raise RuntimeError(f"{self._op}: No files found in {', '.join(self._manifests) or 'an empty list of manifests'}")
            self._index = index
            self._remote = any(map(is_url, self._manifests)) or index.has_urls
        return len(self._index.numbers)

    @override
    def list_costs(self, column: str) -> np.ndarray:
        if column != "seconds":
            return super().list_costs(column)
        self.scan()
        assert self._index is not None
        return np.where(self._index.durations < 0, np.nan, self._index.durations)

    def _source(self, sample: int) -> str:
        assert self._index is not None
        return self._index.path(sample)

    @override
    def start(self, samples: np.ndarray) -> "_Request":
        assert self._index is not None
        alone = self._index.parts(samples)
        whole, pool = np.flatnonzero(~alone), self._pool()
        files = pool.submit(self._batch, samples[whole]) if len(whole) else None
        return _Request(whole, files, {k: pool.submit(self._read, int(samples[k])) for k in np.flatnonzero(alone).tolist()})

    @override
    def finish(self, request: "_Request", samples: np.ndarray) -> tuple[Batch, ...]:
        if self._process != os.getpid():
            request = self.start(samples)
        whole, files, parts = request
        reads: dict[int, Callable[[], Sequence[Array]]] = {k: part.result for k, part in parts.items()}
        if files is not None:
            try:
                outputs = files.result()
                if not parts:
                    outputs[0].sources = tuple(map(self._source, samples.tolist()))
                    return outputs
                reads.update((k, partial(_row, outputs, row)) for row, k in enumerate(whole.tolist()))
            except Exception:  # reading each alone shows which entry fails, and why
                reads.update((k, partial(self._read, int(samples[k]))) for k in whole.tolist())
        return self._join_samples([reads[k] for k in range(len(samples))], samples)

    def _batch(self, samples: np.ndarray) -> tuple[Batch, ...]:
        """Decode whole files on native threads and return their outputs: soundfile under the GIL took twice the time."""
        index = self._index
        assert index is not None
        files = ranges_of(b"", *pack_paths([index.path(sample) for sample in samples.tolist()])).start(np.arange(len(samples))).finish()
        total, rates = lengths(files, self._max_sample_bytes)
        wanted = np.where(index.durations[samples] < 0, total, np.minimum(total, index.durations[samples] * rates)).astype(np.int64)
        # A part that ends before its file does is resampled from its own frames only.
        alone = (total > 2 * wanted) | ((self._rate > 0) & (wanted < total) & (rates != self._rate))
        index.is_part[samples] = np.where(alone, _YES, _NO)
        contents = [content.buffer for content in files]
        if alone.all():
            sounds = []
        elif alone.any():
            sounds = list(self._decode(pack_samples([content for content, part in zip(contents, alone, strict=True) if not part])))
        else:
            sounds = self._decode(files)
        if (wanted < total).any():  # also because durations have few digits: a frame is missing
            rest = iter(sounds)
            sounds = pack_samples(
                [
                    self._sound(io.BytesIO(content.numpy().data), 0, float(index.durations[sample]))[0] if part else next(rest).buffer[:length]
                    for content, part, sample, length in zip(contents, alone, samples.tolist(), wanted.tolist(), strict=True)
                ]
            )
        assert isinstance(sounds, Batch)
        rows = [self._others(sample, rate) for sample, rate in zip(samples.tolist(), rates.tolist(), strict=True)]
        return sounds, *map(pack_samples, zip(*rows, strict=True))

    def _decode(self, files: Batch) -> Batch:
        sounds, _ = audio(files, **self._decoding())
        sounds.wait()
        return sounds

    def _decoding(self) -> dict[str, Any]:
        return {
            "downmix": self._downmix,
            "dtype": self._dtype,
            "quality": self._quality,
            "sample_rate": self._rate,
            "max_sample_bytes": self._max_sample_bytes,
        }

    def _read(self, sample: int) -> Sequence[Array]:
        index = self._index
        assert index is not None
        path = index.path(sample)
        if not is_url(path):
            check_regular(path)
        source = io.BytesIO(read_all(path)) if is_url(path) else path  # a single request
        sound, rate = self._sound(source, index.offsets[sample], index.durations[sample])
        return sound, *self._others(sample, rate)

    def _others(self, sample: int, rate: float) -> list[Array]:
        """Return the outputs other than the audio."""
        index = self._index
        assert index is not None
        outputs: list[Array] = []
        if self._with_rate:
            outputs.append(np.array(rate, np.float32))
        if self._with_text:
            outputs.append(np.frombuffer(index.text(sample), np.uint8))
        if self._with_number:
            outputs.append(index.numbers[sample : sample + 1])
        return outputs

    def _lacks_length(self, file: Any, source: str | io.BytesIO) -> bool:
        """Return whether libsndfile does not know how many frames there are."""
        if 0 < file.frames < MAX_FRAMES and file.format != "MP3":
            return False
        total, _ = lengths(pack_samples([_contents(source)]), self._max_sample_bytes)
        return bool(total[0] != file.frames)

    def _decode_part(self, source: str | io.BytesIO, offset: float, duration: float) -> tuple[Array, float]:
        """Return a part of a file that has to be decoded to know how long it is, as a file of its own."""
        whole, rate = audio(as_tensor(_contents(source)), max_sample_bytes=self._max_sample_bytes)
        begin = min(int(max(offset, 0) * rate.item()), len(whole.torch()))
        end = None if duration < 0 else begin + int(duration * rate.item())
        wav = io.BytesIO()
        _soundfile().write(wav, whole.torch()[begin:end].numpy(), int(rate.item()), "FLOAT", format="WAV")
        sound, _ = audio(as_tensor(np.frombuffer(wav.getvalue(), np.uint8)), **self._decoding())
        return sound.torch(), rate.item()

    def _sound(self, source: str | io.BytesIO, offset: float, duration: float) -> tuple[Array, float]:
        """Return samples and sampling rate of a part of a file."""
        with _soundfile().SoundFile(source) as file:
            rate, total = file.samplerate, file.frames
            if self._lacks_length(file, source):
                return self._decode_part(source, offset, duration)
            begin = min(int(max(offset, 0) * rate), total)
            wanted = total - begin if duration < 0 else int(min(total - begin, duration * rate))
            check_sample(f"{wanted} frames of {file.channels} channels have", wanted * file.channels * 4, self._max_sample_bytes)
            file.seek(begin)
            # Integers of a file that stay integers do not go through floats.
            resampled = self._rate > 0 and self._rate != rate
            plain = not resampled and (self._dtype == torch.float32 or not self._downmix or file.channels == 1)
            samples = file.read(wanted, _DTYPES[self._dtype] if plain else "float32", always_2d=True)
        if len(samples) < wanted:
            raise RuntimeError(f"it ends after {begin + len(samples)} of {total} frames")
        if plain or not wanted:
            if self._downmix:
                samples = samples[:, 0] if samples.shape[1] == 1 else samples.mean(1, dtype=np.float32)
            return torch.from_numpy(np.ascontiguousarray(samples)).to(self._dtype), rate
        wav = io.BytesIO()
        _soundfile().write(wav, samples, rate, "FLOAT", format="WAV")
        content = as_tensor(np.frombuffer(wav.getvalue(), np.uint8))
        sound, _ = audio(content, **self._decoding())
        return sound.torch(), rate


class _Request(NamedTuple):
    """A batch that is being read."""

    whole: np.ndarray
    """Positions of the samples that are read together."""
    files: Future[tuple[Batch, ...]] | None
    """Their outputs."""
    parts: dict[int, Future[Sequence[Array]]]
    """The outputs of the others, by position."""


def _contents(source: str | io.BytesIO) -> np.ndarray:
    return np.frombuffer(source.getvalue() if isinstance(source, io.BytesIO) else read_all(source), np.uint8)


def _row(outputs: tuple[Batch, ...], row: int) -> list[Array]:
    return [output.nth(row).torch() for output in outputs]


class _Index:
    """The entries of all manifests, packed: one Python object each would take ten times the memory."""

    def __init__(self) -> None:
        self._folders: list[str] = []
        self._entries: list[tuple[int, str, bytes, float, float, int]] = []

    def add(self, op: str, manifest: str, text: str, limits: tuple[float, float]) -> None:
        folder = manifest.rpartition("/")[0]
        number, skipped = 0, 0
        self._folders.append(folder)
        for entry in _objects(text):
            values = _parse_entry(entry)
            if values is None:
                skipped += 1
                continue
            path, transcript, offset, duration = values
            if (limits[0] > 0 and duration < limits[0]) or (limits[1] > 0 and duration > limits[1]):
                continue
            self._entries.append((len(self._folders) - 1, path, transcript, offset, duration, number))
            number += 1
        if skipped:
            warnings.warn(f"{op}: {skipped} parts of {manifest} were skipped: they are not objects with an audio_filepath", stacklevel=2)

    def pack(self) -> int:
        """Pack the entries into arrays and return their number."""
        if not self._entries:
            return 0
        folders, paths, texts, offsets, durations, numbers = zip(*self._entries, strict=True)
        self._entries = []
        self._folder = np.array(folders, np.int32)
        self._paths, self._path_offsets = pack_paths(paths)
        self._texts, self._text_offsets = b"".join(texts), np.cumsum([0, *map(len, texts)], dtype=np.int64)
        self.offsets, self.durations = np.array(offsets), np.array(durations)
        self.numbers = np.array(numbers, np.int64)
        self.is_part = np.where(self.offsets > 0, _YES, np.where(self.durations < 0, _NO, _UNKNOWN)).astype(np.int8)
        return len(numbers)

    def parts(self, samples: np.ndarray) -> np.ndarray:
        """Return which of some entries are parts of their files, as far as known without reading."""
        for sample in samples[self.is_part[samples] == _UNKNOWN].tolist():
            path = self.path(sample)
            if is_url(path):
                continue
            with suppress(OSError):  # reading it raises the error
                if os.stat(path).st_size > max(self.durations[sample], 0) * _BYTES_PER_SECOND + _HEADER_BYTES:
                    self.is_part[sample] = _YES
        return self.is_part[samples] == _YES

    @property
    def has_urls(self) -> bool:
        return b"://" in self._paths

    def path(self, sample: int) -> str:
        path = os.fsdecode(self._paths[self._path_offsets[sample] : self._path_offsets[sample + 1]])
        folder = self._folders[self._folder[sample]]
        if not folder or is_url(path) or os.path.isabs(path):
            return path
        beside = f"{folder}/{path}"
        return beside if is_url(folder) or os.path.exists(beside) else path

    def text(self, sample: int) -> bytes:
        return self._texts[self._text_offsets[sample] : self._text_offsets[sample + 1]]


def _objects(text: str) -> Iterator[Any]:
    """Yield the consecutive JSON values of a text, which may span several lines; None for a line that is not JSON."""
    decoder, at = json.JSONDecoder(), 0
    while True:
        while at < len(text) and (text[at].isspace() or text[at] == ","):
            at += 1
        if at == len(text):
            return
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            value, line = None, text.find("\n", at)
            at = len(text) if line < 0 else line
        yield value


def _parse_entry(entry: Any) -> tuple[str, bytes, float, float] | None:
    """Return path, text, offset and duration of an entry; None if it is invalid. A negative duration means that of the file."""
    if not isinstance(entry, dict):
        return None
    path, text, offset, duration = (entry.get(name) for name in ("audio_filepath", "text", "offset", "duration"))
    if not isinstance(path, str) or not path or not isinstance(text, str | None):
        return None
    numbers = []
    for value, default in ((offset, 0.0), (duration, -1.0)):
        if not isinstance(value, int | float | None) or isinstance(value, bool):
            return None
        value = default if value is None else float(value) if abs(value) < 1e12 else np.nan
        if not np.isfinite(value):
            return None
        numbers.append(value)
    try:
        return path, (text or "").encode("utf-8", "surrogatepass"), *numbers  # type: ignore[return-value]
    except UnicodeEncodeError:
        return None


def _soundfile() -> Any:
    try:
        return importlib.import_module("soundfile")
    except ImportError:
        raise RuntimeError("readers.NemoAsr: sounds need soundfile: pip install torch_ndd[audio]") from None
