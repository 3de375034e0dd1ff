# SPDX-License-Identifier: Apache-2.0
"""Summaries of data sources in a few words, for ``repr`` and messages."""

import os
from collections.abc import Mapping
from typing import Any

_MAX_TEXT = 100  # characters
# Arguments of readers that describe the source.
SOURCES = ("dataset", "file_root", "file_list", "files", "filenames", "path", "paths", "annotations_file", "preprocessed_annotations")
SOURCES += ("manifest_filepaths", "file_filters", "file_filter", "dir_filters", "ext", "images", "filters")


def brief(value: Any) -> str:
    """Summarize a value in one line.

    >>> brief("/data/train"), brief([1, 2, 3]), brief(["a.tar", "b.tar"])
    ("'/data/train'", '<list of 3 items>', "['a.tar', 'b.tar']")
    """
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str | bytes | int | float):
        return _cut(repr(value))
    # A few names are shown in full; longer lists only by their number of items.
    if (
        isinstance(value, tuple | list)
        and 0 < len(value) <= 4
        and all(hasattr(item, "_brief") or isinstance(item, str | os.PathLike) for item in value)
    ):
        begin, end = "()" if isinstance(value, tuple) else "[]"
        return f"{begin}{', '.join(map(brief, value))}{end}"
    if isinstance(value, Mapping) and 0 < len(value) <= 4:
        return "{" + ", ".join(f"{brief(key)}: {brief(item)}" for key, item in value.items()) + "}"
    # A repr of its own is shown if it is short; data sets of torchvision print several lines.
    kind = type(value)
    if kind.__repr__ is not object.__repr__ and not isinstance(value, list | tuple | Mapping):
        text = repr(value)
        if "\n" not in text and len(text) <= 3 * _MAX_TEXT:
            return text
    try:
        count = len(value)
        return f"<{kind.__name__} of {count} item{'s' * (count != 1)}>"
    except Exception:  # without a length
        return f"<{kind.__name__}>"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 3]}..."


def source_of(arguments: Mapping[str, Any]) -> str:
    """Summarize the source that a reader's arguments describe."""
    return ", ".join(f"{name}={brief(arguments[name])}" for name in SOURCES if arguments.get(name) is not None)
