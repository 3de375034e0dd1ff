# SPDX-License-Identifier: Apache-2.0
"""external_source in all its forms against DALI: sources, their arguments, forms of data, outputs, errors."""

import functools
import gc
import warnings
import weakref

import numpy as np
import pytest
import torch
from _pipelines import both, full, iterations, ours_raises, plain, show, sub
from _raises import raising
from _sources import make_pipe

import torch_ndd.dali as ours


def compare(source=None, count=3, raises=None, **options):
    """Run a pipeline with one external source under both. ``source`` is created for each by a function of ``dali`` with the attribute `make`."""

    def program(dali):
        item = source(dali) if getattr(source, "make", False) else source
        values = {key: value(dali) if getattr(value, "make", False) else value for key, value in options.items()}
        return iterations(make_pipe(dali, item, **values), count)

    return both(program, raises=raises)


def mark_factory(function):
    function.make = True
    return function


def generator():
    for k in range(3):
        yield full(k)


class Generators:
    def __call__(self):
        yield from generator()


class Methods:
    def __call__(self, number):
        return full(number)

    def at_index(self, number):
        return full(number + 10)

    def plain(self):
        return full(77)


class Both:
    def __iter__(self):
        return iter([full(1)])

    def __call__(self, number):
        return full(100)


class Items:
    def __getitem__(self, k):
        if k > 1:
            raise IndexError
        return full(k)


class Restarting:
    """An iterator that begins again when it has ended."""

    def __iter__(self):
        self.k = 0
        return self

    def __next__(self):
        self.k += 1
        if self.k > 2:
            self.__iter__()
            raise StopIteration
        return full(self.k)


@pytest.mark.parametrize(
    "source",
    [
        *(lambda number: full(number), lambda: full(7), lambda number=5: full(number)),
        *(lambda number: [np.full(k + 1, number, np.float32) for k in range(3)], lambda: tuple(np.full(k + 1, 5, np.int64) for k in range(2))),
        *(generator, functools.partial(generator), Generators(), [full(0), full(1)], Methods(), Methods().at_index, Methods().plain, Both(), Items()),
        *(
            raising(TypeError, lambda *numbers: full(0)),
            raising(TypeError, lambda **more: full(0)),
            raising(TypeError, lambda *, number=1: full(0)),
            raising(TypeError, lambda a, b: full(0)),
            raising(TypeError, lambda a=1, b=2: full(0)),
            raising(TypeError, 5),
        ),
    ],
    ids=show,
)
def test_sources_of_every_form_equal_dali(source, raises):
    compare(source, 5, raises=raises)


def test_an_iterator_that_restarts():
    compare(mark_factory(lambda dali: Restarting()), 8)


@pytest.mark.parametrize("cycle", [None, False, True, "no", "quiet", "raise", "again"])
@pytest.mark.parametrize(
    "source",
    [
        *(mark_factory(lambda dali: [full(0), full(1)]), mark_factory(lambda dali: generator), mark_factory(lambda dali: generator())),
        *(mark_factory(lambda dali: Generators()), mark_factory(lambda dali: lambda: full(1)), None),
    ],
    ids=["list", "generator function", "generator", "callable generator", "callable", "none"],
)
def test_cycle_restarts_iterables(source, cycle, request):
    kind = request.node.callspec.id.partition("-")[0]
    raises = None
    if cycle == "again" or (kind == "callable" and cycle is not None) or (kind == "none" and cycle not in (None, False)):
        raises = ValueError
    elif kind == "none":
        raises = IndexError
    elif kind == "generator" and cycle in (True, "quiet", "raise"):
        raises = TypeError
    compare(source, 9, cycle=cycle, raises=raises)


@pytest.mark.parametrize("lengths", [(2, 2), (2, 3), (3, 2)])
@pytest.mark.parametrize("cycles", [("raise", "raise"), ("raise", True), (True, "raise"), ("raise", None)])
def test_cycles_of_several_sources(lengths, cycles):
    """All sources are asked in an iteration in which one ends: those of equal length begin again together."""

    def program(dali):
        pipe = dali.Pipeline(3, 1, None)
        with pipe:
            sources = [[full(k) for k in range(length)] for length in lengths]
            pipe.set_outputs(*(dali.fn.external_source(source, cycle=cycle) for source, cycle in zip(sources, cycles, strict=True)))
        return iterations(pipe, 14)

    both(program)


def test_a_source_of_several_outputs_is_asked_once_at_its_end():
    requested = []

    def source(number):
        requested.append(number)
        if number == 1:
            raise StopIteration
        return full(number), full(number)

    log = iterations(make_pipe(ours, source, depth=1, num_outputs=2), 4)
    assert [value == "stop" for value in log] == [False, True, False, True]
    assert requested == [0, 1, 0, 1]


def test_what_was_fed_is_kept_when_a_source_ends():
    pipe = ours.Pipeline(3, 1, prefetch_queue_depth=1)
    with pipe:
        pipe.set_outputs(ours.fn.external_source(name="fed"), ours.fn.external_source([full(0)], cycle="raise"))
    for k in range(2):
        pipe.feed_input("fed", full(k))
    assert int(pipe.run()[0].at(0)[0]) == 0
    with pytest.raises(StopIteration):
        pipe.run()
    pipe.reset()
    assert int(pipe.run()[0].at(0)[0]) == 1


@pytest.mark.parametrize("cycle", [None, True, "raise"])
def test_cycles_of_samples(cycle):
    """The end in the middle of a batch drops the begun batch."""
    compare(mark_factory(lambda dali: [np.float32([k]) for k in range(8)]), 9, batch=False, cycle=cycle)


def test_a_partial_with_arguments_is_a_callable():
    """DALI finds the parameters of `partial.__call__`."""
    pipe = make_pipe(ours, functools.partial(lambda base, number: full(base + number), 5))
    assert [int(pipe.run()[0].at(0)[0]) for _ in range(2)] == [5, 6]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_numbers_of_batches(depth):
    """The source is called depth - 1 times more than there were runs."""

    def program(dali):
        seen = []

        def source(number):
            seen.append(number)
            if number == 4:
                raise StopIteration
            return full(number)

        pipe = make_pipe(dali, source, depth=depth)
        pipe.build()
        assert seen == []
        return [iterations(pipe, 7), seen]

    both(program)


def test_information_of_batches():
    def program(dali):
        seen = []

        def source(info):
            seen.append((info.iteration, info.epoch_idx))
            if info.iteration == 2:
                raise StopIteration
            return full(info.iteration)

        return [iterations(make_pipe(dali, source, batch_info=True), 8), [list(value) for value in seen]]

    both(program)


def test_information_of_samples():
    def program(dali):
        seen = []

        def source(info):
            seen.append([info.idx_in_epoch, info.idx_in_batch, info.iteration, info.epoch_idx])
            if info.iteration == 2 and info.idx_in_batch == 1:
                raise StopIteration
            return np.float32([info.idx_in_epoch])

        return [iterations(make_pipe(dali, source, batch=False, batch_info=True), 8), seen]

    both(program)


def capsule(values):
    return torch.from_numpy(values).__dlpack__()


FORMS = {
    "array": lambda dali: full(1),
    "NumPy scalars": lambda dali: [np.float32(1), np.float32(2)],
    "tensors": lambda dali: [sub(dali, "tensors").TensorCPU(full(1)[0], "A"), sub(dali, "tensors").TensorCPU(full(2)[0], "A")],
    "tensor list": lambda dali: sub(dali, "tensors").TensorListCPU(full(1), "A"),
    "tensor": lambda dali: sub(dali, "tensors").TensorCPU(full(1)),
    "array and tensor": lambda dali: [full(1), sub(dali, "tensors").TensorCPU(full(1))],
    "array interface": lambda dali: type("Own", (), {"__array_interface__": full(1).__array_interface__, "kept": full(1)})(),
    "capsule": lambda dali: capsule(full(1)),
    "capsules": lambda dali: [capsule(full(1)), capsule(full(2))],
    "float64": lambda dali: np.zeros((2, 2)),
    "int64": lambda dali: np.arange(3),
    "bool": lambda dali: np.array([True, False]),
    "float16": lambda dali: np.zeros(2, np.float16),
    "ragged": lambda dali: [np.zeros((1, 2)), np.zeros((3, 1))],
    "fewer": lambda dali: full(1, 2),
    "samples without elements": lambda dali: [np.zeros((0, 2), np.float32)],
    "read-only": lambda dali: np.frombuffer(b"abc", np.uint8),
    "numbers": lambda dali: [1, 2],
    "lists": lambda dali: [[1, 2], [3, 4]],
    "text": lambda dali: "abc",
    "bytes": lambda dali: b"abc",
    "None": lambda dali: None,
    "Nones": lambda dali: [None],
    "number": lambda dali: 3,
    "no dimensions": lambda dali: np.array(3.0),
    "dict": lambda dali: {"a": 1},
    "set": lambda dali: {1},
    "generator": lambda dali: (value for value in full(1)),
    "too many": lambda dali: full(1, 5),
    "too many in a list": lambda dali: [full(1)] * 5,
    "types": lambda dali: [np.zeros(2, np.float32), np.zeros(2, np.uint8)],
    "dimensions": lambda dali: [np.zeros(2, np.float32), np.zeros((2, 2), np.float32)],
    "layouts": lambda dali: [sub(dali, "tensors").TensorCPU(full(1)[0], "A"), sub(dali, "tensors").TensorCPU(full(2)[0], "B")],
    "objects": lambda dali: [np.array([None])],
    "array of text": lambda dali: np.array(["a", "b"]),
}


WRONG_SAMPLES = ["numbers", "lists", "text", "None", "Nones", "number", "dict", "set", "generator", "objects", "array of text"]
WRONG_BATCHES = [*WRONG_SAMPLES, "bytes", "too many", "too many in a list", "types", "dimensions", "layouts"]


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_batches(form):
    raises = IndexError if form == "no dimensions" else RuntimeError if form in WRONG_BATCHES else None
    both(lambda dali: make_pipe(dali, lambda: FORMS[form](dali)).run(), raises=raises)


@pytest.mark.parametrize("form", [name for name in FORMS if name not in ("tensor list", "bytes", "array interface")])
def test_forms_of_samples(form):
    def sample(dali):
        data = FORMS[form](dali)
        return data[0] if isinstance(data, list) else data

    both(lambda dali: make_pipe(dali, lambda: sample(dali), batch=False).run(), raises=RuntimeError if form in WRONG_SAMPLES else None)


def test_strided_arrays_and_torch_tensors():
    """DALI rejects the first, and needs a GPU's driver for the second."""
    for data in (full(1, 3, (4,))[:, ::2], torch.ones(3, 4)[:, ::2], list(torch.ones(3, 4)[:, ::2]), [full(1, 3, (4,))[0, ::2]] * 3):
        pipe = make_pipe(ours, [data])
        np.testing.assert_array_equal(pipe.run()[0].as_array(), full(1))
    assert make_pipe(ours, lambda: np.arange(3, dtype=">i4")).run()[0].as_array().tolist() == [0, 1, 2]


def test_batches_vary_in_size():
    """From iteration to iteration. DALI fails after an empty batch."""
    compare(mark_factory(lambda dali: [full(0, 1), full(1, 3), full(3, 2)]), 5)
    pipe = make_pipe(ours, [full(0, 1), full(1, 0), [], full(3, 2)])
    assert [value[0]["samples"] for value in map(plain, (pipe.run() for _ in range(4)))][1:3] == [[], []]


def test_no_two_sizes_in_one_iteration():
    def program(dali):
        pipe = dali.Pipeline(3, 1, None)
        with pipe:
            pipe.set_outputs(dali.fn.external_source(lambda: full(1, 2)), dali.fn.external_source(lambda: full(1, 3)))
        return pipe.run()

    both(program, raises=RuntimeError)


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (lambda number: (full(number), full(number + 10)), {"num_outputs": 2}),
        (lambda number: [full(number), full(number + 10), full(0)], {"num_outputs": 2}),
        (lambda number: (full(number),), {"num_outputs": 1}),
        (lambda number: full(number), {"num_outputs": 1}),
        raising(IndexError, lambda number: (full(number),), {"num_outputs": 2}),
        (lambda: np.zeros((2, 3, 4), np.float32), {"num_outputs": 2}),
        (lambda: {0: full(1), 1: full(2)}, {"num_outputs": 2}),
        raising(RuntimeError, lambda: (full(1, 2), full(1, 3)), {"num_outputs": 2}),
        (lambda: (yield (full(1), full(2))), {"num_outputs": 2}),
        (lambda: (np.float32([1]), np.uint8([2])), {"num_outputs": 2, "batch": False}),
        raising(RuntimeError, lambda: (full(1), full(2)), {"num_outputs": 2, "name": "x"}),
        raising(TypeError, lambda: (full(1), full(2)), {"num_outputs": "2"}),
        raising(ValueError, None, {"num_outputs": 2}),
        (lambda: (full(1), full(1)), {"num_outputs": 2, "layout": ["A", "B"]}),
        (lambda: (full(1), full(1)), {"num_outputs": 2, "layout": ["A"]}),
        (lambda: (full(1), full(1)), {"num_outputs": 2, "layout": "A"}),
        (lambda: (full(1), full(1)), {"num_outputs": 2, "ndim": [1, 1]}),
        (lambda: (full(1), full(1)), {"num_outputs": 2, "ndim": [1]}),
        (lambda: (full(1), full(1)), {"num_outputs": 2, "dtype": mark_factory(lambda dali: [dali.types.FLOAT])}),
        raising(
            RuntimeError, lambda: (full(1), full(1)), {"num_outputs": 2, "dtype": mark_factory(lambda dali: [dali.types.FLOAT, dali.types.UINT8])}
        ),
        (lambda: full(1), {"layout": "A"}),
        raising(RuntimeError, lambda: full(1), {"layout": "AB"}),
        raising(RuntimeError, lambda: list(full(1)), {"layout": "AB"}),
        (lambda: full(1), {"ndim": 1}),
        raising(RuntimeError, lambda: full(1), {"ndim": 2}),
        raising(RuntimeError, lambda: full(1), {"ndim": 2, "layout": "A"}),
        raising(RuntimeError, lambda: full(1), {"ndim": -1}),
        raising(ValueError, lambda: full(1), {"ndim": "x"}),
        (lambda: full(1), {"dtype": mark_factory(lambda dali: dali.types.FLOAT)}),
        raising(RuntimeError, lambda: full(1), {"dtype": mark_factory(lambda dali: dali.types.UINT8)}),
        raising(TypeError, lambda: full(1), {"dtype": np.float32}),
        raising(ValueError, lambda: full(1), {"prefetch_queue_depth": 2}),
        raising(ValueError, lambda: full(1), {"bytes_per_sample_hint": 2}),
        (lambda: full(1), {"no_copy": True, "blocking": True, "preserve": True, "cuda_stream": None, "use_copy_kernel": False}),
        (lambda: full(1), {"batch": None, "no_copy": False}),
        raising(RuntimeError, mark_factory(lambda dali: [full(1), full(1).astype(np.uint8)]), {}),
        raising(RuntimeError, mark_factory(lambda dali: [full(1), full(1, 3, (2, 2))]), {}),
        raising(RuntimeError, mark_factory(lambda dali: [[sub(dali, "tensors").TensorCPU(full(1)[0], layout)] for layout in "AB"]), {}),
        (mark_factory(lambda dali: lambda: [sub(dali, "tensors").TensorCPU(full(1)[0], "A")]), {"layout": "B"}),
        (mark_factory(lambda dali: lambda: sub(dali, "tensors").TensorListCPU(full(1), "A")), {"layout": "B"}),
    ],
)
def test_outputs_and_declarations(source, options, raises):
    compare(source, 1 if "ndim" in options or "name" in options else 2, **options, raises=raises)


def test_unused_outputs():
    """They warn, and a source that nothing uses is not called."""
    seen = []
    pipe = ours.Pipeline(3, 1)
    with pipe:
        first, _ = ours.fn.external_source(lambda number: (seen.append(number), (full(number), full(0)))[1], num_outputs=2)
        ours.fn.external_source(lambda: seen.append("unused"))
        pipe.set_outputs(first)
    with pytest.warns(UserWarning, match=r"of the 2 outputs of this source, these are not used: 1"):
        pipe.run()
    assert seen == [0, 1]


def test_errors_of_a_source():
    """They come as they are, after the good batches."""

    def source(number):
        if number == 2:
            raise LookupError("nothing there")
        return full(number)

    pipe = make_pipe(ours, source)
    assert [pipe.run()[0].at(0)[0] for _ in range(2)] == [0, 1]
    with pytest.raises(LookupError, match=r"^nothing there$"):
        pipe.run()
    assert pipe.run()[0].at(0)[0] == 3


def test_data_errors_name_the_line():
    error = ours_raises(
        lambda dali: make_pipe(dali, lambda: [1, 2]).run(), RuntimeError, "sample 0 of a batch must be an array, got an object of type int"
    )
    assert "nodes = dali.fn.external_source(source, **options)" in str(error)


def test_sources_may_use_their_memory_again():
    def program(dali):
        values = full(0)

        def source(number):
            values[:] = number
            return values

        pipe = make_pipe(dali, source)
        return [pipe.run() for _ in range(2)]

    both(program)


# The class.

CALLS = {
    "source": ({"source": lambda number: full(number)}, {}),
    "source in the call": ({}, {"source": lambda number: full(number)}),
    "source twice": raising(RuntimeError, {"source": lambda: full(1)}, {"source": lambda: full(1)}),
    "outputs": ({"source": lambda: (full(1), full(2)), "num_outputs": 2}, {}),
    "outputs and name": raising(ValueError, {"source": lambda: (full(1), full(2)), "num_outputs": 2, "name": "x"}, {}),
    "outputs and name in the call": raising(RuntimeError, {"source": lambda: (full(1), full(2)), "num_outputs": 2}, {"name": "x"}),
    "outputs without a source": raising(IndexError, {"num_outputs": 2}, {}),
    "cycle in the call": raising(ValueError, {"source": [full(1)]}, {"cycle": True}),
    "cycle without a source": raising(ValueError, {}, {"cycle": True}),
    "cycle and source in the call": ({}, {"cycle": True, "source": [full(1)]}),
    "repeat_last": raising(ValueError, {"source": lambda: full(1)}, {"repeat_last": True}),
    "unknown in the call": raising(KeyError, {"source": lambda: full(1)}, {"foo": 1}),
    **{f"{name} twice": ({"source": lambda: full(1), name: value}, {name: value}) for name, value in (("name", "x"), ("cycle", None))},
    **{
        f"{name} twice": raising(error, {"source": lambda: full(1), name: value}, {name: value})
        for error, arguments in {
            RuntimeError: {"layout": "A", "ndim": 1, "use_copy_kernel": False},
            ValueError: {
                **{"batch": True, "parallel": False, "no_copy": True, "batch_info": False},
                **{"prefetch_queue_depth": 2, "bytes_per_sample_hint": 2, "repeat_last": True},
            },
        }.items()
        for name, value in arguments.items()
    },
}


@pytest.mark.parametrize(("first", "second"), CALLS.values(), ids=CALLS)
def test_external_source_class_merges_its_arguments(first, second, raises):

    def program(dali):
        pipe = dali.Pipeline(3, 1, None)
        with pipe:
            nodes = dali.ops.ExternalSource(**first)(**second)
            pipe.set_outputs(*(nodes if isinstance(nodes, list) else [nodes]))
        return pipe.run()

    both(program, raises=raises)


def test_unknown_arguments():
    for call in (lambda dali: dali.fn.external_source(lambda: 1, foo=1), lambda dali: dali.ops.ExternalSource(foo=1)()):
        assert isinstance(ours_raises(call, KeyError, "unexpected argument 'foo'"), TypeError)
    for options in ({"num_outputs": 0}, {"num_outputs": -1}, {"device": "tpu"}):
        ours_raises(lambda dali, options=options: make_pipe(dali, lambda: full(1), **options), ValueError, "fn.external_source: ")


def test_checkpoints_know_only_sources_with_an_argument():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_pipe(ours, lambda number: full(number), more={"enable_checkpointing": True}).build()
    with pytest.warns(UserWarning, match="checkpoint does not hold the position of this source"):
        make_pipe(ours, lambda: full(1), more={"enable_checkpointing": True}).build()


def test_a_checkpoint_continues():
    def source(info):
        return np.int64([info.idx_in_epoch, info.iteration])

    pipe = make_pipe(ours, source, batch=False, more={"enable_checkpointing": True})
    for _ in range(2):
        pipe.run()
    again = make_pipe(ours, source, batch=False, more={"enable_checkpointing": True, "checkpoint": pipe.checkpoint()})
    for _ in range(2):
        np.testing.assert_array_equal(again.run()[0].as_array(), pipe.run()[0].as_array())


def test_pipelines_are_released():
    """Without the garbage collector: sources, nodes and memory go with the pipeline."""
    gc.disable()
    try:
        pipe = make_pipe(ours, lambda number: full(number))
        pipe.run()
        gone = weakref.ref(pipe)
        del pipe
        assert gone() is None
    finally:
        gc.enable()
