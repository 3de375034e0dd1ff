# SPDX-License-Identifier: Apache-2.0
"""The ``repr`` of tensors and batches."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .. import types
from .operand import Operand

_MOST_SAMPLES = 16


def printable(value: Any) -> np.ndarray:
    """Return the contents of a Tensor in NumPy's format; NumPy lacks bfloat16."""
    one = value.cpu()
    return one._ready().float().numpy() if one.dtype == torch.bfloat16 else np.asarray(one)


def of_tensor(value: Any) -> str:
    """Return the text of a Tensor."""
    return _described("Tensor", _contents(value), value, f"shape={value.shape}")


def of_batch(value: Any) -> str:
    """Return the text of a Batch; for many samples the first and the last two."""
    samples = ["..." if i is None else _contents(value.tensors[i]) for i in _ends(range(value.batch_size))]
    text = (",\n" if value.ndim else ", ").join(samples)
    return _described("Batch", f"[{text}]", value, f"num_samples={value.batch_size}", f"shape={shapes_text(value.shape)}")


def shapes_text(shapes: Sequence[Any]) -> str:
    """Return shapes as a list; for many the first and the last two."""
    return f"[{', '.join('...' if shape is None else str(shape) for shape in _ends(shapes))}]"


def _ends(items: Sequence[Any]) -> Sequence[Any]:
    return items if len(items) <= _MOST_SAMPLES else [*items[:2], None, *items[-2:]]


def _contents(value: Any) -> str:
    return np.array2string(printable(value), edgeitems=2)


def _described(kind: str, text: str, value: Operand, *more: str) -> str:
    layout = [f'layout="{value.layout}"'] if value.layout else []
    parts = [text, f"dtype={types.dtype_name(value.dtype)}", *layout, f'device="{value.device}"', *more]
    return kind + "(\n" + textwrap.indent(",\n".join(parts), "    ") + ")"
