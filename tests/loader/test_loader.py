# SPDX-License-Identifier: Apache-2.0
"""``ndd.DataLoader``."""

import gc
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pytest
import torch
from _forks import Forks
from PIL import Image

import torch_ndd as ndd
from torch_ndd._core.values.html import table
from torch_ndd.testing import assert_resumable

T = TypeVar("T")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, random = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for i in range(23):
        height, width = random.integers(20, 60, 2)
        pixels = random.integers(0, 255, (height // 4, width // 4, 3), np.uint8)
        Image.fromarray(pixels).resize((int(width), int(height))).save(folder / f"{i:02}.jpg")
    return sorted(folder.iterdir())


def augment(files: ndd.Batch, labels: ndd.Batch) -> tuple[ndd.Batch, ndd.Batch]:
    pixels = ndd.decoders.image(files)
    pixels = ndd.random_resized_crop(pixels, size=[24, 24])
    mirror = ndd.random.coin_flip(batch_size=pixels.batch_size)
    return ndd.crop_mirror_normalize(pixels, mirror=mirror, mean=[120.0], std=[60.0]), labels


def loader_of(images: list[Path], batch_size: int = 4, rank: int = 0, world: int = 1, **options: Any) -> ndd.DataLoader:
    reader = ndd.readers.File(files=images, random_shuffle=True, shard_id=rank, num_shards=world)
    return ndd.DataLoader(reader, options.pop("fn", augment), batch_size=batch_size, seed=3, **options)


def labels_of(loader: Any) -> list[list[int]]:
    return [labels.flatten().tolist() for _, labels in loader]


def test_epochs_have_all_samples(images: list[Path]) -> None:
    loader = loader_of(images)
    assert len(loader) == 6
    for _ in range(2):
        batches = list(loader)
        assert len(batches) == 6
        assert all(isinstance(sample, torch.Tensor) for batch in batches for sample in batch)
        assert [tuple(pixels.shape) for pixels, _ in batches] == [(4, 3, 24, 24)] * 5 + [(3, 3, 24, 24)]
        assert sorted(chain(*(labels.flatten().tolist() for _, labels in batches))) == list(range(23))
    dropping = loader_of(images, drop_last=True)
    assert len(dropping) == len(list(dropping)) == 5
    assert labels_of(dropping) != labels_of(dropping)


@pytest.mark.parametrize("mode", ["deferred", "eager", "sync_cpu"])
def test_equal_for_any_prefetch(images: list[Path], mode: str) -> None:
    def run(prefetch: int, **options: Any) -> list[torch.Tensor]:
        loader = loader_of(images, prefetch=prefetch, **options)
        out = []
        for _ in range(2):
            for pixels, _ in loader:
                ndd.random.uniform(batch_size=3)  # draws of the loop do not affect those of fn
                out.append(pixels.clone())
        return out

    expected = run(0)
    with ndd.EvalMode[mode]:
        for options in ({"prefetch": 1}, {"prefetch": 2}, {"prefetch": 7}, {"prefetch": 3, "prefetch_bytes": 1}):
            for output, other in zip(run(**options), expected, strict=True):
                torch.testing.assert_close(output, other, rtol=0, atol=0)


def test_a_loader_resumes_where_it_stopped(images: list[Path]) -> None:
    resumed = assert_resumable(lambda rank, world, size: loader_of(images, size, rank, world), worlds=[(1, 1), (2, 2)], batch_sizes=[4])
    assert resumed.cuts == 11

    def only_labels(files: ndd.Batch, labels: ndd.Batch) -> ndd.Batch:
        return labels

    make = lambda rank, world, size: loader_of(images, size, rank, world, fn=only_labels)  # noqa: E731
    assert assert_resumable(make, worlds=[(1, 2), (2, 3), (3, 1)], batch_sizes=[1, 4]).state_bytes < 4096


def test_break_and_reuse(images: list[Path]) -> None:
    loader = loader_of(images, prefetch=5)
    labels = [labels for _, labels in islice(loader, 2)][-1]
    state = json.loads(json.dumps(loader.state_dict()))
    assert state["reader"]["taken"] == [[1, 8]]  # batches prepared ahead do not count
    second = labels_of(loader)
    other = loader_of(images)
    first = labels_of(other)
    assert labels_of(other) == second
    assert labels.flatten().tolist() == first[1]
    loader.load_state_dict(state)
    assert loader.state_dict() == state
    assert labels_of(loader) == first[2:]
    assert loader.state_dict()["reader"]["epoch"] == 1


def test_a_state_at_the_last_batch(images: list[Path]) -> None:
    loader = loader_of(images)
    loop = iter(loader)
    for _ in range(6):
        next(loop)
    at_the_last = loader.state_dict()
    assert next(loop, None) is None
    ended = loader.state_dict()
    loader.load_state_dict(at_the_last)
    assert labels_of(loader) == []
    second = labels_of(loader)
    assert len(second) == 6
    loader.load_state_dict(ended)
    assert labels_of(loader) == second


def test_loading_ends_a_loop(images: list[Path]) -> None:
    loader = loader_of(images)
    start = loader.state_dict()
    seen = []
    for _, labels in loader:
        seen.append(labels.flatten().tolist())
        if len(seen) == 2:
            loader.load_state_dict(start)
    assert len(seen) == 2
    assert labels_of(loader)[:2] == seen


class Named(NamedTuple):
    x: Any
    y: Any


@dataclass
class Data:
    x: Any
    name: str


def test_batches_keep_the_structure(images: list[Path]) -> None:
    def fn(files: ndd.Batch, labels: ndd.Batch) -> Any:
        return {
            "named": Named(labels, [labels + 1]),
            "data": Data(labels, "abc"),
            "torch": torch.ones(2),
            "text": "x",
            "ragged": files,
            "samples": labels.tensors,
        }

    batch = next(iter(loader_of(images, fn=fn)))
    assert batch["named"].x.tolist() == [[value[0] - 1] for value in batch["named"].y[0].tolist()]
    assert isinstance(batch["data"].x, torch.Tensor)
    assert (batch["data"].name, batch["text"], batch["torch"].tolist()) == ("abc", "x", [1, 1])
    assert isinstance(batch["ragged"], list)
    assert Image.open(io.BytesIO(bytes(batch["ragged"][0].tolist()))).format == "JPEG"
    assert isinstance(batch["samples"], list)
    assert torch.equal(torch.stack(batch["samples"]), batch["data"].x)
    plain = ndd.DataLoader(ndd.readers.File(2, files=images))
    files, labels = next(iter(plain))
    assert labels.tolist() == [[0], [1]]
    assert len(files) == 2


def test_errors_have_their_turn(images: list[Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"no image at all")
    files = [*images[:9], broken, *images[9:12]]
    for prefetch in (0, 1, 4):
        loop = iter(ndd.DataLoader(ndd.readers.File(files=files), augment, batch_size=3, prefetch=prefetch))
        for _ in range(3):
            next(loop)
        with pytest.raises(RuntimeError, match=r"broken\.jpg"):
            next(loop)

    def wrong(files: ndd.Batch, labels: ndd.Batch) -> Any:
        raise KeyError("mine")

    loader = loader_of(images, fn=wrong)
    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            next(iter(loader))
    reader = ndd.readers.File(files=[*images[:3], tmp_path / "lost.jpg"])
    loop = iter(ndd.DataLoader(reader, batch_size=2))
    next(loop)
    with pytest.raises(RuntimeError, match=r"lost\.jpg"):
        next(loop)


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("pending", [False, True], ids=["in fn", "in queued work"])
def test_a_loop_goes_on_after_a_batch_that_fails_in_fn(prefetch: int, pending: bool) -> None:
    def draw(numbers: ndd.Batch) -> Any:
        return numbers, ndd.random.uniform(range=[0, 1], batch_size=numbers.batch_size)

    def fail(numbers: ndd.Batch) -> Any:
        if 4 in numbers.torch():
            if not pending:
                raise ValueError("not these")
            return ndd.decoders.image([b"\xff\xd8\xff no image"] * 2)
        return draw(numbers)

    def make(fn: Any) -> ndd.DataLoader:
        return ndd.DataLoader(list(range(11)), fn, batch_size=2, seed=3, prefetch=prefetch)

    expected = [(numbers.tolist(), draws.tolist()) for numbers, draws in make(draw)]
    loader = make(fail)
    loop = iter(loader)
    assert [next(loop)[0].tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises((ValueError, RuntimeError), match=r"not these|decoders\.image: sample 0"):
        next(loop)
    resumed = make(draw)
    resumed.load_state_dict(loader.state_dict())
    assert [(numbers.tolist(), draws.tolist()) for numbers, draws in resumed] == expected[3:]
    numbers, draws = next(loop)
    assert (numbers.tolist(), draws.tolist()) == expected[3]
    resumed = make(draw)
    resumed.load_state_dict(loader.state_dict())
    rest = [(numbers.tolist(), draws.tolist()) for numbers, draws in resumed]
    assert rest == [(numbers.tolist(), draws.tolist()) for numbers, draws in loop] == expected[4:]
    assert list(loop) == []


def test_wrong_arguments_are_rejected(images: list[Path]) -> None:
    reader = ndd.readers.File(files=images)
    for options, error in (
        ({}, ValueError),
        ({"batch_size": 0}, ValueError),
        ({"batch_size": 2, "prefetch": -1}, ValueError),
        ({"batch_size": 2, "prefetch_bytes": 0}, ValueError),
        ({"batch_size": 2.0}, ValueError),
        ({"batch_size": "2"}, ValueError),
        ({"batch_size": 2, "prefetch": 1.5}, ValueError),
        ({"batch_size": 2, "prefetch": 10**9}, ValueError),
    ):
        with pytest.raises(error, match=r"DataLoader: "):
            ndd.DataLoader(reader, augment, **options)
    with pytest.raises(TypeError, match="reader must be"):
        ndd.DataLoader(object(), augment, batch_size=2)
    loader = loader_of(images)
    for state in ({}, None, {"version": 1, "reader": {}, "seed": 1}, {**loader.state_dict(), "version": 2}):
        with pytest.raises(ValueError, match="not a valid saved state"):
            loader.load_state_dict(state)


def test_missing_folders_show_at_construction(tmp_path: Path) -> None:
    missing, file = str(tmp_path / "missing"), tmp_path / "x.json"
    file.write_text("{}")
    for reader, argument in (
        (ndd.readers.File(file_root=missing), "file_root"),
        (ndd.readers.File(file_list=missing), "file_list"),
        (ndd.readers.Numpy(file_root=missing), "file_root"),
        (ndd.experimental.readers.Fits(file_root=missing), "file_root"),
        (ndd.readers.COCO(file_root=str(tmp_path), annotations_file=missing), "annotations_file"),
        (ndd.readers.COCO(file_root=missing, annotations_file=str(file)), "file_root"),
    ):
        for source in (reader, {"x": reader}):
            with pytest.raises(RuntimeError, match=rf'{argument} ".*missing" cannot be opened: No such file'):
                ndd.DataLoader(source, batch_size=2)
    ndd.DataLoader(ndd.readers.File(file_root=missing, files=["/a"]), batch_size=2)  # of paths only those that are read matter
    ndd.DataLoader(ndd.readers.File(file_root="memory://missing"), batch_size=2)  # asking takes long


def _nothing(files: ndd.Batch, labels: ndd.Batch) -> None:
    pass


def _parts(files: ndd.Batch, labels: ndd.Batch) -> Iterator[Any]:
    yield labels


def _stops(files: ndd.Batch, labels: ndd.Batch) -> Any:
    return next(iter(()))


def test_functions_with_other_parameters_are_told_what_they_get(images: list[Path]) -> None:
    reader = ndd.readers.File(files=images)
    mistakes: list[tuple[Any, dict[str, Any], Callable[..., Any], str]] = [
        (
            reader,
            {"batch_size": 4},
            lambda files: files,
            r"fn is called with 2 outputs of <readers\.File .*, but .* takes 1 positional argument but 2",
        ),
        (
            reader,
            {"batches": ndd.batches.Balanced(samples=4, cost="pixels")},
            lambda files, labels: files,
            r"2 outputs of .*, and the plan of the batch",
        ),
        (
            {"image": ndd.readers.File(files=images)},
            {"batch_size": 4},
            lambda files, labels: files,
            r"one argument, a dict with the keys 'image', but .* missing 1 required",
        ),
        (torch.utils.data.TensorDataset(torch.arange(4)), {"batch_size": 4}, lambda: None, r"1 output of .*, but .* takes 0"),
    ]
    for source, options, function, message in mistakes:
        with pytest.raises(TypeError, match=message):
            next(iter(ndd.DataLoader(source, function, **options)))

    def wrong_inside(files: ndd.Batch, labels: ndd.Batch) -> ndd.Batch:
        return _nothing(files)  # type: ignore[call-arg]

    with pytest.raises(TypeError, match=r"^_nothing\(\) missing 1 required"):
        next(iter(ndd.DataLoader(reader, wrong_inside, batch_size=4)))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_functions_that_return_no_batch(images: list[Path], prefetch: int) -> None:
    for fn, error, text in (
        (_nothing, TypeError, r"_nothing\) must return the batch, got None"),
        (_parts, TypeError, r"_parts\) must return the batch, got <generator"),
        (_stops, RuntimeError, "StopIteration"),
    ):
        with pytest.raises(error, match=text):
            list(loader_of(images, fn=fn, prefetch=prefetch))
    with pytest.raises(TypeError, match=r"collate_fn must return the batch"):
        list(ndd.DataLoader([1, 2, 3], batch_size=2, prefetch=prefetch, collate_fn=lambda items: None))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_loops_at_the_same_time(images: list[Path], prefetch: int) -> None:
    loader = loader_of(images, prefetch=prefetch)
    with pytest.raises(RuntimeError, match="DataLoader: another loop"):
        list(zip(loader, loader, strict=True))
    outer = iter(loader)
    next(outer)
    assert len(list(loader)) == 6
    with pytest.raises(RuntimeError, match="DataLoader: another loop"):
        next(outer)
    assert next(outer, None) is None  # it has ended
    reader = ndd.readers.File(4, files=images)
    value, other = (ndd.DataLoader(reader, prefetch=prefetch) for _ in range(2))
    with pytest.raises(RuntimeError, match=r"readers\.File: another loop"):
        list(zip(value, other, strict=True))
    with pytest.raises(RuntimeError, match=r"readers\.File: another loop"):
        list(zip(reader, reader, strict=True))
    assert len(list(loader)) == 6


def test_threads_share_a_loop() -> None:
    for _ in range(20):
        loop, seen = iter(ndd.DataLoader(list(range(64)), batch_size=1)), list[int]()
        threads = [threading.Thread(target=lambda loop=loop, seen=seen: seen.extend(value.item() for (value,) in loop)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(seen) == list(range(64))


def test_fn_cannot_begin_a_loop_over_its_own_loader() -> None:
    loader = ndd.DataLoader([1, 2, 3], lambda value: list(loader), batch_size=2)
    with pytest.raises(RuntimeError, match="fn cannot move the loader that calls it"):
        list(loader)


CHILD_OF_A_LOOP = """
import os, signal, torch_ndd as ndd
loader = ndd.DataLoader([1, 2, 3], batch_size=1)
loop = iter(loader)
next(loop)
pid = os.fork()
if pid:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(list(loop)) == 2
else:
    signal.alarm(20)
    try:
        next(loop)
    except RuntimeError as error:
        assert "belongs to the process that began it" in str(error)
        assert len(list(loader)) == 3
        os._exit(0)
    os._exit(1)
"""


def test_a_forked_child_cannot_go_on_with_a_loop(forks: Forks) -> None:
    child = forks.run(CHILD_OF_A_LOOP)
    assert child.wait() == 0, child.errors


def test_it_runs_ahead_within_its_bounds(images: list[Path]) -> None:
    calls = []

    def fn(files: ndd.Batch, labels: ndd.Batch) -> ndd.Batch:
        calls.append(1)
        return ndd.resize(ndd.decoders.image(files), size=[100, 100])

    def is_settled(expected: int) -> bool:
        end = time.monotonic() + 10
        while len(calls) < expected and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(0.05)  # time enough for another batch
        return len(calls) == expected

    loop = iter(loader_of(images, fn=fn, prefetch=3))
    assert is_settled(0)
    next(loop)
    assert is_settled(4)
    next(loop)
    assert is_settled(5)
    size = 4 * 100 * 100 * 3
    for bound, expected in ((1, 2), (size + 1, 3), (3 * size, 4)):
        calls.clear()
        loop = iter(loader_of(images, fn=fn, prefetch=5, prefetch_bytes=bound))
        next(loop)
        assert is_settled(expected)


def in_new_thread(function: Callable[[], T]) -> T:
    """Call ``function`` in a thread without a seed: a fixture sets that of the main thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


def seed_of(**options: Any) -> int:
    return in_new_thread(lambda: ndd.DataLoader(range(6), **options).state_dict()["seed"])


def test_ranks_agree_on_a_seed() -> None:
    """They have the same state without communication."""
    for options in ({"batch_size": 2}, {"batches": ndd.batches.Packed(3, [1] * 6)}):
        assert seed_of(shard_id=0, num_shards=2, **options) == seed_of(shard_id=1, num_shards=2, **options), options


def test_ranks_with_the_same_shard_agree_on_a_seed(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        assert seed_of(batch_size=2) == seed_of(batch_size=2)
    finally:
        torch.distributed.destroy_process_group()


def test_set_seed_decides_the_seed_of_ranks() -> None:
    def seed_after(chosen: int) -> int:
        ndd.random.set_seed(chosen)
        return ndd.DataLoader(range(6), batch_size=2, shard_id=1, num_shards=2).state_dict()["seed"]

    first, second, third = (in_new_thread(partial(seed_after, chosen)) for chosen in (5, 6, 5))
    assert first == third != second


def test_a_single_process_draws_a_seed() -> None:
    assert len({seed_of(batch_size=2) for _ in range(3)}) == 3


def test_seeds_repeat_the_order(images: list[Path]) -> None:
    def first(seed: int | None) -> torch.Tensor:
        return next(iter(ndd.DataLoader(ndd.readers.File(files=images), augment, batch_size=4, seed=seed)))[0]

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))
    drawn = []
    for _ in range(2):
        ndd.random.set_seed(99)
        drawn += [first(None), first(None)]
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[1])


def test_statistics_of_an_epoch(images: list[Path]) -> None:
    loader = loader_of(images)
    assert "Nothing" in loader.diagnose()
    for _ in loader:
        pass
    stats = loader.stats
    assert (stats.batches, stats.samples, stats.bytes) == (6, 23, 23 * (3 * 24 * 24 + 1) * 4)
    assert all(value >= 0 for value in (*stats[:-1], *stats.operators.values()))
    assert stats.decode > 0  # other operators on images this small may run at the call, which is not counted
    assert 0 <= stats.waited <= 1


FIGURES = {"batches": 10, "samples": 640, "bytes": 1, "read": 0.0, "call": 0.1, "wait": 5.0, "model": 5.0, "decode": 15.0, "augment": 3.0}


@pytest.mark.parametrize(
    ("figures", "limit"),
    [
        ({}, "Decoding"),
        ({"wait": 0.1}, "The model"),
        ({"decode": 3.0, "augment": 15.0}, "Augmentation"),
        ({"read": 6.0, "decode": 1.0}, "Reading"),
        ({"call": 6.0, "decode": 2.0}, "Python"),
        ({"decode": 2.0}, "Latency"),
    ],
)
def test_diagnosis_names_the_bottleneck(figures: dict[str, float], limit: str) -> None:
    text = ndd.loader.Stats(**{**FIGURES, **figures}).diagnosis(threads=2)
    assert text.startswith(f"{limit} is the limit")
    assert "\n" not in text


def test_nothing_stays_behind(images: list[Path]) -> None:
    before = threading.active_count()
    for _ in range(3):
        loader = loader_of(images, prefetch=4)
        for _ in loader:
            break
        del loader
    gc.collect()
    end = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_fn_runs_where_its_caller_is(images: list[Path]) -> None:
    seen = []

    def fn(files: ndd.Batch, labels: ndd.Batch) -> ndd.Batch:
        seen.append((ndd.EvalMode.current(), ndd.EvalContext.current().num_threads, threading.current_thread() is threading.main_thread()))
        return labels

    with ndd.EvalMode.sync_cpu, ndd.EvalContext(num_threads=3):
        list(loader_of(images, fn=fn))
        list(loader_of(images, fn=fn, prefetch=0))
    assert seen == [(ndd.EvalMode.sync_cpu, 3, False)] * 6 + [(ndd.EvalMode.sync_cpu, 3, True)] * 6


def _data() -> ndd.readers.Dataset:
    return ndd.readers.Dataset([np.full((40, 50, 3), i, np.uint8) for i in range(64)])


def _ran() -> ndd.DataLoader:
    loader = ndd.DataLoader(_data(), lambda images: ndd.gaussian_blur(images, sigma=4.0), batch_size=16)
    for _ in loader:
        time.sleep(0.002)
    return loader


def test_diagnosis_has_the_time_of_each_operator() -> None:
    stats = _ran().stats
    assert stats.operators["gaussian_blur"] > 0
    assert stats.augment == pytest.approx(sum(seconds for op, seconds in stats.operators.items() if not op.startswith("decoders.")))
    text = ndd.loader.Stats(**{**FIGURES, "wait": 1.0, "model": 1.0, "augment": 3.8, "decode": 0.0, "operators": {"blur": 3.0, "flip": 0.8}})
    assert "(blur 79%, flip 21%)" in text.diagnosis(threads=2)


def test_timeline_has_every_batch(tmp_path: Path) -> None:
    loader = _ran()
    text = loader.diagnose(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert text == loader.diagnose()
    names = [event["name"] for event in events if event["ph"] == "X"]
    assert names.count("model") == 4
    assert {"read", "fn", "wait", "gaussian_blur"} <= set(names)
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")
    first = min(event["ts"] for event in events if event["name"] == "fn")
    assert all(event["ts"] + event["dur"] >= first for event in events if event["name"] == "gaussian_blur")
    loader.diagnose(tmp_path / "timeline.png")
    with Image.open(tmp_path / "timeline.png") as picture:
        assert picture.width == 800


def test_notebooks_show_loaders_readers_and_values() -> None:
    loader = _ran()
    assert "64 samples" in repr(loader)
    assert "batch_size=16" in repr(loader)
    for shown in (loader, ndd.DataLoader(iter([1, 2]), batch_size=2), _data(), loader.diagnose(), next(iter(_data().next_epoch(batch_size=3)))[0]):
        assert "<table>" in shown._repr_html_()
    assert "data:image/png" in ndd.as_batch(np.zeros((2, 30, 40, 3), np.uint8), layout="HWC")._repr_html_()
    assert "[1 2]" in ndd.tensor([1, 2])._repr_html_()
    assert "&lt;" in table("<b>", [])


def test_ranges_of_torch_profiler() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        _ran()
    names = {event.key for event in profile.key_averages()}
    assert {"torch_ndd: wait for a batch", "torch_ndd: fn"} & names


def _iterable() -> ndd.DataLoader:
    class Numbers(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(range(10))

    return ndd.DataLoader(Numbers(), batch_size=2, seed=5)


LOADERS: list[Any] = [
    lambda: ndd.DataLoader([torch.tensor(i) for i in range(10)], batch_size=2, shuffle=True, seed=5),
    lambda: ndd.DataLoader([torch.tensor(i) for i in range(10)], batch_size=2, shuffle=True, seed=5, prefetch=0, num_workers=0),
    lambda: ndd.DataLoader((list(range(10)), list(range(10))), lambda a, b: a, batch_size=2, shuffle=True, seed=5),
    lambda: ndd.DataLoader(ndd.ExternalSource(list(range(10)), per_sample=True), batch_size=2),
    _iterable,
]


def _numbers(batches: Any) -> list[Any]:
    return [torch.as_tensor(batch[0] if isinstance(batch, tuple | list) else batch).tolist() for batch in batches]


@pytest.mark.parametrize("make", LOADERS)
@pytest.mark.parametrize("cut", range(1, 5))
def test_iterators_that_nobody_uses_move_nothing(make: Any, cut: int) -> None:
    expected = _numbers(make())
    first = make()
    loop = iter(first)
    begun = _numbers(islice(loop, cut))
    state = first.state_dict()
    iter(first)
    assert first.state_dict() == state
    assert _numbers(loop) == expected[cut:]  # the loop goes on
    resumed = make()
    unused = iter(resumed)
    resumed.load_state_dict(state)
    iter(resumed)
    assert resumed.state_dict() == state
    assert begun + _numbers(unused) == expected  # an earlier iterator that has not begun yields the rest too
    assert _numbers(first) == _numbers(resumed)  # the next epoch


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_failed_first_batch_leaves_the_rest_of_the_epoch(prefetch: int) -> None:
    def make(fails: bool = False) -> ndd.DataLoader:
        answers = [fails]

        def fn(numbers: ndd.Batch) -> ndd.Batch:
            if answers and answers.pop():
                raise ValueError("not now")
            return numbers

        return ndd.DataLoader(list(range(10)), fn, batch_size=2, shuffle=True, seed=1, prefetch=prefetch)

    expected = _numbers(make())
    loader = make()
    assert _numbers(islice(loader, 2)) == expected[:2]
    state = loader.state_dict()
    resumed = make(fails=True)
    resumed.load_state_dict(state)
    with pytest.raises(ValueError, match="not now"):
        next(iter(resumed))
    assert _numbers(resumed) == expected[3:]


def test_the_sampler_sets_the_epoch() -> None:
    loader = ndd.DataLoader(list(range(10)), batch_size=10, shuffle=True, seed=1)
    epochs = [_numbers(loader) for _ in range(3)]
    loader.sampler.set_epoch(1)
    assert _numbers(loader) == epochs[1]
