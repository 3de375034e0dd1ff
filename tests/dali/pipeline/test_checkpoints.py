# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of pipelines and iterators: the restored one goes on exactly as the original."""

import json
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from core.context.test_hostile_states import HOSTILE, mutations

import torch_ndd.dali as ours
from torch_ndd.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

FILES = 23
NAMES = ["label", "number"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = tmp_path_factory.mktemp("files")
    for k in range(FILES):
        (result / f"{k:02d}.bin").write_bytes(bytes([k]))
    return result


def pipeline(dali: ModuleType, folder: Path, batch_size: int = 4, shard: int = 0, shards: int = 1, depth: int = 2, **options: Any) -> Any:
    reader = {key: options.pop(key) for key in ("pad_last_batch", "stick_to_shard", "random_shuffle") if key in options}
    settings = {"seed": 5, "enable_checkpointing": True, **options}

    @dali.pipeline_def(batch_size=batch_size, num_threads=1, prefetch_queue_depth=depth, device_id=None, **settings)
    def definition() -> Any:
        files = [str(folder / f"{k:02d}.bin") for k in range(FILES)]
        _, labels = dali.fn.readers.file(files=files, labels=list(range(FILES)), shard_id=shard, num_shards=shards, name="Reader", **reader)
        return labels, dali.fn.random.uniform(range=[0, 100], shape=[2])

    return definition()


def values(step: Any) -> Any:
    return [{key: value[key].tolist() for key in value} for value in step]


def following(loader: Any, steps: int) -> list[Any]:
    """The next steps, with the ends of epochs."""
    seen: list[Any] = []
    while True:
        for step in loader:
            seen.append(values(step))
            if len(seen) >= steps:
                return seen
        seen.append("end")


def sources(count: int, info: bool, batch: bool) -> Callable[[Any], Any]:
    def source(position: Any) -> np.ndarray:
        iteration = position if batch and not info else position.iteration
        if iteration >= count:
            raise StopIteration
        if batch:
            return np.full((3, 2), iteration + 100 * (position.epoch_idx if info else 0), np.int32)
        return np.array([position.idx_in_epoch, position.epoch_idx], np.int32)

    return source


@pytest.mark.parametrize("case", range(40))
def test_iterators_continue_exactly(folder: Path, case: int) -> None:
    draw = random.Random(case)
    shards = draw.choice([1, 1, 2, 3])
    options: dict[str, Any] = {
        "batch_size": draw.randrange(1, 6),
        "shards": shards,
        "depth": draw.randrange(1, 4),
        "pad_last_batch": draw.random() < 0.5,
        "stick_to_shard": draw.random() < 0.3,
        "random_shuffle": draw.random() < 0.5,
    }
    settings = {
        "reader_name": "Reader",
        "auto_reset": draw.random() < 0.5,
        "last_batch_policy": draw.choice(list(LastBatchPolicy)),
        "prepare_first_batch": draw.random() < 0.7,
    }
    ranks = list(range(shards)) if draw.random() < 0.5 else [draw.randrange(shards)]

    def loader(checkpoints: Any = None) -> DALIGenericIterator:
        pipes = [
            pipeline(ours, folder, shard=rank, checkpoint=None if checkpoints is None else checkpoints[k], **options) for k, rank in enumerate(ranks)
        ]
        return DALIGenericIterator(pipes, NAMES, **settings)

    original = loader()
    taken = draw.randrange(20)
    seen = following(original, taken) if taken else []
    saved = original.checkpoints()
    restored = loader(saved)
    assert iter(restored) is restored
    iter(original)
    assert len(restored) == len(original)
    assert restored.checkpoints() == original.checkpoints()
    assert following(restored, 15) == following(original, 15)
    assert len(restored) == len(original)
    assert restored.checkpoints() == original.checkpoints()
    if taken:
        assert following(loader(), taken) == seen


@pytest.mark.parametrize(("info", "batch"), [(False, True), (True, True), (False, False)])
@pytest.mark.parametrize("taken", [0, 2, 4, 5, 9])
def test_callable_sources_with_an_argument_continue_at_a_checkpoint(info: bool, batch: bool, taken: int) -> None:
    def make_pipe(checkpoint: bytes | None = None, depth: int = 3) -> Any:
        @ours.pipeline_def(batch_size=3, num_threads=1, prefetch_queue_depth=depth, enable_checkpointing=True, checkpoint=checkpoint, seed=3)
        def definition() -> Any:
            source = ours.fn.external_source(sources(4, info, batch), batch=batch, batch_info=info or None)
            return source, ours.fn.random.normal()

        return definition()

    def loader(pipe: Any) -> DALIGenericIterator:
        return DALIGenericIterator(pipe, NAMES)

    original = loader(make_pipe())
    following(original, taken) if taken else None
    saved = original.checkpoints()
    for depth in (1, 4):
        restored = loader(make_pipe(saved[0], depth))
        assert following(restored, 9) == following(loader(make_pipe(saved[0], 2)), 9)
    # A restored iterator that is at the end of an epoch begins the next one; the original has to find out that it is there.
    expected = following(original, 10)
    assert following(loader(make_pipe(saved[0])), 9)[:8] == expected[expected[0] == "end" :][:8]


@pytest.mark.parametrize("taken", range(1, 7))
@pytest.mark.parametrize("resets", [True, False])
def test_sized_iterators_of_sources_that_end_continue(taken: int, resets: bool) -> None:
    """Also one that is restored at the end of an epoch, before its source was asked for more than there is."""

    def loader(checkpoint: bytes | None = None) -> DALIGenericIterator:
        @ours.pipeline_def(batch_size=2, num_threads=1, enable_checkpointing=True, checkpoint=checkpoint)
        def definition() -> Any:
            return ours.fn.external_source(sources(3, True, False), batch=False)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # size instead of reader_name
            return DALIGenericIterator(definition(), ["x"], size=6, auto_reset=resets)

    def epoch(iterator: DALIGenericIterator) -> list[list[int]]:
        results = [batch[0]["x"].flatten().tolist() for batch in iterator]
        if not resets:
            iterator.reset()
        return results

    original = loader()
    seen = 0
    while seen < taken:
        for _ in original:
            seen += 1
            if seen == taken:
                break
        else:
            if not resets:
                original.reset()
    restored = loader(original.checkpoints()[0])
    expected = [epoch(original) for _ in range(3)]
    assert all(expected[1:])
    assert [epoch(restored) for _ in range(3)] == expected


def test_run_continues_after_the_last_delivered_iteration(folder: Path, tmp_path: Path) -> None:
    original = pipeline(ours, folder, depth=4, random_shuffle=True)
    assert original.checkpoint() == original.checkpoint()
    for _ in range(7):
        original.run()
    file = tmp_path / "state.json"
    saved = original.checkpoint(str(file))
    assert file.read_bytes() == saved
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]
    restored = pipeline(ours, folder, depth=1, random_shuffle=True, checkpoint=saved)
    restored.build()
    assert restored.is_restored_from_checkpoint
    assert not original.is_restored_from_checkpoint
    for _ in range(9):
        assert [output.as_array().tolist() for output in restored.run()] == [output.as_array().tolist() for output in original.run()]


def test_the_state_is_readable_and_small(folder: Path) -> None:
    pipe = pipeline(ours, folder)
    pipe.run()
    state = json.loads(pipe.checkpoint())
    assert state["kind"] == "checkpoint of a torch_ndd.dali pipeline"
    assert state["version"] == 1
    assert state["pipeline"]["number"] == 1
    assert "Reader" in state["pipeline"]["operations"]
    assert len(pipe.checkpoint()) < 1000


def test_checkpoints_resume_with_another_batch_size(folder: Path) -> None:
    original = pipeline(ours, folder, batch_size=5)
    labels = [label for _ in range(3) for label in original.run()[0].as_array().flatten().tolist()]
    restored = pipeline(ours, folder, batch_size=2, checkpoint=original.checkpoint())
    labels += [label for _ in range(4) for label in restored.run()[0].as_array().flatten().tolist()]
    assert labels == list(range(23))


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 3), (3, 1), (3, 2), (4, 5)])
@pytest.mark.parametrize("policy", [LastBatchPolicy.PARTIAL, LastBatchPolicy.FILL])
def test_another_number_of_shards(folder: Path, shuffled: bool, before: int, after: int, policy: LastBatchPolicy) -> None:
    def loaders(shards: int, batch_size: int, checkpoint: bytes | None = None) -> list[DALIGenericIterator]:
        return [
            DALIGenericIterator(
                pipeline(
                    ours, folder, batch_size, shard, shards, checkpoint=checkpoint, pad_last_batch=True, random_shuffle=shuffled
                ),
                NAMES,
                reader_name="Reader",
                last_batch_policy=policy,
            )
            for shard in range(shards)
        ]  # fmt: skip

    def labels(loader: DALIGenericIterator, steps: int | None = None) -> Iterator[int]:
        for k, step in enumerate(loader):
            yield from step[0]["label"].flatten().tolist()
            if k + 1 == steps:
                break

    original = loaders(before, 2)
    seen = [label for loader in original for label in labels(loader, 2)]
    checkpoints = {loader.checkpoints()[0] for loader in original}
    restored = loaders(after, 3, checkpoints.pop())
    assert len({len(loader) for loader in restored}) == 1
    parts = [list(labels(loader)) for loader in restored]
    everything = seen + [label for part in parts for label in part]
    if policy is LastBatchPolicy.PARTIAL:
        assert sorted(everything) == list(range(FILES))
    else:
        assert len({len(part) for part in parts}) == 1
        assert set(everything) == set(range(FILES))
    # The following epochs are whole.
    if policy is LastBatchPolicy.PARTIAL:
        for _ in range(2):
            assert sorted(label for loader in restored for label in labels(loader)) == list(range(FILES))


def test_refused_checkpoints(folder: Path) -> None:
    pipe = pipeline(ours, folder)
    pipe.run()
    saved = pipe.checkpoint()
    for checkpoint in (b"", b"garbage", b"\x80\x04}.", b"{}", b"[]", b"null", saved[:-5]):
        refused = pipeline(ours, folder, checkpoint=checkpoint)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="checkpoint cannot be restored"):
                refused.run()
    with pytest.raises(TypeError, match="takes the bytes"):
        pipeline(ours, folder, checkpoint=5).run()
    with pytest.raises(RuntimeError, match="enable_checkpointing=True"):
        pipeline(ours, folder, checkpoint=saved, enable_checkpointing=False).build()
    with pytest.raises(RuntimeError, match="enable_checkpointing=True"):
        pipeline(ours, folder, enable_checkpointing=False).checkpoint()
    with pytest.raises(ValueError, match="enable_checkpointing=True"):
        DALIGenericIterator(pipeline(ours, folder, enable_checkpointing=False), NAMES, reader_name="Reader").checkpoints()
    with pytest.raises(ValueError, match="enable_checkpointing"):
        DALIGenericIterator([pipeline(ours, folder), pipeline(ours, folder, enable_checkpointing=False)], NAMES, reader_name="Reader")

    def other(names: list[str]) -> Any:
        @ours.pipeline_def(batch_size=4, num_threads=1, enable_checkpointing=True, checkpoint=saved)
        def definition() -> Any:
            return tuple(ours.fn.random.uniform(name=name) for name in names)

        return definition()

    with pytest.raises(RuntimeError, match="another graph: it has no state"):
        other(["a"]).build()
    state = json.loads(saved)
    state["pipeline"]["operations"]["more"] = {"seed": 3}
    with pytest.raises(RuntimeError, match="another graph: it has an operator 'more'"):
        pipeline(ours, folder, checkpoint=json.dumps(state).encode()).build()


@pytest.mark.slow
@pytest.mark.parametrize("policy", LastBatchPolicy)
def test_hostile_checkpoints(folder: Path, policy: LastBatchPolicy) -> None:
    def loader(checkpoint: bytes | None = None) -> DALIGenericIterator:
        pipe = pipeline(ours, folder, shard=1, shards=3, checkpoint=checkpoint)
        return DALIGenericIterator(pipe, NAMES, reader_name="Reader", last_batch_policy=policy)

    original = loader()
    following(original, 5)
    state = json.loads(original.checkpoints()[0])
    taken = refused = 0
    cases = list(mutations(state, 300, 5))
    random.Random(7).shuffle(cases)
    for case in cases[:400]:
        try:
            text = json.dumps(case)
        except (TypeError, ValueError):
            continue
        try:
            restored = loader(text.encode())
        except RuntimeError as error:
            assert "cannot be restored" in str(error) or "there is not one batch" in str(error)  # noqa: PT017
            refused += 1
            continue
        following(restored, 3)
        taken += 1
    assert refused > 5 * taken > 0
    assert len(HOSTILE) > 20


def test_files_are_whole_or_unchanged(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = pipeline(ours, folder)
    file = tmp_path / "state"
    before = pipe.checkpoint(str(file))
    pipe.run()

    def fail(source: str, target: str, **_: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="full"):
        pipe.checkpoint(str(file))
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
