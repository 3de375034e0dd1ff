# SPDX-License-Identifier: Apache-2.0
"""readers.Numpy with GPUDirect Storage: a library compiled by the tests stands for cuFile, and memory of the host for the GPU's."""

import ctypes
import errno
import os
import shutil
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _fake_cuda import FakeCuda
from _fake_libraries import CUFILE, compile_library

import torch_ndd as ndd
from torch_ndd.decoders._gpu_engines import MissingLibraryError, WrongLibraryError
from torch_ndd.readers import _gds

FILE = "libcufile_of_a_test.so"
NO_LIMIT = (1 << 64) - 1


class FakeCufile:
    """The compiled library, and the arrays that reached the GPU another way."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.uploaded: list[Any] = []
        self.answer()

    def answer(self, register_status: int = 0, limit: int = NO_LIMIT, result: int = 0) -> None:
        """Let registering fail, reads return at most some bytes, or return this result: 1 means the end of the file."""
        self.library.fake_cufile_set(register_status, ctypes.c_size_t(limit), ctypes.c_ssize_t(result))

    @property
    def reads(self) -> int:
        return self.library.fake_cufile_reads()


@pytest.fixture(scope="module")
def library_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("cufile") / FILE, CUFILE, DRIVER_STATUS=0)


@pytest.fixture
def cufile(library_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCufile]:
    FakeCuda().install(monkeypatch)
    # A copy has counts and answers of its own: a reader of the test before may still read ahead.
    path = Path(shutil.copy(library_path, tmp_path))
    fake = FakeCufile(path)
    monkeypatch.setattr(_gds, "KERNEL_MODULE", tmp_path)
    monkeypatch.setattr(_gds, "FILE", str(path))
    monkeypatch.setattr(_gds, "new_buffer", lambda size, device: torch.empty(size, dtype=torch.uint8))
    monkeypatch.setattr(ndd.Batch, "to_device", lambda self, device: fake.uploaded.append(self.shape) or self)
    monkeypatch.setattr(os, "O_DIRECT", 0)  # not every file system of a test has it
    _gds.find_library.cache_clear()
    _gds.warn_of_ordinary_reads.cache_clear()
    yield fake
    _gds.find_library.cache_clear()
    end = time.monotonic() + 60
    while fake.library.fake_cufile_open_files() and time.monotonic() < end:  # a batch that is read ahead
        time.sleep(0.01)
    assert fake.library.fake_cufile_open_files() == 0


def write_arrays(folder: Path, arrays: list[np.ndarray]) -> list[Path]:
    (folder / "arrays").mkdir(exist_ok=True)
    paths = [folder / f"arrays/{k:02}.npy" for k in range(len(arrays))]
    for path, array in zip(paths, arrays, strict=True):
        np.save(path, array)
    return paths


def read_arrays(paths: list[Path], batch_size: int = 3, **options: Any) -> list[np.ndarray]:
    reader = ndd.readers.Numpy(files=paths, device="gpu", **options)
    return [np.asarray(sample) for (batch,) in reader.next_epoch(batch_size) for sample in batch.tensors]


def read_epochs(reader: ndd.readers.Numpy) -> None:
    """Read three epochs, the first of which may have been read ahead."""
    for _ in range(3):
        list(reader.next_epoch(2))


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("limit", [NO_LIMIT, 1000])
@pytest.mark.parametrize("shapes", [[(40, 50)] * 6, [(3, 7), (0, 5), (300, 11), (1, 1), (64, 64), (2, 9)]])
def test_whole_arrays_are_read_directly(cufile: FakeCufile, tmp_path: Path, shapes: list[Any], limit: int, cached: bool) -> None:
    arrays = [np.random.default_rng(k).normal(size=shape) for k, shape in enumerate(shapes)]
    paths = write_arrays(tmp_path, arrays)
    cufile.answer(limit=limit)
    reader = ndd.readers.Numpy(files=paths, device="gpu", cache_header_information=cached)
    for _ in range(2):
        found = [np.asarray(sample) for (batch,) in reader.next_epoch(3) for sample in batch.tensors]
        for array, expected in zip(found, arrays, strict=True):
            assert array.dtype == expected.dtype
            np.testing.assert_array_equal(array, expected)
    assert _gds.describe() == "used by readers.Numpy"
    assert cufile.reads >= 2 * sum(array.size > 0 for array in arrays) * (1 if limit == NO_LIMIT else 2)


def test_files_are_read_with_the_target_as_the_current_gpu(cufile: FakeCufile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices, read = [], _gds.DirectFile.read

    def note_device(file: _gds.DirectFile, *arguments: Any) -> None:
        # A reader of an earlier test may still be reading ahead.
        if Path(os.readlink(f"/proc/self/fd/{file._descriptor}")).is_relative_to(tmp_path):
            devices.append(torch.cuda.current_device())
        read(file, *arguments)

    monkeypatch.setattr(_gds.DirectFile, "read", note_device)
    list(ndd.readers.Numpy(files=write_arrays(tmp_path, [np.zeros(3)] * 2), device="gpu:1").next_epoch(2))
    assert set(devices) == {1}
    assert torch.cuda.current_device() == 0


def test_buffers_of_a_gpu_are_allocated_on_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, new_buffer = FakeCuda(), _gds.new_buffer
    cuda.install(monkeypatch)
    monkeypatch.setattr(_gds, "new_torch_stream", lambda device: torch.cuda.Stream(device.index))
    monkeypatch.setattr(torch, "empty", lambda size, **options: torch.cuda.current_stream(options["device"]).cuda_stream)
    _gds._allocation_stream.cache_clear()
    streams = [new_buffer(8, torch.device("cuda", k % 2)) for k in range(6)]
    _gds._allocation_stream.cache_clear()
    assert streams[:2] * 3 == streams
    assert streams[0] != streams[1]


def test_sources_name_the_files(cufile: FakeCufile, tmp_path: Path) -> None:
    paths = write_arrays(tmp_path, [np.zeros(3)] * 4)
    (batch,) = next(iter(ndd.readers.Numpy(files=paths, device="gpu").next_epoch(2)))
    assert [str(source) for source in batch.sources] == [str(path) for path in paths[:2]]


@pytest.mark.parametrize("array", [np.asfortranarray(np.arange(12.0).reshape(3, 4)), np.arange(12, dtype=">i4").reshape(3, 4)])
def test_elements_in_another_order_pass_through_host_memory(cufile: FakeCufile, tmp_path: Path, array: np.ndarray) -> None:
    for found in read_arrays(write_arrays(tmp_path, [array] * 3)):
        np.testing.assert_array_equal(found, array)
    assert cufile.reads == 0


def test_windows_pass_through_host_memory(cufile: FakeCufile, tmp_path: Path) -> None:
    found = read_arrays(write_arrays(tmp_path, [np.arange(20)] * 3), roi_start=2, roi_shape=5)
    assert [array.tolist() for array in found] == [[2, 3, 4, 5, 6]] * 3
    assert cufile.reads == 0


def test_a_file_system_without_direct_reads_warns_once(cufile: FakeCufile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_arrays(tmp_path, [np.arange(20)] * 6)
    cufile.answer(register_status=5011)
    with pytest.warns(RuntimeWarning, match="reads files to host memory first: cuFile does not read .*status 5011"):
        assert [array.tolist() for array in read_arrays(paths[:3])] == [[*range(20)]] * 3
    cufile.answer()
    open_file = os.open

    def open_without_direct_reads(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if str(path).endswith("05.npy"):
            raise OSError(errno.EINVAL, "Invalid argument", path)
        return open_file(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", open_without_direct_reads)
    with pytest.warns(RuntimeWarning, match=r"05\.npy cannot be opened for direct reads: Invalid argument"):
        assert [array.tolist() for array in read_arrays(paths)] == [[*range(20)]] * 6


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (-1, "cannot be read: cuFile returned -1"),
        (-5005, "cuFile returned -5005"),
        (1, "cuFile returned 0"),
        (1 << 40, "cuFile returned 1099511627776"),
    ],
)
def test_results_of_reads_are_checked(cufile: FakeCufile, tmp_path: Path, result: int, reason: str) -> None:
    paths = write_arrays(tmp_path, [np.arange(20)] * 3)
    cufile.answer(result=result)
    with pytest.raises(RuntimeError, match=rf"(?s)readers\.Numpy.*00\.npy.*{reason}"):
        read_arrays(paths)


def test_a_file_that_shrank_is_a_bad_sample(cufile: FakeCufile, tmp_path: Path) -> None:
    paths = write_arrays(tmp_path, [np.arange(20)] * 3)
    reader = ndd.readers.Numpy(files=paths, device="gpu", cache_header_information=True, on_error="skip")
    for epoch in range(3):
        if epoch == 1:
            os.truncate(paths[1], 200)  # noticed in this epoch, or in the next one if a batch was read ahead
        assert [np.asarray(sample).tolist() for (batch,) in reader.next_epoch(3) for sample in batch.tensors] == [[*range(20)]] * 3
    assert "the file has 200 bytes, its array ends at byte 288" in str(reader.errors[-1])


def test_something_else_than_a_file_is_a_bad_sample(cufile: FakeCufile, tmp_path: Path) -> None:
    paths = write_arrays(tmp_path, [np.arange(20)] * 2)
    reader = ndd.readers.Numpy(files=paths, device="gpu", cache_header_information=True)
    assert len(list(reader.next_epoch(2))) == 1
    os.mkfifo(tmp_path / "pipe")
    os.replace(tmp_path / "pipe", paths[1])
    with pytest.raises(RuntimeError, match="is not a regular file"):
        read_epochs(reader)
    paths[1].unlink()
    with pytest.raises(RuntimeError, match=r"01\.npy.*No such file"):
        read_epochs(reader)


def test_nothing_is_loaded_without_the_kernel_module(cufile: FakeCufile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gds, "KERNEL_MODULE", tmp_path / "missing")
    monkeypatch.setattr(_gds, "open_library", lambda: pytest.fail("loads cuFile"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [array.tolist() for array in read_arrays(write_arrays(tmp_path, [np.arange(4)] * 3))] == [[*range(4)]] * 3
    assert _gds.describe() == "not used: the kernel module nvidia-fs is not loaded"


@pytest.mark.parametrize(
    ("defines", "reason"),
    [({"DRIVER_STATUS": 5001}, "does not start: status 5001"), ({"DRIVER_STATUS": 0, "WITHOUT_READ": 1}, "has no function cuFileRead")],
)
def test_a_library_that_cannot_be_used_warns_once(
    cufile: FakeCufile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defines: dict[str, int], reason: str
) -> None:
    monkeypatch.setattr(_gds, "FILE", str(compile_library(tmp_path / "libcufile_that_fails.so", CUFILE, **defines)))
    with pytest.raises(WrongLibraryError, match=reason):
        _gds.open_library()
    paths = write_arrays(tmp_path, [np.arange(4)] * 3)
    with pytest.warns(RuntimeWarning, match=rf"reads files to host memory first: .*{reason}"):
        assert len(read_arrays(paths)) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_arrays(paths)) == 3
    assert reason in _gds.describe()


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gds, "FILE", "libcufile_of_no_package.so")
    with pytest.raises(MissingLibraryError, match="pip install nvidia-cufile"):
        _gds.open_library()


def test_a_forked_child_does_not_wait_for_threads_of_its_parent(cufile: FakeCufile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ndd.readers.Numpy(files=write_arrays(tmp_path, [np.arange(20)] * 4), device="gpu")
    reader.scan()
    monkeypatch.setattr("torch_ndd.readers._threads.Workers.submit", lambda *arguments: Future())
    samples = np.arange(2)
    request, parent = reader.start(samples), os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    (batch,) = reader.finish(request, samples)
    assert [np.asarray(sample).tolist() for sample in batch.tensors] == [[*range(20)]] * 2
