# SPDX-License-Identifier: Apache-2.0
"""An error comes in place of its batch; a loop that goes on yields the next batch, and a state continues there."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_ndd as ndd
import torch_ndd.dali as dali
from torch_ndd.dali.plugin.pytorch import DALIGenericIterator
from torch_ndd.pytorch import nodes

# The files 5 and 6 are missing: the third and the fourth batch of two fail.
COUNT, MISSING = 14, (5, 6)
BATCHES = [[0, 1], [2, 3], "error", "error", [8, 9], [10, 11], [12, 13]]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for k in range(COUNT):
        if k not in MISSING:
            (tmp_path / f"{k}.bin").write_bytes(bytes([k]))
    return [tmp_path / f"{k}.bin" for k in range(COUNT)]


class Numbers(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, k: int) -> torch.Tensor:
        if k in MISSING:
            raise OSError(f"{k}.bin is missing")
        return torch.tensor([k], dtype=torch.uint8)


class Mapped(torch.utils.data.IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return map(Numbers().__getitem__, range(COUNT))


def drain(loop: Iterator[Any], most: int = 2 * COUNT) -> list[Any]:
    """Return the numbers of the rest of a loop, "error" for each batch that fails."""
    found: list[Any] = []
    for _ in range(most):
        try:
            batch = next(loop)
        except StopIteration:
            return found
        except Exception as error:
            found.append("error" if ".bin" in str(error) else str(error))
            continue
        while not isinstance(batch, torch.Tensor):
            batch = batch.torch() if isinstance(batch, ndd.Batch) else next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
        found.append(batch.flatten().tolist())
    return found


def read(files: list[Path], **options: Any) -> ndd.readers.File:
    return ndd.readers.File(files=files, max_batch_size=2, **options)


LOADERS: dict[str, Callable[[list[Path]], ndd.DataLoader]] = {
    "program's thread": lambda files: ndd.DataLoader(read(files), batch_size=2, prefetch=0),
    "prefetch 1": lambda files: ndd.DataLoader(read(files), batch_size=2, prefetch=1),
    "prefetch 4": lambda files: ndd.DataLoader(read(files, prefetch_queue_depth=3), lambda data, _: data, batch_size=2, prefetch=4),
    "items": lambda files: ndd.DataLoader(Numbers(), batch_size=2),
    "items here": lambda files: ndd.DataLoader(Numbers(), batch_size=2, num_workers=0),
    "items in processes": lambda files: ndd.DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context="fork"),
    "iterable": lambda files: ndd.DataLoader(Mapped(), batch_size=2),
    "iterable in a process": lambda files: ndd.DataLoader(Mapped(), batch_size=2, num_workers=1, multiprocessing_context="fork"),
    "mix": lambda files: ndd.DataLoader(ndd.readers.Mix({"a": read(files)}), batch_size=2),
    "in step": lambda files: ndd.DataLoader({"a": read(files), "b": read(files)}, batch_size=2),
    "batches by cost": lambda files: ndd.DataLoader(read(files), batches=ndd.batches.Packed(2, cost=[1] * COUNT)),
}


@pytest.mark.parametrize("name", LOADERS)
def test_a_loader_goes_on_after_batches_that_cannot_be_read(name: str, files: list[Path]) -> None:
    expected = drain(iter(LOADERS[name](files)))
    assert 1 <= expected.count("error") <= 2
    if name != "batches by cost":
        assert expected == BATCHES
    loader = LOADERS[name](files)
    loop = iter(loader)
    for k in range(len(expected)):
        assert drain(loop, most=1) == expected[k : k + 1]
        resumed = LOADERS[name](files)
        resumed.load_state_dict(loader.state_dict())
        assert drain(iter(resumed)) == expected[k + 1 :] if k + 1 < len(expected) else True
    assert drain(loop) == []
    assert "error" in drain(iter(loader))  # the next epoch


@pytest.mark.parametrize("name", LOADERS)
def test_a_loop_after_one_that_only_failed_yields_the_rest(name: str, files: list[Path]) -> None:
    loader, whole = LOADERS[name](files), drain(iter(LOADERS[name](files)))
    first = whole.index("error")
    loop = iter(loader)
    drain(loop, most=first)
    resumed = LOADERS[name](files)
    resumed.load_state_dict(loader.state_dict())
    with pytest.raises(RuntimeError):
        next(iter(resumed))
    assert drain(iter(resumed)) == whole[first + 1 :]


@pytest.mark.parametrize("mode", ["deferred", "eager", "sync_cpu", "sync_full"])
@pytest.mark.parametrize("capture", [False, True])
def test_next_epoch_goes_on_after_a_batch_that_cannot_be_read(mode: str, capture: bool, files: list[Path]) -> None:
    reader = read(files)
    with ndd.EvalMode[mode]:
        epoch = reader.next_epoch(batch_size=2, capture=capture)
        found = []
        for k in range(len(BATCHES)):
            try:
                found.append((next(epoch)[0] + 1).torch().flatten().tolist())
            except RuntimeError as error:
                found.append("error" if ".bin" in str(error) else str(error))
            state = reader.state_dict()
            resumed = read(files)
            resumed.load_state_dict(state)
            assert drain(iter(resumed)) == BATCHES[k + 1 :] or k + 1 == len(BATCHES)
    assert found == [batch if isinstance(batch, str) else [n + 1 for n in batch] for batch in BATCHES]
    assert drain(epoch) == []


def test_a_call_of_a_reader_goes_on_after_a_batch_that_cannot_be_read(files: list[Path]) -> None:
    reader = read(files)
    assert drain(iter(lambda: reader(), None), most=9) == [*BATCHES, [0, 1], [2, 3]]


@pytest.mark.parametrize("workers", [0, 2])
def test_torch_loaders_go_on_after_a_batch_that_cannot_be_read(workers: int, files: list[Path]) -> None:
    loader = torch.utils.data.DataLoader(
        read(files),
        batch_size=None,
        num_workers=workers,
        collate_fn=lambda outputs: outputs[0].torch(),
        multiprocessing_context="fork" if workers else None,
    )
    assert drain(iter(loader)) == BATCHES


def test_nodes_go_on_after_a_batch_that_cannot_be_read(files: list[Path]) -> None:
    def make() -> nodes.Reader:
        return nodes.Reader(ndd.readers.File, batch_size=2, files=files)

    node = make()
    assert drain(iter(node), most=3) == BATCHES[:3]
    resumed = make()
    resumed.reset(node.state_dict())
    assert drain(iter(resumed)) == drain(iter(node)) == BATCHES[3:]


def test_a_generator_says_that_it_ends_with_its_error() -> None:
    class Generated(torch.utils.data.IterableDataset[torch.Tensor]):
        def __iter__(self) -> Iterator[torch.Tensor]:
            yield from Mapped()

    loader = ndd.DataLoader(Generated(), batch_size=2)
    loop = iter(loader)
    assert drain(loop, most=2) == BATCHES[:2]
    with pytest.raises(RuntimeError, match=r"sample 5: .*a generator ends with its error, and the epoch with it"):
        next(loop)
    resumed = ndd.DataLoader(Generated(), batch_size=2)
    resumed.load_state_dict(loader.state_dict())
    assert drain(loop) == []
    assert drain(iter(resumed)) == ["error"]
    assert drain(iter(loader), most=2) == BATCHES[:2]  # the next epoch


def test_an_external_source_goes_on_after_its_error() -> None:
    def make() -> ndd.DataLoader:
        numbers = iter(range(7))

        def source() -> ndd.Batch:
            k = next(numbers)
            if k == 2:
                raise OSError("2.bin")
            return ndd.as_batch([torch.tensor([2 * k]), torch.tensor([2 * k + 1])])

        return ndd.DataLoader(ndd.ExternalSource(source), batch_size=2)

    loader = make()
    loop, expected = iter(loader), [[0, 1], [2, 3], "error", *([2 * k, 2 * k + 1] for k in range(3, 7))]
    assert drain(loop, most=3) == expected[:3]
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    assert drain(iter(resumed)) == drain(loop) == expected[3:]


@pytest.mark.parametrize("depth", [1, 3])
def test_readers_of_a_pipeline_stay_in_step_after_an_error(depth: int, files: list[Path]) -> None:
    good = [file for k, file in enumerate(files) if k not in MISSING] * 2

    def make(**options: Any) -> Any:
        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None, prefetch_queue_depth=depth, enable_checkpointing=True)
        def define() -> Any:
            first, _ = dali.fn.readers.file(files=[str(file) for file in files], name="first")
            labels = dali.fn.readers.file(files=[str(file) for file in good[:COUNT]], labels=list(range(COUNT)), name="second")[1]
            return first, labels

        return define(**options)

    def run(pipe: Any) -> Any:
        try:
            first, second = pipe.run()
        except RuntimeError as error:
            return "error" if ".bin" in str(error) else str(error)
        assert first.as_array().flatten().tolist() == second.as_array().flatten().tolist()
        return first.as_array().flatten().tolist()

    pipe = make()
    for k in range(len(BATCHES)):
        assert run(pipe) == BATCHES[k]
        resumed = make(checkpoint=pipe.checkpoint())
        assert run(resumed) == (BATCHES * 2)[k + 1]
    iterator = DALIGenericIterator([make()], ["data", "label"], reader_name="first", auto_reset=True)
    assert [drain(iter(lambda: next(iterator)[0]["data"], None)) for _ in range(2)] == [BATCHES, BATCHES]


def test_sources_and_readers_of_a_pipeline_stay_in_step_after_the_error_of_a_source(files: list[Path]) -> None:
    def fail(iteration: int) -> Any:
        if iteration == 1:
            raise ValueError("no data .bin")
        return [torch.tensor([2 * iteration]), torch.tensor([2 * iteration + 1])]

    counts = iter(range(100))

    def count() -> Any:
        k = next(counts)
        return [torch.tensor([2 * k]), torch.tensor([2 * k + 1])]

    @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def define() -> Any:
        data, _ = dali.fn.readers.file(files=[str(file) for file in files[:4]])
        return dali.fn.external_source(fail), dali.fn.external_source(count), data

    pipe = define()
    assert [[part.as_array().flatten().tolist() for part in pipe.run()] for _ in range(1)] == [[[0, 1]] * 3]
    with pytest.raises(ValueError, match="no data"):
        pipe.run()
    assert [part.as_array().flatten().tolist() for part in pipe.run()] == [[4, 5], [4, 5], [0, 1]]
