# SPDX-License-Identifier: Apache-2.0
"""Colors: brightness, contrast, saturation, hue, sharpness, gamma, levels and channels."""

from typing import Any

import torch
from torchvision import tv_tensors as single

from ...._core.values.batch import Batch, new_batch
from ....ops.color import adjust, histogram, levels
from ....ops.color.jitter import color_jitter, grayscale
from ....ops.filters.convolution import sharpness
from ....ops.random import permute
from ... import tv_tensors
from ..._numbers import as_argument, batch_of, first_failure, holds, number
from ..._sample import kind_of
from ._conversion import convert_dtype
from ._dispatch import as_images, dispatch, extent, on_images


def _check_factor(op: str, images: Batch, name: str, value: Any, limit: float | None = None) -> Any:
    """Return a factor after a check that it is not negative, or from ``-limit`` to ``limit``."""
    factor = number(op, name, value, images.batch_size)
    fits = factor >= 0 if limit is None else (factor >= -limit) & (factor <= limit)
    if not holds(fits):
        rule = "must not be negative" if limit is None else f"must be in [{-limit}, {limit}]"
        raise ValueError(f"{op}: {first_failure(fits)}{name} {rule}, got {factor}")
    return factor


def check_channels(op: str, images: Batch) -> None:
    channels = extent(images, "C")
    wrong = channels not in (1, 3) if not isinstance(channels, torch.Tensor) else bool(((channels != 1) & (channels != 3)).any())
    if wrong:
        raise TypeError(f"{op}: images must have 1 or 3 channels, got {channels}")


_INEXACT = (torch.int32, torch.int64)  # float32 has 24 bits of precision


def _check_precision(op: str, images: Batch) -> None:
    if images.dtype in _INEXACT:
        raise RuntimeError(f"{op}: {images.dtype} cannot be computed safely in float32; convert the images to a smaller or floating-point type")


def _as_double(value: Any) -> Any:
    """Return an argument in double."""
    return as_argument(value.to(torch.float64) if isinstance(value, torch.Tensor) else float(value))


# --- channels ---


def rgb_to_grayscale(inpt: Any, num_output_channels: int = 1) -> Any:
    """Return ``0.2989 R + 0.587 G + 0.114 B``, in one channel or repeated in three.

    >>> rgb_to_grayscale(torch.full((3, 1, 1), 100, dtype=torch.uint8)).item()
    99
    """
    return dispatch(rgb_to_grayscale, inpt, num_output_channels=num_output_channels)


to_grayscale = rgb_to_grayscale


def _rgb_to_grayscale(images: Batch, num_output_channels: int = 1) -> Batch:
    if num_output_channels not in (1, 3):
        raise ValueError(f"rgb_to_grayscale: num_output_channels must be 1 or 3, got {num_output_channels}")
    return grayscale(images, channels=num_output_channels)


rgb_to_grayscale_image, _ = on_images(rgb_to_grayscale, _rgb_to_grayscale)


def grayscale_to_rgb(inpt: Any) -> Any:
    """Repeat the only channel three times; images with three channels or more do not change.

    >>> grayscale_to_rgb(torch.zeros(1, 2, 2)).shape
    torch.Size([3, 2, 2])
    """
    return dispatch(grayscale_to_rgb, inpt)


def _grayscale_to_rgb(images: Batch) -> Batch:
    channels = extent(images, "C")
    if not isinstance(channels, torch.Tensor) and channels >= 3:  # also RGBA
        return images
    return grayscale(images, channels=3)


grayscale_to_rgb_image, _ = on_images(grayscale_to_rgb, _grayscale_to_rgb)


def permute_channels(inpt: Any, permutation: Any) -> Any:
    """Permute the channels: channel i of the result is ``permutation[i]`` of the input.

    >>> permute_channels(torch.tensor([1, 2, 3]).reshape(3, 1, 1), [2, 0, 1]).flatten()
    tensor([3, 1, 2])
    """
    return dispatch(permute_channels, inpt, permutation=permutation)


def _permute_channels(images: Batch, permutation: Any) -> Batch:
    channels = extent(images, "C")
    # The same permutation for all samples, or a row for each.
    if isinstance(permutation, list | tuple) and all(isinstance(index, int) for index in permutation):
        if not isinstance(channels, torch.Tensor) and len(permutation) != channels:
            raise ValueError(f"permute_channels: permutation must have {channels} entries, one per channel, got {len(permutation)}")
        return permute.permute_channels(images, permutation=list(permutation))
    table = permutation.torch() if isinstance(permutation, Batch) else torch.as_tensor(permutation)
    if not isinstance(channels, torch.Tensor) and table.shape[-1] != channels:
        raise ValueError(f"permute_channels: permutation must have {channels} entries, one per channel, got {table.shape[-1]}")
    return permute.permute_channels(images, permutation=table.tolist() if table.dim() == 1 else batch_of(table.to(torch.int32)))


permute_channels_image, permute_channels_video = on_images(permute_channels, _permute_channels)

# --- brightness, contrast, saturation, hue ---


def _jitter(images: Batch, name: str, value: Any, limit: float | None = None) -> Batch:
    factor = _check_factor(f"adjust_{name}", images, f"{name}_factor", value, limit)
    check_channels(f"adjust_{name}", images)
    return color_jitter(images, **{name: _as_double(factor)})


def adjust_brightness(inpt: Any, brightness_factor: Any) -> Any:
    """Multiply the values: 0 is black, 1 the image.

    >>> adjust_brightness(torch.tensor([[[100]]], dtype=torch.uint8), 1.5).item()
    150
    """
    return dispatch(adjust_brightness, inpt, brightness_factor=brightness_factor)


def _adjust_brightness(images: Batch, brightness_factor: Any) -> Batch:
    return _jitter(images, "brightness", brightness_factor)


adjust_brightness_image, adjust_brightness_video = on_images(adjust_brightness, _adjust_brightness)


def adjust_contrast(inpt: Any, contrast_factor: Any) -> Any:
    """Scale the difference from the mean gray of the image: 0 is that gray, 1 the image."""
    return dispatch(adjust_contrast, inpt, contrast_factor=contrast_factor)


def _adjust_contrast(images: Batch, contrast_factor: Any) -> Batch:
    return _jitter(images, "contrast", contrast_factor)


adjust_contrast_image, adjust_contrast_video = on_images(adjust_contrast, _adjust_contrast)


def adjust_saturation(inpt: Any, saturation_factor: Any) -> Any:
    """Scale the difference from the gray of each pixel: 0 is gray, 1 the image."""
    return dispatch(adjust_saturation, inpt, saturation_factor=saturation_factor)


def _adjust_saturation(images: Batch, saturation_factor: Any) -> Batch:
    return _jitter(images, "saturation", saturation_factor)


adjust_saturation_image, adjust_saturation_video = on_images(adjust_saturation, _adjust_saturation)


def adjust_hue(inpt: Any, hue_factor: Any) -> Any:
    """Rotate the hue in HSV, by a fraction of a turn from -0.5 to 0.5."""
    return dispatch(adjust_hue, inpt, hue_factor=hue_factor)


def _adjust_hue(images: Batch, hue_factor: Any) -> Batch:
    # Images that have no hue or no pixels do not change, whatever their dtype.
    if images.dtype in _INEXACT and _lack_hue(images):
        _check_factor("adjust_hue", images, "hue_factor", hue_factor, 0.5)
        check_channels("adjust_hue", images)
        return images
    _check_precision("adjust_hue", images)
    return _jitter(images, "hue", hue_factor, 0.5)


def _lack_hue(images: Batch) -> bool:
    channels, height, width = (extent(images, letter) for letter in "CHW")
    unchanged = (channels == 1) | (channels * height * width == 0)
    return bool(unchanged.all()) if isinstance(unchanged, torch.Tensor) else unchanged


adjust_hue_image, adjust_hue_video = on_images(adjust_hue, _adjust_hue)


def jitter_images(inpt: Batch, brightness: Any, contrast: Any, saturation: Any, hue: Any, order: torch.Tensor) -> Any:
    """Apply several of these four to a Batch, in an order (N, 4) for each sample; other leaves than images pass through."""
    if kind_of(inpt) not in (single.Image, single.Video, torch.Tensor):
        return inpt
    images = as_images("ColorJitter", inpt)
    check_channels("ColorJitter", images)
    named = {"brightness": brightness, "contrast": contrast, "saturation": saturation, "hue": hue}
    # One operator for all four: each sample goes through its order while its pixels are in the cache.
    factors = {name: None if value is None else _as_double(value) for name, value in named.items()}
    # Without any factor the images are returned as they are.
    output = images if all(factor is None for factor in factors.values()) else color_jitter(images, order=batch_of(order.to(torch.int32)), **factors)
    return inpt.over(output) if tv_tensors.is_typed(inpt) else output


# --- sharpness, gamma, levels ---


def adjust_sharpness(inpt: Any, sharpness_factor: Any) -> Any:
    """Blend with a smoothed image: 0 is smooth, 1 the image, more is sharper. The border of one pixel does not change."""
    return dispatch(adjust_sharpness, inpt, sharpness_factor=sharpness_factor)


def _adjust_sharpness(images: Batch, sharpness_factor: Any) -> Batch:
    check_channels("adjust_sharpness", images)
    return sharpness(images, sharpness=_as_double(_check_factor("adjust_sharpness", images, "sharpness_factor", sharpness_factor)))


adjust_sharpness_image, adjust_sharpness_video = on_images(adjust_sharpness, _adjust_sharpness)


def adjust_gamma(inpt: Any, gamma: Any, gain: Any = 1) -> Any:
    """Return ``gain * x ** gamma``, for values from 0 to 1."""
    return dispatch(adjust_gamma, inpt, gamma=gamma, gain=gain)


def _adjust_gamma(images: Batch, gamma: Any, gain: Any = 1) -> Batch:
    _check_precision("adjust_gamma", images)
    power = _check_factor("adjust_gamma", images, "gamma", gamma)
    return levels.gamma(images, gamma=_as_double(power), gain=_as_double(number("adjust_gamma", "gain", gain, images.batch_size)))


adjust_gamma_image, adjust_gamma_video = on_images(adjust_gamma, _adjust_gamma, gain=1.0)


def posterize(inpt: Any, bits: Any) -> Any:
    """Keep the highest ``bits`` (0 to 8) of each value.

    >>> posterize(torch.tensor([[[255]]], dtype=torch.uint8), 1).item()
    128
    """
    return dispatch(posterize, inpt, bits=bits)


def _posterize(images: Batch, bits: Any) -> Batch:
    # torchvision's check. It comes first because a recorded call with 1 must not serve 1.0 or True.
    if isinstance(bits, bool | float):
        raise TypeError(f"posterize: bits must be an integer from 0 to 8, got {bits!r}")
    kept_bits = number("posterize", "bits", bits, images.batch_size)
    fits = (kept_bits >= 0) & (kept_bits <= 8)
    if not holds(fits):
        raise TypeError(f"posterize: {first_failure(fits)}bits must be an integer from 0 to 8, got {kept_bits}")
    # All bits remain: torchvision returns the image itself.
    if not images.dtype.is_floating_point and not isinstance(kept_bits, torch.Tensor) and kept_bits >= value_bits(images.dtype):
        return images
    if _is_wide(images):
        return _with_values(images, images.wait() & -(1 << value_bits(images.dtype) - _expand_to_values(kept_bits, images)))
    return adjust.posterize(images, bits=as_argument(kept_bits))


posterize_image, posterize_video = on_images(posterize, _posterize)


def value_bits(dtype: torch.dtype) -> int:
    """Return the number of value bits of an integer dtype."""
    return torch.iinfo(dtype).max.bit_length()


def largest(dtype: torch.dtype) -> int:
    """Return the value of white: 1 for floating-point types, else the largest integer."""
    return 1 if dtype.is_floating_point else 1 if dtype is torch.bool else torch.iinfo(dtype).max


def solarize(inpt: Any, threshold: Any) -> Any:
    """Invert values that are not below the threshold, which is in the image's units.

    Raises:
        TypeError: a threshold above white.

    >>> solarize(torch.tensor([[[10, 200]]], dtype=torch.uint8), 128)
    tensor([[[10, 55]]], dtype=torch.uint8)
    """
    return dispatch(solarize, inpt, threshold=threshold)


def _is_wide(images: Batch) -> bool:
    """Return whether the dtype is too wide for the operators on levels, so torch computes them."""
    return images.dtype in (torch.int32, torch.int64)


def _with_values(images: Batch, values: torch.Tensor) -> Batch:
    return new_batch(values, images.ragged_shapes, images.layout, shared_extents=images.shared_extents)


def _solarize(images: Batch, threshold: Any) -> Batch:
    limit = number("solarize", "threshold", threshold, images.batch_size)
    fits = limit <= largest(images.dtype)
    if not holds(fits):
        raise TypeError(f"solarize: {first_failure(fits)}threshold must not be above {largest(images.dtype)}, got {limit}")
    if _is_wide(images):
        return _with_values(
            images, torch.where(images.wait() >= _expand_to_values(limit, images), images.wait() ^ largest(images.dtype), images.wait())
        )
    return levels.solarize(images, threshold=as_argument(limit))


def _expand_to_values(column: Any, images: Batch) -> Any:
    """Expand a number per sample to one for every value of a Batch."""
    if not isinstance(column, torch.Tensor):
        return column
    if images.ragged_shapes is None:
        return column.reshape(-1, *[1] * images.ndim)
    return torch.repeat_interleave(column, images.ragged_shapes.prod(1))


def _invert(images: Batch) -> Batch:
    return _with_values(images, images.wait() ^ largest(images.dtype)) if _is_wide(images) else levels.invert(images)


solarize_image, solarize_video = on_images(solarize, _solarize)


def invert(inpt: Any) -> Any:
    """Subtract the values from white.

    >>> invert(torch.tensor([[[10]]], dtype=torch.uint8)).item()
    245
    """
    return dispatch(invert, inpt)


invert_image, invert_video = on_images(invert, _invert)


def autocontrast(inpt: Any) -> Any:
    """Stretch each channel from black to white."""
    return dispatch(autocontrast, inpt)


def _autocontrast(images: Batch) -> Batch:
    check_channels("autocontrast", images)
    return histogram.autocontrast(images)


autocontrast_image, autocontrast_video = on_images(autocontrast, _autocontrast)


def equalize(inpt: Any) -> Any:
    """Equalize the histogram of each channel, by Pillow's rule. Images of other dtypes are converted to uint8 and back."""
    return dispatch(equalize, inpt)


def _equalize(images: Batch) -> Batch:
    # The rule counts 256 levels: other dtypes are mapped to uint8 with their range, as in torchvision.
    if images.dtype is torch.uint8:
        return histogram.equalize(images, rule="pillow")
    return convert_dtype(histogram.equalize(convert_dtype(images, torch.uint8, True), rule="pillow"), images.dtype, True)


equalize_image, equalize_video = on_images(equalize, _equalize)
