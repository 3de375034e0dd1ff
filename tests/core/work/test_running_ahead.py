# SPDX-License-Identifier: Apache-2.0
"""GPU calls that run ahead, on a machine without a GPU (tests/emulated_cuda/running_ahead.py, uploads_ahead.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]
EMULATED = ROOT / "tests" / "emulated_cuda"


# 14 CPU seconds of compilation and 20 of tests, which have taken 7 minutes where ten processes shared a core.
@pytest.mark.timeout(1500)
@pytest.mark.slow
def test_calls_run_ahead_on_a_device_with_late_streams(tmp_path: Path) -> None:
    build = ROOT / "build" / "dev"
    if not (build / "build.ninja").is_file() or torch.version.cuda is None:
        pytest.skip("needs a development build, and a torch with CUDA")
    paths = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(EMULATED)}
    command = [sys.executable, str(EMULATED / "late.py"), str(build), str(tmp_path)]
    lines = subprocess.run(command, env=paths, check=True, capture_output=True, text=True, timeout=700).stdout
    late = dict(word.split("=", 1) for word in lines.split())
    # A test takes at most 10 s; of one that hangs the stacks of all threads are printed, and the process ends.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        "--timeout",
        "200",
        "--timeout-method",
        "thread",
        str(EMULATED / "random_programs.py"),
        str(EMULATED / "running_ahead.py"),
        str(EMULATED / "uploads_ahead.py"),
    ]
    result = subprocess.run(command, env={**paths, **late}, cwd=ROOT, capture_output=True, text=True, timeout=700, check=False)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-6000:]
