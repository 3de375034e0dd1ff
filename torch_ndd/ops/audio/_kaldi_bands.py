# SPDX-License-Identifier: Apache-2.0
"""Kaldi's filter banks of sounds in one pass, on the CPU: frames, preemphasis, transform, mel bands, logarithm and normalization."""

import torch

from ..._core import native
from ..._core.values.batch import Batch, new_batch
from ..._core.values.dispatch import run
from ..._core.work.pending import SAME_SAMPLE

_kernel = native.kernel("kaldi_bands", writes=(-1,))

BINS = 257
"""Frequencies of a spectrum: frames are padded to 512 elements."""


def kaldi_bands(sounds: Batch, window: torch.Tensor, filters: torch.Tensor, step: int, rows: int) -> Batch:
    """Return the logarithms of the bands of each frame, normalized over the frames: float32 (rows, bands) for each sound, zeros after its frames.

    Args:
        sounds: float32 (n,) in host memory, each of at least two frames.
        window: float64, a factor for each element of a frame, at most 512.
        filters: float64 (BINS, bands).
        step: distance of frames.
        rows: of the result, as many as the longest sound has frames, or more.
    """
    out = native.empty((sounds.batch_size, rows, filters.shape[1]), torch.float32, sounds.buffer.device)
    arguments = (sounds.buffer, sounds.ragged_shapes, window, filters, step, out)
    return new_batch(out, None, None, run(_kernel, arguments, [(sounds, SAME_SAMPLE)], out))
