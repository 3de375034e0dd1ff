# SPDX-License-Identifier: Apache-2.0
"""Graphs as files for Graphviz."""

from collections.abc import Sequence
from typing import Any

from ..._core.process.files import write_whole
from .graph import Node, Operation

_COLORS = {"cpu": "lightblue", "gpu": "palegreen", "mixed": "khaki"}


def write(filename: Any, operations: Sequence[Operation], outputs: Sequence[Node], show_tensors: bool, use_colors: bool) -> None:
    """Write a graph to a file."""
    lines = ["digraph pipeline {", "  node [shape=box]"]
    for one in operations:
        color = f', style=filled, fillcolor="{_COLORS[one.device]}"' if use_colors else ""
        lines.append(f"  {_quoted(one.name)} [label={_quoted(f'{one.title}: {one.name}')}{color}]")
        if show_tensors:
            for node in one.outputs:
                lines.append(f"  {_tensor(node)} [shape=ellipse, label={_quoted(node.name)}]")
                lines.append(f"  {_quoted(one.name)} -> {_tensor(node)}")
    for one in operations:
        for label, node in [("", node) for node in one.inputs] + list(one.arguments.items()):
            begin = _tensor(node) if show_tensors else _quoted(node.source.name if node.source else node.name)
            lines.append(f"  {begin} -> {_quoted(one.name)}" + (f" [label={_quoted(label)}]" if label else ""))
    for k, node in enumerate(outputs):
        begin = _tensor(node) if show_tensors else _quoted(node.source.name if node.source else node.name)
        lines += [f'  "output {k}" [shape=ellipse, peripheries=2]', f'  {begin} -> "output {k}"']
    write_whole(filename, "\n".join([*lines, "}", ""]))


def _tensor(node: Node) -> str:
    # By the name of the operator: a node on another device has the name of its origin.
    return _quoted(f"{node.source.name if node.source else node.name} ({node.index})")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
