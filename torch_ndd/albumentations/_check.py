# SPDX-License-Identifier: Apache-2.0
"""The comparison of a translated transform with its original, with the same parameters."""

from typing import Any

import numpy as np
import torch

from .._core.values.batch import as_batch
from ..torchvision._draws import Draws
from ..transformers._check import make_images
from ._sample import OP, Rows, Sample
from ._step import Step

LEVEL = 1.0
MAX_PART = 0.005
"""The part of the pixels that may differ by more: where rounding decides between two pixels."""


_VECTOR = 64


def check_step(step: Step) -> None:
    """Raise RuntimeError unless a step and its original do the same to small images."""
    if step.random_pixels:
        return
    sample = make_sample(step)
    part = measure_difference(step, sample, step.draw(sample, Draws(sample.count)))
    # Written so that NaN raises as well.
    if not part <= MAX_PART:
        raise RuntimeError(
            f"{OP}: {step!r} differs from Albumentations in {100 * part:.2g} % of the pixels: this version of it or of OpenCV is not supported. "
            "check=False translates nevertheless"
        )


def make_sample(step: Step) -> Sample:
    """Return three small images that are large enough for the step, with a box and a mask."""
    t = step.original
    extents = [getattr(t, name, 0) for name in ("height", "width", "y_max", "x_max")]
    # A crop of a fixed size needs larger images, and a grid enough pixels for its cells.
    least = max([64, *(int(extent) for extent in extents if isinstance(extent, int))])
    for name in ("unit_size_range", "mask_x_length", "mask_y_length", "min_max_height"):
        value = getattr(t, name, None)
        least = max([least, *(int(end) + 1 for end in (value if isinstance(value, tuple | list) else (value,)) if isinstance(end, int))])
    images = []
    for image in make_images():
        # OpenCV rounds colors of the last columns differently, where they do not fill its vectors.
        columns = -(-max(least, image.shape[1]) // _VECTOR) * _VECTOR
        copies = (-(-least // image.shape[0]), -(-columns // image.shape[1]), 1)
        images.append(np.ascontiguousarray(np.tile(image, copies)[:, :columns]))
    if step.name == "ElasticTransform":  # which takes images of one size
        images = [image[:least, :least] for image in images]
    if step.name == "ToRGB":
        images = [np.ascontiguousarray(image[..., :1]) for image in images]
    masks = as_batch([np.ascontiguousarray(image[..., :1] // 128) for image in images], layout="HWC")
    if step.name == "FromFloat":
        images = [(image / 255).astype(np.float32) for image in images]
    count = len(images)
    boxes = torch.tensor([[0.3, 0.2, 0.7, 0.6]], dtype=torch.float64).repeat(count, 1)
    rows = Rows(boxes, torch.arange(count), torch.arange(count))
    return Sample({"image": as_batch(images, layout="HWC")}, {"mask": masks}, {"bboxes": rows})


def measure_difference(step: Step, sample: Sample, params: dict[str, torch.Tensor]) -> float:
    """Return the largest part, over the images, of the pixels that differ from the original's by more than one level; 1 for another shape."""
    found = step.change(Sample(sample.images, sample.masks), params).image
    parts = []
    for i in range(sample.count):
        image = sample.image.nth(i).torch().numpy()
        ours = found.nth(i).torch().numpy()
        theirs = np.asarray(call_original(step, image, params, i))
        theirs = theirs[..., None] if theirs.ndim < ours.ndim else theirs
        # Albumentations returns float64 here and there.
        if theirs.shape != ours.shape or (theirs.dtype.kind, ours.dtype.kind) not in (("u", "u"), ("f", "f")):
            return 1.0
        difference = np.abs(ours.astype(np.float64) - theirs)
        scale = 1.0 if ours.dtype == np.uint8 else 1e-3  # of floats, a quarter of a level of values from 0 to 1
        parts.append(float((~(difference <= LEVEL * scale)).mean()) if difference.size else 0.0)
    return max(parts)


def call_original(step: Step, image: np.ndarray, params: dict[str, torch.Tensor], i: int) -> Any:
    """Return what the original makes of one image with the parameters of sample ``i``."""
    t = step.original
    theirs = t.apply(image.copy(), **{"shape": image.shape, "fill": getattr(t, "fill", None), **step.arguments(params, i)})
    if getattr(step, "planar", False):
        return np.moveaxis(np.asarray(theirs), -1, 0)
    return theirs
