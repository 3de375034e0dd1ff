# SPDX-License-Identifier: Apache-2.0
"""``ndd.DataLoader`` over data sets of torch, several readers in step, iterables and ``ExternalSource``."""

import itertools
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from _datasets import Fragile, Squares, Stream
from _slow_sources import Slow
from torch.nn.utils.rnn import pack_sequence

import torch_ndd as ndd
from torch_ndd.readers.dataset._activity import Activity
from torch_ndd.testing import assert_resumable

# Forking beside threads is what this tests.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
CONTEXTS = [None, "fork", pytest.param("spawn", marks=pytest.mark.slow)]


# A process that is spawned imports everything, in 2 CPU seconds: two of them show what three would.
@pytest.mark.parametrize(
    ("context", "workers"),
    [*((None, count) for count in (None, 0, 1, 3)), ("fork", 1), ("fork", 3), pytest.param("spawn", 2, marks=pytest.mark.slow)],
)
def test_equals_torch(context: str | None, workers: int | None) -> None:
    theirs = torch.utils.data.DataLoader(Squares(11), batch_size=4)
    ours = ndd.DataLoader(Squares(11), batch_size=4, num_workers=workers, multiprocessing_context=context)
    assert len(ours) == len(theirs)
    for _ in range(2):
        for (x, y), (a, b) in zip(ours, theirs, strict=True):
            assert torch.equal(x, a)
            assert torch.equal(y, b)
            assert (x.dtype, y.dtype) == (a.dtype, b.dtype)


@pytest.mark.slow
def test_fork_server() -> None:
    loader = ndd.DataLoader(Squares(6), batch_size=3, multiprocessing_context="forkserver", num_workers=1)
    assert [[values.tolist(), squares.tolist()] for values, squares in loader] == [[[0, 1, 2], [0, 1, 4]], [[3, 4, 5], [9, 16, 25]]]


def test_tensor_dataset_and_list_and_subset() -> None:
    tensors = torch.utils.data.TensorDataset(torch.arange(6), torch.arange(6) ** 2)
    subset = torch.utils.data.Subset(tensors, [5, 1, 3])
    assert [x.tolist() for x, _ in ndd.DataLoader(subset, batch_size=2)] == [[5, 1], [3]]
    assert [x.tolist() for x in ndd.DataLoader([3, 1, 2], batch_size=2)] == [[3, 1], [2]]


def test_shuffle_shards_and_state() -> None:
    def make(rank: int, world: int, size: int) -> ndd.DataLoader:
        return ndd.DataLoader(Squares(17), batch_size=size, shuffle=True, seed=3, num_workers=2, shard_id=rank, num_shards=world)

    assert assert_resumable(make, worlds=[(1, 1), (2, 3)], batch_sizes=[3]).cuts > 8
    value = [x.tolist() for x, _ in make(0, 1, 17)]
    assert sorted(value[0]) == list(range(17)) != value[0]
    assert [x.tolist() for x, _ in ndd.DataLoader(Squares(17), batch_size=17, shuffle=True, seed=4)] != value


@pytest.mark.parametrize("context", CONTEXTS)
def test_iterable_data_sets_are_divided_among_workers(context: str | None) -> None:
    loader = ndd.DataLoader(Stream(7), batch_size=3, multiprocessing_context=context)
    for _ in range(2):
        assert [x.tolist() for x, _ in loader] == [[0, 1, 2], [3, 4, 5], [6]]
    with pytest.raises(TypeError, match="unknown"):
        len(loader)
    shards = [[x.tolist() for x, _ in ndd.DataLoader(Stream(7), batch_size=2, shard_id=k, num_shards=2, drop_last=k == 1)] for k in range(2)]
    assert shards == [[[0, 2], [4, 6]], [[1, 3]]]


def test_iterable_resumes() -> None:
    def make(rank: int, world: int, size: int) -> ndd.DataLoader:
        return ndd.DataLoader(Stream(13), batch_size=size, shard_id=rank, num_shards=world)

    assert assert_resumable(make, worlds=[(1, 1), (2, 2), (1, 2), (2, 3)], batch_sizes=[3]).cuts > 10


def test_external_source() -> None:
    def epoch() -> Iterator[Any]:
        yield from range(5)

    loader = ndd.DataLoader(ndd.ExternalSource(epoch, per_sample=True), lambda x: x * 2, batch_size=2)
    for _ in range(2):
        assert [x.tolist() for x in loader] == [[0, 2], [4, 6], [8]]
    next(iter(loader))
    state = json.loads(json.dumps(loader.state_dict()))
    fresh = ndd.DataLoader(ndd.ExternalSource(epoch, per_sample=True), lambda x: x * 2, batch_size=2)
    fresh.load_state_dict(state)
    assert [x.tolist() for x in fresh] == [[4, 6], [8]]
    with pytest.raises(TypeError, match="shuffle does not apply to an ExternalSource"):
        ndd.DataLoader(ndd.ExternalSource(epoch), batch_size=2, shuffle=True)


def test_in_step(images: list[Path], tmp_path: Path) -> None:
    for k in range(11):
        np.save(tmp_path / f"{k:02}.npy", np.full(3, k, np.int32))
    arrays = sorted(map(str, tmp_path.iterdir()))

    def readers(**options: Any) -> dict[str, Any]:
        return {"image": ndd.readers.File(files=images, **options), "mask": ndd.readers.Numpy(files=arrays, **options)}

    def fn(batch: dict[str, Any]) -> dict[str, Any]:
        files, labels = batch["image"]
        return {"image": ndd.decoders.image(files), "label": labels, "mask": batch["mask"]}

    loader = ndd.DataLoader(readers(random_shuffle=True), fn, batch_size=4, return_paths=True)
    seen = []
    for batch in loader:
        assert batch["label"].flatten().tolist() == batch["mask"][:, 0].tolist()
        assert batch["paths"] == [str(images[k]) for k in batch["label"].flatten().tolist()]
        seen += batch["label"].flatten().tolist()
    assert sorted(seen) == list(range(11)) != seen

    def make(rank: int, world: int, size: int) -> ndd.DataLoader:
        value = readers(random_shuffle=True, shard_id=rank, num_shards=world)
        return ndd.DataLoader(tuple(value.values()), lambda image, mask: (image[1], mask), batch_size=size)

    assert_resumable(make, worlds=[(1, 1), (2, 3)], batch_sizes=[2])
    datasets = ndd.DataLoader((Squares(5), Squares(5)), lambda a, b: (a[0], b[1]), batch_size=5)
    assert [(x.tolist(), y.tolist()) for x, y in datasets] == [([0, 1, 2, 3, 4], [0, 1, 4, 9, 16])]


def test_in_step_errors(images: list[Path], tmp_path: Path) -> None:
    short, lost = ndd.readers.File(files=images[:3]), ndd.readers.File(files=[*images[:10], tmp_path / "lost.png"])
    with pytest.raises(RuntimeError, match=r"same number of samples, got {'a': 11, 'b': 3}"):
        list(ndd.DataLoader({"a": ndd.readers.File(files=images), "b": short}, batch_size=2))
    with pytest.raises(RuntimeError, match=r"sample 1 .*'b': .*lost\.png"):
        list(ndd.DataLoader({"a": ndd.readers.File(files=images), "b": lost}, batch_size=3))
    with pytest.raises(ValueError, match="random_shuffle must be the same"):
        ndd.DataLoader((ndd.readers.File(files=images), ndd.readers.File(files=images, random_shuffle=True)), batch_size=2)
    with pytest.raises(TypeError, match="must be a reader"):
        ndd.DataLoader({"a": ndd.readers.File(files=images), "b": Stream(3)}, batch_size=2)
    skipping = {name: ndd.readers.File(files=[*images[:10], tmp_path / "lost.png"], on_error="skip") for name in "ab"}
    assert sum(len(batch["a"][1]) for batch in ndd.DataLoader(skipping, batch_size=4)) == 10


@pytest.mark.parametrize("context", CONTEXTS)
def test_errors_name_the_sample(context: str | None) -> None:
    workers = 1 if context == "spawn" else 2
    loader = ndd.DataLoader(Fragile(9), batch_size=4, multiprocessing_context=context, num_workers=workers)
    loop = iter(loader)
    next(loop)
    with pytest.raises(RuntimeError, match=r"readers\.Dataset: sample 1 \(Fragile\[5\]\): ValueError: five is bad") as caught:
        next(loop)
    cause = caught.value.__cause__
    assert isinstance(cause, ValueError) if context is None else "five is bad" in str(cause) and "__getitem__" in str(cause)
    skipping = ndd.DataLoader(Fragile(9), batch_size=4, multiprocessing_context=context, num_workers=workers, on_error="skip")
    assert [x for batch in skipping for x in batch.tolist()] == [0, 1, 2, 3, 4, 6, 7, 8]
    assert [error.sample for error in skipping.reader.errors] == [5]


def test_what_cannot_be_sent() -> None:
    class Local(Squares):
        pass

    with pytest.raises(TypeError, match=r"cannot be sent to a worker process.*\"fork\""):
        list(ndd.DataLoader(Local(3), batch_size=2, multiprocessing_context="spawn"))
    assert len(list(ndd.DataLoader(Local(3), batch_size=2, multiprocessing_context="fork"))) == 2


def collate(items: list[Any]) -> dict[str, Any]:
    return {"x": torch.stack([torch.as_tensor(x) for x, _ in items]), "sum": sum(y for _, y in items)}


@pytest.mark.parametrize("context", [None, "fork"])
def test_collate_fn(context: str | None) -> None:
    loader = ndd.DataLoader(Squares(5), batch_size=2, collate_fn=collate, multiprocessing_context=context, drop_last=True)
    assert [(batch["x"].tolist(), batch["sum"]) for batch in loader] == [([0, 1], 1), ([2, 3], 13)]
    assert loader.stats.samples == 4
    doubled = ndd.DataLoader(Squares(4), lambda batch: batch["x"] * 2, batch_size=2, collate_fn=collate)
    assert [x.tolist() for x in doubled] == [[0, 2], [4, 6]]


def test_a_reader_with_collate_fn_yields_what_that_returns() -> None:
    def make() -> ndd.readers.Reader:
        return ndd.readers.Dataset([1, 2, 3], collate_fn=sum)

    assert list(make().next_epoch(2)) == [3, 4]  # the second batch is filled from the next epoch
    assert list(make()) == [1, 2, 3]
    assert make()(batch_size=2) == 3


def test_collate_fn_of_readers_in_step() -> None:
    summed = ndd.DataLoader({"a": [1, 2, 3], "b": [4, 5, 6]}, batch_size=2, collate_fn=sum, drop_last=True, return_paths=True)
    assert list(summed) == [{"a": 3, "b": 9, "paths": ["list[0]", "list[1]"]}]
    assert summed.stats.samples == 2
    mixed = ndd.DataLoader((ndd.readers.Dataset([1, 2, 3], collate_fn=sum), [4, 5, 6]), lambda total, values: (total, values + 1), batch_size=2)
    assert [(total, values.tolist()) for total, values in mixed] == [(3, [5, 6]), (3, [7])]


class OfPositive(NamedTuple("OfPositive", [("values", torch.Tensor), ("count", int)])):
    """A tuple that cannot be built from any values."""

    def __new__(cls, values: torch.Tensor, count: int) -> "OfPositive":
        assert count > 0
        return super().__new__(cls, values, count)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_what_collate_fn_returns_arrives(prefetch: int) -> None:
    functions: dict[str, Callable[[list[Any]], Any]] = {
        "sparse": lambda items: torch.stack([torch.eye(int(x) + 1, 4).to_sparse() for x, _ in items[:1]]),
        "packed": lambda items: pack_sequence([torch.ones(3), torch.zeros(2)]),
        "tuple": lambda items: OfPositive(torch.ones(2), len(items)),
        "nested": lambda items: torch.nested.nested_tensor([torch.ones(3), torch.zeros(2)], layout=torch.jagged),
    }
    for name, function in functions.items():
        expected = next(iter(torch.utils.data.DataLoader(Squares(4), batch_size=2, collate_fn=function)))
        for found in ndd.DataLoader(Squares(4), batch_size=2, collate_fn=function, prefetch=prefetch, shuffle=False):
            assert type(found) is type(expected), name
            assert str(found) == str(expected) or name == "nested", name
            if name == "nested":
                assert torch.equal(found.values(), expected.values())
            if name == "sparse":
                break  # the size depends on the items


class Epochs(torch.utils.data.Sampler[int]):
    """An order that depends on the epoch."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Iterator[int]:
        return iter([(k + self.epoch) % 6 for k in range(4)])


@pytest.mark.parametrize("option", [{"sampler": np.arange(3)}, {"sampler": torch.arange(3)}, {"timeout": np.ones(2)}])
def test_arrays_are_no_defaults(option: dict[str, Any]) -> None:
    name = next(iter(option))
    for source in (ndd.ExternalSource(lambda: np.zeros(3)), ndd.readers.File(files=[__file__])):
        with pytest.raises(TypeError, match=f"DataLoader: {name}"):
            ndd.DataLoader(source, batch_size=2, **option)


class Yields(torch.utils.data.Sampler[int]):
    """Says that it has two indices, and yields those of an iterator."""

    def __init__(self, indices: Iterator[int]) -> None:
        self.indices = indices

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[int]:
        return self.indices


@pytest.mark.parametrize(
    ("indices", "error"),
    [
        (itertools.repeat(0), (RuntimeError, "the sampler yields more than 2 indices, but its length is 2")),
        (iter([0]), (RuntimeError, "the sampler yields 1 indices, but its length is 2")),
        (iter([0, 2**70]), (IndexError, "the sampler yields an index that does not fit into 64 bits")),
    ],
)
def test_samplers_that_yield_something_else_are_refused(indices: Iterator[int], error: tuple[type[Exception], str]) -> None:
    with pytest.raises(error[0], match=error[1]):
        list(ndd.DataLoader(Squares(6), batch_size=2, sampler=Yields(indices)))


def test_samplers_choose_the_samples() -> None:
    loader = ndd.DataLoader(Squares(6), batch_size=3, sampler=Epochs())
    assert [[x.tolist() for x, _ in loader] for _ in range(2)] == [[[0, 1, 2], [3]], [[1, 2, 3], [4]]]
    assert len(loader) == 2
    weights = [1.0, 0.0, 3.0, 0.0, 2.0, 0.0]

    def make_weighted(count: int) -> ndd.DataLoader:
        return ndd.DataLoader(Squares(6), batch_size=5, sampler=torch.utils.data.WeightedRandomSampler(weights, count), seed=2)

    found = Counter(x for batch, _ in make_weighted(3000) for x in batch.tolist())
    assert set(found) == {0, 2, 4}
    assert abs(found[2] - 1500) < 150
    assert_resumable(lambda *_: make_weighted(300), cuts=[0, 7, 59], worlds=[(1, 1)], batch_sizes=[5])
    with pytest.raises(TypeError, match=r"in place of a DistributedSampler .*ndd\.distributed\.shard"):
        ndd.DataLoader(Squares(6), batch_size=2, sampler=torch.utils.data.DistributedSampler(Squares(6), 2, 0))
    with pytest.raises(ValueError, match="exclude each other"):
        ndd.DataLoader(Squares(6), batch_size=2, sampler=Epochs(), shuffle=True)
    with pytest.raises(TypeError, match="in place of a batch sampler give batch_size"):
        list(ndd.DataLoader(Squares(6), batch_size=2, sampler=torch.utils.data.BatchSampler(range(6), 2, False)))


def test_arguments_of_torch(images: list[Path]) -> None:
    reader = ndd.readers.File(files=images)
    for name, value, words in (
        ("shuffle", True, "random_shuffle=True"),
        ("num_workers", 4, "set_num_threads"),
        ("collate_fn", collate, "fn gets"),
        ("sampler", [1], r"list of files; readers\.Weighted"),
        ("multiprocessing_context", "fork", "no processes"),
        ("on_error", "skip", "an argument of the reader"),
        ("batch_sampler", [1], "batch_size"),
        ("worker_init_fn", collate, "__getitem__"),
        ("prefetch_factor", 2, "prefetch"),
        ("timeout", 3, "url_max_seconds"),
        ("generator", torch.Generator(), "seed"),
        ("pin_memory_device", "cuda", "device"),
        ("in_order", False, "in order"),
    ):
        with pytest.raises(TypeError, match=rf"DataLoader: {name}\b.*{words}"):
            ndd.DataLoader(reader, batch_size=2, **{name: value})
    accepted = {"num_workers": 0, "shuffle": False, "persistent_workers": True, "pin_memory": True, "timeout": 0, "in_order": True}
    assert len(list(ndd.DataLoader(reader, batch_size=6, **accepted))) == 2
    with pytest.raises(TypeError, match="unexpected keyword argument 'shufle'"):
        ndd.DataLoader(Squares(3), batch_size=2, shufle=True)
    with pytest.raises(TypeError, match="pass batch_size as a keyword"):
        ndd.DataLoader(Squares(3), 2)
    with pytest.raises(TypeError, match="shuffle does not apply to an iterable data set"):
        ndd.DataLoader(Stream(3), batch_size=2, shuffle=True)


def test_paths_and_dataset(images: list[Path]) -> None:
    reader = ndd.readers.File(files=images)
    loader = ndd.DataLoader(reader, lambda files, labels: labels, batch_size=4, return_paths=True)
    assert loader.dataset is reader
    assert [paths for _, paths in loader][2] == [str(image) for image in images[8:]]
    texts = [paths for *_, paths in ndd.DataLoader(Squares(3), batch_size=2, return_paths=True)]
    assert texts == [["Squares[0]", "Squares[1]"], ["Squares[2]"]]


@pytest.mark.parametrize("named", [False, True])
def test_paths_are_those_of_the_images_that_could_be_decoded(images: list[Path], tmp_path: Path, named: bool) -> None:
    damaged = tmp_path / "damaged.jpg"
    damaged.write_bytes(images[0].read_bytes()[:100])
    files = [images[0], damaged, *images[1:5]]

    def decode(jpegs: ndd.Batch, numbers: ndd.Batch) -> Any:
        pictures = ndd.decoders.image(jpegs, on_error="skip")
        parts = {"pictures": ndd.resize(pictures, size=[8, 8]), "numbers": numbers.select(pictures.kept)}
        return parts if named else tuple(parts.values())

    reader = ndd.readers.File(files=files, labels=range(6))
    for batch in ndd.DataLoader(reader, decode, batch_size=3, return_paths=True):
        pictures, numbers, paths = batch.values() if named else batch
        assert len(pictures) == len(paths)
        assert paths == [str(files[number]) for number in numbers.flatten().tolist()]


def test_paths_that_are_no_text_find_their_files(tmp_path: Path) -> None:
    name = os.path.join(os.fsencode(tmp_path), b"a", b"caf\xe9.jpg")
    os.mkdir(os.path.dirname(name))
    try:
        Path(os.fsdecode(name)).write_bytes(b"123")
    except OSError:
        pytest.skip("the file system takes names in UTF-8 only")
    reader = ndd.readers.File(file_root=tmp_path)
    ((found, paths),) = ndd.DataLoader(reader, lambda files, _: ndd.get_property(files, key="source_info"), batch_size=1, return_paths=True)
    assert Path(paths[0]).read_bytes() == b"123"
    assert bytes(found.flatten().tolist()) == name


@pytest.mark.parametrize(
    ("cores", "options", "advice"),
    [
        (0.05, {"num_workers": 2}, "more threads (num_workers)"),
        (1.9, {"num_workers": 2}, "more threads (num_workers)"),
        (0.97, {"num_workers": 2}, "its Python code holds the GIL: 2 threads use 1.0 cores; run it in processes (multiprocessing_context)"),
        (0.97, {"num_workers": 0}, "give it threads (num_workers)"),
        (0.97, {"num_workers": 1, "multiprocessing_context": "fork"}, "more processes (num_workers)"),
    ],
)
def test_diagnosis_of_workers(cores: float, options: dict[str, Any], advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Activity, "cores", lambda self: cores)
    loader = ndd.DataLoader(Squares(6, seconds=0.02), batch_size=2, **options)
    list(loader)
    assert loader.diagnose().startswith("Reading is the limit")
    assert f"waits for Squares; {advice}" in loader.diagnose().replace("give it more", "more")


def test_diagnose_names_the_slow_reader_of_several_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow([*range(8)], monkeypatch, 1)
    loader = ndd.DataLoader({"fast": ndd.readers.Dataset(range(8)), "slow": ndd.readers.Dataset(slow)}, batch_size=8)
    list(loader)
    assert loader.reader.describe_bottleneck()[0] == "Slow of the source 'slow', which takes the most time"


def test_activity_counts_busy_cores() -> None:
    activity = Activity()
    with activity:
        time.sleep(0.05)
    assert activity.cores() < 0.9
    end = time.thread_time() + 0.05
    busy = Activity()
    with busy:
        while time.thread_time() < end:
            pass
    assert 0 < busy.cores() <= 1.05


def test_a_list_of_readers_is_read_in_step(images: list[Path]) -> None:
    readers = [ndd.readers.File(files=images), ndd.readers.File(files=images)]
    for (files, labels), (_, others) in ndd.DataLoader(readers, batch_size=4):
        assert len(files) == len(labels)
        assert torch.equal(labels, others)


def test_misspelled_arguments_get_a_suggestion(images: list[Path]) -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'num_worker'; did you mean 'num_workers'\?"):
        ndd.DataLoader(Squares(3), batch_size=2, num_worker=2)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'randomshuffle'; did you mean 'random_shuffle'\?"):
        ndd.readers.File(files=images, randomshuffle=True)


def test_reprs_tell_in_one_line_what_there_is(images: list[Path]) -> None:
    file = ndd.readers.File(file_root=images[0].parent, file_filters="*.png")
    source = f"<readers.File file_root={str(images[0].parent)!r}, file_filters='*.png'>"
    for value, text in (
        (file, source),
        (ndd.readers.File(files=images, num_shards=2), "<readers.File files=<list of 11 items>, shard 0 of 2>"),
        (ndd.DataLoader(Squares(3), collate, batch_size=2), "DataLoader(<Squares of 3 items>, collate, batch_size=2, prefetch=2)"),
        (ndd.DataLoader(list(range(1000)), batch_size=2), "DataLoader(<list of 1000 items>, batch_size=2, prefetch=2)"),
        (ndd.DataLoader({"a": file}, batch_size=2), f"DataLoader({{'a': {source}}}, batch_size=2, prefetch=2)"),
        (ndd.ExternalSource([1]), "ExternalSource(<list of 1 item>)"),
        (ndd.DataLoader(Stream(3), batch_size=2), "DataLoader(<Stream>, batch_size=2, prefetch=2)"),
    ):
        assert repr(value) == text


def test_empty_sources_say_what_was_searched(images: list[Path], tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "empty.tar").write_bytes(bytes(10240))
    root = str(tmp_path)
    for make, text in (
        (lambda: ndd.readers.Webdataset(paths=[f"{root}/empty.tar"], ext="jpg"), f"no samples found in paths=['{root}/empty.tar'], ext='jpg'"),
        (lambda: ndd.readers.File(file_root=root, file_filters="*.zip"), f'No files found in the subdirectories of "{root}": no file in 1 of them '
         "matches *.zip"),
        (lambda: ndd.readers.File(file_root=root, dir_filters="q*"), f'No files found in the subdirectories of "{root}": it has none that match q*'),
        (lambda: ndd.readers.Numpy(file_root=root), f"No files found in \"{root}\" and its subdirectories whose names match '*.npy'"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=re.escape(text)):
            list(ndd.DataLoader(make(), batch_size=2))
    with pytest.raises(FileNotFoundError, match=rf"for the classes a in {re.escape(root)}"):
        ndd.ImageFolder(root)


def test_assert_resumable_shows_what_differs() -> None:
    class Forgetful(ndd.readers.Dataset):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    def make(rank: int, world: int, size: int) -> ndd.readers.Dataset:
        return Forgetful([(k, np.full((2, 4), k), f"t{k}") for k in range(6)], size)

    with pytest.raises(AssertionError, match=re.escape("batch 0 is [(0, ([0, 0, 0, 0, 0, 0, ...], 't0'))")) as caught:
        assert_resumable(make, worlds=[(1, 1)], batch_sizes=[1])
    assert "instead of [(1, ([1, 1, 1, 1, 1, 1, ...], 't1'))" in str(caught.value)


def test_pin_memory_calls_the_method_of_other_objects_as_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    class Graph:
        def __init__(self, nodes: torch.Tensor, pinned: bool = False) -> None:
            self.nodes, self.pinned = nodes, pinned

        def pin_memory(self) -> "Graph":
            return Graph(self.nodes, True)

    pinned = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor.tolist()) or tensor)
    data = [torch.tensor(k) for k in range(4)]

    def collate(items: list[torch.Tensor]) -> dict[str, Any]:
        nodes = torch.stack(items)
        return {"graphs": [Graph(nodes), Graph(nodes)], "labels": nodes, "name": "a"}

    batches = list(ndd.DataLoader(data, batch_size=2, collate_fn=collate, pin_memory=True))
    assert [graph.pinned for batch in batches for graph in batch["graphs"]] == [True] * 4
    assert pinned == [[0, 1], [2, 3]]
    (batch,) = ndd.DataLoader(data, batch_size=4, collate_fn=collate)
    assert [graph.pinned for graph in batch["graphs"]] == [False, False]
