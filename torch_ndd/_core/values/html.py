# SPDX-License-Identifier: Apache-2.0
"""HTML representations of values for notebooks."""

import base64
import html
import io
from collections.abc import Iterable
from typing import Any

from ..._show import show

_MAX_BYTES = 64 << 20  # of a value that a notebook draws by default
_MAX_SAMPLES = 16


def table(title: str, rows: Iterable[tuple[str, Any]], below: str = "") -> str:
    """Return a small table of names and values; ``below`` is HTML."""
    cells = "".join(
        f'<tr><td style="text-align:left">{html.escape(name)}</td><td style="text-align:left">{html.escape(str(value))}</td></tr>'
        for name, value in rows
    )
    return f"<div><b>{html.escape(title)}</b><table>{cells}</table>{below}</div>"


def image(picture: Any) -> str:
    """Return a Pillow image as an HTML element."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return f'<img src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"/>'


def format_values(value: Any) -> str:
    """Return the description of a Tensor or a Batch, with a picture of images. Waits for the values of small batches."""
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
    if value.buffer.numel() * value.buffer.itemsize <= _MAX_BYTES and (not batch or value.batch_size):
        try:
            below = image(show(value.select(range(min(value.batch_size, _MAX_SAMPLES))) if batch else value))
        except (ImportError, TypeError, ValueError, RuntimeError):  # no Pillow, or not an image
            below = f"<pre>{html.escape(repr(value))}</pre>" if value.buffer.numel() <= 1000 else ""
    return table(type(value).__name__, rows, below)
