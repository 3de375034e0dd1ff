# SPDX-License-Identifier: Apache-2.0
"""Names and words that users write: suggestions for misspelled ones, and checks of an argument that is one of a few strings, and of functions."""

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any


def similar(name: str, names: Iterable[str]) -> str:
    """Return the end of a message that names the nearest of ``names``; empty if none is near.

    >>> similar("sizes", ["size", "mode"])
    "; did you mean 'size'?"
    """
    known = list(names)
    close = [name.rstrip("_")] if name.rstrip("_") in known else difflib.get_close_matches(name, known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_choice(op: str, argument: str, value: object, choices: Collection[str], kind: type[Exception] = RuntimeError) -> None:
    """Raise an error that lists the accepted strings if ``value`` is not one of them.

    >>> check_choice("resize", "mode", "largest", ("stretch", "not_larger"))
    Traceback (most recent call last):
    RuntimeError: resize: mode must be one of stretch, not_larger, got 'largest'
    """
    if not isinstance(value, str) or value not in choices:
        hint = similar(value, choices) if isinstance(value, str) else ""
        raise kind(f"{op}: {argument} must be one of {', '.join(choices)}, got {value!r}{hint}")


def accepts(function: Callable[..., Any], arguments: Sequence[Any]) -> bool:
    """Return whether a function accepts these positional arguments; True if it has no signature, as some functions in C."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        pass
    return True
