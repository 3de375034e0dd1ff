# SPDX-License-Identifier: Apache-2.0
"""Packages that only some features need."""

import importlib
import importlib.metadata
from typing import Any


def import_optional(module: str, need: str, extra: str, kind: type[Exception] = RuntimeError) -> Any:
    """Import a module of a package that may be missing.

    Args:
        module: such as ``"lz4.block"``.
        need: what needs the package, for the message.
        extra: the extra of torch_ndd that installs it.
        kind: the error to raise if it is missing.

    >>> import_optional("no_such_package", "show needs it", "demo")
    Traceback (most recent call last):
    RuntimeError: show needs it: pip install torch_ndd[demo]
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise kind(f"{need}: pip install torch_ndd[{extra}]") from error


def find_version(distribution: str) -> str | None:
    """Return the version of an installed distribution; None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
