# SPDX-License-Identifier: Apache-2.0
"""Large results of compiled graphs on the CPU in pool memory: the graph's last kernel writes into a buffer from the pool.

The lowerings below use private parts of Inductor. Where those are missing, results come from malloc; the nightly job (.github/workflows/nightly.yml)
runs the tests of compiled graphs with the next torch.
"""

import functools
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from .. import native
from .dynamo import assume_constant_result

# malloc maps fresh pages for every allocation above 32 MB: 64 float32 images of 224x224 take 18 ms, 2.6 ms in pages that exist.
_MAPPED_BYTES = 32 << 20

# Tensors of the traced graph that are in pool memory anyway, such as the results of kernels.
in_pool: Any = WeakTensorKeyDictionary()
# The values of the tensors that will be moved there, by those tensors.
pooled_from: Any = WeakTensorKeyDictionary()

_library = torch.library.Library("ndd", "FRAGMENT")
_library.define("result(Tensor(a) values) -> Tensor(a)")
_library.define("pooled(Tensor values) -> Tensor")
_library.define("stacked(Tensor[] parts, int axis) -> Tensor")


@torch.library.impl("ndd::result", "CompositeImplicitAutograd", lib=_library)
def _(values: torch.Tensor) -> torch.Tensor:  # runs while the graph is traced
    if values in in_pool:
        return values
    pooled = torch.ops.ndd.pooled(values)
    pooled_from[pooled] = values
    return pooled


@torch.library.impl("ndd::pooled", "CPU", lib=_library)
def _(values: torch.Tensor) -> torch.Tensor:  # under other compilers than Inductor
    return native.empty(list(values.shape), values.dtype, values.device).copy_(values)


@torch.library.register_fake("ndd::pooled", lib=_library)
def _(values: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(values, memory_format=torch.contiguous_format)


@torch.library.impl("ndd::stacked", "CPU", lib=_library)
@torch.library.register_fake("ndd::stacked", lib=_library)
def _(parts: list[torch.Tensor], axis: int) -> torch.Tensor:
    return torch.stack(parts, axis)


def mark_result(values: torch.Tensor) -> torch.Tensor:
    """Mark the result of a formula in a graph: if it is large and an output of the graph, it is computed in pool memory."""
    if values.device.type == "cpu" and values.is_contiguous() and _is_lowered():
        return torch.ops.ndd.result(values)
    return values


def stack_parts(parts: list[torch.Tensor], axis: int) -> torch.Tensor:
    """Return ``torch.stack(parts, axis)``, marked as a result in a graph."""
    return torch.ops.ndd.stacked(parts, axis) if parts[0].device.type == "cpu" and _is_lowered() else torch.stack(parts, axis)


@assume_constant_result  # called while a graph is traced
def _is_lowered() -> bool:
    return _register_lowerings()


@functools.cache
def _register_lowerings() -> bool:
    """Register the lowering of ``ndd::pooled`` with Inductor. Return False for a torch whose Inductor lacks the parts that it needs."""
    try:
        from torch._inductor import ir, lowering
        from torch._inductor.virtualized import V

        stored_in, view, register, fallback = ir.MutationLayoutSHOULDREMOVE, ir.BaseView, lowering.register_lowering, lowering.fallback_handler
        select, unsqueezed, concatenated = (
            lowering.lowerings[name] for name in (torch.ops.aten.select.int, torch.ops.aten.unsqueeze.default, torch.ops.aten.cat.default)
        )
    except (ImportError, AttributeError, KeyError):
        return False

    def is_expression(value: Any) -> bool:
        value = value.data
        while isinstance(value, view):  # planes are an expression with its axes in another order
            value = value.data
        return isinstance(getattr(value, "data", None), ir.Pointwise)

    def buffer(shape: Any, dtype: torch.dtype, *parts: Any) -> Any:
        """Return pool memory for the result of the node that is being lowered.

        None unless it is a large output of the graph, and an expression: expressions with many inputs are in memory already.
        """
        if not all(map(is_expression, parts)) or not any(user.op == "output" for user in V.graph.current_node.users):
            return None
        count = functools.reduce(lambda a, b: a * b, shape, 1)
        if getattr(count, "is_number", True) and int(count) * dtype.itemsize <= _MAPPED_BYTES:
            return None
        return fallback(torch.ops.ndd.empty_pooled.default, add_to_fallback_set=False)(shape, dtype)

    def fill(out: Any, values: Any) -> None:
        """Compute the values into a buffer. ``stored_in.realize_into`` would compute expressions with many inputs elsewhere first, and copy."""
        expression: Any = ir.Pointwise.create(
            device=values.get_device(), dtype=values.get_dtype(), inner_fn=values.make_loader(), ranges=list(values.get_size())
        )
        V.graph.mark_buffer_mutated(out.get_name())
        expression.data.realize()
        expression.data.data.layout = stored_in(out)

    @register(torch.ops.ndd.pooled.default, type_promotion_kind=None)
    def _(values: Any) -> Any:
        out = buffer(values.get_size(), values.get_dtype(), values)
        if out is None:
            return values
        fill(out, values)
        return out

    @register(torch.ops.ndd.stacked.default, type_promotion_kind=None)
    def _(parts: Any, axis: int) -> Any:
        shape = list(parts[0].get_size())
        shape.insert(axis, len(parts))
        out = buffer(shape, parts[0].get_dtype(), *parts)
        if out is None:
            return concatenated([unsqueezed(part, axis) for part in parts], axis)
        for k, part in enumerate(parts):
            fill(select(out, axis, k), part)
        return out

    return True
