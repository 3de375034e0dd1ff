# SPDX-License-Identifier: Apache-2.0
"""The augmentations of the policies, for uint8 images ``HWC`` and videos ``FHWC``.

Each is called as ``rotate(images, magnitude_bin=3, num_magnitude_bins=11, fill_value=0)``. Those that move pixels take ``fill_value``, the value
outside the image (None extends its border), and ``interp_type``; ``translate_x`` and ``translate_y`` also need ``shape``, the extents of each image,
of which the offset is a fraction.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...augment._spaces import DALI_DEFAULTS
from ._operations import Kernel, apply
from .core import augmentation
from .core._augmentation import ParamDevice

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
    """Return the factor 1 + magnitude."""
    return 1 + magnitude


def sharpness_kernel(magnitude: float) -> np.ndarray:
    """Return the 3x3 filter of the factor 1 + magnitude, float32: -1 blurs with (1 1 1, 1 5 1, 1 1 1) / 13."""
    return sharpness_kernel_shifted(1 + magnitude)


def sharpness_kernel_shifted(magnitude: float) -> np.ndarray:
    """Return the 3x3 filter of a factor, float32: 0 blurs with (1 1 1, 1 5 1, 1 1 1) / 13, 1 changes nothing, more sharpens."""
    # Pillow's smoothing filter; between it and the identity, factors interpolate.
    blur, same = np.full((3, 3), 1 / 13), np.zeros((3, 3))
    blur[1, 1], same[1, 1] = 5 / 13, 1
    return ((1 - magnitude) * blur + magnitude * same).astype(np.float32)


def poster_mask_uint8(magnitude: float) -> np.ndarray:
    """Return the mask of the highest bits, uint8; the number of bits is rounded, and at least 1."""
    bits = int(min(8, max(1, np.round(magnitude))))
    return np.array(0xFF << (8 - bits) & 0xFF, np.uint8)


def solarize_add_shift(shift: float) -> np.ndarray:
    """Return the shift of dark pixels, uint8."""
    if not 0 <= shift < 256:
        raise Exception(f"The shift of `solarize_add` must be from 0 to 255, got {shift}")
    return np.array(shift, np.uint8)


# --- Augmentations that move pixels ----------------------------------------------------------------------------------------------------------------


def _define(
    kernel: Kernel, mag_to_param: Callable[[float], Any] | None = None, param_device: ParamDevice | None = None, name: str | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a function an augmentation with DALI's default range; with ``kernel``, policies of it can be one operation."""

    def decorate(function: Callable[..., Any]) -> Any:
        # Read by is_known in _operations.py; custom augmentations do not have it.
        function.kernel = kernel  # type: ignore[attr-defined]
        range = DALI_DEFAULTS[function.__name__]
        limits = {} if range is None else {"mag_range": (range.first, range.last), "randomly_negate": range.signed or None}
        return augmentation(function, mag_to_param=mag_to_param, param_device=param_device, name=name, **limits)

    return decorate


_SHEAR, _TRANSLATE, _TRANSLATE_RELATIVE = Kernel("shear"), Kernel("translate"), Kernel("translate", relative=True)


@_define(_SHEAR, warp_x_param)
def shear_x(data: Any, shear: Any, fill_value: Any = 128, interp_type: Any = None) -> Any:
    """Shear along x; the magnitude is the shift per line, in lines."""
    return apply(_SHEAR, data, shear, fill_value, interp_type)


@_define(_SHEAR, warp_y_param)
def shear_y(data: Any, shear: Any, fill_value: Any = 128, interp_type: Any = None) -> Any:
    """Shear along y; the magnitude is the shift per column, in columns."""
    return apply(_SHEAR, data, shear, fill_value, interp_type)


@_define(_TRANSLATE_RELATIVE, warp_x_param)
def translate_x(data: Any, rel_offset: Any, shape: Any, fill_value: Any = 128, interp_type: Any = None) -> Any:
    """Translate along x by a fraction of the width."""
    return apply(_TRANSLATE_RELATIVE, data, rel_offset, fill_value, interp_type, shape)


@_define(_TRANSLATE, warp_x_param, name="translate_x")
def translate_x_no_shape(data: Any, offset: Any, fill_value: Any = 128, interp_type: Any = None) -> Any:
    """Translate along x by pixels."""
    return apply(_TRANSLATE, data, offset, fill_value, interp_type)


@_define(_TRANSLATE_RELATIVE, warp_y_param)
def translate_y(data: Any, rel_offset: Any, shape: Any, fill_value: Any = 128, interp_type: Any = None) -> Any:
    """Translate along y by a fraction of the height."""
    return apply(_TRANSLATE_RELATIVE, data, rel_offset, fill_value, interp_type, shape)


@_define(_TRANSLATE, warp_y_param, name="translate_y")
def translate_y_no_shape(data: Any, offset: Any, fill_value: Any = 128, interp_type: Any = None) -> Any:
    """Translate along y by pixels."""
    return apply(_TRANSLATE, data, offset, fill_value, interp_type)


@_define(Kernel("rotate"))
def rotate(data: Any, angle: Any, fill_value: Any = 128, interp_type: Any = None) -> Any:
    """Rotate around the center, counter-clockwise, in degrees."""
    return apply(Kernel("rotate"), data, angle, fill_value, interp_type)


# --- Augmentations that change values --------------------------------------------------------------------------------------------------------------


@_define(Kernel("brightness"), shift_enhance_range)
def brightness(data: Any, parameter: Any) -> Any:
    """Multiply by a factor."""
    return apply(Kernel("brightness"), data, parameter)


@_define(Kernel("contrast"), shift_enhance_range)
def contrast(data: Any, parameter: Any) -> Any:
    """Multiply the difference from the mean gray by a factor."""
    return apply(Kernel("contrast"), data, parameter)


@_define(Kernel("color"), shift_enhance_range)
def color(data: Any, parameter: Any) -> Any:
    """Multiply the saturation by a factor."""
    return apply(Kernel("color"), data, parameter)


@_define(Kernel("sharpness"), sharpness_kernel, param_device="auto")
def sharpness(data: Any, kernel: Any) -> Any:
    """Filter with a 3x3 kernel that blurs or sharpens."""
    return apply(Kernel("sharpness"), data, kernel)


@_define(Kernel("posterize"), poster_mask_uint8, param_device="auto")
def posterize(data: Any, mask: Any) -> Any:
    """Keep the highest bits."""
    return apply(Kernel("posterize"), data, mask)


@_define(Kernel("solarize"), param_device="auto")
def solarize(data: Any, threshold: Any) -> Any:
    """Invert the values that are not below a threshold."""
    return apply(Kernel("solarize"), data, threshold)


@_define(Kernel("solarize_add"), solarize_add_shift, param_device="auto")
def solarize_add(data: Any, shift: Any) -> Any:
    """Add to the values below 128."""
    return apply(Kernel("solarize_add"), data, shift)


@_define(Kernel("invert"))
def invert(data: Any, _: Any) -> Any:
    """Invert all values."""
    return apply(Kernel("invert"), data)


@_define(Kernel("equalize"))
def equalize(data: Any, _: Any) -> Any:
    """Equalize the histogram of each channel."""
    return apply(Kernel("equalize"), data)


@_define(Kernel("auto_contrast"))
def auto_contrast(data: Any, _: Any) -> Any:
    """Stretch the values of each channel to 0 to 255."""
    return apply(Kernel("auto_contrast"), data)


@_define(Kernel("identity"))
def identity(data: Any, _: Any) -> Any:
    """Change nothing."""
    return data
