# SPDX-License-Identifier: Apache-2.0
"""Lists of files: the arguments that name them, those named in a text, and those in a folder and its subdirectories."""

import fnmatch
import os
import re
from collections.abc import Sequence

import numpy as np

from ..._core.process.files import text_of
from ...io._urls import is_url, list_names, read_all
from .ranges import Path, Ranges, as_paths, pack_paths
from .remote import ranges_of


class FileArguments:
    """The arguments ``file_root``, ``file_list`` and ``files`` of a reader."""

    def __init__(self, file_root: Path | None, file_list: Path | None, files: Path | Sequence[Path] | None) -> None:
        self.root = None if file_root is None else os.fsencode(file_root)
        self.list = None if file_list is None else os.fsencode(file_list)
        self.paths = None if files is None else pack_paths(as_paths(files))

    @property
    def needs(self) -> dict[str, bytes | None]:
        """Paths that a loader checks before it starts."""
        # With a list the root may be unused, and files are not checked one by one.
        return {"file_list": self.list} if self.list is not None else {"file_root": self.root} if self.paths is None else {}

    def check(self, op: str) -> None:
        """Raise RuntimeError for arguments that are missing or exclude each other."""
        if self.root is None and self.paths is None and self.list is None:
            raise RuntimeError(f"{op}: file_root is required without files or file_list")
        if self.paths is not None and self.list is not None:
            raise RuntimeError(f"{op}: give files or file_list, not both")
        if self.paths is not None and len(self.paths[1]) == 1:
            raise RuntimeError(f"{op}: files is an empty list")

    def find(self, op: str, *patterns: str) -> Ranges:
        """Return the files, of a folder those whose names match one of the patterns. Raise RuntimeError if there are none."""
        self.check(op)
        if self.list is not None:
            return read_file_list(op, self.list, self.root)
        if self.paths is not None:
            return whole_files(self.root, *self.paths)
        assert self.root is not None
        return files_below(op, self.root, *patterns)


def whole_files(root: bytes | None, paths: bytes, offsets: np.ndarray) -> Ranges:
    """Return the files of some paths, which start at ``root`` unless they are absolute."""
    root = b"" if not root else os.path.join(root, b"")
    # First bytes of the paths that are not empty: an empty one would index the next path, or the end.
    begins = offsets[:-1][offsets[:-1] < offsets[1:]]
    if root and (np.frombuffer(paths, np.uint8)[begins] == ord("/")).any():
        # Absolute paths must not get the root in front: join each one, and use no common root.
        joined = [os.path.join(root, paths[begin:end]) for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
        return ranges_of(b"", *pack_paths(joined))
    return ranges_of(root, paths, offsets)


def read_file_list(op: str, path: bytes, root: bytes | None) -> Ranges:
    """Return the files named in a text, one per line; relative paths start at ``root`` or at the text's folder. Raise RuntimeError if none."""
    try:
        names = [line for line in (line.rstrip(b"\r") for line in text_of(read_all(path)).split(b"\n")) if line]
    except OSError as error:
        raise RuntimeError(f'{op}: file_list "{os.fsdecode(path)}" cannot be read: {error.strerror}') from None
    if not names:
        raise RuntimeError(f'{op}: No files found in "{os.fsdecode(path)}": the list is empty')
    return whole_files(os.path.dirname(path) if root is None else root, *pack_paths(names))


def files_below(op: str, root: bytes, *patterns: str) -> Ranges:
    """Return the files in a folder and its subdirectories whose names match one of the patterns. Raise RuntimeError if there are none."""
    fits = re.compile(os.fsencode("|".join(map(fnmatch.translate, patterns))))
    names: list[bytes] = []
    try:
        # The root itself is among the folders; joined to a URL, "." would become part of the path.
        here = b"" if is_url(root) else b"."
        for folder in sorted([here, *list_names(root, re.compile(b""), True)]):
            names += [os.path.join(folder, name) for name in list_names(os.path.join(root, folder), fits, False)]
    except OSError as error:
        raise RuntimeError(f'{op}: file_root "{os.fsdecode(error.filename)}" cannot be opened: {error.strerror}') from None
    if not names:
        raise RuntimeError(
            f'{op}: No files found in "{os.fsdecode(root)}" and its subdirectories whose names match {" or ".join(map(repr, patterns))}'
        )
    return whole_files(root, *pack_paths(names))
