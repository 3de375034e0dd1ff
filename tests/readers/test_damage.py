# SPDX-License-Identifier: Apache-2.0
"""Damaged files: an exception or a skipped sample each time, no crash, no hang, no leak. 2,000 of each kind with TORCH_NDD_WHOLE=1."""

import json
from pathlib import Path

import pytest
from _forks import SCRIPT, Forks
from conftest import WHOLE

COUNT = 2000 if WHOLE else 200
PROGRAM = Path(__file__).with_name("_damage.py")
NEEDS = {"caffe": "lmdb", "caffe2": "lmdb", "coco": "pycocotools", "manifest": "soundfile", "sound": "soundfile", "parquet": "pyarrow"}


@pytest.mark.slow
@pytest.mark.figures
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", NEEDS)
def test_damaged_files(kind: str, forks: Forks) -> None:
    pytest.importorskip(NEEDS[kind])
    run = forks.run(SCRIPT, PROGRAM, kind, COUNT, 1)
    assert run.wait(800) == 0, run.errors[-2000:]
    outcome = json.loads(run.output.splitlines()[-1])
    total = outcome["read"] + outcome["skipped"] + outcome["refused"]
    print(f"{kind}: {total} damaged files, {outcome['read']} read, {outcome['skipped']} with skipped samples, {outcome['refused']} refused, ", end="")
    print(f"at most {outcome['slowest']} s each, memory x {outcome['memory']}")
    assert total == COUNT
    assert outcome["slowest"] < 5
    assert outcome["memory"] < 1.05
