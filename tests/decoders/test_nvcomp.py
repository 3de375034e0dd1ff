# SPDX-License-Identifier: Apache-2.0
"""decoders.inflate on a GPU: a library compiled by the tests stands for nvCOMP, and memory of the host for the GPU's."""

import ctypes
import gzip
import importlib
import random
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _fake_libraries import NVCOMP, compile_library

import torch_ndd as ndd
from torch_ndd.decoders import _gpu_engines, _library, _nvcomp
from torch_ndd.decoders._gpu_engines import MissingLibraryError, WrongLibraryError

FILE = "libnvcomp_of_a_test.so"
SUCCESS, CANNOT_DECOMPRESS = 0, 12


def _raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush()


def _lz4(data: bytes) -> bytes:
    return pytest.importorskip("lz4.block").compress(data, store_size=False)


def _zstd(data: bytes) -> bytes:
    return pytest.importorskip("pyarrow").Codec("zstd").compress(data, asbytes=True)


COMPRESS: dict[str, Callable[[bytes], bytes]] = {"LZ4": _lz4, "Deflate": _raw_deflate, "Gzip": gzip.compress, "Zstd": _zstd}
# 32 bytes "1234...", with the checksum that the command-line program writes by default.
ZSTD_WITH_CHECKSUM = b"(\xb5/\xfd$ U\x00\x00 1234\x01\x003\x8e\x08b\xee\xfd$"


def _decompress(algorithm: int, data: bytes, capacity: int) -> bytes:
    if algorithm == 0:
        return importlib.import_module("lz4.block").decompress(data, uncompressed_size=capacity)
    if algorithm == 3:
        return importlib.import_module("pyarrow").Codec("zstd").decompress(data, capacity, asbytes=True)
    return zlib.decompress(data, (-15, 31)[algorithm - 1], capacity)


class FakeNvcomp:
    """Decompresses with the CPU's libraries; ``change(data)`` makes it wrong: it returns the status, the bytes, and the size that is reported."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.change: Callable[[bytes], tuple[int, bytes, int]] = lambda data: (SUCCESS, data, len(data))
        self.chunks = 0
        prototype = ctypes.CFUNCTYPE(
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.POINTER(ctypes.c_size_t),
        )

        def answer(algorithm: int, data: int, length: int, out: int, capacity: int, written: Any) -> int:
            self.chunks += 1
            assert data % 4 == 0  # Deflate demands it
            try:
                result = _decompress(algorithm, ctypes.string_at(data, length), capacity)
            except Exception:
                return CANNOT_DECOMPRESS
            status, result, size = self.change(result)
            ctypes.memmove(out, result, min(len(result), capacity))
            written[0] = size
            return status

        self._answer = prototype(answer)
        self.library.fake_nvcomp_answer(self._answer)


@pytest.fixture(scope="module")
def library_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("nvcomp") / FILE, NVCOMP, VERSION=5300, STATUS=0, TEMPORARY_STATUS=0)


@pytest.fixture
def nvcomp(library_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvcomp]:
    fake = FakeNvcomp(library_path)
    inflate = sys.modules["torch_ndd.decoders.inflate"]
    usable = lambda device, algorithm: fake.library if str(algorithm).lower() in _nvcomp.ALGORITHMS else None  # noqa: E731
    monkeypatch.setattr(inflate, "_nvcomp_for", usable)
    yield fake
    fake.library.fake_nvcomp_answer(None)


def join(parts: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(parts), np.uint8)


def sample(seed: int, size: int) -> bytes:
    return bytes(np.random.default_rng(seed).integers(0, 4, size, np.uint8))


# --- results ---


@pytest.mark.parametrize("algorithm", COMPRESS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float32, torch.float64], ids=str)
def test_one_chunk_a_sample(nvcomp: FakeNvcomp, algorithm: str, dtype: torch.dtype) -> None:
    shapes = [[7, 5], [1, 3], [20, 30]]
    values = [sample(i, int(np.prod(shape)) * dtype.itemsize) for i, shape in enumerate(shapes)]
    files = ndd.as_batch([join([COMPRESS[algorithm](value)]) for value in values])
    result = ndd.decoders.inflate(files, algorithm=algorithm, shape=ndd.as_batch(np.array(shapes)), dtype=dtype, layout="HW")
    assert nvcomp.chunks == 3
    for value, expected, shape in zip(result, values, shapes, strict=True):
        assert (value.torch().dtype, list(value.shape), value.layout) == (dtype, shape, "HW")
        assert value.torch().numpy().tobytes() == expected


@pytest.mark.parametrize("algorithm", COMPRESS)
def test_chunks_by_offsets_and_sizes(nvcomp: FakeNvcomp, algorithm: str) -> None:
    values = [[sample(10 * i + k, 24) for k in range(count)] for i, count in enumerate((3, 1, 5))]
    packed = [[COMPRESS[algorithm](value) for value in row] for row in values]
    files = ndd.as_batch([join(row) for row in packed])
    sizes = [[len(chunk) for chunk in row] for row in packed]
    begins = [np.cumsum([0, *row[:-1]]).tolist() for row in sizes]
    as_batch = lambda rows: ndd.as_batch([np.array(row) for row in rows])  # noqa: E731
    arguments: list[dict[str, Any]] = [
        {"chunk_sizes": as_batch(sizes)},
        {"chunk_offsets": as_batch(begins)},
        {"chunk_offsets": as_batch(begins), "chunk_sizes": as_batch(sizes)},
        {"chunk_offsets": as_batch([row[::-1] for row in begins]), "chunk_sizes": as_batch([row[::-1] for row in sizes])},
    ]
    for turn, value in enumerate(arguments):
        result = ndd.decoders.inflate(files, algorithm=algorithm, shape=[2, 3, 4], layout="HWC", **value)
        for ours, expected in zip(result, values, strict=True):
            assert ours.layout == "FHWC"
            assert ours.torch().numpy().tobytes() == b"".join(expected[::-1] if turn == 3 else expected)
    assert nvcomp.chunks == 4 * 9


def test_zlib_stays_on_the_cpu(nvcomp: FakeNvcomp) -> None:
    """Nvcomp does not verify its checksum."""
    result = ndd.decoders.inflate(join([zlib.compress(b"1234")]), algorithm="Zlib", shape=[4])
    assert result.torch().numpy().tobytes() == b"1234"
    assert nvcomp.chunks == 0


def test_frames_with_a_checksum_stay_on_the_cpu(nvcomp: FakeNvcomp) -> None:
    """Whether nvCOMP verifies it, its documentation does not say."""
    plain = _zstd(b"1234" * 8)
    files = ndd.as_batch([join([plain]), join([ZSTD_WITH_CHECKSUM]), join([plain])])
    result = ndd.decoders.inflate(files, algorithm="Zstd", shape=[32])
    assert [row.torch().numpy().tobytes() for row in result] == [b"1234" * 8] * 3
    assert nvcomp.chunks == 2
    with pytest.raises(RuntimeError, match="sample 0: the data are damaged"):
        ndd.decoders.inflate(join([ZSTD_WITH_CHECKSUM[:-1] + b"!"]), algorithm="Zstd", shape=[32])


def test_samples_without_chunks(nvcomp: FakeNvcomp) -> None:
    result = ndd.decoders.inflate(join([b"abc"]), algorithm="Gzip", shape=[4], chunk_offsets=[], chunk_sizes=[])
    assert list(result.shape) == [0, 4]
    assert nvcomp.chunks == 0


# --- damage ---


@pytest.mark.parametrize("algorithm", COMPRESS)
def test_damaged_chunks_raise_the_error_of_the_cpu(nvcomp: FakeNvcomp, algorithm: str) -> None:
    good = COMPRESS[algorithm](sample(1, 300))
    files = ndd.as_batch([join([good, good]), join([good, b"\xff" * 30])])
    sizes = ndd.as_batch([np.array([len(good)] * 2), np.array([len(good), 30])])
    with pytest.raises(RuntimeError, match=r"decoders\.inflate: sample 1, chunk 1: (the data are damaged|it has \d+ bytes)"):
        ndd.decoders.inflate(files, algorithm=algorithm, shape=[300], chunk_sizes=sizes)


@pytest.mark.parametrize(("size", "message"), [(299, "it has 300 bytes|damaged"), (301, "it has 300 bytes|damaged|too early")])
@pytest.mark.parametrize("algorithm", COMPRESS)
def test_chunks_of_another_size_are_refused(nvcomp: FakeNvcomp, algorithm: str, size: int, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        ndd.decoders.inflate(join([COMPRESS[algorithm](sample(1, 300))]), algorithm=algorithm, shape=[size])


WRONG: dict[str, Callable[[bytes], tuple[int, bytes, int]]] = {
    "an error": lambda data: (CANNOT_DECOMPRESS, data, len(data)),
    "a status of its own": lambda data: (-7, data, len(data)),
    "too few bytes": lambda data: (SUCCESS, data[:-1], len(data) - 1),
    "too many bytes": lambda data: (SUCCESS, data, len(data) + 1),
    "an absurd size": lambda data: (SUCCESS, b"", (1 << 64) - 1),
    "nothing": lambda data: (SUCCESS, b"", 0),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_cpu_decompresses_what_nvcomp_gets_wrong(nvcomp: FakeNvcomp, wrong: str) -> None:
    values = [sample(k, 5000) for k in range(6)]

    def change(data: bytes) -> tuple[int, bytes, int]:
        return WRONG[wrong](data) if data in (values[1], values[4]) else (SUCCESS, data, len(data))

    nvcomp.change = change
    result = ndd.decoders.inflate(ndd.as_batch([join([gzip.compress(value)]) for value in values]), algorithm="Gzip", shape=[5000])
    assert [row.torch().numpy().tobytes() for row in result] == values
    assert nvcomp.chunks == 6


def test_errors_of_the_whole_call_leave_it_to_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ctypes.CDLL(str(compile_library(tmp_path / FILE, NVCOMP, VERSION=5300, STATUS=0, TEMPORARY_STATUS=11)))
    monkeypatch.setattr(sys.modules["torch_ndd.decoders.inflate"], "_nvcomp_for", lambda device, algorithm: broken)
    values = [sample(k, 100) for k in range(3)]
    files = ndd.as_batch([join([gzip.compress(value)]) for value in values])
    _nvcomp._warn_of_status.cache_clear()
    with pytest.warns(RuntimeWarning, match="nvCOMP fails with status 11"):
        result = ndd.decoders.inflate(files, algorithm="Gzip", shape=[100])
    assert [row.torch().numpy().tobytes() for row in result] == values


@pytest.mark.parametrize(
    ("data", "size", "message"),
    [
        (torch.zeros(16, dtype=torch.uint8)[::2], 8, "dense bytes"),
        (torch.zeros(8, dtype=torch.int8), 8, "dense bytes"),
        (torch.zeros(2, 4, dtype=torch.uint8), 8, "dense bytes"),
        (torch.zeros(8, dtype=torch.uint8, device="meta"), 8, "on cpu, got .* on meta"),
        (torch.zeros(8, dtype=torch.uint8), 9, "decompress to 9 bytes, the output has 8"),
        (torch.zeros(8, dtype=torch.uint8), 7, "decompress to 7 bytes, the output has 8"),
    ],
)
def test_memory_that_nvcomp_must_not_get_is_rejected(nvcomp: FakeNvcomp, data: torch.Tensor, size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _nvcomp.decompress(nvcomp.library, "gzip", [_nvcomp.Chunk(data, size)], torch.empty(8, dtype=torch.uint8), 0)
    assert nvcomp.chunks == 0


def test_damaged_data_by_the_hundred(nvcomp: FakeNvcomp) -> None:
    """Each ends with the right bytes, or with an error that names the sample."""
    draw = random.Random(8)
    value = sample(3, 800)
    outcomes = {"bytes": 0, "error": 0}
    for _ in range(300):
        algorithm = draw.choice(["Deflate", "Gzip", "Zstd"])
        data = bytearray(COMPRESS[algorithm](value))
        for _ in range(draw.choice([0, 1, 3])):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        del data[draw.choice([len(data), draw.randrange(len(data))]) :]
        try:
            result = ndd.decoders.inflate(join([bytes(data) or b"x"]), algorithm=algorithm, shape=[800])
            outcomes["bytes"] += len(result.torch()) == 800
        except RuntimeError as error:
            outcomes["error"] += "sample 0" in str(error)
    assert sum(outcomes.values()) == 300
    assert min(outcomes.values()) > 0


# --- which library ---


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(_library, "folder", lambda: tmp_path / "nvimgcodec")
    monkeypatch.setattr(_nvcomp, "FILE", FILE)
    _nvcomp.find_library.cache_clear()
    return tmp_path


@pytest.mark.parametrize(
    ("defines", "message"),
    [
        ({"VERSION": 4200}, r"has version 4\.2; needed is 5\.0 or later, below 6\.0"),
        ({"VERSION": 6000}, r"has version 6\.0; needed is 5\.0 or later, below 6\.0: pip install 'nvidia-libnvcomp-cu13>=5\.0,<6\.0'"),
        ({"STATUS": 11}, "does not tell its version"),
        ({"WITHOUT_GZIP": 1}, "has no function nvcompBatchedGzipDecompressGetTempSizeAsync"),
    ],
    ids=["old", "new", "silent", "without a function"],
)
def test_other_libraries_are_not_used(packages: Path, defines: dict[str, int], message: str) -> None:
    values = {"VERSION": 5300, "STATUS": 0, "TEMPORARY_STATUS": 0, **defines}
    compile_library(packages / "libnvcomp" / "lib64" / FILE, NVCOMP, **values)
    with pytest.raises(WrongLibraryError, match=message):
        _nvcomp.open_library()
    with pytest.warns(RuntimeWarning, match=f"decoders.inflate: the CPU decompresses data of a GPU: .*{message}"):
        assert _nvcomp.find_library() is None
    assert _nvcomp.find_library() is None  # without another warning


def test_a_missing_library_names_its_package(packages: Path) -> None:
    with pytest.raises(MissingLibraryError, match="is not installed: pip install nvidia-libnvcomp-cu13"):
        _nvcomp.open_library()


def test_a_library_without_nvcomp(packages: Path) -> None:
    compile_library(packages / "nvcomp" / FILE, "")
    with pytest.raises(WrongLibraryError, match="it is not nvCOMP"):
        _nvcomp.open_library()


def test_the_installed_library_has_the_interface() -> None:
    if not list(_library.folder().parent.glob(f"libnvcomp/lib64/{_nvcomp.FILE}")):
        pytest.skip("nvidia-libnvcomp-cu13 is not installed")
    library = _nvcomp.open_library()
    assert _nvcomp.version_of(library)[0] == 5

    class Alignments(ctypes.Structure):
        _fields_ = tuple((name, ctypes.c_size_t) for name in ("input", "output", "temporary"))

    for algorithm in _nvcomp.ALGORITHMS.values():
        found = Alignments()
        options = _nvcomp._Options(_nvcomp._CUDA_BACKEND, b"")
        function = getattr(library, f"nvcompBatched{algorithm}DecompressGetRequiredAlignments")
        assert function(options, ctypes.byref(found)) == SUCCESS
        # Chunks of the input are aligned; those of the output lie where the array has them.
        assert _nvcomp._ALIGNMENT % found.input == 0
        assert found.output == 1


def test_only_gpus_use_it() -> None:
    inflate = sys.modules["torch_ndd.decoders.inflate"]
    assert inflate._nvcomp_for(torch.device("cpu"), "LZ4") is None
    assert isinstance(_gpu_engines.ENGINES, tuple)


# --- with --device=cuda ---


@pytest.mark.parametrize("algorithm", COMPRESS)
def test_a_gpu_decompresses_what_the_cpu_does(device: str, algorithm: str) -> None:
    if device == "cpu":
        pytest.skip("runs with --device=cuda")
    pytest.importorskip("nvidia.libnvcomp")
    values = [[sample(10 * i + k, 70_000 + 4 * k) for k in range(count)] for i, count in enumerate((3, 1, 5))]
    for row in values:
        packed = [COMPRESS[algorithm](value) for value in row]
        arguments = {"algorithm": algorithm, "chunk_sizes": [len(chunk) for chunk in packed[:1]], "shape": [len(row[0])]}
        result = ndd.decoders.inflate(ndd.as_tensor(join(packed)).gpu(), **arguments)
        assert result.torch().is_cuda
        assert result.cpu().torch().numpy().tobytes() == row[0]
    damaged = np.frombuffer(COMPRESS[algorithm](sample(1, 5000))[:900], np.uint8)
    with pytest.raises(RuntimeError, match=r"sample 0.*(damaged|bytes)"):
        ndd.decoders.inflate(ndd.as_tensor(damaged).gpu(), algorithm=algorithm, shape=[5000])
