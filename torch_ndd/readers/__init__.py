# SPDX-License-Identifier: Apache-2.0
"""Data set readers: epochs of batches or samples, read ahead by native threads."""

import warnings

from .._core.work.bad_samples import BadSample
from ._base import Reader
from ._merge_states import merge_states
from ._options import LoaderOptions
from ._state import ReaderState
from .caffe import Caffe, Caffe2
from .coco import COCO
from .dataset import Dataset
from .dataset._items import EncodedFile
from .file import File
from .huggingface import HuggingFace, HuggingFaceStream
from .join import Join
from .lerobot import LeRobot
from .mix import Mix
from .mxnet import MXNet
from .numpy import Numpy
from .parquet import Parquet
from .speech import Lhotse, NemoAsr
from .tfrecord import TFRecord
from .video import Video, VideoResize
from .webdataset import Webdataset
from .weighted import Weighted

# fmt: off
__all__ = [
    "COCO", "BadSample", "Caffe", "Caffe2", "Dataset", "EncodedFile", "File", "HuggingFace", "HuggingFaceStream", "Join", "LeRobot", "Lhotse",
    "LoaderOptions", "MXNet", "Mix", "NemoAsr", "Numpy", "Parquet", "Reader", "ReaderState", "TFRecord", "Video", "VideoResize", "Webdataset",
    "Weighted", "merge_states",
]
# fmt: on


def __getattr__(name: str) -> object:
    if name == "ReadError":
        warnings.warn("readers.ReadError is deprecated; use readers.BadSample", DeprecationWarning, stacklevel=2)
        return BadSample
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
