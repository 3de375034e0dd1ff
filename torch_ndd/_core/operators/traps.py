# SPDX-License-Identifier: Apache-2.0
"""Warnings, once per process, about input that is legal but most likely a mistake."""

import sys
import warnings

import torch

from ..values.batch import Batch
from ..work.call_sites import is_own

_MANY_CHANNELS = 16  # more than images have
_warned: set[str] = set()


def warn_about_planes(op: str, value: Batch) -> None:
    """Warn of an image without a layout that is taken as ``HWC`` and looks like ``CHW``: 3 rows and many channels."""
    if "planes" in _warned or torch.compiler.is_compiling():
        return
    shape = value.buffer.shape[1:] if value.ragged_shapes is None else value.ragged_shapes[0].tolist() if len(value.ragged_shapes) else ()
    if len(shape) != 3 or shape[0] != 3 or shape[2] < _MANY_CHANNELS:
        return
    _warned.add("planes")
    rows, columns, channels = shape
    warnings.warn(
        f"{op}: an input of shape ({rows}, {columns}, {channels}) without a layout is taken as HWC, an image of 3 rows and {channels} channels. "
        'If it is CHW, write ndd.as_tensor(image, layout="CHW") or ndd.as_batch(images, layout="CHW"), and transpose(perm=[1, 2, 0]) for operators '
        'that take HWC only; with layout="HWC" this warning does not appear',
        UserWarning,
        stacklevel=_level(),
    )


def _level() -> int:
    """Return the stack level of the program's frame, for a warning that the caller issues."""
    frame, level = sys._getframe(1), 1
    while frame is not None and is_own(frame.f_code):
        frame, level = frame.f_back, level + 1
    return level
