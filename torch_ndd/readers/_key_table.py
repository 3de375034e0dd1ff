# SPDX-License-Identifier: Apache-2.0
"""A table from keys to samples, in 16 bytes per sample, whatever the keys are."""

from collections.abc import Callable, Iterator

import numpy as np

from ._columns import Keys

MAX_ATTEMPTS = 8  # to find hashes without a collision: with 10^7 keys one attempt in 400,000 fails
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)


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
        for attempt in range(MAX_ATTEMPTS):
            self._salt = (salt + attempt) % 2**64
            hashes, at = np.empty(size, np.uint64), 0
            for keys in read_keys():
                found = hash_keys(keys, self._salt)
                hashes[at : at + len(found)] = found
                at, self.is_number = at + len(found), keys.is_number
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
        hashes = hash_keys(keys, self._salt)
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        return np.where(self._hashes[at] == hashes, self._places[at], -1)


def hash_keys(keys: Keys, salt: int) -> np.ndarray:
    """Return a 64-bit hash of each key."""
    lengths = np.diff(keys.begins)
    hashes = np.empty(len(lengths), np.uint64)
    for length in np.unique(lengths).tolist():
        chosen = np.flatnonzero(lengths == length)
        words = np.zeros((len(chosen), -(-length // 8) * 8), np.uint8)
        words[:, :length] = keys.data[keys.begins[chosen][:, None] + np.arange(length)]
        state = np.full(len(chosen), (salt + length * int(_ODD)) % 2**64, np.uint64)
        for column in words.view("<u8").T if length else ():
            state = _scramble((state ^ column) * _ODD)
        hashes[chosen] = _scramble(state)
    return hashes


def _scramble(state: np.ndarray) -> np.ndarray:
    state = (state ^ (state >> _HALF)) * _MIX
    return state ^ (state >> _HALF)
