# SPDX-License-Identifier: Apache-2.0
"""Training with Lightning: ``torch_ndd.lightning.DataModule``. Extra ``[lightning]``."""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from ._core.context.pools import share_cpus
from ._core.context.states import anything, check_state, keys, whole, yes_or_no
from .batches._source import BatchSource
from .distributed import Shard, shard
from .loader import DataLoader
from .readers import Reader

__all__ = ["DataModule"]


def _parent() -> Any:
    try:
        return importlib.import_module("lightning.pytorch").LightningDataModule
    except ModuleNotFoundError:
        return object


_Parent = _parent()
_MAX_PLANNED = 1 << 24  # samples of an epoch; 300,000 are planned in a second
_STATE = keys({"steps": whole()}, version=anything, reader=anything, seed=anything, ended=yes_or_no)


class DataModule(_Parent):
    """Readers and the functions on their batches, for a Lightning ``Trainer``.

    The trainer's checkpoints contain the position in the data and in the random numbers, after any step. Training resumed from a checkpoint sees
    exactly the batches that would have followed, bit for bit; with another batch size or on another number of processes, each of the remaining
    samples of the epoch once.

    A ``torch_ndd.DataLoader`` given to the trainer without this module resumes too, if it has a length and ``configure_optimizers`` does not read
    ``estimated_stepping_batches``: Lightning 2.6 then does not restore the states of loaders.

    Each process of the trainer reads its shard. In training all processes must take the same number of steps: if shards differ by one sample, the
    smaller ones repeat their last one. The CPUs of a machine are divided among the trainer's processes on it (:func:`torch_ndd.get_num_threads`).

    With ``batches=`` among the options, which needs no ``batch_size``, epochs may differ in their number of steps. The trainer then takes its loader
    again for each epoch (``reload_dataloaders_every_n_epochs=1``), so it knows the length of each. It has none for epochs of more than 16
    million samples, whose planning would take a minute, and for costs that are read with the samples: pass it ``max_steps`` where a schedule needs
    a number. The batches are those of training and validation; a factory of loaders gives each its own.

    Args:
        train: Factory of the reader of the training data, called with ``shard_id`` and ``num_shards``, and on several processes ``pad_shards``:
            ``partial(ndd.readers.File, file_root="train", random_shuffle=True)``. It may return a ``ndd.DataLoader`` instead. Or a data set, which is
            read in random order unless ``shuffle=False``; or, for a single process, a reader or a ``ndd.DataLoader``.
        val: The validation data likewise, a data set in its own order; without it there is no validation. Nothing is padded there: each sample
        counts once.
        train_fn: Function on a batch in training; see :class:`torch_ndd.DataLoader`.
        val_fn: Function on a batch in validation.
        batch_size: Samples per batch of one process.
        val_batch_size: Samples per batch in validation; by default as in training.
        options: Further arguments of :class:`torch_ndd.DataLoader`. ``device`` is the trainer's by default.

    Raises:
        ImportError: Lightning is not installed.

    >>> import torch_ndd as ndd
    >>> data = DataModule(lambda **shard: ndd.readers.File(files=["a.jpg", "b.jpg"], **shard), batch_size=1)  # doctest: +SKIP
    """

    def __init__(
        self,
        train: Any,
        val: Any = None,
        *,
        train_fn: Callable[..., Any] | None = None,
        val_fn: Callable[..., Any] | None = None,
        batch_size: int | None = None,
        val_batch_size: int | None = None,
        **options: Any,
    ) -> None:
        if _Parent is object:
            raise ImportError("lightning.DataModule: Lightning is not installed: pip install torch_ndd[lightning]")
        if "fn" in options:
            raise TypeError("lightning.DataModule: got an unexpected keyword argument 'fn'; there are train_fn and val_fn")
        super().__init__()
        self.sources = {"train": train, "val": val}
        self._fns = {"train": train_fn, "val": val_fn}
        self._batch_sizes = {"train": batch_size, "val": val_batch_size or batch_size}
        self._options = options
        self._loaders: dict[str, tuple[Shard, DataLoader]] = {}
        self._train_loader: _TrainLoader | None = None  # the latest
        self._state: dict[str, Any] | None = None  # of the training data, for the loader that does not exist yet

    def train_dataloader(self) -> "_TrainLoader":
        """Return the training data, at their current position."""
        loader = self._train_loader = _TrainLoader(self._loader("train"), self.trainer)
        if self._state is not None:
            loader.load_state_dict(self._state)
            self._state = None
        if loader.differs_by_epoch and self.trainer is not None and loader.has_length():
            self.trainer.reload_dataloaders_every_n_epochs = 1  # it reads the length once, and would cut off longer epochs
        return loader

    def val_dataloader(self) -> DataLoader | list[Any]:
        """Return the validation data."""
        return self._loader("val") if self.sources["val"] is not None else []

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the training data, for a checkpoint."""
        if self._state is None and self._train_loader is not None:
            return self._train_loader.state_dict()
        return self._state or {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the position of a checkpoint.

        Raise ValueError for anything but a result of :meth:`state_dict`, with the key; the reader's part is checked when the loader is created.
        """
        self._state = None if state_dict == {} else check_state("lightning.DataModule", _STATE, state_dict)

    def _loader(self, stage: str) -> DataLoader:
        trainer = self.trainer
        here = shard() if trainer is None else Shard(shard_id=trainer.global_rank, num_shards=trainer.world_size)
        before, loader = self._loaders.get(stage, (None, None))
        if loader is not None and before == here:
            return loader
        if trainer is not None:
            share_cpus(trainer.num_devices)
        new_loader = self._new_loader(stage, here)
        if new_loader.reader.num_shards != here["num_shards"] or new_loader.reader.shard_id != here["shard_id"]:
            raise ValueError(f"lightning.DataModule: {stage} must give the reader the arguments that it gets: {dict(here)}")
        if new_loader.device is None and trainer is not None and trainer.strategy.root_device.type == "cuda":
            new_loader.device = trainer.strategy.root_device
        if loader is not None:  # the module was used by another trainer before
            new_loader.load_state_dict(loader.state_dict())
        self._loaders[stage] = here, new_loader
        return new_loader

    def _new_loader(self, stage: str, here: Shard) -> DataLoader:
        source = self.sources[stage]
        padding: dict[str, Any] = {"pad_shards": True} if stage == "train" and here["num_shards"] > 1 else {}
        if isinstance(source, Reader | DataLoader):
            new_loader: Any = source
        elif hasattr(source, "__getitem__"):
            options = {**self._options, "shuffle": stage == "train" and self._options.get("shuffle", True), **here, **padding}
            return DataLoader(source, self._fns[stage], batch_size=self._batch_sizes[stage], **options)
        elif callable(source):
            new_loader = source(**here, **padding)
        else:
            raise TypeError(
                f"lightning.DataModule: {stage} must be a factory of a reader, a data set, a reader or a torch_ndd.DataLoader, not {source!r}"
            )
        if isinstance(new_loader, Reader):
            new_loader = DataLoader(new_loader, self._fns[stage], batch_size=self._batch_sizes[stage], **self._options)
        if not isinstance(new_loader, DataLoader):
            raise TypeError(f"lightning.DataModule: {stage} must return a reader or a torch_ndd.DataLoader, not {type(new_loader).__name__}")
        return new_loader


class _TrainLoader:
    """A loader whose state is that of Lightning's next step.

    After the last batch of an epoch that is the start of the next one, although the loop over the loader is not over: Lightning requests no batch
    more than it needs, and ``limit_train_batches`` may make it need fewer than there are. From a source without a length it requests a batch more
    than it has used. Lightning also restores this state, in the middle of an epoch only, from its own collection of loaders; it is the same state.
    """

    def __init__(self, loader: DataLoader, trainer: Any) -> None:
        self.loader, self._trainer = loader, trainer
        self._length = 0  # of a resumed epoch, or of batches by cost
        self._first = 0  # steps of a resumed epoch before it
        self._states: dict[int, dict[str, Any]] = {}  # after the last two batches, by their number in the epoch

    def __iter__(self) -> Iterator[Any]:
        if self.loader._delivered:  # another epoch
            self._length, self._first, self._states = 0, 0, {}
        return _TrainLoop(self)

    def __len__(self) -> int:
        if self.differs_by_epoch:
            self._length = self._length or self._count_planned()
            return self._length
        # Lightning subtracts the steps before the checkpoint from this. If the checkpoint had larger batches or more processes, these steps and the
        # rest of the epoch are more than an epoch; if they are fewer, this loader just ends.
        return max(len(self.loader), self._length)

    def has_length(self) -> bool:
        """Return whether the number of steps is known."""
        try:
            return len(self) >= 0
        except TypeError:
            return False

    @property
    def differs_by_epoch(self) -> bool:
        """Whether epochs differ in their number of steps."""
        return isinstance(self.loader.reader, BatchSource) and not self.loader.reader.batches.divides

    def _count_planned(self) -> int:
        """Return the number of steps of the epoch that the next loop begins. Raise TypeError if it is not known."""
        source: Any = self.loader.reader
        position = self.loader.state_dict()["reader"]
        # A loop that Lightning left after its last step has not ended for the loader.
        epoch = position["epoch"] + (self.loader._delivered and source.has_begun(position))
        if source.reader.count_epoch_samples(epoch) > _MAX_PLANNED:
            raise TypeError(f"lightning.DataModule: the steps of more than {_MAX_PLANNED} samples are not planned for their number")
        return source.count_epoch_steps(epoch) + self._count_resumed()

    def _count_resumed(self) -> int:
        """Return the number of steps from which the trainer continues to count in an epoch that it begins."""
        if self._trainer is None:
            return 0
        loop = self._trainer.fit_loop
        counted = loop.epoch_loop.batch_progress.current
        # Of a checkpoint at the end of the last step of an epoch it keeps the number of the step: the step was not completed.
        return counted.ready if loop.restarting and counted.completed < counted.ready else 0

    def state_dict(self) -> dict[str, Any]:
        if self._trainer is None:
            return {**self.loader.state_dict(), "ended": False}
        steps = self._trainer.fit_loop.epoch_loop.batch_progress.current.ready
        state = self._states.get(steps) or self.loader.state_dict()
        begun = self.loader.reader.has_begun(state["reader"])
        return {**state, "ended": bool(begun and self._trainer.is_last_batch), "steps": steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        found = check_state("lightning.DataModule", _STATE, state)
        ended, steps = found.pop("ended"), found.pop("steps", 0)
        self.loader.load_state_dict(found)
        if ended:
            self.loader.set_epoch(found["reader"]["epoch"] + 1)
        self._states, self._length, self._first = {}, 0, 0
        try:
            # After the last of its batches Lightning begins another epoch, unless there are more batches now: then it goes on with this one.
            planned = self.differs_by_epoch and self._count_planned() > 0
            if planned and ended and self._trainer is not None:
                # If the trainer had not counted the epoch, it ends after as many steps as it had.
                progress = self._trainer.fit_loop.epoch_progress.current
                self._length = steps if progress.processed < progress.ready else 0
            elif steps and not (ended and steps >= len(self.loader)):
                self._first = steps
                self._length = steps + self.loader.reader.count_batches_left(self.loader.batch_size, self.loader.drop_last)
        except TypeError:  # a source without a length
            self._first = 0 if ended else steps


class _TrainLoop(Iterator[Any]):
    """One loop over a loader. It notes where the loader is after each batch that Lightning may not have used yet."""

    def __init__(self, owner: _TrainLoader) -> None:
        self._owner, self._batches, self._number = owner, iter(owner.loader), owner._first

    def __next__(self) -> Any:
        owner = self._owner
        try:
            batch = next(self._batches)
        except StopIteration:
            if owner._trainer is None:  # trainers get a new loader for each epoch
                owner._length = 0
            raise
        self._number += 1
        owner._states[self._number] = owner.loader.state_dict()
        owner._states.pop(self._number - 2, None)
        return batch
