# SPDX-License-Identifier: Apache-2.0
"""Seeds of the random numbers that a data set draws while it reads a sample."""

from functools import lru_cache

import numpy as np

# Constants of SplitMix64 (Steele, Lea and Flood, 2014): an odd step, and a mixing function that is one-to-one.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = np.uint64(31)
_MASK = 2**64 - 1


def compute_seeds(seed: int, epoch: int, places: np.ndarray) -> np.ndarray:
    """Return a seed for each place in the order of an epoch, int64 with all 64 bits used. Those of an epoch differ from each other.

    >>> len({*compute_seeds(0, 0, np.arange(1000)), *compute_seeds(0, 1, np.arange(1000)), *compute_seeds(1, 0, np.arange(1000))})
    3000
    """
    return _mix(_find_key(seed & _MASK, epoch & _MASK) + (places.astype(np.uint64) + np.uint64(1)) * _STEP).view(np.int64)


@lru_cache(16)
def compute_seed(seed: int, epoch: int) -> int:
    """Return one seed for a whole epoch, from 0 to 2**64 - 1: that of the first place."""
    return int(compute_seeds(seed, epoch, np.zeros(1, np.int64)).view(np.uint64)[0])


@lru_cache(16)
def _find_key(seed: int, epoch: int) -> np.ndarray:
    # Arrays of one number, because NumPy warns of an overflow of scalars.
    return _mix(_mix(np.array([seed], np.uint64) + _STEP) + np.array([epoch], np.uint64) * _STEP)


def _mix(values: np.ndarray) -> np.ndarray:
    for shift, factor in _ROUNDS:
        values = (values ^ (values >> shift)) * factor
    return values ^ (values >> _LAST_SHIFT)
