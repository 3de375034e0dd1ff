# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of GPU decoders, the profiler's program and ``.ci/gpu``, tested without a GPU."""

import contextlib
import io
import re
import subprocess
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import torch_ndd as ndd
from benchmarks import _results
from benchmarks.__main__ import SUITES
from benchmarks._photos import write_jpegs
from benchmarks.cuda import hazards, loads, profiled

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_jpegs(tmp_path_factory.mktemp("photos"), 64)


def options(folder: Path, **others: Any) -> Namespace:
    return Namespace(device="cpu", threads=2, rounds=1, steps=1, images=64, path=str(folder), only=None, **others)


def test_loads_measure_each_load_of_each_library(photos: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "LOADS", {"torch_ndd": (loads.DEFAULT, 0.22)})
    console = Console(file=io.StringIO(), width=200)
    report = loads.run(options(photos[0].parent), console)
    assert report["failed"] == {}
    assert list(report["results"]) == ["torch_ndd, load default", "torch_ndd, load 0.22"]
    assert all(row["images_per_second"] > 0 and row["engines"] == {} for row in report["results"].values())
    assert "torch_ndd, load 0.22" in console.file.getvalue()  # type: ignore[attr-defined]


def test_page_shows_who_decoded_at_each_load() -> None:
    row = {
        "images_per_second": 9000.4,
        "batch_ms_p50": 7.0,
        "batch_ms_p99": 9.0,
        "images_per_cpu_second": 1200.0,
        "engines": {"hardware": 3, "cuda": 1, "refused": 4},
    }
    report = {"suite": "loads", "files": 64, "average_kb": 50.0, "results": {"torch_ndd, load 0.55": row}, "failed": {}}
    lines = list(_results._SUITES["loads"](report))
    assert lines[-1] == "| torch_ndd, load 0.55 | 9000 | 7.00 | 9.00 | 1200 | hardware 0.75, cuda 0.25 |"


@pytest.mark.parametrize("overwrites", [False, True])
def test_hazards_count_copies_that_read_another_image(overwrites: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that writes immediately has written before the queued copy reads."""
    kept = torch.empty(4, 5, 3, dtype=torch.uint8)
    monkeypatch.setattr(torch, "empty_like", lambda like: kept)
    for name in ("_sleep", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda *cycles: None)

    def decode(data: bytes) -> torch.Tensor:
        if overwrites:
            kept.zero_()
        return torch.full((4, 5, 3), len(data), dtype=torch.uint8)

    assert hazards.count_overwritten(decode, contextlib.nullcontext, b"123", 5) == (5 if overwrites else 0)


def test_hazards_find_windows_that_are_shifted(photos: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    files = [str(path) for path in photos[:6]]
    assert hazards.find_wrong_windows(files, 0.5, "cpu") == []
    decode = ndd.decoders.image_slice

    def decode_shifted(*arguments: Any, **others: Any) -> Any:
        return decode(*arguments, **{**others, "start": [40, 70]} if "device" in others else others)

    monkeypatch.setattr(ndd.decoders, "image_slice", decode_shifted)
    assert hazards.find_wrong_windows(files, 0.5, "cpu") == files


def test_profiler_sees_the_last_call_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    for name in ("start", "stop"):
        monkeypatch.setattr(torch.cuda.profiler, name, lambda name=name: log.append(name))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(profiled.ops, "torch_ndd", lambda case, samples, device: lambda: log.append(case.name))
    profiled.main(["brightness"])
    assert log == ["brightness"] * 3 + ["start", "brightness", "stop"]
    assert set(profiled.CHOSEN) <= set(profiled.GPU_CASES)


# --- .ci/gpu ---


def test_phases_of_the_gpu_script_exist() -> None:
    text = (ROOT / ".ci" / "gpu").read_text()
    subprocess.run(["bash", "-n", str(ROOT / ".ci" / "gpu")], check=True)
    phases = set(re.findall(r"^limit_(\w+)=\d+", text, re.MULTILINE))
    functions = set(re.findall(r"(?:^|; )(\w+)\(\) \{", text, re.MULTILINE))
    assert phases <= {name.rstrip("_") for name in functions}
    calls = [names for _, names in re.findall(r'^(call_\w)="([\w ]+)"', text, re.MULTILINE)]
    assert len(calls) == 2
    assert all(set(names.split()) <= phases for names in calls)


def test_gpu_script_names_tests_that_exist() -> None:
    text = (ROOT / ".ci" / "gpu").read_text()
    names = re.findall(r'^ALONE="([^"]+)"', text, re.MULTILINE)[0].split() + re.findall(r"\$PYTEST ([\w/]+\.py)", text)
    assert all((ROOT / "tests" / name).exists() for name in names)
    suites = set(re.findall(r"\bbench (\w+) --", text))
    assert {"loads", "hazards", "ops", "main"} <= suites <= set(SUITES)
