# SPDX-License-Identifier: Apache-2.0
"""Checks of the sizes in FITS headers before astropy acts on them.

astropy counts to TFIELDS and allocates what ZNAXISn say: ``TFIELDS = 1000000000000`` in a file of 20 kB never ends.
"""

import math
import re
from collections.abc import Sequence
from typing import BinaryIO

from ..._core.process.limits import check_sample

_BLOCK, _CARD = 2880, 80
MAX_AXES = 999  # the standard's limit, for columns too
MAX_BLOCKS = 10_000  # per header: 360,000 cards
# Pixels that a compressed image may expand to, per byte of the file. RICE and GZIP compress a constant image to a thousandth.
MAX_UNFOLDED = 20_000
_NUMBER = re.compile(rb"(NAXIS|TFIELDS|ZNAXIS|ZTILE|PCOUNT|GCOUNT|BITPIX|ZBITPIX)(\d*) *= *([+-]?\d+) *(/|$)")
_COUNTS = ("NAXIS", "TFIELDS", "ZNAXIS")


def check_headers(file: BinaryIO, most: int, parts: Sequence[int]) -> None:
    """Raise ValueError for headers that contradict themselves or the size of the file. Other file types pass; astropy rejects them.

    Raise RuntimeError where the image of one of some HDUs has more than ``most`` bytes.
    """
    size = file.seek(0, 2)
    begin = 0
    number = 0
    while begin + _BLOCK <= size:
        file.seek(begin)
        number += 1
        numbers, groups, scaled, begin = _header(file, number)
        # Not a header: nothing that follows will be read as one.
        if not numbers:
            return
        axes = [numbers.get(f"NAXIS{k}", 0) for k in range(1, numbers.get("NAXIS", 0) + 1)]
        # Random groups have a first axis of 0 that does not count.
        if groups and axes and axes[0] == 0:
            axes = axes[1:]
        pixels = math.prod(axes) if axes else 0
        # The data of an HDU in bytes, by the formula of the standard.
        held = abs(numbers.get("BITPIX", 8)) // 8 * numbers.get("GCOUNT", 1) * (numbers.get("PCOUNT", 0) + pixels)
        if held > size - begin:
            raise ValueError(f"HDU {number} has {held} bytes, but only {size - begin} remain in the file")
        if "ZNAXIS" in numbers:
            unfolded = math.prod(numbers.get(f"ZNAXIS{k}", 0) for k in range(1, numbers["ZNAXIS"] + 1))
            tile = math.prod(numbers.get(f"ZTILE{k}", 1) for k in range(1, numbers["ZNAXIS"] + 1))
            if max(unfolded, tile) > MAX_UNFOLDED * size:
                raise ValueError(f"HDU {number} expands to {max(unfolded, tile)} pixels, which a file of {size} bytes cannot hold")
        if "ZNAXIS" in numbers:
            shape = [numbers.get(f"ZNAXIS{k}", 0) for k in range(1, numbers["ZNAXIS"] + 1)]
        else:
            shape = axes
        if number in parts and shape:
            bits = 64 if scaled else abs(numbers.get("ZBITPIX", numbers.get("BITPIX", 8)))
            check_sample(f"the image of HDU {number} has", math.prod(shape) * bits // 8, most)
        # HDUs are padded to whole blocks.
        begin += -(-held // _BLOCK) * _BLOCK


def _header(file: BinaryIO, hdu: int) -> tuple[dict[str, int], bool, bool, int]:
    """Return the numbers in a header, whether it is of random groups, whether pixels are scaled, and where it ends. No numbers if it is not there."""
    numbers: dict[str, int] = {}
    groups = scaled = False
    for block in range(MAX_BLOCKS):
        content = file.read(_BLOCK)
        if len(content) < _BLOCK or (block == 0 and not content.startswith((b"SIMPLE", b"XTENSION"))):
            return {}, False, False, 0
        for at in range(0, _BLOCK, _CARD):
            card = content[at : at + _CARD]
            if card.startswith(b"END") and not card[3:8].strip():
                return numbers or {"NAXIS": 0}, groups, scaled, file.tell()
            # Scaled pixels become float64.
            scaled = scaled or card.startswith((b"BSCALE", b"BZERO", b"ZSCALE", b"ZZERO"))
            groups = groups or re.match(rb"GROUPS  = +T", card) is not None
            found = _NUMBER.match(card.rstrip())
            if found is None:
                continue
            key, value = (found[1] + found[2]).decode(), int(found[3])
            most = MAX_AXES if key in _COUNTS else 64 if key.endswith("BITPIX") else 2**62
            if not (-64 if key.endswith("BITPIX") else 0) <= value <= most:
                raise ValueError(f"the header of HDU {hdu} is damaged: {key} is {value}")
            # astropy might take the other one of two contradicting cards.
            if numbers.setdefault(key, value) != value:
                raise ValueError(f"the header of HDU {hdu} is damaged: {key} is {numbers[key]} and {value}")
    raise ValueError(f"the header of HDU {hdu} is not terminated")
