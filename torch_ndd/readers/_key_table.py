# SPDX-License-Identifier: Apache-2.0
"""A table from keys to samples, in 16 bytes per sample, whatever the keys are."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .._core import native
from ._keys import Keys
from ._ranges.ranges import address_of

MAX_ATTEMPTS = 8  # to find hashes without a collision: with 10^7 keys one attempt in 400,000 fails


class KeyTable:
    """The samples of keys, found by 64-bit hashes. What it finds must be compared: a key that is not in the table may have the hash of another.

    Args:
        read_keys: yields the keys of all samples.
        size: number of samples.
        salt: makes the hashes unpredictable for who writes the keys.
        compare: called with two samples whose hashes are equal; raises an error if their keys are.
    """

    def __init__(self, read_keys: Callable[[], Iterator[Keys]], size: int, salt: int, compare: Callable[[int, int], None]) -> None:
        self.is_number = False
        self._arguments: tuple[int, int, int, int] | None = None
        # Two keys with one hash would be confused; another salt separates them, unless they are the same key, which `compare` reports.
        for attempt in range(MAX_ATTEMPTS):
            self._salt = (salt + attempt) % 2**64
            hashes, at = np.empty(size, np.uint64), 0
            for keys in read_keys():
                found = hash_keys(keys, self._salt)
                hashes[at : at + len(found)] = found
                at, self.is_number = at + len(found), keys.is_number
            # Stable, so that `compare` gets the sample that comes first as its first argument.
            self._places = np.argsort(hashes, kind="stable")
            hashes = hashes[self._places]
            equal = np.flatnonzero(hashes[1:] == hashes[:-1])
            if not len(equal):
                self._hashes = hashes
                return
            compare(*self._places[equal[0] : equal[0] + 2].tolist())
        raise RuntimeError(f"different keys have had equal hashes {MAX_ATTEMPTS} times")

    def find(self, keys: Keys) -> np.ndarray:
        """Return the sample that may have each key, int64; -1 where there is none."""
        found = np.empty(len(keys.lengths), np.int64)
        native.find_keys(keys.data.data_ptr(), keys.lengths.data_ptr(), len(found), *self.arguments, address_of(found))
        return found

    @property
    def arguments(self) -> tuple[int, int, int, int]:
        """What native code finds keys by: the salt, the addresses of the sorted hashes and of their samples, and how many there are."""
        if self._arguments is None:
            self._arguments = self._salt, address_of(self._hashes), address_of(self._places), len(self._hashes)
        return self._arguments

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_arguments": None}


def hash_keys(keys: Keys, salt: int) -> np.ndarray:
    """Return a 64-bit hash of each key."""
    hashes = np.empty(len(keys.lengths), np.uint64)
    native.hash_keys(keys.data.data_ptr(), keys.lengths.data_ptr(), len(hashes), salt, address_of(hashes))
    return hashes
