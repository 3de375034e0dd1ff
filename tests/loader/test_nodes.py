# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_ndd as ndd

torchdata = pytest.importorskip("torchdata.nodes")
nodes = ndd.pytorch.nodes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(10):
        (tmp_path / f"{i}.jpg").write_bytes(bytes([i] * 3))
    return tmp_path


def reader(folder: Path, batch_size: int | None = 4, **options: Any) -> Any:
    return nodes.Reader(ndd.readers.File, batch_size=batch_size, files=sorted(folder.iterdir()), **options)


def labels(steps: Any) -> list[list[int]]:
    return [label.flatten().tolist() for _, label in steps]


def test_epochs_are_those_of_the_reader(folder: Path) -> None:
    node = reader(folder)
    node.reset()
    first = next(node)
    assert list(first) == ["data", "label"]
    assert isinstance(first["data"], ndd.Batch)
    assert node.get_metadata()["epoch_size"] == 10
    torch_node = nodes.ToTorch(reader(folder))
    epochs = []
    for _ in range(3):
        torch_node.reset()
        epochs.append(labels(torch_node))
        with pytest.raises(StopIteration):
            next(torch_node)
    plain = ndd.readers.File(files=sorted(folder.iterdir()))
    assert epochs == [[value.torch().flatten().tolist() for _, value in plain.next_epoch(4)] for _ in range(3)]


def test_nodes_yield_samples(folder: Path) -> None:
    steps = list(reader(folder, None))
    assert all(isinstance(value, ndd.Tensor) for step in steps for value in step.values())
    assert [step["label"].item() for step in steps] == list(range(10))


def test_functions_and_torch(folder: Path) -> None:
    node = nodes.ToTorch(nodes.DictMapper(reader(folder), lambda data: data + 1))
    data, label = next(node)
    assert isinstance(data, torch.Tensor)
    assert data.tolist() == [[i + 1] * 3 for i in range(4)]
    assert label.flatten().tolist() == [0, 1, 2, 3]
    original = {"data": 1, "label": 2}
    mapper = nodes.DictMapper(torchdata.IterableWrapper([original]), lambda data: data + 1)
    assert next(mapper) == {"data": 2, "label": 2}
    assert original["data"] == 1
    with pytest.raises(KeyError, match="none"):
        next(nodes.DictMapper(reader(folder), abs, key="none"))


def test_samples_of_different_shapes(folder: Path) -> None:
    (folder / "0.jpg").write_bytes(b"longer")
    with pytest.raises(ValueError, match="non-uniform"):
        next(nodes.ToTorch(reader(folder)))


def test_outputs_have_the_given_names(folder: Path, tmp_path: Path) -> None:
    assert list(next(reader(folder, output_names=("image", "number")))) == ["image", "number"]
    with pytest.raises(ValueError, match=r"Number of output names does not match.*3 names.* 2"):
        next(reader(folder, output_names=("a", "b", "c")))
    annotations = {"images": [{"id": 1, "file_name": "1.jpg"}]}
    (tmp_path / "a.json").write_text(json.dumps(annotations))
    options = {"batch_size": 1, "annotations_file": tmp_path / "a.json", "file_root": folder}
    with pytest.raises(ValueError, match="Cannot infer output names for reader COCO"):
        next(nodes.Reader(ndd.readers.COCO, **options))
    assert list(next(nodes.Reader(ndd.readers.COCO, output_names=("i", "b", "l"), **options))) == ["i", "b", "l"]


def test_next_needs_reset(folder: Path) -> None:
    with pytest.raises(RuntimeError, match=r"before reset"):
        reader(folder).next()


@pytest.mark.parametrize("options", [{}, {"random_shuffle": True, "seed": 5}, {"num_shards": 3, "shard_id": 1}, {"pad_last_batch": True}], ids=str)
@pytest.mark.parametrize("batch_size", [1, 3, 4])
def test_resume_at_every_step(folder: Path, batch_size: int, options: dict[str, Any]) -> None:
    def node() -> Any:
        return nodes.ToTorch(reader(folder, batch_size, **options))

    whole = node()
    expected = []
    for _ in range(3):
        whole.reset()
        expected.append(labels(whole))
    for cut in range(len(expected[0]) + 1):
        first = node()
        first.reset()
        begun = labels(islice(first, cut))
        state = json.loads(json.dumps(first.state_dict()))
        assert len(json.dumps(state)) < 4096
        second = node()
        second.reset(state)
        rest = labels(second)
        assert [*begun, *rest] == expected[0]
        for epoch in expected[1:]:
            second.reset()
            assert labels(second) == epoch


def test_reset_takes_a_state_of_another_batch_size(folder: Path) -> None:
    first = reader(folder, 4)
    next(first)
    second = nodes.ToTorch(reader(folder, 3))
    second.reset({"source": first.state_dict()})
    assert labels(second) == [[4, 5, 6], [7, 8, 9], [0, 1, 2]]  # of the 8 remaining samples


def test_a_reset_before_the_first_batch_keeps_the_state(folder: Path) -> None:
    first = reader(folder, 4)
    next(first)
    second = nodes.ToTorch(reader(folder, 4))
    second.reset({"source": first.state_dict()})
    second.reset()
    assert labels(second) == [[4, 5, 6, 7], [8, 9, 0, 1]]
    second.reset()
    assert labels(second) == [[2, 3, 4, 5], [6, 7, 8, 9], [0, 1, 2, 3]]


@pytest.mark.parametrize("prefetch", [None, 1, 3])
def test_nodes_run_in_a_loader(folder: Path, prefetch: int | None) -> None:
    def loader() -> Any:
        node = nodes.ToTorch(nodes.DictMapper(reader(folder, 3, random_shuffle=True), lambda data: data * 2))
        return torchdata.Loader(node if prefetch is None else torchdata.Prefetcher(node, prefetch))

    whole = loader()
    expected = [labels(whole) for _ in range(2)]
    for cut in range(1, 5):
        first = loader()
        begun = labels(islice(iter(first), cut))
        second = loader()
        second.load_state_dict(first.state_dict())
        rest = labels(second)
        if cut < 4:
            assert [*begun, *rest] == expected[0]
            assert labels(second) == expected[1]
        else:  # nothing remains of a finished epoch, and the Loader begins the next one
            assert rest == expected[1]


def test_without_torchdata() -> None:
    program = """if True:
        import sys, importlib.abc
        class Missing(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] == "torchdata":
                    raise ModuleNotFoundError(name)
        import importlib.util
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name, package=None: None if name.split(".")[0] == "torchdata" else found(name, package)
        import torch_ndd as ndd
        assert not hasattr(ndd.pytorch, "nodes")
        assert "torchdata" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
