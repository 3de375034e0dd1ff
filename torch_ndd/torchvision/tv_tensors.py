# SPDX-License-Identifier: Apache-2.0
"""Types of images, boxes, points and masks, as in ``torchvision.tv_tensors``, for whole batches.

Called with a :class:`torch_ndd.Batch`, each class returns a Batch of that type. Called with another value, it returns torchvision's object, which is
also an instance of the class: ``isinstance(x, tv_tensors.Mask)`` is true for both.
"""

from .._core.values.tv_tensors import (
    IMAGE_ENDINGS,
    BoundingBoxes,
    BoundingBoxFormat,
    ClampingMode,
    Image,
    KeyPoints,
    Mask,
    TVTensor,
    Typed,
    Video,
    box_columns,
    canvas_sizes,
    is_batch_of,
    is_rotated_bounding_format,
    is_typed,
    set_return_type,
    wrap,
)

# fmt: off
__all__ = [
    "IMAGE_ENDINGS", "BoundingBoxFormat", "BoundingBoxes", "ClampingMode", "Image", "KeyPoints", "Mask", "TVTensor", "Typed", "Video",
    "box_columns", "canvas_sizes", "is_batch_of", "is_rotated_bounding_format", "is_typed", "set_return_type", "wrap",
]
# fmt: on
