# SPDX-License-Identifier: Apache-2.0
"""Plugins with operators in C++, which this library cannot load."""

from typing import NoReturn

__all__ = []

_REASON = (
    "plugins are compiled against DALI's C++ library, which is not installed; write the operator as fn.python_function, "
    "or as an operator of torch_ndd (see CONTRIBUTING.md)"
)


def load_library(library_path: str, global_symbols: bool = False) -> NoReturn:
    """Raise RuntimeError: DALI's plugins need DALI's C++ library."""
    raise RuntimeError(f"plugin_manager.load_library: {library_path!r} cannot be loaded: {_REASON}")


def load_directory(plugin_dir_path: str, global_symbols: bool = False) -> NoReturn:
    """Raise RuntimeError: DALI's plugins need DALI's C++ library."""
    raise RuntimeError(f"plugin_manager.load_directory: {plugin_dir_path!r} cannot be loaded: {_REASON}")
