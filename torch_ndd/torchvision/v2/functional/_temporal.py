# SPDX-License-Identifier: Apache-2.0
"""Frames of videos."""

from typing import Any

import torch
from torchvision import tv_tensors as single

from ...._core.values.batch import Batch, as_batch
from ... import tv_tensors
from ._dispatch import add_kernel, as_images, dispatch


def uniform_temporal_subsample(inpt: Any, num_samples: int) -> Any:
    """Select evenly spaced frames, from the first to the last, with truncated indices.

    Args:
        inpt: videos ``(..., T, C, H, W)``, or a Batch with frames.
        num_samples: number of frames; if the video has fewer, frames are repeated.

    >>> uniform_temporal_subsample(torch.arange(5).reshape(5, 1, 1, 1), 3).flatten()
    tensor([0, 2, 4])
    """
    return dispatch(uniform_temporal_subsample, inpt, num_samples=num_samples)


def _frame_indices(count: int, num_samples: int) -> torch.Tensor:
    return torch.linspace(0, count - 1, num_samples).long()  # truncates, as torchvision does


def uniform_temporal_subsample_video(video: torch.Tensor, num_samples: int) -> torch.Tensor:
    """Apply :func:`uniform_temporal_subsample` to a torch tensor ``(..., T, C, H, W)``."""
    return video.index_select(-4, _frame_indices(video.shape[-4], num_samples).to(video.device))


def _subsample_typed(inpt: Any, num_samples: int) -> Any:
    return tv_tensors.wrap(uniform_temporal_subsample_video(inpt.as_subclass(torch.Tensor), num_samples), like=inpt)


def _subsample_batch(inpt: Batch, num_samples: int) -> Any:
    videos = as_images("uniform_temporal_subsample", inpt)
    if not (videos.layout or "").startswith("F"):
        raise TypeError(f"uniform_temporal_subsample: videos must have a layout that starts with F, got {videos.layout!r}")
    samples = [video.torch().index_select(0, _frame_indices(video.shape[0], num_samples)) for video in videos.evaluate()]
    return as_batch(samples, layout=videos.layout)


add_kernel(uniform_temporal_subsample, torch.Tensor)(uniform_temporal_subsample_video)
add_kernel(uniform_temporal_subsample, single.Video)(_subsample_typed)
add_kernel(uniform_temporal_subsample, Batch)(_subsample_batch)
