# SPDX-License-Identifier: Apache-2.0
"""Values of LMDB databases, in the order of their keys."""

import importlib
import os
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch

from .._batch import Batch
from .._workers import Workers
from ..io._urls import is_url
from ._base import BadSamples, LoaderOptions, Reader
from ._ranges import Path, Sources, as_paths, packed_batch
from ._threads import packed


class _Database:
    """One that is open. A process may open a database only once, so that all its readers share it; LMDB closes it with the object."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._environment: Any = None

    @property
    def environment(self) -> Any:
        """The open database. To be called, and used, under the lock of all databases."""
        if self._environment is None:
            lmdb = importlib.import_module("lmdb")
            # Without locks: nobody writes, and the folder may be read-only. Reading ahead is for disks without random access.
            options = {"readonly": True, "lock": False, "readahead": False, "create": False, "subdir": os.path.isdir(self.path)}
            self._environment = lmdb.open(self.path, **options)
        return self._environment

    def close(self) -> None:
        """Close it until it is needed again."""
        if self._environment is not None:
            self._environment.close()
            self._environment = None


_databases: dict[str, "weakref.ref[_Database]"] = {}
# Held while something is read. What is done with a value needs Python's lock anyway.
_reading = threading.RLock()


def _before_fork() -> None:
    # In the child LMDB may wait for ever when it closes what the parent has opened, and refuses to open it once more.
    _reading.acquire()
    for reference in list(_databases.values()):
        if (one := reference()) is not None:
            one.close()


def _in_child() -> None:
    global _reading
    _reading = threading.RLock()


os.register_at_fork(before=_before_fork, after_in_parent=lambda: _reading.release(), after_in_child=_in_child)


def database(path: str) -> _Database:
    """The database of a path, shared by all that use it. Under the lock; RuntimeError where it cannot be opened."""
    key = os.path.realpath(path)
    reference = _databases.get(key)
    found = None if reference is None else reference()
    if found is None:
        found = _Database(path)
        _databases[key] = weakref.ref(found)
    try:
        _ = found.environment
    except ImportError:
        raise RuntimeError("LMDB databases need lmdb: pip install torch_ndd[lmdb]") from None
    except Exception as error:  # lmdb.Error
        raise RuntimeError(f'LMDB database "{path}" cannot be opened: {error}') from None
    return found


class LmdbReader(Reader):
    """A reader of the values of some databases."""

    def __init__(self, max_batch_size: int | None, device: Any, path: Path | Sequence[Path], loader: LoaderOptions) -> None:
        super().__init__(max_batch_size, device, loader)
        self._paths = as_paths(path)
        self._keys: list[tuple[bytes, np.ndarray]] | None = None  # of each database, one after the other, and where they begin
        self._begins = np.zeros(1, np.int64)
        self._databases: dict[int, _Database] = {}
        self._executor: Workers | None = None
        self._process = 0

    def _scan(self) -> int:
        if self._keys is None:
            for path in filter(is_url, self._paths):
                raise RuntimeError(f'{self._op}: path "{path}" is a URL, but LMDB maps a database into memory: download it and give its local folder')
            keys = []
            for number, path in enumerate(self._paths):
                try:
                    with _reading, self._database(number).environment.begin() as transaction, transaction.cursor() as cursor:
                        found = list(cursor.iternext(keys=True, values=False))
                except RuntimeError as error:
                    raise RuntimeError(f"{self._op}: {error}") from None
                except Exception as error:  # lmdb.Error
                    raise RuntimeError(f'{self._op}: LMDB database "{path}" cannot be read: {error}') from None
                keys.append((b"".join(found), np.cumsum([0, *map(len, found)], dtype=np.int64)))
            if not keys or not sum(len(offsets) - 1 for _, offsets in keys):
                raise RuntimeError(f"{self._op}: No samples found in {', '.join(self._paths) or 'an empty list of paths'}")
            self._begins = np.cumsum([0, *(len(offsets) - 1 for _, offsets in keys)])
            self._keys = keys
        return int(self._begins[-1])

    def _place(self, sample: int) -> tuple[int, bytes]:
        """Database and key of a sample."""
        assert self._keys is not None
        number = 0 if len(self._keys) == 1 else int(np.searchsorted(self._begins, sample, "right")) - 1
        keys, offsets = self._keys[number]
        k = sample - self._begins[number]
        return number, keys[offsets[k] : offsets[k + 1]]

    def _database(self, number: int) -> _Database:
        if number not in self._databases:
            self._databases[number] = database(self._paths[number])
        return self._databases[number]

    def _source(self, sample: int) -> str:
        number, key = self._place(sample)
        return f"{self._paths[number]} at key {key.decode(errors='replace')}"

    def _start(self, samples: np.ndarray) -> "Future[tuple[Batch, ...]]":
        if self._executor is None or self._process != os.getpid():
            # Taking messages apart needs Python's lock: a task for each sample took 6 times as long as one for the batch.
            self._executor, self._process = Workers(1, self._op, self), os.getpid()
        return self._executor.submit(self._read, samples)

    def _finish(self, request: "Future[tuple[Batch, ...]]", samples: np.ndarray) -> tuple[Batch, ...]:
        if self._process != os.getpid():
            request = self._start(samples)
        outputs = request.result()
        outputs[0]._sources = Sources(self._source, samples)
        return outputs

    def _read(self, samples: np.ndarray) -> tuple[Batch, ...]:
        rows, reasons = [], {}
        with _reading, ExitStack() as stack:  # values are memory of the database as long as their transaction lasts
            transactions: dict[int, Any] = {}
            for k, sample in enumerate(samples.tolist()):
                try:
                    number, key = self._place(sample)
                    if number not in transactions:
                        transactions[number] = stack.enter_context(self._database(number).environment.begin(buffers=True))
                    value = transactions[number].get(key)
                    if value is None:
                        raise RuntimeError("the key is gone: somebody has written to the database")
                    rows.append(self._parse(memoryview(value)))
                except Exception as error:
                    reasons[k] = str(error) or type(error).__name__
            if reasons:
                raise BadSamples(reasons)
            return tuple(map(_packed, zip(*rows, strict=True)))

    def _parse(self, value: memoryview) -> Sequence[np.ndarray]:
        """The outputs of one value; they may share its memory. ValueError for a damaged one."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_executor": None, "_databases": {}}


def _packed(arrays: Sequence[np.ndarray]) -> Batch:
    if any(one.ndim != 1 or one.dtype != arrays[0].dtype for one in arrays):
        return packed(arrays)
    return packed_batch(torch.from_numpy(np.concatenate(arrays)), np.fromiter(map(len, arrays), np.int64, len(arrays)))
