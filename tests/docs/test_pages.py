# SPDX-License-Identifier: Apache-2.0
"""The gallery shows every operator, and the code of all pages runs."""

import sys
from pathlib import Path

import numpy as np
import pytest

import torch_ndd as ndd
from torch_ndd._core.operators.definition import OPERATORS

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

from pictures import Example, draw, examples  # noqa: E402

EXAMPLES = [(f"{path.stem}-{example.name}", example) for path, example in examples()]


def test_every_operator_has_a_picture() -> None:
    shown = {example.name for _, example in EXAMPLES}
    readers = {f"readers.{name}" for name in dir(ndd.readers) if name[0].isupper() and issubclass(getattr(ndd.readers, name), ndd.readers.Reader)}
    wanted = {name for name in OPERATORS if name != "arithmetic"} | (readers - {"readers.Reader"})
    assert not sorted(wanted - shown)


@pytest.mark.parametrize("example", [example for _, example in EXAMPLES], ids=[name for name, _ in EXAMPLES])
def test_examples_of_pages_run(example: Example) -> None:
    picture, printed = draw(example)
    assert printed or picture is not None
    if picture is not None:
        assert picture.width >= 50
        assert np.asarray(picture).std() > 1, "a picture of one color"


def test_every_operator_has_a_reference() -> None:
    pages = "".join(path.read_text() for path in (DOCS / "reference").rglob("*.md"))
    modules = {op.body.__module__.removeprefix("torch_ndd.") for name, op in OPERATORS.items() if name != "arithmetic"}
    assert not sorted(module for module in modules if module not in pages)


def test_the_reference_names_arguments_without_effect() -> None:
    from reference import _docstring, without_effect

    unused = without_effect("resize")
    lines: list[str] = []
    _docstring(None, "function", "torch_ndd.resize", ndd.resize, None, lines)
    assert unused
    assert all(f"``{argument}``" in lines[1] for argument in unused)
