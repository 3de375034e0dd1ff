# SPDX-License-Identifier: Apache-2.0
"""Collecting samples from anywhere into one buffer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..context.device import DeviceLike
from ..native import empty, kernel, volume
from ..work.pending import Pending
from ..work.sources import UNKNOWN
from .dispatch import run
from .extents import Fixed, lasting
from .foreign import from_numpy, from_torch
from .operand import Operand
from .tensor import Tensor, as_tensor, check_layout, new_tensor

pack = kernel("pack")


def is_array(data: Any) -> bool:
    """Return whether data is a single array, whose first dimension counts samples, rather than a list."""
    return isinstance(data, Tensor) or any(hasattr(data, name) for name in ("__dlpack__", "__array__", "__cuda_array_interface__"))


def fence(source: Operand, sample: int) -> Pending | None:
    """Return the pending work of ``source``, or of one of its samples, as that of a single sample: readers wait for all of it."""
    pending = source.pending
    if pending is None or pending.stays or torch.compiler.is_compiling():
        return pending
    nothing = torch.empty((1, 0), dtype=torch.uint8)
    return run(pack, ([], nothing, None), [(source, sample)], nothing)


def collected(
    samples: list[Any], dtype: Any, device: DeviceLike | None, layout: str | None, share: bool
) -> tuple[torch.Tensor, torch.Tensor | None, str | None, Pending | None, bool, Fixed | None, Sequence[str]]:
    """Return values, shapes, layout, pending work, whether the memory is the caller's, common extents and sources of a batch of these samples.

    The first sample determines what is not given. ``share``: use the samples' memory if they are contiguous.
    """
    made = _imported(samples) if dtype is None and device is None else None
    made = made or _converted(samples, dtype, device)
    first = made[0]
    layout = check_layout("batch", next((one.layout for one in made if one.layout), None) if layout is None else layout, first.ndim)
    parts = [one.buffer for one in made]
    sources = UNKNOWN if torch.compiler.is_compiling() else _sources_of(made)
    fixed = None
    if all(part.shape == parts[0].shape for part in parts):
        shape, shapes = [len(parts), *parts[0].shape], None
    else:
        extents = [part.shape for part in parts]
        shapes, fixed = torch.tensor(extents, dtype=torch.int64), lasting(extents, layout)
        shape = [volume(shapes, first.itemsize)]
    if share and not torch.compiler.is_compiling() and all(one.pending is None for one in made) and _adjoining(parts):
        strides = torch.empty(shape, device="meta").stride()
        return parts[0].as_strided(shape, strides), shapes, layout, None, any(one.caller_owned for one in made), fixed, sources
    out = empty(shape, first.dtype, parts[0].device)
    if out.device.type == "cpu" and not torch.compiler.is_compiling():
        return out, shapes, layout, run(pack, (parts, out, shapes), [(one, one._sample) for one in made], out), False, fixed, sources
    torch.cat([one.wait().reshape(-1) for one in made], out=out.view(-1))
    return out, shapes, layout, None, False, fixed, sources


def _sources_of(samples: list[Tensor]) -> Sequence[str]:
    if all(one.sources is UNKNOWN for one in samples):
        return UNKNOWN
    return tuple([one.sources[0] if one.sources else "" for one in samples])


def _imported(samples: list[Any]) -> list[Tensor] | None:
    """Take the fast path for many arrays of one dtype; return None if there are other objects among them."""
    kinds = set(map(type, samples))
    if kinds != {np.ndarray} and kinds != {torch.Tensor}:
        return None
    take_in = from_numpy if kinds == {np.ndarray} else from_torch
    made = [new_tensor(values, external=external) for values, external in map(take_in, samples)]
    alike = {(one.buffer.dtype, one.buffer.dim(), one.buffer.device) for one in made}
    return made if len(alike) == 1 else None


def _converted(samples: list[Any], dtype: Any, device: DeviceLike | None) -> list[Tensor]:
    made: list[Tensor] = []
    for i, one in enumerate(samples):
        if one is None or (isinstance(one, Operand) and not isinstance(one, Tensor)):
            raise TypeError(f"sample {i} of a batch must be a tensor, got {type(one).__name__}")
        first = made[0] if made else None
        made.append(as_tensor(one, dtype if first is None else first.dtype, device if first is None else first.device))
        if first is not None and made[-1].ndim != first.ndim:
            raise RuntimeError(f"sample {i} of a batch has {made[-1].ndim} dimensions, sample 0 has {first.ndim}: the sample dimensions must agree")
    return made


def _adjoining(parts: list[torch.Tensor]) -> bool:
    end, storage = parts[0].data_ptr(), parts[0].untyped_storage().data_ptr()
    for part in parts:
        if part.data_ptr() != end or part.untyped_storage().data_ptr() != storage:
            return False
        end += part.nbytes
    return True
