# SPDX-License-Identifier: Apache-2.0
import datetime
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from torch.utils.data import DataLoader

import torch_ndd as ndd
from torch_ndd.readers import parquet as reader_module
from torch_ndd.testing import assert_resumable

COLUMNS: dict[str, Any] = {
    "number": pa.array(range(13), pa.int64()),
    "small": pa.array(range(13), pa.uint8()),
    "flag": pa.array([i % 2 == 0 for i in range(13)]),
    "real": pa.array([i / 4 if i != 3 else None for i in range(13)], pa.float32()),
    "text": pa.array([f"é{i}" if i != 2 else None for i in range(13)]),
    "blob": pa.array([bytes([i]) * i for i in range(13)], pa.large_binary()),
    "fixed": pa.array([[i, i + 1] for i in range(13)], pa.list_(pa.int32(), 2)),
    "list": pa.array([list(range(i)) for i in range(13)], pa.list_(pa.float64())),
    "grid": pa.array([[[i] * 3] * (i % 3) for i in range(13)], pa.list_(pa.list_(pa.int16()))),
    "day": pa.array([datetime.date(2020, 1, 1 + i) for i in range(13)]),
    "time": pa.array([datetime.datetime(2020, 1, 1, i) for i in range(13)], pa.timestamp("us")),
    "fixed_bytes": pa.array([bytes([i]) * 3 if i != 5 else None for i in range(13)], pa.binary(3)),
    "kind": pa.array([f"k{i % 3}" for i in range(13)]).dictionary_encode(),
    "image": pa.array([{"bytes": b"image %d" % i, "path": None} for i in range(13)], pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
    "box": pa.array([{"x": i, "y": i * 0.5} for i in range(13)]),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    parquet.write_table(pa.table(COLUMNS), tmp_path / "x.parquet", row_group_size=4)
    return tmp_path / "x.parquet"


def rows(reader: Any, column: str = "number") -> list[Any]:
    return [np.asarray(sample).tolist() for batch in reader for sample in batch[column].tensors]


def values(batch: dict[str, ndd.Batch], column: str) -> list[Any]:
    return [np.asarray(sample).tolist() for sample in batch[column].tensors]


def test_columns(path: Path) -> None:
    (batch,) = ndd.readers.Parquet(path=path).next_epoch(13)
    assert list(batch) == [*list(COLUMNS)[:-1], "box.x", "box.y"]
    kinds = {"number": ndd.int64, "small": ndd.uint8, "flag": ndd.bool, "day": ndd.int32, "time": ndd.int64, "box.y": ndd.float64}
    for name, dtype in kinds.items():
        assert (batch[name].dtype, batch[name].shape) == (dtype, [()] * 13)
    assert values(batch, "number") == values(batch, "small") == values(batch, "box.x") == list(range(13))
    assert values(batch, "flag") == [i % 2 == 0 for i in range(13)]
    real = values(batch, "real")
    assert np.isnan(real[3])
    assert real[4:] == [i / 4 for i in range(4, 13)]
    texts = [bytes(value).decode() for value in values(batch, "text")]
    assert texts == [f"é{i}" if i != 2 else "" for i in range(13)]
    assert [bytes(value) for value in values(batch, "blob")] == [bytes([i]) * i for i in range(13)]
    assert batch["fixed"].torch().tolist() == [[i, i + 1] for i in range(13)]
    assert values(batch, "list") == [list(range(i)) for i in range(13)]
    assert values(batch, "grid") == [[[i] * 3] * (i % 3) for i in range(13)]
    assert values(batch, "day") == [18262 + i for i in range(13)]
    assert values(batch, "time")[1] == 1577836800_000_000 + 3600_000_000
    assert [bytes(value).decode() for value in values(batch, "kind")] == [f"k{i % 3}" for i in range(13)]
    assert [bytes(value) for value in values(batch, "fixed_bytes")] == [bytes([i]) * 3 if i != 5 else b"" for i in range(13)]
    assert [bytes(value) for value in values(batch, "image")] == [b"image %d" % i for i in range(13)]
    assert batch["number"].sources[5] == f"{path} at row 5"


def test_chosen_columns_and_samples(path: Path) -> None:
    samples = list(ndd.readers.Parquet(path=path, columns=["blob", "number"]).next_epoch())
    assert [list(sample) for sample in samples] == [["blob", "number"]] * 13
    assert [sample["number"].item() for sample in samples] == list(range(13))
    assert rows(ndd.readers.Parquet(path=path, columns="number").next_epoch(5)) == [*range(13), 0, 1]


def test_random_order(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kept in (0, 2**30):
        monkeypatch.setattr(reader_module, "_KEPT_BYTES", kept)
        reader = ndd.readers.Parquet(path=path, random_shuffle=True, seed=2)
        batches = [batch for _ in range(3) for batch in reader.next_epoch(13)]
        for batch in batches:
            numbers = values(batch, "number")
            assert sorted(numbers) == list(range(13))
            assert values(batch, "list") == [list(range(i)) for i in numbers]
            assert [bytes(value) for value in values(batch, "image")] == [b"image %d" % i for i in numbers]
        assert len({str(values(batch, "number")) for batch in batches}) == 3


def test_folders_patterns_and_lists(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for k, name in enumerate(("a.parquet", "b.parquet", "sub/c.parquet", "_hidden.parquet", "d.txt")):
        parquet.write_table(pa.table({"number": [10 * k, 10 * k + 1]}), tmp_path / name)
    for path, expected in (
        (tmp_path, [0, 1, 10, 11, 20, 21]),
        (f"{tmp_path}/*.parquet", [30, 31, 0, 1, 10, 11]),
        (f"{tmp_path}/**/*.parquet", [30, 31, 0, 1, 10, 11, 20, 21]),
        ([tmp_path / "b.parquet", tmp_path / "d.txt"], [10, 11, 40, 41]),
    ):
        reader = ndd.readers.Parquet(path=path)
        assert rows(reader.next_epoch(len(expected))) == expected
    last = next(iter(ndd.readers.Parquet(path=tmp_path, shard_id=2, num_shards=3).next_epoch()))
    assert last["number"].sources[0].endswith("sub/c.parquet at row 0")


def test_urls(path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/rows/x.parquet", path.read_bytes())
    for url in ("memory://rows/x.parquet", "memory://rows", "memory://rows/*.parquet"):
        assert rows(ndd.readers.Parquet(path=url).next_epoch(13)) == list(range(13))
    memory.rm("/rows", recursive=True)
    with pytest.raises(RuntimeError, match=r"memory://rows/x\.parquet"):
        next(ndd.readers.Parquet(path="memory://rows/x.parquet").next_epoch())


def test_images_next_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(b"outside")
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    images = pa.array([{"bytes": b"inside", "path": "0.jpg"}, {"bytes": None, "path": "1.jpg"}, {"bytes": None, "path": "2.jpg"}, None], kind)
    parquet.write_table(pa.table({"image": images}), tmp_path / "x.parquet")
    reader = ndd.readers.Parquet(1, path=tmp_path / "x.parquet", on_error="skip")
    assert [bytes(row) for row in rows(reader, "image")] == [b"inside", b"outside", b""]
    assert [(error.sample, "2.jpg" in error.reason) for error in reader.errors] == [(2, True)]


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array([1, None, 3]), "a number is missing"),
        (pa.array([[1], None, [3]]), "a list is missing"),
        (pa.array([[[1], [2]], [[1], [2, 3]], []]), "different lengths"),
        (pa.array([[1], [None], [2]]), "a number is missing"),
    ],
)
def test_bad_samples(tmp_path: Path, column: Any, reason: str) -> None:
    parquet.write_table(pa.table({"x": column}), tmp_path / "x.parquet")
    with pytest.raises(RuntimeError, match=rf"readers\.Parquet: sample 1 \(.*x\.parquet at row 1\): column 'x': .*{reason}"):
        list(ndd.readers.Parquet(path=tmp_path).next_epoch(3))
    reader = ndd.readers.Parquet(2, path=tmp_path, on_error="skip")
    assert rows(reader, "x") == [column[k].as_py() for k in (0, 2)]
    reader = ndd.readers.Parquet(3, path=tmp_path, on_error="replace")
    assert rows(reader, "x") == [column[k].as_py() for k in (0, 0, 2)]


def test_damaged_row_groups(path: Path) -> None:
    content = bytearray(path.read_bytes())
    second = parquet.ParquetFile(path).metadata.row_group(1).column(0)
    begin = second.dictionary_page_offset or second.data_page_offset
    content[begin : begin + 60] = b"\xff" * 60
    path.write_bytes(content)
    reader = ndd.readers.Parquet(4, path=path, columns=["number"], on_error="skip")
    assert rows(reader) == [*range(4), *range(8, 13)]
    assert {error.sample for error in reader.errors} == {4, 5, 6, 7}


@pytest.mark.parametrize(
    ("columns", "text"),
    [(["none"], "column 'none' not found"), ([], "empty list"), (["image.bytes"], "not found"), (["words"], "cannot convert column")],
)
def test_other_columns(tmp_path: Path, columns: list[str], text: str) -> None:
    parquet.write_table(pa.table({**COLUMNS, "words": [["a"]] * 13, "dec": pa.array([None] * 13)}), tmp_path / "x.parquet")
    if columns == ["words"]:
        columns, text = ["dec"], "cannot convert column"
    with pytest.raises(RuntimeError, match=rf"readers\.Parquet: .*{text}"):
        next(ndd.readers.Parquet(path=tmp_path, columns=columns).next_epoch())


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"PAR1 is not all")
    parquet.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    parquet.write_table(pa.table({"y": [1]}), tmp_path / "b.parquet")
    parquet.write_table(pa.table({"x": pa.array([], pa.int32())}), tmp_path / "empty")
    for path, text in (
        (tmp_path / "none.parquet", "none.parquet.*cannot be read"),
        (tmp_path / "bad", "bad.*cannot be read"),
        (tmp_path, "b.parquet.*does not have the columns"),
        (tmp_path / "empty", "No rows"),
        (f"{tmp_path}/*.none", "No files"),
        ([], "No files"),
    ):
        with pytest.raises(RuntimeError, match=text):
            next(ndd.readers.Parquet(path=path).next_epoch())


@pytest.mark.parametrize("options", [{}, {"random_shuffle": True, "seed": 3}], ids=str)
def test_resume(path: Path, options: dict[str, Any]) -> None:
    def make(rank: int, world: int, size: int) -> ndd.readers.Parquet:
        return ndd.readers.Parquet(size, path=path, columns=["number", "list"], shard_id=rank, num_shards=world, **options)

    assert assert_resumable(make).cuts > 60


def test_processes(path: Path) -> None:
    reader = ndd.readers.Parquet(3, path=path)
    next(reader.next_epoch())
    loader = DataLoader(reader, batch_size=None, num_workers=2, multiprocessing_context="fork")
    assert sorted(rows(loader)) == list(range(13))
    assert rows(pickle.loads(pickle.dumps(ndd.readers.Parquet(path=path))).next_epoch(13)) == list(range(13))


@pytest.mark.parametrize(
    ("column", "size"),
    [
        (pa.array([bytes(100_000)]), 100_000),
        (pa.ListArray.from_arrays([0, 100_000], pa.array(np.zeros(100_000, np.int64))), 800_000),
        (pa.array([bytes(20_000)] * 50), 1_000_000),  # stored once
    ],
    ids=["bytes", "list", "dictionary"],
)
def test_max_sample_bytes_bounds_a_row_group(tmp_path: Path, column: Any, size: int) -> None:
    """Files of some hundred bytes, the numbers of which promise more."""
    parquet.write_table(pa.table({"a": column}), tmp_path / "x.parquet", compression="zstd")
    assert (tmp_path / "x.parquet").stat().st_size < 3000
    (result,) = ndd.readers.Parquet(path=tmp_path / "x.parquet", max_sample_bytes=size + 1000).next_epoch(len(column))
    assert sum(np.asarray(sample).nbytes for sample in result["a"].tensors) == size
    with pytest.raises(RuntimeError, match=rf"row group 0 has .* more than max_sample_bytes={size - 1}, .*TORCH_NDD_MAX_SAMPLE_BYTES"):
        list(ndd.readers.Parquet(path=tmp_path / "x.parquet", max_sample_bytes=size - 1).next_epoch(1))
