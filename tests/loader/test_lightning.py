# SPDX-License-Identifier: Apache-2.0
"""``torch_ndd.lightning.DataModule`` under a real Trainer."""

import importlib
import json
import os
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from _forks import Forks, torchrun_variables

import torch_ndd as ndd
import torch_ndd.lightning

L: Any = pytest.importorskip("lightning")
pytestmark = pytest.mark.filterwarnings("ignore")

FILES = 23


@pytest.fixture
def forks(lightning_forks: Forks) -> Forks:
    return lightning_forks


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    (tmp_path / "files").mkdir()
    for i in range(FILES):
        (tmp_path / f"files/{i:02}.bin").write_bytes(bytes([i, i]))
    return sorted((tmp_path / "files").iterdir())


def augment(values: ndd.Batch, labels: ndd.Batch) -> tuple[ndd.Batch, ndd.Batch, ndd.Batch]:
    return ndd.cast(values, dtype=ndd.float32), labels, ndd.random.uniform(batch_size=labels.batch_size)


def data_of(files: list[Path], batch_size: int = 4, **options: Any) -> Any:
    reader = partial(ndd.readers.File, files=files, random_shuffle=True)
    return torch_ndd.lightning.DataModule(reader, train_fn=augment, batch_size=batch_size, seed=3, **options)


class Model(L.LightningModule):
    """Records what it sees: labels and random numbers, batch by batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.seen: list[list[list[float]]] = []
        self.validated: list[list[int]] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        values, labels, drawn = batch
        self.seen.append([labels.flatten().tolist(), drawn.flatten().tolist()])
        return self.layer(values).mean()

    def validation_step(self, batch: Any, index: int) -> None:
        self.validated.append(batch[1].flatten().tolist())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class SaveAlways(L.Callback):
    """Saves a checkpoint at every possible place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.saved: list[tuple[int, Path]] = []  # batches before it, path

    def save(self, trainer: Any, module: Any, *_: Any) -> None:
        path = self.folder / f"{len(self.saved):03}.ckpt"
        trainer.save_checkpoint(path)
        self.saved.append((len(module.seen), path))

    on_train_batch_end = on_train_epoch_end = on_validation_end = save


def trainer_of(folder: Path, callbacks: Any = (), **options: Any) -> Any:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    options = {"max_epochs": 3, "num_sanity_val_steps": 0, **options}
    return L.Trainer(accelerator="cpu", default_root_dir=folder, callbacks=list(callbacks), **quiet, **options)


def seen_by(loader: ndd.DataLoader, epochs: int, limit: int | None = None) -> list[list[list[float]]]:
    """Return what the loader alone yields."""
    seen = []
    for _ in range(epochs):
        for step, (_, labels, drawn) in enumerate(loader):
            seen.append([labels.flatten().tolist(), drawn.flatten().tolist()])
            if step + 1 == limit:
                break
    return seen


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"limit_train_batches": 4},
        {"val": True},
        {"val": True, "val_check_interval": 2},
        {"val": True, "reload_dataloaders_every_n_epochs": 1},
        {"max_epochs": -1, "max_steps": 15},
        {"accumulate_grad_batches": 2},
    ],
    ids=str,
)
def test_resumed_anywhere(files: list[Path], tmp_path: Path, options: dict[str, Any]) -> None:
    """Training resumed from any checkpoint of a run sees what that run saw after it."""

    def data() -> Any:
        return data_of(files, val=partial(ndd.readers.File, files=files[:5]) if options.get("val") else None)

    trainer_options = {name: value for name, value in options.items() if name != "val"}
    model, saving = Model(), SaveAlways(tmp_path)
    trainer_of(tmp_path, [saving], **trainer_options).fit(model, datamodule=data())
    plain = ndd.DataLoader(ndd.readers.File(files=files, random_shuffle=True), augment, batch_size=4, seed=3)
    expected = seen_by(plain, 3, options.get("limit_train_batches"))[: options.get("max_steps")]
    assert model.seen == expected
    assert len(saving.saved) >= len(expected)
    for before, path in saving.saved:
        resumed = Model()
        trainer_of(tmp_path, **trainer_options).fit(resumed, datamodule=data(), ckpt_path=path)
        assert resumed.seen == expected[before:], f"saved after {before} batches: {path}"


@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_checkpoints_resume_with_another_batch_size(files: list[Path], tmp_path: Path, batch_size: int) -> None:
    """The rest of the interrupted epoch, each sample once, then whole epochs."""
    model, saving = Model(), SaveAlways(tmp_path)
    trainer_of(tmp_path, [saving], max_epochs=1).fit(model, datamodule=data_of(files))
    for before, path in saving.saved[1:6]:
        resumed = Model()
        trainer_of(tmp_path, max_epochs=3).fit(resumed, datamodule=data_of(files, batch_size), ckpt_path=path)
        labels = [label for batch in model.seen[:before] + resumed.seen for label in batch[0]]
        for epoch in range(3):
            assert sorted(labels[epoch * FILES : (epoch + 1) * FILES]) == list(range(FILES)), f"after {before} batches, epoch {epoch}"
        assert len(labels) == 3 * FILES


def test_validation_loaders(files: list[Path], tmp_path: Path) -> None:
    model = Model()
    data = data_of(files, val=partial(ndd.readers.File, files=files), val_batch_size=10)
    trainer_of(tmp_path, max_epochs=2, num_sanity_val_steps=1).fit(model, datamodule=data)
    assert model.validated == [list(range(10))] + [list(range(10)), list(range(10, 20)), [20, 21, 22]] * 2


def test_the_module_resumes_in_another_trainer(files: list[Path], tmp_path: Path) -> None:
    plain = ndd.DataLoader(ndd.readers.File(files=files, random_shuffle=True), augment, batch_size=4, seed=3)
    model, data = Model(), data_of(files)
    for _ in range(2):
        trainer_of(tmp_path, max_epochs=1).fit(model, datamodule=data)
    assert model.seen == seen_by(plain, 2)


def test_loaders_are_made_for_the_rank(files: list[Path]) -> None:
    values = []

    def train(**shard: Any) -> ndd.readers.Reader:
        values.append(shard)
        return ndd.readers.File(files=files, **shard)

    class Trainer:
        global_rank, world_size, num_devices, is_last_batch = 1, 2, 1, False
        strategy = type("Strategy", (), {"root_device": torch.device("cpu")})

    for val in (None, train):
        data = torch_ndd.lightning.DataModule(train, val, batch_size=4)
        data.trainer = Trainer()
        assert len(data.train_dataloader()) == 3
        assert data.train_dataloader().loader is data.train_dataloader().loader
        assert [labels.flatten().tolist() for _, labels in data.train_dataloader()] == [[11, 12, 13, 14], [15, 16, 17, 18], [19, 20, 21, 22]]
        assert bool(data.val_dataloader()) == bool(val)
    assert values == [{"shard_id": 1, "num_shards": 2, "pad_shards": True}] * 2 + [{"shard_id": 1, "num_shards": 2}]
    loader = ndd.DataLoader(ndd.readers.File(files=files), batch_size=4)
    data = torch_ndd.lightning.DataModule(lambda **shard: loader, batch_size=4)
    assert data.train_dataloader().loader is loader
    data.trainer = Trainer()
    with pytest.raises(ValueError, match="must give the reader the arguments"):
        data.train_dataloader()
    with pytest.raises(TypeError, match="must return a reader"):
        torch_ndd.lightning.DataModule(lambda **shard: files, batch_size=4).train_dataloader()
    with pytest.raises(TypeError, match="unexpected keyword argument 'fn'; there are train_fn and val_fn"):
        torch_ndd.lightning.DataModule(lambda **shard: files, fn=print, batch_size=4)


def test_without_lightning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    try:
        module = importlib.reload(torch_ndd.lightning)
        with pytest.raises(ImportError, match=r"pip install torch_ndd\[lightning\]"):
            module.DataModule(lambda **shard: ndd.readers.File(files=["a"]))
    finally:
        monkeypatch.undo()
        importlib.reload(torch_ndd.lightning)


TRAINING = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_lightning import L, Model, data_of, trainer_of

class Log(Model):
    def training_step(self, batch, index):
        loss = super().training_step(batch, index)
        with open(sys.argv[3], "a") as file:
            print(json.dumps([self.trainer.global_step, *self.seen[-1]]), file=file)
        return loss

folder = Path(sys.argv[2])
files = sorted((folder / "files").iterdir())
saved = sorted((folder / "saved").glob("*.ckpt"), key=lambda path: path.stat().st_mtime_ns)
trainer = trainer_of(folder, max_epochs=100_000)
saving = L.pytorch.callbacks.ModelCheckpoint(folder / "saved", every_n_train_steps=5, save_top_k=-1)
trainer.callbacks.append(saving)
trainer.fit(Log(), datamodule=data_of(files), ckpt_path=saved[-1] if saved else None)
"""


SEVERAL = """
import json, os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_lightning import L, Model, data_of, trainer_of
import torch_ndd as ndd

folder, steps = Path(sys.argv[2]), int(sys.argv[3])  # it kills itself after so many steps
class Log(Model):
    def training_step(self, batch, index):
        loss = super().training_step(batch, index)
        with open(folder / f"{self.name}-{self.trainer.global_rank}.log", "a") as file:
            print(json.dumps([self.trainer.current_epoch, self.trainer.global_step, self.seen[-1][0], ndd.get_num_threads()]), file=file)
        return loss

    def on_train_batch_end(self, *_):
        if self.trainer.global_step == steps:
            self.trainer.strategy.barrier()
            os.kill(os.getpid(), signal.SIGKILL)

files = sorted((folder / "files").iterdir())
for run in sys.argv[4:]:  # each from a checkpoint, if there is one of its name
    saved = folder / f"{run}.ckpt"
    trainer, model = trainer_of(folder, max_epochs=2, devices=2, strategy="ddp"), Log()
    model.name = run
    trainer.callbacks.append(L.pytorch.callbacks.ModelCheckpoint(folder / "saved", run + "-{step:03}", every_n_train_steps=2, save_top_k=-1))
    trainer.fit(model, datamodule=data_of(files, 3), ckpt_path=saved if saved.exists() else None)
"""


def run_two(forks: Forks, folder: Path, kill_at: int, *runs: str) -> list[int]:
    """As ``torchrun --nproc-per-node 2`` does it."""
    processes = [forks.run(SEVERAL, Path(__file__).parent, folder, kill_at, *runs, variables=variables) for variables in torchrun_variables(2)]
    codes = [process.wait(280) for process in processes]
    for process in processes:
        print(process.errors[-3000:])
    return codes


def lines_of(folder: Path, name: str) -> list[list[Any]]:
    """Epoch, step, labels, threads, of all ranks."""
    return [json.loads(line) for log in sorted(folder.glob(f"{name}-*.log")) for line in log.read_text().splitlines()]


@pytest.mark.slow
def test_several_processes(files: list[Path], tmp_path: Path, forks: Forks) -> None:
    """Two processes see each sample once per epoch; killed in the first epoch, they resume the rest, and so do one after two and two after one."""
    files.pop()  # 22 samples, 11 for each of two: steps of 3, 3, 3 and 2
    (tmp_path / "files" / f"{FILES - 1}.bin").unlink()
    everything = list(range(FILES - 1))
    assert run_two(forks, tmp_path, 3, "first") == [-signal.SIGKILL] * 2
    first = lines_of(tmp_path, "first")
    assert [line[:2] for line in first] == [[0, step] for step in range(3)] * 2
    (saved,) = (tmp_path / "saved").iterdir()
    assert saved.name == "first-step=002.ckpt"
    before = [label for line in first if line[1] < 2 for label in line[2]]
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    assert {line[3] for line in first} == {threads}

    value = Model()
    trainer_of(tmp_path, max_epochs=2).fit(value, datamodule=data_of(files, 3), ckpt_path=saved)
    assert [len(labels) for labels, _ in value.seen] == [3, 3, 3, 1, *[3] * 7, 1]
    assert sorted(before + [label for labels, _ in value.seen[:4] for label in labels]) == everything
    assert sorted(label for labels, _ in value.seen[4:] for label in labels) == everything

    alone, saving = Model(), SaveAlways(tmp_path)
    trainer_of(tmp_path, [saving], max_steps=3).fit(alone, datamodule=data_of(files, 3))
    assert saving.saved[2][0] == 3
    saving.saved[2][1].rename(tmp_path / "more.ckpt")
    saved.rename(tmp_path / "two.ckpt")
    assert run_two(forks, tmp_path, -1, "two", "more") == [0, 0]
    more = lines_of(tmp_path, "more")
    assert [(*line[:2], len(line[2])) for line in more] == [
        *((0, 3 + k, (3, 3, 1)[k]) for k in range(3)),
        *((1, 6 + k, (3, 3, 3, 2)[k]) for k in range(4)),
    ] * 2
    seen = [label for labels, _ in alone.seen for label in labels] + [label for line in more if line[0] == 0 for label in line[2]]
    assert sorted(set(seen)) == everything
    assert len(seen) == len(everything) + 1  # 13 were left for two
    assert sorted(label for line in more if line[0] == 1 for label in line[2]) == everything

    two = lines_of(tmp_path, "two")
    assert sorted(before + [label for line in two if line[0] == 0 for label in line[2]]) == everything
    assert sorted(label for line in two if line[0] == 1 for label in line[2]) == everything
    assert [line[1] for line in two] == [2, 3, 4, 5, 6, 7] * 2
    assert [line[2] for line in two if line[1] == 2] == [line[2] for line in first if line[1] == 2]  # exactly those batches


@pytest.mark.slow
@pytest.mark.figures
def test_kill_9(files: list[Path], tmp_path: Path, forks: Forks) -> None:
    """Processes killed at some step, each resumed from the last checkpoint before, yield one sequence."""
    generator, kills, steps, last = random.Random(1), 3, 0, 0
    plain = ndd.DataLoader(ndd.readers.File(files=files, random_shuffle=True), augment, batch_size=4, seed=3)
    expected: list[list[list[float]]] = []
    for run in range(kills):
        log = tmp_path / f"{run}.log"
        process = forks.run(TRAINING, Path(__file__).parent, tmp_path, log)
        wanted, end = generator.randint(6, 40), time.monotonic() + 120
        while time.monotonic() < end and (not log.exists() or log.read_bytes().count(b"\n") < wanted):
            assert process.poll() is None, process.errors
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("]")]
        assert len(lines) >= wanted
        first = lines[0][0]
        assert first % 5 == 0
        assert (last < first <= steps) if run else first == 0
        last, steps = first, first + len(lines)
        while len(expected) < steps:
            expected += seen_by(plain, 1)
        assert [line[0] for line in lines] == list(range(first, steps))
        assert [line[1:] for line in lines] == expected[first:steps]
    print(f"{kills} kills of a Lightning training, {steps} steps of {FILES / 4:.1f} an epoch, all batches the same")


class Numbers(torch.utils.data.IterableDataset[Any]):
    """Ten numbers, without a length."""

    def __iter__(self) -> Any:
        return iter(torch.arange(10))


class Estimating(Model):
    """Reads how many steps there will be, for which Lightning creates an iterator over the training data before it restores the loops."""

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        numbers = batch[0] if isinstance(batch, tuple | list) else batch
        self.seen.append(numbers.tolist())
        return self.layer(torch.zeros(1, 2)).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        assert self.trainer.estimated_stepping_batches
        return super().configure_optimizers()


class Plain(Estimating):
    configure_optimizers = Model.configure_optimizers


def of_reader() -> dict[str, Any]:
    reader = partial(ndd.readers.Dataset, [torch.tensor(i) for i in range(10)], random_shuffle=True)
    return {"datamodule": torch_ndd.lightning.DataModule(reader, batch_size=2, seed=5)}


def of_iterable() -> dict[str, Any]:
    return {"datamodule": torch_ndd.lightning.DataModule(lambda **shard: ndd.DataLoader(Numbers(), batch_size=2, seed=5, **shard))}


def of_loader() -> dict[str, Any]:
    return {"train_dataloaders": ndd.DataLoader([torch.tensor(i) for i in range(10)], batch_size=2, shuffle=True, seed=5)}


@pytest.mark.parametrize(("make", "model"), [(of_reader, Estimating), (of_iterable, Estimating), (of_iterable, Plain), (of_loader, Plain)])
def test_resumes_after_each_step(make: Any, model: type[Model], tmp_path: Path) -> None:
    whole, saving = model(), SaveAlways(tmp_path)
    saving.on_train_epoch_end = lambda *_: None
    trainer_of(tmp_path, [saving], max_epochs=2).fit(whole, **make())
    assert [len(batch) for batch in whole.seen] == [2] * 10
    for before, path in saving.saved[:9]:
        resumed = model()
        trainer_of(tmp_path, max_epochs=2).fit(resumed, ckpt_path=path, **make())
        assert resumed.seen == whole.seen[before:], f"saved after {before} batches"


def test_a_module_takes_data_sets_readers_and_loaders(files: list[Path], tmp_path: Path) -> None:
    numbers = [torch.tensor(i) for i in range(10)]

    def seen_of(data: Any) -> list[Any]:
        model = Plain()
        trainer_of(tmp_path, max_epochs=1).fit(model, datamodule=data)
        return model.seen

    shuffled = seen_of(torch_ndd.lightning.DataModule(numbers, batch_size=2, seed=5))
    assert sorted(x for batch in shuffled for x in batch) == list(range(10)) != [x for batch in shuffled for x in batch]
    in_order = [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert seen_of(torch_ndd.lightning.DataModule(numbers, batch_size=5, shuffle=False)) == in_order
    assert seen_of(torch_ndd.lightning.DataModule(ndd.readers.Dataset(numbers), batch_size=5)) == in_order
    assert seen_of(torch_ndd.lightning.DataModule(ndd.DataLoader(numbers, batch_size=5))) == in_order
    validation = torch_ndd.lightning.DataModule(numbers, numbers, batch_size=5).val_dataloader()
    assert [batch.tolist() for batch in validation] == in_order
    with pytest.raises(TypeError, match=r"train must be a factory of a reader, a data set, a reader or a .*DataLoader, not 3"):
        torch_ndd.lightning.DataModule(3).train_dataloader()


class Planned(Model):
    """Records the labels of the batches of a loader with batches by cost."""

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        values, labels, plan = batch
        self.seen.append([labels.flatten().tolist(), [plan.step, plan.epoch]])
        return self.layer(values).mean()


def planned_data(files: list[Path], budget: int = 40, validate: bool = False) -> Any:
    batches = ndd.batches.Packed(budget, list(range(1, FILES + 1)), window=8)

    def load(values: ndd.Batch, labels: ndd.Batch, plan: Any) -> Any:
        return ndd.cast(values, dtype=ndd.float32), labels, plan

    def load_validation(**shard: Any) -> Any:
        return ndd.DataLoader(ndd.readers.File(files=files[:5], **shard), batch_size=5)

    val = load_validation if validate else None
    return torch_ndd.lightning.DataModule(partial(ndd.readers.File, files=files, random_shuffle=True), val, train_fn=load, seed=3, batches=batches)


class Totals(L.Callback):
    """Notes what a progress bar shows: the steps of an epoch."""

    def __init__(self) -> None:
        self.totals: list[float] = []

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        self.totals.append(trainer.num_training_batches)


def test_the_module_has_a_length_without_a_trainer(files: list[Path]) -> None:
    loader = planned_data(files).train_dataloader()
    assert len(loader) == len(list(loader)) > 1
    # Epochs differ in length.
    lengths = [(len(loader), len(list(loader))) for _ in range(4)]
    assert all(promised == found for promised, found in lengths), lengths
    assert len(set(lengths)) > 1


def count_steps(model: Planned, epochs: int) -> list[int]:
    return [len([1 for _, (_, number) in model.seen if number == epoch]) for epoch in range(epochs)]


@pytest.mark.parametrize("options", [{}, {"val_check_interval": 0.5}, {"max_epochs": -1, "max_steps": 17}], ids=str)
def test_the_trainer_knows_the_steps_of_each_epoch(files: list[Path], tmp_path: Path, options: dict[str, Any]) -> None:
    model, totals = Planned(), Totals()
    options = {"max_epochs": 3, **options}
    trainer = trainer_of(tmp_path, callbacks=[totals], **options)
    trainer.fit(model, planned_data(files, validate=True))
    if "max_steps" not in options:
        assert len(set(totals.totals)) > 1
        assert totals.totals == count_steps(model, 3)
        assert trainer.estimated_stepping_batches == 3 * totals.totals[-1]
        assert len(model.validated) == 3 * (2 if "val_check_interval" in options else 1)
    assert len(model.seen) == options.get("max_steps", sum(totals.totals))


@pytest.mark.parametrize("kind", ["costs are read with the samples", "too many samples to plan"])
def test_epochs_without_a_known_number_of_steps_are_whole(kind: str, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def data() -> Any:
        if kind.startswith("too"):
            return planned_data(files)

        def load(values: ndd.Batch, labels: ndd.Batch, plan: Any) -> Any:
            return ndd.cast(values, dtype=ndd.float32), labels, plan

        batches = ndd.batches.Packed(40, lambda values, labels: labels.torch().flatten() + 1, window=8)
        return torch_ndd.lightning.DataModule(partial(ndd.readers.File, files=files, random_shuffle=True), train_fn=load, seed=3, batches=batches)

    monkeypatch.setattr("torch_ndd.lightning._MAX_PLANNED", 20)
    model, totals, saving = Planned(), Totals(), SaveAlways(tmp_path)
    trainer_of(tmp_path, callbacks=[totals, saving], max_epochs=3).fit(model, data())
    assert totals.totals == [float("inf")] * 3
    for epoch in range(3):
        assert sorted(label for labels, (_, number) in model.seen if number == epoch for label in labels) == list(range(FILES))
    last = count_steps(model, 1)[0]
    for before, path in [saving.saved[3], *(saved for saved in saving.saved if saved[0] == last)]:
        rest = Planned()
        trainer_of(tmp_path, max_epochs=3).fit(rest, data(), ckpt_path=path)
        assert rest.seen == model.seen[before:], path


@pytest.mark.parametrize("validate", [False, True])
def test_batches_by_cost_resume(files: list[Path], tmp_path: Path, validate: bool) -> None:
    whole, saving = Planned(), SaveAlways(tmp_path)
    trainer_of(tmp_path, callbacks=[saving], max_epochs=3).fit(whole, planned_data(files, validate=validate))
    for epoch in range(3):
        assert sorted(label for labels, (_, number) in whole.seen if number == epoch for label in labels) == list(range(FILES))
    assert len(set(count_steps(whole, 3))) > 1  # the epochs differ in length
    assert len(saving.saved) > 8
    for before, path in saving.saved:
        rest = Planned()
        trainer_of(tmp_path, max_epochs=3).fit(rest, planned_data(files, validate=validate), ckpt_path=path)
        assert rest.seen == whole.seen[before:], path
    before, path = saving.saved[2]
    other = Planned()
    trainer_of(tmp_path, max_epochs=1).fit(other, planned_data(files, budget=30), ckpt_path=path)
    assert sorted(label for labels, _ in [*whole.seen[:before], *other.seen] for label in labels) == list(range(FILES))
