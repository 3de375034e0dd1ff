# SPDX-License-Identifier: Apache-2.0
"""An HTTP client for fsspec with limits: bodies are counted as they arrive, a silent server ends the attempt, nothing is decompressed."""

import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from ._body import Body, take_bytes
from ._limits import LimitError, Meter, meter

_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


class _CountedBody:
    """The body of a response, which counts its bytes and enforces the limits."""

    def __init__(self, stream: Any, counts: Meter, max_bytes: int) -> None:
        self._stream, self._meter, self._max_bytes = stream, counts, max_bytes
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def readany(self) -> bytes:
        return self._count_part(await self._stream.readany())

    async def read(self, n: int = -1) -> Any:
        if n >= 0:
            return self._count_part(await self._stream.read(n))
        body = Body()
        try:
            while part := await self.readany():
                body.append(part)
        except BaseException:  # its traceback refers to the body, and may live long
            body.clear()
            raise
        return body.content() if self._meter.takes_bodies else take_bytes(body)

    async def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        while part := await self.read(n):
            yield part

    def _count_part(self, part: bytes) -> bytes:
        self._count += len(part)
        self._meter.note_bytes(len(part))
        if self._count > self._max_bytes:
            if self._max_bytes < self._meter.max_bytes:
                raise LimitError(f"the server sent more than the requested {self._max_bytes} bytes")
            self._meter.check_size(self._count)
        return part


class _Response(aiohttp.ClientResponse):
    """A response whose body is counted."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        counts = meter.get() or Meter()
        counts.counts = True
        await super().start(connection)
        # A compressed body could expand to any size, and ranges would refer to compressed bytes.
        if 200 <= self.status < 300 and self.headers.get("Content-Encoding", "identity") not in ("identity", ""):
            raise LimitError(f"the server sent it with Content-Encoding {self.headers['Content-Encoding']}, although identity was requested")
        max_bytes = counts.max_bytes
        requested = _RANGE.fullmatch(self.request_info.headers.get("Range", ""))
        counts.ignored_range = "Range" in self.request_info.headers and self.status == 200
        if requested is not None and self.status == 206:
            # A server that answers a range with more bytes than requested is stopped.
            max_bytes = min(max_bytes, int(requested[2]) - int(requested[1]) + 1)
        # Rejected by the header, before any byte of the body is read.
        if self.method != "HEAD" and (self.content_length or 0) > counts.max_bytes:
            counts.check_size(self.content_length or 0)
        self.content = _CountedBody(self.content, counts, max_bytes)  # type: ignore[assignment]
        return self


async def client(**options: Any) -> aiohttp.ClientSession:
    """Return the HTTP session of an fsspec file system, with the options that the user has configured."""
    headers = dict(options.pop("headers", None) or {})
    headers = {**{name: value for name, value in headers.items() if name.lower() != "accept-encoding"}, "Accept-Encoding": "identity"}
    # The default timeout is for other callers, such as a zip file system over HTTP; the limits of an operation are reached earlier.
    timeout = options.pop("timeout", None) or aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=30)
    return aiohttp.ClientSession(**{**options, "auto_decompress": False}, headers=headers, timeout=timeout, response_class=_Response)
