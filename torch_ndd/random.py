# SPDX-License-Identifier: Apache-2.0
"""Random numbers and their generator."""

from ._core.context.rng import RNG, get_default_rng, set_seed
from .ops.random.distributions import beta, choice, coin_flip, normal, uniform

__all__ = ["RNG", "beta", "choice", "coin_flip", "get_default_rng", "normal", "set_seed", "uniform"]
