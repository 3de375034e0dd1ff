# SPDX-License-Identifier: Apache-2.0
"""Random crop windows as numbers, for arguments of other operators."""

from collections.abc import Sequence
from typing import Any

import torch

from ... import types
from ..._core.native.tracing import is_compiling
from ..._core.operators.operator import DeviceLike, PerSample, Random, T, launch, operator
from ..._core.values.batch import Batch, empty_batch
from .._arguments import INTEGERS
from .._outputs import like
from ..geometry._random_crop import DEFAULT_AREA, DEFAULT_ASPECT_RATIO, Range, check_ranges


@operator()
def random_crop_generator(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    num_attempts: int = 10,
    random_area: Range = DEFAULT_AREA,
    random_aspect_ratio: Range = DEFAULT_ASPECT_RATIO,
    rng: Random = None,
) -> tuple[T, T]:
    """Draw a random window of an image of this shape: its anchor and its shape, (y, x) and (height, width) as int32.

    An attempt draws a relative area and an aspect ratio. It fails if the window is larger than the image or if rounding moves its ratio out of range.
    After the last failed attempt the window is the largest one within both ranges. The position is uniform. An image without pixels has an empty
    window. :func:`random_resized_crop` draws the same kind of windows.

    Args:
        input: shape of an image as integers: height and width, or height, width and channels.
        num_attempts: at least 1.
        random_area: smallest and largest area, relative to the image's; uniform.
        random_aspect_ratio: smallest and largest width / height; uniform on a logarithmic scale.
        rng: random generator; by default this thread's.

    Raises:
        RuntimeError: a shape that is not 2 or 3 integers, or an empty range.
        ValueError: a range that is not positive, or no attempts.

    >>> anchor, shape = random_crop_generator([480, 640, 3], random_area=1.0, random_aspect_ratio=4 / 3)
    >>> anchor.torch().tolist(), shape.torch().tolist()
    ([0, 0], [480, 640])
    """
    shapes: Batch = input  # type: ignore[assignment]
    if shapes.dtype not in INTEGERS:
        raise RuntimeError(f"random_crop_generator: input 0 must have integers, got {shapes.dtype}")
    if shapes.ndim != 1 or not _two_or_three(shapes):
        raise RuntimeError(f"random_crop_generator: input 0 must be the shape of an image, 2 or 3 integers, got shape {shapes.shape}")
    limits = check_ranges("random_crop_generator", random_area, random_aspect_ratio, num_attempts)
    device_of = shapes.buffer.device
    out = tuple(empty_batch(shapes.batch_size, [2], torch.int32, device_of) for _ in range(2))
    return launch(out, [*limits, rng])


def _two_or_three(shapes: Batch) -> bool:
    if shapes.ragged_shapes is None:
        return shapes.buffer.shape[1] in (2, 3)
    return is_compiling() or bool(((shapes.ragged_shapes == 2) | (shapes.ragged_shapes == 3)).all())


@operator()
def roi_random_crop(
    input: T | None = None,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    crop_shape: PerSample[int | Sequence[int]],
    in_shape: PerSample[int | Sequence[int]] | None = None,
    roi_end: PerSample[int | Sequence[int]] | None = None,
    roi_shape: PerSample[int | Sequence[int]] | None = None,
    roi_start: PerSample[int | Sequence[int]],
    rng: Random = None,
) -> Any:
    """Draw the start of a window of fixed size that covers as much as possible of a region of interest: int64, one number per dimension.

    A window larger than the region contains it; a smaller one lies within it. Among such positions, within the input if its shape is known, the start
    is uniform.

    Args:
        input: the data to crop, for its shape.
        crop_shape: size of the window. All arguments are in pixels, with one number per dimension or one for all.
        in_shape: shape of the data to crop, instead of the input.
        roi_end: end of the region of interest. Either it or ``roi_shape`` is required.
        roi_shape: size of the region of interest.
        roi_start: start of the region of interest.
        rng: random generator; by default this thread's.

    Raises:
        RuntimeError: both or neither of ``roi_end`` and ``roi_shape``; ``in_shape`` together with an input; arguments for different numbers of
            dimensions; a region that leaves the input, or a window larger than the input.

    >>> roi_random_crop(crop_shape=[10, 10], roi_start=[5, 7], roi_shape=[10, 10]).torch()
    tensor([5, 7])
    """
    if (roi_end is None) == (roi_shape is None):
        raise RuntimeError("roi_random_crop: give either roi_end or roi_shape")
    if input is not None and in_shape is not None:
        raise RuntimeError("roi_random_crop: give either an input or in_shape")
    keywords = {"crop_shape": crop_shape, "roi_start": roi_start, "roi_end": roi_end, "roi_shape": roi_shape, "in_shape": in_shape}
    numbers = {name: value.reshape(len(value), -1) for name, value in keywords.items() if value is not None}
    dims = max(value.shape[1] for value in numbers.values())
    for name, value in numbers.items():
        if value.shape[1] not in (1, dims):
            raise RuntimeError(f"roi_random_crop: argument {name!r} has {value.shape[1]} numbers for {dims} dimensions")
    if input is not None:
        numbers["in_shape"] = _leading_extents(input, dims)  # type: ignore[arg-type]
    arguments = [numbers.get(name) for name in keywords]
    return launch(empty_batch(batch_size, [dims], torch.int64, device), [*arguments, rng])  # type: ignore[arg-type]


def _leading_extents(images: Batch, dims: int) -> torch.Tensor:
    if images.ndim < dims:
        raise RuntimeError(f"roi_random_crop: the input has {images.ndim} dimensions, the arguments are for {dims}")
    if images.ragged_shapes is None:
        return torch.tensor([images.buffer.shape[1 : 1 + dims]], dtype=torch.int64)
    return images.ragged_shapes[:, :dims].contiguous()


@operator(layouts=("HWC",))
def jitter(
    input: T,
    /,
    *,
    batch_size: int | None = None,
    device: DeviceLike | None = None,
    fill_value: PerSample[float] = 0.0,
    interp_type: types.DALIInterpType = types.INTERP_NN,
    mask: PerSample[int] = 1,
    nDegree: int = 2,
    rng: Random = None,
) -> T:
    """Displace every pixel at random: ``out[p] = in[p + d]`` with d uniform from ``-nDegree / 2`` to ``nDegree / 2`` in x and in y.

    Args:
        input: images ``HWC`` of any numeric type.
        fill_value: value outside the input.
        interp_type: ``INTERP_NN`` or ``INTERP_LINEAR``.
        mask: 0 keeps a sample unchanged.
        nDegree: twice the largest displacement, in pixels; at least 1.
        rng: random generator; by default this thread's.

    Raises:
        RuntimeError: another ``interp_type``, or ``nDegree`` below 1.

    >>> jitter(torch.ones(5, 5, 3), nDegree=3, fill_value=1).torch().unique()
    tensor([1.])
    """
    if interp_type not in (types.INTERP_NN, types.INTERP_LINEAR):
        raise RuntimeError(f"jitter: argument 'interp_type' must be INTERP_NN or INTERP_LINEAR, got {interp_type!r}")
    if not 1 <= nDegree < 2**24:
        raise RuntimeError(f"jitter: argument 'nDegree' must be from 1 to 2**24, got {nDegree}")
    return launch(like(input), [fill_value, int(interp_type), mask, nDegree, rng])
