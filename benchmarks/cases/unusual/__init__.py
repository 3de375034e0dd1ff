# SPDX-License-Identifier: Apache-2.0
"""What `python -m benchmarks unusual` measures: arguments and inputs that are easily left to a slow path."""

from .._case import Case
from . import color, resampling, values, windows

CASES: dict[str, Case] = {case.name: case for family in (windows, resampling, color, values) for case in family.CASES}
