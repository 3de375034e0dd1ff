# SPDX-License-Identifier: Apache-2.0
"""Rank filters: the minimum, maximum and median of a window."""

from collections.abc import Sequence
from typing import Any, get_args

from ..._core.operators.operator import DeviceLike, PerSample, T, launch, operator
from ..._core.values.batch import Batch
from .._borders import BorderMode, border_number
from .._outputs import like

LAYOUTS = ("HW", "HWC", "FHWC", "CHW", "FCHW")


def _launch(op: str, images: Batch, *arguments: Any, **pairs: Any) -> Any:
    for name, values in pairs.items():
        elements = values.shape[-1] if values.dim() > 1 else 1
        if elements not in (1, 2):
            raise RuntimeError(f"{op}: {name} must have 1 or 2 elements, x and y, got {elements}")
    return launch(like(images), [*pairs.values(), *arguments, (images.layout or "").index("H")])


def _launch_morphology(op: str, images: Batch, anchor: Any, border_mode: str, iterations: int, mask_size: Any) -> Any:
    border = border_number(op, "border_mode", border_mode, get_args(BorderMode))
    if not 1 <= iterations < 2**31:
        raise RuntimeError(f"{op}: iterations must be 1 or more, got {iterations}")
    return _launch(op, images, iterations, border, anchor=anchor, mask_size=mask_size)


@operator(name="experimental.dilate", layouts=LAYOUTS)
def dilate(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    anchor: PerSample[int | Sequence[int]] = -1,
    border_mode: BorderMode = "constant",
    iterations: int = 1,
    mask_size: PerSample[int | Sequence[int]] = 3,
) -> T:
    """Return the largest pixel of a rectangle around each pixel, per channel.

    Args:
        input: ``HW``, ``HWC``, ``CHW``, ``FHWC`` or ``FCHW``, any numeric type. NaN counts only if a rectangle has nothing else.
        mask_size: width and height of the rectangle, or one number for both, per sample or per frame; -1 is 3.
        anchor: x and y of the pixel within the rectangle, given like ``mask_size``; -1 is the middle, ``size // 2``.
        border_mode: pixels beyond the border: "constant" none, otherwise as in :func:`torch_ndd.filter` "replicate" ``(aa|abc|cc)``, "reflect"
            ``(ba|abc|cb)``, "reflect_101" ``(cb|abc|ba)``, "wrap" ``(bc|abc|ab)``.
        iterations: number of repetitions; each further one is a rectangle larger by ``mask_size - 1``.

    Raises:
        ValueError: another layout.
        RuntimeError: a size below 1, an anchor outside the rectangle, an unknown border, ``iterations`` below 1.

    >>> dilate([[1, 0, 0, 0, 2]], mask_size=[3, 1]).torch()
    tensor([[1, 1, 0, 2, 2]], dtype=torch.int32)
    """
    return _launch_morphology("experimental.dilate", input, anchor, border_mode, iterations, mask_size)  # type: ignore[arg-type]


@operator(name="experimental.erode", layouts=LAYOUTS)
def erode(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    anchor: PerSample[int | Sequence[int]] = -1,
    border_mode: BorderMode = "constant",
    iterations: int = 1,
    mask_size: PerSample[int | Sequence[int]] = 3,
) -> T:
    """Return the smallest pixel of a rectangle around each pixel, per channel.

    Args:
        input, mask_size, anchor, border_mode, iterations: see :func:`dilate`.

    Raises:
        ValueError, RuntimeError: see :func:`dilate`.

    >>> erode([[3, 1, 3, 3, 3]], mask_size=[3, 1]).torch()
    tensor([[1, 1, 1, 3, 3]], dtype=torch.int32)
    """
    return _launch_morphology("experimental.erode", input, anchor, border_mode, iterations, mask_size)  # type: ignore[arg-type]


@operator(name="experimental.median_blur", layouts=LAYOUTS)
def median_blur(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    window_size: PerSample[int | Sequence[int]] = 3,
) -> T:
    """Return the median of a rectangle around each pixel, per channel. Border pixels are repeated beyond the image.

    Args:
        input: ``HW``, ``HWC``, ``CHW``, ``FHWC`` or ``FCHW``, any numeric type. NaN counts as the largest number.
        window_size: width and height of the rectangle, from 1 to 1024, or one number for both; per sample or per frame. The median of an even number
            of pixels is the upper one of the middle two.

    Raises:
        ValueError: another layout.
        RuntimeError: another size.

    >>> median_blur([[5, 0, 7, 8, 6]], window_size=[3, 1]).torch()
    tensor([[5, 5, 7, 7, 6]], dtype=torch.int32)
    """
    return _launch("experimental.median_blur", input, window_size=window_size)  # type: ignore[arg-type]
