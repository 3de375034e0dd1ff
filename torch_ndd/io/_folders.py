# SPDX-License-Identifier: Apache-2.0
"""Folders and their subfolders, whatever symbolic links are in them."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

# Paths through links to one folder: thirty folders, each with two links to the next, would give a billion.
MAX_WAYS = 100

_Place = tuple[int, int]  # device and inode


# Left by archives of macOS and by the index of a Synology server.
_FOLDERS_OF_TOOLS = ("__MACOSX", "@eaDir")


def is_hidden(name: str) -> bool:
    """Return whether the name is that of a folder of tools, such as ``.ipynb_checkpoints``, ``.git`` or ``__MACOSX``."""
    return name.startswith(".") or name in _FOLDERS_OF_TOOLS


def subfolders(root: str | os.PathLike[str]) -> list[str]:
    """Return the names of the folders in a folder, sorted; links to itself or to a folder above it are left out. Raise OSError if there is none."""
    above = _folders_above(root)
    with os.scandir(root) as entries:
        return sorted(entry.name for entry in entries if _is_folder(entry) and not (entry.is_symlink() and _place(entry.path) in above))


def walk(root: str | os.PathLike[str], enters: Callable[[str], bool] = lambda name: True) -> Iterator[tuple[str, list[str]]]:
    """Yield the path of each folder from ``root`` on and the names of its files, following links but not those back to a folder above.

    Args:
        root: The first folder.
        enters: Returns, for the name of a subfolder, whether to enter it.

    Raises:
        OSError: a folder that cannot be read.
        ValueError: links that lead to one folder by more than :data:`MAX_WAYS` ways.
    """
    root = os.fspath(root)
    ways: Counter[_Place] = Counter()
    waiting = [(root, _folders_above(os.path.dirname(os.path.abspath(root))))]
    while waiting:  # a stack and not recursion: folders may be nested deeper than Python's limit
        folder, above = waiting.pop()
        place = _place(folder)
        # A link back to a folder above would be walked forever.
        if place in above and folder != root:
            continue
        ways[place] += 1
        if ways[place] > MAX_WAYS:
            raise ValueError(f"symbolic links below {root!r} lead to {folder!r} by more than {MAX_WAYS} ways; remove them")
        files, folders = [], []
        with os.scandir(folder) as entries:
            for entry in entries:
                (folders if _is_folder(entry) else files).append(entry.name)
        yield folder, files
        below = above | {place}
        waiting += [(os.path.join(folder, name), below) for name in sorted(folders, reverse=True) if enters(name)]


def _place(folder: str | os.PathLike[str]) -> _Place:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _folders_above(folder: str | os.PathLike[str]) -> frozenset[_Place]:
    """Return the places of a folder and its parents, both by its name and with links resolved."""
    named, real = Path(os.path.abspath(folder)), Path(os.path.realpath(folder))
    return frozenset(_place(folder) for folder in (named, *named.parents, real, *real.parents))


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
