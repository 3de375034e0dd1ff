# SPDX-License-Identifier: Apache-2.0
"""Element-wise mathematical functions: roots, logarithms, angles, rounding, extremes, powers."""

from .ops.math.functions import abs as abs
from .ops.math.functions import acos as acos
from .ops.math.functions import acosh as acosh
from .ops.math.functions import asin as asin
from .ops.math.functions import asinh as asinh
from .ops.math.functions import atan as atan
from .ops.math.functions import atan2 as atan2
from .ops.math.functions import atanh as atanh
from .ops.math.functions import cbrt as cbrt
from .ops.math.functions import ceil as ceil
from .ops.math.functions import clamp as clamp
from .ops.math.functions import cos as cos
from .ops.math.functions import cosh as cosh
from .ops.math.functions import exp as exp
from .ops.math.functions import fabs as fabs
from .ops.math.functions import floor as floor
from .ops.math.functions import fpow as fpow
from .ops.math.functions import log as log
from .ops.math.functions import log2 as log2
from .ops.math.functions import log10 as log10
from .ops.math.functions import max as max
from .ops.math.functions import min as min
from .ops.math.functions import pow as pow
from .ops.math.functions import rsqrt as rsqrt
from .ops.math.functions import sin as sin
from .ops.math.functions import sinh as sinh
from .ops.math.functions import sqrt as sqrt
from .ops.math.functions import tan as tan
from .ops.math.functions import tanh as tanh
