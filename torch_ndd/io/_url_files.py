# SPDX-License-Identifier: Apache-2.0
"""Files at URLs as Python file objects."""

import io
from collections import OrderedDict

from . import _limits
from ._body import BLOCK, Body, take_bytes
from ._urls import Range, fetch, file_size

# For videos: one block per request and few blocks in memory, because FFmpeg first reads a video sequentially and then seeks to some frames.
_BLOCK, _BLOCKS = BLOCK, 4


class RangeFile(io.RawIOBase):
    """A file at a URL; each read is a request. It may be read on any thread, with the limits of the thread that created it."""

    _as_sent = False

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url, self._limits = url, _limits.current_limits()
        self._position = 0
        self._size: int | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = 0 if whence == io.SEEK_SET else self._position if whence == io.SEEK_CUR else self.size()
        self._position = max(start + offset, 0)
        return self._position

    def size(self) -> int:
        """Return the size in bytes. Raise RuntimeError if it cannot be determined."""
        if self._size is None:
            with _limits.using(self._limits):
                self._size = file_size(self._url)
        return self._size

    def read(self, count: int = -1) -> bytes:
        left = max(self.size() - self._position, 0)
        left = left if count is None or count < 0 else min(left, count)
        part = self._bytes(self._position, left) if left else b""
        self._position += len(part)
        return part

    def _bytes(self, begin: int, length: int) -> bytes:
        with _limits.using(self._limits):
            (content,) = fetch([Range(self._url, begin, length)], self._as_sent)
        if isinstance(content, Exception):
            raise content
        return self._take_content(content)

    def _take_content(self, content: bytes | Body) -> bytes:
        return take_bytes(content)


class RemoteFile(RangeFile):
    """A file at a URL read in blocks, for C libraries. Exceptions cannot cross them: an error is stored in ``error``, and the file appears to end."""

    _as_sent = True

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self.error: BaseException | None = None

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        try:
            return super().seek(offset, whence)
        except BaseException as error:  # including KeyboardInterrupt: the caller of the library raises it
            self.error = error
            return -1

    def size(self) -> int:
        """Return the size in bytes. Raise RuntimeError if it cannot be determined."""
        if self._size is None and not self._blocks:
            self._block(0)  # most videos of data sets are one block, which gives their size without another request
        return super().size()

    def read(self, count: int = -1) -> bytes:
        try:
            left = self.size() - self._position
            left = left if count is None or count < 0 else min(left, count)
            parts = []
            while left > 0:
                number, first = divmod(self._position, _BLOCK)
                part = self._block(number)[first : first + left]
                if not part:
                    raise EOFError(f"{self._url}: it ends at byte {self._position} of {self._size}")
                parts.append(part)
                self._position += len(part)
                left -= len(part)
            return b"".join(parts)
        except BaseException as error:
            self.error = error
            return b""

    def _take_content(self, content: bytes | Body) -> bytes:
        if not isinstance(content, Body):
            return content
        # The whole file: from a web server without range requests.
        self._size = len(content)
        self._blocks = OrderedDict()
        content.move_to(lambda part: self._blocks.setdefault(len(self._blocks), bytes(part)))
        return b""

    def _block(self, number: int) -> bytes:
        if number not in self._blocks:
            begin = number * _BLOCK
            content = self._bytes(begin, _BLOCK)
            if number in self._blocks:  # _take_content() has stored the whole file
                return self._blocks[number]
            # A short block is the last one, and gives the size of the file.
            if len(content) < _BLOCK and self._size is None:
                self._size = begin + len(content)
            self._blocks[number] = content
            if len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(number)
        return self._blocks[number]
