# SPDX-License-Identifier: Apache-2.0
"""Transforms of Albumentations that a data set holds. They draw from generators of their own, which each process would copy."""

import functools
import random
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

_MAX_VISITED = 1000  # objects; what a data set holds may be large
_MAX_PARTS = 100  # of a list or a dict
_MASK = 2**64 - 1
_METHODS = ("__getitem__", "__getitems__", "__iter__", "__call__")


def find_transforms(dataset: Any) -> list[Any]:
    """Return the transforms that a data set reaches by attributes, lists, functions and their variables, except those inside others.

    Those with a seed of their own are left out: the program has chosen their numbers.
    """
    library = sys.modules.get("albumentations")
    kinds: Any = tuple(getattr(library, name) for name in ("BaseCompose", "BasicTransform") if hasattr(library, name))
    # Old versions draw from the generators of `random` and NumPy.
    if not kinds or not all(hasattr(kind, "set_random_state") for kind in kinds):
        return []
    found: list[Any] = []
    seen: set[int] = set()
    waiting = deque([dataset])
    while waiting and len(seen) < _MAX_VISITED:
        value = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        # Not isinstance() and vars(), which run code of proxies.
        if issubclass(type(value), kinds):
            if value.seed is None:
                found.append(value)
        else:
            waiting.extend(part for part in _list_parts(value) if not issubclass(type(part), _WITHOUT_PARTS))
    return found


_WITHOUT_PARTS = (type(None), str, bytes, int, float, np.ndarray, np.generic, types.ModuleType, type)


def _list_parts(value: Any) -> Iterable[Any]:
    kind = type(value)
    if kind in (list, tuple, dict):
        return () if len(value) > _MAX_PARTS else value.values() if kind is dict else value
    if kind is types.FunctionType:
        return _list_variables(value)
    if kind is types.MethodType:
        return value.__self__, value.__func__
    if kind is functools.partial:
        return value.func, *value.args, *value.keywords.values()
    methods = [getattr(kind, name, None) for name in _METHODS]
    try:
        attributes = object.__getattribute__(value, "__dict__").values()
    except AttributeError:
        attributes = ()
    return *attributes, *(method for method in methods if type(method) is types.FunctionType)


def _list_variables(function: types.FunctionType) -> Iterator[Any]:
    """Yield the variables that a function has from outside: of the functions around it, and of its module."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield function.__globals__[name]


def seed_transforms(transforms: list[Any], seed: int) -> None:
    """Seed transforms, which then draw from one generator: 20 us."""
    if transforms:
        # Other numbers than those of the module `random`, from which the item may draw, too.
        generators = np.random.default_rng(seed), random.Random(seed ^ _MASK)
        for transform in transforms:
            transform.set_random_state(*generators)
