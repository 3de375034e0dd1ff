# SPDX-License-Identifier: Apache-2.0
"""Parsing protocol buffers messages without their schema. Every length is checked."""

from collections.abc import Iterator

import numpy as np

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MOST = 10  # bytes per varint
_FEW = 24  # bytes of numbers, such as a label or a box, that Python decodes in 1 to 8 us; the calls of NumPy take 16


def fields(message: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Yield number, wire type and value of each field: an int for a varint, else its bytes. Raise ValueError for a damaged message.

    >>> [(number, value) for number, _, value in fields(memoryview(bytes([0x28, 0x96, 0x01])))]
    [(5, 150)]
    """
    at, end = 0, len(message)
    while at < end:
        key = message[at]
        if key < 0x80:  # nearly always
            at += 1
        else:
            key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if not 0 < number < 2**29:
            raise ValueError(f"field number {number} at byte {at}")
        if wire == VARINT:
            value, at = _varint(message, at)
            yield number, wire, value
            continue
        if wire == BYTES:
            length, at = _varint(message, at)
        elif wire in (FIXED64, FIXED32):
            length = 8 if wire == FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        # Lengths come from the file: a slice would silently be shorter.
        if length > end - at:
            raise ValueError(f"field {number} at byte {at} has {length} bytes, {end - at} are left")
        yield number, wire, message[at : at + length]
        at += length


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for k in range(min(_MOST, len(message) - at)):
        byte = message[at + k]
        value |= (byte & 0x7F) << 7 * k
        if byte < 0x80:
            return value & (2**64 - 1), at + k + 1
    raise ValueError(f"the number at byte {at} has no end")


def int32(value: int) -> int:
    """Decode a varint as int32."""
    # Negative numbers are stored as 64-bit two's complement; wrap to 32 bits.
    return (value + 2**31) % 2**32 - 2**31


def packed_int32(values: memoryview) -> np.ndarray:
    """Decode consecutive varints as int32."""
    if len(values) <= _FEW:
        numbers, at = [], 0
        while at < len(values):
            value, at = _varint(values, at)
            numbers.append(int32(value))
        return np.array(numbers, np.int32)
    data = np.frombuffer(values, np.uint8)
    last = np.flatnonzero(data < 0x80)
    if not len(last) or last[-1] != len(data) - 1:
        raise ValueError("the last of the packed numbers has no end")
    # A byte below 0x80 ends a number; the next one begins after it.
    first = np.concatenate([[0], last[:-1] + 1])
    if (last - first).max() >= _MOST:
        raise ValueError("one of the packed numbers has no end")
    # Position of each byte in its number: each byte holds 7 bits, the lowest first.
    shift = np.arange(len(data)) - np.repeat(first, last - first + 1)
    # Bytes from the sixth on do not reach the lower 32 bits.
    bits = np.where(shift < 5, (data & 0x7F).astype(np.uint64) << (7 * np.minimum(shift, 5)).astype(np.uint64), np.uint64(0))
    return np.bitwise_or.reduceat(bits, first).astype(np.uint32).view(np.int32)


def packed_float(values: memoryview) -> np.ndarray:
    """Decode consecutive floats as float32."""
    if len(values) % 4:
        raise ValueError(f"packed float numbers of {len(values)} bytes")
    return np.frombuffer(values, "<f4").astype(np.float32)
