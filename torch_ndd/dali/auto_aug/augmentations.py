# SPDX-License-Identifier: Apache-2.0
"""The augmentations of the policies, for uint8 images ``HWC`` and videos ``FHWC``.

Each is called as ``rotate(images, magnitude_bin=3, num_magnitude_bins=11, fill_value=0)``. Those that move pixels take ``fill_value``, the value
outside the image (None extends its border), and ``interp_type``; ``translate_x`` and ``translate_y`` also need ``shape``, the extents of each image,
of which the offset is a part.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ._operations import Kernel, apply
from .core import augmentation

F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "augmentation",
    "auto_contrast",
    "brightness",
    "color",
    "contrast",
    "equalize",
    "identity",
    "invert",
    "poster_mask_uint8",
    "posterize",
    "rotate",
    "sharpness",
    "sharpness_kernel",
    "sharpness_kernel_shifted",
    "shear_x",
    "shear_y",
    "shift_enhance_range",
    "solarize",
    "solarize_add",
    "solarize_add_shift",
    "translate_x",
    "translate_x_no_shape",
    "translate_y",
    "translate_y_no_shape",
    "warp_x_param",
    "warp_y_param",
]

# --- Parameters of magnitudes ----------------------------------------------------------------------------------------------------------------------


def warp_x_param(magnitude: float) -> list[float]:
    """Return the magnitude along x."""
    return [magnitude, 0]


def warp_y_param(magnitude: float) -> list[float]:
    """Return the magnitude along y."""
    return [0, magnitude]


def shift_enhance_range(magnitude: float) -> float:
    """Return the factor of a magnitude that is counted from no change: 1 + magnitude."""
    return 1 + magnitude


def sharpness_kernel(magnitude: float) -> np.ndarray:
    """Return the 3x3 filter of a magnitude that is counted from no change, float32: -1 blurs with (1 1 1, 1 5 1, 1 1 1) / 13."""
    return sharpness_kernel_shifted(1 + magnitude)


def sharpness_kernel_shifted(magnitude: float) -> np.ndarray:
    """Return the 3x3 filter of a factor, float32: 0 blurs with (1 1 1, 1 5 1, 1 1 1) / 13, 1 changes nothing, more sharpens."""
    blur, same = np.full((3, 3), 1 / 13), np.zeros((3, 3))
    blur[1, 1], same[1, 1] = 5 / 13, 1
    return ((1 - magnitude) * blur + magnitude * same).astype(np.float32)


def poster_mask_uint8(magnitude: float) -> np.ndarray:
    """Return the mask of the highest bits, uint8; the number of bits is rounded, and 1 at least."""
    bits = int(min(8, max(1, np.round(magnitude))))
    return np.array(0xFF << (8 - bits) & 0xFF, np.uint8)


def solarize_add_shift(shift: float) -> np.ndarray:
    """Return what is added to dark pixels, uint8."""
    if not 0 <= shift < 256:
        raise Exception(f"The shift of `solarize_add` must be from 0 to 255, got {shift}")
    return np.array(shift, np.uint8)


# --- Augmentations that move pixels ----------------------------------------------------------------------------------------------------------------


_SHEAR, _TRANSLATE, _TRANSLATE_PART = Kernel("shear"), Kernel("translate"), Kernel("translate", relative=True)


def _runs(kernel: Kernel) -> Callable[[F], F]:
    """Name the kernel that does what a function does, so that policies can be one operation."""

    def mark(function: F) -> F:
        function.kernel = kernel  # type: ignore[attr-defined]
        return function

    return mark


@augmentation(mag_range=(0, 0.3), randomly_negate=True, mag_to_param=warp_x_param)
@_runs(_SHEAR)
def shear_x(data: Any, shear: Any, fill_value: Any = 128, interp_type: Any = None) -> Any:
    """Shear along x; the magnitude is the shift per line, in lines."""
    return apply(_SHEAR, data, shear, fill_value, interp_type)


@augmentation(mag_range=(0, 0.3), randomly_negate=True, mag_to_param=warp_y_param)
@_runs(_SHEAR)
def shear_y(data: Any, shear: Any, fill_value: Any = 128, interp_type: Any = None) -> Any:
    """Shear along y; the magnitude is the shift per column, in columns."""
    return apply(_SHEAR, data, shear, fill_value, interp_type)


@augmentation(mag_range=(0.0, 1.0), randomly_negate=True, mag_to_param=warp_x_param)
@_runs(_TRANSLATE_PART)
def translate_x(data: Any, rel_offset: Any, shape: Any, fill_value: Any = 128, interp_type: Any = None) -> Any:
    """Translate along x by a part of the width."""
    return apply(_TRANSLATE_PART, data, rel_offset, fill_value, interp_type, shape)


@augmentation(mag_range=(0, 250), randomly_negate=True, mag_to_param=warp_x_param, name="translate_x")
@_runs(_TRANSLATE)
def translate_x_no_shape(data: Any, offset: Any, fill_value: Any = 128, interp_type: Any = None) -> Any:
    """Translate along x by pixels."""
    return apply(_TRANSLATE, data, offset, fill_value, interp_type)


@augmentation(mag_range=(0.0, 1.0), randomly_negate=True, mag_to_param=warp_y_param)
@_runs(_TRANSLATE_PART)
def translate_y(data: Any, rel_offset: Any, shape: Any, fill_value: Any = 128, interp_type: Any = None) -> Any:
    """Translate along y by a part of the height."""
    return apply(_TRANSLATE_PART, data, rel_offset, fill_value, interp_type, shape)


@augmentation(mag_range=(0, 250), randomly_negate=True, mag_to_param=warp_y_param, name="translate_y")
@_runs(_TRANSLATE)
def translate_y_no_shape(data: Any, offset: Any, fill_value: Any = 128, interp_type: Any = None) -> Any:
    """Translate along y by pixels."""
    return apply(_TRANSLATE, data, offset, fill_value, interp_type)


@augmentation(mag_range=(0, 30), randomly_negate=True)
@_runs(Kernel("rotate"))
def rotate(data: Any, angle: Any, fill_value: Any = 128, interp_type: Any = None) -> Any:
    """Rotate around the center, counter-clockwise, in degrees."""
    return apply(Kernel("rotate"), data, angle, fill_value, interp_type)


# --- Augmentations that change values --------------------------------------------------------------------------------------------------------------


@augmentation(mag_range=(0, 0.9), randomly_negate=True, mag_to_param=shift_enhance_range)
@_runs(Kernel("brightness"))
def brightness(data: Any, parameter: Any) -> Any:
    """Multiply by a factor."""
    return apply(Kernel("brightness"), data, parameter)


@augmentation(mag_range=(0, 0.9), randomly_negate=True, mag_to_param=shift_enhance_range)
@_runs(Kernel("contrast"))
def contrast(data: Any, parameter: Any) -> Any:
    """Multiply the difference to the mean gray by a factor."""
    return apply(Kernel("contrast"), data, parameter)


@augmentation(mag_range=(0, 0.9), randomly_negate=True, mag_to_param=shift_enhance_range)
@_runs(Kernel("color"))
def color(data: Any, parameter: Any) -> Any:
    """Multiply the saturation by a factor."""
    return apply(Kernel("color"), data, parameter)


@augmentation(mag_range=(0, 0.9), randomly_negate=True, mag_to_param=sharpness_kernel, param_device="auto")
@_runs(Kernel("sharpness"))
def sharpness(data: Any, kernel: Any) -> Any:
    """Filter with a 3x3 kernel that blurs or sharpens."""
    return apply(Kernel("sharpness"), data, kernel)


@augmentation(mag_range=(0, 4), mag_to_param=poster_mask_uint8, param_device="auto")
@_runs(Kernel("posterize"))
def posterize(data: Any, mask: Any) -> Any:
    """Keep the highest bits."""
    return apply(Kernel("posterize"), data, mask)


@augmentation(mag_range=(256, 0), param_device="auto")
@_runs(Kernel("solarize"))
def solarize(data: Any, threshold: Any) -> Any:
    """Invert the values that are not below a threshold."""
    return apply(Kernel("solarize"), data, threshold)


@augmentation(mag_range=(0, 110), mag_to_param=solarize_add_shift, param_device="auto")
@_runs(Kernel("solarize_add"))
def solarize_add(data: Any, shift: Any) -> Any:
    """Add to the values below 128."""
    return apply(Kernel("solarize_add"), data, shift)


@augmentation
@_runs(Kernel("invert"))
def invert(data: Any, _: Any) -> Any:
    """Invert all values."""
    return apply(Kernel("invert"), data)


@augmentation
@_runs(Kernel("equalize"))
def equalize(data: Any, _: Any) -> Any:
    """Equalize the histogram of each channel."""
    return apply(Kernel("equalize"), data)


@augmentation
@_runs(Kernel("auto_contrast"))
def auto_contrast(data: Any, _: Any) -> Any:
    """Stretch the values of each channel to 0 to 255."""
    return apply(Kernel("auto_contrast"), data)


@augmentation
@_runs(Kernel("identity"))
def identity(data: Any, _: Any) -> Any:
    """Change nothing."""
    return data
