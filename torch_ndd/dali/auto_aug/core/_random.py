# SPDX-License-Identifier: Apache-2.0
"""Random numbers of a graph."""

from typing import Any

from ... import fn, types

_fn: Any = fn  # its submodules are made when it is imported


def random_index(count: int, seed: int | None = None, shape: Any = None) -> Any:
    """Return a node of ints from 0 to ``count - 1``."""
    return _fn.random.uniform(values=list(range(count)), dtype=types.INT32, seed=seed, shape=shape)


def random_part(seed: int | None = None, shape: Any = None) -> Any:
    """Return a node of numbers from 0 to 1."""
    return _fn.random.uniform(range=[0, 1], seed=seed, shape=shape)
