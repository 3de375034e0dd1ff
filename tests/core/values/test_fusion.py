# SPDX-License-Identifier: Apache-2.0
"""Chains of arithmetic on large operands run in one pass: bitwise equal results, equal errors, and nothing that is still needed is skipped."""

import gc
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from _forks import run_in_child
from _threads import run_in_threads

import torch_ndd as ndd
from torch_ndd import EvalMode
from torch_ndd._core import native

SHAPES = [[(400, 500, 3)] * 4, [(400, 500, 3), (1, 1, 3), (501, 333, 3), (7, 900, 3)]]
each_shape = pytest.mark.parametrize("shapes", SHAPES, ids=["dense", "ragged"])
each_mode = pytest.mark.parametrize("mode", [EvalMode.deferred, EvalMode.eager])


def data(shapes: list[tuple[int, ...]], dtype: str = "uint8", seed: int = 0) -> ndd.Batch:
    generator = np.random.default_rng(seed)
    return ndd.batch([generator.integers(0, 256, shape).astype(dtype) for shape in shapes], layout="HWC").evaluate()


def count_fused(value: Any) -> int:
    """Return which operands the value's call computes itself; 0 if it is already done."""
    return 0 if value.pending is None else native.fused(value.pending.handle)


@pytest.fixture
def defer_work() -> Iterator[None]:
    """Nothing starts before the test waits for it."""
    with EvalMode.deferred:
        yield


CHAINS: dict[str, Callable[[Any, Any], Any]] = {
    "scale and shift": lambda x, y: x * 0.5 + 3,
    "wrapping bytes": lambda x, y: (x * x - y) / 7,
    "16-bit floats": lambda x, y: (x * np.float16(0.1) + np.float16(3)) * 0.5,
    "bits": lambda x, y: ((x ^ y) & 15) << 2 | (~x >> 3),
    "comparison": lambda x, y: (x * 2 > y + 1) & (x != 7),
    "channels": lambda x, y: (x - [124, 116, 104]) / [58.0, 57.0, 57.5],
    "one expression twice": lambda x, y: (x - y) * (x - y),
    "one result twice": lambda x, y: (lambda d: d * d + d)(x - y),
    "long": lambda x, y: ((((((((((x + 1) * 2 - y) / 3 + x) * 0.5 - 1) * y + 2) / 5 - x) * 2 + 1) - y) * 3) + x) * 0.25,
    "limits and roots": lambda x, y: ndd.math.sqrt(ndd.math.clamp(abs(x * 1.0 - y), 1, 100)),
    "division": lambda x, y: ((x + 1) // ((y % 7) + 1)) * 3 - 1,
    "slow functions": lambda x, y: ndd.math.exp(x / 256) * 2 + ndd.math.fpow(y + 1, 0.3),
    "wide integers": lambda x, y: (x + np.int64(2**40)) * y - np.uint64(5),
}


@pytest.mark.parametrize("chain", CHAINS)
@each_mode
@each_shape
def test_fused_chain_equals_single_operations(chain: str, mode: EvalMode, shapes: list[tuple[int, ...]]) -> None:
    x, y = data(shapes), data(shapes, seed=1)
    with EvalMode.sync_full:
        expected = CHAINS[chain](x, y)
    for _ in range(3):
        with mode:
            output = CHAINS[chain](x, y)
        assert output.layout == "HWC"
        for ours, theirs in zip(output.tensors, expected.tensors, strict=True):
            assert ours.dtype is theirs.dtype
            np.testing.assert_array_equal(np.asarray(ours).view(np.uint8), np.asarray(theirs).view(np.uint8))


@pytest.mark.usefixtures("defer_work")
def test_fused_operands() -> None:
    x, small = data(SHAPES[0]), data([(3, 3, 3)])
    y = x * 0.5
    z = y + 3
    assert count_fused(y) == 0
    assert count_fused(z) == 1
    assert count_fused(1 - (z / 2)) == 1
    assert count_fused(y * z) == 3
    assert count_fused(ndd.as_batch(y, layout="CWH") + 1) == 1  # the same elements under another layout
    assert count_fused((small + 1) * 2) == 0  # one pass costs nothing
    assert count_fused((x // 3) + 1) == 0  # may fail
    assert count_fused(ndd.math.exp(y) + 1) == 0  # must not be computed twice
    assert count_fused(ndd.math.exp(y)) == 1
    first = y.tensors[0]
    assert count_fused(z + first) == 1  # one sample for all
    assert count_fused((x.tensors[0] * 2) + x) == 0
    assert count_fused(z) == 1
    for value, expected in ((z + first, x * 0.5 + 3 + x.tensors[0] * 0.5), (1 - z / 2, 1 - (x * 0.5 + 3) / 2)):
        with EvalMode.sync_full:
            assert torch.equal(value.torch(), expected.torch())


@pytest.mark.usefixtures("defer_work")
def test_fused_program_has_a_maximum_length() -> None:
    value = data(SHAPES[0]) + 1
    lengths = [1]
    for _ in range(20):
        value = value + 1
        lengths.append(lengths[-1] + 1 if count_fused(value) else 1)
    assert max(lengths) == 8
    assert torch.equal(value.torch(), data(SHAPES[0]).torch().int() + 21)


@each_mode
def test_intermediate_result_that_the_program_keeps(mode: EvalMode) -> None:
    x = data(SHAPES[0])
    reference = x.torch().float()
    for _ in range(10):
        with mode:
            y = x * 0.5
            z = y + 3
            w = z * y
        assert torch.equal(w.torch(), (reference * 0.5 + 3) * (reference * 0.5))
        assert torch.equal(y.torch(), reference * 0.5)
        assert torch.equal(z.torch(), reference * 0.5 + 3)


@each_mode
def test_other_operators_read_an_intermediate_result(mode: EvalMode) -> None:
    x = data(SHAPES[0])
    with mode:
        y = x * 0.5
        flipped = ndd.flip(y, horizontal=1)
        z = y + 3
        del y
    assert torch.equal(flipped.torch(), (x.torch() * 0.5).flip(2))
    assert torch.equal(z.torch(), x.torch() * 0.5 + 3)


def test_results_that_are_never_waited_for() -> None:
    """Operands are dropped before, while or after they are computed."""
    x = data(SHAPES[0])
    for _ in range(100):
        z = ((x * 0.5 + 3) * 2 - x) / 7
    assert torch.equal(z.torch(), ((x.torch() * 0.5 + 3) * 2 - x.torch()) / 7)


@each_mode
def test_inputs_may_be_overwritten_when_a_result_has_been_waited_for(mode: EvalMode) -> None:
    """As without fusion: inputs are read by the time the result is there, also by later calls."""
    x = data(SHAPES[0])
    for k in range(20):
        before = x.torch().clone()
        with mode:
            y = x * 0.5
            z = y + k
            y.evaluate()
        x.torch().fill_(k)
        assert torch.equal(y.torch(), before * 0.5)
        assert torch.equal(z.torch(), before * 0.5 + k)


@each_mode
def test_dropped_operands_are_not_computed(mode: EvalMode) -> None:
    chain = data(SHAPES[0])
    reference = chain.torch().clone()
    with mode:
        chain = chain * 0.5
        chain = chain + 3
    gc.collect()
    torch.full((4, 400, 500, 3), 7, dtype=torch.uint8)  # reuses the memory of the bytes
    assert torch.equal(chain.torch(), reference * 0.5 + 3)


@each_mode
def test_errors_of_inputs_of_an_intermediate_result(mode: EvalMode) -> None:
    x = data(SHAPES[0])
    with mode:
        broken = x // 0
        y = broken * 0.5
        z = y + 3
        del y, broken
    with pytest.raises(ValueError, match="Integer division") as error:
        z.evaluate()
    cause = error.value.__cause__
    assert "Integer division by zero" in str(cause)
    lines = [frame.line for frame in traceback.extract_tb(cause.__traceback__)]
    assert lines[-1] == "broken = x // 0"
    with pytest.raises(ValueError, match="called at"):
        z.torch()


@each_mode
def test_errors_of_the_last_step(mode: EvalMode) -> None:
    x = data(SHAPES[0])
    with mode:
        y = x & 0
        z = (x + 1) % y
    with pytest.raises(ValueError, match="called at") as error:
        z.evaluate()
    assert "sample_idx=0" in str(error.value)
    assert torch.equal(y.torch(), torch.zeros_like(x.torch()).int())


@each_mode
def test_fused_chain_waits_for_results_of_other_operators(mode: EvalMode) -> None:
    x = data(SHAPES[1])
    with mode:
        output = (ndd.cast(ndd.flip(x, horizontal=1), dtype=torch.float32) - 100) / 3 + ndd.flip(x, horizontal=1)
    for sample, other in zip(output.tensors, x.tensors, strict=True):
        flipped = other.torch().flip(1).float()
        assert torch.equal(sample.torch(), (flipped - 100) / 3 + flipped)


def test_several_python_threads() -> None:
    x, y = data(SHAPES[0]), data(SHAPES[0], seed=1)
    reference = {name: CHAINS[name](x, y).torch().clone() for name in ("scale and shift", "channels", "long", "one result twice")}
    shared = x * 0.5

    def run(number: int) -> None:
        for turn in range(8):
            with (EvalMode.eager, EvalMode.deferred)[turn % 2]:
                for name, expected in reference.items():
                    output = CHAINS[name](x, y)
                    both = shared + number
                    assert torch.equal(output.torch(), expected)
                    assert torch.equal(both.torch(), x.torch() * 0.5 + number)

    run_in_threads(run, 4)


def test_a_python_function_that_waits_for_an_operand() -> None:
    """The sum would compute ``a`` itself; then the function would wait for the sum, which waits for the function."""
    x = data(SHAPES[0], "float32")
    for _ in range(5):
        a, issued = x * 2.0, threading.Event()

        def function(sample: np.ndarray, a: ndd.Batch = a, issued: threading.Event = issued) -> np.ndarray:
            assert issued.wait(60)
            return sample + np.asarray(a.tensors[0])

        total = a + ndd.python_function(function, x, shape="same")
        assert count_fused(total) == 0
        issued.set()
        expected = 2 * x.torch() + x.torch() + 2 * x.torch()[:1]
        assert torch.equal(total.torch(), expected)


def test_eager_work_begins_without_a_wait() -> None:
    """Held back for a moment only, without anybody waiting for it."""
    x = data(SHAPES[0])
    z = x * 0.5 + 3
    for _ in range(10_000):
        if z.pending is None or z.pending.done():
            break
        threading.Event().wait(0.001)
    assert z.pending is None or z.pending.done()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_finds_the_results() -> None:
    x = data(SHAPES[0])
    expected = x.torch().numpy() * np.float32(0.5) + 4
    z = x * 0.5 + 3
    assert run_in_child(lambda: np.array_equal((z + 1).torch().numpy(), expected)) == 0  # torch's own threads do not survive the fork
    assert torch.equal(z.torch(), x.torch() * 0.5 + 3)
