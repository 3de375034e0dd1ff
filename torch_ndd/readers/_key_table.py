# SPDX-License-Identifier: Apache-2.0
"""A table from keys to samples, in 16 bytes per sample, whatever the keys are."""

from collections.abc import Callable, Iterator

import numpy as np

from ._columns import Keys

MAX_ATTEMPTS = 8  # to find hashes without a collision: with 10^7 keys one attempt in 400,000 fails
# Odd constants with well-mixed bits: multiplication by them loses no information modulo 2^64.
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_WORD = np.arange(8)
_MASKS = np.array([2 ** (8 * length) - 1 for length in range(9)], np.uint64)  # of the first bytes of a word


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
        hashes = hash_keys(keys, self._salt)
        # searchsorted returns the length for a hash behind all others; clip it, the comparison below then fails as it should.
        at = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        return np.where(self._hashes[at] == hashes, self._places[at], -1)


def hash_keys(keys: Keys, salt: int) -> np.ndarray:
    """Return a 64-bit hash of each key."""
    lengths, begins = np.diff(keys.begins), keys.begins[:-1]
    # The last key may end inside a word, and a word of 8 bytes is read at every position.
    data = np.concatenate([keys.data, np.zeros(8, np.uint8)])
    state = lengths.astype(np.uint64) * _ODD + np.uint64(salt)
    for done in range(0, int(lengths.max(initial=0)), 8):  # a word of every key that is so long
        rows = np.flatnonzero(lengths > done)
        # One word of each key: (rows, 8) bytes viewed as integers; bytes behind the end of a key are masked off.
        words = data[(begins[rows] + done)[:, None] + _WORD].view("<u8")[:, 0] & _MASKS[np.minimum(lengths[rows] - done, 8)]
        state[rows] = _scramble((state[rows] ^ words) * _ODD)
    return _scramble(state)


def _scramble(state: np.ndarray) -> np.ndarray:
    state = (state ^ (state >> _HALF)) * _MIX
    return state ^ (state >> _HALF)
