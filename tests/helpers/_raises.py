# SPDX-License-Identifier: Apache-2.0
"""Errors that programs must raise. They are named, so a mistake in a test that raises under both packages does not pass."""

from collections.abc import Callable
from typing import Any

import pytest

Raises = type[BaseException] | tuple[type[BaseException], str]
"""The exact type of the error, or that type and a pattern for the message."""


def raising(raises: Raises, *values: Any, id: str | None = None) -> Any:
    """Return a row of a parametrized test whose program must raise. The fixture ``raises`` passes the error to the test."""
    return pytest.param(*values, marks=pytest.mark.raises(error=raises), id=id)


def type_of(raises: Raises) -> type[BaseException]:
    return raises[0] if isinstance(raises, tuple) else raises


def catch_error(call: Callable[[], Any], raises: Raises, *, exact: bool = True) -> BaseException:
    """Return the error of a call, which must be of the type, or of a subclass unless ``exact``, and match the pattern."""
    pattern = raises[1] if isinstance(raises, tuple) else None
    with pytest.raises(type_of(raises), match=pattern) as caught:
        call()
    assert caught.type is type_of(raises) or not exact, f"{caught.value!r} is not exactly of {type_of(raises)}"
    return caught.value
