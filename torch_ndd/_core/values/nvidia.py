# SPDX-License-Identifier: Apache-2.0
"""Tensors and tensor lists of NVIDIA's package as Tensor and Batch."""

from typing import Any

from ... import types
from .batch import Batch, batch, new_batch
from .foreign import import_values
from .operand import LISTS, import_with
from .tensor import Tensor, new_tensor


def _from_nvidia(value: Any) -> "Tensor | Batch":
    """Return a tensor or a tensor list of NVIDIA's package over the same memory; a ragged list is copied."""
    layout = value.layout() or None
    if type(value).__name__ not in LISTS:
        values, caller_owned = import_values(value, wide=False)
        return new_tensor(values, layout, caller_owned=caller_owned)
    if len(value) and value.is_dense_tensor():
        values, caller_owned = import_values(value.as_tensor(), wide=False)
        return new_batch(values, None, layout, caller_owned=caller_owned)
    return batch(list(value), types.to_dtype(types.DALIDataType(int(value.dtype))), layout=layout)


import_with(_from_nvidia)
