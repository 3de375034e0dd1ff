# SPDX-License-Identifier: Apache-2.0
"""Generated submodules of ``fn`` and ``ops``, which have no files: ``fn.readers``, ``ops.decoders``."""

import sys
from types import ModuleType
from typing import Any


def set_in_module(package: str, name: str, value: Any) -> None:
    """Set a name such as ``readers.file`` in a package, and create its submodules when they are first used."""
    *path, last = name.split(".")
    module, full_name = sys.modules[package], package
    for part in path:
        full_name = f"{full_name}.{part}"
        # A real module of the package, such as ops.readers, is kept.
        if full_name not in sys.modules:
            submodule = ModuleType(full_name, f"Operators of pipelines: ``{full_name.partition('.dali.')[2]}``.")
            submodule.__path__ = []  # makes it a package, from which further submodules can be imported
            submodule.__package__ = full_name
            sys.modules[full_name] = submodule
            setattr(module, part, submodule)
        module = sys.modules[full_name]
    setattr(module, last, value)
