# SPDX-License-Identifier: Apache-2.0
"""Every right-hand cell of the migration tables is an expression that runs."""

import re
import sys
from pathlib import Path

import pytest

import torch_ndd as ndd

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

from samples import names  # noqa: E402

ROW = re.compile(r"^\|(.+)\| `([^`]+)` \|$", re.M)
PAGES = sorted((DOCS / "migrate").glob("*.md"))
LINES = [(f"{path.stem}: {left.strip()[:50]}", right) for path in PAGES for left, right in ROW.findall(path.read_text())]


def test_all_rows_are_found() -> None:
    lines = [line for path in PAGES for line in path.read_text().splitlines()]
    rows = sum(line.startswith("|") and "---" not in line for line in lines)
    heads = sum(line.startswith("|---") for line in lines)
    assert len(LINES) == rows - heads


@pytest.mark.parametrize("code", [right for _, right in LINES], ids=[left for left, _ in LINES])
def test_row(code: str) -> None:
    space = names()
    photos = space["photos"]
    space |= {"images": photos, "n": photos.batch_size, "reader": ndd.readers.File(file_root=space["data"].folder, max_batch_size=4)}
    space["jpegs"] = space["reader"](batch_size=4)[0]
    threads = ndd.get_num_threads()
    try:
        made = eval(code, space)
        for one in made if isinstance(made, tuple) else (made,):
            if isinstance(one, ndd.Batch | ndd.Tensor):
                one.evaluate()
            elif isinstance(one, ndd.DataLoader):
                next(iter(one))
    finally:
        ndd.set_num_threads(threads)
