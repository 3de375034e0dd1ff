# SPDX-License-Identifier: Apache-2.0
import datetime
import importlib
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from _forks import Forks
from pyarrow import parquet
from torch.utils.data import DataLoader

import torch_ndd as ndd
from torch_ndd.readers import parquet as reader_module
from torch_ndd.readers.parquet._columns import Column
from torch_ndd.readers.parquet._groups import Group, Rows, gather
from torch_ndd.readers.parquet._matching import LocatedRows
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


def test_columns_have_types_and_shapes(path: Path) -> None:
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


def test_views_are_read_as_the_types_that_they_stand_for(tmp_path: Path) -> None:
    if not hasattr(pa, "list_view"):
        pytest.skip("pyarrow before 16 has no views")
    image = pa.struct([("bytes", pa.binary_view()), ("path", pa.string_view())])
    columns = {
        "number": pa.array(range(13)),
        "text": pa.array([f"é{i}" * i if i != 2 else None for i in range(13)], pa.string_view()),
        "blob": pa.array([bytes([i]) * i for i in range(13)], pa.binary_view()),
        "list": pa.array([list(range(i)) for i in range(13)], pa.list_view(pa.float64())),
        "grid": pa.array([[[i] * 3] * (i % 3) for i in range(13)], pa.large_list_view(pa.list_view(pa.int16()))),
        "image": pa.array([{"bytes": b"image %d" % i, "path": None} for i in range(13)], image),
    }
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    assert "view" in str(parquet.read_schema(tmp_path / "x.parquet"))
    for random in (False, True):
        (batch,) = ndd.readers.Parquet(path=tmp_path / "x.parquet", random_shuffle=random, seed=2).next_epoch(13)
        assert list(batch) == list(columns)
        numbers = values(batch, "number")
        assert [bytes(value).decode() for value in values(batch, "text")] == [f"é{i}" * i if i != 2 else "" for i in numbers]
        assert [bytes(value) for value in values(batch, "blob")] == [bytes([i]) * i for i in numbers]
        assert values(batch, "list") == [list(range(i)) for i in numbers]
        assert values(batch, "grid") == [[[i] * 3] * (i % 3) for i in numbers]
        assert [bytes(value) for value in values(batch, "image")] == [b"image %d" % i for i in numbers]


def test_missing_views_name_their_samples(tmp_path: Path) -> None:
    if not hasattr(pa, "list_view"):
        pytest.skip("pyarrow before 16 has no views")
    parquet.write_table(pa.table({"x": pa.array([[1], None, [2]], pa.list_view(pa.int64()))}), tmp_path / "x.parquet")
    with pytest.raises(RuntimeError, match=r"sample 1 .* column 'x': a list is missing \(null\)"):
        next(ndd.readers.Parquet(path=tmp_path / "x.parquet").next_epoch(3))
    kept = ndd.readers.Parquet(3, path=tmp_path / "x.parquet", on_error="skip")
    assert [value for batch in kept for value in values(batch, "x")] == [[1], [2]]


_NO_SAMPLES = {
    "null": pa.nulls(2),
    "list of text": pa.array([["a"], ["b"]]),
    "list of dictionary": pa.array([["a"], ["b"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
    "list of structures": pa.array([[{"a": 1}], []]),
    "structure in a structure": pa.array([{"a": {"b": 1}}] * 2),
    "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())),
}


@pytest.mark.parametrize("column", _NO_SAMPLES.values(), ids=_NO_SAMPLES.keys())
def test_columns_that_cannot_become_samples_are_refused_by_name(tmp_path: Path, column: pa.Array) -> None:
    parquet.write_table(pa.table({"number": [1, 2], "x": column, "text": ["a", "b"]}), tmp_path / "x.parquet")
    with pytest.raises(RuntimeError, match=r"cannot convert to samples: 'x(\.a)?' \(.*\); choose .*: columns=\['number', 'text'\]"):
        ndd.readers.Parquet(path=tmp_path / "x.parquet").scan()
    (batch,) = ndd.readers.Parquet(path=tmp_path / "x.parquet", columns=["number", "text"]).next_epoch(2)
    assert values(batch, "number") == [1, 2]


@pytest.mark.parametrize("kind", [pa.decimal128(5, 2), pa.decimal256(60, 2)], ids=str)
def test_decimals_are_float64(tmp_path: Path, kind: pa.DataType) -> None:
    numbers = [Decimal("1.25"), None, Decimal("-999.99"), Decimal(7)]
    columns = {
        "price": pa.array(numbers, kind),
        "few": pa.array([numbers[0], numbers[3]] * 2, kind).dictionary_encode(),
        "pair": pa.array([[numbers[0], number or 0] for number in numbers], pa.list_(kind, 2)),
        "list": pa.array([numbers[2:4] * k for k in range(4)], pa.list_(kind)),
        "item": pa.array([{"price": number} for number in numbers], pa.struct([("price", kind)])),
    }
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet", row_group_size=2)
    reader = ndd.readers.Parquet(path=tmp_path / "x.parquet")
    (batch,) = reader.next_epoch(4)
    assert list(batch) == [*list(columns)[:-1], "item.price"]
    assert {value.dtype for value in batch.values()} == {torch.float64}
    for prices in (values(batch, "price"), values(batch, "item.price"), reader.list_costs("price").tolist()):
        assert prices == pytest.approx([1.25, np.nan, -999.99, 7], nan_ok=True, rel=0, abs=0)
    assert values(batch, "few") == [1.25, 7] * 2
    assert values(batch, "pair") == [[1.25, 1.25], [1.25, 0], [1.25, -999.99], [1.25, 7]]
    assert values(batch, "list") == [[-999.99, 7] * k for k in range(4)]


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


def test_batches_join_row_groups_with_and_without_missing_values(tmp_path: Path) -> None:
    file = tmp_path / "inline.png"
    file.write_bytes(b"in a file")
    images = [{"bytes": b"%d" % i if i != 1 else None, "path": file.name} for i in range(8)]
    real = [float(i) if i != 2 else None for i in range(8)]
    table = pa.table({"number": range(8), "real": real, "text": ["a", None, *"cdefgh"], "image": images})
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=4)
    (batch,) = ndd.readers.Parquet(path=tmp_path / "x.parquet", random_shuffle=True, seed=5).next_epoch(8)
    numbers = values(batch, "number")
    assert sorted(numbers) == list(range(8)) != numbers
    assert [None if np.isnan(value) else value for value in values(batch, "real")] == [None if i == 2 else i for i in numbers]
    assert [bytes(value).decode() for value in values(batch, "text")] == ["" if i == 1 else "abcdefgh"[i] for i in numbers]
    assert [bytes(value) for value in values(batch, "image")] == [b"in a file" if i == 1 else b"%d" % i for i in numbers]


@pytest.mark.parametrize("options", [{}, {"random_shuffle": True}], ids=["in order", "in random order"])
def test_texts_and_numbers_of_many_row_groups(options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are copied by native code once their row groups are in memory."""
    table = {
        "number": pa.array(range(60), pa.int16()),
        "real": pa.array([None if k % 7 == 0 else k / 4 for k in range(60)]),
        "text": [None if k % 5 == 0 else "é" * k for k in range(60)],
        "wide": pa.array([b"w" * (k % 3) for k in range(60)], pa.large_binary()),
        "flag": [k % 3 == 0 for k in range(60)],
    }
    parquet.write_table(pa.table(table), tmp_path / "x.parquet", row_group_size=20)
    copies, copy = [], LocatedRows.copy
    monkeypatch.setattr(LocatedRows, "copy", lambda *arguments: copies.append(1) or copy(*arguments))
    reader = ndd.readers.Parquet(3, path=tmp_path / "x.parquet", **options)
    for _ in range(3):
        batches = list(reader)
        numbers = rows(batches)
        assert sorted(numbers) == list(range(60))
        np.testing.assert_array_equal(rows(batches, "real"), [np.nan if k % 7 == 0 else k / 4 for k in numbers])
        assert [bytes(text).decode() for text in rows(batches, "text")] == ["" if k % 5 == 0 else "é" * k for k in numbers]
        assert [bytes(text) for text in rows(batches, "wide")] == [b"w" * (k % 3) for k in numbers]
        assert rows(batches, "flag") == [k % 3 == 0 for k in numbers]
    assert len(copies) >= (20 if options else 3)


def test_samples_outside_of_the_row_groups_are_not_located() -> None:
    begins = np.array([0, 2, 2, 5])
    assert LocatedRows(np.array([4, 1, 0, 2]), begins, 1).groups == [0, 2]
    assert [LocatedRows(np.array([0, sample]), begins, 1).groups for sample in (-1, 5, 2**62, -(2**63))] == [[]] * 4


def test_located_rows_are_copied_in_any_order() -> None:
    """Rows that follow each other are copied together, unless they are of two row groups."""
    texts, begins = ["", "a", "bc", "def", "", "ghij", "k"], np.array([0, 3, 3, 7])
    columns = [Column("text", "text", ""), Column("number", "number", "")]
    tables = [pa.table({"text": texts[first:end], "number": list(range(first, end))}) for first, end in ((0, 3), (3, 3), (3, 7))]
    groups = [Group(table, columns, pa) for table in tables]
    draw = np.random.default_rng(0)
    orders = [[0, 1, 2, 3, 4, 5, 6], [2, 3, 3, 4, 6, 5, 0, 1], [6, 2], [4], *draw.integers(0, 7, (20, 9)).tolist()]
    for order in orders:
        located = LocatedRows(np.array(order), begins, 2)
        assert located.groups == sorted({2 * (sample > 2) for sample in order})
        batch = located.copy([groups[number] for number in located.groups], ["text", "number"])
        assert batch is not None
        assert [bytes(text).decode() for text in values(batch, "text")] == [texts[sample] for sample in order]
        assert values(batch, "number") == order


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


def test_urls_of_files_folders_and_patterns(path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/rows/x.parquet", path.read_bytes())
    for url in ("memory://rows/x.parquet", "memory://rows", "memory://rows/*.parquet"):
        assert rows(ndd.readers.Parquet(path=url).next_epoch(13)) == list(range(13))
    memory.rm("/rows", recursive=True)
    with pytest.raises(RuntimeError, match=r"memory://rows/x\.parquet"):
        next(ndd.readers.Parquet(path="memory://rows/x.parquet").next_epoch())


LISTS = {
    "equal": pa.array([[i, -i] for i in range(13)]),
    "fixed": pa.array([[i, i / 2] for i in range(13)], pa.list_(pa.float32(), 2)),
    "ragged": pa.array([list(range(i % 4)) for i in range(13)], pa.large_list(pa.int16())),
    "nested": pa.array([[[i, k] for k in range(i % 3)] for i in range(13)]),
    "flags": pa.array([[i % 2 == 0] * (1 + i % 2) for i in range(13)]),
    "holes": pa.array([[None if i == 5 else i / 4, 1.0] for i in range(13)]),
    "real": pa.array([None if i == 5 else i / 4 for i in range(13)]),
    "text": pa.array([None if i == 5 else "x" * i for i in range(13)]),
    "true": pa.array([i % 3 == 0 for i in range(13)]),
}


@pytest.mark.parametrize("options", [{}, {"random_shuffle": True, "seed": 3}], ids=str)
@pytest.mark.parametrize("batch_size", [1, 3, 5])
def test_lists_and_missing_values_in_any_order(batch_size: int, options: dict[str, Any], tmp_path: Path) -> None:
    parquet.write_table(pa.table({"number": range(13), **LISTS}), tmp_path / "x.parquet", row_group_size=4)
    delivered = []
    for batch in ndd.readers.Parquet(batch_size, path=tmp_path / "x.parquet", **options):
        numbers = batch["number"].torch().tolist()
        for name, column in LISTS.items():
            for number, sample in zip(numbers, batch[name].tensors, strict=True):
                wanted: Any = column[number].as_py()
                if name == "text":
                    assert bytes(sample) == (wanted or "").encode()
                    continue
                assert list(sample.shape) == list(np.shape(wanted)) or not np.size(wanted)
                np.testing.assert_array_equal(sample.torch().numpy().ravel(), np.array(wanted, float).ravel())
        delivered += numbers
    assert sorted(delivered) == list(range(13))


def test_batches_may_be_written_to(tmp_path: Path) -> None:
    """A batch has its own memory, although its row group stays in memory for the next epoch."""
    parquet.write_table(pa.table({"number": range(8), "list": [[k, k] for k in range(8)], "text": ["ab"] * 8}), tmp_path / "x.parquet")
    reader = ndd.readers.Parquet(path=tmp_path / "x.parquet")
    for _ in range(3):
        for batch in reader.next_epoch(4):
            assert batch["number"].torch().tolist() in ([0, 1, 2, 3], [4, 5, 6, 7])
            for column in batch.values():
                assert 99 not in column.torch()
                column.torch().fill_(99)


def test_images_next_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(b"outside")
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    images = pa.array([{"bytes": b"inside", "path": "0.jpg"}, {"bytes": None, "path": "1.jpg"}, {"bytes": None, "path": "2.jpg"}, None], kind)
    parquet.write_table(pa.table({"image": images}), tmp_path / "x.parquet")
    reader = ndd.readers.Parquet(1, path=tmp_path / "x.parquet", on_error="skip")
    assert [bytes(row) for row in rows(reader, "image")] == [b"inside", b"outside", b""]
    assert [(error.sample, "2.jpg" in error.reason) for error in reader.errors] == [(2, True)]


@pytest.mark.parametrize("path", ["{outside}", "../secret.txt", "images/../../secret.txt", "file://{outside}", "memory://x/secret.txt"])
def test_paths_that_leave_the_folder_are_bad_samples(path: str, tmp_path: Path) -> None:
    folder, secret = tmp_path / "table", tmp_path / "secret.txt"
    (folder / "images").mkdir(parents=True)
    secret.write_bytes(b"secret")
    (folder / "images/a.jpg").write_bytes(b"image")
    pytest.importorskip("fsspec").filesystem("memory").pipe_file("/x/secret.txt", b"secret")
    images = [{"bytes": None, "path": "images/a.jpg"}, {"bytes": None, "path": path.format(outside=secret)}]
    parquet.write_table(pa.table({"image": images}), folder / "x.parquet")
    reader = ndd.readers.Parquet(1, path=folder / "x.parquet", on_error="skip")
    assert [bytes(row) for row in rows(reader, "image")] == [b"image"]
    (error,) = reader.errors
    assert path.format(outside=secret) in error.reason
    assert "allow_any_path=True" in error.reason
    trusting = ndd.readers.Parquet(1, path=folder / "x.parquet", allow_any_path=True)
    assert [bytes(row) for row in rows(trusting, "image")] == [b"image", b"secret"]


def test_file_root_is_where_paths_begin(tmp_path: Path) -> None:
    for name in ("table", "images"):
        (tmp_path / name).mkdir()
    (tmp_path / "images/a.jpg").write_bytes(b"image")
    parquet.write_table(
        pa.table({"image": [{"bytes": None, "path": "a.jpg"}, {"bytes": None, "path": "../table/x.parquet"}]}), tmp_path / "table/x.parquet"
    )
    reader = ndd.readers.Parquet(1, path=tmp_path / "table/x.parquet", file_root=tmp_path / "images", on_error="skip")
    assert [bytes(row) for row in rows(reader, "image")] == [b"image"]
    assert len(reader.errors) == 1


def test_files_are_closed_after_errors(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    open_file = importlib.import_module("torch_ndd.readers.parquet").open_file
    monkeypatch.setattr("torch_ndd.readers.parquet.open_file", lambda *arguments: opened.append(open_file(*arguments)) or opened[-1])
    reader = ndd.readers.Parquet(path=path)
    with pytest.raises(ValueError, match="no column 'missing'"):
        reader.list_costs("missing")
    with pytest.raises(RuntimeError, match="not found"):
        ndd.readers.Parquet(path=path, columns="missing").scan()
    parquet.write_table(pa.table({"other": [1]}), tmp_path / "y.parquet")
    with pytest.raises(RuntimeError, match="does not have the columns"):
        ndd.readers.Parquet(path=[path, tmp_path / "y.parquet"]).scan()
    assert len(opened) >= 5
    assert all(file.closed for file in opened)


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


def test_errors_name_columns_that_differ_between_files_or_have_one_name(tmp_path: Path) -> None:
    first, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    parquet.write_table(pa.table({"x": [1], "y": ["a"]}), first)
    for table, text in (
        (pa.table({"x": pa.array([1], pa.int32()), "y": ["a"]}), r'it has \'x\' as int32, which is int64 in ".*a\.parquet"; columns='),
        (pa.table({"x": [1]}), r"it lacks 'y', which is string in"),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array(["a"])], names=["x", "x", "y"]), r"it has 'x' as int64 and int64,"),
    ):
        parquet.write_table(table, other)
        with pytest.raises(RuntimeError, match=r'readers\.Parquet: ".*b\.parquet" does not have the columns of ".*a\.parquet": ' + text):
            ndd.readers.Parquet(path=[first, other]).scan()
    with pytest.raises(RuntimeError, match=r"readers\.Parquet: several columns are named 'x'"):
        ndd.readers.Parquet(path=other).scan()
    assert rows(ndd.readers.Parquet(path=other, columns="y", max_batch_size=1), "y") == [[97]]


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
def test_resumes_anywhere(path: Path, options: dict[str, Any]) -> None:
    def make(rank: int, world: int, size: int) -> ndd.readers.Parquet:
        return ndd.readers.Parquet(size, path=path, columns=["number", "list"], shard_id=rank, num_shards=world, **options)

    assert assert_resumable(make).cuts > 60


def test_workers_share_the_rows(path: Path) -> None:
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


def test_a_row_group_is_in_memory_once() -> None:
    table = pa.table({"text": ["x" * 100] * 10_000, "number": range(10_000)}).combine_chunks()
    allocated = []
    for _ in range(5):  # the reader of an earlier test may still read ahead, and Arrow counts for the whole process
        before = pa.total_allocated_bytes()
        group = Group(table, [Column("text", "text", ""), Column("number", "number", "")], pa)
        allocated.append(pa.total_allocated_bytes() - before)
    assert min(allocated) < 100_000
    assert all(values is not None for values in group.values.values())


def test_the_size_of_a_row_group_counts_what_it_has_besides_its_table() -> None:
    columns = {
        "text": pa.array(["x" * k for k in range(100)]),
        "number": pa.array(range(100)),
        "real": pa.array([None, *range(99)], pa.float64()),
        "flag": pa.array([True] * 100),
        "pair": pa.array([[1.0, None]] * 100, pa.list_(pa.float64())),
        "ragged": pa.array([[1.0] * (k % 3) for k in range(100)], pa.list_(pa.float64())),
    }
    copied = {"text": 0, "number": 0, "real": 800, "flag": 100, "pair": 1600, "ragged": 8 * 101 + 8 * 100}
    for name, column in columns.items():
        table = pa.table({name: column})
        assert Group(table, [Column(name, name, "")], pa).bytes - table.nbytes == copied[name], name


def test_offsets_that_descend_are_not_followed() -> None:
    """Native code copies from where offsets point."""
    damaged = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(np.array([0, 3, 1, 4], np.int32).tobytes()), pa.py_buffer(b"abcd")])
    group = Group(pa.table({"a": damaged, "b": ["x", "yy", ""]}), [Column("a", "a", ""), Column("b", "b", "")], pa)
    assert group.values["a"] is None
    batch = gather("b", Rows([group], [2], np.array([2, 1]), np.array([1, 0])), None)
    assert batch is not None
    assert [bytes(sample) for sample in batch.tensors] == [b"yy", b""]


def test_threads_that_read_first_forget_the_parent_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet.write_table(pa.table({"number": list(range(8))}), tmp_path / "x.parquet", row_group_size=2)
    reader = ndd.readers.Parquet(path=tmp_path / "x.parquet")
    reader.scan()
    calls, forget = [], reader._forget_parent

    def forget_slowly() -> None:
        calls.append(threading.get_ident())
        time.sleep(0.05)  # the other thread comes meanwhile
        forget()

    monkeypatch.setattr(reader, "_forget_parent", forget_slowly)
    barrier = threading.Barrier(2)

    def read(first: int) -> list[int]:
        barrier.wait(10)
        return reader.read_samples(np.arange(first, 8, 2))["number"].torch().tolist()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(read, (0, 1))) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert len(calls) == 1


def test_reading_warns_of_nothing(forks: Forks, tmp_path: Path) -> None:
    """In a new process, because torch warns of memory that is not writable once."""
    parquet.write_table(pa.table({"number": list(range(8))}), tmp_path / "x.parquet")
    program = """
import sys, warnings
warnings.simplefilter("error")
import torch_ndd as ndd
print([batch["number"].torch().tolist() for batch in ndd.readers.Parquet(4, path=sys.argv[1])])
"""
    run = forks.run(program, tmp_path / "x.parquet")
    assert run.wait() == 0, run.errors
    assert run.output == "[[0, 1, 2, 3], [4, 5, 6, 7]]\n"


def test_a_row_group_of_two_batches_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second batch may be read before the first, on another thread."""
    parquet.write_table(pa.table({"number": range(100)}), tmp_path / "x.parquet", row_group_size=5)
    loaded, load = [], ndd.readers.Parquet._load_group
    monkeypatch.setattr(ndd.readers.Parquet, "_load_group", lambda self, group: loaded.append(group) or load(self, group))
    reader = ndd.readers.Parquet(path=tmp_path / "x.parquet")
    reader.scan()
    for samples in (np.arange(17, 34), np.arange(17)):
        assert reader.read_samples(samples)["number"].torch().tolist() == samples.tolist()
    assert sorted(loaded) == list(range(7))
    for begin in range(34, 100, 2):
        reader.read_samples(np.arange(begin, begin + 2))
    assert len(reader._loaded) <= 7
