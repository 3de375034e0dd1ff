# SPDX-License-Identifier: Apache-2.0
"""The command line: ``python -m benchmarks SUITE [--json FILE]``."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Any


def main(arguments: list[str] | None = None) -> int:
    """Run one benchmark; the exit status is 1 when torch_ndd itself failed in it."""
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
    job = suites.add_parser("main", parents=[common], help="JPEG files to normalized training batches")
    job.add_argument("--path", help="folder of JPEGs; without it, photographs out of PyPI packages are written to a temporary folder")
    job.add_argument("--images", type=int, default=1024, help="how many JPEGs to write")
    job.add_argument("--rounds", type=int, default=7)
    job.add_argument("--steps", type=int, default=12, help="batches a round")
    whole = suites.add_parser("recipes", parents=[common], help="transforms of torchvision and timm, against their DataLoader")
    whole.add_argument("--images", type=int, default=512, help="how many JPEGs to write")
    whole.add_argument("--rounds", type=int, default=5)
    whole.add_argument("--steps", type=int, default=4, help="batches a round")
    large = suites.add_parser("large", parents=[common], help="JPEGs of 12 megapixels to 224x224")
    large.add_argument("--images", type=int, default=16, help="how many JPEGs to write")
    large.add_argument("--rounds", type=int, default=5)
    large.add_argument("--steps", type=int, default=3, help="batches of 8 a round")
    operators = suites.add_parser("ops", parents=[common], help="every operator on 16 VGA photographs")
    operators.add_argument("--against", type=re.compile, metavar="REGEX", help="only competitors that match")
    operators.add_argument("--cold", action="store_true", help="single calls of torch_ndd and DALI, each with other data in the caches")
    operators.add_argument("--rounds", type=int, default=7)
    operators.add_argument("--milliseconds", type=float, default=40, help="length of one measurement")
    unusual_ones = suites.add_parser("unusual", parents=[common], help="operators with unusual arguments and inputs, against DALI")
    unusual_ones.add_argument("--rounds", type=int, default=5)
    unusual_ones.add_argument("--milliseconds", type=float, default=15, help="length of one measurement")
    mirror = suites.add_parser(
        "torchvision", parents=[common], help="functionals of torch_ndd.torchvision.v2 against torchvision's, on a stacked batch"
    )
    mirror.add_argument("--rounds", type=int, default=5)
    mirror.add_argument("--milliseconds", type=float, default=20, help="length of one measurement")
    models = suites.add_parser("tokens", parents=[common], help="processors of transformers, timm and Albumentations, sizes, patches and crops")
    models.add_argument("--rounds", type=int, default=7)
    training = suites.add_parser("training", parents=[common], help="the loader beside a model: waiting, states, memory")
    training.add_argument("--images", type=int, default=1024, help="how many JPEGs to write")
    training.add_argument("--steps", type=int, default=100, help="batches of a measurement")
    training.add_argument("--batches", type=int, default=20_000, help="batches of the soak")
    chains = suites.add_parser("compiled", parents=[common], help="chains of operators with torch.compile and without")
    chains.add_argument("--first", action="store_true", help="also the seconds of the first compilation of each chain")
    chains.add_argument("--rounds", type=int, default=7)
    chains.add_argument("--milliseconds", type=float, default=40, help="length of one measurement")
    reading = suites.add_parser("readers", parents=[common], help="readers and the image decoder alone")
    reading.add_argument("--images", type=int, default=1024, help="how many JPEGs and arrays to write")
    reading.add_argument("--rounds", type=int, default=7)
    reading.add_argument("--steps", type=int, default=40, help="batches a round")
    host = suites.add_parser("host", parents=[common], help="what calls on a GPU cost the host, measured without one (needs nvcc)")
    host.add_argument("--rounds", type=int, default=4, help="times 50 repeated calls")
    robots = suites.add_parser("robots", parents=[common], help="readers.LeRobot against torchcodec in a DataLoader")
    robots.add_argument("--rounds", type=int, default=5)
    robots.add_argument("--steps", type=int, default=8, help="batches a round")
    mixing_job = suites.add_parser("mixing", parents=[common], help="several data sets of numbers as one, against Grain and torch's samplers")
    mixing_job.add_argument("--rounds", type=int, default=7)
    mixing_job.add_argument("--steps", type=int, default=100, help="batches a round")
    latency = suites.add_parser("serving", parents=[common], help="one encoded photograph at a time, beside torchvision")
    latency.add_argument("--images", type=int, default=200, help="how many JPEGs to write")
    latency.add_argument("--rounds", type=int, default=5)
    graph = suites.add_parser("graph", parents=[common], help="a chain of operators as a CUDA graph (--device cuda)")
    graph.add_argument("--rounds", type=int, default=7)
    joining = suites.add_parser("joins", parents=[common], help="an archive of photographs joined with a table of captions, beside both alone")
    joining.add_argument("--images", type=int, default=2048, help="how many JPEGs to write")
    joining.add_argument("--rounds", type=int, default=7)
    joining.add_argument("--steps", type=int, default=24, help="batches a round")
    kinds = suites.add_parser("formats", parents=[common], help="decoding each kind of file, also on a GPU, against DALI")
    kinds.add_argument("--images", type=int, default=256, help="how many photographs to write in each format")
    kinds.add_argument("--rounds", type=int, default=5)
    kinds.add_argument("--steps", type=int, default=6, help="batches a round")
    memory = suites.add_parser("memory", parents=[common], help="device memory over many ragged batches (--device cuda)")
    memory.add_argument("--batches", type=int, default=10_000)
    planning = suites.add_parser("batches", parents=[common], help="batches by cost, beside the samplers of torch, Lhotse and Grain")
    planning.add_argument("--samples", type=int, default=65536)
    planning.add_argument("--images", type=int, default=512, help="how many JPEGs to write")
    many = suites.add_parser("cores", parents=[common], help="how busy the threads are: measured here, computed for up to 192")
    many.add_argument("--images", type=int, default=512, help="how many JPEGs to write")
    many.add_argument("--rounds", type=int, default=5)
    many.add_argument("--seconds-each", type=float, default=0.7, help="length of one measurement")
    pages = suites.add_parser("report", help="write files of --json and the tests' --junitxml into the page of their machine")
    pages.add_argument("files", type=Path, nargs="+")
    pages.add_argument("--folder", type=Path, help="where to write it, by default benchmarks/results")
    options = parser.parse_args(arguments)

    try:
        return run(options)
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

    from . import (
        _report,
        _results,
        batches,
        compiled,
        cores,
        formats,
        joins,
        large,
        main_job,
        mixing,
        ops,
        readers,
        recipes,
        robots,
        serving,
        tokens,
        torchvision,
        training,
        unusual,
    )

    console = Console()
    if options.suite == "report":
        console.print(f"written to {_results.write_page(options.files, options.folder or _results.FOLDER)}")
        return 0
    suites: dict[str, Any] = {
        **{"main": main_job, "ops": ops, "recipes": recipes, "unusual": unusual, "torchvision": torchvision, "tokens": tokens},
        **{
            "compiled": compiled,
            "large": large,
            "readers": readers,
            "training": training,
            "cores": cores,
            "formats": formats,
            "batches": batches,
            "mixing": mixing,
            "joins": joins,
            "robots": robots,
            "serving": serving,
        },
    }
    if options.suite == "host":
        from .cuda import host as host_calls

        suites["host"] = host_calls
    if options.device == "cuda":
        import torch

        from . import cuda

        if not torch.cuda.is_available():
            console.print("--device cuda: torch sees no GPU", style="red")
            return 2
        suites = {"main": main_job, "ops": cuda.ops, "compiled": cuda.compiled, "graph": cuda.graph, "memory": cuda.memory, "formats": formats}
    if options.suite not in suites:
        console.print(f"{options.suite} does not run with --device {options.device}", style="red")
        return 2
    facts = _report.environment(options.threads, options.device)
    _report.print_environment(console, facts)
    report = suites[options.suite].run(options, console)
    if options.json is not None:
        _report.write_json(options.json, {"suite": options.suite, "environment": facts, **report})
        console.print(f"written to {options.json}")
    return int(any(name.startswith("torch_ndd") for name in report["failed"]))


if __name__ == "__main__":
    sys.exit(main())
