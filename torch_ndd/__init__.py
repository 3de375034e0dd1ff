# SPDX-License-Identifier: Apache-2.0
"""torch_ndd: data loading and augmentation, imperative, on PyTorch tensors."""

from types import ModuleType as _ModuleType

from torch import bfloat16, bool, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64

from . import (
    augment,
    batches,
    capture,
    checkpoint,
    decoders,
    distributed,
    experimental,
    io,
    math,
    noise,
    pytorch,
    random,
    readers,
    reductions,
    segmentation,
    sizes,
    testing,
    tfrecord,
    torchvision,
    transforms,
    types,
)
from ._core.context.context import EvalContext, EvalMode
from ._core.context.cuda import Stream, stream
from ._core.context.device import Device, DeviceLike, device
from ._core.context.pools import ThreadPool, get_num_threads, set_num_threads
from ._core.context.streams import get_current_stream, get_default_stream, set_current_stream, set_default_stream
from ._core.suggestions import similar as _similar
from ._core.values import nvidia as _nvidia  # noqa: F401  (registers the import of tensors of NVIDIA's package)
from ._core.values import torch_protocols as _torch_protocols  # noqa: F401  (registers Tensor and Batch with torch)
from ._core.values.batch import Batch, as_batch, batch
from ._core.values.tensor import Tensor, as_tensor, tensor
from ._core.version import __version__
from ._core.work.upload import Uploads, uploads
from ._doctor import doctor
from ._show import show
from .augment._crops import multi_crop, random_windows
from .decoders.imread import imread
from .decoders.peek import peek_image_shape
from .loader import DataLoader
from .ops.audio.masks import frequency_mask, time_mask
from .ops.audio.signal import audio_resample, nonsilent_region, power_spectrum
from .ops.audio.spectra import mel_filter_bank, mfcc, preemphasis_filter, spectrogram, to_decibels
from .ops.color.adjust import brightness, brightness_contrast, color_twist, contrast, hsv, hue, posterize, saturation
from .ops.color.debayer import debayer
from .ops.color.histogram import autocontrast, clahe, equalize
from .ops.color.jitter import color_jitter, grayscale
from .ops.color.jpeg import jpeg_compression_distortion
from .ops.color.levels import gamma, invert, solarize
from .ops.color.space import color_space_conversion
from .ops.detection.boxes import bb_flip, bbox_paste, bbox_rotate, bbox_transform, box_encoder
from .ops.detection.coordinates import coord_flip, coord_transform
from .ops.detection.random_bbox_crop import random_bbox_crop
from .ops.filters.convolution import filter, gaussian_blur, laplacian, sharpness
from .ops.generic.convert import cast, cast_like, lookup_table
from .ops.generic.dump import dump_image
from .ops.generic.normalize import normalize
from .ops.generic.optical_flow import optical_flow
from .ops.generic.python_function import python_function, python_operator
from .ops.geometry.crop import crop, crop_mirror_normalize
from .ops.geometry.flip import flip
from .ops.geometry.paste import erase, grid_mask, multi_paste, paste
from .ops.geometry.resize import random_resized_crop, resize, resize_crop_mirror, tensor_resize
from .ops.geometry.slice import pad, slice
from .ops.geometry.warp import rotate, sphere, warp_affine, water
from .ops.math import arithmetic as _arithmetic  # noqa: F401  (the operators of Tensor and Batch)
from .ops.random.crop_generators import jitter, random_crop_generator, roi_random_crop
from .ops.random.permute import batch_permutation, permute_batch, permute_channels
from .ops.shape.fill import full, full_like, one_hot, ones, ones_like, zeros, zeros_like
from .ops.shape.frames import per_frame
from .ops.shape.join import cat, stack
from .ops.shape.patches import patch_positions, patchify, tiles
from .ops.shape.reshape import copy, expand_dims, get_property, reinterpret, reshape, squeeze, transpose
from .ops.shape.sequence import element_extract, sequence_rearrange
from .readers._sources.external_source import ExternalSource
from .readers._sources.inner import Source
from .torchvision.datasets import ImageFolder
from .types import DataType, DType, ImageType, InterpType, dtype, type_id

# fmt: off
__all__ = [
    "Batch", "DType", "DataLoader", "DataType", "Device", "DeviceLike", "EvalContext", "EvalMode", "ExternalSource", "ImageFolder", "ImageType",
    "InterpType", "Source", "Stream", "Tensor", "ThreadPool", "Uploads", "__version__", "as_batch", "as_tensor", "audio_resample", "augment",
    "autocontrast", "batch", "batch_permutation", "batches", "bb_flip", "bbox_paste", "bbox_rotate", "bbox_transform", "bfloat16", "bool",
    "box_encoder", "brightness", "brightness_contrast", "capture", "cast", "cast_like", "cat", "checkpoint", "clahe", "color_jitter",
    "color_space_conversion", "color_twist", "contrast", "coord_flip", "coord_transform", "copy", "crop", "crop_mirror_normalize", "dali", "debayer",
    "decoders", "device", "distributed", "doctor", "dtype", "dump_image", "element_extract", "equalize", "erase", "expand_dims", "experimental",
    "filter", "flip", "float16", "float32", "float64", "frequency_mask", "full", "full_like", "gamma", "gaussian_blur", "get_current_stream",
    "get_default_stream", "get_num_threads", "get_property", "grayscale", "grid_mask", "hsv", "hue", "imread", "int8", "int16", "int32", "int64",
    "invert", "io", "jitter", "jpeg_compression_distortion", "laplacian", "lookup_table", "math", "mel_filter_bank", "mfcc", "multi_crop",
    "multi_paste", "noise", "nonsilent_region", "normalize", "one_hot", "ones", "ones_like", "optical_flow", "pad", "paste", "patch_positions",
    "patchify", "peek_image_shape", "per_frame", "permute_batch", "permute_channels", "posterize", "power_spectrum", "preemphasis_filter",
    "python_function", "python_operator", "pytorch", "random", "random_bbox_crop", "random_crop_generator", "random_resized_crop", "random_windows",
    "readers", "reductions", "reinterpret", "reshape", "resize", "resize_crop_mirror", "roi_random_crop", "rotate", "saturation", "segmentation",
    "sequence_rearrange", "set_current_stream", "set_default_stream", "set_num_threads", "sharpness", "show", "sizes", "slice", "solarize",
    "spectrogram", "sphere", "squeeze", "stack", "stream", "tensor", "tensor_resize", "testing", "tfrecord", "tiles", "time_mask", "to_decibels",
    "torchvision", "transforms", "transpose", "type_id", "types", "uint8", "uint16", "uint32", "uint64", "uploads", "warp_affine", "water", "zeros",
    "zeros_like",
]
# fmt: on

dali: _ModuleType  # imported on first use: it looks its operators up in this module


def __getattr__(name: str) -> object:
    if name == "dali":
        import importlib

        return importlib.import_module("torch_ndd.dali")
    # Libraries probe every module for names such as __wrapped__; searching for a similar one would take a millisecond.
    known = [] if name[0] == "_" else __all__
    raise AttributeError(f"module 'torch_ndd' has no attribute {name!r}{_similar(name, known)}")


def __dir__() -> list[str]:
    return __all__
