# SPDX-License-Identifier: Apache-2.0
"""readers.File against DALI's: files and labels, order, shards, padding, metadata, errors. The random orders are each library's own."""

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from _dali import assert_equal, dali
from _raises import Raises, raising

import torch_ndd as ndd

pytestmark = pytest.mark.filterwarnings("ignore:readers.File. hidden folders:UserWarning")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders and files whose order depends on how they are sorted; hidden, linked and empty ones; other endings."""
    root = tmp_path_factory.mktemp("files")
    for name in ("b", "a", "c10", "c2", "C1", ".hidden", "empty", "a/sub", "a/directory.jpg"):
        (root / name).mkdir()
    names = [f"{folder}/{i}.jpg" for folder in ("b", "a", "c10", "c2", "C1") for i in (2, 10, 1)]
    for name in [*names, "top.jpg", "a/X.JPG", "a/n.txt", "a/.hidden.jpg", ".hidden/1.jpg", "a/sub/1.jpg", "sp ace.jpg"]:
        (root / name).write_text(name)
    os.symlink(root / "b", root / "zlink")
    os.symlink(root / "b/1.jpg", root / "a/zlink.jpg")
    return root


def epochs(module: ModuleType, batch_size: int | None, steps: list[int | None], options: dict[str, Any]) -> list[Any]:
    """Return what some epochs yield, each left after this many steps, and the metadata."""
    reader = module.readers.File(**options)
    result: list[Any] = []
    for most in steps:
        for step, (files, labels) in enumerate(reader.next_epoch(batch_size=batch_size)):
            pairs = [(files, labels)] if batch_size is None else zip(files.tensors, labels.tensors, strict=True)
            result.append([(bytes(np.asarray(file)).decode(), np.asarray(label).tolist()) for file, label in pairs])
            if most == step + 1:
                break
        result.append("end")
    return [*result, dict(reader.get_metadata())]


def assert_same(options: dict[str, Any], batch_size: int | None = None, steps: list[int | None] | None = None, raises: Raises | None = None) -> None:
    assert_equal(lambda module: epochs(module, batch_size, steps or [None], options), raises)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dir_filters": ["a", "b*"]},
        {"dir_filters": "a", "file_filters": ["*.jpg"], "case_sensitive_filter": True},
        {"dir_filters": ["A"], "file_filters": ["1*", "*2.JPG"]},
        raising(RuntimeError, {"dir_filters": ["A"], "case_sensitive_filter": True}),
        {"file_filters": "*.txt"},
        raising(RuntimeError, {"file_filters": []}),
        raising(RuntimeError, {"dir_filters": []}),
        raising(RuntimeError, {"labels": [1]}),
        {"files": ["a/1.jpg", "b/2.jpg"]},
        {"files": ["a/1.jpg", "b/2.jpg"], "labels": [5, -3]},
        {"files": ["a/1.jpg", "b/2.jpg"], "labels": ["5", "-3"]},
        raising(RuntimeError, {"files": ["a/1.jpg", "b/2.jpg"], "labels": [5]}),
        {"files": ["a/1.jpg"], "file_filters": ["*.png"], "dir_filters": ["x"]},
        raising(RuntimeError, {"files": []}),
        {"files": "top.jpg"},
        raising(RuntimeError, {"files": ["a/1.jpg", "none.jpg"]}),
        raising(RuntimeError, {"files": ["a"]}),
        raising(RuntimeError, {"num_shards": 100}),
    ],
    ids=str,
)
def test_files_and_labels(root: Path, options: dict[str, Any], raises: Raises | None) -> None:
    assert_same({"file_root": str(root), **options}, raises=raises)


def test_paths_that_are_not_a_folder(root: Path) -> None:
    for place in (root / "none", root / "top.jpg", root / "empty", ""):
        assert_same({"file_root": str(place)}, raises=RuntimeError)
    assert_same({}, raises=RuntimeError)
    assert_same({"file_root": root})
    assert_same({"files": [root / "top.jpg"]})
    assert_same({"files": [root / "top.jpg"], "file_list": "x"}, raises=RuntimeError)


@pytest.mark.parametrize(
    "text",
    [
        "a/1.jpg 3\nb/1.jpg 4",
        "a/1.jpg\t3\r\n\n  \nsp ace.jpg   12  \n",
        raising(RuntimeError, "a/1.jpg\n"),
        raising(RuntimeError, "a/1.jpg x\n"),
        raising(RuntimeError, "a/1.jpg 1.5\n"),
        raising(RuntimeError, " a/1.jpg 3\n"),
        raising(RuntimeError, '"sp ace.jpg" 3\n'),
        raising(RuntimeError, ""),
    ],
)
@pytest.mark.parametrize("rooted", [True, False])
def test_file_list(root: Path, text: str, rooted: bool, raises: Raises | None) -> None:
    (root / "list.txt").write_text(text)
    assert_same({"file_list": str(root / "list.txt"), **({"file_root": str(root)} if rooted else {})}, raises=raises)


def test_absolute_paths_in_a_list(root: Path) -> None:
    (root / "list.txt").write_text(f"{root}/a/1.jpg 7\n")
    assert_same({"file_list": str(root / "list.txt"), "file_root": "/nowhere"})


ORDERS: list[dict[str, Any]] = [
    {},
    {"pad_last_batch": True},
    {"num_shards": 3},
    {"num_shards": 3, "shard_id": 2},
    {"num_shards": 3, "pad_last_batch": True},
    {"num_shards": 3, "shard_id": 1, "pad_last_batch": True},
    {"num_shards": 3, "stick_to_shard": True},
    {"num_shards": 3, "shard_id": 2, "stick_to_shard": True, "pad_last_batch": True},
    {"num_shards": 7, "shard_id": 1},
    {"num_shards": 7, "shard_id": 1, "pad_last_batch": True},
    {"num_shards": 10, "shard_id": 9},
]


@pytest.mark.parametrize("options", ORDERS, ids=str)
@pytest.mark.parametrize("batch_size", [None, 1, 2, 3, 4, 7, 16])
def test_order_shards_and_padding(root: Path, options: dict[str, Any], batch_size: int | None) -> None:
    files = {"files": [str(root / "top.jpg")] * 10}
    for steps in ([None] * 5, [1, None, None], [2, 1, None]):
        assert_same({**files, **options}, batch_size, steps)


@pytest.mark.parametrize(
    "options", [{"shard_id": 3, "num_shards": 3}, {"shard_id": -1}, {"num_shards": 0}, {"unknown": 1}, {"batch_size": 2}], ids=str
)
def test_constructor_errors(options: dict[str, Any]) -> None:
    for module in (dali, ndd):
        with pytest.raises((ValueError, TypeError)) as caught:
            module.readers.File(files=["x"], **options)
        assert caught.type is (TypeError if "unknown" in options or "batch_size" in options else ValueError)


@pytest.mark.parametrize("batch_size", [0, -1, 1.5, "a"])
def test_wrong_batch_sizes(root: Path, batch_size: Any) -> None:
    for module in (dali, ndd):
        with pytest.raises(RuntimeError):
            next(module.readers.File(files=[str(root / "top.jpg")]).next_epoch(batch_size=batch_size))


@pytest.mark.parametrize("options", [{"random_shuffle": True, "initial_fill": 3}, {"shuffle_after_epoch": True}], ids=str)
@pytest.mark.parametrize("shards", [1, 2])
def test_shuffling_delivers_the_same_set(root: Path, options: dict[str, Any], shards: int) -> None:
    for module in (dali, ndd):  # 3 of 5 samples have 54 orders
        readers = [module.readers.File(files=[str(root / "top.jpg")] * 10, num_shards=shards, shard_id=i, **options) for i in range(shards)]
        orders = [[[int(np.asarray(label)[0]) for _, label in reader.next_epoch()] for reader in readers] for _ in range(3)]
        assert all(sorted(label for part in order for label in part) == list(range(10)) for order in orders)
        assert len({str(order) for order in orders}) > 1
