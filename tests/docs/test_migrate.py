# SPDX-License-Identifier: Apache-2.0
"""The code in the last column of the migration tables runs as it is shown."""

import ast
import functools
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torch_ndd as ndd
from torch_ndd.readers._sample_source import SampleSource

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

from samples import names  # noqa: E402

CODE = re.compile(r"`([^`]+)`")


def rows() -> Iterator[tuple[str, str]]:
    """Yield the rows of the tables whose last column is torch_ndd: a name for the test, and the code of the last cell."""
    for path in sorted((DOCS / "migrate").glob("*.md")):
        inside = False
        for line in path.read_text().splitlines():
            if not line.startswith("|"):
                inside = False
            elif line.endswith("| torch_ndd |"):
                inside = True
            elif inside and not line.startswith("|---"):
                left, right = line.strip("|").rsplit("|", 1)
                code = CODE.match(right.strip())
                assert code, f"{path.name}: the last cell does not begin with code: {line}"
                yield f"{path.stem}: {left.strip()[:50]}", code[1]


LINES = list(rows())


@functools.cache
def read_robots(folder: str) -> tuple[ndd.readers.LeRobot, Any]:
    """Return a reader of robots' data and its first batch, which no cell changes."""
    reader = ndd.readers.LeRobot(path=folder)
    return reader, next(reader.next_epoch(4))


def test_every_page_has_a_table() -> None:
    assert len(LINES) > 80
    without = {path.stem for path in (DOCS / "migrate").glob("*.md")} - {name.split(":")[0] for name, _ in LINES}
    assert without == {"index", "dali_pipelines"}


@pytest.mark.parametrize("code", [code for _, code in LINES], ids=[name for name, _ in LINES])
def test_code_of_the_table_runs(code: str) -> None:
    """With the names that the pages explain: a reader would type the cell as it is."""
    if 'device="gpu"' in code and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    space = names()
    root = space["data"].folder
    reader = ndd.readers.File(file_root=root, max_batch_size=4)
    jpegs, _ = reader(batch_size=4)
    images = space["photos"]
    space |= {"images": images, "n": images.batch_size, "labels": ndd.batch([0, 1, 2, 3]), "root": root, "reader": reader, "jpegs": jpegs}
    space |= {
        "augment": lambda jpegs, labels: (ndd.resize(ndd.decoders.image(jpegs), size=[32, 32]), labels),
        "batch": ndd.resize(images, size=[8, 8]),
    }
    space["loader"] = ndd.DataLoader(reader, space["augment"], batch_size=4)
    data = space["data"]
    space |= {"robot": data.robot, "cuts": data.cuts, "manifest": data.manifest, "archives": data.tars, "wav": data.sound}
    space["robots"], space["frames"] = read_robots(data.robot)
    space |= {"items": [(np.full(2, k, np.float32), k) for k in range(8)], "sounds": ndd.batch([torch.rand(16000), torch.rand(12000)])}
    space |= {"dataset": ndd.ImageFolder(root), "indices": [0, 2, 3], "weights": [1.0 + k for k in range(len(ndd.ImageFolder(root)))]}
    space["features"] = ndd.batch([torch.rand(60, 80), torch.rand(50, 80)])
    if "jax" in code:
        space["jax"] = importlib.import_module("jax")
    threads = ndd.get_num_threads()
    try:
        tree = ast.parse(code)
        if not isinstance(tree.body[-1], ast.Expr):
            exec(code, space)
            return
        result = eval(code, space)
        for value in result if isinstance(result, tuple) else (result,):
            if isinstance(value, ndd.Batch | ndd.Tensor):
                value.evaluate()
            elif isinstance(value, ndd.DataLoader):
                next(iter(value), None)
            elif isinstance(value, SampleSource):
                next(value.next_epoch(2))
    finally:
        ndd.set_num_threads(threads)
