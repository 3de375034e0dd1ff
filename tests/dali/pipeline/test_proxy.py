# SPDX-License-Identifier: Apache-2.0
"""Pipelines as transforms of PyTorch data sets, and the evaluator of loaders."""

import gc
import json
import multiprocessing
import pickle
import threading
import time
import weakref
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _pipelines import both, equal, ours_raises, plain, show, sub
from torch.utils.data import DataLoader, Dataset, default_collate

import torch_ndd.dali as ours
from torch_ndd.dali import fn
from torch_ndd.dali.plugin.pytorch.experimental import proxy
from torch_ndd.dali.plugin.pytorch.loader_evaluator import LoaderEvaluator

Pair = namedtuple("Pair", ["first", "second"])


def sums(dali: Any = ours, batch_size: int = 4, **options: Any) -> Any:
    @dali.pipeline_def(batch_size=batch_size, num_threads=1, device_id=None, **options)
    def definition() -> Any:
        first, second = dali.fn.external_source(name="a"), dali.fn.external_source(name="b")
        return first + second, first - second

    return definition()


def make_pipe(batch_size: int = 4, **options: Any) -> Any:
    @ours.pipeline_def(batch_size=batch_size, num_threads=1, seed=3, **options)
    def definition() -> Any:
        return fn.external_source(name="value") * 10 + fn.random.uniform(range=[0, 1])

    return definition()


class Samples(Dataset):
    def __init__(self, transform: Any, count: int = 22, bad: int | None = None, ragged: bool = False) -> None:
        self.transform, self.count, self.bad, self.ragged = transform, count, bad, ragged

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            raise KeyError(f"sample {index} is damaged")
        return self.transform(np.full((1 + index % 2 if self.ragged else 1,), index, np.float32)), index


@pytest.mark.slow
def test_by_hand() -> None:
    """At every depth the results are DALI's, whose server takes 5 s to end."""

    def program(dali: Any, depth: int = 2) -> Any:
        module = sub(dali, "plugin.pytorch.experimental.proxy")
        draw = np.random.default_rng(0)
        with module.DALIServer(sums(dali, prefetch_queue_depth=depth)) as server:
            seen = []
            for size in (4, 4, 3, 1):
                samples = []
                for _ in range(size):
                    a, b = draw.random((3, 3), np.float32), draw.random((3, 3), np.float32)
                    samples.append((a, *server.proxy(a=a, b=b), b))
                seen.append(server.produce_data(default_collate(samples)))
            return seen

    wanted = both(program)
    for depth in (1, 4):
        equal(plain(program(ours, depth)), wanted)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_proxy_results_do_not_depend_on_workers(workers: int, persistent: bool) -> None:
    """Numbers, random ones included, do not depend on the workers."""
    expected: list[Any] = []
    for count in (0, workers):
        with proxy.DALIServer(make_pipe()) as server:
            loader = proxy.DataLoader(server, Samples(server.proxy), batch_size=4, num_workers=count, persistent_workers=persistent and count > 0)
            assert len(loader) == 6
            seen = [(values.tolist(), index.tolist()) for _ in range(2) for values, index in loader]
        assert [k for _, index in seen for k in index] == [*range(22)] * 2
        assert all(int(value[0] // 10) == k for values, index in seen for value, k in zip(values, index, strict=True))
        expected = expected or seen
        assert seen == expected
        assert seen[0][0] != seen[6][0]  # other random numbers in the next epoch
    assert not multiprocessing.active_children() or persistent


def test_proxies_can_be_sent_to_workers() -> None:
    """A spawned worker gets a copy of the data set, and sends its batches back."""
    with proxy.DALIServer(make_pipe()) as server:
        copied = pickle.loads(pickle.dumps(Samples(server.proxy)))
        batch = pickle.loads(pickle.dumps(default_collate([copied[k] for k in range(3)])))
        values, index = server.produce_data(batch)
    assert (values[:, 0] // 10).tolist() == index.tolist() == [0, 1, 2]


def test_torch_loader_with_produce_data() -> None:
    with proxy.DALIServer(make_pipe()) as server:
        for values, index in DataLoader(Samples(server.proxy), batch_size=4, num_workers=2, shuffle=True):
            assert isinstance(values, proxy.DALIOutputBatchRef)
            result = server.produce_data(values)
            assert (result[:, 0] // 10).tolist() == index.tolist()
            assert server.produce_data(values) is result  # it does not run again


@pytest.mark.slow
def test_loader_continues_after_a_loop_is_left() -> None:
    def leave_loops() -> None:
        with proxy.DALIServer(make_pipe()) as server:
            loader = proxy.DataLoader(server, Samples(server.proxy), batch_size=4, num_workers=2)
            for _ in range(3):
                for step, (values, index) in enumerate(loader):
                    assert (values[:, 0] // 10).tolist() == index.tolist()
                    if step == 1:
                        break
            assert len(list(loader)) == 6

    leave_loops()  # starts the threads of torch's queues, which last as long as the process
    before = threading.active_count()
    leave_loops()
    gc.collect()
    limit = time.monotonic() + 30  # threads and processes end on their own
    while (multiprocessing.active_children() or threading.active_count() > before) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not multiprocessing.active_children()
    assert threading.active_count() <= before


def test_errors_of_the_data_set_come_when_their_batch_is_due() -> None:
    with proxy.DALIServer(make_pipe()) as server:
        for workers in (0, 2):
            loop = iter(proxy.DataLoader(server, Samples(server.proxy, bad=9), batch_size=4, num_workers=workers))
            assert [next(loop)[1].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
            with pytest.raises(KeyError, match="sample 9 is damaged"):
                next(loop)
            assert [index.tolist() for _, index in loop] == [[12, 13, 14, 15], [16, 17, 18, 19], [20, 21]]


def failing(batch_size: int = 4) -> Any:
    @ours.pipeline_def(batch_size=batch_size, num_threads=1)
    def definition() -> Any:
        value = fn.external_source(name="value", ndim=1)
        return fn.pad(value, shape=fn.cast(fn.reductions.max(value) * 0 + 2, dtype=ours.types.INT32)), value[
            fn.cast(value[0], dtype=ours.types.INT32)
        ]

    return definition()


def test_errors_of_the_pipeline_come_with_their_batch() -> None:
    class Lengths(Dataset):
        def __init__(self, transform: Any) -> None:
            self.transform = transform

        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int) -> Any:
            return self.transform(np.full(2, 7 if index == 5 else 1, np.float32)), index

    with proxy.DALIServer(failing()) as server:
        for workers in (0, 2):
            loop = iter(proxy.DataLoader(server, Lengths(server.proxy), batch_size=4, num_workers=workers))
            assert next(loop)[1].tolist() == [0, 1, 2, 3]
            with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
                next(loop)
            assert next(loop)[1].tolist() == [8, 9, 10, 11]


@pytest.mark.parametrize("bad", [np.zeros((2, 2), np.float32), np.zeros(2, np.int32)])
def test_inputs_that_the_pipeline_refuses(bad: np.ndarray) -> None:
    """Other inputs of the batch are not left in the pipeline."""

    @ours.pipeline_def(batch_size=2, num_threads=1)
    def definition() -> Any:
        first, second = fn.external_source(name="a"), fn.external_source(name="b", dtype=ours.types.FLOAT, ndim=1)
        return first, second

    with proxy.DALIServer(definition()) as server:

        def batch(a: float, b: np.ndarray) -> Any:
            return default_collate([server.proxy(a=np.float32([a]), b=b) for _ in range(2)])

        good = np.zeros(2, np.float32)
        assert server.produce_data(batch(1, good))[0][0].item() == 1
        refused = batch(2, bad)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                server.produce_data(refused)
        for k in (3, 4):
            assert server.produce_data(batch(k, good))[0][0].item() == k


def test_batches_larger_than_the_pipeline() -> None:
    with proxy.DALIServer(make_pipe(batch_size=2)) as server:
        loop = iter(proxy.DataLoader(server, Samples(server.proxy), batch_size=4, num_workers=0))
        with pytest.raises(RuntimeError):
            next(loop)


def test_samples_of_different_shapes() -> None:
    @ours.pipeline_def(batch_size=4, num_threads=1)
    def definition() -> Any:
        return fn.pad(fn.external_source(name="value"), shape=[3])

    with proxy.DALIServer(definition()) as server:
        for values, index in proxy.DataLoader(server, Samples(server.proxy, ragged=True), batch_size=4, num_workers=1):
            assert values.shape == (len(index), 3)
            assert (values[:, 0] == index).all()
            assert ((values[:, 1] != 0) == (index % 2 == 1)).all()
    with proxy.DALIServer(make_pipe()) as server:
        loop = iter(proxy.DataLoader(server, Samples(server.proxy, ragged=True), batch_size=4, num_workers=0))
        with pytest.raises(RuntimeError, match="shape"):
            next(loop)


@pytest.mark.parametrize(
    "sample", [np.arange(3, dtype=np.uint16), torch.arange(3), b"abc", np.float64(3), 5, 2.5, np.zeros((0, 2), np.int8), np.arange(6)[::2], True]
)
def test_kinds_of_samples(sample: Any) -> None:
    @ours.pipeline_def(batch_size=2, num_threads=1)
    def definition() -> Any:
        return fn.external_source(name="value")

    with proxy.DALIServer(definition()) as server:
        result = server.produce_data(default_collate([server.proxy(sample), server.proxy(sample)]))
    expected = np.frombuffer(sample, np.uint8) if isinstance(sample, bytes) else np.asarray(sample)
    assert result.shape == (2, *expected.shape)
    assert np.array_equal(np.asarray(result[1]), expected)
    assert result.numpy().dtype == expected.dtype


@dataclass
class Step:
    image: Any
    name: str


def test_references_in_any_structure() -> None:
    with proxy.DALIServer(sums()) as server:
        output = default_collate([server.proxy(a=np.float32([k]), b=np.float32([1])) for k in range(3)])
        shared = {"x": output[0]}
        values = [Pair(output[0], output[1]), (output[0],), {"k": [output[1], "text", None, 3]}, Step(output[0], "n"), shared, shared, torch.ones(1)]
        result = server.produce_data(values)
    assert isinstance(result[0], Pair)
    assert result[0].second.flatten().tolist() == [-1, 0, 1]
    assert result[1][0] is result[0].first
    assert result[2]["k"][1:] == ["text", None, 3]
    assert isinstance(result[3], Step)
    assert result[3].image is result[0].first
    assert values[3].image is output[0]  # the given object is as before
    assert result[4]["x"] is result[5]["x"] is result[0].first
    assert result[6] is values[6]


def test_memory_is_released() -> None:
    with proxy.DALIServer(make_pipe()) as server:
        reference = default_collate([server.proxy(np.float32([k])) for k in range(2)])
        result = server.produce_data(reference)
        weak = weakref.ref(result)
        del result, reference
        gc.collect()
        # The proxy keeps its latest batch, until the next one.
        server.produce_data(default_collate([server.proxy(np.float32([k])) for k in range(2)]))
        gc.collect()
        assert weak() is None


def test_wrong_calls() -> None:
    with proxy.DALIServer(make_pipe()) as server:
        with pytest.raises(RuntimeError, match="collated"):
            server.produce_data([server.proxy(1)])
        with pytest.raises(TypeError, match="an array"):
            default_collate([server.proxy("text")])
        with pytest.raises(TypeError, match="different types"):
            default_collate([server.proxy(1), server.proxy(1.5)])


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [((), {}), ((1,), {}), ((1, 2), {}), ((1,), {"b": 1}), ((), {"a": 1}), ((), {"c": 1}), ((), {"a": 1, "b": 1, "c": 1})],
    ids=show,
)
def test_proxy_takes_its_inputs_by_name(arguments: tuple[int, ...], keywords: dict[str, int]) -> None:
    def call(dali: Any) -> Any:
        with sub(dali, "plugin.pytorch.experimental.proxy").DALIServer(sums(dali)) as server:
            return server.proxy(*arguments, **keywords)

    assert "a, b" in str(both(call, raises=ValueError))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of DALI's servers that were not made
def test_servers_need_a_pipeline_with_inputs() -> None:
    def no_inputs(dali: Any) -> Any:
        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None)
        def definition() -> Any:
            return dali.fn.random.uniform()

        return sub(dali, "plugin.pytorch.experimental.proxy").DALIServer(definition())

    both(no_inputs, raises=RuntimeError)
    both(lambda dali: sub(dali, "plugin.pytorch.experimental.proxy").DALIServer(3), raises=TypeError)
    ours_raises(lambda dali: proxy.DataLoader(make_pipe(), [1, 2]), TypeError, "DALIServer")
    gc.collect()


def test_starting_and_stopping() -> None:
    server = proxy.DALIServer(make_pipe(), deterministic=True)
    server.start_thread()
    waiting = default_collate([server.proxy(np.float32([1]))])
    server._issue_all(waiting)
    server.stop_thread()
    server.stop_thread()
    assert server.produce_data(waiting).shape == (1, 1)


def test_loader_evaluator_measures_and_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loader = DataLoader(torch.utils.data.TensorDataset(torch.arange(20.0)), batch_size=4)
    evaluator = LoaderEvaluator(loader)
    assert (len(evaluator), evaluator.get_metrics()) == (5, {})
    assert torch.cat([batch for (batch,) in evaluator]).tolist() == list(range(20))
    metrics = evaluator.get_metrics()
    theirs = [
        "mode",
        "total_batches",
        "total_time",
        "avg_batch_time",
        "min_batch_time",
        "max_batch_time",
        "batch_times",
        "cached_batches",
        "cache_ready",
    ]
    assert list(metrics) == theirs
    assert metrics["total_batches"] == 5 == len(metrics["batch_times"])
    assert metrics["min_batch_time"] <= metrics["avg_batch_time"] <= metrics["max_batch_time"] <= metrics["total_time"]
    evaluator.print_summary()
    assert "Dataset size: 20" in capsys.readouterr().out
    evaluator.save_metrics(str(tmp_path / "metrics.json"))
    assert json.loads((tmp_path / "metrics.json").read_text()) == metrics
    evaluator.save_metrics()
    assert "No filename" in capsys.readouterr().out


def test_evaluator_replays(tmp_path: Path) -> None:
    calls: list[int] = []

    class Counted:
        def __len__(self) -> int:
            return 5

        def __iter__(self) -> Any:
            for k in range(5):
                calls.append(k)
                yield k

    evaluator = LoaderEvaluator(Counted(), "replay", 2, str(tmp_path / "metrics.json"))
    assert [list(evaluator), list(evaluator)] == [[0, 1, 0, 1, 0]] * 2
    assert calls == [0, 1]
    assert json.loads((tmp_path / "metrics.json").read_text())["cached_batches"] == 2
    for arguments, kind in (((Counted(), "other"), ValueError), ((Counted(), "replay", 0), ValueError), (([], "replay"), RuntimeError)):
        with pytest.raises(kind):
            LoaderEvaluator(*arguments)
