# SPDX-License-Identifier: Apache-2.0
"""Checks of the sizes in FITS headers before astropy acts on them.

astropy counts to TFIELDS and allocates what ZNAXISn say: ``TFIELDS = 1000000000000`` in a file of 20 kB never ends.
"""

import math
import re
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

from ..._core.process.limits import check_sample

_BLOCK, _CARD = 2880, 80
MAX_AXES = 999  # the standard's limit, for columns too
MAX_BLOCKS = 10_000  # per header: 360,000 cards
# Pixels that a compressed image may expand to, per byte of the file. RICE and GZIP compress a constant image to a thousandth.
MAX_UNFOLDED = 20_000
_NUMBER = re.compile(rb"(NAXIS|TFIELDS|ZNAXIS|ZTILE|PCOUNT|GCOUNT|BITPIX|ZBITPIX)(\d*) *= *([+-]?\d+) *(/|$)")
_COUNTS = ("NAXIS", "TFIELDS", "ZNAXIS")
# Cards that are looked at, also as astropy reads them: in small letters, behind spaces or HIERARCH. Most cards are others.
_KNOWN = re.compile(rb" *(?:HIERARCH +)?(?:END|GROUPS|BLANK|[BZ]SCALE|[BZ]ZERO|Z?NAXIS|TFIELDS|ZTILE|[PG]COUNT|Z?BITPIX)", re.IGNORECASE)
# Pixels are then not the values, or there are several images.
_CHANGES_VALUES = re.compile(rb" *(?:HIERARCH +)?(?:GROUPS|BLANK|[BZ]SCALE|[BZ]ZERO)", re.IGNORECASE)
# By BITPIX.
_DTYPES = {8: ">u1", 16: ">i2", 32: ">i4", 64: ">i8", -32: ">f4", -64: ">f8"}
_FIRST_CARDS = b"SIMPLE  = " + b"T".rjust(20), b"XTENSION= 'IMAGE   '"


class PlainImage(NamedTuple):
    """An image whose values are the numbers in the file."""

    dtype: str
    """Of NumPy."""
    shape: tuple[int, ...]
    begin: int
    """The first byte."""


class _Header(NamedTuple):
    numbers: dict[str, int]
    """Empty if the header is missing."""
    has_groups: bool
    is_scaled: bool
    is_plain: bool
    """Whether it describes a :class:`PlainImage`, or no image, exactly as the standard says."""
    end: int


def check_headers(file: BinaryIO, most: int, parts: Sequence[int]) -> dict[int, PlainImage]:
    """Return which HDUs of ``parts`` hold plain images, if those before them do, too.

    Raise ValueError for headers that contradict themselves or the size of the file. Other file types pass; astropy rejects them. Raise RuntimeError
    where the image of one of the HDUs has more than ``most`` bytes.
    """
    size = file.seek(0, 2)
    begin = 0
    number = 0
    images: dict[int, PlainImage] = {}
    are_plain = True
    while begin + _BLOCK <= size:
        file.seek(begin)
        number += 1
        numbers, groups, scaled, is_plain, begin = _read_header(file, number)
        # Not a header: nothing that follows will be read as one.
        if not numbers:
            break
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
        data, begin = begin, begin + -(-held // _BLOCK) * _BLOCK
        are_plain = are_plain and is_plain and begin <= size
        if are_plain and number in parts and pixels:
            images[number] = PlainImage(_DTYPES[numbers["BITPIX"]], tuple(axes[::-1]), data)
    return images


def _read_header(file: BinaryIO, hdu: int) -> _Header:
    numbers: dict[str, int] = {}
    places: dict[str, int] = {}  # of the numbers among the cards
    has_groups = is_scaled = False
    is_plain = True
    for block in range(MAX_BLOCKS):
        content = file.read(_BLOCK)
        if len(content) < _BLOCK or (block == 0 and not content.startswith((b"SIMPLE", b"XTENSION"))):
            return _Header({}, False, False, False, 0)
        if block == 0:
            is_plain = content[:_CARD].partition(b"/")[0].rstrip() == _FIRST_CARDS[hdu > 1]
        for at in range(0, _BLOCK, _CARD):
            if _KNOWN.match(content, at) is None:
                continue
            card = content[at : at + _CARD]
            if card.startswith(b"END") and not card[3:8].strip():
                is_plain = is_plain and not card[3:].strip(b" ") and _are_plain(numbers, places)
                return _Header(numbers or {"NAXIS": 0}, has_groups, is_scaled, is_plain, file.tell())
            # Scaled pixels become float64.
            is_scaled = is_scaled or card.startswith((b"BSCALE", b"BZERO", b"ZSCALE", b"ZZERO"))
            has_groups = has_groups or re.match(rb"GROUPS  = +T", card) is not None
            is_plain = is_plain and _CHANGES_VALUES.match(card) is None
            found = _NUMBER.match(card.rstrip())
            if found is None:
                is_plain = is_plain and card.startswith(b"END")  # such as ENDTIME; others may be numbers that only astropy can read, or cannot
                continue
            key, value = (found[1] + found[2]).decode(), int(found[3])
            most = MAX_AXES if key in _COUNTS else 64 if key.endswith("BITPIX") else 2**62
            if not (-64 if key.endswith("BITPIX") else 0) <= value <= most:
                raise ValueError(f"the header of HDU {hdu} is damaged: {key} is {value}")
            # astropy might take the other one of two contradicting cards.
            if numbers.setdefault(key, value) != value:
                raise ValueError(f"the header of HDU {hdu} is damaged: {key} is {numbers[key]} and {value}")
            if card[8:10] == b"= ":
                places.setdefault(key, block * (_BLOCK // _CARD) + at // _CARD)
    raise ValueError(f"the header of HDU {hdu} is not terminated")


def _are_plain(numbers: dict[str, int], places: dict[str, int]) -> bool:
    """Return whether the numbers describe a plain image and stand in the cards that the standard prescribes."""
    keys = ["BITPIX", "NAXIS", *(f"NAXIS{k}" for k in range(1, numbers.get("NAXIS", 0) + 1))]
    if numbers.get("BITPIX") not in _DTYPES or [places.get(key) for key in keys] != list(range(1, len(keys) + 1)):
        return False
    # Of other numbers only those of extensions, which say that there is one array and nothing after it.
    return all(numbers[key] == {"PCOUNT": 0, "GCOUNT": 1}.get(key) for key in numbers.keys() - keys)
