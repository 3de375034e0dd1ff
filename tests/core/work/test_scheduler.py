# SPDX-License-Identifier: Apache-2.0
"""The scheduler of the CPU stream under random programs of several callers (csrc/stress), which check themselves."""

import subprocess
from pathlib import Path

import pytest

from benchmarks import _stress

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stress(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _stress.build(tmp_path_factory.mktemp("stress"))


@pytest.mark.parametrize("threads", [1, 2, 3, 20])
def test_everything_is_computed_once_and_nobody_waits_for_ever(stress: Path, threads: int) -> None:
    # Callers that wait while the threads work, and (odd seeds) while they are stopped.
    arguments = ["--threads", str(threads), "--seed", str(100 * threads), "--runs", "4", "--seconds", "0.4", "--watchdog", "60"]
    done = subprocess.run([stress, "check", *arguments], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("programs") == 4


@pytest.mark.parametrize("threads", [1, 3])
def test_throughput_is_measured(stress: Path, threads: int) -> None:
    found = _stress.figures(stress, "speed", threads=threads, links=3, seconds=0.2, microseconds="5,2,1")
    assert found["chunks_per_second"] > 0
    assert 0 < found["busy"] < 1.01
    assert _stress.figures(stress, "wake", seconds=0.1)["wake_microseconds"] > 0
