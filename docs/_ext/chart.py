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
    at, numbers = head.index(column), []
    for line in lines[2:]:
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        try:
            numbers.append((cells[0], float(cells[at])))
        except ValueError:
            continue
    return numbers


def choose_rows(values: list[tuple[str, float]], names: list[str]) -> list[tuple[str, float]]:
    """Return the rows of these names, in the order of the names."""
    numbers = dict(values)
    if missing := [name for name in names if name not in numbers]:
        raise ValueError(f"the table has no row {', '.join(missing)}, but {', '.join(numbers)}")
    return [(name, numbers[name]) for name in names]


def bars(title: str, values: list[tuple[str, float]]) -> str:
    """Return a chart as HTML; those rows whose name begins with torch_ndd stand out."""
    largest = max(number for _, number in values)
    rows = []
    for name, number in values:
        kind = "own" if name.startswith(("torch_ndd", "ndd")) else "other"
        bar = f'<span class="bar {kind}" style="--part: {number / largest:.3f}"></span>'
        rows.append(f'<div class="row"><span class="name">{html.escape(name)}</span><span class="track">{bar}<span>{number:g}</span></span></div>')
    return f'<div class="chart" role="figure" aria-label="{html.escape(title)}"><p class="title">{html.escape(title)}</p>{"".join(rows)}</div>'


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
        return [nodes.raw("", bars(self.options["title"], values), format="html")]


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("chart", Chart)
    return {"parallel_read_safe": True}
