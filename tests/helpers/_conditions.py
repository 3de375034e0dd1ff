# SPDX-License-Identifier: Apache-2.0
"""A pipeline with conditionals around the function of a test."""

from collections.abc import Callable
from typing import Any

import numpy as np
from _pipelines import both, ours

BATCH = 9


def run_definition(dali: Any, function: Callable[..., Any], runs: int = 2, **arguments: Any) -> Any:
    """Run a definition of the nodes ``i`` (0, 1, 2, ...), ``even`` (bool) and ``x`` (2, 3) of a batch."""
    fn = dali.fn
    options = {"batch_size": BATCH, "num_threads": 2, "device_id": None, "seed": 5, "enable_conditionals": True, **arguments}

    @dali.pipeline_def(**options)
    def pipeline() -> Any:
        i = fn.external_source(source=lambda info: np.array(info.idx_in_batch, np.int32), batch=False)
        even = fn.external_source(source=lambda info: np.array(info.idx_in_batch % 2 == 0), batch=False)
        x = fn.external_source(source=lambda info: np.full((2, 3), info.idx_in_epoch, np.int32), batch=False)
        return function(dali, i, even, x)

    pipe = pipeline()
    pipe.build()
    return [pipe.run() for _ in range(runs)]


def same_as_dali(program: Callable[..., Any]) -> None:
    """Run a program under both packages and compare."""
    both(lambda dali: run_definition(dali, program))


def same_as_python(program: Callable[..., Any]) -> None:
    """Compare a program's batch with what Python gives for each sample alone."""
    for run in range(2):
        got = run_definition(ours, program)[run]
        for k in range(BATCH):
            wanted = program(ours, k, k % 2 == 0, np.full((2, 3), run * BATCH + k, np.int32))
            for value, other in zip(got, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
                np.testing.assert_array_equal(value.at(k), np.asarray(other), err_msg=f"sample {k}")
