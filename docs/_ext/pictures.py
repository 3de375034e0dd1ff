# SPDX-License-Identifier: Apache-2.0
"""The examples of the documentation: fenced blocks of Markdown whose code makes the picture or the text beside it."""

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw
from samples import names

import torch_ndd as ndd

DOCS = Path(__file__).parent.parent
_BLOCK = re.compile(r"^```\{picture\} (?P<name>\S+)\n(?P<options>(?::\w+:[^\n]*\n)*)\n?(?P<code>.*?)^```$", re.M | re.S)
_OPTION = re.compile(r"^:(\w+):\s*(.*)$", re.M)
_MARGIN, _TEXT = 8, 18


@dataclass
class Example:
    """One block: the operator's name, the code, and what is drawn.

    Options: ``show`` and ``before`` are expressions (by default the variable ``out``, and nothing); a picture of Pillow is shown as it is. ``boxes``,
    ``before_boxes``, ``masks``, ``rate``, ``columns`` and ``labels`` are what :func:`torch_ndd.show` takes.
    """

    name: str
    code: str
    options: dict[str, str]


def examples(folder: Path = DOCS) -> Iterator[tuple[Path, Example]]:
    """Yield all blocks of the pages below a folder."""
    for path in sorted(folder.rglob("*.md")):
        for found in _BLOCK.finditer(path.read_text()):
            yield path, Example(found["name"], found["code"], dict(_OPTION.findall(found["options"])))


@contextmanager
def _in_folder(folder: str) -> Iterator[None]:
    """Work in the folder of the example data, whose files the code names as users name theirs."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run(space: dict[str, Any], example: Example) -> str:
    """Run the code, which adds its names to ``space``, and return what it prints."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(example.code, f"<picture {example.name}>", "exec"), space)
    return printed.getvalue()


def draw(example: Example) -> tuple[Image.Image | None, str]:
    """Return the picture and the printed text of an example."""
    space = names()
    with _in_folder(space["data"].place):
        return _draw(space, example)


def _draw(space: dict[str, Any], example: Example) -> tuple[Image.Image | None, str]:
    printed = run(space, example)
    options = example.options
    if options.get("show") == "nothing":
        return None, printed

    def value(key: str) -> Any:
        return eval(options[key], space) if key in options else None

    shown = value("show") if "show" in options else space["out"]
    if isinstance(shown, Image.Image):
        return shown, printed
    rate = value("rate")
    after = ndd.show(shown, boxes=value("boxes"), masks=value("masks"), sample_rate=rate, columns=value("columns"), labels=value("labels"))
    if "before" not in options:
        return after, printed
    before = ndd.show(value("before"), boxes=value("before_boxes"), masks=value("before_masks"), sample_rate=rate, columns=value("columns"))
    return _beside(before, after), printed


def _beside(before: Image.Image, after: Image.Image) -> Image.Image:
    height = max(before.height, after.height) + _TEXT
    canvas = Image.new("RGB", (before.width + after.width + _MARGIN, height), "white")
    pen = ImageDraw.Draw(canvas)
    for left, picture, text in ((0, before, "before"), (before.width + _MARGIN, after, "after")):
        canvas.paste(picture, (left, _TEXT))
        pen.text((left + 4, 2), text, fill="#555555")
    return canvas
