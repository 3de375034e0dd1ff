# SPDX-License-Identifier: Apache-2.0
"""Python functions as operators against DALI: per sample and batched, outputs, layouts, errors; torch functions."""

import gc
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from _pipelines import both, ours_raises, plain, show
from _raises import raising
from torch.utils.dlpack import from_dlpack, to_dlpack

import torch_ndd.dali as ours
from torch_ndd.dali.plugin.pytorch import TorchPythonFunction
from torch_ndd.dali.plugin.pytorch.fn import torch_python_function


@pytest.fixture(autouse=True)
def without_collections() -> Iterator[None]:
    """Collect no garbage: a pipeline of DALI that an earlier test left in a cycle fails to end on DALI's threads, which call the functions."""
    gc.disable()
    yield
    gc.enable()


def source(number):
    return [np.full(k + 1, 10 * number + k, np.float32) for k in range(3)]


def run(dali, define, count=1):
    """Return the outputs of a pipeline of ``define(fn, ops, node)``."""
    pipe = dali.Pipeline(3, 1, None)
    with pipe:
        result = define(dali, dali.fn.external_source(source))
        pipe.set_outputs(*(result if isinstance(result, list | tuple) else [result]))
    return [plain(pipe.run()) for _ in range(count)]


def more_capsules(many):
    return [to_dlpack(from_dlpack(value) + 1) for value in many]


PROGRAMS = {
    "one": lambda d, x: d.fn.python_function(x, function=lambda a: a * 2),
    "two outputs": lambda d, x: d.fn.python_function(x, function=lambda a: (a, a.astype(np.uint8)), num_outputs=2),
    "two outputs as a list": raising(RuntimeError, lambda d, x: d.fn.python_function(x, function=lambda a: [a, a], num_outputs=2)),
    "two outputs of three": raising(RuntimeError, lambda d, x: d.fn.python_function(x, function=lambda a: (a, a, a), num_outputs=2)),
    "a tuple of one": lambda d, x: d.fn.python_function(x, function=lambda a: (a,)),
    "two inputs": lambda d, x: d.fn.python_function(x, x + 1, function=lambda a, b: a + b),
    "a constant": lambda d, x: d.fn.python_function(x, np.float32([1]), function=lambda a, b: a + b),
    "a number": lambda d, x: d.fn.python_function(x, 5, function=lambda a, b: a + b),
    "no output": lambda d, x: [x, *d.fn.python_function(x, function=lambda a: None, num_outputs=0)],
    "no input": lambda d, x: [x, d.fn.python_function(function=lambda: np.float32([1]))],
    "no input, batched": lambda d, x: [x, d.fn.python_function(function=lambda: [np.float32([1])] * 3, batch_processing=True)],
    "batched": lambda d, x: d.fn.python_function(x, function=lambda many: [a + 1 for a in many], batch_processing=True),
    "batched tuple": raising(RuntimeError, lambda d, x: d.fn.python_function(x, function=tuple, batch_processing=True)),
    "batched, two outputs": lambda d, x: d.fn.python_function(x, function=lambda many: (many, many[::-1]), batch_processing=True, num_outputs=2),
    "batched, too few": raising(RuntimeError, lambda d, x: d.fn.python_function(x, function=lambda many: many[:2], batch_processing=True)),
    "batched, too many": raising(RuntimeError, lambda d, x: d.fn.python_function(x, function=lambda many: many + many, batch_processing=True)),
    "types": raising(RuntimeError, lambda d, x: d.fn.python_function(x, function=lambda a: a if len(a) < 2 else a.astype(np.uint8))),
    "dimensions": raising(RuntimeError, lambda d, x: d.fn.python_function(x, function=lambda a: a if len(a) < 2 else a[None])),
    "in place": lambda d, x: d.fn.python_function(x, function=lambda a: (a.__iadd__(100), a)[1]),
    "layout": lambda d, x: d.fn.python_function(x, function=lambda a: a, output_layouts="A"),
    "layouts": lambda d, x: d.fn.python_function(x, function=lambda a: (a, a), num_outputs=2, output_layouts=["A", "B"]),
    "fewer layouts": lambda d, x: d.fn.python_function(x, function=lambda a: (a, a), num_outputs=2, output_layouts=["A"]),
    "one layout for two": lambda d, x: d.fn.python_function(x, function=lambda a: (a, a), num_outputs=2, output_layouts="A"),
    "more layouts": raising(RuntimeError, lambda d, x: d.fn.python_function(x, function=lambda a: a, output_layouts=["A", "B"])),
    "a long layout": raising(ValueError, lambda d, x: d.fn.python_function(x, function=lambda a: a, output_layouts="AB")),
    "an error": raising(RuntimeError, lambda d, x: d.fn.python_function(x, function=lambda a: 1 // 0)),
    "StopIteration": raising(RuntimeError, lambda d, x: d.fn.python_function(x, function=lambda a: next(iter(())))),
    "a KeyError": raising(RuntimeError, lambda d, x: d.fn.python_function(x, function=lambda a: {}["q"])),
    "wrong arguments": raising(RuntimeError, lambda d, x: d.fn.python_function(x, function=lambda: np.float32([1]))),
    "no function": raising(TypeError, lambda d, x: d.fn.python_function(x)),
    "an unknown argument": raising(KeyError, lambda d, x: d.fn.python_function(x, function=lambda a: a, foo=1)),
    "an unknown device": raising(ValueError, lambda d, x: d.fn.python_function(x, function=lambda a: a, device="tpu")),
    "input sets": raising(TypeError, lambda d, x: d.fn.python_function([x, x], function=lambda a: a)),
    "text": raising(TypeError, lambda d, x: d.fn.python_function("a", function=lambda a: a)),
    "class": lambda d, x: d.ops.PythonFunction(function=lambda a: a + 1)(x),
    "class with outputs": lambda d, x: d.ops.PythonFunction(lambda a: (a, a), 2, output_layouts="A")(x),
    "class, layout in the call": lambda d, x: d.ops.PythonFunction(lambda a: a)(x, output_layouts="A"),
    "class, layout twice": raising(ValueError, lambda d, x: d.ops.PythonFunction(lambda a: a, output_layouts="A")(x, output_layouts="A")),
    "capsules": lambda d, x: d.fn.dl_tensor_python_function(
        x, function=lambda many: [to_dlpack(from_dlpack(a) + 1) for a in many], batch_processing=True
    ),
    "capsules by default": lambda d, x: d.fn.dl_tensor_python_function(x, function=more_capsules),
    "capsules per sample": lambda d, x: d.fn.dl_tensor_python_function(x, function=lambda a: to_dlpack(from_dlpack(a) + 1), batch_processing=False),
    "no capsules": raising(RuntimeError, lambda d, x: d.fn.dl_tensor_python_function(x, function=lambda a: 3, batch_processing=False)),
    "class of capsules": lambda d, x: d.ops.DLTensorPythonFunction(more_capsules)(x),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_python_functions_equal_dali(program, raises):
    both(lambda dali: run(dali, program), raises=raises)


@pytest.mark.parametrize(
    "value",
    [
        *(
            raising(RuntimeError, 3),
            raising(RuntimeError, 2.0),
            raising(RuntimeError, np.float32(3)),
            raising(RuntimeError, None),
            raising(RuntimeError, [1.0]),
            np.array(3.0, np.float32),
            raising(RuntimeError, "a"),
            np.zeros(2),
            np.array([True]),
            np.arange(6, dtype=np.float32)[::2],
        ),
        *(np.frombuffer(b"abc", np.uint8), np.zeros(0, np.float32)),
    ],
    ids=show,
)
def test_results_of_python_functions_are_checked_like_dali(value, raises):
    both(lambda dali: run(dali, lambda d, x: d.fn.python_function(x, function=lambda a: value)), raises=raises)


def test_order_and_effects():
    """Functions without outputs and unused ones run too, sample by sample."""

    def program(dali):
        seen, unused = [], []

        def define(d, x):
            d.fn.python_function(x, function=lambda a: seen.append(a.tolist()), num_outputs=0)
            d.fn.python_function(x, function=lambda a: (unused.append(float(a[0])), a)[1])
            return x

        outputs = run(dali, define, 2)
        return [outputs, seen[:6], unused[:6]]

    both(program)


def test_a_pipeline_is_needed():
    both(lambda dali: dali.fn.python_function(function=lambda: np.zeros(1)), raises=RuntimeError)


def test_the_error_has_the_traceback():
    def bad(a):
        raise LookupError("nothing there")

    error = ours_raises(lambda dali: run(dali, lambda d, x: d.fn.python_function(x, function=bad)), RuntimeError, "nothing there")
    for part in ("fn.python_function", "in bad", 'raise LookupError("nothing there")', "d.fn.python_function(x, function=bad)"):
        assert part in str(error)
    error = ours_raises(lambda dali: run(dali, lambda d, x: d.fn.python_function(x, function=lambda a: None)), RuntimeError, "got None for sample 0")
    ours_raises(
        lambda dali: run(dali, lambda d, x: d.fn.python_function(x, function=lambda a: (a, a))), RuntimeError, "returned 2 outputs for sample 0"
    )


def test_what_dali_refuses():
    """A batched function may return one array, and a function without outputs must return None, on which DALI crashes."""
    whole = np.arange(6, dtype=np.float32).reshape(3, 2)
    (outputs,) = run(ours, lambda d, x: d.fn.python_function(x, function=lambda many: whole, batch_processing=True))
    np.testing.assert_array_equal(outputs[0]["samples"], whole)

    def define(d, x):
        d.fn.python_function(x, function=lambda a: a, num_outputs=0)
        return x

    ours_raises(lambda dali: run(dali, define), RuntimeError, "num_outputs=0: it must return None")
    for options in ({"function": 3}, {"function": abs, "num_outputs": 1.5}):
        ours_raises(lambda dali, options=options: run(dali, lambda d, x: d.fn.python_function(x, **options)), TypeError, "fn.python_function: ")
    ours_raises(lambda dali: run(dali, lambda d, x: d.fn.python_function(x, function=abs, num_outputs=-1)), ValueError, "must not be negative")


def test_results_are_copied():
    """The function may use its memory again."""
    memory = np.zeros(2, np.float32)

    def function(a):
        memory[:] = a[0]
        return memory

    first, second = run(ours, lambda d, x: d.fn.python_function(x, function=lambda many: [memory + a[0] for a in many], batch_processing=True), 2)
    assert [value.tolist() for value in first[0]["samples"]] == [[0, 0], [1, 1], [2, 2]]
    outputs = run(ours, lambda d, x: d.fn.python_function(x[:1], function=lambda many: [function(many[-1])] * 3, batch_processing=True), 2)
    assert [output[0]["samples"][0].tolist() for output in outputs] == [[2, 2], [12, 12]]
    assert [value.tolist() for value in second[0]["samples"]] == [[10, 10], [11, 11], [12, 12]]


def test_the_program_goes_on_meanwhile():
    """The function of the second iteration waits; the first one is delivered."""
    go = threading.Event()
    calls = []

    def function(many):
        calls.append(time.monotonic())
        assert len(calls) < 2 or go.wait(30)
        return many

    pipe = ours.Pipeline(3, 1, prefetch_queue_depth=2)
    with pipe:
        pipe.set_outputs(ours.fn.python_function(ours.fn.external_source(source), function=function, batch_processing=True))
    assert pipe.run()[0].at(1).tolist() == [1, 1]
    go.set()
    assert pipe.run()[0].at(1).tolist() == [11, 11]


# torch. DALI needs a GPU for it, on the CPU too.


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("form", ["function", "class"])
def test_torch_functions(form, batched):
    def per_sample(a):
        assert isinstance(a, torch.Tensor)
        return a * 2, a.to(torch.uint8)[:1]

    def per_batch(many):
        parts = [per_sample(value) for value in many]
        return [value for value, _ in parts], [other for _, other in parts]

    options = {"num_outputs": 2, "batch_processing": batched, "output_layouts": ["A", "B"]}
    function = per_batch if batched else per_sample

    def define(d, x):
        if form == "function":
            return torch_python_function(x, function=function, **options)
        return TorchPythonFunction(function, **options)(x)

    ((doubled, firsts),) = run(ours, define)
    assert [value.tolist() for value in doubled["samples"]] == [[0], [2, 2], [4, 4, 4]]
    assert (doubled["layout"], firsts["layout"], firsts["samples"][2].tolist()) == ("A", "B", [2])


def test_errors_of_torch_functions():
    ours_raises(lambda d: run(d, lambda d, x: torch_python_function(x, function=lambda a: a.numpy())), RuntimeError, "must have torch tensors")
    ours_raises(lambda d: run(d, lambda d, x: torch_python_function(x, function=lambda a: a.requires_grad_())), RuntimeError, "detach")


def test_python_function_sees_the_samples_of_its_branch():
    """In a branch a function sees its own samples only."""
    seen = []

    def function(a):
        seen.append(int(a))
        return np.asarray(a + 100)

    @ours.pipeline_def(batch_size=6, num_threads=1, enable_conditionals=True)
    def define():
        number = ours.fn.external_source(lambda info: np.int32(info.idx_in_epoch), batch=False)
        if number % 2 == 1:
            result = ours.fn.python_function(number, function=function)
        else:
            result = number
        return result

    assert define().run()[0].as_array().tolist() == [0, 101, 2, 103, 4, 105]
    assert seen[:3] == [1, 3, 5]
