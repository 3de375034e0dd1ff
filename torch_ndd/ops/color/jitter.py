# SPDX-License-Identifier: Apache-2.0
"""Brightness, contrast, saturation and hue as torchvision changes them, and its gray."""

from collections.abc import Sequence

import torch as torch

from ..._core.operators.operator import DeviceLike, Double, PerSample, T, launch, operator
from ..._core.values.batch import Batch
from ..._core.values.batch import batch as batch
from .._channels import channels_of, is_other
from .._outputs import like, resized

_LAYOUTS = ("HWC", "CHW", "FHWC", "FCHW")


def _place(op: str, images: Batch) -> tuple[bool, bool]:
    """Return whether channels are planar and whether there are frames; raise RuntimeError for another number of channels than 1 and 3."""
    layout = images.layout or ""
    for found in channels_of(images, layout.index("C")):
        if is_other(found, 1, 3):
            raise RuntimeError(f"{op}: the image must have 1 or 3 channels, got {found}")
    return layout.endswith("CHW"), layout.startswith("F")


@operator(layouts=_LAYOUTS)
def color_jitter(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    brightness: PerSample[Double] | None = None,
    contrast: PerSample[Double] | None = None,
    saturation: PerSample[Double] | None = None,
    hue: PerSample[Double] | None = None,
    order: PerSample[Sequence[int]] = (0, 1, 2, 3),
) -> T:
    """Change brightness, contrast, saturation and hue in any order, in one pass over memory (two with contrast).

    The results equal those of torchvision's ``adjust_brightness``, ``adjust_contrast``, ``adjust_saturation`` and ``adjust_hue`` in sequence:

    - brightness: ``factor * in``;
    - contrast: ``factor * in + (1 - factor) * mean``, with the mean of the gray image, frame by frame;
    - saturation: ``factor * in + (1 - factor) * gray``, where gray is ``0.2989 R + 0.587 G + 0.114 B``;
    - hue: the color turns around the axis of HSV.

    After each step values are limited to 0 to 1, integers to 0 to the largest value of their type, and fractions of integers are cut off. A factor
    of 1 and a hue of 0 change nothing. In images of one channel saturation and hue change nothing.

    Args:
        input: ``HWC``, ``CHW``, ``FHWC`` or ``FCHW`` with one or three channels, any numeric type.
        brightness, contrast, saturation: factors, not negative; like ``hue`` one per sample or per frame. None leaves the step out.
        hue: turn, from -0.5 to 0.5; 1/3 makes green of red.
        order: the order of the steps: 0 is brightness, 1 contrast, 2 saturation, 3 hue. Steps that are missing and those given as -1 are left out.

    Raises:
        ValueError: a factor below 0, a hue outside -0.5 to 0.5, or a step that occurs twice.
        RuntimeError: another number of channels than 1 and 3.

    >>> image = torch.tensor([[[200, 100, 0], [50, 50, 50]]], dtype=torch.uint8)
    >>> color_jitter(image, brightness=1.2, saturation=0.5).torch()
    tensor([[[191, 131,  71],
             [ 59,  59,  59]]], dtype=torch.uint8)
    >>> two = color_jitter(batch([image, image]), hue=batch([0.0, 1 / 3]), order=[3, 0, 1])
    >>> two.torch()[:, 0, 0]
    tensor([[200, 100,   0],
            [  0, 200, 100]], dtype=torch.uint8)
    """
    images: Batch = input  # type: ignore[assignment]
    return launch(like(images), [brightness, contrast, saturation, hue, order, *_place("color_jitter", images)])


@operator(layouts=_LAYOUTS)
def grayscale(input: T, /, *, batch_size: int | None = None, device: DeviceLike | None = None, channels: int = 1) -> T:
    """Convert RGB to gray, ``0.2989 R + 0.587 G + 0.114 B``; fractions of integers are cut off.

    The results equal those of torchvision's ``rgb_to_grayscale``. The weights add up to 0.9999: white of uint8 becomes 254.

    Args:
        input: ``HWC``, ``CHW``, ``FHWC`` or ``FCHW`` with one or three channels, any numeric type; one channel does not change.
        channels: of the result: 1, or 3 equal ones.

    Raises:
        ValueError: other ``channels`` than 1 and 3.
        RuntimeError: another number of channels than 1 and 3.

    >>> grayscale(torch.tensor([[[200, 100, 0], [255, 255, 255]]], dtype=torch.uint8)).torch().flatten()
    tensor([118, 254], dtype=torch.uint8)
    """
    images: Batch = input  # type: ignore[assignment]
    if channels not in (1, 3):
        raise ValueError(f"grayscale: channels must be 1 or 3, got {channels}")
    place = _place("grayscale", images)
    return launch(resized(images, [(images.layout or "").index("C")], [channels]), [*place])
