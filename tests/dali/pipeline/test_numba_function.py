# SPDX-License-Identifier: Apache-2.0
"""plugin.numba's numba_function against DALI: shapes from inputs and from setup_fn, several outputs, batches."""

import sys

import numpy as np
import pytest
from _pipelines import both, ours_raises, plain, sub

import torch_ndd.dali as ours

pytest.importorskip("numba")
pytestmark = pytest.mark.slow


def double(out, values):
    out[:] = 2 * values


def double_all(outs, many):
    for out, values in zip(outs, many):  # noqa: B905  # Numba knows no strict=
        out[:] = 2 * values


def transpose(out, values):
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            out[j, i] = values[i, j]


def turned_shapes(outs, ins):
    for k in range(len(outs[0])):
        outs[0][k][0] = ins[0][k][1]
        outs[0][k][1] = ins[0][k][0]


def sum_and_difference(first, second, a, b):
    first[:] = a + b
    second[:] = a - b


def run(dali, run_fn, count=1, outputs=1, form="function", **options):
    result = sub(dali, "plugin.numba")
    pipe = dali.Pipeline(2, 1, None)
    with pipe:
        data = dali.fn.external_source(lambda number: [np.arange(6, dtype=np.float32).reshape(2, 3) + number, np.ones((3, 1), np.float32)])
        values = {
            "out_types": [dali.types.FLOAT] * outputs,
            "in_types": [dali.types.FLOAT] * count,
            "outs_ndim": [2] * outputs,
            "ins_ndim": [2] * count,
        }
        values = {**values, **options}
        if form.endswith("function"):
            module = result.fn if form == "function" else result.fn.experimental
            nodes = module.numba_function(*[data] * count, run_fn=run_fn, **values)
        else:
            module = result if form == "class" else sub(dali, "plugin.numba.experimental")
            nodes = module.NumbaFunction(run_fn=run_fn, **values)(*[data] * count)
        pipe.set_outputs(*(nodes if isinstance(nodes, list | tuple) else [nodes]))
    return [plain(pipe.run()) for _ in range(2)]


@pytest.mark.parametrize("form", ["function", "class", "experimental function", "experimental class"])
def test_shapes_of_the_inputs(form):
    both(lambda dali: run(dali, double, form=form))


def test_shapes_of_a_function():
    both(lambda dali: run(dali, transpose, setup_fn=turned_shapes))


def test_several_outputs():
    both(lambda dali: run(dali, sum_and_difference, count=2, outputs=2))


def test_batch_processing_passes_lists():
    (first,), _ = run(ours, double_all, batch_processing=True)
    np.testing.assert_array_equal(first["samples"][0], 2 * np.arange(6, dtype=np.float32).reshape(2, 3))
    np.testing.assert_array_equal(first["samples"][1], np.full((3, 1), 2))


def test_invalid_numba_arguments_raise():
    ours_raises(lambda dali: run(dali, double, in_types=[dali.types.INT32]), RuntimeError, "expected")
    ours_raises(lambda dali: run(dali, double, outs_ndim=[1]), ValueError, "without setup_fn")
    ours_raises(lambda dali: run(dali, double, device="gpu"), ValueError, "GPU kernels of Numba are not supported")


def test_without_numba(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    for name in [name for name in sys.modules if name.startswith("torch_ndd.dali.plugin.numba")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match="needs the package numba: pip install numba"):
        __import__("torch_ndd.dali.plugin.numba")
