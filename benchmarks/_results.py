# SPDX-License-Identifier: Apache-2.0
"""The current figures of a machine as a page, made from the files of ``--json`` and the tests' ``--junitxml``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from . import _report

FOLDER = Path(__file__).with_name("results")
HISTORY = "# Runs\n\n| date | machine | commit | versions | figures |\n| --- | --- | --- | --- | --- |\n"
_TEST = re.compile(r"test_cpu_equals_cuda\[([\w.]+)-")


def write_page(files: Iterable[Path], folder: Path = FOLDER) -> Path:
    """Write what was measured into the page of its machine and a line into ``history.md``; return the page's path.

    A page has a section for each file, with the file's name; sections without a file this time stay as they are.
    """
    paths = sorted(files)
    reports = {path.stem: json.loads(path.read_text()) for path in paths if path.suffix == ".json"}
    if not reports:
        raise ValueError("no report: give the files that the benchmarks wrote with --json")
    tests = [ElementTree.parse(path).getroot() for path in paths if path.suffix == ".xml"]
    facts = next(iter(reports.values()))["environment"]
    name = facts.get("gpu", {}).get("name", "CPU")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (re.sub(r"[^a-z0-9]+", "-", name.lower().replace("nvidia", "")).strip("-") + ".md")
    sections = _sections(path.read_text()) if path.exists() else {}
    sections.update({title: list(section(report)) for title, report in reports.items()})
    if tests:
        sections["tests"] = list(_operators(facts.get("gpu", {}).get("kernels", []), tests))
    lines = [f"# {name}"]
    for title, body in sections.items():
        lines += ["", f"## {title}", "", *body]
    path.write_text("\n".join(lines) + "\n")
    history = folder / "history.md"
    with history.open("a") as file:
        if not file.tell():
            file.write(HISTORY)
        headlines = "; ".join(_headline(title, report) for title, report in reports.items())
        file.write(_row(facts["date"][:10], name, _commits(reports.values()), _versions(facts), headlines) + "\n")
    return path


def _sections(text: str) -> dict[str, list[str]]:
    """The sections of a page: their lines by their titles."""
    parts = text.split("\n## ")[1:]
    return {title: body.strip("\n").split("\n") for title, _, body in (part.partition("\n") for part in parts)}


def section(report: dict[str, Any]) -> Iterator[str]:
    """The lines of a suite: when and where it was measured, what failed, the table."""
    facts = report["environment"]
    yield f"{facts['date']}, commit {_commits([report])}."
    yield f"{facts['cpu']}, {facts['cores']} cores, {facts['threads']} threads, Python {facts['python']}, "
    yield f"{_versions(facts)}."
    if gpu := facts.get("gpu"):
        yield "GPU: " + ", ".join(f"{name} {value}" for name, value in gpu.items() if name not in ("name", "kernels")) + "."
    if report.get("missing"):
        yield f"Not installed, so not compared with: {', '.join(report['missing'])}."
    if report.get("left_out"):
        yield f"No time was left for: {', '.join(report['left_out'])}."
    if failures := list(_failures(report)):
        yield from ("", "Failed or below its bar:", "", *(f"- {line}" for line in failures))
    yield ""
    yield from _SUITES.get(report["suite"], _plain_text)(report)


def _commits(reports: Iterable[dict[str, Any]]) -> str:
    # The GPU machine has no repository.
    found = sorted({report["environment"]["commit"] for report in reports})
    return ", ".join(f"{_report.commit()} (of this page)" if name == "unknown" else name for name in found)


def _versions(facts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in facts["versions"].items())


def _headline(title: str, report: dict[str, Any]) -> str:
    """One figure of a report for the history."""
    results, missed = report["results"], len(list(_failures(report)))
    below = f", {missed} failed or below a bar" if missed else ""
    if report["suite"] == "main" and (best := _best(results, "torch_ndd")):
        return f"{title}: {results[best]['images_per_second']:.0f} images/s ({best}){below}"
    return f"{title}: {len(results)} rows{below}"


def _failures(report: dict[str, Any]) -> Iterator[str]:
    for name, text in report["failed"].items():
        yield f"{name}: {_last_line(text)}"
    for name, row in report["results"].items():
        if not isinstance(row, dict):
            continue
        yield from (f"{name}: {text}" for text in row.get("missed", ()) if text != "it failed")
        times = row.get("compiled_ratio")
        if isinstance(times, dict) and times["uncompiled"] < row["bar"]:
            yield f"{name}: compiled {times['uncompiled']:.2f} times as fast as uncompiled, not {row['bar']}"
    if report["suite"] == "main":
        yield from _find_main_misses(report["results"])


def _best(results: dict[str, dict[str, float]], family: str) -> str:
    """Return the fastest competitor of a family by images per second; "" without any."""
    return max((name for name in results if name.startswith(family)), key=lambda name: results[name]["images_per_second"], default="")


def _find_main_misses(results: dict[str, dict[str, float]]) -> Iterator[str]:
    """The best of torch_ndd against DALI's best mode."""
    best, theirs = _best(results, "torch_ndd"), _best(results, "DALI")
    if not best or not theirs:
        yield "no comparison with DALI"
        return
    times = results[best]["images_per_second"] / results[theirs]["images_per_second"]
    if times < 1:
        yield f"{best} has {times:.2f} times the images a second of {theirs}"
    if results[best]["batch_ms_p99"] > results[theirs]["batch_ms_p99"]:
        yield f"p99 of {best} is {results[best]['batch_ms_p99']:.1f} ms, that of {theirs} {results[theirs]['batch_ms_p99']:.1f}"


def _failed_tests(tests: list[Any]) -> Iterator[str]:
    for case in (case for root in tests for case in root.iter("testcase")):
        problem = case.find("failure") if case.find("failure") is not None else case.find("error")
        if problem is not None:
            yield f"{case.get('classname')}::{case.get('name')}: {_last_line(problem.get('message') or '')}"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:300]


def _row(*cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |"


def _ops_table(report: dict[str, Any]) -> Iterator[str]:
    if "copy_bandwidth" not in report:
        yield from _plain_text(report)
        return
    yield f"Copy bandwidth {report['copy_bandwidth'] / 1e12:.2f} TB/s, bytes read and written. Columns of others: how many times faster torch_ndd is."
    yield "Uploads from memory that is not pinned, host us: " + ", ".join(f"{name} {us:.1f}" for name, us in report["uploads_us"].items()) + "."
    yield ""
    rivals = list(dict.fromkeys(name for row in report["results"].values() for name in row["torch_ndd_ratio"]))
    yield _row("operator", "samples", "ms", "predicted", "of copy", "launches", "host us", *rivals, "kernels")
    yield _row(*["---"] * (8 + len(rivals)))
    for name, row in sorted(report["results"].items(), key=lambda item: not item[1]["missed"]):
        ours, times = row["figures"].get("torch_ndd"), row["torch_ndd_ratio"]
        if ours is None:
            yield _row(f"**{name}**", row["samples"], "failed", *[""] * (5 + len(rivals)))
            continue
        yield _row(
            f"**{name}**" if row["missed"] else name,
            row["samples"],
            f"{ours['seconds'] * 1e3:.3f}",
            f"{row['predicted_seconds'] * 1e3:.3f}",
            f"{row['bandwidth_part']:.2f}",
            f"{ours['launches']:.0f}",
            f"{ours['host_seconds'] * 1e6:.1f}",
            *(f"{times[rival]:.2f}" if rival in times else "failed" if rival in row["failed"] else "" for rival in rivals),
            ", ".join(ours["kernels"]),
        )


def _main_table(report: dict[str, Any]) -> Iterator[str]:
    yield f"{report['files']} JPEGs of {report['average_kb']:.1f} kB, batches of {report['batch']}."
    yield ""
    yield _row("", "images/s", "torch_ndd is x times", "p50 ms", "p99 ms", "images per CPU second")
    yield _row(*["---"] * 6)
    for name, row in report["results"].items():
        times = f"{row['torch_ndd_ratio']:.2f}" if "torch_ndd_ratio" in row else ""
        figures = (f"{row['batch_ms_p50']:.2f}", f"{row['batch_ms_p99']:.2f}", f"{row['images_per_cpu_second']:.0f}")
        yield _row(name, f"{row['images_per_second']:.0f}", times, *figures)


def _compiled_table(report: dict[str, Any]) -> Iterator[str]:
    rows = report["results"]
    if any("ms" not in row for row in rows.values()):
        yield from _plain_text(report)
        return
    columns = list(dict.fromkeys(name for row in rows.values() for name in row["ms"]))
    yield _row("milliseconds", *columns, *(f"compiled is x {name}" for name in columns if name != "compiled"), "difference")
    yield _row(*["---"] * (1 + 2 * len(columns)))
    for name, row in rows.items():
        times = [f"{row['compiled_ratio'][column]:.2f}" if column in row["compiled_ratio"] else "" for column in columns if column != "compiled"]
        yield _row(
            name, *(f"{row['ms'][column]:.3f}" if column in row["ms"] else "" for column in columns), *times, f"{row['largest_difference']:.3g}"
        )


def _graph_table(report: dict[str, Any]) -> Iterator[str]:
    yield _row("", "calls ms", "replay ms", "calls: host us", "replay: host us", "equal")
    yield _row(*["---"] * 6)
    for name, row in report["results"].items():
        cells = [f"{row[kind][what] * scale:.3f}" for what, scale in (("seconds", 1e3), ("host_seconds", 1e6)) for kind in ("calls", "graph")]
        yield _row(name, *cells, "yes" if row["equal"] else "no")
    if not report["jobs"]:
        return
    yield ""
    yield _row("resize, crop, mirror, normalize", "as", "ms", "host us", "launches", "equal")
    yield _row(*["---"] * 6)
    for name, row in report["jobs"].items():
        for way, equal in row["equal"].items():
            figures = row[way]
            cells = f"{figures['seconds'] * 1e3:.3f}", f"{figures['host_seconds'] * 1e6:.1f}", f"{figures['launches']:.0f}"
            yield _row(name, way, *cells, "yes" if equal else "no")


def _loads_table(report: dict[str, Any]) -> Iterator[str]:
    yield f"{report['files']} JPEGs of {report['average_kb']:.1f} kB."
    yield ""
    yield _row("library and load", "images/s", "p50 ms", "p99 ms", "images per CPU second", "decoded by")
    yield _row(*["---"] * 6)
    for name, row in report["results"].items():
        yield _row(name, *_report.format_load(row))


def _hazards_table(report: dict[str, Any]) -> Iterator[str]:
    yield _row("", "wrong", "of")
    yield _row(*["---"] * 3)
    for name, row in report["results"].items():
        yield _row(name, row["wrong"], row["of"])


def _unusual_table(report: dict[str, Any]) -> Iterator[str]:
    rows = report["results"]
    below = [name for name, row in rows.items() if row["missed"]]
    yield f"{len(rows)} rows, the slowest first; {len(below)} are slower than DALI."
    if report["not_in_dali"]:
        yield f"DALI does not take: {', '.join(report['not_in_dali'])}."
    yield ""
    yield _row("", "x DALI", "torch_ndd ms", "DALI ms")
    yield _row(*["---"] * 4)
    for name, row in rows.items():
        figures = [f"{row['ms'][column]:.3f}" if column in row["ms"] else "failed" for column in ("torch_ndd", "DALI")]
        yield _row(f"**{name}**" if row["missed"] else name, f"{row['torch_ndd_ratio'].get('DALI', 0):.2f}", *figures)


def _plain_text(report: dict[str, Any]) -> Iterator[str]:
    yield from ("```json", json.dumps(report["results"], indent=1), "```")


_SUITES = {
    "ops": _ops_table,
    "unusual": _unusual_table,
    "main": _main_table,
    "loads": _loads_table,
    "hazards": _hazards_table,
    "compiled": _compiled_table,
    "graph": _graph_table,
}


def _operators(kernels: list[str], tests: list[Any]) -> Iterator[str]:
    if failures := list(_failed_tests(tests)):
        yield from ("Failed:", "", *(f"- {line}" for line in failures), "")
    passed: dict[str, bool] = {}
    for case in (case for root in tests for case in root.iter("testcase")):
        found = _TEST.match(case.get("name", ""))
        if found and case.find("skipped") is None:
            passed[found[1]] = passed.get(found[1], True) and case.find("failure") is None and case.find("error") is None
    right = sorted(name for name in passed if passed[name])
    yield f"{len(right)} agree with the CPU within the tolerance of their cases: {', '.join(right)}."
    if wrong := sorted(name for name in passed if not passed[name]):
        yield f"\n{len(wrong)} do not: {', '.join(wrong)}."
    ran = {name.replace(".", "_") for name in passed}
    if others := sorted(set(kernels) - ran):
        yield f"\n{len(others)} kernels were only compiled: {', '.join(others)}."
