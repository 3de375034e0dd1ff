# SPDX-License-Identifier: Apache-2.0
"""Data set readers: epochs of batches or samples, read ahead by native threads."""

import warnings

from .._core.work.bad_samples import BadSample as BadSample
from ._base import LoaderOptions as LoaderOptions
from ._base import Reader as Reader
from ._items import EncodedFile as EncodedFile
from ._state import ReaderState as ReaderState
from ._state import merge_states as merge_states
from .caffe import Caffe as Caffe
from .caffe import Caffe2 as Caffe2
from .coco import COCO as COCO
from .dataset import Dataset as Dataset
from .file import File as File
from .mxnet import MXNet as MXNet
from .nemo_asr import NemoAsr as NemoAsr
from .numpy import Numpy as Numpy
from .parquet import Parquet as Parquet
from .tfrecord import TFRecord as TFRecord
from .video import Video as Video
from .video import VideoResize as VideoResize
from .webdataset import Webdataset as Webdataset

# fmt: off
__all__ = [
    "COCO", "BadSample", "Caffe", "Caffe2", "Dataset", "EncodedFile", "File", "LoaderOptions", "MXNet", "NemoAsr", "Numpy", "Parquet", "Reader",
    "ReaderState", "TFRecord", "Video", "VideoResize", "Webdataset", "merge_states",
]
# fmt: on


def __getattr__(name: str) -> object:
    if name == "ReadError":
        warnings.warn("readers.ReadError is deprecated; use readers.BadSample", DeprecationWarning, stacklevel=2)
        return BadSample
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
