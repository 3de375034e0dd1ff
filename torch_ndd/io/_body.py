# SPDX-License-Identifier: Apache-2.0
"""The bytes of a download in blocks that are freed one by one: moving a file of 3 GB elsewhere takes 3 GB at the peak, not 6."""

import io
import mmap
from collections.abc import Callable, Sequence
from typing import Any

BLOCK = 4 * 1024 * 1024

Part = bytes | bytearray | memoryview


class Body:
    """Bytes that are appended in parts, and then moved or copied as blocks."""

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
                # Mapped, because freeing a mapping returns its memory to the system immediately, which malloc does not guarantee.
                self._blocks.append(mmap.mmap(-1, BLOCK, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
            count = min(len(left), BLOCK - at)
            self._blocks[-1][at : at + count] = left[:count]
            self._size += count
            left = left[count:]

    def move_to(self, put: Callable[[memoryview], Any]) -> None:
        """Call ``put`` with each block, in order, and free the block; the object is empty afterwards."""
        self._pass_blocks(put, True)

    def copy_to(self, put: Callable[[memoryview], Any]) -> None:
        """Call ``put`` with each block, in order."""
        self._pass_blocks(put, False)

    def _pass_blocks(self, put: Callable[[memoryview], Any], release: bool) -> None:
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
        """Free all memory, even if a traceback still refers to this object."""
        self.move_to(lambda _: None)

    def content(self) -> "bytes | Body":
        """Return the bytes if they are few, else this object."""
        if self._size > BLOCK:
            return self
        few = self.part(0)
        self.clear()
        return few


def take_bytes(content: bytes | Body) -> bytes:
    """Return all bytes, and empty ``content``."""
    if isinstance(content, bytes):
        return content
    file = io.BytesIO()  # grows in place, and getvalue() does not copy
    content.move_to(file.write)
    return file.getvalue()


def part_of(content: bytes | Body, begin: int, end: int | None) -> bytes:
    """Return a copy of some of the bytes."""
    return content[begin:end] if isinstance(content, bytes) else content.part(begin, end)


def fill(out: memoryview, contents: Sequence[bytes | Body]) -> None:
    """Write contents one after the other to memory of their total size, emptying those in blocks. A content may occur several times."""
    # The last use of a content may free its blocks; the ones before it must not.
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
