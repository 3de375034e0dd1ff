# SPDX-License-Identifier: Apache-2.0
"""What `python -m benchmarks ops` measures: the cases of each family of operators, by name."""

from . import audio, augment, color, decoders, detection, filters, geometry, values
from ._case import DATA as DATA
from ._case import Case as Case

CASES: dict[str, Case] = {
    case.name: case for family in (geometry, color, filters, values, augment, decoders, detection, audio) for case in family.CASES
}
