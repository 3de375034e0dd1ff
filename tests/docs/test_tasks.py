# SPDX-License-Identifier: Apache-2.0
"""The first tasks of the documentation: each page shows a script, and the scripts run."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
TASKS = Path(__file__).parent / "tasks"
sys.path.insert(0, str(DOCS / "_ext"))

from samples import names  # noqa: E402


def run(task: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(TASKS / f"{task}.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def data() -> Any:
    return names()["data"]


def test_every_script_has_a_page() -> None:
    shown = {path.stem for path in (DOCS / "tasks").glob("*.md")} - {"index"}
    assert shown == {path.stem for path in TASKS.glob("*.py")}
    assert all(f"tests/docs/tasks/{name}.py" in (DOCS / "tasks" / f"{name}.md").read_text() for name in shown)


def test_speech(data: Any) -> None:
    printed = run("speech", data.manifest)
    assert printed == ["torch.Size([2, 80, 201])"]


def test_video_clips(data: Any) -> None:
    assert set(run("video_clips", data.video)) == {"torch.Size([1, 3, 6, 64, 64])"}


def test_webdataset(data: Any) -> None:
    printed = run("webdataset", *data.tars)
    labels = [int(one) for line in printed for one in line.split("[")[2].rstrip("]").split(",")]
    assert sorted(labels) == list(range(8))


def test_parquet(data: Any) -> None:
    assert len(run("parquet", data.parquet)) == 2


def test_compiled() -> None:
    assert run("compiled") == ["torch.Size([8, 3, 64, 64])"] * 3


def test_slow_loader(data: Any) -> None:
    assert run("slow_loader", data.folder)[-1].startswith("Python is the limit")


def test_resume(data: Any, tmp_path: Path) -> None:
    whole = run("resume", data.folder, str(tmp_path / "whole.json"))
    stopped = run("resume", data.folder, str(tmp_path / "a.json"), "stop")
    assert stopped + run("resume", data.folder, str(tmp_path / "a.json")) == whole
    assert len(stopped) == 2
    assert len(whole) == 4


def test_corrupt(data: Any, tmp_path: Path) -> None:
    good = (Path(data.folder) / "indoors" / "1.jpg").read_bytes()
    (tmp_path / "a").mkdir()
    for k in range(5):
        (tmp_path / "a" / f"{k}.jpg").write_bytes(good if k != 3 else good[:100])
    printed = run("corrupt", str(tmp_path))
    assert len(printed) == 1
    assert "3.jpg" in printed[0]
