# SPDX-License-Identifier: Apache-2.0
"""The keyword arguments that a function takes."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_POSITIONAL_COUNT = 2  # the data and the parameter


class UnusedArgException(Exception):
    """An argument that is not a parameter of any augmentation."""


class MissingArgException(Exception):
    """A required argument of an augmentation is missing.

    Attributes:
        augmentation: its name.
        missing_args: names of the arguments.
    """

    def __init__(self, message: str, augmentation: str, missing_args: list[str]) -> None:
        super().__init__(message)
        self.augmentation = augmentation
        self.missing_args = missing_args


def check_positional(function: Callable[..., Any]) -> None:
    """Raise Exception unless a function has positional parameters for the data and the magnitude's parameter."""
    # Checked when the augmentation is made, so the error points to its definition.
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return
    count = sum(parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters)
    if count < _POSITIONAL_COUNT:
        name = getattr(function, "__name__", repr(function))
        raise Exception(
            f"{name} accepts {count} positional argument(s), but the functions decorated with `@augmentation` must accept at least two: the data and "
            "the parameter"
        )


def _keyword_parameters(function: Callable[..., Any]) -> tuple[dict[str, inspect.Parameter], bool]:
    """Return the parameters of a function after the first two, and whether it has ``**kwargs``."""
    parameters = list(inspect.signature(function).parameters.values())
    positional = [parameter for parameter in parameters if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)][
        _POSITIONAL_COUNT:
    ]
    named = [*positional, *(parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY)]
    return {parameter.name: parameter for parameter in named}, any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def filter_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are parameters of a function."""
    parameters, has_kwargs = _keyword_parameters(function)
    return {name: value for name, value in arguments.items() if has_kwargs or name in parameters}


def missing(function: Callable[..., Any], arguments: Mapping[str, Any]) -> list[str]:
    """Return the names of required arguments that are missing."""
    return [name for name, parameter in _keyword_parameters(function)[0].items() if parameter.default is parameter.empty and name not in arguments]


def forbid_unused_kwargs(augmentations: Iterable[Any], kwargs: Mapping[str, Any], call_name: str) -> None:
    """Raise UnusedArgException for arguments that are not parameters of any augmentation."""
    functions = [augmentation.op for augmentation in augmentations]
    unused = [name for name in kwargs if not any(name in filter_arguments(function, kwargs) for function in functions)]
    if not unused:
        return
    names = f"The kwarg `{unused[0]}` is" if len(unused) == 1 else f"The kwargs `{', '.join(unused)}` are"
    raise UnusedArgException(f"{names} not used by any of the augmentations. Check the arguments of `{call_name}`")
