# SPDX-License-Identifier: Apache-2.0
"""The target folder. Nothing outside it is written, read or removed, whatever names annotations have and whatever links it contains."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .._core.process.files import read_regular, whole_file

WORK = ".pack"  # a folder in the target, for unfinished work
ANNOTATIONS, CLASSES, SUMMARY = "annotations.json", "classes.txt", "pack.json"
OWN_FILES = (ANNOTATIONS, CLASSES, SUMMARY)

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
UNFINISHED = ".part"


class Target:
    """The folder of a packed data set, created if missing. Names are relative to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._root = os.open(path, _FOLDER)
        try:
            self.work = self._open_folder(self._root, WORK)
        except BaseException:
            os.close(self._root)
            raise

    def __enter__(self) -> "Target":
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.work)
        os.close(self._root)

    def _open_folder(self, parent: int, name: str) -> int:
        """Open a subfolder, created if missing, and return its descriptor."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
        try:
            # Folders are entered one by one, by descriptor, so a link planted between two steps cannot lead outside.
            return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
        except OSError as error:
            raise ValueError(f"pack: {name!r} in {str(self.path)!r} is not a folder but a link or a file; remove it: {error.strerror}") from None

    @contextlib.contextmanager
    def _parent(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield the descriptor of the folder of a name, and the rest of the name."""
        *folders, last = name.split("/")
        # A name from a file of annotations could otherwise lead out of the folder.
        if any(part in ("", ".", "..") for part in (*folders, last)) or "\0" in name:
            raise ValueError(f"pack: {name!r} is not a name of a file in {str(self.path)!r}")
        parent = os.dup(self._root)
        try:
            for part in folders:
                below = self._open_folder(parent, part)
                os.close(parent)
                parent = below
            yield parent, last
        finally:
            os.close(parent)

    @contextlib.contextmanager
    def file(self, name: str) -> Iterator[BinaryIO]:
        """Open a file for writing; it appears when it is complete, see :func:`whole_file`. Raise OSError with its path."""
        try:
            with self._parent(name) as (folder, last), whole_file(last, dir_fd=folder, unfinished_dir_fd=self.work) as file:
                yield file
        except OSError as error:
            # The error names the file within its folder only.
            if error.filename == name.rpartition("/")[2]:
                error.filename = os.fspath(self.path / name)
            raise

    def write(self, name: str, content: bytes) -> None:
        """Write a file, see :meth:`file`."""
        with self.file(name) as file:
            file.write(content)

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file in the folder or in ``.pack``; None if there is none. Raise OSError for a link or a device."""
        folder, _, last = name.rpartition("/")
        try:
            return read_regular(last, dir_fd=self.work if folder else self._root, follow=False)
        except FileNotFoundError:
            return None

    def remove_unfinished(self) -> None:
        """Remove leftovers of killed processes. No other process may be using the folder."""
        for name in os.listdir(self.work):
            if name.endswith(UNFINISHED):
                os.unlink(name, dir_fd=self.work)

    def remove_work(self) -> None:
        """Remove ``.pack``."""
        for name in os.listdir(self.work):
            os.unlink(name, dir_fd=self.work)
        os.rmdir(WORK, dir_fd=self._root)
