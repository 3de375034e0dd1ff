# SPDX-License-Identifier: Apache-2.0
"""The memory that a download takes: that of the file, also while it fails, and none when nothing waits for it any more."""

import io
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from _forks import Forks

from torch_ndd.io._body import BLOCK, Body, fill, take_bytes

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")

FILE, MORE = 160, 64  # MB


@contextmanager
def sending(megabytes: int, stalls: bool) -> Iterator[str]:
    """The URL of a file that is sent without its length."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                head = self.rfile.readline()
                size = 1 if b"/small" in head else megabytes
                while self.rfile.readline().strip():
                    pass
                self.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
                if head.startswith(b"GET"):
                    for k in range(size):
                        self.wfile.write(bytes([k]) * (1 << 20))
                    if stalls and size == megabytes:
                        time.sleep(30)
            except OSError:  # the client has had enough
                pass

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads, block_on_close = True, False

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/x"
        server.shutdown()


MEASURED = """
import gc, sys, time, numpy as np, torch_ndd as ndd, aiohttp, fsspec, torch_ndd.io._http
from pathlib import Path
from torch_ndd.io._limits import UrlLimits, using
url, way, options, more = sys.argv[1], sys.argv[2], eval(sys.argv[3]), int(sys.argv[4])

def megabytes(name):
    text = Path("/proc/self/status").read_text()
    return int(text.partition(name + ":")[2].split()[0]) // 1024

def start(reader):
    reader.scan()
    return reader.start(np.array([0]))

try:  # so that codecs, threads and the session of HTTP are in memory before the measurement
    ndd.imread(url.replace("/x", "/small"))
except Exception:
    pass
gc.collect()
Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
before, error, reader = megabytes("VmRSS"), None, None
try:
    if way == "io.file.read":
        made = ndd.io.file.read(np.frombuffer(url.encode(), np.uint8), **options)
    elif way == "imread":
        made = ndd.imread(url, **options)
    elif way == "annotations":
        made = list(ndd.readers.COCO(annotations_file=url, file_root="/", **options).next_epoch())
    else:
        reader = ndd.readers.File(files=[url], **options)
        with using(UrlLimits.from_arguments("test", options.get("url_max_bytes"), options.get("url_stall_seconds"), None)):
            request = start(reader)
        if way == "abandoned":
            end = time.monotonic() + 30
            while time.monotonic() < end and megabytes("VmRSS") - before < more:  # until some of it is in memory
                time.sleep(0.01)
            assert megabytes("VmRSS") - before >= more, "nothing was downloaded"
            del request
            # The thread that downloads ends after its current part. One that went on would soon fill the memory.
            while time.monotonic() < end and more <= megabytes("VmRSS") - before < 3000:
                time.sleep(0.01)
        else:
            made = reader.finish(request, np.array([0]))[0]
            assert [int(made.select(0).torch()[k << 20]) for k in range(0, 160, 9)] == list(range(0, 160, 9))
except Exception as failure:
    error = failure
print(megabytes("VmHWM") - before, megabytes("VmRSS") - before, repr(str(error)[-200:]), flush=True)
"""


def measure(forks: Forks, megabytes: int, way: str, options: str = "{}", stalls: bool = False) -> tuple[int, int, str]:
    with sending(megabytes, stalls) as url:
        run = forks.run(MEASURED, url, way, options, MORE)
        assert run.wait(60) == 0, run.errors
    peak, left, error = run.output.split(maxsplit=2)
    return int(peak), int(left), error


@pytest.mark.parametrize("way", ["io.file.read", "a reader", "imread"])
def test_a_file_takes_its_size(way: str, forks: Forks) -> None:
    peak, _, _ = measure(forks, FILE, way)
    assert FILE * 0.9 < peak < FILE + MORE


def test_a_text_takes_its_size(forks: Forks) -> None:
    peak, _, error = measure(forks, FILE, "annotations")
    assert peak < FILE + MORE
    assert "JSON" in error or "COCO" in error


@pytest.mark.slow
@pytest.mark.parametrize("way", ["io.file.read", "a reader", "annotations"])
@pytest.mark.parametrize("options", ["{'url_max_bytes': 150 << 20}", "{'url_stall_seconds': 0.5}"])
def test_a_failed_download_takes_no_more_and_leaves_nothing(way: str, options: str, forks: Forks) -> None:
    peak, left, error = measure(forks, FILE, way, options, stalls=True)
    assert "url_" in error
    assert peak < FILE + MORE
    assert left < MORE  # though the error, with its traceback, is still there


def test_an_abandoned_download_ends(forks: Forks) -> None:
    peak, left, error = measure(forks, FILE * 100, "abandoned")
    assert error.strip() == "'None'"
    assert peak < FILE * 20
    assert left < MORE


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_bodies_hold_what_is_appended(size: int) -> None:
    expected = bytes(range(251)) * (size // 251 + 1)
    expected = expected[:size]

    def fill_body() -> Body:
        body = Body()
        for begin in range(0, size, 1_000_003):
            body.append(expected[begin : begin + 1_000_003])
        return body

    body = fill_body()
    assert len(body) == size
    assert body.part(0) == expected
    assert body.part(5, size - 3) == expected[5 : size - 3]
    assert body.part(size, size + 9) == b""
    copied = io.BytesIO()
    body.copy_to(copied.write)
    assert copied.getvalue() == expected
    assert take_bytes(body) == expected
    assert len(body) == 0
    content = fill_body().content()
    assert isinstance(content, bytes) == (size <= BLOCK)
    out = bytearray(2 * size + 3)
    fill(memoryview(out), [content, b"abc", content])
    assert out == expected + b"abc" + expected
