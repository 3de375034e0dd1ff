# SPDX-License-Identifier: Apache-2.0
"""Suggestions for misspelled names."""

import difflib
from collections.abc import Iterable


def similar(name: str, names: Iterable[str]) -> str:
    """Return the end of a message that names the nearest of ``names``; nothing if none is near.

    >>> similar("sizes", ["size", "mode"])
    "; did you mean 'size'?"
    """
    known = list(names)
    close = [value for value in (name.rstrip("_"),) if value in known] or difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""
