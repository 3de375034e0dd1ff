# SPDX-License-Identifier: Apache-2.0
"""What a mix delivers, what it rejects, and where it is used."""

import json
import math
import pickle
import tracemalloc
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from _forks import Forks, torchrun_variables
from _slow_sources import Slow
from readers._numbers import Numbers, World

import torch_ndd as ndd
from torch_ndd.testing import assert_resumable

Mix = ndd.readers.Mix


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    for i in range(9):
        (tmp_path / f"{i}.bin").write_bytes(bytes([i]) * (i % 3 + 1))
    return sorted(tmp_path.glob("*.bin"))


def two(files: list[Path], **options: Any) -> ndd.readers.Mix:
    return Mix({"a": ndd.readers.File(files=files[:6]), "b": ndd.readers.File(files=files[6:])}, **options)


@pytest.mark.parametrize("kind", ["together", "by source", "with limits"])
def test_readers_of_files_of_different_lengths(files: list[Path], kind: str) -> None:
    mix = two(files, weights={"a": 2, "b": 1})
    if kind != "together":
        first: Any = ndd.readers.File(files=files[:6], url_max_bytes=100 if kind == "with limits" else None)
        if kind == "by source":
            first = ndd.Source(first, lambda contents, labels: (contents, labels))
        mix = Mix({"a": first, "b": ndd.readers.File(files=files[6:])}, weights={"a": 2, "b": 1})
    (contents, labels, source), *_ = mix.next_epoch(9)
    assert source.torch().tolist() == [0, 1, 0, 0, 1, 0, 0, 1, 0]
    assert labels.torch().flatten().tolist() == [0, 0, 1, 2, 1, 3, 4, 2, 5]
    assert [sample.torch().tolist() for sample in contents] == [[k] * (k % 3 + 1) for k in (0, 6, 1, 2, 7, 3, 4, 8, 5)]
    assert list(contents.sources) == [str(files[k]) for k in (0, 6, 1, 2, 7, 3, 4, 8, 5)]
    assert mix.names == ("a", "b")


def test_samples_without_a_batch_size(files: list[Path]) -> None:
    (content, label, source), *_ = two(files).next_epoch()
    assert (content.torch().tolist(), label.item(), source.item()) == ([0], 0, 0)


class Point(NamedTuple):
    x: int
    name: str


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1, 2], [3, 4], ([1, 3, 2, 4], [0, 1, 0, 1])),
        ([("a", 1), ("b", 2)], [("c", 3), ("d", 4)], (("a", "c", "b", "d"), [1, 3, 2, 4], [0, 1, 0, 1])),
        ([{"x": 1}, {"x": 2}], [{"x": 3}, {"x": 4}], {"x": [1, 3, 2, 4], "source": [0, 1, 0, 1]}),
        ([Point(1, "a"), Point(2, "b")], [Point(3, "c"), Point(4, "d")], ([1, 3, 2, 4], ("a", "c", "b", "d"), [0, 1, 0, 1])),
        ([(1, {"y": (2, "u")})] * 2, [(3, {"y": (4, "v")})] * 2, ([1, 3, 1, 3], {"y": ([2, 4, 2, 4], ("u", "v", "u", "v"))}, [0, 1, 0, 1])),
    ],
)
def test_data_sets_of_torch(first: list[Any], second: list[Any], expected: Any) -> None:
    def plain(value: Any) -> Any:
        if isinstance(value, ndd.Batch):
            return value.torch().tolist()
        if isinstance(value, dict):
            return {key: plain(part) for key, part in value.items()}
        return tuple(map(plain, value)) if isinstance(value, tuple | list) and not isinstance(value[0], str) else tuple(value)

    (outputs,) = Mix({"a": first, "b": second}).next_epoch(4)
    assert plain(outputs) == expected


def test_dense_and_ragged_batches_of_sources_become_one() -> None:
    first = [torch.full((2, 3), k) for k in range(3)]
    second = [torch.full((k, 3), 10 + k) for k in range(1, 4)]
    (values, _) = next(Mix({"a": first, "b": second}).next_epoch(6))
    assert values.shape == [(2, 3), (1, 3), (2, 3), (2, 3), (2, 3), (3, 3)]
    assert [int(sample.torch()[0, 0]) for sample in values] == [0, 11, 1, 12, 2, 13]


def test_boxes_keep_their_meaning() -> None:
    tv_tensors = pytest.importorskip("torchvision.tv_tensors")
    boxes = [tv_tensors.BoundingBoxes(torch.zeros(k + 1, 4), format="XYXY", canvas_size=(10 + k, 20)) for k in range(4)]
    (found, _) = next(Mix({"a": boxes[:2], "b": boxes[2:]}).next_epoch(4))
    assert type(found).__name__ == "BoundingBoxes"
    assert found.canvas_size == [(10, 20), (12, 20), (11, 20), (13, 20)]


def test_functions_of_sources_get_their_samples_only() -> None:
    seen = []

    def convert(values: ndd.Batch) -> ndd.Batch:
        seen.append(values.torch().tolist())
        return ndd.cast(values, dtype=ndd.float32) / 2

    mix = Mix({"a": ndd.Source([1, 2, 3, 4], convert), "b": [torch.tensor(0.5)] * 4})
    values = [value for batch, _ in mix.next_epoch(4) for value in batch.torch().tolist()]
    assert values == [0.5, 0.5, 1.0, 0.5, 1.5, 0.5, 2.0, 0.5]
    assert seen == [[1, 2], [3, 4]]


def test_functions_may_return_torch_tensors_and_names() -> None:
    mix = Mix({"a": ndd.Source([1, 2], lambda x: {"x": x.torch() + 1}), "b": ndd.Source([5, 6], lambda x: {"x": np.asarray(x) * 2})})
    (outputs,) = mix.next_epoch(4)
    assert outputs["x"].torch().tolist() == [2, 10, 3, 12]


def test_random_functions_of_sources_repeat_after_a_resume() -> None:
    def make() -> ndd.DataLoader:
        noisy = ndd.Source(list(range(20)), lambda x: x + ndd.random.uniform(batch_size=x.batch_size, range=[0, 0.5]))
        return ndd.DataLoader(Mix({"a": noisy, "b": [torch.tensor(0.25)] * 20}), lambda x, source: x, batch_size=4, seed=5)

    loader, resumed = make(), make()
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = [batch.tolist() for batch in batches]
    resumed.load_state_dict(json.loads(json.dumps(state)))
    assert [batch.tolist() for batch in resumed] == rest


def files_of(kind: str) -> ndd.readers.File:
    return ndd.readers.File(files=[__file__], scalar_labels=kind == "int64")


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: Mix({}), ValueError, "sources must have 1 to 65536 entries, got 0"),
        (lambda: Mix([[1]]), TypeError, "sources must be a dict"),
        (lambda: Mix({1: [1]}), TypeError, "names of sources must be strings, got 1"),
        (lambda: Mix({"a": 5}), TypeError, "source 'a' must be a reader or a map-style data set"),
        (lambda: Mix({"a": iter([1])}), TypeError, "source 'a' needs random access"),
        (lambda: Mix({"a": ndd.ExternalSource(lambda: 1)}), TypeError, "source 'a' needs random access"),
        (lambda: Mix({"a": [1]}, weights={"a": 0}), ValueError, r"weights\['a'\] must be positive and finite, got 0"),
        (lambda: Mix({"a": [1]}, weights={"a": -1.5}), ValueError, r"weights\['a'\]"),
        (lambda: Mix({"a": [1]}, weights={"a": math.nan}), ValueError, r"weights\['a'\]"),
        (lambda: Mix({"a": [1]}, weights={"a": math.inf}), ValueError, r"weights\['a'\]"),
        (lambda: Mix({"a": [1]}, weights={"a": "1"}), TypeError, r"weights\['a'\]"),
        (lambda: Mix({"a": [1]}, weights=[1]), TypeError, "weights"),
        (lambda: Mix({"a": [1], "b": [1]}, weights={"a": 1}), ValueError, "no number for the source 'b'"),
        (lambda: Mix({"chat": [1]}, weights={"chat": 1, "chap": 1}), ValueError, "'chap', which is not a source; did you mean"),
        (lambda: Mix({"a": [1]}, weights={"a": 1}, temperature=1), ValueError, "exclude each other"),
        (lambda: Mix({"a": [1]}, temperature=0), ValueError, "temperature must be positive"),
        (lambda: Mix({"a": [1]}, order="random"), ValueError, "order must be one of interleaved, shuffled, got 'random'"),
        (lambda: Mix({"a": [1]}, epoch="last"), ValueError, "epoch must be one of first, all, once, got 'last'"),
        (lambda: Mix({"a": [1]}, epoch=0), ValueError, "epoch must be"),
        (lambda: Mix({"a": [1]}, epoch=1.5), TypeError, "'epoch' must be"),
        (lambda: Mix({"a": [1]}, block=0), ValueError, "block must be a positive number"),
        (lambda: Mix({"a": Numbers(4, num_shards=2)}), ValueError, "source 'a' has num_shards=2, which belongs here"),
        (lambda: Mix({"a": Numbers(4, random_shuffle=True)}), ValueError, "source 'a' has random_shuffle=True"),
        (lambda: Mix({"a": Numbers(4, on_error="skip")}), ValueError, "source 'a' has on_error='skip'"),
        (lambda: Mix({"a": ndd.readers.Dataset([1], sampler=[0])}), ValueError, "source 'a' has a sampler"),
        (lambda: Mix({"a": [1]}, shard_id=2, num_shards=2), ValueError, "shard_id must be from 0 to 1"),
        (lambda: ndd.Source([1], 5), TypeError, "fn must be callable"),
        (lambda: Mix({"a": [1], "empty": []}), RuntimeError, "source 'empty' has no samples"),
        (lambda: next(Mix({"a": [1], "empty": Numbers(0)}).next_epoch(1)), RuntimeError, "source 'empty' has no samples"),
        (lambda: next(Mix({"a": [1], "b": [1.5]}).next_epoch(1)), ValueError, "output 0 differs: the source 'b' has float64"),
        (lambda: next(Mix({"a": [(1, 2)], "b": [1]}).next_epoch(2)), ValueError, "output 1 differs: the source 'b' has none"),
        (lambda: next(Mix({"a": [{"x": 1}], "b": [{"y": 1}]}).next_epoch(1)), ValueError, "output 'x' differs"),
        (lambda: next(Mix({"a": files_of("int32"), "b": files_of("int64")}).next_epoch(1)), ValueError, "output 1 differs: the source 'b' has int64"),
        (lambda: next(Mix({"a": [{"source": 1}]}).next_epoch(1)), ValueError, "output 'source' has the name"),
        (lambda: next(Mix({"a": [torch.zeros(1)], "b": [torch.zeros(1, 1)]}).next_epoch(1)), ValueError, "float32 with 2 dimensions"),
        (lambda: next(Mix({"a": ndd.Source([1, 2], lambda x: x.torch()[:1])}).next_epoch(2)), ValueError, "output 0 has 1 samples for 2"),
        (
            lambda: next(Mix({"a": ndd.Source([1, 2], lambda x: None)}).next_epoch(2)),
            TypeError,
            "source 'a': output 0 must have a value .* got NoneType",
        ),
        (lambda: next(Mix({"a": ndd.Source([1, 2], iter)}).next_epoch(2)), TypeError, "source 'a': output 0 must have a value for each sample"),
    ],
)
def test_bad_arguments(make: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        make()
    assert type(caught.value) is kind


def test_mix_rejects_a_reader_that_has_begun() -> None:
    reader = Numbers(4)
    next(reader.next_epoch(1))
    with pytest.raises(ValueError, match="source 'a' has already begun"):
        Mix({"a": reader})


def mix_with_bad(on_error: Any, bad: list[int], **options: Any) -> ndd.readers.Mix:
    return Mix({"a": Numbers(20, 0, bad), "b": Numbers(20, 100)}, on_error=on_error, epoch=20, **options)


def test_a_bad_sample_is_named_with_its_source() -> None:
    mix = mix_with_bad("raise", [3])
    with pytest.raises(RuntimeError, match=r"readers.Mix: sample 6 \(source 'a', sample 3: number 3\): it is bad"):
        list(mix.next_epoch(10))


def test_a_skipped_sample_moves_no_rank() -> None:
    ranks = [mix_with_bad("skip", [3], max_batch_size=4, shard_id=rank, num_shards=2) for rank in range(2)]
    good = [mix_with_bad("skip", [], max_batch_size=4, shard_id=rank, num_shards=2) for rank in range(2)]
    for bad_loop, good_loop in zip(map(iter, ranks), map(iter, good), strict=True):
        for batch, expected in zip(bad_loop, good_loop, strict=True):
            wanted = [number for number in expected[0].torch().tolist() if number != 3]
            assert batch[0].torch().tolist() == wanted
            assert batch[1].batch_size == len(wanted)
    assert [mix.state_dict() for mix in ranks] == [mix.state_dict() for mix in good]
    assert ranks[0].state_dict() == ranks[1].state_dict()
    assert [(error.sample, error.source) for mix in ranks for error in mix.errors] == [(3, "source 'a', sample 3: number 3")]


def test_a_bad_sample_is_replaced_by_one_of_its_source() -> None:
    mix = mix_with_bad("replace", [1, 2])
    batches = [values.torch().tolist() for values, _ in mix.next_epoch(6)]
    assert batches[0] == [0, 100, 0, 101, 0, 102]
    other = Mix({"a": Numbers(20, 0, [0]), "b": Numbers(20, 100)}, on_error="replace", epoch=20)
    assert next(other.next_epoch(2))[0].torch().tolist() == [100, 100]  # none of its source is in the batch


@pytest.mark.parametrize(("on_error", "expected"), [("skip", [2]), ("replace", [2, 3])])
def test_a_batch_of_bad_samples_becomes_the_next_good_one(on_error: Any, expected: list[int]) -> None:
    mix = Mix({"a": Numbers(20, 0, [0, 1])}, on_error=on_error, max_batch_size=2)
    batches = [values.torch().tolist() for values, _ in mix]
    assert batches[0] == expected
    assert batches[1:] == [[k, k + 1] for k in range(2, 20, 2)]


def test_a_mix_of_bad_samples_only_ends_with_an_error() -> None:
    with pytest.raises(RuntimeError, match="none of the 5 samples can be read"):
        list(Mix({"a": Numbers(5, 0, range(5))}, on_error="skip", max_batch_size=2))


def test_drop_last_drops_the_same_step_on_all_ranks() -> None:
    def batches(rank: int, bad: list[int]) -> list[list[int]]:
        mix = Mix({"a": Numbers(23, 0, bad)}, shard_id=rank, num_shards=2, on_error="skip")
        loader = ndd.DataLoader(mix, lambda values, source: values, batch_size=4, drop_last=True)
        found = [values.tolist() for values in loader]
        assert len(found) == len(loader)
        return found

    assert batches(0, [2]) == [[0, 1, 3], [8, 9, 10, 11]]  # a smaller batch is not the last one
    assert batches(1, []) == [[4, 5, 6, 7], [12, 13, 14, 15]]  # of the last 7, this rank has 4


@pytest.mark.parametrize(("ranks", "padded"), [(1, False), (3, False), (3, True), (7, True)])
def test_lengths_of_mixes_and_loaders(ranks: int, padded: bool) -> None:
    for rank in range(ranks):
        mix = Mix({"a": Numbers(23), "b": Numbers(9)}, epoch="once", shard_id=rank, num_shards=ranks, pad_shards=padded, max_batch_size=5)
        loader = ndd.DataLoader(mix, batch_size=3)
        assert len(loader) == len(list(loader))
        assert len(mix) == mix.count_batches_left(5)
        batches = iter(mix)
        taken = 0
        while True:
            left = mix.count_batches_left(5)
            assert mix.state_dict()["at"] == min(32, taken * 5 * ranks)
            if next(batches, None) is None:
                break
            assert mix.count_batches_left(5) == left - 1
            taken += 1


def test_a_reader_may_be_several_sources() -> None:
    reader = ndd.readers.Dataset(list(range(10)))
    mix = Mix({"often": reader, "seldom": reader}, weights={"often": 2, "seldom": 1}, epoch=9)
    assert next(mix.next_epoch(9))[0].torch().tolist() == [0, 0, 1, 2, 1, 3, 4, 2, 5]


@pytest.mark.parametrize("order", ["interleaved", "shuffled"])
def test_blocks_are_of_one_source(order: Any) -> None:
    mix = Mix({"a": Numbers(5000), "b": Numbers(5000)}, block=64, order=order, max_batch_size=64, epoch=8192)
    sources = [source.torch() for _, source in mix]
    assert all((source == source[0]).all() for source in sources)
    assert sum(int(source[0]) for source in sources) == 64
    huge = Mix({"a": Numbers(5), "b": Numbers(5)}, block=1 << 40, epoch=1 << 39)
    assert huge.list_order(0, 1 << 38, 4).tolist() == [4, 0, 1, 2]


def test_two_loops_and_a_loop_that_is_left() -> None:
    loader = ndd.DataLoader(Mix({"a": Numbers(6), "b": Numbers(6, 10)}), lambda values, source: values, batch_size=4)
    for _ in loader:
        break
    assert [batch.tolist() for batch in loader] == [[0, 10, 1, 11], [2, 12, 3, 13], [4, 14, 5, 15]]
    assert loader.state_dict()["reader"]["epoch"] == 2


def test_a_source_of_another_size_than_in_the_state() -> None:
    state = Mix({"a": Numbers(5), "b": Numbers(6)}).state_dict()
    mix = Mix({"a": Numbers(5), "b": Numbers(7)})
    with pytest.raises(ValueError, match="source 'b' has 7 samples, but 6 in the state"):
        mix.load_state_dict(state)


def test_a_data_set_that_changes_its_size_is_an_error() -> None:
    data = [1, 2, 3]
    mix = Mix({"a": data}, max_batch_size=2)
    assert len(list(mix)) == 2
    data.append(4)
    with pytest.raises(ValueError, match="source 'a' has 4 samples now, but had 3"):
        list(mix)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "'version'"),
        ({"at": -1}, "'at'"),
        ({"at": 1.0}, "'at'"),
        ({"at": 7}, "'at' is 7, but 'length' only 6"),
        ({"length": 1 << 50}, "'length'"),
        ({"base": {"a": 0}}, "same names"),
        ({"base": {"a": 0, "b": -1}}, r"'base'\['b'\]"),
        ({"base": []}, "'base' must be a dict"),
        ({"since": -1}, "'since'"),
        ({"weights": []}, "'weights'"),
        ({"weights": [["a", 0, 6], ["b", 1, 6]]}, "'weights'"),
        ({"weights": [["a", 1, 6], ["a", 1, 6]]}, "same names"),
        ({"weights": [["a", 1 << 20, 6], ["b", 1 << 20, 6]]}, "too large"),
        ({"order": "x"}, "'order'"),
        ({"block": 0}, "'block'"),
        ({"once": True}, "once=True"),
        ({"random_shuffle": True}, "random_shuffle=True"),
        ({"worker": [2, 2, 1], "at": 2}, "belongs to a DataLoader 'worker'"),
        ({"more": 1}, "unknown key 'more'"),
    ],
)
def test_damaged_states(change: dict[str, Any], message: str) -> None:
    mix = Mix({"a": Numbers(6), "b": Numbers(6)}, epoch=6)
    state = mix.state_dict()
    with pytest.raises(ValueError, match=message):
        mix.load_state_dict({**state, **change})
    for key in state:
        with pytest.raises(ValueError, match=f"the key '{key}' is missing"):
            mix.load_state_dict({name: value for name, value in state.items() if name != key})
    assert mix.state_dict() == state


def test_hostile_states_cost_little() -> None:
    mix = Mix({"a": Numbers(6), "b": Numbers(6)}, 1, epoch=6)
    far = {"epoch": 2**61, "since": 2**61, "base": {"a": 2**61, "b": 2**61}, "at": 3, "length": 2**39}
    mix.load_state_dict({**mix.state_dict(), **far})
    assert next(iter(mix))[0].batch_size == 1
    names = [[f"s{k}", 16, 5] for k in range(60_000)]
    many = {"weights": names, "base": dict.fromkeys([name for name, *_ in names], 3), "at": 2}
    mix.load_state_dict({**Mix({"a": Numbers(6), "b": Numbers(6)}, epoch=6).state_dict(), **many})
    assert mix.state_dict()["base"] == {"a": 0, "b": 0}


def test_states_are_small() -> None:
    for sources in (1, 5, 20):
        mix = Mix({f"source_{k:02}": Numbers(123_456_789) for k in range(sources)}, order="shuffled")
        mix.set_epoch(7)
        assert len(json.dumps(mix.state_dict())) < 1000 + 60 * max(0, sources - 5)


def test_a_mix_of_a_billion_samples_is_small() -> None:
    """Without shuffling nothing grows with the number of samples; with it, a permutation of the running pass of each source."""
    sources = {f"source_{k}": Numbers(50_000_000) for k in range(20)}
    tracemalloc.start()
    try:
        mix = Mix(sources, weights={f"source_{k}": k + 1 for k in range(20)}, epoch="all")
        mix.set_epoch(3)
        assert len(mix.list_order(3, 123_456_789, 1000)) == 1000
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


# Where a mix is used.


@pytest.mark.parametrize(("context", "workers"), [(None, 0), ("fork", 1), ("fork", 2)])
def test_data_loader_of_torch(workers: int, context: Any) -> None:
    def make(rank: int, world: int) -> ndd.readers.Mix:
        return Mix({"a": Numbers(23), "b": Numbers(9, 100)}, random_shuffle=True, max_batch_size=3, shard_id=rank, num_shards=world)

    for rank in range(2):
        mix = make(rank, 2)
        loader = torch.utils.data.DataLoader(make(rank, 2), batch_size=None, num_workers=workers, multiprocessing_context=context)
        expected = [(values.torch().tolist(), source.torch().tolist()) for values, source in mix]
        assert [(values.torch().tolist(), source.torch().tolist()) for values, source in loader] == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_data_loader(workers: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def make(rank: int, world: int, batch_size: int) -> Any:
        mix = Mix({"a": Numbers(7), "b": Numbers(4, 100)}, max_batch_size=batch_size, shard_id=rank, num_shards=world, epoch="once")
        return loader(mix, batch_size=None, num_workers=workers)

    assert_resumable(make, worlds=[(1, 1)], batch_sizes=[3], cuts=[0, 1, 2, 4] if workers else None)


def test_checkpoints_of_readers_and_pickles() -> None:
    mix = Mix({"a": Numbers(7), "b": Numbers(4, 100)}, max_batch_size=2, enable_checkpointing=True)
    loop = mix.next_epoch()
    next(loop)
    copy = pickle.loads(pickle.dumps(mix))
    other = Mix({"a": Numbers(7), "b": Numbers(4, 100)}, max_batch_size=2)
    other.set_state(mix.get_state())
    expected = next(loop)[0].torch().tolist()
    assert next(copy.next_epoch())[0].torch().tolist() == expected
    assert next(other.next_epoch())[0].torch().tolist() == expected


def test_captured_epochs() -> None:
    plain, captured = (Mix({"a": Numbers(40), "b": Numbers(40, 100)}, epoch=60) for _ in range(2))
    expected = [(values + 1).torch().tolist() for values, _ in plain.next_epoch(4)]
    assert [(values + 1).torch().tolist() for values, _ in captured.next_epoch(4, capture=True)] == expected
    assert captured.state_dict() == plain.state_dict()


def test_return_paths(files: list[Path]) -> None:
    loader = ndd.DataLoader(two(files), lambda contents, labels, source: labels, batch_size=4, return_paths=True)
    labels, paths = next(iter(loader))
    assert [Path(path).stem for path in paths] == ["0", "6", "1", "2"]
    assert labels.flatten().tolist() == [0, 0, 1, 2]


def test_errors_in_the_loader_name_the_file(files: list[Path]) -> None:
    files[7].unlink()
    loader = ndd.DataLoader(two(files), batch_size=9)
    with pytest.raises(RuntimeError, match=rf"source 'b', sample 1: {files[7]}"):
        list(loader)


def test_loader_of_a_mix_finds_a_missing_folder(tmp_path: Path) -> None:
    mix = Mix({"a": ndd.readers.File(file_root=tmp_path / "none")})
    with pytest.raises(RuntimeError, match="a: file_root"):
        ndd.DataLoader(mix, batch_size=2)


def test_nodes_of_torchdata() -> None:
    nodes = pytest.importorskip("torch_ndd.pytorch.nodes")
    node = nodes.Reader(partial(Mix, {"a": Numbers(8), "b": Numbers(8, 100)}), batch_size=4, output_names=("value", "source"))
    node.reset()
    first = [next(node)["value"].torch().tolist() for _ in range(2)]
    other = nodes.Reader(partial(Mix, {"a": Numbers(8), "b": Numbers(8, 100)}), batch_size=4, output_names=("value", "source"))
    other.reset(node.state_dict())
    rest = [batch["value"].torch().tolist() for batch in other]
    assert sorted(number for part in first + rest for number in part) == [*range(8), *range(100, 108)]


@pytest.fixture
def trainer() -> Any:
    lightning = pytest.importorskip("lightning")
    import torch_ndd.lightning  # noqa: F401

    return lightning


@pytest.mark.filterwarnings("ignore")
def test_lightning_resumes_a_mix(trainer: Any, tmp_path: Path) -> None:
    class Model(trainer.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(1, 1), []

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            values, _ = batch
            self.seen.append(values.tolist())
            return self.layer(values.float()[:, None]).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-6)

    def data() -> Any:
        sources = {"a": Numbers(20), "b": Numbers(10, 100)}
        return ndd.lightning.DataModule(lambda **shard: Mix(sources, random_shuffle=True, **shard), train_fn=lambda *parts: parts, batch_size=4)

    def fit(steps: int, checkpoint: Any = None) -> list[Any]:
        model = Model()
        options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
        fitted = trainer.Trainer(max_steps=steps, default_root_dir=tmp_path, **options)
        fitted.fit(model, data(), ckpt_path=checkpoint, weights_only=False) if checkpoint else fitted.fit(model, data())
        fitted.save_checkpoint(tmp_path / f"{steps}.ckpt")
        return model.seen

    everything = fit(20)
    for steps in (3, 10):  # in the first and in the second epoch
        assert fit(steps) == everything[:steps]
        assert fit(20, tmp_path / f"{steps}.ckpt") == everything[steps:]


PROGRAM = """
import json, sys
import torch
import torch.distributed as dist
import torch_ndd as ndd
sys.path[:0] = {paths!r}
from readers._numbers import Numbers
dist.init_process_group("gloo")
sources = {{"a": Numbers(41), "b": Numbers(17, 100)}}
mix = ndd.readers.Mix(sources, weights={{"a": 3, "b": 2}}, epoch="once", pad_shards=True, **ndd.distributed.shard())
if {state!r}:
    mix.load_state_dict(json.loads({state!r}))
seen = []
for values, source in ndd.DataLoader(mix, lambda *parts: parts, batch_size={batch}):
    total = torch.tensor([float(len(values))])
    dist.all_reduce(total)  # hangs unless all ranks take the same number of steps
    seen.append(values.tolist())
    if len(seen) == {steps}:
        break
print(json.dumps({{"seen": seen, "state": mix.state_dict() if not {steps} else None, "rank": dist.get_rank()}}))
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_processes_over_gloo_stop_at_the_same_step(forks: Forks) -> None:
    def run(processes: int, state: str = "", batch: int = 4, steps: int = 0) -> list[list[list[int]]]:
        program = PROGRAM.format(paths=[str(Path(__file__).parents[1])], state=state, batch=batch, steps=steps)
        runs = [forks.run(program, variables=variables) for variables in torchrun_variables(processes)]
        for process in runs:
            assert process.wait(120) == 0, process.errors
        return [json.loads(process.output)["seen"] for process in runs]

    def make(**shard: Any) -> ndd.readers.Mix:
        return Mix({"a": Numbers(41), "b": Numbers(17, 100)}, weights={"a": 3, "b": 2}, epoch="once", pad_shards=True, **shard)

    before = run(2, steps=3)
    world = World(make, 2, 4)
    assert [list(parts) for parts in zip(*before, strict=True)] == list(world.steps(3))
    rest = run(3, json.dumps(world.state()), batch=5)
    assert len({len(seen) for seen in rest}) == 1  # the same number of steps
    everything = [number for seen in (*before, *rest) for part in seen for number in part]
    assert set(everything) == {*range(41), *range(100, 117)}
    assert len(everything) <= 58 + 2  # the padding of the last step


@pytest.mark.parametrize("function", [None, lambda values: values])
def test_diagnose_names_the_slow_source(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrap(data: Any) -> Any:
        return data if function is None else ndd.Source(data, function)

    loader = ndd.DataLoader(
        Mix({"fast": wrap(range(40)), "slow": wrap(Slow([*range(40)], monkeypatch)), "other": wrap(range(40))}),
        lambda values, source: values,
        batch_size=8,
    )
    list(loader)
    assert loader.reader.describe_bottleneck()[0] == "Slow of the source 'slow', which takes the most time"
