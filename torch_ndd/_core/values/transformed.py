# SPDX-License-Identifier: Apache-2.0
"""Calls within transforms of ``torch.func``: operands without their wrappers, and everything else outside of the transforms."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..native.tracing import is_compiling
from ..native.transforms import check_values, outside_of_transforms
from .operand import Operand


def call_outside(op: str, function: Callable[[Any, Any], Any], inputs: Sequence[Any], arguments: Mapping[str, Any]) -> Any:
    """Return ``function(inputs, arguments)`` for a call within transforms, outside of which the values are plain tensors.

    Raises:
        RuntimeError: a transform would lose the derivative of an operand, or maps over one.
    """
    inputs = tuple(_unwrap(op, f"input {k}", value) for k, value in enumerate(inputs))
    arguments = {name: _unwrap(op, name, value) for name, value in arguments.items()}
    if is_compiling():  # the compiler follows the transforms
        return function(inputs, arguments)
    with outside_of_transforms():
        return function(inputs, arguments)


def _unwrap(op: str, name: str, value: Any) -> Any:
    """Return an operand without the wrappers of transforms."""
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)([_unwrap(op, name, element) for element in value])
    values = value.buffer if isinstance(value, Operand) else value
    if not isinstance(values, torch.Tensor):
        return value
    try:
        checked = check_values(values)
    except (RuntimeError, TypeError) as error:
        raise type(error)(f"{op}: {name}: {error}") from None
    if checked is values or not isinstance(value, Operand):
        return checked if value is values else value
    return value._over(checked) if is_compiling() else value.with_buffer(checked, value.pending, value.caller_owned)
