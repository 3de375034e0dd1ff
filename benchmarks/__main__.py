# SPDX-License-Identifier: Apache-2.0
"""The command line: ``python -m benchmarks SUITE [--json FILE]``."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

HELP = {
    "images": "how many images to write",
    "rounds": "how often everything is measured",
    "steps": "batches a round",
    "batches": "batches to run",
    "samples": "samples to plan",
    "milliseconds": "length of one measurement",
    "seconds-each": "length of one measurement",
}


class Suite(NamedTuple):
    """A benchmark on the command line."""

    help: str
    defaults: dict[str, float]
    """Of the options that have a number; :data:`HELP` describes them."""
    module: str | None = None
    """On the CPU, if it has another name than the suite; empty if it needs a GPU."""
    gpu_module: str = ""


SUITES = {
    "main": Suite("JPEG files to normalized training batches", {"images": 1024, "rounds": 7, "steps": 12}, "main_job", "main_job"),
    "recipes": Suite("transforms of torchvision and timm, against their DataLoader", {"images": 512, "rounds": 5, "steps": 4}),
    "large": Suite("JPEGs of 12 megapixels to 224x224, in batches of 8", {"images": 16, "rounds": 5, "steps": 3}),
    "ops": Suite("every operator on 16 VGA photographs", {"rounds": 7, "milliseconds": 40.0}, gpu_module="cuda.ops"),
    "unusual": Suite("operators with unusual arguments and inputs, against DALI", {"rounds": 5, "milliseconds": 15.0}),
    "torchvision": Suite("functionals of torch_ndd.torchvision.v2 against torchvision's, on a stacked batch", {"rounds": 5, "milliseconds": 20.0}),
    "tokens": Suite("processors of transformers, timm and Albumentations, sizes, patches and crops", {"rounds": 7}),
    "datasets": Suite("Python data sets of quick items, beside torch's DataLoader", {"rounds": 7}),
    "training": Suite("the loader beside a model: waiting, states, memory", {"images": 1024, "steps": 100, "batches": 20_000}),
    "compiled": Suite("chains of operators with torch.compile and without", {"rounds": 7, "milliseconds": 40.0}, gpu_module="cuda.compiled"),
    "readers": Suite("readers and the image decoder alone", {"images": 1024, "rounds": 7, "steps": 40}),
    "host": Suite("what 50 repeated calls on a GPU cost the host, measured without one (needs nvcc)", {"rounds": 4}, "cuda.host"),
    "robots": Suite("readers.LeRobot against torchcodec in a DataLoader", {"rounds": 5, "steps": 8}),
    "mixing": Suite("a mix of several data sets of numbers, against Grain and torch's samplers", {"rounds": 7, "steps": 100}),
    "serving": Suite("one encoded photograph at a time, beside torchvision", {"images": 200, "rounds": 5}),
    "graph": Suite("a chain of operators as a CUDA graph (--device cuda)", {"rounds": 7}, "", "cuda.graph"),
    "joins": Suite("an archive of photographs joined with a table of captions, beside both alone", {"images": 2048, "rounds": 7, "steps": 24}),
    "formats": Suite("decoding each kind of file, also on a GPU, against DALI", {"images": 256, "rounds": 5, "steps": 6}, gpu_module="formats"),
    "loads": Suite("the main job at each load of the JPEG engine (--device cuda)", {"images": 1024, "rounds": 2, "steps": 150}, "", "cuda.loads"),
    "hazards": Suite("what JPEG decoders do wrong that only a GPU shows (--device cuda)", {"images": 64, "rounds": 200}, "", "cuda.hazards"),
    "memory": Suite("device memory over many ragged batches (--device cuda)", {"batches": 10_000}, "", "cuda.memory"),
    "batches": Suite("batches by cost, beside the samplers of torch, Lhotse and Grain", {"samples": 65536, "images": 512}),
    "cores": Suite("how busy the threads are: measured here, computed for up to 192", {"images": 512, "rounds": 5, "seconds-each": 0.7}),
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    suites = parser.add_subparsers(dest="suite", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--threads", type=int, default=2, help="threads of every competitor")
    common.add_argument(
        "--only", type=re.compile, metavar="REGEX", help="only competitors (main) or operators (ops, unusual, torchvision) that match"
    )
    common.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where operators run: main, ops, compiled")
    common.add_argument("--seconds", type=float, default=float("inf"), help="with --device cuda: ops and compiled leave out what does not fit")
    common.add_argument("--json", type=Path, metavar="FILE", help="store the figures")
    parsers = {}
    for name, suite in SUITES.items():
        parsers[name] = suites.add_parser(name, parents=[common], help=suite.help)
        for option, default in suite.defaults.items():
            parsers[name].add_argument(f"--{option}", type=type(default), default=default, help=HELP[option])
    for name in ("main", "loads", "hazards"):
        parsers[name].add_argument("--path", help="folder of JPEGs; without it, photographs out of PyPI packages are written to a temporary folder")
    parsers["ops"].add_argument("--against", type=re.compile, metavar="REGEX", help="only competitors that match")
    parsers["ops"].add_argument("--cold", action="store_true", help="single calls of torch_ndd and DALI, each with other data in the caches")
    parsers["compiled"].add_argument("--first", action="store_true", help="also the seconds of the first compilation of each chain")
    pages = suites.add_parser("report", help="write files of --json and the tests' --junitxml into the page of their machine")
    pages.add_argument("files", type=Path, nargs="+")
    pages.add_argument("--folder", type=Path, help="where to write it, by default benchmarks/results")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one benchmark; the exit status is 1 when torch_ndd itself failed in it."""
    try:
        return run(build_parser().parse_args(arguments))
    except ModuleNotFoundError as error:
        print(f"{error}: the benchmarks need `pip install .[bench]`", file=sys.stderr)
        return 2


def run(options: argparse.Namespace) -> int:
    """Run the chosen benchmark, print and store its report."""
    if options.suite == "tokens":
        # Before torch and NumPy are imported. Threads of OpenMP that wait in a loop are charged with CPU time, up to ten times that of the work.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(options.threads))
    from rich.console import Console

    from . import _report, _results

    console = Console()
    if options.suite == "report":
        console.print(f"written to {_results.write_page(options.files, options.folder or _results.FOLDER)}")
        return 0
    suite = SUITES[options.suite]
    module = options.suite if suite.module is None else suite.module
    if options.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            console.print("--device cuda: torch sees no GPU", style="red")
            return 2
        module = suite.gpu_module
    if not module:
        console.print(f"{options.suite} does not run with --device {options.device}", style="red")
        return 2
    facts = _report.environment(options.threads, options.device)
    _report.print_environment(console, facts)
    report = importlib.import_module(f".{module}", __package__).run(options, console)
    if options.json is not None:
        _report.write_json(options.json, {"suite": options.suite, "environment": facts, **report})
        console.print(f"written to {options.json}")
    return int(any(name.startswith("torch_ndd") for name in report["failed"]))


if __name__ == "__main__":
    sys.exit(main())
