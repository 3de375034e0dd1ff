# SPDX-License-Identifier: Apache-2.0
"""torch_ndd: data loading and augmentation, imperative, on PyTorch tensors."""

from torch import bfloat16 as bfloat16
from torch import bool as bool
from torch import float16 as float16
from torch import float32 as float32
from torch import float64 as float64
from torch import int8 as int8
from torch import int16 as int16
from torch import int32 as int32
from torch import int64 as int64
from torch import uint8 as uint8
from torch import uint16 as uint16
from torch import uint32 as uint32
from torch import uint64 as uint64

from . import augment as augment
from . import capture as capture
from . import checkpoint as checkpoint
from . import decoders as decoders
from . import distributed as distributed
from . import experimental as experimental
from . import io as io
from . import math as math
from . import noise as noise
from . import pytorch as pytorch
from . import random as random
from . import readers as readers
from . import reductions as reductions
from . import segmentation as segmentation
from . import testing as testing
from . import tfrecord as tfrecord
from . import transforms as transforms
from . import types as types
from ._core import torch_protocols as _torch_protocols  # noqa: F401  (tells torch about Tensor and Batch)
from ._core.batch import Batch as Batch
from ._core.batch import as_batch as as_batch
from ._core.batch import batch as batch
from ._core.context import EvalContext as EvalContext
from ._core.cuda import Stream as Stream
from ._core.cuda import stream as stream
from ._core.device import Device as Device
from ._core.device import DeviceLike as DeviceLike
from ._core.device import device as device
from ._core.modes import EvalMode as EvalMode
from ._core.pools import ThreadPool as ThreadPool
from ._core.pools import get_num_threads as get_num_threads
from ._core.pools import set_num_threads as set_num_threads
from ._core.streams import get_current_stream as get_current_stream
from ._core.streams import get_default_stream as get_default_stream
from ._core.streams import set_current_stream as set_current_stream
from ._core.streams import set_default_stream as set_default_stream
from ._core.tensor import Tensor as Tensor
from ._core.tensor import as_tensor as as_tensor
from ._core.tensor import tensor as tensor
from ._core.upload import Uploads as Uploads
from ._core.upload import uploads as uploads
from .decoders.imread import imread as imread
from .decoders.peek import peek_image_shape as peek_image_shape
from .doctor import doctor as doctor
from .loader import DataLoader as DataLoader
from .ops import arithmetic as _arithmetic  # noqa: F401  (the operators of Tensor and Batch)
from .ops.audio import mel_filter_bank as mel_filter_bank
from .ops.audio import mfcc as mfcc
from .ops.audio import preemphasis_filter as preemphasis_filter
from .ops.audio import spectrogram as spectrogram
from .ops.audio import to_decibels as to_decibels
from .ops.audio_masks import frequency_mask as frequency_mask
from .ops.audio_masks import time_mask as time_mask
from .ops.audio_signal import audio_resample as audio_resample
from .ops.audio_signal import nonsilent_region as nonsilent_region
from .ops.audio_signal import power_spectrum as power_spectrum
from .ops.bbox_crop import random_bbox_crop as random_bbox_crop
from .ops.boxes import bb_flip as bb_flip
from .ops.boxes import bbox_paste as bbox_paste
from .ops.boxes import bbox_rotate as bbox_rotate
from .ops.boxes import bbox_transform as bbox_transform
from .ops.boxes import box_encoder as box_encoder
from .ops.color import brightness as brightness
from .ops.color import brightness_contrast as brightness_contrast
from .ops.color import color_twist as color_twist
from .ops.color import contrast as contrast
from .ops.color import hsv as hsv
from .ops.color import hue as hue
from .ops.color import posterize as posterize
from .ops.color import saturation as saturation
from .ops.color_space import color_space_conversion as color_space_conversion
from .ops.coordinates import coord_flip as coord_flip
from .ops.coordinates import coord_transform as coord_transform
from .ops.crop import crop as crop
from .ops.crop import crop_mirror_normalize as crop_mirror_normalize
from .ops.crop_generators import jitter as jitter
from .ops.crop_generators import random_crop_generator as random_crop_generator
from .ops.crop_generators import roi_random_crop as roi_random_crop
from .ops.debayer import debayer as debayer
from .ops.dump import dump_image as dump_image
from .ops.fill import full as full
from .ops.fill import full_like as full_like
from .ops.fill import one_hot as one_hot
from .ops.fill import ones as ones
from .ops.fill import ones_like as ones_like
from .ops.fill import zeros as zeros
from .ops.fill import zeros_like as zeros_like
from .ops.filters import filter as filter
from .ops.filters import gaussian_blur as gaussian_blur
from .ops.filters import laplacian as laplacian
from .ops.flip import flip as flip
from .ops.frames import per_frame as per_frame
from .ops.generic import cast as cast
from .ops.generic import cast_like as cast_like
from .ops.generic import lookup_table as lookup_table
from .ops.histogram import clahe as clahe
from .ops.histogram import equalize as equalize
from .ops.join import cat as cat
from .ops.join import stack as stack
from .ops.jpeg import jpeg_compression_distortion as jpeg_compression_distortion
from .ops.normalize import normalize as normalize
from .ops.optical_flow import optical_flow as optical_flow
from .ops.paste import erase as erase
from .ops.paste import grid_mask as grid_mask
from .ops.paste import multi_paste as multi_paste
from .ops.paste import paste as paste
from .ops.permute import batch_permutation as batch_permutation
from .ops.permute import permute_batch as permute_batch
from .ops.resize import random_resized_crop as random_resized_crop
from .ops.resize import resize as resize
from .ops.resize import resize_crop_mirror as resize_crop_mirror
from .ops.resize import tensor_resize as tensor_resize
from .ops.sequence import element_extract as element_extract
from .ops.sequence import sequence_rearrange as sequence_rearrange
from .ops.shape import copy as copy
from .ops.shape import expand_dims as expand_dims
from .ops.shape import get_property as get_property
from .ops.shape import reinterpret as reinterpret
from .ops.shape import reshape as reshape
from .ops.shape import squeeze as squeeze
from .ops.shape import transpose as transpose
from .ops.slice import pad as pad
from .ops.slice import slice as slice
from .ops.warp import rotate as rotate
from .ops.warp import sphere as sphere
from .ops.warp import warp_affine as warp_affine
from .ops.warp import water as water
from .readers._external_source import ExternalSource as ExternalSource
from .show import show as show
from .types import DataType as DataType
from .types import DType as DType
from .types import ImageType as ImageType
from .types import InterpType as InterpType
from .types import dtype as dtype
from .types import type_id as type_id

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name == "dali":  # imported when it is first used
        import importlib

        return importlib.import_module("torch_ndd.dali")
    raise AttributeError(f"module 'torch_ndd' has no attribute {name!r}")
