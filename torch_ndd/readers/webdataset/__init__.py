# SPDX-License-Identifier: Apache-2.0
"""Samples of several files each, from tar archives."""

import json
import os
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from typing_extensions import Unpack, override

from ... import types
from ..._core import native
from ..._core.context.device import DeviceLike
from ..._core.process.files import open_text, text_of
from ..._core.suggestions import check_choice
from ..._core.values.batch import Batch, new_batch
from ..._core.work.bad_samples import UnreadableSamples
from ...io._urls import read_all
from .._base import Reader
from .._options import LoaderOptions
from .._ranges.ranges import Path, Ranges, Sources, address_of, as_paths, pack_paths, packed_batch
from .._ranges.records import TAR, refuse, scan, warn_if_cut
from .._ranges.remote import ranges_of
from ._archive_paths import expand_paths
from ._tar_headers import BLOCK, is_whole, mismatches, name_of, split_name

MissingComponent = Literal["empty", "skip", "error"]

_DTYPES = (
    torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
    torch.float64,
)  # fmt: skip
# A component in an index whose names contain blanks.
_COMPONENT = re.compile(rb"(\S+) (\d+) (\d+) (.*?)(?= \S+ \d+ \d+ |$)")


class Webdataset(Reader):
    """Read samples from tar archives: neighboring files whose paths are equal up to the first dot of their names.

    Each output is the file of a sample with one of its extensions, as an array (length,) of its dtype. Hidden files are left out.

    Args:
        max_batch_size: Default batch size of :meth:`next_epoch`.
        name: Ignored, like ``num_inputs``; accepted for compatibility with DALI.
        device: ``"cpu"``.
        paths: The archives, uncompressed: ustar, or with long names of GNU tar or pax. ``{000..127}`` and ``{a,b}`` stand for several names,
            wildcards for the files that match, a folder for its ``*.tar``.
        ext: Extensions of each output, with or without the first dot; alternatives are separated by ``;``, and the first file in the archive that
            has one of them is taken.
        case_sensitive_extensions: Match extensions case-sensitively, so that ``jpg`` does not match ``A.JPG``.
        decode: Decode ``cls``, ``id`` and ``index`` to int64 of shape (), ``txt`` to a list of str, and ``json`` to a list of objects. Encoded images
            and sounds remain bytes, for the decoders.
        dtypes: Dtypes of the outputs, by default uint8.
        index_paths: Indices of the archives, written by ``wds2idx`` (v1.1 and v1.2) or ``python -m torch_ndd.index wds``. Without indices, the files
            are found by their headers, in 1 us per file. A file whose header is not what the index says is an error.
        missing_component_behavior: What to do with samples without a file for one of the outputs: ``"empty"`` delivers no elements, ``"skip"`` leaves
            them out, ``"error"`` raises RuntimeError. By default ``"empty"``, with a warning if no sample has such a file.
        loader: Options of all readers, see :class:`LoaderOptions`.

    Raises:
        RuntimeError: at the first step, if an archive or its index cannot be read, and for invalid arguments; at any step, with archive and byte
            offset, for a file that is damaged, does not have a whole number of elements, or is not what the index says, and for a sample with
            several files of one extension.

    >>> import io, tarfile, tempfile
    >>> path = tempfile.mkdtemp() + "/shard.tar"
    >>> with tarfile.open(path, "w") as archive:
    ...     for name, text in (("1.jpg", b"image"), ("1.cls", b"7"), ("2.png", b"other"), ("2.cls", b"8")):
    ...         info = tarfile.TarInfo(name)
    ...         info.size = len(text)
    ...         archive.addfile(info, io.BytesIO(text))
    >>> reader = Webdataset(paths=[path], ext=["jpg;png", "cls"])
    >>> [tuple(bytes(component.torch().tolist()) for component in sample) for sample in reader.next_epoch()]
    [(b'image', b'7'), (b'other', b'8')]
    >>> reader = Webdataset(paths=path[:-9] + "/*.tar", ext=[".jpg;png", ".cls"], decode=True)
    >>> [labels.torch().tolist() for _, labels in reader.next_epoch(batch_size=2)]
    [[7, 8]]
    """

    _combines_shuffles = True

    def __init__(
        self,
        max_batch_size: int | None = None,
        name: str | None = None,
        device: DeviceLike = "cpu",
        num_inputs: int | None = None,
        *,
        paths: Path | Sequence[Path],
        ext: str | Sequence[str],
        case_sensitive_extensions: bool | None = None,
        decode: bool = False,
        dtypes: Any = None,
        index_paths: Path | Sequence[Path] | None = None,
        missing_component_behavior: MissingComponent | None = None,
        **loader: Unpack[LoaderOptions],
    ) -> None:
        super().__init__(max_batch_size, device, loader)
        self._paths, self._indices = as_paths(paths), as_paths(index_paths or [])
        self._ext = [";".join(part.removeprefix(".") for part in extensions.split(";")) for extensions in ([ext] if isinstance(ext, str) else ext)]
        self._decoders = [_decoder_of(extensions) if decode else None for extensions in self._ext]
        self._case_sensitive = case_sensitive_extensions is None or bool(case_sensitive_extensions)
        dtype_list = [] if dtypes is None else list(dtypes) if isinstance(dtypes, list | tuple) else [dtypes]
        self._dtypes = [types.to_dtype(dtype) for dtype in dtype_list] or [torch.uint8] * len(self._ext)
        self._missing = (missing_component_behavior or "empty").lower()
        self._warns_of_missing = missing_component_behavior is None
        self._ranges: Ranges | None = None  # of the components
        self._components = np.empty((0, 0), np.int64)  # (outputs, samples)
        self._names: _Names | None = None
        # An index is not trusted: the first read of a file also reads its tar header and compares it.
        self._files, self._compared = 0, np.zeros(0, bool)  # the files, and which have been compared with their headers
        self._extensions: list[bytes] = []  # of the files, where there are indices
        self._damaged: dict[int, str] = {}
        self._places: dict[int, str] = {}  # by sample, for messages

    @override
    def scan(self) -> int:
        if self._ranges is None:
            self._check()
            if not self._indices:
                self._paths = expand_paths(self._op, self._paths)
            self._ranges, self._components, self._names, self._damaged = self._find_components()
        return self._components.shape[1]

    def _check(self) -> None:
        if not self._ext:
            raise RuntimeError(f"{self._op}: ext is empty")
        check_choice(self._op, "missing_component_behavior", self._missing, get_args(MissingComponent))
        if len(self._dtypes) != len(self._ext):
            raise RuntimeError(f"{self._op}: there are {len(self._dtypes)} dtypes for {len(self._ext)} outputs")
        for dtype in self._dtypes:
            if dtype not in _DTYPES:
                raise RuntimeError(f"{self._op}: dtypes must not contain {dtype}")
        if self._indices and len(self._indices) != len(self._paths):
            raise RuntimeError(f"{self._op}: there are {len(self._indices)} index files for {len(self._paths)} archives")

    def _find_components(self) -> "tuple[Ranges, np.ndarray, _Names, dict[int, str]]":
        shards, tables, damaged, components, samples = [], [], {}, 0, 0
        for k, path in enumerate(self._paths):
            try:
                shard = _read_index(self._indices[k]) if self._indices else _scan_archive(self._op, path)
            except RuntimeError as error:
                raise RuntimeError(f"{self._op}: {error}") from None
            table, twice = self._table(shard)
            if shard.reason and table.size and (table[:, -1] < 0).any():
                # What the archive has lost may be the rest of this sample, which would otherwise count as one without these files.
                table, twice = table[:, :-1], twice[:-1]
            if self._missing != "empty" and table.size:
                whole = (table >= 0).all(0)
                if self._missing == "error" and not whole.all():
                    sample = int(np.argmin(whole))
                    output = self._ext[int(np.argmax(table[:, sample] < 0))]
                    raise RuntimeError(f'{self._op}: "{path}": sample {sample} has no file for the output {output!r}')
                table, twice = table[:, whole], twice[whole]
            damaged |= dict.fromkeys((samples + np.flatnonzero(twice)).tolist(), "it has several files with the same extension")
            if shard.reason:
                # The rest of a damaged archive is one sample without files, whose reason is known.
                number = samples + table.shape[1]
                damaged[number], self._places[number] = shard.reason, f"{path} at byte {shard.damaged}"
                table = np.concatenate([table, np.full((len(table), 1), -1)], 1)
            # Components are numbered through all archives.
            tables.append(np.where(table < 0, table, table + components))
            shards.append(shard)
            components += len(shard.begin)
            samples += table.shape[1]
        empty = np.empty(0, np.int64)
        file = np.repeat(np.arange(len(shards), dtype=np.int32), [len(shard.begin) for shard in shards])
        begin, length = (np.concatenate([empty, *parts]) for parts in ([shard.begin for shard in shards], [shard.length for shard in shards]))
        self._files, self._compared = len(begin), np.zeros(len(begin), bool)
        if self._indices:  # the headers follow, in the order of their files
            file, begin, length = np.tile(file, 2), np.append(begin, begin - BLOCK), np.append(length, np.full(len(begin), BLOCK))
        found = ranges_of(b"", *pack_paths(self._paths), file, begin, length)
        self._extensions = [shard.extensions[k] for shard in shards for k in shard.extension.tolist()] if self._indices else []
        outputs = np.concatenate([np.empty((len(self._ext), 0), np.int64), *tables], 1)
        if self._warns_of_missing and not any(shard.reason for shard in shards):  # what follows the damage may have had the files
            self._warn_of_unknown_extensions(outputs, {ext for shard in shards for ext in shard.extensions})
        return found, outputs, _join_names(shards), damaged

    def _warn_of_unknown_extensions(self, outputs: np.ndarray, extensions: set[bytes]) -> None:
        """Warn of outputs that have no file at all, which a misspelled extension causes."""
        known = ", ".join(sorted(ext.decode(errors="replace") for ext in extensions)[:10]) or "none"
        for ext, components in zip(self._ext, outputs, strict=True):
            if len(components) and (components < 0).all():
                warnings.warn(
                    f"{self._op}: no file of the archives has the extension {ext!r}, so its output is empty; their extensions are {known}. "
                    'If this is intended, pass missing_component_behavior="empty"',
                    UserWarning,
                    stacklevel=2,
                )

    def _table(self, shard: "_Shard") -> tuple[np.ndarray, np.ndarray]:
        """Return the component of each output and sample, or -1, int64 (outputs, samples), and which samples have several with one extension."""

        def fold_case(ext: bytes) -> bytes:
            return ext if self._case_sensitive else ext.lower()

        numbers: dict[bytes, list[int]] = {}
        for k, ext in enumerate(shard.extensions):
            numbers.setdefault(fold_case(ext), []).append(k)
        table = np.full((len(self._ext), shard.samples), -1, np.int64)
        twice = np.zeros(shard.samples, bool)
        for row, alternatives in zip(table, self._ext, strict=True):
            # Of alternatives such as "jpg;png" a sample may have a file each, and its first one wins; two with one extension are an error.
            choices = [numbers.get(fold_case(os.fsencode(each)), []) for each in alternatives.split(";")]
            for choice in choices:
                counts = np.bincount(shard.sample[np.isin(shard.extension, choice)], minlength=shard.samples) if choice else twice
                twice |= counts > 1
            wanted = [k for choice in choices for k in choice]
            fits = np.zeros(len(shard.extensions), bool)
            fits[wanted] = True
            chosen = np.flatnonzero(fits[shard.extension])[::-1]  # written last, the first file of a sample wins
            row[shard.sample[chosen]] = chosen
        return table, twice

    def _source(self, sample: int) -> str:
        for component in self._components[:, sample].tolist():
            if component >= 0:
                assert self._ranges is not None
                return self._ranges.place(component)
        return self._places.get(sample, "a sample without files")

    @override
    def start(self, samples: np.ndarray) -> Any:
        assert self._ranges is not None
        numbers = self._components.take(samples, 1)
        if self._indices and (unknown := ~self._compared[numbers] & (numbers >= 0)).any():
            # -1 stands for an empty sample: the header was compared before.
            numbers = np.concatenate([numbers, np.where(unknown, numbers + self._files, -1)])
        return self._ranges.start(numbers)

    def _first(self, outputs: Any) -> Any:
        return tuple(output[0] if isinstance(output, list) else output.nth(0) for output in outputs)

    @override
    def finish(self, request: Any, samples: np.ndarray) -> Any:
        refuse(self._damaged, samples)
        outputs: list[Any] = []
        bad: dict[int, str] = {}
        parts, components = request.parts(), self._components.take(samples, 1)
        if len(parts) > len(self._ext):
            # The first components are the outputs, the others their headers.
            parts, headers = parts[: len(self._ext)], parts[len(self._ext) :]
            self._compare(headers, [lengths for _, lengths in parts], components)
        for k, (values, lengths) in enumerate(parts):
            if (decoder := self._decoders[k]) is not None:
                outputs.append(_decode_batch(decoder, np.asarray(values), np.asarray(lengths), bad, self._ext[k]))
                continue
            dtype = self._dtypes[k]
            if dtype != torch.uint8:
                for i in np.flatnonzero(lengths % dtype.itemsize).tolist():
                    bad.setdefault(i, f"{lengths[i]} bytes of {self._ext[k]} are not a multiple of the size of {dtype}")
                # The batch fails anyway, and such lengths cannot be viewed as the dtype.
                if bad:
                    continue
                values, lengths = values.view(dtype), lengths // dtype.itemsize
            batch = packed_batch(values, lengths)
            batch.sources = Sources(self._written_source, components[k])
            outputs.append(batch)
        if bad:
            raise UnreadableSamples(bad)
        return tuple(outputs)

    def _compare(self, headers: Sequence[tuple[torch.Tensor, np.ndarray]], lengths: Sequence[np.ndarray], components: np.ndarray) -> None:
        """Raise UnreadableSamples for samples whose files differ from the index: it may belong to another archive."""
        assert self._names is not None
        bad: dict[int, str] = {}
        # Without names in the index (v1.1), files of one sample must at least share the common part of their names.
        stems: dict[int, set[bytes]] = {}
        others = np.empty(components.shape[1], np.int64)
        for (values, found), sizes, row in zip(headers, lengths, components, strict=True):
            columns = (address_of(column) for column in (found, row, sizes))
            content, count = values.data_ptr(), len(row)
            differing = native.find_other_headers(content, *columns, count, self._names.packed, address_of(self._names.offsets), address_of(others))
            if not differing:
                continue
            there = others[:differing].tolist()
            files, blocks = row[there].tolist(), values.numpy().reshape(-1, BLOCK)[(np.cumsum(found > 0) - 1)[there]]
            known = [self._names.content(k) for k in files]
            wrong = mismatches(blocks, sizes[there].tolist(), known, [self._extensions[k] for k in files])
            bad |= {there[k]: why for k, why in wrong.items() if there[k] not in bad}
            for sample, block, name in zip(there, blocks, known, strict=True):
                if not name and is_whole(stored := name_of(block.tobytes())):
                    stems.setdefault(sample, set()).add(split_name(stored)[0])
        bad |= {sample: f"there are files of the samples {b' and '.join(sorted(found))!r}" for sample, found in stems.items() if len(found) > 1}
        if bad:
            advice = "the index is not that of this archive; write it again: python -m torch_ndd.index wds ARCHIVE"
            raise UnreadableSamples({sample: f"{why}; {advice}" for sample, why in bad.items()})
        # Only after the whole batch has passed.
        self._compared[components[components >= 0]] = True

    def _written_source(self, component: int) -> str:
        """Return where a sample is in DALI's form: archive, byte and name of the file."""
        if component < 0:
            return ""
        assert self._ranges is not None
        assert self._names is not None
        return f"{self._ranges.place(component).replace(' at byte ', ':')}:{self._names.text(component)}"


class _Names(NamedTuple):
    packed: bytes
    offsets: np.ndarray

    def content(self, k: int) -> bytes:
        return self.packed[self.offsets[k] : self.offsets[k + 1]]

    def text(self, k: int) -> str:
        return self.content(k).decode(errors="replace")


class _Shard(NamedTuple):
    """The files of an archive that belong to samples, in order."""

    sample: np.ndarray  # the sample of each, int64
    extension: np.ndarray  # index into `extensions`
    extensions: list[bytes]
    begin: np.ndarray
    length: np.ndarray
    names: _Names
    samples: int
    reason: str = ""  # why the rest of the archive cannot be read
    damaged: int = -1


def _join_names(shards: Sequence[_Shard]) -> _Names:
    counts = np.cumsum([0, *(len(shard.names.packed) for shard in shards)])
    offsets = [shard.names.offsets[:-1] + count for shard, count in zip(shards, counts, strict=False)]
    return _Names(b"".join(shard.names.packed for shard in shards), np.concatenate([*offsets, counts[-1:]]))


def _scan_archive(op: str, path: str) -> _Shard:
    found = scan(TAR, path)
    warn_if_cut(op, path, found)
    sample, extension, kept, known = [], [], [], {}
    last, samples = None, 0
    offsets = found.name_offsets.tolist()
    count, reason, damaged = len(found.begin), found.reason, found.damaged
    if count and not reason and found.begin[-1] + found.length[-1] > found.size:
        # The archive was cut off within its last file, whether an output needs that file or one of those after it.
        count, damaged = count - 1, int(found.begin[-1]) - BLOCK
        reason = f"a file of {found.length[-1]} bytes, but the archive ends earlier"
    for k in range(count):
        base, ext = split_name(found.names[offsets[k] : offsets[k + 1]])
        # Hidden files: nothing precedes the first dot of their names.
        if not base or base.endswith(b"/"):
            continue
        if base != last:
            last, samples = base, samples + 1
        kept.append(k)
        sample.append(samples - 1)
        extension.append(known.setdefault(ext, len(known)))
    names = [found.names[offsets[k] : offsets[k + 1]] for k in kept]
    chosen = np.array(kept, np.int64)
    packed = _Names(*pack_paths(names))
    sample_of, kind = np.array(sample, np.int64), np.array(extension, np.int64)
    return _Shard(sample_of, kind, list(known), found.begin[chosen], found.length[chosen], packed, samples, reason, damaged)


def _read_index(path: str) -> _Shard:
    sample, extension, begin, length, names, known = [], [], [], [], [], {}
    samples = 0

    def damage_error(what: str) -> RuntimeError:
        return RuntimeError(f'the index "{path}" is damaged: {what}')

    try:
        with open_text(read_all(path)) as file:
            header = file.readline().split()
            if len(header) != 2 or header[0] not in (b"v1.1", b"v1.2") or not header[1].isdigit():
                raise damage_error("its first line is not of version v1.1 or v1.2")
            expected, width = int(header[1]), 4 if header[0] == b"v1.2" else 3
            while samples < expected:
                line = file.readline()
                words = line.split()
                if width == 4 and len(words) % 4:
                    # Names with blanks break the split, so find the components by their numbers.
                    words = [word for found in _COMPONENT.finditer(line.rstrip(b"\n")) for word in found.groups()]
                if not words or len(words) % width:
                    raise damage_error(f"line {samples + 2} does not have the extension, begin and size of each file")
                for k in range(0, len(words), width):
                    ext, first, size = words[k : k + 3]
                    # More than 18 digits might not fit into 64 bits.
                    if not (first.isdigit() and size.isdigit()) or len(first) > 18 or len(size) > 18:
                        raise damage_error(f"line {samples + 2} does not have the extension, begin and size of each file")
                    if int(first) % BLOCK or not int(first):
                        raise damage_error(f"line {samples + 2}: a file begins at byte {int(first)}, which is not a multiple of {BLOCK}")
                    sample.append(samples)
                    extension.append(known.setdefault(ext, len(known)))
                    begin.append(int(first))
                    length.append(int(size))
                    names.append(words[k + 3] if width == 4 else b"")
                samples += 1
    except OSError as error:
        raise RuntimeError(f'"{path}" cannot be read: {error.strerror}') from None
    sample_of, kind = np.array(sample, np.int64), np.array(extension, np.int64)
    return _Shard(sample_of, kind, list(known), np.array(begin, np.int64), np.array(length, np.int64), _Names(*pack_paths(names)), samples)


def _number(content: bytes) -> int:
    text = text_of(content).decode("ascii").strip()
    # int() of a long text takes quadratic time, and would not fit anyway.
    value = int(text) if len(text) < 20 else 2**63
    if not -(2**63) <= value < 2**63:
        raise ValueError("it does not fit in 64 bits")
    return value


def _text(content: bytes) -> str:
    return text_of(content).decode()


def _parse_json(content: bytes) -> Any:
    return json.loads(content) if content else None


_KINDS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id", "count"), _number),
    **dict.fromkeys(("txt", "text", "transcript"), _text),
    **dict.fromkeys(("json", "jsn"), _parse_json),
}


def _decoder_of(alternatives: str) -> Callable[[bytes], Any] | None:
    """Return the decoder for files with these extensions; None if they are arrays, or need different decoders."""
    kinds = {_KINDS.get(extension.rpartition(".")[2].lower()) for extension in alternatives.split(";")}
    return kinds.pop() if len(kinds) == 1 else None


def _decode_batch(decoder: Callable[[bytes], Any], values: np.ndarray, lengths: np.ndarray, bad: dict[int, str], ext: str) -> Batch | list[Any]:
    """Return the values of a batch: int64 of shape () for numbers, else a list. Samples that cannot be decoded are put into ``bad``."""
    ends = np.cumsum(lengths)
    found = []
    for i, (end, length) in enumerate(zip(ends.tolist(), lengths.tolist(), strict=True)):
        try:
            found.append(decoder(values[end - length : end].tobytes()))
        except (ValueError, RecursionError) as error:  # json's and Unicode's errors are ValueErrors
            bad.setdefault(i, f"its {ext} cannot be decoded: {type(error).__name__}: {error}"[:300])
            # A placeholder keeps the rows aligned; the batch is rejected because of `bad`.
            found.append(0)
    return new_batch(torch.tensor(found, dtype=torch.int64)) if decoder is _number else found
