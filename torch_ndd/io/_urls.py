# SPDX-License-Identifier: Apache-2.0
"""Files that are not on a disk: URLs that fsspec reads, as ``s3://``, ``gs://``, ``hf://``, ``https://``, ``memory://``, wherever a path goes."""

import asyncio
import importlib
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO, NamedTuple, TypeVar

from ._limits import LimitError, Meter, meter

T = TypeVar("T")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::|://)")

# Seconds before another attempt, doubled each time: 3 s in all.
_ATTEMPTS, _PAUSE = 6, 0.1
# Files of a batch that are asked for at the same time.
_TOGETHER = 64
# Bytes that are read at once where something is copied.
_PART = 4 * 1024 * 1024
# Ranges of one file that lie closer than this are fetched as one: a request takes as long as some 100 kB do at 10 Gbit/s and 0.1 ms.
_GAP, _MOST = 64 * 1024, 8 * 1024 * 1024
# Asking again does not help.
_FINAL = (
    FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError, ImportError, TypeError, ValueError, LimitError,
)  # fmt: skip
# Of HTTP, what says to come back: a slow or early request, too many of them.
_LATER = (408, 425, 429)


def is_url(path: str | bytes | os.PathLike[str]) -> bool:
    """Whether a path is one for fsspec.

    >>> is_url("s3://bucket/key"), is_url(b"zip://a.txt::memory://b.zip"), is_url("/tmp/x"), is_url("C:/x")
    (True, True, False, False)
    """
    return _URL.match(os.fsdecode(path)) is not None


def filesystem(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path in it."""
    try:
        core = importlib.import_module("fsspec.core")
    except ImportError:
        raise RuntimeError(f"{url}: URLs need fsspec: pip install torch_ndd[remote]") from None
    try:
        web = {part.partition("://")[0] for part in url.split("::")} & {"http", "https"}
        options: dict[str, Any] = {protocol: {"get_client": importlib.import_module("torch_ndd.io._http").client} for protocol in web}
        return core.url_to_fs(url, **options)
    except ImportError as error:  # of the protocol's own package: aiohttp, s3fs, gcsfs, huggingface_hub
        raise RuntimeError(f"{url}: {error}") from None


def _by_http(fs: Any) -> bool:
    return "http" in fs.protocol or "https" in fs.protocol


def _failed(url: str, error: BaseException, attempt: int, counts: Meter) -> float:
    """Seconds to wait before the next attempt. RuntimeError naming the URL where none helps."""
    if isinstance(error, RuntimeError) and str(error).startswith(url):
        raise error
    cause = error.__cause__
    if isinstance(error, FileNotFoundError) and (isinstance(cause, TimeoutError | LimitError) or type(cause).__module__.startswith("aiohttp")):
        # fsspec says so of every web server that does not tell a size
        error = error if cause is None or getattr(cause, "status", None) in (404, 410) else cause
    if type(error).__name__ == "TooManyRedirects":  # of aiohttp, which says nothing
        error = LimitError("it is redirected again and again")
    if attempt == _ATTEMPTS - 1 or _is_final(error):
        raise RuntimeError(f"{url}: {reason_of(error)}") from None
    try:
        counts.check()
    except LimitError as limit:
        raise RuntimeError(f"{url}: {reason_of(limit)}; the last attempt: {reason_of(error)}") from None
    return min(_PAUSE * 2**attempt, counts.left())


def again(url: str, action: Callable[[], T], kind: str = "file") -> T:
    """What ``action`` returns, after some attempts within the limits. RuntimeError names the URL."""
    counts = Meter(kind)
    token = meter.set(counts)
    try:
        for attempt in range(_ATTEMPTS):
            try:
                return action()
            except Exception as error:
                time.sleep(_failed(url, error, attempt, counts))
    finally:
        meter.reset(token)
    raise AssertionError


async def _attempts(url: str, action: Callable[[], Any], kind: str) -> Any:
    """The same for a coroutine function, in the loop of fsspec; what it does ends with its time."""
    counts = Meter(kind)
    counts.counts = url.startswith(("http://", "https://"))
    meter.set(counts)  # of this task
    for attempt in range(_ATTEMPTS):
        try:
            return await _in_time(action(), counts)
        except Exception as error:
            await asyncio.sleep(_failed(url, error, attempt, counts))
    raise AssertionError


async def _in_time(action: Any, counts: Meter) -> Any:
    task = asyncio.ensure_future(action)
    try:
        counts.begin_attempt()
        while not (await asyncio.wait({task}, timeout=min(counts.left(), counts.patience()) + 1e-3))[0]:
            counts.check()
            if not counts.patience():
                raise TimeoutError("nothing arrives")
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


# What the program waits for. It ends with the program: the threads that wait are joined before.
_running: "set[Future[Any]]" = set()
_exiting = False


def _cancel_all() -> None:
    global _exiting
    _exiting = True
    for future in list(_running):
        future.cancel()


threading._register_atexit(_cancel_all)  # type: ignore[attr-defined]  # as concurrent.futures does, and before it


def _waited_for(fs: Any, action: Any) -> Any:
    """The result of a coroutine in the loop of a file system. Ctrl-C ends it."""
    future = asyncio.run_coroutine_threadsafe(action, fs.loop)
    _running.add(future)
    try:
        if _exiting:
            future.cancel()
        return future.result()
    except CancelledError:
        raise RuntimeError("nothing is read from URLs any more: the program ends") from None
    except BaseException:
        future.cancel()
        raise
    finally:
        _running.discard(future)


def asked(url: str, method: str, *arguments: Any, kind: str = "file") -> Any:
    """What a method of the URL's file system returns for its path, after some attempts within the limits. RuntimeError names the URL."""
    fs, name = filesystem(url)
    if fs.async_impl:
        return _waited_for(fs, _attempts(url, lambda: getattr(fs, "_" + method)(name, *arguments), kind))
    return again(url, lambda: getattr(fs, method)(name, *arguments), kind)


def _is_final(error: BaseException) -> bool:
    status = getattr(error, "status", None)
    if status is None:
        status = getattr(error, "code", None)
    return isinstance(error, _FINAL) or (isinstance(status, int) and 400 <= status < 500 and status not in _LATER)


def reason_of(error: BaseException) -> str:
    """What an exception says, in one line."""
    explained = getattr(error, "strerror", None)
    text = " ".join((explained or str(error)).split())
    return f"no such file ({text})" if isinstance(error, FileNotFoundError) and not explained else text or type(error).__name__


@contextmanager
def open_file(op: str, argument: str, path: str | bytes | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file or URL, open for reading in binary; RuntimeError naming the argument where it cannot be opened or read."""
    path = os.fsdecode(path)
    try:
        with local_file(path, "file") as here, open(here, "rb") as file:
            yield file
    except OSError as error:
        raise RuntimeError(f'{op}: {argument} "{path}" cannot be read: {reason_of(error)}') from None
    except RuntimeError as error:
        if str(error).startswith(path):
            raise RuntimeError(f"{op}: {argument}: {error}") from None
        raise


def read_all(path: str | bytes) -> bytes:
    """What is in a file or at a URL. OSError, with the reason and the path, where that cannot be read."""
    if not is_url(path):
        with open(path, "rb") as file:
            return file.read()
    url = os.fsdecode(path)
    content = fetched([Range(url, 0, -1)])[0]
    if isinstance(content, Exception):
        raise OSError(0, str(content).removeprefix(url + ": "), url)
    return content


def names_in(root: bytes, fits: re.Pattern[bytes], folders: bool) -> list[bytes]:
    """The names of the folders, or of the files, in a folder that match a pattern, in the order of their bytes. OSError where there is none."""
    if not is_url(root):
        with os.scandir(root) as entries:
            return sorted(one.name for one in entries if fits.match(one.name) and _is(one, folders))
    url = os.fsdecode(root).rstrip("/")
    try:
        found = asked(url, "ls", True, kind="listing")
    except RuntimeError as error:
        raise OSError(0, str(error).removeprefix(url + ": "), url) from None
    names = [os.fsencode(one["name"].rstrip("/").rpartition("/")[2]) for one in found if (one["type"] == "directory") == folders]
    return sorted(name for name in names if name and fits.match(name))


def _is(entry: "os.DirEntry[bytes]", folder: bool) -> bool:
    try:
        return entry.is_dir() if folder else entry.is_file()
    except OSError:  # a link to itself leads nowhere, as one to what does not exist
        return False


def matching(pattern: str) -> list[str]:
    """The URLs that match one with ``*``, ``?`` or ``[``, in the order of their bytes."""
    fs, _ = filesystem(pattern)
    return sorted((fs.unstrip_protocol(one) for one in asked(pattern, "glob", kind="listing")), key=os.fsencode)


class Range(NamedTuple):
    """Bytes of a file or of what is at a URL."""

    path: str
    begin: int
    length: int  # below 0: all that follows

    @property
    def end(self) -> int | None:
        """What fsspec takes for it."""
        return None if self.length < 0 else int(self.begin + self.length)

    def of(self, whole: "Range", content: bytes) -> bytes | Exception:
        """This part of what was fetched."""
        first = int(self.begin - whole.begin)
        if self.length < 0:
            return content[first:]
        part = content[first : first + int(self.length)]
        if len(part) < self.length:
            return EOFError(f"{self.path}: it ends at byte {whole.begin + len(content)}, before byte {self.begin + self.length}")
        return part


def merged(wanted: Sequence[Range]) -> list[Range]:
    """For each range one that contains it, the same for those that lie next to each other."""
    made = list(wanted)
    order = sorted((k for k, one in enumerate(wanted) if one.length >= 0), key=lambda k: wanted[k])
    run: list[int] = []
    end = 0

    def close() -> None:
        for k in run:
            made[k] = Range(wanted[run[0]].path, wanted[run[0]].begin, end - wanted[run[0]].begin)

    for k in order:
        one = wanted[k]
        new_end = one.begin + one.length
        if run and (first := wanted[run[0]]) and one.path == first.path and one.begin <= end + _GAP and new_end - first.begin <= _MOST:
            run.append(k)
            end = max(end, new_end)
        else:
            close()
            run, end = [k], new_end
    close()
    return made


def fetched(wanted: Sequence[Range], as_sent: bool = False) -> list[bytes | Exception]:
    """The bytes of each range, or why there are none, after some attempts. They are asked for concurrently where the protocol can.

    ``as_sent``: of a web server that knows no ranges the whole file.
    """
    results: list[bytes | Exception] = [EOFError()] * len(wanted)
    groups: dict[Any, list[tuple[int, Any]]] = {}
    for k, one in enumerate(wanted):
        try:
            fs, name = filesystem(one.path)
            if fs.async_impl:
                groups.setdefault(fs, []).append((k, partial(_attempts, one.path, partial(_content, fs, name, one, as_sent), "file")))
            else:
                results[k] = again(one.path, partial(_content_at_once, fs, name, one))
        except Exception as error:
            results[k] = error
    for fs, group in groups.items():
        parts = _waited_for(fs, _together([start for _, start in group]))
        for (k, _), part in zip(group, parts, strict=True):
            results[k] = part
    return results


async def _together(starts: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results or the exceptions of some coroutine functions."""
    room = asyncio.Semaphore(_TOGETHER)

    async def one(start: Callable[[], Any]) -> Any:
        async with room:
            return await start()

    return await asyncio.gather(*(one(start) for start in starts), return_exceptions=True)


async def _content(fs: Any, name: str, wanted: Range, as_sent: bool) -> bytes:
    counts, web, begin, end = meter.get(), _by_http(fs), int(wanted.begin), wanted.end
    assert counts is not None
    if web and end is None:
        content = await fs._cat_file(name, start=begin or None)
    else:
        try:  # of who does not count the bytes no more are asked for than there may be
            content = await fs._cat_file(name, start=begin, end=begin + counts.most + 1 if end is None else end)
        except (FileNotFoundError, PermissionError, LimitError):
            raise
        except Exception:
            # Of an object without bytes a range is refused.
            if begin or end is not None or await fs._size(name) != 0:
                raise
            content = b""
    if end is None:
        counts.check_size(len(content))
    return content[begin:end] if counts.ignored_range and not as_sent else content


def _content_at_once(fs: Any, name: str, wanted: Range) -> bytes:
    if wanted.length >= 0:
        return fs.cat_file(name, start=int(wanted.begin), end=wanted.end)
    parts: list[bytes] = []
    with fs.open(name, "rb") as file:
        file.seek(wanted.begin)
        _copy(file, parts.append)
    return b"".join(parts)


def _copy(file: Any, put: Callable[[bytes], Any]) -> None:
    """What is left of a file, in parts, within the limits."""
    counts, size = meter.get(), 0
    assert counts is not None
    while part := file.read(_PART):
        size += len(part)
        counts.check_size(size)
        counts.check()
        put(part)


@contextmanager
def local_file(path: str, kind: str = "container") -> Iterator[str]:
    """A path for native code: that of a file, or of a copy of what is at a URL, which goes when the context ends."""
    if not is_url(path):
        yield path
        return
    fs, name = filesystem(path)
    with tempfile.TemporaryFile() as copy:
        here = f"/proc/self/fd/{copy.fileno()}"
        if fs.async_impl:
            _waited_for(fs, _attempts(path, partial(_copied, fs, name, here), kind))
        else:
            again(path, partial(_copied_at_once, fs, name, here), kind)
        yield here


async def _copied(fs: Any, name: str, here: str) -> None:
    if not _by_http(fs) and (counts := meter.get()) is not None:
        counts.check_size(await fs._size(name) or 0)
    await fs._get_file(name, here)


def _copied_at_once(fs: Any, name: str, here: str) -> None:
    with fs.open(name, "rb") as file, open(here, "wb") as copy:
        _copy(file, copy.write)


def file_size(path: str) -> int:
    """Bytes of a file or of what is at a URL. OSError or RuntimeError where there is none."""
    if not is_url(path):
        return os.stat(path).st_size
    size = asked(path, "size")
    if size is None:
        raise RuntimeError(f"{path}: the server does not tell its size")
    return size
