# SPDX-License-Identifier: Apache-2.0
"""The kinds of a sample's parts, as in ``torchvision.tv_tensors``, for whole batches.

Given a :class:`torch_ndd.Batch`, each class makes a Batch that knows what it holds. Given anything else, it makes torchvision's own object, of which
it is also a type: ``isinstance(x, tv_tensors.Mask)`` is true for both.
"""

from .._core.values.tv_tensors import IMAGE_ENDINGS as IMAGE_ENDINGS
from .._core.values.tv_tensors import BoundingBoxes as BoundingBoxes
from .._core.values.tv_tensors import BoundingBoxFormat as BoundingBoxFormat
from .._core.values.tv_tensors import ClampingMode as ClampingMode
from .._core.values.tv_tensors import Image as Image
from .._core.values.tv_tensors import KeyPoints as KeyPoints
from .._core.values.tv_tensors import Mask as Mask
from .._core.values.tv_tensors import TVTensor as TVTensor
from .._core.values.tv_tensors import Typed as Typed
from .._core.values.tv_tensors import Video as Video
from .._core.values.tv_tensors import box_columns as box_columns
from .._core.values.tv_tensors import canvas_sizes as canvas_sizes
from .._core.values.tv_tensors import is_batch_of as is_batch_of
from .._core.values.tv_tensors import is_rotated_bounding_format as is_rotated_bounding_format
from .._core.values.tv_tensors import is_typed as is_typed
from .._core.values.tv_tensors import set_return_type as set_return_type
from .._core.values.tv_tensors import wrap as wrap

# fmt: off
__all__ = [
    "IMAGE_ENDINGS", "BoundingBoxFormat", "BoundingBoxes", "ClampingMode", "Image", "KeyPoints", "Mask", "TVTensor", "Typed", "Video",
    "box_columns", "canvas_sizes", "is_batch_of", "is_rotated_bounding_format", "is_typed", "set_return_type", "wrap",
]
# fmt: on
