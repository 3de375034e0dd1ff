# SPDX-License-Identifier: Apache-2.0
"""Cuts of recordings with transcripts, from Lhotse manifests and Shar folders."""

import json
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from typing_extensions import Unpack, override

from ..._core.context.device import DeviceLike
from ..._core.process.files import text_of
from ..._core.values.batch import Batch, new_batch
from ...io._urls import open_file
from .._options import DecodingOptions
from .._ranges.ranges import Path, as_paths
from .._ranges.records import TAR, scan, warn_if_cut
from .._threads import Array, pack_samples
from ..webdataset._archive_paths import expand_paths
from ._base import SpeechReader
from ._table import SoundTable, Texts

_OUTPUTS = ("audio", "rate", "text", "speaker", "segments", "id")
_MAX_MANIFEST_BYTES = 16 << 30  # decompressed: a guard against small files that expand without end
_PART = 1 << 20


class Lhotse(SpeechReader):
    """Read the recordings of Lhotse's cuts, decoded, with their supervisions.

    A manifest has one cut per line. A ``MonoCut`` selects seconds and a channel of a recording in a file or at a URL. In a Shar folder, the
    recordings of ``cuts.000000.jsonl.gz`` are in ``recording.000000.tar`` beside it, in the same order.

    Outputs: a dict of Batches: ``audio``, (frames,); ``rate``, the sampling rate of the recording in Hz, float32 scalar; of the supervisions ``text``
        and ``speaker``, one per line, UTF-8 as uint8 (length,), and ``segments``, their begin and duration in seconds from the begin of the cut,
        float64 (supervisions, 2); ``id``, UTF-8 as uint8 (length,).

    Args:
        cuts: The manifest, ``.jsonl`` or ``.jsonl.gz``, or several; a path, a URL, a pattern such as ``"cuts.{000000..000063}.jsonl.gz"``, or a Shar
            folder. Manifests with a ``recording.*.tar`` beside them, whose recordings are in Shar's form, are read as Shar.
        max_batch_size: Default batch size of :meth:`next_epoch`.
        device: ``"cpu"``.
        dtype: float32, int16 or int32; see :func:`decoders.audio`.
        max_duration: Leave out longer cuts, in seconds; 0 for no limit.
        min_duration: Leave out shorter cuts; 0 for no limit.
        quality: Quality of resampling, from 0 to 100.
        sample_rate: Resample to this rate in Hz; a part is resampled from its own frames only.
        loader: Options of all readers, see :class:`LoaderOptions`.

    Raises:
        RuntimeError: at the first step, for a manifest that cannot be read, a line that is not a cut, and what is not supported, with the id of the
            cut: MixedCut, PaddingCut and MultiCut, cuts without a recording, recordings that come from commands or memory or are transformed; at any
            step, for audio that cannot be read or differs from its manifest.

    >>> reader = Lhotse("train/cuts.jsonl.gz", sample_rate=16000, max_duration=20)
    """

    def __init__(
        self,
        cuts: Path | Sequence[Path],
        max_batch_size: int | None = None,
        *,
        device: DeviceLike = "cpu",
        dtype: Any = None,
        max_duration: float | None = None,
        min_duration: float | None = None,
        quality: float | None = None,
        sample_rate: float | None = None,
        **loader: Unpack[DecodingOptions],
    ) -> None:
        super().__init__(max_batch_size, device, dtype, quality, sample_rate, **loader)
        self._decoded_downmix = False
        self._cuts = as_paths(cuts)
        self._limits = float(min_duration or 0), float(max_duration or 0)
        self._texts, self._speakers, self._ids = Texts(), Texts(), Texts()
        self._segments = Texts()
        self._channels = np.empty(0, np.int32)
        self._rates = np.empty(0, np.float64)

    @override
    def _find_sounds(self) -> SoundTable:
        sounds, (shortest, longest) = SoundTable(), self._limits
        channels, rates = [], []
        for manifest in expand_paths(self._op, [_names_in(path) for path in self._cuts]):
            members: _Members | None = None
            for number, line in enumerate(self._lines(manifest)):
                cut = _parse_cut(self._op, manifest, number, line)
                # Archives beside the manifest are scanned only if a cut needs them.
                if cut.source is None and members is None:
                    members = _Members(self._op, manifest, sounds)
                if cut.duration < shortest or 0 < longest < cut.duration:
                    continue
                # Lhotse rounds to the nearest frame, so half a frame is added to what is rounded down.
                begin, count = (math.floor(seconds * cut.rate + 0.5) for seconds in (cut.start, cut.duration))
                part = ((begin + 0.5) / cut.rate if begin else 0.0, (count + 0.5) / cut.rate)
                if cut.source is not None:
                    sounds.add(sounds.add_file(manifest.rpartition("/")[0], cut.source), *part)
                else:
                    assert members is not None
                    members.add(cut.id, number, *part)
                channels.append(cut.column)
                rates.append(cut.rate)
                for texts, text in ((self._texts, cut.text), (self._speakers, cut.speaker), (self._ids, cut.id)):
                    texts.add(text.encode("utf-8", "surrogatepass"))
                self._segments.add(np.array(cut.segments, np.float64).tobytes())
        if not len(sounds):
            raise RuntimeError(f"{self._op}: no cuts found in {', '.join(self._cuts) or 'an empty list of manifests'}")
        self._channels, self._rates = np.array(channels, np.int32), np.array(rates, np.float64)
        return sounds

    @override
    def list_costs(self, column: str) -> np.ndarray:
        seconds = super().list_costs(column)
        # Duration was extended by half a frame above.
        return np.floor(seconds * self._rates) / self._rates  # of whole frames

    def _lines(self, manifest: str) -> Iterator[bytes]:
        with open_file(self._op, "cuts", manifest) as file:
            content = file.read()
        if content.startswith(b"\x1f\x8b"):
            content = _decompress(self._op, manifest, content)
        yield from (line for line in text_of(content).split(b"\n") if line.strip())

    def _check_rate(self, sample: int, rate: float) -> None:
        if rate != self._rates[sample]:
            raise RuntimeError(f"its sampling rate is {rate:g} Hz, but {self._rates[sample]:g} in the manifest")

    def _channel(self, sample: int, sound: torch.Tensor) -> torch.Tensor:
        if not len(sound) and self._table.durations[sample] * self._rates[sample] >= 1:
            start = math.floor(self._table.offsets[sample] * self._rates[sample]) / self._rates[sample]
            raise RuntimeError(f"cut {self._ids[sample].decode(errors='replace')!r} begins at {start:.6g} s, where this recording has ended")
        column = int(self._channels[sample])
        if column >= sound.shape[1]:
            raise RuntimeError(f"it has {sound.shape[1]} channels, but the manifest has a channel in place {column}")
        return sound[:, column]

    @override
    def _finish_sound(self, sample: int, sound: Array, rate: float) -> Sequence[Array]:
        self._check_rate(sample, rate)
        return [self._channel(sample, torch.as_tensor(sound)), np.array(rate, np.float32), *self._others(sample)]

    def _others(self, sample: int) -> list[Array]:
        text, speaker, segments, name = (column[sample] for column in (self._texts, self._speakers, self._segments, self._ids))
        return [*(np.frombuffer(each, np.uint8) for each in (text, speaker)), np.frombuffer(segments).reshape(-1, 2), np.frombuffer(name, np.uint8)]

    @override
    def _finish_sounds(self, samples: np.ndarray, sounds: Batch, rates: Sequence[float]) -> tuple[Batch, ...]:
        channels = []
        for sample, sound, rate in zip(samples.tolist(), sounds, rates, strict=True):
            self._check_rate(sample, rate)
            channels.append(self._channel(sample, sound.torch()))
        others = zip(*map(self._others, samples.tolist()), strict=True)
        return pack_samples(channels), new_batch(torch.tensor(rates, dtype=torch.float32)), *map(pack_samples, others)

    @override
    def finish(self, request: Any, samples: np.ndarray) -> dict[str, Batch]:  # type: ignore[override]
        return dict(zip(_OUTPUTS, super().finish(request, samples), strict=True))


class _Cut(NamedTuple):
    id: str
    source: str | None
    """The file of the recording; None for one in Shar's archive."""
    rate: float
    start: float
    duration: float
    column: int
    """The place of the channel in the file."""
    text: str
    speaker: str
    segments: list[tuple[float, float]]


class _Members:
    """The recordings beside a manifest of Shar."""

    def __init__(self, op: str, manifest: str, sounds: SoundTable) -> None:
        folder, slash, name = manifest.rpartition("/")
        parts = name.split(".")
        if parts[0] != "cuts" or len(parts) < 3:
            raise RuntimeError(f'{op}: "{manifest}" has recordings in the form of Shar, but its name is not that of Shar: cuts.000000.jsonl.gz')
        self._tar = f"{folder}{slash}recording.{parts[1]}.tar"
        try:
            found = scan(TAR, self._tar)
        except OSError as error:
            raise RuntimeError(f'{op}: "{self._tar}" cannot be read: {error.strerror or error}') from None
        except RuntimeError as error:
            raise RuntimeError(f"{op}: {error}") from None
        warn_if_cut(op, self._tar, found)
        names = [found.names[begin:end].decode(errors="surrogateescape") for begin, end in pairwise(found.name_offsets.tolist())]
        # A sound, or a placeholder for none, and then its description.
        self._members = [(os.path.splitext(name), k) for k, name in enumerate(names) if not name.endswith((".json", ".nometa"))]
        self._places = found.begin.tolist(), found.length.tolist()
        self._sounds, self._file = sounds, sounds.add_file("", self._tar)

    def add(self, cut: str, number: int, offset: float, duration: float) -> None:
        """Append the recording of a cut, the one with this number in its manifest, to the table of sounds."""
        (name, kind), k = self._members[number] if number < len(self._members) else (("", ""), 0)
        if name != cut or kind == ".nodata":
            # Shar writes recordings in the order of the cuts, so the number identifies them, and the name confirms it.
            found = f"{name!r} is in its place" if name and name != cut else "there is none"
            self._sounds.add_missing(f"cut {cut!r}", f"its recording is not in {self._tar}: {found}", duration)
        else:
            self._sounds.add(self._file, offset, duration, self._places[0][k], self._places[1][k])


def _names_in(path: str) -> str:
    """Return a pattern for the manifests in a Shar folder; any other path unchanged."""
    return os.path.join(path, "cuts.*.jsonl*") if os.path.isdir(path) else path


def _decompress(op: str, manifest: str, content: bytes) -> bytes:
    parts, size = [], 0
    try:
        while content:  # gzip files may be concatenated
            stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
            while not stream.eof:
                part = stream.decompress(content, _PART)
                content = stream.unconsumed_tail
                size += len(part)
                if size > _MAX_MANIFEST_BYTES:
                    raise RuntimeError(f'{op}: cuts "{manifest}" has more than {_MAX_MANIFEST_BYTES} bytes when it is decompressed')
                # No output, no input and no end: the stream is truncated.
                if not part and not content and not stream.eof:
                    raise RuntimeError(f'{op}: cuts "{manifest}" is damaged: the compressed data end early')
                parts.append(part)
            content = stream.unused_data
    except zlib.error as error:
        raise RuntimeError(f'{op}: cuts "{manifest}" is damaged: {error}') from None
    return b"".join(parts)


def _parse_cut(op: str, manifest: str, number: int, line: bytes) -> _Cut:
    """Return a cut; raise RuntimeError with its id for one that is not supported or damaged."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # brackets that are nested deeper than Python's stack
        value = None
    if not isinstance(value, dict):
        raise RuntimeError(f'{op}: line {number + 1} of "{manifest}" is not a cut in JSON')
    name = value.get("id")

    def refuse(what: str) -> RuntimeError:
        return RuntimeError(f"{op}: cut {name!r} in line {number + 1} of {manifest}: {what}")

    kind = value.get("type", "MonoCut")
    if kind != "MonoCut":
        raise refuse(f"{kind} is not supported, only MonoCut")
    recording = value.get("recording")
    if recording is None:
        raise refuse("a MonoCut without a recording, of features only, is not supported" if "features" in value else "it has no recording")
    try:
        # A manifest may hold anything: what is missing or of another type raises below, wherever it is used, and gets one message.
        rate, start, duration = (_number(each) for each in (recording["sampling_rate"], value["start"], value["duration"]))
        for field, amount, least in (("sampling_rate", rate, 1), ("start", start, 0), ("duration", duration, 0)):
            if amount < least:
                raise refuse(f"it is damaged: {field} must be at least {least}, but is {amount:g}")
        if not isinstance(name, str):
            raise ValueError
        if recording.get("transforms"):
            raise refuse("a recording with transforms is not supported; save the recordings as they are to be read")
        channel = value.get("channel", 0)
        source = next((source for source in recording["sources"] if channel in source["channels"]), None)
        if source is None:
            raise refuse(f"its recording has no channel {channel!r}")
        if source["type"] not in ("file", "url", "shar"):
            raise refuse(f"a recording of type {source['type']!r} is not supported, only files, URLs and Shar")
        if not isinstance(source["source"], str) or (source["type"] != "shar" and not source["source"]):
            raise ValueError
        supervisions = value.get("supervisions") or []
        text, speaker = ("\n".join(str(each.get(key) or "") for each in supervisions) for key in ("text", "speaker"))
        segments = [(_number(each["start"]), _number(each["duration"])) for each in supervisions]
        path = None if source["type"] == "shar" else source["source"]
        return _Cut(name, path, rate, start, duration, source["channels"].index(channel), text, speaker, segments)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise refuse("it is damaged: a field is missing, or is not of its type") from None


def _number(value: Any) -> float:
    # `not <` refuses NaN too.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise TypeError
    return float(value)
