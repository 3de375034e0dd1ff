# SPDX-License-Identifier: Apache-2.0
"""Messages of Caffe and Caffe2 and LMDB databases of them, written by the tests."""

import struct
from collections.abc import Sequence
from pathlib import Path

import lmdb


def _varint(value: int) -> bytes:
    value %= 2**64
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def _whole(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def datum(data: bytes | None, label: int | None = None, shape: Sequence[int] = (), encoded: bool | None = None) -> bytes:
    """A message of Caffe; ``shape`` is channels, height, width."""
    parts = [_whole(1 + k, extent) for k, extent in enumerate(shape)]
    parts += [_bytes(4, data)] if data is not None else []
    parts += [_whole(5, label)] if label is not None else []
    parts += [_whole(7, encoded)] if encoded is not None else []
    return b"".join(parts)


def string(content: bytes) -> bytes:
    """A tensor of one string."""
    return _whole(2, 4) + _bytes(6, content)


def pixels(content: bytes, shape: Sequence[int]) -> bytes:
    """A tensor of bytes."""
    return b"".join(_whole(1, extent) for extent in shape) + _whole(2, 3) + _bytes(5, content)


def ints(values: Sequence[int], packed: bool = True) -> bytes:
    """A tensor of int32."""
    content = _bytes(4, b"".join(map(_varint, values))) if packed else b"".join(_whole(4, value) for value in values)
    return _whole(1, len(values)) + _whole(2, 2) + content


def floats(values: Sequence[float], packed: bool = True) -> bytes:
    """A tensor of float32."""
    each = [struct.pack("<f", value) for value in values]
    content = _bytes(3, b"".join(each)) if packed else b"".join(_varint(3 << 3 | 5) + value for value in each)
    return _whole(1, len(values)) + _whole(2, 1) + content


def tensors(*protos: bytes) -> bytes:
    """A message of Caffe2."""
    return b"".join(_bytes(1, proto) for proto in protos)


def write_lmdb(path: Path, values: Sequence[bytes], keys: Sequence[bytes] | None = None) -> str:
    """A database of these values."""
    with lmdb.open(str(path), map_size=1 << 24) as environment, environment.begin(write=True) as transaction:
        for k, value in enumerate(values):
            transaction.put(keys[k] if keys else b"%08d" % k, value)
    return str(path)
