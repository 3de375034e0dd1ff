# SPDX-License-Identifier: Apache-2.0
"""The reference: operators by the file that defines them, with signatures that people can read."""

import inspect
from importlib import import_module
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import torch_ndd
from torch_ndd._core.operators.arguments import Role
from torch_ndd._core.operators.definition import OPERATORS


def without_effect(name: str) -> list[str]:
    """Return the arguments that an operator accepts for DALI's programs only."""
    op = OPERATORS.get(name)
    return [] if op is None else [key for key, argument in op.arguments.items() if argument.role is Role.hint]


def readable(signature: inspect.Signature, hidden: list[str]) -> str:
    """Return a signature without annotations and hidden parameters."""
    kept = [p.replace(annotation=p.empty, default=p.default if p.default is p.empty else _Default(p.default)) for p in signature.parameters.values()]
    return str(inspect.Signature([p for p in kept if p.name not in hidden]))


class _Default:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        value = self.value
        if hasattr(value, "name") and hasattr(value, "value"):  # a member of an enumeration
            return f"{type(value).__name__}.{value.name}"
        text = repr(value)
        return "..." if " at 0x" in text else text


def _signature(app: Any, kind: str, name: str, value: Any, options: Any, signature: str | None, returned: str | None) -> tuple[str, None] | None:
    if kind not in ("function", "class", "method") or not callable(value):
        return None
    try:
        actual = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    public = name.removeprefix("torch_ndd.")
    return readable(actual, ["self", *without_effect(public)] if kind == "method" else without_effect(public)), None


def _docstring(app: Any, kind: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    unused = without_effect(name.removeprefix("torch_ndd."))
    if unused:
        lines += ["", f"Accepted for DALI's programs, without effect: {', '.join(f'``{argument}``' for argument in unused)}.", ""]


class Operators(SphinxDirective):
    """Document the operators that the files of ``torch_ndd/ops`` given as arguments define."""

    required_arguments = 1
    optional_arguments = 20

    def run(self) -> list[nodes.Node]:
        """Return the nodes."""
        modules = {f"torch_ndd.{module}" for module in self.arguments}
        names = sorted(name for name, op in OPERATORS.items() if op.body.__module__ in modules and not name.startswith("arithmetic"))
        if not names:
            raise self.error(f"no operator is defined in {', '.join(modules)}")
        return parse_entries(self, [f".. autofunction:: torch_ndd.{name}" for name in names])


class Public(SphinxDirective):
    """Document the functions and classes in ``__all__`` of a module, without the methods of the classes."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the nodes."""
        module = import_module(self.arguments[0])
        entries = []
        for name in sorted(module.__all__):
            value = getattr(module, name)
            if not (isinstance(value, type) or inspect.isfunction(value)) or value is getattr(torch_ndd, name, None):
                continue  # constants and modules; names of the package itself, which other pages describe
            if value.__module__.startswith("torch_ndd"):  # the texts of other packages are theirs
                entries.append(f".. auto{'class' if isinstance(value, type) else 'function'}:: {module.__name__}.{name}")
        return parse_entries(self, entries)


def parse_entries(directive: SphinxDirective, entries: list[str]) -> list[nodes.Node]:
    """Return the nodes of autodoc's directives on a Markdown page, where they would be text outside this fence."""
    directive.env.note_dependency(__file__)
    blank = "\n\n"
    return directive.parse_text_to_nodes(f"```{{eval-rst}}\n{blank.join(entries)}\n```\n")


def setup(app: Any) -> dict[str, bool]:
    """Register the directive and the handlers."""
    app.add_directive("operators", Operators)
    app.add_directive("public", Public)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _docstring)
    return {"parallel_read_safe": False}
