# SPDX-License-Identifier: Apache-2.0
"""Inputs of pipelines that are fed: ``feed_input``, ``run(**inputs)``, ``iter_setup``."""

import threading

import numpy as np
import pytest
from _pipelines import both, full, ours_raises, plain, sub
from _raises import raising
from _sources import make_pipe

import torch_ndd.dali as ours


@pytest.mark.parametrize("fed", range(5))
@pytest.mark.parametrize("depth", [1, 2])
def test_fed_batches_are_delivered_in_order(depth, fed):
    """What was fed is delivered; then IndexError."""

    def program(dali):
        pipe = make_pipe(dali, name="x", depth=depth)
        for k in range(fed):
            pipe.feed_input("x", full(k))
        log = []
        for _ in range(fed):
            log.append(plain(pipe.run()))
        try:
            pipe.run()
        except IndexError:
            log.append("nothing fed")
        return log

    both(program)


def test_feeding_after_the_error():
    """DALI's pipeline is over then."""
    pipe = make_pipe(ours, name="x")
    pipe.feed_input("x", full(0))
    assert pipe.run()[0].at(0)[0] == 0
    with pytest.raises(IndexError, match=r"nothing was fed to the input 'x'.*Add more elements"):
        pipe.run()
    pipe.feed_input("x", full(1))
    pipe.feed_input("x", full(2))
    assert [pipe.run()[0].at(0)[0] for _ in range(2)] == [1, 2]


@pytest.mark.parametrize(
    "program",
    [
        raising(KeyError, lambda pipe, dali: pipe.feed_input("y", full(1))),
        raising(RuntimeError, lambda pipe, dali: pipe.feed_input("x", full(1, 9))),
        raising(RuntimeError, lambda pipe, dali: pipe.feed_input("x", full(1), layout="AB")),
        raising(RuntimeError, lambda pipe, dali: pipe.feed_input("x", [1, 2])),
        raising(RuntimeError, lambda pipe, dali: pipe.feed_input("x", None)),
        raising(RuntimeError, lambda pipe, dali: pipe.feed_input("x", "abc")),
        lambda pipe, dali: [pipe.feed_input("x", full(1), layout="B"), pipe.run()],
        lambda pipe, dali: [pipe.feed_input("x", [np.float32([1]), np.float32([2, 3])]), pipe.run()],
        lambda pipe, dali: [pipe.feed_input("x", sub(dali, "tensors").TensorListCPU(full(1), "B")), pipe.run()],
        raising(
            RuntimeError, lambda pipe, dali: [[pipe.feed_input("x", value) for value in (full(1), full(1).astype(np.uint8))], pipe.run(), pipe.run()]
        ),
        lambda pipe, dali: [pipe.input_feed_count("x"), pipe.run(x=full(1)), pipe.run(x=full(2))],
    ],
)
def test_forms_of_feeding(program, raises):
    both(lambda dali: program(make_pipe(dali, name="x", depth=1), dali), raises=raises)


def test_declared_layouts_and_types_of_inputs():
    both(lambda dali: (pipe := make_pipe(dali, name="x", depth=1, layout="A"), pipe.feed_input("x", full(1)), pipe.run())[2])
    both(
        lambda dali: (pipe := make_pipe(dali, name="x", depth=1, dtype=dali.types.UINT8), pipe.feed_input("x", full(1)), pipe.run())[2],
        raises=RuntimeError,
    )
    ours_raises(lambda dali: make_pipe(dali, name="x", layout="A").feed_input("x", full(1), layout="B"), RuntimeError, 'expected the layout "A"')


def test_an_input_with_a_source_cannot_be_fed():
    both(lambda dali: make_pipe(dali, lambda: full(1), name="x").feed_input("x", full(1)), raises=RuntimeError)


def test_feeding_a_node():
    def program(dali):
        pipe = dali.Pipeline(3, 1, None, prefetch_queue_depth=1)
        with pipe:
            node = dali.fn.external_source()
            pipe.set_outputs(node + 1)
        pipe.feed_input(node, full(1))
        return pipe.run()

    both(program)


@pytest.mark.parametrize("by_name", [True, False])
def test_feeding_a_node_on_another_device(by_name):
    """It has the name of its origin, and so feeds it."""
    pipe = ours.Pipeline(3, 1, prefetch_queue_depth=1)
    with pipe:
        node = ours.fn.external_source(name="x").gpu()
        pipe.set_outputs(node + 1)
    pipe.feed_input(node.name if by_name else node, full(1))
    assert np.asarray(pipe.run()[0].as_cpu().as_array()).tolist() == full(2).tolist()


@pytest.mark.parametrize("no_copy", [None, True])
def test_no_copy_reads_memory_when_the_iteration_runs(no_copy):
    """With no_copy the memory is read when the iteration runs."""

    def program(dali):
        values = full(1)
        pipe = make_pipe(dali, name="x", depth=1, no_copy=no_copy)
        pipe.feed_input("x", values)
        values[:] = 5
        return pipe.run()

    both(program)


def test_repeat_last():
    """DALI needs a GPU for it."""
    pipe = make_pipe(ours, name="x", depth=1, repeat_last=True)
    with pytest.raises(IndexError):
        pipe.run()
    for k in range(2):
        pipe.feed_input("x", full(k))
    assert [pipe.run()[0].at(0)[0] for _ in range(4)] == [0, 1, 1, 1]
    pipe.feed_input("x", full(5))
    assert pipe.run()[0].at(0)[0] == 5
    ours_raises(lambda dali: make_pipe(dali, lambda: full(1), repeat_last=True), ValueError, "repeat_last is for inputs that are fed")


def test_blocking_inputs_do_not_wait_while_there_are_results():
    pipe = make_pipe(ours, name="x", depth=3, blocking=True)
    for value in (1, 2):
        pipe.feed_input("x", full(value))
        assert np.array(pipe.run()[0].as_tensor()).tolist() == full(value).tolist()


def test_blocking_inputs_wait_for_another_thread():
    pipe = make_pipe(ours, name="x", depth=1, blocking=True)
    pipe.build()
    thread = threading.Timer(0.05, lambda: pipe.feed_input("x", full(4)))
    thread.start()
    assert pipe.run()[0].at(0)[0] == 4
    thread.join()


def test_iter_setup():
    def program(dali):
        class Own(dali.Pipeline):
            def __init__(self):
                super().__init__(3, 1, None)
                self.input = dali.ops.ExternalSource()
                self.count = 0

            def define_graph(self):
                self.data = self.input()
                return self.data

            def iter_setup(self):
                if self.count == 4:
                    raise StopIteration
                self.feed_input(self.data, full(self.count))
                self.count += 1

        pipe, log = Own(), []
        for _ in range(6):
            try:
                log.append([plain(pipe.run()), pipe.count])
            except StopIteration:
                log.append("stop")
        return log

    both(program)
