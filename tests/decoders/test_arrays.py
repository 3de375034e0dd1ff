# SPDX-License-Identifier: Apache-2.0
"""decoders.numpy and decoders.inflate."""

import io
import sys
import zlib
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from _cases import Case, Each, Inputs, Samples

import torch_ndd as ndd

NUMERIC = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")


def npy(array: np.ndarray, version: tuple[int, int] | None = None) -> np.ndarray:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return np.frombuffer(file.getvalue(), np.uint8)


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 200, shape).astype(dtype)


def npy_files(dtype: str) -> Inputs:
    def make(ragged: bool) -> tuple[Samples, ...]:
        return ([npy(numbers((4 + i * ragged, 5), dtype, i)) for i in range(3)],)

    return make


def zlib_files(ragged: bool) -> tuple[Samples, ...]:
    """Two chunks each, and a tail that belongs to none."""
    packed = [b"".join(zlib.compress(numbers((2, 3), "uint8", 2 * i + k).tobytes()) for k in range(2)) + bytes(i * ragged) for i in range(3)]
    return ([np.frombuffer(value, np.uint8) for value in packed],)


CHUNK = len(zlib.compress(bytes([0, 1, 2, 3, 4, 5])))


def inflate(file: np.ndarray, chunk_offsets: list[int], shape: list[int], **_: object) -> np.ndarray:
    return np.stack([np.frombuffer(zlib.decompressobj().decompress(file.tobytes()[at:]), np.uint8).reshape(shape) for at in chunk_offsets])


def no_graph(name: str) -> str:
    return f"{name}: the result's type and dimensions depend on the data"


CASES = [
    Case("decoders.numpy", "float32", npy_files("float32"), reference=lambda f: np.load(io.BytesIO(f.tobytes())), uncompiled=no_graph("numpy")),
    Case(
        "decoders.numpy",
        "to uint8",
        npy_files("float64"),
        {"dtype": "u8"},
        reference=lambda f, dtype: np.floor(np.load(io.BytesIO(f.tobytes())) + 0.5).astype(np.uint8),
        uncompiled=no_graph("numpy"),
    ),
    Case(
        "decoders.inflate",
        "zlib",
        zlib_files,
        {
            "algorithm": "Zlib",
            "shape": Each([[2, 3], [6, 1], [1, 6]]),
            "chunk_sizes": Each([[CHUNK, CHUNK]] * 3),
            "chunk_offsets": Each([[0, CHUNK], [CHUNK, 0], [0, 0]]),
        },
        reference=inflate,
        out_layout=None,
        uncompiled="it runs in Python",
    ),
]


def decode(file: np.ndarray, **options: object) -> np.ndarray:
    return np.asarray(ndd.decoders.numpy(ndd.tensor(file), **options))


@pytest.mark.parametrize("dtype", NUMERIC)
def test_npy_equals_numpy(dtype: str) -> None:
    for shape in ((), (1,), (7,), (0,), (3, 0, 2), (2, 3), (4, 5, 6), (2, 3, 2, 3, 2)):
        array = numbers(shape, dtype)
        for value in (array, np.asfortranarray(array), array.astype(array.dtype.newbyteorder(">"))):
            for version in ((1, 0), (2, 0), (3, 0)):
                result = decode(npy(value, version))
                assert (result.dtype, result.shape) == (np.dtype(dtype), value.shape)  # a scalar in Fortran order has one axis
                assert np.array_equal(result, value)


@pytest.mark.parametrize("wanted", NUMERIC)
def test_npy_converts_as_cast(wanted: str) -> None:
    for dtype in NUMERIC:
        array = (
            numbers((3, 5), dtype)
            if dtype == "bool" or dtype.startswith("u")
            else (numbers((3, 5), "float64") * 3.3 - 200).clip(-100, 100).astype(dtype)
        )
        expected = np.asarray(ndd.cast(ndd.tensor(array), dtype=getattr(ndd, wanted)))
        for value in (array, np.asfortranarray(array)):
            assert np.array_equal(decode(npy(value), dtype=getattr(ndd, wanted)), expected)


def test_npy_batches() -> None:
    arrays = [numbers((2 + i, 3), "float32", i) for i in range(4)]
    batch = ndd.decoders.numpy(ndd.batch([npy(array) for array in arrays]))
    assert (batch.layout, batch.shape) == (None, [(2, 3), (3, 3), (4, 3), (5, 3)])
    assert all(np.array_equal(np.asarray(sample), other) for sample, other in zip(batch, arrays, strict=True))
    mixed = ndd.batch([npy(arrays[0]), npy(arrays[1].astype(np.int64))])
    with pytest.raises(RuntimeError, match=r"decoders\.numpy: All samples must have the same data type, got int64, float32"):
        ndd.decoders.numpy(mixed)
    assert ndd.decoders.numpy(mixed, dtype=ndd.float16).dtype == ndd.float16
    with pytest.raises(RuntimeError, match="same number of dimensions"):
        ndd.decoders.numpy(ndd.batch([npy(arrays[0]), npy(arrays[1][0])]))
    assert ndd.decoders.numpy(ndd.batch([npy(arrays[0])]), dtype=ndd.bfloat16).torch().dtype == torch.bfloat16


def test_npy_bools_of_other_bytes_are_true() -> None:
    file = npy(np.array([True, False, True])).copy()
    file[-1] = 7
    assert ndd.decoders.numpy(file).torch().to(torch.int32).tolist() == [1, 0, 1]


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_may_be_followed_by_other_bytes(order: Literal["C", "F"], tmp_path: Path) -> None:
    array = np.asarray(numbers((3, 4), "float32"), order=order)
    for rest in (npy(array + 1), npy(np.zeros(3, np.int64)), np.zeros(1, np.uint8)):
        file = np.concatenate([npy(array), rest])
        (tmp_path / "a.npy").write_bytes(file.tobytes())
        assert np.array_equal(np.load(tmp_path / "a.npy"), array)
        assert np.array_equal(np.asarray(ndd.decoders.numpy(file)), array)
        assert np.array_equal(np.asarray(ndd.decoders.numpy(tmp_path / "a.npy")), array)
        assert np.array_equal(np.asarray(next(ndd.readers.Numpy(files=[tmp_path / "a.npy"]).next_epoch())[0]), array)


def test_npy_refuses() -> None:
    good = npy(numbers((3, 4), "float32"))
    wide = npy(numbers((1,) * 33, "float32")) if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else None
    header = good.tobytes().replace(b"(3, 4)", b"(9, 4)")
    for bad, reason in (
        (good[:0], "empty"),
        (good[:50], "ends too early"),
        (good[:-1], "promises 48 bytes of data, but there are 47"),
        (np.zeros(100, np.uint8), "not an .npy file"),
        (np.frombuffer(header, np.uint8), "promises 144"),
        (npy(np.zeros(3, np.complex64)), "type '<c8'"),
        (npy(np.array(["a"])), "type '<U1'"),
        (npy(np.zeros(2, [("a", "i4")])), "structures"),
        (wide, "33 dimensions"),
    ):
        if bad is not None:
            with pytest.raises(RuntimeError, match=rf"decoders\.numpy: sample 1: .*{reason}"):
                ndd.decoders.numpy(ndd.batch([good, bad]))
    with pytest.raises(RuntimeError, match=r"decoders\.numpy: encoded arrays must be uint8"):
        ndd.decoders.numpy(np.zeros((2, 2), np.uint8))


def deflate(data: bytes, bits: int) -> bytes:
    packer = zlib.compressobj(wbits=bits)
    return packer.compress(data) + packer.flush()


def lz4(data: bytes) -> bytes:
    return pytest.importorskip("lz4.block").compress(data, store_size=False)


PACKERS = {
    "LZ4": lz4,
    "Deflate": lambda data: deflate(data, -15),
    "Zlib": zlib.compress,
    "Gzip": lambda data: deflate(data, 31),
    "Zstd": lambda data: pytest.importorskip("pyarrow").Codec("zstd").compress(data, asbytes=True),
}


@pytest.mark.parametrize("algorithm", PACKERS)
@pytest.mark.parametrize("dtype", NUMERIC)
def test_inflate_decompresses_every_algorithm(algorithm: str, dtype: str) -> None:
    array = numbers((20, 30), dtype)
    packed = np.frombuffer(PACKERS[algorithm](array.tobytes()), np.uint8)
    result = ndd.decoders.inflate(packed, algorithm=algorithm, shape=[20, 30], dtype=getattr(ndd, dtype), layout="HW")
    assert (result.layout, np.asarray(result).dtype) == ("HW", np.dtype(dtype))
    assert np.array_equal(np.asarray(result), array)


@pytest.mark.parametrize("algorithm", PACKERS)
def test_inflate_chunks(algorithm: str) -> None:
    rng = np.random.default_rng(0)
    videos = [rng.integers(0, 9, (2 + i, 60 + i, 90, 3), dtype=np.uint8) for i in range(4)]
    packed = [[PACKERS[algorithm](frame.tobytes()) for frame in video] for video in videos]
    joined = ndd.batch([np.frombuffer(b"".join(frames), np.uint8) for frames in packed])
    sizes = ndd.batch([[len(frame) for frame in frames] for frames in packed])
    offsets = ndd.batch([np.cumsum([0, *map(len, frames[:-1])]).tolist() for frames in packed])
    shapes = ndd.batch([list(video.shape[1:]) for video in videos])
    options = {"algorithm": algorithm, "shape": shapes, "layout": "HWC"}
    for value in ({"chunk_sizes": sizes}, {"chunk_offsets": offsets}, {"chunk_sizes": sizes, "chunk_offsets": offsets}):
        result = ndd.decoders.inflate(joined, **value, **options)
        assert (result.layout, result.shape) == ("FHWC", [video.shape for video in videos])
        assert all(np.array_equal(np.asarray(item), other) for item, other in zip(result, videos, strict=True))
    assert ndd.decoders.inflate(joined, chunk_sizes=sizes, **options, sequence_axis_name="D").layout == "DHWC"
    plain = ndd.decoders.inflate(joined.select(0), algorithm=algorithm, chunk_sizes=[len(packed[0][0])], shape=60 * 90 * 3)
    assert (plain.layout, plain.shape) == (None, (1, 60 * 90 * 3))


def test_inflate_of_no_samples_keeps_the_layout() -> None:
    nothing = ndd.batch([torch.zeros(4, dtype=torch.uint8)]).select([])
    result = ndd.decoders.inflate(nothing, algorithm="Zlib", shape=[2, 2], layout="HW")
    assert (result.batch_size, result.layout, result.ndim) == (0, "HW", 2)


def test_inflate_refuses() -> None:
    packed = np.frombuffer(zlib.compress(bytes(100)), np.uint8)
    for options, reason in (
        ({}, "'shape' of a decompressed chunk is needed"),
        ({"shape": [99]}, "shape and dtype give 99"),
        ({"shape": [101]}, "has 100 bytes, but shape and dtype give 101"),
        ({"shape": [-1]}, "must not be negative"),
        ({"shape": [100], "chunk_offsets": [0, 500]}, "chunk 0 is bytes"),
        ({"shape": [100], "chunk_sizes": [3, 500]}, "chunk 1 is bytes"),
        ({"shape": [100], "chunk_sizes": [3, 4], "chunk_offsets": [0]}, "1 chunk_offsets but 2 chunk_sizes"),
        ({"shape": [100], "chunk_sizes": [5]}, "sample 0, chunk 0: the data are damaged"),
    ):
        with pytest.raises(RuntimeError, match=rf"decoders\.inflate: .*{reason}"):
            ndd.decoders.inflate(packed, algorithm="Zlib", **options)
    with pytest.raises(ValueError, match=r"decoders\.inflate: algorithm must be one of LZ4, .*got \'zip\'"):
        ndd.decoders.inflate(packed, algorithm="zip", shape=[100])
    with pytest.raises(ValueError, match="layout"):
        ndd.decoders.inflate(packed, algorithm="Zlib", shape=[100], layout="HW")
    for bits, name in ((-15, "Deflate"), (31, "Gzip")):
        whole = deflate(np.random.default_rng(0).bytes(1000), bits)
        with pytest.raises(RuntimeError, match="damaged"):
            ndd.decoders.inflate(np.frombuffer(whole[:500], np.uint8), algorithm=name, shape=[1000])


def test_inflate_does_not_write_more_than_was_asked_for() -> None:
    bomb = np.frombuffer(zlib.compress(bytes(100_000_000)), np.uint8)
    with pytest.raises(RuntimeError, match="shape and dtype give 10"):
        ndd.decoders.inflate(bomb, algorithm="Zlib", shape=[10])
    for algorithm in ("LZ4", "Zstd"):
        block = np.frombuffer(PACKERS[algorithm](bytes(100_000_000)), np.uint8)
        with pytest.raises(RuntimeError, match="damaged"):
            ndd.decoders.inflate(block, algorithm=algorithm, shape=[10])


@pytest.mark.parametrize("size", [99, 101])
def test_inflate_of_a_frame_of_another_size_names_the_expected_one(size: int) -> None:
    packed = np.frombuffer(PACKERS["Zstd"](bytes(100)), np.uint8)
    with pytest.raises(RuntimeError, match=f"shape and dtype give {size} bytes"):
        ndd.decoders.inflate(packed, algorithm="zstd", shape=[size])


def test_inflate_names_the_package_for_zstd(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = np.frombuffer(PACKERS["Zstd"](bytes(100)), np.uint8)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RuntimeError, match=r"decoders\.inflate: the package pyarrow is not installed: pip install torch_ndd\[parquet\]"):
        ndd.decoders.inflate(packed, algorithm="Zstd", shape=[100])
