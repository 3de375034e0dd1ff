# SPDX-License-Identifier: Apache-2.0
"""States of loaders in checkpoints of ``torch.distributed.checkpoint``, and data parallelism on a ``DeviceMesh``."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from _forks import Forked, Forks, torchrun_variables
from torch.distributed.device_mesh import init_device_mesh

import torch_ndd as ndd

RANK = """
import json, sys
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
import torch_ndd as ndd

kind, load, save, steps, dp, tp = sys.argv[1:4] + [int(number) for number in sys.argv[4:7]]
torch.distributed.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dp, tp), mesh_dim_names=("dp", "tp"))
shard = ndd.distributed.shard(mesh["dp"])
costs = [1 + k % 7 for k in range(120)]
batches = ndd.batches.Packed(10 if load == "none" else 12, costs, window=40)
if kind == "batches":
    loader = ndd.DataLoader(range(120), lambda numbers, plan: numbers, batches=batches, shuffle=True, seed=1, **shard)
elif kind == "skip":
    files = [f"{sys.argv[7]}/{k}" for k in range(120)]
    reader = ndd.readers.File(files=files, random_shuffle=True, on_error="skip", **shard)
    loader = ndd.DataLoader(reader, lambda contents, labels: labels.torch().view(-1), batch_size=4)
elif kind == "stream":
    import datasets
    stream = datasets.Dataset.from_dict({"x": list(range(120))}).to_iterable_dataset(num_shards=12)
    loader = ndd.DataLoader(ndd.readers.HuggingFaceStream(stream, parallel=2), lambda batch: batch["x"], batch_size=4, shuffle=True, seed=5, **shard)
saved = {"loader": ndd.distributed.Stateful(loader)}
if load != "none":
    dcp.load(saved, checkpoint_id=load)
numbers = []
for step, batch in enumerate(loader):
    numbers += batch.tolist()
    if step + 1 == steps:
        break
if save != "none":
    dcp.save(saved, checkpoint_id=save)
print(json.dumps([shard["shard_id"], numbers]), flush=True)
torch.distributed.destroy_process_group()
"""


def run_ranks(forks: Forks, dp: int, tp: int, kind: str, load: object, save: object, steps: int, folder: Path) -> list[list[int]]:
    """Return the samples of each data-parallel rank."""
    arguments = (kind, load, save, steps, dp, tp, folder)
    ranks: list[Forked] = [forks.run(RANK, *arguments, variables=variables) for variables in torchrun_variables(dp * tp)]
    for rank in ranks:
        assert rank.wait() == 0, rank.errors
    results = [json.loads(line) for rank in ranks for line in rank.output.splitlines() if line.startswith("[")]
    shards: dict[int, list[int]] = {}
    for shard, numbers in results:
        assert shards.setdefault(shard, numbers) == numbers  # tensor-parallel ranks read the same samples
    assert sorted(shards) == list(range(dp))
    return list(shards.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["batches", "skip", "stream"])
def test_checkpoint_of_four_ranks_resumes_on_three_then_on_two(kind: str, tmp_path: Path, forks: Forks) -> None:
    if kind == "stream":
        pytest.importorskip("datasets")
    for k in range(120):
        if k % 10 != 3:  # the others are missing
            (tmp_path / str(k)).write_bytes(bytes([k]))
    expected = [k for k in range(120) if kind != "skip" or k % 10 != 3]
    seen: list[int] = []
    for dp, tp, load, save, steps in ((2, 2, None, "first", 3), (3, 1, "first", "second", 2), (2, 1, "second", None, 10**6)):
        start, end = ("none" if name is None else tmp_path / name for name in (load, save))
        for numbers in run_ranks(forks, dp, tp, kind, start, end, steps, tmp_path):
            seen += numbers
    if kind == "batches":  # the last step repeats samples on ranks that have none left
        assert sorted(set(seen)) == expected
        assert len(seen) <= len(expected) + 10
    else:
        assert Counter(seen) == Counter(expected)


@pytest.fixture
def _single_process(tmp_path: Path) -> Any:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("_single_process")
def test_shard_of_a_mesh() -> None:
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    assert ndd.distributed.shard(mesh["dp"]) == ndd.distributed.shard(mesh) == {"shard_id": 0, "num_shards": 1}
    with pytest.raises(TypeError, match=r"mesh must be a DeviceMesh, such as mesh\['dp'\], got str"):
        ndd.distributed.shard("dp")  # pyright: ignore[reportArgumentType]


class _Mesh:
    """A mesh of (2, 3, 4) processes as process (1, 2, 3) sees its first two dimensions."""

    def get_coordinate(self) -> list[int]:
        return [1, 2]

    def size(self, dimension: int | None = None) -> int:
        return 6 if dimension is None else (2, 3)[dimension]


def test_places_of_a_mesh_are_numbered_row_by_row() -> None:
    assert ndd.distributed.shard(_Mesh()) == {"shard_id": 5, "num_shards": 6}  # pyright: ignore[reportArgumentType]


def test_stateful_rejects_other_objects_and_states() -> None:
    with pytest.raises(TypeError, match="loader must have state_dict and load_state_dict, got range"):
        ndd.distributed.Stateful(range(3))
    loader = ndd.distributed.Stateful(ndd.DataLoader(torch.utils.data.TensorDataset(torch.arange(4)), batch_size=1))
    state = loader.state_dict()
    for wrong in ({}, {"state": 3}, {"state": "{"}, {"state": "[]"}, {"state": json.dumps({"version": 2})}):
        with pytest.raises(ValueError, match=r"."):
            loader.load_state_dict(wrong)
    loader.load_state_dict(state)
