# SPDX-License-Identifier: Apache-2.0
"""The directive ``chart``: a bar chart of a column of a benchmark's results page."""

import html
import re
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "cpu.md"
_BAR, _GAP, _LABEL, _WIDTH = 22, 8, 300, 860


def rows(section: str, column: str, page: Path = RESULTS) -> list[tuple[str, float]]:
    """Return the names and numbers of a column of the first table of a section."""
    text = page.read_text()
    found = re.search(rf"^## {re.escape(section)}$(.*?)(?=^## |\Z)", text, re.M | re.S)
    if found is None:
        raise ValueError(f"{page.name} has no section {section!r}")
    lines = [line for line in found[1].splitlines() if line.startswith("|")]
    head = [cell.strip() for cell in lines[0].strip("|").split("|")]
    if column not in head:
        raise ValueError(f"the table of {section!r} has no column {column!r}, but {', '.join(filter(None, head))}")
    at, bars = head.index(column), []
    for line in lines[2:]:
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        try:
            bars.append((cells[0], float(cells[at])))
        except ValueError:
            continue
    return bars


def choose_rows(values: list[tuple[str, float]], names: list[str]) -> list[tuple[str, float]]:
    """Return the rows of these names, in the order of the names."""
    numbers = dict(values)
    if missing := [name for name in names if name not in numbers]:
        raise ValueError(f"the table has no row {', '.join(missing)}, but {', '.join(numbers)}")
    return [(name, numbers[name]) for name in names]


def svg(title: str, values: list[tuple[str, float]]) -> str:
    """Return a chart; those rows whose name begins with torch_ndd stand out."""
    largest = max(number for _, number in values)
    height = len(values) * (_BAR + _GAP) + 40
    parts = [f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{html.escape(title)}" xmlns="http://www.w3.org/2000/svg">']
    parts.append(f'<text x="0" y="18" class="title">{html.escape(title)}</text>')
    for k, (name, number) in enumerate(values):
        y, width = 34 + k * (_BAR + _GAP), (_WIDTH - _LABEL - 80) * number / largest
        kind = "own" if name.startswith(("torch_ndd", "ndd")) else "other"
        parts.append(f'<text x="{_LABEL - 10}" y="{y + 16}" text-anchor="end">{html.escape(name)}</text>')
        parts.append(f'<rect x="{_LABEL}" y="{y}" width="{width:.1f}" height="{_BAR}" class="{kind}"/>')
        parts.append(f'<text x="{_LABEL + width + 8:.1f}" y="{y + 16}">{number:g}</text>')
    return "".join([*parts, "</svg>"])


class Chart(SphinxDirective):
    """Draw a column of a table of the results page, or those of its rows that ``rows`` lists, separated by ``|``."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = dict.fromkeys(("title", "column", "rows"), directives.unchanged_required)

    def run(self) -> list[nodes.Node]:
        """Return the nodes."""
        self.env.note_dependency(str(RESULTS))
        try:
            values = rows(self.arguments[0], self.options["column"])
            if "rows" in self.options:
                values = choose_rows(values, [name.strip() for name in self.options["rows"].split("|")])
        except ValueError as error:
            raise self.error(str(error)) from None
        return [nodes.raw("", f'<div class="chart-box">{svg(self.options["title"], values)}</div>', format="html")]


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("chart", Chart)
    return {"parallel_read_safe": True}
