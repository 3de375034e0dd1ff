# SPDX-License-Identifier: Apache-2.0
"""Random numbers that a data set draws while its items are read follow from the seed, the epoch and the place of the item."""

import functools
import itertools
import json
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest
import torch
from _forks import Forks
from torch.utils.data import WeightedRandomSampler

import torch_ndd as ndd

# Forking beside threads is what this tests.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

of_module: Any = None
INLINE: dict[str, Any] = {"num_workers": 0}
MODES: list[dict[str, Any]] = [INLINE, *[{"num_workers": count, "multiprocessing_context": "fork"} for count in (1, 3)]]
modes = pytest.mark.parametrize("mode", MODES, ids=["inline", "1 process", "3 processes"])


def draw() -> list[float]:
    """Draw from every generator that a data set may use."""
    shared = [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand((), dtype=torch.float64).item()]
    return [*shared, float(ndd.random.get_default_rng()())]


class Draws(torch.utils.data.Dataset[Any]):
    """The number of an item, and random numbers. Some items cannot be read."""

    def __init__(self, size: int, bad: tuple[int, ...] = ()) -> None:
        self.size, self.bad = size, bad

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        numbers = draw()
        if index in self.bad:
            raise ValueError("damaged")
        return torch.tensor([index, *numbers], dtype=torch.float64)


def rows(batches: Any) -> list[list[float]]:
    """Return the items of all batches."""
    return [row for batch in batches for row in (batch[0] if isinstance(batch, list | tuple) else batch).tolist()]


def read_and_resume(create: Callable[..., ndd.DataLoader], steps: int) -> tuple[list[Any], list[Any]]:
    """Return the items of two epochs, and the same with a resume in another loader after some steps."""
    whole, first, second = create(), create(), create()
    begun = rows(itertools.islice(iter(first), steps))
    second.load_state_dict(first.state_dict())
    rest = [*begun, *rows(second)] if begun else rows(second)
    return [*rows(whole), *rows(whole)], [*rest, *rows(second)]


class Images(torch.utils.data.Dataset[Any]):
    """Pictures, augmented as with torchvision."""

    def __init__(self, size: int, version: str) -> None:
        transforms = pytest.importorskip("torchvision.transforms" if version == "v1" else "torchvision.transforms.v2")
        numbers = np.random.default_rng(3)
        self.pixels = torch.from_numpy(numbers.integers(0, 255, (size, 3, 24, 20), np.uint8))
        chosen = [transforms.RandomResizedCrop(12, antialias=True), transforms.RandomHorizontalFlip(), transforms.ColorJitter(0.4, 0.4)]
        self.transform = transforms.Compose([*chosen, transforms.RandomChoice([transforms.RandomVerticalFlip(0), transforms.RandomVerticalFlip(1)])])

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.pixels[index])


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_pixels_do_not_depend_on_the_workers_or_on_a_resume(version: str) -> None:
    data = Images(14, version)

    def create(mode: dict[str, Any], **options: Any) -> ndd.DataLoader:
        return ndd.DataLoader(data, batch_size=4, shuffle=True, **{"seed": 5, **mode, **options})

    expected = None
    for mode in MODES:
        for steps in (0, 1, 3):
            whole, resumed = read_and_resume(lambda mode=mode: create(mode), steps)
            assert whole == resumed
            expected = whole if expected is None else expected
            assert whole == expected
    assert expected is not None
    first, second = sorted(map(str, expected[:14])), sorted(map(str, expected[14:]))
    assert not {*first} & {*second}  # no picture is augmented alike in both epochs
    assert not {*map(str, rows(create(MODES[1], seed=6)))} & {*first}


@modes
def test_numbers_follow_from_seed_epoch_and_place(mode: dict[str, Any]) -> None:
    def create(**options: Any) -> ndd.DataLoader:
        return ndd.DataLoader(Draws(9), **{"batch_size": 2, "seed": 3, **mode, **options})

    loader = create()
    epochs = [rows(loader) for _ in range(2)]
    again, inline = create(batch_size=5), ndd.DataLoader(Draws(9), batch_size=3, seed=3, prefetch=0, **INLINE)
    assert [rows(again), rows(again)] == epochs  # not on the batch size
    assert [rows(inline), rows(inline)] == epochs  # not on where they are read
    drawn = np.array([*epochs[0], *epochs[1], *rows(create(seed=4))])[:, 1:]
    for column in drawn.T:
        assert len({*column}) == 27
    # Generators with equal seeds would yield equal numbers.
    assert abs(np.corrcoef(drawn[:, 2], drawn[:, 4])[0, 1]) < 0.9


@modes
def test_repeated_samples_draw_other_numbers(mode: dict[str, Any]) -> None:
    def create(mode: dict[str, Any] = mode) -> ndd.DataLoader:
        sampler = WeightedRandomSampler([1.0, 5.0, 2.0], 20, generator=torch.Generator().manual_seed(1))
        return ndd.DataLoader(Draws(3), batch_size=3, sampler=sampler, seed=3, **mode)

    inline = create(INLINE)
    expected = [*rows(inline), *rows(inline)]
    assert len({tuple(row) for row in expected}) == 40
    for steps in range(7):
        whole, resumed = read_and_resume(create, steps)
        assert whole == resumed == expected


@modes
def test_ranks_draw_other_numbers_and_may_change_in_an_epoch(mode: dict[str, Any]) -> None:
    def create(rank: int, ranks: int) -> ndd.DataLoader:
        return ndd.DataLoader(Draws(16), batch_size=2, shuffle=True, seed=3, shard_id=rank, num_shards=ranks, **mode)

    complete = [create(rank, 2) for rank in range(2)]
    expected = sorted(row for loader in complete for row in rows(loader))
    assert len({row[2] for row in expected}) == 16
    begun = [create(rank, 2) for rank in range(2)]
    found = [row for loader in begun for row in rows(itertools.islice(iter(loader), 2))]
    for rank in range(3):
        loader = create(rank, 3)
        loader.load_state_dict(begun[0].state_dict())
        found += rows(loader)
    assert sorted(found) == expected


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_numbers_beside_bad_samples(on_error: str) -> None:
    def create(mode: dict[str, Any]) -> ndd.DataLoader:
        return ndd.DataLoader(Draws(20, (1, 4, 5, 6, 7, 13)), batch_size=4, on_error=on_error, seed=3, **mode)

    found = [read_and_resume(lambda mode=mode: create(mode), 2) for mode in MODES]
    assert all(whole == resumed == found[0][0] for whole, resumed in found)
    good = {tuple(row) for row in rows(ndd.DataLoader(Draws(20), batch_size=4, seed=3, **INLINE))}
    first = [tuple(row) for row in found[0][0]][: 14 if on_error == "skip" else 20]
    assert len({row[2] for row in first}) == len(first)  # one that stands in for another draws its own numbers
    assert len(good.intersection(first)) >= 14


def read_by_threads(create: Callable[[dict[str, Any]], Any]) -> list[list[float]]:
    """Return the items with the numbers of torch_ndd's generator only, which each thread has for itself."""
    return [[row[0], row[-1]] for row in rows(create({"num_workers": 3}))]


def mix_data_sets(mode: dict[str, Any], **options: Any) -> Any:
    return ndd.readers.Mix({"a": ndd.readers.Dataset(Draws(9), **mode), "b": ndd.readers.Dataset(Draws(5), **mode)}, seed=3, **options)


def mix_with_function(mode: dict[str, Any]) -> Any:
    second = ndd.Source(ndd.readers.Dataset(Draws(5), **mode), lambda values: values)
    return ndd.readers.Mix({"a": ndd.readers.Dataset(Draws(9), **mode), "b": second}, random_shuffle=True)


def draw_by_weight(mode: dict[str, Any]) -> Any:
    return ndd.readers.Weighted(ndd.readers.Dataset(Draws(4), **mode), weights=[1, 2, 3, 4], samples_per_epoch=18, seed=3)


def read_in_step(mode: dict[str, Any]) -> Any:
    return {"values": ndd.readers.Dataset(Draws(9), **mode), "other": ndd.readers.Dataset(Draws(9), **mode)}


class Named(Draws):
    """The same as a dict, with the number as key."""

    def __init__(self, size: int, name: str) -> None:
        super().__init__(size)
        self.name = name

    def __getitem__(self, index: int) -> Any:
        return {"key": index, self.name: super().__getitem__(index)}


def join_data_sets(mode: dict[str, Any]) -> Any:
    left, right = (ndd.readers.Dataset(Named(9, name), **mode) for name in ("values", "other"))
    return ndd.readers.Join(left, right, on="key")


NESTED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "mix": mix_data_sets,
    "mix with a function": mix_with_function,
    "weighted": draw_by_weight,
    "in step": read_in_step,
    "join": join_data_sets,
}


def to_rows(*outputs: Any) -> Any:
    """Return the numbers of all outputs with rows of numbers, side by side."""
    parts = list(outputs[0].values()) if isinstance(outputs[0], dict) else list(outputs)
    return torch.cat([part.torch() for part in parts if isinstance(part, ndd.Batch) and part.ndim == 1], 1)


@pytest.mark.parametrize("kind", NESTED)
def test_data_sets_inside_readers(kind: str) -> None:
    def create(mode: dict[str, Any]) -> ndd.DataLoader:
        return ndd.DataLoader(NESTED[kind](mode), to_rows, batch_size=4, seed=8)

    found = [read_and_resume(lambda mode=mode: create(mode), 2) for mode in MODES]
    assert all(whole == resumed == found[0][0] for whole, resumed in found)
    assert len({row[2] for row in found[0][0]}) == len(found[0][0])
    assert read_by_threads(create) == [[row[0], row[-1]] for row in found[0][0]][: len(found[0][0]) // 2]


def test_parts_in_step_draw_alike() -> None:
    """So an image and its mask are cropped alike."""
    for batch in ndd.DataLoader(read_in_step({"num_workers": 2, "multiprocessing_context": "fork"}), batch_size=4):
        assert torch.equal(batch["values"], batch["other"])


def test_batches_by_cost() -> None:
    costs = np.arange(20) % 7 + 1

    def create(mode: dict[str, Any], ranks: int = 1, rank: int = 0) -> ndd.DataLoader:
        reader = ndd.readers.Dataset(Draws(20, (3, 8)), random_shuffle=True, on_error="skip", **mode)
        batches = ndd.batches.Packed(budget=12, cost=costs)
        return ndd.DataLoader(reader, lambda values, plan: values, batches=batches, seed=3, num_shards=ranks, shard_id=rank)

    found = [read_and_resume(lambda mode=mode: create(mode), 3) for mode in MODES]
    assert all(whole == resumed == found[0][0] for whole, resumed in found)
    assert len({row[2] for row in found[0][0]}) == 36
    ranks = [row for rank in range(2) for row in rows(create(MODES[1], 2, rank))]
    assert {tuple(row) for row in ranks} == {tuple(row) for row in found[0][0][:18]}


@pytest.mark.parametrize("workers", [1, 4, None])
def test_threads_repeat_the_numbers_of_torch_ndd(workers: int | None) -> None:
    expected = [[row[0], row[-1]] for row in rows(ndd.DataLoader(Draws(30), batch_size=8, seed=3, **INLINE))]
    found = [[row[0], row[-1]] for row in rows(ndd.DataLoader(Draws(30), batch_size=8, seed=3, num_workers=workers))]
    assert found == expected


def test_operators_in_items_repeat_their_numbers() -> None:
    class Noisy(Draws):
        def __getitem__(self, index: int) -> Any:
            noise: Any = ndd.noise.gaussian(ndd.as_tensor(torch.zeros(4)))
            return noise.torch()

    found = [rows(ndd.DataLoader(Noisy(12), batch_size=4, seed=3, **mode)) for mode in [*MODES, {"num_workers": 3}]]
    assert all(values == found[0] for values in found)
    assert len({tuple(row) for row in found[0]}) == 12


def states() -> list[Any]:
    return [random.getstate(), np.random.get_state(), torch.default_generator.get_state()]


@pytest.mark.parametrize("prefetch", [0, 2])
@modes
def test_generators_of_the_program_are_left_alone(mode: dict[str, Any], prefetch: int) -> None:
    def draw_beside(loader: Any) -> list[list[float]]:
        random.seed(1)
        np.random.seed(2)
        torch.manual_seed(3)
        return [draw()[:-1] for _ in loader]

    loader = ndd.DataLoader(Draws(20, (3,)), lambda values: values, batch_size=4, prefetch=prefetch, on_error="skip", **mode)
    mix = ndd.DataLoader(mix_data_sets(mode), to_rows, batch_size=4, prefetch=prefetch)
    assert draw_beside(loader) == draw_beside(range(5))
    assert draw_beside(mix) == draw_beside(range(len(mix)))


def test_an_error_leaves_the_generators_of_the_program_alone() -> None:
    before = states()
    with pytest.raises(RuntimeError, match="damaged"):
        rows(ndd.DataLoader(Draws(20, (3,)), batch_size=4, **INLINE))
    assert str(states()) == str(before)


def test_inline_items_are_read_on_the_thread_of_the_program() -> None:
    class Threads(Draws):
        def __getitem__(self, index: int) -> Any:
            return threading.get_ident()

    for data in (Threads(12), [1, 2, 3]):
        reader = ndd.DataLoader(data, batch_size=4, **INLINE).reader
        assert reader.reads_here() is (data is not None and isinstance(data, Threads))
    found = [value for batch in ndd.DataLoader(Threads(12), lambda values: values, batch_size=2, prefetch=3, **INLINE) for value in batch.tolist()]
    assert {*found} == {threading.get_ident()}


@modes
def test_readers_without_a_loader_take_their_own_seed(mode: dict[str, Any]) -> None:
    def read(seed: int) -> list[Any]:
        reader = ndd.readers.Dataset(Draws(7), 3, seed=seed, **mode)
        return [row for batch in itertools.chain(reader.next_epoch(), reader.next_epoch()) for row in batch[0].torch().tolist()]

    found = read(5)
    assert found == read(5)
    assert len({row[2] for row in found}) == len(found)  # also where a batch reaches into the next pass
    assert {row[2] for row in found}.isdisjoint(row[2] for row in read(6))
    assert found[:7] == rows(ndd.DataLoader(Draws(7), batch_size=3, seed=5, **mode))


def test_items_in_one_call_draw_by_batch() -> None:
    class Together(Draws):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [self[index] for index in indices]

    whole, resumed = read_and_resume(lambda: ndd.DataLoader(Together(20), batch_size=4, seed=3, **INLINE), 2)
    assert whole == resumed
    assert len({row[2] for row in whole}) == 40


class Stream(torch.utils.data.IterableDataset[Any]):
    """Random numbers, in random order."""

    def __iter__(self) -> Iterator[Any]:
        order = list(range(22))
        random.shuffle(order)
        for index in order:
            yield torch.tensor([index, *draw()], dtype=torch.float64)


def test_streams_of_a_process_repeat_their_numbers() -> None:
    def create(seed: int = 3, **options: Any) -> ndd.DataLoader:
        return ndd.DataLoader(Stream(), batch_size=4, seed=seed, multiprocessing_context="fork", **options)

    for steps in (0, 2, 5):
        whole, resumed = read_and_resume(create, steps)
        assert whole == resumed
    assert whole[:22] != whole[22:]
    assert whole[:22] != rows(create(4))
    shards = [rows(create(shard_id=rank, num_shards=3)) for rank in range(3)]
    assert sorted(itertools.chain(*shards)) == sorted(whole[:22])  # all see the same order


def test_streams_repeat_the_numbers_of_torch_ndd() -> None:
    class Plain(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            for index in range(22):
                yield torch.tensor([index, ndd.random.get_default_rng()()])

    def create(**options: Any) -> ndd.DataLoader:
        return ndd.DataLoader(Plain(), batch_size=4, seed=3, **options)

    whole, resumed = read_and_resume(create, 3)
    assert whole == resumed == read_and_resume(lambda: create(multiprocessing_context="fork"), 3)[1]


def test_another_generator_of_numpy_is_seeded() -> None:
    expected, numpy = rows(ndd.DataLoader(Draws(6), batch_size=3, seed=3, **INLINE)), cast(Any, np.random)
    before = numpy.get_bit_generator()
    numpy.set_bit_generator(np.random.PCG64(1))
    try:
        found = [rows(ndd.DataLoader(Draws(6), batch_size=3, seed=3, **mode)) for mode in MODES]
        np.random.seed(2)
        number = np.random.rand()
        np.random.seed(2)
        rows(ndd.DataLoader(Draws(6), batch_size=3, seed=3, **INLINE))
        assert np.random.rand() == number
    finally:
        numpy.set_bit_generator(before)
    assert found[0] == found[1] == found[2]
    assert [row[3] for row in found[0]] != [row[3] for row in expected]
    assert [row[1] for row in found[0]] == [row[1] for row in expected]


def test_a_compose_seeded_for_the_item() -> None:
    albumentations = pytest.importorskip("albumentations")

    class Composed(Draws):
        compose = albumentations.Compose([albumentations.RandomCrop(8, 8), albumentations.GaussNoise(p=1)])

        def __getitem__(self, index: int) -> Any:
            self.compose.set_random_seed(ndd.random.get_default_rng()())
            return self.compose(image=np.arange(300, dtype=np.uint8).reshape(10, 10, 3))["image"]

    found = [rows(ndd.DataLoader(Composed(8), batch_size=3, seed=3, **mode)) for mode in MODES]
    assert found[1:] == found[:1] * 2
    assert len({str(row) for row in found[0]}) == 8


@pytest.fixture
def compose(monkeypatch: pytest.MonkeyPatch) -> Any:
    albumentations = pytest.importorskip("albumentations")
    found = albumentations.Compose([albumentations.RandomCrop(8, 8), albumentations.OneOf([albumentations.GaussNoise(p=1)], p=1)])
    monkeypatch.setitem(globals(), "of_module", found)
    return found


PIXELS = np.arange(300, dtype=np.uint8).reshape(10, 10, 3)


class Held(Draws):
    """Items that a function augments, which may hold a Compose in any way."""

    def __init__(self, size: int, augment: Callable[..., Any]) -> None:
        super().__init__(size)
        self.augment = augment

    def __getitem__(self, index: int) -> Any:
        return self.augment(image=PIXELS)["image"]


class Augmenter:
    def __init__(self, compose: Any) -> None:
        self.steps = {"first": [compose]}

    def augment(self, image: Any) -> Any:
        return self.steps["first"][0](image=image)


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda compose: Held(8, compose),
    "closure": lambda compose: Held(8, lambda image: compose(image=image)),
    "method": lambda compose: Held(8, Augmenter(compose).augment),
    "partial": lambda compose: Held(8, functools.partial(lambda found, image: found(image=image), compose)),
    "variable of the module": lambda compose: Held(8, lambda image: of_module(image=image)),
    "part of a data set": lambda compose: torch.utils.data.Subset(Held(20, compose), range(3, 11)),
    "chain of data sets": lambda compose: torch.utils.data.ConcatDataset([Held(4, compose), Held(4, compose)]),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_compose_that_a_data_set_holds_follows_the_seed(compose: Any, holder: str) -> None:
    def read(**options: Any) -> list[str]:
        loader = ndd.DataLoader(HOLDERS[holder](compose), batch_size=3, **{"seed": 3, **options})
        return [str(row) for _ in range(2) for row in rows(loader)]

    found = [read(**mode) for mode in MODES]
    assert found[1:] == found[:1] * 2
    assert len({*found[0]}) == 16
    assert not {*read(**MODES[1], seed=4)} & {*found[0]}


def test_a_compose_with_a_seed_of_its_own_keeps_its_numbers(compose: Any) -> None:
    compose.set_random_seed(7)
    expected = [compose(image=PIXELS)["image"].tolist() for _ in range(8)]
    compose.set_random_seed(7)
    assert rows(ndd.DataLoader(Held(8, compose), batch_size=3, seed=3, **INLINE)) == expected


# Prints a state in the middle of an epoch and the items after it; or, with that state, the items after it in a new process.
PROGRAM = """
import itertools, json, random, sys, numpy as np, torch, torch_ndd as ndd

class Draws(torch.utils.data.Dataset):
    def __len__(self):
        return 13

    def __getitem__(self, index):
        return torch.tensor([index, random.random(), np.random.rand(), torch.rand(()), ndd.random.get_default_rng()()], dtype=torch.float64)

workers, state = int(sys.argv[1]), json.loads(sys.argv[2])
mode = {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}
loader = ndd.DataLoader(Draws(), batch_size=3, shuffle=True, **mode)
if state:
    loader.load_state_dict(state)
else:
    for _ in itertools.islice(iter(loader), 2):
        pass
    state = json.loads(json.dumps(loader.state_dict()))
    restored = ndd.DataLoader(Draws(), batch_size=3, shuffle=True, **mode)
    restored.load_state_dict(state)
    loader = restored
print(json.dumps([state, [batch.tolist() for batch in itertools.chain(loader, loader)]]))
"""


def test_another_process_resumes_with_the_same_numbers(forks: Forks) -> None:
    """The seed was drawn by the first one."""
    first = forks.run(PROGRAM, 2, "null")
    assert first.wait() == 0, first.errors
    state, expected = json.loads(first.output)
    for workers in (0, 1, 3):
        other = forks.run(PROGRAM, workers, json.dumps(state))
        assert other.wait() == 0, other.errors
        assert json.loads(other.output) == [state, expected]
    assert sum(map(len, expected)) == 7 + 13


@pytest.mark.slow
def test_processes_started_anew_draw_alike() -> None:
    found = [ndd.DataLoader(Draws(6), batch_size=3, seed=3, num_workers=1, multiprocessing_context=kind) for kind in ("fork", "spawn")]
    assert rows(found[0]) == rows(found[1])
