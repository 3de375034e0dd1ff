# SPDX-License-Identifier: Apache-2.0
"""Cuts the samples of a window into units, or divides them among ranks, in native code (csrc/readers/batches.cpp)."""

from collections.abc import Iterator

import numpy as np

from .._core import native

FITS = native.numbers("batches.Fit")
ORDERS = native.numbers("batches.Order")
_UNLIMITED = 2**62


def plan_window(costs: np.ndarray, budgets: np.ndarray, max_samples: int | None, fit: str, order: str, key: tuple[int, int, int]) -> list[np.ndarray]:
    """Cut samples into units: the sorted numbers of the samples of each unit, int64, in the order of the units.

    ``costs`` are float64 (n, k), ``budgets`` (k,); ``key`` is the seed, the epoch and the window, with which units are shuffled.
    """
    count, kinds = costs.shape
    members, ends = np.empty(count, np.int64), np.empty(count, np.int64)
    costs, budgets = _as_doubles(costs), _as_doubles(budgets)
    seed, epoch, window = key
    units = native.plan_window(
        _address(costs), count, kinds, _address(budgets), max_samples or _UNLIMITED, FITS[fit], ORDERS[order], seed & (2**64 - 1), epoch, window,
        _address(members), _address(ends),
    )  # fmt: skip
    return list(_cut(members, ends, units))


def balance(costs: np.ndarray, budgets: np.ndarray, ranks: int, rotation: int = 0, equal: bool = True) -> list[np.ndarray]:
    """Divide samples among ranks: the sorted numbers of the samples of each rank, int64.

    The costliest remaining sample goes to the part with the least load; part j belongs to rank ``(j + rotation) % ranks``. With ``equal`` no part has
    more than ``ceil(n / ranks)`` samples.
    """
    count, kinds = costs.shape
    members, ends = np.empty(count, np.int64), np.empty(ranks, np.int64)
    costs, budgets = _as_doubles(costs), _as_doubles(budgets)
    parts = native.balance(_address(costs), count, kinds, _address(budgets), ranks, rotation % ranks, equal, _address(members), _address(ends))
    return list(_cut(members, ends, parts))


def _cut(members: np.ndarray, ends: np.ndarray, units: int) -> Iterator[np.ndarray]:
    if units < 0:
        raise MemoryError("batches: no memory to plan a window; use a smaller window")
    begin = 0
    for end in ends[:units].tolist():
        yield members[begin:end]
        begin = end


def _as_doubles(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float64)


def _address(array: np.ndarray) -> int:
    return array.ctypes.data
