# SPDX-License-Identifier: Apache-2.0
"""Conversion of fed data, and of the results of sources, to batches."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ... import types as elements
from ..._core.values.batch import Batch, as_batch, batch, new_batch
from ..._core.values.tensor import Tensor
from .. import tensors
from .._graph.graph import EMPTY
from ..tensors._single import describe_type, import_tensor, is_capsule

_BATCH_FORMS = "a batch is an array whose first dimension counts samples, a list of arrays, or a TensorListCPU"


def import_sample(title: str, data: Any, what: str = "a sample") -> Tensor:
    """Return a sample as a tensor over the user's memory. Raise RuntimeError for anything but an array."""
    if isinstance(data, np.generic):
        data = np.asarray(data)
    elif not is_array(data):
        raise RuntimeError(f"{title}: {what} must be an array, got {describe_type(data)}; convert it with np.asarray or torch.as_tensor")
    try:
        return import_tensor(title, data)
    except (TypeError, BufferError) as error:
        raise RuntimeError(f"{title}: {what}: {error}") from None


def is_array(data: Any) -> bool:
    """Return whether data is one array, rather than a list of them or something else."""
    if isinstance(data, np.ndarray | torch.Tensor | tensors.TensorCPU | tensors.TensorGPU | Tensor) or is_capsule(data):
        return True
    if isinstance(data, list | tuple | type) or is_batch(data):
        return False
    return any(hasattr(data, name) for name in ("__array_interface__", "__cuda_array_interface__", "__dlpack__", "__array__"))


def is_batch(data: Any) -> bool:
    """Return whether data is a batch of this package."""
    return isinstance(data, tensors.TensorListCPU | tensors.TensorListGPU | Batch)


def import_batch(title: str, data: Any, max_samples: int, share: bool) -> Batch:
    """Return the user's data as a batch, copied unless ``share``.

    Raises:
        RuntimeError: not a batch, more than ``max_samples`` samples, or samples of different types, dimensions or layouts.
    """
    copied = False
    samples: Any
    if is_batch(data):
        samples = data if isinstance(data, Batch) else data._batch
        _check_size(title, samples.batch_size, max_samples)
    elif isinstance(data, list | tuple):
        _check_size(title, len(data), max_samples)
        if not data:
            return EMPTY
        samples = _import_list(title, data)
    else:
        samples = _import_samples(title, data)
        _check_size(title, samples.shape[0], max_samples)
        copied = isinstance(data, np.ndarray) and not samples.caller_owned  # its memory cannot be shared: it is read-only or strided
    if not share and not copied:
        return batch(samples)
    values = as_batch(samples)
    # A shallow copy, because the mark must not change on the user's own batch.
    if values.caller_owned:
        values = copy.copy(values)
        values.caller_owned = False  # the user has promised not to write to it
    return values


def _import_samples(title: str, data: Any) -> Tensor:
    """Return an array of samples as a tensor."""
    if not is_array(data):
        raise RuntimeError(f"{title}: {_BATCH_FORMS}; got {describe_type(data)}")
    values = import_sample(title, data, "a batch")
    if not values.ndim:
        raise IndexError(f"{title}: {_BATCH_FORMS}; got an array without dimensions")
    if values.layout is not None:  # of the whole array, not of a sample
        values = copy.copy(values)
        values.relabel(None)
    return values


def _check_size(title: str, count: int, max_samples: int) -> None:
    if count > max_samples:
        raise RuntimeError(f"{title}: expected a batch of at most {max_samples} samples, the batch_size of the pipeline, got {count}")


def _import_list(title: str, data: Sequence[Any]) -> list[Any]:
    """Return the samples of a list. Raise RuntimeError unless they have one type, number of dimensions and layout."""
    # The usual case in one pass: a batch of 256 arrays would take 256 imports.
    if all(type(item) is np.ndarray for item in data) and len({(item.dtype, item.ndim) for item in data}) == 1:
        return list(data)
    parts = [import_sample(title, item, f"sample {i} of a batch") for i, item in enumerate(data)]
    layouts = {item.layout for item in parts if item.layout}
    first = parts[0]
    for i, item in enumerate(parts):
        if (item.dtype, item.ndim) != (first.dtype, first.ndim) or len(layouts) > 1:
            raise RuntimeError(
                f"{title}: all samples of a batch must have the same type, number of dimensions and layout; sample {i} is {describe(item)}, sample 0 "
                f"is {describe(first)}"
            )
    return parts


def describe(value: Tensor | Batch) -> str:
    """Describe the type, the number of dimensions and the layout for a message."""
    return f"{elements.dtype_name(value.dtype)} with {value.ndim} dimensions" + (f' and the layout "{value.layout}"' if value.layout else "")


class Expected:
    """Requirements on the batches of one input: as declared, and like the batches before.

    Args:
        title: Name of the operator, for messages.
        layout: Layout of the samples; None for that of the data.
        dtype: Their type, None or ``NO_TYPE`` for any.
        ndim: Their number of dimensions, None for any.

    Raises:
        ValueError, TypeError: not an element type, or not a number.
        RuntimeError: a negative number of dimensions, or one that does not fit the layout.
    """

    def __init__(self, title: str, layout: str | None, dtype: Any, ndim: int | None) -> None:
        self._title = title
        self.layout = layout or None
        self._dtype = None if dtype is None or dtype == elements.NO_TYPE else elements.to_dtype(dtype)
        self._ndim = None if ndim is None else int(ndim)
        if self._ndim is not None and self._ndim < 0:
            raise RuntimeError(f"{title}: ndim must be 0 or greater, got {ndim}")
        if self._ndim is not None and self.layout and len(self.layout) != self._ndim:
            raise RuntimeError(f'{title}: the layout "{layout}" has {len(self.layout)} letters, but ndim={ndim}')
        self._last: tuple[torch.dtype, int, str | None] | None = None

    def apply_layout(self, values: Batch, layout: str | None, overrides: bool) -> Batch:
        """Return the batch with the declared layout, or that of the data.

        Args:
            made: The batch, maybe with a layout.
            layout: Layout given with the data.
            overrides: Whether the declared layout replaces that of the data, or must equal it.
        """
        if not values.batch_size:
            return values
        # The layout of the call comes before that of the data; a declared one comes before both if it overrides.
        own = layout or values.layout
        wanted = self.layout if overrides or not own else own
        wanted = wanted or own
        if wanted and len(wanted) != values.ndim:
            raise RuntimeError(f'{self._title}: the layout "{wanted}" cannot describe samples with {values.ndim} dimensions')
        if self.layout and wanted != self.layout:
            raise RuntimeError(f'{self._title}: expected the layout "{self.layout}", got data with "{wanted}"')
        if wanted == values.layout:
            return values
        return as_batch(values, layout=wanted)

    def check(self, values: Batch) -> Batch:
        """Return the batch. Raise RuntimeError unless it is as declared and like the one before."""
        if not values.batch_size:
            # An empty batch has the type of the one before, so operators that accept it see a usable type.
            return values if values is EMPTY or self._last is None else _empty_batch(self._last)
        title = self._title
        if self._dtype is not None and values.dtype != self._dtype:
            raise RuntimeError(f"{title}: expected data of type {elements.dtype_name(self._dtype)}, got {describe(values)}")
        if self._ndim is not None and values.ndim != self._ndim:
            raise RuntimeError(f"{title}: expected data with {self._ndim} dimensions, got {describe(values)}")
        # As in DALI, a source must not change the type of its data: the error names the source, not an operator after it.
        kind = (values.dtype, values.ndim, values.layout)
        if self._last is not None and kind != self._last:
            raise RuntimeError(
                f"{title}: the data must keep their type, number of dimensions and layout from batch to batch: they were "
                f"{describe(_empty_batch(self._last))}, and now are {describe(values)}"
            )
        self._last = kind
        return values


def _empty_batch(kind: tuple[torch.dtype, int, str | None]) -> Batch:
    """Return an empty batch of a type."""
    dtype, ndim, layout = kind
    return new_batch(torch.empty(0, dtype=dtype), torch.empty((0, ndim), dtype=torch.int64), layout)
