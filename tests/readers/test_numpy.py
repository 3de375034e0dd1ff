# SPDX-License-Identifier: Apache-2.0
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _fake_cuda import FakeCuda

import torch_ndd as ndd
from torch_ndd.testing import assert_resumable

RANDOM = np.random.default_rng(0)


def write(path: Path, header: str | bytes, data: bytes = b"", version: int = 1) -> Path:
    """A .npy file with any header."""
    text = header.encode() if isinstance(header, str) else header
    path.write_bytes(b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data)
    return path


def write_array(path: Path, array: np.ndarray) -> Path:
    np.save(path, array)
    return path


def read(*paths: Path, **options: Any) -> list[np.ndarray]:
    return [np.asarray(array) for (array,) in ndd.readers.Numpy(files=paths, **options).next_epoch()]


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", ">u2", ">i4", ">i8", ">f2", ">f4", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_types_and_orders(tmp_path: Path, dtype: str, order: Any) -> None:
    for shape in ((), (0, 3), (7,), (5, 40), (3, 37, 41), (2, 3, 4, 5)):
        array = np.asarray(RANDOM.integers(0, 100, shape).astype(dtype), order=order)
        np.save(tmp_path / "a.npy", array)
        (found,) = read(tmp_path / "a.npy")
        assert found.dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["u1", ">i2", "f8"])
def test_windows_equal_slices(tmp_path: Path, order: Any, dtype: str) -> None:
    # Large enough that a window is read row by row.
    array = np.asarray(RANDOM.integers(0, 255, (9, 500, 300)).astype(dtype), order=order)
    np.save(tmp_path / "a.npy", array)
    for _ in range(30):
        begin = [int(RANDOM.integers(0, extent)) for extent in array.shape]
        end = [int(RANDOM.integers(first, extent + 1)) for first, extent in zip(begin, array.shape, strict=True)]
        expected = array[tuple(slice(*pair) for pair in zip(begin, end, strict=True))]
        (found,) = read(tmp_path / "a.npy", roi_start=begin, roi_end=end)
        np.testing.assert_array_equal(found, expected)
    (found,) = read(tmp_path / "a.npy", roi_start=[-2, 490], roi_shape=[5, 20], roi_axes=[-1, 1], out_of_bounds_policy="pad", fill_value=7)
    np.testing.assert_array_equal(found, np.pad(array[:, 490:, :3], ((0, 0), (0, 10), (2, 0)), constant_values=7))


def test_only_the_window_is_read(tmp_path: Path) -> None:
    with open(tmp_path / "a.npy", "wb") as file:  # 1 TB as a sparse file
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (1_000_000, 1000, 125)})
        file.truncate(file.tell() + 10**12)
    (found,) = read(tmp_path / "a.npy", roi_start=[500_000, 10, 20], roi_shape=[2, 3, 4])
    assert found.shape == (2, 3, 4)
    assert not found.any()


def test_an_array_longer_than_its_file_is_an_error(tmp_path: Path) -> None:
    path = write_array(tmp_path / "a.npy", np.arange(20))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(RuntimeError, match=r"the file has 200 bytes, its array ends at byte 288$"):
        read(path)


def test_arguments_of_arrays_and_calls(tmp_path: Path) -> None:
    array = np.arange(24).reshape(4, 6)
    np.save(tmp_path / "a.npy", array)
    path = tmp_path / "a.npy"
    for start in (np.array([1, 2]), torch.tensor([1, 2]), ndd.tensor([1, 2]), np.array([1.2, 1.6])):
        np.testing.assert_array_equal(read(path, roi_start=start)[0], array[1:, 2:])
    np.testing.assert_array_equal(read(path, roi_start=torch.tensor(2))[0], array[2:, 2:])
    reader = ndd.readers.Numpy(files=[path] * 3, roi_shape=[1, 2])
    result = reader(batch_size=2, roi_start=ndd.batch([[1, 1], [3, 4]]))
    assert [item.torch().tolist() for item in result] == [[[7, 8]], [[22, 23]]]
    result = reader(batch_size=2, roi_start=[2, 0])
    assert [item.torch().tolist() for item in result] == [[[12, 13]]] * 2
    assert [batch.torch().tolist() for batch in reader(batch_size=2)] == [[[0, 1]]] * 2
    with pytest.raises(ValueError, match="cannot be passed both in the constructor and __call__"):
        reader(batch_size=2, roi_shape=[1, 1])
    with pytest.raises(ValueError, match="3 samples for a batch of 2"):
        reader(batch_size=2, roi_start=ndd.batch([[1, 1]] * 3))
    with pytest.raises(TypeError, match="unexpected keyword argument 'x'"):
        reader(batch_size=2, x=1)
    with pytest.raises(ValueError, match="batch keyword arguments"):
        ndd.readers.Numpy(files=[path], roi_start=ndd.batch([[1, 1]]))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"roi_start": [1, 2, 3]}, "3 values for 2 axes"),
        ({"roi_axes": [2], "roi_start": 0}, "roi_axes: axis 2 is out of range for 2 dimensions"),
        ({"roi_axes": [0, -2], "roi_start": 0}, "axis 0 occurs twice"),
        ({"roi_start": [3, 0], "roi_end": [2, 1]}, "ends before its start"),
        ({"roi_shape": [-1, 1]}, "must not be negative"),
        ({"roi_end": [5, 1]}, r"\[0, 5\) of axis 0 leaves the extent 4"),
        ({"rel_roi_shape": float("nan")}, "finite"),
        ({"roi_shape": [2**31, 2**31], "out_of_bounds_policy": "pad"}, "too many elements|no memory"),
        ({"roi_start": 1, "rel_roi_start": 0.1}, "mutually exclusive"),
        ({"roi_end": 1, "rel_roi_shape": 0.1}, "mutually exclusive"),
        ({"out_of_bounds_policy": "x"}, "out_of_bounds_policy"),
    ],
)
def test_wrong_windows(tmp_path: Path, options: dict[str, Any], reason: str) -> None:
    np.save(tmp_path / "a.npy", np.zeros((4, 6)))
    with pytest.raises(RuntimeError, match=rf"readers\.Numpy: .*({reason})"):
        read(tmp_path / "a.npy", **options)


def test_places_of_files(tmp_path: Path) -> None:
    for k, name in enumerate(("z.npy", "B.npy", ".h.npy", "b/q.npy", "b/c/w.npy", "b/x.txt", "a.npy")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        with open(tmp_path / name, "wb") as file:
            np.save(file, np.array(k))

    def numbers(**options: Any) -> list[int]:
        return [int(array.item()) for (array,) in ndd.readers.Numpy(**options).next_epoch()]

    assert numbers(file_root=tmp_path) == [2, 1, 6, 0, 3]
    assert numbers(file_root=tmp_path, file_filter="[aq]*") == [6, 3]
    assert numbers(file_root=tmp_path, file_filter="x.*") == [5]
    (tmp_path / "list").write_text("a.npy\n\nb/q.npy")
    assert numbers(file_list=tmp_path / "list") == [6, 3]
    (tmp_path / "b/list").write_text("q.npy\r\n")
    assert numbers(file_list=tmp_path / "list", file_root=tmp_path) == [6, 3]
    assert numbers(file_list=tmp_path / "b/list") == [3]
    assert numbers(file_root=tmp_path / "b", files=["q.npy", tmp_path / "a.npy"]) == [3, 6]
    assert sorted(numbers(file_root=tmp_path, random_shuffle=True)) == [0, 1, 2, 3, 6]
    for options in ({}, {"files": []}, {"file_root": tmp_path / "none"}, {"file_root": tmp_path, "file_filter": "*.NPY"}, {"file_list": "/none"}):
        with pytest.raises(RuntimeError, match=r"readers\.Numpy: "):
            numbers(**options)


BAD: dict[str, tuple[str | bytes, str]] = {
    "no dict": ("[1]", "expected '{'"),
    "no shape": ("{'descr': '<f8', 'fortran_order': False}", "it lacks descr"),
    "negative extent": ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", "shape is not a tuple of integers"),
    "huge extent": ("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,)}", "extent that is too large"),
    "huge volume": ("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "too many elements"),
    "longer than the file": ("{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}", "the file has"),
    "complex": ("{'descr': '<c16', 'fortran_order': False, 'shape': ()}", "'<c16' are not supported"),
    "zero as byte order": ("{'descr': '\0u1', 'fortran_order': False, 'shape': ()}", "a string with a zero byte"),
    "zero in a key": ("{'desc\0r': '<u1', 'fortran_order': False, 'shape': ()}", "a string with a zero byte"),
    "two byte orders": ("{'descr': '<<u1', 'fortran_order': False, 'shape': ()}", "not supported"),
    "text": ("{'descr': '<U3', 'fortran_order': False, 'shape': ()}", "not supported"),
    "objects": ("{'descr': '|O', 'fortran_order': False, 'shape': ()}", "not supported"),
    "structures": ("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': ()}", "structures"),
    "order": ("{'descr': '<f8', 'fortran_order': 1, 'shape': ()}", "True nor False"),
    "endless text": ("{'descr", "without an end"),
    "code": ("__import__('os').abort()", "expected '{'"),
    "many axes": ("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "0," * 100 + ")}", "shape is not a tuple of integers"),
}


@pytest.mark.parametrize("name", BAD)
def test_damaged_headers(tmp_path: Path, name: str) -> None:
    header, reason = BAD[name]
    np.save(tmp_path / "good.npy", np.arange(2.0))
    write(tmp_path / "bad.npy", header, bytes(16))
    with pytest.raises(RuntimeError, match=rf"readers\.Numpy: sample 0 \(.*bad\.npy\): .*{reason}"):
        read(tmp_path / "bad.npy")
    reader = ndd.readers.Numpy(2, files=[tmp_path / "good.npy", tmp_path / "bad.npy"] * 2, on_error="skip")
    assert [array.torch().tolist() for (array,) in reader] == [[[0, 1], [0, 1]]]
    assert [error.sample for error in reader.errors] == [1, 3]


def test_other_files(tmp_path: Path) -> None:
    for data, reason in (
        (b"", "not an .npy file"),
        (b"text", "not an .npy file"),
        (b"\x93NUMPY\x04\0\0\0", "unknown version 4"),
        (b"\x93NUMPY\x01\0\xff\0", "too early"),
    ):
        (tmp_path / "a.npy").write_bytes(data)
        with pytest.raises(RuntimeError, match=reason):
            read(tmp_path / "a.npy")
    for version in (1, 2, 3):
        path = write(tmp_path / "a.npy", "{'shape': (2L,), \"descr\":'|u1','fortran_order':True}", b"\1\2", version)
        assert read(path)[0].tolist() == [1, 2]


def test_batches_after_pickling(tmp_path: Path) -> None:
    for k in range(5):
        np.save(tmp_path / f"{k}.npy", np.full((k % 2 + 1, 2), k, np.float32))
    reader = pickle.loads(pickle.dumps(ndd.readers.Numpy(3, file_root=tmp_path, cache_header_information=True)))
    (first,), (second,) = reader.next_epoch()
    assert (first.shape, first.dtype, first.layout) == ([(1, 2), (2, 2), (1, 2)], ndd.float32, None)
    assert [value.torch().flatten().tolist()[0] for value in second] == [3, 4, 0]
    (tmp_path / "1.npy").write_bytes(b"")  # its header is cached; the data is gone
    with pytest.raises(RuntimeError, match=r"1\.npy\): the file became shorter"):
        list(reader.next_epoch())
    np.save(tmp_path / "1.npy", np.zeros((1, 2)))
    with pytest.raises(RuntimeError, match=r"sample 1 \(.*1\.npy\): .* another type"):
        list(ndd.readers.Numpy(3, file_root=tmp_path).next_epoch())


@pytest.mark.figures
def test_resumes_anywhere(tmp_path: Path) -> None:
    for k in range(11):
        np.save(tmp_path / f"{k:02}.npy", np.full(k % 3 + 1, k))

    def make(rank: int, world: int, batch_size: int) -> ndd.readers.Numpy:
        return ndd.readers.Numpy(batch_size, file_root=tmp_path, random_shuffle=True, shard_id=rank, num_shards=world)

    resumed = assert_resumable(make)
    print(f"{resumed.cuts} cuts, {resumed.samples} samples compared, states of at most {resumed.state_bytes} bytes")


def test_parts_are_read_to_the_device(tmp_path: Path, device: str) -> None:
    files = [write_array(tmp_path / f"{k}.npy", np.arange(12 + k)) for k in range(4)]
    batches = list(ndd.readers.Numpy(files=files, device=device, roi_start=2, roi_shape=5).next_epoch(2))
    assert [batch.device.device_type for (batch,) in batches] == [device] * 2
    assert [sample.tolist() for (batch,) in batches for sample in batch.cpu().torch()] == [[2, 3, 4, 5, 6]] * 4
    assert str(batches[1][0].sources[0]).endswith("2.npy")


def test_copies_to_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCuda().install(monkeypatch)
    copied = []
    monkeypatch.setattr(ndd.Batch, "to_device", lambda self, device: copied.append((device, self.shape)) or self)
    reader = ndd.readers.Numpy(files=[write_array(tmp_path / "a.npy", np.zeros((3, 4)))] * 5, device="gpu:1", max_batch_size=2)
    reader = pickle.loads(pickle.dumps(reader))
    assert len(list(reader)) == 3
    assert [str(device) for device, _ in copied] == ["cuda:1"] * 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu() -> None:
    with pytest.raises(RuntimeError, match=r'readers\.Numpy: device "gpu": no GPU can be used'):
        ndd.readers.Numpy(files=["x.npy"], device="gpu")
