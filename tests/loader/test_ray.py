# SPDX-License-Identifier: Apache-2.0
"""``torch_ndd.ray.map_batches``: one worker's calls, and a local Ray with two workers."""

import importlib.util
import io
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import torch_ndd as ndd
from torch_ndd.ray import _apply, map_batches

pytestmark = pytest.mark.slow


def jpeg(value: int, height: int = 8, width: int = 8) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((height, width, 3), value, np.uint8)).save(file, "jpeg", quality=100)
    return file.getvalue()


def column(values: list[Any]) -> np.ndarray:
    out = np.empty(len(values), object)
    out[:] = values
    return out


def apply(rows: dict[str, np.ndarray], fn: Any, columns: str | list[str] = "bytes", seed: int | None = None) -> dict[str, np.ndarray]:
    """Return a worker's result for one batch, with ``map_batches`` and a dataset of this one batch."""

    class Dataset:
        def map_batches(self, function: Any, *, fn_kwargs: Mapping[str, Any], batch_format: str, **options: Any) -> Any:
            assert batch_format == "numpy"
            assert (options["batch_size"], options["num_cpus"]) == (64, 1)
            return function(rows, **fn_kwargs)

    return map_batches(Dataset(), fn, columns=columns, seed=seed)


def test_images_become_batches() -> None:
    rows = {"bytes": column([jpeg(10 * i, 8 + i) for i in range(5)]), "path": np.array([f"{i}.jpg" for i in range(5)]), "label": np.arange(5)}
    out = apply(rows, lambda files: {"image": ndd.resize(ndd.decoders.image(files), size=[4, 4])})
    assert sorted(out) == ["image", "label", "path"]
    assert out["image"].shape == (5, 4, 4, 3)
    assert out["image"][:, 0, 0, 0].tolist() == [0, 10, 20, 30, 40]
    assert out["label"].tolist() == list(range(5))
    ragged = apply(rows, lambda files: {"bytes": ndd.decoders.image(files)})["bytes"]
    assert [value.shape for value in ragged] == [(8 + i, 8, 3) for i in range(5)]


def test_columns_of_every_kind() -> None:
    rows = {"a": np.arange(6, dtype=np.float32).reshape(3, 2), "b": column([np.zeros(i, np.int16) for i in range(3)]), "c": np.array([1, 2, 3])}

    def fn(b: ndd.Batch, a: ndd.Batch) -> dict[str, Any]:
        return {
            "sum": a + 1,
            "torch": a.torch() * 2,
            "list": [1, 2, 3],
            "lengths": [len(shape) and shape[0] for shape in b.shape],
            "a": np.ones((3, 1)),
        }

    out = apply(rows, fn, ["b", "a"])
    assert sorted(out) == ["a", "c", "lengths", "list", "sum", "torch"]
    assert out["sum"].tolist() == (rows["a"] + 1).tolist()
    assert out["torch"].tolist() == (rows["a"] * 2).tolist()
    assert out["lengths"].tolist() == [0, 1, 2]
    assert out["a"].shape == (3, 1)


def test_random_numbers_follow_the_contents() -> None:
    def fn(files: ndd.Batch) -> dict[str, ndd.Batch]:
        return {"x": ndd.random.uniform(batch_size=files.batch_size)}

    first, second = {"bytes": column([b"ab", b"c"])}, {"bytes": column([b"ab", b"d"])}
    value = apply(first, fn, seed=1)["x"].tolist()
    assert apply(second, fn, seed=1)["x"].tolist() != value
    assert apply(first, fn, seed=1)["x"].tolist() == value
    assert apply(first, fn, seed=2)["x"].tolist() != value
    assert apply(first, fn)["x"].tolist() != apply(first, fn)["x"].tolist()


def test_errors_name_the_row() -> None:
    rows = {"bytes": column([jpeg(1), b"no image"]), "path": np.array(["good.jpg", "bad.jpg"]), "text": np.array(["a", "b"])}
    with pytest.raises(RuntimeError, match=r"bad\.jpg"):
        apply(rows, lambda files: {"x": ndd.decoders.image(files)})
    with pytest.raises(TypeError, match="must return a dict"):
        apply(rows, lambda files: files)
    with pytest.raises(KeyError, match="column 'other' not found"):
        apply(rows, lambda files: {}, "other")
    with pytest.raises(TypeError, match="column 'text' has the type"):
        apply(rows, lambda files: {}, "text")
    with pytest.raises(ValueError, match="row 1 of column 'bytes' has no value"):
        apply({"bytes": column([b"a", None])}, lambda files: {})
    with pytest.raises(TypeError, match="row 0 of column 'bytes' is a str"):
        apply({"bytes": column(["a"])}, lambda files: {})
    with pytest.raises(ValueError, match="3 rows of 'x' for 2"):
        apply(rows, lambda files: {"x": [1, 2, 3]})
    with pytest.raises(TypeError, match=r"must be a ray\.data\.Dataset"):
        map_batches([1], lambda files: {})


def test_threads_are_limited() -> None:
    before = ndd.get_num_threads()
    try:
        _apply({"bytes": column([b"a"])}, lambda files: {"threads": [ndd.get_num_threads()]}, ["bytes"], None, 3)
        assert ndd.get_num_threads() == 3
    finally:
        ndd.set_num_threads(before)


PROGRAM = """
import json, sys, tempfile
from pathlib import Path
import numpy as np, ray, torch
from ray.train import Checkpoint, RunConfig, ScalingConfig, get_dataset_shard, report
from ray.train.torch import TorchTrainer
import torch_ndd as ndd
from torch_ndd.ray import map_batches

folder = Path(sys.argv[1])
files = sorted((folder / "files").iterdir())

def augment(contents):
    assert ndd.get_num_threads() == 1
    noise = ndd.random.uniform(range=[0, 0.5], batch_size=contents.batch_size)
    return {"value": ndd.reductions.max(ndd.cast(contents, dtype=ndd.float32), axes=[0]) + noise}

sizes = {"short": 30, "long": 14}

def mixed(**shard):
    numbers = {name: list(range(100 * k, 100 * k + size)) for k, (name, size) in enumerate(sizes.items())}
    mix = ndd.readers.Mix(numbers, epoch="once", random_shuffle=True, seed=1, **shard)
    return ndd.DataLoader(mix, lambda values, source: (values, source), batch_size=3, seed=1)

def packed(budget=12, **shard):
    numbers = list(range(44))
    reader = ndd.readers.Dataset(numbers, random_shuffle=True, seed=1)
    batches = ndd.batches.Packed(budget=budget, cost=[1 + k % 7 for k in numbers])
    return ndd.DataLoader(reader, lambda values, plan: (values, plan.step_cost), batches=batches, seed=1, **shard)

def train(config):
    rank = torch.distributed.get_rank()
    # Two steps of each, and the rest of the epoch after the checkpoint, in the driver.
    state, seen = {}, {}
    for name, loader in (("mixed", mixed(**ndd.distributed.shard())), ("packed", packed(**ndd.distributed.shard()))):
        steps = iter(loader)
        found = [next(steps) for _ in range(2)]
        seen[name], second = [values.tolist() for values, _ in found], [second for _, second in found]
        state[name] = loader.state_dict()
        everyone = [None, None]
        torch.distributed.all_gather_object(everyone, (state[name], second if name == "packed" else 0))
        assert everyone[0] == everyone[1], everyone  # the same state and the same cost of a step on all ranks
    (folder / f"steps-{rank}.json").write_text(json.dumps(seen))
    with tempfile.TemporaryDirectory() as saved:
        Path(saved, "state.json").write_text(json.dumps(state))
        report({}, checkpoint=Checkpoint.from_directory(saved) if rank == 0 else None)
    with open(folder / f"seen-{rank}.txt", "w") as out:
        reader = ndd.readers.File(files=files, random_shuffle=True, seed=1, **ndd.distributed.shard())
        for _, labels in ndd.DataLoader(reader, batch_size=3):
            print("loader", *labels.flatten().tolist(), file=out)
        for batch in get_dataset_shard("train").iter_torch_batches(batch_size=3):
            print("dataset", *batch["value"].int().tolist(), file=out)

ray.init(num_cpus=2, include_dashboard=False, object_store_memory=100 << 20)
dataset = ray.data.read_binary_files([str(file) for file in files], include_paths=True, override_num_blocks=2)
mapped = [map_batches(dataset, augment, batch_size=4, seed=seed) for seed in (1, 1, 2)]
runs = [{row["path"]: float(row["value"]) for row in one.take_all()} for one in mapped]
assert [int(runs[0][str(file)]) for file in files] == list(range(20)), runs[0]
assert runs[0] == runs[1]
assert runs[0] != runs[2]
two = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5})
stored = RunConfig(storage_path=str(folder / "results"))
result = TorchTrainer(train, scaling_config=two, datasets={"train": mapped[0].select_columns(["value"])}, run_config=stored).fit()
with result.checkpoint.as_directory() as saved:
    state = json.loads(Path(saved, "state.json").read_text())
steps = [json.loads((folder / f"steps-{rank}.json").read_text()) for rank in (0, 1)]
for name, rest in (("mixed", mixed()), ("packed", packed(budget=20))):
    rest.load_state_dict(state[name])
    seen = [number for rank in steps for step in rank[name] for number in step]
    assert len(seen) >= 8, seen
    seen += [number for values, _ in rest for number in values.tolist()]
    wanted = [*range(30), *range(100, 114)] if name == "mixed" else list(range(44))
    assert sorted(seen) == wanted, (name, seen)
lines = [line.split() for rank in (0, 1) for line in (folder / f"seen-{rank}.txt").read_text().splitlines()]
for name in ("loader", "dataset"):
    seen = sorted(int(number) for line in lines if line[0] == name for number in line[1:])
    assert seen == list(range(20)), (name, seen)
ray.shutdown()
print("each of 20 files once")
"""


@pytest.mark.skipif(importlib.util.find_spec("ray") is None and not os.environ.get("CI"), reason="pip install torch_ndd[ray]")
def test_local_ray(tmp_path: Path) -> None:
    """Ray Data with two workers, and Ray Train with two: each sample once, by loaders, a mix, batches by cost and the dataset.

    A checkpoint of two ranks of Ray Train resumes on one rank, with another budget. Runs in a separate process.
    """
    (tmp_path / "files").mkdir()
    for i in range(20):
        (tmp_path / f"files/{i:02}.bin").write_bytes(bytes([i]) * (i % 3 + 1))
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path)]
    # Nearly all of the time goes into processes that import Ray and torch. The monitoring ones are not needed here.
    variables = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}
    variables |= {"RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0", "RAY_TRAIN_METRICS_ENABLED": "0", "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=550, env=variables)
    assert run.returncode == 0, run.stderr[-5000:]
    assert run.stdout.splitlines()[-1] == "each of 20 files once"
