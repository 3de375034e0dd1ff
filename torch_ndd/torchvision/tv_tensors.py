# SPDX-License-Identifier: Apache-2.0
"""Types of images, boxes, points and masks, as in ``torchvision.tv_tensors``, for whole batches.

Called with a :class:`torch_ndd.Batch`, each class returns a Batch of that type. Called with another value, it returns torchvision's object, which is
also an instance of the class: ``isinstance(x, tv_tensors.Mask)`` is true for both.
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
