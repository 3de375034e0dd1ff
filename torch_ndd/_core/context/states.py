# SPDX-License-Identifier: Apache-2.0
"""Validation of saved states. They are untrusted, and accepted only if every key is present, has the right type and lies within bounds.

A description is a function of a value and its name that returns the value, or raises a ValueError with the name.
"""

import json
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Description = Callable[[Any, str], Any]

MAX_COUNT = 2**62  # samples, epochs and other counts
MAX_SHARDS = 1 << 20  # more ranks than any training has; the work on a state grows with the number that it names
_MAX_SHOWN = 60  # characters of a value in a message


def format_value(value: Any) -> str:
    """Format a value for a message. A hostile value may be long, or its ``repr`` may fail."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


def whole(least: int = 0, most: int = MAX_COUNT) -> Description:
    """Describe an integer; True, 1.0 and "1" are not integers."""

    def check(value: Any, name: str) -> int:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise ValueError(f"{name} must be an integer, got {format_value(value)}")
        found = int(value)
        if not least <= found <= most:
            raise ValueError(f"{name} must be from {least} to {most}, got {format_value(value)}")
        return found

    return check


def equal(wanted: int) -> Description:
    """Describe this number."""
    return whole(wanted, wanted)


def yes_or_no(value: Any, name: str) -> bool:
    """Describe True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {format_value(value)}")
    return value


def text(value: Any, name: str) -> str:
    """Describe a string."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {format_value(value)}")
    return value


def one_of(*texts: str) -> Description:
    """Describe one of some strings."""

    def check(value: Any, name: str) -> str:
        if not isinstance(value, str) or value not in texts:
            raise ValueError(f"{name} must be {' or '.join(map(repr, texts))}, got {format_value(value)}")
        return value

    return check


def anything(value: Any, name: str) -> Any:
    """Accept anything; it is validated elsewhere."""
    return value


def or_none(description: Description) -> Description:
    """Describe None or a described value."""
    return lambda value, name: None if value is None else description(value, name)


def row(*descriptions: Description) -> Description:
    """Describe a list with these values."""

    def check(value: Any, name: str) -> tuple[Any, ...]:
        values = require_list(value, name, len(descriptions), len(descriptions))
        return tuple(describe(value, f"{name}[{k}]") for k, (describe, value) in enumerate(zip(descriptions, values, strict=True)))

    return check


def rows(description: Description, least: int, most: int) -> Description:
    """Describe a list of values of one kind."""
    return lambda value, name: tuple(description(element, f"{name}[{k}]") for k, element in enumerate(require_list(value, name, least, most)))


def require_list(value: Any, name: str, least: int, most: int) -> Sequence[Any]:
    """Return a list whose length lies in a range. Raise ValueError otherwise."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} must be a list, got {format_value(value)}")
    if not least <= len(value) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise ValueError(f"{name} must have {wanted} values, got {len(value)}: {format_value(value)}")
    return value


def keys(optional: Mapping[str, Description] | None = None, /, **needed: Description) -> Description:
    """Describe a dict with exactly these keys."""
    known = {**needed, **(optional or {})}

    def check(value: Any, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{name}: it must be a dict, got {format_value(value)}")
        # The version comes first, because another one explains everything else.
        for key in needed:
            if key not in value:
                raise ValueError(f"{name}: the key {key!r} is missing: {format_value(value)}")
            if key == "version":
                needed[key](value[key], f"{name}: {key!r}")
        for key in value:
            if key not in known:
                raise ValueError(f"{name}: unknown key {format_value(key)}")
        return {key: known[key](entry, f"{name}: {key!r}") for key, entry in value.items()}

    return check


def check_state(op: str, description: Description, state: Any) -> Any:
    """Return the values of a state that fits its description. Raise ValueError with the operator's name and the key otherwise."""
    try:
        return description(state, f"{op}: not a valid saved state")
    except RecursionError:
        raise ValueError(f"{op}: not a valid saved state: it is nested too deeply") from None


def parse_state(op: str, content: str | bytes) -> Any:
    """Parse JSON. Raise ValueError, if possible json.JSONDecodeError, for other text."""
    try:
        return json.loads(content.removeprefix("\ufeff") if isinstance(content, str) else content)
    except json.JSONDecodeError as error:
        raise json.JSONDecodeError(f"{op}: not a valid saved state: {error.msg}", error.doc, error.pos) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{op}: not a valid saved state: {str(error) or 'it is nested too deeply'}") from None
