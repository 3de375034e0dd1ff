# SPDX-License-Identifier: Apache-2.0
"""Running pipelines: prefetch, readers, the end of data, scheduled runs, sizes, random numbers."""

import gc
import os
import warnings
import weakref

import numpy as np
import pytest
from _pipelines import both, define, numbers, show
from _raises import raising
from _videos import encode, frames_of, identity

import torch_ndd as ndd
import torch_ndd.dali as ours


@pytest.fixture
def files(tmp_path):
    """Return a folder of ten files whose contents are their numbers."""
    (tmp_path / "0").mkdir()
    for k in range(10):
        (tmp_path / "0" / f"{k}.jpg").write_bytes(bytes([k]))
    return str(tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"pad_last_batch": True}, {"num_shards": 3, "shard_id": 1}, {"num_shards": 3, "shard_id": 1, "stick_to_shard": True}),
        *({"num_shards": 3, "shard_id": 2, "pad_last_batch": True}, {"num_shards": 2, "pad_last_batch": True, "stick_to_shard": True}),
    ],
    ids=show,
)
def test_readers_go_round(files, options):
    """Batches are full and without end; sizes and shards are told."""

    def program(dali):
        pipe = define(dali, lambda: dali.fn.readers.file(file_root=files, name="Reader", **options)[0])
        return [numbers(pipe.run()[0]) for _ in range(8)], pipe.epoch_size("Reader"), pipe.reader_meta("Reader"), pipe.epoch_size()

    both(program)


def test_shuffling_reads_everything(files):
    """An epoch of a shuffled reader has every file, each epoch in another order."""
    pipe = define(ours, lambda: ours.fn.readers.file(file_root=files, random_shuffle=True)[0], 5, seed=3)
    epochs = [numbers(pipe.run()[0]) + numbers(pipe.run()[0]) for _ in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 3
    assert epochs[0] != epochs[1] != list(range(10))


def test_unknown_readers(files):
    """Names that no reader has."""
    both(lambda dali: define(dali, lambda: dali.fn.readers.file(file_root=files)[0]).epoch_size("nothing"), raises=RuntimeError)
    both(lambda dali: define(dali, lambda: dali.fn.random.uniform()).reader_meta())


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_sources_are_called_ahead(depth):
    """After build nothing is asked; k runs ask k + depth - 1 times."""

    def program(dali):
        calls = []

        def source(iteration):
            calls.append(iteration)
            return np.full((4, 1), iteration, np.int32)

        pipe = define(dali, lambda: dali.fn.external_source(source), prefetch_queue_depth=depth)
        pipe.build()
        counts = [len(calls)]
        for _ in range(3):
            pipe.run()
            counts.append(len(calls))
        return counts

    assert both(program) == [0, depth, depth + 1, depth + 2]


@pytest.mark.parametrize("depth", [1, 3, {"cpu_size": 3, "gpu_size": 2}], ids=show)
def test_the_end_of_data(depth):
    """What was issued is delivered, then StopIteration until reset, again and again."""

    def program(dali):
        def source(iteration):
            if iteration == 4:
                raise StopIteration
            return np.full((2, 1), iteration, np.int32)

        pipe = define(dali, lambda: dali.fn.external_source(source), 2, prefetch_queue_depth=depth)
        pipe.build()
        pipe.reset()
        found = []
        for _ in range(2):
            for _ in range(7):
                try:
                    found.append(numbers(pipe.run()[0])[0])
                except StopIteration:
                    found.append("end")
            pipe.reset()
        return found

    assert both(program) == [0, 1, 2, 3, "end", "end", "end"] * 2


def test_iter_setup():
    """iter_setup runs before each issued iteration and may end the data."""

    def program(dali):
        class Fed(dali.Pipeline):
            def __init__(self):
                super().__init__(2, 1, None)
                self.count = 0

            def define_graph(self):
                self.input = dali.fn.external_source(name="data")
                return self.input

            def iter_setup(self):
                if self.count == 5:
                    raise StopIteration
                self.feed_input(self.input, np.full((2, 1), self.count, np.int32))
                self.count += 1

        pipe, found = Fed(), []
        pipe.build()
        for _ in range(7):
            try:
                found.append((numbers(pipe.run()[0])[0], pipe.count))
            except StopIteration:
                found.append("end")
        return found

    both(program)


def test_feed_input_takes_nodes_and_names():
    """feed_input by node and by name; an iteration without a batch is an IndexError."""

    def program(dali):
        pipe = dali.Pipeline(2, 1, None, prefetch_queue_depth=2)
        with pipe:
            node = dali.fn.external_source(name="data")
            pipe.set_outputs(node + 1)
        pipe.build()
        pipe.feed_input("data", np.zeros((2, 1), np.int32))
        pipe.feed_input(node, [np.ones(1, np.int32)] * 2)
        found = [numbers(pipe.run()[0])]
        pipe.feed_input("data", np.full((2, 1), 5, np.int32))
        found.append(numbers(pipe.run()[0]))
        return found, pipe.input_feed_count("data")

    both(program)

    def run_unfed(dali):
        pipe = define(dali, lambda: dali.fn.external_source(name="data"), 2)
        pipe.build()
        pipe.feed_input("data", np.zeros((2, 1), np.int32))
        return numbers(pipe.run()[0]), pipe.run()

    both(run_unfed, raises=IndexError)

    def unknown(dali):
        pipe = define(dali, lambda: dali.fn.external_source(name="data"), 2)
        pipe.feed_input("other", np.zeros((2, 1), np.int32))

    both(unknown, raises=KeyError)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("policy", ["partial", "pad"])
def test_videos_that_are_fed(policy, stored):
    """A fed file comes out in batches of sequences; then the next one, then an error."""
    files = [encode(frames_of(count, k), "webm") for k, count in enumerate((20, 7, 6))]

    def program(dali):
        def graph():
            return dali.fn.experimental.inputs.video(name="video", sequence_length=3, last_sequence_policy=policy)

        pipe = define(dali, graph, 3, prefetch_queue_depth=1)
        if stored:
            pipe = dali.Pipeline.deserialize(pipe.serialize())
        pipe.build()
        for file in (files[0][None], files[1][None, None], [files[2]]):  # the sample may have any shape
            pipe.feed_input("video", file)
        found = []
        for _ in range(5):
            value = pipe.run()[0]  # a loaded pipeline of DALI's writes over it in the next run
            found.append([value.shape(), value.layout(), [identity(value.at(k)) for k in range(len(value))]])
        with pytest.raises(RuntimeError):
            pipe.run()
        return found

    both(program)


def test_inputs_of_run():
    """run(name=batch) with one iteration at a time."""

    def program(dali):
        pipe = define(dali, lambda: dali.fn.external_source(name="data") * 2, 2, prefetch_queue_depth=1)
        return [numbers(pipe.run(data=np.full((2, 1), k, np.int32))[0]) for k in range(3)]

    assert both(program) == [[0, 0], [2, 2], [4, 4]]
    both(lambda dali: define(dali, lambda: dali.fn.external_source(name="data"), 2).run(data=np.zeros((2, 1))), raises=RuntimeError)
    both(
        lambda dali: define(dali, lambda: dali.fn.external_source(name="data"), 2, exec_pipelined=False, exec_async=False).run(data=np.zeros((2, 1)))
    )


def test_scheduled_runs():
    """schedule_run, share_outputs, release_outputs, outputs and empty."""

    def program(dali):
        calls = []

        def source(iteration):
            calls.append(iteration)
            return np.full((2, 1), iteration, np.int32)

        pipe = define(dali, lambda: dali.fn.external_source(source), 2)
        pipe.build()
        found = [pipe.empty()]
        pipe.schedule_run()
        found += [len(calls), pipe.empty(), numbers(pipe.share_outputs()[0])]
        pipe.release_outputs()
        pipe.schedule_run()
        found += [len(calls), numbers(pipe.outputs()[0])]
        return found

    both(program)


def test_nothing_scheduled():
    """Nothing to share is StopIteration."""

    def program(dali):
        pipe = define(dali, lambda: dali.fn.random.uniform(), 2)
        pipe.build()
        return pipe.share_outputs()

    both(program, raises=StopIteration)


@pytest.mark.parametrize("call", ["schedule_run", "share_outputs", "release_outputs", "outputs"])
def test_mixed_calls(call):
    """Calls of the other kind after run()."""

    def program(dali):
        pipe = define(dali, lambda: dali.fn.constant(idata=[1]), 2)
        pipe.build()
        pipe.run()
        getattr(pipe, call)()

    both(program, raises=RuntimeError)


@pytest.mark.parametrize("check", [raising(RuntimeError, True), False])
def test_mixed_use(check, raises):
    """run and schedule_run on one pipeline."""

    def program(dali):
        pipe = define(dali, lambda: dali.fn.constant(idata=[1]), 2)
        pipe.build()
        pipe.enable_api_check(check)
        pipe.run()
        pipe.schedule_run()
        return numbers(pipe.share_outputs()[0])

    both(program, raises=raises)


def test_batch_sizes_vary():
    """Sources give the size; what has no inputs follows; sizes that differ are an error."""

    def program(dali):
        def define_graph():
            node = dali.fn.external_source(lambda i: np.zeros((1 + i, 2), np.float32))
            return node + dali.fn.random.uniform(shape=[2]) * 0, dali.types.Constant([1, 2]), dali.fn.random.coin_flip(probability=0.0), 7

        pipe = define(dali, define_graph)
        return [pipe.run() for _ in range(3)]

    both(program)

    def clash(dali):
        def define_graph():
            return dali.fn.external_source(lambda i: np.zeros((1, 2))), dali.fn.external_source(lambda i: np.zeros((2, 2)))

        return define(dali, define_graph).run()

    both(clash, raises=RuntimeError)


def test_readers_need_full_batches(files):
    """A source of another size beside a reader is an error."""

    def program(dali):
        return define(dali, lambda: (dali.fn.external_source(lambda i: np.zeros((1, 2))), dali.fn.readers.file(file_root=files)[0])).run()

    both(program, raises=RuntimeError)


@pytest.mark.parametrize(
    "declared",
    [
        *(
            {"output_dtype": "FLOAT"},
            {"output_dtype": ["FLOAT", None]},
            raising(RuntimeError, {"output_dtype": "INT32"}),
            {"output_ndim": [1, 0]},
            raising(RuntimeError, {"output_ndim": [2, 0]}),
        ),
        *(
            raising(RuntimeError, {"output_ndim": [1]}),
            raising(ValueError, {"output_dtype": "NO_TYPE"}),
            raising(ValueError, {"output_ndim": -1}),
            raising(TypeError, {"output_dtype": 3}),
            raising(TypeError, {"output_ndim": "a"}),
            raising(TypeError, {"output_layout": 5}),
        ),
    ],
    ids=show,
)
def test_declared_outputs(declared, raises):
    """Types and dimensions that were declared are checked."""

    def program(dali):
        def value(value):
            return getattr(dali.types, value) if isinstance(value, str) and value != "a" else value

        values = {key: [value(item) for item in entry] if isinstance(entry, list) else value(entry) for key, entry in declared.items()}
        pipe = define(dali, lambda: (dali.types.Constant([1.0, 2.0]), dali.types.Constant(2.5)), 2, **values)
        return pipe.run(), [str(value) for value in pipe.output_dtype()], pipe.output_ndim()

    both(program, raises=raises)


# Random numbers.


def draws(dali, runs=2, seed=5, more=None):
    """Return numbers of a pipeline with two random operators."""

    def define_graph():
        return dali.fn.random.uniform(**(more or {})), dali.fn.random.uniform()

    pipe = define(dali, define_graph, 3, seed=seed)
    return [np.stack([output.as_array() for output in pipe.run()]) for _ in range(runs)]


def test_equal_seeds_give_equal_numbers():
    """With a seed, runs of equal pipelines are equal; operators and iterations differ."""
    first, second = draws(ours), draws(ours)
    np.testing.assert_array_equal(first, second)
    assert (first[0] != first[1]).all()
    assert (first[0][0] != first[0][1]).all()
    assert (np.array(draws(ours, seed=6)) != np.array(first)).all()
    assert (np.array(draws(ours, seed=None)) != np.array(draws(ours, seed=None))).all()


def test_seeds_of_operators():
    """A seed of an operator is the same in every pipeline and for every operator."""
    value, other = draws(ours, seed=1, more={"seed": 7}), draws(ours, seed=2, more={"seed": 7})
    np.testing.assert_array_equal(np.array(value)[:, 0], np.array(other)[:, 0])

    def define_graph():
        return ours.fn.random.uniform(seed=7), ours.fn.random.uniform(seed=7)

    a, b = define(ours, define_graph, 3).run()
    np.testing.assert_array_equal(a.as_array(), b.as_array())
    np.testing.assert_array_equal(a.as_array(), np.array(value)[0, 0])


def test_pruned_operators_do_not_count():
    """Operators that no output needs change no numbers."""

    def define_graph(extra):
        if extra:
            ours.fn.random.uniform()
        return ours.fn.random.uniform()

    pipes = [ours.pipeline_def(define_graph)(extra, batch_size=3, num_threads=1, seed=4) for extra in (False, True)]
    np.testing.assert_array_equal(*(pipe.run()[0].as_array() for pipe in pipes))


def test_samples_do_not_depend_on_the_batch_size():
    """Sample i of the first iteration is the same for every batch size."""
    small, large = (define(ours, lambda: ours.fn.random.normal(shape=[3]), size, seed=4).run()[0] for size in (2, 5))
    np.testing.assert_array_equal(small.as_array(), large.as_array()[:2])


def test_one_node_is_one_draw():
    """A node used twice has the same numbers."""

    def define_graph():
        flip = ours.fn.random.coin_flip()
        return flip, flip + 0

    a, b = define(ours, define_graph, 16).run()
    np.testing.assert_array_equal(a.as_array(), b.as_array())


# Lifetime.


def test_pipelines_end_without_the_garbage_collector():
    """A pipeline is not part of a reference cycle."""
    gc.disable()
    try:
        pipe = define(ours, lambda: ours.fn.random.uniform() + 1, 2)
        pipe.run()
        reference = weakref.ref(pipe)
        del pipe
        assert reference() is None
    finally:
        gc.enable()


def test_a_forked_child_is_told():
    """A pipeline that ran in the parent has its thread there: an error in the child instead of a wait without end."""
    pipe = define(ours, lambda: ours.fn.random.uniform(), 2)
    pipe.run()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from Python 3.12 on, about forks of processes with threads
        child = os.fork()
    if child == 0:
        try:
            pipe.run()
            text = "it ran"
        except Exception as error:
            text = str(error)
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        assert "after the fork" in answer.read()
    os.waitpid(child, 0)
    pipe.run()


def test_outputs_stay_valid():
    """Later runs do not change earlier outputs, and outputs outlive the pipeline."""
    pipe = define(ours, lambda: ours.fn.external_source(lambda i: np.full((2, 1000), i, np.int32)) + 1, 2)
    kept = [pipe.run()[0] for _ in range(5)]
    del pipe
    assert [numbers(value)[0] for value in kept] == [1, 2, 3, 4, 5]


def test_the_numbers_of_an_iteration_follow_from_the_seed_and_its_number():
    """Whatever is drawn at a time."""
    pipe = ours.Pipeline(batch_size=3, num_threads=1)
    with pipe:
        pipe.set_outputs(ours.fn.random.uniform(range=[0, 1], shape=[2], seed=5))
    seen = [np.array(pipe.run()[0].as_array()) for _ in range(130)]
    for k in (0, 1, 62, 63, 64, 65, 127, 128, 129):
        expected = ndd.random.uniform(range=[0, 1], shape=[2], batch_size=3, rng=ndd.random.RNG(5).at(7 * k))
        np.testing.assert_array_equal(seen[k], expected.torch().numpy())
