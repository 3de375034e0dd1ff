# SPDX-License-Identifier: Apache-2.0
"""In-process web servers that misbehave: endless, slow, silent, or with wrong answers."""

import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Write = Callable[[bytes], None]
Answer = Callable[[Write, threading.Event], None]
"""Writes to a connection. The event is set at the end of the test: before that the client gives up, or waits until the test times out."""
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
_SECONDS = 600.0  # of a connection that is neither read nor closed


def _endless(write: Write, over: threading.Event, head: bytes, part: bytes, pause: float = 0.0) -> None:
    write(head)
    while not over.wait(pause):
        write(part)


def _silent(write: Write, over: threading.Event, head: bytes) -> None:
    if head:
        write(head)
    over.wait(_SECONDS)


_CHUNK = b"10000\r\n" + bytes(65536) + b"\r\n"
_GZIP = gzip.compress(bytes(4_000_000))
ANSWERS: dict[str, Answer] = {
    "an endless body": lambda write, over: _endless(write, over, _HEAD + b"Connection: close\r\n\r\n", bytes(65536)),
    "endless chunks": lambda write, over: _endless(write, over, _HEAD + b"Transfer-Encoding: chunked\r\n\r\n", _CHUNK),
    "a large Content-Length": lambda write, _: write(_HEAD + b"Content-Length: 999999999999\r\n\r\nabc"),
    # The connection is closed: a body that answers HEAD would be taken for the status line of the next answer on it.
    "a byte now and then": lambda write, over: _endless(write, over, _HEAD + b"Connection: close\r\nContent-Length: 100000\r\n\r\n", b"x", 0.02),
    "silence": lambda write, over: _silent(write, over, b""),
    "silence after the headers": lambda write, over: _silent(write, over, _HEAD + b"Content-Length: 10\r\n\r\n"),
    "slow headers": lambda write, over: _endless(write, over, _HEAD, b"X-A: b\r\n", 0.02),
    "endless headers": lambda write, over: _endless(write, over, _HEAD, b"X-A: " + b"b" * 1000 + b"\r\n"),
    "an endless header": lambda write, over: _endless(write, over, _HEAD + b"X-A: ", b"b" * 1000),
    "endless early answers": lambda write, over: _endless(write, over, b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", 0.001),
    "compressed": lambda write, _: write(_HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(_GZIP) + _GZIP),
    "a redirect to itself": lambda write, _: write(b"HTTP/1.1 302 Found\r\nLocation: /x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"),
    "an end that is too early": lambda write, _: write(_HEAD + b"Content-Length: 1000\r\n\r\nabc"),
}
REASONS = {
    "an endless body": r"more than 300000 bytes \(url_max_bytes\)",
    "endless chunks": r"more than 300000 bytes \(url_max_bytes\)",
    "a large Content-Length": r"more than 300000 bytes \(url_max_bytes\)",
    "a byte now and then": r"fewer than 4096 bytes have arrived in 0\.6 s \(url_stall_seconds\)",
    "silence": r"fewer than 4096 bytes have arrived in 0\.6 s \(url_stall_seconds\)",
    "silence after the headers": r"fewer than 4096 bytes have arrived in 0\.6 s \(url_stall_seconds\)",
    "slow headers": r"fewer than 4096 bytes have arrived in 0\.6 s \(url_stall_seconds\)",
    "endless headers": r".",
    "an endless header": r".",
    "endless early answers": r"fewer than 4096 bytes have arrived in 0\.6 s \(url_stall_seconds\)",
    "compressed": r"Content-Encoding gzip",
    "a redirect to itself": r"([Rr]edirect|302)",
    "an end that is too early": r"([Pp]ayload|[Nn]ot enough)",
}
# No limit on time is near, because a busy machine may take long for what it sends and receives; of servers that are waited for, _STALL is.
LIMITS = {"url_max_bytes": 300_000, "url_stall_seconds": 120.0}
_STALL = {**LIMITS, "url_stall_seconds": 0.6}


def limits_of(answer: str) -> dict[str, float]:
    """Return the limits for an answer, of which only the one that ends it is small."""
    return _STALL if "url_stall_seconds" in REASONS[answer] else LIMITS


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Yield the URL of a server that gives one answer to everything."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.settimeout(_SECONDS)
            connection.recv(65536)
            answer(connection.sendall, over)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
