# SPDX-License-Identifier: Apache-2.0
"""Color steps of uint8 images with the roundings of OpenCV, and tables of levels: for the translation of Albumentations."""

from typing import Any

import torch

from ..._core import native
from ..._core.values.batch import Batch
from ..._core.values.dispatch import output as allocate_output
from ..._core.values.dispatch import run
from ..._core.work.pending import SAME_SAMPLE

_colors = native.kernel("opencv_colors")
_tables = native.kernel("level_tables")
KINDS = native.numbers("opencv_colors.Kind")
"""The number of each kind of step."""
NUMBERS = 10
"""Numbers of a step: its kind, and a factor; or the shifts of hue (of 180), saturation and value; or a matrix row by row."""
LEVELS = 256


def with_color_steps(images: Batch, steps: torch.Tensor) -> Batch:
    """Return ``HWC`` images of one or three channels after their steps, float64 (N, steps, NUMBERS)."""
    return _launch(_colors, images, steps.reshape(len(steps), -1).to(torch.float64).contiguous())


def with_level_tables(images: Batch, tables: torch.Tensor) -> Batch:
    """Return ``HWC`` images whose levels are replaced by ``tables``, uint8 (N, 256), or (N, C, 256) with a table for each channel."""
    return _launch(_tables, images, tables.reshape(len(tables), -1).contiguous())


def _launch(kernel: Any, images: Batch, numbers: torch.Tensor) -> Batch:
    images = images.settle()
    output = images.with_buffer(allocate_output(native.empty, images.buffer.shape, torch.uint8, images.buffer.device), None)
    arguments = (images.buffer, images.ragged_shapes, numbers, output.buffer, output.ragged_shapes)
    output.pending = run(kernel, arguments, [(images, SAME_SAMPLE)], output.buffer)
    return output
