# SPDX-License-Identifier: Apache-2.0
"""Compressed FITS images: damaged tiles end nothing, and threads do not disturb each other."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from _forks import Forks

import torch_ndd as ndd

fits = pytest.importorskip("astropy.io.fits")

TILES = """
import numpy as np
from torch_ndd.readers import _fits_codecs
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
        made = [np.asarray(one) for (batch,) in reader.next_epoch(batch_size=8) for one in batch]
        return all(np.array_equal(one, image) for one, image in zip(made, images, strict=True))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(12)))
