# SPDX-License-Identifier: Apache-2.0
"""external_source(parallel=True): results as those of the sequential form and of DALI, and failures."""

import gc
import pickle
import resource
from pathlib import Path

import numpy as np
import pytest
import torch
from _forks import run_in_child
from _pipelines import both, full, iterations, ours_raises, real, sub
from _raises import raising
from _sources import alive, assert_ended, make_pipe, processes, sample
from _sources import parallel as made

import torch_ndd.dali as ours
from torch_ndd._core import native


def two(info):
    return np.float32([info.idx_in_epoch]), np.full(info.idx_in_epoch % 4, info.iteration, np.uint8)


def batches(number):
    """Dense, as a list, as a ragged list, with fewer samples, and none."""
    if number == 8:
        raise StopIteration
    result = (full(number), list(full(number)), [np.full(k, number, np.int64) for k in range(3)], full(number, 2))
    return result[number % 4 if number < 4 else 0].astype(np.float32) if number in (0, 3) or number > 3 else list(full(number))


def generator():
    for k in range(4):
        yield list(full(k))


class Iterable:
    def __iter__(self):
        return generator()


# Results.


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("ahead", [1, 3])
def test_parallel_samples_arrive_in_order(workers, ahead):
    """SampleInfo, order and epochs."""
    both(lambda dali: iterations(made(dali, sample, batch=False, workers=workers, prefetch_queue_depth=ahead), 10))


@pytest.mark.parametrize("workers", [1, 3])
def test_parallel_sources_have_several_outputs(workers):
    both(lambda dali: iterations(made(dali, two, batch=False, num_outputs=2, workers=workers), 4))


@pytest.mark.parametrize("cycle", [None, "quiet", "raise"])
@pytest.mark.parametrize("source", [generator, Iterable()], ids=["generator", "iterable"])
def test_parallel_iterables_equal_dali(source, cycle):
    both(lambda dali: iterations(made(dali, source, cycle=cycle, prefetch_queue_depth=2, workers=2), 12))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("ahead", [1, 2, 5])
@pytest.mark.parametrize(
    ("source", "options"),
    [
        (batches, {}),
        (sample, {"batch": False}),
        (two, {"batch": False, "num_outputs": 2}),
        (generator, {"cycle": "raise"}),
        (generator, {"cycle": True}),
        (lambda info: full(info.iteration * 10 + info.epoch_idx) if info.iteration < 3 else next(iter(())), {"batch_info": True}),
        (lambda number: (full(number), full(number, 3, ())), {"num_outputs": 2}),
        (lambda number: torch.ones(3, 4)[:, ::2], {}),
        (lambda number: full(number), {"layout": "A", "ndim": 1}),
    ],
)
def test_results_are_those_of_the_sequential_form(source, options, ahead, workers):
    parallel = made(ours, source, workers=workers, prefetch_queue_depth=ahead, **options)
    sequential = made(ours, source, parallel=False, **options)
    first, second = iterations(parallel, 11), iterations(sequential, 11)
    assert len(first) == len(second)
    for value, other in zip(first, second, strict=True):
        np.testing.assert_equal(value, other)


def test_several_sources_share_the_workers():
    def program(dali):
        pipe = dali.Pipeline(3, 1, None, py_num_workers=2)
        with pipe:
            first = dali.fn.external_source(sample, parallel=True, batch=False, prefetch_queue_depth=2)
            second = dali.fn.external_source(generator, parallel=True, cycle=True)
            pipe.set_outputs(first, second, dali.fn.external_source(lambda number: full(number)))
        return iterations(pipe, 9)

    both(program)


class Counting:
    """Batches, which begin again each time."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        return iter([list(full(k)) for k in range(self.length)])


def until(length):
    def source(info):
        if info.iteration >= length:
            raise StopIteration
        return np.int32([info.iteration])

    return source


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize("kinds", ["SI", "sI", "Si", "II", "iI", "Ii", "III"])
@pytest.mark.parametrize("cycle", ["raise", "quiet"])
def test_sources_of_different_lengths(kinds, cycle, ahead):
    """All are asked for the iteration that one of them ends, and iterables go on. S: a callable of samples, I: an iterable; capitals are parallel."""

    def program(dali, lengths):
        pipe = dali.Pipeline(3, 1, None, py_num_workers=2)
        with pipe:
            results = []
            for kind, length in zip(kinds, lengths, strict=False):
                options = {"parallel": True, "prefetch_queue_depth": ahead} if kind.isupper() else {}
                options |= {"batch": False} if kind in "sS" else {"cycle": cycle}
                results.append(dali.fn.external_source(until(length) if kind in "sS" else Counting(length), **options))
            pipe.set_outputs(*results)
        found = []
        for _ in range(14):
            try:
                found.append([int(output.at(0).ravel()[0]) for output in pipe.run()])
            except StopIteration:
                found.append("end")
                pipe.reset()
        return found

    for lengths in ((4, 6, 5), (6, 4, 3)):
        assert "end" in both(lambda dali, lengths=lengths: program(dali, lengths)) or cycle == "quiet"


@pytest.mark.parametrize("workers", [1, 3, 8])
@pytest.mark.parametrize("batch", [False, True])
def test_statistics_of_the_shared_memory(workers, batch):
    """A worker's memory holds its part of a batch."""

    def program(dali):
        pipe = made(dali, lambda info: full(0, 8), batch_size=8, workers=workers, batch=batch, bytes_per_sample_hint=1 << 20)
        pipe.build()
        return [sorted(set(sizes)) for sizes in pipe.external_source_shm_statistics().values()]

    both(program)


def test_spawned_workers():
    """They get functions by value, and end with the pipeline."""
    offset = 5
    pipe = made(ours, lambda info: np.int32([info.idx_in_epoch + offset]), batch=False, start="spawn")
    for k in range(4):
        assert pipe.run()[0].as_array().tolist() == [[3 * k + i + offset] for i in range(3)]
    workers = processes(pipe)
    assert len(alive(workers)) == 1
    del pipe
    assert_ended(workers)


@pytest.mark.slow
def test_exit_functions_of_spawned_workers(tmp_path, monkeypatch):
    """A source may register them. Workers that do not end in time are killed, so here they get time."""
    monkeypatch.setattr("torch_ndd.dali._inputs.worker_pool._GRACE_SECONDS", 100)

    path = str(tmp_path / "ended")

    def source(info):
        if info.idx_in_epoch == 0:
            import atexit
            import pathlib

            atexit.register(pathlib.Path(path).touch)
        return np.zeros(1)

    pipe = made(ours, source, batch=False, start="spawn")
    pipe.run()
    del pipe
    assert Path(path).exists()


class Pickler:
    """A pickler of the user, which gets each source separately."""

    @staticmethod
    def dumps(value, mark):
        assert callable(value)
        return mark + pickle.dumps(value)

    @staticmethod
    def loads(data):
        assert data.startswith(b"mark")
        loaded = pickle.loads(data[4:])
        assert loaded.__name__ == "sample"
        return loaded


def test_callback_pickler_pickles_the_source():
    pipe = made(ours, sample, batch=False, start="spawn", pickler=(Pickler, {"mark": b"mark"}))
    assert pipe.run()[0].as_array()[:, 0].tolist() == [0, 1, 2]
    both(lambda dali: made(dali, sample, batch=False, start="fork", pickler=pickle), raises=ValueError)


def test_the_class_takes_samples_by_default():
    def program(dali):
        pipe = dali.Pipeline(3, 1, None)
        with pipe:
            pipe.set_outputs(dali.ops.ExternalSource(source=sample, parallel=True)())
        return pipe.run()

    both(program)


def test_a_checkpoint_continues():
    def build(**more):
        pipe = ours.Pipeline(3, 1, enable_checkpointing=True, **more)
        with pipe:
            pipe.set_outputs(ours.fn.external_source(sample, parallel=True, batch=False, prefetch_queue_depth=2))
        return pipe

    pipe = build()
    pipe.run()
    again = build(checkpoint=pipe.checkpoint())
    for _ in range(2):
        np.testing.assert_array_equal(again.run()[0].as_array(), pipe.run()[0].as_array())


# Definitions that are refused.


@pytest.mark.parametrize(
    ("source", "options"),
    [
        raising(TypeError, lambda: full(1), {}),
        raising(TypeError, [full(1)], {"batch": False}),
        raising(TypeError, generator, {"batch": False}),
        raising(ValueError, sample, {"batch": False, "no_copy": False}),
        raising(ValueError, sample, {"batch": False, "prefetch_queue_depth": 0}),
        raising(ValueError, sample, {"batch": False, "bytes_per_sample_hint": 0}),
        raising(RuntimeError, sample, {"batch": False, "workers": 0}),
        raising(ValueError, sample, {"batch": False, "start": "thread"}),
    ],
)
def test_refused_definitions(source, options, raises):
    both(lambda dali: made(dali, source, **options).build(), raises=raises)


def test_sources_of_definitions_with_conditionals():
    """DALI refuses them, because it has changed their code. Here a function is changed only when the definition calls it."""

    @ours.pipeline_def(batch_size=8, num_threads=1, enable_conditionals=True)
    def define():
        def source(info):
            value = info.idx_in_epoch
            if value > 5 and not value % 2:
                value = 5
            return np.int32([value])

        return ours.fn.external_source(source, parallel=True, batch=False)

    assert define().run()[0].as_array()[:, 0].tolist() == [0, 1, 2, 3, 4, 5, 5, 7]


def test_a_source_is_needed():
    ours_raises(lambda dali: made(dali, None), TypeError, "parallel=True needs a source")


# Failures.


def raising(number):
    if number == 2:
        raise LookupError("nothing there")
    return list(full(number))


def test_an_exception_has_the_traceback_of_the_worker():
    pipe = made(ours, raising, prefetch_queue_depth=2)
    assert [pipe.run()[0].at(0)[0] for _ in range(2)] == [0, 1]
    with pytest.raises(Exception, match="nothing there") as caught:
        pipe.run()
    assert type(caught.value) is Exception
    for part in ("Traceback (most recent call last)", "in raising", 'raise LookupError("nothing there")', "fn.external_source"):
        assert part in str(caught.value)
    assert pipe.run()[0].at(0)[0] == 3


def test_forked_child_does_not_collect_pipelines_of_dali():
    """Its collector would wait forever for their threads: tests/conftest.py freezes what the parent has left."""
    gc.disable()
    try:
        pipe = make_pipe(real(), lambda: full(1))
        pipe.run()
        cycle = [pipe]
        cycle.append(cycle)
        del pipe, cycle
        assert run_in_child(lambda: gc.collect() >= 0) == 0
    finally:
        gc.enable()


def test_errors_are_exceptions_as_in_dali():
    both(lambda dali: made(dali, lambda info: 1 // 0, batch=False).run(), raises=Exception)
    for data in (3, None, np.float32(1)):
        both(lambda dali, data=data: made(dali, lambda info: data, batch=False).run(), raises=Exception)


def test_arrays_of_objects_are_refused():
    """DALI's worker crashes."""
    ours_raises(
        lambda dali: made(dali, lambda info: np.array([None]), batch=False).run(), Exception, "must return arrays of numbers, got the type object"
    )


@pytest.mark.parametrize("batch", [True, False])
def test_arrays_larger_than_the_memory_are_refused(batch):
    def make_oversized(_):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # of shared memory too: without a check the system would end processes
        array = np.broadcast_to(np.uint8(0), (1 << 44,))
        return [array] if batch else array

    pipe = made(ours, make_oversized, batch_size=1, batch=batch)
    with pytest.raises(Exception, match=r"MemoryError: no memory for 17\.6 TB: what a parallel source returned; there are .* for this process"):
        pipe.run()


def test_arrays_larger_than_the_free_memory_are_refused(monkeypatch):
    def large(_):
        free = [line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith(("MemAvailable", "SwapFree"))]
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        monkeypatch.setattr(native, "check_memory", lambda size, use: None)
        return np.broadcast_to(np.uint8(0), (2 * sum(int(line.split()[1]) << 10 for line in free),))

    with pytest.raises(Exception, match=r"MemoryError: no memory for the \d+ bytes that a parallel source returned; \d+ are free"):
        made(ours, large, batch_size=1, batch=False).run()


def test_the_first_sample_decides():
    """Sample 2 raises and sample 1 ends the data, in different workers: the end comes first, as in the sequential form."""

    def source(info):
        if info.idx_in_epoch == 4:
            raise StopIteration
        if info.idx_in_epoch == 5:
            raise LookupError
        return np.int32([info.idx_in_epoch])

    pipe = made(ours, source, workers=3, batch=False)
    pipe.run()
    with pytest.raises(StopIteration):
        pipe.run()


@pytest.mark.slow
def test_a_source_that_cannot_be_loaded_says_why():
    pipe = made(ours, Unloadable(), batch=False, start="spawn")
    with pytest.raises(Exception, match="cannot be loaded here"):
        pipe.run()


class Unloadable:
    def __call__(self, info):
        return np.zeros(1)

    def __setstate__(self, state):
        raise LookupError("cannot be loaded here")

    def __getstate__(self):
        return {"a": 1}


def test_a_source_that_cannot_be_pickled_raises_at_build():
    class Local:
        def __call__(self, info):
            return np.zeros(1)

    with pytest.raises((pickle.PicklingError, AttributeError), match="Local"):
        made(ours, Local(), batch=False, start="spawn").build()


def test_names_of_both_packages():
    both(lambda dali: [hasattr(made(dali, sample, batch=False), name) for name in ("start_py_workers", "external_source_shm_statistics")])
    assert sub(ours, "external_source").external_source is ours.fn.external_source
