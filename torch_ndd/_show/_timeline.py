# SPDX-License-Identifier: Apache-2.0
"""Timeline of a loader and its threads: as a picture, or as a trace for a browser."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .._core.process.files import write_whole
from .._core.work.diagnosis import Span
from ._saving import save_picture

if TYPE_CHECKING:
    from PIL.Image import Image

# As wide as a page of documentation or half a notebook, so the text stays readable where the picture is scaled.
_WIDTH, _LEFT, _ROW, _GAP, _LINE, _TEXT = 800, 84, 22, 5, 20, 14
_COLUMNS = 3  # of the legend
_SECONDS = 2.0  # the picture shows the end of a longer run
_OPERATORS = ((0, 114, 178), (204, 121, 167), (240, 228, 66), (117, 112, 179), (140, 86, 75), (23, 190, 207), (127, 127, 127))
_STAGES = {"model": (0, 158, 115), "wait": (213, 94, 0), "read": (86, 180, 233), "fn": (230, 159, 0)}


def write(spans: Sequence[Span], path: str | Path, title: str) -> None:
    """Write a timeline: a trace for https://ui.perfetto.dev or chrome://tracing (``.json``), or a picture."""
    if Path(path).suffix == ".json":
        write_whole(path, json.dumps(trace(spans)))
    else:
        save_picture(picture(spans, title), path)


def trace(spans: Sequence[Span]) -> dict[str, object]:
    """Return the spans in Chrome's trace format; times are in microseconds."""
    rows = {thread: k for k, thread in enumerate(_rows(spans))}
    names = [{"ph": "M", "name": "thread_name", "pid": 1, "tid": k, "args": {"name": thread}} for thread, k in rows.items()]
    events = [
        {"ph": "X", "name": span.name, "pid": 1, "tid": rows[span.thread], "ts": span.begin / 1e3, "dur": (span.end - span.begin) / 1e3}
        for span in spans
    ]
    return {"traceEvents": [*names, *events], "displayTimeUnit": "ms"}


def picture(spans: Sequence[Span], title: str) -> Image:
    """Return the last seconds as a picture: one row per thread, one color per stage or operator. Needs Pillow."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise ImportError("a timeline as a picture needs Pillow: pip install torch_ndd[demo]; a path that ends in .json needs nothing") from error
    end = max((span.end for span in spans), default=0)
    begin = max(min((span.begin for span in spans), default=0), end - int(_SECONDS * 1e9))
    shown = [span for span in spans if span.end > begin]
    rows, colors = _rows(shown), _colors(shown)
    lines = _wrap(title)
    top = _LINE * len(lines) + 10
    legend = list(colors)
    canvas = Image.new("RGB", (_WIDTH, top + len(rows) * (_ROW + _GAP) + 28 + _LINE * -(-len(legend) // _COLUMNS)), "white")
    draw = ImageDraw.Draw(canvas)
    draw.font = ImageFont.load_default(_TEXT)
    for k, line in enumerate(lines):
        draw.text((6, 4 + _LINE * k), line, fill="black")
    scale = (_WIDTH - _LEFT - 6) / max(1, end - begin)
    for k, row in enumerate(rows):
        y = top + k * (_ROW + _GAP)
        draw.text((6, y + 2), row, fill="black")
        draw.rectangle((_LEFT, y, _WIDTH - 6, y + _ROW), fill=(244, 244, 244))
        for span in shown:
            if span.thread == row:
                left = _LEFT + max(0, span.begin - begin) * scale
                draw.rectangle((left, y, max(left, _LEFT + (span.end - begin) * scale), y + _ROW), fill=colors[span.name])
    y = top + len(rows) * (_ROW + _GAP)
    draw.text((_LEFT, y), f"the last {(end - begin) * 1e-6:.0f} ms", fill="black")
    for k, name in enumerate(legend):
        x, line = 6 + k % _COLUMNS * (_WIDTH // _COLUMNS), y + 24 + _LINE * (k // _COLUMNS)
        draw.rectangle((x, line + 2, x + 12, line + 14), fill=colors[name])
        draw.text((x + 18, line), name, fill="black")
    return canvas


def _rows(spans: Sequence[Span]) -> list[str]:
    """Return the threads: those of the loop first, then workers by number."""
    found = {span.thread for span in spans}
    first = [row for row in ("program", "loader") if row in found]
    return first + sorted(found.difference(first), key=lambda row: int(row.rsplit(" ", 1)[1]))


def _colors(spans: Sequence[Span]) -> dict[str, tuple[int, int, int]]:
    """Return a color per name: those of the stages, then, the longest work first, colors that repeat in lighter shades."""
    seconds: dict[str, int] = {}
    for span in spans:
        seconds[span.name] = seconds.get(span.name, 0) + span.end - span.begin
    colors = {name: color for name, color in _STAGES.items() if name in seconds}
    for k, name in enumerate(sorted((name for name in seconds if name not in _STAGES), key=lambda name: -seconds[name])):
        lighter = k // len(_OPERATORS) * 50
        red, green, blue = (min(255, value + lighter) for value in _OPERATORS[k % len(_OPERATORS)])
        colors[name] = red, green, blue
    return colors


def _wrap(text: str, width: int = 105) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += word + " "
    return lines
