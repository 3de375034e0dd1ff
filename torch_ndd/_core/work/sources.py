# SPDX-License-Identifier: Apache-2.0
"""The files that samples come from, by which errors name them. Operators pass them on from their first input."""

import re
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

# What a value has whose samples come from nowhere. Compared by identity, because a length may be a call of Python.
UNKNOWN: Sequence[str] = ()


class Sources(Sequence[str]):
    """The sources of a batch's samples, formatted on demand: formatting 64 texts takes longer than reading 64 small samples."""

    def __init__(self, write: Callable[[int], str], numbers: np.ndarray | Sequence[int]) -> None:
        self._write, self._numbers = write, numbers

    @overload
    def __getitem__(self, key: int) -> str: ...
    @overload
    def __getitem__(self, key: slice) -> "Sources": ...
    def __getitem__(self, key: Any) -> Any:
        return Sources(self._write, self._numbers[key]) if isinstance(key, slice) else self._write(int(self._numbers[key]))

    def __len__(self) -> int:
        return len(self._numbers)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return repr(tuple(self))


def select_sources(sources: Sequence[str], samples: Any) -> Sequence[str]:
    """Return the sources of some samples, which an array or a sequence numbers."""
    return sources if sources is UNKNOWN else Sources(sources.__getitem__, np.asarray(samples, np.int64))


_SAMPLE = re.compile(r"\bsample( |_idx=)(\d+)(?! \(|, |\d)")


def with_source(text: str, sources: Sequence[str]) -> str:
    """Return an error's text with the source of the sample that it names.

    >>> with_source("crop: sample 1: the window leaves the image", ["a.jpg", "b.jpg"])
    'crop: sample 1 (b.jpg): the window leaves the image'
    """
    found = None if sources is UNKNOWN else _SAMPLE.search(text)
    if found is None or int(found[2]) >= len(sources) or not (source := sources[int(found[2])]):
        return text
    return text[: found.end()] + (f" ({source})" if found[1] == " " else f", {source}") + text[found.end() :]


def name_source(error: Exception, sources: Sequence[str]) -> None:
    """Add the source of the sample that an error names to its text."""
    if sources is not UNKNOWN and len(error.args) == 1 and (text := with_source(str(error), sources)) != str(error):
        error.args = (text,)


def name_in_batch(error: Exception, sources: Sequence[str]) -> None:
    """Add to an error that names a sample without its source what that sample of a batch is: samples of compiled graphs have no sources."""
    found = _SAMPLE.search(str(error))
    if found is not None and len(error.args) == 1 and int(found[2]) < len(sources) and (source := sources[int(found[2])]):
        error.args = (f"{error}\nsample {found[2]} of the batch that fn was called with: {source}",)
