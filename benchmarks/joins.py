# SPDX-License-Identifier: Apache-2.0
"""An archive of photographs joined with a table of captions, beside both readers alone: what ``readers.Join`` costs, by CPU time and by wall time.

A join does the work of both readers, so its CPU time is compared with their sum as well as with that of the archive alone, with and without decoding.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import io
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from . import _rounds
from ._loaders import BATCH, SUBJECT
from ._photos import write_jpegs
from ._process import Handler, limit_threads, running

Batches = Iterator[Any]

_DISCARD = 8
ARCHIVE, TABLE = "archive", "table"
DECODED, DECODED_ARCHIVE = "torch_ndd, join, decoded", "archive, decoded"


def _write(folder: Path, count: int) -> None:
    """Write an archive of photographs with their keys, and a table of captions in another order."""
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    with tarfile.open(folder / "images.tar", "w") as archive:
        for k, path in enumerate(write_jpegs(folder, count)):
            for ending, content in (("jpg", path.read_bytes()), ("id", b"image %d" % k)):
                member = tarfile.TarInfo(f"{k:06}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    order = np.random.default_rng(0).permutation(count).tolist()
    captions = [f"a caption of some words for the photograph {k}" for k in order]
    table = arrow.table({"id": [f"image {k}" for k in order], "caption": captions})
    parquet.write_table(table, folder / "captions.parquet", row_group_size=1024)


def _batches(folder: Path, joined: bool, left: bool, decoded: bool) -> Batches:
    ndd = importlib.import_module("torch_ndd")
    archive = functools.partial(ndd.readers.Webdataset, paths=folder / "images.tar", ext=["jpg", "id"])
    table = functools.partial(ndd.readers.Parquet, path=folder / "captions.parquet")
    if joined:
        named = ndd.Source(archive(), lambda image, key: {"image": image, "id": key})
        reader = ndd.readers.Join(named, table(), on="id", random_shuffle=True)
    else:
        reader = (archive if left else table)(random_shuffle=True)
    while True:
        for batch in reader.next_epoch(BATCH):
            if decoded:
                ndd.resize(ndd.decoders.image(batch["image"] if joined else batch[0]), size=[224, 224]).stack().torch()
            yield batch


def handler(folder: Path, arguments: dict[str, bool]) -> Handler:
    """Run in the competitor's process: answer a number of steps with a round."""
    return _rounds.start(_batches(folder, **arguments), _DISCARD)


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure, print the table, return the figures."""
    limit_threads(options.threads)
    competitors: dict[str, dict[str, bool]] = {
        SUBJECT: {"joined": True, "left": False, "decoded": False},
        ARCHIVE: {"joined": False, "left": True, "decoded": False},
        TABLE: {"joined": False, "left": False, "decoded": False},
        DECODED: {"joined": True, "left": False, "decoded": True},
        DECODED_ARCHIVE: {"joined": False, "left": True, "decoded": True},
    }
    with tempfile.TemporaryDirectory(prefix="torch_ndd_bench_") as name:
        folder = Path(name)
        _write(folder, options.images)
        processes: dict[str, tuple[Callable[..., Handler], tuple[Any, ...]]] = {
            key: (handler, (folder, arguments)) for key, arguments in competitors.items()
        }
        with running(processes) as (peers, failed):
            figures = _rounds.figures(_rounds.alternate(peers, options.steps, options.rounds, failed, settle=True), "samples")
    micros = {key: 1e6 / row["samples_per_cpu_second"] for key, row in figures.items()}
    table = Table(title=f"{options.images} photographs and captions, batches of {BATCH}, {options.rounds} rounds of {options.steps}")
    table.add_column("reader")
    for heading in ("samples/s", "CPU us a sample"):
        table.add_column(heading, justify="right")
    for key, row in figures.items():
        table.add_row(key, f"{row['samples_per_second']:,.0f}", f"{micros[key]:.1f}")
    console.print(table)
    ratios = {}
    if not failed:
        ratios = {
            "of the archive": micros[SUBJECT] / micros[ARCHIVE],
            "of the archive and the table": micros[SUBJECT] / (micros[ARCHIVE] + micros[TABLE]),
            "of the decoded archive": micros[DECODED] / micros[DECODED_ARCHIVE],
        }
        console.print("CPU time of the join, x times that " + ", ".join(f"{what}: {ratio:.2f}" for what, ratio in ratios.items()) + " (bar 1.10)")
        seconds = {key: 1 / row["samples_per_second"] for key, row in figures.items()}
        times = {
            "of the slower reader": seconds[SUBJECT] / max(seconds[ARCHIVE], seconds[TABLE]),
            "of the decoded archive": seconds[DECODED] / seconds[DECODED_ARCHIVE],
        }
        console.print("time of the join, x times that " + ", ".join(f"{what}: {ratio:.2f}" for what, ratio in times.items()) + " (bar 1.10)")
        ratios |= {f"time {what}": ratio for what, ratio in times.items()}
    return {"batch": BATCH, "results": figures, "ratios": ratios, "failed": failed}
