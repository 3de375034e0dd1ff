# SPDX-License-Identifier: Apache-2.0
"""Files that are not on a disk: URLs that fsspec reads, as ``s3://``, ``gs://``, ``hf://``, ``https://``, ``memory://``, wherever a path goes."""

import importlib
import io
import os
import re
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple, TypeVar

T = TypeVar("T")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::|://)")

# Seconds before another attempt, doubled each time: 3 s in all.
_ATTEMPTS, _PAUSE = 6, 0.1
# Ranges of one file that lie closer than this are fetched as one: a request takes as long as some 100 kB do at 10 Gbit/s and 0.1 ms.
_GAP, _MOST = 64 * 1024, 8 * 1024 * 1024
# Asking again does not help.
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError, ImportError, TypeError, ValueError)
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
        return core.url_to_fs(url)
    except ImportError as error:  # of the protocol's own package: s3fs, gcsfs, huggingface_hub
        raise RuntimeError(f"{url}: {error}") from None


def again(url: str, action: Callable[[], T]) -> T:
    """What ``action`` returns, after some attempts. RuntimeError names the URL."""
    for attempt in range(_ATTEMPTS):
        try:
            return action()
        except RuntimeError:
            raise
        except Exception as error:
            if attempt == _ATTEMPTS - 1 or _is_final(error):
                raise RuntimeError(f"{url}: {reason_of(error)}") from None
        time.sleep(_PAUSE * 2**attempt)
    raise AssertionError


def _is_final(error: BaseException) -> bool:
    status = getattr(error, "status", None) or getattr(error, "code", None)
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
        with local_file(path) as here, open(here, "rb") as file:
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
    fs, name = filesystem(url)
    try:
        return again(url, lambda: fs.cat_file(name))
    except RuntimeError as error:
        raise OSError(0, str(error).removeprefix(url + ": "), url) from None


def names_in(root: bytes, fits: re.Pattern[bytes], folders: bool) -> list[bytes]:
    """The names of the folders, or of the files, in a folder that match a pattern, in the order of their bytes. OSError where there is none."""
    if not is_url(root):
        with os.scandir(root) as entries:
            return sorted(one.name for one in entries if fits.match(one.name) and _is(one, folders))
    url = os.fsdecode(root).rstrip("/")
    fs, path = filesystem(url)
    try:
        found = again(url, lambda: fs.ls(path, detail=True))
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
    fs, path = filesystem(pattern)
    found = again(pattern, lambda: fs.glob(path))
    return sorted((fs.unstrip_protocol(one) for one in found), key=os.fsencode)


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


def fetched(wanted: Sequence[Range]) -> list[bytes | Exception]:
    """The bytes of each range, or why there are none, after some attempts. They are asked for concurrently where the protocol can."""
    results: list[bytes | Exception] = [EOFError()] * len(wanted)
    left = list(range(len(wanted)))
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE * 2 ** (attempt - 1))
        groups: dict[Any, list[tuple[int, str]]] = {}
        for k in left:
            try:
                fs, name = filesystem(wanted[k].path)
                groups.setdefault(fs, []).append((k, name))
            except Exception as error:
                results[k] = error
        left = []
        for fs, group in groups.items():
            ends = [wanted[k].end for k, _ in group]
            begins = [None if end is None and not wanted[k].begin else int(wanted[k].begin) for (k, _), end in zip(group, ends, strict=True)]
            try:
                parts = fs.cat_ranges([name for _, name in group], begins, ends, on_error="return")
            except Exception as error:
                parts = [error] * len(group)
            for (k, _), part in zip(group, parts, strict=True):
                if isinstance(part, BaseException):
                    results[k] = RuntimeError(f"{wanted[k].path}: {reason_of(part)}")
                    if not _is_final(part):
                        left.append(k)
                else:
                    results[k] = _asked_for(wanted[k], part)
        if not left:
            break
    return results


def _asked_for(wanted: Range, content: bytes) -> bytes:
    """A web server that knows no ranges sends the whole file."""
    whole = wanted.length >= 0 and len(content) > wanted.length
    return bytes(content[wanted.begin : wanted.end] if whole else content)


@contextmanager
def local_file(path: str) -> Iterator[str]:
    """A path for native code: that of a file, or of a copy of what is at a URL, which goes when the context ends."""
    if not is_url(path):
        yield path
        return
    fs, name = filesystem(path)
    with tempfile.TemporaryFile() as copy:
        here = f"/proc/self/fd/{copy.fileno()}"
        again(path, lambda: fs.get_file(name, here))
        yield here


def file_size(path: str) -> int:
    """Bytes of a file or of what is at a URL. OSError or RuntimeError where there is none."""
    if not is_url(path):
        return os.stat(path).st_size
    fs, name = filesystem(path)
    size = again(path, lambda: fs.size(name))
    if size is None:
        raise RuntimeError(f"{path}: the server does not tell its size")
    return size


# Of a video, a block a request, and few blocks in memory: FFmpeg goes through it once and then to some frames.
_BLOCK, _BLOCKS = 4 * 1024 * 1024, 4


class RemoteFile(io.RawIOBase):
    """What is at a URL, as a file for C libraries, which no exception may pass through: ``error`` has it, and the file seems to end."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._position = 0
        self._size: int | None = None
        self.error: Exception | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        try:
            start = 0 if whence == io.SEEK_SET else self._position if whence == io.SEEK_CUR else self.size()
        except Exception as error:
            self.error = error
            return -1
        self._position = max(start + offset, 0)
        return self._position

    def size(self) -> int:
        """How many bytes there are. RuntimeError where that cannot be found out."""
        if self._size is None and not self._blocks:
            self._block(0)  # most videos of data sets are one block, and their size is then known without another request
        if self._size is None:
            self._size = file_size(self._url)
        return self._size

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
        except Exception as error:
            self.error = error
            return b""

    def _block(self, number: int) -> bytes:
        if number not in self._blocks:
            begin = number * _BLOCK
            fs, name = filesystem(self._url)
            content = again(self._url, lambda: fs.cat_file(name, start=begin, end=begin + _BLOCK))
            if len(content) > _BLOCK:  # a web server that knows no ranges
                self._size = len(content)
                self._blocks = OrderedDict((k // _BLOCK, content[k : k + _BLOCK]) for k in range(0, len(content), _BLOCK))
                return self._blocks[number]
            if len(content) < _BLOCK and self._size is None:
                self._size = begin + len(content)
            self._blocks[number] = content
            if len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(number)
        return self._blocks[number]
