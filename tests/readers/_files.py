# SPDX-License-Identifier: Apache-2.0
"""Small writers of the containers that readers read."""

import io
import struct
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

MAGIC = struct.pack("<I", 0xCED7230A)
GZIP = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + bytes(30)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def mask_checksum(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    result = bytearray()
    while number > 127:
        result.append(number & 127 | 128)
        number >>= 7
    return bytes([*result, number])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def strings(*values: bytes) -> bytes:
    return field(1, b"".join(field(1, value) for value in values))


def floats(values: Sequence[float], packed: bool = True) -> bytes:
    if packed:
        return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))
    return field(2, b"".join(varint(1 << 3 | 5) + struct.pack("<f", value) for value in values))


def ints(values: Sequence[int], packed: bool = True) -> bytes:
    return field(3, field(1, b"".join(map(varint, values))) if packed else b"".join(varint(1 << 3) + varint(value) for value in values))


def example(features: Mapping[str, bytes]) -> bytes:
    return field(1, b"".join(field(1, field(1, key.encode()) + field(2, value)) for key, value in features.items()))


def tfrecord(message: bytes) -> bytes:
    length = struct.pack("<Q", len(message))
    return length + mask_checksum(length) + message + mask_checksum(message[:64])  # the second checksum is not read


def write_records(path: Path, records: Sequence[bytes], index: str) -> Path:
    """Return the concatenated records; their index, with lines of this form, is written next to them."""
    path.write_bytes(b"".join(records))
    lines, begin = [], 0
    for k, record in enumerate(records):
        lines.append(index.format(k=k, begin=begin, size=len(record)))
        begin += len(record)
    path.with_suffix(".idx").write_text("".join(lines))
    return path


def write_tfrecord(path: Path, examples: Sequence[Mapping[str, bytes]]) -> Path:
    return write_records(path, [tfrecord(example(item)) for item in examples], "{begin} {size}\n")


def recordio(content: bytes) -> bytes:
    """Return a record; byte sequences that look like its magic number split it into several parts."""
    parts, begin = [], 0
    for at in range(0, len(content) - 3, 4):
        if content[at : at + 4] == MAGIC:
            parts.append(content[begin:at])
            begin = at + 4
    parts.append(content[begin:])
    kinds = [0] if len(parts) == 1 else [1, *[2] * (len(parts) - 2), 3]
    return b"".join(MAGIC + struct.pack("<I", kind << 29 | len(part)) + part + bytes(-len(part) % 4) for kind, part in zip(kinds, parts, strict=True))


def image_record(labels: float | Sequence[float], image: bytes) -> bytes:
    if isinstance(labels, Sequence):
        return struct.pack("<IfQQ", len(labels), 0, 0, 0) + struct.pack(f"<{len(labels)}f", *labels) + image
    return struct.pack("<IfQQ", 0, labels, 0, 0) + image


def write_recordio(path: Path, records: Sequence[tuple[float | Sequence[float], bytes]]) -> Path:
    return write_records(path, [recordio(image_record(*record)) for record in records], "{k}\t{begin}\n")


def write_tar(path: Path, files: Sequence[tuple[str, bytes | None]], form: int = tarfile.USTAR_FORMAT) -> Path:
    """Return an archive of files, and of folders for entries without content."""
    with tarfile.open(path, "w", format=form) as archive:
        for name, content in files:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return path
