# SPDX-License-Identifier: Apache-2.0
"""Cuts the samples of a window into units, or divides them among ranks, in native code (csrc/readers/batches.cpp)."""

from typing import NamedTuple

import numpy as np

from .._core import native

FITS = native.numbers("batches.Fit")
ORDERS = native.numbers("batches.Order")
_UNLIMITED = 2**62


class Cut(NamedTuple):
    """Samples in groups."""

    members: np.ndarray
    """The numbers of the samples of one group after the other, int64; sorted within a group."""
    ends: np.ndarray
    """Where each group ends in ``members``, int64."""


def plan_window(costs: np.ndarray, budgets: np.ndarray, max_samples: int | None, fit: str, order: str, key: tuple[int, int, int]) -> Cut:
    """Cut samples into units, in the order of the units.

    ``costs`` are float64 (n, k), ``budgets`` (k,); ``key`` is the seed, the epoch and the window, with which units are shuffled.
    """
    count, kinds = costs.shape
    cut = Cut(np.empty(count, np.int64), np.empty(count, np.int64))
    costs, budgets = _as_doubles(costs), _as_doubles(budgets)
    seed, epoch, window = key
    # The seed as an unsigned word, as the native generator takes it.
    arguments = max_samples or _UNLIMITED, FITS[fit], ORDERS[order], seed & (2**64 - 1), epoch, window
    return _shorten(cut, native.plan_window(_address(costs), count, kinds, _address(budgets), *arguments, *map(_address, cut)))


def balance(costs: np.ndarray, budgets: np.ndarray, ranks: int, rotation: int = 0, equal: bool = True) -> Cut:
    """Divide samples among ranks.

    The costliest remaining sample goes to the part with the least load; part j belongs to rank ``(j + rotation) % ranks``. With ``equal`` no part has
    more than ``ceil(n / ranks)`` samples.
    """
    count, kinds = costs.shape
    cut = Cut(np.empty(count, np.int64), np.empty(ranks, np.int64))
    costs, budgets = _as_doubles(costs), _as_doubles(budgets)
    arguments = ranks, rotation % ranks, equal
    return _shorten(cut, native.balance(_address(costs), count, kinds, _address(budgets), *arguments, *map(_address, cut)))


def _shorten(cut: Cut, groups: int) -> Cut:
    if groups < 0:
        raise MemoryError("batches: no memory to plan a window; use a smaller window")
    return Cut(cut.members, cut.ends[:groups])


def _as_doubles(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float64)


def _address(array: np.ndarray) -> int:
    return array.ctypes.data
