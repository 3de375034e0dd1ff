# SPDX-License-Identifier: Apache-2.0
"""Element-wise mathematical functions: roots, logarithms, angles, rounding, extremes, powers."""

from .ops.math import abs as abs
from .ops.math import acos as acos
from .ops.math import acosh as acosh
from .ops.math import asin as asin
from .ops.math import asinh as asinh
from .ops.math import atan as atan
from .ops.math import atan2 as atan2
from .ops.math import atanh as atanh
from .ops.math import cbrt as cbrt
from .ops.math import ceil as ceil
from .ops.math import clamp as clamp
from .ops.math import cos as cos
from .ops.math import cosh as cosh
from .ops.math import exp as exp
from .ops.math import fabs as fabs
from .ops.math import floor as floor
from .ops.math import fpow as fpow
from .ops.math import log as log
from .ops.math import log2 as log2
from .ops.math import log10 as log10
from .ops.math import max as max
from .ops.math import min as min
from .ops.math import pow as pow
from .ops.math import rsqrt as rsqrt
from .ops.math import sin as sin
from .ops.math import sinh as sinh
from .ops.math import sqrt as sqrt
from .ops.math import tan as tan
from .ops.math import tanh as tanh
