# SPDX-License-Identifier: Apache-2.0
import functools
import importlib
import json
import math
import operator
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from PIL import Image

import torch_ndd as ndd
from benchmarks import _cold, _cores_model, _photos, _process, _report, _results, ops, unusual
from benchmarks.__main__ import main as command_line
from benchmarks.cases import CASES, DATA, Case
from torch_ndd import types

ROOT = Path(_results.__file__).parents[1]


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Benchmarks set variables for the processes that they start."""
    with mock.patch.dict(os.environ):
        yield


def test_percentile_is_a_measured_value() -> None:
    values = [float(i) for i in range(200, 0, -1)]
    assert [_report.percentile(values, p) for p in (0, 50, 99, 100)] == [1, 100, 198, 200]


def test_ratio_ignores_a_slow_round() -> None:
    assert _report.ratio([20, 2, 20], [10, 1, 10]) == 2


def size_of(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        return image.size


def test_jpegs_are_like_imagenet(tmp_path: Path) -> None:
    paths = _photos.write_jpegs(tmp_path, 32)
    assert 40_000 < sum(path.stat().st_size for path in paths) / 32 < 60_000
    assert {size_of(path) for path in paths} == {(500, 375), (375, 500)}
    assert len({path.read_bytes() for path in paths}) == 32


def test_jpegs_are_the_same_every_time(tmp_path: Path) -> None:
    first, second = (_photos.write_jpegs(tmp_path, 3)[2].read_bytes() for _ in range(2))
    assert first == second


@pytest.fixture
def peer() -> Any:
    # The new process imports what it is sent by name, so nothing of this module.
    with _process.running({"calculator": (functools.partial, (operator.truediv, 10))}) as ([peer], _):
        yield peer


def test_a_competitor_answers_after_an_error(peer: _process.Peer) -> None:
    with pytest.raises(_process.PeerError, match="ZeroDivisionError"):
        peer.ask(0)
    assert peer.ask(4) == 2.5


def test_a_competitor_that_hangs_is_given_up(peer: _process.Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_process, "PATIENCE", 0.1)
    with pytest.raises(_process.PeerError, match=r"no answer within 0\.1 seconds"):
        peer.answer()  # nothing was asked
    with pytest.raises(_process.PeerError, match="ended"):
        peer.ask(1)


def test_a_competitor_that_cannot_start_is_named() -> None:
    with _process.running({"broken": (functools.partial, ())}) as (ready, failed):
        assert not ready
        assert "TypeError" in failed["broken"]


# Their arguments or results are for all samples of the batch.
WHOLE_BATCHES = ("crop_mirror_normalize 224", "augment.mixup", "augment.cutmix", "random.", "random_crop_generator", "batch_permutation")


@functools.cache
def all_samples(name: str) -> np.ndarray:
    return DATA[name]()


def data(case: Case) -> np.ndarray:
    """Return a few images or sounds: how many there are matters to the times only."""
    samples = all_samples(case.data)
    return samples[:4] if samples[0].nbytes > 50_000 and not case.name.startswith(WHOLE_BATCHES) else samples


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_competitors_deliver_as_much_and_of_the_same_type(case: Case) -> None:
    samples = data(case)
    batch = ndd.batch(list(samples), layout="HWC" if samples.ndim == 4 else None)
    result = case.ndd(ndd, types, batch)
    delivered = [(sum(math.prod(shape) for shape in result.shape), np.asarray(result.tensors[0]).dtype)]
    if case.cv2 is not None:
        cv2 = pytest.importorskip("cv2")
        outputs = [np.asarray(case.cv2(cv2, sample)) for sample in samples]
        delivered.append((sum(output.size for output in outputs), outputs[0].dtype))
    if case.np is not None:
        outputs = [np.asarray(case.np(sample)) for sample in samples]
        delivered.append((sum(output.size for output in outputs), outputs[0].dtype))
    if case.tv is not None:
        torch, v2 = importlib.import_module("torch"), pytest.importorskip("torchvision.transforms.v2")
        images = torch.from_numpy(samples)
        outputs = [output.numpy() for output in case.tv(v2, images.permute(0, 3, 1, 2) if images.ndim == 4 else images)]
        delivered.append((sum(output.size for output in outputs), outputs[0].dtype))
    assert len(set(delivered)) == 1


def bench(*arguments: str) -> dict[str, Any]:
    """Run a benchmark in this process, which has imported everything; its competitors have their own."""
    assert command_line(list(arguments)) == 0
    return json.loads(Path(arguments[arguments.index("--json") + 1]).read_text())


def test_threads_are_busy_in_the_model() -> None:
    load = _cores_model.Load([[0.008], [0.001], [0.001]], 256, 3)
    free, slow = _cores_model.Costs(0, 0, 0), _cores_model.Costs(visit=0.001, queue=0.001, wake=0.001)
    assert _cores_model.busy(64, load, free) > 0.99
    assert _cores_model.busy(1, load, slow) == pytest.approx(10 / 11, abs=0.01)  # 1 ms at the lock after 10 of work
    assert 0.05 < _cores_model.busy(100, load, slow) <= 0.101  # no more than 10 of them can have it in their turn
    assert 0.02 < _cores_model.busy(100, load, slow, linked=False) <= 0.034
    # One thread of Python issues a batch, 2.56 s of work, in 0.1 s.
    python = _cores_model.Costs(0, 0, 0, issue=0.1)
    assert _cores_model.busy(128, load, python) == pytest.approx(0.2, abs=0.01)


@pytest.mark.slow
def test_main_job(tmp_path: Path) -> None:
    arguments = ["--only", "^torch_ndd$", "--images", "64", "--rounds", "1", "--steps", "2"]
    file = tmp_path / "main.json"
    command = [sys.executable, "-m", "benchmarks", "main", *arguments, "--json", str(file)]
    subprocess.run(command, check=True, capture_output=True, timeout=300, cwd=ROOT)
    report = json.loads(file.read_text())
    assert report["environment"]["threads"] == 2
    figures = report["results"]["torch_ndd"]
    assert figures["torch_ndd_ratio"] == 1
    assert 0 < figures["batch_ms_p50"] <= figures["batch_ms_p99"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_operators_are_timed_against_opencv(tmp_path: Path) -> None:
    arguments = ["--only", "flip, vertical|tiny.*1$", "--against", "OpenCV", "--rounds", "1", "--milliseconds", "1"]
    report = bench("ops", *arguments, "--json", str(tmp_path / "ops.json"))
    assert list(report["results"]) == ["flip, vertical", "tiny: batch + 1"]
    assert report["results"]["flip, vertical"]["ms"]["torch_ndd"] > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_unusual_arguments_agree_with_dali(tmp_path: Path) -> None:
    pytest.importorskip("nvidia.dali")
    arguments = ["--only", "^(crop|slice): a fill a channel$", "--rounds", "1", "--milliseconds", "1"]
    report = bench("unusual", *arguments, "--json", str(tmp_path / "unusual.json"))
    assert set(report["results"]) == {"slice: a fill a channel"}
    row = report["results"]["slice: a fill a channel"]
    assert row["difference"] == ""
    assert set(row["ms"]) == {"torch_ndd", "DALI"}
    assert any("x DALI" in line for line in _results.section(report))


def test_results_that_differ_are_found() -> None:
    ours, theirs = [np.array([1, 2, 30], np.uint8)], [np.array([1, 3, 3], np.uint8)]
    assert "33.33% of sample 0 differ by up to 27" in unusual.difference(ours, theirs, 1.0, 0.0)
    assert unusual.difference(ours, theirs, 1.0, 0.4) == ""
    assert "is uint8 (3,), not float32 (3,)" in unusual.difference(ours, [theirs[0].astype(np.float32)], 1.0, 0.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_readers_are_benchmarked(tmp_path: Path) -> None:
    arguments = ["--only", "^Numpy$", "--images", "64", "--rounds", "1", "--steps", "2"]
    report = bench("readers", *arguments, "--json", str(tmp_path / "readers.json"))
    assert list(report["results"]) == ["Numpy"]
    assert report["results"]["Numpy"]["torch_ndd"]["samples_per_second"] > 0


@pytest.mark.slow
def test_benchmark_of_mixing(tmp_path: Path) -> None:
    report = bench("mixing", "--only", "^DataLoader", "--rounds", "1", "--steps", "2", "--json", str(tmp_path / "mixing.json"))
    assert set(report["results"]) == {"torch_ndd", "DataLoader, WeightedRandomSampler"}
    assert report["results"]["torch_ndd"]["samples_per_second"] > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_benchmark_of_formats(tmp_path: Path) -> None:
    arguments = ["--only", "LZW|LZ4|arrays", "--images", "64", "--rounds", "1", "--steps", "1"]
    report = bench("formats", *arguments, "--json", str(tmp_path / "formats.json"))
    assert not report["failed"]
    assert set(report["results"]) == {"TIFF, LZW", "inflate, LZ4", "arrays"}
    assert all(row["torch_ndd"]["files_per_second"] > 0 for row in report["results"].values())


def test_benchmark_of_data_sets(tmp_path: Path) -> None:
    report = bench("datasets", "--only", "numbers", "--rounds", "1", "--json", str(tmp_path / "datasets.json"))
    assert not report["failed"]
    assert set(report["results"]) == {"numbers"}
    assert all(microseconds > 0 for microseconds in report["results"]["numbers"].values())


@pytest.mark.slow
def test_benchmark_of_joins(tmp_path: Path) -> None:
    report = bench("joins", "--images", "128", "--rounds", "1", "--steps", "2", "--json", str(tmp_path / "joins.json"))
    assert not report["failed"]
    times = {"time of the slower reader", "time of the decoded archive"}
    assert set(report["ratios"]) == {"of the archive", "of the archive and the table", "of the decoded archive"} | times
    assert all(ratio > 0 for ratio in report["ratios"].values())


@pytest.mark.slow
def test_benchmark_of_serving(tmp_path: Path) -> None:
    figures = bench("serving", "--images", "4", "--rounds", "1", "--json", str(tmp_path / "serving.json"))
    assert set(figures["results"]) == {"torch_ndd", "torchvision, Pillow", "torchvision, tensors"}
    assert not figures["failed"]
    assert all(row["ms_p99"] >= row["ms_p50"] > 0 for row in figures["results"].values())


def test_bytes_of_caches(tmp_path: Path) -> None:
    caches = [("32K", "Data", "3"), ("32K", "Instruction", "3"), ("1024K", "Unified", "3"), ("32M", "Unified", "0-3,8-11")]
    for k, (size, kind, sharing) in enumerate(caches):
        folder = tmp_path / "cpu3" / "cache" / f"index{k}"
        folder.mkdir(parents=True)
        for name, text in (("size", size), ("type", kind), ("shared_cpu_list", sharing)):
            (folder / name).write_text(text + "\n")
    assert _cold.bytes_of_caches(3, tmp_path) == (32 << 10) + (1 << 20) + (4 << 20)
    assert _cold.bytes_of_caches(4, tmp_path) == 16 << 20


@pytest.mark.slow
def test_a_call_with_cold_caches_of_each_competitor() -> None:
    ways = ops.cold_handler("torch_ndd", 2)("brightness")
    assert list(ways) == ["plain"]
    assert ways["plain"] > 0
    assert ops.cold_handler("torch_ndd", 2)("tiny: batch + 1, the call alone")["plain"] > 0


def test_planners_of_batches_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "batches.json"
    assert command_line(["batches", "--samples", "1024", "--images", "2", "--only", "torch", "--json", str(path)]) == 0
    results = json.loads(path.read_text())["results"]
    assert results["text: torch_ndd Packed, first fit"]["waste"] < 0.1 < results["text: torch BatchSampler"]["waste"]
    assert min(results["headers"][unit] for unit in ("per_second", "per_second_of_wall")) > 0
