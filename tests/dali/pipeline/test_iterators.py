# SPDX-License-Identifier: Apache-2.0
"""Iterators over pipelines: the same loops under DALI and torch_ndd.dali."""

import logging
import random
import sys
import threading
import time
import unittest
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _pipelines import both, ours_raises, sub
from _raises import Raises, raising

import torch_ndd.dali as ours

MAP = ["data", "label"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = tmp_path_factory.mktemp("files")
    for k in range(30):
        (result / f"{k:02d}.bin").write_bytes(bytes([k]))
    return result


def readers(
    dali: Any, folder: Path, count: int = 10, batch_size: int = 4, shards: int = 1, ids: tuple[int, ...] = (0,), depth: int = 2, **options: Any
) -> list[Any]:
    """Pipelines over the same files, one for each shard."""

    @dali.pipeline_def(batch_size=batch_size, num_threads=1, device_id=None, prefetch_queue_depth=depth)
    def definition(shard: int) -> Any:
        files = [str(folder / f"{k:02d}.bin") for k in range(count)]
        return tuple(dali.fn.readers.file(files=files, labels=list(range(count)), shard_id=shard, num_shards=shards, name="Reader", **options))

    return [definition(shard) for shard in ids]


def torch_plugin(dali: Any) -> Any:
    return sub(dali, "plugin.pytorch")


def epochs(loader: Any, count: int, breaks: set[tuple[int, int]] = frozenset(), most: int = 40) -> list[Any]:
    """All labels, with lengths and sizes; ``breaks`` are pairs of loop and step."""
    seen: list[Any] = []
    for epoch in range(count):
        seen.append([len(loader), loader.size, loader._size])
        for k, step in enumerate(loader):
            seen.append([[[key, value[key].flatten().tolist(), str(value[key].dtype)] for key in value] for value in step])
            if (epoch, k) in breaks:
                seen.append("break")
                break
            if k == most:
                return seen
    return seen


def draw_configuration(seed: int) -> dict[str, Any]:
    """A random configuration."""
    draw = random.Random(seed)
    count = draw.randrange(1, 26)
    shards = min(count, draw.choice([1, 1, 2, 3, 4, 5]))
    some = draw.sample(range(shards), draw.randrange(1, shards + 1))
    results: dict[str, Any] = {
        "count": count,
        "batch_size": draw.randrange(1, 7),
        "shards": shards,
        "ids": draw.choice([(draw.randrange(shards),), tuple(range(shards)), tuple(some)]),
        "depth": draw.randrange(1, 4),
        "pad_last_batch": draw.random() < 0.5,
        "stick_to_shard": draw.random() < 0.4,
        "policy": draw.choice(["FILL", "DROP", "PARTIAL"]),
        "auto_reset": draw.choice([True, False, "yes", "no", None]),
        "prepare_first_batch": draw.random() < 0.7,
        "breaks": {(draw.randrange(4), draw.randrange(3)) for _ in range(draw.choice([0, 0, 1, 2]))},
    }
    if draw.random() < 0.25:
        results |= {"size": draw.choice([count, draw.randrange(1, 30)]), "last_batch_padded": draw.random() < 0.5}
    else:
        results["reader_name"] = "Reader"
    return results


OF_READER = ("count", "batch_size", "shards", "ids", "depth", "pad_last_batch", "stick_to_shard")


@pytest.mark.slow
@pytest.mark.parametrize("group", range(20))
def test_random_configurations(folder: Path, group: int) -> None:
    def program(dali: Any, configuration: dict[str, Any]) -> Any:
        options = dict(configuration)
        pipes = readers(dali, folder, **{key: options.pop(key) for key in OF_READER})
        breaks, policy = options.pop("breaks"), options.pop("policy")
        plugin = torch_plugin(dali)
        try:
            loader = plugin.DALIGenericIterator(pipes, MAP, last_batch_policy=plugin.LastBatchPolicy[policy], **options)
            return epochs(loader, 5, breaks)
        except RuntimeError:
            return "no batch"

    logging.disable(logging.WARNING)
    try:
        for k in range(20):
            value = draw_configuration(100 * group + k)
            result = both(lambda dali, source=value: program(dali, source))
            assert result != "no batch" or value["policy"] == "DROP"
    finally:
        logging.disable(logging.NOTSET)


def stop_after(count: int, calls: list[int] | None = None) -> Any:
    def source(iteration: int) -> list[np.ndarray]:
        if calls is not None:
            calls.append(iteration)
        if iteration >= count:
            raise StopIteration
        return [np.array([10 * iteration + k], np.int32) for k in range(1 + iteration % 3)]

    return source


@pytest.mark.parametrize("auto_reset", [True, False])
@pytest.mark.parametrize("prepare", [True, False])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_external_sources_end_epochs(auto_reset: bool, prepare: bool, depth: int) -> None:
    """The batches, and when the source is called."""

    def program(dali: Any) -> Any:
        calls: list[int] = []

        @dali.pipeline_def(batch_size=3, num_threads=1, device_id=None, prefetch_queue_depth=depth)
        def definition() -> Any:
            return dali.fn.external_source(stop_after(3, calls))

        loader = torch_plugin(dali).DALIGenericIterator(definition(), ["data"], auto_reset=auto_reset, prepare_first_batch=prepare)
        seen: list[Any] = [len(calls)]
        for _ in range(3):
            for step in loader:
                seen += [step[0]["data"].flatten().tolist(), list(calls)]
            seen.append(list(calls))
        return seen

    both(program)


@pytest.mark.parametrize("breaks", [{(0, 0)}, {(0, 3)}, {(1, 0), (2, 3), (3, 3)}])
def test_breaks_with_sources(breaks: set[tuple[int, int]]) -> None:
    def program(dali: Any) -> Any:
        @dali.pipeline_def(batch_size=3, num_threads=1, device_id=None)
        def definition() -> Any:
            return dali.fn.external_source(stop_after(4)), dali.fn.external_source(stop_after(4))

        return epochs(torch_plugin(dali).DALIGenericIterator(definition(), MAP), 6, breaks)

    both(program)


@pytest.mark.parametrize("depth", [1, 2, 3, 6])
def test_a_break_does_not_join_epochs(depth: int) -> None:
    """DALI delivers the rest of the epoch and the next one as one, if the source was exhausted ahead."""

    @ours.pipeline_def(batch_size=3, prefetch_queue_depth=depth)
    def definition() -> Any:
        return ours.fn.external_source(stop_after(4))

    loader = torch_plugin(ours).DALIGenericIterator(definition(), ["data"])
    assert len(epochs(loader, 1, {(0, 2)})) == 5
    assert len(list(loader)) == 1
    assert len(list(loader)) == 4


def iterate_source(dali: Any, batches: int, batch_size: int = 1, depth: int = 2, **options: Any) -> Any:
    """Return an iterator over a source of as many full batches in an epoch, numbered 0, 1, ..."""

    def source(iteration: int) -> np.ndarray:
        if iteration >= batches:
            raise StopIteration
        return np.full((batch_size, 1), iteration, np.int32)

    @dali.pipeline_def(batch_size=batch_size, num_threads=1, device_id=None, prefetch_queue_depth=depth)
    def definition() -> Any:
        return dali.fn.external_source(source)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # reader_name is preferred to size
        return torch_plugin(dali).DALIGenericIterator(definition(), ["data"], **options)


def first_numbers(loader: Any) -> list[int]:
    return [int(step[0]["data"][0]) for step in loader]


def test_length_of_an_epoch_that_ends_with_its_data() -> None:
    """DALI's length is -1 / batch_size, rounded up, which is an error for batches of one sample."""
    both(lambda dali: len(iterate_source(dali, 3, batch_size=2)))
    both(lambda dali: len(iterate_source(dali, 3)), raises=(ValueError, "DALIGenericIterator: the number of batches is unknown.*size or reader_name"))
    assert len(list(iterate_source(ours, 3))) == 3  # list() calls len(), and goes on without a length


@pytest.mark.parametrize("auto_reset", [True, False])
@pytest.mark.parametrize("policy", ["FILL", "PARTIAL", "DROP"])
def test_a_source_that_ends_before_the_size_starts_again(policy: str, auto_reset: bool) -> None:
    """Every epoch is that of the source, whatever is issued ahead; in DALI all later ones are empty."""

    def program(dali: Any, depth: int, epochs: int) -> Any:
        chosen = torch_plugin(dali).LastBatchPolicy[policy]
        loader = iterate_source(dali, 3, 2, depth, size=9, auto_reset=auto_reset, last_batch_policy=chosen)
        return [first_numbers(loader) for _ in range(epochs)]

    for depth in (1, 2, 5):
        assert program(ours, depth, 4) == [[0, 1, 2]] * 4
    both(lambda dali: program(dali, 2, 1))


@pytest.mark.parametrize("auto_reset", [True, False])
@pytest.mark.parametrize("depth", [1, 3])
def test_a_source_that_ends_in_the_middle_of_a_later_epoch(auto_reset: bool, depth: int) -> None:
    loader = iterate_source(ours, 5, depth=depth, size=3, auto_reset=auto_reset)
    assert [first_numbers(loader) for _ in range(4)] == [[0, 1, 2], [3, 4], [0, 1, 2], [3, 4]]


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_a_source_that_ends_where_the_last_batch_is_dropped(batches: int) -> None:
    """The dropped batch of 5 samples is the third, which the source does not have."""
    options = {"size": 5, "auto_reset": True, "last_batch_policy": torch_plugin(ours).LastBatchPolicy.DROP}
    loader = iterate_source(ours, batches, 2, prepare_first_batch=False, **options)
    assert [first_numbers(loader) for _ in range(3)] == [[*range(batches)]] * 3
    if not batches:
        ours_raises(lambda dali: iterate_source(dali, 0, 2, **options), RuntimeError, "the epoch has no batches")


@pytest.mark.parametrize("policy", ["FILL", "PARTIAL", "DROP"])
def test_a_reader_goes_on_in_its_epoch_when_another_source_ends(folder: Path, policy: str) -> None:
    @ours.pipeline_def(batch_size=2)
    def definition() -> Any:
        files = [str(folder / f"{k:02d}.bin") for k in range(6)]
        return ours.fn.readers.file(files=files, name="Reader")[0], ours.fn.external_source([np.zeros((2, 1)), np.ones((2, 1))], cycle="raise")

    plugin = torch_plugin(ours)
    loader = plugin.DALIGenericIterator(definition(), MAP, reader_name="Reader", last_batch_policy=plugin.LastBatchPolicy[policy])
    # The third loop ends with the source, whose first batch was in the second.
    assert [first_numbers(loader) for _ in range(4)] == [[0, 2], [4], [0], [2, 4]]


CHECKS: dict[str, Any] = {
    "size 0": raising(AssertionError, {"size": 0}),
    "size and reader": raising(AssertionError, {"size": 3, "reader_name": "Reader"}),
    "padded and reader": raising(AssertionError, {"last_batch_padded": True, "reader_name": "Reader"}),
    "policy": raising(ValueError, {"last_batch_policy": "FILL", "reader_name": "Reader"}),
    "no reader of this name": raising(RuntimeError, {"reader_name": "Other"}),
    "auto_reset": raising(ValueError, {"auto_reset": "maybe", "reader_name": "Reader"}),
    "auto_reset in capitals": raising(ValueError, {"auto_reset": "YES", "reader_name": "Reader"}),
    "fewer names": raising(IndexError, {"output_map": ["data"], "reader_name": "Reader"}),
    "more names": raising(KeyError, {"output_map": ["data", "label", "more"], "reader_name": "Reader"}),
    "equal names": raising(AssertionError, {"output_map": ["data", "data"], "reader_name": "Reader"}),
}


@pytest.mark.parametrize("case", CHECKS.values(), ids=CHECKS)
def test_invalid_iterator_arguments_raise_like_dali(folder: Path, case: dict[str, Any], raises: Raises | None) -> None:
    options = {"output_map": MAP, **case}
    both(lambda dali: torch_plugin(dali).DALIGenericIterator(readers(dali, folder), **options), raises=raises)


@pytest.mark.parametrize("options", [{"reader_name": "Reader"}, {"reader_name": "", "size": 7}, {"reader_name": False, "size": 7}])
@pytest.mark.parametrize("policy", ["FILL", "PARTIAL", "DROP"])
def test_what_subclasses_read(folder: Path, options: dict[str, Any], policy: str) -> None:
    """Subclasses in real programs take the first batch themselves and compute lengths from the attributes of DALI's class."""

    def program(dali: Any) -> Any:
        plugin = torch_plugin(dali)
        chosen = getattr(plugin.LastBatchPolicy, policy)

        class Loader(plugin.DALIGenericIterator):
            def __next__(self) -> Any:
                if self._first_batch is not None:
                    batch, self._first_batch = self._first_batch, None
                    return "first", batch[0]["label"]
                return super().__next__()[0]["label"]

        loader = Loader(readers(dali, folder), MAP, last_batch_policy=chosen, **options)
        names = ["_size", "_num_gpus", "_last_batch_padded", "batch_size", *(["_size_no_pad", "_shards_num"] if options["reader_name"] else [])]
        values = [getattr(loader, name) for name in names]
        return [values, bool(loader._reader_name), loader._last_batch_policy == chosen, len(loader._pipes), list(loader)]

    both(program)


@pytest.mark.parametrize(
    "first",
    [
        {"batch_size": 3},
        {"count": 11},
        {"shards": 3},
        {"shards": 2, "pad_last_batch": True},
        {"shards": 2, "stick_to_shard": True},
    ],
)
def test_pipelines_that_do_not_fit(folder: Path, first: dict[str, Any]) -> None:
    second = {"shards": 2} if "shards" in first else {}

    def program(dali: Any) -> Any:
        pipes = readers(dali, folder, **first) + readers(dali, folder, ids=(1,) if second else (0,), **second)
        return torch_plugin(dali).DALIGenericIterator(pipes, MAP, reader_name="Reader")

    both(program, raises=AssertionError)


def test_several_pipelines_need_a_count(folder: Path) -> None:
    both(lambda dali: torch_plugin(dali).DALIGenericIterator(readers(dali, folder, shards=2, ids=(0, 1)), MAP), raises=AssertionError)
    ours_raises(lambda dali: torch_plugin(dali).DALIGenericIterator([], MAP), AssertionError, "at least one pipeline")


def test_a_reader_alone_never_ends(folder: Path) -> None:
    both(lambda dali: epochs(torch_plugin(dali).DALIGenericIterator(readers(dali, folder), MAP), 1))


def test_dropping_everything(folder: Path) -> None:
    def program(dali: Any, prepare: bool) -> Any:
        plugin = torch_plugin(dali)
        drop = plugin.LastBatchPolicy.DROP
        loader = plugin.DALIGenericIterator(
            readers(dali, folder, count=3), MAP, reader_name="Reader", last_batch_policy=drop, prepare_first_batch=prepare
        )
        return epochs(loader, 3)

    both(lambda dali: program(dali, True), raises=RuntimeError)
    both(lambda dali: program(dali, False))


def test_the_end_of_an_epoch(folder: Path) -> None:
    def program(dali: Any) -> Any:
        loader = torch_plugin(dali).DALIGenericIterator(readers(dali, folder), MAP, reader_name="Reader")
        seen = []
        for _ in range(3):
            seen.append(loader.next()[0]["label"].flatten().tolist())
        for _ in range(3):
            with pytest.raises(StopIteration):
                next(loader)
        loader.reset()
        loader.reset()
        return [*seen, loader.next()[0]["label"].flatten().tolist()]

    both(program)


def test_reset_after_the_last_batch(folder: Path) -> None:
    def program(dali: Any) -> Any:
        loader = torch_plugin(dali).DALIGenericIterator(readers(dali, folder, count=8), MAP, reader_name="Reader")
        next(loader), next(loader)
        loader.reset()
        return [step[0]["label"].flatten().tolist() for step in loader]

    both(program)


def test_reset_in_the_middle_warns(folder: Path) -> None:
    loader = torch_plugin(ours).DALIGenericIterator(readers(ours, folder), MAP, reader_name="Reader")
    next(loader)
    with unittest.TestCase().assertLogs(level=logging.WARNING) as logs:
        loader.reset()
    assert "has not ended" in logs.output[0]
    assert next(loader)[0]["label"].flatten().tolist() == [4, 5, 6, 7]


def test_classification_iterator_equals_dali(folder: Path) -> None:
    def program(dali: Any) -> Any:
        loader = torch_plugin(dali).DALIClassificationIterator(readers(dali, folder), reader_name="Reader")
        return [loader.batch_size, loader.size, loader.output_map, next(loader)]

    both(program)


def make_ragged(dali: Any) -> Any:
    @dali.pipeline_def(batch_size=3, num_threads=1, device_id=None)
    def definition() -> Any:
        rows = dali.fn.external_source([[np.arange(k + 1, dtype=np.float32) for k in range(3)]] * 2)
        return rows, dali.fn.external_source([[np.full((2, k + 1), k, np.float32) for k in range(3)]] * 2)

    return definition()


@pytest.mark.parametrize(
    "tags",
    [
        raising(RuntimeError, None),
        raising(RuntimeError, ["dense", "sparse_list"]),
        ["sparse_list", "sparse_list"],
        ["sparse_coo", "sparse_list"],
        raising(RuntimeError, ["sparse_list", "sparse_coo"]),
        raising(IndexError, ["sparse_list"]),
        raising(AssertionError, ["sparse_list", "sparse"]),
    ],
)
def test_ragged_iterator_equals_dali(tags: list[str] | None, raises: Raises | None) -> None:
    def program(dali: Any) -> Any:
        loader = torch_plugin(dali).DALIRaggedIterator(make_ragged(dali), MAP, output_types=tags)
        return [
            [[[key, value[key].to_dense() if tags[k] == "sparse_coo" else value[key]] for k, key in enumerate(value)] for value in step]
            for step in loader
        ]

    both(program, raises=raises)


@pytest.mark.parametrize("names", [raising(IndexError, ["data"]), [*MAP, "more"]])
def test_ragged_names(names: list[str], raises: Raises | None) -> None:
    """Fewer names than outputs are an error, more are not."""
    both(lambda dali: list(torch_plugin(dali).DALIRaggedIterator(make_ragged(dali), names, output_types=["sparse_list"] * 3)), raises=raises)


def test_ragged_partial_batches(folder: Path) -> None:
    plugin = torch_plugin(ours)
    tags = [plugin.DALIRaggedIterator.SPARSE_LIST_TAG, plugin.DALIRaggedIterator.SPARSE_COO_TAG]
    loader = plugin.DALIRaggedIterator(
        readers(ours, folder), MAP, reader_name="Reader", output_types=tags, last_batch_policy=plugin.LastBatchPolicy.PARTIAL
    )
    last = list(loader)[-1][0]
    assert [value.tolist() for value in last["data"]] == [[8], [9]]
    assert last["label"].to_dense().tolist() == [[8], [9]]


def test_ragged_outputs_need_the_ragged_iterator() -> None:
    both(lambda dali: torch_plugin(dali).DALIGenericIterator(make_ragged(dali), MAP), raises=RuntimeError)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"])
def test_iterators_return_every_dtype(dtype: str) -> None:
    def program(dali: Any) -> Any:
        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None)
        def definition() -> Any:
            return dali.fn.external_source(lambda _: np.array([[0, 1], [2, 3]], dtype))

        return next(torch_plugin(dali).DALIGenericIterator(definition(), ["data"]))

    both(program)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_dtypes_that_only_torch_has(dtype: str) -> None:
    @ours.pipeline_def(batch_size=2)
    def definition() -> Any:
        return ours.fn.external_source(lambda _: np.array([[0, 1], [2, 3]], dtype))

    values = next(torch_plugin(ours).DALIGenericIterator(definition(), ["data"]))[0]["data"]
    assert (values.dtype, values.tolist()) == (getattr(torch, dtype), [[0, 1], [2, 3]])
    types = {type_.name: value for type_, value in torch_plugin(ours).to_torch_type.items()}
    assert types[dtype.upper()] == values.dtype


def test_tensors_are_not_reused(folder: Path) -> None:
    loader = torch_plugin(ours).DALIGenericIterator(readers(ours, folder, count=24, depth=1), MAP, reader_name="Reader")
    steps = [step[0]["label"] for step in loader]
    copies = [step.clone() for step in steps]
    steps[0].add_(100)
    for item in steps[1:]:
        item.add_(0)
    assert [step.flatten().tolist() for step in steps[1:]] == [copy.flatten().tolist() for copy in copies[1:]]
    assert len({step.data_ptr() for step in steps}) == len(steps)
    assert torch.cat(copies).flatten().tolist() == list(range(24))


def test_tensors_share_the_memory_of_the_outputs() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)

    @ours.pipeline_def(batch_size=2, prefetch_queue_depth=1)
    def definition() -> Any:
        return ours.fn.external_source(lambda _: values, no_copy=True)

    assert next(torch_plugin(ours).DALIGenericIterator(definition(), ["data"]))[0]["data"].data_ptr() == values.ctypes.data


def test_varying_batches() -> None:
    def program(dali: Any, **options: Any) -> Any:
        @dali.pipeline_def(batch_size=3, num_threads=1, device_id=None)
        def definition() -> Any:
            return dali.fn.external_source(stop_after(5))

        return [step[0]["data"] for step in torch_plugin(dali).DALIGenericIterator(definition(), ["data"], **options)]

    both(program)
    both(lambda dali: program(dali, size=9), raises=AssertionError)


def test_errors_come_with_their_batch() -> None:
    def source(iteration: int) -> np.ndarray:
        if iteration == 4:
            raise ValueError("damaged")
        return np.array([[iteration]], np.int32)

    @ours.pipeline_def(batch_size=1)
    def definition() -> Any:
        return ours.fn.external_source(source)

    loader = torch_plugin(ours).DALIGenericIterator(definition(), ["data"])
    assert [int(next(loader)[0]["data"]) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="damaged"):
        next(loader)
    assert [int(next(loader)[0]["data"]) for _ in range(2)] == [5, 6]


def test_one_use_of_a_pipeline(folder: Path) -> None:
    def program(dali: Any, use: str, prepare: bool) -> Any:
        (pipe,) = readers(dali, folder)
        torch_plugin(dali).DALIGenericIterator(pipe, MAP, reader_name="Reader", prepare_first_batch=prepare)
        return getattr(pipe, use)()

    for use in ("run", "schedule_run"):
        for prepare in (True, False):
            both(lambda dali, use=use, prepare=prepare: program(dali, use, prepare), raises=RuntimeError)


def test_deprecated_iterator_arguments_warn(folder: Path) -> None:
    plugin = torch_plugin(ours)
    with pytest.warns(Warning, match="prefer reader_name to size"):
        plugin.DALIGenericIterator(readers(ours, folder), MAP, size=10)
    for fill, last in ((True, [8, 9, 0, 1]), (False, [8, 9])):
        with pytest.warns(DeprecationWarning, match="fill_last_batch is deprecated"):
            loader = plugin.DALIGenericIterator(readers(ours, folder), MAP, reader_name="Reader", fill_last_batch=fill)
        assert list(loader)[-1][0]["label"].flatten().tolist() == last
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plugin.DALIGenericIterator(readers(ours, folder), MAP, reader_name="Reader", dynamic_shape=True)


def test_feed_ndarray() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)

    def program(dali: Any, shape: list[int], dtype: torch.dtype) -> Any:
        tensor = sub(dali, "tensors").TensorListCPU(values).as_tensor()
        target = torch.full(shape, -1, dtype=dtype)
        return [torch_plugin(dali).feed_ndarray(tensor, target) is target, target]

    both(lambda dali: program(dali, [2, 3], torch.float32))
    for shape, dtype in (([3, 2], torch.float32), ([6], torch.float32), ([2, 3], torch.float64)):
        both(lambda dali, shape=shape, dtype=dtype: program(dali, shape, dtype), raises=AssertionError)
    # A whole list, and memory that is not contiguous.
    strided = torch.zeros(3, 2).T
    torch_plugin(ours).feed_ndarray(ours.tensors.TensorListCPU(values), strided)
    assert strided.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_to_torch_tensor() -> None:
    convert = sub(ours, "plugin.pytorch.torch_utils").to_torch_tensor
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    value = ours.tensors.TensorCPU(values)
    assert convert(value, False).data_ptr() == value.data_ptr()
    assert convert(value, True).data_ptr() != value.data_ptr()
    assert torch.equal(convert(value, True), torch.from_numpy(values))


@pytest.mark.parametrize("framework", ["tf", "jax", "paddle", "mxnet"])
def test_other_frameworks(framework: str) -> None:
    for _ in range(2):
        with pytest.raises(ImportError, match=r"use torch_ndd\.dali\.plugin\.pytorch"):
            sub(ours, f"plugin.{framework}")
        assert f"torch_ndd.dali.plugin.{framework}" not in sys.modules


def test_nothing_is_left_behind(folder: Path) -> None:
    before = threading.active_count()
    for _ in range(3):
        loader = torch_plugin(ours).DALIGenericIterator(readers(ours, folder), MAP, reader_name="Reader")
        next(loader)
        del loader
    limit = time.monotonic() + 30  # the threads end on their own
    while threading.active_count() > before + 1 and time.monotonic() < limit:
        time.sleep(0.01)
    assert threading.active_count() <= before + 1
