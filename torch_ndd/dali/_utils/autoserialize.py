# SPDX-License-Identifier: Apache-2.0
"""Writing the pipeline of a Triton model to a file."""

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any


def invoke_autoserialize(head_module: ModuleType, filename: str) -> None:
    """Serialize the pipeline definition that is marked with ``autoserialize``, in a module or in modules of its folder that it imports.

    Args:
        head_module: The module.
        filename: The file to write.

    Raises:
        RuntimeError: no definition is marked, or more than one.
    """
    definitions = list(_find_marked(head_module, _folder(head_module), set()).values())
    if len(definitions) != 1:
        raise RuntimeError(f"invoke_autoserialize: mark exactly one pipeline with @autoserialize in {head_module.__name__!r}, found {definitions}")
    definitions[0]().serialize(filename=filename)


def _folder(module: ModuleType) -> str | None:
    file = getattr(module, "__file__", None)
    return None if file is None else os.path.join(os.path.dirname(os.path.abspath(file)), "")


def _find_marked(module: ModuleType, folder: str | None, visited: set[int]) -> dict[int, Callable[..., Any]]:
    visited.add(id(module))
    definitions: dict[int, Callable[..., Any]] = {}
    for value in vars(module).values():
        if isinstance(value, ModuleType):
            # Only modules beside the model: others may import half of the system.
            inside = folder is not None and (_folder(value) or "").startswith(folder)
            if inside and id(value) not in visited:
                definitions |= _find_marked(value, folder, visited)
        elif getattr(value, "_is_autoserialize", False) is True:
            definitions[id(value)] = value
    return definitions
