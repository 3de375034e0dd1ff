# SPDX-License-Identifier: Apache-2.0
"""Compressed FITS images by astropy's C code, within bounds.

The decoders of cfitsio trust a tile. Rice's looks for the next bit that is set, also beyond the tile's end: 105 bytes end the process. HCOMPRESS's
writes as many pixels as the tile says, into memory for as many as the image says. PLIO's reads from where the tile says. Each is called here with
what it needs to stop: the sizes in the tile are compared with those of the image, and bytes that end a decoder, or that it may read, lie after the
tile. Random numbers for dithered pixels are looked up by the header's seed, also before the table: seeds are checked.

HCOMPRESS keeps its position in static variables while other threads run, so one image is decoded at a time.
"""

import ctypes
import importlib
import importlib.metadata
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._core.process.fork_locks import new_lock

CHECKED_VERSION = "8.0.2"  # of astropy; 6.0 to 8.0 have the same names and the same C code
_PACKAGE = "astropy.io.fits.hdu.compressed."
MAX_PIXELS = 2**31 - 2**16  # the C code counts them in int, and runs reach 4095 beyond
_RICE = {1: "fits_rdecomp_byte", 2: "fits_rdecomp_short", 4: "fits_rdecomp"}  # by the bytes of a pixel
_RICE_BYTES = 5  # that one pixel takes where all bits are set
_HCOMPRESS_HEADER = struct.Struct(">2siiiq3B")  # the mark, rows, columns, scale, sum of all pixels, bit planes of the quadrants
MAX_PLANES = 64
_lock = new_lock()


def image_of(unit: Any) -> Any:
    """Return the data of an HDU that holds an image."""
    if not hasattr(unit, "compression_type"):
        return unit.data
    is_guarded()
    # skip
    with _lock:
        return unit.data


def is_guarded() -> bool:
    """Replace astropy's decoders; return whether that succeeded. A release with other names keeps its own."""
    try:
        module = importlib.import_module(_PACKAGE + "_tiled_compression")
        # With the GIL held, because an error sets a Python exception, which is raised here.
        library = ctypes.PyDLL(importlib.import_module(_PACKAGE + "_compression").__file__)
    except ImportError:
        return False
    algorithms, quantize = getattr(module, "ALGORITHMS", {}), getattr(module, "Quantize", None)
    if hasattr(quantize, "guarded"):
        return True
    if quantize is None or not all(hasattr(library, name) for name in _RICE.values()) or not all(name in algorithms for name in _GUARDS):
        return False
    algorithms.update({name: guard(algorithms[name], library) for name, guard in _GUARDS.items()})
    vars(module)["Quantize"] = _dither(quantize)
    return True


def _rice(astropys: Any, library: ctypes.PyDLL) -> Any:
    functions = {width: getattr(library, name) for width, name in _RICE.items()}
    for function in functions.values():
        function.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int]

    class Rice(astropys):
        def decode(self, buf: Any) -> np.ndarray:
            pixels, block, width = int(self.tilesize), int(self.blocksize), int(self.bytepix)
            if width not in functions or block < 1 or not 0 <= pixels <= MAX_PIXELS:
                raise ValueError(f"a Rice-compressed tile of {pixels} pixels of {width} bytes in blocks of {block} is not supported")
            tile = _bytes(buf)
            padded = _pad(tile, 255, _RICE_BYTES * min(block, pixels) + 64)
            values = np.zeros(pixels, f"i{width}")
            if functions[width](padded.ctypes.data, len(tile), values.ctypes.data, pixels, min(block, pixels)):
                raise ValueError("a Rice-compressed tile is damaged")
            return values

    return Rice


def _hcompress(astropys: Any, library: ctypes.PyDLL) -> Any:
    function = getattr(library, "fits_hdecompress64", None)
    # Its arguments are not those of other releases. Astropy's own call loses 8 bytes for each pixel of a damaged tile, this one at most 1/16 byte.
    known = function is not None and importlib.metadata.version("astropy") == CHECKED_VERSION
    if function is not None and known:
        number = ctypes.POINTER(ctypes.c_int)
        function.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, number, number, number, number]

    class HCompress(astropys):
        def decode(self, buf: Any) -> np.ndarray:
            rows, columns, tile = int(self.nx), int(self.ny), _bytes(buf)
            if min(rows, columns) < 1 or rows * columns > MAX_PIXELS // 8:  # an int counts the bytes of 8 for each
                raise ValueError(f"an HCOMPRESS tile of {rows} x {columns} pixels is not supported")
            if len(tile) < _HCOMPRESS_HEADER.size:
                raise ValueError(f"an HCOMPRESS tile of {len(tile)} bytes is damaged")
            _, *size, _, _, first, second, third = _HCOMPRESS_HEADER.unpack(tile[: _HCOMPRESS_HEADER.size].tobytes())
            if size != [rows, columns]:
                raise ValueError(f"an HCOMPRESS tile is damaged: it is of {size[0]} x {size[1]} pixels, and the image has {rows} x {columns} there")
            if max(first, second, third) > MAX_PLANES:
                raise ValueError(f"an HCOMPRESS tile is damaged: {max(first, second, third)} bit planes")
            # Before each bit plane stand four bits, 0 or 15, which 0101... is not wherever it begins: beyond its end, a tile has at most the rest of
            # one plane, 6 bits for each four of a quarter of the pixels and for each node of the tree above them, or the signs of all pixels.
            padded = _pad(tile, 0x55, (rows + 2) * (columns + 2) // 4 + 64)
            if function is None or not known:
                return super().decode(padded)
            output = _memory(8 * rows * columns)
            # The decoder writes the size through these pointers.
            height, width, scale, status = (ctypes.c_int(value) for value in (rows, columns, 0, 0))
            if function(padded.ctypes.data, bool(self.smooth), output.ctypes.data, len(output), width, height, scale, status):
                raise ValueError("an HCOMPRESS tile is damaged")
            # int32 results lie at the begin of memory for 8 bytes each.
            return output.view("i4")[: rows * columns].copy()

    return HCompress


def _plio(astropys: Any, _: ctypes.PyDLL) -> Any:
    class Plio(astropys):
        def decode(self, buf: Any) -> np.ndarray:
            pixels, tile = int(self.tilesize), _bytes(buf)
            if not 0 <= pixels <= MAX_PIXELS:
                raise ValueError(f"a PLIO tile of {pixels} pixels is not supported")
            # A word's value may stand in the next one, so the last word is followed by one more.
            padded = _pad(tile, 0, 16 + len(tile) % 2)
            _, header, short, low, high = (int(word) for word in padded.view(np.int16)[:5])
            first, last = (3, short) if short > 0 else (header, (high << 15) + low)
            if first < 0 or not max(first, 1) <= last <= len(tile) // 2:
                raise ValueError(f"a PLIO tile is damaged: words {first} to {last} of {len(tile) // 2}")
            return super().decode(padded)

    return Plio


def _dither(astropys: Any) -> Any:
    class Quantize(astropys):
        guarded = True

        def decode_quantized(self, buf: Any, scale: Any, zero: Any) -> Any:
            if self.dither_method != -1 and self.row < 1:
                raise ValueError(f"ZDITHER0 is damaged: the random numbers of a tile begin at {self.row}, and the first is 1")
            return super().decode_quantized(buf, scale, zero)

    return Quantize


_GUARDS: dict[str, Callable[[Any, ctypes.PyDLL], Any]] = {"RICE_1": _rice, "RICE_ONE": _rice, "HCOMPRESS_1": _hcompress, "PLIO_1": _plio}


def _bytes(buf: Any) -> np.ndarray:
    values = np.ascontiguousarray(buf)
    return values.astype(values.dtype.newbyteorder("="), copy=False).view(np.uint8).reshape(-1)


def _pad(tile: np.ndarray, value: int, count: int) -> np.ndarray:
    return np.concatenate([tile, np.full(count, value, np.uint8)])


def _memory(size: int) -> np.ndarray:
    return np.zeros(size, np.uint8)
