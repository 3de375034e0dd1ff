# SPDX-License-Identifier: Apache-2.0
"""The generators from which the items of a data set draw: torch_ndd's, which each thread has for itself, and those that all threads share."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ..._core.context.rng import follow_samples
from ..._core.process.fork_locks import new_reentrant_lock
from ._held_transforms import find_transforms, seed_transforms

# Threads that read inline take turns: each returns the shared generators as it found them. Reentrant, because an item may read another data set.
_lock = new_reentrant_lock()


# What the functions call that seed generators: with cold caches, after an item, their detours take 5 of 18 us.
_of_random: Any = random.seed.__self__
_base_of_random: Any = super(random.Random, _of_random)
_of_numpy: Any = np.random.rand.__self__


def seed_shared_generators(seed: int) -> None:
    """Seed the generators of ``random``, NumPy and torch for the CPU: 6 us, where ``torch.manual_seed`` alone takes 130, for all kinds of devices."""
    _base_of_random.seed(seed)
    _of_random.gauss_next = None  # the second of a pair of numbers
    # Not the half that torch's Mersenne Twister takes of its seed: NumPy's would yield the same words.
    try:
        _of_numpy.seed(seed >> 32)
    except TypeError:  # the program has given NumPy another generator, of which seed() keeps a normal number
        np.random.seed(seed >> 32)
        np.random.set_state({**np.random.get_state(legacy=False), "has_gauss": 0, "gauss": 0.0})
    torch.default_generator.manual_seed(seed)


@contextmanager
def keep_shared_generators() -> Iterator[None]:
    """Return the shared generators to where they are now at the end of the block: 0.1 ms."""
    with _lock:
        before = random.getstate(), np.random.get_state(legacy=False), torch.default_generator.get_state()
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
            torch.default_generator.set_state(before[2])


def follow_with_shared(dataset: Any, samples: Sequence[Any], seeds: Sequence[int]) -> Iterator[Any]:
    """Do what ``follow_samples`` does, also with the shared generators and those of the transforms that the data set holds."""
    transforms = find_transforms(dataset)
    for sample, seed in zip(follow_samples(samples, seeds), seeds, strict=True):
        seed_shared_generators(seed)
        seed_transforms(transforms, seed)
        yield sample
