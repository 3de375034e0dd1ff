# SPDX-License-Identifier: Apache-2.0
"""Data set readers: epochs of batches or samples, read ahead by native threads."""

from .._core.work.bad_samples import BadSample as BadSample
from .._core.work.bad_samples import BadSample as ReadError  # noqa: F401 (former name)
from ._base import LoaderOptions as LoaderOptions
from ._base import Reader as Reader
from ._state import ReaderState as ReaderState
from ._state import merge_states as merge_states
from .caffe import Caffe as Caffe
from .caffe import Caffe2 as Caffe2
from .coco import COCO as COCO
from .dataset import Dataset as Dataset
from .dataset._items import EncodedFile as EncodedFile
from .file import File as File
from .lerobot import LeRobot as LeRobot
from .mxnet import MXNet as MXNet
from .nemo_asr import NemoAsr as NemoAsr
from .numpy import Numpy as Numpy
from .parquet import Parquet as Parquet
from .tfrecord import TFRecord as TFRecord
from .video import Video as Video
from .video import VideoResize as VideoResize
from .webdataset import Webdataset as Webdataset
