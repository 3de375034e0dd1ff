# SPDX-License-Identifier: Apache-2.0
"""Type checks of reader arguments against their annotations."""

import functools
import inspect
import os
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ._told import source_of

# Elements of a sequence that are checked. Checking millions of paths would take seconds; a bad one further on is found when it is used.
_LOOKED_AT = 16


def check_arguments(op: str, parameters: Collection[inspect.Parameter], given: Mapping[str, Any]) -> None:
    """Raise TypeError for an argument that does not fit its annotation."""
    for parameter in parameters:
        value = given.get(parameter.name, parameter.default)
        if value is parameter.default or _fits(value, parameter.annotation):
            continue
        wanted = re.sub(r"(collections\.abc|torch_ndd)\.(_?[a-z]\w*\.)*", "", inspect.formatannotation(parameter.annotation))
        raise TypeError(f"{op}: argument {parameter.name!r} must be {wanted}, got {value!r}")


def checked_init(init: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """Return the constructor of a reader with a check of its arguments."""

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **given: Any) -> None:
        names = [one.name for one in parameters if one.kind is not inspect.Parameter.KEYWORD_ONLY]
        arguments = {**dict(zip(names, args, strict=False)), **given}
        check_arguments(f"readers.{type(self).__name__}", parameters, arguments)
        self.__dict__.setdefault("_brief", source_of(arguments))  # of the outermost class
        init(self, *args, **given)

    return checked


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value fits an annotation; True for annotations that are not analyzed."""
    kind, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if kind is Any or not isinstance(kind, type) or typing.is_typeddict(kind):
        return True
    if kind is bool:
        return isinstance(value, bool | np.bool_ | int)
    if kind is int:
        return hasattr(value, "__index__") and not getattr(value, "ndim", 0)
    if kind is float:
        return hasattr(value, "__float__") and not getattr(value, "ndim", 0)
    if kind is os.PathLike:
        return isinstance(value, os.PathLike | bytes)
    if kind in (Sequence, list, tuple):
        if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__") or not hasattr(value, "__len__"):
            return False
        return not inner or all(_fits(one, inner[0]) for one in islice(value, _LOOKED_AT))
    return isinstance(value, kind)
