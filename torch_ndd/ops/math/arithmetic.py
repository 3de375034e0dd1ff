# SPDX-License-Identifier: Apache-2.0
"""Arithmetic as one operator, for ``ndd.math`` and the tests that go through all operators."""

from typing import Any

import torch

from ..._core.native.tracing import is_compiling
from ..._core.operators.operator import OPERATORS, Operator, operator
from ..._core.values import arithmetic as core
from ..._core.values.operand import Operand, unwrap
from ..._core.values.tensor import new_tensor


def arithmetic(operation: str, *operands: Any) -> Any:
    """Compute an operation on the elements of its operands, for instance ``arithmetic("add", left, right)``.

    An operand is a Tensor, a Batch, a number, a list or an array. The names are those of the methods (``add``, ``floordiv``, ``lt``, ``neg``, ...)
    and of the functions of :mod:`torch_ndd.math`.

    The result has the dtype of :func:`torch_ndd.types.promote`, with a Python int as int32 and a float as float32. Comparisons return bool; ``/`` and
    the functions of real numbers convert integers to float32. Integers wrap around, ``//`` and ``%`` on them truncate as in C, an int to a negative
    power is 0, and shift counts are taken modulo the width. ``//`` on floats is ``/``. float16 and bfloat16 are computed in float32 and rounded.
    Shapes are broadcast as in NumPy, sample by sample: an operand that is not a Batch is combined with every sample.

    Raises:
        ValueError: batches of different size, operands on different devices, division of integers by zero (on the CPU; on a GPU it gives 0).
        RuntimeError: shapes that cannot be broadcast, layouts of which neither ends with the other, bools for numbers, floats for bits.
        OverflowError: an int that does not fit into int32.

    >>> (batch([[1, 2], [3, 4, 5]]) * 2).tensors[1].torch()
    tensor([ 6,  8, 10], dtype=torch.int32)
    """
    operands = tuple(map(unwrap, operands))
    if any(isinstance(operand, Operand) for operand in operands):
        return core.arithmetic(operation, *operands)
    # Numbers and arrays alone give an operand without a type of its own.
    result = core.compute(operation, operands, is_compiling())
    return new_tensor(result.buffer, result.layout, result.pending)


OPERATORS["arithmetic"] = Operator("arithmetic", arithmetic, operator(), torch.ops.ndd.arithmetic.default, inputs=2, required=2)
