# SPDX-License-Identifier: Apache-2.0
"""Speech with transcripts, from NeMo manifests."""

import json
import re
import warnings
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
from ._table import SoundTable, Texts, stem_of, unique

# NeMo's forms of a range in a name, some of which survive a shell or a command line better than braces.
_RANGE = re.compile(r"(?:_OP_|[\[({<])(\d+\.\.\d+)(?:_CL_|[\])}>])")
_SHARD = re.compile(r"_(\d+)\.tar$")


class NemoAsr(SpeechReader):
    """Read the audio files named in NeMo manifests, decoded, with their transcripts.

    A manifest has one JSON object per entry: ``audio_filepath`` (a URL or a path, relative to the manifest or the current folder) and, all optional,
    ``text``, and ``duration`` and ``offset`` in seconds, which select the part of the file to read. Anything else is skipped, with a warning that
    says how many and where the first is.

    With ``tar_paths`` the files are in tar archives. An entry belongs to the file with the same name without folder and extension, in the archive
    with its ``shard_id`` if it has one; files without an entry are left out, and an entry without a file is a sample that cannot be read
    (``on_error``). Entries of the same file in a batch share its bytes; of one that is much longer than its entry only a part is read. A manifest for
    each archive, in the same order, is that of its files.

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
        sample_rate: Resample to this rate in Hz; a part is resampled from its own frames only.
        tar_paths: The archives, paths or URLs; patterns such as ``"audio_{0..511}.tar"``, also with ``_OP_0..511_CL_``, ``(``, ``[`` or ``<``, which
            ``manifest_filepaths`` may then have too.
        max_sample_bytes: The largest sample to decode, as a protection against small files that promise a lot; by default the environment variable
            ``TORCH_NDD_MAX_SAMPLE_BYTES``, or 4 GiB.
        loader: Options of all readers, see :class:`LoaderOptions`.

    Raises:
        RuntimeError: at the first step, for manifests that cannot be read or are empty, another dtype, ``quality`` out of range, or without soundfile
            (``torch_ndd[audio]``), or, with ``on_error="raise"``, an archive that is damaged; at any step, for audio that cannot be read.
        ValueError: at the first step, for a manifest of other shards than those in ``tar_paths``.

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
        tar_paths: Path | Sequence[Path] | None = None,
        **loader: Unpack[DecodingOptions],
    ) -> None:
        super().__init__(max_batch_size, device, dtype, quality, sample_rate, **loader)
        self._manifests = as_paths(manifest_filepaths)
        self._tars = None if tar_paths is None else as_paths(tar_paths)
        self._decoded_downmix = downmix is None or bool(downmix)
        self._limits = float(min_duration or 0), float(max_duration or 0)
        self._with_rate = read_sample_rate is None or bool(read_sample_rate)
        self._with_text = read_text is None or bool(read_text)
        self._with_number = bool(read_idxs)
        self._texts = Texts()
        self._numbers = np.empty(0, np.int64)

    @override
    def _find_sounds(self) -> SoundTable:
        sounds, texts, numbers = SoundTable(), Texts(), []
        manifests, archives = self._manifests, None
        if self._tars is not None:
            manifests, tars = (_expand(self._op, paths) for paths in (self._manifests, self._tars))
            if not tars:
                raise ValueError(f"{self._op}: tar_paths is an empty list; give None for sounds that are not in archives")
            if len(manifests) not in (1, len(tars)):
                raise ValueError(f"{self._op}: there are {len(manifests)} manifests for {len(tars)} tar_paths; pass one for each, or one for all")
            archives = _Archives(self._op, tars, sounds, self._on_error == "raise")
        shards: set[int] = set()
        for k, manifest in enumerate(manifests):
            for number, entry in enumerate(self._entries(manifest)):
                path, text, offset, duration, shard = entry
                if archives is None:
                    sounds.add(sounds.add_file(manifest.rpartition("/")[0], path), offset, duration)
                else:
                    if shard is not None:
                        shards.add(shard)
                    # An entry names its shard; else manifest k belongs to archive k; a single manifest looks in all archives.
                    archives.add(path, shard if shard is not None else archives.ids[k] if len(manifests) > 1 else None, offset, duration)
                texts.add(text)
                numbers.append(number)
        if not numbers:
            raise RuntimeError(f"{self._op}: No files found in {', '.join(self._manifests) or 'an empty list of manifests'}")
        if archives is not None and shards and shards != set(archives.ids):
            raise ValueError(
                f"{self._op}: the manifest is for {len(shards)} shards, from {min(shards)} to {max(shards)}, but tar_paths are {len(archives.ids)} "
                f"shards, from {min(archives.ids)} to {max(archives.ids)}"
            )
        self._texts, self._numbers = texts, np.array(numbers, np.int64)
        return sounds

    def _entries(self, manifest: str) -> Iterator["_Entry"]:
        """Yield the entries of a manifest whose duration is within the limits."""
        with open_file(self._op, "manifest_filepaths", manifest) as file:
            content = file.read()
        try:
            text = text_of(content).decode()
        except UnicodeDecodeError as error:
            raise RuntimeError(f'{self._op}: manifest_filepaths "{manifest}" is not valid UTF-8 text: {error}') from None
        (shortest, longest), skipped, first = self._limits, 0, 0
        for value, place in _objects(text):
            entry = _parse_entry(value)
            if entry is None:
                skipped, first = skipped + 1, first if skipped else place
            elif not (shortest > 0 and entry.duration < shortest) and not 0 < longest < entry.duration:
                yield entry
        if skipped:
            line = 1 + text.count("\n", 0, first)
            reason = "they are not objects with an audio_filepath and numbers as duration and offset"
            warnings.warn(f"{self._op}: {skipped} parts of {manifest} were skipped, the first on line {line}: {reason}", stacklevel=2)

    @override
    def _finish_sound(self, sample: int, sound: Array, rate: float) -> Sequence[Array]:
        outputs: list[Array] = [sound]
        if self._with_rate:
            outputs.append(np.array(rate, np.float32))
        if self._with_text:
            outputs.append(np.frombuffer(self._texts[sample], np.uint8))
        if self._with_number:
            outputs.append(self._numbers[sample : sample + 1])
        return outputs

    @override
    def _finish_sounds(self, samples: np.ndarray, sounds: Batch, rates: Sequence[float]) -> tuple[Batch, ...]:
        outputs = [sounds]
        if self._with_rate:
            outputs.append(new_batch(torch.tensor(rates, dtype=torch.float32)))
        if self._with_text:
            outputs.append(pack_samples([np.frombuffer(self._texts[sample], np.uint8) for sample in samples.tolist()]))
        if self._with_number:
            outputs.append(pack_samples([self._numbers[sample : sample + 1] for sample in samples.tolist()]))
        return tuple(outputs)


def _expand(op: str, paths: Sequence[str]) -> list[str]:
    return expand_paths(op, [_RANGE.sub(r"{\1}", path) for path in paths])


class _Archives:
    """The files in tar archives, by their names without folder and extension."""

    def __init__(self, op: str, tars: Sequence[str], sounds: SoundTable, raises: bool) -> None:
        self._sounds, self._tars = sounds, tars
        self._files = [sounds.add_file("", tar) for tar in tars]
        self._scans, self._stems = [], []
        self._damage: list[str] = []  # of each archive, for messages
        for tar in tars:
            try:
                found = scan(TAR, tar)
            except OSError as error:
                raise RuntimeError(f'{op}: tar_paths "{tar}" cannot be read: {error.strerror or error}') from None
            except RuntimeError as error:
                raise RuntimeError(f"{op}: tar_paths {error}") from None
            if found.reason and raises:
                raise RuntimeError(f'{op}: tar_paths "{tar}" is damaged: {found.reason}')
            # The files after the damage are samples that cannot be read.
            self._damage.append(f"; {tar} is damaged at byte {found.damaged}: {found.reason}" if found.reason else "")
            warn_if_cut(op, tar, found)
            offsets = found.name_offsets.tolist()
            names = (found.names[b:e].decode(errors="surrogateescape") for b, e in pairwise(offsets))
            self._scans.append((found.begin.tolist(), found.length.tolist()))
            self._stems.append(unique(map(stem_of, names)))
        numbers = [_SHARD.search(tar) for tar in tars]
        named = [int(number[1]) for number in numbers if number is not None]
        # Numbers in the names of the archives, if they are unique; else their positions.
        self.ids = named if len(set(named)) == len(tars) else list(range(len(tars)))
        self._place = {shard: k for k, shard in enumerate(self.ids)}
        self._everywhere: dict[str, tuple[int, int]] = {}  # archive and file in it; negative: there are several
        for k, stems in enumerate(self._stems):
            for stem, file in stems.items():
                self._everywhere[stem] = (k, -1 if stem in self._everywhere else file)

    def add(self, path: str, shard: int | None, offset: float, duration: float) -> None:
        """Append an entry to the table of sounds."""
        stem = stem_of(path)
        if shard is None:
            tar, file = self._everywhere.get(stem, (-1, 0))
        else:
            tar = self._place.get(shard, -1)
            file = self._stems[tar].get(stem) if tar >= 0 else None
        where = "tar_paths" if shard is None or tar < 0 else self._tars[tar]
        if tar < 0 or file is None:
            damage = "".join(self._damage) if tar < 0 else self._damage[tar]
            self._sounds.add_missing(path, f"{where} has no file {stem!r}{damage}", duration)
        elif file < 0:
            self._sounds.add_missing(path, f"{where} has several files {stem!r}", duration)
        else:
            begin, length = self._scans[tar]
            self._sounds.add(self._files[tar], offset, duration, begin[file], length[file])


class _Entry(NamedTuple):
    path: str
    text: bytes
    offset: float
    duration: float
    """Seconds; negative for that of the file."""
    shard: int | None


def _objects(text: str) -> Iterator[tuple[Any, int]]:
    """Yield the consecutive JSON values of a text, which may span several lines, and where they begin; None for a line that is not JSON."""
    decoder, at = json.JSONDecoder(), 0
    while True:
        while at < len(text) and (text[at].isspace() or text[at] == ","):
            at += 1
        if at == len(text):
            return
        begin = at
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            # Continue with the next line, and count the broken one as skipped.
            value, line = None, text.find("\n", at)
            at = len(text) if line < 0 else line
        yield value, begin


def _parse_entry(entry: Any) -> _Entry | None:
    """Return an entry of a manifest; None if it is invalid."""
    if not isinstance(entry, dict):
        return None
    path, text, offset, duration = (entry.get(name) for name in ("audio_filepath", "text", "offset", "duration"))
    shard = entry.get("shard_id")
    if not isinstance(path, str) or not path or not isinstance(text, str | None):
        return None
    if not isinstance(shard, int | None) or isinstance(shard, bool):
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
        return _Entry(path, (text or "").encode("utf-8", "surrogatepass"), numbers[0], numbers[1], shard if shard is None or shard >= 0 else None)
    except UnicodeEncodeError:
        return None
