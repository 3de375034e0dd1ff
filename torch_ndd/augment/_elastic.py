# SPDX-License-Identifier: Apache-2.0
"""Elastic deformations (Simard et al., 2003): smooth random distances for every pixel."""

import math
from typing import Any

import torch

from .. import types
from .._core.operators.operator import DeviceLike, T
from .._core.values.batch import Batch, as_batch, new_batch
from ..ops.filters.convolution import gaussian_blur
from ..ops.geometry.warp import remap
from ..ops.random.distributions import uniform
from ._inputs import add_channels, as_images, as_masks, as_results, check_rng, exclude_from_compilation, restore_channels


@exclude_from_compilation
def elastic(
    images: T,
    /,
    *,
    alpha: float = 50.0,
    fill_value: Any = 0.0,
    interp_type: types.DALIInterpType = types.INTERP_LINEAR,
    mask_fill_value: float = 0.0,
    masks: Any = None,
    rng: Any = None,
    sigma: float = 5.0,
) -> Any:
    """Move every pixel by a smooth random distance, drawn per sample.

    The distances along x and along y are uniform numbers from -1 to 1, blurred with a Gaussian of the standard deviation ``sigma``, times
    ``alpha / 2`` pixels. This is torchvision's ``ElasticTransform(alpha, sigma)``. All frames of a video move equally.

    Args:
        images: a Batch of images ``HWC`` or videos ``FHWC`` of any sizes, or one of them; uint8 or floating-point.
        alpha: strength; not negative.
        sigma: smoothness in pixels; with 0 the distances of pixels are independent.
        fill_value: value outside the image, one number or one per channel.
        interp_type: interpolation of images, ``INTERP_LINEAR``, ``INTERP_NN`` or ``INTERP_CUBIC``.
        masks: (H, W), (H, W, C) or, for objects, (M, H, W) per image, with frames for a video; they are sampled by nearest neighbor.
        mask_fill_value: value outside the masks.
        rng: random generator, by default :func:`torch_ndd.random.get_default_rng`.

    Returns:
        The images, or with masks a tuple of images and masks.

    Raises:
        ValueError: another layout or type, masks that do not fit, a negative or infinite ``alpha`` or ``sigma``.
        TypeError: ``images`` that are neither a Batch nor an image.

    >>> images = batch([torch.zeros(20, 30, 3), torch.zeros(24, 16, 3)], layout="HWC")
    >>> ndd.augment.elastic(images, alpha=80, sigma=4).shape
    [(20, 30, 3), (24, 16, 3)]
    """
    op = "elastic"
    for name, value in (("alpha", alpha), ("sigma", sigma)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{op}: {name} must be 0 or more and finite, got {value}")
    check_rng(op, rng)
    batch, is_batch = as_images(op, images)
    mask_batch = as_masks(op, masks, batch, is_batch)
    axis = (batch.layout or "").index("H")
    sizes = torch.tensor([shape[axis : axis + 2] for shape in batch.shape], dtype=torch.int64).reshape(-1, 2)
    # torchvision's displacements are in units of half the image, and its alpha is divided by the extent.
    x, y = (plane * (alpha / 2) for plane in smooth_planes(sizes, (sigma, sigma), batch.device, rng))
    output = remap(batch, x, y, interp=interp_type, relative=True, fill_value=fill_value)
    moved = None
    if mask_batch is not None:
        planes = remap(add_channels(mask_batch, batch), x, y, interp=types.INTERP_NN, relative=True, fill_value=mask_fill_value)
        moved = restore_channels(planes, mask_batch)
    return as_results(is_batch, [output, moved])


def smooth_planes(sizes: torch.Tensor, sigma: tuple[float, float], device: DeviceLike, rng: Any = None) -> tuple[Batch, Batch]:
    """Return two Batches (height, width) of uniform numbers from -1 to 1, blurred, on a device; ``sizes`` is int64 (N, 2), ``sigma`` along x and y.

    Each of the two is blurred unless its own sigma is 0.
    """
    # Equal sizes are constants, which repeated calls share; the numbers are the same.
    shape: Any = sizes[0].tolist() if len(sizes) and bool((sizes == sizes[:1]).all()) else new_batch(sizes)
    planes = []
    for deviation in sigma:
        noise = as_batch(uniform(shape=shape, range=[-1.0, 1.0], batch_size=len(sizes), device=device, rng=rng), layout="HW")
        if deviation > 0.0:
            window = int(8 * deviation + 1) | 1  # torchvision's window, made odd; it blurs with both sigmas
            noise = gaussian_blur(noise, window_size=[window, window], sigma=[float(sigma[1]), float(sigma[0])])
        planes.append(noise)
    return planes[0], planes[1]
