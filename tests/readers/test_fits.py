# SPDX-License-Identifier: Apache-2.0
import gzip
import os
import pickle
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from _forks import run_in_child

import torch_ndd as ndd
from torch_ndd.readers.fits import _fork_gate, _image
from torch_ndd.testing import assert_resumable

fits = pytest.importorskip("astropy.io.fits")
EXTRA = Path(os.environ.get("DALI_EXTRA_PATH", "/work/shared/dali_extra")) / "db/single/fits"


def new(**options: Any) -> Any:
    return ndd.experimental.readers.Fits(**options)


def write(path: Path, *images: np.ndarray) -> Path:
    fits.HDUList([fits.PrimaryHDU(), *map(fits.ImageHDU, images)]).writeto(path)
    return path


def add_card(content: bytes, card: bytes) -> bytes:
    """Put a card in place of the END of the second header, which moves to the next one."""
    at = content.index(b"END ".ljust(80), content.index(b"XTENSION"))
    return content[:at] + card.ljust(80) + b"END".ljust(80) + content[at + 160 :]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [write(tmp_path / f"{i}.fits", np.full((2 + i % 3, 4), i, np.int16), np.full((2, 2), i / 2, np.float32)) for i in range(7)]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64", "float32", "float64", "uint16", "uint32", "int8"])
def test_types_are_kept(tmp_path: Path, dtype: str) -> None:
    array = (np.arange(24).reshape(2, 3, 4) + 1).astype(dtype)
    ((image,),) = new(files=[write(tmp_path / "a.fits", array)]).next_epoch()
    assert np.asarray(image).dtype == dtype
    assert np.array_equal(np.asarray(image), array)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64", "float32", "float64"])
def test_plain_images_need_no_astropy(tmp_path: Path, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [(np.arange(count) - 3).astype(dtype).reshape(shape) for count, shape in ((24, (2, 3, 4)), (5, (5,)), (6000, (60, 100)))]
    path = write(tmp_path / "a.fits", *arrays)
    fits.HDUList([fits.PrimaryHDU(arrays[2]), fits.ImageHDU(arrays[0])]).writeto(tmp_path / "b.fits")
    monkeypatch.setattr("torch_ndd.readers.fits._image", None)
    (images,) = new(files=[path], hdu_indices=[4, 2, 3]).next_epoch()
    (others,) = new(files=[tmp_path / "b.fits"], hdu_indices=[1, 2]).next_epoch()
    for image, expected in zip([*images, *others], [arrays[2], *arrays[:2], arrays[2], arrays[0]], strict=True):
        assert np.asarray(image).dtype == dtype
        assert np.array_equal(np.asarray(image), expected)
        assert image.torch().is_contiguous()


@pytest.mark.parametrize(
    "card",
    [
        b"BSCALE  =                  2.0",
        b"bscale  =                  2.0",
        b" BSCALE =                  2.0",
        b"BZERO   =                   10",
        b"HIERARCH BZERO = 10",
        b"BLANK   =                    7",
        b"GROUPS  =                    T",
        b"ZNAXIS  =                    2",
        b"OBJECT  = 'END     '",
        b"COMMENT BSCALE  =              2.0",
    ],
)
def test_a_card_means_what_it_means_to_astropy(tmp_path: Path, card: bytes) -> None:
    path = write(tmp_path / "a.fits", np.arange(12, dtype=np.int16).reshape(3, 4))
    path.write_bytes(add_card(path.read_bytes(), card))
    with fits.open(path) as file:
        expected = file[1].data
        ((image,),) = new(files=[path]).next_epoch()
        assert np.asarray(image).dtype == expected.dtype.newbyteorder("=")
        assert np.array_equal(np.asarray(image), expected, equal_nan=True)


@pytest.mark.parametrize(
    ("old", "new_card"),
    [
        (b"SIMPLE  =                    T", b"SIMPLE  =                    F"),
        (b"XTENSION= 'IMAGE   '", b"XTENSION= 'IUEIMAGE'"),
        (b"XTENSION= 'IMAGE   '", b"XTENSION= 'FOREIGN '"),
        (b"NAXIS1  =                    4", b"NAXIS1  = 4.0"),
        (b"NAXIS1  =                    4", b"NAXIS1  =                    0"),
        (b"GCOUNT  =                    1", b"GCOUNT  =                    2"),
        (b"BITPIX  =                   16", b"BITPIX  =                   24"),
    ],
)
def test_headers_that_are_not_plain_are_astropys(tmp_path: Path, old: bytes, new_card: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    monkeypatch.setattr("torch_ndd.readers.fits._image", lambda file, part, dtype: opened.append(part) or torch.zeros(1))
    path = write(tmp_path / "a.fits", np.arange(12, dtype=np.int16).reshape(3, 4))
    content = path.read_bytes()
    at = content.rindex(old)
    path.write_bytes(content[:at] + new_card.ljust(80) + content[at + 80 :])
    assert len(list(new(files=[path]).next_epoch())) == 1
    assert set(opened) == {2}  # also for what is read ahead


def test_parts_of_images(files: list[Path]) -> None:
    reader = new(files=files, hdu_indices=[3, 2])
    result = next(iter(reader.next_epoch(batch_size=7)))
    assert [item.shape[4] for item in result] == [(2, 2), (3, 4)]
    assert [float(item.torch().mean()) for item in result[0]] == [i / 2 for i in range(7)]
    assert bytes(ndd.get_property(result[0].select(3), key="source_info").torch()) == bytes(files[3])


def test_dtypes_are_converted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.fits", np.array([1.5, -7.0, 300.0], np.float32), np.array([1, 2], np.int16))
    for dtypes, expected in (([ndd.uint8, ndd.float32], [[2, 0, 255], [1.0, 2.0]]), (ndd.int64, [[2, -7, 300], [1, 2]])):
        (output,) = new(files=path, hdu_indices=[2, 3], dtypes=dtypes).next_epoch()
        assert [result.torch().tolist() for result in output] == expected


def test_scaled_and_compressed(tmp_path: Path) -> None:
    scaled = fits.ImageHDU(np.arange(6, dtype=np.int16))
    scaled.header["BSCALE"], scaled.header["BZERO"] = 2.0, 10.0
    packed = fits.CompImageHDU(np.arange(3000, dtype=np.int32).reshape(50, 60), compression_type="RICE_1")
    fits.HDUList([fits.PrimaryHDU(), scaled, packed]).writeto(tmp_path / "a.fits")
    ((first, second),) = new(files=[tmp_path / "a.fits"], hdu_indices=[2, 3]).next_epoch()
    assert first.torch().tolist() == [10.0, 12.0, 14.0, 16.0, 18.0, 20.0]
    assert np.array_equal(second.torch(), np.arange(3000).reshape(50, 60))


def test_where_files_are(files: list[Path], tmp_path: Path) -> None:
    def values(reader: Any) -> list[int]:
        return [int(image.torch()[0, 0]) for (image,) in reader.next_epoch()]

    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub" / "8.fits", np.full((2, 4), 8, np.int16))
    assert values(new(file_root=tmp_path)) == [*range(7), 8]
    assert values(new(file_root=tmp_path, file_filter="[23].fits")) == [2, 3]
    (tmp_path / "list.txt").write_text("5.fits\nsub/8.fits\n")
    assert values(new(file_list=tmp_path / "list.txt")) == [5, 8]
    assert values(new(file_root=tmp_path, files=["4.fits"])) == [4]


def test_resumes_anywhere(files: list[Path]) -> None:
    assert_resumable(lambda rank, world, size: new(max_batch_size=size, files=files, shard_id=rank, num_shards=world, random_shuffle=True))
    assert len(list(pickle.loads(pickle.dumps(new(files=files))).next_epoch())) == 7


def test_bad_files(files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "bad.fits").write_bytes(b"SIMPLE  = no")
    fits.PrimaryHDU(np.zeros((2, 2))).writeto(tmp_path / "one.fits")
    table = fits.BinTableHDU.from_columns([fits.Column("a", "J", array=np.arange(3))])
    fits.HDUList([fits.PrimaryHDU(), table]).writeto(tmp_path / "table.fits")
    reasons = {
        "bad.fits": "",
        "one.fits": "HDU 2 does not exist; the file has 1",
        "table.fits": "HDU 2 holds no image",
        "missing.fits": "No such file",
    }
    for name, reason in reasons.items():
        with pytest.raises(RuntimeError, match=rf"experimental\.readers\.Fits: .*{name}.*{reason}"):
            list(new(files=[files[0], tmp_path / name]).next_epoch(batch_size=2))
    reader = new(files=[tmp_path / "bad.fits", *files], on_error="skip")
    assert len(list(reader.next_epoch(batch_size=4))) == 2
    assert reader.errors[0].source.endswith("bad.fits")


def test_bad_arguments_are_rejected(files: list[Path]) -> None:
    for options, reason in (
        ({}, "file_root is required"),
        ({"files": files, "file_list": "x"}, "not both"),
        ({"files": files, "hdu_indices": [0]}, "numbers from 1"),
        ({"files": files, "hdu_indices": [2, 3], "dtypes": [ndd.uint8] * 3}, "3 dtypes for 2 hdu_indices"),
    ):
        with pytest.raises(RuntimeError, match=reason):
            list(new(**options).next_epoch())


@pytest.mark.skipif(not EXTRA.exists(), reason="DALI_EXTRA_PATH holds no FITS files")
def test_dali_extra() -> None:
    for path, part in ((EXTRA / "compressed/cat-3504008_640_red_rice.fits", 2), (EXTRA / "int64/cat-3113513_640_red.fits", 1)):
        ((image,),) = new(files=[path], hdu_indices=part).next_epoch()
        with fits.open(path) as file:
            assert np.array_equal(np.asarray(image), file[part - 1].data)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("TFIELDS", 10**12, "HDU 2 is damaged: TFIELDS is 1000000000000"),
        ("NAXIS", 10**9, "HDU 2 is damaged: NAXIS is"),
        ("NAXIS1", 10**15, r"HDU 2 has \d+ bytes, but only \d+ remain in the file"),
        ("PCOUNT", 10**15, r"HDU 2 has \d+ bytes, but only \d+ remain in the file"),
        ("ZNAXIS1", 10**9, r"HDU 2 expands to \d+ pixels, which a file of \d+ bytes cannot hold"),
        ("ZNAXIS1", -5, "HDU 2 is damaged: ZNAXIS1 is -5"),
    ],
)
def test_headers_that_cannot_be(tmp_path: Path, key: str, value: int, text: str) -> None:
    path = tmp_path / "a.fits"
    fits.HDUList([fits.PrimaryHDU(), fits.CompImageHDU(np.arange(2400, dtype=np.int16).reshape(40, 60))]).writeto(path)
    data = path.read_bytes()
    begin = data.index(b"XTENSION")
    at = data.index(f"{key:<8}=".encode(), begin)
    path.write_bytes(data[:at] + f"{key:<8}= {value:>20}".ljust(80).encode() + data[at + 80 :])
    with pytest.raises(RuntimeError, match=text):
        next(ndd.experimental.readers.Fits(files=[str(path)], hdu_indices=[2]).next_epoch())


def test_only_the_hdus_asked_for_are_read() -> None:
    """A file that another process rewrites may have no last HDU."""

    class Endless:
        def __len__(self) -> int:
            raise AssertionError("all HDUs were asked for")

        def __getitem__(self, number: int) -> SimpleNamespace:
            return SimpleNamespace(is_image=True, data=np.full((2, 3), number, np.float32))

    assert _image(Endless(), 2, None).tolist() == [[1.0] * 3] * 2


def test_a_fork_waits_for_threads_in_astropy(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A child gets the locks of astropy's lazy properties as they are, and nothing there would release them."""
    library, entered, read = threading.RLock(), threading.Event(), []

    def slow(file: Any, part: int, dtype: Any) -> Any:
        with library:
            entered.set()
            threading.Event().wait(0.1)
            return _image(file, part, dtype)

    monkeypatch.setattr("torch_ndd.readers.fits._image", slow)
    for path in files[:3]:
        path.write_bytes(add_card(path.read_bytes(), b"BSCALE  =                  2.0"))  # plain images are read without astropy
    reader = new(files=files[:3])
    thread = threading.Thread(target=lambda: read.extend(reader.next_epoch()))
    thread.start()
    assert entered.wait(10)
    assert run_in_child(lambda: library.acquire(timeout=10)) == 0
    thread.join(20)
    assert len(read) == 3  # what waited for the fork goes on


def test_a_fork_waits_for_a_gate_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fork_gate, "_LONGEST", 0.05)
    gate = _fork_gate.ForkGate()
    with gate:  # the forking thread itself
        child = os.fork()
        if child == 0:
            with gate:
                os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with gate:
        pass


def test_files_compressed_by_gzip(tmp_path: Path, files: list[Path]) -> None:
    folder = tmp_path / "packed"
    folder.mkdir()
    for k, path in enumerate(files):
        content = path.read_bytes()
        whole = gzip.compress(content) if k % 2 else gzip.compress(content[:3000]) + gzip.compress(content[3000:]) + bytes(5)
        (folder / f"{path.name}.gz").write_bytes(whole)
    expected = [batch[0].torch().tolist() for batch in new(files=files).next_epoch()]
    assert [batch[0].torch().tolist() for batch in new(file_root=folder).next_epoch()] == expected
    cut = (folder / "1.fits.gz").read_bytes()[:-20]
    (tmp_path / "cut.gz").write_bytes(cut)
    with pytest.raises(RuntimeError, match=r"cut\.gz\): its gzip data are damaged: they end too early"):
        list(new(files=[tmp_path / "cut.gz"]).next_epoch())
    with pytest.raises(RuntimeError, match=r"decompressed file has at least 1001 bytes, more than max_sample_bytes=1000"):
        list(new(file_root=folder, max_sample_bytes=1000).next_epoch())


def test_max_sample_bytes_bounds_an_image(tmp_path: Path) -> None:
    image = np.arange(100, dtype=np.int16).reshape(10, 10)
    packed = fits.CompImageHDU(np.zeros((300, 300), np.int16))
    fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(image), packed]).writeto(tmp_path / "a.fits")
    for hdu, size in ((2, 200), (3, 180_000)):
        assert list(new(files=[tmp_path / "a.fits"], hdu_indices=hdu, max_sample_bytes=size).next_epoch())
        with pytest.raises(RuntimeError, match=rf"the image of HDU {hdu} has {size} bytes, more than max_sample_bytes={size - 1}"):
            list(new(files=[tmp_path / "a.fits"], hdu_indices=hdu, max_sample_bytes=size - 1).next_epoch())
