# SPDX-License-Identifier: Apache-2.0
"""Defining and building pipelines: pipeline_def, with blocks, subclasses, current pipelines, pruning, names, properties, files of graphs."""

import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from _pipelines import both, define, numbers, ours_raises, real, show
from _raises import raising

import torch_ndd.dali as ours

# pipeline_def.


def test_forms_of_the_decorator():
    """Bare, with arguments, with arguments at the call, which win; positional arguments of the function."""

    def program(dali):
        @dali.pipeline_def
        def bare(value, other=2):
            return dali.types.Constant([value, other])

        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None)
        def return_constant(value):
            return dali.types.Constant([value])

        return [
            bare(1, batch_size=3, num_threads=1, device_id=None).run(),
            bare(1, other=5, batch_size=1, num_threads=1, device_id=None).run(),
            return_constant(4).run(),
            return_constant(value=4, batch_size=5).max_batch_size,
            bare.__name__,
            bare._is_pipeline_def,
        ]

    both(program)


@pytest.mark.parametrize(
    "call",
    [
        "p(1)",
        raising(TypeError, "p(1, 2)"),
        raising(TypeError, "p()"),
        "p(nothing=1)",
        "p(1, nothing=1)",
        raising(TypeError, "p(1, batch_size='a')"),
        "p(1, num_threads=None, seed=-3)",
        raising(TypeError, "p(1, prefetch_queue_depth='a')"),
    ],
)
def test_wrong_calls_of_factories(call, raises):
    """Missing, unknown and wrong arguments."""

    def program(dali):
        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None)
        def p(value):
            return dali.types.Constant([value])

        return eval(call, {"p": p}).run()

    if "num_threads=None" in call:  # a default here, an error in DALI
        with pytest.warns(UserWarning, match="seed must not be negative"):
            assert numbers(program(ours)[0]) == [1, 1]
    elif "nothing" in call:  # DALI asserts
        ours_raises(program, TypeError, "nothing")
    else:
        both(program, raises=raises)


def test_a_definition_with_open_keywords():
    """**kwargs cannot be told from arguments of Pipeline."""

    def program(dali):
        @dali.pipeline_def
        def p(**kwargs):
            return dali.types.Constant([1])

        return p(batch_size=1)

    both(program, raises=TypeError)


def test_a_parameter_that_hides_one_of_the_pipeline(capsys):
    """It belongs to the function, and a line is printed."""

    def program(dali):
        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None)
        def p(batch_size):
            return dali.types.Constant([batch_size])

        return p(batch_size=7).run()

    both(program)
    assert "batch_size" in capsys.readouterr().out


def test_the_definition_runs_at_the_call():
    """Once, and errors of the definition come from it."""

    def program(dali):
        calls = []

        @dali.pipeline_def(batch_size=1, num_threads=1, device_id=None)
        def p():
            calls.append(dali.Pipeline.current() is not None)
            return dali.types.Constant([1])

        pipe = p()
        result = len(calls)
        pipe.build()
        pipe.build()
        pipe.run()
        return result, len(calls), calls, dali.Pipeline.current() is None

    both(program)


@pytest.mark.parametrize(
    "value",
    [
        "node",
        "(node,)",
        "(node, node)",
        raising(TypeError, "[node]"),
        raising(TypeError, "[node, node]"),
        "()",
        "None",
        raising(TypeError, "(node, 'a')"),
        raising(TypeError, "{'a': node}"),
        "3",
        "(node, [1, 2])",
    ],
)
def test_returned_values(value, raises):
    """A tuple is several outputs; a list is one, of numbers."""

    def program(dali):
        @dali.pipeline_def(batch_size=2, num_threads=1, device_id=None)
        def p():
            return eval(value, {"node": dali.types.Constant([1])})

        pipe = p()
        return len(pipe.run()), pipe.num_outputs

    if value in ("()", "None"):
        ours_raises(program, ValueError, "no outputs")
    else:
        both(program, raises=raises)


def test_do_not_convert_of_a_definition():
    """A pipeline definition cannot be marked."""

    def program(dali):
        @dali.pipeline.do_not_convert
        @dali.pipeline_def
        def p():
            return dali.types.Constant([1])

    both(program, raises=ValueError)


# Pipelines.


def test_with_blocks():
    """Nodes in a with block; later set_outputs replace earlier ones."""

    def program(dali):
        pipe = dali.Pipeline(2, 1, None)
        with pipe as entered:
            assert entered is pipe
            assert dali.Pipeline.current() is pipe
            a, b = dali.types.Constant([1]), dali.types.Constant([2])
            pipe.set_outputs(a)
            pipe.set_outputs(b, a)
        assert dali.Pipeline.current() is None
        return pipe.run()

    both(program)


def test_explicit_current_pipelines():
    """push_current and pop_current, nested, and per thread."""

    def program(dali):
        value, two = dali.Pipeline(1, 1, None), dali.Pipeline(1, 1, None)
        found = []
        with value:
            with two:
                found.append(dali.Pipeline.current() is two)
            found.append(dali.Pipeline.current() is value)
            thread = threading.Thread(target=lambda: found.append(dali.Pipeline.current() is None))
            thread.start()
            thread.join()
        dali.Pipeline.push_current(value)
        found.append(dali.Pipeline.current() is value)
        dali.Pipeline.pop_current()
        return [*found, dali.Pipeline.current() is None]

    assert all(both(program))


@pytest.mark.parametrize("returned", ["node", "(node, node)", "[node, node]", "[node]"])
def test_define_graph_of_a_subclass_is_called_once(returned):
    """define_graph is called once, at the first use, and may return a list."""

    def program(dali):
        class Own(dali.Pipeline):
            calls = 0

            def define_graph(self):
                self.calls += 1
                return eval(returned, {"node": dali.types.Constant([1])})

        pipe = Own(2, 1, None)
        before = pipe.calls
        pipe.build()
        pipe.build()
        return before, len(pipe.run()), pipe.calls

    both(program)


def test_nodes_without_a_pipeline():
    """They may be outputs of any pipeline, not with checkpoints."""

    def program(dali, **more):
        node = dali.fn.cast(dali.fn.constant(idata=[1, 2]), dtype=dali.types.FLOAT)
        pipe = dali.Pipeline(2, 1, None, **more)
        pipe.set_outputs(node, node + 1)
        return pipe.run()

    both(program)
    both(lambda dali: program(dali, enable_checkpointing=True), raises=RuntimeError)


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            raising(ValueError, {}),
            raising(ValueError, {"batch_size": 0}),
            raising(ValueError, {"batch_size": 2, "num_threads": 0}),
            raising(ValueError, {"batch_size": 2, "prefetch_queue_depth": 0}),
            raising(ValueError, {"batch_size": -1}),
        ),
        *(
            raising(TypeError, {"batch_size": 2, "prefetch_queue_depth": "a"}),
            raising(ValueError, {"batch_size": 2, "py_start_method": "fork", "py_callback_pickler": object()}),
        ),
    ],
    ids=show,
)
def test_wrong_constructors(arguments, raises):
    """Sizes are checked when the pipeline is built."""

    def program(dali):
        pipe = dali.Pipeline(**{"num_threads": 1, "device_id": None, **arguments})
        pipe.set_outputs(dali.types.Constant([1]))
        pipe.build()

    both(program, raises=raises)


@pytest.mark.parametrize("depth", [{"cpu_size": 3}, {"cpu_size": 1.5, "gpu_size": 2}, {"cpu_size": "a", "gpu_size": 2}], ids=str)
def test_depths_by_device_are_two_ints(depth):
    with pytest.raises(TypeError, match=f"Pipeline: prefetch_queue_depth must be an int or a dict with cpu_size and gpu_size, got {depth}"):
        ours.Pipeline(2, 1, None, prefetch_queue_depth=depth)


def test_nothing_defined():
    """Without a graph there is nothing to build."""
    both(lambda dali: dali.Pipeline(2, 1, None).build(), raises=NotImplementedError)


def test_constructor_arguments_are_read_back():
    """What was given is read back."""
    names = (
        *("max_batch_size", "num_threads", "device_id", "seed", "exec_pipelined", "exec_async", "exec_dynamic", "exec_separated"),
        *("prefetch_queue_depth", "cpu_queue_size", "gpu_queue_size", "set_affinity", "max_streams", "default_cuda_stream_priority"),
        *("enable_memory_stats", "py_num_workers", "py_start_method", "is_restored_from_checkpoint", "stream_policy", "concurrency"),
    )

    def program(dali, **arguments):
        pipe = dali.Pipeline(3, 2, None, **arguments)
        return [[name, getattr(pipe, name)] for name in names]

    both(lambda dali: program(dali))
    both(lambda dali: program(dali, seed=5, prefetch_queue_depth=3, py_num_workers=4, py_start_method="spawn", exec_dynamic=False))
    both(lambda dali: program(dali, exec_pipelined=False, exec_async=False, exec_dynamic=False, set_affinity=True))
    both(lambda dali: program(dali, prefetch_queue_depth={"cpu_size": 2, "gpu_size": 4}))


def test_warnings_of_the_constructor():
    """Deprecated arguments and negative seeds."""
    for arguments in ({"max_streams": 2}, {"default_cuda_stream_priority": 1}, {"seed": -1}):
        with pytest.warns(Warning, match=next(iter(arguments))):
            ours.Pipeline(2, 1, **arguments)
    with pytest.warns(DeprecationWarning, match="max_batch_size"):
        assert ours.Pipeline(2, 1).batch_size == 2


def test_pipelines_have_no_length():
    """They are not sequences."""
    both(lambda dali: len(dali.Pipeline(2, 1, None)), raises=TypeError)
    both(lambda dali: iter(dali.Pipeline(2, 1, None)), raises=TypeError)


# Building.


def test_unused_operators_are_pruned():
    """What no output needs does not run; preserve and add_sink keep it."""

    def program(dali):
        calls = []

        def source(name):
            return lambda: calls.append(name) or np.zeros((1, 1))

        pipe = dali.Pipeline(1, 1, None, prefetch_queue_depth=1)
        with pipe:
            dali.fn.external_source(source("pruned"))
            used = dali.fn.external_source(source("used"))
            if dali is ours:  # DALI does not find the sources below
                dali.fn.copy(dali.fn.external_source(source("preserved")), preserve=True)
                pipe.add_sink(dali.fn.external_source(source("sunk")) + 1)
            pipe.set_outputs(used)
        pipe.run()
        return sorted(calls)

    assert program(ours) == ["preserved", "sunk", "used"]
    assert program(real()) == ["used"]


def test_two_operators_of_one_name_are_refused():
    """Two operators of one name cannot be built."""

    def program(dali):
        pipe = dali.Pipeline(1, 1, None)
        with pipe:
            pipe.set_outputs(dali.fn.random.uniform(name="a"), dali.fn.random.uniform(name="a"))
        pipe.build()

    both(program, raises=RuntimeError)


def test_missing_arguments():
    """A missing required argument is an error when the pipeline is built."""

    def program(dali):
        pipe = dali.Pipeline(1, 1, None)
        with pipe:
            pipe.set_outputs(dali.fn.cast([1]))
        pipe.build()

    both(program, raises=RuntimeError)


def test_files_of_graphs(tmp_path):
    """Every operator and edge is in the file."""
    pipe = ours.Pipeline(1, 1)
    with pipe:
        image = ours.fn.zeros(shape=[4, 4, 3], name="zeros")
        pipe.set_outputs(ours.fn.rotate(image, angle=ours.fn.random.uniform(name="draw"), name="turn"))
    for options in ({}, {"show_tensors": True, "use_colors": True}):
        pipe.save_graph_to_dot_file(str(tmp_path / "graph.dot"), **options)
        text = (tmp_path / "graph.dot").read_text()
        assert text.startswith("digraph")
        assert all(f'"{name}"' in text for name in ("zeros", "draw", "turn"))
        assert '[label="angle"]' in text
    moved = ours.Pipeline(1, 1)
    with moved:
        moved.set_outputs(ours.fn.zeros(shape=[2], name="zeros").gpu())
    moved.save_graph_to_dot_file(tmp_path / "moved.dot", show_tensors=True)
    text = (tmp_path / "moved.dot").read_text()
    assert text.count("shape=ellipse, label") == 2
    assert '"zeros (0)" -> "__Copy_0"' in text
    assert '"__Copy_0 (0)" -> "output 0"' in text
    pipe.save_graph_to_dot_file(tmp_path / "plain.dot")
    assert '"zeros" -> "turn"' in (tmp_path / "plain.dot").read_text()


def test_without_a_gpu():
    """mixed and gpu mean cpu, with one warning in a process; names of devices stay."""
    program = """
import warnings
import numpy as np, torch
assert not torch.cuda.is_available()
from torch_ndd.dali import fn, pipeline_def, types
@pipeline_def(batch_size=2, num_threads=1, device_id=0)
def p():
    node = fn.brightness(types.Constant(np.ones((2, 2, 3), np.uint8), layout="HWC").gpu(), brightness=3.0)
    assert node.device == "gpu" and node.gpu() is node
    return node, node.cpu()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        a, b = p().run()
print(len([one for one in caught if "no GPU" in str(one.message)]), a.as_cpu().as_array().max(), b.as_array().max())
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**__import__("os").environ, "CUDA_VISIBLE_DEVICES": ""}, check=False
    )
    assert result.stdout.split() == ["1", "3", "3"], result.stderr


def test_importing_is_lazy():
    """torch_ndd does not import the layer, and offers it."""
    program = (
        "import sys, torch_ndd; assert not any(name.startswith('torch_ndd.dali') for name in sys.modules); print(torch_ndd.dali.fn.resize.__name__)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "resize", result.stderr


def test_no_warnings():
    """An ordinary pipeline warns of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.pipeline_def(lambda: ours.fn.resize(ours.fn.zeros(shape=[4, 4, 3]), size=[2, 2]))(batch_size=2, num_threads=1).run()


def test_definitions_are_not_marked_with_do_not_convert():
    def program(dali):
        @dali.pipeline_def(batch_size=1, num_threads=1, device_id=None)
        @dali.pipeline.do_not_convert
        def return_number():
            return 42

        return return_number

    assert "do_not_convert" in str(both(program, raises=ValueError))


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("nested", [lambda node: [node], lambda node: ([node],), lambda node: [node, node], lambda node: (node, (1, [node]))])
def test_a_list_is_one_output_so_that_it_must_not_contain_nodes(nested, conditional):
    def program(dali):
        return define(dali, lambda: nested(dali.fn.random.uniform(range=[0, 1])), enable_conditionals=conditional).run()

    error = both(program, raises=TypeError)
    assert "it contains a DataNode; pass the nodes themselves" in str(error)


def test_a_list_among_the_outputs_must_not_contain_nodes():
    def program(dali):
        pipe = dali.Pipeline(3, 1, None)
        with pipe:
            pipe.set_outputs([dali.fn.random.uniform(range=[0, 1])])
        pipe.build()

    both(program, raises=TypeError)
