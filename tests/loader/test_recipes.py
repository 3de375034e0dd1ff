# SPDX-License-Identifier: Apache-2.0
"""Training with Fabric and with the Hugging Face Trainer: stopped at a step and resumed from a checkpoint, with the same batches.

Plain PyTorch, Lightning, ``torchrun`` and Ray have an example each in ``examples/``.
"""

import json
import sys
from importlib.machinery import ModuleSpec
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import torch_ndd as ndd

pytestmark = pytest.mark.filterwarnings("ignore")  # of these libraries

FILES = 23


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    (tmp_path / "files").mkdir()
    for i in range(FILES):
        (tmp_path / f"files/{i:02}.bin").write_bytes(bytes([i, i]))
    return sorted((tmp_path / "files").iterdir())


def augment(values: ndd.Batch, labels: ndd.Batch) -> dict[str, ndd.Batch]:
    noise = ndd.random.uniform(range=[0, 0.5], shape=[2], batch_size=labels.batch_size)
    return {"x": ndd.cast(values, dtype=ndd.float32) + noise, "labels": labels}


def loader_of(files: list[Path], rank: int, world: int) -> ndd.DataLoader:
    reader = ndd.readers.File(files=files, random_shuffle=True, shard_id=rank, num_shards=world)
    return ndd.DataLoader(reader, augment, batch_size=4, seed=3)


@pytest.fixture
def reference_batches(files: list[Path]) -> list[list[float]]:
    """The batches of three epochs."""
    loader = loader_of(files, 0, 1)
    return [batch["x"].flatten().tolist() for _ in range(3) for batch in loader]


def test_training_with_fabric_resumes(files: list[Path], tmp_path: Path, reference_batches: list[list[float]]) -> None:
    lightning = pytest.importorskip("lightning")
    checkpoint = tmp_path / "state.ckpt"

    def train(steps: int) -> list[list[float]]:
        fabric = lightning.Fabric(accelerator="cpu", devices=1)
        net = nn.Linear(2, 1)
        model, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.01))
        loader = loader_of(files, fabric.global_rank, fabric.world_size)
        loader.device = fabric.device
        state = {"model": model, "optimizer": optimizer, "loader": loader}
        if checkpoint.exists():
            fabric.load(checkpoint, state)
        seen: list[list[float]] = []
        while len(seen) < steps:
            for batch in islice(loader, steps - len(seen)):
                fabric.backward(model(batch["x"]).mean())
                optimizer.step()
                seen.append(batch["x"].flatten().tolist())
        fabric.save(checkpoint, state)
        return seen

    assert train(4) + train(5) + train(9) == reference_batches


@pytest.mark.slow
def test_hugging_face(files: list[Path], tmp_path: Path, reference_batches: list[list[float]], monkeypatch: pytest.MonkeyPatch) -> None:
    # transformers imports torchaudio if it is installed, which fails if it was built for another torch. It is not used here.
    unused = ModuleType("torchaudio")
    unused.__spec__ = ModuleSpec("torchaudio", None)
    monkeypatch.setitem(sys.modules, "torchaudio", unused)
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    seen: list[list[float]] = []

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            seen.append(x.flatten().tolist())
            return {"loss": nn.functional.mse_loss(self.layer(x), labels.float())}

    class Trainer(transformers.Trainer):
        """Take the batches from a ``ndd.DataLoader``."""

        def __init__(self, loader: ndd.DataLoader, **options: Any) -> None:
            self.loader = loader
            super().__init__(**options)

        def get_train_dataloader(self) -> ndd.DataLoader:
            return self.loader

    class SaveLoader(transformers.TrainerCallback):
        """Add the loader's state to each checkpoint."""

        def __init__(self, loader: ndd.DataLoader) -> None:
            self.loader = loader

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            (Path(args.output_dir) / f"checkpoint-{state.global_step}/loader.json").write_text(json.dumps(self.loader.state_dict()))

    def train(resume_from: Path | None = None) -> list[list[float]]:
        seen.clear()
        args = transformers.TrainingArguments(
            tmp_path / "out", num_train_epochs=3, save_steps=1, report_to=[], use_cpu=True, disable_tqdm=True, ignore_data_skip=True
        )
        loader = loader_of(files, args.process_index, args.world_size)
        if resume_from is not None:
            loader.load_state_dict(json.loads((resume_from / "loader.json").read_text()))
        trainer = Trainer(loader, model=Model(), args=args, callbacks=[SaveLoader(loader)])
        trainer.train(resume_from_checkpoint=None if resume_from is None else str(resume_from))
        assert trainer.state.global_step == 18
        return list(seen)

    assert train() == reference_batches
    for step in (1, 5, 6, 7, 11, 12, 17):
        assert train(tmp_path / f"out/checkpoint-{step}") == reference_batches[step:], f"resumed after step {step}"


@pytest.mark.parametrize("kind", ["data set", "reader"])
def test_skipping_batches_as_the_trainer_does_says_how_to_resume(kind: str) -> None:
    accelerate = pytest.importorskip("accelerate")
    data: Any = list(range(8)) if kind == "data set" else ndd.readers.Dataset(list(range(8)))
    with pytest.raises((AttributeError, RuntimeError), match=r"accelerate\.skip_first_batches.*load_state_dict\(saved\).*ignore_data_skip=True"):
        accelerate.skip_first_batches(ndd.DataLoader(data, batch_size=2), 1)


def test_other_attributes_are_as_missing_as_usual() -> None:
    loader = ndd.DataLoader(list(range(8)), batch_size=2)
    assert not hasattr(loader, "batch_sampler")
    assert not hasattr(loader, "num_workers")
    with pytest.raises(AttributeError, match=r"^'DataLoader' object has no attribute 'prefetchh'") as found:
        _ = loader.prefetchh  # type: ignore[attr-defined]
    assert found.value.name == "prefetchh"
