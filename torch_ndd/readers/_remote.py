# SPDX-License-Identifier: Apache-2.0
"""Files that are not on a disk: URLs that fsspec reads, as ``s3://``, ``gs://``, ``hf://``, ``https://``, ``memory://``, wherever a path goes."""

import importlib
import os
import re
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

import numpy as np
import torch

from .._batch import Batch
from ._base import BadSamples
from ._ranges import NativeRequest, Ranges, pack_paths, packed_batch

T = TypeVar("T")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::|://)")

# A batch is one call of fsspec, which asks for its ranges concurrently where the protocol can; threads are for the batches that are read ahead.
_THREADS = 4
# Seconds before another attempt, doubled each time.
_ATTEMPTS, _PAUSE = 4, 0.1
# Ranges of one file that lie closer than this are fetched as one: a request takes as long as some 100 kB do at 10 Gbit/s and 0.1 ms.
_GAP, _MOST = 64 * 1024, 8 * 1024 * 1024
# Asking again does not help.
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError, ImportError, TypeError, ValueError)


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
            if attempt == _ATTEMPTS - 1 or isinstance(error, _FINAL):
                raise RuntimeError(f"{url}: {reason_of(error)}") from None
        time.sleep(_PAUSE * 2**attempt)
    raise AssertionError


def reason_of(error: BaseException) -> str:
    """What an exception says, in one line."""
    text = " ".join((getattr(error, "strerror", None) or str(error)).split())
    return f"no such file ({text})" if isinstance(error, FileNotFoundError) and text else text or type(error).__name__


@contextmanager
def open_file(op: str, argument: str, path: str | bytes | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file or URL, open for reading in binary; RuntimeError naming the argument where it cannot be opened or read."""
    path = os.fsdecode(path)
    try:
        if is_url(path):
            fs, name = filesystem(path)
            file = again(path, lambda: fs.open(name, "rb"))
        else:
            file = open(path, "rb")  # noqa: SIM115  (closed below)
        with file:
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
            return sorted(one.name for one in entries if fits.match(one.name) and (one.is_dir() if folders else one.is_file()))
    url = os.fsdecode(root).rstrip("/")
    fs, path = filesystem(url)
    try:
        found = again(url, lambda: fs.ls(path, detail=True))
    except RuntimeError as error:
        raise OSError(0, str(error).removeprefix(url + ": "), url) from None
    names = [os.fsencode(one["name"].rstrip("/").rpartition("/")[2]) for one in found if (one["type"] == "directory") == folders]
    return sorted(name for name in names if name and fits.match(name))


def matching(pattern: str) -> list[str]:
    """The URLs that match one with ``*``, ``?`` or ``[``, in the order of their bytes."""
    fs, path = filesystem(pattern)
    found = again(pattern, lambda: fs.glob(path))
    return sorted((fs.unstrip_protocol(one) for one in found), key=os.fsencode)


def ranges_of(
    root: bytes,
    paths: bytes,
    path_offsets: np.ndarray,
    file: np.ndarray | None = None,
    begin: np.ndarray | None = None,
    length: np.ndarray | None = None,
) -> "Ranges | RemoteRanges":
    """Ranges of bytes in files, read natively, or through fsspec when there is a URL among them."""
    remote = is_url(root) or (
        b"://" in paths and any(is_url(paths[b:e]) for b, e in zip(path_offsets[:-1].tolist(), path_offsets[1:].tolist(), strict=True))
    )
    return (RemoteRanges if remote else Ranges)(root, paths, path_offsets, file, begin, length)


class RemoteRanges(Ranges):
    """The same through fsspec."""

    _executor: ThreadPoolExecutor | None = None
    _process = 0

    def start(self, numbers: np.ndarray) -> "RemoteRequest":  # type: ignore[override]
        """Start to fetch some ranges: numbers (samples,), or (components, samples) for several batches. Below 0: an empty sample."""
        return RemoteRequest(self, numbers)

    def fetch(self, numbers: np.ndarray) -> "Future[list[bytes | Exception]]":
        """The bytes of some ranges, or why there are none, on a thread."""
        if self._executor is None or self._process != os.getpid():
            self._executor, self._process = ThreadPoolExecutor(_THREADS, "torch_ndd fsspec"), os.getpid()
            weakref.finalize(self, self._executor.shutdown, wait=False, cancel_futures=True)
        return self._executor.submit(self._fetch, numbers.ravel())

    def _fetch(self, numbers: np.ndarray) -> list[bytes | Exception]:
        wanted = [self._range(number) for number in numbers.tolist()]
        merged: dict[_Range, int] = {}
        place = [merged.setdefault(whole, len(merged)) if one.path else -1 for one, whole in zip(wanted, _merged(wanted), strict=True)]
        wholes = list(merged)
        contents = _fetched(wholes)
        return [
            b"" if k < 0 else part if isinstance(part := contents[k], Exception) else one.of(wholes[k], part)
            for one, k in zip(wanted, place, strict=True)
        ]

    def _range(self, number: int) -> "_Range":
        file = number if number < 0 or self.file is None else int(self.file[number])
        if file < 0:
            return _Range("", 0, 0)
        begin = 0 if self.file is None or self.begin is None else int(self.begin[number])
        return _Range(self.path(file), begin, -1 if self.file is None or self.length is None else int(self.length[number]))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_executor": None}


class _Range(NamedTuple):
    path: str
    begin: int
    length: int  # below 0: all that follows

    def of(self, whole: "_Range", content: bytes) -> bytes | Exception:
        """This part of what was fetched."""
        first = int(self.begin - whole.begin)
        if self.length < 0:
            return content[first:]
        part = content[first : first + int(self.length)]
        if len(part) < self.length:
            return EOFError(f"{self.path}: it ends at byte {whole.begin + len(content)}, before byte {self.begin + self.length}")
        return part


def _merged(wanted: Sequence[_Range]) -> list[_Range]:
    """For each range one that contains it, the same for those that lie next to each other."""
    made = list(wanted)
    order = sorted((k for k, one in enumerate(wanted) if one.length >= 0), key=lambda k: wanted[k])
    run: list[int] = []
    end = 0

    def close() -> None:
        for k in run:
            made[k] = _Range(wanted[run[0]].path, wanted[run[0]].begin, end - wanted[run[0]].begin)

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


def _fetched(wanted: Sequence[_Range]) -> list[bytes | Exception]:
    """The bytes of each range, or why there are none, after some attempts."""
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
            ends = [None if wanted[k].length < 0 else int(wanted[k].begin + wanted[k].length) for k, _ in group]
            begins = [None if end is None and not wanted[k].begin else int(wanted[k].begin) for (k, _), end in zip(group, ends, strict=True)]
            try:
                parts = fs.cat_ranges([name for _, name in group], begins, ends, on_error="return")
            except Exception as error:
                parts = [error] * len(group)
            for (k, _), part in zip(group, parts, strict=True):
                if isinstance(part, BaseException):
                    results[k] = RuntimeError(f"{wanted[k].path}: {reason_of(part)}")
                    if not isinstance(part, _FINAL):
                        left.append(k)
                else:
                    results[k] = bytes(part)
        if not left:
            break
    return results


class RemoteRequest:
    """Ranges that are being fetched."""

    def __init__(self, ranges: RemoteRanges, numbers: np.ndarray) -> None:
        self._ranges, self._numbers = ranges, numbers
        self._future, self._process = ranges.fetch(numbers), os.getpid()

    def contents(self) -> list[bytes]:
        """Wait for the bytes of all ranges. BadSamples for what could not be fetched."""
        if self._process != os.getpid():  # the threads that fetch it are in the parent
            self._future, self._process = self._ranges.fetch(self._numbers), os.getpid()
        fetched = self._future.result()
        samples = self._numbers.shape[-1]
        reasons: dict[int, str] = {}
        for k, one in enumerate(fetched):
            if isinstance(one, Exception):
                reasons.setdefault(k % samples, reason_of(one))
        if reasons:
            raise BadSamples(reasons)
        return [one for one in fetched if not isinstance(one, Exception)]

    def finish(self) -> Batch:
        """Wait and return the bytes of the samples, uint8 (length,). BadSamples for what could not be fetched."""
        (batch,) = self.finish_all()
        return batch

    def finish_all(self) -> tuple[Batch, ...]:
        """The same for all components."""
        return tuple(packed_batch(*one) for one in self.parts())

    def parts(self) -> list[tuple[torch.Tensor, np.ndarray]]:
        """Of each component the bytes of all samples, one after the other, and how many each has."""
        contents, samples, made = self.contents(), self._numbers.shape[-1], []
        for first in range(0, len(contents), max(samples, 1)):
            component = contents[first : first + samples]
            values = np.frombuffer(bytearray().join(component), np.uint8) if any(component) else np.zeros(0, np.uint8)
            made.append((torch.from_numpy(values), np.array([len(one) for one in component], np.int64)))
        return made


# --- for native code, which reads files ---

R = TypeVar("R", bound=NativeRequest)


def native_request(make: Callable[[Ranges, np.ndarray], R], ranges: Ranges, numbers: np.ndarray) -> "R | RemoteNative[R]":
    """What ``make`` returns for some ranges; where they are remote, once they were fetched into memory that looks like files."""
    return RemoteNative(make, ranges, numbers) if isinstance(ranges, RemoteRanges) else make(ranges, numbers)


class RemoteNative(Generic[R]):
    """A native request for what is being fetched."""

    def __init__(self, make: Callable[[Ranges, np.ndarray], R], ranges: RemoteRanges, numbers: np.ndarray) -> None:
        self._make, self._fetching, self._whole = make, RemoteRequest(ranges, numbers), ranges.file is None
        self._request: R | None = None
        self._files: list[BinaryIO] = []

    def wait(self) -> None:
        """Wait for the bytes and for what the native code does with them. BadSamples for what could not be read."""
        contents = self._fetching.contents()
        lengths = np.array([len(one) for one in contents], np.int64)
        parts = contents if self._whole else [b"".join(contents)]
        self._files = [_in_memory(part) for part in parts]
        paths = pack_paths([f"/proc/self/fd/{file.fileno()}" for file in self._files])
        numbers = np.arange(len(contents))
        if self._whole:
            local = Ranges(b"", *paths)
        else:
            local = Ranges(b"", *paths, np.zeros(len(contents), np.int32), np.cumsum(lengths) - lengths, lengths)
        self._request = self._make(local, numbers)
        self._request.wait()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._request is None:
            self.wait()
        return getattr(self._request, name)

    def __del__(self) -> None:
        for file in self._files:
            file.close()


def _in_memory(content: bytes) -> BinaryIO:
    file = os.fdopen(os.memfd_create("torch_ndd"), "w+b")
    file.write(content)
    file.flush()
    return file


@contextmanager
def local_file(path: str) -> Iterator[str]:
    """A path for native code: that of a file, or of a copy of what is at a URL, which goes when the context ends."""
    if not is_url(path):
        yield path
        return
    fs, name = filesystem(path)
    with tempfile.TemporaryFile() as copy:

        def copied() -> None:
            copy.seek(0)
            copy.truncate()
            with fs.open(name, "rb") as file:
                shutil.copyfileobj(file, copy, 1 << 20)
            copy.flush()

        again(path, copied)
        yield f"/proc/self/fd/{copy.fileno()}"


def file_size(path: str) -> int:
    """Bytes of a file or of what is at a URL. OSError or RuntimeError where there is none."""
    if not is_url(path):
        return os.stat(path).st_size
    fs, name = filesystem(path)
    size = again(path, lambda: fs.size(name))
    if size is None:
        raise RuntimeError(f"{path}: the server does not tell its size")
    return size
