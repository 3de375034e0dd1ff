# SPDX-License-Identifier: Apache-2.0
"""Debug mode. Without a GPU DALI cannot run an operator in it, so the reference is the graph."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from torch_ndd.dali import fn, pipeline_def, types
from torch_ndd.dali.pipeline import experimental
from torch_ndd.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy
from torch_ndd.dali.tensors import TensorListCPU


def same(value: Any, other: Any) -> None:
    assert len(value) == len(other)
    for left, right in zip(value, other, strict=True):
        assert left.layout() == right.layout()
        assert [np.array(left.at(k)).tolist() for k in range(len(left))] == [np.array(right.at(k)).tolist() for k in range(len(right))]


def both(function: Any, runs: int = 3, **overrides: Any) -> None:
    options = {"batch_size": 5, "num_threads": 2, "seed": 3, **overrides}
    debug = experimental.pipeline_def(debug=True)(function)(**options)
    graph = pipeline_def(function)(**options)
    for _ in range(runs):
        same(debug.run(), graph.run())


def test_nodes_hold_data(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []

    @experimental.pipeline_def(debug=True, batch_size=3)
    def pipeline() -> Any:
        x = fn.external_source(source=lambda info: np.full((info.idx_in_batch + 1, 2), info.idx_in_epoch, np.int32), batch=False)
        y = x * 2 + 1
        seen.append([y.get().at(k).tolist() for k in range(3)])
        assert y.shape() == [(1, 2), (2, 2), (3, 2)]
        assert y.get().dtype is types.INT32
        print(y)
        if y.shape()[0][0] == 1:  # Python decides with the data
            y = -y
        return x, y

    pipe = pipeline()
    for k in range(2):
        _, y = pipe.run()
        assert [value[0][0] for value in seen[k]] == [2 * (3 * k + i) + 1 for i in range(3)]
        assert y.at(2).tolist() == [[-(2 * (3 * k + 2) + 1)] * 2] * 3
    printed = capsys.readouterr().out
    assert printed.count("DataNodeDebug") == 2
    assert "[5 5]" in printed
    assert "[11 11]" in printed
    assert len(seen) == 2


def test_random_numbers_are_those_of_the_graph_and_change() -> None:
    def numbers() -> Any:
        x = fn.random.uniform(range=[0, 1], shape=[2])
        a, b = fn.random.normal([x, x])
        return x, fn.random.coin_flip(), a, b, fn.random.uniform(range=[0, 1], seed=9)

    pipe = experimental.pipeline_def(debug=True)(numbers)(batch_size=4, seed=5)
    again = experimental.pipeline_def(debug=True)(numbers)(batch_size=4, seed=5)
    first, second = pipe.run(), pipe.run()
    same(first, again.run())
    assert first[0].as_array().tolist() != second[0].as_array().tolist()
    assert first[2].as_array().tolist() == first[3].as_array().tolist()


def test_same_as_the_graph() -> None:
    def definition() -> Any:
        a, b = fn.external_source(source=lambda k: (np.arange(10).reshape(5, 2) + k, np.full((5, 1), k)), num_outputs=2)
        image = fn.constant(idata=list(range(12)), shape=[2, 2, 3], dtype=types.UINT8, layout="HWC")
        return a + b, fn.flip(image, horizontal=1), fn.stack(a, a)[1, -1], fn.cast(a, dtype=types.FLOAT), 5

    both(definition)


def test_conditionals_work_in_debug_mode() -> None:
    def definition() -> Any:
        i = fn.external_source(source=lambda info: np.array(info.idx_in_batch, np.int32), batch=False)
        out = i
        if i > 2 and not (i == 4 or i == 1):
            out = i * 10
        elif i == 0:
            out = i - 5
        return out

    both(definition, enable_conditionals=True)


def test_empty_branches() -> None:
    def definition() -> Any:
        i = fn.external_source(source=lambda info: np.array(info.idx_in_batch, np.int32), batch=False)
        if i > 200:
            i = fn.stack(i, i)[0]
        return i

    both(definition, enable_conditionals=True)


def test_readers_go_on(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for k in range(7):
        Image.fromarray(np.full((4, 4, 3), k * 30, np.uint8)).save(tmp_path / "a" / f"{k}.png")

    def definition() -> Any:
        files, labels = fn.readers.file(file_root=str(tmp_path), random_shuffle=True, name="Reader")
        return fn.decoders.image(files), labels

    both(definition, runs=4)
    pipe = experimental.pipeline_def(debug=True)(definition)(batch_size=3)
    iterator = DALIGenericIterator(pipe, ["images", "labels"], reader_name="Reader", last_batch_policy=LastBatchPolicy.PARTIAL, auto_reset=True)
    assert [[len(batch[0]["images"]) for batch in iterator] for _ in range(2)] == [[3, 3, 1], [3, 3, 1]]


def test_end_of_data_and_reset() -> None:
    @experimental.pipeline_def(debug=True, batch_size=2)
    def pipeline() -> Any:
        def source(info: Any) -> Any:
            if info.iteration == 2:
                raise StopIteration
            return np.array(info.epoch_idx * 100 + info.idx_in_epoch)

        return fn.external_source(source=source, batch=False)

    pipe = pipeline()
    for epoch in range(2):
        assert [pipe.run()[0].as_array().tolist() for _ in range(2)] == [[100 * epoch + k, 100 * epoch + k + 1] for k in (0, 2)]
        for _ in range(2):
            with pytest.raises(StopIteration):
                pipe.run()
        pipe.reset()


def test_fed_inputs_work_in_debug_mode() -> None:
    @experimental.pipeline_def(debug=True, batch_size=4)
    def pipeline() -> Any:
        return fn.external_source(name="data") + 1

    pipe = pipeline()
    for k in range(3):
        pipe.feed_input("data", np.full((2, 3), k))
        assert pipe.run()[0].as_array().tolist() == [[k + 1] * 3] * 2
    with pytest.raises(KeyError, match="unknown"):
        pipe.feed_input("unknown", np.zeros((2, 3)))
    assert pipe.run(data=np.full((3, 1), 7))[0].as_array().tolist() == [[8]] * 3


def test_batches_of_other_sizes() -> None:
    sizes = [3, 1, 4]

    @experimental.pipeline_def(debug=True, batch_size=4)
    def pipeline() -> Any:
        x = fn.external_source(source=lambda k: np.zeros((sizes[k % 3], 2)))
        return x, fn.random.uniform(range=[0, 1]), fn.constant(idata=3)

    pipe = pipeline()
    assert [[len(output) for output in pipe.run()] for _ in range(3)] == [[size] * 3 for size in sizes]


def test_debug_mode_errors_name_the_operator() -> None:
    @experimental.pipeline_def(debug=True, batch_size=2)
    def fails() -> Any:
        x = fn.external_source(source=lambda k: np.zeros((2, 3), np.float32))
        return fn.reshape(x, shape=[7])

    with pytest.raises(RuntimeError, match=r"fn.reshape[\s\S]*return fn.reshape\(x, shape=\[7\]\)"):
        fails().run()

    calls: list[int] = []

    @experimental.pipeline_def(debug=True, batch_size=2)
    def changes() -> Any:
        calls.append(1)
        x = fn.constant(idata=3)
        return x + 1 if len(calls) == 1 else fn.cast(x, dtype=types.FLOAT)

    pipe = changes()
    pipe.run()
    with pytest.raises(RuntimeError, match=r"same operators in the same order.*fn\.cast instead of"):
        pipe.run()

    @experimental.pipeline_def(debug=True, batch_size=2)
    def raises() -> Any:
        raise LookupError("own error")

    with pytest.raises(LookupError, match="own error"):
        raises().run()
    with pytest.raises(RuntimeError, match="debug mode"):
        pipe.serialize()
    with pytest.raises(RuntimeError, match="debug mode"):
        pipe.checkpoint()
    with pytest.raises(ValueError, match="batch_size"):
        raises(batch_size=0).run()

    @experimental.pipeline_def(debug=True, batch_size=2)
    def clash() -> Any:
        return fn.external_source(source=lambda k: np.zeros((2, 1))), fn.external_source(source=lambda k: np.zeros((1, 1)))

    with pytest.raises(RuntimeError, match="Batch size clash"):
        clash().run()


def test_outputs_that_are_no_nodes() -> None:
    both(lambda: (3, 2.5, np.uint8([1, 2]), types.Constant([4])))
    with pytest.raises(TypeError, match="output 0 must be a DataNode"):
        experimental.pipeline_def(debug=True)(lambda: "text")(batch_size=2, num_threads=1).run()


def test_operators_take_data() -> None:
    """A list of arrays or tensors, one for each sample, and a tensor list, as input and as argument per sample."""
    images = [np.full((4 + k, 6, 3), 10 * k, np.uint8) for k in range(5)]
    angles = [np.array(15.0 * k, np.float32) for k in range(5)]

    def graph() -> Any:
        data = fn.external_source(source=lambda: images, batch=True)
        return fn.rotate(data, angle=fn.external_source(source=lambda: angles), fill_value=0), fn.cast(data, dtype=types.INT32)

    wanted = pipeline_def(graph)(batch_size=5, num_threads=2).run()
    as_list = TensorListCPU(images)
    for value, angle in (
        (images, angles),
        ([torch.from_numpy(k) for k in images], TensorListCPU(angles)),
        (as_list, [torch.tensor(k) for k in angles]),
    ):
        seen: list[Any] = []

        def overrides(data: Any = value, angle: Any = angle, seen: list[Any] = seen) -> Any:
            rotated = fn.rotate(data, angle=angle, fill_value=0)
            seen.append(rotated.get().shape())
            return rotated, fn.cast(data, dtype=types.INT32)

        pipe = experimental.pipeline_def(debug=True)(overrides)(batch_size=5, num_threads=2)
        for _ in range(2):
            same(pipe.run(), wanted)
        assert seen[0] == seen[1] == wanted[0].shape()


def test_given_data_has_the_size_of_the_batch() -> None:
    """Constants and random numbers follow it, and other sizes in one iteration are refused."""
    sizes = iter([3, 2, 5])

    @experimental.pipeline_def(debug=True, batch_size=4)
    def pipeline() -> Any:
        data = fn.cast([np.full(2, k, np.uint8) for k in range(next(sizes))], dtype=types.INT32)
        return data, fn.random.uniform(range=[0, 1]), data + fn.constant(idata=[7, 8])

    pipe = pipeline()
    for size in (3, 2):
        data, random, sums = pipe.run()
        assert len(data) == len(random) == len(sums) == size
        assert [sums.at(k).tolist() for k in range(size)] == [[k + 7, k + 8] for k in range(size)]
    with pytest.raises(RuntimeError, match="at most 4 samples"):
        pipe.run()

    def clash() -> Any:
        return fn.cat([np.zeros(1)] * 3, [np.zeros(1)] * 2)

    with pytest.raises(RuntimeError, match="Batch size clash"):
        experimental.pipeline_def(debug=True)(clash)(batch_size=4).run()


@pytest.mark.parametrize("batch", [True, False])
def test_parallel_sources_run_in_the_process(batch: bool) -> None:
    """They give what they give in a graph, without workers."""
    processes = set()

    def source(info: Any) -> Any:
        processes.add(os.getpid())
        return [np.full(2, info, np.int32)] * 3 if batch else np.full(2, info.idx_in_epoch, np.int32)

    @experimental.pipeline_def(debug=True, batch_size=3)
    def pipeline() -> Any:
        return fn.external_source(source=source, parallel=True, batch=batch)

    pipe = pipeline()
    results = [pipe.run()[0].as_array()[:, 0].tolist() for _ in range(2)]
    assert results == ([[0, 0, 0], [1, 1, 1]] if batch else [[0, 1, 2], [3, 4, 5]])
    assert processes == {os.getpid()}


def test_given_input_sets() -> None:
    """A list of tensor lists is one operator for each of them."""
    lists = [TensorListCPU([np.full((2,), k + 10 * j, np.float32) for k in range(3)]) for j in range(2)]

    @experimental.pipeline_def(debug=True, batch_size=3)
    def pipeline() -> Any:
        value, other = fn.noise.gaussian(lists, stddev=1.0)
        return value, other - 10

    item, other = pipeline().run()
    np.testing.assert_allclose(item.as_array(), other.as_array(), rtol=0, atol=1e-5)


def test_branches_take_no_data() -> None:
    """It would have samples of the other branch."""

    @experimental.pipeline_def(debug=True, enable_conditionals=True, batch_size=4)
    def pipeline() -> Any:
        value = fn.random.uniform(range=[0, 1])
        if fn.random.coin_flip(dtype=types.BOOL):
            result = fn.copy(value.get())
        else:
            result = value + 10
        return result

    with pytest.raises(ValueError, match=r"fn\.copy: with enable_conditionals=True"):
        pipeline().run()


def test_data_is_no_input_of_graphs() -> None:
    """Only debug mode takes it: the error names the operator."""
    with pytest.raises(TypeError, match=r"fn\.cast: input 0"):
        pipeline_def(lambda: fn.cast([np.zeros(1)] * 3, dtype=types.INT32))(batch_size=3)


def test_experimental_is_a_module() -> None:
    """Its import in the form of a module finds it, though ``pipeline`` is not a package."""
    line = "import torch_ndd.dali.pipeline.experimental as a; from torch_ndd.dali.pipeline import experimental as b; print(a is b)"
    result = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "True", result.stderr
