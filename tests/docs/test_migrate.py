# SPDX-License-Identifier: Apache-2.0
"""Every right-hand cell of the name by name tables is an expression that runs."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import torch_ndd as ndd

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

from samples import names  # noqa: E402

ROW = re.compile(r"^\|(.+)\| `([^`]+)` \|$")


def rows() -> Iterator[tuple[str, str]]:
    """Yield the rows of the tables whose last column is torch_ndd: where it stands, and the code."""
    for path in sorted((DOCS / "migrate").glob("*.md")):
        inside = False
        for line in path.read_text().splitlines():
            if not line.startswith("|"):
                inside = False
            elif line.endswith("| torch_ndd |"):
                inside = True
            elif inside and not line.startswith("|---"):
                found = ROW.match(line)
                assert found, f"{path.name}: the last cell is not code: {line}"
                yield f"{path.stem}: {found[1].strip()[:50]}", found[2]


LINES = list(rows())


def test_every_page_has_a_table() -> None:
    assert len(LINES) > 80
    without = {path.stem for path in (DOCS / "migrate").glob("*.md")} - {name.split(":")[0] for name, _ in LINES}
    assert without == {"index", "dali_pipelines"}


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
