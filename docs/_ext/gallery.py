# SPDX-License-Identifier: Apache-2.0
"""The directive ``picture``: code, and the picture that it makes."""

import hashlib
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from pictures import Example, draw
from sphinx.util.docutils import SphinxDirective


class Picture(SphinxDirective):
    """Show the code of an example above its picture and its output; with ``summary``, folded under this text, where the code only draws."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = dict.fromkeys(
        ("show", "before", "boxes", "before_boxes", "masks", "before_masks", "rate", "columns", "labels", "summary"), directives.unchanged
    )

    def run(self) -> list[nodes.Node]:
        """Return the nodes."""
        name, code = self.arguments[0], "\n".join(self.content)
        picture, printed = draw(Example(name, code, self.options))
        out: list[nodes.Node] = []
        target = nodes.target("", "", ids=[f"picture-{name.replace('.', '-').replace('_', '-')}"])
        out.append(target)
        block = nodes.literal_block(code, code, classes=["example"])
        block["language"] = "python"
        summary = self.options.get("summary")
        folded = [nodes.raw("", f"<details><summary>{summary}</summary>", format="html"), block, nodes.raw("", "</details>", format="html")]
        if not summary:
            out.append(block)
        if printed:
            shown = nodes.literal_block(printed, printed, classes=["printed"])
            shown["language"] = "text"
            out.append(shown)
        if picture is not None:
            digest = hashlib.sha256(repr((name, code, sorted(self.options.items()))).encode()).hexdigest()[:8]
            folder = Path(self.env.app.srcdir) / "_build" / "pictures"
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{name}-{digest}.png"
            picture.save(file)
            image = nodes.image(uri=f"/_build/pictures/{file.name}", alt=f"What the code makes with {name}", classes=["picture"])
            image["candidates"] = {"*": image["uri"]}
            out.append(image)
        return [*out, *folded] if summary else out


def setup(app: Any) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("picture", Picture)
    return {"parallel_read_safe": False}
