# SPDX-License-Identifier: Apache-2.0
"""Formats of the packed data set: tar archives and TFRecord files."""

import io
import json
import os
import struct
import tarfile
from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple

from .._core import native


class Entry(NamedTuple):
    """A packed sample."""

    key: str  # its path without the ending
    ending: str
    content: bytes
    label: int | None
    objects: dict[str, Any] | None  # its COCO image and annotations


def write_tar(file: BinaryIO, entries: Iterable[Entry]) -> None:
    """Write a WebDataset archive: the image, ``.cls`` with the label, and ``.json`` with the annotations. Times and owners are zero."""
    # PAX, because the older formats limit the length of names.
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            parts = [(entry.ending, entry.content)]
            if entry.label is not None:
                parts.append((".cls", str(entry.label).encode()))
            if entry.objects is not None:
                parts.append((".json", json.dumps(entry.objects).encode()))
            for ending, content in parts:
                header = tarfile.TarInfo(entry.key + ending)
                header.size, header.mode = len(content), 0o644
                archive.addfile(header, io.BytesIO(content))


def write_tfrecord(file: BinaryIO, entries: Iterable[Entry]) -> bytes:
    """Write a TFRecord file and return its index. The features are called as in ImageNet's records; ``image/object/json`` has COCO annotations."""
    lines, begin = [], 0
    for entry in entries:
        features = {"image/encoded": _bytes(entry.content), "image/filename": _bytes(os.fsencode(entry.key + entry.ending))}
        if entry.label is not None:
            features["image/class/label"] = _field(3, _field(1, _varint(entry.label)))
        if entry.objects is not None:
            features["image/object/json"] = _bytes(json.dumps(entry.objects).encode())
        # An Example of TensorFlow (example.proto) in protocol buffers: features, a map from names to lists of values.
        message = _field(1, b"".join(_field(1, _field(1, name.encode()) + _field(2, value)) for name, value in features.items()))
        length = struct.pack("<Q", len(message))
        record = b"".join((length, _checksum(length), message, _checksum(message)))
        file.write(record)
        lines.append(f"{begin} {len(record)}\n")
        begin += len(record)
    return "".join(lines).encode()


def _bytes(content: bytes) -> bytes:
    return _field(1, _field(1, content))


def _varint(number: int) -> bytes:
    varint = bytearray()
    while number > 127:
        varint.append(number & 127 | 128)
        number >>= 7
    return bytes([*varint, number])


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _checksum(content: bytes) -> bytes:
    return struct.pack("<I", native.masked_crc32c(content, len(content)))
