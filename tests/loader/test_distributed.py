# SPDX-License-Identifier: Apache-2.0
"""Training with several processes."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from _forks import SCRIPT, Forks, torchrun_variables

import torch_ndd as ndd

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples/train_ddp.py"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)


def test_one_process() -> None:
    assert ndd.distributed.shard() == {"shard_id": 0, "num_shards": 1}


def test_shards_follow_the_variables_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(ValueError, match="set both"):
        ndd.distributed.shard()
    for world in ("2", "", "three", "-1"):
        monkeypatch.setenv("WORLD_SIZE", world)
        with pytest.raises(ValueError, match=r"WORLD_SIZE"):
            ndd.distributed.shard()
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert ndd.distributed.shard() == {"shard_id": 2, "num_shards": 3}
    reader = ndd.readers.File(files=["a", "b", "c"], **ndd.distributed.shard())
    assert reader.get_metadata()["shard_id"] == 2


def test_torch_distributed_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        assert ndd.distributed.shard() == {"shard_id": 0, "num_shards": 1}
    finally:
        torch.distributed.destroy_process_group()


def options_of(folder: Path, *options: str) -> list[str]:
    """Prepare for ``examples/train_ddp.py``, which records what it sees in ``folder/seen``."""
    (folder / "seen").mkdir(parents=True, exist_ok=True)
    return [str(folder / "digits"), "--seen", str(folder / "seen"), "--batch-size", "32", *options]


def torchrun(processes: int, folder: Path, *options: str) -> str:
    """Return the output of the example under ``torchrun``."""
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), str(EXAMPLE)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    for _ in range(3):
        run = subprocess.run([*command, *options_of(folder, *options)], capture_output=True, text=True, timeout=280, env=variables)
        # A thread of gloo that still holds a tensor when Python ends aborts the process (https://github.com/pytorch/pytorch/issues/190489).
        if "terminate called without an active exception" not in run.stderr:
            break
        shutil.rmtree(folder)
    assert run.returncode == 0, run.stderr
    return run.stdout


def run_processes(forks: Forks, processes: int, folder: Path, *options: str) -> list[str]:
    """Return the output of each process, started like ``torchrun`` starts them."""
    arguments = options_of(folder, *options)
    runs = [forks.run(SCRIPT, EXAMPLE, *arguments, variables=variables) for variables in torchrun_variables(processes)]
    for run in runs:
        assert run.wait(280) == 0, run.errors
    return [run.output for run in runs]


def count_seen(folder: Path, run: int, epoch: int, until: int = 10**9) -> Counter[int]:
    """Return how often each image was seen in an epoch by the processes of the run that began at step ``run``, until step ``until``."""
    lines = [list(map(int, line.split())) for file in folder.glob(f"seen/{run}-*.txt") for line in file.read_text().splitlines()]
    return Counter(number for line in lines if line[0] == epoch and line[1] <= until for number in line[2:])


def test_each_image_once_on_any_number_of_processes(tmp_path: Path, forks: Forks) -> None:
    once = Counter(range(1797))
    first = tmp_path / "2"
    # Saves after step 10 and stops after step 17, as if killed.
    assert torchrun(2, first, "--steps", "17", "--save-every", "10").startswith("epoch 0: 1088 images")
    assert count_seen(first, 0, 0).total() == 2 * 17 * 32
    before = count_seen(first, 0, 0, until=10)
    assert before.total() == 2 * 10 * 32

    for processes in (1, 3):
        folder = tmp_path / str(processes)
        shutil.copytree(first / "digits", folder / "digits")
        output = "".join(run_processes(forks, processes, folder, "--epochs", "2" if processes == 3 else "1"))
        assert before + count_seen(folder, 10, 0) == once
        assert f"epoch 0: {1797 - before.total()} images" in output
        if processes == 3:  # shards of 599 images; those of the other epoch had another number of steps
            assert "epoch 1: 1797 images" in output
            assert count_seen(folder, 10, 1) == once
