# SPDX-License-Identifier: Apache-2.0
"""Two data sets joined by key."""

import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _slow_sources import Slow

import torch_ndd as ndd
from torch_ndd._core.values.batch import new_batch
from torch_ndd.readers._key_table import KeyTable, hash_keys
from torch_ndd.readers._keys import Keys, keys_of
from torch_ndd.testing import assert_resumable

Join = ndd.readers.Join


def rows(keys: Any, name: str) -> list[dict[str, Any]]:
    return [{"key": key, name: k} for k, key in enumerate(keys)]


def numbers(reader: ndd.readers.Reader, name: str, batch_size: int = 3) -> list[float]:
    return [value for batch in reader.next_epoch(batch_size) for value in batch[name].torch().tolist()]


KEYS: dict[str, list[Any]] = {
    "text": ["a", "bb", "", "d" * 50, "ee", "ü"],
    "bytes": [b"a", b"bb", b"", b"dd", b"e", b"f"],
    "int": [5, -1, 0, 2**62, 7, 8],
}


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_values_of_the_same_key_come_together(keys: list[Any]) -> None:
    reader = Join(rows(keys, "x"), rows(keys[::-1], "y"), on="key")
    batches = list(reader.next_epoch(3))
    assert [batch["x"].torch().tolist() for batch in batches] == [[0, 1, 2], [3, 4, 5]]
    assert [batch["y"].torch().tolist() for batch in batches] == [[5, 4, 3], [2, 1, 0]]


def test_orders_shards_and_states_are_those_of_a_reader() -> None:
    keys = [f"k{k}" for k in range(13)]

    def make(rank: int, world: int, batch_size: int) -> ndd.readers.Reader:
        return Join(rows(keys, "x"), rows(keys[::-1], "y"), batch_size, on="key", random_shuffle=True, shard_id=rank, num_shards=world)

    assert assert_resumable(make, batch_sizes=[3]).cuts > 10
    assert pickle.loads(pickle.dumps(make(0, 1, 2))).state_dict() == make(0, 1, 2).state_dict()


def test_an_archive_of_images_and_a_table_of_captions(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for k in range(20):
            for ending, content in (("jpg", bytes([k]) * (k + 1)), ("id", f"image {k}".encode())):
                info = tarfile.TarInfo(f"{k:03}.{ending}")
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    order = np.random.default_rng(0).permutation(20)
    table = {"id": [f"image {k}" for k in order], "caption": [f"caption {k}" for k in order], "score": [k / 2 for k in order]}
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(table), tmp_path / "b.parquet", row_group_size=6)
    images = ndd.Source(ndd.readers.Webdataset(paths=tmp_path / "a.tar", ext=["jpg", "id"]), lambda image, key: {"image": image, "id": key})
    reader = Join(images, ndd.readers.Parquet(path=tmp_path / "b.parquet"), on="id", random_shuffle=True)
    seen = []
    for batch in ndd.DataLoader(reader, batch_size=8):
        for image, caption, score in zip(batch["image"], batch["caption"], batch["score"].tolist(), strict=True):
            assert bytes(caption.tolist()).decode() == f"caption {image[0]}"
            assert score == image[0] / 2
            seen.append(int(image[0]))
    assert sorted(seen) == list(range(20))


def test_a_missing_key() -> None:
    left, right = rows("abcdef", "x"), rows("fdba", "y")
    with pytest.raises(RuntimeError, match=r"readers.Join: sample 2 \(list\[2\]\): right has no sample with the key 'c'"):
        list(Join(left, right, on="key").next_epoch(6))
    reader = Join(left, right, 3, on="key", missing="skip")
    batches = list(reader)
    assert [batch["x"].torch().tolist() for batch in batches] == [[0, 1, 3], [5]]
    assert [batch["y"].torch().tolist() for batch in batches] == [[3, 2, 1], [0]]
    assert not reader.errors
    with pytest.raises(ValueError, match="output 'y' is a number without an empty value"):
        list(Join(left, right, on="key", missing="empty").next_epoch(6))


def test_empty_values_for_missing_keys() -> None:
    right = [{"key": key, "score": float(k), "text": str(k), "tokens": torch.arange(k + 1)} for k, key in enumerate("ac")]
    batch, *_ = Join(rows("abc", "x"), right, on="key", missing="empty").next_epoch(3)
    assert np.array_equal(batch["score"].torch(), [0, np.nan, 1], equal_nan=True)
    assert batch["text"] == ["0", "", "1"]
    assert [sample.torch().tolist() for sample in batch["tokens"]] == [[0], [], [0, 1]]
    batch, *_ = Join(rows("xyz", "x"), right, on="key", missing="empty").next_epoch(3)
    assert batch["tokens"].shape == [(0,)] * 3
    assert batch["text"] == [""] * 3


def test_a_key_twice_on_the_right() -> None:
    with pytest.raises(RuntimeError, match=r"right has the key 'b' twice: sample 1 \(list\[1\]\) and sample 3 \(list\[3\]\)"):
        next(Join(rows("ab", "x"), rows("abcb", "y"), on="key").next_epoch(1))
    with pytest.raises(RuntimeError, match=r"right has the key -4 twice"):
        next(Join(rows([1], "x"), rows([1, -4, -4], "y"), on="key").next_epoch(1))


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: Join([1], [2], on="key", missing="none"), ValueError, "missing must be"),
        (lambda: Join(5, [2], on="key"), TypeError, "left must be a reader or a map-style data set"),
        (lambda: Join([1], iter([2]), on="key"), TypeError, "right needs random access"),
        (lambda: next(Join(rows("a", "x"), rows("a", "x"), on="key").next_epoch(1)), RuntimeError, "both sources have an output 'x'"),
        (lambda: next(Join(rows("a", "x"), [(1, 2)], on="key").next_epoch(1)), ValueError, "right has 2 outputs without names"),
        (lambda: next(Join(rows("a", "x"), [{"id": 1}], on="key").next_epoch(1)), ValueError, "right has no output 'key', but id"),
        (lambda: next(Join(rows([1], "x"), rows("a", "y"), on="key").next_epoch(1)), ValueError, "left are whole numbers, but those of right texts"),
        (lambda: next(Join(rows([1.5], "x"), rows([1.5], "y"), on="key").next_epoch(1)), ValueError, "keys must be whole numbers, texts or bytes"),
        (lambda: next(Join(rows("a", "x"), [], on="key").next_epoch(1)), RuntimeError, "right has no samples"),
    ],
)
def test_bad_arguments(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()


class Broken(torch.utils.data.Dataset[Any]):
    """Items with a key, of which one cannot be read after the keys were read."""

    def __init__(self) -> None:
        self.broken = False

    def __len__(self) -> int:
        return 4

    def __getitem__(self, k: int) -> Any:
        if k == 2 and self.broken:
            raise ValueError("broken")
        return {"key": "abcd"[k], "y": k}


def test_bad_samples_of_the_right() -> None:
    data = Broken()
    reader = Join(rows("dcba", "x"), data, on="key", on_error="skip", max_batch_size=4)
    reader.prepare_order()
    data.broken = True
    (batch,) = reader
    assert batch["y"].torch().tolist() == [3, 1, 0]
    assert [(error.sample, error.reason) for error in reader.errors] == [(1, "right: Broken[2]: ValueError: broken")]


def test_a_joined_source_of_a_mix() -> None:
    joined = Join(rows("abcd", "x"), rows("dba", "y"), on="key", missing="skip")
    mix = ndd.readers.Mix({"a": joined, "b": [{"key": "z", "x": 9, "y": 9}]}, weights={"a": 4, "b": 1}, epoch=5)
    (batch,) = list(ndd.DataLoader(mix, batch_size=5))
    assert batch["x"].tolist() == [0, 1, 9, 3]  # the sample without a partner is left out, and the others stay where they are
    assert not mix.errors


def texts(values: list[bytes]) -> Keys:
    return keys_of("readers.Join", "left", values)


def test_hashes_differ() -> None:
    values = [b"", b"\0", b"\0\0", b"a", b"b", b"a\0", *(str(k).encode() for k in range(100_000)), *(bytes(k) for k in range(3, 40))]
    hashes = hash_keys(texts(values), 5)
    assert len(set(hashes.tolist())) == len(values)
    assert hash_keys(texts(values[::-1]), 5).tolist() == hashes.tolist()[::-1]


def table_of(keys: list[Any]) -> KeyTable:
    """A table in which sample k has key k."""
    column = new_batch(torch.tensor(keys)) if isinstance(keys[0], int) else keys
    return KeyTable(lambda: iter([keys_of("", "", column)]), len(keys), 1, lambda first, second: None)


def test_keys_of_all_lengths_are_found() -> None:
    values = [bytes(range(length)) for length in range(40)]
    table = KeyTable(lambda: iter([texts(values[:7]), texts(values[7:])]), len(values), 2**64 - 1, lambda first, second: None)
    assert table.find(texts([*values[::-1], b"missing", b"\0\0"])).tolist() == [*range(39, -1, -1), -1, -1]


KEY_TYPES: dict[str, list[Any]] = {
    "text": [f"{k * 7 % 20:{1 + k % 5}}" for k in range(20)],
    "text of one length": [f"{k:02}" for k in range(20)],
    "bytes": [bytes(k) for k in range(20)],
    "int64": [3 * k - 30 for k in range(20)],
}


@pytest.mark.parametrize("keys", KEY_TYPES.values(), ids=KEY_TYPES)
def test_columns_of_a_table_are_those_of_its_reader(keys: list[Any], tmp_path: Path) -> None:
    """Rows of several groups, compared and copied in native code where all columns are contiguous, are equal to those that Arrow takes."""
    pyarrow = pytest.importorskip("pyarrow")
    columns = {
        "empty": ["" if k % 3 else "x" * k for k in range(20)],
        "small": pyarrow.array([k - 10 for k in range(20)], pyarrow.int8()),
        "half": pyarrow.array([k / 4 for k in range(20)], pyarrow.float32()),
        "large": pyarrow.array([str(k) for k in range(20)], pyarrow.large_string()),
        "day": pyarrow.array(range(20), pyarrow.date32()),
        "flag": [k % 2 == 0 for k in range(20)],
        "gap": [None if k % 2 else "a" for k in range(20)],
        "missing": [None if k % 2 else k / 4 for k in range(20)],
    }
    for name, more in (("contiguous", {}), ("mixed", {"pair": [[k, -k] for k in range(20)]})):
        path = tmp_path / f"{name}.parquet"
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table({"key": keys, **columns, **more}), path, row_group_size=6)
        right = ndd.readers.Parquet(path=path)
        order = np.random.default_rng(0).permutation(20)
        joined = Join([{"key": keys[k], "x": k} for k in order], right, on="key")
        expected = ndd.readers.Parquet(path=path)
        expected.scan()
        places = iter(order)
        for batch in joined.next_epoch(5):
            chosen = np.array([next(places) for _ in range(5)])
            column_of_keys = new_batch(torch.tensor([keys[k] for k in chosen])) if isinstance(keys[0], int) else [keys[k] for k in chosen]
            matched = right.read_matching("key", keys_of("", "", column_of_keys), table_of(keys))
            assert (matched is not None) == (name == "contiguous")
            for column, values in expected.read_samples(chosen).items():
                if column != "key":
                    assert batch[column].dtype == values.dtype
                    for sample, wanted in zip(batch[column].tensors, values.tensors, strict=True):
                        np.testing.assert_array_equal(sample.torch(), wanted.torch())
                    assert batch[column].sources[1] == values.sources[1]


def test_the_row_groups_of_the_right_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys come in any order, so the right is read as in random order."""
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"key": [f"k{k}" for k in range(64)], "y": range(64)})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "x.parquet", row_group_size=8)
    loaded, load = [], ndd.readers.Parquet._load_group
    monkeypatch.setattr(ndd.readers.Parquet, "_load_group", lambda self, group: loaded.append(group) or load(self, group))
    reader = Join(rows([f"k{k}" for k in range(64)], "x"), ndd.readers.Parquet(path=tmp_path / "x.parquet"), 8, on="key", random_shuffle=True)
    reader.prepare_order()
    loaded.clear()
    assert sorted(numbers(reader, "y", 8)) == list(range(64))
    assert sorted(loaded) == list(range(8))


def test_different_keys_with_one_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def colliding(keys: Keys, salt: int) -> np.ndarray:
        calls.append(salt)
        return np.zeros(len(keys.lengths), np.uint64) if len(calls) == 1 else hash_keys(keys, salt)

    monkeypatch.setattr("torch_ndd.readers._key_table.hash_keys", colliding)
    reader = Join(rows("abc", "x"), rows("cab", "y"), on="key")
    assert numbers(reader, "y") == [1, 2, 0]


def test_rows_with_other_keys_are_not_delivered(tmp_path: Path) -> None:
    """The table of keys may have the hash of a missing one: then the rows are compared one by one."""
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table({"key": ["a", "bb", "c"], "y": [0, 1, 2]}), tmp_path / "x.parquet")
    right = ndd.readers.Parquet(path=tmp_path / "x.parquet")
    right.scan()
    for _ in range(2):  # the second time all rows are in memory
        # What the table has for a sample is not the key in its row, or it has no sample.
        for keys, known in ((["a", "b"], ["a", "b"]), (["a", "cc"], ["a", "cc"]), (["a", "c"], ["a"]), (["c", "a"], ["c", "b", "a"])):
            assert right.read_matching("key", keys_of("", "", keys), table_of(known)) is None
        # A table of more samples than there are rows.
        assert right.read_matching("key", keys_of("", "", ["d"]), table_of(["a", "bb", "c", "d"])) is None
        # Columns of other types, and one that does not exist.
        assert right.read_matching("y", keys_of("", "", ["a"]), table_of(["a"])) is None
        assert right.read_matching("key", keys_of("", "", new_batch(torch.tensor([0]))), table_of([0])) is None
        assert right.read_matching("z", keys_of("", "", ["a"]), table_of(["a"])) is None
        matched = right.read_matching("key", keys_of("", "", ["c", "a"]), table_of(["a", "bb", "c"]))
        assert matched is not None
        assert matched["y"].torch().tolist() == [2, 0]


def test_missing_key_with_the_hash_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Join(rows("axc", "x"), rows("cab", "y"), on="key", missing="skip", max_batch_size=3)
    reader.prepare_order()
    places = {b"a": 1, b"c": 0, b"x": 2}
    monkeypatch.setattr(KeyTable, "find", lambda self, keys: np.array([places[keys.content(k)] for k in range(len(keys.lengths))]))
    (batch,) = reader
    assert batch["y"].torch().tolist() == [1, 0]


@pytest.mark.slow
def test_a_million_keys_of_a_table(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    order = np.random.default_rng(0).permutation(1_000_000)
    table = pyarrow.table({"key": [f"key {k}" for k in order.tolist()], "number": order})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "x.parquet")
    reader = Join(rows([f"key {k}" for k in range(0, 1_000_000, 997)], "x"), ndd.readers.Parquet(path=tmp_path / "x.parquet"), 64, on="key")
    found = [value for batch in reader for value in (batch["number"].torch() - batch["x"].torch() * 996).tolist()]
    assert len(json.dumps(reader.state_dict())) < 300
    assert found == list(range(1004))


def test_keys_of_another_device_are_not_read_by_address() -> None:
    """The device meta, which has no values, stands for a GPU."""
    for values in (torch.empty(2, dtype=torch.int64, device="meta"), torch.empty(2, 3, dtype=torch.uint8, device="meta")):
        with pytest.raises(NotImplementedError, match="meta"):
            keys_of("readers.Join", "left", new_batch(values))


def test_large_unsigned_keys_differ_from_negative_ones() -> None:
    large = np.array([2**64 - 1, 5, 2**63], np.uint64)
    right = [{"key": np.asarray(key), "y": k} for k, key in enumerate(large)]
    batch = next(Join([{"key": np.asarray(key), "x": k} for k, key in enumerate(large[::-1])], right, on="key").next_epoch(3))
    assert batch["y"].torch().tolist() == [2, 1, 0]
    with pytest.raises(RuntimeError, match="right has no sample with the key -1"):
        list(Join([{"key": np.array(-1), "x": 0}], right, on="key").next_epoch(1))
    with pytest.raises(RuntimeError, match=f"no sample with the key {2**63 + 1}"):
        list(Join([{"key": np.array(2**63 + 1, np.uint64), "x": 0}], right, on="key").next_epoch(1))


@pytest.mark.parametrize("slow", ["left", "right"])
def test_diagnose_names_the_slow_side(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = [{"key": k, "y": k} for k in range(8)]
    right = slow == "right"
    rows = Slow([{"key": k, "x": k} for k in range(8)], monkeypatch, None if right else 0)
    loader = ndd.DataLoader(Join(fast, rows, on="key") if right else Join(rows, fast, on="key"), batch_size=8)
    list(loader)
    assert loader.reader.describe_bottleneck()[0] == f"Slow of the source {slow!r}, which takes the most time"
