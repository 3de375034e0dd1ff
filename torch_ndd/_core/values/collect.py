# SPDX-License-Identifier: Apache-2.0
"""Collecting samples from anywhere into one buffer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..context.device import DeviceLike
from ..native import empty, kernel, volume
from ..native.tracing import is_compiling
from ..native.transforms import in_transform
from ..work.pending import Pending
from ..work.sources import UNKNOWN
from .dispatch import run
from .extents import SharedExtents, find_lasting_extents
from .foreign import from_numpy, from_torch, stack_arrays
from .operand import Operand
from .tensor import Tensor, as_tensor, check_layout, new_tensor
from .transformed import call_outside

pack = kernel("pack")

_SMALL_BYTES = 1 << 17  # to copy them takes some 20 us, to queue the copy 70


def is_array(data: Any) -> bool:
    """Return whether data is a single array, whose first dimension counts samples, rather than a list."""
    return isinstance(data, Tensor) or any(hasattr(data, name) for name in ("__dlpack__", "__array__", "__cuda_array_interface__"))


def fence(source: Operand, sample: int) -> Pending | None:
    """Return the pending work of ``source``, or of one of its samples, as that of a single sample: readers wait for all of it."""
    pending = source.pending
    if pending is None or pending.stays or is_compiling():
        return pending
    # A kernel that copies nothing but depends on the source.
    nothing = torch.empty((1, 0), dtype=torch.uint8, device="cpu")
    return run(pack, ([], nothing, None), [(source, sample)], nothing)


def collect(
    samples: list[Any], dtype: Any, device: DeviceLike | None, layout: str | None, share: bool
) -> tuple[torch.Tensor, torch.Tensor | None, str | None, Pending | None, bool, SharedExtents | None, Sequence[str]]:
    """Return values, shapes, layout, pending work, whether the memory is the caller's, common extents and sources of a batch of these samples.

    The first sample determines dtype and device by default. ``share``: use the samples' memory if they are contiguous.
    """
    if not is_compiling() and in_transform():
        return call_outside("batch", lambda inputs, _: collect(inputs[0], dtype, device, layout, share), (samples,), {})
    if dtype is None and device is None and (stacked := _copy_small(samples, share)) is not None:
        return stacked, None, check_layout("batch", layout, stacked.dim() - 1), None, False, None, UNKNOWN
    # The usual lists of arrays are checked for a common type once, not array by array.
    tensors = _import_arrays(samples) if dtype is None and device is None else None
    tensors = tensors or _convert(samples, dtype, device)
    first = tensors[0]
    layout = check_layout("batch", next((tensor.layout for tensor in tensors if tensor.layout), None) if layout is None else layout, first.ndim)
    parts = [tensor.buffer for tensor in tensors]
    sources = UNKNOWN if is_compiling() else _sources_of(tensors)
    shared_extents = None
    if all(part.shape == parts[0].shape for part in parts):
        shape, shapes = [len(parts), *parts[0].shape], None
    else:
        extents = [part.shape for part in parts]
        shapes, shared_extents = torch.tensor(extents, dtype=torch.int64, device="cpu"), find_lasting_extents(extents, layout)
        shape = [volume(shapes, first.itemsize)]
    # Samples that adjoin in one storage, such as consecutive ones of another batch, are a batch already.
    if share and not is_compiling() and all(tensor.pending is None for tensor in tensors) and _are_adjoining(parts):
        strides = torch.empty(shape, device="meta").stride()
        return parts[0].as_strided(shape, strides), shapes, layout, None, any(tensor.caller_owned for tensor in tensors), shared_extents, sources
    out = empty(shape, first.dtype, parts[0].device)
    if out.device.type == "cpu" and not is_compiling():
        pending = run(pack, (parts, out, shapes), [(tensor, tensor._sample) for tensor in tensors], out)
        return out, shapes, layout, pending, False, shared_extents, sources
    # On a GPU, or in a graph, where torch orders the work.
    torch.cat([tensor.wait().reshape(-1) for tensor in tensors], out=out.view(-1))
    return out, shapes, layout, None, False, shared_extents, sources


def _copy_small(samples: list[Any], share: bool) -> torch.Tensor | None:
    """Copy small arrays into one tensor, which is faster than to queue the copy. Return None for other samples, and if they may share memory."""
    first = samples[0]
    if type(first) is not np.ndarray or first.nbytes * len(samples) > _SMALL_BYTES or is_compiling():
        return None
    # Arrays without a base have memory of their own, which they cannot share as a batch.
    return None if share and (len(samples) == 1 or first.base is not None) else stack_arrays(samples)


def _sources_of(samples: list[Tensor]) -> Sequence[str]:
    if all(sample.sources is UNKNOWN for sample in samples):
        return UNKNOWN
    return tuple([sample.sources[0] if sample.sources else "" for sample in samples])


def _import_arrays(samples: list[Any]) -> list[Tensor] | None:
    """Convert many arrays of the same dtype fast; return None for other objects."""
    kinds = set(map(type, samples))
    if kinds != {np.ndarray} and kinds != {torch.Tensor}:
        return None
    import_array = from_numpy if kinds == {np.ndarray} else from_torch
    tensors = [new_tensor(values, caller_owned=caller_owned) for values, caller_owned in map(import_array, samples)]
    alike = {(tensor.buffer.dtype, tensor.buffer.dim(), tensor.buffer.device) for tensor in tensors}
    return tensors if len(alike) == 1 else None


def _convert(samples: list[Any], dtype: Any, device: DeviceLike | None) -> list[Tensor]:
    tensors: list[Tensor] = []
    for i, sample in enumerate(samples):
        if sample is None or (isinstance(sample, Operand) and not isinstance(sample, Tensor)):
            raise TypeError(f"sample {i} of a batch must be a tensor, got {type(sample).__name__}")
        first = tensors[0] if tensors else None
        tensors.append(as_tensor(sample, dtype if first is None else first.dtype, device if first is None else first.device))
        if first is not None and tensors[-1].ndim != first.ndim:
            raise RuntimeError(f"sample {i} of a batch has {tensors[-1].ndim} dimensions, sample 0 has {first.ndim}; all samples must have as many")
    return tensors


def _are_adjoining(parts: list[torch.Tensor]) -> bool:
    end, storage = parts[0].data_ptr(), parts[0].untyped_storage().data_ptr()
    for part in parts:
        if part.data_ptr() != end or part.untyped_storage().data_ptr() != storage:
            return False
        end += part.nbytes
    return True
