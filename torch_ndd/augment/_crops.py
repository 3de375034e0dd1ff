# SPDX-License-Identifier: Apache-2.0
"""Several crops of each image, as self-supervised training takes them: from one decoding, by one launch."""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from .. import types
from .._core import native
from .._core.context.device import DeviceLike
from .._core.context.pools import get_num_threads
from .._core.context.rng import RNG, WORDS_PER_CALL, get_default_rng
from .._core.suggestions import check_choice
from .._core.values.batch import Batch, as_batch, new_batch
from .._core.values.collect import fence
from .._core.values.dispatch import output, run
from .._core.values.operand import unwrap
from .._core.values.tensor import Tensor, as_tensor
from .._core.work.pending import ALL_SAMPLES, SAME_SAMPLE
from ..decoders.image import image as decode_image
from ..decoders.peek import peek_image_shape
from ..ops._arguments import as_samples, as_sides
from ..ops.geometry._random_crop import DEFAULT_ASPECT_RATIO, Range, check_ranges, random_crop_windows
from ..ops.geometry._resize_plan import filters_of
from ..ops.geometry.resize import Rule
from ..ops.geometry.sizes import extents_table, image_axes
from ._inputs import check_rng, exclude_from_compilation

DINO_SCALES = ((0.4, 1.0), (0.05, 0.4))
MAX_CROPS = 1024  # of an image
MAX_SIDE = 2**22  # of a result: what resize can compute
ATTEMPTS = 10

_kernel = native.kernel("multi_crop")
_RULES = native.numbers("resize.Rule")


@exclude_from_compilation
def random_windows(
    images: Any,
    /,
    *,
    scale: Sequence[Range] = DINO_SCALES,
    ratio: Range = DEFAULT_ASPECT_RATIO,
    counts: Sequence[int] = (2, 8),
    rng: RNG | None = None,
) -> Any:
    """Draw several random windows of each image, by default DINO's: two global and eight local ones.

    Windows are drawn as those of :func:`torch_ndd.random_resized_crop`.

    Args:
        images: encoded files, whose headers are read, as a Batch or a Tensor; images, the result of :func:`torch_ndd.peek_image_shape`, or
            integers (N, 2) with heights and widths.
        scale: for each of ``counts``, the smallest and largest area of its windows, relative to the image's.
        ratio: smallest and largest width / height.
        counts: numbers of windows, one for each range of areas.
        rng: random generator, by default :func:`torch_ndd.random.get_default_rng`.

    Returns:
        int64 (K, 4) for each image, with K the sum of ``counts``: top, left, height and width, for :func:`multi_crop`.

    Raises:
        ValueError: ``scale`` and ``counts`` of different lengths, a count below 1, a range that is not positive, an area above 1, or an image without
            pixels.

    >>> windows = random_windows([[480, 640]], counts=(2, 8))
    >>> windows.shape
    [(10, 4)]
    """
    op = "random_windows"
    check_rng(op, rng)
    groups: list[int] = []
    ranges: list[Range] = []
    with suppress(TypeError, ValueError):  # not sequences, or no numbers
        groups, ranges = [int(count) for count in counts], list(scale)
    if len(groups) != len(ranges) or any(count < 1 for count in groups) or not 1 <= sum(groups) <= MAX_CROPS:
        needed = f"a range of scale for each of counts, which are positive and at most {MAX_CROPS} together"
        raise ValueError(f"{op}: needs {needed}, got scale={scale} and counts={counts}")
    if isinstance(images, Batch | Tensor) and images.ndim == 1 and images.dtype is torch.uint8:
        images = peek_image_shape(images)
    extents, single = extents_table(op, images)
    if len(extents) and int(extents.min()) < 1:
        raise ValueError(f"{op}: sample {int(extents.amin(1).argmin())} has no pixels")
    generator = get_default_rng() if rng is None else rng
    parts = []
    for count, area in zip(groups, ranges, strict=True):
        largest = check_ranges(op, area, ratio, ATTEMPTS, ("scale", "ratio"))[1]
        if largest > 1:
            raise ValueError(f"{op}: scale is the area of a window relative to the image's, at most 1, got {area}")
        # One draw serves all windows of a group: window k of sample i is row i * count + k.
        sizes, words = extents.repeat_interleave(count, 0), generator.draw(WORDS_PER_CALL)
        drawn = random_crop_windows(sizes, words, area, ratio, ATTEMPTS, op=op, names=("scale", "ratio"))
        parts.append(drawn.reshape(len(extents), count, 4))
    windows = new_batch(torch.cat(parts, 1), None)
    return windows.tensors[0] if single else windows


@exclude_from_compilation
def multi_crop(
    images: Any,
    /,
    *,
    windows: Any,
    sizes: Sequence[int | Sequence[int]],
    rule: Rule = "torch",
    interp_type: types.DALIInterpType = types.INTERP_LINEAR,
    antialias: bool = True,
    device: DeviceLike | None = None,
) -> list[Any]:
    """Cut windows out of each image and resize them: crop k of all images is a batch of its own.

    A file is decoded once, and all crops of an image are resized together, without copies of it. Each is equal to :func:`torch_ndd.resize` of
    :func:`torch_ndd.crop`; by the rule ``"dali"`` to ``resize`` with ``roi_start`` and ``roi_end``, which sees the pixels around the window.

    Args:
        images: encoded files, or images ``HWC`` or ``CHW`` with as many channels each: a Batch, or one image.
        windows: (K, 4) integers for each image: top, left, height and width in pixels, such as those of :func:`random_windows`.
        sizes: for each of the K windows, height and width of the result, or one number for both.
        rule, interp_type, antialias: as in :func:`torch_ndd.resize`.
        device: where files are decoded, see :func:`torch_ndd.decoders.image`.

    Returns:
        K batches of N images, of the type and layout of the input; for one image K Tensors.

    Raises:
        ValueError: a window that leaves its image or has no pixels, with sample and window; another number of sizes, or no list of them; another
            ``rule`` or layout.

    >>> image = torch.zeros(100, 200, 3, dtype=torch.uint8)
    >>> whole, part = multi_crop(image, windows=[[0, 0, 100, 200], [10, 20, 50, 50]], sizes=[[50, 100], 32])
    >>> whole.shape, part.shape
    ((50, 100, 3), (32, 32, 3))
    """
    op = "multi_crop"
    check_choice(op, "rule", rule, _RULES, ValueError)
    batch, single = _as_images(op, images, device)
    axis = image_axes(op, batch)[0]
    if not isinstance(sizes, Sequence) or isinstance(sizes, str) or not sizes:
        raise ValueError(f"{op}: sizes must be a list with the size of each window, got {sizes!r:.200}")
    targets = [as_sides(op, "each of sizes", size, MAX_SIDE) for size in sizes]
    table = _as_windows(op, windows, batch.batch_size, len(targets), single)
    _check_inside(op, table, batch.sample_shapes()[:, axis : axis + 2].numpy())
    channel = batch.shared_extent((batch.layout or "HWC").index("C"))
    if channel is None:
        raise ValueError(f"{op}: all images need the same number of channels, got shapes {batch.shape!r:.200}")
    filters = filters_of(op, interp_type, None, None)
    shapes = [[channel, *size] if axis else [*size, channel] for size in targets]
    volumes = [batch.batch_size * math.prod(shape) for shape in shapes]
    out = output(native.empty, (sum(volumes),), batch.dtype, batch.buffer.device)
    # Crop by crop, so each is a part of the buffer.
    rows = torch.from_numpy(np.ascontiguousarray(table.transpose(1, 0, 2).reshape(-1, 4)))
    regions = torch.cat([rows[:, :2], rows[:, :2] + rows[:, 2:]], 1).to(torch.float32)
    numbers = torch.arange(batch.batch_size).repeat(len(targets))
    out_shapes = torch.tensor(shapes, dtype=torch.int64).reshape(len(targets), -1).repeat_interleave(batch.batch_size, 0)
    # A task for all crops of an image starts when the image is decoded and reads it once; few images are cut into smaller tasks, one for each crop.
    together = out.device.type == "cpu" and batch.batch_size >= get_num_threads()
    # 3 << axis: the bits of the height and width axes.
    settings = (*filters, bool(antialias), _RULES[rule], 3 << axis, together)
    arguments = (batch.buffer, batch.ragged_shapes, numbers, regions, *settings, out, out_shapes)
    joined = new_batch(out, out_shapes, batch.layout, run(_kernel, arguments, [(batch, SAME_SAMPLE if together else ALL_SAMPLES)], out))
    # All crops share one launch: waiting for one of them waits for it.
    pending = fence(joined, ALL_SAMPLES)
    crops: list[Any] = []
    for part, shape in zip(out.split(volumes), shapes, strict=True):
        crop = new_batch(part.view(batch.batch_size, *shape), None, batch.layout, pending)
        crop.sources = batch.sources
        crops.append(crop.select(0) if single else crop)
    return crops


def _as_images(op: str, images: Any, device: DeviceLike | None) -> tuple[Batch, bool]:
    """Return images as a batch ``HWC`` or ``CHW``, decoded if they are files, and whether they are one image."""
    batch, single = as_samples(images, lambda value: as_batch(value) if isinstance(value, list | tuple) else as_tensor(value))
    if batch.ndim == 1 and batch.dtype is torch.uint8:
        batch = decode_image(batch, device=device)
    if batch.layout is None and batch.ndim == 3:
        batch = as_batch(batch, layout="HWC")
    if batch.layout not in ("HWC", "CHW"):
        raise ValueError(f'{op}: needs encoded files, or images HWC or CHW, got the layout "{batch.layout or ""}" and shape {batch.shape!r:.200}')
    return batch, single


def _as_windows(op: str, windows: Any, samples: int, count: int, single: bool) -> np.ndarray:
    """Return windows as int64 (samples, count, 4)."""
    value = unwrap(windows)
    try:
        numbers = np.asarray(value.torch().cpu() if isinstance(value, Tensor | Batch) else value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{op}: windows must be (K, 4) integers for each image, as many for each: {error}") from None
    if single and numbers.ndim == 2:
        numbers = numbers[None]
    if numbers.dtype.kind not in "iu" or numbers.shape != (samples, count, 4):
        raise ValueError(f"{op}: windows must be integers of the shape {(samples, count, 4)}, one for each size, got {numbers.dtype} {numbers.shape}")
    return numbers.astype(np.int64)


def _check_inside(op: str, windows: np.ndarray, extents: np.ndarray) -> None:
    starts, sides = windows[..., :2], windows[..., 2:]
    wrong = ((starts < 0) | (sides < 1) | (starts > extents[:, None] - sides)).any(-1)  # a sum of starts and sides might overflow
    if wrong.any():
        sample, window = (int(number) for number in np.argwhere(wrong)[0])
        top, left, height, width = windows[sample, window].tolist()
        tall, wide = extents[sample].tolist()
        place = f"top {top}, left {left}, height {height}, width {width}"
        raise ValueError(f"{op}: sample {sample}: window {window}, {place}, is empty or leaves its image of {tall} x {wide}")
