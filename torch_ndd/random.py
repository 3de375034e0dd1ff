# SPDX-License-Identifier: Apache-2.0
"""Random numbers and their generator."""

from ._core.context.rng import RNG as RNG
from ._core.context.rng import get_default_rng as get_default_rng
from ._core.context.rng import set_seed as set_seed
from .ops.random.distributions import beta as beta
from .ops.random.distributions import choice as choice
from .ops.random.distributions import coin_flip as coin_flip
from .ops.random.distributions import normal as normal
from .ops.random.distributions import uniform as uniform
