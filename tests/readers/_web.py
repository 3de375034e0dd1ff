# SPDX-License-Identifier: Apache-2.0
"""An in-process web server that supports ranges, fails on request, and counts."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar


class Handler(BaseHTTPRequestHandler):
    current: ClassVar[ThreadingHTTPServer]
    root: ClassVar[Path]
    requests: ClassVar[list[str]] = []
    failures: ClassVar[int] = 0  # how many more requests get an error status, or a closed connection
    status: ClassVar[int] = 503
    resets: ClassVar[bool] = False
    knows_ranges: ClassVar[bool] = True
    lock: ClassVar[threading.Lock] = threading.Lock()  # a request belongs to the server that was current when it was noted
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET(body=False)

    def do_GET(self, body: bool = True) -> None:
        with Handler.lock:
            current = self.server is Handler.current  # a reader of an earlier test may still be reading ahead
            fails = current and body and Handler.failures > 0
            if current:
                Handler.requests.append(f"{self.command} {self.path} {self.headers.get('Range', '')}")
                Handler.failures -= fails
            path = self.root / self.path.lstrip("/")
        if not current:
            return self.answer(404, b"", body)
        if fails:
            if self.resets:
                self.close_connection = True
                return self.connection.shutdown(socket.SHUT_RDWR)
            return self.answer(self.status, b"busy")
        if path.is_dir():
            names = [value.name + "/" * value.is_dir() for value in sorted(path.iterdir())]
            return self.answer(200, "".join(f'<a href="{name}">{name}</a>\n' for name in names).encode(), body, "text/html")
        if not path.is_file():
            return self.answer(404, b"nothing here", body)
        content = path.read_bytes()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None or not self.knows_ranges:
            return self.answer(200, content, body)
        first, last = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
        if first >= len(content):
            return self.answer(416, b"", body)
        return self.answer(206, content[first : last + 1], body, headers={"Content-Range": f"bytes {first}-{last}/{len(content)}"})

    def answer(self, code: int, content: bytes, body: bool = True, kind: str = "application/octet-stream", headers: Any = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(content)), "Content-Type": kind, "Accept-Ranges": "bytes", **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    @classmethod
    def gets(cls) -> list[str]:
        """Return the requests: path and range."""
        return [request.removeprefix("GET ").strip() for request in cls.requests if request.startswith("GET")]


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The URL of a folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with Handler.lock:
        Handler.root, Handler.requests, Handler.failures, Handler.status = folder, [], 0, 503
        Handler.resets, Handler.knows_ranges, Handler.current = False, True, server
    thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
