# SPDX-License-Identifier: Apache-2.0
"""Decode damaged tiles of compressed FITS images in processes that may die, from and into memory between guard pages."""

import ctypes
import mmap
import random
import struct
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "helpers")]

import numpy as np  # noqa: E402
from attack import Attack, main  # noqa: E402

ROWS, COLUMNS = 24, 37
ROOM = 1 << 20  # bytes between two guard pages, more than any tile of this size needs
EXTREMES = (0, 1, -1, 2, 7, 24, 37, 255, 4095, 32767, -32768, 65536, 2**31 - 1, -(2**31))


class Guarded:
    """Memory whose end, or begin, is a page that ends the process when it is touched. Two pieces are in use at a time: what is read, and written."""

    def __init__(self) -> None:
        self._rooms = [np.frombuffer(mmap.mmap(-1, ROOM + 2 * mmap.PAGESIZE), np.uint8) for _ in range(2)]
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        for room in self._rooms:
            for at in (0, ROOM + mmap.PAGESIZE):
                if protect(ctypes.c_void_p(room.ctypes.data + at), ctypes.c_size_t(mmap.PAGESIZE), 0):
                    raise OSError(ctypes.get_errno(), "mprotect")
        self.at_the_end = True
        self._turn = 0

    def __call__(self, content: Any) -> np.ndarray:
        """Return a copy of bytes, or as many zeros."""
        content = np.zeros(content, np.uint8) if isinstance(content, int) else np.frombuffer(content, np.uint8)
        assert len(content) <= ROOM
        self._turn = 1 - self._turn
        room = self._rooms[self._turn][mmap.PAGESIZE : mmap.PAGESIZE + ROOM]
        piece = room[ROOM - len(content) :] if self.at_the_end else room[: len(content)]
        piece[:] = content
        return piece


def between_guards(memory: Guarded) -> None:
    """Let the decoders read and write there: in place of the functions around cfitsio's, which allocate and copy, calls of cfitsio's."""
    from astropy.io.fits.hdu.compressed import _codecs, _compression

    from torch_ndd.readers.fits import _codecs as _fits_codecs

    library = ctypes.PyDLL(_compression.__file__)
    # Since 8.0 it is told how large the output is, and does not write beyond it.
    has_size = "int na" in (Path(_compression.__file__).parent / "src" / "fits_hdecompress.h").read_text()

    def hcompress(tile: bytes, rows: int, columns: int, _: int, smooth: int, width: int) -> bytes:
        if width != 8:  # the only one that readers ask for
            raise ValueError(f"{width} bytes for a pixel")
        source, result = memory(tile), memory(rows * columns * width)
        height, across, scale, status = (ctypes.c_int(value) for value in (rows, columns, 0, 0))
        size = [len(result)] if has_size else []
        references = [ctypes.byref(value) for value in (across, height, scale, status)]
        if library.fits_hdecompress64(ctypes.c_void_p(source.ctypes.data), int(smooth), ctypes.c_void_p(result.ctypes.data), *size, *references):
            raise ValueError("damaged")
        return result[: rows * columns * 4].tobytes()

    def plio(tile: bytes, pixels: int) -> bytes:
        source, result = memory(tile), memory(4 * pixels)
        library.pl_l2pi(ctypes.c_void_p(source.ctypes.data), 1, ctypes.c_void_p(result.ctypes.data), pixels)
        return result.tobytes()

    _codecs.decompress_hcompress_1_c, _codecs.decompress_plio_1_c = hcompress, plio
    padded = _fits_codecs._pad
    _fits_codecs._pad = lambda *value: memory(padded(*value))
    _fits_codecs._memory = memory


def pixels(draw: random.Random) -> np.ndarray:
    """Return runs, slopes or noise: codes of all lengths."""
    size = ROWS * COLUMNS
    result = np.random.default_rng(draw.randrange(1 << 30))
    choice = draw.randrange(4)
    if choice == 0:
        return np.repeat(result.integers(0, 2**24, -(-size // 50)), 50)[:size].reshape(ROWS, COLUMNS)
    if choice == 1:
        return np.add.outer(np.arange(ROWS) * 7, np.arange(COLUMNS) * 3)
    return result.integers(0, (5, 4000)[choice - 2], (ROWS, COLUMNS))


def settings(kind: str, draw: random.Random) -> dict[str, Any]:
    if kind == "hcompress":
        return {"nx": ROWS, "ny": COLUMNS, "bytepix": 8, "scale": draw.choice((0, 1, 4)), "smooth": draw.choice((0, 1))}
    size = {"tilesize": ROWS * COLUMNS}
    return size if kind == "plio" else {**size, "blocksize": draw.choice((1, 16, 32)), "bytepix": draw.choice((1, 2, 4))}


def contradictory(kind: str, tile: bytes, values: dict[str, Any], draw: random.Random) -> tuple[bytes, dict[str, Any]]:
    """Sizes in the tile and in the image's header that do not belong to the pixels."""
    if draw.random() < 0.3:
        name = draw.choice(list(values))
        values = {**values, name: draw.choice((1, 2, 3, 8, 24, 37, 100, 0, -1))}
    data = bytearray(tile)
    for _ in range(draw.randrange(1, 3)):
        value = draw.choice(EXTREMES)
        if kind == "hcompress":
            at = draw.choice((2, 6, 10, 22, 23, 24))  # rows, columns, scale, bit planes
            data[at : at + 4] = struct.pack(">i", value) if at < 22 else data[at : at + 4]
            data[at] = data[at] if at < 22 else value & 255
        elif kind == "plio" and len(data) >= 10:
            struct.pack_into("<h", data, 2 * draw.randrange(5), (value & 0xFFFF) - (value & 0x8000) * 2)
        elif data:
            data[draw.randrange(min(8, len(data)))] = value & 255
    return bytes(data)[: draw.choice((len(data), draw.randrange(len(data) + 1)))], values


def make(kind: str, way: str, seed: int, _: Path) -> Attack:
    """Return the attack on one algorithm's decoder."""
    from _mutations import mutate
    from astropy.io.fits.hdu.compressed import _compression, _tiled_compression

    from torch_ndd.readers.fits._codecs import is_guarded

    assert is_guarded()
    codec = _tiled_compression.ALGORITHMS[{"rice": "RICE_1", "hcompress": "HCOMPRESS_1", "plio": "PLIO_1"}[kind]]
    plain = codec.__mro__[1]  # astropy's own class, which encodes
    memory = Guarded()
    between_guards(memory)

    def make_tile(draw: random.Random) -> tuple[np.ndarray, bytes, dict[str, Any]]:
        value = settings(kind, draw)
        width = value.get("bytepix", 4)
        image = pixels(draw).astype(f"i{width}")
        return image, plain(**value).encode(image if kind == "hcompress" else image.ravel()), value

    for number in range(8):  # undamaged tiles are decoded
        image, tile, source = make_tile(random.Random(number))
        back = codec(**source).decode(np.frombuffer(tile, np.uint8)).reshape(ROWS, COLUMNS)
        assert np.array_equal(back, image) or source.get("scale", 0) > 1

    def attack(number: int) -> bytes:
        draw = random.Random(f"{seed} {kind} {way} {number}")
        _, tile, value = make_tile(draw)
        if way == "mutated":
            tile = mutate(tile, number % 6, draw)
        else:
            tile, value = contradictory(kind, tile, value, draw)
        memory.at_the_end = number % 3 != 0
        try:
            codec(**value).decode(np.frombuffer(tile, np.uint8))
        except _compression.CfitsioException as error:
            raise ValueError(f"{kind}: {error}") from None
        return tile

    return attack


if __name__ == "__main__":
    main(make, __file__, dict.fromkeys(("rice", "hcompress", "plio"), ("mutated", "headers")), {"mutated": 60_000, "headers": 60_000}, 6 << 30)
