# SPDX-License-Identifier: Apache-2.0
"""Compressed FITS images: damaged tiles end nothing, and threads do not disturb each other."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from _forks import Forks

import torch_ndd as ndd
from torch_ndd.readers.fits import _codecs as _fits_codecs

fits = pytest.importorskip("astropy.io.fits")

TILES = """
import numpy as np
from torch_ndd.readers.fits import _codecs as _fits_codecs
from astropy.io.fits.hdu.compressed import _tiled_compression

_fits_codecs.is_guarded()
rice = _tiled_compression.ALGORITHMS["RICE_1"]
refused = 0
for width in (1, 2, 4):
    first = bytes(width)
    for rest in (b"\\x10", b"\\x80", b"\\xf8", b"\\x20"):  # then zeros to the end
        for length in (0, 1, 100, 4096, 1 << 20):
            for block in (1, 32, 10**6):
                tile = np.frombuffer(first + rest + bytes(length), np.uint8)
                try:
                    assert rice(blocksize=block, bytepix=width, tilesize=50000).decode(tile).shape == (50000,)
                except Exception as error:
                    assert "compress" in str(error), error
                    refused += 1
for tile, given in ((tile, dict(blocksize=0, bytepix=4)), (tile, dict(blocksize=32, bytepix=8))):
    try:
        rice(tilesize=10, **given).decode(tile)
    except ValueError:
        refused += 1
print(refused)
"""


def test_damaged_rice_tiles_end_no_process(forks: Forks) -> None:
    run = forks.run(TILES)
    assert (run.wait(), run.errors) == (0, "")
    assert int(run.output) > 100


@pytest.mark.parametrize("kind", ["RICE_1", "HCOMPRESS_1", "GZIP_1", "PLIO_1"])
def test_images_that_are_decoded_at_the_same_time(kind: str, tmp_path: Path) -> None:
    images = [np.random.default_rng(k).integers(0, 3000, (40 + k, 64)).astype(np.int16) for k in range(8)]
    for k, image in enumerate(images):
        fits.HDUList([fits.PrimaryHDU(), fits.CompImageHDU(image, compression_type=kind)]).writeto(tmp_path / f"{k}.fits")
    paths = [str(tmp_path / f"{k}.fits") for k in range(8)]

    def read(number: int) -> bool:
        reader = ndd.experimental.readers.Fits(files=paths)
        results = [np.asarray(sample) for (batch,) in reader.next_epoch(batch_size=8) for sample in batch]
        return all(np.array_equal(result, image) for result, image in zip(results, images, strict=True))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(12)))


def tiles_of(kind: str, path: Path) -> bytearray:
    """Return a file with one image of 16 x 20 pixels, in one tile."""
    image = np.arange(320, dtype=np.int16).reshape(16, 20)
    fits.HDUList([fits.PrimaryHDU(), fits.CompImageHDU(image, compression_type=kind, tile_shape=(16, 20))]).writeto(path)
    return bytearray(path.read_bytes())


@pytest.mark.parametrize(
    ("kind", "good", "bad", "message"),
    [
        # Twice as many rows: pixels are written behind the image.
        ("HCOMPRESS_1", b"\xdd\x99\x00\x00\x00\x10", b"\xdd\x99\x00\x00\x00\x20", "an HCOMPRESS tile is damaged: it is of 32 x 20 pixels"),
        # A list that is longer than the tile: words after it are read.
        ("PLIO_1", b"\x00\x00\x00\x07\xff\x9c", b"\x00\x00\x00\x07\x7f\xff", "a PLIO tile is damaged: words 3 to 32767 of"),
    ],
)
def test_sizes_in_a_tile_are_checked(kind: str, good: bytes, bad: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.fits"
    content = tiles_of(kind, path)
    at = content.rindex(good)
    content[at : at + len(bad)] = bad
    path.write_bytes(content)
    with pytest.raises(RuntimeError, match=f"damaged.fits.*{message}"):
        next(ndd.experimental.readers.Fits(files=[str(path)]).next_epoch())


@pytest.mark.parametrize("seed", [0, -5000])
def test_random_numbers_begin_in_their_table(seed: int, tmp_path: Path) -> None:
    """With other seeds astropy reads in front of it."""
    path = tmp_path / "dithered.fits"
    image = np.random.default_rng(0).normal(size=(30, 40)).astype(np.float32)
    fits.HDUList([fits.PrimaryHDU(), fits.CompImageHDU(image, quantize_method=1, dither_seed=7)]).writeto(path)
    reader = ndd.experimental.readers.Fits(files=[str(path)])
    ((result,),) = reader.next_epoch()
    assert np.abs(np.asarray(result) - image).max() < 1
    content = path.read_bytes()
    path.write_bytes(content.replace(b"ZDITHER0=                    7", f"ZDITHER0={seed:>21}".encode()))
    with pytest.raises(RuntimeError, match=f"dithered.fits.*ZDITHER0 is damaged: the random numbers of a tile begin at {seed}"):
        next(ndd.experimental.readers.Fits(files=[str(path)]).next_epoch())


def test_the_doctor_lists_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    report = ndd.doctor()
    assert report["patches"]["FITS"].startswith("active in astropy ")
    assert _fits_codecs.CHECKED_VERSION in report["patches"]["FITS"]  # with another release, look at its C code
    monkeypatch.setattr(_fits_codecs, "_PACKAGE", "astropy.of.another.release.")
    assert not _fits_codecs.is_guarded()
    report = ndd.doctor()
    assert report["patches"]["FITS"].startswith("not active in astropy ")
    (item,) = (value for value in report["missing"] if value.what == "a known astropy")
    assert item.why.endswith("runs as it is: a damaged tile of a compressed image can end the process")
    assert item.remedy == f"pip install astropy=={_fits_codecs.CHECKED_VERSION}"


LOSSES = """
import sys
from pathlib import Path
import numpy as np
from torch_ndd.readers.fits import _codecs as _fits_codecs
from astropy.io.fits.hdu.compressed import _tiled_compression

_fits_codecs.is_guarded()
codec = _tiled_compression.ALGORITHMS["HCOMPRESS_1"](scale=0, smooth=0, bytepix=8, nx=256, ny=256)
tile = codec.encode(np.random.default_rng(0).integers(0, 4000, (256, 256)))
half = np.frombuffer(tile[: len(tile) // 2], np.uint8)
for number in range(60):
    if number == 20:
        before = int(Path("/proc/self/statm").read_text().split()[1])
    try:
        codec.decode(half)
    except Exception as error:
        assert "bad format code" in str(error), error
    else:
        sys.exit("decoded")
print((int(Path("/proc/self/statm").read_text().split()[1]) - before) * 4)
"""


def test_a_damaged_tile_loses_little_memory(forks: Forks) -> None:
    run = forks.run(LOSSES)
    assert (run.wait(), run.errors) == (0, "")
    assert int(run.output) < 2000  # kB: astropy's own call loses 40 times 512
