# SPDX-License-Identifier: Apache-2.0
"""Patterns of archive names: braces, wildcards and folders."""

import glob
import itertools
import os
import re
from collections.abc import Iterator, Sequence

from ...io._urls import is_url

MAX_NAMES = 1_000_000  # names from one pattern
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


def expand_paths(op: str, paths: Sequence[str]) -> list[str]:
    """Return the names that patterns stand for, in order; a name of an existing file or of none of these forms stands for itself.

    ``{000..127}`` and ``{a,b}`` work in URLs too; ``*``, ``?`` and ``[...]``, and a folder, which stands for its ``*.tar``, only in paths.
    Raise RuntimeError if nothing matches a wildcard or a folder has no archive.
    """
    return [name for path in paths for name_pattern in _braces(op, path) for name in _files(op, name_pattern)]


def _braces(op: str, pattern: str) -> Iterator[str]:
    parts = _BRACES.split(pattern)
    # A file may be called just like that.
    if len(parts) == 1 or os.path.exists(pattern):
        yield pattern
        return
    # re.split with a group alternates between text and the contents of braces.
    choices = [_choices(op, pattern, part) if k % 2 else [part] for k, part in enumerate(parts)]
    count = 1
    # Counted before anything is built: a pattern may stand for more names than memory holds.
    for options in choices:
        count *= len(options)
    if count > MAX_NAMES:
        raise RuntimeError(f'{op}: "{pattern}" stands for more than {MAX_NAMES} names')
    for parts in itertools.product(*choices):
        yield "".join(parts)


def _choices(op: str, pattern: str, text: str) -> Sequence[str]:
    found = _RANGE.fullmatch(text)
    if found is None:
        # Braces without a list or a range are part of the name.
        return text.split(",") if "," in text else ["{" + text + "}"]
    first, last = int(found[1]), int(found[2])
    if last < first or last - first >= MAX_NAMES or len(found[2]) > 18:
        raise RuntimeError(f'{op}: the range {{{text}}} of "{pattern}" is empty or has more than {MAX_NAMES} numbers')
    # A leading zero in the first number means numbers of equal width.
    width = len(found[1]) if found[1].startswith("0") else 0
    return [f"{k:0{width}}" for k in range(first, last + 1)]


def _files(op: str, path: str) -> Sequence[str]:
    if is_url(path) or os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        found = sorted(glob.glob(os.path.join(glob.escape(path), "*.tar")))
        if not found:
            raise RuntimeError(f'{op}: the folder "{path}" has no *.tar')
        return found
    # What the library webdataset takes in a path.
    if path.startswith("pipe:"):
        raise RuntimeError(f'{op}: "{path}": commands are not run; pass paths or URLs of the archives')
    if "::" in path:
        raise RuntimeError(f'{op}: "{path}": pass several archives as a list, {path.split("::")}')
    if not glob.has_magic(path):
        return [path]  # the error of reading it names it
    found = sorted(glob.glob(path))
    if not found:
        raise RuntimeError(f'{op}: no file matches "{path}"')
    return found
