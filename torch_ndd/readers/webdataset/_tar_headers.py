# SPDX-License-Identifier: Apache-2.0
"""Headers of tar archives compared with an index: one that was written for another archive would give the bytes of other samples."""

from collections.abc import Sequence

import numpy as np

BLOCK = 512

_NAME, _PREFIX = slice(0, 100), slice(345, 500)
_SIZE, _CHECKSUM = slice(124, 136), slice(148, 156)
_KIND, _MAGIC = 156, slice(257, 263)
_FILES = b"0\x007"  # kinds of entries with contents
_MAX_SIZE = 8**11  # of the field in octal digits; a larger size is in a pax header


def split_name(path: bytes) -> tuple[bytes, bytes]:
    """Split a name into the sample's common part and the extension. Names without a dot lose their last letter, as in wds2idx.

    >>> split_name(b"./cat/1.seg.png")
    (b'cat/1', b'seg.png')
    """
    while path.startswith(b"./"):
        path = path[2:].lstrip(b"/")
    dot = path.find(b".", path.rfind(b"/") + 1)
    return path[:dot], path[dot + 1 :]


def mismatches(headers: np.ndarray, lengths: Sequence[int], names: Sequence[bytes], extensions: Sequence[bytes]) -> dict[int, str]:
    """Return the files whose header contradicts the index, each with the reason.

    Nearly all headers have a form in which native code compares them (csrc/readers/tar.cpp) in a hundredth of the time.

    Args:
        headers: The block in front of each file, uint8 (files, 512).
        lengths: The size of each in bytes.
        names: The name of each; empty where the index has none.
        extensions: The extension of each.
    """
    # The checksum of a header counts its own field as blanks.
    sums = headers.sum(1, dtype=np.int64) - headers[:, _CHECKSUM].sum(1, dtype=np.int64) + 8 * ord(" ")
    found = {}
    for k, (block, total, length, name, extension) in enumerate(zip(headers, sums.tolist(), lengths, names, extensions, strict=True)):
        header = block.tobytes()
        if _octal(header[_CHECKSUM]) != total or header[_KIND] not in _FILES:
            found[k] = "no file of the archive begins there"
        # A set high bit means a size in binary (GNU), and a pax header replaces the field: neither can be compared here.
        elif length < _MAX_SIZE and not header[_SIZE.start] & 0x80 and _octal(header[_SIZE]) != length:
            found[k] = f"the file there has {_octal(header[_SIZE])} bytes, not {length}"
        elif not _fits(stored := name_of(header), name, extension):
            found[k] = f"the file there is {stored.decode(errors='replace')!r}"
    return found


def name_of(header: bytes) -> bytes:
    """Return the name in a header, of which long ones are the beginning."""
    name, prefix = header[_NAME].partition(b"\0")[0], header[_PREFIX].partition(b"\0")[0]
    return prefix + b"/" + name if prefix and header[_MAGIC] == b"ustar\0" else name


def is_whole(stored: bytes) -> bool:
    """Return whether the name of a header is not the beginning of a longer one, nor has replacements for letters."""
    return len(stored) != _NAME.stop and b"?" not in stored


def _fits(stored: bytes, name: bytes, extension: bytes) -> bool:
    if not name:
        # The index has no names, so only the extension can be compared.
        return not is_whole(stored) or split_name(stored)[1] == extension
    if split_name(stored) == split_name(name):
        return True
    # Of a long name, or one with letters beyond ASCII, the header has the beginning, or replacements.
    plain = next((k for k, letter in enumerate(name) if letter >= 0x80), len(name))
    return (plain < len(name) or len(name) > _NAME.stop) and stored.startswith(name[: min(plain, _NAME.stop)])


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    try:
        return int(digits, 8) if digits.isdigit() else -1
    except ValueError:
        return -1
