# SPDX-License-Identifier: Apache-2.0
"""The table of what the function of a loader receives from each source says what it receives."""

import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import torch_ndd as ndd

DOCS = pathlib.Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

from samples import names  # noqa: E402

LINES = [line.strip("| ").split(" | ") for line in (DOCS / "concepts/function.md").read_text().splitlines() if line.startswith("| `")]
ROWS = [(re.findall(r"`([^`]+)`", source)[0], received, sample) for source, received, sample in LINES]


def describe(value: Any) -> Iterator[tuple[str, int]]:
    """Yield the types and numbers of axes of the Batches in what the function has received."""
    if isinstance(value, ndd.Batch):
        yield str(value.dtype).removeprefix("torch."), value.ndim
    elif isinstance(value, dict | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from describe(part)


@pytest.mark.parametrize(("source", "received", "sample"), ROWS, ids=[source[:60] for source, _, _ in ROWS])
def test_the_function_receives_what_the_table_says(monkeypatch: pytest.MonkeyPatch, source: str, received: str, sample: str) -> None:
    space = {**names(), "pathlib": pathlib}
    monkeypatch.chdir(space["data"].place)
    calls: list[tuple[Any, ...]] = []

    def fn(*arguments: Any) -> Any:
        calls.append(arguments)
        return ndd.batch([0])

    next(iter(ndd.DataLoader(eval(source, space), fn, batch_size=2)))
    arguments = calls[0]
    expected = [(dtype, len([axis for axis in axes.split(",") if axis.strip()])) for dtype, axes in re.findall(r"(\w+) \(([^)]*)\)", sample)]
    assert list(describe(arguments)) == expected
    assert ("dict" in received) == isinstance(arguments[0], dict)
    if listed := re.match(r"`([\w, ()]+)`", received):
        assert len(arguments) == len(re.sub(r"\(.*?\)", "pair", listed[1]).split(","))


def test_every_source_is_in_the_table() -> None:
    assert len(ROWS) >= 15
