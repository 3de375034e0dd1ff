# SPDX-License-Identifier: Apache-2.0
"""Reading and decoding sounds and parts of them."""

import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from typing_extensions import Unpack, override

from ... import types
from ..._core.context.device import DeviceLike
from ..._core.optional import import_optional
from ..._core.process.files import check_regular
from ..._core.process.workers import is_here
from ..._core.values.batch import Batch
from ..._core.values.tensor import Tensor, as_tensor
from ...decoders._files import place
from ...decoders._remote_sounds import RemoteSound
from ...decoders.audio import audio, fetch_sound, lengths
from ...io._urls import Range, is_url
from .._options import DecodingOptions
from .._ranges.ranges import Ranges, pack_paths
from .._ranges.remote import ranges_of
from .._threads import Array, ThreadedReader, pack_samples
from ._table import SoundTable

_DTYPES = (torch.float32, torch.int16, torch.int32)


class SpeechReader(ThreadedReader):
    """Base class of readers of sounds: subclasses find the sounds and add outputs.

    A batch is read and decoded by native threads. Short parts of long files, which are sought, and parts that are resampled are decoded one by one.
    """

    _decoded_downmix: bool
    """Whether channels are averaged when they are decoded."""

    def __init__(
        self,
        max_batch_size: int | None,
        device: DeviceLike,
        dtype: Any,
        quality: float | None,
        sample_rate: float | None,
        **loader: Unpack[DecodingOptions],
    ) -> None:
        super().__init__(max_batch_size, device, loader)
        self._dtype = torch.float32 if dtype is None else types.to_dtype(dtype)
        self._quality = 50.0 if quality is None else float(quality)
        self._rate = float(sample_rate or 0)
        self._sounds: SoundTable | None = None
        self._members: Ranges | None = None

    # Hooks of subclasses.

    def _find_sounds(self) -> SoundTable:
        """Return the sounds of the data set. Raise RuntimeError if there are none."""
        raise NotImplementedError

    def _finish_sound(self, sample: int, sound: Array, rate: float) -> Sequence[Array]:
        """Return the outputs of a sample from its decoded part."""
        raise NotImplementedError

    def _finish_sounds(self, samples: np.ndarray, sounds: Batch, rates: Sequence[float]) -> tuple[Batch, ...]:
        """Return the outputs of a batch from its decoded parts."""
        raise NotImplementedError

    @override
    def list_costs(self, column: str) -> np.ndarray:
        """Return the durations of the manifest, in seconds.

        :meta private:
        """
        if column != "seconds":
            return super().list_costs(column)
        self.scan()
        durations = self._table.durations
        return np.where(durations < 0, np.nan, durations)

    @property
    def _table(self) -> SoundTable:
        assert self._sounds is not None
        return self._sounds

    @override
    def describe_bottleneck(self) -> tuple[str, str]:
        return "sounds to be decoded", "store them at the sample rate that is used (sample_rate), or read further ahead (prefetch_queue_depth)"

    @override
    def scan(self) -> int:
        if self._sounds is None:
            if self._dtype not in _DTYPES:
                name = str(self._dtype).removeprefix("torch.")
                raise RuntimeError(f"{self._op}: Unsupported output type: {name}; it must be float32, int16 or int32")
            if not 0 <= self._quality <= 100:
                raise RuntimeError(f"{self._op}: Resampling quality must be in [0..100] range, got {self._quality}")
            import_soundfile(self._op)
            sounds = self._find_sounds()
            sounds.pack()
            self._remote = sounds.has_urls
            if sounds.has_members:
                # Sounds inside archives are byte ranges; whole files need none.
                self._members = ranges_of(b"", *pack_paths(sounds.files()), sounds.file, sounds.begin, sounds.length)
            self._sounds = sounds
        return len(self._sounds)

    @override
    def _source(self, sample: int) -> str:
        return self._table.path(sample)

    @override
    def start(self, samples: np.ndarray) -> "Request":
        alone = self._are_alone(samples)
        whole, pool = np.flatnonzero(~alone), self._pool()
        files = pool.submit(self._batch, samples[whole]) if len(whole) else None
        return Request(whole, files, {k: pool.submit(self._read, int(samples[k])) for k in np.flatnonzero(alone).tolist()})

    @override
    def finish(self, request: "Request", samples: np.ndarray) -> tuple[Batch, ...]:
        if not is_here(self._executor):
            request = self.start(samples)
        whole, files, parts = request
        reads: dict[int, Callable[[], Sequence[Array]]] = {k: part.result for k, part in parts.items()}
        if files is not None:
            try:
                outputs = files.result()
                if not parts:
                    outputs[0].sources = tuple(map(self._source, samples.tolist()))
                    return outputs
                # Rows of the batch, so both kinds of samples are joined in their order.
                reads.update((k, partial(_row, outputs, row)) for row, k in enumerate(whole.tolist()))
            except Exception:  # reading each alone shows which sample fails, and why
                reads.update((k, partial(self._read, int(samples[k]))) for k in whole.tolist())
        return self._join_samples([reads[k] for k in range(len(samples))], samples)

    def _are_alone(self, samples: np.ndarray) -> np.ndarray:
        """Return which samples are read alone: those without a file, and parts of their files, as far as known without reading."""
        sounds = self._table
        for sample in samples[sounds.is_part[samples] == SoundTable.UNKNOWN].tolist():
            path = sounds.path(sample)
            if is_url(path):
                continue
            with suppress(OSError):  # reading it raises the error
                # A file much larger than its part needs: seek in it instead of reading it to its end.
                if sounds.is_long(os.stat(path).st_size, max(sounds.durations[sample], 0)):
                    sounds.is_part[sample] = SoundTable.YES
        return (sounds.is_part[samples] == SoundTable.YES) | (sounds.file[samples] < 0)

    def _contents(self, samples: np.ndarray) -> Batch:
        """Read the files of samples, or the bytes in them that are the sounds."""
        if self._members is not None:
            return self._members.start(samples).finish()
        paths = [self._table.path(sample) for sample in samples.tolist()]
        return ranges_of(b"", *pack_paths(paths)).start(np.arange(len(samples))).finish()

    def _batch(self, samples: np.ndarray) -> tuple[Batch, ...]:
        """Decode on native threads and return all outputs: soundfile under the GIL took twice the time."""
        table = self._table
        first, place = table.share_sounds(samples)
        files = self._contents(samples[first])
        totals, file_rates = lengths(files, self._max_sample_bytes)
        total, rates = totals[place], file_rates[place]
        # skip
        offsets, durations = np.maximum(table.offsets[samples], 0), table.durations[samples]
        durations = np.where(durations < 0, np.inf, durations)
        # Whole frames, and never behind the end of the file.
        begin = np.minimum(np.floor(offsets * rates), total)
        wanted = np.minimum(np.floor(durations * rates), total - begin)
        durations[begin + wanted >= total] = np.inf  # or the last frame after resampling would be missing
        # A part is resampled from its own frames only, as by DALI.
        apart = (self._rate > 0) & (wanted < total) & (rates != self._rate)
        # Remember what this read has shown: a short part of a long file is read alone next time.
        table.is_part[samples] = np.where(((total > 2 * wanted) | apart) & (table.length[samples] < 0), SoundTable.YES, SoundTable.NO)
        # The fast way: one native call decodes and resamples all of them.
        if len(first) == len(samples) and not apart.any():
            sounds, _ = audio(files, start=offsets.tolist(), duration=durations.tolist(), **self._decoding())
            sounds.wait()
        else:
            contents = [content.buffer for content in files]
            parts = [self._submit(contents[k], offset, duration) for k, offset, duration in zip(place, offsets, durations, strict=True)]
            sounds = pack_samples(
                [
                    self._sound(as_tensor(contents[k]), offset, duration)[0] if alone else part.torch()
                    for k, part, alone, offset, duration in zip(place, parts, apart, offsets, durations, strict=True)
                ]
            )
        return self._finish_sounds(samples, sounds, rates.tolist())

    def _submit(self, content: torch.Tensor, offset: float, duration: float) -> Any:
        return audio(as_tensor(content), start=float(offset), duration=float(duration), **self._decoding())[0]

    def _decoding(self) -> dict[str, Any]:
        return {
            "downmix": self._decoded_downmix,
            "dtype": self._dtype,
            "quality": self._quality,
            "sample_rate": self._rate,
            "max_sample_bytes": self._max_sample_bytes,
        }

    @override
    def _read(self, sample: int) -> Sequence[Array]:
        table = self._table
        if table.file[sample] < 0:
            raise RuntimeError(table.missing[sample][1])
        path = table.path(sample)
        file: Tensor | RemoteSound
        # Only the bytes of the part are read.
        if is_url(path):
            file = RemoteSound(Range(path, int(table.begin[sample]), int(table.length[sample])))
        else:
            check_regular(path)
            file = place(path, int(table.begin[sample]), int(table.length[sample]))
        duration = float(table.durations[sample])
        try:
            sound = self._sound(file, float(table.offsets[sample]), np.inf if duration < 0 else duration)
        except RuntimeError as error:
            # The reader names itself and the sample.
            text = str(error).removeprefix("decoders.audio: sample 0").removeprefix(f" ({path})").removeprefix(": ")
            raise RuntimeError(text) from None
        return self._finish_sound(sample, *sound)

    def _decode_samples(self, samples: np.ndarray, rate: int) -> torch.Tensor:
        """Mix, resample and convert float32 samples (frames, channels)."""
        # Through a file in memory, so mixing, resampling and conversion are those of the decoder.
        wav = io.BytesIO()
        import_soundfile(self._op).write(wav, samples, rate, "FLOAT", format="WAV")
        sound, _ = audio(as_tensor(np.frombuffer(wav.getvalue(), np.uint8)), **self._decoding())
        return sound.torch()

    def _sound(self, file: "Tensor | RemoteSound", offset: float, duration: float) -> tuple[torch.Tensor, float]:
        """Return samples and sampling rate of a part of a file."""
        part: dict[str, Any] = {"start": max(offset, 0.0), "duration": duration}
        # Nothing is decoded for the rate in the header.
        if self._rate > 0 and (rate := self._part(file, duration=0.0)[1].item()) != self._rate:
            samples, _ = self._part(file, **part, max_sample_bytes=self._max_sample_bytes)
            return self._decode_samples(samples.torch().numpy(), int(rate)), rate
        sound, rate = self._part(file, **part, **self._decoding())
        return sound.torch(), rate.item()

    def _part(self, file: "Tensor | RemoteSound", **part: Any) -> tuple[Tensor, Tensor]:
        return audio(file if isinstance(file, Tensor) else fetch_sound(file, **part), **part)


class Request(NamedTuple):
    """A batch that is being read."""

    whole: np.ndarray
    """Positions of the samples that are read together."""
    files: Future[tuple[Batch, ...]] | None
    """Their outputs."""
    parts: dict[int, Future[Sequence[Array]]]
    """The outputs of the others, by position."""


def import_soundfile(op: str) -> Any:
    """Return the package soundfile. Raise RuntimeError if it is not installed."""
    return import_optional("soundfile", f"{op}: sounds need soundfile", "audio")


def _row(outputs: tuple[Batch, ...], row: int) -> list[Array]:
    return [output.nth(row).torch() for output in outputs]
