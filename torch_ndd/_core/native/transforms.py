# SPDX-License-Identifier: Apache-2.0
"""Values under torch's transforms: derivatives, ``torch.func``, tensors of other classes.

Kernels know neither derivatives nor batching rules, and read memory. A tensor whose derivative would be lost, that stands for one with another
dimension, or whose values are in other tensors is refused. Everything else is computed outside of ``torch.func``'s transforms, within which torch
wraps each new tensor.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._C import _functorch  # type: ignore[attr-defined]
from torch._functorch.pyfunctorch import VmapInterpreter, retrieve_all_functorch_interpreters, temporarily_clear_interpreter_stack
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .dynamo import allow_in_graph, assume_constant_result
from .tracing import is_compiling, is_jit_tracing

# The number of transforms of torch.func under which this thread runs, or None. It takes 45 ns.
in_transform: Callable[[], int | None] = _functorch.maybe_current_level
outside_of_transforms: Callable[[], Any] = temporarily_clear_interpreter_stack

_is_functional_tensor: Callable[[torch.Tensor], bool] = torch._is_functional_tensor  # type: ignore[attr-defined]
_REMEDIES = {"DTensor": "pass its local part, .to_local()", "FakeTensor": "call operators under its FakeTensorMode"}


def is_followed() -> bool:
    """Return whether torch differentiates, transforms or traces what this thread computes. A plan would hide that."""
    return bool(in_transform()) or forward_ad._current_level >= 0 or is_jit_tracing()


def check_values(data: torch.Tensor) -> torch.Tensor:
    """Return a tensor that kernels can read: ``data``, or what ``torch.func`` has wrapped.

    Raises:
        RuntimeError: its derivative would be lost, or ``torch.func`` maps over it or makes it functional.
        TypeError: its class has no memory.
    """
    if is_compiling():
        if is_dynamo_compiling() and (type(data) is not torch.Tensor or is_graph_in_transform()):
            data = _check_in_graph(data)
        elif is_traceable_wrapper_subclass(data):
            raise _wrong_class(data)
    elif _functorch.is_functorch_wrapped_tensor(data) or _is_functional_tensor(data):
        data = _unwrap(_functorch.unwrap_if_dead(data))
        if _is_functional_tensor(data):
            raise RuntimeError("a torch tensor of functionalize cannot become a Tensor; call operators outside of it, or use torch.export")
    elif type(data) is not torch.Tensor and _replaces_dispatch(type(data)):
        raise _wrong_class(data)
    if data.requires_grad:
        raise _lost("requires grad")
    if not is_compiling() and _has_tangent(data):
        raise _lost("has a forward-mode tangent")
    return data


def _unwrap(data: torch.Tensor) -> torch.Tensor:
    """Return the tensor within the wrappers of ``torch.func``, one for each level of differentiation."""
    while _functorch.is_functorch_wrapped_tensor(data) and not _functorch.is_functionaltensor(data):
        if _functorch.is_batchedtensor(data):
            raise RuntimeError(
                "a torch tensor that torch.func.vmap maps over cannot become a Tensor; operators take all samples together: call them outside of vmap"
            )
        if data.requires_grad:
            raise _lost("requires grad")
        if _has_tangent(data):
            raise _lost("has a forward-mode tangent")
        data = _functorch.get_unwrapped(data)
    return data


def _replaces_dispatch(kind: type) -> bool:
    """Return whether calls with tensors of a class go to a function of the class instead of a kernel."""
    return getattr(kind, "__torch_dispatch__", None) is not getattr(torch.Tensor, "__torch_dispatch__", None)


def _has_tangent(data: torch.Tensor) -> bool:
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(data).tangent is not None


def _lost(reason: str) -> RuntimeError:
    return RuntimeError(f"a torch tensor that {reason} cannot become a Tensor; call .detach() first")


def _wrong_class(data: torch.Tensor) -> TypeError:
    name = type(data).__name__
    return TypeError(f"a {name} cannot become a Tensor because its values are in other tensors; {_REMEDIES.get(name, 'pass those')}")


@assume_constant_result  # called while a graph is traced
def is_graph_in_transform() -> bool:
    """Return whether the code that is traced is a function under a transform of ``torch.func``."""
    return bool(in_transform())


@allow_in_graph
def _check_in_graph(data: torch.Tensor) -> torch.Tensor:
    """Check a tensor in a graph: Dynamo sees neither wrappers nor classes, but runs this function on fake tensors that have them."""
    if is_traceable_wrapper_subclass(data):
        raise _wrong_class(data)
    _unwrap(data)
    return data.view_as(data)


def check_drawing(op: str) -> None:
    """Raise RuntimeError where ``torch.func.vmap`` does not let all calls share random numbers."""
    if _forbids_drawing():
        raise RuntimeError(
            f"{op}: torch.func.vmap calls an operator a single time, so random numbers would be the same for all; draw them outside of vmap, for all "
            'samples, or pass randomness="same" to it'
        )


@assume_constant_result
def _forbids_drawing() -> bool:
    levels = retrieve_all_functorch_interpreters() if in_transform() else ()
    return any(isinstance(level, VmapInterpreter) and level.randomness() != "same" for level in levels)
