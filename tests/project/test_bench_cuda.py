# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of the GPU where there is none: their rules, and that all they call is there."""

import contextlib
import io
import json
import subprocess
import time
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch._C._autograd import DeviceType

import torch_ndd as ndd
from benchmarks import _report, _results, main_job
from benchmarks.__main__ import main as main_of_bench
from benchmarks._process import PeerError
from benchmarks.cuda import _cases, _rivals, _timing, compiled, graph, host, memory, ops
from benchmarks.cuda._cases import GPU_CASES, GpuCase
from torch_ndd import types


class Event:
    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None: ...

    def elapsed_time(self, last: "Event") -> float:
        return (last.at - self.at) * 1e3


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's events as the host's clock: work on the CPU takes the place of the GPU's."""
    for name, value in {"Event": Event, "synchronize": lambda: None, "_sleep": lambda cycles: None}.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(
        _timing, "launches", lambda call: _timing.count_launches([event("void ndd::run<int>(int)", 3.0), event("Memcpy HtoD", 1.0)], 1)
    )
    monkeypatch.setattr(ops, "_on_torchs_stream", lambda competitor: contextlib.nullcontext())


def event(name: str, microseconds: float, device: Any = DeviceType.CUDA) -> Any:
    return SimpleNamespace(name=name, device_type=device, time_range=SimpleNamespace(elapsed_us=lambda: microseconds))


def test_time_of_the_device(clock: None) -> None:
    assert 0.002 <= _timing.device_seconds(lambda: time.sleep(0.002), 0.01) < 1
    assert 0.001 <= _timing.host_seconds(lambda: time.sleep(0.001), 3) < 1


def test_launches_are_counted_by_name() -> None:
    events = [event("void a::b<c<1>>(int)", 4.0), event("a::b<d>(float)", 2.0), event("Memcpy HtoD (Pageable -> Device)", 1.0)]
    events.append(event("cudaLaunchKernel", 100.0, DeviceType.CPU))
    result = _timing.count_launches(events, 2)
    assert result.kernels == {"b": 1.0}
    assert result.copies == {"Memcpy HtoD (Pageable -> Device)": 0.5}
    assert (result.count, result.seconds) == (1.0, pytest.approx(3.5e-6))


def test_waves_follow_from_what_a_multiprocessor_holds() -> None:
    def kernel(grid: list[int], threads: int, registers: int, shared: int) -> dict[str, Any]:
        return {"cat": "kernel", "args": {"grid": grid, "block": [threads, 1, 1], "registers per thread": registers, "shared memory": shared}}

    assert _timing.count_waves([kernel([528, 1, 1], 256, 64, 0)], 132) == 1  # four blocks: a grid that stays
    assert _timing.count_waves([kernel([225, 128, 1], 256, 32, 0)], 132) == 28  # eight, by their threads
    assert _timing.count_waves([kernel([133, 1, 1], 128, 32, 200 << 10)], 132) == 2  # one, by its shared memory
    assert _timing.count_waves([kernel([1, 1, 1], 32, 16, 0), kernel([1, 1, 1], 32, 16, 0), {"cat": "gpu_memcpy", "args": {}}], 132) == 2


def test_report_shows_bars_and_failures() -> None:
    ours = {
        "seconds": 1e-4,
        "kernel_seconds": 9e-5,
        "launches": 1.0,
        "kernels": {"run": 1.0},
        "copies": {},
        "host_seconds": 1e-5,
        "traffic": 300_000_000,
        "waves": 4.0,
        "instructions": 0.0,
    }
    theirs = {**ours, "seconds": 2e-4, "kernel_seconds": 5e-5}
    fine = ops.judge(GPU_CASES["brightness"], {"torch_ndd": ours, "DALI": theirs}, {}, 3.5e12)
    assert (fine["missed"], fine["torch_ndd_ratio"]) == ([], {"DALI": 0.5})
    assert fine["bandwidth_part"] == pytest.approx(3 / 3.5)
    assert fine["predicted_seconds"] == pytest.approx(3e8 / 3.5e12 + 4 * ops.WAVE_SECONDS)
    bound = ops.judge(GPU_CASES["brightness"], {"torch_ndd": {**ours, "instructions": ops.INSTRUCTIONS_PER_SECOND * 1e-3}}, {}, 3.5e12)
    assert bound["predicted_seconds"] == pytest.approx(1e-3 + 4 * ops.WAVE_SECONDS)
    assert "0.75 of the copy bandwidth" in ops.judge(GPU_CASES["brightness"], {"torch_ndd": ours}, {}, 4e12)["missed"][0]
    assert ops.judge(GPU_CASES["warp_affine"], {"torch_ndd": ours, "kornia": theirs}, {}, 4e12)["missed"] == []
    slow = ops.judge(GPU_CASES["warp_affine"], {"torch_ndd": {**ours, "host_seconds": 3e-5}, "CV-CUDA": theirs}, {"DALI": "no"}, 4e12)
    assert [text.partition(",")[0] for text in slow["missed"]] == ["0.50 times CV-CUDA", "a call costs the host 30.0 us"]
    broken = ops.judge(GPU_CASES["warp_affine"], {"DALI": theirs}, {"torch_ndd": "RuntimeError: x"}, 4e12)
    assert broken["missed"] == ["it failed"]
    out = io.StringIO()
    ops.print_rows(Console(file=out, width=200), {"good": fine, "slow": slow, "broken": broken}, ["torch_ndd", "DALI", "CV-CUDA"])
    assert sorted(("good", "slow", "broken"), key=out.getvalue().index) == ["slow", "broken", "good"]
    assert "RuntimeError: x" in out.getvalue()


@pytest.mark.parametrize("name", ["brightness, ragged", "crop_mirror_normalize 224", "cast to float32", "mfcc"])
def test_figures_of_a_case(clock: None, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(GPU_CASES, name, GpuCase(**{**vars(GPU_CASES[name]), "samples": 4}))
    with ndd.EvalMode.sync_cpu:  # the results of hundreds of pending calls would take 3 GB
        figures = ops.handler("torch_ndd", 2, "cpu")((name, 2))
    assert figures is not None
    assert figures["seconds"] > 0
    assert figures["host_seconds"] > 0
    assert (figures["launches"], figures["copies"]) == (1.0, {"Memcpy HtoD": 1.0})
    inputs = sum(value.nbytes for value in _cases.samples_of(GPU_CASES[name].data, 4))
    result = GPU_CASES[name].ndd(ndd, types, ndd.batch(_cases.samples_of(GPU_CASES[name].data, 4), layout=None if name == "mfcc" else "HWC"))
    outputs = sum(np.asarray(value).nbytes for value in result)
    expected = outputs * 5 // 4 if "normalize" in name else inputs + outputs
    assert figures["traffic"] == expected


def test_device_faults_differ_from_errors(clock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> Any:
        raise ValueError("refused")

    monkeypatch.setitem(ops.COMPETITORS, "torch_ndd", (refuse, "torch_ndd"))
    with pytest.raises(ValueError, match="refused"):
        ops.handler("torch_ndd", 2, "cpu")(("brightness", 1))

    def lost() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    with pytest.raises(RuntimeError, match=ops.LOST):
        ops.handler("torch_ndd", 2, "cpu")(("brightness", 1))


def test_rivals_are_for_cases_that_exist() -> None:
    assert {*_rivals.KORNIA, *_rivals.CVCUDA} <= set(GPU_CASES)
    assert all(case.data == "vga" for name, case in GPU_CASES.items() if name in {*_rivals.KORNIA, *_rivals.CVCUDA})
    assert {case.bar for case in GPU_CASES.values()} == {None, _cases.BANDWIDTH, _cases.RIVALS}


FACTS = {
    "date": "2026-12-01T10:00:00+00:00",
    "commit": "abc",
    "cpu": "a CPU",
    "cores": 16,
    "threads": 8,
    "python": "3.12",
    "versions": {"torch": "2.11.0"},
    "gpu": {"name": "NVIDIA H200", "driver_version": "580.1", "clocks.sm": "1980 MHz", "kernels": ["brightness", "reductions_sum", "flip"]},
}
TESTS = """<testsuites><testsuite>
<testcase classname="test_operators" name="test_cpu_equals_cuda[brightness-uint8-dense]"/>
<testcase classname="test_operators" name="test_cpu_equals_cuda[brightness-uint8-ragged]"/>
<testcase classname="test_operators" name="test_cpu_equals_cuda[decoders.audio-wav-dense]"><skipped message="no"/></testcase>
<testcase classname="test_operators" name="test_cpu_equals_cuda[reductions.sum-all-dense]"><failure message="a&#10;Mismatch | 3"/></testcase>
</testsuite></testsuites>"""


def test_job_is_the_same_as_one_operator_and_as_two() -> None:
    images = torch.randint(0, 256, (3, 280, 300, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    calls = graph.make_job_calls(images)
    expected = calls["two operators"]().torch()
    assert (expected.dtype, expected.shape) == (torch.float16, (3, 3, 224, 224))
    assert torch.equal(calls["one operator"]().torch(), expected)


def test_page_of_results(tmp_path: Path) -> None:
    ours = {"seconds": 1e-4, "kernel_seconds": 9e-5, "launches": 1.0, "kernels": {"run": 1.0}, "copies": {}, "host_seconds": 1e-5}
    ours |= {"traffic": 3e8, "waves": 1.0, "instructions": 0.0}
    rows = {
        "good": ops.judge(GPU_CASES["brightness"], {"torch_ndd": ours, "kornia": {**ours, "seconds": 2e-4}}, {}, 3.5e12),
        "slow": ops.judge(GPU_CASES["brightness"], {"torch_ndd": ours}, {"kornia": "no"}, 5e12),
        "broken": ops.judge(GPU_CASES["brightness"], {}, {"torch_ndd": "RuntimeError: x"}, 5e12),
    }
    main = {"images_per_second": 1000.0, "batch_ms_p50": 1.0, "batch_ms_p99": 2.0, "images_per_cpu_second": 9.0, "torch_ndd_ratio": 1.0}
    chain = {"ms": {"uncompiled": 1.0, "compiled": 0.9}, "compiled_ratio": {"uncompiled": 1.1}, "largest_difference": 0.0, "bar": 1.5}
    job = {"equal": {"one operator": True}, "one operator": {"seconds": 3e-3, "host_seconds": 2e-5, "launches": 1.0}}
    replay = {"equal": True, "calls": {"seconds": 2e-3, "host_seconds": 1e-5}, "graph": {"seconds": 1e-3, "host_seconds": 5e-6}}
    reports = {
        "ops": {
            "results": rows,
            "failed": {"torch_ndd broken": "RuntimeError: x"},
            "copy_bandwidth": 4e12,
            "uploads_us": {"1 KB": 3.0},
            "missing": ["DALI"],
        },
        "main": {
            "results": {"torch_ndd": main, "DALI pipeline": {**main, "images_per_second": 2000.0, "batch_ms_p99": 1.5}},
            "failed": {},
            "files": 1024,
            "average_kb": 52.0,
            "batch": 64,
        },
        "compiled": {"results": {"chain": chain}, "failed": {}},
        "graph": {"results": {"64 images": replay}, "jobs": {"64 images": job}, "failed": {}},
        "memory": {"results": {"allocated": 1.5}, "failed": {}},
    }
    for name, report in reports.items():
        _report.write_json(tmp_path / f"{name}.json", {"suite": name, "environment": FACTS, **report})
    (tmp_path / "tests.xml").write_text(TESTS)
    assert main_of_bench(["report", *map(str, tmp_path.glob("*.*")), "--folder", str(tmp_path / "results")]) == 0
    lines = (tmp_path / "results" / "h200.md").read_text().splitlines()
    assert lines[0] == "# NVIDIA H200"
    assert [line for line in lines if line.startswith("## ")] == ["## compiled", "## graph", "## main", "## memory", "## ops", "## tests"]
    assert sorted(line for line in lines if line.startswith("- ")) == [
        "- chain: compiled 1.10 times as fast as uncompiled, not 1.5",
        "- p99 of torch_ndd is 2.0 ms, that of DALI pipeline 1.5",
        "- slow: 0.60 of the copy bandwidth, not 0.8",
        "- test_operators::test_cpu_equals_cuda[reductions.sum-all-dense]: Mismatch | 3",
        "- torch_ndd broken: RuntimeError: x",
        "- torch_ndd has 0.50 times the images a second of DALI pipeline",
    ]
    assert lines[lines.index("## main") + 2].startswith("2026-12-01T10:00:00+00:00, commit abc.")
    assert "Not installed, so not compared with: DALI." in lines
    assert next(line for line in lines if line.startswith("| **slow**")) == "| **slow** | 128 | 0.100 | 0.062 | 0.60 | 1 | 10.0 | failed | run |"
    assert next(line for line in lines if line.startswith("| good")) == "| good | 128 | 0.100 | 0.087 | 0.86 | 1 | 10.0 | 0.90 | run |"
    assert "| 64 images | 2.000 | 1.000 | 10.000 | 5.000 | yes |" in lines
    assert "| 64 images | one operator | 3.000 | 20.0 | 1 | yes |" in lines
    assert "1 agree with the CPU within the tolerance of their cases: brightness." in lines
    assert "1 do not: reductions.sum." in lines
    assert "1 kernels were only compiled: flip." in lines


def test_a_page_keeps_what_was_not_measured_again(tmp_path: Path) -> None:
    chain = {"ms": {"uncompiled": 1.0, "compiled": 0.5}, "compiled_ratio": {"uncompiled": 2.0}, "largest_difference": 0.0, "bar": 1.5}
    for day, suites in enumerate((("compiled", "memory"), ("memory",)), 1):
        facts = {**FACTS, "date": f"2026-12-0{day}T10:00:00+00:00"}
        files = [tmp_path / f"{name}.json" for name in suites]
        for file in files:
            results = {"chain": chain} if file.stem == "compiled" else {"allocated": day}
            _report.write_json(file, {"suite": file.stem, "environment": facts, "results": results, "failed": {}})
        page = _results.write_page(files, tmp_path / "results").read_text()
    assert page.count("2026-12-01") == page.count("2026-12-02") == page.count("## compiled") == page.count("## memory") == 1
    assert "| chain | 1.000 | 0.500 | 2.00 | 0 |" in page
    assert '"allocated": 2' in page
    rows = (tmp_path / "results" / "history.md").read_text().splitlines()[-2:]
    assert rows[0] == "| 2026-12-01 | NVIDIA H200 | abc | torch 2.11.0 | compiled: 1 rows; memory: 1 rows |"
    assert rows[1] == "| 2026-12-02 | NVIDIA H200 | abc | torch 2.11.0 | memory: 1 rows |"


def test_a_page_needs_a_report(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--json"):
        _results.write_page([tmp_path / "tests.xml"])


def test_suites_of_the_gpu_need_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_of_bench(["graph"]) == 2
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main_of_bench(["ops", "--device", "cuda"]) == 2
    assert main_of_bench(["readers", "--device", "cuda"]) == 2
    assert "sees no GPU" in capsys.readouterr().out


def test_figures_of_memory(clock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 batches of which each takes a megabyte that torch does not know."""
    used = [0]

    def step(batch: Any, generator: Any) -> None:
        used[0] += 1_000_000

    monkeypatch.setattr(memory, "step", step)
    monkeypatch.setattr(memory, "ragged_batch", lambda generator: None)
    for name, value in {"memory_reserved": 5_000_000, "memory_allocated": 2_000_000}.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (900_000_000 - 5_000_000 - used[0], 900_000_000))
    figures = memory.measure(200)
    assert figures["growth beyond torch"] == pytest.approx(96, abs=5)
    assert (figures["growth of reserved, a batch"], figures["growth of allocated"]) == (0, 0)
    monkeypatch.setattr(memory, "measure", lambda batches: figures)
    monkeypatch.setattr(torch.cuda, "memory_summary", lambda abbreviated=False: "summary")
    report = memory.run(Namespace(batches=200), Console(file=io.StringIO()))
    assert "that torch knows nothing of" in report["failed"]["torch_ndd memory"]


def test_chains_of_other_libraries_return_every_image() -> None:
    pixels = torch.randint(0, 256, (2, 24, 32, 3), dtype=torch.uint8)
    for described in compiled.CHAINS:
        for call in compiled.rivals(described, pixels).values():
            assert call().shape[0] == 2
    assert set(compiled.rivals("alone: flip", pixels)) >= {"torchvision"}
    assert not compiled.rivals("alone: brightness_contrast, constants", pixels)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_process_that_has_lost_its_gpu_is_replaced() -> None:
    competitor = ops.Competitor("torch_ndd", 2)
    try:
        for _ in range(2):
            with pytest.raises(PeerError, match=ops.LOST):
                competitor.ask(("one_hot, 1000 classes", 1))
            assert competitor._peer is None
    finally:
        competitor.close()


def test_a_training_has_two_batches_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[tuple[str, int]] = []

    class Event:
        created = 0

        def __init__(self) -> None:
            Event.created += 1
            self.number = Event.created

        def record(self) -> None:
            log.append(("record", self.number))

        def synchronize(self) -> None:
            log.append(("synchronize", self.number))

    monkeypatch.setattr(torch.cuda, "Event", Event)
    delivered = main_job.make_delivery("cuda")
    for _ in range(3):
        delivered()
    assert log == [("record", 1), ("record", 2), ("synchronize", 1), ("record", 3), ("synchronize", 2)]
    assert main_job.make_delivery("cpu")() is None


def test_host_lists_the_slowest_call_first() -> None:
    counts = dict.fromkeys(host.COUNTS, 1.0)
    rows = {
        "fast": {"repeated": {"us": 10.0, **counts}},
        "slow": {"repeated": {"us": 90.0, **counts}, "changed": {"us": 100.0, **counts}},
    }
    console = Console(file=io.StringIO(), width=200)
    host._print_rows(rows, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.index("slow") < text.index("fast")
    assert "repeated: median 50 us" in text
    assert "changed: median 100 us" in text


def test_host_loop_waits_for_a_slow_decoder_and_only_for_that() -> None:
    batches = [SimpleNamespace(batch_size=1)]
    waited = [seconds for _, seconds in host._decode(1e9, batches, 5)]
    assert len(waited) == 5
    begin = time.perf_counter()
    total = sum(seconds for _, seconds in host._decode(100.0, batches, 3))
    assert time.perf_counter() - begin >= total >= 0.01


@pytest.mark.slow
def test_host_counts_what_a_call_asks_of_cuda(tmp_path: Path) -> None:
    """The plan of a repeated call: one output, one table, one launch."""
    try:
        host.build(tmp_path)
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs nvcc and a build with CUDA kernels: {error}")
    file = tmp_path / "host.json"
    assert main_of_bench(["host", "--only", "^brightness, uint8|^brightness, ragged$", "--rounds", "1", "--json", str(file)]) == 0
    for row in json.loads(file.read_text())["results"].values():
        assert row["repeated"]["launches"] == 1
        assert row["repeated"]["pageable"] == 0
