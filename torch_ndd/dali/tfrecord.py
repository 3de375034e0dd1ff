# SPDX-License-Identifier: Apache-2.0
"""The features that ``fn.readers.tfrecord`` extracts from each record.

>>> FixedLenFeature([1], int64, -1).shape, VarLenFeature(float32, 0.0).shape
((1,), ())
"""

from ..tfrecord import Feature as Feature
from ..tfrecord import FixedLenFeature as FixedLenFeature
from ..tfrecord import VarLenFeature as VarLenFeature
from ..tfrecord import float32 as float32
from ..tfrecord import int64 as int64
from ..tfrecord import string as string

__all__ = ["Feature", "FixedLenFeature", "VarLenFeature", "float32", "int64", "string"]
