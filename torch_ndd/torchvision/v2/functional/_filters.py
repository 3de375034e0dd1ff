# SPDX-License-Identifier: Apache-2.0
"""Normalization, blur, noise and JPEG artifacts."""

from collections.abc import Sequence
from typing import Any

import PIL.Image
import torch

from ...._core.values.batch import Batch, as_batch, new_batch
from ...._core.values.tensor import as_tensor
from ....ops import noise
from ....ops.color.jpeg import jpeg_compression_distortion
from ....ops.filters import convolution
from ....ops.generic.convert import cast
from ....ops.geometry.crop import crop_mirror_normalize
from ....ops.math import functions as math
from ....ops.shape.join import cat
from ....ops.shape.reshape import transpose
from ....random import normal
from ..._numbers import as_argument, first_failure, holds, number, numbers
from ._color import check_channels
from ._dispatch import add_kernel, dispatch, extent, on_images, rows


def normalize(inpt: Any, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Any:
    """Subtract a mean and divide by a standard deviation, for each channel.

    Args:
        inpt: floating-point images or videos.
        mean, std: one number, or one per channel. An image of one channel gets a channel for each of several means.
        inplace: write into the memory of a torch tensor; a Batch is never changed.

    Raises:
        TypeError: other types.
        ValueError: fewer than three dimensions, a standard deviation of 0, another count of numbers.

    >>> normalize(torch.ones(1, 1, 1), [0.5], [0.25])
    tensor([[[2.]]])
    """
    return dispatch(normalize, inpt, mean=mean, std=std, inplace=inplace)


def _normalize(images: Batch, mean: Any, std: Any, inplace: bool = False) -> Batch:
    del inplace
    if not images.dtype.is_floating_point:
        raise TypeError(f"normalize: images must be of a floating-point type, got {images.dtype}; convert them with to_dtype(scale=True)")
    means, deviations = _as_list(mean), _as_list(std)
    if not all(deviations):
        raise ValueError("normalize: std evaluated to zero, leading to division by zero")
    channels = extent(images, "C")
    repeats = False
    if not isinstance(channels, torch.Tensor):
        repeats = channels == 1 < len(means)
        results = len(means) if repeats else channels
        for name, values in (("mean", means), ("std", deviations)):
            if len(values) not in (1, results):
                raise ValueError(f"normalize: {name} must have one value, or one for each of the {results} channels, got {len(values)}")
    # The kernel computes in float32, torchvision in the dtype of the images, and it has as many channels in its output as in its input.
    if images.dtype != torch.float32 or repeats:
        shape = (-1,) + (1,) * (images.ndim - 1 - (images.layout or "").index("C"))
        shift, scale = (torch.tensor(values, dtype=images.dtype).reshape(shape) for values in (means, deviations))
        return as_batch((images - as_tensor(shift)) / as_tensor(scale), layout=images.layout)
    return crop_mirror_normalize(images, mean=means, std=deviations, output_layout="", dtype=images.dtype)


def _as_list(values: Any) -> list[float]:
    if isinstance(values, int | float):
        return [float(values)]
    return [float(value) for value in (values.flatten().tolist() if isinstance(values, torch.Tensor) else values)]


normalize_image, normalize_video = on_images(normalize, _normalize, pil=False)
# The generated functions know no `inplace`; the ones below replace them.
_out_of_place = normalize_image


def _normalize_tensor(image: torch.Tensor, mean: Any, std: Any, inplace: bool = False) -> torch.Tensor:
    if image.is_floating_point() and image.dim() < 3:  # other dtypes raise TypeError in the kernel, as in torchvision
        raise ValueError(f"normalize: images must have the shape (..., C, H, W), got {tuple(image.shape)}")
    output = _out_of_place(image, mean, std)
    return image.copy_(output) if inplace else output


def _in_place(kernel: Any) -> Any:
    def normalize_image(image: torch.Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> torch.Tensor:
        """Apply :func:`normalize` to a torch tensor ``(..., C, H, W)``."""
        return kernel(image, mean, std, inplace)

    def normalize_video(video: torch.Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> torch.Tensor:
        """Apply :func:`normalize` to a torch tensor ``(..., C, H, W)``."""
        return kernel(video, mean, std, inplace)

    return normalize_image, normalize_video


normalize_image, normalize_video = _in_place(_normalize_tensor)
add_kernel(normalize, torch.Tensor)(_normalize_tensor)


def gaussian_blur(inpt: Any, kernel_size: Any, sigma: Any = None) -> Any:
    """Blur with a Gaussian window; the border is reflected without the edge pixel.

    Args:
        inpt: images or videos.
        kernel_size: width and height of the window, odd; or one number for both.
        sigma: standard deviations along x and y in pixels, or one for both; for a Batch also one per sample. By default ``0.15 * size + 0.35``.

    Raises:
        ValueError: an even or negative size, a sigma that is not positive, another count.
        RuntimeError: half a window that is not smaller than the image.

    >>> gaussian_blur(torch.ones(1, 5, 5), 3).flatten()[0]
    tensor(1.)
    """
    return dispatch(gaussian_blur, inpt, kernel_size=kernel_size, sigma=sigma)


def _gaussian_blur(images: Batch, kernel_size: Any, sigma: Any = None) -> Batch:
    op = "gaussian_blur"
    if isinstance(kernel_size, int):
        kernel_size = [kernel_size, kernel_size]
    if len(kernel_size) != 2:
        raise ValueError(f"{op}: kernel_size must be a number or two, got {len(kernel_size)}")
    for window in kernel_size:
        if window % 2 == 0 or window < 0:
            raise ValueError(f"{op}: kernel_size must be odd and positive, got {kernel_size}")
    if sigma is None:
        sigma = [window * 0.15 + 0.35 for window in kernel_size]
    size = images.batch_size
    # One number, one for each axis, or for a Batch one number or pair per sample.
    if isinstance(sigma, int | float):
        sigma = [sigma, sigma]
    elif isinstance(sigma, list | tuple) and len(sigma) == 1:
        sigma = [sigma[0], sigma[0]]
    elif isinstance(sigma, list | tuple) and len(sigma) == 2:
        pass
    elif isinstance(sigma, Batch | torch.Tensor) or (isinstance(sigma, list | tuple) and len(sigma) == size):
        flat = sigma.torch() if isinstance(sigma, Batch) else torch.as_tensor(sigma)
        sigma = flat if flat.dim() > 1 and flat.shape[1] == 2 else torch.stack([flat.reshape(-1)] * 2, 1)
    elif isinstance(sigma, list | tuple):
        raise ValueError(f"{op}: sigma must be a number or two, got {len(sigma)}")
    else:
        raise TypeError(f"{op}: sigma must be a number or a sequence of numbers, got {type(sigma)}")
    x, y = numbers(op, "sigma", sigma, 2, size)
    for deviation in (x, y):
        if not holds(deviation > 0):
            raise ValueError(f"{op}: {first_failure(deviation > 0)}sigma must be positive, got {deviation}")
    extents = [extent(images, letter) for letter in "CHW"]
    if any(isinstance(side, int) and side == 0 for side in extents):
        return images  # without pixels
    # Samples without pixels have no border either.
    empty = sum((side == 0 for side in extents if isinstance(side, torch.Tensor)), torch.tensor(False)) > 0
    for border, side, axis in zip((kernel_size[1] // 2, kernel_size[0] // 2), extents[1:], ("height", "width"), strict=True):
        fits = (border < side) | empty if isinstance(side, torch.Tensor) else border < side
        if not holds(fits):
            raise RuntimeError(f"{op}: {first_failure(fits)}half the kernel ({border}) must be smaller than the {axis} ({side})")
    # torchvision names the width first, the operator the height.
    return convolution.gaussian_blur(images, window_size=[kernel_size[1], kernel_size[0]], sigma=rows(y, x), exact=True)


gaussian_blur_image, gaussian_blur_video = on_images(gaussian_blur, _gaussian_blur)


def gaussian_noise(inpt: Any, mean: Any = 0.0, sigma: Any = 0.1, clip: bool = True) -> Any:
    """Add normally distributed noise, in units of the range: 0.1 is 25.5 levels of uint8.

    Args:
        inpt: images or videos, uint8 or floating-point.
        mean, sigma: mean and standard deviation of the noise; for a Batch also one per sample.
        clip: limit the result to the range; without it uint8 wraps around.

    Raises:
        ValueError: a negative sigma, other types.

    >>> gaussian_noise(torch.zeros(1, 2, 2), mean=0.5, sigma=0.0).flatten()
    tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    return dispatch(gaussian_noise, inpt, mean=mean, sigma=sigma, clip=clip)


def _gaussian_noise(images: Batch, mean: Any = 0.0, sigma: Any = 0.1, clip: bool = True) -> Batch:
    op = "gaussian_noise"
    shift, spread = (number(op, name, value, images.batch_size) for name, value in (("mean", mean), ("sigma", sigma)))
    if not holds(spread >= 0):
        raise ValueError(f"{op}: {first_failure(spread >= 0)}sigma must not be negative, got {spread}")
    floats = images.dtype.is_floating_point
    if not floats and images.dtype is not torch.uint8:
        raise ValueError(f"{op}: images must be uint8 or floating-point, got {images.dtype}")
    unit = 1.0 if floats else 255.0  # noise is relative to the range
    center, width = as_argument(shift * unit), as_argument(spread * unit)
    # torchvision truncates the noise of uint8 to whole levels before it adds them.
    if floats or clip:
        noisy = noise.gaussian(images, mean=center, stddev=width, truncate=not floats)
        return cast(math.clamp(noisy, 0.0, 1.0), dtype=images.dtype) if floats and clip else noisy
    values = images.wait() + normal(images, mean=center, stddev=width, dtype=torch.float32).wait().to(torch.int16)
    values = values.to(torch.uint8)  # wraps around; the operators saturate
    return new_batch(values, images.ragged_shapes, images.layout, shared_extents=images.shared_extents)


gaussian_noise_image, gaussian_noise_video = on_images(gaussian_noise, _gaussian_noise, pil=False)


def _refuse_pillow(inpt: Any, *args: Any, **kwargs: Any) -> Any:
    raise ValueError("gaussian_noise: PIL images are not supported; convert them with to_image")


add_kernel(gaussian_noise, PIL.Image.Image)(_refuse_pillow)


def jpeg(image: Any, quality: Any) -> Any:
    """Apply the artifacts of JPEG compression.

    Args:
        image: uint8 images or videos with 1 or 3 channels.
        quality: 1 (small files) to 100; for a Batch one number, or one per sample.

    Raises:
        RuntimeError: another type.
        TypeError: another number of channels.
        ValueError: a quality outside 1 to 100.

    >>> jpeg(torch.full((3, 8, 8), 100, dtype=torch.uint8), 50).unique()
    tensor([100], dtype=torch.uint8)
    """
    return dispatch(jpeg, image, quality=quality)


def _jpeg(images: Batch, quality: Any) -> Batch:
    check_channels("jpeg", images)
    checked_quality = number("jpeg", "quality", quality, images.batch_size)
    fits = (checked_quality >= 1) & (checked_quality <= 100)
    if not holds(fits):
        raise ValueError(f"jpeg: {first_failure(fits)}quality must be from 1 to 100, got {quality}")
    layout = images.layout or ""
    last = layout.replace("C", "") + "C"  # libjpeg reads interleaved pixels
    pixels = images if layout == last else transpose(images, perm=[layout.index(letter) for letter in last])
    gray = extent(images, "C") == 1
    if isinstance(gray, torch.Tensor):
        raise ValueError("jpeg: all images of a Batch must have the same number of channels")
    if gray:  # compressed as RGB: the color planes of gray pixels are constant
        pixels = cat(pixels, pixels, pixels, axis_name="C")
    compressed = jpeg_compression_distortion(pixels, quality=as_argument(checked_quality))
    if gray:
        compressed = compressed.slice[..., :1]
    if layout != last:
        compressed = transpose(compressed, perm=[last.index(letter) for letter in layout])
    return as_batch(compressed, layout=layout)


jpeg_image, jpeg_video = on_images(jpeg, _jpeg, first="image")
