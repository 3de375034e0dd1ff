# SPDX-License-Identifier: Apache-2.0
"""The page "From Albumentations" lists what the package translates and refuses, and its example runs."""

import re
from pathlib import Path

import numpy as np
from _album_rows import A, photographs

import torch_ndd as ndd
from torch_ndd.albumentations._registry import REFUSED, STEPS

PAGE = (Path(__file__).parents[2] / "docs" / "migrate" / "albumentations.md").read_text()


def read_table(heading: str) -> list[list[str]]:
    """Return the cells of the table that begins with a heading."""
    lines = PAGE[PAGE.index(f"| {heading} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_table_of_transforms_is_complete() -> None:
    names = [name for cells in read_table("Transforms") for name in re.findall(r"`(\w+)`", cells[0])]
    assert sorted(names) == sorted(STEPS)


def test_table_of_refused_transforms_is_complete() -> None:
    reasons = {name: cells[1] for cells in read_table("Refused") for name in re.findall(r"`(\w+)`", cells[0])}
    assert reasons == REFUSED


def test_example_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    boxes = ndd.as_batch([np.array([[50.0, 60.0, 150.0, 100.0]], np.float32)] * 3)
    space = {"images": ndd.as_batch(photographs(), layout="HWC"), "boxes": boxes, "classes": ndd.as_batch([[1], [2], [3]])}
    exec(code, space)
    batch = space["batch"]
    assert batch["image"].shape == [(200, 200, 3)] * 3
    assert [len(rows) for rows in batch["bboxes"]] == [len(rows) for rows in batch["classes"]]


def test_readme_counts_the_transforms() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text()
    assert f"{len(STEPS)} transforms of Albumentations" in text
    assert A.__version__ == "2.0.8"
