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
    for operation in operations:
        color = f', style=filled, fillcolor="{_COLORS[operation.device]}"' if use_colors else ""
        lines.append(f"  {_quote(operation.name)} [label={_quote(f'{operation.title}: {operation.name}')}{color}]")
        if show_tensors:
            for node in operation.outputs:
                lines.append(f"  {_tensor_id(node)} [shape=ellipse, label={_quote(node.name)}]")
                lines.append(f"  {_quote(operation.name)} -> {_tensor_id(node)}")
    for operation in operations:
        for label, node in [("", node) for node in operation.inputs] + list(operation.arguments.items()):
            # Without ellipses for results, arrows go from operator to operator.
            begin = _tensor_id(node) if show_tensors else _quote(node.source.name if node.source else node.name)
            lines.append(f"  {begin} -> {_quote(operation.name)}" + (f" [label={_quote(label)}]" if label else ""))
    for k, node in enumerate(outputs):
        begin = _tensor_id(node) if show_tensors else _quote(node.source.name if node.source else node.name)
        lines += [f'  "output {k}" [shape=ellipse, peripheries=2]', f'  {begin} -> "output {k}"']
    write_whole(filename, "\n".join([*lines, "}", ""]))


def _tensor_id(node: Node) -> str:
    # By the operator's name: a copy on another device has the name of its origin.
    return _quote(f"{node.source.name if node.source else node.name} ({node.index})")


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
