# SPDX-License-Identifier: Apache-2.0
"""The bytes of a download in blocks, which the system gets back one by one: a file of 3 GB that is moved somewhere takes 3 GB on the way, not 6."""

import io
import mmap
from collections.abc import Callable, Sequence
from typing import Any

BLOCK = 4 * 1024 * 1024

Part = bytes | bytearray | memoryview


class Body:
    """Bytes that are appended, and then moved."""

    def __init__(self) -> None:
        self._blocks: list[mmap.mmap] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, part: Part) -> None:
        """Add bytes at the end."""
        left = memoryview(part)
        while len(left):
            at = self._size % BLOCK
            if not at:
                self._blocks.append(mmap.mmap(-1, BLOCK, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            count = min(len(left), BLOCK - at)
            self._blocks[-1][at : at + count] = left[:count]
            self._size += count
            left = left[count:]

    def move_to(self, put: Callable[[memoryview], Any]) -> None:
        """Call ``put`` with each block, in order, and give it back to the system; nothing is left."""
        self._give(put, True)

    def copy_to(self, put: Callable[[memoryview], Any]) -> None:
        """Call ``put`` with each block, in order."""
        self._give(put, False)

    def _give(self, put: Callable[[memoryview], Any], release: bool) -> None:
        for k, block in enumerate(self._blocks):
            with memoryview(block) as whole, whole[: min(BLOCK, self._size - k * BLOCK)] as part:
                put(part)
            if release:
                block.close()
        if release:
            self._blocks, self._size = [], 0

    def part(self, begin: int, end: int | None = None) -> bytes:
        """Return a copy of some of the bytes."""
        end = self._size if end is None else min(end, self._size)
        pieces = []
        while begin < end:
            number, at = divmod(begin, BLOCK)
            pieces.append(self._blocks[number][at : min(BLOCK, at + end - begin)])
            begin += len(pieces[-1])
        return b"".join(pieces)

    def clear(self) -> None:
        """Give everything back to the system, even if a traceback still refers to this object."""
        self.move_to(lambda _: None)

    def content(self) -> "bytes | Body":
        """Return few bytes as they are, and more as this object."""
        if self._size > BLOCK:
            return self
        few = self.part(0)
        self.clear()
        return few


def take_bytes(content: bytes | Body) -> bytes:
    """Return all bytes, which are gone from ``content``."""
    if isinstance(content, bytes):
        return content
    file = io.BytesIO()  # grows in place, and gives its memory away without a copy
    content.move_to(file.write)
    return file.getvalue()


def part_of(content: bytes | Body, begin: int, end: int | None) -> bytes:
    """Return a copy of some of the bytes."""
    return content[begin:end] if isinstance(content, bytes) else content.part(begin, end)


def fill(out: memoryview, contents: Sequence[bytes | Body]) -> None:
    """Write contents one after the other into memory of their size. Those in blocks are gone then."""
    at, last = 0, {id(content): k for k, content in enumerate(contents)}

    def put(part: Part) -> None:
        nonlocal at
        out[at : at + len(part)] = part
        at += len(part)

    for k, content in enumerate(contents):
        if isinstance(content, bytes):
            put(content)
        elif last[id(content)] == k:
            content.move_to(put)
        else:
            content.copy_to(put)
