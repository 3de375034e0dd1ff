# SPDX-License-Identifier: Apache-2.0
"""Files at URLs, read through fsspec, wherever a path is accepted: ``s3://``, ``gs://``, ``hf://``, ``https://``, ``memory://``."""

import asyncio
import errno
import importlib
import os
import re
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, BinaryIO, NamedTuple, TypeVar
from urllib.parse import unquote

from .._core.optional import import_optional
from .._core.process.files import check_regular, open_regular, read_regular
from ._body import Body, part_of, take_bytes
from ._limits import LimitError, Meter, meter

T = TypeVar("T")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::|://)")
# What follows "file://": by RFC 8089 a host (this machine or another one) or a drive such as "C:", by fsspec a relative path.
_LOCAL_HOST = re.compile(r"^((?:file|local)://)localhost(?=/)", re.IGNORECASE)
_OTHER_HOST = re.compile(r"(?:file|local)://(?:/?([A-Za-z](?:[:|]|%3A|%7C))|(?![./])([^/]+))(?=/|\\|$)", re.IGNORECASE)
_PATTERN = re.compile(r"[*?[]")

# Seconds before the next attempt, doubled each time: 3 s in total.
_ATTEMPTS, _PAUSE = 6, 0.1
# Bytes per request to a file system that returns the whole range as one object.
_STEP = 16 * 1024 * 1024
# Files of a batch that are requested at the same time.
_TOGETHER = 64
# Bytes per read when copying.
_PART = 4 * 1024 * 1024
# Ranges of a file that are closer than this are fetched as one: a request costs as much as some 100 kB at 10 Gbit/s and 0.1 ms.
_MAX_GAP, _MAX_MERGED = 64 * 1024, 8 * 1024 * 1024
# Errors for which another attempt is useless.
_FINAL = (
    FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError, ImportError, TypeError, ValueError, LimitError,
)  # fmt: skip
# The same of an OSError by its number: what is not a regular file, a socket, links in a circle, a name that is too long.
_FINAL_NUMBERS = (errno.EINVAL, errno.ENXIO, errno.ELOOP, errno.ENAMETOOLONG)
# HTTP statuses that mean to retry later: a slow or early request, too many requests.
_LATER = (408, 425, 429)


def is_url(path: str | bytes | os.PathLike[str]) -> bool:
    """Return whether a path is a URL for fsspec.

    >>> is_url("s3://bucket/key"), is_url(b"zip://a.txt::memory://b.zip"), is_url("/tmp/x"), is_url("C:/x")
    (True, True, False, False)
    """
    return _URL.match(os.fsdecode(path)) is not None


def leaves_folder(path: str, folder: str) -> bool:
    """Return whether a path, which a file of somebody else names as one below ``folder``, leads elsewhere: an absolute path, ``..`` or a URL.

    Links below the folder are followed: the caches of Hugging Face and DVC consist of them.

    >>> [leaves_folder(path, "/data") for path in ("a/b..jpg", "/etc/passwd", "a/../../b", "http://host/a")]
    [False, True, True, True]
    >>> leaves_folder("a::file:///etc/passwd", "s3://bucket"), leaves_folder("%2e%2e/a", "https://host/data")
    (True, True)
    """
    # In a URL "::" chains another one, and servers decode "%2e".
    chained = is_url(folder) and "::" in path
    return is_url(path) or chained or "\0" in path or os.path.isabs(path) or ".." in unquote(path).split("/")


def _import_fsspec(module: str, url: str) -> Any:
    return import_optional(f"fsspec.{module}", f"{url}: URLs need fsspec", "remote")


def filesystem(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL, and the path in it."""
    core = _import_fsspec("core", url)
    try:
        # URLs may be chained, "zip://a.txt::https://...", so look at every part.
        web = {part.partition("://")[0] for part in url.split("::")} & {"http", "https"}
        options: dict[str, Any] = {protocol: {"get_client": importlib.import_module("torch_ndd.io._http").client} for protocol in web}
        url = _LOCAL_HOST.sub(r"\1", url)
        fs, name = core.url_to_fs(url, **options)
        return fs, _find_encoded(url, name) if "file" in fs.protocol else name
    except ImportError as error:  # of the protocol's own package: aiohttp, s3fs, gcsfs, huggingface_hub
        raise RuntimeError(f"{url}: {error}") from None


def _find_encoded(url: str, path: str) -> str:
    """Return a path of this machine with its percent-encoded names as they are in the file system: fsspec takes ``a%20b`` literally.

    A name of a folder or file that exists stays as it is, because names that were listed or joined to a URL are not encoded. Raise RuntimeError for
    what leads to another machine.
    """
    found = ""
    for name in path.split("/"):
        if "%" in name and not os.path.lexists(found + name):
            name = unquote(name, errors="surrogateescape")
        found += name + "/"
    found = found[:-1]
    elsewhere = _OTHER_HOST.match(url)
    if elsewhere and not os.path.lexists(found) and not _PATTERN.search(found):
        where = "on a drive of Windows" if elsewhere[1] else f"on the host {elsewhere[2]!r}"
        raise RuntimeError(f"{url}: no such file; this URL is that of a file {where}. Those of this machine begin with file:/// and a path")
    return found


def _is_http(fs: Any) -> bool:
    return "http" in fs.protocol or "https" in fs.protocol


def _pause_before_retry(url: str, error: BaseException, attempt: int, counts: Meter) -> float:
    """Return the seconds to wait before the next attempt. Raise RuntimeError naming the URL if another attempt is useless or too late."""
    # Errors that name the URL already are final.
    if isinstance(error, RuntimeError) and str(error).startswith(url):
        raise error
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and (isinstance(cause, TimeoutError | LimitError) or type(cause).__module__.startswith("aiohttp")):
        # fsspec raises this for every web server that does not report a size
        error = error if cause is None or getattr(cause, "status", None) in (404, 410) else cause
    if type(error).__name__ == "TooManyRedirects":  # from aiohttp, without a message
        error = LimitError("too many redirects")
    if attempt == _ATTEMPTS - 1 or _is_final(error):
        raise RuntimeError(f"{url}: {reason_of(error)}") from None
    try:
        counts.check()
    except LimitError as limit:
        raise RuntimeError(f"{url}: {reason_of(limit)}; the last attempt: {reason_of(error)}") from None
    return min(_PAUSE * 2**attempt, counts.left())


def retry(url: str, action: Callable[[], T], kind: str = "file") -> T:
    """Call ``action`` until it succeeds, a few times and within the limits. Raise RuntimeError naming the URL."""
    counts = Meter(kind)
    token = meter.set(counts)
    try:
        for attempt in range(_ATTEMPTS):
            try:
                return action()
            except Exception as error:
                time.sleep(_pause_before_retry(url, error, attempt, counts))
    finally:
        meter.reset(token)
    raise AssertionError


async def _retry_async(url: str, action: Callable[[], Any], kind: str) -> Any:
    """Do what :func:`retry` does for a coroutine function, in fsspec's event loop; it is cancelled when its time is over."""
    counts = Meter(kind)
    counts.counts = url.startswith(("http://", "https://"))  # a server that never answers is a stall as well
    meter.set(counts)  # of this task
    for attempt in range(_ATTEMPTS):
        try:
            return await _run_in_time(action(), counts)
        except Exception as error:
            await asyncio.sleep(_pause_before_retry(url, error, attempt, counts))
    raise AssertionError


async def _run_in_time(action: Any, counts: Meter) -> Any:
    """Await a coroutine. Raise LimitError at a limit, TimeoutError if it stays silent; it has ended in either case."""
    task = asyncio.ensure_future(action)
    try:
        counts.begin_attempt()
        while not (await asyncio.wait({task}, timeout=min(counts.left(), counts.patience()) + 1e-3))[0]:
            counts.check()
            if not counts.patience():
                raise TimeoutError("no data arrive (url_stall_seconds)")
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            # Wait for the end of the cancelled task: it may still write to the body.
            await asyncio.gather(task, return_exceptions=True)


# The futures that threads wait for. They are cancelled at exit, because the interpreter joins these threads before it exits.
_running: "set[Future[Any]]" = set()
_exiting = False


def _cancel_all() -> None:
    global _exiting
    _exiting = True
    for future in list(_running):
        future.cancel()


threading._register_atexit(_cancel_all)  # type: ignore[attr-defined]  # runs before the exit function of concurrent.futures, which joins threads


class Download:
    """The downloads of a thread for an object that may be freed before they end."""

    def __init__(self) -> None:
        self.is_abandoned = False
        self.futures: set[Future[Any]] = set()

    def abandon(self) -> None:
        """Stop, and free the memory."""
        self.is_abandoned = True
        for future in list(self.futures):
            future.cancel()


current_download: ContextVar[Download | None] = ContextVar("torch_ndd_download", default=None)
"""The download of this thread, if it may be abandoned."""


def _run(fs: Any, action: Any) -> Any:
    """Run a coroutine in a file system's event loop and return its result. Ctrl-C cancels it, and so does :meth:`Download.abandon`."""
    future = asyncio.run_coroutine_threadsafe(action, fs.loop)
    download = current_download.get() or Download()
    _running.add(future)
    download.futures.add(future)
    try:
        # The flags may have been set before the future was known to those who cancel.
        if _exiting or download.is_abandoned:
            future.cancel()
        return future.result()
    except CancelledError:
        why = "the download was abandoned" if download.is_abandoned else "the program ends, so nothing more is read from URLs"
        raise RuntimeError(why) from None
    except BaseException:
        future.cancel()
        raise
    finally:
        _running.discard(future)
        download.futures.discard(future)


def call_filesystem(url: str, method: str, *arguments: Any, kind: str = "file") -> Any:
    """Call a method of a URL's file system and return the result, with retries within the limits. Raise RuntimeError naming the URL."""
    fs, name = filesystem(url)
    if fs.async_impl:
        return _run(fs, _retry_async(url, lambda: getattr(fs, "_" + method)(name, *arguments), kind))
    return retry(url, lambda: getattr(fs, method)(name, *arguments), kind)


def _is_final(error: BaseException) -> bool:
    status = getattr(error, "status", None)
    # aiohttp calls it `status`, other libraries `code`.
    if status is None:
        status = getattr(error, "code", None)
    if isinstance(error, OSError) and error.errno in _FINAL_NUMBERS:
        return True
    return isinstance(error, _FINAL) or (isinstance(status, int) and 400 <= status < 500 and status not in _LATER)


def reason_of(error: BaseException) -> str:
    """Return the message of an exception in one line."""
    explained = getattr(error, "strerror", None)
    text = " ".join((explained or str(error)).split())
    return f"no such file ({text})" if isinstance(error, FileNotFoundError) and not explained else text or type(error).__name__


@contextmanager
def open_file(op: str, argument: str, path: str | bytes | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file or URL for reading in binary. Raise RuntimeError naming the argument if it cannot be opened or read."""
    path = os.fsdecode(path)
    try:
        with local_file(path, "file") as here, open_regular(here) as file:
            yield file
    except OSError as error:
        raise RuntimeError(f'{op}: {argument} "{path}" cannot be read: {reason_of(error)}') from None
    except RuntimeError as error:
        # Raised by the retries for this path, with a reason; other errors are of the caller's block.
        if str(error).startswith(path):
            raise RuntimeError(f"{op}: {argument}: {error}") from None
        raise


def read_all(path: str | bytes) -> bytes:
    """Return the contents of a file or URL. Raise OSError with the reason and the path if it cannot be read."""
    if not is_url(path):
        return read_regular(path)
    url = os.fsdecode(path)
    content = fetch([Range(url, 0, -1)])[0]
    if isinstance(content, Exception):
        raise OSError(0, str(content).removeprefix(url + ": "), url)
    return take_bytes(content)


def list_names(root: bytes, fits: re.Pattern[bytes], folders: bool) -> list[bytes]:
    """Return the names of the subfolders, or files, of a folder that match a pattern, sorted bytewise. Raise OSError if it does not exist."""
    if not is_url(root):
        with os.scandir(root) as entries:
            return sorted(entry.name for entry in entries if fits.match(entry.name) and _is(entry, folders))
    url = os.fsdecode(root).rstrip("/")
    try:
        found = call_filesystem(url, "ls", True, kind="listing")
    except RuntimeError as error:
        raise OSError(0, str(error).removeprefix(url + ": "), url) from None
    names = [os.fsencode(entry["name"].rstrip("/").rpartition("/")[2]) for entry in found if (entry["type"] == "directory") == folders]
    return sorted(name for name in names if name and fits.match(name))


def _is(entry: "os.DirEntry[bytes]", folder: bool) -> bool:
    try:
        # A dangling link is a file that cannot be read: without it a data set whose disk is not mounted would be smaller, unnoticed.
        return entry.is_dir() if folder else entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))
    except OSError:  # a link to itself, treated like a dangling one
        return not folder


def find_urls(pattern: str) -> list[str]:
    """Return the URLs that match one with ``*``, ``?`` or ``[``, sorted bytewise."""
    fs, _ = filesystem(pattern)
    return sorted((fs.unstrip_protocol(path) for path in call_filesystem(pattern, "glob", kind="listing")), key=os.fsencode)


class Range(NamedTuple):
    """A byte range of a file or URL."""

    path: str
    begin: int
    length: int  # negative: the rest of the file

    @property
    def end(self) -> int | None:
        """The end, as fsspec takes it; None for the rest of the file."""
        return None if self.length < 0 else int(self.begin + self.length)

    def of(self, whole: "Range", content: bytes | Body) -> bytes | Body | Exception:
        """Return this part of fetched content."""
        first = int(self.begin - whole.begin)
        if first == 0 and self.length in (-1, len(content)):
            return content
        part = part_of(content, first, None if self.length < 0 else first + int(self.length))
        if len(part) < self.length:
            return EOFError(f"{self.path}: it ends at byte {whole.begin + len(content)}, before byte {self.begin + self.length}")
        return part


def merge_ranges(wanted: Sequence[Range]) -> list[Range]:
    """Return for each range one that contains it; neighboring ranges share one."""
    merge = _import_fsspec("utils", max((part.path for part in wanted), default="")).merge_offset_ranges
    paths, begins, ends = merge(
        [part.path for part in wanted], [int(part.begin) for part in wanted], [part.end for part in wanted], _MAX_GAP, _MAX_MERGED
    )
    wholes = [Range(path, begin, -1 if end is None else end - begin) for path, begin, end in zip(paths, begins, ends, strict=True)]
    places = [(whole.path, whole.begin) for whole in wholes]
    # The last whole range that begins at or before the part.
    containing = [wholes[bisect_right(places, part[:2]) - 1] for part in wanted]
    # fsspec before 2026 loses the end of a range that contains another one: such a part is fetched alone.
    pairs = zip(wanted, containing, strict=True)
    return [whole if whole.end is None or (part.end is not None and part.end <= whole.end) else part for part, whole in pairs]


def fetch(wanted: Sequence[Range], as_sent: bool = False) -> list[bytes | Body | Exception]:
    """Return the bytes of each range, or its error, with retries. Ranges are requested concurrently if the protocol supports it.

    More than a few megabytes are a :class:`Body`.

    fsspec's ``cat_ranges`` has neither retries nor limits per range.

    ``as_sent``: return the whole file if a web server does not support ranges.
    """
    results: list[bytes | Body | Exception] = [EOFError()] * len(wanted)
    # One event loop call for all URLs of a file system.
    groups: dict[Any, list[tuple[int, Any]]] = {}
    for k, part in enumerate(wanted):
        try:
            fs, name = filesystem(part.path)
            if fs.async_impl:
                groups.setdefault(fs, []).append((k, partial(_retry_async, part.path, partial(_fetch_range, fs, name, part, as_sent), "file")))
            else:
                results[k] = retry(part.path, partial(_fetch_range_sync, fs, name, part))
        except Exception as error:
            results[k] = error
    for fs, group in groups.items():
        contents = _run(fs, _run_together([start for _, start in group]))
        for (k, _), content in zip(group, contents, strict=True):
            results[k] = content
    return results


async def _run_together(starts: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run coroutine functions concurrently, some at a time, and return their results or exceptions."""
    room = asyncio.Semaphore(_TOGETHER)

    async def start_in_room(start: Callable[[], Any]) -> Any:
        async with room:
            return await start()

    return await asyncio.gather(*(start_in_room(start) for start in starts), return_exceptions=True)


async def _fetch_range(fs: Any, name: str, wanted: Range, as_sent: bool) -> bytes | Body:
    counts, begin, end = meter.get(), int(wanted.begin), wanted.end
    assert counts is not None
    if not _is_http(fs):
        return await _fetch_in_steps(fs, name, begin, end, counts)
    counts.takes_bodies = True
    content = await fs._cat_file(name, start=begin, end=end) if begin or end is not None else await fs._cat_file(name)
    if end is None:
        counts.check_size(len(content))
    # The server sent the whole file: cut the range out of it.
    if counts.ignored_range and not as_sent:
        part = part_of(content, begin, end)
        if isinstance(content, Body):
            content.clear()
        return part
    return content


async def _fetch_in_steps(fs: Any, name: str, begin: int, end: int | None, counts: Meter) -> bytes | Body:
    """Read a range in steps, because file systems other than HTTP do not report progress and hold the bytes of a request twice."""
    body = Body()
    try:
        while end is None or begin < end:
            stop = begin + _STEP if end is None else min(end, begin + _STEP)
            try:
                part = await fs._cat_file(name, start=begin, end=stop)
            except (FileNotFoundError, PermissionError, LimitError):
                raise
            except Exception:
                # A range that begins at the end of a file is an error in some file systems.
                if end is not None or await fs._size(name) != begin:
                    raise
                break
            body.append(part)
            if wanted_all := end is None:
                counts.check_size(len(body))
            if len(part) < stop - begin or (not wanted_all and stop == end):
                break
            begin = stop
        return body.content()
    except BaseException:
        body.clear()
        raise


def _fetch_range_sync(fs: Any, name: str, wanted: Range) -> bytes | Body:
    _check_local(fs, name)
    # Short ranges in one call; others in parts, so limits and an abandoned download are noticed in between.
    if 0 <= wanted.length <= _STEP:
        return fs.cat_file(name, start=int(wanted.begin), end=wanted.end)
    body = Body()
    try:
        with fs.open(name, "rb") as file:
            file.seek(wanted.begin)
            _copy(file, body.append, None if wanted.length < 0 else int(wanted.length))
        return body.content()
    except BaseException:
        body.clear()
        raise


def _check_local(fs: Any, name: str) -> None:
    """Raise OSError for the URL of a device or a pipe of this machine, ``file:///dev/zero``."""
    if "file" in fs.protocol:
        check_regular(name)


def _copy(file: Any, put: Callable[[bytes], Any], length: int | None = None) -> None:
    """Pass the rest of a file, or its first ``length`` bytes, to ``put`` in parts, within the limits."""
    counts, download, size = meter.get(), current_download.get(), 0
    assert counts is not None
    while part := file.read(_PART if length is None else min(_PART, length - size)):
        size += len(part)
        if length is None:
            counts.check_size(size)
        counts.check()
        if download is not None and download.is_abandoned:
            raise LimitError("the download was abandoned")
        put(part)


@contextmanager
def local_file(path: str, kind: str = "container") -> Iterator[str]:
    """Yield a path for native code: that of a file, or of a copy of a URL's data, deleted when the context ends."""
    if not is_url(path):
        yield path
        return
    fs, name = filesystem(path)
    # Without a name, so it is freed whatever happens to the process; native code opens it through /proc.
    with tempfile.TemporaryFile() as copy:
        here = f"/proc/self/fd/{copy.fileno()}"
        if fs.async_impl:
            _run(fs, _retry_async(path, partial(_copy_async, fs, name, here), kind))
        else:
            retry(path, partial(_copy_sync, fs, name, here), kind)
        yield here


async def _copy_async(fs: Any, name: str, here: str) -> None:
    # Web servers are measured while the body arrives; other file systems must be asked for the size first.
    if not _is_http(fs) and (counts := meter.get()) is not None:
        counts.check_size(await fs._size(name) or 0)
    await fs._get_file(name, here)


def _copy_sync(fs: Any, name: str, here: str) -> None:
    _check_local(fs, name)
    with fs.open(name, "rb") as file, open(here, "wb") as copy:
        _copy(file, copy.write)


def file_size(path: str) -> int:
    """Return the size of a file or URL in bytes. Raise OSError or RuntimeError if there is none."""
    if not is_url(path):
        return os.stat(path).st_size
    size = call_filesystem(path, "size")
    if size is None:
        raise RuntimeError(f"{path}: the server does not report its size")
    return size
