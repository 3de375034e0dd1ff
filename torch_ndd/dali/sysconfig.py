# SPDX-License-Identifier: Apache-2.0
"""Compiler flags for DALI plugins, which cannot be built here: each function raises RuntimeError."""

from typing import NoReturn

__all__ = []

_REASON = "DALI's headers are not installed, so plugins cannot be compiled; use fn.python_function, or an operator of torch_ndd"


def get_include_dir() -> NoReturn:
    """Raise RuntimeError."""
    raise RuntimeError(f"sysconfig.get_include_dir: {_REASON}")


def get_lib_dir() -> NoReturn:
    """Raise RuntimeError."""
    raise RuntimeError(f"sysconfig.get_lib_dir: {_REASON}")


def get_include_flags() -> NoReturn:
    """Raise RuntimeError."""
    raise RuntimeError(f"sysconfig.get_include_flags: {_REASON}")


def get_compile_flags() -> NoReturn:
    """Raise RuntimeError."""
    raise RuntimeError(f"sysconfig.get_compile_flags: {_REASON}")


def get_link_flags() -> NoReturn:
    """Raise RuntimeError."""
    raise RuntimeError(f"sysconfig.get_link_flags: {_REASON}")
