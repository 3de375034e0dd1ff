# SPDX-License-Identifier: Apache-2.0
"""Random erasing (Zhong et al., arXiv:1708.04896)."""

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch

from .. import types
from .._core.operators.operator import T
from .._core.suggestions import check_choice
from .._core.values.batch import Batch, as_batch, new_batch
from .._core.values.operand import layout_error, unwrap
from .._core.values.tensor import Tensor, as_tensor
from ..ops.geometry.paste import erase
from ..ops.random.distributions import normal
from ..ops.shape.fill import zeros_like
from ._inputs import draw_numbers, exclude_from_compilation

_LAYOUTS = ("HWC", "CHW", "FHWC", "FCHW")
Mode = Literal["constant", "random", "pixel"]
_TRIES = 10  # as in torchvision and timm


@exclude_from_compilation
def random_erasing(
    images: T,
    /,
    *,
    area: Sequence[float] = (0.02, 0.33),
    aspect_ratio: Sequence[float] = (0.3, 3.3),
    count: int = 1,
    fill_value: float | Sequence[float] = 0.0,
    mode: Mode = "constant",
    probability: float = 0.5,
    return_params: bool = False,
    rng: Any = None,
) -> Any:
    """Overwrite boxes of random size and place, drawn per sample, in images that may be normalized already.

    For each box an area and an aspect ratio are drawn, up to ten times until the box is smaller than the image, and then its position. The
    distributions are those of torchvision's ``RandomErasing``, whose noise per value is ``"pixel"`` here, and of timm's, whose modes are "const",
    "rand" and "pixel".

    Args:
        images: a Batch of images or videos ``HWC``, ``CHW``, ``FHWC`` or ``FCHW`` of any sizes, or one of them, any type. Boxes are the same in all
            frames.
        probability: probability of changing a sample.
        count: number of boxes; each has a ``count``-th of the area.
        area: smallest and largest area relative to the image.
        aspect_ratio: smallest and largest height over width; its logarithm is uniform.
        mode: "constant": ``fill_value``; "random": a color per box, standard normal; "pixel": a standard normal number per value.
        fill_value: one number, or one per channel, for "constant".
        return_params: also return the boxes, int64 (N, count, 4): top, left, height, width; height and width are 0 where nothing is erased.
        rng: random generator, by default :func:`torch_ndd.random.get_default_rng`.

    Returns:
        The images; with ``return_params`` a tuple with the boxes.

    Raises:
        ValueError: another layout, another mode, "random" or "pixel" of integers, ranges that are not increasing and positive, a probability
            outside 0 to 1, a count below 1.
        TypeError: ``images`` that are neither a Batch nor an image.

    >>> images = batch(torch.ones(2, 3, 16, 16), layout="CHW")
    >>> erased, boxes = ndd.augment.random_erasing(images, probability=1.0, return_params=True)
    >>> bool((erased.torch() == 0).sum() == 3 * boxes[..., 2].mul(boxes[..., 3]).sum())
    True
    """
    op = "random_erasing"
    check_choice(op, "mode", mode, get_args(Mode), ValueError)
    for name, pair in (("area", area), ("aspect_ratio", aspect_ratio)):
        if len(pair) != 2 or not 0 < pair[0] <= pair[1] < math.inf:
            raise ValueError(f"{op}: {name} must be two positive numbers, the smaller one first, got {pair}")
    if not 0 <= probability <= 1:
        raise ValueError(f"{op}: probability must be from 0 to 1, got {probability}")
    if count < 1:
        raise ValueError(f"{op}: count must be 1 or more, got {count}")
    batch, is_batch = _as_images(op, images)
    if mode != "constant" and not batch.dtype.is_floating_point:
        raise ValueError(f'{op}: mode="{mode}" needs floating-point images, got {types.dtype_name(batch.dtype)}; erase after the normalization')
    axis = (batch.layout or "").index("H")
    sizes = np.array([shape[axis : axis + 2] for shape in batch.shape], np.float64).reshape(-1, 2)
    # For each sample a number that decides whether it is erased; for each box areas, ratios and a position.
    boxes = _erased_boxes(draw_numbers(op, rng, batch.batch_size, 1 + count * (2 * _TRIES + 2)), sizes, area, aspect_ratio, count, probability)
    output = batch
    for k in range(count):
        anchor, shape = (new_batch(torch.from_numpy(np.ascontiguousarray(boxes[:, k, a : a + 2], np.float32))) for a in (0, 2))
        window: dict[str, Any] = {"anchor": anchor, "shape": shape, "axis_names": "HW"}
        if mode == "constant":
            output = erase(output, **window, fill_value=fill_value)
        elif mode == "random":
            channels = batch.shared_extent((batch.layout or "").index("C"))
            output = erase(output, **window, fill_value=normal(shape=[channels], batch_size=batch.batch_size, rng=rng))
        else:
            # Noise per pixel is not an option of erase: it is added to the erased window.
            inside = erase(zeros_like(output), **window, fill_value=1.0)
            output = erase(output, **window) + inside * normal(output, dtype=output.dtype, rng=rng)
    params = torch.from_numpy(boxes)
    if not is_batch:
        output, params = output.select(0), params[0]
    return (output, params) if return_params else output


def _erased_boxes(
    numbers: np.ndarray, sizes: np.ndarray, area: Sequence[float], aspect: Sequence[float], count: int, probability: float
) -> np.ndarray:
    """Return top, left, height and width, int64 (N, count, 4)."""
    acts, rest = numbers[:, 0] < probability, numbers[:, 1:].reshape(len(numbers), count, -1)
    extents = sizes[:, None, :]
    # Shared among the boxes of an image.
    areas = extents.prod(2, keepdims=True) / count * (area[0] + rest[..., :_TRIES] * (area[1] - area[0]))
    low, high = np.log(aspect[0]), np.log(aspect[1])
    ratios = np.exp(low + rest[..., _TRIES : 2 * _TRIES] * (high - low))
    h, w = np.round(np.sqrt(areas * ratios)), np.round(np.sqrt(areas / ratios))
    fits = (h < extents[..., :1]) & (w < extents[..., 1:])
    # The first attempt that fits, without a loop over samples.
    first = fits.argmax(2)[..., None]
    erased = fits.any(2) & acts[:, None]
    box = np.where(erased[..., None], np.concatenate([np.take_along_axis(side, first, 2) for side in (h, w)], 2), 0)
    start = np.floor(rest[..., 2 * _TRIES :] * (extents - box + 1))
    return np.concatenate([np.where(erased[..., None], start, 0), box], 2).astype(np.int64)


def _as_images(op: str, value: Any) -> tuple[Batch, bool]:
    """Return images as a batch with a layout, and whether they were a batch."""
    value = unwrap(value)
    if not isinstance(value, Batch | Tensor | torch.Tensor | np.ndarray):
        raise TypeError(f"{op}: images must be a Batch or one image, got {type(value).__name__}")
    images = value if isinstance(value, Batch) else as_batch([as_tensor(value)])
    if images.layout is None and images.ndim == 3:
        images = as_batch(images, layout="HWC")
    if images.layout not in _LAYOUTS:
        raise layout_error(op, images, _LAYOUTS)
    return images, isinstance(value, Batch)
