# SPDX-License-Identifier: Apache-2.0
"""What lies outside of an array: the names of borders, and their numbers in native code."""

from collections.abc import Collection
from typing import Literal, get_args

from .._core import native
from .._core.suggestions import check_choice

Border = Literal[
    "reflect_101", "reflect_1001", "clamp", "wrap", "constant", "reflect101", "101", "reflect", "reflect1001", "1001", "edge", "pad", "fill"
]
"""What arguments take that are called ``border``."""

BorderMode = Literal["constant", "replicate", "reflect", "reflect_101", "wrap"]
"""What arguments take that are called ``border_mode``: OpenCV's names."""

_NUMBERS = native.numbers("Border")
_OTHER_NAMES = {
    "reflect_101": ("reflect101", "101"),
    "reflect_1001": ("reflect", "reflect1001", "1001"),
    "clamp": ("edge", "replicate"),
    "constant": ("pad", "fill"),
}
BORDERS = _NUMBERS | {name: _NUMBERS[border] for border, names in _OTHER_NAMES.items() for name in names}
"""The numbers of borders by all of their names."""


def fold_border(name: object) -> object:
    """Return the name of a border in lower case, as DALI takes them in any; anything else as it is.

    >>> fold_border("Reflect_101"), fold_border("ERROR")
    ('reflect_101', 'ERROR')
    """
    return name.lower() if isinstance(name, str) and name.lower() in BORDERS else name


def border_number(op: str, argument: str, name: str, names: Collection[str] = get_args(Border)) -> int:
    """Return the number of a border. Raise RuntimeError if its name is not one of ``names``, TypeError if it is not a string."""
    folded = fold_border(name)
    check_choice(op, argument, folded, names, RuntimeError if isinstance(name, str) else TypeError)
    return BORDERS[str(folded)]
