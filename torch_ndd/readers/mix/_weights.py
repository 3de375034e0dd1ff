# SPDX-License-Identifier: Apache-2.0
"""The weights of a mix, from what the user wrote to whole numbers."""

import math
import numbers
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ..._core.suggestions import similar
from ._schedule import reduce_weights


def check_weights(op: str, weights: Any, names: Sequence[str]) -> dict[str, Fraction]:
    """Return the weights by name, in the order of the names. Raise ValueError or TypeError with the name for invalid ones."""
    if not isinstance(weights, Mapping):
        raise TypeError(f"{op}: weights must be a dict of positive numbers by name, got {weights!r}")
    for name in weights:
        if name not in names:
            raise ValueError(f"{op}: weights has {name!r}, which is not a source{similar(str(name), names)}; sources: {', '.join(names)}")
    for name in names:
        if name not in weights:
            raise ValueError(f"{op}: weights has no number for the source {name!r}")
    return {name: _exact(op, name, weights[name]) for name in names}


def _exact(op: str, name: str, weight: Any) -> Fraction:
    """Return a number as its decimals say: 0.1 is a tenth, not the nearest binary fraction."""
    if isinstance(weight, bool) or not isinstance(weight, numbers.Real | Decimal):
        raise TypeError(f"{op}: weights[{name!r}] must be a positive number, got {weight!r}")
    try:
        exact = Fraction(weight) if isinstance(weight, numbers.Rational | Decimal) else Fraction(str(weight))
    except (ValueError, OverflowError):  # NaN and infinity
        exact = Fraction(0)
    if exact <= 0:
        raise ValueError(f"{op}: weights[{name!r}] must be positive and finite, got {weight!r}")
    return exact


def check_temperature(op: str, temperature: Any, weights: Any) -> float | None:
    """Return the temperature. Raise ValueError or TypeError for an invalid one, or together with weights."""
    if temperature is None:
        return None
    if weights is not None:
        raise ValueError(f"{op}: temperature and weights exclude each other: the temperature makes weights of the sizes")
    if isinstance(temperature, bool) or not isinstance(temperature, numbers.Real):
        raise TypeError(f"{op}: temperature must be a positive number, got {temperature!r}")
    if not (math.isfinite(temperature) and float(temperature) > 0):
        raise ValueError(f"{op}: temperature must be positive and finite, got {temperature!r}")
    return float(temperature)


def whole_weights(weights: Mapping[str, Fraction] | None, temperature: float | None, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return whole numbers in the proportion of the weights, or of the sizes to the power 1 / temperature."""
    if weights is not None:
        return reduce_weights(list(weights.values()))
    if temperature is None or temperature == 1:
        return reduce_weights([Fraction(size) for size in sizes])
    try:
        powers = [float(size) ** (1 / temperature) for size in sizes]
        # str() of a float is its shortest decimal, which reduces to smaller whole numbers than the exact binary fraction.
        shares = [Fraction(str(power)) for power in powers]
    except (OverflowError, ValueError):  # of a low temperature: relative to the largest, no power overflows
        largest = max(sizes)
        shares = [Fraction(str((size / largest) ** (1 / temperature))) for size in sizes]
    # A share may underflow to 0; it stays positive.
    return reduce_weights([max(share, Fraction(1, 1 << 60)) for share in shares])
