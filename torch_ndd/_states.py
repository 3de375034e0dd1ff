# SPDX-License-Identifier: Apache-2.0
"""What a saved state may look like. It may come from anywhere, and is believed only when each of its keys is there, of its type and in its bounds.

A description is a function of a value and its name, which returns the value, or raises a ValueError that names it.
"""

import json
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Description = Callable[[Any, str], Any]

MOST = 2**62  # samples, epochs and whatever else is counted
_SHOWN = 60  # characters of a value


def shown(value: Any) -> str:
    """A value for a message. A hostile one may be long, or cannot be written at all."""
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def whole(least: int = 0, most: int = MOST) -> Description:
    """A whole number; True, 1.0 and "1" are none."""

    def check(value: Any, name: str) -> int:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise ValueError(f"{name} must be a whole number, got {shown(value)}")
        found = int(value)
        if not least <= found <= most:
            raise ValueError(f"{name} must be from {least} to {most}, got {shown(value)}")
        return found

    return check


def equal(wanted: int) -> Description:
    """This number."""
    return whole(wanted, wanted)


def yes_or_no(value: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {shown(value)}")
    return value


def text(value: Any, name: str) -> str:
    """A text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text, got {shown(value)}")
    return value


def anything(value: Any, name: str) -> Any:
    """What somebody else looks at."""
    return value


def or_none(description: Description) -> Description:
    """None, or what is described."""
    return lambda value, name: None if value is None else description(value, name)


def row(*descriptions: Description) -> Description:
    """A list of so many values."""

    def check(value: Any, name: str) -> tuple[Any, ...]:
        values = listed(value, name, len(descriptions), len(descriptions))
        return tuple(one(value, f"{name}[{k}]") for k, (one, value) in enumerate(zip(descriptions, values, strict=True)))

    return check


def rows(description: Description, least: int, most: int) -> Description:
    """A list of values of one kind."""
    return lambda value, name: tuple(description(one, f"{name}[{k}]") for k, one in enumerate(listed(value, name, least, most)))


def listed(value: Any, name: str, least: int, most: int) -> Sequence[Any]:
    """A list with a number of values between these."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} must be a list, got {shown(value)}")
    if not least <= len(value) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise ValueError(f"{name} must have {wanted} values, got {len(value)}: {shown(value)}")
    return value


def keys(optional: Mapping[str, Description] | None = None, /, **needed: Description) -> Description:
    """A dict with these keys and no other."""
    known = {**needed, **(optional or {})}

    def check(value: Any, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{name} must be a dict, got {shown(value)}")
        # The version comes first: another one explains all else.
        for key in needed:
            if key not in value:
                raise ValueError(f"{name}: the key {key!r} is missing: {shown(value)}")
            if key == "version":
                needed[key](value[key], f"{name}: {key!r}")
        for key in value:
            if key not in known:
                raise ValueError(f"{name}: unknown key {shown(key)}")
        return {key: known[key](one, f"{name}: {key!r}") for key, one in value.items()}

    return check


def checked(op: str, description: Description, state: Any) -> Any:
    """The values of a state that fits its description. ValueError with the operator's name and the key for any other."""
    try:
        return description(state, f"{op}: this is no state")
    except RecursionError:
        raise ValueError(f"{op}: this is no state: it has no end") from None


def parsed(op: str, content: str | bytes) -> Any:
    """The value of a JSON text. ValueError for any other, json.JSONDecodeError where it can be one."""
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        raise json.JSONDecodeError(f"{op}: this is no state: {error.msg}", error.doc, error.pos) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{op}: this is no state: {str(error) or 'it is nested too deeply'}") from None
