# SPDX-License-Identifier: Apache-2.0
"""Kernels of the native library as torch operators, with the parameters of their C++ functions as schemas."""

from collections.abc import Sequence
from typing import Any

import torch

from .library import c_function


def _read_kernels() -> dict[tuple[str, str], str]:
    lines = c_function("ndd_kernels")().decode().splitlines()
    return {(op, backend): types for op, backend, types in (line.split(" ") for line in lines)}


KERNELS = _read_kernels()  # (operator, "CPU" or "CUDA") -> C++ parameter types, as schema types
_library = torch.library.Library("ndd", "FRAGMENT")
_schemas: dict[str, str] = {}  # of defined operators, by name


def find_kernels() -> list[str]:
    """Add the kernels of libraries that were loaded since. Return those that were refused because a kernel of their name exists."""
    KERNELS.update(_read_kernels())
    return c_function("ndd_refused_kernels")().decode().splitlines()


def kernel(name: str, writes: Sequence[int] = (-2,)) -> Any:
    """Return ``torch.ops.ndd.<name>``, with the parameters of the C++ function compiled as its kernel.

    Args:
        name: Name of the operator.
        writes: Parameters that the kernel fills; by default one output with its shapes, ``Tensor out, Tensor? out_shapes``.

    Raises:
        ImportError: The library has no such kernel, or its CPU and CUDA versions have different parameters.
    """
    types = parameters(name)
    for letter, position in enumerate(writes):
        if not types[position].startswith("Tensor"):
            raise ImportError(
                f"torch_ndd: the kernel of ndd::{name} should fill parameter {position}, which must be a Tensor, but is of type {types[position]}"
            )
        types[position] = types[position].replace("Tensor", f"Tensor({chr(97 + letter)}!)")
    schema = f"{name}({', '.join(f'{kind} p{k}' for k, kind in enumerate(types))}) -> ()"
    # The same schema again is harmless, for example when an extension is reloaded.
    if _schemas.setdefault(name, schema) != schema:
        raise ImportError(f"torch_ndd: operator ndd::{name} is already defined as {_schemas[name]}; choose another name")
    if not hasattr(torch.ops.ndd, name):  # a notebook may run a cell again
        _library.define(schema)
        _library.impl(name, lambda *args: None, "Meta")  # kernels only fill what the caller has allocated
    return getattr(torch.ops.ndd, name).default


def parameters(name: str) -> list[str]:
    """Return the types of a kernel's parameters, as schema types."""
    # One schema serves both devices, so Python code need not distinguish them.
    signatures = {KERNELS[name, backend] for backend in ("CPU", "CUDA") if (name, backend) in KERNELS}
    if len(signatures) != 1:
        found = " and ".join(f"({types})" for types in sorted(signatures)) or "none"
        raise ImportError(f"torch_ndd: ndd::{name} needs a kernel with the same parameters on CPU and CUDA, found {found}; rebuild the library")
    (types,) = signatures
    return types.split(",")
