# SPDX-License-Identifier: Apache-2.0
"""Mixing of pairs of images and their labels."""

from typing import Any, Literal, get_args

import numpy as np
import torch

from .. import types
from .._core import native
from .._core.native.tracing import is_compiling
from .._core.suggestions import check_choice
from .._core.values.batch import Batch, as_batch, new_batch
from .._core.values.operand import Operand, layout_error, unwrap
from .._core.values.repeated_kernel import RepeatedKernel
from .._core.work.pending import ALL_SAMPLES, SAME_SAMPLE
from ..ops.generic.convert import cast
from ..ops.geometry._paste_boxes import paste_boxes
from ..ops.random.distributions import beta
from ..ops.random.permute import batch_permutation, permute_batch
from ._inputs import check_rng, draw_numbers, exclude_from_compilation

Partner = Literal["random", "previous", "reversed"]


@exclude_from_compilation
def mixup(
    images: Batch,
    labels: Any = None,
    /,
    *,
    alpha: float = 1.0,
    dtype: torch.dtype | None = None,
    label_smoothing: float = 0.0,
    num_classes: int | None = None,
    partner: Partner = "random",
    per_batch: bool = False,
    return_params: bool = False,
    rng: Any = None,
) -> Any:
    """Mix every image and its label with those of another sample: ``lam * images[i] + (1 - lam) * images[j]`` (Zhang et al., arXiv:1710.09412).

    ``lam`` is drawn per sample from the beta distribution ``Beta(alpha, alpha)``; ``j`` is a random permutation of the batch's samples.
    torchvision's ``MixUp`` is ``per_batch=True, partner="previous"``, timm's ``per_batch=True, partner="reversed", label_smoothing=0.1``.

    Args:
        images: a Batch of samples of equal shape, any numeric type and layout.
        labels: a class per sample, integers (N,), with ``num_classes``; or a probability per class, floating-point (N, classes).
        alpha: positive; the smaller, the more often one of the two images dominates.
        dtype: type of the returned images, by default their own; integers are rounded and saturated.
        num_classes: number of classes, for integer labels.
        label_smoothing: fraction of each label, from 0 to 1, that is spread evenly over all classes.
        partner: which sample ``j`` is: "random", "previous" (``i - 1``, for the first one the last) or "reversed" (``N - 1 - i``).
        per_batch: draw once for all samples of the batch.
        return_params: also return the permutation, int64 (N,), and ``lam``, float32 (N,).
        rng: random generator, by default :func:`torch_ndd.random.get_default_rng`; it advances by 14 words per call.

    Returns:
        The images and the labels, a Batch of float32 (classes,); without labels only the images. With ``return_params`` a tuple that ends with the
        permutation and ``lam``.

    Raises:
        ValueError: samples of different shapes, labels that do not fit, integer labels without ``num_classes``, an ``alpha`` that is not positive,
            a smoothing outside 0 to 1, another ``partner``.
        TypeError: ``images`` that are not a Batch.

    >>> images, labels = ndd.augment.mixup(batch(torch.ones(4, 2, 2, 3)), [0, 1, 2, 2], num_classes=3, alpha=0.2)
    >>> images.dtype, labels.shape[0], labels.torch().sum(1)
    (torch.float32, (3,), tensor([1., 1., 1., 1.]))
    """
    op = "mixup"
    images = _require_equal_shapes(op, images)
    _check_arguments(op, alpha, rng)
    soft = smooth_labels(op, soft_labels(op, labels, num_classes, images.batch_size), label_smoothing)
    order, lam = _draw_pairs(op, images.batch_size, alpha, rng, partner, per_batch)
    output = blend(images, order, lam, dtype=images.dtype if dtype is None else types.to_dtype(dtype))
    return _as_results(output, soft, order, lam, return_params)


@exclude_from_compilation
def cutmix(
    images: Batch,
    labels: Any = None,
    /,
    *,
    alpha: float = 1.0,
    label_smoothing: float = 0.0,
    num_classes: int | None = None,
    partner: Partner = "random",
    per_batch: bool = False,
    return_params: bool = False,
    rng: Any = None,
) -> Any:
    """Replace a box of every image by the same box of another sample, and mix the labels by its area (Yun et al., arXiv:1905.04899).

    For each sample ``lam`` is drawn from ``Beta(alpha, alpha)`` and a center from all pixels. The box has ``sqrt(1 - lam)`` of the image's height and
    width and is clipped to the image; the label's weight is then exactly the remaining part of the image.

    Args:
        images: a Batch ``HWC`` or ``CHW`` with equal shapes, any type.
        labels, alpha, label_smoothing, num_classes, partner, per_batch: see :func:`mixup`.
        return_params: also return the permutation, int64 (N,), the remaining fraction of each image, float32 (N,), and the boxes, int64 (N, 4): left,
            top, right, bottom.
        rng: random generator, by default :func:`torch_ndd.random.get_default_rng`; it advances by 21 words per call.

    Returns:
        See :func:`mixup`; the images keep their type.

    Raises:
        ValueError: see :func:`mixup`; another layout.
        TypeError: see :func:`mixup`.

    >>> images = batch(torch.arange(2, dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 8, 8, 1), layout="HWC")
    >>> mixed, labels = ndd.augment.cutmix(images, [0, 1], num_classes=2)
    >>> bool((mixed.torch().float().mean((1, 2, 3)) == labels.torch()[:, 1]).all())
    True
    """
    op = "cutmix"
    images = _require_equal_shapes(op, images)
    _check_arguments(op, alpha, rng)
    layout = images.layout or "HWC"
    if layout not in ("HWC", "CHW") or images.ndim != 3:
        raise layout_error(op, images, ("HWC", "CHW"))
    soft = smooth_labels(op, soft_labels(op, labels, num_classes, images.batch_size), label_smoothing)
    order, lam = _draw_pairs(op, images.batch_size, alpha, rng, partner, per_batch)
    height, width = (images.buffer.shape[1 + layout.index(letter)] for letter in "HW")
    centers = draw_numbers(op, rng, len(order), 2)
    # With one draw for the batch, all samples share the center of the first.
    boxes = _cutmix_boxes(np.repeat(centers[:1], len(centers), 0) if per_batch else centers, lam, height, width)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    # Boxes are clipped to the image, so the share follows from the area and not from the draw.
    remaining = (1 - area / max(1, height * width)).astype(np.float32)
    output = paste_boxes(images, order, torch.from_numpy(boxes))
    extra = (torch.from_numpy(boxes),) if return_params else ()
    return _as_results(output, soft, order, remaining, return_params, *extra)


@exclude_from_compilation
def mixup_or_cutmix(
    images: Batch,
    labels: Any = None,
    /,
    *,
    cutmix_alpha: float = 1.0,
    label_smoothing: float = 0.0,
    mixup_alpha: float = 0.8,
    num_classes: int | None = None,
    partner: Partner = "reversed",
    per_batch: bool = True,
    probability: float = 1.0,
    rng: Any = None,
    switch_probability: float = 0.5,
) -> Any:
    """Apply :func:`mixup` or :func:`cutmix` to a batch, or neither.

    The defaults are those with which timm's scripts train: one draw for the whole batch, mixed with the batch in reverse order.

    Args:
        images: a Batch ``HWC`` or ``CHW`` with equal shapes, any type.
        labels, label_smoothing, num_classes, partner, per_batch: see :func:`mixup`.
        mixup_alpha, cutmix_alpha: ``alpha`` of each; 0 excludes it.
        probability: probability of mixing the batch; labels are smoothed in any case.
        switch_probability: probability of :func:`cutmix` if both have an ``alpha``.
        rng: random generator, by default :func:`torch_ndd.random.get_default_rng`.

    Returns:
        The images and the labels, a Batch of float32 (classes,); without labels only the images.

    Raises:
        ValueError: see :func:`mixup` and :func:`cutmix`; both alphas 0, a probability outside 0 to 1.
        TypeError: ``images`` that are not a Batch.

    >>> images = batch(torch.ones(4, 3, 8, 8), layout="CHW")
    >>> images, labels = ndd.augment.mixup_or_cutmix(images, [0, 1, 2, 2], num_classes=4, label_smoothing=0.1)
    >>> images.shape[0], labels.shape[0]
    ((3, 8, 8), (4,))
    """
    op = "mixup_or_cutmix"
    images = _require_equal_shapes(op, images)
    for name, value in (("probability", probability), ("switch_probability", switch_probability)):
        if not 0 <= value <= 1:
            raise ValueError(f"{op}: {name} must be from 0 to 1, got {value}")
    if mixup_alpha <= 0 and cutmix_alpha <= 0:
        raise ValueError(f"{op}: one of mixup_alpha and cutmix_alpha must be positive, got {mixup_alpha} and {cutmix_alpha}")
    acts, switches = draw_numbers(op, rng, 1, 2)[0]
    shared: dict[str, Any] = {"label_smoothing": label_smoothing, "num_classes": num_classes, "partner": partner, "per_batch": per_batch, "rng": rng}
    # Labels are converted all the same, so every batch has labels of one kind.
    if acts >= probability:
        soft = smooth_labels(op, soft_labels(op, labels, num_classes, images.batch_size), label_smoothing)
        return images if soft is None else (images, new_batch(soft))
    if cutmix_alpha > 0 and (mixup_alpha <= 0 or switches < switch_probability):
        return cutmix(images, labels, alpha=cutmix_alpha, **shared)
    return mixup(images, labels, alpha=mixup_alpha, **shared)


def _require_equal_shapes(op: str, images: Any) -> Batch:
    images = unwrap(images)
    if not isinstance(images, Batch):
        raise TypeError(f"{op}: images must be a Batch, got {type(images).__name__}; convert them with batch() or as_batch()")
    if images.ragged_shapes is not None and images.batch_size:
        raise ValueError(
            f"{op}: images must have equal shapes, got {', '.join(map(str, sorted(set(images.shape))[:3]))}; resize them first, for instance by "
            "resize(images, size=[224, 224])"
        )
    return images


def _check_arguments(op: str, alpha: float, rng: Any) -> None:
    check_rng(op, rng)
    if not 0 < alpha < float("inf"):
        raise ValueError(f"{op}: alpha must be positive and finite, got {alpha}")


def _draw_pairs(op: str, size: int, alpha: float, rng: Any, partner: Partner, per_batch: bool) -> tuple[torch.Tensor, np.ndarray]:
    """Return the partner of every sample, and the fraction of the sample that remains."""
    check_choice(op, "partner", partner, get_args(Partner), ValueError)
    # Drawn for every kind of partner, so the generator always advances equally.
    order = batch_permutation(batch_size=size, rng=rng).wait().long()
    if partner != "random":
        order = torch.arange(size)
        order = order.roll(1) if partner == "previous" else order.flip(0)
    lam = beta(alpha=alpha, beta=alpha, batch_size=size, rng=rng).wait().numpy()
    return order, np.repeat(lam[:1], size) if per_batch else lam


def smooth_labels(op: str, soft: torch.Tensor | None, smoothing: float) -> torch.Tensor | None:
    """Spread a fraction of each label evenly over all classes."""
    if not 0 <= smoothing <= 1:
        raise ValueError(f"{op}: label_smoothing must be from 0 to 1, got {smoothing}")
    return soft if soft is None or smoothing == 0 else soft * (1 - smoothing) + smoothing / soft.shape[1]


def _cutmix_boxes(centers: np.ndarray, lam: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return left, top, right, bottom of the boxes to replace, int64 (N, 4)."""
    half = np.sqrt(1 - lam.astype(np.float64)) / 2
    y, x = (centers * (height, width)).astype(np.int64).T
    h, w = (half * height).astype(np.int64), (half * width).astype(np.int64)
    return np.stack([np.maximum(x - w, 0), np.maximum(y - h, 0), np.minimum(x + w, width), np.minimum(y + h, height)], 1)


def blend(images: Batch, order: torch.Tensor, lam: np.ndarray, others: Batch | None = None, dtype: torch.dtype | None = None) -> Batch:
    """Return ``lam * images[i] + (1 - lam) * others[order[i]]``; ``lam`` is (N,), ``others`` by default the images.

    ``dtype`` is by default float32, for images of float64 theirs.
    """
    kind = np.float64 if images.dtype is torch.float64 else np.float32
    wanted = dtype or (torch.float64 if images.dtype is torch.float64 else torch.float32)
    partners = images if others is None else others
    # One kernel blends without a permuted copy; otherwise the operators do, one by one.
    if len(order) and _can_blend(images, wanted) and (partners is images or (_are_alike(partners, images) and _can_blend(partners, wanted))):
        shares = np.empty((len(lam), 2), kind)
        shares[:, 0], shares[:, 1] = lam, 1.0 - lam
        return _blend_batch(images, partners, order.to(torch.int64), torch.from_numpy(shares), wanted)
    weight, rest = (new_batch(torch.from_numpy(share.astype(kind))).to_device(images.device) for share in (lam, 1.0 - lam))
    blended = images * weight + (permute_batch(partners, indices=order.tolist()) if len(order) else partners) * rest
    return cast(blended, dtype=wanted)


def mix_labels(soft: torch.Tensor, order: torch.Tensor, lam: torch.Tensor) -> torch.Tensor:
    """Return ``lam * soft[i] + (1 - lam) * soft[order[i]]``, (N, classes)."""
    if soft.is_cpu and not soft.requires_grad and soft.dtype in (torch.float32, torch.float64):
        # The same numbers by NumPy, whose operations take a third of the time on few labels.
        labels, share = soft.numpy(), lam.numpy()
        own, other = (part.astype(labels.dtype)[:, None] for part in (share, 1.0 - share))
        return torch.from_numpy(own * labels + other * labels[order.numpy()])
    weight, rest = (share.to(soft.device, soft.dtype)[:, None] for share in (lam, 1.0 - lam))
    return weight * soft + rest * soft[order.to(soft.device)]


def soft_labels(op: str, labels: Any, num_classes: int | None, size: int) -> torch.Tensor | None:
    """Return a probability of each class for every sample, float32 (N, classes)."""
    if labels is None:
        return None
    labels = unwrap(labels)
    values = as_batch(labels).wait() if isinstance(labels, Operand) else torch.as_tensor(labels)
    if values.dim() == 2 and values.shape[1] == 1 and not values.is_floating_point():  # readers return labels of shape (1,)
        values = values[:, 0]
    if values.dim() not in (1, 2) or len(values) != size:
        raise ValueError(f"{op}: labels must have the shape (N,) or (N, classes) for {size} images, got {tuple(values.shape)}")
    if values.dim() == 2:
        return values.float()
    if values.is_floating_point():
        raise ValueError(f"{op}: labels (N,) must be integers, the indices of classes, got {types.dtype_name(values.dtype)}")
    if num_classes is None:
        raise ValueError(f"{op}: num_classes must be passed with integer labels")
    if not values.is_cpu:  # a check would wait for the labels
        return (values[:, None] == torch.arange(num_classes, device=values.device)).float()
    classes = values.numpy().astype(np.int64, copy=False)  # booleans would select, not index
    if size and not 0 <= classes.min() <= classes.max() < num_classes:
        raise ValueError(f"{op}: labels must be from 0 to num_classes - 1 = {num_classes - 1}, got {classes.min()} to {classes.max()}")
    soft = np.zeros((size, num_classes), np.float32)
    soft[np.arange(size), classes] = 1.0
    return torch.from_numpy(soft)


def _as_results(images: Batch, soft: torch.Tensor | None, order: torch.Tensor, lam: np.ndarray, return_params: bool, *extra: torch.Tensor) -> Any:
    weight = torch.from_numpy(lam)
    results: list[Any] = [images]
    if soft is not None:
        results.append(new_batch(mix_labels(soft, order, weight)))
    if return_params:
        results += [order, weight, *extra]
    return results[0] if len(results) == 1 else tuple(results)


# --- Blending in one pass: with arithmetic, mixup would copy all partners first ---

_blend_kernel = RepeatedKernel(native.kernel("blend_batch", writes=(-1,)))
_BLEND_TYPES = (torch.uint8, torch.float32)
# Of the images and the result on a GPU.
_BLEND_PAIRS = (*((torch.uint8, dtype) for dtype in _BLEND_TYPES), (torch.float32, torch.float32), (torch.float16, torch.float16))


def _can_blend(images: Batch, dtype: torch.dtype) -> bool:
    """Return whether the kernel takes these images, which must have equal shapes, for a result of this type."""
    values = images.buffer
    fits = values.dtype in _BLEND_TYPES if values.device.type == "cpu" else (values.dtype, dtype) in _BLEND_PAIRS
    return fits and images.ragged_shapes is None and values.is_contiguous() and not is_compiling()


def _are_alike(others: Batch, images: Batch) -> bool:
    """Return whether two batches have the same type, device and shapes of samples."""
    ours, theirs = images.buffer, others.buffer
    return (theirs.dtype, theirs.device, theirs.shape) == (ours.dtype, ours.device, ours.shape)


def _blend_batch(images: Batch, others: Batch, order: torch.Tensor, shares: torch.Tensor, dtype: torch.dtype) -> Batch:
    """Return ``images[i] * shares[i, 0] + others[order[i]] * shares[i, 1]``.

    Args:
        images, others: see :func:`_can_blend`; of the same shape.
        order: int64 (N,).
        shares: float32 (N, 2).
        dtype: type of the result; integers are rounded half away from zero and saturated.
    """
    sources = [(images, SAME_SAMPLE), (others, ALL_SAMPLES)]
    out, pending = _blend_kernel.run((images.buffer, others.buffer, order, shares), sources, dtype)
    return new_batch(out, None, images.layout, pending)
