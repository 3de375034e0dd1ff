# SPDX-License-Identifier: Apache-2.0
"""The size that an HEVC stream promises: ISO/IEC 14496-15 (the configuration of a decoder), 23008-2 (the sequence parameter set)."""

_SEQUENCE_PARAMETERS = 33
_MAX_UNITS = 256  # of a configuration; usual ones have 3
_MAX_SETS = 16  # of sequence parameters, which the standard numbers from 0 to 15
_MAX_BYTES = 4096  # of a sequence parameter set; usual ones have 40
_MAX_ZEROS = 32  # before a number
_MAX_PADDING = 64  # a decoder's picture consists of whole blocks
_SUBSAMPLING = {0: (1, 1), 1: (2, 2), 2: (1, 2), 3: (1, 1)}  # rows and columns of an element of chroma, by format


def read_size(configuration: memoryview) -> tuple[int, int]:
    """Return the height and width of the decoded image.

    Raise ValueError if they are missing, differ between sequences, or are those of a small part of what a decoder allocates.
    """
    sizes = {_read_size(unit) for unit in _list_units(configuration)}
    if len(sizes) != 1:
        raise ValueError("its HEVC header gives several sizes" if sizes else "its HEVC header gives no size")
    return sizes.pop()


def _list_units(configuration: memoryview) -> list[memoryview]:
    """Return the sequence parameter sets of a configuration."""
    units, at, left = [], 23, _MAX_UNITS
    if len(configuration) < at:
        raise ValueError("its HEVC header is too short")
    for _ in range(configuration[22]):
        kind, count = int.from_bytes(configuration[at : at + 1], "big") & 0x3F, int.from_bytes(configuration[at + 1 : at + 3], "big")
        at += 3
        left -= count
        if left < 0:
            raise ValueError(f"its HEVC header has more than {_MAX_UNITS} units")
        for _ in range(count):
            length = int.from_bytes(configuration[at : at + 2], "big")
            at += 2 + length
            if at > len(configuration):
                raise ValueError("its HEVC header is too short")
            unit = configuration[at - length : at]
            # The decoder goes by the type in the unit, whatever the list says.
            if kind == _SEQUENCE_PARAMETERS or (length and unit[0] >> 1 & 0x3F == _SEQUENCE_PARAMETERS):
                units.append(unit)
    if len(units) > _MAX_SETS:
        raise ValueError(f"its HEVC header has more than {_MAX_SETS} sequences")
    return units


class _Bits:
    """Reads the bits of a unit, without the bytes that keep start codes out of it."""

    def __init__(self, unit: memoryview) -> None:
        data = bytes(unit[2:_MAX_BYTES]).replace(b"\0\0\3", b"\0\0")
        self._value, self._left = int.from_bytes(data, "big"), 8 * len(data)

    def number(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise ValueError("its HEVC header is too short")
        return self._value >> self._left & ((1 << count) - 1)

    def golomb(self) -> int:
        """Return a number in the exponential code of Golomb."""
        zeros = 0
        while not self.number(1):
            zeros += 1
            if zeros > _MAX_ZEROS:
                raise ValueError("its HEVC header is damaged")
        return (1 << zeros) - 1 + self.number(zeros)


def _read_size(unit: memoryview) -> tuple[int, int]:
    bits = _Bits(unit)
    bits.number(4)  # the video's parameters
    layers = bits.number(3)  # besides the first
    bits.number(1 + 88 + 8)  # nesting, profile, level
    present = [(bits.number(1), bits.number(1)) for _ in range(layers)]
    if layers:
        bits.number(2 * (8 - layers))
    for has_profile, has_level in present:
        bits.number(88 * has_profile + 8 * has_level)
    bits.golomb()  # number of the set
    chroma = bits.golomb()
    if chroma == 3:
        bits.number(1)
    width, height = bits.golomb(), bits.golomb()
    if not bits.number(1):
        return height, width
    left, right, top, bottom = (bits.golomb() for _ in range(4))
    rows, columns = _SUBSAMPLING.get(chroma, (1, 1))
    padding = rows * (top + bottom), columns * (left + right)
    if max(padding) > _MAX_PADDING:
        raise ValueError(f"its HEVC header cuts {padding} pixels off")
    return height - padding[0], width - padding[1]
