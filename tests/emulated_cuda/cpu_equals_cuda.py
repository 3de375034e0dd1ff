# SPDX-License-Identifier: Apache-2.0
"""Every case of every operator: the CPU kernel against the emulated CUDA kernel. `make emulated-cuda` runs this with emulated_plugin."""

import emulated_plugin
import pytest
from _cases import Case
from test_operators import CASES, both_shapes

from torch_ndd import EvalMode
from torch_ndd.testing._properties import assert_near, values


@both_shapes([case for case in CASES if case.definition.kernel is not None])
def test_cpu_equals_emulated_cuda(case: Case, ragged: bool) -> None:
    with emulated_plugin.on_cpu(), EvalMode.sync_cpu:
        expected = values(case.run(ragged))
    before = sum(emulated_plugin.operators_run.values())
    found = values(case.run(ragged))
    if sum(emulated_plugin.operators_run.values()) == before:
        pytest.skip("no CUDA kernel was called")
    for theirs, ours in zip(found, expected, strict=True):
        assert_near(theirs, ours, case.tolerance)
