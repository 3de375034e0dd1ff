# SPDX-License-Identifier: Apache-2.0
"""HTML representations of values for notebooks."""

import base64
import html
import io
from collections.abc import Iterable
from typing import Any

from ..._show import show

_MOST_BYTES = 64 << 20  # of a batch that is drawn unasked
_MOST_SAMPLES = 16


def table(title: str, rows: Iterable[tuple[str, Any]], below: str = "") -> str:
    """Return a small table of names and values; ``below`` is HTML."""
    cells = "".join(
        f'<tr><td style="text-align:left">{html.escape(name)}</td><td style="text-align:left">{html.escape(str(value))}</td></tr>'
        for name, value in rows
    )
    return f"<div><b>{html.escape(title)}</b><table>{cells}</table>{below}</div>"


def image(picture: Any) -> str:
    """Return a picture of Pillow as an element of HTML."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return f'<img src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"/>'


def of_values(value: Any) -> str:
    """Return the description of a Tensor or a Batch, with a picture where there is one. Waits for the values of small batches."""
    batch = hasattr(value, "batch_size")
    shapes = sorted(set(value.shape)) if batch else [value.shape]
    rows = [
        *([("samples", value.batch_size)] if batch else []),
        (
            "shape" if len(shapes) == 1 else "shapes",
            ", ".join(map(str, shapes[:4])) + (f", ... ({len(shapes)} different)" if len(shapes) > 4 else ""),
        ),
        ("dtype", str(value.dtype).removeprefix("torch.")),
        *([("layout", value.layout)] if value.layout else []),
        ("device", value.device),
    ]
    below = ""
    if value.buffer.numel() * value.buffer.itemsize <= _MOST_BYTES and (not batch or value.batch_size):
        try:
            below = image(show(value.select(range(min(value.batch_size, _MOST_SAMPLES))) if batch else value))
        except (ImportError, TypeError, ValueError, RuntimeError):  # no Pillow, or nothing that can be drawn
            below = f"<pre>{html.escape(repr(value))}</pre>" if value.buffer.numel() <= 1000 else ""
    return table(type(value).__name__, rows, below)
