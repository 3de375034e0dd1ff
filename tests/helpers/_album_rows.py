# SPDX-License-Identifier: Apache-2.0
"""Transforms of Albumentations with settings, photographs, and the original's result for given parameters."""

import functools
import os
import warnings
from typing import Any

import numpy as np
import pytest
from skimage import data

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # otherwise the import looks for a newer version on PyPI
A = pytest.importorskip("albumentations")
from albumentations.pytorch import ToTensorV2  # noqa: E402

HW = {"height": 120, "width": 100}
WIDE = {"height": 330, "width": 640}
CUBIC, NEAREST, EXACT, NEAREST_EXACT = 2, 0, 5, 6
REPLICATE, REFLECT, WRAP, REFLECT_101 = 1, 2, 3, 4

# Moves pixels: images, masks, boxes and points are compared.
GEOMETRY: list[tuple[str, dict[str, Any]]] = [
    ("NoOp", {}),
    ("HorizontalFlip", {}),
    ("VerticalFlip", {}),
    ("Transpose", {}),
    ("TimeReverse", {}),
    ("RandomRotate90", {}),
    ("D4", {}),
    ("SquareSymmetry", {}),
    ("CenterCrop", HW),
    ("CenterCrop", {**WIDE, "pad_if_needed": True, "fill": 90, "fill_mask": 3}),
    ("RandomCrop", HW),
    ("RandomCrop", {**WIDE, "pad_if_needed": True, "pad_position": "random", "fill": (10, 20, 30)}),
    ("RandomCrop", {**WIDE, "pad_if_needed": True, "pad_position": "bottom_left", "border_mode": REPLICATE}),
    ("Crop", {"x_min": 11, "y_min": 22, "x_max": 333, "y_max": 255}),
    ("Crop", {"x_min": 11, "y_min": 22, "x_max": 633, "y_max": 455, "pad_if_needed": True}),
    ("RandomCropFromBorders", {}),
    ("AtLeastOneBBoxRandomCrop", HW),
    ("AtLeastOneBBoxRandomCrop", {**HW, "erosion_factor": 0.4}),
    ("BBoxSafeRandomCrop", {}),
    ("BBoxSafeRandomCrop", {"erosion_rate": 0.3}),
    ("RandomSizedBBoxSafeCrop", HW),
    ("CropNonEmptyMaskIfExists", HW),
    ("RandomResizedCrop", {"size": (96, 128)}),
    ("RandomResizedCrop", {"size": (96, 128), "interpolation": CUBIC}),
    ("RandomResizedCrop", {"size": (96, 128), "scale": (0.99, 1.0), "ratio": (3.0, 3.5)}),
    ("RandomSizedCrop", {"min_max_height": (50, 200), "size": (96, 128), "w2h_ratio": 1.5}),
    ("CropAndPad", {"px": (-20, 30)}),
    ("CropAndPad", {"percent": (-0.1, 0.2), "keep_size": False, "fill": 77.0}),
    ("CropAndPad", {"percent": 0.1, "border_mode": REPLICATE}),
    ("Pad", {"padding": 13}),
    ("Pad", {"padding": (3, 5, 40, 80), "fill": (9, 8, 7)}),
    ("Pad", {"padding": (30, 50), "border_mode": WRAP}),
    ("PadIfNeeded", {"min_height": 640, "min_width": 620}),
    ("PadIfNeeded", {"min_height": None, "min_width": None, "pad_height_divisor": 64, "pad_width_divisor": 96, "position": "random"}),
    ("PadIfNeeded", {"min_height": 640, "min_width": 620, "border_mode": REPLICATE, "position": "top_right"}),
    ("Resize", {"height": 200, "width": 333}),
    ("Resize", {"height": 700, "width": 333, "interpolation": CUBIC, "mask_interpolation": NEAREST_EXACT}),
    ("Resize", {"height": 200, "width": 333, "interpolation": EXACT}),
    ("Resize", {"height": 211, "width": 333, "interpolation": NEAREST}),
    ("LongestMaxSize", {"max_size": 200}),
    ("LongestMaxSize", {"max_size": [200, 300, 700]}),
    ("LongestMaxSize", {"max_size_hw": (200, 210)}),
    ("SmallestMaxSize", {"max_size": 200}),
    ("SmallestMaxSize", {"max_size_hw": (None, 210)}),
    ("RandomScale", {"scale_limit": (-0.5, 0.5)}),
    ("Affine", {"scale": (0.7, 1.4), "rotate": (-40, 40), "shear": (-10, 10), "translate_percent": (-0.1, 0.1)}),
    ("Affine", {"scale": {"x": (0.5, 2), "y": 1.2}, "balanced_scale": True, "translate_px": {"x": (-30, 30), "y": 7}, "border_mode": REPLICATE}),
    ("Affine", {"rotate": (-90, 90), "fit_output": True, "fill": 128, "rotate_method": "ellipse"}),
    ("Affine", {"rotate": 45, "keep_ratio": True, "scale": (0.5, 2), "interpolation": CUBIC, "border_mode": WRAP}),
    ("ShiftScaleRotate", {}),
    ("SafeRotate", {}),
    ("Rotate", {}),
    ("Rotate", {"limit": (-30, 60), "crop_border": True}),
    ("Perspective", {}),
    ("Perspective", {"scale": (0.1, 0.2), "keep_size": False, "border_mode": REPLICATE}),
    ("Perspective", {"fit_output": True, "fill": 50.0}),
    ("CoarseDropout", {}),
    ("CoarseDropout", {"num_holes_range": (3, 8), "hole_height_range": (10, 90), "hole_width_range": (20, 60), "fill": (1, 2, 3), "fill_mask": 5}),
    ("Erasing", {}),
    ("GridDropout", {}),
    ("GridDropout", {"unit_size_range": (20, 60), "random_offset": False, "shift_xy": (3, 5), "ratio": 0.3, "fill_mask": 7}),
    ("GridDropout", {"holes_number_xy": (5, 7)}),
    ("XYMasking", {"num_masks_x": (1, 3), "num_masks_y": 2, "mask_x_length": (5, 30), "mask_y_length": 20}),
    ("TimeMasking", {}),
    ("FrequencyMasking", {}),
]
# Moves pixels by maps, without boxes and points.
DISTORTIONS: list[tuple[str, dict[str, Any]]] = [
    ("OpticalDistortion", {"distort_limit": (-0.5, 0.5)}),
    ("OpticalDistortion", {"distort_limit": (-0.5, 0.5), "mode": "fisheye", "fill": (5, 6, 7)}),
    ("GridDistortion", {}),
    ("GridDistortion", {"normalized": False, "num_steps": 7, "interpolation": CUBIC}),
    ("ElasticTransform", {"alpha": 300, "sigma": 10}),
    ("ElasticTransform", {"alpha": 50, "sigma": 6, "same_dxdy": True, "noise_distribution": "uniform", "approximate": True}),
]
PIXELS: list[tuple[str, dict[str, Any]]] = [
    ("RandomBrightnessContrast", {}),
    ("RandomBrightnessContrast", {"brightness_by_max": False, "ensure_safe_range": True, "brightness_limit": 0.5}),
    ("RandomGamma", {"gamma_limit": (40, 250)}),
    ("RGBShift", {}),
    ("AdditiveNoise", {"noise_params": {"ranges": [(-0.2, 0.2)]}}),
    ("Posterize", {"num_bits": (1, 7)}),
    ("Posterize", {"num_bits": [(1, 3), (2, 5), (6, 7)]}),
    ("Solarize", {"threshold_range": (0.2, 0.8)}),
    ("InvertImg", {}),
    ("RandomToneCurve", {"scale": 0.3}),
    ("RandomToneCurve", {"scale": 0.3, "per_channel": True}),
    ("PlanckianJitter", {}),
    ("PlanckianJitter", {"mode": "cied", "sampling_method": "gaussian"}),
    ("MultiplicativeNoise", {"multiplier": (0.5, 1.5)}),
    ("MultiplicativeNoise", {"multiplier": (0.5, 1.5), "per_channel": True}),
    ("ChannelDropout", {"channel_drop_range": (1, 2), "fill": 13}),
    ("ChannelShuffle", {}),
    ("Equalize", {}),
    ("CLAHE", {}),
    ("ToGray", {}),
    ("ToGray", {"num_output_channels": 1}),
    ("ToGray", {"method": "average"}),
    ("ToGray", {"method": "max", "num_output_channels": 1}),
    ("ToSepia", {}),
    ("HueSaturationValue", {}),
    ("HueSaturationValue", {"hue_shift_limit": 180, "sat_shift_limit": 100, "val_shift_limit": 100}),
    ("ColorJitter", {}),
    ("ColorJitter", {"brightness": (0, 2), "contrast": (0, 2), "saturation": (0, 2), "hue": (0, 0)}),
    ("Blur", {"blur_limit": (3, 11)}),
    ("MedianBlur", {}),
    ("GaussianBlur", {}),
    ("GaussianBlur", {"blur_limit": (3, 9), "sigma_limit": 2.0}),
    ("MotionBlur", {"blur_limit": (3, 15)}),
    ("MotionBlur", {"allow_shifted": False, "direction_range": (-0.5, -0.2)}),
    ("AdvancedBlur", {}),
    ("Defocus", {}),
    ("RingingOvershoot", {}),
    ("Sharpen", {}),
    ("Emboss", {}),
    ("UnsharpMask", {}),
    ("UnsharpMask", {"sigma_limit": (0.5, 2), "blur_limit": (3, 11)}),
    ("ImageCompression", {"quality_range": (5, 95)}),
    ("Downscale", {"scale_range": (0.2, 0.6)}),
    ("Normalize", {}),
    ("Normalize", {"normalization": "image"}),
    ("Normalize", {"normalization": "image_per_channel"}),
    ("Normalize", {"normalization": "min_max"}),
    ("Normalize", {"normalization": "min_max_per_channel"}),
    ("ToFloat", {}),
    ("FromFloat", {}),
    ("ToTensorV2", {}),
    ("ToRGB", {}),
]
NOISE: list[tuple[str, dict[str, Any]]] = [
    ("GaussNoise", {"std_range": (0.05, 0.1)}),
    ("AdditiveNoise", {"noise_type": "gaussian", "spatial_mode": "per_pixel"}),
    ("SaltAndPepper", {}),
    ("PixelDropout", {"dropout_prob": 0.1, "drop_value": 200}),
]


def describe(row: tuple[str, dict[str, Any]]) -> str:
    """Return the name of a test."""
    return f"{row[0]}({', '.join(f'{key}={value}' for key, value in row[1].items())})"


def make(name: str, settings: dict[str, Any], p: float = 1.0) -> Any:
    """Return a transform of Albumentations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of aliases
        return (ToTensorV2 if name == "ToTensorV2" else getattr(A, name))(**settings, p=p)


@functools.cache
def photographs() -> list[np.ndarray]:
    """Return three photographs of different sizes."""
    return [data.astronaut(), data.chelsea(), np.ascontiguousarray(data.coffee()[:, :533])]


def fix_parameters(transform: Any, arguments: dict[str, Any]) -> Any:
    """Return the transform with these parameters instead of random ones."""
    transform.get_params = dict
    transform.get_params_dependent_on_data = lambda params, data: arguments
    return transform
