# SPDX-License-Identifier: Apache-2.0
"""Functionals of ``torchvision.transforms.v2.functional``, on single samples and on batches."""

from ..._sample import is_pure_tensor as is_pure_tensor
from ._augment import erase as erase
from ._augment import erase_image as erase_image
from ._augment import erase_video as erase_video
from ._augment import jpeg as jpeg
from ._augment import jpeg_image as jpeg_image
from ._augment import jpeg_video as jpeg_video
from ._color import adjust_brightness as adjust_brightness
from ._color import adjust_brightness_image as adjust_brightness_image
from ._color import adjust_brightness_video as adjust_brightness_video
from ._color import adjust_contrast as adjust_contrast
from ._color import adjust_contrast_image as adjust_contrast_image
from ._color import adjust_contrast_video as adjust_contrast_video
from ._color import adjust_gamma as adjust_gamma
from ._color import adjust_gamma_image as adjust_gamma_image
from ._color import adjust_gamma_video as adjust_gamma_video
from ._color import adjust_hue as adjust_hue
from ._color import adjust_hue_image as adjust_hue_image
from ._color import adjust_hue_video as adjust_hue_video
from ._color import adjust_saturation as adjust_saturation
from ._color import adjust_saturation_image as adjust_saturation_image
from ._color import adjust_saturation_video as adjust_saturation_video
from ._color import adjust_sharpness as adjust_sharpness
from ._color import adjust_sharpness_image as adjust_sharpness_image
from ._color import adjust_sharpness_video as adjust_sharpness_video
from ._color import autocontrast as autocontrast
from ._color import autocontrast_image as autocontrast_image
from ._color import autocontrast_video as autocontrast_video
from ._color import equalize as equalize
from ._color import equalize_image as equalize_image
from ._color import equalize_video as equalize_video
from ._color import grayscale_to_rgb as grayscale_to_rgb
from ._color import grayscale_to_rgb_image as grayscale_to_rgb_image
from ._color import invert as invert
from ._color import invert_image as invert_image
from ._color import invert_video as invert_video
from ._color import permute_channels as permute_channels
from ._color import permute_channels_image as permute_channels_image
from ._color import permute_channels_video as permute_channels_video
from ._color import posterize as posterize
from ._color import posterize_image as posterize_image
from ._color import posterize_video as posterize_video
from ._color import rgb_to_grayscale as rgb_to_grayscale
from ._color import rgb_to_grayscale_image as rgb_to_grayscale_image
from ._color import solarize as solarize
from ._color import solarize_image as solarize_image
from ._color import solarize_video as solarize_video
from ._color import to_grayscale as to_grayscale
from ._conversion import pil_to_tensor as pil_to_tensor
from ._conversion import to_image as to_image
from ._conversion import to_pil_image as to_pil_image
from ._conversion import to_tensor as to_tensor
from ._crop import center_crop as center_crop
from ._crop import center_crop_bounding_boxes as center_crop_bounding_boxes
from ._crop import center_crop_image as center_crop_image
from ._crop import center_crop_keypoints as center_crop_keypoints
from ._crop import center_crop_mask as center_crop_mask
from ._crop import center_crop_video as center_crop_video
from ._crop import crop as crop
from ._crop import crop_bounding_boxes as crop_bounding_boxes
from ._crop import crop_image as crop_image
from ._crop import crop_keypoints as crop_keypoints
from ._crop import crop_mask as crop_mask
from ._crop import crop_video as crop_video
from ._crop import five_crop as five_crop
from ._crop import five_crop_image as five_crop_image
from ._crop import five_crop_video as five_crop_video
from ._crop import pad as pad
from ._crop import pad_bounding_boxes as pad_bounding_boxes
from ._crop import pad_image as pad_image
from ._crop import pad_keypoints as pad_keypoints
from ._crop import pad_mask as pad_mask
from ._crop import pad_video as pad_video
from ._crop import ten_crop as ten_crop
from ._crop import ten_crop_image as ten_crop_image
from ._crop import ten_crop_video as ten_crop_video
from ._dispatch import register_kernel as register_kernel
from ._dtypes import convert_image_dtype as convert_image_dtype
from ._dtypes import to_dtype as to_dtype
from ._dtypes import to_dtype_image as to_dtype_image
from ._dtypes import to_dtype_video as to_dtype_video
from ._elastic import elastic as elastic
from ._elastic import elastic_bounding_boxes as elastic_bounding_boxes
from ._elastic import elastic_image as elastic_image
from ._elastic import elastic_keypoints as elastic_keypoints
from ._elastic import elastic_mask as elastic_mask
from ._elastic import elastic_transform as elastic_transform
from ._elastic import elastic_video as elastic_video
from ._filters import gaussian_blur as gaussian_blur
from ._filters import gaussian_blur_image as gaussian_blur_image
from ._filters import gaussian_blur_video as gaussian_blur_video
from ._filters import gaussian_noise as gaussian_noise
from ._filters import gaussian_noise_image as gaussian_noise_image
from ._filters import gaussian_noise_video as gaussian_noise_video
from ._filters import normalize as normalize
from ._filters import normalize_image as normalize_image
from ._filters import normalize_video as normalize_video
from ._flip import hflip as hflip
from ._flip import horizontal_flip as horizontal_flip
from ._flip import horizontal_flip_bounding_boxes as horizontal_flip_bounding_boxes
from ._flip import horizontal_flip_image as horizontal_flip_image
from ._flip import horizontal_flip_keypoints as horizontal_flip_keypoints
from ._flip import horizontal_flip_mask as horizontal_flip_mask
from ._flip import horizontal_flip_video as horizontal_flip_video
from ._flip import vertical_flip as vertical_flip
from ._flip import vertical_flip_bounding_boxes as vertical_flip_bounding_boxes
from ._flip import vertical_flip_image as vertical_flip_image
from ._flip import vertical_flip_keypoints as vertical_flip_keypoints
from ._flip import vertical_flip_mask as vertical_flip_mask
from ._flip import vertical_flip_video as vertical_flip_video
from ._flip import vflip as vflip
from ._interpolation import InterpolationMode as InterpolationMode
from ._meta import clamp_bounding_boxes as clamp_bounding_boxes
from ._meta import clamp_keypoints as clamp_keypoints
from ._meta import convert_bounding_box_format as convert_bounding_box_format
from ._meta import get_dimensions as get_dimensions
from ._meta import get_dimensions_image as get_dimensions_image
from ._meta import get_dimensions_video as get_dimensions_video
from ._meta import get_image_num_channels as get_image_num_channels
from ._meta import get_image_size as get_image_size
from ._meta import get_num_channels as get_num_channels
from ._meta import get_num_channels_image as get_num_channels_image
from ._meta import get_num_channels_video as get_num_channels_video
from ._meta import get_num_frames as get_num_frames
from ._meta import get_num_frames_video as get_num_frames_video
from ._meta import get_size as get_size
from ._meta import get_size_bounding_boxes as get_size_bounding_boxes
from ._meta import get_size_image as get_size_image
from ._meta import get_size_keypoints as get_size_keypoints
from ._meta import get_size_mask as get_size_mask
from ._meta import get_size_video as get_size_video
from ._meta import sanitize_bounding_boxes as sanitize_bounding_boxes
from ._meta import sanitize_keypoints as sanitize_keypoints
from ._resize import resize as resize
from ._resize import resize_bounding_boxes as resize_bounding_boxes
from ._resize import resize_image as resize_image
from ._resize import resize_keypoints as resize_keypoints
from ._resize import resize_mask as resize_mask
from ._resize import resize_video as resize_video
from ._resize import resized_crop as resized_crop
from ._resize import resized_crop_bounding_boxes as resized_crop_bounding_boxes
from ._resize import resized_crop_image as resized_crop_image
from ._resize import resized_crop_keypoints as resized_crop_keypoints
from ._resize import resized_crop_mask as resized_crop_mask
from ._resize import resized_crop_video as resized_crop_video
from ._temporal import uniform_temporal_subsample as uniform_temporal_subsample
from ._temporal import uniform_temporal_subsample_video as uniform_temporal_subsample_video
from ._warp import affine as affine
from ._warp import affine_bounding_boxes as affine_bounding_boxes
from ._warp import affine_image as affine_image
from ._warp import affine_keypoints as affine_keypoints
from ._warp import affine_mask as affine_mask
from ._warp import affine_video as affine_video
from ._warp import perspective as perspective
from ._warp import perspective_bounding_boxes as perspective_bounding_boxes
from ._warp import perspective_image as perspective_image
from ._warp import perspective_keypoints as perspective_keypoints
from ._warp import perspective_mask as perspective_mask
from ._warp import perspective_video as perspective_video
from ._warp import rotate as rotate
from ._warp import rotate_bounding_boxes as rotate_bounding_boxes
from ._warp import rotate_image as rotate_image
from ._warp import rotate_keypoints as rotate_keypoints
from ._warp import rotate_mask as rotate_mask
from ._warp import rotate_video as rotate_video

# fmt: off
__all__ = [
    "InterpolationMode", "adjust_brightness", "adjust_brightness_image", "adjust_brightness_video", "adjust_contrast", "adjust_contrast_image",
    "adjust_contrast_video", "adjust_gamma", "adjust_gamma_image", "adjust_gamma_video", "adjust_hue", "adjust_hue_image", "adjust_hue_video",
    "adjust_saturation", "adjust_saturation_image", "adjust_saturation_video", "adjust_sharpness", "adjust_sharpness_image",
    "adjust_sharpness_video", "affine", "affine_bounding_boxes", "affine_image", "affine_keypoints", "affine_mask", "affine_video",
    "autocontrast", "autocontrast_image", "autocontrast_video", "center_crop", "center_crop_bounding_boxes", "center_crop_image",
    "center_crop_keypoints", "center_crop_mask", "center_crop_video", "clamp_bounding_boxes", "clamp_keypoints", "convert_bounding_box_format",
    "convert_image_dtype", "crop", "crop_bounding_boxes", "crop_image", "crop_keypoints", "crop_mask", "crop_video", "elastic",
    "elastic_bounding_boxes", "elastic_image", "elastic_keypoints", "elastic_mask", "elastic_transform", "elastic_video", "equalize",
    "equalize_image", "equalize_video", "erase", "erase_image", "erase_video", "five_crop", "five_crop_image", "five_crop_video", "gaussian_blur",
    "gaussian_blur_image", "gaussian_blur_video", "gaussian_noise", "gaussian_noise_image", "gaussian_noise_video", "get_dimensions",
    "get_dimensions_image", "get_dimensions_video", "get_image_num_channels", "get_image_size", "get_num_channels", "get_num_channels_image",
    "get_num_channels_video", "get_num_frames", "get_num_frames_video", "get_size", "get_size_bounding_boxes", "get_size_image",
    "get_size_keypoints", "get_size_mask", "get_size_video", "grayscale_to_rgb", "grayscale_to_rgb_image", "hflip", "horizontal_flip",
    "horizontal_flip_bounding_boxes", "horizontal_flip_image", "horizontal_flip_keypoints", "horizontal_flip_mask", "horizontal_flip_video",
    "invert", "invert_image", "invert_video", "is_pure_tensor", "jpeg", "jpeg_image", "jpeg_video", "normalize", "normalize_image",
    "normalize_video", "pad", "pad_bounding_boxes", "pad_image", "pad_keypoints", "pad_mask", "pad_video", "permute_channels",
    "permute_channels_image", "permute_channels_video", "perspective", "perspective_bounding_boxes", "perspective_image", "perspective_keypoints",
    "perspective_mask", "perspective_video", "pil_to_tensor", "posterize", "posterize_image", "posterize_video", "register_kernel", "resize",
    "resize_bounding_boxes", "resize_image", "resize_keypoints", "resize_mask", "resize_video", "resized_crop", "resized_crop_bounding_boxes",
    "resized_crop_image", "resized_crop_keypoints", "resized_crop_mask", "resized_crop_video", "rgb_to_grayscale", "rgb_to_grayscale_image",
    "rotate", "rotate_bounding_boxes", "rotate_image", "rotate_keypoints", "rotate_mask", "rotate_video", "sanitize_bounding_boxes",
    "sanitize_keypoints", "solarize", "solarize_image", "solarize_video", "ten_crop", "ten_crop_image", "ten_crop_video", "to_dtype",
    "to_dtype_image", "to_dtype_video", "to_grayscale", "to_image", "to_pil_image", "to_tensor", "uniform_temporal_subsample",
    "uniform_temporal_subsample_video", "vertical_flip", "vertical_flip_bounding_boxes", "vertical_flip_image", "vertical_flip_keypoints",
    "vertical_flip_mask", "vertical_flip_video", "vflip",
]
# fmt: on
