# SPDX-License-Identifier: Apache-2.0
"""The nodes for torchdata against DALI's."""

from pathlib import Path
from typing import Any

import pytest
from _raises import Raises, raising

pytest.importorskip("torchdata.nodes")

from _dali import assert_equal, dali

import torch_ndd as ndd


def epochs(module: Any, folder: Path, batch_size: int, **options: Any) -> list[Any]:
    nodes = module.pytorch.nodes
    files = [str(value) for value in sorted(folder.iterdir())]
    reader = nodes.Reader(module.readers.File, batch_size=batch_size, files=files, **options)
    node = nodes.ToTorch(nodes.DictMapper(reader, lambda data: data + 1))
    result: list[Any] = []
    for _ in range(3):
        node.reset()
        result.append([[value.tolist() for value in step] for step in node])
    return [*result, dict(reader.get_metadata())]


@pytest.mark.parametrize("options", [{}, {"pad_last_batch": True}, {"num_shards": 3, "shard_id": 1}], ids=str)
@pytest.mark.parametrize("batch_size", [1, 4])
def test_epochs_yield_the_same_batches(tmp_path: Path, batch_size: int, options: dict[str, Any]) -> None:
    for i in range(10):
        (tmp_path / f"{i}.jpg").write_bytes(bytes([i] * 3))
    assert epochs(ndd, tmp_path, batch_size, **options) == epochs(dali, tmp_path, batch_size, **options)


def first_step(module: Any, folder: Path, **options: Any) -> list[Any]:
    node = module.pytorch.nodes.Reader(module.readers.File, file_root=str(folder), **options)
    node.reset()
    return list(next(node))


@pytest.mark.parametrize("names", [None, ("a", "b"), "ab", raising(ValueError, ("a", "b", "c"))])
def test_output_names(tmp_path: Path, names: Any, raises: Raises | None) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/1.jpg").write_bytes(b"x")
    for batch_size in (1, None):
        assert_equal(lambda m, batch_size=batch_size: first_step(m, tmp_path, output_names=names, batch_size=batch_size), raises)
