# SPDX-License-Identifier: Apache-2.0
"""Compressed FITS images by astropy's C code, within bounds.

Its Rice decoder looks for the next bit that is set, also behind the end of a damaged tile: 105 bytes end the process. Bytes of ones behind the
tile stop it. Its HCOMPRESS decoder keeps its position in static variables while other threads run, so that one image is decoded at a time.
"""

import ctypes
import importlib
import os
import threading
from typing import Any

import numpy as np

_MOST_BYTES = 5  # that one pixel takes where all bits are set
_FUNCTIONS = {1: "fits_rdecomp_byte", 2: "fits_rdecomp_short", 4: "fits_rdecomp"}  # by the bytes of a pixel
_lock = threading.Lock()


def image_of(unit: Any) -> Any:
    """Return the data of an HDU that holds an image."""
    if not hasattr(unit, "compression_type"):
        return unit.data
    _guard()
    with _lock:
        return unit.data


def _guard() -> None:
    """Take the place of astropy's Rice decoder; a release with other names keeps its own."""
    package = "astropy.io.fits.hdu.compressed."
    algorithms = getattr(importlib.import_module(package + "_tiled_compression"), "ALGORITHMS", {})
    rice = algorithms.get("RICE_1")
    # With the GIL held, because an error sets a Python exception, which is raised here.
    library = ctypes.PyDLL(importlib.import_module(package + "_compression").__file__)
    if rice is None or hasattr(rice, "guarded") or not all(hasattr(library, name) for name in _FUNCTIONS.values()):
        return
    functions = {width: getattr(library, name) for width, name in _FUNCTIONS.items()}
    for function in functions.values():
        function.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int]

    class Rice(rice):
        guarded = True

        def decode(self, buf: Any) -> np.ndarray:
            pixels, block, width = int(self.tilesize), int(self.blocksize), int(self.bytepix)
            if width not in functions or block < 1 or not 0 <= pixels < 2**31:
                raise ValueError(f"a Rice-compressed tile of {pixels} pixels of {width} bytes in blocks of {block} is not supported")
            tile = np.ascontiguousarray(buf).view(np.uint8).reshape(-1)
            padded = np.concatenate([tile, np.full(_MOST_BYTES * min(block, pixels) + 64, 255, np.uint8)])
            made = np.zeros(pixels, f"i{width}")
            if functions[width](padded.ctypes.data, len(tile), made.ctypes.data, pixels, min(block, pixels)):
                raise ValueError("a Rice-compressed tile is damaged")
            return made

    algorithms.update(RICE_1=Rice, RICE_ONE=Rice)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
